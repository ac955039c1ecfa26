-- Module:find_lr: rates, losses, the suggestion, and what the test leaves as it was.

local ty = require "tycho"
require "spec.helper"

local function network()
  local net = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 8, name = "fc1" }
  net = ty.sym.Activation{ net, act_type = "tanh", name = "tanh1" }
  return ty.sym.SoftmaxOutput{ ty.sym.FullyConnected{ net, num_hidden = 2, name = "fc2" },
    name = "softmax" }
end

describe("Module:find_lr", function()
  local train, mod

  before_each(function()
    ty.random.seed(3)
    local x = ty.random.normal{ shape = { 100, 4 } }
    train = ty.io.NDArrayIter{ x, x:slice_axis{ axis = 1, begin = 0, end_ = 1 }:reshape{ -1 }:gt(0),
      batch_size = 20 }
    mod = ty.mod.Module{ symbol = network() }
  end)

  it("finds a rate at which the network learns", function()
    local found = mod:find_lr{ train_data = train, last = 1000, initializer = ty.init.Xavier() }
    assert.near(1e-6, found.learning_rates[1], 1e-12)
    assert.equal(#found.learning_rates, #found.losses)
    assert.truthy(found.suggestion > 1e-3 and found.suggestion < 100, tostring(found))
    assert.is_false(mod.binded)
    mod:fit{ train_data = train, num_epoch = 5, eval_metric = "ce", initializer = ty.init.Xavier(),
      optimizer_params = { learning_rate = found.suggestion } }
    train:reset()
    assert.truthy(mod:score(train, "ce")[1][2] < found.losses[1])
  end)

  it("is not misled by how the first batches differ", function()
    for seed = 1, 12 do
      ty.random.seed(seed)
      local x = ty.random.normal{ shape = { 200, 4 } }
      local labels = x:slice_axis{ axis = 1, begin = 0, end_ = 1 }:reshape{ -1 }:gt(0)
      local found = mod:find_lr{ train_data = ty.io.NDArrayIter{ x, labels, batch_size = 20 },
        last = 100, initializer = ty.init.Xavier() }
      assert.truthy(found.suggestion > 0.01 and found.suggestion < 10,
        seed .. ": " .. tostring(found))
    end
  end)

  it("ends where the loss diverges", function()
    local w = ty.sym.Variable("w_weight", { shape = { 1, 1 } })
    local product = ty.sym.broadcast_mul{ ty.sym.Variable "data", w }
    local loss = ty.sym.MakeLoss{ ty.sym.square{ product }, name = "loss" }
    local m = ty.mod.Module{ symbol = loss, label_names = ty.null }
    local data = ty.io.NDArrayIter{ ty.nd.ones{ 4, 1 }, batch_size = 4 }
    m:bind{ data_shapes = data.provide_data }
    m:init_params{ arg_params = { w_weight = ty.nd.full({ 1, 1 }, 1) } }
    local found = m:find_lr{ train_data = data, eval_metric = ty.metric.Loss(), last = 1e6,
      num_batch = 200 }
    assert.truthy(#found.losses < 200)
    assert.truthy(found.losses[#found.losses] > 4 * math.min(unpack(found.losses)))
    assert.equal(1, m:get_params().w_weight:asscalar())
  end)

  it("leaves parameters, random numbers and the iterator as they were", function()
    mod:bind{ data_shapes = train.provide_data, label_shapes = train.provide_label }
    mod:init_params{ initializer = ty.init.Xavier() }
    local before, state = mod:get_params().fc1_weight:copy(), ty.random.get_state()
    mod:find_lr{ train_data = train, num_batch = 12 }
    assert.near(before, mod:get_params().fc1_weight, 0)
    assert.same(state, ty.random.get_state())
    local batches = 0
    for _ in train do
      batches = batches + 1
    end
    assert.equal(5, batches)
    assert.is_false(mod.optimizer_initialized)
  end)

  it("draws the losses over the rates", function()
    local svg = mod:find_lr{ train_data = train, num_batch = 30 }:chart():svg()
    assert.truthy(svg:find("learning rate", 1, true))
    assert.truthy(svg:find(">loss<", 1, true))
  end)

  it("refuses what it cannot test", function()
    local function of(options)
      options.train_data = options.train_data or train
      return assert.raises("value", mod.find_lr, mod, options)
    end
    assert.equal("first", of{ first = 0 }.argument)
    assert.equal("first", of{ first = 1, last = 0.1 }.argument)
    assert.equal("num_batch", of{ num_batch = 1 }.argument)
    assert.equal("optimizer_params", of{ optimizer_params = { learning_rate = 1 } }.argument)
    assert.equal("train_data", of{ train_data = {} }.argument)
    assert.raises("name", mod.find_lr, mod, { train_data = train, batches = 3 })
    assert.raises("type", mod.find_lr, mod, { train_data = train, eval_metric = { "ce", "acc" } })
  end)
end)
