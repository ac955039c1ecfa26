--- What the reference keeps under `contrib`: `ty.contrib.quantization`, and `ty.amp` and `ty.onnx`
-- under their older names.
--
-- @module tycho.contrib

require "tycho.core.luajit"
local namespace = require "tycho.core.namespace"

local contrib = { quantization = require "tycho.contrib.quantization" }

local missing = namespace.missing("contrib", "module", { amp = true, onnx = true,
  quantization = true })

return setmetatable(contrib, { __index = function(_, key)
  if key ~= "amp" and key ~= "onnx" then
    return missing(key)
  end
  local value = require("tycho." .. key)
  rawset(contrib, key, value)
  return value
end })
