--- The names that can follow a value's dot or colon, for completion and for lists of a module's
-- names.
--
-- The names are the keys of a table and of its metatables. Objects and modules of the library load
-- many members on first use; asking them for a name that none has makes them raise an error with
-- the names that they accept (Error.unknown).
--
-- @module tycho.prompt.members

local pairs = require("tycho.core.iterate").pairs
local members = {}

local MOST_METATABLES = 8                                -- most metatables that are followed
local NOBODY = "nobody_has_this_name"


-- Adds the keys of a value and, recursively, of its metatables.
local function add_keys(names, value, depth)
  if type(value) == "table" then
    for key in pairs(value) do
      if type(key) == "string" then
        names[key] = true
      end
    end
  end
  local meta = debug.getmetatable(value)
  local index = type(meta) == "table" and rawget(meta, "__index")
  if depth < MOST_METATABLES and type(index) == "table" and index ~= value then
    add_keys(names, index, depth + 1)
  elseif depth < MOST_METATABLES and type(meta) == "table" and meta ~= value
      and type(value) == "table" then
    add_keys(names, meta, depth + 1)
  end
end


-- Adds the names that a value accepts according to its error.
local function add_accepted(names, value)
  local ok, e = pcall(function() return value[NOBODY] end)
  for _, name in ipairs(not ok and type(e) == "table" and rawget(e, "names") or {}) do
    names[name] = true
  end
end


--- Returns all names, as keys of a table. Names that are not Lua identifiers are left out.
-- @param value anything
-- @treturn table
function members.set(value)
  local names, set = {}, {}
  add_keys(names, value, 0)
  if type(value) == "table" and getmetatable(value) then
    add_accepted(names, value)
  end
  for name in pairs(names) do
    if name:find("^[%a_][%w_]*$") then
      set[name] = true
    end
  end
  return set
end


--- Returns the member names without a leading underscore, sorted.
function members.list(value)
  local list = {}
  for name in pairs(members.set(value)) do
    list[#list + 1] = name:sub(1, 1) ~= "_" and name or nil
  end
  table.sort(list)
  return list
end


--- Returns the name of a loaded module of the library, "tycho.module", by its value. If it has
-- several names, the shortest is returned, of equally short ones the last in alphabetical order
-- ("tycho.test_utils", not "tycho.test.utils"); nil for other values.
function members.find_module(value)
  local found
  for name, module in pairs(package.loaded) do
    if module == value and type(name) == "string" and name:find("^tycho")
        and (not found or #name < #found or #name == #found and name > found) then
      found = name
    end
  end
  return found
end


return members
