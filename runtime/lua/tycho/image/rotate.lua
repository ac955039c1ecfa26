--- Rotation of images (part of `ty.image`). Unlike in the rest of `ty.image` the channels come
-- first.
--
-- @module tycho.image.rotate

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local nd = require "tycho.ndarray"
local random = require "tycho.image.random"

local abs, atan, cos, max, min, rad, sin, sqrt =
  math.abs, math.atan, math.cos, math.max, math.min, math.rad, math.sin, math.sqrt

local rotate = {}


local function check_source(x, func)
  if x.dtype ~= "float32" then
    Error.raise{ code = "dtype", func = func, argument = "src", expected = "float32",
      got = x.dtype, message = "turned images are float32" }
  elseif x.ndim ~= 3 and x.ndim ~= 4 then
    Error.raise{ code = "shape", func = func, argument = "src",
      expected = "(channels, height, width) or (batch, channels, height, width)", got = x.shape,
      message = "bad 'src'" }
  end
end


-- Returns an angle for each image.
local function list_angles(x, degrees, func)
  local count, list = x.ndim == 4 and x.shape[1] or 1, degrees
  if type(degrees) == "number" then
    list = {}
    for i = 1, count do
      list[i] = degrees
    end
    return list
  elseif x.ndim == 3 then
    Error.raise{ code = "type", func = func, argument = "rotation_degrees", expected = "a number",
      got = Error.kind(degrees), message = "one image is turned by one angle" }
  elseif class.is_array(degrees) then
    list = degrees:reshape{ -1 }:totable()
  end
  if #list ~= count then
    Error.raise{ code = "shape", func = func, argument = "rotation_degrees",
      expected = count .. " angles", got = #list, message = "each image has an angle" }
  end
  return list
end


-- Returns how much the sampled window grows so that the turned image fills it (zoom_in: less than
-- 1) or is in it (zoom_out).
local function compute_zoom(h, w, angle, zoom_in, zoom_out)
  if not zoom_in and not zoom_out then
    return 1
  end
  local diagonal, corner = sqrt(h * h + w * w), atan(h / w)
  local first, second = corner + abs(angle), corner - abs(angle)
  local wide = max(abs(diagonal * cos(first)), abs(diagonal * cos(second)))
  local high = max(abs(diagonal * sin(first)), abs(diagonal * sin(second)))
  return zoom_out and max(wide / w, high / h) or min(w / wide, h / high)
end


-- Returns the affine map from a pixel's position to that of its source; positions go from -1 to 1,
-- pixels are square.
local function make_map(h, w, degrees, zoom_in, zoom_out)
  local angle = rad(degrees)
  local high, wide = (h - 1) / 2, (w - 1) / 2
  local zoom = compute_zoom(h, w, angle, zoom_in, zoom_out)
  local s, c = zoom * sin(angle), zoom * cos(angle)
  -- along a side of one pixel all places are the same
  return { c, wide > 0 and -s * high / wide or 0, 0, high > 0 and s * wide / high or 0, c, 0 }
end


local function turned(x, degrees, zoom_in, zoom_out, func)
  if zoom_in and zoom_out then
    Error.raise{ code = "value", func = func, argument = "zoom_in", expected = "one of both",
      got = "zoom_in and zoom_out", message = "an image is not zoomed in and out" }
  end
  check_source(x, func)
  local h, w = x.shape[x.ndim - 1], x.shape[x.ndim]
  local maps = {}
  for i, angle in ipairs(list_angles(x, degrees, func)) do
    maps[i] = make_map(h, w, angle, zoom_in, zoom_out)
  end
  return class.scope(function()
    local grid = nd.GridGenerator{ nd.array(maps, { ctx = x.context }), transform_type = "affine",
      target_shape = { h, w } }
    local batch = x.ndim == 4 and x or x:expand_dims{ axis = 0 }
    return nd.BilinearSampler{ batch, grid }:reshape(x.shape)
  end)
end


local IMROTATE = args.form("image.imrotate", {
  { "src", "array" }, { "rotation_degrees", "number|array|list" }, { "zoom_in", "boolean", false },
  { "zoom_out", "boolean", false },
})

--- Returns the image rotated about its centre, counter-clockwise; pixels from outside are 0.
-- @tparam NDArray src (channels, height, width), or a batch of such images, float32
-- @param rotation_degrees number, or for a batch an array or list with an angle for each image
-- @bool[opt=false] zoom_in enlarges until no pixel comes from outside
-- @bool[opt=false] zoom_out shrinks until the whole image is visible
-- @treturn NDArray of the same shape
function rotate.imrotate(...)
  local a = IMROTATE(...)
  return turned(a.src, a.rotation_degrees, a.zoom_in, a.zoom_out, "image.imrotate")
end


local RANDOM_ROTATE = args.form("image.random_rotate", {
  { "src", "array" }, { "angle_limits", "list" }, { "zoom_in", "boolean", false },
  { "zoom_out", "boolean", false },
})

--- Rotates as `imrotate` does, each image by its own random angle.
-- @tparam NDArray src
-- @tparam {number,number} angle_limits least and largest angle, in degrees
-- @bool[opt=false] zoom_in
-- @bool[opt=false] zoom_out
-- @treturn NDArray
function rotate.random_rotate(...)
  local a = RANDOM_ROTATE(...)
  local low, high = a.angle_limits[1], a.angle_limits[2]
  if #a.angle_limits ~= 2 or type(low) ~= "number" or type(high) ~= "number" then
    Error.raise{ code = "value", func = "image.random_rotate", argument = "angle_limits",
      expected = "{least, largest}", got = a.angle_limits, message = "bad 'angle_limits'" }
  end
  check_source(a.src, "image.random_rotate")
  if a.src.ndim == 3 then
    return turned(a.src, random.uniform(low, high), a.zoom_in, a.zoom_out, "image.random_rotate")
  end
  local angles = {}
  for i = 1, a.src.shape[1] do
    angles[i] = random.uniform(low, high)
  end
  return turned(a.src, angles, a.zoom_in, a.zoom_out, "image.random_rotate")
end


return rotate
