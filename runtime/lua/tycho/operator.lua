-- The name that users require; see executor/custom_operator.lua.
return require "tycho.executor.custom_operator"
