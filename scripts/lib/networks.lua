--- The networks of the scripts on images. Each function takes the number of `classes` and returns a
-- symbol that ends in a SoftmaxOutput named "softmax"; its input "data" is an array of images (N,
-- channels, height, width).
--
--     local net = networks.resnet{depth = 20, classes = 10}

local ty = require "tycho"

local networks = {}

local function relu(x, name)
  return ty.sym.Activation{data = x, act_type = "relu", name = name}
end

-- Returns the input variable. It contains the shape of one image, which is saved with the network,
-- so that scripts that load it know its input.
local function input(shape)
  return ty.sym.Variable("data", {shape = {0, unpack(shape)}})
end

--- Returns the sizes of an image that a loaded network expects; nil if it does not state them.
-- @tparam Symbol net
-- @treturn ?{int,...} {channels, height, width}
function networks.input_shape(net)
  local text = (net:attr_dict().data or {}).__shape__
  local shape = {}
  for size in (text or ""):gmatch("%d+") do
    shape[#shape + 1] = tonumber(size)
  end
  table.remove(shape, 1)
  return #shape > 0 and shape or nil
end

--- Returns a network of three fully connected layers.
-- @tparam table a classes = 10, shape = {1, 28, 28}
function networks.mlp(a)
  local x = ty.sym.Flatten{data = input(a.shape or {1, 28, 28})}
  x = relu(ty.sym.FullyConnected{data = x, num_hidden = 128, name = "fc1"}, "relu1")
  x = relu(ty.sym.FullyConnected{data = x, num_hidden = 64, name = "fc2"}, "relu2")
  return networks.head(x, a.classes, "fc3")
end

--- Returns a network of two convolutions and two fully connected layers.
-- @tparam table a classes = 10, shape = {1, 28, 28}, pool_type = "max"
function networks.lenet(a)
  local x = input(a.shape or {1, 28, 28})
  for i, filters in ipairs{20, 50} do
    x = ty.sym.Convolution{data = x, num_filter = filters, kernel = {5, 5}, name = "conv" .. i}
    x = ty.sym.Activation{data = x, act_type = "tanh", name = "tanh" .. i}
    x = ty.sym.Pooling{data = x, kernel = {2, 2}, stride = {2, 2}, pool_type = a.pool_type or "max",
      name = "pool" .. i}
  end
  x = ty.sym.FullyConnected{data = ty.sym.Flatten{data = x, name = "flatten"},
    num_hidden = 500, name = "fc1"}
  return networks.head(ty.sym.Activation{data = x, act_type = "tanh", name = "tanh3"},
    a.classes, "fc2")
end

--- Returns the names of the classes of a loaded network; nil if it does not state them.
-- @tparam Symbol net
-- @treturn ?{string,...}
function networks.class_names(net)
  local text, names = (net:attr_dict().softmax or {}).__classes__, {}
  for name in (text or ""):gmatch("[^,]+") do
    names[#names + 1] = name
  end
  return text and names
end

--- Returns a fully connected layer and a softmax on top of features.
-- @tparam Symbol x
-- @int[opt=10] classes
-- @string name of the layer
-- @tparam[opt] {string,...} names of the classes, which are saved with the network
function networks.head(x, classes, name, names)
  return ty.sym.SoftmaxOutput{
    data = ty.sym.FullyConnected{data = x, num_hidden = classes or 10, name = name},
    name = "softmax", attr = names and {__classes__ = table.concat(names, ",")},
  }
end


-- Residual networks -------------------------------------------------------------------------------
-- He et al., Identity Mappings in Deep Residual Networks (2016): normalise, activate,
-- convolve, twice; then add the input.

local function norm_relu(x, name)
  return relu(ty.sym.BatchNorm{data = x, fix_gamma = false, eps = 2e-5, momentum = 0.9,
    name = name}, name .. "_relu")
end

local function conv(x, filters, size, stride, name)
  return ty.sym.Convolution{data = x, num_filter = filters, kernel = {size, size},
    stride = {stride, stride}, pad = {(size - 1) / 2, (size - 1) / 2}, no_bias = true, name = name}
end

-- Returns a residual block. If the sizes change, a 1 x 1 convolution of the activated input
-- replaces the input in the sum.
local function block(x, filters, stride, changes, name)
  local active = norm_relu(x, name .. "_bn1")
  local shortcut = changes and conv(active, filters, 1, stride, name .. "_shortcut") or x
  local y = conv(active, filters, 3, stride, name .. "_conv1")
  y = conv(norm_relu(y, name .. "_bn2"), filters, 3, 1, name .. "_conv2")
  return y + shortcut
end

--- Returns a residual network for small images.
-- @tparam table a depth = 20: 6 n + 2 (20, 32, 44, 56, 110 are usual);
--   classes = 10; shape = {3, 32, 32}
function networks.resnet(a)
  local depth = a.depth or 20
  local blocks = (depth - 2) / 6
  assert(blocks >= 1 and blocks % 1 == 0,
    "the depth of a ResNet is 6 n + 2 (8, 14, 20, 56, 110), not " .. depth)
  local x = conv(input(a.shape or {3, 32, 32}), 16, 3, 1, "conv0")
  for stage, filters in ipairs{16, 32, 64} do
    for i = 1, blocks do
      x = block(x, filters, stage > 1 and i == 1 and 2 or 1, i == 1,
        ("stage%d_unit%d"):format(stage, i))
    end
  end
  x = norm_relu(x, "bn_last")
  x = ty.sym.Pooling{data = x, global_pool = true, kernel = {1, 1},
    pool_type = "avg", name = "pool"}
  return networks.head(ty.sym.Flatten{data = x, name = "flatten"}, a.classes, "fc")
end

return networks
