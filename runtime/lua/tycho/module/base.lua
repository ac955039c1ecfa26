--- The base class of modules: their life cycle and parameter files. More methods are in
-- module/scoring.lua, module/fit.lua and module/training_state.lua.
--
-- The order of calls: construct, bind, init_params (or set_params), init_optimizer; then forward,
-- backward, update again and again. `fit` does all of it.
--
-- A subclass implements bind, init_params, get_params, init_optimizer, forward, backward, update,
-- get_outputs, get_input_grads, update_metric; sets the flags `binded`, `for_training`,
-- `inputs_need_grad`, `params_initialized` and `optimizer_initialized`; and adds its read-only
-- properties to `fields`: name -> function(self).
--
-- @module tycho.module.base

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local attempt = require "tycho.core.attempt"
local checkpoint = require "tycho.model.checkpoint"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local clip = require "tycho.optimizer.clip"
local Error = require "tycho.core.error"
local fields = require "tycho.core.fields"
local gradients = require "tycho.module.gradients"
local init = require "tycho.initializer"
local io_data = require "tycho.io.data"
local log = require "tycho.core.log"
local optimizer_names = require "tycho.module.optimizer_names"
local param_check = require "tycho.model.param_check"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local is_plain, null, value = values.is_plain, values.null, values.value

--- Base of modules.
-- @type BaseModule
local BaseModule = Class:extend("BaseModule")


--- Adds the methods of a table, which another file defines, to a class (not for users).
function BaseModule._include(kind, methods)
  for name, method in pairs(methods) do
    kind[name] = method
  end
end

BaseModule:_include(require "tycho.module.scoring")
BaseModule:_include(require "tycho.module.fit")
BaseModule:_include(require "tycho.module.training_state")


-- Fields ------------------------------------------------------------------------------------------

-- flag -> the field that holds it
local FLAGS = { binded = "_binded", for_training = "_for_training",
  inputs_need_grad = "_inputs_need_grad", params_initialized = "_params_initialized",
  optimizer_initialized = "_optimizer_initialized" }

local own_fields = {
  logger = function(self) return rawget(self, "_logger") or log end,
  symbol = function(self) return rawget(self, "_symbol") end,
}

for name, kept in pairs(FLAGS) do
  own_fields[name] = function(self)
    return rawget(self, kept) == true
  end
end

-- Read-only properties by name.
fields.give(BaseModule, own_fields)

--- Whether a class sets the life-cycle flags itself, so that assignments from outside are refused.
-- Subclasses that users write set theirs (not for users).
BaseModule._guards_flags = true


function BaseModule.__newindex(self, key, v)
  local kind = getmetatable(self)
  if FLAGS[key] and not rawget(kind, "_guards_flags") then
    rawset(self, FLAGS[key], v)
  elseif kind.fields[key] then
    Error.raise{ code = "state", func = self.class_name, argument = key,
      message = ("'%s' is read-only"):format(key) }
  else
    rawset(self, key, v)
  end
end


local NEW = args.form("mod.BaseModule", { { "logger", "any?" } })

function BaseModule:init(...)
  self._logger = NEW(...).logger
end


-- States of the life cycle ------------------------------------------------------------------------

-- flag -> advice in errors
local FIRST = {
  binded                = "call bind first",
  params_initialized    = "call init_params or set_params first",
  optimizer_initialized = "call init_optimizer first",
  for_training          = "bind with for_training = true first",
  inputs_need_grad      = "bind with inputs_need_grad = true first",
}


--- Returns the public name of a method, for errors.
function BaseModule:_func(method)
  return self.class_name .. ":" .. method
end


--- Raises E(state) if a flag that the call needs is not set.
-- @string method
-- @param ... flags that must be set
function BaseModule:_need(method, ...)
  if rawget(self, "_freed") then
    Error.raise{ code = "state", func = self:_func(method), message = "the module was freed" }
  end
  for i = 1, select("#", ...) do
    local name = select(i, ...)
    if not self[name] then
      Error.raise{ code = "state", func = self:_func(method),
        argument = name, message = FIRST[name] }
    end
  end
end


-- flag -> the warning of a call whose work is done already
local ALREADY = {
  binded =
    "it is bound already; this call has no effect (force_rebind = true binds again)",
  params_initialized =
    "the parameters have values already; this call has no effect (force_init = true)",
  optimizer_initialized =
    "there is an optimizer already; this call has no effect (force_init = true)",
}


--- Returns whether a call has nothing to do, since its flag is set and `force` is not; warns in
-- that case.
-- @string method
-- @string state name of the flag
-- @bool force
function BaseModule:_is_done(method, state, force)
  if not self[state] or force then
    return false
  end
  self.logger:warning(method .. ": " .. ALREADY[state])
  return true
end


--- Checks the options of bind.
-- @tparam table a checked options of bind
-- @treturn bool whether binding is needed
function BaseModule:_begin_bind(a)
  if self:_is_done("bind", "binded", a.force_rebind) then
    return false
  elseif a.inputs_need_grad and not a.for_training then
    Error.raise{ code = "value", func = self:_func("bind"), argument = "inputs_need_grad",
      message = "'inputs_need_grad' needs for_training = true" }
  end
  return true
end


--- Raises an error if bind was given a shared module, for classes that do not support one.
function BaseModule:_refuse_shared(a)
  if value(a.shared_module) then
    Error.raise{ code = "unsupported", func = self:_func("bind"), argument = "shared_module",
      message = "only a Module can share another one's memory" }
  end
end


--- Returns a property of a bound module; raises E(state) before bind.
function BaseModule:_bound(name)
  self:_need(name, "binded")
  return self
end


-- Running -----------------------------------------------------------------------------------------

local function data_of(batch)
  return batch.data
end


-- Returns whether an object has a table `data`, as a batch has.
local function has_data(batch)
  if type(batch) ~= "table" or class.is_array(batch) then
    return false
  elseif rawget(batch, "data") then
    return true
  end
  local ok, data = attempt(data_of, batch)
  return ok and type(data) == "table"
end


--- Checks a batch. A table `{data = ..., label = ...}` becomes a DataBatch; a list of batches, one
-- for each device, is returned as it is. Anything else is E(type).
function BaseModule._batch(given, func)
  if is_plain(given) and #given == 0 then
    return io_data.DataBatch(given)
  end
  local parts = is_plain(given) and given
  for i = 1, parts and #parts or 1 do
    local batch = parts and parts[i] or given
    if not has_data(batch) then
      Error.raise{ code = "type", func = func, argument = "data_batch", got = Error.kind(batch),
        expected = "a DataBatch, or a table of its fields: {data = {array}, label = {array}}",
        message = "bad 'data_batch'" }
    end
  end
  return given
end


--- Runs forward with is_train = true, then backward.
function BaseModule:forward_backward(data_batch)
  self:forward(data_batch, true)
  self:backward()
end


--- Prepares for a batch before it is run. Here it only warns of a `sparse_row_id_fn`.
-- @param data_batch
-- @tparam[opt] function sparse_row_id_fn has no effect: there are no sparse parameters
function BaseModule:prepare(data_batch, sparse_row_id_fn)
  if value(sparse_row_id_fn) then
    self.logger:warning("prepare: 'sparse_row_id_fn' has no effect, there are no sparse parameters")
  end
end


--- Returns an empty list: the module has no states.
function BaseModule:get_states()
  self:_need("get_states", "binded", "params_initialized")
  return {}
end


function BaseModule:set_states()
  self:_need("set_states", "binded", "params_initialized")
end


local MONITOR = args.form("BaseModule:install_monitor", { { "mon", "any" } })
local METRIC = args.form("BaseModule:update_metric", {
  { "eval_metric", "any" }, { "labels", "list" }, { "pre_sliced", "boolean", false },
})

-- Returns whether an object has a method.
local function has_method(object, name)
  return type(object) == "table" and not class.is_array(object) and type(object[name]) == "function"
end


--- Returns the monitor among the arguments of `install_monitor`, checked (not for users).
function BaseModule:_checked_monitor(...)
  local mon = has_method(..., "install") and ... or MONITOR(...).mon
  if not has_method(mon, "install") then
    Error.raise{ code = "type", func = self:_func("install_monitor"), argument = "mon",
      expected = "a Monitor", got = Error.kind(mon), message = "bad 'mon'" }
  end
  return mon
end


--- Returns the arguments of `update_metric`, checked (not for users).
function BaseModule:_metric_arguments(eval_metric, ...)
  local metric, labels, pre_sliced = eval_metric, ...
  if not has_method(metric, "update_dict") then
    local a = METRIC(eval_metric, ...)
    metric, labels, pre_sliced = a.eval_metric, a.labels, a.pre_sliced
  end
  if not has_method(metric, "update_dict") then
    Error.raise{ code = "type", func = self:_func("update_metric"), argument = "eval_metric",
      expected = "a metric", got = Error.kind(metric), message = "bad 'eval_metric'" }
  elseif values.value(labels) ~= nil and type(labels) ~= "table" then
    Error.raise{ code = "type", func = self:_func("update_metric"), argument = "labels",
      expected = "a list of arrays", got = Error.kind(labels), message = "bad 'labels'" }
  end
  return metric, labels, pre_sliced
end


--- Returns `{name, label}` for each label, in the order of the outputs that metrics compare them
-- with (not for users).
-- @tparam {NDArray,...} labels in the order of `label_shapes`
function BaseModule:_name_labels(labels)
  local list = {}
  for k, x in ipairs(labels) do
    list[k] = { self.label_names[k] or ("label%d"):format(k - 1), x }
  end
  return list
end


-- Parameters --------------------------------------------------------------------------------------

--- Options of bind, for subclasses.
BaseModule.BIND = {
  list = true, { "data_shapes", "table" }, { "label_shapes", "table?" },
  { "for_training", "boolean", true }, { "inputs_need_grad", "boolean", false },
  { "force_rebind", "boolean", false }, { "shared_module", "any?" },
  { "grad_req", "text|table", "write" },
}

--- Options of init_optimizer, for subclasses.
BaseModule.INIT_OPTIMIZER = {
  advice = optimizer_names.advice,
  { "kvstore", "any|null?" }, { "optimizer", "any", "sgd" }, { "optimizer_params", "table?" },
  { "force_init", "boolean", false },
}


--- Returns a list of options extended by more of them.
function BaseModule._extend_options(options, more)
  local list = tables.copy(options)
  for _, entry in ipairs(more) do
    list[#list + 1] = entry
  end
  return list
end


--- Options of init_params, for subclasses. `initializer = ty.null` means no initializer.
BaseModule.INIT_PARAMS = {
  { "initializer", "any|null?" }, { "arg_params", "dict?" }, { "aux_params", "dict?" },
  { "allow_missing", "boolean", false }, { "force_init", "boolean", false },
  { "allow_extra", "boolean", false },
}

--- Options of set_params, for subclasses.
BaseModule.SET_PARAMS = {
  dict = true, { "arg_params", "dict?" }, { "aux_params", "dict?" },
  { "allow_missing", "boolean", false }, { "force_init", "boolean", true },
  { "allow_extra", "boolean", false },
}


--- Returns the initializer that a call of init_params asks for: Uniform(0.01) by default, nil for
-- `ty.null`.
function BaseModule._initializer(given)
  if given == null then
    return nil
  end
  return init.create(given or init.Uniform(0.01))
end


local SET = args.form("Module:set_params", BaseModule.SET_PARAMS)

--- Sets parameters: a missing name is E(name) unless `allow_missing`.
-- @tparam table arg_params name -> NDArray
-- @tparam[opt] table aux_params
-- @tparam[opt] table options allow_missing = false, force_init = true, allow_extra = false
function BaseModule:set_params(...)
  local a = SET(...)
  self:init_params{ initializer = null, arg_params = a.arg_params or {}, aux_params = a.aux_params
    or {}, allow_missing = a.allow_missing, force_init = a.force_init, allow_extra = a.allow_extra }
end


--- Returns arrays that have the shapes of the parameters and of the auxiliary states, by name; here
-- nil (not for users).
-- @tparam table given parameters that are about to be set, by name
-- @treturn ?table arrays of parameters; nil: the class does not know the shapes
-- @treturn ?table arrays of auxiliary states
function BaseModule:_own_params(given)                    -- luacheck: ignore self given
  return nil
end


--- Returns the parameters as `get_params` does, for callers that only read the values at once, so
-- that a module may return its internal arrays instead of copies (not for users).
function BaseModule:_read_params()
  return self:get_params()
end


--- Gives all devices the same parameters, at the end of an epoch (not for users).
function BaseModule:_equalize_params()
  self:set_params(self:get_params())
end


local FILE = args.form("Module:save_params", { { "fname", "path" } })

--- Writes the parameters to a file, under the names `arg:NAME` and `aux:NAME`.
-- @string fname
function BaseModule:save_params(...)
  local a = FILE(...)
  checkpoint.write_params(a.fname, self:_read_params())
end


local LOAD = args.form("Module:load_params",
  { { "fname", "path" }, "*", { "rename", "function?" } })

--- Sets the parameters from a file that `save_params` wrote; a name without `arg:` or `aux:` is
-- E(format).
-- @string fname
-- @tparam[opt] table options rename: function of a name in the file -> its
--   name here, or nil to leave the name unchanged
function BaseModule:load_params(...)
  local a, func = LOAD(...), self:_func("load_params")
  local arg_params, aux_params = checkpoint.read_params(a.fname, func, true)
  self:set_params(param_check.renamed(arg_params, a.rename, func),
    param_check.renamed(aux_params, a.rename, func))
end


--- Returns the bytes that executors and parameters take, by kind; here an empty table.
function BaseModule.memory(_)
  return {}
end


--- Returns the objects with the optimizers' states, for the saved state of a training (not for
-- users).
-- @treturn table list of `{updater, module}`
function BaseModule._updaters(_)
  return {}
end


--- Returns the key-value stores that hold values between updates, for the saved state of a training
-- (not for users).
-- @treturn table list
function BaseModule._stores(_)
  return {}
end


local CLIP = args.form("Module:clip_global_norm", { { "max_norm", "number" } })

--- Scales all gradients, as the optimizer receives them, so that the norm of all together is at
-- most a limit. Call it between backward and update.
-- @number max_norm
-- @treturn ?NDArray their norm before, one element; nil if there are no gradients
function BaseModule:clip_global_norm(...)
  self:_need("clip_global_norm", "binded", "optimizer_initialized")
  local a = CLIP(...)
  clip.check_limit(a.max_norm, self:_func("clip_global_norm"))
  return gradients.clip(self:_gradients(), a.max_norm)
end


--- Returns the gradients that `fit` changes before an update (not for users).
-- @treturn table list of `{copies, scale}`; see module/gradients.lua
function BaseModule._gradients(_)
  return {}
end


--- Runs the last batch again, without side effects, up to the first node whose result has a NaN or
-- an infinity (not for users).
-- @treturn ?Error that names the node; nil: there is none, or the class cannot find it
function BaseModule._first_bad_number(_)
  return nil
end


--- Marks the module as freed; subclasses also free their objects.
function BaseModule:free()
  self._freed = true
end


function BaseModule:__tostring()
  return ("<%s%s>"):format(self.class_name, self.binded and " bound" or "")
end


return BaseModule
