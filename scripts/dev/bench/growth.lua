--- W11: time and memory per node of networks of 10^3, 10^4, 10^5 nodes, stage by stage. What a
-- stage costs may grow with n log n, so that its figure per node may hardly grow.
local measure = require "measure"
local ty = require "tycho"

local V = ty.sym.Variable

local nets = {}

function nets.chain(n)
  local x = V "data"
  for _ = 1, n do x = ty.sym.relu{x} end
  return x
end

-- leaves that differ, since equal nodes are merged
function nets.tree(n)
  local data, level = V "data", {}
  for i = 1, n / 2 do level[i] = data * i end
  while #level > 1 do
    local above = {}
    for i = 1, #level, 2 do
      above[#above + 1] = level[i + 1] and level[i] + level[i + 1] or level[i]
    end
    level = above
  end
  return level[1]
end

function nets.inputs(n)
  local data, list = V "data", {}
  for i = 1, n do list[i] = data * i end
  return ty.sym.add_n(unpack(list, 1, n))
end

function nets.parameters(n)
  local x = V "data"
  for i = 1, n / 2 do x = x * V("w" .. i) end
  return x
end

local function resident()
  local file = assert(io.open("/proc/self/status"))
  local text = file:read "*a"
  file:close()
  return tonumber(text:match "VmRSS:%s+(%d+)") * 1024
end

-- nets.inputs hands its list to a function: Lua's stack holds no more
local MOST = {inputs = 7000}

local function stages(kind, n)
  local net, text, exe, from
  local function stage(name, f)
    collectgarbage()
    from = measure.now()
    f()
    ty.waitall()
    measure.record(("W11 %s %s %.0e"):format(kind, name, n), "", "us/node",
      {(measure.now() - from) / n * 1e6})
  end
  local before = resident()
  stage("compose", function() net = nets[kind](n) end)
  stage("json", function() text = net:tojson() end)
  stage("parse", function() ty.sym.load_json(text) end)
  stage("infer", function() net:infer_shape{data = {2}} end)
  stage("bind", function() exe = net:simple_bind{ctx = ty.cpu(), data = {2}} end)
  stage("first step", function()
    exe:forward(true)
    exe:backward{ty.nd.ones{2}}
  end)
  measure.record(("W11 %s memory %.0e"):format(kind, n), "", "bytes/node",
    {math.max(resident() - before, 0) / n})
  exe:free()
end

return function()
  for _, kind in ipairs{"chain", "tree", "inputs", "parameters"} do
    for _, n in ipairs{1e3, 1e4, 1e5} do
      if n <= (MOST[kind] or n) then stages(kind, n) end
    end
  end
end
