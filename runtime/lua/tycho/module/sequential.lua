--- A chain of modules: `ty.mod.SequentialModule`.
--
--     local s = ty.mod.SequentialModule()
--     s:add(first):add(second, { take_labels = true, auto_wiring = true })
--     s:fit{ train_data = it, num_epoch = 2 }
--
-- The outputs of one module are the data of the next; gradients go back the same way. A module with
-- `take_labels` gets the batch's labels and is part of metrics; with `auto_wiring` its inputs are
-- renamed to its data names.
--
-- @module tycho.module.sequential

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local BaseModule = require "tycho.module.base"
local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local io_data = require "tycho.io.data"
local null = require("tycho.core.values").null
local param_check = require "tycho.model.param_check"

--- A chain of modules.
-- @type SequentialModule
local SequentialModule = BaseModule:extend("SequentialModule")
SequentialModule._guards_flags = true


local function first_of(self, name)
  return self._modules[1] and self._modules[1][name] or {}
end


local function last_of(self, name)
  local last = self._modules[#self._modules]
  return last and last[name] or {}
end


SequentialModule.fields = BaseModule.extend_fields{
  data_names    = function(self) return first_of(self, "data_names") end,
  output_names  = function(self) return last_of(self, "output_names") end,
  data_shapes   = function(self) return first_of(self:_bound("data_shapes"), "data_shapes") end,
  label_shapes  = function(self) return self:_bound("label_shapes")._label_shapes end,
  output_shapes = function(self) return last_of(self:_bound("output_shapes"), "output_shapes") end,
  label_names   = function(self)
    for i, m in ipairs(self._modules) do
      if self._metas[i].take_labels then
        return m.label_names
      end
    end
    return {}
  end,
}


local NEW = args.form("mod.SequentialModule", { { "logger", "any?" } })

function SequentialModule:init(...)
  SequentialModule.super.init(self, { logger = NEW(...).logger })
  self._modules, self._metas = {}, {}
end


local ADD = args.form("SequentialModule:add", {
  { "module", BaseModule }, "*", { "take_labels", "boolean", false },
  { "auto_wiring", "boolean", false },
})

--- Adds a module at the end; the chain must be bound again.
-- @tparam BaseModule module
-- @tparam[opt] table options take_labels = false, auto_wiring = false
-- @treturn SequentialModule itself
function SequentialModule:add(...)
  local a = ADD(...)
  self._modules[#self._modules + 1] = a.module
  self._metas[#self._modules] = { take_labels = a.take_labels, auto_wiring = a.auto_wiring }
  self._binded, self._params_initialized, self._optimizer_initialized = false, false, false
  return self
end


-- Binding -----------------------------------------------------------------------------------------

local BIND = args.form("SequentialModule:bind", BaseModule.BIND)


-- Returns copies of descriptions, renamed to a module's data names.
local function rewired(m, descs)
  local names, list = m.data_names, {}
  if #names ~= #descs then
    Error.raise{ code = "value", func = "SequentialModule:bind", argument = "auto_wiring",
      expected = #names,
      got = #descs, message = "a module has another number of inputs than come in" }
  end
  for i, d in ipairs(descs) do
    list[i] = io_data.DataDesc(names[i], d[2])
  end
  return list
end


--- Binds all modules in order.
function SequentialModule:bind(...)
  local a = BIND(...)
  if not self:_begin_bind(a) then
    return
  end
  self:_refuse_shared(a)
  if #self._modules == 0 then
    Error.raise{ code = "state", func = "SequentialModule:bind",
      message = "the chain is empty; add modules first" }
  end
  local coming, labels_used =
    descriptions.list(a.data_shapes, "SequentialModule:bind", "data_shapes"), false
  for i, m in ipairs(self._modules) do
    local meta = self._metas[i]
    coming = meta.auto_wiring and rewired(m, coming) or coming
    labels_used = labels_used or meta.take_labels
    m:bind{ data_shapes = coming, label_shapes = meta.take_labels and a.label_shapes or nil,
      for_training = a.for_training, inputs_need_grad = a.for_training
        and (i > 1 or a.inputs_need_grad), force_rebind = a.force_rebind, grad_req = a.grad_req }
    coming = m.output_shapes
  end
  self._label_shapes = labels_used
    and descriptions.list(a.label_shapes, "SequentialModule:bind", "label_shapes") or nil
  self._for_training, self._inputs_need_grad, self._binded =
    a.for_training, a.inputs_need_grad, true
end


-- Parameters --------------------------------------------------------------------------------------

-- Merges, by name, the tables of parameters that a method of each module returns.
local function gathered(self, method)
  self:_need("get_params", "binded", "params_initialized")
  local arg_params, aux_params = {}, {}
  for _, m in ipairs(self._modules) do
    local own_args, own_auxs = m[method](m)
    for name, x in pairs(own_args) do
      arg_params[name] = x
    end
    for name, x in pairs(own_auxs) do
      aux_params[name] = x
    end
  end
  return arg_params, aux_params
end


--- Returns the parameters of all modules.
function SequentialModule:get_params()
  return gathered(self, "get_params")
end


function SequentialModule:_read_params()
  return gathered(self, "_read_params")
end


function SequentialModule:_equalize_params()
  for _, m in ipairs(self._modules) do
    m:_equalize_params()
  end
end


-- Raises E(name) if two modules have a parameter of the same name.
local function check_unique(self)
  local owner = {}
  for i, m in ipairs(self._modules) do
    local own_args, own_auxs = m:_read_params()
    for _, params in ipairs{ own_args, own_auxs } do
      for name in pairs(params) do
        if owner[name] then
          Error.raise{ code = "name", func = "SequentialModule:init_params", argument = name,
            message = ("modules %d and %d both have a parameter '%s'")
              :format(owner[name], i, name) }
        end
        owner[name] = i
      end
    end
  end
end


function SequentialModule:_own_params(given)
  local own_args, own_auxs = {}, {}
  for _, m in ipairs(self._modules) do
    local arg_params, aux_params = m:_own_params(given)
    if not arg_params then
      return nil
    end
    for name, x in pairs(arg_params) do
      own_args[name] = x
    end
    for name, x in pairs(aux_params) do
      own_auxs[name] = x
    end
  end
  return own_args, own_auxs
end


-- Raises an error if given parameters do not fit those of all modules together.
local function check_given(self, a, allow_extra, method)
  local own_args, own_auxs = self:_own_params(a.arg_params)
  if own_args then
    param_check.check({ own_args, own_auxs }, { a.arg_params, a.aux_params }, {
      allow_missing = a.allow_missing, allow_extra = allow_extra,
      what = method == "init_params" and "initialises them" or nil,
    }, "SequentialModule:" .. method)
  end
end


local INIT = args.form("SequentialModule:init_params", BaseModule.INIT_PARAMS)

--- Gives the parameters of all modules their first values; see `Module:init_params`.
function SequentialModule:init_params(...)
  local a = INIT(...)
  if self:_is_done("init_params", "params_initialized", a.force_init) then
    return
  end
  self:_need("init_params", "binded")
  check_given(self, a, a.allow_extra or "some", "init_params")
  for _, m in ipairs(self._modules) do
    m:init_params{ initializer = a.initializer, arg_params = a.arg_params,
      aux_params = a.aux_params, allow_missing = a.allow_missing, force_init = a.force_init,
      allow_extra = true }
  end
  check_unique(self)
  self._params_initialized = true
end


local SET = args.form("SequentialModule:set_params", BaseModule.SET_PARAMS)

--- Sets the parameters of all modules; raises the errors of `Module:set_params`.
function SequentialModule:set_params(...)
  local a = SET(...)
  if self:_is_done("set_params", "params_initialized", a.force_init) then
    return
  end
  self:_need("set_params", "binded")
  a.arg_params, a.aux_params = a.arg_params or {}, a.aux_params or {}
  check_given(self, a, a.allow_extra, "set_params")
  for _, m in ipairs(self._modules) do
    m:set_params(a.arg_params, a.aux_params, { allow_missing = a.allow_missing, allow_extra = true,
      force_init = a.force_init })
  end
  check_unique(self)
  self._params_initialized = true
end


local OPTIMIZER = args.form("SequentialModule:init_optimizer", BaseModule.INIT_OPTIMIZER)

--- Makes an optimizer for each module.
function SequentialModule:init_optimizer(...)
  self:_need("init_optimizer", "binded", "params_initialized")
  local a = OPTIMIZER(...)
  if self:_is_done("init_optimizer", "optimizer_initialized", a.force_init) then
    return
  end
  for _, m in ipairs(self._modules) do
    m:init_optimizer{ kvstore = a.kvstore, optimizer = a.optimizer,
      optimizer_params = a.optimizer_params, force_init = a.force_init }
  end
  self._optimizer_initialized = true
end


-- Joins the lists that a method of each module returns.
local function joined(self, method)
  local list = {}
  for _, m in ipairs(self._modules) do
    for _, entry in ipairs(m[method](m)) do
      list[#list + 1] = entry
    end
  end
  return list
end


function SequentialModule:_updaters()
  return joined(self, "_updaters")
end


function SequentialModule:_stores()
  return joined(self, "_stores")
end


function SequentialModule:_gradients()
  return joined(self, "_gradients")
end


function SequentialModule:_first_bad_number()
  for _, m in ipairs(self._modules) do
    local e = m:_first_bad_number()
    if e then
      return e
    end
  end
end


-- Running -----------------------------------------------------------------------------------------

-- Returns descriptions of a module's outputs as data of the next module.
local function provided(m, outputs)
  local bound, list = m.data_shapes or {}, {}
  for i, x in ipairs(outputs) do
    local d = bound[i] or {}
    local name = d[1] or m.data_names[i] or ("data%d"):format(i)
    list[i] = io_data.DataDesc(name, x.shape, d.dtype, d.dtype and (d.layout or null) or nil)
  end
  return list
end


--- Runs the chain forward.
function SequentialModule:forward(data_batch, is_train)
  self:_need("forward", "binded", "params_initialized")
  local given = BaseModule._batch(data_batch, "SequentialModule:forward")
  local batch = io_data.DataBatch{ data = given.data, label = given.label, pad = given.pad,
    index = given.index, bucket_key = given.bucket_key, provide_data = given.provide_data,
    provide_label = given.provide_label }
  for i, m in ipairs(self._modules) do
    m:forward(batch, is_train)
    if self._modules[i + 1] then
      batch.data = m:get_outputs()
      batch.provide_data = provided(self._modules[i + 1], batch.data)
    end
  end
end


--- Computes the gradients, from the last module to the first.
function SequentialModule:backward(out_grads)
  self:_need("backward", "binded", "params_initialized")
  for i = #self._modules, 1, -1 do
    self._modules[i]:backward(out_grads)
    out_grads = i > 1 and self._modules[i]:get_input_grads() or nil
  end
end


--- Updates the parameters of all modules with their optimizers.
function SequentialModule:update()
  self:_need("update", "binded", "params_initialized", "optimizer_initialized")
  for _, m in ipairs(self._modules) do
    m:update()
  end
end


--- Returns the outputs of the last module.
function SequentialModule:get_outputs(...)
  self:_need("get_outputs", "binded", "params_initialized")
  return self._modules[#self._modules]:get_outputs(...)
end


--- Returns the gradients of the first module's data.
function SequentialModule:get_input_grads(...)
  self:_need("get_input_grads", "binded", "params_initialized", "inputs_need_grad")
  return self._modules[1]:get_input_grads(...)
end


--- Updates a metric with the outputs of the modules that take labels.
function SequentialModule:update_metric(eval_metric, labels, pre_sliced)
  self:_need("update_metric", "binded", "params_initialized")
  eval_metric, labels, pre_sliced =
    self:_metric_arguments(eval_metric, labels, pre_sliced)
  for i, m in ipairs(self._modules) do
    if self._metas[i].take_labels then
      m:update_metric(eval_metric, labels, pre_sliced)
    end
  end
end


-- Returns the named labels of the last module that takes labels; an empty list if none does.
function SequentialModule:_name_labels(labels)
  for i = #self._modules, 1, -1 do
    if self._metas[i].take_labels then
      return self._modules[i]:_name_labels(labels)
    end
  end
  return {}
end


--- Installs a monitor on all modules.
function SequentialModule:install_monitor(mon)
  self:_need("install_monitor", "binded")
  mon = self:_checked_monitor(mon)
  for _, m in ipairs(self._modules) do
    m:install_monitor(mon)
  end
end


--- Returns the bytes of all modules together; see `Module:memory`.
function SequentialModule:memory()
  local total = {}
  for _, m in ipairs(self:_bound("memory")._modules) do
    for key, bytes in pairs(m:memory()) do
      total[key] = (total[key] or 0) + bytes
    end
  end
  return total
end


--- Frees all modules.
function SequentialModule:free()
  for _, m in ipairs(self._modules) do
    m:free()
  end
  SequentialModule.super.free(self)
end


return SequentialModule
