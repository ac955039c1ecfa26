--- var and std of arrays and symbols: the mean square of the distances from the mean, and its
-- square root. The sum of squares is divided by the number of elements. The gradient of std is not
-- finite if all elements are equal.
--
-- @module tycho.op.variance

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"

local FINISH = {
  var = function(x)
    return x
  end,
  std = function(x)
    return x:sqrt()
  end,
}


--- Adds the methods to a class, and functions to its namespace, except for names that exist there:
-- `var` of `ty.sym` makes a variable. All take axis (a number or a list; nil: all axes) and
-- keepdims (false).
-- @tparam table functions the namespace
-- @tparam table class NDArray or Symbol
-- @string kind type of the argument: "array" or "symbol"
-- @string space "nd.", for errors
-- @tparam function compute f(x, axes, keepdims): the variance of x over a list of axes (empty: all)
return function(functions, class, kind, space, compute)
  for name, finish in pairs(FINISH) do
    local axis, keepdims = { "axis", "integer|dims?" }, { "keepdims", "boolean", false }
    local method = args.form(class.class_name .. ":" .. name, { axis, keepdims })
    class[name] = function(x, ...)
      local a = method(...)
      return finish(compute(x, a.axis or {}, a.keepdims))
    end
    if not functions[name] then
      local form = args.form(space .. name, { { "data", kind }, axis, keepdims })
      functions[name] = function(...)
        local a = form(...)
        return finish(compute(a.data, a.axis or {}, a.keepdims))
      end
    end
  end
end
