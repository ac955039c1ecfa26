--- Augmentation of images together with their bounding boxes (part of `ty.image`).
--
--     local steps = ty.image.CreateDetAugmenter{ data_shape = {3, 300, 300}, rand_crop = 0.5,
--       rand_pad = 0.5, rand_mirror = true }
--     for _, step in ipairs(steps) do x, label = step(x, label) end
--
-- Each takes an image (height, width, channels) and a label, and returns both. A label is a list of
-- rows {class, left, top, right, bottom, ...} or an array of such rows; the result has the same
-- form. Positions are fractions of the image's width and height. Random numbers come from cpu(0).
--
-- @module tycho.image.det_augment

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local augment = require "tycho.image.augment"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local json = require "tycho.core.json"
local nd = require "tycho.ndarray"
local pixels = require "tycho.image.pixels"
local random = require "tycho.image.random"

local floor, max, min, sqrt = math.floor, math.max, math.min, math.sqrt

local det = {}


-- The base ----------------------------------------------------------------------------------------

--- Base of these augmenters: a subclass defines `apply(x, label)`. Field: params, by name.
-- @type DetAugmenter
local DetAugmenter = augment.Augmenter:extend("DetAugmenter")
det.DetAugmenter = DetAugmenter


--- Returns the changed image and label.
function DetAugmenter:__call(x, label)
  if not class.is_array(label) then
    return self:apply(x, label)
  end
  local changed, rows = self:apply(x, label:totable())
  return changed, nd.array(rows)
end


-- Returns a class whose parameters become its fields.
local function define(name, spec, apply)
  local Kind, form = DetAugmenter:extend(name), args.form("image." .. name, spec)
  function Kind:init(...)
    local a = form(...)
    Kind.super.init(self, a)
    for key, value in pairs(a) do
      self[key] = value
    end
    if self.prepare then
      self:prepare()
    end
  end
  Kind.apply = apply
  det[name] = Kind
  return Kind
end


local function bad(func, argument, expected, got)
  Error.raise{ code = "value", func = "image." .. func, argument = argument, expected = expected,
    got = got, message = ("bad '%s'"):format(argument) }
end


-- Others as parts ---------------------------------------------------------------------------------

--- Changes only the image. Parameter: augmenter, an `Augmenter`.
-- @function DetBorrowAug
local Borrow = define("DetBorrowAug", { { "augmenter", "any" } }, function(self, x, label)
  return self.augmenter(x), label
end)

function Borrow:prepare()
  if not Class.is_a(self.augmenter, augment.Augmenter)
      or Class.is_a(self.augmenter, DetAugmenter) then
    Error.raise{ code = "type", func = "image.DetBorrowAug", argument = "augmenter",
      expected = "an Augmenter of images alone", got = Error.kind(self.augmenter),
      message = "bad 'augmenter'" }
  end
  self.params = { augmenter = self.augmenter:dumps() }
end


--- Applies one of several augmenters, chosen at random in each call. Parameters: aug_list,
-- skip_prob = 0: the probability that none is applied.
-- @function DetRandomSelectAug
local Select = define("DetRandomSelectAug",
  { list = true, { "aug_list", "list" }, { "skip_prob", "number", 0 } }, function(self, x, label)
    if #self.aug_list == 0 or random.uniform(0, 1) < self.skip_prob then
      return x, label
    end
    return self.aug_list[random.integer(1, #self.aug_list)](x, label)
  end)

function Select:prepare()
  for i, step in ipairs(self.aug_list) do
    if not Class.is_a(step, DetAugmenter) then
      Error.raise{ code = "type", func = "image.DetRandomSelectAug",
        argument = ("aug_list[%d]"):format(i), expected = "a DetAugmenter",
        got = Error.kind(step), message = "bad 'aug_list'" }
    end
  end
end


function Select:dumps()
  local texts = {}
  for i, step in ipairs(self.aug_list) do
    texts[i] = step:dumps()
  end
  return json.text{ self.class_name:lower(), texts }
end


-- Boxes -------------------------------------------------------------------------------------------

local function copy_row(row)
  return { unpack(row) }
end


local function area_of(left, top, right, bottom)
  return max(0, right - left) * max(0, bottom - top)
end


--- Mirrors image and boxes horizontally with probability p.
-- @function DetHorizontalFlipAug
define("DetHorizontalFlipAug", { { "p", "number" } }, function(self, x, label)
  if random.uniform(0, 1) >= self.p then
    return x, label
  end
  local rows = {}
  for i, row in ipairs(label) do
    rows[i] = copy_row(row)
    rows[i][2], rows[i][4] = 1 - row[4], 1 - row[2]
  end
  return nd._image_flip_left_right(x), rows
end)


local function round(v)
  return floor(v + 0.5)
end


-- Returns the option `name`, a number or two, as {low, high}; raises E(value) unless low <= high
-- and high is above 0.
local function range_of(self, name)
  local v = self[name]
  v = type(v) == "number" and { v, v } or v
  if #v ~= 2 or type(v[1]) ~= "number" or type(v[2]) ~= "number" or v[1] > v[2] or v[2] <= 0 then
    bad(self.class_name, name, "{low, high}, above 0", self[name])
  end
  return v
end


local RATIOS, AREAS, PAD_AREAS = { 0.75, 1.33 }, { 0.05, 1 }, { 1, 3 }

--- Cuts out a random window. More than `min_object_covered` of each object that it touches must be
-- inside; objects of which at most `min_eject_coverage` is inside are dropped. If `max_attempts`
-- windows do not fit, the image is not changed. Parameters: min_object_covered = 0.1,
-- aspect_ratio_range = {0.75, 1.33}, area_range = {0.05, 1} (fractions of the image),
-- min_eject_coverage = 0.3, max_attempts = 50.
-- @function DetRandomCropAug
local Crop = define("DetRandomCropAug", {
  { "min_object_covered", "number", 0.1 }, { "aspect_ratio_range", "number|list", RATIOS },
  { "area_range", "number|list", AREAS }, { "min_eject_coverage", "number", 0.3 },
  { "max_attempts", "integer", 50 },
}, function(self, x, label)
  local height, width = x.shape[1], x.shape[2]
  for _ = 1, self.max_attempts do
    local left, top, w, h = self:window(height, width)
    local rows = left and self:covers(label, left, top, w, h, height, width)
      and self:seen(label, left / width, top / height, w / width, h / height)
    if rows then
      return pixels.fixed_crop(x, left, top, w, h), rows
    end
  end
  return x, label
end)

function Crop:prepare()
  self.aspect_ratio_range, self.area_range =
    range_of(self, "aspect_ratio_range"), range_of(self, "area_range")
end


-- Returns a size of the proportions and area asked for, within the bounds of the height: height,
-- width, proportions.
local function random_size(self, height, width, bounds)
  local ratio = random.uniform(self.aspect_ratio_range[1], self.aspect_ratio_range[2])
  if ratio <= 0 then
    return nil
  end
  local low, high = bounds(round(sqrt(self.area_range[1] * height * width / ratio)),
    round(sqrt(self.area_range[2] * height * width / ratio)), ratio)
  local h = low < high and random.integer(low, high) or min(low, high)
  return h, round(h * ratio), ratio
end


-- Returns a random window: left, top, width, height; nil if the proportions do not fit.
function Crop:window(height, width)
  local h, w, r = random_size(self, height, width, function(low, high, ratio)
    high = round(high * ratio) > width and floor((width + 0.4999999) / ratio) or high
    return low, min(high, height)
  end)
  local whole = height * width
  local least, most = self.area_range[1] * whole, self.area_range[2] * whole
  local step = h and (h * w < least and 1 or h * w > most and -1 or 0) or 0
  if step ~= 0 then
    h = h + step
    w = round(h * r)
  end
  if not h or h < 1 or w < 1 or h > height or w > width or h * w < least or h * w > most then
    return nil
  end
  return random.integer(0, width - w), random.integer(0, height - h), w, h
end


-- Returns whether each object that the window touches has enough of it inside.
function Crop:covers(label, left, top, w, h, height, width)
  if w * h < 2 then
    return false
  end
  local x1, y1, x2, y2 = left / width, top / height, (left + w) / width, (top + h) / height
  local touched = false
  for _, row in ipairs(label) do
    local area = area_of(row[2], row[3], row[4], row[5])
    local inside = area_of(max(row[2], x1), max(row[3], y1), min(row[4], x2), min(row[5], y2))
    if area * width * height > 2 and inside > 0 then
      touched = true
      if inside / area <= self.min_object_covered then
        return false
      end
    end
  end
  return touched
end


local function clamp(v)
  return max(0, min(1, v))
end


-- Returns the objects of which enough is left, in shares of the window; nil when there are none.
function Crop:seen(label, left, top, w, h)
  local rows = {}
  for _, row in ipairs(label) do
    local out, area = copy_row(row), area_of(row[2], row[3], row[4], row[5])
    out[2], out[4] = clamp((row[2] - left) / w), clamp((row[4] - left) / w)
    out[3], out[5] = clamp((row[3] - top) / h), clamp((row[5] - top) / h)
    local rest = area_of(out[2], out[3], out[4], out[5]) * w * h
    if out[4] > out[2] and out[5] > out[3] and rest > self.min_eject_coverage * area then
      rows[#rows + 1] = out
    end
  end
  return rows[1] and rows
end


--- Adds a border; the image is at a random position inside. Parameters: aspect_ratio_range =
-- {0.75, 1.33}, area_range = {1, 3} (multiples of the image), max_attempts = 50, pad_val = {128,
-- 128, 128}.
-- @function DetRandomPadAug
local Pad = define("DetRandomPadAug", {
  { "aspect_ratio_range", "number|list", RATIOS }, { "area_range", "number|list", PAD_AREAS },
  { "max_attempts", "integer", 50 }, { "pad_val", "list", { 128, 128, 128 } },
}, function(self, x, label)
  local height, width = x.shape[1], x.shape[2]
  for _ = 1, self.max_attempts do
    local h, w = random_size(self, height, width, function(low, high, ratio)
      low = round(low * ratio) < width and floor((width + 0.4999999) / ratio) or low
      return min(max(low, height), high), high
    end)
    if h and h - height >= 2 and w - width >= 2 then
      local left, top = random.integer(0, w - width), random.integer(0, h - height)
      return self:padded(x, label, left, top, w, h)
    end
  end
  return x, label
end)

function Pad:prepare()
  self.aspect_ratio_range, self.area_range =
    range_of(self, "aspect_ratio_range"), range_of(self, "area_range")
end


function Pad:padded(x, label, left, top, w, h)
  local height, width, rows = x.shape[1], x.shape[2], {}
  for i, row in ipairs(label) do
    rows[i] = copy_row(row)
    rows[i][2], rows[i][4] = (row[2] * width + left) / w, (row[4] * width + left) / w
    rows[i][3], rows[i][5] = (row[3] * height + top) / h, (row[5] * height + top) / h
  end
  return pixels.copyMakeBorder{ x, top = top, bot = h - top - height, left = left,
    right = w - left - width, values = self.pad_val }, rows
end


-- The usual lists ---------------------------------------------------------------------------------

local CROPS = { "min_object_covered", "aspect_ratio_range", "area_range", "min_eject_coverage",
  "max_attempts" }

local MULTI = args.form("image.CreateMultiRandCropAugmenter", {
  { "min_object_covered", "number|list", 0.1 }, { "aspect_ratio_range", "number|list", RATIOS },
  { "area_range", "number|list", AREAS }, { "min_eject_coverage", "number|list", 0.3 },
  { "max_attempts", "integer|list", 50 }, { "skip_prob", "number", 0 },
})

-- Returns a parameter for each of several windows; a lone {low, high} is one range.
local function several(value, is_range)
  if type(value) ~= "table" or is_range and type(value[1]) == "number" then
    return { value }
  end
  return value
end


--- Returns an augmenter that chooses one of several random windows in each call. Every parameter of
-- `DetRandomCropAug` may be a list, with an entry for each window; skip_prob = 0: the probability
-- that none is applied.
-- @treturn DetRandomSelectAug
function det.CreateMultiRandCropAugmenter(...)
  local a, lists, n = MULTI(...), {}, 1
  for _, name in ipairs(CROPS) do
    lists[name] = several(a[name], name:find("_range$"))
    n = max(n, #lists[name])
  end
  local windows = {}
  for i = 1, n do
    local options = {}
    for _, name in ipairs(CROPS) do
      local list = lists[name]
      if #list ~= n and #list ~= 1 then
        bad("CreateMultiRandCropAugmenter", name, ("1 or %d values"):format(n), #list)
      end
      options[name] = list[#list == 1 and 1 or i]
    end
    windows[i] = det.DetRandomCropAug(options)
  end
  return det.DetRandomSelectAug{ aug_list = windows, skip_prob = a.skip_prob }
end


local CREATE = args.form("image.CreateDetAugmenter", {
  { "data_shape", "shape" }, { "resize", "integer", 0 }, { "rand_crop", "number", 0 },
  { "rand_pad", "number", 0 }, { "rand_gray", "number", 0 }, { "rand_mirror", "boolean", false },
  { "mean", "boolean|list|array?" }, { "std", "boolean|list|array?" },
  { "brightness", "number", 0 }, { "contrast", "number", 0 }, { "saturation", "number", 0 },
  { "pca_noise", "number", 0 }, { "hue", "number", 0 }, { "inter_method", "integer", 2 },
  { "min_object_covered", "number|list", 0.1 }, { "aspect_ratio_range", "number|list", RATIOS },
  { "area_range", "number|list", { 0.05, 3 } }, { "min_eject_coverage", "number|list", 0.3 },
  { "max_attempts", "integer|list", 50 }, { "pad_val", "list", { 127, 127, 127 } },
})


-- Returns the largest area of all ranges, and the first of the proportions and attempts.
local function pad_step(a)
  local areas, most = several(a.area_range, true), 0
  for _, range in ipairs(areas) do
    most = max(most, type(range) == "table" and range[2] or range)
  end
  local pad = det.DetRandomPadAug{ aspect_ratio_range = several(a.aspect_ratio_range, true)[1],
    area_range = { 1, max(1, most) }, max_attempts = several(a.max_attempts)[1],
    pad_val = a.pad_val }
  return det.DetRandomSelectAug{ aug_list = { pad }, skip_prob = 1 - a.rand_pad }
end


local function crop_step(a)
  local options = { skip_prob = 1 - a.rand_crop }
  for _, name in ipairs(CROPS) do
    options[name] = a[name]
  end
  return det.CreateMultiRandCropAugmenter(options)
end


--- Returns the usual augmenters as a list: resize, window, mirror image, border, size, float32,
-- colours, normalisation. Options data_shape (channels, height, width), resize = 0 (of the shorter
-- side), rand_crop, rand_pad, rand_gray = 0 (probabilities), rand_mirror = false, mean, std (true:
-- ImageNet's), brightness, contrast, saturation, pca_noise, hue = 0, inter_method = 2; of windows
-- and borders min_object_covered = 0.1, aspect_ratio_range = {0.75, 1.33}, area_range = {0.05, 3},
-- min_eject_coverage = 0.3, max_attempts = 50, pad_val = {127, 127, 127}.
-- @treturn {DetAugmenter,...}
function det.CreateDetAugmenter(...)
  local a, list = CREATE(...), {}
  if #a.data_shape ~= 3 then
    bad("CreateDetAugmenter", "data_shape", "{channels, height, width}", a.data_shape)
  end
  local function borrow(step)
    list[#list + 1] = det.DetBorrowAug(step)
  end
  if a.resize > 0 then
    borrow(augment.ResizeAug(a.resize, a.inter_method))
  end
  list[#list + 1] = a.rand_crop > 0 and crop_step(a) or nil
  list[#list + 1] = a.rand_mirror and det.DetHorizontalFlipAug(0.5) or nil
  list[#list + 1] = a.rand_pad > 0 and pad_step(a) or nil
  borrow(augment.ForceResizeAug({ a.data_shape[3], a.data_shape[2] }, a.inter_method))
  local others = augment.CreateAugmenter{ data_shape = a.data_shape, mean = a.mean,
    std = a.std, brightness = a.brightness, contrast = a.contrast, saturation = a.saturation,
    hue = a.hue, pca_noise = a.pca_noise, rand_gray = a.rand_gray }
  for i = 2, #others do                                   -- the first one cuts a window
    borrow(others[i])
  end
  return list
end


return det
