-- Outputs computed from losses (native/pass/gradient.c): losses ignore their head gradients, so
-- such outputs need no head gradient.

local ty = require "tycho"

local data = ty.sym.Variable("data")

local function gradient(net, heads)
  local exe = net:simple_bind{ ctx = ty.cpu(), data = { 2, 3 } }
  exe.arg_dict.data[":"] = ty.nd.array{ { 1, 2, 3 }, { 0.5, 0.25, 0 } }
  exe:forward(true)
  exe:backward(heads)
  return exe.grad_dict.data:totable()
end

local LOSSES = {
  SoftmaxOutput = function()
    return ty.sym.SoftmaxOutput{ data, name = "loss" }
  end,
  LinearRegressionOutput = function()
    return ty.sym.LinearRegressionOutput{ data, name = "loss" }
  end,
  LogisticRegressionOutput = function()
    return ty.sym.LogisticRegressionOutput{ data, name = "loss" }
  end,
  MAERegressionOutput = function()
    return ty.sym.MAERegressionOutput{ data, name = "loss" }
  end,
  MakeLoss = function()
    return ty.sym.MakeLoss{ ty.sym.square(data), grad_scale = 3 }
  end,
}

local COMPUTED = {
  Reshape = function(x)
    return ty.sym.Reshape{ x, shape = { 3, 2 } }
  end,
  slice = function(x)
    return ty.sym.slice{ x, begin = { 0, 0 }, ["end"] = { 1, 2 } }
  end,
  mean = function(x)
    return ty.sym.mean(x)
  end,
  identity = function(x)
    return ty.sym.identity(x)
  end,
  ["2 *"] = function(x)
    return 2 * x
  end,
  ["a chain"] = function(x)
    return ty.sym.sum(ty.sym.square(ty.sym.Reshape{ x, shape = { -1 } }))
  end,
}

describe("backward without heads", function()
  for loss, make in pairs(LOSSES) do
    for what, computed in pairs(COMPUTED) do
      it(("takes %s of %s"):format(what, loss), function()
        local want = gradient(make())
        local size = 0
        for _, row in ipairs(want) do
          for _, x in ipairs(row) do
            size = size + math.abs(x)
          end
        end
        assert.is_true(size > 0.1)
        assert.same(want, gradient(computed(make())))
      end)
    end
  end

  it("takes groups of such outputs, as detectors have them", function()
    local loss = LOSSES.SoftmaxOutput()
    local net = ty.sym.Group{ ty.sym.Reshape{ loss, shape = { 3, 2 } }, ty.sym.BlockGrad(loss) }
    assert.same(gradient(loss), gradient(net))
  end)

  it("still asks for the head of what reaches a variable beside the loss", function()
    local net = LOSSES.SoftmaxOutput() + data
    local ok, e = pcall(gradient, net)
    assert.is_false(ok)
    assert.matches("is no loss, so its gradient must be given", tostring(e), 1, true)
    local sum = gradient(net, { ty.nd.ones{ 2, 3 } })
    local alone = gradient(LOSSES.SoftmaxOutput())
    assert.is_true(math.abs(sum[1][1] - alone[1][1] - 1) < 1e-6)
  end)
end)
