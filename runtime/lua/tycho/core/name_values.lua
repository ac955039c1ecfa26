--- Lists of names and values: `print` shows `{{"accuracy", 0.93}}` as "accuracy = 0.93", and a name
-- as key returns its value: `m:score(it, "acc").accuracy`.
--
-- In all other respects they are plain lists; `getmetatable` returns false, which
-- `values.is_plain` accepts.
--
-- @module tycho.core.name_values

local Error = require "tycho.core.error"

local NameValues = { __metatable = false }


local function value_text(v)
  return type(v) == "number" and ("%.7g"):format(v) or (Error.show(v):gsub("%s+$", ""))
end


-- Returns the value of a name, the last item of its entry; nil for an unknown name.
function NameValues.__index(list, key)
  for _, entry in ipairs(type(key) == "string" and list or {}) do
    if entry[#entry - 1] == key then
      return entry[#entry]
    end
  end
end


function NameValues.__tostring(list)
  local parts = {}
  for i, entry in ipairs(list) do
    parts[i] = ("%s = %s"):format(tostring(entry[#entry - 1]), value_text(entry[#entry]))
  end
  return table.concat(parts, ", ")
end


--- Makes `print` show a list whose entries end in a name and a value.
-- @tparam table list
-- @treturn table the list
return function(list)
  return setmetatable(list, NameValues)
end
