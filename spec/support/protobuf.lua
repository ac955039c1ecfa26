-- Reads Protocol Buffers messages, for specs of written files.
--
--     local m = protobuf.read(bytes)
--     m[1]                -- the last value of field 1: a number, or bytes
--     m.all[2]            -- all values of field 2, in order

local bit = require "bit"
local ffi = require "ffi"

local protobuf = {}

local function varint(bytes, at)
  local v, shift = 0ULL, 0
  while true do
    local byte = assert(bytes:byte(at), "a varint is cut off")
    v = v + bit.lshift(0ULL + byte % 128, shift)
    at, shift = at + 1, shift + 7
    if byte < 128 then
      return tonumber(ffi.cast("int64_t", v)), at
    end
    assert(shift < 70, "a varint is too long")
  end
end

local function number(kind, bytes)
  local n = ffi.new(kind .. "[1]")
  ffi.copy(n, bytes, #bytes)
  return tonumber(n[0])
end

--- Returns a message from its bytes; fields of 4 and 8 bytes are floats and doubles unless `whole`
-- has their number.
function protobuf.read(bytes, whole)
  local m, at = { all = {} }, 1
  while at <= #bytes do
    local key, v
    key, at = varint(bytes, at)
    local field, kind = math.floor(key / 8), key % 8
    if kind == 0 then
      v, at = varint(bytes, at)
    else
      local size = kind == 1 and 8 or kind == 5 and 4
      if not size then
        assert(kind == 2, "an unknown kind of field")
        size, at = varint(bytes, at)
      end
      v, at = bytes:sub(at, at + size - 1), at + size
      assert(at - 1 <= #bytes, "a field is cut off")
      local type_of = whole and whole[field] and { [1] = "int64_t", [5] = "int32_t" }
        or { [1] = "double", [5] = "float" }
      v = type_of[kind] and number(type_of[kind], v) or v
    end
    m[field] = v
    m.all[field] = m.all[field] or {}
    table.insert(m.all[field], v)
  end
  return m
end

--- Returns the doubles of a packed field.
function protobuf.doubles(bytes)
  local list = {}
  for at = 1, #bytes, 8 do
    list[#list + 1] = number("double", bytes:sub(at, at + 7))
  end
  return list
end

return protobuf
