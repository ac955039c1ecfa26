-- Estimators: training as a loop by hand does it, metrics, events and their order, lines, stopping,
-- checkpoints, mistakes.

local ty = require "tycho"
local support = require "spec.support.gluon"

local estimator, gluon, nd = ty.gluon.contrib.estimator, ty.gluon, ty.nd
local form = support.form

local level, sink = ty.log.level, ty.log.sink
local lines

setup(function()
  ty.log.level = "info"
  ty.log.sink = function(_, text) lines[#lines + 1] = text end
end)
teardown(function() ty.log.level, ty.log.sink = level, sink end)
before_each(function() lines = {} end)

-- Returns a loader of n rows of 4 numbers and their classes.
local function loader(n, batch)
  local x = form({ n, 4 }, "float32")
  local t = {}
  for i, row in ipairs(x:totable()) do t[i] = row[1] + row[2] > 0 and 1 or 0 end
  local y = nd.array(t)
  local self = setmetatable({}, {})
  function self.iter()
    local at = 0
    return function()
      if at >= n then return nil end
      local range = ("%d:%d"):format(at, math.min(at + batch, n))
      at = at + batch
      return x[range], y[range]
    end
  end
  function self.len() return math.ceil(n / batch) end
  return self
end

local function network()
  local net = gluon.nn.HybridSequential{
    gluon.nn.Dense{ 6, "tanh", in_units = 4, prefix = "a_" },
    gluon.nn.Dense{ 2, in_units = 6, prefix = "b_" } }
  net:initialize()
  return support.fill(net)
end

local function make(o)
  o = o or {}
  local net = o.net or network()
  o.net, o[1] = nil, net
  o[2] = o[2] or gluon.loss.SoftmaxCELoss()
  o.trainer = o.trainer or gluon.Trainer(net:collect_params(), "sgd", { learning_rate = 0.2 })
  o.context = ty.cpu()
  return estimator.Estimator(o), net
end

local function value(metric) return (select(2, metric:get())) end

local function has_line(pattern)
  for _, text in ipairs(lines) do
    if text:find(pattern) then return true end
  end
  return false
end


describe("fit", function()
  it("trains as a loop by hand", function()
    local e, net = make()
    local data = loader(10, 4)
    e:fit{ data, epochs = 3 }
    local hand = network()
    local trainer = gluon.Trainer(hand:collect_params(), "sgd", { learning_rate = 0.2 })
    local loss = gluon.loss.SoftmaxCELoss()
    for _ = 1, 3 do
      for x, y in data:iter() do
        local l = ty.autograd.record(function() return loss(hand(x), y) end)
        l:backward()
        trainer:step(x.shape[1])
      end
    end
    assert.near(hand[1].weight:data(), net[1].weight:data(), 1e-6)
  end)

  it("learns", function()
    local e = make()
    local data = loader(64, 8)
    e:fit{ data, data, epochs = 20 }
    assert.is_true(value(e.train_metrics[1]) > 0.85)
    assert.is_true(value(e.val_metrics[1]) > 0.85)
    e:evaluate(data)
    assert.is_true(value(e.val_metrics[2]) < 0.5)
  end)

  it("ends after a number of batches, in the middle of an epoch", function()
    local e = make()
    local n = 0
    e:fit{ loader(12, 4), batches = 7, event_handlers = { batch_end = function() n = n + 1 end } }
    assert.equal(7, n)
    assert.is_nil(e.max_epoch)
  end)

  it("calls handlers in order of their priority", function()
    local e = make()
    local seen = {}
    local function handler(name, priority)
      local h = { priority = priority }
      for _, event in ipairs{ "train_begin", "epoch_begin", "batch_begin", "batch_end",
          "epoch_end", "train_end" } do
        h[event] = function(self, who, info)
          assert.equal(h, self)
          assert.equal(e, who)
          assert.is_table(info)
          seen[#seen + 1] = name .. " " .. event
        end
      end
      return h
    end
    e:fit{ loader(4, 4), epochs = 1, event_handlers = { handler("b", 2), handler("a", 1) } }
    local want = {}
    for _, event in ipairs{ "train_begin", "epoch_begin", "batch_begin", "batch_end",
        "epoch_end", "train_end" } do
      want[#want + 1] = "a " .. event
      want[#want + 1] = "b " .. event
    end
    assert.same(want, seen)
  end)

  it("hands predictions, labels and losses to batch_end", function()
    local e = make()
    local h = {}
    function h:batch_end(_, info)
      assert.shape({ 4, 4 }, info.batch[1])
      assert.shape({ 4, 2 }, info.pred[1])
      assert.shape({ 4 }, info.label[1])
      assert.shape({ 4 }, info.loss[1])
      self.called = true
    end
    e:fit{ loader(4, 4), epochs = 1, event_handlers = h }
    assert.is_true(h.called)
  end)

  it("stops where a handler says so", function()
    local e = make()
    local batches, epochs = 0, 0
    e:fit{ loader(12, 4), epochs = 9, event_handlers = { {
      batch_end = function()
        batches = batches + 1
        return batches == 2
      end,
      epoch_end = function()
        epochs = epochs + 1
        return epochs == 2
      end } } }
    assert.equal(5, batches)
    assert.equal(2, epochs)
  end)

  it("refuses what it cannot do", function()
    local e, net = make()
    local data = loader(4, 4)
    assert.raises("value", e.fit, e, { data })
    assert.raises("value", e.fit, e, { data, epochs = 1, batches = 1 })
    assert.raises("value", e.fit, e, { 3, epochs = 1 })
    assert.raises("value", e.evaluate, e, { {} })
    assert.raises("value", e.fit, e, { data, epochs = 1, event_handlers = { {} } })
    local bare = gluon.data.DataLoader{ nd.ones{ 4, 4 }, batch_size = 2 }
    local missing = assert.raises("value", e.fit, e, { bare, epochs = 1 })
    assert.equal("batch", missing.argument)
    assert.equal("batch", assert.raises("value", e.evaluate, e, { bare }).argument)
    assert.raises("value", e.fit, e, { data, epochs = 1,
      event_handlers = { estimator.MetricHandler(ty.metric.MSE()) } })
    assert.raises("value", estimator.Estimator, 3, gluon.loss.L2Loss())
    assert.raises("value", estimator.Estimator, { net, gluon.loss.L2Loss(), val_net = {} })
    assert.raises("value", estimator.Estimator, net, function() end)
    assert.raises("value", estimator.Estimator, { net, gluon.loss.L2Loss(), trainer = 3 })
    assert.raises("value", estimator.Estimator, { net, gluon.loss.L2Loss(), context = { 3 } })
    assert.raises("value", estimator.Estimator, { net, gluon.loss.L2Loss(), train_metrics = 3 })
    assert.raises("value", estimator.Estimator,
      { net, gluon.loss.L2Loss(), batch_processor = {} })
    assert.raises("name", function() return estimator.Handler end)
  end)
end)


describe("an estimator", function()
  it("names its metrics by what they measure", function()
    local e = make()
    assert.equal("training accuracy", (e.train_metrics[1]:get()))
    assert.equal("training softmaxcrossentropyloss", (e.train_metrics[2]:get()))
    assert.equal("validation accuracy", (e.val_metrics[1]:get()))
    assert.not_equal(e.train_metrics[1], e.val_metrics[1])
    local top = make{ train_metrics = ty.metric.TopKAccuracy(2) }
    assert.equal(1, #top.train_metrics)
    assert.equal("training top_k_accuracy_2", (top.train_metrics[1]:get()))
    local mean = make{ [2] = gluon.loss.L2Loss() }
    assert.equal("training l2loss", (mean.train_metrics[1]:get()))
  end)

  it("initializes a network and makes a trainer where there is none", function()
    local net = gluon.nn.Dense(2)
    local e = estimator.Estimator{ net, gluon.loss.SoftmaxCELoss(), initializer = ty.init.One(),
      context = ty.cpu() }
    assert.equal(0.001, e.trainer.learning_rate)
    e:fit{ loader(8, 4), epochs = 1 }
    assert.shape({ 2, 4 }, net.weight:data())
    assert.is_true(has_line("no trainer"))
    estimator.Estimator{ net, gluon.loss.SoftmaxCELoss(), initializer = ty.init.One(),
      trainer = e.trainer, context = ty.cpu() }
    assert.is_true(has_line("initialized already"))
  end)

  it("runs batches as its batch processor says", function()
    local Twice = estimator.BatchProcessor:extend("Twice")
    function Twice:fit_batch(e, batch, axis)
      self.n = (self.n or 0) + 1
      return Twice.super.fit_batch(self, e, batch, axis)
    end
    local processor = Twice()
    local e = make{ batch_processor = processor }
    e:fit{ loader(8, 4), epochs = 2 }
    assert.equal(4, processor.n)
  end)

  it("evaluates another network and loss", function()
    local other = network()
    local e = make{ val_net = other, val_loss = gluon.loss.SoftmaxCELoss{ weight = 2 } }
    e:evaluate(loader(8, 4))
    local single = make{ net = network() }
    single:evaluate(loader(8, 4))
    assert.near(2 * value(single.val_metrics[2]), value(e.val_metrics[2]), 1e-6)
  end)

  it("trains where the network is, if no devices are given", function()
    local list = { ty.cpu(1), ty.cpu(2) }
    local net = gluon.nn.Dense(2)                        -- gets its arrays at the first forward
    net:initialize{ ctx = list }
    local e = estimator.Estimator{ net, gluon.loss.SoftmaxCELoss(),
      trainer = gluon.Trainer(net:collect_params(), "sgd", { learning_rate = 0.2 }) }
    assert.same(list, e.context)
    e:fit{ loader(8, 4), epochs = 1 }
    assert.shape({ 2, 4 }, net.weight:data(ty.cpu(2)))
  end)

  it("trains on several devices", function()
    local net = gluon.nn.HybridSequential{ gluon.nn.Dense{ 6, "tanh", in_units = 4 },
      gluon.nn.Dense{ 2, in_units = 6 } }
    net:initialize{ ctx = { ty.cpu(0), ty.cpu(1) } }
    support.fill(net)
    local e = estimator.Estimator{ net, gluon.loss.SoftmaxCELoss(),
      trainer = gluon.Trainer(net:collect_params(), "sgd", { learning_rate = 0.2 }),
      context = { ty.cpu(0), ty.cpu(1) } }
    e:fit{ loader(8, 4), epochs = 2 }
    local one, alone = make()
    one:fit{ loader(8, 4), epochs = 2 }
    assert.near(alone[1].weight:data(), net[1].weight:data(ty.cpu(1)):as_in_context(ty.cpu(0)),
      1e-6)
  end)
end)


describe("lines", function()
  it("log the beginning, each epoch with its values, and the end", function()
    local e = make()
    e:fit{ loader(12, 4), loader(4, 4), epochs = 2 }
    assert.is_true(has_line("^Training begin: using optimizer SGD.*0%.2000"))
    assert.is_true(has_line("^Train for 2 epochs%.$"))
    assert.is_true(has_line("^%[Epoch 1%] Begin, current learning rate: 0%.2000$"))
    assert.is_true(has_line("^%[Epoch 0%] Finished in [%d.]+s, training accuracy: [%d.]+, \z
      training softmax.*: [%d.]+, %d+ samples/s$"))
    assert.is_true(has_line("^Validation Begin$"))
    assert.is_true(has_line("^Validation Finished in [%d.]+s, validation acc.*, %d+ samples/s$"))
    assert.is_true(has_line("^Train finished using total [%d.]+s with 2 epochs%. training acc"))
  end)

  it("come after every so many batches", function()
    local e = make()
    e:fit{ loader(20, 4), epochs = 1, event_handlers = {
      estimator.LoggingHandler{ log_interval = 2, metrics = e.train_metrics } } }
    local n = 0
    for _, text in ipairs(lines) do
      n = n + (text:find("^%[Epoch 0%]%[Batch [024]%]%[Samples %d+%] time/interval: \z
        [%d.]+s training accuracy: [%d.]+, .*, %d+ samples/s$") and 1 or 0)
    end
    assert.equal(3, n)
    assert.raises("value", estimator.LoggingHandler, "batch")
    assert.raises("value", estimator.LoggingHandler, 0)
  end)

  it("go to the estimator's logger", function()
    local e = make()
    local texts = {}
    e.logger = { info = function(_, text) texts[#texts + 1] = text end }
    e:fit{ loader(4, 4), epochs = 1 }
    assert.is_true(#texts >= 4)
    assert.equal(0, #lines)
  end)

  it("show how far a long epoch is, on a line that is overwritten", function()
    local handlers = require "tycho.gluon.contrib.estimator.handlers"
    local clock, now = handlers.clock, 0
    handlers.clock = function()
      now = now + 1
      return now
    end
    local e = make()
    e:fit{ loader(16, 4), epochs = 1 }
    handlers.clock = clock
    assert.is_true(has_line("^%[Epoch 0%] =+%-+ 2/4, %d+s left, %d+ samples/s, .*\r$"))
  end)
end)


describe("EarlyStoppingHandler", function()
  -- Returns a metric that returns one value after the other.
  local function make_metric(list, name)
    local m = ty.metric.EvalMetric{ name or "validation loss" }
    local at = 0
    function m:get()
      at = at + 1
      return self.name, list[at]
    end
    return m
  end

  local function count_epochs(list, o, name)
    local h = estimator.EarlyStoppingHandler{ make_metric(list, name), min_delta = o.min_delta,
      patience = o.patience, mode = o.mode, baseline = o.baseline }
    h:train_begin()
    for i = 1, #list - 1 do
      if h:epoch_end() then return i, h end
    end
    return nil, h
  end

  it("stops when nothing improves for `patience` epochs", function()
    -- the first value is read for the mode
    assert.equal(3, (count_epochs({ 0, 3, 2, 2, 1, 0 }, {})))
    assert.equal(4, (count_epochs({ 0, 3, 2, 2, 2, 1, 0 }, { patience = 2 })))
    assert.is_nil((count_epochs({ 0, 3, 2, 2, 1, 0 }, { patience = 2 })))
    assert.equal(2, (count_epochs({ 0, 3, 2.9, 1 }, { min_delta = 0.5 })))
    assert.equal(1, (count_epochs({ 0, 3, 2, 1 }, { baseline = 2.5 })))
  end)

  it("takes accuracies as growing, losses as shrinking, or as the option says", function()
    assert.is_nil((count_epochs({ 0, 0.1, 0.2, 0.3 }, {}, "validation accuracy")))
    assert.equal(2, (count_epochs({ 0, 0.3, 0.2, 0.1 }, {}, "validation accuracy")))
    assert.is_nil((count_epochs({ 1, 2, 3 }, { mode = "max" })))
    assert.equal(2, (count_epochs({ 1, 2, 3 }, { mode = "min" })))
  end)

  it("says why training ended, and refuses what is no metric", function()
    local _, h = count_epochs({ 0, 3, 3 }, {})
    h.monitor.get = function() return "validation loss", 3 end
    h:train_end{ logger = ty.log }
    assert.is_true(has_line("validation loss does not improve"))
    assert.raises("value", estimator.EarlyStoppingHandler, 3)
    assert.raises("value", estimator.EarlyStoppingHandler, ty.metric.CompositeEvalMetric())
  end)
end)


describe("ValidationHandler", function()
  it("evaluates after epochs or batches", function()
    local e = make()
    local calls = 0
    local function count(o)
      assert.equal("held out", o.val_data)
      calls = calls + 1
    end
    local data = loader(12, 4)
    e:fit{ data, epochs = 2, event_handlers = { estimator.ValidationHandler("held out", count) } }
    assert.equal(2, calls)
    calls = 0
    e:fit{ data, epochs = 2, event_handlers = { estimator.ValidationHandler{ "held out", count,
      epoch_period = ty.null, batch_period = 4 } } }
    assert.equal(1, calls)
  end)
end)


describe("CheckpointHandler", function()
  local folder

  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
  end)
  after_each(function() os.execute("rm -rf " .. folder) end)

  local function exists(name)
    local file = io.open(folder .. "/" .. name, "rb")
    return file and file:close() or false
  end

  it("saves after epochs, keeps the newest, and the graph", function()
    local e, net = make()
    net:hybridize()
    e:fit{ loader(8, 4), epochs = 4, event_handlers = {
      estimator.CheckpointHandler{ folder .. "/", "m", max_checkpoints = 2, verbose = 1 } } }
    assert.is_false(exists("m-epoch1batch4.params"))
    assert.is_true(exists("m-epoch2batch6.params") and exists("m-epoch3batch8.states"))
    assert.is_true(exists("m-symbol.json"))
    assert.is_true(has_line("CheckpointHandler: trained total 9 batches"))
    local other = network()
    other:load_parameters(folder .. "/m-epoch3batch8.params")
    assert.near(net[1].weight:data(), other[1].weight:data())
  end)

  it("saves after batches, and the best by a metric", function()
    local e = make()
    e:fit{ loader(32, 4), epochs = 3, event_handlers = { estimator.CheckpointHandler{ folder,
      monitor = e.train_metrics[2], save_best = true, epoch_period = ty.null, batch_period = 8 } } }
    assert.is_true(exists("model-epoch0batch7.params") and exists("model-epoch2batch23.params"))
    assert.is_true(exists("model-best.params"))
    assert.raises("value", estimator.CheckpointHandler, { folder, save_best = true })
  end)

  it("goes on from the newest one", function()
    local function train(epochs, resume)
      local e, net = make()
      e:fit{ loader(8, 4), epochs = epochs, event_handlers = { estimator.CheckpointHandler{ folder,
        resume_from_checkpoint = resume } } }
      return net
    end
    train(2, false)
    local resumed = train(4, true)
    assert.is_true(exists("model-epoch3batch8.params"))
    os.execute("rm -rf " .. folder)
    local whole = train(4, false)
    assert.near(whole[1].weight:data(), resumed[1].weight:data(), 1e-6)
    assert.raises("value", train, 4, true)
  end)
end)
