--- Masks as keys, `x[mask]`: a bool array selects where it is true, as in NumPy. A mask of n axes
-- covers n axes of x, and becomes a list of coordinates for each.
--
-- A float array of 0 and 1 with the shape of x, as `x:gt(1)` returns, is an error: its numbers
-- would be taken as indices, which is never meant.
--
-- @module tycho.ndarray.mask

local class = require "tycho.ndarray.class"
local DTYPES = require("tycho.core.types").DTYPES
local Error = require "tycho.core.error"
local tables = require "tycho.core.tables"
local transfer = require "tycho.ndarray.transfer"
local values = require "tycho.core.values"

local mask = {}

local BOOL = DTYPES.bool
local FLOATS = { [DTYPES.float16] = true, [DTYPES.bfloat16] = true, [DTYPES.float32] = true,
  [DTYPES.float64] = true }


local function is_mask(k)
  return class.is_array(k) and k._dtype == BOOL
end


local function refuse_float(x, k, func)
  if not (class.is_array(k) and FLOATS[k._dtype] and tables.same(k._shape, x._shape)) then
    return
  end
  local p = transfer.read(k, func)
  for i = 0, k._size - 1 do
    if p[i] ~= 0 and p[i] ~= 1 then
      return
    end
  end
  Error.raise{ code = "type", func = func, argument = "key", got = "a " .. k.dtype .. " array",
    expected = "a bool array, or indices",
    message = "a float array of 0 and 1 in the array's own shape is no mask; x[m:astype(\"bool\")] \z
      and ty.nd.contrib.boolean_mask{x, m} select, x[m:astype(\"int32\")] takes elements 0 and 1" }
end


local function check_shape(m, x, axis, func)
  for d, n in ipairs(m._shape) do
    if x._shape[axis + d] ~= n then
      Error.raise{ code = "shape", func = func, argument = "key", got = tables.copied(m._shape),
        expected = { unpack(x._shape, axis + 1, math.min(axis + #m._shape, #x._shape)) },
        message = ("the mask does not fit axis %d and those after it"):format(axis) }
    end
  end
end


-- Returns the coordinates where a mask is true: a list for each of its axes; nil if it is true
-- nowhere.
local function coordinates(m, func)
  local p, shape, lists, n = transfer.read(m, func), m._shape, {}, 0
  for d = 1, #shape do
    lists[d] = {}
  end
  for i = 0, m._size - 1 do
    if p[i] ~= 0 and p[i] ~= false then
      n = n + 1
      local rest = i
      for d = #shape, 1, -1 do
        lists[d][n] = rest % shape[d]
        rest = (rest - lists[d][n]) / shape[d]
      end
    end
  end
  return n > 0 and lists or nil
end


-- Returns the number of axes that the keys cover.
local function named(keys)
  local n = 0
  for _, k in ipairs(keys) do
    if is_mask(k) then
      n = n + #k._shape
    elseif k ~= values.newaxis and k ~= values.null and k ~= values.ellipsis then
      n = n + 1
    end
  end
  return n
end


--- Replaces masks among keys by lists of coordinates.
-- @tparam NDArray x
-- @tparam table keys one for each axis; a mask covers one or more axes
-- @string func public name, for errors
-- @treturn ?table keys; nil if a mask is true nowhere
function mask.expand(x, keys, func)
  local expanded, axis = {}, 0
  if #keys == 1 then
    refuse_float(x, keys[1], func)
  end
  for _, k in ipairs(keys) do
    if is_mask(k) then
      check_shape(k, x, axis, func)
      local lists = coordinates(k, func)
      if not lists then
        return nil
      end
      for _, list in ipairs(lists) do
        expanded[#expanded + 1] = list
      end
      axis = axis + #lists
    else
      expanded[#expanded + 1] = k
      axis = axis + (k == values.ellipsis and #x._shape - named(keys) or named{ k })
    end
  end
  return expanded
end


return mask
