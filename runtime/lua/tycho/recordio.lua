-- The name that users require; see io/recordio.lua.
return require "tycho.io.recordio"
