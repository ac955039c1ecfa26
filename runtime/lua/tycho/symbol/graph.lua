--- The core's graphs of symbols.
--
-- A graph is built when it is first needed, and kept with the symbol until an attribute of some
-- node changes (`node.edits`). Its nodes are in the order of the walk from the heads.
--
-- @module tycho.symbol.graph

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local ffi = require "ffi"
local new_table = require "table.new"
local native = require "tycho.core.ffi"
local Error = require "tycho.core.error"
local node = require "tycho.symbol.node"

local C, check = native.C, native.check

local graph = {}


-- Building ----------------------------------------------------------------------------------------

local entry_array = ffi.typeof("ty_entry[?]")
local graph_out = ffi.typeof("ty_graph *[1]")


--- Returns the entries of a symbol; nil if it has none. With a function `_make`, they are made by
-- `_make(symbol)` when they are first read.
-- @param symbol the symbol
-- @treturn ?{entry,...}
function graph.made_entries(symbol)
  local make = rawget(symbol, "_make")
  if make then
    rawset(symbol, "_entries", make(symbol))
    rawset(symbol, "_make", nil)
  end
  return rawget(symbol, "_entries")
end


--- Returns the nodes that a symbol reaches, found at most once: heads and inputs stay as they are.
-- @param symbol the symbol
-- @treturn {node,...} inputs before readers; not to be changed
-- @treturn table node -> position in the list, from 1
function graph.walk(symbol)
  if type(symbol) ~= "table" or not (rawget(symbol, "_entries") or rawget(symbol, "_make")) then
    Error.raise{ code = "type", func = "Symbol", argument = "self", expected = "a Symbol",
      got = Error.kind(symbol), message = "methods take a colon, net:list_arguments(), not a dot" }
  end
  local walked = rawget(symbol, "_walked")
  if not walked then
    local order, position = node.walk(symbol._entries)
    walked = { order = order, position = position }
    rawset(symbol, "_walked", walked)
  end
  return walked.order, walked.position
end


--- Returns the names of a symbol's variables and outputs; they are kept until an attribute changes.
-- @param symbol the symbol
-- @treturn table arguments, auxiliary, outputs: lists, not to be changed
function graph.names(symbol)
  local order = graph.walk(symbol)
  local walked = symbol._walked
  if not walked.names or walked.edits ~= node.edits then
    local arguments, auxiliary = graph.variable_names(order)
    local outputs = {}
    for i, entry in ipairs(symbol._entries) do
      outputs[i] = node.output_name(entry[1], entry[2])
    end
    walked.names, walked.edits =
      { arguments = arguments, auxiliary = auxiliary, outputs = outputs }, node.edits
  end
  return walked.names
end


-- Adds the bodies of a control flow node to a graph; raises E(unsupported) for an operator written
-- in Lua inside one.
local function add_bodies(g, n, func)
  for _, body in ipairs(n.bodies) do
    for _, m in ipairs(node.walk(body._entries)) do
      if m.custom then
        Error.raise{ code = "unsupported", func = func, op = "Custom", node = m.name,
          where = m.where,
          message = "an operator written in Lua cannot be in a body of " .. n.op }
      end
    end
    local out = graph_out()
    check(C.ty_graph_parse(graph.text(body, func), out), func)
    local inner = native.own(out[0], C.ty_graph_free)
    check(C.ty_graph_subgraph(g, inner), func)
  end
end


local input_capacity, input_list = 64, entry_array(64)

-- Returns a node's inputs as an array, which the next call overwrites.
local function put_inputs(inputs, position)
  local n = #inputs
  if n > input_capacity then
    input_capacity, input_list = 2 * n, entry_array(2 * n)
  end
  for i = 1, n do
    local to, input = input_list[i - 1], inputs[i]
    to.node, to.out = position[input[1]] - 1, input[2]
  end
  return input_list
end


local function add_node(g, n, position, out, func, hints)
  local dict = n.custom and node.merged(n.attrs, n.custom, hints and hints[n]) or n.attrs
  if n.bodies then
    add_bodies(g, n, func)
  end
  local list, count = native.put_attrs(dict)
  if not n.op then
    check(C.ty_graph_var(g, n.name, list, count, out), func)
    return
  end
  local inputs = put_inputs(n.inputs, position)
  local code = C.ty_graph_op(g, n.op, n.name, list, count, inputs, #n.inputs, out)
  if code > 0 then
    check(code, func, { where = n.where })
  end
end


-- Builds the core's graph of a symbol. `hints`: for operators written in Lua, node -> attributes
-- with what their classes have inferred.
local function build(symbol, func, hints)
  local out, entries = graph_out(), symbol._entries
  check(C.ty_graph_new(out), func)
  local g = native.own(out[0], C.ty_graph_free)
  local order, position = graph.walk(symbol)
  local made, where = entry_array(1), nil
  for _, n in ipairs(order) do
    if n.where and n.where ~= where then
      where = n.where
      check(C.ty_graph_origin(g, where), func)
    end
    add_node(g, n, position, made, func, hints)
  end
  local heads = entry_array(#entries)
  for i, entry in ipairs(entries) do
    heads[i - 1].node, heads[i - 1].out = position[entry[1]] - 1, entry[2]
  end
  return { handle = g, heads = heads, count = #entries, order = order,
    position = position, edits = node.edits }
end


--- Returns the native graph of a symbol, built at most once.
-- @param symbol the symbol
-- @string func for errors
-- @treturn table handle (`ty_graph *`), heads (`ty_entry[]`), count, order (nodes),
--   position (node -> from 1)
function graph.of(symbol, func)
  local _ = symbol._entries              -- a symbol that was read has its graph with them
  local built = rawget(symbol, "_built")
  if not built or built.edits ~= node.edits then
    built = build(symbol, func)
    rawset(symbol, "_built", built)
  end
  return built
end


--- Returns the present contents of a symbol, from which `restore` makes a copy later: only
-- attributes and ports of a node can change.
-- @param symbol the symbol
-- @treturn table
function graph.snapshot(symbol)
  local order, built = graph.walk(symbol), rawget(symbol, "_built")
  local dicts, ports = new_table(#order, 0), new_table(#order, 0)
  for i, n in ipairs(order) do
    dicts[i], ports[i] = n.attrs, n.ports
  end
  -- the graph of a file may have nodes that the symbol does not reach
  local same = built and built.edits == node.edits and #built.order == #order
  return { entries = symbol._entries, order = order, attrs = dicts, ports = ports,
    built = same and built or nil }
end


-- Returns the native graph of a symbol for another one whose nodes are copies of its nodes. clone:
-- node -> its copy.
local function clone_graph(built, clone)
  local order, position = {}, {}
  for i, n in ipairs(built.order) do
    order[i], position[clone[n]] = clone[n], i
  end
  return { handle = built.handle, heads = built.heads, count = built.count, order = order,
    position = position, edits = node.edits }
end


--- Returns the entries of a copy of the graph that a symbol had when the snapshot was taken.
-- @tparam table snapshot
-- @treturn {entry,...}
-- @treturn ?table its native graph
function graph.restore(snapshot)
  local entries, clone = node.copy(snapshot.entries, nil, snapshot.order)
  for i, n in ipairs(snapshot.order) do
    clone[n].attrs, clone[n].ports = snapshot.attrs[i], snapshot.ports[i]
  end
  return entries, snapshot.built and clone_graph(snapshot.built, clone)
end


--- Returns whether operators written in Lua are in a graph; the core does not know their shapes.
-- @tparam table built as `graph.of`
function graph.is_custom(built)
  return node.has_custom() and require("tycho.symbol.custom").has(built.order)
end


--- Returns the native graph of a symbol for given shapes and dtypes, with those that operators
-- written in Lua infer from them.
-- @param symbol the symbol
-- @tparam cdata wants `ty_want[]`
-- @int count of them
-- @string func for errors
-- @string[opt] default dtype of what stays unknown
-- @treturn table as `graph.of`
function graph.resolved(symbol, wants, count, func, default)
  local built = graph.of(symbol, func)
  if not graph.is_custom(built) then
    return built
  end
  local function rebuild(hints)
    return build(symbol, func, hints)
  end
  return require("tycho.symbol.custom").resolve(built, wants, count, rebuild, func, default)
end


--- Returns the graph as the text of a symbol file.
function graph.text(symbol, func)
  local built = graph.of(symbol, func)
  local out = ffi.new("const char *[1]")
  check(C.ty_graph_text(built.handle, built.heads, built.count, out), func)
  return native.text(out[0])
end


-- Names -------------------------------------------------------------------------------------------

--- Returns the names of the arguments and of the auxiliary states, in order.
-- @tparam {node,...} order
-- @treturn {string,...} arguments
-- @treturn {string,...} auxiliary states
function graph.variable_names(order)
  local mutated, arguments, auxiliary = node.mutated(order), {}, {}
  for _, n in ipairs(order) do
    if not n.op then
      local names = mutated[n] and auxiliary or arguments
      names[#names + 1] = n.name
    end
  end
  return arguments, auxiliary
end


--- Returns the names of all variables, in order.
function graph.variables(order)
  local names = {}
  for _, n in ipairs(order) do
    names[#names + 1] = not n.op and n.name or nil
  end
  return names
end


return graph
