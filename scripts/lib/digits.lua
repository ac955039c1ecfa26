--- Digits for training without a download: glyphs under random affine maps, with noise; or images
-- in idx files.
--
--     local digits = require "digits"
--     local images, labels = digits.draw(8000, 1)   -- (8000, 1, 28, 28) in 0 .. 1, (8000,) of 0 ..
--                                                   9
--     local images, labels = digits.read("folder")  -- idx files of MNIST's form, plain or gz

local ffi = require "ffi"
local ty = require "tycho"

local digits = {}

local SIZE = 28                                           -- pixels of a side
local COLUMNS, ROWS = 5, 7                                -- cells of a glyph

local GLYPHS = {
  [0] = ".###.#...##...##...##...##...#.###.", "..#...##....#....#....#....#...###.",
  ".###.#...#....#...#...#...#...#####", ".###.#...#....#..##.....##...#.###.",
  "...#...##..#.#.#..#.#####...#....#.", "######....####.....#....##...#.###.",
  "..##..#...#....####.#...##...#.###.", "#####....#...#...#....#....#....#..",
  ".###.#...##...#.###.#...##...#.###.", ".###.#...##...#.####....#...#..##..",
}

-- Returns how much ink the cell at (x, y), in cells, has: 0 outside the glyph.
local function ink(cells, x, y)
  if x < 0 or y < 0 or x >= COLUMNS or y >= ROWS then
    return 0
  end
  return cells[math.floor(y) * COLUMNS + math.floor(x)]
end

-- Returns the ink at (x, y) as a mean over one cell, so that edges are grey.
local function smooth(cells, x, y)
  local x0, y0 = math.floor(x - 0.5) + 0.5, math.floor(y - 0.5) + 0.5
  local fx, fy = x - x0, y - y0
  return (ink(cells, x0, y0) * (1 - fx) + ink(cells, x0 + 1, y0) * fx) * (1 - fy) +
         (ink(cells, x0, y0 + 1) * (1 - fx) + ink(cells, x0 + 1, y0 + 1) * fx) * fy
end

local function glyph_cells()
  local all = {}
  for digit = 0, 9 do
    all[digit] = ffi.new("double[?]", COLUMNS * ROWS)
    for i = 1, COLUMNS * ROWS do
      all[digit][i - 1] = GLYPHS[digit]:sub(i, i) == "#" and 1 or 0
    end
  end
  return all
end

-- Returns a random map from pixels to cells: slightly rotated, slanted, scaled and shifted.
local function random_map(random)
  local turn, lean = (random() - 0.5) * 0.5, (random() - 0.5) * 0.4
  local sx, sy = 0.30 * (0.85 + 0.4 * random()), 0.33 * (0.85 + 0.4 * random())
  local dx, dy = (random() - 0.5) * 1.6, (random() - 0.5) * 1.6
  local c, s = math.cos(turn), math.sin(turn)
  return sx * c, sx * (lean - s), sy * s, sy * c, COLUMNS / 2 + dx, ROWS / 2 + dy
end

local function draw_one(cells, pixels, random)
  local xx, xy, yx, yy, x0, y0 = random_map(random)
  local weight = 0.7 + 0.3 * random()
  for row = 0, SIZE - 1 do
    local v = row - (SIZE - 1) / 2
    for column = 0, SIZE - 1 do
      local u = column - (SIZE - 1) / 2
      local level = weight * smooth(cells, xx * u + xy * v + x0, yx * u + yy * v + y0)
        + (random() - 0.5) * 0.15
      pixels[row * SIZE + column] = math.max(0, math.min(1, level))
    end
  end
end

--- Draws n digits; equal seeds give equal digits.
-- @tparam number n number of digits
-- @tparam number seed
-- @treturn NDArray images (n, 1, 28, 28), 0 .. 1
-- @treturn NDArray labels (n,), 0 .. 9
function digits.draw(n, seed)
  local cells, state = glyph_cells(), seed * 2147483 + 12345
  local function random()                -- a separate generator, with the same numbers everywhere
    state = (state * 16807) % 2147483647
    return state / 2147483647
  end
  local images, labels = ffi.new("float[?]", n * SIZE * SIZE), ffi.new("float[?]", n)
  for i = 0, n - 1 do
    labels[i] = i % 10
    draw_one(cells[i % 10], images + i * SIZE * SIZE, random)
  end
  return ty.nd.from_pointer(images, {n, 1, SIZE, SIZE}, {owner = images}):copy(),
         ty.nd.from_pointer(labels, {n}, {owner = labels}):copy()
end

local function read_file(folder, name)
  local f = io.open(folder .. "/" .. name, "rb")
  if f then
    local bytes = f:read("*a")
    f:close()
    return bytes
  end
  f = assert(io.open(folder .. "/" .. name .. ".gz", "rb"),
    "there is no " .. name .. " (or .gz) in " .. folder)
  f:close()
  local pipe =
    assert(io.popen("gzip -dc '" .. (folder .. "/" .. name .. ".gz"):gsub("'", "'\\''") .. "'"))
  local bytes = pipe:read("*a")
  pipe:close()
  return bytes
end

local function number(bytes, at)
  local a, b, c, d = bytes:byte(at, at + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local function read_pair(folder, prefix)
  local images, labels = read_file(folder, prefix .. "-images-idx3-ubyte"),
    read_file(folder, prefix .. "-labels-idx1-ubyte")
  assert(#images > 16 and number(images, 1) == 2051, prefix .. "-images: not a file of images")
  assert(#labels > 8 and number(labels, 1) == 2049, prefix .. "-labels: not a file of labels")
  local n, rows, columns = number(images, 5), number(images, 9), number(images, 13)
  assert(#images == 16 + n * rows * columns and #labels == 8 + n,
    prefix .. ": the files are cut short")
  local x = ty.nd.from_string(images:sub(17), {n, 1, rows, columns},
    {dtype = "uint8"}):astype("float32") / 255
  return x, ty.nd.from_string(labels:sub(9), {n}, {dtype = "uint8"}):astype("float32")
end

--- Reads train-* files if the folder has them, else t10k-*.
-- @treturn NDArray images (n, 1, rows, columns), 0 .. 1
-- @treturn NDArray labels (n,)
function digits.read(folder)
  local ok, images, labels = pcall(read_pair, folder, "train")
  if ok then
    return images, labels
  end
  return read_pair(folder, "t10k")
end

return digits
