--- The module `ty.model`: checkpoints, FeedForward, functions shared by trainings.
--
-- The parts: `model.checkpoint`, `module.feedforward`, `module.stores`.
--
-- @module tycho.model

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local namespace = require "tycho.core.namespace"
local stores = require "tycho.module.stores"
require "tycho.executor"                                 -- so that loaded symbols can be bound

local model = {
  _create_kvstore = stores.create, _initialize_kvstore = stores.initialize,
  update_params = stores.update,
}

for name, f in pairs(require "tycho.model.checkpoint") do
  model[name] = f
end


local PARAM = args.form("model.BatchEndParam", {
  { "epoch", "integer" }, { "nbatch", "integer" }, { "eval_metric", "any?" }, { "locals", "any?" },
})

--- Returns the table that batch callbacks are called with: `{epoch, nbatch, eval_metric, locals}`;
-- epoch and nbatch count from 0.
function model.BatchEndParam(...)
  return PARAM(...)
end


local function check_module(module, func)
  if not Class.is_a(module, require "tycho.module.base") then
    Error.raise{ code = "type", func = func, argument = "module", expected = "a module",
      got = Error.kind(module), message = "bad 'module'" }
  end
end


--- Writes the state of a training; see `Module:save_state`.
function model.save_state(module, ...)
  check_module(module, "model.save_state")
  return module:save_state(...)
end


--- Restores the state of a training; see `Module:load_state`.
function model.load_state(module, ...)
  check_module(module, "model.load_state")
  return module:load_state(...)
end


local missing = namespace.missing("model", "function", model, function()
  return { "FeedForward" }
end)

return setmetatable(model, { __index = function(_, key)
  if key ~= "FeedForward" then
    return missing(key)
  end
  model.FeedForward = require "tycho.module.feedforward"
  return model.FeedForward
end })
