--- Operators of ONNX: casts, including those to types of few bits, and bit operations (not for
-- users); see onnx/ops_math.lua.
--
-- The engine has no operators on bits. They are expressed by arithmetic in int64, which is exact
-- and wraps, and whose remainder has the sign of the divisor.
--
-- @module tycho.onnx.ops_types

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local bit = require "bit"
local ffi = require "ffi"
local args = require "tycho.core.args"
local tensor = require "tycho.onnx.tensor"
local transfer = require "tycho.ndarray.transfer"
local value = require "tycho.onnx.value"

local ops = {}

local op = value.op


-- Casts -------------------------------------------------------------------------------------------

local LEAST_POWER, MOST_POWER = -160, 130                -- exponents in the table of powers of two

-- Returns 2^k in float64, from a table, since an exponential need not be exact.
local function get_power_of_two(k)
  local list = {}
  for i = LEAST_POWER, MOST_POWER do
    list[#list + 1] = 2 ^ i
  end
  local at = (k - LEAST_POWER):cast("int64")
  local y = op("take", { value.list(list, "float64"), at }, { mode = "clip" })
  y.shape = k.shape
  return y
end


-- Returns the largest power of two that is at most x, a positive double in the range of float32.
local function round_down_to_power(x)
  local p = get_power_of_two(x:map("log2"):map("floor"))
  p = value.where(p:greater(x), p * 0.5, p)
  return value.where((p * 2):lesser_equal(x), p * 2, p)
end


local POWER_ROUNDS = { up = "up", down = "down", nearest = "nearest" }

-- Returns numbers rounded to powers of two of 8 bits (2^-127 to 2^127, NaN), as float32.
local function round_to_power(n, x)
  local round = n:choice("round_mode", "up", POWER_ROUNDS)
  local size = x:cast("float64"):map("abs")
  local least, most = value.scalar(2 ^ -127, "float64"), value.scalar(2 ^ 127, "float64")
  local below = round_down_to_power(size:maximum(least):minimum(most))
  local bound = round == "up" and below or round == "nearest" and below * 1.5
  local y = below
  if bound then
    local above = round == "up" and size:greater(bound) or size:greater_equal(bound)
    y = value.where(above, (below * 2):minimum(most), below)
  end
  local bad = value.binary("equal", x, x):truth():map("logical_not")
  if not n:flag("saturate", true) then
    bad = bad:logical_or(size:greater(2 ^ 127):truth())
  end
  return value.where(bad, value.scalar(0 / 0, "float64"), y):cast("float32")
end


-- Returns the largest number of a small float type.
local function get_largest_number(form)
  local exponents, mantissas, bias, kind = unpack(form)
  local e, m = 2 ^ exponents - 1, 2 ^ mantissas - 1
  if kind == "ieee" then
    e = e - 1
  elseif kind == "fn" then
    m = m - 1
  end
  return (1 + m / 2 ^ mantissas) * 2 ^ (e - bias)
end


-- Returns numbers rounded to a small float type, halves to even, as float32.
local function round_to_small_float(n, x, form)
  local _, mantissas, bias, kind = unpack(form)
  local wide = x:cast("float64")
  local size, most = wide:map("abs"), get_largest_number(form)
  local least = 2 ^ (1 - bias)                           -- the smallest that is not subnormal
  local unit = round_down_to_power(size:maximum(least):minimum(2 * most)) * 2 ^ -mantissas
  local y = (wide / unit):map("_contrib_round_half_even") * unit
  local large = y:map("abs"):greater(most)
  local sign = value.where(wide:lesser(0), value.scalar(-1, "float64"),
    value.scalar(1, "float64"))
  local saturate = n:flag("saturate", true) or kind == "all"
  local beyond = saturate and most or kind == "ieee" and math.huge or 0 / 0
  y = value.where(large, sign * value.scalar(beyond, "float64"), y)
  if kind == "uz" then
    y = value.where(y:equal(0), value.scalar(0, "float64"), y)
  end
  local nan = value.binary("equal", wide, wide):truth():map("logical_not")
  local instead = kind == "all" and value.scalar(0, "float64") or value.scalar(0 / 0, "float64")
  return value.where(nan, instead, y):cast("float32")
end


-- Returns the low bits of integers, as numbers of a type of few bits.
local function keep_low_bits(x, kind)
  local whole = value.REAL[x.dtype] and x:map("trunc"):cast("int64") or x:cast("int64")
  local low, top = whole % 2 ^ kind.bits, 2 ^ (kind.bits - 1)
  low = kind.signed and (low + top) % 2 ^ kind.bits - top or low
  return low:cast(kind.dtype)
end


-- Integer types of ONNX: number of bits, and whether they are signed.
local INTEGERS = {
  uint8 = { 8 }, int8 = { 8, true }, uint16 = { 16 }, int16 = { 16, true }, uint32 = { 32 },
  int32 = { 32, true }, uint64 = { 64 }, int64 = { 64, true },
}

-- Returns int64 numbers wrapped to an integer type of ONNX, which the engine stores as `dtype`.
local function wrap_integers(y, bits, signed, dtype, onnx_type)
  if bits < 64 then
    local top = signed and 2 ^ (bits - 1) or 0
    y = y % 2 ^ bits
    y = signed and (y + top) % 2 ^ bits - top or y
  end
  y = y:cast(dtype)
  y.onnx_type = onnx_type
  return y
end


-- Returns a new value with the elements of x and another ONNX type name; x is unchanged.
local function rename_type(x, name)
  local y = x.entry and value.output(x.entry, x.shape, x.dtype)
    or value.constant(x.array, x.shape, x.dtype, x.name)
  y.onnx_type = name
  return y
end


--- Returns a value cast to a type of ONNX.
-- @tparam Node n has the attributes for rounding to floats of few bits
-- @tparam Value x
-- @tparam table kind as `tensor.type_of` returns it
function value.cast_to_kind(n, x, kind)
  local from, to = INTEGERS[x.onnx_type or x.dtype], INTEGERS[kind.name]
  if x.onnx_type == kind.name then
    return x
  elseif kind.float then
    local f = kind.float[4] == "e8m0" and round_to_power or round_to_small_float
    return rename_type(f(n, x, kind.float), kind.name)
  elseif kind.bits then
    return rename_type(keep_low_bits(x, kind), kind.name)
  elseif from and to and not kind.same and (from[1] >= to[1] or from[2] and not to[2]) then
    return wrap_integers(x:cast("int64"), to[1], to[2], kind.dtype, kind.name)
  end
  return rename_type(x:cast(kind.dtype), kind.name)
end


function ops.Cast(n, x)
  local kind = tensor.type_of(n:int("to", 0))
  if not kind or not kind.dtype then
    n:refuse("a cast to %s", kind and kind.name or "an unknown type")
  end
  return value.cast_to_kind(n, x, kind)
end


function ops.CastLike(n, x, like)
  local kind = like.onnx_type and tensor.named(like.onnx_type)
  return kind and value.cast_to_kind(n, x, kind) or x:cast(like.dtype)
end


-- Bits --------------------------------------------------------------------------------------------

-- Returns the number of bits of x's integers and whether they are signed; fails for other numbers.
local function read_integer_type(n, x)
  local kind = INTEGERS[x.onnx_type] or INTEGERS[x.dtype]
  if not kind then
    n:refuse("numbers of type %s", x.onnx_type or x.dtype)
  end
  return kind[1], kind[2] or false
end


local NIBBLE = 16

-- Returns a table of f(a, b) for numbers a and b of four bits, at index 16 a + b.
local function make_nibble_table(f)
  local list = {}
  for a = 0, NIBBLE - 1 do
    for b = 0, NIBBLE - 1 do
      list[#list + 1] = f(a, b)
    end
  end
  return value.list(list, "int64")
end


-- Returns an operator that applies f(a, b) to four bits at a time.
local function make_bitwise(f)
  return function(n, a, b)
    local bits, signed = read_integer_type(n, a)
    local x, y = a:cast("int64"), b:cast("int64")
    local shape, results, result = value.broadcast(a.shape, b.shape), make_nibble_table(f), nil
    for at = 0, bits - 4, 4 do
      local low_x, low_y = x % NIBBLE, y % NIBBLE
      local part = op("take", { results, low_x * NIBBLE + low_y })
      part.shape = shape
      result = result and result + part * 2 ^ at or part
      x, y = (x - low_x) / NIBBLE, (y - low_y) / NIBBLE
    end
    return wrap_integers(result, bits, signed, a.dtype, a.onnx_type)
  end
end

ops.BitwiseAnd, ops.BitwiseOr, ops.BitwiseXor = make_bitwise(bit.band), make_bitwise(bit.bor),
  make_bitwise(bit.bxor)

function ops.BitwiseNot(n, x)
  local bits, signed = read_integer_type(n, x)
  local y = (signed or bits == 64) and -x - 1 or -x + (2 ^ bits - 1)
  y = y:cast(x.dtype)
  y.onnx_type = x.onnx_type
  return y
end


-- Returns 2^k in int64, k from 0 to 63; 2^63 is negative.
local function get_integer_power(k)
  local list = {}
  for i = 0, 62 do
    list[i + 1] = 2 ^ i
  end
  list[64] = -2 ^ 63
  local y = op("take", { value.list(list, "int64"), k }, { mode = "clip" })
  y.shape = k.shape
  return y
end


local function floor_divide(x, divisor) return (x - x % divisor) / divisor end

-- Returns x shifted to the right by k from 0 to 63, in two divisions, since 2^63 is negative in
-- int64.
local function shift_right(x, k)
  local first = k:minimum(32)
  return floor_divide(floor_divide(x, get_integer_power(first)), get_integer_power(k - first))
end


-- Returns unsigned numbers of 64 bits shifted to the right by k from 0 to 63; they are negative
-- int64 where their top bit is 1.
local function shift_unsigned_right(x, k)
  local half = floor_divide(x, 2)
  half = value.where(half:lesser(0), half + 2 ^ 62 + 2 ^ 62, half)
  return value.where(k:equal(0), x, shift_right(half, (k - 1):maximum(0)))
end


function ops.BitShift(n, x, shift)
  local bits, signed = read_integer_type(n, x)
  local left = n:choice("direction", "", { LEFT = 1, RIGHT = 2 }) == 1
  local wide, k = x:cast("int64"), shift:cast("int64")
  local inside = k:greater_equal(0):logical_and(k:lesser(bits)):truth()
  local zero = value.scalar(0, "int64")
  local rest = signed and not left and -wide:lesser(0) or zero
  k = value.where(inside, k, zero)
  local shifted = left and wide * get_integer_power(k)
    or bits == 64 and not signed and shift_unsigned_right(wide, k) or shift_right(wide, k)
  local y = value.where(inside, shifted, rest)
  return wrap_integers(y, bits, signed, x.dtype, x.onnx_type)
end


-- Returns the bytes of a constant as another type; integers may also be computed at run time.
function ops.BitCast(n, x)
  local to = tensor.type_of(n:int("to", 0))
  local from = tensor.named(x.onnx_type or x.dtype)
  if not to or not to.dtype or to.bits or from.bits or ffi.sizeof(to.c) ~= ffi.sizeof(from.c) then
    value.damaged("bits of %s as %s", from.name, to and to.name or "an unknown type")
  end
  if from.same and to.same and x:is_constant() and x.array then
    local bytes = ffi.string(transfer.read(x.array, "onnx.import_model"),
      value.product(x.shape) * tensor.BYTES[x.dtype])
    return value.constant(transfer.from_string(bytes, value.inner_shape(x.shape),
      args.DTYPES[to.dtype], "onnx.import_model"), x.shape, to.dtype)
  end
  local source = x.dtype == "bool" and "uint8" or from.name
  local target = to.dtype == "bool" and { 8 } or INTEGERS[to.name]
  if not INTEGERS[source] or not target or to.dtype == "bool" then
    n:refuse("bits of %s as %s, of what is no constant", from.name, to.name)
  end
  return wrap_integers(x:cast("int64"), target[1], target[2] or false, to.dtype, to.name)
end


return ops
