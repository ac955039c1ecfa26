--- Loops and choices of a traced graph, run on arrays (gluon/replay.lua): each body is a separate
-- plan, which a function of `ty.nd.contrib` runs as often as the values require.
--
-- @module tycho.gluon.replay_control

local nd = require "tycho.ndarray"
local node = require "tycho.symbol.node"
local tables = require "tycho.core.tables"

local control, contrib = {}, nd.contrib


-- Returns the numbers of an attribute such as "[0, 2, -1]".
local function read_numbers(n, key)
  local list = {}
  for text in (n.attrs[key] or ""):gmatch("%-?%d+") do
    list[#list + 1] = tonumber(text)
  end
  return list
end


-- Returns the plan of a body, whose inputs are its variables in the body's own order.
local function compile_body(body, compile)
  local position, count = {}, 0
  for _, v in ipairs(node.walk(body._entries)) do
    if not v.op then
      count = count + 1
      position[v] = count
    end
  end
  return compile(body, position)
end


-- Sets values[k] for variables of a body: `locations` gives, for each entry of `list` from `from`
-- on, the number of its variable (from 0, -1 for none).
local function fill_in(values, locations, list, from)
  for i, at in ipairs(locations) do
    values[at + 1] = list[from + i - 1]
  end
end


local run = {}                             -- operator -> function(step, inputs, run_body)


function run._foreach(step, inputs, run_body)
  local data, states = #step.in_data_locs, #step.in_state_locs
  local outs, last = contrib.foreach(function(rows, now)
    local values = {}
    fill_in(values, step.in_data_locs, rows, 1)
    fill_in(values, step.in_state_locs, now, 1)
    fill_in(values, step.remain_locs, inputs, data + states + 1)
    local results = run_body(1, values)
    return tables.part(results, 1, step.num_out_data),
      tables.part(results, step.num_out_data + 1, #results)
  end, tables.part(inputs, 1, data), tables.part(inputs, data + 1, data + states))
  return outs, last
end


-- Returns the values of a body's variables from the node's inputs.
local function take(inputs, locations)
  local values = {}
  for i, at in ipairs(locations) do
    values[i] = inputs[at + 1]
  end
  return values
end


-- Returns outputs of zeros for a loop without steps; shapes and dtypes are inferred from the
-- variables that the body would get.
local function make_zeros(step, values)
  local body, shapes, dtypes, k = step.node.bodies[2], {}, {}, 0
  local given, first, zeros = {}, values[1], {}
  for _, v in ipairs(node.walk(body._entries)) do
    if not v.op then
      k = k + 1
      given[v.name] = values[k]
    end
  end
  for _, name in ipairs(body:list_arguments()) do
    shapes[name], dtypes[name] = given[name].shape, given[name].dtype
  end
  local _, sizes = body:infer_shape(shapes)
  local _, kinds = body:infer_type(dtypes)
  for i = 1, step.num_out_data do
    zeros[i] = nd.zeros({ step.max_iterations, unpack(sizes[i]) },
      { ctx = first.context, dtype = kinds[i] })
  end
  return zeros
end


function run._while_loop(step, inputs, run_body)
  local begin = {}
  for j, at in ipairs(step.func_var_locs) do
    begin[j] = inputs[step.func_input_locs[at + 1] + 1]
  end
  local outs, last = contrib.while_loop(function(...)
    local values = take(inputs, step.cond_input_locs)
    for j, at in ipairs(step.func_var_locs) do
      for k, input in ipairs(step.cond_input_locs) do
        if input == step.func_input_locs[at + 1] then
          values[k] = (select(j, ...))
        end
      end
    end
    return run_body(1, values)[1]
  end, function(...)
    local values = take(inputs, step.func_input_locs)
    fill_in(values, step.func_var_locs, { ... }, 1)
    local results = run_body(2, values)
    return tables.part(results, 1, step.num_out_data),
      tables.part(results, step.num_out_data + 1, #results)
  end, begin, step.max_iterations)
  if #outs < step.num_out_data then
    outs = make_zeros(step, take(inputs, step.func_input_locs))
  end
  return outs, last
end


function run._cond(step, inputs, run_body)
  local pred = run_body(1, take(inputs, step.cond_input_locs))[1]
  local function branch(which, locations)
    return function()
      return run_body(which, take(inputs, locations))
    end
  end
  return contrib.cond(pred, branch(2, step.then_input_locs), branch(3, step.else_input_locs)), {}
end


--- Adds to a step the plans of its bodies.
-- @tparam table step of a node with bodies
-- @func compile compile(symbol, node of a variable -> its index): returns a plan
function control.set_up(step, compile)
  local n = step.node
  step.kind, step.plans = "control", {}
  for i, body in ipairs(n.bodies) do
    step.plans[i] = compile_body(body, compile)
  end
  for _, key in ipairs{ "in_data_locs", "in_state_locs", "remain_locs", "cond_input_locs",
      "func_input_locs", "func_var_locs", "then_input_locs", "else_input_locs" } do
    step[key] = read_numbers(n, key)
  end
  step.num_out_data = tonumber(n.attrs.num_out_data)
  step.max_iterations = tonumber(n.attrs.max_iterations)
end


--- Runs a step.
-- @tparam table step
-- @tparam {NDArray,...} inputs of its node
-- @func run_body run_body(number of a body, values of its variables): returns results
-- @treturn {NDArray,...} outputs of the node
function control.run(step, inputs, run_body)
  local outs, last = run[step.node.op](step, inputs, run_body)
  local results = {}
  for _, list in ipairs{ outs, last } do
    for _, y in ipairs(list) do
      results[#results + 1] = y
    end
  end
  return results
end


return control
