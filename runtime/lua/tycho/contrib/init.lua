--- The namespace `ty.contrib`, named as in the reference: `quantization`.
--
-- @module tycho.contrib

require "tycho.core.luajit"
local namespace = require "tycho.core.namespace"

local contrib = { quantization = require "tycho.contrib.quantization" }

return namespace.close(contrib, "contrib", "module")
