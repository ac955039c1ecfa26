--- Trains a network on images of digits with a hand-written loop: `ty.gluon` and `ty.autograd`.
--
--   tycho scripts/mnist_gluon.lua                          draws its own digits, trains a LeNet
--   tycho scripts/mnist_gluon.lua --network mlp --data folder-with-idx-files
--   tycho scripts/mnist_gluon.lua --checkpoint run/m --resume --epochs 8
--   tycho scripts/mnist_gluon.lua --help
--
-- `train_mnist.lua` does the same with a symbol and `Module:fit`.

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local images = require "images"
local kept = require "kept"

local autograd, gluon = ty.autograd, ty.gluon
local nn = gluon.nn

local parser = common.parser("Trains a network on images of digits, with a loop written by hand.")
parser:option("--network", "lenet (convolutions) or mlp (128-64-10)")
  :choices{"lenet", "mlp"}:default("lenet")
parser:option("--data", "folder with MNIST's idx files, plain or gz; default: digits drawn here")
common.count(parser, "--train", "images to train on", 8000)
common.count(parser, "--test", "images to test on", 2000)
common.count(parser, "--workers", "threads that make batches", 0, 0)
parser:flag("--eager", "run the network's forward in each step instead of hybridizing it")
common.training(parser, {epochs = 4, batch = 100, rate = 0.1, momentum = 0.9})
local options = common.parse(parser, {network = "mlp", train = 2000, test = 500})
local devices = common.devices(options)

-- Data --------------------------------------------------------------------------------------------

-- Returns data sets of images (1, 28, 28), 0 to 1, and labels, for training and for testing.
local function datasets()
  if options.data then
    local function part(train, n)
      return gluon.data.vision.MNIST{root = options.data, train = train}
        :transform_first(gluon.data.vision.transforms.ToTensor()):take(n)
    end
    return part(true, options.train), part(false, options.test)
  end
  local x, y = images.load(nil, {1, 28, 28}, options.train + options.test, options.seed)
  local function part(key)
    return gluon.data.ArrayDataset(x[key], y[key])
  end
  return part("0:" .. options.train), part(options.train .. ":")
end

ty.random.seed(options.seed)
local train_set, test_set = datasets()
local train = gluon.data.DataLoader{train_set, options.batch, shuffle = true,
  num_workers = options.workers}
local test = gluon.data.DataLoader{test_set, options.batch, num_workers = options.workers}

-- Splits the batch into as many parts as there are devices.
local function parts(data, label)
  local x = gluon.utils.split_and_load(data, devices, {even_split = false})
  local y = gluon.utils.split_and_load(label, devices, {even_split = false})
  return x, y
end

-- Network -----------------------------------------------------------------------------------------

local networks = {
  lenet = function()
    return nn.HybridSequential{
      nn.Conv2D(20, 5, {activation = "tanh"}), nn.MaxPool2D(2, 2),
      nn.Conv2D(50, 5, {activation = "tanh"}), nn.MaxPool2D(2, 2),
      nn.Dense(500, "tanh"), nn.Dense(10),
    }
  end,
  mlp = function()
    return nn.HybridSequential{nn.Dense(128, "relu"), nn.Dense(64, "relu"), nn.Dense(10)}
  end,
}

local net = networks[options.network]()
net:initialize{init = ty.init.Xavier(), ctx = devices}
if not options.eager then
  net:hybridize()
end
local loss = gluon.loss.SoftmaxCrossEntropyLoss()
local trainer = gluon.Trainer(net:collect_params(), "sgd",
  {learning_rate = options.rate, momentum = options.momentum})

local function accuracy()
  local metric = ty.metric.Accuracy()
  for data, label in test do
    local x, y = parts(data, label)
    for i = 1, #x do
      metric:update(y[i], net(x[i]))
    end
  end
  return select(2, metric:get())
end

-- Makes one training step; the trainer adds the gradients of all devices.
local function step(data, label, metric)
  local x, y = parts(data, label)
  local outputs, losses = {}, {}
  autograd.record(function()
    for i = 1, #x do
      outputs[i] = net(x[i])
      losses[i] = loss(outputs[i], y[i])
    end
  end)
  autograd.backward(losses)
  trainer:step(data:len())
  metric:update(y, outputs)
end

-- Training ----------------------------------------------------------------------------------------

local first = 0
if options.resume then
  first = kept.load(options.checkpoint, net, trainer, devices)
end
local log, valid = common.log(options), nil
for epoch = first, options.epochs - 1 do
  ty.random.seed(options.seed + epoch)                    -- resuming gives the same result
  local metric, started = ty.metric.Accuracy(), ty.callback.clock()
  for data, label in train do
    step(data, label, metric)
  end
  local _, learnt = metric:get()
  local seconds = ty.callback.clock() - started
  valid = accuracy()
  ty.log:info(("Epoch[%d] accuracy %.4f in training, %.4f in the test, %.0f images/s"):format(epoch,
    learnt, valid, train_set:len() / seconds))
  log:epoch{epoch = epoch, train = learnt, valid = valid, seconds = seconds}
  if options.checkpoint then
    kept.save(options.checkpoint, epoch + 1, net, trainer)
  end
end
log:close()
print(("accuracy %.4f on %d images that it has not seen"):format(valid or accuracy(),
  test_set:len()))
