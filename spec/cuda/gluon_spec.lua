-- Blocks and Trainers on GPUs, on the stand-in for CUDA: several devices, the store "nccl"; loaders
-- when a GPU is the context.

local stand_in = require "spec.support.stand_in"

local TRAIN = [[
local ty = require "tycho"
local blocks = require "spec.support.blocks"
local autograd, gluon = ty.autograd, ty.gluon

local function train(ctx, kvstore, on_store)
  local net = blocks.Net{ prefix = "net_" }
  net:initialize{ ctx = ctx }
  for _, c in ipairs(ctx) do
    net(ty.nd.ones({ 1, 5 }, { ctx = c }))
  end
  blocks.fill(net)
  net:hybridize()
  local t = gluon.Trainer(net:collect_params(), "sgd", { learning_rate = 0.1, momentum = 0.9 },
    { kvstore = kvstore, update_on_kvstore = on_store })
  for step = 1, 3 do
    local heads = autograd.record(function()
      local list = {}
      for i, c in ipairs(ctx) do
        list[i] = net(blocks.numbers({ 4, 5 }, step * 2 + i):as_in_context(c)):square():sum()
      end
      return list
    end)
    autograd.backward(heads)
    if on_store then
      t:step(8)
    else
      t:allreduce_grads()
      t:update(8)
    end
  end
  return net
end

local function difference(a, b)
  local most = 0
  for name, p in a:collect_params():items() do
    for d = 1, 2 do
      local x = b:collect_params()[name]:list_data()[d]:as_in_context(ty.cpu())
      most = math.max(most, (p:list_data()[1] - x):abs():max():asscalar())
    end
  end
  return most
end

for _, on_store in ipairs{ true, false } do
  local a = train({ ty.cpu(0), ty.cpu(1) }, "device", on_store)
  for _, kv in ipairs{ "device", "nccl" } do
    local b = train({ ty.gpu(0), ty.gpu(1) }, kv, on_store)
    print(kv, on_store, difference(a, b) < 1e-6)
  end
end
]]


describe("a Trainer on two GPUs", function()
  it("makes the steps of two CPU contexts, by the stores device and nccl", function()
    if not stand_in.exists() then
      pending("make cudasim builds the stand-in")
      return
    end
    local output, status = stand_in.run(TRAIN, { CUDASIM_DEVICES = 2, CUDASIM_STRICT = 1 })
    assert.equal(0, status, output)
    assert.equal("device\ttrue\ttrue\nnccl\ttrue\ttrue\ndevice\tfalse\ttrue\nnccl\tfalse\ttrue\n",
      output)
  end)
end)

local PICTURES = [[
local ty = require "tycho"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local data = ty.gluon.data

local function list(path, workers)
  local out = {}
  for x, t in data.DataLoader{data.vision.ImageFolderDataset(path), batch_size = 4,
      num_workers = workers} do
    out[#out + 1] = ("%s %s %g %g"):format(x.context, t.context,
      x:astype("float32"):sum():asscalar(), t:sum():asscalar())
  end
  return table.concat(out, ", ")
end

folder.with(function(path)
  for k, kind in ipairs{"a", "b"} do
    lfs.mkdir(path .. "/" .. kind)
    for i = 1, 3 do
      ty.image.imwrite(("%s/%s/%d.png"):format(path, kind, i),
        (ty.nd.ones{6, 5, 3} * (10 * i + k)):astype "uint8")
    end
  end
  local on_cpu = list(path, 0)
  ty.gpu(0):with(function()
    for _, workers in ipairs{0, 2} do print(workers, list(path, workers) == on_cpu) end
  end)
end)
]]

describe("a folder of pictures", function()
  it("is read by workers where a GPU is the context", function()
    if not stand_in.exists() then
      pending("make cudasim builds the stand-in")
      return
    end
    local output, status = stand_in.run(PICTURES, {})
    assert.equal(0, status, output)
    assert.equal("0\ttrue\n2\ttrue\n", output)
  end)
end)
