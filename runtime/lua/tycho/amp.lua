-- The name that users require; see contrib/amp.lua.
require "tycho.core.luajit"
return require "tycho.contrib.amp"
