--- rand_zipfian of `ty.nd.contrib` and `ty.sym.contrib`: draws candidate classes for sampled losses
-- over many classes; frequent classes, which have small numbers, are drawn often.
--
-- @module tycho.op.zipfian

local args = require "tycho.core.args"


--- Adds the function to a namespace: class k of 0 to range_max - 1 has the probability (log(k + 2)
-- - log(k + 1)) / log(range_max + 1). It takes true_classes, num_sampled and range_max, and returns
-- the sampled classes (int64) and the expected counts of the true and of the sampled classes
-- (float64).
-- @tparam table functions the namespace's own functions
-- @string kind type of the arguments: "array" or "symbol"
-- @string space "nd.contrib.", for errors
-- @tparam function uniform of the namespace's `random`
return function(functions, kind, space, uniform)
  local form = args.form(space .. "rand_zipfian", {
    { "true_classes", kind }, { "num_sampled", "positive" }, { "range_max", "positive" },
    { "ctx", "context?" },
  })

  function functions.rand_zipfian(...)
    local a = form(...)
    local log_range = math.log(a.range_max + 1)
    local function expected(classes)
      local k = classes:astype("float64")
      return ((k + 2) / (k + 1)):log() * (a.num_sampled / log_range)
    end
    local exponent = uniform{ low = 0, high = log_range, shape = { a.num_sampled },
      dtype = "float64", ctx = kind == "array" and a.ctx or nil }
    local sampled = (exponent:exp() - 1):astype("int64") % a.range_max
    return sampled, expected(a.true_classes), expected(sampled)
  end

  return functions
end
