-- The name that users require; see core/context.lua.
return require "tycho.core.context"
