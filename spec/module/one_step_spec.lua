-- One step of gradient descent of a small network with convolutions: to first order the loss falls
-- by the rate times the square of the gradient.

local ty = require "tycho"

local BATCH, SIDE, CLASSES, RATE = 4, 8, 3, 1e-4

local function network()
  local x = ty.sym.Variable("data")
  for i = 1, 2 do
    x = ty.sym.Convolution{ data = x, kernel = { 3, 3 }, pad = { 1, 1 }, num_filter = 16,
      name = "conv" .. i }
    x = ty.sym.BatchNorm{ data = x, fix_gamma = false, name = "norm" .. i }
    x = ty.sym.Activation{ data = x, act_type = "tanh" }
  end
  x = ty.sym.Pooling{ data = x, kernel = { 2, 2 }, stride = { 2, 2 }, pool_type = "max" }
  x = ty.sym.FullyConnected{ data = x, num_hidden = CLASSES, name = "fc" }
  return ty.sym.SoftmaxOutput{ data = x, name = "softmax" }
end

local function compute_loss(exe, label)
  exe:forward{ is_train = true }
  local p, sum = exe.outputs[1]:totable(), 0
  for i, class in ipairs(label) do
    sum = sum - math.log(p[i][class + 1])
  end
  return sum
end

describe("one step", function()
  it("lowers the loss by what the gradient says", function()
    ty.random.seed(3)
    local label = { 0, 1, 2, 1 }
    local exe = network():simple_bind{ ctx = ty.cpu(), data = { BATCH, 1, SIDE, SIDE },
      softmax_label = { BATCH } }
    for name, array in pairs(exe.arg_dict) do
      if name == "softmax_label" then
        array[":"] = ty.nd.array(label)
      else
        array[":"] = ty.nd.random.normal{ scale = name == "data" and 1 or 0.2, shape = array.shape }
      end
    end
    local before, square = compute_loss(exe, label), 0
    exe:backward()
    for name, array in pairs(exe.arg_dict) do
      local g = name ~= "data" and name ~= "softmax_label" and exe.grad_dict[name]
      if g then
        square = square + (g * g):sum():asscalar()
        ty.nd.sgd_update{ array, g, lr = RATE, out = array }
      end
    end
    local fall = before - compute_loss(exe, label)
    assert.near(1, fall / (RATE * square), 0.1)
  end)
end)
