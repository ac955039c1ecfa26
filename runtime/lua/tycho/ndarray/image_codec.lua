--- Decoding and encoding of JPEG and PNG files.
--
-- @module tycho.ndarray.image_codec

local ffi = require "ffi"
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local context = require "tycho.core.context"
local transfer = require "tycho.ndarray.transfer"
local native = require "tycho.core.ffi"

local C, check = native.C, native.check

local codec = {}

local made = ffi.new("ty_tensor *[1]")


--- Decodes the bytes of a JPEG or PNG file.
-- @string bytes
-- @int flag 1: three channels, 0: grey, -1: as stored
-- @bool to_rgb red first, else blue first
-- @string func for errors
-- @treturn NDArray (height, width, channels) uint8
function codec.decode(bytes, flag, to_rgb, func)
  check(C.ty_image_decode(bytes, #bytes, flag, to_rgb and 1 or 0, made), func)
  return class.own(made[0])
end


local FORMATS = { jpg = "jpeg", jpeg = "jpeg", jpe = "jpeg", png = "png" }

--- Returns the codec ("jpeg" or "png") for a file name or an ending such as ".jpg".
function codec.find_format(name, func, argument)
  local format = FORMATS[name:match("([^.]*)$"):lower()]
  if not format then
    Error.raise{ code = "value", func = func, argument = argument,
      expected = ".jpg, .jpeg, .jpe or .png", got = name,
      message = "there is no such format of images" }
  end
  return format
end


local PNG_LEVEL = 3                      -- of compression, 0 to 9; what OpenCV writes by default

--- Returns the bytes of a file of the image.
-- @param image array or tables
-- @tparam ?int quality of JPEG; the compression of PNG
-- @string format "jpeg" or "png"
-- @string func for errors
function codec.encode(image, quality, format, func)
  image = class.is_array(image) and image or transfer.from_table(image, args.DTYPES.uint8, func)
  image = image:as_in_context(context.cpu(0))
  if image.dtype ~= "uint8" then
    Error.raise{ code = "dtype", func = func, argument = "img", expected = "uint8",
      got = image.dtype, message = "an image in a file is made of bytes" }
  end
  check(C.ty_image_encode(image.handle, format,
    format == "png" and (quality or PNG_LEVEL) or quality or 95, made), func)
  return class.own(made[0]):tostring_raw()
end


--- Encodes as `encode` does, in the format of ".jpg" or ".png". A quality above 9 applies to JPEG
-- only; a PNG then uses its default.
function codec.encode_as(image, quality, img_fmt, func)
  local format = codec.find_format(img_fmt, func, "img_fmt")
  if format == "png" and quality and quality > 9 then
    quality = nil
  end
  return codec.encode(image, quality, format, func)
end


return codec
