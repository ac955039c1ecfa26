-- The name that users require; see core/engine.lua.
return require "tycho.core.engine"
