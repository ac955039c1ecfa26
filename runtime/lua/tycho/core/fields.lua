--- Classes whose objects have properties (not for users).
--
--     fields.give(Base, { size = function(self) return #self._list end })     -- object.size
--     Sub.fields = Base.extend_fields{ first = function(self) return self._list[1] end }
--
-- A name that is neither a method nor a property is E(name), unless it begins with an underscore.
--
-- @module tycho.core.fields

local pairs = require("tycho.core.iterate").pairs
local Error = require "tycho.core.error"

local fields = {}


local function is_public(name)
  return name:sub(1, 1) ~= "_"
end


-- Returns the names of the properties and methods of a class and its bases.
local function member_names(class)
  local names, list = {}, class.fields
  while list do
    for name in pairs(list) do
      names[#names + 1] = name
    end
    list = (getmetatable(list) or {}).__index
  end
  while class do
    for name, v in pairs(class) do
      names[#names + 1] = type(v) == "function" and is_public(name) and name or nil
    end
    class = rawget(class, "super")
  end
  return names
end


local function read(object, key)
  local class = getmetatable(object)
  local v = class[key]
  if v ~= nil then
    return v
  end
  local field = class.fields[key]
  if field then
    return field(object)
  elseif type(key) == "string" and is_public(key) then
    Error.unknown{ func = class.class_name, argument = key, what = "field or method",
      names = member_names(class) }
  end
end


--- Gives properties to a class and to its later subclasses.
-- @tparam table Base class
-- @tparam table own name -> function(self)
function fields.give(Base, own)
  Base.fields, Base.__index = own, read
  --- Returns the properties of a subclass: its own, and those of the base for other names.
  function Base.extend_fields(more, base)
    return setmetatable(more, { __index = base or own })
  end
end


return fields
