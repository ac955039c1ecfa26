-- Images: files, resampling, colours, augmenters, iterators; what the recorded cases do not reach.

local chance = require "tycho.image.random"
local ty = require "tycho"
local shell = require "spec.support.shell"

local image, nd = ty.image, ty.nd

local folder

local function path(name) return folder .. "/" .. name end

local function write(name, text)
  local file = assert(io.open(path(name), "wb"))
  file:write(text)
  file:close()
  return path(name)
end

-- A smooth picture with all levels.
local function picture(h, w, c, seed)
  local rows = {}
  for y = 1, h do
    rows[y] = {}
    for x = 1, w do
      rows[y][x] = {}
      for k = 1, c do
        rows[y][x][k] = math.floor(127.5 + 127 * math.sin((seed or 0) + y / (3 + k) + x * k / 7))
      end
    end
  end
  return nd.array(rows, { dtype = "uint8" })
end

local function constant(h, w, c, v) return nd.full({ h, w, c }, v, { dtype = "uint8" }) end

local function largest(x, y)
  return (x:astype("float32") - y:astype("float32")):abs():max():asscalar()
end

local function same(x, y)
  assert.same(x.shape, y.shape)
  assert.equal(0, largest(x, y))
end

describe("image", function()
  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    assert(os.execute("mkdir " .. folder) == 0)
  end)
  teardown(function() os.execute("rm -r " .. folder) end)

  describe("files", function()
    it("keep every pixel of a PNG", function()
      for _, channels in ipairs{ 1, 3, 4 } do
        local x = picture(7, 5, channels)
        same(x, image.imdecode(image.imencode(x, { img_fmt = ".png" }), { flag = -1 }))
      end
      local flat = picture(3, 4, 1):reshape{ 3, 4 }
      same(flat, image.imdecode(image.imencode(flat, { img_fmt = ".png", quality = 0 }),
        { flag = 0 }):reshape{ 3, 4 })
    end)

    it("nearly keep a JPEG", function()
      local x = image.imresize(picture(8, 6, 3), 24, 32)
      assert.is_true(largest(x, image.imdecode(image.imencode(x, { quality = 100 }))) <= 24)
      local grey = picture(32, 24, 1)
      assert.is_true(largest(grey,
        image.imdecode(image.imencode(grey, { quality = 100 }), { flag = -1 })) <= 3)
      assert.is_true(#image.imencode(x, { quality = 10 }) < #image.imencode(x, { quality = 95 }))
    end)

    it("are read in other orders and numbers of channels", function()
      local x = picture(4, 6, 3)
      local bytes = image.imencode(x, { img_fmt = ".png" })
      same(x:flip{ axis = 2 }, image.imdecode(bytes, { to_rgb = false }))
      assert.shape({ 4, 6, 1 }, image.imdecode(bytes, { flag = 0 }))
      local grey = image.imencode(picture(4, 6, 1), { img_fmt = ".png" })
      assert.shape({ 4, 6, 3 }, image.imdecode(grey))
      assert.shape({ 4, 6, 1 }, image.imdecode(grey, { flag = -1 }))
      same(x, image.imdecode(nd.from_string(bytes, { shape = { #bytes }, dtype = "uint8" })))
      same(x, nd._cvimdecode(nd.from_string(bytes, { shape = { #bytes }, dtype = "uint8" })))
    end)

    it("are decoded into a batch", function()
      local x = picture(4, 6, 3)
      local bytes = image.imencode(x, { img_fmt = ".png" })
      local want = x:flip{ axis = 2 }:transpose{ 2, 0, 1 }
      same(want, nd.imdecode(bytes))
      local batch = nd.zeros{ 2, 3, 2, 3 }
      nd.imdecode(bytes,
        { clip_rect = { 1, 2, 4, 4 }, out = batch, index = 1, mean = nd.ones{ 1 } })
      same(want:slice{ begin = { 0, 2, 1 }, ["end"] = { 3, 4, 4 } } - 1, batch:at(1))
      assert.equal(0, batch:at(0):sum():asscalar())
    end)

    it("are written and read by name", function()
      local x = picture(5, 4, 3)
      image.imwrite(path("x.png"), x)
      same(x, image.imread(path("x.png")))
      same(x, nd._cvimread{ filename = path("x.png") })
      image.imwrite(path("x.jpeg"), x, { quality = 90 })
      assert.shape({ 5, 4, 3 }, image.imread(path("x.jpeg")))
    end)

    it("that are damaged or missing are refused", function()
      assert.raises("io", image.imread, path("none.png"))
      assert.raises("format", image.imdecode, "")
      assert.raises("format", image.imdecode, "\255\216\255")
      assert.raises("format", image.imread, write("text.png", "no image"))
      assert.raises("io", nd._cvimread, { filename = path("none.png") })
      assert.raises("value", image.imwrite, path("x.bmp"), picture(2, 2, 3))
      assert.raises("value", image.imencode, picture(2, 2, 3), { img_fmt = ".gif" })
      assert.raises("value", image.imencode, picture(2, 2, 3), { quality = 101 })
      assert.raises("shape", image.imencode, picture(2, 2, 4))
      assert.raises("shape", image.imencode, picture(2, 2, 2))
      assert.raises("dtype", image.imencode, nd.zeros{ 2, 2, 3 })
      assert.raises("shape", function()
        ty.sym._cvimdecode{ ty.sym.Variable("x", { dtype = "uint8" }) }
          :simple_bind{ ctx = ty.cpu(), x = { 9 }, grad_req = "null" }
      end)
    end)

    it("that end early give an error at every length", function()
      for _, format in ipairs{ ".png", ".jpg" } do
        local bytes, refused = image.imencode(picture(9, 11, 3), { img_fmt = format }), 0
        local whole = image.imdecode(bytes)
        for n = 0, #bytes - 1 do
          local ok, x = pcall(image.imdecode, bytes:sub(1, n))
          if ok then
            same(whole, x)
          else
            assert.equal("format", x.code, tostring(x))
            refused = refused + 1
          end
        end
        -- the last bytes hold no pixels
        assert.is_true(refused >= #bytes - 12, format .. ": refused " .. refused)
      end
    end)

    it("with wrong bytes neither crash nor leak", function()
      collectgarbage()
      collectgarbage()
      local before = ty.live().tensors
      for _, format in ipairs{ ".png", ".jpg" } do
        local bytes = image.imencode(picture(9, 11, 3), { img_fmt = format })
        ty.scope(function()
          for at = 1, #bytes do
            for _, byte in ipairs{ 0, 255, bit.bxor(bytes:byte(at), 16) } do
              local ok, x = pcall(image.imdecode,
                bytes:sub(1, at - 1) .. string.char(byte) .. bytes:sub(at + 1))
              assert.is_true(ok or x.code == "format", tostring(x))
            end
          end
        end)
      end
      collectgarbage()
      collectgarbage()
      assert.is_true(ty.live().tensors <= before,
        ("%d tensors, before %d"):format(ty.live().tensors, before))
    end)
  end)

  describe("resampling", function()
    it("keeps images of one colour", function()
      for _, size in ipairs{ { 3, 2 }, { 7, 5 }, { 13, 9 }, { 20, 31 }, { 1, 1 } } do
        for interp = 0, 4 do
          local y = image.imresize(constant(9, 13, 3, 200), size[1], size[2], interp)
          assert.shape({ size[2], size[1], 3 }, y)
          assert.is_true(
            largest(y, constant(size[2], size[1], 3, 200))
              <= (interp == 2 and 1 or interp == 4 and 1 or 0),
            ("rule %d to %d x %d"):format(interp, size[1], size[2]))
        end
      end
    end)

    -- rows of the results for one image, as OpenCV's resize gives them
    local SMALL = { { { 10 }, { 200 }, { 30 }, { 90 } }, { { 250 }, { 0 }, { 128 }, { 64 } },
      { { 77 }, { 33 }, { 222 }, { 150 } } }
    local KNOWN = {
      [0] = { { 10, 10, 200, 30, 30, 90, 10, 10, 200, 30, 30, 90, 250, 250, 0, 128, 128, 64, 250,
        250, 0, 128, 128, 64, 77, 77, 33, 222, 222, 150 }, { 10, 200, 30, 250, 0, 128 } },
      { { 10, 105, 172, 58, 60, 90, 106, 113, 112, 77, 74, 80, 250, 125, 21, 107, 96, 64, 146, 83,
        47, 157, 150, 116, 77, 55, 64, 190, 186, 150 }, { 83, 102, 79, 104, 112, 140 } },
      { { 0, 122, 210, 47, 38, 99, 115, 123, 112, 69, 62, 75, 255, 113, 0, 111, 108, 58, 175, 66,
        20, 170, 171, 108, 62, 30, 63, 209, 213, 152 }, { 84, 106, 75, 106, 108, 143 } },
      { { 10, 105, 200, 30, 60, 90, 90, 111, 133, 62, 72, 81, 250, 125, 0, 128, 96, 64, 135, 78, 22,
        190, 156, 121, 77, 55, 33, 222, 186, 150 }, { 101, 98, 77, 106, 106, 139 } },
      { { 0, 127, 212, 54, 25, 111, 118, 128, 111, 65, 57, 74, 255, 107, 0, 106, 123, 51, 189, 57,
        15, 169, 186, 99, 59, 22, 70, 208, 216, 148 }, { 90, 105, 68, 105, 106, 150 } },
    }
    for interp = 0, 4 do
      it("gives known bytes by rule " .. interp, function()
        local x = nd.array(SMALL, { dtype = "uint8" })
        assert.same(KNOWN[interp][1], image.imresize(x, 6, 5, interp):reshape{ 30 }:totable())
        assert.same(KNOWN[interp][2], image.imresize(x, 3, 2, interp):reshape{ 6 }:totable())
      end)
    end

    it("averages areas", function()
      local x = nd.arange(36):reshape{ 6, 6, 1 }
      assert.near({ { { 3.5 }, { 5.5 }, { 7.5 } }, { { 15.5 }, { 17.5 }, { 19.5 } },
        { { 27.5 }, { 29.5 }, { 31.5 } } }, image.imresize(x, 3, 3, 3), 1e-5)
      assert.near({ { { 3.5 } } },
        image.imresize(x, 3, 3, 1):slice{ begin = { 0, 0, 0 }, ["end"] = { 1, 1, 1 } }, 1e-5)
      assert.near({ { { 10.5 } , { 14 }, { 17.5 } } },
        image.imresize(nd.array{ { { 9 }, { 12 }, { 14 }, { 16 }, { 19 } } }, 3, 1,
          3):slice{ begin = { 0, 0, 0 }, ["end"] = { 1, 3, 1 } }, 0.6)
    end)

    it("is bilinear between pixels", function()
      local x = nd.array{ { { 0 }, { 10 }, { 30 } } }
      assert.near({ { { 0 }, { 2.5 }, { 7.5 }, { 15 }, { 25 }, { 30 } } },
        image.imresize(x, 6, 1, 1), 1e-5)
      assert.near({ { { 0 }, { 0 }, { 10 }, { 10 }, { 30 }, { 30 } } },
        image.imresize(x, 6, 1, 0), 0)
    end)

    it("of bytes stays within one level of that of floats", function()
      local x = picture(17, 23, 3)
      for interp = 0, 4 do
        for _, size in ipairs{ { 8, 8 }, { 40, 30 }, { 23, 34 }, { 11, 40 } } do
          local bytes = image.imresize(x, size[1], size[2], interp)
          local floats = image.imresize(x:astype("float32"), size[1], size[2], interp)
          assert.is_true(largest(bytes, floats:clip(0, 255)) <= 1.01, ("rule %d"):format(interp))
        end
      end
    end)

    it("chooses a rule by the sizes", function()
      local x = picture(8, 8, 3)
      same(image.resize_short(x, 16, 2), image.resize_short(x, 16, 9))
      same(image.resize_short(x, 5, 3), image.resize_short(x, 5, 9))
      assert.shape({ 5, 5, 3 }, image.resize_short(x, 5, 10))
      assert.raises("value", image.resize_short, x, 5, 7)
      assert.raises("value", image.imresize, x, 0, 5)
    end)

    it("serves batches and proportions", function()
      local a, b = picture(6, 8, 3), picture(6, 8, 3, 2)
      local both = nd.image.resize(nd.stack{ a, b, axis = 0 }, { size = { 4, 3 } })
      same(nd.image.resize(a, { size = { 4, 3 } }), both:at(0))
      same(nd.image.resize(b, { size = { 4, 3 } }), both:at(1))
      assert.shape({ 3, 4, 3 }, nd.image.resize(a, { size = 3, keep_ratio = true }))
      assert.raises("value", nd.image.resize, a)
    end)
  end)

  describe("borders", function()
    local x = nd.array({ { { 1 }, { 2 }, { 3 } } }, { dtype = "uint8" })
    local rows = { [0] = { 9, 9, 1, 2, 3, 9, 9 }, { 1, 1, 1, 2, 3, 3, 3 }, { 2, 1, 1, 2, 3, 3, 2 },
      { 2, 3, 1, 2, 3, 1, 2 }, { 3, 2, 1, 2, 3, 2, 1 } }
    for kind, row in pairs(rows) do
      it("of type " .. kind, function()
        local y = image.copyMakeBorder{ x, 0, 0, 2, 2, type = kind, value = 9 }
        assert.same(row, y:reshape{ 7 }:totable())
      end)
    end

    it("too large to mirror are refused", function()
      assert.raises("shape", image.copyMakeBorder, { x, 0, 0, 4, 0, type = 2 })
      assert.raises("shape", image.copyMakeBorder, { x, 0, 0, 3, 0, type = 4 })
      assert.raises("value", image.copyMakeBorder, { x, 0, 0, 1, 0, type = 5 })
    end)
  end)

  describe("windows", function()
    it("shrink to the image", function()
      assert.same({ 360, 360 }, image.scale_down({ 640, 360 }, { 720, 720 }))
      assert.same({ 4, 3 }, image.scale_down({ 9, 9 }, { 4, 3 }))
      local y, place = image.center_crop(picture(4, 8, 3), { 4, 8 })
      assert.shape({ 8, 4, 3 }, y)
      assert.same({ 3, 0, 2, 4 }, place)
    end)

    it("come from where they say", function()
      local x = picture(9, 8, 3)
      for _ = 1, 10 do
        local y, p = image.random_crop(x, { 3, 5 })
        same(image.fixed_crop(x, p[1], p[2], 3, 5), y)
        local z, q = image.random_size_crop(x, { 4, 4 }, { 0.2, 0.9 }, { 0.5, 2 })
        same(image.fixed_crop(x, q[1], q[2], q[3], q[4], { 4, 4 }), z)
        assert.is_true(q[3] * q[4] <= 0.9 * 72 + 12)
      end
      assert.raises("shape", image.fixed_crop, x, 6, 0, 3, 3)
    end)
  end)

  describe("operators", function()
    it("of chance repeat with the seed", function()
      local x = picture(6, 5, 3)
      local calls = {
        function() return nd.image.random_brightness(x, { min_factor = 0.2, max_factor = 1.5 }) end,
        function() return nd.image.random_contrast(x, { min_factor = 0.2, max_factor = 1.5 }) end,
        function() return nd.image.random_saturation(x, { min_factor = 0.2, max_factor = 1.5 }) end,
        function() return nd.image.random_hue(x, { min_factor = 0.2, max_factor = 1.5 }) end,
        function() return nd.image.random_lighting(x, { alpha_std = 1 }) end,
        function()
          return nd.image.random_color_jitter(x,
            { brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.4 })
        end,
      }
      for i, call in ipairs(calls) do
        ty.random.seed(7)
        local a, b = call(), call()
        ty.random.seed(7)
        same(a, call())
        assert.is_true(largest(a, b) > 0, "call " .. i .. " draws the same again")
      end
    end)

    it("flip every second time", function()
      ty.random.seed(3)
      local x, turned = picture(3, 4, 3), 0
      for _ = 1, 200 do
        local y = nd.image.random_flip_left_right(x)
        turned = turned + (largest(x, y) > 0 and 1 or 0)
      end
      assert.is_true(turned > 70 and turned < 130, turned .. " of 200")
      same(x:flip{ axis = 1 }, nd.image.flip_left_right(x))
      same(x:flip{ axis = 0 }, nd.image.flip_top_bottom(x))
    end)

    it("leave images alone where nothing is asked", function()
      local x = picture(6, 5, 3):astype("float32")
      assert.near(x, nd.image.random_color_jitter(x,
        { brightness = 0, contrast = 0, saturation = 0, hue = 0 }), 0)
      assert.near(x, nd.image.random_contrast(x, { min_factor = 1, max_factor = 1 }), 1e-4)
      assert.near(x, nd.image.random_hue(x, { min_factor = 1, max_factor = 1 }), 1e-3)
    end)

    it("draw factors between their limits", function()
      local x, low, high = nd.ones{ 1, 1, 3 }, 9, 0
      for _ = 1, 200 do
        local v =
          nd.image.random_brightness(x, { min_factor = 0.5, max_factor = 1.5 }):totable()[1][1][1]
        low, high = math.min(low, v), math.max(high, v)
      end
      assert.is_true(low >= 0.5 and low < 0.6 and high <= 1.5 and high > 1.4)
      assert.raises("value", nd.image.random_brightness, x, { min_factor = 2, max_factor = 1 })
    end)

    it("refuse what is no image", function()
      assert.raises("shape", nd.image.random_hue, nd.ones{ 2, 2 },
        { min_factor = 1, max_factor = 1 })
      assert.raises("shape", nd.image.random_hue, nd.ones{ 2, 2, 4 },
        { min_factor = 1, max_factor = 1 })
      assert.raises("value", nd.image.adjust_lighting, nd.ones{ 2, 2, 3 }, { alpha = { 1, 2 } })
      assert.raises("value", nd.image.normalize, nd.ones{ 3, 2, 2 }, { std = { 0 } })
      assert.raises("shape", nd.image.crop, nd.ones{ 2, 2, 3 },
        { x = 1, y = 0, width = 2, height = 1 })
      assert.raises("shape", nd.image.to_tensor, nd.ones{ 2, 2 })
    end)

    it("pass gradients where pixels only move or scale", function()
      local function gradient(op, options, shape, head)
        options[1] = ty.sym.Variable("x")
        local exe =
          ty.sym.image[op](options):simple_bind{ ctx = ty.cpu(), x = shape, grad_req = "write" }
        exe:forward{ is_train = true }
        exe:backward{ head }
        return exe.grad_dict.x
      end
      local head = nd.arange(6):reshape{ 1, 2, 3 }
      assert.near({ { { 0, 1, 2 }, { 3, 4, 5 }, { 0, 0, 0 } } },
        gradient("crop", { x = 0, y = 0, width = 2, height = 1 }, { 1, 3, 3 }, head), 0)
      assert.near({ { { 3, 4, 5 }, { 0, 1, 2 } } },
        gradient("flip_left_right", {}, { 1, 2, 3 }, head), 0)
      assert.near({ { { 0, 1 / 255 }, { 2 / 255, 3 / 255 }, { 4 / 255, 5 / 255 } } },
        gradient("to_tensor", {}, { 1, 3, 2 }, nd.array{ { { 0, 2, 4 } }, { { 1, 3, 5 } } }), 1e-7)
      assert.is_false(
        (pcall(gradient, "random_hue", { min_factor = 1, max_factor = 1 }, { 1, 2, 3 }, head)))
    end)
  end)

  describe("augmenters", function()
    it("make the usual list", function()
      local names = {}
      for i, step in ipairs(image.CreateAugmenter{ data_shape = { 3, 8, 8 }, resize = 12,
          rand_crop = true, rand_resize = true, rand_mirror = true, mean = true, std = true,
          brightness = 0.1, contrast = 0.1, saturation = 0.1, hue = 0.1,
          pca_noise = 0.1, rand_gray = 0.5 }) do
        names[i] = step.class_name
      end
      assert.same({ "ResizeAug", "RandomSizedCropAug", "HorizontalFlipAug", "CastAug",
        "ColorJitterAug", "HueJitterAug", "LightingAug", "RandomGrayAug",
        "ColorNormalizeAug" }, names)
      assert.raises("value", image.CreateAugmenter,
        { data_shape = { 3, 8, 8 }, rand_resize = true })
      assert.raises("name", image.CreateAugmenter, { data_shape = { 3, 8, 8 }, bright = 1 })
    end)

    it("give images of the wanted shape", function()
      local x = picture(20, 15, 3)
      for _, step in ipairs(image.CreateAugmenter{ data_shape = { 3, 8, 6 }, resize = 12,
          rand_crop = true, rand_resize = true, rand_mirror = true, mean = true, std = { 1, 2, 3 },
          brightness = 0.1, contrast = 0.1, saturation = 0.1, hue = 0.1,
          pca_noise = 0.1, rand_gray = 0.5 }) do
        x = step(x)
      end
      assert.shape({ 8, 6, 3 }, x)
      assert.equal("float32", x.dtype)
    end)

    it("do what their names say", function()
      local x = picture(6, 5, 3):astype("float32")
      assert.near(x, image.BrightnessJitterAug(0)(x), 0)
      assert.near(x, image.ContrastJitterAug(0)(x), 1e-4)
      assert.near(x, image.SaturationJitterAug(0)(x), 1e-4)
      assert.near(x, image.HueJitterAug(0)(x), 1.5)
      assert.near(x, image.LightingAug(0)(x), 0)
      assert.near(x:flip{ axis = 1 }, image.HorizontalFlipAug(1)(x), 0)
      assert.near(x, image.HorizontalFlipAug(0)(x), 0)
      local grey = image.RandomGrayAug(1)(x):totable()[2][3]
      assert.near({ grey[1], grey[1] }, { grey[2], grey[3] }, 1e-3)
      assert.shape({ 4, 7, 3 }, image.ForceResizeAug({ 7, 4 })(x))
      assert.near({ { { 2, 1.5 } } },
        image.ColorNormalizeAug{ { 1, 2 }, { 1, 2 } }(nd.array{ { { 3, 5 } } }), 1e-6)
      local order = {}
      local function step(k)
        return function(y)
          order[#order + 1] = k
          return y
        end
      end
      image.SequentialAug{ step(1), step(2) }(x)
      assert.same({ 1, 2 }, order)
      image.RandomOrderAug{ step(3), step(4) }(x)
      assert.equal(7, order[3] + order[4])
      assert.equal("[\"resizeaug\", {\"interp\": 1, \"size\": 5}]", image.ResizeAug(5, 1):dumps())
    end)

    it("repeat with the seed", function()
      local x = picture(20, 15, 3)
      local function changed()
        local y = x
        for _, step in ipairs(image.CreateAugmenter{ data_shape = { 3, 8, 6 }, rand_crop = true,
            rand_resize = true, rand_mirror = true, brightness = 0.1, contrast = 0.1,
            saturation = 0.1, hue = 0.1, pca_noise = 0.1 }) do
          y = step(y)
        end
        return y
      end
      ty.random.seed(11)
      local first, second = changed(), changed()
      ty.random.seed(11)
      assert.near(first, changed(), 0)
      assert.is_true(largest(first, second) > 0)
      local sum, squares = 0, 0
      for _ = 1, 2000 do
        local v = chance.uniform(-1, 1)
        assert.is_true(v >= -1 and v < 1)
        sum, squares = sum + v, squares + chance.normal(2) ^ 2
      end
      assert.near(0, sum / 2000, 0.06)
      assert.near(4, squares / 2000, 0.6)
    end)

    it("can be of one's own", function()
      local Negative = image.Augmenter:extend("Negative")
      function Negative.apply(_, x) return 255 - x end
      assert.same({ { { 254 } } }, Negative()(constant(1, 1, 1, 1)):totable())
      assert.raises("unsupported", image.Augmenter(), picture(2, 2, 3))
    end)
  end)

  -- n images of h x w with label i and, in the first pixel, i
  local function pack(name, n, options)
    options = options or {}
    local w = ty.recordio.MXIndexedRecordIO(path(name .. ".idx"), path(name .. ".rec"), "w")
    for i = 0, n - 1 do
      local x = picture(options.h or 6, options.w or 6, 3, i)
      x["0, 0"] = i
      w:write_idx(i,
        ty.recordio.pack_img(ty.recordio.IRHeader{ 0, options.labels and { i, -i } or i, i, 0 },
          x, { img_fmt = ".png" }))
    end
    w:close()
    return path(name .. ".rec"), path(name .. ".idx")
  end

  local function labels_of(it)
    local list, pads = {}, {}
    for batch in it do
      for _, v in ipairs(batch.label[1]:reshape{ -1 }:totable()) do
        list[#list + 1] = v
      end
      pads[#pads + 1] = batch.pad
    end
    return list, pads
  end

  local function sorted(list)
    local copy = { unpack(list) }
    table.sort(copy)
    return copy
  end

  describe("ImageIter", function()
    it("reads files from a list", function()
      for i = 0, 4 do
        image.imwrite(path(("f%d.png"):format(i)), constant(3, 3, 3, i))
      end
      write("files.lst", "0\t5\tf0.png\n1\t6\tf1.png\n4\t7\tf4.png\n")
      local it = image.ImageIter{ batch_size = 2, data_shape = { 3, 3, 3 },
        path_imglist = path("files.lst"), path_root = folder }
      local list, pads = labels_of(it)
      assert.same({ 5, 6, 7, 5 }, list)
      assert.same({ 0, 1 }, pads)
      it:reset()
      assert.same({ 5, 6, 7, 5 }, (labels_of(it)))
      local rows = { { { 1, 2 }, path("f1.png") }, { 3, 4, path("f2.png") } }
      local two = image.ImageIter{ batch_size = 2, data_shape = { 3, 3, 3 }, imglist = rows,
        label_width = 2 }:next()
      assert.same({ { 1, 2 }, { 3, 4 } }, two.label[1]:totable())
      assert.equal(2, two.data[1]:totable()[2][1][1][1])
    end)

    it("treats the last batch as asked", function()
      local rec, idx = pack("iter", 5)
      local function open(options)
        options.batch_size, options.data_shape, options.path_imgrec = 2, { 3, 6, 6 }, rec
        return image.ImageIter(options)
      end
      assert.same({ 0, 1, 2, 3 }, (labels_of(open{ last_batch_handle = "discard" })))
      local it = open{ last_batch_handle = "roll_over" }
      assert.same({ 0, 1, 2, 3 }, (labels_of(it)))
      it:reset()
      assert.same({ 4, 0, 1, 2, 3, 4 }, (labels_of(it)))
      assert.same({ 0, 1, 2, 3, 4, 0 }, (labels_of(open{})))
      assert.same({ 2, 3 }, (labels_of(open{ path_imgidx = idx, num_parts = 2, part_index = 1 })))
      local mixed = open{ path_imgidx = idx, shuffle = true, last_batch_handle = "discard" }
      ty.random.seed(5)
      mixed:reset()
      local first = labels_of(mixed)
      ty.random.seed(5)
      mixed:reset()
      assert.is_true(#first == 4 and #sorted(first) == 4)
      assert.raises("value", open, { shuffle = true })
      assert.raises("value", open, { last_batch_handle = "throw" })
    end)

    it("goes on from a state", function()
      local rec, idx = pack("resume", 7)
      for _, index in ipairs{ idx, false } do
        local function open()
          return image.ImageIter{ batch_size = 2, data_shape = { 3, 6, 6 }, path_imgrec = rec,
            path_imgidx = index or nil, shuffle = index ~= false }
        end
        local it, other = open(), open()
        it:next()
        local state = it:state()
        local want = labels_of(it)
        other:next()
        other:next()
        other:set_state(state)
        assert.same(want, (labels_of(other)))
      end
      assert.raises("value", function()
        image.ImageIter{ batch_size = 2, data_shape = { 3, 6, 6 }, path_imgrec = rec }
          :set_state{}
      end)
    end)

    it("names what it cannot read", function()
      write("bad.lst", "0\t5\ttext.png\n")
      write("text.png", "no image")
      local it = image.ImageIter{ batch_size = 1, data_shape = { 3, 3, 3 },
        path_imglist = path("bad.lst"), path_root = folder }
      local e = select(2, pcall(it.next, it))
      assert.equal("format", e.code)
      assert.is_truthy(tostring(e):find("text.png", 1, true))
      assert.raises("value", image.ImageIter, { batch_size = 1, data_shape = { 3, 3, 3 } })
      write("worse.lst", "zero\t5\ttext.png\n")
      assert.raises("format", image.ImageIter,
        { batch_size = 1, data_shape = { 3, 3, 3 }, path_imglist = path("worse.lst") })
    end)
  end)

  describe("ImageRecordIter", function()
    local packed = {}                                    -- number of images by name

    local function open(name, n, options)
      if packed[name] ~= n then
        pack(name, n, { h = 12, w = 10 })
        packed[name] = n
      end
      options.path_imgrec = path(name .. ".rec")
      options.path_imgidx = options.path_imgidx and path(name .. ".idx") or nil
      options.data_shape, options.batch_size =
        options.data_shape or { 3, 8, 8 }, options.batch_size or 4
      return ty.io.ImageRecordIter(options)
    end

    local function batches(it, epochs)
      local list = {}
      for _ = 1, epochs do
        for batch in it do
          list[#list + 1] = batch.data[1]:tostring_raw() .. batch.label[1]:tostring_raw()
        end
        it:reset()
      end
      it:free()
      return list
    end

    local WILD = { rand_crop = true, rand_mirror = true, max_rotate_angle = 20,
      max_shear_ratio = 0.1, min_random_scale = 0.9, max_random_scale = 1.2, brightness = 0.3,
      contrast = 0.3, saturation = 0.3, random_h = 9, random_s = 9, random_l = 9,
      pca_noise = 0.1, pad = 2, max_random_contrast = 0.1, max_random_illumination = 3,
      inter_method = 10, resize = 11 }

    local function wild(options)
      for key, v in pairs(WILD) do
        options[key] = v
      end
      return options
    end

    it("gives the same batches on any number of threads", function()
      local want =
        batches(open("threads", 23, wild{ shuffle = true, seed = 3, preprocess_threads = 1 }), 3)
      for threads = 2, 8, 3 do
        assert.same(want, batches(open("threads", 23,
          wild{ shuffle = true, seed = 3, preprocess_threads = threads }), 3))
      end
      assert.is_true(
        want[1] ~= batches(open("threads", 23, wild{ shuffle = true, seed = 4 }), 1)[1])
      assert.is_true(want[1]
        ~= batches(open("threads", 23, wild{ shuffle = true, seed = 3, seed_aug = 4 }), 1)[1])
    end)

    it("begins each epoch anew wherever it was left", function()
      local want = batches(open("anew", 12, wild{ shuffle = true }), 2)
      local it = open("anew", 12, wild{ shuffle = true })
      it:next()
      it:reset()
      local second = batches(it, 1)
      assert.same({ want[4], want[5], want[6] }, second)
    end)

    it("goes on from a state", function()
      local options = wild{ shuffle = true, seed = 1 }
      local it = open("state", 14, options)
      for _ = 1, 2 do
        labels_of(it)
        it:reset()
      end
      it:next()
      local state, want = it:state(), it:next()
      local other = open("state", 14, options)
      other:set_state(state)
      same(want.data[1], other:next().data[1])
      assert.same(labels_of(it), (labels_of(other)))
    end)

    it("shuffles all records, with and without an index", function()
      for _, index in ipairs{ true, false } do
        local it = open("mixed", 12, { shuffle = true, path_imgidx = index })
        local first = labels_of(it)
        it:reset()
        local second = labels_of(it)
        assert.same({ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 }, sorted(first))
        assert.same(sorted(first), sorted(second))
        assert.is_true(table.concat(first, " ") ~= table.concat(second, " "))
      end
    end)

    it("splits into parts that cover everything once", function()
      for _, index in ipairs{ true, false } do
        local all = {}
        for part = 0, 4 do
          local it = open("parts", 17,
            { num_parts = 5, part_index = part, batch_size = 1, path_imgidx = index })
          for _, v in ipairs((labels_of(it))) do
            all[#all + 1] = v
          end
        end
        assert.equal(17, #all)
        assert.same(sorted(all), all)
      end
      assert.raises("value", open, "parts", 3, { num_parts = 2, part_index = 2 })
    end)

    it("knows bytes, mean images and labels", function()
      local bytes = open("bytes", 4, { dtype = "uint8", data_shape = { 3, 12, 10 } }):next().data[1]
      assert.equal("uint8", bytes.dtype)
      local floats = open("bytes", 4, { data_shape = { 3, 12, 10 } }):next().data[1]
      same(bytes, floats)
      same(bytes, ty.io.ImageRecordUInt8Iter{ path_imgrec = path("bytes.rec"),
        data_shape = { 3, 12, 10 }, batch_size = 4 }:next().data[1])
      assert.equal("float64", open("bytes", 4, { dtype = "float64" }):next().data[1].dtype)
      nd.save(path("mean.nd"), { mean_img = floats:at(0) })
      local mean = open("bytes", 4,
        { data_shape = { 3, 12, 10 }, mean_img = path("mean.nd"), scale = 0.5 }):next().data[1]
      assert.near((floats - floats:slice{ begin = { 0 }, ["end"] = { 1 } }):totable()[2][3][4],
        (mean * 2):totable()[2][3][4], 1e-4)
      open("bytes", 4,
        { data_shape = { 3, 12, 10 }, mean_img = path("made.nd"), scale = 9, mirror = true }):free()
      assert.near(floats:mean{ axis = 0 }, nd.load(path("made.nd")).mean_img, 1e-3)
      local rec = pack("two", 3, { labels = true })
      local it = ty.io.ImageRecordIter{ path_imgrec = rec, data_shape = { 3, 6, 6 },
        batch_size = 3, label_width = 2 }
      assert.same({ { 0, 0 }, { 1, -1 }, { 2, -2 } }, it:next().label[1]:totable())
      assert.raises("shape", ty.io.ImageRecordIter,
        { path_imgrec = rec, data_shape = { 3, 6, 6 }, batch_size = 3 })
      write("labels.lst", "2\t20\tc\n0\t30\ta\n1\t40\tb\n")
      it = ty.io.ImageRecordIter{ path_imgrec = rec, data_shape = { 3, 6, 6 }, batch_size = 3,
        path_imglist = path("labels.lst") }
      assert.same({ 30, 40, 20 }, it:next().label[1]:totable())
    end)

    it("mirrors, turns and cuts", function()
      local plain = open("cut", 4, { data_shape = { 3, 12, 10 } }):next().data[1]
      same(plain:flip{ axis = 3 },
        open("cut", 4, { data_shape = { 3, 12, 10 }, mirror = true }):next().data[1])
      local around = open("cut", 4, { data_shape = { 3, 12, 10 }, rotate = 360 }):next().data[1]
      assert.is_true(largest(plain, around) <= 1)
      assert.shape({ 4, 3, 5, 7 },
        open("cut", 4, { data_shape = { 3, 5, 7 }, random_resized_crop = true,
          min_random_area = 0.1, min_aspect_ratio = 0.5, max_aspect_ratio = 2 }):next().data[1])
      assert.shape({ 4, 3, 5, 7 }, open("cut", 4,
        { data_shape = { 3, 5, 7 }, max_crop_size = 9, min_crop_size = 6 }):next().data[1])
      assert.shape({ 4, 1, 8, 8 }, open("cut", 4, { data_shape = { 1, 8, 8 } }):next().data[1])
      assert.shape({ 4, 4, 8, 8 },
        open("cut", 4, { data_shape = { 4, 8, 8 }, brightness = 0.2, random_h = 3 }):next().data[1])
    end)

    it("says what is wrong", function()
      local rec = pack("wrong", 6, { h = 12, w = 10 })
      local function refuse(code, options)
        options.path_imgrec, options.batch_size = options.path_imgrec or rec, 2
        options.data_shape = options.data_shape or { 3, 8, 8 }
        return assert.raises(code, ty.io.ImageRecordIter, options)
      end
      refuse("io", { path_imgrec = path("none.rec") })
      refuse("io", { path_imgidx = path("none.idx") })
      refuse("shape", { data_shape = { 3, 64, 64 } })
      refuse("value", { data_shape = { 2, 8, 8 } })
      refuse("value", { data_shape = { 3, 8 } })
      refuse("value", { inter_method = 7 })
      refuse("value", { std_r = 0 })
      refuse("value", { max_crop_size = 9 })
      refuse("value", { min_random_scale = 0 })
      refuse("value", { dtype = "uint8", mean_r = 3 })
      refuse("io", { mean_img = path("none/none.nd") })
      refuse("name", { colour = 1 })
      refuse("name", { path_imglist = write("few.lst", "77\t1\tx\n") })
      refuse("format", { path_imglist = write("odd.lst", "x y z\n") })
      refuse("format", { path_imgidx = write("odd.idx", "0 0\n") })
      refuse("format", { path_imgidx = write("off.idx", "0\t4\n1\t99999999\n") })
      refuse("value", { path_imgrec = write("empty.rec", "") })
    end)

    it("gives what stands before damage, then the error, at every length of the file", function()
      local file = assert(io.open((pack("cut", 3)), "rb"))
      local bytes = file:read("*a")
      file:close()
      local size = #bytes / 3
      for n = 0, #bytes - 1, 7 do
        write("short.rec", bytes:sub(1, n))
        local ok, e = pcall(function()
          local it = ty.io.ImageRecordIter{ path_imgrec = path("short.rec"),
            data_shape = { 3, 6, 6 }, batch_size = 1, preprocess_threads = 2, prefetch_buffer = 1 }
          local list = labels_of(it)
          it:free()
          return #list
        end)
        if ok then
          assert.is_true(e * size <= n + 200, "more images than there are")
        else
          assert.is_true(e.code == "format" or e.code == "value", tostring(e))
        end
      end
    end)

    it("ends its threads", function()
      local it = open("threads", 23, {})
      it:free()
      collectgarbage()
      collectgarbage()
      local before = ty.live().iters
      it = open("threads", 23, {})
      assert.equal(before + 1, ty.live().iters)
      it:next()
      it:free()
      assert.equal(before, ty.live().iters)
    end)
  end)

  it("trains a network from a record file", function()
    local w = ty.recordio.MXIndexedRecordIO(path("train.idx"), path("train.rec"), "w")
    for i = 0, 39 do
      local x = picture(12, 12, 3, i)
      x["2:9, 2:9, " .. i % 2] = 250                      -- red or green in the middle
      w:write_idx(i,
        ty.recordio.pack_img(ty.recordio.IRHeader{ 0, i % 2, i, 0 }, x, { quality = 95 }))
    end
    w:close()
    local it = ty.io.ImageRecordIter{ path_imgrec = path("train.rec"),
      path_imgidx = path("train.idx"), data_shape = { 3, 10, 10 },
      batch_size = 8, shuffle = true, seed = 5, rand_crop = true, rand_mirror = true, mean_r = 128,
      mean_g = 128, mean_b = 128, scale = 1 / 64 }
    ty.random.seed(1)
    local net = ty.sym.Pooling{ data = ty.sym.Variable("data"), global_pool = true,
      pool_type = "avg", kernel = { 1, 1 } }
    net = ty.sym.SoftmaxOutput{ data = ty.sym
      .FullyConnected{ data = ty.sym.Flatten{ data = net }, num_hidden = 2 }, name = "softmax" }
    local module = ty.mod.Module{ symbol = net, logger = require("spec.support.modules").logger() }
    module:fit{ train_data = it, num_epoch = 20, optimizer = "sgd",
      optimizer_params = { learning_rate = 0.5 }, initializer = ty.init.Xavier() }
    it:reset()
    assert.is_true(module:score(it, "acc")[1][2] > 0.9)
    it:free()
  end)

  it("im2rec lists and packs", function()
    assert(os.execute(("mkdir -p %s/tree/a %s/tree/b"):format(folder, folder)) == 0)
    for i = 0, 5 do
      image.imwrite(path(("tree/%s/%d.png"):format(i < 3 and "a" or "b", i)),
        constant(9, 12, 3, 10 * i))
    end
    local text, status =
      shell.tycho(("scripts/im2rec.lua --list --recursive %s %s"):format(path("t"), path("tree")))
    assert.equal(0, status, text)
    text, status =
      shell.tycho(("scripts/im2rec.lua %s %s --center-crop --resize 6 --encoding .png --quality 9")
        :format(path("t"), path("tree")))
    assert.equal(0, status, text)
    local it = ty.io.ImageRecordIter{ path_imgrec = path("t.rec"), path_imgidx = path("t.idx"),
      data_shape = { 3, 6, 6 }, batch_size = 6, verbose = false }
    local batch = it:next()
    local sum = { [0] = 0, 0 }
    for i, label in ipairs(batch.label[1]:totable()) do
      sum[label] = sum[label] + batch.data[1]:at(i - 1):mean():asscalar()
    end
    assert.same({ [0] = 30, 120 }, sum)
    write("tree/a/0.png", "damaged")
    text, status = shell.tycho(("scripts/im2rec.lua %s %s"):format(path("t"), path("tree")))
    assert.equal(1, status)
    assert.is_truthy(text:find("5 images", 1, true), text)
  end)
end)
