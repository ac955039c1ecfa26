-- Parameters that blocks, executors and modules have in common, without copies.

local blocks = require "spec.support.blocks"
local ty = require "tycho"
local device = require "spec.support.device"

local autograd, gluon, nd = ty.autograd, ty.gluon, ty.nd

local function exported()
  local net = blocks.Net{ prefix = "net_" }
  net:initialize()
  net(nd.ones{ 1, 5 })
  blocks.fill(net)
  return net, net(ty.sym.Variable("data"))
end

local function make_module(symbol, ctx)
  local y = ty.sym.MakeLoss(symbol:square(), { name = "loss" })
  local mod = ty.mod.Module{ y, label_names = {}, context = ctx }
  mod:bind{ data_shapes = { { "data", { 4, 5 } } } }
  return mod
end


describe("a block's parameters", function()
  setup(device.leave)                                    -- contexts are CPUs by name
  teardown(device.come_back)

  it("are the arrays of an executor that is bound with them", function()
    local net, symbol = exported()
    local args, grads = { data = blocks.numbers{ 4, 5 } }, {}
    for name, p in net:collect_params():items() do
      args[name], grads[name] = p:data(), p:grad()
    end
    local exe = symbol:bind{ ctx = ty.cpu(), args = args, args_grad = grads }
    assert.near(net(args.data), exe:forward()[1])
    net.b.bias:set_data{ 7, 8, 9 }
    assert.near(net(args.data), exe:forward()[1])
    exe:forward{ is_train = true }
    exe:backward(nd.ones{ 4, 3 })
    assert.near({ 4, 4, 4 }, net.b.bias:grad())
  end)

  it("start a Module as arg_params", function()
    local net, symbol = exported()
    local mod, args = make_module(symbol), {}
    for name, p in net:collect_params():items() do
      args[name] = p:data()
    end
    mod:init_params{ initializer = ty.null, arg_params = args, aux_params = {} }
    local x = blocks.numbers{ 4, 5 }
    mod:forward(ty.io.DataBatch{ data = { x } }, false)
    assert.near(net(x):square(), mod:get_outputs()[1], 1e-6)
  end)

  it("are a Module's: what either trains, the other has", function()
    for _, ctx in ipairs{ { ty.cpu(0) }, { ty.cpu(0), ty.cpu(1) } } do
      local net, symbol = exported()
      local mod = make_module(symbol, ctx)
      assert.raises("state", gluon.utils.share_parameters, net:collect_params(), mod)
      mod:init_params(ty.init.Uniform(0.5))
      mod:init_optimizer{ optimizer_params = { learning_rate = 0.1 } }
      local before = mod:get_params().net_dense1_bias:copy()
      gluon.utils.share_parameters(net:collect_params(), mod)
      assert.near(before, net.b.bias:data(ctx[1]))
      local x = blocks.numbers{ 4, 5 }

      mod:forward_backward(ty.io.DataBatch{ data = { x } })
      mod:update()
      assert.near(mod:get_params().net_dense1_bias, net.b.bias:data(ctx[1]), 0)
      assert.is_true((net.b.bias:data(ctx[1]) - before):abs():sum():asscalar() > 0)

      local t = gluon.Trainer(net:collect_params(), "sgd", { learning_rate = 0.1 })
      local heads = autograd.record(function()
        local list = {}
        for i, part in ipairs(gluon.utils.split_and_load(x, ctx)) do
          list[i] = net(part):square():sum()
        end
        return list
      end)
      autograd.backward(heads)
      t:step(4)
      mod:forward(ty.io.DataBatch{ data = { x } }, false)
      local y = mod:get_outputs()[1]
      assert.near(net(x):square(), y, 1e-6)
      assert.near(mod:get_params().net_dense0_weight, net.a.weight:data(ctx[1]), 0)
    end
  end)

  it("must be like the Module's", function()
    local net, symbol = exported()
    local mod = make_module(symbol)
    mod:init_params()
    local other = blocks.Net{ prefix = "other_" }
    assert.raises("name", gluon.utils.share_parameters, other:collect_params(), mod)
    gluon.utils.share_parameters(other:collect_params(), mod, { ignore_extra = true })
    local d = gluon.ParameterDict()
    d:get("net_dense0_weight", { shape = { 9, 9 } })
    assert.raises("shape", gluon.utils.share_parameters, d, mod)
    assert.raises("type", gluon.utils.share_parameters, net:collect_params(), {})
    assert.raises("type", gluon.utils.share_parameters, {}, mod)
  end)
end)
