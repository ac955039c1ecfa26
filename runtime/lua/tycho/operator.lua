-- The name that users require; see op/custom.lua.
return require "tycho.op.custom"
