--- Well-known networks by name: `ty.gluon.model_zoo`, with `vision`.
--
-- @module tycho.gluon.model_zoo

local namespace = require "tycho.core.namespace"

local zoo = { vision = require "tycho.gluon.model_zoo.vision" }

return namespace.close(zoo, "gluon.model_zoo", "namespace")
