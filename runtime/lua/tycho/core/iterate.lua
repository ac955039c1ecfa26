--- `pairs` and `next` that are never compiled, for the library's loops; and closures that traces do
-- not keep alive.
--
-- LuaJIT 2.1 of 2022 (Debian 12) compiles `next` into a call whose 64-bit result it may cut to 32
-- bits when registers are short; the trace then reads a wild address. A function for which
-- compilation is off ends every trace that calls it, so loops with these two stay in the
-- interpreter. None of the library's loops over tables is long.
--
-- Code that makes and binds graphs is full of such loops and runs only a few times: its traces are
-- aborted and started elsewhere again, which took two fifths of the time. Its files therefore
-- begin with `jit.off(true, true)`: the whole file is interpreted, and uses the standard
-- `pairs`, for which the interpreter has instructions. Code that runs in every step
-- (executor/run.lua, the arrays) is compiled.
--
-- @module tycho.core.iterate

local iterate = {}

local standard_next = next


--- Returns the next key and value of a table, as the standard `next` does.
-- @tparam table t
-- @param key the one before; nil: from the start
-- @return the next key and its value; nil at the end
function iterate.next(t, key)
  return standard_next(t, key)
end
jit.off(iterate.next)


--- Returns an iterator over a table, as the standard `pairs` does.
-- @tparam table t
-- @treturn function
-- @treturn table t
function iterate.pairs(t)
  return iterate.next, t
end
jit.off(iterate.pairs)


local KEPT = 3                           -- closures: PROTO_CLC_POLY in LuaJIT's lj_obj.h

--- Keeps LuaJIT traces from holding the closures that a function makes. LuaJIT specializes a trace
-- to one of the first few closures of a prototype, and keeps that with its upvalues; so the
-- first few are made here, with empty upvalues. For closures over arrays (or objects with arrays)
-- that a script calls in its loops. If the library itself calls the function, it passes arrays as
-- arguments instead.
-- @tparam function make returns a closure and does nothing else; it is called without arguments
-- @treturn function make
function iterate.alike(make)
  for _ = 1, KEPT do
    make()
  end
  return make
end


return iterate
