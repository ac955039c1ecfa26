--- Traces: a block's forward as a symbol, one for each structure of arguments (gluon/nested.lua).
--
-- @module tycho.gluon.trace

local amp = require "tycho.contrib.amp"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local location = require "tycho.gluon.location"
local nested = require "tycho.gluon.nested"
local node = require "tycho.symbol.node"
local graph = require "tycho.symbol.graph"
local Parameter = require "tycho.gluon.parameter"
local replay = require "tycho.gluon.replay"
local sym = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"
local tracing = require "tycho.symbol.tracing"

local getmetatable, select, unpack = getmetatable, select, unpack

local trace = {}

-- Returns whether arrays have a member with this name, for the error of its use on a symbol while a
-- forward is traced.
function tracing.is_of_arrays(key)
  return class.fields[key] ~= nil or rawget(class.NDArray, key) ~= nil
end


--- Runs a block's forward with symbols, in the block's name scope.
-- @tparam HybridBlock b
-- @param ... symbols and lists of them
-- @return the results of forward
function trace.symbolic(b, ...)
  return tracing.run(b.name, b._scope.with, b._scope, b._symbolic, b, ...)
end


local function pack_results(drawing, ...)
  return drawing, select("#", ...), { ... }
end


-- Returns a symbol of entries and of the nodes in `drawing` on which the entries do not depend.
local function add_unread(entries, drawing)
  local all, _, reached = tables.copied(entries), node.walk(entries)
  for _, n in ipairs(drawing) do
    if not reached[n] then
      all[#all + 1] = { n, 0 }
    end
  end
  return sym.Symbol.of(all)
end


--- Traces a block: runs its forward once with symbols of unknown shapes. A result that is not a
-- symbol is E(type).
-- @tparam HybridBlock b
-- @string structure of the arguments
-- @int count number of tensors among them
-- @treturn table block; symbol: all outputs; whole: the outputs and random numbers that nothing
--   reads; structure: of the results; names: of the inputs, false for one that forward does not
--   use; plan: for `replay.run`; mixed: `amp._version()` when it was made; dtype: that of the
--   block's first parameter, if the trace makes arrays that may have it
function trace.make(b, structure, count)
  local inputs, names, position = {}, {}, {}
  for i = 1, count do
    names[i] = count == 1 and "data" or "data" .. i - 1
    inputs[i] = sym.Variable(names[i])
    position[inputs[i]._entries[1][1]] = i
  end
  local list, n = nested.regroup(inputs, structure)
  local drawing, nout, results = pack_results(tracing.list_draws(trace.symbolic, b,
    unpack(list, 1, n)))
  local outputs, out_structure = nested.flatten(nout, results, b.class_name .. ":forward")
  for i, y in ipairs(outputs) do
    if getmetatable(y) ~= sym.Symbol then
      Error.raise{ code = "type", func = b.class_name .. ":forward", expected = "symbols",
        got = Error.kind(y), message = ("result %d of forward is no symbol, though it was called \z
          with symbols; use ty.F, which works with both"):format(i) }
    end
  end
  if #outputs == 0 then
    Error.raise{ code = "type", func = b.class_name .. ":forward", expected = "arrays",
      got = "nothing", message = "forward returns no arrays; a return may be missing" }
  end
  local widths, entries = {}, {}
  for i, y in ipairs(outputs) do
    widths[i] = #y._entries
    for _, entry in ipairs(y._entries) do
      entries[#entries + 1] = entry
    end
  end
  local whole = amp._applied(add_unread(entries, drawing))
  local symbol = sym.Symbol.of(tables.part(whole._entries, 1, #entries))
  local plan = replay.compile(symbol, position, b, whole)
  local _, reached = graph.walk(whole)
  for i, x in ipairs(inputs) do
    names[i] = reached[x._entries[1][1]] and names[i] or false
  end
  local first = plan.makes and plan.params[1]
  return { block = b, symbol = symbol, whole = whole, mixed = amp._version(),
    structure = trace.widen(out_structure, widths), names = names,
    plan = plan, dtype = first and first.param.dtype }
end


--- Returns a structure of symbols as one of outputs: a symbol of several outputs becomes a list.
-- @string structure
-- @tparam {int,...} widths number of outputs of each symbol
-- @treturn string structure
function trace.widen(structure, widths)
  local i = 0
  return (structure:gsub("%.", function()
    i = i + 1
    return widths[i] > 1 and "(" .. ("."):rep(widths[i]) .. ")" or "."
  end))
end


-- Calls f(parameter, value, node) for each parameter in a graph; `value` is its entry in the lists
-- of inferred arguments and auxiliary states.
local function each_parameter(symbol, arguments, auxiliary, f)
  local order = graph.walk(symbol)
  local mutated, narg, naux = node.mutated(order), 0, 0
  for _, n in ipairs(order) do
    if not n.op then
      local value
      if mutated[n] then
        naux = naux + 1
        value = auxiliary[naux]
      else
        narg = narg + 1
        value = arguments[narg]
      end
      local p = Parameter._of_variable(n)
      if p then
        f(p, value, n)
      end
    end
  end
end


--- Sets unknown sizes of the parameters that a trace reads. Sizes that the inputs do not determine
-- are E(shape).
-- @tparam table t trace
-- @tparam {NDArray,...} inputs
-- @string func name of the caller, for errors
function trace.infer_shapes(t, inputs, func)
  local given = {}
  for i, name in ipairs(t.names) do
    if name then
      given[name] = inputs[i].shape
    end
  end
  local ok, arguments, _, auxiliary = pcall(t.whole.infer_shape_partial, t.whole, given)
  if not ok then
    local e = arguments
    if Error.is_error(e) then
      e.func = func
      e.node = e.node and location.find_layer(t.block, e.node) or e.node
    end
    error(e, 0)
  end
  each_parameter(t.whole, arguments, auxiliary, function(p, shape)
    if not shape or #shape == 0 or not tables.is_known(shape) then
      Error.raise{ code = "shape", func = func, argument = p.name, got = shape or {},
        expected = "sizes above 0",
        message = ("the inputs do not determine the shape of parameter '%s'; give its sizes when \z
          the block is made"):format(p.name) }
    end
    p:_know_shape(shape)
  end)
end


--- Converts the parameters that a trace reads to the dtypes that follow from those of the inputs.
-- @tparam table t trace
-- @tparam {NDArray,...} inputs
function trace.infer_types(t, inputs)
  local given, found = {}, {}
  for i, name in ipairs(t.names) do
    if name then
      given[name] = inputs[i].dtype
    end
  end
  -- without their dtypes, which are inferred
  local free = node.copy(t.whole._entries, function(n)
    if not n.op and Parameter._of_variable(n) then
      local attrs = tables.copy(n.attrs)
      attrs.__dtype__ = nil
      return { { node.variable(n.name, attrs, n.where), 0 } }
    end
  end)
  local symbol = sym.Symbol.of(free)
  local arguments, _, auxiliary = symbol:infer_type(given)
  for _, part in ipairs{ { symbol:list_arguments(), arguments },
      { symbol:list_auxiliary_states(), auxiliary } } do
    for i, name in ipairs(part[1]) do
      found[name] = part[2] and part[2][i]
    end
  end
  for _, n in ipairs((graph.walk(t.whole))) do
    local p = not n.op and Parameter._of_variable(n)
    if p and found[n.name] then
      p:cast(found[n.name])
    end
  end
end


--- Makes and fills the arrays of parameters that waited for their shapes.
-- @tparam table t trace
function trace.finish(t)
  for _, n in ipairs((graph.walk(t.whole))) do
    local p = not n.op and Parameter._of_variable(n)
    if p then
      p:_finish()
    end
  end
end


return trace
