--- A canvas of pixels: lines, rectangles, discs, texts and images with smooth edges.
--
--     local canvas = raster.new(720, 306, 2)                    -- width, height, pixels per unit
--     canvas:line({ { 10, 10 }, { 90, 40 } }, "#0072b2", 2)
--     local image = canvas:array()                              -- (612, 1440, 3) uint8
--
-- Canvases (`raster`, `svg_canvas`, `cells`) have the same methods. Lengths are pixels at scale 1,
-- y grows downwards, colours are "#rrggbb". Later shapes cover earlier ones.
--
-- @module tycho.viz.raster

local Class = require "tycho.core.class"
local ffi = require "ffi"
local font = require "tycho.viz.font"
local nd = require "tycho.ndarray"

local raster = {}

local ceil, floor, max, min, sqrt = math.ceil, math.floor, math.max, math.min,
  math.sqrt
local ALIGNED = { left = 0, middle = 0.5, right = 1 }
local PEN, BOLD_PEN = 0.085, 0.125                       -- shares of the typeface's size

local Raster = Class:extend("Raster")


--- Returns red, green and blue, 0 to 255, of "#rrggbb".
function raster.colour(text)
  local number = tonumber(text:sub(2), 16)
  return floor(number / 65536), floor(number / 256) % 256, number % 256
end


function Raster:init(width, height, scale)
  self.scale = scale or 1
  self.width, self.height = ceil(width * self.scale), ceil(height * self.scale)
  self.bytes = ffi.new("uint8_t[?]", self.width * self.height * 3)
  ffi.fill(self.bytes, self.width * self.height * 3, 255)
  self.cover = ffi.new("float[?]", self.width * self.height)     -- of the current shape, 0 to 1
  self:untouched()
end


-- Empties the rectangle of pixels that the current shape has marked in `cover`.
function Raster:untouched()
  self.left, self.top, self.right, self.bottom = self.width, self.height, -1, -1
end


-- Extends that rectangle; returns the part of the given one within the canvas.
function Raster:touch(x1, y1, x2, y2)
  x1, y1 = max(0, floor(x1)), max(0, floor(y1))
  x2, y2 = min(self.width - 1, ceil(x2)), min(self.height - 1, ceil(y2))
  self.left, self.top = min(self.left, x1), min(self.top, y1)
  self.right, self.bottom = max(self.right, x2), max(self.bottom, y2)
  return x1, y1, x2, y2
end


-- Marks a thick line with round ends in `cover`, by the distance of each pixel from the line.
local function cover_segment(self, x1, y1, x2, y2, half)
  local reach, dx, dy = half + 1, x2 - x1, y2 - y1
  local length = dx * dx + dy * dy
  local left, top, right, bottom = self:touch(min(x1, x2) - reach, min(y1, y2) - reach,
    max(x1, x2) + reach, max(y1, y2) + reach)
  for y = top, bottom do
    for x = left, right do
      local px, py = x + 0.5 - x1, y + 0.5 - y1
      local t = length > 0 and max(0, min(1, (px * dx + py * dy) / length)) or 0
      px, py = px - t * dx, py - t * dy
      local share = half + 0.5 - sqrt(px * px + py * py)
      local at = y * self.width + x
      if share > self.cover[at] then
        self.cover[at] = min(share, 1)
      end
    end
  end
end


-- Blends the colour into the marked pixels and removes the marks.
local function blend(self, colour)
  local r, g, b = raster.colour(colour)
  local cover, bytes = self.cover, self.bytes
  for y = self.top, self.bottom do
    for at = y * self.width + self.left, y * self.width + self.right do
      local share, p = cover[at], at * 3
      if share > 0 then
        bytes[p] = bytes[p] + (r - bytes[p]) * share + 0.5
        bytes[p + 1] = bytes[p + 1] + (g - bytes[p + 1]) * share + 0.5
        bytes[p + 2] = bytes[p + 2] + (b - bytes[p + 2]) * share + 0.5
        cover[at] = 0
      end
    end
  end
  self:untouched()
end


--- Draws a line through points, with round ends.
-- @tparam table points list of {x, y}
-- @string colour
-- @number[opt] width 1
function Raster:line(points, colour, width)
  local scale = self.scale
  local half = max(0.5, (width or 1) * scale / 2)
  for i = 2, #points do
    local a, b = points[i - 1], points[i]
    cover_segment(self, a[1] * scale, a[2] * scale, b[1] * scale, b[2] * scale, half)
  end
  blend(self, colour)
end


--- Draws a filled disc.
function Raster:disc(x, y, radius, colour)
  local scale = self.scale
  cover_segment(self, x * scale, y * scale, x * scale, y * scale, radius * scale)
  blend(self, colour)
end


-- Returns how much of the pixel from i to i + 1 lies between two numbers, 0 to 1.
local function overlap(i, from, to)
  return max(0, min(i + 1, to) - max(i, from))
end


--- Draws a filled rectangle.
function Raster:rect(x, y, width, height, colour)
  local s = self.scale
  local x1, y1, x2, y2 = x * s, y * s, (x + width) * s, (y + height) * s
  local left, top, right, bottom = self:touch(x1, y1, x2, y2)
  for j = top, bottom do
    for i = left, right do
      self.cover[j * self.width + i] = overlap(i, x1, x2) * overlap(j, y1, y2)
    end
  end
  blend(self, colour)
end


--- Returns the width of a text.
function Raster.text_width(_, text, size)
  return font.width(text, size)
end


--- Draws a text whose base line begins at x, y.
-- @number x
-- @number y
-- @string text
-- @tparam table style size, colour; align = "left", "middle" or "right"; bold; turned = true: from
--   bottom to top
function Raster:text(x, y, text, style)
  local size = style.size * self.scale
  local shift = font.width(text, size) * (ALIGNED[style.align] or 0)
  local half = max(0.55, (style.bold and BOLD_PEN or PEN) * size / 2)
  for _, stroke in ipairs(font.strokes(text, size)) do
    for i = 2, #stroke do
      local ax, ay, bx, by = stroke[i - 1][1] - shift, stroke[i - 1][2], stroke[i][1] - shift,
        stroke[i][2]
      if style.turned then
        ax, ay, bx, by = ay, -ax, by, -bx
      end
      cover_segment(self, x * self.scale + ax, y * self.scale + ay, x * self.scale + bx,
        y * self.scale + by, half)
    end
  end
  blend(self, style.colour)
end


--- Draws an image; each of its pixels becomes a rectangle.
-- @number x
-- @number y
-- @number width of the drawn image
-- @number height of the drawn image
-- @tparam table image `bytes` (height x width x 3), `width`, `height`
function Raster:image(x, y, width, height, image)
  local s = self.scale
  local left, top = floor(x * s + 0.5), floor(y * s + 0.5)
  local right, bottom = floor((x + width) * s + 0.5) - 1, floor((y + height) * s + 0.5) - 1
  for j = max(0, top), min(bottom, self.height - 1) do
    local row = floor((j - top + 0.5) * image.height / (bottom - top + 1))
    for i = max(0, left), min(right, self.width - 1) do
      local column = floor((i - left + 0.5) * image.width / (right - left + 1))
      ffi.copy(self.bytes + (j * self.width + i) * 3,
        image.bytes + (row * image.width + column) * 3, 3)
    end
  end
end


--- Returns the drawing as an array (height, width, 3) of bytes.
-- @treturn NDArray
function Raster:array()
  return nd.from_pointer(self.bytes, { self.height, self.width, 3 },
    { owner = self.bytes, dtype = "uint8" }):copy()
end


--- Returns a white canvas.
-- @number width
-- @number height
-- @number[opt] scale pixels per unit, 1
function raster.new(width, height, scale)
  return Raster(width, height, scale)
end


return raster
