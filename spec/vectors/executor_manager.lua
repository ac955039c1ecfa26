-- training/executor_manager.json: splitting, managers with and without buckets, the
-- module layer's group, FeedForward.

local faults = require "spec.support.faults"
local modules = require "spec.support.modules"
local steps = require "spec.support.steps"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

faults.executor_manager = {
  manager_errors = { [6] =
    "the refused set_params before it copied some arrays to one device; here it copies none" },
}

local value = vectors.value
local manager = ty.executor_manager
local actions = {}

local function of(world, step)
  return world.objects[step.of]
end

local function symbol(world, name)
  return vectors.symbol(world.case.symbols[name])
end

function actions.split(_, step)
  return manager._split_input_slice(step.batch_size, step.work_load_list)
end

function actions.check_arguments(world, step)
  manager._check_arguments(symbol(world, step.symbol))
end

-- Returns a table with the fields of an iterator, from which no batch is taken.
local function provider(spec)
  return { provide_data = modules.descs(spec.data), provide_label = modules.descs(spec.label) or {},
    batch_size = spec.batch_size, default_bucket_key = spec.default_bucket_key }
end

function actions.manager(world, step)
  local buckets = step.buckets
  world.objects[step.as] = manager.DataParallelExecutorManager{
    symbol = symbol(world, step.symbol), ctx = modules.contexts(step.context),
    train_data = provider(step.train_data), work_load_list = step.work_load_list,
    sym_gen = buckets and function(key) return symbol(world, buckets[("%d"):format(key)]) end,
  }
end

function actions.group(world, step)
  local net = symbol(world, step.symbol)
  local inputs, params = {}, {}
  for _, list in ipairs{ step.data, step.label } do
    for _, d in ipairs(list) do
      inputs[d[1]] = true
    end
  end
  for _, name in ipairs(net:list_arguments()) do
    params[#params + 1] = not inputs[name] and name or nil
  end
  world.objects[step.as] = ty.mod.DataParallelExecutorGroup{
    symbol = net, contexts = modules.contexts(step.context), workload = step.work_load_list,
    data_shapes = modules.descs(step.data), label_shapes = modules.descs(step.label),
    param_names = params, for_training = step.for_training,
    inputs_need_grad = step.inputs_need_grad, grad_req = step.grad_req,
    fixed_param_names = step.fixed_param_names,
    shared_group = step.shared_group and world.objects[step.shared_group],
  }
end

function actions.facts(world, step)
  local group, facts = of(world, step), {}
  for _, name in ipairs{ "slices", "data_names", "label_names", "param_names",
      "grad_req", "batch_size" } do
    facts[name] = group[name]
  end
  facts.output_shapes = group:get_output_shapes()
  return facts
end

function actions.set_params(world, step)
  of(world, step):set_params(modules.arrays(world, step.arg), modules.arrays(world, step.aux) or {})
end

local function read(world, step)
  return modules.arrays(world, step.arg), modules.arrays(world, step.aux) or {}
end

function actions.copy_to(world, step)
  local arg_params, aux_params = read(world, step)
  of(world, step):copy_to(arg_params, aux_params)
  return { arg = arg_params, aux = aux_params }
end

function actions.get_params(world, step)
  local arg_params, aux_params = read(world, step)
  of(world, step):get_params(arg_params, aux_params)
  return { arg = arg_params, aux = aux_params }
end

function actions.load_data_batch(world, step)
  of(world, step):load_data_batch(modules.batch(world, step))
end

-- Runs forward. A manager's batch is loaded before, a group's is an argument.
function actions.forward(world, step)
  if step.data then
    of(world, step):forward(modules.batch(world, step), value(step.is_train))
  else
    of(world, step):forward(step.is_train)
  end
end

function actions.backward(world, step)
  of(world, step):backward()
end

function actions.outputs(world, step)
  local result = {}
  for i, exe in ipairs(of(world, step).curr_execgrp.train_execs) do
    result[i] = exe.outputs
  end
  return result
end

function actions.inputs(world, step)
  local group = of(world, step).curr_execgrp
  return { data = group.data_arrays, label = group.label_arrays }
end

function actions.device_arrays(world, step)
  return of(world, step)[step.kind .. "_arrays"] or "none"
end

function actions.get_outputs(world, step)
  return of(world, step):get_outputs(step.merge ~= false)
end

function actions.get_input_grads(world, step)
  return of(world, step):get_input_grads(step.merge ~= false)
end

function actions.reshape(world, step)
  of(world, step):reshape(modules.descs(step.data), modules.descs(step.label))
end

function actions.update_metric(world, step)
  local metric = modules.named_metric(world, step)
  of(world, step):update_metric(metric, modules.arrays(world, step.label))
  return metric:get_name_value()
end

function actions.shares(world, step)
  local function find(place)
    local object = world.objects[place[1]]
    local execs = object.execs or object.train_execs or object.execgrp.train_execs
    return execs[place[2] + 1][place[3] .. "_dict"][place[4]]
  end
  return find(step.a):same_memory(find(step.b))
end

function actions.feed_forward(world, step)
  local events, params, batch_event, epoch_event = modules.recorder()
  local options = modules.optimizer_params(step.optimizer_params)
  options.symbol, options.ctx = symbol(world, step.symbol), modules.contexts(step.context)
  options.num_epoch, options.optimizer = step.num_epoch, step.optimizer
  options.arg_params, options.aux_params = modules.arrays(world, step.arg), {}
  local f = ty.model.FeedForward(options)
  f:fit{
    X = modules.iterator(world, step.train), eval_data = modules.iterator(world, step.eval),
    eval_metric = step.metric,
    kvstore = step.kvstore, logger = modules.logger(), batch_end_callback = batch_event "batch_end",
    epoch_end_callback = epoch_event, eval_batch_end_callback = batch_event "eval_batch_end",
    eval_end_callback = batch_event "eval_end",
  }
  return { events = events, params = params,
    predict = f:predict(modules.iterator(world, step.predict)),
    score = f:score(modules.iterator(world, step.predict), step.metric) }
end

return {
  needs = { "tycho.executor_manager", "tycho.module", "tycho.optimizer", "tycho.metric",
    "tycho.kvstore" },
  define = function()
    local cases, release = steps.cases("executor_manager", actions)
    teardown(release)
    for _, case in ipairs(cases) do
      it(case.name, case.run)
    end
  end,
}
