--- Random numbers of a sample: what a function draws while it makes a sample follows from (seed,
-- epoch, position of the sample) alone, as what the native threads draw does.
--
-- @module tycho.gluon.data.stream

local ffi = require "ffi"
local native = require "tycho.core.ffi"

local C, check = native.C, native.check

local stream = {}

local state = ffi.new("uint64_t[2]")
local unit = ffi.new("double[1]")


--- Returns the key of a new epoch, from the random state of cpu(0), which advances if `draws`.
-- @treturn uint64_t,uint64_t seed and epoch
function stream.key(draws)
  check(C.ty_rng(C.TY_CPU, 0, state, state + 1), "gluon.data.DataLoader")
  local seed, epoch = state[0], state[1]
  if draws then
    check(C.ty_rng_unit(C.TY_CPU, unit), "gluon.data.DataLoader")
  end
  return seed, epoch
end


local function back_to(seed, counter, ok, ...)
  state[0], state[1] = seed, counter
  check(C.ty_rng(C.TY_CPU, 1, state, state + 1), "gluon.data.DataLoader")
  if not ok then
    error((...), 0)
  end
  return ...
end


--- Calls f(...) with the random state of cpu(0) that a sample has, and puts the old one back.
-- @return the results of f
function stream.with(seed, epoch, position, f, ...)
  check(C.ty_rng(C.TY_CPU, 0, state, state + 1), "gluon.data.DataLoader")
  local old_seed, old_counter = state[0], state[1]
  state[0], state[1] = C.ty_sample_seed(seed, epoch, position), 0
  check(C.ty_rng(C.TY_CPU, 1, state, state + 1), "gluon.data.DataLoader")
  return back_to(old_seed, old_counter, pcall(f, ...))
end


return stream
