--- Drawings of images side by side (part of `ty.viz`).
--
-- @module tycho.viz.grid

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Drawing = require "tycho.viz.drawing"
local Error = require "tycho.core.error"
local ffi = require "ffi"
local values = require "tycho.core.values"

local grid = {}

local SIDE, GAP, TITLE, FACE, ROW = 12, 6, 16, 12, 16   -- pixels
local WIDE, LEAST = 720, 64                             -- default: of a row; least of an image
local FUNC = "viz.image_grid"


local function refuse_shape(array, name)
  Error.raise{ code = "shape", func = FUNC, argument = name, got = array.shape,
    expected = "(height, width), (1 or 3, height, width) or (height, width, 1 or 3)",
    message = "not the shape of an image" }
end


local function is_channels(n)
  return n == 1 or n == 3
end


-- Returns an image or a batch in the shape (count, height, width, channels).
local function as_batch(array, name)
  local s = array.shape
  if #s == 2 then
    return array:reshape{ 1, s[1], s[2], 1 }
  elseif #s == 3 and is_channels(s[3]) then
    return array:expand_dims{ axis = 0 }
  elseif #s == 3 and is_channels(s[1]) then
    return array:transpose{ axes = { 1, 2, 0 } }:expand_dims{ axis = 0 }
  elseif #s == 3 then
    return array:expand_dims{ axis = 3 }                 -- a batch of grey images
  elseif #s == 4 and is_channels(s[2]) then
    return array:transpose{ axes = { 0, 2, 3, 1 } }
  elseif #s == 4 and is_channels(s[4]) then
    return array
  end
  refuse_shape(array, name)
end


-- Returns the value of white: 255 for bytes and for floats above 1, else 1.
local function find_white(arrays)
  for _, array in ipairs(arrays) do
    if array.dtype == "uint8" or array:astype("float32"):max():asscalar() > 1 then
      return 255
    end
  end
  return 1
end


-- Returns the images of a batch as bytes: a list of {bytes, width, height}.
local function make_images(array, low, high)
  local n, h, w, c = unpack(array.shape)
  local scaled = (array:astype("float32") - low) * (255 / (high - low))
  scaled = scaled:clip{ a_min = 0, a_max = 255 }:round():astype("uint8")
  if c == 1 then
    scaled = scaled:broadcast_to{ shape = { n, h, w, 3 } }
  end
  local text, list = scaled:tostring_raw(), {}
  for i = 1, n do
    local bytes = ffi.new("uint8_t[?]", h * w * 3)
    ffi.copy(bytes, ffi.cast("const char *", text) + (i - 1) * h * w * 3, h * w * 3)
    list[i] = { bytes = bytes, width = w, height = h }
  end
  return list
end


-- Returns all images of an array or a list of arrays as bytes.
local function read_images(given, range)
  if class.is_array(given) then
    given = { given }
  elseif #given == 1 and values.is_plain(given[1]) then  -- {images, columns = 8}
    given = given[1]
  end
  local arrays, list = {}, {}
  for i, array in ipairs(given) do
    if not class.is_array(array) then
      Error.raise{ code = "type", func = FUNC, argument = ("images[%d]"):format(i),
        expected = "an NDArray", got = Error.kind(array), message = "bad 'images'" }
    end
    arrays[i] = as_batch(array, ("images[%d]"):format(i))
  end
  local low, high = 0, range and range[2] or find_white(arrays)
  low = range and range[1] or low
  for _, array in ipairs(arrays) do
    for _, image in ipairs(make_images(array, low, high)) do
      list[#list + 1] = image
    end
  end
  if #list == 0 then
    Error.raise{ code = "value", func = FUNC, argument = "images", expected = "at least one image",
      got = "none", message = "nothing to draw" }
  end
  return list
end


-- Returns the scale with which a row of images fits; small images are enlarged by a whole number.
local function natural_scale(columns, cell)
  local fit = (WIDE - (columns - 1) * GAP) / (columns * cell)
  local scale = math.min(fit, math.max(1, LEAST / cell))
  return scale >= 1 and math.floor(scale) or scale
end


local function largest(images)
  local width, height = 1, 1
  for _, image in ipairs(images) do
    width, height = math.max(width, image.width), math.max(height, image.height)
  end
  return width, height
end


local STYLE = { size = FACE, colour = "#444444", align = "middle" }

local function paint(plan, canvas, width)
  -- A terminal's canvas is small and has large pixels.
  local shrink = math.min(width / plan.width, math.max(1, (canvas.pixel or 0) / plan.scale))
  local top = SIDE
  if plan.title then
    canvas:text(SIDE, top + TITLE, plan.title, { size = TITLE, colour = "#111111", bold = true })
    top = top + TITLE + GAP
  end
  local cell_w, cell_h = plan.cell_w * shrink, plan.cell_h * shrink
  local row_h = cell_h + GAP + (plan.captions and ROW or 0)
  local need = plan.title and 2 * SIDE + canvas:text_width(plan.title, TITLE) * 1.06 or 0
  for i, image in ipairs(plan.images) do
    local x = SIDE + (i - 1) % plan.columns * (cell_w + GAP)
    local y = top + math.floor((i - 1) / plan.columns) * row_h
    local scale = plan.scale * shrink
    canvas:image(x + (cell_w - image.width * scale) / 2, y, image.width * scale,
      image.height * scale, image)
    local caption = plan.captions and plan.captions[i]
    if caption ~= nil then
      canvas:text(x + cell_w / 2, y + cell_h + FACE, tostring(caption), STYLE)
    end
  end
  return need, top + math.ceil(#plan.images / plan.columns) * row_h - GAP + SIDE
end


-- Returns the width of a cell, in pixels, that its caption needs.
local function caption_width(captions)
  local width = 0
  for _, caption in ipairs(captions or {}) do
    width = math.max(width, #tostring(caption) * FACE * 0.6)
  end
  return width
end


local GRID = args.form(FUNC, { list = true,
  { "images", "array|table" }, "*", { "columns", "positive?" }, { "captions", "array|table?" },
  { "title", "text?" }, { "range", "range?" }, { "scale", "number?" },
})

--- Returns a drawing of images side by side, row by row.
--
--     ty.viz.image_grid{ batch.data[1], columns = 8, captions = batch.label[1] }:save("batch.png")
--
-- @param images an array or a list of arrays: an image (height, width), (height, width, 1 or 3) or
--   (1 or 3, height, width), or a batch of images
-- @tparam[opt] table options columns (default: so that the drawing is about square), captions (a
--   list or an array of texts below the images), title, range ({black, white}; default: 0 to 255
--   for bytes and if a value is above 1, else 0 to 1), scale (pixels for each pixel of an image)
-- @treturn Drawing
function grid.image_grid(...)
  local a = GRID(...)
  local images = read_images(a.images, a.range)
  local columns = math.min(#images, a.columns or math.ceil(math.sqrt(#images)))
  local captions = class.is_array(a.captions) and a.captions:reshape{ -1 }:totable() or a.captions
  local w, h = largest(images)
  if a.scale and not (a.scale > 0 and a.scale <= 100) then
    Error.raise{ code = "value", func = FUNC, argument = "scale", got = a.scale,
      expected = "a number above 0, at most 100", message = "bad 'scale'" }
  end
  local scale = a.scale or natural_scale(columns, w)
  local plan = { images = images, columns = columns, captions = captions, title = a.title,
    scale = scale, cell_w = math.max(w * scale, caption_width(captions)), cell_h = h * scale }
  plan.width = 2 * SIDE + columns * (plan.cell_w + GAP) - GAP
  local rows = math.ceil(#images / columns)
  local height = 2 * SIDE + rows * (plan.cell_h + GAP + (captions and ROW or 0)) - GAP
    + (a.title and TITLE + GAP or 0)
  return Drawing{ what = ("%d image%s"):format(#images, #images == 1 and "" or "s"),
    width = math.ceil(plan.width), height = math.ceil(height), paint = function(canvas, width)
      return paint(plan, canvas, width)
    end }
end


return grid
