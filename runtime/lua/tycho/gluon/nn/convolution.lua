--- Convolutions and transposed convolutions in one, two and three dimensions.
--
-- `Conv2D(channels, kernel_size)`; options: strides = 1, padding = 0, dilation = 1, groups = 1,
-- layout, in_channels = 0 (determined by the first input), activation, use_bias = true,
-- weight_initializer, bias_initializer = "zeros"; output_padding = 0 for transposed ones. A single
-- number is used for all axes. E(`value`): a list of another length, groups that do not divide the
-- channels, output_padding that is not below strides.
--
-- @module tycho.gluon.nn.convolution

local Error = require "tycho.core.error"
local layer = require "tycho.gluon.layer"
local Activation = require("tycho.gluon.nn.activations").Activation
local HybridBlock = require "tycho.gluon.hybrid_block"

local node_name = layer.node_name
local convolution = {}

local LAYOUTS = { { "NCW" }, { "NCHW", "NHWC" }, { "NCDHW", "NDHWC" } }


-- Returns the shape of a weight. rows: output channels (transposed: input channels); columns: the
-- other channels of a group, which come before or after the kernel, as channels do in the layout.
local function weight_shape(rows, columns, kernel, layout)
  local shape = { rows }
  for _, size in ipairs(kernel) do
    shape[#shape + 1] = size
  end
  table.insert(shape, layout:find("C", 1, true), columns)
  return shape
end


-- Returns the extra rows and columns of a transposed convolution; E(value) if they are not below
-- the stride.
local function read_output_padding(self, sizes, func, dims)
  local adj = layer.sizes(func, "output_padding", sizes, dims)
  for axis, size in ipairs(adj) do
    if size >= self._stride[axis] then
      Error.raise{ code = "value", func = func, argument = "output_padding", got = adj,
        expected = "less than strides on each axis", message = "bad 'output_padding'" }
    end
  end
  return adj
end


local Conv = HybridBlock:extend("Conv")

Conv._hint = "conv"


-- Sets up a layer of `dims` dimensions from the values of its form.
local function set_up(self, a, func, dims, transposed)
  self._kernel = layer.sizes(func, "kernel_size", a.kernel_size, dims)
  self._stride = layer.sizes(func, "strides", a.strides, dims)
  self._pad = layer.sizes(func, "padding", a.padding, dims)
  self._dilate = layer.sizes(func, "dilation", a.dilation, dims)
  self._layout = layer.word(func, "layout", a.layout, LAYOUTS[dims])
  self._channels, self._groups = a.channels, a.groups
  local rows, columns = a.channels, layer.per_group(func, "in_channels", a.in_channels, a.groups)
  local outside = layer.per_group(func, "channels", a.channels, a.groups)
  if transposed then
    rows, columns = a.in_channels, outside
    self._adj = read_output_padding(self, a.output_padding, func, dims)
  end
  self.weight = self.params:get("weight", { init = a.weight_initializer,
    shape = weight_shape(rows, columns, self._kernel, self._layout), allow_deferred_init = true })
  if a.use_bias then
    self.bias = self.params:get("bias", { shape = { a.channels }, init = a.bias_initializer,
      allow_deferred_init = true })
  end
  if a.activation then
    self.act = Activation{ a.activation, prefix = a.activation .. "_" }
  end
end


layer.describe(Conv, function(self)
  return layer.convolution_text(self, self.weight, self.bias)
end)


local function list_parameters(self)
  return { no_bias = not self.bias, kernel = self._kernel, stride = self._stride, pad = self._pad,
    dilate = self._dilate, adj = self._adj, num_filter = self._channels, num_group = self._groups,
    layout = self._layout }
end

local convolve = layer.weighted("Convolution", list_parameters)
local deconvolve = layer.weighted("Deconvolution", list_parameters)


function Conv:forward(x)
  local bias, act = self.bias, self.act
  local y = convolve(self, node_name(x), x, self.weight:data(x), bias and bias:data(x))
  return layer.activated(act, y)
end


local function forward_transposed(self, x)
  local bias, act = self.bias, self.act
  local y = deconvolve(self, node_name(x), x, self.weight:data(x), bias and bias:data(x))
  return layer.activated(act, y)
end


local OUTPUT_PADDING = { "output_padding", "sizes", 0 }

-- Returns the parameters of a form for convolutions of `dims` dimensions.
local function make_spec(dims, transposed)
  local spec = { { "channels", "positive" }, { "kernel_size", "sizes" },
    { "strides", "sizes", 1 }, { "padding", "sizes", 0 }, { "dilation", "sizes", 1 },
    { "groups", "positive", 1 }, { "layout", "text", LAYOUTS[dims][1] }, { "activation", "text?" },
    { "use_bias", "boolean", true }, { "weight_initializer", "any?" },
    { "bias_initializer", "any", "zeros" }, { "in_channels", "integer", 0 } }
  if transposed then
    table.insert(spec, 5, OUTPUT_PADDING)
  end
  return spec
end


local function define_layer(name, dims, transposed)
  local func = "nn." .. name
  local class = layer.extend(Conv, func, make_spec(dims, transposed))
  function class:set_up(a)
    set_up(self, a, func, dims, transposed)
  end
  if transposed then
    class.forward = forward_transposed
  end
  convolution[name] = class
end


--- Convolves along one axis: (N, C, W) to (N, channels, W'), where W' = floor((W + 2 padding -
-- dilation (kernel - 1) - 1) / stride) + 1. Layout "NCW".
-- @type Conv1D
define_layer("Conv1D", 1, false)

--- Convolves images: (N, C, H, W) to (N, channels, H', W'). Layout "NCHW" or "NHWC".
-- @type Conv2D
define_layer("Conv2D", 2, false)

--- Convolves volumes: (N, C, D, H, W) to (N, channels, D', H', W'). Layout "NCDHW" or "NDHWC".
-- @type Conv3D
define_layer("Conv3D", 3, false)

--- Computes the gradient of Conv1D with respect to its input, as a layer: W' = (W - 1) stride - 2
-- padding + dilation (kernel - 1) + 1 + output_padding.
-- @type Conv1DTranspose
define_layer("Conv1DTranspose", 1, true)

--- Computes the gradient of Conv2D with respect to its input, as a layer.
-- @type Conv2DTranspose
define_layer("Conv2DTranspose", 2, true)

--- Computes the gradient of Conv3D with respect to its input, as a layer.
-- @type Conv3DTranspose
define_layer("Conv3DTranspose", 3, true)


return convolution
