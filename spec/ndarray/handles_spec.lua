-- When the memory of arrays that a script has dropped is freed: at the end of a cycle of the
-- collector, by whatever way it ends, and once.
local ffi = require "ffi"
local ty = require "tycho"
local gc = require "tycho.core.gc"
local shell = require "spec.support.shell"
require "spec.helper"

local nd = ty.nd
local MANY = gc.stress and 200 or 20000                  -- more than there are slots at first

local function count_live()
  ty.nd.waitall()
  return ty.live().tensors
end

local function collect()
  collectgarbage()
  collectgarbage()
end

describe("an array that is dropped", function()
  local before

  before_each(function()
    collect()
    before = count_live()
  end)

  it("is freed by a collection", function()
    local list = {}
    for i = 1, 100 do
      list[i] = nd.ones{ 3 }
    end
    assert.equal(before + 100, count_live())
    assert.same({ 1, 1, 1 }, list[100]:totable())
    list = nil                                           -- luacheck: ignore
    collect()
    assert.equal(before, count_live())
  end)

  it("is freed without one, where many are made", function()
    -- a cycle is asked for after an array for 256 bytes of Lua's heap, or so many arrays
    local bound = 2 * math.max(8192, collectgarbage("count") * 1024 / 256)
    local x, most = nd.ones{ 4 }, 0
    for i = 1, 10 * MANY do
      local _ = x + 1
      if i % 1000 == 0 then
        most = math.max(most, ty.live().tensors)
      end
    end
    assert.is_true(most - before < bound, most)
  end)

  it("is freed once, also with free before", function()
    for _ = 1, 3 do
      local list = {}
      for i = 1, 300 do
        list[i] = nd.ones{ 3 }
        if i % 3 == 0 then
          list[i]:free()
        end
      end
      assert.equal(before + 200, count_live())
      collect()
      for i = 1, 300, 3 do
        assert.same({ 1, 1, 1 }, list[i]:totable())
        list[i]:free()
        list[i]:free()
      end
      assert.equal(before + 100, count_live())
      list = nil                                         -- luacheck: ignore
      collect()
      assert.equal(before, count_live())
    end
  end)

  it("lives as long as its handle, and its views", function()
    local x = nd.array{ 1, 2, 3, 4 }
    local handle, view = x.handle, x:reshape{ 2, 2 }
    x = nil                                              -- luacheck: ignore
    collect()
    assert.equal(before + 2, count_live())
    assert.same({ { 1, 2 }, { 3, 4 } }, view:totable())
    assert.truthy(handle ~= nil)
    handle = nil                                         -- luacheck: ignore
    collect()
    assert.equal(before + 1, count_live())
    assert.same({ { 1, 2 }, { 3, 4 } }, view:totable())
  end)

  it("is freed while others live, in any number", function()
    local list = {}
    for i = 1, MANY do
      list[i] = nd.full{ { 2 }, i }
    end
    for i = 1, MANY, 2 do
      list[i] = false
    end
    collect()
    assert.equal(before + MANY / 2, count_live())
    for i = 1, MANY, 2 do
      list[i] = nd.full{ { 2 }, -i }
    end
    for i = 1, MANY do
      assert.same(i % 2 == 0 and { i, i } or { -i, -i }, list[i]:totable())
    end
    list = nil                                           -- luacheck: ignore
    collect()
    assert.equal(before, count_live())
  end)

  it("may have been seen by a finalizer", function()
    local seen = {}
    local function watch_array(i)
      local x = nd.full{ { 2 }, i }
      getmetatable(newproxy(true)).__gc = function()
        seen[#seen + 1] = (x + 1):totable()[1] - i
      end
    end
    for i = 1, 50 do
      watch_array(i)
    end
    collect()
    collect()
    assert.equal(50, #seen)
    for i = 1, 50 do
      assert.equal(1, seen[i])
    end
    assert.equal(before, count_live())
  end)

  it("is freed at any allocation", function()
    local stress = gc.stress
    gc.stress = true
    local x = nd.arange{ 6 }
    for i = 1, 50 do
      local y = (x + i):reshape{ 2, 3 }
      assert.equal(15 + 6 * i, nd.sum(y):asscalar())
    end
    gc.stress = stress
    x = nil                                              -- luacheck: ignore
    collect()
    assert.equal(before, count_live())
  end)

  -- LuaJIT may run finalizers wherever it leaves compiled code. The hook collects, which runs them,
  -- at instructions all over the calls.
  it("is freed between any two instructions", function()
    for period = 101, 112 do
      local list = {}
      jit.off()
      debug.sethook(function() collectgarbage() end, "", period)
      for i = 1, 20 do
        list[i] = nd.full{ { 2 }, i }
        nd.full{ { 2 }, 100 + i }:free()
        local _ = nd.full{ { 2 }, 200 + i }
      end
      debug.sethook()
      jit.on()
      for i = 1, 20 do
        assert.same({ i, i }, list[i]:totable())
      end
      list = nil                                         -- luacheck: ignore
      collect()
      assert.equal(before, count_live(), period)
    end
  end)

  it("is freed by the next cycle if the finalizer of one could not be called", function()
    ffi.gc(gc.cycle[1], nil)
    local list = {}                                      -- luacheck: ignore
    for i = 1, 10 do
      list[i] = nd.ones{ 3 }
    end
    list = nil                                           -- luacheck: ignore
    collect()
    assert.equal(before + 10, count_live())
    local _ = nd.ones{ 3 }
    collect()
    assert.is_true(count_live() <= before + 1)
  end)
end)

describe("the end of a Lua state", function()
  local PROGRAM = [[
    local ty = require "tycho"
    local list = {}
    for i = 1, 10000 do list[i] = ty.nd.ones{ 4 } + i end
    for i = 1, 10000, 3 do list[i] = nil end
    kept = list
    print(list[2]:totable()[1])
  ]]

  local function frees(program)
    shell.with_file(PROGRAM, function(path)
      local output, status = shell.run(program .. " " .. path)
      assert.equal("3\n0", ("%s%s"):format(output, tostring(status)))
    end)
  end

  it("frees what is left", function() frees(shell.program) end)

  it("frees what is left in plain luajit", function()
    if not shell.run("command -v luajit"):find("luajit") then return pending "no luajit" end
    frees("LUA_PATH='runtime/lua/?.lua;runtime/lua/?/init.lua;;' luajit")
  end)
end)
