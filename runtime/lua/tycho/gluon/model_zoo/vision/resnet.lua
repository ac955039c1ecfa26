--- Residual networks, of both versions.
--
-- @module tycho.gluon.model_zoo.vision.resnet

local pairs = require("tycho.core.iterate").pairs
local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local families = require "tycho.gluon.model_zoo.families"
local HybridBlock = require "tycho.gluon.hybrid_block"
local layer = require "tycho.gluon.layer"
local nn = require "tycho.gluon.nn"

local resnet = { classes = {}, functions = {}, models = {} }


local function conv3x3(channels, stride, in_channels)
  return nn.Conv2D{ channels, 3, strides = stride, padding = 1, use_bias = false,
    in_channels = in_channels }
end


local function apply_relu(x)
  return F.Activation{ x, act_type = "relu" }
end


-- Units -------------------------------------------------------------------------------------------

local UNIT = { { "channels", "positive" }, { "stride", "positive" },
  { "downsample", "boolean", false }, { "in_channels", "integer", 0 } }

local function define_unit(name, set_up, forward)
  local class = layer.extend(HybridBlock, "model_zoo.vision." .. name, UNIT)
  class.scoped, class.set_up, class.forward = false, set_up, forward
  resnet.classes[name] = class
  return class
end


-- Returns the shortcut of version 1 if sizes change, else nil.
local function shortcut_v1(a)
  local path = nn.HybridSequential{ prefix = "" }
  path:add(nn.Conv2D{ a.channels, 1, strides = a.stride, use_bias = false,
    in_channels = a.in_channels }, nn.BatchNorm())
  return path
end


-- The operands of the sums in both forwards have the reference's order, which determines the order
-- of arguments of exported networks.
local function forward_basic_v1(self, x)
  local y, shortcut = self.body(x), self.downsample
  return apply_relu((shortcut and shortcut(x) or x) + y)
end


local function forward_bottleneck_v1(self, x)
  local y, shortcut = self.body(x), self.downsample
  return apply_relu(y + (shortcut and shortcut(x) or x))
end


--- Two convolutions, normalization after each.
local BasicBlockV1 = define_unit("BasicBlockV1", function(self, a)
  self.body = nn.HybridSequential{ prefix = "" }
  self.body:add(conv3x3(a.channels, a.stride, a.in_channels), nn.BatchNorm(),
    nn.Activation("relu"), conv3x3(a.channels, 1, a.channels), nn.BatchNorm())
  if a.downsample then
    self.downsample = shortcut_v1(a)
  end
end, forward_basic_v1)

--- Three convolutions, the middle one of a quarter of the channels.
local BottleneckV1 = define_unit("BottleneckV1", function(self, a)
  local inner = math.floor(a.channels / 4)
  self.body = nn.HybridSequential{ prefix = "" }
  self.body:add(nn.Conv2D{ inner, 1, strides = a.stride }, nn.BatchNorm(), nn.Activation("relu"),
    conv3x3(inner, 1, inner), nn.BatchNorm(), nn.Activation("relu"),
    nn.Conv2D{ a.channels, 1, strides = 1 }, nn.BatchNorm())
  if a.downsample then
    self.downsample = shortcut_v1(a)
  end
end, forward_bottleneck_v1)


-- Returns the shortcut of version 2 if sizes change, else nil.
local function shortcut_v2(a)
  return nn.Conv2D{ a.channels, 1, a.stride, use_bias = false, in_channels = a.in_channels }
end


--- Like BasicBlockV1, with normalization before each convolution.
local BasicBlockV2 = define_unit("BasicBlockV2", function(self, a)
  self.bn1 = nn.BatchNorm()
  self.conv1 = conv3x3(a.channels, a.stride, a.in_channels)
  self.bn2 = nn.BatchNorm()
  self.conv2 = conv3x3(a.channels, 1, a.channels)
  if a.downsample then
    self.downsample = shortcut_v2(a)
  end
end, function(self, x)
  local y = apply_relu(self.bn1(x))
  local residual = self.downsample and self.downsample(y) or x
  y = apply_relu(self.bn2(self.conv1(y)))
  return self.conv2(y) + residual
end)

--- Like BottleneckV1, with normalization before each convolution.
local BottleneckV2 = define_unit("BottleneckV2", function(self, a)
  local inner = math.floor(a.channels / 4)
  self.bn1 = nn.BatchNorm()
  self.conv1 = nn.Conv2D{ inner, 1, strides = 1, use_bias = false }
  self.bn2 = nn.BatchNorm()
  self.conv2 = conv3x3(inner, a.stride, inner)
  self.bn3 = nn.BatchNorm()
  self.conv3 = nn.Conv2D{ a.channels, 1, strides = 1, use_bias = false }
  if a.downsample then
    self.downsample = shortcut_v2(a)
  end
end, function(self, x)
  local y = apply_relu(self.bn1(x))
  local residual = self.downsample and self.downsample(y) or x
  y = apply_relu(self.bn2(self.conv1(y)))
  y = apply_relu(self.bn3(self.conv2(y)))
  return self.conv3(y) + residual
end)


-- Networks ----------------------------------------------------------------------------------------

local NET = { { "block", "any" }, { "layers", "list" }, { "channels", "list" },
  { "classes", "positive", 1000 }, { "thumbnail", "boolean", false } }


-- Adds the first layers; for thumbnails a single convolution.
local function add_stem(features, channels, thumbnail)
  if thumbnail then
    features:add(conv3x3(channels, 1, 0))
    return
  end
  features:add(nn.Conv2D{ channels, 7, 2, 3, use_bias = false }, nn.BatchNorm(),
    nn.Activation("relu"), nn.MaxPool2D(3, 2, 1))
end


-- Adds the stages of units; each stage except the first halves the resolution.
local function add_stages(features, a)
  for i, count in ipairs(a.layers) do
    local channels, before = a.channels[i + 1], a.channels[i]
    local stage = nn.HybridSequential{ prefix = ("stage%d_"):format(i) }
    stage:name_scope(function()
      stage:add(a.block{ channels, i == 1 and 1 or 2, channels ~= before, in_channels = before,
        prefix = "" })
      for _ = 2, count do
        stage:add(a.block{ channels, 1, false, in_channels = channels, prefix = "" })
      end
    end)
    features:add(stage)
  end
end


local function apply_network(self, x)
  return self.output(self.features(x))
end


local function define_net(name, set_up)
  local class = layer.extend(HybridBlock, "model_zoo.vision." .. name, NET)
  function class:set_up(a)
    if #a.layers ~= #a.channels - 1 then
      Error.raise{ code = "value", func = "model_zoo.vision." .. name, argument = "channels",
        expected = #a.layers + 1, got = #a.channels,
        message = "channels has one entry more than layers" }
    end
    self.features = nn.HybridSequential{ prefix = "" }
    set_up(self.features, a)
    self.output = nn.Dense{ a.classes, in_units = a.channels[#a.channels] }
  end
  class.forward = apply_network
  resnet.classes[name] = class
  return class
end


--- Fields: features, output. `ResNetV1(block, layers, channels, classes, thumbnail)`.
-- @type ResNetV1
local ResNetV1 = define_net("ResNetV1", function(features, a)
  add_stem(features, a.channels[1], a.thumbnail)
  add_stages(features, a)
  features:add(nn.GlobalAvgPool2D())
end)

--- Like ResNetV1, with units that normalize first.
-- @type ResNetV2
local ResNetV2 = define_net("ResNetV2", function(features, a)
  features:add(nn.BatchNorm{ scale = false, center = false })
  add_stem(features, a.channels[1], a.thumbnail)
  add_stages(features, a)
  features:add(nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten())
end)


-- Functions ---------------------------------------------------------------------------------------

local BASIC, BOTTLENECK = { 64, 64, 128, 256, 512 }, { 64, 256, 512, 1024, 2048 }

-- number in a name -> kind of unit, units per stage, channels
local SIZES = {
  [18]  = { "basic", { 2, 2, 2, 2 }, BASIC },
  [34]  = { "basic", { 3, 4, 6, 3 }, BASIC },
  [50]  = { "bottleneck", { 3, 4, 6, 3 }, BOTTLENECK },
  [101] = { "bottleneck", { 3, 4, 23, 3 }, BOTTLENECK },
  [152] = { "bottleneck", { 3, 8, 36, 3 }, BOTTLENECK },
}

local VERSIONS = {
  { net = ResNetV1, basic = BasicBlockV1, bottleneck = BottleneckV1 },
  { net = ResNetV2, basic = BasicBlockV2, bottleneck = BottleneckV2 },
}

local GET = families.form("get_resnet", { { "version", "integer" }, { "num_layers", "integer" },
  "*", { "thumbnail", "boolean", false } })


--- Returns a residual network of a version (1, 2) and a number of layers (18, 34, 50, 101, 152).
-- @int version
-- @int num_layers
-- @tparam[opt] table options thumbnail = false, classes = 1000, pretrained, ctx, root, prefix
function resnet.functions.get_resnet(...)
  local a = GET(...)
  local size, version = SIZES[a.num_layers], VERSIONS[a.version]
  if not size or not version then
    Error.raise{ code = "value", func = "model_zoo.vision.get_resnet",
      argument = size and "version" or "num_layers", got = size and a.version or a.num_layers,
      expected = size and "1 or 2" or "18, 34, 50, 101 or 152", message = "no such network" }
  end
  local net = version.net{ version[size[1]], size[2], size[3], classes = a.classes,
    thumbnail = a.thumbnail, prefix = a.prefix, params = a.params }
  return families.finish(net, ("resnet%d_v%d"):format(a.num_layers, a.version), a)
end


for version = 1, 2 do
  for num_layers in pairs(SIZES) do
    local name = ("resnet%d_v%d"):format(num_layers, version)
    local read = families.form(name, { "*", { "thumbnail", "boolean", false } })
    local function make(...)
      local a = read(...)
      a.version, a.num_layers = version, num_layers
      return resnet.functions.get_resnet(a)
    end
    resnet.functions[name], resnet.models[name] = make, make
  end
end

return resnet
