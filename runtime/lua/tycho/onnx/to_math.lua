--- Conversion of operators to ONNX: arithmetic, comparisons, reductions, products (not for users).
--
-- A converter is called with the exporter (onnx/exporter.lua) and a description of the node: `p`
-- (parameters), `inputs` (names), `shapes` and `dtypes` of the inputs, `out` (shape and dtype of
-- each output). It returns the names of the outputs.
--
-- @module tycho.onnx.to_math

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tables = require "tycho.core.tables"
local types = require "tycho.core.types"

local to = {}

local PI = math.pi


-- Element by element ------------------------------------------------------------------------------

local UNARY = {
  sigmoid = "Sigmoid", tanh = "Tanh", softsign = "Softsign", exp = "Exp",
  log = "Log", sqrt = "Sqrt", abs = "Abs", negative = "Neg", sign = "Sign", ceil = "Ceil",
  floor = "Floor",
  sin = "Sin", cos = "Cos", tan = "Tan", arcsin = "Asin", arccos = "Acos", arctan = "Atan",
  sinh = "Sinh", cosh = "Cosh", arcsinh = "Asinh", arccosh = "Acosh", arctanh = "Atanh",
  erf = "Erf", reciprocal = "Reciprocal", _copy = "Identity", BlockGrad = "Identity",
  make_loss = "Identity", MakeLoss = "Identity", _contrib_round_half_even = "Round",
}
for name, op in pairs(UNARY) do
  to[name] = function(e, c) return e:emit(op, { c.inputs[1] }) end
end

-- Emits x times a number.
local function emit_scaled(e, x, factor, dtype)
  return e:emit("Mul", { x, e:number(factor, dtype) })
end

-- Emits x plus a number.
local function emit_sum(e, x, term, dtype) return e:emit("Add", { x, e:number(term, dtype) }) end

-- Returns a converter of an operator of one input: calls f(exporter, input, its dtype, node).
local function make_unary(f)
  return function(e, c) return f(e, c.inputs[1], c.dtypes[1], c) end
end

to.square = make_unary(function(e, x) return e:emit("Mul", { x, x }) end)
to.rsqrt = make_unary(function(e, x) return e:emit("Reciprocal", { e:emit("Sqrt", { x }) }) end)
to.log10 = make_unary(function(e, x, t)
  return emit_scaled(e, e:emit("Log", { x }), 1 / math.log(10), t)
end)
to.log2 = make_unary(function(e, x, t)
  return emit_scaled(e, e:emit("Log", { x }), 1 / math.log(2), t)
end)
to.log1p = make_unary(function(e, x, t) return e:emit("Log", { emit_sum(e, x, 1, t) }) end)
to.expm1 = make_unary(function(e, x, t) return emit_sum(e, e:emit("Exp", { x }), -1, t) end)
to.degrees = make_unary(function(e, x, t) return emit_scaled(e, x, 180 / PI, t) end)
to.radians = make_unary(function(e, x, t) return emit_scaled(e, x, PI / 180, t) end)

-- Returns a converter of an odd function: the sign of x times f of its absolute value.
local function make_odd(f)
  return make_unary(function(e, x, t)
    return e:emit("Mul", { e:emit("Sign", { x }), f(e, e:emit("Abs", { x }), t) })
  end)
end

local function emit_cube_root(e, x, t) return e:emit("Pow", { x, e:number(1 / 3, t) }) end

to.round = make_odd(function(e, x, t) return e:emit("Floor", { emit_sum(e, x, 0.5, t) }) end)
to.trunc = make_odd(function(e, x) return e:emit("Floor", { x }) end)
to.fix = to.trunc
to.cbrt = make_odd(emit_cube_root)
to.rcbrt = make_odd(function(e, x, t) return e:emit("Reciprocal", { emit_cube_root(e, x, t) }) end)
to.rint = make_unary(function(e, x, t) return e:emit("Ceil", { emit_sum(e, x, -0.5, t) }) end)

local REAL = types.REAL

for _, name in ipairs{ "ceil", "floor", "round", "trunc", "fix", "rint" } do
  local f = to[name]
  to[name] = function(e, c)
    return REAL[c.dtypes[1]] and f(e, c) or e:emit("Identity", { c.inputs[1] })
  end
end

function to.relu(e, c)
  local x, dtype = c.inputs[1], c.dtypes[1]
  return REAL[dtype] and e:emit("Relu", { x }) or e:emit("Max", { x, e:number(0, dtype) })
end

function to.hard_sigmoid(e, c)
  return e:emit("HardSigmoid", { c.inputs[1] }, { alpha = e.float(c.p.alpha),
    beta = e.float(c.p.beta) })
end

function to.clip(e, c)
  local t = c.dtypes[1]
  local low, high = e:scalar(c.p.a_min, t), e:scalar(c.p.a_max, t)
  return e:emit("Clip", { c.inputs[1], low, high })
end

function to.smooth_l1(e, c)
  local x, t, s = c.inputs[1], c.dtypes[1], c.p.scalar * c.p.scalar
  local size = e:emit("Abs", { x })
  local inner = emit_scaled(e, e:emit("Mul", { x, x }), 0.5 * s, t)
  return e:emit("Where", { e:emit("Greater", { size, e:number(1 / s, t) }),
    emit_sum(e, size, -0.5 / s, t), inner })
end

function to._contrib_quadratic(e, c)
  local x, t, p = c.inputs[1], c.dtypes[1], c.p
  return emit_sum(e, e:emit("Mul", { x, emit_sum(e, emit_scaled(e, x, p.a, t), p.b, t) }), p.c, t)
end

function to._contrib_div_sqrt_dim(e, c)
  local shape = c.shapes[1]
  return emit_scaled(e, c.inputs[1], 1 / math.sqrt(e:known{ shape[#shape] }[1]), c.dtypes[1])
end


-- Returns a converter of a comparison, whose results are 0 and 1 in the type of its inputs.
local function make_test(op, negated)
  return function(e, a, b, dtype)
    local y = e:emit(op, { a, b })
    return e:cast(negated and e:emit("Not", { y }) or y, "bool", dtype)
  end
end

-- Returns a converter of a logical operator, for which inputs are true if they are not 0.
local function make_logic(op)
  return function(e, a, b, dtype)
    local y = e:emit(op, { e:cast(a, dtype, "bool"), e:cast(b, dtype, "bool") })
    return e:cast(y, "bool", dtype)
  end
end

-- Returns a converter to an operator of ONNX with the same meaning.
local function make_plain(op) return function(e, a, b) return e:emit(op, { a, b }) end end

-- Emits a modulo b with the sign of b.
local function emit_modulo(e, a, b, dtype)
  if dtype:find "^int" or dtype:find "^uint" then
    return e:emit("Mod", { a, b })
  end
  local whole = e:emit("Floor", { e:emit("Div", { a, b }) })
  return e:emit("Sub", { a, e:emit("Mul", { whole, b }) })
end

local function emit_hypotenuse(e, a, b)
  return e:emit("Sqrt", { e:emit("Add", { e:emit("Mul", { a, a }), e:emit("Mul", { b, b }) }) })
end

-- Operators of two arrays, of an array and a number, of a number and an array; function that emits
-- them.
local BINARY = {
  { "elemwise_add broadcast_add _grad_add", "_plus_scalar", "", make_plain "Add" },
  { "elemwise_sub broadcast_sub", "_minus_scalar", "_rminus_scalar", make_plain "Sub" },
  { "elemwise_mul broadcast_mul", "_mul_scalar", "", make_plain "Mul" },
  { "elemwise_div broadcast_div", "_div_scalar", "_rdiv_scalar", make_plain "Div" },
  { "_mod broadcast_mod", "_mod_scalar", "_rmod_scalar", emit_modulo },
  { "_power broadcast_power", "_power_scalar", "_rpower_scalar", make_plain "Pow" },
  { "_maximum broadcast_maximum", "_maximum_scalar", "", make_plain "Max" },
  { "_minimum broadcast_minimum", "_minimum_scalar", "", make_plain "Min" },
  { "_hypot broadcast_hypot", "_hypot_scalar", "", emit_hypotenuse },
  { "_equal broadcast_equal", "_equal_scalar", "", make_test "Equal" },
  { "_not_equal broadcast_not_equal", "_not_equal_scalar", "", make_test("Equal", true) },
  { "_greater broadcast_greater", "_greater_scalar", "", make_test "Greater" },
  { "_greater_equal broadcast_greater_equal", "_greater_equal_scalar", "",
    make_test "GreaterOrEqual" },
  { "_lesser broadcast_lesser", "_lesser_scalar", "", make_test "Less" },
  { "_lesser_equal broadcast_lesser_equal", "_lesser_equal_scalar", "", make_test "LessOrEqual" },
  { "_logical_and broadcast_logical_and", "_logical_and_scalar", "", make_logic "And" },
  { "_logical_or broadcast_logical_or", "_logical_or_scalar", "", make_logic "Or" },
  { "_logical_xor broadcast_logical_xor", "_logical_xor_scalar", "", make_logic "Xor" },
}

for _, row in ipairs(BINARY) do
  local f = row[4]
  for name in row[1]:gmatch("%S+") do
    to[name] = function(e, c) return f(e, c.inputs[1], c.inputs[2], c.dtypes[1]) end
  end
  -- Returns the input, the number and their common type for an operator with a number, which may
  -- change the type of an array of integers.
  local function add_number(e, c)
    local x = e:cast(c.inputs[1], c.dtypes[1], c.out[1].dtype)
    return x, e:number(c.p.scalar, c.out[1].dtype), c.out[1].dtype
  end
  to[row[2]] = function(e, c)
    local x, v, dtype = add_number(e, c)
    return f(e, x, v, dtype)
  end
  if row[3] ~= "" then
    to[row[3]] = function(e, c)
      local x, v, dtype = add_number(e, c)
      return f(e, v, x, dtype)
    end
  end
end

function to.logical_not(e, c)
  local zero = e:emit("Equal", { c.inputs[1], e:number(0, c.dtypes[1]) })
  return e:cast(zero, "bool", c.dtypes[1])
end

function to._npi_fmod(e, c) return e:emit("Mod", { c.inputs[1], c.inputs[2] }, { fmod = 1 }) end

function to.add_n(e, c)
  local list = {}
  for i = 1, c.count do
    list[i] = c.inputs[i]
  end
  if REAL[c.dtypes[1]] then
    return e:emit("Sum", list)
  end
  local y = list[1]                      -- Sum only supports floats
  for i = 2, #list do
    y = e:emit("Add", { y, list[i] })
  end
  return y
end

function to._identity_with_attr_like_rhs(_, c) return c.inputs[1] end

function to.Cast(e, c) return e:cast(c.inputs[1], c.dtypes[1], c.out[1].dtype) end

to.amp_cast = to.Cast

function to._npi_where(e, c)
  return e:emit("Where", { e:cast(c.inputs[1], c.dtypes[1], "bool"), c.inputs[2], c.inputs[3] })
end

function to.where(e, c)
  local condition, shape = c.inputs[1], c.shapes[1]
  local wide = tables.copied(shape)
  for i = #shape + 1, #c.shapes[2] do
    wide[i] = 1
  end
  condition = e:reshape(e:cast(condition, c.dtypes[1], "bool"), shape, wide)
  return e:emit("Where", { condition, c.inputs[2], c.inputs[3] })
end

-- Returns a converter of an array like the input, filled with a number.
local function make_like(number)
  return function(e, c)
    local zero = e:emit("Mul", { c.inputs[1], e:number(0, c.dtypes[1]) })
    return number == 0 and zero or e:emit("Add", { zero, e:number(number, c.dtypes[1]) })
  end
end

to.zeros_like, to.ones_like = make_like(0), make_like(1)


-- Reductions --------------------------------------------------------------------------------------

-- Returns the axes (from 0, ascending) that a reduction removes; `list`: axes of the call, which
-- may be negative.
local function list_axes(c, list)
  local rank, axes, set = #c.shapes[1], {}, {}
  for _, axis in ipairs(list or {}) do
    set[axis < 0 and axis + rank or axis] = true
  end
  for axis = 0, rank - 1 do
    if not list or #list == 0 or (set[axis] == true) ~= (c.p.exclude == true) then
      axes[#axes + 1] = axis
    end
  end
  return axes
end


-- Emits a reduction that keeps each reduced axis with one element. Axes are an input of ONNX's
-- operator from opset 18 on (for ReduceSum always), else an attribute. An empty list would mean all
-- axes in ONNX, so an axis of one element is added and reduced.
local function emit_reduction(e, op, x, axes)
  if #axes == 0 then
    local added = emit_reduction(e, op, e:emit("Unsqueeze", { x, e:ints{ 0 } }), { 0 })
    return e:emit("Squeeze", { added, e:ints{ 0 } })
  end
  if op == "ReduceSum" or e.opset >= 18 then
    return e:emit(op, { x, e:ints(axes) }, { keepdims = 1 })
  end
  return e:emit(op, { x }, { axes = axes, keepdims = 1 })
end


-- Returns the shape with size 1 in place of the reduced axes.
local function make_kept_shape(shape, axes)
  local copy = tables.copied(shape)
  for _, axis in ipairs(axes) do
    copy[axis + 1] = 1
  end
  return copy
end


-- Returns a converter of a reduction; before(exporter, input, dtype) and after(exporter, result)
-- may add nodes around it.
local function make_reduction(op, before, after)
  return function(e, c)
    local axis = c.p.axis
    local axes = list_axes(c, type(axis) == "number" and { axis } or axis)
    local x = before and before(e, c.inputs[1], c.dtypes[1]) or c.inputs[1]
    x = e:cast(x, c.dtypes[1], c.out[1].dtype)           -- sums of bool are integers
    local y = emit_reduction(e, op, x, axes)
    y = after and after(e, y) or y
    return e:reshape(y, make_kept_shape(c.shapes[1], axes), c.out[1].shape)
  end
end

-- Returns a function that emits its input with a number in place of NaN.
local function make_nan_filter(number)
  return function(e, x, dtype)
    if not REAL[dtype] then
      return x
    end
    return e:emit("Where", { e:emit("IsNaN", { x }), e:number(number, dtype), x })
  end
end

local function emit_square(e, x) return e:emit("Mul", { x, x }) end

to.sum = make_reduction "ReduceSum"
to.prod = make_reduction "ReduceProd"
to.max, to.min = make_reduction "ReduceMax", make_reduction "ReduceMin"
to.nansum = make_reduction("ReduceSum", make_nan_filter(0))
to.nanprod = make_reduction("ReduceProd", make_nan_filter(1))
to._square_sum = make_reduction("ReduceSum", emit_square)

local make_mean = make_reduction "ReduceMean"

-- Emits a mean; in a small type, the mean of a sum that wraps around in that type.
function to.mean(e, c)
  if not c.narrow then
    return make_mean(e, c)
  end
  local function divide(_, sum)
    local count = e:emit("Div", { e:emit("Size", { c.inputs[1] }), e:emit("Size", { sum }) })
    sum = e:cast(e:cast(sum, "int32", c.narrow), c.narrow, "int32")
    return e:emit("Div", { sum, e:cast(count, "int64", "int32") })
  end
  return make_reduction("ReduceSum", nil, divide)(e, c)
end

function to.norm(e, c)
  if c.p.ord == 1 then
    return make_reduction("ReduceL1")(e, c)
  end
  return make_reduction("ReduceL2")(e, c)
end

-- Returns a converter of argmax or argmin; without an axis, of the flattened input.
local function make_arg(op)
  return function(e, c)
    local x, shape, axis = c.inputs[1], c.shapes[1], c.p.axis
    if axis == nil then
      x, shape, axis = e:emit("Reshape", { x, e:ints{ -1 } }), { 0 }, 0
    end
    local y = e:emit(op, { x }, { axis = axis, keepdims = 1 })
    y = e:cast(y, "int64", c.out[1].dtype)
    local kept = make_kept_shape(shape, { axis < 0 and axis + #shape or axis })
    return e:reshape(y, kept, c.out[1].shape)
  end
end

to.argmax, to.argmin = make_arg "ArgMax", make_arg "ArgMin"

function to.argmax_channel(e, c)
  local y = e:emit("ArgMax", { c.inputs[1] }, { axis = 1, keepdims = 0 })
  return e:cast(y, "int64", c.out[1].dtype)
end

function to._np_cumsum(e, c)
  local x, axis = c.inputs[1], c.p.axis
  if axis == nil then
    x, axis = e:emit("Reshape", { x, e:ints{ -1 } }), 0
  end
  x = e:cast(x, c.dtypes[1], c.out[1].dtype)
  return e:emit("CumSum", { x, e:scalar(axis, "int64") })
end


-- Products ----------------------------------------------------------------------------------------

-- Emits x, which has `rank` axes, with its last two axes exchanged.
local function swap_last_axes(e, x, rank)
  local axes = {}
  for i = 1, rank do
    axes[i] = i - 1
  end
  axes[rank], axes[rank - 1] = rank - 2, rank - 1
  return e:emit("Transpose", { x }, { perm = axes })
end

-- Emits the product of matrices of each sample, with the node's transposes and factor.
local function emit_product(e, c)
  local p, rank = c.p, #c.shapes[1]
  local a = p.transpose_a and swap_last_axes(e, c.inputs[1], rank) or c.inputs[1]
  local b = p.transpose_b and swap_last_axes(e, c.inputs[2], #c.shapes[2]) or c.inputs[2]
  local y = e:emit("MatMul", { a, b })
  return (p.alpha or 1) ~= 1 and emit_scaled(e, y, p.alpha, c.dtypes[1]) or y
end

function to.batch_dot(e, c) return emit_product(e, c) end

function to.dot(e, c)
  local p, ra, rb = c.p, #c.shapes[1], #c.shapes[2]
  if p.transpose_a and ra > 2 or (p.transpose_b or rb > 1) and rb ~= 2 then
    e:refuse("arrays of %d and %d dimensions", ra, rb)
  elseif ra == 1 and rb == 1 then
    return e:reshape(e:emit("MatMul", { c.inputs[1], c.inputs[2] }), {}, { 1 })
  end
  return emit_product(e, c)
end

function to._linalg_gemm2(e, c)
  if c.p.axis ~= -2 then
    e:refuse("axis = %d", c.p.axis)
  end
  return emit_product(e, c)
end

function to._linalg_gemm(e, c)
  local y = to._linalg_gemm2(e, c)
  return e:emit("Add", { y, emit_scaled(e, c.inputs[3], c.p.beta, c.dtypes[1]) })
end

function to._linalg_det(e, c)
  local y = e:emit("Det", { c.inputs[1] })
  return #c.shapes[1] == 2 and e:reshape(y, {}, { 1 }) or y
end

return to
