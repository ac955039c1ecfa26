--- Measures training with several ranks on one machine, in one run of about ten minutes on two idle
-- cores:
--
--   build/tycho scripts/dev/bench/ranks.lua                     from the root of the sources
--   build/tycho scripts/dev/bench/ranks.lua --python /tmp/venv/bin/python3
--   build/tycho scripts/dev/bench/ranks.lua --quick             does all of it work?
--
-- First two ranks with one thread each, ResNet-50 and the language model, compared with the same
-- processes without a store, in turns; with --python, an interpreter that has PyTorch, also its DDP
-- over gloo. Then predictions of scripts/scale_model.lua compared with the median of five runs, on
-- one host and on two (scripts/dev/two_hosts.sh, as root). The figures in doc/scale_out.md come
-- from here.

local folder = arg[0]:match("^.*/") or "./"
package.path = folder .. "?.lua;" .. folder .. "../../lib/?.lua;" .. package.path

local argparse = require "argparse"
local json = require "tycho.core.json"
local median = require("measure").median
local nets = require "nets"

local parser = argparse("ranks.lua", "Measures and predicts ranks of one machine.")
parser:option("--python", "a Python that has PyTorch")
parser:option("--only", "turns, predictions or table")
parser:flag("--quick", "as little as there is to see")
local options = parser:parse()
local quick = options.quick

local place = os.tmpname()
os.remove(place)
os.execute("mkdir " .. place)
local ROOT = folder .. "../../../"
local TYCHO = ROOT .. "build/tycho"
local SCRIPTS = ROOT .. "scripts/"

local function run(command)
  local pipe = assert(io.popen("{ " .. command .. "; } 2>&1"))
  local output = pipe:read("*a")
  pipe:close()
  return output
end

local MPIRUN = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TYCHO_THREADS=1 \z
  OMP_NUM_THREADS=1 mpirun --bind-to core -n 2 "

local function number(output, pattern)
  return tonumber(output:match(pattern)) or error(output)
end

local function read(name)
  local file = assert(io.open(place .. "/" .. name))
  local found = json.parse(file:read("*a"))
  file:close()
  return found
end

-- Two ranks in turns ------------------------------------------------------------------------------

-- rounds: ours, then PyTorch's, each in new processes; turns: per round, with and without a store
local TURNS = {
  { name = quick and "resnet20" or "resnet50", words = ("--model %s/net.json --shape %s")
    :format(place, quick and "3,32,32" or "3,224,224"), rounds = 4,
    turns = quick and 1 or 3, steps = 1, all = 3, peer = 2 },
  { name = "lm", words = "--model lm", rounds = 4, turns = quick and 1 or 3, steps = 20, all = 50,
    peer = 40 },
}

local function percent(x) return ("%.1f %%"):format(x) end

local function turns(case)
  local ours, left, exposed, theirs = {}, {}, {}, {}
  for round = 1, quick and 1 or case.rounds do
    local output = run(("%s%s %smulti_host.lua %s --turns %d --steps %d"):format(MPIRUN, TYCHO,
      SCRIPTS, case.words, case.turns, quick and 1 or case.steps))
    ours[round] = number(output, "([%d.]+) ms per step")
    exposed[round] = number(output, "exposed ([%d.]+) ms")
    left[round] = number(output, "without a store: ([%d.]+)")
    io.write(output)
    if options.python then
      output = run(("%s%s %speer_ddp.py %s %d %d"):format(MPIRUN, options.python, folder, case.name,
        quick and 1 or case.peer, 29500 + round))
      theirs[round] = number(output, "([%d.]+) ms per step")
      io.write(output)
    end
  end
  print(("= %s: two ranks keep %s of the rate without communication (%d turns); %.1f ms per step, \z
    %.2f ms of it exposed"):format(case.name, percent(median(left)), #left * case.turns,
    median(ours), median(exposed)))
  if options.python then
    local a, b = median(ours), median(theirs)
    print(("= %s: PyTorch DDP %.1f ms per step, %.2f times ours"):format(case.name, b, b / a))
  end
end

-- Predictions -------------------------------------------------------------------------------------

local HOSTS = SCRIPTS .. "dev/two_hosts.sh %s 1 "
local WAYS = { { name = "one host", start = MPIRUN, most = 2 ^ 26 } }
for i, rate in ipairs{ "1gbit", "100mbit" } do
  WAYS[i + 1] = { name = rate, start = "env TYCHO_THREADS=1 " .. HOSTS:format(rate),
    most = i == 1 and 2 ^ 24 or 2 ^ 22 }
end

-- Runs a script and returns the figures that it writes to a file with this name.
local function measure(way, script, words, name)
  local output = run(("%s%s %s%s.lua %s --write %s/%s"):format(way.start, TYCHO, SCRIPTS, script,
    words, place, name))
  return io.open(place .. "/" .. name) and read(name) or error(output)
end

-- Predicts steps. Messages are measured on one host, where they wait for each other least.
local function predict(case, way, words)
  local steps, alone = {}, {}
  for i = 1, quick and 1 or 5 do
    alone[i] = measure(way, "multi_host", words .. " --alone", "alone").seconds
    steps[i] = measure(way, "multi_host", words, "now").seconds
  end
  local file = assert(io.open(place .. "/alone", "w"))
  file:write(json.text{ model = case, batch = 8, seconds = median(alone) })
  file:close()
  local output = run(("%s %sscale_model.lua --alone %s/alone --step %s/step_%s --link %s/link")
    :format(TYCHO, SCRIPTS, place, place, case, place))
  local predicted, measured = number(output, "as measured +([%d.]+)"), median(steps) * 1e3
  print(("= %s, %s: predicted %.1f ms, measured %.1f ms (median of %d): %+.1f %%"):format(case,
    way.name, predicted, measured, #steps, 100 * (predicted / measured - 1)))
end

local function predictions()
  for _, way in ipairs(WAYS) do
    measure(way, "comm_bench", ("--most %d --repeats %d"):format(quick and 2 ^ 16 or way.most,
      quick and 2 or 5), "link")
    for _, case in ipairs{ "resnet", "lm" } do
      local words = ("--model %s --steps %d"):format(case, quick and 2 or 10)
      if way == WAYS[1] then
        measure(way, "multi_host", words, "step_" .. case)
      end
      predict(case, way, words)
    end
  end
end

-- The table ---------------------------------------------------------------------------------------

local function tables()
  local way = WAYS[1]
  measure(way, "comm_bench", "--repeats " .. (quick and 2 or 7), "link")
  for _, case in ipairs(TURNS) do
    local words = ("%s --steps %d"):format(case.words, quick and 2 or case.all)
    measure(way, "multi_host", words .. " --alone", "alone")
    measure(way, "multi_host", words, "step")
    print(run(("%s %sscale_model.lua --alone %s/alone --step %s/step --link %s/link \z
      --ranks 8,64,256,1024 --gigabits 10,25,100"):format(TYCHO, SCRIPTS, place, place, place)))
  end
end

nets.network(TURNS[1].name):save(place .. "/net.json")
if options.only == nil or options.only == "turns" then
  for _, case in ipairs(TURNS) do
    turns(case)
  end
end
if options.only == nil or options.only == "predictions" then
  predictions()
end
if options.only == nil or options.only == "table" then
  tables()
end
os.execute("rm -r " .. place)
