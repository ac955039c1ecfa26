--- Networks of nngraph. For `torch7/import.lua`.
--
-- A `gModule` lists its nodes in the order in which they are evaluated. A node has a module, or
-- only passes its input on, or selects an entry of it (`selectindex`). The tables of nodes have
-- tables as keys: `mapindex` in a node's data maps each parent's data to its position among the
-- inputs. The output node and the nodes in the list belong to two graphs whose nodes share their
-- data, so a node is identified by its data.
--
-- @module tycho.torch7.layers_graph

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local layers = require "tycho.torch7.layers"
local objects = require "tycho.torch7.objects"
local Tensor = require "tycho.torch7.tensor"
local values = require "tycho.core.values"

local graphs = {}


local function is_table(v)
  return type(v) == "table" and (values.is_plain(v) or objects.is(v))
end


-- Returns the table `data` of a node of nngraph; raises an error if there is none.
local function read_data(net, node)
  if not (objects.is(node) and is_table(node.data)) then
    net:fail("value", "a node of the graph is %s", objects.kind(node))
  end
  return node.data
end


-- Returns the nodes of a graph in the order in which they are computed.
local function read_nodes(net, m)
  local list = m.forwardnodes
  if not is_table(list) or #list == 0 then
    net:fail("value", "the field 'forwardnodes' is %s", is_table(list) and "empty"
      or objects.kind(list))
  elseif not objects.is(m.innode) or not objects.is(m.outnode) then
    net:fail("value", "the graph has no input or no output")
  end
  return list
end


local function list_children(net, node)
  local list, children = {}, node.children
  if not is_table(children) then
    net:fail("value", "the children of a node are %s", objects.kind(children))
  end
  for i = 1, #children do
    list[i] = children[i]
  end
  return list
end


-- Returns the result of a node for its input, a tensor or a list.
local function compute_node(net, node, data, input)
  if data.selectindex ~= nil then
    local i = net:integer(data, "selectindex", nil, 1)
    if Tensor.is(input) or input[i] == nil then
      net:fail("value", "the input of a node has no entry %d", i)
    end
    return input[i]
  elseif objects.is(data.module) then
    return net:apply(data.module, input, "node " .. tostring(node.id or "?"))
  end
  return input
end


-- Returns the inputs of a node in order: a tensor, or a list of several. Raises an error if one is
-- missing.
local function gather_inputs(net, data, given)
  local inputs = given[data]
  if not inputs then
    net:fail("value", "a node of the graph is evaluated before its input")
  end
  for i = 1, inputs.most do
    if inputs[i] == nil then
      net:fail("value", "a node of the graph lacks its input %d", i)
    end
  end
  inputs.most = nil
  return #inputs == 1 and inputs[1] or inputs
end


-- Stores a value that one node computes among the inputs of another, in `given`.
local function pass_value(net, from, to, given, value)
  local data = read_data(net, to)
  local i = is_table(data.mapindex) and data.mapindex[from]
  if type(i) ~= "number" or i < 1 or i % 1 ~= 0 or i > 1e6 then
    net:fail("value", "a node of the graph has no place for an input")
  end
  local inputs = given[data] or { most = 0 }
  given[data], inputs[i], inputs.most = inputs, value, math.max(inputs.most, i)
end


layers.any("nn.gModule", function(net, m, x)
  local nodes, given = read_nodes(net, m), {}
  if net:integer(m, "nInputs", 1) > 1 and Tensor.is(x) then
    net:fail("type", "the input is a tensor, not a table of %d", m.nInputs)
  end
  given[read_data(net, m.innode)] = { x, most = 1 }
  for _, node in ipairs(nodes) do
    local data = read_data(net, node)
    local y = compute_node(net, node, data, gather_inputs(net, data, given))
    for _, child in ipairs(list_children(net, node)) do
      pass_value(net, data, child, given, y)
    end
    if data == m.outnode.data then
      return y
    end
  end
  return gather_inputs(net, read_data(net, m.outnode), given)
end)


--- Returns the nodes that take the entries of a graph's input: index -> a node.
function graphs.entries(m)
  local list = {}
  local children = objects.is(m.innode) and m.innode.children
  for _, child in pairs(is_table(children) and children or {}) do
    local data = objects.is(child) and is_table(child.data) and child.data
    local i = data and data.selectindex
    if type(i) == "number" then
      list[i] = child
    end
  end
  return list
end


return graphs
