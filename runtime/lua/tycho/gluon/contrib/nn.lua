--- Layers of the reference's contrib, most of which are also in `ty.gluon.nn`:
-- `ty.gluon.contrib.nn`.
--
-- @module tycho.gluon.contrib.nn

local Error = require "tycho.core.error"
local namespace = require "tycho.core.namespace"
local nn = require "tycho.gluon.nn"

local contrib = {}

for _, name in ipairs{ "Concurrent", "HybridConcurrent", "Identity", "SyncBatchNorm",
    "PixelShuffle1D", "PixelShuffle2D", "PixelShuffle3D" } do
  contrib[name] = nn[name]
end


--- Raises E(unsupported): there is no sparse storage.
function contrib.SparseEmbedding()
  Error.raise{ code = "unsupported", func = "contrib.nn.SparseEmbedding",
    message = "there is no sparse storage; nn.Embedding has the same values and a dense gradient" }
end


return namespace.close(contrib, "contrib.nn", "layer")
