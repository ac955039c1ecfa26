--- Files in the safetensors format: a header in JSON, then the elements. For `ndarray/files.lua`.
--
-- Layout, little-endian: uint64 length of the header; the header, `{"NAME": {"dtype": "F32",
-- "shape": [2, 3], "data_offsets": [begin, end]}, ...}`, filled up with spaces; the elements.
-- Offsets count from the end of the header. The entry `__metadata__` has texts. Arrays without
-- dimensions are read as one element, arrays without elements are skipped. 8-bit floats become
-- float32, unsigned and short integers int32 or int64.
--
-- @module tycho.ndarray.safetensors

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local file_cursor = require "tycho.ndarray.file_cursor"
local files = require "tycho.core.files"
local json = require "tycho.core.json"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local class = require "tycho.ndarray.class"

local safetensors = {}

local ALIGN = 8                                          -- elements begin at a multiple of this
local MOST = 100 * 2 ^ 20                                -- bytes that a header may have

local CODE = {
  float32 = "F32", float64 = "F64", float16 = "F16", bfloat16 = "BF16", uint8 = "U8", int8 = "I8",
  int32 = "I32", int64 = "I64", bool = "BOOL",
}

-- The encoding of elements for `file:array`, and their bytes.
local STORED = {
  F8_E4M3 = { "e4m3", 1 }, F8_E5M2 = { "e5m2", 1 }, I16 = { "int16", 2 }, U16 = { "uint16", 2 },
  U32 = { "uint32", 4 }, U64 = { "uint64", 8 },
}
for name, code in pairs(CODE) do
  STORED[code] = { name, class.BYTES[args.DTYPES[name]] }
end

local METADATA = "__metadata__"


local function fail(file, text)
  Error.raise{ code = "format", func = file.func, argument = file.path,
    message = ("'%s': %s"):format(file.path, text) }
end


local function length_text(n)
  local bytes = {}
  for i = 1, 8 do
    bytes[i], n = string.char(n % 256), math.floor(n / 256)
  end
  return table.concat(bytes)
end


--- Writes arrays.
-- @string path
-- @tparam {{string,NDArray},...} list
-- @string func for errors
function safetensors.save(path, list, func)
  local entries, parts, at = {}, { "", "" }, 0
  for i, pair in ipairs(list) do
    local x = pair[2]
    local bytes = x.size * class.BYTES[x._dtype]
    entries[i] = { pair[1], json.object{ { "dtype", CODE[x.dtype] }, { "shape", x.shape },
      { "data_offsets", { at, at + bytes } } } }
    x = x:as_in_context(context.cpu(0))
    parts[i + 2], at = { x:data(), bytes, x }, at + bytes
  end
  local header = json.text(json.object(entries))
  header = header .. (" "):rep(-#header % ALIGN)
  parts[1], parts[2] = length_text(#header), header
  files.write_parts(path, parts, func)
end


-- Returns the header as a table, and the offset of the first element.
local function read_header(file)
  local cursor = file_cursor.new(file)
  local length = cursor:u64()
  if length > MOST or length > cursor:left() then
    fail(file, "the header is longer than the file")
  end
  local header = json.parse(cursor:take(length), file.func)
  if type(header) ~= "table" then
    fail(file, "the header is no object")
  end
  return header, cursor.at
end


local function is_list(t)
  if not values.is_plain(t) then
    return false
  end
  for _, n in ipairs(t) do
    if type(n) ~= "number" or n < 0 or n ~= math.floor(n) then
      return false
    end
  end
  return true
end


-- Returns an entry checked against the size of the file: {name, dtype, shape, from, to}.
local function check_entry(name, entry, size, file)
  if not (values.is_plain(entry) and is_list(entry.shape) and is_list(entry.data_offsets)
      and #entry.data_offsets == 2) then
    fail(file, ("the header's entry '%s' is damaged"):format(name))
  end
  local stored, from, to = STORED[entry.dtype], entry.data_offsets[1], entry.data_offsets[2]
  if not stored then
    Error.raise{ code = "dtype", func = file.func, argument = name, got = tostring(entry.dtype),
      expected = "F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I16 I8 U64 U32 U16 U8 BOOL",
      message = ("'%s': '%s' has elements of a type that arrays cannot have")
        :format(file.path, name) }
  end
  local expected = tables.product(entry.shape) * stored[2]
  if to > size or to - from ~= expected then
    fail(file, ("'%s' has %.0f bytes of elements instead of %.0f")
      :format(name, math.max(math.min(to, size) - from, 0), expected))
  end
  return { name = name, dtype = stored[1], shape = #entry.shape > 0 and entry.shape or { 1 },
    from = from, to = to }
end


local function sorted_entries(header, size, file)
  local entries = {}
  for name, entry in pairs(header) do
    if name ~= METADATA then
      entries[#entries + 1] = check_entry(tostring(name), entry, size, file)
    end
  end
  table.sort(entries, function(a, b)
    if a.from ~= b.from then
      return a.from < b.from
    end
    return a.to < b.to or a.to == b.to and a.name < b.name
  end)
  return entries
end


--- Reads arrays. Their elements are read when they are first used.
-- @tparam table file as `file_arrays.open` gives
-- @treturn {{string,NDArray},...} in the order of their elements; `ty.null` without elements
-- @treturn bool true: the file has names
-- @treturn table the entry `__metadata__`, texts by key
function safetensors.load(file)
  local header, start = read_header(file)
  local list, at = {}, 0
  for i, e in ipairs(sorted_entries(header, file.size - start, file)) do
    if e.from ~= at then
      fail(file, ("the elements of '%s' do not follow those before"):format(e.name))
    end
    at = e.to
    list[i] = { e.name, e.to > e.from
      and file:array{ at = start + e.from, shape = e.shape, dtype = e.dtype } or values.null }
  end
  if at ~= file.size - start then
    fail(file, "there are bytes after the last element")
  end
  local metadata = header[METADATA]
  return list, true, values.is_plain(metadata) and metadata or {}
end


-- Returns the length of the header, from the first 8 bytes.
local function length_of(head)
  local n = 0
  for i = 8, 1, -1 do
    n = n * 256 + head:byte(i)
  end
  return n
end


--- Returns whether a file with these first bytes has the format. Parameter files may have the same
-- brace, but zeros after it.
function safetensors.is_mine(head)
  return #head >= 9 and head:sub(9, 9) == "{" and not head:find("%z", 9) and length_of(head) <= MOST
end


return safetensors
