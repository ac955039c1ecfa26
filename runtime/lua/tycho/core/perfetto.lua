--- Traces of the profiler in Perfetto's own format, Protocol Buffers (part of `ty.profiler`).
--
-- Every device is a process, every thread of it a track. Overlapping tasks and counters have
-- separate tracks.
--
-- Source of the field numbers: perfetto/protos/perfetto/trace/{trace_packet,
-- track_event/track_event, track_event/track_descriptor, track_event/debug_annotation}.proto.
--
-- @module tycho.core.perfetto

local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local json = require "tycho.core.json"
local wire_writer = require "tycho.core.wire_writer"

local message = wire_writer.message

local perfetto = {}

local SEQUENCE = 1                       -- all packets are of one writer
local STATE_CLEARED = 1                  -- TracePacket.SequenceFlags
local TYPES = { B = 1, b = 1, E = 2, e = 2, i = 3, C = 4 }   -- TrackEvent.Type
local FIRST_PID = 1                      -- for Perfetto process 0 is the idle process

local Trace = {}
Trace.__index = Trace


-- Writes a TracePacket; `fill` writes the fields of its message.
function Trace:packet(fill)
  local m = message()
  fill(m)
  m:integer(10, SEQUENCE)
  if not self.begun then
    m:integer(13, STATE_CLEARED)
    self.begun = true
  end
  self.out:message(1, m)
end


-- Returns the number of the track of a key; `fill` writes its description on first use.
function Trace:track(key, fill)
  local uuid = self.tracks[key]
  if not uuid then
    self.count = self.count + 1
    uuid = self.count
    self.tracks[key] = uuid
    self:packet(function(m)
      local track = message()
      track:integer(1, uuid)
      fill(track)
      m:message(60, track)
    end)
  end
  return uuid
end


function Trace:process(pid)
  return self:track("process " .. pid, function(track)
    local process = message()
    process:integer(1, pid + FIRST_PID)
    process:text(6, self.names[pid] or "process " .. pid)
    track:message(3, process)
  end)
end


-- Returns the number of the track of an event.
function Trace:find_track(e)
  local home = self:process(e.pid)
  if e.ph == "b" or e.ph == "e" then
    return self:track(("task %s %s"):format(e.pid, e.id), function(track)
      track:text(2, e.name)
      track:integer(5, home)
    end)
  elseif e.ph == "C" then
    return self:track(("counter %s %s"):format(e.pid, e.name), function(track)
      track:text(2, e.name)
      track:integer(5, home)
      track:message(8, message())
    end)
  end
  return self:track(("thread %s %s"):format(e.pid, e.tid), function(track)
    local thread = message()
    thread:integer(1, e.pid + FIRST_PID)
    thread:integer(2, e.tid)
    thread:text(5, "thread " .. e.tid)
    track:integer(5, home)
    track:message(4, thread)
  end)
end


-- Returns a DebugAnnotation, which the viewer shows for a selected event.
local function annotation(name, value)
  local m = message()
  m:text(10, name)
  if type(value) == "number" then
    m:integer(4, value)
  else
    m:text(6, tostring(value))
  end
  return m
end


local ARGUMENTS = { "node", "kernel", "bytes" }

function Trace:event(e)
  local uuid = self:find_track(e)
  self:packet(function(m)
    local event = message()
    for _, name in ipairs(e.ph == "B" and ARGUMENTS or {}) do
      if e.args and e.args[name] ~= nil then
        event:message(4, annotation(name, e.args[name]))
      end
    end
    event:integer(9, TYPES[e.ph])
    event:integer(11, uuid)
    if e.ph ~= "E" and e.ph ~= "e" then
      event:text(22, e.cat)
      event:text(23, e.name)
    end
    if e.ph == "C" then
      event:integer(30, e.args.value)
    end
    m:integer(8, math.floor(e.ts * 1000 + 0.5))
    m:message(11, event)
  end)
end


local function is_event(e)
  return type(e) == "table" and type(e.name) == "string" and type(e.pid) == "number"
    and (e.ph == "M" or type(e.ts) == "number" and type(e.tid) == "number"
      and TYPES[e.ph] ~= nil and type(e.cat) == "string"
      and (e.ph ~= "C" or type(e.args) == "table" and type(e.args.value) == "number"))
end


-- Returns the events of a trace that the profiler wrote, one event per line.
local function read_events(path, func)
  local list, first = {}, true
  for line in files.lines(path, func) do
    local text = line:match("^(%b{}),?$")
    if text and not first then
      local e = json.parse(text, func)
      if not is_event(e) then
        Error.raise{ code = "format", func = func, argument = path,
          message = ("'%s' has an event that the profiler does not write: %s"):format(path, text) }
      end
      list[#list + 1] = e
    elseif first and line ~= '{"traceEvents": [' then
      Error.raise{ code = "format", func = func, argument = path,
        message = ("'%s' is no trace of the profiler"):format(path) }
    end
    first = false
  end
  return list
end


--- Writes a trace of the profiler in Perfetto's format.
-- @string from the file that `profiler.dump` wrote
-- @string path
-- @string func for errors; E(io), E(format)
function perfetto.convert(from, path, func)
  local trace = setmetatable({ out = message(), tracks = {}, names = {}, count = 0 }, Trace)
  local events = read_events(from, func)
  for _, e in ipairs(events) do
    if e.ph == "M" then
      trace.names[e.pid] = e.args and e.args.name
    end
  end
  for _, e in ipairs(events) do
    if e.ph ~= "M" then
      trace:event(e)
    end
  end
  wire_writer.save(path, trace.out, func)
end


return perfetto
