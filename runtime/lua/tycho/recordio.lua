-- The name that users require; see io/recordio.lua.
require "tycho.core.luajit"
return require "tycho.io.recordio"
