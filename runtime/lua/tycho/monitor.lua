-- The name that users require; see module/monitor.lua.
require "tycho.core.luajit"
return require "tycho.module.monitor"
