--- Trains two networks against each other: one draws digits, the other tells them from real ones.
--
--   tycho scripts/gan.lua                      draws real digits itself, learns to draw some too
--   tycho scripts/gan.lua --data folder-with-idx-files --epochs 40
--   tycho scripts/gan.lua --plot gan.svg --show 8
--   tycho scripts/gan.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local images = require "images"
local networks = require "networks"

local parser = common.parser("Trains a network to draw digits against one that judges them.")
parser:option("--data", "folder with MNIST's idx files, plain or gz; default: digits drawn here")
common.count(parser, "--train", "images to learn from", 3000)
common.count(parser, "--noise", "random numbers from which an image is generated", 24)
common.count(parser, "--epochs", "passes over the training data", 30)
common.count(parser, "--batch", "samples per step", 50)
common.number(parser, "--rate", "learning rate", 0.001, 0)
common.count(parser, "--seed", "seed of weights, drawn data and shuffling", 1, 0)
common.count(parser, "--show", "images to print at the end", 4, 0)
common.gpus(parser)
common.options(parser)
local options = common.parse(parser, {train = 1500, epochs = 12, batch = 25})

local PIXELS = 28 * 28
local sym, nd = ty.sym, ty.nd

local function layer(x, units, name, kind)
  x = sym.FullyConnected{x, num_hidden = units, name = name}
  return kind and sym.Activation{x, act_type = kind} or sym.LeakyReLU{x, slope = 0.2}
end

local function artist()
  local x = layer(sym.Variable("noise"), 128, "draw1")
  return layer(layer(x, 256, "draw2"), PIXELS, "draw3", "sigmoid")
end

-- Returns a network that judges whether an image is real, from 0 to 1.
local function judge()
  local x = sym.Dropout{layer(sym.Variable("data"), 256, "judge1"), p = 0.3}
  x = sym.FullyConnected{layer(x, 128, "judge2"), num_hidden = 1, name = "judge3"}
  return sym.LogisticRegressionOutput{x, sym.Variable("real"), name = "verdict"}
end

local function bound(net, names, shape, labels)
  local module = ty.mod.Module{symbol = net, data_names = names,
    label_names = labels and {"real"} or {}, context = common.devices(options)}
  module:bind{data_shapes = {{names[1], shape}}, inputs_need_grad = labels,
    label_shapes = labels and {{"real", {options.batch, 1}}} or nil}
  module:init_params{initializer = ty.init.Xavier()}
  module:init_optimizer{optimizer = "adam",
    optimizer_params = {learning_rate = options.rate, beta1 = 0.5}}
  return module
end

local function noise(n)
  return nd.random.normal{shape = {n, options.noise}}
end

ty.random.seed(options.seed)
local x, y = images.load(options.data, {1, 28, 28}, options.train, options.seed)
x, y = x:slice_axis{axis = 0, begin = 0, end_ = options.train}, y["0:" .. options.train]
local train = ty.io.NDArrayIter{data = x:reshape{-1, PIXELS}, batch_size = options.batch,
  shuffle = true, last_batch_handle = "discard"}
local draws = bound(artist(), {"noise"}, {options.batch, options.noise}, false)
local judges = bound(judge(), {"data"}, {options.batch, PIXELS}, true)
local REAL, DRAWN = nd.ones{options.batch, 1} * 0.9, nd.zeros{options.batch, 1}
local YES = nd.ones{options.batch, 1}

-- Returns the judge's scores of a batch, and its gradients.
local function judged(batch, label)
  judges:forward({data = {batch}, label = {label}}, true)
  judges:backward()
  return judges:get_outputs()[1]:mean():asscalar()
end

-- Trains both networks by one step; returns the judge's scores of real
-- and of drawn images.
local function step(real)
  draws:forward({data = {noise(options.batch)}}, true)
  local drawn = draws:get_outputs()[1]
  local of_drawn = judged(drawn, DRAWN)
  judges:update()
  local of_real = judged(real, REAL)
  judges:update()
  judged(drawn, YES)                                      -- where the artist wants the judge to be
  draws:backward(judges:get_input_grads())
  draws:update()
  return of_real, of_drawn
end

local function train_both()
  local log = common.log(options)
  for epoch = 0, options.epochs - 1 do
    local real, drawn, steps, started = 0, 0, 0, ty.callback.clock()
    train:reset()
    for batch in train do
      local a, b = step(batch.data[1])
      real, drawn, steps = real + a, drawn + b, steps + 1
    end
    log:epoch{epoch = epoch, real = real / steps, drawn = drawn / steps,
      seconds = ty.callback.clock() - started}
    ty.log:info(("Epoch[%d] real images are judged %.3f, drawn ones %.3f"):format(epoch,
      real / steps, drawn / steps))
  end
  log:close()
end


-- Drawn images, read by a network that knows digits -----------------------------------------------

local reader = ty.mod.Module{symbol = networks.mlp{}}

local function teach_reader()
  reader:fit{train_data = ty.io.NDArrayIter{data = x, label = y, batch_size = 50, shuffle = true},
    num_epoch = 4, initializer = ty.init.Xavier(),
    optimizer_params = {learning_rate = 0.1, momentum = 0.9}}
end

-- Returns new drawn images, the number of different digits that the reader sees in them, and its
-- mean confidence in per cent.
local function read_drawn()
  local drawn = draws:predict(ty.io.NDArrayIter{data = {noise = noise(10 * options.batch)},
    batch_size = options.batch}):reshape{-1, 1, 28, 28}
  local odds, kinds, count = reader:predict(drawn), {}, 0
  for _, digit in ipairs(odds:argmax{axis = 1}:totable()) do
    count = count + (kinds[digit] and 0 or 1)
    kinds[digit] = true
  end
  return drawn, count, 100 * odds:max{axis = 1}:mean():asscalar()
end


-- The training ------------------------------------------------------------------------------------

teach_reader()
local _, before = read_drawn()
train_both()
local drawn, count, sure = read_drawn()
if options.show > 0 then
  ty.viz.show(ty.viz.image_grid(drawn["0:" .. options.show], {columns = options.show}))
end
print(("%d of 10 digits are drawn, %d before the training; a network that reads is %.1f %% sure")
  :format(count, before, sure))
