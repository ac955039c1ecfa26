--- Objects of Torch7 files as Lua values: tables with the fields in the file, and their classes. No
-- code of a class is looked up or run.
--
-- @module tycho.torch7.objects

local pairs = require("tycho.core.iterate").pairs
local attrs = require "tycho.core.attrs"
local Error = require "tycho.core.error"

local objects = {}

local SHOWN = 8                                          -- most fields in `tostring`
local MARK = {}                                           -- marks metatables of this file


-- Returns an object's class and first fields as text.
local function show_object(object)
  local names = attrs.keys(object)
  local parts = {}
  for i = 1, math.min(#names, SHOWN) do
    local value = object[names[i]]
    local simple = type(value) == "number" or type(value) == "boolean"
    parts[i] = tostring(names[i]) .. (simple and " = " .. tostring(value) or "")
  end
  if #names > SHOWN then
    parts[SHOWN + 1] = "..."
  end
  return ("%s {%s}"):format(getmetatable(object).class_name, table.concat(parts, ", "))
end


--- Makes a class of objects, with a name and a version; each reading of a file makes separate ones.
-- @string name as in the file
-- @int version 0 if the file has none
-- @treturn table the metatable of its objects
function objects.class(name, version)
  return { class_name = name, version = version, own = MARK, __tostring = show_object }
end


-- Returns the class of an object of a file; nil for other values.
local function get_class(value)
  local class = type(value) == "table" and getmetatable(value)
  return type(class) == "table" and rawget(class, "own") == MARK and class or nil
end


--- Returns whether a value is an object of a class, other than a tensor or a storage.
function objects.is(value)
  return get_class(value) ~= nil
end


--- Returns the class name of a value: of objects, and of arrays that were tensors or storages.
-- @param value anything
-- @treturn string such as "nn.Linear"; nil for plain values
function objects.typename(value)
  local class = get_class(value)
  if class then
    return class.class_name
  end
  local origin = objects.origin(value)
  return origin and origin.class
end


--- Returns the class version with which an object was written.
function objects.version(object)
  return get_class(object).version
end


--- Records the origin of an array from a file.
-- @tparam NDArray x
-- @tparam table origin class; storage: a table for each storage, offset from 0, strides
-- @treturn NDArray x
function objects.note(x, origin)
  rawset(x, "_torch7", origin)
  return x
end


--- Returns the origin that `note` recorded; nil for other values.
function objects.origin(x)
  return type(x) == "table" and rawget(x, "_torch7") or nil
end


--- Returns the names of an object's fields, sorted, for errors.
function objects.fields(object)
  local names = {}
  for key in pairs(object) do
    if type(key) == "string" then
      names[#names + 1] = key
    end
  end
  table.sort(names)
  return names
end


--- Returns a short text about a value, for errors.
function objects.kind(value)
  local name = objects.typename(value)
  return name and Error.with_article(name) or Error.kind(value)
end


return objects
