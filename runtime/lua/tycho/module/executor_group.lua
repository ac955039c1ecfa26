--- One symbol on several devices: `ty.mod.DataParallelExecutorGroup`.
--
--     local g = ty.mod.DataParallelExecutorGroup{ symbol = net,
--       contexts = { ty.cpu(0), ty.cpu(1) },
--       workload = { 1, 1 }, data_shapes = { { "data", { 4, 3 } } },
--       param_names = { "fc_weight", "fc_bias" }, for_training = true, inputs_need_grad = false }
--     g:forward(batch, true)
--     g:backward()
--
-- A device's arrays are in its bank (module/shared_arrays.lua), which groups that share
-- (`shared_group`) have in common. A group may bring parameters that the others lack.
-- All groups together need the intermediate memory of the largest one, bound in any
-- order; they must not run at once.
--
-- A group has a set of executors for each shape that it meets. The last `SETS` sets are kept, so
-- that a smaller last batch costs a binding once. Fields that follow the current set: execs,
-- slices, batch_size, data_shapes, label_shapes, data_arrays and label_arrays (per input a list
-- over devices of `{{begin, end}, array}`), state_arrays, input_grad_arrays (per input a list over
-- devices). param_arrays, grad_arrays (nil without training), aux_arrays: per name a list over
-- devices; `ty.null` where there is no gradient.
--
-- @module tycho.module.executor_group

jit.off(true, true)                                      -- pays no compilation: core/iterate.lua

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local bank_of = require "tycho.module.shared_arrays"
local log = require "tycho.core.log"
local nd = require "tycho.ndarray"
local rows = require "tycho.module.batch_slices"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local null, value, is_plain = values.null, values.value, values.is_plain

local PAGE = 4096                                        -- bytes by which a pool grows
local SETS = 8                                           -- shapes whose executors are kept

--- Executors of one symbol on a list of devices.
-- @type DataParallelExecutorGroup
local Group = Class:extend("DataParallelExecutorGroup")

local FUNC = "mod.DataParallelExecutorGroup"

local FORM = args.form(FUNC, {
  { "symbol", "symbol" }, { "contexts", "list|context" }, { "workload", "list?" },
  { "data_shapes", "table" }, { "label_shapes", "table?" }, { "param_names", "list" },
  { "for_training", "boolean" }, { "inputs_need_grad", "boolean" }, { "shared_group", "any?" },
  { "logger", "any?" }, { "fixed_param_names", "list?" },
  { "grad_req", "text|table", "write" }, { "state_names", "list?" }, { "group2ctxs", "table?" },
  { "memory_budget", "number?" }, { "force_mirroring", "boolean?" }, { "learn", "function?" },
})


-- Sets of executors -------------------------------------------------------------------------------

-- Rows of the batch; all inputs with a batch axis must have as many.
local function batch_size_of(data, labels)
  local size
  for _, part in ipairs{ data, labels or {} } do
    for _, d in ipairs(part) do
      local axis = rows.axis(d)
      local n = axis >= 0 and d.shape[axis + 1]
      if n and size and n ~= size then
        Error.raise{ code = "shape", func = FUNC, argument = d.name, expected = size, got = n,
          message = ("'%s' has another batch size than the inputs before it"):format(d.name) }
      end
      size = size or n or nil
    end
  end
  return size or 1
end


local function key_of(data, labels)
  local parts = {}
  for _, part in ipairs{ data, labels or {} } do
    for _, d in ipairs(part) do
      parts[#parts + 1] = tostring(d)
    end
    parts[#parts + 1] = ";"
  end
  return table.concat(parts, " ")
end


-- {{range, array}, ...} over devices, for each name.
local function place_arrays(set, names, ranged)
  local list = {}
  for k, name in ipairs(names) do
    list[k] = {}
    for i, exe in ipairs(set.execs) do
      local x = exe.arg_dict[name]
      list[k][i] = ranged and { set.slices[i], x } or x
    end
  end
  return list
end


local function input_grads(self, set)
  local list = {}
  for k, name in ipairs(self.data_names) do
    list[k] = {}
    for i, exe in ipairs(set.execs) do
      list[k][i] = exe.grad_dict[name] or null
    end
  end
  return list
end


local function make_set(self, data, labels)
  local set = { data_shapes = data, label_shapes = labels,
    batch_size = batch_size_of(data, labels), execs = {} }
  set.slices = rows.split(set.batch_size, self.workload, FUNC)
  for i, range in ipairs(set.slices) do
    set.execs[i] = bank_of.bind(self, i, data, labels, range)
  end
  set.data_arrays = place_arrays(set, rows.names(data), true)
  set.label_arrays = place_arrays(set, rows.names(labels), true)
  set.state_arrays = place_arrays(set, self.state_names, false)
  set.input_grad_arrays = self.inputs_need_grad and input_grads(self, set) or {}
  return set
end


local CURRENT = { "execs", "slices", "batch_size", "data_shapes", "label_shapes", "data_arrays",
  "label_arrays", "state_arrays", "input_grad_arrays" }

local function use_set(self, set)
  for _, field in ipairs(CURRENT) do
    self[field] = set[field]
  end
  self._set = set
end


-- Gives a set's executors back, except those whose pool others use and those that a monitor knows.
local function drop_set(self, set)
  for i, exe in ipairs(set.execs) do
    if exe ~= self._banks[i].base and #self._monitors == 0 then
      exe:free()
    end
  end
end


-- Puts a set first in the list of those that are kept.
local function keep_set(self, set, at)
  if at then
    table.remove(self._sets, at)
  end
  table.insert(self._sets, 1, set)
  if #self._sets > SETS then
    drop_set(self, table.remove(self._sets))
  end
end


local function choose_set(self, data, labels)
  local key = key_of(data, labels)
  for at, set in ipairs(self._sets) do
    if set.key == key then
      keep_set(self, set, at)
      return use_set(self, set)
    end
  end
  local set = make_set(self, data, labels)
  set.key = key
  keep_set(self, set)
  use_set(self, set)
end


-- Making ------------------------------------------------------------------------------------------

-- Parameters that gradients are wanted for, by name; none of them adds up.
local function learning_names(self, reqs)
  local names = {}
  for _, name in ipairs(self.for_training and self.param_names or {}) do
    if reqs[name] == "add" then
      Error.raise{ code = "unsupported", func = FUNC, argument = name,
        expected = "grad_req = 'write'", got = "add",
        message = "a gradient that adds up cannot be used inside backward" }
    end
    names[#names + 1] = reqs[name] == "write" and name or nil
  end
  return names
end


-- What is requested of arguments, and which symbol executors run. Parameters that learn
-- inside backward ask for nothing.
local function choose_requests(self, learn)
  local reqs = bank_of.requests(self, self._asked)
  local names = learn and learning_names(self, reqs) or {}
  local learned = #names > 0 and learn(names) or nil
  for _, name in ipairs(learned and names or {}) do
    reqs[name] = "null"
  end
  self._reqs, self.grad_req, self._learned = reqs, reqs, learned
  self._running = learned and learned.symbol or self.symbol
end


local function over_devices(self, names, kind)
  local list = {}
  for k, name in ipairs(names) do
    list[k] = {}
    for i, bank in ipairs(self._banks) do
      local wanted = kind ~= "grads" or self._reqs[name] ~= "null"
      list[k][i] = wanted and bank[kind][name] or null
    end
  end
  return list
end


local function check_workload(self)
  if #self.workload ~= #self.contexts then
    Error.raise{ code = "value", func = FUNC, argument = "workload", expected = #self.contexts,
      got = #self.workload, message = "'workload' has not one number for each context" }
  end
end


local function open_banks(self, shared)
  if shared and #shared._banks < #self.contexts then
    Error.raise{ code = "value", func = FUNC, argument = "shared_group", expected = #self.contexts,
      got = #shared._banks,
      message = "the shared group has fewer executors than there are contexts" }
  end
  self._banks = {}
  for i = 1, #self.contexts do
    self._banks[i] = shared and shared._banks[i] or bank_of.new()
  end
end


function Group:init(...)
  local a = FORM(...)
  self.symbol, self.logger = a.symbol, a.logger or log
  self.contexts = is_plain(a.contexts) and tables.copy(a.contexts) or { a.contexts }
  self.workload = a.workload and tables.copy(a.workload) or tables.ones(#self.contexts)
  check_workload(self)
  self.arg_names, self.aux_names = a.symbol:list_arguments(), a.symbol:list_auxiliary_states()
  self.output_names, self._attrs = a.symbol:list_outputs(), a.symbol:attr_dict()
  self._is_arg, self._is_param = tables.places(self.arg_names), tables.places(a.param_names)
  self._is_aux = tables.places(self.aux_names)
  self.param_names = {}
  for _, name in ipairs(self.arg_names) do
    self.param_names[#self.param_names + 1] = self._is_param[name] and name or nil
  end
  self.for_training, self.inputs_need_grad = a.for_training, a.inputs_need_grad
  self.fixed_param_names, self.state_names =
    tables.copy(a.fixed_param_names), tables.copy(a.state_names)
  self._group2ctxs = bank_of.places(a.group2ctxs, #self.contexts)
  self._memory_budget, self._force_mirroring = a.memory_budget, a.force_mirroring
  local data = rows.descriptions(a.data_shapes, FUNC, "data_shapes")
  local labels = rows.descriptions(a.label_shapes, FUNC, "label_shapes")
  labels = labels and #labels > 0 and labels or nil
  self.data_names, self.label_names = rows.names(data), rows.names(labels)
  self._asked, self._monitors, self._sets = a.grad_req, {}, {}
  choose_requests(self, a.learn)
  self:_find_output_axes()
  open_banks(self, a.shared_group)
  choose_set(self, data, labels)
  self.param_arrays = over_devices(self, self.param_names, "args")
  self.grad_arrays = self.for_training and over_devices(self, self.param_names, "grads") or nil
  self.aux_arrays = over_devices(self, self.aux_names, "auxs")
end


-- Whether a device's executor is one of these sets'.
local function is_of(sets, i, exe)
  for _, set in ipairs(sets) do
    if set.execs[i] == exe then
      return true
    end
  end
  return false
end


local REQUESTED = { "_reqs", "grad_req", "_learned", "_running", "_sets" }

-- Executors for other requests, in the place of all that are there. What fails
-- leaves everything as it was.
local function bind_again(self, learn)
  local before = {}
  for _, field in ipairs(REQUESTED) do
    before[field] = self[field]
  end
  self._sets = {}
  local ok, e = pcall(function()
    choose_requests(self, learn)
    choose_set(self, self.data_shapes, self.label_shapes)
  end)
  if not ok then
    for _, field in ipairs(REQUESTED) do
      self[field] = before[field]
    end
    error(e, 0)
  end
  return before._sets
end


--- Has the optimizer's steps inside backward, or no longer (not for users).
-- @tparam ?function learn names of parameters -> symbol, array_of,
--   backward: `module/fused_update.lua`
function Group:learn(learn)
  local old = bind_again(self, learn)
  for i, bank in ipairs(self._banks) do
    bank.base = is_of(old, i, bank.base) and self.execs[i] or bank.base
    bank_of.drop_gradients(self, bank)
  end
  for _, set in ipairs(old) do
    drop_set(self, set)
  end
  self.grad_arrays = self.for_training and over_devices(self, self.param_names, "grads") or nil
end


-- The batch axis of each output: by the head's layout, 0 without.
function Group:_find_output_axes()
  self._output_axes = {}
  for i = 1, #self.symbol do
    local layout = self.symbol[i]:attr("__layout__")
    self._output_axes[i] = layout and (layout:find("N", 1, true) or 0) - 1 or 0
  end
end


--- Executors for other shapes of the inputs; parameters stay. Shapes that
-- were met lately cost nothing.
-- @tparam table data_shapes descriptions
-- @tparam[opt] table label_shapes descriptions
function Group:reshape(data_shapes, label_shapes)
  local data = rows.descriptions(data_shapes, FUNC .. ":reshape", "data_shapes")
  local labels = rows.descriptions(label_shapes, FUNC .. ":reshape", "label_shapes")
  choose_set(self, data, labels and #labels > 0 and labels or nil)
end


-- Parameters --------------------------------------------------------------------------------------

--- Copies parameters to all devices.
-- @tparam table arg_params by name; missing ones stay as they are
-- @tparam[opt] table aux_params
-- @bool[opt=false] allow_extra unknown names are ignored instead of E(name)
function Group:set_params(arg_params, aux_params, allow_extra)
  for _, exe in ipairs(self.execs) do
    exe:copy_params_from(arg_params, aux_params, allow_extra)
  end
end


--- Writes the means over devices into arrays, converted to their element types.
-- @tparam table arg_params arrays by name
-- @tparam table aux_params arrays by name
-- @tparam[opt] table done names that are left out; those written are added
function Group:get_params(arg_params, aux_params, done)
  done = done or {}
  for _, part in ipairs{ { self.param_names, self.param_arrays, arg_params },
                         { self.aux_names, self.aux_arrays, aux_params } } do
    for k, name in ipairs(part[1]) do
      if part[3][name] and not done[name] then
        done[name] = true
        rows.mean(part[3][name], part[2][k], FUNC .. ":get_params", name)
      end
    end
  end
end


-- Running -----------------------------------------------------------------------------------------

local function load_one(place, x, axis, name, whole)
  local part = whole and x or rows.cut(x, axis, place[1])
  call.copy(place[2], part, FUNC .. ":forward", name)
end


-- `sources[i]` holds the arrays for device i when the batch comes in parts.
local function load(places, descs, list, sources)
  for k, places_of in ipairs(places) do
    local d = descs[k]
    for i, place in ipairs(places_of) do
      local x = (sources and sources[i] or list)[k]
      if class.is_array(x) then
        load_one(place, x, rows.axis(d), d.name, sources ~= nil)
      elseif is_plain(x) then
        load_one(place, nd._as_array(x, place[2].dtype, FUNC .. ":forward"),
          rows.axis(d), d.name, sources ~= nil)
      else
        Error.raise{ code = "value", func = FUNC .. ":forward", argument = d.name,
          expected = "an NDArray",
          got = Error.kind(x), message = ("the batch has no array for '%s'"):format(d.name) }
      end
    end
  end
end


local function parts_of(batches, kind)
  local list = {}
  for i, batch in ipairs(batches) do
    list[i] = batch[kind] or {}
  end
  return list
end


--- Loads a batch and runs all devices.
-- @param batch a batch, or a list with one for each device
-- @bool[opt] is_train as the group was bound for
function Group:forward(batch, is_train)
  local parts = is_plain(batch) and #batch > 0 and batch
  local first = parts and parts[1] or batch
  load(self.data_arrays, self.data_shapes, batch.data, parts and parts_of(parts, "data") or nil)
  if self.label_shapes and first.label and #first.label > 0 then
    load(self.label_arrays, self.label_shapes, batch.label,
      parts and parts_of(parts, "label") or nil)
  end
  if is_train == nil then
    is_train = self.for_training
  end
  for _, exe in ipairs(self.execs) do
    exe:forward(is_train)
  end
end


local function heads_for(self, out_grads, i)
  local heads = {}
  for k, g in ipairs(out_grads) do
    local x = value(g)
    if x then
      x = class.is_array(x) and x or nd._as_array(x, "float32", FUNC .. ":backward")
      heads[k] = rows.cut(x, self._output_axes[k] or 0, self.slices[i])
        :as_in_context(self.contexts[i])
    else
      heads[k] = null
    end
  end
  return heads
end


--- Computes gradients on all devices.
-- @param[opt] out_grads an array or a list: gradients of the outputs, for heads that are no losses
function Group:backward(out_grads)
  if not self.for_training then
    Error.raise{ code = "state", func = FUNC .. ":backward",
      message = "the executors were bound without training" }
  end
  local list = value(out_grads)
  list = class.is_array(list) and { list } or list
  for i, exe in ipairs(self.execs) do
    if self._learned then
      self._learned.backward(exe, list and heads_for(self, list, i))
    elseif list then
      exe:backward{ out_grads = heads_for(self, list, i) }
    else
      exe:backward()
    end
  end
end


local function merged(lists, merge, axis_of)
  if not merge then
    return lists
  end
  local result = {}
  for k, parts in ipairs(lists) do
    result[k] = rows.join(parts, axis_of(k))
  end
  return result
end


--- Outputs: joined over devices, or a list over devices for each. A single
-- device's are the executor's own.
-- @bool[opt=true] merge
-- @int[opt=0] begin first output, from 0
-- @int[opt] stop the output after the last
function Group:get_outputs(merge, begin, stop)
  local lists = {}
  begin, stop = begin or 0, stop or #self.output_names
  for k = begin + 1, stop do
    lists[k - begin] = {}
    for i, exe in ipairs(self.execs) do
      lists[k - begin][i] = exe.outputs[k]
    end
  end
  return merged(lists, merge ~= false, function(k) return self._output_axes[k + begin] end)
end


--- `{name, shape}` of each output, with the whole batch's rows.
function Group:get_output_shapes()
  local list = {}
  for k, name in ipairs(self.output_names) do
    local shape, axis = self.execs[1].outputs[k].shape, self._output_axes[k]
    if axis >= 0 and shape[axis + 1] then
      shape[axis + 1] = self.batch_size
    end
    list[k] = { name, shape }
  end
  return list
end


--- Gradients of the data inputs, in their order.
-- @bool[opt=true] merge
function Group:get_input_grads(merge)
  if not self.inputs_need_grad then
    Error.raise{ code = "state", func = FUNC .. ":get_input_grads",
      message = "bind with inputs_need_grad = true" }
  end
  return merged(self.input_grad_arrays, merge ~= false, function(k)
    return rows.axis(self.data_shapes[k])
  end)
end


-- States ------------------------------------------------------------------------------------------

--- States: joined over devices, or a list over devices for each.
-- @bool[opt=true] merge
function Group:get_states(merge)
  return merged(self.state_arrays, merge ~= false, function() return 0 end)
end


-- The part of a given state that belongs on device i: entry i of a list, or its rows.
local function state_part(self, state, i)
  if is_plain(state) then
    return state[i]
  end
  return rows.cut(state, 0, self.slices[i])
end


--- Sets states from arrays (a list over devices, or one array, for each), or all to a number.
-- @tparam ?table states
-- @tparam ?number number
function Group:set_states(states, number)
  if (value(states) == nil) == (value(number) == nil) then
    Error.raise{ code = "value", func = FUNC .. ":set_states", expected = "either states or value",
      got = states and "both" or "neither", message = "give either 'states' or 'value'" }
  end
  if states and #states ~= #self.state_names then
    Error.raise{ code = "value", func = FUNC .. ":set_states", argument = "states",
      expected = #self.state_names,
      got = #states, message = "'states' has not one entry for each state" }
  end
  for k, places in ipairs(self.state_arrays) do
    for i, x in ipairs(places) do
      if states then
        call.copy(x, state_part(self, states[k], i), FUNC .. ":set_states", self.state_names[k])
      else
        call.fill(x, number, FUNC .. ":set_states")
      end
    end
  end
end


-- Watching ----------------------------------------------------------------------------------------

local function named(names, list)
  local pairs_of = {}
  for k, name in ipairs(names) do
    pairs_of[#pairs_of + 1] = list[k] and { name, list[k] } or nil
  end
  return pairs_of
end


local function labels_for(self, labels, i, pre_sliced)
  if pre_sliced then
    return labels[i]
  end
  local list = {}
  for k, x in ipairs(labels or {}) do
    local d = self.label_shapes and self.label_shapes[k]
    list[k] = class.is_array(x) and rows.cut(x, d and rows.axis(d) or 0, self.slices[i]) or x
  end
  return list
end


--- Shows labels and outputs to a metric, once for each device.
-- @param metric
-- @tparam {NDArray,...} labels
-- @bool[opt=false] pre_sliced `labels[i]` are those of device i
function Group:update_metric(metric, labels, pre_sliced)
  for i, exe in ipairs(self.execs) do
    local own = labels_for(self, labels, i, pre_sliced)
    metric:update_dict(named(self.label_names, own), named(self.output_names, exe.outputs))
  end
end


--- Has a monitor watch all executors, later ones too.
function Group:install_monitor(monitor)
  self._monitors[#self._monitors + 1] = monitor
  for _, set in ipairs(self._sets) do
    for _, exe in ipairs(set.execs) do
      monitor:install(exe)
    end
  end
end


--- Bytes over all devices: planned (of the current executors), pages (the same in whole pages, as
-- pools have them), pool (what all sharing executors have together), params, grads, aux.
function Group:memory()
  local m = { planned = 0, pages = 0, pool = 0, params = 0, grads = 0, aux = 0 }
  for i, exe in ipairs(self.execs) do
    local of_exe, bank = exe:memory(), self._banks[i]
    m.planned, m.pool = m.planned + of_exe.planned, m.pool + of_exe.pool
    m.pages = m.pages + math.ceil(of_exe.planned / PAGE) * PAGE
    for kind, field in pairs{ args = "params", grads = "grads", auxs = "aux" } do
      for _, x in pairs(bank[kind]) do
        m[field] = m[field] + x._size * class.BYTES[x._dtype]
      end
    end
  end
  return m
end


--- Gives all executors of this group back; arrays and what other groups use stay.
function Group:free()
  for _, set in ipairs(self._sets) do
    drop_set(self, set)
  end
  self._sets = {}
end


return Group
