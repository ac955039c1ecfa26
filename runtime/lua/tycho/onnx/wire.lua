--- Protocol Buffers' wire format, read from a file a field at a time (not for users).
--
--     local reader = wire.open(file, "onnx.import_model")
--     for field in reader:fields() do                   -- of the message that is open
--       if field == 7 then reader:message(read_graph) end
--       if field == 6 then text = reader:text() end
--     end
--
-- A field is read only if it is asked for, so weights cost nothing. The core checks lengths and
-- depths; the number of fields is limited here, since each takes more memory in Lua than in the
-- file.
--
-- @module tycho.onnx.wire

local ffi = require "ffi"
local bit = require "bit"
local Error = require "tycho.core.error"
local native = require "tycho.core.ffi"

local C, check = native.C, native.check

local wire = {}

local Reader = {}
Reader.__index = Reader

-- Most fields of a file; models have about 25 for each node. A field takes 16 bytes in Lua on
-- average, so a file with this many fields stays within the bound of doc/reliability.md.
local MOST_FIELDS = 2 ^ 20
local BYTES_PER_FIELD = 64

local VARINT, BITS64, BYTES, BITS32 = C.TY_FIELD_VARINT, C.TY_FIELD_64, C.TY_FIELD_BYTES,
  C.TY_FIELD_32


--- Starts at the first field of a file.
-- @param file the result of `ndarray.file_arrays.open`
-- @string func name of the public function, for errors
function wire.open(file, func)
  local out = ffi.new("ty_wire *[1]")
  check(C.ty_wire_open(file._h, out), func, { argument = file.path })
  return setmetatable({ _h = native.own(out[0], C.ty_wire_free), field = ffi.new("ty_field"),
    more = ffi.new("int[1]"), path = file.path, func = func, depth = 0,
    left = MOST_FIELDS + file.size / BYTES_PER_FIELD }, Reader)
end


--- Raises E(format) that names the file.
function Reader:fail(text, ...)
  Error.raise{ code = "format", func = self.func, argument = self.path,
    message = ("'%s': %s"):format(self.path, text:format(...)) }
end


local function check_code(self, code)
  if code ~= 0 then
    local e = native.failure(code, self.func, { argument = self.path })
    e.message = ("'%s': %s; is it an ONNX file?"):format(self.path, e.message)
    error(e, 0)
  end
end


local function next_field(self)
  check_code(self, C.ty_wire_next(self._h, self.field, self.more))
  if self.more[0] == 0 then
    return nil
  end
  self.left = self.left - 1
  if self.left < 0 then
    self:fail("more fields than a model of this size has")
  end
  return self.field.number
end


--- Iterates over the numbers of the fields of the open message.
function Reader:fields()
  return next_field, self
end


--- Calls a function that reads the message in the last field; returns its result.
-- @tparam function read called with the reader and the further arguments
function Reader:message(read, ...)
  check_code(self, C.ty_wire_enter(self._h))
  self.depth = self.depth + 1
  local result = read(self, ...)
  self.depth = self.depth - 1
  check_code(self, C.ty_wire_leave(self._h))
  return result
end


local pointer = ffi.new("const char *[1]")

--- Returns the last field's bytes.
-- @treturn string
function Reader:text()
  check_code(self, C.ty_wire_bytes(self._h, pointer))
  return ffi.string(pointer[0], self.field.bytes)
end


--- Returns the last field as a name: text without control characters.
-- @string what for errors
function Reader:name(what)
  local text = self:text()
  if text:find("%c") then
    self:fail("%s with control characters", what)
  end
  return text
end


local function expect_type(self, type)
  if self.field.type ~= type then
    self:fail("byte %d: field %d is of type %d, not %d", tonumber(self.field.at),
      self.field.number, self.field.type, type)
  end
end


--- Returns the last field as an integer; one that a double cannot hold is rounded.
function Reader:integer()
  expect_type(self, VARINT)
  return tonumber(ffi.cast("int64_t", self.field.value))
end


local single, double = ffi.new("union { uint32_t bits; float value; }"),
  ffi.new("union { uint64_t bits; double value; }")

-- Returns a number; NaN gets bits that LuaJIT can hold.
local function clean_number(v)
  if v ~= v then
    return 0 / 0
  end
  return v
end


--- Returns the last field as a float of 32 bits.
function Reader:float()
  expect_type(self, BITS32)
  single.bits = tonumber(self.field.value)
  return clean_number(single.value)
end


--- Returns the last field as a float of 64 bits.
function Reader:double()
  expect_type(self, BITS64)
  double.bits = self.field.value
  return clean_number(double.value)
end


--- Returns whether the last field is packed: several numbers in one field.
function Reader:is_packed()
  return self.field.type == BYTES
end


--- Returns the position of the last field's bytes.
-- @treturn int position of the first byte in the file
-- @treturn int number of bytes
function Reader:position()
  expect_type(self, BYTES)
  return tonumber(self.field.at), tonumber(self.field.bytes)
end


local count = ffi.new("int64_t[1]")

--- Appends the integers of the last field, one or packed ones, to a list.
-- @tparam {int,...} list
function Reader:integers(list)
  if not self:is_packed() then
    list[#list + 1] = self:integer()
    return
  end
  local most = tonumber(self.field.bytes)
  self.left = self.left - most / 4
  if self.left < 0 then
    self:fail("more numbers than a model of this size has")
  end
  local values = ffi.new("int64_t[?]", most)
  check_code(self, C.ty_wire_numbers(self._h, values, most, count))
  for i = 0, tonumber(count[0]) - 1 do
    list[#list + 1] = tonumber(values[i])
  end
end


--- Appends the floats of the last field, one or packed ones, to a list.
-- @tparam {number,...} list
function Reader:floats(list)
  if not self:is_packed() then
    list[#list + 1] = self:float()
    return
  end
  local bytes = self:text()
  if bit.band(#bytes, 3) ~= 0 then
    self:fail("byte %d: %d bytes of packed floats", tonumber(self.field.at), #bytes)
  end
  local values = ffi.new("float[?]", #bytes / 4)
  ffi.copy(values, bytes, #bytes)
  for i = 0, #bytes / 4 - 1 do
    list[#list + 1] = clean_number(values[i])
  end
end


return wire
