--- Lists that are handed to users and have no entry 0: who counts from 0 is told, instead of going
-- on with nil.
--
-- They are plain lists in all else: `getmetatable` gives false, for which `values.is_plain` asks.
--
-- @module tycho.core.list

local Error = require "tycho.core.error"

local List = { __metatable = false }


function List.__index(_, key)
  if key == 0 then
    Error.raise{ code = "index", argument = "0", expected = "an index from 1", got = 0,
      message = "lists and shapes count from 1: the first entry is [1], not [0]" }
  end
end


--- Lets a list refuse entry 0.
-- @tparam table list
-- @treturn table the list
return function(list)
  return setmetatable(list, List)
end
