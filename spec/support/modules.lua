-- Actions of the recorded steps of modules and buckets on `world.objects`; module_objects.lua makes
-- the objects that they describe.

local attrs = require "tycho.core.attrs"
local modules = require "spec.support.module_objects"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local value = vectors.value
local actions = {}
modules.actions = actions

-- Reading -----------------------------------------------------------------------------------------

-- Returns name -> arrays of the devices, or JSON's null for nil.
local function per_device(names, lists)
  local result = {}
  for k, name in ipairs(names) do
    result[name] = {}
    for i, x in ipairs(lists and lists[k] or {}) do
      result[name][i] = x == ty.null and vectors.null or x
    end
  end
  return result
end

local function group_of(m)
  return (m._curr_module or m)._exec_group
end

local function of(world, step)
  return world.objects[step.of]
end

function actions.grads(world, step)
  local group = group_of(of(world, step))
  return per_device(group.param_names, group.grad_arrays)
end

function actions.device_params(world, step)
  local group = group_of(of(world, step))
  local result = per_device(group.param_names, group.param_arrays)
  for name, list in pairs(per_device(group.aux_names, group.aux_arrays)) do
    result[name] = list
  end
  return result
end

function actions.get_params(world, step)
  local arg_params, aux_params = of(world, step):get_params()
  return { arg = arg_params, aux = aux_params }
end

local function desc_rows(list)
  local rows = {}
  for i, d in ipairs(list or {}) do
    rows[i] = { d[1], d[2] }
  end
  return list and rows
end

function actions.facts(world, step)
  local m = of(world, step)
  local facts = {}
  for _, name in ipairs{ "binded", "params_initialized", "optimizer_initialized", "for_training",
      "inputs_need_grad", "data_names", "output_names" } do
    facts[name] = m[name]
  end
  for _, name in ipairs(m.binded and { "data_shapes", "label_shapes", "output_shapes" } or {}) do
    facts[name] = desc_rows(m[name])
  end
  return facts
end

local function text_keys(t)
  local result = {}
  for key, v in pairs(t) do
    result[type(key) == "number" and ("%d"):format(key) or key] = v
  end
  return result
end

local function optimizer_of(m)
  return (m._curr_module or m)
end

function actions.optimizer_facts(world, step)
  local m = optimizer_of(of(world, step))
  local o = m._optimizer
  return { rescale_grad = o.rescale_grad, idx2name = text_keys(o.idx2name),
    lr_mult = text_keys(o.lr_mult), wd_mult = text_keys(o.wd_mult),
    update_on_kvstore = m._update_on_kvstore, kvstore = m._kvstore and m._kvstore.type,
    num_update = o.num_update, learning_rate = step.result.learning_rate and o.learning_rate }
end

local function plain_state(state)
  if type(state) ~= "table" or getmetatable(state) then
    return state
  end
  local list = {}
  for i, part in ipairs(state) do
    list[i] = part == ty.null and vectors.null or part
  end
  return list
end

function actions.optimizer_states(world, step)
  local m = optimizer_of(of(world, step))
  local updater, result = m._update_on_kvstore and m._kvstore._updater or m._updater, {}
  for index in pairs(updater.states_synced) do
    result[index] = plain_state(updater.states[index])
  end
  return text_keys(result)
end

-- Doing -------------------------------------------------------------------------------------------

function actions.bind(world, step)
  of(world, step):bind{
    data_shapes = modules.descs(step.data), label_shapes = modules.descs(step.label),
    for_training = step.for_training, inputs_need_grad = step.inputs_need_grad,
    force_rebind = step.force_rebind, grad_req = step.grad_req,
    shared_module = step.shared_module and world.objects[step.shared_module],
  }
end

function actions.init_params(world, step)
  of(world, step):init_params{
    initializer = modules.initializer(step.init), arg_params = modules.arrays(world, step.arg),
    aux_params = modules.arrays(world, step.aux), allow_missing = step.allow_missing,
    force_init = step.force_init, allow_extra = step.allow_extra,
  }
end

-- Sets parameters. Without allow_missing the reference ignores unknown names; the engine refuses
-- them unless they are allowed.
function actions.set_params(world, step)
  of(world, step):set_params(modules.arrays(world, step.arg) or {},
    modules.arrays(world, step.aux) or {}, {
      allow_missing = step.allow_missing, allow_extra = step.allow_extra or not step.allow_missing,
    })
end

function actions.init_optimizer(world, step)
  modules.with_setting(step, function()
    of(world, step):init_optimizer{ kvstore = modules.names(step.kvstore),
      optimizer = step.optimizer,
      optimizer_params = modules.optimizer_params(step.optimizer_params) }
  end)
end

function actions.forward(world, step)
  local batch = step.batches and {} or modules.batch(world, step)
  for i, part in ipairs(step.batches or {}) do
    batch[i] = modules.batch(world, part)
  end
  of(world, step):forward(batch, value(step.is_train))
end

function actions.backward(world, step)
  of(world, step):backward(modules.arrays(world, step.out_grads))
  ty.waitall()
end

function actions.forward_backward(world, step)
  of(world, step):forward_backward(modules.batch(world, step))
end

function actions.update(world, step)
  of(world, step):update()
end

function actions.get_outputs(world, step)
  return of(world, step):get_outputs(step.merge ~= false)
end

function actions.get_input_grads(world, step)
  return of(world, step):get_input_grads(step.merge ~= false)
end

function actions.get_states(world, step)
  return of(world, step):get_states(false)
end

function actions.set_states(world, step)
  if step.outputs_from then
    local outputs, states = of(world, step):get_outputs(false), {}
    for i = step.outputs_from[1] + 1, step.outputs_from[2] do
      states[#states + 1] = outputs[i]
    end
    return of(world, step):set_states(states)
  end
  of(world, step):set_states{ value = step.value }
end

--- Returns the metric with a name, which is made on first use.
function modules.named_metric(world, step)
  world.metrics = world.metrics or {}
  world.metrics[step.metric_name] = world.metrics[step.metric_name] or modules.metric(step.metric)
  return world.metrics[step.metric_name]
end

function actions.update_metric(world, step)
  local metric, labels = modules.named_metric(world, step), {}
  if step.pre_sliced then
    for i, keys in ipairs(step.label) do
      labels[i] = modules.arrays(world, keys)
    end
  else
    labels = modules.arrays(world, step.label) or {}
  end
  of(world, step):update_metric(metric, labels, step.pre_sliced)
  return metric:get_name_value()
end

function actions.reshape(world, step)
  of(world, step):reshape{ data_shapes = modules.descs(step.data),
    label_shapes = modules.descs(step.label) }
end

function actions.borrow_optimizer(world, step)
  of(world, step):borrow_optimizer(world.objects[step.from])
end

-- Monitors ----------------------------------------------------------------------------------------

function actions.install_monitor(world, step)
  world.monitor = ty.monitor.Monitor{ step.interval,
    pattern = step.pattern, sort = step.sort }
  of(world, step):install_monitor(world.monitor)
end

function actions.tic(world)
  world.monitor:tic()
end

--- Returns the rows without those whose value is hidden in the recording, since their names are
-- specific to the reference.
function modules.visible(rows, recorded)
  local hidden, list = {}, {}
  for _, row in ipairs(recorded) do
    hidden[row[2]] = value(row[3]) == nil or nil
  end
  for _, row in ipairs(rows) do
    if not hidden[row[2]] then
      list[#list + 1] = row
    end
  end
  return list
end

function actions.toc(world, step)
  local rows = {}
  for i, row in ipairs(world.monitor:toc()) do
    rows[i] = { row[1], row[2], tonumber((row[3]:gsub("\t$", ""))) }
  end
  rows, step.result = modules.visible(rows, step.result), modules.visible(step.result, step.result)
  return rows
end

-- Loops -------------------------------------------------------------------------------------------

-- Returns callbacks that record their arguments; params: copies of the parameters after every
-- epoch.
local function recorder()
  local events, params = {}, {}
  local function batch_event(kind)
    return function(param)
      events[#events + 1] = { kind, param.epoch, param.nbatch, param.eval_metric:get_name_value() }
    end
  end
  local function epoch_event(epoch, symbol, arg_params, aux_params)
    local names, copy = attrs.keys(arg_params), { arg = {}, aux = {} }
    for _, name in ipairs(attrs.keys(aux_params)) do
      names[#names + 1] = name
    end
    for kind, dict in pairs{ arg = arg_params, aux = aux_params } do
      for name, x in pairs(dict) do
        copy[kind][name] = x:copy()
      end
    end
    events[#events + 1] = { "epoch_end", epoch, symbol:list_outputs(), names }
    params[#params + 1] = copy
  end
  return events, params, batch_event, epoch_event
end

modules.recorder = recorder

function actions.fit(world, step)
  local m, log = of(world, step), modules.logger()
  local events, params, batch_event, epoch_event = recorder()
  rawset(m, "_logger", log)
  modules.with_setting(step, function()
    m:fit{
      train_data = modules.iterator(world, step.train),
      eval_data = step.eval and modules.iterator(world, step.eval),
      eval_metric = step.metric and modules.metric(step.metric),
      validation_metric = step.validation_metric and modules.metric(step.validation_metric),
      num_epoch = step.num_epoch, begin_epoch = step.begin_epoch,
      kvstore = modules.names(step.kvstore), optimizer = step.optimizer,
      optimizer_params = modules.optimizer_params(step.optimizer_params),
      arg_params = modules.arrays(world, step.arg), aux_params = modules.arrays(world, step.aux),
      allow_missing = step.allow_missing, initializer = modules.initializer(step.init),
      batch_end_callback = batch_event "batch_end", epoch_end_callback = epoch_event,
      eval_batch_end_callback = batch_event "eval_batch_end",
      eval_end_callback = batch_event "eval_end",
    }
  end)
  return { events = events, params = params, log = log.rows }
end

function actions.score(world, step)
  local events, _, batch_event = recorder()
  local result = of(world, step):score(modules.iterator(world, step.iter),
    modules.metric(step.metric), {
      num_batch = step.num_batch, epoch = step.epoch, batch_end_callback = batch_event "batch_end",
      score_end_callback = batch_event "score_end",
    })
  return { value = result, events = events }
end

function actions.predict(world, step)
  local source = step.array and world.array(step.array) or modules.iterator(world, step.iter)
  return of(world, step):predict(source, { num_batch = step.num_batch,
    merge_batches = step.merge_batches, always_output_list = step.always_output_list })
end

function actions.iter_predict(world, step)
  local rows = {}
  for outputs, index, batch in of(world, step):iter_predict(modules.iterator(world, step.iter),
    { num_batch = step.num_batch }) do
    local copies = {}
    for i, x in ipairs(outputs) do
      copies[i] = x:copy()
    end
    rows[#rows + 1] = { copies, index, batch.pad }
  end
  return rows
end

-- Files -------------------------------------------------------------------------------------------

function actions.save_checkpoint(world, step)
  of(world, step):save_checkpoint(modules.folder(world) .. "/" .. step.prefix, step.epoch,
    step.states and { save_optimizer_states = true } or {})
  return modules.files(world)
end

function actions.save_params(world, step)
  local path = modules.folder(world) .. "/" .. step.file
  of(world, step):save_params(path)
  return ty.nd.load(path)
end

function actions.load_params(world, step)
  of(world, step):load_params(modules.folder(world) .. "/" .. step.file)
end

return modules
