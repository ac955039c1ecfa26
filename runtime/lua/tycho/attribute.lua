-- The name that users require; see symbol/attribute.lua.
return require "tycho.symbol.attribute"
