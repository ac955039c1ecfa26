--- Recorded gradients, which have gradients too: `autograd.grad{create_graph = true}`.
--
-- Visits the steps on which the heads depend, from the last to the first, and computes gradients by
-- calls on arrays while recording is on. How the gradient of an operator is computed:
--
-- - element-wise operators: by the core's own formulas (rules/formula.lua)
-- - operators that are linear in their inputs, or products of inputs: by the core's gradient, which
--   is recorded as a function whose gradient calls the operator again (rules/linear.lua)
-- - the most common of these, and all other operators: by an entry of the tables in rules/, which
--   returns the gradient or computes the outputs by other operators
--
-- @module tycho.autograd.higher

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local functions = require "tycho.autograd.function"
local gradients = require "tycho.ndarray.gradients"
local modes = require "tycho.autograd.modes"
local nd = require "tycho.ndarray"
local recording = require "tycho.ndarray.recording"
local pairs = require("tycho.core.iterate").pairs
local registry = require "tycho.op.registry"
local rules = require "tycho.autograd.rules"
local steps = require "tycho.autograd.steps"

local C = native.C

-- Slots -------------------------------------------------------------------------------------------

local MOST_OUTPUTS = 2 ^ 17              -- above the outputs of any step: SliceChannel has 2 ^ 16

-- Returns a positive number that identifies output `which` (from 1) of a step.
local function output_key(step, which)
  return step.serial * MOST_OUTPUTS + which
end


-- Returns a negative number that identifies a variable.
local function variable_key(x)
  return -tonumber(ffi.cast("uintptr_t", x._h))
end


-- Slots of gradients. A slot is a number that stands for an output of a step, or for a variable.
-- wanted: the arrays whose gradients are requested; keys: their slots in the same order, false for
-- none; asked: the set of these slots.
local Slots = {}
Slots.__index = Slots


-- Returns the slot of an array and the step that made it; nil for an array without a history, no
-- step for a variable.
local function get_key(x)
  local step, which = steps.of(x)
  if step then
    return output_key(step, which), step
  end
  return steps.kind(x) == "variable" and variable_key(x) or nil
end


function Slots.new(wanted)
  local slots = setmetatable({ wanted = wanted, keys = {}, asked = {} }, Slots)
  for i, x in ipairs(wanted) do
    slots.keys[i] = get_key(x) or false
    slots.asked[slots.keys[i] or 0] = true
  end
  return slots
end


-- Returns the slot of an array, nil if it gets no gradient; and the step that made it, if the walk
-- continues there: it ends at an array whose gradient is requested.
function Slots:of(x)
  local key, step = get_key(x)
  if key and self.asked[key] then
    return key
  end
  return step and key, step
end


-- The steps between heads and the wanted arrays ---------------------------------------------------

--- A step in the form that rules use. Fields: op, attrs (strings), p (parameters as values), x and
-- y (lists of inputs and outputs), g (gradients of the outputs, zeros if there is none), wanted
-- (list: whether the gradient of an input is needed), names (of inputs), nvisible (number of
-- visible outputs), train.
local Visit = {}


-- Metatables of the lists y and g of a visit, which are filled when a rule reads them; each list
-- has the visit as a field. All visits share them: a LuaJIT trace keeps a function that it finds in
-- a metatable, with its upvalues, so a closure over the visit would keep the graph alive.
local Outputs, HeadGradients = {}, {}


function Outputs.__index(list, k)
  local step = rawget(list, "visit").step
  list[k] = k <= step.nout and step:output(k) or nil
  return rawget(list, k)
end


function HeadGradients.__index(list, k)
  local visit = rawget(list, "visit")
  local y = visit.y[k]
  list[k] = visit.given[k] or call.zeros(y._shape, y._dtype, y._device, "autograd.grad")
  return rawget(list, k)
end


function Visit:__index(key)
  local of = Visit[key]
  if of then
    return of
  elseif key == "p" then
    self.p = rules.parameters(self.op, self.attrs)
  elseif key == "y" then
    self.y = setmetatable({ visit = self }, Outputs)
  elseif key == "names" or key == "nvisible" then
    local schema = registry.find(self.op)
    local ports = registry.ports(self.op, self.attrs, schema.variadic and #self.x or -1,
      "autograd.grad")
    self.names, self.nvisible = ports.inputs, ports.nvisible
  else
    return nil
  end
  return rawget(self, key)
end


--- Returns a parameter as a number: a choice as its position, from 0, a boolean as 0 or 1.
function Visit:number(name)
  return rules.number(self.op, name, self.p[name])
end


--- Returns a gradient summed over the axes along which input i, from 1, was broadcast.
function Visit:reduced(g, i)
  local shape, axes = self.x[i]._shape, {}
  local lead = #g._shape - #shape
  for k = 1, #g._shape do
    local d = k > lead and shape[k - lead] or 1
    axes[#axes + 1] = (k <= lead or d ~= g._shape[k]) and k - 1 or nil
  end
  if #axes == 0 then
    return g
  end
  return g:sum{ axis = axes, keepdims = true }:reshape(shape)
end


--- Raises E(unsupported), which names the operator and its source line.
function Visit:unsupported(why)
  Error.raise{ code = "unsupported", func = "autograd.grad", op = self.op, where = self.step.where,
    message = why or "create_graph = true: the gradient of this operator is not made of \z
      operators, so it has no gradient of its own" }
end


-- Returns the visit of a step, with two more fields: slot (by input) and from (by input: the step
-- that made it, if that is visited).
local function make_visit(step, slots)
  local visit = setmetatable({ step = step, op = step.op, attrs = step.attrs, train = step.train,
    x = {}, slot = {}, wanted = {}, from = {} }, Visit)
  for i = 1, step.nin do
    visit.x[i] = step:input(i)
    visit.slot[i], visit.from[i] = slots:of(visit.x[i])
  end
  return visit
end


-- Returns the visits of all steps between the heads and the wanted arrays, in the order of
-- recording.
local function collect_steps(heads, slots)
  local found, list, todo = {}, {}, {}
  local function add_step(step)
    if step and not found[step.serial] then
      found[step.serial] = true
      todo[#todo + 1] = step
    end
  end
  for _, x in ipairs(heads) do
    add_step((select(2, slots:of(x))))
  end
  while #todo > 0 do
    local visit = make_visit(table.remove(todo), slots)
    list[#list + 1] = visit
    for i = 1, visit.step.nin do
      add_step(visit.from[i])
    end
  end
  table.sort(list, function(a, b) return a.step.serial < b.step.serial end)
  return list
end


-- Marks the inputs whose gradients are needed, and the visits that have such inputs. Returns the
-- set of slots on which the heads depend.
local function mark_needed(list, slots, heads)
  local needed, reached = {}, {}
  for _, key in ipairs(slots.keys) do
    needed[key or 0] = true
  end
  for _, x in ipairs(heads) do
    reached[slots:of(x) or 0] = true
  end
  for _, visit in ipairs(list) do
    local any = false
    for i = 1, visit.step.nin do
      local slot = visit.slot[i]
      visit.wanted[i] = slot ~= nil and needed[slot] or false
      any = any or visit.wanted[i]
      reached[slot or 0] = true
    end
    visit.needed = any and not rules.is_zero(visit.op)
    for k = 1, visit.needed and visit.step.nout or 0 do
      needed[output_key(visit.step, k)] = true
    end
  end
  return reached
end


-- The walk ----------------------------------------------------------------------------------------

local walk_back

--- Returns the gradients of the step's inputs through other operators that compute its outputs.
-- @tparam table outputs arrays that other operators have computed from the step's inputs, with the
--   derivatives of the step's outputs; false for one without a derivative
-- @treturn table gradients by input
function Visit:through(outputs)
  local inputs, at, heads, grads = {}, {}, {}, {}
  for i, x in ipairs(self.x) do
    if self.wanted[i] then
      inputs[#inputs + 1], at[#at + 1] = x, i
    end
  end
  for k, y in ipairs(outputs) do
    if y and self.given[k] then
      heads[#heads + 1], grads[#grads + 1] = y, self.g[k]
    end
  end
  local results = {}
  local totals, slots = walk_back(heads, grads, inputs)
  for k, i in ipairs(at) do                              -- an array that is two inputs counts once
    local key = slots.keys[k]
    results[i], totals[key] = totals[key], nil
  end
  return results
end


-- Returns the gradients of the step's inputs from those of its outputs.
local function compute_gradients(visit)
  if not visit.op then
    local g = {}
    for k = 1, visit.step.nout do
      g[k] = visit.g[k]
    end
    return functions.backward(visit.step, g, true)
  end
  local rule, expand = rules.find(visit.op)
  if rule then
    return rule(visit)
  elseif not expand then
    visit:unsupported()
  end
  return visit:through(expand(visit))
end


-- Returns a gradient converted to the type and the device of its array.
local function fit_to_array(g, x)
  if g._dtype ~= x._dtype then
    g = g:astype(x.dtype)
  end
  if g._device ~= x._device then
    g = g:as_in_context(x.context)
  end
  return g
end


-- Adds the gradients of a step's inputs to the totals by slot, if one of the step's outputs has a
-- gradient.
local function visit_gradients(visit, totals)
  local given, any = {}, rules.is_loss(visit.op)
  for k = 1, visit.step.nout do
    given[k] = totals[output_key(visit.step, k)]
    any = any or given[k] ~= nil
  end
  if not any then
    return
  end
  visit.given = given
  visit.g = setmetatable({ visit = visit }, HeadGradients)
  for i, g in pairs(compute_gradients(visit)) do
    local slot = visit.wanted[i] and visit.slot[i]
    if slot then
      g = fit_to_array(g, visit.x[i])
      totals[slot] = totals[slot] and totals[slot] + g or g
    end
  end
end


-- Returns the gradients of the wanted arrays by slot, the slots, and the set of slots on which the
-- heads depend. Recording must be on.
function walk_back(heads, grads, wanted)
  local slots = Slots.new(wanted)
  local list, totals = collect_steps(heads, slots), {}
  local reached = mark_needed(list, slots, heads)
  for i, x in ipairs(heads) do                           -- an array given twice: the last gradient
    local slot = slots:of(x)
    if slot then
      totals[slot] = grads[i]
    end
  end
  for i = #list, 1, -1 do
    local visit = list[i]
    if visit.needed then
      C.ty_line(visit.step.where)
      visit_gradients(visit, totals)
    end
    list[i] = nil
  end
  return totals, slots, reached
end


-- The call ----------------------------------------------------------------------------------------

local function fail_unreached(i)
  Error.raise{ code = "value", func = "autograd.grad", argument = tostring(i),
    message = ("the heads do not depend on variable %d; it must become a variable before the \z
      recorded calls that use it"):format(i) }
end


-- Runs the core's backward once, into arrays that are not used: it checks heads and variables, and
-- updates the moving averages of BatchNorm.
local function check_arguments(heads, grads, variables, train)
  local unused = {}
  for i, x in ipairs(variables) do
    local step = steps.of(x)
    if step and step.op then                             -- an array that an operator made
      fail_unreached(i)
    end
    unused[i] = call.zeros(x._shape, x._dtype, x._device, "autograd.grad")
  end
  gradients.run_core("autograd.grad", heads, grads, variables, unused,
    bit.bor(C.TY_RETAIN, C.TY_UNREACHED, train and C.TY_TRAIN or 0))
end


-- Returns a gradient that is not recorded as a recorded one with derivative zero.
local function as_recorded(g, x)
  return steps.kind(g) == "plain" and nd._identity_with_attr_like_rhs(g, x) or g
end


-- Returns the gradients of the variables as distinct arrays: none is a given array or another
-- result. Raises E(value) for a variable on which the heads do not depend.
local function own_results(totals, slots, reached, variables, grads)
  local seen, results = {}, {}
  for _, g in ipairs(grads) do
    seen[g] = true
  end
  for i, x in ipairs(variables) do
    local key = slots.keys[i]
    if not key or not (totals[key] or reached[key]) then
      fail_unreached(i)
    end
    local g = totals[key] or nd.zeros_like(x)
    results[i] = as_recorded(seen[g] and g:copy() or g, x)
    seen[g] = true
  end
  return results
end


-- Returns the gradients of the variables. Recording must be on.
local function walk_recorded(heads, grads, variables)
  local totals, slots, reached = walk_back(heads, grads, variables)
  return own_results(totals, slots, reached, variables, grads)
end


-- Returns the recorded gradients of the heads with respect to the variables. It takes arguments and
-- is not a closure, since a LuaJIT trace keeps the functions that it calls, with their upvalues.
local function recorded_gradients(heads, grads, variables, train_mode)
  check_arguments(heads, grads, variables, train_mode)
  local given = {}
  for i, x in ipairs(heads) do
    given[i] = grads[i] or call.fill(class.new(x._shape, x._dtype, x._device, "autograd.grad"), 1,
      "autograd.grad")
  end
  return modes.run(true, train_mode, walk_recorded, heads, given, variables)
end


--- Returns recorded gradients of heads with respect to variables. Operators without second
-- derivatives are E(unsupported).
-- @tparam {NDArray,...} heads
-- @tparam table grads head gradients by position, false for ones
-- @tparam {NDArray,...} variables
-- @bool train_mode as in the recording
-- @treturn {NDArray,...} gradients
return function(heads, grads, variables, train_mode)
  return recording.hold_line(recorded_gradients, heads, grads, variables, train_mode)
end
