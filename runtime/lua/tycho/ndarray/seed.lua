--- Seeds and states of random streams, and the functions that sample from them: `ty.random`.
--
-- Every device has a stream; its state is a seed and a counter. Equal seeds give equal numbers, on
-- CPU and GPU. A call of an operator or a run of an executor advances the counter if it draws
-- numbers. Dropout, RReLU and zoneout draw in training only, so an evaluation does not change the
-- numbers of the training around it.
--
--     ty.random.seed(7)                              -- all devices, each with different numbers
--     ty.random.seed(7, {ctx = ty.gpu(0)})           -- one device; same numbers on every device
--     ty.random.uniform{shape = {3}}                 -- the functions of ty.nd.random
--
-- @module tycho.random

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local namespace = require "tycho.core.namespace"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local nd = require "tycho.ndarray"

local C, check = native.C, native.check

local random = {}


-- State -------------------------------------------------------------------------------------------

local LEAST_CPUS = 8                             -- least CPU queues whose states are saved

local function integer_value(v)
  return type(v) == "number" and v == math.floor(v) and v - v == 0, v, "an integer", "value"
end

local WHERE = { text = "a context or \"all\"", check = function(v)
  return v == "all" or Class.is_a(v, context.Context)
end }

local SEED = args.form("random.seed", { { "seed", integer_value }, { "ctx", WHERE, "all" } })

--- Seeds a device or all of them.
-- @int seed not an integer: E(value)
-- @tparam[opt] table options ctx = a context, or "all": each device then has other numbers
function random.seed(...)
  local a = SEED(...)
  local device = a.ctx == "all" and -1 or a.ctx._device
  check(C.ty_seed(device, ffi.cast("uint64_t", ffi.cast("int64_t", a.seed))), "random.seed")
end


local function devices()
  local list = {}
  for id = 0, math.max(C.ty_devices(C.TY_CPU), LEAST_CPUS) - 1 do
    list[#list + 1] = context.cpu(id)
  end
  for id = 0, context.num_gpus() - 1 do
    list[#list + 1] = context.gpu(id)
  end
  return list
end


local function digits(n)
  return (tostring(n):gsub("ULL$", ""))
end


--- Returns the states of all devices: `{["cpu(0)"] = {seed = "7", counter = "12"}, ...}`; the
-- numbers are text, as they have 64 bits.
function random.get_state()
  local n, state = ffi.new("uint64_t[2]"), {}
  for _, ctx in ipairs(devices()) do
    check(C.ty_rng(ctx._device, 0, n, n + 1), "random.get_state")
    state[tostring(ctx)] = { seed = digits(n[0]), counter = digits(n[1]) }
  end
  return state
end


local function read_digits(text, name)
  if type(text) ~= "string" or not text:find("^%d+$") or #text > 20 then
    Error.raise{ code = "type", func = "random.set_state", argument = name,
      expected = "digits as text",
      got = Error.kind(text), message = "the state is not one that get_state gave" }
  end
  local n = 0ULL
  for digit in text:gmatch("%d") do
    n = n * 10 + tonumber(digit)
  end
  return n
end


local STATE = args.form("random.set_state", { { "state", "table" } })

--- Restores states from `get_state`.
-- @tparam table state
function random.set_state(state)
  state = STATE{ state = state }.state
  local n = ffi.new("uint64_t[2]")
  for name, row in pairs(state) do
    local ctx = context.Context(name)
    n[0], n[1] = read_digits(row.seed, name), read_digits(row.counter, name)
    check(C.ty_rng(ctx._device, 1, n, n + 1), "random.set_state")
  end
end


-- Drawing -----------------------------------------------------------------------------------------

for name, f in pairs(nd.random) do
  random[name] = f
end

return namespace.close(random, "random", "function")
