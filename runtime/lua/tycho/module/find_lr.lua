--- A range test of learning rates. Adds a method to Module.
--
-- Source: L. N. Smith, Cyclical learning rates for training neural networks, 2017, section 3.3.
--
-- @module tycho.module.find_lr

local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local evaluation = require "tycho.module.evaluation"
local pairs = require("tycho.core.iterate").pairs
local random = require "tycho.ndarray.seed"
local values = require "tycho.core.values"

local Module = {}                                        -- methods, for module/module.lua

local SMOOTH = 0.9                       -- weight of the earlier losses in the smoothed one
local DIVERGED = 4                       -- the test ends above this multiple of the least loss
local FEWEST = 5                         -- with fewer points nothing is suggested
local UNSETTLED = 10                     -- first losses, which are left out: 1 / (1 - SMOOTH)

--- The result of a range test. Fields: learning_rates, losses (smoothed), suggestion (nil: the loss
-- never fell).
-- @type RangeTest
local RangeTest = Class:extend("RangeTest")

-- Returns the rate at which the loss falls fastest over the logarithm of the rate, before the least
-- loss. The first losses are skipped, since the mean of a few batches varies more than the rates
-- change it; slopes are taken over half that many rates on both sides.
local function steepest(rates, losses)
  local least, best, at = 1, 0, nil
  for i, loss in ipairs(losses) do
    least = loss < losses[least] and i or least
  end
  local first = math.min(UNSETTLED, math.floor(#losses / 3))
  local side = math.max(1, math.floor(first / 2))
  for i = first + 1, #losses >= FEWEST and math.min(least - 1, #losses - side) or 0 do
    local slope = (losses[i + side] - losses[i - side])
      / math.log(rates[i + side] / rates[i - side])
    if slope < best then
      best, at = slope, i
    end
  end
  return at and rates[at]
end


function RangeTest:init(rates, losses)
  self.learning_rates, self.losses = rates, losses
  self.suggestion = steepest(rates, losses)
end


function RangeTest:__tostring()
  return ("<RangeTest: %d rates from %.3g to %.3g, suggestion %s>"):format(#self.losses,
    self.learning_rates[1], self.learning_rates[#self.learning_rates],
    self.suggestion and ("%.3g"):format(self.suggestion) or "none")
end


--- Draws the losses over the rates, with the suggestion.
-- @treturn Drawing
function RangeTest:chart()
  local curves = { { name = "loss", x = self.learning_rates, y = self.losses } }
  for i, rate in ipairs(self.learning_rates) do
    if rate == self.suggestion then
      curves[2] = { name = ("suggestion %.3g"):format(rate), x = { rate }, y = { self.losses[i] },
        style = "points" }
    end
  end
  return require("tycho.viz").plot(curves, { x_log = true, x_label = "learning rate",
    y_label = "loss", title = "Learning-rate range test" })
end


local FORM = args.form("Module:find_lr", {
  { "train_data", "any" }, "*", { "first", "number", 1e-6 }, { "last", "number", 10 },
  { "num_batch", "integer", 100 }, { "eval_metric", "any", "ce" }, { "optimizer", "any", "sgd" },
  { "optimizer_params", "dict?" }, { "initializer", "any?" },
})


local function check(a)
  local func = "Module:find_lr"
  evaluation.check_iterator(a.train_data, func, "train_data")
  evaluation.check_described(a.train_data, func, "train_data")
  if not (a.first > 0 and a.first < a.last and a.last < math.huge) then
    Error.raise{ code = "value", func = func, argument = "first", got = a.first,
      expected = ("above 0 and below last = %g"):format(a.last), message = "bad range" }
  elseif a.num_batch < 2 then
    Error.raise{ code = "value", func = func, argument = "num_batch", got = a.num_batch,
      expected = "2 or more", message = "bad 'num_batch'" }
  elseif a.optimizer_params and (a.optimizer_params.learning_rate ~= nil
      or a.optimizer_params.lr_scheduler ~= nil) then
    Error.raise{ code = "value", func = func, argument = "optimizer_params",
      message = "the test itself chooses the learning rates; leave learning_rate and \z
        lr_scheduler out" }
  end
end


-- Makes a module of the same network with copies of the parameters, so that this module stays
-- unchanged.
local function clone_module(self, a)
  local function or_null(list)
    return #list > 0 and list or values.null
  end
  local clone = getmetatable(self){ symbol = self.symbol, data_names = or_null(self._data_names),
    label_names = or_null(self._label_names), context = self._context,
    work_load_list = self._work_load_list, fixed_param_names = self._fixed_param_names,
    state_names = self._state_names, group2ctxs = self._group2ctxs, logger = self.logger }
  clone:bind{ data_shapes = a.train_data.provide_data, label_shapes = a.train_data.provide_label,
    for_training = true }
  if self.params_initialized then
    local arg_params, aux_params = self:get_params()
    clone:init_params{ arg_params = arg_params, aux_params = aux_params }
  else
    clone:init_params{ initializer = a.initializer }
  end
  local params = { learning_rate = a.first }
  for key, v in pairs(a.optimizer_params or {}) do
    params[key] = v
  end
  clone:init_optimizer{ optimizer = a.optimizer, optimizer_params = params }
  return clone
end


-- Returns the next batch; resets the iterator at its end.
local function next_batch(clone, data)
  local batch = evaluation.next_batch(clone, data)
  if batch == nil then
    data:reset()
    batch = evaluation.next_batch(clone, data)
  end
  if batch == nil then
    Error.raise{ code = "state", func = "Module:find_lr", argument = "train_data",
      message = "the iterator has no batch" }
  end
  return batch
end


-- Returns the loss of a batch, before the update with it.
local function run_batch(clone, batch, metric)
  clone:prepare(batch)
  clone:forward_backward(batch)
  metric:reset()
  evaluation.update(clone, metric, batch)
  local _, loss = metric:get()
  if type(loss) ~= "number" then
    Error.raise{ code = "type", func = "Module:find_lr", argument = "eval_metric",
      expected = "a metric of one value that is less where the network is better",
      got = Error.kind(loss), message = "bad 'eval_metric'" }
  end
  return loss
end


-- Runs the test on a clone and returns its result.
local function test(clone, a)
  local metric, optimizer = evaluation.metric(a.eval_metric), clone:_updaters()[1][1].optimizer
  local rates, losses, mean, least = {}, {}, 0, math.huge
  for i = 1, a.num_batch do
    local rate = a.first * (a.last / a.first) ^ ((i - 1) / (a.num_batch - 1))
    optimizer:set_learning_rate(rate)
    local loss = run_batch(clone, next_batch(clone, a.train_data), metric)
    if loss ~= loss or loss == math.huge then
      break
    end
    mean = SMOOTH * mean + (1 - SMOOTH) * loss
    local smoothed = mean / (1 - SMOOTH ^ i)
    rates[i], losses[i], least = rate, smoothed, math.min(least, smoothed)
    if smoothed > DIVERGED * math.abs(least) then
      break
    end
    clone:update()
  end
  if #rates == 0 then
    Error.raise{ code = "value", func = "Module:find_lr", argument = "train_data",
      message = "the loss of the first batch is no finite number" }
  end
  return RangeTest(rates, losses)
end


--- Tries learning rates from low to high, one batch each, and suggests one to begin with: where the
-- loss falls fastest. The test ends when the smoothed loss exceeds four times its least value. It
-- runs on copies: parameters, optimizer and random numbers of this module are unchanged; the
-- iterator is reset.
--
--     local found = mod:find_lr{ train_data = train }
--     print(found.suggestion)
--     found:chart():save("rates.svg")
--
-- @param train_data an iterator
-- @tparam[opt] table options first (1e-6) and last (10) learning rate, num_batch (100: number of
--   rates), eval_metric ("ce"; one whose smaller values are better), optimizer ("sgd"),
--   optimizer_params (without a learning rate), initializer (if the module has no parameters yet)
-- @treturn RangeTest
function Module:find_lr(...)
  local a = FORM(...)
  check(a)
  local before, clone = random.get_state(), clone_module(self, a)
  a.train_data:reset()
  local ok, result = pcall(test, clone, a)
  clone:free()
  a.train_data:reset()
  random.set_state(before)
  if not ok then
    error(result, 0)
  end
  return result
end


return Module
