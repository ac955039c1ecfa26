-- Copies between two GPUs: past the host where the hardware connects them, over it where it does
-- not or access is refused; blocks, pools that grew before and after, groups of NCCL. On the
-- stand-in, which counts copies that have to go over the host.

local stand_in = require "spec.support.stand_in"

local BEGIN = [[
local ffi = require "ffi"
local ty = require "tycho"
ffi.cdef "void cudasim_fail(const char *); long cudasim_calls(const char *); uint64_t cudasim_staged(void);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local a, b = ty.gpu(0), ty.gpu(1)
local V = ty.sym.Variable

-- copies since the last call, and how many of them went over the host
local copies, staged = 0, 0
local function count()
  local c, s = tonumber(driver.cudasim_calls("cuMemcpyPeerAsync")), tonumber(driver.cudasim_staged())
  local text = ("%s, %d of them staged"):format(c > copies and "copies" or "no copies", s - staged)
  copies, staged = c, s
  return text
end

local function block()
  local x = ty.nd.arange{0, 1000, ctx = a}
  return (x:as_in_context(b) * 2):as_in_context(a):sum():asscalar()
end

-- Returns a network whose values, of n rows, go from one memory pool to another and back.
local function network()
  local net = V("x")
  for i = 1, 3 do
    ty.AttrScope{ctx_group = i == 2 and "b" or "a"}:with(function()
      net = ty.sym.FullyConnected{net, num_hidden = 8, no_bias = true, name = "fc" .. i}
      net = ty.sym.tanh{net}
    end)
  end
  return ty.sym.sum(net)
end
local function pools(n)
  local exe = network():simple_bind{ctx = a, x = {n, 8}, group2ctx = {a = a, b = b}}
  for _, x in pairs(exe.arg_dict) do x[":"] = 0.125 end
  local sum = exe:forward(true)[1]:asscalar()
  exe:backward(ty.nd.ones({1}, {ctx = exe.outputs[1].context}))
  return sum, exe.grad_dict.fc1_weight:sum():asscalar()
end
local function near(x, y) return math.abs(x - y) <= 1e-5 * math.abs(y) and "right" or x .. " for " .. y end
local function try_pools(n)
  local sum, grad = pools(n)
  local want = math.tanh(math.tanh(math.tanh(0.125 * 0.125 * 8) * 0.125 * 8) * 0.125 * 8) * 8 * n
  return near(sum, want), grad ~= 0
end
]]

local WAYS = BEGIN .. [[
local first = network():simple_bind{ctx = a, x = {4, 8}, group2ctx = {a = a, b = a}}  -- a pool before
first:forward(true)
ty.waitall()
print(block(), count())
print(try_pools(4))
print(try_pools(200000))                                 -- pools grow
print(count())
]]

local REFUSED = BEGIN .. [[
ty.nd.ones({2}, {ctx = a}):wait_to_read()
local exe = network():simple_bind{ctx = b, x = {4, 8}, group2ctx = {a = b, b = b}}
exe:forward(true)
ty.waitall()
driver.cudasim_fail(PLAN)
print(block(), try_pools(4))
driver.cudasim_fail("")
print(try_pools(200000))
print(count())
]]

local GROUP = BEGIN .. [[
local kv = ty.kv.create("nccl")
kv:init("w", ty.nd.zeros{8})
local x = {ty.nd.ones({8}, {ctx = a}), ty.nd.ones({8}, {ctx = b})}
kv:pushpull("w", x)
print(x[1]:sum():asscalar(), tonumber(driver.cudasim_calls("cuCtxEnablePeerAccess")))
]]

describe("copies between GPUs", function()
  if not stand_in.exists() then
    it("any of it", function() pending("no build/cudasim: make cudasim") end)
    return
  end

  local function run(script, settings)
    settings.CUDASIM_DEVICES, settings.CUDASIM_STRICT = 2, 1
    local text, status = stand_in.run(script, settings)
    assert.equal(0, status, text)
    return text
  end

  it("pass the host by where GPUs are connected", function()
    assert.equal("999000\tcopies, 0 of them staged\nright\ttrue\nright\ttrue\n"
      .. "copies, 0 of them staged\n", run(WAYS, {}))
  end)

  it("go over the host where they are not", function()
    local text = run(WAYS, { CUDASIM_PEERS = 0 })
    assert.matches("^999000\tcopies, 2 of them staged\nright\ttrue\nright\ttrue\n"
      .. "copies, [1-9]%d* of them staged\n$", text)
  end)

  for _, plan in ipairs{ "cuDeviceCanAccessPeer:1:999", "cuCtxEnablePeerAccess:1:711",
    "cuMemSetAccess:1", "cuCtxSetCurrent:1:999" } do
    it("work where access is refused: " .. plan, function()
      local text = run(("local PLAN = %q\n"):format(plan) .. REFUSED, {})
      assert.matches("^999000\tright\ttrue\nright\ttrue\n", text)
    end)
  end

  it("are asked for by a group of GPUs", function()
    assert.equal("16\t2\n", run(GROUP, {}))
    assert.equal("16\t0\n", run(GROUP, { CUDASIM_PEERS = 0 }))
  end)
end)
