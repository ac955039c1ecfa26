--- RNNCell, LSTMCell, GRUCell, and LSTMPCell of contrib.
--
-- A step applies two linear maps, to the input (i2h) and to the state (h2h), and the cell's formula
-- to their results, which consist of blocks of hidden_size columns, one for each gate. Weights are
-- (gates * hidden_size, size). An input is (batch, input_size), an output and a state (batch,
-- hidden_size).
--
-- @module tycho.gluon.rnn.cells

local F = require "tycho.symbol.either"
local layer = require "tycho.gluon.layer"
local base = require "tycho.gluon.rnn.base"

local cells = {}


-- Parameters --------------------------------------------------------------------------------------

local INITIALIZERS = {
  { "i2h_weight_initializer", "any?" }, { "h2h_weight_initializer", "any?" },
  { "i2h_bias_initializer", "any", "zeros" }, { "h2h_bias_initializer", "any", "zeros" },
}


-- Makes a parameter and sets it as a field of the cell.
local function make_parameter(self, name, shape, initializer)
  self[name] = self.params:get(name, { shape = shape, init = initializer,
    allow_deferred_init = true })
end


-- Makes the parameters of a cell whose matrices have `gates` blocks of hidden_size rows.
local function set_up(self, a, gates, state_size)
  local rows = gates * a.hidden_size
  self._hidden_size, self._rows = a.hidden_size, rows
  make_parameter(self, "i2h_weight", { rows, a.input_size }, a.i2h_weight_initializer)
  make_parameter(self, "h2h_weight", { rows, state_size or a.hidden_size },
    a.h2h_weight_initializer)
  if a.projection_size then
    make_parameter(self, "h2r_weight", { a.projection_size, a.hidden_size },
      a.h2r_weight_initializer)
  end
  make_parameter(self, "i2h_bias", { rows }, a.i2h_bias_initializer)
  make_parameter(self, "h2h_bias", { rows }, a.h2h_bias_initializer)
end


-- Returns the descriptions of states (batch, size).
local function describe_states(batch_size, ...)
  local list = {}
  for i, size in ipairs{ ... } do
    list[i] = { shape = { batch_size or 0, size }, __layout__ = "NC" }
  end
  return list
end


local add, multiply = layer.binary "elemwise_add", layer.binary "elemwise_mul"

local linear = layer.weighted("FullyConnected", function(cell)
  return { num_hidden = cell._rows }
end)


-- Returns the maps of input and state; nodes are named by the step.
local function apply_maps(self, x, state)
  local name = layer.step_names(self, x)
  local i2h = linear(self, name("i2h"), x, self.i2h_weight:data(x), self.i2h_bias:data(x))
  local h2h = linear(self, name("h2h"), state, self.h2h_weight:data(x), self.h2h_bias:data(x))
  return i2h, h2h, name
end


-- Returns the blocks of a map's result.
local function slice_blocks(x, n, name)
  return layer.outputs(F.SliceChannel{ x, num_outputs = n, name = name }, n)
end


local function describe_cell(self)
  local shape = self.i2h_weight.shape
  return ("%s(%s)"):format(self.class_name, layer.mapping(shape[2], shape[1]))
end


-- RNNCell -----------------------------------------------------------------------------------------

--- Computes h' = activation(W x + b + U h + c): `RNNCell(hidden_size, activation)`, activation =
-- "tanh". State: h, which is also the output.
-- @type RNNCell
local RNNCell = layer.extend(base.HybridRecurrentCell, "gluon.rnn.RNNCell", layer.joined(
  layer.joined({ { "hidden_size", "positive" }, { "activation", "text|function", "tanh" } },
    INITIALIZERS), { { "input_size", "integer", 0 } }))

RNNCell._hint = "rnn"


function RNNCell:set_up(a)
  self._activation = a.activation
  set_up(self, a, 1)
end


function RNNCell:state_info(batch_size)
  return describe_states(batch_size, self._hidden_size)
end


function RNNCell:forward(x, states)
  base.check_count(self, states, 1)
  local i2h, h2h, name = apply_maps(self, x, states[1])
  local sum = add(name("plus0"), i2h, h2h)
  local y = base.activate(sum, self._activation, name("out"))
  return y, { y }
end


layer.describe(RNNCell, function(self)
  local shape = self.i2h_weight.shape
  return ("%s(%s, %s)"):format(self.class_name, layer.mapping(shape[2], shape[1]),
    tostring(self._activation))
end)


-- LSTMCell ----------------------------------------------------------------------------------------

-- Returns the new state of an LSTM: gates i, f, c, o in blocks of rows.
local function lstm_state(i2h, h2h, c, activation, recurrent, name)
  local gates = add(name("plus0"), i2h, h2h)
  local block = slice_blocks(gates, 4, name("slice"))
  local i = base.activate(block[1], recurrent, name("i"))
  local f = base.activate(block[2], recurrent, name("f"))
  local new = base.activate(block[3], activation, name("c"))
  local o = base.activate(block[4], recurrent, name("o"))
  local kept, added = multiply(name("mul0"), f, c), multiply(name("mul1"), i, new)
  return add(name("state"), kept, added), o
end


--- Computes c' = f c + i g and h' = o activation(c'), where the gates i, f, o are the recurrent
-- activation of their blocks, g the activation of its block: `LSTMCell(hidden_size)`. States: h
-- (the output), c.
-- @type LSTMCell
local LSTMCell = layer.extend(base.HybridRecurrentCell, "gluon.rnn.LSTMCell", layer.joined(
  layer.joined({ { "hidden_size", "positive" } }, INITIALIZERS),
  { { "input_size", "integer", 0 }, { "activation", "text|function", "tanh" },
    { "recurrent_activation", "text|function", "sigmoid" } }))

LSTMCell._hint = "lstm"


function LSTMCell:set_up(a)
  self._activation, self._recurrent_activation = a.activation, a.recurrent_activation
  set_up(self, a, 4)
end


function LSTMCell:state_info(batch_size)
  return describe_states(batch_size, self._hidden_size, self._hidden_size)
end


function LSTMCell:forward(x, states)
  base.check_count(self, states, 2)
  local i2h, h2h, name = apply_maps(self, x, states[1])
  local next_c, o = lstm_state(i2h, h2h, states[2], self._activation,
    self._recurrent_activation, name)
  local squashed = base.activate(next_c, self._activation, name("activation0"))
  local y = multiply(name("out"), o, squashed)
  return y, { y, next_c }
end


layer.describe(LSTMCell, describe_cell)


-- GRUCell -----------------------------------------------------------------------------------------

--- Computes h' = (1 - z) tanh(x_n + r h_n) + z h, where the gates r and z are sigmoids of the sums
-- of their blocks, x_n and h_n the third blocks of both maps: `GRUCell(hidden_size)`. State: h
-- (the output).
-- @type GRUCell
local GRUCell = layer.extend(base.HybridRecurrentCell, "gluon.rnn.GRUCell", layer.joined(
  layer.joined({ { "hidden_size", "positive" } }, INITIALIZERS),
  { { "input_size", "integer", 0 } }))

GRUCell._hint = "gru"


function GRUCell:set_up(a)
  set_up(self, a, 3)
end


function GRUCell:state_info(batch_size)
  return describe_states(batch_size, self._hidden_size)
end


function GRUCell:forward(x, states)
  base.check_count(self, states, 1)
  local h = states[1]
  local i2h, h2h, name = apply_maps(self, x, h)
  local i, s = slice_blocks(i2h, 3, name("i2h_slice")), slice_blocks(h2h, 3, name("h2h_slice"))
  local r = F.Activation{ add(name("plus0"), i[1], s[1]), act_type = "sigmoid",
    name = name("r_act") }
  local z = F.Activation{ add(name("plus1"), i[2], s[2]), act_type = "sigmoid",
    name = name("z_act") }
  local kept = multiply(name("mul0"), r, s[3])
  local new = F.Activation{ add(name("plus2"), i[3], kept), act_type = "tanh",
    name = name("h_act") }
  local y = (1 - z) * new
  y = add(name("out"), y, multiply(name("mul20"), z, h))
  return y, { y }
end


layer.describe(GRUCell, describe_cell)


-- LSTMPCell ---------------------------------------------------------------------------------------

--- Computes an LSTM whose h' is projected to `projection_size` units: `LSTMPCell(hidden_size,
-- projection_size)`. States: the projected h (the output), c.
-- @type LSTMPCell
local LSTMPCell = layer.extend(base.HybridRecurrentCell, "contrib.rnn.LSTMPCell", {
  { "hidden_size", "positive" }, { "projection_size", "positive" },
  { "i2h_weight_initializer", "any?" }, { "h2h_weight_initializer", "any?" },
  { "h2r_weight_initializer", "any?" }, { "i2h_bias_initializer", "any", "zeros" },
  { "h2h_bias_initializer", "any", "zeros" }, { "input_size", "integer", 0 },
})

LSTMPCell._hint = "lstmp"


function LSTMPCell:set_up(a)
  self._projection_size = a.projection_size
  set_up(self, a, 4, a.projection_size)
end


function LSTMPCell:state_info(batch_size)
  return describe_states(batch_size, self._projection_size, self._hidden_size)
end


function LSTMPCell:forward(x, states)
  base.check_count(self, states, 2)
  local i2h, h2h, name = apply_maps(self, x, states[1])
  local next_c, o = lstm_state(i2h, h2h, states[2], "tanh", "sigmoid", name)
  local hidden = multiply(name("hidden"), o, F.tanh(next_c))
  local y = F.FullyConnected{ hidden, self.h2r_weight:data(x), num_hidden = self._projection_size,
    no_bias = true, name = name("out") }
  return y, { y, next_c }
end


layer.describe(LSTMPCell, function(self)
  local shape = self.i2h_weight.shape
  return ("%s(%s -> %d)"):format(self.class_name, layer.mapping(shape[2], shape[1]),
    self._projection_size)
end)


local function has_named_activations(self)
  local first, second = rawget(self, "_fields")._activation,
    rawget(self, "_fields")._recurrent_activation
  return (first == nil or type(first) == "string") and (second == nil or type(second) == "string")
end


for _, class in ipairs{ RNNCell, LSTMCell, GRUCell, LSTMPCell } do
  layer.tidy(class, has_named_activations)
end


cells.RNNCell, cells.LSTMCell, cells.GRUCell, cells.LSTMPCell =
  RNNCell, LSTMCell, GRUCell, LSTMPCell

return cells
