-- Options of the iterators over records of images, one at a time: what they leave as it is, how far
-- they may change it, and images for which they are too large.

local images = require "spec.support.images"
local ty = require "tycho"

local path, write = images.path, images.write

describe("an iterator over records of images", function()
  setup(images.make_folder)
  teardown(images.remove_folder)

  -- Packs one record: an image, as PNG, with a label of a box of all of it.
  local function pack(name, image, id)
    local w = ty.recordio.MXIndexedRecordIO(path(name .. ".idx"), path(name .. ".rec"), "w")
    w:write_idx(0, ty.recordio.pack_img(ty.recordio.IRHeader{ 0, { 2, 5, 7, 0, 0, 1, 1 }, id or 0,
      id or 0 }, image, { img_fmt = ".png" }))
    w:close()
    return path(name .. ".rec")
  end

  local function read(Iter, name, options)
    options.path_imgrec, options.batch_size = path(name .. ".rec"), 1
    options.label_width = options.label_width or (Iter == ty.io.ImageRecordIter and 7 or nil)
    local it = Iter(options)
    local data = it:next().data[1]:at(0)
    it:free()
    return data
  end

  local function plain(name, options)
    return read(ty.io.ImageRecordIter, name, options)
  end

  local function boxed(name, options)
    return read(ty.io.ImageDetRecordIter, name, options)
  end

  local function message(f, ...)
    local ok, e = pcall(f, ...)
    assert.is_false(ok)
    return tostring(e)
  end

  it("keeps an image of the border's colour, however it is moved", function()
    pack("grey", images.constant(20, 16, 3, 90))
    for key, more in pairs{ max_rotate_angle = { max_rotate_angle = 40 },
      max_shear_ratio = { max_shear_ratio = 0.4 }, rotate = { rotate = 37 },
      max_random_scale = { max_random_scale = 2 }, min_random_scale = { min_random_scale = 0.6 },
      aspect = { max_aspect_ratio = 0.2 }, max_img_size = { max_img_size = 14 },
      min_img_size = { min_img_size = 40 }, pad = { pad = 5 }, resize = { resize = 13 },
      rand_crop = { rand_crop = true }, larger = { resize = 50, inter_method = 9 },
      smaller = { resize = 13, inter_method = 9 }, chosen = { resize = 30, inter_method = 10 },
      window = { max_crop_size = 15, min_crop_size = 9 },
      area = { random_resized_crop = true, min_random_area = 0.3 },
      none = { random_resized_crop = true, min_random_area = 5, max_random_area = 6 },
      saturation = { saturation = 0.9 }, hue = { random_h = 90 },
      mirror = { rand_mirror = true } } do
      more.data_shape, more.fill_value, more.seed = { 3, 12, 12 }, 90, 5
      local got = plain("grey", more)
      assert.shape({ 3, 12, 12 }, got)
      assert.equal(90, got:min():asscalar(), key)
      assert.equal(90, got:max():asscalar(), key)
    end
  end)

  it("fills borders with at most 255, and turns by the option's angle", function()
    pack("dark", images.constant(8, 8, 3, 10))
    local got = plain("dark", { data_shape = { 3, 12, 12 }, pad = 2, fill_value = 200 })
    assert.equal(200 * (144 - 64) + 10 * 64, got:at(0):sum():asscalar())
    got = plain("dark", { data_shape = { 3, 16, 16 }, min_img_size = 16, max_random_scale = 1,
      fill_value = 70000 })
    assert.is_true(got:max():asscalar() <= 255 and got:min():asscalar() == 10)
    pack("picture", images.picture(9, 9, 3, 1))
    local all = { data_shape = { 3, 9, 9 } }
    local straight = plain("picture", all)
    all.rotate = 180
    local turned = plain("picture", all):flip{ axis = 1 }:flip{ axis = 2 }
    -- about the corner between the four pixels in the middle, not about the pixel there
    assert.is_true(images.largest(straight:slice{ begin = { 0, 2, 2 }, ["end"] = { 3, 7, 7 } },
      turned:slice{ begin = { 0, 1, 1 }, ["end"] = { 3, 6, 6 } }) <= 1)
  end)

  it("changes colours no further than the options say", function()
    pack("grey", images.constant(12, 12, 3, 100))
    for key, most in pairs{ brightness = 20, random_l = 9, random_s = 99,
      max_random_illumination = 7, max_random_contrast = 20, pca_noise = 60 } do
      local given = ({ brightness = 0.2, random_l = 9, random_s = 90, max_random_illumination = 7,
        max_random_contrast = 0.2, pca_noise = 0.1 })[key]
      local changed = 0
      for seed = 1, 4 do
        local got = plain("grey", { data_shape = { 3, 12, 12 }, [key] = given, seed = seed })
        local off = (got - 100):abs():max():asscalar()
        assert.is_true(off <= most + 1, ("%s: %g"):format(key, off))
        changed = math.max(changed, off)
      end
      assert.is_true(changed > 0, key)
    end
  end)

  -- Returns rows and columns of an image as the iterator gives it: channels first, float32.
  local function window_of(image, y, x, h, w)
    return image:slice{ begin = { y, x, 0 }, ["end"] = { y + h, x + w, 3 } }:transpose{ 2, 0, 1 }
      :astype("float32")
  end

  it("enlarges an image that is smaller than the window", function()
    local image = images.picture(6, 8, 3, 1)
    pack("small", image)
    for how = 0, 4 do
      assert.equal(0, images.largest(
        window_of(ty.image.imresize(image, 16, 12, how), 0, 3, 12, 10),
        plain("small", { data_shape = { 3, 12, 10 }, inter_method = how })))
      assert.equal(0, images.largest(
        window_of(ty.image.imresize(image, 12, 9, how), 2, 0, 5, 12),
        plain("small", { data_shape = { 3, 5, 12 }, inter_method = how })))
    end
    -- the rule for both axes, although one of them is enlarged at a time
    assert.equal(0, images.largest(window_of(ty.image.imresize(image, 12, 9, 1), 0, 3, 9, 6),
      plain("small", { data_shape = { 3, 9, 6 }, inter_method = 9 })))
  end)

  it("keeps the middle where a random window has no area to choose from", function()
    local image = images.picture(9, 14, 3, 1)
    pack("middle", image)
    assert.equal(0, images.largest(window_of(image, 2, 4, 5, 6),
      plain("middle", { data_shape = { 3, 5, 6 }, random_resized_crop = true })))
  end)

  it("turns and scales by the rule of inter_method", function()
    local image = images.constant(12, 12, 3, 200)
    image[":, 0:6"] = 100
    pack("edge", image)
    local shape = { 3, 8, 8 }
    local function range(how)
      local got = plain("edge", { data_shape = shape, inter_method = how, min_random_scale = 1.5,
        max_random_scale = 1.5 })
      return got:min():asscalar(), got:max():asscalar()
    end
    for how, beyond in pairs{ [0] = false, [1] = false, [2] = true, [3] = false, [4] = true } do
      local low, high = range(how)
      assert.equal(beyond, low < 100 and high > 200, ("rule %d: %g to %g"):format(how, low, high))
    end
    local near = plain("edge", { data_shape = shape, inter_method = 0, min_random_scale = 1.5,
      max_random_scale = 1.5 })
    assert.equal(near.size, near:eq(100):sum():asscalar() + near:eq(200):sum():asscalar())
  end)

  it("names images for which a size is too large", function()
    pack("strip", images.constant(2, 64, 3, 90))
    pack("tower", images.constant(64, 2, 3, 90))
    local window = "the image has %s pixels, fewer than the window of 4 x 4; use resize"
    for name, size in pairs{ strip = "2 x 64", tower = "64 x 2" } do
      local options = { data_shape = { 3, 2, 2 }, max_crop_size = 4, min_crop_size = 4 }
      assert.is_truthy(message(plain, name, options):find(window:format(size), 1, true))
    end
    for options, want in pairs{
      [{ resize = 2 ^ 20 }] = "the image would have 1048576 x 33554432 pixels",
      [{ min_img_size = 2 ^ 20 }] = "the image would have 1048576 x 1048576 pixels",
      [{ pad = 2 ^ 20 }] = "the image would have 2097154 x 2097216 pixels" } do
      options.data_shape = { 3, 2, 2 }
      assert.is_truthy(message(plain, "strip", options):find(want, 1, true))
    end
    assert.is_truthy(message(boxed, "strip", { data_shape = { 3, 2, 2 }, resize = 2 ^ 20 }):find(
      "the image would have 1048576 x 33554432 pixels", 1, true))
  end)

  it("takes a mean image of the sample's size and type only", function()
    pack("grey", images.constant(12, 12, 3, 100))
    local function mean(x)
      ty.nd.save(path("mean.nd"), { mean_img = x })
      return { data_shape = { 3, 12, 12 }, mean_img = path("mean.nd") }
    end
    local want = "the mean image is no float32 array of 432 elements"
    for _, f in ipairs{ plain, boxed } do
      assert.equal(-50, f("grey", mean(ty.nd.full({ 3, 12, 12 }, 150))):min():asscalar())
      assert.is_truthy(message(f, "grey", mean(ty.nd.ones{ 3, 12, 11 })):find(want, 1, true))
      assert.is_truthy(message(f, "grey", mean(ty.nd.ones({ 3, 12, 12 },
        { dtype = "float64" }))):find(want, 1, true))
    end
    ty.nd.save(path("mean.nd"), {})
    assert.is_truthy(message(plain, "grey", { data_shape = { 3, 12, 12 },
      mean_img = path("mean.nd") }):find("array 0 of a bag of 0", 1, true))
  end)

  it("with boxes changes contrast and borders as the options say", function()
    pack("grey", images.constant(12, 12, 3, 100))
    local changed = 0
    for seed = 1, 6 do
      local got = boxed("grey", { data_shape = { 3, 12, 12 }, random_contrast_prob = 1,
        max_random_contrast = 0.2, seed = seed })
      local low, high = got:min():asscalar(), got:max():asscalar()
      assert.is_true(low == high and low >= 79 and high <= 121)
      changed = math.max(changed, math.abs(low - 100))
    end
    assert.is_true(changed > 0)
    for mode, want in pairs{ force = 100 * 24 * 18, fit = 100 * 18 * 18 + 7 * 6 * 18,
      shrink = 100 * 12 * 12 + 7 * (24 * 18 - 144) } do
      local got = boxed("grey", { data_shape = { 3, 24, 18 }, resize_mode = mode, fill_value = 7 })
      assert.equal(want, got:at(0):sum():asscalar(), mode)
    end
  end)

  it("puts records together that were written in parts", function()
    local image = images.picture(6, 7, 3, 2)
    local magic = 0xced7230a                             -- in the text it begins a part
    pack("parts", image, magic)
    pack("whole", image, 5)
    local options = { data_shape = { 3, 6, 7 } }
    images.same(plain("whole", options), plain("parts", options))
    local file = assert(io.open(path("parts.rec"), "rb"))
    local bytes = file:read("*a")
    file:close()
    local heads = {}
    for at = 1, #bytes - 8, 4 do
      if bytes:sub(at, at + 3) == "\10\35\215\206" then
        heads[#heads + 1] = at
      end
    end
    assert.equal(3, #heads)
    local function flagged(which, flag)                  -- the flag: the upper three bits
      local at = heads[which] + 7
      return bytes:sub(1, at - 1) .. string.char(flag * 32) .. bytes:sub(at + 1)
    end
    for _, damaged in ipairs{ flagged(1, 2), flagged(1, 3), flagged(2, 0), flagged(2, 1),
      flagged(3, 1) } do
      write("damaged.rec", damaged)
      options.path_imgidx = path("parts.idx")
      local text = message(plain, "damaged", options)
      assert.is_truthy(text:find("the parts of a record are out of order", 1, true), text)
    end
  end)

  it("names lines of an index that are none", function()
    pack("grey", images.constant(12, 12, 3, 100))
    for text, line in pairs{ ["0\t0\n1\n"] = 2, ["0\tx\n"] = 1, ["0\t0\n\n1\t-4\n"] = 3 } do
      write("bad.idx", text)
      local said = message(plain, "grey", { data_shape = { 3, 12, 12 },
        path_imgidx = path("bad.idx") })
      assert.is_truthy(said:find(("line %d: expected a key and an offset"):format(line), 1, true))
    end
    write("short.rec", "\10\35\215\206\8\0\0\0shorties")
    assert.is_truthy(message(boxed, "short", { data_shape = { 3, 12, 12 } })
      :find("shorter than the header of an image", 1, true))
    assert.shape({ 3, 12, 12 }, plain("grey", { data_shape = { 3, 12, 12 },
      preprocess_threads = 1000 }))
  end)
end)
