-- What a network costs grows with its nodes: eight times as many take at most thirty times the
-- processor's time, stage by stage, the least of three tries (n log n: eleven times, n^2: 64).
-- GROWTH=1 prints the times. Per node, up to 100,000 of them: W11 of make bench.

local ty = require "tycho"

local V = ty.sym.Variable
local SMALL, TIMES, TRIES, MOST, LEAST = 800, 8, 3, 30, 0.01

local NETS = {
  chain = function(n)
    local x = V("data")
    for _ = 1, n do x = ty.sym.relu{ x } end
    return x
  end,
  tree = function(n)
    local data, level = V("data"), {}
    for i = 1, n / 2 do level[i] = data * i end          -- leaves that are equal would be merged
    while #level > 1 do
      local above = {}
      for i = 1, #level, 2 do
        above[#above + 1] = level[i + 1] and level[i] + level[i + 1] or level[i]
      end
      level = above
    end
    return level[1]
  end,
  ["operator with many inputs"] = function(n)
    local data, list = V("data"), {}
    for i = 1, n do list[i] = data * i end
    return ty.sym.add_n(unpack(list, 1, n))
  end,
  ["product of many parameters"] = function(n)
    local x = V("data")
    for i = 1, n / 2 do x = x * V("w" .. i) end
    return x
  end,
}

local STAGES = { "compose", "write", "read", "infer", "bind", "first step" }

-- Seconds by stage.
local function seconds(make, n)
  local net, text, exe
  local steps = { function() net = make(n) end, function() text = net:tojson() end,
    function() ty.sym.load_json(text) end, function() net:infer_shape{ data = { 2 } } end,
    function() exe = net:simple_bind{ ctx = ty.cpu(), data = { 2 } } end,
    function()
      exe:forward{ is_train = true }
      exe:backward(ty.nd.ones{ 2 })
      ty.nd.waitall()
    end }
  local list = {}
  for i, step in ipairs(steps) do
    collectgarbage()
    local from = os.clock()
    step()
    list[i] = os.clock() - from
  end
  exe:free()
  return list
end

local function least(make, n)
  local list = seconds(make, n)
  for _ = 2, TRIES do
    for i, s in ipairs(seconds(make, n)) do
      list[i] = math.min(list[i], s)
    end
  end
  return list
end

describe("the time that a network takes", function()
  for name, make in pairs(NETS) do
    it("grows with its nodes: a " .. name .. " #slow", function()
      local small, large = least(make, SMALL), least(make, SMALL * TIMES)
      for i, stage in ipairs(STAGES) do
        if os.getenv("GROWTH") then print(name, stage, small[i], large[i]) end
        assert.is_true(large[i] < MOST * math.max(small[i], LEAST),
          ("%s: %.4f s and, for eight times as many nodes, %.4f s"):format(stage, small[i],
            large[i]))
      end
    end)
  end
end)
