--- Makes a typo an error: reading or writing an undeclared global.
--
-- Globals that exist when the function is called stay usable; later ones are declared
-- with `rawset(_G, name, value)`.
--
--     require("tycho.core.strict")()
--
-- @module tycho.core.strict

local Error = require "tycho.core.error"


local function refuse(what)
  return function(_, name)
    Error.raise{ code = "name", argument = tostring(name),
      message = ("%s an undeclared global '%s'"):format(what, tostring(name)) }
  end
end


--- Guards a table of globals from now on.
-- @tparam[opt=_G] table globals
return function(globals)
  globals = globals or _G
  local meta = getmetatable(globals) or {}
  meta.__newindex, meta.__index = refuse("writing"), refuse("reading")
  return setmetatable(globals, meta)
end
