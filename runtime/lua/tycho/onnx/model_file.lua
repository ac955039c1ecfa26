--- ONNX files as tables: models, graphs, nodes and tensors in the structure of onnx.proto (not for
-- users).
--
-- Weights are not read: a tensor contains the position of its elements, from which onnx/tensor.lua
-- makes arrays. Names and numbers are those of the file; the code that uses them checks them.
--
-- @module tycho.onnx.model_file

local Error = require "tycho.core.error"
local file_arrays = require "tycho.ndarray.file_arrays"
local wire = require "tycho.onnx.wire"

local model_file = {}

-- AttributeProto.type. In files that do not set it, the field that is present decides.
local FLOAT, INT, STRING, FLOATS, INTS, STRINGS = 1, 2, 3, 6, 7, 8

local MOST_LIST = 2 ^ 20                                 -- most entries of an attribute's list


-- Reads a StringStringEntryProto: {key, value}, both strings.
local function read_entry(r)
  local entry = {}
  for field in r:fields() do
    if field == 1 then
      entry.key = r:text()
    elseif field == 2 then
      entry.value = r:text()
    end
  end
  return entry
end


-- Reads a field of numbers of a tensor: of packed numbers the position is stored, others are added
-- to `values`.
local function read_data(r, t, kind)
  t.kind = kind
  if r:is_packed() then
    local at, bytes = r:position()
    t.parts = t.parts or {}
    t.parts[#t.parts + 1] = { at = at, bytes = bytes }
    return
  end
  t.values = t.values or {}
  t.values[#t.values + 1] = kind == "float" and r:float() or kind == "double" and r:double()
    or r:integer()
end


local DATA = { [4] = "float", [5] = "varint", [7] = "varint", [10] = "double", [11] = "varint" }


local function read_tensor(r)
  local t = { name = "", dims = {}, external = nil, func = r.func }
  for field in r:fields() do
    if field == 1 then
      r:integers(t.dims)
    elseif field == 2 then
      t.type = r:integer()
    elseif DATA[field] then
      read_data(r, t, DATA[field])
    elseif field == 6 then
      t.is_text = true
    elseif field == 8 then
      t.name = r:name("a tensor's name")
    elseif field == 9 then
      t.raw = {}
      t.raw.at, t.raw.bytes = r:position()
    elseif field == 13 then
      local entry = r:message(read_entry)
      t.external = t.external or {}
      t.external[entry.key or ""] = entry.value
    elseif field == 14 then
      t.is_external = r:integer() == 1
    end
  end
  return t
end


-- Returns a dimension: its size or its name; "" if the file has neither.
local function read_dim(r)
  local dim = { size = "" }
  for field in r:fields() do
    if field == 1 then
      dim.size = r:integer()
    elseif field == 2 then
      dim.size = r:name("a dimension's name")
    end
  end
  return dim
end


local function read_shape(r)
  local dims = {}
  for field in r:fields() do
    if field == 1 then
      dims[#dims + 1] = r:message(read_dim).size
    end
  end
  return dims
end


local function read_tensor_type(r)
  local t = { kind = "tensor" }
  for field in r:fields() do
    if field == 1 then
      t.type = r:integer()
    elseif field == 2 then
      t.dims = r:message(read_shape)
    end
  end
  return t
end


local OTHER_TYPES = { [4] = "a sequence", [5] = "a map", [8] = "a sparse tensor",
  [9] = "an optional value" }


local function read_type(r)
  local t = {}
  for field in r:fields() do
    if field == 1 then
      t = r:message(read_tensor_type)
    elseif OTHER_TYPES[field] then
      t = { kind = OTHER_TYPES[field] }
    end
  end
  return t
end


local function read_value(r)
  local value = { name = "", type = {} }
  for field in r:fields() do
    if field == 1 then
      value.name = r:name("a value's name")
    elseif field == 2 then
      value.type = r:message(read_type)
    end
  end
  return value
end


local read_graph


local function add_entry(list, value, r)
  if #list >= MOST_LIST then
    r:fail("more than %d entries of one list", MOST_LIST)
  end
  list[#list + 1] = value
  return list
end


local function read_attribute(r)
  local a = { name = "" }
  local ints, floats, strings
  for field in r:fields() do
    if field == 1 then
      a.name = r:name("an attribute's name")
    elseif field == 2 then
      a.float = r:float()
    elseif field == 3 then
      a.int = r:integer()
    elseif field == 4 then
      a.text = r:text()
    elseif field == 5 then
      a.value = r:message(read_tensor)
    elseif field == 6 then
      a.value = r:message(read_graph)
    elseif field == 7 then
      floats = floats or {}
      r:floats(floats)
    elseif field == 8 then
      ints = ints or {}
      r:integers(ints)
    elseif field == 9 then
      strings = add_entry(strings or {}, r:text(), r)
    elseif field == 10 then
      a.tensors = add_entry(a.tensors or {}, r:message(read_tensor), r)
    elseif field == 20 then
      a.type = r:integer()
    elseif field == 21 then
      a.ref = r:name("an attribute's name")
    elseif field == 22 then
      a.value = { is_sparse = true }
    end
  end
  local t = a.type
  if t == FLOAT then
    a.value = a.float or 0
  elseif t == INT then
    a.value = a.int or 0
  elseif t == STRING then
    a.value = a.text or ""
  elseif t == FLOATS then
    a.value = floats or {}
  elseif t == INTS then
    a.value = ints or {}
  elseif t == STRINGS then
    a.value = strings or {}
  elseif a.value == nil then
    a.value = a.float or a.int or a.text or ints or floats or strings or a.tensors
  end
  return a
end


local function read_node(r)
  local node = { name = "", op = "", domain = "", inputs = {}, outputs = {}, attrs = {} }
  for field in r:fields() do
    if field == 1 then
      node.inputs[#node.inputs + 1] = r:name("a value's name")
    elseif field == 2 then
      node.outputs[#node.outputs + 1] = r:name("a value's name")
    elseif field == 3 then
      node.name = r:name("a node's name")
    elseif field == 4 then
      node.op = r:name("an operator's name")
    elseif field == 5 then
      local a = r:message(read_attribute)
      if a.ref then
        node.refs = node.refs or {}
        node.refs[a.name] = a.ref
      end
      node.attrs[a.name] = a.value
    elseif field == 7 then
      node.domain = r:name("a domain's name")
    end
  end
  if node.domain == "ai.onnx" then
    node.domain = ""
  end
  return node
end


function read_graph(r)
  local graph = { name = "", nodes = {}, initializers = {}, inputs = {}, outputs = {} }
  for field in r:fields() do
    if field == 1 then
      graph.nodes[#graph.nodes + 1] = r:message(read_node)
    elseif field == 2 then
      graph.name = r:name("a graph's name")
    elseif field == 5 then
      graph.initializers[#graph.initializers + 1] = r:message(read_tensor)
    elseif field == 11 then
      graph.inputs[#graph.inputs + 1] = r:message(read_value)
    elseif field == 12 then
      graph.outputs[#graph.outputs + 1] = r:message(read_value)
    elseif field == 15 then
      graph.has_sparse = true
    end
  end
  return graph
end


local function read_opset(r)
  local domain, version = "", 1
  for field in r:fields() do
    if field == 1 then
      domain = r:name("a domain's name")
    elseif field == 2 then
      version = r:integer()
    end
  end
  return { domain = domain == "ai.onnx" and "" or domain, version = version }
end


local function read_function(r)
  local f = { name = "", domain = "", inputs = {}, outputs = {}, nodes = {}, defaults = {},
    opsets = {} }
  for field in r:fields() do
    if field == 1 then
      f.name = r:name("a function's name")
    elseif field == 4 then
      f.inputs[#f.inputs + 1] = r:name("a value's name")
    elseif field == 5 then
      f.outputs[#f.outputs + 1] = r:name("a value's name")
    elseif field == 7 then
      f.nodes[#f.nodes + 1] = r:message(read_node)
    elseif field == 9 then
      local o = r:message(read_opset)
      f.opsets[o.domain] = o.version
    elseif field == 10 then
      f.domain = r:name("a domain's name")
    elseif field == 11 then
      local a = r:message(read_attribute)
      f.defaults[a.name] = a.value
    end
  end
  return f
end


-- Returns a function's domain and name as one key.
local function function_key(domain, name)
  return domain .. "\0" .. name
end

model_file.function_key = function_key


local TEXTS = { [2] = "producer_name", [3] = "producer_version", [4] = "domain" }

local function read_model(r, m)
  for field in r:fields() do
    if field == 1 then
      m.ir_version = r:integer()
    elseif TEXTS[field] then
      m[TEXTS[field]] = r:text()
    elseif field == 5 then
      m.model_version = r:integer()
    elseif field == 7 then
      m.graph = r:message(read_graph)
    elseif field == 8 then
      local o = r:message(read_opset)
      m.opsets[o.domain] = o.version
    elseif field == 14 then
      local entry = r:message(read_entry)
      m.metadata[entry.key or ""] = entry.value or ""
    elseif field == 25 then
      local f = r:message(read_function)
      m.functions[function_key(f.domain, f.name)] = f
    end
  end
end


--- Reads a file.
-- @string path
-- @string func name of the public function, for errors
-- @treturn table file, folder, ir_version, opsets (domain -> version), metadata, graph (nodes,
--   initializers, inputs, outputs), functions (key -> function); a damaged file is E(format)
function model_file.read(path, func)
  local file = file_arrays.open(path, func)
  local m = { file = file, folder = path:match("^(.*)/[^/]*$") or ".", opsets = {}, metadata = {},
    functions = {}, func = func }
  read_model(wire.open(file, func), m)
  if not m.graph then
    Error.raise{ code = "format", func = func, argument = path,
      message = ("'%s' is no ONNX model: it holds no graph"):format(path) }
  end
  return m
end


return model_file
