--- Trains an autoencoder: a network that reduces an image to a few numbers
-- and reconstructs it from them.
--
--   tycho scripts/autoencoder.lua                   draws its own digits, 16 numbers for 784 pixels
--   tycho scripts/autoencoder.lua --code 4 --data folder-with-idx-files
--   tycho scripts/autoencoder.lua --checkpoint run/a --resume --epochs 20
--   tycho scripts/autoencoder.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local images = require "images"

local parser =
  common.parser("Trains a network that squeezes images into a few numbers and draws them again.")
common.count(parser, "--code", "numbers per image in the code", 16)
parser:option("--data", "folder with MNIST's idx files, plain or gz; default: digits drawn here")
common.count(parser, "--train", "images to train on", 6000)
common.count(parser, "--test", "images to test on", 1000)
common.count(parser, "--show", "images to print with their copies", 3, 0)
common.training(parser, {epochs = 12, batch = 100, rate = 0.002})
local options = common.parse(parser, {train = 3000, test = 500, epochs = 8, batch = 50})

local PIXELS = 28 * 28

-- Returns a network image -> code -> image; pixels are the targets, so their mean squared error is
-- trained.
local function autoencoder()
  local function layer(x, units, name)
    return ty.sym.FullyConnected{data = x, num_hidden = units, name = name}
  end
  local function relu(x)
    return ty.sym.Activation{data = x, act_type = "relu"}
  end
  local x = relu(layer(ty.sym.Variable("data"), 256, "encode1"))
  local code = layer(x, options.code, "code")
  x = relu(layer(code, 256, "decode1"))
  x = ty.sym.Activation{data = layer(x, PIXELS, "decode2"), act_type = "sigmoid", name = "copy"}
  return ty.sym.LinearRegressionOutput{data = x, label = ty.sym.Variable("pixels"), name = "error"}
end

local function iterator(x, from, to, shuffle)
  local part = x:slice_axis{axis = 0, begin = from, end_ = to}
  return ty.io.NDArrayIter{data = part, label = part, batch_size = options.batch,
    label_name = "pixels", shuffle = shuffle}
end

-- Returns a picture as text, two rows of pixels per line.
local function lines(pixels)
  local INK, list = {" ", ".", ":", "o", "#", "@"}, {}
  for row = 0, 26, 2 do
    local line = {}
    for column = 1, 28 do
      local level = (pixels[row * 28 + column] + pixels[(row + 1) * 28 + column]) / 2
      line[column] = INK[math.max(1, math.min(#INK, math.floor(level * #INK) + 1))]
    end
    list[#list + 1] = table.concat(line)
  end
  return list
end

local function show(x, copies)
  local before, after = x:totable(), copies:totable()
  for i = 1, #before do
    local left, right = lines(before[i]), lines(after[i])
    for k = 1, #left do
      print(left[k] .. " | " .. right[k])
    end
  end
end

ty.random.seed(options.seed)
local x = images.load(options.data, {1, 28, 28}, options.train + options.test, options.seed)
local n = x:len()
assert(n >= options.train + options.test,
  ("there are %d images, %d are needed"):format(n, options.train + options.test))
x = x:reshape{n, PIXELS}
local train, test = iterator(x, 0, options.train, true), iterator(x, n - options.test, n, false)
local module = ty.mod.Module{symbol = autoencoder(), label_names = {"pixels"},
  context = common.devices(options)}

local error_ = common.fit(options, module, {
  train_data = train, eval_data = test, eval_metric = "mse", initializer = ty.init.Xavier(),
  optimizer = "adam", optimizer_params = {learning_rate = options.rate,
    rescale_grad = 1 / options.batch}, batch_end_callback = ty.callback.Speedometer(options.batch,
      math.max(1, math.floor(options.train / options.batch / 2))),
})

if options.show > 0 then
  local some = x:slice_axis{axis = 0, begin = math.max(0, n - options.show), end_ = n}
  show(some, module:predict(some))
end
local held = x:slice_axis{axis = 0, begin = n - options.test, end_ = n}
local apart = held:broadcast_sub(
  x:slice_axis{axis = 0, begin = 0, end_ = options.train}:mean{axis = 0, keepdims = true})
local plain = apart:square():mean():asscalar()
print(
  ("squared error %.4f with %d numbers for an image; the mean image alone: %.4f; %.1f %% explained")
    :format(error_, options.code, plain, 100 * (1 - error_ / plain)))
