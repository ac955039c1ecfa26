--- make bench: runs the workloads W1 to W15, prints a table, writes records.
--   tycho scripts/dev/bench/bench.lua [--json file] [--rounds 3] [W1 W2 ...]
-- W16 runs the models of models.json, which models.sh fetches, from the folder TYCHO_BENCH_MODELS,
-- beside ONNX Runtime alone; "model:NAME" is one of them. `imports` reads the largest of them.
-- With PEERS=1 the same work runs in MXNet (with and without oneDNN), PyTorch and (inference)
-- ONNX Runtime, in turn with ours: all are there, and the one whose turn it is takes samples for
-- BENCH_TURN (0.5) seconds; one at a time. 0: to the end, A B C, and again in each round.
-- TYCHO_BENCH_MXNET, TYCHO_BENCH_TORCH and TYCHO_BENCH_ONNX name the Python programs that have
-- them; one that is absent is said to be. A figure is the median of its rounds, a system's
-- figure that of its best variant, the ratio ours to the best peer's. Losses and checksums are
-- compared first: a figure whose numbers differ is marked and has no ratio. TYCHO_THREADS (2):
-- threads of every system; W7 has one. QUICK=1: shorter samples, fewer variants. BENCH_CLOCK=cpu
-- counts the process's CPU time instead of the time that passes: with TYCHO_THREADS=1, for a
-- busy machine. DEVICE=gpu: ours run on gpu(0), W1 to W7 of PyTorch on its own, in the
-- precision of TYCHO_PRECISION; other peers stay away, and ratios are to PyTorch's best without
-- compiling. Rows of W12 to W14 on a CPU end with the share of what the largest product of their
-- type does there (`peak`, measured first). On a GPU a row is followed by the time of a step, bytes
-- and operations per second as shares of the device's peaks (`peaks`, measured first: a copy and a
-- product), and what a step launches.
-- `decode` is one token of two decoders, ours alone, beside a loop that loads what a step reads.
-- `host` is what a step costs the thread that asks for it (host:mlp: of one network).
-- PEERS_COMPILE=0 leaves torch.compile out. "W15:lstm" is one network of W15, "W15:rest" its rows
-- without a network.
-- PROFILE=1: after a training step or an inference, the time by operator.
local here = arg[0]:match("^(.*)/") or "."
package.path = here .. "/?.lua;" .. package.path
local cjson = require "cjson"
local measure = require "measure"

local options, wanted = {}, {}
do
  local i = 1
  while arg[i] do
    local name = arg[i]:match("^%-%-(.+)")
    if name then options[name], i = arg[i + 1], i + 1 else wanted[#wanted + 1] = arg[i] end
    i = i + 1
  end
end

local program = os.getenv("TYCHO_PROGRAM") or arg[-1] or "tycho"
local function quoted(s) return "'" .. s:gsub("'", "'\\''") .. "'" end
local function ours(word)
  return ("%s %s --one %s"):format(quoted(program), quoted(arg[0]), quoted(word))
end

-- Enters the device in DEVICE, on which arrays and executors are then made.
local function enter_device()
  local device = os.getenv("DEVICE")
  if not device or device == "" or device == "cpu" then return end
  local ty = require "tycho"
  if device:match("^gpu") and ty.num_gpus() == 0 then
    local _, why = pcall(ty.nd.zeros, {1}, {ctx = ty.gpu(0)})
    io.stderr:write(("bench: DEVICE=%s: %s\n"):format(device, tostring(why)))
    os.exit(1)
  end
  ty.Context(device:find("%(") and device or device .. "(0)"):enter()
end

if os.getenv("DEVICE") and not options.one then enter_device() end

-- Runs one workload in this process: "W1", or "memory:resnet50:train".
if options.one then
  local name, rest = options.one:match("^([^:]+):?(.*)")
  local words = {}
  for w in rest:gmatch("[^:]+") do words[#words + 1] = w end
  enter_device()
  if name == "W6" or name == "W8" or name == "W15" then
    table.insert(words, 1, function(word) os.execute(ours(word)) end)
  elseif name == "layers" or name == "lengths" then
    table.insert(words, 1, ours)
  end
  return require("workloads")[name](unpack(words))
end

-- Systems -----------------------------------------------------------------------------------------

-- Returns "model:..." for each model of models.json.
local function model_works()
  local list = {}
  for i, m in ipairs(cjson.decode(assert(io.open(here .. "/models.json")):read("*a"))) do
    list[i] = "model:" .. m.name
  end
  return list
end

local function peer(name, python, file)
  if not python then return nil, name end
  return {name = name, command = function(word)
    return ("%s %s %s"):format(quoted(python), quoted(here) .. "/" .. file, quoted(word))
  end}
end

local on_gpu = (os.getenv("DEVICE") or ""):match("^gpu")
local systems, absent = {{name = "tycho", command = ours}}, {}
if os.getenv("PEERS") == "1" then
  for _, p in ipairs{{"torch", "TYCHO_BENCH_TORCH", "peer_torch.py"},
      {"mxnet", "TYCHO_BENCH_MXNET", "peer_mxnet.py"},
      {"mxnet", "TYCHO_BENCH_MXNET", "peer_mxnet.py --plain"},
      {"onnx", "TYCHO_BENCH_ONNX", "peer_onnx.py"}} do
    if p[1] == "torch" or not on_gpu then
      systems[#systems + 1] = peer(p[1], os.getenv(p[2]), p[3])
      absent[p[1]] = not os.getenv(p[2]) and p[2] or nil
    end
  end
end

local ONE_THREAD = {W7 = true, chain = true}

local TURN = #systems > 1 and (os.getenv("BENCH_TURN") or "0.5") or "0"

-- Starts a system's process, which waits for a line before it begins, and for another one after
-- each of its turns.
local function start(system, work)
  local threads = ONE_THREAD[work] and "1" or os.getenv("TYCHO_THREADS") or "2"
  local settings = work == "chain" and "TYCHO_FUSE=0 " or ""
  local process = measure.start(
    ("read go; TYCHO_THREADS=%s BENCH_TURN=%s PYTHONDONTWRITEBYTECODE=1 %s%s%s"):format(threads,
      TURN, settings, system.command(work), system.name == "tycho" and "" or " 2>/dev/null"))
  process.name, process.records = system.name, {}
  return process
end

-- Gives a process its turn and collects its records; returns whether it has ended.
local function continue(process)
  process.gate:write("go\n")
  process.gate:flush()
  for line in process.from:lines() do
    if line == "turn" then return false end
    local ok, r = pcall(cjson.decode, line)
    if ok and type(r) == "table" and r.figure then
      r.system = process.name
      table.insert(process.records, r)
    end
  end
  process.gate:close()
  process.from:close()
  return true
end

-- Returns a list of each system's records of one run. Some systems' threads wait actively for 0.2
-- seconds before they sleep.
local function run(work)
  local waiting, all = {}, {}
  for _, system in ipairs(systems) do
    if system.name == "tycho" or system.name == "onnx" or not work:find("^model:") then
      waiting[#waiting + 1] = start(system, work)
      all[#all + 1] = waiting[#waiting].records
    end
  end
  while #waiting > 0 do
    local process = table.remove(waiting, 1)
    if not continue(process) then waiting[#waiting + 1] = process end
    if #systems > 1 then os.execute("sleep 0.2") end
  end
  return all
end

-- Table -------------------------------------------------------------------------------------------

-- goals for ratios, by the beginning of a figure's name; `ending`: only for figures with this
-- ending; `of`: compared with our figure without this ending; `absolute`: for the figure itself
local GOALS = {{"W1", ">=", 1.6}, {"W2", ">=", 1.6}, {"W3", ">=", 1.35}, {"W4", ">=", 1.25},
  {"W4 infer b1", ">=", 1.1}, {"W4 infer b32", ">=", 1.2}, {"W5 2x200", ">=", 1.25},
  {"W5 2x650", ">=", 1.15}, {"W5", ">=", 0.9, ending = " unrolled", of = true}, {"W6", ">=", 1.4},
  {"W6 first pass", "<=", 0.5}, {"W6 memory", "<=", 0.4}, {"W7 forward", "<=", 0.3},
  {"W7 both", "<=", 0.25}, {"W8", "<=", 0.85}, {"W9", "<=", 0.5}, {"W10", "<=", 1},
  {"W12 encoder", ">=", 1.1}, {"W12 train", ">=", 1.6}, {"W12 train", ">=", 1.1, ending = " bf16"},
  {"W13", ">=", 1.05}, {"W13 lm", ">=", 1.1}, {"W14", ">=", 1},
  {"W15", ">=", 1.3}, {"W15", ">=", 1.2, ending = " compiled"},
  {"W15 operators", "<=", 1.5, absolute = true}, {"W15 call", "<=", 1},
  {"W15 depths programs", "<=", 0, absolute = true},
  {"W15 first sight", "<=", 10, absolute = true},
  {"W15 lengths programs", "<=", 0, absolute = true},
  {"decode/loads gpt2", "<=", 1.3, absolute = true},
  {"decode small", "<=", 0.25, absolute = true}, {"W16", ">=", 0.9},
  {"import", "<=", 50, absolute = true}, {"import memory", "<=", 8, absolute = true}}
for _, ending in ipairs{" gluon", " hybrid"} do
  GOALS[#GOALS + 1] = {"W15 step", "<=", 1.1, ending = ending, of = true}
  GOALS[#GOALS + 1] = {"W15 memory", "<=", 1.15, ending = ending, of = true}
  GOALS[#GOALS + 1] = {"W15 arrays", "<=", 1.15, ending = ending, of = true}
end
if on_gpu then
  GOALS = {{"W1", ">=", 3}, {"W2", ">=", 1}, {"W3", ">=", 1}, {"W4", ">=", 1}, {"W5", ">=", 1},
    {"W5", ">=", 3, ending = " unrolled"}, {"host", "<=", 50, absolute = true}}
end

local function find_goal(figure)
  local found
  for _, g in ipairs(GOALS) do
    if g.ending and figure:find(g[1], 1, true) == 1 and figure:sub(-#g.ending) == g.ending then
      return g
    end
    local rest = figure:sub(1, #g[1]) == g[1] and figure:sub(#g[1] + 1, #g[1] + 1)
    local begins = not g.ending and (rest == "" or rest == " ")
    if begins and (not found or #g[1] > #found[1]) then found = g end
  end
  return found
end

-- Sorts records into figures[figure].variants["torch eager"] = {system, variant, values, check}.
local function collect(figures, order, records)
  for _, r in ipairs(records) do
    local f = figures[r.figure]
    if not f then
      f = {name = r.figure, unit = r.unit, variants = {}}
      figures[r.figure], order[#order + 1] = f, f
    end
    local key = r.system .. " " .. r.variant
    f.variants[key] = f.variants[key] or {system = r.system, variant = r.variant, values = {},
      ms = {}, check = r.check, launches = r.launches, copies = r.copies, bytes = r.bytes,
      flop = r.flop}
    table.insert(f.variants[key].values, r.value)
    table.insert(f.variants[key].ms, r.ms)
  end
end

local function is_rate(f) return f.unit:find("/s$") ~= nil end

local function find_best(f, is_wanted)
  local best
  for _, v in pairs(f.variants) do
    if is_wanted(v) then
      v.median = measure.median(v.values)
      if not best or (v.median > best.median) == is_rate(f) and v.median ~= best.median then
        best = v
      end
    end
  end
  return best
end

-- Sums with operands rounded to bfloat16 or to 8 bits agree less.
local function tolerance_of(name)
  return (name:find("^W1[34]") or name:find(" bf16$")) and 3e-2 or 2e-3
end

-- Returns the first pair of numbers that differ by more than the tolerance, or nil.
local function differs(f)
  local first
  local tolerance = tolerance_of(f.name)
  for key, v in pairs(f.variants) do
    if v.check then
      first = first or {key, v.check}
      for i, x in ipairs(v.check) do
        local y = first[2][i]
        if type(x) ~= "number" then return key .. " is not finite" end
        if type(y) == "number" and math.abs(x - y) > tolerance * math.max(math.abs(y), 1e-3) then
          return ("%s %.6g, %s %.6g"):format(first[1], y, key, x)
        end
      end
    end
  end
end

local function number(x)
  if not x then return "-" end
  return (x >= 1000 and "%.0f" or x >= 10 and "%.1f" or "%.3f"):format(x)
end

local function met(ratio, goal)
  if goal[2] == ">=" then return ratio >= goal[3] end
  return ratio <= goal[3]
end

-- Greatest rates of the device, the better of ours and the peer's: B/s, FLOP/s.
local peaks = {}

local function note_peak(f)
  local name = f.name:match("^peak (%w+)")
  local best = name and find_best(f, function() return true end)
  if best then peaks[name] = best.median end
end

-- Returns the figures of a GPU's row, added to the line, and as text.
local function on_device(line, mine)
  if not (mine and mine.bytes and #mine.ms > 0) then return nil end
  local seconds = measure.median(mine.ms) * 1e-3
  line.ms, line.launches, line.copies = seconds * 1e3, mine.launches, mine.copies
  line.bytes, line.flop = mine.bytes, mine.flop
  line.of_copy = peaks.copy and mine.bytes / seconds / peaks.copy
  line.of_product = peaks.product and mine.flop / seconds / peaks.product
  local function share(x) return x and (" (%.0f %%)"):format(100 * x) or "" end
  return ("  %.3f ms a step, %.0f GB/s%s, %.2f TFLOP/s%s, %d launches, %d copies"):format(line.ms,
    mine.bytes / seconds * 1e-9, share(line.of_copy), mine.flop / seconds * 1e-12,
    share(line.of_product), mine.launches, mine.copies)
end

-- Returns the share of a type's product peak that a CPU's row reaches, as text; nil if it is
-- unknown.
local function share_of_peak(line, mine)
  if on_gpu or not (mine and mine.flop and #mine.ms > 0) then return nil end
  local name = line.figure:find("^W14") and "int8" or line.figure:find("^W13") and "bf16"
    or line.figure:find(" bf16$") and "bf16" or "float32"
  line.of_product = peaks[name] and mine.flop / (measure.median(mine.ms) * 1e-3) / peaks[name]
  return line.of_product and ("%.0f %% of the peak"):format(100 * line.of_product)
end

local ROW = "%-30s %-12s %10s %10s %10s %10s  %-22s %7s %-8s"

local function row(figures, f)
  local function of(name)
    return find_best(f, function(v) return v.system == name end)
  end
  local mine, torch, mxnet, onnx = of("tycho"), of("torch"), of("mxnet"), of("onnx")
  local best = find_best(f, function(v)
    return v.system ~= "tycho" and (not on_gpu or v.variant:find("^eager") ~= nil)
  end)
  local goal, against = find_goal(f.name), best
  if goal and goal.of then
    local base = figures[f.name:sub(1, -#goal.ending - 1)]
    against = base and find_best(base, function(v) return v.system == "tycho" end)
  end
  local bad = differs(f)
  local line = {figure = f.name, unit = f.unit, ours = mine and mine.median,
    torch = torch and torch.median, mxnet = mxnet and mxnet.median, onnx = onnx and onnx.median,
    best = best and best.system .. " " .. best.variant,
    ratio = mine and against and not bad and mine.median / against.median or nil, differs = bad}
  local verdict = bad and "DIFFERS: " .. bad or ""
  local judged = goal and (goal.absolute and line.ours or line.ratio)
  if judged then
    verdict = ("%s %-6s %s"):format(goal[2], goal[3], met(judged, goal) and "ok" or "short")
  end
  print(ROW:format(f.name, f.unit, number(line.ours), number(line.torch), number(line.mxnet),
    number(line.onnx),
    line.best or "-", line.ratio and ("%.2f"):format(line.ratio) or "-",
    verdict .. (share_of_peak(line, mine) and "  " .. share_of_peak(line, mine) or "")))
  local more = on_gpu and on_device(line, mine)
  if more then print(more) end
  return line
end

local works = #wanted > 0 and wanted
  or {"W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9", "W10", "W11", "W12",
    "W13", "W14", "W15", "loader", "chain", "decode"}
if on_gpu and works[1] ~= "peaks" then table.insert(works, 1, "peaks") end
local rounds = tonumber(options.rounds) or (#systems > 1 and 3 or 1)

for name, variable in pairs(absent) do
  print(name .. " is left out: " .. variable .. " names no Python that has it")
end
local PRECISION = os.getenv("TYCHO_PRECISION") or "highest"
local tf32 = PRECISION ~= "highest" and "on" or "off"
if on_gpu then print(("float32, TF32 %s (TYCHO_PRECISION=%s)"):format(tf32, PRECISION)) end
print(ROW:format("figure", "unit", "tycho", "torch", "mxnet", "onnx",
  "best peer", "ratio", "asked"))
local out = options.json and assert(io.open(options.json, "a"))
for i, work in ipairs(works) do
  if work == "W16" then
    table.remove(works, i)
    for k, model in ipairs(model_works()) do table.insert(works, i + k - 1, model) end
    break
  end
end
local ratios = {}                                        -- of W16
for _, work in ipairs(works) do
  local figures, order = {}, {}
  for _ = 1, work == "W8" and 1 or rounds do
    for _, records in ipairs(run(work)) do collect(figures, order, records) end
  end
  for _, f in ipairs(order) do
    note_peak(f)
    local line = row(figures, f)
    line.tf32 = on_gpu and tf32 or nil
    if work:find("^model:") then ratios[#ratios + 1] = line.ratio end
    if out then
      out:write(cjson.encode(line), "\n")
      out:flush()
    end
  end
  io.stdout:flush()
end
if #ratios > 1 then
  print(("W16, median of %d ratios: %.2f"):format(#ratios, measure.median(ratios)))
end
if out then out:close() end
