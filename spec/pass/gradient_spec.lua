-- Which gradients are computed (native/pass/gradient.c).

local ty = require "tycho"

local V = ty.sym.Variable
local ROWS = { { 0.3, 0.6 }, { 0.5, 0.2 } }

-- Adds 1 to the gradient that comes, and notes the largest head gradient that it was called with.
local seen
local Push, PushProp = ty.operator.CustomOp:extend("Push"),
  ty.operator.CustomOpProp:extend("PushProp")
function Push:forward(_, req, ins, outs)
  self:assign(outs[1], req[1], ins[1])
end
function Push:backward(req, heads, _, _, grads)
  seen = ty.nd.max(ty.nd.abs(heads[1])):asscalar()
  self:assign(grads[1], req[1], heads[1] + 1)
end
function PushProp:init() PushProp.super.init(self, { need_top_grad = true }) end
function PushProp.create_operator() return Push() end
ty.operator.register("spec_push", PushProp)

local own = {
  Custom = function(x) return ty.sym.Custom{ x, op_type = "spec_push" } end,
  IdentityAttachKLSparseReg = function(x)
    return ty.sym.IdentityAttachKLSparseReg{ x, name = "kl", penalty = 0.01 }
  end,
}

-- The gradient of x without a head gradient: what the operator adds by itself.
local alone = {
  Custom = function() return { { 1, 1 }, { 1, 1 } } end,
  IdentityAttachKLSparseReg = function()
    local slope = {}
    for unit = 1, 2 do
      local average = 0.1 * (ROWS[1][unit] + ROWS[2][unit]) / 2
      slope[unit] = 0.01 * (-0.1 / average + 0.9 / (1 - average))
    end
    return { slope, { slope[1], slope[2] } }
  end,
}

-- What gives no gradient to the node before it, or none that counts.
local stops = {
  BlockGrad = ty.sym.BlockGrad,
  argmax = function(x) return ty.sym.argmax{ x, axis = 1 } end,
  argsort = ty.sym.argsort,
  round = ty.sym.round,
  sign = ty.sym.sign,
  ones_like = ty.sym.ones_like,
  shape_array = ty.sym.shape_array,
  ["a comparison"] = function(x) return x:gt(0.4) end,
  ["a second stop"] = function(x) return ty.sym.BlockGrad(ty.sym.sqrt(x)) end,
  ["a stop after a product"] = function(x)
    return ty.sym.round(ty.sym.FullyConnected{ x, num_hidden = 2, no_bias = true, name = "fc" })
  end,
}

local function gradient(net, grad_req)
  local exe = net:simple_bind{ ctx = ty.cpu(), x = { 2, 2 }, grad_req = grad_req or "write" }
  exe.arg_dict.x[":"] = ty.nd.array(ROWS)
  exe:forward(true)
  local heads = {}
  for i, out in ipairs(exe.outputs) do
    heads[i] = ty.nd.ones_like(out)
  end
  exe:backward(heads)
  return exe.grad_dict.x:totable(), exe
end

local function near(want, got)
  for i, row in ipairs(want) do
    for k, v in ipairs(row) do
      assert.is_near(v, got[i][k], 1e-6)
    end
  end
end

describe("losses of the same inputs", function()
  local x, label, classes = V "x", V "label", V "classes"

  local function find_gradient(head)
    local exe = head:bind{ ctx = ty.cpu(), args = { x = ty.nd.array(ROWS),
      label = ty.nd.ones{ 2, 2 }, classes = ty.nd.array{ 0, 1 } },
      args_grad = { x = ty.nd.zeros{ 2, 2 } } }
    exe:forward(true)
    exe:backward()
    return exe.grad_dict.x
  end

  local losses = {
    MakeLoss = function() return ty.sym.MakeLoss(x * x) end,
    SVMOutput = function() return ty.sym.SVMOutput(x * 2, classes) end,
    SoftmaxOutput = function() return ty.sym.SoftmaxOutput(x * 2, classes) end,
    LinearRegressionOutput = function() return ty.sym.LinearRegressionOutput(x * 2, label) end,
    LogisticRegressionOutput = function() return ty.sym.LogisticRegressionOutput(x * 2, label) end,
    MAERegressionOutput = function() return ty.sym.MAERegressionOutput(x * 2, label) end,
  }
  for name, make in pairs(losses) do
    it("each add their gradient: " .. name, function()
      local once = find_gradient(make())
      assert.is_true(once:abs():sum():asscalar() > 0)
      assert.near(once * 2, find_gradient(ty.sym.Group{ make(), make() }))
      assert.near(once * 3, find_gradient(ty.sym.Group{ make(), make(), make() }))
      assert.near(once * 2, find_gradient(ty.sym.MakeLoss(make() + make())))
    end)
  end
end)


describe("a gradient with a part of its own", function()
  for name, make in pairs(own) do
    for stop, cut in pairs(stops) do
      it(("of %s is computed below %s"):format(name, stop), function()
        near(alone[name](), (gradient(cut(make(V("x"))))))
      end)
    end

    it(("of %s reaches what comes before it"):format(name), function()
      local got = gradient(ty.sym.BlockGrad(make(V("x") * 3)))
      local want = name == "Custom" and { { 3, 3 }, { 3, 3 } }
      if want then
        near(want, got)
      else
        assert.is_true(math.abs(got[1][1]) > 1e-4)
      end
    end)

    it(("of %s adds to another path's"):format(name), function()
      local x = V("x")
      local got = gradient(ty.sym.Group{ ty.sym.BlockGrad(make(x)), x * 2 })
      local want = alone[name]()
      for _, row in ipairs(want) do
        row[1], row[2] = row[1] + 2, row[2] + 2
      end
      near(want, got)
    end)

    it(("of %s is computed once where a part of its readers is stopped"):format(name), function()
      local y = make(V("x"))
      local got = gradient(ty.sym.Group{ ty.sym.BlockGrad(y), y })
      local want = alone[name]()
      for _, row in ipairs(want) do
        row[1], row[2] = row[1] + 1, row[2] + 1
      end
      near(want, got)
    end)
  end

  it("is called with zeros", function()
    seen = nil
    gradient(ty.sym.BlockGrad(own.Custom(V("x"))))
    assert.equal(0, seen)
  end)

  it("is not computed where no gradient is asked for", function()
    seen = nil
    local x = V("x")
    local y = own.Custom(ty.sym.zeros_like(ty.sym.BlockGrad(x)))
    gradient(ty.sym.Group{ ty.sym.BlockGrad(y), x })
    assert.is_nil(seen)
  end)
end)
