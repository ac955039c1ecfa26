--- isnan, isinf and isfinite of `ty.nd.contrib` and `ty.sym.contrib`: 1 or 0 for each element, in
-- the element type of the input, computed with comparisons that arrays and symbols both have.
--
-- @module tycho.op.finite

local args = require "tycho.core.args"

local RULES = {
  isnan = function(x)
    return x:ne(x)
  end,
  isinf = function(x)
    return x:abs():eq(math.huge)
  end,
  isfinite = function(x)
    return x:eq(x) * x:abs():ne(math.huge)
  end,
}


--- Adds the functions to a namespace.
-- @tparam table functions the namespace's own functions
-- @string kind what they read: "array" or "symbol"
-- @string space "nd.contrib.", for errors
return function(functions, kind, space)
  for name, rule in pairs(RULES) do
    local form = args.form(space .. name, { { "data", kind } })
    functions[name] = function(...)
      return rule(form(...).data)
    end
  end
  return functions
end
