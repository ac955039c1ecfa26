-- The scripts of the library by name: `tycho --script train_mnist`.

local Error = require "tycho.core.error"
local files = require "tycho.prompt.files"

local scripts = {}


-- Returns the first sentence of a script's header.
local function summary(name)
  local words = {}
  for line in io.lines(files.path("scripts", name .. ".lua")) do
    local text = line:match("^%-%-%-? ?(.*)$")
    if not text or text == "" then
      break
    end
    words[#words + 1] = text
  end
  local text = table.concat(words, " ")
  return text:match("^(.-%.)%s") or text
end


-- Returns the names and first sentences of all scripts.
local function list()
  local lines = {}
  for _, name in ipairs(files.names("scripts", "lua")) do
    lines[#lines + 1] = ("%-21s %s\n"):format(name, summary(name))
  end
  return table.concat(lines)
end


-- Returns the path of a script.
-- @string[opt] name without ending; with "models/" in front for a script in that folder
-- @treturn ?string nil if there is no script of that name
-- @treturn ?string the text to show if there is no path: the list of all scripts, or similar names
function scripts.find(name)
  if not name then
    return nil, list()
  end
  local path = files.path("scripts", name .. ".lua")
  if path then
    return path
  end
  local near = Error.nearest(name, files.names("scripts", "lua"), 3)
  return nil, ("tycho: there is no script '%s'; near: %s. tycho --script lists them\n"):format(name,
    table.concat(near, ", "))
end


return scripts
