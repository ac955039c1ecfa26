--- Lua's reserved words as a set.
--
-- @module tycho.core.reserved

local reserved = {}

for word in ("and break do else elseif end false for function goto if in local nil not or \z
    repeat return then true until while"):gmatch("%a+") do
  reserved[word] = true
end

return reserved
