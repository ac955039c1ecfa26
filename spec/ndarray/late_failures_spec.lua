-- Failures of queued work: each read of what could not be computed raises, until something writes
-- it (native/device/failures.c). TYCHO_SYNC=1 raises at the call, and breaks the arrays as well.

local device = require "spec.support.device"
local ty = require "tycho"
local folder = require "spec.support.folder"

local V = ty.sym.Variable
local SYNC = os.getenv("TYCHO_SYNC") == "1"

-- Returns an array whose task fails: index 9 of 3 rows.
local function broken(into)
  local ok, y = pcall(ty.nd.take, { ty.nd.arange(3), ty.nd.array{ 0, 9 }, mode = "raise",
    out = into })
  return ok and y or into
end

local function raises(f, ...)
  local e = assert.raises("run", f, ...)
  assert.truthy(tostring(e):find("index 9 at position", 1, true), tostring(e))
  return e
end

describe("an array that could not be computed", function()
  setup(device.leave)                                    -- a GPU finds failures later
  teardown(device.come_back)
  local y

  before_each(function() y = broken(ty.nd.zeros(2)) end)
  after_each(function() pcall(ty.nd.waitall) end)

  local reads = {
    totable = function(x) return x:totable() end,
    asscalar = function(x) return x["0:1"]:asscalar() end,
    element = function(x) return x[0]:asscalar() end,
    wait_to_read = function(x) return x:wait_to_read() end,
    ["a view"] = function(x) return x:reshape{ 2, 1 }:totable() end,
    ["a copy"] = function(x) return x:copy():totable() end,
    ["what is made of it"] = function(x) return (x + 1):totable() end,
    ["a sum"] = function(x) return x:sum():asscalar() end,
    tostring = function(x) return (ty.nd.concat{ x, x, dim = 0 }):totable() end,
    ["another type"] = function(x) return x:astype("float64"):totable() end,
    ["another device"] = function(x) return x:as_in_context(ty.cpu(1)):totable() end,
    ["a file"] = function(x)
      folder.with(function(dir) ty.nd.save(dir .. "/x.params", { x }) end)
    end,
  }
  for name, read in pairs(reads) do
    it("raises at each read: " .. name, function()
      for _ = 1, 3 do
        raises(read, y)
      end
    end)
  end

  it("raises after waitall has reported it, which does so once", function()
    if not SYNC then
      raises(ty.nd.waitall)
    end
    ty.nd.waitall()
    raises(y.totable, y)
    raises(y.totable, y)
  end)

  it("is no news for waitall where a read has raised", function()
    raises(y.totable, y)
    ty.nd.waitall()
    raises(y.totable, y)
  end)

  local writes = {
    number = function(x) x[":"] = 4 end,
    list = function(x) x[":"] = { 4, 4 } end,
    array = function(x) x[":"] = ty.nd.array{ 4, 4 } end,
    copyto = function(x) ty.nd.array{ 4, 4 }:copyto(x) end,
    out = function(x) ty.nd.broadcast_add(ty.nd.array{ 1, 1 }, ty.nd.array{ 3 }, { out = x }) end,
    ["element by element"] = function(x) x[0] = 4 x[1] = 4 end,
    ["from the end"] = function(x) x[1] = ty.nd.array{ 4 } x["0:1"] = 4 end,
  }
  for name, write in pairs(writes) do
    it("is good when all of it is written: " .. name, function()
      write(y)
      assert.same({ 4, 4 }, y:totable())
      assert.same({ 5, 5 }, (y + 1):totable())
    end)
  end

  it("stays broken where it is not written", function()
    y[0] = 4
    raises(y.totable, y)
    raises(y.totable, y[1])
    assert.same({ 4 }, y["0:1"]:totable())
  end)

  it("breaks what is changed in place", function()
    local x = ty.nd.ones(2)
    pcall(x.add_, x, y)
    raises(x.totable, x)
    raises(x.totable, x)
    pcall(x.add_, x, 1)
    raises(x.totable, x)
    x[":"] = 1
    assert.same({ 1, 1 }, x:totable())
  end)

  it("breaks its own rows in an array, not the other ones", function()
    local x = ty.nd.ones{ 3, 2 }
    broken(x[1])
    assert.same({ 1, 1 }, x[0]:totable())
    assert.same({ 1, 1 }, x[2]:totable())
    for _ = 1, 2 do
      raises(x.totable, x)
      raises(x.totable, x[1])
    end
    x[1] = ty.nd.ones(2)
    assert.same({ { 1, 1 }, { 1, 1 }, { 1, 1 } }, x:totable())
  end)

  it("in a store raises when it is pulled", function()
    local store, got = ty.kv.create("local"), ty.nd.zeros(2)
    store:init(1, ty.nd.ones(2))
    pcall(store.push, store, 1, y)
    for _ = 1, 2 do
      pcall(store.pull, store, 1, { out = got })
      raises(got.totable, got)
    end
  end)
end)

-- A weight keeps its old value where a step cannot be made; each such step is reported once.
describe("a step by a gradient that could not be computed", function()
  if SYNC then return end                                -- the call itself raises
  setup(device.leave)
  teardown(device.come_back)

  local function store(kind)
    local kv = ty.kv.create(kind)
    kv:set_optimizer(ty.optimizer.SGD{ learning_rate = 1 })
    kv:init(1, ty.nd.ones(2))
    return kv, function(gradient) kv:push(1, gradient) end, function()
      local got = ty.nd.zeros(2)
      kv:pull(1, { out = got })
      return got:totable()
    end
  end

  local function trainer()
    local p = ty.gluon.Parameter("w", { shape = { 2 } })
    p:initialize{ init = ty.init.One() }
    local t = ty.gluon.Trainer({ p }, "adam")
    return t, function(gradient)
      local y = ty.autograd.record(function() return p:data() * 1 end)
      y:backward(gradient)
      t:step(1)
    end, function() return p:data():totable() end
  end

  for name, make in pairs{ ["local store"] = function() return store("local") end,
      ["device store"] = function() return store("device") end, trainer = trainer } do
    it("is reported, though the gradient's failure was before: " .. name, function()
      local owner, step, read = make()
      local y = broken(ty.nd.zeros(2))
      raises(y.totable, y)
      for _ = 1, 3 do
        step(y)
        raises(read)
        assert.same({ 1, 1 }, read())
      end
      step(y)
      raises(ty.nd.waitall)
      ty.nd.waitall()
      assert.same({ 1, 1 }, read())
      step(ty.nd.ones(2))
      assert.is_true(read()[1] < 1)
      assert.is_truthy(owner)
    end)
  end
end)

describe("a module whose step fails", function()
  if SYNC then return end
  setup(device.leave)
  teardown(device.come_back)

  for name, contexts in pairs{ ["one device"] = { ty.cpu(0) },
      ["two devices"] = { ty.cpu(0), ty.cpu(1) } } do
    it("goes on from the step before, whatever was read first, on " .. name, function()
      for _, outputs_first in ipairs{ false, true } do
        local net = ty.sym.FullyConnected{ V("data"), num_hidden = 2, name = "f" }
        local m = ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ net, name = "softmax" },
          context = contexts }
        m:bind{ data_shapes = { { "data", { 2, 2 } } },
          label_shapes = { { "softmax_label", { 2 } } } }
        m:init_params{ initializer = ty.init.One() }
        m:init_optimizer{ kvstore = "device" }
        local function weights()
          local list = {}
          for key, x in pairs((m:get_params())) do
            list[key] = x:totable()
          end
          return list
        end
        local before = weights()
        for _ = 1, 2 do
          m:forward_backward{ data = { ty.nd.take{ ty.nd.arange(3),
            ty.nd.array{ { 0, 9 }, { 9, 9 } }, mode = "raise" } }, label = { ty.nd.zeros(2) } }
          if outputs_first then
            assert.raises("run", function() m:get_outputs()[1]:totable() end)
          end
          m:update()
          assert.raises("run", weights)
          assert.same(before, weights())
        end
        m:forward_backward{ data = { ty.nd.ones{ 2, 2 } }, label = { ty.nd.zeros(2) } }
        m:update()
        assert.are_not.same(before, weights())
      end
    end)
  end
end)

describe("an executor whose run fails", function()
  setup(device.leave)                                    -- a GPU finds failures later
  teardown(device.come_back)
  local function bound()
    local net = ty.sym.take{ V("a") * 2, V("i"), mode = "raise" }
    local exe = net:simple_bind{ ctx = ty.cpu(), a = { 3 }, i = { 2 },
      grad_req = { a = "write", i = "null" } }
    exe.arg_dict.a[":"] = 5
    return exe
  end

  local function run(exe, index)
    exe.arg_dict.i[":"] = index
    pcall(exe.forward, exe, true)
    pcall(exe.backward, exe, { ty.nd.ones(2) })
  end

  it("has outputs and gradients that raise until a run gives them", function()
    local exe = bound()
    run(exe, 0)
    assert.same({ 10, 10 }, exe.outputs[1]:totable())
    run(exe, 9)
    for _ = 1, 3 do
      raises(exe.outputs[1].totable, exe.outputs[1])
      raises(exe.grad_dict.a.totable, exe.grad_dict.a)
    end
    run(exe, 1)
    assert.same({ 10, 10 }, exe.outputs[1]:totable())
    assert.same({ 0, 4, 0 }, exe.grad_dict.a:totable())
  end)

  it("keeps its arguments", function()
    local exe = bound()
    run(exe, 9)
    assert.same({ 5, 5, 5 }, exe.arg_dict.a:totable())
    pcall(ty.nd.waitall)
  end)

  it("raises likewise where a monitor looks on", function()
    local exe = bound()
    run(exe, 0)
    exe:set_monitor_callback(function() end)
    run(exe, 9)
    for _ = 1, 2 do
      raises(exe.outputs[1].totable, exe.outputs[1])
    end
    run(exe, 1)
    assert.same({ 10, 10 }, exe.outputs[1]:totable())
  end)

  it("has gradients again where forward has nothing to do on their device", function()
    local function check(gradient, step)
      step(broken(ty.nd.zeros(2)))
      if not SYNC then
        raises(gradient.totable, gradient)
      end
      for _ = 1, 2 do
        step(ty.nd.ones(2))
        assert.same({ 6, 6 }, gradient:totable())
      end
    end
    local there = ty.cpu(1)
    local x, g = ty.nd.full({ 2 }, 3, { ctx = there }), ty.nd.zeros({ 2 }, { ctx = there })
    local net = ty.sym.square{ V("x", { attr = { ctx_group = "a" } }), attr = { ctx_group = "b" } }
    local exe = net:bind{ ctx = ty.cpu(), group2ctx = { a = there, b = ty.cpu() }, args = { x = x },
      args_grad = { x = g } }
    check(g, function(head)
      pcall(exe.forward, exe, true)
      pcall(exe.backward, exe, head)
    end)
    local w = ty.nd.full({ 2 }, 3):attach_grad()
    check(w.grad, function(head)
      local y = ty.autograd.record(function() return ty.nd.square(w) end)
      pcall(y.backward, y, head)
    end)
  end)

  it("adds to no gradient that is broken", function()
    local net = ty.sym.take{ V("a"), V("i"), mode = "raise" }
    local exe = net:simple_bind{ ctx = ty.cpu(), a = { 3 }, i = { 2 },
      grad_req = { a = "add", i = "null" } }
    run(exe, 9)
    run(exe, 1)
    for _ = 1, 2 do
      raises(exe.grad_dict.a.totable, exe.grad_dict.a)
    end
    exe.grad_dict.a[":"] = 0
    run(exe, 1)
    assert.same({ 0, 2, 0 }, exe.grad_dict.a:totable())
  end)

  it("raises what an operator written in Lua has broken", function()
    local fail = false
    local Op, Prop = ty.operator.CustomOp:extend(), ty.operator.CustomOpProp:extend()
    function Op:forward(_, req, ins, outs)
      if fail then error("lost") end
      self:assign(outs[1], req[1], ins[1])
    end
    function Prop.create_operator() return Op() end
    ty.operator.register("spec_failing", Prop)
    local exe = (ty.sym.Custom{ V("x") + 1, op_type = "spec_failing" } * 2)
      :simple_bind{ ctx = ty.cpu(), x = { 1 } }
    assert.same({ 2 }, exe:forward()[1]:totable())
    fail = true
    assert.is_false(pcall(exe.forward, exe))
    for _ = 1, 2 do
      local e = assert.raises("run", exe.outputs[1].totable, exe.outputs[1])
      assert.truthy(e.message:find("lost", 1, true))
    end
    ty.nd.waitall()
    fail = false
    assert.same({ 2 }, exe:forward()[1]:totable())
  end)
end)

describe("a training step that fails", function()
  setup(device.leave)                                    -- a GPU finds failures later
  teardown(device.come_back)
  local function module()
    local data = V("data")
    local net = ty.sym.Embedding{ data, input_dim = 4, output_dim = 2, name = "e" }
    net = ty.sym.take{ ty.sym.BatchNorm{ net, name = "bn" }, data, mode = "raise" }
    net = ty.sym.LinearRegressionOutput{ net, V("lin_label"), name = "lin" }
    local m = ty.mod.Module{ symbol = net, label_names = { "lin_label" } }
    m:bind{ data_shapes = { { "data", { 4 } } }, label_shapes = { { "lin_label", { 4, 2 } } } }
    m:init_params{ initializer = ty.init.One() }
    m:init_optimizer{ optimizer = "adam" }
    return m
  end

  local function step(m, index)
    pcall(function()
      m:forward_backward(ty.io.DataBatch{ data = { ty.nd.full({ 4 }, index) },
        label = { ty.nd.ones{ 4, 2 } } })
      m:update()
    end)
  end

  it("says so where a result is read, and training goes on from the step before", function()
    local m = module()
    step(m, 1)
    local before = m:get_params().e_weight:totable()
    step(m, 9)
    if not SYNC then
      raises(function() return m:get_params().e_weight:totable() end)
    end
    assert.same(before, m:get_params().e_weight:totable())
    for _ = 1, 2 do
      raises(function() return m:get_outputs()[1]:totable() end)
    end
    step(m, 1)
    assert.equal(4, #m:get_outputs()[1]:totable())
    assert.are_not.same(before, m:get_params().e_weight:totable())
  end)
end)
