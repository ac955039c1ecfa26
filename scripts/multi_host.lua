--- Trains on several processes, on one host or many, and tells what a step takes and how much of it
-- is waiting for other ranks.
--
--   mpirun -n 2 tycho scripts/multi_host.lua --model resnet
--   mpirun -n 4 --host one:2,two:2 tycho scripts/multi_host.lua --model lm --write step.json
--   tycho scripts/multi_host.lua --model lenet             one process, without a store
--
-- Each rank draws its own rows. `comm` is how long a rank's messages take in all, `exposed` the
-- part of it that its computing waits for. scale_model.lua reads what --write leaves.

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
parser:option("--model", "lenet, resnet or lm"):default("resnet")
common.count(parser, "--depth", "layers of the ResNet, 6 n + 2", 20)
common.count(parser, "--hidden", "units of the language model's layers", 200)
common.count(parser, "--batch", "samples of a rank's step", 8)
common.count(parser, "--steps", "steps that are timed", 50)
common.count(parser, "--seed", "of weights and data", 1, 0)
common.gpus(parser)
parser:flag("--alone", "no store, also where a launcher has started several processes")
parser:option("--write", "file for the figures, as JSON")
parser:flag("--quick", "a few steps, to see that everything works")
local options = common.parse(parser, {depth = 8, hidden = 32, steps = 6})

local LENGTH, WORDS = 20, 2000

local kv = comm.is_launched() and not options.alone and ty.kv.create("dist_sync") or ty.null
local rank = kv ~= ty.null and kv.rank or 0
local seed = options.seed + rank

local function sentences(n)
  ty.random.seed(seed)
  local x = ty.nd.floor(ty.nd.random.uniform{0, WORDS, shape = {n, LENGTH}})
  return x, x
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
      length = LENGTH, words = WORDS}
    return language_model.network(language_model.cells(shape), shape), sentences(rows)
  end
  parser:error("--model is lenet, resnet or lm, not '" .. options.model .. "'")
end

local net, x, y = model()
local data = ty.io.NDArrayIter{data = x, label = y, batch_size = options.batch}
local module = ty.mod.Module{symbol = net, context = common.devices(options)}
module:bind{data_shapes = data.provide_data, label_shapes = data.provide_label}
ty.random.seed(options.seed)
module:init_params{initializer = ty.init.Xavier()}
module:init_optimizer{kvstore = kv, optimizer_params = {learning_rate = 0.05, momentum = 0.9}}
local batches = {}
for batch in data do
  batches[#batches + 1] = batch
end

local function run(steps)
  local from = ty.callback.clock()
  for i = 1, steps do
    module:forward_backward(batches[i % #batches + 1])
    module:update()
  end
  ty.waitall()
  return (ty.callback.clock() - from) / steps
end

-- Seconds per step that the profiler sees under a name's beginning, and how often.
local function sum_of(name, steps)
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

-- The messages of a step: bytes, and the seconds of the step after which it begins (its gradients
-- are there, and the ones before it are done), the mean over steps of a trace.
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
  return list
end

run(math.max(3, math.floor(options.steps / 5)))
local seconds = run(options.steps)
local path = os.tmpname()
local profiled = math.max(3, math.floor(options.steps / 5))
ty.profiler.set_config{filename = path, profile_symbolic = true, aggregate_stats = true}
ty.profiler.set_state("run")
run(profiled)
ty.profiler.set_state("stop")
ty.profiler.dump()
local exposed = sum_of("wait for comm", profiled)
local spent, count = sum_of("sum", profiled)

if rank == 0 then
  local ranks = kv ~= ty.null and kv.num_workers or 1
  print(("%s, %d ranks, batches of %d: %.3f ms per step, %.1f samples/s in all"):format(
    options.model, ranks, options.batch, seconds * 1e3, ranks * options.batch / seconds))
  if count > 0 then
    print(("  %.1f messages per step: comm %.3f ms, exposed %.3f ms"):format(count, spent * 1e3,
      exposed * 1e3))
  end
  if options.write then
    local file = assert(io.open(options.write, "w"))
    local found = {model = options.model, ranks = ranks, batch = options.batch, seconds = seconds,
      exposed = exposed, messages = count > 0 and messages(path, profiled) or {}}
    assert(file:write(json.text(found), "\n"))
    file:close()
  end
end
os.remove(path)
