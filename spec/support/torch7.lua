-- Writes files like torch.save, for specs.
--
--   t7.bytes(value, {format = "binary" | "ascii", long = 8 | 4})
--
-- Values: numbers, strings, booleans, plain tables (shared references are preserved), and objects:
-- t7.object("nn.Linear", {weight = ...}), t7.tensor("Float", {2, 3}, {1, 2, ...}), with strides,
-- offset (from 1) and a shared storage; t7.storage("Long", {1, 2}); t7.raw(function(w) ... end),
-- which writes anything.

local ffi = require "ffi"

local t7 = {}

local Object, Tensor, Storage, Raw = {}, {}, {}, {}

function t7.object(class, fields, version)
  return setmetatable({ class = class, fields = fields or {}, version = version or 1 }, Object)
end

function t7.storage(kind, values)
  return setmetatable({ kind = kind, values = values }, Storage)
end

function t7.tensor(kind, sizes, values, more)
  more = more or {}
  local strides, n = {}, 1
  for i = #sizes, 1, -1 do
    strides[i], n = n, n * sizes[i]
  end
  return setmetatable({ kind = kind, sizes = sizes, strides = more.strides or strides,
    offset = more.offset or 1, storage = more.storage or values and t7.storage(kind, values) },
    Tensor)
end

function t7.raw(f)
  return setmetatable({ f = f }, Raw)
end

-- Numbers and texts -------------------------------------------------------------------------------

local TYPES = { Float = "float", Double = "double", Long = "int64_t", Int = "int32_t",
  Short = "int16_t", Byte = "uint8_t", Char = "int8_t", Half = "uint16_t" }

local function cdata(ctype, values)
  local p = ffi.new(ctype .. "[?]", #values, values)
  return ffi.string(p, ffi.sizeof(p))
end

local Binary, Ascii = {}, {}
Binary.__index, Ascii.__index = Binary, Ascii

function Binary:int(v) self:put(cdata("int32_t", { v })) end
function Binary:long(v) self:put(cdata(self.long_bytes == 4 and "int32_t" or "int64_t", { v })) end
function Binary:double(v) self:put(cdata("double", { v })) end
function Binary:text(s) self:put(s) end
function Binary:elements(kind, values)
  local ctype = kind == "Long" and self.long_bytes == 4 and "int32_t"
    or TYPES[kind:gsub("Cuda", "")]
  self:put(cdata(ctype or "float", values))
end

local function number_text(v)
  return v ~= v and "nan" or v == math.huge and "inf" or v == -math.huge and "-inf"
    or ("%.17g"):format(v)
end

function Ascii:int(v) self:put(number_text(v) .. "\n") end
Ascii.long, Ascii.double = Ascii.int, Ascii.int
function Ascii:text(s) self:put(#s > 0 and s .. "\n" or "") end
function Ascii:elements(kind, values)
  if kind == "Char" or kind == "Byte" then
    return self:text(cdata(TYPES[kind], values))
  end
  local parts = {}
  for i, v in ipairs(values) do
    parts[i] = number_text(v)
  end
  self:put(#parts > 0 and table.concat(parts, " ") .. "\n" or "")
end

-- Objects -----------------------------------------------------------------------------------------

local NIL, NUMBER, STRING, TABLE, TORCH, BOOLEAN = 0, 1, 2, 3, 4, 5

local Writer = {}

local function word(w, s)
  w:int(#s)
  w:text(s)
end

-- Writes an object's tag and index; returns whether it is new.
local function begin(w, tag, value)
  local known = w.known[value]
  w.count = w.count + (known and 0 or 1)
  w.known[value] = known or w.count
  w:int(tag)
  w:int(w.known[value])
  return not known
end

local function class(w, name, version)
  if version > 0 then
    word(w, "V " .. version)
  end
  word(w, name)
end

local WRITE = {}

WRITE["nil"] = function(w) w:int(NIL) end
WRITE.number = function(w, v) w:int(NUMBER) w:double(v) end
WRITE.string = function(w, v) w:int(STRING) word(w, v) end
WRITE.boolean = function(w, v) w:int(BOOLEAN) w:int(v and 1 or 0) end

local function write_table(w, v)
  if begin(w, TABLE, v) then
    local n = 0
    for _ in pairs(v) do
      n = n + 1
    end
    w:int(n)
    for key, value in pairs(v) do
      w:object(key)
      w:object(value)
    end
  end
end

local function write_storage(w, v)
  if begin(w, TORCH, v) then
    class(w, "torch." .. v.kind .. "Storage", 1)
    w:long(#v.values)
    w:elements(v.kind, v.values)
  end
end

local function write_tensor(w, v)
  if begin(w, TORCH, v) then
    class(w, "torch." .. v.kind .. "Tensor", 1)
    w:int(#v.sizes)
    for _, n in ipairs(v.sizes) do w:long(n) end
    for _, n in ipairs(v.strides) do w:long(n) end
    w:long(v.offset)
    w:object(v.storage)
  end
end

local function write_object(w, v)
  if begin(w, TORCH, v) then
    class(w, v.class, v.version)
    if v.header ~= nil then
      w:object(v.header)
    end
    w:object(v.fields)
  end
end

WRITE.table = function(w, v)
  local meta = getmetatable(v)
  if meta == Raw then
    return v.f(w)
  end
  local f = meta == Tensor and write_tensor or meta == Storage and write_storage
    or meta == Object and write_object or write_table
  f(w, v)
end

function Writer:object(v)
  WRITE[type(v)](self, v)
end

function Writer:put(s)
  self.parts[#self.parts + 1] = s
end

for _, format in ipairs{ Binary, Ascii } do
  format.object, format.put = Writer.object, Writer.put
end

function t7.bytes(value, options)
  options = options or {}
  local w = setmetatable({ parts = {}, known = {}, count = 0, long_bytes = options.long or 8 },
    options.format == "ascii" and Ascii or Binary)
  w:object(value)
  return table.concat(w.parts)
end

return t7
