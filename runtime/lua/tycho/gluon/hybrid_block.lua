--- Blocks whose forward runs on arrays and on symbols.
--
-- After `hybridize()` forward is traced with symbols at the first call; later calls run the traced
-- operators.
--
-- @classmod ty.gluon.HybridBlock

local amp = require "tycho.contrib.amp"
local args = require "tycho.core.args"
local Block = require "tycho.gluon.block"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local graph = require "tycho.symbol.graph"
local left_out = require "tycho.gluon.left_out"
local NDArray = require("tycho.ndarray").NDArray
local nested = require "tycho.gluon.nested"
local node = require "tycho.symbol.node"
local Parameter = require "tycho.gluon.parameter"
local parameter_files = require "tycho.gluon.parameter_files"
local registry = require "tycho.op.registry"
local replay = require "tycho.gluon.replay"
local Symbol = require("tycho.symbol.symbol").Symbol
local trace = require "tycho.gluon.trace"
local tracing = require "tycho.symbol.tracing"

local getmetatable, rawget, rawset, select, type, unpack =
  getmetatable, rawget, rawset, select, type, unpack

--- The base class of layers and networks that can be traced. Forward must work with arrays and with
-- symbols: it calls operators of `ty.F`, and reads the block's own parameters as
-- `self.weight:data(x)`. Called with symbols, a block returns symbols.
local HybridBlock = Block:extend("HybridBlock")

local BLOCK_CALL = Block.__call


function HybridBlock:_check_child(block)
  if not Class.is_a(block, HybridBlock) then
    Error.raise{ code = "type", func = self.class_name, expected = "a HybridBlock",
      got = Error.kind(block),
      message = ("children of the HybridBlock '%s' must be HybridBlocks; derive the child's class \z
        from gluon.HybridBlock, or use gluon.Block or nn.Sequential instead of '%s'")
        :format(self.name, self.name) }
  end
end


-- Kinds of arguments ------------------------------------------------------------------------------

-- Returns the class of the tensors among the n values of a list and in nested lists: NDArray,
-- Symbol, or nil if there are none. Raises E(type) if both occur. found: the class found so far.
local function find_class_in(self, found, n, list)
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
      found = find_class_in(self, found, table.maxn(v), v)
    end
  end
  return found
end


-- Returns the class of the tensors among the arguments of a call; raises E(type) if there are none.
local function find_class(self, ...)
  local first, second = ...
  local class, count = getmetatable(first), select("#", ...)
  if class == NDArray and (count == 1 or count == 2 and getmetatable(second) == NDArray) then
    return class                                         -- the usual calls, without a table
  elseif count > 1 or class ~= Symbol then
    class = find_class_in(self, nil, select("#", ...), { ... })
  end
  if not class then
    Error.raise{ code = "type", func = self.class_name, expected = "at least one NDArray or Symbol",
      got = select("#", ...) == 0 and "nothing" or Error.kind(first),
      message = ("block '%s' is called on arrays or symbols"):format(self.name) }
  end
  return class
end


-- Traces ------------------------------------------------------------------------------------------

-- Returns whether a trace is out of date: it was made under other settings of amp, or it makes
-- arrays in a former dtype of its parameters.
local function is_stale(t)
  return t.mixed ~= amp._version() or t.dtype and t.dtype ~= t.plan.params[1].param.dtype
end


-- Returns the trace for a structure of arguments, and makes it if there is none or a stale one.
local function obtain_trace(self, structure, count)
  local traces = rawget(self, "_traces")
  if not traces then
    traces = {}
    rawset(self, "_traces", traces)
  end
  local t = traces[structure]
  if not t or is_stale(t) then
    t = trace.make(self, structure, count)
    traces[structure] = t
  end
  rawset(self, "_last_trace", t)
  return t
end


-- Returns whether parameters of a trace have no arrays yet.
local function is_waiting(t)
  for _, p in ipairs(t.plan.params) do
    if not p.param:_is_ready() then
      return true
    end
  end
  return false
end


-- Raises E(device) unless all inputs are on one device.
local function check_devices(self, inputs)
  local device = inputs[1]._device
  for i = 2, #inputs do
    if inputs[i]._device ~= device then
      Error.raise{ code = "device", func = self.class_name, argument = tostring(i),
        expected = tostring(inputs[1].context), got = tostring(inputs[i].context),
        message = ("all inputs of the hybridized block '%s' must be on one device; as_in_context \z
          moves them"):format(self.name) }
    end
  end
end


-- Raises E(shape) unless the shapes of the inputs are those of the first call of the trace.
local function check_shapes(self, t, inputs)
  local shapes = {}
  for i, x in ipairs(inputs) do
    shapes[i] = Error.show(x.shape)
  end
  local text = table.concat(shapes, " ")
  t.shapes = t.shapes or text
  if t.shapes ~= text then
    Error.raise{ code = "shape", func = self.class_name, expected = t.shapes, got = text,
      message = ("block '%s' was hybridized with static_shape = true, but the inputs have other \z
        shapes; call hybridize() without it to allow these"):format(self.name) }
  end
end


-- Runs the traced graph on arrays; returns the block's outputs.
local function run_trace(self, ...)
  local flat, structure, n
  if select("#", ...) == 1 and getmetatable((...)) == NDArray then
    flat, structure = { (...) }, "."
  else
    n = select("#", ...)
    flat, structure = nested.flatten(n, { ... }, self.class_name)
    check_devices(self, flat)
  end
  local t = obtain_trace(self, structure, #flat)
  if is_waiting(t) then
    trace.infer_shapes(t, flat, self.class_name)
    trace.finish(t)
  end
  if rawget(self, "_static_shape") then
    check_shapes(self, t, flat)
  end
  local results = replay.run(t.plan, flat, self.class_name, rawget(self, "_watch"))
  if t.structure == "." then
    return results[1]
  end
  local list, count = nested.regroup(results, t.structure)
  return unpack(list, 1, count)
end


HybridBlock._run_trace = run_trace       -- for SymbolBlock


-- Makes the arrays of the block's own parameters that wait for their shapes, which a trace for the
-- given inputs infers. Sets `_ready` once all of them have arrays.
local function make_waiting(self, ...)
  local list = self._params:values()
  for _, own in ipairs(self._own) do
    list[#list + 1] = own.param
  end
  local waiting, ready = false, true
  for _, p in ipairs(list) do
    waiting = waiting or rawget(p, "_deferred") ~= nil
    ready = ready and p:_is_ready()
  end
  if waiting then
    local flat, structure = nested.flatten(select("#", ...), { ... }, self.class_name)
    local t = trace.make(self, structure, #flat)
    trace.infer_shapes(t, flat, self.class_name)
    trace.finish(t)
  end
  rawset(self, "_ready", ready and self._params:len() or nil)
end


-- Calls -------------------------------------------------------------------------------------------

-- Runs the block on symbols; SymbolBlock overrides it.
HybridBlock._symbolic = Block._call_forward


-- Runs the block on arrays or symbols, without its hooks.
function HybridBlock:_run(...)
  if find_class(self, ...) == Symbol then
    return trace.symbolic(self, ...)
  elseif rawget(self, "_active") or rawget(self, "_watch") then
    return run_trace(self, ...)
  elseif rawget(self, "_ready") ~= self._params:len() then
    make_waiting(self, ...)
  end
  return self._call_forward(self, ...)
end


-- Calls the block. While a block around this one is traced, hooks do not run.
function HybridBlock:__call(...)
  if tracing.current() then
    return self:_run(...)
  end
  return BLOCK_CALL(self, ...)
end


--- Makes the next call trace forward with symbols, and later calls run the traced operators without
-- calling forward; it does the same for the children. A forward that branches on values takes the
-- branch only once, during tracing. Random numbers are drawn as forward draws them, even if nothing
-- reads them, except for those in the body of a loop or a choice that depend on a value which
-- nothing else in the body reads.
-- @bool[opt=true] active false: forward runs again at each call
-- @tparam[opt] table options static_alloc = false (accepted, without effect); static_shape = false:
--   true makes another shape than at the first call E(`shape`)
function HybridBlock:hybridize(...)
  local a = Block._hybridize_options(...)
  rawset(self, "_active", a.active or nil)
  rawset(self, "_static_shape", a.static_shape or nil)
  Block.hybridize(self, ...)
end


-- Returns the function that `replay.run` calls after each step. It calls f(name, array) for each
-- output and, with `all`, first for each input ("dense0_fwd_weight", "relu0_fwd_input0").
local function make_watcher(f, all)
  return function(step, slots)
    local n = step.node
    local named = registry.find(n.op).names_inputs
    for k, slot in ipairs(all and step.inputs or {}) do
      f(n.name .. "_" .. (named and n.ports.inputs[k] or "input" .. k - 1), slots[slot])
    end
    for k = 0, step.nout - 1 do
      f(node.output_name(n, k), slots[step.first + k])
    end
  end
end


--- Registers a hook like `Block:register_op_hook`. From then on the block runs its trace, operator
-- by operator, even if it is not hybridized.
-- @tparam function f called as f(name, array)
-- @tparam[opt] table options monitor_all = false: true calls f for the inputs too
function HybridBlock:register_op_hook(...)
  local a = Block._op_hook_options(...)
  rawset(self, "_watch", make_watcher(a.callback, a.monitor_all))
  Block.register_op_hook(self, ...)
end


-- Inference ---------------------------------------------------------------------------------------

-- Returns a new trace for example inputs, and these inputs as a flat list. Raises E(type) if there
-- are none.
local function make_trace(self, ...)
  find_class(self, ...)
  local flat, structure = nested.flatten(select("#", ...), { ... }, self.class_name)
  return trace.make(self, structure, #flat), flat
end


--- Sets unknown shapes of parameters from example inputs, without computing anything. Shapes that
-- the inputs do not determine are E(`shape`).
-- @param ... arrays, as for a call
function HybridBlock:infer_shape(...)
  local t, flat = make_trace(self, ...)
  trace.infer_shapes(t, flat, self.class_name .. ":infer_shape")
end


--- Converts parameters to the dtypes that follow from those of example inputs; computes nothing
-- else.
-- @param ... arrays, as for a call
function HybridBlock:infer_type(...)
  local t, flat = make_trace(self, ...)
  trace.infer_types(t, flat)
end


-- Files -------------------------------------------------------------------------------------------

local EXPORT = args.form("HybridBlock:export", { { "path", "path" }, { "epoch", "integer", 0 },
  { "remove_amp_cast", "boolean", true } })

--- Writes the trace of the last call as `PATH-symbol.json`, and the parameters as
-- `PATH-0000.params`, which Module, `predict.lua`, the C interface and the reference can load. A
-- block that is not hybridized, or has not run since, is E(`state`).
-- @string path start of the names of both files
-- @tparam[opt] table options epoch = 0: the number in the name of the parameters' file;
--   remove_amp_cast = true: leaves casts of mixed precision out of the symbol
-- @treturn string the name of the symbol's file
-- @treturn string the name of the parameters' file
function HybridBlock:export(...)
  local a, t = EXPORT(...), rawget(self, "_last_trace")
  if not t or not rawget(self, "_active") then
    Error.raise{ code = "state", func = "HybridBlock:export", argument = self.name,
      message = ("block '%s' has nothing to export: call hybridize(), then run it once")
        :format(self.name) }
  end
  local list, mutated = {}, node.mutated((graph.walk(t.symbol)))
  for _, n in ipairs((graph.walk(t.symbol))) do
    local p = not n.op and Parameter._of_variable(n)
    if p then
      list[#list + 1] = { (mutated[n] and "aux:" or "arg:") .. p.name, p }
    end
  end
  local symbol_file = a.path .. "-symbol.json"
  local params_file = ("%s-%04d.params"):format(a.path, a.epoch)
  t.symbol:save(symbol_file, { remove_amp_cast = a.remove_amp_cast })
  parameter_files.write(params_file, list)
  return symbol_file, params_file
end


left_out.add(HybridBlock, "HybridBlock", ":", {
  optimize_for = "there are no other back ends; hybridize() has the engine fuse the operators",
})


return HybridBlock
