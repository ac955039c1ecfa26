-- training/optimizers.json: weights, states, rates and counts over some steps of every optimizer.

local tables = require "spec.support.tables"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local value = vectors.value

local function by_index(dict)
  local result = {}
  for key, v in pairs(dict) do
    result[tonumber(key) or key] = v
  end
  return result
end

local function create(case)
  local options = {}
  for key, v in pairs(case.args) do
    options[key] = v == vectors.null and ty.null or v
  end
  if value(case.lr_scheduler) then
    options.lr_scheduler = ty.lr_scheduler[case.lr_scheduler.class](case.lr_scheduler.args)
  end
  options.param_idx2name = value(case.param_idx2name) and by_index(case.param_idx2name)
  options.sym = value(case.symbol) and vectors.symbol(case.symbol)
  local optimizer = ty.optimizer.create(case.optimizer, options)
  if value(case.lr_mult) then
    optimizer:set_lr_mult(by_index(case.lr_mult))
  end
  if value(case.wd_mult) then
    optimizer:set_wd_mult(by_index(case.wd_mult))
  end
  return optimizer
end

local function make_arrays(world, case, prefix)
  local list = {}
  for i, param in ipairs(case.params) do
    local ctx = param.ctx and ty[param.ctx[1]](param.ctx[2]) or ty.cpu()
    list[i] = world.array(prefix .. (i - 1)):as_in_context(ctx)
  end
  return list
end

local function gradients(world, case, step, order, weights)
  local grads = {}
  for _, place in ipairs(order) do
    grads[place + 1] =
      world.array(("g/%d/%d"):format(step, place)):as_in_context(weights[place + 1].context)
  end
  return grads
end

local function update_all(case, updater, order, weights, grads)
  local lists = { {}, {}, {} }
  for i, place in ipairs(order) do
    local index = case.params[place + 1].index
    lists[1][i], lists[2][i], lists[3][i] = index, grads[place + 1], weights[place + 1]
    if case.call ~= "list" then
      updater(index, grads[place + 1], weights[place + 1])
    end
  end
  if case.call == "list" then
    updater(lists[1], lists[2], lists[3])
  end
end

-- Returns copies of the arrays that a step has updated, by position.
local function copies(list, order)
  local result = {}
  for _, place in ipairs(order) do
    result[place] = list[place + 1]:copy()
  end
  return result
end

local function run(world, case)
  local optimizer = create(case)
  local updater = ty.optimizer.get_updater(optimizer)
  local weights, rates = make_arrays(world, case, "w/"), {}
  local result, after = { weights = {}, learning_rate = {}, states = {} }, {}
  for _, row in ipairs(case.set_learning_rate or {}) do
    rates[row.before_step] = row.value
  end
  for i, order in ipairs(case.order) do
    if rates[i - 1] then
      optimizer:set_learning_rate(rates[i - 1])
    end
    local grads = gradients(world, case, i - 1, order, weights)
    update_all(case, updater, order, weights, grads)
    for place, g in pairs(grads) do
      after[place] = g
    end
    result.weights[i], result.learning_rate[i] = copies(weights, order), optimizer.learning_rate
  end
  for i, param in ipairs(case.params) do
    local state = updater.states[param.index]
    result.states[i] = state == nil and ty.null or state
  end
  result.num_update, result.grad_after = optimizer.num_update, case.grad_after and after
  return result
end

return {
  needs = { "tycho.optimizer" },
  define = function()
    local cases, release = tables.cases("optimizers", function(world, case)
      local result = run(world, case)
      if type(case.expect.weights) == "string" then      -- it says "r/w/STEP/PARAM"
        local want = {}
        for i, list in ipairs(result.weights) do
          want[i] = {}
          for place in pairs(list) do
            want[i][place] = { array = ("r/w/%d/%d"):format(i - 1, place) }
          end
        end
        case.expect.weights = want
      end
      return result
    end)
    local level = ty.log.level
    setup(function() ty.log.level = "error" end)
    teardown(function()
      ty.log.level = level
      release()
    end)
    for _, row in ipairs(cases) do
      it(row.name, row.run)
    end
  end,
}
