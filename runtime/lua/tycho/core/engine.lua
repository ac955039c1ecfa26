--- Sizes of tasks. A program's segments are whole parts already, so these numbers change neither
-- order nor results; they are kept for scripts that set them.
--
--     ty.engine.bulk(10):with(function() ... end)
--
-- @module tycho.engine

local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local namespace = require "tycho.core.namespace"
local scope = require "tycho.core.scope"

local engine = {}

local outermost = 15

local SET = args.form("engine.set_bulk_size", { { "size", "integer" } })

local Bulk = Class:extend("Bulk")
scope.make(Bulk, "bulk")

function Bulk:init(size)
  self.size = size
end


--- Sets how many operators one task may hold.
-- @tparam number size
-- @treturn number the size before
function engine.set_bulk_size(...)
  local before = outermost
  outermost = SET(...).size
  return before
end


--- Returns a scope with another size: `engine.bulk(n):with(f)`.
-- @tparam number size
function engine.bulk(...)
  return Bulk(SET(...).size)
end


return namespace.close(engine, "engine", "function")
