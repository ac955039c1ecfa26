--- Writes a network as TensorBoard's graph, a `GraphDef`.
--
-- Source of the field numbers: tensorflow/core/framework/graph.proto, node_def.proto,
-- attr_value.proto, tensor_shape.proto, versions.proto.
--
-- @module tycho.tensorboard.graph

local attrs = require "tycho.core.attrs"
local inference = require "tycho.symbol.inference"
local message = require("tycho.core.wire_writer").message
local node = require "tycho.symbol.node"
local pairs = require("tycho.core.iterate").pairs

local graph = {}

local PRODUCER = 22                      -- a version of GraphDef that TensorBoard reads
local PARAMETER_OP, INPUT_OP = "Variable", "Placeholder"


-- Adds a key to the field `attr`, a map; `fill` writes the value, an AttrValue.
local function add_attribute(m, key, fill)
  local entry, v = message(), message()
  fill(v)
  entry:text(1, key)
  entry:message(2, v)
  m:message(5, entry)
end


local function shape_message(shape)
  local m = message()
  for _, size in ipairs(shape) do
    local dim = message()
    dim:integer(1, size)
    m:message(2, dim)
  end
  return m
end


-- Returns the output shapes of all nodes by name, as far as the given shapes determine them.
local function infer_shapes(symbol, given, func)
  local inside = symbol:get_internals()
  local _, found = inference.results(inside, inference.SHAPES,
    inference.given(nil, given, node.walk(inside._entries), func), true, func)
  local by_name = {}
  for i, name in ipairs(inside:list_outputs()) do
    by_name[name] = found[i]
  end
  return by_name
end


-- Returns the shapes of a node's visible outputs as a list message; nil if one is unknown.
local function output_shapes(n, shapes)
  local list = message()
  for k = 0, (n.ports.nvisible or 1) - 1 do
    local shape = shapes[node.output_name(n, k)]
    if not shape or #shape == 0 then
      return nil
    end
    list:message(7, shape_message(shape))
  end
  return list
end


-- Returns a NodeDef. Its inputs are "name" or "name:output".
local function node_message(n, name_of, shapes, is_input)
  local m = message()
  m:text(1, name_of[n])
  m:text(2, n.op or is_input[n.name] and INPUT_OP or PARAMETER_OP)
  for _, input in ipairs(n.inputs) do
    m:text(3, name_of[input[1]] .. (input[2] > 0 and ":" .. input[2] or ""))
  end
  for _, key in ipairs(attrs.keys(n.attrs)) do
    if not attrs.is_annotation(key) then
      add_attribute(m, key, function(v) v:text(2, n.attrs[key]) end)
    end
  end
  local list = shapes and output_shapes(n, shapes)
  if list then
    add_attribute(m, "_output_shapes", function(v) v:message(1, list) end)
  end
  return m
end


-- Gives each node a unique name. TensorBoard puts "a/b" and "a/c" into one box "a"; a variable is
-- put into the box of the node whose name its own name begins with.
local function make_names(order)
  local names, taken, ops = {}, {}, {}
  for _, n in ipairs(order) do
    ops[n.name] = n.op and true or nil
  end
  for _, n in ipairs(order) do
    local home, rest = n.name:match("^(.*)_([^_]+)$")
    while home and not ops[home] do
      local first, last = home:match("^(.*)_([^_]+)$")
      home, rest = first, last and last .. "_" .. rest
    end
    local name = not n.op and home and home .. "/" .. rest
      or n.op and n.name .. "/" .. n.op or n.name
    local number = 1
    while taken[number == 1 and name or name .. "_" .. number] do
      number = number + 1
    end
    names[n] = number == 1 and name or name .. "_" .. number
    taken[names[n]] = true
  end
  return names
end


--- Returns the GraphDef of a network as bytes.
-- @tparam Symbol symbol
-- @tparam ?table given shapes by argument name; arrows are then labelled with shapes
-- @string func for errors
-- @treturn string
function graph.bytes(symbol, given, func)
  local order = node.walk(symbol._entries)
  local shapes = given and infer_shapes(symbol, given, func)
  local names, is_input = make_names(order), {}
  for name in pairs(given or {}) do
    is_input[name] = true
  end
  local m, versions = message(), message()
  for _, n in ipairs(order) do
    m:message(1, node_message(n, names, shapes, is_input))
  end
  versions:integer(1, PRODUCER)
  m:message(4, versions)
  return m:bytes_text()
end


return graph
