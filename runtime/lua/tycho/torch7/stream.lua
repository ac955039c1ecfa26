--- Reads the numbers and strings of a Torch7 file in either format. For `torch7/reader.lua`.
--
-- Binary: little-endian; an int has 4 bytes, a long 8, or 4 as on some writing machines; the file
-- does not state it. Ascii: a number is followed by a newline; in an array each number is followed
-- by a blank, and the last one by a newline; a string and the elements of Char and Byte storages
-- are raw bytes followed by a newline; empty ones have no newline.
--
-- Elements of storages are skipped and read when an array of them is first used.
--
-- @module tycho.torch7.stream

local ffi = require "ffi"
local file_arrays = require "tycho.ndarray.file_arrays"
local file_cursor = require "tycho.ndarray.file_cursor"

local stream = {}

local LONGEST = 64                                       -- most bytes of a number as text
local NEWLINE = 10
local MOST_INT, MOST_LONG = 2 ^ 31 - 1, 2 ^ 53           -- longs that Lua's numbers hold exactly

local Binary = setmetatable({}, { __index = file_cursor.Cursor })
Binary.__index = Binary

local Ascii = setmetatable({}, { __index = file_cursor.Cursor })
Ascii.__index = Ascii


-- Binary ------------------------------------------------------------------------------------------

function Binary:int()
  return self:i32()
end


function Binary:long()
  local v = self.long_bytes == 4 and self:i32() or self:i64()
  if v > MOST_LONG or v < -MOST_LONG then
    self:fail("the number %.0f is out of range", v)
  end
  return v
end


function Binary:double()
  return self:f64()
end


function Binary:text(n)
  return self:take(n)
end


--- Skips n elements; returns their position.
-- @tparam table kind a row of `reader.KINDS`
-- @int n
-- @treturn table file, at, dtype, in the form of `file:array`
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


-- Skips white space and returns the word that follows.
local function read_token(s)
  local size = s.file.size
  while s.at < size and is_space(s:have(1)[0]) do
    s.at = s.at + 1
  end
  local most = math.min(LONGEST, size - s.at)
  local p, n = s:have(most), 0
  while n < most and not is_space(p[n]) do
    n = n + 1
  end
  if n == 0 then
    s:fail("the file ends where a number should be")
  elseif n == LONGEST then
    s:fail("a word of more than %d bytes is where a number should be", LONGEST)
  end
  s.at = s.at + n
  return ffi.string(p, n)
end


local SPECIAL = { nan = 0 / 0, ["-nan"] = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }

local function read_number(s)
  local text = read_token(s)
  local v = SPECIAL[text] or text:find("^[-+]?%.?%d[%d.eE+-]*$") and tonumber(text)
  if not v then
    s:fail("%q is no number", text)
  end
  return v
end


-- Reads the newline that follows a number in front of a string or an array of bytes.
local function end_line(s)
  if s.at < s.file.size and s:have(1)[0] == NEWLINE then
    s.at = s.at + 1
  end
end


local function read_whole(s, most)
  local v = read_number(s)
  if v ~= math.floor(v) or v > most or v < -most - 1 then
    s:fail("the number %s is out of range", tostring(v))
  end
  end_line(s)
  return v
end


function Ascii:int()
  return read_whole(self, MOST_INT)
end


function Ascii:long()
  return read_whole(self, MOST_LONG)
end


function Ascii:double()
  local v = read_number(self)
  end_line(self)
  return v
end


function Ascii:text(n)
  local bytes = self:take(n)
  if n > 0 then
    end_line(self)
  end
  return bytes
end


-- Returns an integer of up to 64 bits, digit by digit.
local function read_integer(s)
  local text = read_token(s)
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

-- Reads n numbers into memory; halves are stored as floats.
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
  local next_value = kind.long and read_integer or read_number
  for i = 0, n - 1 do
    values[i] = next_value(self)
  end
  end_line(self)
  local file = file_arrays.copy(values, ffi.sizeof(values), self.file.path, self.file.func)
  return { file = file, at = 0, dtype = dtype }
end


-- Both --------------------------------------------------------------------------------------------

local FORMATS = { ascii = Ascii, binary = Binary }

--- Returns a reader of the values of a file, at its beginning.
-- @tparam table file the result of `file_arrays.open`
-- @string format "binary" or "ascii"
-- @int long_bytes of a long in a binary file: 8 or 4
-- @treturn table with methods int, long, double, text(n), elements(kind, n), left and fail
function stream.open(file, format, long_bytes)
  return file_cursor.begin(setmetatable({ file = file, long_bytes = long_bytes }, FORMATS[format]))
end


--- Returns the format of a file, by its first number: an int, or digits.
function stream.detect_format(file)
  local head = file:read(0, math.min(4, file.size))
  return head:find("^%s*%d%s") and "ascii" or "binary"
end


return stream
