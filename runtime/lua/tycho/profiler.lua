-- The name that users require; see core/profiler.lua.
require "tycho.core.luajit"
return require "tycho.core.profiler"
