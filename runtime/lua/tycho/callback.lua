-- The name that users require; see module/callback.lua.
require "tycho.core.luajit"
return require "tycho.module.callback"
