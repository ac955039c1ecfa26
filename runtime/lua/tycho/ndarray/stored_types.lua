--- Types of elements in files of other programs. For `ndarray/npy.lua`, `ndarray/safetensors.lua`.
--
-- Integers of types that arrays do not have become wider ones: int16 and uint16 int32, uint32 and
-- uint64 int64, where a number of 2^63 or more is refused. Bytes of bools become 0 and 1.
--
-- @module tycho.ndarray.stored_types

local ffi = require "ffi"
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"

local stored_types = {}

local WIDER = {
  int16  = { size = 2, from = "const int16_t *",  to = "int32_t[?]", dtype = "int32" },
  uint16 = { size = 2, from = "const uint16_t *", to = "int32_t[?]", dtype = "int32" },
  uint32 = { size = 4, from = "const uint32_t *", to = "int64_t[?]", dtype = "int64" },
  uint64 = { size = 8, from = "const int64_t *",  to = "int64_t[?]", dtype = "int64" },
}


--- The type of an array that holds a file's numbers, nil where none does.
-- @string name
-- @treturn string
function stored_types.dtype(name)
  return WIDER[name] and WIDER[name].dtype or args.DTYPES[name] and name
end


--- Bytes of an element in the file.
-- @string name
-- @treturn int
function stored_types.size(name)
  return WIDER[name] and WIDER[name].size or class.BYTES[args.DTYPES[name]]
end


local function too_large(v, func, source)
  Error.raise{ code = "value", func = func, argument = source, expected = "less than 2^63",
    got = ("%s"):format(tostring(ffi.cast("uint64_t", v)):gsub("ULL$", "")),
    message = ("'%s': a uint64 does not fit into int64"):format(source) }
end


--- The elements as an array has them.
-- @string bytes little-endian
-- @string name
-- @string func for errors
-- @string source for errors: path or name
-- @treturn string
function stored_types.elements(bytes, name, func, source)
  local wider = WIDER[name]
  if not wider then
    return name == "bool" and bytes:gsub("[^%z\1]", "\1") or bytes
  end
  local n = #bytes / wider.size
  local from, to = ffi.cast(wider.from, bytes), ffi.new(wider.to, n)
  for i = 0, n - 1 do
    if name == "uint64" and from[i] < 0 then
      too_large(from[i], func, source)
    end
    to[i] = from[i]
  end
  return ffi.string(to, ffi.sizeof(to))
end


return stored_types
