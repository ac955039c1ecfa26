-- Seeds of trials: they follow the operator and which of its lines it is, never where the line
-- is in the table.
local trials = require "spec.support.trials"
require "spec.helper"

local function seeds(cases)
  local by_line = {}
  for line, key in trials.lines(cases) do by_line[line] = trials.seed("gradient", key) end
  return by_line
end

describe("seeds of trials", function()
  local sum, first, second, tile = {"sum"}, {"Pooling"}, {"Pooling"}, {"tile"}
  local before = seeds{sum, first, second, tile}

  it("differ from line to line", function()
    local seen = {}
    for _, seed in pairs(before) do
      assert.is_nil(seen[seed])
      seen[seed] = true
    end
    assert.are_not.equal(trials.seed("ways", "sum 1", 1), trials.seed("ways", "sum 1", 2))
    assert.are_not.equal(trials.seed("ways", "sum 1", 1), trials.seed("plans", "sum 1", 1))
  end)

  it("stay as they were when a line is added elsewhere, or lines change places", function()
    local after = seeds{{"relu"}, sum, first, {"exp"}, second, tile}
    local moved = seeds{tile, first, sum, second}
    for line, seed in pairs(before) do
      assert.equal(seed, after[line])
      assert.equal(seed, moved[line])
    end
  end)

  it("begin with numbers far apart", function()
    local low, high = 1, 0
    for k = 1, 20 do
      local u = trials.random(trials.seed("gradient", "sum 1", k))()
      low, high = math.min(low, u), math.max(high, u)
    end
    assert.is_true(high - low > 0.5)
  end)
end)
