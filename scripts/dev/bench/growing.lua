--- Networks with any number of nodes, and the stages of a network's life, to measure how time and
-- memory grow (growth.lua, spec/executor/growth_spec.lua).
local ty = require "tycho"

local V = ty.sym.Variable

local growing = {nets = {}}
local nets = growing.nets

function nets.chain(n)
  local x = V "data"
  for _ = 1, n do x = ty.sym.relu{x} end
  return x
end

-- Returns a tree of sums over n / 2 different leaves, since equal nodes would be merged.
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
  return ty.sym.add_n(list)
end

function nets.parameters(n)
  local x = V "data"
  for i = 1, n / 2 do x = x * V("w" .. i) end
  return x
end

--- Runs a network of n nodes through its stages: `stage(name, f)` calls f, which returns when its
-- work is done. Returns the executor, which the caller frees.
function growing.live(kind, n, stage)
  local net, text, exe
  stage("compose", function() net = nets[kind](n) end)
  stage("json", function() text = net:tojson() end)
  stage("parse", function() ty.sym.load_json(text):list_arguments() end)
  stage("infer", function() net:infer_shape{data = {2}} end)
  stage("bind", function() exe = net:simple_bind{ctx = ty.cpu(), data = {2}} end)
  stage("first step", function()
    exe:forward(true)
    exe:backward{ty.nd.ones{2}}
    ty.waitall()
  end)
  return exe
end

return growing
