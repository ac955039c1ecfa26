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
    "_multi_update"} do
  local launched
  compare(form, function(ctx)
    local half = form:match("mp") and "float16" or "float32"
    local inputs, weights = {}, {}
    local options = {lrs = {}, wds = {}, num_weights = 30, momentum = form:match("mom") and 0.9}
    local rows = {{}, {}, {}, {}}
    for i = 1, 30 do
      local shape = {i * 300, 2}
      weights[i] = pattern(shape, ctx, half)
      inputs[#inputs + 1] = weights[i]
      inputs[#inputs + 1] = pattern(shape, ctx, half) * 0.1
      if form:match("mom") then
        inputs[#inputs + 1] = pattern(shape, ctx, "float32") * 0.3
      end
      rows[1][i], rows[2][i] = weights[i], inputs[#inputs]
      rows[3][i], rows[4][i] = weights[i] * 0.3, pattern(shape, ctx, "float32") ^ 2
      if form:match("mp") then
        inputs[#inputs + 1] = pattern(shape, ctx, "float32")
      end
      options.lrs[i], options.wds[i] = i / 100, i / 1000
    end
    if form == "_multi_update" then
      options.rule, inputs = "adam_update", {}
      for k = 1, 120 do
        inputs[k] = rows[math.ceil(k / 30)][(k - 1) % 30 + 1]
      end
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

-- 300 weights: more than an operator takes
for kind, options in pairs{SGD = {}, Adam = {}, NAG = {momentum = 0.9}, Signum = {}, Ftrl = {},
    RMSProp = {centered = true}} do
  local launched
  options.learning_rate, options.wd = 0.1, 0.01
  compare(kind, function(ctx)
    local indices, weights, grads = {}, {}, {}
    for i = 1, 300 do
      indices[i], weights[i] = i - 1, pattern({i % 7 * 30 + 1}, ctx, "float32")
      grads[i] = weights[i] * 0.1
    end
    local update = ty.optimizer.get_updater(ty.optimizer[kind](options))
    for _ = 1, 2 do
      ty.nd.waitall()
      launched = launches()
      update(indices, grads, weights)
      ty.nd.waitall()
      launched = launches() - launched
    end
    return all(weights)
  end)
  print(launched <= 16 and "few launches" or "launches: " .. launched)
end
]]

describe("a kernel for GPUs gives the CPU's bits", function()
  it("of steps of many weights, in one launch", function()
    local text = devices.agree(pending, UPDATES, 10)
    if text then
      local _, single = text:gsub("launches\t1\n", "")
      local _, few = text:gsub("few launches\n", "")
      assert.equal(4, single, text)
      assert.equal(6, few, text)
    end
  end)
end)
