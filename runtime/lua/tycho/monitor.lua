-- The name that users require; see module/monitor.lua.
return require "tycho.module.monitor"
