-- The name that users require; see core/context.lua.
require "tycho.core.luajit"
return require "tycho.core.context"
