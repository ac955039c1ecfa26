-- Raises an error unless this is LuaJIT 2.1 with its FFI. Every module that users require loads
-- this file first, since other files do not even compile under PUC Lua 5.1.

local OLDEST = 20100                                     -- jit.version_num

local function refuse(what)
  package.loaded["tycho.core.luajit"] = nil              -- so that the next require raises again
  error(("Tycho needs LuaJIT 2.1 with its FFI, and this is %s: run the script with build/tycho or "
    .. "with luajit"):format(what), 0)
end

local jit = rawget(_G, "jit")

if type(jit) ~= "table" then
  refuse(_VERSION)
elseif jit.version_num < OLDEST then
  refuse(jit.version)
elseif not pcall(require, "ffi") then
  refuse(jit.version .. " without it")
end

return jit
