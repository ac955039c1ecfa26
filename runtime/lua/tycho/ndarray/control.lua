--- Control flow on arrays, run at once, and other functions of `ty.nd.contrib` that are not
-- operators.
--
-- Bodies return two values, outputs and states, each an array or a (nested) list of arrays; results
-- have the same form.
--
-- @module tycho.ndarray.control

local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local finite = require "tycho.op.finite"
local nested = require "tycho.core.nested"

local is_array = class.is_array

local control = {}


local function mark_of(v)
  return is_array(v) and "." or nil
end


-- Returns values, arrays or nested lists of arrays, as one list, and their structure.
local function flatten(n, list, what, func)
  return nested.flatten(n, list, mark_of, function(v)
    Error.raise{ code = "type", func = func, argument = what, got = Error.kind(v),
      expected = "an NDArray or a list of NDArrays", message = ("bad '%s'"):format(what) }
  end)
end


local regroup, arguments = nested.results, nested.arguments


-- Returns the new states of a step as a list; another length than `count` is an error.
local function next_states(states, count, func)
  local flat = flatten(1, { states }, "states", func)
  if #flat ~= count then
    Error.raise{ code = "value", func = func, expected = count, got = #flat,
      message = "the function must return as many states as it is given" }
  end
  return flat
end


local function stack(list, func)
  return call.params("stack", func, list, { "axis", "0" })
end


-- Adds one step's outputs: all[k] is the list of output k over the steps, all.structure the
-- structure of the outputs, which each step must have.
local function note(all, outs, func)
  local flat, structure = flatten(1, { outs }, "outputs", func)
  if all.structure and all.structure ~= structure then
    Error.raise{ code = "value", func = func, argument = "outputs", expected = all.structure,
      got = structure, message = "the outputs of a step are grouped otherwise than those before" }
  end
  all.structure = structure
  for k, out in ipairs(flat) do
    all[k] = all[k] or {}
    all[k][#all[k] + 1] = out
  end
end


local FOREACH = args.form("nd.contrib.foreach",
  { { "body", "function" }, { "data", "any" }, { "init_states", "any" }, { "name", "text?" } })

--- Calls `outputs, states = body(row, states)` for each row of data; outputs are stacked on axis 0.
-- Data, states and outputs are arrays or lists, also nested ones. `name` is for symbols.
-- @treturn outputs, states
function control.foreach(...)
  local a, func = FOREACH(...), "nd.contrib.foreach"
  local data, data_structure = flatten(1, { a.data }, "data", func)
  local states, structure = flatten(1, { a.init_states }, "init_states", func)
  local all, count = {}, #states
  if not data[1] then
    Error.raise{ code = "value", func = func, argument = "data", expected = "at least one array",
      got = "none", message = "there is nothing to loop over" }
  end
  for i = 0, data[1]:len() - 1 do
    local rows = {}
    for k, x in ipairs(data) do
      rows[k] = x[i]
    end
    local outs, new = a.body(regroup(rows, data_structure), (regroup(states, structure)))
    if new == nil then
      Error.raise{ code = "type", func = func, argument = "body", got = "fewer",
        expected = "two values: outputs and states", message = "body returned too little" }
    end
    note(all, outs, func)
    states = next_states(new, count, func)
  end
  for k, list in ipairs(all) do
    all[k] = stack(list, func)
  end
  return regroup(all, all.structure), (regroup(states, structure))
end


local MOST_ARGUMENTS = 7000              -- below the limit of Lua's stack, some 8,000

-- Returns whether a condition, an array of one element, is not 0.
local function condition_of(x, what, func)
  local got = not is_array(x) and Error.kind(x) or x.size > 1 and Error.show(x.shape)
  if got then
    Error.raise{ code = "type", func = func, argument = what, expected = "an array of one element",
      got = got, message = ("'%s' is no condition"):format(what) }
  end
  return x:asscalar() ~= 0
end


local WHILE = args.form("nd.contrib.while_loop", {
  { "cond", "function" }, { "func", "function" }, { "loop_vars", "any" },
  { "max_iterations", "integer" }, { "name", "text?" },
})

-- Stacks a list, with zeros after the last step, so that the first size is `rows`.
local function padded(list, rows, func)
  local x = list[1]
  local zero = call.zeros(x._shape, x._dtype, x._device, func)
  for i = #list + 1, rows do
    list[i] = zero
  end
  return stack(list, func)
end


--- Calls `outputs, vars = func(...)` while `cond(...)` is not 0, at most `max_iterations` times.
-- Outputs, which may be nil, are stacked on axis 0 and filled up with zeros to `max_iterations`
-- rows. Variables and outputs are arrays or lists, also nested ones. `name` is for symbols.
-- @treturn outputs, vars
function control.while_loop(...)
  local a, func = WHILE(...), "nd.contrib.while_loop"
  local vars, structure = flatten(1, { a.loop_vars }, "loop_vars", func)
  local count = #vars
  if count > MOST_ARGUMENTS then
    Error.raise{ code = "value", func = func, argument = "loop_vars", got = count,
      expected = "at most " .. MOST_ARGUMENTS, message = "too many arguments of a Lua function" }
  end
  local all, steps = {}, 0
  while steps < a.max_iterations
      and condition_of(a.cond(arguments(vars, structure)), "cond", func) do
    local outs, new = a.func(arguments(vars, structure))
    note(all, outs == nil and {} or outs, func)
    vars, steps = next_states(new, count, func), steps + 1
  end
  for k, list in ipairs(all) do
    all[k] = padded(list, a.max_iterations, func)
  end
  return regroup(all, all.structure or "()"), (regroup(vars, structure))
end


local COND = args.form("nd.contrib.cond", { { "pred", "array" }, { "then_func", "function" },
  { "else_func", "function" }, { "name", "text?" } })

--- Returns the results of `then_func` where `pred` is not 0, else those of `else_func`. `name` is
-- for symbols.
function control.cond(...)
  local a = COND(...)
  if condition_of(a.pred, "pred", "nd.contrib.cond") then
    return a.then_func()
  end
  return a.else_func()
end


finite(control, "array", "nd.contrib.")

return control
