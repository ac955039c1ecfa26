--- SGD and its relatives: SGD, NAG, Signum; see `optimizer/init.lua`.
--
-- d is the rescaled and clipped gradient, lr and wd the effective rate and decay, m the momentum.
--
-- @module tycho.optimizer.momentum

local base = require "tycho.optimizer.base"
local call = require "tycho.ndarray.call"
local rule = require "tycho.optimizer.rule"
local values = require "tycho.core.values"

local kinds = {}

local is_plain, null = values.is_plain, values.null


-- Returns the state of a parameter; for a float16 or bfloat16 weight with `multi_precision`:
-- {momentum, master copy}.
local function state_with_master(self, index, weight)
  if self:_keeps_master(weight) then
    local master = weight:astype("float32")
    return { self:create_state(index, master) or null, master }
  end
  return self:create_state(index, weight)
end


local function momentum_state(self, _, weight)
  return self.momentum ~= 0 and base.zeros(weight) or nil
end


-- SGD ---------------------------------------------------------------------------------------------

--- w = (1 - lr wd) w - lr d; with momentum m = momentum m - lr (d + wd w), w += m. Options
-- momentum = 0, lazy_update = true (of no effect: there are no sparse gradients), state_dtype =
-- "float32" ("bfloat16": an updater's states, rounded at random).
kinds.SGD = base.kind("SGD",
  { { "momentum", "number", 0 }, { "lazy_update", "boolean", true }, base.STATE_DTYPE })
local SGD = kinds.SGD

SGD.state_options = { "momentum" }
SGD.aggregate_num = tonumber(os.getenv("TYCHO_OPTIMIZER_AGGREGATION_SIZE")) or 4
SGD.create_state, SGD.create_state_multi_precision = momentum_state, state_with_master

function SGD:_together(weight)
  local n = math.min(self.aggregate_num, base.MAX_TOGETHER)
  return n > 0 and base.is_on_gpu(weight) and base.MAX_TOGETHER or n
end


-- Puts the arrays of many updates into one list in the operators' order; returns their number.
local function gather(inputs, weights, grads, states)
  local n, masters = 0, is_plain(states[1])
  for i, weight in ipairs(weights) do
    local momentum = values.value(masters and states[i][1] or states[i])
    inputs[n + 1], inputs[n + 2], n = weight, grads[i], n + 2
    if momentum then
      inputs[n + 1], n = momentum, n + 1
    end
    if masters then
      inputs[n + 1], n = states[i][2], n + 1
    end
  end
  return n, masters
end


local function run_many(self, prefix, inputs, n, masters, params, weights)
  local op = prefix .. (masters and "mp_" or "")
    .. (self.momentum ~= 0 and "sgd_mom_update" or "sgd_update")
  call.many(op, "Optimizer:update", inputs, n, params, weights, #weights)
end


--- Updates a list of weights of one dtype with one operator.
-- @tparam Optimizer self
-- @string prefix "multi_" or "preloaded_multi_"
-- @tparam {NDArray,...} weights
-- @tparam {NDArray,...} grads
-- @tparam table states one per weight
-- @tparam table params further parameters
-- @tparam[opt] table arrays rates and decays as arrays, which follow the other inputs
function SGD._update_many(self, prefix, weights, grads, states, params, arrays)
  local inputs = {}
  local n, masters = gather(inputs, weights, grads, states)
  for i, x in ipairs(arrays or {}) do
    inputs[n + i] = x
  end
  params.num_weights = #weights
  run_many(self, prefix, inputs, n + (arrays and #arrays or 0), masters,
    base.params(self, params), weights)
end


-- Returns single arguments as lists.
function SGD._lists(index, weight, grad, state)
  if type(index) == "table" then
    return index, weight, grad, state
  end
  return { index }, { weight }, { grad }, { state }
end


-- Returns the operator's parameters as texts, which are cached until a number changes.
local function refresh_params(self, indices, kept)
  if self:_refresh(indices, kept) or kept.momentum ~= self.momentum then
    kept.momentum = self.momentum
    kept.params = base.params(self,
      { lrs = base.list_text(kept.lrs), wds = base.list_text(kept.wds), num_weights = #indices,
        momentum = self.momentum ~= 0 and self.momentum or nil })
  end
  return kept.params
end


function SGD:update(index, weight, grad, state, kept)
  local indices, weights, grads, states = SGD._lists(index, weight, grad, state)
  kept = kept or {}
  kept.inputs = kept.inputs or {}
  self:_update_count(indices)
  local n, masters = gather(kept.inputs, weights, grads, states)
  run_many(self, "multi_", kept.inputs, n, masters, refresh_params(self, indices, kept), weights)
end

SGD.update_multi_precision = SGD.update
base.offer_narrow_states(SGD)


-- Returns a `_rule`: it counts an update and returns the operator and its numbers.
local function momentum_rule(op)
  return function(self, index)
    local options = { lr = self:_get_lr(index), wd = self:_get_wd(index) }
    if self.momentum == 0 then
      return "sgd_update", options
    end
    options.momentum = self.momentum
    return op, options
  end
end

SGD._rule = momentum_rule("sgd_mom_update")


-- NAG ---------------------------------------------------------------------------------------------

--- SGD with Nesterov's momentum: the step uses m after its next update. Without momentum it is SGD.
-- Option momentum = 0.
kinds.NAG = base.kind("NAG", { { "momentum", "number", 0 } })
local NAG = kinds.NAG

NAG.state_options = { "momentum" }
NAG.create_state, NAG.create_state_multi_precision = momentum_state, state_with_master
NAG._rule = momentum_rule("nag_mom_update")


rule.follow(NAG)


-- Updates as `update` does; a state with a master copy is {momentum, master copy}.
function NAG:update_multi_precision(index, weight, grad, state)
  if type(index) == "table" or not is_plain(state) then
    return self:update(index, weight, grad, state)
  end
  self:_update_count(index)
  local op, options = self:_rule(index)
  local inputs = { weight, grad, values.value(state[1]) }
  inputs[#inputs + 1] = state[2]
  base.run("mp_" .. op, inputs, base.params(self, options))
end


-- Signum ------------------------------------------------------------------------------------------

--- Steps of equal size in the direction of the momentum's sign: m = momentum m - (1 -
-- momentum)(d + wd w), w = (1 - lr wd_lh) w + lr sign(m). Options
-- learning_rate = 0.01, momentum = 0.9, wd_lh = 0.
kinds.Signum = base.kind("Signum", {
  { "learning_rate", "number|null", 0.01 }, { "momentum", "number", 0.9 }, { "wd_lh", "number", 0 },
})
kinds.Signum.state_options = { "momentum" }
kinds.Signum.create_state = momentum_state


function kinds.Signum:_rule(index)
  local options = { lr = self:_get_lr(index), wd = self:_get_wd(index) }
  if self.momentum == 0 then
    return "signsgd_update", options
  end
  options.momentum, options.wd_lh = self.momentum, self.wd_lh
  return "signum_update", options
end


rule.follow(kinds.Signum)


return kinds
