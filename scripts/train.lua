-- Trains a small network on digits that it draws itself: ten shapes on a grid, shifted, with noise. Nothing to download.
--
--   tycho scripts/train.lua [--epochs N] [--rate R] [--hidden N]
--
-- Ends with status 0 only when the digits are recognised, so it is also the shortest test of the whole chain.

local ty = require "tycho"

local WIDTH, HEIGHT, BATCH, BATCHES = 6, 8, 50, 40       -- pixels; samples of a batch; batches of an epoch
local MOMENTUM, GOOD = 0.9, 0.95                         -- of the descent; share of right answers that counts as learnt

-- Segments of a seven-segment display, as rows and columns of their pixels; digits as sets of segments.
local SEGMENTS = {
  a = { 0, 0, 0, 4 }, b = { 0, 3, 4, 4 }, c = { 3, 6, 4, 4 }, d = { 6, 6, 0, 4 },
  e = { 3, 6, 0, 0 }, f = { 0, 3, 0, 0 }, g = { 3, 3, 0, 4 },
}
local DIGITS = { [0] = "abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg" }

local function read_options()
  local options, i = { epochs = 10, rate = 0.1, hidden = 48 }, 1
  while arg[i] do
    local name = arg[i]:match("^%-%-(%a+)$")
    if options[name or ""] and tonumber(arg[i + 1]) then
      i = i + 1
      options[name] = tonumber(arg[i])
    else
      error("unknown option " .. arg[i] .. "; see the first lines of the script", 0)
    end
    i = i + 1
  end
  return options
end

local function draw(digit, random)
  local image, dx, dy = {}, random(0, 1), random(0, 1)
  for i = 1, WIDTH * HEIGHT do
    image[i] = (random() - 0.5) * 0.8
  end
  for segment in DIGITS[digit]:gmatch(".") do
    local top, bottom, left, right = unpack(SEGMENTS[segment])
    for row = top, bottom do
      for column = left, right do
        image[(row + dy) * WIDTH + column + dx + 1] = 1 + (random() - 0.5) * 0.8
      end
    end
  end
  return image
end

local function new_batch(random)
  local images, labels = {}, {}
  for i = 1, BATCH do
    labels[i] = random(0, 9)
    images[i] = draw(labels[i], random)
  end
  return { data = ty.nd.array(images), label = ty.nd.array(labels) }
end

local function new_batches(n, random)
  local list = {}
  for i = 1, n do
    list[i] = new_batch(random)
  end
  return list
end

local function network(hidden)
  local net = ty.sym.Variable("data")
  net = ty.sym.FullyConnected{ data = net, num_hidden = hidden, name = "fc1" }
  net = ty.sym.Activation{ data = net, act_type = "relu", name = "relu1" }
  net = ty.sym.FullyConnected{ data = net, num_hidden = 10, name = "fc2" }
  return ty.sym.SoftmaxOutput{ data = net, name = "softmax" }
end

-- In the order of the list, so that equal seeds give equal networks.
local function start_values(net, exe)
  for _, name in ipairs(net:list_arguments()) do
    local x = exe.arg_dict[name]
    if name:match("_weight$") then
      local scale = math.sqrt(3 / x.shape[2])
      x[":"] = ty.nd.random.uniform{ low = -scale, high = scale, shape = x.shape }
    end
  end
end

local function count_right(probabilities, labels)
  return ty.nd.equal(ty.nd.argmax{ probabilities, axis = 1 }, labels):sum():asscalar()
end

-- One descent step with momentum; `speed` holds one array per parameter.
local function update(exe, speed, rate)
  for name, grad in pairs(exe.grad_dict) do
    local x = exe.arg_dict[name]
    speed[name] = speed[name] or ty.nd.zeros(x.shape)
    ty.nd.sgd_mom_update{ x, grad, speed[name], lr = rate, momentum = MOMENTUM, rescale_grad = 1 / BATCH, out = x }
  end
end

-- All batches once; with `speed` it learns. Returns the share of right answers.
local function run(exe, batches, speed, rate)
  local right = 0
  for _, batch in ipairs(batches) do
    local out = exe:forward{ is_train = speed ~= nil, data = batch.data, softmax_label = batch.label }[1]
    right = right + count_right(out, batch.label)
    if speed then
      exe:backward()
      update(exe, speed, rate)
    end
  end
  return right / (#batches * BATCH)
end

local options = read_options()
math.randomseed(1)
ty.random.seed(1)
local train, test = new_batches(BATCHES, math.random), new_batches(BATCHES / 4, math.random)
local net = network(options.hidden)
local exe = net:simple_bind{
  ctx = ty.cpu(), data = { BATCH, WIDTH * HEIGHT },
  grad_req = { fc1_weight = "write", fc1_bias = "write", fc2_weight = "write", fc2_bias = "write" },
}
start_values(net, exe)
local speed = {}
print(("%d images of %d x %d, %d bytes planned"):format(BATCHES * BATCH, WIDTH, HEIGHT, exe:memory().planned))
for epoch = 1, options.epochs do
  print(("epoch %d: %.3f right"):format(epoch, run(exe, train, speed, options.rate)))
end
local share = run(exe, test)
print(("new images: %.3f right"):format(share))
if share < GOOD then
  error(("only %.3f of the new images are recognised, expected %.2f"):format(share, GOOD), 0)
end
