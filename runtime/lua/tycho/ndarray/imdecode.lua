--- `ty.nd.imdecode`: the reference's older function for decoding images, directly into one row of a
-- batch. New programs use `ty.image.imdecode`.
--
-- @module tycho.ndarray.imdecode

local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local codec = require "tycho.ndarray.image_codec"
local Error = require "tycho.core.error"

local IMDECODE = args.form("nd.imdecode", {
  { "str_img", "text" }, { "clip_rect", "dims", { 0, 0, 0, 0 } }, { "out", "array?" },
  { "index", "integer", 0 }, { "channels", "integer", 3 }, { "mean", "array?" },
})


-- Returns columns x0 to before x1 and rows y0 to before y1 of an image; all of it if x0 = x1 or y0
-- = y1.
local function clipped(x, rect)
  local x0, y0, x1, y1 = unpack(rect)
  if #rect ~= 4 then
    Error.raise{ code = "value", func = "nd.imdecode", argument = "clip_rect",
      expected = "{x0, y0, x1, y1}", got = rect, message = "bad 'clip_rect'" }
  elseif x0 == x1 or y0 == y1 then
    return x
  end
  return call.params("_image_crop", "nd.imdecode", { x }, { "x", ("%d"):format(x0),
    "y", ("%d"):format(y0), "width", ("%d"):format(x1 - x0), "height", ("%d"):format(y1 - y0) })
end


--- Decodes the bytes of a JPEG or PNG file: channels first, blue first, float32.
-- @string str_img
-- @tparam[opt] {int,...} clip_rect {x0, y0, x1, y1}: a window; {0, 0, 0, 0}: everything
-- @tparam[opt] NDArray out (channels, height, width), or a batch of which row `index` is written
-- @int[opt=0] index
-- @int[opt=3] channels 1, 3 or 4
-- @tparam[opt] NDArray mean subtracted from the image
-- @treturn NDArray (channels, height, width), or out
return function(...)
  local a = IMDECODE(...)
  local flag = a.channels == 1 and 0 or a.channels == 3 and 1 or -1
  local x = codec.decode(a.str_img, flag, false, "nd.imdecode")
  if x.shape[3] ~= a.channels then
    Error.raise{ code = "shape", func = "nd.imdecode", argument = "channels", expected = a.channels,
      got = x.shape[3], message = "the image has another number of channels" }
  end
  x = clipped(x, a.clip_rect):transpose{ 2, 0, 1 }:astype("float32")
  x = a.mean and x - a.mean or x
  if not a.out then
    return x
  end
  x:copyto(a.out.ndim == 4 and a.out:at(a.index) or a.out)
  return a.out
end
