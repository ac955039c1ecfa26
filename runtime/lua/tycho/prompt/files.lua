--- Installed files that are not modules: scripts and the text of the manual's pages.
--
-- In an installed tree they are in `scripts` and `doc` next to the modules, in a checkout in those
-- folders of its root.
--
--     local path = files.path("scripts", "train_mnist.lua")   --> nil: there is no such file
--     local other = files.path("scripts", "models/own_net.lua")
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


-- Returns the folder of a kind of files; `some` is the name of a file in it.
local function folder(kind, some)
  local installed = HERE .. kind .. "/"
  return is_there(installed .. some) and installed or HERE .. "../../../" .. kind .. "/"
end


-- A file that every folder of a kind contains.
local SOME = { scripts = "train_mnist.lua", doc = "first_hour.md" }

-- The folders of each kind; other folders of the scripts contain modules.
local FOLDERS = { scripts = { "", "models/" }, doc = { "" } }


--- Returns the path of a file; nil if there is no such file.
-- @string kind "scripts" or "doc"
-- @string name with its ending, and with "models/" in front for a script in that folder
function files.path(kind, name)
  local root = folder(kind, SOME[kind])
  for _, inner in ipairs(FOLDERS[kind]) do
    local own = name:sub(1, #inner) == inner and name:sub(#inner + 1)
    if own and not own:find("/", 1, true) and is_there(root .. name) then
      return root .. name
    end
  end
  return nil
end


--- Returns the names of the files of a kind, without ending, sorted within each folder.
-- @string kind "scripts" or "doc"
-- @string ending "lua" or "md"
-- @treturn {string,...}
function files.names(kind, ending)
  local list = {}
  local root = folder(kind, SOME[kind])
  for _, inner in ipairs(FOLDERS[kind]) do
    local quoted = "'" .. (root .. inner):gsub("'", "'\\''") .. "'"
    local pipe = io.popen("LC_ALL=C ls -1 " .. quoted .. " 2>/dev/null")
    for file in pipe:lines() do
      local name = file:match("^([%w_]+)%." .. ending .. "$")
      list[#list + 1] = name and inner .. name
    end
    pipe:close()
  end
  return list
end


return files
