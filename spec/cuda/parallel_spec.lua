-- Data parallel training over two GPUs, on the stand-in: parameters after some steps are those of
-- one CPU, with the store on the host and on the devices.

local stand_in = require "spec.support.stand_in"

local TRAIN = [[
local ty = require "tycho"
ty.log.level = "error"
local sym = ty.sym
local net = sym.FullyConnected{data = sym.Variable("data"), num_hidden = 8, name = "fc1"}
net = sym.FullyConnected{data = sym.tanh(net), num_hidden = 3, name = "fc2"}
net = sym.SoftmaxOutput{data = net, name = "softmax"}
local cpu = ty.cpu(0)
local x = (ty.nd.arange{0, 96, ctx = cpu}:reshape{16, 6} * 7 % 13) / 13
local y = ty.nd.arange{0, 16, ctx = cpu} % 3

local function start()
  local params, shapes = {}, net:infer_shape{data = {16, 6}}
  for i, name in ipairs(net:list_arguments()) do
    if name:match("^fc") then
      local n = ty.nd.zeros{shape = shapes[i], ctx = cpu}.size
      params[name] = (ty.nd.arange{0, n, ctx = cpu} * 5 % 11 / 11 - 0.4):reshape(shapes[i])
    end
  end
  return params
end

local function train(ctx, store)
  local batches = ty.io.NDArrayIter{data = x, label = y, batch_size = 8}
  local m = ty.mod.Module{symbol = net, context = ctx}
  m:bind{data_shapes = batches.provide_data, label_shapes = batches.provide_label}
  m:set_params(start(), {})
  m:init_optimizer{kvstore = store, optimizer_params = {learning_rate = 0.5, momentum = 0.9}}
  for _ = 1, 3 do
    for batch in batches do
      m:forward_backward(batch)
      m:update()
    end
    batches:reset()
  end
  return (m:get_params())
end

local want = train(cpu, ty.null)
for _, store in ipairs{"local", "device"} do
  local got, worst = train({ty.gpu(0), ty.gpu(1)}, store), 0
  for name, p in pairs(want) do
    worst = math.max(worst, (got[name]:as_in_context(cpu) - p):abs():max():asscalar())
  end
  print(store, worst < 1e-5 and "equal" or worst)
end
]]

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("is that of one device", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("training over two GPUs", function()
  for _, peers in ipairs{ 1, 0 } do
    it(("is that of one device, CUDASIM_PEERS=%d"):format(peers), function()
      local text, status = stand_in.run(TRAIN,
        { CUDASIM_DEVICES = 2, CUDASIM_PEERS = peers, CUDASIM_STRICT = 1 })
      assert.matches("local\tequal\ndevice\tequal\n", text, 1, true)
      assert.equal(0, status, text)
    end)
  end
end)
