--- Measures what a message between ranks takes, and fits latency and bandwidth.
--
--   mpirun -n 2 tycho scripts/comm_bench.lua
--   mpirun -n 2 --host one,two tycho scripts/comm_bench.lua --write link.json
--
-- The all-reduce is the one that gradients go by; ping-pong is a broadcast there and one back, of
-- which the half is shown. Sizes are bytes of an array, times the median of several. A message is
-- sent several times in a row, so that buffers on the way, which take some bytes at once, do not
-- pass for the wire. The fitted line (latency + bytes / bandwidth) has the least relative errors.
-- scale_model.lua reads what --write leaves.

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

-- Latency (s) and bytes per second of the line with the least relative errors.
local function fit(rows, key)
  local s0, s1, s2, t0, t1 = 0, 0, 0, 0, 0
  for _, row in ipairs(rows) do
    local n, t = row.bytes, row[key]
    local w = 1 / (t * t)
    s0, s1, s2 = s0 + w, s1 + w * n, s2 + w * n * n
    t0, t1 = t0 + w * t, t1 + w * n * t
  end
  local det = s0 * s2 - s1 * s1
  local latency, slope = (t0 * s2 - t1 * s1) / det, (t1 * s0 - t0 * s1) / det
  return {latency = math.max(latency, 0), bandwidth = 1 / math.max(slope, 1e-15)}
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
    print(("ping-pong: %.1f us + bytes / (%.1f MB/s)"):format(found.ping.latency * 1e6,
      found.ping.bandwidth / 1e6))
  end
  print(("all-reduce: %.1f us + bytes / (%.1f MB/s)"):format(found.sum.latency * 1e6,
    found.sum.bandwidth / 1e6))
  if options.write then
    local file = assert(io.open(options.write, "w"))
    assert(file:write(json.text(found), "\n"))
    file:close()
  end
end
