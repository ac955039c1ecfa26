--- Early stopping for `fit`: watches one metric of the validation, keeps the best parameters, and
-- reports when to stop (not for users).
--
-- The best parameters are kept as copies and, if there is a path, in a file. The result of `state`
-- is part of the saved state of the training; continuing from it needs the file.
--
-- @module tycho.module.early_stopping

local args = require "tycho.core.args"
local checkpoint = require "tycho.model.checkpoint"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local params = require "tycho.model.param_check"

local FUNC = "Module:fit early_stopping"

local FORM = args.form(FUNC, {
  { "patience", "integer", 3 }, { "metric", "text?" }, { "larger", "boolean?" },
  { "min_delta", "number", 0 }, { "path", "path?" },
})

--- Watches one training.
local EarlyStopping = Class:extend("EarlyStopping")


--- @tparam table options patience = 3, metric (the first one's), larger, min_delta = 0, path
-- @string[opt] prefix of the training's checkpoints: the path is `PREFIX-best.params` unless given
function EarlyStopping:init(options, prefix)
  self.options = FORM(options)
  self.path = self.options.path or prefix and prefix .. "-best.params"
  self.waited = 0
end


-- pattern of a metric's name -> whether more is better
local BETTER = {
  { "^accuracy", true }, { "^top_k_accuracy", true }, { "^f1", true }, { "^mcc", true },
  { "^pcc", true }, { "^pearsonr", true }, { "^perplexity", false }, { "^mae", false },
  { "^mse", false }, { "^rmse", false }, { "^cross%-entropy", false }, { "^nll%-loss", false },
  { "loss$", false }, { "error", false },
}

local function larger_is_better(self, name)
  if self.options.larger ~= nil then
    return self.options.larger
  end
  for _, entry in ipairs(BETTER) do
    if name:lower():find(entry[1]) then
      return entry[2]
    end
  end
  Error.raise{ code = "value", func = FUNC, argument = "larger", expected = "true or false",
    got = "nothing",
    message = ("whether a larger '%s' is better does not follow from its name"):format(name) }
end


-- Returns name and value of the metric that early stopping watches, or of the first one.
local function figure(self, list)
  local wanted, names = self.options.metric, {}
  for i, pair in ipairs(list) do
    if not wanted or pair[1] == wanted then
      return pair[1], pair[2]
    end
    names[i] = pair[1]
  end
  Error.unknown{ func = FUNC, argument = wanted, what = "metric", names = names }
end


--- Compares the values of an epoch's validation with the best ones, and keeps the parameters if
-- they are better.
-- @param module
-- @tparam table list `{name, value}` of each metric
-- @int epoch from 0
function EarlyStopping:look(module, list, epoch)
  local name, value = figure(self, list)
  local sign = larger_is_better(self, name) and 1 or -1
  local better = value == value
    and (not self.best or sign * (value - self.best) > self.options.min_delta)
  if not better then
    self.waited = self.waited + 1
    return
  end
  local arg_params, aux_params = module:_read_params()
  self.name, self.best, self.epoch, self.waited = name, value, epoch, 0
  self.arg_params, self.aux_params =
    class.keep(params.copies(arg_params)), class.keep(params.copies(aux_params))
  if self.path then
    checkpoint.write_params(self.path, self.arg_params, self.aux_params)
  end
end


--- Returns whether the last `patience` validations were no better than the best.
function EarlyStopping:is_over()
  return self.waited >= self.options.patience
end


--- Sets the module's parameters to the best ones.
function EarlyStopping:finish(module)
  if self.best then
    module.logger:info(("Best of all epochs: %s=%f of epoch %d")
      :format(self.name, self.best, self.epoch))
    module:set_params(self.arg_params, self.aux_params)
  end
end


--- Returns the state from which early stopping can continue.
function EarlyStopping:state()
  return { name = self.name, best = self.best, epoch = self.epoch, waited = self.waited }
end


--- Continues from a result of `state`; nil starts anew.
function EarlyStopping:go_on(state)
  state = state or self:state()
  self.name, self.best, self.epoch, self.waited = state.name, state.best, state.epoch, state.waited
  if self.best then
    local arg_params, aux_params = checkpoint.read_params(self.path, FUNC)
    self.arg_params, self.aux_params = class.keep(arg_params), class.keep(aux_params)
  end
end


return EarlyStopping
