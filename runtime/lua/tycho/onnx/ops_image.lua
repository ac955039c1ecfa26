--- Operators of ONNX: resampling of images (not for users); see onnx/ops_math.lua.
--
-- @module tycho.onnx.ops_image

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local ffi = require "ffi"
local tables = require "tycho.core.tables"
local value = require "tycho.onnx.value"

local ops = {}

local op, product = value.op, value.product
local floor, ceil, abs = math.floor, math.ceil, math.abs


-- Resize ------------------------------------------------------------------------------------------

-- Returns the float32 that is nearest to a number. ONNX Runtime computes sizes and positions in
-- that type, which decides how a position between two elements is rounded.
local function single(v) return tonumber(ffi.cast("float", v)) end


-- Returns the position in the input of element i of an output axis. The fields of `a`: `size` of
-- the input, `out` of the output, `scale` (output / input), `roi` = { begin, end }.
local function map_half_pixel(i, a) return single(single((i + 0.5) / a.scale) - 0.5) end

local POSITIONS = {
  half_pixel = map_half_pixel,
  asymmetric = function(i, a) return single(i / a.scale) end,
  pytorch_half_pixel = function(i, a) return a.out == 1 and 0 or map_half_pixel(i, a) end,
  align_corners = function(i, a)
    local out = single(a.scale * a.size)
    return out == 1 and 0 or single(i * (a.size - 1) / (out - 1))
  end,
  half_pixel_symmetric = function(i, a)
    local adjustment = single(a.out / single(a.scale * a.size))
    return single(single(a.size / 2 * (1 - adjustment)) + map_half_pixel(i, a))
  end,
  tf_half_pixel_for_nn = function(i, a) return single((i + 0.5) / a.scale) end,
  tf_crop_and_resize = function(i, a)
    local first, last = a.roi[1], a.roi[2]
    if a.out == 1 then
      return single(single(first + last) * (a.size - 1) / 2)
    end
    local step = single(single(i * single(last - first)) * (a.size - 1))
    return single(single(first * (a.size - 1)) + single(step / (a.out - 1)))
  end,
}

-- A position within this distance of the middle of two elements counts as the middle, as in ONNX
-- Runtime, so that its rounding to float32 has no effect.
local TIE = 1e-6

local ROUNDS = {
  round_prefer_floor = function(x) return ceil(x - 0.5 - TIE) end,
  round_prefer_ceil = function(x) return floor(x + 0.5 + TIE) end,
  floor = floor, ceil = ceil,
}

-- Rounds a position as Resize of opset 10 does.
local function round_by_scale(x, axis) return axis.scale < 1 and ceil(x) or floor(x) end

-- Returns the weight of an element at distance x in cubic interpolation with coefficient a.
local function weigh_cubic(x, a)
  x = abs(x)
  if x <= 1 then
    return ((a + 2) * x - (a + 3)) * x * x + 1
  elseif x < 2 then
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
  end
  return 0
end

local function weigh_linear(x) return math.max(1 - abs(x), 0) end

-- Returns the first element (from 0) that an output position reads along an axis, and the weights
-- of the elements from it on. With `antialias` the kernel is stretched where the output is smaller,
-- and the weights are divided by their sum.
local function make_taps(position, axis, mode, a, antialias)
  local scale = antialias and math.min(axis.scale, 1) or 1
  local reach = (mode == "cubic" and 2 or 1) / scale
  local first, last = floor(position - reach) + 1, ceil(position + reach) - 1
  if not antialias then
    first = floor(position) - (mode == "cubic" and 1 or 0)
    last = first + (mode == "cubic" and 3 or 1)
  end
  local weights, sum = {}, 0
  for i = first, last do
    local x = (i - position) * scale
    local w = mode == "cubic" and weigh_cubic(x, a) or weigh_linear(x)
    weights[#weights + 1], sum = w, sum + w
  end
  if antialias then
    for k = 1, #weights do
      weights[k] = weights[k] / sum
    end
  end
  return first, weights
end


local MOST_TAPS = 8                      -- with more, an axis is a matrix product

-- Returns the taps along an output axis: lists indices[k] and weights[k] of tap k by element, and
-- outside[i], which is 1 if `o.crop` is set and element i is outside of the input.
local function plan_axis(axis, o)
  local plan = { indices = {}, weights = {}, outside = {}, any_outside = false }
  value.spend(axis.out * (o.mode == "nearest" and 1 or 4 * math.max(1, 1 / axis.scale)), "an axis")
  for i = 0, axis.out - 1 do
    local position = o.position(i, axis)
    local first, weights
    local beyond = o.crop and (position < 0 or position > axis.size - 1)
    if o.mode == "nearest" then
      first, weights = o.round(position, axis), { 1 }
    else
      first, weights = make_taps(position, axis, o.mode, o.a, o.antialias)
    end
    if o.exclude then
      local sum = 0
      for k, w in ipairs(weights) do
        local at = first + k - 1
        weights[k] = at >= 0 and at < axis.size and w or 0
        sum = sum + weights[k]
      end
      for k, w in ipairs(weights) do
        weights[k] = w / sum
      end
    end
    plan.outside[i + 1] = beyond and 1 or 0
    plan.any_outside = plan.any_outside or beyond
    for k, w in ipairs(weights) do
      local at = math.max(0, math.min(first + k - 1, axis.size - 1))
      plan.indices[k] = plan.indices[k] or {}
      plan.weights[k] = plan.weights[k] or {}
      plan.indices[k][i + 1], plan.weights[k][i + 1] = at, w
    end
  end
  for k = 1, #plan.indices do            -- elements may have different numbers of taps
    for i = 1, axis.out do
      plan.indices[k][i] = plan.indices[k][i] or 0
      plan.weights[k][i] = plan.weights[k][i] or 0
    end
  end
  return plan
end


-- Returns x resampled along an axis, as a product with the matrix (out, size) of the plan's
-- weights.
local function multiply_axis(x, axis, plan)
  local list, size = {}, axis.size
  value.spend(axis.out * size, "a matrix")
  for i = 1, axis.out * size do
    list[i] = 0
  end
  for k, indices in ipairs(plan.indices) do
    for i, at in ipairs(indices) do
      local position = (i - 1) * size + at + 1
      list[position] = list[position] + plan.weights[k][i]
    end
  end
  local matrix = value.list(list, x.dtype, { axis.out, size })
  local axes, back = {}, {}
  for i = 0, #x.shape - 1 do
    axes[#axes + 1] = i ~= axis.at and i or nil
  end
  axes[#axes + 1] = axis.at
  for i, a in ipairs(axes) do
    back[a + 1] = i - 1
  end
  local y = op("FullyConnected", { x:transpose(axes), matrix },
    { num_hidden = axis.out, no_bias = true, flatten = false })
  return y:transpose(back)
end


-- Returns x resampled along an axis, as the sum of its weighted taps if there are few.
local function resample_axis(x, axis, plan)
  if #plan.indices > MOST_TAPS then
    return multiply_axis(x, axis, plan)
  end
  local line, y = {}, nil
  for i = 1, #x.shape do
    line[i] = i == axis.at + 1 and axis.out or 1
  end
  for k, indices in ipairs(plan.indices) do
    local tap = op("take", { x, value.list(indices, "int64") }, { axis = axis.at, mode = "clip" })
    local ones, none = true, true
    for _, w in ipairs(plan.weights[k]) do
      ones, none = ones and w == 1, none and w == 0
    end
    if not none then
      tap = ones and tap or tap * value.list(plan.weights[k], x.dtype, line)
      y = y and y + tap or tap
    end
  end
  return y
end


-- Returns images enlarged by repetition with the engine's UpSampling; nil unless both axes have the
-- same factor, an integer, and the plans repeat each pixel.
local function repeat_pixels(x, axes, plans)
  if #x.shape ~= 4 or #axes ~= 2 or axes[1].at ~= 2 or axes[2].at ~= 3 or not value.REAL[x.dtype]
  then
    return nil
  end
  local scale = axes[1].out / axes[1].size
  for i, axis in ipairs(axes) do
    if axis.out / axis.size ~= scale or scale ~= floor(scale) then
      return nil
    end
    for k, at in ipairs(plans[i].indices[1]) do
      if at ~= floor((k - 1) / scale) then
        return nil
      end
    end
  end
  return (op("UpSampling", { x }, { scale = scale, sample_type = "nearest" }))
end


local LINEAR = { half_pixel = true, pytorch_half_pixel = true, align_corners = true }

-- Returns images enlarged linearly with the engine's BilinearResize2D; nil if that operator
-- computes another resize.
local function resize_bilinear(x, axes, o)
  local whole = #x.shape == 4 and #axes == 2 and axes[1].at == 2 and axes[2].at == 3
    and o.mode == "linear" and LINEAR[o.transform] and not o.antialias and not o.exclude
    and (x.dtype == "float32" or x.dtype == "float64")
  for _, axis in ipairs(axes) do
    whole = whole and axis.scale * axis.size == axis.out and axis.out > 1
  end
  return whole and op("_contrib_BilinearResize2D", { x }, { height = axes[1].out,
    width = axes[2].out, align_corners = o.transform == "align_corners" }) or nil
end


local POLICIES = { stretch = "stretch", not_larger = "not_larger", not_smaller = "not_smaller" }

-- Returns the axes that the node lists, each a table: `at` (from 0), `size` of the input, `out` of
-- the output, `scale`, `roi`.
local function list_resized_axes(n, x, roi, scales, sizes)
  local rank, list = #x.shape, n:list("axes")
  local which = list and n:axes_of(list, rank) or value.axes_from(0, rank)
  local factor = scales and not scales:is_empty() and scales:numbers("scales")
  local wanted = not factor and sizes and sizes:numbers("sizes")
  if not (factor or wanted) or #(factor or wanted) ~= #which then
    value.damaged("%d scales or sizes for %d axes", #(factor or wanted or {}), #which)
  end
  local policy = n:choice("keep_aspect_ratio_policy", "stretch", POLICIES)
  local shape, common = n:sizes(x, "its input"), nil
  if wanted and policy ~= "stretch" then
    for i, axis in ipairs(which) do
      local f = wanted[i] / shape[axis + 1]
      common = common and (policy == "not_larger" and math.min(common, f) or policy == "not_smaller"
        and math.max(common, f)) or f
    end
  end
  local corners, axes = roi and not roi:is_empty() and roi:numbers("roi"), {}
  for i, at in ipairs(which) do
    local a = { at = at, size = shape[at + 1] }
    a.scale = single(factor and factor[i] or common or wanted[i] / a.size)
    a.out = factor and floor(single(a.size * a.scale))
      or common and floor(a.size * common + 0.5) or wanted[i]
    local fits = a.out >= 1 and a.out < 2 ^ 31 and a.scale > 0 -- false for NaN
    if not fits then
      value.damaged("axis %d would have %g elements", at, a.out)
    end
    a.roi = corners and { corners[i], corners[#which + i] } or { 0, 1 }
    axes[#axes + 1] = a
  end
  return axes
end


local MODES = { nearest = "nearest", linear = "linear", cubic = "cubic", bilinear = "linear" }

-- Returns x resized along axes, in its own dtype. Options `o`: mode, transform, position (a
-- function of POSITIONS), round (of ROUNDS), a (cubic coefficient), exclude, antialias, crop.
local function resize_axes(n, x, axes, o)
  local changed, plans = {}, {}
  for _, axis in ipairs(axes) do
    if axis.out ~= axis.size or axis.scale ~= 1 or o.crop then
      changed[#changed + 1] = axis
    end
  end
  local fast = resize_bilinear(x, changed, o)
  if fast then
    return fast
  end
  for i, axis in ipairs(changed) do
    plans[i] = plan_axis(axis, o)
  end
  fast = o.mode == "nearest" and repeat_pixels(x, changed, plans)
  if fast then
    return fast
  end
  local dtype, y = x.dtype, x
  if not value.REAL[dtype] and o.mode ~= "nearest" then
    y = x:cast("float32")
  end
  for i, axis in ipairs(changed) do
    y = resample_axis(y, axis, plans[i])
  end
  for i, axis in ipairs(changed) do
    if plans[i].any_outside then
      local line = {}
      for k = 1, #x.shape do
        line[k] = k == axis.at + 1 and axis.out or 1
      end
      y = value.where(value.list(plans[i].outside, "bool", line),
        value.scalar(n:float("extrapolation_value", 0), y.dtype), y)
    end
  end
  return y:cast(dtype)
end


function ops.Resize(n, x, roi, scales, sizes)
  local mode = n:choice("mode", "nearest", MODES)
  if n.opset < 11 then
    return resize_axes(n, x, list_resized_axes(n, x, nil, roi), { mode = mode,
      position = POSITIONS.asymmetric, transform = "asymmetric", round = round_by_scale })
  end
  local transform = n:text("coordinate_transformation_mode", "half_pixel")
  return resize_axes(n, x, list_resized_axes(n, x, roi, scales, sizes), { mode = mode,
    transform = transform, position = POSITIONS[transform]
      or n:refuse("coordinate_transformation_mode = '%s'", transform),
    round = n:choice("nearest_mode", "round_prefer_floor", ROUNDS), a = n:float("cubic_coeff_a",
      -0.75),
    exclude = n:flag("exclude_outside"), antialias = n:flag("antialias") and mode ~= "nearest",
    crop = transform == "tf_crop_and_resize" })
end

function ops.Upsample(n, x, scales)
  local mode = n:choice("mode", "nearest", MODES)
  scales = scales or value.list(n:list("scales") or value.damaged("scales are missing"), "float32")
  return resize_axes(n, x, list_resized_axes(n, x, nil, scales), { mode = mode,
    position = POSITIONS.asymmetric,
    round = floor, transform = "asymmetric" })
end


-- Grids -------------------------------------------------------------------------------------------

function ops.AffineGrid(n, theta, size)
  local sizes, aligned = size:numbers("size"), n:flag("align_corners")
  local count = #sizes - 2
  local space, parts = tables.part(sizes, 3, #sizes), {}
  for k = 1, count do                    -- coordinate x, of the last axis, is first
    local axis = count - k + 1
    local list, shape = {}, {}
    value.spend(space[axis], "an axis")
    for i = 0, space[axis] - 1 do
      list[i + 1] = aligned and (space[axis] == 1 and 0 or -1 + 2 * i / (space[axis] - 1))
        or (2 * i + 1) / space[axis] - 1
    end
    for i = 1, count do
      shape[i] = i == axis and space[axis] or 1
    end
    parts[k] = value.list(list, theta.dtype, shape):expand(space):reshape{ product(space), 1 }
  end
  parts[count + 1] = value.full({ product(space), 1 }, 1, theta.dtype)
  local base = value.concat(parts, 1)
  local y = value.batch_dot(base:unsqueeze(0), theta, false, true)
  local shape = { sizes[1] }
  for k = 1, count do
    shape[k + 1] = space[k]
  end
  shape[count + 2] = count
  return y:reshape(shape)
end


-- Returns the pixels (batch, channels, places) of x (batch, channels, pixels) at (batch, places).
local function take_pixels(x, positions)
  local s = x.shape
  local index = positions:unsqueeze(1):expand{ s[1], s[2], positions.shape[2] }
  return (op("_contrib_take_along_axis", { x, index }, { axis = 2 }))
end


-- Returns a coordinate, reflected at both borders until it is between them.
local function reflect_coordinate(p, low, high)
  local range = high - low
  if range <= 0 then
    return p * 0
  end
  local folded = (p - low) % (2 * range)
  return (folded - range):map("abs") * -1 + range + low
end


local CUBIC = -0.75
local GRID_MODES = { bilinear = "linear", linear = "linear", nearest = "nearest", bicubic = "cubic",
  cubic = "cubic" }
local BORDERS = { zeros = "zeros", border = "border", reflection = "reflection" }

-- Returns the taps at positions p along an axis, each { position in the axis, weight }; nil stands
-- for a weight of 1.
local function make_grid_taps(p, size, mode, border, aligned)
  local low, high = aligned and 0 or -0.5, aligned and size - 1 or size - 0.5
  if mode == "nearest" then
    p = p:map("_contrib_round_half_even")
  end
  if border == "border" and mode ~= "cubic" then         -- taps of cubic kernels are clipped
    p = p:map("clip", {}, { a_min = 0, a_max = size - 1 })
  elseif border == "reflection" then
    p = reflect_coordinate(p, low, high)
  end
  local whole = value.where(value.binary("equal", p, p):truth(), p, value.scalar(0, p.dtype))
  local base = whole:map("floor")                        -- an index even if p is NaN
  local part = p - base
  local taps, first = {}, mode == "cubic" and -1 or 0
  local last = mode == "cubic" and 2 or mode == "linear" and 1 or 0
  local function weigh_distance(x, near)
    if near then
      return (x * (CUBIC + 2) - (CUBIC + 3)) * x * x + 1
    end
    return ((x * CUBIC - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC
  end
  for k = first, last do
    local at, weight = base + k, nil
    if mode == "linear" then
      weight = k == 0 and -part + 1 or part
    elseif mode == "cubic" then
      local distance = k <= 0 and part - k or -part + k
      weight = weigh_distance(distance, k == 0 or k == 1)
    end
    if border == "reflection" then
      at = reflect_coordinate(at, low, high):map("floor")
    end
    local safe = at:map("clip", {}, { a_min = 0, a_max = size - 1 })
    if border == "zeros" then
      local inside = value.binary("equal", safe, at)
      weight = weight and weight * inside or inside
    end
    taps[#taps + 1] = { safe, weight }
  end
  return taps
end


function ops.GridSample(n, x, grid)
  local shape, aligned = n:sizes(x, "its input"), n:flag("align_corners")
  local mode = n:choice("mode", "bilinear", GRID_MODES)
  local border = n:choice("padding_mode", "zeros", BORDERS)
  local count, out = #shape - 2, tables.part(grid.shape, 2, #grid.shape - 1)
  local positions = product(out)
  local flat = grid:reshape{ shape[1], positions, count }:cast("float32")
  local axes = {}
  for k = 1, count do
    local size = shape[k + 2]
    local g = flat:part(2, count - k, count - k + 1):squeeze(2)
    local p = aligned and (g + 1) * ((size - 1) / 2) or ((g + 1) * size - 1) * 0.5
    axes[k] = make_grid_taps(p, size, mode, border, aligned)
  end
  local pixels = x:reshape{ shape[1], shape[2], product(tables.part(shape, 3, #shape)) }
  local y
  local function visit_axis(k, at, weight)
    if k > count then
      local tap = take_pixels(pixels, at:cast("int64"))
      tap = weight and tap * weight:cast(x.dtype):unsqueeze(1) or tap
      y = y and y + tap or tap
      return
    end
    for _, tap in ipairs(axes[k]) do
      visit_axis(k + 1, at and at * shape[k + 2] + tap[1] or tap[1],
        weight and tap[2] and weight * tap[2] or weight or tap[2])
    end
  end
  visit_axis(1)
  return y:reshape{ shape[1], shape[2], unpack(out) }
end


-- Regions -----------------------------------------------------------------------------------------

local ROI_MODES = { avg = "avg", max = "max" }

-- Returns regions and their scale, changed so that the scale is at most 1, as the engine's
-- operators require.
local function limit_scale(rois, scale)
  if scale <= 1 then
    return rois, scale
  end
  return rois * scale, 1
end

-- Returns the RoiAlign of mode 'max': for each bin the largest weighted corner of its samples, as
-- ONNX defines it.
local function pool_roi_maxima(n, x, rois, batch, height, width, scale, aligned)
  local samples = n:int("sampling_ratio", 0)
  if samples < 1 then
    n:refuse("mode = 'max' with a number of samples that depends on the regions")
  end
  local shape, count = n:sizes(x, "its input"), rois.shape[1]
  local corner = rois * scale - (aligned and 0.5 or 0)
  -- Returns the two corners { position, weight } of the samples along a side of the regions, and
  -- whether they are inside the image.
  local function sample_side(from, to, bins, size)
    local start = corner:part(1, from, from + 1)
    local length = corner:part(1, to, to + 1) - start
    length = aligned and length or length:maximum(1)
    local list = {}
    value.spend(bins * samples, "an axis")
    for i = 0, bins * samples - 1 do
      list[i + 1] = (floor(i / samples) + (i % samples + 0.5) / samples) / bins
    end
    local p = start + length * value.list(list, x.dtype, { 1, #list })
    local inside = p:greater_equal(-1):logical_and(p:lesser_equal(size))
    p = p:maximum(0):minimum(size - 1)
    local low = p:map("floor")
    local high = (low + 1):minimum(size - 1)
    local part = p - low
    return { { low, -part + 1 }, { high, part } }, inside
  end
  local rows, rows_inside = sample_side(1, 3, height, shape[3])
  local columns, columns_inside = sample_side(0, 2, width, shape[4])
  local h, w = height * samples, width * samples
  local maps = op("take", { x:reshape{ shape[1], shape[2], shape[3] * shape[4] }, batch },
    { axis = 0, mode = "clip" })
  local inside = rows_inside:reshape{ count, h, 1 } * columns_inside:reshape{ count, 1, w }
  local best
  for _, row in ipairs(rows) do
    for _, column in ipairs(columns) do
      local at = row[1]:reshape{ count, h, 1 } * shape[4] + column[1]:reshape{ count, 1, w }
      local weight = row[2]:reshape{ count, h, 1 } * column[2]:reshape{ count, 1, w } * inside
      local tap = take_pixels(maps, at:reshape{ count, h * w }:cast("int64"))
        * weight:reshape{ count, 1, h * w }
      best = best and best:maximum(tap) or tap
    end
  end
  return best:reshape{ count, shape[2], height, samples, width, samples }
    :reduce("max", { 3, 5 }, false)
end


function ops.RoiAlign(n, x, rois, batch)
  local height, width = n:int("output_height", 1), n:int("output_width", 1)
  local scale = n:float("spatial_scale", 1)
  local default = n.opset >= 16 and "half_pixel" or "output_half_pixel"
  local aligned = n:text("coordinate_transformation_mode", default) == "half_pixel"
  if n:choice("mode", "avg", ROI_MODES) == "max" then
    return pool_roi_maxima(n, x, rois, batch, height, width, scale, aligned)
  end
  rois, scale = limit_scale(rois, scale)
  local boxes = value.concat({ batch:cast(rois.dtype):reshape{ batch.shape[1], 1 }, rois }, 1)
  local samples = n:int("sampling_ratio", 0)
  return (op("_contrib_ROIAlign", { x, boxes }, { pooled_size = { height, width },
    spatial_scale = scale, sample_ratio = samples > 0 and samples or -1, aligned = aligned }))
end

function ops.MaxRoiPool(n, x, rois)
  local given = n:float("spatial_scale", 1)
  local corners, scale = limit_scale(rois:part(1, 1, 5), given)
  if scale ~= given then
    rois = value.concat({ rois:part(1, 0, 1), corners }, 1)
  end
  return (op("ROIPooling", { x, rois }, { pooled_size = n:list("pooled_shape"),
    spatial_scale = scale }))
end

-- Boxes -------------------------------------------------------------------------------------------

-- Returns the indices, from 0, along an axis of a shape, as float32.
local function count_rows(shape, axis)
  return value.counted_along(shape, axis, "float32")
end


-- Computes NonMaxSuppression: the remaining boxes as rows (sample, class, box). Their number is
-- known only at run time, so the result must be an output of the network.
function ops.NonMaxSuppression(n, boxes, scores, most, overlap, least)
  local s = n:sizes(scores, "its scores")
  local samples, classes, count = s[1], s[2], s[3]
  local limit = most and most:number("max_output_boxes_per_class") or 0
  limit = math.min(limit, count)
  if limit < 1 then
    return value.empty({ 0, 3 }, "int64")
  end
  local centred = n:flag("center_point_box")
  local function take_column(k) return boxes:part(2, k, k + 1) end
  if not centred then                    -- any two opposite corners
    boxes = value.concat({ take_column(0):minimum(take_column(2)),
      take_column(1):minimum(take_column(3)), take_column(0):maximum(take_column(2)),
      take_column(1):maximum(take_column(3)) }, 2)
  end
  local full = { samples, classes, count, 1 }
  local data = value.concat({ count_rows(full, 2), scores:unsqueeze(3),
    boxes:unsqueeze(1):expand{ samples, classes, count, 4 } }, 3)
  local format = centred and "center" or "corner"
  local kept = op("_contrib_box_nms", { data:reshape{ samples * classes, count, 6 } }, {
    overlap_thresh = overlap and overlap:number("iou_threshold") or 0,
    valid_thresh = least and least:number("score_threshold") or -3e38, coord_start = 2,
    score_index = 1, force_suppress = true, in_format = format, out_format = format })
  local index = kept:part(1, 0, limit):part(2, 0, 1):reshape{ samples, classes, limit, 1 }
  local line = { samples, classes, limit, 1 }
  local rows = value.concat({ count_rows(line, 0), count_rows(line, 1), index }, 3)
  local total = samples * classes * limit
  local y = op("_contrib_boolean_mask", { rows:reshape{ total, 3 }:cast("int64"),
    index:reshape{ total }:greater_equal(0) })
  y.rows_of_run = true
  return y
end


return ops
