-- training/callbacks.json: monitors, speedometers, progress bars, logs of
-- metrics, checkpoints by callback.

local modules = require "spec.support.modules"
local steps = require "spec.support.steps"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local actions = {}

function actions.simple_bind(world, step)
  local case = world.case
  local net = vectors.symbol(case.symbol or case.symbols[step.symbol])
  local exe = net:simple_bind{ ctx = ty.cpu(), shapes = step.shapes }
  for name, key in pairs(step.values) do
    local target = exe.arg_dict[name] or exe.aux_dict[name]
    target[":"] = world.array(key)
  end
  world.objects[step.as] = exe
end

-- Monitors ----------------------------------------------------------------------------------------

local STATS = {
  mean_abs = function(x) return x:abs():mean() end,
  max_min = function(x) return { x:max(), x:min() } end,
  bad = function() return 3 end,
}

function actions.monitor(world, step)
  world.objects[step.as] = ty.monitor.Monitor{ step.interval, stat_func = STATS[step.stat],
    sort = step.sort, pattern = step.pattern,
    monitor_all = step.monitor_all }
end

function actions.install(world, step)
  world.objects[step.monitor]:install(world.objects[step.exec])
end

function actions.tic(world, step)
  world.objects[step.monitor]:tic()
end

function actions.forward(world, step)
  world.objects[step.exec]:forward(step.is_train ~= false)
end

function actions.backward(world, step)
  world.objects[step.exec]:backward()
end

function actions.toc(world, step)
  local rows = {}
  for i, row in ipairs(world.objects[step.monitor]:toc()) do
    local list = {}
    for number in row[3]:gmatch("[^\t]+") do
      list[#list + 1] = tonumber(number)
    end
    rows[i] = { row[1], row[2], list }
  end
  if step.result then
    rows, step.result = modules.visible(rows, step.result),
      modules.visible(step.result, step.result)
  end
  return rows
end

-- Callbacks ---------------------------------------------------------------------------------------

function actions.metric(world, step)
  world.metric = modules.metric(step.create)
end

function actions.metric_update(world, step)
  world.metric:update({ world.array(step.label) }, { world.array(step.pred) })
end

function actions.metric_get(world)
  return { world.metric:get_name_value(), world.metric:get_global_name_value() }
end

function actions.speedometer(world, step)
  world.objects[step.as] = ty.callback.Speedometer{ step.batch_size, frequent = step.frequent,
    auto_reset = step.auto_reset }
end

function actions.progress_bar(world, step)
  world.objects[step.as] = ty.callback.ProgressBar{ step.total, length = step.length }
end

function actions.log_train_metric(world, step)
  world.objects[step.as] = ty.callback.log_train_metric(step.period, step.auto_reset)
end

function actions.log_validation(world, step)
  world.objects[step.as] = ty.callback.LogValidationMetricsCallback()
end

-- Runs f with a stopped clock and gives the lines that were logged.
local function logged(time, f)
  local clock, sink, level, lines = ty.callback.clock, rawget(ty.log, "sink"), ty.log.level, {}
  ty.callback.clock = function() return time or 0 end
  ty.log.level, ty.log.sink = "info", function(_, text) lines[#lines + 1] = text end
  local ok, e = pcall(f)
  ty.callback.clock, ty.log.sink, ty.log.level = clock, sink, level
  if not ok then
    error(e, 0)
  end
  return lines
end

function actions.call(world, step)
  return logged(step.time, function()
    world.objects[step.of]{ epoch = step.epoch, nbatch = step.nbatch,
      eval_metric = step.metric ~= false and world.metric or nil, locals = {} }
  end)
end

-- Checkpoints -------------------------------------------------------------------------------------

-- Returns a prefix in an empty folder, with which each step begins.
local function make_prefix(world)
  local folder = modules.folder(world)
  for _, file in ipairs(modules.files(world).files) do
    os.remove(folder .. "/" .. file)
  end
  return folder .. "/ck"
end

local function small_net()
  return ty.sym.FullyConnected{ data = ty.sym.Variable("data"), num_hidden = 2, name = "fc" }
end

function actions.do_checkpoint(world, step)
  local f = ty.callback.do_checkpoint(make_prefix(world), step.period)
  for _, epoch in ipairs(step.epochs) do
    f(epoch, small_net(), { w = ty.nd.full({ 2 }, epoch) }, { a = ty.nd.zeros(1) })
  end
  local list = {}
  for i, file in ipairs(modules.files(world).files) do
    local recorded = step.result[i]
    list[i] = { file,
      vectors.value(recorded[2]) and ty.nd.load(world.folder .. "/" .. file) or vectors.null }
  end
  return list
end

function actions.module_checkpoint(world, step)
  local m = ty.mod.Module{ symbol = small_net(), label_names = ty.null }
  m:bind{ data_shapes = { { "data", { 2, 3 } } } }
  m:init_params()
  m:init_optimizer()
  local f = ty.callback.module_checkpoint(m, make_prefix(world), step.period,
    step.save_optimizer_states)
  for _, epoch in ipairs(step.epochs) do
    f(epoch)
  end
  return modules.files(world).files
end

return {
  needs = { "tycho.callback", "tycho.monitor", "tycho.module", "tycho.metric" },
  define = function()
    local cases, release = steps.cases("callbacks", actions)
    teardown(release)
    for _, case in ipairs(cases) do
      it(case.name, case.run)
    end
  end,
}
