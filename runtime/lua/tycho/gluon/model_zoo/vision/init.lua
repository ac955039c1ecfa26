--- Networks for images: `ty.gluon.model_zoo.vision`.
--
--     local vision = ty.gluon.model_zoo.vision
--     local net = vision.get_model("resnet18_v1", { classes = 10 })
--     local net = vision.resnet18_v1{ classes = 10 }                       -- the same
--     local net = vision.resnet18_v1{ pretrained = true, root = "models" }
--
-- Names, structures and names of parameters are those of the reference, so its files of weights can
-- be loaded. Nothing is downloaded.
--
-- @module tycho.gluon.model_zoo.vision

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local Error = require "tycho.core.error"
local namespace = require "tycho.core.namespace"

local vision, models = {}, {}

for _, family in ipairs{ require "tycho.gluon.model_zoo.vision.resnet",
    require "tycho.gluon.model_zoo.vision.plain", require "tycho.gluon.model_zoo.vision.branched",
    require "tycho.gluon.model_zoo.vision.mobilenet" } do
  for _, members in ipairs{ family.classes, family.functions } do
    for name, member in pairs(members) do
      vision[name] = member
    end
  end
  for name, make in pairs(family.models) do
    models[name] = make
  end
end


local GET = args.form("model_zoo.vision.get_model", { rest = "options", { "name", "text" } })

--- Returns a network by its name, in upper or lower case: "alexnet", "densenet121", "inceptionv3",
-- "mobilenet1.0", "mobilenetv2_1.0", "resnet18_v1", "squeezenet1.0", "vgg11_bn" ...
-- @string name an unknown one is E(name)
-- @tparam[opt] table options classes = 1000, pretrained = false, ctx, root = `<TYCHO_HOME>/models`,
--   prefix, and those of the network
function vision.get_model(...)
  local a = GET(...)
  local make = models[a.name:lower()]
  if not make then
    Error.unknown{ func = "model_zoo.vision.get_model", argument = a.name, what = "model",
      among = models }
  end
  return make(a.options)
end


return namespace.close(vision, "model_zoo.vision", "model")
