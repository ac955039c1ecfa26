--- Weights and attributes of layers of 8-bit integers (not for users); see onnx/levels.lua.
--
-- @module tycho.onnx.level_attributes

jit.off(true, true)                                      -- makes graphs: core/iterate.lua

local nd = require "tycho.ndarray"
local rewriting = require "tycho.symbol.rewriting"
local tables = require "tycho.core.tables"

local attribute = {}

-- The least and the largest level, by type.
attribute.RANGE = { uint8 = { 0, 255 }, int8 = { -128, 127 } }




--- Returns a number as a parameter's text, with all bits of a float32.
function attribute.number(x) return ("%.9g"):format(x) end


--- Returns whether the kernels can run a weight with the channels first, and whether this is
-- faster.
-- @tparam {int,...} shape
-- @int groups
function attribute.suits(shape, groups)
  return tables.product(shape) / shape[1] <= rewriting.MOST_TERMS
    and rewriting.has_large_groups(shape, groups)
end


-- Returns x with one element for each channel, along `axis` of `rank` axes; a single number is
-- repeated. Returns nil if x has another number of elements.
local function repeat_channels(x, count, axis, rank)
  local shape = tables.ones(rank)
  shape[axis + 1] = count
  if x.size == 1 then
    return nd.broadcast_to{ x:reshape(tables.ones(rank)), shape = shape }
  end
  return x.size == count and x:reshape(shape) or nil
end


--- Returns a constant weight minus its zero point as int8 with the channels first, and the scale of
-- each channel.
-- @tparam table from the field `levels` of a value: q, scale, zero, axis
-- @int axis of the channels
-- @treturn ?NDArray nil if levels minus the zero point exceed int8, or if the scale has another
--   axis
-- @treturn NDArray float32
function attribute.weight(from, axis)
  local q, scale, zero = from.q.array, from.scale.array, from.zero and from.zero.array
  if not q or (scale.size > 1 or zero and zero.size > 1) and from.axis ~= axis then
    return nil
  end
  local rank, count = #q.shape, q.shape[axis + 1]
  scale = repeat_channels(scale, count, axis, rank)
  zero = zero and repeat_channels(zero, count, axis, rank)
  if not scale or from.zero and not zero then
    return nil
  end
  local w = q:astype "float32"
  w = zero and nd.broadcast_sub(w, zero:astype "float32") or w
  if w:min():asscalar() < -128 or w:max():asscalar() > 127 then
    return nil
  end
  if axis == 1 and rank == 2 then
    w = w:transpose()
  elseif axis ~= 0 then
    return nil
  end
  return w:astype "int8", scale:reshape{ count }:astype "float32"
end


return attribute
