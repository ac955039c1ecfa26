--- The training loop: `fit` of all modules.
--
-- For each batch: forward, backward, the metric, update; then the next batch is fetched and
-- prepared, last since preparing may switch to another bucket. Epochs and batches count from 0. An
-- interruption (Ctrl-C) raises an error object with `epoch` and `nbatch`. An update is never done
-- by halves, so training can be resumed from there.
--
-- @module tycho.module.fit

local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local callback = require "tycho.module.callback"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local EarlyStopping = require "tycho.module.early_stopping"
local Error = require "tycho.core.error"
local evaluation = require "tycho.module.evaluation"
local exists = require("tycho.core.files").exists
local files = require "tycho.model.checkpoint"
local gradients = require "tycho.module.gradients"
local init = require "tycho.initializer"
local LossScale = require "tycho.module.loss_scale"
local Optimizer = require("tycho.optimizer.base").Optimizer
local optimizer_names = require "tycho.module.optimizer_names"
local progress = require "tycho.module.progress"
local ranks = require "tycho.module.ranks"
local values = require "tycho.core.values"

local value = values.value

local BaseModule = {}                                    -- methods, for module/base.lua

local FIT = args.form("Module:fit", {
  advice = optimizer_names.advice,
  { "train_data", "any" }, { "eval_data", "any?" }, { "eval_metric", "any", "acc" },
  { "epoch_end_callback", "callbacks?" }, { "batch_end_callback", "callbacks?" },
  { "kvstore", "any|null?" },
  { "optimizer", "any?" }, { "optimizer_params", "table?" }, { "eval_end_callback", "callbacks?" },
  { "eval_batch_end_callback", "callbacks?" },
  { "initializer", "any|null?" }, { "arg_params", "dict?" }, { "aux_params", "dict?" },
  { "allow_missing", "boolean", false }, { "force_rebind", "boolean", false },
  { "force_init", "boolean", false }, { "begin_epoch", "integer", 0 }, { "num_epoch", "integer" },
  { "validation_metric", "any?" }, { "monitor", "any?" },
  { "sparse_row_id_fn", "any?" }, { "count_pad", "boolean", true }, { "checkpoint", "dict?" },
  { "clip_global_norm", "number?" }, { "accumulate", "integer", 1 }, { "early_stopping", "dict?" },
  { "memory_budget", "number?" }, { "force_mirroring", "boolean?" }, { "in_backward", "boolean?" },
  { "loss_scale", "number|text?" }, { "progress", "boolean", false },
  { "precision", "text?" },
})

local CHECKPOINT = args.form("Module:fit checkpoint", {
  { "prefix", "path" }, { "period", "integer", 1 }, { "resume", "boolean", false },
  files.ON_ERROR,
})


-- Before the first epoch --------------------------------------------------------------------------

local function refuse(self, code, argument, message, expected, got)
  Error.raise{ code = code, func = self:_func("fit"), argument = argument, message = message,
    expected = expected, got = got }
end


local function check_options(self, a)
  evaluation.check_iterator(a.train_data, self:_func("fit"), "train_data")
  if value(a.eval_data) ~= nil then
    evaluation.check_iterator(a.eval_data, self:_func("fit"), "eval_data")
  end
  if a.clip_global_norm and a.clip_global_norm <= 0 then
    refuse(self, "value", "clip_global_norm", "a length that gradients may have is above 0",
      "a number above 0", a.clip_global_norm)
  elseif a.accumulate < 1 then
    refuse(self, "value", "accumulate", "an update takes the gradients of at least one batch",
      "1 or more", a.accumulate)
  elseif a.accumulate > 1 and not self._can_accumulate then
    refuse(self, "unsupported", "accumulate",
      "only a Module and a BucketingModule gather gradients")
  elseif a.in_backward and (a.clip_global_norm or a.accumulate > 1) then
    refuse(self, "unsupported", "in_backward",
      "gradients that are used inside backward cannot be changed before",
      "neither clip_global_norm nor accumulate",
      a.clip_global_norm and "clip_global_norm" or "accumulate")
  elseif a.loss_scale and not self._scale_loss then
    refuse(self, "unsupported", "loss_scale",
      "only a Module and a BucketingModule scale gradients")
  elseif a.loss_scale and a.in_backward then
    refuse(self, "unsupported", "loss_scale",
      "a step inside backward cannot be left out where a gradient overflows",
      "in_backward = false", "true")
  elseif a.early_stopping and value(a.eval_data) == nil then
    refuse(self, "value", "eval_data", "early stopping is decided by the validation",
      "an iterator", "nothing")
  end
end


-- Binds the module for a fit, unless it is bound and the fit asks for nothing different. `bind`,
-- `init_params` and `init_optimizer` warn if their work is done already, so they are called only if
-- needed.
local function bind(self, a)
  local asked = self._bound_by_fit or {}
  local differs = a.memory_budget ~= asked.memory_budget
    or a.force_mirroring ~= asked.force_mirroring or a.precision ~= asked.precision
  if not self.binded or a.force_rebind
      or differs and (a.memory_budget or a.force_mirroring ~= nil or a.precision) then
    evaluation.check_described(a.train_data, self:_func("fit"), "train_data")
    self:bind{ data_shapes = a.train_data.provide_data, label_shapes = a.train_data.provide_label,
      for_training = true, force_rebind = a.force_rebind, grad_req = a.accumulate > 1 and "add"
        or nil, memory_budget = a.memory_budget, force_mirroring = a.force_mirroring,
      precision = a.precision }
    self._bound_by_fit = { memory_budget = a.memory_budget, force_mirroring = a.force_mirroring,
      precision = a.precision }
  end
  if a.accumulate > 1 and self._grad_req ~= "add" then
    refuse(self, "state", "accumulate",
      "the module was bound with gradients that do not add up (force_rebind = true binds again)",
      "grad_req = 'add'", self._grad_req)
  end
end


local function same_initializer(a, b)
  return a == b or Class.is_a(a, init.Initializer) and Class.is_a(b, init.Initializer)
    and a:equals(b)
end


-- Initializes the parameters if they have no values or the options differ from those of the last
-- fit.
local function init_params(self, a)
  local before = self._initialized_by_fit or {}
  local differs = a.initializer ~= nil and not same_initializer(a.initializer, before.initializer)
    or a.arg_params and a.arg_params ~= before.arg_params
    or a.aux_params and a.aux_params ~= before.aux_params
  if not self.params_initialized or a.force_init or differs then
    local done = self.params_initialized and not a.force_init
    self:init_params{ initializer = a.initializer, arg_params = a.arg_params,
      aux_params = a.aux_params, allow_missing = a.allow_missing, force_init = a.force_init }
    self._initialized_by_fit = done and before or { initializer = a.initializer,
      arg_params = a.arg_params, aux_params = a.aux_params }
  end
end


-- Returns the differences between the optimizer that a fit asks for and the one in use, as a list
-- of texts such as "learning_rate = 0.1, not 0.5".
local function optimizer_differences(optimizer, a)
  local list = {}
  local made = (type(a.optimizer) == "string" or Class.is_a(a.optimizer, Optimizer))
    and require("tycho.optimizer").create(a.optimizer)
  if made and getmetatable(made) ~= getmetatable(optimizer)
      or Class.is_a(a.optimizer, Optimizer) and a.optimizer ~= optimizer then
    list[1] = ("optimizer = %s, not %s"):format(optimizer.class_name, made.class_name)
  end
  for _, key in ipairs(attrs.keys(a.optimizer_params or {})) do
    local now, v = rawget(optimizer, key == "learning_rate" and "lr" or key),
      a.optimizer_params[key]
    if now ~= v then
      list[#list + 1] = ("%s = %s, not %s"):format(key, Error.show(now), Error.show(v))
    end
  end
  return list
end


-- Makes the optimizer; if there is one already, it is kept, and options that differ are warned of.
local function init_optimizer(self, a)
  if not self.optimizer_initialized or a.force_init then
    self:init_optimizer{ kvstore = a.kvstore, optimizer = a.optimizer,
      optimizer_params = a.optimizer_params, force_init = a.force_init,
      in_backward = a.in_backward }
    self._stored_by_fit = { kvstore = a.kvstore, in_backward = a.in_backward }
    return
  end
  local before = self._stored_by_fit or {}
  local updater = self:_updaters()[1]
  local list = updater and optimizer_differences(updater[1].optimizer, a) or {}
  for _, key in ipairs{ "kvstore", "in_backward" } do
    if a[key] ~= nil and before[key] ~= a[key] then
      list[#list + 1] = ("%s = %s, not %s"):format(key, Error.show(before[key]), Error.show(a[key]))
    end
  end
  if #list > 0 then
    self.logger:warning(("init_optimizer: the present optimizer stays (force_init = true \z
      makes another): %s"):format(table.concat(list, "; ")))
  end
end


-- Turns the scaling of gradients on or off for this training only.
local function scale_loss(self, a)
  if self._scale_loss then
    a.scaler = a.loss_scale and LossScale(a.loss_scale) or nil
    self:_scale_loss(a.scaler)
  end
end


-- Checks the options, binds, and initializes parameters, optimizer and loss scale.
local function get_ready(self, a)
  check_options(self, a)
  bind(self, a)
  if a.monitor then
    self:install_monitor(a.monitor)
  end
  init_params(self, a)
  init_optimizer(self, a)
  scale_loss(self, a)
  if a.accumulate > 1 then
    gradients.clear(self:_gradients())                   -- what an interrupted fit may have left
  end
end


-- Restores a training from its saved state; returns the first epoch to run.
local function resume(self, a, c, stopping)
  if not (c and c.resume) then
    return a.begin_epoch
  elseif not exists(c.path) then
    self.logger:warning(("there is no file '%s' to resume from: the training begins afresh")
      :format(c.path))
    return a.begin_epoch
  end
  local saved = self:load_state(c.path, { train_data = a.train_data })
  local epoch = saved.epoch or a.begin_epoch
  self.logger:info(("Epoch[%d] resumed from '%s'"):format(epoch, c.path))
  if stopping then
    stopping:go_on(saved.early)
  end
  if a.scaler then
    a.scaler:go_on(saved.loss_scale)
  end
  return epoch
end


local function make_checkpoint(a)
  local c = a.checkpoint and CHECKPOINT(a.checkpoint)
  if c then
    c.path = c.prefix .. ".state"
  end
  return c
end


-- One epoch ---------------------------------------------------------------------------------------

local function first_batch(self, a)
  local batch = evaluation.next_batch(self, a.train_data)
  if batch == nil then
    Error.raise{ code = "state", func = self:_func("fit"), argument = "train_data",
      message = "the iterator has no batch; was it reset?" }
  end
  return batch
end


-- Updates the parameters with the mean of the gathered gradients, clipped if asked for.
local function step(self, a, gathered)
  local parts = (a.clip_global_norm or a.accumulate > 1) and self:_gradients()
  if gathered > 1 then
    gradients.scale(parts, 1 / gathered)
  end
  if a.clip_global_norm then
    gradients.clip(parts, a.clip_global_norm)
  end
  self:update()
end


-- Updates with the gradients of the `gathered` batches since the last update; skips the update if
-- scaled gradients overflow.
local function update(self, a, gathered)
  local scaler = a.scaler
  if not scaler then
    step(self, a, gathered)
  elseif scaler:can_step(self:_gradients(), a.ranks) then
    scaler:divided(self:_updaters(), function() step(self, a, gathered) end)
    scaler:stepped()
  end
  if a.accumulate > 1 then
    gradients.clear(self:_gradients())
  end
end


-- Warns of the first NaN in the outputs that the metric reads, with the node where it begins. Runs
-- before the update, which would spread it.
local function warn_of_nan(self, metric, at)
  if at.nan_reported or not metric.has_nan then
    return
  end
  at.nan_reported = true
  local e = self:_first_bad_number()
  self.logger:warning(("Epoch[%d] Batch[%d] the outputs have NaN%s"):format(at.epoch, at.nbatch,
    e and (", which begins at '%s': %s"):format(e.node, e.message) or ""))
end


-- Runs one batch and returns the next one, nil at the end.
local function run_batch(self, a, metric, batch, gathered, at)
  if a.monitor then
    a.monitor:tic()
  end
  self:forward_backward(batch)
  evaluation.update(self, metric, batch, a.count_pad)
  warn_of_nan(self, metric, at)
  if gathered == a.accumulate then
    update(self, a, gathered)
  end
  local coming = evaluation.next_batch(self, a.train_data)
  if coming ~= nil then
    self:prepare(coming, a.sparse_row_id_fn)
  end
  if a.monitor then
    a.monitor:toc_print()
  end
  return coming
end


-- Runs all batches of an epoch; returns the metric's values over the epoch.
local function run_epoch(self, a, metric, at)
  local batch, totals, gathered = first_batch(self, a), nil, 0
  metric:reset()
  at.nbatch = 0
  while batch ~= nil do
    gathered = gathered % a.accumulate + 1
    local coming = run_batch(self, a, metric, batch, gathered, at)
    if coming == nil then
      if a.ranks then
        a.ranks:reduce(metric)
      end
      totals = metric:get_global_name_value()
    end
    evaluation.report(a.batch_end_callback, self, a, at.epoch, at.nbatch, metric, batch)
    if at.progress then
      at.progress:batch(at.epoch, at.nbatch, metric, batch)
    end
    batch = coming
    at.nbatch = at.nbatch + 1
  end
  if gathered < a.accumulate then
    update(self, a, gathered)
  end
  return totals
end


local function log_values(self, epoch, what, list)
  for _, pair in ipairs(list) do
    self.logger:info(("Epoch[%d] %s-%s=%f"):format(epoch, what, pair[1], pair[2]))
  end
end


-- Scores the validation data, logs the values and returns them.
local function validate(self, a, metric, epoch)
  local list = self:score(a.eval_data, metric, { score_end_callback = a.eval_end_callback,
    epoch = epoch, batch_end_callback = a.eval_batch_end_callback, count_pad = a.count_pad })
  list = a.ranks and a.ranks:share(list) or list
  if not a.progress and not evaluation.logs_values(a.eval_end_callback) then
    log_values(self, epoch, "Validation", list)
  end
  return list
end


-- Gives all devices the same parameters and calls the callbacks of an epoch.
local function hand_on(self, a, epoch)
  if value(a.epoch_end_callback) == nil or a.ranks and not a.ranks:speaks() then
    return self:_equalize_params()
  end
  local arg_params, aux_params = self:get_params()
  self:set_params(arg_params, aux_params)
  evaluation.call_all(a.epoch_end_callback, epoch, self.symbol, arg_params, aux_params)
end


-- Ends an epoch after its batches: runs callbacks and the validation, and resets the iterator.
-- Returns the values of the validation, nil without one.
local function end_epoch(self, a, validation_metric, epoch, stopping)
  local list
  hand_on(self, a, epoch)
  if value(a.eval_data) then
    list = validate(self, a, validation_metric, epoch)
    if stopping then
      stopping:look(self, list, epoch)
    end
  end
  class.outside(a.train_data.reset, a.train_data)
  return list
end


-- Logs the training metrics and the time of an epoch; with `progress` they are stored for one line
-- together with the validation.
local function log_epoch(self, a, at, values_of_train, seconds)
  if at.progress then
    at.progress:trained(at.epoch, at.nbatch, values_of_train, seconds)
  end
  if not a.progress then
    log_values(self, at.epoch, "Train", values_of_train)
    self.logger:info(("Epoch[%d] Time cost=%.3f"):format(at.epoch, seconds))
  end
end


local function save(self, a, checkpoint, epoch, stopping)
  if not a.ranks or a.ranks:speaks() then
    files.attempt(checkpoint.on_error, self.logger, function()
      self:save_state(checkpoint.path, { train_data = a.train_data, epoch = epoch, nbatch = 0,
        early = stopping and stopping:state(),
        loss_scale = a.scaler and a.scaler:state() })
    end)
  end
  if a.ranks then
    a.ranks:note(("epoch %d, '%s'"):format(epoch, checkpoint.path))
  end
end


local function run_epochs(self, a, at, checkpoint, stopping)
  local metric = evaluation.metric(a.eval_metric)
  local validation_metric = a.validation_metric or metric
  for epoch = resume(self, a, checkpoint, stopping), a.num_epoch - 1 do
    if stopping and stopping:is_over() then
      return
    end
    at.epoch = epoch
    local started = callback.clock()
    local totals = run_epoch(self, a, metric, at)
    log_epoch(self, a, at, totals, callback.clock() - started)
    local validation = end_epoch(self, a, validation_metric, epoch, stopping)
    if at.progress then
      at.progress:epoch(validation)
    end
    if checkpoint and (epoch + 1) % math.max(checkpoint.period, 1) == 0 then
      save(self, a, checkpoint, epoch + 1, stopping)
    end
  end
end


local function train(self, a, at)
  local checkpoint = make_checkpoint(a)
  a.ranks = ranks.of(self)
  a.train_data = a.ranks and a.ranks:begin(self, a) or a.train_data
  local stopping = a.early_stopping
    and EarlyStopping(a.early_stopping, checkpoint and checkpoint.prefix)
  if stopping and a.ranks and not a.ranks:speaks() then
    stopping.path = nil
  end
  at.progress = progress.of(self, a)
  run_epochs(self, a, at, checkpoint, stopping)
  if stopping then
    stopping:finish(self)
  end
end


local function get_ready_and_train(self, a, at)
  get_ready(self, a)
  train(self, a, at)
end


--- Trains the module. If it is already bound, initialised or has an optimizer, these are kept, so a
-- second call continues the training.
--
-- An interruption (Ctrl-C) leaves no half-updated parameters, and the error has `epoch` and
-- `nbatch`.
-- @param train_data an iterator
-- @param validation_metric eval_metric by default
-- @param num_epoch the epoch before which training ends, counted from 0
-- @param optimizer an optimizer or its name; "sgd" by default
-- @param kvstore a store or its name; "local" by default, `ty.null`: no store
-- @param optimizer_params {learning_rate = 0.01} by default
-- @param count_pad whether the padding rows of a last batch count in metrics
-- @param batch_end_callback after each batch: a function of `{epoch, nbatch, eval_metric, locals}`,
--   or a list of them
-- @param eval_batch_end_callback as batch_end_callback, after each batch of a validation
-- @param eval_end_callback as batch_end_callback, after a validation
-- @param epoch_end_callback a function of epoch, symbol, arg_params, aux_params, or a list of them
-- @param checkpoint {prefix, period = 1, resume = false, on_error = "stop"}: writes the whole state
--   to `PREFIX.state` after every `period` epochs; `resume` continues from it with bit-equal
--   results. If the file cannot be written, "stop" raises the error, "warn" logs a warning and
--   continues
-- @param clip_global_norm greatest norm that all gradients together, as the optimizer receives
--   them, may have
-- @param accumulate number of batches whose mean gradient makes one update; the last update of an
--   epoch may have fewer (gradients of a parameter that the bucket of the update lacks wait for an
--   update whose bucket has it)
-- @param early_stopping {patience = 3, metric (name; default: the first), larger (whether more is
--   better, needed if it does not follow from the name), min_delta = 0, path}: ends the training
--   after `patience` epochs without a better value over eval_data, sets the module's parameters to
--   those of the best epoch, and leaves these in `path` or `PREFIX-best.params`
-- @param loss_scale for float16 networks: a number by which losses are multiplied while gradients
--   are computed, and by which the optimizer divides them; "dynamic": 32768 at first, halved after
--   each overflow, doubled after 2000 steps without one. A step whose gradients are infinite or NaN
--   is skipped
-- @param progress logs one line for each epoch in place of the usual ones; if standard output and
--   standard error are a terminal, a live line shows rate, metrics, time left and memory
function BaseModule:fit(...)
  local a, at = FIT(...), { epoch = 0, nbatch = 0 }
  at.epoch = a.begin_epoch
  local ok, e = pcall(get_ready_and_train, self, a, at)
  if at.progress then
    at.progress:finish(not ok and e or nil)
  end
  if not ok then
    if Error.is_error(e) and e.code == "interrupted" then
      e.epoch, e.nbatch = at.epoch, at.nbatch
    end
    error(e, 0)
  end
end


return BaseModule
