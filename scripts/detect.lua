--- Trains a single-shot detector, which finds objects in a picture and their classes.
--
--   tycho scripts/detect.lua                               draws discs, squares and crosses
--   tycho scripts/detect.lua --objects 4 --epochs 30
--   tycho scripts/detect.lua --checkpoint run/d --resume --epochs 40
--   tycho scripts/detect.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local scenes = require "scenes"

local parser = common.parser("Trains a network that says where things are in a picture.")
common.count(parser, "--objects", "largest number of objects in a picture", 2)
common.count(parser, "--train", "pictures to train on", 600)
common.count(parser, "--test", "pictures to test on", 200)
common.training(parser, {epochs = 20, batch = 20, rate = 0.005})
local options = common.parse(parser, {train = 300, test = 100, epochs = 8})

local sym = ty.sym
local ANCHORS = {0.3, 0.42}                               -- sides of the boxes at each place
local SURE, OVERLAP = 0.5, 0.5                            -- what counts as found

local function convolution(x, filters, stride, name)
  x = sym.Convolution{x, num_filter = filters, kernel = {3, 3}, stride = {stride, stride},
    pad = {1, 1}, name = name}
  return stride > 1 and sym.Activation{sym.BatchNorm{x, name = name .. "_bn"}, act_type = "relu"}
    or sym.transpose{x, axes = {0, 2, 3, 1}}
end

-- Returns a network with three outputs: classes of all boxes with their loss, the loss of
-- positions, and the detections: (N, boxes, 6), rows of class (-1: none), score, left, top,
-- right, bottom.
local function detector()
  local x, label = sym.Variable("data"), sym.Variable("label")
  for i, filters in ipairs{16, 32, 48} do
    x = convolution(x, filters, 2, "conv" .. i)
  end
  local count = #scenes.NAMES + 1                         -- with the ground
  local boxes = sym.contrib.MultiBoxPrior{x, sizes = ANCHORS, name = "boxes"}
  local classes = sym.reshape{convolution(x, #ANCHORS * count, 1, "classes"),
    shape = {0, -1, count}}
  classes = sym.transpose{classes, axes = {0, 2, 1}}
  local places = sym.Flatten{convolution(x, #ANCHORS * 4, 1, "places")}
  local target = sym.contrib.MultiBoxTarget{boxes, label, classes, overlap_threshold = 0.5,
    ignore_label = -1, negative_mining_ratio = 3, negative_mining_thresh = 0.5}
  local odds = sym.SoftmaxOutput{classes, target[3], ignore_label = -1, use_ignore = true,
    multi_output = true, normalization = "valid", name = "odds"}
  local off = sym.smooth_l1{target[2] * (places - target[1]), scalar = 1}
  local found = sym.contrib.MultiBoxDetection{odds, places, boxes, nms_threshold = 0.3}
  return sym.Group{odds, sym.MakeLoss{off, normalization = "valid", name = "off"},
    sym.BlockGrad{found, name = "found"}}
end

local function overlap(a, b)
  local width = math.min(a[5], b[4]) - math.max(a[3], b[2])
  local height = math.min(a[6], b[5]) - math.max(a[4], b[3])
  local both = math.max(0, width) * math.max(0, height)
  return both / ((a[5] - a[3]) * (a[6] - a[4]) + (b[4] - b[2]) * (b[5] - b[3]) - both)
end

-- The share of objects that were found, with the right class and most of their area.
local Found = ty.metric.EvalMetric:extend("Found")

function Found:init()
  Found.super.init(self, {name = "found"})
end

function Found:reset()
  Found.super.reset(self)
  self.said = 0
end

local function is_found(object, rows)
  for _, row in ipairs(rows) do
    if row[1] == object[1] and row[2] > SURE and overlap(row, object) > OVERLAP then
      return true
    end
  end
  return false
end

function Found:update(labels, preds)
  local rows = preds[3]:totable()
  for i, objects in ipairs(labels[1]:totable()) do
    for _, object in ipairs(objects) do
      if object[1] >= 0 then
        self.sum_metric = self.sum_metric + (is_found(object, rows[i]) and 1 or 0)
        self.num_inst = self.num_inst + 1
      end
    end
    for _, row in ipairs(rows[i]) do
      self.said = self.said + (row[1] >= 0 and row[2] > SURE and 1 or 0)
    end
  end
end

local function iterator(count, seed, shuffle)
  local x, label = scenes.draw(count, options.objects, seed)
  return ty.io.NDArrayIter{data = x, label = {label = label}, batch_size = options.batch,
    shuffle = shuffle, last_batch_handle = "discard"}
end

ty.random.seed(options.seed)
local test = iterator(options.test, options.seed + 1000, false)
local metric = Found{}
local module = ty.mod.Module{symbol = detector(), label_names = {"label"},
  context = common.devices(options)}
local found = common.fit(options, module, {
  train_data = iterator(options.train, options.seed, true), eval_data = test,
  eval_metric = metric, initializer = ty.init.Xavier(), optimizer = "adam",
  optimizer_params = {learning_rate = options.rate},
})

local picture = module:predict(test, {num_batch = 1})[3]:totable()[1]
for _, row in ipairs(picture) do
  if row[1] >= 0 and row[2] > SURE then
    print(("in the first picture: a %s, %.0f %% sure, from (%.2f, %.2f) to (%.2f, %.2f)")
      :format(scenes.NAMES[row[1] + 1], 100 * row[2], unpack(row, 3, 6)))
  end
end
print(("found %.4f of the things in pictures that it has not seen; %d said for %d"):format(found,
  metric.said, metric.num_inst))
