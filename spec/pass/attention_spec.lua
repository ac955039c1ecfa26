-- Attention in users' graphs becomes contrib.attention: which forms, with which values, and where
-- the nodes stay.
local device = require "spec.support.device"
local folder = require "spec.support.folder"
local models = require "spec.support.onnx_models"
local noise = require("spec.support.arrays").noise
local ffi = require "ffi"
local ty = require "tycho"
require "spec.helper"

pcall(ffi.cdef, "int setenv(const char *, const char *, int); int unsetenv(const char *);")

local nd, sym = ty.nd, ty.sym
local contrib, V = sym.contrib, sym.Variable
local F64 = { dtype = "float64" }
local B, H, T, D = 2, 3, 70, 4

-- Binds a network; the last argument: `false` where nothing is trained, or what is not.
local function bound(net, args, with_grad)
  local grads = {}
  for name, x in pairs(args) do
    grads[name] = name ~= with_grad and nd.full(x.shape, 3, { dtype = x.dtype }) or nil
  end
  return net:bind{ ctx = ty.cpu(), args = args, args_grad = with_grad ~= false and grads or nil }
end

-- Returns whether a program has the operator's kernel, which a GPU calls otherwise.
local function fused(exe)
  local kernel = device.is_gpu and not device.left and "  tiles  " or "  flash  "
  return exe:program():find(kernel, 1, true) ~= nil
end

-- A bias or mask; on a GPU attention has no gradient of one, and nodes that learn it stay.
local UNLEARNED = device.is_gpu and "m" or nil

local function train(exe)
  exe:forward{ is_train = true }
  ty.random.seed(11)
  local heads = {}
  for i, y in ipairs(exe.outputs) do
    heads[i] = noise(y.shape)
  end
  exe:backward(heads)
  local names, list = {}, { exe.outputs[1]:copy() }
  for name in pairs(exe.grad_dict) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    list[#list + 1] = exe.grad_dict[name]:copy()
  end
  return list
end

-- Checks that values and gradients are the same with the nodes and without, and values also where
-- nothing is trained.
local function check(net, args)
  local exe = bound(net, args, false)
  assert.is_true(fused(exe))
  local y = exe:forward{ is_train = false }[1]:copy()
  exe:set_monitor_callback(function() end)
  assert.near(exe:forward{ is_train = false }[1], y, 1e-13, 1e-13)
  assert.equal(not (UNLEARNED and args.m), fused(bound(net, args)))
  exe = bound(net, args, UNLEARNED)
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

  it("with a mask that chooses between scores and a constant", function()
    local m = nd.broadcast_greater(noise{ B * H, 5, T }, nd.zeros({ 1, 1, 1 }, F64))
    m[{ ":", ":", 3 }] = 1
    local low = sym.full{ shape = { B * H, 5, T }, val = -math.huge, dtype = "float64" }
    check(sym.batch_dot{ sym.softmax{ sym.where(V "m", scores(), low) }, V "v" }, plain{ m = m })
    check(sym.batch_dot{ sym.softmax{ sym.where(V "m", low, scores()) }, V "v" },
      plain{ m = 1 - m })
  end)

  it("with a mask and a finite constant where nothing is trained", function()
    local m = nd.broadcast_greater(noise{ B * H, 5, T }, nd.zeros({ 1, 1, 1 }, F64))
    m[{ 0 }] = 0                                         -- queries for which no key counts
    local function net(c)
      local low = sym.full{ shape = { B * H, 5, T }, val = c, dtype = "float64" }
      return sym.batch_dot{ sym.softmax{ sym.where(V "m", scores(), low) }, V "v" }
    end
    local exe = bound(net(-1e300), plain{ m = m }, false)
    assert.is_true(fused(exe))
    local y = exe:forward()[1]:copy()
    exe:set_monitor_callback(function() end)
    assert.near(exe:forward()[1], y, 1e-13, 1e-13)
    -- scores do not vanish in it; of such a query they would have a gradient
    assert.is_false(fused(bound(net(-1e9), plain{ m = m }, false)))
    assert.is_false(fused(bound(net(-1e300), plain{ m = m })))
  end)

  it("in a hybridized block that is trained", function()
    local Weighed = ty.gluon.HybridBlock:extend("Weighed")
    function Weighed:forward(q, k, v, m)
      local s = ty.F.broadcast_add(ty.F.batch_dot{ q, k, transpose_b = true } * 0.5, m)
      return ty.F.batch_dot(ty.F.softmax(s), v)
    end
    local function train_block(hybrid)
      local block = Weighed()
      if hybrid then
        block:hybridize()
      end
      ty.random.seed(3)
      local function drawn(shape) return ty.random.normal{ shape = shape, dtype = "float64" } end
      local x, head, result = {}, drawn{ B, T, D }, {}
      for i, shape in ipairs{ { B, T, D }, { B, T, D }, { B, T, D }, { 1, T, T } } do
        x[i] = drawn(shape)
        if i < 4 or not UNLEARNED then
          x[i]:attach_grad()
        end
      end
      local path = os.tmpname()
      ty.profiler.set_config{ profile_all = true, aggregate_stats = true, filename = path }
      ty.profiler.set_state "run"
      local y
      for _ = 1, 4 do                                    -- a program is made of what comes again
        ty.autograd.record(function() y = block(unpack(x)) end)
        y:backward(head)
        ty.waitall()
      end
      ty.profiler.set_state "stop"
      local text = ty.profiler.dumps{ reset = true }
      os.remove(path)
      for i, a in ipairs(x) do
        result[i] = a.grad
      end
      result[#result + 1] = y
      return result, text:find("_contrib_attention", 1, true) ~= nil
    end
    -- first: the program of the other one, whose arrays live on, would serve it
    local got, seen = train_block(true)
    local want, apart_seen = train_block(false)
    assert.is_false(apart_seen)
    assert.is_true(seen)
    for i, x in ipairs(want) do
      assert.near(x, got[i], 1e-13, 1e-13)
    end
  end)

  it("in files of ONNX, as others write it", function()
    local function add(list, ...)
      for i = 1, select("#", ...) do
        list[#list + 1] = (select(i, ...))
      end
    end
    local function is_fused(kind, constant)
      local nodes = {}
      for _, name in ipairs{ "q", "k", "v" } do
        add(nodes, { "Reshape", { name, "split" }, { name .. "_heads" } },
          { "Transpose", { name .. "_heads" }, { name .. "_t" },
            { perm = name == "k" and { 0, 2, 3, 1 } or { 0, 2, 1, 3 } } })
      end
      add(nodes, { "MatMul", { "q_t", "k_t" }, { "s" } }, { "Div", { "s", "two" }, { "scaled" } })
      if kind == "Add" then
        add(nodes, { "Add", { "scaled", "m" }, { "masked" } })
      elseif kind then
        local cases = kind == "Where" and { "scaled", "low" } or { "low", "scaled" }
        add(nodes, { "Cast", { "m" }, { "counts" }, { to = 9 } },
          { "Where", { "counts", unpack(cases) }, { "masked" } })
      end
      add(nodes, { "Softmax", { kind and "masked" or "scaled" }, { "p" }, { axis = 3 } },
        { "MatMul", { "p", "v_t" }, { "y" } })
      local inputs = { q = { B, T, H * D }, k = { B, T, H * D }, v = { B, T, H * D },
        m = kind and { B, 1, 1, T } or nil }
      local net
      folder.with(function(dir)
        folder.write(dir .. "/net.onnx", models.bytes{ nodes = nodes, inputs = inputs,
          outputs = { "y" }, constants = { two = nd.array{ 2 },
            split = nd.array({ B, T, H, D }, { dtype = "int64" }),
            low = nd.array{ constant or 0 } } })
        net = ty.onnx.import_model{ dir .. "/net.onnx" }
      end)
      local exe = net:simple_bind{ ctx = ty.cpu(), shapes = inputs, grad_req = "null" }
      ty.random.seed(4)
      for name in pairs(inputs) do
        exe.arg_dict[name][":"] = ty.random.normal{ shape = inputs[name] }
      end
      if kind then
        local m = exe.arg_dict.m
        m[":"] = nd.broadcast_greater(m, nd.zeros{ 1, 1, 1, 1 })
      end
      local is = fused(exe)
      local y = exe:forward()[1]:copy()
      exe:set_monitor_callback(function() end)
      assert.near(exe:forward()[1], y, 1e-5, 1e-6)
      return is
    end
    assert.is_true(is_fused())
    assert.is_true(is_fused("Add"))
    for _, kind in ipairs{ "Where", "Where not" } do
      assert.is_true(is_fused(kind, -3e38))
      assert.is_true(is_fused(kind, -math.huge))
      assert.is_false(is_fused(kind, -1e4))
    end
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
      plain{ m = m }, UNLEARNED)
    assert.is_true(fused(exe))
    local y = exe:forward()[1]:totable()[1]
    assert.is_true(y[3][1] ~= y[3][1])
    assert.is_true(y[2][1] == y[2][1] and y[4][1] == y[4][1])
  end)

  it("drops weights", function()
    local q = noise{ 1, 240, D }
    local x = V "q"
    local net = sym.batch_dot{ sym.Dropout{ sym.softmax{ sym.batch_dot{ x, x,
      transpose_b = true } }, p = 0.5 }, V "v" }
    local exe = net:simple_bind{ ctx = ty.cpu(), q = { 1, 240, D }, v = { 1, 240, 240 },
      grad_req = "null" }
    assert.is_true(fused(exe))
    exe.arg_dict.v[":"] = nd.eye(240):reshape{ 1, 240, 240 }
    exe.arg_dict.q[":"] = q:astype "float32"
    exe:forward{ is_train = true }
    local kept = nd.sum(nd.broadcast_greater(exe.outputs[1], nd.zeros{ 1, 1, 1 })):asscalar()
    assert.is_true(math.abs(kept / 240 ^ 2 - 0.5) < 0.01)
    exe:forward{ is_train = false }
    assert.near(nd.ones{ 1, 240 }, nd.sum(exe.outputs[1], { axis = 2 }), 1e-5)
  end)

  it("drops weights of interleaved projections", function()
    local x = V "x"
    local p = sym.Dropout{ sym.softmax{ contrib.interleaved_matmul_selfatt_qk{ x, heads = H } },
      p = 0.3 }
    local net = contrib.interleaved_matmul_selfatt_valatt{ x, p, heads = H }
    local exe = bound(net, { x = noise{ T, B, H * 3 * D } })
    assert.is_true(fused(exe))
    local y = exe:forward{ is_train = false }[1]:copy()
    ty.random.seed(21)
    local dropped = exe:forward{ is_train = true }[1]:copy()
    exe:backward(nd.ones(dropped.shape, F64))
    assert.is_true(nd.abs(dropped - y):max():asscalar() > 1e-3)
    assert.is_true(nd.abs(exe.grad_dict.x):max():asscalar() < math.huge)
    exe:set_monitor_callback(function() end)
    assert.near(exe:forward{ is_train = false }[1], y, 1e-13, 1e-13)
  end)

  it("without an array of all weights", function()
    local net = sym.batch_dot{ sym.softmax{ scores() }, V "v" }
    local exe = net:simple_bind{ ctx = ty.cpu(), q = { 4, 1024, 32 }, k = { 4, 1024, 32 },
      v = { 4, 1024, 32 }, dry_run = true }
    assert.is_true(exe:memory().planned < 4 * 1024 * 1024 * 4 / 2)
  end)
end)

describe("attention is recognised by its size", function()
  setup(device.leave)         -- a CPU's sizes; those of a GPU: spec/cuda/flash_attention_spec.lua
  teardown(device.come_back)
  setup(function() ffi.C.setenv("TYCHO_ATTENTION_LEAST", "-1", 1) end)
  teardown(function() ffi.C.setenv("TYCHO_ATTENTION_LEAST", "0", 1) end)

  local function is_fused(heads, length, grad_req, bias, size)
    local s = scores()
    s = bias and sym.broadcast_add(s, V "m") or s
    local shape = { heads, length, size or 8 }
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
    assert.is_true(is_fused(64, 256, "write", false, 40))
    assert.is_false(is_fused(32, 256, "write", false, 40))
    assert.is_true(is_fused(32, 256, "write", false, 32))
    assert.is_false(is_fused(31, 256, "write", false, 32))
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

  it("where a monitor is set, which sees them with their names", function()
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
    local function train_weights(monitor)
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
    assert.near(train_weights(), train_weights(monitor), 1e-6)
    ty.log.level = level
    assert.is_true(seen > 0)
  end)
end)
