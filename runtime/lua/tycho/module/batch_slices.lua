--- Batch slicing: cuts arrays along their batch axis and joins the parts (not for users).
--
-- An axis counts from 0; -1 says that there is no batch axis, so every device has the whole array.
-- A range is `{begin, end}`, rows from 0, the end excluded. Rows along axis 0 are views.
--
-- @module tycho.module.batch_slices

local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local counted_from_1 = require "tycho.core.list"
local Error = require "tycho.core.error"
require "tycho.ndarray"

local slices = {}


--- Returns the rows of each device, `{{begin, end}, ...}`, in proportion to the weights, rounded
-- half to even; the last device gets the remaining rows.
-- @int batch_size rows
-- @tparam {number,...} work_load_list weights
-- @string func for errors
function slices.split(batch_size, work_load_list, func)
  local total, at, ranges = 0, 0, {}
  for _, load in ipairs(work_load_list) do
    total = total + load
  end
  local shares, given = {}, 0
  for i, load in ipairs(work_load_list) do
    local exact = load * batch_size / total
    local low = math.floor(exact)
    local up = exact - low > 0.5 or exact - low == 0.5 and low % 2 == 1
    shares[i] = up and low + 1 or low
    given = given + shares[i]
  end
  shares[#shares] = shares[#shares] + math.max(batch_size - given, 0)
  for i, share in ipairs(shares) do
    local stop = math.min(at + share, batch_size)
    if stop <= at then
      Error.raise{ code = "value", func = func, argument = "batch_size", got = batch_size,
        expected = "a row for each of " .. #shares .. " devices",
        message = ("%d rows are too few: device %d would have none"):format(batch_size, i) }
    end
    ranges[i], at = { at, stop }, stop
  end
  return ranges
end


--- Returns rows `from` (from 0) to `to` (excluded) along axis 0 as a view.
function slices.view(x, from, to)
  local shape = x.shape
  if from == 0 and to == shape[1] then
    return x
  end
  local row = x._size / shape[1] * class.BYTES[x._dtype]
  shape[1] = to - from
  return class.view(x, shape, from * row, "batch slice")
end


--- Returns the part of an array that belongs to a range of the batch.
-- @tparam NDArray x
-- @int axis
-- @tparam {int,int} range
function slices.cut(x, axis, range)
  local size = axis >= 0 and x._shape[axis + 1]
  if not size or range[1] == 0 and range[2] == size then
    return x
  elseif axis == 0 then
    return slices.view(x, range[1], range[2])
  end
  return call.params("slice_axis", "batch slice", { x },
    { "axis", call.number(axis), "begin", call.number(range[1]), "end", call.number(range[2]) })
end


--- Joins the parts of all devices to one array on the device of the first part.
-- @tparam {NDArray,...} parts
-- @int axis -1: the result is the first part
function slices.join(parts, axis)
  if #parts == 1 or axis < 0 then
    return parts[1]
  end
  local list = {}
  for i, part in ipairs(parts) do
    list[i] = part:as_in_context(parts[1].context)
  end
  return call.params("Concat", "batch slice", list, { "dim", call.number(axis) })
end


--- Joins lists over devices, one list for each output, gradient or state, to one array each.
-- @tparam table lists
-- @bool merge false: returns the lists unchanged
-- @tparam function axis_of position of a list -> the axis along which it is joined
function slices.merged(lists, merge, axis_of)
  if not merge then
    return lists
  end
  local result = {}
  for k, parts in ipairs(lists) do
    result[k] = slices.join(parts, axis_of(k))
  end
  return counted_from_1(result)
end


--- Writes the mean of a parameter's copies on all devices into an array.
-- @tparam NDArray to converted to its element type
-- @tparam {NDArray,...} copies
-- @string func for errors
-- @string name for errors
function slices.mean(to, copies, func, name)
  if #copies == 1 then
    return call.copy(to, copies[1], func, name)
  end
  local sum = copies[1]:as_in_context(to.context)
  sum = sum == copies[1] and sum:copy() or sum
  for i = 2, #copies do
    sum:add_(copies[i]:as_in_context(to.context))
  end
  return call.copy(to, sum:div_(#copies), func, name)
end


return slices
