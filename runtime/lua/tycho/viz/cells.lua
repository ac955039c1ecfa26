--- A canvas made of a terminal's characters: lines are Braille dots, areas and images are block
-- characters, text is written as it is. See `tycho.viz.raster` for the methods that all canvases
-- have.
--
--     local canvas = cells.new(640, 288)                      -- 80 columns, 18 lines
--     canvas:line({ { 0, 0 }, { 639, 287 } }, "#0072b2")
--     io.write(canvas:done("256"))                            -- "none", "256" or "true" colours
--
-- A character is 8 x 16 pixels. Greys are drawn in the terminal's own colour, except for the
-- lightest ones (the lines of a grid), which are left out.
--
-- @module tycho.viz.cells

local bit = require "bit"
local Class = require "tycho.core.class"
local colour_of = require("tycho.viz.raster").colour

local cells = {}

local floor, max, min = math.floor, math.max, math.min

local WIDE, HIGH = 8, 16                                 -- pixels of a character
local DOT = 4                                            -- pixels of a dot; a character has 2 x 4
local LIGHT = 0xcc                                       -- lighter greys are left out
local DOTS = { [0] = { [0] = 0x01, 0x02, 0x04, 0x40 }, { [0] = 0x08, 0x10, 0x20, 0x80 } }
local RISING = { "▁", "▂", "▃", "▄", "▅", "▆", "▇" }
local SHADES = { " ", "░", "▒", "▓", "█" }
local FULL, UPPER = "█", "▀"
local ALIGNED = { left = 0, middle = 0.5, right = 1 }

local Cells = Class:extend("Cells")


function Cells:init(width, height)
  self.columns, self.lines = math.ceil(width / WIDE), math.ceil(height / HIGH)
  self.pixel = WIDE                                      -- the smallest part of an image
  self.cells = {}
end


-- Returns the cell of a column and a line, both from 0; nil outside the canvas.
function Cells:at(column, line)
  if column < 0 or column >= self.columns or line < 0 or line >= self.lines then
    return nil
  end
  local i = line * self.columns + column
  local cell = self.cells[i] or {}
  self.cells[i] = cell
  return cell
end


-- Returns the colour {r, g, b} of a cell, nil for the terminal's own colour; and true if the colour
-- is too light to be drawn.
local function ink(colour)
  local r, g, b = colour_of(colour)
  if max(r, g, b) - min(r, g, b) < 16 then
    return nil, r >= LIGHT
  end
  return { r, g, b }, false
end


-- Draws one Braille dot; coordinates count dots.
function Cells:dot(x, y, colour)
  local cell = self:at(floor(x / 2), floor(y / 4))
  if cell and not cell.text then
    cell.dots, cell.ink = bit.bor(cell.dots or 0, DOTS[x % 2][y % 4]), colour
  end
end


function Cells:line(points, colour, _)
  local shade, light = ink(colour)
  for i = 2, light and 0 or #points do
    local a, b = points[i - 1], points[i]
    local steps = max(1, math.ceil(max(math.abs(b[1] - a[1]), math.abs(b[2] - a[2])) / DOT))
    for k = 0, steps do
      local t = k / steps
      self:dot(floor((a[1] + t * (b[1] - a[1])) / DOT), floor((a[2] + t * (b[2] - a[2])) / DOT),
        shade)
    end
  end
end


function Cells:disc(x, y, radius, colour)
  local shade, reach = ink(colour), radius / 2
  for j = floor((y - reach) / DOT), floor((y + reach) / DOT) do
    for i = floor((x - reach) / DOT), floor((x + reach) / DOT) do
      self:dot(i, j, shade)
    end
  end
end


--- Draws a rectangle as columns of block characters, each of which fills eighths of a line from
-- below. In a column that several rectangles share, the tallest is shown.
function Cells:rect(x, y, width, height, colour)
  local shade, light = ink(colour)
  local base, eighths = floor((y + height) / HIGH), max(1, floor(height / HIGH * 8 + 0.5))
  for column = floor(x / WIDE), light and -1 or math.ceil((x + width) / WIDE) - 1 do
    for k = 0, math.ceil(eighths / 8) - 1 do
      local cell, part = self:at(column, base - 1 - k), min(8, eighths - 8 * k)
      if cell and part > (cell.part or 0) then
        cell.text, cell.ink, cell.part = RISING[part] or FULL, shade, part
      end
    end
  end
end


function Cells.text_width(_, text, _)
  return #text:gsub("[\128-\191]", "") * WIDE
end


local function put(self, column, line, letter, shade)
  local cell = self:at(column, line)
  if cell then
    cell.text, cell.ink = letter, shade
  end
end


function Cells:text(x, y, text, style)
  local shade, length = ink(style.colour), self:text_width(text) / WIDE
  local shift = (ALIGNED[style.align] or 0) * length
  local column, line = floor(x / WIDE + 0.5 - shift), floor((y - 4) / HIGH)
  if style.turned then                                   -- one letter per line
    column, line = floor((x - 4) / WIDE), floor(y / HIGH - shift + 0.5)
  end
  for letter in text:gmatch("[%z\1-\127\194-\244][\128-\191]*") do
    put(self, column, line, letter, shade)
    column, line = column + (style.turned and 0 or 1), line + (style.turned and 1 or 0)
  end
end


-- Returns the mean colour of a part of an image: columns x1 to x2 and rows y1 to y2, as fractions
-- of its width and height.
local function mean(image, x1, x2, y1, y2)
  local left, right = floor(x1 * image.width), max(floor(x1 * image.width) + 1,
    floor(x2 * image.width))
  local top, bottom = floor(y1 * image.height), max(floor(y1 * image.height) + 1,
    floor(y2 * image.height))
  local r, g, b = 0, 0, 0
  for y = top, min(bottom, image.height) - 1 do
    for x = left, min(right, image.width) - 1 do
      local p = image.bytes + (y * image.width + x) * 3
      r, g, b = r + p[0], g + p[1], b + p[2]
    end
  end
  local n = (min(bottom, image.height) - top) * (min(right, image.width) - left)
  return { floor(r / n + 0.5), floor(g / n + 0.5), floor(b / n + 0.5) }
end


--- Draws an image with two of its rows in each line of characters.
function Cells:image(x, y, width, height, image)
  local left, top = floor(x / WIDE + 0.5), floor(y / HIGH + 0.5)
  local wide, high = max(1, floor(width / WIDE + 0.5)), max(1, floor(height / HIGH + 0.5))
  for j = 0, high - 1 do
    for i = 0, wide - 1 do
      local cell = self:at(left + i, top + j)
      if cell then
        cell.text = UPPER
        cell.ink = mean(image, i / wide, (i + 1) / wide, j / high, (j + 0.5) / high)
        cell.paper = mean(image, i / wide, (i + 1) / wide, (j + 0.5) / high, (j + 1) / high)
      end
    end
  end
end


-- Text ------------------------------------------------------------------------------------------

local STEPS = { 0, 95, 135, 175, 215, 255 }              -- of the cube of 216 colours

-- Returns the number, from 0, of the nearest of six steps.
local function nearest_step(value)
  local best = 1
  for i, step in ipairs(STEPS) do
    best = math.abs(step - value) < math.abs(STEPS[best] - value) and i or best
  end
  return best - 1
end


local CODES = {
  ["true"] = function(colour)
    return ("2;%d;%d;%d"):format(colour[1], colour[2], colour[3])
  end,
  ["256"] = function(colour)
    return ("5;%d"):format(16 + 36 * nearest_step(colour[1]) + 6 * nearest_step(colour[2])
      + nearest_step(colour[3]))
  end,
}


-- Returns the escape sequence that sets the colours of a cell; "" for the terminal's own.
local function escape_code(cell, colours)
  if not cell.ink then
    return ""
  end
  local code = CODES[colours]
  return "\27[38;" .. code(cell.ink) .. (cell.paper and ";48;" .. code(cell.paper) or "") .. "m"
end


-- Returns the block character for the mean brightness of a cell of an image.
local function shade_of(cell)
  local sum = 0
  for i = 1, 3 do
    sum = sum + cell.ink[i] + cell.paper[i]
  end
  return SHADES[1 + floor(sum / (6 * 255) * 4 + 0.5)]
end


-- Returns the Braille character for the dots of a cell: U+2800 plus their bits.
local function braille(dots)
  return string.char(0xe2, 0xa0 + floor(dots / 64), 0x80 + dots % 64)
end


local function letter_of(cell, colours)
  if cell.paper and colours == "none" then
    return shade_of(cell)
  end
  return cell.text or cell.dots and braille(cell.dots) or " "
end


local NOTHING = {}

-- Returns one line of text; consecutive cells of one colour share an escape sequence.
local function line_text(self, line, colours)
  local parts, now, blanks = {}, "", 0
  for column = 0, self.columns - 1 do
    local cell = self.cells[line * self.columns + column] or NOTHING
    local letter = letter_of(cell, colours)
    if letter == " " and not cell.paper then
      blanks = blanks + 1
    else
      local code = colours ~= "none" and escape_code(cell, colours) or ""
      if code ~= now then
        parts[#parts + 1] = now ~= "" and "\27[0m" or ""
      end
      parts[#parts + 1] = (" "):rep(blanks) .. (code ~= now and code or "") .. letter
      now, blanks = code, 0
    end
  end
  return table.concat(parts) .. (now ~= "" and "\27[0m" or "")
end


--- Returns the lines as text, without empty ones at the start and the end.
-- @string colours "none", "256" or "true"
-- @treturn string
function Cells:done(colours)
  local lines = {}
  for line = 0, self.lines - 1 do
    lines[line + 1] = line_text(self, line, colours)
  end
  while lines[#lines] == "" do
    lines[#lines] = nil
  end
  while lines[1] == "" do
    table.remove(lines, 1)
  end
  return table.concat(lines, "\n") .. "\n"
end


--- Returns an empty canvas.
-- @number width pixels
-- @number height pixels
function cells.new(width, height)
  return Cells(width, height)
end


return cells
