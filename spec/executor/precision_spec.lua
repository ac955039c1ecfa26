-- Products of float32 whose operands are rounded to bfloat16 (core/precision.lua).

local device = require "spec.support.device"
local shell = require "spec.support.shell"
local ty = require "tycho"

-- Returns whether this processor multiplies bfloat16: elsewhere "medium" is float32.
local function rounds()
  local x = ty.sym.Variable "x"
  local exe = ty.sym.FullyConnected{ x, num_hidden = 32, name = "fc" }:simple_bind{ ctx = ty.cpu(),
    x = { 32, 32 }, precision = "medium" }
  return exe:program():find("products of bfloat16", 1, true) ~= nil
end

-- name -> a symbol and the shape of each input
local CASES = {
  FullyConnected = { ty.sym.FullyConnected{ ty.sym.Variable "a", num_hidden = 48 },
    { a = { 40, 70 } } },
  ["FullyConnected of kept weights"] = { ty.sym.FullyConnected{ ty.sym.Variable "a",
    num_hidden = 300 }, { a = { 300, 130 } } },
  dot = { ty.sym.dot(ty.sym.Variable "a", ty.sym.Variable "b"), { a = { 33, 65 }, b = { 65, 47 } } },
  ["dot, turned"] = { ty.sym.dot{ ty.sym.Variable "a", ty.sym.Variable "b", transpose_a = true,
    transpose_b = true }, { a = { 65, 33 }, b = { 47, 65 } } },
  batch_dot = { ty.sym.batch_dot(ty.sym.Variable "a", ty.sym.Variable "b"),
    { a = { 3, 40, 33 }, b = { 3, 33, 50 } } },
  linalg_gemm2 = { ty.sym.linalg.gemm2{ ty.sym.Variable "a", ty.sym.Variable "b", alpha = 0.5 },
    { a = { 40, 33 }, b = { 33, 50 } } },
  ["Convolution, stride 2"] = { ty.sym.Convolution{ ty.sym.Variable "a", kernel = { 3, 3 },
    pad = { 1, 1 }, stride = { 2, 2 }, num_filter = 32 }, { a = { 2, 32, 48, 48 } } },
  ["Convolution, two of them"] = { ty.sym.Convolution{ ty.sym.Convolution{ ty.sym.Variable "a",
    kernel = { 1, 1 }, num_filter = 32 }, kernel = { 3, 3 }, pad = { 1, 1 }, stride = { 2, 2 },
    num_filter = 32 }, { a = { 2, 64, 24, 24 } }, 0.02 },
  attention = { ty.sym.contrib.attention{ ty.sym.Variable "a", heads = 3, packed = "qkv",
    causal = true }, { a = { 2, 70, 3 * 3 * 20 } }, 0.02 },
  RNN = { ty.sym.RNN{ ty.sym.Variable "a", ty.sym.Variable "parameters", ty.sym.Variable "state",
    ty.sym.Variable "state_cell", state_size = 40, num_layers = 1, mode = "lstm" },
    { a = { 5, 24, 30 } }, 0.02 },
}

-- Returns outputs and gradients for the same numbers.
local function run(symbol, shapes, precision)
  local options = { ctx = ty.cpu(), precision = precision }
  for name, shape in pairs(shapes) do
    options[name] = shape
  end
  local exe = symbol:simple_bind(options)
  ty.random.seed(7)
  for _, name in ipairs(symbol:list_arguments()) do
    local x = exe.arg_dict[name]
    x[":"] = ty.nd.random.uniform{ low = -1, high = 1, shape = x.shape }
  end
  exe:forward{ is_train = true }
  local results = { exe.outputs[1]:copy() }
  exe:backward{ ty.nd.random.uniform{ low = -1, high = 1, shape = exe.outputs[1].shape } }
  for _, name in ipairs(symbol:list_arguments()) do
    results[#results + 1] = exe.grad_dict[name]:copy()
  end
  return results, exe
end

-- Returns the largest difference over the largest number.
local function distance(x, y)
  local most = y:abs():max():asscalar()
  return (x - y):abs():max():asscalar() / math.max(most, 1e-30)
end

describe("precision", function()
  setup(device.leave)                                    -- on a GPU: spec/cuda/precision_spec.lua
  teardown(device.come_back)
  for name, case in pairs(CASES) do
    it("medium rounds the operands of " .. name, function()
      local exact = run(case[1], case[2], "highest")
      local rounded, exe = run(case[1], case[2], "medium")
      local differs = false
      for i, x in ipairs(exact) do
        local d = distance(rounded[i], x)
        assert.is_true(d <= (case[3] or 0.01), ("result %d is %g off"):format(i, d))
        differs = differs or d > 0
      end
      local said = exe:program():find("products of bfloat16", 1, true) ~= nil
      assert.equal(said, differs)
      if not name:find "Convolution" then                -- which need oneDNN for that
        assert.equal(rounds(), said)
      end
    end)
  end

  -- What a convolution whose channels are rounded in pairs gives, against float32 on operands that
  -- are rounded before.
  for name, case in pairs{
    ["5 x 5"] = { { 8, 20, 12, 12 }, { num_filter = 50, kernel = { 5, 5 } } },
    ["odd channels, borders"] = { { 9, 5, 11, 13 }, { num_filter = 9, kernel = { 5, 3 },
      pad = { 2, 1 }, stride = { 2, 1 } } },
    ["groups, gaps, no bias"] = { { 8, 14, 15, 9 }, { num_filter = 24, kernel = { 4, 3 },
      dilate = { 2, 3 }, pad = { 3, 2 }, num_group = 2, no_bias = true } },
    ["one axis"] = { { 12, 20, 70 }, { num_filter = 11, kernel = { 7 }, pad = { 3 } } },
    ["three axes"] = { { 8, 6, 5, 6, 7 }, { num_filter = 10, kernel = { 3, 3, 3 },
      pad = { 1, 0, 1 } } },
    ["a sum of two runs"] = { { 8, 60, 9, 9 }, { num_filter = 20, kernel = { 5, 5 } } },
    ["scale, sum and relu"] = { { 8, 20, 12, 12 }, { num_filter = 50, kernel = { 5, 5 },
      no_bias = true }, true },
  } do
    it("medium rounds channels in pairs: " .. name, function()
      local shape, options = case[1], { data = ty.sym.Variable "a", name = "conv" }
      for key, v in pairs(case[2]) do options[key] = v end
      local y = ty.sym.Convolution(options)
      if case[3] then
        y = ty.sym.BatchNorm{ y, fix_gamma = false, name = "bn" }
        y = ty.sym.relu(y + ty.sym.exp(ty.sym.Variable "more"))
      end
      local function bind(precision)
        return y:simple_bind{ ctx = ty.cpu(), a = shape, precision = precision, grad_req = "null" }
      end
      local medium, exact = bind "medium", bind "highest"
      ty.random.seed(5)
      for argument, x in pairs(medium.arg_dict) do
        x[":"] = ty.nd.random.uniform{ low = -1, high = 1, shape = x.shape }
        local operand = argument == "a" or argument == "conv_weight"
        exact.arg_dict[argument][":"] = operand and x:astype "bfloat16":astype "float32" or x
      end
      for state, x in pairs(medium.aux_dict) do
        x[":"] = ty.nd.random.uniform{ low = 0.5, high = 1, shape = x.shape }
        exact.aux_dict[state][":"] = x
      end
      for turn = 1, 2 do                                 -- with the weight packed, then kept
        medium:forward{ is_train = false }
        exact:forward{ is_train = false }
        local d = distance(medium.outputs[1], exact.outputs[1])
        assert.is_true(rounds() and d < 1e-5 or d < 0.02, ("%g off, turn %d"):format(d, turn))
      end
      assert.equal(rounds(), medium:program():find "  pairs +cpu" ~= nil)
    end)
  end

  it("high and highest are float32", function()
    local case = CASES.FullyConnected
    local exact, exe = run(case[1], case[2], "highest")
    local high = run(case[1], case[2], "high")
    local default = run(case[1], case[2])
    for i, x in ipairs(exact) do
      assert.equal(0, distance(high[i], x))
      assert.equal(0, distance(default[i], x))
    end
    assert.is_nil(exe:program():find("products of bfloat16", 1, true))
  end)

  it("equal settings give equal bits, whatever the threads", function()
    local case = CASES["FullyConnected of kept weights"]
    local a, b = run(case[1], case[2], "medium"), run(case[1], case[2], "medium")
    for i, x in ipairs(a) do
      assert.equal(0, distance(b[i], x))
    end
  end)

  it("a program names no kernel of another element type", function()
    local exe = ty.sym.FullyConnected{ ty.sym.Variable "x", num_hidden = 3 }:simple_bind{
      ctx = ty.cpu(), x = { 2, 4 } }
    assert.is_nil(exe:program():find("not bfloat16", 1, true))
  end)

  it("float64 is never rounded", function()
    local x = ty.nd.array({ { 1 + 2 ^ -30 } }, { dtype = "float64" })
    ty.precision("medium"):with(function()
      local w = ty.nd.ones({ 1, 1 }, { dtype = "float64" })
      assert.equal(1 + 2 ^ -30, ty.nd.dot(x, w):asscalar())
    end)
  end)

  it("a scope holds for what is bound and called inside, and ends with an error", function()
    local before = ty.precision.current()
    local a = ty.nd.random.uniform{ shape = { 64, 64 } }
    local b = ty.nd.random.uniform{ shape = { 64, 64 } }
    local exact, rounded = ty.nd.dot(a, b), nil
    local x = ty.sym.Variable "x"
    ty.precision("medium"):with(function()
      rounded = ty.nd.dot(a, b)
      assert.equal("medium", ty.precision.current())
      ty.precision("highest"):with(function()
        assert.equal(0, distance(ty.nd.dot(a, b), exact))
      end)
      local exe = ty.sym.FullyConnected{ x, num_hidden = 8 }:simple_bind{ ctx = ty.cpu(),
        x = { 8, 8 } }
      assert.equal(rounds(), exe:program():find("products of bfloat16", 1, true) ~= nil)
    end)
    assert.equal(rounds(), distance(rounded, exact) > 0)
    assert.equal(before, ty.precision.current())
    assert.equal(3, ty.precision("medium"):with(function(i, j) return i + j end, 1, 2))
    assert.has_error(function()
      ty.precision("medium"):with(function() error("stop", 0) end)
    end, "stop")
    assert.equal(before, ty.precision.current())
    assert.equal(0, distance(ty.nd.dot(a, b), exact))
  end)

  it("a scope that was not left ends with the one around it", function()
    local flags = require "tycho.core.precision"
    local ctx = { _precision = "medium" }
    local free = flags.flag(nil, ctx, "spec")
    ty.precision("high"):with(function()
      ty.precision("highest"):enter()
      assert.not_equal(free, flags.flag(nil, ctx, "spec"))
    end)
    assert.equal(free, flags.flag(nil, ctx, "spec"))
  end)

  it("recorded calls have the precision of the scope that they are made in", function()
    local a = ty.nd.random.uniform{ low = -1, high = 1, shape = { 64, 64 } }
    local b = ty.nd.random.uniform{ low = -1, high = 1, shape = { 64, 64 } }
    local of = {}
    for _, word in ipairs{ "highest", "medium" } do
      of[word] = ty.precision(word):with(function()
        return { value = ty.nd.dot(a, b), gradient = ty.nd.dot(ty.nd.ones{ 64, 64 },
          ty.nd.transpose(b)) }
      end)
    end
    assert.equal(rounds(), distance(of.medium.value, of.highest.value) > 0)
    a:attach_grad()
    for _ = 1, 4 do
      for _, words in ipairs{ { "highest", "medium", "highest" }, { "medium", "highest", "medium" },
        { "highest", "highest", "medium" }, { "medium", "medium", "highest" } } do
        local y, after
        ty.autograd.record(function()
          ty.precision(words[1]):with(function() y = ty.nd.dot(a, b) end)
          ty.precision(words[2]):with(function() after = ty.nd.dot(ty.nd.relu(y) * 2, b) end)
        end)
        local want = ty.precision(words[2]):with(function()
          return ty.nd.dot(ty.nd.relu(of[words[1]].value) * 2, b)
        end)
        ty.precision(words[3]):with(function() ty.autograd.backward{ y } end)
        assert.equal(0, distance(y, of[words[1]].value))
        assert.equal(0, distance(after, want))
        assert.equal(0, distance(a.grad, of[words[3]].gradient))
      end
    end
  end)

  it("recorded calls whose values were not kept are computed again as they were", function()
    local a = ty.nd.random.uniform{ low = -1, high = 1, shape = { 48, 48 } }
    local b = ty.nd.random.uniform{ low = -1, high = 1, shape = { 48, 48 } }
    local function make()
      return ty.nd.dot(ty.nd.relu(ty.nd.dot(a, b)) - 1, b)
    end
    local want = ty.precision("medium"):with(make)
    a:attach_grad()
    for _ = 1, 3 do
      local loss, inner
      ty.precision("medium"):with(function()
        ty.autograd.record(function()
          inner = ty.nd.dot(ty.nd.relu(ty.nd.dot(a, b)) - 1, b)
          loss = ty.nd.sum(inner * inner)
        end)
      end)
      assert.is_true(loss:asscalar() > 0)
      loss:backward()
      local gradient = a.grad:copy()
      -- the same by hand: forward as recorded, gradients in float32
      local y = ty.precision("medium"):with(function() return ty.nd.dot(a:copy(), b) end)
      local dy = ty.nd.dot(want * 2, ty.nd.transpose(b)) * (y:sign() + 1) / 2
      assert.is_true(distance(gradient, ty.nd.dot(dy, ty.nd.transpose(b))) < 1e-6)
      assert.equal(0, distance(inner, want))
    end
  end)

  it("a context keeps a word, a module takes one", function()
    local ctx = ty.cpu(7)
    ctx:set_precision "medium"
    local net = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 8, name = "fc" }
    local exe = net:simple_bind{ ctx = ctx, data = { 8, 8 } }
    assert.equal(rounds(), exe:program():find("products of bfloat16", 1, true) ~= nil)
    ctx:set_precision "highest"
    local m = ty.mod.Module{ net, data_names = { "data" }, label_names = {} }
    m:bind{ data_shapes = { { "data", { 8, 8 } } }, for_training = false, precision = "medium" }
    m:init_params()
    m:forward{ data = { ty.nd.ones{ 8, 8 } } }
    assert.same({ 8, 8 }, m:get_outputs()[1].shape)
  end)

  it("names the words when another is given", function()
    for _, f in ipairs{ function() ty.precision "low" end,
      function() ty.cpu():set_precision "low" end,
      function()
        ty.sym.FullyConnected{ ty.sym.Variable "x", num_hidden = 1 }:simple_bind{ ctx = ty.cpu(),
          x = { 1, 1 }, precision = "low" }
      end } do
      local ok, e = pcall(f)
      assert.is_false(ok)
      assert.matches("highest, high or medium", tostring(e))
    end
    assert.has_error(function() ty.precision("high"):exit() end)
  end)

  it("of the environment: a word that is none is named, and float32 kept", function()
    local code = [[ -e 'local ty = require "tycho" print(ty.nd.ones{ 2 }:sum():asscalar())
      ty.precision "high"' ]]
    local output = shell.run("TYCHO_PRECISION=mediun " .. shell.program .. code)
    assert.matches("TYCHO_PRECISION is 'mediun', expected highest, high or medium", output, 1, true)
    assert.equal("2\n", (shell.run("TYCHO_PRECISION=medium " .. shell.program .. code)))
  end)

  it("bfloat16 arrays keep their numbers", function()
    local a = ty.nd.random.uniform{ low = -1, high = 1, shape = { 40, 64 } }:astype "bfloat16"
    local b = ty.nd.random.uniform{ low = -1, high = 1, shape = { 64, 48 } }:astype "bfloat16"
    local want = ty.nd.dot(a:astype "float64", b:astype "float64"):astype "float32"
    local got = ty.nd.dot(a, b):astype "float32"
    assert.is_true(distance(got, want) < 0.006)
  end)
end)
