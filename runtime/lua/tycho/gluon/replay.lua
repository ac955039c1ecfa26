--- Runs a symbol on arrays, operator by operator, like the script that made it, so that autograd
-- records the calls and they run together (ARCHITECTURE.md, "Recorded calls").
--
--     local plan = replay.compile(symbol, { [node] = 1 }, block)  -- inputs by node
--     local results = replay.run(plan, inputs, func)
--
-- A plan is a flat list of steps. Each has its node, its attributes in the core's form, and the
-- slots of its inputs and outputs; slots are indices, from 1, of the list of arrays of one run.
-- Steps are in the order in which the script called the operators, so that random numbers are drawn
-- in that order. Equal tables are shared, since each garbage collection visits those of all traces.
--
-- @module tycho.gluon.replay

local ffi = require "ffi"
local pairs = require("tycho.core.iterate").pairs
local attrs = require "tycho.core.attrs"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local control = require "tycho.gluon.replay_control"
local Error = require "tycho.core.error"
local graph = require "tycho.symbol.graph"
local location = require "tycho.gluon.location"
local node = require "tycho.symbol.node"
local Parameter = require "tycho.gluon.parameter"
local recording = require "tycho.ndarray.recording"
local registry = require "tycho.op.registry"
local sync = require "tycho.gluon.nn.sync"
local tables = require "tycho.core.tables"

local cached, many, put_input = call.cached, call.many, call.put_input

local replay = {}

local MOST_INPUTS = 60                                   -- `call.put_input` takes 64


-- Compiling ---------------------------------------------------------------------------------------

-- Returns a node's parameters as { name, text, name, text ... } sorted by name, without annotations
-- such as `__ctx_group__`.
local function list_params(n, schema)
  local keys, flat = {}, {}
  for key in pairs(n.attrs) do
    if schema.by_name[key] or n.op == "Custom" and not attrs.is_annotation(key) then
      keys[#keys + 1] = key
    end
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    flat[#flat + 1] = key
    flat[#flat + 1] = n.attrs[key]
  end
  return flat
end


-- Returns the prepared call for `call.cached`.
local function make_entry(op, flat, nin)
  local attr = ffi.new("ty_attr[?]", #flat / 2 + 1)
  for i = 1, #flat / 2 do
    attr[i - 1].key, attr[i - 1].value = flat[2 * i - 1], flat[2 * i]
  end
  return { op = op, attr = attr, nattr = #flat / 2, nin = nin, texts = flat, as_is = true }
end


-- Returns whether the text of a shape has a size of 0.
local function has_unknown_size(text)
  return text ~= nil and text:find("%f[%d]0%f[%D]") ~= nil
end


-- Returns the layer of a SyncBatchNorm's node, which shares statistics across devices; nil if no
-- layer made the node, and the operator runs on one device.
local function find_shared_layer(n)
  local input = n.inputs[2][1]
  while input.op and #input.inputs == 1 do
    input = input.inputs[1][1]
  end
  local gamma = not input.op and Parameter._of_variable(input)
  return gamma and sync.layer_of(gamma)
end


-- Returns the prepared call of a node; nodes with the same operator, parameters and number of
-- inputs share it. entries: the prepared calls so far, by key; a new one is added.
local function share_entry(entries, n, schema)
  local flat, nin = list_params(n, schema), #n.inputs
  local key = ("%s %d %s"):format(n.op, nin, table.concat(flat, "\0"))
  entries[key] = entries[key] or make_entry(n.op, flat, nin)
  return entries[key]
end


local NONE = {}                                          -- a list that stays empty


-- Makes the step that runs a node. `first` is the slot of its first output; the others follow.
-- `may_fail`: whether the contents of its arrays may make it fail later; that error names the
-- node's line. A step with one output and at most MOST_INPUTS inputs has an `entry`, its prepared
-- call. Others have a `kind`:
-- - "control": a loop or a choice
-- - "custom": an operator written in Lua
-- - "made": without inputs, with attributes that depend on the device and perhaps on shapes
-- - "shared": a SyncBatchNorm of `layer`; `alone` is its prepared call for a single device
-- - "many": all others
local function make_step(n, slots, entries)
  local schema, inputs = registry.find(n.op), {}
  for i, input in ipairs(n.inputs) do
    inputs[i] = slots[input[1]] + input[2]
  end
  local step = { node = n, nin = #inputs, nout = n.ports.nvisible, inputs = inputs,
    first = slots[n], free = NONE, drop = NONE, entry = share_entry(entries, n, schema),
    may_fail = recording.may_fail[n.op] or nil }
  if n.op ~= "Custom" and step.nin > 0 and step.nout == 1 and step.nin <= MOST_INPUTS then
    local layer = n.op == "_contrib_SyncBatchNorm" and find_shared_layer(n)
    if layer then
      step.kind, step.layer, step.alone, step.entry = "shared", layer, step.entry, nil
    end
    return step
  end
  step.flat, step.entry = step.entry.texts, nil
  if n.op == "Custom" then
    step.kind = "custom"
  elseif step.nin == 0 then
    step.kind, step.takes_ctx, step.entries = "made", schema.by_name.ctx ~= nil, {}
    step.open = has_unknown_size(n.attrs.shape)
  else
    step.kind = "many"
  end
  return step
end


-- Returns the nodes of a symbol: variables, then operators in the order in which the script made
-- them.
local function list_in_order(symbol)
  local order, list = graph.walk(symbol), {}
  for _, n in ipairs(order) do
    if not n.op then
      list[#list + 1] = n
    end
  end
  for _, n in ipairs(node.as_made(order)) do
    list[#list + 1] = n
  end
  return list
end


-- Adds a variable to the plan's inputs or parameters; raises E(value) if it is neither.
local function add_variable(plan, n, slot, position)
  local index, p = position[n], Parameter._of_variable(n)
  if index then
    plan.inputs[#plan.inputs + 1] = { slot = slot, index = index, name = n.name }
  elseif p then
    plan.params[#plan.params + 1] = { slot = slot, param = p }
  else
    Error.raise{ code = "value", func = "HybridBlock", argument = n.name, where = n.where,
      message = ("the traced forward reads variable '%s', which is neither an input nor a \z
        parameter"):format(n.name) }
  end
end


-- Sets in each step the slots that no later step reads: `drop` where a step of the plan made the
-- array and only the slot holds it, so that it can be released; `free` for the others. In `free`
-- are inputs and outputs of an operator written in Lua, which may keep arrays for its backward, and
-- those of a loop or a choice, whose output may be the same array as an input.
local function add_frees(plan)
  local last, made = {}, {}
  for i, step in ipairs(plan.steps) do
    for _, slot in ipairs(step.inputs) do
      last[slot] = i
    end
    for slot = step.first, step.first + step.nout - 1 do
      last[slot], made[slot] = last[slot] or i, true
    end
  end
  for _, slot in ipairs(plan.outputs) do
    last[slot] = nil
  end
  for _, step in ipairs(plan.steps) do
    local kept = step.kind == "custom" or step.kind == "control"
    for _, slot in ipairs(kept and step.inputs or NONE) do
      made[slot] = nil
    end
    for slot = step.first, kept and step.first + step.nout - 1 or 0 do
      made[slot] = nil
    end
  end
  for slot, i in pairs(last) do
    local step, key = plan.steps[i], made[slot] and "drop" or "free"
    if step[key] == NONE then
      step[key] = { slot }
    else
      table.insert(step[key], slot)
    end
  end
end


-- Returns a symbol of the outputs of a body and of random numbers in it that nothing reads.
local function with_unread(body)
  local all = tables.copied(body._entries)
  for _, entry in ipairs(rawget(body, "_unread") or {}) do
    all[#all + 1] = entry
  end
  return body.of(all)
end


--- Returns the plan of a symbol. A variable that is neither an input nor a block's parameter is
-- E(value).
-- @tparam Symbol symbol
-- @tparam table position node of an input's variable -> its index among the inputs, from 1
-- @tparam Block block that was traced, for errors
-- @tparam[opt] Symbol whole the outputs of `symbol`, followed by others that are computed too:
--   random numbers that nothing reads
-- @treturn table
function replay.compile(symbol, position, block, whole)
  whole = whole or symbol
  local plan = { block = block, symbol = whole, inputs = {}, params = {}, steps = {},
    outputs = {}, open = false, makes = false }
  local slots, nslots, entries = {}, 0, {}
  for _, n in ipairs(list_in_order(whole)) do
    slots[n] = nslots + 1
    nslots = nslots + math.max(#n.ports.outputs, 1)
    if n.op then
      local step = make_step(n, slots, entries)
      if n.bodies then
        step.entry = nil
        control.set_up(step, function(body, variables)
          local inner = replay.compile(body, variables, block, with_unread(body))
          plan.makes = plan.makes or inner.makes
          return inner
        end)
      end
      plan.steps[#plan.steps + 1] = step
      plan.open = plan.open or step.open
      plan.makes = plan.makes or step.kind == "made"
    else
      add_variable(plan, n, slots[n], position)
    end
  end
  for i, entry in ipairs(symbol._entries) do
    plan.outputs[i] = slots[entry[1]] + entry[2]
  end
  add_frees(plan)
  return plan
end


-- Shapes that depend on the inputs ----------------------------------------------------------------

-- Returns the shapes of nodes' outputs by node, for steps without inputs whose shape has unknown
-- sizes, and the text of the inputs' shapes, the key under which the plan stores them.
local function infer_open_shapes(plan, inputs)
  local keys, given = {}, {}
  for i, x in ipairs(inputs) do
    keys[i] = table.concat(x._shape, ",")
  end
  local key = table.concat(keys, ";")
  plan.shapes = plan.shapes or {}
  if not plan.shapes[key] then
    for _, input in ipairs(plan.inputs) do
      given[input.name] = inputs[input.index].shape
    end
    local all = plan.symbol:get_internals()
    local _, shapes = all:infer_shape_partial(given)
    local found = {}
    for i, entry in ipairs(all._entries) do
      found[entry[1]] = found[entry[1]] or shapes[i]
    end
    plan.shapes[key] = found
  end
  return plan.shapes[key], key
end


-- Returns the prepared call, which the step stores, of a step without inputs on a device. key: the
-- text of the inputs' shapes.
local function find_made_entry(step, device, shapes, key)
  local name = step.open and device .. ";" .. key or device
  local entry = step.entries[name]
  if not entry then
    local flat = tables.copied(step.flat)
    if step.takes_ctx then
      flat[#flat + 1] = "ctx"
      flat[#flat + 1] = tostring(context.of_device(device))
    end
    for i = 1, step.open and #flat or 0, 2 do
      if flat[i] == "shape" then
        flat[i + 1] = attrs.text(shapes[step.node])
      end
    end
    entry = make_entry(step.node.op, flat, 0)
    step.entries[name] = entry
  end
  return entry
end


-- Running -----------------------------------------------------------------------------------------

local current_step                                 -- the step under way, for errors


-- Writes the inputs and the parameters, on the device of the first input, into their slots.
local function set_variables(plan, inputs, slots)
  local first = inputs[1]
  for _, input in ipairs(plan.inputs) do
    slots[input.slot] = inputs[input.index]
  end
  for _, p in ipairs(plan.params) do
    slots[p.slot] = p.param:data(first)
  end
end


-- Returns the outputs of a plan that has run.
local function collect(plan, slots)
  local results = {}
  for i, slot in ipairs(plan.outputs) do
    results[i] = slots[slot]
  end
  return results
end


-- Runs a step of the kind "many" or "custom".
local function run_many(step, slots, func)
  local inputs = {}
  for i = 1, step.nin do
    inputs[i] = slots[step.inputs[i]]
  end
  local results
  if step.kind == "custom" then
    local dict = {}
    for i = 1, #step.flat, 2 do
      dict[step.flat[i]] = step.flat[i + 1]
    end
    results = require("tycho.ndarray.custom")(inputs, dict, func)
    results = step.nout == 1 and { results } or results
  else
    results = many(step.node.op, func, inputs, step.nin, step.flat, {}, step.nout, true)
  end
  for k = 1, step.nout do
    slots[step.first + k - 1] = results[k]
  end
end


-- Runs a step of the kind "shared".
local function run_shared(step, slots, func)
  local from, values = step.inputs, {}
  for k = 1, step.nin do
    values[k] = slots[from[k]]
  end
  local y = sync.forward(step.layer, unpack(values, 1, step.nin))
  if not y then
    for k = 1, step.nin do
      put_input(k - 1, values[k])
    end
    y = cached(step.alone, func, nil, values)
  end
  slots[step.first] = y
end


-- Runs a step of the kind "made" on the device of the first input.
local function run_made(plan, step, slots, inputs, func)
  local shapes, key
  if step.open then
    shapes, key = infer_open_shapes(plan, inputs)
  end
  local entry = find_made_entry(step, inputs[1]._device, shapes, key)
  if step.nout == 1 then
    slots[step.first] = cached(entry, func, nil, entry)
  else
    local results = many(step.node.op, func, {}, 0, entry.texts, {}, step.nout, true)
    for k = 1, step.nout do
      slots[step.first + k - 1] = results[k]
    end
  end
end


local run_steps                                    -- defined below; calls run_control

-- Runs a step of the kind "control".
local function run_control(step, slots, inputs, func)
  local values = {}
  for k = 1, step.nin do
    values[k] = slots[step.inputs[k]]
  end
  local results = control.run(step, values, function(which, given)
    local plan, inner = step.plans[which], {}
    given = given[1] == nil and { inputs[1] } or given   -- constants in a body need a device
    set_variables(plan, given, inner)
    run_steps(plan, given, inner, func)
    return collect(plan, inner)
  end)
  for k = 1, step.nout do
    slots[step.first + k - 1] = results[k]
  end
end


-- Runs all steps; calls watch(step, slots), if given, after each.
function run_steps(plan, inputs, slots, func, watch)
  local steps = plan.steps
  local lines = recording.lines
  local hold_next = recording.on and lines and recording.hold_next
  for i = 1, #steps do
    local step = steps[i]
    current_step = step
    if lines and step.may_fail then
      recording.hold(step.node.where)
    elseif hold_next then
      hold_next(step.node.where)
    end
    if step.entry then
      local from = step.inputs
      for k = 1, step.nin do
        put_input(k - 1, slots[from[k]])
      end
      slots[step.first] = cached(step.entry, func, nil, slots)
    elseif step.kind == "made" then
      run_made(plan, step, slots, inputs, func)
    elseif step.kind == "shared" then
      run_shared(step, slots, func)
    elseif step.kind == "control" then
      run_control(step, slots, inputs, func)
    else
      run_many(step, slots, func)
    end
    if watch then
      watch(step, slots)
    end
    local free, drop = step.free, step.drop
    for k = 1, #free do
      slots[free[k]] = nil
    end
    for k = 1, #drop do
      if not watch then
        class.release(slots[drop[k]])
      end
      slots[drop[k]] = nil
    end
  end
end


-- Raises an error again, with the line, node and operator of the step that was running.
local function raise_for_step(plan, e)
  local n = current_step and current_step.node
  if n and Error.is_error(e) then
    e.where = n.where ~= "" and n.where or e.where
    e.node = location.find_layer(plan.block, n.name) or n.name
    e.op = e.op or n.op
  end
  error(e, 0)
end


--- Runs a plan. Errors name the line, node and operator of the step that failed.
-- @tparam table plan
-- @tparam {NDArray,...} inputs at least one, all on one device
-- @string func name of the caller, for errors
-- @tparam[opt] function watch called as watch(step, slots) after each step
-- @treturn {NDArray,...} outputs
function replay.run(plan, inputs, func, watch)
  local slots, held = {}, recording.held
  set_variables(plan, inputs, slots)
  local line = recording.release()
  recording.hold(nil)
  local ok, e = pcall(run_steps, plan, inputs, slots, func, watch)
  recording.release()
  if held then
    recording.hold(line)
  end
  if not ok then
    raise_for_step(plan, e)
  end
  return collect(plan, slots)
end


return replay
