--- Automatic names: one counter per hint and manager.
--
--     ty.name.NameManager():with(function() ... end)    -- counters start afresh inside
--     ty.name.Prefix("net_"):with(function() ... end)   -- all names of operators begin with "net_"
--
-- @module tycho.name

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Class = require "tycho.core.class"
local namespace = require "tycho.core.namespace"
local scope = require "tycho.core.scope"

local name = {}

--- Names nodes that are made inside and have none: the operator's name and a number from 0.
-- @type NameManager
local NameManager = Class:extend("NameManager")
scope.make(NameManager, "name")

function NameManager:init()
  self._count = {}
end


--- Returns the given name, or the hint with the manager's next number.
-- @string[opt] given explicit name
-- @string hint what the name begins with
function NameManager:get(given, hint)
  if given and given ~= "" then
    return given
  end
  local n = self._count[hint] or 0
  self._count[hint] = n + 1
  return hint .. n
end


--- Puts a text in front of every name that is made inside: `ty.name.Prefix("a_"):with(f)`.
-- @type Prefix
local Prefix = NameManager:extend("Prefix")

function Prefix:init(prefix)
  Prefix.super.init(self)
  self._prefix = prefix or ""
end


--- Returns a name as NameManager does, with the prefix before explicit names, too.
function Prefix:get(given, hint)
  return self._prefix .. Prefix.super.get(self, given, hint)
end


name.NameManager, name.Prefix = NameManager, Prefix

local outermost = NameManager()

--- Returns the current manager.
function name.current()
  return scope.current("name") or outermost
end


return namespace.close(name, "name", "class or function")
