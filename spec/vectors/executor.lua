-- training/executor.json: binding, running, gradients, reshaping, sharing,
-- monitors, debug text, devices.

local arrays = require "spec.support.arrays"
local json = require "spec.support.json"
local steps = require "spec.support.steps"
local test_device = require "spec.support.device"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local value = vectors.value
local actions = {}

local function device(pair)
  return pair and test_device.of(pair[1], pair[2])
end

local function devices(map)
  local result = {}
  for group, pair in pairs(map or {}) do
    result[group] = device(pair)
  end
  return map and result
end

-- Returns a fresh array for a key, {key, ctx} or null.
local function array(world, spec)
  if value(spec) == nil then
    return ty.null
  elseif type(spec) == "table" then
    return world.array(spec.key):as_in_context(device(spec.ctx))
  end
  return world.array(spec)
end

local function array_table(world, specs)
  local result = {}
  for key, spec in pairs(specs or {}) do
    result[key] = array(world, spec)
    if type(key) == "string" and result[key] == ty.null then
      result[key] = nil
    end
  end
  return specs and result
end

local function symbol(world, step)
  local case = world.case
  return vectors.symbol(step.symbol and case.symbols[step.symbol] or case.symbol)
end

function actions.bind(world, step)
  world.objects[step.as] = symbol(world, step):bind{
    ctx = device(step.ctx) or ty.cpu(),
    args = not step.no_args and array_table(world, step.args) or nil,
    args_grad = array_table(world, value(step.args_grad)),
    grad_req = step.grad_req,
    aux_states = array_table(world, value(step.aux)),
    group2ctx = devices(step.group2ctx),
    shared_exec = step.shared_exec and world.objects[step.shared_exec],
  }
end

-- Returns the shapes of existing arguments. The reference accepts shapes of other names; here that
-- is an error.
local function known_shapes(net, shapes)
  local known = {}
  for _, name in ipairs(net:list_inputs()) do
    known[name] = shapes[name]
  end
  return known
end

function actions.simple_bind(world, step)
  local buffer, net = step.shared_buffer, symbol(world, step)
  if buffer then
    world.objects[buffer] = world.objects[buffer] or {}
  end
  world.objects[step.as] = net:simple_bind{
    ctx = device(step.ctx) or ty.cpu(),
    shapes = known_shapes(net, step.shapes),
    grad_req = step.grad_req == vectors.null and ty.null or step.grad_req,
    type_dict = step.type_dict,
    group2ctx = devices(step.group2ctx),
    shared_exec = step.shared_exec and world.objects[step.shared_exec],
    shared_arg_names = step.shared_arg_names,
    shared_buffer = buffer and world.objects[buffer],
  }
end

-- Returns a dictionary of an executor. All are read, as in the recording; names that occur twice in
-- any of them are refused.
local function dictionary(exe, kind)
  local all = { arg = exe.arg_dict, grad = exe.grad_dict,
    aux = exe.aux_dict, out = exe.output_dict }
  return all[kind]
end

function actions.set(world, step)
  dictionary(world.objects[step.exec], step.kind)[step.name][":"] = world.array(step.value)
end

-- Reads values, so that a failure of an earlier run is raised.
local function read_all(list)
  for _, x in pairs(list or {}) do
    if x ~= ty.null then
      x:wait_to_read()
    end
  end
  return list
end

function actions.get(world, step)
  return read_all(dictionary(world.objects[step.exec], step.kind))
end

function actions.get_list(world, step)
  local exe = world.objects[step.exec]
  local list = step.kind == "out" and exe.outputs or exe[step.kind .. "_arrays"]
  return read_all(list) or "none"
end

function actions.forward(world, step)
  local exe = world.objects[step.exec]
  local outputs = exe:forward{ is_train = step.is_train, args = array_table(world, step.inputs) }
  return not step.quiet and outputs or nil
end

function actions.backward(world, step)
  local exe, heads = world.objects[step.exec], value(step.out_grads)
  if heads == nil then
    exe:backward()
  elseif type(heads) == "string" then
    exe:backward(world.array(heads))
  else
    exe:backward{ out_grads = array_table(world, heads) }
  end
end

function actions.reshape(world, step)
  world.objects[step.as] = world.objects[step.exec]:reshape{
    partial_shaping = step.partial_shaping, allow_up_sizing = step.allow_up_sizing,
    shapes = step.shapes,
  }
  world.logs = world.logs or {}
  world.logs[step.as] = world.logs[step.exec]
end

function actions.copy_params_from(world, step)
  world.objects[step.exec]:copy_params_from(array_table(world, step.arg),
    array_table(world, step.aux), step.allow_extra)
end

local function per_array(read)
  return function(world, step)
    local exe, result = world.objects[step.exec], {}
    for _, kind in ipairs(step.kind and { step.kind } or { "arg", "grad", "aux", "out" }) do
      result[kind] = {}
      for name, x in pairs(dictionary(exe, kind)) do
        result[kind][name] = read(x)
      end
    end
    return step.kind and result[step.kind] or result
  end
end

actions.shapes = per_array(function(x) return x.shape end)
actions.dtypes = per_array(function(x) return x.dtype end)
actions.contexts = per_array(function(x) return test_device.pair(x.context) end)

function actions.shares(world, step)
  local function find(place)
    return dictionary(world.objects[place[1]], place[2])[place[3]]
  end
  return find(step.a):same_memory(find(step.b))
end

function actions.buffer(world, step)
  local shapes = {}
  for name, x in pairs(world.objects[step.of]) do
    shapes[name] = x.shape
  end
  return shapes
end

function actions.monitor(world, step)
  local log = {}
  world.logs = world.logs or {}
  world.logs[step.exec] = log
  world.objects[step.exec]:set_monitor_callback(function(name, x)
    local values, n = arrays.numbers(x)
    local sum = 0
    for i = 0, n - 1 do
      sum = sum + math.abs(values[i])
    end
    log[#log + 1] = { name, x.shape, sum }
  end, step.monitor_all)
end

-- Returns names that are left out on both sides: those of rows without a value, which are internal
-- to the reference, and the inputs of backward nodes, of which only variables have one.
local function hidden_names(exe, rows)
  local hidden, backward = {}, false
  for _, row in ipairs(rows) do
    -- "output": nameless identity nodes
    hidden[row[1]] = value(row[3]) == nil or row[1] == "output" or nil
    backward = backward or row[1]:find("_backward_input", 1, true)
  end
  for _, kind in ipairs(backward and { "arg", "aux" } or {}) do
    for name in pairs(dictionary(exe, kind)) do
      hidden[name] = true
    end
  end
  return hidden
end

local function visible(rows, hidden)
  local list = {}
  for _, row in ipairs(rows) do
    if not hidden[row[1]] then
      list[#list + 1] = row
    end
  end
  return list
end

function actions.monitor_log(world, step)
  local log = world.logs[step.exec]
  local hidden = hidden_names(world.objects[step.exec], step.result)
  steps.same(visible(log, hidden), visible(step.result, hidden), world, "log")
  for i = #log, 1, -1 do
    log[i] = nil
  end
  return step.result
end

function actions.graph(world, step)
  local text, nodes, tail = world.objects[step.exec]:debug_str(), {}, {}
  for op, name in text:gmatch("Op:([^,\n]+), Name=([^\n]+)\n") do
    nodes[#nodes + 1] = { op, name }
  end
  for i, line in ipairs(step.result.tail) do
    tail[i] = text:find(line, 1, true) and line
  end
  return { nodes = nodes, tail = tail }
end

function actions.optimized(world, step)
  local nodes = {}
  for i, node in ipairs(
      json.decode(world.objects[step.exec]:get_optimized_symbol():tojson()).nodes) do
    nodes[i] = { node.op, node.name }
  end
  return nodes
end

-- Checks planned memory. The megabytes themselves differ from the reference's; which of two steps
-- plans more must agree.
function actions.memory(world, step)
  local ours = world.objects[step.exec]:memory().planned
  local before = world.before
  if before and before.theirs > step.result then
    assert.is_true(before.ours > ours,
      ("planned bytes: %d before, %d now"):format(before.ours, ours))
  elseif before and before.theirs < step.result then
    assert.is_true(before.ours < ours,
      ("planned bytes: %d before, %d now"):format(before.ours, ours))
  end
  world.before = { ours = ours, theirs = step.result }
  return step.result
end

function actions.partial_forward(world, step)
  local net, args, aux, shapes = symbol(world, step), {}, {}, {}
  for key, name in pairs(step.params) do
    local kind, argument = key:match("^(%a+):(.*)$");
    (kind == "aux" and aux or args)[argument] = world.array(name)
  end
  for argument, name in pairs(step.inputs) do
    args[argument] = world.array(name)
    shapes[argument] = args[argument].shape
  end
  local exe = net:simple_bind{ ctx = ty.cpu(), shapes = shapes, grad_req = "null" }
  exe:copy_params_from(args, aux)
  local left, n = {}, 0
  repeat
    n = n + 1
    left[n] = exe:partial_forward(n - 1)
  until left[n] == 0 or n > #step.result.left
  return { left = left, outputs = exe.outputs }
end

return {
  needs = { "tycho.executor", "tycho.ndarray" },
  define = function()
    local cases, release = steps.cases("executor", actions)
    teardown(release)
    for _, case in ipairs(cases) do
      it(case.name, function()
        if case.unknown then
          pending(("operator %s is not registered"):format(case.unknown))
        end
        case.run()
      end)
    end
  end,
}
