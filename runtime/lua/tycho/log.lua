-- The name that users require; see core/log.lua.
require "tycho.core.luajit"
return require "tycho.core.log"
