--- A node of an ONNX file that is being converted: the first argument of the functions in the
-- operator tables, before the inputs (not for users).
--
--     operators.Elu = function(n, x)
--       return x:map("LeakyReLU", {}, { act_type = "elu", slope = n:float("alpha", 1) })
--     end
--
-- The file is not trusted: each attribute is read with its expected type, and another type, or a
-- missing attribute without a default, is E(`format`).
--
-- @module tycho.onnx.node

local value = require "tycho.onnx.value"

local Node = {}
Node.__index = Node


--- Raises E(`unsupported`) for the node; see `value.refuse`.
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


--- Returns an attribute that is a number.
-- @string name
-- @number[opt] default
function Node:float(name, default)
  return read_typed(self, name, "number", default)
end


--- Returns an attribute that is an integer.
-- @string name
-- @int[opt] default
function Node:int(name, default)
  local v = read_typed(self, name, "number", default)
  if v and v ~= math.floor(v) then
    value.damaged("attribute '%s' is %g, no integer", name, v)
  end
  return v
end


--- Returns an attribute that is an integer, as a boolean.
-- @string name
-- @param[opt] default 0 or 1
function Node:flag(name, default)
  return self:int(name, default and 1 or 0) ~= 0
end


--- Returns an attribute that is a text.
-- @string name
-- @string[opt] default
function Node:text(name, default)
  return read_typed(self, name, "string", default)
end


--- Returns the value of an attribute that must be one of several words; other words are
-- E(`unsupported`).
-- @string name
-- @string default word
-- @tparam table words word -> its value
function Node:choice(name, default, words)
  local word = self:text(name, default)
  if words[word] == nil then
    value.refuse("%s = '%s'", name, word)
  end
  return words[word]
end


--- Returns an attribute that is a list of numbers.
-- @string name
-- @tparam[opt] {number,...} default
-- @treturn ?{number,...} nil if there is neither the attribute nor a default
function Node:list(name, default)
  local list = read_typed(self, name, "table", default)
  if list and type(list[1]) ~= "number" and #list > 0 then
    value.damaged("attribute '%s' is no list of numbers", name)
  end
  return list
end


--- Returns an attribute that is a tensor, as a constant.
-- @string name
-- @treturn ?Value nil if the attribute is missing
function Node:tensor(name)
  local t = read_typed(self, name, "table", nil, true)
  if not t.dims then
    value.damaged("attribute '%s' is no tensor", name)
  end
  return self.import:make_constant(t)
end


--- Returns an attribute that is a graph, in the form of `onnx.model_file`.
-- @string name
function Node:graph(name)
  local g = read_typed(self, name, "table", nil, true)
  if not g.nodes then
    value.damaged("attribute '%s' is no graph", name)
  end
  return g
end


-- Returns an axis counted from 0; an axis that does not exist is E(`format`).
-- @number axis from 0, or negative from the end
-- @int rank number of axes
function Node.axis_of(_, axis, rank)
  if axis < -rank or axis >= rank or axis ~= math.floor(axis) then
    value.damaged("axis %g of %d", axis, rank)
  end
  return axis < 0 and axis + rank or axis
end


--- Returns an attribute that is an axis, counted from 0.
-- @int default
-- @int rank number of axes
-- @string[opt="axis"] name
function Node:axis(default, rank, name)
  return self:axis_of(self:int(name or "axis", default), rank)
end


--- Returns axes counted from 0; duplicates are E(`format`).
-- @tparam {number,...} list from 0, or negative from the end
-- @int rank number of axes
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


--- Returns a list of numbers that is an input from some opset on, and an attribute in earlier ones.
-- @tparam ?Value input must be a constant
-- @string name of the attribute, and of the input for errors
-- @treturn ?{number,...} nil if there is neither
function Node:list_of(input, name)
  if input then
    return input:numbers(name)
  end
  return self:list(name)
end


--- Returns whether an output of the node is used.
-- @int i number of the output, from 1
function Node:wants(i)
  local name = self.node.outputs[i]
  return name ~= nil and name ~= ""
end


-- Returns the size of an axis of a value; an unknown size is E(`unsupported`).
-- @tparam Value v
-- @int axis from 0
-- @string what name of the value, for errors
function Node.size(_, v, axis, what)
  local size = v.shape[axis + 1]
  if size < 0 then
    value.refuse("the size of axis %d of %s must be known; give the shapes of all inputs", axis,
      what)
  end
  return size
end


-- Returns the sizes of a value; an unknown size is E(`unsupported`).
-- @tparam Value v
-- @string what name of the value, for errors
-- @int[opt=0] first sizes of axes before this one may be unknown
function Node:sizes(v, what, first)
  for axis = first or 0, #v.shape - 1 do
    self:size(v, axis, what)
  end
  return v.shape
end


return Node
