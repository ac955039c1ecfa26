-- The name that users require; see symbol/either.lua.
require "tycho.core.luajit"
return require "tycho.symbol.either"
