--- Formats values as the prompt prints them.
--
-- Plain tables are shown to a small depth and length, on one line if they fit. Objects of the
-- library are shown by objects.lua, other values by `tostring`.
--
-- @module tycho.prompt.show

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local objects = require "tycho.prompt.objects"
local reserved = require "tycho.core.reserved"

-- levels of nested tables; entries of a table; columns of a line
local DEPTH, ENTRIES, WIDTH = 3, 24, 100

local render


local function key_text(key)
  if type(key) == "string" and key:match("^[%a_][%w_]*$") and not reserved[key] then
    return key
  end
  return "[" .. render(key, DEPTH) .. "]"
end


-- Returns the keys of a table, except for positions 1 to `skip`, sorted by type and value.
local function sorted_keys(t, skip)
  local keys = {}
  for key in pairs(t) do
    if not (type(key) == "number" and key >= 1 and key <= skip and key % 1 == 0) then
      keys[#keys + 1] = key
    end
  end
  table.sort(keys, function(a, b)
    if type(a) == type(b) and (type(a) == "number" or type(a) == "string") then
      return a < b
    end
    return type(a) == type(b) and tostring(a) < tostring(b) or type(a) < type(b)
  end)
  return keys
end


local function entries(t, depth)
  local parts, n = {}, #t
  for i = 1, math.min(n, ENTRIES) do
    parts[i] = render(t[i], depth + 1)
  end
  local keys = sorted_keys(t, n)
  for i = 1, math.min(#keys, ENTRIES - #parts) do
    parts[#parts + 1] = key_text(keys[i]) .. " = " .. render(t[keys[i]], depth + 1)
  end
  if n + #keys > #parts then
    parts[#parts + 1] = ("... %d in all"):format(n + #keys)
  end
  return parts
end


local function table_text(t, depth)
  if depth >= DEPTH then
    return next(t) == nil and "{}" or "{...}"
  end
  local parts = entries(t, depth)
  local line = "{" .. table.concat(parts, ", ") .. "}"
  if #line <= WIDTH - 2 * depth and not line:find("\n", 1, true) then
    return line
  end
  local indent = ("  "):rep(depth + 1)
  return "{\n" .. indent .. table.concat(parts, ",\n" .. indent) .. "\n" .. ("  "):rep(depth) .. "}"
end


-- Returns whether a table has a `__tostring` metamethod that is to be used.
local function has_text(t)
  local meta = debug.getmetatable(t)
  return type(meta) == "table" and meta.__tostring ~= nil and not meta.plain
end


function render(value, depth)
  if type(value) == "string" then
    return (("%q"):format(value):gsub("\\\n", "\\n"))
  elseif type(value) == "number" then
    return ("%.14g"):format(value)
  end
  local text = (depth == 0 and objects.text or objects.line)(value)
  if text then
    return text
  elseif type(value) == "table" and not has_text(value) then
    return table_text(value, depth)
  end
  return tostring(value)
end


--- Returns a value as text.
-- @param value anything
-- @treturn string
return function(value)
  return render(value, 0)
end
