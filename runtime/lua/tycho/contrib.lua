-- The name that users require; see contrib/init.lua.
require "tycho.core.luajit"
return require "tycho.contrib.init"
