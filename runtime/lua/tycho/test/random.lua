--- Random arrays and shapes for tests. They use `math.random`, so `math.randomseed` makes them
-- repeatable.
--
-- @module tycho.test.random

local Error = require "tycho.core.error"
local nd = require "tycho.ndarray"

local random = {}


-- Returns a nested table of random numbers; draw() returns one.
local function random_table(shape, draw, depth)
  depth = depth or 1
  local t = {}
  for i = 1, shape[depth] do
    t[i] = depth == #shape and draw() or random_table(shape, draw, depth + 1)
  end
  return t
end


-- Returns a function that draws normally distributed numbers of mean 0.
function random.normal(scale)
  return function()
    return scale * math.sqrt(-2 * math.log(1 - math.random()))
      * math.cos(2 * math.pi * math.random())
  end
end


-- Returns a function that draws numbers from low to high.
function random.uniform(low, high)
  return function()
    return low + (high - low) * math.random()
  end
end


-- Returns an array of random numbers; draw() returns one.
function random.array(shape, draw, dtype, ctx)
  return nd.array(random_table(shape, draw), { dtype = dtype, ctx = ctx })
end


local function check_size(v, what)
  if type(v) ~= "number" or v < 1 or v ~= math.floor(v) then
    Error.raise{ code = type(v) == "number" and "value" or "type", func = "test_utils.rand_shape",
      argument = what, expected = "an integer, 1 or more",
      got = type(v) == "number" and v or Error.kind(v), message = "bad " .. what }
  end
end


local function random_sizes(limits)
  local shape = {}
  for i, limit in ipairs(limits) do
    check_size(limit, "a limit")
    shape[i] = math.random(limit)
  end
  return shape
end


--- Returns random sizes from 1 to the given limits (10 by default).
function random.rand_shape_2d(d0, d1)
  return random_sizes{ d0 or 10, d1 or 10 }
end


function random.rand_shape_3d(d0, d1, d2)
  return random_sizes{ d0 or 10, d1 or 10, d2 or 10 }
end


function random.rand_shape_nd(n, dim)
  local limits = {}
  check_size(n, "the number of dimensions")
  for i = 1, n do
    limits[i] = dim or 10
  end
  return random_sizes(limits)
end


return random
