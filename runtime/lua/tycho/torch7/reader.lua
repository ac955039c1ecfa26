--- Reads files of Torch7 (`torch.save`): numbers, strings, booleans, tables, tensors, storages, and
-- objects as tables of their fields. Functions are skipped; no class is looked up.
--
-- A file contains one object; further contents are ignored. Tables, objects and functions have an
-- index: they are written once and later referred to by it, so cycles are restored. Open objects
-- are kept in a list, not on Lua's stack, so that nesting is limited only by memory.
--
-- @module tycho.torch7.reader

local pairs = require("tycho.core.iterate").pairs
local attempt = require "tycho.core.attempt"
local Error = require "tycho.core.error"
local file_arrays = require "tycho.ndarray.file_arrays"
local objects = require "tycho.torch7.objects"
local stream = require "tycho.torch7.stream"
local values = require "tycho.core.values"
require "tycho.ndarray"

local reader = {}

local NIL, NUMBER, STRING, TABLE, TORCH, BOOLEAN, FUNCTION, OLD_FUNCTION, NEW_FUNCTION =
  0, 1, 2, 3, 4, 5, 6, 7, 8

local MOST_DIMENSIONS = 16                               -- TY_MAXDIM
local OBJECT_BYTES = 200                                 -- bytes of an empty table and its index
local BASE, TIMES = 64 * 2 ^ 20, 4                       -- most memory: bytes, multiple of the file
local SMALLEST_ENTRY = 8                                 -- bytes of a table's key and value

-- Elements of tensors and storages. `long`: a C long, of 8 or 4 bytes.
reader.KINDS = {
  Float  = { dtype = "float32", bytes = 4 }, Double = { dtype = "float64", bytes = 8 },
  Half   = { dtype = "float16", bytes = 2 },
  Long   = { dtype = "int64", bytes = 8, long = true }, Int = { dtype = "int32", bytes = 4 },
  Short  = { dtype = "int16", bytes = 2 },
  Byte   = { dtype = "uint8", bytes = 1 }, Char = { dtype = "int8", bytes = 1 },
}

local PENDING = {}                                       -- marks an object that is being read


-- A frame is an object that is being read; the innermost one is the last. Its function
-- `take(reader, frame, value)` stores a value in it and returns whether the object is complete. The
-- frame's `value` is then passed to the `take` of the enclosing frame.

local function check_key(r, key)
  if key == nil then
    r.stream:fail("the key of a table is nil")
  elseif key ~= key then
    r.stream:fail("the key of a table is NaN")
  end
end


local function take_entry(r, frame, value)
  if not frame.has_key then
    check_key(r, value)
    frame.key, frame.has_key = value, true
    return false
  end
  rawset(frame.value, frame.key, value)
  frame.has_key, frame.left = false, frame.left - 1
  return frame.left == 0
end


local function take_item(_, frame, value)
  frame.n = frame.n + 1
  frame.value[frame.n] = value
  return frame.n == frame.count
end


-- Sets the fields of an object from a table, which may have been read into the object itself.
-- Returns whether the object is complete; headers in front of that table are skipped.
local function take_fields(r, frame, value)
  local object = frame.value
  if frame.headers > 0 then
    frame.headers = frame.headers - 1
    if object.gpuAssignments == nil and values.is_plain(value) then
      object.gpuAssignments = value
    end
    r.into = frame.headers == 0 and object or nil
    return false
  elseif rawequal(value, object) then
    return true
  elseif not values.is_plain(value) then
    r.stream:fail("the fields of a %s are %s", objects.typename(object), objects.kind(value))
  end
  for key, field in pairs(value) do
    rawset(object, key, field)
  end
  return true
end


local function take_upvalues()
  return true
end


-- Tensors -----------------------------------------------------------------------------------------

local function read_sizes(r, class)
  local s = r.stream
  local n = s:int()
  if n < 0 or n > MOST_DIMENSIONS then
    s:fail("a %s of %d dimensions (at most %d)", class, n, MOST_DIMENSIONS)
  end
  local sizes, strides, count = {}, {}, n > 0 and 1 or 0
  for i = 1, n do
    sizes[i] = s:long()
    if sizes[i] < 0 then
      s:fail("a %s with a size of %.0f", class, sizes[i])
    end
    count = count * sizes[i]
  end
  for i = 1, n do
    strides[i] = s:long()
    if strides[i] < 0 then
      s:fail("a %s with a stride of %.0f", class, strides[i])
    end
  end
  return sizes, strides, count, s:long() - 1
end


local function take_storage(r, frame, value)
  local s, origin = r.stream, objects.origin(value) or r.empty[value]
  if frame.count == 0 then
    if value ~= nil and not origin then
      s:fail("the storage of a %s is %s", frame.class, objects.kind(value))
    end
    frame.value = values.null
    return true
  end
  local wanted = frame.class:gsub("Tensor$", "Storage")
  if not origin or origin.class ~= wanted then
    s:fail("the storage of a %s is %s", frame.class, objects.kind(value))
  end
  local last = frame.offset
  for i, size in ipairs(frame.sizes) do
    last = last + (size - 1) * frame.strides[i]
  end
  if not (frame.offset >= 0 and last < origin.count) then
    s:fail("a %s has elements %.0f to %.0f of a storage of %.0f", frame.class, frame.offset, last,
      origin.count)
  end
  local part, dense = origin.part, file_arrays.is_dense(frame.sizes, frame.strides)
  -- an expanded tensor has more elements than its storage
  if frame.count * 8 > BASE + TIMES * s.file.size and not dense then
    s:fail("a %s of %.0f elements over a storage of %.0f", frame.class, frame.count, origin.count)
  end
  local x = part.file:array{ at = part.at + frame.offset * origin.bytes, shape = frame.sizes,
    strides = not dense and frame.strides or nil, dtype = part.dtype }
  frame.value = objects.note(x, { class = frame.class, storage = origin.storage,
    offset = frame.offset, strides = frame.strides })
  return true
end


local function begin_tensor(r, class)
  local sizes, strides, count, offset = read_sizes(r, class)
  return nil, { take = take_storage, class = class, sizes = sizes, strides = strides,
    count = count, offset = offset }
end


-- Reads a storage: an array of one dimension, or an empty object if it has no elements.
local function read_storage(r, class, kind)
  local n = r.stream:long()
  if n < 0 then
    r.stream:fail("a %s of %.0f elements", class, n)
  end
  local part = r.stream:elements(kind, n)
  local origin = { class = class, count = n, part = part, storage = {},
    bytes = part.dtype == "long32" and 4 or part.dtype == "float32" and 4 or kind.bytes }
  if n == 0 then
    local object = setmetatable({}, r:class(class, 1))
    r.empty[object] = origin
    return object
  end
  origin.offset, origin.strides = 0, { 1 }
  return objects.note(part.file:array{ at = part.at, shape = { n }, dtype = part.dtype }, origin)
end


-- Objects -----------------------------------------------------------------------------------------

-- Returns the number of objects that a class writes in front of the one with the fields.
local function count_headers(name, version)
  return name == "nn.GPU" and 1 or name == "nn.DataParallelTable" and version >= 2 and 1 or 0
end


local function begin_table(r, value, count)
  local s = r.stream
  if count < 0 or count > s:left() / (s.long_bytes and SMALLEST_ENTRY or SMALLEST_ENTRY / 2) then
    s:fail("a table of %.0f entries, %.0f bytes are left", count, s:left())
  elseif count == 0 then
    return value
  end
  return nil, { take = take_entry, value = value, left = count }
end


-- Hashes and vectors of the package tds.
local BEGIN_TDS = {}

BEGIN_TDS["tds.Hash"] = function(r, object)
  return begin_table(r, object, r.stream:long())
end

BEGIN_TDS["tds.Vec"] = function(r, object)
  local count = r.stream:long()
  if count < 0 or count > r.stream:left() / 2 then
    r.stream:fail("a tds.Vec of %.0f elements, %.0f bytes are left", count, r.stream:left())
  elseif count == 0 then
    return object
  end
  return nil, { take = take_item, value = object, n = 0, count = count }
end


local function read_class(r)
  local s = r.stream
  local word = s:text(s:int())
  local version = tonumber(word:match("^V (%d+)$"))
  return version and s:text(s:int()) or word, version or 0
end


-- Returns the element type of a class, and whether it is one of tensors or of storages;
-- "torch.CudaTensor" has floats.
local function find_kind(class)
  local what = class:match("Tensor$") or class:match("Storage$")
  local name = what and class:match("^torch%.(.*)" .. what)
  if name and name:sub(1, 4) == "Cuda" then
    name = name == "Cuda" and "Float" or name:sub(5)
  end
  return name and reader.KINDS[name], what
end


local function begin_torch(r, index)
  local name, version = read_class(r)
  local kind, what = find_kind(name)
  if kind and what == "Tensor" then
    return begin_tensor(r, name)
  elseif kind then
    return read_storage(r, name, kind)
  end
  local object = setmetatable({}, r:class(name, version))
  r.known[index] = object
  if BEGIN_TDS[name] then
    return BEGIN_TDS[name](r, object)
  end
  local headers = count_headers(name, version)
  r.into = headers == 0 and object or nil
  return nil, { take = take_fields, value = object, headers = headers }
end


local function begin_function(r)
  local s = r.stream
  local bytes = s:int()
  if bytes < 0 then
    s:fail("a function of %d bytes", bytes)
  end
  s:text(bytes)
  return nil, { take = take_upvalues, value = setmetatable({}, r:class("function", 0)) }
end


-- Reads an index. Returns it, whether it is new, and the value of a known one.
local function read_index(r)
  local index = r.stream:int()
  local known = r.known[index]
  if known == PENDING then
    r.stream:fail("object %d is a part of itself", index)
  elseif known ~= nil then
    return index, false, known
  end
  r.known[index] = PENDING
  r.count = r.count + 1
  if r.count * OBJECT_BYTES > BASE + TIMES * r.stream.file.size then
    r.stream:fail("more than %d objects in a file of %.0f bytes", r.count, r.stream.file.size)
  end
  return index, true
end


local BEGIN = {}

BEGIN[NIL] = function() return nil end

BEGIN[NUMBER] = function(r) return r.stream:double() end

BEGIN[STRING] = function(r)
  local n = r.stream:int()
  if n < 0 then
    r.stream:fail("a text of %d bytes", n)
  end
  return r.stream:text(n)
end

BEGIN[BOOLEAN] = function(r)
  local v = r.stream:int()
  if v ~= 0 and v ~= 1 then
    r.stream:fail("a boolean of %d", v)
  end
  return v == 1
end

-- Returns a function that reads an object with an index: `begin(r, index, into)` reads it the first
-- time, later references return the same object.
local function read_once(begin)
  return function(r, into)
    local index, new, known = read_index(r)
    if not new then
      return known
    end
    local value, frame = begin(r, index, into)
    if frame then
      frame.index = index
    else
      r.known[index] = value
    end
    return value, frame
  end
end

BEGIN[TABLE] = read_once(function(r, index, into)
  local value = into or {}
  r.known[index] = value
  return begin_table(r, value, r.stream:int())
end)

BEGIN[TORCH] = read_once(begin_torch)
BEGIN[FUNCTION] = begin_function
BEGIN[OLD_FUNCTION] = read_once(begin_function)
BEGIN[NEW_FUNCTION] = read_once(begin_function)


-- Begins to read an object: returns its value, or the frame that will receive it.
local function begin_object(r)
  local tag, into = r.stream:int(), r.into
  r.into = nil
  local f = BEGIN[tag]
  if not f then
    r.stream:fail("%d is no type of an object%s", tag,
      r.count == 0 and "; is this a file of torch.save?" or "")
  end
  return f(r, into)
end


local Reader = {}
Reader.__index = Reader

--- Returns the metatable of a class; objects of one class and version share it.
function Reader:class(name, version)
  local key = version .. ":" .. name
  self.classes[key] = self.classes[key] or objects.class(name, version)
  return self.classes[key]
end


-- Reads the file's first object.
local function read_object(r)
  local frames, n = {}, 0
  while true do
    local value, frame = begin_object(r)
    if frame then
      n = n + 1
      frames[n] = frame
    else
      while n > 0 and frames[n].take(r, frames[n], value) do
        value = frames[n].value
        if frames[n].index then
          r.known[frames[n].index] = value
        end
        frames[n], n = nil, n - 1
      end
      if n == 0 then
        return value
      end
    end
  end
end


local function read_as(file, format, long_bytes)
  local r = setmetatable({ stream = stream.open(file, format, long_bytes), known = {}, count = 0,
    classes = {}, empty = setmetatable({}, { __mode = "k" }) }, Reader)
  return read_object(r), r.stream:left()
end


-- Reads a binary file, with longs of 8 bytes or, if that fails, of 4. With 4 bytes a damaged file
-- may seem complete, since the upper half of a small long reads as a nil; the object must therefore
-- end at the end of the file.
local function read_binary(file)
  local ok, value = attempt(read_as, file, "binary", 8)
  if ok then
    return value
  end
  local short, other, left = attempt(read_as, file, "binary", 4)
  if short and left == 0 then
    return other
  end
  error(value, 0)
end


--- Reads a file.
-- @string path
-- @string func for errors
-- @return the object
function reader.read(path, func)
  return reader.read_file(file_arrays.open(path, func))
end


--- Reads an open file.
-- @tparam table file the result of `file_arrays.open`
-- @return the object
function reader.read_file(file)
  if file.size == 0 then
    Error.raise{ code = "format", func = file.func, argument = file.path,
      message = ("'%s' is empty"):format(file.path) }
  end
  if stream.detect_format(file) == "ascii" then
    return (read_as(file, "ascii"))
  end
  return read_binary(file)
end


return reader
