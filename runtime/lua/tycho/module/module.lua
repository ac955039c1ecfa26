--- A symbol, its parameters and an optimizer: `ty.mod.Module`.
--
--     local m = ty.mod.Module{ symbol = net, context = ty.cpu() }
--     m:fit{ train_data = it, num_epoch = 4, optimizer = "sgd",
--       optimizer_params = { learning_rate = 0.1 } }
--
-- `_arg_values` and `_aux_values` (module/param_store.lua) are the parameters and auxiliary states.
-- Parameters have host copies from the first `get_params` on; auxiliary states always, since
-- running forward alone changes those of the devices, but does not count, as in the reference. A
-- module that shares another's memory (`shared_module`) shares these objects, the optimizer, and
-- `_param_index`: the number of each parameter (from 0) under which the optimizer keeps its state.
--
-- @module tycho.module.module

jit.off(true, true)                                      -- pays no compilation: core/iterate.lua

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local bank_of = require "tycho.module.shared_arrays"
local BaseModule = require "tycho.module.base"
local call = require "tycho.ndarray.call"
local checkpoint = require "tycho.model.checkpoint"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local Group = require "tycho.module.executor_group"
local init = require "tycho.initializer"
local io_data = require "tycho.io.data"
local nd = require "tycho.ndarray"
local params = require "tycho.model.param_check"
local rows = require "tycho.module.batch_slices"
local tables = require "tycho.core.tables"
local Values = require "tycho.module.param_store"
local values = require "tycho.core.values"

local is_plain, null, value = values.is_plain, values.null, values.value

--- A symbol on one or several devices.
-- @type Module
local Module = BaseModule:extend("Module")


-- Fields ------------------------------------------------------------------------------------------

local function of_group(name)
  return function(self)
    return self:_bound(name)._exec_group[name]
  end
end

Module.fields = BaseModule.extend_fields{
  data_names   = function(self) return self._data_names end,
  label_names  = function(self) return self._label_names end,
  output_names = function(self) return self._output_names end,
  data_shapes  = of_group "data_shapes",
  label_shapes = of_group "label_shapes",
  output_shapes = function(self)
    return self:_bound("output_shapes")._exec_group:get_output_shapes()
  end,
  _arg_params   = function(self) return self._arg_values:copies() end,
  _aux_params   = function(self) return self._aux_values:copies() end,
  _params_dirty = function(self) return self._arg_values.stale end,
}


-- Making ------------------------------------------------------------------------------------------

local NEW = args.form("mod.Module", {
  { "symbol", "symbol" }, { "data_names", "list|null?" }, { "label_names", "list|null?" },
  { "logger", "any?" }, { "context", "context|list?" }, { "work_load_list", "list?" },
  { "fixed_param_names", "list?" }, { "state_names", "list?" }, { "group2ctxs", "table?" },
  { "compression_params", "dict?" },
})

local PARAM_ENDS = { "_weight$", "_bias$", "_gamma$", "_beta$" }

-- Arguments that do not look like parameters.
local function input_like(names)
  local list = {}
  for _, name in ipairs(names) do
    local is_param = false
    for _, ending in ipairs(PARAM_ENDS) do
      is_param = is_param or name:find(ending) ~= nil
    end
    list[#list + 1] = not is_param and name or nil
  end
  return list
end


local function check_names(self, given, what, only_warn)
  if #given == 0 then
    return
  end
  local names, known = self._symbol:list_arguments(), {}
  for _, name in ipairs(names) do
    known[name] = true
  end
  for _, name in ipairs(given) do
    if not known[name] then
      local candidates = what == "fixed_param_names" and names or input_like(names)
      local text = ("'%s' of '%s' is no argument of the symbol"):format(tostring(name), what)
      if not only_warn then
        Error.raise{ code = "name", func = "mod.Module", argument = tostring(name), message = text,
          candidates = Error.nearest(name, candidates, 10) }
      end
      self.logger:warning(text .. "; its inputs: " .. table.concat(candidates, ", "))
    end
  end
end


local function list_or(given, default)
  if given == null then
    return {}
  end
  return given or default
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
  local list = {}
  for i = 1, #contexts do
    list[i] = given and given[i] or 1
  end
  return list
end


-- Arguments that are neither data, label nor state.
local function parameter_names(self)
  local inputs, list = {}, {}
  for _, names in ipairs{ self._data_names, self._label_names, self._state_names } do
    for _, name in ipairs(names) do
      inputs[name] = true
    end
  end
  for _, name in ipairs(self._symbol:list_arguments()) do
    list[#list + 1] = not inputs[name] and name or nil
  end
  return list
end


function Module:init(...)
  local a = NEW(...)
  Module.super.init(self, { logger = a.logger })
  self._symbol, self._context = a.symbol, contexts_of(a.context)
  self._work_load_list = work_loads(a.work_load_list, self._context)
  self._data_names, self._label_names = list_or(a.data_names, { "data" }),
    list_or(a.label_names, { "softmax_label" })
  self._state_names, self._fixed_param_names = a.state_names or {}, a.fixed_param_names or {}
  check_names(self, self._data_names, "data_names")
  check_names(self, self._label_names, "label_names", true)
  check_names(self, self._state_names, "state_names")
  check_names(self, self._fixed_param_names, "fixed_param_names")
  bank_of.places(a.group2ctxs, #self._context)
  self._group2ctxs, self._compression_params = a.group2ctxs, a.compression_params
  self._param_names, self._aux_names = parameter_names(self), a.symbol:list_auxiliary_states()
  self._output_names = a.symbol:list_outputs()
  self._arg_values, self._aux_values = Values(), Values(true)
end


local LOAD = args.form("Module.load", {
  rest = "options", { "prefix", "text" }, { "epoch", "integer" }, "*",
  { "load_optimizer_states", "boolean", false }, { "rename", "function?" },
})

--- A module from a checkpoint, with its parameters.
-- @string prefix
-- @int epoch
-- @tparam[opt] table options load_optimizer_states = false (read by init_optimizer), rename
--   (function of a name -> its new name, or nil to keep it), and those of the constructor
function Module.load(...)
  local a = LOAD(...)
  local symbol, arg_params, aux_params = checkpoint.load_checkpoint(a.prefix, a.epoch)
  a.options.symbol = symbol
  local m = Module(a.options)
  m._arg_values = Values(false, params.renamed(arg_params, a.rename, "Module.load"))
  m._aux_values = Values(true, params.renamed(aux_params, a.rename, "Module.load"))
  m._params_initialized = true
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
  { "memory_budget", "number?" }, { "force_mirroring", "boolean?" },
})

local BIND = args.form("Module:bind", Module.BIND)


local function unbind(self)
  if self._exec_group then
    self._exec_group:free()
  end
  self._binded, self._exec_group, self._trained = false, nil, nil
end


local function check_data_names(self, descs)
  local want, got = {}, {}
  for i, name in ipairs(self._data_names) do
    want[i] = name
  end
  for i, d in ipairs(descs) do
    got[i] = d.name
  end
  table.sort(want)
  table.sort(got)
  local want_text, got_text = table.concat(want, ", "), table.concat(got, ", ")
  if want_text ~= got_text then
    Error.raise{ code = "name", func = "Module:bind", argument = "data_shapes",
      expected = want_text, got = got_text,
      candidates = want, message = "'data_shapes' does not describe the data inputs" }
  end
end


-- Descriptions of data and labels, checked.
local function inputs_of(self, data_shapes, label_shapes, func)
  local data = rows.descriptions(data_shapes, func, "data_shapes")
  check_data_names(self, data)
  local labels = rows.descriptions(label_shapes, func, "label_shapes")
  return data, labels and #labels > 0 and labels or nil
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


--- Gives numbers to the parameters that have none (not for users).
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
  return Group{ symbol = self._symbol, contexts = self._context, workload = self._work_load_list,
    data_shapes = data, label_shapes = labels, param_names = self._param_names,
    for_training = a.for_training, inputs_need_grad = a.inputs_need_grad,
    shared_group = a.shared_module and a.shared_module._exec_group,
    logger = self.logger, fixed_param_names = self._fixed_param_names, grad_req = a.grad_req,
    state_names = self._state_names, group2ctxs = self._group2ctxs, memory_budget = a.memory_budget,
    force_mirroring = a.force_mirroring, learn = self:_teacher() }
end


-- The arrays of the first device by name.
local function by_name(names, arrays)
  local dict = {}
  for i, name in ipairs(names) do
    dict[name] = arrays[i][1]
  end
  return dict
end


-- Parameters that came with the module (Module.load, an earlier bind) must have
-- the shapes that are needed now.
local function check_shapes(self)
  local group = self._exec_group
  local own = { by_name(self._param_names, group.param_arrays),
    by_name(self._aux_names, group.aux_arrays) }
  params.check(own, { self._arg_values:arrays(), self._aux_values:arrays() },
    { allow_missing = true, allow_extra = true }, "Module:bind")
end


-- The values that a binding goes on with: those of the module whose memory it shares,
-- the module's own, or none yet.
local function choose_values(self, shared)
  if shared then
    self._arg_values, self._aux_values = shared._arg_values, shared._aux_values
    self._param_index, self._params_initialized = shared._param_index, true
  elseif self._params_initialized then
    check_shapes(self)
    self._arg_values, self._aux_values = self._arg_values:moved(), self._aux_values:moved()
  else
    self._arg_values, self._aux_values = Values(), Values(true)
  end
end


local function take_parameters(self, shared)
  choose_values(self, shared)
  self._arg_values:place(self._param_names, self._exec_group.param_arrays)
  self._aux_values:place(self._aux_names, self._exec_group.aux_arrays)
  self._param_index = self._param_index or {}
  self:_number_parameters()
end


--- Makes the executors.
-- @tparam table data_shapes descriptions: a list of DataDesc or `{name, shape}`, or shapes by name
-- @tparam[opt] table label_shapes
-- @tparam[opt] table options for_training = true, inputs_need_grad = false, force_rebind = false
--   (parameters stay), shared_module (a bound module whose parameters and memory are used),
--   grad_req = "write" (word, list or by name), memory_budget, force_mirroring
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
  local data, labels = inputs_of(self, a.data_shapes, a.label_shapes, "Module:bind")
  self:_sync_params()
  unbind(self)
  self._for_training, self._inputs_need_grad, self._grad_req =
    a.for_training, a.inputs_need_grad, a.grad_req
  if a.shared_module and a.shared_module._lesson then
    self:_join(a.shared_module)
    self._lesson = a.shared_module._lesson
  end
  self._exec_group = make_group(self, a, data, labels)
  self._described_labels = labels ~= nil
  take_parameters(self, a.shared_module)
  self._binded = true
  if a.shared_module and a.shared_module.optimizer_initialized then
    self:borrow_optimizer(a.shared_module)
  end
end


local RESHAPE = args.form("Module:reshape", {
  list = true, { "data_shapes", "table" }, { "label_shapes", "table?" },
})

--- Goes on with other shapes of the inputs; parameters and optimizer stay.
function Module:reshape(...)
  self:_need("reshape", "binded")
  local a = RESHAPE(...)
  self._exec_group:reshape(inputs_of(self, a.data_shapes, a.label_shapes, "Module:reshape"))
end


-- Parameters --------------------------------------------------------------------------------------

--- Says whether devices have newer values than copies, now that parameters are there (not for
-- users).
-- @bool stale
function Module:_have_params(stale)
  self._params_initialized, self._arg_values.stale, self._aux_values.stale = true, stale, stale
end


-- Brings copies up to date.
function Module:_sync_params()
  self._arg_values:refresh()
  self._aux_values:refresh()
end


--- Parameters and auxiliary states as host arrays by name: the module's own tables,
-- which the next call overwrites.
-- @treturn table arg_params
-- @treturn table aux_params
function Module:get_params()
  self:_need("get_params", "params_initialized")
  return self._arg_values:copies(), self._aux_values:copies()
end


function Module:_read_params()
  self:_need("get_params", "params_initialized")
  return self._arg_values:values(), self._aux_values:values()
end


-- One device has nothing to get from others, unless a store has weights of its own.
function Module:_level_params()
  if #self._context > 1 or self._kvstore then
    return Module.super._level_params(self)
  end
  self:_sync_params()
end


local function sorted(names)
  local list = {}
  for i, name in ipairs(names) do
    list[i] = name
  end
  table.sort(list)
  return list
end


-- Calls f(name, values, given) for the wanted names, in order: parameters, then auxiliary states.
local function each_wanted(self, wanted, a, f)
  for _, part in ipairs{ { self._param_names, self._arg_values, a.arg_params },
                         { self._aux_names, self._aux_values, a.aux_params } } do
    for _, name in ipairs(sorted(part[1])) do
      if not wanted or wanted[name] then
        f(name, part[2], part[3])
      end
    end
  end
end


--- Refuses given parameters that are missing or of another shape, before
-- anything is written (not for users).
-- @tparam table wanted which ones: a set, or nil for all
-- @tparam table a checked options of init_params
function Module:_check_params(wanted, a)
  each_wanted(self, wanted, a, function(name, own, given)
    local source, shape = given and given[name], own:shape(name)
    if given and source == nil and not a.allow_missing then
      Error.raise{ code = "name", func = "Module:init_params", argument = name,
        message = ("'%s' is not among the given parameters (allow_missing = true initialises it)")
          :format(name) }
    elseif class.is_array(source) and not tables.same(source.shape, shape) then
      Error.raise{ code = "shape", func = "Module:init_params", argument = name, expected = shape,
        got = source.shape, message = "the shapes differ" }
    end
  end)
end


-- Fills an array from the given parameters or by the initializer.
local function fill_one(x, name, given, initializer, attrs)
  local source = given and given[name]
  if source ~= nil then
    if not class.is_array(source) then
      source = nd._as_array(source, x.dtype, "Module:init_params")
    end
    if source ~= x then
      call.copy(x, source, "Module:init_params", name)
    end
  elseif initializer then
    initializer(init.InitDesc(name, attrs[name], initializer), x)
  end
end


--- Fills parameters of this module, in order of their names (not for users).
-- @tparam table wanted
-- @tparam table a as `_check_params` had them
-- @param initializer
function Module:_fill_params(wanted, a, initializer)
  local attrs = self._symbol:attr_dict()
  each_wanted(self, wanted, a, function(name, own, given)
    own:fill(name, function(x) fill_one(x, name, given, initializer, attrs) end)
  end)
  self:_tell_store(self._arg_values:arrays())
end


local INIT = args.form("Module:init_params", BaseModule.INIT_PARAMS)

--- Gives parameters their first values: given ones win over the initializer.
-- @tparam[opt] table options initializer = Uniform(0.01), arg_params, aux_params,
--   allow_missing = false (a name that is not among given parameters is initialised instead of
--   E(name)), force_init = false, allow_extra
function Module:init_params(...)
  local a = INIT(...)
  if self:_is_done("init_params", "params_initialized", a.force_init) then
    return
  end
  self:_need("init_params", "binded")
  local initializer = BaseModule._initializer(a.initializer)
  self:_check_params(nil, a)
  self:_fill_params(nil, a, initializer)
  self:_have_params(false)
end


local SET = args.form("Module:set_params", BaseModule.SET_PARAMS)

--- Sets parameters. A missing name is E(name) unless `allow_missing`, an unknown one unless
-- `allow_extra`; the error lists `missing`, `extra` and `mismatch` (other shapes), and
-- nothing has been written then.
function Module:set_params(...)
  local a = SET(...)
  if self:_is_done("set_params", "params_initialized", a.force_init) then
    return
  end
  self:_need("set_params", "binded")
  params.check({ self._arg_values:arrays(), self._aux_values:arrays() },
    { a.arg_params, a.aux_params }, a, "Module:set_params")
  if not a.allow_missing then
    return self:init_params{ initializer = null, arg_params = a.arg_params or {},
      aux_params = a.aux_params or {}, force_init = true }
  end
  self._exec_group:set_params(a.arg_params or {}, a.aux_params or {}, true)
  self:_tell_store(a.arg_params or {})
  self:_have_params(true)
end


-- Running -----------------------------------------------------------------------------------------

-- Shapes of a batch's data; for a list of batches, those of all together.
local function shapes_of(self, batch)
  local parts, shapes = is_plain(batch) and batch, {}
  for k, x in ipairs((parts and parts[1] or batch).data or {}) do
    local bound = self._exec_group.data_shapes[k]
    local shape = class.is_array(x) and x.shape
      or nd._as_array(x, "float32", "Module:forward").shape
    local axis = bound and rows.axis(bound) or -1
    if parts and axis >= 0 then
      shape[axis + 1] = shape[axis + 1] * #parts
    end
    shapes[k] = shape
  end
  return shapes
end


local function describe_like(bound, shapes)
  local list = {}
  for k, d in ipairs(bound) do
    list[k] = io_data.DataDesc(d.name, shapes[k] or d.shape, d.dtype, d.layout or null)
  end
  return list
end


local function label_shapes_of(self, batch, parts)
  local shapes = {}
  for k, x in ipairs(batch.label) do
    shapes[k] = x.shape
    shapes[k][1] = shapes[k][1] * (parts and #parts or 1)
  end
  return describe_like(self._exec_group.label_shapes, shapes)
end


-- Labels that were never described have the shape that follows from the bound data; a batch
-- must not change it silently.
local function check_labels(self, labels)
  local arguments = {}
  for _, name in ipairs(self._symbol:list_arguments()) do
    arguments[name] = true
  end
  for _, name in ipairs(labels == nil and not self._described_labels and self._label_names or {}) do
    if arguments[name] then
      Error.raise{ code = "shape", func = "Module:forward", argument = name,
        message = ("the batch has another shape than bound, \z
          and '%s' was bound without a description; give "
          .. "label_shapes, or call reshape first"):format(name) }
    end
  end
end


-- Whether the batch has the shapes of the current executors. Runs for every
-- batch, so it makes no tables.
local function fits(group, batch)
  local list, bound = batch.data, group.data_shapes
  local same = list and #list == #bound
  for k = 1, same and #bound or 0 do
    local x = list[k]
    same = same and class.is_array(x) and tables.same(x._shape, bound[k].shape)
  end
  return same
end


-- Reshapes when the batch has other shapes than the current executors.
local function adapt(self, batch)
  local group = self._exec_group
  if fits(group, batch) then
    return
  end
  local shapes = shapes_of(self, batch)
  local same = #shapes == #group.data_shapes
  for k, d in ipairs(group.data_shapes) do
    same = same and tables.same(shapes[k], d.shape)
  end
  if same then
    return
  end
  local parts = is_plain(batch) and batch
  local first = parts and parts[1] or batch
  local data = not parts and first.provide_data or describe_like(group.data_shapes, shapes)
  local labels = not parts and first.provide_label or nil
  if not labels and group.label_shapes and first.label and #first.label > 0 then
    labels = label_shapes_of(self, first, parts)
  end
  labels = labels and #labels > 0 and labels or nil
  check_labels(self, labels)
  group:reshape(data, labels)
end


local FORWARD = args.form("Module:forward", { { "data_batch", "any" }, { "is_train", "boolean?" } })

--- Runs a batch forward; batches of other shapes than bound are fine.
-- @param data_batch DataBatch, table `{data = ..., label = ...}`, or a list of
--   batches, one for each device
-- @bool[opt] is_train as bound
function Module:forward(data_batch, is_train)
  self:_need("forward", "binded", "params_initialized")
  if is_train == nil and is_plain(data_batch) and data_batch.data_batch then
    local a = FORWARD(data_batch)
    data_batch, is_train = a.data_batch, a.is_train
  end
  local batch = BaseModule._batch(data_batch, "Module:forward")
  adapt(self, batch)
  self._exec_group:forward(batch, is_train)
end


local BACKWARD = args.form("Module:backward", { list = true, { "out_grads", "any?" } })

--- Computes the gradients of the last forward.
-- @param[opt] out_grads gradients of the outputs, for heads that are no losses
function Module:backward(...)
  self:_need("backward", "binded", "params_initialized", "for_training")
  self._exec_group:backward(select("#", ...) > 0 and BACKWARD(...).out_grads or nil)
end


for _, part in ipairs{ require "tycho.module.optimizer", require "tycho.module.fused_update" } do
  for name, method in pairs(part) do
    Module[name] = method
  end
end


-- Results -----------------------------------------------------------------------------------------

local MERGE = args.form("Module:get_outputs", { { "merge_multi_context", "boolean", true } })

local function merge_option(...)
  local v = ...
  return type(v) == "boolean" and v or type(v) ~= "boolean" and MERGE(...).merge_multi_context
end


--- Outputs of the last forward.
-- @bool[opt=true] merge_multi_context false: a list over devices for each output
function Module:get_outputs(...)
  self:_need("get_outputs", "binded", "params_initialized")
  return self._exec_group:get_outputs(merge_option(...))
end


--- Gradients of the data inputs.
-- @bool[opt=true] merge_multi_context
function Module:get_input_grads(...)
  self:_need("get_input_grads", "binded", "params_initialized", "inputs_need_grad")
  return self._exec_group:get_input_grads(merge_option(...))
end


--- States.
-- @bool[opt=true] merge_multi_context
function Module:get_states(...)
  self:_need("get_states", "binded", "params_initialized")
  return self._exec_group:get_states(merge_option(...))
end


local SET_STATES = args.form("Module:set_states",
  { list = true, { "states", "list?" }, { "value", "number?" } })

--- Sets states from arrays, or all to a number.
-- @tparam[opt] table states for each state an array or a list over devices
-- @number[opt] value
function Module:set_states(...)
  self:_need("set_states", "binded", "params_initialized")
  local a = SET_STATES(...)
  self._exec_group:set_states(a.states, a.value)
end


--- Updates a metric with labels and the last outputs.
-- @param eval_metric
-- @tparam {NDArray,...} labels
-- @bool[opt=false] pre_sliced `labels[i]` are those of device i
function Module:update_metric(eval_metric, labels, pre_sliced)
  self:_need("update_metric", "binded", "params_initialized")
  self._exec_group:update_metric(eval_metric, labels, pre_sliced)
end


--- Has a monitor watch the executors.
function Module:install_monitor(mon)
  self:_need("install_monitor", "binded")
  self._exec_group:install_monitor(mon)
end


--- Bytes: planned, pool, params, grads, aux.
function Module:memory()
  return self:_bound("memory")._exec_group:memory()
end


--- Gives the executors back; later use is E(state).
function Module:free()
  if self._exec_group then
    unbind(self)
  end
  Module.super.free(self)
end


return Module
