--- Where a function was called, also when the call was a tail call.
--
-- `return ty.sym.FullyConnected{...}` leaves no trace of its line: LuaJIT drops the caller's frame before the callee runs.
-- But the function is looked up in that frame first, through the namespace's `__index`. So each lookup notes the frame's place
-- and function; a call that comes from another function than its lookup was a tail call, and the noted place is its own.
--
--     local f = origin.wrap(inner)         -- f(...) is inner(...), and Error.caller() knows the place meanwhile
--     origin.note(f)                       -- in __index, when f is handed out
--
-- @module tycho.origin

local Error = require "tycho.error"

local origin = {}

local getinfo = debug.getinfo
local KEPT = 8                                           -- lookups of one function that wait for their calls

local notes = setmetatable({}, { __mode = "k" })         -- function -> list of {place, the function there}, latest last


--- Notes that a function is handed out to the frame that looks it up.
-- @tparam function f made by `wrap`
function origin.note(f)
  local place, level = Error.caller(2)
  local list = notes[f]
  if not level or not list then
    return
  elseif #list == KEPT then
    table.remove(list, 1)
  end
  list[#list + 1] = { place = place, from = getinfo(level, "f").func }
end


local function enter(f)
  local list = notes[f]
  local seen = list[#list]
  list[#list] = nil
  local caller = seen and getinfo(3, "f")                -- nil: a coroutine begins here
  Error.place = caller and caller.func ~= seen.from and seen.place or nil
end


local function leave(...)
  Error.place = nil
  return ...
end


--- A function that does what `inner` does and knows its caller's place.
function origin.wrap(inner)
  local f
  f = function(...)
    enter(f)
    return leave(inner(...))
  end
  notes[f] = {}
  return f
end


return origin
