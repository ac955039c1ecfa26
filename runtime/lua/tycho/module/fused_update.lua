--- Updates fused into backward, `init_optimizer{ in_backward = true }`. Adds methods to Module.
--
-- Every module has its own fused optimizer (optimizer/fused.lua), since every module has its own
-- symbol; no memory is used for arrays of gradients. Modules that share an optimizer share its
-- states.
--
-- @module tycho.module.fused_update

jit.off(true, true)                                      -- makes graphs: core/iterate.lua

local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local FusedOptimizer = require("tycho.optimizer.fused").FusedOptimizer

local Module = {}                                        -- methods, for module/module.lua

local FUNC = "Module:init_optimizer"


-- States ------------------------------------------------------------------------------------------

-- The states of an updater, bound as auxiliary states of executors, which change them.
local FusedStates = Class:extend("FusedStates")

-- Stores the updater; `numbers` holds the index of each parameter's state by name.
function FusedStates:init(updater, numbers)
  self.updater, self.numbers, self.slots, self.states = updater, numbers, {}, updater.states
end


-- Returns the array of a slot, `{ param, number, weight }`, in the updater's states; nil if there
-- is none.
local function state_at(self, slot)
  local state = self.updater:_state(self.numbers[slot.param], slot.weight)
  return class.is_array(state) and state or state and state[slot.number]
end


-- Returns the array of an auxiliary state, which is a part of the updater's state of a parameter.
function FusedStates:find_array(name, origin, weight)
  local slot = self.slots[name]
  if not slot then
    slot = { param = origin[1], number = origin[2], weight = weight }
    slot.array = class.keep(state_at(self, slot))
    self.slots[name] = slot
  end
  return slot.array
end


local function fail_states(slot)
  Error.raise{ code = "state", func = "Module:backward", argument = slot.param,
    message = ("the optimizer's states that were loaded do not fit '%s'"):format(slot.param) }
end


-- Copies states that were loaded into the updater since the last call to the arrays that executors
-- use.
function FusedStates:refresh()
  local states, loaded = self.updater.states, {}
  if states == self.states then
    return
  end
  for name, slot in pairs(self.slots) do
    loaded[name] = state_at(self, slot) or fail_states(slot)
  end
  for name, slot in pairs(self.slots) do
    local index = self.numbers[slot.param]
    call.copy(slot.array, loaded[name], "Module:backward", slot.param)
    if class.is_array(states[index]) then
      states[index] = slot.array
    else
      states[index][slot.number] = slot.array
    end
  end
  self.states = states
end


-- Modules -----------------------------------------------------------------------------------------

local function list_indices(self, names)
  local list = {}
  for i, name in ipairs(names) do
    list[i] = self._param_index[name]
  end
  return list
end


-- Runs backward with the updates in it; loaded states are taken over before.
local function backward(self, optimizer, exe, heads)
  local fused = self._fused
  fused:refresh()
  if optimizer.seen ~= fused.states then         -- new after a load: new optimizer, new numbers
    optimizer:follow(fused.updater.optimizer, list_indices(self, optimizer.params))
    optimizer.seen = fused.states
  end
  optimizer.optimizer:_set_current_context(self._context[1].device_id)
  optimizer:backward(exe, heads)
  self:_have_params(true)
end


--- Makes the fusion by which a group's parameters are updated inside backward (not for users).
-- @tparam {string,...} names parameters with gradients, at least one
-- @treturn table symbol, find_array (function of a state's name and of parameters by name -> its
--   array or nil), backward (function of an executor and of head gradients)
function Module:_fuse(names)
  local fused = self._fused
  local optimizer = FusedOptimizer{ symbol = self._symbol, optimizer = fused.updater.optimizer,
    params = names, indices = list_indices(self, names) }
  return { symbol = optimizer.symbol,
    find_array = function(name, weights)
      local origin = optimizer.states[name]
      return origin and fused:find_array(name, origin, weights[origin[1]])
    end,
    backward = function(exe, heads) backward(self, optimizer, exe, heads) end }
end


--- Returns the function that an executor group calls to fuse updates, or nil if updates are not
-- part of backward (not for users).
function Module:_fuse_option()
  return self._fused and function(names) return self:_fuse(names) end or nil
end


local function refuse(argument, expected, got, message)
  Error.raise{ code = "unsupported", func = FUNC, argument = argument, expected = expected,
    got = got, message = message }
end


--- Raises E(unsupported) for an optimizer or a store that does not allow updates inside backward
-- (not for users).
-- @param optimizer
-- @param kv the store or nil
function Module:_check_fused(optimizer, kv)
  if #self._context > 1 then
    refuse("in_backward", "one context", #self._context,
      "gradients of several devices must meet before a step")
  elseif kv then
    refuse("kvstore", "ty.null", kv.type, "a step inside backward goes through no store")
  elseif self._group2ctxs then
    refuse("in_backward", "no group2ctxs", "group2ctxs",
      "a symbol on several devices cannot learn inside backward")
  end
  FusedOptimizer.check(optimizer, FUNC)
end


--- Turns updates inside backward on or off, for which executors are bound again (not for users).
-- @tparam ?FusedStates fused of another module; true: new states; nil: turns them off
function Module:_set_fused(fused)
  local before = self._fused
  self._fused = fused == true and FusedStates(self._updater, self._param_index) or fused or nil
  if self._binded and self._fused ~= before then
    local ok, e = pcall(self._exec_group.fuse, self._exec_group, self:_fuse_option())
    if not ok then
      self._fused = before
      error(e, 0)
    end
  end
end


--- Turns the scaling of gradients on or off (not for users).
-- @tparam ?LossScale loss_scale
function Module:_scale_loss(loss_scale)
  if self._loss_scale ~= loss_scale then
    if self._binded then
      self._exec_group:scale_loss(loss_scale)
    end
    self._loss_scale = loss_scale
  end
end


return Module
