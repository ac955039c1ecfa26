-- The name that users require; see symbol/symbol.lua. Executors are loaded too: symbols are bound.
require "tycho.core.luajit"
require "tycho.executor.executor"
return require "tycho.symbol.symbol"
