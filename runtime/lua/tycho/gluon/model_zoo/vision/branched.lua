--- Networks with branches: DenseNet, SqueezeNet, Inception v3.
--
-- @module tycho.gluon.model_zoo.vision.branched

local pairs = require("tycho.core.iterate").pairs
local Error = require "tycho.core.error"
local families = require "tycho.gluon.model_zoo.families"
local HybridBlock = require "tycho.gluon.hybrid_block"
local layer = require "tycho.gluon.layer"
local nn = require "tycho.gluon.nn"

local branched = { classes = {}, functions = {}, models = {} }


local function apply_network(self, x)
  return self.output(self.features(x))
end


-- Returns a container with an empty prefix.
local function make_sequence(...)
  local net = nn.HybridSequential{ prefix = "" }
  net:add(...)
  return net
end


-- Returns a block of branches over the same input, whose channels are joined.
local function make_branches(...)
  local net = nn.HybridConcurrent{ axis = 1, prefix = "" }
  net:add(...)
  return net
end


-- DenseNet ----------------------------------------------------------------------------------------

-- Returns a layer that adds `growth_rate` channels to its input.
local function make_dense_layer(growth_rate, bn_size, dropout)
  local new = make_sequence(nn.BatchNorm(), nn.Activation("relu"),
    nn.Conv2D{ bn_size * growth_rate, 1, use_bias = false },
    nn.BatchNorm(), nn.Activation("relu"),
    nn.Conv2D{ growth_rate, 3, padding = 1, use_bias = false })
  if dropout ~= 0 then
    new:add(nn.Dropout(dropout))
  end
  return make_branches(nn.Identity(), new)
end


-- Returns the block between two stages, with the given number of channels and half the height and
-- width.
local function make_transition(channels)
  return make_sequence(nn.BatchNorm(), nn.Activation("relu"),
    nn.Conv2D{ channels, 1, use_bias = false }, nn.AvgPool2D{ 2, strides = 2 })
end


--- Fields: features, output. `DenseNet(num_init_features, growth_rate, block_config, bn_size,
-- dropout, classes)`.
-- @type DenseNet
local DenseNet = layer.extend(HybridBlock, "model_zoo.vision.DenseNet", {
  { "num_init_features", "positive" }, { "growth_rate", "positive" }, { "block_config", "list" },
  { "bn_size", "positive", 4 }, { "dropout", "number", 0 }, { "classes", "positive", 1000 },
})

DenseNet.forward = apply_network
branched.classes.DenseNet = DenseNet

function DenseNet:set_up(a)
  local features = make_sequence(
    nn.Conv2D{ a.num_init_features, 7, strides = 2, padding = 3, use_bias = false },
    nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D{ 3, strides = 2, padding = 1 })
  local channels = a.num_init_features
  for i, count in ipairs(a.block_config) do
    local stage = nn.HybridSequential{ prefix = ("stage%d_"):format(i) }
    stage:name_scope(function()
      for _ = 1, count do
        stage:add(make_dense_layer(a.growth_rate, a.bn_size, a.dropout))
      end
    end)
    features:add(stage)
    channels = channels + count * a.growth_rate
    if i < #a.block_config then
      channels = math.floor(channels / 2)
      features:add(make_transition(channels))
    end
  end
  features:add(nn.BatchNorm(), nn.Activation("relu"), nn.AvgPool2D{ 7 }, nn.Flatten())
  self.features = features
  self.output = nn.Dense(a.classes)
end


-- number in a name -> first channels, growth, layers per stage
local DENSE = {
  [121] = { 64, 32, { 6, 12, 24, 16 } }, [161] = { 96, 48, { 6, 12, 36, 24 } },
  [169] = { 64, 32, { 6, 12, 32, 32 } }, [201] = { 64, 32, { 6, 12, 48, 32 } },
}

local DENSE_OPTIONS = { { "bn_size", "positive", 4 }, { "dropout", "number", 0 } }
local GET_DENSENET = families.form("get_densenet",
  { { "num_layers", "integer" }, "*", unpack(DENSE_OPTIONS) })


--- Returns a DenseNet with the given number of layers (121, 161, 169, 201); E(value) for another.
-- @int num_layers
-- @tparam[opt] table options bn_size = 4, dropout = 0, classes = 1000, pretrained, ctx, root,
--   prefix
function branched.functions.get_densenet(...)
  local a = GET_DENSENET(...)
  local size = DENSE[a.num_layers]
  if not size then
    Error.raise{ code = "value", func = "model_zoo.vision.get_densenet", argument = "num_layers",
      got = a.num_layers, expected = "121, 161, 169 or 201", message = "no such network" }
  end
  local net = DenseNet{ size[1], size[2], size[3], bn_size = a.bn_size, dropout = a.dropout,
    classes = a.classes, prefix = a.prefix, params = a.params }
  return families.finish(net, ("densenet%d"):format(a.num_layers), a)
end


for num_layers in pairs(DENSE) do
  local name = ("densenet%d"):format(num_layers)
  local read = families.form(name, { "*", unpack(DENSE_OPTIONS) })
  local function make(...)
    local a = read(...)
    a.num_layers = num_layers
    return branched.functions.get_densenet(a)
  end
  branched.functions[name], branched.models[name] = make, make
end


-- SqueezeNet --------------------------------------------------------------------------------------

local function fire_conv(channels, kernel_size, padding)
  return make_sequence(nn.Conv2D{ channels, kernel_size, padding = padding or 0 },
    nn.Activation("relu"))
end


-- Returns a fire module of SqueezeNet: a convolution to `squeeze` channels, then two convolutions
-- of it, 1x1 and 3x3, to `expand` channels each.
local function make_fire(squeeze, expand)
  local first = fire_conv(squeeze, 1)
  return make_sequence(first, make_branches(fire_conv(expand, 1), fire_conv(expand, 3, 1)))
end


local POOL = "pool"

-- version -> channels and kernel of the first convolution, then fires and pools in order
local SQUEEZE = {
  ["1.0"] = { { 96, 7, strides = 2 }, POOL, { 16, 64 }, { 16, 64 }, { 32, 128 }, POOL, { 32, 128 },
    { 48, 192 }, { 48, 192 }, { 64, 256 }, POOL, { 64, 256 } },
  ["1.1"] = { { 64, 3, strides = 2 }, POOL, { 16, 64 }, { 16, 64 }, POOL, { 32, 128 }, { 32, 128 },
    POOL, { 48, 192 }, { 48, 192 }, { 64, 256 }, { 64, 256 } },
}


--- Fields: features, output. `SqueezeNet(version, classes)`.
-- @type SqueezeNet
local SqueezeNet = layer.extend(HybridBlock, "model_zoo.vision.SqueezeNet",
  { { "version", "text" }, { "classes", "positive", 1000 } })

SqueezeNet.forward = apply_network
branched.classes.SqueezeNet = SqueezeNet

function SqueezeNet:set_up(a)
  local parts = SQUEEZE[layer.word("model_zoo.vision.SqueezeNet", "version", a.version,
    { "1.0", "1.1" })]
  local features = make_sequence(nn.Conv2D(parts[1]), nn.Activation("relu"))
  for i = 2, #parts do
    features:add(parts[i] == POOL and nn.MaxPool2D{ 3, strides = 2, ceil_mode = true }
      or make_fire(parts[i][1], parts[i][2]))
  end
  features:add(nn.Dropout(0.5))
  self.features = features
  self.output = make_sequence(nn.Conv2D{ a.classes, 1 }, nn.Activation("relu"), nn.AvgPool2D(13),
    nn.Flatten())
end


local GET_SQUEEZENET = families.form("get_squeezenet", { { "version", "text" } })

--- Returns a SqueezeNet of version "1.0" or "1.1".
-- @string version
-- @tparam[opt] table options classes = 1000, pretrained, ctx, root, prefix
function branched.functions.get_squeezenet(...)
  local a = GET_SQUEEZENET(...)
  local net = SqueezeNet{ a.version, classes = a.classes, prefix = a.prefix, params = a.params }
  return families.finish(net, "squeezenet" .. a.version, a)
end


for version in pairs(SQUEEZE) do
  local name = "squeezenet" .. version:gsub("%.", "_")
  local read = families.form(name, {})
  local function make(...)
    local a = read(...)
    a.version = version
    return branched.functions.get_squeezenet(a)
  end
  branched.functions[name], branched.models["squeezenet" .. version] = make, make
end


-- Inception v3 ------------------------------------------------------------------------------------

-- Returns a convolution without bias, normalization, relu. `setting`: channels, kernel size,
-- strides, padding; false for the default.
local function basic_conv(setting)
  return make_sequence(nn.Conv2D{ setting[1], setting[2], strides = setting[3] or 1,
    padding = setting[4] or 0, use_bias = false }, nn.BatchNorm{ epsilon = 0.001 },
    nn.Activation("relu"))
end


-- Returns a branch: a pool, if given, then convolutions.
local function make_branch(pool, ...)
  local net = make_sequence()
  if pool == "avg" then
    net:add(nn.AvgPool2D{ 3, strides = 1, padding = 1 })
  elseif pool == "max" then
    net:add(nn.MaxPool2D{ 3, strides = 2 })
  end
  for _, setting in ipairs{ ... } do
    net:add(basic_conv(setting))
  end
  return net
end


-- Returns a block of branches with a prefix; `make`, called inside the block's name scope, returns
-- the branches.
local function join_branches(prefix, make)
  local net = nn.HybridConcurrent{ axis = 1, prefix = prefix }
  net:name_scope(function()
    net:add(make())
  end)
  return net
end


local function inception_a(pool_channels, prefix)
  return join_branches(prefix, function()
    return make_branch(nil, { 64, 1 }), make_branch(nil, { 48, 1 }, { 64, 5, false, 2 }),
      make_branch(nil, { 64, 1 }, { 96, 3, false, 1 }, { 96, 3, false, 1 }),
      make_branch("avg", { pool_channels, 1 })
  end)
end


local function inception_b(prefix)
  return join_branches(prefix, function()
    return make_branch(nil, { 384, 3, 2 }),
      make_branch(nil, { 64, 1 }, { 96, 3, false, 1 }, { 96, 3, 2 }),
      make_branch("max")
  end)
end


local WIDE, TALL = { 1, 7 }, { 7, 1 }
local WIDE_PAD, TALL_PAD = { 0, 3 }, { 3, 0 }

local function inception_c(n, prefix)
  return join_branches(prefix, function()
    return make_branch(nil, { 192, 1 }),
      make_branch(nil, { n, 1 }, { n, WIDE, false, WIDE_PAD }, { 192, TALL, false, TALL_PAD }),
      make_branch(nil, { n, 1 }, { n, TALL, false, TALL_PAD }, { n, WIDE, false, WIDE_PAD },
        { n, TALL, false, TALL_PAD }, { 192, WIDE, false, WIDE_PAD }),
      make_branch("avg", { 192, 1 })
  end)
end


local function inception_d(prefix)
  return join_branches(prefix, function()
    return make_branch(nil, { 192, 1 }, { 320, 3, 2 }),
      make_branch(nil, { 192, 1 }, { 192, WIDE, false, WIDE_PAD }, { 192, TALL, false, TALL_PAD },
        { 192, 3, 2 }),
      make_branch("max")
  end)
end


local function inception_e(prefix)
  local function split()
    return make_branches(make_branch(nil, { 384, { 1, 3 }, false, { 0, 1 } }),
      make_branch(nil, { 384, { 3, 1 }, false, { 1, 0 } }))
  end
  return join_branches(prefix, function()
    local first = make_branch(nil, { 320, 1 })
    local single = make_sequence(make_branch(nil, { 384, 1 }), split())
    local double = make_sequence(make_branch(nil, { 448, 1 }, { 384, 3, false, 1 }), split())
    return first, single, double, make_branch("avg", { 192, 1 })
  end)
end


--- Fields: features, output. For images of 299 × 299.
-- @type Inception3
local Inception3 = layer.extend(HybridBlock, "model_zoo.vision.Inception3",
  { { "classes", "positive", 1000 } })

Inception3.forward = apply_network
branched.classes.Inception3 = Inception3

function Inception3:set_up(a)
  local features = make_sequence(basic_conv{ 32, 3, 2 }, basic_conv{ 32, 3 },
    basic_conv{ 64, 3, false, 1 }, nn.MaxPool2D{ 3, strides = 2 }, basic_conv{ 80, 1 },
    basic_conv{ 192, 3 }, nn.MaxPool2D{ 3, strides = 2 })
  features:add(inception_a(32, "A1_"), inception_a(64, "A2_"), inception_a(64, "A3_"),
    inception_b("B_"), inception_c(128, "C1_"), inception_c(160, "C2_"), inception_c(160, "C3_"),
    inception_c(192, "C4_"), inception_d("D_"), inception_e("E1_"), inception_e("E2_"))
  features:add(nn.AvgPool2D(8), nn.Dropout(0.5))
  self.features = features
  self.output = nn.Dense(a.classes)
end


local INCEPTION = families.form("inception_v3", {})

--- Returns an Inception v3.
-- @tparam[opt] table options classes = 1000, pretrained, ctx, root, prefix
function branched.functions.inception_v3(...)
  local a = INCEPTION(...)
  return families.finish(Inception3{ classes = a.classes, prefix = a.prefix, params = a.params },
    "inceptionv3", a)
end


branched.models.inceptionv3 = branched.functions.inception_v3

return branched
