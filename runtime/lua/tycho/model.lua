-- The name that users require; see model/checkpoint.lua.
return require "tycho.model.checkpoint"
