--- pcall for errors that the caller handles: "this object has no such field", "this cannot be
-- read". Interruptions and a lack of memory are raised again.
--
-- @module tycho.core.attempt

local Error = require "tycho.core.error"

local STOPS = { interrupted = true, memory = true }

local function checked(ok, ...)
  if not ok then
    local e = ...
    if e == "not enough memory" or Error.is_error(e) and STOPS[e.code] then
      error(e, 0)
    end
  end
  return ok, ...
end


--- Calls a function.
-- @tparam function f
-- @param ... its arguments
-- @return what pcall returns
local function attempt(f, ...)
  return checked(pcall(f, ...))
end


return attempt
