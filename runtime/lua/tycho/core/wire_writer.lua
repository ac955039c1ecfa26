--- A writer of Protocol Buffers' wire format (not for users).
--
-- A message is a list of parts, which are texts and arrays. Arrays are not copied: their bytes are
-- written to the file directly.
--
--     local m = writer.message()
--     m:integer(1, 8)                                   -- field 1
--     m:text(2, "tycho")
--     m:message(7, graph)
--     writer.save("net.onnx", m, "onnx.export_model")
--
-- @module tycho.core.wire_writer

local bit = require "bit"
local ffi = require "ffi"
local files = require "tycho.core.files"

local writer = {}

local Message = {}
Message.__index = Message

local VARINT, BITS64, BYTES, BITS32 = 0, 1, 2, 5


--- Returns an empty message.
function writer.message()
  return setmetatable({ parts = {}, bytes = 0 }, Message)
end


-- Returns an integer as a varint; negative ones take ten bytes.
local function varint(v)
  if v >= 0 and v < 128 then
    return string.char(v)
  end
  local left, chars = ffi.cast("uint64_t", ffi.cast("int64_t", v)), {}
  repeat
    local low = tonumber(bit.band(left, 127))
    left = bit.rshift(left, 7)
    chars[#chars + 1] = string.char(left == 0 and low or low + 128)
  until left == 0
  return table.concat(chars)
end


local function add(m, text)
  m.parts[#m.parts + 1] = text
  m.bytes = m.bytes + #text
end


local function add_head(m, field, kind)
  add(m, varint(field * 8 + kind))
end


function Message:integer(field, v)
  add_head(self, field, VARINT)
  add(self, varint(v))
end


function Message:text(field, text)
  add_head(self, field, BYTES)
  add(self, varint(#text))
  add(self, text)
end


local single = ffi.new("float[1]")

function Message:float(field, v)
  add_head(self, field, BITS32)
  single[0] = v
  add(self, ffi.string(single, 4))
end


local double = ffi.new("double[1]")

function Message:double(field, v)
  add_head(self, field, BITS64)
  double[0] = v
  add(self, ffi.string(double, 8))
end


--- Adds a field of packed integers.
function Message:integers(field, list)
  local chars = {}
  for i, v in ipairs(list) do
    chars[i] = varint(v)
  end
  self:text(field, table.concat(chars))
end


--- Adds a field of packed floats.
function Message:floats(field, list)
  self:text(field, ffi.string(ffi.new("float[?]", #list, list), 4 * #list))
end


--- Adds a field of packed doubles.
function Message:doubles(field, list)
  self:text(field, ffi.string(ffi.new("double[?]", #list, list), 8 * #list))
end


--- Adds a field that is a message. Later changes of m have no effect.
function Message:message(field, m)
  add_head(self, field, BYTES)
  add(self, varint(m.bytes))
  for _, part in ipairs(m.parts) do
    self.parts[#self.parts + 1] = part
  end
  self.bytes = self.bytes + m.bytes
end


--- Adds a field with the bytes of the elements of a CPU array. The array is kept, and read when the
-- message is written.
-- @int field
-- @tparam NDArray x
-- @int bytes of its elements, together
function Message:array(field, x, bytes)
  add_head(self, field, BYTES)
  add(self, varint(bytes))
  self.parts[#self.parts + 1] = { x, bytes }
  self.bytes = self.bytes + bytes
end


--- Returns the whole message as one text.
function Message:bytes_text()
  local texts = {}
  for i, part in ipairs(self.parts) do
    texts[i] = type(part) == "string" and part or ffi.string(part[1]:data(), part[2])
  end
  return table.concat(texts)
end


--- Writes a message to a file, which gets its name when it is complete.
-- @string path
-- @tparam Message m
-- @string func public name, for errors
function writer.save(path, m, func)
  local list = {}
  for i, part in ipairs(m.parts) do
    list[i] = type(part) == "string" and part or { part[1]:data(), part[2], part[1] }
  end
  files.write_parts(path, list, func)
end


return writer
