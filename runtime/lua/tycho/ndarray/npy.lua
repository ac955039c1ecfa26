--- NumPy's files: one array (`.npy`), or several in a zip archive (`.npz`), stored or
-- deflated. For `ndarray/files.lua`.
--
-- The header of an array is the text of a Python dictionary; its three entries are found by
-- their names, nothing is evaluated. Arrays without dimensions are read as one element, those
-- without elements are left out of an archive. Numbers of either byte order and both orders of
-- dimensions are read; little-endian, last dimension fastest is written.
--
-- @module tycho.ndarray.npy

local pairs = require("tycho.core.iterate").pairs
local bit = require "bit"
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local stored_types = require "tycho.ndarray.stored_types"
local transfer = require "tycho.ndarray.transfer"
local tables = require "tycho.core.tables"

local C = native.C

local npy = {}

local MAGIC, HEAD = "\147NUMPY", 64              -- bytes before the elements are a multiple of 64

local DESCR = {
  float32 = "<f4", float64 = "<f8", float16 = "<f2", uint8 = "|u1", int8 = "|i1", int32 = "<i4",
  int64 = "<i8", bool = "|b1",
}
local STORED = { i2 = "int16", u2 = "uint16", u4 = "uint32", u8 = "uint64" }  -- what is read too
for name, descr in pairs(DESCR) do
  STORED[descr:sub(2)] = name
end

-- kinds of elements that no array has
local FOREIGN = { c = "complex numbers", f = "floats of 80 or 128 bits", M = "dates", m = "times",
  O = "pickled objects", S = "byte strings", U = "texts", V = "structures" }


local function fail(func, source, text)
  Error.raise{ code = "format", func = func, argument = source,
    message = ("'%s': %s"):format(source, text) }
end


local function u16(s, at)
  local a, b = s:byte(at, at + 1)
  return a + 256 * b
end

local function u32(s, at)
  return u16(s, at) + 65536 * u16(s, at + 2)
end

local function u64(s, at)
  return u32(s, at) + 2 ^ 32 * u32(s, at + 4)
end

local function bytes_of(n, count)
  local bytes = {}
  for i = 1, count do
    bytes[i], n = string.char(n % 256), math.floor(n / 256)
  end
  return table.concat(bytes)
end


-- One array ---------------------------------------------------------------------------------------

-- Header and, as pointer and size, the elements.
local function parts_of(x, func, name)
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


-- The type's name, and whether the bytes of an element are turned round.
local function type_of(descr, func, source)
  local order, kind, size = descr:match("^([<>|=]?)(%a)(%d*)")
  local name = STORED[(kind or "V") .. (size or "")]
  if not name or #descr ~= #(order .. kind .. size) then
    Error.raise{ code = "dtype", func = func, argument = source, got = descr,
      expected = "float16, float32, float64, integers or bool",
      message = ("'%s' has elements of a type that arrays cannot have: %s"):format(source,
        FOREIGN[kind or "V"] or "an unknown type") }
  end
  return name, order == ">" and stored_types.size(name) > 1
end


local function shape_of(text, func, source)
  local shape = {}
  for size in text:gmatch("[^,%s]+") do
    size = size:match("^%d+L?$")                         -- Python 2 writes 3L
    shape[#shape + 1] = size and tonumber((size:gsub("L", "")))
      or fail(func, source, "bad shape in the header")
  end
  return shape
end


-- type, whether turned round, shape, whether the first dimension is the fastest, offset of the
-- elements
local function header_of(bytes, func, source)
  local major = bytes:byte(7)
  local long = major and major > 1 and 4 or 2
  if #bytes < 8 + long or major < 1 or major > 3 then
    fail(func, source, "the header is damaged")
  end
  local length = long == 2 and u16(bytes, 9) or u32(bytes, 9)
  local text = bytes:sub(9 + long, 8 + long + length)
  local descr = text:match("['\"]descr['\"]%s*:%s*['\"]([^'\"]*)['\"]")
  local order, shape = text:match("['\"]fortran_order['\"]%s*:%s*(%a+)"),
    text:match("['\"]shape['\"]%s*:%s*%(([^)]*)%)")
  if #text < length or not shape or order ~= "True" and order ~= "False" then
    fail(func, source, "the header is damaged")
  end
  local name, turned = type_of(descr or "V", func, source)
  return { type = name, turned = turned, shape = shape_of(shape, func, source),
    first_fastest = order == "True", at = 8 + long + length }
end


-- The bytes of each element the other way round.
local function turned_round(bytes, size)
  local n = #bytes
  local from, to = ffi.cast("const uint8_t *", bytes), ffi.new("uint8_t[?]", n)
  for i = 0, n - 1 do
    to[i] = from[bit.bxor(i, size - 1)]                  -- sizes are powers of 2
  end
  return ffi.string(to, n)
end


-- The array; nil and its shape where it has no elements.
local function array_of(bytes, func, source)
  local h = header_of(bytes, func, source)
  local size = stored_types.size(h.type)
  local wanted = tables.product(h.shape) * size
  if #bytes - h.at ~= wanted then
    fail(func, source, ("%d bytes of elements instead of %d"):format(#bytes - h.at, wanted))
  end
  if wanted == 0 then
    return nil, h.shape
  end
  local elements = bytes:sub(h.at + 1)
  elements = stored_types.elements(h.turned and turned_round(elements, size) or elements, h.type,
    func, source)
  local dtype = args.DTYPES[stored_types.dtype(h.type)]
  local shape = #h.shape > 0 and h.shape or { 1 }
  if not h.first_fastest or #shape == 1 then
    return transfer.from_string(elements, shape, dtype, func)
  end
  return transfer.from_string(elements, tables.reversed(shape), dtype, func):transpose()
end


-- Archives ----------------------------------------------------------------------------------------

local LOCAL, CENTRAL, END = "PK\3\4", "PK\1\2", "PK\5\6"
local WIDE = 0xFFFFFFFF                  -- a size or offset that stands in the 64-bit extra field
local VERSION, DATE = 20, 0x21           -- 1980-01-01: equal arrays give equal files


local function checksum(parts)
  local crc = 0
  for _, part in ipairs(parts) do
    local is_text = type(part) == "string"
    crc = C.ty_crc32(crc, is_text and part or part[1], is_text and #part or part[2])
  end
  return crc
end


-- What the two headers of a member have in common.
local function member_head(name, crc, size)
  return bytes_of(VERSION, 2) .. bytes_of(0, 2) .. bytes_of(0, 2) .. bytes_of(0, 2)
    .. bytes_of(DATE, 2) .. bytes_of(crc, 4) .. bytes_of(size, 4) .. bytes_of(size, 4)
    .. bytes_of(#name, 2) .. bytes_of(0, 2)
end


local function save_npz(path, list, func)
  local parts, central, at = {}, {}, 0
  for i, pair in ipairs(list) do
    local name, header, elements = pair[1] .. ".npy", parts_of(pair[2], func, pair[1])
    local size = #header + elements[2]
    local head = member_head(name, checksum{ header, elements }, size)
    parts[3 * i - 2], parts[3 * i - 1], parts[3 * i] = LOCAL .. head .. name, header, elements
    central[i] = CENTRAL .. bytes_of(VERSION, 2) .. head .. bytes_of(0, 2) .. bytes_of(0, 2)
      .. bytes_of(0, 2) .. bytes_of(0, 4) .. bytes_of(at, 4) .. name
    at = at + #parts[3 * i - 2] + size
    if at >= WIDE then
      Error.raise{ code = "value", func = func, argument = path,
        message = "an archive holds less than 4 GB; files that end in .safetensors hold more" }
    end
  end
  local index = table.concat(central)
  parts[#parts + 1] = index .. END .. bytes_of(0, 4) .. bytes_of(#list, 2) .. bytes_of(#list, 2)
    .. bytes_of(#index, 4) .. bytes_of(at, 4) .. bytes_of(0, 2)
  files.write_parts(path, parts, func)
end


-- The values of a member's 64-bit extra field, in its order: those that do not fit elsewhere.
local function widened(bytes, at, length, values)
  local stop = at + length
  while at + 4 <= stop do
    local id, size = u16(bytes, at), u16(bytes, at + 2)
    local position = at + 4
    for k = 1, id == 1 and #values or 0 do
      if values[k] == WIDE and position + 8 <= math.min(at + 4 + size, stop) then
        values[k], position = u64(bytes, position), position + 8
      end
    end
    at = at + 4 + size
  end
  return unpack(values)
end


-- A member of the index: name, method, crc, sizes and offset; and where the next one begins.
local function member_at(bytes, at, func, source)
  if bytes:sub(at, at + 3) ~= CENTRAL or at + 45 > #bytes then
    fail(func, source, "the archive's index is damaged")
  end
  local name_length, extra_length, comment_length =
    u16(bytes, at + 28), u16(bytes, at + 30), u16(bytes, at + 32)
  local next_at = at + 46 + name_length + extra_length + comment_length
  if next_at > #bytes then
    fail(func, source, "the archive's index is damaged")
  end
  local size, packed, offset = widened(bytes, at + 46 + name_length, extra_length,
    { u32(bytes, at + 24), u32(bytes, at + 20), u32(bytes, at + 42) })
  return { name = bytes:sub(at + 46, at + 45 + name_length), method = u16(bytes, at + 10),
    flags = u16(bytes, at + 8), crc = u32(bytes, at + 16), size = size, packed = packed,
    offset = offset }, next_at
end


local function contents_of(bytes, m, func, source)
  local at = m.offset + 1
  if bytes:sub(at, at + 3) ~= LOCAL or at + 30 > #bytes then
    fail(func, source, ("member '%s' is damaged"):format(m.name))
  end
  at = at + 30 + u16(bytes, at + 26) + u16(bytes, at + 28)
  local packed, content = bytes:sub(at, at + m.packed - 1), nil
  if #packed < m.packed then
    fail(func, source, ("member '%s' is cut off"):format(m.name))
  elseif m.method == 0 then
    content = packed
  -- more than deflating can save: a wrong size
  elseif m.method == 8 and m.size < 1100 * m.packed + 64 then
    local out = ffi.new("uint8_t[?]", m.size + 1)
    native.check(C.ty_inflate(packed, #packed, out, m.size), func, { argument = source })
    content = ffi.string(out, m.size)
  else
    fail(func, source, ("member '%s' is packed in a way that cannot be read"):format(m.name))
  end
  if #content ~= m.size or C.ty_crc32(0, content, #content) ~= m.crc or m.flags % 2 == 1 then
    fail(func, source, ("member '%s' is damaged"):format(m.name))
  end
  return content
end


-- Where the archive's end record is: the last one in the file.
local function end_of(bytes, func, source)
  for at = #bytes - 21, math.max(1, #bytes - 21 - 65535), -1 do
    if bytes:sub(at, at + 3) == END then
      return at
    end
  end
  fail(func, source, "the archive has no end")
end


-- Archives of other programs, by a file that they have.
local ARCHIVES = {
  { "data%.pkl$",   "a PyTorch file (.pt, .pth); pickles can run code and are not read" },
  { "%.h5$",        "a Keras model (.keras)" },
  { "config%.json$", "a Keras model (.keras)" },
}

-- Raises where a member is none of NumPy's.
local function refuse_archive(name, func, source)
  for _, archive in ipairs(ARCHIVES) do
    if name:find(archive[1]) then
      fail(func, source, "this is not a file of arrays but " .. archive[2])
    end
  end
  if not name:find("%.npy$") then
    fail(func, source, ("this is not a file of arrays but an archive of other files: '%s'")
      :format(name))
  end
end


local function load_npz(bytes, func, source)
  local stop = end_of(bytes, func, source)
  local at, list, count = u32(bytes, stop + 16) + 1, {}, u16(bytes, stop + 10)
  if u16(bytes, stop + 8) ~= count then
    fail(func, source, "the archive's index is damaged")
  end
  for i = 1, count do
    local member
    member, at = member_at(bytes, at, func, source)
    refuse_archive(member.name, func, source)
    local x = array_of(contents_of(bytes, member, func, source), func,
      source .. ": " .. member.name)
    list[#list + 1] = x and { (member.name:gsub("%.npy$", "")), x }
  end
  return list
end


-- For ndarray_io ----------------------------------------------------------------------------------

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
  files.write_parts(path, { parts_of(list[1][2], func, list[1][1]) }, func)
end


--- Writes an archive.
-- @string path
-- @tparam {{string,NDArray},...} list
-- @string func for errors
npy.save_npz = save_npz


--- Reads what `is_mine` accepts.
-- @string bytes
-- @string func for errors
-- @string source for errors: path
-- @treturn {{string,NDArray},...} in file order
-- @treturn bool whether the names count
function npy.load(bytes, func, source)
  if bytes:sub(1, #MAGIC) == MAGIC then
    local x, shape = array_of(bytes, func, source)
    if not x then
      fail(func, source, ("the array has no elements: its shape is (%s)")
        :format(table.concat(shape, ", ")))
    end
    return { { "0", x } }, false
  end
  return load_npz(bytes, func, source), true
end


--- Whether a file that begins so is one of these. Raises where the first member of an archive is
-- another program's, whose archives may be too large to be read.
function npy.is_mine(head, func, source)
  if head:sub(1, 4) == LOCAL and #head >= 30 then
    refuse_archive(head:sub(31, 30 + u16(head, 27)), func, source)
  end
  return head:sub(1, #MAGIC) == MAGIC or head:sub(1, 4) == LOCAL or head:sub(1, 4) == END
end


return npy
