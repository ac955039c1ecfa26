--- Trains a residual network on small coloured images and prints its accuracy on images that it has
-- not seen.
--
--   tycho scripts/train_cifar10.lua                 draws its own pictures, trains a ResNet-20 on
--                                                   them
--   tycho scripts/train_cifar10.lua --data cifar-10-batches-bin --epochs 160 --depth 56
--   tycho scripts/train_cifar10.lua --data records  a folder with train.rec and test.rec
--   tycho scripts/train_cifar10.lua --checkpoint run/r --resume --epochs 8
--   tycho scripts/train_cifar10.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local images = require "images"
local networks = require "networks"
local pictures = require "pictures"

local parser = common.parser("Trains a residual network on small coloured images.")
common.count(parser, "--depth", "layers of the ResNet: 20, 56, 110 or another 6 n + 2", 20)
parser:option("--data", "folder with CIFAR-10's binary files, or with train.rec and test.rec; \z
  default: pictures drawn here")
common.count(parser, "--train", "pictures to draw for training", 2000)
common.count(parser, "--test", "pictures to draw for the test", 500)
common.number(parser, "--wd", "weight decay", 0.0001, 0)
common.counts(parser, "--drops",
  "epochs after which the rate falls tenfold, as 80,120; default: half and three quarters of all")
common.training(parser, {epochs = 5, batch = 50, rate = 0.1, momentum = 0.9})
local options = common.parse(parser, {depth = 8, train = 800, test = 200, batch = 20})

local function exists(path)
  local file = io.open(path)
  return file ~= nil and file:close()
end

local function count_records(path)
  local records, n = ty.recordio.MXRecordIO(path, "r"), 0
  while records:read() do
    n = n + 1
  end
  records:close()
  return n
end

-- Returns iterators over record files, whose images native threads decode and augment.
local function record_iterators(folder)
  local function part(name, training)
    return ty.io.ImageRecordIter{
      path_imgrec = folder .. "/" .. name .. ".rec", data_shape = {3, 32, 32},
      batch_size = options.batch, shuffle = training, rand_crop = training, rand_mirror = training,
      pad = training and 4 or 0, fill_value = 127, mean_r = images.MEAN[1], mean_g = images.MEAN[2],
      mean_b = images.MEAN[3], std_r = images.DEVIATION[1], std_g = images.DEVIATION[2],
      std_b = images.DEVIATION[3], round_batch = training,
    }
  end
  return part("train", true), part("test", false), count_records(folder .. "/train.rec")
end

-- Returns training images, test images, and the number of training images.
local function iterators()
  if options.data and exists(options.data .. "/train.rec") then
    return record_iterators(options.data)
  end
  local train_x, train_y, test_x, test_y
  if options.data then
    train_x, train_y = pictures.read(options.data, "train")
    test_x, test_y = pictures.read(options.data, "test")
  else
    train_x, train_y = pictures.draw(options.train, options.seed)
    test_x, test_y = pictures.draw(options.test, options.seed + 1000)
  end
  local train = ty.io.NDArrayIter{data = train_x, label = train_y,
    batch_size = options.batch, shuffle = true}
  local test = ty.io.NDArrayIter{data = test_x, label = test_y, batch_size = options.batch}
  return images.Augmented(train, {mirror = true, shift = options.data and 4 or 2}),
    images.Augmented(test, {}), train_x:len()
end

ty.random.seed(options.seed)
local train, test, count = iterators()
local steps = math.ceil(count / options.batch)
local module = ty.mod.Module{symbol = networks.resnet{depth = options.depth},
  context = common.devices(options)}

-- Returns a schedule: the rate falls to a tenth after half and after three quarters of the
-- training, as in the paper, or after the given epochs.
local function schedule()
  local list, all = {}, math.max(steps * options.epochs, 4)
  for i, epoch in ipairs(options.drops or {}) do
    list[i] = epoch * steps
  end
  return ty.lr_scheduler.MultiFactorScheduler{step = #list > 0 and list
    or {math.floor(all / 2), math.floor(all * 3 / 4)}, factor = 0.1, base_lr = options.rate}
end

print(("ResNet-%d, batches of %d, %s"):format(options.depth, options.batch,
  options.data or "pictures drawn here"))
local accuracy = common.fit(options, module, {
  train_data = train, eval_data = test, eval_metric = "acc", optimizer = "nag",
  optimizer_params = {learning_rate = options.rate, momentum = options.momentum, wd = options.wd,
    lr_scheduler = schedule()},
  initializer = ty.init.Xavier{rnd_type = "gaussian", factor_type = "in", magnitude = 2},
  batch_end_callback = ty.callback.Speedometer(options.batch,
    math.max(1, math.min(100, math.floor(steps / 2)))),
})
print(("accuracy %.4f of a ResNet-%d on images that it has not seen")
  :format(accuracy, options.depth))
