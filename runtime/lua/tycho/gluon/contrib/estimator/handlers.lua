--- Event handlers of estimators.
--
-- A handler is any object with some of the methods `train_begin`, `epoch_begin`, `batch_begin`,
-- `batch_end`, `epoch_end`, `train_end`. They are called with (estimator, { batch, pred, label,
-- loss }). If `batch_end` returns true, the epoch ends; if `epoch_end` does, training ends.
-- Handlers with a smaller field `priority` (default 0) are called first.
--
-- @module tycho.gluon.contrib.estimator.handlers

local args = require "tycho.core.args"
local C = require("tycho.core.ffi").C
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local metric = require "tycho.metric"
local values = require "tycho.core.values"

local handlers = {}


--- Returns the seconds since a fixed moment. Tests may replace the function.
-- @treturn number
function handlers.clock()
  return tonumber(C.ty_profile_now()) * 1e-9
end


local INFINITY = math.huge


--- Returns a list of metrics, from a metric, a list, or a composite metric, which is split into its
-- parts.
-- @param given
-- @string func
-- @string argument
-- @treturn table
function handlers.metric_list(given, func, argument)
  local list = {}
  local function add(m)
    if Class.is_a(m, metric.CompositeEvalMetric) then
      for _, part in ipairs(m.metrics) do
        add(part)
      end
    elseif Class.is_a(m, metric.EvalMetric) then
      list[#list + 1] = m
    else
      Error.raise{ code = "value", func = func, argument = argument, got = Error.kind(m),
        expected = "a metric or a list of metrics", message = ("bad '%s'"):format(argument) }
    end
  end
  if given ~= nil then
    for _, m in ipairs(values.is_plain(given) and given or { given }) do
      add(m)
    end
  end
  return list
end


-- Returns the metrics as text: "training accuracy: 0.9310, training loss: 0.2101".
local function values_text(metrics)
  local parts = {}
  for _, m in ipairs(metrics) do
    for _, pair in ipairs(m:get_name_value()) do
      parts[#parts + 1] = ("%s: %.4f"):format(pair[1], pair[2])
    end
  end
  return table.concat(parts, ", ")
end


-- Stopping ----------------------------------------------------------------------------------------

--- Stops after a number of epochs or batches. `fit` adds one for its options.
-- @type StoppingHandler
local StoppingHandler = Class:extend("StoppingHandler")
handlers.StoppingHandler = StoppingHandler

local STOPPING = args.form("estimator.StoppingHandler",
  { { "max_epoch", "integer?" }, { "max_batch", "integer?" } })

--- @int[opt] max_epoch
-- @int[opt] max_batch
function StoppingHandler:init(...)
  local a = STOPPING(...)
  self.max_epoch, self.max_batch = a.max_epoch, a.max_batch
  self.current_batch, self.current_epoch, self.stop_training = 0, 0, false
end


function StoppingHandler:train_begin(estimator)
  self.max_epoch, self.max_batch = estimator.max_epoch, estimator.max_batch
  self.current_batch, self.current_epoch, self.stop_training = 0, 0, false
end


function StoppingHandler:batch_end()
  self.current_batch = self.current_batch + 1
  self.stop_training = self.stop_training or self.current_batch == self.max_batch
  return self.stop_training
end


function StoppingHandler:epoch_end()
  self.current_epoch = self.current_epoch + 1
  self.stop_training = self.stop_training or self.current_epoch == self.max_epoch
  return self.stop_training
end


-- Metrics -----------------------------------------------------------------------------------------

--- Resets metrics at the start of an epoch and updates them after each batch.
-- @type MetricHandler
local MetricHandler = Class:extend("MetricHandler")
handlers.MetricHandler = MetricHandler

local METRIC = args.form("estimator.MetricHandler",
  { { "metrics", "any" }, { "priority", "number", -1000 } })

--- @param metrics a metric or a list
-- @number[opt=-1000] priority
function MetricHandler:init(metrics, ...)
  local a = values.is_plain(metrics) and metrics[1] == nil and METRIC(metrics)
    or METRIC{ metrics = metrics, priority = (...) }
  self.metrics = handlers.metric_list(a.metrics, "estimator.MetricHandler", "metrics")
  self.priority = a.priority
end


function MetricHandler:epoch_begin()
  for _, m in ipairs(self.metrics) do
    m:reset()
  end
end


function MetricHandler:batch_end(_, event)
  for _, m in ipairs(self.metrics) do
    if Class.is_a(m, metric.Loss) then
      m:update(nil, event.loss)
    else
      m:update(event.label, event.pred)
    end
  end
end


--- Evaluates after every number of epochs or batches.
-- @type ValidationHandler
local ValidationHandler = Class:extend("ValidationHandler")
handlers.ValidationHandler = ValidationHandler

local VALIDATION = args.form("estimator.ValidationHandler", {
  { "val_data", "any" }, { "eval_fn", "function" }, { "epoch_period", "integer|null", 1 },
  { "batch_period", "integer?" }, { "priority", "number", -1000 }, { "event_handlers", "any?" },
})

--- @param val_data
-- @func eval_fn called as `eval_fn{val_data =, batch_axis =, event_handlers =}`: an estimator's
--   evaluate
-- @int[opt=1] epoch_period number of epochs between two evaluations; `ty.null`: none after epochs
-- @int[opt] batch_period
-- @number[opt=-1000] priority
-- @tparam[opt] table event_handlers
function ValidationHandler:init(...)
  local a = VALIDATION(...)
  self.val_data, self.eval_fn, self.event_handlers = a.val_data, a.eval_fn, a.event_handlers
  self.epoch_period, self.batch_period = values.value(a.epoch_period), a.batch_period
  self.priority, self.current_batch, self.current_epoch = a.priority, 0, 0
end


function ValidationHandler:train_begin()
  self.current_batch, self.current_epoch = 0, 0
end


local function run_evaluation(self, estimator)
  self.eval_fn{ val_data = self.val_data, batch_axis = estimator.batch_axis,
    event_handlers = self.event_handlers }
end


function ValidationHandler:batch_end(estimator)
  self.current_batch = self.current_batch + 1
  if self.batch_period and self.current_batch % self.batch_period == 0 then
    run_evaluation(self, estimator)
  end
end


function ValidationHandler:epoch_end(estimator)
  self.current_epoch = self.current_epoch + 1
  if self.epoch_period and self.current_epoch % self.epoch_period == 0 then
    run_evaluation(self, estimator)
  end
end


--- Calls the trainer's step after each batch.
-- @type GradientUpdateHandler
local GradientUpdateHandler = Class:extend("GradientUpdateHandler")
handlers.GradientUpdateHandler = GradientUpdateHandler

local UPDATE = args.form("estimator.GradientUpdateHandler", { { "priority", "number", -2000 } })

--- @number[opt=-2000] priority
function GradientUpdateHandler:init(...)
  self.priority = UPDATE(...).priority
end


function GradientUpdateHandler:batch_end(estimator, event)
  local batch_size = 0
  for _, l in ipairs(values.is_plain(event.loss) and event.loss or { event.loss }) do
    batch_size = batch_size + l.shape[1]
  end
  estimator.trainer:step(batch_size)
end


-- Logs --------------------------------------------------------------------------------------------

--- Logs the start and the end of training, each epoch, and, with `log_interval = n`, every n
-- batches. On a terminal a line that is overwritten shows the progress of the epoch.
-- @type LoggingHandler
local LoggingHandler = Class:extend("LoggingHandler")
handlers.LoggingHandler = LoggingHandler

local LOGGING = args.form("estimator.LoggingHandler", { { "log_interval", "any", "epoch" },
  { "metrics", "any?" }, { "priority", "number", INFINITY } })

local FLEETING_SECONDS = 0.2                             -- between two live lines
local BAR = 24                                           -- characters of the bar

--- @param[opt="epoch"] log_interval "epoch" or a number of batches
-- @param[opt] metrics a metric or a list
-- @number[opt] priority last
function LoggingHandler:init(...)
  local a = LOGGING(...)
  local n = a.log_interval
  if n ~= "epoch" and not (type(n) == "number" and n >= 1 and n == math.floor(n)) then
    Error.raise{ code = "value", func = "estimator.LoggingHandler", argument = "log_interval",
      got = Error.kind(n), expected = "'epoch' or a number of batches",
      message = "bad 'log_interval'" }
  end
  self.metrics = handlers.metric_list(a.metrics, "estimator.LoggingHandler", "metrics")
  self.priority, self.log_interval = a.priority, n
  self:_restart()
end


function LoggingHandler:_restart()
  self.current_epoch, self.batch_index, self.processed_samples = 0, 0, 0
  self._interval_time, self._interval_samples, self._epoch_samples, self._shown = 0, 0, 0, 0
end


function LoggingHandler:train_begin(estimator)
  self:_restart()
  self._train_start = handlers.clock()
  local trainer = estimator.trainer
  estimator.logger:info(("Training begin: using optimizer %s with current learning rate %.4f")
    :format(trainer.optimizer.class_name, trainer.learning_rate))
  estimator.logger:info(estimator.max_epoch
    and ("Train for %d epochs."):format(estimator.max_epoch)
    or ("Train for %d batches."):format(estimator.max_batch))
end


-- Returns a line of text followed by the metrics.
local function with_values(text, metrics)
  local shown = values_text(metrics)
  return shown == "" and text or text .. ", " .. shown
end


local function speed_text(samples, seconds)
  return seconds > 0 and (", %.0f samples/s"):format(samples / seconds) or ""
end


function LoggingHandler:train_end(estimator)
  estimator.logger:info(("Train finished using total %.1fs with %d epochs. %s"):format(
    handlers.clock() - self._train_start, self.current_epoch, values_text(self.metrics)))
end


-- Returns whether the metrics are those of training; validation logs no learning rate.
local function is_training(self)
  for _, m in ipairs(self.metrics) do
    if tostring(m.name):find("training", 1, true) then
      return true
    end
  end
  return false
end


-- Returns the start of the line of an epoch.
local function format_subject(self)
  return is_training(self) and ("[Epoch %d]"):format(self.current_epoch) or "Validation"
end


function LoggingHandler:epoch_begin(estimator)
  self._epoch_start, self._epoch_samples, self.batch_index = handlers.clock(), 0, 0
  self._interval_time, self._interval_samples = 0, 0
  self._shown, self._last_batch = self._epoch_start, self._epoch_start
  estimator.logger:info(is_training(self)
    and ("%s Begin, current learning rate: %.4f"):format(format_subject(self),
      estimator.trainer.learning_rate) or "Validation Begin")
end


function LoggingHandler:batch_begin()
  self._batch_start = handlers.clock()
end


-- Shows the progress of the epoch on a line that the next one overwrites.
local function show_progress(self, estimator, now)
  local total = estimator.batches_per_epoch
  if estimator.logger ~= log or now - self._shown < FLEETING_SECONDS or not log:overwrites() then
    return
  end
  self._shown = now
  local seconds, done = now - self._epoch_start, self.batch_index + 1
  local text = ("%s %d"):format(format_subject(self), done)
  if total and total > 0 then
    local part = math.min(1, done / total)
    local filled = math.floor(BAR * part)
    text = ("%s %s%s %d/%d, %.0fs left"):format(format_subject(self), ("="):rep(filled),
      ("-"):rep(BAR - filled), done, total, seconds / part - seconds)
  end
  log:info(with_values(text .. speed_text(self._epoch_samples, seconds), self.metrics) .. "\r")
end


function LoggingHandler:batch_end(estimator, event)
  local now = handlers.clock()
  local samples = event.batch[1]:len()
  self._last_batch = now
  self.processed_samples = self.processed_samples + samples
  self._epoch_samples = self._epoch_samples + samples
  self._interval_samples = self._interval_samples + samples
  self._interval_time = self._interval_time + now - (self._batch_start or now)
  if self.log_interval ~= "epoch" and self.batch_index % self.log_interval == 0 then
    local text = ("[Epoch %d][Batch %d][Samples %d] time/interval: %.3fs"):format(
      self.current_epoch, self.batch_index, self.processed_samples, self._interval_time)
    local shown = values_text(self.metrics)
    estimator.logger:info(text .. (shown == "" and "" or " " .. shown)
      .. speed_text(self._interval_samples, self._interval_time))
    self._interval_time, self._interval_samples, self._shown = 0, 0, now
  else
    show_progress(self, estimator, now)
  end
  self.batch_index = self.batch_index + 1
end


function LoggingHandler:epoch_end(estimator)
  local seconds = self._last_batch - self._epoch_start
  local text = ("%s Finished in %.3fs"):format(format_subject(self), seconds)
  text = with_values(text, self.metrics)
  estimator.logger:info(text .. speed_text(self._epoch_samples, seconds))
  self.current_epoch, self.batch_index = self.current_epoch + 1, 0
end


-- Improvement -------------------------------------------------------------------------------------

--- Returns whether larger values of a metric are better. mode: "max", "min", or "auto", which
-- decides by the metric's name: larger accuracy, F1 and correlations, smaller losses and errors are
-- better.
-- @param monitor a metric
-- @string mode
-- @string func
-- @treturn bool
function handlers.grows(monitor, mode, func)
  if mode == "max" or mode == "min" then
    return mode == "max"
  elseif mode ~= "auto" then
    log:warning(("%s: unknown mode '%s'; 'auto' is taken"):format(func, tostring(mode)))
  end
  local name = tostring((monitor:get())):lower()
  for _, word in ipairs{ "acc", "f1", "mcc", "pearson" } do
    if name:find(word, 1, true) then
      return true
    end
  end
  return false
end


--- Raises an error unless a monitor is a single metric, not a composite.
-- @param monitor
-- @string func
function handlers.check_monitor(monitor, func)
  if not Class.is_a(monitor, metric.EvalMetric)
      or Class.is_a(monitor, metric.CompositeEvalMetric) then
    Error.raise{ code = "value", func = func, argument = "monitor", got = Error.kind(monitor),
      expected = "a metric of the estimator's train_metrics or val_metrics",
      message = "bad 'monitor'" }
  end
end


--- Stops if a metric has not improved for `patience` epochs.
-- @type EarlyStoppingHandler
local EarlyStoppingHandler = Class:extend("EarlyStoppingHandler")
handlers.EarlyStoppingHandler = EarlyStoppingHandler

local EARLY = args.form("estimator.EarlyStoppingHandler", {
  { "monitor", "any" }, { "min_delta", "number", 0 }, { "patience", "integer", 0 },
  { "mode", "text", "auto" }, { "baseline", "number?" },
})

--- @param monitor a metric of the estimator
-- @number[opt=0] min_delta smallest change that counts as an improvement
-- @int[opt=0] patience epochs without improvement after which it stops
-- @string[opt="auto"] mode whether smaller or larger values are better: "min", "max", "auto"
-- @number[opt] baseline value that the first improvement must exceed
function EarlyStoppingHandler:init(...)
  local a, func = EARLY(...), "estimator.EarlyStoppingHandler"
  handlers.check_monitor(a.monitor, func)
  self.monitor, self.baseline, self.patience = a.monitor, a.baseline, a.patience
  self.min_delta, self._grows = a.min_delta, handlers.grows(a.monitor, a.mode, func)
  self:train_begin()
end


function EarlyStoppingHandler:train_begin()
  self.wait, self.stopped_epoch, self.current_epoch, self.stop_training = 0, 0, 0, false
  self.best = self.baseline or self._grows and -INFINITY or INFINITY
end


-- Returns whether a value is better than another by more than `distance`.
local function is_better(grows, value, than, distance)
  if grows then
    return value - distance > than
  end
  return value + distance < than
end


function EarlyStoppingHandler:epoch_end()
  local name, value = self.monitor:get()
  if value ~= value then
    log:warning(("EarlyStoppingHandler: %s has no value; the monitor must be one of the \z
      estimator's metrics"):format(name))
  elseif is_better(self._grows, value, self.best, self.min_delta) then
    self.best, self.wait = value, 0
  else
    self.wait = self.wait + 1
    if self.wait >= self.patience then
      self.stopped_epoch, self.stop_training = self.current_epoch, true
    end
  end
  self.current_epoch = self.current_epoch + 1
  return self.stop_training
end


function EarlyStoppingHandler:train_end(estimator)
  if self.stop_training then
    estimator.logger:info(("[Epoch %d] EarlyStoppingHandler: stopped early, %s does not improve")
      :format(self.stopped_epoch, (self.monitor:get())))
  end
end


return handlers
