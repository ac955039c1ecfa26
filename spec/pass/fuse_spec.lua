-- Fusion (native/pass/fuse.c, schedule.c): groups whose last member only hands bytes on.

local ty = require "tycho"

local V = ty.sym.Variable

-- Returns a difference whose second gradient is unused: of its gradient node only the view is left.
local function loss()
  local a = ty.sym.FullyConnected{ V("x"), num_hidden = 2, no_bias = true, name = "fc" }
  return ty.sym.MakeLoss{ ty.sym.square((a - V("b")) * V("m")) }
end

describe("a group that ends with a view", function()
  it("is computed", function()
    local e = loss():simple_bind{ ctx = ty.cpu(), x = { 1, 2 }, grad_req = { fc_weight = "write" } }
    e.arg_dict.x[":"], e.arg_dict.fc_weight[":"] = { { 1, 2 } }, { { 1, 0 }, { 0, 1 } }
    e.arg_dict.b[":"], e.arg_dict.m[":"] = { { 3, 5 } }, { { 2, 1 } }
    e:forward(true)
    e:backward()
    -- d/da = 2 (a - b) m^2 = (-16, -6)
    assert.same({ { -16, -32 }, { -6, -12 } }, e.grad_dict.fc_weight:totable())
  end)
end)

describe("a gradient that a difference passes on", function()
  it("reaches a kernel after the pointwise program", function()
    local e = V("m") * (ty.sym.Concat{ V("a"), V("b"), dim = 1 } - V("t"))
    local exe = e:simple_bind{ ctx = ty.cpu(), a = { 2, 3 }, b = { 2, 3 }, m = { 2, 6 },
      t = { 2, 6 }, grad_req = { a = "write", b = "write", m = "null", t = "null" } }
    exe.arg_dict.m[":"] = ty.nd.arange(12):reshape{ 2, 6 }
    exe:forward{ is_train = true }
    exe:backward{ ty.nd.ones{ 2, 6 } }
    assert.same({ { 0, 1, 2 }, { 6, 7, 8 } }, exe.grad_dict.a:totable())
    assert.same({ { 3, 4, 5 }, { 9, 10, 11 } }, exe.grad_dict.b:totable())
  end)
end)
