--- Cells whose linear maps are convolutions: ConvRNNCell, ConvLSTMCell, ConvGRUCell.
--
-- The formulas are those of the cells that they extend; states are images. The h2h map must keep
-- the size of the states, so its kernel must be odd.
--
-- @module tycho.rnn.conv_cells

local args = require "tycho.core.args"
local base = require "tycho.rnn.base"
local basic = require "tycho.rnn.cells"
local Error = require "tycho.core.error"
local symbol = require "tycho.symbol.symbol"

local conv = {}


-- Returns the default activation, leaky ReLU of slope 0.2.
local function leaky(x, options)
  return symbol.LeakyReLU{ x, act_type = "leaky", slope = 0.2, name = options.name }
end


-- Returns the form of the arguments of a cell's constructor.
local function form(name, prefix)
  return args.form("rnn." .. name, {
    { "input_shape", "shape" }, { "num_hidden", "positive" },
    { "h2h_kernel", "shape", { 3, 3 } }, { "h2h_dilate", "shape", { 1, 1 } },
    { "i2h_kernel", "shape", { 3, 3 } }, { "i2h_stride", "shape", { 1, 1 } },
    { "i2h_pad", "shape", { 1, 1 } }, { "i2h_dilate", "shape", { 1, 1 } },
    { "i2h_weight_initializer", "any?" }, { "h2h_weight_initializer", "any?" },
    { "i2h_bias_initializer", "any", "zeros" }, { "h2h_bias_initializer", "any", "zeros" },
    { "activation", "text|function", leaky }, { "prefix", "text", prefix },
    { "params", "rnn_params?" }, { "conv_layout", "text", "NCHW" },
  })
end


-- Returns the padding with which the h2h map keeps the size of an image; E(value) for an even
-- kernel.
local function even_padding(a, func)
  local pad = {}
  for d, k in ipairs(a.h2h_kernel) do
    if k % 2 == 0 then
      Error.raise{ code = "value", func = func, argument = "h2h_kernel", expected = "odd sizes",
        got = a.h2h_kernel, message = "the map of the states must keep their size" }
    end
    pad[d] = (a.h2h_dilate[d] or 1) * (k - 1) / 2
  end
  return pad
end


-- Returns the description of a state.
local function image(self)
  return { shape = { unpack(self._state_shape) }, __layout__ = self._conv_layout }
end


-- Returns the shape of the states: that of the i2h map's result, with batch 0 and `num_hidden`
-- channels.
local function state_shape(self, input_shape, func)
  local data = symbol.Variable("data")
  local map = symbol.Convolution{ data, num_filter = self._num_hidden, kernel = self._i2h.kernel,
    stride = self._i2h.stride, pad = self._i2h.pad, dilate = self._i2h.dilate,
    layout = self._conv_layout }
  local _, outs = map:infer_shape{ data = input_shape }
  if not outs then
    Error.raise{ code = "shape", func = func, argument = "input_shape", got = input_shape,
      expected = "whole sizes of a batch of images",
      message = "the shape of the states cannot be inferred" }
  end
  outs[1][1] = 0
  return outs[1]
end


local function set_up(self, a, func)
  base.BaseRNNCell.init(self, { prefix = a.prefix, params = a.params })
  local pad, ones = even_padding(a, func), {}
  for d = 1, #a.h2h_kernel do
    ones[d] = 1
  end
  self._num_hidden, self._activation, self._conv_layout = a.num_hidden, a.activation, a.conv_layout
  self._i2h = { kernel = a.i2h_kernel, stride = a.i2h_stride,
    pad = a.i2h_pad, dilate = a.i2h_dilate }
  self._h2h = { kernel = a.h2h_kernel, stride = ones, pad = pad, dilate = a.h2h_dilate }
  for _, name in ipairs{ "i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias" } do
    self["_" .. name] = self._params:get(name, { init = a[name .. "_initializer"] })
  end
  self._state_shape = state_shape(self, a.input_shape, func)
end


-- Returns one convolution, "i2h" or "h2h".
local function convolve(self, x, group, name)
  local p = self["_" .. group]
  return symbol.Convolution{ x, self["_" .. group .. "_weight"], self["_" .. group .. "_bias"],
    kernel = p.kernel, num_filter = #self:_gate_names() * self._num_hidden, stride = p.stride,
    pad = p.pad, dilate = p.dilate, layout = self._conv_layout, name = name .. group }
end


local function maps(self, inputs, state, name)
  return convolve(self, inputs, "i2h", name), convolve(self, state, "h2h", name)
end


local function divide(self, x, name)
  local axis = self._conv_layout:find("C", 1, true) - 1
  return symbol.SliceChannel{ x, num_outputs = #self:_gate_names(), axis = axis, name = name }
end


-- Makes a class of cells whose maps are convolutions.
local function extend(cell, name)
  local read, func = form(name, name:match("^(.*)Cell$") .. "_"), "rnn." .. name
  local class = cell:extend(name)
  class._state, class._maps, class._divide = image, maps, divide
  function class:init(...)
    set_up(self, read(...), func)
  end
  conv[name] = class
  return class
end


--- A cell with convolutions in place of products. Options: input_shape (with the batch axis, whose
-- size does not matter), num_hidden, h2h_kernel = {3, 3}, h2h_dilate, i2h_kernel = {3, 3},
-- i2h_stride, i2h_pad = {1, 1}, i2h_dilate, initializers of the four parameters, activation
-- (default: leaky ReLU of slope 0.2), prefix, params, conv_layout = "NCHW".
-- @type ConvRNNCell
extend(basic.RNNCell, "ConvRNNCell")

--- An LSTM cell with the options of ConvRNNCell. States: h, c.
-- @type ConvLSTMCell
extend(basic.LSTMCell, "ConvLSTMCell")

--- A GRU cell with the options of ConvRNNCell.
-- @type ConvGRUCell
local ConvGRUCell = extend(basic.GRUCell, "ConvGRUCell")

function ConvGRUCell._map_name(_, name)
  return name
end


-- Splits into gates; as in the reference's graphs, the axis is left out if it is the usual one.
function ConvGRUCell:_divide(x, name)
  local usual = self._conv_layout:sub(2, 2) == "C"
  return (usual and basic.GRUCell._divide or divide)(self, x, name)
end


return conv
