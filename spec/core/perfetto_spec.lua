-- Traces in Perfetto's format: read back by a decoder of our own and, where Python has it, by the
-- messages of Perfetto's package, and compared with the JSON they come from.

local device = require "spec.support.device"
local folder = require "spec.support.folder"
local protobuf = require "spec.support.protobuf"
local shell = require "spec.support.shell"
local support = require "spec.support.trace"
local ty = require "tycho"
require "spec.helper"

local profiler = ty.profiler
local KIND = device.is_gpu and "gpu" or "cpu"
local KERNEL = device.is_gpu and "cublaslt" or "gemm"
local TYPES = { B = 1, b = 1, E = 2, e = 2, i = 3, C = 4 }

-- Returns tracks by number, and events in order.
local function read(path)
  local tracks, events = {}, {}
  for i, bytes in ipairs(protobuf.read(folder.read(path)).all[1]) do
    local packet = protobuf.read(bytes)
    assert.equal(1, packet[10])
    assert.equal(i == 1 and 1 or nil, packet[13])
    if packet[60] then
      local t = protobuf.read(packet[60])
      tracks[t[1]] = { name = t[2] or t[3] and protobuf.read(t[3])[6]
        or protobuf.read(t[4])[5], parent = t[5], counter = t[8] ~= nil }
    else
      local e = protobuf.read(packet[11])
      assert.truthy(tracks[e[11]], "an event before its track")
      local notes = {}
      for _, note in ipairs(e.all[4] or {}) do
        local n = protobuf.read(note)
        notes[n[10]] = n[6] or n[4]
      end
      events[#events + 1] = { ns = packet[8], type = e[9], track = e[11], name = e[23],
        category = e[22], value = e[30], notes = notes }
    end
  end
  return tracks, events
end

local function traced()
  return support.traced({}, function()
    local exe = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 2, name = "fc" }
      :simple_bind{ ctx = ty.cpu(), data = { 4, 3 } }
    exe:forward()
    exe.outputs[1]:totable()
    local domain = profiler.Domain "own"
    local task, counter = profiler.Task(domain, "long"), profiler.Counter(domain, "left", 3)
    task:start()
    counter:set_value(-2)
    profiler.Marker(domain, "here"):mark()
    task:stop()
  end)
end

describe("profiler.save_perfetto", function()
  local path = os.tmpname()
  local json, tracks, events

  setup(function()
    json = traced()
    profiler.save_perfetto(path, support.path)
    tracks, events = read(path)
  end)
  teardown(function()
    os.remove(path)
    os.remove(support.path)
  end)

  it("has the events of the JSON, in order", function()
    local at = 0
    for _, e in ipairs(json.traceEvents) do
      if e.ph ~= "M" then
        at = at + 1
        local own = events[at]
        assert.equal(TYPES[e.ph], own.type)
        assert.near(e.ts * 1000, own.ns, 0.5)
        if e.ph ~= "E" and e.ph ~= "e" then
          assert.same({ e.name, e.cat }, { own.name, own.category })
        end
        if e.ph == "C" then
          assert.equal(e.args.value, own.value)
        elseif e.ph == "B" then
          assert.same(e.args, own.notes)
        end
      end
    end
    assert.equal(#events, at)
    assert.truthy(at > 5)
  end)

  it("has a track for each thread, task and counter below its device", function()
    local found = {}
    for _, e in ipairs(events) do
      local track = tracks[e.track]
      found[track.name] = tracks[track.parent].name
      assert.equal(e.type == 4, track.counter)
    end
    assert.equal("host", found.long)
    assert.equal("host", found.left)
    assert.equal(KIND .. "/0", found[("Memory: %s(0)"):format(KIND)])
  end)

  it("is what Perfetto's package reads", function()
    local python = os.getenv("TYCHO_PERFETTO_PYTHON") or "python3"
    local output, status = shell.run(("%s spec/support/perfetto_read.py %s 2>/dev/null")
      :format(python, path))
    if status ~= 0 then
      return pending("no Python with perfetto (TYCHO_PERFETTO_PYTHON names one)")
    end
    for _, want in ipairs{ "track " .. KIND .. "/0 in none", "track long in host",
        "event TYPE_SLICE_BEGIN %d+ thread %d+ FullyConnected operator 0 %[.*'kernel', '" .. KERNEL,
        "event TYPE_COUNTER %d+ left left own %-2", "event TYPE_INSTANT %d+ thread %d+ here own",
        "event TYPE_SLICE_END %d+ long" } do
      assert.truthy(output:find(want), want .. " in\n" .. output)
    end
    assert.equal(#events, select(2, output:gsub("event TYPE_", "")))
  end)

  it("refuses what is no trace, and leaves no file", function()
    folder.with(function(dir)
      local out = dir .. "/out"
      assert.raises("io", profiler.save_perfetto, out, dir .. "/none")
      for _, text in ipairs{ "hello\n", "{}\n", '{"traceEvents": [\n{"name": 1},\n',
          '{"traceEvents": [\n{"name": "x", "ph": "C", "ts": 1, "pid": 0, "tid": 0, "cat": "c"}\n',
          '{"traceEvents": [\n{"name": }\n' } do
        folder.write(dir .. "/bad", text)
        assert.raises("format", profiler.save_perfetto, out, dir .. "/bad")
        assert.is_nil(io.open(out))
      end
    end)
  end)
end)
