--- Random numbers of a sample. Numbers that a Lua function draws while it makes a sample depend
-- only on the seed, the epoch and the position of the sample, as in native threads.
--
-- @module tycho.gluon.data.stream

local ffi = require "ffi"
local native = require "tycho.core.ffi"

local C, check = native.C, native.check

local stream = {}

local state = ffi.new("uint64_t[2]")
local unit = ffi.new("double[1]")


--- Returns the key of a new epoch: the random state of cpu(0).
-- @bool draws whether the epoch draws random numbers, in which case the state advances
-- @treturn uint64_t seed
-- @treturn uint64_t epoch
function stream.key(draws)
  check(C.ty_rng(C.TY_CPU, 0, state, state + 1), "gluon.data.DataLoader")
  local seed, epoch = state[0], state[1]
  if draws then
    check(C.ty_rng_unit(C.TY_CPU, unit), "gluon.data.DataLoader")
  end
  return seed, epoch
end


-- Sets the random state of cpu(0) and returns the results of pcall, or raises its error.
local function restore_state(seed, counter, ok, ...)
  state[0], state[1] = seed, counter
  check(C.ty_rng(C.TY_CPU, 1, state, state + 1), "gluon.data.DataLoader")
  if not ok then
    error((...), 0)
  end
  return ...
end


--- Calls f(...) with the random state of cpu(0) set to that of a sample, and restores the old
-- state, also after an error.
-- @tparam uint64_t seed
-- @tparam uint64_t epoch
-- @int position of the sample in the epoch, from 0
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
function stream.with(seed, epoch, position, f, ...)
  check(C.ty_rng(C.TY_CPU, 0, state, state + 1), "gluon.data.DataLoader")
  local old_seed, old_counter = state[0], state[1]
  state[0], state[1] = C.ty_sample_seed(seed, epoch, position), 0
  check(C.ty_rng(C.TY_CPU, 1, state, state + 1), "gluon.data.DataLoader")
  return restore_state(old_seed, old_counter, pcall(f, ...))
end


return stream
