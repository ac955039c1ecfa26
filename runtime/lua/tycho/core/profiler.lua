--- The profiler: a Chrome trace of the engine's work, a table of sums, and the script's own events.
--
--     ty.profiler.set_config{filename = "run.json", aggregate_stats = true}
--     ty.profiler.set_state("run")
--     ... train ...
--     ty.waitall()
--     ty.profiler.set_state("stop")
--     print(ty.profiler.dumps())
--     ty.profiler.dump()                    -- open run.json in chrome://tracing or ui.perfetto.dev
--
-- In the trace every device has a lane ("cpu/0"); an operator's entry has its node, its kernel and
-- the bytes of its operands. Element-wise operators that run as one are one entry
-- ("_plus_scalar+relu"). Times of a GPU are measured by events around its work and converted to the
-- host's clock. `TYCHO_PROFILE=1` records from the start and writes profile.json at exit.
-- While the profiler is off it costs one branch per task.
--
-- @module tycho.profiler

local ffi = require "ffi"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local perfetto = require "tycho.core.perfetto"
local table_of = require "tycho.core.profiler_table"

local profiler = {}

local C, check = native.C, native.check

local ALL = C.TY_PROFILE_ALL

local what = ALL                                         -- what is recorded while the profiler runs
local aggregate = false
local trace_file = "profile.json"                        -- where `dump` writes
local paused = false


local function runs_already()                            -- TYCHO_PROFILE=1
  local bits = ffi.new("int[1]")
  check(C.ty_profile(-1, bits), "profiler")
  return bits[0] ~= 0
end

local running = runs_already()                   -- as scripts see it: also true while paused


-- Switching ---------------------------------------------------------------------------------------

local function positive(v)
  local ok = type(v) == "number" and v > 0 and v < 1e9
  return ok, v, "a number of seconds above 0", type(v) == "number" and "value" or "type"
end


local CONFIG = args.form("profiler.set_config", {
  "*", { "filename", "path", "profile.json" }, { "profile_all", "boolean", false },
  { "profile_symbolic", "boolean", true }, { "profile_imperative", "boolean", true },
  { "profile_memory", "boolean", true }, { "profile_api", "boolean", true },
  { "continuous_dump", "boolean", true }, { "dump_period", positive, 1 },
  { "aggregate_stats", "boolean", false }, { "profile_process", { "worker", "server" }, "worker" },
})

--- Sets what is recorded, and the file of the trace. An existing regular file of that name is
-- removed.
-- @tparam table options filename ("profile.json"), profile_symbolic (operators of executors),
--   profile_imperative (functions of `ty.nd`, copies), profile_memory (bytes in use per device),
--   profile_api (forward, backward and waits, as the caller sees them), profile_all (all of these),
--   continuous_dump (the file grows while the profiler runs, so that memory does not), dump_period
--   (seconds between two writes), aggregate_stats (collects the sums for `dumps`)
function profiler.set_config(...)
  local a, func = CONFIG(...), "profiler.set_config"
  if a.filename == "" then
    Error.raise{ code = "value", func = func, argument = "filename", expected = "a file name",
      got = "an empty text", message = "bad 'filename'" }
  end
  local function bit(on, mask)
    return (a.profile_all or on) and mask or 0
  end
  what = bit(a.profile_symbolic, C.TY_PROFILE_SYMBOLIC)
    + bit(a.profile_imperative, C.TY_PROFILE_IMPERATIVE)
    + bit(a.profile_memory, C.TY_PROFILE_MEMORY)
    + bit(a.profile_api, C.TY_PROFILE_API)
  aggregate = a.aggregate_stats
  check(C.ty_profile_file(a.filename, a.continuous_dump and a.dump_period * 1e9 or 0), func)
  trace_file = a.filename
  profiler._apply()
end


-- Sets what the core records from now on.
function profiler._apply()
  check(C.ty_profile(running and not paused and what or 0, nil), "profiler")
end


local STATE = args.form("profiler.set_state", {
  { "state", { "run", "stop" }, "stop" }, { "profile_process", { "worker", "server" }, "worker" },
})

--- Starts ("run") or stops ("stop") the profiler; a pause ends.
-- @string state other words E(value)
function profiler.set_state(...)
  running, paused = STATE(...).state == "run", false
  profiler._apply()
end


--- Returns the state of the profiler: "run", "stop" or "pause".
function profiler.state()
  return running and (paused and "pause" or "run") or "stop"
end


--- Pauses recording until `resume`; has no effect while the profiler is stopped.
function profiler.pause()
  paused = running
  profiler._apply()
end


--- Continues recording after `pause`.
function profiler.resume()
  paused = false
  profiler._apply()
end


-- Results -----------------------------------------------------------------------------------------

local DUMP = args.form("profiler.dump",
  { { "finished", "boolean", true }, { "profile_process", { "worker", "server" }, "worker" } })

--- Waits for all devices and writes the trace. If no event was recorded, no file is written.
-- @bool[opt=true] finished stops the profiler as well
function profiler.dump(...)
  local a = DUMP(...)
  check(C.ty_wait(-1), "profiler.dump")
  check(C.ty_profile_dump(a.finished and 1 or 0), "profiler.dump")
  if a.finished then
    running, paused = false, false
  end
end


local PERFETTO = args.form("profiler.save_perfetto",
  { { "path", "path" }, { "trace", "path?" } })

--- Converts a trace that `dump` has written to Perfetto's own format, which is smaller.
-- `ui.perfetto.dev` opens both.
-- @string path of the new file, such as "run.pftrace"
-- @string[opt] trace path of the dumped file; by default that of `set_config`
-- @raise E(io): it cannot be read; E(format): it is not a trace
function profiler.save_perfetto(...)
  local a = PERFETTO(...)
  perfetto.convert(a.trace or trace_file, a.path, "profiler.save_perfetto")
end


local DUMPS = args.form("profiler.dumps", {
  { "reset", "boolean", false }, { "format", { "table", "json" }, "table" }, { "sort_by",
    { "total", "avg", "min", "max", "count" }, "total" }, { "ascending", "boolean", false },
})

--- Returns the sums as text: per operator the number of runs, and the total, shortest, longest and
-- average time in milliseconds; per counter the number of changes and the smallest, largest and
-- average value (memory in kilobytes).
-- @tparam[opt] table options reset (sets the sums to 0 afterwards), format ("table" or "json"),
--   sort_by ("total", "avg", "min", "max", "count"), ascending
-- @treturn string
-- @raise E(state) without `aggregate_stats`
function profiler.dumps(...)
  local a, func = DUMPS(...), "profiler.dumps"
  if not aggregate then
    Error.raise{ code = "state", func = func, argument = "aggregate_stats", expected = "true",
      got = "false",
      message = "there are no sums; call profiler.set_config{aggregate_stats = true} first" }
  end
  check(C.ty_wait(-1), func)
  local rows = profiler.sums()
  if a.reset then
    check(C.ty_profile_reset(), func)
  end
  return table_of[a.format](rows, a.sort_by, a.ascending)
end


local KINDS = { [C.TY_PROFILE_SPAN] = "span", [C.TY_PROFILE_TASK] = "task",
  [C.TY_PROFILE_COUNTER] = "counter", [C.TY_PROFILE_MARK] = "mark" }

--- Returns the sums as data: a list of `{kind, category, name, node, kernel, count, total, min,
-- max}`, one for each operator, node and kernel. Kinds "span" and "task": times in nanoseconds;
-- "counter": values; "mark": only `count` is meaningful.
function profiler.sums()
  local s, list, i = ffi.new("ty_profile_sum"), {}, 0
  while C.ty_profile_sums(i, s) == 0 do
    i = i + 1
    if s.count > 0 then
      list[#list + 1] = { kind = KINDS[s.kind], category = native.text(s.category),
        name = native.text(s.name), node = native.text(s.node),
        kernel = native.text(s.kernel), count = tonumber(s.count), total = tonumber(s.total),
        min = tonumber(s.min), max = tonumber(s.max) }
    end
  end
  return list
end


-- Events of scripts -------------------------------------------------------------------------------

--- A name that groups tasks, frames, counters and marks: their category in the trace.
-- @string name
local Domain = Class:extend("Domain")
profiler.Domain = Domain

local DOMAIN = args.form("profiler.Domain", { { "name", "text" } })

function Domain:init(...)
  self.name = DOMAIN(...).name
end


function Domain.__tostring(self)
  return ("<Domain %s>"):format(self.name)
end


-- Returns a class of objects that record a beginning and an end.
local function timed_class(kind, native_kind, has_domain)
  local class, spec = Class:extend(kind), { { "name", "text" } }
  if has_domain then
    table.insert(spec, 1, { "domain", Domain })
  end
  local form = args.form("profiler." .. kind, spec)
  function class:init(...)
    local a = form(...)
    self.name, self.category = a.name, a.domain and a.domain.name or "event"
  end
  function class:start()
    self._from = C.ty_profile_now()
    return self
  end
  function class:stop()
    if not self._from then
      Error.raise{ code = "state", func = kind .. ":stop",
        message = ("'%s' was not started; call start() first"):format(self.name) }
    end
    check(C.ty_profile_add(native_kind, self.category, self.name, self._from, C.ty_profile_now()),
      kind .. ":stop")
    self._from = nil
    return self
  end
  function class.__tostring(self)
    return ("<%s %s>"):format(kind, self.name)
  end
  return class
end


--- A span of time, from `task:start()` to `task:stop()`. Tasks may overlap.
-- @tparam Domain domain
-- @string name
profiler.Task = timed_class("Task", C.TY_PROFILE_TASK, true)
--- A repeated part of the work, such as a batch; used like a task.
-- @tparam Domain domain
-- @string name
profiler.Frame = timed_class("Frame", C.TY_PROFILE_TASK, true)
--- Like a task, without a domain.
-- @string name
profiler.Event = timed_class("Event", C.TY_PROFILE_TASK, false)


local function whole(v)
  local ok = type(v) == "number" and v == math.floor(v) and math.abs(v) < 2 ^ 53
  return ok, v, "a whole number", type(v) == "number" and "value" or "type"
end


local COUNTER = args.form("profiler.Counter",
  { { "domain", Domain }, { "name", "text" }, { "value", whole, 0 } })
local VALUE = args.form("Counter:set_value", { { "value", whole } })
local INCREMENT = args.form("Counter:increment", { { "delta", whole, 1 } })
local DECREMENT = args.form("Counter:decrement", { { "delta", whole, 1 } })

--- A number over time. Without a value it is not recorded until it gets one.
-- @tparam Domain domain
-- @string name
-- @int[opt] value
local Counter = Class:extend("Counter")
profiler.Counter = Counter

local function set(self, value, func)
  check(C.ty_profile_add(C.TY_PROFILE_COUNTER, self.category, self.name, value, 0), func)
  self.value = value
  return self
end


function Counter:init(...)
  local a = COUNTER(...)
  self.name, self.category = a.name, a.domain.name
  set(self, a.value, "profiler.Counter")
end


--- Sets the number.
function Counter:set_value(...)
  return set(self, VALUE(...).value, "Counter:set_value")
end


--- Adds to the number.
function Counter:increment(...)
  return set(self, self.value + INCREMENT(...).delta, "Counter:increment")
end


--- Subtracts from the number.
function Counter:decrement(...)
  return set(self, self.value - DECREMENT(...).delta, "Counter:decrement")
end


function Counter.__tostring(self)
  return ("<Counter %s = %d>"):format(self.name, self.value)
end


local SCOPES = { global = 0, process = 1, thread = 2, task = 2 }
local MARKER = args.form("profiler.Marker", { { "domain", Domain }, { "name", "text" } })
local MARK = args.form("Marker:mark",
  { { "scope", { "global", "process", "thread", "task" }, "process" } })

--- A point in time: `marker:mark(scope)`; scope "global", "process", "thread" or "task"
-- says how wide viewers draw it.
-- @tparam Domain domain
-- @string name
local Marker = Class:extend("Marker")
profiler.Marker = Marker

function Marker:init(...)
  local a = MARKER(...)
  self.name, self.category = a.name, a.domain.name
end


--- Records that the marked event happens now.
function Marker:mark(...)
  check(C.ty_profile_add(C.TY_PROFILE_MARK, self.category, self.name, SCOPES[MARK(...).scope], 0),
    "Marker:mark")
end


return namespace.close(methods.guard_all(profiler), "profiler", "class or function")
