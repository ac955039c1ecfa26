--- The source line from which a function was called, also for tail calls.
--
-- `return ty.sym.FullyConnected{...}` is a tail call: LuaJIT drops the caller's frame
-- before the callee runs. But the function is looked up in that frame first, through the
-- namespace's `__index`. So each lookup notes the frame's source location and function; if a call
-- comes from another function than its lookup, it was a tail call at the noted location.
--
--     local f = origin.wrap(inner)  -- f(...) is inner(...), and Error.caller() knows the location
--                                   meanwhile
--     origin.note(f)                -- in __index, when f is handed out
--
-- The wrapper knows the location of other calls as well. An inner function that does not run
-- functions of the user may ask it instead of walking up the stack: `origin.take() or
-- Error.caller()`.
--
-- @module tycho.core.origin

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Error = require "tycho.core.error"

local origin = {}

local getinfo, user_file = debug.getinfo, Error.user_file
local KEPT = 8                           -- lookups of one function that wait for their calls

-- Function -> list of {from, file, line} or {from, location}, the latest last. The first `n` wait
-- for their calls; the tables after them are reused.
local notes = setmetatable({}, { __mode = "k" })
local line                               -- of the running call, in the file Error.here

-- Weak, since a lookup that is never called must not keep the function that made it. If that
-- function has been collected when the call comes, the call was a tail call.
local ENTRY = { __mode = "v" }


local function add(list, from, file, at, location)
  local n = list.n
  local entry
  if n == KEPT then
    entry = table.remove(list, 1)
  else
    n = n + 1
    entry = list[n] or setmetatable({}, ENTRY)
  end
  list[n], list.n = entry, n
  entry.from, entry.file, entry.line, entry.location = from, file, at, location
end


-- Records a lookup that a library or C function makes for the user's code.
local function note_caller(list)
  local location, level = Error.caller(3)
  if level then
    add(list, getinfo(level, "f").func, nil, nil, location)
  end
end


--- Records that a function is passed to the stack frame that looks it up.
-- @tparam function f made by `wrap`
function origin.note(f)
  local list = notes[f]
  if not list or Error.location then
    return
  end
  local info = getinfo(3, "fl")
  local name = info and info.currentline > 0 and user_file(info.func)
  if name then
    add(list, info.func, name, info.currentline)
  else
    note_caller(list)
  end
end


local function enter(f)
  local list = notes[f]
  local n = list.n
  local seen = list[n]
  list.n = seen and n - 1 or n
  local caller = getinfo(3, "fl")                        -- nil: a coroutine begins here
  Error.location, Error.here = nil, nil
  if seen and caller and caller.func ~= seen.from then
    Error.location = seen.location or seen.file .. ":" .. seen.line
  elseif caller and caller.currentline > 0 then
    Error.here, line = user_file(caller.func), caller.currentline
  end
end


local function leave(...)
  Error.location, Error.here = nil, nil
  return ...
end


--- Returns the line from which the function that a wrapper has just entered was called:
-- "file.lua:12". Only the first call returns one.
-- @treturn ?string nil: not known
function origin.take()
  local file = Error.here
  Error.here = nil
  return file and file .. ":" .. line
end


--- Returns a function that does what `inner` does and knows its caller's location.
function origin.wrap(inner)
  local f
  f = function(...)
    enter(f)
    return leave(inner(...))
  end
  notes[f] = { n = 0 }
  return f
end


return origin
