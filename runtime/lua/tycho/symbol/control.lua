--- Control flow of symbols: `foreach`, `while_loop`, `cond` of `ty.sym.contrib`.
--
-- The Lua functions are called once, with placeholders. What they build is cut off where it touches
-- the graph outside: the outer values that it uses become variables of the body, and inputs of the
-- control-flow node. Bodies are symbols of their own; attributes of the node say which of its
-- inputs goes to which variable of a body (0-based, in the body's own order).
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


local function locations(list, what, func)
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


-- Returns one variable per outer value, "data-0", as the parameters of a body.
local function placeholders(list, symbol)
  local variables = {}
  for i, s in ipairs(list) do
    local n, k = s._entries[1][1], s._entries[1][2]
    variables[i] = symbol.Variable(n.name .. "-" .. k)
  end
  return variables
end


-- Runs a function in a new scope that marks the nodes built in it.
local function build(label, f)
  local mark = name.current():get(nil, label)
  return mark, attribute.AttrScope{ [MARK] = mark }:with(f)
end


-- Cuts a body out of the graph.
-- heads: its outputs; own: placeholder node -> true; mark: of the nodes inside; drawing: those that
-- take random numbers.
-- Returns the body's entries, its variables in order, for each captured variable the outer entry,
-- and entries of the nodes of `drawing` that no output needs: as far as they read no other
-- variables, since the body's inputs are those of its outputs.
local function cut(heads, own, mark, drawing)
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


-- Returns the heads of a body. A value that is a variable, or whose node is a head already, is
-- copied by an identity first.
local function head_entries(list)
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


-- Returns the inputs of a control-flow node: each outer value once.
local function gather()
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


-- Makes new values of loop variables depend on the old ones if nothing else does, since only
-- variables of the body are carried from step to step. The gradient is that of the new value.
local function use_all(inner, outs, finals, func)
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


-- Returns what a body over the states `inner` returned: `{outs, structure, finals}`, of which outs
-- and finals are flat, and structure is that of the outputs; its heads.
local function read_results(func, inner, all_used, o, s, Symbol)
  if o == nil or s == nil then
    Error.raise{ code = "type", func = func, expected = "two values: outputs and states",
      got = "fewer", message = "the function returned too little" }
  end
  local result = {}
  result.outs, result.structure = flatten(1, { o }, "outputs", func, Symbol)
  local finals = flatten(1, { s }, "states", func, Symbol)
  if #finals ~= #inner then
    Error.raise{ code = "value", func = func, expected = #inner, got = #finals,
      message = "the function must return as many states as it is given" }
  end
  if all_used then
    use_all(inner, result.outs, finals, func)
  end
  local all = tables.copied(result.outs)
  for _, f in ipairs(finals) do
    all[#all + 1] = f
  end
  return result, head_entries(all)
end


-- Returns the node's outputs and states, each a symbol or a list as given and returned.
local function hand_out(s, result, structure)
  local n = #result.outs
  return regroup(list_outputs(s, 1, n), result.structure),
    (regroup(list_outputs(s, n + 1, #s), structure))
end


-- Returns a body over placeholders of the given values: its symbol, number of outputs, variables in
-- order (`order`), and for each variable the outer entry (`outer`). Also the placeholders' nodes,
-- in order (`nodes`), and as a set (`own`).
local function make_body(symbol, label, given, f)
  local inner, drawing, heads
  local mark = build(label, function()
    inner = placeholders(given, symbol)
    drawing, heads = tracing.list_draws(f, inner)
  end)
  local nodes, own = list_nodes(inner)
  local entries, order, outer, unread = cut(heads, own, mark, drawing)
  for i, n in ipairs(nodes) do
    outer[n] = given[i]._entries[1]
  end
  local body = symbol.Symbol.of(entries)
  rawset(body, "_unread", unread)
  return { symbol = body, count = #entries, order = order, outer = outer, nodes = nodes, own = own }
end


local function joined(a, b)
  local list = tables.copied(a)
  for _, x in ipairs(b) do
    list[#list + 1] = x
  end
  return list
end


local FOREACH = args.form("sym.contrib.foreach", { { "body", "function" }, { "data", "any" },
  { "init_states", "any" }, { "name", "text", "foreach" } })

-- Returns the positions of a body's variables: of the data, of the states, and of the rest, whose
-- outer symbols are added to the inputs.
local function foreach_params(ndata, body, inputs, func, Symbol)
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
  return { in_data_locs = locations(data, "data", func),
    in_state_locs = locations(states, "init_states", func),
    remain_locs = locations(remain, OUTER, func), num_args = #inputs + 1 }
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
  local inputs = joined(data, states)
  local result
  local body = make_body(symbol, a.name, inputs, function(inner)
    local slices, carried = tables.part(inner, 1, #data), tables.part(inner, #data + 1, #inner)
    local o, s = a.body(regroup(slices, data_structure), (regroup(carried, structure)))
    local heads
    result, heads = read_results(func, carried, false, o, s, Symbol)
    return heads
  end)
  local params = foreach_params(#data, body, inputs, func, Symbol)
  params.num_outputs, params.num_out_data = body.count, #result.outs
  local s = operators.compose("_foreach", inputs, params, func)
  bodies.attach(s._entries[1][1], { body.symbol })
  return hand_out(s, result, structure)
end


local WHILE = args.form("sym.contrib.while_loop", { { "cond", "function" }, { "func", "function" },
  { "loop_vars", "any" }, { "max_iterations", "integer" }, { "name", "text", "while_loop" } })


local function input_locations(body, add, func, Symbol)
  local list = {}
  for i, v in ipairs(body.order) do
    list[i] = add(body.outer[v], Symbol)
  end
  return locations(list, OUTER, func)
end


-- Returns the body's variable of each loop variable. Those that no output needs are used by their
-- new value (use_all).
local function node_locations(body, func)
  local position, list = index_positions(body.order), {}
  for i, n in ipairs(body.nodes) do
    list[i] = position[n]
  end
  return locations(list, "loop_vars", func)
end


local function is_entry(a, b)
  return a[1] == b[1] and a[2] == b[2]
end


-- Returns whether a body reads an outer entry other than as one of its own variables.
local function captures(body, entry)
  for v, outer in pairs(body.outer) do
    if not body.own[v] and is_entry(outer, entry) then
      return true
    end
  end
  return false
end


-- Gives each loop variable an input of its own, since the condition's variables are told by their
-- inputs: one that begins as another one does, or as a value that a body reads too, begins as its
-- copy. list: the bodies.
local function separate(vars, list, func)
  for i, s in ipairs(vars) do
    local entry, shared = s._entries[1], false
    for k = 1, i - 1 do
      shared = shared or is_entry(vars[k]._entries[1], entry)
    end
    for _, body in ipairs(list) do
      shared = shared or captures(body, entry)
    end
    if shared then
      local copy = operators.compose("identity", { s }, {}, func)._entries[1]
      for _, body in ipairs(list) do
        body.outer[body.nodes[i]] = copy
      end
    end
  end
end


-- Builds a while_loop node: while cond(vars) and steps < max_iterations: outputs, vars =
-- func(vars).
local function while_loop(symbol, a)
  local func, Symbol = "sym.contrib.while_loop", symbol.Symbol
  local vars, structure = flatten(1, { a.loop_vars }, "loop_vars", func, Symbol)
  check_count(#vars, "loop_vars", func)
  local inputs, add = gather()
  local alive = make_body(symbol, a.name .. "_cond", vars, function(inner)
    local x = a.cond(arguments(inner, structure))
    return head_entries((flatten(1, { x }, "cond", func, Symbol)))
  end)
  local result
  local body = make_body(symbol, a.name .. "_func", vars, function(inner)
    local o, v = a.func(arguments(inner, structure))
    local heads
    result, heads = read_results(func, inner, true, o == nil and {} or o, v, Symbol)
    return heads
  end)
  separate(vars, { alive, body }, func)
  local params = { num_outputs = body.count, num_out_data = #result.outs,
    max_iterations = a.max_iterations }
  params.cond_input_locs = input_locations(alive, add, func, Symbol)
  params.func_input_locs = input_locations(body, add, func, Symbol)
  params.func_var_locs, params.num_args = node_locations(body, func), #inputs + 2
  local s = operators.compose("_while_loop", inputs, params, func)
  bodies.attach(s._entries[1][1], { alive.symbol, body.symbol })
  return hand_out(s, result, structure)
end


local COND = args.form("sym.contrib.cond", { { "pred", "symbol" }, { "then_func", "function" },
  { "else_func", "function" }, { "name", "text", "cond" } })

-- Builds a cond node: pred ~= 0 and then_func() or else_func().
local function cond(symbol, a)
  local func, Symbol = "sym.contrib.cond", symbol.Symbol
  local inputs, add = gather()
  local function branch(label, f)
    local outs, structure
    local body = make_body(symbol, a.name .. "_" .. label, {}, function()
      local results = { f() }
      outs, structure = flatten(math.max(1, #results), results, label, func, Symbol)
      return head_entries(outs)
    end)
    return body.symbol, input_locations(body, add, func, Symbol), #outs, structure
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
  -- Outputs, which may be nil, are stacked on axis 0 and filled up with zeros to `max_iterations`
  -- rows. Variables and outputs are symbols or lists, also nested ones.
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
