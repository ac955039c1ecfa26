--- The namespace `ty.contrib` of the reference: `quantization`, and `ty.amp` under its older name.
-- Names of the reference that have another place in Tycho are E(`name`); the error names the place.
--
-- @module tycho.contrib

require "tycho.core.luajit"
local Error = require "tycho.core.error"
local namespace = require "tycho.core.namespace"

local contrib = { quantization = require "tycho.contrib.quantization" }

local missing = namespace.missing("contrib", "module", { amp = true, quantization = true })

return setmetatable(contrib, { __index = function(_, key)
  if key == "amp" then
    return require "tycho.contrib.amp"
  elseif key == "onnx" then
    Error.raise{ code = "name", func = "contrib", argument = key, candidates = { "ty.onnx" },
      message = "unknown module 'onnx'; here it is ty.onnx" }
  end
  return missing(key)
end })
