--- Trains a network on images of digits and ends with its accuracy on images that it has not seen.
--
--   tycho scripts/train_mnist.lua                          draws its own digits, trains a LeNet
--   tycho scripts/train_mnist.lua --network mlp --data folder-with-idx-files
--   tycho scripts/train_mnist.lua --help

local here = arg[0]:match("^(.*)/") or "."
package.path = here .. "/?.lua;" .. package.path

local argparse = require "argparse"
local ty = require "tycho"
local digits = require "digits"

local parser = argparse("train_mnist.lua", "Trains a network on images of digits.")
parser:option("--network", "lenet (convolutions) or mlp (128-64-10)"):choices{"lenet", "mlp"}:default("lenet")
parser:option("--data", "folder with MNIST's idx files, plain or gz; default: digits drawn here")
parser:option("--train", "images to train on; the next ones test"):convert(tonumber):default("8000")
parser:option("--test", "images to test on"):convert(tonumber):default("2000")
parser:option("--epochs", "passes over the training images"):convert(tonumber):default("4")
parser:option("--batch", "images of a step"):convert(tonumber):default("100")
parser:option("--rate", "learning rate"):convert(tonumber):default("0.1")
parser:option("--momentum", "share of the last step that goes on"):convert(tonumber):default("0.9")
parser:option("--seed", "of weights and shuffling"):convert(tonumber):default("1")
parser:option("--checkpoint", "prefix of files to keep parameters in after each epoch")
parser:option("--resume", "epoch of a checkpoint to go on from"):convert(tonumber):default("0")
local options = parser:parse()

local function mlp()
  local x = ty.sym.Flatten{data = ty.sym.Variable("data")}
  x = ty.sym.Activation{data = ty.sym.FullyConnected{data = x, num_hidden = 128, name = "fc1"}, act_type = "relu"}
  x = ty.sym.Activation{data = ty.sym.FullyConnected{data = x, num_hidden = 64, name = "fc2"}, act_type = "relu"}
  return ty.sym.SoftmaxOutput{data = ty.sym.FullyConnected{data = x, num_hidden = 10, name = "fc3"}, name = "softmax"}
end

local function lenet()
  local x = ty.sym.Variable("data")
  for i, filters in ipairs{20, 50} do
    x = ty.sym.Convolution{data = x, num_filter = filters, kernel = {5, 5}, name = "conv" .. i}
    x = ty.sym.Activation{data = x, act_type = "tanh"}
    x = ty.sym.Pooling{data = x, kernel = {2, 2}, stride = {2, 2}, pool_type = "max"}
  end
  x = ty.sym.Activation{data = ty.sym.FullyConnected{data = ty.sym.Flatten{data = x}, num_hidden = 500, name = "fc1"}, act_type = "tanh"}
  return ty.sym.SoftmaxOutput{data = ty.sym.FullyConnected{data = x, num_hidden = 10, name = "fc2"}, name = "softmax"}
end

-- iterators over the first images to train, the last ones to test
local function load()
  local images, labels
  if options.data then
    images, labels = digits.read(options.data)
  else
    images, labels = digits.draw(options.train + options.test, options.seed)
  end
  local n = images:len()
  assert(n >= options.train + options.test, ("there are %d images, %d are needed"):format(n, options.train + options.test))
  local function part(from, to, shuffle)
    return ty.io.NDArrayIter{data = images:slice_axis{axis = 0, begin = from, end_ = to}, label = labels:slice_axis{axis = 0,
        begin = from, end_ = to},
                             batch_size = options.batch, shuffle = shuffle}
  end
  return part(0, options.train, true), part(n - options.test, n, false)
end

ty.random.seed(options.seed)
local train, test = load()
local network = options.network == "mlp" and mlp() or lenet()
local module, parameters, states
if options.resume > 0 then
  network, parameters, states = ty.model.load_checkpoint(assert(options.checkpoint, "--resume needs --checkpoint"), options.resume)
end
module = ty.mod.Module{symbol = network, context = ty.cpu()}

local best = 0
module:fit{
  train_data = train, eval_data = test, eval_metric = "acc", num_epoch = options.epochs, begin_epoch = options.resume,
  arg_params = parameters, aux_params = states,
  initializer = ty.init.Xavier(), optimizer = "sgd", optimizer_params = {learning_rate = options.rate, momentum = options.momentum},
  batch_end_callback = ty.callback.Speedometer(options.batch, math.max(1, math.floor(options.train / options.batch / 2))),
  epoch_end_callback = options.checkpoint and ty.callback.do_checkpoint(options.checkpoint) or nil,
  eval_end_callback = function(param)
    local _, accuracy = param.eval_metric:get()
    best = math.max(best, accuracy)
  end,
}
local score = module:score(test, "acc")
print(("accuracy %.4f on %d images (best %.4f)"):format(score[1][2], options.test, best))
