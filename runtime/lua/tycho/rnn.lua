--- Recurrent networks: `ty.rnn`.
--
--     local stack = ty.rnn.SequentialRNNCell{}
--     stack:add(ty.rnn.LSTMCell{ 200, prefix = "l0_" })
--     stack:add(ty.rnn.LSTMCell{ 200, prefix = "l1_" })
--     local outputs = stack:unroll{ length = 20, inputs = embedded, merge_outputs = true }
--
-- The parts: `rnn_cell` (the base), `rnn_basic`, `rnn_conv`, `rnn_fused` (cells), `rnn_stack` (cells of cells),
-- `rnn_dropout`, `rnn_modifier` (what changes others), `rnn_layout` (names and places of weights), `rnn_sequence`
-- (lists of steps and merged symbols), `rnn_text` (words as numbers), `rnn_bucket_iter` (batches of sentences),
-- `rnn_checkpoint`.
--
-- @module tycho.rnn

local pairs = require("tycho.iterate").pairs
local Error = require "tycho.error"
local log = require "tycho.log"

local rnn = {}

for _, part in ipairs{ "cell", "basic", "conv", "fused", "stack", "dropout", "modifier", "text", "bucket_iter",
                       "checkpoint" } do
  for name, v in pairs(require("tycho.rnn_" .. part)) do
    rnn[name] = v
  end
end


--- An older spelling of `cell:unroll`.
-- @tparam BaseRNNCell cell
-- @param ... what `unroll` takes
function rnn.rnn_unroll(cell, ...)
  if type(cell) ~= "table" or type(cell.unroll) ~= "function" then
    Error.raise{ code = "type", func = "rnn.rnn_unroll", argument = "cell", expected = "a cell", got = Error.kind(cell),
      message = "bad 'cell'" }
  end
  log:warning("rnn.rnn_unroll is deprecated; call cell:unroll")
  return cell:unroll(...)
end


return setmetatable(rnn, { __index = function(_, key)
  if type(key) == "string" and key:sub(1, 1) ~= "_" then
    Error.unknown{ func = "rnn", argument = key, what = "cell or function", among = rnn }
  end
end })
