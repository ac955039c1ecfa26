-- Labels: those of later batches count after batches without any, each goes with its own output,
-- and errors name the one that is missing or of another size.

local ty = require "tycho"

local function quiet()
  local log = {}
  function log.info() end
  log.warning, log.debug, log.error = log.info, log.info, log.info
  return log
end

local CONTEXTS = { one = { ty.cpu(0) }, several = { ty.cpu(0), ty.cpu(1) } }

local function head(name)
  return ty.sym.SoftmaxOutput{ ty.sym.Variable(name and name .. "_in" or "data"),
    label = ty.sym.Variable(name and name .. "_label" or "softmax_label"),
    name = name or "softmax" }
end

-- Returns the class whose score the gradient raises, for rows of equal scores.
local function raised(grads)
  return ty.nd.argmin{ grads, axis = 1 }:totable()
end

local function batch(rows, label, columns)
  return { data = { ty.nd.zeros{ rows, columns or 3 } },
    label = label and { ty.nd.full({ rows }, label) } or nil }
end

local function train(m, rows, label)
  m:forward(batch(rows, label), true)
  m:backward()
  for _, class in ipairs(raised(m:get_input_grads()[1])) do
    assert.are.equal(label, class)
  end
end

local function bound(contexts, labels)
  local m = ty.mod.Module{ symbol = head(), context = contexts, logger = quiet() }
  m:bind{ data_shapes = { { "data", { 4, 3 } } }, inputs_need_grad = true,
    label_shapes = labels ~= false and { { "softmax_label", { 4 } } } or nil }
  m:init_params()
  return m
end

local function forget(m)
  m:forward(batch(2), false)
  m:predict(ty.nd.ones{ 6, 3 })
  m:iter_predict(ty.io.NDArrayIter{ data = ty.nd.ones{ 10, 3 }, batch_size = 5 })()
  m:forward(batch(2), true)                              -- without backward
end

describe("labels after batches without any", function()
  for name, contexts in pairs(CONTEXTS) do
    it("count in a Module on " .. name, function()
      for _, labels in ipairs{ true, false } do
        local m = bound(contexts, labels)
        train(m, 4, 2)
        forget(m)
        for _, rows in ipairs{ 4, 2, 6, 5, 3, 4 } do
          train(m, rows, 1)
          train(m, rows, 0)
        end
        assert.are.equal("softmax_label", m.label_shapes[1].name)
        assert.are.same({ 4 }, { unpack(m.label_shapes[1].shape) })
      end
    end)

    it("count in a BucketingModule on " .. name, function()
      local function gen()
        return head(), { "data" }, { "softmax_label" }
      end
      local m = ty.mod.BucketingModule{ sym_gen = gen, default_bucket_key = 3, context = contexts,
        logger = quiet() }
      m:bind{ data_shapes = { { "data", { 4, 3 } } }, inputs_need_grad = true,
        label_shapes = { { "softmax_label", { 4 } } } }
      m:init_params()
      local function run(key, rows, label)
        local b = ty.io.DataBatch(batch(rows, label, key))
        b.bucket_key = key
        m:forward(b, label ~= nil)
        return label and m:backward()
      end
      for _, described in ipairs{ false, true } do
        for _, rows in ipairs{ 4, 2 } do
          local key = (described and 5 or 7) + rows
          run(key, rows)                                 -- a bucket first seen without labels
          for label = 0, 2 do
            run(key, rows, label)
            assert.are.equal(label, raised(m:get_input_grads()[1])[1])
          end
          run(3, rows)
          run(3, 4, 1)
          assert.are.equal(1, raised(m:get_input_grads()[1])[1])
        end
      end
    end)

    it("count in a SequentialModule on " .. name, function()
      local first = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 3, name = "fc" }
      local m = ty.mod.SequentialModule{ logger = quiet() }
      m:add(ty.mod.Module{ symbol = first, label_names = {}, context = contexts })
      m:add(ty.mod.Module{ symbol = head(), context = contexts, logger = quiet() },
        { take_labels = true, auto_wiring = true })
      m:bind{ data_shapes = { { "data", { 4, 3 } } }, inputs_need_grad = true,
        label_shapes = { { "softmax_label", { 4 } } } }
      m:init_params{ initializer = ty.init.Zero() }
      local function run(rows, label)
        m:forward(batch(rows, label), true)
        m:backward()
        assert.are.equal(label, raised(m._modules[2]:get_input_grads()[1])[1])
      end
      run(4, 2)
      m:forward(batch(2), false)
      m:predict(ty.nd.ones{ 6, 3 })
      run(4, 1)
      run(2, 0)
      run(6, 2)
    end)
  end

  it("count in fit, with a prediction after each epoch", function()
    ty.random.seed(3)
    local x = ty.nd.random.normal{ shape = { 64, 4 } }
    local y = x:slice_axis{ axis = 1, begin = 0, ["end"] = 3 }:argmax{ axis = 1 }
    local function accuracy(callback)
      local net = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 3, name = "fc" }
      local m = ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ net, name = "softmax" },
        logger = quiet() }
      local it_ = ty.io.NDArrayIter{ data = x, label = y, batch_size = 16 }
      ty.random.seed(4)
      m:fit{ train_data = it_, num_epoch = 5, epoch_end_callback = callback and function()
        callback(m)
      end, optimizer_params = { learning_rate = 0.5 } }
      return m:score(it_, "acc")[1][2]
    end
    local alone = accuracy()
    assert.is_true(alone > 0.8)
    assert.are.equal(alone, accuracy(function(m) m:predict(ty.nd.ones{ 7, 4 }) end))
    assert.are.equal(alone, accuracy(function(m)
      m:predict(ty.io.NDArrayIter{ data = x, batch_size = 10 })
    end))
  end)

  it("count where the data were reshaped without them", function()
    local m = bound(CONTEXTS.one)
    m:reshape{ { "data", { 2, 3 } } }
    assert.is_nil(m.label_shapes)
    train(m, 2, 1)
    train(m, 4, 2)
  end)

  it("may have another shape than those that were bound for other data", function()
    local m = bound(CONTEXTS.one)
    m:forward(batch(2), false)
    m:forward({ data = { ty.nd.zeros{ 2, 3 } },
      label = { ty.nd.array{ { 0, 1, 0 }, { 1, 0, 0 } } } }, true)
    m:backward()
    assert.are.same({ 1, 0 }, raised(m:get_input_grads()[1]))
  end)

  it("are looked for by their names among several", function()
    local m = ty.mod.Module{ symbol = ty.sym.Group{ head("z"), head("a") }, logger = quiet(),
      data_names = { "z_in", "a_in" }, label_names = { "z_label", "a_label" } }
    m:bind{ data_shapes = { { "z_in", { 4, 3 } }, { "a_in", { 4, 3 } } },
      inputs_need_grad = true, label_shapes = { { "z_label", { 4 } } } }
    m:init_params()
    m:forward({ data = { ty.nd.zeros{ 4, 3 }, ty.nd.zeros{ 4, 3 } },
      label = { ty.nd.full({ 4 }, 1), ty.nd.full({ 4 }, 2) } }, true)
    m:backward()
    assert.are.same({ 1, 2 },
      { raised(m:get_input_grads()[1])[1], raised(m:get_input_grads()[2])[1] })
  end)
end)

describe("a gradient without labels", function()
  it("is refused, with the label's name", function()
    for _, labels in ipairs{ true, false } do
      local m = bound(CONTEXTS.one, labels)
      for _, rows in ipairs{ 4, 2 } do
        m:forward(batch(rows), true)
        local e = assert.raises("state", m.backward, m)
        assert.are.equal("softmax_label", e.argument)
        assert.truthy(e.message:find("'softmax_label'", 1, true))
      end
      train(m, 4, 1)
    end
  end)

  it("is refused by a loss that is written in Lua", function()
    local m = ty.mod.LuaLossModule{ grad_func = function(scores, labels)
      return scores - ty.nd.one_hot{ labels, depth = 3 }
    end }
    m:bind{ data_shapes = { { "data", { 4, 3 } } }, label_shapes = { { "softmax_label", { 4 } } } }
    m:forward(batch(4, 2), true)
    m:backward()
    m:forward(batch(2), true)
    assert.are.equal("softmax_label", assert.raises("state", m.backward, m).argument)
    m:forward(batch(4, 1), true)
    m:backward()
    assert.are.equal(1, raised(m:get_input_grads()[1])[1])
  end)

  it("is computed where the network reads no label", function()
    local m = ty.mod.Module{ symbol = ty.sym.MakeLoss{ ty.sym.sum{ ty.sym.Variable("data") * 2 } },
      label_names = {} }
    m:bind{ data_shapes = { { "data", { 4, 3 } } }, inputs_need_grad = true }
    m:init_params()
    m:forward(batch(2), true)
    m:backward()
    assert.near(ty.nd.full({ 2, 3 }, 2), m:get_input_grads()[1])
  end)
end)

describe("labels of executor managers", function()
  local function manager(net, it_, sym_gen)
    return ty.executor_manager.DataParallelExecutorManager{ symbol = net, ctx = { ty.cpu() },
      train_data = it_, sym_gen = sym_gen }
  end

  local function weight_gradient(man, group)
    man:forward(true)
    man:backward()
    return (group or man.execgrp).grad_arrays[1][1]:sum{ axis = 1 }:argmin{ axis = 0 }:asscalar()
  end

  local function net()
    local fc = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 3, no_bias = true,
      name = "fc" }
    return ty.sym.SoftmaxOutput{ fc, name = "softmax" }
  end

  local function described(key, label)
    return ty.io.DataBatch{ data = { ty.nd.ones{ 4, 3 } }, bucket_key = key,
      label = label and { ty.nd.full({ 4 }, label) } or nil,
      provide_data = { { "data", { 4, 3 } } },
      provide_label = label and { { "softmax_label", { 4 } } } or nil }
  end

  it("count in a bucket that was first seen without any", function()
    local it_ = ty.io.NDArrayIter{ data = ty.nd.ones{ 4, 3 }, label = ty.nd.zeros{ 4 },
      batch_size = 4 }
    it_.default_bucket_key = 1
    local man = manager(net(), it_, net)
    man:set_params({ fc_weight = ty.nd.zeros{ 3, 3 } }, {})
    man:load_data_batch(described(2))
    man:forward(false)
    for label = 0, 2 do
      man:load_data_batch(described(2, label))
      assert.are.equal(label, weight_gradient(man))
    end
  end)

  it("are refused where the group has none, and missing ones where it has", function()
    local man = manager(net(), ty.io.NDArrayIter{ data = ty.nd.ones{ 4, 3 },
      label = ty.nd.zeros{ 4 }, batch_size = 4 })
    assert.raises("value", man.load_data_batch, man, described(nil))
    local bare = ty.mod.DataParallelExecutorGroup{ symbol = net(), contexts = { ty.cpu() },
      workload = { 1 }, data_shapes = { { "data", { 4, 3 } } }, param_names = { "fc_weight" },
      for_training = true, inputs_need_grad = false }
    bare:forward(described(nil, 1), false)
    bare:forward(described(nil, 1), true)
    assert.are.equal("softmax_label", assert.raises("state", bare.backward, bare).argument)
  end)
end)

-- Returns two classifiers that are right about their own labels only.
local function two_heads(order)
  local names = order or { "z", "a" }
  return ty.sym.Group{ head(names[1]), head(names[2]) }
end

local function sure(classes)
  return ty.nd.one_hot{ ty.nd.array(classes), depth = 3 } * 20
end

local function two_labels(batch_size)
  return ty.io.NDArrayIter{ batch_size = batch_size or 4,
    data = { z_in = sure{ 0, 1, 2, 0 }, a_in = sure{ 2, 2, 1, 1 } },
    label = { z_label = ty.nd.array{ 0, 1, 2, 0 }, a_label = ty.nd.array{ 2, 2, 1, 1 } } }
end

describe("several labels", function()
  local function module(contexts, names)
    return ty.mod.Module{ symbol = two_heads(), context = contexts, logger = quiet(),
      data_names = { "z_in", "a_in" }, label_names = names or { "z_label", "a_label" } }
  end

  for where, contexts in pairs(CONTEXTS) do
    it("go with their own outputs on " .. where, function()
      for _, names in ipairs{ { "z_label", "a_label" }, { "a_label", "z_label" } } do
        local it_ = two_labels()
        local m = module(contexts, names)
        m:bind{ data_shapes = it_.provide_data, label_shapes = it_.provide_label,
          inputs_need_grad = true }
        m:init_params()
        assert.are.equal(1, m:score(it_, "acc")[1][2])
        assert.are.equal(1, m:score(it_, "acc", { count_pad = false })[1][2])
        local padded = two_labels(3)
        assert.are.equal(1, m:score(padded, "acc", { count_pad = false })[1][2])
        it_:reset()
        local metric = ty.metric.create{ "acc", "ce" }
        local b = it_:next()
        m:forward(b, true)
        m:update_metric(metric, b.label)
        assert.are.equal(1, select(2, metric:get())[1])
      end
    end)
  end

  it("and data are bound in any order", function()
    local it_ = two_labels()
    for _, order in ipairs{ { "z", "a" }, { "a", "z" } } do
      local m = module()
      m:bind{ data_shapes = { { order[1] .. "_in", { 4, 3 } }, { order[2] .. "_in", { 4, 3 } } },
        label_shapes = { { order[2] .. "_label", { 4 } }, { order[1] .. "_label", { 4 } } },
        inputs_need_grad = true }
      m:init_params()
      assert.are.equal(1, m:score(it_, "acc")[1][2])
      for _, count_pad in ipairs{ true, false } do
        assert.are.equal(1, m:score(two_labels(3), "acc", { count_pad = count_pad })[1][2])
      end
      it_:reset()
      m:forward_backward(it_:next())
      for _, g in ipairs(m:get_input_grads()) do
        assert.near(0, g:abs():max():asscalar(), 1e-3)
      end
      local outputs = m:predict(it_)
      assert.are.same({ 0, 1, 2, 0 }, outputs[1]:argmax{ axis = 1 }:totable())
      assert.are.same({ 2, 2, 1, 1 }, outputs[2]:argmax{ axis = 1 }:totable())
    end
  end)

  it("go with their own outputs whatever they are called", function()
    local function one(data, label, name)
      return ty.sym.SoftmaxOutput{ ty.sym.Variable(data), label = ty.sym.Variable(label),
        name = name }
    end
    local it_ = ty.io.NDArrayIter{ batch_size = 4,
      data = { x = sure{ 0, 1, 2, 0 }, y = sure{ 2, 2, 1, 1 } },
      label = { b = ty.nd.array{ 0, 1, 2, 0 }, a = ty.nd.array{ 2, 2, 1, 1 } } }
    local m = ty.mod.Module{ symbol = ty.sym.Group{ one("x", "b", "first"), one("y", "a", "last") },
      data_names = { "x", "y" }, label_names = { "a", "b" } }
    m:bind{ data_shapes = it_.provide_data, label_shapes = it_.provide_label,
      for_training = false }
    m:init_params()
    assert.are.equal(1, m:score(it_, "acc")[1][2])
  end)

  it("go with their own outputs in buckets, chains, managers and FeedForward", function()
    local it_ = two_labels()
    it_.default_bucket_key = 1
    local function gen()
      return two_heads(), { "z_in", "a_in" }, { "z_label", "a_label" }
    end
    local buckets = ty.mod.BucketingModule{ sym_gen = gen, default_bucket_key = 1 }
    buckets:bind{ data_shapes = it_.provide_data, label_shapes = it_.provide_label }
    buckets:init_params()
    assert.are.equal(1, buckets:score(it_, "acc")[1][2])

    local chain = ty.mod.SequentialModule()
    chain:add(module(), { take_labels = true })
    chain:bind{ data_shapes = it_.provide_data, label_shapes = it_.provide_label }
    chain:init_params()
    assert.are.equal(1, chain:score(it_, "acc")[1][2])
    assert.are.equal(1, chain:score(two_labels(3), "acc", { count_pad = false })[1][2])

    it_:reset()
    local man = ty.executor_manager.DataParallelExecutorManager{ symbol = two_heads(),
      ctx = { ty.cpu(0), ty.cpu(1) }, train_data = it_ }
    local b, metric = it_:next(), ty.metric.create("acc")
    man:load_data_batch(b)
    man:forward(false)
    man:update_metric(metric, b.label)
    assert.are.equal(1, select(2, metric:get()))

    local forward = ty.model.FeedForward{ symbol = two_heads(), num_epoch = 1 }
    assert.are.equal(1, forward:score(it_))
  end)

  it("are paired by name where a metric gets them by name", function()
    local metric = ty.metric.create("acc")
    local labels = { a_label = ty.nd.array{ 0 }, a_m_label = ty.nd.array{ 1 } }
    local outputs = { a_output = ty.nd.array{ { 1, 0 } }, a_m_output = ty.nd.array{ { 0, 1 } } }
    metric:update_dict(labels, outputs)
    assert.are.equal(1, select(2, metric:get()))
    for name in pairs(outputs) do
      metric = ty.metric.create("acc", { output_names = { name } })
      metric:update_dict(labels, outputs)
      assert.are.equal(1, select(2, metric:get()))
    end
  end)

  it("of an iterator without descriptions of its batches are those of its description", function()
    local Own = ty.io.DataIter:extend("Own")
    function Own:init()
      Own.super.init(self, 4)
      self.inner = two_labels()
      self.provide_data, self.provide_label = self.inner.provide_data, self.inner.provide_label
    end
    function Own:reset() self.inner:reset() end
    function Own:next()
      local b = self.inner:next()
      return b and ty.io.DataBatch{ data = b.data, label = b.label, pad = 0 }
    end
    local m = module()
    m:bind{ data_shapes = { { "z_in", { 4, 3 } }, { "a_in", { 4, 3 } } },
      label_shapes = { { "z_label", { 4 } }, { "a_label", { 4 } } } }
    m:init_params()
    assert.are.equal(1, m:score(Own(), "acc")[1][2])
    assert.are.same({ 0, 1, 2, 0 }, m:predict(Own())[1]:argmax{ axis = 1 }:totable())
    m:fit{ train_data = Own(), num_epoch = 1, eval_metric = ty.metric.np(function(label, pred)
      local right = 0
      for i, row in ipairs(pred) do
        right = right + (row[label[i] + 1] > 0.9 and 1 or 0)
      end
      return right, #label
    end), batch_end_callback = function(param)
      assert.are.equal(1, select(2, param.eval_metric:get()))
    end }
  end)
end)

describe("what does not fit a batch", function()
  it("is named: labels with other rows", function()
    local m = bound(CONTEXTS.one)
    for _, rows in ipairs{ 3, 8 } do
      local e = assert.raises("shape", m.forward, m, { data = { ty.nd.zeros{ 4, 3 } },
        label = { ty.nd.zeros{ rows } } }, true)
      assert.are.equal("softmax_label", e.argument)
      assert.truthy(tostring(e):find("4", 1, true) and tostring(e):find(tostring(rows), 1, true))
      e = assert.raises("shape", m.forward, m, { data = { ty.nd.zeros{ 5, 3 } },
        label = { ty.nd.zeros{ rows } } }, true)
      assert.are.equal("softmax_label", e.argument)
    end
  end)

  it("is named: data with other rows than the first ones", function()
    local m = ty.mod.Module{ symbol = two_heads(), logger = quiet(),
      data_names = { "z_in", "a_in" }, label_names = { "z_label", "a_label" } }
    m:bind{ data_shapes = { { "z_in", { 4, 3 } }, { "a_in", { 4, 3 } } } }
    m:init_params()
    local e = assert.raises("shape", m.forward, m,
      { data = { ty.nd.zeros{ 4, 3 }, ty.nd.zeros{ 2, 3 } } })
    assert.are.equal("a_in", e.argument)
  end)

  it("is named: a label that cannot be divided among devices", function()
    local m = bound(CONTEXTS.several)
    m:forward(batch(4, 1), false)
    local e = assert.raises("shape", m.update_metric, m, ty.metric.create("acc"),
      { ty.nd.zeros{ 12 } })
    assert.truthy(tostring(e):find("12", 1, true) and tostring(e):find("4", 1, true), tostring(e))
  end)

  it("is named: gradients of outputs with other rows", function()
    for _, contexts in pairs(CONTEXTS) do
      local m = ty.mod.Module{ symbol = ty.sym.Variable("data") * 2, label_names = {},
        context = contexts }
      m:bind{ data_shapes = { { "data", { 4, 3 } } }, inputs_need_grad = true }
      m:init_params()
      m:forward({ data = { ty.nd.ones{ 4, 3 } } }, true)
      for _, rows in ipairs{ 3, 6 } do
        local e = assert.raises("shape", m.backward, m, ty.nd.ones{ rows, 3 })
        assert.is_nil(e.message:find("view", 1, true), e.message)
      end
      m:backward(ty.nd.ones{ 4, 3 })
      assert.near(ty.nd.full({ 4, 3 }, 2), m:get_input_grads()[1])
    end
  end)

  it("is no matter: a flat label that a metric can compare", function()
    local net = ty.sym.SoftmaxOutput{ ty.sym.Reshape{ ty.sym.Variable("data"), shape = { -1, 3 } },
      label = ty.sym.Reshape{ ty.sym.Variable("softmax_label"), shape = { -1 } },
      name = "softmax" }
    local m = ty.mod.Module{ symbol = net }
    m:bind{ data_shapes = { { "data", { 2, 4, 3 } } }, label_shapes = { { "softmax_label",
      { 2, 4 } } } }
    m:init_params()
    m:forward({ data = { sure{ 0, 1, 2, 0, 1, 2, 0, 1 }:reshape{ 2, 4, 3 } } }, false)
    local metric = ty.metric.create("acc")
    m:update_metric(metric, { ty.nd.array{ 0, 1, 2, 0, 1, 2, 0, 1 } })
    assert.are.equal(1, select(2, metric:get()))
  end)

  it("is named: padding of all rows", function()
    local m = bound(CONTEXTS.one)
    local Padded = ty.io.DataIter:extend("Padded")
    function Padded:init(pad)
      Padded.super.init(self, 4)
      self.pad, self.at = pad, 0
    end
    function Padded:reset() self.at = 0 end
    function Padded:next()
      self.at = self.at + 1
      return self.at == 1 and ty.io.DataBatch{ data = { ty.nd.ones{ 4, 3 } },
        label = { ty.nd.zeros{ 4 } }, pad = self.pad } or nil
    end
    for _, pad in ipairs{ 4, 9, -1 } do
      local e = assert.raises("value", m.predict, m, Padded(pad))
      assert.are.equal("pad", e.argument)
      assert.truthy(tostring(e):find("4 rows of 'softmax_output'", 1, true), tostring(e))
      if pad > 0 then
        e = assert.raises("value", m.score, m, Padded(pad), "acc", { count_pad = false })
        assert.are.equal("pad", e.argument)
      end
    end
  end)

  it("is asked for: shapes of labels that do not follow from the data", function()
    local net = ty.sym.SoftmaxOutput{ ty.sym.Variable("data"),
      label = ty.sym.Reshape{ ty.sym.Variable("softmax_label"), shape = { -1 } },
      name = "softmax" }
    local m = ty.mod.Module{ symbol = net }
    local e = assert.raises("shape", m.bind, m, { data_shapes = { { "data", { 4, 3 } } } })
    assert.are.equal("softmax_label", e.argument)
    assert.truthy(e.message:find("label_shapes", 1, true), e.message)
    assert.is_nil(e.candidates)
  end)
end)

describe("a module that was bound without labels", function()
  it("is scored with those of the batches", function()
    local it_ = ty.io.NDArrayIter{ data = sure{ 0, 1, 2, 0 }, label = ty.nd.array{ 0, 1, 2, 0 },
      batch_size = 2 }
    for _, case in ipairs{ { { "softmax_label" }, true }, { { "softmax_label" }, false },
        { ty.null, false } } do
      local names, training = unpack(case)
      local m = ty.mod.Module{ symbol = head(), label_names = names, logger = quiet() }
      m:bind{ data_shapes = { { "data", { 4, 3 } } }, for_training = training }
      m:init_params(not training and { arg_params = {} } or {})
      assert.are.equal(1, m:score(it_, "acc")[1][2])
      assert.are.equal(1, m:score(it_, "acc", { count_pad = false })[1][2])
    end
  end)
end)
