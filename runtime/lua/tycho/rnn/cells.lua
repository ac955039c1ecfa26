--- The cells whose steps are products with weight matrices: RNNCell, LSTMCell, GRUCell.
--
-- A step has two linear maps, of the input (i2h) and of the state (h2h), whose rows are blocks of
-- gates, and the cell's formula on their results. The maps are a separate method (`_maps`), the
-- only part in which convolutional cells differ.
--
-- @module tycho.rnn.cells

local args = require "tycho.core.args"
local base = require "tycho.rnn.base"
local init = require "tycho.initializer"
local layout = require "tycho.initializer.rnn_layout"
local symbol = require "tycho.symbol.symbol"

local BaseRNNCell, GATES = base.BaseRNNCell, layout.GATES

local basic = {}


-- The base class of the three cells.
local Dense = BaseRNNCell:extend("Dense")

Dense.fields = BaseRNNCell.extend_fields{ state_info = function(self)
  local list = {}
  for i = 1, self._states do
    list[i] = self:_state()
  end
  return list
end }


-- Returns the description of a state: (batch, hidden units).
function Dense:_state()
  return { shape = { 0, self._num_hidden }, __layout__ = "NC" }
end


function Dense:_set_up(a, bias_init)
  Dense.super.init(self, { prefix = a.prefix, params = a.params })
  self._num_hidden, self._activation = a.num_hidden, a.activation or "tanh"
  self._i2h_weight = self._params:get("i2h_weight")
  self._i2h_bias = self._params:get("i2h_bias", { init = bias_init })
  self._h2h_weight = self._params:get("h2h_weight")
  self._h2h_bias = self._params:get("h2h_bias")
end


-- Returns the linear maps of input and state; names of nodes begin with `name`.
function Dense:_maps(inputs, state, name)
  local rows = #self:_gate_names() * self._num_hidden
  return symbol.FullyConnected{ inputs, self._i2h_weight, self._i2h_bias, num_hidden = rows,
    name = name .. "i2h" }, symbol.FullyConnected{ state, self._h2h_weight, self._h2h_bias,
      num_hidden = rows, name = name .. "h2h" }
end


-- Splits the result of a map into the blocks of its gates.
function Dense:_divide(x, name)
  return symbol.SliceChannel{ x, num_outputs = #self:_gate_names(), name = name }
end


-- Makes a class of cells with `n` states and a block of rows for each gate.
local function cell(name, n, gates)
  local class = Dense:extend(name)
  class._states = n
  function class._gate_names(_)
    return gates
  end
  basic[name] = class
  return class
end


-- RNNCell -----------------------------------------------------------------------------------------

--- h' = activation(W x + b + U h + c).
-- @type RNNCell
local RNNCell = cell("RNNCell", 1, GATES.rnn_tanh)

local RNN = args.form("rnn.RNNCell",
  { { "num_hidden", "positive" }, { "activation", "text|function", "tanh" },
    { "prefix", "text", "rnn_" }, { "params", "rnn_params?" } })

--- @int num_hidden
-- @tparam[opt="tanh"] string|function activation
-- @string[opt="rnn_"] prefix
-- @tparam[opt] RNNParams params
function RNNCell:init(...)
  self:_set_up(RNN(...))
end


function RNNCell:__call(inputs, states)
  local name = self:next_step()
  local i2h, h2h = self:_maps(inputs, states[1], name)
  self._output = self:activate(i2h + h2h, self._activation, name .. "out")
  return self._output, { self._output }
end


-- LSTMCell ----------------------------------------------------------------------------------------

--- i, f, o = sigmoid and g = tanh of the four blocks; c' = f c + i g;
-- h' = o tanh(c'). States: h, c.
-- @type LSTMCell
local LSTMCell = cell("LSTMCell", 2, GATES.lstm)

local LSTM = args.form("rnn.LSTMCell", { { "num_hidden", "positive" },
  { "prefix", "text", "lstm_" }, { "params", "rnn_params?" }, { "forget_bias", "number", 1 } })

--- @int num_hidden
-- @string[opt="lstm_"] prefix
-- @tparam[opt] RNNParams params
-- @number[opt=1] forget_bias initial value of the forget gate's bias
function LSTMCell:init(...)
  local a = LSTM(...)
  self:_set_up(a, init.LSTMBias(a.forget_bias))
end


function LSTMCell:__call(inputs, states)
  local name = self:next_step()
  local i2h, h2h = self:_maps(inputs, states[1], name)
  local blocks = self:_divide(i2h + h2h, name .. "slice")
  local i = symbol.Activation{ blocks[1], act_type = "sigmoid", name = name .. "i" }
  local f = symbol.Activation{ blocks[2], act_type = "sigmoid", name = name .. "f" }
  local g = self:activate(blocks[3], self._activation, name .. "c")
  local o = symbol.Activation{ blocks[4], act_type = "sigmoid", name = name .. "o" }
  local c = symbol.elemwise_add{ f * states[2], i * g, name = name .. "state" }
  self._output = symbol.elemwise_mul{ o, self:activate(c, self._activation), name = name .. "out" }
  return self._output, { self._output, c }
end


-- GRUCell -----------------------------------------------------------------------------------------

--- r, z = sigmoid(x + h); n = tanh(x + r h), where h includes its bias; h' = (1 - z) n + z h.
-- @type GRUCell
local GRUCell = cell("GRUCell", 1, GATES.gru)

local GRU = args.form("rnn.GRUCell", { { "num_hidden", "positive" }, { "prefix", "text", "gru_" },
  { "params", "rnn_params?" } })

--- @int num_hidden
-- @string[opt="gru_"] prefix
-- @tparam[opt] RNNParams params
function GRUCell:init(...)
  self:_set_up(GRU(...))
end


-- Returns the name of a map; those of a GRU have one underscore more than those of other cells.
function GRUCell:_map_name(name)
  return name .. "_"
end


function GRUCell:__call(inputs, states)
  local name = self:next_step()
  local i2h, h2h = self:_maps(inputs, states[1], self:_map_name(name))
  local x, h = self:_divide(i2h, name .. "_i2h_slice"), self:_divide(h2h, name .. "_h2h_slice")
  local r = symbol.Activation{ x[1] + h[1], act_type = "sigmoid", name = name .. "_r_act" }
  local z = symbol.Activation{ x[2] + h[2], act_type = "sigmoid", name = name .. "_z_act" }
  local n = self:activate(x[3] + r * h[3], self._activation, name .. "_h_act")
  self._output = symbol.elemwise_add{ (1 - z) * n, z * states[1], name = name .. "out" }
  return self._output, { self._output }
end


return basic
