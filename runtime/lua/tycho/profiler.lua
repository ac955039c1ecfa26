-- The name that users require; see core/profiler.lua.
return require "tycho.core.profiler"
