--- Batches of images with bounding boxes: `ty.image.ImageDetIter`.
--
-- The label of a sample is one line of numbers: the count of numbers before the objects (at least
-- 2), the count per object (at least 5), the rest of those before the objects, then for each object
-- its class and left, top, right and bottom as fractions of the image's size. A batch's label is
-- (batch, objects, numbers of an object); samples with fewer objects are filled up with rows of -1.
--
-- @module tycho.image.det_iter

local args = require "tycho.core.args"
local base = require "tycho.io.data"
local Class = require "tycho.core.class"
local class = require "tycho.ndarray.class"
local det = require "tycho.image.det_augment"
local Error = require "tycho.core.error"
local ffi = require "ffi"
local image_iter = require "tycho.image.iter"
local nd = require "tycho.ndarray"
local pixels = require "tycho.image.pixels"
local raster = require "tycho.viz.raster"

local det_iter = {}

local LEAST_HEADER, LEAST_OBJECT = 2, 5

--- Fields: as of `ImageIter`, and label_shape = {objects, numbers of an object}.
-- @type ImageDetIter
local ImageDetIter = image_iter.ImageIter:extend("ImageDetIter")
det_iter.ImageDetIter = ImageDetIter

local FORM = args.form("image.ImageDetIter", {
  rest = "augment", { "batch_size", "integer" }, { "data_shape", "shape" },
  { "path_imgrec", "path?" }, { "path_imglist", "path?" }, { "path_root", "path", "" },
  { "path_imgidx", "path?" }, { "shuffle", "boolean", false }, { "part_index", "integer", 0 },
  { "num_parts", "integer", 1 }, { "aug_list", "list?" }, { "imglist", "list?" },
  { "data_name", "text", "data" }, { "label_name", "text", "label" },
  { "dtype", "dtype", "float32" },
  { "last_batch_handle", { "pad", "discard", "roll_over" }, "pad" },
})


-- Labels ------------------------------------------------------------------------------------------

local function bad_label(self, name, expected, got, message)
  Error.raise{ code = "format", func = "image." .. self.class_name, argument = name,
    expected = expected, got = got, message = name .. ": " .. message }
end


-- Returns a sample's label as rows of numbers, one per object; objects without an area are left
-- out. Raises E(value) for a label that is not one of boxes.
function ImageDetIter:_check_label(label, name)
  label = type(label) == "table" and label or { label }
  local before, width = label[1], label[2] or 0
  local count = (#label - before) / width
  if before < LEAST_HEADER or width < LEAST_OBJECT or count < 1 or count % 1 ~= 0 then
    bad_label(self, name, "numbers before the objects, numbers of an object, ..., objects", label,
      "the label is not one of boxes")
  end
  local rows = {}
  for i = before + 1, #label, width do
    local row = { unpack(label, i, i + width - 1) }
    rows[#rows + 1] = row[4] > row[2] and row[5] > row[3] and row or nil
  end
  if #rows == 0 then
    bad_label(self, name, "right above left, bottom above top", label, "no object has an area")
  end
  return rows
end


-- Returns the largest number of objects of a sample and the numbers per object; reads all labels.
local function measured(self)
  local most, width = 0, nil
  self:reset()
  local label, _, name = self:next_sample()
  while label do
    local rows = self:_check_label(label, name)
    if width and width ~= #rows[1] then
      bad_label(self, name, width, #rows[1], "objects have another width than those before")
    end
    most, width = math.max(most, #rows), #rows[1]
    label, _, name = self:next_sample()
  end
  self:reset()
  return { most, width }
end


function ImageDetIter:_label_shape()
  return { self.batch_size, self.label_shape[1], self.label_shape[2] }
end


function ImageDetIter:_label_array(list)
  local objects, width = unpack(self.label_shape)
  local numbers = ffi.new("float[?]", #list * objects * width)
  for i = 0, #list * objects * width - 1 do
    numbers[i] = -1
  end
  for i, sample in ipairs(list) do
    for k, row in ipairs(sample[2]) do
      for j = 1, width do
        numbers[((i - 1) * objects + k - 1) * width + j - 1] = row[j]
      end
    end
  end
  return nd.from_pointer(numbers, self:_label_shape(), { owner = numbers }):copy()
end


-- The iterator ------------------------------------------------------------------------------------

--- Reads the options, which are those of `ImageIter`, without label_width and with label_name =
-- "label"; without aug_list also those of `CreateDetAugmenter`.
function ImageDetIter:init(...)
  local a = FORM(...)
  a.label_width = 1
  self:_set_up(a)
  for i, step in ipairs(self.auglist) do
    if not Class.is_a(step, det.DetAugmenter) then
      Error.raise{ code = "type", func = "image.ImageDetIter",
        argument = ("aug_list[%d]"):format(i), expected = "a DetAugmenter",
        got = Error.kind(step), message = "bad 'aug_list'" }
    end
  end
  self.label_shape = measured(self)
  self.provide_label = { base.DataDesc(self._label_name, self:_label_shape()) }
end


function ImageDetIter._create_augmenters(_, options)
  return det.CreateDetAugmenter(options)
end


function ImageDetIter:_augment(x, label)
  for _, step in ipairs(self.auglist) do
    x, label = step(x, label)
  end
  return x, label
end


local RESHAPE = args.form("ImageDetIter:reshape",
  { { "data_shape", "shape?" }, { "label_shape", "shape?" } })

--- Sets other shapes for the batches from the next one on: data_shape (channels, height, width),
-- the size to which the augmenters must bring images, and label_shape (objects, numbers per
-- object), with at least as many objects as before.
function ImageDetIter:reshape(...)
  local a = RESHAPE(...)
  local given = a.label_shape
  if given and (#given ~= 2 or given[1] < self.label_shape[1]
      or given[2] ~= self.label_shape[2]) then
    Error.raise{ code = "value", func = "ImageDetIter:reshape", argument = "label_shape",
      expected = ("{%d or more, %d}"):format(unpack(self.label_shape)), got = given,
      message = "objects would be lost" }
  end
  if a.data_shape and (#a.data_shape ~= 3 or a.data_shape[1] ~= self._shape[1]) then
    Error.raise{ code = "value", func = "ImageDetIter:reshape", argument = "data_shape",
      expected = ("{%d, height, width}"):format(self._shape[1]), got = a.data_shape,
      message = "bad 'data_shape'" }
  end
  self.label_shape, self._shape = given or self.label_shape, a.data_shape or self._shape
  local data = self.provide_data[1]
  self.provide_data = { base.DataDesc(data.name, { self.batch_size, unpack(self._shape) },
    self._dtype) }
  self.provide_label = { base.DataDesc(self._label_name, self:_label_shape()) }
end


--- Sets the number of objects of both iterators to the larger one, so that one network accepts the
-- labels of training and of validation.
-- @tparam ImageDetIter other
-- @treturn ImageDetIter other
function ImageDetIter:sync_label_shape(other)
  if not Class.is_a(other, ImageDetIter) then
    Error.raise{ code = "type", func = "ImageDetIter:sync_label_shape", argument = "other",
      expected = "an ImageDetIter", got = Error.kind(other), message = "bad 'other'" }
  end
  local objects = math.max(self.label_shape[1], other.label_shape[1])
  self:reshape{ label_shape = { objects, self.label_shape[2] } }
  other:reshape{ label_shape = { objects, self.label_shape[2] } }
  return other
end


-- Looking at samples ------------------------------------------------------------------------------

local COLOURS = { "#e6194b", "#3cb44b", "#ffe119", "#4363d8", "#f58231", "#911eb4", "#42d4f4",
  "#f032e6" }

-- Returns the image (height, width, 3) as bytes, with the normalisation undone.
local function shown(x, mean, std)
  x = x:astype("float32")
  if std then
    x = nd.broadcast_mul{ x, nd.array{ { std } } }
  end
  if mean then
    x = nd.broadcast_add{ x, nd.array{ { mean } } }
  end
  return x:clip{ a_min = 0, a_max = 255 }:astype("uint8")
end


local function draw_boxes(x, label, a)
  local h, w = x.shape[1], x.shape[2]
  local canvas = raster.new(w, h)
  local bytes = x:tostring_raw()
  ffi.copy(canvas.bytes, bytes, #bytes)
  for _, row in ipairs(label) do
    local colour = a.color or COLOURS[row[1] % #COLOURS + 1]
    local left, top, right, bottom = row[2] * w, row[3] * h, row[4] * w, row[5] * h
    canvas:line({ { left, top }, { right, top }, { right, bottom }, { left, bottom },
      { left, top } }, colour, a.thickness)
    local name = a.id2labels and a.id2labels[row[1]]
    if name then
      canvas:text(left + a.thickness + 1, top + 14, tostring(name), { size = 12, colour = colour,
        bold = true })
    end
  end
  return canvas:array()
end


local DRAW = args.form("ImageDetIter:draw_next", { "*",
  { "color", "text?" }, { "thickness", "number", 2 }, { "mean", "boolean|list?" },
  { "std", "boolean|list?" }, { "id2labels", "table?" },
})

local MEAN, STD = { 123.68, 116.28, 103.53 }, { 58.395, 57.12, 57.375 }

--- Returns the next sample, changed as in training, with its boxes drawn; nil at the end of the
-- epoch.
--
--     ty.viz.show(it:draw_next())
--
-- @tparam[opt] table options color ("#rrggbb"; one for each class), thickness = 2, mean and std
--   that the augmenters have taken from the colours (true: ImageNet's), id2labels (names by class)
-- @treturn NDArray (height, width, 3) uint8
function ImageDetIter:draw_next(...)
  local a = DRAW(...)
  return class.scope(function()
    local label, bytes, name = self:next_sample()
    if not label then
      return nil
    end
    local x, rows = self:_augment(pixels.imdecode(bytes), self:_check_label(label, name))
    return draw_boxes(shown(x, a.mean == true and MEAN or a.mean, a.std == true and STD or a.std),
      rows, a)
  end)
end


return det_iter
