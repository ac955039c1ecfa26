--- Coloured pictures for training without a download: shapes and textures; or CIFAR-10's binary
-- files.
--
--     local pictures = require "pictures"
--     local images, labels = pictures.draw(2000, 1)            -- (2000, 3, 32, 32), (2000,)
--     local images, labels = pictures.read("folder", "train")  -- data_batch_1.bin .. _5.bin

local ffi = require "ffi"
local ty = require "tycho"

local pictures = {}

local SIZE = 32                                           -- pixels of a side
local PLANE = SIZE * SIZE
local BYTES = 3 * PLANE                                   -- of an image: red, green, blue planes
local abs, max, min, sin, cos = math.abs, math.max, math.min, math.sin, math.cos

-- The classes: functions that return whether the point (u, v) has the first colour. A shape extends
-- from -1 to 1.
local KINDS = {
  [0] = function(u, v) return u * u + v * v < 1 end,
  function(u, v) return u * u + v * v < 1 and u * u + v * v > 0.4 end,
  function(u, v) return max(abs(u), abs(v)) < 0.85 end,
  function(u, v) return max(abs(u), abs(v)) < 0.95 and max(abs(u), abs(v)) > 0.55 end,
  function(u, v) return v < 0.8 and abs(u) < 0.55 * (v + 1) end,
  function(u, v) return min(abs(u), abs(v)) < 0.28 and max(abs(u), abs(v)) < 1 end,
  function(_, v) return sin(5 * v) > 0 end,
  function(u, _) return sin(5 * u) > 0 end,
  function(u, v) return sin(5 * u) * sin(5 * v) > 0 end,
  function(u, v) return cos(5 * u) + cos(5 * v) > 0.9 end,
}

--- Names of the drawn classes and of CIFAR-10's, by label from 0.
pictures.DRAWN = {[0] = "disc", "ring", "square", "frame", "triangle", "cross", "rows",
  "columns", "checkers", "dots"}
pictures.CIFAR = {[0] = "airplane", "automobile", "bird", "cat", "deer", "dog", "frog",
  "horse", "ship", "truck"}

-- Returns two colours that can be distinguished.
local function two_colours(random)
  local a, b, far
  repeat
    a, b = {random(), random(), random()}, {random(), random(), random()}
    far = abs(a[1] - b[1]) + abs(a[2] - b[2]) + abs(a[3] - b[3])
  until far > 0.8
  return a, b
end

local function draw_one(kind, pixels, random)
  local turn, scale = (random() - 0.5) * 0.5, 1 / (8 + 5 * random())
  local x0, y0 = SIZE / 2 + (random() - 0.5) * 8, SIZE / 2 + (random() - 0.5) * 8
  local c, s = cos(turn) * scale, sin(turn) * scale
  local ink, ground = two_colours(random)
  for y = 0, SIZE - 1 do
    for x = 0, SIZE - 1 do
      local u, v = c * (x - x0) - s * (y - y0), s * (x - x0) + c * (y - y0)
      local colour, light = kind(u, v) and ink or ground, (random() - 0.5) * 0.25
      for plane = 0, 2 do
        pixels[plane * PLANE + y * SIZE + x] = 255 * max(0, min(1, colour[plane + 1] + light))
      end
    end
  end
end

--- Draws n pictures; equal seeds give equal pictures.
-- @tparam number n number of pictures
-- @tparam number seed
-- @treturn NDArray images (n, 3, 32, 32), bytes
-- @treturn NDArray labels (n,), 0 .. 9
function pictures.draw(n, seed)
  local state = seed * 2147483 + 54321
  local function random()        -- a separate generator, with the same numbers everywhere
    state = (state * 16807) % 2147483647
    return state / 2147483647
  end
  local images, labels = ffi.new("uint8_t[?]", n * BYTES), ffi.new("float[?]", n)
  for i = 0, n - 1 do
    labels[i] = i % 10
    draw_one(KINDS[i % 10], images + i * BYTES, random)
  end
  return ty.nd.from_pointer(images, {n, 3, SIZE, SIZE}, {owner = images, dtype = "uint8"}):copy(),
         ty.nd.from_pointer(labels, {n}, {owner = labels}):copy()
end


-- CIFAR-10 ----------------------------------------------------------------------------------------

local FILES = {train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
  "data_batch_4.bin", "data_batch_5.bin"}, test = {"test_batch.bin"}}

-- Reads one file: records of a label byte and an image.
local function read_file(path)
  local file = assert(io.open(path, "rb"))
  local bytes = file:read("*a")
  file:close()
  local n = #bytes / (1 + BYTES)
  assert(n > 0 and n % 1 == 0, path .. ": not a file of CIFAR-10's binary form")
  local records = ty.nd.from_string(bytes, {n, 1 + BYTES}, {dtype = "uint8"})
  return records:slice_axis{axis = 1, begin = 1, end_ = 1 + BYTES}:reshape{n, 3, SIZE, SIZE},
         records:slice_axis{axis = 1, begin = 0, end_ = 1}:reshape{n}:astype("float32")
end

--- Reads CIFAR-10's binary files (data_batch_1.bin to data_batch_5.bin, or test_batch.bin).
-- @string folder the folder of the files, or one that contains cifar-10-batches-bin
-- @string part "train" or "test"
-- @treturn NDArray images (n, 3, 32, 32), bytes
-- @treturn NDArray labels (n,)
function pictures.read(folder, part)
  local inner = io.open(folder .. "/cifar-10-batches-bin/test_batch.bin", "rb")
  if inner then
    inner:close()
    folder = folder .. "/cifar-10-batches-bin"
  end
  local images, labels = {}, {}
  for i, name in ipairs(FILES[part]) do
    images[i], labels[i] = read_file(folder .. "/" .. name)
  end
  return ty.nd.concat{dim = 0, unpack(images)}, ty.nd.concat{dim = 0, unpack(labels)}
end

return pictures
