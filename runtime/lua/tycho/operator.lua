-- The name that users require; see op/custom.lua.
require "tycho.core.luajit"
return require "tycho.op.custom"
