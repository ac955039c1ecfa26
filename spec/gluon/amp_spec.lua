-- Mixed precision of blocks and of calls on arrays (contrib/amp.lua).

local ty = require "tycho"

local autograd, gluon, nd, F = ty.autograd, ty.gluon, ty.nd, ty.F
local amp, nn = ty.amp, ty.gluon.nn

local function network()
  ty.random.seed(3)
  local net = nn.HybridSequential{ prefix = "net_" }
  net:name_scope(function()
    net:add(nn.Conv2D{ 8, 3, padding = 1 }, nn.BatchNorm(), nn.Activation "relu",
      nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(3))
  end)
  net:initialize{ init = ty.init.Xavier() }
  return net
end

-- Returns pictures with one of three bright bands, and which.
local function pictures(n)
  ty.random.seed(8)
  local x, y = nd.random.normal{ 0, 0.3, shape = { n, 1, 12, 12 } }, nd.zeros{ n }
  local p, q = x:data(), y:data()
  for i = 0, n - 1 do
    q[i] = i % 3
    for k = 48 * (i % 3), 48 * (i % 3) + 47 do
      p[i * 144 + k] = p[i * 144 + k] + 1 + i % 3
    end
  end
  return x, y
end

local loss = gluon.loss.SoftmaxCrossEntropyLoss()

local function train(net, steps, wrap)
  local x, y = pictures(48)
  local trainer = gluon.Trainer(net:collect_params(), "sgd",
    { learning_rate = 0.2, momentum = 0.9 })
  local l
  for _ = 1, steps do
    l = autograd.record(function() return loss(net(x), y) end)
    if wrap then
      wrap(l, trainer)
    else
      l:backward()
    end
    trainer:step(48)
  end
  return l:mean():asscalar(), net(x), trainer
end


describe("mixed precision of gluon", function()
  after_each(function() amp.off() end)

  for _, target in ipairs{ "bfloat16", "float16" } do
    it("casts what blocks read, traced or not, alike: " .. target, function()
      amp.init{ target = target }
      local x = pictures(6)
      local net, outs = network(), {}
      for i, active in ipairs{ false, true } do
        net:hybridize(active)
        x:attach_grad()
        local y = autograd.record(function() return net(x) end)
        assert.equal(target, y.dtype)
        y:backward()
        for name, p in net:collect_params():items() do
          assert.equal("float32", p:data().dtype, name)
          assert.equal("float32", p:list_data()[1].grad and p:grad().dtype or "float32", name)
        end
        outs[i] = { y:astype "float32", x.grad:copy(), net:collect_params():at("net_conv0_weight")
          :grad():copy() }
      end
      for k = 1, 3 do
        assert.near(outs[1][k], outs[2][k], 1e-6)
      end
    end)
  end

  it("trains, with losses in float32", function()
    local exact = train(network(), 30)
    amp.init()
    for _, active in ipairs{ false, true } do
      local net = network()
      net:hybridize(active)
      local l, y = train(net, 30)
      assert.equal("bfloat16", y.dtype)
      assert.is_true(l < 0.2, l)
      assert.is_true(math.abs(l - exact) < 0.05, l .. " " .. exact)
      assert.equal("float32", loss(y, nd.zeros{ 48 }).dtype)
    end
  end)

  it("is in force for traces of before, and no longer after off", function()
    local net, x = network(), pictures(2)
    net:hybridize()
    local before = net(x)
    amp.init()
    assert.equal("bfloat16", net(x).dtype)
    amp.off()
    assert.equal("float32", net(x).dtype)
    assert.near(before, net(x), 0)
  end)

  it("leaves named nodes, float64, integers and what is written in place", function()
    amp.init{ excluded_sym_names = { "net_dense0_fwd" } }
    local net, x = network(), pictures(2)
    net:hybridize()
    local shown = {}
    net:register_op_hook(function(name, y) shown[name] = y.dtype end)
    net(x)
    assert.equal("bfloat16", shown.net_conv0_fwd_output)
    amp.init()
    local a, b = nd.ones({ 2, 2 }, { dtype = "float64" }), nd.ones({ 2, 2 }, { dtype = "int32" })
    assert.equal("float64", nd.dot(a, a).dtype)
    assert.equal("int32", (b + b).dtype)
    local out = nd.zeros{ 2, 2 }
    nd.dot(nd.ones{ 2, 2 }, nd.ones{ 2, 2 }, { out = out })
    assert.near({ { 2, 2 }, { 2, 2 } }, out, 0)
    assert.equal("float32", out:add_(1).dtype)
  end)

  it("brings arrays of two types to the wider one, and losses to float32", function()
    amp.init()
    local h = nd.dot(nd.array{ { 1, 2 } }, nd.array{ { 3 }, { 4 } })
    assert.equal("bfloat16", h.dtype)
    assert.equal("float32", (h + nd.ones{ 1, 1 }).dtype)
    assert.equal("bfloat16", (h + h).dtype)
    assert.equal("bfloat16", F.relu(h).dtype)
    assert.equal("float32", h:exp().dtype)
    assert.equal("float32", F.softmax(h).dtype)
    assert.equal("float32", F.concat(h, nd.ones{ 1, 1 }, { dim = 1 }).dtype)
  end)

  it("leaves no arrays", function()
    amp.init()
    local net, x = network(), pictures(2)
    net(x):wait_to_read()
    ty.waitall()
    collectgarbage()
    collectgarbage()
    local before = ty.live()
    for _ = 1, 20 do
      net(x):wait_to_read()
    end
    ty.waitall()
    collectgarbage()
    collectgarbage()
    local after = ty.live()
    assert.is_true(after.tensors <= before.tensors, after.tensors .. " > " .. before.tensors)
  end)

  it("refuses other targets and operators", function()
    assert.raises("value", amp.init, { target = "int8" })
    assert.raises("name", amp.init, { always = { "Convolution3" } })
  end)
end)


describe("the scale of a Trainer's losses", function()
  after_each(function() amp.off() end)

  it("changes no step, and is divided out of gradients", function()
    local plain = network()
    train(plain, 5)
    local scaled = network()
    train(scaled, 5, function(l, trainer)
      if not rawget(trainer, "_scaler") then
        amp.init_trainer(trainer)
      end
      amp.scale_loss(l, trainer):backward()
    end)
    for name, p in plain:collect_params():items() do
      assert.near(p:data(), scaled:collect_params():at(name):data(), 1e-6)
    end
  end)

  it("leaves out a step whose gradients overflow, and becomes smaller", function()
    amp.init{ target = "float16" }
    local net = nn.Dense{ 1, in_units = 2, use_bias = false }
    net:initialize{ init = ty.init.One() }
    local trainer = gluon.Trainer(net:collect_params(), "sgd", { learning_rate = 1 })
    amp.init_trainer(trainer)
    local function step(x)
      local l = autograd.record(function() return net(x):mean() end)
      amp.scale_loss(l, trainer):backward()
      trainer:step(1)
      return net.weight:data()
    end
    assert.near({ { 1, 1 } }, step(nd.array{ { 6e4, 6e4 } }), 0)
    assert.equal(2 ^ 14, amp.scale_loss(nd.ones{ 1 }, trainer):asscalar())
    assert.near({ { 0.5, 0.75 } }, step(nd.array{ { 0.5, 0.25 } }), 1e-3)
  end)

  it("is divided out once where gradients are unscaled to be clipped", function()
    local net = nn.Dense{ 1, in_units = 2, use_bias = false }
    net:initialize{ init = ty.init.One() }
    local trainer = gluon.Trainer(net:collect_params(), "sgd", { learning_rate = 1 })
    amp.init_trainer(trainer, { loss_scale = 1024 })
    for _ = 1, 2 do
      local l = autograd.record(function() return net(nd.array{ { 0.5, 0.25 } }) end)
      autograd.backward(amp.scale_loss({ l }, trainer))
      amp.unscale(trainer)
      amp.unscale(trainer)
      assert.near({ { 0.5, 0.25 } }, net.weight:grad(), 0)
      trainer:step(1)
    end
    assert.near({ { 0, 0.5 } }, net.weight:data(), 0)
  end)

  it("sums over devices before it is looked at", function()
    local ctxs = { ty.cpu(0), ty.cpu(1) }
    local net = nn.Dense{ 1, in_units = 1, use_bias = false }
    net:initialize{ init = ty.init.One(), ctx = ctxs }
    local trainer = gluon.Trainer(net:collect_params(), "sgd", { learning_rate = 1 })
    amp.init_trainer(trainer)
    local function step(a, b)
      local list = autograd.record(function()
        return { net(nd.array({ { a } }, { ctx = ctxs[1] })),
          net(nd.array({ { b } }, { ctx = ctxs[2] })) }
      end)
      autograd.backward(amp.scale_loss(list, trainer))
      trainer:step(2)
      return net.weight:list_data()
    end
    for _, w in ipairs(step(1e37, 1)) do
      assert.near({ { 1 } }, w, 0)
    end
    for _, w in ipairs(step(0.5, 1)) do
      assert.near({ { 0.25 } }, w, 1e-6)
    end
  end)

  it("is asked for by name", function()
    local net = nn.Dense{ 1, in_units = 1 }
    local trainer = gluon.Trainer(net:collect_params(), "sgd")
    assert.matches("init_trainer", assert.raises("state", amp.scale_loss, nd.ones{ 1 }, trainer))
    assert.raises("type", amp.init_trainer, net)
    assert.raises("value", amp.init_trainer, trainer, { loss_scale = -1 })
    amp.init_trainer(trainer)
    assert.raises("type", amp.scale_loss, 3, trainer)
  end)
end)
