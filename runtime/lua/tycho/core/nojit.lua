--- Runs a function with the JIT compiler off.
--
-- Binding many buckets calls the same few hundred functions some dozen times each: often enough for
-- LuaJIT to compile them, but too rarely to pay (22 ms instead of 27 for sixty buckets). Existing
-- traces are still used.
--
-- @module tycho.core.nojit

local function finish(ok, ...)
  jit.on()
  if not ok then
    error((...), 0)
  end
  return ...
end


--- Calls a function with the JIT compiler off, and turns it on afterwards, also after an error.
-- @tparam function f
-- @param ... its arguments
-- @return its results
local function interpreted(f, ...)
  if not jit.status() then
    return f(...)
  end
  jit.off()
  return finish(pcall(f, ...))
end


return interpreted
