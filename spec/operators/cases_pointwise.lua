--- What every element-wise operator makes of numbers, zeros, infinities and NaN: one formula per operator or family.
--
-- unary[name](a), binary[name](a, b), scalar[name](a, s): results in double precision. A binary formula stands for the
-- operator on equal shapes and for its broadcasting counterpart. Formulas follow C's mathematics library unless a comment says
-- otherwise. Functions that Lua lacks are given at the points of GRID.

local cases = {}

local INF, NAN = math.huge, 0 / 0

--- Where formulas are compared: exact in every floating type.
cases.grid = {-INF, -2.5, -1, -0.5, -0.0, 0, 0.5, 1, 2.5, INF, NAN}

local function is_nan(a) return a ~= a end
local function bit(condition) return condition and 1 or 0 end
local function away(a) return a < 0 and math.ceil(a - 0.5) or math.floor(a + 0.5) end
local function trunc(a) return a < 0 and math.ceil(a) or math.floor(a) end
local function sign(a) return a > 0 and 1 or a < 0 and -1 or 0 end         -- of NaN: 0
local function cbrt(a) return a == 0 and a or (a < 0 and -1 or 1) * math.abs(a) ^ (1 / 3) end
local function log1p(a)                                                 -- Kahan's
  local u = 1 + a
  return u == 1 and a or u == INF and INF or math.log(u) * (a / (u - 1))
end
local function arcsinh(a) return math.abs(a) == INF and a or a == 0 and a or sign(a) * math.log(math.abs(a) + math.sqrt(a * a + 1)) end

-- Returns a function that reads a table from a to f(a), NaN where nothing is given.
local function at(points)
  return function(a)
    if a == 0 and 1 / a < 0 and points["-0"] then return points["-0"] end
    return points[a] or NAN
  end
end

local erf = at{[-INF] = -1, [-2.5] = -0.99959304798255505, [-1] = -0.84270079294971489, [-0.5] = -0.52049987781304652,
  [0] = 0, [0.5] = 0.52049987781304652, [1] = 0.84270079294971489, [2.5] = 0.99959304798255505, [INF] = 1}
local gamma = at{[-2.5] = -0.94530872048294190, [-0.5] = -3.5449077018110318, ["-0"] = -INF, [0] = INF, [0.5] = 1.7724538509055161,
  [1] = 1, [2.5] = 1.3293403881791370, [INF] = INF}
local gammaln = at{[-INF] = INF, [-2.5] = -0.056243716497674050, [-1] = INF, [-0.5] = 1.2655121234846454, [0] = INF,
  [0.5] = 0.57236494292470008, [1] = 0, [2.5] = 0.28468287047291916, [INF] = INF}

cases.unary = {
  relu = function(a) return is_nan(a) and a or a > 0 and a or 0 end,
  sigmoid = function(a) return 1 / (1 + math.exp(-a)) end,
  softsign = function(a) return a / (1 + math.abs(a)) end,
  negative = function(a) return -a end,
  abs = math.abs,
  sign = sign,
  round = away,
  rint = function(a) return a - math.floor(a) <= 0.5 and math.floor(a) or math.ceil(a) end,   -- halves down
  _contrib_round_half_even = function(a)
    local r = away(a)
    return math.abs(a) < INF and math.abs(r - a) == 0.5 and r % 2 ~= 0 and r - sign(a) or r
  end,
  ceil = math.ceil, floor = math.floor, trunc = trunc, fix = trunc,
  square = function(a) return a * a end,
  sqrt = math.sqrt,
  rsqrt = function(a) return 1 / math.sqrt(a) end,
  cbrt = cbrt,
  rcbrt = function(a) return 1 / cbrt(a) end,
  reciprocal = function(a) return 1 / a end,
  exp = math.exp,
  log = math.log,
  log10 = math.log10,
  log2 = function(a) return math.log(a) / math.log(2) end,
  log1p = log1p,
  expm1 = function(a) return math.exp(a) - 1 end,
  sin = math.sin, cos = math.cos, tan = math.tan,
  arcsin = math.asin, arccos = math.acos, arctan = math.atan,
  degrees = math.deg, radians = math.rad,
  sinh = math.sinh, cosh = math.cosh, tanh = math.tanh,
  arcsinh = arcsinh,
  arccosh = function(a) return a < 1 and NAN or math.log(a + math.sqrt(a * a - 1)) end,
  arctanh = function(a) return math.abs(a) > 1 and NAN or 0.5 * (log1p(a) - log1p(-a)) end,
  gamma = gamma, gammaln = gammaln, erf = erf,
  erfinv = at{[-1] = -INF, [-0.5] = -0.47693627620446988, [0] = 0, [0.5] = 0.47693627620446988, [1] = INF},
  logical_not = function(a) return bit(a == 0) end,
  _copy = function(a) return a end, _copyto = function(a) return a end, _CrossDeviceCopy = function(a) return a end,
  BlockGrad = function(a) return a end,
  zeros_like = function() return 0 end, ones_like = function() return 1 end,
  _contrib_round_ste = away, _contrib_sign_ste = sign, _contrib_gradientmultiplier = function(a) return a end,
  Activation = function(a) return math.tanh(a) end,
  hard_sigmoid = function(a) return is_nan(a) and a or math.max(0, math.min(1, 0.25 * a + 0.5)) end,
  smooth_l1 = function(a) return math.abs(a) < 1 and 0.5 * a * a or math.abs(a) - 0.5 end,
  clip = function(a) return is_nan(a) and a or math.max(-1, math.min(1, a)) end,
  _contrib_quadratic = function(a) return 2 * a * a - a + 1 end,
  make_loss = function(a) return a end, MakeLoss = function(a) return a end,
}

--- Parameters of unary operators that need some.
cases.params = {
  Activation = {act_type = "tanh"}, clip = {a_min = -1, a_max = 1}, _contrib_quadratic = {a = 2, b = -1, c = 1},
  _contrib_gradientmultiplier = {scalar = -2}, hard_sigmoid = {alpha = 0.25},
}

local function power(a, b) return (a == 1 or b == 0) and 1 or a ^ b end
local function greater(a, b) return (is_nan(a) or is_nan(b)) and NAN or a > b and a or b end
local function lesser(a, b) return (is_nan(a) or is_nan(b)) and NAN or a < b and a or b end
local function mod(a, b)                                                -- the divisor's sign; by 0: 0
  if b == 0 then return 0 end
  if math.abs(b) ~= INF then return a - b * math.floor(a / b) end
  return (is_nan(a) or math.abs(a) == INF) and NAN or a * b < 0 and b or a
end
local function fmod(a, b)                                               -- the dividend's sign; by 0: NaN
  return (math.abs(a) == INF or b == 0 or is_nan(a) or is_nan(b)) and NAN or math.fmod(a, b)
end
local function hypot(a, b) return (math.abs(a) == INF or math.abs(b) == INF) and INF or math.sqrt(a * a + b * b) end

local COMPARISONS = {
  equal = function(a, b) return bit(a == b) end,
  not_equal = function(a, b) return bit(a ~= b) end,
  greater = function(a, b) return bit(a > b) end,
  greater_equal = function(a, b) return bit(a >= b) end,
  lesser = function(a, b) return bit(a < b) end,
  lesser_equal = function(a, b) return bit(a <= b) end,
  logical_and = function(a, b) return bit(a ~= 0 and b ~= 0) end,       -- NaN is not zero
  logical_or = function(a, b) return bit(a ~= 0 or b ~= 0) end,
  logical_xor = function(a, b) return bit((a ~= 0) ~= (b ~= 0)) end,
}

local ARITHMETIC = {
  add = function(a, b) return a + b end,
  sub = function(a, b) return a - b end,
  mul = function(a, b) return a * b end,
  div = function(a, b) return a / b end,
}

cases.binary, cases.scalar = {
  _mod = mod, _power = power, _hypot = hypot, _maximum = greater, _minimum = lesser,
  broadcast_mod = mod, _npi_fmod = fmod, broadcast_power = power, broadcast_hypot = hypot,
    broadcast_maximum = greater, broadcast_minimum = lesser,
  _grad_add = ARITHMETIC.add, add_n = ARITHMETIC.add, _scatter_elemwise_div = ARITHMETIC.div,
  _identity_with_attr_like_rhs = function(a) return a end,
}, {
  _plus_scalar = ARITHMETIC.add, _minus_scalar = ARITHMETIC.sub, _mul_scalar = ARITHMETIC.mul, _div_scalar = ARITHMETIC.div,
  _rminus_scalar = function(a, s) return s - a end,
  _rdiv_scalar = function(a, s) return s / a end,
  _mod_scalar = mod,
  _rmod_scalar = function(a, s) return mod(s, a) end,
  _power_scalar = power,
  _rpower_scalar = function(a, s) return power(s, a) end,
  _maximum_scalar = greater, _minimum_scalar = lesser, _hypot_scalar = hypot,
  _scatter_plus_scalar = ARITHMETIC.add, _scatter_minus_scalar = ARITHMETIC.sub,
}

for name, f in pairs(COMPARISONS) do
  cases.binary["_" .. name], cases.binary["broadcast_" .. name], cases.scalar["_" .. name .. "_scalar"] = f, f, f
end
for name, f in pairs(ARITHMETIC) do
  cases.binary["elemwise_" .. name], cases.binary["broadcast_" .. name] = f, f
end

return cases
