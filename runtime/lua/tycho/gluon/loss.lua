--- Losses: `ty.gluon.loss`.
--
-- A loss is a HybridBlock, called as `loss(pred, label, sample_weight)` unless stated otherwise. It
-- returns one value per sample, in an array of shape (batch), which is the mean over the other axes
-- unless stated otherwise. `weight` is a factor for all samples. `sample_weight`, which may be
-- omitted, is an array that broadcasts to the loss before that mean: (batch, 1) for a weight per
-- sample. `batch_axis` is the axis of samples, from 0.
--
--     local loss = ty.gluon.loss.SoftmaxCrossEntropyLoss()
--     local l = ty.autograd.record(function() return loss(net(x), y) end)
--
--     local Focal = ty.gluon.loss.Loss:extend("Focal")              -- a custom loss
--     function Focal:forward(pred, label) ... end
--
-- @module tycho.gluon.loss

local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local layer = require "tycho.gluon.layer"
local namespace = require "tycho.core.namespace"
local HybridBlock = require "tycho.gluon.hybrid_block"
local class_of_arrays = require "tycho.ndarray.class"
local Symbol = require("tycho.symbol.symbol").Symbol

local is_array, NDArray = class_of_arrays.is_array, class_of_arrays.NDArray

local loss = {}


-- The base ----------------------------------------------------------------------------------------

--- The base class of losses. Options of the constructor, by name, which become fields: `weight` =
-- nil, a factor, and `batch_axis` = 0.
-- @type Loss
local Loss = HybridBlock:extend("Loss")
loss.Loss = Loss

Loss.batch_axis = 0


-- Sets the fields `weight` and `batch_axis` from the options of a constructor.
function Loss._begin(self, options)
  for _, name in ipairs{ "weight", "batch_axis" } do
    local value = options[name]
    if value ~= nil and type(value) ~= "number" then
      Error.raise{ code = "type", func = "loss." .. self.class_name, argument = name,
        expected = "a number", got = Error.kind(value), message = ("bad '%s'"):format(name) }
    end
    self[name] = value
  end
end


function Loss.init() end


layer.describe(Loss, function(self)
  return ("%s(batch_axis=%s, w=%s)"):format(self.class_name, layer.show(self.batch_axis),
    layer.show_real(self.weight))
end)


local WEIGHT, BATCH_AXIS = { "weight", "number?" }, { "batch_axis", "integer", 0 }

local defined = {}                       -- set of the classes below, whose forward stores no array

-- Returns a class of losses with the arguments in `spec`. They become fields: `weight` and
-- `batch_axis` under these names, the others with an underscore in front.
local function define(name, spec)
  local class = layer.extend(Loss, "loss." .. name, spec)
  function class:set_up(a)
    for _, entry in ipairs(spec) do
      local key = entry[1]
      self[(key == "weight" or key == "batch_axis") and key or "_" .. key] = a[key]
    end
  end
  loss[name] = class
  defined[#defined + 1] = class
  return class
end


-- Pieces ------------------------------------------------------------------------------------------

-- Returns a loss multiplied by sample_weight and by a factor; both may be nil.
local function weighted(l, factor, sample_weight)
  if sample_weight ~= nil then
    l = F.broadcast_mul(l, sample_weight)
  end
  return factor and l * factor or l
end


-- Called as mean(batch_axis, x). Returns the mean of each sample.
local mean = layer.by_value("mean", function(batch_axis)
  return { axis = batch_axis, exclude = true }
end)


-- Returns the mean of each sample, weighted by the block's weight and by sample_weight.
local function compute_mean(self, l, sample_weight)
  return mean(self.batch_axis, weighted(l, self.weight, sample_weight))
end


local function fail_input(self, argument, x)
  local is_given = argument == "label" or argument == "target"       -- not made by a network
  local text = x ~= nil and "bad '%s'" or is_given and "'%s' is missing"
    or "'%s' is missing; does the network's forward return its result?"
  Error.raise{ code = "type", func = "loss." .. self.class_name, argument = argument,
    expected = "an NDArray or a Symbol", got = Error.kind(x), message = text:format(argument) }
end


-- Raises E(type) unless inputs of forward, given by name and value in turn, are arrays or symbols.
local function need(self, argument, x, second, y, third, z)
  local class = getmetatable(x)
  if class ~= NDArray and class ~= Symbol then
    fail_input(self, argument, x)
  elseif second then
    need(self, second, y, third, z)
  end
end


-- Returns an input of forward reshaped to the shape of pred. Raises E(shape) for an array with
-- another number of elements. Arrays of one shape mostly share its table, so that few sizes are
-- compared.
local function like(self, argument, x, pred)
  if rawget(x, "_shape") ~= rawget(pred, "_shape") and is_array(x) and is_array(pred)
      and x.size ~= pred.size then
    Error.raise{ code = "shape", func = "loss." .. self.class_name, argument = argument,
      expected = pred.shape, got = x.shape,
      message = ("'%s' needs as many elements as what it is compared with"):format(argument) }
  end
  return F.reshape_like(x, pred)
end


-- Returns log(1 + exp(-|x|)), which cannot overflow.
local function soft_step(x)
  return F.Activation{ -F.abs(x), act_type = "softrelu" }
end


-- Regression --------------------------------------------------------------------------------------

--- Computes weight / 2 (label - pred)^2, the mean of each sample. `weight` = 1. The label has as
-- many elements as pred.
-- @type L2Loss
local L2Loss = define("L2Loss", { { "weight", "number", 1 }, BATCH_AXIS })

function L2Loss:forward(pred, label, sample_weight)
  need(self, "pred", pred, "label", label)
  local apart = like(self, "label", label, pred) - pred
  local l = weighted(F.square(apart), self.weight / 2, sample_weight)
  return mean(self.batch_axis, l)
end


--- Computes |label - pred|, the mean of each sample. The label has as many elements as pred.
-- @type L1Loss
local L1Loss = define("L1Loss", { WEIGHT, BATCH_AXIS })

function L1Loss:forward(pred, label, sample_weight)
  need(self, "pred", pred, "label", label)
  return compute_mean(self, F.abs(like(self, "label", label, pred) - pred), sample_weight)
end


--- Computes d - rho / 2 where d = |label - pred| is above rho, else d^2 / (2 rho): the mean of each
-- sample. `rho` = 1. The label has as many elements as pred.
-- @type HuberLoss
local HuberLoss = define("HuberLoss", { { "rho", "number", 1 }, WEIGHT, BATCH_AXIS })

function HuberLoss:forward(pred, label, sample_weight)
  need(self, "pred", pred, "label", label)
  local rho = self._rho
  local apart = F.abs(like(self, "label", label, pred) - pred)
  local l = F.where(apart:gt(rho), apart - 0.5 * rho, F.square(apart) * (0.5 / rho))
  return compute_mean(self, l, sample_weight)
end


--- Computes the negative logarithm of the probability of the target under a Poisson distribution,
-- up to a constant: exp(pred) - target pred, or, with `from_logits = false`, pred - target
-- log(pred + epsilon). `compute_full = true` adds Stirling's approximation of log(target!) where
-- the target is above 1. Returns the mean over all elements, one value. Called as `loss(pred,
-- target, sample_weight, epsilon)`, epsilon = 1e-8; the target has as many elements as pred.
-- @type PoissonNLLLoss
local PoissonNLLLoss = define("PoissonNLLLoss", { WEIGHT, { "from_logits", "boolean", true },
  BATCH_AXIS, { "compute_full", "boolean", false } })

-- Returns Stirling's approximation of log(x!) where x is above 1, else 0. The logarithm is taken of
-- numbers from 1 on, so that neither the value nor the gradient is NaN where x is 0.
local function stirling(x)
  local n = F.maximum(x, 1)
  return (n * F.log(n) - n + 0.5 * F.log(n * (2 * math.pi))) * x:gt(1)
end


function PoissonNLLLoss:forward(pred, target, sample_weight, epsilon)
  need(self, "pred", pred, "target", target)
  target = like(self, "target", target, pred)
  local l = self._from_logits and F.exp(pred) - target * pred
    or pred - target * F.log(pred + (epsilon or 1e-8))
  if self._compute_full then
    l = l + stirling(target)
  end
  return F.mean(weighted(l, self.weight, sample_weight))
end


-- Classification ----------------------------------------------------------------------------------

--- Computes the cross entropy between labels from 0 to 1, of the shape of pred, and the sigmoid of
-- pred, or pred itself with `from_sigmoid = true`: the mean of each sample. Called as `loss(pred,
-- label, sample_weight, pos_weight)`; `pos_weight` broadcasts to pred and multiplies the part of
-- positive labels.
-- @type SigmoidBinaryCrossEntropyLoss
local SigmoidBCELoss = define("SigmoidBinaryCrossEntropyLoss",
  { { "from_sigmoid", "boolean", false }, WEIGHT, BATCH_AXIS })
loss.SigmoidBCELoss = SigmoidBCELoss

local TINY = 1e-12                                       -- keeps a logarithm finite at 0

local function cross_entropy_of_sigmoid(pred, label, pos_weight)
  local hit = F.log(pred + TINY) * label
  if pos_weight ~= nil then
    hit = F.broadcast_mul(hit, pos_weight)
  end
  return -(hit + F.log(1 - pred + TINY) * (1 - label))
end


local function cross_entropy_of_logits(pred, label, pos_weight)
  if pos_weight == nil then
    return F.relu(pred) - pred * label + soft_step(pred)
  end
  local factor = 1 + F.broadcast_mul(label, pos_weight - 1)
  return pred - pred * label + factor * (soft_step(pred) + F.relu(-pred))
end


function SigmoidBCELoss:forward(pred, label, sample_weight, pos_weight)
  need(self, "pred", pred, "label", label)
  local f = self._from_sigmoid and cross_entropy_of_sigmoid or cross_entropy_of_logits
  return compute_mean(self, f(pred, like(self, "label", label, pred), pos_weight), sample_weight)
end


-- Raises E(shape) unless labels are one class for each sample. Does nothing for symbols, whose
-- sizes are not known.
local function check_classes(pred, label, axis)
  if not (is_array(pred) and is_array(label)) then
    return
  end
  local shape, count = pred._shape, label.size
  local extent = shape[axis < 0 and #shape + axis + 1 or axis + 1]
  if not extent or count * extent == pred.size then
    return
  end
  local advice = count == pred.size and "is as large as 'pred'; one-hot labels need \z
    sparse_label = false" or ("does not fit 'pred' of shape %s%s"):format(Error.show(shape),
    count > pred.size and "; 'pred' is the first argument" or "")
  Error.raise{ code = "shape", func = "loss.SoftmaxCrossEntropyLoss", argument = "label",
    expected = "one class from 0 for each sample", got = label.shape,
    message = "'label' " .. advice }
end


--- Computes the cross entropy between labels and the softmax of pred along `axis` = -1: the mean of
-- each sample. Labels are classes from 0, of the shape of pred without that axis, or with size 1
-- there; with `sparse_label = false` distributions of the shape of pred. `from_logits = true`:
-- pred holds logarithms of probabilities already. Raises E(`shape`) for one-hot rows without
-- `sparse_label = false`.
-- @type SoftmaxCrossEntropyLoss
local SoftmaxCELoss = define("SoftmaxCrossEntropyLoss", { { "axis", "integer", -1 },
  { "sparse_label", "boolean", true }, { "from_logits", "boolean", false }, WEIGHT, BATCH_AXIS })
loss.SoftmaxCELoss = SoftmaxCELoss

local log_softmax = layer.by_value("log_softmax", function(axis)
  return { axis = axis }
end)

local pick = layer.by_value("pick", function(axis)
  return { axis = axis, keepdims = true }
end)


function SoftmaxCELoss:forward(pred, label, sample_weight)
  need(self, "pred", pred, "label", label)
  local axis, l = self._axis
  if not self._from_logits then
    pred = log_softmax(axis, pred)
  end
  if self._sparse_label then
    check_classes(pred, label, axis)
    l = -pick(axis, pred, label)
  else
    l = -F.sum{ pred * like(self, "label", label, pred), axis = axis, keepdims = true }
  end
  return compute_mean(self, l, sample_weight)
end


--- Computes the Kullback-Leibler divergence label (log(label) - pred), the sum over each sample,
-- where pred holds logarithms of probabilities; with `from_logits = false` its log_softmax along
-- `axis` = -1 is taken first. Labels have the shape of pred.
-- @type KLDivLoss
local KLDivLoss = define("KLDivLoss",
  { { "from_logits", "boolean", true }, { "axis", "integer", -1 }, WEIGHT, BATCH_AXIS })

function KLDivLoss:forward(pred, label, sample_weight)
  need(self, "pred", pred, "label", label)
  if not self._from_logits then
    pred = F.log_softmax{ pred, axis = self._axis }
  end
  local l = weighted(label * (F.log(label + TINY) - pred), self.weight, sample_weight)
  return F.sum{ l, axis = self.batch_axis, exclude = true }
end


--- Computes max(0, margin - pred label) for labels -1 and 1, the mean of each sample. `margin` = 1.
-- @type HingeLoss
local HingeLoss = define("HingeLoss", { { "margin", "number", 1 }, WEIGHT, BATCH_AXIS })

function HingeLoss:forward(pred, label, sample_weight)
  need(self, "pred", pred, "label", label)
  local missing = F.relu(self._margin - pred * like(self, "label", label, pred))
  return compute_mean(self, missing, sample_weight)
end


--- Computes max(0, margin - pred label)^2 for labels -1 and 1, the mean of each sample. `margin` =
-- 1.
-- @type SquaredHingeLoss
local SquaredHingeLoss = define("SquaredHingeLoss",
  { { "margin", "number", 1 }, WEIGHT, BATCH_AXIS })

function SquaredHingeLoss:forward(pred, label, sample_weight)
  need(self, "pred", pred, "label", label)
  local missing = F.relu(self._margin - pred * like(self, "label", label, pred))
  return compute_mean(self, F.square(missing), sample_weight)
end


--- Computes log(1 + exp(-pred label)) for labels -1 and 1 (`label_format` = "signed"), or for
-- labels 0 and 1 (`label_format = "binary"`, another is E(`value`)): the mean of each sample.
-- @type LogisticLoss
local LogisticLoss = define("LogisticLoss",
  { WEIGHT, BATCH_AXIS, { "label_format", "text", "signed" } })

local set_up_logistic = LogisticLoss.set_up

function LogisticLoss:set_up(a)
  layer.word("loss.LogisticLoss", "label_format", a.label_format, { "signed", "binary" })
  set_up_logistic(self, a)
end


function LogisticLoss:forward(pred, label, sample_weight)
  need(self, "pred", pred, "label", label)
  label = like(self, "label", label, pred)
  if self._label_format == "signed" then
    label = (label + 1) / 2
  end
  return compute_mean(self, cross_entropy_of_logits(pred, label), sample_weight)
end


-- Pairs -------------------------------------------------------------------------------------------

--- Computes max(0, |positive - pred|^2 - |negative - pred|^2 + margin) for each sample; the squares
-- are summed over the sample. `margin` = 1. Called as `loss(pred, positive, negative)`, all of one
-- shape.
-- @type TripletLoss
local TripletLoss = define("TripletLoss", { { "margin", "number", 1 }, WEIGHT, BATCH_AXIS })

function TripletLoss:forward(pred, positive, negative)
  need(self, "pred", pred, "positive", positive, "negative", negative)
  local to_positive = like(self, "positive", positive, pred) - pred
  local to_negative = like(self, "negative", negative, pred) - pred
  local apart = F.square(to_positive) - F.square(to_negative)
  local l = F.sum{ apart, axis = self.batch_axis, exclude = true }
  return weighted(F.relu(l + self._margin), self.weight)
end


--- Computes 1 - cos(input1, input2) where the label is 1, max(0, cos - margin) where it is -1.
-- `margin` = 0. Called as `loss(input1, input2, label, sample_weight)`; the result has shape (N,
-- 1).
-- @type CosineEmbeddingLoss
local CosineEmbeddingLoss = define("CosineEmbeddingLoss",
  { WEIGHT, BATCH_AXIS, { "margin", "number", 0 } })

local function column(x)
  return F.reshape{ x, shape = { -1, 1 } }
end


local function cosine(x, y)
  local product = column(F.sum{ x * y, axis = -1 })
  local norms = column(F.norm{ x, axis = -1 }) * column(F.norm{ y, axis = -1 })
  return product / F.maximum(norms, TINY)
end


function CosineEmbeddingLoss:forward(input1, input2, label, sample_weight)
  need(self, "input1", input1, "input2", input2, "label", label)
  local cos = cosine(like(self, "input1", input1, input2), input2)
  label = column(label)
  local l = (1 - cos) * label:eq(1) + F.relu(label:eq(-1) * (cos - self._margin))
  return weighted(l, self.weight, sample_weight)
end


--- Computes smoothed deep metric learning: rows i of x1 and x2 are a pair, all other rows of the
-- batch are not. It is the divergence of the softmax of the negative squared distances from labels
-- of which a share `smoothing_parameter` = 0.3 is spread over the other rows. Called as `loss(x1,
-- x2)`, both (N, D); returns (N). `weight` and `batch_axis` are not used, as in the reference.
-- @type SDMLLoss
local SDMLLoss = define("SDMLLoss",
  { { "smoothing_parameter", "number", 0.3 }, { "weight", "number", 1 }, BATCH_AXIS })

-- Returns the labels (N, N) of a batch: 1 - smoothing on the diagonal, the rest evenly on the other
-- elements of a row.
local function smooth_labels(distances, smoothing)
  local index = F.contrib.arange_like{ distances, axis = 0 }
  local gold = F.broadcast_equal(F.expand_dims{ index, axis = 1 },
    F.expand_dims{ index, axis = 0 })
  local others = F.sum(F.ones_like(index)) - 1
  return gold * (1 - smoothing) + F.broadcast_div((1 - gold) * smoothing, others)
end


function SDMLLoss:forward(x1, x2)
  need(self, "x1", x1, "x2", x2)
  local apart = F.broadcast_sub(F.expand_dims{ x1, axis = 1 }, F.expand_dims{ x2, axis = 0 })
  local distances = F.sum{ F.square(apart), axis = 2 }
  local labels = smooth_labels(distances, self._smoothing_parameter)
  local l = labels * (F.log(labels + TINY) - F.log_softmax{ -distances, axis = 1 })
  return F.sum{ l, axis = 0, exclude = true }
end


-- Sequences ---------------------------------------------------------------------------------------

--- Computes connectionist temporal classification, one value per sample; the last class is the
-- blank. Called as `loss(pred, label, pred_lengths, label_lengths, sample_weight)`, pred (N, T, C)
-- or, with `layout = "TNC"`, (T, N, C), label (N, L) or, with `label_layout = "TN"`, (L, N).
-- Lengths are (N) and may be left out: then all steps count, and labels end at the first -1.
-- @type CTCLoss
local CTCLoss = define("CTCLoss", { { "layout", "text", "NTC" }, { "label_layout", "text", "NT" },
  WEIGHT })

function CTCLoss:set_up(a)
  self._layout = layer.word("loss.CTCLoss", "layout", a.layout, { "NTC", "TNC" })
  self._label_layout = layer.word("loss.CTCLoss", "label_layout", a.label_layout, { "NT", "TN" })
  self.weight, self.batch_axis = a.weight, self._label_layout == "NT" and 0 or 1
end


function CTCLoss:forward(pred, label, pred_lengths, label_lengths, sample_weight)
  need(self, "pred", pred, "label", label)
  if self._layout == "NTC" then
    pred = F.swapaxes{ pred, dim1 = 0, dim2 = 1 }
  end
  if self._label_layout == "TN" then
    label = F.swapaxes{ label, dim1 = 0, dim2 = 1 }
  end
  local l = F.CTCLoss{ pred, label, data_lengths = pred_lengths, label_lengths = label_lengths,
    use_data_lengths = pred_lengths ~= nil, use_label_lengths = label_lengths ~= nil,
    blank_label = "last" }
  return weighted(l, self.weight, sample_weight)
end


for _, class in ipairs(defined) do
  layer.tidy(class)
end


return namespace.close(loss, "loss", "loss")
