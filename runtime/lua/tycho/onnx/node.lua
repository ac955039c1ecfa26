--- A node of an ONNX file while it is converted: what functions of the operator tables are given
-- beside their inputs (not for users).
--
--     operators.Elu = function(n, x)
--       return x:map("LeakyReLU", {}, { act_type = "elu", slope = n:float("alpha", 1) })
--     end
--
-- The file is not trusted, so each attribute is read with its expected type.
--
-- @module tycho.onnx.node

local value = require "tycho.onnx.value"

local Node = {}
Node.__index = Node


--- Refuses the node: E(`unsupported`).
function Node.refuse(_, text, ...)
  value.refuse(text, ...)
end


local function read_typed(self, name, kind, default, required)
  local v = self.attrs[name]
  if v == nil then
    if required then
      value.damaged("attribute '%s' is missing", name)
    end
    return default
  elseif type(v) ~= kind then
    value.damaged("attribute '%s' is a %s, not a %s", name, type(v), kind)
  end
  return v
end


--- Returns a number.
-- @string name
-- @number default
function Node:float(name, default)
  return read_typed(self, name, "number", default)
end


--- Returns an integer.
function Node:int(name, default)
  local v = read_typed(self, name, "number", default)
  if v and v ~= math.floor(v) then
    value.damaged("attribute '%s' is %g, no integer", name, v)
  end
  return v
end


--- Returns a flag.
function Node:flag(name, default)
  return self:int(name, default and 1 or 0) ~= 0
end


--- Returns a text.
function Node:text(name, default)
  return read_typed(self, name, "string", default)
end


--- Returns one of several words.
-- @string name
-- @string default
-- @tparam table words what each stands for, by word
function Node:choice(name, default, words)
  local word = self:text(name, default)
  if words[word] == nil then
    value.refuse("%s = '%s'", name, word)
  end
  return words[word]
end


--- Returns a list of numbers; nil where there is none and no default.
function Node:list(name, default)
  local list = read_typed(self, name, "table", default)
  if list and type(list[1]) ~= "number" and #list > 0 then
    value.damaged("attribute '%s' is no list of numbers", name)
  end
  return list
end


--- Returns a tensor as a constant.
function Node:tensor(name)
  local t = read_typed(self, name, "table", nil, true)
  if not t.dims then
    value.damaged("attribute '%s' is no tensor", name)
  end
  return self.import:make_constant(t)
end


--- Returns a graph.
function Node:graph(name)
  local g = read_typed(self, name, "table", nil, true)
  if not g.nodes then
    value.damaged("attribute '%s' is no graph", name)
  end
  return g
end


-- Returns an axis, counted from 0.
-- @number axis negative: from the end
-- @int rank
function Node.axis_of(_, axis, rank)
  if axis < -rank or axis >= rank or axis ~= math.floor(axis) then
    value.damaged("axis %g of %d", axis, rank)
  end
  return axis < 0 and axis + rank or axis
end


--- Returns the attribute `axis`, counted from 0.
function Node:axis(default, rank, name)
  return self:axis_of(self:int(name or "axis", default), rank)
end


--- Returns several axes, counted from 0; each may be given once.
-- @tparam {number,...} list
-- @int rank
function Node:axes_of(list, rank)
  local axes, seen = {}, {}
  for i, axis in ipairs(list) do
    axes[i] = self:axis_of(axis, rank)
    if seen[axes[i]] then
      value.damaged("axis %d is given twice", axis)
    end
    seen[axes[i]] = true
  end
  return axes
end


--- Returns a list that is an input since some opset and was an attribute before.
-- @tparam ?Value input
-- @string name of the attribute, and of the input for errors
-- @treturn ?{number,...}
function Node:list_of(input, name)
  if input then
    return input:numbers(name)
  end
  return self:list(name)
end


--- Returns whether the node's output number i, from 1, is used.
function Node:wants(i)
  local name = self.node.outputs[i]
  return name ~= nil and name ~= ""
end


-- Returns the sizes of a value, all of which must be known.
-- @tparam Value v
-- @string what for errors
function Node.sizes(_, v, what)
  for axis, size in ipairs(v.shape) do
    if size < 0 then
      value.refuse("the size of axis %d of %s must be known; give the shapes of all inputs",
        axis - 1, what)
    end
  end
  return v.shape
end


return Node
