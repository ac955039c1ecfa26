--- The log: `ty.log:debug`, `info`, `warning` and `error`; written to standard error unless
-- `ty.log.sink` is set. TYCHO_LOG sets the level at the start; "off" writes nothing. On a terminal
-- a text that ends in "\r" is overwritten by the next such text, and "\r" alone erases it;
-- elsewhere it is a line like others.
--
--     ty.log.level = "warning"
--     ty.log.sink = function(level, text) ... end
--
-- @module tycho.log

local namespace = require "tycho.core.namespace"

local RANK = { debug = 1, info = 2, warning = 3, error = 4, off = 5 }

local asked = os.getenv("TYCHO_LOG")
local log = { level = RANK[asked or ""] and asked or "info" }


local terminal                           -- whether standard error is a terminal; nil: not known yet
local unfinished = false                      -- whether the last line waits to be overwritten

--- Returns whether a text that ends in "\r" may be overwritten: on a terminal, or if a sink is set.
function log.overwrites()
  if terminal == nil then
    terminal = require("tycho.core.ffi").is_terminal(2)
  end
  return log.sink ~= nil or terminal
end


local function put(level, text)
  local fleeting = text:match("^(.*)\r$")
  io.stdout:flush()                      -- what was printed before comes before
  if fleeting and log.overwrites() then
    io.stderr:write("\r", fleeting, "\27[K")
  else
    io.stderr:write(unfinished and "\n" or "", level:upper(), ": ", fleeting or text, "\n")
  end
  unfinished = fleeting ~= nil and fleeting ~= "" and terminal == true
end


local function write(level, text)
  if RANK[level] < (RANK[log.level] or RANK.info) then
    return
  end
  if log.sink then
    log.sink(level, text)
  else
    put(level, text)
  end
end


for _, level in ipairs{ "debug", "info", "warning", "error" } do
  log[level] = function(_, text)
    write(level, tostring(text))
  end
end


local missing = namespace.missing("log", "function", log)

return setmetatable(log, { __index = function(_, key)
  return key ~= "sink" and missing(key) or nil           -- a sink may be absent
end })
