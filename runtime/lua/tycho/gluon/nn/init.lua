--- Layers: `ty.gluon.nn`.
--
-- Parameters of unknown size get their size from the first input. An initializer is a name, an
-- object, or nil, which means the one given to `initialize`. In a traced graph the node of a layer
-- is called `<prefix>fwd`.
--
--     local nn = ty.gluon.nn
--     local net = nn.HybridSequential{ nn.Conv2D{16, 3, activation = "relu"}, nn.Flatten(),
--       nn.Dense(10) }
--
-- @module tycho.gluon.nn

local pairs = require("tycho.core.iterate").pairs
local layer = require "tycho.gluon.layer"
local namespace = require "tycho.core.namespace"

local nn = { Block = require "tycho.gluon.block", HybridBlock = require "tycho.gluon.hybrid_block",
  SymbolBlock = require "tycho.gluon.symbol_block" }

for _, part in ipairs{ require "tycho.gluon.nn.activations", require "tycho.gluon.nn.basic",
    require "tycho.gluon.nn.containers", require "tycho.gluon.nn.convolution",
    require "tycho.gluon.nn.norms", require "tycho.gluon.nn.pooling" } do
  for name, class in pairs(part) do
    nn[name] = class
  end
end

-- Blocks that call functions of the script, or other blocks, are not in this list.
for _, part in ipairs{ require "tycho.gluon.nn.activations", require "tycho.gluon.nn.convolution",
    require "tycho.gluon.nn.norms", require "tycho.gluon.nn.pooling" } do
  for _, class in pairs(part) do
    layer.note_passing(class)
  end
end
for _, name in ipairs{ "Dense", "Dropout", "Embedding", "Flatten" } do
  layer.note_passing(nn[name])
end

return namespace.close(nn, "nn", "layer")
