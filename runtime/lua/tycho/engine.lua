-- The name that users require; see core/engine.lua.
require "tycho.core.luajit"
return require "tycho.core.engine"
