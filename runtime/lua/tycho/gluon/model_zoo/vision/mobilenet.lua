--- MobileNet and MobileNet v2.
--
-- @module tycho.gluon.model_zoo.vision.mobilenet

local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local families = require "tycho.gluon.model_zoo.families"
local HybridBlock = require "tycho.gluon.hybrid_block"
local layer = require "tycho.gluon.layer"
local nn = require "tycho.gluon.nn"

local mobilenet = { classes = {}, functions = {}, models = {} }


-- Parts -------------------------------------------------------------------------------------------

--- Limits elements to the range from 0 to 6.
local RELU6 = HybridBlock:extend("RELU6")

function RELU6.forward(_, x)
  return F.clip{ x, a_min = 0, a_max = 6, name = F.is_symbol(x) and "relu6" or nil }
end


-- Adds a convolution, normalization and, unless `linear`, an activation.
local function add_conv(net, channels, o)
  net:add(nn.Conv2D{ channels, o.kernel or 1, o.stride or 1, o.pad or 0, groups = o.groups or 1,
    use_bias = false }, nn.BatchNorm())
  if not o.linear then
    net:add(o.relu6 and RELU6() or nn.Activation("relu"))
  end
end


--- Widens, convolves each channel, narrows; the input is added if the sizes are equal.
-- @type LinearBottleneck
local LinearBottleneck = layer.extend(HybridBlock, "model_zoo.vision.LinearBottleneck", {
  { "in_channels", "positive" }, { "channels", "positive" }, { "t", "positive" },
  { "stride", "positive" },
})

function LinearBottleneck:set_up(a)
  local wide = a.in_channels * a.t
  self.use_shortcut = a.stride == 1 and a.in_channels == a.channels
  self.out = nn.HybridSequential()
  add_conv(self.out, wide, { relu6 = true })
  add_conv(self.out, wide, { kernel = 3, stride = a.stride, pad = 1, groups = wide, relu6 = true })
  add_conv(self.out, a.channels, { linear = true })
end


function LinearBottleneck:forward(x)
  local y = self.out(x)
  return self.use_shortcut and F.elemwise_add(y, x) or y
end


-- Networks ----------------------------------------------------------------------------------------

local NET = { { "multiplier", "number", 1 }, { "classes", "positive", 1000 } }

local function apply_network(self, x)
  return self.output(self.features(x))
end


local function define_network(name, set_up)
  local class = layer.extend(HybridBlock, "model_zoo.vision." .. name, NET)
  function class:set_up(a)
    if a.multiplier <= 0 then
      Error.raise{ code = "value", func = "model_zoo.vision." .. name, argument = "multiplier",
        got = a.multiplier, expected = "a number above 0", message = "bad 'multiplier'" }
    end
    set_up(self, function(channels)
      return math.floor(channels * a.multiplier)
    end, a)
  end
  class.forward = apply_network
  mobilenet.classes[name] = class
  return class
end


-- channels before and after, stride of each separable convolution
local SEPARABLE = { { 32, 64, 1 }, { 64, 128, 2 }, { 128, 128, 1 }, { 128, 256, 2 },
  { 256, 256, 1 }, { 256, 512, 2 }, { 512, 512, 1 }, { 512, 512, 1 }, { 512, 512, 1 },
  { 512, 512, 1 }, { 512, 512, 1 }, { 512, 1024, 2 }, { 1024, 1024, 1 } }

--- Fields: features, output. `MobileNet(multiplier, classes)`; the multiplier scales all channels.
-- @type MobileNet
local MobileNet = define_network("MobileNet", function(self, width, a)
  self.features = nn.HybridSequential{ prefix = "" }
  add_conv(self.features, width(32), { kernel = 3, stride = 2, pad = 1 })
  for _, row in ipairs(SEPARABLE) do
    local before = width(row[1])
    add_conv(self.features, before, { kernel = 3, stride = row[3], pad = 1, groups = before })
    add_conv(self.features, width(row[2]), {})
  end
  self.features:add(nn.GlobalAvgPool2D(), nn.Flatten())
  self.output = nn.Dense(a.classes)
end)


-- channels, factor of the inner channels, stride, number of units
local INVERTED = { { 16, 1, 1, 1 }, { 24, 6, 2, 2 }, { 32, 6, 2, 3 }, { 64, 6, 2, 4 },
  { 96, 6, 1, 3 }, { 160, 6, 2, 3 }, { 320, 6, 1, 1 } }

--- Fields: features, output. `MobileNetV2(multiplier, classes)`.
-- @type MobileNetV2
local MobileNetV2 = define_network("MobileNetV2", function(self, width, a)
  self.features = nn.HybridSequential{ prefix = "features_" }
  self.features:name_scope(function()
    add_conv(self.features, width(32), { kernel = 3, stride = 2, pad = 1, relu6 = true })
    local before = width(32)
    for _, row in ipairs(INVERTED) do
      for i = 1, row[4] do
        self.features:add(LinearBottleneck{ before, width(row[1]), row[2], i == 1 and row[3] or 1 })
        before = width(row[1])
      end
    end
    add_conv(self.features, a.multiplier > 1 and width(1280) or 1280, { relu6 = true })
    self.features:add(nn.GlobalAvgPool2D())
  end)
  self.output = nn.HybridSequential{ prefix = "output_" }
  self.output:name_scope(function()
    self.output:add(nn.Conv2D{ a.classes, 1, use_bias = false, prefix = "pred_" }, nn.Flatten())
  end)
end)


-- Functions ---------------------------------------------------------------------------------------

-- Returns a multiplier as in names of files: "1.0", "0.75", "0.5", "0.25".
local function multiplier_text(multiplier)
  local text = ("%.2f"):format(multiplier)
  return (text == "1.00" or text == "0.50") and text:sub(1, -2) or text
end


-- Defines the functions of a family: `get` is the name of the function that takes a multiplier,
-- `head` begins the names of files and of `get_model`, `prefix` the names of the functions for one
-- multiplier.
local function define_family(class, get, head, prefix)
  local read = families.form(get, { { "multiplier", "number" } })
  mobilenet.functions[get] = function(...)
    local a = read(...)
    local net = class{ a.multiplier, classes = a.classes, prefix = a.prefix, params = a.params }
    return families.finish(net, head .. multiplier_text(a.multiplier), a)
  end
  for _, multiplier in ipairs{ 1, 0.75, 0.5, 0.25 } do
    local text = multiplier_text(multiplier)
    local name = prefix .. text:gsub("%.", "_")
    local read_options = families.form(name, {})
    local function make(...)
      local a = read_options(...)
      a.multiplier = multiplier
      return mobilenet.functions[get](a)
    end
    mobilenet.functions[name], mobilenet.models[head .. text] = make, make
  end
end


define_family(MobileNet, "get_mobilenet", "mobilenet", "mobilenet")
define_family(MobileNetV2, "get_mobilenet_v2", "mobilenetv2_", "mobilenet_v2_")

return mobilenet
