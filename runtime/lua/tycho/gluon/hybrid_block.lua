--- Blocks whose forward runs with arrays and with symbols.
--
-- With `hybridize()` forward is traced with symbols at the first call, and the traced operators are
-- run from then on.
--
-- @classmod ty.gluon.HybridBlock

local Block = require "tycho.gluon.block"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local NDArray = require("tycho.ndarray").NDArray
local nested = require "tycho.gluon.nested"
local replay = require "tycho.gluon.replay"
local Symbol = require("tycho.symbol.symbol").Symbol
local trace = require "tycho.gluon.trace"
local tracing = require "tycho.symbol.tracing"

local getmetatable, rawget, rawset, select, type, unpack =
  getmetatable, rawget, rawset, select, type, unpack

--- The base of layers and networks that `hybridize` makes fast. Its forward uses `ty.F`, and
-- `self.weight:data(x)` for its own parameters. Called with symbols it gives symbols.
local HybridBlock = Block:extend("HybridBlock")

local BLOCK_CALL = Block.__call


function HybridBlock:_check_child(block)
  if not Class.is_a(block, HybridBlock) then
    Error.raise{ code = "type", func = self.class_name, expected = "a HybridBlock",
      got = Error.kind(block),
      message = ("'%s' is a HybridBlock, and so must be its children; derive it from gluon.Block, or \z
        use nn.Sequential"):format(self.name) }
  end
end


-- Kinds of arguments ------------------------------------------------------------------------------

-- The class of the tensors in a list, nil where there are none; other kinds together are refused.
local function class_in(self, found, n, list)
  for i = 1, n do
    local v = list[i]
    local class = getmetatable(v)
    if class == NDArray or class == Symbol then
      if found and found ~= class then
        Error.raise{ code = "type", func = self.class_name, expected = "arrays or symbols",
          got = "both", message = "arrays and symbols cannot be mixed in one call" }
      end
      found = class
    elseif class == nil and type(v) == "table" then
      found = class_in(self, found, table.maxn(v), v)
    end
  end
  return found
end


local function class_of(self, ...)
  local first = ...
  local class = getmetatable(first)
  if select("#", ...) > 1 or class ~= NDArray and class ~= Symbol then
    class = class_in(self, nil, select("#", ...), { ... })
  end
  if not class then
    Error.raise{ code = "type", func = self.class_name, expected = "at least one NDArray or Symbol",
      got = select("#", ...) == 0 and "nothing" or Error.kind(first),
      message = ("block '%s' is called on arrays or symbols"):format(self.name) }
  end
  return class
end


-- Traces ------------------------------------------------------------------------------------------

local function trace_for(self, structure, count)
  local traces = rawget(self, "_traces")
  if not traces then
    traces = {}
    rawset(self, "_traces", traces)
  end
  local t = traces[structure]
  if not t then
    t = trace.make(self, structure, count)
    traces[structure] = t
    rawset(self, "_last_trace", t)
  end
  return t
end


-- Whether parameters of a trace wait for their shapes.
local function is_waiting(t)
  for _, p in ipairs(t.plan and t.plan.params or {}) do
    if not p.param:_is_ready() then
      return true
    end
  end
  return false
end


local function check_devices(self, inputs)
  local device = inputs[1]._device
  for i = 2, #inputs do
    if inputs[i]._device ~= device then
      Error.raise{ code = "device", func = self.class_name, argument = tostring(i),
        expected = tostring(inputs[1].context), got = tostring(inputs[i].context),
        message = "the inputs of a hybridized block are on one device; as_in_context moves them" }
    end
  end
end


local function check_shapes(self, t, inputs)
  local shapes = {}
  for i, x in ipairs(inputs) do
    shapes[i] = Error.show(x.shape)
  end
  local text = table.concat(shapes, " ")
  t.shapes = t.shapes or text
  if t.shapes ~= text then
    Error.raise{ code = "shape", func = self.class_name, expected = t.shapes, got = text,
      message = ("block '%s' was hybridized with static_shape = true; without it other shapes work")
        :format(self.name) }
  end
end


-- The block's forward as it was traced, on arrays.
local function run_trace(self, ...)
  local flat, structure, n
  if select("#", ...) == 1 and getmetatable((...)) == NDArray then
    flat, structure = { (...) }, "."
  else
    n = select("#", ...)
    flat, structure = nested.flatten(n, { ... }, self.class_name)
    check_devices(self, flat)
  end
  local t = trace_for(self, structure, #flat)
  if is_waiting(t) then
    trace.infer_shapes(t, flat, self.class_name)
    trace.finish(t)
  end
  if rawget(self, "_static_shape") then
    check_shapes(self, t, flat)
  end
  if not t.plan then
    return self:forward(...)
  end
  local results = replay.run(t.plan, flat, self.class_name, rawget(self, "_watch"))
  if t.structure == "." then
    return results[1]
  end
  local list, count = nested.regroup(results, t.structure)
  return unpack(list, 1, count)
end


-- Makes own parameters that wait for their shapes, which a trace tells.
local function get_ready(self, ...)
  local waiting = false
  for _, p in ipairs(self._params:values()) do
    waiting = waiting or rawget(p, "_deferred") ~= nil
  end
  for _, own in ipairs(self._own) do
    waiting = waiting or rawget(own.param, "_deferred") ~= nil
  end
  if waiting then
    local flat, structure = nested.flatten(select("#", ...), { ... }, self.class_name)
    local t = trace.make(self, structure, #flat)
    trace.infer_shapes(t, flat, self.class_name)
    trace.finish(t)
  end
end


-- Calls -------------------------------------------------------------------------------------------

-- What the block does with symbols.
function HybridBlock:_symbolic(...)
  return self:forward(...)
end


function HybridBlock:_run(...)
  if class_of(self, ...) == Symbol then
    return trace.symbolic(self, ...)
  elseif rawget(self, "_active") then
    return run_trace(self, ...)
  elseif rawget(self, "_ready") ~= self._params:len() then
    get_ready(self, ...)
    rawset(self, "_ready", self._params:len())
  end
  return self:forward(...)
end


-- Hooks do not run while a block around this one is traced.
function HybridBlock:__call(...)
  if tracing.current() then
    return self:_run(...)
  end
  return BLOCK_CALL(self, ...)
end


--- Has forward be traced with symbols at the next call, and the traced operators run from then on;
-- the children go with it.
-- @bool[opt=true] active
-- @tparam[opt] table options static_alloc = false; static_shape = false: other shapes than at the
--   first call are refused
function HybridBlock:hybridize(...)
  local a = Block._hybridize_options(...)
  rawset(self, "_active", a.active or nil)
  rawset(self, "_static_shape", a.static_shape or nil)
  Block.hybridize(self, ...)
end


-- Inference ---------------------------------------------------------------------------------------

local function traced(self, ...)
  local flat, structure = nested.flatten(select("#", ...), { ... }, self.class_name)
  return trace.make(self, structure, #flat), flat
end


--- Sets the shapes of parameters from example inputs; computes nothing.
-- @param ... arrays
function HybridBlock:infer_shape(...)
  local t, flat = traced(self, ...)
  trace.infer_shapes(t, flat, self.class_name .. ":infer_shape")
end


--- Sets the dtypes of parameters from example inputs; computes nothing.
-- @param ... arrays
function HybridBlock:infer_type(...)
  local t, flat = traced(self, ...)
  trace.infer_types(t, flat)
end


return HybridBlock
