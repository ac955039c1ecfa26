-- The name that users require; see autograd/autograd.lua. Executors are loaded too: the symbols of
-- `get_symbol` are bound.
require "tycho.core.luajit"
require "tycho.executor.executor"
return require "tycho.autograd.autograd"
