-- training/module.json: life cycle, binding, parameters, optimizers, stores,
-- training, prediction, shapes, chains.

local faults = require "spec.support.faults"
local modules = require "spec.support.modules"
local steps = require "spec.support.steps"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local OTHER_ROWS = "the reference refuses an array with other rows than bound on a module with \z
  labels; here it runs"

faults.module = {
  predict_1 = { [15] = OTHER_ROWS },
  predict_2 = { [15] = OTHER_ROWS },
  label_optional = { [10] = OTHER_ROWS },
  group2ctxs_data_outside = {
    [1] = "the reference refuses gradients of data outside every group; here they work" },
}

local actions = setmetatable({}, { __index = modules.actions })

function actions.module(world, step)
  local case = world.case
  world.objects[step.as] = ty.mod.Module{
    symbol = vectors.symbol(step.symbol and case.symbols[step.symbol] or case.symbol),
    context = modules.contexts(step.context), work_load_list = step.work_load_list,
    data_names = step.data_names, label_names = modules.names(step.label_names),
    fixed_param_names = step.fixed_param_names, state_names = step.state_names,
    group2ctxs = modules.groups(step.group2ctxs), logger = modules.logger(),
  }
end

function actions.sequential(world, step)
  local chain = ty.mod.SequentialModule{ logger = modules.logger() }
  for _, row in ipairs(step.modules) do
    chain:add(world.objects[row[1]], row[2])
  end
  world.objects[step.as] = chain
end

function actions.load_checkpoint(world, step)
  world.objects[step.as] = ty.mod.Module.load(modules.folder(world) .. "/" .. step.prefix,
    step.epoch, { load_optimizer_states = step.states, context = modules.contexts(step.context) })
end

-- conv_bias is before BatchNorm: its gradient is rounding noise, which Adam scales up
-- to whole steps of 0.02. It and the mean that BatchNorm keeps wander by that much;
-- nothing else depends on them.
local STEPS_OF_NOISE = 0.02

function actions.fit(world, step)
  if world.case.name:find("^fit_conv.*_adam$") then
    world.atol = STEPS_OF_NOISE
  end
  return modules.actions.fit(world, step)
end

return {
  needs = { "tycho.module", "tycho.optimizer", "tycho.metric", "tycho.kvstore" },
  define = function()
    local cases, release = steps.cases("module", actions)
    teardown(release)
    for _, case in ipairs(cases) do
      it(case.name, case.run)
    end
  end,
}
