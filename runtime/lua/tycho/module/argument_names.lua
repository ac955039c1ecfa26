--- The names of a symbol's arguments: checks the names that users of modules give, and tells
-- parameters from inputs (not for users).
--
-- @module tycho.module.argument_names

local Error = require "tycho.core.error"
local tables = require "tycho.core.tables"

local argument_names = {}


local PARAM_ENDS = { "_weight$", "_bias$", "_gamma$", "_beta$" }

--- Returns whether an argument's name has the ending of a parameter. An argument without such an
-- ending is an input, or a parameter with an unusual name.
-- @string name
function argument_names.is_parameter(name)
  for _, ending in ipairs(PARAM_ENDS) do
    if name:find(ending) then
      return true
    end
  end
  return false
end


-- Returns the arguments whose names do not have the ending of a parameter.
local function input_like(names)
  local list = {}
  for _, name in ipairs(names) do
    list[#list + 1] = not argument_names.is_parameter(name) and name or nil
  end
  return list
end


--- Raises E(name) for given names that are not arguments of the symbol; with a logger, warns
-- instead.
-- @tparam Symbol symbol
-- @tparam {string,...} given
-- @string what name of the option that has the names, for messages
-- @param[opt] logger a warning goes to it in place of the error
function argument_names.check(symbol, given, what, logger)
  if #given == 0 then
    return
  end
  local names = symbol:list_arguments()
  local known = tables.positions(names)
  for _, name in ipairs(given) do
    if not known[name] then
      local candidates = what == "fixed_param_names" and names or input_like(names)
      local text = ("'%s' of '%s' is no argument of the symbol"):format(tostring(name), what)
      if not logger then
        Error.raise{ code = "name", func = "mod.Module", argument = tostring(name), message = text,
          candidates = Error.nearest(name, candidates, 10) }
      end
      logger:warning(text .. "; its inputs: " .. table.concat(candidates, ", "))
    end
  end
end


--- Returns the given names that are arguments of the symbol, in their given order.
-- @tparam Symbol symbol
-- @tparam {string,...} given
function argument_names.known(symbol, given)
  local is_argument, list = tables.positions(symbol:list_arguments()), {}
  for _, name in ipairs(given) do
    list[#list + 1] = is_argument[name] and name or nil
  end
  return list
end


--- Returns the arguments that are not inputs, in the symbol's order.
-- @tparam Symbol symbol
-- @tparam {string,...} ... lists of inputs
function argument_names.parameters(symbol, ...)
  local is_input, list = {}, {}
  for _, names in ipairs{ ... } do
    for _, name in ipairs(names) do
      is_input[name] = true
    end
  end
  for _, name in ipairs(symbol:list_arguments()) do
    list[#list + 1] = not is_input[name] and name or nil
  end
  return list
end


return argument_names
