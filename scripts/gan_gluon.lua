--- Trains two networks of `ty.gluon` against each other: one draws digits, the other tells them
-- from real ones.
--
--   tycho scripts/gan_gluon.lua                      draws real digits itself, learns to draw too
--   tycho scripts/gan_gluon.lua --data folder-with-idx-files --epochs 40
--   tycho scripts/gan_gluon.lua --plot gan.svg --show 8
--   tycho scripts/gan_gluon.lua --help
--
-- `gan.lua` does the same with two Modules.

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local images = require "images"

local autograd, gluon, nd = ty.autograd, ty.gluon, ty.nd
local nn = gluon.nn

local parser = common.parser("Trains a network to draw digits against one that judges them.")
parser:option("--data", "folder with MNIST's idx files, plain or gz; default: digits drawn here")
common.count(parser, "--train", "images to learn from", 3000)
common.count(parser, "--noise", "random numbers from which an image is generated", 24)
common.count(parser, "--epochs", "passes over the training data", 30)
common.count(parser, "--batch", "samples per step", 50)
common.number(parser, "--rate", "learning rate", 0.001, 0)
common.count(parser, "--seed", "seed of weights, drawn data and shuffling", 1, 0)
common.count(parser, "--show", "images to print at the end", 4, 0)
common.gpus(parser, common.ONE_GPU)
common.options(parser)
local options = common.parse(parser, {train = 1500, epochs = 12, batch = 25})
local device = common.device(parser, options)

local PIXELS = 28 * 28

ty.random.seed(options.seed)
local x, y = images.load(options.data, {1, 28, 28}, options.train, options.seed)
local digits = gluon.data.ArrayDataset(x:reshape{-1, PIXELS}, y):take(options.train)


-- Networks ----------------------------------------------------------------------------------------

local function ready(net)
  net:initialize{init = ty.init.Xavier(), ctx = device}
  net:hybridize()
  return net
end

local artist = ready(nn.HybridSequential{
  nn.Dense(128), nn.LeakyReLU(0.2), nn.Dense(256), nn.LeakyReLU(0.2), nn.Dense(PIXELS, "sigmoid"),
})
-- the score of an image: above 0 where it looks real
local judge = ready(nn.HybridSequential{
  nn.Dense(256), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Dense(128), nn.LeakyReLU(0.2), nn.Dense(1),
})

local function make_trainer(net)
  return gluon.Trainer(net:collect_params(), "adam",
    {learning_rate = options.rate, beta1 = 0.5})
end

local loss = gluon.loss.SigmoidBCELoss()
local artist_trainer, judge_trainer = make_trainer(artist), make_trainer(judge)

local function noise(n)
  return nd.random.normal{shape = {n, options.noise}, ctx = device}
end

local REAL = nd.full({options.batch, 1}, 0.9, {ctx = device})
local DRAWN = nd.zeros({options.batch, 1}, {ctx = device})
local YES = nd.ones({options.batch, 1}, {ctx = device})

-- Trains both networks by one step; returns the scores of real and of
-- drawn images.
local function step(real)
  local drawn = artist(noise(options.batch))              -- not recorded: only the judge learns
  local of_real, of_drawn
  autograd.record(function()
    of_real, of_drawn = judge(real), judge(drawn)
    return loss(of_real, REAL) + loss(of_drawn, DRAWN)
  end):backward()
  judge_trainer:step(options.batch)
  -- The judge's gradients of this backward are not used: its next step has new ones.
  autograd.record(function()
    return loss(judge(artist(noise(options.batch))), YES)
  end):backward()
  artist_trainer:step(options.batch)
  return of_real, of_drawn
end

local function train_both()
  local log = common.log(options)
  local loader = gluon.data.DataLoader{digits, options.batch, shuffle = true,
    last_batch = "discard"}
  for epoch = 0, options.epochs - 1 do
    local real, drawn, started = nd.zeros({1}, {ctx = device}), nd.zeros({1}, {ctx = device}),
      ty.callback.clock()
    for batch in loader do
      local of_real, of_drawn = step(batch:as_in_context(device))
      real:add_(nd.sigmoid(of_real):mean())
      drawn:add_(nd.sigmoid(of_drawn):mean())
    end
    local a, b = real:asscalar() / loader:len(), drawn:asscalar() / loader:len()
    log:epoch{epoch = epoch, real = a, drawn = b, seconds = ty.callback.clock() - started}
    ty.log:info(("Epoch[%d] real images are judged %.3f, drawn ones %.3f"):format(epoch, a, b))
  end
  log:close()
end


-- Drawn images, read by a network that knows digits -----------------------------------------------

local reader = ready(nn.HybridSequential{nn.Dense(128, "relu"), nn.Dense(64, "relu"), nn.Dense(10)})

local function teach_reader()
  local trainer = gluon.Trainer(reader:collect_params(), "sgd",
    {learning_rate = 0.1, momentum = 0.9})
  local entropy = gluon.loss.SoftmaxCrossEntropyLoss()
  for _ = 1, 4 do
    for image, label in gluon.data.DataLoader{digits, 50, shuffle = true} do
      image, label = image:as_in_context(device), label:as_in_context(device)
      autograd.record(function() return entropy(reader(image), label) end):backward()
      trainer:step(image:len())
    end
  end
end

-- Returns new drawn images, the number of different digits that the reader sees in them, and its
-- mean confidence in per cent.
local function read_drawn()
  local drawn = artist(noise(10 * options.batch))
  local odds, kinds, count = nd.softmax(reader(drawn)), {}, 0
  for _, digit in ipairs(odds:argmax{axis = 1}:totable()) do
    count = count + (kinds[digit] and 0 or 1)
    kinds[digit] = true
  end
  return drawn:reshape{-1, 1, 28, 28}, count, 100 * odds:max{axis = 1}:mean():asscalar()
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
