--- Whether calls on arrays are recorded, and what that asks of those who make and write arrays (not
-- for users; `ty.autograd` turns it on).
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

local steps = C.ty_live_at("history")                    -- recorded calls that are alive

local OFF, ON, PAUSED = 0, 1, 2

--- Sets both flags.
-- @bool on
-- @bool training
-- @bool paused not on, but inside of something that is recorded
function recording.set(on, training, paused)
  recording.on, recording.training = on, training
  C.ty_recording(on and ON or paused and PAUSED or OFF)
  C.ty_training(training and 1 or 0)
end


-- Returns the line of the script that called the library; nil where there is none.
local function script_line()
  local line = Error.caller(3)
  return line ~= "" and line or nil
end


local request = C.ty_line_request()
local WANTED, MISSED = 0, 1

--- Notes the line of the script for the next call, where the core does not know it already. Call it
-- while recording is on.
function recording.note_line()
  if request[WANTED] ~= 0 and recording.lines and not recording.held then
    C.ty_line((script_line()))
  end
end


--- Returns whether the core wants the line of the next call.
function recording.wants_lines()
  return request[WANTED] ~= 0
end


--- Operators whose runs may fail later, for what is in their arrays: their lines are always noted.
recording.may_fail = setmetatable({}, { __index = function(known, op)
  known[op] = C.ty_op_may_fail(op) ~= 0
  return known[op]
end })


--- Notes the line in any case, for what is not a call of an operator.
function recording.note_line_always()
  if recording.lines and not recording.held then
    C.ty_line((script_line()))
  end
end


--- Notes the line of the call that was just made, if the core thought it knew it and did not.
function recording.note_missed()
  if request[MISSED] ~= 0 then
    C.ty_line_late(recording.lines and not recording.held and script_line() or nil)
  end
end


--- Has all that f calls belong to the line of the script that called the library.
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
function recording.hold_line(f, ...)
  if recording.held or not recording.lines then
    return f(...)
  end
  C.ty_line((script_line()))
  recording.held = true
  local function release(ok, ...)
    recording.held = false
    if not ok then
      error((...), 0)
    end
    return ...
  end
  return release(pcall(f, ...))
end


--- Notes the line of a write where a recorded call may need what is in the array.
-- @tparam NDArray x
function recording.note_write(x)
  if steps[0] > 0 and C.ty_watched(x._h) ~= 0 then
    C.ty_note_write(x._h, recording.lines and script_line() or nil)
  end
end


--- Calls f with recording off where it is on, and puts it back. What f computes belongs to one
-- recorded call.
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


--- Records what has been computed otherwise than by operators: (inputs, outputs, object) ->
-- outputs. Set by `tycho.autograd.function`; recording is never on before that.
recording.record_function = nil


--- Number of recorded calls that are alive.
function recording.steps()
  return tonumber(steps[0])
end


return recording
