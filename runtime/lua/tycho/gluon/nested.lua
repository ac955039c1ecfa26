--- Arguments and results of blocks as a flat list of tensors and their structure (core/nested.lua).
-- nil and `ty.null` are not values.
--
-- @module tycho.gluon.nested

local core = require "tycho.core.nested"
local Error = require "tycho.core.error"
local NDArray = require("tycho.ndarray").NDArray
local Symbol = require("tycho.symbol.symbol").Symbol
local values = require "tycho.core.values"

local getmetatable = getmetatable

local nested = { regroup = core.regroup }


local function mark_of(v)
  local class = getmetatable(v)
  if class == NDArray or class == Symbol then
    return "."
  end
  return (v == nil or v == values.null) and "_" or nil
end


--- Returns the tensors among values in order, and the structure of the values. A value of another
-- kind is E(type).
-- @int n number of values
-- @tparam table list the values
-- @string func name of the caller, for errors
-- @treturn {NDArray|Symbol,...}
-- @treturn string structure
function nested.flatten(n, list, func)
  return core.flatten(n, list, mark_of, function(v)
    Error.raise{ code = "type", func = func, expected = "arrays, symbols, nil and lists of them",
      got = Error.kind(v), message = "a block that is traced takes and returns tensors only; make \z
        numbers and options fields of the block" }
  end)
end


return nested
