-- Trains a small network with a gluon Trainer, as one of several ranks or as one process with the
-- same number of contexts, and prints its parameters:
--
--     tycho spec/support/gluon_ranks.lua OPTIMIZER MODE [one N]
--
-- MODE: store (the store updates) or halves (allreduce_grads, then update).

local ty = require "tycho"
local blocks = require "spec.support.blocks"

local autograd, gluon = ty.autograd, ty.gluon
local optimizer, mode, alone, count = arg[1], arg[2], arg[3] == "one", tonumber(arg[4])

local BATCH, STEPS = 4, 5

local kv = not alone and ty.kv.create("dist_sync") or nil
local ranks = kv and kv.num_workers or count

-- One device for each rank, or all in this process.
local ctx = {}
for i = 1, alone and ranks or 1 do
  ctx[i] = kv and kv._home or ty.cpu(i - 1)
end

local net = blocks.Net{ prefix = "net_" }
net:initialize{ ctx = ctx }
for _, c in ipairs(ctx) do
  net(ty.nd.ones({ 1, 5 }, { ctx = c }))
end
blocks.fill(net)

local trainer = gluon.Trainer(net:collect_params(), optimizer, { learning_rate = 0.1, wd = 0.01 },
  { kvstore = kv or "device", update_on_kvstore = mode == "store" })

for step = 1, STEPS do
  local heads = autograd.record(function()
    local list = {}
    for i, c in ipairs(ctx) do
      local rank = kv and kv.rank or i - 1
      local x = blocks.numbers({ BATCH, 5 }, step * ranks + rank):as_in_context(c)
      list[i] = net(x):square():sum()
    end
    return list
  end)
  autograd.backward(heads)
  if mode == "store" then
    trainer:step(BATCH * ranks)
  else
    trainer:allreduce_grads()
    trainer:update(BATCH * ranks)
  end
end

if not kv or kv.rank == 0 then
  for name, p in net:collect_params():items() do
    local text = {}
    for _, v in ipairs(p:list_data()[1]:reshape{ -1 }:totable()) do
      text[#text + 1] = ("%.9g"):format(v)
    end
    print(name, table.concat(text, " "))
  end
end
