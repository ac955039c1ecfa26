--- Operators of ONNX: windows, normalisation, losses (not for users); see onnx/ops_math.lua.
--
-- @module tycho.onnx.ops_nn

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tables = require "tycho.core.tables"
local value = require "tycho.onnx.value"

local ops = {}

local op, product = value.op, value.product


-- Windows -----------------------------------------------------------------------------------------

-- Returns a list of `count` times a number, 1 by default.
local function fill_list(count, number)
  local list = {}
  for i = 1, count do
    list[i] = number or 1
  end
  return list
end

local AUTO = { NOTSET = "no", VALID = "valid", SAME_UPPER = "upper", SAME_LOWER = "lower" }

-- Returns the list; fails unless it has `count` integers of at least `least`.
local function check_list(list, count, least, name)
  if #list ~= count then
    value.damaged("%s has %d entries instead of %d", name, #list, count)
  end
  for _, v in ipairs(list) do
    if v < least or v > 2 ^ 31 or v ~= math.floor(v) then
      value.damaged("%s has an entry of %g", name, v)
    end
  end
  return list
end


-- Returns the window of a node: `count` spatial axes, and lists by axis: kernel, stride, dilate,
-- before, after (borders) and out (size of the output, -1 if it is unknown).
local function make_window(n, x, kernel)
  local count = #x.shape - 2
  if count < 1 then
    value.damaged("an input of %d dimensions", #x.shape)
  end
  local w = { count = count, kernel = check_list(kernel, count, 1, "kernel_shape") }
  w.stride = check_list(n:list("strides", fill_list(count)), count, 1, "strides")
  w.dilate = check_list(n:list("dilations", fill_list(count)), count, 1, "dilations")
  local pads = check_list(n:list("pads", fill_list(2 * count, 0)), 2 * count, 0, "pads")
  w.before, w.after, w.out = {}, {}, {}
  local auto, ceil = n:choice("auto_pad", "NOTSET", AUTO), n:flag("ceil_mode")
  for i = 1, count do
    local size, stride = x.shape[i + 2], w.stride[i]
    local extent = (w.kernel[i] - 1) * w.dilate[i] + 1
    local before, after = pads[i], pads[count + i]
    if auto ~= "no" then
      before, after = 0, 0
    end
    if size < 0 then
      if auto == "upper" or auto == "lower" or ceil then
        n:sizes(x, "its input")
      end
      w.out[i] = -1
    elseif auto == "upper" or auto == "lower" then
      local out = math.ceil(size / stride)
      local pad = math.max((out - 1) * stride + extent - size, 0)
      before = auto == "upper" and math.floor(pad / 2) or math.ceil(pad / 2)
      after, w.out[i] = pad - before, out
    else
      local steps = (size + before + after - extent) / stride
      local out = (ceil and math.ceil(steps) or math.floor(steps)) + 1
      if ceil and (out - 1) * stride >= size + before then
        out = out - 1                    -- the last window starts in the border
      end
      w.out[i] = out
    end
    if w.out[i] == 0 or size >= 0 and w.out[i] < 0 then
      value.damaged("a window of %d over %d elements", extent, size + before + after)
    end
    w.before[i], w.after[i] = before, after
  end
  return w
end


local function is_symmetric(w)
  return tables.same(w.before, w.after)
end

-- Returns x with borders of a number around its spatial axes.
local function pad_space(n, x, before, after, number)
  local lead = { 0, 0 }
  local first, last = tables.copied(lead), tables.copied(lead)
  for i = 1, #before do
    first[i + 2], last[i + 2] = before[i], after[i]
  end
  return value.pad(n, x, first, last, "constant", number)
end


--- Returns the data of a convolution, padded if its borders differ, and its parameters.
-- @tparam Node n
-- @tparam Value x
-- @tparam Value weight
-- @number[opt=0] border value of the elements in the borders
function ops.window_of_conv(n, x, weight, border)
  local shape = n:sizes(weight, "its weight")
  local w = make_window(n, x, n:list("kernel_shape") or tables.part(shape, 3, #shape))
  if #shape ~= #x.shape or w.count > 3 then
    n:refuse("an input of %d dimensions with weights of %d", #x.shape, #shape)
  end
  local pad = w.before
  if not is_symmetric(w) then
    x, pad = pad_space(n, x, w.before, w.after, border or 0), fill_list(w.count, 0)
  end
  return x, { kernel = w.kernel, stride = w.stride, dilate = w.dilate, pad = pad,
    num_filter = shape[1], num_group = n:int("group", 1) }
end

function ops.Conv(n, x, weight, bias)
  local padded, params = ops.window_of_conv(n, x, weight)
  params.no_bias = bias == nil
  return (op("Convolution", { padded, weight, bias }, params))
end

function ops.ConvTranspose(n, x, weight, bias)
  local shape, group = n:sizes(weight, "its weight"), n:int("group", 1)
  local kernel = n:list("kernel_shape") or tables.part(shape, 3, #shape)
  local w = { count = #x.shape - 2 }
  local count = w.count
  local stride = check_list(n:list("strides", fill_list(count)), count, 1, "strides")
  local dilate = check_list(n:list("dilations", fill_list(count)), count, 1, "dilations")
  local more = check_list(n:list("output_padding", fill_list(count, 0)), count, 0, "output_padding")
  local pads = check_list(n:list("pads", fill_list(2 * count, 0)), 2 * count, 0, "pads")
  local wanted, auto = n:list("output_shape"), n:choice("auto_pad", "NOTSET", AUTO)
  local before, after, even = {}, {}, true
  wanted = wanted and #wanted > count and tables.part(wanted, #wanted - count + 1, #wanted)
    or wanted
  for i = 1, count do
    local full = ((x.shape[i + 2] - 1) * stride[i]) + (kernel[i] - 1) * dilate[i] + 1 + more[i]
    before[i], after[i] = pads[i], pads[count + i]
    local out = wanted and wanted[i]
      or (auto == "upper" or auto == "lower") and x.shape[i + 2] * stride[i]
    if out then
      n:sizes(x, "its input")
      local total = wanted and full - out or math.max(full - out, 0)
      local half = math.floor(total / 2)
      before[i] = auto == "upper" and half or total - half
      after[i] = total - before[i]
    end
    even = even and before[i] == after[i] and before[i] >= 0
  end
  local function make_deconvolution(pad, adj, added)
    return (op("Deconvolution", { x, weight, added }, { kernel = kernel, stride = stride,
      dilate = dilate, pad = pad, adj = adj, num_filter = shape[2] * group, num_group = group,
      no_bias = added == nil }))
  end
  local fits = true
  for i = 1, count do
    fits = fits and more[i] < stride[i]
  end
  if even and fits then
    return make_deconvolution(before, more, bias)
  end
  local last, larger = {}, false         -- windows do not reach all of the output
  for i = 1, count do
    before[i], last[i] = -before[i], more[i] - after[i]
    larger = larger or before[i] > 0 or last[i] > 0
  end
  local none = fill_list(count, 0)
  local full = make_deconvolution(none, none, not larger and bias or nil)
  local y = pad_space(n, full, before, last, 0)
  return larger and bias and y + bias:reshape{ shape[2] * group, unpack(fill_list(count)) } or y
end


local MOST_TAPS = 1024                   -- most elements of a window made of slices

-- Calls f(tap) for each place in the window, in row-major order; `tap` has the elements of all
-- windows at that place, `number` in the borders. It serves poolings that the engine lacks: with
-- dilation, or with positions of the maxima.
local function visit_taps(n, x, w, number, f)
  local last = {}
  for i = 1, w.count do
    local extent = (w.kernel[i] - 1) * w.dilate[i] + 1
    last[i] = math.max((w.out[i] - 1) * w.stride[i] + extent - n:sizes(x, "its input")[i + 2]
      - w.before[i], 0)
  end
  local padded = pad_space(n, x, w.before, last, number)
  local begins, ends, steps = {}, {}, {}
  local at = {}
  local function visit_axis(i)
    if i > w.count then
      for k = 1, w.count do
        begins[k + 2], steps[k + 2] = at[k] * w.dilate[k], w.stride[k]
        ends[k + 2] = begins[k + 2] + (w.out[k] - 1) * w.stride[k] + 1
      end
      for k = 1, 2 do
        begins[k], ends[k], steps[k] = value.null, value.null, 1
      end
      f((op("slice", { padded }, { begin = tables.copied(begins), ["end"] = tables.copied(ends),
        step = tables.copied(steps) })))
      return
    end
    for k = 0, w.kernel[i] - 1 do
      at[i] = k
      visit_axis(i + 1)
    end
  end
  if product(w.kernel) > MOST_TAPS then
    value.refuse("a window of %d elements, taken apart", product(w.kernel))
  end
  value.spend(100 * product(w.kernel), "a window")
  visit_axis(1)
end


local function is_dilated(w)
  for i = 1, w.count do
    if w.dilate[i] > 1 then
      return true
    end
  end
end


-- Returns a pooling by the engine's operator; nil if that would give other sizes or other averages.
-- The borders at the end may differ from those at the start, except for averages that count them:
-- the engine cuts the last windows at the end of the input.
local function pool_windows(x, w, params)
  if w.count > 3 or params.count_include_pad and not is_symmetric(w) or is_dilated(w) then
    return nil
  end
  local valid, full = true, true
  for i = 1, w.count do
    local steps = x.shape[i + 2] + 2 * w.before[i] - w.kernel[i]
    if x.shape[i + 2] < 0 then
      valid = valid and w.before[i] == w.after[i]
    else
      valid = valid and math.floor(steps / w.stride[i]) + 1 == w.out[i]
    end
    full = full and x.shape[i + 2] >= 0 and math.ceil(steps / w.stride[i]) + 1 == w.out[i]
    if w.before[i] >= w.kernel[i] or w.after[i] >= w.kernel[i] or x.shape[i + 2] >= 0 and steps < 0
    then
      return nil
    end
  end
  if not valid and not full then
    return nil
  end
  params.kernel, params.stride, params.pad = w.kernel, w.stride, w.before
  params.pooling_convention = valid and "valid" or "full"
  return (op("Pooling", { x }, params))
end


-- Returns x with the borders that its windows reach, and the window without borders for the same
-- output.
local function pad_windows(n, x, w, number)
  local after = {}
  for i = 1, w.count do
    local size = x.shape[i + 2]
    after[i] = size < 0 and w.after[i] or (w.out[i] - 1) * w.stride[i]
      + (w.kernel[i] - 1) * w.dilate[i] + 1 - size - w.before[i]
  end
  local y = pad_space(n, x, w.before, after, number)
  return y, { count = w.count, kernel = w.kernel, stride = w.stride, dilate = w.dilate,
    before = fill_list(w.count, 0), after = fill_list(w.count, 0), out = w.out }
end


local function sum_taps(n, x, w)
  local y
  visit_taps(n, x, w, 0, function(tap) y = y and y + tap or tap end)
  return y
end


local function sum_windows(n, x, w)
  local padded, inner = pad_windows(n, x, w, 0)
  return pool_windows(padded, inner, { pool_type = "sum" }) or sum_taps(n, x, w)
end


-- Lowest number by type.
local LOWEST = { uint8 = 0, int8 = -128, int32 = -2 ^ 31 }

-- Returns the maxima of windows, and their positions in the whole input.
local function find_maxima(n, x, w)
  local shape = n:sizes(x, "its input")
  local list, rows = {}, n:flag("storage_order")
  local space = tables.part(shape, 3, #shape)
  value.spend(product(shape), "the places of an input")
  for i = 0, product(shape) - 1 do
    local inner = i % product(space)
    if rows and #space == 2 then
      inner = inner % space[2] * space[1] + math.floor(inner / space[2])
    end
    list[i + 1] = math.floor(i / product(space)) * product(space) + inner
  end
  local positions, best, at = value.list(list, "int64", shape), nil, nil
  local taps = {}
  visit_taps(n, positions, w, 0, function(tap) taps[#taps + 1] = tap end)
  local k = 0
  visit_taps(n, x, w, -math.huge, function(tap)
    k = k + 1
    if best then
      local larger = tap:greater(best)
      best, at = value.where(larger, tap, best), value.where(larger, taps[k], at)
    else
      best, at = tap, taps[k]
    end
  end)
  return best, at
end


-- Returns the maxima of windows, computed along one axis after the other.
local function take_maxima_by_axis(n, x, w)
  for axis = 1, w.count do
    local line, y = { count = w.count }, nil
    for _, key in ipairs{ "kernel", "stride", "dilate", "before", "out" } do
      line[key] = {}
      for i = 1, w.count do
        local unit = key == "before" and 0 or key == "out" and x.shape[i + 2] or 1
        line[key][i] = i == axis and w[key][i] or unit
      end
    end
    visit_taps(n, x, line, -math.huge, function(tap) y = y and y:maximum(tap) or tap end)
    x = y
  end
  return x
end


function ops.MaxPool(n, x)
  local w = make_window(n, x, n:list("kernel_shape", {}))
  if n:wants(2) then
    local best, at = find_maxima(n, x.dtype == "float64" and x or x:cast("float32"), w)
    return best:cast(x.dtype), at
  end
  if not value.REAL[x.dtype] then
    local y = ops.MaxPool(n, x:cast("float32"))
    return y:cast(x.dtype)
  end
  local y = pool_windows(x, w, { pool_type = "max" })
  if y then
    return y
  end
  local padded, inner = pad_windows(n, x, w, LOWEST[x.dtype] or -math.huge)
  return pool_windows(padded, inner, { pool_type = "max" }) or take_maxima_by_axis(n, x, w)
end

-- whole: with count_include_pad, sums are divided by the size of the whole window even if it
-- reaches beyond the padding, as in ONNX Runtime's QLinearAveragePool
function ops.AveragePool(n, x, whole)
  local w, with_pad = make_window(n, x, n:list("kernel_shape", {})), n:flag("count_include_pad")
  if with_pad and whole and n:flag("ceil_mode") then
    return sum_windows(n, x, w) / product(w.kernel)
  end
  local y = pool_windows(x, w, { pool_type = "avg", count_include_pad = with_pad })
  if y then
    return y
  end
  local shape = tables.copied(n:sizes(x, "its input"))
  shape[1], shape[2] = 1, 1
  local counted = value.full(shape, 1, x.dtype)
  if with_pad then
    local before, after = w.before, w.after
    counted = pad_space(n, counted, before, after, 1)
    local wide = tables.copied(w.before)
    for i = 1, w.count do
      wide[i] = 0
    end
    local inner = { count = w.count, kernel = w.kernel, stride = w.stride, dilate = w.dilate,
      before = wide, after = wide, out = w.out }
    return sum_windows(n, x, w) / sum_windows(n, counted, inner)
  end
  return sum_windows(n, x, w) / sum_windows(n, counted, w)
end

ops.LpPool = value.round_once(function(n, x)
  local w, p = make_window(n, x, n:list("kernel_shape", {})), n:int("p", 2)
  return sum_windows(n, x:map("abs") ^ p, w) ^ (1 / p)
end)


-- Returns an operator that pools all spatial axes; kind: avg, max.
local function make_global_pooling(kind)
  return function(_, x)
    if #x.shape >= 3 and #x.shape <= 5 and value.REAL[x.dtype] then
      return (op("Pooling", { x }, { pool_type = kind, global_pool = true,
        kernel = fill_list(#x.shape - 2) }))
    end
    return x:reduce(kind == "avg" and "mean" or "max", value.axes_from(2, #x.shape), true)
  end
end

ops.GlobalAveragePool, ops.GlobalMaxPool = make_global_pooling("avg"), make_global_pooling("max")

ops.GlobalLpPool = value.round_once(function(n, x)
  local p = n:int("p", 2)
  return (x:map("abs") ^ p):reduce("sum", value.axes_from(2, #x.shape), true) ^ (1 / p)
end)


-- Windows put back --------------------------------------------------------------------------------

-- Returns an array (rows, columns) of zeros with numbers (rows, n) at positions (1, n) of each row.
local function scatter_rows(shape, numbers, positions, reduction)
  local rows = value.full(shape, 0, numbers.dtype)
  local at = positions:expand(numbers.shape)
  return (op("_contrib_scatter_along_axis", { rows, at, numbers }, { axis = 1,
    reduction = reduction }))
end


-- Returns the row-major positions (1, count) in an image of size `w.size`: those of the first
-- element of each window, then those of the second, and so on.
local function list_window_positions(w)
  local list, count = {}, product(w.kernel) * product(w.out)
  value.spend(count * w.count, "the places of windows")
  for i = 0, count - 1 do
    local tap, window = math.floor(i / product(w.out)), i % product(w.out)
    local at, factor = 0, 1
    for axis = w.count, 1, -1 do
      local position = tap % w.kernel[axis] * w.dilate[axis]
        + window % w.out[axis] * w.stride[axis]
      tap, window = math.floor(tap / w.kernel[axis]), math.floor(window / w.out[axis])
      at, factor = at + position * factor, factor * w.size[axis]
    end
    list[i + 1] = at
  end
  return value.list(list, "int64", { 1, count })
end


function ops.Col2Im(n, x, image_shape, block_shape)
  local image, kernel = image_shape:numbers("image_shape"), block_shape:numbers("block_shape")
  local shape, count = n:sizes(x, "its input"), #image
  local w = { count = count, kernel = check_list(kernel, count, 1, "block_shape"), out = {},
    size = {} }
  w.stride = check_list(n:list("strides", fill_list(count)), count, 1, "strides")
  w.dilate = check_list(n:list("dilations", fill_list(count)), count, 1, "dilations")
  local pads = check_list(n:list("pads", fill_list(2 * count, 0)), 2 * count, 0, "pads")
  local before, after = {}, {}
  for i, size in ipairs(check_list(image, count, 1, "image_shape")) do
    before[i], after[i] = -pads[i], -pads[count + i]
    w.size[i] = size + pads[i] + pads[count + i]
    w.out[i] = math.floor((w.size[i] - (kernel[i] - 1) * w.dilate[i] - 1) / w.stride[i]) + 1
  end
  local channels = shape[2] / product(kernel)
  if #shape ~= 3 or channels ~= math.floor(channels) or shape[3] ~= product(w.out) then
    value.damaged("columns %s for windows of %s over an image of %s", value.shape_text(shape),
      value.shape_text(kernel), value.shape_text(image))
  end
  local rows = shape[1] * channels
  local y = scatter_rows({ rows, product(w.size) },
    x:reshape{ rows, product(kernel) * shape[3] }, list_window_positions(w), "add")
  return pad_space(n, y:reshape{ shape[1], channels, unpack(w.size) }, before, after, 0)
end


-- Computes MaxUnpool. Indices are positions in the whole output that the attributes determine; if
-- there is an output_shape, that output is padded or cut to it.
function ops.MaxUnpool(n, x, indices, output_shape)
  local shape, count = n:sizes(x, "its input"), #x.shape - 2
  local kernel = check_list(n:list("kernel_shape", {}), count, 1, "kernel_shape")
  local stride = check_list(n:list("strides", fill_list(count)), count, 1, "strides")
  local pads = check_list(n:list("pads", fill_list(2 * count, 0)), 2 * count, 0, "pads")
  local out = { shape[1], shape[2] }
  for i = 1, count do
    out[i + 2] = (shape[i + 2] - 1) * stride[i] - pads[i] - pads[count + i] + kernel[i]
  end
  local y = scatter_rows({ 1, product(out) }, x:reshape{ 1, product(shape) },
    indices:reshape{ 1, product(shape) }, "none"):reshape(out)
  if not output_shape then
    return y
  end
  local wanted, before, after = output_shape:numbers("output_shape"), {}, {}
  if #wanted ~= #out then
    value.damaged("an output_shape of %d sizes for %d dimensions", #wanted, #out)
  end
  for i, size in ipairs(wanted) do
    before[i], after[i] = 0, size - out[i]
  end
  return value.pad(n, y, before, after, "constant", 0)
end


function ops.DeformConv(n, x, weight, offset, bias, mask)
  local shape = n:sizes(weight, "its weight")
  local w = make_window(n, x, n:list("kernel_shape") or tables.part(shape, 3, #shape))
  if w.count ~= 2 then
    n:refuse("%d axes of space", w.count)
  end
  local pad = w.before
  if not is_symmetric(w) then
    x, pad = pad_space(n, x, w.before, w.after, 0), fill_list(w.count, 0)
  end
  local params = { kernel = w.kernel, stride = w.stride, dilate = w.dilate, pad = pad,
    num_filter = shape[1], num_group = n:int("group", 1),
    num_deformable_group = n:int("offset_group", 1), no_bias = bias == nil }
  -- without a mask the operator treats places just outside the image differently
  mask = mask or op("ones_like", { offset:part(1, 0, offset.shape[2] / 2) })
  return (op("_contrib_ModulatedDeformableConvolution", { x, offset, mask, weight, bias },
    params))
end


local STATE_ACTIVATIONS = { none = "none", silu = "silu", swish = "silu" }

-- Computes a convolution of each channel over earlier positions, which are a state from call to
-- call.
function ops.CausalConvWithState(n, x, weight, bias, past)
  local shape, k = n:sizes(x, "its input"), weight.shape[3]
  local before = past
  if not past and k > 1 then
    before = value.full({ shape[1], shape[2], k - 1 }, 0, x.dtype)
  end
  local padded = before and value.concat({ before, x }, 2) or x
  local y = op("Convolution", { padded, weight, bias }, { kernel = { k },
    num_filter = shape[2], num_group = shape[2], no_bias = bias == nil })
  if n:choice("activation", "none", STATE_ACTIVATIONS) == "silu" then
    y = y * y:map("sigmoid")
  end
  local length = padded.shape[3]
  return y, padded:part(2, length - k + 1, length)
end


-- Normalisation -----------------------------------------------------------------------------------

-- Returns a vector in a shape that broadcasts along axis 1 of an array of `rank` dimensions.
local function align_channels(v, rank)
  local shape = { 1, v.shape[1] }
  for i = 3, rank do
    shape[i] = 1
  end
  return v:reshape(shape)
end

-- Normalises x by its batch statistics; also returns the updated running statistics.
local function train_batch_norm(n, x, scale, bias, mean, variance)
  local axes = { 0, unpack(value.axes_from(2, #x.shape)) }
  local momentum = n:float("momentum", 0.9)
  local m = x:reduce("mean", axes, true)
  local v = (x - m) * (x - m)
  v = v:reduce("mean", axes, true)
  local y = (x - m) / (v + n:float("epsilon", 1e-5)):map("sqrt")
    * align_channels(scale, #x.shape) + align_channels(bias, #x.shape)
  return y, mean * momentum + m:reshape(mean.shape) * (1 - momentum),
    variance * momentum + v:reshape(mean.shape) * (1 - momentum)
end


-- Parameters and statistics may be of other float types than x; half types are computed in float32.
function ops.BatchNormalization(n, x, scale, bias, mean, variance)
  local dtype, kept = x.dtype, mean.dtype
  local wide = dtype == "float64" and dtype or "float32"
  scale, bias, mean, variance = scale:cast(wide), bias:cast(wide), mean:cast(wide),
    variance:cast(wide)
  if n:flag("training_mode") then
    local y, m, v = train_batch_norm(n, x:cast(wide), scale, bias, mean, variance)
    return y:cast(dtype), m:cast(kept), v:cast(kept)
  end
  if mean:is_constant() and variance:is_constant() and #x.shape > 1 then
    return (op("BatchNorm", { x, scale, bias, mean, variance }, { eps = n:float("epsilon", 1e-5),
      fix_gamma = false, use_global_stats = true }))
  end
  local factor = scale / (variance + n:float("epsilon", 1e-5)):map("sqrt")
  local rank = #x.shape
  return ((x:cast(wide) - align_channels(mean, rank)) * align_channels(factor, rank)
    + align_channels(bias, rank)):cast(dtype)
end

function ops.InstanceNormalization(n, x, scale, bias)
  return (op("InstanceNorm", { x, scale, bias }, { eps = n:float("epsilon", 1e-5) }))
end

-- Returns x with mean 0 and variance 1 over axes, the mean, and the inverse deviation.
local function normalise_axes(x, axes, eps)
  local mean = x:reduce("mean", axes, true)
  local centred = x - mean
  local inverse = ((centred * centred):reduce("mean", axes, true) + eps):map("rsqrt")
  return centred * inverse, mean, inverse
end

value.normalise_axes = normalise_axes

function ops.LayerNormalization(n, x, scale, bias)
  local axis, eps = n:axis(-1, #x.shape), n:float("epsilon", 1e-5)
  local dtype = x.dtype
  local size = x.shape[#x.shape]
  local plain = bias and #scale.shape == 1 and value.same_shape(scale.shape, bias.shape)
    and (size < 0 or size == scale.shape[1])
  if axis == #x.shape - 1 and not n:wants(2) and not n:wants(3) and plain then
    return (op("LayerNorm", { x, scale, bias }, { eps = eps, axis = axis }))
  end
  if dtype == "float16" or dtype == "bfloat16" then
    x = x:cast("float32")
  end
  local y, mean, inverse = normalise_axes(x, value.axes_from(axis, #x.shape), eps)
  y = y:cast(dtype) * scale
  return bias and y + bias or y, mean, inverse
end

ops.GroupNormalization = value.round_once(function(n, x, scale, bias)
  local groups, shape = n:int("num_groups", 1), n:sizes(x, "its input")
  local y = normalise_axes(x:reshape{ shape[1], groups, product(shape) / shape[1] / groups }, { 2 },
    n:float("epsilon", 1e-5))
  if scale.shape[1] == shape[2] then
    y = y:reshape(shape)
    return y * align_channels(scale, #shape) + align_channels(bias, #shape)
  end
  y = y * align_channels(scale, 3) + align_channels(bias, 3)
  return y:reshape(shape)
end)

-- Returns x divided by the root mean square of its elements over the axes from `axis` on, times a
-- scale.
function value.rms_norm(x, scale, axis, eps)
  local rank, dtype = #x.shape, x.dtype
  if axis == rank - 1 and #scale.shape == 1 and scale.shape[1] == x.shape[rank]
      and scale.dtype == dtype and (dtype == "float32" or dtype == "float64") then
    return (op("_contrib_RMSNorm", { x, scale }, { eps = eps, axis = -1 }))
  end
  local wide = x:cast(dtype == "float64" and dtype or "float32")
  local square = (wide * wide):reduce("mean", value.axes_from(axis, rank), true)
  return (wide * (square + eps):map("rsqrt")):cast(dtype) * scale
end

function ops.RMSNormalization(n, x, scale)
  return value.rms_norm(x, scale, n:axis(-1, #x.shape), n:float("epsilon", 1e-5))
end

function ops.LRN(n, x)
  local size, channels = n:int("size") or value.damaged("attribute 'size' is missing"), x.shape[2]
  local params = { nsize = size, alpha = n:float("alpha", 1e-4), beta = n:float("beta", 0.75),
    knorm = n:float("bias", 1) }
  if channels < 0 or size <= channels then
    return x:map("LRN", {}, params)
  end
  local wide = value.pad(n, x, fill_list(#x.shape, 0), { 0, size - channels, unpack(fill_list(
    #x.shape - 2, 0)) }, "constant", 0)
  return wide:map("LRN", {}, params):part(1, 0, channels)
end

function ops.Dropout(n, x, ratio, training)
  local trains = training and training:number("training_mode") ~= 0
  if trains and (ratio and ratio:number("ratio") or 0.5) > 0 then
    n:refuse("dropout in training; import the network without it")
  end
  return x, n:wants(2) and value.full(n:sizes(x, "its input"), 1, n.opset < 10 and x.dtype
    or "bool") or nil
end


-- Losses ------------------------------------------------------------------------------------------

local REDUCTIONS = { none = "none", mean = "mean", sum = "sum" }

-- Returns the loss of log-probabilities x (N, C, ...) for labels (N, ...).
local function compute_likelihood(n, x, labels, weight)
  local reduction, ignored = n:choice("reduction", "mean", REDUCTIONS), n:int("ignore_index")
  local zero = value.scalar(0, labels.dtype)
  local counts = ignored and value.binary("equal", labels, ignored):map("logical_not")
  local safe = counts and value.where(counts, labels, zero) or labels
  local picked = op("_contrib_take_along_axis", { x, safe:unsqueeze(1) }, { axis = 1 }):squeeze(1)
  local factor = weight and op("take", { weight, safe }, { axis = 0 })
  if counts then
    factor = value.where(counts, factor or value.scalar(1, x.dtype), value.scalar(0, x.dtype))
  end
  local loss = factor and -picked * factor or -picked
  local axes = value.axes_from(0, #loss.shape)
  if reduction == "none" then
    return loss
  elseif reduction == "sum" or factor then
    local sum = loss:reduce("sum", axes, false)
    return reduction == "sum" and sum or sum / factor:expand(loss.shape):reduce("sum", axes, false)
  end
  return loss:reduce("mean", axes, false)
end

ops.NegativeLogLikelihoodLoss = compute_likelihood

function ops.SoftmaxCrossEntropyLoss(n, x, labels, weight)
  local log = x:map("log_softmax", {}, { axis = 1 })
  return compute_likelihood(n, log, labels, weight), log
end

return ops
