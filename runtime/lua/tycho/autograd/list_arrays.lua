--- Reads arguments that are an array or a list of arrays.
--
-- @module tycho.autograd.list_arrays

local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local values = require "tycho.core.values"


--- Returns an array or a list of arrays as a list; raises E(type) for other values.
-- @param v the value of the argument
-- @string func public name of the function, for errors
-- @string argument its name, for errors
-- @treturn {NDArray,...}
return function(v, func, argument)
  local list = values.is_plain(v) and v or { v }
  for _, x in ipairs(list) do
    if not class.is_array(x) then
      Error.raise{ code = "type", func = func, argument = argument,
        expected = "an NDArray or a list of them", got = Error.kind(x),
        message = ("bad '%s'"):format(argument) }
    end
  end
  return list
end
