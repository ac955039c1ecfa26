--- The log: `ty.log:info(text)` and its kind; written to standard error unless `ty.log.sink` is set.
-- TYCHO_LOG sets the level at the start; "off" writes nothing.
--
--     ty.log.level = "warning"
--     ty.log.sink = function(level, text) ... end
--
-- @module tycho.log

local RANK = { debug = 1, info = 2, warning = 3, error = 4, off = 5 }

local asked = os.getenv("TYCHO_LOG")
local log = { level = RANK[asked or ""] and asked or "info" }


local function write(level, text)
  if RANK[level] < (RANK[log.level] or RANK.info) then
    return
  end
  if log.sink then
    log.sink(level, text)
  else
    io.stderr:write(level:upper(), ": ", text, "\n")
  end
end


for _, level in ipairs{ "debug", "info", "warning", "error" } do
  log[level] = function(_, text)
    write(level, tostring(text))
  end
end


return log
