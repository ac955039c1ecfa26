-- Attention in users' graphs becomes contrib.attention: which forms, with which values, and where
-- the nodes stay.
local noise = require("spec.support.arrays").noise
local ffi = require "ffi"
local ty = require "tycho"
require "spec.helper"

pcall(ffi.cdef, "int setenv(const char *, const char *, int); int unsetenv(const char *);")

local nd, sym = ty.nd, ty.sym
local contrib, V = sym.contrib, sym.Variable
local F64 = { dtype = "float64" }
local B, H, T, D = 2, 3, 70, 4

local function bound(net, args, with_grad)
  local grads = {}
  for name, x in pairs(args) do
    grads[name] = nd.full(x.shape, 3, { dtype = x.dtype })
  end
  return net:bind{ ctx = ty.cpu(), args = args, args_grad = with_grad ~= false and grads or nil }
end

local function fused(exe) return exe:program():find("  flash  ", 1, true) ~= nil end

local function train(exe)
  exe:forward{ is_train = true }
  ty.random.seed(11)
  local heads = {}
  for i, y in ipairs(exe.outputs) do
    heads[i] = noise(y.shape)
  end
  exe:backward(heads)
  local list = { exe.outputs[1]:copy() }
  for _, g in ipairs(exe.grad_arrays) do
    list[#list + 1] = g:copy()
  end
  return list
end

-- the same values and gradients with the nodes and without
local function check(net, args)
  local exe = bound(net, args)
  assert.is_true(fused(exe))
  local got = train(exe)
  exe:set_monitor_callback(function() end)
  assert.is_false(fused(exe))
  local want = train(exe)
  for i, x in ipairs(want) do
    assert.near(x, got[i], 1e-13, 1e-13)
  end
end

local function scores() return sym.batch_dot{ V "q", V "k", transpose_b = true } / 2 end

local function plain(extra)
  local args = { q = noise{ B * H, 5, D }, k = noise{ B * H, T, D }, v = noise{ B * H, T, 7 } }
  for name, x in pairs(extra or {}) do
    args[name] = x
  end
  return args
end

-- products of any size
setup(function() ffi.C.setenv("TYCHO_ATTENTION_LEAST", "0", 1) end)
teardown(function() ffi.C.setenv("TYCHO_ATTENTION_LEAST", "-1", 1) end)

describe("attention is recognised", function()
  it("in interleaved projections", function()
    local x = V "x"
    local s = contrib.interleaved_matmul_selfatt_qk{ x, heads = H }
    local args = { x = noise{ T, B, H * 3 * D } }
    check(contrib.interleaved_matmul_selfatt_valatt{ x, sym.softmax{ s }, heads = H }, args)
    args.m = noise{ B * H, 1, T }
    s = sym.broadcast_add(s * 0.5, V "m")
    check(contrib.interleaved_matmul_selfatt_valatt{ x, sym.softmax{ s }, heads = H }, args)
    args.m = noise{ B, 1, T, T }
    s = sym.reshape{ contrib.interleaved_matmul_selfatt_qk{ x, heads = H },
      shape = { B, H, T, T } }
    s = sym.reshape{ sym.broadcast_add(V "m", s), shape = { B * H, T, T } }
    check(contrib.interleaved_matmul_selfatt_valatt{ x, sym.softmax{ s }, heads = H }, args)
    local q, kv = V "q", V "kv"
    s = contrib.interleaved_matmul_encdec_qk{ q, kv, heads = H }
    check(contrib.interleaved_matmul_encdec_valatt{ kv, sym.softmax{ s }, heads = H },
      { q = noise{ 5, B, H * D }, kv = noise{ T, B, H * 2 * D } })
  end)

  it("in products of matrices", function()
    check(sym.batch_dot{ sym.softmax{ scores() }, V "v" }, plain())
    check(sym.batch_dot{ sym.softmax{ sym.batch_dot{ V "q", V "k", transpose_b = true } }, V "v" },
      plain())
    check(sym.batch_dot{ sym.softmax{ scores(), temperature = 3, axis = 2 }, V "v" }, plain())
    check(sym.batch_dot{ sym.softmax{ sym.batch_dot{ V "q", V "k" } * 2 }, V "v" },
      plain{ k = noise{ B * H, D, T } })
  end)

  it("with a bias of any shape that broadcasts", function()
    for _, shape in ipairs{ { 1, 5, T }, { B * H, 1, T }, { B * H, 5, 1 }, { T }, { 5, T },
      { 1 } } do
      local s = sym.broadcast_add(scores(), V "m")
      check(sym.batch_dot{ sym.softmax{ s }, V "v" }, plain{ m = noise(shape) })
    end
    for _, shape in ipairs{ { B, 1, 1, T }, { 1, H, 5, T }, { B, H, 5, T }, { H, 1, 1 }, { T } } do
      local s = sym.broadcast_add(V "m", sym.reshape{ scores(), shape = { B, H, 5, T } })
      s = sym.reshape{ sym.softmax{ s }, shape = { B * H, 5, T } }
      check(sym.batch_dot{ s, V "v" }, plain{ m = noise(shape) })
    end
    check(sym.batch_dot{ sym.softmax{ scores() + V "m" }, V "v" },
      plain{ m = noise{ B * H, 5, T } })
  end)

  it("of matrices with four axes", function()
    local s = sym.broadcast_add(sym.batch_dot{ V "q", V "k", transpose_b = true } * 0.3, V "m")
    check(sym.batch_dot{ sym.softmax{ s }, V "v" }, { q = noise{ B, H, 5, D },
      k = noise{ B, H, T, D }, v = noise{ B, H, T, 7 }, m = noise{ B, 1, 1, T } })
  end)

  it("twice in a network, and where queries are keys", function()
    local x = V "x"
    for _ = 1, 2 do
      x = x + sym.batch_dot{ sym.softmax{ sym.batch_dot{ x, x, transpose_b = true } }, x }
    end
    check(x, { x = noise{ B, T, D } * 0.3 })
  end)

  it("gives NaN where softmax does", function()
    local m = nd.zeros({ 1, 5, T }, F64)
    m[{ 0, 2 }] = -math.huge
    m[{ 0, 3, "1:" }] = -math.huge
    local exe = bound(sym.batch_dot{ sym.softmax{ sym.broadcast_add(scores(), V "m") }, V "v" },
      plain{ m = m })
    assert.is_true(fused(exe))
    local y = exe:forward()[1]:totable()[1]
    assert.is_true(y[3][1] ~= y[3][1])
    assert.is_true(y[2][1] == y[2][1] and y[4][1] == y[4][1])
  end)

  it("drops weights", function()
    local q = noise{ 1, 400, D }
    local x = V "q"
    local net = sym.batch_dot{ sym.Dropout{ sym.softmax{ sym.batch_dot{ x, x,
      transpose_b = true } }, p = 0.5 }, V "v" }
    local exe = net:simple_bind{ ctx = ty.cpu(), q = { 1, 400, D }, v = { 1, 400, 400 },
      grad_req = "null" }
    assert.is_true(fused(exe))
    exe.arg_dict.v[":"] = nd.eye(400):reshape{ 1, 400, 400 }
    exe.arg_dict.q[":"] = q:astype "float32"
    exe:forward{ is_train = true }
    local kept = nd.sum(nd.broadcast_greater(exe.outputs[1], nd.zeros{ 1, 1, 1 })):asscalar()
    assert.is_true(math.abs(kept / 160000 - 0.5) < 0.01)
    exe:forward{ is_train = false }
    assert.near(nd.ones{ 1, 400 }, nd.sum(exe.outputs[1], { axis = 2 }), 1e-5)
  end)

  it("without an array of all weights", function()
    local net = sym.batch_dot{ sym.softmax{ scores() }, V "v" }
    local exe = net:simple_bind{ ctx = ty.cpu(), q = { 4, 1024, 32 }, k = { 4, 1024, 32 },
      v = { 4, 1024, 32 }, dry_run = true }
    assert.is_true(exe:memory().planned < 4 * 1024 * 1024 * 4 / 2)
  end)
end)

describe("attention is recognised by its size", function()
  setup(function() ffi.C.setenv("TYCHO_ATTENTION_LEAST", "-1", 1) end)
  teardown(function() ffi.C.setenv("TYCHO_ATTENTION_LEAST", "0", 1) end)

  local function is_fused(heads, length, grad_req, bias)
    local s = scores()
    s = bias and sym.broadcast_add(s, V "m") or s
    local shape = { heads, length, 8 }
    return fused(sym.batch_dot{ sym.softmax{ s }, V "v" }:simple_bind{ ctx = ty.cpu(), q = shape,
      k = shape, v = shape, m = bias and { 1, length, length } or nil, grad_req = grad_req,
      dry_run = true })
  end

  it("where it is faster", function()
    assert.is_false(is_fused(4, 64, "null"))
    assert.is_true(is_fused(4, 128, "null"))
    assert.is_true(is_fused(4, 128, "null", true))
    assert.is_false(is_fused(4, 128, "write"))
    assert.is_true(is_fused(4, 512, "write"))
    assert.is_true(is_fused(64, 256, "write"))
    -- of a bias that learns a gradient is made from the array of all weights
    assert.is_false(is_fused(4, 512, "write", true))
    local req = { q = "write", k = "write", v = "write", m = "null" }
    assert.is_true(is_fused(4, 512, req, true))
  end)
end)

describe("nodes of attention stay", function()
  local function stays(net, args)
    local exe = bound(net, args)
    assert.is_false(fused(exe))
    train(exe)
  end

  it("where weights or scores are an output or have another reader", function()
    local s = scores()
    local p = sym.softmax{ s }
    local y = sym.batch_dot{ p, V "v" }
    stays(sym.Group{ y, p }, plain())
    stays(sym.Group{ y, s }, plain())
    stays(sym.Group{ y, sym.sum(p) }, plain())
    stays(sym.broadcast_add(y, sym.sum(p, { axis = 2, keepdims = true })), plain())
  end)

  it("where it is another function", function()
    local V_ = V "v"
    stays(sym.batch_dot{ sym.softmax{ scores(), axis = 1 }, V_ }, plain())
    stays(sym.batch_dot{ sym.log_softmax{ scores() }, V_ }, plain())
    stays(sym.batch_dot{ sym.softmax{ sym.broadcast_add(scores(), V "m") * 2 }, V_ },
      plain{ m = noise{ 1, 5, T } })
    stays(sym.batch_dot{ sym.softmax{ sym.tanh(scores()) }, V_ }, plain())
    stays(sym.batch_dot{ sym.softmax{ scores() }, V_, transpose_b = true },
      plain{ v = noise{ B * H, 7, T } })
    stays(sym.batch_dot{ sym.Dropout{ sym.softmax{ scores() }, p = 0.5, mode = "always" }, V_ },
      plain())
    stays(sym.batch_dot{ sym.softmax{ sym.batch_dot{ V "q", V "k", transpose_a = true } }, V_ },
      plain{ q = noise{ B * H, D, 5 }, k = noise{ B * H, D, T } })
    local x = V "x"
    local s = contrib.interleaved_matmul_selfatt_qk{ x, heads = H }
    stays(contrib.interleaved_matmul_selfatt_valatt{ V "z", sym.softmax{ s }, heads = H },
      { x = noise{ T, B, H * 3 * D }, z = noise{ T, B, H * 3 * D } })
  end)

  it("where somebody monitors, who sees them with their names", function()
    local p = sym.softmax{ scores(), name = "weights" }
    local exe = bound(sym.batch_dot{ p, V "v", name = "y" }, plain())
    local before = exe:forward()[1]
    local want, seen = before:copy(), {}
    exe:set_monitor_callback(function(name, x) seen[name] = x:copy() end)
    exe:forward()
    assert.near(want, exe.outputs[1], 1e-14)
    assert.near(want, before, 1e-14)
    assert.near(want, exe.output_dict.y_output, 1e-14)
    assert.near(want, nd.batch_dot(seen.weights_output, exe.arg_dict.v), 1e-14)
    exe:set_monitor_callback(nil)
    exe.arg_dict.q[":"] = 0
    assert.near(nd.mean(exe.arg_dict.v, { axis = 1 }), exe:forward()[1][{ ":", 0 }], 1e-14)
    exe:backward(exe.outputs[1])
  end)

  it("and the same module trains with a monitor and without", function()
    local function weights_of(monitor)
      ty.random.seed(5)
      local x = V "data"
      local y = sym.batch_dot{ sym.softmax{ sym.batch_dot{ x, x, transpose_b = true } }, x }
      local net = sym.LinearRegressionOutput{ sym.FullyConnected{ y, num_hidden = 1, name = "fc" },
        V "label" }
      local mod = ty.mod.Module{ symbol = net, label_names = { "label" } }
      local data = ty.io.NDArrayIter{ data = ty.random.normal{ shape = { 16, 6, 4 } },
        label = { label = ty.random.normal{ shape = { 16, 1 } } }, batch_size = 8 }
      mod:fit{ train_data = data, num_epoch = 3, monitor = monitor, eval_metric = "mse",
        initializer = ty.init.Normal(0.1) }
      return (mod:get_params()).fc_weight
    end
    local seen = 0
    local function mean(x)
      seen = seen + 1
      return x:mean()
    end
    local monitor = ty.mon.Monitor{ 1, mean, ".*softmax.*" }
    local level = ty.log.level
    ty.log.level = "error"
    assert.near(weights_of(), weights_of(monitor), 1e-6)
    ty.log.level = level
    assert.is_true(seen > 0)
  end)
end)
