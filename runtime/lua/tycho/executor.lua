-- The name that users require; see executor/executor.lua.
return require "tycho.executor.executor"
