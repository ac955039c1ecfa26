--- Measures the time of messages between ranks, and fits latency and bandwidth.
--
--   mpirun -n 2 tycho scripts/comm_bench.lua
--   mpirun -n 2 --host one,two tycho scripts/comm_bench.lua --write link.json
--
-- The all-reduce is that of gradients; ping-pong is a broadcast there and one back, of which the
-- half is shown. Sizes are bytes of an array, times the median of several. A message is sent
-- several times in a row, so that the time is that of the network and not of buffers before it. Two
-- lines (latency + bytes / bandwidth) are fitted, since MPI sends large messages in another way
-- than small ones: those with the smallest relative errors, and the size that separates them. The
-- cost of an all-reduce for this rank's cores is shown, too: processor time, the system's included,
-- of all threads except the script's own, which waits. scale_model.lua reads the file of --write.

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ffi = require "ffi"
local ty = require "tycho"
local common = require "common"
local comm = require "tycho.kvstore.comm"
local json = require "tycho.core.json"

local parser = common.parser("Measures messages between ranks.")
common.count(parser, "--most", "bytes of the largest message", 64 * 2 ^ 20)
common.count(parser, "--repeats", "times that each size is sent", 11)
parser:option("--write", "file for the results, as JSON")
parser:flag("--quick", "small and few messages, to see that everything works")
local options = common.parse(parser, {most = 2 ^ 12, repeats = 3})

local group = comm.world()
local ctx = group.context

if group.size == 1 then
  io.stderr:write("comm_bench.lua: one rank sends no messages: mpirun -n 2 tycho ",
    "scripts/comm_bench.lua\n")
  os.exit(1)
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

ffi.cdef "struct tycho_time { long s, ns; }; int clock_gettime(int, struct tycho_time *);"
local PROCESS, THREAD = 2, 3                              -- clocks of processor time
local now = ffi.new("struct tycho_time")

local function clock(which)
  ffi.C.clock_gettime(which, now)
  return tonumber(now.s) + tonumber(now.ns) * 1e-9
end

-- Returns the seconds of one of n calls of f in a row, which all ranks begin together, and the
-- processor time.
local function measure_time(n, f)
  local times, processor = {}, {}
  for i = 0, options.repeats do
    group:barrier()
    local from, spent = ty.callback.clock(), clock(PROCESS) - clock(THREAD)
    for _ = 1, n do
      f()
      ty.waitall()
    end
    times[i] = (ty.callback.clock() - from) / n           -- the first one warms up
    processor[i] = (clock(PROCESS) - clock(THREAD) - spent) / n
  end
  return median(times), math.max(median(processor), 1e-9)
end

local SUSTAINED, MOST_IN_A_ROW = 2 ^ 21, 64               -- bytes that are sent in a row

local function array(bytes)
  local dtype = bytes % 4 == 0 and "float32" or "uint8"
  return ty.nd.zeros({dtype == "uint8" and bytes or bytes / 4}, {dtype = dtype, ctx = ctx})
end

local LEAST_SLOPE = 1e-15                                 -- s per byte: the time does not grow

-- Returns latency (s) and bytes per second of the line through rows first to last with the least
-- relative errors, and the sum of their squares.
local function line(rows, key, first, last)
  local s0, s1, s2, t0, t1, errors = 0, 0, 0, 0, 0, 0
  for i = first, last do
    local n, t = rows[i].bytes, rows[i][key]
    local w = 1 / (t * t)
    s0, s1, s2 = s0 + w, s1 + w * n, s2 + w * n * n
    t0, t1 = t0 + w * t, t1 + w * n * t
  end
  local det = s0 * s2 - s1 * s1
  local latency = det > 0 and math.max((t0 * s2 - t1 * s1) / det, 0) or 0
  local slope = math.max((t1 - s1 * latency) / s2, LEAST_SLOPE)
  for i = first, last do
    errors = errors + ((latency + rows[i].bytes * slope) / rows[i][key] - 1) ^ 2
  end
  return {latency = latency, bandwidth = 1 / slope}, errors
end

-- Returns the lines of small and of large messages; `upto`: bytes of the largest small one. Where
-- rows say so, `processor` of a line is that of the processor time of the same messages.
local function fit(rows, key, processor)
  local split, least = 0, math.huge
  for last = 3, #rows - 3 do
    local _, a = line(rows, key, 1, last)
    local _, b = line(rows, key, last + 1, #rows)
    if a + b < least then
      split, least = last, a + b
    end
  end
  local function lines(first, last)
    local found = line(rows, key, first, last)
    found.processor = processor and line(rows, processor, first, last)
    return found
  end
  local large = lines(split + 1, #rows)
  return {upto = split > 0 and rows[split].bytes or 0, large = large,
    small = split > 0 and lines(1, split) or large}
end

local function print_line(name, upto, small, large)
  local function text(l)
    if l.bandwidth >= 1 / LEAST_SLOPE then
      return ("%.1f us for any size"):format(l.latency * 1e6)
    end
    return ("%.1f us + bytes / (%.1f MB/s)"):format(l.latency * 1e6, l.bandwidth / 1e6)
  end
  print(("%s: %s up to %d bytes, above %s"):format(name, text(small), upto, text(large)))
end

local rows, bytes = {}, 1
while bytes <= options.most do
  local x = array(bytes)
  local in_a_row = math.min(math.ceil(SUSTAINED / bytes), MOST_IN_A_ROW)
  local row = {bytes = bytes, ping = measure_time(in_a_row, function()
    group:broadcast({x}, 0)
    group:broadcast({x}, 1)
  end) / 2}
  row.sum, row.processor = measure_time(in_a_row, function() group:sum{x} end)
  rows[#rows + 1] = row
  bytes = bytes * 4
end

if group.rank == 0 then
  print(("%d ranks"):format(group.size))
  print(("%12s %14s %14s %12s %14s"):format("bytes", "ping-pong, us", "all-reduce, us", "MB/s",
    "processor, us"))
  for _, row in ipairs(rows) do
    print(("%12d %14.1f %14.1f %12.1f %14.1f"):format(row.bytes, row.ping * 1e6, row.sum * 1e6,
      row.bytes / row.sum / 1e6, row.processor * 1e6))
  end
  local sum = fit(rows, "sum", "processor")
  local found = {ranks = group.size, sum = sum, ping = fit(rows, "ping")}
  print_line("ping-pong", found.ping.upto, found.ping.small, found.ping.large)
  print_line("all-reduce", sum.upto, sum.small, sum.large)
  print_line("processor time of an all-reduce", sum.upto, sum.small.processor, sum.large.processor)
  if options.write then
    local file = assert(io.open(options.write, "w"))
    assert(file:write(json.text(found), "\n"))
    file:close()
  end
end
