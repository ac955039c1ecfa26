--- Updates fused into backward, without arrays for gradients: `ty.optimizer.FusedOptimizer`, also
-- called `ty.optimizer.Learner`.
--
-- The optimizer's update becomes a part of the network: each parameter is read through a node whose
-- backward updates it in place, as soon as the gradient is complete and the old weight has no more
-- readers. Gradients are then ordinary values, whose memory is reused at once, and the
-- result is that of an updater, bit by bit. The states are auxiliary states of the new symbol,
-- `<parameter>_fused_mom` and so on; another one has the rates.
--
--     local fused = ty.optimizer.FusedOptimizer{ symbol = net,
--       optimizer = ty.optimizer.SGD{ momentum = 0.9 }, params = names }
--     local exe =
--       fused.symbol:simple_bind{ ctx = ty.cpu(), data = { 32, 784 }, grad_req = "null" }
--     exe:forward(true)
--     fused:backward(exe)                                     -- updates the parameters
--
-- The optimizer's update must be one operator: SGD, NAG, Signum, Adam, RMSProp, Ftrl.
--
-- @module tycho.optimizer.fused

jit.off(true, true)                                      -- makes graphs: core/iterate.lua

local args = require "tycho.core.args"
local base = require "tycho.optimizer.base"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local Executor = require("tycho.executor.executor").Executor
local nd = require "tycho.ndarray"
local sym = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"

--- An optimizer as a part of a network.
-- @type FusedOptimizer
local FusedOptimizer = Class:extend("FusedOptimizer")

local FORM = args.form("optimizer.FusedOptimizer", {
  { "symbol", "symbol" }, { "optimizer", "any" }, { "params", "table" },
  { "name", "text", "fused" }, { "indices", "list?" },
})
local FUNC = "optimizer.FusedOptimizer"


-- Returns the symbol's own variable nodes, with their attributes.
local function find_variables(symbol, names)
  local internals, arguments, list = symbol:get_internals(), symbol:list_arguments(), {}
  local known = tables.positions(arguments)
  for i, name in ipairs(names) do
    if not known[name] then
      Error.raise{ code = "name", func = FUNC, argument = "params", got = tostring(name),
        candidates = Error.nearest(name, arguments),
        message = ("the symbol has no argument '%s'"):format(tostring(name)) }
    end
    list[i] = internals:output(name)
  end
  return list
end


--- Raises an error for an optimizer whose update is not one operator (not for users).
-- @param o optimizer
-- @string func for errors
function FusedOptimizer.check(o, func)
  if not Class.is_a(o, base.Optimizer) then
    Error.raise{ code = "type", func = func, argument = "optimizer", expected = "an Optimizer",
      got = Error.kind(o), message = "bad 'optimizer'" }
  elseif not o._rule or o.multi_precision or o.state_dtype == "bfloat16" then
    Error.raise{ code = "unsupported", func = func, argument = "optimizer", got = o.class_name,
      expected = "SGD, NAG, Signum, Adam, RMSProp or Ftrl, without multi_precision and "
        .. "bfloat16 states",
      message = ("%s updates with more than one operator, which backward cannot hold")
        :format(o.class_name) }
  end
end


-- Returns the rule of a parameter: its constant numbers, with the operator's name; the rate; the
-- decay.
local function rule_of(o, index)
  local op, rule = o:_rule(index)
  local lr, wd = rule.lr, rule.wd
  rule.lr, rule.wd, rule.rule = nil, nil, op
  rule.rescale_grad, rule.clip_gradient =
    o.rescale_grad, o.clip_gradient ~= 0 and o.clip_gradient or nil
  return rule, lr, wd
end


local function counted(n)
  local list = {}
  for i = 1, n do
    list[i] = i - 1
  end
  return list
end


-- Records the parameter and the position of each auxiliary state of the fused update; the last one
-- has the rates and belongs to no parameter.
local function note_states(self, param, names)
  for slot = 1, #names - 1 do
    self.states[names[slot]] = { param, slot }
  end
end


--- Makes a symbol of the network with the updates. `states` maps each auxiliary state to `{
-- parameter, position }`.
-- @tparam table options symbol, optimizer (an Optimizer), params (names of the arguments to
--   update), name = "fused", indices (the optimizer's, one for each; 0, 1, ...)
function FusedOptimizer:init(...)
  local a = FORM(...)
  FusedOptimizer.check(a.optimizer, FUNC)
  self.optimizer, self.params, self.states, self._rates, self._rules =
    a.optimizer, a.params, {}, {}, {}
  self._array, self._indices = a.name .. "_rates", a.indices or counted(#a.params)
  local rates, updated = sym.Variable{ self._array, shape = { #a.params, 2 } }, {}
  for i, variable in ipairs(find_variables(a.symbol, a.params)) do
    local name, index = a.params[i], self._indices[i]
    if a.optimizer.idx2name[index] == nil then
      a.optimizer.idx2name[index] = name
    end
    local rule = rule_of(a.optimizer, index)
    local attributes = tables.copy(rule)
    attributes.weight, attributes.rates, attributes.at, attributes.name =
      variable, rates, i - 1, name .. "_fused"
    updated[name], self._rules[i] = sym._learn(attributes), rule
    note_states(self, name, updated[name]:list_auxiliary_states())
  end
  --- The network with the updates.
  self.symbol = a.symbol(updated)
end


-- Returns the first key under which two tables have different values.
local function difference(a, b)
  for key, value in pairs(a) do
    if b[key] ~= value then
      return key
    end
  end
end


local function check_rule(kept, rule)
  local key = difference(rule, kept) or difference(kept, rule)
  if key then
    Error.raise{ code = "state", func = "FusedOptimizer:backward", argument = key,
      expected = tostring(kept[key]), got = tostring(rule[key]),
      message = ("'%s' of the optimizer has changed; only rates and decays may: \z
        make another FusedOptimizer"):format(key) }
  end
end


-- Counts an update of each parameter as an updater does: in groups of the parameters that the
-- optimizer updates together, since a schedule uses the largest count so far.
local function count(self, i)
  local together = math.max(self.optimizer.aggregate_num, 1)
  if (i - 1) % together == 0 then
    self.optimizer:_update_count(tables.part(self._indices, i,
      math.min(i + together - 1, #self._indices)))
  end
end


-- Counts an update and puts rates and decays, row by row, into `self._rates`; returns whether any
-- changed.
local function refresh(self)
  local list, changed = self._rates, false
  for i, index in ipairs(self._indices) do
    count(self, i)
    local rule, lr, wd = rule_of(self.optimizer, index)
    check_rule(self._rules[i], rule)
    changed = changed or list[2 * i - 1] ~= lr or list[2 * i] ~= wd
    list[2 * i - 1], list[2 * i] = lr, wd
  end
  return changed
end


--- Continues with another optimizer of the same rule, such as one from a loaded state, or with
-- other indices (not for users).
function FusedOptimizer:follow(optimizer, indices)
  self.optimizer, self._indices = optimizer, indices
end


--- Counts an update, writes the rates to the executor and runs backward, which updates the
-- parameters.
-- @tparam Executor exe one of `self.symbol`, after `forward(true)`
-- @tparam[opt] ?NDArray|{NDArray,...} head_grads as `Executor:backward` takes them
function FusedOptimizer:backward(exe, head_grads)
  local array = Class.is_a(exe, Executor) and exe.aux_dict[self._array]
  if not array then
    Error.raise{ code = "value", func = "FusedOptimizer:backward", argument = "exe",
      expected = "an executor of the FusedOptimizer's symbol", got = Error.kind(exe),
      message = ("it has no auxiliary state '%s'"):format(self._array) }
  end
  if refresh(self) or array ~= self._written then
    array[":"] = nd.array{ self._rates, dtype = "float32" }:reshape{ -1, 2 }
    self._written = array
  end
  exe:backward(head_grads)
end


return { FusedOptimizer = FusedOptimizer, Learner = FusedOptimizer }
