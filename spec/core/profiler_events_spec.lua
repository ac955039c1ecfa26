-- The profiler: a user's own events, and TYCHO_PROFILE.

local cjson = require "cjson"
local device = require "spec.support.device"
local shell = require "spec.support.shell"
local support = require "spec.support.trace"
local ty = require "tycho"

local profiler = ty.profiler
local path, exists, read, traced, spans, of_category, with_phase =
  support.path, support.exists, support.read, support.traced, support.spans,
  support.of_category, support.with_phase

describe("own events", function()
  setup(device.leave)
  teardown(device.come_back)
  after_each(function() os.remove(path) end)

  it("appear in the trace and the table", function()
    local domain = profiler.Domain("training")
    local trace =
      traced({ profile_imperative = false, profile_memory = false, profile_api = false }, function()
        local task, frame, event =
          profiler.Task(domain, "load"), profiler.Frame(domain, "batch"), profiler.Event("setup")
        task:start()
        frame:start()
        task:stop()                                        -- tasks may overlap
        frame:stop()
        event:start():stop()
        local counter = profiler.Counter(domain, "samples", 5)
        counter:increment()
        counter:decrement(2)
        counter:set_value(40)
        assert.equal(40, counter.value)
        profiler.Marker(domain, "here"):mark("thread")
        profiler.Marker(domain, "there"):mark()
      end)
    local begun, ended = with_phase(trace, "b"), with_phase(trace, "e")
    assert.equal(3, #begun)
    local by_id = {}
    for _, e in ipairs(begun) do
      by_id[e.id] = e
    end
    for _, e in ipairs(ended) do
      assert.equal(by_id[e.id].name, e.name)
      assert.truthy(by_id[e.id].ts <= e.ts)
      by_id[e.id] = nil
    end
    assert.same({}, by_id)
    local values = {}
    for i, e in ipairs(with_phase(trace, "C")) do
      values[i] = e.args.value
    end
    assert.same({ 5, 6, 4, 40 }, values)
    local scopes = {}
    for _, e in ipairs(with_phase(trace, "i")) do
      scopes[e.name] = e.s
    end
    assert.same({ here = "t", there = "p" }, scopes)
    local found = cjson.decode(profiler.dumps{ format = "json" })
    assert.equal(1, found.Time.training.load.Count)
    assert.equal(1, found.Time.event.setup.Count)
    assert.same({ Count = 4, Total = 55, Min = 4, Max = 40, Avg = 13.75 }, found.Counter.samples)
    assert.is_nil(found.Time.training.here)
    assert.truthy(profiler.dumps():find("\ntraining\n", 1, true))
  end)

  it("escape their names", function()
    local trace = traced({}, function() profiler.Event('a "b"\n\\c'):start():stop() end)
    assert.equal('a "b"\n\\c', with_phase(trace, "b")[1].name)
  end)

  it("are quiet while the profiler is off", function()
    local domain = profiler.Domain("d")
    profiler.Task(domain, "t"):start():stop()
    profiler.Counter(domain, "n"):increment()
    profiler.Marker(domain, "m"):mark()
    profiler.set_config{ filename = path }
    profiler.dump()
    assert.is_false(exists(path))
  end)

  it("refuse bad use", function()
    local domain = profiler.Domain("d")
    local e = assert.raises("state", profiler.Task(domain, "t").stop, profiler.Task(domain, "t"))
    assert.truthy(tostring(e):find("start()", 1, true))
    assert.raises("type", profiler.Task, "d", "t")
    assert.raises("value", profiler.Event)
    assert.raises("value", profiler.Counter, domain, "n", 1.5)
    assert.raises("value", profiler.Marker(domain, "m").mark,
      profiler.Marker(domain, "m"), "everywhere")
  end)
end)

describe("TYCHO_PROFILE", function()
  setup(device.leave)
  teardown(device.come_back)
  local function run(variable, script)
    local folder = os.tmpname()
    os.remove(folder)
    local lua = (os.getenv("LUA_PATH") or ""):gsub("^%./", "$OLDPWD/"):gsub(";%./", ";$OLDPWD/")
    local output, status = shell.run(("mkdir %s && p=$(readlink -f %s) && l=$(readlink -f \z
      \"${TYCHO_LIB:-build/libtycho.so}\") && cd %s && "
      .. "TYCHO_LIB=$l LUA_PATH=\"%s\" %s $p -e '%s'"):format(folder, shell.program,
        folder, lua, variable, script))
    local trace = exists(folder .. "/profile.json") and read(folder .. "/profile.json") or nil
    shell.run("rm -r " .. folder)
    return trace, output, status
  end

  local SCRIPT = [[local ty = require "tycho"; local x = ty.nd.ones{ 4 } + 1; x:wait_to_read()]]

  it("1 records from the start and writes at exit, however that comes", function()
    for _, ending in ipairs{ "", " os.exit(0)", " os.exit(3, true)", " error(\"oops\")" } do
      local trace, output = run("TYCHO_PROFILE=1", SCRIPT .. ending)
      assert(trace, output)
      local names = {}
      for _, s in ipairs(spans(trace)) do
        names[s.name] = true
      end
      assert.is_true(names._plus_scalar)
    end
  end)

  it("0 or unset writes nothing", function()
    assert.is_nil((run("TYCHO_PROFILE=0", SCRIPT)))
    assert.is_nil((run("", SCRIPT)))
  end)

  it("1 lets a script stop it", function()
    local trace = run("TYCHO_PROFILE=1",
      [[local ty = require "tycho"; print(ty.profiler.state()); ty.profiler.set_state("stop"); ]]
        .. SCRIPT)
    local count = trace and #of_category(spans(trace), "imperative") or 0
    assert.equal(0, count)
  end)
end)
