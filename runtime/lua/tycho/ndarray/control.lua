--- Control flow on arrays, run at once, and what else `ty.nd.contrib` has beside operators.
--
-- Bodies return two values, outputs and states, each an array or a list;
-- results come in the same form.
--
-- @module tycho.ndarray.control

local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local counted_from_1 = require "tycho.core.list"
local Error = require "tycho.core.error"
local finite = require "tycho.op.finite"
local values = require "tycho.core.values"

local is_array = class.is_array

local control = {}


-- Returns an array or a list of arrays as a list, and whether it was a list.
local function flatten(v, what, func)
  local list = is_array(v) and { v } or v
  for i = 1, values.is_plain(list) and #list or 1 do
    if not values.is_plain(list) or not is_array(list[i]) then
      Error.raise{ code = "type", func = func, argument = what,
        expected = "an NDArray or a list of NDArrays",
        got = Error.kind(values.is_plain(list) and list[i] or v),
        message = ("bad '%s'"):format(what) }
    end
  end
  return list, not is_array(v)
end


local function like(list, is_list)
  return is_list and counted_from_1(list) or list[1]
end


local function stack(list, func)
  return call.params("stack", func, list, { "axis", "0" })
end


-- Adds one step's outputs: all[k] is the list of output k over the steps.
local function note(all, outs)
  for k, out in ipairs(outs) do
    all[k] = all[k] or {}
    all[k][#all[k] + 1] = out
  end
end


local FOREACH = args.form("nd.contrib.foreach",
  { { "body", "function" }, { "data", "any" }, { "init_states", "any" } })

--- Calls `outputs, states = body(row, states)` for each row of data; outputs are stacked on axis 0.
-- @treturn outputs, states
function control.foreach(...)
  local a, func = FOREACH(...), "nd.contrib.foreach"
  local data, data_list = flatten(a.data, "data", func)
  local states, all, outs_list = a.init_states, {}, false
  for i = 0, data[1]:len() - 1 do
    local rows = {}
    for k, x in ipairs(data) do
      rows[k] = x[i]
    end
    local outs
    outs, states = a.body(like(rows, data_list), counted_from_1(states))
    if states == nil then
      Error.raise{ code = "type", func = func, argument = "body", got = "fewer",
        expected = "two values: outputs and states", message = "body returned too little" }
    end
    outs, outs_list = flatten(outs, "outputs", func)
    note(all, outs)
  end
  for k, list in ipairs(all) do
    all[k] = stack(list, func)
  end
  return like(all, outs_list), counted_from_1(states)
end


local MOST_ARGUMENTS = 7000              -- which Lua's stack holds, and some more

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
  { "max_iterations", "integer" },
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
-- Outputs are stacked on axis 0 and filled up with zeros to `max_iterations` rows.
-- @treturn outputs, vars
function control.while_loop(...)
  local a, func = WHILE(...), "nd.contrib.while_loop"
  local vars, vars_list = flatten(a.loop_vars, "loop_vars", func)
  if #vars > MOST_ARGUMENTS then
    Error.raise{ code = "value", func = func, argument = "loop_vars", got = #vars,
      expected = "at most " .. MOST_ARGUMENTS, message = "too many arguments of a Lua function" }
  end
  local all, outs_list, steps = {}, true, 0
  while steps < a.max_iterations and condition_of(a.cond(unpack(vars)), "cond", func) do
    local outs, next_vars = a.func(unpack(vars))
    outs, outs_list = flatten(outs or {}, "outputs", func)
    next_vars = flatten(next_vars, "loop_vars", func)
    if #next_vars ~= #vars then
      Error.raise{ code = "value", func = func, argument = "func", expected = #vars,
        got = #next_vars, message = "func must return as many loop variables as it is given" }
    end
    note(all, outs)
    vars, steps = next_vars, steps + 1
  end
  for k, list in ipairs(all) do
    all[k] = padded(list, a.max_iterations, func)
  end
  return like(all, outs_list), like(vars, vars_list)
end


local COND = args.form("nd.contrib.cond", { { "pred", "array" }, { "then_func", "function" },
  { "else_func", "function" } })

--- Returns the result of `then_func` where `pred` is not 0, else that of `else_func`.
function control.cond(...)
  local a = COND(...)
  if condition_of(a.pred, "pred", "nd.contrib.cond") then
    return a.then_func()
  end
  return a.else_func()
end


finite(control, "array", "nd.contrib.")

return control
