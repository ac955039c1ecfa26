--- Trains on two devices in two ways, and shows that neither changes the result.
--
-- Data parallel: each device has the whole network and a part of each batch; their gradients are
-- added. The result is that of one device with the whole batch, in less time. Model parallel: each
-- device has a part of the network, here one layer of an LSTM; values are copied where layers meet.
--
--   tycho scripts/multi_device.lua               cpu(0) and cpu(1): two queues that share the cores
--   tycho scripts/multi_device.lua --gpus 0,1
--   tycho scripts/multi_device.lua --devices "cpu(0) gpu(0)"
--   tycho scripts/multi_device.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local digits = require "digits"
local networks = require "networks"

local parser = common.parser("Trains on two devices, by data and by model, and compares with one.")
parser:option("--devices", "devices; the first is also used alone, for comparison")
  :default("cpu(0) cpu(1)")
common.gpus(parser, "where to train instead, as 0,1")
common.count(parser, "--images", "digits to draw", 2000)
common.count(parser, "--epochs", "passes over them", 2)
common.count(parser, "--batch", "samples per step, over all devices", 200)
common.count(parser, "--steps", "steps of the LSTM", 240)
common.count(parser, "--seed", "seed of weights and data", 1, 0)
common.options(parser)
local options = common.parse(parser, {images = 1200, steps = 140})

local devices = options.gpus and common.devices(options) or {}
for kind, id in (options.gpus and "" or options.devices):gmatch("([cg]pu)%((%d+)%)") do
  devices[#devices + 1] = ty[kind](tonumber(id))
end
if #devices < 2 then
  parser:error("--devices names at least two, as \"cpu(0) cpu(1)\", and --gpus, as 0,1")
end
local names = {}
for i, device in ipairs(devices) do
  names[i] = tostring(device)
end
names = table.concat(names, " ")

-- The cores are divided among all devices that were ever used. All are used from the start, so that
-- in the comparison one device has as many threads as each of several.
for _, device in ipairs(devices) do
  ty.nd.zeros(1, {ctx = device}):wait_to_read()
end

-- Returns the difference of two sets of parameters: the norm of the difference of two arrays
-- relative to the array's norm, for the two arrays that differ most.
local function difference(a, b)
  local worst = 0
  for name, x in pairs(a) do
    worst = math.max(worst, (x - b[name]):norm():asscalar() / math.max(x:norm():asscalar(), 1e-30))
  end
  return worst
end


-- Data parallel -----------------------------------------------------------------------------------

local x, y = digits.draw(options.images, options.seed)
local held_x, held_y = digits.draw(500, options.seed + 1000)

-- Returns a LeNet on some devices, and a function that trains it for an epoch and returns the
-- seconds. It uses average pooling: the maximum of two nearly equal values would change with the
-- last bit of a sum.
local function lenet(context)
  local train = ty.io.NDArrayIter{data = x, label = y, batch_size = options.batch}
  local module = ty.mod.Module{symbol = networks.lenet{pool_type = "avg"}, context = context}
  module:bind{data_shapes = train.provide_data, label_shapes = train.provide_label}
  ty.random.seed(options.seed)
  module:init_params{initializer = ty.init.Xavier()}
  module:init_optimizer{optimizer_params = {learning_rate = 0.05, momentum = 0.9}}
  return module, function()
    local started = ty.callback.clock()
    train:reset()
    for batch in train do
      module:forward_backward(batch)
      module:update()
    end
    ty.waitall()
    return ty.callback.clock() - started
  end
end

local log = common.log(options)

local function data_parallel()
  local one, train_one = lenet({devices[1]})
  local all, train_all = lenet(devices)
  local best_one, best_all = math.huge, math.huge
  print(("data parallel: LeNet, %d digits, batches of %d"):format(options.images, options.batch))
  for epoch = 0, options.epochs - 1 do
    local seconds_one, seconds_all = train_one(), train_all()
    best_one, best_all = math.min(best_one, seconds_one), math.min(best_all, seconds_all)
    log:epoch{epoch = epoch, one_device = options.images / seconds_one,
      all_devices = options.images / seconds_all}
    print(("  epoch %d   %s %6.0f images/s   %s %6.0f images/s"):format(epoch, tostring(devices[1]),
      options.images / seconds_one, names, options.images / seconds_all))
  end
  local apart = difference(one:get_params(), all:get_params())
  local held = ty.io.NDArrayIter{data = held_x, label = held_y, batch_size = options.batch}
  print(("  parameters differ by %.1e of their size; %s %.2f times as fast")
    :format(apart, names, best_one / best_all))
  return apart, best_one / best_all, all:score(held, "acc")[1][2]
end


-- Model parallel ----------------------------------------------------------------------------------
-- The task: name the symbol with which a sequence began, after some others have passed.

local LENGTH, SYMBOLS, UNITS, ROWS = 8, 8, 32, 64

local function in_group(name, f)
  return ty.AttrScope{ctx_group = name}:with(f)
end

-- Returns a network with two layers of LSTM, each in a separate ctx_group.
local function lstm()
  local outputs
  in_group("layer1", function()
    local embedded = ty.sym.Embedding{data = ty.sym.Variable("data"), input_dim = SYMBOLS,
      output_dim = UNITS, name = "embed"}
    outputs = ty.rnn.LSTMCell(UNITS, {prefix = "lstm1_"}):unroll(LENGTH, embedded, {layout = "NTC"})
  end)
  return in_group("layer2", function()
    outputs = ty.rnn.LSTMCell(UNITS, {prefix = "lstm2_"}):unroll(LENGTH, outputs, {layout = "NTC"})
    return networks.head(outputs[LENGTH], SYMBOLS, "fc")
  end)
end

local function sequences(step)
  ty.random.seed(options.seed * 1000 + step)
  local data = ty.nd.random.randint(0, SYMBOLS, {shape = {ROWS, LENGTH}}):astype("float32")
  return ty.io.DataBatch{data = {data},
    label = {data:slice_axis{axis = 1, begin = 0, end_ = 1}:reshape{ROWS}}}
end

local function train_lstm(groups)
  local module = ty.mod.Module{symbol = lstm(), context = devices[1], group2ctxs = groups}
  module:bind{data_shapes = {{"data", {ROWS, LENGTH}}}, label_shapes = {{"softmax_label", {ROWS}}}}
  ty.random.seed(options.seed)
  module:init_params{initializer = ty.init.Xavier()}
  module:init_optimizer{optimizer = "adam", optimizer_params = {learning_rate = 0.01}}
  local metric = ty.metric.create("acc")
  for step = 1, options.steps do
    local batch = sequences(step)
    module:forward_backward(batch)
    module:update()
    if step > options.steps - 10 then
      module:update_metric(metric, batch.label)
    end
  end
  local _, accuracy = metric:get()
  return module, accuracy
end

local function model_parallel()
  print(("model parallel: two layers of LSTM on %s"):format(names))
  local together = train_lstm()
  local apart, accuracy = train_lstm{layer1 = devices[1], layer2 = devices[2]}
  local far = difference(together:get_params(), apart:get_params())
  print(("  parameters differ by %.1e of their size from those of one device; accuracy %.4f")
    :format(far, accuracy))
  return far, accuracy
end

local apart, faster, accuracy = data_parallel()
local far, recalled = model_parallel()
log:close()
print(("accuracy %.4f of the LeNet, %.4f of the LSTM; %.2f times as fast on %d devices; \z
  parameters differ by %.1e at most")
  :format(accuracy, recalled, faster, #devices, math.max(apart, far)))
