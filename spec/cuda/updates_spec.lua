-- Steps of many weights on a GPU: in one launch, with the CPU's bits.

local devices = require "spec.support.devices_agree"

local UPDATES = devices.SCRIPT .. [[
local ffi = require "ffi"
ffi.cdef "void cudasim_count(uint64_t *);"
local driver = ffi.load(os.getenv "TYCHO_CUDA_PATH" .. "/libcuda.so.1")
local function launches()
  local n = ffi.new("uint64_t[5]")
  driver.cudasim_count(n)
  return tonumber(n[0])
end

for _, form in ipairs{"multi_sgd_update", "multi_sgd_mom_update", "multi_mp_sgd_mom_update",
    "_multi_adam_update"} do
  local launched
  compare(form, function(ctx)
    local half = form:match("mp") and "float16" or "float32"
    local inputs, weights = {}, {}
    local options = {lrs = {}, wds = {}, num_weights = 30, momentum = form:match("mom") and 0.9}
    for i = 1, 30 do
      local shape = {i * 300, 2}
      weights[i] = pattern(shape, ctx, half)
      inputs[#inputs + 1] = weights[i]
      inputs[#inputs + 1] = pattern(shape, ctx, half) * 0.1
      if form:match("mom") then
        inputs[#inputs + 1] = pattern(shape, ctx, "float32") * 0.3
      elseif form:match("adam") then
        inputs[#inputs + 1] = pattern(shape, ctx, "float32") * 0.3
        inputs[#inputs + 1] = pattern(shape, ctx, "float32") ^ 2
      end
      if form:match("mp") then
        inputs[#inputs + 1] = pattern(shape, ctx, "float32")
      end
      options.lrs[i], options.wds[i] = i / 100, i / 1000
    end
    ty.nd.waitall()
    launched = launches()
    for i, x in ipairs(inputs) do
      options[i] = x
    end
    local new = ty.nd[form](options)
    ty.nd.waitall()
    launched = launches() - launched
    return all(new)
  end)
  print("launches", launched)
end

for _, kind in ipairs{"SGD", "Adam"} do
  local launched
  compare(kind, function(ctx)
    local indices, weights, grads = {}, {}, {}
    for i = 1, 20 do
      indices[i], weights[i] = i - 1, pattern({i * 30}, ctx, "float32")
      grads[i] = weights[i] * 0.1
    end
    local update = ty.optimizer.get_updater(ty.optimizer[kind]{learning_rate = 0.1, wd = 0.01})
    for _ = 1, 2 do
      ty.nd.waitall()
      launched = launches()
      update(indices, grads, weights)
      ty.nd.waitall()
      launched = launches() - launched
    end
    return all(weights)
  end)
  print("launches", launched)
end
]]

describe("a kernel for GPUs gives the CPU's bits", function()
  it("of steps of many weights, in one launch", function()
    local text = devices.agree(pending, UPDATES, 6)
    if text then
      local _, single = text:gsub("launches\t1\n", "")
      assert.equal(6, single, text)
    end
  end)
end)
