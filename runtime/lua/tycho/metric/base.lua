--- The base of metrics: sums, names, reading of arrays; see `metric/init.lua`.
--
-- A user's class extends EvalMetric and defines `update(labels, preds)`, which changes `sum_metric`
-- and `num_inst`. If it also maintains `global_sum_metric` and `global_num_inst`, it passes
-- `has_global_stats = true` to the base.
--
-- @module tycho.metric.base

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local name_values = require "tycho.core.name_values"
local host = require "tycho.ndarray.transfer"
local log = require "tycho.core.log"
local namespace = require "tycho.core.namespace"
local nans = require "tycho.core.nans"
local values = require "tycho.core.values"
require "tycho.ndarray"

local base = { registry = {} }

local is_array, is_plain = class.is_array, values.is_plain
local NAN = 0 / 0


-- Arrays ------------------------------------------------------------------------------------------

-- dtypes whose elements Lua reads as plain numbers
local DIRECT = {}
for _, name in ipairs{ "float32", "float64", "uint8", "int32", "int8", "bool" } do
  DIRECT[args.DTYPES[name]] = true
end

-- The arrays whose elements an update reads through pointers. Without this list nothing might keep
-- them alive in compiled code.
local held = {}

--- Returns the elements of an array or nested table, for reading: `v.p[0 .. v.n - 1]`, `v.shape`;
-- valid until the update ends. Waits.
function base.read(x, func)
  if not is_array(x) then
    x = host.from_table(x, args.DTYPES.float32, func)
  end
  if not DIRECT[x._dtype] then
    x = x:astype("float64")
  end
  x = x:as_in_context(context.cpu(0))
  if nans.marked(x:data(), x._dtype, x._size) then
    x = x:copy()
    nans.mend(x:data(), x._dtype, x._size)
  end
  held[#held + 1] = x
  return { p = x:data(), n = x._size, shape = x._shape, array = x }
end


--- Returns the number of elements before, of and after an axis (from 0, negative from the end).
-- @treturn int outer
-- @treturn ?int size, nil if there is no such axis
-- @treturn int inner
function base.split(shape, axis)
  axis = axis < 0 and axis + #shape or axis
  local outer, inner = 1, 1
  for i = 1, #shape do
    outer = i <= axis and outer * shape[i] or outer
    inner = i > axis + 1 and inner * shape[i] or inner
  end
  return outer, axis >= 0 and shape[axis + 1] or nil, inner
end


--- Raises E(shape) for labels and predictions that do not fit.
function base.fail_shape(func, labels, preds)
  Error.raise{ code = "shape", func = func, argument = "labels", expected = preds, got = labels,
    message = ("Shape of labels %s does not match shape of predictions %s")
      :format(Error.show(labels), Error.show(preds)) }
end


local function as_list(x)
  return is_plain(x) and x or { x }
end


--- Returns labels and predictions as lists of equal length, else E(shape); a single array becomes a
-- list. Missing predictions are E(value).
function base.check_counts(labels, preds, func)
  if preds == nil then
    Error.raise{ code = "value", func = func or "EvalMetric:update", argument = "preds",
      expected = "arrays", got = "nothing",
      message = "'preds' is missing; the labels come first: update(labels, preds)" }
  end
  labels, preds = as_list(labels), as_list(preds)
  if #labels ~= #preds then
    local hint = #labels == 0
      and "; only the metric 'loss', for outputs that are losses, needs none" or ""
    Error.raise{ code = "shape", func = func or "EvalMetric:update", argument = "labels",
      expected = #preds, got = #labels,
      message = ("there are %d labels for %d outputs%s"):format(#labels, #preds, hint) }
  end
  return labels, preds
end


-- The class ---------------------------------------------------------------------------------------

--- Base of metrics. Fields: name, num_inst, sum_metric, global_num_inst, global_sum_metric;
-- has_nan: whether predictions since the last full reset had NaN, for metrics that check this.
-- @type EvalMetric
local EvalMetric = Class:extend("EvalMetric")
base.EvalMetric = EvalMetric

local NAMES = {
  { "name", "text?" }, { "output_names", "list?" }, { "label_names", "list?" },
}
local BASE = args.form("metric.EvalMetric", {
  NAMES[1], NAMES[2], NAMES[3], { "has_global_stats", "boolean", false }, { "options", "dict?" },
})

--- @string[opt] name by default the class's name
-- @tparam[opt] {string,...} output_names outputs that `update_dict` uses; by default all
-- @tparam[opt] {string,...} label_names labels that it uses; by default all
function EvalMetric:init(...)
  local a = BASE(...)
  self.name, self.output_names, self.label_names = a.name or self.class_name:lower(),
    a.output_names, a.label_names
  self._has_global_stats, self._options = a.has_global_stats, a.options or {}
  self:reset()
end


--- Resets all sums.
function EvalMetric:reset()
  self.num_inst, self.sum_metric, self.global_num_inst, self.global_sum_metric = 0, 0, 0, 0
  self.has_nan = false
end


--- Resets the local sums, but not the global ones.
function EvalMetric:reset_local()
  self.num_inst, self.sum_metric = 0, 0
end


--- Adds to both sums. A NaN sets `has_nan`, which means that predictions have NaN, unless the class
-- sets `may_be_nan`.
-- @number sum
-- @number count
function EvalMetric:_add(sum, count)
  self.has_nan = self.has_nan or sum ~= sum and not self.may_be_nan
  self.sum_metric, self.num_inst = self.sum_metric + sum, self.num_inst + count
  self.global_sum_metric, self.global_num_inst =
    self.global_sum_metric + sum, self.global_num_inst + count
end


--- Warns once if a label is not a class (not for users).
-- @number label the largest label
-- @int classes the number of classes
function EvalMetric:_check_label(label, classes)
  if label >= classes and not self._label_reported then
    self._label_reported = true
    log:warning(("%s: label %g is none of the %d classes, 0 to %d: classes count from 0")
      :format(self.class_name, label, classes, classes - 1))
  end
end


--- Adds a batch, given as lists of labels and predictions.
-- @tparam {NDArray,...} labels
-- @tparam {NDArray,...} preds the outputs, in the order of the labels
function EvalMetric:update(labels, preds)
  Error.raise{ code = "unsupported", func = self.class_name .. ":update",
    message = "the class has no update" }
end


-- Returns the arrays of the wanted names, or all in order.
local function select_arrays(given, wanted, func)
  local dict, names = args.pairs_of(given)
  local list = {}
  for i, name in ipairs(wanted or names or {}) do
    list[i] = dict[name]
    if list[i] == nil then
      Error.unknown{ func = func, argument = name, what = "array", names = names }
    end
  end
  return list
end


-- Returns "a" for "a_label", "a_output" and "a_output0".
local function head_of(name)
  return (tostring(name):gsub("_label$", ""):gsub("_output%d*$", ""))
end


-- Returns the names of the labels that belong to outputs by name; nil if one has none.
local function match_labels(outputs, labels)
  local _, names = args.pairs_of(labels)
  local by_head, list = {}, {}
  for _, name in ipairs(names or {}) do
    by_head[head_of(name)] = name
  end
  for i, output in ipairs(outputs or {}) do
    list[i] = by_head[head_of(output)]
    if not list[i] then
      return nil
    end
  end
  return list
end


-- Returns the names of the labels for an update by name: the metric's `label_names`, if set. Else,
-- as tables by name have no order and not all outputs may be used, the labels that belong to the
-- outputs by name, `a_label` to `a_output`.
local function label_names(self, labels, preds)
  local outputs = self.output_names
  if self.label_names or #labels > 0 and (not outputs or #outputs == #labels) then
    return self.label_names
  end
  return match_labels(outputs or select(2, args.pairs_of(preds)), labels)
end


local function check_named(arrays, argument, func)
  if type(arrays) ~= "table" or class.is_array(arrays) then
    Error.raise{ code = "type", func = func, argument = argument, got = Error.kind(arrays),
      expected = "name -> array, or a list of {name, array}",
      message = ("bad '%s'"):format(argument) }
  end
end


--- Updates as `update` does, from tables by name or lists of `{name, array}`; output_names and
-- label_names choose the arrays.
function EvalMetric:update_dict(labels, preds)
  local func = self.class_name .. ":update_dict"
  check_named(labels, "labels", func)
  check_named(preds, "preds", func)
  local chosen = select_arrays(labels, label_names(self, labels, preds), func)
  preds = select_arrays(preds, self.output_names, func)
  if rawget(getmetatable(self), "is_built_in") then
    self:update(chosen, preds)
  else
    class.outside(self.update, self, chosen, preds)      -- a user's class may keep arrays
  end
end


--- Returns name and value since the last reset or reset_local.
function EvalMetric:get()
  if self.num_inst == 0 then
    return self.name, NAN
  end
  return self.name, self:_value(self.sum_metric, self.num_inst)
end


--- Returns name and value since the last reset.
function EvalMetric:get_global()
  if not self._has_global_stats then
    return self:get()
  elseif self.global_num_inst == 0 then
    return self.name, NAN
  end
  return self.name, self:_value(self.global_sum_metric, self.global_num_inst)
end


function EvalMetric._value(_, sum, count)
  return sum / count
end


local function zip(name, value)
  local list = {}
  for i, each in ipairs(type(name) == "table" and name or { name }) do
    list[i] = { each, type(value) == "table" and value[i] or value }
  end
  return name_values(list)
end


--- Returns a list of `{name, value}`.
function EvalMetric:get_name_value()
  return zip(self:get())
end


--- Returns a list of `{name, global value}`.
function EvalMetric:get_global_name_value()
  return zip(self:get_global())
end


--- Returns a table from which `create` makes an equal metric.
function EvalMetric:get_config()
  local config = { metric = self.class_name, name = self.name, output_names = self.output_names,
    label_names = self.label_names }
  for key, value in pairs(self._options) do
    config[key] = value
  end
  return config
end


local function number_text(v)
  return v == math.floor(v) and v - v == 0 and ("%.1f"):format(v) or attrs.text(v)
end


function EvalMetric:__tostring()
  local parts = {}
  for i, pair in ipairs(self:get_name_value()) do
    parts[i] = ("'%s': %s"):format(pair[1], number_text(pair[2]))
  end
  return "EvalMetric: {" .. table.concat(parts, ", ") .. "}"
end


-- Registry ----------------------------------------------------------------------------------------

--- Registers a class under a name, in any case.
-- @treturn table the class
function base.register(kind, name)
  name = namespace.class_key(kind, name, base.EvalMetric, "metric.register")
  if base.registry[name] and base.registry[name] ~= kind then
    log:warning(("metric '%s' is registered again"):format(name))
  end
  base.registry[name] = kind
  if rawget(kind, "class_name") == "EvalMetric" then
    kind.class_name = name
  end
  return kind
end


--- Registers further names for a class.
function base.alias(kind, ...)
  for _, name in ipairs{ ... } do
    base.register(kind, name)
  end
  return kind
end


local function release()
  for i = #held, 1, -1 do
    held[i] = nil
  end
end


--- Returns a registered subclass with options that become fields and part of the configuration; the
-- caller writes its `_update`.
-- @string class_name
-- @string name default display name
-- @tparam[opt] table own parameters of its form
-- @param[opt] ... further registered names
function base.kind(class_name, name, own, ...)
  local Kind = EvalMetric:extend(class_name)
  Kind.is_built_in = true
  local spec = {}
  for _, list in ipairs{ own or {}, NAMES } do
    for _, entry in ipairs(list) do
      spec[#spec + 1] = entry
    end
  end
  local form = args.form("metric." .. class_name, spec)
  function Kind:init(...)
    local a, options = form(...), {}
    for _, entry in ipairs(own or {}) do
      options[entry[1]] = a[entry[1]]
      self[entry[1]] = values.value(a[entry[1]])
    end
    EvalMetric.init(self, { name = a.name or name, output_names = a.output_names,
      label_names = a.label_names, has_global_stats = true, options = options })
  end
  function Kind:update(labels, preds)
    release()                                            -- what an update that failed has left
    self:_update(labels, preds)
    release()
  end
  base.register(Kind)
  return base.alias(Kind, ...)
end


return base
