-- Charts and image grids (runtime/lua/tycho/viz/{plot,chart,grid,raster,svg_canvas}.lua).

local font = require "tycho.viz.font"
local raster = require "tycho.viz.raster"
local scale = require "tycho.viz.scale"
local ty = require "tycho"

local BLUE, ORANGE = { 0, 0x72, 0xb2 }, { 0xd5, 0x5e, 0 }

-- Returns how many pixels have a colour, and where: count, left, top, right, bottom.
local function find_colour(image, colour)
  local rows, count = image:totable(), 0
  local left, top, right, bottom = math.huge, math.huge, -1, -1
  for y, row in ipairs(rows) do
    for x, pixel in ipairs(row) do
      if pixel[1] == colour[1] and pixel[2] == colour[2] and pixel[3] == colour[3] then
        count = count + 1
        left, right = math.min(left, x - 1), math.max(right, x - 1)
        top, bottom = math.min(top, y - 1), math.max(bottom, y - 1)
      end
    end
  end
  return count, left, top, right, bottom
end

-- Returns the texts of an SVG with the places where they begin and end.
local function find_texts(svg)
  local list = {}
  for dict, text in svg:gmatch("<text([^>]*)>([^<]*)</text>") do
    local function attribute(name)
      return dict:match(" " .. name:gsub("%-", "%%-") .. '="([^"]*)"')
    end
    local width = #text * 0.6 * tonumber(attribute "font-size")
    local x, anchor = tonumber(attribute "x"), attribute "text-anchor"
    local left = anchor == "end" and x - width or anchor == "middle" and x - width / 2 or x
    list[#list + 1] = { text = text, left = left, right = left + width, y = tonumber(attribute "y"),
      turned = attribute "transform" ~= nil }
  end
  return list
end

local function temporary(ending)
  local name = os.tmpname()
  os.remove(name)
  return name .. ending
end

describe("axes", function()
  local function labels(drawing)
    local list = {}
    for text in drawing:svg():gmatch("<text[^>]*>(%a+)</text>") do
      list[#list + 1] = text
    end
    table.sort(list)
    return list
  end

  it("have labels, if nothing else is asked for", function()
    assert.same({ "index", "value" }, labels(ty.viz.plot{ 1, 4, 9 }))
    assert.same({ "value", "x" }, labels(ty.viz.plot{ { x = { 1, 2 }, y = { 1, 4 } } }))
    assert.same({ "index", "loss", "loss" }, labels(ty.viz.plot{ loss = { 1, 4 } }))
    assert.same({ "a", "b", "index", "value" }, labels(ty.viz.plot{ a = { 1 }, b = { 2 } }))
    assert.same({ "epoch", "loss" },
      labels(ty.viz.plot{ { 1, 2 }, x_label = "epoch", y_label = "loss" }))
    assert.same({}, labels(ty.viz.plot{ { 1, 2 }, x_label = "", y_label = "" }))
    assert.same({ "count", "value" }, labels(ty.viz.histogram{ 1, 2 }))
    assert.same({}, labels(ty.viz.histogram{ 1, 2, x_label = "", y_label = "" }))
  end)
end)

describe("plot", function()
  it("draws curves of its colours, whatever form they are given in", function()
    local same = ty.viz.plot{ { 1, 4, 9 } }:svg()
    assert.equal(same, ty.viz.plot{ 1, 4, 9 }:svg())
    assert.equal(same, ty.viz.plot(ty.nd.array{ 1, 4, 9 }):svg())
    assert.equal(same, ty.viz.plot({ { y = { 1, 4, 9 }, x = { 0, 1, 2 } } },
      { x_label = "index" }):svg())
    local named = ty.viz.plot{ { name = "a", y = { 1, 2 } }, { name = "b", y = { 2, 3 } } }:svg()
    assert.equal(named, ty.viz.plot{ b = { 2, 3 }, a = ty.nd.array{ 1, 2 } }:svg())
    assert.equal(4, select(2, named:gsub("<circle", "")))
    assert.truthy(named:find(">a</text>", 1, true) and named:find(">b</text>", 1, true))
  end)

  it("puts values at their places, in SVG and in pixels", function()
    local drawing = ty.viz.plot({ { x = { 0, 10 }, y = { 0, 100 } } },
      { width = 400, height = 200 })
    local path = drawing:svg():match('<path d="([^"]+)" fill="none" stroke="#0072b2"')
    local x1, y1, x2, y2 = path:match("^M(%S+) (%S+)L(%S+) (%S+)$")
    x1, y1, x2, y2 = tonumber(x1), tonumber(y1), tonumber(x2), tonumber(y2)
    assert.is_true(x2 > x1 + 300 and y2 < y1 - 100)
    local image = drawing:pixels()
    assert.shape({ 200, 400, 3 }, image)
    local count, left, top, right, bottom = find_colour(image, BLUE)
    assert.is_true(count > 300, count .. " pixels")
    assert.is_true(left < x2 and right > x2 - 8 and right <= x2 + 4)
    assert.is_true(top >= y2 - 4 and bottom <= y1 + 4)
  end)

  it("clips no label: names, values, ticks and titles are on the page", function()
    local long = ("perplexity "):rep(6)
    local cases = {
      { { [long] = { 1, 3.25 }, short = { 2, 1e6 } }, { ends = true } },
      { { { 1, 2 } }, { title = ("title "):rep(40), y_label = "loss", x_label = "epoch" } },
      { { { x = { 1e6, 12e6 }, y = { -1e-7, 1e-7 } } }, { width = 120, height = 100 } },
      { { { x = { 0, 123456 }, y = { 1e9, 2e9 } } }, {} },
    }
    for _, case in ipairs(cases) do
      local svg = ty.viz.plot(case[1], case[2]):svg()
      local width, height = svg:match(' height="(%d+)".- width="(%d+)"')
      width, height = tonumber(height), tonumber(width)
      for _, text in ipairs(find_texts(svg)) do
        assert.is_true(text.turned or text.left >= 0 and text.right <= width,
          ("%s: %g to %g of %g"):format(text.text, text.left, text.right, width))
        assert.is_true(text.y > 8 and text.y < height, text.text)
      end
    end
  end)

  it("keeps ink off the edges of its pixels, too", function()
    local image = ty.viz.plot({ train = { 1, 2 }, [("valid "):rep(30)] = { 1, 3 } },
      { title = ("what "):rep(40), y_label = "y", x_label = "x", ends = true }):pixels()
    local h, w = unpack(image.shape)
    for _, edge in ipairs{ image:slice_axis{ axis = 0, begin = 0, end_ = 2 },
        image:slice_axis{ axis = 0, begin = h - 1, end_ = h },
        image:slice_axis{ axis = 1, begin = 0, end_ = 2 },
        image:slice_axis{ axis = 1, begin = w - 2, end_ = w } } do
      assert.equal(255, edge:astype("float32"):min():asscalar())
    end
  end)

  it("leaves gaps where a value cannot be drawn", function()
    local function parts(y, options)
      return select(2, ty.viz.plot({ y }, options):svg():gsub('stroke="#0072b2"', ""))
    end
    local nan, many = 0 / 0, {}
    for i = 1, 60 do
      many[i] = i
    end
    assert.equal(1, parts(many))
    many[20], many[40] = nan, 1 / 0
    assert.equal(3, parts(many))
    many[20], many[40] = -1, 0
    assert.equal(1, parts(many))
    assert.equal(3, parts(many, { y_log = true }))
    assert.truthy(ty.viz.plot{ { nan, nan } }:svg():find("</svg>", 1, true))
    assert.truthy(ty.viz.plot{ {} }:svg():find("</svg>", 1, true))
  end)

  it("cuts curves off at the ranges asked for", function()
    local image = ty.viz.plot({ { x = { 0, 10 }, y = { 0, 100 } } },
      { y_range = { 40, 60 }, x_range = { 2, 8 } }):pixels()
    local _, left, top, right, bottom = find_colour(image, BLUE)
    assert.is_true(left > 200 and right < 520 and top > 4 and bottom < 306 - 20)
  end)

  it("thins long curves, which look the same", function()
    local y = {}
    for i = 1, 20000 do
      y[i] = math.sin(i / 3000) + (i % 7) / 20 + (i == 9001 and 1 or 0)
    end
    local svg = ty.viz.plot{ y }:svg()
    local path = svg:match('<path d="([^"]+)" fill="none" stroke="#0072b2"')
    local points, highest = {}, math.huge
    for px, py in path:gmatch("([%d.]+) ([%d.]+)") do
      points[#points + 1] = tonumber(px)
      highest = math.min(highest, tonumber(py))
    end
    assert.is_true(#points > 1000 and #points < 4 * 720, #points .. " points")
    for i = 2, #points do
      assert.is_true(points[i] >= points[i - 1])
    end
    local drawn = ty.viz.plot{ y }:pixels()
    local _, _, top = find_colour(drawn, BLUE)
    assert.near(highest, top, 2)                           -- the peak of one point is there
  end)

  it("gives curves of another size a panel of their own when asked to", function()
    local series = { accuracy = { 0.5, 0.9 }, loss = { 100, 20 } }
    assert.equal(306, ty.viz.plot(series).height)
    local both = ty.viz.plot(series, { split = true })
    assert.equal(612, both.height)
    assert.is_true(find_colour(both:pixels(), BLUE) > 300)
    assert.is_true(find_colour(both:pixels(), ORANGE) > 300)
  end)

  it("says what it cannot draw", function()
    assert.raises("type", ty.viz.plot, 3)
    assert.raises("type", ty.viz.plot, { { "a" } })
    assert.raises("type", ty.viz.plot, { loss = 3 })
    assert.raises("shape", ty.viz.plot, { { x = { 1 }, y = { 1, 2 } } })
    assert.raises("name", ty.viz.plot, { { y = { 1 }, colour = "red" } })
    assert.raises("value", ty.viz.plot, { { y = { 1 }, style = "dots" } })
    assert.raises("value", ty.viz.plot, { { 1, 2 }, width = 3 })
    assert.raises("value", ty.viz.plot, { { 1, 2 }, y_range = { 2, 1 } })
    assert.raises("value", ty.viz.plot, { { 1, 2 }, y_log = true, y_range = { 0, 1 } })
    assert.raises("value", function() ty.viz.plot{ { 1, 2 } }:save("x.gif") end)
    assert.raises("io", function() ty.viz.plot{ { 1, 2 } }:save("/nowhere/x.png") end)
  end)
end)

describe("histogram", function()
  it("counts the values in each part; the last part has its upper edge", function()
    local svg = ty.viz.histogram({ 0, 0.5, 1, 1, 2, 0 / 0, 1 / 0 }, { bins = 2 }):svg()
    local heights = {}
    for height in svg:gmatch('<rect fill="#0072b2" height="([%d.]+)"') do
      heights[#heights + 1] = tonumber(height)
    end
    assert.equal(2, #heights)
    assert.near(heights[2], heights[1] * 3 / 2, 0.2)
    local cut = ty.viz.histogram({ 0, 0.5, 1, 1, 2 }, { bins = 2, range = { 0, 1 } }):svg()
    assert.equal(2, select(2, cut:gsub('fill="#0072b2"', "")))
  end)

  it("takes arrays of any shape, and a single value", function()
    local x = ty.nd.arange(0, 24):reshape{ 2, 3, 4 }
    local text = ty.viz.histogram{ x, bins = 6 }:svg()
    assert.equal(text, ty.viz.histogram(x, { bins = 6 }):svg())
    assert.equal(6, select(2, text:gsub('fill="#0072b2"', "")))
    assert.equal(1, select(2, ty.viz.histogram{ 3, 3, 3 }:svg():gsub('fill="#0072b2"', "")))
    assert.equal(text, ty.viz.histogram{ { x[0], x[1] }, bins = 6 }:svg())
    assert.raises("type", ty.viz.histogram, { "a" })
    assert.raises("value", ty.viz.histogram, { 1, bins = 0 })
  end)
end)

describe("image_grid", function()
  it("draws each pixel where and how it is", function()
    local x = ty.nd.array({ { { 0, 0.5 }, { 1, 0 } } })
    local image = ty.viz.image_grid{ x, scale = 1 }:pixels()
    assert.shape({ 26, 26, 3 }, image)
    assert.same({ 0, 0, 0 }, image[12][12]:totable())
    assert.same({ 128, 128, 128 }, image[12][13]:totable())
    assert.same({ 255, 255, 255 }, image[13][12]:totable())
    assert.same({ 0, 0, 0 }, image[13][13]:totable())
  end)

  it("takes batches of both layouts, bytes, and images of several sizes", function()
    local chw = ty.nd.random.uniform{ 0, 255, shape = { 5, 3, 4, 6 } }:round()
    local hwc = chw:transpose{ axes = { 0, 2, 3, 1 } }
    local want = ty.viz.image_grid{ chw }:svg()
    assert.equal(want, ty.viz.image_grid(hwc:astype("uint8")):svg())
    assert.equal(5, select(2, want:gsub("<image", "")))
    local mixed = ty.viz.image_grid{ { chw, ty.nd.zeros{ 9, 9 } }, columns = 2 }
    assert.equal(6, select(2, mixed:svg():gsub("<image", "")))
    local bytes = want:match('base64,([^"]+)')
    assert.truthy(bytes:find("^iVBORw0KGgo") and #bytes % 4 == 0)
  end)

  it("writes captions below the images, as wide as they need", function()
    local x = ty.nd.zeros{ 2, 8, 8 }
    local svg = ty.viz.image_grid{ x, captions = { "short", "a rather long one" }, scale = 1 }:svg()
    local list, width = find_texts(svg), tonumber(svg:match(' width="(%d+)"'))
    assert.equal(2, #list)
    assert.is_true(list[2].left > list[1].right and list[2].right <= width)
    local numbered = ty.viz.image_grid{ x, captions = ty.nd.array{ 7, 8 } }:svg()
    assert.truthy(numbered:find(">7</text>", 1, true) and numbered:find(">8</text>", 1, true))
  end)

  it("says what is no image", function()
    assert.raises("shape", ty.viz.image_grid, ty.nd.zeros{ 3 })
    assert.raises("shape", ty.viz.image_grid, ty.nd.zeros{ 2, 5, 4, 4 })
    assert.raises("type", ty.viz.image_grid, { 3 })
    assert.raises("value", ty.viz.image_grid, {})
    assert.raises("value", ty.viz.image_grid, ty.nd.zeros{ 3, 3 }, { scale = 0 })
  end)
end)

describe("a drawing", function()
  it("is saved as SVG and PNG of the size asked for", function()
    local drawing = ty.viz.plot{ { 1, 2, 3 }, width = 200, height = 120 }
    local png, svg = drawing:save(temporary(".png"), { scale = 2 }), drawing:save(temporary(".svg"))
    assert.shape({ 240, 400, 3 }, ty.image.imread(png))
    assert.equal(0, (ty.image.imread(png):astype("int32") - drawing:pixels{ scale = 2 }
      :astype("int32")):abs():sum():asscalar())
    local file = assert(io.open(svg))
    assert.equal(drawing:svg(), file:read("*a"))
    file:close()
    os.remove(png)
    os.remove(svg)
    assert.raises("value", drawing.pixels, drawing, { scale = 0 })
  end)
end)

describe("a canvas of pixels", function()
  it("covers edges in part", function()
    local canvas = raster.new(6, 4)
    canvas:rect(1.5, 1, 3, 2, "#000000")
    local reds = canvas:array():slice_axis{ axis = 2, begin = 0, end_ = 1 }
    local rows = reds:reshape{ 4, 6 }:totable()
    assert.same({ 255, 255, 255, 255, 255, 255 }, rows[1])
    assert.same({ 255, 128, 0, 0, 128, 255 }, rows[2])
  end)

  it("writes every printable letter with ink of its own", function()
    local seen = {}
    for code = 33, 126 do
      local letter, lines = string.char(code), {}
      for _, stroke in ipairs(font.strokes(letter, 12.5)) do
        for _, point in ipairs(stroke) do
          assert.is_true(point[1] >= 0 and point[1] <= font.width(letter, 12.5))
          lines[#lines + 1] = ("%g %g"):format(point[1], point[2])
        end
      end
      local text = table.concat(lines, ",")
      assert.is_nil(seen[text], letter)
      assert.is_true(#lines >= 2, letter)
      seen[text] = letter
    end
    assert.is_true(font.width("wide", 12) < 0.7 * 12 * 4)
    assert.equal(2 * font.width("ab", 10), font.width("ab", 20))
  end)
end)

describe("an axis", function()
  it("has ticks at round numbers with different texts", function()
    local tenths = scale.linear(0.13, 0.97, 0, 1, 6)
    assert.same({ "0.0", "0.2", "0.4", "0.6", "0.8", "1.0" }, tenths.texts)
    local whole = scale.linear(0, 2, 0, 1, 10, { whole = true, fixed = true })
    assert.same({ "0", "1", "2" }, whole.texts)
    assert.same({ "-0.5", "0.0", "0.5" }, scale.linear(-0.4, 0.4, 0, 1, 2).texts)
    assert.same({ "1e-6", "2e-6" }, { scale.text(1e-6, 1e-6), scale.text(2e-6, 1e-6) })
    assert.same({ "1.2e7", "1.3e7" }, { scale.text(12e6, 1e6), scale.text(13e6, 1e6) })
    assert.equal("0.7", scale.linear(0.7, 0.7, 0, 1, 2).texts[2]:sub(1, 3))
  end)

  it("may be logarithmic", function()
    local axis = scale.log(0.003, 200, 0, 100, 6)
    assert.same({ "0.001", "0.01", "0.1", "1", "10", "100", "1000" }, axis.texts)
    assert.near(50, axis.at(1), 1e-9)
    assert.same({ "1", "2", "5", "10" }, scale.log(1, 10, 0, 1, 6).texts)
  end)
end)
