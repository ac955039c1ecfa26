--- Data sets of pictures, from local files, and what is done to pictures: `ty.gluon.data.vision`.
--
-- @module tycho.gluon.data.vision

local pairs = require("tycho.core.iterate").pairs
local namespace = require "tycho.core.namespace"

local vision = { transforms = require "tycho.gluon.data.vision.transforms" }

for name, value in pairs(require "tycho.gluon.data.vision.datasets") do
  vision[name] = value
end


return namespace.close(vision, "gluon.data.vision", "class")
