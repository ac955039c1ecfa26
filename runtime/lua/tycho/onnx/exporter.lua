--- Converts a symbol and its parameters to an ONNX file (not for users; `ty.onnx.export_model`).
--
-- Nodes are written in the symbol's order by converters, the functions of the tables in
-- onnx/to_*.lua. Values that depend on parameters only are computed during the export. Shapes are
-- inferred twice, with different sizes of the dynamic axes: a size that differs stays open and has
-- a name.
--
-- @module tycho.onnx.exporter

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local ffi = require "ffi"
local args = require "tycho.core.args"
local sorted_keys = require("tycho.core.attrs").keys
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local graph = require "tycho.symbol.graph"
local native = require "tycho.core.ffi"
local node = require "tycho.symbol.node"
local registry = require "tycho.op.registry"
local symbol = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"
local transfer = require "tycho.ndarray.transfer"
local writer = require "tycho.core.wire_writer"

local C, DTYPES, DTYPE_NAMES = native.C, args.DTYPES, args.DTYPE_NAMES

local export = {}

local Export = {}
Export.__index = Export

local LEAST_OPSET, MOST_OPSET = 13, 24

-- The lowest version of the file format (ModelProto.ir_version) that may name an opset
-- (docs/Versioning.md of the repository onnx/onnx).
local IR_VERSIONS = { [19] = 9, [20] = 9, [21] = 10, [22] = 10, [23] = 11, [24] = 12 }
local LEAST_IR_VERSION = 8
-- TensorProto.DataType
local CODES = { float32 = 1, uint8 = 2, int8 = 3, int32 = 6, int64 = 7, bool = 9, float16 = 10,
  float64 = 11, bfloat16 = 16 }
export.CODES = CODES

-- AttributeProto.type
local FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = 1, 2, 3, 4, 5, 6, 7, 8


-- Attributes --------------------------------------------------------------------------------------

local Float = {}

--- Returns a number, or a list of them, marked as an attribute of floats.
function export.float(v)
  return setmetatable({ v = v }, Float)
end


local function write_tensor(name, x, scalar)
  local m = writer.message()
  m:integers(1, scalar and {} or x.shape)
  m:integer(2, CODES[x.dtype])
  m:text(8, name)
  m:array(9, x:as_in_context(context.cpu()), x.size * class.BYTES[x._dtype])
  return m
end


local function write_attribute(name, v)
  local m = writer.message()
  local kind
  m:text(1, name)
  if getmetatable(v) == Float then
    kind = type(v.v) == "table" and FLOATS or FLOAT
    if kind == FLOATS then
      m:floats(7, v.v)
    else
      m:float(2, v.v)
    end
  elseif type(v) == "string" then
    kind = STRING
    m:text(4, v)
  elseif type(v) == "boolean" or type(v) == "number" then
    kind = INT
    m:integer(3, type(v) == "number" and v or v and 1 or 0)
  elseif v.nodes then
    kind = GRAPH
    m:message(6, export.graph_message(v))
  elseif v.array then
    kind = TENSOR
    m:message(5, write_tensor("", v.array))
  elseif v.words then
    kind = STRINGS
    for _, word in ipairs(v.words) do
      m:text(9, word)
    end
  else
    kind = INTS
    m:integers(8, v)
  end
  m:integer(20, kind)
  return m
end


-- Graphs ------------------------------------------------------------------------------------------

local function new_graph(name)
  return { name = name, nodes = {}, initializers = {}, inputs = {}, outputs = {} }
end


local function value_message(info)
  local m, type_message, tensor, shape = writer.message(), writer.message(), writer.message(),
    writer.message()
  for _, size in ipairs(info.shape or {}) do
    local dim = writer.message()
    if type(size) == "string" then
      dim:text(2, size)
    else
      dim:integer(1, size)
    end
    shape:message(1, dim)
  end
  tensor:integer(1, CODES[info.dtype])
  if info.shape then
    tensor:message(2, shape)
  end
  type_message:message(1, tensor)
  m:text(1, info.name)
  m:message(2, type_message)
  return m
end


local function node_message(n)
  local m = writer.message()
  for _, name in ipairs(n.inputs) do
    m:text(1, name)
  end
  for _, name in ipairs(n.outputs) do
    m:text(2, name)
  end
  m:text(3, n.name)
  m:text(4, n.op)
  for _, key in ipairs(n.order) do
    m:message(5, write_attribute(key, n.attrs[key]))
  end
  return m
end


--- Returns a graph as a message of Protocol Buffers.
function export.graph_message(g)
  local m = writer.message()
  for _, n in ipairs(g.nodes) do
    m:message(1, node_message(n))
  end
  m:text(2, g.name)
  for _, init in ipairs(g.initializers) do
    m:message(5, write_tensor(init.name, init.array, init.scalar))
  end
  for _, info in ipairs(g.inputs) do
    m:message(11, value_message(info))
  end
  for _, info in ipairs(g.outputs) do
    m:message(12, value_message(info))
  end
  return m
end


Export.float = export.float


-- Writing nodes -----------------------------------------------------------------------------------

-- Returns a name that is not in use, and reserves it: the hint itself, or the hint with a number
-- appended.
function Export:free_name(hint)
  local name = hint
  while self.names[name] do
    self.counter = self.counter + 1
    name = hint .. "_" .. self.counter
  end
  self.names[name] = true
  return name
end


--- Adds a node to the graph that is being written.
-- @string op ONNX's operator
-- @tparam {string,...} inputs names of values, "" for an omitted one
-- @tparam[opt] table attrs name -> value; numbers are integers, floats are made by `export.float`
-- @int[opt=1] count number of outputs
-- @treturn string,... names of the outputs
function Export:emit(op, inputs, attrs, count)
  local n = { op = op, inputs = inputs, attrs = attrs or {}, outputs = {}, order = {} }
  n.name = self:free_name(self.hint .. "_" .. op)
  for i = 1, count or 1 do
    n.outputs[i] = self:free_name(n.name .. "_out" .. (i > 1 and i or ""))
  end
  for key in pairs(n.attrs) do
    n.order[#n.order + 1] = key
  end
  table.sort(n.order)
  table.insert(self.graph.nodes, n)
  return unpack(n.outputs)
end


--- Adds a constant array to the graph.
-- @tparam NDArray x
-- @string[opt] hint start of its name
-- @treturn string its name
function Export:array(x, hint)
  local name = self:free_name(hint or self.hint .. "_const")
  table.insert(self.graph.initializers, { name = name, array = x })
  return name
end


--- Adds a constant of numbers to the graph.
-- @tparam {number,...} list
-- @string dtype
-- @tparam[opt] {int,...} shape a vector by default
-- @treturn string its name
function Export:list(list, dtype, shape)
  local x = transfer.from_table(list, DTYPES[dtype], self.func)
  return self:array(shape and x:reshape(shape) or x)
end


--- Adds a constant list of sizes, axes or indices; returns its name.
function Export:ints(list) return self:list(list, "int64") end


--- Adds a number as an initializer of one element; returns its name.
function Export:number(v, dtype) return self:list({ v }, dtype) end


--- Adds a number as an initializer without dimensions; returns its name.
function Export:scalar(v, dtype)
  local name = self:number(v, dtype)
  local list = self.graph.initializers
  list[#list].scalar = true
  return name
end


--- Raises E(unsupported) for the node that is being converted.
-- @string text what the exporter does not support, a format of string.format
-- @param ... its arguments
function Export:refuse(text, ...)
  local n = self.node
  Error.raise{ code = "unsupported", func = self.func, op = n.op, node = n.name, where = n.where,
    message = "cannot be exported: " .. text:format(...) }
end


--- Adds a Reshape to another shape; adds nothing if the shape is the same. A dynamic size must be
-- that of the same axis of x, or it becomes -1, which is possible for one axis only; otherwise it
-- raises E(unsupported).
-- @string x name of a value
-- @tparam table from its shape; open sizes are names
-- @tparam table to the new shape, in the same form
-- @treturn string name of the result
function Export:reshape(x, from, to)
  if tables.same(from, to) then
    return x
  elseif #to == 0 then
    local axes = {}
    for i = 1, #from do
      axes[i] = i - 1
    end
    return self:emit("Squeeze", { x, self:ints(axes) })
  end
  local open, list = 0, {}
  for i, size in ipairs(to) do
    if type(size) == "number" then
      list[i] = size
    elseif from[i] == size then
      list[i] = 0
    else
      open, list[i] = open + 1, -1
    end
  end
  if open > 1 then
    self:refuse("a shape with several dynamic axes")
  end
  return self:emit("Reshape", { x, self:ints(list) })
end


--- Returns a shape if all its sizes are known; raises E(unsupported) for an open one.
function Export:known(shape)
  for axis, size in ipairs(shape) do
    if type(size) ~= "number" then
      self:refuse("axis %d is dynamic, but its size is needed", axis - 1)
    end
  end
  return shape
end


-- Adds a Cast from one dtype to another; adds nothing if they are the same. Returns the result's
-- name.
function Export:cast(x, from, to)
  if from == to then
    return x
  end
  return self:emit("Cast", { x }, { to = CODES[to] })
end


-- Parameters of operators -------------------------------------------------------------------------

local function parse_list(text)
  local list = {}
  for word in text:gmatch("[^%s,()%[%]]+") do
    list[#list + 1] = tonumber(word) or word == "None" and "None" or word
  end
  return list
end


-- Returns the value of a parameter from its text; nil for None. kind: its type in the registry.
local function parse_value(text, kind)
  if text == nil or text == "None" then
    return nil
  elseif kind:find "tuple" then
    return parse_list(text)
  elseif kind:find "^boolean" then
    return text == "True" or text == "true" or tonumber(text) ~= nil and tonumber(text) ~= 0
  elseif kind:find "^int" or kind:find "^float" then
    return tonumber(text)
  end
  return text
end


--- Returns the parameters of a node, with the operator's defaults, as Lua values.
function export.params(n)
  local schema, p = registry.find(n.op), {}
  for _, param in ipairs(schema.params) do
    local text = n.attrs[param.name]
    if text == nil then
      text = param.default
    end
    p[param.name] = parse_value(text, param.type)
    if param.type:find "^dtype" and p[param.name] and tonumber(p[param.name]) then
      p[param.name] = DTYPE_NAMES[tonumber(p[param.name])]
    end
  end
  return p
end


-- Shapes ------------------------------------------------------------------------------------------

-- The second sizes of dynamic axes start at ALTERNATIVE with the distance NEXT, sizes that other
-- axes are unlikely to have.
local ALTERNATIVE, NEXT = 7919, 16

-- Returns the descriptions of all values for given shapes of the inputs, as an FFI array, and node
-- -> index of its first output there.
local function infer_descriptions(self, shapes)
  local built = self.built
  local count, kept = 0, {}
  for _ in pairs(shapes) do
    count = count + 1
  end
  local wants = ffi.new("ty_want[?]", count + 1)
  local i = 0
  for name, shape in pairs(shapes) do
    local w = wants[i]
    kept[#kept + 1] = name
    w.name = kept[#kept]
    w.desc.dtype, w.desc.ndim = self.dtypes[name] and DTYPES[self.dtypes[name]] or C.TY_NODTYPE,
      #shape
    for k, size in ipairs(shape) do
      w.desc.dim[k - 1] = size
    end
    i = i + 1
  end
  local first, total = node.firsts(built.order)
  local descs = ffi.new("ty_desc[?]", total + 1)
  native.check(C.ty_graph_infer(built.handle, wants, count, 1, descs), self.func)
  return descs, first
end


-- Returns the shapes with second sizes for the dynamic axes, and names of dynamic sizes by
-- "first_second". shared: whether axes with the same first size get the same second size, as the
-- batches of several inputs must.
local function other_sizes(self, shared)
  local shapes, open_names, by_size, alternative = {}, {}, {}, ALTERNATIVE
  for _, name in ipairs(sorted_keys(self.shapes)) do
    local shape = self.shapes[name]
    shapes[name] = tables.copied(shape)
    for _, axis in ipairs(self.dynamic[name] or {}) do
      local size = shape[axis + 1]
      if size == nil then
        Error.raise{ code = "value", func = self.func, argument = "dynamic", got = axis,
          expected = ("0 to %d"):format(#shape - 1),
          message = ("'dynamic' names an axis that '%s' does not have"):format(name) }
      end
      local other = shared and by_size[size] or alternative
      by_size[size], alternative = other, math.max(alternative, other + NEXT)
      shapes[name][axis + 1] = other
      local key = size .. "_" .. other
      open_names[key] = open_names[key] or name .. "_" .. axis
    end
  end
  return shapes, open_names
end


-- Sets `described`: node -> list of { shape, dtype } of its outputs. A size that differs between
-- the two inferences is dynamic, and has a name in place of a number.
local function infer_all(self)
  local a, first = infer_descriptions(self, self.shapes)
  local shapes, open_names = other_sizes(self, false)
  local ok, b = pcall(infer_descriptions, self, shapes)
  if not ok then
    shapes, open_names = other_sizes(self, true)
    b = infer_descriptions(self, shapes)
  end
  self.described = {}
  for n, at in pairs(first) do
    local list = {}
    for k = 1, #n.ports.outputs do
      local d, other, shape = a[at + k - 1], b[at + k - 1], {}
      for i = 1, d.ndim do
        local size, size2 = tonumber(d.dim[i - 1]), tonumber(other.dim[i - 1])
        if size ~= size2 then
          local key = size .. "_" .. size2
          open_names[key] = open_names[key] or "dynamic_" .. key
          size = open_names[key]
        end
        shape[i] = size
      end
      list[k] = { shape = shape, dtype = DTYPE_NAMES[d.dtype] or "float32" }
    end
    self.described[n] = list
  end
end


-- Walking -----------------------------------------------------------------------------------------

local converters = {}
for _, list in ipairs{ require "tycho.onnx.to_math", require "tycho.onnx.to_shape",
    require "tycho.onnx.to_nn", require "tycho.onnx.to_layers" } do
  for name, f in pairs(list) do
    converters[name] = f
  end
end

--- Returns the names of the engine's operators that have a converter, sorted.
function export.operators()
  local list = {}
  for name in pairs(converters) do
    list[#list + 1] = name
  end
  table.sort(list)
  return list
end


-- Returns the name of a node's output. A constant becomes an initializer when its name is first
-- requested. nil: the node is not in the file. E(unsupported): its converter does not make this
-- output.
local function find_name(self, entry)
  local n, k = entry[1], entry[2]
  self.value_names[n] = self.value_names[n] or {}
  local names = self.value_names[n]
  if not names[k + 1] then
    local x = self.constants[n] and self.constants[n][k + 1]
    if not x and names[1] then
      self.node = n
      self:refuse("its output %d, '%s', is used", k, node.output_name(n, k))
    elseif not x then
      return nil
    end
    names[k + 1] = self:array(x, node.output_name(n, k))
  end
  return names[k + 1]
end


-- Returns the second argument of a converter: node; p (parameters as values); count (of inputs);
-- inputs (names), shapes, dtypes (of the inputs); out (list of { shape, dtype }); constant(i),
-- which returns the array of input i, from 1, if it is a constant.
local function node_context(self, n)
  local c = { node = n, p = export.params(n), shapes = {}, dtypes = {}, out = self.described[n],
    count = #n.inputs }
  for i, entry in ipairs(n.inputs) do
    local d = self.described[entry[1]][entry[2] + 1]
    c.shapes[i], c.dtypes[i] = d.shape, d.dtype
  end
  c.inputs = setmetatable({}, { __index = function(_, i)
    return n.inputs[i] and find_name(self, n.inputs[i])
  end })
  function c.constant(i)
    local entry = n.inputs[i]
    return entry and self.constants[entry[1]] and self.constants[entry[1]][entry[2] + 1]
  end
  return c
end


-- Runs a node whose inputs are constants, and sets its outputs as constants. It runs on the CPU
-- even if the parameters are on another device, since nodes without inputs make their arrays there.
local function fold_node(self, n)
  local arrays, flat = {}, {}
  for i, entry in ipairs(n.inputs) do
    arrays[i] = self.constants[entry[1]][entry[2] + 1]:as_in_context(context.cpu())
  end
  for key, text in pairs(n.attrs) do
    if not key:find "^__" then
      flat[#flat + 1], flat[#flat + 2] = key, text
    end
  end
  local given = {}
  for k = 1, #n.inputs == 0 and n.ports.nvisible or 0 do
    local d = self.described[n][k]       -- a shape may follow from its reader
    given[k] = class.new(d.shape, DTYPES[d.dtype], C.TY_CPU, self.func)
  end
  self.constants[n] = call.many(n.op, self.func, arrays, #arrays, flat, given, n.ports.nvisible)
end


-- Returns whether a node can be run now: all its inputs are constants, and it draws no random
-- numbers.
local function all_constant(self, n)
  for _, entry in ipairs(n.inputs) do
    if not self.constants[entry[1]] then
      return false
    end
  end
  for k = 1, #n.inputs == 0 and n.ports.nvisible or 0 do
    for _, size in ipairs(self.described[n][k].shape) do
      if type(size) ~= "number" or size == 0 then
        return false
      end
    end
  end
  return not n.bodies and not n.op:find "random" and not n.op:find "sample" and n.op ~= "Dropout"
end


-- Types whose arithmetic ONNX lacks, at least before opset 14.
local SMALL = { int8 = true, uint8 = true, bool = true }
local INTEGER = { int8 = true, uint8 = true, bool = true, int32 = true, int64 = true }

local function list_names(text)
  local set = {}
  for name in text:gmatch "%S+" do
    set[name] = true
  end
  return set
end

-- Operators that are written for int32 in place of a small type.
local WIDENED = list_names[[abs add_n ceil clip fix floor nanprod nansum mean negative ones_like
  prod relu rint round sign square sum trunc zeros_like max min sort argsort topk argmax argmin
  argmax_channel _np_cumsum _npi_fmod _square_sum _plus_scalar _minus_scalar _rminus_scalar
  _mul_scalar _div_scalar _rdiv_scalar _mod_scalar _rmod_scalar _power_scalar _rpower_scalar
  _maximum_scalar _minimum_scalar _greater_scalar _greater_equal_scalar _lesser_scalar
  _lesser_equal_scalar elemwise_add elemwise_sub elemwise_mul elemwise_div _mod _power _maximum
  _minimum _greater _greater_equal _lesser _lesser_equal broadcast_add broadcast_sub broadcast_mul
  broadcast_div broadcast_mod broadcast_power broadcast_maximum broadcast_minimum broadcast_greater
  broadcast_greater_equal broadcast_lesser broadcast_lesser_equal]]

-- Operators that ONNX supports for floats only; the engine supports them for integers too.
local FLOATS_ONLY = list_names[[Activation LeakyReLU ROIPooling arccos arccosh arcsin arcsinh arctan
  arctanh cbrt cos cosh degrees erf exp expm1 hard_sigmoid log log10 log1p log2 norm radians rcbrt
  reciprocal rsqrt sigmoid sin sinh smooth_l1 softsign sqrt tan tanh _hypot _hypot_scalar
  broadcast_hypot _contrib_div_sqrt_dim _contrib_round_half_even _contrib_quadratic]]

-- Calls a converter with inputs and outputs of small types as int32, and with `narrow`, the small
-- type of the first output. Returns its results in their own types.
local function convert_widened(self, convert, c)
  local wanted, out = c.out, {}
  for i, dtype in ipairs(c.dtypes) do
    if SMALL[dtype] then
      c.inputs[i], c.dtypes[i] = self:cast(c.inputs[i], dtype, "int32"), "int32"
    end
  end
  for k, d in ipairs(wanted) do
    out[k] = { shape = d.shape, dtype = SMALL[d.dtype] and "int32" or d.dtype }
  end
  c.out, c.narrow = out, SMALL[wanted[1].dtype] and wanted[1].dtype or nil
  local results = { convert(self, c) }
  for k, name in ipairs(results) do
    results[k] = self:cast(name, out[k].dtype, wanted[k].dtype)
  end
  return results
end


-- Runs a node whose inputs are constants, or writes it with its converter.
local function convert_node(self, n)
  if all_constant(self, n) then
    fold_node(self, n)
    return
  end
  local convert = converters[n.op]
  self.node, self.hint = n, n.name
  if not convert then
    self:refuse("there is no converter for this operator")
  end
  local c = node_context(self, n)
  if FLOATS_ONLY[n.op] and INTEGER[c.dtypes[1]] then
    self:refuse("numbers of type %s; ONNX has this operator for floats only", c.dtypes[1])
  end
  self.value_names[n] = WIDENED[n.op] and SMALL[c.dtypes[1]] and convert_widened(self, convert, c)
    or { convert(self, c) }
end


-- Converts nodes in order.
function Export:run(order)
  for _, n in ipairs(order) do
    if n.op then
      convert_node(self, n)
    end
  end
end

-- Bodies ------------------------------------------------------------------------------------------

-- Converts a body into the current graph. bound: { description, name } by the number of the body's
-- variable, from 0.
local function convert_body(self, body, bound)
  local before = { built = self.built, shapes = self.shapes, dtypes = self.dtypes,
    described = self.described, dynamic = self.dynamic, node = self.node }
  self.built, self.shapes, self.dtypes, self.dynamic = graph.of(body, self.func), {}, {}, {}
  local at = 0
  for _, n in ipairs(self.built.order) do
    if not n.op then
      local own = bound[at]
      self.shapes[n.name], self.dtypes[n.name] = self:known(own[1].shape), own[1].dtype
      self.value_names[n] = { own[2] }
      at = at + 1
    end
  end
  infer_all(self)
  self:run(self.built.order)
  local outputs = {}
  for i, entry in ipairs(body._entries) do
    local d = self.described[entry[1]][entry[2] + 1]
    outputs[i] = { name = self:emit("Identity", { find_name(self, entry) }), shape = d.shape,
      dtype = d.dtype }
  end
  for key, v in pairs(before) do
    self[key] = v
  end
  return outputs
end


--- Returns the graph of a body.
-- @tparam Symbol body
-- @tparam table bound by the number of its variable: { description, name, input = true: an input }
-- @tparam {int,...} given numbers of the variables that are inputs, in order
-- @tparam[opt] function f called with the outputs before the graph is finished; its result becomes
--   the graph's `condition`
-- @treturn table the graph, without outputs
-- @treturn table its outputs: name, shape, dtype
function Export:body(body, bound, given, f)
  local outer, g = self.graph, new_graph(self:free_name(self.hint .. "_body"))
  self.graph = g
  g.counter, g.alive = self:free_name(g.name .. "_step"), self:free_name(g.name .. "_alive")
  for _, at in ipairs(given) do
    local own = bound[at]
    own[2] = self:free_name(g.name .. "_" .. own[2])
    table.insert(g.inputs, { name = own[2], shape = own[1].shape, dtype = own[1].dtype })
  end
  local outputs = convert_body(self, body, bound)
  if f then
    g.condition = { name = f(outputs), shape = {}, dtype = "bool" }
  end
  self.graph = outer
  return g, outputs
end


--- Writes the nodes of a body into the enclosing graph; returns the name of its output.
function Export:inline(body, bound)
  local outputs = convert_body(self, body, bound)
  return outputs[1].name, outputs[1]
end


-- Adds an Identity that gives an output the wanted name, or a similar one if that is in use;
-- returns the name.
local function name_output(self, entry, wanted)
  local name = find_name(self, entry)
  self.hint = wanted
  local out = self:emit("Identity", { name })
  local n = self.graph.nodes[#self.graph.nodes]
  if not self.names[wanted] then
    n.outputs[1] = wanted
    self.names[wanted] = true
    return wanted
  end
  return out
end


-- Returns the nodes of variables that are not parameters, in order.
local function list_inputs(self)
  local list = {}
  for _, n in ipairs(self.built.order) do
    if not n.op and not self.params[n.name] then
      list[#list + 1] = n
    end
  end
  return list
end


-- Returns the set of names that the nodes of a graph read, including those of nested graphs.
local function list_used_names(g)
  local used = {}
  for _, n in ipairs(g.nodes) do
    for _, name in ipairs(n.inputs) do
      used[name] = true
    end
    for _, v in pairs(n.attrs) do
      if type(v) == "table" and v.nodes then
        for name in pairs(list_used_names(v)) do
          used[name] = true
        end
      end
    end
  end
  return used
end


-- Removes nodes and constants on which no output depends; returns the set of names that are still
-- used.
local function prune_graph(g)
  local wanted = {}
  for _, info in ipairs(g.outputs) do
    wanted[info.name] = true
  end
  local kept = {}
  for i = #g.nodes, 1, -1 do
    local n, needed = g.nodes[i], false
    for _, name in ipairs(n.outputs) do
      needed = needed or wanted[name]
    end
    if needed then
      table.insert(kept, 1, n)
      for name in pairs(list_used_names{ nodes = { n } }) do
        wanted[name] = true
      end
    end
  end
  g.nodes = kept
  local constants = {}
  for _, init in ipairs(g.initializers) do
    constants[#constants + 1] = wanted[init.name] and init or nil
  end
  g.initializers = constants
  return wanted
end


local function model_message(self)
  local m, opset = writer.message(), writer.message()
  m:integer(1, IR_VERSIONS[self.opset] or LEAST_IR_VERSION)
  m:text(2, "Tycho")
  m:text(3, native.text(C.ty_version()))
  opset:text(1, "")
  opset:integer(2, self.opset)
  m:message(8, opset)
  m:message(7, export.graph_message(self.graph))
  return m
end


-- Raises E(shape) for an input whose shape is unknown.
local function check_shapes(self, inputs)
  for _, n in ipairs(inputs) do
    local d = self.described[n][1]
    for _, size in ipairs(d.shape) do
      if size == 0 then
        Error.raise{ code = "shape", func = self.func, argument = n.name, expected = "a shape",
          got = "nothing", message = ("the shape of '%s' is not known; give it in input_shapes")
          :format(n.name) }
      end
    end
    if #d.shape == 0 then
      Error.raise{ code = "shape", func = self.func, argument = n.name, expected = "a shape",
        got = "nothing",
        message = ("'%s' has neither an array in params nor a shape in input_shapes")
          :format(n.name) }
    end
  end
end


-- Returns the inputs without those that are only labels of losses.
local function drop_labels(self, inputs)
  local wanted, list = {}, {}
  for _, n in ipairs(self.built.order) do
    local is_loss = n.op and registry.find(n.op).is_loss
    for i, entry in ipairs(n.inputs or {}) do
      wanted[entry[1]] = wanted[entry[1]] or not is_loss or i == 1
    end
  end
  for _, n in ipairs(inputs) do
    list[#list + 1] = wanted[n] and n or nil
  end
  return list
end


--- Writes a file.
-- @tparam table a symbol, params (name -> NDArray), shapes (input -> sizes), dtypes, file, opset,
--   dynamic (input -> axes)
-- @string func public name, for errors
function export.run(a, func)
  if a.opset < LEAST_OPSET or a.opset > MOST_OPSET then
    Error.raise{ code = "value", func = func, argument = "opset", got = a.opset,
      expected = ("%d to %d"):format(LEAST_OPSET, MOST_OPSET), message = "bad 'opset'" }
  end
  local self = setmetatable({ func = func, symbol = a.symbol, params = a.params, shapes = {},
    dtypes = {}, opset = a.opset, dynamic = a.dynamic, graph = new_graph(a.name), names = {},
    counter = 0, value_names = {}, constants = {} }, Export)
  self.built = graph.of(a.symbol, func)
  for name, shape in pairs(a.shapes) do
    self.shapes[name], self.dtypes[name] = shape, a.dtypes[name]
  end
  for _, n in ipairs(self.built.order) do
    local x = not n.op and a.params[n.name]
    if x then
      self.shapes[n.name], self.dtypes[n.name], self.constants[n] = x.shape, x.dtype, { x }
    end
  end
  infer_all(self)
  local inputs = list_inputs(self)
  for _, n in ipairs(inputs) do
    self.names[n.name] = true
    self.value_names[n] = { n.name }
  end
  check_shapes(self, drop_labels(self, inputs))
  self:run(self.built.order)
  for _, entry in ipairs(a.symbol._entries) do
    local d = self.described[entry[1]][entry[2] + 1]
    local name = name_output(self, entry, node.output_name(entry[1], entry[2]))
    table.insert(self.graph.outputs, { name = name, shape = d.shape, dtype = d.dtype })
  end
  local used = prune_graph(self.graph)
  local kept = {}
  for _, n in ipairs(inputs) do
    if used[n.name] then
      kept[#kept + 1] = n
      local d = self.described[n][1]
      table.insert(self.graph.inputs, { name = n.name, dtype = d.dtype, shape = d.shape })
    end
  end
  check_shapes(self, kept)
  writer.save(a.file, model_message(self), func)
end


export.symbol = symbol
return export
