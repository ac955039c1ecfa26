-- Names in `grad_req` that no argument has are refused alike wherever a request can be given.

local ty = require "tycho"

local FC = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 2, name = "fc" }
local LOSS = ty.sym.SoftmaxOutput{ FC, name = "softmax" }

local BINDINGS = {
  Module = function(grad_req)
    local mod = ty.mod.Module{ symbol = LOSS }
    mod:bind{ data_shapes = { { "data", { 2, 3 } } }, grad_req = grad_req,
      label_shapes = { { "softmax_label", { 2 } } } }
  end,
  bind = function(grad_req)
    local args = { data = ty.nd.ones{ 2, 3 }, fc_weight = ty.nd.ones{ 2, 3 },
      fc_bias = ty.nd.ones(2) }
    return FC:bind{ ctx = ty.cpu(), args = args, args_grad = { fc_weight = ty.nd.zeros{ 2, 3 } },
      grad_req = grad_req }
  end,
  simple_bind = function(grad_req)
    return FC:simple_bind{ ctx = ty.cpu(), data = { 2, 3 }, grad_req = grad_req }
  end,
}

describe("grad_req", function()
  for name, bind in pairs(BINDINGS) do
    it("of " .. name .. " takes names of arguments only", function()
      bind{ fc_weight = "write", data = "null" }
      local ok, e = pcall(bind, { fc_wieght = "write" })
      assert.is_false(ok)
      assert.equal("name", e.code)
      assert.equal("fc_wieght", e.argument)
      assert.falsy(tostring(e):find("DataParallel", 1, true))
      assert.equal("fc_weight", e.candidates[1])
    end)
  end

  it("of pairs goes by name, too", function()
    local e = BINDINGS.simple_bind{ { "fc_bias", "add" } }
    assert.is_nil(e.grad_dict.fc_weight)
    assert.is_not_nil(e.grad_dict.fc_bias)
    assert.error(function() BINDINGS.simple_bind{ { "fc_bais", "add" } } end)
  end)
end)
