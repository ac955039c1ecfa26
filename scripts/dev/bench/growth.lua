--- W11: time and memory per node of networks of 10^3, 10^4, 10^5 nodes, stage by stage. The cost of
-- a stage may grow with n log n, so its figure per node may hardly grow.
local growing = require "growing"
local measure = require "measure"

local function resident()
  local file = assert(io.open("/proc/self/status"))
  local text = file:read "*a"
  file:close()
  return tonumber(text:match "VmRSS:%s+(%d+)") * 1024
end

local function stages(kind, n)
  local before = resident()
  local exe = growing.live(kind, n, function(name, f)
    collectgarbage()
    local from = measure.now()
    f()
    measure.record(("W11 %s %s %.0e"):format(kind, name, n), "", "us/node",
      {(measure.now() - from) / n * 1e6})
  end)
  measure.record(("W11 %s memory %.0e"):format(kind, n), "", "bytes/node",
    {math.max(resident() - before, 0) / n})
  exe:free()
end

return function()
  for _, kind in ipairs{"chain", "tree", "inputs", "parameters"} do
    for _, n in ipairs{1e3, 1e4, 1e5} do
      stages(kind, n)
    end
  end
end
