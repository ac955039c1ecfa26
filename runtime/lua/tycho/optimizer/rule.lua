--- Optimizers whose step is one operator: `_rule(index)` returns its name and its options,
-- including `lr` and `wd`; an update is counted before the call of `_rule`.
--
-- @module tycho.optimizer.rule

local base = require "tycho.optimizer.base"
local call = require "tycho.ndarray.call"
local methods = require "tycho.core.methods"
local values = require "tycho.core.values"

local rule = {}


-- Returns the arrays of a state, which is nil, an array, or a list.
local function list_arrays(state)
  state = values.value(state)
  return values.is_plain(state) and state or { state }
end


-- Returns all weights, all gradients, the first array of each state and so on as one list of
-- arrays.
local function in_line(weights, grads, states)
  local rows, line, n = { weights, grads }, {}, #weights
  for i, state in ipairs(states) do
    for k, x in ipairs(list_arrays(state)) do
      rows[k + 2] = rows[k + 2] or {}
      rows[k + 2][i] = x
    end
  end
  for k, row in ipairs(rows) do
    for i = 1, n do
      line[(k - 1) * n + i] = row[i]
    end
  end
  return line
end


local function update_many(self, indices, weights, grads, states)
  local lrs, wds, op, options = {}, {}
  for i, index in ipairs(indices) do
    self:_update_count(index)
    op, options = self:_rule(index)
    lrs[i], wds[i] = options.lr, options.wd
  end
  options.lr, options.wd, options.rule, options.num_weights = nil, nil, op, #indices
  options.lrs, options.wds = base.list_text(lrs), base.list_text(wds)
  local inputs = in_line(weights, grads, states)
  call.many("_multi_update", "Optimizer:update", inputs, #inputs, base.params(self, options),
    weights, #weights)
end


-- Updates a weight, or a list of weights of one type.
local function update(self, index, weight, grad, state)
  if type(index) == "table" then
    return update_many(self, index, weight, grad, state)
  end
  self:_update_count(index)
  local op, options = self:_rule(index)
  base.run(op, { weight, grad, unpack(list_arrays(state)) }, base.params(self, options))
end


-- Returns the number of weights that one call updates; 0: one by one. On a GPU, where each launch
-- costs time, all are updated together, except those of a class with its own `update` and those
-- that may have master copies.
local function together(self, weight)
  local many = methods.inner(self.update) == update and base.is_on_gpu(weight)
    and not base.is_half(weight)
  return many and base.MAX_TOGETHER or 0
end


--- Sets the `update` of a class that has a `_rule`.
-- @tparam table Kind
function rule.follow(Kind)
  Kind.update, Kind._together = update, together
end


return rule
