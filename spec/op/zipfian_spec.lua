-- rand_zipfian (runtime/lua/tycho/op/zipfian.lua) of arrays and symbols.

local ty = require "tycho"
require "spec.helper"

local RANGE = 50

local function probability(k)
  return math.log((k + 2) / (k + 1)) / math.log(RANGE + 1)
end

local function check(sampled, expected_true, expected_sampled, n)
  local seen, classes = {}, sampled:totable()
  for _, k in ipairs(classes) do
    assert.is_true(k >= 0 and k < RANGE and k == math.floor(k))
    seen[k] = (seen[k] or 0) + 1
  end
  for k = 0, 4 do                                        -- six standard deviations
    local p = probability(k)
    assert.is_true(math.abs(seen[k] - n * p) < 6 * math.sqrt(n * p * (1 - p)))
  end
  assert.near({ n * probability(3), n * probability(0) }, expected_true, 1e-9)
  assert.near(n * probability(classes[1]), expected_sampled[0]:asscalar(), 1e-9)
  assert.same({ "int64", "float64", "float64" },
    { sampled.dtype, expected_true.dtype, expected_sampled.dtype })
end

describe("rand_zipfian", function()
  local n = 20000

  it("draws frequent classes often", function()
    ty.random.seed(3)
    local a, b, c = ty.nd.contrib.rand_zipfian(ty.nd.array{ 3, 0 }, n, RANGE)
    check(a, b, c, n)
  end)

  it("does so in a network", function()
    ty.random.seed(4)
    local a, b, c = ty.sym.contrib.rand_zipfian{ ty.sym.Variable("classes"), num_sampled = n,
      range_max = RANGE }
    local exe = ty.sym.Group{ a, b, c }:simple_bind{ ctx = ty.cpu(), classes = { 2 } }
    local outs = exe:forward{ classes = ty.nd.array{ 3, 0 } }
    check(outs[1], outs[2], outs[3], n)
  end)

  it("says what it needs", function()
    assert.raises("value", ty.nd.contrib.rand_zipfian, ty.nd.ones(1), 0, RANGE)
    assert.raises("type", ty.nd.contrib.rand_zipfian, 3, 1, RANGE)
  end)
end)
