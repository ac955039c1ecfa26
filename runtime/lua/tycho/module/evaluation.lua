--- Functions that training and scoring share: metrics and callbacks of batches (not for users).
--
-- @module tycho.module.evaluation

local args = require "tycho.core.args"
local attempt = require "tycho.core.attempt"
local Class = require "tycho.core.class"
local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local slices = require "tycho.module.batch_slices"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local is_callable = args.types["function"].check
local is_plain, value = values.is_plain, values.value

local evaluation = {}


-- The option type of callbacks: a function, an object that can be called, or a list of these.
args.types.callbacks = { takes = is_plain,
  text = "a function, an object that can be called, or a list of them",
  check = function(v)
    for _, f in ipairs(is_plain(v) and v or { v }) do
      if not is_callable(f) then
        return false, nil, nil, nil, Error.kind(f)
      end
    end
    return true, v
  end }


--- Calls one callback or each of a list with the further arguments.
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


--- Returns whether one of the callbacks logs the metric's values, so that the caller need not.
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


local function read_field(t, name)
  return t[name]
end


--- Raises E(value) for data from which no batches can be fetched.
-- @param data
-- @string func for errors
-- @string argument for errors
function evaluation.check_iterator(data, func, argument)
  local ok, next_of = attempt(read_field, data, "next")
  if type(data) ~= "table" or not ok or not is_callable(next_of) then
    Error.raise{ code = "value", func = func, argument = argument,
      expected = "an iterator such as ty.io.NDArrayIter{data = ..., label = ..., batch_size = ...}",
      got = Error.kind(data), message = ("bad '%s'"):format(argument) }
  end
end


--- Raises E(value) for an iterator without descriptions of its batches.
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


-- Sets a batch's descriptions in `field` to the iterator's if the batch has none and their order is
-- not the bound one.
local function describe(batch, field, descs, bound)
  if batch[field] == nil and bound and descriptions.order(descs, bound) then
    batch[field] = descs
  end
end


--- Returns the next batch of an iterator. A batch without descriptions gets the iterator's if it
-- needs them.
-- @param self the module
-- @param data the iterator
-- @return the batch; nil: the epoch is over
function evaluation.next_batch(self, data)
  local batch = data:next()
  if type(batch) == "table" and not is_plain(batch) and batch.bucket_key == nil then
    describe(batch, "provide_data", data.provide_data, self.data_shapes)
    describe(batch, "provide_label", data.provide_label, self.label_shapes or self.label_names)
  end
  return batch
end


--- Makes a metric from a metric, a name, a function or a list of these.
function evaluation.metric(given)
  local metric = require "tycho.metric"
  return Class.is_a(given, metric.EvalMetric) and given or metric.create(given)
end


--- Calls the callbacks of a batch or an epoch.
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


-- Returns the labels of a batch in the module's order, found by name if the batch has descriptions.
local function labels_of(self, batch)
  local labels = batch.label or {}
  local bound = batch.provide_label and (self.label_shapes or self.label_names)
  local order = bound and descriptions.order(batch.provide_label, bound)
  return order and tables.pick(labels, order) or labels
end


--- Returns an array without its last `pad` rows, as a view; E(value) if no rows are left.
-- @tparam NDArray x
-- @int pad number of rows at the end that only fill the batch
-- @string name for errors
-- @string func for errors
function evaluation.without_pad(x, pad, name, func)
  local rows = x._shape[1]
  if pad < 0 or pad >= rows then
    Error.raise{ code = "value", func = func, argument = "pad",
      expected = ("fewer than the %d rows of '%s'"):format(rows, name), got = pad,
      message = "no row of the batch would count" }
  end
  return slices.view(x, 0, rows - pad)
end


-- Updates a metric with the rows of the batch that are not padding.
local function update_unpadded(self, metric, batch)
  local func = self:_func("update_metric")
  local labels, named_outputs = {}, {}
  for i, pair in ipairs(self:_name_labels(labels_of(self, batch))) do
    labels[i] = { pair[1], evaluation.without_pad(pair[2], batch.pad, pair[1], func) }
  end
  for i, x in ipairs(self:get_outputs()) do
    local name = self.output_names[i]
    named_outputs[i] = { name, evaluation.without_pad(x, batch.pad, name, func) }
  end
  metric:update_dict(labels, named_outputs)
end


--- Updates a metric with a batch that a module has run.
-- @param self the module
-- @param metric
-- @param batch a batch or a list of them
-- @bool[opt=true] count_pad whether the padding rows of the last batch count
function evaluation.update(self, metric, batch, count_pad)
  if is_plain(batch) and #batch > 0 then
    local labels = {}
    for i, part in ipairs(batch) do
      labels[i] = labels_of(self, part)
    end
    self:update_metric(metric, labels, true)
  elseif count_pad == false and (batch.pad or 0) > 0 then
    update_unpadded(self, metric, batch)
  else
    self:update_metric(metric, labels_of(self, batch))
  end
end


return evaluation
