-- where with numbers for its choices (runtime/lua/tycho/op/where.lua); numbers where operators take
-- arrays alone.
local ty = require "tycho"
require "spec.helper"

local nd, sym, V = ty.nd, ty.sym, ty.sym.Variable

local function refused(code, words, f, ...)
  local e = assert.raises(code, f, ...)
  assert.is_truthy(tostring(e):find(words, 1, true), tostring(e))
end

describe("where", function()
  it("of arrays takes numbers", function()
    local c, x = nd.array{ 1, 0, 1 }, nd.array{ 5, 6, 7 }
    assert.same({ 5, 0, 7 }, nd.where(c, x, 0):totable())
    assert.same({ 2, 6, 2 }, nd.where(c, 2, x):totable())
    assert.same({ 5, 0, 7 }, nd.where{ c, x, 0 }:totable())
    assert.same({ 5, -1, 7 }, nd.where{ condition = c, x = x, y = -1 }:totable())
    assert.same({ 5, 0, 7 }, c:where(x, 0):totable())
    assert.same({ 2, 6, 2 }, c:where{ 2, x }:totable())
    assert.same({ 2, 6, 2 }, c:where{ x = 2, y = x }:totable())
    assert.same({ 5, 8, 7 }, c:where(x, nd.array{ 9, 8, 7 }):totable())
    local out = nd.zeros(3)
    assert.equal(out, nd.where(c, x, 9, { out = out }))
    assert.same({ 5, 9, 7 }, out:totable())
  end)

  it("gives the type of the array, or float32", function()
    local c = nd.array({ 1, 0 }, { dtype = "bool" })
    local y = nd.where(c, nd.array({ 3, 4 }, { dtype = "int32" }), 7)
    assert.equal("int32", y.dtype)
    assert.same({ 3, 7 }, y:totable())
    y = nd.where(c, 0.5, -2)
    assert.equal("float32", y.dtype)
    assert.same({ 0.5, -2 }, y:totable())
    -- a row of x for each element of the condition
    assert.same({ { 1, 2 }, { 0, 0 } }, nd.where(c, nd.array{ { 1, 2 }, { 3, 4 } }, 0):totable())
  end)

  it("of symbols takes numbers, and gradients pass", function()
    local c, x = nd.array{ 1, 0, 1 }, nd.array{ 5, 0 / 0, 7 }
    local cases = {
      { sym.where(V "c", V "x", 0), { 5, 0, 7 }, { 1, 0, 1 } },
      { sym.where{ condition = V "c", x = V "x", y = -2 }, { 5, -2, 7 }, { 1, 0, 1 } },
      { sym.where(V "c", 2, -2) + 0 * V "c", { 2, -2, 2 } },
    }
    for _, case in ipairs(cases) do
      local arrays = { c = c, x = case[3] and x or nil }
      local grads = { x = case[3] and nd.zeros(3) or nil }
      local e = case[1]:bind{ ctx = ty.current_context(), args = arrays, args_grad = grads,
        grad_req = case[3] and { c = "null", x = "write" } or "null" }
      assert.same(case[2], e:forward{ is_train = true }[1]:totable())
      if case[3] then
        e:backward(nd.ones(3))
        assert.same(case[3], grads.x:totable())
      end
    end
    assert.equal("mask", sym.where(V "c", V "x", 0, { name = "mask" }).name)
  end)

  it("names what it cannot take", function()
    local c, x = nd.array{ 1, 0 }, nd.array{ 5, 6 }
    refused("type", "bad input 'y'", nd.where, c, x, "a")
    refused("type", "'condition'", nd.where, 1, x, 0)
    refused("value", "input 'y' is missing", nd.where, c, x)
    refused("shape", "where", nd.where, c, nd.zeros(3), 0)
  end)
end)

describe("a number for an array", function()
  it("is refused with the way that takes it", function()
    local x = nd.array{ 1 }
    refused("type", "bad input 'rhs'; with a number: x + 1", nd.broadcast_add, x, 1)
    refused("type", "bad input 'rhs'; with a number: x / 1", nd.elemwise_div, x, 1)
    refused("type", "with a number: ty.nd.maximum(x, 1)", nd.broadcast_maximum, x, 1)
    refused("type", "with a number: ty.sym.greater(x, 1)", sym.broadcast_greater, V "x", 1)
    refused("type", "the operator takes data and has no parameters", nd.relu, x, 1)
    refused("type", "bad input 'y'", nd.where, x, x, true)
  end)
end)
