-- The name that users require; see symbol/attribute.lua.
require "tycho.core.luajit"
return require "tycho.symbol.attribute"
