-- What programs written for the reference rely on, operator by operator.

local ty = require "tycho"
local shell = require "spec.support.shell"

local V = ty.sym.Variable

local function fresh(f)
  return ty.name.NameManager():with(f)
end

local function eval(net, arrays)
  local given = { ctx = ty.cpu() }
  for name, x in pairs(arrays or {}) do
    given[name] = x
  end
  return net:eval(given)[1]:totable()
end

describe("automatic names", function()
  it("are without the prefix of a namespace", function()
    fresh(function()
      local net = ty.sym.contrib.DeformableConvolution{ V("d"), V("o"), kernel = { 3, 3 },
        num_filter = 2 }
      assert.same({ "d", "o", "deformableconvolution0_weight", "deformableconvolution0_bias" },
        net:list_arguments())
      assert.equal("gemm20", ty.sym.linalg.gemm2{ V("a"), V("b") }.name)
      assert.equal("to_tensor0", ty.sym.image.to_tensor{ V("a") }.name)
      assert.equal("normal_like0", ty.sym.random.normal_like{ V("a") }.name)
    end)
  end)

  it("of random numbers keep theirs", function()
    fresh(function()
      assert.equal("_random_normal0", ty.sym.random.normal{ shape = { 2 } }.name)
      assert.equal("_sample_normal0", ty.sym.random.normal{ V("a"), V("b") }.name)
    end)
  end)

  it("of functions with a number are in one word", function()
    fresh(function()
      assert.equal("_rpowerscalar0", ty.sym.pow(2, V("a")).name)
      assert.equal("_rpower_scalar0", (2 ^ V("a")).name)
      assert.equal("_powerscalar0", ty.sym.pow(V("a"), 2).name)
      assert.equal("_hypotscalar0", ty.sym.hypot(V("a"), 2).name)
      assert.equal("_hypot0", ty.sym.hypot(V("a"), V("b")).name)
      assert.equal("_maximumscalar0", ty.sym.maximum(V("a"), 2).name)
    end)
  end)
end)

describe("random symbols", function()
  it("without a shape take their reader's", function()
    local net = ty.sym.random.normal{ loc = 1 } + V("X")
    local args, outs = net:infer_shape{ X = { 4, 5 } }
    assert.same({ { 4, 5 } }, args)
    assert.same({ { 4, 5 } }, outs)
    local exe = (ty.sym.random.randint{ 3, 4 } + V("X")):simple_bind{ ctx = ty.cpu(), X = { 2, 3 },
      type_dict = { X = "int32" } }
    exe.arg_dict.X[":"] = 1
    assert.same({ { 4, 4, 4 }, { 4, 4, 4 } }, exe:forward()[1]:totable())
  end)

  it("randn takes sizes and options in one table", function()
    for _, space in ipairs{ ty.sym, ty.nd } do
      local function find_shape(x)
        return space == ty.nd and x.shape or select(2, x:infer_shape{})[1]
      end
      assert.same({ 2, 3 }, find_shape(space.random.randn{ 2, 3, loc = 1 }))
      assert.same({ 2, 3 }, find_shape(space.random.randn(2, 3)))
      assert.same({ 2, 3 }, find_shape(space.random.randn(2, 3, { loc = 1, scale = 2 })))
      assert.raises("name", space.random.randn, { 2, 3, shape = { 2, 3 } })
    end
  end)
end)

describe("a size below 0", function()
  it("is named", function()
    for _, space in ipairs{ ty.sym, ty.nd } do
      local e = assert.raises("type", space.ones, { 2, -1 })
      assert.equal("sizes of at least 0", e.expected)
      assert.equal("-1 on axis 1", e.got)
    end
  end)
end)

describe("isnan, isinf, isfinite", function()
  local values = { 1, -2, 0, 0 / 0, 1 / 0, -1 / 0 }
  local want = { isnan = { 0, 0, 0, 1, 0, 0 }, isinf = { 0, 0, 0, 0, 1, 1 },
    isfinite = { 1, 1, 1, 0, 0, 0 } }

  for name, list in pairs(want) do
    it(name .. " tells elements of arrays and of symbols", function()
      for _, dtype in ipairs{ "float16", "bfloat16", "float32", "float64" } do
        local x = ty.nd.array(values, { dtype = dtype })
        assert.same(list, ty.nd.contrib[name]{ x }:totable())
        assert.same(list, ty.nd.contrib[name](x):totable())
        assert.equal(dtype, ty.nd.contrib[name](x).dtype)
        assert.same(list, eval(ty.sym.contrib[name](V("x")), { x = x }))
        assert.same(list, eval(ty.sym.contrib[name]{ data = V("x") }, { x = x }))
      end
    end)

    it(name .. " takes integers", function()
      local x = ty.nd.array({ 1, 2 }, { dtype = "int32" })
      local one = name == "isfinite" and 1 or 0
      assert.same({ one, one }, ty.nd.contrib[name](x):totable())
    end)
  end
end)

describe("Pooling with pooling_convention same", function()
  local x = ty.nd.array{ { { 3, 1, 4, 1, 5, 9, 2 } } }

  local function pool(options)
    options.kernel, options.pooling_convention = options.kernel or { 3 }, "same"
    return ty.nd.Pooling(options)
  end

  it("gives data / stride elements, rounded up, of windows that begin at stride * place", function()
    assert.same({ { { 4, 5, 9, 2 } } }, pool{ x, stride = { 2 }, pool_type = "max" }:totable())
    assert.same({ { { 8, 10, 16, 2 } } }, pool{ x, stride = { 2 }, pool_type = "sum" }:totable())
    assert.same({ { { 4, 4, 5, 9, 9, 9, 2 } } }, pool{ x, pool_type = "max" }:totable())
    assert.same({ { { 4 }, { 5 }, { 9 }, { 2 } } }, pool{ x:transpose{ 0, 2, 1 }, stride = { 2 },
      layout = "NWC" }:totable())
  end)

  it("has the gradient of its windows", function()
    local net = ty.sym.Pooling{ V("x"), kernel = { 3 }, stride = { 2 },
      pooling_convention = "same" }
    local exe = net:simple_bind{ ctx = ty.cpu(), x = { 1, 1, 7 } }
    exe:forward{ true, x = x }
    exe:backward(ty.nd.array{ { { 1, 2, 3, 4 } } })
    assert.same({ { { 0, 0, 1, 0, 2, 3, 4 } } }, exe.grad_dict.x:totable())
  end)

  it("takes one axis of space, and no padding", function()
    assert.raises("shape", pool, { ty.nd.ones{ 1, 1, 4, 4 }, kernel = { 2, 2 } })
    assert.raises("value", pool, { x, pad = { 1 } })
  end)
end)

describe("norm with out_dtype", function()
  it("sums in the dtype that holds both", function()
    local x = ty.nd.array({ { 3, 4 }, { 30000, 40000 } }, { dtype = "float16" })
    local y = ty.nd.norm{ x, axis = 1, out_dtype = "float32" }
    assert.equal("float32", y.dtype)
    assert.same({ 5, 50000 }, y:totable())
    assert.same({ 7, 70000 }, ty.nd.norm{ x, ord = 1, axis = 1, out_dtype = "float64" }:totable())
    local z = ty.nd.norm{ ty.nd.array{ 1.5, 2 }, out_dtype = "int32" }
    assert.equal("int32", z.dtype)
    assert.same({ 2 }, z:totable())                      -- 2.5, not the norm of 1 and 2
    local bytes = ty.nd.array({ 100, 100 }, { dtype = "int8" })
    assert.same({ 200 }, ty.nd.norm{ bytes, ord = 1, out_dtype = "int32" }:totable())
    assert.raises("value", ty.nd.norm, { x, out_dtype = "uint8" })
  end)

  it("has the norm's gradient, in the dtype of data, added where that is asked for", function()
    local net = ty.sym.norm{ V("x"), axis = 1, out_dtype = "float64" }
    for req, want in pairs{ write = { { 0.6, 0.8 } }, add = { { 1.6, 1.8 } } } do
      local exe = net:simple_bind{ ctx = ty.cpu(), x = { 1, 2 }, grad_req = req,
        type_dict = { x = "float32" } }
      exe.grad_dict.x[":"] = 1
      exe:forward{ true, x = ty.nd.array{ { 3, 4 } } }
      assert.equal("float64", exe.outputs[1].dtype)
      exe:backward(ty.nd.array({ 1 }, { dtype = "float64" }))
      assert.equal("float32", exe.grad_dict.x.dtype)
      assert.near(want, exe.grad_dict.x:totable())
    end
  end)
end)

describe("softmax with lengths", function()
  it("takes them as floats, as simple_bind without types gives them", function()
    local net = ty.sym.softmax{ V("x"), V("length"), use_length = true }
    local exe = net:simple_bind{ ctx = ty.cpu(), x = { 3, 2 }, length = { 3 } }
    exe:forward{ true, x = ty.nd.zeros{ 3, 2 }, length = ty.nd.array{ 1, 2, 0 } }
    assert.same({ { 1, 0 }, { 0.5, 0.5 }, { 0, 0 } }, exe.outputs[1]:totable())
    exe:backward(ty.nd.array{ { 1, 2 }, { 1, 2 }, { 1, 2 } })
    assert.same({ { 0, 0 }, { -0.25, 0.25 }, { 0, 0 } }, exe.grad_dict.x:totable())
    assert.same({ 0, 0, 0 }, exe.grad_dict.length:totable())
    assert.same({ { 1, 0 } }, ty.nd.softmax{ ty.nd.zeros{ 1, 2 }, ty.nd.array{ 1 },
      use_length = true }:totable())
  end)
end)

describe("remainders", function()
  local forms = {
    ["%"] = function(a, b) return a % b end,
    broadcast_mod = ty.sym.broadcast_mod,
    ["% number"] = function(a, b) return a % 3 + 0 * b end,
    ["number %"] = function(a, b) return 7 % a + 0 * b end,
  }
  local want = { ["%"] = { 1, -3 }, broadcast_mod = { 1, -3 }, ["% number"] = { 1, 0 },
    ["number %"] = { -1, 0 } }

  for name, form in pairs(forms) do
    it("have gradients of real numbers only: " .. name, function()
      for _, dtype in ipairs{ "float32", "float16", "int32", "int64", "uint8" } do
        local exe = form(V("a"), V("b")):simple_bind{ ctx = ty.cpu(), a = { 1 }, b = { 1 },
          type_dict = { a = dtype, b = dtype } }
        exe.arg_dict.a[":"], exe.arg_dict.b[":"] = 7, 2
        exe:forward(true)
        exe:backward(ty.nd.ones({ 1 }, { dtype = dtype }))
        local real = dtype:find "float" and 1 or 0
        assert.equal(real * want[name][1], exe.grad_dict.a:asscalar())
        assert.equal(real * want[name][2], exe.grad_dict.b:asscalar())
      end
    end)
  end
end)

describe("a device that no machine has", function()
  it("is a value; its use fails", function()
    local far = ty.gpu(9999)
    assert.equal(far, ty.Context("gpu(9999)"))
    assert.same({ "gpu", 9999, "gpu(9999)" }, { far.device_type, far.device_id, tostring(far) })
    local e = assert.raises("device", ty.nd.ones, { 2, ctx = far })
    assert.truthy(e.message:find("gpu(9999) does not exist", 1, true))
    assert.raises("device", far.wait, far)
    far:with(function()
      assert.raises("device", ty.nd.zeros, { 2 })
    end)
    assert.raises("device", V("x").simple_bind, V("x"), { ctx = far, x = { 1 } })
    assert.raises("value", ty.gpu, -1)
  end)
end)

describe("_contrib_quadratic", function()
  it("takes integers, exactly", function()
    local x = ty.nd.array({ 3000000001, -2 }, { dtype = "int64" })
    local y = ty.nd.contrib.quadratic{ x, a = 1, b = 2, c = 3 }
    assert.equal("int64", y.dtype)
    assert.equal("[9000000012000000006 3]", (tostring(y):match("%b[]"):gsub(" +", " ")))
  end)
end)

describe("ranges of integers", function()
  it("count from a truncated number in truncated steps", function()
    local x = ty.nd.zeros({ 4 }, { dtype = "int32" })
    for _, case in ipairs{ { -1.5, 1.5, { -1, 0, 1, 2 } }, { 2, 0.5, { 2, 2, 2, 2 } },
      { 3.9, -2.7, { 3, 1, -1, -3 } } } do
      local start, step, want = unpack(case)
      local like = ty.nd.contrib.arange_like{ x, start = start, step = step }
      assert.same(want, like:totable())
      local counted = ty.nd.arange(start, start + 4 * step, step, { dtype = "int32" })
      assert.same(want, counted:totable())
    end
    local y = ty.nd.contrib.arange_like{ x:astype("float32"), start = -1.5, step = 1.5 }
    assert.same({ -1.5, 0, 1.5, 3 }, y:totable())
  end)
end)

describe("histogram", function()
  it("takes its edges as an array or as a list", function()
    local x = ty.nd.array{ 1, 2, 3, 9 }
    assert.same({ 1, 2 }, (ty.nd.histogram{ x, ty.nd.array{ 0, 1.5, 3 } }):totable())
    assert.same({ 1, 2 }, (ty.nd.histogram(x, { 0, 1.5, 3 })):totable())
    local counts, edges = ty.nd.histogram{ x, bins = { 0, 1.5, 3 } }
    assert.same({ 1, 2 }, counts:totable())
    assert.same({ 0, 1.5, 3 }, edges:totable())
  end)
end)

describe("16 dimensions", function()
  local deep = { 2, 1, 2, 1, 1, 3, 1, 1, 2, 1, 1, 1, 2, 1, 1, 2 }
  local x = ty.nd.arange(96):reshape(deep)
  local flat = ty.nd.arange(96):reshape{ 2, 2, 3, 2, 2, 2 }

  local function same(want, got)
    assert.same(want:reshape{ -1 }:totable(), got:reshape{ -1 }:totable())
  end

  it("are as many as an array has", function()
    assert.same(deep, x.shape)
    assert.raises("shape", ty.nd.ones, { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2 })
    assert.truthy(assert.raises("shape", x.expand_dims, x, 0).expected)    -- before it is written
    local nested = { 7 }
    for _ = 1, 15 do
      nested = { nested }
    end
    assert.equal(16, #ty.nd.array(nested).shape)
    assert.equal(7, ty.nd.array(nested):asscalar())
  end)

  it("are moved, folded, broadcast and cut as fewer are", function()
    local order = { 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0 }
    same(flat:transpose{ 5, 4, 3, 2, 1, 0 }, x:transpose(order))
    same(flat:sum{ axis = { 1, 4 } }, x:sum{ axis = { 2, 12 } })
    same(ty.nd.broadcast_add(flat, flat:max{ axis = { 0, 3 }, keepdims = true }),
      ty.nd.broadcast_add(x, x:max{ axis = { 0, 8 }, keepdims = true }))
    same(flat:slice_axis{ axis = 2, begin = 1, ["end"] = 3 },
      x:slice_axis{ axis = 5, begin = 1, ["end"] = 3 })
    same(ty.nd.concat(flat, flat, { dim = 3 }), ty.nd.concat(x, x, { dim = 8 }))
    same(flat:take{ ty.nd.array{ 1, 0 }, axis = 4 }, x:take{ ty.nd.array{ 1, 0 }, axis = 12 })
  end)

  it("go through a graph, its gradient and a file", function()
    local sum = ty.sym.sum{ ty.sym.square(V("x")), axis = { 2, 5 }, keepdims = true }
    local net = ty.sym.transpose(sum)
    local exe = net:simple_bind{ ctx = ty.cpu(), x = deep }
    exe:forward{ true, x = x }
    exe:backward(ty.nd.ones(exe.outputs[1].shape))
    same(2 * x, exe.grad_dict.x)
    local path = os.tmpname()
    ty.nd.save(path, { x = x })
    same(x, ty.nd.load(path).x)
    os.remove(path)
  end)

  it("hold the overlaps of boxes in many dimensions", function()
    local boxes = ty.nd.array{ 0, 0, 2, 2, 1, 1, 3, 3 }
    local overlap = ty.nd.contrib.box_iou{ boxes:reshape{ 1, 1, 1, 1, 2, 4 },
      boxes:reshape{ 1, 1, 1, 1, 2, 4 }, format = "corner" }
    assert.same({ 1, 1, 1, 1, 2, 1, 1, 1, 1, 2 }, overlap.shape)
    assert.near({ 1, 1 / 7, 1 / 7, 1 }, overlap:reshape{ -1 }:totable())
  end)
end)

describe("partial inference", function()
  it("finds the shape of pick's index", function()
    for axis, want in pairs{ [0] = { 4 }, [1] = { 3 }, [-1] = { 3 } } do
      local net = ty.sym.pick{ V("x"), V("index"), axis = axis, keepdims = axis == 0 }
      assert.same({ { 3, 4 }, want }, (net:infer_shape{ x = { 3, 4 } }))
    end
    local kept = ty.sym.pick{ V("x"), V("index"), axis = 1 }
    assert.same({ { 3, 4 }, { 3, 1 } }, (kept:infer_shape{ x = { 3, 4 }, index = { 3, 1 } }))
    assert.same({ { 1 } }, select(2, ty.sym.pick{ V("x"), V("index") }:infer_shape{ x = { 5 } }))
  end)

  it("takes a slice's bounds for the size of an unknown axis", function()
    local function cut(options)
      options[1] = V("x")
      return select(2, ty.sym.slice(options):infer_shape_partial{ x = { 0, 4 } })[1]
    end
    assert.same({ 3, 2 }, cut{ begin = { 2, 1 }, ["end"] = { 5, 3 } })
    assert.same({ 2, 4 }, cut{ begin = { -3 }, ["end"] = { -1 } })
    assert.same({ 2, 4 }, cut{ begin = { 0 }, ["end"] = { 4 }, step = { 3 } })
    assert.same({ 0, 4 }, cut{ begin = { 1 }, ["end"] = { -1 } })
    assert.same({ 0, 4 }, cut{ begin = { ty.null }, ["end"] = { 3 } })
  end)
end)

describe("labels that are no class", function()
  local function train(options, labels)
    options[1], options.name = V("data"), "softmax"
    local net = ty.sym.SoftmaxOutput(options)
    local exe = net:simple_bind{ ctx = ty.cpu(), data = { 3, 3 } }
    exe:check_numerics(true)
    exe:forward{ true, softmax_label = ty.nd.array(labels) }
    exe:backward()
    return exe.grad_dict.data:totable()
  end

  it("are named in training by the search for bad numbers", function()
    local e = assert.raises("run", train, {}, { 1, 2, 3 })
    assert.truthy(e.message:find("label 3 at position 2 is not a class; classes are counted "
      .. "from 0, expected 0 to 2", 1, true))
    assert.equal("softmax", e.node)
    assert.truthy(train({}, { 0, 1, 2 }))
    assert.raises("run", train, {}, { 0, 1, 0 / 0 })
    assert.raises("run", train, {}, { -1, 1, 2 })
    assert.truthy(train({ use_ignore = true }, { -1, 1, 2 }))
    -- of three dimensions the first labels alone are read
    local exe = ty.sym.SoftmaxOutput{ V("data"), name = "softmax" }
      :simple_bind{ ctx = ty.cpu(), data = { 2, 2, 2 } }
    exe:check_numerics(true)
    exe:forward{ true, softmax_label = ty.nd.array{ { 0, 3 }, { 9, 9 } } }
    assert.equal(2, #exe.outputs[1]:totable())
  end)

  it("are not looked at in inference", function()
    local net = ty.sym.SoftmaxOutput{ V("data"), name = "softmax" }
    local exe = net:simple_bind{ ctx = ty.cpu(), data = { 3, 3 } }
    exe:check_numerics(true)
    exe:forward{ false, softmax_label = ty.nd.array{ 7, 8, 9 } }
    assert.near({ 1 / 3, 1 / 3, 1 / 3 }, exe.outputs[1]:totable()[1])
  end)
end)

describe("SVMOutput of one dimension", function()
  it("is one row", function()
    local exe = ty.sym.SVMOutput{ V("x"), name = "svm" }:simple_bind{ ctx = ty.cpu(), x = { 3 } }
    exe.grad_dict.x[":"] = 9
    exe:forward{ true, x = ty.nd.array{ 0.5, -2, 0 }, svm_label = ty.nd.array{ 1, 0, 0 } }
    exe:backward()
    assert.same({ 3, -6, 2 }, exe.grad_dict.x:totable())
  end)
end)

describe("FullyConnected of one dimension", function()
  it("is one row where axes are not joined, and rows of one element where they are", function()
    local x, w, b = ty.nd.array{ 1, 2, 3 }, ty.nd.array{ { 1, 0, 1 }, { 2, 1, 1 } },
      ty.nd.array{ 1, 2 }
    for _, a in ipairs{ x, w, b } do
      a:attach_grad()
    end
    local y = ty.autograd.record(function()
      return ty.nd.FullyConnected(x, w, b, { num_hidden = 2, flatten = false })
    end)
    assert.same({ 5, 9 }, y:totable())
    y:backward(ty.nd.array{ 1, 10 })
    assert.same({ 21, 10, 11 }, x.grad:totable())
    assert.same({ { 1, 2, 3 }, { 10, 20, 30 } }, w.grad:totable())
    assert.same({ 1, 10 }, b.grad:totable())
    local layer = ty.gluon.nn.Dense{ 4, flatten = false }
    layer:initialize()
    assert.shape({ 4 }, layer(x))
    assert.shape({ 4, 3 }, layer.weight:data())
    local rows = ty.nd.FullyConnected(x, ty.nd.ones{ 2, 1 }, b, { num_hidden = 2 })
    assert.same({ { 2, 3 }, { 3, 4 }, { 4, 5 } }, rows:totable())
  end)
end)

describe("BatchNorm of data without a mean", function()
  it("moves both statistics to NaN", function()
    local x = ty.nd.array{ { 0 / 0, 1 }, { 2, 3 } }
    local gamma, beta = ty.nd.ones{ 2 }, ty.nd.zeros{ 2 }
    local mean, var = ty.nd.zeros{ 2 }, ty.nd.ones{ 2 }
    x:attach_grad()
    ty.autograd.record(function()
      return ty.nd.BatchNorm(x, gamma, beta, mean, var)
    end):backward()
    for _, moved in ipairs{ mean:totable(), var:totable() } do
      assert.is_true(moved[1] ~= moved[1])
      assert.is_true(moved[2] == moved[2])
    end
  end)
end)

describe("operators made at run time", function()
  it("are refused where there is no room, not dropped", function()
    local program = [[
local ty = require "tycho"
local x = ty.nd.array{ 2 }
for k = 1, 4096 do
  ty.op.pointwise{ name = "room_" .. k, args = { "a" }, formula = "a", grad = { "g" } }
  assert(ty.nd["room_" .. k](x):asscalar() == 2)
end
]]
    -- a process of its own, since it fills the registry
    shell.with_file(program, function(path)
      local output, status = shell.tycho(path)
      assert.not_equal(0, status)
      assert.truthy(output:find("no room for more", 1, true), output)
    end)
  end)
end)

describe("LRN", function()
  -- Returns output and gradient of the first two channels, of which others follow that are 0.
  local function run(channels, nsize)
    local exe = ty.sym.LRN{ V("x"), nsize = nsize, alpha = 0.5 }:simple_bind{
      ctx = ty.current_context(), x = { 1, channels, 1, 2 } }
    exe.arg_dict.x[":"] = 0
    exe.arg_dict.x[":, 0:2"] = ty.nd.array{ 1, -2, 3, 0.5 }:reshape{ 1, 2, 1, 2 }
    exe:forward{ is_train = true }
    exe:backward(ty.nd.ones{ 1, channels, 1, 2, ctx = ty.current_context() })
    local list = {}
    for i, x in ipairs{ exe.outputs[1], exe.grad_dict.x } do
      list[i] = x[":, 0:2"]:reshape(-1):totable()
    end
    return list
  end

  it("has windows that are wider than the channels", function()
    for _, nsize in ipairs{ 3, 5, 11 } do
      assert.same(run(12, nsize), run(2, nsize))
    end
  end)
end)
