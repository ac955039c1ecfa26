-- Trainers: steps, halves, several devices, stores, states, errors.

local blocks = require "spec.support.blocks"
local ty = require "tycho"
local device = require "spec.support.device"

local autograd, gluon, nd = ty.autograd, ty.gluon, ty.nd
local Parameter, Trainer, Net = gluon.Parameter, gluon.Trainer, blocks.Net

local function parameter(name, value, ctx)
  local p = Parameter{ name, shape = { 2 } }
  p:initialize{ init = ty.init.Constant(value), ctx = ctx }
  return p
end

-- Runs backward of the sum of weight times factor, per parameter and device.
local function back(...)
  local given = { ... }
  local heads = autograd.record(function()
    local list = {}
    for _, entry in ipairs(given) do
      for _, x in ipairs(entry[1]:list_data()) do
        list[#list + 1] = x * entry[2]
      end
    end
    return list
  end)
  autograd.backward(heads)
end


describe("a Trainer", function()
  it("steps by the gradient over the batch size", function()
    local p = parameter("w", 1)
    local t = Trainer({ p }, "sgd", { learning_rate = 0.5 })
    back{ p, 3 }
    t:step(2)
    assert.near({ 0.25, 0.25 }, p:data())
    back{ p, 3 }
    t:step{ batch_size = 6 }
    assert.near({ 0, 0 }, p:data())
    assert.equal("<Trainer of 1 parameters, SGD>", tostring(t))
  end)

  it("multiplies rescale_grad of the options", function()
    local p = parameter("w", 1)
    local t = Trainer({ p }, "sgd", { learning_rate = 1, rescale_grad = 0.5 })
    back{ p, 1 }
    t:step(1)
    assert.near({ 0.5, 0.5 }, p:data())
  end)

  it("reads the parameters' multipliers at each step", function()
    local p, q = parameter("w", 1), parameter("b", 1)
    local t = Trainer({ p, q }, "sgd", { learning_rate = 1, wd = 0.5 })
    p.lr_mult, q.wd_mult = 0, 0
    back({ p, 1 }, { q, 1 })
    t:step(1)
    assert.near({ 1, 1 }, p:data())
    assert.near({ 0, 0 }, q:data())
    p.lr_mult = 1
    back({ p, 1 }, { q, 1 })
    t:step(1)
    assert.near({ -0.5, -0.5 }, p:data())
  end)

  it("lets LARS scale the rate of every parameter, whatever its name", function()
    local p = parameter("dense0_bias", 3)
    local t = Trainer({ p }, "lars", { learning_rate = 0.5, eta = 0.1 })
    back{ p, 6 }
    t:step(1)
    assert.near({ 2.85, 2.85 }, p:data())           -- 0.5 * 0.1 * (|weight| / |gradient|) * 6
  end)

  it("takes a dictionary, a table of names or a list", function()
    local p, q = parameter("w", 1), parameter("b", 1)
    local d = gluon.ParameterDict()
    d:get("x", { shape = { 1 } })
    for _, params in ipairs{ d, { p, q }, { one = p, two = q }, {} } do
      assert.is_true(ty.is_a(Trainer(params, "sgd"), Trainer))
    end
    assert.is_true(ty.is_a(Trainer{ params = { p }, optimizer = "sgd" }, Trainer))
    for _, params in ipairs{ 3, "text", { 3 }, { x = "y" } } do
      assert.raises("type", Trainer, params, "sgd")
    end
    assert.raises("type", Trainer, p, "sgd")
    assert.raises("name", Trainer, { p, p }, "sgd")
    assert.raises("name", Trainer, { p }, "no_such_optimizer")
    assert.raises("type", Trainer, { p }, 3)
    assert.raises("name", Trainer, { p }, "sgd", { learning_rat = 1 })
    assert.raises("name", Trainer, { p }, "sgd", {}, { kvstor = "local" })
  end)

  it("takes an optimizer that is made, then without options", function()
    local p = parameter("w", 1)
    local t = Trainer({ p }, ty.optimizer.SGD{ learning_rate = 0.25 })
    back{ p, 1 }
    t:step(1)
    assert.near({ 0.75, 0.75 }, p:data())
    assert.raises("value", Trainer, { p }, ty.optimizer.SGD{}, { learning_rate = 1 })
  end)

  it("asks for a backward where no gradient is fresh", function()
    local p = parameter("w", 1)
    local t = Trainer({ p }, "sgd", { learning_rate = 1 })
    for _ = 1, 2 do
      local e = assert.raises("state", t.step, t, 1)
      assert.matches("call its backward before each step", e.message)
      back{ p, 1 }
      t:step(1)
    end
  end)

  it("warns where there are no parameters", function()
    local lines, level, sink = {}, ty.log.level, ty.log.sink
    ty.log.level, ty.log.sink = "warning", function(_, text) lines[#lines + 1] = text end
    Trainer(ty.gluon.nn.Dense(2):collect_params(".*wieght"), "sgd")
    ty.log.level, ty.log.sink = level, sink
    assert.matches("no parameters", table.concat(lines))
  end)

  it("refuses gradients that are not fresh, and changes nothing then", function()
    local p, q = parameter("w", 1), parameter("b", 1)
    local t = Trainer({ p, q }, "sgd", { learning_rate = 1 })
    back{ p, 1 }
    local e = assert.raises("state", t.step, t, 1)
    assert.equal("b", e.argument)
    assert.matches("ignore_stale_grad", tostring(e))
    assert.near({ 1, 1 }, p:data())
    t:step(1, { ignore_stale_grad = true })
    assert.near({ 0, 0 }, p:data())
    assert.near({ 1, 1 }, q:data())
    q.grad_req = "null"
    back{ p, 1 }
    t:step(1)
    assert.near({ -1, -1 }, p:data())
    assert.raises("state", t.step, t, 1)
  end)

  it("needs parameters that have arrays, and a batch", function()
    local p = Parameter{ "w", shape = { 0 }, allow_deferred_init = true }
    local t = Trainer({ p }, "sgd")
    assert.equal("w", assert.raises("state", t.step, t, 1).argument)
    assert.raises("value", t.step, t, 0)
    assert.raises("value", t.step, t, 0 / 0)
    assert.raises("value", t.step, t)
  end)

  it("steps while recording is on, as between begin and finish", function()
    local p = parameter("w", 1, { ty.cpu(0), ty.cpu(1) })
    local t = Trainer({ p }, "sgd", { learning_rate = 1 }, { update_on_kvstore = false })
    autograd.begin()
    local ok, e = pcall(function()
      back{ p, 1 }
      t:step(2)
      back{ p, 1 }
      t:allreduce_grads()
      t:update(2)
    end)
    autograd.finish()
    assert(ok, e)
    assert.near({ -1, -1 }, p:data(ty.cpu(1)))
  end)

  it("is made before the parameters have shapes", function()
    local net = Net()
    net:initialize()
    local t = Trainer(net:collect_params(), "adam")
    local y = autograd.record(function() return net(nd.ones{ 2, 3 }) end)
    y:backward()
    t:step(2)
    assert.equal(1, t.optimizer.num_update)
  end)

  it("has a rate, which a schedule takes over", function()
    local p = parameter("w", 1)
    local t = Trainer({ p }, "sgd", { learning_rate = 0.5 })
    t:set_learning_rate(0.125)
    assert.equal(0.125, t.learning_rate)
    back{ p, 1 }
    t:step(1)
    assert.near({ 0.875, 0.875 }, p:data())
    t:set_learning_rate{ lr = 0.5 }
    assert.equal(0.5, t.learning_rate)
    for _, rate in ipairs{ "fast", {}, false, p } do
      assert.is_false(pcall(t.set_learning_rate, t, rate))
      assert.is_false(pcall(t.optimizer.set_learning_rate, t.optimizer, rate))
    end
    assert.raises("type", t.set_learning_rate, t, "fast")
    assert.raises("value", t.set_learning_rate, t)
    assert.equal(0.5, t.learning_rate)
    t = Trainer({ p }, "sgd", { learning_rate = 1,
      lr_scheduler = ty.lr_scheduler.FactorScheduler{ step = 1, factor = 0.5 } })
    assert.raises("state", t.set_learning_rate, t, 1)
    assert.raises("name", function() return t.rate end)
    assert.matches("set_learning_rate",
      tostring(assert.raises("state", function() t.learning_rate = 1 end)))
    assert.raises("state", function() t.lr = 1 end)
    assert.matches("did you mean 'set_learning_rate'",
      tostring(assert.raises("name", function() t:set_lr(1) end)))
  end)
end)


describe("a Trainer on several devices", function()
  local CTX = { ty.cpu(0), ty.cpu(1) }

  it("adds gradients, in each kind of store", function()
    for _, options in ipairs{ {}, { kvstore = "local" }, { update_on_kvstore = false },
        { update_on_kvstore = true }, { kvstore = ty.kv.create("device") } } do
      local p = parameter("w", 1, CTX)
      local t = Trainer({ p }, "sgd", { learning_rate = 0.5, momentum = 0.9 }, options)
      for _ = 1, 2 do
        back{ p, 1 }
        t:step(2)
      end
      -- sum of gradients 2, over 2: 1 a step; 1 - 0.5 - (0.5 + 0.45)
      assert.near({ -0.45, -0.45 }, p:data(CTX[1]))
      assert.near({ -0.45, -0.45 }, p:data(CTX[2]))
    end
  end)

  it("does the halves of a step one by one", function()
    local p = parameter("w", 1, CTX)
    local t = Trainer({ p }, "sgd", { learning_rate = 1 }, { update_on_kvstore = false })
    back{ p, 2 }
    t:allreduce_grads()
    assert.near({ 4, 4 }, p:grad(CTX[2]))
    for _, g in ipairs(p:list_grad()) do
      g:mul_(0.5)
    end
    t:update(2)
    assert.near({ 0, 0 }, p:data(CTX[1]))
    assert.near({ 0, 0 }, p:data(CTX[2]))
    assert.raises("state", t.update, t, 2)
    t:update(2, { ignore_stale_grad = true })
    assert.near({ 0, 0 }, p:data(CTX[2]))
    local on_store = Trainer({ parameter("v", 1, CTX) }, "sgd", {}, { update_on_kvstore = true })
    assert.raises("state", on_store.allreduce_grads, on_store)
    assert.raises("state", on_store.update, on_store, 1)
  end)

  it("sees values that were set between steps, also where the store updates", function()
    for _, on_store in ipairs{ true, false } do
      local p = parameter("w", 1, CTX)
      local t = Trainer({ p }, "sgd", { learning_rate = 1 }, { update_on_kvstore = on_store })
      back{ p, 1 }
      t:step(2)
      p:set_data{ 5, 5 }
      back{ p, 1 }
      t:step(2)
      assert.near({ 4, 4 }, p:data(CTX[2]))
    end
  end)

  it("refuses parameters on other devices", function()
    local t = Trainer({ parameter("w", 1, CTX), parameter("b", 1) }, "sgd")
    assert.equal("b", assert.raises("device", t.step, t, 1).argument)
  end)

  it("follows parameters that are moved", function()
    local p = parameter("w", 1)
    local t = Trainer({ p }, "sgd", { learning_rate = 1 })
    back{ p, 1 }
    t:step(1)
    p:reset_ctx(CTX)
    back{ p, 1 }
    t:step(2)
    assert.near({ -1, -1 }, p:data(CTX[2]))
  end)

  it("compresses gradients", function()
    local p = parameter("w", 1, CTX)
    local t = Trainer({ p }, "sgd", { learning_rate = 1 },
      { compression_params = { type = "2bit", threshold = 2 } })
    back{ p, 3 }
    t:step(1)
    assert.near({ -3, -3 }, p:data(CTX[1]))
  end)

  it("begins with the values of the first device, wherever it updates", function()
    for _, on_store in ipairs{ true, false } do
      local net = gluon.nn.BatchNorm{ in_channels = 1 }
      net:initialize{ ctx = CTX }
      net.gamma:list_data()[2][":"] = 7
      local trainer = gluon.Trainer(net:collect_params(), "sgd", { learning_rate = 0 },
        { update_on_kvstore = on_store })
      local list = autograd.record(function()
        return { net(nd.ones({ 4, 1 }, { ctx = CTX[1] })),
          net(nd.ones({ 4, 1 }, { ctx = CTX[2] }) * 5) }
      end)
      autograd.backward(list)
      trainer:step(1)
      for _, name in ipairs{ "gamma", "running_mean" } do
        local x = net[name]:list_data()
        assert.equal(x[1]:asscalar(), x[2]:asscalar(), name)
      end
    end
  end)
end)


describe("two Trainers", function()
  it("with shared parameters update in turn", function()
    local p = parameter("w", 1)
    local a, b = Trainer({ p }, "sgd", { learning_rate = 1 }),
      Trainer({ p }, "sgd", { learning_rate = 0.5 })
    back{ p, 1 }
    a:step(1)
    back{ p, 1 }
    b:step(1)
    assert.near({ -0.5, -0.5 }, p:data())
  end)
end)


describe("states of a Trainer", function()
  setup(device.leave)                                    -- contexts are CPUs by name
  teardown(device.come_back)

  local path
  before_each(function() path = os.tmpname() end)
  after_each(function() os.remove(path) end)

  local function steps(net, t, from, to)
    for i = from, to do
      local x = blocks.numbers({ 2, 3 }, i)
      local y = autograd.record(function() return net(x) end)
      y:backward()
      t:step(2)
    end
  end

  it("go on bit for bit", function()
    for _, name in ipairs{ "sgd", "adam", "nadam" } do
      local net, other = Net{ prefix = "n_" }, Net{ prefix = "n_" }
      net:initialize()
      net(nd.ones{ 1, 3 })
      local function trainer(of)
        return Trainer(of:collect_params(), name, { learning_rate = 0.1, wd = 0.01,
          lr_scheduler = ty.lr_scheduler.FactorScheduler{ step = 2, factor = 0.5 } })
      end
      local t = trainer(net)
      steps(net, t, 1, 3)
      local saved = os.tmpname()
      t:save_states(path)
      net:save_parameters(saved)
      steps(net, t, 4, 6)
      other:load_parameters(saved)
      os.remove(saved)
      local u = trainer(other)
      u:load_states(path)
      assert.equal(3, u.optimizer.num_update)
      steps(other, u, 4, 6)
      assert.equal(t.learning_rate, u.learning_rate)
      assert.near(net.a.weight:data(), other.a.weight:data(), 0)
      assert.near(net.b.bias:data(), other.b.bias:data(), 0)
    end
  end)

  it("of a store go on, too", function()
    local ctx, values = { ty.cpu(0), ty.cpu(1) }, {}
    for i = 1, 2 do
      local p = parameter("w", 1, ctx)
      local t = Trainer({ p }, "sgd", { learning_rate = 0.1, momentum = 0.9 })
      if i == 2 then
        p:set_data(values.weight)
        t:load_states(path)
      else
        back{ p, 1 }
        t:step(1)
        t:save_states(path)
        values.weight = p:data():copy()
      end
      back{ p, 1 }
      t:step(1)
      values[i] = p:data():copy()
    end
    assert.near(values[1], values[2], 0)
  end)

  it("of a store have the counts of its own device, whichever the parameters are on", function()
    for _, ctx in ipairs{ { ty.cpu(0), ty.cpu(1) }, { ty.cpu(2), ty.cpu(1) } } do
      local p = parameter("w", 1, ctx)
      local function trainer()
        return Trainer({ p }, "sgd", { learning_rate = 1,
          lr_scheduler = ty.lr_scheduler.MultiFactorScheduler{ step = { 1 }, factor = 0.5 } })
      end
      local t = trainer()
      back{ p, 1 }
      t:step(2)
      t:save_states(path)
      t = trainer()
      t:load_states(path)
      local before = p:data(ctx[1]):copy()
      back{ p, 1 }
      t:step(2)
      assert.near({ 0.5, 0.5 }, before - p:data(ctx[1]))
      assert.equal(2, t.optimizer.num_update)
    end
  end)

  it("keep multipliers of the parameters that they come to", function()
    local p = parameter("w", 1)
    local t = Trainer({ p }, "sgd", { learning_rate = 1 })
    back{ p, 1 }
    t:step(1)
    t:save_states(path)
    p.lr_mult = 0
    t:load_states(path)
    back{ p, 1 }
    t:step(1)
    assert.near({ 0, 0 }, p:data())
  end)

  it("come to a network whose automatic names count other layers before it", function()
    local nn = ty.gluon.nn
    local function network(first)
      ty.random.seed(3)
      local net = nn.Sequential()
      for i = first, first + 2 do
        net:add(nn.Dense{ 4, in_units = 4, prefix = ("dense%d_"):format(i) })
      end
      net:initialize()
      return net, Trainer(net:collect_params(), "adam", { learning_rate = 0.1 })
    end
    local x = ty.nd.arange(8):reshape{ 2, 4 } / 8
    local function train(net, t, count)
      for _ = 1, count do
        ty.autograd.record(function() return (net(x) ^ 2):sum() end):backward()
        t:step(1)
      end
    end
    local saved = path .. ".params"
    local net, t = network(8)
    train(net, t, 3)
    net:save_parameters(saved)
    t:save_states(path)
    train(net, t, 2)
    -- names that are all others; names of which some are the saved ones', of other layers
    for _, first in ipairs{ 98, 9 } do
      local other, u = network(first)
      other:load_parameters(saved)
      u:load_states(path)
      train(other, u, 2)
      for i = 1, 3 do assert.near(net[i].weight:data(), other[i].weight:data(), 0) end
    end
    os.remove(saved)
  end)

  it("of foreign bytes, of others' parameters or of no file are refused", function()
    local t = Trainer({ parameter("w", 1) }, "adam")
    local f = io.open(path, "wb")
    f:write("\128\3cmxnet pickle")
    f:close()
    assert.raises("format", t.load_states, t, path)
    assert.raises("io", t.load_states, t, path .. ".none")
    assert.raises("io", t.save_states, t, "/no/such/folder/x")
    local other = Trainer({ parameter("v", 1) }, "adam")
    local q = parameter("q", 1)
    local third = Trainer({ q }, "adam")
    back{ q, 1 }
    third:step(1)
    third:save_states(path)
    assert.raises("state", other.load_states, other, path)
  end)

  it("of another optimizer are refused, with the names of both", function()
    local p = parameter("w", 1)
    local t = Trainer({ p }, "adam")
    back{ p, 1 }
    t:step(1)
    t:save_states(path)
    for _, case in ipairs{ { "sgd", { momentum = 0.9 } }, { "sgd", {} }, { "rmsprop", {} } } do
      local q = parameter("w", 1)
      local u = Trainer({ q }, case[1], case[2])
      local e = assert.raises("state", u.load_states, u, path)
      assert.matches("Adam.*" .. u.optimizer.class_name, e.message)
      back{ q, 1 }
      u:step(1)
      assert.is_true(q:data():get(0) < 1)
    end
    local without = Trainer({ p }, "sgd", { learning_rate = 1 })
    without:save_states(path)
    local with = Trainer({ p }, "sgd", { momentum = 0.9 })
    assert.raises("state", with.load_states, with, path)
  end)
end)
