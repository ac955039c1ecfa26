--- Native bytes and Lua's collector: the only file that calls `collectgarbage`.
--
-- The collector does not know how many native bytes a small handle keeps alive. Every wrapper of
-- new native memory reports its bytes here; when they exceed a limit, and live bytes have grown,
-- the collector does a share of its cycle. Queued work keeps arrays that Lua has freed; if live
-- bytes grow in spite of the steps, the device is waited for. If the core runs out of memory,
-- everything unreachable is collected and the call is repeated once.
--
--     gc.count(bytes, device)              -- after a wrapper of new native bytes was made
--     if code == C.TY_EMEMORY then gc.release(); code = again() end
--
-- `TYCHO_GC_STRESS=1` makes every `count` a full collection: unreachable handles
-- die at the first opportunity.
--
-- @module tycho.core.gc

local ffi = require "ffi"
local native = require "tycho.core.ffi"

local C = native.C
local collectgarbage = collectgarbage

local gc = {}

local LEAST = 16 * 2 ^ 20        -- counted bytes before a step of the collector, at least
local SHARE = 8                  -- ... or live native bytes divided by this, if that is more
local GROWTH = 64 * 2 ^ 20       -- growth of live bytes after which a queue is waited for
local HEAP_SHARE = 4             -- one step covers the Lua heap divided by this

local LARGE = 2 ^ 20             -- bytes of an array that does not stay in the processor's caches

-- Work of a collector step, in percent of the bytes that Lua has allocated. A call on arrays makes
-- more garbage in the core than in Lua's heap, which the collector does not see. With Lua's default
-- of 200 % a cycle lasts while the program makes some ten thousand arrays; their memory has left
-- the processor's caches when it is used again. Large arrays trigger shares of a cycle by their
-- bytes; between these shares the steps are short, since long ones would complete a
-- cycle for every few arrays. SHORT_STEPS differs from Lua's default, so that a value that a script
-- has set is recognised.
local LUAS_STEPS, SHORT_STEPS, LONG_STEPS = 200, 201, 4000
local LUAS_PAUSE = 200           -- percent of a heap's size at which Lua begins a cycle
local MARKS = 4                  -- a step over some 160 KB of heap with LONG_STEPS: KiB
local WHOLE = 2 ^ 30             -- a step to the end of a cycle: KiB, more than any heap

local chosen_steps = LUAS_STEPS          -- the value that this file has set last

-- Sets the percentage of steps, unless a script has set its own.
local function set_steps(percent)
  local found = collectgarbage("setstepmul", percent)
  if found == chosen_steps then
    chosen_steps = percent
  else
    collectgarbage("setstepmul", found)
  end
end

set_steps(LONG_STEPS)

local debt, limit = 0, LEAST

--- Whether every call of `count` is a full collection.
gc.stress = os.getenv("TYCHO_GC_STRESS") == "1"


local watchers = {}

--- Calls f at every step, to release objects that have no finaliser.
function gc.watch(f)
  watchers[#watchers + 1] = f
end


local function live_bytes()
  return tonumber(C.ty_live("bytes"))
end


local desc, made = ffi.new("ty_desc", { dtype = C.TY_F32, ndim = 1, dim = { 1 } }),
  ffi.new("ty_tensor *[1]")
local zero = ffi.new("ty_attr[1]")

-- Waits until a device has done the work queued so far. Failures are not raised here, but when
-- their arrays are read.
local function drain(device)
  desc.device, zero[0].key, zero[0].value = device, "src", "0"
  if C.ty_tensor_new(desc, made) == 0 then
    if C.ty_call("_set_value", zero, 1, nil, 0, made, 1) == 0 then
      C.ty_tensor_failed(made[0])
    end
    C.ty_tensor_free(made[0])
  end
end


local at_cycle_end = {}

--- Calls f at the end of each cycle of the collector, as a finaliser: it may not fail, and runs
-- between any two instructions of a script.
function gc.at_cycle_end(f)
  at_cycle_end[#at_cycle_end + 1] = f
end


--- Weak list of the object whose finaliser runs at the end of the next cycle. Empty until that
-- finaliser has run, and when Lua had no memory to call it: `gc.watch_cycles` makes another object.
gc.cycle = setmetatable({}, { __mode = "v" })

local cycle = gc.cycle

local function call_watchers_of_cycles()
  for i = 1, #at_cycle_end do
    at_cycle_end[i]()
  end
end


-- KiB of Lua's heap when a cycle of `gc.find_dropped` ended; nil: a new cycle may have begun since
local swept
local unswept = false                    -- `gc.find_dropped` has left the end of a cycle

-- Makes the steps long again at the end of a cycle, and calls the function of `gc.at_cycle_end`.
local function end_cycle(object)
  if not cycle[1] then
    cycle[1] = ffi.gc(object, end_cycle)
  end
  set_steps(LONG_STEPS)
  if unswept then
    unswept, swept = false, collectgarbage("count")
  end
  call_watchers_of_cycles()
end


--- Makes the object whose finaliser runs at the end of a cycle, if there is none. Nothing else
-- refers to it, so each cycle finalises it; the finaliser sets itself again.
function gc.watch_cycles()
  if not cycle[1] then
    cycle[1] = ffi.gc(ffi.new("char[1]"), end_cycle)
  end
end

gc.watch_cycles()


-- Does a share of a cycle. The work of `step` is its size times the percentage of steps.
local function collect_share(bytes)
  swept = nil
  set_steps(SHORT_STEPS)
  local ended = collectgarbage("step", math.max(collectgarbage("count") / HEAP_SHARE, 64))
  if bytes < LARGE or ended then
    set_steps(LONG_STEPS)
  else
    gc.watch_cycles()
  end
end


local settled = 0                        -- live bytes when a queue was last known to be empty
-- the fewest live bytes at a step since the last share. Growth above it is of counted arrays that
-- exist, not of results of pending recorded calls or of arrays that the script has freed
local floor = 0

local function step(bytes, device)
  debt = 0
  for _, f in ipairs(watchers) do
    f()
  end
  local live = live_bytes()
  floor = math.min(floor, live)
  if live - floor >= limit / 2 then
    collect_share(bytes)
    live = live_bytes()
    floor = live
  end
  if live > settled + GROWTH then
    drain(device)
    live = live_bytes()
    settled = live
  end
  limit = math.max(LEAST, live / SHARE)
end


--- Counts native bytes that a new wrapper keeps alive; runs a step of the collector when they
-- exceed the limit.
-- @number bytes 0 for a view
-- @int device code of the device they are on
function gc.count(bytes, device)
  if gc.stress then
    collectgarbage()
  end
  debt = debt + bytes
  if debt > limit then
    step(bytes, device)
  end
end


--- Subtracts bytes that `count` has added: the wrapper freed its memory without the collector.
-- @number bytes
function gc.discount(bytes)
  debt = math.max(debt - bytes, 0)
end


--- Returns the bytes of Lua's heap.
function gc.heap_bytes()
  return collectgarbage("count") * 1024
end


--- Begins a cycle of the collector, or continues it; allocations from here on advance it.
function gc.begin()
  swept = nil
  collectgarbage("step", 0)
end


-- Returns whether the collector is between two cycles: the heap is still smaller than 0.9 times the
-- size at which Lua begins the next one; the rest allows for memory that is freed outside cycles.
-- Does not detect a cycle that the script began by calling `collectgarbage("step")`. Objects that
-- such a cycle marked before they were dropped are freed by the next sweep.
local function is_between_cycles()
  local pause = collectgarbage("setpause", LUAS_PAUSE)
  collectgarbage("setpause", pause)
  return swept and collectgarbage("count") < 0.9 * pause / 100 * swept
end


-- weak list of an unreferenced object: empty once a cycle has marked all objects in use
local lost = setmetatable({}, { __mode = "v" })

--- Finds dropped objects, and calls the function of `gc.at_cycle_end`. The end of the cycle, in
-- which Lua frees its own objects, is left to `gc.finish`: 1.2 of 3.8 ms for 4.8 MB of heap (Intel,
-- 2026-11-30). `collectgarbage()` would go through the whole heap once more before the cycle.
function gc.find_dropped()
  gc.finish()
  if is_between_cycles() then
    lost[1], swept, unswept = {}, nil, true
    repeat
      local ended = collectgarbage("step", MARKS)
    until ended or not lost[1]
    call_watchers_of_cycles()
  else
    collectgarbage()
    swept = collectgarbage("count")
  end
  debt = 0
end


--- Ends the cycle that `gc.find_dropped` began, if it has not ended. Call before a wait for a
-- device.
function gc.finish()
  if unswept then
    collectgarbage("step", WHOLE)
    unswept = false
  end
end


--- Frees unreachable handles, and the memory that queued work keeps for them.
function gc.release()
  collectgarbage()                               -- finds what is unreachable and runs finalisers
  collectgarbage()                               -- ... of what those kept
  debt = 0
end


return gc
