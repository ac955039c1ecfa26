-- The name that users require; see test/utils.lua.
return require "tycho.test.utils"
