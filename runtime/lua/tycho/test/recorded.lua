--- Comparison of recorded gradients of functions on arrays with numeric ones (part of
-- `ty.test_utils`).
--
-- @module tycho.test.recorded

local args = require "tycho.core.args"
local backward = require "tycho.autograd.backward"
local class = require "tycho.ndarray.class"
local compare = require "tycho.test.compare"
local Error = require "tycho.core.error"
local gradient = require "tycho.test.gradient"
local modes = require "tycho.autograd.modes"
local nd = require "tycho.ndarray"

local is_array = class.is_array

local recorded = {}

local FUNC = "test_utils.check_gradient"


-- Returns the arrays that f returns as a list; E(type) for other results.
local function compute_outputs(f, inputs)
  local outputs = { f(unpack(inputs)) }
  if #outputs == 1 and not is_array(outputs[1]) and type(outputs[1]) == "table" then
    outputs = outputs[1]
  end
  for i = 1, math.max(#outputs, 1) do
    if not is_array(outputs[i]) then
      Error.raise{ code = "type", func = FUNC, argument = "f",
        expected = "a function that returns arrays", got = Error.kind(outputs[i]),
        message = "bad result" }
    end
  end
  return outputs
end


-- Returns the sum of all results, weighted by random numbers, so that errors do not cancel.
local function weighted(f, inputs, weights)
  local sum = 0
  for i, y in ipairs(compute_outputs(f, inputs)) do
    local flat, w = y:reshape{ -1 }:totable(), weights[i]:reshape{ -1 }:totable()
    for k, v in ipairs(flat) do
      sum = sum + v * w[k]
    end
  end
  return sum
end


-- Returns the numeric gradient with respect to input i.
local function numeric(f, inputs, i, weights, eps)
  local x = inputs[i]
  local flat, slopes = x:reshape{ -1 }, {}
  for k, v in ipairs(flat:totable()) do
    flat:set(k - 1, v + eps / 2)
    local above = modes.run(false, true, weighted, f, inputs, weights)
    flat:set(k - 1, v - eps / 2)
    slopes[k] = (above - modes.run(false, true, weighted, f, inputs, weights)) / eps
    flat:set(k - 1, v)
  end
  return nd.array(slopes, { dtype = x.dtype, ctx = x.context }):reshape(x.shape)
end


local CHECK = args.form(FUNC, {
  { "f", "function" }, { "inputs", "array|table" }, { "eps", "number?" }, { "rtol", "number?" },
  { "atol", "number?" },
})

-- Returns detached copies of the inputs; E(dtype) unless all are of the same floating-point type.
local function copy_inputs(given)
  local inputs, like = {}, nil
  for i, x in ipairs(is_array(given) and { given } or given) do
    x = is_array(x) and x or nd.array(x)
    like = like or x.dtype
    if not gradient.default_numeric_eps[x.dtype] or x.dtype ~= like then
      Error.raise{ code = "dtype", func = FUNC, argument = "inputs",
        expected = like == x.dtype and "floats" or like, got = x.dtype,
        message = ("bad input %d"):format(i) }
    end
    inputs[i] = class.detached(x:copy())
  end
  if #inputs == 0 then
    Error.raise{ code = "value", func = FUNC, argument = "inputs", expected = "at least one array",
      got = "an empty list", message = "bad 'inputs'" }
  end
  return inputs
end


--- Compares the gradients of `autograd.grad` for a function with numeric ones. Results are weighted
-- by random numbers. The function runs twice for each element of the inputs.
-- @tparam table options f (arrays -> one or several arrays), inputs (a list of float arrays or
--   nested tables), eps (default: by element type), rtol, atol as for `assert_almost_equal`
function recorded.check_gradient(...)
  local a = CHECK(...)
  local inputs, weights = copy_inputs(a.inputs), {}
  local eps = a.eps or gradient.default_numeric_eps[inputs[1].dtype]
  local grads = modes.run(false, true, function()
    for _, x in ipairs(inputs) do
      x:attach_grad()
    end
    local outputs = modes.run(true, true, compute_outputs, a.f, inputs)
    for i, y in ipairs(outputs) do
      weights[i] = nd.random.uniform(0.5, 1.5, { shape = y.shape, dtype = y.dtype,
        ctx = y.context })
    end
    return backward.grad(outputs, inputs, { head_grads = weights })
  end)
  for i in ipairs(inputs) do
    compare.assert_almost_equal(grads[i], numeric(a.f, inputs, i, weights, eps),
      { rtol = a.rtol, atol = a.atol, names = { "gradient of input " .. i, "differences" } })
  end
end


return recorded
