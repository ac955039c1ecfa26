-- Images with boxes: Det*Aug, CreateDetAugmenter, ImageDetIter.

local boxes = require "spec.support.boxes"
local json = require "tycho.core.json"
local ty = require "tycho"

local image = ty.image

local picture, seen_box, check_boxes = boxes.picture, boxes.seen_box, boxes.check

local OBJECTS = { { 0, 0.1, 0.1, 0.4, 0.5 }, { 1, 0.5, 0.2, 0.9, 0.4 }, { 2, 0.3, 0.6, 0.8, 0.9 } }

describe("augmenters of images with boxes", function()
  before_each(function()
    ty.random.seed(7)
  end)

  it("mirror both", function()
    local x = picture(40, 60, OBJECTS)
    local flipped, label = image.DetHorizontalFlipAug(1)(x, OBJECTS)
    assert.near({ 0, 0.6, 0.1, 0.9, 0.5 }, label[1], 1e-12)
    check_boxes(flipped, label)
    local same, kept = image.DetHorizontalFlipAug(0)(x, OBJECTS)
    assert.is_true(same == x and kept == OBJECTS)
    assert.same({ 0, 0.1, 0.1, 0.4, 0.5 }, OBJECTS[1])   -- what was given is not changed
  end)

  it("take and return arrays as well as lists", function()
    local _, label = image.DetHorizontalFlipAug(1)(picture(40, 60, OBJECTS), ty.nd.array(OBJECTS))
    assert.shape({ 3, 5 }, label)
    assert.near(0.6, label:totable()[1][2], 1e-6)
  end)

  it("cut windows whose boxes go along", function()
    local x = picture(60, 90, OBJECTS)
    local step = image.DetRandomCropAug{ min_object_covered = 0.4, area_range = { 0.2, 0.9 },
      min_eject_coverage = 0.3 }
    local changed, lost = 0, 0
    for _ = 1, 40 do
      local y, label = step(x, OBJECTS)
      local h, w = y.shape[1], y.shape[2]
      if h * w < 60 * 90 then
        changed, lost = changed + 1, lost + (#label < 3 and 1 or 0)
        assert.is_true(h * w >= 0.2 * 60 * 90 - 1 and h * w <= 0.9 * 60 * 90 + 1)
        assert.is_true(w / h > 0.7 and w / h < 1.4)
      end
      assert.is_true(#label >= 1)
      check_boxes(y, label)
    end
    assert.is_true(changed > 25 and lost > 5, changed .. " windows, " .. lost .. " with fewer")
  end)

  it("leave the image where no window fits", function()
    local x = picture(30, 30, OBJECTS)
    local y, label = image.DetRandomCropAug{ min_object_covered = 2 }(x, OBJECTS)
    assert.is_true(y == x and label == OBJECTS)
    assert.is_true(x == (image.DetRandomPadAug{ area_range = { 1, 1 } }(x, OBJECTS)))
  end)

  it("put borders around, of the colour asked for", function()
    local x = picture(40, 50, OBJECTS)
    local step = image.DetRandomPadAug{ area_range = { 1.5, 4 }, pad_val = { 9, 8, 7 } }
    local grown = 0
    for _ = 1, 20 do
      local y, label = step(x, OBJECTS)
      local h, w = y.shape[1], y.shape[2]
      if h > 40 then
        grown = grown + 1
        assert.is_true(w > 50 and h * w <= 4 * 40 * 50 + 200)
        local sum = y:astype("float32"):sum():asscalar() - x:astype("float32"):sum():asscalar()
        assert.equal(24 * (h * w - 40 * 50), sum)
      end
      check_boxes(y, label)
    end
    assert.is_true(grown > 10)
  end)

  it("are chosen at random, and left out at random", function()
    local x, counts = picture(20, 20, OBJECTS), { 0, 0, 0 }
    local parts = { image.DetHorizontalFlipAug(1), image.DetBorrowAug(image.CastAug "float64") }
    local step = image.DetRandomSelectAug{ aug_list = parts, skip_prob = 0.25 }
    for _ = 1, 400 do
      local y, label = step(x, OBJECTS)
      local k = label ~= OBJECTS and 1 or y.dtype == "float64" and 2 or 3
      counts[k] = counts[k] + 1
    end
    assert.is_true(counts[1] > 110 and counts[2] > 110 and counts[3] > 60 and counts[3] < 140,
      table.concat(counts, " "))
    assert.is_true(x == (image.DetRandomSelectAug{ aug_list = {} }(x, OBJECTS)))
  end)

  it("say what they are", function()
    assert.same({ "dethorizontalflipaug", { p = 0.5 } },
      json.parse(image.DetHorizontalFlipAug(0.5):dumps(), ""))
    assert.same({ "detborrowaug", { augmenter = image.CastAug():dumps() } },
      json.parse(image.DetBorrowAug(image.CastAug()):dumps(), ""))
    assert.raises("type", image.DetBorrowAug, image.DetHorizontalFlipAug(1))
    assert.raises("type", image.DetRandomSelectAug, { image.CastAug() })
    assert.raises("value", image.DetRandomCropAug, { area_range = { 0.5, 0.1 } })
    assert.raises("value", image.DetRandomPadAug, { aspect_ratio_range = { 1 } })
  end)

  it("make several windows of lists of parameters", function()
    local select = image.CreateMultiRandCropAugmenter{ min_object_covered = { 0.1, 0.5, 0.9 },
      aspect_ratio_range = { 0.5, 2 }, area_range = { { 0.1, 1 }, { 0.2, 1 }, { 0.3, 1 } } }
    assert.equal(3, #select.aug_list)
    assert.equal(0.9, select.aug_list[3].min_object_covered)
    assert.same({ 0.2, 1 }, select.aug_list[2].area_range)
    assert.same({ 0.5, 2 }, select.aug_list[1].aspect_ratio_range)
    assert.raises("value", image.CreateMultiRandCropAugmenter,
      { min_object_covered = { 0.1, 0.5 }, max_attempts = { 1, 2, 3 } })
  end)

  it("come as the usual list, which leaves the size asked for and true boxes", function()
    local steps = image.CreateDetAugmenter{ data_shape = { 3, 48, 48 }, resize = 64,
      rand_crop = 0.7, rand_pad = 0.7, rand_mirror = true, inter_method = 0,
      min_object_covered = { 0.3, 0.7 } }
    for _ = 1, 20 do
      local x, label = picture(60, 80, OBJECTS), OBJECTS
      for _, step in ipairs(steps) do
        x, label = step(x, label)
      end
      assert.shape({ 48, 48, 3 }, x)
      assert.equal("float32", x.dtype)
      local rows = x:totable()
      for _, object in ipairs(label) do
        local box = seen_box(rows, object[1])
        for k = 1, box and 4 or 0 do
          assert.near(box[k], object[k + 1], 4 / 48)       -- two resamplings
        end
      end
    end
    local colours = image.CreateDetAugmenter{ data_shape = { 3, 8, 8 }, brightness = 0.1, hue = 0.1,
      pca_noise = 0.1, rand_gray = 0.1, mean = true, std = true }
    assert.equal(7, #colours)
  end)
end)

describe("ImageDetIter", function()
  local folder

  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir " .. folder)
  end)
  teardown(function()
    os.execute("rm -r " .. folder)
  end)

  local function path(name)
    return folder .. "/" .. name
  end

  -- Returns the numbers of a label: four before the objects, six of each.
  local function make_label(objects)
    local label = { 4, 6, 60, 80 }
    for _, row in ipairs(objects) do
      for k = 1, 6 do
        label[#label + 1] = row[k] or 0
      end
    end
    return label
  end

  local function pack(name, labels)
    local writer = ty.recordio.MXIndexedRecordIO(path(name .. ".idx"), path(name .. ".rec"), "w")
    for i, objects in ipairs(labels) do
      local bytes = image.imencode(picture(60, 80, objects), { img_fmt = ".png" })
      writer:write_idx(i - 1, ty.recordio.pack(
        ty.recordio.IRHeader{ 0, objects.raw or make_label(objects), i - 1, 0 }, bytes))
    end
    writer:close()
    return path(name .. ".rec"), path(name .. ".idx")
  end

  local LABELS = { { OBJECTS[1] }, OBJECTS, { OBJECTS[2], OBJECTS[3] },
    { OBJECTS[3], { 1, 0.5, 0.5, 0.5, 0.9 } }, { OBJECTS[2] } }

  it("gives labels as wide as the largest, filled up with -1", function()
    local rec = pack("plain", LABELS)
    local it = image.ImageDetIter{ batch_size = 2, data_shape = { 3, 60, 80 }, path_imgrec = rec }
    assert.same({ 3, 6 }, it.label_shape)
    assert.same({ 2, 3, 6 }, it.provide_label[1].shape)
    assert.equal("label", it.provide_label[1].name)
    local counts, pads = {}, {}
    for batch in it do
      assert.shape({ 2, 3, 60, 80 }, batch.data[1])
      pads[#pads + 1] = batch.pad
      for i, rows in ipairs(batch.label[1]:totable()) do
        local objects = {}
        for _, row in ipairs(rows) do
          if row[1] >= 0 then
            objects[#objects + 1] = row
          else
            assert.same({ -1, -1, -1, -1, -1, -1 }, row)
          end
        end
        counts[#counts + 1] = #objects
        check_boxes(batch.data[1][i - 1]:transpose{ 1, 2, 0 }, objects)
      end
    end
    assert.same({ 1, 3, 2, 1, 1, 1 }, counts)             -- an object without an area is left out
    assert.same({ 0, 0, 1 }, pads)
  end)

  it("changes images with their boxes, the same ones for a seed, and resumes", function()
    local rec, idx = pack("changed", LABELS)
    local function open()
      return image.ImageDetIter{ batch_size = 2, data_shape = { 3, 40, 40 }, path_imgrec = rec,
        path_imgidx = idx, shuffle = true, rand_crop = 0.5, rand_pad = 0.5, rand_mirror = true }
    end
    ty.random.seed(3)
    local it = open()
    it:next()
    local state, random = it:state(), ty.random.get_state()
    local want = it:next().label[1]:totable()
    local other = open()
    other:set_state(state)
    ty.random.set_state(random)
    assert.near(want, other:next().label[1]:totable())
  end)

  it("reads lists, and keeps the samples of an iterator in step with another", function()
    local rows = {}
    for i, objects in ipairs(LABELS) do
      local name = path(("p%d.png"):format(i))
      image.imwrite(name, picture(60, 80, objects))
      rows[i] = { make_label(objects), name }
    end
    local train = image.ImageDetIter{ batch_size = 1, data_shape = { 3, 60, 80 }, imglist = rows }
    local valid = image.ImageDetIter{ batch_size = 1, data_shape = { 3, 60, 80 },
      imglist = { rows[1] } }
    assert.same({ 1, 6 }, valid.label_shape)
    assert.is_true(valid == train:sync_label_shape(valid))
    assert.same({ 3, 6 }, valid.label_shape)
    assert.shape({ 1, 3, 6 }, valid:next().label[1])
    train:reshape{ label_shape = { 9, 6 } }
    assert.shape({ 1, 9, 6 }, train:next().label[1])
    assert.raises("value", train.reshape, train, { label_shape = { 2, 6 } })
    assert.raises("value", train.reshape, train, { label_shape = { 9, 5 } })
    assert.raises("type", train.sync_label_shape, train, 3)
  end)

  it("draws what it reads", function()
    local rec = pack("drawn", LABELS)
    local it = image.ImageDetIter{ batch_size = 1, data_shape = { 3, 60, 80 }, path_imgrec = rec }
    local count, x = 0, it:draw_next{ color = "#ffffff", id2labels = { [0] = "disc" } }
    assert.shape({ 60, 80, 3 }, x)
    assert.same({ 255, 255, 255 }, x[18][8]:totable())     -- on the left side of the box
    while x do
      count, x = count + 1, it:draw_next()
    end
    assert.equal(5, count)
  end)

  it("names labels that are not of boxes, and the sample", function()
    for name, raw in pairs{ short = { 3 }, narrow = { 2, 4, 0, 0, 0, 1 },
        ragged = { 2, 5, 0, 0, 0, 1 }, flat = { 2, 5, 0, 0.5, 0.5, 0.5, 0.5 } } do
      local rec = pack(name, { OBJECTS, { raw = raw } })
      local e = assert.raises("format", image.ImageDetIter,
        { batch_size = 1, data_shape = { 3, 60, 80 }, path_imgrec = rec })
      assert.truthy(tostring(e):find("record 1", 1, true), name)
    end
    local rec = pack("fine", LABELS)
    assert.raises("type", image.ImageDetIter, { batch_size = 1, data_shape = { 3, 60, 80 },
      path_imgrec = rec, aug_list = { image.CastAug() } })
    assert.raises("name", image.ImageDetIter, { batch_size = 1, data_shape = { 3, 60, 80 },
      path_imgrec = rec, rand_corp = 1 })
  end)
end)
