--- Functions written in Lua with a gradient of their own.
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
-- The core knows a call of one as a step without an operator; the object is kept here by the step's
-- serial number as long as the step lives. Backward calls functions from the last to the first:
-- what their outputs get is computed first, and what they give for their inputs are further heads.
--
-- @module tycho.autograd.function

local ffi = require "ffi"
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

local C, check, is_array = native.C, native.check, class.is_array

local functions = {}

-- Steps -------------------------------------------------------------------------------------------

local alive = {}                         -- serial number of a step -> its object
local serial = ffi.new("uint64_t[1]")


local function release_gone()
  local gone = tonumber(C.ty_function_gone())
  while gone ~= 0 do
    alive[gone] = nil
    gone = tonumber(C.ty_function_gone())
  end
end

gc.watch(release_gone)


--- Records a computation that operators did not make.
-- @tparam {NDArray,...} inputs
-- @tparam {NDArray,...} outputs that nothing recorded has made
-- @param object has `backward(self, ...)`: gradients of outputs -> gradients of inputs
-- @treturn {NDArray,...} the outputs to return to the caller: they carry the history, those given
--   do not
function functions.record(inputs, outputs, object)
  local results = {}
  for i, y in ipairs(outputs) do
    results[i] = class.detached(y)
  end
  release_gone()
  recording.note_line_always()
  check(C.ty_function(gradients.handles(inputs), #inputs, gradients.handles(results), #results,
    serial))
  if serial[0] ~= 0 then
    alive[tonumber(serial[0])] = object
  end
  return results
end


recording.record_function = functions.record


local function fail_gradient(object, fields)
  fields.func = (object.class_name or "Function") .. ":backward"
  Error.raise(fields)
end


-- Checks the gradients that a function has given.
local function check_gradients(object, step, n, list)
  if n ~= step.nin then
    fail_gradient(object, { code = "value", expected = step.nin, got = n,
      message = ("one gradient per input is needed (nil: zeros): %d, not %d")
        :format(step.nin, n) })
  end
  for i = 1, n do
    local g = list[i]
    if g ~= nil and not is_array(g) then
      fail_gradient(object, { code = "type", argument = tostring(i), expected = "an NDArray or nil",
        got = Error.kind(g), message = "bad gradient" })
    elseif g ~= nil then
      local x = step:input(i)
      if not tables.same(g._shape, x._shape) then
        fail_gradient(object, { code = "shape", argument = tostring(i), expected = x.shape,
          got = g.shape, message = ("the gradient of input %d has another shape"):format(i) })
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
-- @param step from `steps`
-- @tparam {NDArray,...} grads of all its outputs
-- @bool record whether what it does is recorded
-- @treturn table gradients of its inputs, some may be nil
function functions.backward(step, grads, record)
  local object = alive[step.serial]
  if object._enter_backward then
    object:_enter_backward(step, record)
  end
  return collect_gradients(object, step, modes.run(record, recording.training, object.backward,
    object, unpack(grads)))
end


-- Beyond functions --------------------------------------------------------------------------------

-- The heads of a backward and their gradients by position. A gradient for an array that is a head
-- already is added to it.
local Heads = {}
Heads.__index = Heads


-- Returns a key of an array that is the same for all arrays on one recorded output.
local function identity(x)
  local step, which = steps.of(x)
  return step and step.serial .. ":" .. which or tostring(x._h)
end


function Heads.new(heads, grads)
  local self = setmetatable({ list = { unpack(heads) }, grads = { unpack(grads, 1, #heads) },
    position = {} }, Heads)
  for i, x in ipairs(heads) do
    self.position[identity(x)] = i
  end
  return self
end


function Heads:add(x, g)
  local key = identity(x)
  local i = self.position[key]
  if not i then
    i = #self.list + 1
    self.list[i], self.grads[i], self.position[key] = x, g, i
  else
    self.grads[i] = self.grads[i] and self.grads[i] + g or g + 1
  end
end


-- Functions of Lua whose outputs have received gradients: { step, outputs, totals } by serial
-- number.
local Pending = {}
Pending.__index = Pending


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


-- Adds the gradients of heads to those of the functions of Lua that they depend on directly.
function Pending:scatter(func, heads, grads, flags)
  local outputs, parts, entries = {}, {}, {}
  local step = steps.before(heads, nil, true)
  while step do
    local entry = step:is_freed() and { outputs = {} } or self:entry(step) -- the core refuses it
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


-- Removes the entry of the last function in the order of recording, and returns it; nil: there is
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


-- Calls the functions of Lua that `func`'s heads depend on, the last first, and adds the gradients
-- of their inputs to the heads in `all`. Takes arguments instead of being a closure: a LuaJIT trace
-- keeps the functions that it calls, and their upvalues, for as long as the trace is valid.
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


-- Calls the functions of Lua that heads depend on, and returns the heads with the gradients of
-- these functions' inputs added.
local function pass_functions(func, heads, grads, flags)
  if next(alive) == nil then
    return heads, grads
  end
  local all = Heads.new(heads, grads)
  modes.run(false, recording.training, call_functions, func, heads, grads, flags, all)
  return all.list, all.grads
end


gradients.pass_functions = pass_functions


-- The class ---------------------------------------------------------------------------------------

--- The base of functions of one's own: `extend` it, define `forward` and `backward`. Both run once,
-- with recording off; `forward` gives one or several arrays, `backward` one gradient per input, nil
-- for zeros.
local Function = Class:extend("Function")
functions.Function = Function


--- Computes the function; a subclass must define it. Called here it raises E(unsupported).
-- @param ... arrays
-- @return arrays
function Function:forward()
  Error.raise{ code = "unsupported", func = self.class_name .. ":forward",
    message = "the function has no forward; define it" }
end


--- Computes the gradient of the function; a subclass must define it. Called here it raises
-- E(unsupported).
-- @param ... gradients of what forward gave
-- @return gradients of what it got
function Function:backward()
  Error.raise{ code = "unsupported", func = self.class_name .. ":backward",
    message = "the function has no gradient; define backward" }
end


--- Keeps arrays for `backward`, in `self.saved_tensors`.
-- @param ... arrays
function Function:save_for_backward(...)
  self.saved_tensors = { ... }
end


-- Replaces saved tensors that are outputs of the step by outputs that carry its history, if the
-- backward pass is recorded (create_graph).
function Function:_enter_backward(step, record)
  for i, x in ipairs(record and self.saved_tensors or {}) do
    for k, y in ipairs(self._outputs) do
      if x == y then
        self.saved_tensors[i] = step:output(k)
      end
    end
  end
end


local function check_arrays(object, what, n, list)
  for i = 1, n do
    if not is_array(list[i]) then
      Error.raise{ code = "type", func = object.class_name .. ":" .. what, argument = tostring(i),
        expected = "an NDArray", got = Error.kind(list[i]),
        message = what == "forward" and "forward returns arrays"
          or "a function is called on arrays" }
    end
  end
  return list
end


local function record_outputs(self, inputs, ...)
  local outputs = check_arrays(self, "forward", select("#", ...), { ... })
  if #outputs == 0 then
    Error.raise{ code = "value", func = self.class_name .. ":forward",
      expected = "at least one array", got = "nothing", message = "forward returns arrays" }
  end
  self._outputs = outputs
  return unpack(functions.record(inputs, outputs, self))
end


local function call_function(self, ...)
  if self._called then
    Error.raise{ code = "state", func = self.class_name,
      message = "one object serves one call; make another: " .. self.class_name .. "(...)(...)" }
  end
  local inputs = check_arrays(self, "__call", select("#", ...), { ... })
  self._called = true
  inputs = class.unscoped(inputs)
  return record_outputs(self, inputs, class.outside(modes.run, false, recording.training,
    self.forward, self, unpack(inputs)))
end

Function.__call = call_function


return functions
