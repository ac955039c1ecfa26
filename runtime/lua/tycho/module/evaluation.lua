--- What training and scoring have in common: metrics, callbacks of batches (not for users).
--
-- @module tycho.module.evaluation

local args = require "tycho.core.args"
local attempt = require "tycho.core.attempt"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local slices = require "tycho.module.batch_slices"
local values = require "tycho.core.values"

local is_callable = args.types["function"].check
local is_plain, value = values.is_plain, values.value

local evaluation = {}


--- Calls one callback or a list of them.
-- @param callbacks nil, a function, an object that can be called, or a list
function evaluation.call_all(callbacks, ...)
  if value(callbacks) == nil then
    return
  elseif is_plain(callbacks) then
    for _, f in ipairs(callbacks) do
      f(...)
    end
  else
    callbacks(...)
  end
end


--- Whether one of the callbacks logs the values of the metric itself.
-- @param callbacks as `call_all`
function evaluation.logs_values(callbacks)
  callbacks = is_plain(callbacks) and callbacks or { value(callbacks) }
  for _, f in ipairs(callbacks) do
    if type(f) == "table" and rawget(getmetatable(f) or {}, "logs_values") then
      return true
    end
  end
  return false
end


--- Raises E(value) for what gives no batches.
-- @param data
-- @string func for errors
-- @string argument for errors
function evaluation.check_iterator(data, func, argument)
  local ok, next_of = attempt(function() return data.next end)
  if type(data) ~= "table" or not ok or not is_callable(next_of) then
    Error.raise{ code = "value", func = func, argument = argument,
      expected = "an iterator such as ty.io.NDArrayIter{data = ..., label = ..., batch_size = ...}",
      got = Error.kind(data), message = ("bad '%s'"):format(argument) }
  end
end


--- Raises E(value) for an iterator that does not describe its batches.
-- @param data
-- @string func for errors
-- @string argument for errors
function evaluation.check_described(data, func, argument)
  if type(data.provide_data) ~= "table" then
    Error.raise{ code = "value", func = func, argument = argument,
      expected = "provide_data, as {{\"data\", {32, 784}}}", got = Error.kind(data.provide_data),
      message = "the iterator does not describe its batches" }
  end
end


--- A metric from a metric, a name, a function or a list of these.
function evaluation.metric(given)
  local metric = require "tycho.metric"
  return Class.is_a(given, metric.EvalMetric) and given or metric.create(given)
end


--- Tells callbacks of a batch or an epoch.
-- @param callbacks as `call_all`
-- @param self the module, for `locals`
-- @tparam table a options of the loop, for `locals`
-- @int epoch
-- @int nbatch
-- @tparam EvalMetric metric
-- @tparam[opt] DataBatch batch
function evaluation.report(callbacks, self, a, epoch, nbatch, metric, batch)
  if value(callbacks) ~= nil then
    evaluation.call_all(callbacks, { epoch = epoch, nbatch = nbatch, eval_metric = metric,
      locals = { self = self, eval_data = a.eval_data, train_data = a.train_data,
        data_batch = batch, epoch = epoch, nbatch = nbatch, eval_metric = metric } })
  end
end


-- Shows the rows of the batch that count to a metric.
local function update_unpadded(self, metric, batch)
  local outputs, labels, pad = self:get_outputs(), {}, batch.pad
  local named_outputs, named_labels = {}, {}
  for i, x in ipairs(batch.label or {}) do
    labels[i] = slices.view(x, 0, x._shape[1] - pad)
    named_labels[i] = { self.label_names[i], labels[i] }
  end
  for i, x in ipairs(outputs) do
    named_outputs[i] = { self.output_names[i], slices.view(x, 0, x._shape[1] - pad) }
  end
  metric:update_dict(named_labels, named_outputs)
end


--- Updates a metric with a batch that a module has run.
-- @param self the module
-- @param metric
-- @param batch a batch or a list of them
-- @bool[opt=true] count_pad whether rows that only fill the last batch count
function evaluation.update(self, metric, batch, count_pad)
  if is_plain(batch) and #batch > 0 then
    local labels = {}
    for i, part in ipairs(batch) do
      labels[i] = part.label
    end
    self:update_metric(metric, labels, true)
  elseif count_pad == false and (batch.pad or 0) > 0 then
    update_unpadded(self, metric, batch)
  else
    self:update_metric(metric, batch.label or {})
  end
end


return evaluation
