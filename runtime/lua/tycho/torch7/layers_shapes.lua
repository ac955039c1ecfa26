--- Layers of Torch7 that change shapes, select parts, pad and reduce. For `torch7/import.lua`.
--
-- @module tycho.torch7.layers_shapes

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local layers = require "tycho.torch7.layers"
local tables = require "tycho.core.tables"
local Tensor = require "tycho.torch7.tensor"


-- Views -------------------------------------------------------------------------------------------

-- Returns a copy of sizes in which a -1 is computed from `count`, the number of elements; raises an
-- error if no size fits.
local function complete_sizes(net, sizes, count)
  local shape, open, product = {}, nil, 1
  for i, n in ipairs(sizes) do
    if n == -1 and not open then
      open = i
    elseif n < 1 then
      net:fail("shape", "sizes %s", table.concat(sizes, " x "))
    else
      product = product * n
    end
    shape[i] = n
  end
  if open then
    shape[open] = count / product
  end
  if open and shape[open] % 1 ~= 0 or not open and product ~= count then
    net:fail("shape", "%d elements cannot be viewed as %s", count, table.concat(sizes, " x "))
  end
  return shape
end


-- Returns the number of batches that a View makes of the input; nil if it is viewed as a whole.
local function count_batches(net, m, x, sizes)
  local n, most = #x.shape, m.numInputDims and net:integer(m, "numInputDims") or #x.shape
  local inner, elements, open = 1, 1, false
  for _, size in ipairs(sizes) do
    elements = elements * (size >= 0 and size or 1)
    open = open or size == -1
  end
  for i = math.max(n - most + 1, 1), n do
    inner = inner * x.shape[i]
  end
  if elements < 1 or inner % elements ~= 0 then
    net:fail("shape", "the input of shape %s cannot be viewed as %s", Error.show(x.shape),
      table.concat(sizes, " x "))
  end
  local count = open and 1 or inner / elements
  for i = 1, n - most do
    count = count * x.shape[i]
  end
  if count == 1 and (not m.numInputDims or n <= most) then
    return nil
  end
  return count
end


layers.tensor("nn.View", function(net, m, x)
  local sizes = net:integers(m, "size")
  if not sizes or #sizes == 0 then
    net:fail("value", "the field 'size' is missing")
  end
  local count = count_batches(net, m, x, sizes)
  if count then
    table.insert(sizes, 1, count)
  end
  return x:reshape(complete_sizes(net, sizes, x:size()))
end)

layers.tensor("nn.Reshape", function(net, m, x)
  local sizes = net:integers(m, "size")
  if not sizes or #sizes == 0 then
    net:fail("value", "the field 'size' is missing")
  end
  local whole = m.batchMode == false or m.batchMode == nil
    and x:size() == tables.product(sizes) and x.shape[1] ~= 1
  if not whole then
    table.insert(sizes, 1, x.shape[1])
  end
  return x:reshape(complete_sizes(net, sizes, x:size()))
end)

-- Removes all axes of one element, or the axis in the module's field.
layers.tensor("nn.Squeeze", function(net, m, x)
  local dims = m.numInputDims
  local shape = {}
  if m.dim == nil then
    for _, n in ipairs(x.shape) do
      shape[#shape + 1] = n ~= 1 and n or nil
    end
  else
    local axis = net:axis(net:integer(m, "dim"), #x.shape, dims)
    shape = tables.copied(x.shape)
    if shape[axis + 1] == 1 then
      table.remove(shape, axis + 1)
    end
  end
  return x:reshape(#shape > 0 and shape or { 1 })
end)

layers.tensor("nn.Unsqueeze", function(net, m, x)
  local dims = net:integer(m, "numInputDims", #x.shape)
  local axis = net:integer(m, "pos", nil, 1) + #x.shape - dims - 1
  if axis < 0 or axis > #x.shape then
    net:fail("shape", "no axis can be added at %d in %s", axis, Error.show(x.shape))
  end
  return x:unsqueeze(axis)
end)

layers.tensor("nn.Transpose", function(net, m, x)
  local list = m.permutations
  if type(list) ~= "table" or class.is_array(list) then
    net:fail("value", "the field 'permutations' is %s", Error.kind(list))
  end
  for i = 1, #list do
    local swap = net:integers(list, i)
    x = x:swap(net:axis(swap[1] or 0, #x.shape), net:axis(swap[2] or 0, #x.shape))
  end
  return x
end)

layers.tensor("nn.Replicate", function(net, m, x)
  local n, axis = net:integer(m, "nfeatures", nil, 1), net:integer(m, "dim", 1, 1) - 1
  if m.ndim and #x.shape > net:integer(m, "ndim") then
    axis = axis + 1
  end
  if axis > #x.shape then
    net:fail("shape", "no axis can be added at %d in %s", axis, Error.show(x.shape))
  end
  local y = x:unsqueeze(axis)
  local shape = tables.copied(y.shape)
  shape[axis + 1] = n
  return y:expand(shape)
end)

-- Joins all axes but that of the batch.
layers.tensor("nn.Collapse", function(net, m, x)
  local dims = net:integer(m, "nInputDim", nil, 1)
  local batch = #x.shape > dims and x.shape[1]
  return x:reshape(batch and { batch, x:size() / batch } or { x:size() })
end)

-- Returns a constant, repeated for each entry of a batch.
layers.tensor("nn.Constant", function(net, m, x)
  local value = net:parameter(m, "value"):block()
  local dims = m.nInputDim and net:integer(m, "nInputDim")
  if not dims or #x.shape <= dims then
    return value
  end
  local shape = { x.shape[1], unpack(value.shape) }
  return value:unsqueeze(0):expand(shape)
end)

layers.tensor("nn.SeqReverseSequence", function(net, m, x)
  return x:reverse(net:axis(net:integer(m, "dim", 1), #x.shape))
end)

layers.tensor("nn.PixelShuffle", function(net, m, x)
  net:need_dims(x, 3, 4)
  local r = net:integer(m, "upscaleFactor", nil, 1)
  local y = #x.shape == 3 and x:unsqueeze(0) or x
  local n, channels, height, width = unpack(y.shape)
  local maps = channels / (r * r)
  if maps % 1 ~= 0 then
    net:fail("shape", "%d channels for a factor of %d", channels, r)
  end
  y = y:reshape{ n, maps, r, r, height, width }:transpose{ 0, 1, 4, 2, 5, 3 }
    :reshape{ n, maps, height * r, width * r }
  return #x.shape == 3 and y:reshape{ maps, height * r, width * r } or y
end)


-- Parts -------------------------------------------------------------------------------------------

layers.tensor("nn.Narrow", function(net, m, x)
  local axis = net:axis(net:integer(m, "dimension"), #x.shape)
  local size = x.shape[axis + 1]
  local index, length = net:integer(m, "index"), net:integer(m, "length", 1)
  index = index < 0 and size + index + 1 or index
  length = length < 0 and size - index + length + 2 or length
  return x:slice(axis, index - 1, index - 1 + length)
end)

layers.tensor("nn.Select", function(net, m, x)
  local axis = net:axis(net:integer(m, "dimension"), #x.shape)
  local index = net:integer(m, "index")
  index = index < 0 and x.shape[axis + 1] + index or index - 1
  return x:select(axis, index)
end)

-- Takes slices of the first entry, by the indices (from 1) in the second.
layers.table("nn.Index", function(net, m, x)
  if #x ~= 2 or not Tensor.is(x[1]) or not Tensor.is(x[2]) or #x[2].shape ~= 1 then
    net:fail("value", "the input is no tensor with a list of indices")
  end
  local axis = net:axis(net:integer(m, "dimension"), #x[1].shape)
  local shape = tables.copied(x[1].shape)
  shape[axis + 1] = x[2].shape[1]
  return Tensor.call("take", { x[1], x[2] - 1 }, { axis = axis, mode = "clip" }, shape)
end)

-- Returns the rows of a unit matrix by indices from 1. OneHot is a class of char-rnn.
layers.tensor("OneHot nn.OneHot", function(net, m, x)
  local n = net:integer(m, "outputSize", nil, 1)
  local shape = tables.copied(x.shape)
  shape[#shape + 1] = n
  return Tensor.call("one_hot", { x - 1 }, { depth = n, dtype = net.dtype }, shape)
end)

-- Returns the position of the maximum along an axis, from 1.
layers.tensor("nn.ArgMax", function(net, m, x)
  local axis = net:axis(net:integer(m, "dim", 1), #x.shape, m.nInputDim)
  local shape = tables.copied(x.shape)
  table.remove(shape, axis + 1)
  shape = #shape > 0 and shape or { 1 }
  return net:cast(Tensor.call("argmax", { x }, { axis = axis }, shape), net.dtype) + 1
end)

layers.refuse("nn.SpatialGlimpse nn.SpatialUniformCrop nn.SpatialRegionDropout "
  .. "nn.SimpleColorTransform nn.PCAColorTransform", "it is meant for images before a network")


-- Padding -----------------------------------------------------------------------------------------

-- Inserts |pad| slices of a value along an axis, at an index that counts from the start if `pad` is
-- negative, else from the end.
layers.tensor("nn.Padding", function(net, m, x)
  local dim = net:integer(m, "dim")
  local axis = net:axis(dim, #x.shape)
  if m.nInputDim and #x.shape ~= net:integer(m, "nInputDim") and dim > 0 then
    axis = net:axis(dim + 1, #x.shape)
  end
  local pad, size = net:integer(m, "pad"), x.shape[axis + 1]
  local index = net:integer(m, "index", 1, 1)
  if pad == 0 then
    return x
  end
  local at = pad > 0 and size - index + 1 or index - 1
  if at < 0 or at > size then
    net:fail("index", "index %d in an axis of %d", index, size)
  end
  local shape = tables.copied(x.shape)
  shape[axis + 1] = math.abs(pad)
  local parts = { net:full(shape, net:number(m, "value", 0)) }
  if at > 0 then
    table.insert(parts, 1, x:slice(axis, 0, at))
  end
  if at < size then
    parts[#parts + 1] = x:slice(axis, at, size)
  end
  return Tensor.concat(parts, axis)
end)

-- Returns x with `before` and `after` elements added around its last axes; negative numbers cut.
local function pad_borders(net, x, before, after, mode)
  local spatial = #before
  net:need_dims(x, spatial + 1, spatial + 2)
  local y = #x.shape == spatial + 1 and x:unsqueeze(0) or x
  for k = 1, spatial do
    local size = y.shape[k + 2]
    local from, to = math.max(-before[k], 0), size - math.max(-after[k], 0)
    if from >= to then
      net:fail("shape", "nothing is left of an axis of %d", size)
    end
    y = y:slice(k + 1, from, to)
    if mode == "reflect" and math.max(before[k], after[k]) >= size then
      net:fail("shape", "a padding of %d reflects an axis of %d", math.max(before[k], after[k]),
        size)
    end
    before[k], after[k] = math.max(before[k], 0), math.max(after[k], 0)
  end
  y = y:pad(before, after, mode)
  return #x.shape == spatial + 1 and y:reshape(tables.part(y.shape, 2, #y.shape)) or y
end

for name, mode in pairs{ ["nn.SpatialZeroPadding"] = "constant",
    ["nn.SpatialReflectionPadding"] = "reflect", ["nn.SpatialReplicationPadding"] = "edge" } do
  layers.tensor(name, function(net, m, x)
    local left = net:integer(m, "pad_l", 0)
    return pad_borders(net, x, { net:integer(m, "pad_t", left), left },
      { net:integer(m, "pad_b", left), net:integer(m, "pad_r", left) }, mode)
  end)
end

layers.tensor("nn.VolumetricReplicationPadding", function(net, m, x)
  return pad_borders(net, x, { net:integer(m, "pfront"), net:integer(m, "ptop"),
    net:integer(m, "pleft") }, { net:integer(m, "pback"), net:integer(m, "pbottom"),
    net:integer(m, "pright") }, "edge")
end)

-- Cuts off the borders of images; a class of fast-neural-style.
layers.tensor("nn.ShaveImage", function(net, m, x)
  local n = net:integer(m, "size", nil, 0)
  return pad_borders(net, x, { -n, -n }, { -n, -n }, "constant")
end)


-- Reductions --------------------------------------------------------------------------------------

-- Returns y without an axis (from 0) of one element, unless it is the only axis.
local function squeeze_axis(y, axis)
  if #y.shape == 1 then
    return y
  end
  local shape = tables.copied(y.shape)
  table.remove(shape, axis + 1)
  return y:reshape(shape)
end

-- Returns the sum or the average of x over the axis in the module's field `dimension`.
local function reduce_axis(net, m, x, average)
  local axis = net:axis(net:integer(m, "dimension", 1), #x.shape, m.nInputDims)
  local y = average and x:mean(axis) or x:sum(axis)
  return m.squeeze ~= false and squeeze_axis(y, axis) or y
end

layers.tensor("nn.Sum", function(net, m, x) return reduce_axis(net, m, x, m.sizeAverage) end)
layers.tensor("nn.Mean", function(net, m, x) return reduce_axis(net, m, x, true) end)

for name, op in pairs{ ["nn.Max"] = "max", ["nn.Min"] = "min" } do
  layers.tensor(name, function(net, m, x)
    local axis = net:axis(net:integer(m, "dimension", 1), #x.shape, m.nInputDims)
    return squeeze_axis(x:reduce(op, axis), axis)
  end)
end
