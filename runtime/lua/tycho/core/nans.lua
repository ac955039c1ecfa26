--- NaNs as plain numbers.
--
-- LuaJIT keeps its values in the bits of NaNs: a float with chosen bits may be read as
-- nil, or as a pointer. What gives floats of arrays, files and records to Lua goes over them first.
--
-- @module tycho.core.nans

local bit = require "bit"
local ffi = require "ffi"
local types = require "tycho.core.types"

local band = bit.band
local F32, F64 = types.DTYPES.float32, types.DTYPES.float64
local words = ffi.typeof("int32_t *")

local nans = {}


-- Returns the position, from 0, of the first NaN whose bits are not those of the usual one; nil if
-- there is none. Either sign is usual: processors differ in the NaN that they make.
local function find32(p, n)
  for i = 0, n - 1 do
    if band(p[i], 0x7fffffff) > 0x7f800000 and band(p[i], 0x7fffffff) ~= 0x7fc00000 then
      return i
    end
  end
end


local function find64(p, n)
  for i = 0, 2 * n - 2, 2 do
    local high = band(p[i + 1], 0x7fffffff)
    if high >= 0x7ff00000 and p[i] ~= 0 or high > 0x7ff00000 and high ~= 0x7ff80000 then
      return i / 2
    end
  end
end


--- Returns whether some of n elements are NaNs that Lua must not read.
-- @param p pointer to the elements, little-endian
-- @int dtype code; what is neither float32 nor float64 has no such elements
-- @int n
function nans.marked(p, dtype, n)
  p = ffi.cast(words, p)
  if dtype == F32 then
    return find32(p, n) ~= nil
  end
  return dtype == F64 and find64(p, n) ~= nil
end


--- Makes all NaNs of n elements plain ones, in place; the parameters are those of `marked`.
function nans.mend(p, dtype, n)
  p = ffi.cast(words, p)
  if dtype == F32 then
    for i = 0, n - 1 do
      if band(p[i], 0x7fffffff) > 0x7f800000 then
        p[i] = 0x7fc00000
      end
    end
  elseif dtype == F64 then
    for i = 0, 2 * n - 2, 2 do
      local high = band(p[i + 1], 0x7fffffff)
      if high > 0x7ff00000 or high == 0x7ff00000 and p[i] ~= 0 then
        p[i], p[i + 1] = 0, 0x7ff80000
      end
    end
  end
end


return nans
