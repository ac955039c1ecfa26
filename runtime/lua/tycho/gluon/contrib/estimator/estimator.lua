--- A training loop of gluon networks as an object.
--
-- @module tycho.gluon.contrib.estimator.estimator

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local Block = require "tycho.gluon.block"
local BatchProcessor = require "tycho.gluon.contrib.estimator.batch_processor"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local handlers = require "tycho.gluon.contrib.estimator.handlers"
local log = require "tycho.core.log"
local loss = require "tycho.gluon.loss"
local metric = require "tycho.metric"
local Trainer = require "tycho.gluon.trainer"
local values = require "tycho.core.values"

--- A network with its loss, trainer and metrics, and the loop that trains it. Fields: net, loss,
-- trainer, context (list of devices), logger (`ty.log`), train_metrics, val_metrics, val_net,
-- val_loss, max_epoch, max_batch.
-- @type Estimator
local Estimator = Class:extend("Estimator")


-- Making ------------------------------------------------------------------------------------------

-- Returns a copy of a metric without its sums.
local function copy_metric(m)
  local function copy(t)
    local new = {}
    for key, value in pairs(t) do
      new[key] = values.is_plain(value) and copy(value) or value
    end
    return new
  end
  local new = setmetatable(copy(m), getmetatable(m))
  new:reset()
  return new
end


-- Returns the metrics of training: the given ones, or accuracy if the loss is one of classes; and
-- the loss.
local function train_metrics(given, l)
  local list = handlers.metric_list(given, "estimator.Estimator", "train_metrics")
  if #list == 0 then
    if Class.is_a(l, loss.SoftmaxCrossEntropyLoss) then
      list[1] = metric.Accuracy()
    end
    list[#list + 1] = metric.Loss{ name = (l.name:gsub("%d+$", "")) }
  end
  for _, m in ipairs(list) do
    m.name = "training " .. m.name
  end
  return list
end


local function val_metrics(given, training)
  local list = handlers.metric_list(given, "estimator.Estimator", "val_metrics")
  if #list == 0 then
    for i, m in ipairs(training) do
      list[i] = copy_metric(m)
    end
  end
  for _, m in ipairs(list) do
    local name, replaced = m.name:gsub("training", "validation")
    m.name = replaced > 0 and name or "validation " .. m.name
  end
  return list
end


local function check_net(net, argument)
  if not Class.is_a(net, Block) then
    Error.raise{ code = "value", func = "estimator.Estimator", argument = argument,
      expected = "a gluon.Block", got = Error.kind(net), message = ("bad '%s'"):format(argument) }
  end
  return net
end


local function check_loss(l, argument)
  if not Class.is_a(l, loss.Loss) then
    Error.raise{ code = "value", func = "estimator.Estimator", argument = argument,
      expected = "a gluon.loss.Loss", got = Error.kind(l), message = ("bad '%s'"):format(argument) }
  end
  return l
end


-- Returns whether all parameters of a network have arrays or get them at the first forward.
local function is_initialized(net)
  for _, p in ipairs(net:collect_params():values()) do
    local ok, e = pcall(p.list_ctx, p)
    if not ok then
      if Error.is_error(e) and e.code == "state" then
        return false
      end
      error(e, 0)
    end
  end
  return true
end


-- Returns the given devices, or those of the network's parameters; if it has none yet, the first
-- GPU or else the CPU.
local function context_list(given, net)
  if given == nil then
    local own = is_initialized(net) and net:collect_params():list_ctx() or {}
    return own[1] and own or { context.num_gpus() > 0 and context.gpu(0) or context.cpu() }
  end
  local list = values.is_plain(given) and given or { given }
  for _, ctx in ipairs(list) do
    if not Class.is_a(ctx, context.Context) then
      Error.raise{ code = "value", func = "estimator.Estimator", argument = "context",
        expected = "a context or a list of contexts", got = Error.kind(ctx),
        message = "bad 'context'" }
    end
  end
  return list
end


local function check_trainer(trainer, net)
  if trainer == nil then
    log:warning("Estimator: no trainer is given; sgd with learning rate 0.001 is taken")
    return Trainer(net:collect_params(), "sgd", { learning_rate = 0.001 })
  elseif not Class.is_a(trainer, Trainer) then
    Error.raise{ code = "value", func = "estimator.Estimator", argument = "trainer",
      expected = "a gluon.Trainer", got = Error.kind(trainer), message = "bad 'trainer'" }
  end
  return trainer
end


local function check_processor(processor)
  if processor == nil then
    return BatchProcessor()
  elseif type(processor) ~= "table" or not (processor.fit_batch and processor.evaluate_batch) then
    Error.raise{ code = "value", func = "estimator.Estimator", argument = "batch_processor",
      expected = "an object with fit_batch and evaluate_batch", got = Error.kind(processor),
      message = "bad 'batch_processor'" }
  end
  return processor
end


local FORM = args.form("estimator.Estimator", {
  { "net", "any" }, { "loss", "any" }, { "train_metrics", "any?" }, { "val_metrics", "any?" },
  { "initializer", "any?" }, { "trainer", "any?" }, { "context", "any?" }, { "val_net", "any?" },
  { "val_loss", "any?" }, { "batch_processor", "any?" },
})

--- @tparam Block net another value is E(`value`), as for other arguments of a wrong class
-- @tparam Loss loss
-- @param[opt] train_metrics a metric or a list; by default accuracy, for a loss of classes, and the
--   loss
-- @param[opt] val_metrics a metric or a list; default: copies of train_metrics
-- @param[opt] initializer for a network that is not initialized
-- @tparam[opt] Trainer trainer by default sgd with learning rate 0.001, with a warning
-- @param[opt] context a device or a list of devices; default: those of the network's parameters or,
--   if it has none yet, the first GPU or else the CPU
-- @tparam[opt] Block val_net net of the validation; net by default
-- @tparam[opt] Loss val_loss loss of the validation; loss by default
-- @param[opt] batch_processor an object with fit_batch and evaluate_batch; a BatchProcessor by
--   default
function Estimator:init(...)
  local a = FORM(...)
  self.net, self.loss = check_net(a.net, "net"), check_loss(a.loss, "loss")
  self.train_metrics = train_metrics(a.train_metrics, a.loss)
  self.val_metrics = val_metrics(a.val_metrics, self.train_metrics)
  self.val_net = a.val_net and check_net(a.val_net, "val_net") or a.net
  self.val_loss = a.val_loss and check_loss(a.val_loss, "val_loss") or a.loss
  self.logger, self.context, self.batch_axis = log, context_list(a.context, a.net), 0
  if not is_initialized(a.net) then
    a.net:initialize{ init = a.initializer, ctx = self.context }
  elseif a.initializer then
    log:warning("Estimator: the network is initialized already, so initializer is unused; "
      .. "net:initialize{init = ..., force_reinit = true} initializes it anew")
  end
  self.trainer = check_trainer(a.trainer, a.net)
  self.batch_processor = check_processor(a.batch_processor)
end


-- Handlers ----------------------------------------------------------------------------------------

local EVENTS = { "train_begin", "epoch_begin", "batch_begin", "batch_end", "epoch_end",
  "train_end" }

-- Returns whether a value has one of the methods of handlers.
local function is_handler(h)
  if type(h) == "table" then
    for _, event in ipairs(EVENTS) do
      if h[event] ~= nil then
        return true
      end
    end
  end
  return false
end


-- Returns the handlers that were given as a new list.
local function handler_list(given, func)
  if given == nil then
    return {}
  end
  local list = {}
  for i, h in ipairs(is_handler(given) and { given } or given) do
    if not is_handler(h) then
      Error.raise{ code = "value", func = func, argument = "event_handlers", got = Error.kind(h),
        expected = "objects with methods such as batch_end", message = "bad 'event_handlers'" }
    end
    list[i] = h
  end
  return list
end


local function has_kind(list, kind)
  for _, h in ipairs(list) do
    if Class.is_a(h, kind) then
      return true
    end
  end
  return false
end


-- Raises an error for a handler of metrics that training never updates.
local function check_metrics(list, known)
  local is_known = {}
  for _, m in ipairs(known) do
    is_known[m] = true
  end
  for _, h in ipairs(list) do
    for _, m in ipairs(type(h.metrics) == "table" and h.metrics or {}) do
      if Class.is_a(m, metric.EvalMetric) and not is_known[m] then
        Error.raise{ code = "value", func = "estimator.Estimator", argument = "event_handlers",
          got = tostring(m), expected = "metrics of train_metrics and val_metrics",
          message = "an event handler has a metric that the estimator does not know" }
      end
    end
  end
end


-- Sorts handlers by priority; those of equal priority keep their order.
local function sort_handlers(list)
  local position = {}
  for i, h in ipairs(list) do
    position[h] = i
  end
  table.sort(list, function(a, b)
    local p, q = a.priority or 0, b.priority or 0
    return p < q or p == q and position[a] < position[b]
  end)
  return list
end


local function fit_handlers(self, val_data, given)
  local list = handler_list(given, "Estimator:fit")
  local own = #list
  local function add(kind, handler)
    if not has_kind(list, handlers[kind]) then
      list[#list + 1] = handler
    end
  end
  list[#list + 1] = handlers.StoppingHandler(self.max_epoch, self.max_batch)
  add("GradientUpdateHandler", handlers.GradientUpdateHandler())
  add("MetricHandler", handlers.MetricHandler{ metrics = self.train_metrics })
  if val_data then
    add("ValidationHandler", handlers.ValidationHandler{ val_data, function(options)
      self:evaluate(options)
    end })
  end
  add("LoggingHandler", handlers.LoggingHandler{ metrics = self.train_metrics })
  if own > 0 then
    local known = { unpack(self.train_metrics) }
    for _, m in ipairs(self.val_metrics) do
      known[#known + 1] = m
    end
    check_metrics(list, known)
  end
  return sort_handlers(list)
end


local function evaluate_handlers(self, given)
  local list = handler_list(given, "Estimator:evaluate")
  local own = #list
  if not has_kind(list, handlers.MetricHandler) then
    list[#list + 1] = handlers.MetricHandler{ metrics = self.val_metrics }
  end
  if not has_kind(list, handlers.LoggingHandler) then
    list[#list + 1] = handlers.LoggingHandler{ metrics = self.val_metrics }
  end
  if own > 0 then
    check_metrics(list, self.val_metrics)
  end
  return sort_handlers(list)
end


-- Calls all handlers of an event; returns whether one of them asks to stop.
local function notify_handlers(self, list, event, info)
  local stop = false
  for _, h in ipairs(list) do
    if h[event] ~= nil then
      stop = h[event](h, self, info or {}) == true or stop
    end
  end
  return stop
end


-- Loops -------------------------------------------------------------------------------------------

local function check_loader(data, func, argument)
  if type(data) ~= "table" or type(data.iter) ~= "function" then
    Error.raise{ code = "value", func = func, argument = argument,
      expected = "a gluon.data.DataLoader", got = Error.kind(data),
      message = ("bad '%s'"):format(argument) }
  end
end


-- Returns the fields of a batch as a list; nil if there is no batch.
local function pack_fields(...)
  if (...) ~= nil then
    return { ... }
  end
end


-- Returns the number of batches in an epoch; nil if the loader has none.
local function count_batches(loader)
  return loader.len and loader:len() or nil
end


-- Runs one epoch over a loader with a method of the batch processor.
local function run_batches(self, loader, list, method, batch_axis)
  local process, step = self.batch_processor[method], loader:iter()
  local batch = pack_fields(step())
  while batch do
    notify_handlers(self, list, "batch_begin", { batch = batch })
    local _, label, pred, l = process(self.batch_processor, self, batch, batch_axis)
    local stop = notify_handlers(self, list, "batch_end",
      { batch = batch, pred = pred, label = label, loss = l })
    batch = not stop and pack_fields(step()) or nil
  end
end


local EVALUATE = args.form("Estimator:evaluate", { { "val_data", "any" },
  { "batch_axis", "integer", 0 }, { "event_handlers", "any?" } })

--- Runs val_net over data and updates val_metrics.
-- @param val_data DataLoader of data and labels
-- @int[opt=0] batch_axis
-- @tparam[opt] table event_handlers
function Estimator:evaluate(...)
  local a = EVALUATE(...)
  check_loader(a.val_data, "Estimator:evaluate", "val_data")
  for _, m in ipairs(self.val_metrics) do
    m:reset()
  end
  local list, outer = evaluate_handlers(self, a.event_handlers), self.batches_per_epoch
  self.batches_per_epoch = count_batches(a.val_data)
  notify_handlers(self, list, "epoch_begin")
  run_batches(self, a.val_data, list, "evaluate_batch", a.batch_axis)
  notify_handlers(self, list, "epoch_end")
  self.batches_per_epoch = outer
end


local FIT = args.form("Estimator:fit", {
  { "train_data", "any" }, { "val_data", "any?" }, { "epochs", "integer?" },
  { "event_handlers", "any?" }, { "batches", "integer?" }, { "batch_axis", "integer", 0 },
})

--- Trains for a number of epochs or of batches; exactly one of the two is given.
-- @param train_data DataLoader of data and labels
-- @param[opt] val_data DataLoader that is evaluated after each epoch
-- @int[opt] epochs
-- @tparam[opt] table event_handlers
-- @int[opt] batches
-- @int[opt=0] batch_axis
function Estimator:fit(...)
  local a = FIT(...)
  check_loader(a.train_data, "Estimator:fit", "train_data")
  local epochs, batches = a.epochs ~= 0 and a.epochs or nil, a.batches ~= 0 and a.batches or nil
  if (epochs == nil) == (batches == nil) then
    Error.raise{ code = "value", func = "Estimator:fit", argument = "epochs",
      expected = "exactly one of epochs and batches", got = epochs and "both" or "neither",
      message = "training ends after a number of epochs or of batches" }
  end
  self.max_epoch, self.max_batch, self.batch_axis = epochs, batches, a.batch_axis
  self.batches_per_epoch = count_batches(a.train_data)
  local list = fit_handlers(self, a.val_data, a.event_handlers)
  notify_handlers(self, list, "train_begin")
  repeat
    notify_handlers(self, list, "epoch_begin")
    run_batches(self, a.train_data, list, "fit_batch", a.batch_axis)
  until notify_handlers(self, list, "epoch_end")
  notify_handlers(self, list, "train_end")
end


return Estimator
