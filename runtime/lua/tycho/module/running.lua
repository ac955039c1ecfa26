--- Runs a Module: forward with batches of any shape, backward. Adds methods to Module.
--
-- @module tycho.module.running

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local BaseModule = require "tycho.module.base"
local class = require "tycho.ndarray.class"
local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local io_data = require "tycho.io.data"
local nd = require "tycho.ndarray"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local is_plain, null = values.is_plain, values.null

local Module = {}                                        -- methods, for module/module.lua


-- Batches -----------------------------------------------------------------------------------------

-- Returns a batch with its arrays in bound order; the names in its descriptions, if any, tell their
-- order.
local function in_bound_order(self, batch)
  local group = self._exec_group
  local data = descriptions.order(batch.provide_data, group.data_shapes)
  local labels = descriptions.order(batch.provide_label, self:_bound_labels())
  if not (data or labels) then
    return batch
  end
  local function ordered(list, order)
    return order and list and tables.pick(list, order) or list
  end
  return io_data.DataBatch{
    data = ordered(batch.data, data), provide_data = ordered(batch.provide_data, data),
    label = ordered(batch.label, labels), provide_label = ordered(batch.provide_label, labels),
  }
end


local function all_in_bound_order(self, batch)
  if not is_plain(batch) then
    return in_bound_order(self, batch)
  end
  local list = {}
  for i, part in ipairs(batch) do
    list[i] = in_bound_order(self, part)
  end
  return list
end


-- Returns the shapes of a batch's arrays; for a list of batches, those of all batches joined.
local function list_shapes(list, bound, parts)
  local shapes = {}
  for k, x in ipairs(list or {}) do
    local shape = class.is_array(x) and x.shape
      or nd._as_array(x, "float32", "Module:forward").shape
    local axis = bound and bound[k] and descriptions.batch_axis(bound[k]) or 0
    if parts and axis >= 0 and shape[axis + 1] then
      shape[axis + 1] = shape[axis + 1] * #parts
    end
    shapes[k] = shape
  end
  return shapes
end


-- Returns copies of descriptions with other shapes.
local function describe_like(descs, shapes)
  local list = {}
  for k, d in ipairs(descs) do
    list[k] = io_data.DataDesc(d.name, shapes[k] or d.shape, d.dtype, d.layout or null)
  end
  return list
end


-- Returns whether the batch's data have the shapes of the current executors. It runs for every
-- batch, so it makes no tables.
local function data_fit(group, batch)
  local list, bound = batch.data, group.data_shapes
  local same = list and #list == #bound
  for k = 1, same and #bound or 0 do
    local x = list[k]
    same = same and class.is_array(x) and tables.same(x._shape, bound[k].shape)
  end
  return same
end


-- Labels ------------------------------------------------------------------------------------------

--- Returns the descriptions of the labels from bind, or else their names (not for users).
function Module:_bound_labels()
  return self._exec_group.label_shapes or self._exec_group.label_descs or self._label_arguments
end


local function has_labels(batch)
  return batch.label ~= nil and #batch.label > 0
end


-- Returns whether the current executors can take the labels of a batch. A training batch's labels
-- need executors with labels, even if earlier batches had none. Label shapes are compared only if
-- the bound ones were derived, not given.
local function labels_fit(self, first, is_train)
  local group = self._exec_group
  local bound = group.label_shapes
  local count = bound and #bound or 0
  if not has_labels(first) or count == 0 and not is_train then
    return true
  elseif count < #self._label_arguments and count < #first.label and self._for_training then
    return false
  end
  local same = true
  for k = 1, group:has_guessed_labels() and count or 0 do
    local x = first.label[k]
    same = same and class.is_array(x) and tables.same(x._shape, bound[k].shape)
  end
  return same
end


-- Returns element types of undescribed labels: inferred from the data, else float32.
local function label_types(self, data)
  local types, found = {}, {}
  for _, d in ipairs(data) do
    types[d.name] = d.dtype
  end
  local inferred = self._symbol:infer_type_partial(types)
  for i, name in ipairs(self._symbol:list_arguments()) do
    found[name] = values.value(inferred[i])
  end
  return found
end


-- Returns the names of a batch's labels: the batch's, if the symbol has them all; else those that
-- were bound, or the module's.
local function label_names(self, first)
  local names = descriptions.names(
    descriptions.list(first.provide_label, "Module:forward", "provide_label"))
  local known = tables.positions(self._label_arguments)
  local own = #names >= #first.label
  for _, name in ipairs(names) do
    own = own and known[name] ~= nil
  end
  local bound = self._exec_group.label_shapes
  return own and names or bound and #bound >= #first.label and descriptions.names(bound)
    or self._label_arguments
end


-- Returns the descriptions of a batch's labels.
local function describe_labels(self, first, parts, data)
  local known, names, types, descs = {}, label_names(self, first), nil, {}
  for _, list in ipairs{ self._exec_group.label_descs or {},
      descriptions.list(first.provide_label, "Module:forward", "provide_label") or {} } do
    for _, d in ipairs(list) do
      known[d.name] = d
    end
  end
  for k = 1, math.min(#names, #first.label) do
    types = types or not known[names[k]] and label_types(self, data) or nil
    descs[k] = known[names[k]] or io_data.DataDesc(names[k], {}, types[names[k]])
  end
  return describe_like(descs, list_shapes(first.label, descs, parts))
end


-- Returns descriptions of labels with the batch size of the given data.
local function scale_labels(labels, data)
  local rows, shapes = nil, {}
  for _, d in ipairs(data) do
    local axis = descriptions.batch_axis(d)
    rows = rows or axis >= 0 and d.shape[axis + 1] or nil
  end
  for k, d in ipairs(labels) do
    local axis = descriptions.batch_axis(d)
    shapes[k] = tables.copied(d.shape)
    if axis >= 0 and rows then
      shapes[k][axis + 1] = rows
    end
  end
  return describe_like(labels, shapes)
end


-- Returns the first input whose shape differs from the bound one, and the expected shape, in which
-- the batch size is the input's unless only the batch size differs.
local function misfit(bound, data)
  for k, d in ipairs(data) do
    local want, axis = tables.copied(bound[k].shape), descriptions.batch_axis(bound[k])
    if not tables.same(d.shape, want) then
      if axis >= 0 then
        want[axis + 1] = d.shape[axis + 1]
      end
      return d, tables.same(d.shape, want) and bound[k].shape or want
    end
  end
end


--- Raises E(shape) for shapes that the network does not support (not for users). This one accepts
-- all; a module made from a file may replace it.
-- @tparam {DataDesc,...} data
-- @string func for errors
function Module:_accept_shapes(data, func)                  -- luacheck: ignore self data func
end


--- Binds executors for other shapes (not for users). If this would change the shape of a parameter,
-- the error names the input that causes it.
-- @tparam {DataDesc,...} data
-- @tparam ?table labels descriptions
-- @string func for errors
function Module:_reshape(data, labels, func)
  local group = self._exec_group
  self:_accept_shapes(data, func)
  self:_release_inputs()
  local ok, e = pcall(group.reshape, group, data, labels)
  if ok then
    return
  end
  local d, want
  if Error.is_error(e) and e.code == "shape" and group._is_param[e.argument] then
    d, want = misfit(group.data_shapes, data)
  end
  if not d then
    error(e, 0)
  end
  Error.raise{ code = "shape", func = func, argument = d.name, expected = want,
    got = d.shape, message = ("'%s' does not fit the parameters: '%s' has shape %s, not %s")
      :format(d.name, e.argument, Error.show(e.expected), Error.show(e.got)) }
end


-- Binds executors for a batch without labels. If labels were bound before, the executors have
-- labels too, since later batches of this size may have them.
local function reshape_unlabelled(self, data)
  local group = self._exec_group
  if group:choose_by_data(data) then
    return
  elseif group.label_descs then
    local labels = scale_labels(group.label_descs, data)
    local ok, e = pcall(self._reshape, self, data, labels, "Module:forward")
    if ok then
      return group:guess_labels()
    elseif not Error.is_error(e) or e.code ~= "shape" then
      error(e, 0)
    end
  end
  self:_reshape(data, nil, "Module:forward")
end


-- Binds again if the batch's shapes differ from those of the current executors, or if these lack
-- its labels.
local function adapt(self, batch, is_train)
  local group = self._exec_group
  local parts = is_plain(batch) and batch
  local first = parts and parts[1] or batch
  local with_labels = labels_fit(self, first, is_train)
  if with_labels and data_fit(group, batch) then
    return
  end
  local shapes = list_shapes(first.data, group.data_shapes, parts)
  local same = #shapes == #group.data_shapes
  for k, d in ipairs(group.data_shapes) do
    same = same and tables.same(shapes[k], d.shape)
  end
  if same and with_labels then
    return
  end
  local described = not parts
    and descriptions.list(first.provide_data, "Module:forward", "data_shapes")
  local data = describe_like(described or group.data_shapes, shapes)
  if has_labels(first) and (group.label_descs or is_train) and #self:_bound_labels() > 0 then
    self:_reshape(data, describe_labels(self, first, parts, data), "Module:forward")
  else
    reshape_unlabelled(self, data)
  end
end


local FORWARD = args.form("Module:forward", { { "data_batch", "any" }, { "is_train", "boolean?" } })

--- Runs a batch forward. Its shapes may differ from the bound ones; new executors are then bound.
-- @param data_batch DataBatch, table `{data = ..., label = ...}`, or a list of
--   batches, one for each device
-- @bool[opt] is_train default: `for_training` of bind
function Module:forward(data_batch, is_train)
  self:_need("forward", "binded", "params_initialized")
  if is_train == nil and is_plain(data_batch) and data_batch.data_batch then
    local a = FORWARD(data_batch)
    data_batch, is_train = a.data_batch, a.is_train
  end
  if is_train == nil then
    is_train = self._for_training
  end
  local batch = all_in_bound_order(self, BaseModule._batch(data_batch, "Module:forward"))
  adapt(self, batch, is_train)
  self:_cut_backward()
  self._exec_group:forward(batch, is_train)
end


function Module:_first_bad_number()
  return self._exec_group:first_bad_number()
end


local BACKWARD = args.form("Module:backward", { list = true, { "out_grads", "any?" } })

--- Computes the gradients for the last forward.
-- @param[opt] out_grads gradients of the outputs, for heads that are not losses
function Module:backward(...)
  self:_need("backward", "binded", "params_initialized", "for_training")
  self._exec_group:backward(select("#", ...) > 0 and BACKWARD(...).out_grads or nil)
  self:_end_backward()
end


return Module
