-- What a network costs grows with its nodes: eight times as many take at most thirty times the
-- processor's time, stage by stage, the least of three tries (n log n: eleven times, n^2: 64).
-- GROWTH=1 prints the times. Per node, up to 100,000 of them: W11 of make bench.

local growing = dofile("scripts/dev/bench/growing.lua")

local SMALL, TIMES, TRIES, MOST, LEAST = 800, 8, 3, 30, 0.01

-- Seconds of the processor by stage, the least of some tries; the stages in order.
local function least(kind, n)
  local seconds, order = {}, {}
  for _ = 1, TRIES do
    growing.live(kind, n, function(name, f)
      collectgarbage()
      local from = os.clock()
      f()
      order[#order + 1] = not seconds[name] and name or nil
      seconds[name] = math.min(seconds[name] or math.huge, os.clock() - from)
    end):free()
  end
  return seconds, order
end

describe("the time that a network takes", function()
  for _, kind in ipairs{ "chain", "tree", "inputs", "parameters" } do
    it("grows with its nodes: " .. kind .. " #slow", function()
      local small, stages = least(kind, SMALL)
      local large = least(kind, SMALL * TIMES)
      for _, stage in ipairs(stages) do
        if os.getenv("GROWTH") then print(kind, stage, small[stage], large[stage]) end
        assert.is_true(large[stage] < MOST * math.max(small[stage], LEAST),
          ("%s: %.4f s and, for eight times as many nodes, %.4f s"):format(stage, small[stage],
            large[stage]))
      end
    end)
  end
end)
