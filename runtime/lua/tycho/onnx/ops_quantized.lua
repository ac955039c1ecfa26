--- Operators of ONNX on quantized numbers (not for users); see onnx/ops_math.lua.
--
-- A quantized number q has the value (q - zero point) * scale. Products are computed in 8-bit
-- integers if zero points and weights are constants, else in floats that hold the sums exactly, so
-- that both give the same results.
--
-- @module tycho.onnx.ops_quantized

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local level_attributes = require "tycho.onnx.level_attributes"
local rewriting = require "tycho.symbol.rewriting"
local tables = require "tycho.core.tables"
local tensor = require "tycho.onnx.tensor"
local value = require "tycho.onnx.value"

local ops, quantized = {}, {}

local op, product = value.op, value.product

-- Lowest and highest number by ONNX's type.
local RANGE = {
  uint8 = { 0, 255 }, int8 = { -128, 127 }, uint16 = { 0, 65535 }, int16 = { -32768, 32767 },
  int32 = { -2 ^ 31, 2 ^ 31 - 1 }, uint4 = { 0, 15 }, int4 = { -8, 7 }, uint2 = { 0, 3 },
  int2 = { -2, 1 },
}


-- Returns whether v is absent or a constant of one element.
local function is_number(v)
  return not v or v:is_constant() and product(v.shape) == 1
end

-- Returns the number of a constant scale or zero point; `absent` if there is none.
local function get_number(v, absent) return v and v:number("a scale or zero point") or absent end


-- Scales and zero points --------------------------------------------------------------------------

-- Returns the axis along which a node has several scales; 0 if it has one.
local function find_scaled_axis(n, x, scale)
  local rank = #x.shape
  return product(n:sizes(scale, "its scale")) > 1 and n:axis(math.min(1, rank - 1), rank) or 0
end

-- Returns a scale or zero point in a shape that broadcasts to x. It is one number, one for each
-- element of an axis, or one for each block of an axis.
local function expand_parameter(n, v, x, axis, block)
  if product(v.shape) == 1 then
    return v:reshape{}
  elseif #v.shape == 1 and block <= 0 then
    local shape = {}
    for i = 1, #x.shape do
      shape[i] = i == axis + 1 and v.shape[1] or 1
    end
    return v:reshape(shape)
  end
  if block <= 0 then
    n:refuse("a scale of %d dimensions without blocks", #v.shape)
  end
  local y = op("repeat", { v }, { repeats = block, axis = axis })
  return y:part(axis, 0, n:sizes(x, "its input")[axis + 1])
end


-- Returns x in a real type, minus the zero point.
local function subtract_zero(x, zero, dtype)
  local y = x:cast(dtype)
  if zero and not (zero:is_constant() and product(zero.shape) == 1
      and zero:number("zero") == 0) then
    y = y - zero:cast(dtype)
  end
  return y
end


-- Returns y rounded to integers, plus the zero point, limited to a range { lowest, highest }.
local function round_levels(y, zero, range, dtype)
  y = y:map("_contrib_round_half_even")
  if zero then
    y = y + zero:cast(y.dtype)
  end
  return y:map("clip", {}, { a_min = range[1], a_max = range[2] }):cast(dtype)
end


--- Returns the values of quantized numbers.
function quantized.decode(x, scale, zero)
  return subtract_zero(x, zero, scale.dtype) * scale
end


--- Returns values as quantized numbers of the zero point's type; uint8 without a zero point.
function quantized.encode(y, scale, zero)
  local name = zero and (zero.onnx_type or zero.dtype) or "uint8"
  return round_levels(y / scale:cast(y.dtype), zero, RANGE[name], zero and zero.dtype or "uint8")
end


-- Records for onnx/levels.lua that y has the values of the quantized numbers x, if the scale and
-- the zero point are constants.
local function note_decoded(y, x, scale, zero, axis)
  if not scale:is_constant() or zero and not zero:is_constant() then
    return
  elseif x:is_constant() and y:is_constant() then
    y.levels = { q = x, scale = scale, zero = zero, axis = axis }
  elseif x.entry and y.entry and is_number(scale) and is_number(zero) then
    value.note_levels("decoded", y, { entry = x.entry, scale = get_number(scale, 1),
      zero = get_number(zero, 0) })
  end
end


function ops.QuantizeLinear(n, x, scale, zero)
  local axis = find_scaled_axis(n, x, scale)
  local block = n:int("block_size", 0)
  local kind = tensor.type_of(n:int("output_dtype", 0))
  local name = zero and (zero.onnx_type or zero.dtype) or kind and kind.name or "uint8"
  local small = tensor.named(name)
  if not RANGE[name] and not small.float then
    n:refuse("numbers of type %s", name)
  end
  local dtype = zero and zero.dtype or kind and kind.dtype or "uint8"
  local precise = scale.dtype == "float64" and "float64" or "float32"
  local y = x:cast(precise) / expand_parameter(n, scale, x, axis, block):cast(precise)
  if small.float then                                    -- the zero point of a float type is 0
    return value.cast_to_kind(n, y, small)
  end
  local q = round_levels(y, zero and expand_parameter(n, zero, x, axis, block), RANGE[name], dtype)
  if q.entry and x.entry and name == dtype and level_attributes.RANGE[name]
      and is_number(scale) and is_number(zero) and x.dtype == "float32" then
    value.note_levels("encoded", q, { entry = x.entry, dtype = name, scale = get_number(scale, 1),
      zero = get_number(zero, 0) })
  end
  return q
end

function ops.DequantizeLinear(n, x, scale, zero)
  local axis = find_scaled_axis(n, x, scale)
  local block = n:int("block_size", 0)
  local kind = tensor.type_of(n:int("output_dtype", 0))
  local dtype = scale.dtype == "float64" and "float64" or "float32"
  local y = subtract_zero(x, zero and expand_parameter(n, zero, x, axis, block), dtype)
    * expand_parameter(n, scale, x, axis, block):cast(dtype)
  y = y:cast(kind and kind.dtype or scale.dtype)
  if y.dtype == "float32" and level_attributes.RANGE[x.dtype] and #scale.shape <= 1 then
    note_decoded(y, x, scale, zero, axis)
  end
  return y
end

function ops.DynamicQuantizeLinear(_, x)
  local axes = value.axes_from(0, #x.shape)
  local least = x:reduce("min", axes, false):minimum(0)
  local most = x:reduce("max", axes, false):maximum(0)
  local range = most - least
  local scale = value.where(range:equal(0), value.scalar(1, x.dtype), range / 255)
  local zero = (-least / scale):map("clip", {}, { a_min = 0, a_max = 255 })
    :map("_contrib_round_half_even"):cast("uint8")
  return quantized.encode(x, scale, zero), scale, zero
end


-- Products ----------------------------------------------------------------------------------------

local EXACT = 2 ^ 24                     -- float32 holds all integers up to it

-- Returns the real type in which sums of products with 8-bit weights are exact, for `count`
-- products of numbers up to `most`. The outputs are along `axis` of the weight.
local function choose_sum_type(most, weight, axis, count)
  local bound = count * most * 255
  if weight:is_constant() and bound >= EXACT then
    local rest = {}
    for i = 0, #weight.shape - 1 do
      rest[#rest + 1] = i ~= axis and i or nil
    end
    bound = most * weight:map("abs"):reduce("sum", rest, false)
      :reduce("max", { 0 }, false):number("a sum of weights")
  end
  return bound < EXACT and "float32" or "float64"
end

-- Returns the weights of a product minus their zero point; nil unless the differences are constants
-- in the range of int8.
local function narrow_weights(b, zero)
  if #b.shape ~= 2 or not b:is_constant() or zero and not zero:is_constant() then
    return nil
  end
  zero = zero and product(zero.shape) == 1 and zero:reshape{} or zero
  local w = subtract_zero(b, zero, "float32")
  if not w:is_constant() or w:reduce("min", { 0, 1 }, false):number("the least weight") < -128
      or w:reduce("max", { 0, 1 }, false):number("the largest weight") > 127 then
    return nil
  end
  return w
end

-- Returns (a - zero) w in int32, computed as a w minus zero times the sums of w's columns.
local function multiply_exactly(a, w, zero)
  local y = op("_contrib_integer_dot", { a, w:cast "int8" })
  if zero and not (zero:is_constant() and product(zero.shape) == 1
      and zero:number("zero") == 0) then
    local sums = w:reduce("sum", { 0 }, false):cast "int32"
    y = y - zero:cast "int32" * sums
  end
  return y
end


-- Returns (a - a_zero) (b - b_zero): in int32 if the 8-bit kernels compute it, else in a real type
-- that holds the sums.
local function multiply_levels(n, a, b, a_zero, b_zero)
  local axis = #b.shape - 1
  local function align_columns(zero)
    return zero and product(zero.shape) == 1 and zero:reshape{} or zero
  end
  local function align_rows(zero)
    if not zero or product(zero.shape) == 1 then
      return zero and zero:reshape{}
    end
    return #zero.shape == 1 and zero:unsqueeze(1) or zero
  end
  local narrow = value.has_integers() and level_attributes.RANGE[a.dtype] and #b.shape == 2
    and b.shape[1] <= rewriting.MOST_TERMS and narrow_weights(b, b_zero)
  if narrow then
    return multiply_exactly(a, narrow, align_rows(a_zero))
  end
  local right = subtract_zero(b, align_columns(b_zero), "float32")
  local count = n:sizes(a, "its input")[#a.shape]
  local dtype = choose_sum_type(255, right, axis, count)
  local left = subtract_zero(a, align_rows(a_zero), dtype)
  return value.matmul(left, right:cast(dtype))
end

quantized.product = multiply_levels

-- Returns the quantized output of a layer that 8-bit kernels compute; nil if they cannot, or if the
-- weight, the bias, a scale or a zero point is not constant. x and weight are quantized, the
-- weight's outputs are along `axis`, the bias is int32. `window` has the parameters of a
-- convolution.
function quantized.layer(x, x_scale, x_zero, weight, w_scale, w_zero, axis, bias, y_scale, y_zero,
    window, groups)
  local range = level_attributes.RANGE[y_zero and (y_zero.onnx_type or y_zero.dtype) or "uint8"]
  if not value.has_integers() or not range or not level_attributes.RANGE[x.dtype]
      or not weight:is_constant() or not w_scale:is_constant() or w_scale.dtype ~= "float32"
      or bias and not bias:is_constant()
      or not (is_number(x_scale) and is_number(x_zero) and is_number(y_scale) and is_number(y_zero))
  then
    return nil
  end
  local levels, scale = level_attributes.weight({ q = weight, scale = w_scale, zero = w_zero,
    axis = axis }, axis)
  if not levels or not level_attributes.suits(levels.shape, groups or 1) then
    return nil
  end
  local count = levels.shape[1]
  scale = scale * (get_number(x_scale, 1) / get_number(y_scale, 1))
  local shift = bias and bias.array:reshape{ -1 }:astype "float32" * scale
  local function make_constant(array, dtype) return value.constant(array, array.shape, dtype) end
  local params = { data_scale = 1, data_zero = get_number(x_zero, 0), out_scale = 1,
    out_type = y_zero and y_zero.dtype or "uint8", out_zero = get_number(y_zero, 0),
    no_bias = not bias }
  for key, v in pairs(window or { num_hidden = count, flatten = false }) do
    params[key] = v
  end
  return op(window and "_contrib_int8_convolution" or "_contrib_int8_fully_connected",
    { x, make_constant(levels, "int8"), make_constant(scale, "float32"),
      shift and make_constant(shift, "float32") }, params)
end

function ops.MatMulInteger(n, a, b, a_zero, b_zero)
  return multiply_levels(n, a, b, a_zero, b_zero):cast("int32")
end

function ops.QLinearMatMul(n, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)
  if #a.shape >= 2 and #b.shape == 2 then
    local levels = quantized.layer(a, a_scale, a_zero, b, b_scale, b_zero, 1, nil, y_scale, y_zero)
    if levels then
      return levels
    end
  end
  local function align_rows(v) return #v.shape == 1 and v.shape[1] > 1 and v:unsqueeze(1) or v end
  local one = product(a_scale.shape) == 1
  local sum = multiply_levels(n, a, b, a_zero, b_zero)
  sum = sum.dtype == "int32" and sum:cast "float64" or sum
  local left = one and a_scale:reshape{} or align_rows(a_scale)
  local right = product(b_scale.shape) == 1 and b_scale:reshape{} or b_scale
  local y = sum * (left:cast(sum.dtype) * right:cast(sum.dtype))
  return quantized.encode(y, y_scale:reshape{}, y_zero and y_zero:reshape{})
end

local nn = require "tycho.onnx.ops_nn"

-- Returns a zero point in a shape that broadcasts to weights (outputs, ...) of `rank` dimensions.
local function align_outputs(v, rank)
  if not v or product(v.shape) == 1 then
    return v and v:reshape{}
  end
  local shape = { v.shape[1] }
  for i = 2, rank do
    shape[i] = 1
  end
  return v:reshape(shape)
end

-- Returns the sums of a convolution of integers, in a real type that holds them.
local function convolve_levels(n, x, weight, x_zero, w_zero)
  local right = subtract_zero(weight, align_outputs(w_zero, #weight.shape), "float32")
  local dtype = choose_sum_type(255, right, 0, product(weight.shape) / weight.shape[1])
  return nn.Conv(n, subtract_zero(x, x_zero and x_zero:reshape{}, dtype), right:cast(dtype))
end

-- Returns the sums of a convolution of 8-bit integers with constant weights, computed by 8-bit
-- kernels; nil if float32 does not hold them. A zero point of x that is known only at run time is
-- multiplied by the sums of the weights inside the image, which a convolution of ones gives, and
-- subtracted from the result.
local function convolve_exactly(n, x, weight, x_zero, w_zero)
  local one = value.scalar(1, "float32")
  local levels = value.has_integers() and level_attributes.RANGE[x.dtype] and weight:is_constant()
    and (not w_zero or w_zero:is_constant())
    and level_attributes.weight({ q = weight, scale = one, zero = w_zero, axis = 0 }, 0)
  if not levels or not level_attributes.suits(levels.shape, n:int("group", 1))
      or x_zero and product(x_zero.shape) ~= 1 then
    return nil
  end
  local w = value.constant(levels, levels.shape, "int8")
  local count = product(levels.shape) / levels.shape[1]
  if choose_sum_type(255, w:cast "float32", 0, count) ~= "float32" then
    return nil
  end
  local known = is_number(x_zero)
  local padded, params = nn.window_of_conv(n, x, weight, known and get_number(x_zero, 0))
  local function convolve_data(data, zero)
    params.data_scale, params.data_zero, params.no_bias = 1, zero, true
    local scale = value.list(tables.ones(levels.shape[1]), "float32")
    return (op("_contrib_int8_convolution", { data, w, scale }, params))
  end
  if known then
    return convolve_data(padded, get_number(x_zero, 0))
  elseif not tables.is_known(x.shape) then
    return nil
  end
  local shape = tables.copied(x.shape)
  shape[1] = 1
  local inside = nn.window_of_conv(n, value.scalar(1, "uint8"):expand(shape), weight)
  return convolve_data(padded, 0) - x_zero:reshape{}:cast "float32" * convolve_data(inside, 0)
end

function ops.ConvInteger(n, x, weight, x_zero, w_zero)
  local exact = convolve_exactly(n, x, weight, x_zero, w_zero)
  if exact then
    return exact:cast "int32"
  end
  return convolve_levels(n, x, weight, x_zero, w_zero):cast("int32")
end

function ops.QLinearConv(n, x, x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero, bias)
  if is_number(x_zero) then
    local padded, params = nn.window_of_conv(n, x, weight, get_number(x_zero, 0))
    local levels = quantized.layer(padded, x_scale, x_zero, weight, w_scale, w_zero, 0, bias,
      y_scale, y_zero, params, params.num_group)
    if levels then
      return levels
    end
  end
  local sum = convolve_levels(n, x, weight, x_zero, w_zero)
  local function align_channels(v)
    local shape = { 1, v.shape[1] }
    for i = 3, #sum.shape do
      shape[i] = 1
    end
    return product(v.shape) == 1 and v:reshape{} or v:reshape(shape)
  end
  if bias then
    sum = sum + align_channels(bias):cast(sum.dtype)
  end
  local factor = align_channels(w_scale):cast(sum.dtype) * x_scale:reshape{}:cast(sum.dtype)
  return quantized.encode(sum * factor, y_scale:reshape{}, y_zero and y_zero:reshape{})
end

quantized.ops = ops
return quantized
