--- Layers of Torch7 that work element by element, products with weights, and layers that pass their
-- input on. For `torch7/import.lua`.
--
-- @module tycho.torch7.layers_simple

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Error = require "tycho.core.error"
local layers = require "tycho.torch7.layers"
local Tensor = require "tycho.torch7.tensor"

local simple = {}


--- Returns the output of a layer that may have the field `inplace`: the result, or the input after
-- the result is written to it.
function simple.placed(m, x, y)
  return m.inplace and x:set(y:get()) or y
end

local placed = simple.placed


-- Layers that only pass their input on ------------------------------------------------------------

layers.any("nn.Identity nn.Contiguous nn.Copy nn.PrintSize nn.Profile nn.NaN nn.CopyGrad",
  function(_, _, x) return x end)

-- Returns the input, as these layers of fast-neural-style do in evaluation.
layers.any("nn.TotalVariation nn.ContentLoss nn.StyleLoss", function(_, _, x) return x end)

layers.tensor("nn.ZeroGrad", function(_, _, x) return x:block() end)

layers.tensor("nn.GradientReversal", function(net, m, x)
  return x:unary("_contrib_gradientmultiplier", { scalar = -net:number(m, "lambda", 1) })
end)

-- Adds a term that is 0 and has the gradient of the penalty, independent of the output's gradient.
layers.tensor("nn.L1Penalty", function(net, m, x)
  local weight = net:number(m, "l1weight")
  if m.sizeAverage == true then
    weight = weight / x:size()
  end
  local penalty = (x:abs() * weight):unary("MakeLoss")
  local through = m.provideOutput == false and x:block() or x
  return through + (penalty - penalty:block())
end)


-- Functions of one element ------------------------------------------------------------------------

-- Defines element-wise layers that return f(x, m, net). If a module has the field `inplace`, later
-- readers of its input read the result.
local function define_elementwise(names, f)
  layers.tensor(names, function(net, m, x)
    return placed(m, x, f(x, m, net))
  end)
end

-- Returns x where it is greater than `least`, elsewhere `other`.
local function apply_threshold(x, least, other)
  if least == 0 and other == 0 then
    return x:relu()
  end
  return Tensor.where(x:gt(least), x, x:zeros_like() + other)
end

define_elementwise("nn.Threshold nn.ReLU", function(x, m, net)
  return apply_threshold(x, net:number(m, "threshold", 0), net:number(m, "val", 0))
end)

define_elementwise("cudnn.ReLU", function(x) return x:relu() end)
define_elementwise("nn.Tanh", function(x) return x:tanh() end)
define_elementwise("nn.Sigmoid", function(x) return x:sigmoid() end)
define_elementwise("nn.ReLU6", function(x) return x:clip(0, 6) end)

define_elementwise("cudnn.ClippedReLU", function(x, m, net)
  return x:clip(0, net:number(m, "ceiling"))
end)

define_elementwise("nn.HardTanh nn.Clamp", function(x, m, net)
  return x:clip(net:number(m, "min_val", -1), net:number(m, "max_val", 1))
end)

define_elementwise("nn.Clip", function(x, m, net)
  return x:clip(net:number(m, "minval"), net:number(m, "maxval"))
end)

define_elementwise("nn.LeakyReLU", function(x, m, net)
  return x:unary("LeakyReLU", { act_type = "leaky", slope = net:number(m, "negval", 0.01) })
end)

define_elementwise("nn.RReLU", function(x, m, net)
  return x:unary("LeakyReLU", { act_type = "rrelu", lower_bound = net:number(m, "lower", 1 / 8),
    upper_bound = net:number(m, "upper", 1 / 3) })
end)

define_elementwise("nn.ELU", function(x, m, net)
  return x:unary("LeakyReLU", { act_type = "elu", slope = net:number(m, "alpha", 1) })
end)

define_elementwise("nn.LogSigmoid", function(x) return -(-x):softplus() end)
define_elementwise("nn.SoftSign", function(x) return x:unary("softsign") end)
define_elementwise("nn.Abs", function(x) return x:abs() end)
define_elementwise("nn.Square", function(x) return x:square() end)
define_elementwise("nn.Exp", function(x) return x:exp() end)
define_elementwise("nn.Log", function(x) return x:log() end)
define_elementwise("nn.TanhShrink", function(x) return x - x:tanh() end)

-- Computes a softplus that is linear above threshold / beta.
define_elementwise("nn.SoftPlus", function(x, m, net)
  local beta, most = net:number(m, "beta", 1), net:number(m, "threshold", 20)
  local y = (x * beta):softplus() / beta
  return most >= 20 and y or Tensor.where((x * beta):gt(most), x, y)
end)

define_elementwise("nn.HardShrink", function(x, m, net)
  return x * x:abs():gt(net:number(m, "lambda", 0.5))
end)

define_elementwise("nn.SoftShrink", function(x, m, net)
  local lambda = net:number(m, "lambda", 0.5)
  return x - x:clip(-lambda, lambda)
end)

define_elementwise("nn.Sqrt", function(x) return x:root() end)

define_elementwise("nn.Power", function(x, m, net) return x:pow(net:number(m, "pow")) end)
define_elementwise("nn.AddConstant", function(x, m, net)
  return x + net:number(m, "constant_scalar")
end)
define_elementwise("nn.MulConstant", function(x, m, net)
  return x * net:number(m, "constant_scalar")
end)

define_elementwise("nn.SAdd", function(x, m, net)
  local y = x + net:number(m, "addend")
  return m.negate and -y or y
end)

-- Multiplies the first half of an axis by the sigmoid of the second.
layers.tensor("nn.GatedLinearUnit", function(net, m, x)
  local axis = net:axis(net:integer(m, "dim", #x.shape), #x.shape)
  local half = x.shape[axis + 1] / 2
  if half % 1 ~= 0 then
    net:fail("shape", "axis %d of %s has no halves", axis, Error.show(x.shape))
  end
  return x:slice(axis, 0, half) * x:slice(axis, half, 2 * half):sigmoid()
end)


-- Softmax -----------------------------------------------------------------------------------------

-- Returns the axis of classes: the first axis of a vector or an image, the second if there is a
-- batch.
local function find_class_axis(net, x)
  net:need_dims(x, 1, 4)
  return #x.shape % 2 == 1 and 0 or 1
end

-- Returns the axis of channels of images with or without a batch.
local function find_spatial_axis(net, x)
  net:need_dims(x, 3, 4)
  return #x.shape - 3
end

layers.tensor("nn.SoftMax", function(net, _, x) return x:softmax(find_class_axis(net, x)) end)
layers.tensor("nn.SoftMin", function(net, _, x) return (-x):softmax(find_class_axis(net, x)) end)
layers.tensor("nn.LogSoftMax", function(net, _, x)
  return x:log_softmax(find_class_axis(net, x))
end)
layers.tensor("nn.SpatialSoftMax", function(net, _, x)
  return x:softmax(find_spatial_axis(net, x))
end)
layers.tensor("nn.SpatialLogSoftMax", function(net, _, x)
  return x:log_softmax(find_spatial_axis(net, x))
end)


-- Random layers -----------------------------------------------------------------------------------

-- Returns x after dropout with probability p; elements along the axes (from 0) share a draw.
local function apply_dropout(m, x, p, axes)
  return x:unary("Dropout", { p = p, axes = axes or {},
    mode = m.stochastic_inference == true and "always" or "training" })
end

-- Returns the module's dropout probability; raises an error unless it is at least 0 and below 1.
local function read_probability(net, m)
  local p = net:number(m, "p", 0.5)
  if not (p >= 0 and p < 1) then
    net:fail("value", "the field 'p' is %s, not a probability below 1", tostring(p))
  end
  return p
end

-- Applies dropout. Without `v2`, outputs are scaled in evaluation and not in training.
layers.tensor("nn.Dropout", function(net, m, x)
  local p = read_probability(net, m)
  local y = apply_dropout(m, x, p, m.mono == true and { 0 } or nil)
  return placed(m, x, m.v2 == true and y or y * (1 - p))
end)

-- Defines dropouts with one draw for each map of images (`spatial` 2) or volumes (3). Other inputs
-- are accepted, as Torch does in evaluation.
local function define_map_dropout(names, spatial)
  layers.tensor(names, function(net, m, x)
    local p, axes = read_probability(net, m), {}
    for k = 1, #x.shape > spatial and spatial or 0 do
      axes[k] = #x.shape - spatial + k - 1
    end
    return placed(m, x, apply_dropout(m, x, p, axes) * (1 - p))
  end)
end

define_map_dropout("nn.SpatialDropout", 2)
define_map_dropout("nn.VolumetricDropout", 3)

-- Applies dropout with one draw for all elements.
layers.tensor("nn.TotalDropout", function(net, m, x)
  local ones = {}
  for i = 1, #x.shape do
    ones[i] = 1
  end
  return x * apply_dropout(m, net:full(ones, 1), read_probability(net, m)):ne(0)
end)

-- Adds noise in training only. A Dropout of ones shows whether the network is in training: in
-- evaluation it leaves them unchanged.
layers.tensor("nn.WhiteNoise", function(net, m, x)
  local training = x:ones_like():unary("Dropout", { p = 0.5 }):ne(1)
  local noise = x:unary("_random_normal_like", { loc = net:number(m, "mean", 0),
    scale = net:number(m, "std", 0.1) })
  return x + (noise * training):block()
end)


-- Products with weights ---------------------------------------------------------------------------

--- Returns x W' + b for rows of x.
-- @tparam Net net
-- @tparam Tensor x of 1 or 2 dimensions
-- @tparam Tensor weight (out, in)
-- @tparam ?Tensor bias (out)
function simple.linear(net, x, weight, bias)
  net:need_dims(x, 1, 2)
  local rows = #x.shape == 1 and x:reshape{ 1, x.shape[1] } or x
  local out, inputs = unpack(weight.shape)
  if rows.shape[2] ~= inputs then
    net:fail("shape", "the input has %d features, the weight is for %d", rows.shape[2], inputs)
  end
  local y = Tensor.call("FullyConnected", { rows, weight, bias },
    { num_hidden = out, no_bias = not bias }, { rows.shape[1], out }, net:name())
  return #x.shape == 1 and y:reshape{ out } or y
end

layers.tensor("nn.Linear nn.LinearNoBias", function(net, m, x)
  local out, inputs = net:size_of(m, "weight", 1), net:size_of(m, "weight", 2)
  return simple.linear(net, x, net:parameter(m, "weight", { out, inputs }),
    net:optional(m, "bias", { out }))
end)

-- Applies a linear layer whose weight is g v / |v|, row by row.
layers.tensor("nn.LinearWeightNorm", function(net, m, x)
  local out, inputs = net:size_of(m, "v", 1), net:size_of(m, "v", 2)
  local v, g = net:parameter(m, "v", { out, inputs }), net:parameter(m, "g", { out, 1 })
  return simple.linear(net, x, v * (g / v:square():sum(1):sqrt()), net:optional(m, "bias", { out }))
end)

layers.tensor("nn.Mul", function(net, m, x)
  local shape = {}
  for i = 1, #x.shape do
    shape[i] = 1
  end
  return x * net:parameter(m, "weight", { 1 }):reshape(shape)
end)

-- Adds a bias with one entry, or with one for each entry of a row.
layers.tensor("nn.Add", function(net, m, x)
  local n, shape = net:size_of(m, "bias", 1), {}
  for i = 1, #x.shape do
    shape[i] = 1
  end
  local bias = net:parameter(m, "bias", { n })
  if n == 1 then
    return x + bias:reshape(shape)
  end
  local batch = #x.shape > 1 and x.shape[1] or 1
  if x:size() ~= batch * n then
    net:fail("shape", "the input has shape %s, the bias %d entries", Error.show(x.shape), n)
  elseif #x.shape == 1 then
    return x + bias
  end
  return (x:reshape{ batch, n } + bias:reshape{ 1, n }):reshape(x.shape)
end)

-- Returns a parameter with the axes of the input, or with those after the batch.
local function read_parameter(net, m, x, name)
  local sizes = net:integers(m, "size")
  local own = sizes or m[name] and m[name]._shape
  if not own or #own == 0 then
    net:fail("value", "the field 'size' is missing")
  end
  local p = net:parameter(m, name, own)
  if x:size() == p:size() then
    return x, p:reshape(x.shape)
  end
  local shape = {}
  for i, n in ipairs(own) do
    shape[i] = n
  end
  while #shape < #x.shape do
    table.insert(shape, 1, 1)
  end
  local fits = #shape == #x.shape
  for i = 1, fits and #shape or 0 do
    fits = fits and (shape[i] == 1 or shape[i] == x.shape[i])
  end
  if fits then
    return x, p:reshape(shape)
  end
  local batch = x.shape[1]
  if #x.shape < 2 or x:size() ~= batch * p:size() then
    net:fail("shape", "the input has shape %s, the %s %s", Error.show(x.shape), name,
      Error.show(own))
  end
  return x:reshape{ batch, p:size() }, p:reshape{ 1, p:size() }
end

layers.tensor("nn.CMul", function(net, m, x)
  local a, b = read_parameter(net, m, x, "weight")
  return (a * b):reshape(x.shape)
end)

layers.tensor("nn.CAdd", function(net, m, x)
  local a, b = read_parameter(net, m, x, "bias")
  return (a + b):reshape(x.shape)
end)

-- Computes a PReLU with one slope for all planes, or one for each.
layers.tensor("nn.PReLU", function(net, m, x)
  local planes, shape = net:size_of(m, "weight", 1), {}
  local axis = #x.shape % 2 == 1 and 1 or 2              -- the second axis if there is a batch
  for i = 1, #x.shape do
    shape[i] = i == axis and planes > 1 and planes or 1
  end
  if planes > 1 and x.shape[axis] ~= planes then
    net:fail("shape", "the input has shape %s, the weight is for %d planes", Error.show(x.shape),
      planes)
  end
  return x:relu() - (-x):relu() * net:parameter(m, "weight", shape)
end)


-- Distances and other products --------------------------------------------------------------------

-- Returns x as rows, and whether it was a vector.
local function make_rows(net, x)
  net:need_dims(x, 1, 2)
  return #x.shape == 1 and x:reshape{ 1, x.shape[1] } or x, #x.shape == 1
end

-- Returns rows unchanged, or as a vector if `single`.
local function restore_row(y, single)
  return single and y:reshape{ y:size() } or y
end

local SMALL = 1e-12

-- Returns the cosines between each row and each row of the weight.
layers.tensor("nn.Cosine", function(net, m, x)
  local rows, single = make_rows(net, x)
  local w = net:parameter(m, "weight")
  local y = Tensor.dot(rows, w, false, true) / (rows:square():sum(1):sqrt() + SMALL)
  local norms = (w:square():sum(1):sqrt() + SMALL):reshape{ 1, w.shape[1] }
  return restore_row(y / norms, single)
end)

-- Returns the differences between each row and each column of the weight, (rows, in, out), and
-- whether the input was a single row.
local function subtract_columns(net, m, x)
  local rows, single = make_rows(net, x)
  local w = net:parameter(m, "weight")
  if #w.shape ~= 2 or w.shape[1] ~= rows.shape[2] then
    net:fail("shape", "the input has %d features, the weight has shape %s", rows.shape[2],
      Error.show(w.shape))
  end
  return rows:unsqueeze(2) - w:unsqueeze(0), single
end

-- Returns the distances of differences d (rows, in, out): (rows, out), or (out) of a single row.
local function measure_distances(d, single)
  local y = d:square():sum(1):root()
  return restore_row(y:reshape{ y.shape[1], y.shape[3] }, single)
end

layers.tensor("nn.Euclidean", function(net, m, x)
  return measure_distances(subtract_columns(net, m, x))
end)

layers.tensor("nn.WeightedEuclidean", function(net, m, x)
  local d, single = subtract_columns(net, m, x)
  local scale = net:parameter(m, "diagCov", { d.shape[2], d.shape[3] })
  return measure_distances(d * scale:unsqueeze(0), single)
end)

layers.refuse("nn.SparseLinear nn.IndexLinear", "its input is a list of indices and values")
layers.refuse("nn.MaskedSelect", "the size of its output depends on the data")
layers.refuse("nn.Kmeans", "it gives a loss and is not trained by gradients")
layers.refuse("nn.NormStabilizer nn.CategoricalEntropy",
  "it adds to gradients what no operator adds; nn.Identity computes the same")
layers.refuse("nn.ReinforceNormal nn.ReinforceUniform nn.ReinforceGamma nn.ReinforceBernoulli "
  .. "nn.ReinforceCategorical", "it draws, and is trained by rewards")


return simple
