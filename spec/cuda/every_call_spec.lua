-- Each call that the back end makes fails once, the first, the second and so on, on the stand-in:
-- what comes is an error that names the call or the node, or the same values another way; nothing
-- is left over, and the next attempt works.

local stand_in = require "spec.support.stand_in"

local DRIVER = [[
local ty = require "tycho"
local ffi = require "ffi"
ffi.cdef "void cudasim_fail(const char *); long cudasim_live(const char *); void cudasim_forget(void);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local KINDS = {"allocations", "pinned allocations", "pieces of memory", "reserved ranges",
  "streams", "events", "modules", "graphs", "instantiated graphs"}
function fails(plan) driver.cudasim_fail(plan) end
function live()
  local list = {}
  for i, kind in ipairs(KINDS) do
    list[i] = kind .. " " .. tonumber(driver.cudasim_live(kind))
  end
  return table.concat(list, ", ")
end
]]

-- calls of an opening and how often each is made
local OPENING = [[
local calls = {{"cuDeviceGetAttribute", 4}, {"cuDeviceTotalMem", 1}, {"cuDevicePrimaryCtxRetain", 1},
  {"cuCtxSetCurrent", 1}, {"cuStreamCreate", 4}, {"cuMemGetAllocationGranularity", 1},
  {"cuMemHostAlloc", 5}, {"cuEventCreate", 94}}
local nothing
ty.num_gpus()                                            -- starts the driver
for _, call in ipairs(calls) do
  for n = 1, call[2] do
    fails(("%s:%d:999"):format(call[1], n))          -- after a lack of memory all is tried twice
    local good, e = pcall(ty.nd.ones, {2, ctx = ty.gpu(0)})
    nothing = nothing or live()
    if good or not tostring(e):find(", 999)", 1, true) then
      print(call[1], n, good, e)
    elseif live() ~= nothing then
      print(call[1], n, "left", live())
    end
  end
end
fails("")
print(nothing)
print(ty.nd.ones{2, ctx = ty.gpu(0)}:sum():asscalar())
]]

-- One whole life: kernels that are new to the process, products, a convolution, graphs, copies.
-- `n` makes the sources of formulas new.
local LIFE = [[
local sym = ty.sym
local NEW = {"sin", "cos", "tanh", "sigmoid", "exp", "erf", "relu", "softsign", "arctan", "arcsinh",
  "square", "abs", "expm1", "cbrt", "rint"}
local at = 0
local function network(pick)
  local x = sym.Convolution{data = sym.Variable("data"), kernel = {3, 3}, num_filter = 2, name = "conv"}
  x = sym[NEW[pick % 15 + 1] ](sym[NEW[math.floor(pick / 15) % 15 + 1] ](x))
  x = sym.FullyConnected{data = sym.Dropout{data = x, p = 0.5, name = "drop"}, num_hidden = 3,
    name = "fc"}
  return sym.SoftmaxOutput{data = x, name = "softmax"}
end
local function put(list, x)
  for _, v in ipairs(x:reshape{x.size}:totable()) do
    list[#list + 1] = v
  end
end
local function same(a, b)
  for i = 1, #b do
    if not (math.abs(a[i] - b[i]) < 1e-5) then return false end
  end
  return #a == #b
end
local function life(ctx, net)
  local exe = net:simple_bind{ctx = ctx, data = {2, 1, 4, 4}, softmax_label = {2}}
  for _, x in pairs(exe.arg_dict) do
    x[":"] = ty.nd.arange{0, x.size, ctx = ty.cpu(0)}:reshape(x.shape) % 5 / 5
  end
  ty.random.seed(1, ctx)
  local seen = {}
  for step = 1, 3 do
    exe:forward{is_train = true}
    exe:backward()
    put(seen, exe.outputs[1])
    put(seen, exe.grad_dict.conv_weight)
  end
  exe:free()
  return seen
end
local function settle()
  collectgarbage()
  collectgarbage()
end
]]

local FIRST = LIFE .. [[
local net = network(14)
local good, got = pcall(life, ty.gpu(0), net)
local want = life(ty.gpu(0), net)
print(good and (same(got, want) and "same" or "others") or got)
]]

local EACH = LIFE .. [[
life(ty.gpu(0), network(14))
local bad, errors, quiet = {}, 0, 0
for call in CALLS:gmatch("%S+") do
  for n = 1, MOST do
    at = at + 1
    local net = network(at)
    settle()
    fails((("%s:%d,"):format(call, n)):rep(TIMES))
    local good, got = pcall(life, ty.gpu(0), net)
    fails("")
    local ok, late = pcall(ty.nd.waitall)
    if not good and not tostring(got):find("[operator", 1, true)
        and not tostring(got):find("CUDA_ERROR", 1, true)
        and not tostring(got):find("gpu(0)", 1, true) then
      bad[#bad + 1] = ("%s %d: %s"):format(call, n, tostring(got))
    end
    errors, quiet = errors + (good and 0 or 1), quiet + (good and 1 or 0)
    local again, want = pcall(life, ty.gpu(0), net)
    if not again then
      bad[#bad + 1] = ("%s %d, again: %s"):format(call, n, tostring(want))
    elseif good and not same(got, want) then
      bad[#bad + 1] = ("%s %d: other values"):format(call, n)
    end
    settle()
    local left = live()
    life(ty.gpu(0), net)
    settle()
    if live() ~= left then
      bad[#bad + 1] = ("%s %d: %s and then %s"):format(call, n, left, live())
    end
  end
end
print(errors > 0 and "errors" or "none", #bad == 0 and "clean" or table.concat(bad, "\n"))
]]

-- Copies to a device and back, of three pieces each. What the host had no memory for is sent
-- another way.
local COPIES = [[
ffi.cdef "long cudasim_calls(const char *);"
local n, calls, bad = 3000000, {}, {}
local x = ty.nd.arange{0, n, ctx = ty.cpu(0)}
local function life()
  local y = x:as_in_context(ty.gpu(0)):as_in_context(ty.cpu(0))
  return (y - x):abs():max():asscalar() == 0
end
local function count(call) return tonumber(driver.cudasim_calls(call)) end
for call in CALLS:gmatch("%S+") do calls[call] = count(call) end
for _ = 1, 2 do life() end
for call in CALLS:gmatch("%S+") do calls[call] = count(call) - calls[call] end
for call in CALLS:gmatch("%S+") do
  for n = 1, calls[call] do
    fails(("%s:%d:999"):format(call, n))
    local good, e = pcall(life)
    fails("")
    pcall(ty.nd.waitall)
    if good and not e or not good and not tostring(e):find("gpu(0): ", 1, true) then
      bad[#bad + 1] = ("%s %d: %s"):format(call, n, tostring(e))
    end
    if not life() then
      bad[#bad + 1] = ("%s %d: others afterwards"):format(call, n)
    end
  end
end
print(#bad == 0 and "clean" or table.concat(bad, "\n"))
]]

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("is reported and done again", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("each call that fails", function()
  it("while a device is opened leaves nothing of it, and the device opens later", function()
    local text = stand_in.run(DRIVER .. OPENING)
    assert.equal("allocations 0, pinned allocations 0, pieces of memory 0, reserved ranges 0, "
      .. "streams 0, events 0, modules 0, graphs 0, instantiated graphs 0\n2\n", text)
  end)

  for _, part in ipairs{
    { 8, "cuMemAlloc cuMemcpyHtoDAsync cuMemcpyDtoHAsync cuMemcpyDtoDAsync cuMemsetD8Async" },
    { 6, "cuEventRecord cuEventSynchronize cuStreamSynchronize cuLaunchKernel cuCtxSetCurrent" },
    { 3, "cuModuleLoadData cuModuleGetFunction" },
    { 3, "cuMemCreate cuMemMap cuMemSetAccess", 12 },
    { 3, "cuMemAddressReserve cuMemCreate cuMemMap cuMemSetAccess", 1, "none" },
    { 2, "cuStreamBeginCapture cuStreamEndCapture cuGraphInstantiateWithFlags cuGraphLaunch" },
    { 3, "cublasLtMatmul cublasLtMatmulAlgoGetHeuristic cudnnBackendFinalize cudnnBackendExecute" },
  } do
    -- where memory lacks once, all of it that is unused is given back, and it is asked for again
    local times = part[3] or 1
    it(("is reported and done again, %d in a row: %s"):format(times, part[2]), function()
      local script = ("local CALLS, MOST, TIMES = %q, %d, %d\n"):format(part[2], part[1], times)
      local text = stand_in.run(script .. DRIVER .. EACH)
      assert.equal((part[4] or "errors") .. "\tclean\n", text)
    end)
  end

  it("of a copy in pieces is reported, and the next copy is whole", function()
    local calls = "cuMemcpyHtoDAsync cuMemcpyDtoHAsync cuMemcpyDtoDAsync cuEventRecord "
      .. "cuEventSynchronize cuStreamWaitEvent cuStreamSynchronize cuMemAlloc"
    local script = ("local CALLS = %q\n"):format(calls) .. DRIVER .. COPIES
    assert.equal("clean\n", (stand_in.run(script)))
  end)

  for _, part in ipairs{
    { "nvrtcCompileProgram:1", "does not compile: .* %[operator" },
    { "nvrtcCompileProgram:3", "does not compile: .* %[operator" },
    { "nvrtcCompileProgram:1,nvrtcGetProgramLogSize:1",
      "does not compile: there is no log %[operator" },
    { "nvrtcCreateProgram:2", "NVRTC takes no source %[operator" },
    { "nvrtcGetCUBINSize:2", "NVRTC gives no image of a kernel %[operator" },
    { "nvrtcGetCUBIN:2", "NVRTC gives no image of a kernel %[operator" },
    { "nvrtcGetNumSupportedArchs:1", "same" }, { "nvrtcGetSupportedArchs:1", "same" },
    { "nvrtcVersion:1", "gpu%(0%) does not exist: NVRTC does not answer", true },
    { "cuDriverGetVersion:1:999",
      "asking for the CUDA driver's version: an error %(unknown, 999%)", true },
    { "cuDeviceGetCount:1:999", "gpu%(0%) does not exist: there are 0 here", true },
    { "cublasLtCreate:1", "same" }, { "cudnnCreate:1", "same" },
  } do
    it("is reported or done another way, and then done: " .. part[1], function()
      local text, status = stand_in.run(DRIVER .. FIRST, { CUDASIM_FAIL = part[1] })
      assert.equal(part[3] and 1 or 0, status, text)
      assert.matches(part[2], text)
    end)
  end
end)
