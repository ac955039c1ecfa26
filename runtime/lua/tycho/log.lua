-- The name that users require; see core/log.lua.
return require "tycho.core.log"
