--- Operators as ONNX has them: arithmetic, comparisons, reductions, products (not for users).
--
-- A function is given the exporter (onnx/exporter.lua) and the node: `p` (parameters), `inputs`
-- (names), `shapes` and `dtypes` of the inputs, `out` (shape and dtype of each output). It returns
-- the names of the outputs.
--
-- @module tycho.onnx.to_math

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tables = require "tycho.core.tables"

local to = {}

local PI = math.pi


-- Element by element ------------------------------------------------------------------------------

local UNARY = {
  relu = "Relu", sigmoid = "Sigmoid", tanh = "Tanh", softsign = "Softsign", exp = "Exp", log = "Log",
  sqrt = "Sqrt", abs = "Abs", negative = "Neg", sign = "Sign", ceil = "Ceil", floor = "Floor",
  sin = "Sin", cos = "Cos", tan = "Tan", arcsin = "Asin", arccos = "Acos", arctan = "Atan",
  sinh = "Sinh", cosh = "Cosh", arcsinh = "Asinh", arccosh = "Acosh", arctanh = "Atanh",
  erf = "Erf", reciprocal = "Reciprocal", _copy = "Identity", BlockGrad = "Identity",
  make_loss = "Identity", MakeLoss = "Identity", _contrib_round_half_even = "Round",
}
for name, op in pairs(UNARY) do
  to[name] = function(e, c) return e:emit(op, { c.inputs[1] }) end
end

-- Emits x times a number.
local function scaled(e, x, factor, dtype) return e:emit("Mul", { x, e:number(factor, dtype) }) end
local function plus(e, x, term, dtype) return e:emit("Add", { x, e:number(term, dtype) }) end

local function composed(f)
  return function(e, c) return f(e, c.inputs[1], c.dtypes[1], c) end
end

to.square = composed(function(e, x) return e:emit("Mul", { x, x }) end)
to.rsqrt = composed(function(e, x) return e:emit("Reciprocal", { e:emit("Sqrt", { x }) }) end)
to.log10 = composed(function(e, x, t) return scaled(e, e:emit("Log", { x }), 1 / math.log(10),
  t) end)
to.log2 = composed(function(e, x, t) return scaled(e, e:emit("Log", { x }), 1 / math.log(2), t) end)
to.log1p = composed(function(e, x, t) return e:emit("Log", { plus(e, x, 1, t) }) end)
to.expm1 = composed(function(e, x, t) return plus(e, e:emit("Exp", { x }), -1, t) end)
to.degrees = composed(function(e, x, t) return scaled(e, x, 180 / PI, t) end)
to.radians = composed(function(e, x, t) return scaled(e, x, PI / 180, t) end)

-- Returns a converter of the sign of x times f of its absolute value.
local function odd(f)
  return composed(function(e, x, t)
    return e:emit("Mul", { e:emit("Sign", { x }), f(e, e:emit("Abs", { x }), t) })
  end)
end

local function cube_root(e, x, t) return e:emit("Pow", { x, e:number(1 / 3, t) }) end

to.round = odd(function(e, x, t) return e:emit("Floor", { plus(e, x, 0.5, t) }) end)
to.trunc = odd(function(e, x) return e:emit("Floor", { x }) end)
to.fix = to.trunc
to.cbrt = odd(cube_root)
to.rcbrt = odd(function(e, x, t) return e:emit("Reciprocal", { cube_root(e, x, t) }) end)
to.rint = composed(function(e, x, t) return e:emit("Ceil", { plus(e, x, -0.5, t) }) end)

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
  local inner = scaled(e, e:emit("Mul", { x, x }), 0.5 * s, t)
  return e:emit("Where", { e:emit("Greater", { size, e:number(1 / s, t) }),
    plus(e, size, -0.5 / s, t), inner })
end

function to._contrib_quadratic(e, c)
  local x, t, p = c.inputs[1], c.dtypes[1], c.p
  return plus(e, e:emit("Mul", { x, plus(e, scaled(e, x, p.a, t), p.b, t) }), p.c, t)
end

function to._contrib_div_sqrt_dim(e, c)
  local shape = c.shapes[1]
  return scaled(e, c.inputs[1], 1 / math.sqrt(e:known{ shape[#shape] }[1]), c.dtypes[1])
end


-- Returns a converter of a comparison, which gives 0 and 1 in the type of its inputs.
local function test(op, negated)
  return function(e, a, b, dtype)
    local y = e:emit(op, { a, b })
    return e:cast(negated and e:emit("Not", { y }) or y, "bool", dtype)
  end
end

local function logic(op)
  return function(e, a, b, dtype)
    local y = e:emit(op, { e:cast(a, dtype, "bool"), e:cast(b, dtype, "bool") })
    return e:cast(y, "bool", dtype)
  end
end

local function plain(op) return function(e, a, b) return e:emit(op, { a, b }) end end

local function modulo(e, a, b, dtype)
  if dtype:find "^int" or dtype:find "^uint" then
    return e:emit("Mod", { a, b })
  end
  local whole = e:emit("Floor", { e:emit("Div", { a, b }) })
  return e:emit("Sub", { a, e:emit("Mul", { whole, b }) })
end

local function hypotenuse(e, a, b)
  return e:emit("Sqrt", { e:emit("Add", { e:emit("Mul", { a, a }), e:emit("Mul", { b, b }) }) })
end

-- Operators of two arrays, of an array and a number, of a number and an array; what they do.
local BINARY = {
  { "elemwise_add broadcast_add _grad_add", "_plus_scalar", "", plain "Add" },
  { "elemwise_sub broadcast_sub", "_minus_scalar", "_rminus_scalar", plain "Sub" },
  { "elemwise_mul broadcast_mul", "_mul_scalar", "", plain "Mul" },
  { "elemwise_div broadcast_div", "_div_scalar", "_rdiv_scalar", plain "Div" },
  { "_mod broadcast_mod", "_mod_scalar", "_rmod_scalar", modulo },
  { "_power broadcast_power", "_power_scalar", "_rpower_scalar", plain "Pow" },
  { "_maximum broadcast_maximum", "_maximum_scalar", "", plain "Max" },
  { "_minimum broadcast_minimum", "_minimum_scalar", "", plain "Min" },
  { "_hypot broadcast_hypot", "_hypot_scalar", "", hypotenuse },
  { "_equal broadcast_equal", "_equal_scalar", "", test "Equal" },
  { "_not_equal broadcast_not_equal", "_not_equal_scalar", "", test("Equal", true) },
  { "_greater broadcast_greater", "_greater_scalar", "", test "Greater" },
  { "_greater_equal broadcast_greater_equal", "_greater_equal_scalar", "", test "GreaterOrEqual" },
  { "_lesser broadcast_lesser", "_lesser_scalar", "", test "Less" },
  { "_lesser_equal broadcast_lesser_equal", "_lesser_equal_scalar", "", test "LessOrEqual" },
  { "_logical_and broadcast_logical_and", "_logical_and_scalar", "", logic "And" },
  { "_logical_or broadcast_logical_or", "_logical_or_scalar", "", logic "Or" },
  { "_logical_xor broadcast_logical_xor", "_logical_xor_scalar", "", logic "Xor" },
}

for _, row in ipairs(BINARY) do
  local f = row[4]
  for name in row[1]:gmatch("%S+") do
    to[name] = function(e, c) return f(e, c.inputs[1], c.inputs[2], c.dtypes[1]) end
  end
  -- Returns the input, the number and their type for an operator with a number, which may turn an
  -- array of integers into another type.
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
  return e:emit("Sum", list)
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

local function like(number)
  return function(e, c)
    local zero = e:emit("Mul", { c.inputs[1], e:number(0, c.dtypes[1]) })
    return number == 0 and zero or e:emit("Add", { zero, e:number(number, c.dtypes[1]) })
  end
end

to.zeros_like, to.ones_like = like(0), like(1)


-- Reductions --------------------------------------------------------------------------------------

-- Returns the axes of a reduction, from 0.
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


-- Emits a reduction with all axes kept; from opset 18 axes are an input.
local function reduced(e, op, x, axes)
  if op == "ReduceSum" or e.opset >= 18 then
    return e:emit(op, { x, e:ints(axes) }, { keepdims = 1 })
  end
  return e:emit(op, { x }, { axes = axes, keepdims = 1 })
end


-- Returns the shape with axes of one element in place of those that are reduced.
local function kept_shape(shape, axes)
  local copy = tables.copied(shape)
  for _, axis in ipairs(axes) do
    copy[axis + 1] = 1
  end
  return copy
end


local function reduction(op, before, after)
  return function(e, c)
    local axis = c.p.axis
    local axes = list_axes(c, type(axis) == "number" and { axis } or axis)
    local x = before and before(e, c.inputs[1], c.dtypes[1]) or c.inputs[1]
    local y = reduced(e, op, x, axes)
    y = after and after(e, y) or y
    return e:reshape(y, kept_shape(c.shapes[1], axes), c.out[1].shape)
  end
end

local function without_nan(number)
  return function(e, x, dtype)
    return e:emit("Where", { e:emit("IsNaN", { x }), e:number(number, dtype), x })
  end
end

local function squared(e, x) return e:emit("Mul", { x, x }) end

to.sum, to.mean, to.prod = reduction "ReduceSum", reduction "ReduceMean", reduction "ReduceProd"
to.max, to.min = reduction "ReduceMax", reduction "ReduceMin"
to.nansum, to.nanprod = reduction("ReduceSum", without_nan(0)), reduction("ReduceProd",
  without_nan(1))
to._square_sum = reduction("ReduceSum", squared)

function to.norm(e, c)
  if c.p.ord == 1 then
    return reduction("ReduceL1")(e, c)
  end
  return reduction("ReduceL2")(e, c)
end

local function arg(op)
  return function(e, c)
    local x, shape, axis = c.inputs[1], c.shapes[1], c.p.axis
    if axis == nil then
      x, shape, axis = e:emit("Reshape", { x, e:ints{ -1 } }), { 0 }, 0
    end
    local y = e:emit(op, { x }, { axis = axis, keepdims = 1 })
    y = e:cast(y, "int64", c.out[1].dtype)
    return e:reshape(y, kept_shape(shape, { axis < 0 and axis + #shape or axis }), c.out[1].shape)
  end
end

to.argmax, to.argmin = arg "ArgMax", arg "ArgMin"

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

-- Emits a transpose of the last two axes.
local function swapped(e, x, rank)
  local axes = {}
  for i = 1, rank do
    axes[i] = i - 1
  end
  axes[rank], axes[rank - 1] = rank - 2, rank - 1
  return e:emit("Transpose", { x }, { perm = axes })
end

local function product(e, c)
  local p, rank = c.p, #c.shapes[1]
  local a = p.transpose_a and swapped(e, c.inputs[1], rank) or c.inputs[1]
  local b = p.transpose_b and swapped(e, c.inputs[2], #c.shapes[2]) or c.inputs[2]
  local y = e:emit("MatMul", { a, b })
  return (p.alpha or 1) ~= 1 and scaled(e, y, p.alpha, c.dtypes[1]) or y
end

function to.batch_dot(e, c) return product(e, c) end

function to.dot(e, c)
  local p, ra, rb = c.p, #c.shapes[1], #c.shapes[2]
  if p.transpose_a and ra > 2 or (p.transpose_b or rb > 1) and rb ~= 2 then
    e:refuse("arrays of %d and %d dimensions", ra, rb)
  elseif ra == 1 and rb == 1 then
    return e:reshape(e:emit("MatMul", { c.inputs[1], c.inputs[2] }), {}, { 1 })
  end
  return product(e, c)
end

function to._linalg_gemm2(e, c)
  if c.p.axis ~= -2 then
    e:refuse("axis = %d", c.p.axis)
  end
  return product(e, c)
end

function to._linalg_gemm(e, c)
  local y = to._linalg_gemm2(e, c)
  return e:emit("Add", { y, scaled(e, c.inputs[3], c.p.beta, c.dtypes[1]) })
end

function to._linalg_det(e, c) return e:emit("Det", { c.inputs[1] }) end

return to
