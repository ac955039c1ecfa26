-- What asks for steps of Lua's collector.
local class = require "tycho.ndarray.class"
local gc = require "tycho.core.gc"
local ty = require "tycho"
require "spec.helper"

local nd = ty.nd

describe("the collector", function()
  local steps = 0
  gc.watch(function() steps = steps + 1 end)

  local function count_steps(f)
    local before = steps
    for _ = 1, 200 do f() end
    return steps - before
  end

  it("is asked for a step after so many bytes", function()
    if gc.stress then return end
    assert.is_true(count_steps(function() return nd.ones{ 2 ^ 18 } end) >= 5)
  end)

  it("is not asked for arrays that were freed", function()
    assert.is_true(count_steps(function() class.let_go(nd.ones{ 2 ^ 18 }) end) <= 1)
  end)

  it("is not asked for what layers make on the way", function()
    local net = ty.gluon.nn.HybridSequential()
    for _ = 1, 4 do
      net:add(ty.gluon.nn.Dense{ 64, in_units = 64, activation = "relu" })
    end
    net:initialize()
    local x = nd.ones{ 1024, 64 }
    local result
    local asked = count_steps(function()
      result = ty.autograd.record(function() return net(x) end)
    end)
    assert.equal(64, result.shape[2])
    assert.is_true(asked <= 5)                           -- 200 results of 256 KiB; all are 2 GiB
  end)
end)
