--- Data: descriptions, batches, iterators (`ty.io`).
--
--     local it = ty.io.NDArrayIter{ data = x, label = y, batch_size = 32, shuffle = true }
--     for batch in it do print(batch.data[1].shape[1], batch.pad) end
--     it:reset()
--
-- The parts: `io.data` (descriptions, batches, the base class), `io.ndarray_iter` (arrays in
-- memory), `io.npz_iter` (folders of `.npz` files), `io.wrappers` (iterators around iterators),
-- `io.native` (files, read by threads in C), `io.text` (text files as numbers of words).
--
-- @module tycho.io

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local data_of = require "tycho.io.data"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"
local wrappers = require "tycho.io.wrappers"

local io_of = {
  DataDesc = data_of.DataDesc, DataBatch = data_of.DataBatch, DataIter = data_of.DataIter,
  NDArrayIter = require "tycho.io.ndarray_iter", NPZIter = require "tycho.io.npz_iter",
  ResizeIter = wrappers.ResizeIter, PrefetchingIter = wrappers.PrefetchingIter,
  text = require "tycho.io.text",
}

for name, class in pairs(require "tycho.io.native") do
  io_of[name] = class
end


return namespace.close(methods.guard_all(io_of), "io", "iterator or function")
