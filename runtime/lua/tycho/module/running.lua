--- Running a Module: forward with batches of any shape, backward. Adds methods to Module.
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


-- Shapes of a batch's data; for a list of batches, those of all together.
local function shapes_of(self, batch)
  local parts, shapes = is_plain(batch) and batch, {}
  for k, x in ipairs((parts and parts[1] or batch).data or {}) do
    local bound = self._exec_group.data_shapes[k]
    local shape = class.is_array(x) and x.shape
      or nd._as_array(x, "float32", "Module:forward").shape
    local axis = bound and descriptions.batch_axis(bound) or -1
    if parts and axis >= 0 then
      shape[axis + 1] = shape[axis + 1] * #parts
    end
    shapes[k] = shape
  end
  return shapes
end


local function describe_like(bound, shapes)
  local list = {}
  for k, d in ipairs(bound) do
    list[k] = io_data.DataDesc(d.name, shapes[k] or d.shape, d.dtype, d.layout or null)
  end
  return list
end


local function label_shapes_of(self, batch, parts)
  local shapes = {}
  for k, x in ipairs(batch.label) do
    shapes[k] = x.shape
    shapes[k][1] = shapes[k][1] * (parts and #parts or 1)
  end
  return describe_like(self._exec_group.label_shapes, shapes)
end


-- Whether the batch has the shapes of the current executors. Runs for every
-- batch, so it makes no tables.
local function fits(group, batch)
  local list, bound = batch.data, group.data_shapes
  local same = list and #list == #bound
  for k = 1, same and #bound or 0 do
    local x = list[k]
    same = same and class.is_array(x) and tables.same(x._shape, bound[k].shape)
  end
  return same
end


-- The first input that differs from what is bound, and what it should be: its size of the batch may
-- be any, unless that alone makes the difference.
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


--- Goes on with executors for other shapes (not for users). Of a parameter that would have another
-- shape the cause is told: the input from which that follows.
-- @tparam {DataDesc,...} data
-- @tparam ?table labels descriptions
-- @string func for errors
function Module:_reshape(data, labels, func)
  local group = self._exec_group
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


-- Reshapes when the batch has other shapes than the current executors.
local function adapt(self, batch)
  local group = self._exec_group
  if fits(group, batch) then
    return
  end
  local shapes = shapes_of(self, batch)
  local same = #shapes == #group.data_shapes
  for k, d in ipairs(group.data_shapes) do
    same = same and tables.same(shapes[k], d.shape)
  end
  if same then
    return
  end
  local parts = is_plain(batch) and batch
  local first = parts and parts[1] or batch
  local data = not parts and first.provide_data or describe_like(group.data_shapes, shapes)
  local labels = not parts and first.provide_label or nil
  if not labels and group.label_shapes and first.label and #first.label > 0 then
    labels = label_shapes_of(self, first, parts)
  end
  data = descriptions.list(data, "Module:forward", "data_shapes")
  self:_reshape(data, labels, "Module:forward")
end


local FORWARD = args.form("Module:forward", { { "data_batch", "any" }, { "is_train", "boolean?" } })

--- Runs a batch forward; batches of other shapes than bound are fine.
-- @param data_batch DataBatch, table `{data = ..., label = ...}`, or a list of
--   batches, one for each device
-- @bool[opt] is_train as bound
function Module:forward(data_batch, is_train)
  self:_need("forward", "binded", "params_initialized")
  if is_train == nil and is_plain(data_batch) and data_batch.data_batch then
    local a = FORWARD(data_batch)
    data_batch, is_train = a.data_batch, a.is_train
  end
  local batch = BaseModule._batch(data_batch, "Module:forward")
  adapt(self, batch)
  self:_cut_backward()
  self._exec_group:forward(batch, is_train)
end


function Module:_first_bad_number()
  return self._exec_group:first_bad_number()
end


local BACKWARD = args.form("Module:backward", { list = true, { "out_grads", "any?" } })

--- Computes the gradients of the last forward.
-- @param[opt] out_grads gradients of the outputs, for heads that are no losses
function Module:backward(...)
  self:_need("backward", "binded", "params_initialized", "for_training")
  self._exec_group:backward(select("#", ...) > 0 and BACKWARD(...).out_grads or nil)
  self:_end_backward()
end


return Module
