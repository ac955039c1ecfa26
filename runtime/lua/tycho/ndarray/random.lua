--- Random arrays: `ty.nd.random`. Seeds and states: ndarray/seed.lua.
--
-- The parameters of a distribution are all numbers (`shape` is that of the result, by default {1})
-- or all arrays (a sample, or `shape` samples, for each element). Each call advances the random
-- stream of its device.
--
--     ty.nd.random.normal{loc = 0, scale = 2, shape = {3, 4}}
--
-- @module tycho.ndarray.random

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local operators = require "tycho.ndarray.operators"

local is_array = class.is_array

local random = {}


--- Returns uniform numbers from low up to, but not including, high.
-- @function random.uniform

--- Returns normal numbers with mean loc and standard deviation scale.
-- @function random.normal

--- Returns Poisson-distributed counts with mean lam, as floats.
-- @function random.poisson

--- Returns exponentially distributed numbers with mean scale.
-- @function random.exponential

--- Returns gamma-distributed numbers with shape alpha and scale beta (mean alpha times beta).
-- @function random.gamma

--- Returns numbers of failures before the k-th success of probability p, as floats.
-- @function random.negative_binomial

--- Returns negative binomial counts with mean mu and dispersion alpha, as floats.
-- @function random.generalized_negative_binomial

-- parameters in order: name, default, the operator's own name for it
local DISTRIBUTIONS = {
  uniform     = { { "low", 0 }, { "high", 1 } },
  normal      = { { "loc", 0 }, { "scale", 1 } },
  poisson     = { { "lam", 1 } },
  exponential = { { "scale", 1, "lam" } },
  gamma       = { { "alpha", 1 }, { "beta", 1 } },
  negative_binomial             = { { "k", 1 }, { "p", 1 } },
  generalized_negative_binomial = { { "mu", 1 }, { "alpha", 1 } },
}


-- Calls an operator without inputs, on the given device or into `out`; returns the output.
local function create(name, func, params, a)
  local ctx = a.out and a.out.context or a.ctx or context.current_context()
  params[#params + 1], params[#params + 2] = "ctx", tostring(ctx)
  if a.shape or not a.out then
    params[#params + 1], params[#params + 2] = "shape", attrs.text(a.shape or { 1 })
  else
    params[#params + 1], params[#params + 2] = "shape", attrs.text(a.out._shape)
  end
  if a.dtype or a.out then
    params[#params + 1], params[#params + 2] = "dtype", a.dtype or a.out.dtype
  end
  return call.params(name, func, {}, params, a.out)
end


-- Returns the parameter that the operator takes: for the exponential distribution the rate, 1 /
-- scale.
local function rate(row, v)
  return row[3] and 1 / v or v
end


local function from_numbers(name, rows, func, a)
  local params = {}
  for i, row in ipairs(rows) do
    params[2 * i - 1], params[2 * i] = row[3] or row[1], call.number(rate(row, a[row[1]]))
  end
  return create("_random_" .. name, func, params, a)
end


local function from_arrays(name, rows, func, a)
  local inputs, params = {}, {}
  for i, row in ipairs(rows) do
    inputs[i] = rate(row, a[row[1]])
  end
  for _, key in ipairs{ "shape", "dtype" } do
    if a[key] then
      params[#params + 1], params[#params + 2] = key, attrs.text(a[key])
    end
  end
  return call.params("_sample_" .. name, func, inputs, params, a.out)
end


local function sampler(name, rows)
  local spec, func = {}, "nd.random." .. name
  for i, row in ipairs(rows) do
    spec[i] = { row[1], "number|array", row[2] }
  end
  for _, entry in ipairs{ { "shape", "shape?" }, { "dtype", "dtype?" }, { "ctx", "context?" },
      { "out", "array?" } } do
    spec[#spec + 1] = entry
  end
  local form = args.form(func, spec)
  return function(...)
    local a = form(...)
    local arrays = 0
    for _, row in ipairs(rows) do
      arrays = arrays + (is_array(a[row[1]]) and 1 or 0)
    end
    if arrays > 0 and arrays < #rows then
      Error.raise{ code = "type", func = func,
        message = "the parameters are all numbers or all arrays" }
    end
    return (arrays == 0 and from_numbers or from_arrays)(name, rows, func, a)
  end
end

for name, rows in pairs(DISTRIBUTIONS) do
  random[name] = sampler(name, rows)
end


--- Returns normally distributed numbers: `randn(2, 3)`, `randn(2, 3, {loc = 1, scale = 2})`.
function random.randn(...)
  return random.normal(args.sizes_and_options("nd.random.randn", ...))
end


local RANDINT = args.form("nd.random.randint", {
  { "low", "integer" }, { "high", "integer" }, { "shape", "shape?" },
  { "dtype", { "int32", "int64" }, "int32" }, { "ctx", "context?" }, { "out", "array?" },
})

--- Returns random integers from low up to, but not including, high.
function random.randint(...)
  local a = RANDINT(...)
  return create("_random_randint", "nd.random.randint",
    { "low", call.number(a.low), "high", call.number(a.high) }, a)
end


local MULTINOMIAL = args.form("nd.random.multinomial", {
  { "data", "array" }, { "shape", "shape?" }, { "get_prob", "boolean", false },
  { "out", "array|list?" }, { "dtype", "dtype", "int32" },
})

--- Returns indices (from 0) drawn with the probabilities in the last axis of data.
-- @treturn NDArray the indices; with `get_prob` a list of them and the logarithms of their
--   probabilities
function random.multinomial(...)
  local a = MULTINOMIAL(...)
  local params = { "get_prob", attrs.text(a.get_prob), "dtype", a.dtype }
  if a.shape then
    params[5], params[6] = "shape", attrs.text(a.shape)
  end
  local given = is_array(a.out) and { a.out } or a.out or {}
  local count = a.get_prob and 2 or 1
  local results = call.many("_sample_multinomial", "nd.random.multinomial", { a.data },
    1, params, given, count)
  return a.get_prob and results or results[1]
end


local SHUFFLE = args.form("nd.random.shuffle", { { "data", "array" }, { "out", "array?" } })

--- Returns the rows (along the first axis) in random order.
function random.shuffle(...)
  local a = SHUFFLE(...)
  return call.unary("_shuffle", "nd.random.shuffle", a.data, a.out)
end


-- The namespace: the functions above, and operators by the rest of their names
-- (`pdf_normal`, `normal_like`).
return operators.namespace("nd.random", { "_random_", "_sample_" }, random)
