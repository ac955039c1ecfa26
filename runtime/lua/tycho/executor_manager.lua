-- The name that users require; see module/executor_manager.lua.
return require "tycho.module.executor_manager"
