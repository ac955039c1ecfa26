--- Deformable convolutions: `ty.gluon.contrib.cnn`.
--
-- A convolution of the input computes offsets of the points of each window (Dai et al. 2017) and,
-- in the modulated form, weights of these points from 0 to 2 (Zhu et al. 2019).
--
-- @module tycho.gluon.contrib.cnn

local F = require "tycho.symbol.either"
local HybridBlock = require "tycho.gluon.hybrid_block"
local layer = require "tycho.gluon.layer"
local namespace = require "tycho.core.namespace"
local Activation = require("tycho.gluon.nn.activations").Activation

local cnn = {}

local SPEC = {
  { "channels", "positive" }, { "kernel_size", "sizes", 1 }, { "strides", "sizes", 1 },
  { "padding", "sizes", 0 }, { "dilation", "sizes", 1 }, { "groups", "positive", 1 },
  { "num_deformable_group", "positive", 1 }, { "layout", "text", "NCHW" },
  { "use_bias", "boolean", true }, { "in_channels", "integer", 0 }, { "activation", "text?" },
  { "weight_initializer", "any?" }, { "bias_initializer", "any", "zeros" },
  { "offset_weight_initializer", "any", "zeros" }, { "offset_bias_initializer", "any", "zeros" },
  { "offset_use_bias", "boolean", true },
}


-- Reads the options and makes the parameters of a deformable convolution. numbers: how many numbers
-- the convolution that computes the offsets has for each point of a window.
local function set_up(self, a, func, numbers)
  layer.word(func, "layout", a.layout, { "NCHW" })
  self._kernel = layer.sizes(func, "kernel_size", a.kernel_size, 2)
  self._stride = layer.sizes(func, "strides", a.strides, 2)
  self._pad = layer.sizes(func, "padding", a.padding, 2)
  self._dilate = layer.sizes(func, "dilation", a.dilation, 2)
  self._channels, self._groups, self._deformable = a.channels, a.groups, a.num_deformable_group
  self._points = a.num_deformable_group * self._kernel[1] * self._kernel[2]
  self._offsets = numbers * self._points
  local inputs = layer.per_group(func, "in_channels", a.in_channels, a.groups)
  layer.per_group(func, "channels", a.channels, a.groups)
  local function parameter(name, shape, initializer)
    self[name] = self.params:get(name, { shape = shape, init = initializer,
      allow_deferred_init = true })
  end
  parameter("offset_weight", { self._offsets, inputs, unpack(self._kernel) },
    a.offset_weight_initializer)
  if a.offset_use_bias then
    parameter("offset_bias", { self._offsets }, a.offset_bias_initializer)
  end
  parameter("deformable_conv_weight", { a.channels, inputs, unpack(self._kernel) },
    a.weight_initializer)
  if a.use_bias then
    parameter("deformable_conv_bias", { a.channels }, a.bias_initializer)
  end
  if a.activation then
    self.act = Activation{ a.activation, prefix = a.activation .. "_" }
  end
end


-- Returns the output of the convolution that computes the offsets of the windows.
local function compute_offsets(self, x)
  local bias = self.offset_bias
  return F.Convolution{ x, self.offset_weight:data(x), bias and bias:data(x), no_bias = not bias,
    kernel = self._kernel, stride = self._stride, pad = self._pad, dilate = self._dilate,
    num_filter = self._offsets, num_group = self._groups }
end


-- Returns the convolution of windows with offsets. mask: weights of the points, or nil.
local function convolve(self, op, x, offset, mask)
  local bias, act = self.deformable_conv_bias, self.act
  local y = op{ data = x, offset = offset, mask = mask,
    weight = self.deformable_conv_weight:data(x), bias = bias and bias:data(x),
    no_bias = not bias, kernel = self._kernel, stride = self._stride, pad = self._pad,
    dilate = self._dilate, num_filter = self._channels, num_group = self._groups,
    num_deformable_group = self._deformable,
    name = layer.node_name(x) }
  return act and act(y) or y
end


local function describe(self)
  return layer.convolution_text(self, self.deformable_conv_weight, self.deformable_conv_bias)
end


local function define(name, hint, numbers, forward)
  local func = "contrib.cnn." .. name
  local class = layer.extend(HybridBlock, func, SPEC)
  class._hint, class.forward = hint, forward
  function class:set_up(a)
    set_up(self, a, func, numbers)
  end
  layer.describe(class, describe)
  cnn[name] = class
end


--- Convolves images (N, C, H, W); the offsets of the points of each window are learned. Options as
-- for Conv2D, and num_deformable_group.
-- @type DeformableConvolution
define("DeformableConvolution", "deformable_conv", 2, function(self, x)
  return convolve(self, F.contrib.DeformableConvolution, x, compute_offsets(self, x))
end)

--- Convolves like DeformableConvolution, with learned weights of the points of each window.
-- @type ModulatedDeformableConvolution
define("ModulatedDeformableConvolution", "modulated_deformable_conv", 3, function(self, x)
  local numbers, split = compute_offsets(self, x), 2 * self._points
  local offset = F.slice_axis{ numbers, axis = 1, begin = 0, ["end"] = split }
  local mask = F.slice_axis{ numbers, axis = 1, begin = split, ["end"] = self._offsets }
  return convolve(self, F.contrib.ModulatedDeformableConvolution, x, offset,
    F.sigmoid(mask) * 2)
end)


return namespace.close(cnn, "contrib.cnn", "layer")
