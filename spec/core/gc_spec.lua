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
    assert.is_true(count_steps(function() class.release(nd.ones{ 2 ^ 18 }) end) <= 1)
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

  describe("with a percentage of steps", function()
    local HUGE = 2 ^ 40                                  -- bytes, which ask for a step at once

    local function read_percent()
      local percent = collectgarbage("setstepmul", 100)
      collectgarbage("setstepmul", percent)
      return percent
    end

    local function ask_for_step(bytes)
      local device = nd.ones{ 1 }._device
      repeat
        local before = steps
        gc.count(bytes, device)
      until steps > before
    end

    it("takes short steps from the share that a large array asks for to the cycle's end", function()
      if gc.stress then return end
      collectgarbage()
      local long = read_percent()
      ask_for_step(HUGE)
      assert.is_true(read_percent() < long / 10)
      collectgarbage()
      assert.equal(long, read_percent())
    end)

    it("keeps long steps where small arrays ask for a share", function()
      if gc.stress then return end
      collectgarbage()
      local long = read_percent()
      ask_for_step(2 ^ 19)
      assert.equal(long, read_percent())
    end)

    it("leaves a script's choice", function()
      if gc.stress then return end
      local long = collectgarbage("setstepmul", 300)
      ask_for_step(HUGE)
      assert.equal(300, read_percent())
      collectgarbage()
      assert.equal(300, read_percent())
      collectgarbage("setstepmul", long)
    end)
  end)
end)
