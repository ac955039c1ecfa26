--- Operators of ONNX: arithmetic, comparison, reductions, products (not for users).
--
-- An operator is a function that takes the node (onnx/node.lua) and its inputs, nil for an omitted
-- one, and returns the outputs.
--
-- @module tycho.onnx.ops_math

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tables = require "tycho.core.tables"
local value = require "tycho.onnx.value"

local ops = {}

local op, REAL = value.op, value.REAL
local HUGE = math.huge


-- Functions of one value --------------------------------------------------------------------------

local UNARY = {
  Abs = "abs", Acos = "arccos", Acosh = "arccosh", Asin = "arcsin", Asinh = "arcsinh",
  Atan = "arctan", Atanh = "arctanh", Ceil = "ceil", Cos = "cos", Cosh = "cosh", Erf = "erf",
  Exp = "exp", Floor = "floor", Log = "log", Neg = "negative", Not = "logical_not",
  Reciprocal = "reciprocal", Relu = "relu", Round = "_contrib_round_half_even",
  Sigmoid = "sigmoid", Sign = "sign", Sin = "sin", Sinh = "sinh", Softsign = "softsign",
  Sqrt = "sqrt", Tan = "tan", Tanh = "tanh",
}
for name, target in pairs(UNARY) do
  ops[name] = function(_, x) return x:map(target) end
end

local function make_softplus(x) return x:map("Activation", {}, { act_type = "softrelu" }) end

local function make_elu(x, slope)
  return x:map("LeakyReLU", {}, { act_type = "elu", slope = slope })
end

function ops.Identity(_, x) return x end

function ops.Softplus(_, x) return make_softplus(x) end

function ops.Elu(n, x) return make_elu(x, n:float("alpha", 1)) end

function ops.Selu(n, x)
  return make_elu(x, n:float("alpha", 1.67326319217681884765625))
    * n:float("gamma", 1.05070102214813232421875)
end

function ops.Celu(n, x)
  local alpha = n:float("alpha", 1)
  if alpha < 0 then
    return x:maximum(0) + (((x / alpha):map("exp") - 1) * alpha):minimum(0)
  end
  return make_elu(x / alpha, 1) * alpha
end

function ops.LeakyRelu(n, x)
  return x:map("LeakyReLU", {}, { act_type = "leaky", slope = n:float("alpha", 0.01) })
end

-- Computes PRelu; before opset 7 the slope is a vector over channels.
function ops.PRelu(n, x, slope)
  if n.opset < 7 and #slope.shape == 1 and #x.shape > 1 then
    local line = { slope.shape[1] }
    for i = 2, #x.shape - 1 do
      line[i] = 1
    end
    slope = slope:reshape(line)
  end
  return x:maximum(0) + slope * x:minimum(0)
end

function ops.ThresholdedRelu(n, x)
  return value.where(x:greater(n:float("alpha", 1)), x, value.scalar(0, x.dtype))
end

function ops.HardSigmoid(n, x)
  return x:map("hard_sigmoid", {}, { alpha = n:float("alpha", 0.2), beta = n:float("beta", 0.5) })
end

function ops.HardSwish(_, x) return x * x:map("hard_sigmoid", {}, { alpha = 1 / 6, beta = 0.5 }) end

function ops.Mish(_, x) return x * make_softplus(x):map("tanh") end

function ops.Swish(n, x) return x * (x * n:float("alpha", 1)):map("sigmoid") end

-- Computes Gelu. For the approximation, (1 + tanh(x)) / 2 is written as sigmoid(2 x), which does
-- not cancel for negative x.
function ops.Gelu(n, x)
  if n:choice("approximate", "none", { none = 1, tanh = 2 }) == 1 then
    return x:map("LeakyReLU", {}, { act_type = "gelu" })
  end
  return x * ((x + x * x * x * 0.044715) * math.sqrt(8 / math.pi)):map("sigmoid")
end

function ops.Shrink(n, x)
  local lambda, bias = n:float("lambd", 0.5), n:float("bias", 0)
  local y = REAL[x.dtype] and x or x:cast("float64")
  local zero = value.scalar(0, y.dtype)
  return value.where(y:lesser(-lambda), y + bias, value.where(y:greater(lambda), y - bias, zero))
    :cast(x.dtype)
end

function ops.IsNaN(_, x) return value.binary("equal", x, x):truth():map("logical_not") end

function ops.IsInf(n, x)
  local up, down = n:flag("detect_positive", true), n:flag("detect_negative", true)
  local y = up and down and x:map("abs") or up and x or down and -x
  return y and y:equal(HUGE):truth() or (x:equal(0):logical_and(x:equal(1))):truth()
end


-- Functions of two values -------------------------------------------------------------------------

-- Returns b in a shape that broadcasts to a. Before opset 7 the attribute `axis` is the axis of a
-- that corresponds to the first axis of b.
local function align_axes(n, a, b)
  local axis = n.opset < 7 and n:flag("broadcast") and n:int("axis")
  if not axis then
    return b
  end
  axis = n:axis_of(axis, #a.shape)
  local shape = tables.copied(b.shape)
  for _ = axis + #b.shape + 1, #a.shape do
    shape[#shape + 1] = 1
  end
  return b:reshape(shape)
end

local BINARY = { Add = "add", Sub = "sub", Mul = "mul", Div = "div" }
for name, target in pairs(BINARY) do
  ops[name] = function(n, a, b) return value.binary(target, a, align_axes(n, a, b)) end
end

local TESTS = { And = "logical_and", Or = "logical_or", Xor = "logical_xor", Equal = "equal",
  Greater = "greater", GreaterOrEqual = "greater_equal", Less = "lesser",
  LessOrEqual = "lesser_equal" }
for name, target in pairs(TESTS) do
  ops[name] = function(n, a, b) return value.binary(target, a, align_axes(n, a, b)):truth() end
end

function ops.Pow(n, a, b)
  b = align_axes(n, a, b)
  if REAL[a.dtype] then
    return a ^ b:cast(a.dtype)
  elseif REAL[b.dtype] then
    return (a:cast("float64") ^ b:cast("float64")):cast(a.dtype)
  end
  return a ^ b:cast(a.dtype)
end

-- Computes a modulo b. The sign is that of b, or with fmod that of a; floats modulo 0 are NaN.
function ops.Mod(n, a, b)
  local real = REAL[a.dtype]
  if not real and not n:flag("fmod") then
    return a % b
  end
  local y = op("_npi_fmod", { a, b })
  y.shape = value.broadcast(a.shape, b.shape)
  if n:flag("fmod") then
    return y
  end
  local other = y:lesser(0):logical_xor(b:lesser(0)):logical_and(value.binary("equal", y, y * 0)
    :map("logical_not"))
  return value.where(other, y + b, y)
end

-- Returns an operator that combines its inputs from the left by a binary operator.
local function make_fold(name)
  return function(_, first, ...)
    for _, other in ipairs{ ... } do
      first = value.binary(name, first, other)
    end
    return first
  end
end

ops.Max, ops.Min, ops.Sum = make_fold("maximum"), make_fold("minimum"), make_fold("add")

function ops.Mean(n, ...) return ops.Sum(n, ...) / select("#", ...) end

function ops.Where(_, condition, a, b) return value.where(condition, a, b) end

function ops.Clip(n, x, least, most)
  least = least or n:float("min")
  most = most or n:float("max")
  x = least and x:maximum(least) or x
  return most and x:minimum(most) or x
end

-- Returns an operator of f(n, x, axis), a sum or product that runs along an axis from either end.
-- With `exclusive` each result excludes its own element, so that the first one is `first`.
local function make_running(f, first)
  return function(n, x, axis)
    axis = n:axis_of(axis:number("axis"), #x.shape)
    local reverse, shape = n:flag("reverse"), n:sizes(x, "the input")
    local y = reverse and op("reverse", { x }, { axis = { axis } }) or x
    if n:flag("exclusive") then
      local line = tables.copied(shape)
      line[axis + 1] = 1
      y = value.concat({ value.full(line, first, x.dtype), y:part(axis, 0, shape[axis + 1] - 1) },
        axis)
    end
    y = f(n, y, axis)
    return reverse and op("reverse", { y }, { axis = { axis } }) or y
  end
end

ops.CumSum = make_running(function(_, x, axis)
  return (op("_np_cumsum", { x }, { axis = axis }))
end, 0)

-- Multiplies each element by the one that is 1, then 2, 4 ... places before it.
ops.CumProd = make_running(function(n, x, axis)
  local shape, reach = n:sizes(x, "the input"), 1
  while reach < shape[axis + 1] do
    local line = tables.copied(shape)
    line[axis + 1] = reach
    x = x * value.concat({ value.full(line, 1, x.dtype),
      x:part(axis, 0, shape[axis + 1] - reach) }, axis)
    reach = 2 * reach
  end
  return x
end, 1)


-- Reductions --------------------------------------------------------------------------------------

-- Returns the axes of a reduction, from 0, from the input `axes` or the attribute; without either,
-- all axes, or none with `noop_with_empty_axes`.
local function list_reduced_axes(n, x, axes)
  local list = n:list_of(axes, "axes")
  if list and #list > 0 then
    return n:axes_of(list, #x.shape)
  elseif n:flag("noop_with_empty_axes") then
    return {}
  end
  local all = {}
  for axis = 0, #x.shape - 1 do
    all[#all + 1] = axis
  end
  return all
end


-- Results of reductions over no elements, by name; for max and min of integers the limits of the
-- type.
local EMPTY_RESULTS = { sum = 0, prod = 1, max = -HUGE, min = HUGE }
local LIMITS = { uint8 = { 0, 255 }, int8 = { -128, 127 }, int32 = { -2 ^ 31, 2 ^ 31 - 1 },
  int64 = { -2 ^ 63, 2 ^ 63 - 1024 }, bool = { 0, 1 } }

local function get_empty_result(name, dtype)
  local limits = LIMITS[dtype]
  return limits and (name == "max" and limits[1] or name == "min" and limits[2])
    or EMPTY_RESULTS[name]
end

-- Returns a reduction of x, which may be a scalar or have no elements.
local function reduce_axes(name, x, axes, keep)
  if not x:is_empty() then
    if #axes == 0 and #x.shape > 0 then
      return x
    end
    return x:reduce(name, axes, keep)
  end
  local shape, drop = {}, {}
  for _, axis in ipairs(axes) do
    drop[axis] = true
  end
  for i, size in ipairs(x.shape) do
    if not drop[i - 1] or keep then
      shape[#shape + 1] = drop[i - 1] and 1 or size
    end
  end
  if EMPTY_RESULTS[name] == nil then
    value.refuse("the %s of no elements", name)
  end
  return value.scalar(get_empty_result(name, x.dtype), x.dtype):expand(shape)
end


-- Returns an operator that reduces; `before`, if given, is applied to the elements, `after` to the
-- result.
local function make_reduction(name, before, after)
  return function(n, x, axes)
    local keep = n:flag("keepdims", true)
    local list = list_reduced_axes(n, x, axes)
    local y = reduce_axes(name, before and before(x) or x, list, keep)
    return after and after(y) or y
  end
end


local function make_sqrt(x) return x:map("sqrt") end
local function make_log(x) return x:map("log") end
local function make_abs(x) return x:map("abs") end
local function make_square(x) return x * x end

ops.ReduceSum, ops.ReduceProd = make_reduction("sum"), make_reduction("prod")
ops.ReduceMean = make_reduction("mean")
ops.ReduceL1 = make_reduction("sum", make_abs)
ops.ReduceL2 = value.round_once(make_reduction("sum", make_square, make_sqrt))
ops.ReduceSumSquare = value.round_once(make_reduction("sum", make_square))
ops.ReduceLogSum = value.round_once(make_reduction("sum", nil, make_log))

-- Returns an operator that applies f to booleans converted to int32, and to other types directly.
local function accept_booleans(f)
  return function(n, x, axes)
    if x.dtype ~= "bool" or x:is_empty() then
      return f(n, x, axes)
    end
    return f(n, x:cast("int32"), axes):cast("bool")
  end
end

ops.ReduceMax = accept_booleans(make_reduction("max"))
ops.ReduceMin = accept_booleans(make_reduction("min"))

-- Computes log(sum(exp(x))). The largest element is subtracted first, so that nothing overflows.
ops.ReduceLogSumExp = value.round_once(function(n, x, axes)
  local list, keep = list_reduced_axes(n, x, axes), n:flag("keepdims", true)
  if x:is_empty() then
    return make_log(reduce_axes("sum", x, list, keep))
  end
  local top = reduce_axes("max", x, list, true)
  top = value.where(top:map("abs"):equal(HUGE), value.scalar(0, top.dtype), top)
  local y = make_log(reduce_axes("sum", (x - top):map("exp"), list, true)) + top
  if keep then
    return y
  end
  return reduce_axes("sum", y, list, false)
end)


-- Returns an operator for the position of the largest or smallest element along an axis.
local function make_arg_operator(name)
  return function(n, x)
    local axis = n:axis(0, #x.shape)
    local last = n:flag("select_last_index")
    local y = last and op("reverse", { x }, { axis = { axis } }) or x
    y = op(name, { y }, { axis = axis, keepdims = true, dtype = "int64" })
    if last then
      y = -y + (n:sizes(x, "the input")[axis + 1] - 1)
    end
    return n:flag("keepdims", true) and y or y:squeeze(axis)
  end
end

ops.ArgMax, ops.ArgMin = make_arg_operator("argmax"), make_arg_operator("argmin")


-- Returns f(x, axis) for the axis of the node; before opset 13, f gets an array in which all axes
-- from that one on are joined.
local function apply_along_axis(n, x, default, f)
  if n.opset >= 13 then
    return f(x, n:axis(-1, math.max(#x.shape, 1)))
  end
  local axis = n:int("axis", default)
  if axis < -#x.shape or axis > #x.shape then
    value.damaged("axis %d of %d", axis, #x.shape)
  end
  axis = axis < 0 and axis + #x.shape or axis
  if axis == #x.shape - 1 then
    return f(x, axis)
  end
  local shape = n:sizes(x, "the input")
  local rows = value.product(tables.part(shape, 1, axis))
  local y = f(x:reshape{ rows, value.product(shape) / rows }, 1)
  return y:reshape(shape)
end


local function make_softmax(name)
  return function(n, x)
    return apply_along_axis(n, x, 1, function(y, axis) return y:map(name, {}, { axis = axis }) end)
  end
end

ops.Softmax, ops.LogSoftmax = make_softmax("softmax"), make_softmax("log_softmax")

function ops.Hardmax(n, x)
  if #x.shape == 0 then
    return ops.Hardmax(n, x:reshape{ 1 }):reshape{}
  end
  return apply_along_axis(n, x, 1, function(y, axis)
    local top = op("argmax", { y }, { axis = axis, keepdims = true, dtype = "int64" })
    local shape = {}
    for i = 1, #y.shape do
      shape[i] = i == axis + 1 and n:sizes(y, "the input")[i] or 1
    end
    local counted = value.counted_along(shape, axis, "int64")
    return value.binary("equal", top, counted):cast(x.dtype)
  end)
end

ops.LpNormalization = value.round_once(function(n, x)
  local axes, p = { n:axis(-1, #x.shape) }, n:int("p", 2)
  local size = p == 1 and x:map("abs"):reduce("sum", axes, true)
    or make_sqrt((x * x):reduce("sum", axes, true))
  local zero = value.scalar(0, x.dtype)
  return value.where(size:equal(0), zero, x / size)
end)

ops.MeanVarianceNormalization = value.round_once(function(n, x)
  local axes = n:axes_of(n:list("axes", { 0, 2, 3 }), #x.shape)
  local centred = x - x:reduce("mean", axes, true)
  return centred / (make_sqrt((centred * centred):reduce("mean", axes, true)) + 1e-9)
end)


-- Products ----------------------------------------------------------------------------------------

-- Returns the matrix product as ONNX and NumPy define it: a vector on the left is a row, one on the
-- right a column.
local function multiply_matrices(a, b)
  if #a.shape == 0 or #b.shape == 0 then
    value.damaged("a product of scalars")
  end
  local left, right = #a.shape == 1, #b.shape == 1
  a = left and a:unsqueeze(0) or a
  b = right and b:unsqueeze(1) or b
  local y
  if b.transposed and a.entry then
    y = op("FullyConnected", { a, b.transposed }, { num_hidden = b.shape[2], no_bias = true,
      flatten = false })
  elseif #b.shape == 2 and #a.shape > 2 then
    y = op("dot", { a, b })
  else
    y = value.batch_dot(a, b)
  end
  y = left and y:squeeze(#y.shape - 2) or y
  return right and y:squeeze(#y.shape - 1) or y
end

value.matmul = multiply_matrices

-- Returns the matrix product of integers, computed in float64.
local function multiply_integers(a, b)
  return multiply_matrices(a:cast("float64"), b:cast("float64")):cast(a.dtype)
end

function ops.MatMul(_, a, b)
  if REAL[a.dtype] then
    return multiply_matrices(a, b)
  end
  return multiply_integers(a, b)
end

function ops.Gemm(n, a, b, c)
  local alpha, beta = n:float("alpha", 1), n:float("beta", 1)
  local ta, tb = n:flag("transA"), n:flag("transB")
  if #a.shape ~= 2 or #b.shape ~= 2 then
    value.damaged("matrices of %d and %d dimensions", #a.shape, #b.shape)
  end
  local dtype = a.dtype
  if not REAL[dtype] then
    a, b, c = a:cast("float64"), b:cast("float64"), c and c:cast("float64")
  end
  local hidden = b.shape[tb and 1 or 2]
  local plain = c and alpha == 1 and beta == 1 and #c.shape == 1 and c.shape[1] == hidden
  local weight = b:is_constant() and alpha == 1 and hidden > 0 and (tb and b or b:transpose{ 1, 0 })
  -- a large matrix stays in its file: no transposed copy is made
  local linear = weight and not (weight.make and a.entry)
  local y
  if linear then
    a = ta and a:transpose{ 1, 0 } or a
    y = op("FullyConnected", { a, weight, plain and c or nil },
      { num_hidden = hidden, no_bias = not plain, flatten = false })
  else
    y = op("dot", { a, b }, { transpose_a = ta, transpose_b = tb })
    y = alpha ~= 1 and y * alpha or y
  end
  if c and not (plain and linear) and beta ~= 0 then
    y = y + (beta ~= 1 and c * beta or c)
  end
  return y:cast(dtype)
end

function ops.Det(_, x)
  local lead = tables.part(x.shape, 1, #x.shape - 2)
  return op("_linalg_det", { x }):reshape(lead)
end

return ops
