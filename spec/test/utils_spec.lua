-- The test helpers (runtime/lua/tycho/test/utils.lua, runtime/lua/tycho/runtime.lua): they fail
-- when something is wrong, and name the place.

local folder = require "spec.support.folder"
local ty = require "tycho"

local utils, V = ty.test_utils, ty.sym.Variable

-- Returns the message of the ordinary error that f raises.
local function complaint(f, ...)
  local ok, e = pcall(f, ...)
  assert.is_false(ok)
  return tostring(e)
end

local function has(text, ...)
  for _, piece in ipairs{ ... } do
    assert.truthy(text:find(piece, 1, true), text)
  end
end

-- Returns x * x with a gradient that is wrong by `factor`.
local function square(name, factor)
  ty.op.pointwise{ name = name, args = { "a" }, formula = "a * a",
    grad = { ("%g * g * a"):format(2 * factor) }, doc = "its square" }
  return ty.sym[name]{ V("x"), name = "sq" }
end

describe("get_mnist_iterator", function()
  it("opens the four files of a folder", function()
    folder.with(function(path)
      for _, kind in ipairs{ "train", "t10k" } do
        folder.write(path .. "/" .. kind .. "-images-idx3-ubyte",
          "\0\0\8\3\0\0\0\2\0\0\0\2\0\0\0\2" .. ("\128"):rep(8))
        folder.write(path .. "/" .. kind .. "-labels-idx1-ubyte", "\0\0\8\1\0\0\0\2\3\5")
      end
      local options = { batch_size = 2, input_shape = { 4 }, path = path }
      local _, flat = utils.get_mnist_iterator(options)
      assert.same({ { 0.5, 0.5, 0.5, 0.5 }, { 0.5, 0.5, 0.5, 0.5 } }, flat:next().data[1]:totable())
      options.input_shape = { 1, 2, 2 }
      local train = utils.get_mnist_iterator(options)
      assert.same({ 2, 1, 2, 2 }, train.provide_data[1].shape)
    end)
  end)
end)

describe("comparisons", function()
  it("name the worst element, from 0", function()
    local a = ty.nd.array{ { 1, 2, 3 }, { 4, 5, 6 } }
    local b = ty.nd.array{ { 1, 2, 3.5 }, { 4, 7, 6 } }
    has(complaint(utils.assert_almost_equal, a, b, { names = { "mine", "theirs" } }), "mine",
      "theirs", "(1, 1)", "5", "7")
    local at = utils.find_max_violation(a, b)
    assert.same({ 1, 1 }, at)
    assert.is_false(utils.almost_equal(a, b))
    assert.is_true(utils.almost_equal(a, b, { atol = 2 }))
  end)

  it("take the looser tolerance of two element types", function()
    local x = ty.nd.array({ 1.005 }, { dtype = "float16" })
    assert.is_true(utils.almost_equal(x, ty.nd.array{ 1 }))
    assert.is_false(utils.almost_equal(ty.nd.array{ 1.005 }, ty.nd.array{ 1 }))
    assert.is_false(utils.almost_equal(ty.nd.array({ 2 }, { dtype = "int32" }),
      ty.nd.array({ 1 }, { dtype = "int32" })))
  end)

  it("treat NaN, infinities and shapes as they are", function()
    local nan, inf = 0 / 0, math.huge
    assert.is_false(utils.almost_equal({ nan }, { nan }))
    assert.is_true(utils.almost_equal({ nan }, { nan }, { equal_nan = true }))
    assert.is_true(utils.almost_equal({ inf }, { inf }))
    assert.is_false(utils.almost_equal({ inf }, { -inf }))
    assert.is_false(utils.almost_equal({ 1 }, { inf }, { rtol = 1 }))
    has(complaint(utils.assert_almost_equal, ty.nd.ones{ 2 }, ty.nd.ones{ 2, 1 }), "(2,)", "(2, 1)")
  end)

  it("tell one memory from equal contents", function()
    local a = ty.nd.ones{ 3 }
    assert.is_true(utils.same(a, a:copy()))
    assert.is_false(utils.same_array(a, a:copy()))
    assert.is_true(utils.same_array(a, a:reshape{ 1, 3 }:reshape{ 3 }))
    assert.same({ 1, 1, 1 }, a:totable())
  end)
end)

describe("gradient checks", function()
  it("pass a right gradient and find a wrong one", function()
    local right, wrong = square("test_square_right", 1), square("test_square_wrong", 1.01)
    local location = { x = ty.nd.array({ 0.5, -1, 2 }, { dtype = "float64" }) }
    utils.check_numeric_gradient{ sym = right, location = location }
    has(complaint(utils.check_numeric_gradient, { sym = wrong, location = location }), "x", "(")
    utils.check_numeric_gradient{ sym = wrong, location = location, grad_nodes = {} }
  end)

  it("work on functions of arrays", function()
    local x, w = ty.nd.array{ { 0.1, 0.2 } }, ty.nd.array{ { 1, 2 }, { 3, 4 } }
    local function f(a, b) return ty.nd.dot(ty.nd.tanh(a), b), a * 2 end
    utils.check_gradient{ f = f, inputs = { x, w } }
    utils.check_gradient{ f, { x:astype("float64"), w:astype("float64") }, rtol = 1e-6,
      atol = 1e-8 }
    utils.check_gradient{ f = function(a) return { a * a } end, inputs = { { 1, 2 } }, eps = 1e-2 }
    assert.same({ { 1, 2 }, { 3, 4 } }, w:totable())
    assert.is_nil(w.grad)
    local Wrong = ty.autograd.Function:extend("Wrong")
    function Wrong:forward(a) return a * a end
    function Wrong:backward(dy) return dy end
    has(complaint(utils.check_gradient,
      { f = function(a) return Wrong()(a) end, inputs = { { 1, 2 } } }), "gradient of input 1")
    assert.raises("type", utils.check_gradient, { f = function() return 3 end, inputs = { x } })
    assert.raises("value", utils.check_gradient, { f = f, inputs = {} })
    assert.raises("dtype", utils.check_gradient, { f = f, inputs = { x:astype("int32") } })
  end)

  it("compare what was asked for: written, added, left alone", function()
    local sym, x = square("test_square_reqs", 1), ty.nd.array{ 1, 2 }
    for _, req in ipairs{ "write", "add", "null" } do
      utils.check_symbolic_backward{ sym = sym, location = { x = x },
        out_grads = { ty.nd.array{ 1, 10 } },
        expected = { x = ty.nd.array{ 2, 40 } }, grad_req = req }
    end
    has(complaint(utils.check_symbolic_backward, { sym = sym, location = { x = x },
      out_grads = { ty.nd.array{ 1, 10 } }, expected = { x = ty.nd.array{ 2, 41 } } }),
      "(1)", "40", "41")
  end)

  it("compare outputs", function()
    utils.check_symbolic_forward{ sym = V("x") * 2, location = { x = { 1, 2 } },
      expected = { { 2, 4 } } }
    has(complaint(utils.check_symbolic_forward,
      { sym = V("x") * 2, location = { x = { 1, 2 } }, expected = { { 2, 5 } } }), "(1)", "4", "5")
  end)

  it("want every argument, by its name", function()
    local sym = V("x") * V("y")
    assert.raises("value", utils.check_symbolic_forward,
      { sym = sym, location = { x = { 1 } }, expected = { { 1 } } })
    assert.raises("value", utils.check_symbolic_forward,
      { sym = sym, location = { x = { 1 }, z = { 1 } }, expected = { { 1 } } })
  end)

  it("restore auxiliary states before each run", function()
    local sym = ty.sym.BatchNorm{ V("x"), fix_gamma = false, eps = 1e-3, name = "bn" }
    local x = ty.nd.random.uniform{ shape = { 4, 3 }, dtype = "float64" }
    local function of(v) return ty.nd.full({ 3 }, v, { dtype = "float64" }) end
    utils.check_numeric_gradient{ sym = sym,
      location = { x = x, bn_gamma = of(1.5), bn_beta = of(0.5) },
      aux_states = { bn_moving_mean = of(0), bn_moving_var = of(1) }, rtol = 1e-3, atol = 1e-4 }
  end)
end)

describe("consistency", function()
  it("holds between element types and devices", function()
    local sym = ty.sym.FullyConnected{ V("data"), num_hidden = 3, name = "fc" }
    local list = {}
    for i, dtype in ipairs{ "float64", "float32", "float16" } do
      list[i] = { ctx = ty.cpu(i % 2), data = { 2, 4 }, type_dict = { data = dtype } }
    end
    local truth = utils.check_consistency{ sym = sym, ctx_list = list }
    assert.shape({ 2, 3 }, truth.fc_output)
    has(complaint(utils.check_consistency, { sym = sym, ctx_list = list,
      ground_truth = { fc_output = ty.nd.full({ 2, 3 }, 99) }, grad_req = "null" }), "fc_output")
  end)
end)

describe("small helpers", function()
  it("expect errors", function()
    utils.assert_exception(ty.nd.zeros, "value")
    has(complaint(utils.assert_exception, function() end, "value"), "no error")
    has(complaint(utils.assert_exception, ty.nd.zeros, "shape"), "shape", "value")
  end)

  it("try again", function()
    local calls = 0
    local f = utils.retry(3)(function(x)
      calls = calls + 1
      return calls < 3 and error("not yet") or x
    end)
    assert.equal(7, f(7))
    assert.equal(3, calls)
    calls = -10
    assert.is_false(pcall(f, 7))
    assert.equal(-7, calls)
    assert.raises("value", utils.retry, 0)
  end)

  it("run once", function()
    assert.same({ 3, 4 }, utils.simple_forward(V("a") + 1, { a = ty.nd.array{ 2, 3 } }):totable())
  end)

  it("make shapes and arrays within their bounds", function()
    for _ = 1, 20 do
      local s = utils.rand_shape_nd(4, 5)
      assert.equal(4, #s)
      for _, size in ipairs(s) do
        assert.truthy(size >= 1 and size <= 5)
      end
    end
    local x = utils.rand_ndarray{ 3, 4, dtype = "float64" }
    assert.shape({ 3, 4 }, x)
    assert.equal("float64", x.dtype)
  end)
end)

describe("features", function()
  it("are named, sorted, and reported one by one", function()
    assert.is_true(ty.runtime.is_enabled("PROFILER"))
    assert.is_false(ty.runtime.is_enabled("F16C"))
    local list, before = ty.runtime.Features(), ""
    for _, f in ipairs(list) do
      assert.truthy(before < f.name)
      assert.equal(f.enabled, ty.runtime.is_enabled(f.name))
      before = f.name
    end
    assert.truthy(#list > 8)
    assert.equal(ty.num_gpus() > 0, ty.runtime.is_enabled("cuda"))
    assert.is_false(ty.runtime.is_enabled("OPENCV"))
    assert.is_false(ty.runtime.is_enabled("tensorrt"))
    local e = assert.raises("name", ty.runtime.is_enabled, "CUDE")
    assert.equal("CUDA", e.candidates[1])
  end)

  it("that are missing say why", function()
    if ty.num_gpus() > 0 then
      pending("there is a GPU")
    end
    local e = assert.raises("device", ty.nd.ones, { 2, ctx = ty.gpu(0) })
    assert.truthy(tostring(e):find("gpu(0) does not exist", 1, true))
    assert.truthy(tostring(e):find("CUDA", 1, true))
  end)
end)
