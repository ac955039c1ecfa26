-- Encodes JSON. lua-cjson writes an empty list as {}; here the key determines whether it is a list,
-- as in graph files.

local cjson = require "cjson"

local json = { decode = cjson.decode, null = cjson.null }

local OBJECTS = { attrs = true, attr = true, param = true }

local function encode(value, key)
  if type(value) ~= "table" then
    return cjson.encode(value)
  end
  local parts = {}
  if #value > 0 or next(value) == nil and not OBJECTS[key] then
    for i, v in ipairs(value) do
      parts[i] = encode(v)
    end
    return "[" .. table.concat(parts, ", ") .. "]"
  end
  for k, v in pairs(value) do
    parts[#parts + 1] = cjson.encode(k) .. ": " .. encode(v, k)
  end
  table.sort(parts)
  return "{" .. table.concat(parts, ", ") .. "}"
end

json.encode = encode

return json
