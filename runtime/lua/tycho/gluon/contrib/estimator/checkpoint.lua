--- CheckpointHandler: saves parameters and the trainer's states, and resumes training from them.
--
-- @module tycho.gluon.contrib.estimator.checkpoint

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local folder = require "tycho.ndarray.folder"
local handlers = require "tycho.gluon.contrib.estimator.handlers"
local log = require "tycho.core.log"
local values = require "tycho.core.values"

local FUNC = "estimator.CheckpointHandler"

--- Saves after a number of epochs or batches, and when a metric is best. Files:
-- `<model_dir>/<model_prefix>-epochEbatchB.params` and `.states`, `...-best...`, and, for a
-- hybridized network, `...-symbol.json`.
-- @type CheckpointHandler
local CheckpointHandler = Class:extend("CheckpointHandler")

local FORM = args.form(FUNC, {
  { "model_dir", "text" }, { "model_prefix", "text", "model" }, { "monitor", "any?" },
  { "verbose", "integer", 0 }, { "save_best", "boolean", false }, { "mode", "text", "auto" },
  { "epoch_period", "integer|null", 1 }, { "batch_period", "integer?" },
  { "max_checkpoints", "positive", 5 },
  { "resume_from_checkpoint", "boolean", false },
})


-- Makes a folder and its parent folders.
local function make_folder(path)
  if not files.exists(path) then
    os.execute("mkdir -p '" .. path:gsub("'", "'\\''") .. "'")
  end
  if not files.exists(path) then
    Error.raise{ code = "io", func = FUNC, argument = "model_dir", got = path,
      message = ("cannot make the folder '%s'"):format(path) }
  end
end


--- @string model_dir folder, which is made if needed
-- @string[opt="model"] model_prefix
-- @param[opt] monitor a metric, needed for save_best
-- @int[opt=0] verbose above 0: a line for each save
-- @bool[opt=false] save_best
-- @string[opt="auto"] mode whether a larger value of the monitor is better: "min", "max", "auto"
-- @int[opt=1] epoch_period number of epochs between two saves; `ty.null`: none after epochs
-- @int[opt] batch_period
-- @int[opt=5] max_checkpoints number of checkpoints that are kept; older ones are removed
-- @bool[opt=false] resume_from_checkpoint whether to continue from the newest checkpoint
function CheckpointHandler:init(...)
  local a = FORM(...)
  if a.save_best then
    handlers.check_monitor(a.monitor, FUNC)
    self._grows = handlers.grows(a.monitor, a.mode, FUNC)
  end
  for key, value in pairs(a) do
    self[key] = value
  end
  self.epoch_period = values.value(a.epoch_period)
  make_folder(a.model_dir)
  self.current_batch, self.current_epoch, self.saved_checkpoints = 0, 0, {}
end


function CheckpointHandler:_path(name)
  return self.model_dir .. "/" .. name
end


-- Resuming ----------------------------------------------------------------------------------------

-- Returns epoch and batch of the newest checkpoint in the folder; nil if there is none. Records all
-- checkpoints.
local function find_newest(self)
  local found = {}
  for _, file in ipairs(folder.files(self.model_dir)) do
    if file:sub(1, #self.model_prefix) == self.model_prefix then
      local rest = file:sub(#self.model_prefix + 1)
      local epoch, batch = rest:match("^%-epoch(%d+)batch(%d+)%.params$")
      if epoch then
        found[#found + 1] = { tonumber(epoch), tonumber(batch), file:gsub("%.params$", "") }
      end
    end
  end
  table.sort(found, function(a, b)
    return a[1] < b[1] or a[1] == b[1] and a[2] < b[2]
  end)
  for i, each in ipairs(found) do
    self.saved_checkpoints[i] = each[3]
  end
  local newest = found[#found]
  return newest and newest[1], newest and newest[2]
end


-- Raises an error for periods that do not fit the unit (epochs or batches) in which training is
-- counted.
local function check_periods(self, estimator)
  local by_batch = estimator.max_batch ~= nil
  if by_batch and (not self.batch_period or self.epoch_period)
      or not by_batch and (not self.epoch_period or self.batch_period) then
    Error.raise{ code = "value", func = FUNC, argument = "resume_from_checkpoint",
      message = ("training by %s is resumed from checkpoints of %s alone; give %s only")
        :format(by_batch and "batches" or "epochs", by_batch and "batches" or "epochs",
          by_batch and "batch_period" or "epoch_period") }
  end
end


-- Returns the number of epochs or batches that remain after a checkpoint.
local function count_remaining(limit, done, what)
  if done >= limit - 1 then
    Error.raise{ code = "value", func = FUNC, argument = "resume_from_checkpoint",
      message =
        ("the checkpoint has all %d %s already; resume_from_checkpoint = false trains from \z
        the beginning"):format(limit, what) }
  end
  return limit - done - 1
end


local function resume_training(self, estimator)
  check_periods(self, estimator)
  self.saved_checkpoints = {}
  local epoch, batch = find_newest(self)
  self.trained_epoch, self.trained_batch = epoch or -1, batch or -1
  if not epoch then
    estimator.logger:info("CheckpointHandler: no checkpoint found, training from the beginning")
    return
  end
  if estimator.max_epoch then
    estimator.max_epoch = count_remaining(estimator.max_epoch, epoch, "epochs")
  else
    estimator.max_batch = count_remaining(estimator.max_batch, batch, "batches")
  end
  local path = self:_path(("%s-epoch%dbatch%d"):format(self.model_prefix, epoch, batch))
  estimator.net:load_parameters{ path .. ".params", ctx = estimator.context }
  estimator.trainer:load_states(path .. ".states")
  estimator.logger:warning(("CheckpointHandler: resumed from epoch %d batch %d, %s to go")
    :format(epoch, batch, estimator.max_epoch and estimator.max_epoch .. " epochs"
      or estimator.max_batch .. " batches"))
end


function CheckpointHandler:train_begin(estimator)
  self.current_epoch, self.current_batch = 0, 0
  self.best = self._grows and -math.huge or math.huge
  if self.resume_from_checkpoint then
    resume_training(self, estimator)
  end
end


-- Saving ------------------------------------------------------------------------------------------

local function save_symbol(self, estimator)
  local file = self:_path(self.model_prefix .. "-symbol.json")
  local trace = rawget(estimator.net, "_last_trace")
  if trace and rawget(estimator.net, "_active") then
    trace.symbol:save(file)
  else
    estimator.logger:info(("the network's graph is not saved as %s: it is not hybridized")
      :format(file))
  end
end


local function save_files(self, estimator, name)
  estimator.net:save_parameters(self:_path(name .. ".params"))
  estimator.trainer:save_states(self:_path(name .. ".states"))
end


-- Removes the oldest checkpoints if there are more than max_checkpoints.
local function remove_old(self)
  while #self.saved_checkpoints > self.max_checkpoints do
    local name = table.remove(self.saved_checkpoints, 1)
    for _, suffix in ipairs{ ".params", ".states" } do
      os.remove(self:_path(name .. suffix))
    end
  end
end


local function save_best(self, estimator)
  local name, value = self.monitor:get()
  if value ~= value then
    log:warning(("CheckpointHandler: %s has no value, so the best one is not saved; the monitor \z
      must be one of the estimator's metrics"):format(name))
    return
  end
  local better = value < self.best
  if self._grows then
    better = value > self.best
  end
  if better then
    save_files(self, estimator, self.model_prefix .. "-best")
  end
  if self.verbose > 0 then
    estimator.logger:info(("[Epoch %d] CheckpointHandler: %s %s %.5f"):format(self.current_epoch,
      name, better and ("improved from %.5f to"):format(self.best) or "did not improve from",
      better and value or self.best))
  end
  self.best = better and value or self.best
end


local function save_checkpoint(self, estimator)
  local epoch, batch = self.current_epoch, self.current_batch
  if self.resume_from_checkpoint then
    epoch = epoch + self.trained_epoch + 1
    batch = batch + self.trained_batch + (estimator.max_epoch and 0 or 1)
  end
  local name = ("%s-epoch%dbatch%d"):format(self.model_prefix, epoch, batch)
  save_files(self, estimator, name)
  self.saved_checkpoints[#self.saved_checkpoints + 1] = name
  remove_old(self)
  if self.verbose > 0 then
    estimator.logger:info(("[Epoch %d] CheckpointHandler: trained total %d batches, saved %s")
      :format(self.current_epoch, self.current_batch + 1, self:_path(name)))
  end
  if self.save_best then
    save_best(self, estimator)
  end
end


function CheckpointHandler:batch_end(estimator)
  if self.current_batch == 0 then
    save_symbol(self, estimator)
  end
  if self.batch_period and (self.current_batch + 1) % self.batch_period == 0 then
    save_checkpoint(self, estimator)
  end
  self.current_batch = self.current_batch + 1
end


function CheckpointHandler:epoch_end(estimator)
  if self.epoch_period and (self.current_epoch + 1) % self.epoch_period == 0 then
    save_checkpoint(self, estimator)
  end
  self.current_epoch = self.current_epoch + 1
end


return CheckpointHandler
