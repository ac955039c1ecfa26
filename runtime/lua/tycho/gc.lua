--- Native bytes and Lua's collector: the only file that calls `collectgarbage`.
--
-- The collector does not see what a handle of a few bytes keeps alive. Every wrapper of new native memory reports its
-- bytes here; once enough have come together, the collector does a share of its cycle. Where the core runs out of
-- memory, everything unreachable is collected and the call is made once more.
--
--     gc.count(bytes)                      -- after a wrapper of so many new native bytes was made
--     if code == C.TY_EMEMORY then gc.release(); code = again() end
--
-- `TYCHO_GC_STRESS=1` makes every `count` a full collection: handles that nobody holds die at the first opportunity.
--
-- @module tycho.gc

local native = require "tycho.ffi"

local C = native.C
local collectgarbage = collectgarbage

local gc = {}

local LEAST = 16 * 2 ^ 20                                -- bytes that may gather before the collector is asked
local SHARE = 8                                          -- ... or this part of the live native bytes, if that is more
local HEAP_SHARE = 4                                     -- part of the Lua heap that one step covers

local debt, limit = 0, LEAST

--- Whether every wrapper call collects.
gc.stress = os.getenv("TYCHO_GC_STRESS") == "1"


local watchers = {}

--- Calls f at every step: for what has to be let go without a finaliser.
function gc.watch(f)
  watchers[#watchers + 1] = f
end


local function step()
  debt = 0
  for _, f in ipairs(watchers) do
    f()
  end
  limit = math.max(LEAST, tonumber(C.ty_live("bytes")) / SHARE)
  collectgarbage("step", math.max(collectgarbage("count") / HEAP_SHARE, 64))
end


--- Notes native bytes that a new wrapper keeps alive.
-- @number bytes 0 for a view
function gc.count(bytes)
  if gc.stress then
    collectgarbage()
  end
  debt = debt + bytes
  if debt > limit then
    step()
  end
end


--- Frees what can be freed: unreachable handles and what queues still hold for them.
function gc.release()
  collectgarbage()                                       -- finds what is unreachable and runs finalisers
  collectgarbage()                                       -- ... of what those kept
  debt = 0
end


return gc
