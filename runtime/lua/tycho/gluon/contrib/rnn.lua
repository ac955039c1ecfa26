--- Cells of the reference's contrib: `ty.gluon.contrib.rnn`.
--
-- Convolutional cells apply convolutions to input and state, and states are images.
-- `dynamic_unroll` runs a cell over a sequence as a loop of the graph.
--
-- @module tycho.gluon.contrib.rnn

local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local args = require "tycho.core.args"
local layer = require "tycho.gluon.layer"
local base = require "tycho.gluon.rnn.base"
local cells = require "tycho.gluon.rnn.cells"
local modifiers = require "tycho.gluon.rnn.modifiers"
local namespace = require "tycho.core.namespace"
local sequence = require "tycho.gluon.rnn.sequence"
local values = require "tycho.core.values"

local contrib = { LSTMPCell = cells.LSTMPCell,
  VariationalDropoutCell = modifiers.VariationalDropoutCell }


-- Convolutional cells -----------------------------------------------------------------------------

local LAYOUTS = { { "NCW", "NWC" }, { "NCHW", "NHWC" }, { "NCDHW", "NDHWC" } }

-- The base class of convolutional cells.
local ConvCell = base.HybridRecurrentCell:extend("ConvCell")


-- Returns the size of the result of a convolution of stride 1, 0 for an unknown size.
local function convolved(sizes, kernel, pad, dilate)
  local list = {}
  for axis, size in ipairs(sizes) do
    list[axis] = size == 0 and 0
      or math.floor(size + 2 * pad[axis] - dilate[axis] * (kernel[axis] - 1) - 1) + 1
  end
  return list
end


-- Returns a shape of channels and sizes. first: whether the channels come first in the layout, else
-- last.
local function with_channels(channels, sizes, first)
  local list = { unpack(sizes) }
  table.insert(list, first and 1 or #list + 1, channels)
  return list
end


-- Returns the padding with which the map of the states keeps their size.
local function even_padding(func, kernel, dilate)
  local pad = {}
  for axis, size in ipairs(kernel) do
    if size % 2 == 0 then
      Error.raise{ code = "value", func = func, argument = "h2h_kernel", expected = "odd sizes",
        got = kernel, message = "the map of the states must keep their size" }
    end
    pad[axis] = dilate[axis] * (size - 1) / 2
  end
  return pad
end


local function set_up(self, a, func, dims, gates)
  local function sizes(name)
    return layer.sizes(func, name, a[name], dims)
  end
  self._layout = layer.word(func, "conv_layout", a.conv_layout, LAYOUTS[dims])
  self._activation, self._hidden_channels, self._gates = a.activation, a.hidden_channels, gates
  local first = self._layout:sub(2, 2) == "C"
  self._axis = first and 1 or dims + 1
  if #a.input_shape ~= dims + 1 then
    Error.raise{ code = "value", func = func, argument = "input_shape", got = a.input_shape,
      expected = ("%d sizes: channels and picture"):format(dims + 1),
      message = "bad 'input_shape'" }
  end
  local picture = { unpack(a.input_shape) }
  local channels = table.remove(picture, first and 1 or dims + 1)
  local ones = layer.sizes(func, "stride", 1, dims)
  self._i2h = { kernel = sizes("i2h_kernel"), pad = sizes("i2h_pad"),
    dilate = sizes("i2h_dilate"), stride = ones }
  self._h2h = { kernel = sizes("h2h_kernel"), dilate = sizes("h2h_dilate"), stride = ones }
  self._h2h.pad = even_padding(func, self._h2h.kernel, self._h2h.dilate)
  self._state_shape = with_channels(a.hidden_channels,
    convolved(picture, self._i2h.kernel, self._i2h.pad, self._i2h.dilate), first)
  local rows = gates * a.hidden_channels
  local function parameter(name, shape)
    self[name] = self.params:get(name, { shape = shape, init = a[name .. "_initializer"],
      allow_deferred_init = true })
  end
  parameter("i2h_weight", { rows, unpack(with_channels(channels, self._i2h.kernel, first)) })
  parameter("h2h_weight",
    { rows, unpack(with_channels(a.hidden_channels, self._h2h.kernel, first)) })
  parameter("i2h_bias", { rows })
  parameter("h2h_bias", { rows })
end


function ConvCell:state_info(batch_size)
  local list = {}
  for i = 1, self._states do
    list[i] = { shape = { batch_size or 0, unpack(self._state_shape) }, __layout__ = self._layout }
  end
  return list
end


local function convolve(self, x, group, name)
  local p = self["_" .. group]
  return F.Convolution{ x, self[group .. "_weight"]:data(x), self[group .. "_bias"]:data(x),
    num_filter = self._gates * self._hidden_channels, kernel = p.kernel, stride = p.stride,
    pad = p.pad, dilate = p.dilate, layout = self._layout, name = name(group) }
end


local function maps(self, x, state)
  local name = layer.step_names(self, x)
  return convolve(self, x, "i2h", name), convolve(self, state, "h2h", name), name
end


local function slice_gates(self, x, name)
  return layer.outputs(
    F.SliceChannel{ x, num_outputs = self._gates, axis = self._axis, name = name }, self._gates)
end


local function sigmoid(x, name)
  return F.Activation{ x, act_type = "sigmoid", name = name }
end


layer.describe(ConvCell, function(self)
  local shape = self.i2h_weight.shape
  return ("%s(%s, %s, %s)"):format(self.class_name,
    layer.mapping(shape[self._axis == 1 and 2 or #shape], shape[1]), tostring(self._activation),
    self._layout)
end)


local FORWARD = {}

function FORWARD.RNN(self, x, states)
  base.check_count(self, states, 1)
  local i2h, h2h, name = maps(self, x, states[1])
  local y = base.activate(i2h + h2h, self._activation, name("out"))
  return y, { y }
end


function FORWARD.LSTM(self, x, states)
  base.check_count(self, states, 2)
  local i2h, h2h, name = maps(self, x, states[1])
  local block = slice_gates(self, i2h + h2h, name("slice"))
  local i, f = sigmoid(block[1], name("i")), sigmoid(block[2], name("f"))
  local new = base.activate(block[3], self._activation, name("c"))
  local o = sigmoid(block[4], name("o"))
  local next_c = F.elemwise_add{ f * states[2], i * new, name = name("state") }
  local y = F.elemwise_mul{ o, base.activate(next_c, self._activation), name = name("out") }
  return y, { y, next_c }
end


function FORWARD.GRU(self, x, states)
  base.check_count(self, states, 1)
  local h = states[1]
  local i2h, h2h, name = maps(self, x, h)
  local i, s = slice_gates(self, i2h, name("i2h_slice")), slice_gates(self, h2h, name("h2h_slice"))
  local r = sigmoid(i[1] + s[1], name("r_act"))
  local z = sigmoid(i[2] + s[2], name("z_act"))
  local new = base.activate(i[3] + r * s[3], self._activation, name("h_act"))
  local y = F.elemwise_add{ (1 - z) * new, z * h, name = name("out") }
  return y, { y }
end


local function define(kind, dims, gates, states)
  local name = ("Conv%dD%sCell"):format(dims, kind)
  local func = "contrib.rnn." .. name
  local class = layer.extend(ConvCell, func, {
    { "input_shape", "shape" }, { "hidden_channels", "positive" }, { "i2h_kernel", "sizes" },
    { "h2h_kernel", "sizes" }, { "i2h_pad", "sizes", 0 }, { "i2h_dilate", "sizes", 1 },
    { "h2h_dilate", "sizes", 1 }, { "i2h_weight_initializer", "any?" },
    { "h2h_weight_initializer", "any?" }, { "i2h_bias_initializer", "any", "zeros" },
    { "h2h_bias_initializer", "any", "zeros" }, { "conv_layout", "text", LAYOUTS[dims][1] },
    { "activation", "any", "tanh" },
  })
  class._hint, class._states, class.forward = "conv_" .. kind:lower(), states, FORWARD[kind]
  function class:set_up(a)
    set_up(self, a, func, dims, gates)
  end
  contrib[name] = class
end


-- Conv1DRNNCell to Conv3DGRUCell: input_shape (without the batch), hidden_channels, i2h_kernel,
-- h2h_kernel (odd), i2h_pad = 0, i2h_dilate = 1, h2h_dilate = 1, initializers, conv_layout,
-- activation = "tanh".
for dims = 1, 3 do
  define("RNN", dims, 1, 1)
  define("LSTM", dims, 4, 2)
  define("GRU", dims, 3, 1)
end


-- Unrolling as a loop -----------------------------------------------------------------------------

local DYNAMIC = args.form("contrib.rnn.dynamic_unroll", {
  { "cell", "any" }, { "inputs", "any" }, { "begin_state", "any" }, { "drop_inputs", "number", 0 },
  { "drop_outputs", "number", 0 }, { "layout", "text", "TNC" }, { "valid_length", "any?" },
})

-- Returns the body of the loop. With valid lengths, the last state counts the steps, and samples
-- that have ended keep their states.
local function make_body(cell, valid_length)
  if valid_length == nil then
    return function(x, states)
      return cell(x, states)
    end
  end
  return function(x, states)
    local n = #states
    local old, step = base.part(states, 1, n - 1), states[n]
    local y, new = cell(x, old)
    local kept = {}
    for i, state in ipairs(old) do
      kept[i] = F.where(F.broadcast_greater(valid_length, step), new[i], state)
    end
    kept[n] = step + 1
    return y, kept
  end
end


--- Runs a cell over a sequence as a loop of the graph. The length need not be known during tracing.
-- @tparam table options cell; inputs: one tensor in the layout; begin_state: list of states;
--   drop_inputs = 0, drop_outputs = 0: probabilities of dropout; layout = "TNC" or "NTC";
--   valid_length: array (batch)
-- @return outputs as one tensor in the layout
-- @return list of the last states
function contrib.dynamic_unroll(...)
  local func = "contrib.rnn.dynamic_unroll"
  local a = DYNAMIC(...)
  local time = sequence.axes(a.layout, func)
  local x, valid_length = sequence.join(a.inputs, time), values.value(a.valid_length)
  local states = values.is_plain(a.begin_state) and base.part(a.begin_state, 1, #a.begin_state)
    or { a.begin_state }
  local n = #states
  if time ~= 0 then
    x = F.swapaxes{ x, dim1 = 0, dim2 = time }
  end
  if a.drop_inputs ~= 0 then
    x = F.Dropout{ x, p = a.drop_inputs, axes = { 0 } }
  end
  if valid_length ~= nil then
    states[n + 1] = F.zeros_like(F.slice_axis{ valid_length, axis = 0, begin = 0, ["end"] = 1 })
  end
  local y, new = F.contrib.foreach(make_body(a.cell, valid_length), x, states)
  if a.drop_outputs ~= 0 then
    y = F.Dropout{ y, p = a.drop_outputs, axes = { 0 } }
  end
  if time ~= 0 then
    y = F.swapaxes{ y, dim1 = 0, dim2 = time }
  end
  if valid_length ~= nil then
    y = sequence.mask(y, valid_length, time)
  end
  return y, base.part(new, 1, n)
end


return namespace.close(contrib, "contrib.rnn", "cell or function")
