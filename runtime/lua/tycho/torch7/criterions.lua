--- Criterions of Torch7 as losses. For `torch7/import.lua`.
--
-- @module tycho.torch7.criterions

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Error = require "tycho.core.error"
local objects = require "tycho.torch7.objects"
local Tensor = require "tycho.torch7.tensor"

local criterions = {}

local LOSSES = {}                                        -- class -> f(net, m, x, target)

-- Registers f(net, m, x, target), which returns a loss, for classes whose names are separated by
-- blanks.
local function define_losses(names, f)
  for name in names:gmatch("%S+") do
    LOSSES[name] = f
  end
end


--- Returns whether an object is a criterion.
function criterions.is(object)
  local name = objects.typename(object) or ""
  return LOSSES[name] ~= nil or name:find("Criterion$") ~= nil or name == "nn.L1Cost"
end


-- Returns the loss of criterion m, which is at position `at` of its parent. Raises an error for an
-- object that is not a criterion, for an unknown class, and for too deep nesting.
local function compute_loss(net, m, x, target, at)
  local name = objects.is(m) and objects.typename(m)
  net.path[#net.path + 1] = { at = at, class = name or objects.kind(m) }
  if #net.path > 100 then
    net:fail("value", "criterions are nested too deeply")
  end
  local f = name and LOSSES[name]
  if not f then
    net:fail("unsupported", "there is no loss of this class")
  end
  local y = f(net, m, x, target)
  net.path[#net.path] = nil
  return y
end


-- Returns the target in the shape of the input; raises an error unless both are tensors with the
-- same number of elements.
local function reshape_target(net, x, target)
  if not Tensor.is(x) or not Tensor.is(target) then
    net:fail("type", "the loss is of a tensor and a target of its shape")
  elseif x:size() ~= target:size() then
    net:fail("shape", "the input has shape %s, the target %s", Error.show(x.shape),
      Error.show(target.shape))
  end
  return target:reshape(x.shape)
end


-- Returns the sum of losses divided by `count`, by default their number; the sum itself if the
-- module's `sizeAverage` is false.
local function reduce_losses(m, x, count)
  local sum = x:total()
  return m.sizeAverage == false and sum or sum / (count or x:size())
end


-- Defines criterions that compute a loss for each element and sum or average them.
local function define_elementwise(names, f)
  define_losses(names, function(net, m, x, target)
    target = reshape_target(net, x, target)
    return reduce_losses(m, f(x, target, m, net))
  end)
end

define_elementwise("nn.MSECriterion", function(x, t) return (x - t):square() end)
define_elementwise("nn.AbsCriterion", function(x, t) return (x - t):abs() end)
define_elementwise("nn.SmoothL1Criterion", function(x, t)
  return (x - t):unary("smooth_l1", { scalar = 1 })
end)
define_elementwise("nn.SoftMarginCriterion nn.BinaryLogisticRegression", function(x, t)
  return (-(x * t)):softplus()
end)
define_elementwise("nn.MarginCriterion", function(x, t, m, net)
  return (net:number(m, "margin", 1) - x * t):relu()
end)

local SMALL = 1e-12

-- Returns the binary cross entropy of each element.
local function compute_cross_entropy(x, t)
  return -(t * (x + SMALL):log() + (1 - t) * ((1 - x) + SMALL):log())
end

-- Returns losses multiplied by the module's weights, one for each column; unchanged without
-- weights.
local function apply_weights(net, m, x, losses)
  local weights = net:optional(m, "weights")
  if not weights then
    return losses
  end
  local n = weights:size()
  if x:size() % n ~= 0 then
    net:fail("shape", "the input has shape %s, there are %d weights", Error.show(x.shape), n)
  end
  return losses:reshape{ x:size() / n, n } * weights:reshape{ 1, n }:block()
end

define_elementwise("nn.BCECriterion", function(x, t, m, net)
  return apply_weights(net, m, x, compute_cross_entropy(x, t))
end)

define_elementwise("nn.MultiLabelSoftMarginCriterion", function(x, t, m, net)
  return apply_weights(net, m, x, x:softplus() - x * t)
end)

define_elementwise("nn.DistKLDivCriterion", function(x, t)
  local positive = t:gt(0)
  return positive * t * ((t + (1 - positive)):log() - x)
end)

define_elementwise("nn.HingeEmbeddingCriterion", function(x, t, m, net)
  local positive = t:gt(0)
  return positive * x + (1 - positive) * (net:number(m, "margin", 1) - x):relu()
end)

define_losses("nn.L1Cost", function(_, _, x) return x:abs():total() end)


-- Classes -----------------------------------------------------------------------------------------

-- Returns scores as (rows, classes), and classes (from 1) as rows.
local function split_rows_and_classes(net, x, target)
  if not Tensor.is(x) or not Tensor.is(target) then
    net:fail("type", "the loss is of a tensor and a target of classes")
  end
  net:need_dims(x, 1, 4)
  local axis = #x.shape % 2 == 1 and 0 or 1
  local classes = x.shape[axis + 1]
  local rows = x:size() / classes
  if target:size() ~= rows then
    net:fail("shape", "the input has shape %s, the target %s", Error.show(x.shape),
      Error.show(target.shape))
  end
  -- classes become the last axis
  for k = axis, #x.shape - 2 do
    x = x:swap(k, k + 1)
  end
  return x:reshape{ rows, classes }, target:reshape{ rows }, rows, classes
end


-- Returns the entry of each row at its class.
local function pick_classes(x, target, rows)
  return Tensor.call("pick", { x, target - 1 }, { axis = 1 }, { rows })
end


-- Returns the negative log-likelihood of the target's classes, summed, or with `average`
-- divided by the sum of their weights.
local function compute_likelihood(net, m, x, target, average)
  local scores, classes, rows, n = split_rows_and_classes(net, x, target)
  local weights = net:optional(m, "weights", { 1, n })
  local counted = classes:ne(net:number(m, "ignoreIndex", -100)):block()
  if weights then
    counted = counted * pick_classes(weights:block():expand{ rows, n }, classes, rows)
  end
  local sum = -(pick_classes(scores, classes, rows) * counted):total()
  return average and sum / counted:total() or sum
end

define_losses("nn.ClassNLLCriterion nn.SpatialClassNLLCriterion",
  function(net, m, x, target)
    return compute_likelihood(net, m, x, target, m.sizeAverage ~= false)
  end)

define_losses("nn.CrossEntropyCriterion cudnn.SpatialCrossEntropyCriterion", function(net, m, x,
    target)
  local scores, classes = split_rows_and_classes(net, x, target)
  local inner = m.nll or m
  return compute_likelihood(net, inner, scores:log_softmax(1), classes,
    m.sizeAverage ~= false)
end)

define_losses("nn.MultiMarginCriterion", function(net, m, x, target)
  local scores, classes, rows, n = split_rows_and_classes(net, x, target)
  local own = pick_classes(scores, classes, rows):reshape{ rows, 1 }
  local others = 1 - Tensor.call("one_hot", { classes - 1 }, { depth = n, dtype = net.dtype },
    { rows, n })
  local losses = (net:number(m, "margin", 1) - own + scores):relu()
  if net:number(m, "p", 1) == 2 then
    losses = losses:square()
  end
  losses = losses * others / n
  local weights = net:optional(m, "weights", { 1, n })
  if weights then
    local picked = pick_classes(weights:block():expand{ rows, n }, classes, rows)
    losses = losses * picked:reshape{ rows, 1 }
  end
  return reduce_losses(m, losses, rows)
end)


-- Pairs -------------------------------------------------------------------------------------------

-- Defines criterions f(net, m, a, b, target) of a table of two tensors and a target.
local function define_pair(names, f)
  define_losses(names, function(net, m, x, target)
    if Tensor.is(x) or #x ~= 2 or not Tensor.is(x[1]) or not Tensor.is(x[2])
        or not Tensor.is(target) then
      net:fail("type", "the loss is of two tensors and a target")
    end
    return f(net, m, x[1], x[2], target)
  end)
end

-- Returns a vector as one row, other tensors as they are.
local function make_rows(x)
  return #x.shape == 1 and x:reshape{ 1, x.shape[1] } or x
end

define_pair("nn.MarginRankingCriterion", function(net, m, a, b, target)
  local t = reshape_target(net, a, target)
  return reduce_losses(m, (net:number(m, "margin", 1) - t * (a - b)):relu())
end)

define_pair("nn.CosineEmbeddingCriterion", function(net, m, a, b, target)
  a, b = make_rows(a), make_rows(b)
  local cosine = (a * b):sum(1) / ((a:square():sum(1) + SMALL):sqrt()
    * (b:square():sum(1) + SMALL):sqrt())
  local t = reshape_target(net, cosine, target):gt(0)
  return reduce_losses(m, t * (1 - cosine) + (1 - t) * (cosine - net:number(m, "margin", 0)):relu())
end)

define_pair("nn.L1HingeEmbeddingCriterion", function(net, m, a, b, target)
  local d = (a - b):abs():total()
  local t = reshape_target(net, d, target):gt(0)
  return t * d + (1 - t) * (net:number(m, "margin", 1) - d):relu()
end)


-- Criterions of criterions ------------------------------------------------------------------------

-- Returns the weight of inner criterion i (from 1): 1 unless the module has weights.
local function read_weight(net, m, i)
  local weights = m.weights
  if type(weights) == "table" and weights[i] ~= nil then
    return net:number(weights, i)
  end
  return 1
end


-- Returns the number of inner criterions; fails if there are none.
local function count_criterions(net, m)
  if type(m.criterions) ~= "table" or #m.criterions == 0 then
    net:fail("value", "the field 'criterions' is missing")
  end
  return #m.criterions
end


-- Returns the weighted sum of n inner criterions' losses; each_input(i) and each_target(i) return
-- the input and the target of criterion i (from 1).
local function compute_sum(net, m, n, each_input, each_target)
  local sum
  for i = 1, n do
    local part = compute_loss(net, net:module(m, "criterions", i), each_input(i), each_target(i),
      "criterions." .. i) * read_weight(net, m, i)
    sum = sum and sum + part or part
  end
  return sum
end


define_losses("nn.ParallelCriterion", function(net, m, x, target)
  local n = count_criterions(net, m)
  if Tensor.is(x) or #x ~= n then
    net:fail("type", "the loss is of a table of %d", n)
  elseif not m.repeatTarget and (not target or Tensor.is(target) or #target ~= n) then
    net:fail("type", "%d targets are needed", n)
  end
  return compute_sum(net, m, n, function(i) return x[i] end, function(i)
    return m.repeatTarget and target or target[i]
  end)
end)

define_losses("nn.MultiCriterion", function(net, m, x, target)
  return compute_sum(net, m, count_criterions(net, m),
    function() return x end, function() return target end)
end)

-- Returns the steps of a table, or of a tensor along its first axis.
local function split_steps(net, x, what)
  if not Tensor.is(x) then
    return x or net:fail("type", "the %s is missing", what)
  end
  local list = {}
  for i = 1, #x.shape > 1 and x.shape[1] or 0 do
    list[i] = x:select(0, i - 1)
  end
  return list
end

define_losses("nn.SequencerCriterion nn.RepeaterCriterion", function(net, m, x, target)
  local repeats = objects.typename(m) == "nn.RepeaterCriterion"
  local steps = split_steps(net, x, "input")
  local targets = not repeats and split_steps(net, target, "target")
  if #steps == 0 or targets and #targets ~= #steps then
    net:fail("shape", "%d steps and %d targets", #steps, targets and #targets or 1)
  end
  local sum
  for i, step in ipairs(steps) do
    local part = compute_loss(net, net:module(m, "criterion"), step,
      targets and targets[i] or target,
      "criterion")
    sum = sum and sum + part or part
  end
  return m.sizeAverage == true and sum / #steps or sum
end)

define_losses("nn.ModuleCriterion", function(net, m, x, target)
  if m.inputModule ~= nil then
    x = net:apply(net:module(m, "inputModule"), x, "inputModule")
  end
  if m.targetModule ~= nil then
    target = net:apply(net:module(m, "targetModule"), target, "targetModule")
  end
  return compute_loss(net, net:module(m, "criterion"), x, target, "criterion")
end)


--- Returns the loss of a criterion.
-- @tparam Net net
-- @tparam table m criterion
-- @param x output of the network
-- @tparam {Tensor,...} labels targets in their order
-- @bool keep whether the network's outputs follow the loss, without a gradient
-- @return a tensor of one element, or a list
function criterions.loss(net, m, x, labels, keep)
  if #labels == 0 and objects.typename(m) ~= "nn.L1Cost" then
    Error.raise{ code = "name", func = "torch7.import_model", argument = "shapes",
      message = ("a %s needs the shape of 'label'"):format(objects.typename(m) or "criterion") }
  end
  local loss = compute_loss(net, m, x, #labels == 1 and labels[1] or labels, "criterion")
    :reshape{ 1 }:unary("MakeLoss")
  if not keep then
    return loss
  end
  local list = { loss }
  local function add_blocked(y)
    for _, inner in ipairs(Tensor.is(y) and { y } or y) do
      if Tensor.is(inner) then
        list[#list + 1] = inner:block()
      else
        add_blocked(inner)
      end
    end
  end
  add_blocked(x)
  return list
end


return criterions
