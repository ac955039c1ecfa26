--- Trains a network on images of digits and prints its accuracy on images that it has not seen.
--
--   tycho scripts/train_mnist.lua                          draws its own digits, trains a LeNet
--   tycho scripts/train_mnist.lua --network mlp --data folder-with-idx-files
--   tycho scripts/train_mnist.lua --checkpoint run/m --resume --epochs 8
--   tycho scripts/train_mnist.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local images = require "images"
local networks = require "networks"

local parser = common.parser("Trains a network on images of digits.")
parser:option("--network", "lenet (convolutions) or mlp (128-64-10)")
  :choices{"lenet", "mlp"}:default("lenet")
parser:option("--data", "folder with MNIST's idx files, plain or gz; default: digits drawn here")
common.count(parser, "--train", "images to train on; the next ones test", 8000)
common.count(parser, "--test", "images to test on", 2000)
common.training(parser, {epochs = 4, batch = 100, rate = 0.1, momentum = 0.9})
local options = common.parse(parser, {network = "mlp", train = 2000, test = 500})

ty.random.seed(options.seed)
local x, y = images.load(options.data, {1, 28, 28}, options.train + options.test, options.seed)
local train, test = images.split(x, y, options)
local module = ty.mod.Module{symbol = networks[options.network]{classes = 10},
  context = common.devices(options)}

local accuracy = common.fit(options, module, {
  train_data = train, eval_data = test, eval_metric = "acc", initializer = ty.init.Xavier(),
  optimizer = "sgd", optimizer_params = {learning_rate = options.rate, momentum = options.momentum},
  batch_end_callback = ty.callback.Speedometer(options.batch,
    math.max(1, math.floor(options.train / options.batch / 2))),
})
print(("accuracy %.4f on %d images that it has not seen"):format(accuracy, options.test))
