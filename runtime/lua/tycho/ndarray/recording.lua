--- The state of recording, and functions for code that makes and writes arrays while calls are
-- recorded (not for users; `ty.autograd` turns recording on).
--
-- @module tycho.ndarray.recording

local native = require "tycho.core.ffi"
local Error = require "tycho.core.error"

local C = native.C

local recording = {
  on = false,
  training = false,
  --- Whether the script's lines are kept with what is recorded.
  lines = os.getenv("TYCHO_LINES") ~= "0",
}

local steps = C.ty_live_at("history")                    -- number of live recorded calls
local was_on = false                     -- whether calls were ever recorded; if not, `steps` is 0

local OFF, ON, PAUSED = 0, 1, 2

--- Sets both flags.
-- @bool on
-- @bool training
-- @bool paused recording is off, but inside of a recorded function
function recording.set(on, training, paused)
  recording.on, recording.training = on, training
  was_on = was_on or on
  C.ty_recording(on and ON or paused and PAUSED or OFF)
  C.ty_training(training and 1 or 0)
end


-- Returns the line of the script that called the library; nil if there is none.
local function script_line()
  local line = Error.caller(3)
  return line ~= "" and line or nil
end

recording.script_line = script_line


local request = C.ty_line_request()
local WANTED, MISSED = 0, 1


--- Returns whether the core asks for the line of the next call.
function recording.is_line_wanted()
  return request[WANTED] ~= 0
end


-- The line of all calls while one is held; false until it is needed. Many blocks never need it,
-- since the core knows the lines of repeated calls.
local held_line


--- Attributes the calls that follow to one line, until `release`.
-- @tparam ?string|boolean line nil: no line; false: that of the script's call of the library,
--   which is determined when it is needed
function recording.hold(line)
  recording.held, held_line = true, line
  if line ~= false then
    C.ty_line(line)
  end
end


--- Attributes the next call to a line, while one is held.
-- @string line
function recording.hold_next(line)
  held_line = line
  if request[WANTED] ~= 0 then
    C.ty_line(line)
  end
end


--- Ends `hold`; returns the held line, so that `hold` can be called with it again.
-- @return the line, or false
function recording.release()
  recording.held = false
  return held_line
end


-- Returns the line of the next call.
local function line_now()
  if not recording.held then
    return (script_line())
  elseif held_line == false then
    held_line = script_line()
  end
  return held_line
end


--- Records the line of the script for the next call, if the core asks for it. Call it while
-- recording is on.
function recording.note_line()
  if request[WANTED] ~= 0 and recording.lines and not (recording.held and held_line ~= false) then
    C.ty_line(line_now())
  end
end


--- Operators whose runs may fail later, depending on values: their lines are always recorded.
recording.may_fail = setmetatable({}, { __index = function(known, op)
  known[op] = C.ty_op_may_fail(op) ~= 0
  return known[op]
end })


--- Records the line in any case, for steps other than calls of operators.
function recording.note_line_always()
  if recording.lines and not (recording.held and held_line ~= false) then
    C.ty_line(line_now())
  end
end


--- Records the line of the last call, if the core did not ask for it and turned out to lack it.
function recording.note_missed()
  if request[MISSED] ~= 0 then
    C.ty_line_late(recording.lines and line_now() or nil)
  end
end


--- Attributes all calls of f to the line of the script that called the library.
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
function recording.hold_line(f, ...)
  if recording.held or not recording.lines then
    return f(...)
  end
  recording.hold((script_line()))
  local function release(ok, ...)
    recording.release()
    if not ok then
      error((...), 0)
    end
    return ...
  end
  return release(pcall(f, ...))
end


--- Records the line of a write if a recorded call may need the values in the array.
-- @tparam NDArray x
function recording.note_write(x)
  if was_on and steps[0] > 0 and C.ty_watched(x._h) ~= 0 then
    C.ty_note_write(x._h, recording.lines and script_line() or nil)
  end
end


--- Calls f with recording off, and turns it on again if it was on: for a function that is recorded
-- as one call.
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
function recording.without(f, ...)
  if not recording.on then
    return f(...)
  end
  local training = recording.training
  recording.set(false, training, true)
  local function restore(ok, ...)
    recording.set(true, training)
    if not ok then
      error((...), 0)
    end
    return ...
  end
  return restore(pcall(f, ...))
end


--- Records outputs that were not computed by operators: (inputs, outputs, object) -> outputs. Set
-- by `tycho.autograd.function`; recording is never on before that.
recording.record_function = nil


--- Returns the number of live recorded calls.
function recording.steps()
  return tonumber(steps[0])
end


return recording
