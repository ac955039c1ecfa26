--- From symbols to the core: building a native graph, and inference over it.
--
-- A graph is built from the heads when something is asked, and kept with the symbol
-- until an attribute changes (`symbol_node.edits`). Nodes of the graph are numbered as
-- the walk from the heads finds them.
--
-- @module tycho.symbol.graph

jit.off(true, true)                                      -- pays no compilation: core/iterate.lua

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local class = require "tycho.ndarray.class"
local custom = require "tycho.symbol.custom"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local node = require "tycho.symbol.node"
local values = require "tycho.core.values"

local C, check = native.C, native.check

local graph = {}


-- Building ----------------------------------------------------------------------------------------

local entry_array = ffi.typeof("ty_entry[?]")
local graph_out = ffi.typeof("ty_graph *[1]")
local want_array, desc_array = ffi.typeof("ty_want[?]"), ffi.typeof("ty_desc[?]")


--- The nodes that a symbol reaches, found at most once: heads and inputs stay as they are.
-- @param symbol the symbol
-- @treturn {node,...} inputs before readers; not to be changed
-- @treturn table node -> place in the list, from 1
function graph.walk(symbol)
  local walked = rawget(symbol, "_walked")
  if not walked then
    local order, place = node.walk(symbol._entries)
    walked = { order = order, place = place }
    rawset(symbol, "_walked", walked)
  end
  return walked.order, walked.place
end


--- Names of a symbol's variables and outputs, found anew when an attribute has changed.
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


-- A body of control flow, as a graph that knows its heads.
local function add_bodies(g, n, func)
  for _, body in ipairs(n.bodies) do
    for _, m in ipairs(node.walk(body._entries)) do
      if m.custom then
        Error.raise{ code = "unsupported", func = func, op = "Custom", node = m.name,
          where = m.where,
          message = "an operator written in Lua cannot stand in a body of " .. n.op }
      end
    end
    local out = graph_out()
    check(C.ty_graph_parse(graph.text(body, func), out), func)
    local inner = native.own(out[0], C.ty_graph_free)
    check(C.ty_graph_subgraph(g, inner), func)
  end
end


local input_room, input_list = 64, entry_array(64)

-- In an array that the next call uses again.
local function put_inputs(inputs, place)
  local n = #inputs
  if n > input_room then
    input_room, input_list = 2 * n, entry_array(2 * n)
  end
  for i = 1, n do
    local to, input = input_list[i - 1], inputs[i]
    to.node, to.out = place[input[1]] - 1, input[2]
  end
  return input_list
end


local function add_node(g, n, place, out, func, hints)
  local dict = n.custom and node.merged(n.attrs, n.custom, hints and hints[n]) or n.attrs
  if n.bodies then
    add_bodies(g, n, func)
  end
  local list, count = native.put_attrs(dict)
  if not n.op then
    check(C.ty_graph_var(g, n.name, list, count, out), func)
    return
  end
  local inputs = put_inputs(n.inputs, place)
  local code = C.ty_graph_op(g, n.op, n.name, list, count, inputs, #n.inputs, out)
  if code > 0 then
    check(code, func, { where = n.where })
  end
end


-- hints: of operators written in Lua, node -> attributes with what their classes have inferred
local function build(symbol, func, hints)
  local out, entries = graph_out(), symbol._entries
  check(C.ty_graph_new(out), func)
  local g = native.own(out[0], C.ty_graph_free)
  local order, place = graph.walk(symbol)
  local made, where = entry_array(1), nil
  for _, n in ipairs(order) do
    if n.where and n.where ~= where then
      where = n.where
      check(C.ty_graph_origin(g, where), func)
    end
    add_node(g, n, place, made, func, hints)
  end
  local heads = entry_array(#entries)
  for i, entry in ipairs(entries) do
    heads[i - 1].node, heads[i - 1].out = place[entry[1]] - 1, entry[2]
  end
  return { handle = g, heads = heads, count = #entries, order = order,
    place = place, edits = node.edits }
end


--- The native graph of a symbol, built at most once.
-- @param symbol the symbol
-- @string func for errors
-- @treturn table handle (`ty_graph *`), heads (`ty_entry[]`), count, order (nodes),
--   place (node -> number from 1)
function graph.of(symbol, func)
  local built = rawget(symbol, "_built")
  if not built or built.edits ~= node.edits then
    built = build(symbol, func)
    rawset(symbol, "_built", built)
  end
  return built
end


--- What a symbol says now, for a copy that is made when it is asked for: nodes change in
-- nothing but attributes and ports.
-- @param symbol the symbol
-- @treturn table
function graph.snapshot(symbol)
  local order, built = graph.walk(symbol), rawget(symbol, "_built")
  local dicts, ports = {}, {}
  for i, n in ipairs(order) do
    dicts[i], ports[i] = n.attrs, n.ports
  end
  -- a file may have more nodes
  local same = built and built.edits == node.edits and #built.order == #order
  return { entries = symbol._entries, order = order, attrs = dicts, ports = ports,
    built = same and built or nil }
end


-- A native graph for the twins of its nodes, which say the same.
local function twin_graph(built, twin)
  local order, place = {}, {}
  for i, n in ipairs(built.order) do
    order[i], place[twin[n]] = twin[n], i
  end
  return { handle = built.handle, heads = built.heads, count = built.count, order = order,
    place = place, edits = node.edits }
end


--- Entries of a copy of what a symbol said when the snapshot was taken.
-- @tparam table kept the snapshot
-- @treturn {entry,...}
-- @treturn ?table its native graph
function graph.restore(kept)
  local entries, twin = node.copy(kept.entries, nil, kept.order)
  for i, n in ipairs(kept.order) do
    twin[n].attrs, twin[n].ports = kept.attrs[i], kept.ports[i]
  end
  return entries, kept.built and twin_graph(kept.built, twin)
end


--- Whether operators written in Lua are in a graph, which must be asked for their shapes.
-- @tparam table built as `graph.of`
function graph.is_custom(built)
  return custom.has(built.order)
end


--- The native graph of a symbol for given shapes and dtypes: operators written in
-- Lua have been asked for theirs.
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
  return custom.resolve(built, wants, count, rebuild, func, default)
end


--- The graph as the text of a symbol file.
function graph.text(symbol, func)
  local built = graph.of(symbol, func)
  local out = ffi.new("const char *[1]")
  check(C.ty_graph_text(built.handle, built.heads, built.count, out), func)
  return native.text(out[0])
end


-- What is given -----------------------------------------------------------------------------------

--- Names of the arguments and of the auxiliary states, in order.
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


--- Names of all variables, in order.
function graph.variables(order)
  local names = {}
  for _, n in ipairs(order) do
    names[#names + 1] = not n.op and n.name or nil
  end
  return names
end


-- Positional values go to the arguments in order; null leaves one out.
local function by_place(list, order, func)
  local names = graph.variable_names(order)
  if #list > #names then
    Error.raise{ code = "value", func = func, expected = #names, got = #list,
      message = ("the symbol has %d argument%s"):format(#names, #names == 1 and "" or "s") }
  end
  local dict = {}
  for i = 1, #list do
    if values.value(list[i]) ~= nil then
      dict[names[i]] = list[i]
    end
  end
  return dict
end


local function check_names(dict, order, func)
  local names, known = graph.variables(order), {}
  for _, name in ipairs(names) do
    known[name] = true
  end
  for name in pairs(dict) do
    if not known[name] then
      Error.unknown{ func = func, argument = name, what = "argument", names = names }
    end
  end
end


--- Values by argument name from a call: either a list in argument order or names, not both.
function graph.given(list, dict, order, func)
  if list and next(dict) then
    Error.raise{ code = "value", func = func, argument = (next(dict)),
      message = "arguments are given by position and by name; use one of them" }
  end
  dict = list and by_place(list, order, func) or dict
  check_names(dict, order, func)
  return dict
end


--- Fills a native description with a shape; an unknown one (`{}`) has no dimensions. A number is no
-- shape here: it is more often a slip than an array of one dimension.
function graph.put_shape(desc, shape, name, func)
  local ok, sizes = args.types.shape.check(shape)
  ok = ok and type(shape) == "table"
  if not ok or #sizes > C.TY_MAXDIM then
    Error.raise{ code = ok and "shape" or "type", func = func, argument = name,
      got = Error.kind(shape),
      expected = ok and "at most 8 dimensions" or "a shape (a list of sizes, 0 where unknown)",
      message = ("bad shape of '%s'"):format(name) }
  end
  desc.ndim = #sizes
  for i, size in ipairs(sizes) do
    desc.dim[i - 1] = size
  end
end


-- Inference ---------------------------------------------------------------------------------------

local function real_outputs(order)
  local n = 0
  for _, m in ipairs(order) do
    n = n + #m.ports.outputs
  end
  return n
end


-- Notes where each input's shape of a failed node comes from: "given",
-- "attribute" or the node that made it.
function graph.explain(e, built, given)
  for _, n in ipairs(e.shapes and built.order or {}) do
    if n.name == e.node and n.op then
      for i, shape in ipairs(e.shapes) do
        local entry = n.inputs[i]
        local input = entry and entry[1]
        shape.name = input and node.output_name(input, entry[2]) or shape.name
        shape.from = input and (given[input.name] and not input.op and "given"
          or input.attrs.__shape__ and not input.op and "attribute" or input.name) or shape.from
      end
    end
  end
  return e
end


--- Runs inference with what is known.
-- @param symbol the symbol
-- @tparam table given argument name -> whatever `put` understands
-- @tparam function put put(desc, value, name) fills a native description
-- @string func for errors
-- @treturn cdata descriptions of all outputs of all nodes, in order
-- @treturn table the graph, as `graph.of`
function graph.infer(symbol, given, put, func)
  local names = attrs.keys(given)
  local wants = want_array(#names + 1)
  for i, name in ipairs(names) do
    local want = wants[i - 1]
    want.name, want.desc.dtype = name, C.TY_NODTYPE
    put(want.desc, given[name], name, func)
  end
  local built = graph.resolved(symbol, wants, #names, func)
  local out = desc_array(real_outputs(built.order) + 1)
  local code = C.ty_graph_infer(built.handle, wants, #names, 1, out)
  if code > 0 then
    error(graph.explain(native.failure(code, func), built, given), 0)
  end
  return out, built
end


local function dtype_of(desc)
  return args.DTYPE_NAMES[desc.dtype] or values.null
end


local function shape_known(desc)
  for i = 1, desc.ndim do
    if desc.dim[i - 1] == 0 then
      return false
    end
  end
  return desc.ndim > 0
end


local function dtype_known(desc)
  return desc.dtype ~= C.TY_NODTYPE
end

--- The two things that are inferred: how they are given, read and known.
graph.SHAPES = { put = graph.put_shape, read = class.shape_of,
  known = shape_known, what = "shapes" }
graph.DTYPES = { read = dtype_of, known = dtype_known, what = "dtypes" }


function graph.DTYPES.put(desc, dtype, name, func)
  local ok, _, expected, code = args.types.dtype.check(dtype)
  if not ok then
    Error.raise{ code = code or "type", func = func, argument = name, got = Error.kind(dtype),
      expected = expected or "a dtype such as \"float32\"",
      message = ("bad dtype of '%s'"):format(name) }
  end
  desc.dtype = args.DTYPES[dtype]
end


local function warn_undecided(built, descs, first, kind, func)
  local names, more = {}, false
  for _, n in ipairs(built.order) do
    if not n.op and not kind.known(descs[first[n]]) then
      more = #names == 10
      names[#names + 1] = not more and n.name or nil
      if more then
        break
      end
    end
  end
  log:warning(("%s: the %s of these arguments cannot be inferred from what was given: %s%s")
    :format(func, kind.what, #names > 0 and table.concat(names, ", ")
      or "none, but inner values are undecided", more and ", ..." or ""))
end


local function is_complete(built, descs, first, kind)
  for _, n in ipairs(built.order) do
    for k = 0, #n.ports.outputs - 1 do
      if not kind.known(descs[first[n] + k]) then
        return false
      end
    end
  end
  return true
end


local function fit_descs(shapes)
  for _, shape in pairs(shapes) do
    if #shape > C.TY_MAXDIM then
      return false
    end
  end
  return true
end


-- Wants of inputs, and of the arguments whose dtype does not follow from them: those are float32.
local function input_wants(names, shapes, types, undecided)
  local wants, count = want_array(#names + 1), 0
  for _, name in ipairs(names) do
    local shape, dtype = shapes[name], types[name]
    if shape or undecided and undecided[name] then
      local want = wants[count]
      local desc = want.desc
      want.name, desc.ndim = name, shape and #shape or 0
      desc.dtype = dtype and args.DTYPES[dtype] or undecided and undecided[name]
        and C.TY_F32 or C.TY_NODTYPE
      for i = 1, shape and #shape or 0 do
        desc.dim[i - 1] = shape[i]
      end
      count = count + 1
    end
  end
  return wants, count
end


-- Shapes and dtypes of variables in order, and the arguments whose dtype is
-- unknown; nil where a shape is.
local function read_variables(built, descs)
  local first, mutated = node.firsts(built.order), node.mutated(built.order)
  local found, undecided = { arguments = {}, auxiliary = {} }, nil
  for _, n in ipairs(built.order) do
    if not n.op then
      local desc, list = descs[first[n]], mutated[n] and found.auxiliary or found.arguments
      list[#list + 1] = { name = n.name, shape = class.shape_of(desc),
        dtype = args.DTYPE_NAMES[desc.dtype] }
      if not shape_known(desc) then
        return nil
      elseif not dtype_known(desc) then
        undecided = undecided or {}
        undecided[n.name] = true
      end
    end
  end
  return found, undecided
end


--- Shapes and dtypes of all variables at once, from those of the inputs; float32
-- where a dtype does not follow.
-- @param symbol the symbol
-- @tparam table shapes by name
-- @tparam table types dtypes of the same names
-- @treturn ?table arguments and auxiliary, lists of `{name, shape, dtype}`; nil where that is not
--   all there is to say: a contradiction, something unknown, an operator written in Lua
function graph.variables_of(symbol, shapes, types)
  local built, names = graph.of(symbol, "Symbol"), graph.names(symbol).arguments
  local descs, undecided, found = desc_array(real_outputs(built.order) + 1), nil, nil
  if graph.is_custom(built) or not fit_descs(shapes) then
    return nil
  end
  for _ = 1, 2 do
    local wants, count = input_wants(names, shapes, types, undecided)
    if C.ty_graph_infer(built.handle, wants, count, 1, descs) > 0 then
      return nil
    end
    found, undecided = read_variables(built, descs)
    if not found then
      return nil
    elseif not undecided then
      break
    end
  end
  return not undecided and is_complete(built, descs, node.firsts(built.order), graph.DTYPES)
    and found or nil
end


--- `arguments, outputs, auxiliary states` of what is inferred; three nils
-- and a warning when incomplete.
-- @param symbol the symbol
-- @tparam table kind `graph.SHAPES` or `graph.DTYPES`
-- @tparam table given by argument name
-- @bool partial hand out what is known
-- @string func for errors
function graph.results(symbol, kind, given, partial, func)
  local descs, built = graph.infer(symbol, given, kind.put, func)
  local first, mutated = node.firsts(built.order), node.mutated(built.order)
  if not partial and not is_complete(built, descs, first, kind) then
    warn_undecided(built, descs, first, kind, func)
    return nil, nil, nil
  end
  local arguments, outputs, auxiliary = {}, {}, {}
  for _, n in ipairs(built.order) do
    if not n.op then
      local list = mutated[n] and auxiliary or arguments
      list[#list + 1] = kind.read(descs[first[n]])
    end
  end
  for i, entry in ipairs(symbol._entries) do
    outputs[i] = kind.read(descs[first[entry[1]] + entry[2]])
  end
  return arguments, outputs, auxiliary
end


return graph
