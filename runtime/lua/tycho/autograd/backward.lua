--- Gradients of recorded calls: `backward` into the arrays of variables, `grad` into new ones.
--
-- @module tycho.autograd.backward

local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local gradients = require "tycho.ndarray.gradients"
local list_arrays = require "tycho.autograd.list_arrays"
local values = require "tycho.core.values"

local is_array, null = class.is_array, values.null

local backward = {}


-- Arguments ---------------------------------------------------------------------------------------

-- Returns an array or a list of arrays as a list; raises E(type) for anything else, E(value) for an
-- empty list.
local function list_some(v, func, argument)
  local list = list_arrays(v, func, argument)
  if #list == 0 then
    Error.raise{ code = "value", func = func, argument = argument,
      expected = "an NDArray or a list of them", got = "an empty list",
      message = ("bad '%s'"):format(argument) }
  end
  return list
end


-- Returns a list with a head gradient for each of n heads; false stands for ones.
local function list_head_grads(v, n, func)
  local list = (v == nil or v == null) and {} or is_array(v) and { v } or v
  if not values.is_plain(list) then
    list_some(v, func, "head_grads")
  end
  local count = table.maxn(list)
  if v ~= nil and v ~= null and count ~= n then
    Error.raise{ code = "shape", func = func, argument = "head_grads", expected = n, got = count,
      message = ("there are %d heads, but %d head gradients"):format(n, count) }
  end
  local grads = {}
  for i = 1, n do
    local g = values.value(list[i])
    if g ~= nil then
      list_some(g, func, "head_grads")
    end
    grads[i] = g or false
  end
  return grads
end


-- Returns the gradients of heads with respect to variables in new arrays. If a variable is listed
-- several times, the core writes its gradient only to the last place.
local function make_grads(heads, grads, variables, flags)
  local results, last = {}, {}
  for i, x in ipairs(variables) do
    results[i], last[x] = call.zeros(x._shape, x._dtype, x._device, "autograd.grad"), i
  end
  gradients.run("autograd.grad", heads, grads, variables, results, flags)
  for i, x in ipairs(variables) do
    if last[x] ~= i then
      results[i] = results[last[x]]:copy()
    end
  end
  return results
end


local function make_flags(a)
  return gradients.flags(a.retain_graph, a.train_mode)
end


-- Public ------------------------------------------------------------------------------------------

local BACKWARD = args.form("autograd.backward", { list = true, { "heads", "any" },
  { "head_grads", "any?" }, { "retain_graph", "boolean", false },
  { "train_mode", "boolean", true } })

--- Computes the gradients of heads with respect to all variables on which they depend, and writes
-- them to the variables' `grad`, or adds them if the variable's request is "add". Heads that were
-- not recorded, whose graph was freed, or whose values were overwritten since are E(`state`).
-- @param heads recorded array, or a list of them
-- @param[opt] head_grads array or list with the shapes and dtypes of the heads, else E(`shape`),
--   E(`dtype`); nil, `ty.null` or false stand for ones
-- @tparam[opt] table options retain_graph = false: true keeps the graph for another backward;
--   train_mode = true: should be that of the recording
function backward.backward(...)
  local a = BACKWARD(...)
  local heads = list_some(a.heads, "autograd.backward", "heads")
  local grads = list_head_grads(a.head_grads, #heads, "autograd.backward")
  gradients.run("autograd.backward", heads, grads, nil, nil, make_flags(a))
end


local GRAD = args.form("autograd.grad", { { "heads", "any" }, { "variables", "any" }, "*",
  { "head_grads", "any?" }, { "retain_graph", "boolean?" }, { "create_graph", "boolean", false },
  { "train_mode", "boolean", true } })

--- Returns the gradients of heads with respect to variables as new arrays; `grad` of the variables
-- is not changed. A variable on which the heads do not depend is E(`value`); other errors are
-- those of `backward`.
-- @param heads recorded array, or a list of them
-- @param variables array or list of arrays
-- @tparam[opt] table options head_grads, train_mode = true: as for `backward`; create_graph =
--   false: true records the gradients, so that they have gradients too, E(`unsupported`) for an
--   operator without second derivatives; retain_graph = create_graph: true keeps the graph
-- @return a list of arrays, or one array if `variables` is one
function backward.grad(...)
  local a = GRAD(...)
  local heads = list_some(a.heads, "autograd.grad", "heads")
  local variables = list_some(a.variables, "autograd.grad", "variables")
  local grads = list_head_grads(a.head_grads, #heads, "autograd.grad")
  local results
  if a.retain_graph == nil then
    a.retain_graph = a.create_graph
  end
  if a.create_graph then
    results = require("tycho.autograd.higher")(heads, grads, variables, a.train_mode)
  else
    results = make_grads(heads, grads, variables, make_flags(a))
  end
  return is_array(a.variables) and results[1] or results
end


return backward
