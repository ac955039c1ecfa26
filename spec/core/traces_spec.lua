-- What LuaJIT's traces keep: a trace has the functions that it calls, with their upvalues, as
-- constants. Each program runs in a new process, because the first few closures of a kind count.
-- Slow: which loops become traces differs from process to process, and the cells of gluon leave one
-- object in some.
local shell = require "spec.support.shell"

-- watch(x, ...) notes objects weakly; run(f) calls f some times and prints how many of them live.
local PRELUDE = [[
  local ty = require "tycho"
  local nd, sym, autograd, gluon = ty.nd, ty.sym, ty.autograd, ty.gluon
  local nn = gluon.nn
  local watched = setmetatable({}, { __mode = "k" })
  local function watch(...)
    for i = 1, select("#", ...) do
      watched[(select(i, ...))] = true
    end
    return ...
  end
  local function run(f)
    jit.opt.start("hotloop=2", "hotexit=1")
    for _ = 1, 5 do
      f()
    end
    ty.waitall()
    collectgarbage()
    collectgarbage()
    local n = 0
    for _ in pairs(watched) do
      n = n + 1
    end
    print(n .. " alive")
  end
  local function network()
    local net = nn.HybridSequential{ nn.Dense(4, { activation = "relu" }), nn.Dense(3) }
    net:initialize()
    return watch(net)
  end
  local function loader()
    local x, y = watch(nd.random.uniform{ shape = { 24, 5 } }, nd.zeros{ 24 })
    return watch(gluon.data.DataLoader{ gluon.data.ArrayDataset(x, y), batch_size = 4,
      shuffle = true })
  end
  local function module()
    local x = sym.FullyConnected{ data = sym.Variable("data"), num_hidden = 3, name = "fc" }
    return watch(ty.mod.Module{ symbol = sym.SoftmaxOutput{ data = x, name = "softmax" } })
  end
  local function iterator()
    local x = watch(nd.random.uniform{ shape = { 24, 5 } })
    return watch(ty.io.NDArrayIter{ data = x, label = nd.zeros{ 24 }, batch_size = 4 })
  end
]]


local function assert_nothing_alive(program)
  shell.with_file(PRELUDE .. program, function(path)
    local output = shell.run(shell.program .. " " .. path)
    assert.equal("0 alive", output:match("(%d+ alive)%s*$") or output)
  end)
end


describe("nothing that a script has dropped is alive after #slow", function()
  it("a loop of training over a DataLoader", function()
    assert_nothing_alive[[
      local loss = gluon.loss.SoftmaxCrossEntropyLoss()
      run(function()
        local net, batches = network(), loader()
        local trainer = watch(gluon.Trainer(net:collect_params(), "adam"))
        for _ = 1, 2 do
          for x, y in batches do
            watch(x, y)
            local l = watch(autograd.record(function() return loss(net(x), y) end))
            l:backward()
            gluon.utils.clip_global_norm({ net[1].weight:grad() }, 1)
            trainer:step(4)
          end
        end
        for x in batches:iter() do watch(x) end
      end)
    ]]
  end)

  it("loops over parameters that write them", function()
    assert_nothing_alive[[
      run(function()
        local net = network()
        net(nd.ones{ 2, 5 })
        for _, p in net:collect_params():items() do
          watch(p, p:data())
          p:set_data(nd.ones(p.shape))
        end
        net:cast("float64")
        net:collect_params():reset_ctx(ty.cpu(1))
        for _, p in net:collect_params():items() do watch(p:data()) end
      end)
    ]]
  end)

  it("hooks of blocks", function()
    assert_nothing_alive[[
      run(function()
        local net, n = network(), 0
        net:register_forward_hook(function() n = n + 1 end)
        for _ = 1, 3 do net(watch(nd.ones{ 2, 5 })) end
      end)
    ]]
  end)

  it("the Estimator", function()
    assert_nothing_alive[[
      ty.log.level = "error"
      run(function()
        local net = network()
        local e = watch(gluon.contrib.estimator.Estimator{ net = net,
          loss = gluon.loss.SoftmaxCrossEntropyLoss(), train_metrics = ty.metric.Accuracy(),
          trainer = gluon.Trainer(net:collect_params(), "sgd") })
        e:fit{ train_data = loader(), epochs = 2 }
      end)
    ]]
  end)

  it("recurrent layers and cells of gluon", function()
    assert_nothing_alive[[
      local rnn = gluon.rnn
      run(function()
        local layer = watch(rnn.LSTM{ 4, num_layers = 2, bidirectional = true })
        layer:initialize()
        local states = layer:begin_state{ batch_size = 2 }
        for _ = 1, 3 do
          layer(watch(nd.ones{ 5, 2, 3 }), watch(states[1]) and states)
        end
        watch(layer:unfuse())
        local cell = watch(rnn.BidirectionalCell(rnn.GRUCell(4), rnn.GRUCell(4)))
        cell:initialize()
        for _ = 1, 3 do cell:unroll(5, watch(nd.ones{ 2, 5, 3 })) end
      end)
    ]]
  end)

  it("samplers", function()
    assert_nothing_alive[[
      local data = gluon.data
      run(function()
        local all = watch(data.SequentialSampler(12))
        local some = watch(data.FilterSampler(function(x) return x > 1 end,
          watch(data.ArrayDataset(watch(nd.arange(6))))))
        for _, s in ipairs{ all, some, watch(data.RandomSampler(12)),
            watch(gluon.contrib.data.IntervalSampler(12, 3)) } do
          local batches = watch(data.BatchSampler(s, 2, "rollover"))
          for _ = 1, 2 do
            for list in batches do watch(list) end
          end
        end
      end)
    ]]
  end)

  it("a Module's fit, score and predictions, with a Monitor", function()
    assert_nothing_alive[[
      ty.log.level = "error"
      run(function()
        local m, it = module(), iterator()
        local monitor = watch(ty.mon.Monitor(1))
        m:fit{ train_data = it, eval_data = it, num_epoch = 2, monitor = monitor,
          clip_global_norm = 1 }
        m:score(it, "acc")
        m:predict(it)
        for outputs in m:iter_predict(it) do watch(outputs[1]) end
      end)
    ]]
  end)

  it("FeedForward", function()
    assert_nothing_alive[[
      ty.log.level = "error"
      run(function()
        local x = sym.FullyConnected{ data = sym.Variable("data"), num_hidden = 3, name = "fc" }
        local f = watch(ty.model.FeedForward{ symbol = sym.SoftmaxOutput{ data = x,
          name = "softmax" }, num_epoch = 2, numpy_batch_size = 4 })
        f:fit{ X = iterator(), eval_data = iterator() }
        f:predict(watch(nd.ones{ 8, 5 }))
      end)
    ]]
  end)

  it("cells of symbols, and weights packed", function()
    assert_nothing_alive[[
      run(function()
        for _, cell in ipairs{ ty.rnn.LSTMCell{ 4 }, ty.rnn.FusedRNNCell{ 4, num_layers = 2,
            mode = "lstm" } } do
          watch(cell)
          local out = cell:unroll(3, { inputs = sym.Variable("data"), merge_outputs = true })
          local exe = watch(out:simple_bind{ ctx = ty.cpu(), data = { 2, 3, 5 } })
          ty.init.FusedRNN{ ty.init.Uniform(), 4, 2, "lstm" }
          for _ = 1, 2 do
            for _, x in pairs(cell:pack_weights(cell:unpack_weights(exe.arg_dict))) do watch(x) end
          end
        end
      end)
    ]]
  end)

  it("operators written in Lua", function()
    assert_nothing_alive[[
      local Twice = ty.operator.CustomOp:extend("Twice")
      function Twice:forward(is_train, req, ins, outs) self:assign(outs[1], req[1], ins[1] * 2) end
      function Twice:backward(req, g, ins, outs, grads) self:assign(grads[1], req[1], g[1] * 2) end
      local Prop = ty.operator.CustomOpProp:extend("TwiceProp")
      function Prop:create_operator() return watch(Twice()) end
      ty.operator.register("twice", Prop)
      run(function()
        local net = sym.Custom{ sym.Variable("data"), op_type = "twice" }
        local exe = watch(net:simple_bind{ ctx = ty.cpu(), data = { 4, 5 } })
        for _ = 1, 3 do
          exe:forward(true)
          exe:backward(watch(nd.ones{ 4, 5 }))
        end
      end)
    ]]
  end)

  it("numeric gradients", function()
    assert_nothing_alive[[
      run(function()
        ty.test_utils.check_gradient{ f = function(x) return (x * x):sum() end,
          inputs = { watch(nd.random.uniform{ shape = { 2, 3 } }) } }
      end)
    ]]
  end)
end)


describe("a lookup of an operator that is not called", function()
  it("keeps nothing of the function that makes it", function()
    local ty = require "tycho"
    local watched = setmetatable({}, { __mode = "k" })
    for _ = 1, 3 do
      local x = ty.nd.ones{ 3 }
      watched[x] = true
      local function look()
        return ty.sym.relu ~= nil and x
      end
      look()
    end
    collectgarbage()
    collectgarbage()
    assert.is_nil(next(watched))
  end)
end)
