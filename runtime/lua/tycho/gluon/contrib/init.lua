--- The contrib part of the reference's gluon: `ty.gluon.contrib`, with `nn`, `cnn`, `rnn`, `data`
-- and `estimator`.
--
-- @module tycho.gluon.contrib

local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"

local contrib = {}

-- name -> module, which is loaded on first use
local PARTS = {
  cnn = "tycho.gluon.contrib.cnn",
  nn = "tycho.gluon.contrib.nn",
  rnn = "tycho.gluon.contrib.rnn",
  data = "tycho.gluon.contrib.data",
  estimator = "tycho.gluon.contrib.estimator",
}

local missing = namespace.missing("gluon.contrib", "namespace", PARTS)

return setmetatable(contrib, { __index = function(_, key)
  local module = PARTS[key]
  if not module then
    return missing(key)
  end
  local value = methods.guard_all(require(module), { extend = true, forward = true })
  rawset(contrib, key, value)
  return value
end })
