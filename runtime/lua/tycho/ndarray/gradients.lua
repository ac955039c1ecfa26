--- Variables, arrays with a gradient, and `backward` (`ty.autograd` has the rest).
--
-- The core computes gradients down to variables and to functions of Lua, which it does not call:
-- `gradients.pass_functions`, set by tycho.autograd, continues beyond them.
--
-- @module tycho.ndarray.gradients

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local gc = require "tycho.core.gc"
local recording = require "tycho.ndarray.recording"
local values = require "tycho.core.values"

local C, check, NDArray = native.C, native.check, class.NDArray

local gradients = {}

--- Set by `tycho.autograd.late` if devices share values: (func, heads, grads, variables, flags) ->
-- heads, grads, flags of the backward that can run now; nil: none can.
gradients.hold = nil


-- Variables ---------------------------------------------------------------------------------------

local REQUESTS = { null = C.TY_NULL, write = C.TY_WRITE, add = C.TY_ADD }


--- Returns the core's code of a `grad_req`.
function gradients.request(word, func, argument)
  if not REQUESTS[word] then
    Error.raise{ code = "value", func = func, argument = argument, expected = "write, add or null",
      got = Error.show(word), message = "bad '" .. argument .. "'" }
  end
  return REQUESTS[word]
end


--- Makes x a variable; grad may be nil if no gradient is requested.
function gradients.mark(x, grad, req, func)
  check(C.ty_variable(x._h, grad and grad._h or nil, req), func)
  rawset(x, "_grad", grad)
  if grad then
    class.keep_as_long(grad, x)
  end
end


local ATTACH = args.form("NDArray:attach_grad", { { "grad_req", "any", "write" },
  { "stype", "any?" } })

--- Makes the array a variable: `backward` computes its gradient into `x.grad`, which is zeros at
-- first. A recorded array loses its history.
-- @tparam NDArray x
-- @tparam[opt] table options grad_req = "write": each backward overwrites the gradient; "add":
--   gradients are added up until the script sets them to 0; "null": a variable without a gradient
-- @treturn NDArray itself
function NDArray.attach_grad(x, ...)
  local a = ATTACH(...)
  local req = gradients.request(a.grad_req, "NDArray:attach_grad", "grad_req")
  if a.stype ~= nil and a.stype ~= values.null and a.stype ~= "default" then
    Error.raise{ code = "unsupported", func = "NDArray:attach_grad", argument = "stype",
      expected = "default", got = Error.show(a.stype),
      message = "sparse storage is not part of Tycho" }
  end
  local grad = req ~= C.TY_NULL
    and call.zeros(x._shape, x._dtype, x._device, "NDArray:attach_grad") or nil
  gradients.mark(x, grad, req, "NDArray:attach_grad")
  return x
end


-- Backward ----------------------------------------------------------------------------------------

--- Returns the handles of arrays for the core.
-- @tparam {NDArray,...} list
-- @treturn cdata `ty_tensor *[n]`
function gradients.handles(list)
  local h = ffi.new("ty_tensor *[?]", math.max(#list, 1))
  for i, x in ipairs(list) do
    h[i - 1] = x._h
  end
  return h
end


local one_head, one_grad = ffi.new("ty_tensor *[1]"), ffi.new("ty_tensor *[1]")

local function call_core(heads, grads, variables, targets, flags)
  local n = #heads
  if n == 1 and not variables then                       -- most backwards
    one_head[0], one_grad[0] = heads[1]._h, grads[1] and grads[1]._h or nil
    return C.ty_backward(one_head, one_grad, 1, nil, nil, 0, flags)
  end
  local head_grads = ffi.new("ty_tensor *[?]", n)
  for i = 1, n do
    head_grads[i - 1] = grads[i] and grads[i]._h or nil
  end
  local nvariable = variables and #variables or 0
  return C.ty_backward(gradients.handles(heads), head_grads, n,
    variables and gradients.handles(variables) or nil,
    targets and gradients.handles(targets) or nil, nvariable, flags)
end


--- Runs the core's backward. If it ran out of memory, collects garbage and runs it again, since it
-- writes nothing before it has all its memory.
function gradients.run_core(func, ...)
  local code = call_core(...)
  if code == C.TY_EMEMORY then
    gc.release()
    code = call_core(...)
  end
  native.check(code, func)
end


-- Results that the script no longer holds would take memory and be written to no use. A collection
-- before the program is made finds them. It takes 0.6 ms for 2 MB of heap, twice that if the heap
-- is not in the caches. Skipped results save time, too: an LSTM at 64 lengths in turn took 30.2 ms
-- a step with collections of 2.7 ms for 5 MB, 32.4 without (Intel, one thread, 2026-11-28).

-- Bytes of pending results from which on a collection may pay. The 64 lengths, hybridized, take
-- 1.14 times a Module's memory with 1 MiB, 1.18 with 4 MiB, and the same time or less (Zen 4,
-- 2026-11-29).
local WORTH_BYTES = 2 ^ 20
-- Bytes of results that a CPU thread must save per second of collections, from the times above.
local WRITTEN_PER_SECOND = 2 ^ 30
local MOST_WRITERS = 4                   -- more threads are limited by the speed of memory
-- Least time between two calls of backward, in units of a collection's time, if too few bytes are
-- pending, and on a GPU.
local WORTH_TIMES = 25
-- Largest number of steps between two collections that did not pay.
local MOST_PASSED = 64
-- A step is skipped only if it has at most this many times the bytes of the one whose collection
-- did not pay: steps of sequences differ.
local MOST_ALIKE = 1.5
-- Largest factor by which one collection raises the estimate of its time: other processes may have
-- slowed it down.
local MOST_GROWTH = 1.1
-- CPU seconds of the process at the last backward with at least WORTH_BYTES pending
local last_backward = 0
local collection = 0.002                 -- estimate of the seconds that a collection takes
local passed = 0                         -- steps since a collection
local to_pass = 0                        -- steps to skip before the next collection
local judged = 0                         -- bytes of the step whose collection did not pay


-- Returns the bytes whose writing takes as long as a collection. (The script may be many steps
-- ahead of a CPU, so the time between its calls is no measure.)
local function bytes_of_collection()
  return collection * WRITTEN_PER_SECOND * math.min(C.ty_threads(0), MOST_WRITERS)
end


-- Collects garbage, and updates the estimate of its time: the smaller of CPU time, which includes
-- the device's threads, and elapsed time, which includes other processes.
local function collect()
  local cpu, from = os.clock(), C.ty_profile_now()
  gc.find_dropped()
  local seconds = math.min(os.clock() - cpu, tonumber(C.ty_profile_now() - from) * 1e-9)
  collection = math.min(seconds, MOST_GROWTH * collection)
end


-- Collects dropped results before a backward, if that is likely to pay.
local function collect_results(device)
  local bytes, on_cpu = tonumber(C.ty_lazy_bytes()), device < C.TY_GPU
  if bytes <= WORTH_BYTES then
    return
  end
  local now = os.clock()
  local is_rare = now - last_backward > WORTH_TIMES * collection
  if is_rare or on_cpu then
    passed = passed + 1
    if passed > to_pass or bytes > MOST_ALIKE * judged then
      collect()
      local found = bytes - tonumber(C.ty_lazy_bytes())
      local worth = found > WORTH_BYTES / 4
        and (is_rare or on_cpu and found > bytes_of_collection())
      passed, to_pass = 0, worth and 0 or math.min(2 * to_pass + 1, MOST_PASSED)
      judged = worth and 0 or bytes
    end
  end
  last_backward = now
end


--- Computes gradients.
-- @string func public name, for errors
-- @tparam {NDArray,...} heads
-- @tparam table grads head gradients by position, false for ones
-- @param variables list of arrays whose gradients are written to `targets`; nil: all variables,
--   into their `grad`
-- @param targets list of arrays
-- @int flags TY_RETAIN, TY_TRAIN
function gradients.run(func, heads, grads, variables, targets, flags)
  recording.note_line_always()
  collect_results(heads[1] and class.device_of(heads[1]) or C.TY_CPU)
  if gradients.hold then
    heads, grads, flags = gradients.hold(func, heads, grads, variables, flags)
    if not heads then
      return
    end
  end
  if gradients.pass_functions then
    heads, grads = gradients.pass_functions(func, heads, grads, flags)
  end
  gradients.run_core(func, heads, grads, variables, targets, flags)
end


--- Returns the flags for the core.
function gradients.flags(retain_graph, train_mode)
  return (retain_graph and C.TY_RETAIN or 0) + (train_mode and C.TY_TRAIN or 0)
end


local METHOD = args.form("NDArray:backward", { { "out_grad", "array?" },
  { "retain_graph", "boolean", false }, { "train_mode", "boolean", true } })

--- Computes the gradients of the array with respect to all variables that it depends on, into the
-- variables' `grad`.
-- @tparam NDArray x
-- @tparam[opt] NDArray out_grad of its shape; nil: ones
-- @tparam[opt] table options as of `ty.autograd.backward`
function NDArray.backward(x, ...)
  if not class.is_array(x) then
    Error.raise{ code = "type", func = "NDArray:backward", expected = "an NDArray",
      got = Error.kind(x), message = "methods take a colon: x:backward(...), not x.backward(...)" }
  end
  if select("#", ...) == 0 then
    return gradients.run("NDArray:backward", { x }, { false }, nil, nil, C.TY_TRAIN)
  end
  local a = METHOD(...)
  gradients.run("NDArray:backward", { x }, { a.out_grad or false }, nil, nil,
    gradients.flags(a.retain_graph, a.train_mode))
end


return gradients
