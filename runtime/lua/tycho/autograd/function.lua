--- Functions written in Lua with their own gradient.
--
--     local Clip = autograd.Function:extend("Clip")
--     function Clip:init(low) self.low = low end
--     function Clip:forward(x)
--       self:save_for_backward(x)
--       return ty.nd.maximum(x, self.low)
--     end
--     function Clip:backward(dy)
--       return dy * self.saved_tensors[1]:gt(self.low)
--     end
--     y = autograd.record(function() return Clip(0)(x) end)
--
-- For the core a call of a function is a step without an operator; its object is stored here, by
-- the step's serial number, while the step lives. Backward calls functions from the last to the
-- first in the order of recording: it computes the gradients of a function's outputs, calls the
-- function, and adds the function's inputs, with the gradients that it returns, to the heads.
-- @module tycho.autograd.function

local ffi = require "ffi"
local args = require "tycho.core.args"
local native = require "tycho.core.ffi"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local gc = require "tycho.core.gc"
local gradients = require "tycho.ndarray.gradients"
local modes = require "tycho.autograd.modes"
local recording = require "tycho.ndarray.recording"
local steps = require "tycho.autograd.steps"
local pairs = require("tycho.core.iterate").pairs
local tables = require "tycho.core.tables"
local tracing = require "tycho.symbol.tracing"

local C, check, is_array = native.C, native.check, class.is_array
local is_symbol = args.types.symbol.check

local functions = {}

-- Steps -------------------------------------------------------------------------------------------

local objects = {}                       -- serial number of a step -> its object
local serial = ffi.new("uint64_t[1]")


-- Forgets the objects of steps that the core has freed.
local function release_objects()
  local gone = tonumber(C.ty_function_gone())
  while gone ~= 0 do
    objects[gone] = nil
    gone = tonumber(C.ty_function_gone())
  end
end

gc.watch(release_objects)


--- Records a computation as one step without an operator.
-- @tparam {NDArray,...} inputs
-- @tparam {NDArray,...} outputs made while recording was off
-- @param object has a method `backward(gradients of outputs ...)` that returns the gradients of
--   inputs
-- @treturn {NDArray,...} new arrays with the data of the outputs and with the history
function functions.record(inputs, outputs, object)
  local results = {}
  for i, y in ipairs(outputs) do
    results[i] = class.detached(y)
  end
  release_objects()
  recording.note_line_always()
  check(C.ty_function(gradients.handles(inputs), #inputs, gradients.handles(results), #results,
    serial))
  if serial[0] ~= 0 then
    objects[tonumber(serial[0])] = object
  end
  return results
end


recording.record_function = functions.record


-- Raises an error in the backward of a function.
local function fail_gradient(object, fields)
  fields.func = (object.class_name or "Function") .. ":backward"
  Error.raise(fields)
end


-- Returns the n gradients that a function has returned, in the dtypes of its inputs; raises
-- E(value) for another number, E(type), E(shape).
local function check_gradients(object, step, n, list)
  if n ~= step.nin then
    fail_gradient(object, { code = "value", expected = step.nin, got = n,
      message = ("backward must return a gradient for each of the %d inputs (nil for zeros), but \z
        returned %d"):format(step.nin, n) })
  end
  for i = 1, n do
    local g = list[i]
    if g ~= nil and not is_array(g) then
      fail_gradient(object, { code = "type", argument = tostring(i), expected = "an NDArray or nil",
        got = Error.kind(g), message = ("bad gradient of input %d"):format(i) })
    elseif g ~= nil then
      local x = step:input(i)
      if not tables.same(g._shape, x._shape) then
        fail_gradient(object, { code = "shape", argument = tostring(i), expected = x.shape,
          got = g.shape, message = ("the gradient of input %d has another shape than the input")
            :format(i) })
      end
      list[i] = g._dtype ~= x._dtype and g:astype(x.dtype) or g
    end
  end
  return list
end


local function collect_gradients(object, step, ...)
  return check_gradients(object, step, select("#", ...), { ... })
end


--- Calls the backward of a recorded function.
-- @tparam Step step
-- @tparam {NDArray,...} grads gradients of all its outputs
-- @bool record whether the calls of backward are recorded
-- @treturn table gradients of its inputs; nil for zeros
function functions.backward(step, grads, record)
  local object = objects[step.serial]
  if object._enter_backward then
    object:_enter_backward(step, record)
  end
  return collect_gradients(object, step, modes.run(record, recording.training, object.backward,
    object, unpack(grads)))
end


-- Backward through functions ----------------------------------------------------------------------

-- The heads of a backward, and their gradients by position; false stands for ones.
local Heads = {}
Heads.__index = Heads


-- Returns a text that is the same for all arrays on one recorded output, and for no others.
local function get_identity(x)
  local step, which = steps.of(x)
  return step and step.serial .. ":" .. which or tostring(x._h)
end


function Heads.new(heads, grads)
  local self = setmetatable({ list = { unpack(heads) }, grads = { unpack(grads, 1, #heads) },
    position = {} }, Heads)
  for i, x in ipairs(heads) do
    self.position[get_identity(x)] = i
  end
  return self
end


-- Adds a head with a gradient; if the head is in the list already, adds to its gradient.
function Heads:add(x, g)
  local key = get_identity(x)
  local i = self.position[key]
  if not i then
    i = #self.list + 1
    self.list[i], self.grads[i], self.position[key] = x, g, i
  else
    self.grads[i] = self.grads[i] and self.grads[i] + g or g + 1
  end
end


-- The Lua functions that backward still has to call: serial number -> { step, outputs, totals };
-- totals are the gradients of the outputs so far.
local Pending = {}
Pending.__index = Pending


-- Returns the entry of a step; a new one has gradients of zero.
function Pending:entry(step)
  local entry = self[step.serial]
  if not entry then
    entry = { step = step, outputs = {}, totals = {} }
    for i = 1, step.nout do
      local y = step:output(i)
      entry.outputs[i] = y
      entry.totals[i] = call.zeros(y._shape, y._dtype, y._device, "autograd.backward")
    end
    self[step.serial] = entry
  end
  return entry
end


-- Computes gradients of heads with respect to the outputs of the Lua functions on which they depend
-- directly, and adds them to the entries of these functions.
function Pending:scatter(func, heads, grads, flags)
  local outputs, parts, entries = {}, {}, {}
  local step = steps.before(heads, nil, true)
  while step do
    -- a freed step has no outputs; the core's backward then raises the error
    local entry = step:is_freed() and { outputs = {} } or self:entry(step)
    for i, y in ipairs(entry.outputs) do
      outputs[#outputs + 1], entries[#entries + 1] = y, { entry, i }
      parts[#parts + 1] = call.zeros(y._shape, y._dtype, y._device, func)
    end
    step = steps.before(heads, step.serial, true)
  end
  if #outputs == 0 then
    return
  end
  gradients.run_core(func, heads, grads, outputs, parts,
    bit.bor(flags, C.TY_RETAIN, C.TY_UNREACHED))
  for k, part in ipairs(parts) do
    local entry, i = unpack(entries[k])
    entry.totals[i] = entry.totals[i] + part
  end
end


-- Removes and returns the entry of the last function in the order of recording; nil if there is
-- none.
function Pending:take()
  local last
  for number in pairs(self) do
    last = math.max(last or number, number)
  end
  local entry = self[last]
  self[last or 0] = nil
  return entry
end


-- Calls the Lua functions on which heads depend, the last one first, and adds their inputs, with
-- the gradients that they return, to the heads in `all`. It takes arguments and is not a closure,
-- since a LuaJIT trace keeps the functions that it calls, with their upvalues.
local function call_functions(func, heads, grads, flags, all)
  local pending = setmetatable({}, Pending)
  pending:scatter(func, heads, grads, flags)
  local entry = pending:take()
  while entry do
    local step, added = entry.step, Heads.new({}, {})
    local given = functions.backward(step, entry.totals, false)
    for i = 1, step.nin do
      local x = given[i] and step:input(i)
      if x and steps.kind(x) ~= "plain" then
        all:add(x, given[i])
        added:add(x, given[i])
      end
    end
    if #added.list > 0 then
      pending:scatter(func, added.list, added.grads, flags)
    end
    entry = pending:take()
  end
end


-- Calls the Lua functions on which heads depend; returns the heads and the inputs of these
-- functions, and the gradients of both.
local function pass_functions(func, heads, grads, flags)
  if next(objects) == nil then
    return heads, grads
  end
  local all = Heads.new(heads, grads)
  modes.run(false, recording.training, call_functions, func, heads, grads, flags, all)
  return all.list, all.grads
end


gradients.pass_functions = pass_functions


-- The class ---------------------------------------------------------------------------------------

--- The base class of functions with their own gradient: `extend` it, define `forward` and
-- `backward`, and make an object for each call. Recording is off in both methods. A second call of
-- an object is E(`state`).
local Function = Class:extend("Function")
functions.Function = Function


--- Computes the outputs; a subclass must define it, else E(`unsupported`).
-- @param ... input arrays
-- @return one or several arrays
function Function:forward()
  Error.raise{ code = "unsupported", func = self.class_name .. ":forward",
    message = ("class '%s' has no forward; define it"):format(self.class_name) }
end


--- Computes the gradients of the inputs; a subclass must define it, else E(`unsupported`).
-- @param ... gradients of all outputs of forward
-- @return a gradient for each input, in its shape; nil for zeros
function Function:backward()
  Error.raise{ code = "unsupported", func = self.class_name .. ":backward",
    message = ("class '%s' has no backward; define it to have gradients"):format(self.class_name) }
end


--- Keeps arrays for `backward` in the list `self.saved_tensors`.
-- @param ... arrays
function Function:save_for_backward(...)
  self.saved_tensors = { ... }
end


-- Replaces saved arrays that are outputs of the step by arrays with the step's history, if backward
-- is recorded (create_graph).
function Function:_enter_backward(step, record)
  for i, x in ipairs(record and self.saved_tensors or {}) do
    for k, y in ipairs(self._outputs) do
      if x == y then
        self.saved_tensors[i] = step:output(k)
      end
    end
  end
end


-- Returns a list of n arrays; raises E(type) for other values among them. what: "forward" for
-- results of forward, "__call" for arguments of a call.
local function check_arrays(object, what, n, list)
  for i = 1, n do
    if not is_array(list[i]) then
      Error.raise{ code = "type", func = object.class_name .. ":" .. what, argument = tostring(i),
        expected = "an NDArray", got = Error.kind(list[i]),
        message = what == "forward" and ("result %d of forward is no array"):format(i)
          or ("bad argument %d"):format(i) }
    end
  end
  return list
end


-- Records a call; the arguments from the third on are the results of forward.
local function record_outputs(self, inputs, ...)
  local outputs = check_arrays(self, "forward", select("#", ...), { ... })
  if #outputs == 0 then
    Error.raise{ code = "value", func = self.class_name .. ":forward",
      expected = "at least one array", got = "nothing",
      message = "forward returned nothing; a return may be missing" }
  end
  self._outputs = outputs
  return unpack(functions.record(inputs, outputs, self))
end


-- Raises E(unsupported) for a symbol among the arguments of a call, if a block is being traced.
local function refuse_symbols(self, ...)
  local block = tracing.current()
  for i = 1, block and select("#", ...) or 0 do
    if is_symbol((select(i, ...))) then
      Error.raise{ code = "unsupported", func = self.class_name,
        message = ("a function of Lua runs on arrays only, and the forward of block '%s' is being \z
          traced with symbols; ty.operator.CustomOp serves both, hybridize(false) runs the block \z
          with arrays, and so does a gluon.Block"):format(block) }
    end
  end
end


-- Serves as `__call` of objects: runs forward and records it as one step.
local function call_function(self, ...)
  if self._called then
    Error.raise{ code = "state", func = self.class_name,
      message = "an object can be called once only; make another for each call: "
        .. self.class_name .. "(...)(...)" }
  end
  refuse_symbols(self, ...)
  local inputs = check_arrays(self, "__call", select("#", ...), { ... })
  self._called = true
  inputs = class.aliases(inputs)
  return record_outputs(self, inputs, class.outside(modes.run, false, recording.training,
    self.forward, self, unpack(inputs)))
end

Function.__call = call_function


return functions
