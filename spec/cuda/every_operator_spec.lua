-- Each operator on a GPU (spec/cuda/operators.lua), on the stand-in: each kernel that it asks for,
-- each launch, fill, copy and call of a library fails once. What comes is an error that names the
-- operator, the device or the library, or the same values another way, and the next attempt gives
-- the same ones.

local stand_in = require "spec.support.stand_in"

local SCRIPT = [[
local ffi = require "ffi"
local ty = require "tycho"
require("spec.support.device").enter()
local operators = require "spec.cuda.operators"

ffi.cdef "void cudasim_fail(const char *); long cudasim_calls(const char *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
-- and how many of a name fail in an operator; what is no lack of memory is not tried again
local CALLS = { cuLaunchKernel = 16, cuMemsetD8Async = 16, cuMemcpyDtoDAsync = 16, cuMemAlloc = 8,
  cublasLtMatmul = 8, cublasLtMatmulAlgoGetHeuristic = 8, cublasLtMatmulDescCreate = 4,
  cublasLtMatmulDescSetAttribute = 12, cublasLtMatrixLayoutCreate = 12,
  cublasLtMatrixLayoutSetAttribute = 8, cublasLtMatmulPreferenceCreate = 4,
  cublasLtMatmulPreferenceSetAttribute = 8, cudnnBackendCreateDescriptor = 12,
  cudnnBackendSetAttribute = 40, cudnnBackendFinalize = 12, cudnnBackendGetAttribute = 12,
  cudnnBackendExecute = 8, cudnnSetStream = 4, cusolverDnSetStream = 4, cusolverDnDgetrf = 8,
  cusolverDnDgetrs = 8, cusolverDnDgeqrf = 8, cusolverDnDorgqr = 8, cusolverDnDsyevd = 8,
  cusolverDnDgetrf_bufferSize = 8, cusolverDnDgeqrf_bufferSize = 8,
  cusolverDnDorgqr_bufferSize = 8, cusolverDnDsyevd_bufferSize = 8 }
local CODE = { cuLaunchKernel = 999, cuMemsetD8Async = 999, cuMemcpyDtoDAsync = 999 }
local NAMED = { "[operator", "gpu(0)", "CUDA_ERROR", "cublasLt", "cuDNN", "cuSOLVER" }
local KERNELS = 24
local errors, bad = 0, {}

local function complain(operator, plan, what)
  bad[#bad + 1] = ("%s, %s: %s"):format(operator.name, plan, tostring(what))
end

local function is_named(e)
  for _, word in ipairs(NAMED) do
    if tostring(e):find(word, 1, true) then return true end
  end
end

-- Returns the operator's values; nil if there was an error.
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

-- Returns whether results agree; another algorithm may add in another order.
local function near(got, want)
  if got == want then return true end
  local numbers = want:gmatch("%S+")
  for word in got:gmatch("%S+") do
    local a, b = tonumber(word), tonumber(numbers() or "")
    if not (a and b and math.abs(a - b) <= 1e-9 * (1 + math.abs(b))) then return false end
  end
  return numbers() == nil
end

-- Lets the lookup of each kernel fail. A kernel that was found is kept, so the second one that is
-- looked up is always new.
local function fail_kernels(operator)
  attempt(operator, "cuModuleGetFunction:1:999")
  for _ = 1, KERNELS do
    if attempt(operator, "cuModuleGetFunction:2:999") then return end
  end
end

-- Returns the operator's result, and how often it makes each of the calls.
local function observe(operator)
  local made = {}
  for call in pairs(CALLS) do made[call] = tonumber(driver.cudasim_calls(call)) end
  local want = attempt(operator, "")
  for call in pairs(CALLS) do made[call] = tonumber(driver.cudasim_calls(call)) - made[call] end
  return want, made
end

local function fail_calls(operator, call, count, want)
  for n = 1, count do
    local plan = ("%s:%d:%d"):format(call, n, CODE[call] or 2)
    local got = attempt(operator, plan)
    if got and not near(got, want) then complain(operator, plan, "other values") end
    if attempt(operator, "") ~= want then complain(operator, plan, "other values afterwards") end
  end
end

for i = FIRST, #operators, STEP do
  fail_kernels(operators[i])
  local want, made = observe(operators[i])
  for call, most in pairs(CALLS) do
    fail_calls(operators[i], call, math.min(made[call], most), want)
  end
end
print(errors > 0 and "errors" or "none", #bad == 0 and "clean" or table.concat(bad, "\n"))
]]

local AGREE = [[
local device = require "spec.support.device"
device.enter()
local operators = require "spec.cuda.operators"

local function numbers(text)
  local list = {}
  for word in text:gmatch("%S+") do list[#list + 1] = tonumber(word) end
  return list
end

local function distance(got, want)
  local a, b, worst = numbers(got), numbers(want), 0
  for i, v in ipairs(b) do
    local off = math.abs(v - (a[i] or 1 / 0)) / math.max(1, math.abs(v))
    worst = (off > worst or off ~= off) and not (v == a[i] or v ~= v and a[i] ~= a[i]) and off or worst
  end
  return #a == #b and worst or 1 / 0
end

local here, compared = {}, 0
for i, operator in ipairs(operators) do here[i] = operator.run() end
device.leave()
for i, operator in ipairs(operators) do
  local good, want = pcall(operator.run)
  -- of half types, which others add in single precision, the last bits
  local bound = operator.name:find("float16", 1, true) and 1e-2 or 1e-5
  if not good then
    print(operator.name, want)
  elseif not (distance(here[i], want) <= bound) then
    print(operator.name, distance(here[i], want))
  else
    compared = compared + 1
  end
end
print(compared)
]]

-- A task is reported at once, and work of streams done at once: their order is every_call_spec's.
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

describe("each call of an operator that fails is reported, and done again:", function()
  each("every 40th case", 7, 40)
  for part = 1, 4 do
    each(("all cases, part %d #slow"):format(part), part, 4)
  end
end)

describe("each operator on a GPU", function()
  it("gives the CPU's values #slow", function()
    if not stand_in.exists() then
      pending("no build/cudasim: make cudasim")
      return
    end
    local text = stand_in.run(AGREE, QUICK)
    -- the CPU has no convolution with channels last
    text = text:gsub("Convolution, channels last\t[^\n]*\n[^\n]*\n[^\n]*\n", "")
    assert.matches("^%d+\n$", text)
    assert.is_true(tonumber(text) > 400, text)
  end)
end)
