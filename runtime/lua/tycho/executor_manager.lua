-- The name that users require; see module/executor_manager.lua.
require "tycho.core.luajit"
return require "tycho.module.executor_manager"
