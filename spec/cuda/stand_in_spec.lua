-- Networks that train on a GPU as on the CPU, on the stand-in: with the same weights and batches,
-- losses agree within 1e-5. Nothing runs on the host, and a step is one launch per segment.

local stand_in = require "spec.support.stand_in"

local STEPS = [[
local ty = require "tycho"
local networks = require "spec.cuda.networks"

local ffi = require "ffi"
ffi.cdef "void cudasim_count(uint64_t *); void cudasim_fail(const char *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local function step(exe)
  exe:forward{is_train = true}
  exe:backward()
  ty.nd.waitall()
end

-- Returns the calls of the driver that a step makes: starts of graphs, copies, allocations.
local function cost(exe)
  local before, after = ffi.new("uint64_t[5]"), ffi.new("uint64_t[5]")
  ty.nd.waitall()
  driver.cudasim_count(before)
  step(exe)
  driver.cudasim_count(after)
  local function asked(i)
    return tonumber(after[i] - before[i])
  end
  return ("%d graphs, %d copies, %d allocations"):format(asked(3), asked(1), asked(4))
end

-- Returns whether a step works when all calls but the starts of graphs fail.
local function asks_nothing_else(exe)
  local plan = {}
  for call in ("cuLaunchKernel cuMemsetD8Async cuMemcpyHtoDAsync cuMemcpyDtoHAsync "
    .. "cuMemcpyDtoDAsync cuMemAlloc cuMemCreate cuMemHostAlloc cuModuleLoadData "
    .. "cuStreamBeginCapture cublasLtMatmul cudnnBackendExecute"):gmatch("%S+") do
    plan[#plan + 1] = call .. ":1:999"
  end
  driver.cudasim_fail(table.concat(plan, ","))
  local good, e = pcall(step, exe)
  driver.cudasim_fail("")
  return good and "nothing else" or e
end

local there, exe = networks.losses(ty.gpu(0), NAME, 4)
local here = networks.losses(ty.cpu(0), NAME, 4)
for i = 1, 4 do
  print(("step %d: %.7f %.7f %s"):format(i, there[i], here[i],
    math.abs(there[i] - here[i]) < 1e-5 and "equal" or "different"))
end
print(cost(exe), asks_nothing_else(exe))
print(exe:program():find("on the host", 1, true) and "host" or "no host")
print(here[4] < here[1] and "it learns" or "it does not learn")
]]

describe("training on a GPU", function()
  for _, name in ipairs{ "lenet", "lstm", "resnet" } do
    it("is that of the CPU: " .. name, function()
      if not stand_in.exists() then
        pending("no build/cudasim: make cudasim")
        return
      end
      local text = stand_in.run(STEPS:gsub("NAME", ("%q"):format(name)), {})
      for i = 1, 4 do
        assert.matches(("step %d: [%%d.]+ [%%d.]+ equal"):format(i), text)
      end
      assert.matches("it learns", text, 1, true)
      assert.matches("2 graphs, 0 copies, 0 allocations\tnothing else\nno host\n", text, 1, true)
    end)
  end
end)
