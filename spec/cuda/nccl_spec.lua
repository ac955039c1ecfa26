-- Sums over several GPUs by NCCL, on the stand-ins for CUDA and NCCL: the store "nccl" in one
-- process, "dist_sync" with GPUs in several; what fails, what is misused, what is missing.

local mpi = require "spec.support.mpi"
local shell = require "spec.support.shell"
local stand_in = require "spec.support.stand_in"

local TWO = { CUDASIM_DEVICES = 2, CUDASIM_STRICT = 1 }

local function run(script, settings)
  local all = {}
  for _, list in ipairs{ TWO, settings or {} } do
    for name, value in pairs(list) do
      all[name] = value
    end
  end
  return stand_in.run(script, all)
end

-- A pushed key of each dtype; what devices have after a pull.
local STORE = [[
local ty = require "tycho"
local a, b = ty.gpu(0), ty.gpu(1)
local function pair(values, dtype)
  return {ty.nd.array(values, {dtype = dtype, ctx = a}), ty.nd.array(values, {dtype = dtype, ctx = b})}
end
local function show(list)
  local texts = {}
  for i, x in ipairs(list) do
    texts[i] = table.concat(x:as_in_context(ty.cpu(0)):astype("float32"):totable(), " ")
  end
  return table.concat(texts, ", ")
end
local function store()
  return ty.kv.create("nccl")
end
]]

local TYPES = STORE .. [[
local kv = store()
for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64",
    "bool"} do
  kv:init(dtype, ty.nd.zeros({3}, {dtype = dtype}))
  local x = {pair({1, 0, 3}, dtype)[1], pair({4, 0, 5}, dtype)[2]}
  local out = pair({9, 9, 9}, dtype)
  kv:push(dtype, x)
  kv:pull(dtype, {out = out})
  kv:pushpull(dtype, x)
  print(dtype, show(out), show(x))
end
]]

local WAYS = STORE .. [[
local kv = store()
local out = pair{0, 0}
kv:broadcast("w", ty.nd.array{1, 2}, out)
print("broadcast", show(out))
kv:init("v", ty.nd.array({10, 10}, {ctx = b}))
kv:set_optimizer(ty.optimizer.SGD{learning_rate = 0.5, rescale_grad = 1})
kv:push({"w", "v"}, {pair{1, 1}, pair{2, 4}})
local more = pair{0, 0}
kv:pull({"w", "v"}, {out = {out, more}})
print("updated", show(out), show(more))
local host = ty.nd.zeros{2}
kv:pull("v", {out = host})
print("on the host", show{host})
kv:push("w", ty.nd.ones{2, ctx = b})                      -- a single array is its own sum
kv:pull("w", {out = out})
print("one", show(out))
for _, refused in ipairs{
  function() kv:push("w", {ty.nd.ones{2}, ty.nd.ones{2, ctx = a}}) end,
  function() kv:push("w", {ty.nd.ones{2, ctx = a}, ty.nd.ones{2, ctx = a}}) end,
  function() kv:set_gradient_compression{type = "2bit"} end,
} do
  print((select(2, pcall(refused))))
end
print(kv)
]]

-- parameters after some steps over two GPUs, by both stores
local TRAIN = [[
local ty = require "tycho"
ty.log.level = "error"
local sym = ty.sym
local net = sym.FullyConnected{data = sym.Variable("data"), num_hidden = 8, name = "fc1"}
net = sym.FullyConnected{data = sym.tanh(net), num_hidden = 3, name = "fc2"}
net = sym.SoftmaxOutput{data = net, name = "softmax"}
local cpu = ty.cpu(0)
local x = (ty.nd.arange{0, 96, ctx = cpu}:reshape{16, 6} * 7 % 13) / 13
local y = ty.nd.arange{0, 16, ctx = cpu} % 3

function start()
  local params, shapes = {}, net:infer_shape{data = {16, 6}}
  for i, name in ipairs(net:list_arguments()) do
    if name:match("^fc") then
      local n = ty.nd.zeros{shape = shapes[i], ctx = cpu}.size
      params[name] = (ty.nd.arange{0, n, ctx = cpu} * 5 % 11 / 11 - 0.4):reshape(shapes[i])
    end
  end
  return params
end

function train(ctx, store, options)
  local o = options or {}
  local m = ty.mod.Module{symbol = net, context = ctx}
  m:fit{train_data = ty.io.NDArrayIter{data = x, label = y, batch_size = o.batch or 16},
    kvstore = store, num_epoch = 6, arg_params = start(), eval_metric = "acc",
    optimizer = o.optimizer or "sgd",
    optimizer_params = {learning_rate = 0.1, momentum = not o.optimizer and 0.9 or nil}}
  return (m:get_params())
end

function distance(got, want)
  local worst = 0
  for name, p in pairs(want) do
    worst = math.max(worst, (got[name]:as_in_context(cpu) - p:as_in_context(cpu)):abs():max()
      :asscalar())
  end
  return worst
end
]]

local FIT = TRAIN .. [[
local two = {ty.gpu(0), ty.gpu(1)}
for _, optimizer in ipairs{"sgd", "adam"} do
  local o = {optimizer = optimizer ~= "sgd" and optimizer or nil}
  local got = train(two, "nccl", o)
  print(optimizer, distance(got, train(two, "device", o)),
    distance(got, train(ty.cpu(0), ty.null, o)) < 1e-5)
end
local kv = ty.kv.create("nccl")
kv.is_capable = function() return false end                -- each device updates its own
print("no optimizer", distance(train(two, kv), train(two, "device")) < 1e-6)
]]

-- Sums of three buckets, in the parts of backward that make them.
local OVERLAPS = [[
local ty = require "tycho"
local sym, net = ty.sym, ty.sym.Variable("data")
for i = 1, 3 do
  net = sym.FullyConnected{data = net, num_hidden = 520, no_bias = true,
    name = "fc" .. i}
end
net = sym.LinearRegressionOutput{data = net, label = sym.Variable("label")}
local x = ty.nd.ones{2, 520, ctx = ty.cpu(0)}
local function train(ctx, store)
  local m = ty.mod.Module{symbol = net, context = ctx, label_names = {"label"}}
  m:bind{data_shapes = {{"data", {2, 520}}}, label_shapes = {{"label", {2, 520}}}}
  ty.random.seed(1)
  m:init_params{initializer = ty.init.Uniform(0.01)}
  m:init_optimizer{kvstore = store, optimizer_params = {learning_rate = 0.01}}
  for _ = 1, 4 do
    m:forward_backward(ty.io.DataBatch{data = {x}, label = {x}})
    m:update()
  end
  for _, exe in ipairs(m._exec_group.execs) do
    print(exe:program():match("in (%d+) segments"))
  end
  return (m:get_params())
end
local two = {ty.gpu(0), ty.gpu(1)}
local got, want = train(two, STORE), train(two, "device")
for name, p in pairs(want) do
  print(name, (got[name] - p):abs():max():asscalar())
end
]]

-- Each call fails once: an error that names it, and then a new store works.
local FAILS = STORE .. [[
local ffi = require "ffi"
ffi.cdef "void cudasim_fail(const char *); long cudasim_live(const char *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local function live()
  return tonumber(driver.cudasim_live("NCCL communicators"))
end
local function life()
  local kv, out = store(), pair{0, 0}
  kv:init("w", ty.nd.zeros{2})
  kv:set_optimizer(ty.optimizer.SGD{learning_rate = 1, rescale_grad = 1})
  for _ = 1, 2 do
    kv:push("w", pair{1, 2})
    kv:pull("w", {out = out})
  end
  ty.nd.waitall()
  return show(out), kv
end
local function settle()
  pcall(ty.nd.waitall)
  for _ = 1, 3 do collectgarbage() end
end
local bad = {}
life()
for call, most in CALLS:gmatch("(%S+):(%d+)") do
  local of_nccl = call:find("^nccl") ~= nil             -- others may be made up for
  for n = 1, most do
    settle()
    driver.cudasim_fail(call .. ":" .. n .. (of_nccl and "" or ":999"))
    local good, e = pcall(life)
    driver.cudasim_fail("")
    local fine = good and not of_nccl and e == "-4 -8, -4 -8"
      or not good and tostring(e):find(of_nccl and "NCCL" or "gpu%(%d%): ")
    if not fine then
      bad[#bad + 1] = ("%s %d: %s"):format(call, n, tostring(e))
    end
    settle()
    if live() ~= 0 then
      bad[#bad + 1] = ("%s %d: %d left"):format(call, n, live())
    end
    local want = life()
    if want ~= "-4 -8, -4 -8" then
      bad[#bad + 1] = ("%s %d, again: %s"):format(call, n, want)
    end
  end
end
print(#bad == 0 and "clean" or table.concat(bad, "\n"))
]]

local STICKS = STORE .. [[
local kv, out = store(), pair{0, 0}
kv:init("w", ty.nd.zeros{2})
for _ = 1, 3 do
  local good, e = pcall(function()
    kv:push("w", pair{1, 2})
    kv:pull("w", {out = out})
    ty.nd.waitall()
  end)
  print(good and show(out) or e)
end
]]

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("is that of one device", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("the store nccl", function()
  it("adds all types", function()
    local text, status = run(TYPES)
    local lines = {}
    for _, dtype in ipairs{ "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32",
                            "int64" } do
      lines[#lines + 1] = dtype .. "\t5 0 8, 5 0 8\t5 0 8, 5 0 8"
    end
    lines[#lines + 1] = "bool\t1 0 1, 1 0 1\t1 0 1, 1 0 1\n"
    assert.equal(table.concat(lines, "\n"), text)
    assert.equal(0, status)
  end)

  it("updates on one GPU and broadcasts, and says what it does not do", function()
    local text, status = run(WAYS)
    assert.matches("broadcast\t1 2, 1 2\nupdated\t0 1, 0 1\t8 6, 8 6\non the host\t8 6\n"
      .. "one\t-0.5 0.5, -0.5 0.5\n", text, 1, true)
    assert.matches("adds on GPUs; 'device' adds anywhere\n  expected arrays on GPUs, "
      .. "got cpu%(0%)", text)
    assert.matches("gpu(0) is twice in a group", text, 1, true)
    assert.matches("a store of type 'nccl' has no compression", text, 1, true)
    assert.matches("<KVStore nccl, 2 keys>", text, 1, true)
    assert.equal(0, status, text)
  end)

  for seed = 1, 2 do
    it("trains as device does, to the bit, work of streams in order " .. seed, function()
      local text, status = run(FIT, { CUDASIM_SEED = seed })
      assert.equal("sgd\t0\ttrue\nadam\t0\ttrue\nno optimizer\ttrue\n", text)
      assert.equal(0, status)
    end)
  end

  for seed = 1, 2 do
    it("adds while backward makes the rest, work of streams in order " .. seed, function()
      local text, status = run("local STORE = 'nccl'\n" .. OVERLAPS, { CUDASIM_SEED = seed })
      assert.equal("4\n4\n2\n2\n", text:match("^[%d\n]*"))  -- forward, a bucket each
      assert.equal(3, select(2, text:gsub("fc%d_weight\t0\n", "")), text)
      assert.equal(0, status)
    end)
  end

  it("works with TYCHO_SYNC=1", function()
    local text, status = run(WAYS, { TYCHO_SYNC = 1 })
    assert.matches("updated\t0 1, 0 1\t8 6, 8 6\n", text, 1, true)
    assert.equal(0, status, text)
  end)

  it("names each call that fails, leaves nothing, and a new store works", function()
    local calls = "ncclGetUniqueId:1 ncclGroupStart:3 ncclGroupEnd:3 ncclCommInitRank:2 "
      .. "ncclAllReduce:4 ncclBroadcast:4 ncclWork:4 cuEventRecord:16 cuStreamWaitEvent:8"
    local text, status = run(("local CALLS = %q\n"):format(calls) .. FAILS)
    assert.equal("clean\n", text)
    assert.equal(0, status)
  end)

  it("reports a stream that cannot be made, and the next store works", function()
    for n = 9, 10 do                                     -- each GPU has made four
      local text = run(STORE .. [[
        local x = pair{1, 2}
        for _ = 1, 2 do
          local good, e = pcall(function()
            local kv = store()
            kv:init("w", ty.nd.zeros{2})
            kv:push("w", x)
            ty.nd.waitall()
          end)
          print(good or e)
        end
      ]], { CUDASIM_FAIL = ("cuStreamCreate:%d:999"):format(n) })
      assert.matches("gpu%(%d%): making a stream: [^\n]*\n.*\ntrue\n$", text)
    end
  end)

  it("keeps the failure of a group", function()
    local text = run(STICKS, { CUDASIM_FAIL = "ncclAllReduce:2:3" })
    assert.matches("^[^\n]*NCCL: ncclAllReduce: internal error %(3%)", text)
    local _, again = text:gsub("group of GPUs has ended: NCCL: ncclAllReduce: internal error", "")
    assert.equal(2, again, text)
  end)

  it("gets failures that come late", function()
    local text = run(STICKS, { CUDASIM_FAIL = "ncclWork:3:6" })
    assert.matches("^2 4, 2 4\n[^\n]*NCCL: a sum or broadcast over GPUs: remote process "
      .. "exited or network error %(6%)", text)
  end)
end)

-- What is missing ---------------------------------------------------------------------------------

describe_there("without NCCL", function()
  local USE = [[print(select(2, pcall(require("tycho").kv.create, "nccl")))]]

  it("the store says so", function()
    local text, status = run(USE, { TYCHO_DISABLE = "nccl" })
    assert.matches("TYCHO_DISABLE switches NCCL off", text, 1, true)
    assert.equal(0, status)
  end)

  it("the store says that it does not answer, or is too old", function()
    assert.matches("NCCL does not answer", run(USE, { CUDASIM_NCCL = 0 }), 1, true)
    assert.matches("this is NCCL 2.9; at least %d", (run(USE, { CUDASIM_NCCL = 20905 })))
  end)

  it("the store says what to install", function()
    shell.with_file(USE, function(script)
      local text = stand_in.run_alone(("TYCHO_CUDA_PATH=/nowhere %s %s"):format(shell.program,
        script))
      if not text then
        pending("the system's libraries of CUDA cannot be hidden")
        return
      end
      assert.matches("NCCL, which adds over several GPUs, was not found; tried libnccl.so.2 in "
        .. "/nowhere %(TYCHO_CUDA_PATH%), the system's folders.*nvidia%-nccl%-cu13.*libnccl2", text)
    end)
  end)

  it("tycho --platform says which there is, or why there is none", function()
    local line = "%s TYCHO_CUDA_PATH=build/cudasim " .. shell.program .. " --platform"
    assert.matches("\nNCCL        2%.28%.3\n", (shell.run(line:format(""))))
    assert.matches("\nNCCL        no: TYCHO_DISABLE switches NCCL off\n",
      (shell.run(line:format("TYCHO_DISABLE=nccl"))))
  end)
end)

-- Processes ---------------------------------------------------------------------------------------

local MPI = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TYCHO_THREADS=1 \z
  CUDASIM_STRICT=1 CUDASIM_DEVICES=4 TYCHO_CUDA_PATH=build/cudasim TYCHO_CACHE=$(mktemp -d) %s; \z
  timeout 120 mpirun --oversubscribe -n 2 %s %s 2>&1; s=$?; rm -rf \"$TYCHO_CACHE\"; (exit $s)"

local function processes(script, settings)
  local output, status
  shell.with_file(script, function(path)
    output, status = shell.run(MPI:format(settings or "", shell.program, path))
  end)
  return output, status
end

-- Each rank has one of two batches in a row, on one or two GPUs of its own.
local RANKS = TRAIN .. [[
local kv = ty.kv.create("dist_sync")
local contexts = {ty.gpu(kv.rank)}
if EACH == 2 then
  contexts = {ty.gpu(2 * kv.rank), ty.gpu(2 * kv.rank + 1)}
end
local got = train(contexts, kv, {batch = 8})
local texts = {}
for _, name in ipairs{"fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"} do
  texts[#texts + 1] = got[name]:as_in_context(ty.cpu(0)):tostring_raw()
end
local all = kv._group:gather(table.concat(texts))
if kv.rank == 0 then
  local groups = 0
  for _ in pairs(kv._groups) do groups = groups + 1 end
  print("by NCCL", kv._by_nccl, groups, "equal", all[1] == all[2], "close",
    distance(got, train(ty.cpu(0), ty.null)) < 1e-5)
end
]]

local describe_processes = stand_in.exists() and describe or function() end
describe_processes("processes with GPUs", function()
  local with_mpi = mpi.it(it, pending)

  for each = 1, 2 do
    with_mpi(("train as one does, %d GPUs for each of two ranks"):format(each), function()
      local text, status = processes(("local EACH = %d\n"):format(each) .. RANKS)
      assert.matches("by NCCL\ttrue\t1\tequal\ttrue\tclose\ttrue\n", text, 1, true)
      assert.equal(0, status, text)
    end)
  end

  with_mpi("go by way of the host where a rank has no NCCL, and say so", function()
    local text, status = processes("local EACH = 1\n" .. RANKS:gsub('"error"', '"info"'),
      "TYCHO_DISABLE=nccl")
    assert.matches("sums over GPUs go through the hosts' memory: rank 0: .*NCCL off", text)
    assert.matches("by NCCL\tfalse\t0\tequal\ttrue\tclose\ttrue\n", text, 1, true)
    assert.equal(0, status, text)
  end)

  with_mpi("end together when one of them ends inside a sum", function()
    local text, status = processes([[
      local ty = require "tycho"
      local kv = ty.kv.create("dist_sync")
      kv:init("w", ty.nd.zeros{2})
      local x = ty.nd.ones{2, ctx = ty.gpu(kv.rank)}
      kv:push("w", x)
      ty.nd.waitall()
      if kv.rank == 1 then
        Last = newproxy(true)           -- Lua's end takes long: the group is not left before the word
        getmetatable(Last).__gc = function() os.execute("sleep 1") end
        error("enough")
      end
      kv:push("w", x)
      ty.nd.waitall()
      print("never")]])
    assert.are_not.equal(0, status)
    assert.matches("rank 1 of 2: the script failed", text, 1, true)
    assert.is_nil(text:find("never", 1, true))
  end)

  with_mpi("get an error for a GPU that two ranks take", function()
    local text, status = processes([[
      local ty = require "tycho"
      local kv = ty.kv.create("dist_sync")
      kv:init("w", ty.nd.zeros{2})
      kv:push("w", ty.nd.ones{2, ctx = ty.gpu(0)})]])
    assert.are_not.equal(0, status)
    assert.matches("NCCL: .*invalid usage", text)
  end)
end)
