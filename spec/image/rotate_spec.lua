-- Turned images; arrays that take an image.

local images = require "spec.support.images"
local ty = require "tycho"

local image, nd = ty.image, ty.nd

-- A plane v = 2 x - 3 y, which bilinear sampling gives exactly; x and y from the middle.
local H, W = 8, 11

local function plane()
  local rows = {}
  for i = 1, H do
    rows[i] = {}
    for k = 1, W do
      rows[i][k] = 2 * (k - 1 - (W - 1) / 2) - 3 * (i - 1 - (H - 1) / 2)
    end
  end
  return nd.array{ rows }
end

-- Returns the value of a turned plane, with the window `zoom` times as large; nil outside.
local function expected(i, k, degrees, zoom)
  local a, x, y = math.rad(degrees), k - 1 - (W - 1) / 2, i - 1 - (H - 1) / 2
  local from_x = zoom * (x * math.cos(a) - y * math.sin(a))
  local from_y = zoom * (x * math.sin(a) + y * math.cos(a))
  if math.abs(from_x) < (W - 1) / 2 and math.abs(from_y) < (H - 1) / 2 then
    return 2 * from_x - 3 * from_y
  end
end

local function check(y, degrees, zoom)
  local count = 0
  for i, row in ipairs(y:totable()[1]) do
    for k, v in ipairs(row) do
      local want = expected(i, k, degrees, zoom)
      count = count + (want and 1 or 0)
      assert.is_true(not want or math.abs(v - want) < 1e-4, ("%d, %d: %g"):format(i, k, v))
    end
  end
  return count
end

describe("imrotate", function()
  setup(images.make_folder)
  teardown(images.remove_folder)

  it("turns counter-clockwise about the middle", function()
    local x = nd.array{ { { 0, 1, 0 }, { 0, 0, 0 }, { 0, 0, 2 } } }
    local function turned(degrees)
      return image.imrotate(x, degrees):round():totable()[1]
    end
    assert.same({ { 0, 0, 2 }, { 1, 0, 0 }, { 0, 0, 0 } }, turned(90))
    assert.same({ { 2, 0, 0 }, { 0, 0, 0 }, { 0, 1, 0 } }, turned(180))
    assert.same({ { 0, 0, 0 }, { 0, 0, 1 }, { 2, 0, 0 } }, turned(-90))
    assert.same(x:totable()[1], turned(0))
  end)

  it("keeps the proportions of pixels", function()
    for _, degrees in ipairs{ 10, -37, 90, 135 } do
      assert.is_true(check(image.imrotate(plane(), degrees), degrees, 1) > 30)
    end
  end)

  it("zooms in until nothing outside is seen, and out until all is", function()
    local a = math.rad(30)
    local d, corner = math.sqrt(H * H + W * W), math.atan(H / W)
    local wide = d * math.cos(corner - a)
    local high = d * math.sin(corner + a)
    local inside, whole = math.min(W / wide, H / high), math.max(wide / W, high / H)
    for _, degrees in ipairs{ 30, -30 } do
      local x = plane()
      -- corners are on the border
      assert.is_true(check(image.imrotate{ x, degrees, zoom_in = true }, degrees, inside)
        >= H * W - 4)
      assert.is_true(check(image.imrotate{ x, degrees, zoom_out = true }, degrees, whole) < H * W)
    end
    local ones = nd.ones{ 1, H, W }
    -- the zoom is that of the pixels' areas, places are those of their middles
    assert.is_true(image.imrotate{ ones, 30, zoom_in = true }:min():asscalar() > 0.9)
    assert.equal(0, image.imrotate{ ones, 30 }:min():asscalar())
  end)

  it("takes batches, with one angle or one for each image", function()
    local x = nd.stack{ plane(), plane(), axis = 0 }
    for _, degrees in ipairs{ { 10, -20 }, nd.array{ 10, -20 } } do
      local y = image.imrotate(x, degrees)
      assert.shape({ 2, 1, H, W }, y)
      check(y:at(0), 10, 1)
      check(y:at(1), -20, 1)
    end
    check(image.imrotate(x, 15):at(1), 15, 1)
  end)

  it("leaves sides of one pixel as they are", function()
    for _, shape in ipairs{ { 2, 1, 5 }, { 2, 5, 1 }, { 2, 1, 1 } } do
      for _, zoom in ipairs{ "zoom_in", "zoom_out" } do
        local y = image.imrotate{ nd.ones(shape), 20, [zoom] = true }
        assert.shape(shape, y)
        assert.is_true(y:min():asscalar() >= 0 and y:max():asscalar() <= 1)
      end
      assert.equal(1, image.imrotate(nd.ones(shape), 20):min():asscalar())
    end
  end)

  it("says what it takes", function()
    local x, batch = plane(), nd.ones{ 2, 3, 4, 4 }
    assert.raises("value", image.imrotate, { x, 5, zoom_in = true, zoom_out = true })
    assert.raises("dtype", image.imrotate, x:astype("uint8"), 5)
    assert.raises("shape", image.imrotate, nd.ones{ 4, 4 }, 5)
    assert.raises("type", image.imrotate, x, nd.array{ 1, 2 })
    assert.raises("shape", image.imrotate, batch, { 1, 2, 3 })
    assert.raises("value", image.random_rotate, x, { 1 })
  end)

  it("turns by random angles within limits", function()
    ty.random.seed(3)
    local one = image.random_rotate(plane(), { 20, 20 })
    check(one, 20, 1)
    local batch = nd.stack{ plane(), plane(), plane(), axis = 0 }
    local first = image.random_rotate(batch, { -30, 30 })
    assert.shape({ 3, 1, H, W }, first)
    assert.is_true((first:at(0) - first:at(1)):abs():max():asscalar() > 0.01)
    ty.random.seed(3)
    image.random_rotate(plane(), { 20, 20 })
    images.same(first, image.random_rotate(batch, { -30, 30 }))
  end)
end)

describe("an array that takes an image", function()
  setup(images.make_folder)
  teardown(images.remove_folder)

  it("is written and returned", function()
    local options = { dtype = "uint8", ctx = ty.cpu(0) } -- where images of files are
    local x = images.picture(6, 8, 3):as_in_context(options.ctx)
    image.imwrite(images.path("x.png"), x)
    local out, small = nd.zeros({ 6, 8, 3 }, options), nd.zeros({ 3, 4, 3 }, options)
    assert.equal(out, image.imread{ images.path("x.png"), out = out })
    images.same(x, out)
    out[":"] = 0
    assert.equal(out, image.imdecode{ image.imencode(x, { img_fmt = ".png" }), out = out })
    images.same(x, out)
    assert.equal(small, image.imresize{ x, 4, 3, out = small })
    images.same(image.imresize(x, 4, 3), small)
    local border = nd.zeros({ 7, 10, 3 }, options)
    assert.equal(border, image.copyMakeBorder{ x, 1, 0, 2, 0, value = 7, out = border })
    images.same(image.copyMakeBorder{ x, 1, 0, 2, 0, value = 7 }, border)
  end)

  it("has the shape and type of the image", function()
    local x = images.picture(6, 8, 3)
    local bytes = image.imencode(x, { img_fmt = ".png" })
    for _, out in ipairs{ nd.zeros({ 6, 8, 1 }, { dtype = "uint8" }), nd.zeros{ 6, 8, 3 } } do
      for _, f in ipairs{ function() image.imdecode{ bytes, out = out } end,
          function() image.imresize{ x, 8, 6, out = out } end,
          function() image.copyMakeBorder{ x, 0, 0, 0, 0, out = out } end } do
        local ok, e = pcall(f)
        assert.is_false(ok)
        assert.is_true(ty.is_error(e), tostring(e))
      end
    end
  end)
end)
