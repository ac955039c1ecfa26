-- Writes GGUF files for specs: gguf.bytes{ {key, type, value}, tensors = { {name, shape, type,
-- bytes}, ... } }. Types are numbers of the format; values of metadata are written by `value`.

local ffi = require "ffi"
local p = require "spec.support.pytorch"

local gguf = { U8 = 0, I8 = 1, U16 = 2, I16 = 3, U32 = 4, I32 = 5, F32 = 6, BOOL = 7, TEXT = 8,
  LIST = 9, U64 = 10, I64 = 11, F64 = 12 }

local le = p.le
local CTYPES = { [0] = "uint8_t", "int8_t", "uint16_t", "int16_t", "uint32_t", "int32_t", "float",
  "uint8_t", [10] = "uint64_t", [11] = "int64_t", [12] = "double" }

local function text(s) return le(#s, 8) .. s end

-- Returns a value of a type as bytes; lists are {type, values}.
local function value(kind, v)
  if kind == gguf.TEXT then
    return text(v)
  elseif kind == gguf.LIST then
    local parts = { le(v[1], 4), le(#v[2], 8) }
    for i, inner in ipairs(v[2]) do
      parts[i + 2] = value(v[1], inner)
    end
    return table.concat(parts)
  end
  local p_value = ffi.new(CTYPES[kind] .. "[1]", v)
  return ffi.string(p_value, ffi.sizeof(p_value))
end

function gguf.bytes(t)
  local tensors = t.tensors or {}
  local parts = { "GGUF", le(t.version or 3, 4), le(t.count or #tensors, 8), le(#t, 8) }
  for _, row in ipairs(t) do
    parts[#parts + 1] = text(row[1]) .. le(row[2], 4) .. value(row[2], row[3])
  end
  local align, at, data = t.align or 32, 0, {}
  for _, row in ipairs(tensors) do
    parts[#parts + 1] = text(row[1]) .. le(#row[2], 4)
    for i = #row[2], 1, -1 do
      parts[#parts + 1] = le(row[2][i], 8)
    end
    parts[#parts + 1] = le(row[3], 4) .. le(row.offset or at, 8)
    data[#data + 1] = row[4] .. ("\0"):rep(-#row[4] % align)
    at = at + #data[#data]
  end
  local head = table.concat(parts)
  return head .. ("\0"):rep(-#head % align) .. table.concat(data)
end

return gguf
