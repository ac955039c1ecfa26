--- Control flow of symbols: `foreach`, `while_loop`, `cond` of `ty.sym.contrib`.
--
-- Each Lua function is called once, with placeholders. The nodes that it builds are cut off from
-- the graph around them: each outer value that they read becomes a variable of the body, and an
-- input of the control-flow node. Bodies are symbols of their own; attributes of the node list
-- which of its inputs goes to which variable of a body (from 0, in the body's own order).
--
-- @module tycho.symbol.control

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local attribute = require "tycho.symbol.attribute"
local bodies = require "tycho.symbol.bodies"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local name = require "tycho.symbol.name"
local nested = require "tycho.core.nested"
local node = require "tycho.symbol.node"
local operators = require "tycho.symbol.operators"
local tables = require "tycho.core.tables"
local tracing = require "tycho.symbol.tracing"

local control = {}

local MARK = "__subgraph_name__"
local MOST = 128                         -- entries of an attribute that lists numbers (op/param.h)
local OUTER = "variables of a body"


local function check_count(n, what, func)
  if n > MOST then
    Error.raise{ code = "value", func = func, argument = what, expected = "at most " .. MOST,
      got = n, message = ("too many of '%s'"):format(what) }
  end
end


local function join_locations(list, what, func)
  check_count(#list, what, func)
  return "[" .. table.concat(list, ", ") .. "]"
end


-- Returns values, symbols or nested lists of symbols, as one list of single-output symbols, and
-- their structure. A symbol of several outputs is a list of them.
local function flatten(n, list, what, func, Symbol)
  return nested.flatten(n, list, function(v)
    return Class.is_a(v, Symbol) and (#v == 1 and "." or "(") or nil
  end, function(v)
    Error.raise{ code = "type", func = func, argument = what, got = Error.kind(v),
      expected = "a Symbol or a list of Symbols", message = ("bad '%s'"):format(what) }
  end)
end


local regroup, arguments = nested.results, nested.arguments


-- Returns a variable for each outer value, named like "data-0", as the parameters of a body.
local function make_placeholders(list, symbol)
  local variables = {}
  for i, s in ipairs(list) do
    local n, k = s._entries[1][1], s._entries[1][2]
    variables[i] = symbol.Variable(n.name .. "-" .. k)
  end
  return variables
end


-- Runs a function in a scope that marks the nodes it builds. Returns the mark, and the results of
-- the function.
local function run_marked(label, f)
  local mark = name.current():get(nil, label)
  return mark, attribute.AttrScope{ [MARK] = mark }:with(f)
end


-- Cuts a body out of the graph. heads: its outputs; own: set of the placeholders' nodes; mark: that
-- of the nodes inside; drawing: nodes that take random numbers.
-- Returns the body's entries; its variables in order; variable -> outer entry, for values of the
-- graph around it; entries of those nodes in `drawing` on which no output depends. Such a node is
-- left out if it reads a variable that no output reads, since the body has the inputs of its
-- outputs only.
local function cut_body(heads, own, mark, drawing)
  local copies, outer = {}, {}
  local visit
  local function moved(entry)
    local t = visit(entry[1])
    return t.op and { t, entry[2] } or t.outputs and t.outputs[entry[2]] or { t, 0 }
  end
  local function capture(n)
    local outputs = setmetatable({}, { __index = function(t, k)
      local v = node.variable(node.output_name(n, k), n.op and {} or n.attrs, n.where)
      outer[v] = { n, k }
      rawset(t, k, { v, 0 })
      return t[k]
    end })
    return { outputs = outputs }
  end
  visit = function(n)
    if copies[n] then
      return copies[n]
    elseif own[n] then
      copies[n] = n
    elseif n.op and n.attrs[MARK] == mark then
      local copy = {}
      for key, value in pairs(n) do
        copy[key] = value
      end
      copies[n] = copy
      copy.inputs = {}
      for i, input in ipairs(n.inputs) do
        copy.inputs[i] = moved(input)
      end
    else
      copies[n] = capture(n)
    end
    return copies[n]
  end
  local entries = {}
  for i, head in ipairs(heads) do
    entries[i] = moved(head)
  end
  local variables, unread = {}, {}
  local order, reached = node.walk(entries)
  for _, n in ipairs(order) do
    variables[#variables + 1] = not n.op and n or nil
  end
  for _, n in ipairs(drawing) do
    local entry = not copies[n] and moved{ n, 0 }
    local is_closed = entry
    for _, m in ipairs(entry and node.walk{ entry } or {}) do
      is_closed = is_closed and (m.op or reached[m])
    end
    unread[#unread + 1] = is_closed and entry or nil
  end
  return entries, variables, outer, unread
end


-- Returns the output entries of a body. An output that is a variable, or whose node has another
-- output in the list, is copied by an identity node.
local function list_head_entries(list)
  local entries, seen = {}, {}
  for i, s in ipairs(list) do
    local n = s._entries[1][1]
    if not n.op or seen[n] and i > 1 then
      s = operators.compose("identity", { s }, {}, "sym.contrib")
    end
    entries[i] = s._entries[1]
    seen[n] = true
  end
  return entries
end


local function index_positions(list)
  local position = {}
  for i, v in ipairs(list) do
    position[v] = i - 1
  end
  return position
end


local function list_nodes(symbols)
  local set, list = {}, {}
  for i, s in ipairs(symbols) do
    list[i] = s._entries[1][1]
    set[list[i]] = true
  end
  return list, set
end


-- Returns an empty list of inputs of a control-flow node, and a function that adds an outer entry
-- to it unless it is there, and returns its position, from 0.
local function new_inputs()
  local inputs, position = {}, {}
  local function add(entry, Symbol)
    position[entry[1]] = position[entry[1]] or {}
    local at = position[entry[1]][entry[2]]
    if not at then
      inputs[#inputs + 1] = Symbol.of{ entry }
      at = #inputs - 1
      position[entry[1]][entry[2]] = at
    end
    return at
  end
  return inputs, add
end


local function list_outputs(symbol, from, to)
  local list = {}
  for i = from, to do
    list[#list + 1] = symbol[i]
  end
  return list
end


-- Replaces the new value of each loop variable that the body does not read by an identity that also
-- reads the old one, since only variables of the body are carried from step to step. Its gradient
-- goes to the new value alone.
local function use_all_states(inner, outs, finals, func)
  local used = {}
  for _, list in ipairs{ outs, finals } do
    for _, s in ipairs(list) do
      for _, n in ipairs(node.walk(s._entries)) do
        used[n] = true
      end
    end
  end
  for i, s in ipairs(inner) do
    if not used[s._entries[1][1]] then
      finals[i] = operators.compose("_identity_with_attr_like_rhs", { finals[i], s }, {}, func)
    end
  end
end


-- Returns `{ outs, structure }`, the flat list of the outputs `o` that a body has returned and
-- their structure; and the body's output entries, with those of the states `s`. inner: the states
-- that it was given; all_used: see use_all_states.
local function read_results(func, inner, all_used, o, s, Symbol)
  if o == nil or s == nil then
    Error.raise{ code = "type", func = func, expected = "two values: outputs and states",
      got = "fewer", message = "the function must return outputs and states" }
  end
  local result = {}
  result.outs, result.structure = flatten(1, { o }, "outputs", func, Symbol)
  local finals = flatten(1, { s }, "states", func, Symbol)
  if #finals ~= #inner then
    Error.raise{ code = "value", func = func, expected = #inner, got = #finals,
      message = "the function must return as many states as it is given" }
  end
  if all_used then
    use_all_states(inner, result.outs, finals, func)
  end
  local all = tables.copied(result.outs)
  for _, f in ipairs(finals) do
    all[#all + 1] = f
  end
  return result, list_head_entries(all)
end


-- Returns the outputs of a loop in the structure in which the body returned them, and its final
-- states in that of the initial ones.
local function group_results(s, result, structure)
  local n = #result.outs
  return regroup(list_outputs(s, 1, n), result.structure),
    (regroup(list_outputs(s, n + 1, #s), structure))
end


-- Returns the body that f builds over placeholders of the given values: `symbol`; `count` of
-- outputs; `order`, its variables in order; `outer`, variable -> outer entry; `nodes`, those of the
-- placeholders in order; `own`, the set of these.
local function make_body(symbol, label, given, f)
  local inner, drawing, heads
  local mark = run_marked(label, function()
    inner = make_placeholders(given, symbol)
    drawing, heads = tracing.list_draws(f, inner)
  end)
  local nodes, own = list_nodes(inner)
  local entries, order, outer, unread = cut_body(heads, own, mark, drawing)
  for i, n in ipairs(nodes) do
    outer[n] = given[i]._entries[1]
  end
  local body = symbol.Symbol.of(entries)
  rawset(body, "_unread", unread)
  return { symbol = body, count = #entries, order = order, outer = outer, nodes = nodes, own = own }
end


local function join_lists(a, b)
  local list = tables.copied(a)
  for _, x in ipairs(b) do
    list[#list + 1] = x
  end
  return list
end


local FOREACH = args.form("sym.contrib.foreach", { { "body", "function" }, { "data", "any" },
  { "init_states", "any" }, { "name", "text", "foreach" } })

-- Returns the parameters that list the positions of a body's variables: of the data, of the states,
-- and of captured values, which are added to the inputs.
local function make_foreach_params(ndata, body, inputs, func, Symbol)
  local position, data, states, remain = index_positions(body.order), {}, {}, {}
  for i, n in ipairs(body.nodes) do
    local list = i <= ndata and data or states
    list[#list + 1] = position[n] or -1
  end
  for _, v in ipairs(body.order) do
    if not body.own[v] then
      remain[#remain + 1] = position[v]
      inputs[#inputs + 1] = Symbol.of{ body.outer[v] }
    end
  end
  return { in_data_locs = join_locations(data, "data", func),
    in_state_locs = join_locations(states, "init_states", func),
    remain_locs = join_locations(remain, OUTER, func), num_args = #inputs + 1 }
end


-- Builds a foreach node: body(data[t], states) -> outputs, states.
local function foreach(symbol, a)
  local func, Symbol = "sym.contrib.foreach", symbol.Symbol
  local data, data_structure = flatten(1, { a.data }, "data", func, Symbol)
  local states, structure = flatten(1, { a.init_states }, "init_states", func, Symbol)
  if not data[1] then
    Error.raise{ code = "value", func = func, argument = "data", expected = "at least one symbol",
      got = "none", message = "there is nothing to loop over" }
  end
  local inputs = join_lists(data, states)
  local result
  local body = make_body(symbol, a.name, inputs, function(inner)
    local slices, carried = tables.part(inner, 1, #data), tables.part(inner, #data + 1, #inner)
    local o, s = a.body(regroup(slices, data_structure), (regroup(carried, structure)))
    local heads
    result, heads = read_results(func, carried, false, o, s, Symbol)
    return heads
  end)
  local params = make_foreach_params(#data, body, inputs, func, Symbol)
  params.num_outputs, params.num_out_data = body.count, #result.outs
  local s = operators.compose("_foreach", inputs, params, func)
  bodies.attach(s._entries[1][1], { body.symbol })
  return group_results(s, result, structure)
end


local WHILE = args.form("sym.contrib.while_loop", { { "cond", "function" }, { "func", "function" },
  { "loop_vars", "any" }, { "max_iterations", "integer" }, { "name", "text", "while_loop" } })


local function list_input_locations(body, add, func, Symbol)
  local list = {}
  for i, v in ipairs(body.order) do
    list[i] = add(body.outer[v], Symbol)
  end
  return join_locations(list, OUTER, func)
end


-- Returns the positions of the loop variables among the body's variables; use_all_states has made
-- the body read each of them.
local function list_variable_locations(body, func)
  local position, list = index_positions(body.order), {}
  for i, n in ipairs(body.nodes) do
    list[i] = position[n]
  end
  return join_locations(list, "loop_vars", func)
end


local function is_entry(a, b)
  return a[1] == b[1] and a[2] == b[2]
end


-- Returns whether a body reads an outer entry other than as one of its own variables.
local function captures_entry(body, entry)
  for v, outer in pairs(body.outer) do
    if not body.own[v] and is_entry(outer, entry) then
      return true
    end
  end
  return false
end


-- Gives each loop variable an input of its own, since the condition's variables are found by their
-- inputs: a variable whose first value is also that of another one, or is captured by a body,
-- begins with a copy of it. list: the bodies.
local function separate_inputs(vars, list, func)
  for i, s in ipairs(vars) do
    local entry, shared = s._entries[1], false
    for k = 1, i - 1 do
      shared = shared or is_entry(vars[k]._entries[1], entry)
    end
    for _, body in ipairs(list) do
      shared = shared or captures_entry(body, entry)
    end
    if shared then
      local copy = operators.compose("identity", { s }, {}, func)._entries[1]
      for _, body in ipairs(list) do
        body.outer[body.nodes[i]] = copy
      end
    end
  end
end


-- Builds a while_loop node: `outputs, vars = func(vars)` while `cond(vars)` is not 0 and fewer than
-- max_iterations steps have run.
local function while_loop(symbol, a)
  local func, Symbol = "sym.contrib.while_loop", symbol.Symbol
  local vars, structure = flatten(1, { a.loop_vars }, "loop_vars", func, Symbol)
  check_count(#vars, "loop_vars", func)
  local inputs, add = new_inputs()
  local alive = make_body(symbol, a.name .. "_cond", vars, function(inner)
    local x = a.cond(arguments(inner, structure))
    return list_head_entries((flatten(1, { x }, "cond", func, Symbol)))
  end)
  local result
  local body = make_body(symbol, a.name .. "_func", vars, function(inner)
    local o, v = a.func(arguments(inner, structure))
    local heads
    result, heads = read_results(func, inner, true, o == nil and {} or o, v, Symbol)
    return heads
  end)
  separate_inputs(vars, { alive, body }, func)
  local params = { num_outputs = body.count, num_out_data = #result.outs,
    max_iterations = a.max_iterations }
  params.cond_input_locs = list_input_locations(alive, add, func, Symbol)
  params.func_input_locs = list_input_locations(body, add, func, Symbol)
  params.func_var_locs, params.num_args = list_variable_locations(body, func), #inputs + 2
  local s = operators.compose("_while_loop", inputs, params, func)
  bodies.attach(s._entries[1][1], { alive.symbol, body.symbol })
  return group_results(s, result, structure)
end


local COND = args.form("sym.contrib.cond", { { "pred", "symbol" }, { "then_func", "function" },
  { "else_func", "function" }, { "name", "text", "cond" } })

-- Builds a cond node: then_func() where pred is not 0, else else_func().
local function cond(symbol, a)
  local func, Symbol = "sym.contrib.cond", symbol.Symbol
  local inputs, add = new_inputs()
  local function branch(label, f)
    local outs, structure
    local body = make_body(symbol, a.name .. "_" .. label, {}, function()
      local results = { f() }
      outs, structure = flatten(math.max(1, #results), results, label, func, Symbol)
      return list_head_entries(outs)
    end)
    return body.symbol, list_input_locations(body, add, func, Symbol), #outs, structure
  end
  local pred, pred_locations = branch("pred", function()
    return operators.compose("identity", { a.pred }, {}, func)
  end)
  local yes, yes_locations, count, structure = branch("then", a.then_func)
  local no, no_locations, other = branch("else", a.else_func)
  if other ~= count then
    Error.raise{ code = "value", func = func, argument = "else_func", expected = count, got = other,
      message = "both branches must return as many outputs" }
  end
  local s = operators.compose("_cond", inputs, { num_outputs = count, num_args = #inputs + 3,
    cond_input_locs = pred_locations, then_input_locs = yes_locations,
    else_input_locs = no_locations }, func)
  bodies.attach(s._entries[1][1], { pred, yes, no })
  return regroup(list_outputs(s, 1, #s), structure)
end


--- Returns the functions for `ty.sym.contrib`.
-- @tparam table symbol the namespace `ty.sym`
function control.functions(symbol)
  local contrib = {}

  --- Calls `outputs, states = body(row, states)` for each row of data; outputs are stacked on axis
  -- 0. Data, states and outputs are symbols or lists, also nested ones.
  -- @treturn outputs, states
  function contrib.foreach(...)
    return foreach(symbol, FOREACH(...))
  end


  --- Runs `outputs, vars = func(...)` while `cond(...)` is not 0, at most `max_iterations` times.
  -- Outputs, which may be nil, are stacked on axis 0; rows of zeros follow those of the steps that
  -- ran, up to `max_iterations` rows. Variables and outputs are symbols or lists, also nested ones.
  -- @treturn outputs, vars
  function contrib.while_loop(...)
    return while_loop(symbol, WHILE(...))
  end


  --- Returns the results of `then_func` where `pred` is not 0, else those of `else_func`.
  function contrib.cond(...)
    return cond(symbol, COND(...))
  end


  return contrib
end


return control
