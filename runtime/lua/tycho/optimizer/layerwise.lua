--- Rates that depend on whole arrays: LARS, LAMB, LBSGD; see `optimizer/init.lua`.
--
-- @module tycho.optimizer.layerwise

local args = require "tycho.core.args"
local base = require "tycho.optimizer.base"
local call = require "tycho.ndarray.call"
local host = require "tycho.ndarray.transfer"
local SGD = require("tycho.optimizer.momentum").SGD
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local kinds = {}

local is_plain = values.is_plain


-- LARS --------------------------------------------------------------------------------------------

--- SGD whose rate for an array is lr eta |w| / (|rescaled gradient| + wd |w| + eps) where both
-- norms are above 0; in a module, arrays named gamma, beta or bias are updated as by SGD. By
-- default only `_weight` arrays decay. Options momentum = 0, lazy_update = true, eta = 0.001, eps =
-- 0, momentum_correction = true (momentum times the change of the rate).
kinds.LARS = base.kind("LARS", {
  { "momentum", "number", 0 }, { "lazy_update", "boolean", true }, { "eta", "number", 0.001 },
  { "eps", "number", 0 }, { "momentum_correction", "boolean", true },
})
local LARS = kinds.LARS

LARS.state_options, LARS.progress = { "momentum" }, { "_cur_lr", "_last_lr" }

for _, name in ipairs{ "aggregate_num", "create_state",
    "create_state_multi_precision", "_update_many" } do
  LARS[name] = SGD[name]
end


function LARS._decays(_, name)
  return name:find("_weight$") ~= nil
end


-- Counts an update of the indices; returns their rates and decays. Keeps the base rate of the
-- previous call for the correction of momentum.
local function begin_lars(self, indices)
  self:_update_count(indices)
  local lr = self.learning_rate
  self._last_lr = self._cur_lr or lr
  self._cur_lr = lr
  return self:_get_lrs(indices), self:_get_wds(indices)
end


-- Returns whether norms scale the rate of an array: always for a Trainer, else depending on its
-- name.
local function is_scaled(self, index)
  if self.param_dict[index] then
    return true
  end
  local name = self.idx2name[index] or tostring(index)
  return not (name:find("gamma$") or name:find("beta$") or name:find("bias$"))
end


-- Returns the positions of a list with those of scaled layers first, and the number of these.
local function sort_layers(self, indices)
  local order, rest = {}, {}
  for i, index in ipairs(indices) do
    local list = is_scaled(self, index) and order or rest
    list[#list + 1] = i
  end
  local n = #order
  for _, i in ipairs(rest) do
    order[#order + 1] = i
  end
  return order, n
end


local function on_device(list, weight)
  return host.from_table(list, args.DTYPES.float32, "LARS:update"):as_in_context(weight.context)
end


-- Scales the rates of the first n arrays by their norms; nothing is read back from the device.
local function scale_rates(self, lrs, wds, weights, grads, n)
  local count = { "num_arrays", call.number(n) }
  local w = call.params("multi_sum_sq", "LARS:update", tables.part(weights, 1, n), count)
  local g = call.params("multi_sum_sq", "LARS:update", tables.part(grads, 1, n), count)
  local head = lrs[("0:%d"):format(n)]
  call.params("multi_lars", "LARS:update", { head, w, g, wds[("0:%d"):format(n)] },
    { "eta", call.number(self.eta), "eps", call.number(self.eps), "rescale_grad",
      call.number(self.rescale_grad) }, head)
end


function LARS:update(index, weight, grad, state)
  local indices, weights, grads, states = SGD._lists(index, weight, grad, state)
  local lrs, wds = begin_lars(self, indices)
  local order, n = sort_layers(self, indices)
  weights, grads, states = tables.pick(weights, order), tables.pick(grads, order),
    tables.pick(states, order)
  lrs, wds = on_device(tables.pick(lrs, order), weights[1]),
    on_device(tables.pick(wds, order), weights[1])
  if n > 0 then
    scale_rates(self, lrs, wds, weights, grads, n)
  end
  local momentum = self.momentum ~= 0 and self.momentum or nil
  if momentum and self.momentum_correction and self._last_lr ~= 0 then
    momentum = momentum * (self._cur_lr / self._last_lr)
  end
  self:_update_many("preloaded_multi_", weights, grads, states,
    { momentum = momentum }, { lrs, wds })
end

LARS.update_multi_precision = LARS.update


-- LAMB --------------------------------------------------------------------------------------------

--- Adam's direction u = m / (sqrt(v) + epsilon) + wd w, with a rate per array: lr |w| / |u|, |w|
-- limited to the bounds. Options learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6,
-- lower_bound, upper_bound, bias_correction = true.
kinds.LAMB = base.kind("LAMB", {
  { "learning_rate", "number|null", 0.001 }, { "beta1", "number", 0.9 },
  { "beta2", "number", 0.999 }, { "epsilon", "number", 1e-6 }, { "lower_bound", "number?" },
  { "upper_bound", "number?" }, { "bias_correction", "boolean", true },
})
local LAMB = kinds.LAMB

LAMB.aggregate_num, LAMB.state_arrays = 45, 2


function LAMB.create_state(_, _, weight)
  return { base.zeros(weight), base.zeros(weight) }
end


-- Returns weight, grad, mean, var and, if there is one, the master copy of each parameter as one
-- list, and whether there are master copies.
local function gather_lamb(weights, grads, states)
  local inputs, masters = {}, is_plain(states[1][2])
  for i, weight in ipairs(weights) do
    local moments = masters and states[i][2] or states[i]
    for _, x in ipairs{ weight, grads[i], moments[1], moments[2],
        masters and states[i][1] or nil } do
      inputs[#inputs + 1] = x
    end
  end
  return inputs, masters
end


function LAMB:update(index, weight, grad, state)
  local indices, weights, grads, states = SGD._lists(index, weight, grad, state)
  self:_update_count(indices)
  local steps = {}
  for i, k in ipairs(indices) do
    steps[i] = self:_count_of(k)
  end
  local inputs, masters = gather_lamb(weights, grads, states)
  call.many(masters and "_multi_mp_lamb_update" or "_multi_lamb_update", "LAMB:update", inputs,
    #inputs, base.params(self, {
      learning_rates = base.list_text(self:_get_lrs(indices)),
      wds = base.list_text(self:_get_wds(indices)), step_count = base.list_text(steps),
      beta1 = self.beta1, beta2 = self.beta2, epsilon = self.epsilon,
      lower_bound = self.lower_bound, upper_bound = self.upper_bound,
      bias_correction = self.bias_correction and "True" or "False", num_tensors = #weights,
    }), weights, #weights)
end

LAMB.update_multi_precision = LAMB.update


-- LBSGD -------------------------------------------------------------------------------------------

--- SGD for large batches that consist of small ones: gradients are summed, and every
-- `batch_scale`-th call updates with their mean and a rate that grows to batch_scale times lr
-- during the warm-up. Options momentum = 0, warmup_strategy = "linear", "power2", "sqrt" or "lars"
-- (a rate from the norms), warmup_epochs = 5, batch_scale = 1, updates_per_epoch = 32, begin_epoch
-- = 0, num_epochs = 60.
kinds.LBSGD = base.kind("LBSGD", {
  { "momentum", "number", 0 }, { "multi_precision", "boolean", false },
  { "warmup_strategy", "text", "linear" }, { "warmup_epochs", "number", 5 },
  { "batch_scale", "number", 1 }, { "updates_per_epoch", "number", 32 },
  { "begin_epoch", "number", 0 }, { "num_epochs", "number", 60 },
})
local LBSGD = kinds.LBSGD

LBSGD.state_options, LBSGD.keyed_progress = { "momentum" }, { "_sums", "_calls" }

LBSGD.create_state = SGD.create_state
LBSGD._update_many = SGD._update_many

local GROWTH = {
  linear = function(done) return done end,
  power2 = function(done) return done * done end,
  sqrt = math.sqrt,
}


-- Returns the factor of the rate at call number n.
local function warmup_factor(self, n)
  local warmup = self.warmup_epochs * self.updates_per_epoch
  if n >= warmup then
    return self.batch_scale
  end
  local growth = warmup > 1 and GROWTH[self.warmup_strategy]
  return growth and 1 + (self.batch_scale - 1) * growth(n / warmup) or 1
end


-- Returns the factor from the norms, between 0.01 and 100.
local function norm_factor(weight, grad, wd)
  local w, g = (weight * weight):sum():asscalar(), (grad * grad):sum():asscalar()
  return math.max(0.01, math.min(math.sqrt(w / (g + wd * w + 1e-18)), 100))
end


-- Adds a gradient to the sum of an index, which may have been loaded or be on another device;
-- returns the sum and the number of calls.
local function collect(self, index, grad)
  self._sums, self._calls = self._sums or {}, self._calls or {}
  self._calls[index] = (self._calls[index] or self.begin_epoch * self.updates_per_epoch) + 1
  if self._sums[index] then
    self._sums[index] = self._sums[index]:as_in_context(grad.context):keep():add_(grad)
  else
    self._sums[index] = grad:copy():keep()
  end
  return self._sums[index], self._calls[index]
end


function LBSGD:update(index, weight, grad, state)
  local lr, wd = self:_get_lr(index), self:_get_wd(index)
  self:_update_count(index)
  local sum, n = collect(self, index, grad)
  if n % self.batch_scale ~= 0 then
    return
  end
  local mean = sum / self.batch_scale
  self._sums[index] = nil
  lr = lr * (self.warmup_strategy == "lars" and norm_factor(weight, mean, wd)
    or warmup_factor(self, n))
  self:_update_many("multi_", { weight }, { mean }, { state }, { lrs = base.list_text{ lr },
    wds = base.list_text{ wd }, momentum = self.momentum ~= 0 and self.momentum or nil })
end

return kinds
