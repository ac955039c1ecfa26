--- The optimizer that all buckets of a BucketingModule share. Adds methods to it.
--
-- @module tycho.module.bucketing_optimizer

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local INIT_OPTIMIZER = require("tycho.module.optimizer").INIT_OPTIMIZER

local BucketingModule = {}                               -- methods, for module/bucketing.lua


-- Gives the optimizer of the bucket `owner` to all buckets.
local function share_optimizer(self, owner)
  self._optimizer_owner, self._optimizer_initialized = owner, true
  for _, m in ipairs(self._met) do
    if m ~= owner then
      m:borrow_optimizer(owner)
    end
  end
  local m = self._curr_module
  self._optimizer, self._kvstore, self._updater = m._optimizer, m._kvstore, m._updater
  self._update_on_kvstore = m._update_on_kvstore
end


local OPTIMIZER = args.form("BucketingModule:init_optimizer", INIT_OPTIMIZER)

--- Makes the optimizer that all buckets share.
-- @tparam[opt] table options as for `Module:init_optimizer`
function BucketingModule:init_optimizer(...)
  self:_need("init_optimizer", "binded", "params_initialized")
  local a = OPTIMIZER(...)
  if self:_is_done("init_optimizer", "optimizer_initialized", a.force_init) then
    return
  end
  self:_sync_params()
  self._curr_module:init_optimizer{ kvstore = a.kvstore, optimizer = a.optimizer,
    optimizer_params = a.optimizer_params, force_init = true, in_backward = a.in_backward }
  share_optimizer(self, self._curr_module)
end


--- Uses another module's optimizer, its states and its store.
function BucketingModule:borrow_optimizer(other)
  self:_need("borrow_optimizer", "binded")
  self._curr_module:borrow_optimizer(other)
  share_optimizer(self, self._curr_module)
end


local STATES = args.form("BucketingModule:load_optimizer_states", { { "fname", "path" } })

--- Loads optimizer states as `Module:load_optimizer_states` does; states of parameters that only
-- later buckets have are stored for them.
-- @string fname
function BucketingModule:load_optimizer_states(...)
  self:_need("load_optimizer_states", "binded", "optimizer_initialized")
  self._curr_module:_load_optimizer_states(STATES(...).fname, true)
  self._optimizer = self._curr_module._optimizer
end


--- Whether states of unknown parameters are stored for later buckets (not for users).
BucketingModule._keeps_unknown_states = true


function BucketingModule:_state_targets()
  return self._curr_module:_state_targets()
end


function BucketingModule:_updaters()
  local list = self._curr_module and self._curr_module:_updaters() or {}
  for _, pair in ipairs(list) do
    pair[2] = self
  end
  return list
end


function BucketingModule:_stores()
  return self._curr_module and self._curr_module:_stores() or {}
end


--- Turns the scaling of gradients on or off, also for buckets that are bound later (not for users).
function BucketingModule:_scale_loss(loss_scale)
  for _, m in ipairs(self._met) do
    m:_scale_loss(loss_scale)
  end
end


BucketingModule._can_accumulate = true

function BucketingModule:_gradients()
  return self._curr_module:_gradients()
end


return BucketingModule
