-- training/metrics.json: values of metrics after updates and resets,
-- selection by name, configurations.

local steps = require "spec.support.steps"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local value = vectors.value
local actions = {}

local function flat(t, list)
  list = list or {}
  for _, v in ipairs(t) do
    if type(v) == "table" then
      flat(v, list)
    else
      list[#list + 1] = v
    end
  end
  return list
end

local functions = {}

function functions.sum_abs_diff(label, pred)
  local l, p, sum = flat(label), flat(pred), 0
  for i = 1, #l do
    sum = sum + math.abs(l[i] - p[i])
  end
  return sum
end

function functions.pair_sum_count(label, pred)
  local l, sum = flat(label), 0
  for i, row in ipairs(pred) do
    for _, v in ipairs(type(row) == "table" and flat(row) or { row }) do
      sum = sum + l[i] * v
    end
  end
  return sum, #l
end

-- Returns options; null means none: nothing for most, ty.null where an option must be given.
local function make_options(list)
  local options = {}
  for key, v in pairs(value(list) or {}) do
    options[key] = v == vectors.null and ty.null or v
  end
  return options
end

local function make(spec)
  local options = make_options(spec.args)
  if spec.composite then
    local members = {}
    for i, inner in ipairs(spec.composite) do
      members[i] = make(inner)
    end
    options.metrics = members
    return ty.metric.CompositeEvalMetric(options)
  elseif spec.custom or spec.np then
    local name = spec.custom or spec.np
    options.name = options.name or name          -- functions have no names of their own here
    return (spec.np and ty.metric.np or ty.metric.create)(functions[name], options)
  elseif spec.config then
    return ty.metric.create(spec.config)
  end
  return ty.metric.create(spec.create, options)
end

function actions.make(world, step)
  world.metric = make(step.metric)
end

local function make_arrays(world, keys)
  if type(keys) == "string" then
    return world.array(keys)
  end
  local list = {}
  for i, key in ipairs(keys) do
    list[i] = world.array(key)
  end
  return list
end

function actions.update(world, step)
  world.metric:update(make_arrays(world, step.labels), make_arrays(world, step.preds))
end

local function make_pairs(world, list)
  local result = {}
  for i, pair in ipairs(list) do
    result[i] = { pair[1], world.array(pair[2]) }
  end
  return result
end

function actions.update_dict(world, step)
  world.metric:update_dict(make_pairs(world, step.labels), make_pairs(world, step.preds))
end

function actions.get(world)
  return { world.metric:get() }
end

function actions.get_global(world)
  return { world.metric:get_global() }
end

for _, name in ipairs{ "get_name_value", "get_global_name_value", "reset", "reset_local" } do
  actions[name] = function(world)
    return world.metric[name](world.metric)
  end
end

function actions.num_inst(world)
  return world.metric.num_inst
end

-- Removes options that the reference's configurations lose.
local function without_extra(config, want)
  for _, key in ipairs{ "average", "axis" } do
    config[key] = want[key] ~= nil and config[key] or nil
  end
  for i, inner in ipairs(config.metrics or {}) do
    without_extra(inner, want.metrics[i])
  end
  return config
end

function actions.config(world, step)
  local config = world.metric:get_config()
  return step.result and without_extra(config, step.result)
end

function actions.text(world)
  return tostring(world.metric)
end

return {
  needs = { "tycho.metric" },
  define = function()
    local cases, release = steps.cases("metrics", actions)
    teardown(release)
    for _, case in ipairs(cases) do
      it(case.name, case.run)
    end
  end,
}
