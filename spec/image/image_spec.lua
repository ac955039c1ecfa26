-- Images: files, resampling, colours, augmenters; what the recorded cases do not reach.

local chance = require "tycho.image.random"
local device = require "spec.support.device"
local images = require "spec.support.images"
local ty = require "tycho"

local image, nd = ty.image, ty.nd
local path, write, picture = images.path, images.write, images.picture
local constant, largest, same = images.constant, images.largest, images.same

describe("image", function()
  setup(device.leave)
  teardown(device.come_back)
  setup(images.make_folder)
  teardown(images.remove_folder)

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
      local array = nd.from_string(bytes, { shape = { #bytes }, dtype = "uint8" })
      same(x, nd._cvimdecode(array))
      same(x:flip{ axis = 2 }, nd._cvimdecode(array, { to_rgb = false }))
      assert.shape({ 4, 6, 1 }, nd._cvimdecode(array, { flag = 0 }))
    end)

    it("are refused by the operator where they are none, or cut off", function()
      local function refused(code, text, options)
        assert.equal(text, assert.raises(code, nd._cvimdecode, options).message)
      end
      local bytes = image.imencode(picture(20, 30, 3), { img_fmt = ".png" })
      local function part(n)
        return nd.from_string(bytes:sub(1, n), { shape = { n }, dtype = "uint8" })
      end
      refused("format", "the bytes are neither a JPEG nor a PNG file",
        { nd.array({ 1, 2, 3 }, { dtype = "uint8" }) })
      refused("dtype", "dtype of buf is float32, but uint8 is needed here; astype converts arrays, \z
        Cast symbols",
        { nd.array{ 1, 2, 3 } })
      assert.raises("format", nd._cvimdecode, { part(20) })
      local e = assert.raises("format", function()
        nd._cvimdecode{ part(#bytes - 60) }:wait_to_read()
      end)
      assert.equal("PNG: the file ends early", e.message)
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
      ty.waitall()
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

    it("adds up whole vectors of a cubic row in float32, the rest in fixed point", function()
      local x = nd.array{ { { 93 } }, { { 140 } }, { { 220 } }, { { 134 } } }:astype("uint8")
      local y = image.imresize(nd.tile{ x, reps = { 1, 9, 1 } }, 9, 10, 2):reshape{ 10, 9 }
      assert.same({ 184, 184, 184, 184, 184, 184, 184, 184, 185 }, y[7]:totable())
      assert.same({ 88, 96, 109, 131, 171, 209, 218, 184, 142, 124 },
        nd.slice_axis{ y, axis = 1, begin = 0, ["end"] = 1 }:reshape{ -1 }:totable())
    end)

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

    it("of float64 images is computed in float64", function()
      local x = picture(17, 23, 3):astype("float64") * (1 + 2 ^ -30)
      for interp = 0, 4 do
        for _, size in ipairs{ { 8, 8 }, { 40, 30 }, { 23, 34 }, { 11, 40 }, { 23, 17 } } do
          local doubles = image.imresize(x, size[1], size[2], interp)
          local floats = image.imresize(x:astype("float32"), size[1], size[2], interp)
          assert.equal("float64", doubles.dtype)
          assert.is_true(largest(doubles, floats:astype("float64")) < 1e-3, "rule " .. interp)
          -- resampling is linear: what a float32 would round away is there still
          local shifted = image.imresize(x + 2 ^ -40, size[1], size[2], interp)
          assert.near(2 ^ -40, (shifted - doubles):mean():asscalar(), 1e-13)
        end
      end
      local batch = nd.image.resize(nd.stack{ x, x, axis = 0 }, { size = { 9, 5 } })
      same(nd.image.resize(x, { size = { 9, 5 } }), batch:at(1))
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
    it("of float64 images have the value in float64", function()
      local y = nd._cvcopyMakeBorder{ x:astype("float64"), top = 0, bot = 0, left = 1, right = 2,
        value = 0.1 }
      assert.same({ { { 0.1 }, { 1 }, { 2 }, { 3 }, { 0.1 }, { 0.1 } } }, y:totable())
    end)
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
    it("divide by std alone where there is no mean", function()
      local x = nd.full({ 1, 1, 3 }, 12)
      for _, list in ipairs{ image.CreateAugmenter{ data_shape = { 3, 1, 1 }, std = { 1, 2, 3 } },
        image.CreateDetAugmenter{ data_shape = { 3, 1, 1 }, std = { 1, 2, 3 } } } do
        assert.same({ { { 12, 6, 4 } } }, (list[#list](x, nd.ones{ 1, 5 })):totable())
      end
      assert.same({ { { 12, 12, 12 } } }, image.color_normalize(x, ty.null):totable())
    end)

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
      assert.equal("[\"colornormalizeaug\", {\"mean\": [1.0, 2.5], \"std\": [3.0, 1.0]}]",
        image.ColorNormalizeAug(nd.array{ 1, 2.5 }, nd.array{ 3, 1 }):dumps())
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
end)
