--- The whole state of a training in one file: `save_state` and `load_state` of all modules.
--
-- The file contains parameters, auxiliary states, the optimizer with its states and counts,
-- residuals of gradient compression, the random state of all devices, the position of the iterator,
-- and the epoch and batch. It is replaced atomically. A training that continues from it gives
-- bit-equal results to one without the interruption.
--
-- @module tycho.module.training_state

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local container = require "tycho.ndarray.serialize"
local Error = require "tycho.core.error"
local random = require "tycho.ndarray.seed"
local settings = require "tycho.optimizer.settings"
local tables = require "tycho.core.tables"

local BaseModule = {}                                    -- methods, for module/base.lua

local KIND = "training"                                  -- marks the contents of the file

local SAVE = args.form("Module:save_state", {
  { "path", "path" }, "*", { "train_data", "any?" }, { "epoch", "integer", 0 },
  { "nbatch", "integer", 0 }, { "early", "dict?" }, { "loss_scale", "dict?" },
})
local LOAD = args.form("Module:load_state", { { "path", "path" }, "*", { "train_data", "any?" } })


-- Returns an iterator's position; nil if it does not support positions.
local function read_position(it)
  local ok, state = pcall(function() return it:state() end)
  if ok then
    return state
  elseif not Error.is_error(state) or state.code ~= "unsupported" and state.code ~= "name" then
    error(state, 0)
  end
end


--- Writes the state of the training to a file.
-- @string path
-- @tparam[opt] table options train_data (an iterator whose position is saved), epoch, nbatch,
--   early, loss_scale (the last four are returned by load_state)
function BaseModule:save_state(...)
  local a = SAVE(...)
  local arg_params, aux_params = self:_read_params()
  local states = {}
  for i, pair in ipairs(self:_updaters()) do
    local _, names = pair[2]:_state_targets()
    states[i] = pair[1]:_get_states(true, names)
  end
  local residuals = {}
  for i, store in ipairs(self:_stores()) do
    residuals[i] = store:_residuals()
  end
  container.save(a.path, {
    kind = KIND, epoch = a.epoch, nbatch = a.nbatch, early = a.early,
    loss_scale = a.loss_scale, arg_params = arg_params,
    aux_params = aux_params, optimizers = states, residuals = residuals,
    param_index = rawget(self, "_param_index"), random = random.get_state(),
    iterator = a.train_data and read_position(a.train_data) or nil,
  }, self:_func("save_state"))
end


-- Compares saved states with the optimizers, and returns a function for each that restores it;
-- E(state) if they do not fit.
local function prepare_optimizers(self, states)
  local list, func = self:_updaters(), self:_func("load_state")
  if type(states) ~= "table" or #list ~= #states then
    Error.raise{ code = "state", func = func,
      expected = (type(states) == "table" and #states or 0) .. " optimizers", got = #list,
      message = "the state needs the optimizers it was saved with; call init_optimizer first" }
  end
  local commits = {}
  for i, pair in ipairs(list) do
    local targets, names = pair[2]:_state_targets()
    commits[i] = pair[1]:_prepare_states(states[i], { func = func, targets = targets,
      names = names, keep_unknown = pair[2]._keeps_unknown_states, same_optimizer = true })
  end
  return commits
end


-- Restores the optimizers and warns of settings that differ from the given ones.
local function set_optimizers(self, commits)
  for i, pair in ipairs(self:_updaters()) do
    local updater, given = pair[1], pair[1].optimizer
    commits[i]()
    pair[2]._optimizer = updater.optimizer
    if updater.optimizer.rescales_by_batch and given.rescales_by_batch then
      updater.optimizer.rescale_grad = given.rescale_grad
    end
    local differences = table.concat(settings.differences(updater.optimizer, given), "; ")
    if differences ~= "" then
      self.logger:warning("the optimizer of the saved state goes on, not the one that was given: "
        .. differences)
    end
  end
end


-- Sets the indices of parameters to the saved ones; parameters without one get the next numbers.
local function set_numbers(self, saved)
  local index = rawget(self, "_param_index")
  local names, n = {}, 0
  for name in pairs(index and saved and index or {}) do
    names[#names + 1] = not saved[name] and name or nil
    index[name] = nil
  end
  for name, number in pairs(index and saved or {}) do
    index[name], n = number, math.max(n, number + 1)
  end
  table.sort(names)
  for i, name in ipairs(names) do
    index[name] = n + i - 1
  end
end


local function put_numbers_back(self, before)
  local index = rawget(self, "_param_index")
  for _, t in ipairs{ index or {}, before } do
    for name in pairs(t) do
      index[name] = before[name]
    end
  end
end


-- Sets parameters and optimizers; if one of them fails, nothing is changed.
local function set_all(self, state)
  local before = tables.copy(rawget(self, "_param_index"))
  set_numbers(self, state.param_index)
  local ok, result = pcall(function()
    local commits = prepare_optimizers(self, state.optimizers)
    self:set_params(state.arg_params, state.aux_params)
    return commits
  end)
  if not ok then
    put_numbers_back(self, before)
    error(result, 0)
  end
  set_optimizers(self, result)
end


--- Continues from a saved state. The module must be bound and have an optimizer of the same class,
-- else E(state) is raised; the optimizer's settings become the saved ones.
-- @string path E(format) if the file has another format or is truncated
-- @tparam[opt] table options train_data: an iterator that is set to its saved position
-- @treturn table `{epoch, nbatch, early, loss_scale}`
function BaseModule:load_state(...)
  local a = LOAD(...)
  local state = container.load(a.path, self:_func("load_state"))
  if type(state) ~= "table" or state.kind ~= KIND then
    Error.raise{ code = "format", func = self:_func("load_state"), argument = a.path,
      message = ("'%s' is not the state of a training"):format(a.path) }
  end
  set_all(self, state)
  for i, store in ipairs(self:_stores()) do
    store:_set_residuals(state.residuals and state.residuals[i] or {})
  end
  random.set_state(state.random)
  if a.train_data and state.iterator then
    a.train_data:set_state(state.iterator)
  end
  return { epoch = state.epoch, nbatch = state.nbatch, early = state.early,
    loss_scale = state.loss_scale }
end


return BaseModule
