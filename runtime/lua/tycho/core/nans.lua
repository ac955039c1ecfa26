--- Replacement of NaNs that LuaJIT would not read as numbers.
--
-- LuaJIT stores other types in the bits of NaNs: a float with certain bits may be read as
-- nil, or as a pointer. Code that passes floats of arrays, files and records to Lua checks them
-- here first.
--
-- @module tycho.core.nans

local bit = require "bit"
local ffi = require "ffi"
local types = require "tycho.core.types"

local band = bit.band
local F32, F64 = types.DTYPES.float32, types.DTYPES.float64
local words = ffi.typeof("int32_t *")

local nans = {}


-- Returns the position, from 0, of the first NaN that differs from the default quiet NaN of either
-- sign (processors make both); nil if there is none.
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
-- @int dtype code; only float32 and float64 have such elements
-- @int n
function nans.marked(p, dtype, n)
  p = ffi.cast(words, p)
  if dtype == F32 then
    return find32(p, n) ~= nil
  end
  return dtype == F64 and find64(p, n) ~= nil
end


--- Replaces all NaNs among n elements by the default one, in place; parameters as for `marked`.
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
