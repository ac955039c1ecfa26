--- AlexNet and VGG.
--
-- @module tycho.gluon.model_zoo.vision.plain

local pairs = require("tycho.core.iterate").pairs
local Error = require "tycho.core.error"
local families = require "tycho.gluon.model_zoo.families"
local HybridBlock = require "tycho.gluon.hybrid_block"
local init = require "tycho.initializer"
local layer = require "tycho.gluon.layer"
local nn = require "tycho.gluon.nn"

local plain = { classes = {}, functions = {}, models = {} }


local function apply_network(self, x)
  return self.output(self.features(x))
end


-- AlexNet -----------------------------------------------------------------------------------------

--- Fields: features, output.
-- @type AlexNet
local AlexNet = layer.extend(HybridBlock, "model_zoo.vision.AlexNet",
  { { "classes", "positive", 1000 } })

AlexNet.forward = apply_network
plain.classes.AlexNet = AlexNet

function AlexNet:set_up(a)
  self.features = nn.HybridSequential{ prefix = "" }
  self.features:add(
    nn.Conv2D{ 64, 11, strides = 4, padding = 2, activation = "relu" },
    nn.MaxPool2D{ 3, strides = 2 },
    nn.Conv2D{ 192, 5, padding = 2, activation = "relu" },
    nn.MaxPool2D{ 3, strides = 2 },
    nn.Conv2D{ 384, 3, padding = 1, activation = "relu" },
    nn.Conv2D{ 256, 3, padding = 1, activation = "relu" },
    nn.Conv2D{ 256, 3, padding = 1, activation = "relu" },
    nn.MaxPool2D{ 3, strides = 2 },
    nn.Flatten(),
    nn.Dense{ 4096, activation = "relu" },
    nn.Dropout(0.5),
    nn.Dense{ 4096, activation = "relu" },
    nn.Dropout(0.5))
  self.output = nn.Dense(a.classes)
end


local ALEXNET = families.form("alexnet", {})

--- Returns an AlexNet.
-- @tparam[opt] table options classes = 1000, pretrained, ctx, root, prefix
function plain.functions.alexnet(...)
  local a = ALEXNET(...)
  return families.finish(AlexNet{ classes = a.classes, prefix = a.prefix, params = a.params },
    "alexnet", a)
end


plain.models.alexnet = plain.functions.alexnet


-- VGG ---------------------------------------------------------------------------------------------

--- Fields: features, output. `VGG(layers, filters, classes, batch_norm)`.
-- @type VGG
local VGG = layer.extend(HybridBlock, "model_zoo.vision.VGG", { { "layers", "list" },
  { "filters", "list" }, { "classes", "positive", 1000 }, { "batch_norm", "boolean", false } })

VGG.forward = apply_network
plain.classes.VGG = VGG

local function make_dense(units, activation)
  return nn.Dense{ units, activation = activation, weight_initializer = "normal" }
end


function VGG:set_up(a)
  if #a.layers ~= #a.filters then
    Error.raise{ code = "value", func = "model_zoo.vision.VGG", argument = "filters",
      expected = #a.layers, got = #a.filters, message = "layers and filters have equal lengths" }
  end
  local features = nn.HybridSequential{ prefix = "" }
  for i, count in ipairs(a.layers) do
    for _ = 1, count do
      features:add(nn.Conv2D{ a.filters[i], 3, padding = 1, weight_initializer =
        init.Xavier{ rnd_type = "gaussian", factor_type = "out", magnitude = 2 } })
      if a.batch_norm then
        features:add(nn.BatchNorm())
      end
      features:add(nn.Activation("relu"))
    end
    features:add(nn.MaxPool2D{ strides = 2 })
  end
  features:add(make_dense(4096, "relu"), nn.Dropout(0.5), make_dense(4096, "relu"), nn.Dropout(0.5))
  self.features = features
  self.output = make_dense(a.classes)
end


local FILTERS = { 64, 128, 256, 512, 512 }
local LAYERS = { [11] = { 1, 1, 2, 2, 2 }, [13] = { 2, 2, 2, 2, 2 }, [16] = { 2, 2, 3, 3, 3 },
  [19] = { 2, 2, 4, 4, 4 } }

local GET = families.form("get_vgg",
  { { "num_layers", "integer" }, "*", { "batch_norm", "boolean", false } })


--- Returns a VGG with the given number of layers (11, 13, 16, 19); E(value) for another.
-- @int num_layers
-- @tparam[opt] table options batch_norm = false, classes = 1000, pretrained, ctx, root, prefix
function plain.functions.get_vgg(...)
  local a = GET(...)
  if not LAYERS[a.num_layers] then
    Error.raise{ code = "value", func = "model_zoo.vision.get_vgg", argument = "num_layers",
      got = a.num_layers, expected = "11, 13, 16 or 19", message = "no such network" }
  end
  local net = VGG{ LAYERS[a.num_layers], FILTERS, classes = a.classes, batch_norm = a.batch_norm,
    prefix = a.prefix, params = a.params }
  return families.finish(net, ("vgg%d%s"):format(a.num_layers, a.batch_norm and "_bn" or ""), a)
end


for num_layers in pairs(LAYERS) do
  for _, suffix in ipairs{ "", "_bn" } do
    local name = ("vgg%d%s"):format(num_layers, suffix)
    local read = families.form(name, {})
    local function make(...)
      local a = read(...)
      a.num_layers, a.batch_norm = num_layers, suffix == "_bn"
      return plain.functions.get_vgg(a)
    end
    plain.functions[name], plain.models[name] = make, make
  end
end

return plain
