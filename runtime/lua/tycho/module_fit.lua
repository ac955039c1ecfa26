--- The training loop: `Module:fit`. Adds `fit` to the base of modules.
--
-- For each batch: forward, backward, update, then the metric, before the next batch is fetched and prepared, since
-- preparing may switch to another bucket. Epochs and batches count from 0. An interruption (Ctrl-C) is an error object
-- with `epoch` and `nbatch`; updates are never torn, so training can go on from there.
--
-- @module tycho.module_fit

local args = require "tycho.args"
local BaseModule = require "tycho.module_base"
local Error = require "tycho.error"
local values = require "tycho.values"

local value = values.value

local FIT = args.form("Module:fit", {
  { "train_data", "any" }, { "eval_data", "any?" }, { "eval_metric", "any", "acc" }, { "epoch_end_callback", "any?" },
  { "batch_end_callback", "any?" }, { "kvstore", "any|null?" }, { "optimizer", "any", "sgd" },
  { "optimizer_params", "table?" }, { "eval_end_callback", "any?" }, { "eval_batch_end_callback", "any?" },
  { "initializer", "any|null?" }, { "arg_params", "dict?" }, { "aux_params", "dict?" },
  { "allow_missing", "boolean", false }, { "force_rebind", "boolean", false }, { "force_init", "boolean", false },
  { "begin_epoch", "integer", 0 }, { "num_epoch", "integer" }, { "validation_metric", "any?" }, { "monitor", "any?" },
  { "sparse_row_id_fn", "any?" }, { "count_pad", "boolean", true }, { "checkpoint", "dict?" },
})

local CHECKPOINT = args.form("Module:fit checkpoint", {
  { "prefix", "text" }, { "period", "integer", 1 }, { "resume", "boolean", false },
})


-- Before the first epoch ----------------------------------------------------------------------------------------------

local function get_ready(self, a)
  self:bind{ data_shapes = a.train_data.provide_data, label_shapes = a.train_data.provide_label, for_training = true,
    force_rebind = a.force_rebind }
  if a.monitor then
    self:install_monitor(a.monitor)
  end
  self:init_params{ initializer = a.initializer, arg_params = a.arg_params, aux_params = a.aux_params,
    allow_missing = a.allow_missing, force_init = a.force_init }
  self:init_optimizer{ kvstore = a.kvstore, optimizer = a.optimizer, optimizer_params = a.optimizer_params,
    force_init = a.force_init }
end


local function exists(path)
  local file = io.open(path, "rb")
  return file ~= nil and file:close()
end


-- The file of a training that can be resumed, and where this one begins.
local function resume(self, a)
  if not a.checkpoint then
    return nil, a.begin_epoch
  end
  local c = CHECKPOINT(a.checkpoint)
  c.path = c.prefix .. ".state"
  if c.resume and exists(c.path) then
    return c, self:load_state(c.path, { train_data = a.train_data }).epoch or a.begin_epoch
  end
  return c, a.begin_epoch
end


-- One epoch -----------------------------------------------------------------------------------------------------------

local function first_batch(self, a)
  local batch = a.train_data:next()
  if batch == nil then
    Error.raise{ code = "state", func = self:_func("fit"), argument = "train_data",
      message = "the iterator has no batch; was it reset?" }
  end
  return batch
end


-- Runs one batch and fetches the next one.
local function run_batch(self, a, metric, batch)
  if a.monitor then
    a.monitor:tic()
  end
  self:forward_backward(batch)
  self:update()
  self:_update_metric_of(metric, batch, a.count_pad)
  local coming = a.train_data:next()
  if coming ~= nil then
    self:prepare(coming, a.sparse_row_id_fn)
  end
  if a.monitor then
    a.monitor:toc_print()
  end
  return coming
end


-- Runs all batches; gives the metric's values over the epoch.
local function run_epoch(self, a, metric, at)
  local batch, totals = first_batch(self, a), nil
  metric:reset()
  at.nbatch = 0
  while batch ~= nil do
    local coming = run_batch(self, a, metric, batch)
    totals = coming == nil and metric:get_global_name_value() or nil
    BaseModule._report(a.batch_end_callback, self, a, at.epoch, at.nbatch, metric, batch)
    batch = coming
    at.nbatch = at.nbatch + 1
  end
  return totals
end


local function log_values(self, epoch, what, list)
  for _, pair in ipairs(list) do
    self.logger:info(("Epoch[%d] %s-%s=%f"):format(epoch, what, pair[1], pair[2]))
  end
end


local function validate(self, a, metric, epoch)
  local list = self:score(a.eval_data, metric, { score_end_callback = a.eval_end_callback, epoch = epoch,
    batch_end_callback = a.eval_batch_end_callback, count_pad = a.count_pad })
  log_values(self, epoch, "Validation", list)
end


-- After the batches of an epoch: log, parameters to all devices and callbacks, validation.
local function end_epoch(self, a, validation_metric, epoch)
  local arg_params, aux_params = self:get_params()
  self:set_params(arg_params, aux_params)
  BaseModule._call_all(a.epoch_end_callback, epoch, self.symbol, arg_params, aux_params)
  if value(a.eval_data) then
    validate(self, a, validation_metric, epoch)
  end
  a.train_data:reset()
end


local function clock()
  return require("tycho.callback").clock()
end


local function train(self, a, at)
  local checkpoint, begin = resume(self, a)
  local metric = BaseModule._metric(a.eval_metric)
  local validation_metric = a.validation_metric or metric
  for epoch = begin, a.num_epoch - 1 do
    at.epoch = epoch
    local started = clock()
    log_values(self, epoch, "Train", run_epoch(self, a, metric, at))
    self.logger:info(("Epoch[%d] Time cost=%.3f"):format(epoch, clock() - started))
    end_epoch(self, a, validation_metric, epoch)
    if checkpoint and (epoch + 1) % math.max(checkpoint.period, 1) == 0 then
      self:save_state(checkpoint.path, { train_data = a.train_data, epoch = epoch + 1, nbatch = 0 })
    end
  end
end


--- Trains. What is bound, initialised or has an optimizer stays as it is, so a second call goes on.
--
-- Options: train_data (iterator), eval_data, eval_metric = "acc", validation_metric = eval_metric, begin_epoch = 0,
-- num_epoch (the epoch after the last), optimizer = "sgd", optimizer_params = {learning_rate = 0.01}, kvstore =
-- "local", initializer = Uniform(0.01), arg_params, aux_params, allow_missing = false, force_rebind = false, force_init
-- = false, monitor, count_pad = true (whether rows that fill a last batch count in metrics),
-- batch_end_callback, eval_batch_end_callback, eval_end_callback (each a function of `{epoch, nbatch, eval_metric,
-- locals}` or a list), epoch_end_callback (of epoch, symbol, arg_params, aux_params), checkpoint = {prefix, period = 1,
-- resume = false}: the whole state after each period-th epoch in `PREFIX.state`, from which `resume` goes on bit by
-- bit.
-- @tparam table options
function BaseModule:fit(...)
  local a, at = FIT(...), { epoch = 0, nbatch = 0 }
  at.epoch = a.begin_epoch
  local ok, e = pcall(function()
    get_ready(self, a)
    train(self, a, at)
  end)
  if not ok then
    if Error.is_error(e) and e.code == "interrupted" then
      e.epoch, e.nbatch = at.epoch, at.nbatch
    end
    error(e, 0)
  end
end


return BaseModule
