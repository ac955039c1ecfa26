-- What monitors report: nodes are known by what they are, never by what they are called.
local ty = require "tycho"
require "spec.helper"

describe("an executor", function()
  it("takes a variable of the user's that is called like a head gradient", function()
    local x = ty.sym.Variable("_head_grad_0")
    local exe = ty.sym.square{ data = x }:simple_bind{ ctx = ty.cpu(), _head_grad_0 = { 2 } }
    ty.nd.array{ 2, 3 }:copyto(exe.arg_dict._head_grad_0)
    assert.same({ 4, 9 }, exe:forward(true)[1]:totable())
    exe:backward(ty.nd.ones{ 2 })
    assert.same({ 4, 6 }, exe.grad_dict._head_grad_0:totable())
  end)
end)

describe("a monitor", function()
  it("reports a node of the user's that is called like a sum of gradients", function()
    local x = ty.sym.Variable("x")
    local y = ty.sym.square{ data = x, name = "sum_grad_penalty" }
    local exe = y:simple_bind{ ctx = ty.cpu(), x = { 2, 3 } }
    local seen = {}
    exe:set_monitor_callback(function(name) seen[#seen + 1] = name end)
    exe:forward(true)
    exe:backward(ty.nd.ones{ 2, 3 })
    local names = " " .. table.concat(seen, " ") .. " "
    assert.is_truthy(names:find(" sum_grad_penalty_output ", 1, true), names)
  end)

  -- Each step is a task that touches its own arrays, not those of all steps.
  it("walks over 12,000 heads, again after their arguments have changed", function()
    local ctx = ty.cpu(0)                                -- 24,000 allocations are not for a GPU
    local heads, shapes, gradients = {}, { ctx = ctx }, {}
    for i = 1, 12000 do
      heads[i] = ty.sym.square{ ty.sym.Variable("x" .. i), name = "y" .. i }
      shapes["x" .. i], gradients[i] = { 1 }, ty.nd.ones({ 1 }, { ctx = ctx })
    end
    local exe, seen = ty.sym.Group(heads):simple_bind(shapes), 0
    exe:set_monitor_callback(function(name, value)
      seen = seen + 1
      if name == "y7_output" then assert.equal(seen > 12000 and 9 or 4, value:asscalar()) end
    end)
    exe.arg_dict.x7[":"] = 2
    exe:forward(true)
    assert.equal(12000, seen)
    exe.arg_dict.x7[":"] = 3
    exe:forward(true)
    assert.equal(24000, seen)
    exe:backward(gradients)
    assert.equal(6, exe.grad_dict.x7:asscalar())
    assert.equal(0, exe.grad_dict.x12000:asscalar())
  end)
end)
