--- Rules of losses and of densities.
--
-- @module tycho.autograd.rules.loss

local nd = require "tycho.ndarray"
local pairs = require("tycho.core.iterate").pairs
local tables = require "tycho.core.tables"

local loss = { rules = {}, expansions = {} }
local rules, expansions = loss.rules, loss.expansions

-- Outputs that define their gradient --------------------------------------------------------------

-- The output is computed again from the input, since the derivative of the step's own output would
-- be the gradient of the loss.

-- Returns the rule of a regression output: its gradient is f(output, label) * grad_scale / (number
-- of elements of a sample).
local function regression(output, f)
  return function(s)
    local y = output(s.x[1])
    local label = s.x[2]:astype(y.dtype):reshape(y.shape)
    local each = y.size / y.shape[1]
    return { f(y, label) * (s.p.grad_scale / each) }
  end
end

local function identity(x) return x end
local function gap(y, label) return y - label end
local function sign_of_gap(y, label) return nd.sign(y - label) end

rules.LinearRegressionOutput = regression(identity, gap)
rules.LogisticRegressionOutput = regression(nd.sigmoid, gap)
rules.MAERegressionOutput = regression(identity, sign_of_gap)

function rules.make_loss(s)
  return { nd.ones_like(s.x[1]) }
end

function rules.MakeLoss(s)
  local x, p, by = s.x[1], s.p, 1
  if p.normalization == "batch" then
    by = x.size / x.shape[x.ndim]
  elseif p.normalization == "valid" then
    by = nd.maximum(nd.greater(x, p.valid_thresh):sum(), 1)
  end
  return { nd.ones_like(x) * p.grad_scale / by }
end


-- Returns the number that the gradient is divided by.
local function divisor(p, label, outer, inner)
  if p.normalization == "valid" then
    return nd.maximum(nd.not_equal(label, p.ignore_label):sum(), 1)
  elseif p.normalization == "null" then
    return p.multi_output and inner or 1
  end
  return p.multi_output and outer * inner or label.size
end


-- Returns the softmax minus the labels, as (outer, classes, inner).
local function softmax_gap(y, label, p)
  local outer, classes, inner = unpack(y.shape)
  local rows = label:reshape{ outer, inner }
  local hit = nd.one_hot(rows, { depth = classes, dtype = y.dtype }):transpose{ axes = { 0, 2, 1 } }
  local smooth = p.multi_output and 0 or p.smooth_alpha
  local others = classes > 1 and smooth / (classes - 1) or 0
  local g = (y - hit * (1 - smooth) - (1 - hit) * others) * p.grad_scale
    / divisor(p, label, outer, inner)
  if p.use_ignore then
    g = g * nd.not_equal(rows, p.ignore_label):reshape{ outer, 1, inner }
  end
  return g
end


-- Returns the number of elements before, along and after the axis of classes.
local function split_sizes(x, p)
  local n, first = x.ndim, x.shape[1]
  if p.multi_output and n > 1 then
    return first, x.shape[2], x.size / (first * x.shape[2])
  elseif p.preserve_shape then
    return x.size / x.shape[n], x.shape[n], 1
  end
  return first, x.size / first, 1
end


function rules.SoftmaxOutput(s)
  local x, p = s.x[1], s.p
  local label = s.x[2]:astype(x.dtype)
  local y = nd.softmax(x:reshape{ split_sizes(x, p) }, { axis = 1 })
  local g
  if tables.same(label.shape, x.shape) then
    g = (y:reshape(x.shape) - label) * p.grad_scale
  else
    g = softmax_gap(y, label, p):reshape(x.shape)
  end
  return { p.out_grad and g * s.g[1] or g }
end


function expansions.softmax_cross_entropy(s)
  local picked = nd.pick(nd.log_softmax(s.x[1]), s.x[2], { axis = -1 })
  return { -picked:sum():reshape(s.y[1].shape) }
end


-- Densities ---------------------------------------------------------------------------------------

local log, gammaln = nd.log, nd.gammaln

local function negative_binomial(x, k, p)
  return gammaln(x + k) - gammaln(k) - gammaln(x + 1) + k * log(p) + x * log(1 - p)
end

-- logarithms of densities of x
local LAWS = {
  uniform = function(x, low, high) return x * 0 - log(high - low) end,
  normal = function(x, mu, sigma)
    return -0.5 * nd.square((x - mu) / sigma) - log(sigma * math.sqrt(2 * math.pi))
  end,
  gamma = function(x, alpha, beta)
    return alpha * log(beta) + (alpha - 1) * log(x) - beta * x - gammaln(alpha)
  end,
  exponential = function(x, lam) return log(lam) - lam * x end,
  poisson = function(x, lam)
    x = nd.BlockGrad(x)
    return x * log(lam) - lam - gammaln(x + 1)
  end,
  negative_binomial = function(x, k, p) return negative_binomial(nd.BlockGrad(x), k, p) end,
  generalized_negative_binomial = function(x, mu, alpha)
    return negative_binomial(nd.BlockGrad(x), 1 / alpha, 1 / (mu * alpha + 1))
  end,
}

-- Returns parameters with as many axes as the samples; each parameter has a block of samples.
local function widen(v, x)
  local shape = { unpack(v.shape) }
  for k = #shape + 1, x.ndim do
    shape[k] = 1
  end
  return v:reshape(shape)
end


-- Returns the density, or its logarithm with `is_log`. Constant factors are included, since
-- derivatives contain the density as a factor.
local function density(s, logarithm)
  return { s.p.is_log and logarithm or nd.exp(logarithm) }
end


for law, f in pairs(LAWS) do
  expansions["_random_pdf_" .. law] = function(s)
    local x, a, b = s.x[1], widen(s.x[2], s.x[1]), s.x[3] and widen(s.x[3], s.x[1])
    return density(s, f(x, a, b))
  end
end

function expansions._random_pdf_dirichlet(s)
  local x, shape = s.x[1], { unpack(s.x[2].shape) }
  for _ = 1, x.ndim - #shape do
    table.insert(shape, #shape, 1)
  end
  local a = s.x[2]:reshape(shape)
  return density(s, ((a - 1) * log(x)):sum{ axis = -1 } + gammaln(a:sum{ axis = -1 })
    - gammaln(a):sum{ axis = -1 })
end

return loss
