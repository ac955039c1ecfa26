--- Recurrent networks: `ty.rnn`.
--
--     local stack = ty.rnn.SequentialRNNCell{}
--     stack:add(ty.rnn.LSTMCell{ 200, prefix = "l0_" })
--     stack:add(ty.rnn.LSTMCell{ 200, prefix = "l1_" })
--     local outputs = stack:unroll{ length = 20, inputs = embedded, merge_outputs = true }
--
-- The parts: `rnn.base` (the base class), `rnn.cells`, `rnn.conv_cells`, `rnn.fused` (cells),
-- `rnn.stack` (cells made of cells), `rnn.dropout`, `rnn.modifiers` (cells that change another
-- cell), `initializer.rnn_layout` (names and positions of weights), `rnn.sequence` (lists of steps
-- and merged symbols), `rnn.text` (words as numbers), `rnn.bucket_iter` (batches of sentences),
-- `rnn.checkpoint`.
--
-- @module tycho.rnn

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"

local rnn = {}

local PARTS = {
  require "tycho.rnn.base", require "tycho.rnn.cells", require "tycho.rnn.conv_cells",
  require "tycho.rnn.fused", require "tycho.rnn.stack", require "tycho.rnn.dropout",
  require "tycho.rnn.modifiers", require "tycho.rnn.text", require "tycho.rnn.bucket_iter",
  require "tycho.rnn.checkpoint",
}

for _, part in ipairs(PARTS) do
  for name, v in pairs(part) do
    rnn[name] = v
  end
end


--- Unrolls a cell: an older name of `cell:unroll`.
-- @tparam BaseRNNCell cell
-- @param ... the arguments of `unroll`
function rnn.rnn_unroll(cell, ...)
  if type(cell) ~= "table" or type(cell.unroll) ~= "function" then
    Error.raise{ code = "type", func = "rnn.rnn_unroll", argument = "cell", expected = "a cell",
      got = Error.kind(cell), message = "bad 'cell'" }
  end
  log:warning("rnn.rnn_unroll is deprecated; call cell:unroll")
  return cell:unroll(...)
end


return namespace.close(methods.guard_all(rnn), "rnn", "cell or function")
