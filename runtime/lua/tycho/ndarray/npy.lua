--- NumPy's files: one array (`.npy`), or several in a zip archive (`.npz`), stored or
-- deflated. For `ndarray/files.lua`.
--
-- The header of an array is the text of a Python dictionary; its three entries are searched by
-- name, no code is evaluated. Arrays without dimensions are read as one element; arrays
-- without elements are skipped in an archive. The reader takes both byte orders, both orders of
-- dimensions, and short and unsigned integers (as int32 or int64); the writer makes little-endian
-- arrays whose last dimension is the fastest.
--
-- @module tycho.ndarray.npy

local pairs = require("tycho.core.iterate").pairs
local native = require "tycho.core.ffi"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local file_arrays = require "tycho.ndarray.file_arrays"
local file_cursor = require "tycho.ndarray.file_cursor"
local files = require "tycho.core.files"
local tables = require "tycho.core.tables"
local zip = require "tycho.ndarray.zip"

local C = native.C

local npy = {}

local MAGIC, HEAD = "\147NUMPY", 64              -- bytes before the elements are a multiple of 64

local DESCR = {
  float32 = "<f4", float64 = "<f8", float16 = "<f2", uint8 = "|u1", int8 = "|i1", int32 = "<i4",
  int64 = "<i8", bool = "|b1",
}
-- Types that are read: the same, and integers that become int32 or int64.
local STORED = { i2 = "int16", u2 = "uint16", u4 = "uint32", u8 = "uint64" }
for name, descr in pairs(DESCR) do
  STORED[descr:sub(2)] = name
end

-- kinds of elements that no array has
local FOREIGN = { c = "complex numbers", f = "floats of 80 or 128 bits", M = "dates", m = "times",
  O = "pickled objects", S = "byte strings", U = "texts", V = "structures" }


local function fail(file, text)
  Error.raise{ code = "format", func = file.func, argument = file.path,
    message = ("'%s': %s"):format(file.path, text) }
end


local function bytes_of(n, count)
  local bytes = {}
  for i = 1, count do
    bytes[i], n = string.char(n % 256), math.floor(n / 256)
  end
  return table.concat(bytes)
end


-- One array ---------------------------------------------------------------------------------------

-- Returns the header of a file, and the elements as {pointer, bytes, array that owns them}.
local function make_parts(x, func, name)
  local descr = DESCR[x.dtype]
  if not descr then
    Error.raise{ code = "dtype", func = func, argument = name, got = x.dtype,
      message = "NumPy's files have no such type; astype(\"float32\") gives one that they have" }
  end
  local text = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }")
    :format(descr, table.concat(x.shape, ", "))
  text = text .. (" "):rep(-(#text + 11) % HEAD) .. "\n"
  local host = x:as_in_context(context.cpu(0))
  return MAGIC .. "\1\0" .. bytes_of(#text, 2) .. text,
    { host:data(), host.size * tonumber(descr:sub(3)), host }
end


-- Returns the encoding of the elements for `file:array`, their bytes, whether they are big-endian.
local function type_of(descr, file)
  local order, kind, size = descr:match("^([<>|=]?)(%a)(%d*)")
  local stored = STORED[(kind or "V") .. (size or "")]
  if not stored or #descr ~= #(order .. kind .. size) then
    Error.raise{ code = "dtype", func = file.func, argument = file.path, got = descr,
      expected = "float16, float32, float64, integers or bool",
      message = ("'%s' has elements of a type that arrays cannot have: %s"):format(file.path,
        FOREIGN[kind or "V"] or "an unknown type") }
  end
  return stored, tonumber(size), order == ">" and tonumber(size) > 1
end


local function parse_shape(text, file)
  local shape = {}
  for size in text:gmatch("[^,%s]+") do
    size = size:match("^(%d+)L?$")                       -- Python 2 writes 3L
    shape[#shape + 1] = tonumber(size) or fail(file, "bad shape in the header")
  end
  return shape
end


-- Returns the text of the header; the cursor is after it.
local function header_text(file, cursor)
  if cursor:left() < 10 then
    fail(file, "the header is damaged")
  end
  cursor:take(#MAGIC)
  local major = cursor:u8()
  cursor:u8()
  if major < 1 or major > 3 or cursor:left() < 4 then
    fail(file, "the header is damaged")
  end
  local length = major > 1 and cursor:u32() or cursor:u16()
  if length > cursor:left() then
    fail(file, "the header is damaged")
  end
  return cursor:take(length)
end


-- Returns the strides in elements of a shape whose first axis varies fastest.
local function first_fastest(shape)
  local strides, stride = {}, 1
  for i, size in ipairs(shape) do
    strides[i], stride = stride, stride * size
  end
  return strides
end


-- Returns the array of a file; nil and its shape if it has no elements. They are read at once,
-- since programs overwrite such files in place.
local function read_array(file)
  local cursor = file_cursor.new(file)
  local text = header_text(file, cursor)
  local descr = text:match("['\"]descr['\"]%s*:%s*['\"]([^'\"]*)['\"]")
  local order, shape = text:match("['\"]fortran_order['\"]%s*:%s*(%a+)"),
    text:match("['\"]shape['\"]%s*:%s*%(([^)]*)%)")
  if not shape or order ~= "True" and order ~= "False" then
    fail(file, "the header is damaged")
  end
  local stored, size, swapped = type_of(descr or "V", file)
  shape = parse_shape(shape, file)
  local wanted = tables.product(shape) * size
  if cursor:left() ~= wanted then
    fail(file, ("%.0f bytes of elements instead of %.0f"):format(cursor:left(), wanted))
  end
  if wanted == 0 then
    return nil, shape
  end
  shape = #shape > 0 and shape or { 1 }
  local x = file:array{ at = cursor.at, shape = shape, dtype = stored, swapped = swapped,
    strides = order == "True" and #shape > 1 and first_fastest(shape) or nil }
  x:data()
  return x
end


-- Archives ----------------------------------------------------------------------------------------

local LOCAL, CENTRAL, END = "PK\3\4", "PK\1\2", "PK\5\6"
local MOST = 0xFFFFFFFF                  -- bytes of an archive without 64-bit records
local VERSION, DATE = 20, 0x21           -- 1980-01-01: equal arrays give equal files


local function checksum(parts)
  local crc = 0
  for _, part in ipairs(parts) do
    local is_text = type(part) == "string"
    crc = C.ty_crc32(crc, is_text and part or part[1], is_text and #part or part[2])
  end
  return crc
end


-- Returns the bytes that the two headers of a member have in common.
local function member_head(name, crc, size)
  return bytes_of(VERSION, 2) .. bytes_of(0, 2) .. bytes_of(0, 2) .. bytes_of(0, 2)
    .. bytes_of(DATE, 2) .. bytes_of(crc, 4) .. bytes_of(size, 4) .. bytes_of(size, 4)
    .. bytes_of(#name, 2) .. bytes_of(0, 2)
end


local function save_npz(path, list, func)
  local parts, central, at = {}, {}, 0
  for i, pair in ipairs(list) do
    local name, header, elements = pair[1] .. ".npy", make_parts(pair[2], func, pair[1])
    local size = #header + elements[2]
    local head = member_head(name, checksum{ header, elements }, size)
    parts[3 * i - 2], parts[3 * i - 1], parts[3 * i] = LOCAL .. head .. name, header, elements
    central[i] = CENTRAL .. bytes_of(VERSION, 2) .. head .. bytes_of(0, 2) .. bytes_of(0, 2)
      .. bytes_of(0, 2) .. bytes_of(0, 4) .. bytes_of(at, 4) .. name
    at = at + #parts[3 * i - 2] + size
    if at >= MOST then
      Error.raise{ code = "value", func = func, argument = path,
        message = "an archive holds less than 4 GB; files that end in .safetensors hold more" }
    end
  end
  local index = table.concat(central)
  parts[#parts + 1] = index .. END .. bytes_of(0, 4) .. bytes_of(#list, 2) .. bytes_of(#list, 2)
    .. bytes_of(#index, 4) .. bytes_of(at, 4) .. bytes_of(0, 2)
  files.write_parts(path, parts, func)
end


-- Raises an error for a member that is not NumPy's. PyTorch's archives are read by
-- ndarray/pytorch.lua.
local function refuse_archive(file, name)
  if name:find("%.h5$") or name:find("config%.json$") then
    fail(file, "this is not a file of arrays but a Keras model (.keras)")
  elseif not name:find("%.npy$") then
    fail(file, ("this is not a file of arrays but an archive of other files: '%s'"):format(name))
  end
end


local function load_npz(file)
  local list = {}
  for _, member in ipairs(zip.members(file)) do
    refuse_archive(file, member.name)
    local content = zip.contents(file, member)
    local x = read_array(file_arrays.copy(content, #content, file.path .. ": " .. member.name,
      file.func))
    list[#list + 1] = x and { (member.name:gsub("%.npy$", "")), x }
  end
  return list
end


-- For files.lua -----------------------------------------------------------------------------------

--- Writes a single array.
-- @string path
-- @tparam {{string,NDArray},...} list one pair
-- @string func for errors
function npy.save(path, list, func)
  if #list ~= 1 then
    Error.raise{ code = "value", func = func, argument = "data", expected = "one array",
      got = #list .. " arrays",
      message = "a file that ends in .npy holds one array, one that ends in .npz several" }
  end
  files.write_parts(path, { make_parts(list[1][2], func, list[1][1]) }, func)
end


--- Writes an archive.
-- @string path
-- @tparam {{string,NDArray},...} list
-- @string func for errors
npy.save_npz = save_npz


--- Reads a file that `is_mine` accepts.
-- @tparam table file as `file_arrays.open` gives
-- @treturn {{string,NDArray},...} in file order
-- @treturn bool whether the file has names
function npy.load(file)
  if file:read(0, math.min(#MAGIC, file.size)) == MAGIC then
    local x, shape = read_array(file)
    if not x then
      fail(file, ("the array has no elements: its shape is (%s)"):format(table.concat(shape, ", ")))
    end
    return { { "0", x } }, false
  end
  return load_npz(file), true
end


--- Returns whether a file with these first bytes is `.npy` or `.npz`.
function npy.is_mine(head)
  return head:sub(1, #MAGIC) == MAGIC or zip.is_mine(head)
end


return npy
