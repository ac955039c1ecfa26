--- Reads an open file sequentially through a window, for the headers of other engines' files (not
-- for users).
--
--     local cursor = file_cursor.new(file)
--     local magic, n = cursor:take(4), cursor:u32()
--
-- Reading beyond the end is E(`format`) with the position. Integers are little-endian.
--
-- @module tycho.ndarray.file_cursor

local ffi = require "ffi"
local bit = require "bit"
local Error = require "tycho.core.error"

local file_cursor = {}

local WINDOW = 65536                                     -- bytes per read of the file

--- The class of cursors: `file`, `at` (the next byte, from 0). Others extend it.
local Cursor = {}
Cursor.__index = Cursor
file_cursor.Cursor = Cursor


--- Prepares a cursor.
-- @tparam table self with `file`, and a metatable that has the methods
-- @int[opt=0] at
-- @int[opt] stop the byte after the last; by default the file's size
function file_cursor.begin(self, at, stop)
  self.at, self.stop = at or 0, stop or self.file.size
  self.first, self.held = 0, 0
  self.buffer = ffi.new("uint8_t[?]", WINDOW)
  return self
end


--- Returns a cursor at a byte of a file.
-- @tparam table file as `file_arrays.open` gives
-- @int[opt=0] at
-- @int[opt] stop the byte after the last; by default the file's size
function file_cursor.new(file, at, stop)
  return file_cursor.begin(setmetatable({ file = file }, Cursor), at, stop)
end


--- Raises E(format) with the position in the file.
function Cursor:fail(text, ...)
  Error.raise{ code = "format", func = self.file.func, argument = self.file.path,
    message = ("'%s', byte %.0f: " .. text):format(self.file.path, self.at, ...) }
end


--- Returns the number of bytes up to `stop`.
function Cursor:left()
  return self.stop - self.at
end


--- Returns a pointer to the next n bytes, at most 64 KiB, valid until the next call. Does not move
-- the cursor.
function Cursor:have(n)
  if self.at < self.first or self.at + n > self.first + self.held then
    if self.at + n > self.stop then
      self:fail("the file ends inside a value")
    end
    self.first, self.held = self.at, math.min(WINDOW, self.stop - self.at)
    self.file:read_into(self.buffer, self.first, self.held)
  end
  return self.buffer + (self.at - self.first)
end


--- Returns the next n bytes as a string.
function Cursor:take(n)
  if n < 0 or n > self:left() then
    self:fail("%.0f bytes are announced, %.0f are left", n, self:left())
  end
  local bytes = n > WINDOW and self.file:read(self.at, n)
    or n > 0 and ffi.string(self:have(n), n) or ""
  self.at = self.at + n
  return bytes
end


local word = ffi.new("union { uint8_t bytes[8]; int8_t i8; uint8_t u8; int16_t i16; uint16_t u16; \z
  int32_t i32; uint32_t u32; int64_t i64; uint64_t u64; float f; double d; uint32_t parts[2]; }")

--- Returns the next n bytes, at most 8, as a union of numbers, valid until the next call.
function Cursor:word(n)
  ffi.copy(word.bytes, self:have(n), n)
  self.at = self.at + n
  return word
end


function Cursor:u8()
  local p = self:have(1)
  self.at = self.at + 1
  return p[0]
end


function Cursor:u16() return self:word(2).u16 end
function Cursor:i32() return self:word(4).i32 end
function Cursor:u32() return self:word(4).u32 end

--- Returns a 64-bit integer as a number; above 2^53 it is rounded.
function Cursor:u64() return tonumber(self:word(8).u64) end
function Cursor:i64() return tonumber(self:word(8).i64) end


--- Returns the float in the next four bytes. A NaN is replaced by the default one (core/nans.lua).
function Cursor:f32()
  local w = self:word(4)
  return bit.band(w.i32, 0x7fffffff) > 0x7f800000 and 0 / 0 or w.f
end


function Cursor:f64()
  return file_cursor.double(self:word(8))
end


--- Returns the double in a word.
function file_cursor.double(w)
  local high = bit.band(w.parts[1], 0x7fffffff)
  if high > 0x7ff00000 or high == 0x7ff00000 and w.parts[0] ~= 0 then
    return 0 / 0
  end
  return w.d
end


return file_cursor
