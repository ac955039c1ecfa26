--- Serialization of Lua values and arrays: the format of optimizer states and of saved training
-- states.
--
--     local bytes = container.encode{ epoch = 3, states = { [0] = array } }
--     local value = container.decode(bytes, "Updater:set_states")
--
-- Values are numbers, texts, booleans, `ty.null`, NDArrays, tables of these, and objects of classes
-- from `register`, whose fields are stored; decoding executes no code. Tables are written with
-- sorted keys, so equal values give equal bytes. `decode` raises E(format) for foreign bytes,
-- other versions, truncation and damage.
--
-- Layout, little-endian: "TYCHOBOX", uint32 version, uint32 checksum (Adler-32 of the rest), uint64
-- length of the rest, then one value. A value is a letter and its contents: z (null), t (true), f
-- (false), n (float64), s (uint64 length, bytes), { (uint64 number of pairs, then the pairs), o
-- (name of the class as a text value, fields as a table value), a (uint32 dtype, ndim; context as a
-- text value; ndim uint64 sizes; the elements).
--
-- @module tycho.ndarray.serialize

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local jit = require "jit"
local args = require "tycho.core.args"
local attempt = require "tycho.core.attempt"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local nans = require "tycho.core.nans"
local transfer = require "tycho.ndarray.transfer"
local values = require "tycho.core.values"
require "tycho.ndarray"

local container = {}

local MAGIC, VERSION = "TYCHOBOX", 1
local HEAD = 24                                          -- bytes before the value
local MOST_NESTED = 100

local names, classes = {}, {}                            -- class -> name, name -> class

--- Registers a class whose objects can be written.
-- @tparam table kind class
-- @string name the name in the bytes, which must never change
function container.register(kind, name)
  names[kind], classes[name] = name, kind
end


-- Returns the Adler-32 checksum of n bytes.
local function checksum(p, n)
  local a, b, i = 1, 0, 0
  while i < n do
    local stop = math.min(i + 2048, n)
    for k = i, stop - 1 do
      a = a + p[k]
      b = b + a
    end
    a, b, i = a % 65521, b % 65521, stop
  end
  return b * 65536 + a
end


-- Writing -----------------------------------------------------------------------------------------

local put

local function put_u64(out, n)
  out[#out + 1] = ffi.string(ffi.new("uint64_t[1]", n), 8)
end


local function put_u32(out, n)
  out[#out + 1] = ffi.string(ffi.new("uint32_t[1]", n), 4)
end


local function put_text(out, s)
  out[#out + 1] = "s"
  put_u64(out, #s)
  out[#out + 1] = s
end


local function put_array(out, x)
  local shape = x.shape
  out[#out + 1] = "a"
  put_u32(out, args.DTYPES[x.dtype])
  put_u32(out, #shape)
  put_text(out, tostring(x.context))
  for _, n in ipairs(shape) do
    put_u64(out, n)
  end
  out[#out + 1] = x:tostring_raw()
end


local function before(a, b)
  if type(a) ~= type(b) then
    return type(a) == "number"
  end
  return a < b
end


local function put_pairs(out, t, depth)
  local keys = {}
  for key in pairs(t) do
    if type(key) ~= "string" and type(key) ~= "number" then
      Error.raise{ code = "type", func = "container.encode", got = Error.kind(key),
        message = "keys are numbers or texts" }
    end
    keys[#keys + 1] = key
  end
  table.sort(keys, before)
  out[#out + 1] = "{"
  put_u64(out, #keys)
  for _, key in ipairs(keys) do
    put(out, key, depth)
    put(out, t[key], depth)
  end
end


local function put_table(out, t, depth)
  local kind = getmetatable(t)
  if depth > MOST_NESTED then
    Error.raise{ code = "value", func = "container.encode",
      message = "tables are nested too deeply, or hold themselves" }
  elseif class.is_array(t) then
    return put_array(out, t)
  elseif kind and not names[kind] then
    Error.raise{ code = "type", func = "container.encode", got = Error.kind(t),
      message = "objects of this class cannot be saved; register the class" }
  elseif kind then
    out[#out + 1] = "o"
    put_text(out, names[kind])
  end
  put_pairs(out, t, depth + 1)
end


local NUMBER = ffi.typeof("double[1]")

function put(out, v, depth)
  local kind = type(v)
  if v == values.null or v == nil then
    out[#out + 1] = "z"
  elseif kind == "boolean" then
    out[#out + 1] = v and "t" or "f"
  elseif kind == "number" then
    out[#out + 1] = "n" .. ffi.string(NUMBER(v), 8)
  elseif kind == "string" then
    put_text(out, v)
  elseif kind == "table" then
    put_table(out, v, depth)
  else
    Error.raise{ code = "type", func = "container.encode", got = Error.kind(v),
      message = "this cannot be saved" }
  end
end


-- Interpreted, since with LuaJIT 2.1-beta3 a table that contains itself once passed without an
-- error, probably because of the compiled recursion.
jit.off(put_pairs)
jit.off(put_table)
jit.off(put)


--- Returns a value as bytes.
function container.encode(v)
  local out = {}
  put(out, v, 0)
  local body = table.concat(out)
  local head = { MAGIC }
  put_u32(head, VERSION)
  put_u32(head, checksum(ffi.cast("const uint8_t *", body), #body))
  put_u64(head, #body)
  return table.concat(head) .. body
end


-- Reading -----------------------------------------------------------------------------------------

local function fail(r, text)
  Error.raise{ code = "format", func = r.func,
    message = ("%s, at byte %d"):format(text, r.at) }
end


local function take(r, n)
  if n > #r.text - r.at then
    fail(r, "the bytes end too early")
  end
  local s = r.text:sub(r.at + 1, r.at + n)
  r.at = r.at + n
  return s
end


local function take_number(r, ctype, n)
  local bytes = take(r, n)
  local one = ffi.new(ctype .. "[1]")
  ffi.copy(one, bytes, n)
  if ctype == "double" then
    nans.mend(one, args.DTYPES.float64, 1)
  end
  return tonumber(one[0])
end


local get

local function get_text(r)
  if take(r, 1) ~= "s" then
    fail(r, "a text is expected")
  end
  return take(r, take_number(r, "uint64_t", 8))
end


local function get_array(r)
  local dtype, ndim = take_number(r, "uint32_t", 4), take_number(r, "uint32_t", 4)
  local ctx, shape, bytes = get_text(r), {}, class.BYTES[dtype]
  if not bytes or ndim < 1 or ndim > 8 or not ctx:find("^[%a_]+%(%d+%)$") then
    fail(r, "bad description of an array")
  end
  for i = 1, ndim do
    shape[i] = take_number(r, "uint64_t", 8)
    bytes = bytes * shape[i]
  end
  if bytes == 0 then
    fail(r, "bad shape of an array")
  end
  local x = transfer.from_string(take(r, bytes), shape, dtype, r.func)
  local ok, moved = attempt(function() return x:as_in_context(context.Context(ctx)) end)
  return ok and moved or x
end


local function get_pairs(r, depth)
  if depth > MOST_NESTED then
    fail(r, "tables are nested too deeply")
  end
  local t = {}
  for _ = 1, take_number(r, "uint64_t", 8) do
    local key = get(r, depth)
    if type(key) ~= "string" and type(key) ~= "number" or key ~= key then
      fail(r, "bad key")
    end
    t[key] = get(r, depth)
  end
  return t
end


local function get_object(r, depth)
  local name = get_text(r)
  if not classes[name] then
    fail(r, ("unknown class '%s'"):format(name))
  elseif take(r, 1) ~= "{" then
    fail(r, "the fields of an object are missing")
  end
  return setmetatable(get_pairs(r, depth), classes[name])
end


local READERS = {
  z = function() return values.null end,
  t = function() return true end,
  f = function() return false end,
  n = function(r) return take_number(r, "double", 8) end,
  s = function(r) return take(r, take_number(r, "uint64_t", 8)) end,
  a = get_array,
  o = function(r, depth) return get_object(r, depth + 1) end,
  ["{"] = function(r, depth) return get_pairs(r, depth + 1) end,
}


function get(r, depth)
  local letter = take(r, 1)
  local reader = READERS[letter] or fail(r, "unknown kind of value")
  return reader(r, depth)
end


--- Returns the value of saved bytes. An array whose device does not exist is returned on the CPU.
-- Raises E(format) for other or damaged bytes.
-- @string text
-- @string func for errors
function container.decode(text, func)
  local r = { text = text, at = 0, func = func }
  if type(text) ~= "string" or text:sub(1, #MAGIC) ~= MAGIC or #text < HEAD then
    fail(r, "these are not bytes that Tycho has saved")
  end
  r.at = #MAGIC
  if take_number(r, "uint32_t", 4) ~= VERSION then
    fail(r, "the bytes are of another version")
  end
  local sum, length = take_number(r, "uint32_t", 4), take_number(r, "uint64_t", 8)
  if length ~= #text - HEAD then
    fail(r, "the bytes are truncated or have a tail")
  elseif checksum(ffi.cast("const uint8_t *", text) + HEAD, length) ~= sum then
    fail(r, "the bytes are damaged")
  end
  local v = get(r, 0)
  if r.at ~= #text then
    fail(r, "the bytes have a tail")
  end
  return v
end


-- Files -------------------------------------------------------------------------------------------

--- Writes a value to a file, atomically.
function container.save(path, v, func)
  files.write(path, container.encode(v), func)
end


--- Returns the value of a file.
function container.load(path, func)
  return files.parse(path, func, function(bytes)
    return container.decode(bytes, func)
  end)
end


return container
