--- Runs a group of executors: loads batches, returns outputs and gradients. Adds methods to
-- DataParallelExecutorGroup.
--
-- @module tycho.module.group_running

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local attempt = require "tycho.core.attempt"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local name_values = require "tycho.core.name_values"
local executor = require "tycho.executor.executor"
local nd = require "tycho.ndarray"
local output_labels = require "tycho.module.output_labels"
local slices = require "tycho.module.batch_slices"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local null, value, is_plain = values.null, values.value, values.is_plain

local Group = {}                                         -- methods, for module/executor_group.lua

local FUNC = "Module"                                   -- who usually has groups, for errors


-- Running -----------------------------------------------------------------------------------------

-- Returns an array of a batch, made from a nested table if needed; E(shape) unless it has the bound
-- shape, E(value) if there is none.
local function make_array(x, d, shape, dtype)
  if is_plain(x) then
    x = nd._as_array(x, dtype, FUNC .. ":forward")
  elseif not class.is_array(x) then
    Error.raise{ code = "value", func = FUNC .. ":forward", argument = d.name,
      expected = "an NDArray",
      got = Error.kind(x), message = ("the batch has no array for '%s'"):format(d.name) }
  end
  if not tables.same(x._shape, shape) then
    Error.raise{ code = "shape", func = FUNC .. ":forward", argument = d.name, expected = shape,
      got = x.shape, message = ("the batch's '%s' has another shape than is bound for its data")
        :format(d.name) }
  end
  return x
end


-- Raises E(value) for a batch with more data arrays than are bound.
local function check_count(descs, list)
  if #list > #descs then
    Error.raise{ code = "value", func = FUNC .. ":forward", argument = "data_batch",
      expected = #descs, got = #list,
      message = ("the batch has %d arrays of data, of which %d are \z
        bound"):format(#list, #descs) }
  end
end


-- Copies the arrays of a batch to the bound arrays. If the batch comes in parts, `sources[i]` holds
-- the arrays for device i; else each array of `list` is cut along its batch axis.
local function load(slots, descs, list, sources)
  for k, slots_of in ipairs(slots) do
    local d = descs[k]
    for i, slot in ipairs(slots_of) do
      local part
      if sources then
        part = make_array(sources[i][k], d, slot[2]._shape, slot[2].dtype)
      else
        part = slices.cut(make_array(list[k], d, d.shape, slot[2].dtype),
          descriptions.batch_axis(d), slot[1])
      end
      call.copy(slot[2], part, FUNC .. ":forward", d.name)
    end
  end
end


local function list_parts(batches, kind)
  local list = {}
  for i, batch in ipairs(batches) do
    list[i] = batch[kind] or {}
  end
  return list
end


--- Loads a batch and runs forward on all devices.
-- @param batch a batch, or a list with one for each device
-- @bool[opt] is_train default: whether the group was bound for training
function Group:forward(batch, is_train)
  local parts = is_plain(batch) and #batch > 0 and batch
  local first = parts and parts[1] or batch
  check_count(self.data_shapes, first.data)
  load(self.data_arrays, self.data_shapes, batch.data, parts and list_parts(parts, "data") or nil)
  local labelled = self.label_shapes and first.label and #first.label > 0
  if labelled then
    load(self.label_arrays, self.label_shapes, batch.label,
      parts and list_parts(parts, "label") or nil)
  end
  if is_train == nil then
    is_train = self.for_training
  end
  self._missing_label = is_train and not labelled and self._label_arguments[1] or nil
  self:bring_states()
  for _, exe in ipairs(self.execs) do
    exe:forward(is_train)
  end
end


-- Runs a bare executor on the arrays of device i, with copies of the auxiliary states, and returns
-- the error of the first NaN or infinity, if any.
local function bad_number(self, i)
  local arg_dict, aux_dict, auxs = self.execs[i].arg_dict, self.execs[i].aux_dict, {}
  for _, name in ipairs(self.aux_names) do
    auxs[name] = aux_dict[name]:copy()
  end
  local probe = executor.bind(self.symbol, { ctx = self.contexts[i], args = arg_dict,
    grad_req = "null", aux_states = auxs, group2ctx = self._group2ctxs[i] })
  probe:check_numerics()
  local ok, e = attempt(function()
    for _, x in ipairs(probe:forward(true)) do
      x:wait_to_read()
    end
  end)
  probe:free()
  return not ok and e or nil
end


--- Runs the last batch again up to the first NaN or infinity. Returns nil if backward updates the
-- parameters, which are then no longer the same (not for users).
-- @treturn ?Error that names the node
function Group:first_bad_number()
  for i = 1, self._fusion and 0 or #self.execs do
    local e = bad_number(self, i)
    if Error.is_error(e) and e.node then
      return e
    end
  end
end


-- Returns the range of an output's rows on device i, and the number of rows on all devices.
local function output_range(self, k, axis, i)
  local range, total = { 0, 0 }, 0
  for j, exe in ipairs(self.execs) do
    local rows = exe.outputs[k] and exe.outputs[k]._shape[axis + 1] or 0
    if j == i then
      range = { total, total + rows }
    end
    total = total + rows
  end
  return range, total
end


-- Returns the part of an output's gradient that belongs to device i. With a single device the
-- executor checks its shape.
local function head_part(self, x, k, i)
  local axis = self._output_axes[k] or 0
  if #self.execs == 1 or axis < 0 then
    return x
  end
  local range, total = output_range(self, k, axis, i)
  if x._shape[axis + 1] ~= total then
    Error.raise{ code = "shape", func = FUNC .. ":backward", argument = "out_grads",
      expected = ("%d along axis %d, as the output has"):format(total, axis), got = x.shape,
      message = ("the gradient of output %d ('%s') has another number of rows"):format(k,
        self.output_names[k] or "?") }
  end
  return slices.cut(x, axis, range)
end


-- Returns the gradients of all outputs for device i; `null` for missing ones.
local function heads_for(self, out_grads, i)
  local heads = {}
  for k, g in ipairs(out_grads) do
    local x = value(g)
    if x then
      x = class.is_array(x) and x or nd._as_array(x, "float32", FUNC .. ":backward")
      heads[k] = head_part(self, x, k, i):as_in_context(self.contexts[i])
    else
      heads[k] = null
    end
  end
  return heads
end


--- Computes gradients on all devices.
-- @param[opt] out_grads an array or a list: gradients of the outputs, for heads that are not losses
function Group:backward(out_grads)
  if not self.for_training then
    Error.raise{ code = "state", func = FUNC .. ":backward",
      message = "the executors were bound without training" }
  elseif self._missing_label then
    Error.raise{ code = "state", func = FUNC .. ":backward", argument = self._missing_label,
      expected = "a batch with labels", got = "a batch without labels",
      message = ("the gradient needs '%s', which the last batch did not give")
        :format(self._missing_label) }
  end
  local list = value(out_grads)
  list = class.is_array(list) and { list } or list
  if list ~= nil and type(list) ~= "table" then
    Error.raise{ code = "type", func = FUNC .. ":backward", argument = "out_grads",
      expected = "an NDArray or a list of them", got = Error.kind(list),
      message = "bad 'out_grads'" }
  end
  for i, exe in ipairs(self.execs) do
    if self._fusion then
      self._fusion.backward(exe, list and heads_for(self, list, i))
    elseif list then
      exe:backward{ out_grads = heads_for(self, list, i) }
    else
      exe:backward()
    end
  end
end


--- Returns outputs, joined over devices, or for each a list over devices. With one device they are
-- the executor's internal arrays.
-- @bool[opt=true] merge
-- @int[opt=0] begin first output, from 0
-- @int[opt] stop the output after the last, from 0
function Group:get_outputs(merge, begin, stop)
  local lists = {}
  begin, stop = begin or 0, stop or #self.output_names
  for k = begin + 1, stop do
    lists[k - begin] = {}
    for i, exe in ipairs(self.execs) do
      lists[k - begin][i] = exe.outputs[k]
    end
  end
  return slices.merged(lists, merge ~= false, function(k) return self._output_axes[k + begin] end)
end


--- Returns `{name, shape}` of each output; the shape has the rows of the whole batch.
function Group:get_output_shapes()
  local list = {}
  for k, name in ipairs(self.output_names) do
    local shape, axis = self.execs[1].outputs[k].shape, self._output_axes[k]
    if axis >= 0 and shape[axis + 1] then
      shape[axis + 1] = self.batch_size
    end
    list[k] = { name, shape }
  end
  return name_values(list)
end


--- Returns the gradients of the data inputs, in their bound order.
-- @bool[opt=true] merge
function Group:get_input_grads(merge)
  if not self.inputs_need_grad then
    Error.raise{ code = "state", func = FUNC .. ":get_input_grads",
      message = "bind with inputs_need_grad = true" }
  end
  return slices.merged(self.input_grad_arrays, merge ~= false, function(k)
    return descriptions.batch_axis(self.data_shapes[k])
  end)
end


-- Metrics -----------------------------------------------------------------------------------------

-- Returns `{name, x}` for each name that has an entry in the list.
local function named(names, list)
  local pairs_of = {}
  for k, name in ipairs(names) do
    pairs_of[#pairs_of + 1] = list[k] and { name, list[k] } or nil
  end
  return pairs_of
end


-- Returns the names of the labels in their order within a batch.
local function label_names(self, count)
  local descs = self.label_shapes or self.label_descs
  local names = descs and descriptions.names(descs) or self._label_arguments
  if #names > 0 then
    return names
  end
  names = {}
  for k = 1, count do
    names[k] = ("label%d"):format(k - 1)                 -- of a symbol without labels
  end
  return names
end


--- Returns `{name, label}` for each label, in the order of the outputs that they belong to (not for
-- users).
-- @tparam {NDArray,...} labels in their order within a batch
function Group:named_labels(labels)
  local list = named(label_names(self, #labels), labels)
  local names = {}
  for k, pair in ipairs(list) do
    names[k] = pair[1]
  end
  local key = table.concat(names, "\n")
  if key ~= self._ordered_labels then
    self._ordered_labels, self._label_order = key, output_labels.order(self.symbol, names)
  end
  return self._label_order and tables.pick(list, self._label_order) or list
end


-- Returns the rows of a label that belong to device i; E(shape) if it has other rows than the
-- batch.
local function label_part(self, x, k, i)
  local descs = self.label_shapes or self.label_descs
  local axis = descs and descs[k] and descriptions.batch_axis(descs[k]) or 0
  if #self.execs > 1 and axis >= 0 and x._shape[axis + 1] ~= self.batch_size then
    Error.raise{ code = "shape", func = FUNC .. ":update_metric", argument = "labels",
      expected = ("%d along axis %d, the rows of the batch"):format(self.batch_size, axis),
      got = x.shape, message = ("label %d cannot be divided among the devices"):format(k) }
  end
  return #self.execs > 1 and slices.cut(x, axis, self.slices[i]) or x
end


-- Returns the labels of device i.
local function labels_for(self, labels, i, pre_sliced)
  if pre_sliced then
    return labels[i]
  end
  local list = {}
  for k, x in ipairs(labels or {}) do
    list[k] = class.is_array(x) and label_part(self, x, k, i) or x
  end
  return list
end


--- Updates a metric with labels and outputs, once for each device.
-- @param metric
-- @tparam {NDArray,...} labels
-- @bool[opt=false] pre_sliced `labels[i]` are those of device i
function Group:update_metric(metric, labels, pre_sliced)
  for i, exe in ipairs(self.execs) do
    local own = labels_for(self, labels, i, pre_sliced)
    metric:update_dict(self:named_labels(own), named(self.output_names, exe.outputs))
  end
end


return Group
