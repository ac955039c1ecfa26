-- Images whose objects are rectangles of one colour each, so that the pixels show the correct
-- boxes.

local assert = require "luassert"
local ffi = require "ffi"
local ty = require "tycho"

local boxes = {}

local COLOURS = { [0] = { 255, 0, 0 }, { 0, 255, 0 }, { 0, 0, 255 } }

-- Returns a black image with objects {class, left, top, right, bottom}, as fractions of its size.
function boxes.picture(height, width, objects)
  local bytes = ffi.new("uint8_t[?]", height * width * 3)
  for _, row in ipairs(objects) do
    for y = math.floor(row[3] * height + 0.5), math.floor(row[5] * height + 0.5) - 1 do
      for x = math.floor(row[2] * width + 0.5), math.floor(row[4] * width + 0.5) - 1 do
        for k = 1, 3 do
          bytes[(y * width + x) * 3 + k - 1] = COLOURS[row[1]][k]
        end
      end
    end
  end
  return ty.nd.from_pointer(bytes, { height, width, 3 }, { owner = bytes, dtype = "uint8" }):copy()
end

-- Returns the box of a class's pixels as fractions: left, top, right, bottom; nil if there are
-- none.
function boxes.seen_box(rows, class)
  local left, top, right, bottom = math.huge, math.huge, -1, -1
  for y, row in ipairs(rows) do
    for x, pixel in ipairs(row) do
      local match = true
      for k = 1, 3 do
        match = match and math.abs(pixel[k] - COLOURS[class][k]) < 40
      end
      if match then
        left, right = math.min(left, x - 1), math.max(right, x)
        top, bottom = math.min(top, y - 1), math.max(bottom, y)
      end
    end
  end
  return right > 0 and { left / #rows[1], top / #rows, right / #rows[1], bottom / #rows } or nil
end

-- Asserts that each box surrounds the pixels of its class, with a tolerance of one pixel of an
-- image of this size (by default its own).
function boxes.check(x, label, size)
  local rows = x:totable()
  local near = 1.6 / (size or math.min(#rows, #rows[1]))
  for _, object in ipairs(label) do
    local box = assert(boxes.seen_box(rows, object[1]), "an object is not to be seen")
    for k = 1, 4 do
      assert.near(box[k], object[k + 1], near)
    end
  end
end

return boxes
