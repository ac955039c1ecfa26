--- Guards of methods: a call with a dot instead of a colon raises an error that says so, instead of
-- one from somewhere inside.
--
--     methods.guard(Module)       -- Module's own methods and those of its bases
--     mod.fit{ num_epoch = 1 }    -- E(type): Module:fit: methods take a colon ...
--
-- A class may have `argument_checks`: method name -> function that is called before the method with
-- the object and the arguments, and raises an error if they are wrong.
--
-- A method is a function whose first parameter is `self`, or `_` if it does not use it. Names that
-- begin with `_`, and `init`, are not guarded.
--
-- @module tycho.core.methods

local pairs = require("tycho.core.iterate").pairs
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"

local methods = {}

local is_a = Class.is_a
local guarded = setmetatable({}, { __mode = "k" })       -- classes
local inside = setmetatable({}, { __mode = "k" })        -- guard -> the method inside


--- Returns the method inside a guard; any other value as it is.
function methods.inner(f)
  return inside[f] or f
end


-- Returns whether an object's class has a method of another class under the same name.
local function has_method(object, name, f)
  local class = type(object) == "table" and getmetatable(object)
  return Class.is_class(class) and class[name] == f
end


local function fail_object(object, class, name)
  Error.raise{ code = "type", func = ("%s:%s"):format(class.class_name, name), argument = "self",
    expected = Error.with_article(class.class_name), got = Error.kind(object),
    message = ("methods take a colon: x:%s(...), not x.%s(...)"):format(name, name) }
end


-- The source of a guard. It is compiled once per method: the JIT compiler works by prototypes, and
-- with one prototype for all guards the step of a small module took 25 us more.
local SOURCE = [[
local inner, is_a, class, name, has_method, fail_object, check = ...
local f
f = function(self, ...)
  if not has_method(self, name, f) and not is_a(self, class) then
    fail_object(self, class, name)
  end%s
  return inner(self, ...)
end
return f]]
local PLAIN, CHECKED = SOURCE:format(""), SOURCE:format("\n  check(self, ...)")
local CHUNK = debug.getinfo(1, "S").source               -- errors take it for this file

-- Returns a method that refuses objects of other classes.
local function guard_method(class, name, inner)
  local check = class.argument_checks and class.argument_checks[name]
  local make = assert(loadstring(check and CHECKED or PLAIN, CHUNK))
  local f = make(inner, is_a, class, name, has_method, fail_object, check)
  inside[f] = inner
  return f
end


local function is_method(name, f)
  if type(name) ~= "string" or type(f) ~= "function" or inside[f] or name == "init"
      or name:sub(1, 1) == "_" then
    return false
  end
  local first = debug.getlocal(f, 1)
  return first == "self" or first == "_"
end


--- Guards the methods of a class that is complete, and of its bases.
-- @tparam table class
-- @tparam[opt] {string=true,...} except names of methods that stay as they are: what each call of a
--   layer calls, and what is known by its function
-- @treturn table the class
function methods.guard(class, except)
  if class == Class or guarded[class] then
    return class
  end
  guarded[class] = true
  local found = {}
  for name, f in pairs(class) do
    found[name] = not (except and except[name]) and is_method(name, f) and f or nil
  end
  for name, f in pairs(found) do
    class[name] = guard_method(class, name, f)
  end
  methods.guard(class.super, except)
  return class
end


--- Guards the classes among the values of a table.
-- @tparam table list
-- @tparam[opt] {string=true,...} except as of `guard`
-- @treturn table the table
function methods.guard_all(list, except)
  for _, value in pairs(list) do
    if Class.is_class(value) then
      methods.guard(value, except)
    end
  end
  return list
end


return methods
