--- What is done to pictures: blocks for `Dataset:transform_first` and for networks
-- (`ty.gluon.data.vision.transforms`).
--
--     local change = transforms.Compose{ transforms.RandomCrop{ 32, pad = 4 },
--       transforms.RandomFlipLeftRight(), transforms.ToTensor(), transforms.Normalize(0.5, 0.25) }
--
-- An image is (height, width, channels), uint8 or float32, until ToTensor. Sizes are a number or
-- {width, height}. In a `DataLoader` they run in native threads. What is random is drawn there from
-- the stream of the sample, elsewhere from `ty.random`. A block that is called with more inputs
-- hands the others on.
--
-- @module tycho.gluon.data.vision.transforms

local next = require("tycho.core.iterate").next
local args = require "tycho.core.args"
local array_class = require "tycho.ndarray.class"
local Block = require "tycho.gluon.block"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local ffi = require "ffi"
local HybridBlock = require "tycho.gluon.hybrid_block"
local image = require "tycho.image"
local namespace = require "tycho.core.namespace"
local native = require "tycho.core.ffi"
local nd = require "tycho.ndarray"
local plan = require "tycho.gluon.data.plan"
local random = require "tycho.image.random"
local stream = require "tycho.gluon.data.stream"
local values = require "tycho.core.values"

local C, check = native.C, native.check
local is_array, is_plain = array_class.is_array, values.is_plain

local transforms = {}


-- Running steps -----------------------------------------------------------------------------------

local PIXELS = { uint8 = true, float32 = true }
local made = ffi.new("ty_tensor *[1]")

local function is_image(x)
  return is_array(x) and x.ndim == 3 and PIXELS[x.dtype] and x.context.device_type == "cpu"
end


-- Returns a block's native steps on one image.
local function run_steps(block, x)
  local steps = {}
  plan.add_steps(block, steps)
  local list, n = plan.native_steps(steps)
  local seed, epoch = stream.key(plan.is_random(steps))
  check(C.ty_steps_run(list, n, x.handle, seed, epoch, 0, made), block.class_name)
  return array_class.own(made[0])
end


local function bad_value(block, argument, expected, got)
  Error.raise{ code = "value", func = "transforms." .. block.class_name, argument = argument,
    expected = expected, got = got, message = ("bad '%s'"):format(argument) }
end


-- Returns a form with the options that all blocks take, which the block itself reads.
local function make_form(func, spec)
  spec[#spec + 1] = "*"
  spec[#spec + 1] = { "prefix", "text?" }
  spec[#spec + 1] = { "params", "any?" }
  return args.form(func, spec)
end


-- Returns the arguments of a form whose first one is a list of numbers: `f{ { 6, 4 }, pad = 1 }`
-- has names for what is in a row, as `f{ 6, 4 }` is that list itself.
local function named(spec, first, ...)
  if not spec.list or select("#", ...) > 0 or not (is_plain(first) and is_plain(first[1])) then
    return first, ...
  end
  local all = {}
  for key, v in next, first do
    all[type(key) == "number" and spec[key] and spec[key][1] or key] = v
  end
  return all
end


-- Returns a class of transforms. base: Block or HybridBlock; spec: parameters in order. Of t:
-- read(self, a) checks and keeps them; arguments(spec, ...), if present, returns the form's
-- arguments for those of the constructor; change(self, x) returns the new image; steps(self, add),
-- if present, calls add(kind, values ...) for each native step.
local function define(name, base, spec, t)
  local T = base:extend(name)
  local form = make_form("transforms." .. name, spec)
  function T:init(...)
    local a = form((t.arguments or named)(spec, ...))
    if t.read then
      t.read(self, a)
    end
    -- the native side refuses values that it cannot have
    if t.steps then
      local list = {}
      plan.add_steps(self, list)
      local steps, n = plan.native_steps(list)
      check(C.ty_steps_check(steps, n), "transforms." .. name)
    end
  end
  local change = t.change
  function T:forward(x, ...)
    return (change(self, x)), ...
  end
  if t.steps then
    plan.register_steps(T.forward, function(self, list)
      t.steps(self, function(kind, ...)
        list[#list + 1] = { kind, 0, ... }
      end)
    end)
  end
  transforms[name] = T
  return T
end


local function refuse_symbol(block, x)
  if not is_array(x) then
    Error.raise{ code = "unsupported", func = "transforms." .. block.class_name,
      argument = "x", expected = "an NDArray", got = Error.kind(x),
      message = "this transform runs on arrays only" }
  end
end


-- Runs a transform that has no operator: on the host, image by image of a batch.
local function on_host(self, x)
  refuse_symbol(self, x)
  if x.ndim == 4 then
    local list = {}
    for i = 1, x.shape[1] do
      list[i] = on_host(self, x[i - 1])
    end
    return nd.stack(list)
  end
  return run_steps(self, x:as_in_context(context.cpu())):as_in_context(x.context)
end


-- Returns a forward that runs the native steps on a single image in host memory, and `operator` on
-- other inputs.
local function steps_or(operator)
  return function(self, x)
    if is_image(x) then
      return run_steps(self, x)
    end
    return operator(self, x)
  end
end


-- Sizes -------------------------------------------------------------------------------------------

local SIZE, INTERPOLATION = { "size", "number|list" }, { "interpolation", "integer", 1 }

local function is_size(n)
  return type(n) == "number" and n >= 1 and n == math.floor(n)
end


local function size_of(self, size, argument)
  local list = is_plain(size) and size or { size }
  local w, h = list[1], list[2] or list[1]
  if #list < 1 or #list > 2 or not is_size(w) or not is_size(h) then
    bad_value(self, argument or "size", "a number of pixels, or {width, height}", size)
  end
  return w, h
end


--- To another size; keep_ratio: a number is the shorter side. Options size, keep_ratio = false,
-- interpolation = 1 (0 to 4, as in `ty.image`).
-- @function Resize
define("Resize", HybridBlock, { list = true, SIZE, { "keep_ratio", "boolean", false },
  INTERPOLATION }, {
  read = function(self, a)
    self._w, self._h = size_of(self, a.size)
    self._one = type(a.size) == "number" or #a.size == 1
    self._keep, self._how = a.keep_ratio and self._one, a.interpolation
  end,
  change = function(self, x)
    return F.image.resize{ x, size = self._one and { self._w } or { self._w, self._h },
      keep_ratio = self._keep, interp = self._how }
  end,
  steps = function(self, add)
    add(C.TY_STEP_RESIZE, self._w, self._h, self._keep and 1 or 0, self._how)
  end,
})


--- A window from column x and row y, resized to `size` if that is given. Options x, y, width,
-- height, size, interpolation = 1.
-- @function CropResize
define("CropResize", HybridBlock, { { "x", "integer" }, { "y", "integer" }, { "width", "integer" },
  { "height", "integer" }, { "size", "number|list?" }, INTERPOLATION }, {
  read = function(self, a)
    self._x, self._y, self._width, self._height, self._how =
      a.x, a.y, a.width, a.height, a.interpolation
    if a.size ~= nil then
      self._w, self._h = size_of(self, a.size)
    end
  end,
  change = function(self, x)
    x = F.image.crop{ x, x = self._x, y = self._y, width = self._width, height = self._height }
    return self._w and F.image.resize{ x, size = { self._w, self._h }, interp = self._how } or x
  end,
  steps = function(self, add)
    add(C.TY_STEP_CROP, self._x, self._y, self._width, self._height)
    if self._w then
      add(C.TY_STEP_RESIZE, self._w, self._h, 0, self._how)
    end
  end,
})


local function read_size(self, a)
  self._w, self._h = size_of(self, a.size)
  self._how = a.interpolation
end


--- The middle; a smaller image gives a smaller window, which is enlarged. Options size,
-- interpolation = 1 (0 to 4, 9: by the sizes).
-- @function CenterCrop
define("CenterCrop", Block, { list = true, SIZE, INTERPOLATION }, {
  read = read_size,
  change = function(self, x)
    if is_image(x) or is_array(x) and x.ndim == 4 then
      return on_host(self, x)
    end
    refuse_symbol(self, x)
    return (image.center_crop(x, { self._w, self._h }, self._how))
  end,
  steps = function(self, add)
    add(C.TY_STEP_CENTER_CROP, self._w, self._h, self._how)
  end,
})


--- A window anywhere, of an image with a border of `pad` pixels (a number, or {above, below, left,
-- right}). Options size, pad, pad_value = 0, interpolation = 1.
-- @function RandomCrop
define("RandomCrop", Block, { list = true, SIZE, { "pad", "number|shape?" },
  { "pad_value", "number", 0 }, INTERPOLATION }, {
  read = function(self, a)
    read_size(self, a)
    local p = a.pad
    if type(p) == "number" then
      p = { p, p, p, p }
    end
    if p ~= nil and #p ~= 4 then
      bad_value(self, "pad", "a number, or {above, below, left, right}", a.pad)
    end
    self._pad, self._fill = p, a.pad_value
  end,
  change = on_host,
  steps = function(self, add)
    if self._pad then
      add(C.TY_STEP_BORDER, self._pad[1], self._pad[2], self._pad[3], self._pad[4], self._fill)
    end
    add(C.TY_STEP_RANDOM_CROP, self._w, self._h, self._how)
  end,
})


local function range_of(self, v, argument)
  if type(v) == "number" then
    return v, 1
  elseif #v ~= 2 then
    bad_value(self, argument, "{from, to}", v)
  end
  return v[1], v[2]
end


--- A window of random area and proportions, resized. Options size, scale = {0.08, 1} of the area,
-- ratio = {3/4, 4/3} of width to height, interpolation = 1.
-- @function RandomResizedCrop
define("RandomResizedCrop", Block, { list = true, SIZE,
  { "scale", "number|list", { 0.08, 1 } }, { "ratio", "list", { 3 / 4, 4 / 3 } }, INTERPOLATION }, {
  read = function(self, a)
    read_size(self, a)
    self._from, self._to = range_of(self, a.scale, "scale")
    self._narrow, self._wide = range_of(self, a.ratio, "ratio")
  end,
  change = on_host,
  steps = function(self, add)
    add(C.TY_STEP_SIZE_CROP, self._w, self._h, self._from, self._to, self._narrow, self._wide,
      self._how)
  end,
})


-- Mirror images -----------------------------------------------------------------------------------

local P = { "p", "number", 0.5 }

local function read_p(self, a)
  if a.p < 0 or a.p > 1 then
    bad_value(self, "p", "0 to 1", a.p)
  end
  self._p = a.p
end


-- Returns a forward that flips images with the object's probability: `always` is the operator that
-- flips, `at_random` the one that flips with probability 0.5.
local function flipper(always, at_random)
  return steps_or(function(self, x)
    if self._p >= 1 then
      return F.image[always](x)
    elseif self._p <= 0 then
      return x
    elseif self._p == 0.5 then
      return F.image[at_random](x)
    end
    return on_host(self, x)
  end)
end


--- The mirror image, with probability p = 0.5.
-- @function RandomFlipLeftRight
define("RandomFlipLeftRight", HybridBlock, { P }, {
  read = read_p, change = flipper("flip_left_right", "random_flip_left_right"),
  steps = function(self, add) add(C.TY_STEP_FLIP_COLUMNS, self._p) end,
})

--- Upside down, with probability p = 0.5.
-- @function RandomFlipTopBottom
define("RandomFlipTopBottom", HybridBlock, { P }, {
  read = read_p, change = flipper("flip_top_bottom", "random_flip_top_bottom"),
  steps = function(self, add) add(C.TY_STEP_FLIP_ROWS, self._p) end,
})


-- Colours -----------------------------------------------------------------------------------------

local function check_part(self, argument, v)
  if v ~= v or v < 0 then
    bad_value(self, argument, "0 or more", v)
  end
end


local function factors(name, parameter, step, operator)
  define(name, HybridBlock, { { parameter, "number" } }, {
    read = function(self, a)
      local part = a[parameter]
      check_part(self, parameter, part)
      self._least, self._most = math.max(0, 1 - part), 1 + part
    end,
    change = steps_or(function(self, x)
      return F.image[operator]{ x, min_factor = self._least, max_factor = self._most }
    end),
    steps = function(self, add) add(step, self._least, self._most) end,
  })
end


--- Brightness by a factor of 1 - brightness to 1 + brightness (at least 0).
-- @function RandomBrightness
factors("RandomBrightness", "brightness", C.TY_STEP_BRIGHTNESS, "random_brightness")

--- Contrast likewise.
-- @function RandomContrast
factors("RandomContrast", "contrast", C.TY_STEP_CONTRAST, "random_contrast")

--- Saturation likewise.
-- @function RandomSaturation
factors("RandomSaturation", "saturation", C.TY_STEP_SATURATION, "random_saturation")

--- The hue turned by a part of the circle of 1 - hue to 1 + hue.
-- @function RandomHue
factors("RandomHue", "hue", C.TY_STEP_HUE, "random_hue")


--- Brightness, contrast, saturation and hue in random order. Options brightness = 0, contrast = 0,
-- saturation = 0, hue = 0.
-- @function RandomColorJitter
define("RandomColorJitter", HybridBlock, { { "brightness", "number", 0 },
  { "contrast", "number", 0 }, { "saturation", "number", 0 }, { "hue", "number", 0 } }, {
  read = function(self, a)
    for _, name in ipairs{ "brightness", "contrast", "saturation", "hue" } do
      check_part(self, name, a[name])
    end
    self._b, self._c, self._s, self._h = a.brightness, a.contrast, a.saturation, a.hue
  end,
  change = steps_or(function(self, x)
    return F.image.random_color_jitter{ x, brightness = self._b, contrast = self._c,
      saturation = self._s, hue = self._h }
  end),
  steps = function(self, add) add(C.TY_STEP_JITTER, self._b, self._c, self._s, self._h) end,
})


--- Normal numbers of deviation alpha times the principal components of colours.
-- @function RandomLighting
define("RandomLighting", HybridBlock, { { "alpha", "number" } }, {
  read = function(self, a)
    check_part(self, "alpha", a.alpha)
    self._alpha = a.alpha
  end,
  change = steps_or(function(self, x)
    return F.image.random_lighting{ x, alpha_std = self._alpha }
  end),
  steps = function(self, add) add(C.TY_STEP_LIGHTING, self._alpha) end,
})


--- Grey, in as many channels as before, with probability p = 0.5.
-- @function RandomGray
define("RandomGray", Block, { P }, {
  read = read_p, change = on_host,
  steps = function(self, add) add(C.TY_STEP_GREY, self._p) end,
})


-- Numbers -----------------------------------------------------------------------------------------

--- Another dtype; of all inputs. Option dtype = "float32".
-- @type Cast
local Cast = define("Cast", HybridBlock, { { "dtype", "dtype", "float32" } }, {
  read = function(self, a) self._dtype = a.dtype end,
  change = function() end,
})

local function cast_all(dtype, n, x, ...)
  if n == 0 then
    return
  elseif type(x) == "table" then
    x = F.cast{ x, dtype = dtype }
  end
  return x, cast_all(dtype, n - 1, ...)
end

function Cast:forward(...)
  return cast_all(self._dtype, select("#", ...), ...)
end

plan.register_steps(Cast.forward, function(self, list)
  list[#list + 1] = { C.TY_STEP_CAST, 0, args.DTYPES[self._dtype] }
end)


--- Images of bytes, (height, width, channels) or a batch of them, as float32 from 0 to 1 with
-- channels first.
-- @function ToTensor
define("ToTensor", HybridBlock, {}, {
  change = function(_, x) return F.image.to_tensor(x) end,
  steps = function(_, add) add(C.TY_STEP_TO_TENSOR) end,
})


-- Returns a number or numbers per channel as a list of 1 or 3; raises E(value) for other lengths.
local function by_channel(self, v, argument)
  local list = type(v) == "number" and { v } or is_array(v) and v:totable() or v
  if #list ~= 1 and #list ~= 3 then
    bad_value(self, argument, "a number, or 3 of them", v)
  end
  return list
end


--- (x - mean) / std by channel; channels come first. Options mean = 0, std = 1: numbers or lists.
-- @function Normalize
define("Normalize", HybridBlock, { { "mean", "number|list|array", 0 },
  { "std", "number|list|array", 1 } }, {
  arguments = function(_, first, ...)
    if select("#", ...) == 0 and is_plain(first) and #first == 3 then
      return { mean = { unpack(first) }, std = first.std }
    end
    return first, ...
  end,
  read = function(self, a)
    self._mean, self._std = by_channel(self, a.mean, "mean"), by_channel(self, a.std, "std")
  end,
  change = function(self, x)
    return F.image.normalize{ x, mean = self._mean, std = self._std }
  end,
  steps = function(self, add)
    local m, s = self._mean, self._std
    add(C.TY_STEP_NORMALIZE, m[1], m[2] or m[1], m[3] or m[1], s[1], s[2] or s[1], s[3] or s[1],
      #m, #s)
  end,
})


-- Turns -------------------------------------------------------------------------------------------

local ZOOM_IN, ZOOM_OUT = { "zoom_in", "boolean", false }, { "zoom_out", "boolean", false }

local function flag(v)
  return v and 1 or 0
end


--- Turned about the middle by an angle, counter-clockwise; float32, channels first. zoom_in:
-- nothing from outside is seen; zoom_out: all of the image is seen. Options rotation_degrees,
-- zoom_in = false, zoom_out = false.
-- @function Rotate
define("Rotate", Block, { { "rotation_degrees", "number" }, ZOOM_IN, ZOOM_OUT }, {
  read = function(self, a)
    self._angle, self._in, self._out = a.rotation_degrees, a.zoom_in, a.zoom_out
  end,
  change = on_host,
  steps = function(self, add)
    add(C.TY_STEP_ROTATE, self._angle, flag(self._in), flag(self._out))
  end,
})


--- Turned by a random angle, with probability rotate_with_proba = 1. Options angle_limits = {least,
-- largest}, zoom_in = false, zoom_out = false, rotate_with_proba.
-- @function RandomRotation
define("RandomRotation", Block, { list = true, { "angle_limits", "list" }, ZOOM_IN, ZOOM_OUT,
  { "rotate_with_proba", "number", 1 } }, {
  read = function(self, a)
    local least, largest = range_of(self, a.angle_limits, "angle_limits")
    if type(least) ~= "number" or type(largest) ~= "number" or least >= largest then
      bad_value(self, "angle_limits", "{least, largest}", a.angle_limits)
    end
    self._least, self._largest, self._in, self._out, self._p =
      least, largest, a.zoom_in, a.zoom_out, a.rotate_with_proba
  end,
  change = on_host,
  steps = function(self, add)
    add(C.TY_STEP_RANDOM_ROTATE, self._least, self._largest, flag(self._in), flag(self._out),
      self._p)
  end,
})


-- Several -----------------------------------------------------------------------------------------

-- Returns the blocks among the arguments of a constructor: in a list, in the array part of the
-- options, or one after the other.
local function collect_blocks(func, ...)
  local list, first = {}, ...
  local from = is_plain(first) and first or { ... }
  if is_plain(from[1]) then
    from = from[1]
  end
  for i, block in ipairs(from) do
    if Class.is_a(block, Block) then
      list[#list + 1] = block
    elseif not is_plain(block) then
      Error.raise{ code = "type", func = func, argument = tostring(i), expected = "a block",
        got = Error.kind(block), message = "transforms are blocks" }
    end
  end
  return list
end


local function run_all(self, ...)
  local function run(i, ...)
    local child = self._children[i]
    if child then
      return run(i + 1, child.block(...))
    end
    return ...
  end
  return run(1, ...)
end


local function steps_of_children(self, list)
  for _, child in ipairs(self._children) do
    if not plan.add_steps(child.block, list) then
      return false
    end
  end
end


local function container(name, base)
  local T = base:extend(name)

  --- Appends blocks.
  -- @return itself
  function T:add(...)
    for _, block in ipairs(collect_blocks("transforms." .. name .. ":add", ...)) do
      self:register_child(block)
    end
    return self
  end

  -- Registers a block as a child, and as the next entry of the array part.
  function T:register_child(block, child_name)
    base.register_child(self, block, child_name)
    rawset(self, #self._children, block)
  end

  --- Returns the number of blocks.
  function T:len()
    return #self._children
  end

  function T:init(...)
    self:add(...)
  end

  function T:forward(...)
    return run_all(self, ...)
  end

  plan.register_steps(T.forward, steps_of_children)
  transforms[name] = T
  return T
end


--- One after the other. `Compose{ a, b, c }`, or a list as the only argument.
-- @type Compose
container("Compose", Block)

--- As `Compose`, of HybridBlocks only, hybridized.
-- @type HybridCompose
container("HybridCompose", HybridBlock)

function transforms.HybridCompose:init(...)
  self:add(...)
  self:hybridize()
end


local APPLY = make_form("transforms.RandomApply", { { "transforms", "any" }, P })

--- All of the transforms (a block or a list), with probability p = 0.5, else none.
-- @type RandomApply
local RandomApply = Block:extend("RandomApply")
transforms.RandomApply = RandomApply

function RandomApply:init(...)
  local a = APPLY(...)
  read_p(self, a)
  for _, block in ipairs(collect_blocks("transforms.RandomApply", a.transforms)) do
    self:register_child(block)
  end
end


function RandomApply:forward(x, ...)
  refuse_symbol(self, x)
  if random.uniform(0, 1) > self._p then
    return x, ...
  end
  return (run_all(self, x)), ...
end


plan.register_steps(RandomApply.forward, function(self, list)
  local at = #list + 1
  list[at] = { C.TY_STEP_MAYBE, 0, self._p }
  if steps_of_children(self, list) == false then
    return false
  end
  list[at][2] = #list - at
end)


return namespace.close(transforms, "gluon.data.vision.transforms", "class")
