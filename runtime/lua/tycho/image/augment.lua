--- Augmentation of images: callable objects that change an image (part of `ty.image`).
--
--     local steps = ty.image.CreateAugmenter{ data_shape = {3, 224, 224}, resize = 256,
--       rand_crop = true, rand_mirror = true }
--     for _, step in ipairs(steps) do x = step(x) end
--
-- Each takes an image (height, width, channels) and returns one. Sizes are {width,
-- height}. Augmenters of colours need float32 (put `CastAug` before them).
-- Random numbers come from cpu(0).
--
-- @module tycho.image.augment

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local random = require "tycho.image.random"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local json = require "tycho.core.json"
local nd = require "tycho.ndarray"
local pixels = require "tycho.image.pixels"
local values = require "tycho.core.values"

local augment = {}


-- The base ----------------------------------------------------------------------------------------

--- Base of augmenters: a subclass defines `apply(x)`. Field: params, by name.
-- @type Augmenter
local Augmenter = Class:extend("Augmenter")
augment.Augmenter = Augmenter

--- @tparam[opt] table params the parameters that `dumps` writes
function Augmenter:init(params)
  self.params = params or {}
end


--- Returns the changed image; a subclass must define it. Called here it raises E(unsupported).
-- @tparam NDArray x height, width, channels
function Augmenter:apply(x)
  Error.raise{ code = "unsupported", func = self.class_name,
    message = "the augmenter does not define apply(x)" }
end


function Augmenter:__call(x)
  return self:apply(x)
end


-- Returns an array as nested lists, other values as they are.
local function without_arrays(v)
  if type(v) == "table" and v.totable then
    return v:totable()
  end
  return v
end


--- Returns the name and the parameters as JSON text: `["resizeaug", {"interp": 2, "size": 256}]`.
function Augmenter:dumps()
  local params = self.params
  return json.text{ self.class_name:lower(), next(params) and params or json.object{} }
end


-- Returns the arguments with a lone {width, height} as `{size = ...}`, if the first parameter is a
-- size: it would be read as a list of parameters otherwise.
local function lone_size(spec, t, ...)
  if spec[1][2] == "shape" and values.count(...) == 0 and values.is_plain(t) and #t == 2
      and type(t[2]) == "number" then
    return { size = t }
  end
  return t, ...
end


-- Returns a class whose parameters become its fields.
local function define(name, spec, apply)
  local Kind, form = Augmenter:extend(name), args.form("image." .. name, spec)
  function Kind:init(...)
    local a = form(lone_size(spec, ...))
    Kind.super.init(self, a)
    for key, value in pairs(a) do
      self[key] = class.keep(value)
    end
    if self.prepare then
      self:prepare()
    end
  end
  Kind.apply = apply
  augment[name] = Kind
  return Kind
end


-- Several -----------------------------------------------------------------------------------------

local function format_names(self)
  local texts = {}
  for i, step in ipairs(self.ts) do
    texts[i] = step.dumps and step:dumps() or tostring(step)
  end
  return json.text{ self.class_name:lower(), texts }
end

--- Applies augmenters one after the other. Parameter: ts, a list.
-- @function SequentialAug
define("SequentialAug", { list = true, { "ts", "list" } }, function(self, x)
  for _, step in ipairs(self.ts) do
    x = step(x)
  end
  return x
end).dumps = format_names


--- Applies augmenters one after the other, in random order. Parameter: ts, a list.
-- @function RandomOrderAug
define("RandomOrderAug", { list = true, { "ts", "list" } }, function(self, x)
  local order = {}
  for i, step in ipairs(self.ts) do
    local k = random.integer(1, i)
    order[i] = order[k]
    order[k] = step
  end
  for _, step in ipairs(order) do
    x = step(x)
  end
  return x
end).dumps = format_names


-- Sizes -------------------------------------------------------------------------------------------

local INTERP, SIZE = { "interp", "integer", 2 }, { "size", "shape" }

--- Resizes the shorter side to `size`. Parameters: size, interp = 2.
-- @function ResizeAug
define("ResizeAug", { { "size", "integer" }, INTERP }, function(self, x)
  return pixels.resize_short(x, self.size, self.interp)
end)


--- Resizes the image to `size` without keeping its proportions. Parameters: size
-- {width, height}, interp = 2.
-- @function ForceResizeAug
define("ForceResizeAug", { SIZE, INTERP }, function(self, x)
  return pixels.imresize(x, self.size[1], self.size[2] or self.size[1], self.interp)
end)


--- Cuts out a random window. Parameters: size {width, height}, interp = 2.
-- @function RandomCropAug
define("RandomCropAug", { SIZE, INTERP }, function(self, x)
  return (pixels.random_crop(x, self.size, self.interp))
end)


--- Cuts out a window of random area and proportions. Parameters: size, area, ratio,
-- interp = 2; see `random_size_crop`.
-- @function RandomSizedCropAug
define("RandomSizedCropAug", { SIZE, { "area", "number|list" }, { "ratio", "list" }, INTERP },
  function(self, x)
    return (pixels.random_size_crop(x, self.size, self.area, self.ratio, self.interp))
  end)


--- Cuts out the window in the middle. Parameters: size {width, height}, interp = 2.
-- @function CenterCropAug
define("CenterCropAug", { SIZE, INTERP }, function(self, x)
  return (pixels.center_crop(x, self.size, self.interp))
end)


-- Colours -----------------------------------------------------------------------------------------

local function coefficients(dtype)
  return nd.array({ { { 0.299, 0.587, 0.114 } } }, { dtype = dtype })
end


local function factor(range)
  return 1 + random.uniform(-range, range)
end


--- Multiplies by a random factor from 1 - brightness to 1 + brightness. Parameter: brightness.
-- @function BrightnessJitterAug
define("BrightnessJitterAug", { { "brightness", "number" } }, function(self, x)
  return x * factor(self.brightness)
end)


--- Blends the image with its mean grey; the image's weight is random, from 1 - contrast to 1 +
-- contrast. Parameter: contrast.
-- @function ContrastJitterAug
define("ContrastJitterAug", { { "contrast", "number" } }, function(self, x)
  local alpha = factor(self.contrast)
  local grey = x * coefficients(x.dtype)
  return x * alpha + (3 * (1 - alpha) / grey.size) * grey:sum()
end)


--- Blends the image with its grey version; the image's weight is random, from 1 - saturation to 1 +
-- saturation. Parameter: saturation.
-- @function SaturationJitterAug
define("SaturationJitterAug", { { "saturation", "number" } }, function(self, x)
  local alpha = factor(self.saturation)
  local grey = (x * coefficients(x.dtype)):sum{ axis = 2, keepdims = true }
  return x * alpha + grey * (1 - alpha)
end)


-- RGB to YIQ and back; columns of the result are channels
local TO_YIQ = { { 0.299, 0.587, 0.114 }, { 0.596, -0.274, -0.321 }, { 0.211, -0.523, 0.311 } }
local FROM_YIQ = { { 1, 0.956, 0.621 }, { 1, -0.272, -0.647 }, { 1, -1.107, 1.705 } }

local function product(a, b)
  local c = {}
  for i = 1, 3 do
    c[i] = {}
    for k = 1, 3 do
      c[i][k] = a[i][1] * b[1][k] + a[i][2] * b[2][k] + a[i][3] * b[3][k]
    end
  end
  return c
end


local function recolored(x, matrix, transposed)
  return nd.dot{ x, nd.array(matrix, { dtype = x.dtype }), transpose_b = transposed or false }
end


--- Rotates the hue by a random angle from -hue to hue, in half turns. Parameter: hue.
-- @function HueJitterAug
define("HueJitterAug", { { "hue", "number" } }, function(self, x)
  local angle = random.uniform(-self.hue, self.hue) * math.pi
  local u, w = math.cos(angle), math.sin(angle)
  return recolored(x,
    product(product(FROM_YIQ, { { 1, 0, 0 }, { 0, u, -w }, { 0, w, u } }), TO_YIQ), true)
end)


--- Changes brightness, contrast and saturation in random order; changes of 0 are skipped.
-- @function ColorJitterAug
define("ColorJitterAug", {
  { "brightness", "number" }, { "contrast", "number" }, { "saturation", "number" },
}, function(self, x)
  return self.steps(x)
end).prepare = function(self)
  local list = {}
  for _, row in ipairs{ { "brightness", "BrightnessJitterAug" },
      { "contrast", "ContrastJitterAug" }, { "saturation", "SaturationJitterAug" } } do
    list[#list + 1] = self[row[1]] > 0 and augment[row[2]](self[row[1]]) or nil
  end
  self.steps = augment.RandomOrderAug{ ts = list }
end


local EIGVAL = { 55.46, 4.794, 1.148 }
local EIGVEC = { { -0.5675, 0.7192, 0.4009 }, { -0.5808, -0.0045, -0.8140 },
  { -0.5836, -0.6948, 0.4203 } }

--- Adds the principal components of colours times normal random numbers. Parameters: alphastd
-- (standard deviation), eigval and eigvec (by default ImageNet's).
-- @function LightingAug
define("LightingAug", {
  { "alphastd", "number" }, { "eigval", "list|array", EIGVAL }, { "eigvec", "list|array", EIGVEC },
}, function(self, x)
  local alpha, value, vector, rgb = {}, without_arrays(self.eigval), without_arrays(self.eigvec), {}
  for i = 1, 3 do
    alpha[i] = random.normal(self.alphastd)
  end
  for i = 1, 3 do
    rgb[i] = vector[i][1] * alpha[1] * value[1] + vector[i][2] * alpha[2] * value[2]
      + vector[i][3] * alpha[3] * value[3]
  end
  return x + nd.array(rgb, { dtype = x.dtype })
end)


--- Computes (x - mean) / std. Parameters: mean, std: lists by channel or arrays; either may be nil.
-- @function ColorNormalizeAug
define("ColorNormalizeAug", { { "mean", "list|array|null?" }, { "std", "list|array?" } },
  function(self, x)
    return pixels.color_normalize(x, values.value(self.mean) or values.null, self.std)
  end)


local GREY = { { 0.21, 0.21, 0.21 }, { 0.72, 0.72, 0.72 }, { 0.07, 0.07, 0.07 } }

--- Makes the image grey with probability p.
-- @function RandomGrayAug
define("RandomGrayAug", { { "p", "number" } }, function(self, x)
  return random.uniform(0, 1) < self.p and recolored(x, GREY) or x
end)


--- Mirrors the image horizontally with probability p.
-- @function HorizontalFlipAug
define("HorizontalFlipAug", { { "p", "number" } }, function(self, x)
  return random.uniform(0, 1) < self.p and nd._image_flip_left_right(x) or x
end)


--- Converts to another element type. Parameter: typ = "float32".
-- @function CastAug
define("CastAug", { { "typ", "dtype", "float32" } }, function(self, x)
  return x:astype(self.typ)
end)


-- The usual list ----------------------------------------------------------------------------------

local MEAN, STD = { 123.68, 116.28, 103.53 }, { 58.395, 57.12, 57.375 }

local CREATE = args.form("image.CreateAugmenter", {
  { "data_shape", "shape" }, { "resize", "integer", 0 }, { "rand_crop", "boolean", false },
  { "rand_resize", "boolean", false }, { "rand_mirror", "boolean", false },
  { "mean", "boolean|list|array?" }, { "std", "boolean|list|array?" },
  { "brightness", "number", 0 }, { "contrast", "number", 0 }, { "saturation", "number", 0 },
  { "hue", "number", 0 }, { "pca_noise", "number", 0 }, { "rand_gray", "number", 0 },
  { "inter_method", "integer", 2 },
})


local function window_step(a)
  local size = { a.data_shape[3], a.data_shape[2] }
  if a.rand_resize then
    if not a.rand_crop then
      Error.raise{ code = "value", func = "image.CreateAugmenter", argument = "rand_resize",
        expected = "rand_crop = true", got = "false",
        message = "a window of random size is a random window: rand_resize needs rand_crop" }
    end
    return augment.RandomSizedCropAug(size, 0.08, { 3 / 4, 4 / 3 }, a.inter_method)
  end
  return (a.rand_crop and augment.RandomCropAug or augment.CenterCropAug)(size, a.inter_method)
end


local function add_colors(list, a)
  if a.brightness > 0 or a.contrast > 0 or a.saturation > 0 then
    list[#list + 1] = augment.ColorJitterAug(a.brightness, a.contrast, a.saturation)
  end
  list[#list + 1] = a.hue > 0 and augment.HueJitterAug(a.hue) or nil
  list[#list + 1] = a.pca_noise > 0 and augment.LightingAug(a.pca_noise) or nil
  list[#list + 1] = a.rand_gray > 0 and augment.RandomGrayAug(a.rand_gray) or nil
  local mean, std = a.mean == true and MEAN or a.mean or nil, a.std == true and STD or a.std or nil
  if mean or std then
    list[#list + 1] = augment.ColorNormalizeAug{ mean = mean, std = std }
  end
end


--- Returns the usual augmenters as a list: resize, window, mirror image, float32, colours,
-- normalisation. Options data_shape (channels, height, width), resize = 0 (of the shorter side),
-- rand_crop = false, rand_resize = false, rand_mirror = false, mean, std (true: ImageNet's),
-- brightness, contrast, saturation, hue, pca_noise, rand_gray = 0, inter_method = 2.
-- @treturn {Augmenter,...}
function augment.CreateAugmenter(...)
  local a, list = CREATE(...), {}
  if #a.data_shape ~= 3 then
    Error.raise{ code = "value", func = "image.CreateAugmenter", argument = "data_shape",
      expected = "{channels, height, width}", got = a.data_shape, message = "bad 'data_shape'" }
  end
  list[1] = a.resize > 0 and augment.ResizeAug(a.resize, a.inter_method) or nil
  list[#list + 1] = window_step(a)
  list[#list + 1] = a.rand_mirror and augment.HorizontalFlipAug(0.5) or nil
  list[#list + 1] = augment.CastAug()
  add_colors(list, a)
  return list
end


return augment
