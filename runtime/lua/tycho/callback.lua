-- The name that users require; see module/callback.lua.
return require "tycho.module.callback"
