--- Gradients of functions of arrays against central differences (part of `ty.test_utils`).
--
-- @module tycho.test.recorded

local args = require "tycho.core.args"
local autograd = require "tycho.autograd"
local class = require "tycho.ndarray.class"
local compare = require "tycho.test.compare"
local Error = require "tycho.core.error"
local gradient = require "tycho.test.gradient"
local inputs = require "tycho.test.inputs"
local nd = require "tycho.ndarray"

local recorded = {}

local FUNC = "test_utils.check_gradient"

local FORM = args.form(FUNC, {
  { "f", "function" }, { "inputs", "any" }, { "eps", "number?" }, { "rtol", "number", 1e-2 },
  { "atol", "number?" }, { "train_mode", "boolean", true },
})

-- Largest relative differences that rounding alone makes, by dtype.
local ATOL = { float16 = 1e-1, bfloat16 = 1e-1, float32 = 1e-3, float64 = 1e-6 }


-- Copies of the inputs, which are variables.
local function variables(given)
  local list = {}
  for i, x in ipairs(class.is_array(given) and { given } or given) do
    x = nd._as_array(x, "float32", FUNC)
    if not gradient.default_numeric_eps[x.dtype] then
      Error.raise{ code = "dtype", func = FUNC, argument = "inputs", got = x.dtype,
        expected = "a type of floating point", message = ("input %d has no gradient"):format(i) }
    end
    list[i] = x:copy():attach_grad()
  end
  return list
end


-- Weights of a result's elements: their plain sum would hide what moves from one to another, as in
-- a softmax.
local function weights_like(y)
  local list = {}
  for i = 1, y.size do
    list[i] = math.cos(1.3 * i)
  end
  return nd.array(list, { dtype = y.dtype, ctx = y.context }):reshape(y.shape)
end


-- Results as a list of arrays.
local function listed(...)
  local list = { ... }
  for i = 1, math.max(1, select("#", ...)) do
    if not class.is_array(list[i]) then
      Error.raise{ code = "type", func = FUNC, argument = "f", got = Error.kind(list[i]),
        expected = "arrays", message = ("result %d of the function is no array"):format(i) }
    end
  end
  return list
end


-- The sum of all results, each element times its weight.
local function weighted_sum(results, weights)
  local sum = 0
  for i, y in ipairs(results) do
    for k, v in ipairs(inputs.flat(y, FUNC)) do
      sum = sum + v * weights[i][k]
    end
  end
  return sum
end


-- The gradient of a function without arguments by central differences of one array's elements.
local function differences(total, x, eps)
  local flat, slopes = x:reshape{ -1 }, {}
  for i, v in ipairs(inputs.flat(x, FUNC)) do
    flat:set(i - 1, v + eps / 2)
    local high = total()
    flat:set(i - 1, v - eps / 2)
    slopes[i] = (high - total()) / eps
    flat:set(i - 1, v)
  end
  return nd.array(slopes, { dtype = x.dtype }):reshape(x.shape)
end


--- Compares the gradients that `autograd` gives of a function with central differences. The results
-- are weighted. Raises a plain error text where they differ.
-- @tparam table options f (of arrays; gives one or several), inputs (array or list, of floating
--   point), eps (by dtype), rtol = 1e-2, atol (by dtype), train_mode = true
function recorded.check_gradient(...)
  local a = FORM(...)
  local xs = variables(a.inputs)
  local results = autograd.record(a.train_mode, function()
    return listed(a.f(unpack(xs)))
  end)
  local heads, weights = {}, {}
  for i, y in ipairs(results) do
    heads[i] = weights_like(y)
    weights[i] = inputs.flat(heads[i], FUNC)
  end
  local grads = autograd.grad(results, xs, { head_grads = heads, train_mode = a.train_mode })
  local function total()
    return weighted_sum(autograd.pause(a.train_mode, function()
      return listed(a.f(unpack(xs)))
    end), weights)
  end
  for i, x in ipairs(xs) do
    local wanted = differences(total, x, a.eps or gradient.default_numeric_eps[x.dtype])
    compare.assert_almost_equal(grads[i], wanted, { rtol = a.rtol, atol = a.atol or ATOL[x.dtype],
      names = { ("gradient of input %d"):format(i), "numeric gradient" } })
  end
end


return recorded
