-- The name that users require; see core/runtime.lua.
require "tycho.core.luajit"
return require "tycho.core.runtime"
