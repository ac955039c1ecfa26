-- Stores of several ranks: as threads of this process, and as processes that mpirun starts.

local comm = require "tycho.kvstore.comm"
local dist = require "tycho.kvstore.dist"
local folder = require "spec.support.folder"
local ranks = require "spec.support.ranks"
local mpi = require "spec.support.mpi"
local shell = require "spec.support.shell"
local ty = require "tycho"

local function make_stores(n, name)
  local stores = {}
  for r, group in ipairs(comm.group(n)) do
    stores[r] = dist.DistStore(name or "dist_sync", group)
  end
  return stores
end

-- Returns the value of a key in each store.
local function pull_values(stores, key, shape)
  local list = {}
  for r, kv in ipairs(stores) do
    local out = ty.nd.zeros(shape)
    kv:pull(key, { out = out })
    list[r] = out:totable()
  end
  return list
end

describe("a store of several ranks", function()
  it("knows its rank and how many there are", function()
    local stores = make_stores(3)
    assert.same({ 0, 1, 2 }, { stores[1].rank, stores[2].rank, stores[3].rank })
    assert.equal(3, stores[2].num_workers)
    assert.equal("<KVStore dist_sync, rank 1 of 3, 0 keys>", tostring(stores[2]))
  end)

  it("begins with the values of rank 0", function()
    local stores = make_stores(3)
    for r, kv in ipairs(stores) do
      kv:init("w", ty.nd.full({ 2 }, r, { ctx = kv._home }))
    end
    assert.same({ { 1, 1 }, { 1, 1 }, { 1, 1 } }, pull_values(stores, "w", { 2 }))
  end)

  it("adds what devices and ranks push, and leaves it as it is", function()
    local stores, pushed = make_stores(2), {}
    for r, kv in ipairs(stores) do
      kv:init("w", ty.nd.zeros{ 2 })
      pushed[r] = { ty.nd.full({ 2 }, r, { ctx = kv._home }),
        ty.nd.full({ 2 }, 10 * r, { ctx = ty.cpu(2 + r) }) }
      kv:push("w", pushed[r])
    end
    assert.same({ { 33, 33 }, { 33, 33 } }, pull_values(stores, "w", { 2 }))
    assert.same({ 2, 2 }, pushed[2][1]:totable())
  end)

  it("makes the same update on all ranks", function()
    local stores = make_stores(2)
    for r, kv in ipairs(stores) do
      kv:set_optimizer(ty.optimizer.SGD{ learning_rate = 0.5, rescale_grad = 1 })
      kv:init("w", ty.nd.full({ 2 }, 10, { ctx = kv._home }))
      kv:push("w", ty.nd.full({ 2 }, r, { ctx = kv._home }))
    end
    assert.same({ { 8.5, 8.5 }, { 8.5, 8.5 } }, pull_values(stores, "w", { 2 }))
  end)

  it("takes many keys of several types as few messages", function()
    local stores = make_stores(2)
    local keys, types = { "a", "b", "c", "d" }, { "float32", "float64", "float32", "int32" }
    local outs = {}
    for r, kv in ipairs(stores) do
      local values = {}
      outs[r] = {}
      for i, dtype in ipairs(types) do
        values[i] = ty.nd.full({ i }, i * r, { dtype = dtype, ctx = kv._home })
        outs[r][i] = ty.nd.zeros({ i }, { dtype = dtype, ctx = kv._home })
        kv:init(keys[i], outs[r][i])
      end
      kv:pushpull(keys, values, { out = outs[r] })
    end
    for r = 1, 2 do
      for i = 1, 4 do
        assert.equal(3 * i, outs[r][i]:reshape{ -1 }[0]:asscalar())
      end
    end
  end)

  it("sends two bits of each element and keeps the rest for the next time", function()
    local stores = make_stores(2)
    for _, kv in ipairs(stores) do
      kv:set_gradient_compression{ type = "2bit", threshold = 0.5 }
      kv:init("w", ty.nd.zeros{ 4 })
    end
    local first = { { 0.6, -0.7, 0.2, 0 }, { 0.1, -0.5, 0.3, 1.4 } }
    for r, kv in ipairs(stores) do
      kv:push("w", ty.nd.array(first[r]))
    end
    assert.same({ 0.5, -1, 0, 0.5 }, pull_values(stores, "w", { 4 })[1])
    for _, kv in ipairs(stores) do
      kv:push("w", ty.nd.array{ 0, 0, 0.25, 0 })
    end
    assert.same({ { 0, 0, 0.5, 0.5 }, { 0, 0, 0.5, 0.5 } }, pull_values(stores, "w", { 4 }))
  end)

  for _, wire in ipairs{ "float16", "bfloat16" } do
    it("sends " .. wire .. " where it is asked to", function()
      local stores = make_stores(2)
      for r, kv in ipairs(stores) do
        kv:init("w", ty.nd.zeros{ 2 })
        kv:set_gradient_compression{ type = wire }
        kv:push("w", ty.nd.array{ 1 + 2 ^ -14, r })
      end
      assert.same({ { 2, 3 }, { 2, 3 } }, pull_values(stores, "w", { 2 }))
    end)
  end

  it("refuses another type of compression", function()
    local kv = make_stores(1)[1]
    assert.raises("value", kv.set_gradient_compression, kv, { type = "1bit" })
  end)

  it("is refused where no launcher has started the process", function()
    if comm.is_launched() then
      pending("started by a launcher")
      return
    end
    local ok, e = pcall(ty.kv.create, "dist_sync")
    assert.is_false(ok)
    assert.truthy(tostring(e):find("mpirun -n 2", 1, true))
  end)

  it("of type dist_async updates in step, and says so once", function()
    local lines, log = {}, require "tycho.core.log"
    log.sink = function(_, text)
      lines[#lines + 1] = text
    end
    make_stores(2, "dist_async")
    log.sink = nil
    assert.equal(1, #lines)
    assert.truthy(lines[1]:find("dist_sync", 1, true))
  end)

  it("reads the gradients of its own device where they are, and leaves them as they are", function()
    local stores, grads = make_stores(2), {}
    for r, kv in ipairs(stores) do
      kv:init({ "a", "b" }, { ty.nd.zeros{ 3 }, ty.nd.zeros{ 300, 300 } })
      grads[r] = { ty.nd.full({ 3 }, r, { ctx = kv._home }),
        ty.nd.full({ 300, 300 }, 10 * r, { ctx = kv._home }) }
      kv:push({ "a", "b" }, grads[r])
    end
    assert.same({ { 3, 3, 3 }, { 3, 3, 3 } }, pull_values(stores, "a", { 3 }))
    assert.equal(30, pull_values(stores, "b", { 300, 300 })[2][300][300])
    assert.same({ 2, 2, 2 }, grads[2][1]:totable())
    assert.equal(20, grads[2][2][299][299]:asscalar())
  end)

  it("sends the last keys first: a megabyte, 25 each, the front one alone", function()
    local kv = make_stores(1)[1]
    local keys, arrays = {}, {}
    for i = 1, 40 do
      keys[i], arrays[i] = "w" .. i, { ty.nd.zeros({ 2 ^ 18 }, { ctx = kv._home }) }
      kv:init(keys[i], arrays[i][1])
    end
    local found = kv:_buckets(keys, arrays)
    assert.same({ 0, 1, 1, 1, 2 }, { found.w40, found.w39, found.w30, found.w15, found.w14 })
    assert.same({ 2, 3 }, { found.w2, found.w1 })
    kv:set_gradient_compression{ type = "2bit" }
    kv:init("short", ty.nd.zeros({ 2 }, { ctx = kv._home }))
    assert.is_nil(kv:_buckets({ "short" }, { { ty.nd.zeros({ 2 }, { ctx = kv._home }) } }))
  end)

  it("refuses updates inside backward of gradients that add up", function()
    local kv = make_stores(1)[1]
    local m = ty.mod.Module(ty.sym.LinearRegressionOutput{
      ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 1, name = "fc" },
      ty.sym.Variable("label"), name = "out" }, { label_names = { "label" }, context = kv._home })
    m:bind{ data_shapes = { { "data", { 2, 3 } } }, label_shapes = { { "label", { 2, 1 } } },
      grad_req = "add" }
    m:init_params()
    m:init_optimizer{ kvstore = kv, in_backward = true }
    local ok, e = pcall(m.forward, m, ty.io.DataBatch{ data = { ty.nd.ones{ 2, 3 } },
      label = { ty.nd.ones{ 2, 1 } } })
    assert.is_false(ok)
    assert.truthy(tostring(e):find("'fc_weight' is used inside backward, and cannot add up", 1,
      true), tostring(e))
  end)

  it("fails on all ranks where they do not do the same", function()
    local a, b = unpack(comm.group(2))
    local x, y = ty.nd.ones({ 3 }, { ctx = a.context }), ty.nd.ones({ 4 }, { ctx = b.context })
    a:sum{ x }
    b:sum{ y }
    for _, array in ipairs{ x, y } do
      local ok, e = pcall(array.totable, array)
      assert.is_false(ok)
      local want = "a sum of 12 bytes (float32) on rank 0, a sum of 16 bytes (float32) on rank 1"
      assert.truthy(tostring(e):find("message 0 is " .. want, 1, true), tostring(e))
    end
  end)

  -- Returns the profile of two ranks' sum.
  local function profile_of_sum()
    local path = os.tmpname()
    ty.profiler.set_config{ filename = path, profile_all = true }
    ty.profiler.set_state("run")
    local sums = {}
    for r, group in ipairs(comm.group(2)) do
      sums[r] = ty.nd.ones({ 5 }, { ctx = group.context })
      group:sum{ sums[r] }
      sums[r] = sums[r] * 2                              -- waits in the queue of cpu(r)
    end
    assert.same({ 4, 4, 4, 4, 4 }, sums[1]:totable())
    assert.same({ 4, 4, 4, 4, 4 }, sums[2]:totable())
    ty.profiler.set_state("stop")
    ty.profiler.dump()
    local file = assert(io.open(path))
    local text = file:read("*a")
    file:close()
    os.remove(path)
    return text
  end

  it("is seen by the profiler: what it sends, and who waits for that", function()
    local waits = false
    for _ = 1, 50 do                  -- a sum that is there before its reader runs makes no wait
      local text = profile_of_sum()
      assert.truthy(text:find('"name": "sum", "cat": "comm"', 1, true))
      assert.truthy(text:find('"comm/', 1, true))
      waits = text:find('"name": "wait for comm(', 1, true) ~= nil
      if waits then
        break
      end
    end
    assert.is_true(waits)
  end)

  for _, case in ipairs{ "lenet", "lstm" } do
    for _, way in ipairs{ "by update", "inside backward" } do
      it(("trains as one process with as many contexts does, %s: %s"):format(way, case), function()
        local modules, lines = {}, {}
        for r, kv in ipairs(make_stores(2)) do
          modules[r] = ranks.train(case, 2, kv, way == "inside backward")
        end
        for r, m in ipairs(modules) do
          lines[r] = ranks.lines(m)
        end
        local want = ranks.lines(ranks.train(case, 2))
        assert.equal(want, lines[1])
        assert.equal(want, lines[2])
      end)
    end
  end

  it("updates inside backward, with sums in the place of gradients", function()
    local stores, modules = make_stores(2), {}
    for r, kv in ipairs(stores) do
      modules[r] = ranks.start("lenet", { kv._home }, kv, 4, true)
    end
    local before, after = {}, {}
    for r, m in ipairs(modules) do
      before[r] = ranks.lines(m)
      m:forward_backward(ranks.pictures(1, 2, stores[r]))
    end
    for r, m in ipairs(modules) do
      after[r] = ranks.lines(m)                          -- no update so far
      m:update()
      assert.equal(after[r], ranks.lines(m))
      assert.are_not.equal(before[r], after[r])
      for _, entry in pairs(stores[r]._entries) do
        assert.is_nil(entry.buffer)
      end
    end
    assert.equal(after[1], after[2])
    local grads = modules[1]._exec_group.grad_arrays
    for k, list in ipairs(modules[2]._exec_group.grad_arrays) do
      assert.same(grads[k][1]:totable(), list[1]:totable())
    end
  end)
end)

-- Processes ---------------------------------------------------------------------------------------

-- One thread each, as each context of one process has: oneDNN's gradients of weights depend on it.
local RUN = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TYCHO_THREADS=1 \z
  timeout 120 mpirun --oversubscribe -n %d %s %s"

describe("processes over MPI", function()
  local with_mpi = mpi.it(it, pending)

  -- Returns the output of the ranks; MPI itself may warn of networks that it does not use.
  local function run(n, words, program)
    local noise = os.tmpname()
    local command = RUN:format(n, program or shell.program, words)
    local output, status = shell.run(command .. " 2> " .. noise)
    local file = io.open(noise)
    local errors = file:read("*a")
    file:close()
    os.remove(noise)
    assert.equal(0, status, output .. errors)
    return output
  end

  for _, case in ipairs{ "lenet", "resnet", "lstm", "fit" } do
    for _, n in ipairs{ 2, 4 } do
      with_mpi(("train as one process with %d contexts does: %s"):format(n, case), function()
        local words = "spec/support/ranks.lua " .. case
        local one = shell.run(("TYCHO_THREADS=1 %s %s one %d"):format(shell.program, words, n))
        assert.equal(one, run(n, words))
      end)
    end
  end

  for case, what in pairs{ scaled = "with a scaled loss, a step left out", watched =
    "with a monitor" } do
    with_mpi(("train as contexts do while sums are held up, %s"):format(what), function()
      local words = "spec/support/ranks.lua " .. case
      local one = shell.run(("TYCHO_THREADS=1 %s %s one 2"):format(shell.program, words))
      assert.truthy(one:find(case == "scaled" and "skipped 2, scale 8192" or "seen %d"), one)
      assert.equal(one, run(2, words))
    end)
  end

  for _, n in ipairs{ 2, 4 } do
    with_mpi(("train as %d contexts do, with updates inside backward"):format(n), function()
      local words = "spec/support/ranks.lua resnet"
      local one = shell.run(("TYCHO_THREADS=1 %s %s one %d"):format(shell.program, words, n))
      assert.equal(one, run(n, words .. " in_backward"))
    end)
  end

  with_mpi("get messages of all types and sizes right", function()
    assert.equal("100 messages\n", run(3, "spec/support/ranks.lua messages 100"))
  end)

  with_mpi("add inside their hosts first, here two of two each", function()
    local words = "-x TYCHO_COMM_PER_HOST=2 " .. shell.program .. " spec/support/ranks.lua "
    assert.equal("60 messages\n", run(4, words .. "messages 60", ""))
    folder.with(function(path)
      local one, both = path .. "/one", path .. "/both"
      local output, status = shell.run(("TYCHO_THREADS=1 %s spec/support/ranks.lua lenet one 4 \z
        save %s"):format(shell.program, one))
      assert.equal(0, status, output)
      assert.are_not.equal(output, run(4, words .. "lenet save " .. both, ""))
      ranks.check_near(one, both)
    end)
  end)

  with_mpi("get 1,000 messages of all types and sizes right #slow", function()
    assert.equal("1000 messages\n", run(3, "spec/support/ranks.lua messages 1000"))
  end)

  for what, words in pairs{ ["short"] = "uneven", ["missing on some ranks"] = "uneven parts" } do
    with_mpi(("end their epochs together where last batches are %s"):format(what), function()
      assert.truthy(run(2, "spec/support/ranks.lua " .. words):find("conv1_weight", 1, true))
    end)
  end

  with_mpi("divide their host's cores where they are not bound", function()
    local threads = shell.run("nproc")
    local ask = "-e 'print(require(\"tycho.core.ffi\").C.ty_threads(0))'"
    local output = shell.run(("OMPI_COMM_WORLD_LOCAL_SIZE=2 %s %s"):format(shell.program, ask))
    assert.equal(math.max(1, math.floor(tonumber(threads) / 2)), tonumber(output))
    output = shell.run(("TYCHO_THREADS=3 OMPI_COMM_WORLD_LOCAL_SIZE=2 %s %s"):format(shell.program,
      ask))
    assert.equal(3, tonumber(output))
  end)

  with_mpi("that part get an error with the place", function()
    local output, status = shell.run(RUN:format(2, shell.program, "-e \z
      'local kv = require(\"tycho\").kv.create(\"dist_sync\") \z
       if kv.rank == 1 then kv:barrier() else kv._group:gather(\"x\") end'"))
    assert.are_not.equal(0, status)
    assert.truthy(output:find("ranks have parted: message 0 is a gather of 16 bytes", 1, true),
      output)
  end)

  with_mpi("end together when one script fails", function()
    local output, status = shell.run(RUN:format(3, shell.program, "-e \z
      'local kv = require(\"tycho\").kv.create(\"dist_sync\") \z
       if kv.rank == 1 then error(\"enough\") end kv:barrier() print(\"never\")'"))
    assert.are_not.equal(0, status)
    assert.truthy(output:find("rank 1 of 3: the script failed", 1, true), output)
    assert.falsy(output:find("never", 1, true))
  end)

  with_mpi("that do not run the same get an error with what differs", function()
    local output, status = shell.run(RUN:format(2, shell.program, "-e \z
      'local kv = require(\"tycho\").kv.create(\"dist_sync\") \z
       kv:check_same(\"symbols\", \"one\\n\" .. kv.rank)'"))
    assert.are_not.equal(0, status)
    assert.truthy(output:find("ranks do not run the same symbols", 1, true), output)
    assert.truthy(output:find("on rank 1: 1", 1, true), output)
  end)

  -- Runs ranks of which one is stopped or killed: `command` gets the process id of rank 1.
  local function lose_a_rank(command)
    return shell.run(("TYCHO_COMM_PATIENCE=2 " .. RUN):format(3, shell.program, "-e \z
      'local ty = require(\"tycho\") local kv = ty.kv.create(\"dist_sync\") \z
       require(\"tycho.kvstore.comm\").note(\"epoch 3\") kv:barrier() \z
       if kv.rank == 1 then os.execute(\"" .. command .. "\") end \z
       for _ = 1, 2000 do kv:barrier() os.execute(\"sleep 0.01\") end'"))
  end

  with_mpi("end where one is stopped while the others are done", function()
    local output, status = shell.run(("TYCHO_COMM_PATIENCE=2 " .. RUN):format(3, shell.program,
      "-e 'local kv = require(\"tycho\").kv.create(\"dist_sync\") \z
       if kv.rank == 1 then os.execute(\"kill -STOP $PPID\") end'"))
    assert.are_not.equal(0, status)
    assert.truthy(output:find("rank 1 has been silent", 1, true), output)
  end)

  with_mpi("end where one is stopped before all have started #slow", function()
    local output, status = shell.run(RUN:format(3, shell.program,
      "-e 'if os.getenv(\"OMPI_COMM_WORLD_RANK\") == \"1\" then \z
       os.execute(\"kill -STOP $PPID\") end \z
       require(\"tycho\").kv.create(\"dist_sync\")'"))
    assert.are_not.equal(0, status)
    assert.truthy(output:find("not all ranks have started within 25 s: rank 1 is stopped", 1, true),
      output)
  end)

  for when, call in pairs{
    ["while MPI ends"] = "stop(); return PMPI_Finalize();",
    ["when MPI has ended"] = "int code = PMPI_Finalize(); sleep(1); stop(); return code;" } do
    with_mpi(("end where one is stopped %s #slow"):format(when), function()
      folder.with(function(path)
        local file = assert(io.open(path .. "/stop.c", "w"))
        file:write([[
          #include <mpi.h>
          #include <signal.h>
          #include <stdlib.h>
          #include <unistd.h>
          static void stop(void)
          {
            if (*getenv("OMPI_COMM_WORLD_RANK") == '1') raise(SIGSTOP);
          }
          int MPI_Finalize(void) { ]] .. call .. " }\n")
        file:close()
        local output, status = shell.run(("mpicc -shared -fPIC %s/stop.c -o %s/stop.so"):format(
          path, path))
        assert.equal(0, status, output)
        output, status = shell.run(RUN:format(3, ("-x LD_PRELOAD=%s/stop.so %s"):format(path,
          shell.program), "-e 'require(\"tycho\").kv.create(\"dist_sync\")'"))
        assert.are_not.equal(0, status)
        assert.truthy(output:find("the ranks are done, but rank 1 does not end: it is stopped", 1,
          true), output)
      end)
    end)
  end

  for what, command in pairs{ stopped = "kill -STOP $PPID", killed = "kill -KILL $PPID" } do
    with_mpi(("end with a word on the rank and the last checkpoint when one is %s"):format(what),
      function()
        local from = os.time()
        local output, status = lose_a_rank(command)
        assert.are_not.equal(0, status)
        assert.is_true(os.time() - from < 100)         -- 4 s on an idle machine
        assert.truthy(output:find("rank 1 ", 1, true), output)
        assert.truthy(output:find("the last checkpoint: epoch 3", 1, true), output)
      end)
  end
end)
