--- Reads traces of the profiler, for its specs.

local cjson = require "cjson"
local assert = require "luassert"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local ty = require "tycho"

local profiler = ty.profiler

local trace = {}

trace.path = os.tmpname() .. ".json"

function trace.exists(name) return lfs.attributes(name) ~= nil end

function trace.read(name) return cjson.decode(folder.read(name)) end

-- Runs f with the profiler on, with sums reset; returns the trace.
function trace.traced(options, f)
  options.filename, options.aggregate_stats = trace.path, true
  ty.waitall()
  profiler.set_config(options)
  profiler.dumps{ reset = true }
  profiler.set_state("run")
  f()
  ty.waitall()
  profiler.set_state("stop")
  profiler.dump()
  return trace.exists(trace.path) and trace.read(trace.path) or nil
end

-- Returns the pairs of B and E as {name, cat, args, ns, pid, tid}; checks that they are nested and
-- that time does not decrease.
function trace.spans(of)
  local open, list = {}, {}
  for _, e in ipairs(of.traceEvents) do
    local lane = e.pid .. "/" .. tostring(e.tid)
    local stack = open[lane] or {}
    open[lane] = stack
    if e.ph == "B" then
      assert.truthy(not stack[1] or e.ts >= stack[#stack].ts)
      stack[#stack + 1] = e
    elseif e.ph == "E" then
      local begin = table.remove(stack)
      assert.equal(begin.name, e.name)
      assert.truthy(e.ts >= begin.ts)
      list[#list + 1] = { name = e.name, cat = e.cat, args = begin.args,
        ns = (e.ts - begin.ts) * 1000, pid = e.pid, tid = e.tid }
    end
  end
  for _, stack in pairs(open) do
    assert.equal(0, #stack)
  end
  return list
end

function trace.of_category(list, category)
  local part = {}
  for _, s in ipairs(list) do
    if s.cat == category then
      part[#part + 1] = s
    end
  end
  return part
end

function trace.with_phase(of, phase)
  local list = {}
  for _, e in ipairs(of.traceEvents) do
    if e.ph == phase then
      list[#list + 1] = e
    end
  end
  return list
end

return trace
