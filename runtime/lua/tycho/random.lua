--- Random arrays and their seeds: `ty.random`, `ty.nd.random` (contract 3.3, 3.13).
--
-- Every device has a state: a seed and the number of draws so far. Equal seeds give equal numbers, on CPU and GPU.
--
--     ty.random.seed(7)                              -- all devices, each with numbers of its own
--     ty.random.seed(7, {ctx = ty.gpu(0)})           -- one device, as any other seeded so
--     ty.nd.random.normal{loc = 0, scale = 2, shape = {3, 4}}
--
-- The parameters of a distribution are all numbers (`shape` says how many draws, {1} if nil) or all arrays (a draw, or
-- `shape` draws, for each element).
--
-- @module tycho.random

local ffi = require "ffi"
local native = require "tycho.ffi"
local args = require "tycho.args"
local attrs = require "tycho.attrs"
local call = require "tycho.ndarray_call"
local class = require "tycho.ndarray_class"
local Class = require "tycho.class"
local context = require "tycho.context"
local Error = require "tycho.error"
local op = require "tycho.ndarray_op"
local values = require "tycho.values"

local C, check = native.C, native.check
local is_array = class.is_array

local random = {}


-- State ---------------------------------------------------------------------------------------------------------------

local LEAST_CPUS = 8                                     -- CPU queues whose states are saved at least

local function integer_value(v)
  return type(v) == "number" and v == math.floor(v) and v - v == 0, v, "an integer", "value"
end

local function context_or_all(v)
  return v == "all" or Class.is_a(v, context.Context), v, "a context or \"all\""
end

local SEED = args.form("random.seed", { { "seed", integer_value }, "*", { "ctx", context_or_all, "all" } })

--- Seeds a device or all of them.
-- @int seed not an integer: E(value)
-- @tparam[opt] table options ctx = a context, or "all": each device then draws other numbers
function random.seed(...)
  local a = SEED(...)
  local device = a.ctx == "all" and -1 or a.ctx._device
  check(C.ty_seed(device, ffi.cast("uint64_t", ffi.cast("int64_t", a.seed))), "random.seed")
end


local function devices()
  local list = {}
  for id = 0, math.max(C.ty_devices(C.TY_CPU), LEAST_CPUS) - 1 do
    list[#list + 1] = context.cpu(id)
  end
  for id = 0, context.num_gpus() - 1 do
    list[#list + 1] = context.gpu(id)
  end
  return list
end


local function digits(n)
  return (tostring(n):gsub("ULL$", ""))
end


--- The states of all devices: `{["cpu(0)"] = {seed = "7", counter = "12"}, ...}`; 64-bit numbers, so they are text.
function random.get_state()
  local n, state = ffi.new("uint64_t[2]"), {}
  for _, ctx in ipairs(devices()) do
    check(C.ty_rng(ctx._device, 0, n, n + 1), "random.get_state")
    state[tostring(ctx)] = { seed = digits(n[0]), counter = digits(n[1]) }
  end
  return state
end


local function read_digits(text, name)
  if type(text) ~= "string" or not text:find("^%d+$") or #text > 20 then
    Error.raise{ code = "type", func = "random.set_state", argument = name, expected = "digits as text",
      got = Error.kind(text), message = "the state is not one that get_state gave" }
  end
  local n = 0ULL
  for digit in text:gmatch("%d") do
    n = n * 10 + tonumber(digit)
  end
  return n
end


local STATE = args.form("random.set_state", { { "state", "table" } })

--- Puts back states that `get_state` gave.
-- @tparam table state
function random.set_state(state)
  state = STATE{ state = state }.state
  local n = ffi.new("uint64_t[2]")
  for name, row in pairs(state) do
    local ctx = context.Context(name)
    n[0], n[1] = read_digits(row.seed, name), read_digits(row.counter, name)
    check(C.ty_rng(ctx._device, 1, n, n + 1), "random.set_state")
  end
end


-- Distributions ------------------------------------------------------------------------------------------------------

local draw = {}

--                                    own name, operator's, sampler's, default
local DISTRIBUTIONS = {
  uniform     = { { "low", 0 }, { "high", 1 } },
  normal      = { { "loc", 0 }, { "scale", 1 } },
  poisson     = { { "lam", 1 } },
  exponential = { { "scale", 1, "lam" } },
  gamma       = { { "alpha", 1 }, { "beta", 1 } },
  negative_binomial             = { { "k", 1 }, { "p", 1 } },
  generalized_negative_binomial = { { "mu", 1 }, { "alpha", 1 } },
}


-- An operator without inputs, on the wanted device or into `out`.
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


-- Exponential: the operators take the rate.
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
  for _, entry in ipairs{ { "shape", "shape?" }, { "dtype", "dtype?" }, { "ctx", "context?" }, { "out", "array?" } } do
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
      Error.raise{ code = "type", func = func, message = "the parameters are all numbers or all arrays" }
    end
    return (arrays == 0 and from_numbers or from_arrays)(name, rows, func, a)
  end
end

for name, rows in pairs(DISTRIBUTIONS) do
  draw[name] = sampler(name, rows)
end


--- Normal numbers: `randn(2, 3)`, `randn(2, 3, {loc = 1, scale = 2})`.
function draw.randn(...)
  local list, n = { ... }, select("#", ...)
  local options = { shape = {} }
  if values.is_plain(list[n]) then
    for key, value in pairs(list[n]) do
      if type(key) == "number" then
        options.shape[key] = value
      else
        options[key] = value
      end
    end
    n = n - 1
  end
  for i = 1, n do
    options.shape[i] = list[i]
  end
  options.shape = #options.shape > 0 and options.shape or nil
  return draw.normal(options)
end


local RANDINT = args.form("nd.random.randint", {
  { "low", "integer" }, { "high", "integer" }, { "shape", "shape?" }, { "dtype", { "int32", "int64" }, "int32" },
  { "ctx", "context?" }, { "out", "array?" },
})

--- Integers from low to below high.
function draw.randint(...)
  local a = RANDINT(...)
  return create("_random_randint", "nd.random.randint", { "low", call.number(a.low), "high", call.number(a.high) }, a)
end


local MULTINOMIAL = args.form("nd.random.multinomial", {
  { "data", "array" }, { "shape", "shape?" }, { "get_prob", "boolean", false }, { "out", "array|list?" },
  { "dtype", "dtype", "int32" },
})

--- Indices drawn with the probabilities in the last axis of data.
-- @treturn NDArray with `get_prob`, a list of it and the logarithms of the probabilities
function draw.multinomial(...)
  local a = MULTINOMIAL(...)
  local params = { "get_prob", attrs.text(a.get_prob), "dtype", a.dtype }
  if a.shape then
    params[5], params[6] = "shape", attrs.text(a.shape)
  end
  local given = is_array(a.out) and { a.out } or a.out or {}
  local count = a.get_prob and 2 or 1
  local results = call.many("_sample_multinomial", "nd.random.multinomial", { a.data }, 1, params, given, count)
  return a.get_prob and results or results[1]
end


local SHUFFLE = args.form("nd.random.shuffle", { { "data", "array" }, { "out", "array?" } })

--- The rows (along the first axis) in another order.
function draw.shuffle(...)
  local a = SHUFFLE(...)
  return call.unary("_shuffle", "nd.random.shuffle", a.data, a.out)
end


for name, f in pairs(draw) do
  random[name] = f
end

--- The namespace `ty.nd.random`: the functions above, and operators by the rest of their names (`pdf_normal`).
random._namespace = op.namespace("nd.random", { "_random_", "_sample_" }, draw)

return random
