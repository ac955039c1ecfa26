-- ImageDetRecordIter: records of images with boxes, changed in C (native/io/det_augment.c).

local boxes = require "spec.support.boxes"
local images = require "spec.support.images"
local ty = require "tycho"

local OBJECTS = { { 0, 0.1, 0.1, 0.4, 0.5 }, { 1, 0.5, 0.2, 0.9, 0.4 }, { 2, 0.3, 0.6, 0.8, 0.9 } }
local SIZES = 4                                           -- numbers before a label

describe("ImageDetRecordIter", function()
  local folder, rec, idx

  local function path(name)
    return folder .. "/" .. name
  end

  -- Returns the numbers of a label: three before the objects, five of each.
  local function make_label(objects)
    local label = { 3, 5, 77 }
    for _, row in ipairs(objects) do
      for k = 1, 5 do
        label[#label + 1] = row[k]
      end
    end
    return label
  end

  local function pack(name, labels)
    local writer = ty.recordio.MXIndexedRecordIO(path(name .. ".idx"), path(name .. ".rec"), "w")
    for i, label in ipairs(labels) do
      local bytes = ty.image.imencode(boxes.picture(60, 80, OBJECTS), { img_fmt = ".png" })
      writer:write_idx(i - 1,
        ty.recordio.pack(ty.recordio.IRHeader{ 0, label, i - 1, 0 }, bytes))
    end
    writer:close()
    return path(name .. ".rec"), path(name .. ".idx")
  end

  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir " .. folder)
    local labels = {}
    for i = 1, 12 do
      labels[i] = make_label(i == 3 and { OBJECTS[2] } or OBJECTS)
    end
    rec, idx = pack("plain", labels)
  end)
  teardown(function()
    os.execute("rm -r " .. folder)
  end)

  local function open(options)
    options.path_imgrec = options.path_imgrec or rec
    options.batch_size, options.data_shape = options.batch_size or 4,
      options.data_shape or { 3, 60, 80 }
    return ty.io.ImageDetRecordIter(options)
  end

  -- Calls f with the image and the objects of each sample of an epoch, and the numbers of its
  -- label.
  local function each(it, f)
    for batch in it do
      for i, numbers in ipairs(batch.label[1]:totable()) do
        local objects = {}
        for at = SIZES + numbers[SIZES + 1] + 1, SIZES + numbers[SIZES], 5 do
          objects[#objects + 1] = { unpack(numbers, at, at + 4) }
        end
        f(batch.data[1][i - 1]:transpose{ 1, 2, 0 }, objects, numbers)
      end
    end
  end

  it("gives sizes, the number of numbers, the label, and what fills it up", function()
    local it, n = open{}, 0
    assert.same({ 4, SIZES + 18 }, it.provide_label[1].shape)
    each(it, function(x, objects, numbers)
      n = n + 1
      assert.near({ 3, 60, 80, n == 3 and 8 or 18, 3, 5, 77 }, { unpack(numbers, 1, 7) })
      assert.near(n == 3 and { OBJECTS[2] } or OBJECTS, objects, 1e-6)
      assert.equal(n == 3 and -1 or numbers[22], numbers[22])
      boxes.check(x, objects)
    end)
    assert.equal(12, n)
    assert.shape({ 4, SIZES + 30 }, open{ label_pad_width = 30 }:next().label[1])
    assert.equal(7, open{ label_pad_width = 30, label_pad_value = 7 }:next().label[1]
      :totable()[1][34])
  end)

  it("mirrors, borders and cuts images with their boxes", function()
    local cases = {
      { rand_mirror_prob = 1 },
      { rand_pad_prob = 1, max_pad_scale = 2.5, fill_value = 99 },
      { rand_crop_prob = 1, min_crop_scales = 0.4, min_crop_object_coverages = 0.6,
        min_crop_aspect_ratios = 0.5, max_crop_aspect_ratios = 2 },
      { rand_crop_prob = 1, min_crop_scales = 0.5, crop_emit_mode = "overlap",
        emit_overlap_thresh = 0.7 },
    }
    for k, options in ipairs(cases) do
      options.inter_method, options.seed = 0, 5
      local changed, lost = 0, 0
      each(open(options), function(x, objects)
        assert.is_true(#objects >= 1)
        boxes.check(x, objects, 60 * (k == 2 and 0.4 or 0.6))
        changed = changed + (math.abs(objects[1][2] - 0.1) > 0.01 and 1 or 0)
        lost = lost + (#objects < 3 and 1 or 0)
      end)
      assert.is_true(changed >= 9, k .. ": " .. changed .. " changed")
      assert.is_true(k < 3 and lost == 1 or k > 2 and lost > 2, k .. ": " .. lost .. " lost")
    end
  end)

  it("takes windows that suit one of the samplers", function()
    local shares = {}
    each(open{ rand_crop_prob = 1, num_crop_sampler = 2, min_crop_scales = { 0.3, 0.6 },
      max_crop_scales = { 0.3, 0.6 }, min_crop_aspect_ratios = 1, max_crop_aspect_ratios = 1,
      max_crop_trials = 1000, inter_method = 0 }, function(_, objects)
        for _, object in ipairs(objects) do
          local width = object[4] - object[2]
          if object[2] > 0.001 and object[4] < 0.999 and object[1] == 0 then
            shares[math.floor(0.3 / width * 100 + 0.5)] = true      -- how wide the window is
          end
        end
      end)
    for share in pairs(shares) do
      assert.is_true(math.abs(share - 26) < 3 or math.abs(share - 52) < 4, share .. " per cent")
    end
    local kept = 0
    each(open{ rand_crop_prob = 1, min_crop_overlaps = 0.99 }, function(_, objects)
      kept = kept + #objects
    end)
    assert.equal(34, kept)                                 -- none suits, the images stay
  end)

  it("keeps proportions where asked to", function()
    each(open{ resize_mode = "fit", data_shape = { 3, 90, 90 }, inter_method = 0,
      fill_value = 50 }, function(x, objects, numbers)
        assert.near({ 3, 68, 90 }, { unpack(numbers, 1, 3) })
        assert.same({ 50, 50, 50 }, x[80][10]:totable())
        boxes.check(x, objects, 60)
      end)
    each(open{ resize_mode = "shrink", data_shape = { 3, 90, 90 } }, function(x, objects, numbers)
      assert.near({ 3, 60, 80 }, { unpack(numbers, 1, 3) })
      boxes.check(x, objects)
    end)
    each(open{ resize = 30, data_shape = { 3, 30, 30 } }, function(x, objects)
      boxes.check(x, objects, 24)
    end)
  end)

  it("changes colours by no more than asked for, and normalises", function()
    local plain = open{}:next().data[1]
    local tuned = open{ random_illumination_prob = 1, max_random_illumination = 20,
      seed = 3 }:next().data[1]
    local difference = (tuned - plain):abs():max():asscalar()
    assert.is_true(difference > 2 and difference <= 41, difference)
    local scaled = open{ mean_r = 10, std_g = 2, scale = 0.5 }:next().data[1]
    local want = plain:copy():totable()
    local got = scaled:totable()
    for _, at in ipairs{ { 1, 1 }, { 20, 20 }, { 40, 40 } } do
      local y, x = unpack(at)
      assert.near((want[1][1][y][x] - 10) / 2, got[1][1][y][x])
      assert.near(want[1][2][y][x] / 4, got[1][2][y][x])
      assert.near(want[1][3][y][x] / 2, got[1][3][y][x])
    end
    assert.equal("uint8", open{ dtype = "uint8" }:next().data[1].dtype)
  end)

  it("gives the same batches for any number of threads, others for another seed", function()
    local function first(options)
      options.rand_crop_prob, options.rand_mirror_prob, options.shuffle = 0.5, 0.5, true
      options.path_imgidx, options.min_crop_scales = idx, 0.5
      local batch = open(options):next()
      return { batch.label[1]:totable(), batch.data[1]:sum():asscalar() }
    end
    local want = first{ preprocess_threads = 1, seed = 4 }
    assert.same(want, first{ preprocess_threads = 3, seed = 4 })
    assert.is_not.same(want, first{ preprocess_threads = 1, seed = 5 })
  end)

  it("takes labels of a list, of any length", function()
    local file = assert(io.open(path("list"), "w"))
    for i = 12, 1, -1 do
      local label = make_label(i == 2 and OBJECTS or { OBJECTS[1] })
      file:write(i - 1, "\t", table.concat(label, "\t"), "\t", i, ".png\n")
    end
    file:close()
    local n = 0
    each(open{ path_imglist = path("list") }, function(_, objects, numbers)
      n = n + 1
      assert.equal(SIZES + 18, #numbers)
      assert.equal(n == 2 and 3 or 1, #objects)
    end)
  end)

  it("reads parts, and says how many rows of the last batch are borrowed", function()
    local it, pads = open{ path_imgidx = idx, num_parts = 2, part_index = 1 }, {}
    for batch in it do
      pads[#pads + 1] = batch.pad
    end
    assert.same({ 0, 2 }, pads)
    local state = it:state()
    it:reset()
    it:set_state(state)
    assert.is_nil(it:next())
  end)

  it("names options out of their range", function()
    local given = { path_imgrec = path("none.rec"), num_crop_sampler = 1, rand_crop_prob = 1 }
    images.check_ranges(ty.io.ImageDetRecordIter, given, {
      max_crop_trials = { -1, 100001 }, min_crop_scales = { -0.1, 2 },
      max_crop_scales = { 0, 1.5 }, min_crop_aspect_ratios = { 0, 2 },
      max_crop_aspect_ratios = { 0.5 }, inter_method = { 7, 11 }, max_pad_scale = { 0.5, 101 },
      rand_crop_prob = { -0.1, 1.1 }, rand_mirror_prob = { 2 }, rand_pad_prob = { -1 },
      random_hue_prob = { 2 }, random_contrast_prob = { -1 }, random_saturation_prob = { 2 },
      random_illumination_prob = { 2 }, resize = { 0 },
      data_shape = { { 2, 4, 4 }, { 3, 40000, 40000 }, { 3, 4 } } })
  end)

  it("names what does not fit", function()
    local function failure(code, options)
      local e = assert.raises(code, function()
        for _ in open(options) do end                      -- luacheck: ignore 542
      end)
      return tostring(e)
    end
    for name, label in pairs{ short = { 7 }, narrow = { 2, 4, 0, 0, 0, 1 },
        ragged = { 2, 5, 0, 0, 0, 1 } } do
      local text = failure("format", { path_imgrec = (pack(name, { make_label(OBJECTS), label })) })
      assert.truthy(text:find("record at byte", 1, true))
      assert.truthy(text:find("no label of boxes", 1, true))
    end
    assert.truthy(failure("shape", { label_pad_width = 10 }):find("label_pad_width is 10", 1, true))
    assert.truthy(failure("shape", { label_width = 18 }):find("label_width is 18", 1, true))
    failure("value", { num_crop_sampler = 3, min_crop_scales = { 0.1, 0.2 } })
    failure("value", { min_crop_scales = 0.9, max_crop_scales = 0.5 })
    failure("value", { crop_emit_mode = "middle" })
    failure("value", { rand_crop_prob = 1.5 })
    failure("value", { num_crop_sampler = 33 })
    failure("name", { rand_crop = true })
  end)
end)
