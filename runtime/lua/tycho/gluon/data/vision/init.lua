--- Data sets of images in local files, and transforms of images: `ty.gluon.data.vision`.
--
-- @module tycho.gluon.data.vision

local pairs = require("tycho.core.iterate").pairs
local namespace = require "tycho.core.namespace"

local vision = { transforms = require "tycho.gluon.data.vision.transforms" }

for name, value in pairs(require "tycho.gluon.data.vision.datasets") do
  vision[name] = value
end


return namespace.close(vision, "gluon.data.vision", "class")
