-- The name that users require; see core/runtime.lua.
return require "tycho.core.runtime"
