-- The name that users require; see ndarray/seed.lua.
require "tycho.core.luajit"
return require "tycho.ndarray.seed"
