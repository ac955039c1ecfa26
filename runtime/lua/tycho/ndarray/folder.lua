--- Lists of the entries of a folder (not for users).
--
-- @module tycho.ndarray.folder

local array_class = require "tycho.ndarray.class"
local native = require "tycho.core.ffi"
require "tycho.ndarray.transfer"

local C, check = native.C, native.check
local made = require("ffi").new("ty_tensor *[1]")

local folder = {}


--- Returns the entries of a folder, by name in byte order.
-- @string path
-- @string func for errors; E(io) if the folder cannot be read
-- @treturn table list of `{name =, folder = whether the entry is a folder}`
function folder.list(path, func)
  check(C.ty_folder_list(path, made), func, { argument = path })
  local list = {}
  local text = made[0] ~= nil and array_class.own(made[0]):tostring_raw() or ""
  for kind, name in text:gmatch("([df])([^%z]*)%z") do
    list[#list + 1] = { name = name, folder = kind == "d" }
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end


--- Returns the names of the files in a folder, in byte order; an empty list if there is no such
-- folder.
-- @string path
-- @treturn {string,...}
function folder.files(path)
  local ok, list = pcall(folder.list, path, "folder.files")
  local names = {}
  for _, entry in ipairs(ok and list or {}) do
    if not entry.folder then
      names[#names + 1] = entry.name
    end
  end
  return names
end


return folder
