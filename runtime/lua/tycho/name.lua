-- The name that users require; see symbol/name.lua.
require "tycho.core.luajit"
return require "tycho.symbol.name"
