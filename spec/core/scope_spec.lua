-- Scopes that coroutines enter: what ends late ends no other scope in its place.

local ty = require "tycho"

local function device_id()
  return ty.current_context().device_id
end

describe("a scope that a coroutine ends", function()
  it("after others ended it leaves those that began meanwhile", function()
    local inside = coroutine.wrap(function()
      ty.cpu(1):with(function() coroutine.yield() end)
      return "done"
    end)
    ty.cpu(2):with(inside)                               -- ends what the coroutine began, too
    assert.equal(0, device_id())
    ty.cpu(3):with(function()
      ty.cpu(4):with(function()
        assert.equal("done", inside())
        assert.equal(4, device_id())
      end)
      assert.equal(3, device_id())
    end)
    assert.equal(0, device_id())
  end)

  it("before others ends those that began in it", function()
    local inside = coroutine.wrap(function()
      ty.AttrScope{ mood = "a" }:with(function() coroutine.yield() end)
    end)
    inside()
    assert.equal("a", ty.sym.Variable("v"):attr("mood"))
    ty.AttrScope{ mood = "b" }:enter()
    inside()
    assert.is_nil(ty.sym.Variable("v"):attr("mood"))
  end)
end)
