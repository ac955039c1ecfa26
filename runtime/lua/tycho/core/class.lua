--- The smallest class: `extend`, construction by calling, `super`.
--
--     local Class = require "tycho.core.class"
--     local Shape = Class:extend("Shape")
--     function Shape:init(sides) self.sides = sides end
--     local Square = Shape:extend("Square")
--     function Square:init() Square.super.init(self, 4) end
--     Square().sides                                       --> 4
--
-- A class is its instances' metatable. Metamethods (`__add`, `__tostring` ...) are copied when a
-- class is extended, so a base must define its own before that.
--
-- @module tycho.core.class

local pairs = require("tycho.core.iterate").pairs
local new_table = require "table.new"

-- `field_count`: about how many fields a new object will have, where they are many
local Class = { class_name = "Object", field_count = false }
Class.__index = Class


local function construct(class, ...)
  local count = class.field_count
  local object = setmetatable(count and new_table(0, count) or {}, class)
  object:init(...)
  return object
end


--- Initializes a new object; classes override it. It gets the constructor's arguments, and does
-- nothing here.
function Class.init(_) end


function Class.__tostring(object)
  return "<" .. object.class_name .. ">"
end


-- Raises E(type) for a base that is not a class, or a name that is not text.
local function fail_extend(base, name)
  local Error = require "tycho.core.error"               -- late: error.lua requires this file
  local is_class = type(base) == "table" and base.extend ~= nil
  Error.raise{ code = "type", func = (is_class and base.class_name or "Class") .. ":extend",
    argument = is_class and "name" or nil, expected = is_class and "text" or "a class",
    got = Error.kind(is_class and name or base), message = is_class and "bad 'name'"
      or "methods take a colon: Base:extend(...), not Base.extend(...)" }
end


--- Returns a subclass.
-- @string[opt] name shown by `tostring`; the base's name otherwise
function Class:extend(name)
  if type(self) ~= "table" or not self.extend or name ~= nil and type(name) ~= "string" then
    fail_extend(self, name)
  end
  local class = { super = self, class_name = name or self.class_name }
  for key, value in pairs(self) do
    if type(key) == "string" and key:sub(1, 2) == "__" and key ~= "__index"
        and key ~= "__newindex" then
      class[key] = value
    end
  end
  class.__index = rawget(self, "__index") == self and class or rawget(self, "__index")
  class.__newindex = rawget(self, "__newindex")
  return setmetatable(class, { __index = self, __call = construct, __tostring = function(c)
    return "<class " .. c.class_name .. ">"
  end })
end


--- Returns whether x is an instance of a class or of one that extends it.
-- @param x anything
-- @param class the class
function Class.is_a(x, class)
  local c = type(x) == "table" and getmetatable(x) or nil
  if c == class then                                     -- no loop: callers are compiled
    return true
  end
  while type(c) == "table" do
    if c == class then
      return true
    end
    c = rawget(c, "super")
  end
  return false
end


--- Returns whether x is a class, not an instance of one.
function Class.is_class(x)
  return type(x) == "table" and rawget(x, "class_name") ~= nil and rawget(x, "super") ~= nil
end


return Class
