-- The profiler (native/device/profile.c, native/exec/profile.c, core/profiler.lua).

local cjson = require "cjson"
local device = require "spec.support.device"
local support = require "spec.support.trace"
local ty = require "tycho"

local profiler, V = ty.profiler, ty.sym.Variable
local path, exists, read, traced, spans, of_category, with_phase =
  support.path, support.exists, support.read, support.traced, support.spans,
  support.of_category, support.with_phase

local function network()
  local net = ty.sym.FullyConnected{ V("data"), num_hidden = 16, name = "fc1" }
  net = ty.sym.relu{ net * 2 + 1, name = "r" }
  net = ty.sym.FullyConnected{ net, num_hidden = 4, name = "fc2" }
  return ty.sym.SoftmaxOutput{ net, name = "softmax" }
end

local function bound()
  return ty.name.NameManager():with(network):simple_bind{ ctx = ty.cpu(), data = { 8, 12 } }
end

describe("profiler", function()
  setup(device.leave)
  teardown(device.come_back)
  after_each(function()
    profiler.set_state("stop")
    os.remove(path)
  end)

  it("records each instruction with its nodes and its kernel", function()
    local exe = bound()
    local trace = traced({}, function()
      for _ = 1, 3 do
        exe:forward(true)
        exe:backward()
      end
    end)
    local list = of_category(spans(trace), "operator")
    assert.equal(3 * exe:stats().instructions, #list)
    local by_node = {}
    for _, s in ipairs(list) do
      by_node[s.args.node] = by_node[s.args.node] or s
      assert.equal(0, s.pid)
      assert.truthy(s.args.bytes > 0)
    end
    assert.equal("FullyConnected", by_node.fc1.name)
    assert.equal("_backward_FullyConnected", by_node.fc1_backward.name)
    local fused = by_node["_mulscalar0 _plusscalar0 r"] or {}
    assert.same({ "_mul_scalar+_plus_scalar+relu", "pointwise" }, { fused.name, fused.args.kernel })
    assert.equal((8 * 12 + 16 * 12 + 16 + 8 * 16) * 4, by_node.fc1.args.bytes)
  end)

  it("names long programs in short, copies, sums, and what a kernel does besides", function()
    local function operators(net, args, grads, req)
      local exe = net:bind{ ctx = ty.cpu(), args = args, args_grad = grads, grad_req = req }
      local found = {}
      for _, s in ipairs(of_category(spans(traced({}, function()
        exe:forward(true)
        exe:backward(ty.nd.ones(exe.outputs[1].shape))
      end)), "operator")) do
        found[#found + 1] = ("%s (%s) %s"):format(s.name, s.args.node, s.args.kernel or "")
      end
      return table.concat(found, "\n") .. "\n"
    end
    local x = V("x")
    local net = x
    for i = 1, 9 do net = ty.sym.sin{ net, name = "s" .. i } end
    local text = operators(net, { x = ty.nd.ones(2) }, {})
    assert.truthy(text:find("sin+sin+sin+sin+sin+sin+3 more (s1 s2 s3 s4 s5 s6 and 3 more) \z
      pointwise\n", 1, true), text)
    net = ty.sym.sin{ x + V("w"), name = "s" }
    text = operators(net, { x = ty.nd.ones(2), w = ty.nd.ones(2) },
      { x = ty.nd.ones(2), w = ty.nd.ones(2) }, { x = "write", w = "add" })
    assert.truthy(text:find("\ncopy (", 1, true) or text:find("\nadd (", 1, true), text)
    net = ty.sym.relu{ ty.sym.FullyConnected{ x, V("w"), no_bias = true, num_hidden = 3,
      name = "fc" }, name = "r" }
    text = operators(net, { x = ty.nd.ones{ 2, 2 }, w = ty.nd.ones{ 3, 2 } }, {})
    assert.truthy(text:find("FullyConnected (fc r) ", 1, true), text)
  end)

  it("sums the times of the trace", function()
    local exe = bound()
    local trace = traced({}, function()
      for _ = 1, 4 do
        exe:forward(true)
        exe:backward()
      end
      ty.nd.dot(ty.nd.ones{ 3, 3 }, ty.nd.ones{ 3, 3 }):wait_to_read()
    end)
    local want = {}
    for _, s in ipairs(spans(trace)) do
      local sum = want[s.cat .. " " .. s.name] or { 0, 0 }
      sum[1], sum[2] = sum[1] + 1, sum[2] + s.ns
      want[s.cat .. " " .. s.name] = sum
    end
    local found = cjson.decode(profiler.dumps{ format = "json" })
    local seen = 0
    for category, names in pairs(found.Time) do
      for name, sum in pairs(names) do
        local w = want[category .. " " .. name]
        assert.equal(w[1], sum.Count)
        assert.near(w[2] / 1e6, sum.Total, 2e-6 * w[1] + 1e-6)
        assert.near(sum.Total / sum.Count, sum.Avg)
        assert.truthy(sum.Min <= sum.Avg + 1e-9 and sum.Avg <= sum.Max + 1e-9)
        want[category .. " " .. name], seen = nil, seen + 1
      end
    end
    assert.same({}, want)
    assert.truthy(seen > 6)
    assert.same({ Time = "ms", Memory = "kB" }, found.Unit)
  end)

  it("shows calls in the host's lane and work in the device's", function()
    local exe = bound()
    local trace = traced({}, function() exe:forward(true) end)
    local names = {}
    for _, e in ipairs(with_phase(trace, "M")) do
      names[e.pid] = e.args.name
    end
    for _, s in ipairs(spans(trace)) do
      assert.equal(s.cat == "api" and "host" or "cpu/0", names[s.pid])
    end
    assert.equal("Executor:forward", of_category(spans(trace), "api")[1].name)
    assert.equal("ms", trace.displayTimeUnit)
  end)

  it("keeps devices apart", function()
    local trace = traced({ profile_api = false, profile_memory = false }, function()
      (ty.nd.ones({ 10000 }, { ctx = ty.cpu(0) }) + 1):wait_to_read();
      (ty.nd.ones({ 10000 }, { ctx = ty.cpu(1) }) + 1):wait_to_read()
    end)
    local lanes = {}
    for _, s in ipairs(spans(trace)) do
      lanes[s.pid .. " " .. s.name] = s.tid
    end
    assert.truthy(lanes["0 _plus_scalar"] and lanes["1 _plus_scalar"])
    if os.getenv("TYCHO_SYNC") ~= "1" then
      assert.not_equal(lanes["0 _plus_scalar"], lanes["1 _plus_scalar"])
    end
  end)

  it("shows a small call in the thread that makes it, as nothing is before it", function()
    ty.waitall()
    local trace = traced({ profile_memory = false, profile_api = true }, function()
      local exe = bound()
      exe:forward(true)
      exe.outputs[1]:wait_to_read()
      ty.waitall();
      (ty.nd.ones{ 4 } + 1):wait_to_read()
    end)
    local lanes = {}
    for _, s in ipairs(spans(trace)) do
      lanes[s.name] = s.tid
    end
    assert.equal(lanes["Executor:forward"], lanes["_plus_scalar"])
  end)

  it("records only what it was asked for", function()
    local exe = bound()
    local function categories(options)
      local set = {}
      for _, name in ipairs{ "symbolic", "imperative", "memory", "api" } do
        options["profile_" .. name] = options["profile_" .. name] or false
      end
      local trace = traced(options, function()
        exe:forward(true)
        local big = ty.nd.ones{ 1000 }
        big:free()
      end)
      for _, e in ipairs(trace and trace.traceEvents or {}) do
        set[e.cat or "name"] = true
      end
      set.name = nil
      return set
    end
    assert.same({ operator = true }, categories{ profile_symbolic = true })
    assert.same({ imperative = true }, categories{ profile_imperative = true })
    assert.same({ memory = true }, categories{ profile_memory = true })
    assert.same({ api = true }, categories{ profile_api = true })
    assert.same({ operator = true, imperative = true, memory = true, api = true },
      categories{ profile_all = true })
  end)

  it("counts bytes in use", function()
    local trace = traced({}, function()
      local x = ty.nd.zeros{ 1024, 1024 }
      x:wait_to_read()
      x:free()
    end)
    local values = {}
    for _, e in ipairs(with_phase(trace, "C")) do
      values[#values + 1] = e.args.value
    end
    local most, last = math.max(unpack(values)), values[#values]
    assert.truthy(most - last >= 4 * 1024 * 1024)
  end)

  it("leaves no file when nothing was recorded, and removes an old one", function()
    local file = assert(io.open(path, "w"))
    file:write("old")
    file:close()
    profiler.set_config{ filename = path }
    assert.is_false(exists(path))
    profiler.dump()
    assert.is_false(exists(path))
  end)

  it("removes no device, such as /dev/null", function()
    local device_path = os.tmpname()
    os.remove(device_path)
    assert.equal(0, os.execute("mkfifo " .. device_path))
    profiler.set_config{ filename = device_path }
    profiler.set_config{ filename = path }
    assert.equal(0, os.execute("test -p " .. device_path))
    os.remove(device_path)
  end)

  it("records nothing while it is paused or stopped", function()
    local exe = bound()
    local trace = traced({ profile_api = false, profile_memory = false }, function()
      exe:forward(true)
      ty.waitall()
      profiler.pause()
      assert.equal("pause", profiler.state())
      exe:forward(true)
      ty.waitall()
      profiler.resume()
      assert.equal("run", profiler.state())
      exe:forward(true)
      ty.waitall()
      profiler.set_state("stop")
      profiler.resume()
      exe:forward(true)
    end)
    local count = 0
    for _, s in ipairs(spans(trace)) do
      count = count + (s.args.node == "fc1" and 1 or 0)
    end
    assert.equal(2, count)
  end)

  it("writes whole JSON again and again", function()
    profiler.set_config{ filename = path, profile_memory = false }
    profiler.set_state("run")
    local exe, before = bound(), 0
    for _ = 1, 3 do
      exe:forward(true)
      profiler.dump(false)
      local n = #spans(read(path))
      assert.truthy(n > before)
      before = n
    end
    assert.equal("run", profiler.state())
    profiler.dump()
    assert.equal("stop", profiler.state())
    local n = #spans(read(path))
    exe:forward(true)
    profiler.dump()
    assert.equal(n, #spans(read(path)))
  end)

  it("writes while it runs, so that memory does not grow", function()
    profiler.set_config{ filename = path, dump_period = 1e-6,
      profile_memory = false, profile_api = false }
    local x = ty.nd.ones{ 4 }
    x:wait_to_read()
    profiler.set_state("run")
    for _ = 1, 20000 do
      x:add_(1)
    end
    ty.waitall()
    assert.is_true(exists(path))
    local n = #spans(read(path))
    assert.truthy(n >= 16000 and n < 20000)
    profiler.dump()
    local all = spans(read(path))
    assert.equal(20000, #all)
  end)

  it("does not change results", function()
    local function run()
      local exe = bound()
      for _, x in ipairs(exe.arg_arrays) do
        x[":"] = 0.125
      end
      local out = exe:forward(true)[1]:totable()
      exe:backward()
      return { out, exe.grad_dict.fc1_weight:totable() }
    end
    local want, got = run(), nil
    traced({}, function() got = run() end)
    assert.same(want, got)
  end)

  it("has the failed run too", function()
    local trace = traced({}, function()
      local exe = ty.sym.take{ V("a"), V("i"), mode = "raise", axis = 0 }:bind{ ctx = ty.cpu(),
        args = { a = ty.nd.ones{ 3, 2 }, i = ty.nd.array{ 7 } } }
      assert.is_false(pcall(function() exe:forward()[1]:wait_to_read() end))
    end)
    assert.truthy(trace)
    spans(trace)
  end)
end)

describe("table", function()
  setup(device.leave)
  teardown(device.come_back)
  -- Returns the rows of the table of functions: name, then count, total, min, max and avg as
  -- printed.
  local function find_rows(text)
    local list = {}
    for line in (text:match("Functions and copies.-\n%-+\n(.-)\n\n") .. "\n")
        :gmatch("([^\n]+)\n") do
      local name, count, total, min, max, avg =
        line:match("^(%S+)%s+(%d+)%s+(%S+)%s+(%S+)%s+(%S+)%s+(%S+)$")
      list[#list + 1] = { name = name, count = tonumber(count), total = tonumber(total),
        min = tonumber(min), max = tonumber(max), avg = tonumber(avg) }
    end
    return list
  end

  -- Asserts that every row's value in this column is at most the one before it, or at least in
  -- ascending order.
  local function assert_sorted(rows, key, ascending)
    for i = 2, #rows do
      local a, b = rows[i - 1][key], rows[i][key]
      assert.truthy(ascending and a <= b or not ascending and a >= b,
        ("%s: %s before %s"):format(key, a, b))
    end
  end

  before_each(function()
    profiler.set_config{ filename = path, aggregate_stats = true }
    profiler.dumps{ reset = true }
    profiler.set_state("run")
    local big, small = ty.nd.ones{ 300, 300 }, ty.nd.ones{ 4 }
    for _ = 1, 9 do
      small:add_(1)
    end
    ty.nd.dot(big, big):wait_to_read()
    ty.waitall()
    profiler.set_state("stop")
    profiler.dump()
  end)
  after_each(function() os.remove(path) end)

  it("is sorted as asked", function()
    for _, key in ipairs{ "total", "avg", "min", "max", "count" } do
      local down, up = find_rows(profiler.dumps{ sort_by = key }),
        find_rows(profiler.dumps{ sort_by = key, ascending = true })
      assert.truthy(#down >= 3)
      assert.equal(#down, #up)
      assert_sorted(down, key, false)
      assert_sorted(up, key, true)
    end
    local down, up = find_rows(profiler.dumps{ sort_by = "count" }),
      find_rows(profiler.dumps{ sort_by = "count", ascending = true })
    assert.same({ "_plus_scalar", 9 }, { down[1].name, down[1].count })
    assert.equal("_plus_scalar", up[#up].name)
    assert.equal(profiler.dumps{ sort_by = "total" }, profiler.dumps())
  end)

  it("is emptied by reset", function()
    assert.truthy(profiler.dumps():find("dot", 1, true))
    assert.truthy(profiler.dumps{ reset = true }:find("dot", 1, true))
    assert.is_nil(profiler.dumps():find("dot", 1, true))
  end)

  it("refuses bad words and calls that make no sense", function()
    assert.raises("value", profiler.dumps, { sort_by = "luck" })
    assert.raises("value", profiler.dumps, { format = "xml" })
    assert.raises("value", profiler.set_state, "go")
    assert.raises("value", profiler.set_config, { dump_period = 0 })
    assert.raises("value", profiler.set_config, { filename = "" })
    assert.raises("name", profiler.set_config, { file_name = "x" })
    profiler.set_config{ filename = path }
    local e = assert.raises("state", profiler.dumps)
    assert.truthy(tostring(e):find("aggregate_stats = true", 1, true))
  end)

  it("is refused a file that cannot be written", function()
    profiler.set_config{ filename = "/nonexistent/p.json" }
    profiler.set_state("run")
    ty.nd.ones(2):wait_to_read()
    local e = assert.raises("io", profiler.dump)
    assert.truthy(tostring(e):find("/nonexistent/p.json", 1, true))
    profiler.set_config{ filename = path }
    profiler.dump()
    assert.is_true(exists(path))
  end)
end)
