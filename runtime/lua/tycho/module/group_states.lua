--- The states of a group of executors: inputs that keep their values from batch to batch. Adds
-- methods to DataParallelExecutorGroup.
--
-- Each set of executors has separate arrays for states, on buffers that a larger batch replaces.
-- Groups that share arrays share a record of each state: `number`, to which it was set, or `given`,
-- the arrays that were written; and `current`, the arrays that hold the newest values. Before a run
-- the values are copied to the arrays of the executors that run.
--
-- @module tycho.module.group_states

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local slices = require "tycho.module.batch_slices"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local is_plain, value = values.is_plain, values.value

local Group = {}                                         -- methods, for module/executor_group.lua

local FUNC = "Module"                                    -- who usually has groups, for errors


-- Records that the arrays of the current executors hold the newest values of state k.
local function note(self, k, number)
  local slots = self.state_arrays[k]
  self._shared[1].states[self.state_names[k]] = { given = slots, current = slots, number = number }
end


-- Cuts the rows of a state by device and writes them to the arrays of each.
local function divide(slots, whole, name)
  local from = 0
  for _, x in ipairs(slots) do
    local to = from + x._shape[1]
    call.copy(x, slices.cut(whole, 0, { from, to }), FUNC .. ":forward", name)
    from = to
  end
end


-- Returns the shape of a state over all devices.
local function whole_shape(slots)
  local shape = slots[1].shape
  for i = 2, #slots do
    shape[1] = shape[1] + slots[i]._shape[1]
  end
  return shape
end


local function fail_rows(name, before, now)
  Error.raise{ code = "state", func = FUNC .. ":forward", argument = name, expected = before,
    got = now, message = ("the state '%s' was set for %d rows, and the batch needs %d: call \z
      reshape and set_states before"):format(name, before[1], now[1]) }
end


-- Copies the values of a state to the arrays of the current executors; E(state) if these have more
-- rows.
local function bring(self, k, known)
  local slots, name = self.state_arrays[k], self.state_names[k]
  if known.number then
    for _, x in ipairs(slots) do
      call.fill(x, known.number, FUNC .. ":forward")
    end
    return
  end
  local before, now = whole_shape(known.given), whole_shape(slots)
  local rest = tables.same(tables.part(before, 2, #before), tables.part(now, 2, #now))
  if not rest or now[1] > before[1] then
    fail_rows(name, before, now)
  elseif #slots > 1 or not slots[1]:same_memory(known.given[1]) then
    -- several devices need a copy: arrays of fewer rows share memory with the given ones
    known.whole = known.whole or class.keep(slices.join(known.given, 0))
    divide(slots, known.whole, name)
  end
end


--- Copies the states that were set to the current executors (not for users).
function Group:bring_states()
  for k, name in ipairs(self.state_names) do
    local known = self._shared[1].states[name]
    if not known then
      note(self, k, 0)
    elseif known.current ~= self.state_arrays[k] then
      bring(self, k, known)
      known.current = self.state_arrays[k]
    end
  end
end


--- Returns the states, joined over devices, or for each a list over devices.
-- @bool[opt=true] merge
function Group:get_states(merge)
  self:bring_states()
  return slices.merged(self.state_arrays, merge ~= false, function() return 0 end)
end


local function check_given(x, shape, name)
  if not class.is_array(x) then
    Error.raise{ code = "type", func = FUNC .. ":set_states", argument = name,
      expected = "an NDArray, or one for each device", got = Error.kind(x),
      message = ("bad state '%s'"):format(name) }
  elseif not tables.same(x._shape, shape) then
    Error.raise{ code = "shape", func = FUNC .. ":set_states", argument = name, expected = shape,
      got = x.shape, message = ("the state '%s' has another shape"):format(name) }
  end
end


-- Checks given states: each must be a list over devices or one array of all rows, with the bound
-- shapes.
local function check_all(self, states)
  for k, slots in ipairs(self.state_arrays) do
    local state, name = states[k], self.state_names[k]
    if is_plain(state) then
      for i, x in ipairs(slots) do
        check_given(state[i], x._shape, name)
      end
    else
      check_given(state, whole_shape(slots), name)
    end
  end
end


--- Sets states from arrays (for each a list over devices, or one array), or all to a number. They
-- stay valid for batches of other sizes: a smaller batch uses the first rows of arrays; a batch
-- with more rows than were given is E(state).
-- @tparam ?table states
-- @tparam ?number number
function Group:set_states(states, number)
  if (value(states) == nil) == (value(number) == nil) then
    Error.raise{ code = "value", func = FUNC .. ":set_states", expected = "either states or value",
      got = states and "both" or "neither", message = "give either 'states' or 'value'" }
  end
  if states and #states ~= #self.state_names then
    Error.raise{ code = "value", func = FUNC .. ":set_states", argument = "states",
      expected = #self.state_names,
      got = #states, message = "'states' has not one entry for each state" }
  end
  if states then
    check_all(self, states)
  end
  for k, slots in ipairs(self.state_arrays) do
    local state = states and states[k]
    if class.is_array(state) then
      divide(slots, state, self.state_names[k])
    else
      for i, x in ipairs(slots) do
        if state then
          call.copy(x, state[i], FUNC .. ":set_states", self.state_names[k])
        else
          call.fill(x, number, FUNC .. ":set_states")
        end
      end
    end
    note(self, k, not states and number or nil)
  end
end


return Group
