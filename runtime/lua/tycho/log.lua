--- The log: `ty.log:info(text)` and its kind; written to standard error unless `ty.log.sink` is set (contract 1.8).
--
--     ty.log.level = "warning"
--     ty.log.sink = function(level, text) ... end
--
-- @module tycho.log

local log = { level = "info" }

local RANK = { debug = 1, info = 2, warning = 3, error = 4 }


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


for level in pairs(RANK) do
  log[level] = function(_, text)
    write(level, tostring(text))
  end
end


return log
