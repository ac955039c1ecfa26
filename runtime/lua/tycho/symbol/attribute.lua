--- Attributes for every symbol made inside a scope.
--
--     ty.AttrScope{ctx_group = "dev1"}:with(function() ... end)
--
-- @module tycho.attribute

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local namespace = require "tycho.core.namespace"
local scope = require "tycho.core.scope"

local attribute = {}

--- Attributes of all nodes that are made inside: `ty.AttrScope{ctx_group = "a"}:with(f)`.
-- @type AttrScope
local AttrScope = Class:extend("AttrScope")
scope.make(AttrScope, "attribute")


function AttrScope:init(attrs)
  self._attrs = {}
  if attrs ~= nil and type(attrs) ~= "table" then
    Error.raise{ code = "type", func = "AttrScope", argument = "attrs", got = Error.kind(attrs),
      expected = "a table of attributes", message = "bad 'attrs'" }
  end
  for key, value in pairs(attrs or {}) do
    if type(key) ~= "string" or type(value) ~= "string" then
      Error.raise{ code = "value", func = "AttrScope", argument = tostring(key), expected = "text",
        got = Error.kind(value), message = "attributes are text" }
    end
    self._attrs[key] = value
  end
end


-- Returns a scope with the attributes of the enclosing one, overlaid by its own.
function AttrScope:entered(outer)
  local merged = AttrScope(outer and outer._attrs)
  for key, value in pairs(self._attrs) do
    merged._attrs[key] = value
  end
  return merged
end


--- Returns the scope's attributes overlaid by those given, as a new table.
-- @tparam[opt] table attrs attributes of a call
function AttrScope:get(attrs)
  local merged = {}
  for key, value in pairs(self._attrs) do
    merged[key] = value
  end
  for key, value in pairs(attrs or {}) do
    merged[key] = value
  end
  return merged
end


attribute.AttrScope = AttrScope

local outermost = AttrScope()

--- Returns the current scope.
function attribute.current()
  return scope.current("attribute") or outermost
end


--- Returns whether there is a current scope.
function attribute.any()
  return scope.current("attribute") ~= nil
end


return namespace.close(attribute, "attribute", "class or function")
