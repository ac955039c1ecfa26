--- Loader: samples per second of gluon.data.DataLoader over pictures like those of CIFAR-10 (border
-- of 4 and crop, flip, normalisation; batches of 128) with 0, 1 and 2 workers; and a training step
-- of ResNet-20 on batches of 2 workers, compared with one on data in memory.
local measure = require "measure"
local nets = require "nets"
local ty = require "tycho"

local COUNT, BATCH = 128 * 80, 128
local STEPS = 8                                          -- in a sample of the step's time

local function pictures()
  local T = ty.gluon.data.vision.transforms
  local x = ty.nd.random.uniform{low = 0, high = 256, shape = {COUNT, 32, 32, 3}}:astype("uint8")
  local set = ty.gluon.data.ArrayDataset(x, ty.nd.zeros{COUNT}:astype("int32"))
  return set:transform_first(T.Compose{T.RandomCrop{32, pad = 4}, T.RandomFlipLeftRight(),
    T.ToTensor(), T.Normalize({0.49, 0.48, 0.45}, {0.25, 0.24, 0.26})})
end

local function make_loader(set, workers)
  return ty.gluon.data.DataLoader{set, batch_size = BATCH, shuffle = true, num_workers = workers}
end

local function epoch(loader)
  return function()
    for _ in loader do end
  end
end

local function module()
  local symbol, shape, _ = nets.network("resnet20")
  local m = ty.mod.Module{symbol = symbol, label_names = {"label"}}
  m:bind{data_shapes = {{"data", {BATCH, unpack(shape)}}}, label_shapes = {{"label", {BATCH}}}}
  m:init_params{initializer = ty.init.Xavier()}
  m:init_optimizer{optimizer_params = {learning_rate = 0.01, momentum = 0.9}}
  return m
end

-- Returns a function that makes steps on the batches of next(), which starts again at the end.
local function steps(m, next)
  return function()
    for _ = 1, STEPS do
      local x, t = next()
      m:forward_backward(ty.io.DataBatch{data = {x}, label = {t}})
      m:update()
    end
    ty.waitall()
  end
end

local function endless(loader)
  local iterator = loader:iter()
  return function()
    local x, t = iterator()
    if not x then
      iterator = loader:iter()
      x, t = iterator()
    end
    return x, t
  end
end

return function()
  local set = pictures()
  for workers = 0, 2 do
    measure.rate(("loader %d workers"):format(workers), "", "samples/s", COUNT,
      measure.samples(epoch(make_loader(set, workers)), ty.waitall))
  end
  local m = module()
  local x, t = make_loader(set, 0):iter()()
  local times = measure.in_turn({steps(m, function() return x, t end),
    steps(m, endless(make_loader(set, 2)))}, ty.waitall)
  for k, name in ipairs{"resident", "2 workers"} do
    local list = {}
    for i, seconds in ipairs(times[k]) do list[i] = seconds / STEPS * 1e3 end
    measure.record("loader ResNet-20 step, " .. name, "", "ms", list)
  end
end
