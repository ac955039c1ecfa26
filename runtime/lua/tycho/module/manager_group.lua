--- The groups of executors of `ty.executor_manager`: one symbol on several devices, each with a
-- range of the batch's rows, `{begin, end}`, counted from 0, the end excluded.
--
-- @module tycho.module.manager_group

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local attempt = require "tycho.core.attempt"
local bind_executor = require "tycho.module.bind_executor"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local output_labels = require "tycho.module.output_labels"
local slices = require "tycho.module.batch_slices"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local is_plain, null, value = values.is_plain, values.null, values.value

local parts = { _bind_exec = bind_executor }


-- Functions ---------------------------------------------------------------------------------------

local SPLIT = args.form("executor_manager._split_input_slice", {
  { "batch_size", "integer" }, { "work_load_list", "list" },
})

--- Returns the rows of each device, `{{begin, end}, ...}`; E(value) if a device gets none.
-- @int batch_size
-- @tparam {number,...} work_load_list weights of the devices
function parts._split_input_slice(...)
  local a = SPLIT(...)
  return slices.split(a.batch_size, a.work_load_list, "executor_manager._split_input_slice")
end


local CHECK = args.form("executor_manager._check_arguments", { { "symbol", "symbol" } })

--- Raises E(name) for a symbol with two arguments or two auxiliary states of the same name.
function parts._check_arguments(...)
  local net = CHECK(...).symbol
  for what, list in pairs{ argument = net:list_arguments(),
      ["auxiliary state"] = net:list_auxiliary_states() } do
    local seen = {}
    for _, name in ipairs(list) do
      if seen[name] then
        Error.raise{ code = "name", func = "executor_manager._check_arguments", argument = name,
          message = ("two variables are called '%s'; each %s needs a different name")
            :format(name, what) }
      end
      seen[name] = true
    end
  end
end


local function check_rows(source, ranged, func, name)
  local last = ranged[#ranged][1][2]
  if last ~= source._shape[1] then
    Error.raise{ code = "shape", func = func, argument = name, expected = last .. " rows",
      got = source.shape,
      message = "the batch has another number of rows than the devices share" }
  end
end


-- Copies arrays to targets; a target is an array, or a list of {range, array} over devices.
-- `names`, if given, are the names of the targets, for errors.
local function load_general(data, targets, func, names)
  for k, target in ipairs(targets) do
    local source, name = data[k], names and names[k]
    if not class.is_array(source) then
      Error.raise{ code = "value", func = func, argument = name, expected = "an NDArray",
        got = Error.kind(source),
        message = ("the batch has no array %s"):format(name and ("'%s'"):format(name) or k) }
    elseif class.is_array(target) then
      call.copy(target, source, func, name)
    else
      check_rows(source, target, func, name)
      for _, slot in ipairs(target) do
        call.copy(slot[2], slices.cut(source, 0, slot[1]), func, name)
      end
    end
  end
end


--- Copies arrays into targets; a target is an NDArray, or a list of `{{begin, end}, NDArray}`.
-- @tparam {NDArray,...} data
-- @tparam table targets
function parts._load_general(data, targets)
  load_general(data, targets, "executor_manager._load_general")
end


--- Copies a batch's data into targets; see `_load_general`.
function parts._load_data(batch, targets)
  load_general(batch.data or {}, targets, "executor_manager._load_data")
end


--- Copies a batch's labels into targets; see `_load_general`.
function parts._load_label(batch, targets)
  load_general(batch.label or {}, targets, "executor_manager._load_label")
end


-- The group ---------------------------------------------------------------------------------------

--- Executors of one symbol, one for each device.
-- @type DataParallelExecutorGroup
local Group = Class:extend("DataParallelExecutorGroup")
parts.DataParallelExecutorGroup = Group

local FUNC = "executor_manager.DataParallelExecutorGroup"

local NEW = args.form(FUNC, {
  { "sym", "symbol" }, { "arg_names", "list" }, { "param_names", "list" },
  { "ctx", "list|context" }, { "slices", "list" }, { "train_data", "any" },
  { "shared_group", "any?" },
})


--- Returns a list of contexts, checked, from one context or a list (not for users).
function parts._contexts(given, func)
  local list = is_plain(given) and given or { given }
  for _, ctx in ipairs(list) do
    if not Class.is_a(ctx, context.Context) then
      Error.raise{ code = "type", func = func, argument = "ctx", expected = "contexts",
        got = Error.kind(ctx), message = "bad 'ctx'" }
    end
  end
  return list
end


--- Returns the descriptions that an iterator or a batch has in the field `kind` (not for users).
function parts._provided(data, kind, func)
  local ok, list = attempt(function() return data[kind] end)
  if type(data) ~= "table" or not ok or kind == "provide_data" and type(list) ~= "table" then
    Error.raise{ code = "type", func = func, argument = "train_data",
      expected = "a data iterator or a described batch", got = Error.kind(data),
      message = ("'train_data' has no '%s'"):format(kind) }
  end
  return descriptions.list(list, func, "train_data") or {}
end


local function check_group(a)
  parts._check_arguments(a.sym)
  local names = a.sym:list_arguments()
  if table.concat(names, "\n") ~= table.concat(a.arg_names, "\n") then
    Error.raise{ code = "name", func = FUNC, argument = "arg_names", candidates = names,
      message = "'arg_names' is not the symbol's list_arguments" }
  end
  local known = tables.positions(names)
  for _, name in ipairs(a.param_names) do
    if not known[name] then
      Error.unknown{ func = FUNC, argument = name, what = "parameter", names = names }
    end
  end
  if #a.ctx ~= #a.slices then
    Error.raise{ code = "value", func = FUNC, argument = "slices", expected = #a.ctx,
      got = #a.slices, message = "there is not one slice for each context" }
  end
end


-- Binds the executor of device i.
local function bind_device(self, a, i, descs)
  local shapes, types, range = {}, {}, a.slices[i]
  for _, d in ipairs(descs) do
    local shape = tables.copied(d.shape)
    shape[1] = range[2] - range[1]
    shapes[d.name], types[d.name] = shape, d.dtype
  end
  return bind_executor{ sym = a.sym, ctx = a.ctx[i], input_shapes = shapes,
    param_names = self.param_names,
    need_grad = true, base_exec = a.shared_group and a.shared_group.train_execs[i],
    shared_data_arrays = self.shared_data_arrays[i], input_types = types }
end


-- Returns, for each name, a list over devices of arrays from the executors' table `dict`, or of
-- {range, array} if `ranged`; `ty.null` for arrays that are missing.
local function over_devices(self, names, dict, ranged)
  local list = {}
  for k, name in ipairs(names) do
    list[k] = {}
    for i, exe in ipairs(self.train_execs) do
      local x = exe[dict][name] or null
      list[k][i] = ranged and { self.slices[i], x } or x
    end
  end
  return list
end


-- Stores the parameters in argument order, and their positions among the arguments (from 1).
local function order_params(self, a)
  local wanted = tables.positions(a.param_names)
  self.param_names, self.param_idx = {}, {}
  for k, name in ipairs(a.arg_names) do
    if wanted[name] then
      self.param_names[#self.param_names + 1], self.param_idx[#self.param_idx + 1] = name, k
    end
  end
end


-- Returns the names of labels without a description: arguments that are neither parameters nor
-- described, and parameters that are not described and whose names end in "label".
local function unbound_inputs(self)
  local described, is_param, list = {}, tables.positions(self.param_names), {}
  for _, names in ipairs{ self.data_names, self.label_names } do
    for _, name in ipairs(names) do
      described[name] = true
    end
  end
  for _, name in ipairs(self.arg_names) do
    local is_label = not is_param[name] or name:find("label$")
    list[#list + 1] = is_label and not described[name] and name or nil
  end
  return list
end


--- Reads the options. Fields: train_execs, slices, data_names, label_names, aux_names, param_names,
-- param_idx (positions in arg_names, from 1), data_arrays and label_arrays (per name a list over
-- devices of `{{begin, end}, array}`), param_arrays, grad_arrays, aux_arrays (per name a list over
-- devices), shared_data_arrays (by name, per device).
function Group:init(...)
  local a = NEW(...)
  a.ctx, a.shared_group = parts._contexts(a.ctx, FUNC), value(a.shared_group)
  check_group(a)
  local data, labels = parts._provided(a.train_data, "provide_data", FUNC),
    parts._provided(a.train_data, "provide_label", FUNC)
  self.sym, self.arg_names, self.ctx, self.slices = a.sym, a.arg_names, a.ctx, a.slices
  self.data_names, self.label_names = descriptions.names(data), descriptions.names(labels)
  self.aux_names = a.sym:list_auxiliary_states()
  order_params(self, a)
  self._label_arguments = unbound_inputs(self)
  self.shared_data_arrays, self.train_execs =
    a.shared_group and a.shared_group.shared_data_arrays or {}, {}
  local descs = {}
  for _, part in ipairs{ data, labels } do
    for _, d in ipairs(part) do
      descs[#descs + 1] = d
    end
  end
  for i = 1, #a.ctx do
    self.shared_data_arrays[i] = self.shared_data_arrays[i] or {}
    self.train_execs[i] = bind_device(self, a, i, descs)
  end
  self.data_arrays = over_devices(self, self.data_names, "arg_dict", true)
  self.label_arrays = over_devices(self, self.label_names, "arg_dict", true)
  self.param_arrays = over_devices(self, self.param_names, "arg_dict")
  self.grad_arrays = over_devices(self, self.param_names, "grad_dict")
  self.aux_arrays = over_devices(self, self.aux_names, "aux_dict")
end


-- Returns the arrays of a batch in the order of names; a batch that has this order is not changed.
local function in_order(list, described, names)
  local order = descriptions.order(described, names)
  return order and list and tables.pick(list, order) or list
end


--- Returns whether a batch has labels that the symbol reads but for which the group is not bound
-- (not for users).
function Group:lacks_labels(batch)
  return #self._label_arguments > 0 and #(batch.label or {}) > #self.label_names
end


--- Copies a batch to the devices.
function Group:load_data_batch(data_batch)
  local func = FUNC .. ":load_data_batch"
  if self:lacks_labels(data_batch) then
    local name = self._label_arguments[1]
    Error.raise{ code = "value", func = func, argument = name,
      expected = "a description of the label where the group is made, in 'provide_label'",
      got = "nothing", message = ("the batch has a label for '%s', and the group none")
        :format(name) }
  end
  load_general(in_order(data_batch.data or {}, data_batch.provide_data, self.data_names),
    self.data_arrays, func, self.data_names)
  load_general(in_order(data_batch.label or {}, data_batch.provide_label, self.label_names),
    self.label_arrays, func, self.label_names)
end


--- Runs all devices forward.
-- @bool[opt=false] is_train
function Group:forward(is_train)
  for _, exe in ipairs(self.train_execs) do
    exe:forward(is_train == true)
  end
end


--- Computes the gradients on all devices; the symbol ends in losses.
function Group:backward()
  for _, exe in ipairs(self.train_execs) do
    exe:backward()
  end
end


-- Returns the rows of a label that belong to device i.
local function label_part(self, x, k, i)
  local rows = self.slices[#self.slices][2]
  if x._shape[1] ~= rows then
    Error.raise{ code = "shape", func = FUNC .. ":update_metric", argument = "labels",
      expected = rows .. " rows", got = x.shape,
      message = ("label %d cannot be divided among the devices"):format(k) }
  end
  return slices.cut(x, 0, self.slices[i])
end


--- Updates a metric with labels and outputs, once for each device.
-- @param metric
-- @tparam {NDArray,...} labels of the whole batch, cut by rows
-- @bool[opt=false] pre_sliced `labels[i]` are those of device i
function Group:update_metric(metric, labels, pre_sliced)
  if self._label_order == nil then
    self._label_order = output_labels.order(self.sym, self.label_names) or false
  end
  for i, exe in ipairs(self.train_execs) do
    local own = pre_sliced and labels[i] or {}
    for k, x in ipairs(pre_sliced and {} or labels) do
      own[k] = #self.train_execs > 1 and label_part(self, x, k, i) or x
    end
    metric:update(self._label_order and tables.pick(own, self._label_order) or own, exe.outputs)
  end
end


return parts
