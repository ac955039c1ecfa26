--- Timing, memory of the process, and records: one line of JSON for each figure.
-- peer_common.py does the same.
local cjson = require "cjson"
local ffi = require "ffi"
local ty = require "tycho"

pcall(ffi.cdef,
  "struct tycho_bench_time { long s, ns; }; int clock_gettime(int, struct tycho_bench_time *);")
local time = ffi.new("struct tycho_bench_time")

cjson.encode_invalid_numbers("null")                     -- a loss that is not a number

local measure = {}

local quick = os.getenv("QUICK") == "1"
local SECONDS, BUDGET = quick and 0.05 or 0.15, quick and 2 or 6
local SERVED = 0.5                                       -- seconds of a turn of `serve`

-- clock of the process's CPU time, or the monotonic one
local CLOCK = os.getenv("BENCH_CLOCK") == "cpu" and 2 or 1

--- Returns the time in seconds.
function measure.now()
  ffi.C.clock_gettime(CLOCK, time)
  return tonumber(time.s) + tonumber(time.ns) * 1e-9
end

--- Returns the seconds of `calls` calls of step and one of wait.
function measure.timed(step, wait, calls)
  local from = measure.now()
  for _ = 1, calls do step() end
  wait()
  return measure.now() - from
end

local TURN, begun = tonumber(os.getenv("BENCH_TURN") or 0), measure.now()

local function let_others_run()
  print("turn")
  io.stdout:flush()
  io.read()
  begun = measure.now()
end

--- Lets the other systems run, if systems take turns and this one's turn is over; returns whether
-- it did.
function measure.turn()
  if TURN == 0 or measure.now() - begun < TURN then return false end
  let_others_run()
  return true
end

--- Waits before work that happens once in a process: lets the others have a turn, then all rest for
-- four seconds. A host takes freed memory back within two or three seconds, so that all begin in
-- the same state, and none with memory that another process has just freed.
function measure.rest()
  if TURN > 0 then let_others_run() end
  os.execute("sleep 4")
end

--- Starts a command. Returns a table of two files: `gate` writes to its input, `from` reads its
-- output. Commands that are started later inherit `gate` and keep it open.
-- @string command a command of the shell, without redirection of its input
function measure.start(command)
  local gate = os.tmpname()
  os.remove(gate)
  assert(os.execute("mkfifo '" .. gate .. "'") == 0, "no pipe can be made")
  local process = {from = io.popen(("{ %s; } < '%s'"):format(command, gate))}
  process.gate = assert(io.open(gate, "w"))
  os.remove(gate)
  return process
end

-- Returns the number of calls of step in a sample, after a warm-up, and the number of samples that
-- fit the budget.
local function size_of_sample(step, wait, seconds)
  measure.timed(step, wait, 1)
  local calls, t = 1, measure.timed(step, wait, 1)
  while t < seconds do
    calls = math.max(calls * 2, math.ceil(calls * seconds / math.max(t, 1e-9) * 0.7))
    t = measure.timed(step, wait, calls)
  end
  local budget = t / calls < 0.01 and BUDGET / 2 or BUDGET
  return calls, math.max(3, math.floor(budget / t))
end

--- Returns the seconds per call of each step: a list of samples for each, taken in turn (A B A B
-- ...), of `shortest` seconds each (SECONDS), at least three, as many as fit the budget; steps
-- below 10 ms get half of it. The machine may be slow for half a second (while its host takes freed
-- memory back), so samples are not shorter. A step may return before its work is done; wait waits
-- for all of it.
function measure.in_turn(steps, wait, shortest)
  local calls, out, n = {}, {}, 0
  for k, step in ipairs(steps) do
    local most
    calls[k], most = size_of_sample(step, wait, shortest or SECONDS)
    out[k], n = {}, math.max(n, most)
  end
  for i = 1, n do
    local cold = measure.turn()
    for k, step in ipairs(steps) do
      if cold then measure.timed(step, wait, 1) end
      out[k][i] = measure.timed(step, wait, calls[k]) / calls[k]
    end
  end
  return out
end

--- Takes samples of a step for `served`. Prints a line with the number of turns that the samples
-- need; then, for each input line, runs for half a second and prints the seconds per call.
-- @tparam table more other fields of the first line
function measure.serve(step, wait, shortest, more)
  local calls, most = size_of_sample(step, wait, shortest)
  local each = measure.timed(step, wait, calls)
  more.turns = math.max(3, math.ceil(most * each / SERVED))
  print(cjson.encode(more))
  io.stdout:flush()
  for _ in io.lines() do
    local till, list = measure.now() + SERVED, {}
    measure.timed(step, wait, 1)
    repeat list[#list + 1] = measure.timed(step, wait, calls) / calls until measure.now() > till
    print(cjson.encode(list))
    io.stdout:flush()
  end
end

local function read_answer(process, command)
  return process.from:read() or error("this ended before its turn was over: " .. command, 0)
end

--- Runs, in turn, commands that call `serve`. Returns a list of samples for each command, and the
-- tables in their first lines.
function measure.served(commands)
  local processes, first, out, turns = {}, {}, {}, 0
  for k, command in ipairs(commands) do
    processes[k] = measure.start(command)
    first[k], out[k] = cjson.decode(read_answer(processes[k], command)), {}
    turns = math.max(turns, first[k].turns)
  end
  for _ = 1, turns do
    measure.turn()
    for k, process in ipairs(processes) do
      process.gate:write("go\n")
      process.gate:flush()
      for _, seconds in ipairs(cjson.decode(read_answer(process, commands[k]))) do
        table.insert(out[k], seconds)
      end
    end
  end
  for _, process in ipairs(processes) do
    process.gate:close()
  end
  for k = #processes, 1, -1 do           -- the last one first: it keeps the other gates open
    processes[k].from:close()
  end
  return out, first
end

--- Returns the samples of a single step, measured like `in_turn`.
function measure.samples(step, wait) return measure.in_turn({step}, wait)[1] end

function measure.median(list)
  local t = {unpack(list)}
  table.sort(t)
  local n = #t
  return n % 2 == 1 and t[(n + 1) / 2] or (t[n / 2] + t[n / 2 + 1]) / 2
end

--- Prints one record; `check`: numbers that must agree with those of the other systems; `more`:
-- further fields.
function measure.record(figure, variant, unit, list, check, more)
  local r = {figure = figure, variant = variant, unit = unit, value = measure.median(list),
    low = math.min(unpack(list)), high = math.max(unpack(list)), check = check}
  for key, value in pairs(more or {}) do r[key] = value end
  print(cjson.encode(r))
  io.stdout:flush()
end

--- Records a rate: `work` units in each entry of `seconds`.
function measure.rate(figure, variant, unit, work, seconds, check, more)
  local list = {}
  for i, s in ipairs(seconds) do list[i] = work / s end
  more = more or {}
  more.ms = measure.median(seconds) * 1e3
  measure.record(figure, variant, unit, list, check, more)
end

local function status(key)
  for line in io.lines("/proc/self/status") do
    local kb = line:match("^" .. key .. ":%s+(%d+)")
    if kb then return tonumber(kb) / 1024 end
  end
end

--- Returns the MiB of memory that this process uses.
function measure.resident() return status("VmRSS") end
function measure.peak() return status("VmHWM") end
function measure.forget_peak()
  local f = assert(io.open("/proc/self/clear_refs", "w"))
  f:write("5")
  f:close()
end

--- Writes the time by operator of one run to standard error if PROFILE=1.
-- @string[opt] title a line before it
function measure.profile(run, exe, title)
  if os.getenv("PROFILE") ~= "1" then return end
  exe:profile()
  run()
  run()
  ty.waitall()
  local sums, list, total = {}, {}, 0
  for _, s in ipairs(exe:profile()) do
    local sum = sums[s.op] or {op = s.op, ns = 0, calls = 0}
    if not sums[s.op] then sums[s.op], list[#list + 1] = sum, sum end
    sum.ns, sum.calls, total = sum.ns + s.ns, sum.calls + 1, total + s.ns
  end
  table.sort(list, function(a, b) return a.ns > b.ns end)
  if title then io.stderr:write(title, "\n") end
  for _, s in ipairs(list) do
    io.stderr:write(("  %-36s %5d calls %10.3f ms %5.1f %%\n")
      :format(s.op, s.calls, s.ns * 1e-6, 100 * s.ns / total))
  end
end

return measure
