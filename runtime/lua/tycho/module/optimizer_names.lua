--- The error text for an option of an optimizer that is given to `fit` or `init_optimizer` directly
-- (not for users).
--
-- @module tycho.module.optimizer_names

local base = require "tycho.optimizer.base"

local optimizer_names = {}

-- names in other libraries -> names in Tycho
local FOREIGN = { lr = "learning_rate", weight_decay = "wd", eps = "epsilon" }


--- Returns a text that says where an option of optimizers must be given; nil for other names.
-- @string key
function optimizer_names.advice(key)
  require "tycho.optimizer"                              -- registers the optimizers
  local name = FOREIGN[key] or key
  if base.all_options()[name] then
    return ("options of the optimizer go into optimizer_params = {%s = ...}"):format(name)
  end
end


return optimizer_names
