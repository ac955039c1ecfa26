--- Arithmetic and comparison of arrays and numbers: `x + y`, `x:add_(y)`,
-- `x:eq(y)`, `ty.nd.maximum(x, y)`.
--
-- Two arrays broadcast. Their element types must be equal, and the result has that type, also for
-- comparisons (1 and 0). A number is converted to the array's element type; bool arrays become
-- int64 first. Two numbers give a number.
--
-- @module tycho.ndarray.math

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local registry = require "tycho.op.registry"
local values = require "tycho.core.values"

local NDArray, is_array = class.NDArray, class.is_array

local math_of = {}

local BOOL, INT64 = args.DTYPES.bool, args.DTYPES.int64


local function truth(v)
  return v and 1 or 0
end

--                  two arrays                 array, number            number, array
local ROWS = {
  add           = { "broadcast_add",           "_plus_scalar",          "_plus_scalar" },
  subtract      = { "broadcast_sub",           "_minus_scalar",         "_rminus_scalar" },
  multiply      = { "broadcast_mul",           "_mul_scalar",           "_mul_scalar" },
  divide        = { "broadcast_div",           "_div_scalar",           "_rdiv_scalar" },
  modulo        = { "broadcast_mod",           "_mod_scalar",           "_rmod_scalar" },
  power         = { "broadcast_power",         "_power_scalar",         "_rpower_scalar" },
  maximum       = { "broadcast_maximum",       "_maximum_scalar",       "_maximum_scalar" },
  minimum       = { "broadcast_minimum",       "_minimum_scalar",       "_minimum_scalar" },
  hypot         = { "broadcast_hypot",         "_hypot_scalar",         "_hypot_scalar" },
  equal         = { "broadcast_equal",         "_equal_scalar",         "_equal_scalar" },
  not_equal     = { "broadcast_not_equal",     "_not_equal_scalar",     "_not_equal_scalar" },
  greater       = { "broadcast_greater",       "_greater_scalar",       "_lesser_scalar" },
  greater_equal = { "broadcast_greater_equal", "_greater_equal_scalar", "_lesser_equal_scalar" },
  lesser        = { "broadcast_lesser",        "_lesser_scalar",        "_greater_scalar" },
  lesser_equal  = { "broadcast_lesser_equal",  "_lesser_equal_scalar",  "_greater_equal_scalar" },
  logical_and   = { "broadcast_logical_and",   "_logical_and_scalar",   "_logical_and_scalar" },
  logical_or    = { "broadcast_logical_or",    "_logical_or_scalar",    "_logical_or_scalar" },
  logical_xor   = { "broadcast_logical_xor",   "_logical_xor_scalar",   "_logical_xor_scalar" },
}

-- functions for two numbers
local NUMBERS = {
  add           = function(a, b) return a + b end,
  subtract      = function(a, b) return a - b end,
  multiply      = function(a, b) return a * b end,
  divide        = function(a, b) return a / b end,
  modulo        = function(a, b) return a % b end,
  power         = function(a, b) return a ^ b end,
  maximum       = math.max,
  minimum       = math.min,
  hypot         = function(a, b) return math.sqrt(a * a + b * b) end,
  equal         = function(a, b) return truth(a == b) end,
  not_equal     = function(a, b) return truth(a ~= b) end,
  greater       = function(a, b) return truth(a > b) end,
  greater_equal = function(a, b) return truth(a >= b) end,
  lesser        = function(a, b) return truth(a < b) end,
  lesser_equal  = function(a, b) return truth(a <= b) end,
  logical_and   = function(a, b) return truth(a ~= 0 and b ~= 0) end,
  logical_or    = function(a, b) return truth(a ~= 0 or b ~= 0) end,
  logical_xor   = function(a, b) return truth((a ~= 0) ~= (b ~= 0)) end,
}

for name, f in pairs(NUMBERS) do
  ROWS[name].numbers = f
end
ROWS.true_divide, ROWS.pow = ROWS.divide, ROWS.power


local function with_number(op, func, x, v, out)
  if x._dtype == BOOL then
    x = call.copy(class.new(x._shape, INT64, x._device, func), x, func)
  end
  return call.scalar(op, func, x, v, out)
end


local function bad_operand(func, a, b)
  local other = not is_array(a) and type(a) ~= "number" and a or b
  Error.raise{ code = "type", func = func, expected = "an NDArray or a number",
    got = Error.kind(other), message = "bad operand" .. registry.mixed_hint(other) }
end


local function combine(row, func, a, b, out)
  if type(b) == "number" then
    if type(a) == "number" then
      return row.numbers(a, b)
    elseif is_array(a) then
      return with_number(row[2], func, a, b, out)
    end
  elseif is_array(b) then
    if is_array(a) then
      return call.binary(row[1], func, a, b, out)
    elseif type(a) == "number" then
      return with_number(row[3], func, b, a, out)
    end
  end
  bad_operand(func, a, b)
end


-- Operators ---------------------------------------------------------------------------------------

local INFIX = {
  __add = "add", __sub = "subtract", __mul = "multiply", __div = "divide", __mod = "modulo",
  __pow = "power",
}

for event, name in pairs(INFIX) do
  local row, func = ROWS[name], "NDArray:" .. event
  NDArray[event] = function(a, b)
    return combine(row, func, a, b)
  end
end


function NDArray.__unm(a)
  return call.unary("negative", "NDArray:__unm", a)
end


local function refuse_order(a, b)
  Error.raise{ code = "unsupported", func = "NDArray", got = Error.kind(is_array(a) and b or a),
    message = "'<' and '<=' cannot compare arrays; use x:lt(y), x:le(y), x:gt(y), x:ge(y)" }
end

NDArray.__lt, NDArray.__le = refuse_order, refuse_order


local COMPARE = {
  eq = "equal", ne = "not_equal", gt = "greater", ge = "greater_equal", lt = "lesser",
  le = "lesser_equal",
}

for method, name in pairs(COMPARE) do
  local row, func = ROWS[name], "NDArray:" .. method
  NDArray[method] = function(x, y)
    return combine(row, func, x, y)
  end
end


-- In place: the right operand broadcasts to the shape of x; the result is written to x.
local IN_PLACE = { add_ = "add", sub_ = "subtract", mul_ = "multiply",
  div_ = "divide", mod_ = "modulo" }

for method, name in pairs(IN_PLACE) do
  local row, func = ROWS[name], "NDArray:" .. method
  NDArray[method] = function(x, y)
    return combine(row, func, x, y, x)
  end
end


--- Sets every element to v, in place.
-- @tparam NDArray x
-- @number v
-- @treturn NDArray self
function NDArray.fill(x, v)
  if type(v) == "boolean" then
    v = truth(v)
  elseif type(v) ~= "number" then
    Error.raise{ code = "type", func = "NDArray:fill", argument = "v", expected = "a number",
      got = Error.kind(v), message = "bad 'v'" }
  end
  return call.fill(x, v, "NDArray:fill")
end


-- Functions ---------------------------------------------------------------------------------------

for name, row in pairs(ROWS) do
  local func = "nd." .. name
  local form = args.form(func, { { "lhs", "any" }, { "rhs", "any" }, "*", { "out", "array?" } })
  math_of[name] = function(...)
    local a, b = ...
    if select("#", ...) == 2 and not values.is_plain(b) then
      return combine(row, func, a, b)
    end
    local given = form(...)
    return combine(row, func, given.lhs, given.rhs, given.out)
  end
end


return math_of
