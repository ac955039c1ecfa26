--- What comes with the library beside its modules: scripts, the text of the pages.
--
-- In an installed tree they are in `scripts` and `doc` of the modules' own folder, in a checkout in
-- those of its root.
--
--     local path = files.path("scripts", "train_mnist.lua")   --> nil: there is no such file
--     for _, name in ipairs(files.names("doc", "md")) do ... end
--
-- @module tycho.prompt.files

local files = {}

local HERE = debug.getinfo(1, "S").source:match("^@(.*/)prompt/[^/]*$") or "./"


local function is_there(path)
  local file = io.open(path, "rb")
  if file then
    file:close()
  end
  return file ~= nil
end


-- Returns the folder of a kind; `some`: a file that it has.
local function folder(kind, some)
  local installed = HERE .. kind .. "/"
  return is_there(installed .. some) and installed or HERE .. "../../../" .. kind .. "/"
end


-- A file that each kind has.
local SOME = { scripts = "train_mnist.lua", ["scripts/models"] = "own_net.lua",
  doc = "first_hour.md" }


--- Returns the path of a file; nil where there is none of that name.
-- @string kind "scripts", "scripts/models" or "doc"
-- @string name without folders
function files.path(kind, name)
  local path = folder(kind, SOME[kind]) .. name
  return not name:find("/", 1, true) and is_there(path) and path or nil
end


--- Returns the names of the files of a kind, without their ending, sorted.
-- @string kind "scripts", "scripts/models" or "doc"
-- @string ending "lua" or "md"
-- @treturn {string,...}
function files.names(kind, ending)
  local list = {}
  local quoted = "'" .. folder(kind, SOME[kind]):gsub("'", "'\\''") .. "'"
  local pipe = io.popen("LC_ALL=C ls -1 " .. quoted .. " 2>/dev/null")
  for name in pipe:lines() do
    list[#list + 1] = name:match("^([%w_]+)%." .. ending .. "$")
  end
  pipe:close()
  return list
end


return files
