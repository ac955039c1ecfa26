--- Keeping the states of parameters: `ty.optimizer.Updater`; see `optimizer.lua`.
--
-- @module tycho.optimizer.updater

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local base = require "tycho.optimizer.base"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local container = require "tycho.ndarray.serialize"
local Error = require "tycho.core.error"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local updater = {}

--- An optimizer with states. Fields: `optimizer`, `states` (by index or name; nothing for
-- parameters without a state).
-- @type Updater
local Updater = Class:extend("Updater")
updater.Updater = Updater

-- list of weights -> what was made of it
local function new_plans()
  return setmetatable({}, { __mode = "k" })
end


local NEW = args.form("optimizer.Updater", { { "optimizer", base.Optimizer } })

--- @tparam Optimizer optimizer
function Updater:init(...)
  self.optimizer = NEW(...).optimizer
  self.states, self.states_synced = {}, {}
  self._plans = new_plans()
end


-- Arrays of a state on a context; lists are walked.
local function move(state, ctx)
  if class.is_array(state) then
    return state:as_in_context(ctx)
  elseif values.is_plain(state) then
    for i, part in ipairs(state) do
      state[i] = move(part, ctx)
    end
  end
  return state
end


-- Declares the arrays of a state to be lasting.
local function make_lasting(state)
  if class.is_array(state) then
    class.make_lasting(state)
  elseif values.is_plain(state) then
    for _, part in ipairs(state) do
      make_lasting(part)
    end
  end
end


--- The state of a parameter: made when it is first met, moved to the weight's device when
-- it was loaded or the weight has moved (not for users). `states_synced`: by index, that device.
function Updater:_state(index, weight)
  if self.states_synced[index] == nil then
    self.states[index] = self.optimizer:create_state_multi_precision(index, weight)
  elseif self.states_synced[index] ~= weight.context then
    self.states[index] = move(self.states[index], weight.context)
  end
  if self.states_synced[index] ~= weight.context then
    make_lasting(self.states[index])
  end
  self.states_synced[index] = weight.context
  return self.states[index]
end


-- Lists of positions of weights of one type on one device, each of as many as go together; `alone`:
-- of a weight by itself.
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


-- What is made once of a list of weights that comes again and again: copies, groups of
-- members, and for each group the lists that the optimizer gets, with a table in which it
-- may keep what it makes of them.
local function plan_of(self, weights)
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
  for _, group in ipairs(plan_of(self, weights)) do
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


--- Updates a weight, or each of a list.
-- @param index from 0, or a name; or a list
-- @param grad
-- @param weight changed in place
function Updater:__call(index, grad, weight)
  local listed = values.is_plain(index)
  local indices, grads, weights = index, grad, weight
  if listed then
    check_lists(index, grad, weight)
  else
    indices, grads, weights = { index }, { grad }, { weight }
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


-- Saving ------------------------------------------------------------------------------------------

-- An optimizer without what belongs to the program around it.
local function portable(optimizer)
  local copy = tables.copy(optimizer)
  copy.param_dict = {}
  return setmetatable(copy, getmetatable(optimizer))
end


local GET = args.form("Updater:get_states", { { "dump_optimizer", "boolean", false } })

--- The states as bytes.
-- @bool[opt=false] dump_optimizer with the optimizer, its counts and its schedule
function Updater:get_states(...)
  local states = {}
  for index in pairs(self.states_synced) do
    local state = self.states[index]
    states[index] = state == nil and values.null or state
  end
  return container.encode{ kind = "updater", states = states,
    optimizer = GET(...).dump_optimizer and portable(self.optimizer) or nil }
end


local SET = args.form("Updater:set_states", { { "states", "text" } })

--- Puts back what `get_states` gave.
-- @string states foreign bytes E(format)
function Updater:set_states(...)
  local saved = container.decode(SET(...).states, "Updater:set_states")
  if type(saved) ~= "table" or saved.kind ~= "updater" or type(saved.states) ~= "table" then
    Error.raise{ code = "format", func = "Updater:set_states",
      message = "the bytes are no states of an updater" }
  end
  self.states, self.states_synced, self._plans = {}, {}, new_plans()
  for index, state in pairs(saved.states) do
    self.states[index], self.states_synced[index] = values.value(state), false
  end
  self.optimizer = saved.optimizer or self.optimizer
end


--- An updater of an optimizer.
function updater.get_updater(optimizer)
  return Updater(optimizer)
end


return updater
