--- Updates of parameters: `ty.optimizer`.
--
-- An optimizer has the update rule, rates, decays and counts. An updater keeps the states of the
-- parameters, by index (from 0) or name, and applies the optimizer to gradients.
--
--     local sgd = ty.optimizer.SGD{ learning_rate = 0.1, momentum = 0.9,
--       param_idx2name = { [0] = "fc_weight" } }
--     local update = ty.optimizer.get_updater(sgd)
--     update(0, grad, weight)
--     local bytes = update:get_states()              -- update:set_states(bytes) in another process
--
-- The parts: `optimizer.base` (rates and counts), `optimizer.momentum`, `optimizer.adaptive`,
-- `optimizer.layerwise`, `optimizer.other` (the rules), `optimizer.updater`, `optimizer.fused` (the
-- rules as part of a network, without arrays for gradients), `optimizer.clip`. All classes have,
-- after their own options, the common ones: rescale_grad = 1, param_idx2name, wd = 0,
-- clip_gradient, learning_rate, lr_scheduler, sym, begin_num_update = 0, multi_precision = false,
-- param_dict, no_decay (a list of Lua patterns: a parameter whose name matches one does not decay).
--
-- @module tycho.optimizer

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local base = require "tycho.optimizer.base"
local Class = require "tycho.core.class"
local clip = require "tycho.optimizer.clip"
local Error = require "tycho.core.error"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"
local updater = require "tycho.optimizer.updater"
local values = require "tycho.core.values"

local optimizers = {
  Optimizer = base.Optimizer, register = base.register, Updater = updater.Updater,
  get_updater = updater.get_updater, clip_global_norm = clip.clip_global_norm,
}

local PARTS = {
  require "tycho.optimizer.momentum", require "tycho.optimizer.adaptive",
  require "tycho.optimizer.layerwise", require "tycho.optimizer.other",
  require "tycho.optimizer.fused",
}

for _, part in ipairs(PARTS) do
  for name, class in pairs(part) do
    optimizers[name] = class
  end
end

optimizers.ccSGD, base.registry.ccsgd = optimizers.SGD, optimizers.SGD


--- Returns an optimizer by name.
-- @string name in any case; an unknown one is E(name)
-- @tparam[opt] table options
function optimizers.create(name, options)
  if options ~= nil and not values.is_plain(options) then
    Error.raise{ code = "type", func = "optimizer.create", argument = "options",
      expected = "a table of options", got = Error.kind(options), message = "bad 'options'" }
  elseif Class.is_a(name, base.Optimizer) then
    if options and next(options) ~= nil then
      Error.raise{ code = "value", func = "optimizer.create", argument = "options",
        expected = "no options", got = Error.show(options),
        message = "an optimizer that is made already takes no options" }
    end
    return name
  end
  local class = type(name) == "string" and base.registry[name:lower()]
  if not class then
    Error.unknown{ func = "optimizer.create", argument = tostring(name),
      what = "optimizer", among = base.registry }
  end
  return class(options or {})
end


return namespace.close(methods.guard_all(optimizers), "optimizer", "optimizer")
