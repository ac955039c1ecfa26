--- FusedRNNCell: all layers, directions and steps in one RNN operator with one vector of
-- parameters.
--
-- `unfuse` returns the same network as single cells. `unpack_weights` gives the parts of the vector
-- the names of those cells' parameters, so weights can be converted in both directions:
-- `stack:pack_weights(fused:unpack_weights(args))`.
--
-- @module tycho.rnn.fused

local args = require "tycho.core.args"
local base = require "tycho.rnn.base"
local basic = require "tycho.rnn.cells"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local dropout = require "tycho.rnn.dropout"
local init = require "tycho.initializer"
local layout = require "tycho.initializer.rnn_layout"
local log = require "tycho.core.log"
local stack = require "tycho.rnn.stack"
local symbol = require "tycho.symbol.symbol"

local BaseRNNCell = base.BaseRNNCell

--- Several recurrent layers in one operator.
-- @type FusedRNNCell
local FusedRNNCell = BaseRNNCell:extend("FusedRNNCell")

FusedRNNCell.fields = BaseRNNCell.extend_fields{ state_info = function(self)
  local shape = self._shape
  local rows, list = shape.num_layers * (shape.bidirectional and 2 or 1), {}
  for i = 1, shape.mode == "lstm" and 2 or 1 do
    list[i] = { shape = { rows, 0, shape.num_hidden }, __layout__ = "LNC" }
  end
  return list
end }

local FUSED = args.form("rnn.FusedRNNCell", {
  { "num_hidden", "positive" }, { "num_layers", "positive", 1 }, { "mode", "text", "lstm" },
  { "bidirectional", "boolean", false }, { "dropout", "number", 0 },
  { "get_next_state", "boolean", false }, { "forget_bias", "number", 1 }, { "prefix", "text?" },
  { "params", "rnn_params?" },
})

--- @int num_hidden
-- @int[opt=1] num_layers
-- @string[opt="lstm"] mode rnn_relu, rnn_tanh, lstm or gru
-- @bool[opt=false] bidirectional
-- @number[opt=0] dropout probability, on the outputs of each layer except the last
-- @bool[opt=false] get_next_state whether `unroll` returns the states after the last step; else an
--   empty list
-- @number[opt=1] forget_bias of an LSTM
-- @string[opt] prefix default: the mode and an underscore
-- @tparam[opt] RNNParams params
function FusedRNNCell:init(...)
  local a = FUSED(...)
  layout.check_mode(a.mode, "rnn.FusedRNNCell")
  FusedRNNCell.super.init(self, { prefix = a.prefix or a.mode .. "_", params = a.params })
  self._shape = { num_hidden = a.num_hidden, num_layers = a.num_layers, mode = a.mode,
    bidirectional = a.bidirectional }
  self._dropout, self._get_next_state = a.dropout, a.get_next_state
  self._parameters = self._params:get("parameters",
    { init = init.FusedRNN{ num_hidden = a.num_hidden, num_layers = a.num_layers, mode = a.mode,
      bidirectional = a.bidirectional, forget_bias = a.forget_bias } })
end


function FusedRNNCell:_gate_names()
  return layout.GATES[self._shape.mode]
end


-- Unrolling ---------------------------------------------------------------------------------------

-- Makes the operator for inputs of layout TNC.
local function operator(self, inputs, states)
  local shape = self._shape
  return symbol.RNN{ data = inputs, parameters = self._parameters, state = states[1],
    state_cell = states[2], state_size = shape.num_hidden, num_layers = shape.num_layers,
    bidirectional = shape.bidirectional, mode = shape.mode, p = self._dropout,
    state_outputs = self._get_next_state, name = self._prefix .. "rnn" }
end


-- Returns the operator's output and a list of states, which is empty unless `get_next_state` is
-- set.
local function results(self, rnn)
  local states = {}
  if not self._get_next_state then
    return rnn, states
  end
  for i = 2, #rnn do
    states[i - 1] = rnn[i]
    states[i - 1]:_set_attr{ __layout__ = "LNC" }
  end
  return rnn[1], states
end


-- Warns, once for each cell, that the layout NTC costs copies.
local function warn_layout(self)
  if not self._warned then
    log:warning("FusedRNNCell: the layout NTC is turned to TNC and back; \z
      inputs of layout TNC need no copies")
    self._warned = true
  end
end


function FusedRNNCell:_unroll(a)
  local inputs, axis = self:normalize(a.length, a.inputs, a.layout, true)
  if axis == 1 then
    warn_layout(self)
    inputs = symbol.swapaxes{ inputs, dim1 = 0, dim2 = 1 }
  end
  local outputs, states = results(self, operator(self, inputs, a.begin_state))
  if axis == 1 then
    outputs = symbol.swapaxes{ outputs, dim1 = 0, dim2 = 1 }
  end
  return self:normalize(a.length, outputs, a.layout, a.merge_outputs), states
end


-- Single cells ------------------------------------------------------------------------------------

local MAKERS = {
  rnn_relu = function(h, prefix)
    return basic.RNNCell{ h, activation = "relu", prefix = prefix }
  end,
  rnn_tanh = function(h, prefix)
    return basic.RNNCell{ h, activation = "tanh", prefix = prefix }
  end,
  lstm     = function(h, prefix) return basic.LSTMCell{ h, prefix = prefix } end,
  gru      = function(h, prefix) return basic.GRUCell{ h, prefix = prefix } end,
}


-- Makes the single cell of layer i, or the two cells of a bidirectional layer.
local function make_layer(self, i)
  local shape = self._shape
  local make, h, prefix = MAKERS[shape.mode], shape.num_hidden, self._prefix
  local left = make(h, ("%sl%d_"):format(prefix, i))
  if not shape.bidirectional then
    return left
  end
  return stack.BidirectionalCell{ left, make(h, ("%sr%d_"):format(prefix, i)),
    output_prefix = ("%sbi_l%d_"):format(prefix, i) }
end


--- Returns the same network as a stack of single cells with separate parameters.
-- @treturn SequentialRNNCell
function FusedRNNCell:unfuse()
  local cells, layers = stack.SequentialRNNCell{}, self._shape.num_layers
  for i = 0, layers - 1 do
    cells:add(make_layer(self, i))
    if self._dropout > 0 and i < layers - 1 then
      cells:add(dropout.DropoutCell{ self._dropout,
        prefix = ("%s_dropout%d_"):format(self._prefix, i) })
    end
  end
  return cells
end


-- Weights -----------------------------------------------------------------------------------------

-- Returns the parts of a packed vector: a list of {full name, view}.
local function make_views(self, x, inputs, func)
  local list, at = {}, 0
  for i, piece in ipairs(layout.pieces(self._shape, inputs)) do
    local view = class.view(x, piece[2], at * class.BYTES[x._dtype], func)
    at = at + view.size
    list[i] = { self._prefix .. piece[1], view }
  end
  return list
end


function FusedRNNCell:_unpack(dict)
  local func = "FusedRNNCell:unpack_weights"
  local x = self:take(dict, self._prefix .. "parameters", "unpack_weights")
  for _, piece in ipairs(make_views(self, x, layout.input_size(self._shape, x.size, func), func)) do
    dict[piece[1]] = piece[2]:copy()
  end
end


function FusedRNNCell:_pack(dict)
  local func = "FusedRNNCell:pack_weights"
  local first = ("%sl0_i2h%s_weight"):format(self._prefix, self:_gate_names()[1])
  local weight = self:take(dict, first, "pack_weights")
  dict[first] = weight
  local inputs = weight.shape[2] or 0
  local x = class.new({ layout.size(self._shape, inputs) }, weight._dtype, weight._device, func)
  for _, piece in ipairs(make_views(self, x, inputs, func)) do
    call.copy(piece[2], self:take(dict, piece[1], "pack_weights"), func, piece[1])
  end
  dict[self._prefix .. "parameters"] = x
end


return { FusedRNNCell = FusedRNNCell }
