-- The name that users require; see optimizer/lr_scheduler.lua.
require "tycho.core.luajit"
return require "tycho.optimizer.lr_scheduler"
