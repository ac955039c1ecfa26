--- Pictures with several objects, and the boxes of the objects.
--
--     local x, label = scenes.draw(100, 2, 1)     -- (100, 3, 48, 48) and (100, 2, 5)

local ffi = require "ffi"
local ty = require "tycho"

local scenes = {}

local SIZE = 48                                           -- pixels of a side
local PLANE = SIZE * SIZE

--- Names of the classes; label 0 is the first.
scenes.NAMES = {"disc", "square", "cross"}

-- returns whether (u, v), each from -1 to 1, is inside the object
local INSIDE = {
  function(u, v) return u * u + v * v < 1 end,
  function() return true end,
  function(u, v) return math.min(math.abs(u), math.abs(v)) < 0.35 end,
}

local function paint(pixels, kind, left, top, side, colour)
  for y = top, top + side - 1 do
    for x = left, left + side - 1 do
      local u, v = 2 * (x + 0.5 - left) / side - 1, 2 * (y + 0.5 - top) / side - 1
      for plane = 0, INSIDE[kind](u, v) and 2 or -1 do
        local at = plane * PLANE + y * SIZE + x
        pixels[at] = pixels[at] + colour[plane + 1]
      end
    end
  end
end

local function apart(box, boxes)
  for _, other in ipairs(boxes) do
    if box[1] < other[1] + other[3] and other[1] < box[1] + box[3]
      and box[2] < other[2] + other[3] and other[2] < box[2] + box[3] then
      return false
    end
  end
  return true
end

-- Draws a noisy picture with 1 to `most` objects that do not overlap.
local function draw_one(pixels, label, most, random)
  for i = 0, 3 * PLANE - 1 do
    pixels[i] = 0.3 * (random() - 0.5)
  end
  local boxes = {}
  for _ = 1, 1 + math.floor(most * random()) do
    local side = 12 + math.floor(10 * random())
    local box = {math.floor((SIZE - side) * random()), math.floor((SIZE - side) * random()), side}
    if apart(box, boxes) then
      local kind = 1 + math.floor(#INSIDE * random())
      local sign = random() < 0.5 and -1 or 1
      paint(pixels, kind, box[1], box[2], side,
        {sign * (0.5 + random()), sign * (0.5 + random()), sign * (0.5 + random())})
      local row = {kind - 1, box[1] / SIZE, box[2] / SIZE, (box[1] + side) / SIZE,
        (box[2] + side) / SIZE}
      for k = 1, 5 do
        label[5 * #boxes + k - 1] = row[k]
      end
      boxes[#boxes + 1] = box
    end
  end
end

--- Draws pictures; equal seeds give equal pictures.
-- @int count
-- @int most most objects in a picture
-- @int seed
-- @treturn NDArray pictures (count, 3, 48, 48), numbers around 0
-- @treturn NDArray objects (count, most, 5): class, left, top, right, bottom, 0 to 1; class -1:
--   none
function scenes.draw(count, most, seed)
  local state = seed * 2147483 + 12345
  local function random()        -- a separate generator, with the same numbers everywhere
    state = (state * 16807) % 2147483647
    return state / 2147483647
  end
  local x, label = ffi.new("float[?]", count * 3 * PLANE), ffi.new("float[?]", count * most * 5)
  for i = 0, count * most * 5 - 1 do
    label[i] = -1
  end
  for i = 0, count - 1 do
    draw_one(x + i * 3 * PLANE, label + i * most * 5, most, random)
  end
  return ty.nd.from_pointer(x, {count, 3, SIZE, SIZE}, {owner = x}):copy(),
    ty.nd.from_pointer(label, {count, most, 5}, {owner = label}):copy()
end

return scenes
