--- RecordIO files: byte strings one after the other, with or without an index, and the format of a
-- labelled image in a record (`ty.recordio`).
--
--     local w = ty.recordio.MXIndexedRecordIO("data.idx", "data.rec", "w")
--     w:write_idx(0, ty.recordio.pack(ty.recordio.IRHeader{ 0, 4, 0, 0 }, bytes))
--     w:close()
--     local header, bytes =
--       ty.recordio.unpack(ty.recordio.MXIndexedRecordIO("data.idx", "data.rec", "r"):read_idx(0))
--
-- @module tycho.recordio

local ffi = require "ffi"
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local codec = require "tycho.ndarray.image_codec"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"
local nans = require "tycho.core.nans"
local native = require "tycho.core.ffi"
local values = require "tycho.core.values"
require "tycho.ndarray"                  -- completes the class of arrays

local C, check = native.C, native.check

local recordio = {}


-- Files -------------------------------------------------------------------------------------------

--- A file of records, open for reading or for writing: `MXRecordIO(uri, flag)`. A method of the
-- other mode, or after `close`, is E(`state`).
-- @type MXRecordIO
local MXRecordIO = Class:extend("MXRecordIO")
recordio.MXRecordIO = MXRecordIO

local FILE = args.form("recordio.MXRecordIO", { { "uri", "path" }, { "flag", "text" } })

--- @string uri path; a file that cannot be opened is E(`io`)
-- @string flag "r" or "w"
function MXRecordIO:init(...)
  local a = FILE(...)
  self:_set(a.uri, a.flag)
  self:open()
end


-- Sets path and mode; raises E(value) for another flag.
function MXRecordIO:_set(uri, flag)
  if flag ~= "r" and flag ~= "w" then
    Error.raise{ code = "value", func = self.class_name, argument = "flag",
      expected = "\"r\" or \"w\"", got = flag, message = "bad 'flag'" }
  end
  self.uri, self.flag, self.writable = uri, flag, flag == "w"
end


--- Opens the file again, at its beginning. A file for writing becomes empty.
function MXRecordIO:open()
  self:close()
  local out = ffi.new("ty_record *[1]")
  check(C.ty_record_open(self.uri, self.flag, out), self.class_name .. ":open",
    { argument = self.uri })
  self._handle = native.own(out[0], C.ty_record_close)
end


--- Closes the file; does nothing if it is closed. If not all that was written could be stored, it
-- is E(`io`).
function MXRecordIO:close()
  local handle = self._handle
  if handle then
    self._handle = nil
    check(C.ty_record_close(ffi.gc(handle, nil)), self.class_name .. ":close",
      { argument = self.uri })
  end
end

MXRecordIO.free = MXRecordIO.close


--- Goes to the beginning, as `open` does.
function MXRecordIO:reset()
  self:close()
  self:open()
end


-- Returns the native file; raises E(state) if it is closed, or open in another mode. writes:
-- whether the method writes; nil: it works in both modes.
local function get_handle(self, method, writes)
  if not self._handle or writes ~= nil and self.writable ~= writes then
    Error.raise{ code = "state", func = self.class_name .. ":" .. method, argument = self.uri,
      message = not self._handle and "the file is closed"
        or writes and "the file is open for reading" or "the file is open for writing" }
  end
  return self._handle
end


--- Appends a record.
-- @string text its bytes
function MXRecordIO:write(text)
  if type(text) ~= "string" then
    Error.raise{ code = "type", func = self.class_name .. ":write", argument = "text",
      expected = "text", got = Error.kind(text), message = "bad 'text'" }
  end
  check(C.ty_record_write(get_handle(self, "write", true), text, #text),
    self.class_name .. ":write")
end


local data, bytes = ffi.new("const char *[1]"), ffi.new("size_t[1]")

--- Returns the next record. A damaged file is E(`format`).
-- @treturn ?string its bytes; nil at the end
function MXRecordIO:read()
  check(C.ty_record_read(get_handle(self, "read", false), data, bytes), self.class_name .. ":read",
    { argument = self.uri })
  if data[0] == nil then
    return nil
  end
  return ffi.string(data[0], bytes[0])
end


local offset = ffi.new("int64_t[1]")

--- Returns the offset of the next record.
-- @treturn int in bytes from the beginning of the file
function MXRecordIO:tell()
  check(C.ty_record_tell(get_handle(self, "tell"), offset), self.class_name .. ":tell")
  return tonumber(offset[0])
end


function MXRecordIO:__tostring()
  return ("<%s %s, %s>"):format(self.class_name, self.uri, self.writable and "writing" or "reading")
end


-- Indexed files -----------------------------------------------------------------------------------

--- A file of records with an index, a text file with a line "key TAB offset in bytes" for each
-- record: `MXIndexedRecordIO(idx_path, uri, flag)`. Fields: keys (list, in the order of the file),
-- idx (key -> offset).
-- @type MXIndexedRecordIO
local MXIndexedRecordIO = MXRecordIO:extend("MXIndexedRecordIO")
recordio.MXIndexedRecordIO = MXIndexedRecordIO

local INDEXED = args.form("recordio.MXIndexedRecordIO", {
  { "idx_path", "path" }, { "uri", "path" }, { "flag", "text" }, "*",
  { "key_type", { "int", "str" }, "int" },
})

--- @string idx_path path of the index
-- @string uri path of the records
-- @string flag "r" or "w"
-- @tparam[opt] table options key_type = "int" (keys are numbers) or "str" (texts)
function MXIndexedRecordIO:init(...)
  local a = INDEXED(...)
  self.idx_path, self.key_type = a.idx_path, a.key_type
  self:_set(a.uri, a.flag)
  self:open()
end


-- Returns a key converted to the file's key_type; nil if it has another type.
local function read_key(self, text)
  return self.key_type == "str" and tostring(text) or tonumber(text)
end


local function fail_index(self, method, why)
  Error.raise{ code = "io", func = "MXIndexedRecordIO:" .. method, argument = self.idx_path,
    message = why }
end


-- Reads the index into `keys` and `idx`; raises E(format).
local function read_index(self)
  local number = 0
  for line in files.lines(self.idx_path, "MXIndexedRecordIO:open") do
    number = number + 1
    local text, at = line:match("^(.-)\t(%d+)%s*$")
    local key = text and read_key(self, text)
    local blank = not line:find("%S")
    if key == nil and not blank then
      Error.raise{ code = "format", func = "MXIndexedRecordIO:open", argument = self.idx_path,
        expected = "a key, a tab and an offset in bytes",
        message = ("'%s', line %d: no entry of an index"):format(self.idx_path, number) }
    elseif not blank then
      self.keys[#self.keys + 1], self.idx[key] = key, tonumber(at)
    end
  end
end


function MXIndexedRecordIO:open()
  MXIndexedRecordIO.super.open(self)
  self.keys, self.idx = {}, {}
  if not self.writable then
    return read_index(self)
  end
  local why
  self._index, why = io.open(self.idx_path, "w")
  if not self._index then
    fail_index(self, "open", why)
  end
end


function MXIndexedRecordIO:close()
  local index = self._index
  self._index = nil
  local stored, why = true, nil
  if index then
    stored, why = index:close()
  end
  MXIndexedRecordIO.super.close(self)
  if not stored then
    fail_index(self, "close", why)
  end
end

MXIndexedRecordIO.free = MXIndexedRecordIO.close


--- Goes to the record of a key; an unknown key is E(`name`).
-- @param key number or text
function MXIndexedRecordIO:seek(key)
  local at = self.idx[read_key(self, key)]
  if not at then
    Error.raise{ code = "name", func = "MXIndexedRecordIO:seek", argument = tostring(key),
      message = ("'%s' has no key '%s'"):format(self.idx_path, tostring(key)) }
  end
  check(C.ty_record_seek(get_handle(self, "seek", false), at), "MXIndexedRecordIO:seek",
    { argument = self.uri })
end


--- Returns the record of a key; an unknown key is E(`name`).
-- @param key number or text
-- @treturn string its bytes
function MXIndexedRecordIO:read_idx(key)
  self:seek(key)
  return self:read()
end


--- Appends a record under a key.
-- @param key number, or text with key_type = "str"
-- @string text its bytes
function MXIndexedRecordIO:write_idx(key, text)
  get_handle(self, "write_idx", true)
  local given = key
  key = read_key(self, key)
  if key == nil then
    Error.raise{ code = "type", func = "MXIndexedRecordIO:write_idx", argument = "key",
      expected = "an integer, since key_type is \"int\"", got = Error.kind(given),
      message = "bad 'key'" }
  end
  local at = self:tell()
  self:write(text)
  local written, why = self._index:write(type(key) == "number" and ("%d"):format(key) or key, "\t",
    ("%d"):format(at), "\n")
  if not written then
    fail_index(self, "write_idx", why)
  end
  self.keys[#self.keys + 1], self.idx[key] = key, at
end


-- Records of images -------------------------------------------------------------------------------

--- The header of an image's record: `IRHeader(flag, label, id, id2)`. flag = 0: number of labels, 0
-- for a single one; label = 0: number or list of numbers; id = 0; id2 = 0.
-- @type IRHeader
local IRHeader = Class:extend("IRHeader")
recordio.IRHeader = IRHeader

local HEADER = args.form("recordio.IRHeader", {
  { "flag", "number", 0 }, { "label", "any", 0 }, { "id", "number", 0 }, { "id2", "number", 0 },
})

function IRHeader:init(...)
  local a = HEADER(...)
  self.flag, self.label, self.id, self.id2 = a.flag, a.label, a.id, a.id2
end


function IRHeader:__tostring()
  return ("IRHeader(flag=%d, id=%d, id2=%d)"):format(self.flag, self.id, self.id2)
end


local Packed = ffi.typeof("struct { uint32_t flag; float label; uint64_t id, id2; }")
local LABEL_AT = ffi.offsetof(Packed, "label")


-- Returns labels as a list of numbers; nil for a single number. Raises E(type).
local function list_labels(label)
  if type(label) == "number" then
    return nil
  elseif type(label) == "table" and label.totable then
    label = label:reshape{ -1 }:totable()
  end
  if not values.is_plain(label) then
    Error.raise{ code = "type", func = "recordio.pack", argument = "label",
      expected = "a number, a list or an array", got = Error.kind(label),
      message = "bad 'label' of the header" }
  end
  return label
end


--- Returns the record of a header and bytes.
-- @param header an IRHeader, or its four values in a list
-- @string text bytes, such as those of an image's file
-- @treturn string
function recordio.pack(header, text)
  header = Class.is_a(header, IRHeader) and header or IRHeader(header)
  if type(text) ~= "string" then
    Error.raise{ code = "type", func = "recordio.pack", argument = "text", expected = "text",
      got = Error.kind(text), message = "bad 'text'" }
  end
  local list = list_labels(header.label)
  local head = Packed{ flag = list and #list or 0, label = list and 0 or header.label,
    id = header.id, id2 = header.id2 }
  local labels = list and ffi.string(ffi.new("float[?]", #list, list), 4 * #list) or ""
  return ffi.string(head, ffi.sizeof(head)) .. labels .. text
end


--- Returns the header and the bytes of a record. One that is too short is E(`format`).
-- @string text record
-- @treturn IRHeader its label is a number, or a list of several
-- @treturn string
function recordio.unpack(text)
  local head, size = Packed(), ffi.sizeof(Packed)
  if type(text) ~= "string" or #text < size then
    Error.raise{ code = "format", func = "recordio.unpack",
      message = "the record is shorter than a header" }
  end
  ffi.copy(head, text, size)
  nans.mend(ffi.cast("char *", head) + LABEL_AT, args.DTYPES.float32, 1)
  local n, label = head.flag, head.label
  if #text - size < 4 * n then
    Error.raise{ code = "format", func = "recordio.unpack", expected = n .. " labels",
      got = #text - size .. " bytes", message = "the record ends within its labels" }
  end
  if n > 0 then
    local p = ffi.new("float[?]", n)
    ffi.copy(p, text:sub(size + 1, size + 4 * n), 4 * n)
    nans.mend(p, args.DTYPES.float32, n)
    label = {}
    for i = 1, n do
      label[i] = p[i - 1]
    end
  end
  return IRHeader{ n, label, tonumber(head.id), tonumber(head.id2) }, text:sub(size + 4 * n + 1)
end


local PACK_IMG = args.form("recordio.pack_img", {
  { "header", "any" }, { "img", "array|table" }, "*", { "quality", "integer", 95 },
  { "img_fmt", "text", ".jpg" },
})

--- Returns the record of a header and an image.
-- @param header as of `pack`
-- @param img array (height, width, channels), uint8
-- @tparam[opt] table options img_fmt = ".jpg" or ".png"; quality = 95: of JPEG, 1 to 100; of PNG,
--   the compression, 0 to 9
-- @treturn string
function recordio.pack_img(...)
  local a = PACK_IMG(...)
  local image = codec.encode_as(a.img, a.quality, a.img_fmt, "recordio.pack_img")
  return recordio.pack(a.header, image)
end


local UNPACK_IMG = args.form("recordio.unpack_img",
  { { "text", "text" }, { "iscolor", "integer", -1 } })

--- Returns the header and the image of a record. Damaged bytes are E(`format`).
-- @string text record
-- @int[opt=-1] iscolor 0: grey, 1: three channels, -1: as it is stored
-- @treturn IRHeader
-- @treturn NDArray (height, width, channels), uint8
function recordio.unpack_img(...)
  local a = UNPACK_IMG(...)
  local header, bytes_of = recordio.unpack(a.text)
  return header, codec.decode(bytes_of, a.iscolor, true, "recordio.unpack_img")
end


return namespace.close(methods.guard_all(recordio), "recordio", "class or function")
