--- Zip archives: index and members. For `ndarray/npy.lua` and `ndarray/pytorch.lua`.
--
-- Members are stored or deflated. An archive may be larger than 4 GB: sizes, offsets and the number
-- of members may be in the 64-bit records.
--
-- @module tycho.ndarray.zip

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local Error = require "tycho.core.error"
local file_arrays = require "tycho.ndarray.file_arrays"
local file_cursor = require "tycho.ndarray.file_cursor"

local C = native.C

local zip = {}

local LOCAL, CENTRAL, END = "PK\3\4", "PK\1\2", "PK\5\6"
local WIDE_END, WIDE_LOCATOR = "PK\6\6", "PK\6\7"
local END_BYTES, LOCATOR_BYTES, CENTRAL_BYTES = 22, 20, 46
local LONGEST_COMMENT = 65535
local WIDE, WIDE_COUNT = 0xFFFFFFFF, 0xFFFF              -- mean: see the 64-bit record
local STORED, DEFLATED = 0, 8
local MEMBER_BYTES = 500                                 -- of memory, for a member of the index
local BASE, TIMES = 64 * 2 ^ 20, 4                       -- a file may take BASE + TIMES * its bytes
local BEST_RATIO = 1100                                  -- above the largest ratio of deflate, 1032


local function fail(file, text, ...)
  Error.raise{ code = "format", func = file.func, argument = file.path,
    message = ("'%s': " .. text):format(file.path, ...) }
end


-- Returns the position of the archive's end record: the last one in the file.
local function find_end(file)
  local n = math.min(file.size, END_BYTES + LONGEST_COMMENT)
  local tail = file:read(file.size - n, n)
  for at = n - END_BYTES + 1, 1, -1 do
    if tail:byte(at) == 80 and tail:sub(at, at + 3) == END then
      return file.size - n + at - 1
    end
  end
  fail(file, "the archive has no end")
end


-- Returns the number of members and the offset of the index, of archives that need 64 bits.
local function read_wide_end(file, at)
  local cursor = file_cursor.new(file, at - LOCATOR_BYTES)
  if cursor:take(4) ~= WIDE_LOCATOR then
    fail(file, "the archive's index is damaged")
  end
  cursor:u32()
  local wide = cursor:u64()
  if wide > file.size - 56 then
    fail(file, "the archive's index is damaged")
  end
  cursor = file_cursor.new(file, wide)
  if cursor:take(4) ~= WIDE_END then
    fail(file, "the archive's index is damaged")
  end
  cursor:take(20)
  local here, count = cursor:u64(), cursor:u64()
  cursor:u64()
  return here, count, cursor:u64()
end


-- Returns the number of members and the offset of the index.
local function read_end(file)
  local at = find_end(file)
  local cursor = file_cursor.new(file, at + 8)
  local here, count = cursor:u16(), cursor:u16()
  cursor:u32()
  local offset = cursor:u32()
  if (count == WIDE_COUNT or offset == WIDE) and at >= LOCATOR_BYTES then
    here, count, offset = read_wide_end(file, at)
  end
  if here ~= count or count > file.size / CENTRAL_BYTES or offset > file.size
      or count * MEMBER_BYTES > BASE + TIMES * file.size then
    fail(file, "the archive's index is damaged")
  end
  return count, offset
end


-- Returns the values of a member's 64-bit extra field, in its order: those that do not fit
-- elsewhere.
local function read_wide(cursor, stop, values)
  while cursor.at + 4 <= stop do
    local id, size = cursor:u16(), cursor:u16()
    local next_at = cursor.at + size
    for k = 1, id == 1 and #values or 0 do
      if values[k] == WIDE and cursor.at + 8 <= math.min(next_at, stop) then
        values[k] = cursor:u64()
      end
    end
    if next_at > stop then
      break
    end
    cursor.at = next_at
  end
  cursor.at = stop
  return unpack(values)
end


-- Returns the next member of the index.
local function read_member(file, cursor)
  if cursor:left() < CENTRAL_BYTES or cursor:take(4) ~= CENTRAL then
    fail(file, "the archive's index is damaged")
  end
  cursor:take(4)
  local m = { flags = cursor:u16(), method = cursor:u16() }
  cursor:take(4)
  m.crc = cursor:u32()
  local packed, size = cursor:u32(), cursor:u32()
  local name, extra, comment = cursor:u16(), cursor:u16(), cursor:u16()
  cursor:take(8)
  local offset = cursor:u32()
  if name + extra + comment > cursor:left() then
    fail(file, "the archive's index is damaged")
  end
  m.name = cursor:take(name)
  m.size, m.packed, m.offset = read_wide(cursor, cursor.at + extra, { size, packed, offset })
  cursor:take(comment)
  return m
end


--- Returns the members of an archive, in the order of the index.
-- @tparam table file as `file_arrays.open` gives
-- @treturn {table,...} with name, size, packed, method, crc
function zip.members(file)
  local count, offset = read_end(file)
  local cursor, list = file_cursor.new(file, offset), {}
  for i = 1, count do
    list[i] = read_member(file, cursor)
  end
  return list
end


--- Returns the offset in the file of a member's packed bytes.
function zip.data_offset(file, m)
  if m.flags % 2 == 1 then
    fail(file, "member '%s' is encrypted", m.name)
  elseif m.offset > file.size - 30 then
    fail(file, "member '%s' is damaged", m.name)
  end
  local cursor = file_cursor.new(file, m.offset)
  if cursor:take(4) ~= LOCAL then
    fail(file, "member '%s' is damaged", m.name)
  end
  cursor:take(22)
  local at = cursor:u16() + cursor:u16() + cursor.at
  if at + m.packed > file.size then
    fail(file, "member '%s' is cut off", m.name)
  end
  return at
end


--- Returns a member's unpacked bytes, after a check of size and CRC.
-- @treturn string
function zip.contents(file, m)
  local at = zip.data_offset(file, m)
  local content
  if m.method == STORED then
    content = file:read(at, m.packed)
  elseif m.method == DEFLATED and m.size < BEST_RATIO * m.packed + 64 then
    local packed = file:read(at, m.packed)
    local out = ffi.new("uint8_t[?]", m.size + 1)
    native.check(C.ty_inflate(packed, #packed, out, m.size), file.func, { argument = file.path })
    content = ffi.string(out, m.size)
  else
    fail(file, "member '%s' is packed in a way that cannot be read", m.name)
  end
  if #content ~= m.size or C.ty_crc32(0, content, #content) ~= m.crc then
    fail(file, "member '%s' is damaged", m.name)
  end
  return content
end


--- Returns the file and position at which a member's bytes can be read later: the archive
-- itself if they are stored, else a file in memory.
-- @treturn table file
-- @treturn int offset of the first byte
function zip.part(file, m)
  if m.method == STORED and m.size == m.packed then
    return file, zip.data_offset(file, m)
  end
  local content = zip.contents(file, m)
  return file_arrays.copy(content, #content, file.path, file.func), 0
end


--- Returns whether a file with these first bytes is an archive.
function zip.is_mine(head)
  return head:sub(1, 4) == LOCAL or head:sub(1, 4) == END
end


return zip
