--- A canvas that writes SVG; see `tycho.viz.raster` for the methods that all canvases have.
--
-- @module tycho.viz.svg_canvas

local Class = require "tycho.core.class"
local codec = require "tycho.ndarray.image_codec"
local ffi = require "ffi"
local nd = require "tycho.ndarray"
local svg = require "tycho.viz.svg"

local svg_canvas = {}

local ANCHOR = { middle = "middle", right = "end" }
local BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local BEST = 9                                           -- compression level of PNG

local Canvas = Class:extend("SvgCanvas")


function Canvas:init(width, height)
  self.page = svg.page(width, height)
end


local function format_path(points)
  local parts = {}
  for i, point in ipairs(points) do
    parts[i] = ("%s%s %s"):format(i == 1 and "M" or "L", svg.number(point[1]), svg.number(point[2]))
  end
  return table.concat(parts)
end


function Canvas:line(points, colour, width)
  if #points > 1 then
    self.page:put("path", { d = format_path(points), fill = "none", stroke = colour,
      ["stroke-width"] = width or 1, ["stroke-linejoin"] = "round", ["stroke-linecap"] = "round" })
  end
end


function Canvas:disc(x, y, radius, colour)
  self.page:put("circle", { cx = x, cy = y, r = radius, fill = colour })
end


function Canvas:rect(x, y, width, height, colour)
  self.page:put("rect", { x = x, y = y, width = width, height = height, fill = colour })
end


function Canvas.text_width(_, text, size)
  return svg.text_width(text, size)
end


function Canvas:text(x, y, text, style)
  self.page:text(x, y, text, { ["font-size"] = style.size, fill = style.colour,
    ["text-anchor"] = ANCHOR[style.align], ["font-weight"] = style.bold and "bold" or nil,
    transform = style.turned
      and ("rotate(-90 %s %s)"):format(svg.number(x), svg.number(y)) or nil })
end


local function base64(bytes)
  local out = {}
  for i = 1, #bytes, 3 do
    local a, b, c = bytes:byte(i, i + 2)
    local word, digits = a * 65536 + (b or 0) * 256 + (c or 0), {}
    for k = 4, 1, -1 do
      local index = word % 64 + 1
      digits[k], word = BASE64:sub(index, index), math.floor(word / 64)
    end
    out[#out + 1] = digits[1] .. digits[2] .. (b and digits[3] or "=") .. (c and digits[4] or "=")
  end
  return table.concat(out)
end


function Canvas:image(x, y, width, height, image)
  local array = nd.from_pointer(ffi.cast("uint8_t *", image.bytes),
    { image.height, image.width, 3 }, { owner = image, dtype = "uint8" })
  self.page:put("image", { x = x, y = y, width = width, height = height,
    style = "image-rendering:pixelated",
    href = "data:image/png;base64," .. base64(codec.encode(array, BEST, "png", "viz")) })
end


--- Returns the SVG text.
function Canvas:done()
  return self.page:done()
end


--- Returns a white canvas.
-- @number width
-- @number height
function svg_canvas.new(width, height)
  return Canvas(width, height)
end


return svg_canvas
