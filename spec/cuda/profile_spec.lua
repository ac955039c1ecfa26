-- Times of a GPU's work, in the profile of an executor and in the profiler, on the stand-in, where
-- each launch, copy and fill takes a millisecond by the clock of events.

local stand_in = require "spec.support.stand_in"

local BEGIN = [[
local ffi = require "ffi"
local ty = require "tycho"
local trace = require "spec.support.trace"
ffi.cdef "void cudasim_fail(const char *); long cudasim_live(const char *); void cudasim_count(uint64_t *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local C = require("tycho.core.ffi").C
local V = ty.sym.Variable

-- Returns the time in ns.
local function now() return tonumber(C.ty_profile_now()) end

-- Returns the number of launches, copies and fills so far.
local function done()
  local n = ffi.new("uint64_t[5]")
  driver.cudasim_count(n)
  return tonumber(n[0] + n[1] + n[2])
end

local function network()
  local net = ty.sym.FullyConnected{V("data"), num_hidden = 64, name = "fc1"}
  net = ty.sym.FullyConnected{ty.sym.relu(net), num_hidden = 32, name = "fc2"}
  return ty.sym.SoftmaxOutput{net, name = "softmax"}
end

local function bound(net, shapes)
  shapes.ctx = ty.gpu(0)
  local exe = net:simple_bind(shapes)
  for _, x in pairs(exe.arg_dict) do x[":"] = 0.01 end
  return exe
end

local function step(exe)
  exe:forward(true)
  exe:backward()
end

-- Returns the sum of the samples in ns, and how many of them are 0.
local function sum(exe)
  local ns, none = 0, 0
  for _, s in ipairs(exe:profile()) do
    ns, none = ns + s.ns, none + (s.ns == 0 and 1 or 0)
  end
  return ns, none
end
]]

local EXECUTOR = BEGIN .. [[
local exe = bound(network(), {data = {64, 128}})
exe:profile()
step(exe)
ty.waitall()
local before = done()
step(exe)
ty.waitall()
local work, none = sum(exe)
print(none, work / (done() - before))

local events = tonumber(driver.cudasim_live("events"))
for _ = 1, 20 do
  step(exe)
  exe:profile()
end
print("more events:", tonumber(driver.cudasim_live("events")) - events)
]]

-- Does the host ask for a step faster than it is done? A busy machine may hold it up.
local AHEAD = BEGIN .. [[
local exe = bound(network(), {data = {64, 256}})
exe:profile()
step(exe)
for _ = 1, 100 do
  ty.waitall()
  local from = now()
  step(exe)
  local asked = now() - from
  ty.waitall()
  if asked < 0.5 * (now() - from) then return print("ahead") end
end
]]

local LONG = BEGIN .. [[
local net = V("x")
for i = 1, 700 do net = ty.sym.cumsum{net, axis = 1, name = "c" .. i} end
local exe = bound(net, {x = {2, 3}, grad_req = "null"})
exe:profile()
exe:forward(false)
local work, none = sum(exe)
print(#exe:profile(), none, work, tonumber(driver.cudasim_live("events")) < 1300)
]]

local PROFILER = BEGIN .. [[
local exe = bound(network(), {data = {64, 128}})
local x = ty.nd.ones({96, 96}, {ctx = ty.gpu(0)})
local function work()
  step(exe)
  ty.nd.dot(x, x)
end
work()
ty.waitall()
local before
local got = trace.traced({profile_memory = false, profile_api = false}, function()
  before = done()
  for _ = 1, 3 do work() end
end)
local sums, lanes, list = {operator = 0, imperative = 0}, {}, trace.spans(got)
for _, e in ipairs(trace.with_phase(got, "M")) do lanes[e.pid] = e.args.name end
for _, s in ipairs(list) do
  sums[s.cat] = sums[s.cat] + s.ns
  if lanes[s.pid] ~= "gpu/0" then print("in lane", lanes[s.pid]) end
end
local all = sums.operator + sums.imperative
print(#trace.of_category(list, "operator") == 3 * exe:stats().instructions,
  #trace.of_category(list, "imperative"))
print(("%.0f %.0f"):format(all / (done() - before), sums.imperative))
local total = 0
for _, s in ipairs(ty.profiler.sums()) do total = total + s.total end
print(math.abs(total - all) < 1e-3 * all and "the same" or total)
]]

local FAILS = BEGIN .. [[
local exe = bound(network(), {data = {8, 16}})
exe:profile()
step(exe)
ty.waitall()
local want = exe.outputs[1]:as_in_context(ty.cpu(0)):totable()
for _, plan in ipairs{"cuEventRecord:1:999", "cuEventRecord:4", "cuEventElapsedTime:1:999",
    "cuEventElapsedTime:4:600"} do
  driver.cudasim_fail(plan)
  step(exe)
  ty.waitall()
  driver.cudasim_fail("")
  local _, none = sum(exe)
  local got = exe.outputs[1]:as_in_context(ty.cpu(0)):totable()
  local worst = 0
  for i, row in ipairs(want) do
    for k, v in ipairs(row) do worst = math.max(worst, math.abs(v - got[i][k])) end
  end
  step(exe)
  local _, later = sum(exe)
  print(none, worst, later)
end
]]

local DEVICES = BEGIN .. [[
local a, b, v = ty.gpu(0), ty.gpu(1), V("x")
local x, y
ty.AttrScope{ctx_group = "first"}:with(function() x = ty.sym.dot(v, v) end)
ty.AttrScope{ctx_group = "second"}:with(function() y = ty.sym.dot(x, x) end)
local exe = y:simple_bind{ctx = a, x = {96, 96}, group2ctx = {first = a, second = b},
  grad_req = "null"}
exe.arg_dict.x[":"] = 0.01
exe:profile()
for _ = 1, 2 do
  exe:forward(false)
  ty.waitall()
end
local _, none = sum(exe)
for _, s in ipairs(exe:profile()) do
  if s.op == "dot" then print(s.ns >= 1e6) end
end
print(none)
]]

local SUMS = BEGIN .. [[
local kv = ty.kv.create("nccl")
kv:init("w", ty.nd.zeros{50})
local x = {ty.nd.ones({50}, {ctx = ty.gpu(0)}), ty.nd.ones({50}, {ctx = ty.gpu(1)})}
kv:pushpull("w", x)
ty.waitall()
local got = trace.traced({profile_memory = false, profile_api = false}, function()
  kv:pushpull("w", x)
end)
for _, s in ipairs(trace.of_category(trace.spans(got), "comm")) do
  print(s.name, s.ns >= 2e6 or s.ns)
end
]]

local function run(script, settings)
  settings = settings or {}
  settings.CUDASIM_STRICT, settings.CUDASIM_TICK = settings.CUDASIM_STRICT or 1, 1000000
  return (stand_in.run(script, settings))
end

describe("times of a GPU's work", function()
  if not stand_in.exists() then
    it("any of it", function() pending("no build/cudasim: make cudasim") end)
    return
  end

  it("are in an executor's profile", function()
    assert.equal("0\t1000000\nmore events:\t0\n", run(EXECUTOR))
    assert.equal("0\t1000000\nmore events:\t0\n", run(EXECUTOR, { TYCHO_SYNC = 1 }))
  end)

  it("are not waited for", function()
    assert.equal("ahead\n", run(AHEAD))
  end)

  it("are taken of some hundred steps at a time", function()
    assert.equal("700\t0\t700000000\ttrue\n", run(LONG))
  end)

  it("are in the profiler's trace and sums", function()
    assert.equal("true\t3\n1000000 3000000\nthe same\n", run(PROFILER))
  end)

  it("are 0 where the device has none, and values are right", function()
    for line in run(FAILS, { CUDASIM_STRICT = 0 }):gmatch("[^\n]+") do
      local none, worst, later = line:match("^(%d+)\t(%S+)\t(%d+)$")
      assert.same({ "1", "0", "0" }, { none, worst, later }, line)
    end
  end)

  it("are those of each device", function()
    assert.equal("true\ntrue\n0\n", run(DEVICES, { CUDASIM_DEVICES = 2 }))
  end)

  it("are those of a sum over devices", function()
    assert.equal("sum\ttrue\n", run(SUMS, { CUDASIM_DEVICES = 2 }))
  end)
end)
