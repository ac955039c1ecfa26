--- Runs a dozen kernels on gpu(0), forward and backward, for compute-sanitizer.
--   compute-sanitizer tycho scripts/dev/gpu_kernels.lua
local device = require "spec.support.device"

device.name, device.is_gpu = "gpu(0)", true
device.enter()
local operators = require "spec.cuda.operators"

local wanted, count = {}, 0
for _, name in ipairs{ "elemwise_add 1", "transpose 1", "sum 1", "softmax 1", "LayerNorm 1",
  "BatchNorm 1", "Pooling 1", "Embedding 1", "sort 1", "topk both", "cumsum 1", "CTCLoss 1" } do
  wanted[name] = true
end
for _, operator in ipairs(operators) do
  if wanted[operator.name] then
    operator.run()
    count = count + 1
  end
end
assert(count == 12, "an operator of the dozen is not in spec/cuda/operators.lua")
print(count .. " passed, 0 failed, 0 skipped")
