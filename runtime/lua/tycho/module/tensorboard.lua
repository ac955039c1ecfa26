--- A callback that writes a training for TensorBoard: `ty.callback.TensorBoard`.
--
-- @module tycho.module.tensorboard

local args = require "tycho.core.args"
local checkpoint = require "tycho.model.checkpoint"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local pairs = require("tycho.core.iterate").pairs
local ranks = require "tycho.module.ranks"
local ty_now = require("tycho.core.ffi").C.ty_profile_now

--- Writes a training as event files. Fields: writer, step (batches since the start).
-- @type TensorBoard
local TensorBoard = Class:extend("TensorBoard")

local FORM = args.form("callback.TensorBoard", {
  { "dir", "text" }, "*", { "period", "positive", 10 }, { "histograms", "boolean", true },
  { "graph", "boolean", true }, { "hparams", "dict?" }, checkpoint.ON_ERROR,
})


--- Makes the folder and an event file in it.
-- @string dir folder of the run, such as "runs/first"
-- @tparam[opt] table options period (10: batches between points of a curve), histograms (true: of
--   all parameters after each epoch), graph (true: the network), hparams (numbers, texts and
--    booleans by name: the run becomes a row of TensorBoard's table), on_error ("stop" raises if
--   the file cannot be written, "warn" continues without it)
function TensorBoard:init(...)
  local a = FORM(...)
  self.dir, self.step = a.dir, 0
  self._period, self._histograms, self._graph = a.period, a.histograms, a.graph
  self._hparams, self._on_error = a.hparams, a.on_error
  self._samples = 0
  self:_attempt(function() self.writer = require("tycho.tensorboard").Writer{ dir = a.dir } end)
end


function TensorBoard.__tostring(self)
  return ("<TensorBoard %s>"):format(self.dir)
end


-- Calls f, which writes to the file. With on_error = "warn" a failure is logged, and the training
-- continues without event files.
function TensorBoard:_attempt(f)
  local ok, e = pcall(f)
  if ok then
    return
  elseif self._on_error ~= "warn" or not Error.is_error(e) or e.code ~= "io" then
    error(e, 0)
  end
  self.writer = nil
  log:warning("TensorBoard: the training continues without event files: " .. e.message)
end


-- Writes the metric's values. A local value is NaN if another callback has just cleared the local
-- sums; the value over the epoch is written then.
local function add_metric(self, part, metric)
  local whole = metric and metric:get_global_name_value() or {}
  for i, pair in ipairs(metric and metric:get_name_value() or {}) do
    local value = pair[2] == pair[2] and pair[2] or whole[i] and whole[i][2]
    if type(value) == "number" then
      self.writer:add_scalar(part .. "/" .. pair[1], value, self.step)
    end
  end
end


-- Returns the number of batches in an epoch if the iterator has a number of rows, else 0.
local function batches_of(data)
  local rows, size = rawget(data or {}, "num_data"), rawget(data or {}, "batch_size")
  return type(rows) == "number" and type(size) == "number" and size > 0
    and math.ceil(rows / size) or 0
end


-- Writes the graph and the hyperparameters after the first batch, when they are known. The step of
-- a resumed training starts with its epoch.
local function begin(self, param)
  local where, module = param.locals or {}, (param.locals or {}).self
  self._begun = true
  self.step = param.epoch * batches_of(where.train_data) + param.nbatch
  local symbol = module and module.symbol
  if self._graph and symbol then
    local shapes = {}
    for _, list in ipairs{ module.data_shapes or {}, module.label_shapes or {} } do
      for _, desc in ipairs(list) do
        shapes[desc[1]] = desc[2]
      end
    end
    self.writer:add_graph(symbol, shapes)
  end
  if self._hparams then
    local tags = {}
    for _, pair in ipairs(param.eval_metric and param.eval_metric:get_name_value() or {}) do
      tags[#tags + 1] = "train/" .. pair[1]
      tags[#tags + 1] = where.eval_data and "validation/" .. pair[1] or nil
    end
    self.writer:add_hparams(self._hparams, tags)
  end
end


local function learning_rate(module)
  local updater = module and module._updaters and module:_updaters()[1]
  local optimizer = updater and updater[1].optimizer
  return optimizer and optimizer.learning_rate
end


-- Records a batch of the training, and writes its values at every `period`-th step.
local function after_batch(self, param)
  if not self._begun then
    begin(self, param)
  end
  local where, now = param.locals or {}, tonumber(ty_now())
  local data = where.data_batch and where.data_batch.data
  self._samples = self._samples + (data and data[1] and data[1].shape[1] or 0)
  if self.step % self._period == 0 then
    add_metric(self, "train", param.eval_metric)
    local rate = learning_rate(where.self)
    if rate then
      self.writer:add_scalar("train/learning_rate", rate, self.step)
    end
    if self._since and self._samples > 0 then
      self.writer:add_scalar("train/samples_per_second",
        self._samples / (now - self._since) * 1e9, self.step)
    end
    self._since, self._samples = now, 0
  end
  self.step = self.step + 1
end


local function after_epoch(self, arg_params, aux_params)
  for _, dict in ipairs(self._histograms and { arg_params or {}, aux_params or {} } or {}) do
    for name, x in pairs(dict) do
      self.writer:add_histogram("parameters/" .. name, x, self.step)
    end
  end
  self.writer:flush()
  self._since = nil                                      -- the rate does not include validation
end


--- Writes the values of a batch, an epoch or a validation. `fit` calls it: one object serves as
-- `batch_end_callback`, `epoch_end_callback` and `eval_end_callback`.
-- @param what the table `{epoch, nbatch, eval_metric, locals}` after a batch or a validation, the
--   number of the epoch after an epoch
-- @param[opt] _ the symbol
-- @tparam[opt] table arg_params
-- @tparam[opt] table aux_params
function TensorBoard:__call(what, _, arg_params, aux_params)
  local where = type(what) == "table" and what.locals or {}
  local all = where.self and where.self._stores and ranks.of(where.self)
  if not self.writer or all and not all:speaks() then
    return
  end
  self:_attempt(function()
    if type(what) ~= "table" then
      after_epoch(self, arg_params, aux_params)
    elseif where.self and not where.data_batch then
      add_metric(self, "validation", what.eval_metric)
      self.writer:flush()
    else
      after_batch(self, what)
    end
  end)
end


--- Writes buffered records and closes the file.
function TensorBoard:close()
  if self.writer then
    self:_attempt(function() self.writer:close() end)
  end
end


return TensorBoard
