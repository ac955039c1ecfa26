--- Operators of ONNX for signals: windows and spectra (not for users); see onnx/ops_math.lua.
--
-- A Fourier transform is a product with a matrix of cosines and sines, which is fast enough for the
-- few hundred samples of a frame in networks.
--
-- @module tycho.onnx.ops_signal

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tensor = require "tycho.onnx.tensor"
local value = require "tycho.onnx.value"

local ops = {}

local op = value.op
local cos, floor, PI = math.cos, math.floor, math.pi


local function read_output_type(n)
  local kind = tensor.type_of(n:int("output_datatype", 1))
  if not kind or not kind.same then
    n:refuse("output_datatype = %d", n:int("output_datatype", 1))
  end
  return kind.dtype
end


-- Windows -----------------------------------------------------------------------------------------

-- Returns an operator that makes a window as a sum of cosines: weights[k + 1] cos(2 pi k i / N).
local function make_window(weights)
  return function(n, size)
    local count, list = size:number("size"), {}
    if count < 1 or count ~= floor(count) then
      value.damaged("a window of %g samples", count)
    end
    local period = count - (n:flag("periodic", true) and 0 or 1)
    value.spend(count, "a window")
    for i = 0, count - 1 do
      local y = 0
      for k, w in ipairs(weights) do
        y = y + w * cos(2 * PI * (k - 1) * i / period)
      end
      list[i + 1] = y
    end
    return value.list(list, read_output_type(n))
  end
end

ops.HannWindow = make_window{ 0.5, -0.5 }
ops.HammingWindow = make_window{ 25 / 46, -21 / 46 }
ops.BlackmanWindow = make_window{ 0.42, -0.5, 0.08 }


local function convert_to_mel(hertz) return 2595 * math.log10(1 + hertz / 700) end

local function convert_to_hertz(mel) return 700 * (10 ^ (mel / 2595) - 1) end

-- Computes triangular filters over the bins of a spectrum, whose corners are evenly spaced in mel.
function ops.MelWeightMatrix(n, bins, length, rate, lower, upper)
  local count, samples = bins:number("num_mel_bins"), length:number("dft_length")
  local hertz, rows = rate:number("sample_rate"), floor(samples / 2) + 1
  if count < 1 or rows < 1 or hertz <= 0 or count ~= floor(count) then
    value.damaged("%g bins of mel over %g of a spectrum at %g Hz", count, rows, hertz)
  end
  local first = convert_to_mel(lower:number("lower_edge_hertz"))
  local step = (convert_to_mel(upper:number("upper_edge_hertz")) - first) / (count + 2)
  local corners, list = {}, {}
  value.spend(rows * count, "a matrix")
  for i = 0, count + 1 do
    corners[i] = floor((samples + 1) * convert_to_hertz(first + i * step) / hertz)
  end
  for row = 0, rows - 1 do
    for i = 0, count - 1 do
      local left, centre, right = corners[i], corners[i + 1], corners[i + 2]
      local weight = 0
      if row >= left and row <= centre then
        weight = left == centre and 1 or (row - left) / (centre - left)
      end
      if row >= centre and row < right then
        weight = (right - row) / (right - centre)
      end
      list[#list + 1] = weight
    end
  end
  return value.list(list, read_output_type(n), { rows, count })
end


-- Fourier transforms ------------------------------------------------------------------------------

local MOST_MATRIX = 2 ^ 22               -- elements: 2,048 samples

-- Returns the matrices (rows, columns) of factor * cos(2 pi i j / period) and of the sines.
local function make_waves(rows, columns, period, factor, dtype)
  if rows * columns > MOST_MATRIX then
    value.refuse("a Fourier transform of %d samples", math.max(rows, columns))
  end
  local i = value.counted_along({ rows, 1 }, 0, "float64")
  local j = value.counted_along({ 1, columns }, 1, "float64")
  local angle = i * j % period * (2 * PI / period)
  return (angle:map("cos") * factor):cast(dtype), (angle:map("sin") * factor):cast(dtype)
end


-- Returns x with its last axis cut, or extended by zeros, to a size.
local function resize_last_axis(n, x, size)
  local rank = #x.shape
  local before, after = {}, {}
  for i = 1, rank do
    before[i], after[i] = 0, i == rank and size - x.shape[rank] or 0
  end
  return value.pad(n, x, before, after, "constant", 0)
end


-- Returns the two parts of complex numbers along a new last axis.
local function join_parts(real, imaginary)
  local axis = #real.shape
  return value.concat({ real:unsqueeze(axis), imaginary:unsqueeze(axis) }, axis)
end


-- Returns the transform over the last axis; the imaginary parts may be nil. Options: inverse,
-- onesided.
local function transform_axis(n, real, imaginary, length, options)
  local dtype, inverse = real.dtype, options.inverse
  local count = options.onesided and not inverse and floor(length / 2) + 1 or length
  real = resize_last_axis(n, real, length)
  imaginary = imaginary and resize_last_axis(n, imaginary, length)
  local c, s = make_waves(length, count, length, inverse and 1 / length or 1, dtype)
  local sign = inverse and 1 or -1
  local multiply = value.matmul
  if not imaginary then
    return join_parts(multiply(real, c), multiply(real, s) * sign)
  end
  return join_parts(multiply(real, c) - multiply(imaginary, s) * sign,
    multiply(real, s) * sign + multiply(imaginary, c))
end


-- Returns the real signals (..., length, 1) from the first half of the spectrum; the other half is
-- its conjugate.
local function invert_half_spectrum(n, real, imaginary, length)
  local half = floor(length / 2) + 1
  local factors = {}
  real = resize_last_axis(n, real, half)
  imaginary = imaginary and resize_last_axis(n, imaginary, half)
  for i = 0, half - 1 do
    factors[i + 1] = (i == 0 or 2 * i == length) and 1 or 2
  end
  local c, s = make_waves(half, length, length, 1 / length, real.dtype)
  local twice = value.list(factors, real.dtype)
  local y = value.matmul(real * twice, c)
  y = imaginary and y - value.matmul(imaginary * twice, s) or y
  return y:unsqueeze(#y.shape)
end


-- Returns the order of axes that moves an axis to the end, and the order that restores it; the
-- latter includes the axis of the parts of complex numbers.
local function order_axis_last(rank, axis)
  local axes, back = {}, {}
  for i = 0, rank - 1 do
    axes[#axes + 1] = i ~= axis and i or nil
  end
  axes[#axes + 1] = axis
  for i, a in ipairs(axes) do
    back[a + 1] = i - 1
  end
  back[rank + 1] = rank
  return axes, back
end


-- Returns the real part of (..., 1) or (..., 2), and the imaginary one or nil.
local function split_parts(x)
  local last = #x.shape - 1
  local parts = x.shape[last + 1]
  if parts ~= 1 and parts ~= 2 then
    value.damaged("%d numbers for a real or complex one", parts)
  end
  return x:part(last, 0, 1):squeeze(last), parts == 2 and x:part(last, 1, 2):squeeze(last) or nil
end


function ops.DFT(n, x, length, axis)
  local rank = #x.shape - 1
  local where = n.opset >= 20 and (axis and axis:number("axis") or -2) or n:int("axis", 1)
  where = n:axis_of(where, rank + 1)
  if where == rank then
    value.damaged("axis %d holds real and imaginary parts", where)
  end
  local inverse, onesided = n:flag("inverse"), n:flag("onesided")
  local size = n:sizes(x, "its input")[where + 1]
  local count = length and length:number("dft_length")
    or inverse and onesided and 2 * (size - 1) or size
  if count < 1 then
    value.damaged("a transform of %d samples", count)
  end
  local axes, back = order_axis_last(rank, where)
  local real, imaginary = split_parts(x)
  real = real:transpose(axes)
  imaginary = imaginary and imaginary:transpose(axes)
  if inverse and onesided then
    return invert_half_spectrum(n, real, imaginary, count):transpose(back)
  end
  return transform_axis(n, real, imaginary, count, { inverse = inverse, onesided = onesided })
    :transpose(back)
end


-- Computes the transforms of frames of a signal (batch, samples, 1 or 2), one every `step` samples.
function ops.STFT(n, x, step, window_of, length)
  local shape, hop = n:sizes(x, "its input"), step:number("frame_step")
  local size = window_of and window_of.shape[1] or length and length:number("frame_length")
    or shape[2]
  if hop < 1 or size < 1 or size > shape[2] then
    value.damaged("frames of %d of %d samples every %d", size, shape[2], hop)
  end
  local count = floor((shape[2] - size) / hop) + 1
  local list = {}
  value.spend(count * size, "the frames")
  for k = 0, count - 1 do
    for i = 0, size - 1 do
      list[#list + 1] = k * hop + i
    end
  end
  local positions = value.list(list, "int64", { count, size })
  local function take_frames(part)
    local y = part and op("take", { part, positions }, { axis = 1, mode = "clip" })
    return y and window_of and y * window_of or y
  end
  local real, imaginary = split_parts(x)
  return transform_axis(n, take_frames(real), take_frames(imaginary), size,
    { onesided = n:flag("onesided", true) })
end


return ops
