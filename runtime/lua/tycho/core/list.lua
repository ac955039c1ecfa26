--- Lists that the library returns to users. Reading entry 0 or -1 is an error instead of nil, since
-- other languages count from 0 or from the end. `print` shows them, and `==` compares two of them
-- entry by entry.
--
-- In all other respects they are plain lists; `getmetatable` returns false, which
-- `values.is_plain` accepts.
--
-- @module tycho.core.list

local Error = require "tycho.core.error"

local List = { __metatable = false }


function List.__index(list, key)
  if type(key) == "number" and key <= 0 then
    Error.raise{ code = "index", argument = tostring(key), expected = "an index from 1", got = key,
      message = key == 0 and "lists and shapes count from 1: the first entry is [1], not [0]"
        or ("lists and shapes count from 1, and not from the end: the last entry is [%d], not [%d]")
          :format(#list, key) }
  end
end


List.__tostring = Error.show


function List.__concat(a, b)
  return tostring(a) .. tostring(b)
end


function List.__eq(a, b)
  for i = 1, math.max(#a, #b) do
    if a[i] ~= b[i] then
      return false
    end
  end
  return true
end


--- Makes reading an entry below 1 of a list an error.
-- @tparam table list a plain one
-- @treturn table the list
return function(list)
  return getmetatable(list) == nil and setmetatable(list, List) or list
end
