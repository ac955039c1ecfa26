--- Data sets, samplers, loaders: `ty.gluon.data`. Samples are numbered from 0.
--
--     local set = gluon.data.vision.CIFAR10{ root = "cifar10" }
--     local change = gluon.data.vision.transforms.Compose{ transforms.RandomFlipLeftRight(),
--       transforms.ToTensor() }
--     local loader = gluon.data.DataLoader{ set:transform_first(change), batch_size = 128,
--       shuffle = true, num_workers = 2 }
--     for images, labels in loader do ... end              -- each loop is a new epoch
--
-- The parts: `data.dataset`, `data.sampler`, `data.batchify`, `data.loader`; `data.plan` (which
-- parts of a data set's work native threads do), `data.stream` (random numbers of a sample);
-- `data.vision`.
--
-- @module tycho.gluon.data

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local namespace = require "tycho.core.namespace"
local Error = require "tycho.core.error"

local data = { batchify = require "tycho.gluon.data.batchify",
  DataLoader = require "tycho.gluon.data.loader", vision = require "tycho.gluon.data.vision" }

for _, part in ipairs{ require "tycho.gluon.data.dataset", require "tycho.gluon.data.sampler" } do
  for name, value in pairs(part) do
    data[name] = value
  end
end


--- Raises E(unsupported): use `gluon.data.DataLoader`.
function data.DataLoaderV1()
  Error.raise{ code = "unsupported", func = "gluon.data.DataLoaderV1",
    message = "this class is left out; use gluon.data.DataLoader" }
end


return namespace.close(data, "gluon.data", "class or function")
