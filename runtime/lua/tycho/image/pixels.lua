--- Images as arrays: files, sizes, windows, borders, colours (part of `ty.image`).
--
-- An image is an array (height, width, channels) on a CPU, uint8 or float32, red first; a size is
-- {width, height}, a position is a column and a row from 0. Functions return new arrays. `interp`:
-- 0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos, 9 cubic to enlarge, area to shrink, else
-- bilinear, 10 one of 0 to 4 at random. Random numbers come from cpu(0) (`ty.random.seed`).
--
-- @module tycho.image.pixels

local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local random = require "tycho.image.random"
local class = require "tycho.ndarray.class"
local codec = require "tycho.ndarray.image_codec"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local nd = require "tycho.ndarray"
local values = require "tycho.core.values"

local floor, max = math.floor, math.max

local pixels = {}


-- Files -------------------------------------------------------------------------------------------

-- Returns the image, copied to `out` if that is given.
local function placed(x, out, func)
  return out and call.unary("_copy", func, x, out) or x
end


local IMDECODE = args.form("image.imdecode", {
  { "buf", "text|array" }, "*", { "flag", "integer", 1 }, { "to_rgb", "boolean", true },
  { "out", "array?" },
})

--- Returns the image in the bytes of a JPEG or PNG file. Files that end early or are damaged:
-- E(format).
-- @param buf text, or an array of uint8
-- @tparam[opt] table options flag = 1: three channels, 0: grey, -1: as stored (with transparency
--   four); to_rgb = true: red first, false: blue first; out: an array that takes the image
-- @treturn NDArray (height, width, channels) uint8
function pixels.imdecode(...)
  local a = IMDECODE(...)
  if class.is_array(a.buf) then
    a.buf = a.buf:tostring_raw()
  end
  return placed(codec.decode(a.buf, a.flag, a.to_rgb, "image.imdecode"), a.out, "image.imdecode")
end


local IMREAD = args.form("image.imread", {
  { "filename", "path" }, "*", { "flag", "integer", 1 }, { "to_rgb", "boolean", true },
  { "out", "array?" },
})

--- Returns the image in a file; options as `imdecode`.
-- @string filename missing: E(io)
function pixels.imread(...)
  local a = IMREAD(...)
  local x = files.parse(a.filename, "image.imread", function(bytes)
    return codec.decode(bytes, a.flag, a.to_rgb, "image.imread")
  end)
  return placed(x, a.out, "image.imread")
end


local IMENCODE = args.form("image.imencode", {
  { "img", "array|table" }, "*", { "quality", "integer?" }, { "img_fmt", "text", ".jpg" },
})

--- Encodes an image as the bytes of a JPEG or PNG file.
-- @param img (height, width[, 1, 3 or 4]) uint8
-- @tparam[opt] table options img_fmt = ".jpg" or ".png"; quality: of JPEG 0 to 100 (95), of PNG the
--   compression 0 to 9 (3; larger numbers are taken as 3, so that one quality serves both)
-- @treturn string
function pixels.imencode(...)
  local a = IMENCODE(...)
  return codec.encode_as(a.img, a.quality, a.img_fmt, "image.imencode")
end


local IMWRITE = args.form("image.imwrite",
  { { "filename", "path" }, { "img", "array|table" }, "*", { "quality", "integer?" } })

--- Writes an image to a file whose name ends in .jpg, .jpeg, .jpe or .png.
function pixels.imwrite(...)
  local a = IMWRITE(...)
  local format = codec.find_format(a.filename, "image.imwrite", "filename")
  files.write(a.filename, codec.encode(a.img, a.quality, format, "image.imwrite"), "image.imwrite")
end


-- Sizes -------------------------------------------------------------------------------------------

local function size_of(x, func)
  local shape = x._shape
  if #shape ~= 3 then
    Error.raise{ code = "shape", func = func, argument = "src",
      expected = "(height, width, channels)", got = x.shape,
      message = "an image has three dimensions" }
  end
  return shape[1], shape[2]
end


local function pair(size, func, argument)
  if #size == 1 then
    return size[1], size[1]
  elseif #size ~= 2 or size[1] < 1 or size[2] < 1 then
    Error.raise{ code = "value", func = func, argument = argument or "size",
      expected = "{width, height}", got = size, message = "a size is two numbers above 0" }
  end
  return size[1], size[2]
end


-- Returns the resampling rule with the number `interp`.
local function rule(interp, h, w, new_h, new_w, func)
  if interp == 10 then
    return random.integer(0, 4)
  elseif interp == 9 then
    return new_h > h and new_w > w and 2 or new_h < h and new_w < w and 3 or 1
  elseif interp < 0 or interp > 4 then
    Error.raise{ code = "value", func = func, argument = "interp", expected = "0 to 4, 9 or 10",
      got = interp, message = "there is no such interpolation" }
  end
  return interp
end


local function resize(x, w, h, interp, func, out)
  local rows, columns = size_of(x, func)
  return call.params("_cvimresize", func, { x }, { "w", ("%d"):format(w), "h", ("%d"):format(h),
    "interp", ("%d"):format(rule(interp, rows, columns, h, w, func)) }, out)
end


local IMRESIZE = args.form("image.imresize", {
  { "src", "array" }, { "w", "integer" }, { "h", "integer" }, { "interp", "integer", 1 }, "*",
  { "out", "array?" },
})

--- Returns the image with another size, in the array `out` if that is given.
function pixels.imresize(...)
  local a = IMRESIZE(...)
  return resize(a.src, a.w, a.h, a.interp, "image.imresize", a.out)
end


local SCALE_DOWN = args.form("image.scale_down", { { "src_size", "shape" }, { "size", "shape" } })

local function scale_down(have_w, have_h, w, h)
  if have_h < h then
    w, h = w * have_h / h, have_h
  end
  if have_w < w then
    w, h = have_w, h * have_w / w
  end
  return max(floor(w), 1), max(floor(h), 1)
end

--- Returns a size shrunk until it fits into src_size, with the same proportions.
-- @tparam {int,int} src_size {width, height}
-- @tparam {int,int} size {width, height}
-- @treturn {int,int}
function pixels.scale_down(...)
  local a = SCALE_DOWN(...)
  local have_w, have_h = pair(a.src_size, "image.scale_down", "src_size")
  return { scale_down(have_w, have_h, pair(a.size, "image.scale_down")) }
end


local RESIZE_SHORT = args.form("image.resize_short",
  { { "src", "array" }, { "size", "integer" }, { "interp", "integer", 2 } })

--- Returns the image resized to a shorter side of `size`, with the same proportions.
function pixels.resize_short(...)
  local a = RESIZE_SHORT(...)
  local h, w = size_of(a.src, "image.resize_short")
  local new_w, new_h = a.size, a.size
  if h > w then
    new_h = floor(a.size * h / w)
  else
    new_w = floor(a.size * w / h)
  end
  return resize(a.src, new_w, new_h, a.interp, "image.resize_short")
end


local BORDER = args.form("image.copyMakeBorder", {
  { "src", "array" }, { "top", "integer" }, { "bot", "integer" }, { "left", "integer" },
  { "right", "integer" }, { "type", "integer", 0 }, { "value", "number", 0 }, { "values", "list?" },
  "*", { "out", "array?" },
})

--- Returns the image with a border. Options src, top, bot, left, right (pixels), type = 0:
-- constant, 1: nearest pixel, 2: mirror image, 3: the other end, 4: mirror image without the
-- outermost pixel; value or values (by channel) of a constant one; out: an array that takes the
-- image.
function pixels.copyMakeBorder(...)
  local a = BORDER(...)
  return nd._cvcopyMakeBorder{ a.src, top = a.top, bot = a.bot, left = a.left, right = a.right,
    type = a.type, value = a.value, values = a.values, out = a.out }
end


-- Windows -----------------------------------------------------------------------------------------

local function window(x, x0, y0, w, h, func)
  return call.params("_image_crop", func, { x }, { "x", ("%d"):format(x0), "y", ("%d"):format(y0),
    "width", ("%d"):format(w), "height", ("%d"):format(h) })
end


local function fixed_crop(x, x0, y0, w, h, size, interp, func)
  local part = window(x, x0, y0, w, h, func)
  if size then
    local new_w, new_h = pair(size, func)
    if new_w ~= w or new_h ~= h then
      return resize(part, new_w, new_h, interp, func)
    end
  end
  return part
end


local FIXED_CROP = args.form("image.fixed_crop", {
  { "src", "array" }, { "x0", "integer" }, { "y0", "integer" }, { "w", "integer" },
  { "h", "integer" }, { "size", "shape?" }, { "interp", "integer", 2 },
})

--- Returns a window of w columns and h rows from column x0 and row y0, resized to `size` if that is
-- given.
function pixels.fixed_crop(...)
  local a = FIXED_CROP(...)
  return fixed_crop(a.src, a.x0, a.y0, a.w, a.h, a.size, a.interp, "image.fixed_crop")
end


local function crop_form(func)
  return args.form(func, { { "src", "array" }, { "size", "shape" }, { "interp", "integer", 2 } })
end

-- Returns a window as large as `size` or, in its proportions, as the image allows;
-- offset(slack): its first pixel in a row or column that has `slack` pixels more than the window.
local function crop(a, offset, func)
  local h, w = size_of(a.src, func)
  local new_w, new_h = scale_down(w, h, pair(a.size, func))
  local x0, y0 = offset(w - new_w), offset(h - new_h)
  return fixed_crop(a.src, x0, y0, new_w, new_h, a.size, a.interp, func), { x0, y0, new_w, new_h }
end

local function random_offset(slack) return random.integer(0, slack) end
local function middle_offset(slack) return floor(slack / 2) end

local RANDOM_CROP, CENTER_CROP = crop_form("image.random_crop"), crop_form("image.center_crop")

--- Returns a random window of `size`; a smaller image gives a smaller window, which is enlarged.
-- @treturn NDArray
-- @treturn {int,...} column, row, width and height of the window
function pixels.random_crop(...)
  return crop(RANDOM_CROP(...), random_offset, "image.random_crop")
end


--- Returns the window in the middle; as `random_crop`.
function pixels.center_crop(...)
  return crop(CENTER_CROP(...), middle_offset, "image.center_crop")
end


local SIZE_CROP = args.form("image.random_size_crop", {
  { "src", "array" }, { "size", "shape" }, { "area", "number|list" }, { "ratio", "list" },
  { "interp", "integer", 2 },
})

local TRIES = 10

local function round(v) return floor(v + 0.5) end

--- Returns a window of random area and proportions, resized to `size`; the window in the middle if
-- ten tries do not fit.
-- @tparam NDArray src
-- @tparam {int,int} size {width, height}
-- @param area smallest fraction of the image, or {smallest, largest}
-- @tparam {number,number} ratio smallest and largest width / height
-- @treturn NDArray
-- @treturn {int,...} column, row, width and height of the window
function pixels.random_size_crop(...)
  local a = SIZE_CROP(...)
  local h, w = size_of(a.src, "image.random_size_crop")
  local area = type(a.area) == "number" and { a.area, 1 } or a.area
  for _ = 1, TRIES do
    local target = h * w * random.uniform(area[1], area[2])
    local ratio = math.exp(random.uniform(math.log(a.ratio[1]), math.log(a.ratio[2])))
    local new_w, new_h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
    if new_w <= w and new_h <= h and new_w > 0 and new_h > 0 then
      local x0, y0 = random_offset(w - new_w), random_offset(h - new_h)
      return fixed_crop(a.src, x0, y0, new_w, new_h, a.size, a.interp, "image.random_size_crop"),
        { x0, y0, new_w, new_h }
    end
  end
  return crop(a, middle_offset, "image.random_size_crop")
end


-- Colours -----------------------------------------------------------------------------------------

local NORMALIZE = args.form("image.color_normalize", {
  { "src", "array" }, { "mean", "number|array|list|null?" }, { "std", "number|array|list?" },
})

-- Returns a number as it is, and numbers per channel as an array that broadcasts over pixels.
local function by_channel(v, like)
  if type(v) ~= "table" then
    return v
  end
  local x = nd._as_array(v, like.dtype, "image.color_normalize")
  return x:astype(like.dtype)
end

--- Returns (src - mean) / std; uint8 becomes float32.
-- @tparam NDArray src
-- @param mean number, list by channel or array; nil or `ty.null`: 0
-- @param[opt] std standard deviation in the same form; nil: 1
function pixels.color_normalize(...)
  local a = NORMALIZE(...)
  local x = a.src
  if x.dtype == "uint8" then
    x = x:astype("float32")
  end
  local mean, std = by_channel(values.value(a.mean), x), by_channel(a.std, x)
  if mean then
    x = x - mean
  end
  return std and x / std or x
end


return pixels
