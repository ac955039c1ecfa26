--- What the reference keeps under `contrib`: `ty.contrib.quantization`.
--
-- @module tycho.contrib

require "tycho.core.luajit"
local namespace = require "tycho.core.namespace"

local contrib = { quantization = require "tycho.contrib.quantization" }

return namespace.close(contrib, "contrib", "module")
