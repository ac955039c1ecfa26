--- Conversion of operators to ONNX: windows, normalisation, losses, images, attention (not for
-- users); see onnx/to_math.lua.
--
-- @module tycho.onnx.to_nn

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local ffi = require "ffi"
local tables = require "tycho.core.tables"

local to = {}


-- Returns a list of `count` times v, by default 1.
local function list_ones(count, v)
  local list = {}
  for i = 1, count do
    list[i] = v or 1
  end
  return list
end

-- Returns the list if it has elements, else a list of `count` times v, by default 1.
local function list_or_ones(list, count, v)
  return list and #list > 0 and list or list_ones(count, v)
end

-- Returns the list repeated once: ONNX's pads, before and after each axis.
local function repeat_list(list)
  local both = tables.copied(list)
  for i = 1, #list do
    both[#list + i] = list[i]
  end
  return both
end

-- Raises an error if the node's layout has its channels last.
local function require_channels_first(e, p)
  if p.layout and p.layout:find "C$" then
    e:refuse("layout = '%s'", p.layout)
  end
end

local function list_inputs(c, count)
  local list = {}
  for i = 1, count do
    list[i] = c.inputs[i]
  end
  return list
end


-- Windows -----------------------------------------------------------------------------------------

function to.Convolution(e, c)
  local p, count = c.p, #c.p.kernel
  require_channels_first(e, p)
  return e:emit("Conv", list_inputs(c, p.no_bias and 2 or 3), { kernel_shape = p.kernel,
    strides = list_or_ones(p.stride, count), dilations = list_or_ones(p.dilate, count),
    pads = repeat_list(list_or_ones(p.pad, count, 0)), group = p.num_group })
end

to.Convolution_v1 = to.Convolution

function to._contrib_ModulatedDeformableConvolution(e, c)
  local p, count = c.p, #c.p.kernel
  if e.opset < 19 then
    e:refuse("this operator before opset 19")
  end
  local x, offset, mask, weight, bias = unpack(list_inputs(c, p.no_bias and 4 or 5))
  return e:emit("DeformConv", { x, weight, offset, bias or "", mask }, { kernel_shape = p.kernel,
    strides = list_or_ones(p.stride, count), dilations = list_or_ones(p.dilate, count),
    pads = repeat_list(list_or_ones(p.pad, count, 0)), group = p.num_group,
    offset_group = p.num_deformable_group })
end

function to._contrib_DeformableConvolution(e)
  e:refuse("this operator, which takes places just outside the image as 0; \z
    _contrib_ModulatedDeformableConvolution reads them as ONNX does")
end

function to.Deconvolution(e, c)
  local p, count = c.p, #c.p.kernel
  require_channels_first(e, p)
  local stride, dilate = list_or_ones(p.stride, count), list_or_ones(p.dilate, count)
  local pad, more = list_or_ones(p.pad, count, 0), list_or_ones(p.adj, count, 0)
  if p.target_shape and #p.target_shape > 0 then
    pad, more = {}, {}
    for i = 1, count do
      local full = (e:known(c.shapes[1])[i + 2] - 1) * stride[i] + (p.kernel[i] - 1) * dilate[i] + 1
      local total = full - p.target_shape[i]
      pad[i] = math.ceil(total / 2)
      more[i] = 2 * pad[i] - total
    end
  end
  return e:emit("ConvTranspose", list_inputs(c, p.no_bias and 2 or 3), { kernel_shape = p.kernel,
    strides = stride, dilations = dilate, pads = repeat_list(pad), output_padding = more,
    group = p.num_group })
end

function to.FullyConnected(e, c)
  local p, shape, x = c.p, c.shapes[1], c.inputs[1]
  local flat = p.flatten or #shape == 2
  if flat then
    if #shape == 1 then
      x = e:reshape(x, shape, { shape[1], 1 })
    elseif #shape > 2 then
      x = e:emit("Flatten", { x }, { axis = 1 })
    end
    return e:emit("Gemm", { x, c.inputs[2], not p.no_bias and c.inputs[3] or nil }, { transB = 1 })
  end
  local weight = e:emit("Transpose", { c.inputs[2] }, { perm = { 1, 0 } })
  local y = e:emit("MatMul", { x, weight })
  return p.no_bias and y or e:emit("Add", { y, c.inputs[3] })
end

local POOLS = { max = "MaxPool", avg = "AveragePool", sum = "AveragePool", lp = "LpPool" }
local GLOBAL = { max = "GlobalMaxPool", avg = "GlobalAveragePool", lp = "GlobalLpPool" }

local function multiply_all(list)
  local n = 1
  for _, v in ipairs(list) do
    n = n * v
  end
  return n
end

-- Lowest numbers of types, which are the engine's maximum of no elements.
local LEAST = { float32 = -0x1.fffffep127, float64 = -0x1.fffffffffffffp1023, float16 = -65504,
  bfloat16 = -0x1.fep127 }

-- Returns x with the borders of its windows added, and no borders, if some window may lie entirely
-- in a border, which ONNX Runtime refuses; else x and the borders.
local function add_borders(e, x, pads, kernel, dtype)
  local wide, count = false, #kernel
  for i = 1, 2 * count do
    wide = wide or pads[i] >= kernel[(i - 1) % count + 1]
  end
  if not wide or not LEAST[dtype] then
    return x, pads
  end
  local all, none = {}, {}
  for i = 1, count do
    all[i + 2], all[count + 4 + i] = pads[i], pads[count + i]
    none[i], none[count + i] = 0, 0
  end
  all[1], all[2], all[count + 3], all[count + 4] = 0, 0, 0, 0
  return e:emit("Pad", { x, e:ints(all), e:scalar(LEAST[dtype], dtype) }), none
end

function to.Pooling(e, c)
  local p, x, shape = c.p, c.inputs[1], c.shapes[1]
  local count = #shape - 2
  require_channels_first(e, p)
  if p.global_pool then
    if p.pool_type == "sum" then
      local axes = {}
      for i = 1, count do
        axes[i] = i + 1
      end
      return e:emit("ReduceSum", { x, e:ints(axes) }, { keepdims = 1 })
    end
    return e:emit(GLOBAL[p.pool_type], { x }, { p = p.pool_type == "lp" and p.p_value or nil })
  end
  local stride, pad = list_or_ones(p.stride, count), list_or_ones(p.pad, count, 0)
  local with_pad = p.count_include_pad ~= false
  local after, uneven = {}, false
  for i = 1, count do
    local size, out = shape[i + 2], c.out[1].shape[i + 2]
    after[i] = pad[i]
    if p.pooling_convention ~= "valid" then
      e:known{ size, out }
      after[i] = math.max(pad[i], (out - 1) * stride[i] + p.kernel[i] - size - pad[i])
      uneven = uneven or after[i] ~= pad[i]
    end
  end
  local begins = tables.copied(pad)
  for i = 1, count do
    begins[count + i] = after[i]
  end
  if uneven and p.pool_type ~= "max" then
    e:refuse("pooling_convention = '%s' where a window reaches beyond the border",
      p.pooling_convention)
  end
  if p.pool_type == "max" then
    x, begins = add_borders(e, x, begins, p.kernel, c.dtypes[1])
  end
  local attrs = { kernel_shape = p.kernel, strides = stride, pads = begins }
  if p.pool_type == "avg" or p.pool_type == "sum" then
    attrs.count_include_pad = (with_pad or p.pool_type == "sum") and 1 or 0
  elseif p.pool_type == "lp" then
    attrs.p = p.p_value
  end
  local y = e:emit(POOLS[p.pool_type], { x }, attrs)
  if p.pool_type == "sum" then
    return e:emit("Mul", { y, e:number(multiply_all(p.kernel), c.dtypes[1]) })
  end
  return y
end

to.Pooling_v1 = to.Pooling

-- Returns the matrix with `out` rows that computes averages over equal parts of an axis.
local function make_average_matrix(size, out)
  local list = {}
  for i = 0, out - 1 do
    local from, stop = math.floor(i * size / out), math.ceil((i + 1) * size / out)
    for j = 0, size - 1 do
      list[#list + 1] = j >= from and j < stop and 1 / (stop - from) or 0
    end
  end
  return list
end

function to._contrib_AdaptiveAvgPooling2D(e, c)
  local shape, out, dtype = e:known{ c.shapes[1][3], c.shapes[1][4] }, c.out[1].shape, c.dtypes[1]
  local rows = e:list(make_average_matrix(shape[1], out[3]), dtype, { out[3], shape[1] })
  local columns = e:list(make_average_matrix(shape[2], out[4]), dtype, { out[4], shape[2] })
  local y = e:emit("MatMul", { rows, c.inputs[1] })
  return e:emit("MatMul", { y, e:emit("Transpose", { columns }, { perm = { 1, 0 } }) })
end


-- Activations -------------------------------------------------------------------------------------

local ACTIVATIONS = { relu = "Relu", sigmoid = "Sigmoid", tanh = "Tanh", softrelu = "Softplus",
  softsign = "Softsign" }

function to.Activation(e, c) return e:emit(ACTIVATIONS[c.p.act_type], { c.inputs[1] }) end

-- Emits 0.5 x (1 + erf(x / sqrt 2)).
local function emit_gelu(e, x, dtype)
  local half = e:emit("Erf", { e:emit("Mul", { x, e:number(math.sqrt(0.5), dtype) }) })
  half = e:emit("Add", { half, e:number(1, dtype) })
  return e:emit("Mul", { e:emit("Mul", { x, half }), e:number(0.5, dtype) })
end

function to.LeakyReLU(e, c)
  local p, x = c.p, c.inputs[1]
  if p.act_type == "leaky" then
    return e:emit("LeakyRelu", { x }, { alpha = e.float(p.slope) })
  elseif p.act_type == "elu" then
    return e:emit("Elu", { x }, { alpha = e.float(p.slope) })
  elseif p.act_type == "selu" then
    return e:emit("Selu", { x })
  elseif p.act_type == "gelu" then
    return emit_gelu(e, x, c.dtypes[1])
  elseif p.act_type == "rrelu" then
    return e:emit("LeakyRelu", { x }, { alpha = e.float((p.lower_bound + p.upper_bound) / 2) })
  end
  local slope = tables.copied(c.shapes[2])
  for _ = 1, #c.shapes[1] - 2 do
    slope[#slope + 1] = 1
  end
  return e:emit("PRelu", { x, e:reshape(c.inputs[2], c.shapes[2], slope) })
end

-- Returns a converter of a softmax along the node's axis, of the input divided by the temperature,
-- and negated if `negative`.
local function make_softmax(op, negative)
  return function(e, c)
    local x, p = c.inputs[1], c.p
    if p.use_length then
      e:refuse("use_length")
    end
    x = negative and e:emit("Neg", { x }) or x
    x = p.temperature and p.temperature ~= 1
      and e:emit("Div", { x, e:number(p.temperature, c.dtypes[1]) }) or x
    return e:cast(e:emit(op, { x }, { axis = p.axis }), c.dtypes[1], c.out[1].dtype)
  end
end

to.softmax, to.log_softmax = make_softmax "Softmax", make_softmax "LogSoftmax"
to.softmin = make_softmax("Softmax", true)

-- Emits a softmax along the last axis.
local function emit_last_softmax(e, c)
  return e:emit("Softmax", { c.inputs[1] }, { axis = #c.shapes[1] - 1 })
end

-- Emits a softmax over all numbers of a sample.
local function emit_sample_softmax(e, c)
  local shape = c.shapes[1]
  if #shape == 2 then
    return e:emit("Softmax", { c.inputs[1] }, { axis = 1 })
  end
  local y = e:emit("Softmax", { e:emit("Flatten", { c.inputs[1] }, { axis = 1 }) }, { axis = 1 })
  return e:reshape(y, { shape[1], "rest" }, shape)
end

function to.SoftmaxActivation(e, c)
  if c.p.mode == "channel" then
    return e:emit("Softmax", { c.inputs[1] }, { axis = 1 })
  end
  return emit_last_softmax(e, c)
end

function to.SoftmaxOutput(e, c)
  if c.p.multi_output then
    return e:emit("Softmax", { c.inputs[1] }, { axis = 1 })
  elseif c.p.preserve_shape then
    return emit_last_softmax(e, c)
  end
  return emit_sample_softmax(e, c)
end

function to.LogisticRegressionOutput(e, c) return e:emit("Sigmoid", { c.inputs[1] }) end

-- Returns the node's first input, for losses, whose output without training is their input.
local function pass_input(_, c) return c.inputs[1] end

to.LinearRegressionOutput, to.MAERegressionOutput, to.SVMOutput, to.IdentityAttachKLSparseReg =
  pass_input, pass_input, pass_input, pass_input

function to.Dropout(e, c)
  if c.p.mode ~= "always" then
    return c.inputs[1]
  end
  local t = c.dtypes[1]
  return e:emit("Dropout", { c.inputs[1], e:scalar(c.p.p, t),
    e:scalar(1, "bool") })
end

-- Emits the cross entropy of logits (rows, classes) and labels (rows); the options say whether it
-- is summed.
local function emit_cross_entropy(e, logits, labels, options)
  return e:emit("SoftmaxCrossEntropyLoss", { logits, labels }, options)
end

function to._contrib_linear_cross_entropy(e, c)
  local p, shape = c.p, c.shapes[1]
  local weight = e:emit("Transpose", { c.inputs[2] }, { perm = { 1, 0 } })
  local y = e:emit("MatMul", { c.inputs[1], weight })
  y = p.no_bias and y or e:emit("Add", { y, c.inputs[3] })
  local last = p.no_bias and 3 or 4
  local labels = e:cast(c.inputs[last], c.dtypes[last], "int64")
  y = e:reshape(y, { "rows", p.num_hidden, "any" }, { "all", p.num_hidden })
  labels = #shape == 2 and labels or e:reshape(labels, c.shapes[last], { "all" })
  y = emit_cross_entropy(e, y, labels, { reduction = "none",
    ignore_index = p.use_ignore and p.ignore_label or nil })
  return #shape == 2 and y or e:reshape(y, { "rows" }, c.out[1].shape)
end

function to.softmax_cross_entropy(e, c)
  local labels = e:cast(c.inputs[2], c.dtypes[2], "int64")
  return e:reshape(emit_cross_entropy(e, c.inputs[1], labels, { reduction = "sum" }), {}, { 1 })
end


-- Normalisation -----------------------------------------------------------------------------------

-- Emits the mean over axes, which keep one element each. Axes are an input of ONNX's operator from
-- opset 18 on, else an attribute.
local function emit_mean(e, x, axes)
  if e.opset >= 18 then
    return e:emit("ReduceMean", { x, e:ints(axes) }, { keepdims = 1 })
  end
  return e:emit("ReduceMean", { x }, { axes = axes, keepdims = 1 })
end

-- Emits x with mean 0 and variance 1 over axes.
local function normalise(e, x, axes, eps, dtype)
  local centred = e:emit("Sub", { x, emit_mean(e, x, axes) })
  local variance = emit_mean(e, e:emit("Mul", { centred, centred }), axes)
  return e:emit("Div", { centred, e:emit("Sqrt", { e:emit("Add", { variance, e:number(eps,
    dtype) }) }) })
end

-- Emits a vector reshaped to `rank` axes, with its elements along `axis` (from 0).
local function reshape_along(e, v, shape, axis, rank)
  local line = list_ones(rank)
  line[axis + 1] = shape[1]
  return e:reshape(v, shape, line)
end

-- Emits y times the node's gamma plus its beta (inputs 2 and 3), which are vectors along an axis.
local function emit_affine(e, c, y, axis, rank)
  y = e:emit("Mul", { y, reshape_along(e, c.inputs[2], c.shapes[2], axis, rank) })
  return e:emit("Add", { y, reshape_along(e, c.inputs[3], c.shapes[3], axis, rank) })
end

function to.BatchNorm(e, c)
  local p, rank, dtype = c.p, #c.shapes[1], c.dtypes[1]
  local axis, scale = (p.axis or 1) % rank, c.inputs[2]
  if p.output_mean_var then
    e:refuse("output_mean_var")
  elseif p.fix_gamma then
    scale = e:list(list_ones(e:known(c.shapes[2])[1]), c.dtypes[2])
  end
  if axis == 1 then
    return e:emit("BatchNormalization", { c.inputs[1], scale, c.inputs[3], c.inputs[4],
      c.inputs[5] },
      { epsilon = e.float(p.eps) })
  end
  local deviation = e:emit("Sqrt", { e:emit("Add", { c.inputs[5], e:number(p.eps, c.dtypes[5]) }) })
  local factor = reshape_along(e, e:emit("Div", { scale, deviation }), c.shapes[2], axis, rank)
  local y = e:emit("Sub", { c.inputs[1], reshape_along(e, c.inputs[4], c.shapes[4], axis, rank) })
  y = e:emit("Mul", { e:cast(y, c.dtypes[4], dtype), factor })
  return e:emit("Add", { y, reshape_along(e, c.inputs[3], c.shapes[3], axis, rank) })
end

to.BatchNorm_v1, to._contrib_SyncBatchNorm = to.BatchNorm, to.BatchNorm

function to._contrib_BatchNormWithReLU(e, c) return e:emit("Relu", { to.BatchNorm(e, c) }) end

function to.LayerNorm(e, c)
  local p, rank = c.p, #c.shapes[1]
  local axis = p.axis % rank
  if p.output_mean_var then
    e:refuse("output_mean_var")
  elseif e.opset >= 17 and axis == rank - 1 then
    return e:emit("LayerNormalization", { c.inputs[1], c.inputs[2], c.inputs[3] },
      { axis = -1, epsilon = e.float(p.eps) })
  end
  return emit_affine(e, c, normalise(e, c.inputs[1], { axis }, p.eps, c.dtypes[1]), axis, rank)
end

function to.InstanceNorm(e, c)
  return e:emit("InstanceNormalization", { c.inputs[1], c.inputs[2], c.inputs[3] },
    { epsilon = e.float(c.p.eps) })
end

function to.GroupNorm(e, c)
  local p, shape = c.p, c.shapes[1]
  if p.output_mean_var then
    e:refuse("output_mean_var")
  end
  local groups = e:reshape(c.inputs[1], shape, { shape[1], p.num_groups, "rest" })
  local y = normalise(e, groups, { 2 }, p.eps, c.dtypes[1])
  if c.shapes[2][1] == p.num_groups then
    return e:reshape(emit_affine(e, c, y, 1, 3), { shape[1], p.num_groups, "rest" }, shape)
  end
  return emit_affine(e, c, e:reshape(y, { shape[1], p.num_groups, "rest" }, shape), 1, #shape)
end

function to.L2Normalization(e, c)
  local rank, axes = #c.shapes[1], {}
  for axis = 1, rank - 1 do
    local inside = c.p.mode == "instance" or (c.p.mode == "channel") == (axis == 1)
    axes[#axes + 1] = inside and axis or nil
  end
  local square = e:emit("Mul", { c.inputs[1], c.inputs[1] })
  local sum = square                                     -- for an array of one axis
  if #axes > 0 then
    sum = e:emit("ReduceSum", { square, e:ints(axes) }, { keepdims = 1 })
  end
  sum = e:emit("Add", { sum, e:number(c.p.eps, c.dtypes[1]) })
  return e:emit("Div", { c.inputs[1], e:emit("Sqrt", { sum }) })
end

function to.LRN(e, c)
  local p = c.p
  return e:emit("LRN", { c.inputs[1] }, { size = p.nsize, alpha = e.float(p.alpha),
    beta = e.float(p.beta), bias = e.float(p.knorm) })
end


-- Images ------------------------------------------------------------------------------------------

function to.Pad(e, c)
  local width, pads = c.p.pad_width, {}
  local count = #width / 2
  for i = 1, count do
    pads[i], pads[count + i] = width[2 * i - 1], width[2 * i]
  end
  local number = c.p.mode == "constant"
    and e:scalar(c.p.constant_value, c.dtypes[1]) or nil
  return e:emit("Pad", { c.inputs[1], e:ints(pads), number }, { mode = c.p.mode })
end

local single = ffi.new "float[1]"                        -- used by find_factor only
local bits = ffi.cast("int32_t *", single)

-- Returns a factor that changes the size of an axis to `out`, even if the product is rounded to
-- float32 before it is rounded down: out / size as float32, or the next larger float32.
local function find_factor(out, size)
  single[0] = out / size
  if single[0] * size < out then
    bits[0] = bits[0] + 1
  end
  return tonumber(single[0])
end

-- Emits the input, (batch, channels, height, width), resized to the node's output's shape. first:
-- an axis of one element is the first one of the input.
local function emit_resize(e, c, attrs, first)
  local out = e:known{ c.out[1].shape[3], c.out[1].shape[4] }
  local size = tables.copied(e:known{ c.shapes[1][3], c.shapes[1][4] })
  local x = c.inputs[1]
  for i = 1, 2 do
    if first and out[i] == 1 and size[i] > 1 then
      x = e:emit("Slice", { x, e:ints{ 0 }, e:ints{ 1 }, e:ints{ i + 1 } })
      size[i] = 1
    end
  end
  local list = { 1, 1, find_factor(out[1], size[1]), find_factor(out[2], size[2]) }
  return e:emit("Resize", { x, "", e:list(list, "float32") }, attrs)
end

function to.UpSampling(e, c)
  local p = c.p
  if p.sample_type == "nearest" then
    if c.count > 1 then
      e:refuse("several inputs")
    end
    return emit_resize(e, c, { mode = "nearest", coordinate_transformation_mode = "asymmetric",
      nearest_mode = "floor" })
  end
  local size = 2 * p.scale - p.scale % 2
  local pad = math.ceil((p.scale - 1) / 2)
  return e:emit("ConvTranspose", { c.inputs[1], c.inputs[2] }, { kernel_shape = { size, size },
    strides = { p.scale, p.scale }, pads = { pad, pad, pad, pad },
      group = e:known(c.shapes[1])[2] })
end

to["_contrib_BilinearResize2D"] = function(e, c)
  return emit_resize(e, c, { mode = "linear",
    coordinate_transformation_mode = c.p.align_corners and "align_corners" or "half_pixel" }, true)
end

function to.ROIPooling(e, c)
  return e:emit("MaxRoiPool", { c.inputs[1], c.inputs[2] }, { pooled_shape = c.p.pooled_size,
    spatial_scale = e.float(c.p.spatial_scale) })
end

local function columns(e, x, from, stop)
  return e:emit("Slice", { x, e:ints{ from }, e:ints{ stop }, e:ints{ 1 } })
end

to["_contrib_ROIAlign"] = function(e, c)
  local p, rois = c.p, c.inputs[2]
  if p.position_sensitive or e.opset < 16 then
    e:refuse("position_sensitive, or an opset before 16")
  end
  local batch = e:emit("Squeeze", { columns(e, rois, 0, 1), e:ints{ 1 } })
  return e:emit("RoiAlign", { c.inputs[1], columns(e, rois, 1, 5), e:cast(batch, c.dtypes[2],
    "int64") },
    { output_height = p.pooled_size[1], output_width = p.pooled_size[2],
      spatial_scale = e.float(p.spatial_scale), sampling_ratio = math.max(p.sample_ratio, 0),
      coordinate_transformation_mode = p.aligned and "half_pixel" or "output_half_pixel" })
end


-- Attention ---------------------------------------------------------------------------------------

-- Emits part k (from 0) of a projection (time, batch, heads * parts * size) as (batch * heads,
-- time, size); returns its name and the size.
local function emit_head_part(e, c, i, parts, k)
  local s, heads = e:known(c.shapes[i]), c.p.heads
  local size = s[3] / heads / parts
  local x = e:emit("Reshape", { c.inputs[i], e:ints{ s[1], s[2], heads, parts, size } })
  x = e:emit("Gather", { x, e:scalar(k, "int64") }, { axis = 3 })
  x = e:emit("Transpose", { x }, { perm = { 1, 2, 0, 3 } })
  return e:emit("Reshape", { x, e:ints{ s[2] * heads, s[1], size } }), size
end

-- Emits the scores of queries and keys, both (batch * heads, time, size), divided by the root of
-- the size.
local function emit_scores(e, c, q, k, size)
  k = e:emit("Transpose", { k }, { perm = { 0, 2, 1 } })
  q = e:emit("Mul", { q, e:number(1 / math.sqrt(size), c.dtypes[1]) })
  return e:emit("MatMul", { q, k })
end

-- Emits weights times values, as (time, batch, heads * size).
local function weigh_values(e, c, weights, v, size)
  local out, heads = e:known(c.out[1].shape), c.p.heads
  local y = e:emit("MatMul", { weights, v })
  y = e:emit("Reshape", { y, e:ints{ out[2], heads, out[1], size } })
  y = e:emit("Transpose", { y }, { perm = { 2, 0, 1, 3 } })
  return e:emit("Reshape", { y, e:ints(out) })
end

function to._contrib_interleaved_matmul_selfatt_qk(e, c)
  local q, size = emit_head_part(e, c, 1, 3, 0)
  return emit_scores(e, c, q, emit_head_part(e, c, 1, 3, 1), size)
end

function to._contrib_interleaved_matmul_selfatt_valatt(e, c)
  local v, size = emit_head_part(e, c, 1, 3, 2)
  return weigh_values(e, c, c.inputs[2], v, size)
end

function to._contrib_interleaved_matmul_encdec_qk(e, c)
  local q, size = emit_head_part(e, c, 1, 1, 0)
  return emit_scores(e, c, q, emit_head_part(e, c, 2, 2, 0), size)
end

function to._contrib_interleaved_matmul_encdec_valatt(e, c)
  local v, size = emit_head_part(e, c, 1, 2, 1)
  return weigh_values(e, c, c.inputs[2], v, size)
end

-- Emits the positions 0 to count - 1 of queries or keys as an int64 constant, for masks.
local function count_positions(e, count, shape)
  local list = {}
  for i = 1, count do
    list[i] = i - 1
  end
  return e:list(list, "int64", shape)
end

-- Returns the inputs of a node of contrib.attention by port.
local function map_attention_ports(c)
  local p, at, ports = c.p, 1, {}
  for _, row in ipairs{ { "query", true }, { "key", p.packed ~= "qkv" },
      { "value", p.packed == "none" }, { "mask", p.use_mask }, { "bias", p.use_bias },
      { "valid_length", p.use_valid_length }, { "offset", p.use_offset } } do
    if row[2] then
      ports[row[1]] = { name = c.inputs[at], shape = c.shapes[at], dtype = c.dtypes[at] }
      at = at + 1
    end
  end
  return ports
end

-- Emits part k (from 0) of an array that holds several: (batch, time, heads * size) or (time,
-- batch, heads * size).
local function emit_packed_part(e, x, heads, parts, k)
  if parts == 1 then
    return x.name
  end
  local s = e:known(x.shape)
  local size = s[3] / heads / parts
  local y = e:emit("Reshape", { x.name, e:ints{ s[1], s[2], heads, parts, size } })
  y = e:emit("Gather", { y, e:scalar(k, "int64") }, { axis = 3 })
  return e:emit("Reshape", { y, e:ints{ s[1], s[2], heads * size } })
end

-- Emits (batch, time, heads * size) or (time, batch, heads * size) as (batch, heads, time, size).
local function emit_heads_first(e, name, s, heads, size, time_first)
  local y = e:emit("Reshape", { name, e:ints{ s[1], s[2], heads, size } })
  return e:emit("Transpose", { y }, { perm = time_first and { 1, 2, 0, 3 } or { 0, 2, 1, 3 } })
end

-- Returns queries, keys and values as (batch, heads, time, size), with their sizes.
local function emit_attention_heads(e, c, ports)
  local p, q = c.p, e:known(c.shapes[1])
  if p.layout == "NHTC" then
    local k = e:known(c.shapes[2])
    return { ports.query.name, ports.key.name, ports.value.name, batch = q[1], heads = q[2],
      kv_heads = k[2], queries = q[3], keys = k[3], size = q[4], value_size = c.shapes[3][4] }
  end
  local time_first, heads = p.layout == "TNC", p.heads
  local kv_heads = p.kv_heads > 0 and p.kv_heads or heads
  local sources, parts = { ports.query }, { p.packed == "qkv" and 3 or 1 }
  sources[2] = ports.key or ports.query
  sources[3] = ports.value or sources[2]
  parts[2] = p.packed == "qkv" and 3 or p.packed == "kv" and 2 or 1
  parts[3] = parts[2]
  local first = { 0, p.packed == "qkv" and 1 or 0, p.packed == "qkv" and 2 or 1 }
  local x, sizes = {}, {}
  for i = 1, 3 do
    local own = i == 1 and heads or kv_heads
    local s = e:known(sources[i].shape)
    sizes[i] = s[3] / own / parts[i]
    local part = emit_packed_part(e, sources[i], own, parts[i], first[i])
    x[i] = emit_heads_first(e, part, s, own, sizes[i], time_first)
  end
  local k = sources[2].shape
  x.batch, x.queries, x.keys = q[time_first and 2 or 1], q[time_first and 1 or 2],
    k[time_first and 1 or 2]
  x.heads, x.kv_heads, x.size, x.value_size = heads, kv_heads, sizes[1], sizes[3]
  return x
end

-- Returns which keys count for which queries, as bool; nil if all do.
local function emit_attention_mask(e, c, ports, x, with_causal)
  local p, mask = c.p, nil
  local function also(test) mask = mask and e:emit("And", { mask, test }) or test end
  local function per_sample(port)
    return e:emit("Reshape", { e:cast(port.name, port.dtype, "int64"), e:ints{ x.batch, 1, 1, 1 } })
  end
  local keys = count_positions(e, x.keys, { 1, x.keys })
  if p.use_mask then
    also(e:cast(ports.mask.name, ports.mask.dtype, "bool"))
  end
  if p.use_valid_length then
    also(e:emit("Less", { keys, per_sample(ports.valid_length) }))
  end
  if p.window > 0 or p.causal and with_causal then
    local at = count_positions(e, x.queries, { x.queries, 1 })
    at = p.use_offset and e:emit("Add", { at, per_sample(ports.offset) }) or at
    local distance = e:emit("Sub", { at, keys })
    if p.causal and with_causal then
      also(e:emit("GreaterOrEqual", { distance, e:scalar(0, "int64") }))
    end
    if p.window > 0 then
      also(e:emit("Less", { e:emit("Abs", { distance }), e:scalar(p.window, "int64") }))
    end
  end
  return mask
end

-- Emits attention as products and a softmax, for opsets before 23.
local function emit_attention_parts(e, c, x, mask, bias)
  local dtype = c.dtypes[1]
  local function repeated(name, size)
    if x.heads == x.kv_heads then
      return name
    end
    local group = x.heads / x.kv_heads
    local y = e:emit("Unsqueeze", { name, e:ints{ 2 } })
    y = e:emit("Expand", { y, e:ints{ x.batch, x.kv_heads, group, x.keys, size } })
    return e:emit("Reshape", { y, e:ints{ x.batch, x.heads, x.keys, size } })
  end
  local k = e:emit("Transpose", { repeated(x[2], x.size) }, { perm = { 0, 1, 3, 2 } })
  local y = e:emit("MatMul", { e:emit("Mul", { x[1], e:number(x.scale, dtype) }), k })
  y = bias and e:emit("Add", { y, bias }) or y
  y = mask and e:emit("Where", { mask, y, e:number(-math.huge, dtype) }) or y
  local weights = e:emit("Softmax", { y }, { axis = -1 })
  if (mask or bias) and c.p.empty == "zero" then
    local top = e.opset >= 18 and e:emit("ReduceMax", { y, e:ints{ 3 } }, { keepdims = 1 })
      or e:emit("ReduceMax", { y }, { axes = { 3 }, keepdims = 1 })
    weights = e:emit("Where", { e:emit("Equal", { top, e:number(-math.huge, dtype) }),
      e:number(0, dtype), weights })
  end
  return e:emit("MatMul", { weights, repeated(x[3], x.value_size) })
end

-- Emits ONNX's Attention, which takes one mask: if there is a bias, a mask is written into it as
-- -infinity.
local function emit_attention_node(e, c, x, mask, bias, causal)
  local dtype, given = c.dtypes[1], mask
  if mask and bias then
    given = e:emit("Where", { mask, bias, e:number(-math.huge, dtype) })
  end
  given = given or bias
  if given then                          -- ONNX Runtime wants a row per query
    given = e:emit("Expand", { given, e:ints{ x.queries, x.keys } })
  end
  return e:emit("Attention", { x[1], x[2], x[3], given }, { is_causal = causal and 1 or 0,
    scale = e.float(x.scale) })
end

function to._contrib_attention(e, c)
  local p, ports = c.p, map_attention_ports(c)
  local x = emit_attention_heads(e, c, ports)
  x.scale = p.scale ~= 0 and p.scale or 1 / math.sqrt(x.size)
  local bias = ports.bias and ports.bias.name
  local y
  if e.opset >= 23 and p.empty == "zero" then
    local causal = p.causal and not p.use_offset
    y = emit_attention_node(e, c, x, emit_attention_mask(e, c, ports, x, not causal), bias, causal)
  else
    y = emit_attention_parts(e, c, x, emit_attention_mask(e, c, ports, x, true), bias)
  end
  if p.layout == "NHTC" then
    return y
  end
  y = e:emit("Transpose", { y }, { perm = p.layout == "TNC" and { 2, 0, 1, 3 } or { 0, 2, 1, 3 } })
  return e:emit("Reshape", { y, e:ints(e:known(c.out[1].shape)) })
end

function to._contrib_RMSNorm(e, c)
  local p, rank, dtype = c.p, #c.shapes[1], c.dtypes[1]
  local axis = p.axis % rank
  if p.output_rms then
    e:refuse("output_rms")
  elseif e.opset >= 23 and axis == rank - 1 then
    return e:emit("RMSNormalization", { c.inputs[1], c.inputs[2] }, { axis = -1,
      epsilon = e.float(p.eps) })
  end
  local square = emit_mean(e, e:emit("Mul", { c.inputs[1], c.inputs[1] }), { axis })
  local root = e:emit("Sqrt", { e:emit("Add", { square, e:number(p.eps, dtype) }) })
  return e:emit("Mul", { e:emit("Div", { c.inputs[1], root }),
    reshape_along(e, c.inputs[2], c.shapes[2], axis, rank) })
end

function to._contrib_swiglu(e, c)
  local gate = c.inputs[1]
  return e:emit("Mul", { e:emit("Mul", { gate, e:emit("Sigmoid", { gate }) }), c.inputs[2] })
end

-- Emits the cosines and sines of the angles: (time, pairs), or with an offset (batch, time, pairs).
local function emit_angles(e, c, length, turned)
  local p, factors = c.p, {}
  for i = 1, turned / 2 do
    factors[i] = p.scale * p.base ^ (-2 * (i - 1) / turned)
  end
  if not p.use_offset then
    local list_cos, list_sin = {}, {}
    for at = 0, length - 1 do
      for _, factor in ipairs(factors) do
        list_cos[#list_cos + 1], list_sin[#list_sin + 1] = math.cos(at * factor),
          math.sin(at * factor)
      end
    end
    local shape = { length, #factors }
    return e:list(list_cos, "float32", shape), e:list(list_sin, "float32", shape)
  end
  local first = e:cast(c.inputs[2], c.dtypes[2], "int64")
  first = e:emit("Unsqueeze", { first, e:ints{ 1 } })
  local at = e:emit("Add", { first, count_positions(e, length) })
  at = e:emit("Unsqueeze", { e:cast(at, "int64", "float32"), e:ints{ 2 } })
  local angle = e:emit("Mul", { at, e:list(factors, "float32") })
  return e:emit("Cos", { angle }), e:emit("Sin", { angle })
end

function to._contrib_rotary_embedding(e, c)
  local p, s, dtype = c.p, e:known(c.shapes[1]), c.dtypes[1]
  local nhtc, time_first = p.layout == "NHTC", p.layout == "TNC"
  local heads, size = nhtc and s[2] or p.heads, nhtc and s[4] or s[3] / p.heads
  local length, turned = nhtc and s[3] or s[time_first and 1 or 2], p.size > 0 and p.size or size
  local x = nhtc and c.inputs[1] or emit_heads_first(e, c.inputs[1], s, heads, size, time_first)
  local cos, sin = emit_angles(e, c, length, turned)
  local function over_heads(name)        -- (time, pairs) broadcasts; (batch, 1, time, pairs)
    name = p.use_offset and e:emit("Unsqueeze", { name, e:ints{ 1 } }) or name
    return e:cast(name, "float32", dtype)
  end
  cos, sin = over_heads(cos), over_heads(sin)
  local function part(from, stop, step)
    return e:emit("Slice", { x, e:ints{ from }, e:ints{ stop }, e:ints{ 3 }, e:ints{ step or 1 } })
  end
  local half = turned / 2
  local a = p.interleaved and part(0, turned, 2) or part(0, half)
  local b = p.interleaved and part(1, turned, 2) or part(half, turned)
  local function times(u, v) return e:emit("Mul", { u, v }) end
  local real = e:emit("Sub", { times(a, cos), times(b, sin) })
  local imaginary = e:emit("Add", { times(a, sin), times(b, cos) })
  local batch = nhtc and s[1] or s[time_first and 2 or 1]
  local parts = { real, imaginary }
  if p.interleaved then
    local function last(name) return e:emit("Unsqueeze", { name, e:ints{ 4 } }) end
    local y = e:emit("Concat", { last(real), last(imaginary) }, { axis = 4 })
    parts = { e:emit("Reshape", { y, e:ints{ batch, heads, length, turned } }) }
  end
  parts[#parts + 1] = turned < size and part(turned, size) or nil
  local y = #parts > 1 and e:emit("Concat", parts, { axis = 3 }) or parts[1]
  if nhtc then
    return y
  end
  y = e:emit("Transpose", { y }, { perm = time_first and { 2, 0, 1, 3 } or { 0, 2, 1, 3 } })
  return e:emit("Reshape", { y, e:ints(s) })
end

return to
