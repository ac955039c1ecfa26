--- Updates of parameters with their states: `ty.optimizer.Updater`; see `optimizer/init.lua`.
--
-- @module tycho.optimizer.updater

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local base = require "tycho.optimizer.base"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local saved_states = require "tycho.optimizer.saved_states"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local updater = {}

--- An optimizer with states. Fields: `optimizer`, `states` (by index or name; nil for
-- parameters without a state), `states_synced` (by index, the device of the state; false: it was
-- loaded), `waiting` (by name, loaded states of parameters that have not been updated so far).
-- @type Updater
local Updater = Class:extend("Updater")
updater.Updater = Updater

-- Returns an empty table of plans by list of weights, with weak keys.
local function new_plans()
  return setmetatable({}, { __mode = "k" })
end


local NEW = args.form("optimizer.Updater", { { "optimizer", base.Optimizer } })

--- @tparam Optimizer optimizer
function Updater:init(...)
  self.optimizer = NEW(...).optimizer
  self.states, self.states_synced, self.waiting = {}, {}, {}
  self._plans, self._unchecked = new_plans(), {}
end


-- Returns a state with its arrays on a context.
local function move(state, ctx)
  return base.map_state(state, function(x)
    return class.is_array(x) and x:as_in_context(ctx) or x
  end)
end


-- Declares the arrays of a state to be lasting.
local function make_lasting(state)
  base.map_state(state, function(x)
    if class.is_array(x) then
      class.make_lasting(x)
    end
    return x
  end)
end


-- Returns the state of a parameter that is updated for the first time: one that waited for its
-- name, or a new one.
local function first_state(self, index, weight)
  local optimizer = self.optimizer
  local name = optimizer.idx2name[index] or index
  local found = self.waiting[name]
  if not found then
    return optimizer:create_state_multi_precision(index, weight)
  end
  self.waiting[name] = nil
  saved_states.settle_counts(optimizer, index, found)
  if found.state == nil then
    return optimizer:create_state_multi_precision(index, weight)
  end
  local state = values.value(found.state)
  saved_states.check_state(optimizer, { key = index, name = name, weight = weight }, state,
    "Updater")
  return move(state, weight.context)
end


--- Assigns loaded states to parameters that were added; a parameter on several devices gets one for
-- each device (not for users).
-- @tparam table targets as for `saved_states.match`
function Updater:_settle(targets)
  local found = {}
  for _, target in ipairs(targets) do
    local waiting = self.waiting[target.name]
    if waiting and self.states_synced[target.key] == nil then
      found[target.name] = true
      self.optimizer:_set_current_context(target.device)
      saved_states.settle_counts(self.optimizer, target.key, waiting)
      if waiting.state ~= nil then
        saved_states.check_state(self.optimizer, target, values.value(waiting.state), "Updater")
        self.states[target.key] =
          class.outside(saved_states.copy_state, values.value(waiting.state))
        self.states_synced[target.key] = false
      end
    end
  end
  for name in pairs(found) do
    self.waiting[name] = nil
  end
end


-- Checks a loaded state that could not be compared with its weight when it was loaded.
local function check_loaded(self, index, weight)
  if self._unchecked[index] then
    saved_states.check_state(self.optimizer, { key = index, weight = weight,
      name = self.optimizer.idx2name[index] }, self.states[index], "Updater")
    self._unchecked[index] = nil
  end
end


local function bring_state(self, index, weight)
  if self.states_synced[index] == nil then
    self.states[index] = first_state(self, index, weight)
  else
    check_loaded(self, index, weight)
    self.states[index] = move(self.states[index], weight.context)
  end
  if self.states_synced[index] ~= weight.context then
    make_lasting(self.states[index])
  end
  self.states_synced[index] = weight.context
end


--- Returns the state of a parameter: makes it on first use, and moves it to the weight's device if
-- it was loaded or the weight has moved (not for users).
function Updater:_state(index, weight)
  if self.states_synced[index] ~= weight.context then
    class.outside(bring_state, self, index, weight)
  end
  return self.states[index]
end


-- Returns lists of positions of weights that the optimizer updates together, of one type on one
-- device; `alone`: the list of a weight that is updated by itself.
local function groups(weights, optimizer)
  local list, open = {}, {}
  for i, weight in ipairs(weights) do
    local key, most = ("%d %d"):format(weight._dtype, weight._device), optimizer:_together(weight)
    local group = open[key]
    if not group or #group >= most then
      group = { alone = most == 0 }
      open[key] = group
      list[#list + 1] = group
    end
    group[#group + 1] = i
  end
  return list
end


-- Returns the plan of a list of weights, which is made once: copies, groups of members, and for
-- each group the lists for the optimizer and the table in which it may cache values.
local function find_plan(self, weights)
  local plan = self._plans[weights]
  if plan and tables.same(plan.weights, weights) then
    return plan
  end
  plan = { weights = tables.copied(weights) }
  for g, members in ipairs(groups(weights, self.optimizer)) do
    plan[g] = { members = members, alone = members.alone, indices = {}, weights = {}, grads = {},
      states = {}, kept = {} }
  end
  self._plans[weights] = plan
  return plan
end


local function update_groups(self, indices, grads, weights)
  for _, group in ipairs(find_plan(self, weights)) do
    for i, member in ipairs(group.members) do
      local index, weight = indices[member], weights[member]
      group.indices[i], group.weights[i], group.grads[i] = index, weight, grads[member]
      group.states[i] = self:_state(index, weight) or values.null
    end
    if group.alone then
      self.optimizer:update_multi_precision(group.indices[1], group.weights[1], group.grads[1],
        values.value(group.states[1]))
    else
      self.optimizer:update_multi_precision(group.indices, group.weights, group.grads,
        group.states, group.kept)
    end
  end
end


local function check_lists(indices, grads, weights)
  if not (values.is_plain(grads) and values.is_plain(weights) and #grads == #indices
      and #weights == #indices) then
    Error.raise{ code = "value", func = "Updater",
      message = "lists of indices, gradients and weights of one length are needed" }
  end
end


local function check_array(x, argument)
  if not class.is_array(x) then
    Error.raise{ code = "type", func = "Updater", argument = argument, expected = "an NDArray",
      got = Error.kind(x), message = ("bad '%s'"):format(argument) }
  end
end


local function check_index(index)
  if type(index) ~= "number" and type(index) ~= "string" then
    Error.raise{ code = "type", func = "Updater", argument = "index",
      expected = "a number, a name or a list of these", got = Error.kind(index),
      message = "bad 'index'" }
  end
end


local function update(self, index, grad, weight)
  local listed = values.is_plain(index)
  local indices, grads, weights = index, grad, weight
  if listed then
    check_lists(index, grad, weight)
  else
    check_index(index)
    indices, grads, weights = { index }, { grad }, { weight }
  end
  for i = 1, #indices do
    check_array(grads[i], "grad")
    check_array(weights[i], "weight")
  end
  if #indices == 0 then
    return
  end
  self.optimizer:_set_current_context(weights[1].context.device_id)
  if self.optimizer:_together(weights[1]) > 0 then
    return update_groups(self, indices, grads, weights)
  end
  for i, k in ipairs(indices) do
    self.optimizer:update_multi_precision(k, weights[i], grads[i], self:_state(k, weights[i]))
  end
end


--- Updates a weight, or each of a list. `ty.scope` frees temporary arrays of the engine's rules,
-- but not arrays that a user's rule makes.
-- @param index from 0, or a name; or a list
-- @param grad
-- @param weight changed in place
function Updater:__call(index, grad, weight)
  if rawget(getmetatable(self.optimizer), "is_built_in") then
    return update(self, index, grad, weight)
  end
  return class.outside(update, self, index, grad, weight)
end


-- Saving ------------------------------------------------------------------------------------------

local GET = args.form("Updater:get_states", { { "dump_optimizer", "boolean", false } })

--- Returns the states as bytes, with the counts of updates and the optimizer's name and settings.
-- @bool[opt=false] dump_optimizer whether to include the whole optimizer, its rates and its
--   schedule
function Updater:get_states(...)
  return saved_states.encode(self, GET(...).dump_optimizer, self.optimizer.idx2name)
end


--- Returns the states as `get_states` does, with the names of parameters (not for users).
-- @bool dump_optimizer
-- @tparam table names by index
function Updater:_get_states(dump_optimizer, names)
  return saved_states.encode(self, dump_optimizer, names)
end


-- Makes all comparisons without changing the updater. Returns the argument of `commit`.
local function prepare(self, bytes, options)
  local func, targets = options.func, options.targets
  local saved = saved_states.decode(bytes, func)
  if not saved.optimizer or options.same_optimizer then
    saved_states.check_optimizer(saved, self.optimizer, targets, func)
  end
  local new = { saved = saved, optimizer = saved.optimizer or self.optimizer, waiting = {},
    states = saved.states, unchecked = saved.states, from = {}, func = func, targets = targets,
    names = options.names }
  if not targets then
    return new
  end
  local unknown
  new.from, unknown = saved_states.match(saved, targets, options.keep_unknown, func)
  new.states = saved_states.moved(saved, targets, new.from, new.optimizer, func)
  new.unchecked = {}
  for parameter, key in pairs(unknown) do
    if saved.about then
      new.waiting[parameter] = saved_states.waiting(saved, new.optimizer, key)
    else
      new.states[key], new.unchecked[key] = saved.states[key], true
    end
  end
  return new
end


local function commit(self, new)
  self.states, self.states_synced, self.waiting = {}, {}, new.waiting
  self._plans, self._unchecked = new_plans(), {}
  for index, state in pairs(new.states) do
    self.states[index], self.states_synced[index] = values.value(state), false
    self._unchecked[index] = new.unchecked[index] ~= nil
  end
  self.optimizer = new.optimizer
  if new.names then
    self.optimizer.idx2name = new.names
  end
  if new.saved.about or not new.saved.optimizer then
    saved_states.restore_progress(self.optimizer, new.saved.about, new.targets, new.from, new.func)
  end
end


--- Compares states with the present parameters (not for users).
-- @string bytes
-- @tparam table options func; targets, keep_unknown: as for `saved_states.match`; names: of all
--   indices; same_optimizer: an optimizer in the bytes must be like the present one, too
-- @treturn function restores the states when it is called
function Updater:_prepare_states(bytes, options)
  local new = class.outside(prepare, self, bytes, options)
  return function() commit(self, new) end
end


local SET = args.form("Updater:set_states", { { "states", "text" } })

--- Restores states from `get_states`. States of another optimizer are E(state): here or, if bytes
-- of older versions do not name their parameters, at the first update of the weights.
-- @string states other bytes are E(format)
function Updater:set_states(...)
  self:_prepare_states(SET(...).states, { func = "Updater:set_states" })()
end


--- Returns an updater of an optimizer.
function updater.get_updater(optimizer)
  return Updater(optimizer)
end


return updater
