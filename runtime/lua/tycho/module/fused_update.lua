--- Steps inside backward, `init_optimizer{ in_backward = true }`. Adds methods to Module.
--
-- A lesson is what modules that share an optimizer have in common: its updater and, by their names,
-- the arrays of the updater's states, which executors use as auxiliary states and change. Every
-- module has a learner of its own (`optimizer/fused.lua`), since every module has its own symbol;
-- the arrays of gradients are given back.
--
-- @module tycho.module.fused_update

jit.off(true, true)                                      -- makes graphs: core/iterate.lua

local pairs = require("tycho.core.iterate").pairs
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local Learner = require("tycho.optimizer.fused").Learner

local Module = {}                                        -- methods, for module/module.lua

local FUNC = "Module:init_optimizer"


-- Lessons -----------------------------------------------------------------------------------------

local Lesson = Class:extend("Lesson")

-- numbers: the index of each parameter's state, by name
function Lesson:init(updater, numbers)
  self.updater, self.numbers, self.places, self.states = updater, numbers, {}, updater.states
end


-- The array of a place, `{ param, slot, weight }`, in the updater's states; nil: there is none.
local function state_at(self, place)
  local state = self.updater:_state(self.numbers[place.param], place.weight)
  return class.is_array(state) and state or state and state[place.slot]
end


-- The array of an auxiliary state of a learner: a part of the updater's state of a parameter.
function Lesson:array_of(name, origin, weight)
  local place = self.places[name]
  if not place then
    place = { param = origin[1], slot = origin[2], weight = weight }
    place.array = state_at(self, place)
    rawset(place.array, "_kept", true)                   -- ty.scope leaves it
    self.places[name] = place
  end
  return place.array
end


local function fail_states(place)
  Error.raise{ code = "state", func = "Module:backward", argument = place.param,
    message = ("the optimizer's states that were loaded do not fit '%s'"):format(place.param) }
end


-- Takes over the states that were loaded into the updater since the last time: values are copied to
-- the arrays that executors use.
function Lesson:refresh()
  local states, loaded = self.updater.states, {}
  if states == self.states then
    return
  end
  for name, place in pairs(self.places) do
    loaded[name] = state_at(self, place) or fail_states(place)
  end
  for name, place in pairs(self.places) do
    local index = self.numbers[place.param]
    call.copy(place.array, loaded[name], "Module:backward", place.param)
    if class.is_array(states[index]) then
      states[index] = place.array
    else
      states[index][place.slot] = place.array
    end
  end
  self.states = states
end


-- Modules -----------------------------------------------------------------------------------------

local function indices_of(self, names)
  local list = {}
  for i, name in ipairs(names) do
    list[i] = self._param_index[name]
  end
  return list
end


-- Runs backward with the steps in it.
local function backward(self, learner, exe, heads)
  local lesson = self._lesson
  lesson:refresh()
  if learner.seen ~= lesson.states then          -- loaded states bring an optimizer and numbers
    learner:follow(lesson.updater.optimizer, indices_of(self, learner.params))
    learner.seen = lesson.states
  end
  learner.optimizer:_set_current_context(self._context[1].device_id)
  learner:backward(exe, heads)
  self:_have_params(true)
end


--- What a group needs whose parameters learn inside backward (not for users).
-- @tparam {string,...} names parameters for which gradients are wanted, one at least
-- @treturn table symbol, array_of (function of an auxiliary state's name and of parameters by name
--   -> its array or nil), backward (function of an executor and of head gradients)
function Module:_learn(names)
  local lesson = self._lesson
  local learner = Learner{ symbol = self._symbol, optimizer = lesson.updater.optimizer,
    params = names, indices = indices_of(self, names) }
  return { symbol = learner.symbol,
    array_of = function(name, weights)
      local origin = learner.states[name]
      return origin and lesson:array_of(name, origin, weights[origin[1]])
    end,
    backward = function(exe, heads) backward(self, learner, exe, heads) end }
end


--- How a group asks for what it needs, while the optimizer's steps are part
-- of backward (not for users).
function Module:_teacher()
  return self._lesson and function(names) return self:_learn(names) end or nil
end


local function refuse(argument, expected, got, message)
  Error.raise{ code = "unsupported", func = FUNC, argument = argument, expected = expected,
    got = got, message = message }
end


--- Refuses what makes steps inside backward impossible (not for users).
-- @param optimizer
-- @param kv the store or nil
function Module:_check_learning(optimizer, kv)
  if #self._context > 1 then
    refuse("in_backward", "one context", #self._context,
      "gradients of several devices must meet before a step")
  elseif kv then
    refuse("kvstore", "ty.null", kv.type, "a step inside backward goes through no store")
  elseif self._group2ctxs then
    refuse("in_backward", "no group2ctxs", "group2ctxs",
      "a symbol on several devices cannot learn inside backward")
  end
  Learner.check(optimizer, FUNC)
end


--- Begins or ends learning inside backward: executors follow (not for users).
-- @tparam ?Lesson lesson of another module; true: a new one; nil: gradients in arrays
function Module:_set_lesson(lesson)
  local before = self._lesson
  self._lesson = lesson == true and Lesson(self._updater, self._param_index) or lesson or nil
  if self._binded and self._lesson ~= before then
    local ok, e = pcall(self._exec_group.learn, self._exec_group, self:_teacher())
    if not ok then
      self._lesson = before
      error(e, 0)
    end
  end
end


return Module
