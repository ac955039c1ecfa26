--- Dictionaries that `print` shows: `{fc_bias = float32 3 @cpu(0), ...}`, arrays in a few words.
--
-- In all other respects they are plain tables; `getmetatable` returns false, which
-- `values.is_plain` accepts.
--
-- @module tycho.core.dict

local attrs = require "tycho.core.attrs"
local Error = require "tycho.core.error"

local WIDTH = 100                                        -- columns of one line

-- the prompt draws such tables itself
local Dict = { __metatable = false, plain = true }


local function value_text(v)
  if type(v) == "table" and getmetatable(v) and v.summary then
    return v:summary()
  end
  return type(v) == "table" and debug.getmetatable(v) == Dict and tostring(v) or Error.show(v)
end


function Dict.__tostring(dict)
  local parts = {}
  for i, name in ipairs(attrs.keys(dict)) do
    parts[i] = ("%s = %s"):format(tostring(name), value_text(dict[name]))
  end
  local line = "{" .. table.concat(parts, ", ") .. "}"
  return #line <= WIDTH and line or "{" .. table.concat(parts, ",\n ") .. "}"
end


--- Makes `print` show a dictionary.
-- @tparam table dict a plain one
-- @treturn table the dictionary
return function(dict)
  return setmetatable(dict, Dict)
end
