-- The name that users require; see test/utils.lua.
require "tycho.core.luajit"
return require "tycho.test.utils"
