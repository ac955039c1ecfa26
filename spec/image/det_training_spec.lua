-- A small single-shot detector learns from ImageDetIter: data, targets and boxes fit together.

local boxes = require "spec.support.boxes"
local ty = require "tycho"

local V, sym = ty.sym.Variable, ty.sym
local SIDE, COUNT = 48, 32

-- Returns labels of squares of two classes anywhere.
local function samples()
  local list = {}
  for i = 1, COUNT do
    local left, top = i * 7 % 28 / SIDE, i * 11 % 28 / SIDE
    list[i] = { { i % 2, left, top, left + 18 / SIDE, top + 18 / SIDE } }
  end
  return list
end

local function conv(x, filters, name)
  x = sym.Convolution{ x, num_filter = filters, kernel = { 3, 3 }, stride = { 2, 2 },
    pad = { 1, 1 }, name = name }
  return sym.Activation{ x, act_type = "relu" }
end

local function predicted(x, channels, name)
  x = sym.Convolution{ x, num_filter = channels, kernel = { 3, 3 }, pad = { 1, 1 }, name = name }
  return sym.transpose{ x, axes = { 0, 2, 3, 1 } }
end

-- Returns the losses for training, and the detections for use.
local function detector()
  local x = conv(conv(conv(V "data", 8, "c1"), 16, "c2"), 16, "c3")
  local anchors = sym.contrib.MultiBoxPrior{ x, sizes = { 0.375 }, name = "anchors" }
  local classes = sym.reshape{ predicted(x, 3, "class"), shape = { 0, -1, 3 } }
  classes = sym.transpose{ classes, axes = { 0, 2, 1 } }
  local places = sym.Flatten{ predicted(x, 4, "place") }
  local target = sym.contrib.MultiBoxTarget{ anchors, V "label", classes, overlap_threshold = 0.5,
    ignore_label = -1, negative_mining_ratio = 3, negative_mining_thresh = 0.5,
    variances = { 0.1, 0.1, 0.2, 0.2 } }
  local prob = sym.SoftmaxOutput{ classes, target[3], ignore_label = -1, use_ignore = true,
    multi_output = true, normalization = "valid", name = "prob" }
  local off = sym.smooth_l1{ target[2] * (places - target[1]), scalar = 1 }
  local found = sym.contrib.MultiBoxDetection{ prob, places, anchors, nms_threshold = 0.3 }
  return sym.Group{ prob, sym.MakeLoss{ off, grad_scale = 0.05 }, sym.BlockGrad{ found } }
end

describe("a detector", function()
  it("learns where squares are and which", function()
    local folder = os.tmpname()
    local list, rows = samples(), {}
    for i, objects in ipairs(list) do
      local path = ("%s_%d.png"):format(folder, i)
      ty.image.imwrite(path, boxes.picture(SIDE, SIDE, objects))
      rows[i] = { { 2, 5, unpack(objects[1]) }, path }
    end
    local it = ty.image.ImageDetIter{ batch_size = 8, data_shape = { 3, SIDE, SIDE },
      imglist = rows, rand_mirror = true, mean = true, std = true }
    ty.random.seed(2)
    local mod = ty.mod.Module{ symbol = detector(), label_names = { "label" } }
    mod:bind{ data_shapes = it.provide_data, label_shapes = it.provide_label }
    mod:init_params{ initializer = ty.init.Xavier() }
    mod:init_optimizer{ optimizer = "adam", optimizer_params = { learning_rate = 0.01 } }
    for _ = 1, 15 do
      for batch in it do
        mod:forward_backward(batch)
        mod:update()
      end
      it:reset()
    end
    local right, total = 0, 0
    for batch in it do
      mod:forward(batch, false)
      local best, label = mod:get_outputs()[3]:totable(), batch.label[1]:totable()
      for i, found in ipairs(best) do
        local first, want = found[1], label[i][1]
        for _, row in ipairs(found) do
          first = row[1] >= 0 and row[2] > first[2] and row or first
        end
        local overlap = ty.nd.contrib.box_iou{ ty.nd.array{ { unpack(first, 3, 6) } },
          ty.nd.array{ { unpack(want, 2, 5) } } }:asscalar()
        right = right + (first[1] == want[1] and overlap > 0.5 and 1 or 0)
        total = total + 1
      end
    end
    for i = 1, COUNT do
      os.remove(("%s_%d.png"):format(folder, i))
    end
    os.remove(folder)
    assert.equal(COUNT, total)
    assert.is_true(right >= 0.8 * total, right .. " of " .. total)
  end)
end)
