-- What asks for steps of Lua's collector.
local class = require "tycho.ndarray.class"
local gc = require "tycho.core.gc"
local ffi = require "ffi"
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
    local LARGE, SMALL = 2 ^ 22, 2 ^ 17                  -- elements of an array

    local function read_percent()
      local percent = collectgarbage("setstepmul", 100)
      collectgarbage("setstepmul", percent)
      return percent
    end

    -- Makes arrays until three steps have come; returns the least percentage meanwhile.
    local function ask_for_steps(elements)
      local before, kept, least = steps, {}, math.huge
      repeat
        kept[#kept + 1] = nd.ones{ elements }
        least = math.min(least, read_percent())
      until steps > before + 2
      return least
    end

    it("takes short steps from the share that a large array asks for to the cycle's end", function()
      if gc.stress then return end
      collectgarbage()
      local long = read_percent()
      assert.is_true(ask_for_steps(LARGE) < long / 10)
      collectgarbage()
      assert.equal(long, read_percent())
    end)

    it("keeps long steps where small arrays ask for a share", function()
      if gc.stress then return end
      collectgarbage()
      local long = read_percent()
      assert.equal(long, ask_for_steps(SMALL))
    end)

    it("takes no share for results that wait, which have no memory", function()
      if gc.stress or os.getenv "TYCHO_LAZY" == "0" then return end
      local x, kept = nd.ones{ LARGE / 8 }, {} -- luacheck: ignore kept
      x:attach_grad()
      collectgarbage()
      local long, before = read_percent(), steps
      ty.autograd.record(function()
        for i = 1, 32 do kept[i] = x + i end
      end)
      assert.is_true(steps > before)
      assert.equal(long, read_percent())
    end)

    it("leaves a script's choice", function()
      if gc.stress then return end
      local long = collectgarbage("setstepmul", 300)
      assert.equal(300, ask_for_steps(LARGE))
      assert.equal(300, read_percent())
      collectgarbage()
      assert.equal(300, read_percent())
      collectgarbage("setstepmul", long)
    end)
  end)

  describe("that finds what is dropped", function()
    local function is_found(prepare)
      local kept = setmetatable({}, { __mode = "v" })
      gc.find_dropped()
      kept[1] = {}
      prepare()
      gc.find_dropped()
      return kept[1] == nil
    end

    it("does so wherever the collector is", function()
      assert.is_true(is_found(function() end))
      assert.is_true(is_found(gc.finish))
      assert.is_true(is_found(gc.begin))
      assert.is_true(is_found(function() collectgarbage() end))
      assert.is_true(is_found(function() collectgarbage("step", 200) end))
      assert.is_true(is_found(function()
        local t = {} -- luacheck: ignore t
        for i = 1, 3e5 do t[i] = { i } end
      end))
    end)

    it("frees dropped arrays", function()
      gc.find_dropped()
      ty.waitall()                       -- queued work keeps arrays
      for _ = 1, 2 do
        local before = ty.live().tensors
        for _ = 1, 10 do nd.ones{ 2 } end
        ty.waitall()
        gc.find_dropped()
        assert.equal(before, ty.live().tensors)
      end
    end)

    it("leaves finalisers to the next wait", function()
      if gc.stress then return end
      local x = nd.ones{ 2 }
      for _, wait in ipairs{ ty.waitall, nd.waitall, function() x:wait_to_read() end,
          function() x:totable() end } do
        collectgarbage()
        gc.find_dropped()
        gc.finish()                      -- between two cycles
        local done = false
        ffi.gc(ffi.new("char[1]"), function() done = true end)
        gc.find_dropped()
        assert.is_false(done)
        wait()
        assert.is_true(done)
      end
    end)
  end)
end)
