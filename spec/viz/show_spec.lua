-- Drawings in terminals (runtime/lua/tycho/viz/{cells,sixel,show}.lua).

local cells = require "tycho.viz.cells"
local raster = require "tycho.viz.raster"
local show = require "tycho.viz.show"
local sixel = require "tycho.viz.sixel"
local ty = require "tycho"

-- Returns what f writes.
local function written(f, ...)
  local path = os.tmpname()
  local before, file = io.output(), assert(io.open(path, "w"))
  io.output(file)
  local ok, e = pcall(f, ...)
  io.output(before)
  file:close()
  file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  os.remove(path)
  return ok and text or error(e, 0)
end

-- Returns the pixels of a text of sixels, as terminals read it: rows of {red, green, blue} in per
-- cent.
local function decode(text)
  local body = assert(text:match('^\27Pq"1;1;%d+;%d+(.*)\27\\\n?$'))
  local palette, rows, x, top, colour, at = {}, {}, 0, 0, nil, 1
  local function draw(letter, count)
    local mask = letter:byte() - 63
    for j = 0, 5 do
      for i = x, mask % 2 == 1 and x + count - 1 or -1 do
        rows[top + j + 1] = rows[top + j + 1] or {}
        rows[top + j + 1][i + 1] = palette[colour]
      end
      mask = math.floor(mask / 2)
    end
    x = x + count
  end
  while at <= #body do
    local index, r, g, b, stop = body:match("^#(%d+);2;(%d+);(%d+);(%d+)()", at)
    local chosen, after = body:match("^#(%d+)()", at)
    local count, letter, rest = body:match("^!(%d+)([?-~])()", at)
    local c = body:sub(at, at)
    if index then
      palette[index], at = { tonumber(r), tonumber(g), tonumber(b) }, stop
    elseif chosen then
      colour, at = chosen, after
    elseif count then
      draw(letter, tonumber(count))
      at = rest
    else
      if c == "$" then
        x = 0
      elseif c == "-" then
        x, top = 0, top + 6
      else
        draw(c, 1)
      end
      at = at + 1
    end
  end
  return rows, palette
end

-- Returns the largest difference, in per cent, between what is sent and what was drawn.
local function measure_error(canvas)
  local rows, worst = decode(sixel.encode(canvas)), 0
  assert.equal(canvas.height, #rows)
  for y, row in ipairs(rows) do
    assert.equal(canvas.width, #row)
    for x, pixel in ipairs(row) do
      for k = 1, 3 do
        local drawn = canvas.bytes[((y - 1) * canvas.width + x - 1) * 3 + k - 1]
        worst = math.max(worst, math.abs(drawn / 2.55 - pixel[k]))
      end
    end
  end
  return worst
end

describe("sixels", function()
  it("are the image where it has few colours, whatever its height", function()
    for _, height in ipairs{ 1, 6, 7, 20 } do
      local canvas = raster.new(31, height)
      canvas:rect(3, 0, 11, height, "#d55e00")
      canvas:rect(20, 0, 2, 1, "#0072b2")
      assert.is_true(measure_error(canvas) <= 0.51)
    end
  end)

  it("come close to an image with more colours than a palette has", function()
    local canvas = raster.new(64, 64)
    for i = 0, 64 * 64 - 1 do
      local x, y = i % 64, math.floor(i / 64)
      canvas.bytes[3 * i], canvas.bytes[3 * i + 1], canvas.bytes[3 * i + 2] =
        4 * x, 4 * y, (x * y) % 256
    end
    assert.is_true(measure_error(canvas) < 16)
  end)
end)

describe("characters", function()
  it("draw a diagonal with dots of Braille", function()
    local canvas = cells.new(16, 16)
    canvas:line({ { 0, 0 }, { 15, 15 } }, "#444444")
    assert.equal("⠑⢄\n", canvas:done("none"))
  end)

  it("draw bars in eighths of a line, the tallest where several meet", function()
    local canvas = cells.new(40, 32)
    canvas:rect(0, 20, 8, 12, "#0072b2")
    canvas:rect(8, 0, 8, 32, "#0072b2")
    canvas:rect(16, 30, 4, 2, "#0072b2")
    canvas:rect(20, 24, 4, 8, "#0072b2")
    assert.equal(" █\n▆█▄\n", canvas:done("none"))
  end)

  it("are coloured once for a run of one colour; greys are the terminal's own", function()
    local canvas = cells.new(80, 16)
    canvas:text(0, 12, "ab", { size = 12, colour = "#444444" })
    canvas:text(16, 12, "cd", { size = 12, colour = "#ff0000" })
    canvas:line({ { 0, 8 }, { 79, 8 } }, "#e6e6e6")
    assert.equal("abcd\n", canvas:done("none"))
    assert.equal("ab\27[38;5;196mcd\27[0m\n", canvas:done("256"))
    assert.equal("ab\27[38;2;255;0;0mcd\27[0m\n", canvas:done("true"))
  end)

  it("show two rows of an image in a line, means where it shrinks", function()
    local canvas, image = cells.new(16, 16), raster.new(4, 4)
    image:rect(0, 0, 2, 2, "#ff0000")
    image:rect(2, 2, 2, 2, "#000000")
    canvas:image(0, 0, 16, 16, image)
    assert.equal("\27[38;2;255;0;0;48;2;255;255;255m▀\27[0m"
      .. "\27[38;2;255;255;255;48;2;0;0;0m▀\27[0m\n", canvas:done("true"))
    canvas = cells.new(8, 16)
    canvas:image(0, 0, 8, 16, image)
    assert.equal("\27[38;2;255;128;128;48;2;128;128;128m▀\27[0m\n", canvas:done("true"))
  end)
end)

describe("show", function()
  local chart = ty.viz.plot({ train = { 1, 2, 3 }, valid = { 1, 3, 2 } },
    { title = "a title", x_label = "epoch" })

  it("writes characters without colours to a file, within the width asked for", function()
    local text = written(ty.viz.show, chart, { width = 50, height = 14 })
    assert.is_nil(text:find("\27", 1, true))
    for _, word in ipairs{ "a title", "epoch", "train", "valid" } do
      assert.truthy(text:find(word, 1, true), word)
    end
    assert.truthy(text:find("[\226]\160") or text:find("\226\161"))
    for line in text:gmatch("[^\n]+") do
      assert.is_true(#line:gsub("[\128-\191]", "") <= 50, line)
    end
    assert.is_true(select(2, text:gsub("\n", "")) <= 14)
  end)

  it("writes colours or sixels where asked to", function()
    assert.truthy(written(ty.viz.show, chart, { colours = "256" }):find("\27[38;5;", 1, true))
    assert.equal(306, #decode(written(ty.viz.show, chart, { mode = "sixel" })))
  end)

  it("takes images", function()
    local x = ty.nd.zeros{ 2, 8, 8 }
    local text = written(ty.viz.show, x, { colours = "true", width = 40 })
    assert.equal(2 * 8 * 4, select(2, text:gsub("▀", "")))
    assert.equal(text, written(ty.viz.show, { x[0], x[1] }, { colours = "true", width = 40 }))
  end)

  it("knows terminals by what they answer", function()
    assert.is_true(show.knows_sixels("\27[?62;4;22c"))
    assert.is_true(show.knows_sixels("\27[?4c"))
    assert.is_false(show.knows_sixels("\27[?1;2c"))
    assert.is_false(show.knows_sixels("\27[?64;14;44c"))
    assert.is_false(show.knows_sixels(""))
  end)

  it("says what it cannot show", function()
    assert.raises("type", ty.viz.show, 3)
    assert.raises("type", ty.viz.show, ty.viz.plot_network(ty.sym.Variable "x"))
    assert.raises("value", ty.viz.show, chart, { mode = "ascii" })
    assert.raises("value", ty.viz.show, chart, { width = 0 })
  end)
end)
