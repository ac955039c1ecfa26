--- Measures what a message between ranks takes, and fits latency and bandwidth.
--
--   mpirun -n 2 tycho scripts/comm_bench.lua
--   mpirun -n 2 --host one,two tycho scripts/comm_bench.lua --write link.json
--
-- The all-reduce is the one that gradients go by; ping-pong is a broadcast there and one back, of
-- which the half is shown. Sizes are bytes of an array, times the median of several. A message is
-- sent several times in a row, so that buffers on the way, which take some bytes at once, do not
-- pass for the wire. Two lines (latency + bytes / bandwidth) are fitted, since MPI sends large
-- messages in another way than small ones: those with the least relative errors, and the size that
-- parts them. scale_model.lua reads what --write leaves.

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local comm = require "tycho.kvstore.comm"
local json = require "tycho.core.json"

local parser = common.parser("Measures messages between ranks.")
common.count(parser, "--most", "bytes of the largest message", 64 * 2 ^ 20)
common.count(parser, "--repeats", "times that each size is sent", 11)
parser:option("--write", "file for the figures, as JSON")
parser:flag("--quick", "small and few messages, to see that everything works")
local options = common.parse(parser, {most = 2 ^ 12, repeats = 3})

local group = comm.world()
local ctx = group.context

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- Seconds of one of n calls of f in a row, which all ranks begin together.
local function time_of(n, f)
  local times = {}
  for i = 0, options.repeats do
    group:barrier()
    local from = ty.callback.clock()
    for _ = 1, n do
      f()
      ty.waitall()
    end
    times[i] = (ty.callback.clock() - from) / n           -- the first one warms up
  end
  return median(times)
end

local SUSTAINED, MOST_IN_A_ROW = 2 ^ 21, 64               -- bytes that are sent in a row

local function array(bytes)
  local dtype = bytes % 4 == 0 and "float32" or "uint8"
  return ty.nd.zeros({dtype == "uint8" and bytes or bytes / 4}, {dtype = dtype, ctx = ctx})
end

-- Latency (s) and bytes per second of the line through rows first to last with the least relative
-- errors, and the sum of their squares.
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
  local slope = math.max((t1 - s1 * latency) / s2, 1e-15)
  for i = first, last do
    errors = errors + ((latency + rows[i].bytes * slope) / rows[i][key] - 1) ^ 2
  end
  return {latency = latency, bandwidth = 1 / slope}, errors
end

-- The lines of small and of large messages; `upto`: bytes of the largest small one.
local function fit(rows, key)
  local all = line(rows, key, 1, #rows)
  local best, least = {upto = 0, small = all, large = all}, math.huge
  for last = 3, #rows - 3 do
    local small, a = line(rows, key, 1, last)
    local large, b = line(rows, key, last + 1, #rows)
    if a + b < least then
      best, least = {upto = rows[last].bytes, small = small, large = large}, a + b
    end
  end
  return best
end

local function tell(name, found)
  local function text(l)
    return ("%.1f us + bytes / (%.1f MB/s)"):format(l.latency * 1e6, l.bandwidth / 1e6)
  end
  print(("%s: %s up to %d bytes, above %s"):format(name, text(found.small), found.upto,
    text(found.large)))
end

local rows, bytes = {}, 1
while bytes <= options.most do
  local x = array(bytes)
  local in_a_row = math.min(math.ceil(SUSTAINED / bytes), MOST_IN_A_ROW)
  rows[#rows + 1] = {bytes = bytes,
    ping = group.size > 1 and time_of(in_a_row, function()
      group:broadcast({x}, 0)
      group:broadcast({x}, 1)
    end) / 2 or 0,
    sum = time_of(in_a_row, function() group:sum{x} end)}
  bytes = bytes * 4
end

if group.rank == 0 then
  print(("%d ranks"):format(group.size))
  print(("%12s %14s %14s %12s"):format("bytes", "ping-pong, us", "all-reduce, us", "MB/s"))
  for _, row in ipairs(rows) do
    print(("%12d %14.1f %14.1f %12.1f"):format(row.bytes, row.ping * 1e6, row.sum * 1e6,
      row.bytes / row.sum / 1e6))
  end
  local found = {ranks = group.size, sum = fit(rows, "sum")}
  if group.size > 1 then
    found.ping = fit(rows, "ping")
    tell("ping-pong", found.ping)
  end
  tell("all-reduce", found.sum)
  if options.write then
    local file = assert(io.open(options.write, "w"))
    assert(file:write(json.text(found), "\n"))
    file:close()
  end
end
