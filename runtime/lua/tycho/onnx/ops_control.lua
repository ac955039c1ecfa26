--- Operators of ONNX that contain graphs: If, Loop, Scan (not for users); see onnx/ops_math.lua.
--
-- An If whose condition is constant becomes the nodes of its branch. A loop whose number of steps
-- is known is unrolled, so that values that depend on the step may become constants. Other nodes
-- become control flow of the engine.
--
-- @module tycho.onnx.ops_control

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Error = require "tycho.core.error"
local contrib = require("tycho.symbol.symbol").contrib
local symbol = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"
local value = require "tycho.onnx.value"

local ops = {}

local op = value.op

local MOST_STEPS = 4096                  -- most steps of an unrolled loop


-- Returns a symbol of a value; an output of a body becomes a separate node.
local function make_symbol(v, is_output)
  local entry = value.make_entry(v)
  if is_output then
    entry = op("identity", { value.output(entry, v.shape, v.dtype) }).entry
  end
  return symbol.Symbol.of{ entry }
end


local function make_symbols(list, is_output)
  local symbols = {}
  for i, v in ipairs(list) do
    symbols[i] = make_symbol(v, is_output)
  end
  return symbols
end


-- Returns a value of a symbol that the engine made, with the dtype of `like`, and its shape unless
-- another is given.
local function make_value(s, like, shape)
  return value.output(s._entries[1], shape or like.shape, like.dtype)
end


-- Converts a graph without inputs. Returns true and its outputs, or false and the error.
local function try_graph(n, graph)
  local import = n.import
  local depth, node, hint = import.depth, import.node, import.hint
  local ok, results = pcall(import.run_body, import, graph, {}, n.scope)
  if not ok then
    import.depth, import.node, import.hint = depth, node, hint
  end
  return ok, results
end


-- Returns outputs with the shapes and dtypes of the values in `like`. A run that needs them fails
-- in a node whose name states the reason.
local function make_failing_outputs(n, condition, like, name)
  local import = n.import
  local hint = import.hint
  import.hint = ("%s_%s_does_not_fit_the_shapes_of_the_import"):format(hint, name)
  local outside = condition:cast("float32"):reshape{ 1 } * 0 + 1
  local number = op("take", { value.full({ 1 }, 0, "float32"), outside }, { mode = "raise" })
  import.hint = hint
  local list = {}
  for i, v in ipairs(like) do
    list[i] = number:expand(v.shape):cast(v.dtype)
  end
  return list
end


local SHAPE_CODES = { shape = true, format = true }      -- codes of errors about a wrong shape

-- Returns the outputs of a branch. If the branch does not fit the shapes of the inputs, as one for
-- another sample rate, returns those of a branch that fails if a run chooses it.
local function make_branch(n, condition, graph, other, name)
  local ok, results = try_graph(n, graph)
  if ok then
    return results
  end
  local import = n.import
  if import.is_guessing or not (Error.is_error(results) and SHAPE_CODES[results.code]) then
    error(results, 0)
  end
  import.is_guessing = true              -- nested branches do not repeat this
  local fits, like = try_graph(n, other)
  import.is_guessing = nil
  for _, v in ipairs(fits and like or {}) do
    fits = fits and not value.is_open(v.shape)
  end
  if not fits then
    error(results, 0)
  end
  return make_failing_outputs(n, condition, like, name)
end


function ops.If(n, condition)
  local yes, no = n:graph("then_branch"), n:graph("else_branch")
  if condition:is_constant() then
    local chosen = condition:number("the condition") ~= 0 and yes or no
    return unpack(n.import:run_body(chosen, {}, n.scope))
  end
  local results, others
  local outputs = contrib.cond{ make_symbol(condition:cast("float32")), function()
    results = make_branch(n, condition, yes, no, "then_branch")
    return make_symbols(results, true)
  end, function()
    others = make_branch(n, condition, no, yes, "else_branch")
    return make_symbols(others, true)
  end }
  local list = {}
  for i, v in ipairs(results) do
    if not value.same_shape(v.shape, others[i].shape) or v.dtype ~= others[i].dtype then
      n:refuse("branches whose output %d is %s here and %s there", i, value.shape_text(v.shape),
        value.shape_text(others[i].shape))
    end
    list[i] = make_value(outputs[i], v)
  end
  return unpack(list)
end


-- Stacks the outputs of all steps along a new axis, the first by default.
local function stack_rows(rows, axis)
  local list = {}
  for i, v in ipairs(rows) do
    list[i] = v:unsqueeze(axis or 0)
  end
  return value.concat(list, axis or 0)
end


-- Unrolls a loop of at most `count` steps. body(step, carried) returns the condition, the carried
-- values and the outputs of the step. Returns the last carried values, and the list of each
-- output's values; nil if a condition is known only at run time.
local function unroll_loop(n, count, carried, scans, body)
  local rows = {}
  for k = 1, scans do
    rows[k] = {}
  end
  for step = 0, count - 1 do
    if step == MOST_STEPS then
      n:refuse("a loop of more than %d steps", MOST_STEPS)
    end
    local alive, now, outputs = body(step, carried)
    carried = now
    for k, v in ipairs(outputs) do
      rows[k][step + 1] = v
    end
    if alive and alive:is_constant() and alive:number("the condition") == 0 then
      break
    elseif alive and not alive:is_constant() then
      return nil
    end
  end
  return carried, rows
end


-- Returns the outputs of a loop of at most `count` steps whose condition is known only at run time.
local function make_while_loop(n, count, condition, carried, graph)
  local inputs = { condition:cast("float32"):reshape{ 1 } }
  for i, v in ipairs(carried) do
    inputs[i + 1] = v
  end
  local step = value.full({ 1 }, 0, "float32")
  inputs[#inputs + 1] = step
  local results, scans
  local function convert_body(...)
    local symbols, values = { ... }, {}
    for i, s in ipairs(symbols) do
      values[i] = make_value(s, inputs[i])
    end
    local counter = values[#values]
    local given = { counter:cast("int64"):reshape{}, values[1]:cast("bool"):reshape{} }
    for i = 1, #carried do
      given[i + 2] = values[i + 1]
    end
    results = n.import:run_body(graph, given, n.scope)
    local outs, states = {}, { make_symbol(results[1]:cast("float32"):reshape{ 1 }, true) }
    for i = 1, #carried do
      if not value.same_shape(results[i + 1].shape, carried[i].shape) then
        n:refuse("a carried value whose shape changes while the number of steps is not known")
      end
      states[i + 1] = make_symbol(results[i + 1], true)
    end
    states[#states + 1] = make_symbol(counter + 1, true)
    scans = tables.part(results, #carried + 2, #results)
    for i, v in ipairs(scans) do
      outs[i] = make_symbol(v, true)
    end
    return outs, states
  end
  local outs, states = contrib.while_loop{ function(alive) return alive end, convert_body,
    make_symbols(inputs), max_iterations = count }
  local list = {}
  for i = 1, #carried do
    list[i] = make_value(states[i + 1], carried[i])
  end
  for i, v in ipairs(scans) do
    list[#list + 1] = make_value(outs[i], v, { count, unpack(v.shape) })
  end
  return unpack(list)
end


function ops.Loop(n, count, condition, ...)
  local graph, carried = n:graph("body"), { ... }
  local most = count and count:numbers("the number of steps")[1] or math.huge
  local alive = condition and condition:is_constant() and condition:number("the condition")
  if alive == 0 then
    most = 0
  end
  local forever = not condition or alive
  local scans = #graph.outputs - 1 - #carried
  local function run_step(i, now)
    local given = { value.scalar(i, "int64"), condition or value.scalar(1, "bool") }
    for k, v in ipairs(now) do
      given[k + 2] = v
    end
    local results = n.import:run_body(graph, given, n.scope)
    return results[1], tables.part(results, 2, 1 + #carried),
      tables.part(results, 2 + #carried, #results)
  end
  if not forever then
    -- if the body returns its condition unchanged, the input decides about all steps
    local first = graph.inputs[2] and graph.inputs[2].name
    if ops.passes_condition(graph, first) and most < math.huge and most > 0 then
      return ops.run_guarded(n, most, condition, carried, scans, run_step)
    elseif most == math.huge then
      n:refuse("a loop without a limit, whose condition is computed")
    end
    return make_while_loop(n, most, condition, carried, graph)
  end
  local second = graph.inputs[2] and graph.inputs[2].name
  if most > MOST_STEPS and ops.passes_condition(graph, second) then
    n:refuse("a loop of more than %d steps", MOST_STEPS)
  end
  local final, rows = unroll_loop(n, most, carried, scans, run_step)
  if not final and most > MOST_STEPS then
    n:refuse("a loop without a limit, whose condition is computed")
  elseif not final then
    return make_while_loop(n, most, value.scalar(1, "bool"), carried, graph)
  end
  for k = 1, scans do
    final[#final + 1] = #rows[k] > 0 and stack_rows(rows[k])
      or n:refuse("outputs of a loop without steps")
  end
  return unpack(final)
end


--- Returns whether a body returns its condition unchanged.
function ops.passes_condition(graph, name)
  local source = graph.outputs[1].name
  for _ = 1, #graph.nodes + 1 do
    if source == name then
      return true
    end
    local made
    for _, m in ipairs(graph.nodes) do
      if m.outputs[1] == source and m.op == "Identity" and m.domain == "" then
        made = m.inputs[1]
      end
    end
    if not made then
      return false
    end
    source = made
  end
  return false
end


--- Returns the outputs of a loop that runs all of its steps, or none if `condition` is 0. Stacked
-- outputs have the shape for all steps, since the shapes of a network are fixed.
function ops.run_guarded(n, count, condition, carried, scans, step)
  local final, rows = unroll_loop(n, count, carried, scans, function(i, now)
    local _, after, outputs = step(i, now)
    return nil, after, outputs
  end)
  for i, v in ipairs(final) do
    if v.items or carried[i].items then
      n:refuse("a sequence in a loop that only a run decides about")
    elseif value.same_shape(v.shape, carried[i].shape) then
      final[i] = value.where(condition:reshape{}, v, carried[i])
    end
  end
  for k = 1, scans do
    final[#final + 1] = stack_rows(rows[k])
  end
  return unpack(final)
end


-- Unrolls a Scan and returns its outputs. `given` lists the states, then the arrays to scan; array
-- k is scanned from its end if in_back[k] is 1.
local function unroll_scan(n, given, in_back)
  local graph = n:graph("body")
  local arrays = n:int("num_scan_inputs", 1)
  local states = #given - arrays
  local in_axes, out_axes = n:list("scan_input_axes", {}), n:list("scan_output_axes", {})
  local out_back = n:list("scan_output_directions", {})
  local count
  for k = 1, arrays do
    local x = given[states + k]
    local axis = n:axis_of(in_axes[k] or 0, #x.shape)
    in_axes[k] = axis
    count = count or n:sizes(x, "its input")[axis + 1]
  end
  local scans = #graph.outputs - states
  local final, rows = unroll_loop(n, count, tables.part(given, 1, states), scans, function(i, now)
    local inputs = tables.copied(now)
    for k = 1, arrays do
      local at = in_back[k] == 1 and count - 1 - i or i
      inputs[#inputs + 1] = given[states + k]:part(in_axes[k], at, at + 1):squeeze(in_axes[k])
    end
    local results = n.import:run_body(graph, inputs, n.scope)
    return nil, tables.part(results, 1, states), tables.part(results, states + 1, #results)
  end)
  for k = 1, scans do
    local list = out_back[k] == 1 and tables.reversed(rows[k]) or rows[k]
    final[#final + 1] = stack_rows(list, n:axis_of(out_axes[k] or 0, #list[1].shape + 1))
  end
  return final
end


-- Scans each sample separately, for a Scan before opset 9: its first input is lengths, the others
-- have a batch axis.
local function scan_samples(n, lengths, ...)
  local given, rows = { ... }, {}
  if lengths then
    n:refuse("sequences of different lengths")
  end
  for b = 0, n:sizes(given[1], "its input")[1] - 1 do
    local sample = {}
    for i, v in ipairs(given) do
      sample[i] = v:part(0, b, b + 1):squeeze(0)
    end
    for k, v in ipairs(unroll_scan(n, sample, n:list("directions", {}))) do
      rows[k] = rows[k] or {}
      rows[k][b + 1] = v
    end
  end
  for k, list in ipairs(rows) do
    rows[k] = stack_rows(list)
  end
  return unpack(rows)
end


function ops.Scan(n, ...)
  if n.opset < 9 then
    return scan_samples(n, ...)
  end
  return unpack(unroll_scan(n, { ... }, n:list("scan_input_directions", {})))
end


return { If = ops.If, Loop = ops.Loop, Scan = ops.Scan }
