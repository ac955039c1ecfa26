--- The base class of modules that keep their parameters in stores: Module and BucketingModule.
--
-- `_arg_store` and `_aux_store` (module/param_store.lua) hold the parameters and the auxiliary
-- states. Parameters have host copies from the first `get_params` on. Auxiliary states always have
-- them: as in the reference, changes that forward without an update makes to the devices' states do
-- not count. Modules that share memory share these objects and `_param_index`, the number of each
-- parameter (from 0) under which the optimizer stores its state.
--
-- @module tycho.module.parameter_module

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local BaseModule = require "tycho.module.base"
local ParamStore = require "tycho.module.param_store"

--- A module with stores of parameters.
-- @type ParameterModule
local ParameterModule = BaseModule:extend("ParameterModule")
ParameterModule._guards_flags = true


ParameterModule.fields = BaseModule.extend_fields{
  _arg_params   = function(self) return self._arg_store:copies() end,
  _aux_params   = function(self) return self._aux_store:copies() end,
  _params_dirty = function(self) return self._arg_store.stale end,
}


--- @param logger
function ParameterModule:init(logger)
  ParameterModule.super.init(self, { logger = logger })
  self:_set_stores({}, {})
end


--- Makes new stores that hold given arrays (not for users).
-- @tparam table arg_params by name
-- @tparam table aux_params
function ParameterModule:_set_stores(arg_params, aux_params)
  self._arg_store, self._aux_store = ParamStore(false, arg_params), ParamStore(true, aux_params)
end


--- Records that parameters are initialized (not for users).
-- @bool stale whether the devices have newer values than the host copies
function ParameterModule:_have_params(stale)
  local args, auxs = self._arg_store, self._aux_store
  self._params_initialized, args.stale, auxs.stale = true, stale or args.lent, stale or auxs.lent
end


--- Brings host copies up to date (not for users).
function ParameterModule:_sync_params()
  self._arg_store:refresh()
  self._aux_store:refresh()
end


--- Returns parameters and auxiliary states as host arrays by name. These are the module's internal
-- tables, which the next call overwrites.
-- @treturn table arg_params
-- @treturn table aux_params
function ParameterModule:get_params()
  self:_need("get_params", "params_initialized")
  return self._arg_store:copies(), self._aux_store:copies()
end


function ParameterModule:_own_params()
  return self._arg_store:arrays(), self._aux_store:arrays()
end


function ParameterModule:_read_params()
  self:_need("get_params", "params_initialized")
  return self._arg_store:values(), self._aux_store:values()
end


-- Makes the parameters equal on all devices. With one device and no store it only updates the host
-- copies; a store may hold other values than the device.
function ParameterModule:_equalize_params()
  if #self._context > 1 or self._kvstore then
    return ParameterModule.super._equalize_params(self)
  end
  self:_sync_params()
end


return ParameterModule
