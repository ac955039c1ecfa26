-- Iterators of images: lists, record files, im2rec.

local images = require "spec.support.images"
local shell = require "spec.support.shell"
local ty = require "tycho"

local image, nd = ty.image, ty.nd
local path, write, picture = images.path, images.write, images.picture
local constant, largest, same = images.constant, images.largest, images.same

describe("iterators of images", function()
  setup(images.make_folder)
  teardown(images.remove_folder)

  -- Packs n images of h x w with label i and, in the first pixel, i.
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

  local function read_labels(it)
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
        path_imglist = path("files.lst"), path_root = path() }
      local list, pads = read_labels(it)
      assert.same({ 5, 6, 7, 5 }, list)
      assert.same({ 0, 1 }, pads)
      it:reset()
      assert.same({ 5, 6, 7, 5 }, (read_labels(it)))
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
      assert.same({ 0, 1, 2, 3 }, (read_labels(open{ last_batch_handle = "discard" })))
      local it = open{ last_batch_handle = "roll_over" }
      assert.same({ 0, 1, 2, 3 }, (read_labels(it)))
      it:reset()
      local list, pads = read_labels(it)
      assert.same({ 4, 0, 1, 2, 3, 4 }, list)
      assert.same({ 1, 0, 0 }, pads)
      it:reset()
      assert.same({ 0, 0 }, select(2, read_labels(it)))
      assert.same({ 0, 1, 2, 3, 4, 0 }, (read_labels(open{})))
      assert.same({ 2, 3 }, (read_labels(open{ path_imgidx = idx, num_parts = 2, part_index = 1 })))
      local mixed = open{ path_imgidx = idx, shuffle = true, last_batch_handle = "discard" }
      ty.random.seed(5)
      mixed:reset()
      local first = read_labels(mixed)
      ty.random.seed(5)
      mixed:reset()
      assert.is_true(#first == 4 and #sorted(first) == 4)
      assert.raises("value", open, { shuffle = true })
      assert.raises("value", open, { last_batch_handle = "throw" })
    end)

    it("counts what fills up a batch that begins with kept samples", function()
      local rec = pack("rolled", 16)
      for _, class in ipairs{ image.ImageIter, image.ImageDetIter } do
        local options = { batch_size = 3, data_shape = { 3, 6, 6 }, path_imgrec = rec,
          last_batch_handle = "roll_over" }
        if class == image.ImageDetIter then
          image.imwrite(path("box.png"), constant(6, 6, 3, 1))
          options.path_imgrec, options.imglist = nil, {}
          for i = 1, 16 do
            options.imglist[i] = { { 2, 5, i, 0, 0, 1, 1 }, path("box.png") }
          end
        end
        local it = class(options)
        for _, first in ipairs{ 0, 2, 1, 0 } do            -- 16, 1 + 16, 2 + 16, 16 samples
          local list, pads = read_labels(it)
          assert.equal(first, pads[1])
          assert.equal(first == 1 and 6 or 5, #pads)
          assert.is_true(#list > 0)
          for i = 2, #pads do
            assert.equal(0, pads[i])
          end
          it:reset()
        end
        it:next()
        it:hard_reset()
        assert.equal(0, it:next().pad)
      end
    end)

    it("needs an image", function()
      write("empty.lst", "")
      local rec, idx = pack("no_images", 0)
      for argument, options in pairs{ imglist = { imglist = {} },
          path_imglist = { path_imglist = path("empty.lst") },
          path_imgrec = { path_imgrec = rec } } do
        for _, class in ipairs{ image.ImageIter, image.ImageDetIter } do
          for _, shuffle in ipairs{ false, true } do
            options.batch_size, options.data_shape = 2, { 3, 6, 6 }
            options.shuffle = shuffle
            options.path_imgidx = argument == "path_imgrec" and shuffle and idx or nil
            local e = assert.raises("value", class, options)
            assert.equal(argument, e.argument)
            assert.is_truthy(tostring(e):find("there are no images", 1, true))
          end
        end
      end
      local few, index = pack("few", 2)
      local e = assert.raises("value", image.ImageIter, { batch_size = 1, data_shape = { 3, 6, 6 },
        path_imgrec = few, path_imgidx = index, num_parts = 3, part_index = 1 })
      assert.is_truthy(tostring(e):find("part 1 of 3 has none", 1, true))
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
        local want = read_labels(it)
        other:next()
        other:next()
        other:set_state(state)
        assert.same(want, (read_labels(other)))
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
        path_imglist = path("bad.lst"), path_root = path() }
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
        read_labels(it)
        it:reset()
      end
      it:next()
      local state, want = it:state(), it:next()
      local other = open("state", 14, options)
      other:set_state(state)
      same(want.data[1], other:next().data[1])
      assert.same(read_labels(it), (read_labels(other)))
    end)

    it("shuffles all records, with and without an index", function()
      for _, index in ipairs{ true, false } do
        local it = open("mixed", 12, { shuffle = true, path_imgidx = index })
        local first = read_labels(it)
        it:reset()
        local second = read_labels(it)
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
          for _, v in ipairs((read_labels(it))) do
            all[#all + 1] = v
          end
        end
        assert.equal(17, #all)
        assert.same(sorted(all), all)
      end
      assert.raises("value", open, "parts", 3, { num_parts = 2, part_index = 2 })
    end)

    it("gives signed bytes less a mean", function()
      local options = { dtype = "uint8", data_shape = { 3, 12, 10 } }
      local bytes = open("signed", 4, options):next().data[1]:astype("float32")
      local function expected(mean) return (bytes - mean):clip{ a_min = -128, a_max = 127 } end
      local function record(more)
        more.path_imgrec, more.data_shape, more.batch_size = path("signed.rec"), { 3, 12, 10 }, 4
        return ty.io.ImageRecordInt8Iter(more):next().data[1]
      end
      local plain = record{}
      assert.equal("int8", plain.dtype)
      same(expected(0), plain)
      same(plain, open("signed", 4, { dtype = "int8", data_shape = { 3, 12, 10 } }):next().data[1])
      local mean = nd.array({ 130, 2, 201 }, { ctx = bytes.context }):reshape{ 1, 3, 1, 1 }
      local levels = { mean_r = 129.5, mean_g = 2.4, mean_b = 200.6 }
      same(expected(nd.broadcast_to{ mean, shape = { 4, 3, 12, 10 } }), record(levels))
      levels.mirror = true
      local mirrored = nd.reverse{ bytes, axis = { 3 } }
      same((mirrored - nd.broadcast_to{ mean, shape = { 4, 3, 12, 10 } }):clip{ a_min = -128,
        a_max = 127 }, record(levels))
      nd.save(path("half.nd"), { mean_img = bytes:at(0) * 0.5 })
      local half = (bytes:at(0) * 0.5 + 0.25):round():reshape{ 1, 3, 12, 10 }
      same(expected(nd.broadcast_to{ half, shape = { 4, 3, 12, 10 } }),
        record{ mean_img = path("half.nd") })
      for _, name in ipairs{ "std_r", "scale", "max_random_contrast" } do
        assert.equal(name, assert.raises("value", record, { [name] = 1 }).argument)
      end
      assert.raises("value", ty.io.ImageDetRecordIter, { path_imgrec = path("signed.rec"),
        data_shape = { 3, 12, 10 }, batch_size = 4, dtype = "int8" })
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
      refuse("shape", { max_crop_size = 64, min_crop_size = 64 })
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

    it("gives the records before damage, then the error, at every length of the file", function()
      local file = assert(io.open((pack("cut", 3)), "rb"))
      local bytes = file:read("*a")
      file:close()
      local size = #bytes / 3
      for n = 0, #bytes - 1, 7 do
        write("short.rec", bytes:sub(1, n))
        local ok, e = pcall(function()
          local it = ty.io.ImageRecordIter{ path_imgrec = path("short.rec"),
            data_shape = { 3, 6, 6 }, batch_size = 1, preprocess_threads = 2, prefetch_buffer = 1 }
          local list = read_labels(it)
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

    it("names options out of their range", function()
      images.check_ranges(ty.io.ImageRecordIter, { path_imgrec = path("none.rec") }, {
        inter_method = { 7, 11 }, resize = { 0 }, min_crop_size = { 3 },
        max_crop_size = { 5 }, min_img_size = { 2 ^ 21 }, min_random_scale = { 0, 2 },
        max_random_scale = { 2000 }, min_random_area = { 0, 2 }, max_random_area = { 2000 },
        max_aspect_ratio = { -0.1, 1, 2000 }, min_aspect_ratio = { 0, 2 }, std_r = { 0 },
        data_shape = { { 2, 4, 4 }, { 3, 40000, 40000 }, { 3, 4 } } })
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
      assert.is_true(ty.live().iters <= before)
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
    assert(os.execute(("mkdir -p %s/tree/a %s/tree/b"):format(path(), path())) == 0)
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
