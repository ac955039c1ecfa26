-- Each operator of two tables on a GPU, on the stand-in: each kernel that it asks for, each launch,
-- fill, copy and call of a library fails once. What comes is an error that names the operator, the
-- device or the library, or the same values another way, and the next attempt gives the same ones.

local stand_in = require "spec.support.stand_in"

local SCRIPT = [[
local ffi = require "ffi"
local ty = require "tycho"
require("spec.support.device").enter()
local operators = require "spec.torture.operators"

ffi.cdef "void cudasim_fail(const char *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local CALLS = { "cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyDtoDAsync", "cublasLtMatmul",
  "cublasLtMatmulAlgoGetHeuristic", "cudnnBackendExecute", "cusolverDnDgetrf", "cusolverDnDgetrs",
  "cusolverDnDgeqrf", "cusolverDnDorgqr", "cusolverDnDsyevd", "cusolverDnDgetrf_bufferSize",
  "cusolverDnDgeqrf_bufferSize", "cusolverDnDorgqr_bufferSize", "cusolverDnDsyevd_bufferSize" }
local NAMED = { "[operator", "gpu(0)", "CUDA_ERROR", "cublasLt", "cuDNN", "cuSOLVER" }
local MOST = 8                           -- calls of one name that fail in an operator
local errors, bad = 0, {}

local function complain(operator, plan, what)
  bad[#bad + 1] = ("%s, %s: %s"):format(operator.name, plan, tostring(what))
end

local function is_named(e)
  for _, word in ipairs(NAMED) do
    if tostring(e):find(word, 1, true) then return true end
  end
end

-- The operator's values; nil where there was an error.
local function attempt(operator, plan)
  driver.cudasim_fail(plan)
  local good, got = pcall(operator.run)
  local settled, late = pcall(ty.nd.waitall)
  driver.cudasim_fail("")
  if good and settled then
    return got
  end
  errors = errors + 1
  local e = good and late or got
  if not is_named(e) then complain(operator, plan, e) end
end

-- Another way may add in another order.
local function near(got, want)
  if got == want then return true end
  local numbers = want:gmatch("%S+")
  for word in got:gmatch("%S+") do
    local a, b = tonumber(word), tonumber(numbers() or "")
    if not (a and b and math.abs(a - b) <= 1e-9 * (1 + math.abs(b))) then return false end
  end
  return numbers() == nil
end

-- What was found stays found, so the second one that is asked for is always new.
local function fail_kernels(operator)
  attempt(operator, "cuModuleGetFunction:1")
  for _ = 1, 3 * MOST do
    if attempt(operator, "cuModuleGetFunction:2") then return end
  end
end

local function fail_calls(operator, call, want)
  for n = 1, MOST do
    local plan = ("%s:%d"):format(call, n)
    local got = attempt(operator, plan)
    if got and not near(got, want) then complain(operator, plan, "other values") end
    if got then return end
    if attempt(operator, "") ~= want then complain(operator, plan, "other values afterwards") end
  end
end

for i = FIRST, #operators, STEP do
  fail_kernels(operators[i])
  local want = attempt(operators[i], "")
  for _, call in ipairs(CALLS) do
    fail_calls(operators[i], call, want)
  end
end
print(errors > 0 and "errors" or "none", #bad == 0 and "clean" or table.concat(bad, "\n"))
]]

-- A task is told of at once, and work of streams done at once: their order is every_call_spec's.
local QUICK = { TYCHO_TEST_DEVICE = "gpu(0)", TYCHO_SYNC = 1, CUDASIM_STREAMS = "eager",
  CUDASIM_GUARD = 0, CUDASIM_SPOIL = 4096 }

local function try(first, step)
  local script = ("local FIRST, STEP = %d, %d\n"):format(first, step) .. SCRIPT
  assert.equal("errors\tclean\n", (stand_in.run(script, QUICK)))
end

local function each(name, first, step)
  it(name, function()
    if not stand_in.exists() then
      pending("no build/cudasim: make cudasim")
    else
      try(first, step)
    end
  end)
end

describe("each call of an operator that fails is told, and done again:", function()
  each("every 40th case", 7, 40)
  for part = 1, 4 do
    each(("all cases, part %d #slow"):format(part), part, 4)
  end
end)
