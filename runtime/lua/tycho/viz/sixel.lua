--- Encodes images for terminals that show sixels: six pixels of a column are one letter, colour by
-- colour.
--
--     io.write(sixel.encode(raster_canvas))
--
-- There are at most 256 colours: those of the image or, if it has more, the means of boxes into
-- which median cut divides them. Source: P. Heckbert, Color image quantization for frame buffer
-- display, 1982.
--
-- @module tycho.viz.sixel

local ffi = require "ffi"

local sixel = {}

local floor, max, min = math.floor, math.max, math.min

local COLOURS, LEVELS = 256, 32                          -- most in a palette; of a channel
local ROWS = 6                                           -- pixels in a letter


-- Returns the number of a pixel's colour, without its low bits.
local function bucket_of(p)
  return floor(p[0] / 8) * LEVELS * LEVELS + floor(p[1] / 8) * LEVELS + floor(p[2] / 8)
end


-- Counts colours without their low bits. Returns a list of {red, green, blue, n = number of pixels,
-- bucket = number of the colour} with mean colours.
local function count_colours(canvas)
  local found, by_bucket = {}, {}
  for i = 0, canvas.width * canvas.height - 1 do
    local p = canvas.bytes + 3 * i
    local bucket = bucket_of(p)
    local colour = by_bucket[bucket]
    if not colour then
      colour = { n = 0, bucket = bucket, 0, 0, 0 }
      by_bucket[bucket], found[#found + 1] = colour, colour
    end
    colour.n = colour.n + 1
    colour[1], colour[2], colour[3] = colour[1] + p[0], colour[2] + p[1], colour[3] + p[2]
  end
  for _, colour in ipairs(found) do
    colour[1], colour[2], colour[3] = colour[1] / colour.n, colour[2] / colour.n,
      colour[3] / colour.n
  end
  return found
end


-- Returns the channel, 1 to 3, in which colours differ most, and the difference.
local function widest_channel(box)
  local channel, width = 1, -1
  for k = 1, 3 do
    local low, high = math.huge, -math.huge
    for _, colour in ipairs(box) do
      low, high = min(low, colour[k]), max(high, colour[k])
    end
    if high - low > width then
      channel, width = k, high - low
    end
  end
  return channel, width
end


local function new_box(colours)
  colours.n = 0
  for _, colour in ipairs(colours) do
    colours.n = colours.n + colour.n
  end
  colours.channel, colours.width = widest_channel(colours)
  return colours
end


-- Cuts a box at the median of its pixels into two.
local function cut(box)
  local channel = box.channel
  table.sort(box, function(a, b) return a[channel] < b[channel] end)
  local low, high, count = {}, {}, 0
  for i, colour in ipairs(box) do
    local below = i == 1 or (count < box.n / 2 and i < #box)
    table.insert(below and low or high, colour)
    count = count + colour.n
  end
  return new_box(low), new_box(high)
end


-- Divides colours into at most 256 boxes.
local function make_boxes(colours)
  local boxes = { new_box(colours) }
  while #boxes < COLOURS do
    local widest, worth = nil, 0
    for i, box in ipairs(boxes) do
      local value = #box > 1 and box.width * math.sqrt(box.n) or 0
      if value > worth then
        widest, worth = i, value
      end
    end
    if not widest then
      break
    end
    boxes[widest], boxes[#boxes + 1] = cut(boxes[widest])
  end
  return boxes
end


-- Returns the colours {r, g, b} by number from 0, their count, and the number for each bucket.
local function make_palette(canvas)
  local colours, palette, number = count_colours(canvas), {}, {}
  local boxes = colours
  if #colours > COLOURS then
    boxes = make_boxes(colours)
  end
  for i, box in ipairs(boxes) do
    local r, g, b = 0, 0, 0
    for _, colour in ipairs(type(box[1]) == "table" and box or { box }) do
      r, g, b = r + colour[1] * colour.n, g + colour[2] * colour.n, b + colour[3] * colour.n
      number[colour.bucket] = i - 1
    end
    palette[i - 1] = { r / box.n, g / box.n, b / box.n }
  end
  return palette, #boxes, number
end


-- Returns the letters of one colour in a band of six rows; repetitions are compressed.
local function run_lengths(masks, width)
  local parts, x = {}, 0
  while x < width do
    local from, letter = x, masks[x]
    repeat
      x = x + 1
    until x == width or masks[x] ~= letter
    local text = string.char(63 + letter)
    parts[#parts + 1] = x - from > 3 and ("!%d%s"):format(x - from, text) or text:rep(x - from)
  end
  return table.concat(parts)
end


-- Returns a band of six rows: for each of its colours the letters of all columns.
local function band_text(canvas, top, number)
  local masks, seen = {}, {}
  for j = 0, min(ROWS, canvas.height - top) - 1 do
    for x = 0, canvas.width - 1 do
      local index = number[bucket_of(canvas.bytes + ((top + j) * canvas.width + x) * 3)]
      if not masks[index] then
        masks[index] = ffi.new("uint8_t[?]", canvas.width)
        seen[#seen + 1] = index
      end
      masks[index][x] = masks[index][x] + 2 ^ j
    end
  end
  local lines = {}
  for i, index in ipairs(seen) do
    lines[i] = ("#%d%s"):format(index, run_lengths(masks[index], canvas.width))
  end
  return table.concat(lines, "$")
end


--- Returns the text that shows the drawing in a terminal.
-- @param canvas a `tycho.viz.raster` canvas
-- @treturn string
function sixel.encode(canvas)
  local palette, n, number = make_palette(canvas)
  local parts = { ('\27Pq"1;1;%d;%d'):format(canvas.width, canvas.height) }
  for i = 0, n - 1 do
    local colour = palette[i]
    parts[#parts + 1] = ("#%d;2;%.0f;%.0f;%.0f"):format(i, colour[1] / 2.55, colour[2] / 2.55,
      colour[3] / 2.55)
  end
  for top = 0, canvas.height - 1, ROWS do
    parts[#parts + 1] = band_text(canvas, top, number) .. "-"
  end
  return table.concat(parts) .. "\27\\"
end


return sixel
