--- Timing: warm-up, then the median of samples of at least `min` seconds each.
local ffi = require "ffi"

pcall(ffi.cdef, "struct tycho_bench_time { long s, ns; }; int clock_gettime(int, struct tycho_bench_time *);")
local time = ffi.new("struct tycho_bench_time")

local measure = {}

--- Seconds on a clock that never goes back.
function measure.now()
  ffi.C.clock_gettime(1, time)
  return tonumber(time.s) + tonumber(time.ns) * 1e-9
end

local function timed(step, sync, calls)
  local from = measure.now()
  for _ = 1, calls do step() end
  sync()
  return measure.now() - from
end

--- Seconds per call of step, sorted: `samples` of at least `min` seconds. step may run ahead; sync waits for all of it.
function measure.samples(step, sync, samples, min)
  samples, min = samples or 7, min or 0.2
  local calls, t = 1, timed(step, sync, 1)
  while t < min do
    calls = math.max(calls * 2, math.ceil(calls * min / math.max(t, 1e-9) * 0.7))
    t = timed(step, sync, calls)
  end
  local out = {}
  for i = 1, samples do out[i] = timed(step, sync, calls) / calls end
  table.sort(out)
  return out
end

function measure.median(sorted) return sorted[math.ceil(#sorted / 2)] end

return measure
