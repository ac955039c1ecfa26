--- Transforms of images: blocks for `Dataset:transform_first` and for networks
-- (`ty.gluon.data.vision.transforms`).
--
--     local change = transforms.Compose{ transforms.RandomCrop{ 32, pad = 4 },
--       transforms.RandomFlipLeftRight(), transforms.ToTensor(), transforms.Normalize(0.5, 0.25) }
--
-- An image is (height, width, channels), uint8 or float32, until ToTensor; many transforms also
-- accept a batch of images, (batch, height, width, channels). A size is a number of pixels, for a
-- square, or {width, height}. In a `DataLoader` transforms run in native threads, and their random
-- numbers depend on the sample only (gluon/data/stream.lua); elsewhere they come from `ty.random`.
-- A transform changes its first input and returns further inputs unchanged. Invalid options are
-- E(`value`).
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
local layer = require "tycho.gluon.layer"
local values = require "tycho.core.values"

local C, check = native.C, native.check
local is_array, is_plain = array_class.is_array, values.is_plain

local transforms = {}


-- Running steps -----------------------------------------------------------------------------------

local PIXELS = { uint8 = true, float32 = true }
local made = ffi.new("ty_tensor *[1]")

-- Returns whether native steps support x: an image in host memory.
local function is_image(x)
  return is_array(x) and x.ndim == 3 and PIXELS[x.dtype] and x.context.device_type == "cpu"
end


-- Runs the native steps of a block on an image.
local function run_steps(block, x)
  local steps = {}
  plan.add_steps(block, steps)
  local list, n = plan.native_steps(steps)
  local seed, epoch = stream.key(plan.is_random(steps))
  check(C.ty_steps_run(list, n, x.handle, seed, epoch, 0, made), block.class_name)
  return array_class.own(made[0])
end


local function fail_value(block, argument, expected, got)
  Error.raise{ code = "value", func = "transforms." .. block.class_name, argument = argument,
    expected = expected, got = got, message = ("bad '%s'"):format(argument) }
end


-- Returns a form that includes the options of all blocks, which the block itself reads.
local function make_form(func, spec)
  spec[#spec + 1] = "*"
  spec[#spec + 1] = { "prefix", "text?" }
  spec[#spec + 1] = { "params", "any?" }
  return args.form(func, spec)
end


-- Returns the arguments for a form whose first parameter is a list of numbers. `f{ 6, 4 }` is that
-- list itself, so the positional arguments in `f{ { 6, 4 }, pad = 1 }` are given their names here.
local function name_arguments(spec, first, ...)
  if not spec.list or select("#", ...) > 0 or not (is_plain(first) and is_plain(first[1])) then
    return first, ...
  end
  local all = {}
  for key, v in next, first do
    all[type(key) == "number" and spec[key] and spec[key][1] or key] = v
  end
  return all
end


-- Returns a new class of transforms. base: Block or HybridBlock; spec: parameters in order. Of t:
-- - read(self, a), may be nil: checks and keeps the parameters
-- - arguments(spec, ...), may be nil: returns the arguments of the form for the constructor's
-- - change(self, x): returns the new image
-- - steps(self, add), may be nil: calls add(kind, values ...) for each native step
local function define_transform(name, base, spec, t)
  local T = base:extend(name)
  local form = make_form("transforms." .. name, spec)
  function T:init(...)
    layer.refuse_tensors("transforms." .. name, ...)
    local a = form((t.arguments or name_arguments)(spec, ...))
    if t.read then
      t.read(self, a)
    end
    if t.steps then                                      -- the core checks their values
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
      message = ("%s runs on arrays, not on symbols"):format(block.class_name) }
  end
end


-- Runs the native steps of a block on an image or a batch, on the CPU and image by image.
local function run_on_host(self, x)
  refuse_symbol(self, x)
  if x.ndim == 4 then
    local list = {}
    for i = 1, x.shape[1] do
      list[i] = run_on_host(self, x[i - 1])
    end
    return nd.stack(list)
  end
  return run_steps(self, x:as_in_context(context.cpu())):as_in_context(x.context)
end


-- Returns a `change` that runs the native steps for a single image in host memory, and calls
-- operator(self, x) for other inputs.
local function run_steps_or(operator)
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


-- Returns width and height from a size; raises E(value) for other values than positive whole
-- numbers.
local function read_size_argument(self, size, argument)
  local list = is_plain(size) and size or { size }
  local w, h = list[1], list[2] or list[1]
  if #list < 1 or #list > 2 or not is_size(w) or not is_size(h) then
    fail_value(self, argument or "size", "a number of pixels, or {width, height}", size)
  end
  return w, h
end


--- Resizes an image or a batch of images. Options: size; keep_ratio = false: true makes a single
-- number the shorter side; interpolation = 1: 0 to 4, as in `ty.image`.
-- @function Resize
define_transform("Resize", HybridBlock, { list = true, SIZE, { "keep_ratio", "boolean", false },
  INTERPOLATION }, {
  read = function(self, a)
    self._w, self._h = read_size_argument(self, a.size)
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


--- Cuts a window out of an image or a batch of images, and resizes it if `size` is given. Options:
-- x, y: its left column and top row, from 0; width, height: in pixels; size; interpolation = 1.
-- @function CropResize
define_transform("CropResize", HybridBlock, { { "x", "integer" }, { "y", "integer" },
  { "width", "integer" }, { "height", "integer" }, { "size", "number|list?" }, INTERPOLATION }, {
  read = function(self, a)
    self._x, self._y, self._width, self._height, self._how =
      a.x, a.y, a.width, a.height, a.interpolation
    if a.size ~= nil then
      self._w, self._h = read_size_argument(self, a.size)
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
  self._w, self._h = read_size_argument(self, a.size)
  self._how = a.interpolation
end


--- Cuts the middle out of an image. From a smaller image it cuts a smaller window and enlarges it.
-- Options: size; interpolation = 1: 0 to 4, 9 chooses by the sizes.
-- @function CenterCrop
define_transform("CenterCrop", Block, { list = true, SIZE, INTERPOLATION }, {
  read = read_size,
  change = function(self, x)
    if is_image(x) or is_array(x) and x.ndim == 4 then
      return run_on_host(self, x)
    end
    refuse_symbol(self, x)
    return (image.center_crop(x, { self._w, self._h }, self._how))
  end,
  steps = function(self, add)
    add(C.TY_STEP_CENTER_CROP, self._w, self._h, self._how)
  end,
})


--- Cuts a window at a random place out of an image. Options: size; pad: width in pixels of a border
-- that is added first, a number or {above, below, left, right}; pad_value = 0; interpolation = 1,
-- for images smaller than the window.
-- @function RandomCrop
define_transform("RandomCrop", Block, { list = true, SIZE, { "pad", "number|shape?" },
  { "pad_value", "number", 0 }, INTERPOLATION }, {
  read = function(self, a)
    read_size(self, a)
    local p = a.pad
    if type(p) == "number" then
      p = { p, p, p, p }
    end
    if p ~= nil and #p ~= 4 then
      fail_value(self, "pad", "a number, or {above, below, left, right}", a.pad)
    end
    self._pad, self._fill = p, a.pad_value
  end,
  change = run_on_host,
  steps = function(self, add)
    if self._pad then
      add(C.TY_STEP_BORDER, self._pad[1], self._pad[2], self._pad[3], self._pad[4], self._fill)
    end
    add(C.TY_STEP_RANDOM_CROP, self._w, self._h, self._how)
  end,
})


-- Returns the ends of a range {from, to}; a single number v means {v, 1}.
local function read_range(self, v, argument)
  if type(v) == "number" then
    return v, 1
  elseif #v ~= 2 then
    fail_value(self, argument, "{from, to}", v)
  end
  return v[1], v[2]
end


--- Cuts a window of random area, proportions and place out of an image, and resizes it. Options:
-- size; scale = {0.08, 1}: least and largest share of the image's area; ratio = {3/4, 4/3}: least
-- and largest width over height; interpolation = 1.
-- @function RandomResizedCrop
define_transform("RandomResizedCrop", Block, { list = true, SIZE,
  { "scale", "number|list", { 0.08, 1 } }, { "ratio", "list", { 3 / 4, 4 / 3 } }, INTERPOLATION }, {
  read = function(self, a)
    read_size(self, a)
    self._from, self._to = read_range(self, a.scale, "scale")
    self._narrow, self._wide = read_range(self, a.ratio, "ratio")
  end,
  change = run_on_host,
  steps = function(self, add)
    add(C.TY_STEP_SIZE_CROP, self._w, self._h, self._from, self._to, self._narrow, self._wide,
      self._how)
  end,
})


-- Mirror images -----------------------------------------------------------------------------------

local P = { "p", "number", 0.5 }

-- Stores the probability p; raises E(value) unless it is from 0 to 1.
local function read_p(self, a)
  if a.p < 0 or a.p > 1 then
    fail_value(self, "p", "0 to 1", a.p)
  end
  self._p = a.p
end


-- Returns a `change` that flips images with the object's probability. always: operator that flips;
-- at_random: operator that flips with probability 0.5.
local function make_flip(always, at_random)
  return run_steps_or(function(self, x)
    if self._p >= 1 then
      return F.image[always](x)
    elseif self._p <= 0 then
      return x
    elseif self._p == 0.5 then
      return F.image[at_random](x)
    end
    return run_on_host(self, x)
  end)
end


--- Mirrors an image, left to right, with probability p = 0.5.
-- @function RandomFlipLeftRight
define_transform("RandomFlipLeftRight", HybridBlock, { P }, {
  read = read_p, change = make_flip("flip_left_right", "random_flip_left_right"),
  steps = function(self, add) add(C.TY_STEP_FLIP_COLUMNS, self._p) end,
})

--- Mirrors an image, top to bottom, with probability p = 0.5.
-- @function RandomFlipTopBottom
define_transform("RandomFlipTopBottom", HybridBlock, { P }, {
  read = read_p, change = make_flip("flip_top_bottom", "random_flip_top_bottom"),
  steps = function(self, add) add(C.TY_STEP_FLIP_ROWS, self._p) end,
})


-- Colours -----------------------------------------------------------------------------------------

-- Raises E(value) for a negative number or NaN.
local function check_part(self, argument, v)
  if v ~= v or v < 0 then
    fail_value(self, argument, "0 or more", v)
  end
end


-- Defines a transform with a random factor from 1 - v to 1 + v, at least 0; v is its parameter.
local function define_factor(name, parameter, step, operator)
  define_transform(name, HybridBlock, { { parameter, "number" } }, {
    read = function(self, a)
      local part = a[parameter]
      check_part(self, parameter, part)
      self._least, self._most = math.max(0, 1 - part), 1 + part
    end,
    change = run_steps_or(function(self, x)
      return F.image[operator]{ x, min_factor = self._least, max_factor = self._most }
    end),
    steps = function(self, add) add(step, self._least, self._most) end,
  })
end


--- Multiplies the brightness by a random factor from max(0, 1 - brightness) to 1 + brightness.
-- Option brightness, at least 0.
-- @function RandomBrightness
define_factor("RandomBrightness", "brightness", C.TY_STEP_BRIGHTNESS, "random_brightness")

--- Multiplies the contrast by a random factor from max(0, 1 - contrast) to 1 + contrast. Option
-- contrast, at least 0.
-- @function RandomContrast
define_factor("RandomContrast", "contrast", C.TY_STEP_CONTRAST, "random_contrast")

--- Multiplies the saturation by a random factor from max(0, 1 - saturation) to 1 + saturation.
-- Option saturation, at least 0.
-- @function RandomSaturation
define_factor("RandomSaturation", "saturation", C.TY_STEP_SATURATION, "random_saturation")

--- Turns the hue by a random part of the colour circle, from max(0, 1 - hue) to 1 + hue, where 1 is
-- a full turn. Option hue, at least 0.
-- @function RandomHue
define_factor("RandomHue", "hue", C.TY_STEP_HUE, "random_hue")


--- Applies RandomBrightness, RandomContrast, RandomSaturation and RandomHue in random order.
-- Options brightness = 0, contrast = 0, saturation = 0, hue = 0; those that are 0 are left out.
-- @function RandomColorJitter
define_transform("RandomColorJitter", HybridBlock, { { "brightness", "number", 0 },
  { "contrast", "number", 0 }, { "saturation", "number", 0 }, { "hue", "number", 0 } }, {
  read = function(self, a)
    for _, name in ipairs{ "brightness", "contrast", "saturation", "hue" } do
      check_part(self, name, a[name])
    end
    self._b, self._c, self._s, self._h = a.brightness, a.contrast, a.saturation, a.hue
  end,
  change = run_steps_or(function(self, x)
    return F.image.random_color_jitter{ x, brightness = self._b, contrast = self._c,
      saturation = self._s, hue = self._h }
  end),
  steps = function(self, add) add(C.TY_STEP_JITTER, self._b, self._c, self._s, self._h) end,
})


--- Adds the principal components of colours, as for AlexNet, multiplied by normal random numbers of
-- standard deviation alpha. Option alpha, at least 0.
-- @function RandomLighting
define_transform("RandomLighting", HybridBlock, { { "alpha", "number" } }, {
  read = function(self, a)
    check_part(self, "alpha", a.alpha)
    self._alpha = a.alpha
  end,
  change = run_steps_or(function(self, x)
    return F.image.random_lighting{ x, alpha_std = self._alpha }
  end),
  steps = function(self, add) add(C.TY_STEP_LIGHTING, self._alpha) end,
})


--- Converts an image to grey with the same number of channels, with probability p = 0.5.
-- @function RandomGray
define_transform("RandomGray", Block, { P }, {
  read = read_p, change = run_on_host,
  steps = function(self, add) add(C.TY_STEP_GREY, self._p) end,
})


-- Numbers -----------------------------------------------------------------------------------------

--- Casts all inputs, also further ones. Option dtype = "float32".
-- @type Cast
local Cast = define_transform("Cast", HybridBlock, { { "dtype", "dtype", "float32" } }, {
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


--- Converts an image (height, width, channels), or a batch, of numbers from 0 to 255 to float32
-- from 0 to 1 with the channels first, (channels, height, width).
-- @function ToTensor
define_transform("ToTensor", HybridBlock, {}, {
  change = function(_, x) return F.image.to_tensor(x) end,
  steps = function(_, add) add(C.TY_STEP_TO_TENSOR) end,
})


-- Returns a number, or numbers by channel, as a list of 1 or 3; raises E(value) for other lengths.
local function list_channels(self, v, argument)
  local list = type(v) == "number" and { v } or is_array(v) and v:totable() or v
  if #list ~= 1 and #list ~= 3 then
    fail_value(self, argument, "a number, or 3 of them", v)
  end
  return list
end


--- Computes (x - mean) / std for each channel of an image (channels, height, width), the result of
-- ToTensor, or of a batch. Options mean = 0, std = 1: a number, or a list of 3.
-- @function Normalize
define_transform("Normalize", HybridBlock, { { "mean", "number|list|array", 0 },
  { "std", "number|list|array", 1 } }, {
  arguments = function(_, first, ...)
    if select("#", ...) == 0 and is_plain(first) and #first == 3 then
      return { mean = { unpack(first) }, std = first.std }
    end
    return first, ...
  end,
  read = function(self, a)
    self._mean, self._std = list_channels(self, a.mean, "mean"), list_channels(self, a.std, "std")
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


--- Rotates an image (channels, height, width), float32, or a batch, about its middle. Options:
-- rotation_degrees: angle, counter-clockwise; zoom_in = false: true enlarges it so that nothing
-- outside the image is visible; zoom_out = false: true shrinks it so that all of the image is
-- visible.
-- @function Rotate
define_transform("Rotate", Block, { { "rotation_degrees", "number" }, ZOOM_IN, ZOOM_OUT }, {
  read = function(self, a)
    self._angle, self._in, self._out = a.rotation_degrees, a.zoom_in, a.zoom_out
  end,
  change = run_on_host,
  steps = function(self, add)
    add(C.TY_STEP_ROTATE, self._angle, flag(self._in), flag(self._out))
  end,
})


--- Rotates an image by a random angle; see Rotate. Options: angle_limits = {least, largest}, in
-- degrees; zoom_in = false, zoom_out = false; rotate_with_proba = 1: probability of a rotation.
-- @function RandomRotation
define_transform("RandomRotation", Block, { list = true, { "angle_limits", "list" }, ZOOM_IN,
  ZOOM_OUT, { "rotate_with_proba", "number", 1 } }, {
  read = function(self, a)
    local least, largest = read_range(self, a.angle_limits, "angle_limits")
    if type(least) ~= "number" or type(largest) ~= "number" or least >= largest then
      fail_value(self, "angle_limits", "{least, largest}", a.angle_limits)
    end
    self._least, self._largest, self._in, self._out, self._p =
      least, largest, a.zoom_in, a.zoom_out, a.rotate_with_proba
  end,
  change = run_on_host,
  steps = function(self, add)
    add(C.TY_STEP_RANDOM_ROTATE, self._least, self._largest, flag(self._in), flag(self._out),
      self._p)
  end,
})


-- Containers --------------------------------------------------------------------------------------

-- Returns the blocks among the arguments of a constructor: a list, the array part of the options,
-- or the arguments themselves.
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
        got = Error.kind(block), message = ("bad argument %d"):format(i) }
    end
  end
  return list
end


-- Runs all children on the inputs, one after the other.
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


-- Appends the native steps of all children; returns false if one has none.
local function steps_of_children(self, list)
  for _, child in ipairs(self._children) do
    if not plan.add_steps(child.block, list) then
      return false
    end
  end
end


-- Defines a class of blocks that run their children one after the other.
local function define_container(name, base)
  local T = base:extend(name)

  --- Appends blocks.
  -- @param ... blocks, or a list of them; another value is E(`type`)
  -- @return the container
  function T:add(...)
    for _, block in ipairs(collect_blocks("transforms." .. name .. ":add", ...)) do
      self:register_child(block)
    end
    return self
  end

  -- Registers a block as a child, and as the next entry of the array part.
  function T:register_child(...)
    base.register_child(self, ...)
    local count = #self._children
    rawset(self, count, self._children[count].block)
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


--- Applies transforms one after the other: `Compose{ a, b, c }`, or a list as the only argument.
-- @type Compose
define_container("Compose", Block)

--- Applies transforms like `Compose`; all must be HybridBlocks, and they are hybridized.
-- @type HybridCompose
define_container("HybridCompose", HybridBlock)

function transforms.HybridCompose:init(...)
  self:add(...)
  self:hybridize()
end


local APPLY = make_form("transforms.RandomApply", { { "transforms", "any" }, P })

--- Applies all of its transforms, with probability p = 0.5, or none: `RandomApply(transforms, p)`,
-- with a block or a list of blocks.
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
