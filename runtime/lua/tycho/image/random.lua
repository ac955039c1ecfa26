--- Single random numbers for augmentation, from the random state of cpu(0) (`ty.random.seed`). They
-- are returned at once, while the result of an operator would wait for work that is queued before
-- it.
--
-- @module tycho.image.random

local ffi = require "ffi"
local native = require "tycho.core.ffi"

local C, check = native.C, native.check

local random = {}

local unit = ffi.new("double[1]")

--- Returns a number from low up to, but not including, high.
function random.uniform(low, high)
  check(C.ty_rng_unit(C.TY_CPU, unit), "image")
  return low + (high - low) * unit[0]
end


--- Returns an integer from low to high, both included.
function random.integer(low, high)
  return math.min(math.floor(random.uniform(low, high + 1)), high)
end


--- Returns a normal number with mean 0.
function random.normal(deviation)
  return deviation * math.sqrt(-2 * math.log(1 - random.uniform(0, 1)))
    * math.cos(2 * math.pi * random.uniform(0, 1))
end


return random
