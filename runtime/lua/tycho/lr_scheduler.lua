-- The name that users require; see optimizer/lr_scheduler.lua.
return require "tycho.optimizer.lr_scheduler"
