--- Recurrent layers and cells: `ty.gluon.rnn`.
--
-- Layers run whole sequences with one operator; cells make one step and can be unrolled.
--
--     local lstm = ty.gluon.rnn.LSTM{ 64, num_layers = 2 }
--     local y = lstm(x)                                  -- (T, N, C)
--     local y, states = lstm(x, lstm:begin_state{ batch_size = 32 })
--
--     local cell = ty.gluon.rnn.GRUCell(64)
--     local outputs, states = cell:unroll{ 10, x, merge_outputs = true }
--
-- @module tycho.gluon.rnn

local pairs = require("tycho.core.iterate").pairs
local base = require "tycho.gluon.rnn.base"
local cells = require "tycho.gluon.rnn.cells"
local modifiers = require "tycho.gluon.rnn.modifiers"
local namespace = require "tycho.core.namespace"

local rnn = { RecurrentCell = base.RecurrentCell, HybridRecurrentCell = base.HybridRecurrentCell,
  RNNCell = cells.RNNCell, LSTMCell = cells.LSTMCell, GRUCell = cells.GRUCell }

for _, part in ipairs{ require "tycho.gluon.rnn.layers", require "tycho.gluon.rnn.stacks",
    modifiers.classes } do
  for name, class in pairs(part) do
    rnn[name] = class
  end
end

return namespace.close(rnn, "rnn", "layer or cell")
