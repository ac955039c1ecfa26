--- Gradients of functions of arrays, recorded against central differences (part of
-- `ty.test_utils`).
--
-- @module tycho.test.recorded

local args = require "tycho.core.args"
local autograd = require "tycho.autograd"
local class = require "tycho.ndarray.class"
local compare = require "tycho.test.compare"
local Error = require "tycho.core.error"
local gradient = require "tycho.test.gradient"
local nd = require "tycho.ndarray"

local recorded = {}

local FUNC = "test_utils.check_gradient"

-- Weights of a result's elements: their sum should not hide what moves from one to another, as the
-- plain sum of a softmax does.
local function weights_like(y)
  local list = {}
  for i = 1, y.size do
    list[i] = math.cos(1.3 * i)
  end
  return nd.array(list, { dtype = y.dtype, ctx = y.context }):reshape(y.shape)
end


local function results_of(...)
  local list = { ... }
  for i = 1, select("#", ...) do
    if not class.is_array(list[i]) then
      Error.raise{ code = "type", func = FUNC, argument = "f", expected = "arrays",
        got = Error.kind(list[i]), message = ("result %d of f is no array"):format(i) }
    end
  end
  if #list == 0 then
    Error.raise{ code = "type", func = FUNC, argument = "f", expected = "arrays", got = "nothing",
      message = "f returns no array" }
  end
  return list
end


-- The weighted sum of all results, as a number.
local function value_of(f, list, weights)
  local total = 0
  for i, y in ipairs(autograd.train_mode(function() return results_of(f(unpack(list))) end)) do
    total = total + (y:astype("float64") * weights[i]:astype("float64")):sum():asscalar()
  end
  return total
end


local function numeric_of(f, list, x, weights, eps)
  local view, slopes = x:reshape{ -1 }, {}
  for i, v in ipairs(view:totable()) do
    view:set(i - 1, v + eps / 2)
    local high = value_of(f, list, weights)
    view:set(i - 1, v - eps / 2)
    slopes[i] = (high - value_of(f, list, weights)) / eps
    view:set(i - 1, v)
  end
  return nd.array(slopes, { dtype = x.dtype }):reshape(x.shape)
end


local CHECK = args.form(FUNC, { { "f", "function" }, { "inputs", "list" }, { "eps", "number?" },
  { "rtol", "number", 1e-2 }, { "atol", "number", 1e-3 } })

--- Compares the gradients of a function of arrays, as `autograd.grad` has them, with central
-- differences of its values; raises a plain error where they differ.
-- @tparam table options f: a function of arrays that returns arrays; inputs: a list of arrays of
--   float32 or float64; eps: the step (by the inputs' type), rtol = 1e-2, atol = 1e-3
function recorded.check_gradient(...)
  local a = CHECK(...)
  local list = {}
  for i, x in ipairs(a.inputs) do
    x = nd._as_array(x, "float32", FUNC)
    list[i] = x:copy():attach_grad()
  end
  local outputs = autograd.record(function() return results_of(a.f(unpack(list))) end)
  local weights = {}
  for i, y in ipairs(outputs) do
    weights[i] = weights_like(y)
  end
  local grads = autograd.grad{ heads = outputs, variables = list, head_grads = weights }
  for i, x in ipairs(list) do
    local eps = a.eps or gradient.default_numeric_eps[x.dtype]
    if not eps then
      Error.raise{ code = "dtype", func = FUNC, argument = "inputs", got = x.dtype,
        expected = "float32 or float64", message = ("input %d has no gradient"):format(i) }
    end
    local plain = {}
    for k, v in ipairs(list) do
      plain[k] = v:detach()
    end
    compare.assert_almost_equal(grads[i], numeric_of(a.f, plain, plain[i], weights, eps),
      { rtol = a.rtol, atol = a.atol, names = { "gradient of input " .. i, "differences" } })
  end
end


return recorded
