-- The name that users require; see symbol/name.lua.
return require "tycho.symbol.name"
