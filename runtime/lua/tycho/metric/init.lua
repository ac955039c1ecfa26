--- Measures of the quality of predictions: `ty.metric`.
--
-- `update` adds to a metric's sums, `get` returns the mean. There are two sums: a local one,
-- which `reset_local` clears, and a global one, which only `reset` clears.
--
--     local m = ty.metric.create("acc")                      -- or ty.metric.Accuracy{ axis = 1 }
--     m:update({ labels }, { predictions })                  -- arrays or nested tables
--     local name, value = m:get()                            -- NaN before any update
--     local both = ty.metric.create{ "acc", "ce" }           -- get gives lists
--
-- The parts: `metric.base` (sums, selection by name), `metric.classification` (of classes),
-- `metric.regression` (of numbers), `metric.composite` (of several, of functions).
--
-- @module tycho.metric

require "tycho.core.luajit"
local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local base = require "tycho.metric.base"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local json = require "tycho.core.json"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"
local values = require "tycho.core.values"

local metrics = {
  EvalMetric = base.EvalMetric, register = base.register, alias = base.alias,
  check_label_shapes = base.check_counts,
}

for _, part in ipairs{ require "tycho.metric.classification", require "tycho.metric.regression",
    require "tycho.metric.composite" } do
  for name, class in pairs(part) do
    metrics[name] = class
  end
end


-- Making ------------------------------------------------------------------------------------------

local function by_name(name, options)
  local class = base.registry[name:lower()]
  if not class then
    Error.unknown{ func = "metric.create", argument = name, what = "metric", among = base.registry }
  end
  return class(options or {})
end


local function from_config(config)
  local options = {}
  for key, value in pairs(config) do
    options[key] = key ~= "metric" and value or nil
  end
  return by_name(config.metric, options)
end


-- Returns the metric of a list, whose named entries are options of all members.
local function from_list(list, options)
  local all, members = {}, {}
  for key, value in pairs(list) do
    all[key] = type(key) == "string" and value or nil
  end
  if #list == 1 and next(all) ~= nil and options == nil then
    return metrics.create(list[1], all)
  end
  for key, value in pairs(options or {}) do
    all[key] = value
  end
  for i, x in ipairs(list) do
    members[i] = metrics.create(x, next(all) ~= nil and all or nil)
  end
  return metrics.CompositeEvalMetric(members)
end


--- Returns a metric from a name (in any case), a function, a list of these, the table that
-- `get_config` returns (or its JSON text), or a metric.
-- @param x an unknown name is E(name)
-- @tparam[opt] table options
function metrics.create(x, options)
  if type(x) == "string" then
    local first = x:sub(1, 1)
    return (first == "{" or first == "[")
      and metrics.create(json.parse(x, "metric.create"), options) or by_name(x, options)
  elseif Class.is_a(x, base.EvalMetric) then
    return x
  elseif values.is_plain(x) then
    return x.metric and from_config(x) or from_list(x, options)
  elseif Class.is_class(x) then
    Error.raise{ code = "type", func = "metric.create", argument = "metric", got = tostring(x),
      expected = "a metric", message = ("a class is no metric; call it: ty.metric.%s()")
        :format(x.class_name) }
  elseif args.types["function"].check(x) then
    local given = { feval = x }
    for key, value in pairs(options or {}) do
      given[key] = value
    end
    return metrics.CustomMetric(given)
  end
  Error.raise{ code = "type", func = "metric.create", argument = "metric", got = Error.kind(x),
    expected = "a name, a function, a list, a configuration or a metric", message = "bad metric" }
end

base.create = metrics.create


return namespace.close(methods.guard_all(metrics), "metric", "metric")
