--- Metrics made of others or of functions: CompositeEvalMetric, CustomMetric, np; see
-- `metric/init.lua`.
--
-- @module tycho.metric.composite

local args = require "tycho.core.args"
local base = require "tycho.metric.base"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local values = require "tycho.core.values"

local groups = {}


-- Composite ---------------------------------------------------------------------------------------

--- Several metrics at once; names and values come in lists.
-- @type CompositeEvalMetric
local Composite = base.EvalMetric:extend("CompositeEvalMetric")
groups.CompositeEvalMetric = base.alias(base.register(Composite), "composite")

local COMPOSITE = args.form("metric.CompositeEvalMetric", {
  list = true, { "metrics", "list?" }, { "name", "text", "composite" }, { "output_names", "list?" },
  { "label_names", "list?" },
})

--- @tparam[opt] table metrics anything that `create` takes
-- @tparam[opt] table options name; output_names, label_names: arrays that `update_dict` passes on
function Composite:init(...)
  local a = COMPOSITE(...)
  self.metrics = {}
  for i, x in ipairs(a.metrics or {}) do
    self.metrics[i] = base.create(x)
  end
  Composite.super.init(self, { name = a.name, output_names = a.output_names,
    label_names = a.label_names, has_global_stats = true })
end


--- Adds a metric, or anything that `create` takes.
function Composite:add(metric)
  self.metrics[#self.metrics + 1] = base.create(metric)
end


--- Returns the metric number `index`, from 0.
function Composite:get_metric(index)
  local is_number = type(index) == "number"
  local metric = is_number and self.metrics[index + 1]
  if not metric then
    Error.raise{ code = is_number and "index" or "type", argument = "index",
      func = "CompositeEvalMetric:get_metric",
      got = is_number and index or Error.kind(index),
      expected = ("0 to %d"):format(#self.metrics - 1),
      message = ("there is no metric %s"):format(tostring(index)) }
  end
  return metric
end


-- Returns the {name, array} pairs whose name is in `wanted`, in their given order; all of them if
-- `wanted` is nil.
local function filter(given, wanted)
  if not wanted then
    return given
  end
  local dict, names = args.pairs_of(given)
  local known, list = {}, {}
  for _, name in ipairs(wanted) do
    known[name] = true
  end
  for _, name in ipairs(names) do
    list[#list + 1] = known[name] and { name, dict[name] } or nil
  end
  return list
end


-- Calls a method of all metrics.
local function call_all(self, method, ...)
  self.has_nan = false
  for _, metric in ipairs(self.metrics) do
    metric[method](metric, ...)
    self.has_nan = self.has_nan or metric.has_nan or false
  end
end


function Composite:update_dict(labels, preds)
  call_all(self, "update_dict", filter(labels, self.label_names), filter(preds, self.output_names))
end


for _, name in ipairs{ "update", "reset", "reset_local" } do
  Composite[name] = function(self, ...)
    call_all(self, name, ...)
  end
end


local function append(list, v)
  for _, each in ipairs(type(v) == "table" and v or { v }) do
    list[#list + 1] = each
  end
end


local function collect(self, method)
  local names, results = {}, {}
  for _, metric in ipairs(self.metrics) do
    local name, value = metric[method](metric)
    append(names, name)
    append(results, value)
  end
  return names, results
end


function Composite:get()
  return collect(self, "get")
end


function Composite:get_global()
  return collect(self, "get_global")
end


function Composite:get_config()
  local config = Composite.super.get_config(self)
  config.metrics = {}
  for i, metric in ipairs(self.metrics) do
    config.metrics[i] = metric:get_config()
  end
  return config
end


-- Functions ---------------------------------------------------------------------------------------

--- A metric by a function of labels and predictions, both nested tables. It returns a number, which
-- counts as one sample, or a sum and a count.
-- @type CustomMetric
local Custom = base.EvalMetric:extend("CustomMetric")
groups.CustomMetric = base.register(Custom)

local CUSTOM = args.form("metric.CustomMetric", {
  { "feval", "function" }, { "name", "text?" }, { "allow_extra_outputs", "boolean", false },
  { "output_names", "list?" }, { "label_names", "list?" },
})

--- @tparam function feval (label, pred) -> number, or sum and count
-- @tparam[opt] table options name; allow_extra_outputs: lists may differ in length
function Custom:init(...)
  local a = CUSTOM(...)
  self._feval, self._allow_extra_outputs = a.feval, a.allow_extra_outputs
  Custom.super.init(self, { name = a.name or "custom(<function>)", output_names = a.output_names,
    label_names = a.label_names, has_global_stats = true })
end


local Nested = { __metatable = false }                   -- plain tables that refuse arithmetic

function Nested.__index(_, key)
  if key == 0 or type(key) == "string" then
    Error.raise{ code = "name", func = "CustomMetric:update", argument = tostring(key),
      message = ("labels and predictions are nested tables here: they count from 1 and have no \z
        '%s'; ty.nd.array(x) makes an array of one"):format(tostring(key)) }
  end
end


local function refuse_arithmetic()
  Error.raise{ code = "type", func = "CustomMetric:update", expected = "numbers",
    got = "a nested table", message = "labels and predictions are nested tables here; \z
      ty.nd.array(x) makes an array of one, with which arithmetic works" }
end

for _, name in ipairs{ "add", "sub", "mul", "div", "mod", "pow", "unm", "lt", "le" } do
  Nested["__" .. name] = refuse_arithmetic
end


local function as_table(x)
  return class.is_array(x) and setmetatable(x:totable(), Nested) or x
end


function Custom:update(labels, preds)
  if not self._allow_extra_outputs then
    labels, preds = base.check_counts(labels, preds, "CustomMetric:update")
  end
  labels, preds = values.is_plain(labels) and labels or { labels },
    values.is_plain(preds) and preds or { preds }
  for i = 1, math.min(#labels, #preds) do
    local sum, count = self._feval(as_table(labels[i]), as_table(preds[i]))
    if type(sum) == "table" then
      sum, count = sum[1], sum[2]
    end
    if type(sum) ~= "number" or count ~= nil and type(count) ~= "number" then
      Error.raise{ code = "type", func = "CustomMetric:update", argument = "feval",
        expected = "a number, or two", got = Error.kind(sum),
        message = ("the function of metric '%s' gave something else"):format(self.name) }
    end
    self:_add(sum, count or 1)
  end
end


function Custom.get_config()
  Error.raise{ code = "unsupported", func = "CustomMetric:get_config",
    message = "a function has no configuration" }
end


--- Returns a CustomMetric.
-- @tparam function feval
-- @tparam[opt] table options name, allow_extra_outputs
function groups.np(...)
  return Custom(...)
end


return groups
