--- Poolings of Torch7. For `torch7/import.lua`.
--
-- The maximum of a window ignores padding. A last window that would begin behind the image and the
-- padding in front of it is left out.
--
-- @module tycho.torch7.layers_pooling

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local convolutions = require "tycho.torch7.layers_convolutions"
local Error = require "tycho.core.error"
local layers = require "tycho.torch7.layers"
local tables = require "tycho.core.tables"
local Tensor = require "tycho.torch7.tensor"

local batched, sizes = convolutions.batched, convolutions.sizes

local LEAST = -3.0e38                                    -- value of padding in a maximum
local MOST_SHIFTS = 1024                                 -- most slices of which a maximum is made


-- Returns the window parameters of a module.
local function read_window(net, m, n, stride)
  local p = { kernel = sizes(net, m, "k", n, nil, 1), pad = sizes(net, m, "pad", n, 0, 0),
    dilation = sizes(net, m, "dilation", n, 1, 1), ceil = m.ceil_mode == true }
  p.stride = sizes(net, m, "d", n, stride or p.kernel, 1)
  for i, k in ipairs(p.kernel) do
    if p.pad[i] > k / 2 then
      net:fail("value", "a padding of %d for a kernel of %d", p.pad[i], k)
    end
  end
  return p
end


-- Returns the number of windows on each axis, and that of the engine's operator. With `ceil_mode`
-- Torch leaves out a last window that begins behind the image; the engine does not.
local function count_windows(net, x, p)
  local shape = convolutions.moved(net, x, p.kernel, p.stride, p.pad, p.dilation)
  local padded, full = false, tables.copied(shape)
  for i = 1, #shape do
    padded = padded or p.pad[i] > 0
  end
  for i, k in ipairs(p.ceil and p.kernel or {}) do
    local size = x.shape[i + 2]
    local steps = size + 2 * p.pad[i] - p.dilation[i] * (k - 1) - 1
    full[i] = math.ceil(steps / p.stride[i]) + 1
    shape[i] = full[i]
    if padded and (full[i] - 1) * p.stride[i] >= size + p.pad[i] then
      shape[i] = full[i] - 1
    end
  end
  return shape, full
end


-- Returns x pooled by the engine's operator, without windows that Torch leaves out.
local function pool_windows(net, x, p, kind, more)
  local shape, full = count_windows(net, x, p)
  local y = Tensor.call("Pooling", { x }, { kernel = p.kernel, stride = p.stride, pad = p.pad,
    pool_type = kind, pooling_convention = p.ceil and "full" or "valid",
    count_include_pad = more and more.count_include_pad }, { x.shape[1], x.shape[2],
    unpack(full) }, net:name())
  for i = 1, #shape do
    y = y:slice(i + 1, 0, shape[i])
  end
  return y
end


-- Calls f(slice) for each position in a window, in order; the slice has the values of all windows
-- at this position. `fill` is the value outside the image.
local function visit_shifts(net, x, p, fill, f)
  local shape = count_windows(net, x, p)
  local n, after, total = #shape, {}, tables.product(p.kernel)
  if total > MOST_SHIFTS then
    net:fail("value", "a kernel of %s", table.concat(p.kernel, " x "))
  end
  local reach = {}
  for i = 1, n do
    reach[i] = (shape[i] - 1) * p.stride[i] + 1
    local needed = reach[i] + (p.kernel[i] - 1) * p.dilation[i]
    after[i] = math.max(needed - x.shape[i + 2] - p.pad[i], 0)
  end
  local wide = x:pad(p.pad, after, "constant", fill)
  for k = 0, total - 1 do
    local from, to, step, rest = { 0, 0 }, { x.shape[1], x.shape[2] }, { 1, 1 }, k
    for i = n, 1, -1 do
      from[i + 2] = rest % p.kernel[i] * p.dilation[i]
      to[i + 2], step[i + 2] = from[i + 2] + reach[i], p.stride[i]
      rest = math.floor(rest / p.kernel[i])
    end
    f(Tensor.call("slice", { wide }, { begin = from, ["end"] = to, step = step },
      { x.shape[1], x.shape[2], unpack(shape) }))
  end
end


-- Returns whether a window has gaps between its elements.
local function has_dilation(p)
  for _, d in ipairs(p.dilation) do
    if d > 1 then
      return true
    end
  end
  return false
end


-- Returns a layer of maxima, which keeps its input and output for an unpooling layer.
local function make_max_pooling(n)
  return function(net, m, x)
    local p = read_window(net, m, n)
    return batched(net, x, n, function(images)
      local y
      if has_dilation(p) then
        visit_shifts(net, images, p, LEAST, function(slice)
          y = y and y:maximum(slice) or slice
        end)
      else
        y = pool_windows(net, images, p, "max")
      end
      net.pooled = net.pooled or {}
      net.pooled[m] = { x = Tensor(images:get(), images.shape), y = Tensor(y:get(), y.shape),
        window = p }
      return y
    end)
  end
end

layers.tensor("nn.SpatialMaxPooling nn.SpatialDilatedMaxPooling", make_max_pooling(2))
layers.tensor("nn.VolumetricMaxPooling nn.VolumetricDilatedMaxPooling", make_max_pooling(3))


-- Returns an average pooling; files of old versions of nn, without the field `divide`, compute
-- sums.
local function make_average_pooling(n, divides)
  return function(net, m, x)
    local p = read_window(net, m, n, 1)
    return batched(net, x, n, function(images)
      local y = pool_windows(net, images, p, "avg",
        { count_include_pad = m.count_include_pad ~= false })
      return (divides or m.divide) and y or y * tables.product(p.kernel)
    end)
  end
end

layers.tensor("nn.SpatialAveragePooling", make_average_pooling(2, false))
layers.tensor("nn.VolumetricAveragePooling", make_average_pooling(3, true))

-- Returns an average pooling of cudnn, whose field `mode` determines whether padding counts.
local function make_cudnn_average(n)
  return function(net, m, x)
    local p = read_window(net, m, n, 1)
    local excludes = m.mode == "CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING"
    return batched(net, x, n, function(images)
      return pool_windows(net, images, p, "avg", { count_include_pad = not excludes })
    end)
  end
end

layers.tensor("cudnn.SpatialAveragePooling", make_cudnn_average(2))
layers.tensor("cudnn.VolumetricAveragePooling", make_cudnn_average(3))

layers.tensor("nn.TemporalMaxPooling", function(net, m, x)
  local width = net:integer(m, "kW", nil, 1)
  local p = { kernel = { width }, stride = { net:integer(m, "dW", width, 1) }, pad = { 0 },
    dilation = { 1 } }
  return convolutions.framed(net, x, function(sequences)
    return pool_windows(net, sequences, p, "max")
  end)
end)


-- Returns the sums of windows with a weight and a bias for each plane.
local function sum_windows(net, m, x, p, planes)
  if x.shape[2] ~= planes then
    net:fail("shape", "the input has %d channels instead of %d", x.shape[2], planes)
  end
  local shape = { 1, planes }
  for i = 1, #p.kernel do
    shape[i + 2] = 1
  end
  return pool_windows(net, x, p, "sum") * net:parameter(m, "weight", shape)
    + net:parameter(m, "bias", shape)
end

layers.tensor("nn.SpatialSubSampling", function(net, m, x)
  local p = read_window(net, m, 2, 1)
  return batched(net, x, 2, function(images)
    return sum_windows(net, m, images, p, net:integer(m, "nInputPlane", nil, 1))
  end)
end)

layers.tensor("nn.TemporalSubSampling", function(net, m, x)
  local p = { kernel = { net:integer(m, "kW", nil, 1) }, stride = { net:integer(m, "dW", 1, 1) },
    pad = { 0 }, dilation = { 1 } }
  return convolutions.framed(net, x, function(sequences)
    return sum_windows(net, m, sequences, p, net:integer(m, "inputFrameSize", nil, 1))
  end)
end)


-- Returns the maxima over n windows of an axis (from 0); window i extends from floor(i size / n) to
-- ceil((i + 1) size / n).
local function take_maxima(y, axis, n)
  local size, parts = y.shape[axis + 1], {}
  for i = 0, n - 1 do
    parts[i + 1] = y:slice(axis, math.floor(i * size / n), math.ceil((i + 1) * size / n)):max(axis)
  end
  return Tensor.concat(parts, axis)
end

-- Returns the height and width of an adaptive layer's output, by default those of the input.
local function read_adaptive_sizes(net, m, x)
  local height, width = net:integer(m, "H", x.shape[3], 1), net:integer(m, "W", x.shape[4], 1)
  if height * width > 2 ^ 16 then
    net:fail("value", "%d x %d windows", height, width)
  end
  return height, width
end

layers.tensor("nn.SpatialAdaptiveMaxPooling", function(net, m, x)
  return batched(net, x, 2, function(images)
    local height, width = read_adaptive_sizes(net, m, images)
    return take_maxima(take_maxima(images, 2, height), 3, width)
  end)
end)

layers.tensor("nn.SpatialAdaptiveAveragePooling", function(net, m, x)
  return batched(net, x, 2, function(images)
    local height, width = read_adaptive_sizes(net, m, images)
    return Tensor.call("_contrib_AdaptiveAvgPooling2D", { images },
      { output_size = { height, width } }, { images.shape[1], images.shape[2], height, width })
  end)
end)

-- Computes the p-norm of neighbouring features along the first axis, or the second if there is a
-- batch.
layers.tensor("nn.FeatureLPPooling", function(net, m, x)
  local width, stride = net:integer(m, "width", nil, 2), net:integer(m, "stride", nil, 1)
  local power, axis = net:number(m, "power"), m.batch_mode == true and 1 or 0
  net:need_dims(x, axis + 1, axis + 3)
  local batch = axis == 1 and x.shape[1] or 1
  local features, rest = x.shape[axis + 1], 1
  for k = axis + 2, #x.shape do
    rest = rest * x.shape[k]
  end
  local powers = x:reshape{ batch, 1, features, rest }:pow(power)
  local y = pool_windows(net, powers, { kernel = { width, 1 },
    stride = { stride, 1 }, pad = { 0, 0 }, dilation = { 1, 1 } }, "sum"):pow(1 / power)
  local shape = tables.copied(x.shape)
  shape[axis + 1] = y.shape[3]
  return y:reshape(shape)
end)


-- Unpooling ---------------------------------------------------------------------------------------

-- Interleaves several tensors along an axis (from 0): each element is followed by the corresponding
-- elements of the others.
local function interleave_tensors(list, axis)
  local shape, parts = tables.copied(list[1].shape), {}
  for i, x in ipairs(list) do
    parts[i] = x:unsqueeze(axis + 1)
  end
  shape[axis + 1] = shape[axis + 1] * #list
  return Tensor.concat(parts, axis + 1):reshape(shape)
end


-- Returns the values of all positions of a window next to each other, with zeros if the stride is
-- larger than the kernel. `at` counts the positions.
local function interleave_window(parts, window, axis, at)
  local kernel, stride = window.kernel[axis], window.stride[axis]
  if not kernel then
    return parts[at + 1]
  end
  local list = {}
  for k = 0, stride - 1 do
    list[k + 1] = k < kernel and interleave_window(parts, window, axis + 1, at * kernel + k)
      or list[1]:zeros_like()
  end
  return interleave_tensors(list, axis + 1)
end


-- Returns the input's values at the position of the first maximum of each window, zeros elsewhere.
local function unpool_maxima(net, x, pooled)
  local window, y = pooled.window, pooled.y
  if not tables.same(x.shape, y.shape) then
    net:fail("shape", "the input has shape %s, the pooling gave %s", Error.show(x.shape),
      Error.show(y.shape))
  end
  local parts, found = {}, nil
  visit_shifts(net, pooled.x, window, LEAST, function(slice)
    local here = slice:eq(y)
    if found then
      here, found = here * (1 - found), found:maximum(here)
    else
      found = here
    end
    parts[#parts + 1] = x * here:block()
  end)
  local wide, before, after = interleave_window(parts, window, 1, 0), {}, {}
  for k = 1, #window.kernel do
    local size, pad = pooled.x.shape[k + 2], window.pad[k]
    local to = math.min(wide.shape[k + 2], pad + size)
    wide = wide:slice(k + 1, pad, to)
    before[k], after[k] = 0, size - (to - pad)
  end
  return wide:pad(before, after, "constant", 0)
end


-- Returns a layer that reverses the pooling over n axes of the module in its field `pooling`.
local function make_unpooling(n)
  return function(net, m, x)
    local pooled = net.pooled and net.pooled[net:module(m, "pooling")]
    if not pooled then
      net:fail("value", "the pooling that it refers to has not been run before")
    end
    local window, overlap = pooled.window, has_dilation(pooled.window)
    for i, k in ipairs(window.kernel) do
      overlap = overlap or k > window.stride[i]
    end
    if overlap then
      net:fail("unsupported", "the windows of the pooling overlap")
    end
    return batched(net, x, n, function(images) return unpool_maxima(net, images, pooled) end)
  end
end

layers.tensor("nn.SpatialMaxUnpooling", make_unpooling(2))
layers.tensor("nn.VolumetricMaxUnpooling", make_unpooling(3))

layers.refuse("nn.SpatialFractionalMaxPooling nn.VolumetricFractionalMaxPooling",
  "its windows are drawn anew in each run")
layers.refuse("nn.TemporalDynamicKMaxPooling", "there is no operator that keeps the order of the \
largest elements")

