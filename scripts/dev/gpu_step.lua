--- Trains small networks for some steps on gpu(0) and on the CPU, from the same weights: LeNet, a
-- ResNet, an LSTM. Prints the losses of both side by side, then counts.
--   tycho scripts/dev/gpu_step.lua
local networks = require "spec.cuda.networks"
local ty = require "tycho"

-- float32 losses; libraries add products in another order
local BOUND, STEPS = 1e-4, 4

local passed, failed = 0, 0
for _, name in ipairs{ "lenet", "resnet", "lstm" } do
  local there = networks.losses(ty.gpu(0), name, STEPS)
  local here = networks.losses(ty.cpu(0), name, STEPS)
  local good = here[STEPS] < here[1]
  for i = 1, STEPS do
    good = good and math.abs(there[i] - here[i]) <= BOUND
    print(("%s, step %d: %.7f, on the CPU %.7f"):format(name, i, there[i], here[i]))
  end
  passed, failed = passed + (good and 1 or 0), failed + (good and 0 or 1)
end
print(("%d passed, %d failed, 0 skipped"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
