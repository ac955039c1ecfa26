--- The networks of the benchmark, each as a symbol with a softmax output.
-- Shapes are those of one example; `batch` is added in front. Parameter names are the same in every peer.
local ty = require "tycho"

local nets = {}

local function fc(x, n, name) return ty.sym.FullyConnected{data = x, num_hidden = n, name = name} end
local function act(x, kind) return ty.sym.Activation{data = x, act_type = kind} end
local function conv(x, n, k, name) return ty.sym.Convolution{data = x, num_filter = n, kernel = {k, k}, name = name} end
local function pool(x) return ty.sym.Pooling{data = x, kernel = {2, 2}, stride = {2, 2}, pool_type = "max"} end
local function loss(x) return ty.sym.SoftmaxOutput{data = x, label = ty.sym.Variable("label"), name = "softmax"} end

--- 784-128-64-10.
function nets.mlp()
  local x = act(fc(ty.sym.Variable("data"), 128, "fc1"), "relu")
  x = act(fc(x, 64, "fc2"), "relu")
  return loss(fc(x, 10, "fc3")), {784}, 10
end

--- 20 and 50 filters of 5x5 with max pooling, 500 hidden units.
function nets.lenet()
  local x = pool(act(conv(ty.sym.Variable("data"), 20, 5, "conv1"), "tanh"))
  x = pool(act(conv(x, 50, 5, "conv2"), "tanh"))
  x = act(fc(ty.sym.Flatten{data = x}, 500, "fc1"), "tanh")
  return loss(fc(x, 10, "fc2")), {1, 28, 28}, 10
end

--- n times FullyConnected 32 -> 32 and relu.
function nets.deep(n)
  local x = ty.sym.Variable("data")
  for i = 1, n do x = act(fc(x, 32, "fc" .. i), "relu") end
  return x, {32}
end

--- A chain of n one-element operators that nothing fuses or merges away: every scalar differs.
function nets.chain(n)
  local x = ty.sym.Variable("data")
  for i = 1, n do x = x + i / 1024 end
  return x, {1}
end

return nets
