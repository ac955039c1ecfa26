--- RNN, LSTM, GRU: layers that run whole sequences with one operator.
--
-- `LSTM(hidden_size, num_layers, layout)`; options: num_layers = 1, layout = "TNC" or "NTC",
-- dropout = 0 (between layers, in training mode), bidirectional = false, input_size = 0 (determined
-- by the first input), initializers. The input is (time, batch, input_size) in the order of the
-- layout, the output (time, batch, hidden_size), twice as wide if bidirectional. A state is (layers
-- * directions, batch, hidden_size).
--
-- @module tycho.gluon.rnn.layers

local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local layer = require "tycho.gluon.layer"
local base = require "tycho.gluon.rnn.base"
local cells = require "tycho.gluon.rnn.cells"
local modifiers = require "tycho.gluon.rnn.modifiers"
local stacks = require "tycho.gluon.rnn.stacks"
local sym = require "tycho.symbol.symbol"
local values = require "tycho.core.values"
local HybridBlock = require "tycho.gluon.hybrid_block"

local layers = {}

local GATES = { rnn_relu = 1, rnn_tanh = 1, lstm = 4, gru = 3 }


-- Parameters --------------------------------------------------------------------------------------

--- The base class of the three layers.
-- @type RNNLayer
local RNNLayer = HybridBlock:extend("RNNLayer")

-- Names of a layer's directions.
local DIRECTIONS = { { "l" }, { "l", "r" } }


-- Returns the cells in the order of their parameters: a list of { direction, number of the layer
-- (from 0), size of its input }.
local function list_cells(self)
  local list, size = {}, self._input_size
  for i = 0, self._num_layers - 1 do
    for _, direction in ipairs(DIRECTIONS[self._dir]) do
      list[#list + 1] = { direction = direction, number = i, size = size }
    end
    size = (self._projection_size or self._hidden_size) * self._dir
  end
  return list
end


-- Returns the parameters in the order of the operator's vector: the weights of all cells, then the
-- biases of all cells.
local function parameters_in_order(self)
  local list = {}
  for _, kind in ipairs{ "weight", "bias" } do
    for _, cell in ipairs(list_cells(self)) do
      for _, group in ipairs{ "i2h", "h2h", "h2r" } do
        list[#list + 1] = self[("%s%d_%s_%s"):format(cell.direction, cell.number, group, kind)]
      end
    end
  end
  return list
end


local function add_parameter(self, cell, name, shape)
  local key = ("%s%d_%s"):format(cell.direction, cell.number, name)
  self[key] = self.params:get(key, { shape = shape, init = self._initializers[name],
    dtype = self._dtype, allow_deferred_init = true })
end


local function set_up(self, a, mode, func)
  self._mode, self._layout = mode, layer.word(func, "layout", a.layout, { "TNC", "NTC" })
  self._hidden_size, self._num_layers, self._input_size =
    a.hidden_size, a.num_layers, a.input_size
  self._dropout, self._dir, self._dtype = a.dropout, a.bidirectional and 2 or 1, a.dtype
  self._projection_size = a.projection_size
  self._clip_min, self._clip_max, self._clip_nan =
    a.state_clip_min, a.state_clip_max, a.state_clip_nan
  self._initializers = { i2h_weight = a.i2h_weight_initializer,
    h2h_weight = a.h2h_weight_initializer, i2h_bias = a.i2h_bias_initializer,
    h2h_bias = a.h2h_bias_initializer, h2r_weight = a.h2r_weight_initializer }
  local rows = GATES[mode] * a.hidden_size
  local outputs = a.projection_size or a.hidden_size
  for _, cell in ipairs(list_cells(self)) do
    add_parameter(self, cell, "i2h_weight", { rows, cell.size })
    add_parameter(self, cell, "h2h_weight", { rows, outputs })
    add_parameter(self, cell, "i2h_bias", { rows })
    add_parameter(self, cell, "h2h_bias", { rows })
    if a.projection_size then
      add_parameter(self, cell, "h2r_weight", { a.projection_size, a.hidden_size })
    end
  end
  self._vector = parameters_in_order(self)
end


-- Appends { name, parameter } pairs for a parameter file to a list; the names are those of the
-- parameters in a stack of cells.
function RNNLayer:_append_named(prefix, list)
  for _, own in ipairs(self._own) do
    local direction, i, rest = own.name:match("^([lr])(%d+)_(.*)$")
    local key = not direction and own.name
      or self._dir == 2 and ("_unfused.%s.%s_cell.%s"):format(i, direction, rest)
      or ("_unfused.%s.%s"):format(i, rest)
    list[#list + 1] = { prefix .. key, own.param }
  end
  return list
end


layer.describe(RNNLayer, function(self)
  local shape = self.l0_i2h_weight.shape
  local text = ("%s(%s, %s"):format(self.class_name,
    layer.mapping(shape[2], shape[1] / GATES[self._mode]), self._layout)
  return table.concat{ text,
    self._num_layers ~= 1 and ", num_layers=" .. layer.show(self._num_layers) or "",
    self._dropout ~= 0 and ", dropout=" .. layer.show(self._dropout) or "",
    self._dir == 2 and ", bidirectional" or "", ")" }
end)


-- States ------------------------------------------------------------------------------------------

--- Returns the descriptions of the states.
-- @int[opt=0] batch_size
-- @treturn table list of `{ shape =, __layout__ = "LNC", dtype = }`
function RNNLayer:state_info(batch_size)
  local list = {}
  for i = 1, self._mode == "lstm" and 2 or 1 do
    local size = i == 1 and self._projection_size or self._hidden_size
    list[i] = { shape = { self._num_layers * self._dir, batch_size or 0, size },
      __layout__ = "LNC", dtype = self.l0_i2h_weight.dtype }
  end
  return list
end


--- Makes the initial states.
-- @tparam table options batch_size = 0; func = ty.nd.zeros: makes a state; ctx, dtype: of arrays
-- @treturn table list of states
function RNNLayer:begin_state(...)
  local a = base.read_begin(...)
  return base.make_states(self:state_info(a.batch_size), a, function(i)
    return ("%sh0_%d"):format(self.prefix, i - 1)
  end)
end


local function check_states(self, states, batch_size)
  local infos = self:state_info(batch_size)
  for i, state in ipairs(states) do
    local shape, want = state.shape, infos[i] and infos[i].shape or {}
    if #shape ~= 3 or shape[1] ~= want[1] or shape[2] ~= want[2] or shape[3] ~= want[3] then
      Error.raise{ code = "shape", func = "gluon.rnn." .. self.class_name, argument = "states",
        expected = want, got = shape, node = self.name,
        message = ("the shape of state %d does not fit the layer and the batch"):format(i) }
    end
  end
end


-- Returns the states of a call as a list: the given ones, or zeros. Raises E(type) for an input
-- that is not a tensor.
local function states_for(self, x, states)
  local symbolic = F.is_symbol(x)
  if not symbolic and not class.is_array(x) then
    Error.raise{ code = "type", func = "gluon.rnn." .. self.class_name, argument = "x",
      expected = "an NDArray or Symbol", got = Error.kind(x), node = self.name,
      message = "the sequence is one tensor" }
  end
  if states ~= nil and not values.is_plain(states) then
    states = { states }
  end
  if states then
    base.check_count(self, states, self._mode == "lstm" and 2 or 1)
  end
  if symbolic then
    return states or self:begin_state{ batch_size = 0, func = sym.zeros }
  end
  local batch = self._layout:find("N", 1, true)
  local batch_size = x.shape[batch]
  if states == nil then
    return self:begin_state{ batch_size = batch_size, ctx = x.context, dtype = x.dtype }
  end
  check_states(self, states, batch_size)
  return states
end


-- Running -----------------------------------------------------------------------------------------

-- Returns all parameters in one vector.
local function join_parameters(self, x)
  local arguments = { dim = 0 }
  for i, p in ipairs(self._vector) do
    arguments[i] = F.reshape{ p:data(x), shape = { -1 } }
  end
  return F._rnn_param_concat(arguments)
end


--- Runs the layer over a sequence: `layer(x)` starts with zeros and returns the output; `layer(x,
-- states)` returns the output and the list of the last states. States of another number or shape
-- are E(`shape`).
function RNNLayer:forward(x, states)
  local given = states ~= nil
  states = states_for(self, x, values.value(states))
  if self._layout == "NTC" then
    x = F.swapaxes{ x, dim1 = 0, dim2 = 1 }
  end
  local result = F.RNN{ x, join_parameters(self, x), states[1], state_cell = states[2],
    state_size = self._hidden_size, projection_size = self._projection_size,
    num_layers = self._num_layers, bidirectional = self._dir == 2, p = self._dropout,
    state_outputs = true, mode = self._mode, lstm_state_clip_min = self._clip_min,
    lstm_state_clip_max = self._clip_max, lstm_state_clip_nan = self._clip_nan }
  local outputs = layer.outputs(result, 1 + #states)
  local y, new = outputs[1], { outputs[2], outputs[3] }
  if self._layout == "NTC" then
    y = F.swapaxes{ y, dim1 = 0, dim2 = 1 }
  end
  if given then
    return y, new
  end
  return y
end


local function add_cells(self, stack, Cell)
  local left
  for _, at in ipairs(list_cells(self)) do
    local cell = Cell{ self._hidden_size, input_size = at.size,
      activation = self._mode:match("^rnn_(.*)$"),
      prefix = ("%s%d_"):format(at.direction, at.number),
      i2h_weight_initializer = self._initializers.i2h_weight,
      h2h_weight_initializer = self._initializers.h2h_weight,
      i2h_bias_initializer = self._initializers.i2h_bias,
      h2h_bias_initializer = self._initializers.h2h_bias }
    if self._dir == 2 and at.direction == "l" then
      left = cell
    else
      stack:add(left and stacks.BidirectionalCell(left, cell) or cell)
      left = nil
      if self._dropout > 0 and at.number ~= self._num_layers - 1 then
        stack:add(modifiers.classes.DropoutCell(self._dropout))
      end
    end
  end
end


--- Returns a stack of cells that computes the same with the layer's parameters.
-- @treturn HybridSequentialRNNCell
function RNNLayer:unfuse()
  if self._projection_size or self._clip_min or self._clip_max then
    Error.raise{ code = "unsupported", func = "gluon.rnn." .. self.class_name .. ":unfuse",
      message = "cells have neither projection nor clipped states" }
  end
  local stack = stacks.HybridSequentialRNNCell{ prefix = self.prefix, params = self.params }
  local Cell = self._mode == "lstm" and cells.LSTMCell or self._mode == "gru" and cells.GRUCell
    or cells.RNNCell
  stack:name_scope():with(add_cells, self, stack, Cell)
  return stack
end


-- The three layers --------------------------------------------------------------------------------

local SIZES = { { "hidden_size", "positive" }, { "num_layers", "positive", 1 } }
local SHAPE = { { "layout", "text", "TNC" }, { "dropout", "number", 0 },
  { "bidirectional", "boolean", false } }
local INITIALIZERS = {
  { "i2h_weight_initializer", "any?" }, { "h2h_weight_initializer", "any?" },
  { "i2h_bias_initializer", "any", "zeros" }, { "h2h_bias_initializer", "any", "zeros" },
}
local INPUT = { { "input_size", "integer", 0 } }
local LAST = { { "dtype", "dtype", "float32" } }

local function joined(...)
  local spec = {}
  for _, part in ipairs{ ... } do
    spec = layer.joined(spec, part)
  end
  return spec
end


--- Runs h' = activation(W x + b + U h + c), activation = "relu" or "tanh". State: h.
-- @type RNN
local RNN = layer.extend(RNNLayer, "gluon.rnn.RNN", joined(SIZES,
  { { "activation", "text", "relu" } }, SHAPE, INITIALIZERS, INPUT, LAST))

function RNN:set_up(a)
  layer.word("gluon.rnn.RNN", "activation", a.activation, { "relu", "tanh" })
  set_up(self, a, "rnn_" .. a.activation, "gluon.rnn.RNN")
end


--- Runs an LSTM (see LSTMCell). States: h, c. With `projection_size` h and the output have that
-- many units.
-- @type LSTM
local LSTM = layer.extend(RNNLayer, "gluon.rnn.LSTM", joined(SIZES, SHAPE, INPUT, INITIALIZERS, {
  { "projection_size", "positive?" }, { "h2r_weight_initializer", "any?" },
  { "state_clip_min", "number?" }, { "state_clip_max", "number?" },
  { "state_clip_nan", "boolean", false },
}, LAST))

function LSTM:set_up(a)
  set_up(self, a, "lstm", "gluon.rnn.LSTM")
end


--- Runs gated recurrent units (see GRUCell). State: h.
-- @type GRU
local GRU = layer.extend(RNNLayer, "gluon.rnn.GRU", joined(SIZES, SHAPE, INPUT, INITIALIZERS, LAST))

function GRU:set_up(a)
  set_up(self, a, "gru", "gluon.rnn.GRU")
end


layers.RNN, layers.LSTM, layers.GRU = RNN, LSTM, GRU

return layers
