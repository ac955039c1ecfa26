--- make bench: measures the workloads, prints a table, writes JSON lines.
--   tycho scripts/bench/bench.lua [--json file] [--samples 7] [W1 W2 ...]
-- With PEERS=1 the same work runs in MXNet and PyTorch in turn with ours; the interpreters that have them are named by
-- TYCHO_BENCH_MXNET and TYCHO_BENCH_TORCH. Ratios are of medians of one run.
local here = arg[0]:match("^(.*)/") or "."
package.path = here .. "/?.lua;" .. package.path
local measure = require "measure"

local options, wanted = {samples = 7}, {}
do
  local i = 1
  while arg[i] do
    local name = arg[i]:match("^%-%-(.+)")
    if name then options[name], i = arg[i + 1], i + 1 else wanted[#wanted + 1] = arg[i] end
    i = i + 1
  end
end

-- one workload in this process: prints "median min max"
local function run_one(name)
  local w = require("workloads")[name]()
  local s = measure.samples(w.step, w.sync, tonumber(options.samples))
  print(("%.9g %.9g %.9g %g %s"):format(measure.median(s), s[1], s[#s], w.work, w.unit))
end

if options.one then return run_one(options.one) end

local order = #wanted > 0 and wanted or {"W1", "W2", "W7", "W7b", "chain", "bind"}
local settings = {W7 = "TYCHO_THREADS=1 ", W7b = "TYCHO_THREADS=1 ", chain = "TYCHO_FUSE=0 TYCHO_THREADS=1 "}
local peers = os.getenv("PEERS") == "1" and {
  {"mxnet", os.getenv("TYCHO_BENCH_MXNET"), here .. "/peer_mxnet.py"},
  {"torch", os.getenv("TYCHO_BENCH_TORCH"), here .. "/peer_torch.py"},
} or {}

local function capture(command)
  local f = io.popen(command)
  local text = f:read("*a")
  f:close()
  return text
end

local program = os.getenv("TYCHO_PROGRAM") or arg[-1] or "tycho"
local function ours(name)
  local text = capture(("%s%s %s/bench.lua --samples 3 --one %s"):format(settings[name] or "", program, here, name))
  local median, work, unit = text:match("^(%S+) %S+ %S+ (%S+) (%S+)")
  return tonumber(median), tonumber(work), unit
end
local function peer(p, name) return tonumber(capture(("%s %s %s 2>/dev/null"):format(p[2], p[3], name)):match("(%S+)%s*$")) end

local function middle(t) table.sort(t); return t[math.ceil(#t / 2)] end
local function figure(seconds, work, unit)
  if unit == "samples/s" then return ("%.0f %s"):format(work / seconds, unit) end
  if unit == "ms" then return ("%.2f ms"):format(seconds * 1e3) end
  return ("%.1f %s"):format(seconds / work * 1e9, unit)
end

print(("%-8s %-22s %s"):format("work", "tycho", #peers > 0 and "peers (ratio of our time to theirs)" or ""))
for _, name in ipairs(order) do
  local mine, theirs, work, unit = {}, {}, nil, nil
  for _ = 1, #peers > 0 and 3 or 1 do
    local t, w, u = ours(name)
    mine[#mine + 1], work, unit = t, w, u
    for _, p in ipairs(peers) do
      local v = p[2] and peer(p, name)
      if v then theirs[p[1]] = theirs[p[1]] or {}; table.insert(theirs[p[1]], v) end
    end
  end
  local line, t = {}, middle(mine)
  for _, p in ipairs(peers) do
    local v = theirs[p[1]] and middle(theirs[p[1]])
    if v then line[#line + 1] = ("%s %s (%.2f)"):format(p[1], figure(v, work, unit), t / v) end
  end
  print(("%-8s %-22s %s"):format(name, t and figure(t, work, unit) or "failed", table.concat(line, "   ")))
  if options.json and t then
    local f = assert(io.open(options.json, "a"))
    f:write(('{"work": "%s", "seconds": %.9g, "units": %g, "unit": "%s"}\n'):format(name, t, work, unit))
    f:close()
  end
end
