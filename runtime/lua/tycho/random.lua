-- The name that users require; see ndarray/seed.lua.
return require "tycho.ndarray.seed"
