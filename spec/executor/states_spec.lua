-- When arguments and auxiliary states move (native/pass/gradient.c, operators/nn/batch_norm.c).

local ty = require "tycho"

local data = ty.sym.Variable("data")
local ROWS = { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 }, { 1, 1, 1 } }

local function bn(x)
  return ty.sym.BatchNorm{ x, name = "bn" }
end

-- Runs one training step; returns the executor.
local function step(net, grad_req)
  local exe = net:simple_bind{ ctx = ty.cpu(), data = { 4, 3 }, grad_req = grad_req or "write" }
  exe.arg_dict.data[":"] = ty.nd.array(ROWS)
  exe.arg_dict.bn_gamma[":"] = 2
  exe:forward(true)
  exe:backward()
  return exe
end

local function moved(net, grad_req)
  local mean = step(net, grad_req).aux_dict.bn_moving_mean:totable()
  for k, want in ipairs{ 0.325, 0.4, 0.475 } do
    if math.abs(mean[k] - want) > 1e-6 then
      assert.same({ 0, 0, 0 }, mean)
      return false
    end
  end
  return true
end

describe("a fixed gamma", function()
  it("reads as 1 right after forward, where its gradient runs", function()
    for _ = 1, 20 do
      local net = ty.sym.MakeLoss(bn(ty.sym.FullyConnected{ data, num_hidden = 64 }))
      local exe = net:simple_bind{ ctx = ty.cpu(), data = { 512, 64 } }
      exe.arg_dict.bn_gamma[":"] = 2
      exe:forward(true)
      local gamma = exe.arg_dict.bn_gamma:totable()
      assert.equal(1, gamma[1])
      assert.equal(1, gamma[64])
    end
  end)

  it("is left alone off the gradient's path", function()
    local net = ty.sym.MakeLoss(ty.sym.FullyConnected{ bn(data), num_hidden = 2, name = "fc" })
    local exe = step(net, { fc_weight = "write" })
    assert.same({ 2, 2, 2 }, exe.arg_dict.bn_gamma:totable())
  end)

  it("is left alone where it is not fixed", function()
    local net = ty.sym.MakeLoss(ty.sym.BatchNorm{ data, fix_gamma = false, name = "bn" })
    assert.same({ 2, 2, 2 }, step(net).arg_dict.bn_gamma:totable())
  end)
end)

describe("BatchNorm's moving statistics", function()
  for what, cut in pairs{
    BlockGrad = function(x)
      return ty.sym.BlockGrad(x)
    end,
    argmax = function(x)
      return ty.sym.argmax{ x, axis = 1 }
    end,
    sign = function(x)
      return ty.sym.sign(x)
    end,
    ["a comparison"] = function(x)
      return x:gt(0)
    end,
    ["BlockGrad after Activation"] = function(x)
      return ty.sym.BlockGrad(ty.sym.Activation{ x, act_type = "relu" })
    end,
    ["a frozen trunk"] = function(x)
      return ty.sym.MakeLoss(ty.sym.FullyConnected{ ty.sym.BlockGrad(x), num_hidden = 2 })
    end,
  } do
    it("move although the gradient is cut by " .. what, function()
      local exe = step(cut(bn(data)))
      assert.same({ { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 } },
        exe.grad_dict.data:totable())
      assert.is_true(moved(cut(bn(data))))
    end)
  end

  it("stay where BatchNorm's gradient is unused", function()
    local req = { data = "write", bn_gamma = "null", bn_beta = "null", svm_label = "null" }
    local svm = ty.sym.SVMOutput{ data, name = "svm" }
    assert.is_false(moved(ty.sym.MakeLoss(bn(svm)), req))
    assert.is_false(moved(ty.sym.MakeLoss(bn(ty.sym.identity(svm))), req))
    assert.is_true(moved(ty.sym.MakeLoss(bn(svm)), {
      data = "write", bn_gamma = "write", bn_beta = "null", svm_label = "null" }))
  end)
end)
