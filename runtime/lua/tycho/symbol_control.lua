--- Control flow of symbols: `foreach`, `while_loop`, `cond` of `ty.sym.contrib`.
--
-- The Lua functions are called once, with placeholders. What they build is cut off where it touches the graph outside: the
-- outer values that it uses become variables of the body, and inputs of the control-flow node. Bodies are symbols of their
-- own; attributes of the node say which of its inputs goes to which variable of a body (0-based, in the body's own order).
--
-- @module tycho.symbol_control

local args = require "tycho.args"
local attribute = require "tycho.attribute"
local Class = require "tycho.class"
local Error = require "tycho.error"
local name = require "tycho.name"
local node = require "tycho.symbol_node"
local symbol_op = require "tycho.symbol_op"
local values = require "tycho.values"

local control = {}

local MARK = "__subgraph_name__"


local function locations(list)
  return "[" .. table.concat(list, ", ") .. "]"
end


-- A symbol or a list of them as a list of single-output symbols; whether it was a list.
local function flatten(x, what, func, Symbol)
  local list = values.is_plain(x) and x or { x }
  local flat = {}
  for _, s in ipairs(list) do
    if not Class.is_a(s, Symbol) then
      Error.raise{ code = "type", func = func, argument = what, expected = "a Symbol or a list of Symbols",
        got = Error.kind(s), message = ("bad '%s'"):format(what) }
    end
    for i = 1, #s do
      flat[#flat + 1] = s[i]
    end
  end
  return flat, values.is_plain(x)
end


local function like(list, is_list)
  return is_list and list or list[1]
end


-- One variable per outer value, for a function's parameters: "data-0".
local function placeholders(list, symbol)
  local variables = {}
  for i, s in ipairs(list) do
    local n, k = s._entries[1][1], s._entries[1][2]
    variables[i] = symbol.Variable(n.name .. "-" .. k)
  end
  return variables
end


-- Runs a function in a scope of its own that marks what it builds.
local function build(label, f)
  local mark = name.current():get(nil, label)
  return mark, attribute.AttrScope{ [MARK] = mark }:with(f)
end


-- Cuts a body out of the graph.
-- heads: its outputs; own: placeholder node -> true; mark: of the nodes inside.
-- Returns the body's entries, its variables in order, and for each captured variable the outer entry.
local function cut(heads, own, mark)
  local twin, outer = {}, {}
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
    if twin[n] then
      return twin[n]
    elseif own[n] then
      twin[n] = n
    elseif n.op and n.attrs[MARK] == mark then
      local copy = {}
      for key, value in pairs(n) do
        copy[key] = value
      end
      twin[n] = copy
      copy.inputs = {}
      for i, input in ipairs(n.inputs) do
        copy.inputs[i] = moved(input)
      end
    else
      twin[n] = capture(n)
    end
    return twin[n]
  end
  local entries = {}
  for i, head in ipairs(heads) do
    entries[i] = moved(head)
  end
  local variables = {}
  for _, n in ipairs(node.walk(entries)) do
    variables[#variables + 1] = not n.op and n or nil
  end
  return entries, variables, outer
end


-- Heads of a body: a value that is a variable, or whose node is a head already, is copied first.
local function head_entries(list)
  local entries, seen = {}, {}
  for i, s in ipairs(list) do
    local n = s._entries[1][1]
    if not n.op or seen[n] and i > 1 then
      s = symbol_op.compose("identity", { s }, {}, "sym.contrib")
    end
    entries[i] = s._entries[1]
    seen[n] = true
  end
  return entries
end


local function place_of(list)
  local place = {}
  for i, v in ipairs(list) do
    place[v] = i - 1
  end
  return place
end


local function nodes_of(symbols)
  local set, list = {}, {}
  for i, s in ipairs(symbols) do
    list[i] = s._entries[1][1]
    set[list[i]] = true
  end
  return list, set
end


-- The inputs of a control-flow node: each outer value once.
local function gather()
  local inputs, place = {}, {}
  local function add(entry, Symbol)
    place[entry[1]] = place[entry[1]] or {}
    local at = place[entry[1]][entry[2]]
    if not at then
      inputs[#inputs + 1] = Symbol.of{ entry }
      at = #inputs - 1
      place[entry[1]][entry[2]] = at
    end
    return at
  end
  return inputs, add
end


local function outputs_of(symbol, from, to)
  local list = {}
  for i = from, to do
    list[#list + 1] = symbol[i]
  end
  return list
end


local function two_results(func, a, b)
  if a == nil or b == nil then
    Error.raise{ code = "type", func = func, expected = "two values: outputs and states", got = "fewer",
      message = "the function returned too little" }
  end
end


local FOREACH = args.form("sym.contrib.foreach", { { "body", "function" }, { "data", "any" }, { "init_states", "any" },
                                                   { "name", "text", "foreach" } })

-- foreach: body(data[t], states) -> outputs, states
local function foreach(symbol, ...)
  local a, func, Symbol = FOREACH(...), "sym.contrib.foreach", symbol.Symbol
  local data, data_list = flatten(a.data, "data", func, Symbol)
  local states, states_list = flatten(a.init_states, "init_states", func, Symbol)
  local inner_data, inner_states, outs, outs_list, finals, heads
  local mark = build(a.name, function()
    inner_data, inner_states = placeholders(data, symbol), placeholders(states, symbol)
    local o, s = a.body(like(inner_data, data_list), like(inner_states, states_list))
    two_results(func, o, s)
    outs, outs_list = flatten(o, "outputs", func, Symbol)
    finals = flatten(s, "states", func, Symbol)
    local all = { unpack(outs) }
    for _, f in ipairs(finals) do
      all[#all + 1] = f
    end
    heads = head_entries(all)
  end)
  if #finals ~= #states then
    Error.raise{ code = "value", func = func, argument = "body", expected = #states, got = #finals,
      message = "the body must return as many states as it is given" }
  end
  local data_nodes, own = nodes_of(inner_data)
  local state_nodes, more = nodes_of(inner_states)
  for n in pairs(more) do
    own[n] = true
  end
  local entries, variables, outer = cut(heads, own, mark)
  local place, inputs = place_of(variables), {}
  local function locate(nodes, given)
    local list = {}
    for i, n in ipairs(nodes) do
      list[i] = place[n] or -1
      inputs[#inputs + 1] = given[i]
    end
    return locations(list)
  end
  local params = { num_outputs = #heads, num_out_data = #outs, in_data_locs = locate(data_nodes, data),
    in_state_locs = locate(state_nodes, states) }
  local remain = {}
  for _, v in ipairs(variables) do
    if outer[v] then
      remain[#remain + 1] = place[v]
      inputs[#inputs + 1] = Symbol.of{ outer[v] }
    end
  end
  params.remain_locs, params.num_args = locations(remain), #inputs + 1
  local s = symbol_op.compose("_foreach", inputs, params, func)
  s._entries[1][1].bodies = { Symbol.of(entries) }
  return like(outputs_of(s, 1, #outs), outs_list), like(outputs_of(s, #outs + 1, #s), states_list)
end


local WHILE = args.form("sym.contrib.while_loop", { { "cond", "function" }, { "func", "function" }, { "loop_vars", "any" },
  { "max_iterations", "integer" }, { "name", "text", "while_loop" } })

-- A body over loop variables: its entries, variables, outer entries, and placeholders.
local function loop_body(symbol, label, variables, f)
  local inner, heads
  local mark = build(label, function()
    inner = placeholders(variables, symbol)
    heads = f(inner)
  end)
  local nodes, own = nodes_of(inner)
  local entries, order, outer = cut(heads, own, mark)
  for i, n in ipairs(nodes) do
    outer[n] = variables[i]._entries[1]
  end
  return entries, order, outer, nodes
end


local function input_places(order, outer, add, Symbol)
  local list = {}
  for i, v in ipairs(order) do
    list[i] = add(outer[v], Symbol)
  end
  return list
end


-- while_loop: while cond(vars) and steps < max_iterations: outputs, vars = func(vars)
local function while_loop(symbol, ...)
  local a, func, Symbol = WHILE(...), "sym.contrib.while_loop", symbol.Symbol
  local vars, vars_list = flatten(a.loop_vars, "loop_vars", func, Symbol)
  local inputs, add = gather()
  local cond_entries, cond_order, cond_outer = loop_body(symbol, a.name .. "_cond", vars, function(inner)
    return head_entries(flatten(a.cond(unpack(inner)), "cond", func, Symbol))
  end)
  local outs, outs_list, finals
  local entries, order, outer, nodes = loop_body(symbol, a.name .. "_func", vars, function(inner)
    local o, v = a.func(unpack(inner))
    two_results(func, o, v)
    outs, outs_list = flatten(o, "outputs", func, Symbol)
    finals = flatten(v, "loop_vars", func, Symbol)
    local all = { unpack(outs) }
    for _, f in ipairs(finals) do
      all[#all + 1] = f
    end
    return head_entries(all)
  end)
  if #finals ~= #vars then
    Error.raise{ code = "value", func = func, argument = "func", expected = #vars, got = #finals,
      message = "func must return as many loop variables as it is given" }
  end
  local place, var_places = place_of(order), {}
  local params = { num_outputs = #entries, num_out_data = #outs, max_iterations = a.max_iterations }
  params.cond_input_locs = locations(input_places(cond_order, cond_outer, add, Symbol))
  params.func_input_locs = locations(input_places(order, outer, add, Symbol))
  for i, n in ipairs(nodes) do
    var_places[i] = place[n] or -1
  end
  params.func_var_locs, params.num_args = locations(var_places), #inputs + 2
  local s = symbol_op.compose("_while_loop", inputs, params, func)
  s._entries[1][1].bodies = { Symbol.of(cond_entries), Symbol.of(entries) }
  return like(outputs_of(s, 1, #outs), outs_list), like(outputs_of(s, #outs + 1, #s), vars_list)
end


local COND = args.form("sym.contrib.cond", { { "pred", "symbol" }, { "then_func", "function" }, { "else_func", "function" },
                                             { "name", "text", "cond" } })

-- cond: pred ~= 0 and then_func() or else_func()
local function cond(symbol, ...)
  local a, func, Symbol = COND(...), "sym.contrib.cond", symbol.Symbol
  local inputs, add = gather()
  local count, is_list
  local function branch(label, f)
    local entries, order, outer = loop_body(symbol, a.name .. label, {}, function()
      local outs, listed = flatten(f(), label:sub(2), func, Symbol)
      count, is_list = count or #outs, is_list or listed
      if label ~= "_pred" and #outs ~= count then
        Error.raise{ code = "value", func = func, argument = "else_func", expected = count, got = #outs,
          message = "both branches must return as many outputs" }
      end
      return head_entries(outs)
    end)
    return Symbol.of(entries), locations(input_places(order, outer, add, Symbol))
  end
  local pred, pred_locs = branch("_pred", function()
    return symbol_op.compose("identity", { a.pred }, {}, func)
  end)
  count, is_list = nil, nil
  local yes, yes_locs = branch("_then", a.then_func)
  local no, no_locs = branch("_else", a.else_func)
  local s = symbol_op.compose("_cond", inputs, { num_outputs = count, num_args = #inputs + 3, cond_input_locs = pred_locs,
    then_input_locs = yes_locs, else_input_locs = no_locs }, func)
  s._entries[1][1].bodies = { pred, yes, no }
  return like(outputs_of(s, 1, #s), is_list)
end


--- The functions for `ty.sym.contrib`.
-- @tparam table symbol the namespace `ty.sym`
function control.functions(symbol)
  local function with(f)
    return function(...) return f(symbol, ...) end
  end
  return { foreach = with(foreach), while_loop = with(while_loop), cond = with(cond) }
end




return control
