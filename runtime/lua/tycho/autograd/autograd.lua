--- Gradients of plain arrays: records the calls of a script and computes gradients from the record.
--
--     local x = ty.nd.array{1, 2, 3}
--     x:attach_grad()
--     local y = autograd.record(function() return (x * x):sum() end)
--     y:backward()
--     print(x.grad)                       --> 2 4 6
--
-- The parts: `autograd.modes` (recording and training), `variables`, `backward`, `higher`
-- (gradients of gradients), `function` (functions of Lua), `symbol` (`get_symbol`), `steps`
-- (recorded calls as the core reports them), `late` (values shared by devices); `ndarray.gradients`
-- calls the core.
--
-- @module tycho.autograd

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local namespace = require "tycho.core.namespace"
local native = require "tycho.core.ffi"
require "tycho.ndarray"                                  -- adds methods to its class first
local gradients = require "tycho.autograd.backward"
local functions = require "tycho.autograd.function"
local modes = require "tycho.autograd.modes"
local variables = require "tycho.autograd.variables"

local autograd = { Function = functions.Function, get_symbol = require "tycho.autograd.symbol" }

local NAMES = { [modes] = { "record", "pause", "train_mode", "predict_mode", "begin", "finish",
  "is_recording", "is_training", "set_recording", "set_training" },
  [variables] = { "mark_variables" }, [gradients] = { "backward", "grad" } }

for part, names in pairs(NAMES) do
  for _, name in ipairs(names) do
    autograd[name] = part[name]
  end
end


local counts = ffi.new("ty_lazy_stats")

--- Returns counts of recorded calls (ARCHITECTURE.md, "Recorded calls"): programs (kept now), hits
-- (runs of kept programs), misses (programs that were built), flushes (times that waiting calls
-- were submitted), ops (calls in these), pending (calls that wait now), lazy (whether calls wait
-- at all).
-- @tparam[opt] bool reset true: sets hits, misses, flushes and ops to 0 afterwards
-- @treturn table
function autograd.stats(reset)
  native.check(native.C.ty_lazy(counts, reset and 1 or 0), "autograd.stats")
  return { programs = tonumber(counts.programs), hits = tonumber(counts.hits),
    misses = tonumber(counts.misses), flushes = tonumber(counts.flushes),
    pending = tonumber(counts.pending), ops = tonumber(counts.ops), lazy = counts.enabled ~= 0 }
end


return namespace.close(autograd, "autograd", "function")
