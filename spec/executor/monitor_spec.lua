-- What monitors report: nodes are known by what they are, never by what they are called.
local ty = require "tycho"
require "spec.helper"

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
end)
