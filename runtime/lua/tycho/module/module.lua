--- A symbol, its parameters and an optimizer: `ty.mod.Module`.
--
--     local m = ty.mod.Module{ symbol = net, context = ty.cpu() }
--     m:fit{ train_data = it, num_epoch = 4, optimizer = "sgd",
--       optimizer_params = { learning_rate = 0.1 } }
--
-- This file makes and binds modules and returns their results; more methods are in
-- module/parameters.lua, module/running.lua, module/optimizer.lua and module/fused_update.lua. A
-- module that shares another's memory (`shared_module`) also shares its stores of parameters and
-- its optimizer.
--
-- @module tycho.module.module

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local amp = require "tycho.contrib.amp"
local args = require "tycho.core.args"
local argument_names = require "tycho.module.argument_names"
local BaseModule = require "tycho.module.base"
local checkpoint = require "tycho.model.checkpoint"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local Group = require "tycho.module.executor_group"
local param_check = require "tycho.model.param_check"
local ParameterModule = require "tycho.module.parameter_module"
local shared_arrays = require "tycho.module.shared_arrays"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local is_plain, null, value = values.is_plain, values.null, values.value

--- A symbol on one or several devices. Fields, all read-only: symbol, data_names, label_names,
-- output_names, data_shapes, label_shapes, output_shapes (the last three after bind), logger, and
-- the flags binded, for_training, inputs_need_grad, params_initialized, optimizer_initialized.
-- @type Module
local Module = ParameterModule:extend("Module")
Module._guards_flags = true
Module.field_count = 24

Module:_include(require "tycho.module.parameters")
Module:_include(require "tycho.module.running")
Module:_include(require "tycho.module.optimizer")
Module:_include(require "tycho.module.fused_update")
Module:_include(require "tycho.module.summary")
Module:_include(require "tycho.module.find_lr")


-- Fields ------------------------------------------------------------------------------------------

-- Returns a property that reads a field of the executor group; E(state) before bind.
local function of_group(name)
  return function(self)
    return self:_bound(name)._exec_group[name]
  end
end

Module.fields = ParameterModule.extend_fields({
  data_names   = function(self) return self._data_names end,
  label_names  = function(self) return self._label_names end,
  output_names = function(self) return self._output_names end,
  data_shapes  = of_group "data_shapes",
  label_shapes = of_group "label_shapes",
  output_shapes = function(self)
    return self:_bound("output_shapes")._exec_group:get_output_shapes()
  end,
}, ParameterModule.fields)


-- Making ------------------------------------------------------------------------------------------

local NEW = args.form("mod.Module", {
  { "symbol", "symbol" }, { "data_names", "list|null?" }, { "label_names", "list|null?" },
  { "logger", "any?" }, { "context", "context|list?" }, { "work_load_list", "list?" },
  { "fixed_param_names", "list?" }, { "state_names", "list?" }, { "group2ctxs", "table?" },
  { "compression_params", "dict?" },
})

-- Returns the given names; an empty list for `ty.null`; a list of the default name for nil.
local function list_or(given, default)
  if given == null then
    return {}
  end
  return given or { default }
end


local function contexts_of(given)
  if given == nil then
    return { context.cpu() }
  end
  return is_plain(given) and given or { given }
end


local function work_loads(given, contexts)
  if given and #given ~= #contexts then
    Error.raise{ code = "value", func = "mod.Module", argument = "work_load_list",
      expected = #contexts, got = #given,
      message = "'work_load_list' has not one number for each context" }
  end
  return given and tables.copied(given) or tables.ones(#contexts)
end


function Module:init(...)
  local a = NEW(...)
  Module.super.init(self, a.logger)
  self._symbol, self._context = a.symbol, contexts_of(a.context)
  self._work_load_list = work_loads(a.work_load_list, self._context)
  self._data_names = list_or(a.data_names, "data")
  self._label_names = list_or(a.label_names, "softmax_label")
  self._state_names, self._fixed_param_names = a.state_names or {}, a.fixed_param_names or {}
  argument_names.check(a.symbol, self._data_names, "data_names")
  argument_names.check(a.symbol, self._label_names, "label_names", self.logger)
  argument_names.check(a.symbol, self._state_names, "state_names")
  argument_names.check(a.symbol, self._fixed_param_names, "fixed_param_names")
  shared_arrays.group_contexts(a.group2ctxs, #self._context)
  self._group2ctxs, self._compression_params = a.group2ctxs, a.compression_params
  self._label_arguments = argument_names.known(a.symbol, self._label_names)
  self._param_names = argument_names.parameters(a.symbol, self._data_names, self._label_names,
    self._state_names)
  self._aux_names, self._output_names = a.symbol:list_auxiliary_states(), a.symbol:list_outputs()
end


local LOAD = args.form("Module.load", {
  rest = "options", { "prefix", "text" }, { "epoch", "integer" },
  { "load_optimizer_states", "boolean", false }, "*", { "rename", "function?" },
  { "allow_missing", "boolean", false }, { "allow_extra", "boolean", false },
})


-- Returns an empty shape for each name; an empty shape means that nothing is known.
local function unknown_shapes(names)
  local dict = {}
  for _, name in ipairs(names) do
    dict[name] = {}
  end
  return dict
end


-- Returns the values whose names are in `own`.
local function pick_arrays(params, own)
  local dict = {}
  for name, x in pairs(params) do
    dict[name] = own[name] and x
  end
  return dict
end


--- Compares the names of a file's parameters with those of the symbol and raises E(name) with the
-- lists of `set_params` if they differ (not for users). Arguments that may be inputs may be
-- missing.
-- @tparam table arg_params
-- @tparam table aux_params
-- @tparam table allow allow_missing, allow_extra
-- @string func for errors
-- @treturn table the entries of arg_params that the module has
-- @treturn table the entries of aux_params that the module has
function Module:_check_loaded(arg_params, aux_params, allow, func)
  local own_args, own_auxs = unknown_shapes(self._param_names), unknown_shapes(self._aux_names)
  local given = tables.copy(arg_params)
  for _, name in ipairs(self._symbol:list_arguments()) do
    given[name] = own_args[name] and given[name]         -- inputs are not extra names
  end
  param_check.check({ own_args, own_auxs }, { given, aux_params }, {
    allow_missing = allow.allow_missing, allow_extra = allow.allow_extra,
    what = "leaves them to init_params",
    is_missing = function(name)
      return own_auxs[name] ~= nil or argument_names.is_parameter(name)
    end }, func)
  return pick_arrays(arg_params, own_args), pick_arrays(aux_params, own_auxs)
end


--- Makes a module from a checkpoint, with its parameters. Missing parameters, and those of another
-- network, are E(name). This is raised here or, if only binding tells parameters from inputs, by
-- `bind`, which also refuses other shapes; the error lists `missing`, `extra` and `mismatch`.
-- @string prefix
-- @int epoch
-- @bool[opt=false] load_optimizer_states whether init_optimizer reads the states of the checkpoint
-- @tparam[opt] table options rename (function of a name -> its new name, or nil: unchanged),
--   allow_missing = false (true: init_params initialises what the file lacks),
--   allow_extra = false, and those of the constructor
function Module.load(...)
  local a = LOAD(...)
  local symbol, arg_params, aux_params = checkpoint.load_checkpoint(a.prefix, a.epoch)
  a.options.symbol = symbol
  local m = Module(a.options)
  arg_params = param_check.renamed(arg_params, a.rename, "Module.load")
  aux_params = param_check.renamed(aux_params, a.rename, "Module.load")
  m:_set_stores(m:_check_loaded(arg_params, aux_params, a, "Module.load"))
  m._params_initialized, m._loaded = true, { allow_missing = a.allow_missing }
  m._preload_states = a.load_optimizer_states
    and checkpoint.file_name(a.prefix, a.epoch, "states") or nil
  return m
end


local SAVE = args.form("Module:save_checkpoint", {
  { "prefix", "text" }, { "epoch", "integer" }, { "save_optimizer_states", "boolean", false },
  { "remove_amp_cast", "boolean", true },
})

--- Writes `PREFIX-symbol.json`, `PREFIX-0003.params` and, if asked for, `PREFIX-0003.states`.
function Module:save_checkpoint(...)
  local a = SAVE(...)
  local arg_params, aux_params = self:_read_params()
  checkpoint.save_checkpoint(a.prefix, a.epoch, self._symbol, arg_params, aux_params,
    { remove_amp_cast = a.remove_amp_cast })
  if a.save_optimizer_states then
    self:save_optimizer_states(checkpoint.file_name(a.prefix, a.epoch, "states"))
  end
end


-- Binding -----------------------------------------------------------------------------------------

--- Options of bind, for other modules too.
Module.BIND = BaseModule._extend_options(BaseModule.BIND, {
  { "memory_budget", "number?" }, { "force_mirroring", "boolean?" }, { "precision", "text?" },
})

local BIND = args.form("Module:bind", Module.BIND)


local function unbind(self)
  if self._exec_group then
    self._exec_group:free()
  end
  self._binded, self._exec_group, self._trained = false, nil, nil
end


local function check_data_names(self, descs)
  local want, got = tables.copied(self._data_names), descriptions.names(descs)
  table.sort(want)
  table.sort(got)
  local want_text, got_text = table.concat(want, ", "), table.concat(got, ", ")
  if want_text ~= got_text then
    Error.raise{ code = "name", func = "Module:bind", argument = "data_shapes",
      expected = #want > 0 and want_text or "none", got = #got > 0 and got_text or "none",
      candidates = want, message = #want > 0 and "'data_shapes' does not describe the data inputs"
        or "'data_shapes' describes data inputs, but 'data_names' was given as an empty list" }
  end
end


-- Returns the descriptions of data and labels; E(name) if the names of the data are not the
-- module's.
local function describe_inputs(self, data_shapes, label_shapes, func)
  local data = descriptions.list(data_shapes, func, "data_shapes")
  check_data_names(self, data)
  return data, descriptions.labels(label_shapes, func)
end


local function check_shared(self, shared)
  if not (Class.is_a(shared, Module) and shared.binded and shared.params_initialized) then
    Error.raise{ code = "state", func = "Module:bind", argument = "shared_module",
      expected = "a bound Module with parameters", got = Error.kind(shared),
      message = "bad 'shared_module'" }
  elseif #shared._context < #self._context then
    Error.raise{ code = "value", func = "Module:bind", argument = "shared_module",
      expected = #self._context .. " contexts", got = #shared._context,
      message = "'shared_module' has fewer devices" }
  end
end


--- Gives the next free numbers to parameters without a number (not for users).
function Module:_number_parameters()
  local n = 0
  for _ in pairs(self._param_index) do
    n = n + 1
  end
  for _, name in ipairs(self._param_names) do
    if not self._param_index[name] then
      self._param_index[name], n = n, n + 1
    end
  end
end


local function make_group(self, a, data, labels)
  return Group{ symbol = amp._applied(self._symbol), contexts = self._context,
    workload = self._work_load_list,
    data_shapes = data, label_shapes = labels, param_names = self._param_names,
    for_training = a.for_training, inputs_need_grad = a.inputs_need_grad,
    shared_group = a.shared_module and a.shared_module._exec_group,
    logger = self.logger, fixed_param_names = self._fixed_param_names, grad_req = a.grad_req,
    state_names = self._state_names, group2ctxs = self._group2ctxs, memory_budget = a.memory_budget,
    force_mirroring = a.force_mirroring, precision = a.precision, fuse = self:_fuse_option(),
    loss_scale = self._loss_scale }
end


-- Returns the arrays of the first device by name.
local function by_name(names, arrays)
  local dict = {}
  for i, name in ipairs(names) do
    dict[name] = arrays[i][1]
  end
  return dict
end


-- Raises an error if parameters from before this binding (Module.load, an earlier bind) do not have
-- the shapes of the new executors.
local function check_shapes(self)
  local group = self._exec_group
  local own = { by_name(self._param_names, group.param_arrays),
    by_name(self._aux_names, group.aux_arrays) }
  param_check.check(own, { self._arg_store:arrays(), self._aux_store:arrays() },
    { allow_missing = true, allow_extra = true }, "Module:bind")
end


-- Chooses the parameter stores of a binding: those of the module whose memory it shares, the
-- module's existing ones, or empty ones.
local function choose_stores(self, shared)
  if shared then
    self._arg_store, self._aux_store = shared._arg_store, shared._aux_store
    self._param_index, self._params_initialized = shared._param_index, true
    self._loaded, self._lacks_some = nil, nil
  elseif self._params_initialized or self._lacks_some then
    check_shapes(self)
    self._arg_store, self._aux_store = self._arg_store:detached(), self._aux_store:detached()
  else
    self:_set_stores({}, {})
  end
end


-- Connects the parameter stores with the arrays of the executors.
local function take_parameters(self, shared)
  choose_stores(self, shared)
  self._arg_store:attach(self._param_names, self._exec_group.param_arrays)
  self._aux_store:attach(self._aux_names, self._exec_group.aux_arrays)
  self._param_index = self._param_index or {}
  self:_number_parameters()
end


--- Binds the executors.
-- @tparam table data_shapes descriptions: a list of DataDesc or `{name, shape}`, or shapes by name
-- @tparam[opt] table label_shapes
-- @tparam[opt] table options for_training = true, inputs_need_grad = false, force_rebind = false
--    (parameters are kept), shared_module (a bound module whose parameters and memory are used),
--    grad_req = "write" (a word, a list or words by name), memory_budget, force_mirroring,
--   precision
function Module:bind(...)
  local a = BIND(...)
  if self._freed then
    self:_need("bind")
  elseif not self:_begin_bind(a) then
    return
  end
  a.shared_module = value(a.shared_module)
  if a.shared_module then
    check_shared(self, a.shared_module)
  end
  local data, labels = describe_inputs(self, a.data_shapes, a.label_shapes, "Module:bind")
  self:_accept_shapes(data, "Module:bind")
  self:_sync_params()
  unbind(self)
  self._for_training, self._inputs_need_grad, self._grad_req =
    a.for_training, a.inputs_need_grad, a.grad_req
  if a.shared_module and a.shared_module._fused then
    self:_join(a.shared_module)
    self._fused = a.shared_module._fused
  end
  if a.shared_module then
    self._loss_scale = a.shared_module._loss_scale
  end
  self._exec_group = make_group(self, a, data, labels)
  take_parameters(self, a.shared_module)
  self._binded = true
  if self._params_initialized or self._lacks_some then
    self:_release_inputs()
    local ok, e = pcall(self._check_complete, self)
    if not ok then
      unbind(self)
      error(e, 0)
    end
  end
  if a.shared_module and a.shared_module.optimizer_initialized then
    self:borrow_optimizer(a.shared_module)
  end
end


local RESHAPE = args.form("Module:reshape", {
  list = true, { "data_shapes", "table" }, { "label_shapes", "table?" },
})

--- Binds executors for other shapes of the inputs; parameters and optimizer are kept.
function Module:reshape(...)
  self:_need("reshape", "binded")
  local a = RESHAPE(...)
  local data, labels = describe_inputs(self, a.data_shapes, a.label_shapes, "Module:reshape")
  self:_reshape(data, labels, "Module:reshape")
end


-- Results -----------------------------------------------------------------------------------------

local MERGE = args.form("Module:get_outputs", { { "merge_multi_context", "boolean", true } })

local function merge_option(...)
  local v = ...
  return type(v) == "boolean" and v or type(v) ~= "boolean" and MERGE(...).merge_multi_context
end


--- Returns the outputs of the last forward.
-- @bool[opt=true] merge_multi_context false: a list over devices for each output
function Module:get_outputs(...)
  self:_need("get_outputs", "binded", "params_initialized")
  return self._exec_group:get_outputs(merge_option(...))
end


--- Returns the gradients of the data inputs.
-- @bool[opt=true] merge_multi_context
function Module:get_input_grads(...)
  self:_need("get_input_grads", "binded", "params_initialized", "inputs_need_grad")
  return self._exec_group:get_input_grads(merge_option(...))
end


--- Returns the states.
-- @bool[opt=true] merge_multi_context
function Module:get_states(...)
  self:_need("get_states", "binded", "params_initialized")
  return self._exec_group:get_states(merge_option(...))
end


local SET_STATES = args.form("Module:set_states",
  { list = true, { "states", "list?" }, { "value", "number?" } })

--- Sets states from arrays, or all to a number. They stay valid for batches of other sizes: a
-- smaller batch uses the first rows of arrays; a batch of more rows is E(state), until `reshape`
-- and `set_states` are called for it.
-- @tparam[opt] table states for each state an array or a list over devices
-- @number[opt] value
function Module:set_states(...)
  self:_need("set_states", "binded", "params_initialized")
  local a = SET_STATES(...)
  self._exec_group:set_states(a.states, a.value)
end


--- Updates a metric with labels and the last outputs. The metric gets the labels in the order of
-- the outputs that they belong to.
-- @param eval_metric
-- @tparam {NDArray,...} labels in the order of `label_shapes`
-- @bool[opt=false] pre_sliced `labels[i]` are those of device i
function Module:update_metric(eval_metric, labels, pre_sliced)
  self:_need("update_metric", "binded", "params_initialized")
  eval_metric, labels, pre_sliced =
    self:_metric_arguments(eval_metric, labels, pre_sliced)
  self._exec_group:update_metric(eval_metric, labels, pre_sliced)
end


function Module:_name_labels(labels)
  return self._exec_group:named_labels(labels)
end


--- Installs a monitor on the executors.
-- @tparam Monitor mon one of possibly several monitors of a module
function Module:install_monitor(mon)
  self:_need("install_monitor", "binded")
  mon = self:_checked_monitor(mon)
  self._exec_group:install_monitor(mon)
end


--- Returns numbers of bytes by kind: planned, pool, params, grads, aux.
function Module:memory()
  return self:_bound("memory")._exec_group:memory()
end


--- Frees the executors; later calls raise E(state).
function Module:free()
  if self._exec_group then
    unbind(self)
  end
  Module.super.free(self)
end


return Module
