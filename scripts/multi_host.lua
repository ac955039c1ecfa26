--- Trains on several processes, on one host or many, and prints the time of a step and how much of
-- it is spent waiting for other ranks.
--
--   mpirun -n 2 tycho scripts/multi_host.lua --model resnet
--   mpirun -n 4 --host one:2,two:2 tycho scripts/multi_host.lua --model lm --write step.json
--   tycho scripts/multi_host.lua --model lenet             one process, without a store
--   mpirun -n 2 tycho scripts/multi_host.lua --model net-symbol.json --shape 3,224,224 --turns 10
--
-- Each rank draws its own rows; the time of a step is that of the slowest rank. `comm` is the total
-- time of a rank's messages, `exposed` the part of it for which computing waits. scale_model.lua
-- reads the file of --write. With --turns the same processes also train without a store, in turns,
-- and the rate with the store is shown relative to the rate without.

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local comm = require "tycho.kvstore.comm"
local digits = require "digits"
local images = require "images"
local json = require "tycho.core.json"
local language_model = require "language_model"
local networks = require "networks"
local pictures = require "pictures"

local parser = common.parser("Trains on several processes and tells what a step takes.")
parser:option("--model", "lenet, resnet, lm, or a file with a symbol"):default("resnet")
parser:option("--shape", "shape of a sample, if the model is a file"):default("3,224,224")
common.count(parser, "--depth", "layers of the ResNet, 6 n + 2", 20)
common.count(parser, "--hidden", "units of the language model's layers", 200)
common.count(parser, "--length", "words of the language model's sentences", 20)
common.count(parser, "--words", "size of the language model's vocabulary", 2000)
common.count(parser, "--batch", "samples per step and rank", 8)
common.count(parser, "--steps", "steps that are timed", 50)
common.count(parser, "--seed", "seed of weights and data", 1, 0)
common.gpus(parser)
common.count(parser, "--turns", "repetitions with and without the store, of --steps each", 0, 0)
parser:flag("--alone", "use no store, even with several processes")
parser:option("--write", "file for the results, as JSON")
parser:flag("--quick", "a few steps, to see that everything works")
local options = common.parse(parser, {depth = 8, hidden = 32, steps = 6})

local group = comm.is_launched() and comm.world()
local kv = group and not options.alone and ty.kv.create("dist_sync") or ty.null
local rank = group and group.rank or 0
local seed = options.seed + rank

local function sentences(n)
  ty.random.seed(seed)
  local x = ty.nd.floor(ty.nd.random.uniform{0, options.words, shape = {n, options.length}})
  return x, x
end

-- Returns inputs for the network of a file: noise, and classes below ten.
local function noise(n)
  local shape = {n}
  for number in options.shape:gmatch("%d+") do
    shape[#shape + 1] = tonumber(number)
  end
  ty.random.seed(seed)
  return ty.nd.random.normal{shape = shape}, ty.nd.floor(ty.nd.random.uniform{0, 10, shape = {n}})
end

local function model()
  local rows = options.batch * 4
  if options.model == "lenet" then
    return networks.lenet{}, digits.draw(rows, seed)
  elseif options.model == "resnet" then
    local x, y = pictures.draw(rows, seed)
    return networks.resnet{depth = options.depth}, images.normalise(x), y
  elseif options.model == "lm" then
    local shape = {layers = 2, hidden = options.hidden, embed = options.hidden, dropout = 0,
      length = options.length, words = options.words}
    return language_model.network(language_model.cells(shape), shape), sentences(rows)
  end
  if options.model:match("%.json$") then
    return ty.sym.load(options.model), noise(rows)
  end
  parser:error("--model is lenet, resnet, lm or a .json file, not '" .. options.model .. "'")
end

local net, x, y = model()
local label
for _, name in ipairs(net:list_arguments()) do
  label = name:match("label$") and name or label
end
local data = ty.io.NDArrayIter{data = x, label = y, batch_size = options.batch, label_name = label}

local function training(store)
  local module = ty.mod.Module{symbol = net, context = common.devices(options),
    label_names = {label}}
  module:bind{data_shapes = data.provide_data, label_shapes = data.provide_label}
  ty.random.seed(options.seed)
  module:init_params{initializer = ty.init.Xavier()}
  module:init_optimizer{kvstore = store, optimizer_params = {learning_rate = 0.05, momentum = 0.9}}
  return module
end

local module, batches = training(kv), {}
for batch in data do
  batches[#batches + 1] = batch
end

local function run(steps, m)
  m = m or module
  local from = ty.callback.clock()
  for i = 1, steps do
    m:forward_backward(batches[i % #batches + 1])
    m:update()
  end
  ty.waitall()
  return (ty.callback.clock() - from) / steps
end

-- Returns the seconds per step that the profiler measured under names with this beginning, and
-- their number per step.
local function sum_profile(name, steps)
  local total, count = 0, 0
  for _, row in ipairs(ty.profiler.sums()) do
    if row.name:sub(1, #name) == name then
      total, count = total + row.total, count + row.count
    end
  end
  return total / steps / 1e9, count / steps
end

local function trace(path)
  local file = assert(io.open(path))
  local events = json.parse(file:read("*a"))
  file:close()
  return events.traceEvents or events
end

-- Returns the messages of a step: bytes, and the seconds of the step after which each begins (its
-- gradients exist, and earlier messages are done), as means over the steps of a trace; and the
-- duration of a step.
local function messages(path, steps)
  local sums, begins, first = {}, {}, nil
  for _, e in ipairs(trace(path)) do
    if e.name == "sum" and e.ph == "B" then
      sums[#sums + 1] = {at = e.ts / 1e6, bytes = e.args.bytes}
    elseif e.ph == "B" and e.cat == "operator" then
      first = first or e.args.node
      begins[#begins + 1] = e.args.node == first and e.ts / 1e6 or nil
    end
  end
  local each, list = #sums / steps, {}
  for b = 1, each do
    list[b] = {bytes = sums[b].bytes, ready = 0}
    for s = 0, steps - 1 do
      list[b].ready = list[b].ready + (sums[s * each + b].at - begins[s + 1]) / steps
    end
  end
  return list, (begins[steps] - begins[1]) / (steps - 1)
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- Runs steps with and without the store, --turns times; returns for each turn the rate with the
-- store, relative to the rate of all ranks without.
local function take_turns()
  local alone, left = training(ty.null), {}
  run(2, alone)
  for turn = 1, options.turns do
    local own = {}
    for k = 0, 1 do
      group:barrier()
      local which = (turn + k) % 2 + 1
      own[which] = run(options.steps, which == 1 and module or alone)
    end
    local with, without = 0, 0
    for _, text in ipairs(group:gather(("%.9f %.9f"):format(unpack(own)))) do
      local a, b = text:match("(%S+) (%S+)")
      with, without = with + 1 / a, without + 1 / b
    end
    left[turn] = with / without
  end
  return left
end

-- Returns the greatest of the ranks' numbers.
local function slowest(seconds)
  for _, text in ipairs(group and group:gather(("%.9f"):format(seconds)) or {}) do
    seconds = math.max(seconds, tonumber(text))
  end
  return seconds
end

run(math.max(2, math.floor(options.steps / 5)))
local seconds = slowest(run(options.steps))
local left = kv ~= ty.null and options.turns > 0 and take_turns()
local path = os.tmpname()
local profiled = math.max(3, math.floor(options.steps / 5))
ty.profiler.set_config{filename = path, profile_symbolic = true, aggregate_stats = true}
ty.profiler.set_state("run")
run(profiled)
ty.profiler.set_state("stop")
ty.profiler.dump()
local exposed = sum_profile("wait for comm", profiled)
local spent, count = sum_profile("sum", profiled)

if rank == 0 then
  local ranks = kv ~= ty.null and kv.num_workers or 1
  print(("%s, %d ranks, batches of %d: %.3f ms per step, %.1f samples/s in all"):format(
    options.model, ranks, options.batch, seconds * 1e3, ranks * options.batch / seconds))
  if count > 0 then
    print(("  %.1f messages per step: comm %.3f ms, exposed %.3f ms"):format(count, spent * 1e3,
      exposed * 1e3))
  end
  if left then
    print(("  of the rate without a store: %.1f %%, the median of %d turns (%.1f to %.1f %%)")
      :format(100 * median(left), #left, 100 * left[1], 100 * left[#left]))
  end
  if options.write then
    local file = assert(io.open(options.write, "w"))
    local found = {model = options.model, ranks = ranks, batch = options.batch, seconds = seconds,
      exposed = exposed, messages = {}}
    if count > 0 then
      local each
      found.messages, each = messages(path, profiled)
      found.computing = each - exposed
    end
    assert(file:write(json.text(found), "\n"))
    file:close()
  end
end
os.remove(path)
