--- Running executors: forward, backward, and events between the parts of a run.
--
-- A run that reaches a monitored value or an operator written in Lua stops; Lua handles it, then
-- the core continues. The functions are methods of Executor (executor/executor.lua).
--
-- @module tycho.executor.run

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local arrays = require "tycho.executor.arrays"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local handles = require "tycho.executor.handle"
local inputs = require "tycho.executor.inputs"
local values = require "tycho.core.values"

local C, check, handle_of, idle = native.C, native.check, handles.of, handles.idle
local is_array, is_plain = class.is_array, values.is_plain

local Executor = {}                                      -- methods

local event = ffi.new("ty_event")


-- Reports a monitored value; returns the callback's error or nil. The array is read-only, and valid
-- only during the callback.
local function report(self)
  local x = class.borrow(event.tensor)
  rawset(x, "_readonly", true)
  local ok, e = handles.wait_for(self, self._monitor_callback, native.text(event.name), x)
  class.drop(x)
  return not ok and e or nil
end


-- Handles an event between two parts of a run: reports a value to the monitor, or runs an operator
-- written in Lua. Returns an error of the monitor's callback, after which the caller does not call
-- it again in this run; an error of a Lua operator ends the run and is raised.
local function act(self, handle, code, silent)
  check(C.ty_exec_event(handle, event), "Executor")
  if code == C.TY_EV_HOST then
    local ok, e = handles.wait_for(self, require "tycho.executor.custom", self, event)
    if not ok then
      C.ty_exec_abandon(handle, type(e) == "table" and e.message or tostring(e))
      error(e, 0)
    end
  elseif self._monitor_callback and not silent then
    return report(self)
  end
end


-- Continues a run until it is done. An error of the monitor's callback is raised then, so that the
-- executor stays usable.
local function drive(self, handle, code, func)
  local failed
  while code < 0 do
    failed = act(self, handle, code, failed) or failed
    code = C.ty_exec_resume(handle_of(self, func))       -- another coroutine may have freed it
  end
  check(code, func)
  if failed then
    error(failed, 0)
  end
end


local FORWARD = args.form("Executor:forward", {
  rest = "named", { "is_train", "boolean", false }, { "args", "dict?" },
})

-- Returns inputs by name: those among the options, and those in `args`.
local function given_inputs(a)
  if not a.args then
    return a.named
  end
  for name, v in pairs(a.args) do
    a.named[name] = v
  end
  return a.named
end


--- Runs the graph forward.
-- @tparam[opt] table options is_train = false; arrays or nested tables by argument name (or in
--   `args = {...}`), copied into the bound arrays; all are checked before any is copied
-- @treturn {NDArray,...} `exe.outputs`
function Executor:forward(...)
  local handle, func = idle(self, "Executor:forward"), "Executor:forward"
  local is_train = ...
  if select("#", ...) > 1 or is_train ~= nil and type(is_train) ~= "boolean" then
    local a = FORWARD(...)
    local given = given_inputs(a)
    if next(given) then
      inputs.copy(self, given, func)
    end
    is_train = a.is_train
  end
  local code = C.ty_exec_forward(handle, is_train and 1 or 0)
  if code ~= 0 then
    drive(self, handle, code, func)
  end
  if self._dynamic then
    arrays.fit_outputs(self, handle, func)
  end
  return self._outputs
end


local BACKWARD = args.form("Executor:backward", {
  list = true, dict = true, { "out_grads", "any?" }, { "is_train", "boolean", true },
})

-- Returns head gradients as a list in output order, from nil, an array, a list, or
-- a dictionary by output name.
local function head_list(self, given, func)
  if given == nil then
    return {}, 0
  elseif is_array(given) then
    return { given }, 1
  elseif not is_plain(given) then
    Error.raise{ code = "type", func = func, argument = "out_grads",
      expected = "an NDArray, a list or a dictionary of them",
      got = Error.kind(given), message = "bad 'out_grads'" }
  elseif #given > 0 or next(given) == nil then
    return given, #given
  end
  local list = {}
  for i, name in ipairs(self._names.outputs) do
    list[i] = given[name]
    if list[i] == nil then
      Error.raise{ code = "name", func = func, argument = name, expected = "an NDArray",
        got = "nothing", candidates = self._names.outputs,
        message = ("'out_grads' has no gradient for output '%s'"):format(name) }
    end
  end
  return list, #list
end


local function check_heads(list, n, func)
  for i = 1, n do
    local g = values.value(list[i])
    if g ~= nil and not is_array(g) then
      Error.raise{ code = "type", func = func, argument = "out_grads", expected = "NDArrays",
        got = Error.kind(g), message = ("entry %d of 'out_grads' is no NDArray"):format(i) }
    end
  end
end


--- Computes the gradients, into the arrays bound for them.
-- @param[opt] out_grads gradients of the outputs: an NDArray, a list (`ty.null`: not given), or a
--   dictionary by output name. Not needed for losses
-- @bool[opt=true] is_train false: gradients of the inference form (Dropout off,
--   BatchNorm with moving statistics)
function Executor:backward(...)
  local handle, func = idle(self, "Executor:backward"), "Executor:backward"
  local list, n, is_train = nil, 0, true
  if select("#", ...) > 0 then
    local a = BACKWARD(...)
    list, n = head_list(self, a.out_grads, func)
    check_heads(list, n, func)
    is_train = a.is_train
  end
  local heads
  if n > 0 then
    heads = ffi.new("ty_tensor *[?]", n)
    for i = 1, n do
      local g = values.value(list[i])
      heads[i - 1] = g and g._h
    end
  end
  drive(self, handle, C.ty_exec_backward(handle, heads, n, is_train and 1 or 0), func)
end


--- Cuts backward after the instructions that complete the gradients of each bucket, so that these
-- can be sent while the others are computed (not for users). Waits for unfinished runs.
-- @tparam table buckets number of a bucket, from 0, by argument name
function Executor:_cut_backward(buckets)
  local func = "Executor:_cut_backward"
  if rawequal(rawget(self, "_buckets"), buckets) then
    return
  end
  local names = self._names.arguments
  local list = ffi.new("int[?]", #names)
  for i, name in ipairs(names) do
    list[i - 1] = buckets[name] or -1
  end
  check(C.ty_exec_buckets(idle(self, func), list), func)
  rawset(self, "_buckets", buckets)
end


local PARTIAL = args.form("Executor:partial_forward",
  { { "step", "integer" }, { "is_train", "boolean", false } })

--- Runs node `step` (from 0; variables count) of the forward graph. The caller must run the steps
-- in order.
-- @treturn int steps left
function Executor:partial_forward(...)
  local handle, a, left = idle(self, "Executor:partial_forward"),
    PARTIAL(...), ffi.new("int[1]")
  drive(self, handle, C.ty_exec_partial_forward(handle, a.is_train and 1 or 0, a.step, left),
    "Executor:partial_forward")
  return left[0]
end


-- Returns the core's executor of the graph as it was written, if nodes of this one replace several
-- of its nodes, which a monitor has to see. The arrays and the positions of the outputs stay.
local function take_as_written(self, func)
  local out = ffi.new("ty_exec *[1]")
  check(C.ty_exec_as_written(idle(self, func), out), func)
  if out[0] ~= nil then
    self._handle = native.own(out[0], C.ty_exec_free)
    local outputs = class.keep(arrays.outputs(self._handle))
    for i = 1, #outputs do
      self._outputs[i] = outputs[i]
    end
    self._output_dict = nil
  end
  return self._handle
end


local function set_monitor(self, handle, callback, all)
  handle = callback and take_as_written(self, "Executor:set_monitor_callback") or handle
  check(C.ty_exec_monitor(handle, not callback and C.TY_MON_OFF or all and C.TY_MON_ALL
    or C.TY_MON_OUT), "Executor:set_monitor_callback")
  self._monitor_callback, self._monitor_all = callback, all
end


local MONITOR = args.form("Executor:set_monitor_callback", {
  { "callback", "function|null?" }, { "monitor_all", "boolean", false },
})

--- Calls `callback(name, array)` for every node's outputs as they are computed, forward and
-- backward; with `monitor_all` also for its inputs, before it runs. The array is read-only and
-- valid during the call. nil removes the callback.
function Executor:set_monitor_callback(...)
  local handle, a = handle_of(self, "Executor:set_monitor_callback"), MONITOR(...)
  set_monitor(self, handle, values.value(a.callback), a.monitor_all)
end


--- Takes over the monitor callback of another executor (not for users).
function Executor:_take_monitor(other)
  if self._monitor_callback ~= other._monitor_callback
      or self._monitor_all ~= other._monitor_all then
    set_monitor(self, handle_of(self, "Executor:set_monitor_callback"), other._monitor_callback,
      other._monitor_all)
  end
end


local CHECK = args.form("Executor:check_numerics", { { "on", "boolean", true } })

--- Stops runs at the first node whose output has NaN or an infinity: E(run) with the node and its
-- inputs' ranges; in training also if a label of SoftmaxOutput is not a class.
-- @bool[opt=true] on
function Executor:check_numerics(...)
  local handle = handle_of(self, "Executor:check_numerics")
  check(C.ty_exec_check(handle, CHECK(...).on and 1 or 0), "Executor:check_numerics")
end


return Executor
