--- The bulk size, for scripts that set it. Tasks are segments of programs, so the size has no
-- effect on order, results or speed.
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


--- Sets the number of operators per task; it has no effect (see above).
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
