--- Converts an ONNX file to a symbol and its parameters (not for users; `ty.onnx.import_model`).
--
-- Nodes are converted in the file's order by the functions of the operator tables
-- (onnx/operators.lua). Values that depend on constants only are computed at once (onnx/value.lua).
--
-- Fields of an Import: path; func (for errors); model (onnx/model_file.lua); opsets (domain ->
-- version); shapes, constants, partial (options of the caller); missing (nodes that a partial
-- import could not convert); inputs and params (results); shapes_of (node -> shapes of outputs);
-- names (set of names in use); named (set of the nodes that have the name of a value); node and
-- hint (the current node, and the prefix of the names of its nodes); depth (of nested graphs);
-- integers (whether the device has kernels for 8-bit integers).
--
-- @module tycho.onnx.importer

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local contexts = require "tycho.core.context"
local Error = require "tycho.core.error"
local levels = require "tycho.onnx.levels"
local model_file = require "tycho.onnx.model_file"
local node = require "tycho.symbol.node"
local Node = require "tycho.onnx.node"
local operators = require "tycho.onnx.operators"
local simplify = require "tycho.symbol.simplify"
local symbol = require "tycho.symbol.symbol"
require "tycho.executor.executor"                          -- so that symbols can be bound
local tables = require "tycho.core.tables"
local tensor = require "tycho.onnx.tensor"
local transfer = require "tycho.ndarray.transfer"
local value = require "tycho.onnx.value"

local import = {}

local Import = {}
Import.__index = Import

local LEAST_OPSET, MOST_OPSET = 1, 28
local MOST_DEPTH = 64                    -- greatest nesting of graphs and functions


-- Errors ------------------------------------------------------------------------------------------

-- Returns the name of a node for errors: its own, or that of its first output.
local function get_label(n)
  if n.name ~= "" then
    return n.name
  end
  return n.outputs[1] or ""
end


-- Returns the operator of a node with its domain.
local function get_full_name(n)
  return n.domain == "" and n.op or n.domain .. "." .. n.op
end


-- Raises an error that names the file and the node that is being converted.
function Import:fail(code, message)
  local n, version = self.node, ""
  if n then
    local opset = self.opsets[n.domain]
    version = opset and (" (opset %d)"):format(opset) or ""
  end
  Error.raise{ code = code, func = self.func, op = n and get_full_name(n) .. version,
    node = n and get_label(n), argument = self.path, where = self.path,
    message = message }
end


-- Adds the error of an unsupported node to `missing` if the import is `partial`; raises other
-- errors.
function Import:miss(e)
  if not (self.partial and Error.is_error(e) and e.code == "unsupported") then
    error(e, 0)
  end
  self.missing[#self.missing + 1] = { node = e.node, op = e.op, message = e.message }
end


-- Codes of errors that calls on arrays raise for unsuitable arguments.
local MISFITS = { value = true, type = true, shape = true, dtype = true, index = true }

-- Returns the error to raise for an error in a converter. Converters do not check what ONNX
-- guarantees, so a Lua error (from an omitted input or a missing dimension) or an error of a call
-- on constants becomes E(format) of the file; other errors are returned unchanged.
function Import:explained(e)
  local text = "the node does not fit its operator"
  if Error.is_error(e) and MISFITS[e.code] and e.func ~= self.func then
    text = ("%s: %s"):format(text, e.message)
  elseif type(e) ~= "string" or not (e:find("attempt to ", 1, true)
      or e:find("bad argument", 1, true)) then
    return e
  end
  local ok, explained = pcall(self.fail, self, "format", text)
  assert(not ok)
  explained.cause = e
  return explained
end


-- Names -------------------------------------------------------------------------------------------

-- Returns a new scope of values by name, inside another scope or none.
local function new_scope(outer)
  return { values = {}, outer = outer }
end


-- Returns the value of a name in a scope or an enclosing one; nil if there is none.
local function find_value(scope, name)
  while scope do
    local v = scope.values[name]
    if v ~= nil then
      return v
    end
    scope = scope.outer
  end
end


-- Sets the value of a name; raises E(format) if it has one already.
function Import:put(scope, name, v)
  if scope.values[name] ~= nil then
    self:fail("format", ("the name '%s' is given twice"):format(name))
  end
  scope.values[name] = v
end


--- Returns the value of a name that a node reads; false if the node that makes it was not imported.
function Import:get(scope, name)
  local v = find_value(scope, name)
  if v == nil then
    self:fail("format", ("'%s' is read, but no input, constant or earlier node has that name")
      :format(name))
  end
  return v
end


-- Constants and inputs ----------------------------------------------------------------------------

--- Returns a tensor of the file as a constant.
function Import:make_constant(t)
  local read = tensor.read(t, self.model)
  local v = value.constant(read.array, read.shape, read.dtype, t.name ~= "" and t.name or nil)
  v.onnx_type = read.onnx_type
  return v
end


-- Returns the shape of an input, with the sizes that the caller gave for open ones.
function Import:input_shape(info)
  local given, dims = self.shapes[info.name], info.type.dims
  if not given and not dims then
    self:fail("shape", ("the file has no shape of input '%s'; give it: shapes = {['%s'] = {...}}")
      :format(info.name, info.name))
  end
  dims = dims or given
  if #dims == 0 and given and (#given == 0 or #given == 1 and given[1] == 1) then
    return {}
  elseif given and #given ~= #dims then
    Error.raise{ code = "shape", func = self.func, argument = info.name, expected = dims,
      got = given, message = ("input '%s' has %d dimensions in the file, but %d in shapes")
        :format(info.name, #dims, #given) }
  end
  local shape = {}
  for i, size in ipairs(dims) do
    local wanted = given and given[i]
    if self.other_sizes and wanted then
      size = wanted
    elseif type(size) == "number" and wanted and wanted ~= size and wanted > 0 and size > 0 then
      Error.raise{ code = "shape", func = self.func, argument = info.name, expected = dims,
        got = given, message = ("axis %d of input '%s' has size %d in the file, but %d in shapes")
          :format(i - 1, info.name, size, wanted) }
    end
    local fixed = type(size) == "number" and size > 0 and size or wanted
    shape[i] = fixed and fixed > 0 and fixed or -1
    if size == 0 or fixed == 0 then
      shape[i] = 0
    elseif shape[i] > 2 ^ 47 then
      self:fail("unsupported", ("axis %d of input '%s' has %s elements")
        :format(i - 1, info.name, tostring(size)))
    end
  end
  return shape
end


-- Returns the constant for an input that the caller fixes to a number, a list of numbers or an
-- array; raises E(shape) if it does not fit the input.
function Import:given_constant(name, given, shape, dtype)
  local x
  if class.is_array(given) then
    x = given:astype(dtype):as_in_context(contexts.cpu())
  else
    x = transfer.from_table(given, args.DTYPES[dtype], self.func, name)
  end
  local sizes = value.is_open(shape) and x.shape or shape
  local fits = #sizes == #shape and value.product(sizes) == x.size
  for i = 1, #shape do
    fits = fits and (shape[i] < 0 or shape[i] == sizes[i])
  end
  if not fits then
    Error.raise{ code = "shape", func = self.func, argument = name, expected = shape,
      got = x.shape, message = ("the constant for input '%s' has another shape than the input")
        :format(name) }
  end
  return value.constant(x:reshape(value.inner_shape(sizes)), sizes, dtype, name)
end


-- Adds an input of the graph to the scope: as a constant if the caller fixes it, or if it has no
-- elements, else as a variable. Raises E(unsupported) for one that is not a tensor of numbers.
function Import:add_input(scope, info)
  if info.type.kind ~= "tensor" then
    self:fail("unsupported", ("input '%s' is %s, not a tensor"):format(info.name,
      info.type.kind or "of no type"))
  end
  local kind = tensor.type_of(info.type.type)
  if not kind or not kind.dtype then
    self:fail("unsupported", ("input '%s' has elements of type %s"):format(info.name,
      kind and kind.name or tostring(info.type.type)))
  end
  local shape = self:input_shape(info)
  local given = self.constants[info.name]
  if given ~= nil then
    local v = self:given_constant(info.name, given, shape, kind.dtype)
    v.onnx_type = kind.name
    return self:put(scope, info.name, v)
  end
  self.names[info.name] = true
  local empty = value.constant(nil, shape, kind.dtype)
  if empty:is_empty() then               -- known, since it is empty; not an argument
    empty.onnx_type = kind.name
    return self:put(scope, info.name, empty)
  end
  local described = value.described(self.other_sizes and { -1 } or shape, kind.dtype)
  local variable = node.variable(info.name, described, self.path)
  local v = value.output({ variable, 0 }, shape, kind.dtype)
  v.onnx_type = kind.name
  self.inputs[#self.inputs + 1] = { name = info.name, shape = shape, dtype = kind.dtype }
  self:put(scope, info.name, v)
end


-- Nodes -------------------------------------------------------------------------------------------

-- Returns the function that converts a node, from the tables or from the file's functions; nil if
-- there is none.
function Import:converter(n)
  local own = self.model.functions[model_file.function_key(n.domain, n.op)]
  if own then
    return function(context, ...)
      return self:call_function(own, context, { n = #n.inputs, ... })
    end
  end
  return (operators[n.domain] or {})[n.op]
end


function Import:opset_of(n)
  local version = self.opsets[n.domain]
  if not version then
    self:fail("format", ("the file does not say which opset of domain '%s' it uses")
      :format(n.domain))
  elseif n.domain == "" and (version < LEAST_OPSET or version > MOST_OPSET) then
    self:fail("unsupported", ("opset %d; known are %d to %d")
      :format(version, LEAST_OPSET, MOST_OPSET))
  end
  return version
end


-- Gives a value's name to the node that makes the value, if this import made the node, it has no
-- name of a value yet, and the name is free.
local function name_node(self, v, name)
  local n = v.entry and v.entry[1]
  if n and n.op and n.where == self.path and not self.named[n] and not self.names[name] then
    n.name = name
    self.named[n], self.names[name] = true, true
  end
end


-- Operators that read sequences; functions of the file may read them too.
local READS_SEQUENCES = { SequenceAt = true, SequenceInsert = true, SequenceErase = true,
  SequenceLength = true, SequenceMap = true, ConcatFromSequence = true, Identity = true,
  Loop = true, OptionalHasElement = true, OptionalGetElement = true }

-- Returns the values of a node's inputs, nil for omitted ones; nil if one of them was not imported.
function Import:read_inputs(n, scope)
  local inputs = {}
  for i, name in ipairs(n.inputs) do
    if name ~= "" then
      local v = self:get(scope, name)
      if v == false then
        return nil
      elseif v.rows_of_run and n.op ~= "Identity" then
        value.refuse("'%s' has as many rows as a run finds, so no node can read it; it can only \z
          be an output of the network", name)
      elseif v.items and not READS_SEQUENCES[n.op]
          and not self.model.functions[model_file.function_key(n.domain, n.op)] then
        value.refuse("'%s' is a sequence, which this operator does not read", name)
      end
      inputs[i] = v
    end
  end
  return inputs
end


-- Converts a node and returns the list of its outputs; nil if one of its inputs was not imported.
function Import:convert(n, scope)
  local convert = self:converter(n)
  if not convert then
    value.refuse("there is no converter for this operator")
  end
  local context = setmetatable({ node = n, attrs = n.attrs, opset = self:opset_of(n),
    import = self, scope = scope, count = #n.outputs }, Node)
  local inputs = self:read_inputs(n, scope)
  if not inputs then
    return nil
  end
  return { convert(context, unpack(inputs, 1, #n.inputs)) }
end


-- Converts a node and sets its outputs in the scope; false for those that were not imported.
function Import:step(n, scope)
  local before, hint = self.node, self.hint
  self.node = n
  self.hint = n.name ~= "" and n.name or n.outputs[1] or n.op
  local ok, results = pcall(self.convert, self, n, scope)
  if not ok then
    self:miss(self:explained(results))
    results = nil
  end
  for i, name in ipairs(n.outputs) do
    if name ~= "" then
      local v = results and results[i] or false
      if results and not v then
        self:fail("unsupported", ("cannot be imported: its output %d is used, which the importer \z
          does not make"):format(i))
      end
      self:put(scope, name, v)
      if v then
        name_node(self, v, name)
      end
    end
  end
  self.node, self.hint = before, hint
end


--- Converts the nodes of a graph.
-- @tparam table graph
-- @tparam table scope with the values of its inputs
-- @treturn {Value,...} its outputs; false for one that was not imported
function Import:run_graph(graph, scope)
  self.depth = self.depth + 1
  if self.depth > MOST_DEPTH then
    self:fail("format", ("more than %d graphs in each other"):format(MOST_DEPTH))
  elseif graph.has_sparse then
    self:fail("unsupported", "cannot be imported: sparse initializers")
  end
  for _, t in ipairs(graph.initializers) do
    if scope.values[t.name] == nil then
      self:put(scope, t.name, self:make_constant(t))
    end
  end
  for _, n in ipairs(graph.nodes) do
    self:step(n, scope)
  end
  local outputs = {}
  for i, info in ipairs(graph.outputs) do
    outputs[i] = self:get(scope, info.name)
  end
  self.depth = self.depth - 1
  return outputs
end


--- Converts a graph that is an attribute of a node.
-- @tparam table graph
-- @tparam {Value,...} inputs values of its inputs
-- @tparam table outer scope of the node, whose names the graph may read
-- @treturn {Value,...} outputs
function Import:run_body(graph, inputs, outer)
  local scope = new_scope(outer)
  for i, info in ipairs(graph.inputs) do
    if not inputs[i] then
      self:fail("format", ("its graph has %d inputs, %d are given"):format(#graph.inputs, #inputs))
    end
    scope.values[info.name] = inputs[i]
  end
  local outputs = self:run_graph(graph, scope)
  for i = 1, #outputs do
    if not outputs[i] then
      self:fail("unsupported", "cannot be imported: its graph has a node that cannot be imported")
    end
  end
  return outputs
end


-- Returns the nodes of a function with the attributes of the node that calls it.
local function with_attributes(nodes, given, defaults)
  local list = {}
  for i, n in ipairs(nodes) do
    local copy = n
    if n.refs then
      copy = tables.copy(n)
      copy.attrs = tables.copy(n.attrs)
      for name, ref in pairs(n.refs) do
        copy.attrs[name] = given[ref]
        if copy.attrs[name] == nil then
          copy.attrs[name] = defaults[ref]
        end
      end
    end
    list[i] = copy
  end
  return list
end


--- Converts a call of a function of the file by converting the function's nodes in its place.
function Import:call_function(f, context, inputs)
  local scope, outputs = new_scope(nil), {}
  for i, name in ipairs(f.inputs) do
    scope.values[name] = inputs[i]
  end
  for i, name in ipairs(f.outputs) do
    outputs[i] = { name = name }
  end
  local opsets, before = node.merged(self.opsets, f.opsets), self.opsets
  self.opsets = opsets
  local results = self:run_graph({ nodes = with_attributes(f.nodes, context.attrs, f.defaults),
    initializers = {}, outputs = outputs }, scope)
  self.opsets = before
  return unpack(results)
end


-- All -----------------------------------------------------------------------------------------

-- Returns the outputs of the network as nodes, without duplicates.
local function make_heads(self, outputs, graph)
  local entries, seen = {}, {}
  for i, v in ipairs(outputs) do
    local name = graph.outputs[i].name
    local entry = value.make_entry(v)
    local key = seen[entry[1]]
    if not entry[1].op or key and key[entry[2]] then
      self.hint = name
      local copy = value.output(entry, v.shape, v.dtype)
      entry = value.op("identity", { copy }).entry
    end
    seen[entry[1]] = seen[entry[1]] or {}
    seen[entry[1]][entry[2]] = true
    entries[i] = entry
  end
  return entries
end


-- Raises E(unsupported), which lists all nodes that a partial import could not convert.
local function fail_missing(self)
  local lines = {}
  for i, m in ipairs(self.missing) do
    lines[i] = ("%s, node %s: %s"):format(m.op or "?", m.node or "?", m.message)
  end
  Error.raise{ code = "unsupported", func = self.func, argument = self.path,
    missing = self.missing, message = ("'%s' has nodes that cannot be imported: %s")
      :format(self.path, table.concat(lines, "; ")) }
end


-- Raises E(name) for an option of an input that the graph does not have.
function Import:check_names(given, scope)
  for name in pairs(given) do
    if not scope.values[name] then
      local names = {}
      for i, input in ipairs(self.inputs) do
        names[i] = input.name
      end
      Error.unknown{ func = self.func, argument = name, what = "input", names = names }
    end
  end
end


-- Converts the graph of the file; returns the entries of the network's outputs, and the outputs as
-- values.
local function convert_model(self)
  local graph, scope = self.model.graph, new_scope(nil)
  local given = {}
  for _, t in ipairs(graph.initializers) do
    given[t.name] = true
  end
  for _, info in ipairs(graph.inputs) do
    if not given[info.name] then
      self:add_input(scope, info)
    end
  end
  self:check_names(self.shapes, scope)
  self:check_names(self.constants, scope)
  for _, t in ipairs(graph.initializers) do
    self.names[t.name] = true
  end
  local outputs = self:run_graph(graph, scope)
  if #self.missing > 0 then
    fail_missing(self)
  elseif #outputs == 0 then
    self:fail("format", "the graph has no outputs")
  end
  return make_heads(self, outputs, graph), outputs
end


-- Splits the parameters into those of the symbol's arguments and those of its auxiliary states.
local function split_params(params, net)
  local arguments, auxiliary = {}, {}
  for _, name in ipairs(net:list_arguments()) do
    arguments[name] = params[name]
  end
  for _, name in ipairs(net:list_auxiliary_states()) do
    auxiliary[name] = params[name]
  end
  return arguments, auxiliary
end


--- Converts a file.
-- @tparam table a path, shapes, constants, partial, ctx: as for `ty.onnx.import_model`;
--   other_sizes: whether shapes may replace sizes that the file fixes, which are then left out of
--   the symbol
-- @string func name of the public function, for errors
-- @treturn table symbol; arguments and auxiliary: name -> array; inputs and outputs: lists of {
--   name, shape, dtype }; model
function import.run(a, func)
  local model = model_file.read(a.path, func)
  local self = setmetatable({ path = a.path, func = func, model = model, opsets = model.opsets,
    shapes = a.shapes or {}, constants = a.constants or {},
    partial = a.partial, other_sizes = a.other_sizes, missing = {}, inputs = {}, params = {},
    shapes_of = {}, names = {}, named = {}, depth = 0, hint = "onnx", where = a.path,
    integers = (a.ctx or contexts.current_context()).device_type ~= "gpu" }, Import)
  self.raise = function(code, message) self:fail(code, message) end
  local before = value.begin(self)
  local ok, entries, outputs = pcall(convert_model, self)
  value.finish(before)
  if not ok then
    error(entries, 0)
  end
  local net = simplify(symbol.Symbol.of(entries), self.params, self.shapes_of, symbol.Symbol,
    self.integers and levels.rules(self.levels))
  local arguments, auxiliary = split_params(self.params, net)
  local infos = {}
  for i, v in ipairs(outputs) do
    infos[i] = { name = model.graph.outputs[i].name, shape = v.shape, dtype = v.dtype }
  end
  return { symbol = net, arguments = arguments, auxiliary = auxiliary, inputs = self.inputs,
    outputs = infos, model = model }
end


return import
