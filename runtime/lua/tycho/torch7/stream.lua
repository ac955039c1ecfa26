--- The numbers and texts that a Torch7 file is made of, in its two formats. For
-- `torch7/reader.lua`.
--
-- Binary: little-endian; an int has 4 bytes, a long 8, or 4 where the writing machine's did; the
-- file says neither. Ascii: a number is followed by a newline, the numbers of an array by a blank
-- each and a newline; a text and the elements of Char and Byte storages are raw bytes with a
-- newline behind; what has no bytes has no newline either.
--
-- The file is read through a window; elements of storages are passed over, and are read from the
-- file when an array of them is first used.
--
-- @module tycho.torch7.stream

local ffi = require "ffi"
local Error = require "tycho.core.error"
local file_arrays = require "tycho.ndarray.file_arrays"

local stream = {}

local WINDOW = 65536                                     -- bytes that are read at once
local LONGEST = 64                                       -- bytes of a number as text
local NEWLINE = 10
local MOST_INT, MOST_LONG = 2 ^ 31 - 1, 2 ^ 53           -- longs that Lua's numbers hold

local Stream = {}
Stream.__index = Stream

local Binary = setmetatable({}, { __index = Stream })
Binary.__index = Binary

local Ascii = setmetatable({}, { __index = Stream })
Ascii.__index = Ascii


--- Raises E(format) with the place in the file.
function Stream:fail(text, ...)
  Error.raise{ code = "format", func = self.file.func, argument = self.file.path,
    message = ("'%s', byte %d: " .. text):format(self.file.path, self.at, ...) }
end


-- Has n bytes, at most a window, in the buffer; returns where they begin.
local function have(s, n)
  if s.at < s.first or s.at + n > s.first + s.held then
    if s.at + n > s.file.size then
      s:fail("the file ends inside a value")
    end
    s.first, s.held = s.at, math.min(WINDOW, s.file.size - s.at)
    s.file:read_into(s.buffer, s.first, s.held)
  end
  return s.buffer + (s.at - s.first)
end


-- The next n bytes as a string.
local function take(s, n)
  if n < 0 or n > s.file.size - s.at then
    s:fail("%.0f bytes are announced, %.0f are left", n, s.file.size - s.at)
  end
  local bytes = n > WINDOW and s.file:read(s.at, n) or n > 0 and ffi.string(have(s, n), n) or ""
  s.at = s.at + n
  return bytes
end


--- How many bytes are left.
function Stream:left()
  return self.file.size - self.at
end


-- Binary ------------------------------------------------------------------------------------------

local word = ffi.new("union { uint8_t bytes[8]; int32_t i; int64_t l; double d; uint32_t u[2]; }")

local function fetch(s, n)
  ffi.copy(word.bytes, have(s, n), n)
  s.at = s.at + n
end


function Binary:int()
  fetch(self, 4)
  return word.i
end


function Binary:long()
  fetch(self, self.long_bytes)
  local v = self.long_bytes == 4 and word.i or tonumber(word.l)
  if v > MOST_LONG or v < -MOST_LONG then
    self:fail("the number %.0f is out of range", v)
  end
  return v
end


-- A NaN with bits of a stranger is not to reach Lua.
function Binary:double()
  fetch(self, 8)
  local high = word.u[1] % 2 ^ 31
  if high > 0x7ff00000 or high == 0x7ff00000 and word.u[0] ~= 0 then
    return 0 / 0
  end
  return word.d
end


function Binary:text(n)
  return take(self, n)
end


--- Passes over n elements.
-- @tparam table kind a row of `reader.KINDS`
-- @int n
-- @treturn table file, at, dtype as `file:array` takes them
function Binary:elements(kind, n)
  local dtype = kind.long and self.long_bytes == 4 and "long32" or kind.dtype
  local bytes = kind.long and self.long_bytes or kind.bytes
  if n > self:left() / bytes then
    self:fail("a storage of %.0f elements, %.0f bytes are left", n, self:left())
  end
  local at = self.at
  self.at = at + n * bytes
  return { file = self.file, at = at, dtype = dtype }
end


-- Ascii -------------------------------------------------------------------------------------------

local function is_space(byte)
  return byte == 32 or byte >= 9 and byte <= 13
end


-- Passes over white space and takes the word that follows.
local function token(s)
  local size = s.file.size
  while s.at < size and is_space(have(s, 1)[0]) do
    s.at = s.at + 1
  end
  local most = math.min(LONGEST, size - s.at)
  local p, n = have(s, most), 0
  while n < most and not is_space(p[n]) do
    n = n + 1
  end
  if n == 0 then
    s:fail("the file ends where a number should be")
  elseif n == LONGEST then
    s:fail("a word of more than %d bytes stands where a number should be", LONGEST)
  end
  s.at = s.at + n
  return ffi.string(p, n)
end


local SPECIAL = { nan = 0 / 0, ["-nan"] = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }

local function number(s)
  local text = token(s)
  local v = SPECIAL[text] or text:find("^[-+]?%.?%d[%d.eE+-]*$") and tonumber(text)
  if not v then
    s:fail("%q is no number", text)
  end
  return v
end


-- Numbers before texts and arrays of bytes have one newline behind, which belongs to them.
local function end_line(s)
  if s.at < s.file.size and have(s, 1)[0] == NEWLINE then
    s.at = s.at + 1
  end
end


local function whole(s, most)
  local v = number(s)
  if v ~= math.floor(v) or v > most or v < -most - 1 then
    s:fail("the number %s is out of range", tostring(v))
  end
  end_line(s)
  return v
end


function Ascii:int()
  return whole(self, MOST_INT)
end


function Ascii:long()
  return whole(self, MOST_LONG)
end


function Ascii:double()
  local v = number(self)
  end_line(self)
  return v
end


function Ascii:text(n)
  local bytes = take(self, n)
  if n > 0 then
    end_line(self)
  end
  return bytes
end


-- An integer of up to 64 bits, digit by digit.
local function integer(s)
  local text = token(s)
  local sign, digits = text:match("^([-+]?)(%d+)$")
  if not digits or #digits > 19 then
    s:fail("%q is no integer of 64 bits", text)
  end
  local v = ffi.new("int64_t", 0)
  for k = 1, #digits do
    v = v * 10 + (digits:byte(k) - 48)
  end
  return sign == "-" and -v or v
end


local POINTERS = {
  float32 = ffi.typeof("float[?]"), float64 = ffi.typeof("double[?]"),
  int64 = ffi.typeof("int64_t[?]"), int32 = ffi.typeof("int32_t[?]"),
  int16 = ffi.typeof("int16_t[?]"),
}

-- Reads n numbers into memory. Halves are written as floats.
function Ascii:elements(kind, n)
  if n > self:left() then
    self:fail("a storage of %.0f elements, %.0f bytes are left", n, self:left())
  elseif kind.bytes == 1 then
    local at = self.at
    self:text(n)
    return { file = self.file, at = at, dtype = kind.dtype }
  end
  local dtype = kind.dtype == "float16" and "float32" or kind.dtype
  local values = POINTERS[dtype](n)
  local next_value = kind.long and integer or number
  for i = 0, n - 1 do
    values[i] = next_value(self)
  end
  end_line(self)
  local file = file_arrays.copy(values, ffi.sizeof(values), self.file.path, self.file.func)
  return { file = file, at = 0, dtype = dtype }
end


-- Both --------------------------------------------------------------------------------------------

local FORMATS = { ascii = Ascii, binary = Binary }

--- The values of a file, from its beginning.
-- @tparam table file as `file_arrays.open` gives
-- @string format "binary" or "ascii"
-- @int long_bytes of a long in a binary file: 8 or 4
-- @treturn table with methods int, long, double, text(n), elements(kind, n), left and fail
function stream.open(file, format, long_bytes)
  return setmetatable({ file = file, at = 0, first = 0, held = 0, long_bytes = long_bytes,
    buffer = ffi.new("uint8_t[?]", WINDOW) }, FORMATS[format])
end


--- The format of a file: an object begins with a small number, an int or its digit.
function stream.format_of(file)
  local head = file:read(0, math.min(4, file.size))
  return head:find("^%s*%d%s") and "ascii" or "binary"
end


return stream
