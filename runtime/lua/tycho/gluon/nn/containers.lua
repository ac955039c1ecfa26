--- Containers: Sequential, HybridSequential, Concurrent, HybridConcurrent.
--
-- Children are the array part of a container: `net[1]`, `#net`, `ipairs(net)`; `net[-1]` is the
-- last one. `net["1:3"]` is the same as `net[ty.slice(1, 3)]`, which counts from 0: a container of
-- some of the children.
--
-- @module tycho.gluon.nn.containers

local pairs = require("tycho.core.iterate").pairs
local Block = require "tycho.gluon.block"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local HybridBlock = require "tycho.gluon.hybrid_block"
local layer = require "tycho.gluon.layer"
local log = require "tycho.core.log"
local values = require "tycho.core.values"

local is_passing, pass_on = layer.is_passing, layer.pass_on
local containers = {}


-- Registers the blocks among a constructor's arguments: the arguments themselves, or the array part
-- of a table of options. Options that not all blocks have go to take(name, value).
local function read_arguments(self, func, take, ...)
  for i = 1, values.count(...) do
    local given = select(i, ...)
    if not values.is_plain(given) then
      if take == nil or not take(nil, given) then
        self:add(given)
      end
    else
      for _, block in ipairs(given) do
        if take == nil or not take(nil, block) then
          self:add(block)
        end
      end
      for name, value in pairs(given) do
        if type(name) == "string" and name ~= "prefix" and name ~= "params"
            and not (take and take(name, value)) then
          Error.unknown{ func = func, argument = name, what = "argument",
            names = take and { "axis", "prefix", "params" } or { "prefix", "params" } }
        end
      end
    end
  end
end


-- Calls child i and those after it, each with the results of the previous one.
local function run_from(self, i, ...)
  local child = self[i]
  if child == nil then
    return ...
  elseif i > 1 and is_passing(child) and is_passing(self[i - 1]) then
    return run_from(self, i + 1, pass_on(child, (...)))
  end
  return run_from(self, i + 1, child(...))
end


-- Returns a new container of the same class that shares a range of the children.
local function slice_children(self, range)
  if range.step and range.step ~= 1 then
    Error.raise{ code = "value", func = self.class_name, argument = "step", got = range.step,
      expected = 1, message = "children are taken in order" }
  end
  local n = #self
  local function offset(index, default)
    index = index == nil and default or index
    return math.max(0, math.min(n, index < 0 and index + n or index))
  end
  local part = getmetatable(self){ prefix = self.prefix }
  for i = offset(range.start, 0) + 1, offset(range.stop, n) do
    part:add(self[i])
  end
  return part
end


-- Returns the range that a text such as "1:3" or ":-1" stands for, or nil.
local function read_range(text)
  local start, stop = text:match("^%s*(%-?%d*)%s*:%s*(%-?%d*)%s*$")
  return start and values.slice(tonumber(start), tonumber(stop))
end


-- Sets the array part to the list of the children.
local function mirror_children(self)
  local children = self:children()
  for i = 1, math.max(#children, #self) do
    rawset(self, i, children[i] and children[i].block)
  end
end


-- Adds the methods of a container to a class.
local function make_container(class, func)

  function class:init(...)
    read_arguments(self, func, nil, ...)
  end


  --- Appends blocks.
  -- @param ... blocks, or a list of them
  -- @return the container
  function class:add(...)
    if not Class.is_a(self, class) then
      Error.raise{ code = "type", func = class.class_name .. ":add", got = Error.kind(self),
        expected = Error.with_article(class.class_name),
        message = "methods take a colon: x:add(...), not x.add(...)" }
    end
    local count, first = select("#", ...), ...
    if count == 1 and values.is_plain(first) and not values.has_names(first) then
      return self:add(unpack(first))
    end
    for i = 1, count do
      self:register_child((select(i, ...)))
    end
    return self
  end


  function class:register_child(...)
    class.super.register_child(self, ...)
    mirror_children(self)
  end


  local assign = class.__newindex

  function class.__newindex(self, key, value)
    assign(self, key, value)
    mirror_children(self)
  end


  --- Returns the number of children.
  -- @treturn int
  function class:len()
    return #self
  end


  function class:forward(...)
    return run_from(self, 1, ...)
  end


  local inherited = rawget(class, "__index")

  local function find_member(self, key)
    if type(inherited) == "function" then
      return inherited(self, key)
    end
    return getmetatable(self)[key]
  end

  function class.__index(self, key)
    if type(key) == "number" then
      return key < 0 and rawget(self, #self + key + 1) or nil
    elseif Class.is_a(key, values.Slice) then
      return slice_children(self, key)
    end
    local member = find_member(self, key)
    local range = member == nil and type(key) == "string" and read_range(key)
    if range then
      return slice_children(self, range)
    end
    return member
  end


  layer.describe(class, function(self)
    local lines = {}
    for i, child in ipairs(self) do
      lines[i] = ("  (%d): %s"):format(i - 1, layer.indent(tostring(child)))
    end
    return layer.listed(self.class_name .. "(", lines)
  end)
end


--- Calls its children in order, each with the results of the previous one: `Sequential{ a, b, c }`,
-- or `add`. A child that is not a block is E(`type`).
-- @type Sequential
local Sequential = Block:extend("Sequential")
make_container(Sequential, "nn.Sequential")

--- Hybridizes the children as `Block:hybridize` does. Warns if all of them are HybridBlocks, since
-- a HybridSequential would run as one program.
function Sequential:hybridize(...)
  local hybrid = #self > 0
  for _, child in ipairs(self) do
    hybrid = hybrid and Class.is_a(child, HybridBlock)
  end
  if hybrid then
    log:warning(("all children of '%s' are HybridBlocks; a HybridSequential runs as one program")
      :format(self.name))
  end
  Sequential.super.hybridize(self, ...)
end


--- Calls its children in order, like Sequential, and can be hybridized as a whole; the children
-- must be HybridBlocks, else E(`type`).
-- @type HybridSequential
local HybridSequential = HybridBlock:extend("HybridSequential")
make_container(HybridSequential, "nn.HybridSequential")


-- Adds the methods of a container whose children all get the same input to a class.
local function make_concurrent(class, func)

  function class:init(...)
    self.axis = -1
    read_arguments(self, func, function(name, value)
      if name == "axis" or name == nil and type(value) == "number" then
        if type(value) ~= "number" then
          Error.raise{ code = "type", func = func, argument = "axis", expected = "a number",
            got = Error.kind(value), message = "bad 'axis'" }
        end
        self.axis = value
        return true
      end
    end, ...)
  end


  function class:forward(x)
    local parts = {}
    for i, child in ipairs(self) do
      parts[i] = child(x)
    end
    return F.concat(parts, { dim = self.axis })
  end
end


--- Calls all children with the same input and concatenates their results along an axis: option
-- `axis` = -1.
-- @type Concurrent
local Concurrent = Sequential:extend("Concurrent")
make_concurrent(Concurrent, "nn.Concurrent")

--- Concatenates the results of its children, like Concurrent, and can be hybridized as a whole; the
-- children must be HybridBlocks.
-- @type HybridConcurrent
local HybridConcurrent = HybridSequential:extend("HybridConcurrent")
make_concurrent(HybridConcurrent, "nn.HybridConcurrent")


containers.Sequential, containers.HybridSequential = Sequential, HybridSequential
containers.Concurrent, containers.HybridConcurrent = Concurrent, HybridConcurrent

return containers
