--- Predicts the time of a training step on any number of ranks.
--
--   tycho scripts/multi_host.lua --model resnet --write alone.json
--   mpirun -n 2 tycho scripts/multi_host.lua --model resnet --write step.json
--   mpirun -n 2 tycho scripts/comm_bench.lua --write link.json
--   tycho scripts/scale_model.lua --alone alone.json --step step.json --link link.json
--   tycho scripts/scale_model.lua ... --ranks 8,64,256,1024 --gigabits 10,25,100 --per-host 1
--
-- Computing takes the same time as alone, and gradients are ready after the same share of it. A
-- message of n bytes between P ranks takes
--
--     t(n) = 3 latency + 2 (H - 1) overhead + n / memory + 2 (H - 1) / H n / wire
--
-- on H hosts, since all ranks announce the message, then exchange parts, then gather sums; a rank
-- sends each other rank two parts. With L ranks on a host, three terms are added: 2 (L - 1)
-- overhead, n / memory once more, and on the wire the message of one rank per host. `memory` is the
-- rate of adding and copying, measured without a network between the ranks. For the measured wire,
-- the measured line of messages of that size is used, with its latency. A message begins when its
-- gradients are ready and the message before it has ended; the part after the end of computing is
-- exposed and makes the step longer.
--
-- A message also takes processor time, p(n), which comm_bench.lua measures: copies, additions, the
-- system's work for the network. If a rank computes on all its cores (--spare 0), computing and the
-- message share one core: while both run, the message gets the share s = min(p(n) / t(n), 1 / 2),
-- since the scheduler gives it at most a half, and computing gets 1 - s.

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local common = require "common"
local json = require "tycho.core.json"

local parser = common.parser("Predicts the time of a step on many ranks.")
parser:option("--alone", "file of multi_host.lua --write with one process or --alone")
parser:option("--step", "file of multi_host.lua --write with two or more ranks")
parser:option("--link", "file of comm_bench.lua --write")
parser:option("--ranks", "numbers of ranks"):default("2")
parser:option("--gigabits", "rate of each host's network link; default: that of --link")
common.count(parser, "--per-host", "ranks per host", 1)
common.number(parser, "--latency", "latency of the network, microseconds", 30, 0)
common.number(parser, "--overhead", "time to send one part, microseconds", 2, 0)
common.count(parser, "--spare", "cores per rank that do not compute", 0, 0)
local options = parser:parse()

local function read(name)
  local path = options[name] or parser:error("--" .. name .. " names a file")
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return json.parse(text, "scale_model")
end

local alone, step, link = read("alone"), read("step"), read("link")

local function numbers(text)
  local list = {}
  for number in text:gmatch("[^,]+") do
    list[#list + 1] = tonumber(number) or parser:error("no number: " .. number)
  end
  return list
end

-- Converts a measured line of P ranks to the form of the model: the part that is not sending.
local function measured(line)
  local sending = 2 * (link.ranks - 1) * options.overhead * 1e-6
  local processor = line.processor                        -- missing in older files
  return {latency = math.max(line.latency - sending, 0) / 3, memory = line.bandwidth,
    wire = math.huge, per_host = 1, processor = processor and {bandwidth = processor.bandwidth,
      latency = math.max(processor.latency - sending, 0)}}
end

-- Returns the lines of small and of large messages as measured.
local function as_measured()
  return {upto = link.sum.upto, small = measured(link.sum.small), large = measured(link.sum.large)}
end

local function network(gigabits)
  local way = measured(link.sum.large)
  way.latency, way.wire, way.per_host = options.latency * 1e-6, gigabits * 1e9 / 8, options.per_host
  return {upto = 0, small = way, large = way}
end

-- Returns the seconds of a message without computing, and the share of them that occupies a core of
-- the rank.
local function compute_time(ways, ranks, bytes)
  local way = bytes <= ways.upto and ways.small or ways.large
  local near = math.min(way.per_host, ranks)
  local hosts = math.ceil(ranks / near)
  local sending = 2 * (hosts - 1 + near - 1) * options.overhead * 1e-6
  local added = (near > 1 and 2 or 1) * bytes
  local seconds = 3 * way.latency + sending + added / way.memory
    + 2 * (hosts - 1) / hosts * bytes / way.wire
  local own = way.processor
  if not own or options.spare > 0 then
    return seconds, 0
  end
  return seconds, math.min((own.latency + sending + added / own.bandwidth) / seconds, 1)
end

-- Returns the seconds of a step, and the part of them in which messages delay or slow down
-- computing.
local function predict(ways, ranks)
  local scale = alone.seconds / step.computing
  local function ready(message) return math.min(message.ready * scale, alone.seconds) end
  local last = ready(step.messages[#step.messages])      -- updates follow the last message
  local clock, computed = 0, 0
  for _, message in ipairs(step.messages) do
    local wait = math.max(ready(message) - computed, 0)
    clock, computed = clock + wait, computed + wait
    local seconds, share = compute_time(ways, ranks, message.bytes)
    local given = math.min(share, 1 / 2)
    local speed = share > 0 and given / share or 1       -- of the message during computing
    local both = math.min((last - computed) / (1 - given), seconds / speed)
    clock, computed = clock + both + seconds - both * speed, computed + both * (1 - given)
  end
  local total = clock + alone.seconds - computed
  return total, total - alone.seconds
end

local function line(ways, name, ranks)
  local seconds, exposed = predict(ways, ranks)
  print(("%6d  %-12s %10.3f %10.3f %9.1f %%"):format(ranks, name, seconds * 1e3, exposed * 1e3,
    100 * alone.seconds / seconds))
end

print(("%s, batches of %d: alone %.3f ms; %d messages"):format(alone.model, alone.batch,
  alone.seconds * 1e3, #step.messages))
print(("%6s  %-12s %10s %10s %11s"):format("ranks", "wire", "step, ms", "exposed", "efficiency"))
for _, ranks in ipairs(numbers(options.ranks)) do
  if not options.gigabits then
    line(as_measured(), "as measured", ranks)
  end
  for _, gigabits in ipairs(options.gigabits and numbers(options.gigabits) or {}) do
    line(network(gigabits), gigabits .. " Gbit/s", ranks)
  end
end
if not options.gigabits then
  print(("measured with %d ranks: %.3f ms, exposed %.3f ms"):format(step.ranks,
    step.seconds * 1e3, step.exposed * 1e3))
end
