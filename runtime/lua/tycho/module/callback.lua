--- Callbacks for training: `ty.callback`.
--
-- A batch callback is a function of a table `{epoch, nbatch, eval_metric, locals}`, an epoch
-- callback one of epoch, symbol, arg_params, aux_params. Text goes to `ty.log`. Epochs and batches
-- count from 0.
--
--     mod:fit{ ..., batch_end_callback = ty.callback.Speedometer(32, 50),
--              epoch_end_callback = ty.callback.do_checkpoint("run/m") }
--
-- @module tycho.callback

local args = require "tycho.core.args"
local checkpoint = require "tycho.model.checkpoint"
local Class = require "tycho.core.class"
local log = require "tycho.core.log"
local C = require("tycho.core.ffi").C
local namespace = require "tycho.core.namespace"

local callback = {}


-- Time --------------------------------------------------------------------------------------------

--- Returns the seconds since a fixed moment. Programs may assign another function.
-- @treturn number
function callback.clock()
  return tonumber(C.ty_profile_now()) * 1e-9
end


-- Checkpoints -------------------------------------------------------------------------------------

local DO = args.form("callback.do_checkpoint",
  { { "prefix", "path" }, { "period", "integer", 1 }, checkpoint.ON_ERROR })

--- Returns an epoch callback that saves a checkpoint after every `period` epochs.
-- @string prefix
-- @int[opt=1] period
-- @string[opt="stop"] on_error if it cannot be written: "stop" raises, "warn" logs and continues
function callback.do_checkpoint(...)
  local a = DO(...)
  local period = math.max(a.period, 1)
  return function(epoch, symbol, arg_params, aux_params)
    if (epoch + 1) % period == 0 then
      checkpoint.attempt(a.on_error, log, function()
        checkpoint.save_checkpoint(a.prefix, epoch + 1, symbol, arg_params, aux_params)
      end)
    end
  end
end


local MODULE = args.form("callback.module_checkpoint", {
  { "mod", "any" }, { "prefix", "path" }, { "period", "integer", 1 },
  { "save_optimizer_states", "boolean", false }, checkpoint.ON_ERROR,
})

--- Returns an epoch callback that saves the module's checkpoint after every `period` epochs, with
-- the optimizer's states if `save_optimizer_states`.
-- @param mod
-- @string prefix
-- @int[opt=1] period
-- @bool[opt=false] save_optimizer_states
-- @string[opt="stop"] on_error if it cannot be written: "stop" raises, "warn" logs and continues
function callback.module_checkpoint(...)
  local a = MODULE(...)
  local period = math.max(a.period, 1)
  return function(epoch)
    if (epoch + 1) % period == 0 then
      checkpoint.attempt(a.on_error, log, function()
        a.mod:save_checkpoint(a.prefix, epoch + 1,
          { save_optimizer_states = a.save_optimizer_states })
      end)
    end
  end
end


-- Logs --------------------------------------------------------------------------------------------

local TRAIN = args.form("callback.log_train_metric",
  { { "period", "integer" }, { "auto_reset", "boolean", false } })

--- Returns a batch callback that logs the metric's values every `period` batches.
-- @int period
-- @bool[opt=false] auto_reset clears the metric's local sums after each line
function callback.log_train_metric(...)
  local a = TRAIN(...)
  return function(param)
    if param.nbatch % a.period ~= 0 or not param.eval_metric then
      return
    end
    for _, pair in ipairs(param.eval_metric:get_name_value()) do
      log:info(("Iter[%d] Batch[%d] Train-%s=%f")
        :format(param.epoch, param.nbatch, pair[1], pair[2]))
    end
    if a.auto_reset then
      param.eval_metric:reset_local()
    end
  end
end


local LogValidation = Class:extend("LogValidationMetricsCallback")
LogValidation.logs_values = true                         -- so that `fit` does not log them again

function LogValidation.__call(_, param)
  for _, pair in ipairs(param.eval_metric and param.eval_metric:get_name_value() or {}) do
    log:info(("Epoch[%d] Validation-%s=%f"):format(param.epoch, pair[1], pair[2]))
  end
end


--- Returns an evaluation callback that logs the metric's values; `fit` then leaves out its line.
function callback.LogValidationMetricsCallback()
  return LogValidation()
end


local SPEED = args.form("callback.Speedometer", {
  { "batch_size", "number" }, { "frequent", "integer", 50 }, { "auto_reset", "boolean", true },
})

-- Returns the metric's values as text, "<TAB>accuracy=0.5" for each value.
local function values_text(metric)
  local parts = {}
  for _, pair in ipairs(metric:get_name_value()) do
    parts[#parts + 1] = ("\t%s=%f"):format(pair[1], pair[2])
  end
  return table.concat(parts)
end


local function speed_line(a, param, speed)
  local metric, n = param.eval_metric, param.nbatch
  if not metric then
    return ("Iter[%d] Batch [%d]\tSpeed: %.2f samples/sec"):format(param.epoch, n, speed)
  end
  local text = values_text(metric)
  if a.auto_reset then
    metric:reset_local()
  end
  local first = a.auto_reset and n - a.frequent or 0
  return ("Epoch[%d] Batch [%d-%d]\tSpeed: %.2f samples/sec%s")
    :format(param.epoch, first, n, speed, text)
end


--- Returns a batch callback that logs samples per second and the metric's values every `frequent`
-- batches. The first call of an epoch starts the clock.
-- @number batch_size samples in a batch
-- @int[opt=50] frequent
-- @bool[opt=true] auto_reset clears the metric's local sums after each line
function callback.Speedometer(...)
  local a = SPEED(...)
  local started, last = nil, 0
  return function(param)
    local n = param.nbatch
    if n < last then
      started = nil
    end
    last = n
    if not started then
      started = callback.clock()
    elseif n % a.frequent == 0 then
      log:info(speed_line(a, param, a.frequent * a.batch_size / (callback.clock() - started)))
      started = callback.clock()
    end
  end
end


local BAR = args.form("callback.ProgressBar",
  { { "total", "number" }, { "length", "integer", 80 } })

local function round_half_even(x)
  local low = math.floor(x)
  local up = x - low > 0.5 or x - low == 0.5 and low % 2 == 1
  return up and low + 1 or low
end

--- Returns a batch callback that shows how much of the epoch is done: on a terminal a bar that is
-- redrawn, elsewhere a line for each tenth.
-- @number total batches of an epoch
-- @int[opt=80] length characters of the bar
function callback.ProgressBar(...)
  local a, shown = BAR(...), 0
  return function(param)
    local filled = round_half_even(a.length * param.nbatch / a.total)
    local percent = math.ceil(100 * param.nbatch / a.total)
    local tenth = math.floor(percent / 10)
    local is_new = tenth ~= shown and tenth > 0
    shown = tenth
    if not is_new and not log:overwrites() then
      return
    end
    log:info(("[%s%s] %d%%\r"):format(("="):rep(filled), ("-"):rep(a.length - filled), percent))
  end
end


-- Event files -------------------------------------------------------------------------------------

--- Returns a callback for batches, epochs and validations that writes event files for TensorBoard.
-- @function callback.TensorBoard
-- @see tycho.module.tensorboard
callback.TensorBoard = require "tycho.module.tensorboard"


return namespace.close(callback, "callback", "function")
