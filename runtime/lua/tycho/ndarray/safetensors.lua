--- Files in the safetensors format: a header in JSON, then the elements. For `ndarray/files.lua`.
--
-- Layout, little-endian: uint64 length of the header; the header, `{"NAME": {"dtype": "F32",
-- "shape": [2, 3], "data_offsets": [begin, end]}, ...}`, filled up with spaces; the elements.
-- Offsets count from the end of the header. The entry `__metadata__` is passed over. Arrays without
-- dimensions are read as one element, those without elements are left out.
--
-- @module tycho.ndarray.safetensors

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local stored_types = require "tycho.ndarray.stored_types"
local transfer = require "tycho.ndarray.transfer"
local json = require "tycho.core.json"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local class = require "tycho.ndarray.class"

local safetensors = {}

local ALIGN = 8                                          -- elements begin at such a multiple
local MOST = 100 * 2 ^ 20                                -- bytes that a header may have

local CODE = {
  float32 = "F32", float64 = "F64", float16 = "F16", bfloat16 = "BF16", uint8 = "U8", int8 = "I8",
  int32 = "I32", int64 = "I64", bool = "BOOL",
}
local STORED = { I16 = "int16", U16 = "uint16", U32 = "uint32", U64 = "uint64" } -- what is read too
for name, code in pairs(CODE) do
  STORED[code] = name
end


local function fail(func, source, text)
  Error.raise{ code = "format", func = func, argument = source,
    message = ("'%s': %s"):format(source, text) }
end


local function length_text(n)
  local bytes = {}
  for i = 1, 8 do
    bytes[i], n = string.char(n % 256), math.floor(n / 256)
  end
  return table.concat(bytes)
end


local function length_of(bytes)
  local n = 0
  for i = 8, 1, -1 do
    n = n * 256 + bytes:byte(i)
  end
  return n
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


-- The header as a table, and the offset of the first element.
local function header_of(bytes, func, source)
  local length = length_of(bytes)
  if length > MOST or 8 + length > #bytes then
    fail(func, source, "the header is longer than the file")
  end
  local header = json.parse(bytes:sub(9, 8 + length), func)
  if type(header) ~= "table" then
    fail(func, source, "the header is no object")
  end
  return header, 8 + length
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


-- An entry checked against the bytes that there are: {name, type, shape, begin, end}.
local function entry_of(name, entry, size, func, source)
  if not (values.is_plain(entry) and is_list(entry.shape) and is_list(entry.data_offsets)
      and #entry.data_offsets == 2) then
    fail(func, source, ("the header's entry '%s' is damaged"):format(name))
  end
  local stored, from, to = STORED[entry.dtype], entry.data_offsets[1], entry.data_offsets[2]
  if not stored then
    Error.raise{ code = "dtype", func = func, argument = name, got = tostring(entry.dtype),
      expected = "F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL",
      message = ("'%s' has elements of a type that arrays cannot have"):format(name) }
  end
  local expected = tables.product(entry.shape) * stored_types.size(stored)
  if to > size or to - from ~= expected then
    fail(func, source, ("'%s' has %d bytes of elements instead of %d")
      :format(name, math.max(math.min(to, size) - from, 0), expected))
  end
  return { name = name, type = stored, shape = #entry.shape > 0 and entry.shape or { 1 },
    from = from, to = to }
end


--- Reads arrays.
-- @string bytes
-- @string func for errors
-- @string source for errors: path
-- @treturn {{string,NDArray},...} in the order of their elements
-- @treturn bool true: the names count
function safetensors.load(bytes, func, source)
  local header, start = header_of(bytes, func, source)
  local entries, list, at = {}, {}, 0
  for name, entry in pairs(header) do
    if name ~= "__metadata__" then
      entries[#entries + 1] = entry_of(tostring(name), entry, #bytes - start, func, source)
    end
  end
  table.sort(entries, function(a, b)
    if a.from ~= b.from then
      return a.from < b.from
    end
    return a.to < b.to or a.to == b.to and a.name < b.name
  end)
  for _, e in ipairs(entries) do
    if e.from ~= at then
      fail(func, source, ("the elements of '%s' do not follow those before"):format(e.name))
    end
    at = e.to
    local elements = stored_types.elements(bytes:sub(start + e.from + 1, start + e.to), e.type,
      func, e.name)
    list[#list + 1] = #elements > 0 and { e.name, transfer.from_string(elements, e.shape,
      args.DTYPES[stored_types.dtype(e.type)], func) } or nil
  end
  if at ~= #bytes - start then
    fail(func, source, "there are bytes behind the last element")
  end
  return list, true
end


--- Whether a file that begins so is one of these. Parameter files may have a brace there, too, but
-- have zeros behind it.
function safetensors.is_mine(head)
  local begin = head:sub(1, 24)
  return #head >= 9 and head:sub(9, 9) == "{" and not begin:find("%z", 9)
    and length_of(head) <= MOST
end


return safetensors
