--- Convolutions and resampling layers of Torch7. For `torch7/import.lua`.
--
-- Layers for images accept an image without a batch too.
--
-- @module tycho.torch7.layers_convolutions

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Error = require "tycho.core.error"
local layers = require "tycho.torch7.layers"
local tables = require "tycho.core.tables"
local Tensor = require "tycho.torch7.tensor"

local convolutions = {}

-- names of the fields of sizes, strides, paddings by the number of axes
local AXES = { [1] = { "W" }, [2] = { "H", "W" }, [3] = { "T", "H", "W" } }


--- Returns the integers in the fields of a module: prefix .. "H", prefix .. "W".
-- @tparam Net net
-- @tparam table m module
-- @string prefix "k", "d", "pad" ...
-- @int n axes
-- @param default for missing fields; nil: a missing field is an error
-- @int least smallest allowed value
function convolutions.sizes(net, m, prefix, n, default, least)
  local list = {}
  for i, letter in ipairs(AXES[n]) do
    list[i] = net:integer(m, prefix .. letter, type(default) == "table" and default[i] or default,
      least)
  end
  return list
end

local sizes = convolutions.sizes


--- Returns f(x). An input without a batch is passed to f as a batch of one, and the result loses
-- this axis.
-- @tparam Net net
-- @tparam Tensor x
-- @int n axes of an image
-- @tparam function f of a tensor with a batch
function convolutions.batched(net, x, n, f)
  net:need_dims(x, n + 1, n + 2)
  if #x.shape == n + 2 then
    return f(x)
  end
  local y = f(x:unsqueeze(0))
  return y:reshape(tables.part(y.shape, 2, #y.shape))
end

local batched = convolutions.batched


--- Returns the number of positions of a moving window along each axis.
function convolutions.moved(net, x, kernel, stride, pad, dilation)
  local shape = {}
  for i, k in ipairs(kernel) do
    local reach = (dilation and dilation[i] or 1) * (k - 1) + 1
    local steps = x.shape[i + 2] + 2 * pad[i] - reach
    if steps < 0 then
      net:fail("shape", "the input of shape %s is smaller than the kernel of %s",
        Error.show(x.shape), table.concat(kernel, " x "))
    end
    shape[i] = math.floor(steps / stride[i]) + 1
  end
  return shape
end


-- Returns the shape of an output: the input's batch, that many channels, and the spatial sizes.
local function make_target_shape(x, channels, spatial)
  return { x.shape[1], channels, unpack(spatial) }
end


-- Returns the numbers of a module's output and input planes.
local function read_planes(net, m)
  return net:integer(m, "nOutputPlane", nil, 1), net:integer(m, "nInputPlane", nil, 1)
end


-- Returns a convolution with a weight (out, in / groups, ...).
local function convolve_images(net, x, weight, bias, p)
  local planes = weight.shape[2] * (p.groups or 1)
  if x.shape[2] ~= planes then
    net:fail("shape", "the input has %d channels, the weight is for %d", x.shape[2], planes)
  end
  local spatial = convolutions.moved(net, x, p.kernel, p.stride, p.pad, p.dilation)
  return Tensor.call("Convolution", { x, weight, bias }, { kernel = p.kernel, stride = p.stride,
    pad = p.pad, dilate = p.dilation or {}, num_filter = weight.shape[1],
    num_group = p.groups or 1, no_bias = not bias }, make_target_shape(x, weight.shape[1], spatial),
    net:name())
end


-- Returns the paddings of a module; old files have a single field `padding`, or none.
local function read_paddings(net, m, n)
  return sizes(net, m, "pad", n, m.padding ~= nil and net:integer(m, "padding") or 0, 0)
end


-- Returns a layer of convolutions over n axes.
local function make_convolution(n)
  return function(net, m, x)
    local kernel, groups = sizes(net, m, "k", n, nil, 1), net:integer(m, "groups", 1, 1)
    local out, planes = read_planes(net, m)
    if planes % groups ~= 0 or out % groups ~= 0 then
      net:fail("value", "%d and %d planes in %d groups", planes, out, groups)
    end
    local weight = net:parameter(m, "weight", { out, planes / groups, unpack(kernel) })
    local bias = net:optional(m, "bias", { out })
    return batched(net, x, n, function(images)
      return convolve_images(net, images, weight, bias, { kernel = kernel, groups = groups,
        stride = sizes(net, m, "d", n, 1, 1), pad = read_paddings(net, m, n),
        dilation = sizes(net, m, "dilation", n, 1, 1) })
    end)
  end
end

layers.tensor("nn.SpatialConvolution nn.SpatialConvolutionMM nn.SpatialDilatedConvolution",
  make_convolution(2))
layers.tensor("nn.VolumetricConvolution nn.VolumetricDilatedConvolution", make_convolution(3))


-- Transposed convolutions -------------------------------------------------------------------------

-- Returns the numbers of rows and columns that a transposed convolution adds at the end: those of
-- the module, or those for the size of a second input, `target`.
local function read_adjustments(net, m, n, target, kernel, stride, pad)
  local adj = sizes(net, m, "adj", n, 0, 0)
  for i = 1, target and n or 0 do
    local size = target.shape[#target.shape - n + i]
    adj[i] = (size + 2 * pad[i] - kernel[i]) % stride[i]
  end
  return adj
end


-- Returns a transposed convolution with a weight (in, out / groups, ...).
local function deconvolve_images(net, x, weight, bias, p)
  if x.shape[2] ~= weight.shape[1] then
    net:fail("shape", "the input has %d channels, the weight is for %d", x.shape[2],
      weight.shape[1])
  end
  local out, spatial = weight.shape[2] * (p.groups or 1), {}
  for i, k in ipairs(p.kernel) do
    spatial[i] = (x.shape[i + 2] - 1) * p.stride[i] - 2 * p.pad[i] + k + p.adj[i]
    if spatial[i] < 1 or p.adj[i] >= p.stride[i] then
      net:fail("shape", "an axis of %d becomes one of %d (adjusted by %d, stride %d)",
        x.shape[i + 2], spatial[i], p.adj[i], p.stride[i])
    end
  end
  return Tensor.call("Deconvolution", { x, weight, bias }, { kernel = p.kernel, stride = p.stride,
    pad = p.pad, adj = p.adj, num_filter = out, num_group = p.groups or 1, no_bias = not bias },
    make_target_shape(x, out, spatial), net:name())
end


-- Returns a layer of transposed convolutions over n axes.
local function make_full_convolution(n)
  return function(net, m, x)
    local target
    if not Tensor.is(x) then
      x, target = x[1], x[2]
      if not (Tensor.is(x) and Tensor.is(target)) or #target.shape < n then
        net:fail("type", "the input is no tensor with one of the wanted size")
      end
    end
    local kernel, stride = sizes(net, m, "k", n, nil, 1), sizes(net, m, "d", n, 1, 1)
    local pad, groups = sizes(net, m, "pad", n, 0, 0), net:integer(m, "groups", 1, 1)
    local out, planes = read_planes(net, m)
    local weight = net:parameter(m, "weight", { planes, out / groups, unpack(kernel) })
    local bias = net:optional(m, "bias", { out })
    return batched(net, x, n, function(images)
      return deconvolve_images(net, images, weight, bias, { kernel = kernel,
        stride = stride, pad = pad,
        groups = groups, adj = read_adjustments(net, m, n, target, kernel, stride, pad) })
    end)
  end
end

layers.any("nn.SpatialFullConvolution", make_full_convolution(2))
layers.any("nn.VolumetricFullConvolution", make_full_convolution(3))


-- Other convolutions ------------------------------------------------------------------------------

-- Computes nOutputPlane maps of each plane separately; the weight is (multiplier, in, kH, kW). As
-- in Torch, the elements are read as an image with height and width exchanged.
layers.tensor("nn.SpatialDepthWiseConvolution", function(net, m, x)
  local kernel = sizes(net, m, "k", 2, nil, 1)
  local times, planes = read_planes(net, m)
  local weight = net:parameter(m, "weight", { times, planes, kernel[1], kernel[2] })
    :transpose{ 1, 0, 2, 3 }:reshape{ planes * times, 1, kernel[1], kernel[2] }
  local bias = net:optional(m, "bias", { times, planes })
  bias = bias and bias:transpose{ 1, 0 }:reshape{ planes * times }
  return batched(net, x, 2, function(images)
    local n, channels, height, width = unpack(images.shape)
    images = images:reshape{ n, channels, width, height }
    return convolve_images(net, images, weight, bias, { kernel = kernel, groups = planes,
      stride = sizes(net, m, "d", 2, 1, 1), pad = read_paddings(net, m, 2) })
  end)
end)

-- Returns the rows {from, to} (from 0) of a module's connection table, then its numbers of input
-- and output planes. Raises an error if a row contains an invalid plane.
local function read_connections(net, m)
  local rows = net:numbers(m, "connTable")
  local out, planes = read_planes(net, m)
  for i, row in ipairs(rows) do
    local from, to = type(row) == "table" and row[1], type(row) == "table" and row[2]
    if not (from and to and from >= 1 and from <= planes and to >= 1 and to <= out)
        or from % 1 ~= 0 or to % 1 ~= 0 then
      net:fail("value", "row %d of the connection table", i)
    end
    rows[i] = { from - 1, to - 1 }
  end
  return rows, planes, out
end

-- Returns the weight of a full convolution from the kernels of some pairs of planes; those of other
-- pairs are 0. It is the product of a matrix of 0 and 1 with the kernels. `first`: whether the
-- input's planes are the first axis.
local function make_mapped_weight(net, m, kernel, first)
  local rows, planes, out = read_connections(net, m)
  local count, matrix = planes * out, {}
  if count * #rows > 2 ^ 24 then
    net:fail("value", "%d connections between %d and %d planes", #rows, planes, out)
  end
  for i = 1, count do
    matrix[i] = {}
    for k = 1, #rows do
      matrix[i][k] = 0
    end
  end
  for k, row in ipairs(rows) do
    local at = first and row[1] * out + row[2] or row[2] * planes + row[1]
    matrix[at + 1][k] = 1
  end
  local kernels = net:parameter(m, "weight", { #rows, kernel[1] * kernel[2] })
  local weight = Tensor.dot(net:constant(matrix, "connections"), kernels)
  return weight:reshape(first and { planes, out, unpack(kernel) } or { out, planes,
    unpack(kernel) }), out
end

layers.tensor("nn.SpatialConvolutionMap", function(net, m, x)
  local kernel = sizes(net, m, "k", 2, nil, 1)
  local weight, out = make_mapped_weight(net, m, kernel, false)
  return batched(net, x, 2, function(images)
    return convolve_images(net, images, weight, net:optional(m, "bias", { out }), { kernel = kernel,
      stride = sizes(net, m, "d", 2, 1, 1), pad = { 0, 0 } })
  end)
end)

layers.tensor("nn.SpatialFullConvolutionMap", function(net, m, x)
  local kernel = sizes(net, m, "k", 2, nil, 1)
  local weight, out = make_mapped_weight(net, m, kernel, true)
  return batched(net, x, 2, function(images)
    return deconvolve_images(net, images, weight, net:optional(m, "bias", { out }), {
      kernel = kernel, stride = sizes(net, m, "d", 2, 1, 1), pad = { 0, 0 }, adj = { 0, 0 } })
  end)
end)

-- Applies a different kernel at each position, as a product with the window's column.
layers.tensor("nn.SpatialConvolutionLocal", function(net, m, x)
  local kernel, stride = sizes(net, m, "k", 2, nil, 1), sizes(net, m, "d", 2, 1, 1)
  local pad = sizes(net, m, "pad", 2, 0, 0)
  local out, planes = read_planes(net, m)
  return batched(net, x, 2, function(images)
    local spatial = convolutions.moved(net, images, kernel, stride, pad)
    if images.shape[2] ~= planes then
      net:fail("shape", "the input has %d channels, the weight is for %d", images.shape[2],
        planes)
    end
    local n, positions = images.shape[1], spatial[1] * spatial[2]
    local inner = planes * kernel[1] * kernel[2]
    local weight = net:parameter(m, "weight", { positions, out, inner })
    local columns = Tensor.call("im2col", { images }, { kernel = kernel, stride = stride,
      pad = pad }, { n, inner, positions })
    local y = Tensor.batch_dot(weight, columns:transpose{ 2, 1, 0 }):transpose{ 2, 1, 0 }
      :reshape{ n, out, spatial[1], spatial[2] }
    local bias = net:optional(m, "bias", { 1, out, spatial[1], spatial[2] })
    return bias and y + bias or y
  end)
end)


-- Sequences: (time, frame) or (batch, time, frame) ------------------------------------------------

--- Returns f(x, batch) of sequences with their frames as channels: (batch, frame, time).
local function apply_to_frames(net, x, f)
  return batched(net, x, 1, function(sequences)
    return f(sequences:swap(1, 2)):swap(1, 2)
  end)
end

convolutions.framed = apply_to_frames

-- Convolves sequences; the weight is (out, kW * in), each step with all its features.
layers.tensor("nn.TemporalConvolution", function(net, m, x)
  local width = net:integer(m, "kW", nil, 1)
  local frame = net:integer(m, "inputFrameSize", nil, 1)
  local out = net:integer(m, "outputFrameSize", nil, 1)
  local weight = net:parameter(m, "weight", { out, width, frame }):transpose{ 0, 2, 1 }
  return apply_to_frames(net, x, function(sequences)
    return convolve_images(net, sequences, weight, net:optional(m, "bias", { out }),
      { kernel = { width }, stride = { net:integer(m, "dW", 1, 1) }, pad = { 0 } })
  end)
end)

-- Convolves each feature of a sequence with a separate kernel.
layers.tensor("nn.TemporalRowConvolution", function(net, m, x)
  local width, frame = net:integer(m, "kW", nil, 1), net:integer(m, "inputFrameSize", nil, 1)
  local weight = net:parameter(m, "weight", { frame, 1, width })
  local function convolve_sequences(sequences)
    return convolve_images(net, sequences, weight, net:optional(m, "bias", { frame }), {
      kernel = { width }, groups = frame, stride = { net:integer(m, "dW", 1, 1) }, pad = { 0 } })
  end
  if m.featFirst == true then
    return batched(net, x, 1, convolve_sequences)
  end
  return apply_to_frames(net, x, convolve_sequences)
end)


-- Resampling --------------------------------------------------------------------------------------

-- Returns x with each element repeated `scale_factor` times along its last n axes.
local function repeat_pixels(net, m, x, n)
  local scale = net:integer(m, "scale_factor", nil, 1)
  for k = 1, n do
    x = x:repeated(scale, #x.shape - n + k - 1)
  end
  return x
end

layers.tensor("nn.SpatialUpSamplingNearest", function(net, m, x)
  net:need_dims(x, 3, 4)
  return repeat_pixels(net, m, x, 2)
end)

-- Returns x enlarged bilinearly; the corner pixels of both grids coincide.
local function resize_linearly(net, m, x)
  return batched(net, x, 2, function(images)
    local shape = tables.copied(images.shape)
    if m.oheight ~= nil and m.owidth ~= nil then
      shape[3], shape[4] = net:integer(m, "oheight", nil, 1), net:integer(m, "owidth", nil, 1)
    else
      local scale = net:integer(m, "scale_factor", nil, 1)
      shape[3], shape[4] = shape[3] * scale, shape[4] * scale
    end
    return Tensor.call("_contrib_BilinearResize2D", { images }, { height = shape[3],
      width = shape[4], align_corners = true }, shape)
  end)
end

layers.tensor("nn.SpatialUpSamplingBilinear", resize_linearly)

layers.tensor("nn.UpSampling", function(net, m, x)
  net:need_dims(x, 3, 5)
  if m.mode == "linear" then
    return resize_linearly(net, m, x)
  elseif m.mode ~= nil and m.mode ~= "nearest" then
    net:fail("value", "the mode is %s", tostring(m.mode))
  end
  return repeat_pixels(net, m, x, #x.shape == 5 and 3 or 2)
end)


return convolutions
