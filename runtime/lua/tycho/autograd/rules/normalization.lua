--- Rules of normalizations and softmax.
--
-- @module tycho.autograd.rules.normalization

local nd = require "tycho.ndarray"

local normalization = { rules = {}, expansions = {} }
local rules, expansions = normalization.rules, normalization.expansions

-- Normalizations ----------------------------------------------------------------------------------

-- Returns a vector along one axis of n.
local function reshape_along(v, axis, n)
  local shape = {}
  for k = 1, n do
    shape[k] = k - 1 == axis % n and -1 or 1
  end
  return v:reshape(shape)
end


local function compute_moments(x, axes)
  local mean = x:mean{ axis = axes, keepdims = true }
  return mean, nd.square(x - mean):mean{ axis = axes, keepdims = true }
end


local function standardize(x, axes, eps)
  local mean, variance = compute_moments(x, axes)
  return (x - mean) * nd.rsqrt(variance + eps)
end


local function list_other_axes(axis, n)
  local axes = {}
  for k = 0, n - 1 do
    axes[#axes + 1] = k ~= axis % n and k or nil
  end
  return axes
end


local function list_axes_from(first, n)
  local axes = {}
  for k = first, n - 1 do
    axes[#axes + 1] = k
  end
  return axes
end


function expansions.LayerNorm(s)
  local x, gamma, beta, axis = s.x[1], s.x[2], s.x[3], s.p.axis
  return { standardize(x, { axis % x.ndim }, s.p.eps) * reshape_along(gamma, axis, x.ndim)
    + reshape_along(beta, axis, x.ndim) }
end

function expansions.InstanceNorm(s)
  local x, n = s.x[1], s.x[1].ndim
  return { standardize(x, list_axes_from(2, n), s.p.eps) * reshape_along(s.x[2], 1, n)
    + reshape_along(s.x[3], 1, n) }
end

function expansions.GroupNorm(s)
  local x, groups = s.x[1], s.p.num_groups
  local y = standardize(x:reshape{ x.shape[1], groups, -1 }, { 2 }, s.p.eps)
  return { (y * reshape_along(s.x[2], 1, 3) + reshape_along(s.x[3], 1, 3)):reshape(x.shape) }
end

local function batch_norm(s)
  local x, p, n = s.x[1], s.p, s.x[1].ndim
  local axis = p.axis or 1
  local mean, variance = reshape_along(s.x[4], axis, n), reshape_along(s.x[5], axis, n)
  if s.train and not p.use_global_stats then
    mean, variance = compute_moments(x, list_other_axes(axis, n))
  end
  local y = (x - mean) * nd.rsqrt(variance + p.eps)
  return (p.fix_gamma and y or y * reshape_along(s.x[2], axis, n)) + reshape_along(s.x[3], axis, n)
end

function expansions.BatchNorm(s) return { batch_norm(s) } end

expansions.BatchNorm_v1 = expansions.BatchNorm
expansions._contrib_SyncBatchNorm = expansions.BatchNorm

function expansions._contrib_BatchNormWithReLU(s) return { nd.relu(batch_norm(s)) } end

function expansions.L2Normalization(s)
  local x, n = s.x[1], s.x[1].ndim
  local axes = ({ instance = list_axes_from(1, n), channel = { 1 },
    spatial = list_axes_from(2, n) })[s.p.mode]
  return { x * nd.rsqrt(nd.square(x):sum{ axis = axes, keepdims = true } + s.p.eps) }
end

function expansions.LRN(s)
  local x, p = s.x[1], s.p
  local rows = nd.square(x):reshape{ x.shape[1], 1, x.shape[2], -1 }
  local window = nd.Pooling{ rows, kernel = { p.nsize, 1 }, pad = { (p.nsize - 1) / 2, 0 },
    pool_type = "sum" }
  return { x * nd.power(window:reshape(x.shape) * (p.alpha / p.nsize) + p.knorm, -p.beta) }
end


-- Softmax -----------------------------------------------------------------------------------------

local function sum_along(v, axis)
  return v:sum{ axis = axis, keepdims = true }
end


local function softmax(g, y, axis)
  return y * (g - sum_along(g * y, axis))
end


local function scale_gradient(s, g)
  return s.p.temperature and g * (1 / s.p.temperature) or g
end


function rules.softmax(s) return { scale_gradient(s, softmax(s.g[1], s.y[1], s.p.axis)) } end

function rules.softmin(s) return { scale_gradient(s, -softmax(s.g[1], s.y[1], s.p.axis)) } end

function rules.log_softmax(s)
  if s.p.use_length then
    s:unsupported("create_graph: log_softmax with use_length")
  end
  local g, y = s.g[1], s.y[1]
  return { scale_gradient(s, g - nd.exp(y) * sum_along(g, s.p.axis)) }
end

function rules.SoftmaxActivation(s)
  local g, y = s.g[1], s.y[1]
  if s.p.mode == "channel" then
    return { softmax(g, y, 1) }
  end
  local flat = { y.shape[1], -1 }
  return { softmax(g:reshape(flat), y:reshape(flat), 1):reshape(y.shape) }
end

return normalization
