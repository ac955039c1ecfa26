-- Makes small ONNX files for specs from tables.
--
--     models.write(path, { nodes = { { "Relu", { "x" }, { "y" } } }, inputs = { x = { 2, 3 } },
--       outputs = { "y" }, constants = { w = ty.nd.ones{ 2 } } })
--
-- A node: operator, inputs, outputs, attributes by name; fields name and domain. An attribute: an
-- integer, a list of them, a text, { texts = list }, { float = v }, { floats = list }, { graph =
-- model }, { tensor = t }. A tensor: an array, or { type = code, dims = list, raw = bytes } and
-- other fields of TensorProto.

local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local export = require "tycho.onnx.exporter"
local writer = require "tycho.core.wire_writer"

local models = {}

--- Returns a tensor as a message.
function models.tensor(name, t)
  local m = writer.message()
  if t.totable then
    m:integers(1, t.shape)
    m:integer(2, export.CODES[t.dtype])
    m:array(9, t:as_in_context(context.cpu()), t.size * class.BYTES[t._dtype])
  else
    m:integers(1, t.dims)
    m:integer(2, t.type)
    for _, field in ipairs(t.fields or {}) do
      field(m)
    end
    if t.raw then
      m:text(9, t.raw)
    end
  end
  m:text(8, name)
  return m
end

local function attribute(name, v)
  local m = writer.message()
  m:text(1, name)
  if type(v) == "number" then
    m:integer(3, v)
    m:integer(20, 2)
  elseif type(v) == "string" then
    m:text(4, v)
    m:integer(20, 3)
  elseif v.float then
    m:float(2, v.float)
    m:integer(20, 1)
  elseif v.floats then
    m:floats(7, v.floats)
    m:integer(20, 6)
  elseif v.texts then
    for _, text in ipairs(v.texts) do
      m:text(9, text)
    end
    m:integer(20, 8)
  elseif v.graph then
    m:message(6, models.graph(v.graph))
    m:integer(20, 5)
  elseif v.tensor then
    m:message(5, models.tensor("", v.tensor))
    m:integer(20, 4)
  elseif v.ref then
    m:text(21, v.ref)
    m:integer(20, 2)
  else
    m:integers(8, v)
    m:integer(20, 7)
  end
  return m
end

--- Returns a node as a message.
function models.node(n)
  local m = writer.message()
  for _, name in ipairs(n[2]) do m:text(1, name) end
  for _, name in ipairs(n[3]) do m:text(2, name) end
  m:text(3, n.name or "")
  m:text(4, n[1])
  for name, v in pairs(n[4] or {}) do m:message(5, attribute(name, v)) end
  if n.domain then m:text(7, n.domain) end
  return m
end

local function value(name, shape, code)
  local m, kind, tensor, dims = writer.message(), writer.message(), writer.message(),
    writer.message()
  for _, size in ipairs(shape) do
    local dim = writer.message()
    if type(size) == "string" then dim:text(2, size) else dim:integer(1, size) end
    dims:message(1, dim)
  end
  tensor:integer(1, code)
  tensor:message(2, dims)
  kind:message(1, tensor)
  m:text(1, name)
  m:message(2, kind)
  return m
end

--- Returns a graph as a message. inputs: name -> shape, with `type` a code (1: float32); in_order:
-- names.
function models.graph(g)
  local m = writer.message()
  for _, n in ipairs(g.nodes) do m:message(1, models.node(n)) end
  m:text(2, "graph")
  for name, t in pairs(g.constants or {}) do m:message(5, models.tensor(name, t)) end
  local names = g.in_order or {}
  for name in pairs(not g.in_order and g.inputs or {}) do names[#names + 1] = name end
  for _, name in ipairs(names) do
    local shape = g.inputs[name]
    m:message(11, value(name, shape, shape.type or 1))
  end
  for _, name in ipairs(g.outputs) do m:message(12, value(name, {}, 1)) end
  return m
end

local function opset(domain, version)
  local m = writer.message()
  m:text(1, domain)
  m:integer(2, version)
  return m
end

--- Returns a model as bytes. opset = 17; functions: list of { name, domain, inputs, outputs, nodes
-- }.
function models.bytes(model)
  local m = writer.message()
  m:integer(1, 8)
  m:message(7, models.graph(model))
  m:message(8, opset("", model.opset or 17))
  for domain, version in pairs(model.domains or {}) do m:message(8, opset(domain, version)) end
  for _, f in ipairs(model.functions or {}) do
    local fm = writer.message()
    fm:text(1, f.name)
    for _, name in ipairs(f.inputs) do fm:text(4, name) end
    for _, name in ipairs(f.outputs) do fm:text(5, name) end
    for _, n in ipairs(f.nodes) do fm:message(7, models.node(n)) end
    fm:text(10, f.domain)
    m:message(25, fm)
  end
  return m:bytes_text()
end

return models
