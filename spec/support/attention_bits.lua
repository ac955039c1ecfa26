-- Prints checksums of contrib.attention and its gradient, with dropout, under one seed;
-- spec/operators/attention_spec.lua compares runs with different numbers of threads.
package.path = "./?.lua;" .. package.path
local ty = require "tycho"
local arrays = require "spec.support.arrays"

local q, var = ty.random.normal{ shape = { 1, 600, 32 } }, ty.sym.Variable("q")
for _, window in ipairs{ 0, 100 } do
  ty.random.seed(5)
  local net = ty.sym.contrib.attention{ var, var * 2, var, heads = 2, causal = true, dropout = 0.3,
    window = window }
  local exe = net:bind{ ctx = ty.cpu(), args = { q = q }, args_grad = { q = ty.nd.zeros(q.shape) } }
  exe:forward{ is_train = true }
  exe:backward(q)
  print(arrays.sha256(arrays.bytes(exe.outputs[1])), arrays.sha256(arrays.bytes(exe.grad_dict.q)))
end
