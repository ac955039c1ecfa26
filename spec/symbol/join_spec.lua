-- An operator that joins its inputs and gets one alone: mostly `unpack(list)` in front of others.

local ty = require "tycho"

describe("joining one input", function()
  local logged
  before_each(function()
    logged = {}
    ty.log.sink = function(_, text) logged[#logged + 1] = text end
  end)
  after_each(function() ty.log.sink = nil end)

  local x = { ty.nd.ones{ 2, 3 }, ty.nd.ones{ 2, 3 } }
  local s = { ty.sym.Variable("a"), ty.sym.Variable("b") }

  it("warns where unpack was cut to one", function()
    local _ = ty.sym.Concat(unpack(s), { dim = 1 })
    _ = ty.nd.stack{ unpack(x), axis = 0 }
    assert.equal(2, #logged)
    for _, text in ipairs(logged) do
      assert.truthy(text:find("unpack", 1, true), text)
    end
  end)

  it("says so once for a line", function()
    for _ = 1, 3 do
      local _ = ty.sym.Concat(unpack(s), { dim = 1 })
    end
    assert.equal(1, #logged)
    assert.truthy(logged[1]:find("join_spec.lua:%d+: ?sym.Concat"), logged[1])
  end)

  it("is fine as a list, and where several come", function()
    local _ = ty.sym.Concat({ s[1] }, { dim = 1 })
    _ = ty.sym.Concat{ dim = 1, unpack(s) }
    _ = ty.nd.concat{ { x[1] }, dim = 1 }
    _ = ty.nd.add_n(unpack(x))
    _ = ty.sym.add_n{ s[1] }
    _ = ty.sym.add_n(s[1])
    _ = ty.nd.concat{ x[1] }
    assert.is_false(pcall(ty.nd.concat, x[1], s[1]))
    assert.same({}, logged)
  end)
end)
