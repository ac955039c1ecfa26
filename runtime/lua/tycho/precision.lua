-- The name that users require; see core/precision.lua.
require "tycho.core.luajit"
return require "tycho.core.precision"
