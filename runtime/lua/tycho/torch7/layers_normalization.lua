--- Normalisations and embeddings of Torch7. For `torch7/import.lua`.
--
-- @module tycho.torch7.layers_normalization

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local class = require "tycho.ndarray.class"
local convolutions = require "tycho.torch7.layers_convolutions"
local Error = require "tycho.core.error"
local layers = require "tycho.torch7.layers"
local operators = require "tycho.symbol.operators"
local tables = require "tycho.core.tables"
local Tensor = require "tycho.torch7.tensor"

local FUNC = "torch7.import_model"

local WEIGHT_NORM_EPS = 1e-4                             -- of nn.WeightNorm


-- Batches -----------------------------------------------------------------------------------------

-- Returns a module's running average as an array (n), nil if the file has none; raises an error if
-- it has another size.
local function read_average(net, m, name, n)
  local x = m[name]
  if x == nil then
    return nil
  elseif not class.is_array(x) or x._size ~= n then
    net:fail("shape", "the field '%s' is %s, but %d entries are needed", name,
      class.is_array(x) and ("of shape " .. Error.show(x._shape)) or Error.kind(x), n)
  end
  return x:reshape{ n }
end


-- Returns the running variance; files of version 1 contain 1 / sqrt(variance + eps).
local function read_variance(net, m, n, eps)
  local std = read_average(net, m, "running_std", n)
  return read_average(net, m, "running_var", n) or std and std ^ -2 - eps
end


-- Returns x (batch, channels, ...) normalised by the module's running mean and variance.
local function normalize_batch(net, m, x)
  local n, eps = x.shape[2], net:number(m, "eps", 1e-5)
  local mean, var = read_average(net, m, "running_mean", n), read_variance(net, m, n, eps)
  if not mean or not var then
    net:fail("value", "the field '%s' is missing", mean and "running_var" or "running_mean")
  end
  local gamma, beta = net:optional(m, "weight", { n }), net:optional(m, "bias", { n })
  local momentum = net:number(m, "momentum", 0.1)
  local out = operators.compose("BatchNorm", { x:get(), (gamma or net:full({ n }, 1)):get(),
    (beta or net:full({ n }, 0)):get(), net:state("running_mean", mean),
    net:state("running_var", var) }, { eps = eps, momentum = 1 - momentum, fix_gamma = false },
    FUNC, { name = net:name() })
  return Tensor(out, x.shape)
end


-- Returns a normalization layer for inputs with n axes; an input with n - 1 axes is a single
-- sample.
local function make_normalization(n)
  return function(net, m, x)
    net:need_dims(x, n - 1, n)
    if #x.shape == n then
      return normalize_batch(net, m, x)
    end
    return normalize_batch(net, m, x:unsqueeze(0)):reshape(x.shape)
  end
end

layers.tensor("nn.BatchNormalization", make_normalization(2))
layers.tensor("nn.SpatialBatchNormalization", make_normalization(4))
layers.tensor("nn.VolumetricBatchNormalization", make_normalization(5))

-- Normalises each image separately, in evaluation too; a class of fast-neural-style.
layers.tensor("nn.InstanceNormalization", function(net, m, x)
  return convolutions.batched(net, x, 2, function(images)
    local n = images.shape[2]
    local gamma, beta = net:optional(m, "weight", { n }), net:optional(m, "bias", { n })
    return Tensor.call("InstanceNorm", { images, gamma or net:full({ n }, 1),
      beta or net:full({ n }, 0) }, { eps = net:number(m, "eps", 1e-5) }, images.shape, net:name())
  end)
end)


-- Rows and channels -------------------------------------------------------------------------------

layers.tensor("nn.Normalize", function(net, m, x)
  net:need_dims(x, 1, 2)
  local p, eps = net:number(m, "p", 2), net:number(m, "eps", 1e-10)
  local axis = #x.shape - 1
  local norm
  if p == math.huge then
    norm = x:abs():max(axis) + eps
  elseif p == 2 then
    norm = (x:square():sum(axis) + eps):sqrt()
  else
    norm = (x:abs():pow(p):sum(axis) + eps):pow(1 / p)
  end
  return x / norm
end)

-- Normalises over windows of channels, which include floor((size - 1) / 2) channels on each side.
layers.tensor("nn.SpatialCrossMapLRN", function(net, m, x)
  local size, alpha = net:integer(m, "size", nil, 1), net:number(m, "alpha", 1e-4)
  local window = 2 * math.floor((size - 1) / 2) + 1
  return convolutions.batched(net, x, 2, function(images)
    return images:unary("LRN", { alpha = alpha * window / size, nsize = window,
      beta = net:number(m, "beta", 0.75), knorm = net:number(m, "k", net:number(m, "K", 1)) },
      net:name())
  end)
end)

-- Returns sums over neighbourhoods divided by the sums of ones, which corrects for neighbours
-- outside the image. Modules in the file compute the sums.
local function average_neighbours(net, m, x, name, normalizer)
  local coefficients = net:apply(net:module(m, normalizer or name), x:ones_like(),
    normalizer or name):block()
  local sums = net:apply(net:module(m, name), x, name)
  return net:apply(net:module(m, "divider"), { sums, coefficients }, "divider")
end

layers.tensor("nn.SpatialSubtractiveNormalization", function(net, m, x)
  local means = average_neighbours(net, m, x, "meanestimator")
  return net:apply(net:module(m, "subtractor"), { x, means }, "subtractor")
end)

layers.tensor("nn.SpatialDivisiveNormalization", function(net, m, x)
  local stds = average_neighbours(net, m, x, "stdestimator", "meanestimator")
  stds = net:apply(net:module(m, "thresholder"), stds, "thresholder")
  return net:apply(net:module(m, "normalizer"), { x, stds }, "normalizer")
end)

layers.tensor("nn.SpatialContrastiveNormalization", function(net, m, x)
  return net:apply(net:module(m, "normalizer"), x, "normalizer")
end)


-- Applies a module with the weight g v / sqrt(v v + 1e-4), row by row; the file may lack this
-- weight.
layers.any("nn.WeightNorm", function(net, m, x)
  local inner = net:module(m, "modules", 1)
  local own = net:integers(m, "viewOut")
  local shape, axis = net:integers(m, "weightSize") or own, net:integer(m, "outputDim", 1, 1)
  if not shape or not shape[axis] then
    net:fail("value", "the field 'weightSize' is missing")
  end
  local rows = shape[axis]
  local v = net:parameter(m, "v", { rows, tables.product(shape) / rows })
  local g = net:parameter(m, "g", { rows, 1 })
  local weight = v * (g / (v:square():sum(1) + WEIGHT_NORM_EPS):sqrt())
  if axis > 1 then
    local first = { rows }
    for i, n in ipairs(shape) do
      if i ~= axis then
        first[#first + 1] = n
      end
    end
    local axes = {}
    for i = 1, #shape do
      axes[i] = i < axis and i or i == axis and 0 or i - 1
    end
    weight = weight:reshape(first):transpose(axes)
  end
  return net:with_field(inner, "weight", weight, function()
    return net:apply(inner, x, "modules.1")
  end)
end)


-- Embeddings --------------------------------------------------------------------------------------

-- Returns rows of the weight by index, from 1. Rows with a norm above `maxNorm` are scaled down to
-- it; the row `paddingValue` gets no gradient.
layers.tensor("nn.LookupTable", function(net, m, x)
  local n, size = net:size_of(m, "weight", 1), net:size_of(m, "weight", 2)
  local weight = net:parameter(m, "weight", { n, size })
  net:need_dims(x, 1, 2)
  if m.maxNorm then
    local p, most = net:number(m, "normType", 2), net:number(m, "maxNorm")
    local norms = weight:abs():pow(p):sum(1):pow(1 / p)
    weight = weight * (most / (norms + 1e-7)):minimum(1):block()
  end
  local y = weight:rows(x - 1)
  local padding = net:number(m, "paddingValue", 0)
  if padding == 0 then
    return y
  end
  local here = x:eq(padding):unsqueeze(#x.shape):expand(y.shape)
  return Tensor.where(here, y:block(), y)
end)

-- Returns rows of the weight by index, zeros for index 0; row 0 of the weight is not used.
layers.tensor("nn.LookupTableMaskZero", function(net, m, x)
  local n, size = net:size_of(m, "weight", 1), net:size_of(m, "weight", 2)
  local y = net:parameter(m, "weight", { n, size }):rows(x)
  return y * x:ne(0):unsqueeze(#x.shape)
end)
