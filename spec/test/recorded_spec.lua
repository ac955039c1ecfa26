-- Gradients of functions of arrays against central differences.

local ty = require "tycho"

local autograd, check, nd = ty.autograd, ty.test_utils.check_gradient, ty.nd


describe("check_gradient", function()
  it("accepts right gradients, of several inputs and results", function()
    local x, y = nd.array{ 0.3, -0.2, 1 }, nd.array{ 1, 2, 0.5 }
    check{ f = function(a, b) return nd.softmax(a * b), a:tanh() end, inputs = { x, y } }
    check(function(a) return a:square() end, { x:astype("float64") }, { rtol = 1e-6, atol = 1e-6 })
    assert.near({ 0.3, -0.2, 1 }, x)
    assert.is_nil(x.grad)
  end)

  it("finds wrong ones, also where their sum is right", function()
    local Bad = autograd.Function:extend("Bad")
    function Bad.forward(_, x) return x * 2 end
    function Bad.backward(_, dy) return dy * 3 end
    local ok, e = pcall(check, { f = function(x) return Bad()(x) end, inputs = { nd.array{ 1 } } })
    assert.is_false(ok)
    assert.matches("gradient of input 1", tostring(e))
    local Swapped = autograd.Function:extend("Swapped")
    function Swapped.forward(_, x) return x * 1 end
    function Swapped.backward(_, dy) return nd.flip(dy, { axis = 0 }) end
    assert.is_false(pcall(check, { f = function(x) return Swapped()(x) end,
      inputs = { nd.array{ 1, 2 } } }))
  end)

  it("needs results that are arrays, and inputs that have gradients", function()
    assert.raises("type", check, { f = function() return 3 end, inputs = { nd.ones{ 1 } } })
    assert.raises("type", check, { f = function() end, inputs = { nd.ones{ 1 } } })
    assert.raises("dtype", check, { f = function(x) return x * 1 end,
      inputs = { nd.ones{ 1 }:astype("int32") } })
  end)
end)
