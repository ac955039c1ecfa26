--- Runs modules over data: `score`, `iter_predict` and `predict` of all modules.
--
-- @module tycho.module.scoring

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local evaluation = require "tycho.module.evaluation"
local io_data = require "tycho.io.data"
local iterate = require "tycho.core.iterate"
local nd = require "tycho.ndarray"
local slices = require "tycho.module.batch_slices"
local values = require "tycho.core.values"

local is_plain = values.is_plain

local BaseModule = {}                                    -- methods, for module/base.lua


-- Scoring -----------------------------------------------------------------------------------------

local SCORE = args.form("Module:score", {
  { "eval_data", "any" }, { "eval_metric", "any" }, { "num_batch", "integer?" },
  { "batch_end_callback", "callbacks?" }, { "score_end_callback", "callbacks?" },
  { "reset", "boolean", true },
  { "epoch", "integer", 0 }, { "sparse_row_id_fn", "any?" }, { "count_pad", "boolean", true },
})


--- Runs over data and computes a metric.
-- @param eval_data iterator
-- @param eval_metric metric, name, function or list
-- @tparam[opt] table options num_batch, batch_end_callback, score_end_callback, reset = true,
--    epoch = 0 (for callbacks), count_pad = true (whether padding rows of the last batch count)
-- @treturn table list of `{name, value}`
function BaseModule:score(...)
  self:_need("score", "binded", "params_initialized")
  local a = SCORE(...)
  local metric, n = evaluation.metric(a.eval_metric), 0
  evaluation.check_iterator(a.eval_data, self:_func("score"), "eval_data")
  if a.reset then
    class.outside(a.eval_data.reset, a.eval_data)
  end
  metric:reset()
  while n ~= a.num_batch do
    local batch = evaluation.next_batch(self, a.eval_data)
    if batch == nil then
      break
    end
    self:prepare(batch, a.sparse_row_id_fn)
    self:forward(batch, false)
    evaluation.update(self, metric, batch, a.count_pad)
    evaluation.report(a.batch_end_callback, self, a, a.epoch, n, metric, batch)
    n = n + 1
  end
  evaluation.report(a.score_end_callback, self, a, a.epoch, n, metric)
  return metric:get_name_value()
end


-- Prediction --------------------------------------------------------------------------------------

local ITERATE = args.form("Module:iter_predict", {
  { "eval_data", "any" }, { "num_batch", "integer?" }, { "reset", "boolean", true },
  { "sparse_row_id_fn", "any?" },
})


-- Returns the outputs without the padding rows of the batch, as views.
local function trimmed(self, batch)
  local list, pad, func = {}, batch.pad or 0, self:_func("predict")
  for i, x in ipairs(self:get_outputs()) do
    list[i] = pad ~= 0 and evaluation.without_pad(x, pad, self.output_names[i], func) or x
  end
  return list
end


local predictions = iterate.alike(function(self, a)
  local n = -1
  return function()
    n = n + 1
    local batch = n ~= a.num_batch and evaluation.next_batch(self, a.eval_data) or nil
    if batch == nil then
      return nil
    end
    self:prepare(batch, a.sparse_row_id_fn)
    self:forward(batch, false)
    return trimmed(self, batch), n, batch
  end
end)


--- Iterates over predictions: `for outputs, nbatch, batch in m:iter_predict(it) do`. The outputs
-- are views, without padding rows, that the next step overwrites; nbatch counts from 0.
-- @param eval_data iterator
-- @tparam[opt] table options num_batch, reset = true
function BaseModule:iter_predict(...)
  self:_need("iter_predict", "binded", "params_initialized")
  local a = ITERATE(...)
  evaluation.check_iterator(a.eval_data, self:_func("iter_predict"), "eval_data")
  if a.reset then
    class.outside(a.eval_data.reset, a.eval_data)
  end
  return predictions(self, a)
end


local PREDICT = args.form("Module:predict", {
  list = true, { "eval_data", "any" }, { "num_batch", "integer?" },
  { "merge_batches", "boolean", true }, { "reset", "boolean", true },
  { "always_output_list", "boolean", false }, { "sparse_row_id_fn", "any?" },
})


-- Runs one array forward and returns a copy of the first output.
local function predict_array(self, x)
  x = class.is_array(x) and x or nd._as_array(x, "float32", self:_func("predict"))
  self:forward(io_data.DataBatch{ data = { x } })
  return self:get_outputs()[1]:copy()
end


-- Joins the outputs of batches, output by output; E(value) if batches have different numbers of
-- outputs.
local function merge(self, batches, always_list)
  local result = {}
  for k = 1, #batches[1] do
    local list = {}
    for i, outputs in ipairs(batches) do
      if #outputs ~= #batches[1] then
        Error.raise{ code = "value", func = self:_func("predict"), expected = #batches[1],
          got = #outputs, message = "batches have different numbers of outputs, as with buckets; \z
            use merge_batches = false" }
      end
      list[i] = outputs[k]
    end
    result[k] = slices.join(list, 0)
  end
  return #result == 1 and not always_list and result[1] or result
end


--- Returns the outputs for all rows of an iterator, or for one array, without padding rows.
-- @param eval_data iterator, or NDArray or nested table (is_train is then `for_training` of bind,
--   and the result is the first output)
-- @tparam[opt] table options num_batch, merge_batches = true (false: a list of outputs for each
--   batch), reset = true, always_output_list = false
-- @return an NDArray if there is one output, else a list; an empty list if there are no batches
function BaseModule:predict(...)
  self:_need("predict", "binded", "params_initialized")
  local a, batches = PREDICT(...), {}
  if class.is_array(a.eval_data) or is_plain(a.eval_data) then
    return predict_array(self, a.eval_data)
  end
  for outputs in self:iter_predict{ eval_data = a.eval_data, num_batch = a.num_batch,
      reset = a.reset, sparse_row_id_fn = a.sparse_row_id_fn } do
    local copies = {}
    for i, x in ipairs(outputs) do
      copies[i] = x:copy()
    end
    batches[#batches + 1] = copies
  end
  if #batches == 0 or not a.merge_batches then
    return batches
  end
  return merge(self, batches, a.always_output_list)
end


return BaseModule
