--- Pooling, padding by reflection, and PixelShuffle.
--
-- @module tycho.gluon.nn.pooling

local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local layer = require "tycho.gluon.layer"
local HybridBlock = require "tycho.gluon.hybrid_block"

local node_name = layer.node_name
local pooling = {}


-- Pooling -----------------------------------------------------------------------------------------

local LAYOUTS = { { "NCW", "NWC" }, { "NCHW", "NHWC" }, { "NCDHW", "NDHWC" } }

local Pooling = HybridBlock:extend("Pooling")

Pooling._hint = "pool"


function Pooling:forward(x)
  return F.Pooling{ x, kernel = self._kernel, stride = self._stride, pad = self._pad,
    global_pool = self._global, pool_type = self._pool_type, layout = self._layout,
    pooling_convention = self._ceil_mode and "full" or "valid",
    count_include_pad = self._count_include_pad, name = node_name(x) }
end


layer.describe(Pooling, function(self)
  local show = layer.show
  return ("%s(size=%s, stride=%s, padding=%s, ceil_mode=%s, global_pool=%s, pool_type=%s, \z
    layout=%s)"):format(self.class_name, show(self._kernel), show(self._stride), show(self._pad),
      show(self._ceil_mode), show(self._global), self._pool_type, self._layout)
end)


local CEIL_MODE = { "ceil_mode", "boolean", false }

-- Returns the parameters of a pooling layer in the reference's order, which depends on the class.
local function make_spec(kind, dims)
  local layout = { "layout", "text", LAYOUTS[dims][1] }
  local spec = { { "pool_size", "sizes", 2 }, { "strides", "sizes?" },
    { "padding", "sizes", 0 } }
  local layout_first = dims == 1 or kind == "max" and dims == 2
  spec[4], spec[5] = layout_first and layout or CEIL_MODE, layout_first and CEIL_MODE or layout
  if kind == "avg" then
    spec[6] = { "count_include_pad", "boolean", true }
  end
  return spec
end


local function define_layer(name, kind, dims)
  local func = "nn." .. name
  local class = layer.extend(Pooling, func, make_spec(kind, dims))
  function class:set_up(a)
    self._kernel = layer.sizes(func, "pool_size", a.pool_size, dims)
    self._stride = layer.sizes(func, "strides", a.strides or self._kernel, dims)
    self._pad = layer.sizes(func, "padding", a.padding, dims)
    self._layout = layer.word(func, "layout", a.layout, LAYOUTS[dims])
    self._ceil_mode, self._global, self._pool_type = a.ceil_mode, false, kind
    self._count_include_pad = a.count_include_pad
  end
  pooling[name] = class
end


local function define_global(name, kind, dims)
  local func = "nn." .. name
  local class = layer.extend(Pooling, func, { { "layout", "text", LAYOUTS[dims][1] } })
  function class:set_up(a)
    self._kernel = layer.sizes(func, "pool_size", 1, dims)
    self._stride, self._pad = self._kernel, layer.sizes(func, "padding", 0, dims)
    self._layout = layer.word(func, "layout", a.layout, LAYOUTS[dims])
    self._ceil_mode, self._global, self._pool_type = true, true, kind
  end
  pooling[name] = class
end


--- Computes the largest element of each window along W: (N, C, W) to (N, C, W'). Options: pool_size
-- = 2, strides = nil (the pool size: windows do not overlap), padding = 0, layout = "NCW",
-- ceil_mode = false (true keeps an incomplete last window).
-- @type MaxPool1D
define_layer("MaxPool1D", "max", 1)

--- Computes the largest element of each window of images (N, C, H, W); options as for MaxPool1D.
-- @type MaxPool2D
define_layer("MaxPool2D", "max", 2)

--- Computes the largest element of each window of volumes (N, C, D, H, W); options as for
-- MaxPool1D.
-- @type MaxPool3D
define_layer("MaxPool3D", "max", 3)

--- Computes the mean of each window along W. Options as for MaxPool1D, and count_include_pad =
-- true: false excludes padding from the mean.
-- @type AvgPool1D
define_layer("AvgPool1D", "avg", 1)

--- Computes the mean of each window of images (N, C, H, W); options as for AvgPool1D.
-- @type AvgPool2D
define_layer("AvgPool2D", "avg", 2)

--- Computes the mean of each window of volumes (N, C, D, H, W); options as for AvgPool1D.
-- @type AvgPool3D
define_layer("AvgPool3D", "avg", 3)

--- Computes the largest element of each channel: (N, C, W) to (N, C, 1).
-- @type GlobalMaxPool1D
define_global("GlobalMaxPool1D", "max", 1)

--- Computes the largest element of each channel: (N, C, H, W) to (N, C, 1, 1).
-- @type GlobalMaxPool2D
define_global("GlobalMaxPool2D", "max", 2)

--- Computes the largest element of each channel: (N, C, D, H, W) to (N, C, 1, 1, 1).
-- @type GlobalMaxPool3D
define_global("GlobalMaxPool3D", "max", 3)

--- Computes the mean of each channel: (N, C, W) to (N, C, 1).
-- @type GlobalAvgPool1D
define_global("GlobalAvgPool1D", "avg", 1)

--- Computes the mean of each channel: (N, C, H, W) to (N, C, 1, 1).
-- @type GlobalAvgPool2D
define_global("GlobalAvgPool2D", "avg", 2)

--- Computes the mean of each channel: (N, C, D, H, W) to (N, C, 1, 1, 1).
-- @type GlobalAvgPool3D
define_global("GlobalAvgPool3D", "avg", 3)


-- Padding -----------------------------------------------------------------------------------------

--- Pads images (N, C, H, W) by reflection at their edges: `ReflectionPad2D(padding)`, a number of
-- rows and columns for each side, or eight numbers, those before and after each axis.
-- @type ReflectionPad2D
local ReflectionPad2D = layer.extend(HybridBlock, "nn.ReflectionPad2D",
  { list = true, { "padding", "shape", { 0 } } })

function ReflectionPad2D:set_up(a)
  local p = a.padding
  if #p == 1 then
    p = { 0, 0, 0, 0, p[1], p[1], p[1], p[1] }
  elseif #p ~= 8 then
    Error.raise{ code = "value", func = "nn.ReflectionPad2D", argument = "padding", got = p,
      expected = "a number or eight numbers", message = "bad 'padding'" }
  end
  self._pad_width = p
end


function ReflectionPad2D:forward(x)
  return F.pad{ x, mode = "reflect", pad_width = self._pad_width }
end


pooling.ReflectionPad2D = ReflectionPad2D


-- PixelShuffle ------------------------------------------------------------------------------------

local FACTOR = { list = true, { "factor", "shape" } }

local function describe_shuffle(self)
  local f = self._factors
  return ("%s(%s)"):format(self.class_name, layer.show(#f == 1 and f[1] or f))
end


local function define_shuffle(name, dims, forward)
  local func = "nn." .. name
  local class = layer.extend(HybridBlock, func, FACTOR)
  function class:set_up(a)
    self._factors = layer.sizes(func, "factor", #a.factor == 1 and a.factor[1] or a.factor, dims)
    for _, f in ipairs(self._factors) do
      if f < 1 then
        Error.raise{ code = "value", func = func, argument = "factor", got = a.factor,
          expected = "numbers above 0", message = "bad 'factor'" }
      end
    end
  end
  class.forward = forward
  layer.describe(class, describe_shuffle)
  pooling[name] = class
end


-- Codes of reshape below: 0 copies an axis, -1 is the remaining size, -3 joins two axes, -4 splits
-- one.

--- Moves channels to positions: (N, f C, W) to (N, C, f W). `PixelShuffle1D(f)`.
-- @type PixelShuffle1D
define_shuffle("PixelShuffle1D", 1, function(self, x)
  local f = self._factors[1]
  x = F.reshape{ x, shape = { 0, -4, -1, f, 0 } }                    -- (N, C, f, W)
  x = F.transpose{ x, axes = { 0, 1, 3, 2 } }                        -- (N, C, W, f)
  return F.reshape{ x, shape = { 0, 0, -3 } }
end)

--- Moves channels to positions: (N, f g C, H, W) to (N, C, f H, g W). `PixelShuffle2D({ f, g })`.
-- @type PixelShuffle2D
define_shuffle("PixelShuffle2D", 2, function(self, x)
  local f, g = self._factors[1], self._factors[2]
  x = F.reshape{ x, shape = { 0, -4, -1, f * g, 0, 0 } }             -- (N, C, f g, H, W)
  x = F.reshape{ x, shape = { 0, 0, -4, f, g, 0, 0 } }               -- (N, C, f, g, H, W)
  x = F.transpose{ x, axes = { 0, 1, 4, 2, 5, 3 } }                  -- (N, C, H, f, W, g)
  return F.reshape{ x, shape = { 0, 0, -3, -3 } }
end)

--- Moves channels to positions: (N, f g h C, D, H, W) to (N, C, f D, g H, h W).
-- `PixelShuffle3D({ f, g, h })`.
-- @type PixelShuffle3D
define_shuffle("PixelShuffle3D", 3, function(self, x)
  local f, g, h = self._factors[1], self._factors[2], self._factors[3]
  x = F.reshape{ x, shape = { 0, -4, -1, f * g * h, 0, 0, 0 } }      -- (N, C, f g h, D, H, W)
  x = F.swapaxes{ x, dim1 = 2, dim2 = 3 }                            -- (N, C, D, f g h, H, W)
  x = F.reshape{ x, shape = { 0, 0, 0, -4, f, g * h, 0, 0 } }        -- (N, C, D, f, g h, H, W)
  x = F.reshape{ x, shape = { 0, 0, -3, 0, 0, 0 } }                  -- (N, C, D f, g h, H, W)
  x = F.swapaxes{ x, dim1 = 3, dim2 = 4 }                            -- (N, C, D f, H, g h, W)
  x = F.reshape{ x, shape = { 0, 0, 0, 0, -4, g, h, 0 } }            -- (N, C, D f, H, g, h, W)
  x = F.reshape{ x, shape = { 0, 0, 0, -3, 0, 0 } }                  -- (N, C, D f, H g, h, W)
  x = F.swapaxes{ x, dim1 = 4, dim2 = 5 }                            -- (N, C, D f, H g, W, h)
  return F.reshape{ x, shape = { 0, 0, 0, 0, -3 } }
end)


return pooling
