-- The symbol of what was recorded.
local ty = require "tycho"
require "spec.helper"

local autograd, nd = ty.autograd, ty.nd

local function variable(values)
  return nd.array(values):attach_grad()
end

describe("get_symbol", function()
  it("names variables from 0 for each call, in the order in which they are met", function()
    local a, b = variable{ 1, 2 }, variable{ 3, 4 }
    local y = autograd.record(function() return b * nd.exp(a) + b end)
    for _ = 1, 2 do
      local s = autograd.get_symbol(y)
      assert.is_true(ty.is_a(s, ty.sym.Symbol))
      assert.same({ "var1", "var0" }, s:list_arguments())
    end
  end)

  it("computes what was recorded", function()
    local x, w = variable{ { 1, 2, 3 } }, variable{ { 1, 0, 1 }, { 2, 1, 0 } }
    local y = autograd.record(function()
      local h = nd.FullyConnected(x, w, { num_hidden = 2, no_bias = true })
      return nd.softmax(h, { axis = 1 }):reshape{ 2 }
    end)
    local s = autograd.get_symbol(y)
    local exe = s:bind{ ctx = ty.cpu(), args = { x, w } }
    assert.near(y, exe:forward()[1])
    assert.equal("(2,)", s:attr("shape"))
  end)

  it("knows which output of several an array is", function()
    local x = variable{ { 1, 2 }, { 3, 4 } }
    local y = autograd.record(function()
      return nd.split(x, { num_outputs = 2, axis = 0 })[2] * 2
    end)
    local exe = autograd.get_symbol(y):bind{ ctx = ty.cpu(), args = { x } }
    assert.near({ { 6, 8 } }, exe:forward()[1])
  end)

  it("has plain arrays as variables, too", function()
    local x, c = variable{ 1 }, nd.array{ 5 }
    local y = autograd.record(function() return x * c + c end)
    assert.same({ "var0", "var1" }, autograd.get_symbol(y):list_arguments())
  end)

  it("has what came through several scopes, copies, casts and parts", function()
    local x = variable{ 1, 2, 3 }
    local y = autograd.record(function() return x:astype("float64")["1:3"] end)
    local z = autograd.record(function() return (y * 2):reshape{ 2, 1 } end)
    local exe = autograd.get_symbol(z):bind{ ctx = ty.cpu(), args = { x } }
    assert.near({ { 4 }, { 6 } }, exe:forward()[1])
  end)

  it("is there of gradients", function()
    local x, w = variable{ { 1, 2 } }, variable{ { 3, 4 }, { 5, 6 } }
    local y = autograd.record(function()
      return nd.tanh(nd.FullyConnected(x * 0.1, w, { num_hidden = 2, no_bias = true })):sum()
    end)
    local dx = autograd.grad(y, x, { create_graph = true })
    local s = autograd.get_symbol(dx)
    local values = { var0 = x, var1 = w }
    local names = s:list_arguments()
    table.sort(names)
    assert.same({ "var0", "var1", "var2" }, names)       -- the third: the head gradient
    values.var2 = nd.ones{ 1, 1 }
    assert.near(dx, s:bind{ ctx = ty.cpu(), args = values }:forward()[1])
  end)

  it("refuses what was not recorded, and what was freed", function()
    local x = variable{ 1 }
    assert.raises("state", autograd.get_symbol, nd.array{ 1 })
    assert.raises("state", autograd.get_symbol, x)
    assert.raises("state", autograd.get_symbol, x * 2)
    assert.raises("type", autograd.get_symbol, 3)
    local y, z = autograd.record(function()
      local y = x * x
      return y, y * 2
    end)
    y:backward()
    assert.raises("state", autograd.get_symbol, y)
    assert.raises("state", autograd.get_symbol, z)
  end)

  it("of a long graph comes soon", function()
    local x = variable{ 1 }
    local y = autograd.record(function()
      local y = x
      for _ = 1, 3000 do
        y = y + 1
      end
      return y
    end)
    local from = os.clock()
    assert.equal(3001, #autograd.get_symbol(y):get_internals():list_outputs())
    assert.is_true(os.clock() - from < 10)
  end)
end)
