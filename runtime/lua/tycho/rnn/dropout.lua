--- DropoutCell: Dropout between the cells of a stack.
--
-- @module tycho.rnn.dropout

local args = require "tycho.core.args"
local base = require "tycho.rnn.base"
local Error = require "tycho.core.error"
local sequence = require "tycho.rnn.sequence"
local symbol = require "tycho.symbol.symbol"

local BaseRNNCell = base.BaseRNNCell

--- Dropout between cells, without states.
-- @type DropoutCell
local DropoutCell = BaseRNNCell:extend("DropoutCell")
DropoutCell.fields = BaseRNNCell.extend_fields{ state_info = function() return {} end }

local DROPOUT = args.form("rnn.DropoutCell", {
  { "dropout", "number" }, { "prefix", "text", "dropout_" }, { "params", "rnn_params?" },
})

--- @number dropout probability with which an element becomes 0 in training
-- @string[opt="dropout_"] prefix
-- @tparam[opt] RNNParams params
function DropoutCell:init(...)
  local a = DROPOUT(...)
  if not (a.dropout >= 0 and a.dropout <= 1) then
    Error.raise{ code = "value", func = "rnn.DropoutCell", argument = "dropout",
      expected = "0 to 1", got = a.dropout, message = "bad 'dropout'" }
  end
  DropoutCell.super.init(self, { prefix = a.prefix, params = a.params })
  self._dropout = a.dropout
end


function DropoutCell:__call(inputs, states)
  self._output = self._dropout > 0 and symbol.Dropout{ inputs, p = self._dropout } or inputs
  return self._output, states
end


-- Unrolls the cell; one symbol for all steps gets a single Dropout node.
function DropoutCell:_unroll(a)
  local inputs = self:normalize(a.length, a.inputs, a.layout, a.merge_outputs)
  if sequence.is_symbol(inputs) then
    return self(inputs, {})
  end
  return DropoutCell.super._unroll(self, a)
end


return { DropoutCell = DropoutCell }
