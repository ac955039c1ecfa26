--- Data parallelism with bare executors: `ty.executor_manager`.
--
--     local m = ty.executor_manager.DataParallelExecutorManager{ symbol = net,
--       ctx = { ty.cpu(0), ty.cpu(1) }, train_data = it }
--     m:set_params(arg_params, aux_params)
--     for batch in it do
--       m:load_data_batch(batch); m:forward(true); m:backward()
--     end
--
-- A group has an executor for each device, on a range of the batch's rows: `{begin, end}`, counted
-- from 0, the end excluded. A manager has a group for its symbol or, with `sym_gen`, one for each
-- bucket key; they all share the first one's parameters, gradients, states, input buffers and pool.
-- `ty.mod` does the same with more comfort.
--
-- @module tycho.executor_manager

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local executor = require "tycho.executor.executor"
local log = require "tycho.core.log"
local rows = require "tycho.module.batch_slices"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local is_plain, null, value = values.is_plain, values.null, values.value

local manager = {}


-- Functions ---------------------------------------------------------------------------------------

local SPLIT = args.form("executor_manager._split_input_slice", {
  { "batch_size", "integer" }, { "work_load_list", "list" },
})

--- Rows of each device: `{{begin, end}, ...}`; an empty share is E(value).
-- @int batch_size
-- @tparam {number,...} work_load_list weights of the devices
function manager._split_input_slice(...)
  local a = SPLIT(...)
  return rows.split(a.batch_size, a.work_load_list, "executor_manager._split_input_slice")
end


local CHECK = args.form("executor_manager._check_arguments", { { "symbol", "symbol" } })

--- Refuses a symbol with two arguments or two auxiliary states of one name: E(name).
function manager._check_arguments(...)
  local net = CHECK(...).symbol
  for what, list in pairs{ argument = net:list_arguments(),
      ["auxiliary state"] = net:list_auxiliary_states() } do
    local seen = {}
    for _, name in ipairs(list) do
      if seen[name] then
        Error.raise{ code = "name", func = "executor_manager._check_arguments", argument = name,
          message = ("two variables are called '%s'; each %s needs a name of its own")
            :format(name, what) }
      end
      seen[name] = true
    end
  end
end


local function check_rows(source, ranged, func)
  local last = ranged[#ranged][1][2]
  if last ~= source._shape[1] then
    Error.raise{ code = "shape", func = func, expected = last .. " rows", got = source.shape,
      message = "the batch has another number of rows than the devices share" }
  end
end


local function load_general(data, targets, func)
  for k, target in ipairs(targets) do
    local source = data[k]
    if not class.is_array(source) then
      Error.raise{ code = "value", func = func, expected = "an NDArray", got = Error.kind(source),
        message = ("the batch has no array %d"):format(k) }
    elseif class.is_array(target) then
      call.copy(target, source, func)
    else
      check_rows(source, target, func)
      for _, place in ipairs(target) do
        call.copy(place[2], rows.cut(source, 0, place[1]), func)
      end
    end
  end
end


--- Copies arrays into targets: an NDArray each, or a list of `{{begin, end}, NDArray}`.
-- @tparam {NDArray,...} data
-- @tparam table targets
function manager._load_general(data, targets)
  load_general(data, targets, "executor_manager._load_general")
end


--- Copies a batch's data into targets; see `_load_general`.
function manager._load_data(batch, targets)
  load_general(batch.data or {}, targets, "executor_manager._load_data")
end


--- Copies a batch's labels into targets; see `_load_general`.
function manager._load_label(batch, targets)
  load_general(batch.label or {}, targets, "executor_manager._load_label")
end


-- _bind_exec --------------------------------------------------------------------------------------

local BIND_FUNC = "executor_manager._bind_exec"

local BIND = args.form(BIND_FUNC, {
  { "sym", "symbol" }, { "ctx", "context" }, { "input_shapes", "dict" }, { "param_names", "list" },
  { "need_grad", "boolean|table", false }, { "base_exec", "executor?" },
  { "shared_data_arrays", "dict?" }, { "input_types", "dict?" }, { "logger", "any?" },
})


local function fail_shared(name, code, expected, got)
  Error.raise{ code = code, func = BIND_FUNC, argument = name, expected = expected, got = got,
    message = ("'%s' does not agree with the executor whose memory is shared"):format(name) }
end


-- Names whose gradients are computed.
local function wanted_grads(a)
  local wanted, params = {}, tables.places(a.param_names)
  if a.need_grad == true then
    for _, name in ipairs(a.sym:list_arguments()) do
      wanted[name] = params[name] and not a.input_shapes[name] or nil
    end
  elseif a.need_grad then
    for key, v in pairs(a.need_grad) do
      wanted[type(key) == "number" and v or key] = true
    end
  end
  return wanted
end


local function fail_incomplete(a)
  Error.raise{ code = "shape", func = BIND_FUNC, argument = "input_shapes",
    candidates = a.sym:list_arguments(),
    message = "the given shapes do not decide those of all arguments" }
end


local function infer(a)
  local shapes, _, aux_shapes = a.sym:infer_shape_partial(a.input_shapes)
  for _, list in ipairs{ shapes, aux_shapes } do
    for _, shape in ipairs(list) do
      local known = #shape > 0
      for _, n in ipairs(shape) do
        known = known and n > 0
      end
      if not known then
        fail_incomplete(a)
      end
    end
  end
  local types = {}
  for name in pairs(a.input_shapes) do
    types[name] = "float32"
  end
  local arg_types, _, aux_types = a.sym:infer_type(a.input_types or types)
  if not arg_types then
    Error.raise{ code = "dtype", func = BIND_FUNC, argument = "input_types",
      message = "the given types do not decide those of all arguments" }
  end
  return shapes, aux_shapes, arg_types, aux_types
end


local function zeros(shape, dtype, ctx)
  return call.zeros(shape, args.DTYPES[dtype], ctx._device, BIND_FUNC)
end


-- An array of the base executor, checked.
local function of_base(dict, name, shape, dtype)
  local x = dict[name]
  if not x then
    fail_shared(name, "name", "an array of that name", "nothing")
  elseif not tables.same(x._shape, shape) then
    fail_shared(name, "shape", x.shape, shape)
  elseif x.dtype ~= dtype then
    fail_shared(name, "dtype", x.dtype, dtype)
  end
  return x
end


-- An input: the first elements of the shared buffer, which a larger array replaces.
local function input_array(a, name, shape, dtype)
  local shared, size = a.shared_data_arrays, 1
  for _, n in ipairs(shape) do
    size = size * n
  end
  local x = shared and shared[name]
  if x and x.dtype ~= dtype then
    fail_shared(name, "dtype", x.dtype, dtype)
  elseif x and x._size >= size then
    return tables.same(x._shape, shape) and x or class.view(x, shape, 0, BIND_FUNC)
  elseif x then
    (a.logger or log):warning(
      ("bucketing: the shared array '%s', %s, is too small for %s and is replaced")
        :format(name, Error.show(x._shape), Error.show(shape)))
  end
  x = zeros(shape, dtype, a.ctx)
  if shared then
    shared[name] = x
  end
  return x
end


local function argument(a, name, shape, dtype, wanted)
  if not tables.places(a.param_names)[name] then
    return input_array(a, name, shape, dtype), null
  elseif a.base_exec then
    return of_base(a.base_exec.arg_dict, name, shape, dtype),
      wanted[name] and of_base(a.base_exec.grad_dict, name, shape, dtype) or null
  end
  return zeros(shape, dtype, a.ctx), wanted[name] and zeros(shape, dtype, a.ctx) or null
end


--- Binds one executor: inputs in shared buffers, parameters and states new
-- or those of another executor.
-- @tparam table options sym, ctx, input_shapes (by name), param_names, need_grad = false (true:
--   all parameters; or a list or set of names), base_exec, shared_data_arrays (by name; filled
--   in place), input_types, logger
-- @treturn Executor
function manager._bind_exec(...)
  local a = BIND(...)
  local wanted = wanted_grads(a)
  local shapes, aux_shapes, types, aux_types = infer(a)
  local list, grads, auxs, reqs = {}, {}, {}, {}
  for k, name in ipairs(a.sym:list_arguments()) do
    list[k], grads[k] = argument(a, name, shapes[k], types[k], wanted)
    reqs[k] = grads[k] ~= null and "write" or "null"
  end
  for k, name in ipairs(a.sym:list_auxiliary_states()) do
    auxs[k] = a.base_exec and of_base(a.base_exec.aux_dict, name, aux_shapes[k], aux_types[k])
      or zeros(aux_shapes[k], aux_types[k], a.ctx)
  end
  return executor.bind(a.sym, { ctx = a.ctx, args = list, args_grad = next(wanted) and grads or nil,
    grad_req = reqs, aux_states = auxs, shared_exec = a.base_exec })
end


-- DataParallelExecutorGroup -----------------------------------------------------------------------

--- Executors of one symbol, one for each device.
-- @type DataParallelExecutorGroup
local Group = Class:extend("DataParallelExecutorGroup")
manager.DataParallelExecutorGroup = Group

local GROUP = "executor_manager.DataParallelExecutorGroup"

local NEW_GROUP = args.form(GROUP, {
  { "sym", "symbol" }, { "arg_names", "list" }, { "param_names", "list" },
  { "ctx", "list|context" }, { "slices", "list" }, { "train_data", "any" },
  { "shared_group", "any?" },
})


local function contexts(given, func)
  local list = is_plain(given) and given or { given }
  for _, ctx in ipairs(list) do
    if not Class.is_a(ctx, context.Context) then
      Error.raise{ code = "type", func = func, argument = "ctx", expected = "contexts",
        got = Error.kind(ctx), message = "bad 'ctx'" }
    end
  end
  return list
end


local function provided(data, kind, func)
  local ok, list = pcall(function() return data[kind] end)
  if type(data) ~= "table" or not ok or kind == "provide_data" and type(list) ~= "table" then
    Error.raise{ code = "type", func = func, argument = "train_data",
      expected = "a data iterator or a described batch", got = Error.kind(data),
      message = ("'train_data' has no '%s'"):format(kind) }
  end
  return rows.descriptions(list, func, "train_data") or {}
end


local function check_group(a)
  manager._check_arguments(a.sym)
  local names = a.sym:list_arguments()
  if table.concat(names, "\n") ~= table.concat(a.arg_names, "\n") then
    Error.raise{ code = "name", func = GROUP, argument = "arg_names", candidates = names,
      message = "'arg_names' is not the symbol's list_arguments" }
  end
  local known = tables.places(names)
  for _, name in ipairs(a.param_names) do
    if not known[name] then
      Error.unknown{ func = GROUP, argument = name, what = "parameter", names = names }
    end
  end
  if #a.ctx ~= #a.slices then
    Error.raise{ code = "value", func = GROUP, argument = "slices", expected = #a.ctx,
      got = #a.slices, message = "there is not one slice for each context" }
  end
end


-- The executor of device i.
local function bind_device(self, a, i, descs)
  local shapes, types, range = {}, {}, a.slices[i]
  for _, d in ipairs(descs) do
    local shape = tables.copied(d.shape)
    shape[1] = range[2] - range[1]
    shapes[d.name], types[d.name] = shape, d.dtype
  end
  return manager._bind_exec{ sym = a.sym, ctx = a.ctx[i], input_shapes = shapes,
    param_names = self.param_names,
    need_grad = true, base_exec = a.shared_group and a.shared_group.train_execs[i],
    shared_data_arrays = self.shared_data_arrays[i], input_types = types }
end


-- Per name a list over devices.
local function over_devices(self, names, dict, ranged)
  local list = {}
  for k, name in ipairs(names) do
    list[k] = {}
    for i, exe in ipairs(self.train_execs) do
      local x = exe[dict][name] or null
      list[k][i] = ranged and { self.slices[i], x } or x
    end
  end
  return list
end


-- Parameters in argument order, and their places.
local function order_params(self, a)
  local wanted = tables.places(a.param_names)
  self.param_names, self.param_idx = {}, {}
  for k, name in ipairs(a.arg_names) do
    if wanted[name] then
      self.param_names[#self.param_names + 1], self.param_idx[#self.param_idx + 1] = name, k
    end
  end
end


--- Fields: train_execs, slices, data_names, label_names, aux_names, param_names, param_idx (places
-- in arg_names, from 1), data_arrays and label_arrays (per name a list over devices of `{{begin,
-- end}, array}`), param_arrays, grad_arrays, aux_arrays (per name a list over devices),
-- shared_data_arrays (by name, per device).
function Group:init(...)
  local a = NEW_GROUP(...)
  a.ctx, a.shared_group = contexts(a.ctx, GROUP), value(a.shared_group)
  check_group(a)
  local data, labels = provided(a.train_data, "provide_data", GROUP),
    provided(a.train_data, "provide_label", GROUP)
  self.sym, self.arg_names, self.ctx, self.slices = a.sym, a.arg_names, a.ctx, a.slices
  self.data_names, self.label_names, self.aux_names = rows.names(data), rows.names(labels),
    a.sym:list_auxiliary_states()
  order_params(self, a)
  self.shared_data_arrays, self.train_execs =
    a.shared_group and a.shared_group.shared_data_arrays or {}, {}
  local descs = {}
  for _, part in ipairs{ data, labels } do
    for _, d in ipairs(part) do
      descs[#descs + 1] = d
    end
  end
  for i = 1, #a.ctx do
    self.shared_data_arrays[i] = self.shared_data_arrays[i] or {}
    self.train_execs[i] = bind_device(self, a, i, descs)
  end
  self.data_arrays = over_devices(self, self.data_names, "arg_dict", true)
  self.label_arrays = over_devices(self, self.label_names, "arg_dict", true)
  self.param_arrays = over_devices(self, self.param_names, "arg_dict")
  self.grad_arrays = over_devices(self, self.param_names, "grad_dict")
  self.aux_arrays = over_devices(self, self.aux_names, "aux_dict")
end


--- Copies a batch to the devices.
function Group:load_data_batch(data_batch)
  manager._load_data(data_batch, self.data_arrays)
  manager._load_label(data_batch, self.label_arrays)
end


--- Runs all devices forward.
-- @bool[opt=false] is_train
function Group:forward(is_train)
  for _, exe in ipairs(self.train_execs) do
    exe:forward(is_train == true)
  end
end


--- Computes the gradients on all devices; the symbol ends in losses.
function Group:backward()
  for _, exe in ipairs(self.train_execs) do
    exe:backward()
  end
end


--- Shows labels and outputs to a metric, once for each device.
-- @param metric
-- @tparam {NDArray,...} labels of the whole batch, cut by rows
-- @bool[opt=false] pre_sliced `labels[i]` are those of device i
function Group:update_metric(metric, labels, pre_sliced)
  for i, exe in ipairs(self.train_execs) do
    local own = pre_sliced and labels[i] or {}
    for k, x in ipairs(pre_sliced and {} or labels) do
      own[k] = rows.cut(x, 0, self.slices[i])
    end
    metric:update(own, exe.outputs)
  end
end


-- DataParallelExecutorManager ---------------------------------------------------------------------

--- Groups of executors, one for each bucket, with common parameters.
-- @type DataParallelExecutorManager
local Manager = Class:extend("DataParallelExecutorManager")
manager.DataParallelExecutorManager = Manager

local FUNC = "executor_manager.DataParallelExecutorManager"

local NEW = args.form(FUNC, {
  { "symbol", "symbol" }, { "ctx", "list|context" }, { "train_data", "any" },
  { "arg_names", "list?" }, { "param_names", "list?" }, { "aux_names", "list?" },
  { "work_load_list", "list?" }, { "logger", "any?" }, { "sym_gen", "function?" },
})


local function work_loads(a)
  local list = a.work_load_list or tables.ones(#a.ctx)
  if #list ~= #a.ctx then
    Error.raise{ code = "value", func = FUNC, argument = "work_load_list", expected = #a.ctx,
      got = #list, message = "'work_load_list' has not one number for each context" }
  end
  return list
end


-- Arguments that the iterator does not provide.
local function parameters_of(a)
  local inputs, list = {}, {}
  for _, kind in ipairs{ "provide_data", "provide_label" } do
    for _, d in ipairs(provided(a.train_data, kind, FUNC)) do
      inputs[d.name] = true
    end
  end
  for _, name in ipairs(a.symbol:list_arguments()) do
    list[#list + 1] = not inputs[name] and name or nil
  end
  return list
end


local function default_key(a)
  local ok, key = pcall(function() return a.train_data.default_bucket_key end)
  if not ok or key == nil then
    Error.raise{ code = "name", func = FUNC, argument = "default_bucket_key",
      message = "with 'sym_gen' the iterator needs a 'default_bucket_key'" }
  end
  return key
end


--- @tparam table options symbol, ctx, train_data (iterator), arg_names, param_names, aux_names
--   (from the symbol by default), work_load_list, logger, sym_gen (bucket key -> symbol)
function Manager:init(...)
  local a = NEW(...)
  a.ctx = contexts(a.ctx, FUNC)
  local loads = work_loads(a)
  self.symbol, self.ctx, self.logger, self.sym_gen = a.symbol, a.ctx, a.logger or log, a.sym_gen
  self.slices = rows.split(a.train_data.batch_size, loads, FUNC)
  self.arg_names = a.arg_names or a.symbol:list_arguments()
  self.aux_names = a.aux_names or a.symbol:list_auxiliary_states()
  self.execgrp = Group(a.symbol, self.arg_names, a.param_names or parameters_of(a), a.ctx,
    self.slices, a.train_data)
  self.param_names = self.execgrp.param_names
  if a.sym_gen then
    self.execgrp_bucket = { [default_key(a)] = self.execgrp }
  end
end


-- The default group's arrays, which all buckets share.
local SHARED = { param_arrays = true, grad_arrays = true, aux_arrays = true }

function Manager.__index(self, key)
  if SHARED[key] then
    return self.execgrp[key]
  end
  return Manager[key]
end


--- Has a monitor watch the executors; not with buckets.
function Manager:install_monitor(monitor)
  if self.sym_gen then
    Error.raise{ code = "unsupported", func = FUNC .. ":install_monitor",
      message = "monitoring does not work with sym_gen" }
  end
  for _, exe in ipairs(self.execgrp.train_execs) do
    monitor:install(exe)
  end
end


-- Arrays by name from such a table or a list in the order of names.
local function by_name(given, names)
  if #(given or {}) == 0 then
    return given or {}
  end
  local dict = {}
  for k, name in ipairs(names) do
    dict[name] = given[k]
  end
  return dict
end


--- Copies parameters to all devices.
-- @tparam table arg_params by name, or a list in the order of param_names; an unknown name is
--   E(name)
-- @tparam table aux_params likewise
function Manager:set_params(arg_params, aux_params)
  local arg_dict, aux_dict = by_name(arg_params, self.param_names),
    by_name(aux_params, self.aux_names)
  for _, exe in ipairs(self.execgrp.train_execs) do
    exe:copy_params_from{ arg_params = arg_dict, aux_params = aux_dict }
  end
end


local function copy_means(given, names, arrays)
  local dict = by_name(given, names)
  for k, name in ipairs(names) do
    if not dict[name] then
      Error.raise{ code = "name", func = FUNC .. ":copy_to", argument = name,
        candidates = attrs.keys(dict), message = ("there is no array for '%s'"):format(name) }
    end
    rows.mean(dict[name], arrays[k], FUNC .. ":copy_to", name)
  end
end


--- Writes the means over devices into arrays, converted to their element types.
-- @tparam table arg_params by name, or a list in the order of param_names; a missing name is
--   E(name)
-- @tparam table aux_params likewise
function Manager:copy_to(arg_params, aux_params)
  copy_means(arg_params, self.param_names, self.execgrp.param_arrays)
  copy_means(aux_params, self.aux_names, self.execgrp.aux_arrays)
end


-- A group for a bucket, with those of the parameters that its symbol has.
local function bucket_group(self, net, data_batch)
  local names, known, own = net:list_arguments(), tables.places(self.param_names), {}
  for _, name in ipairs(names) do
    own[#own + 1] = known[name] and name or nil
  end
  return Group(net, names, own, self.ctx, self.slices, data_batch, self.execgrp)
end


--- Copies a batch to the devices; with buckets, to the group of its key, which
-- is made when the key is new.
function Manager:load_data_batch(data_batch)
  local group = self.execgrp
  if self.sym_gen then
    local key = data_batch.bucket_key
    group = self.execgrp_bucket[key]
    if not group then
      group = bucket_group(self, self.sym_gen(key), data_batch)
      self.execgrp_bucket[key] = group
    end
  end
  self.curr_execgrp = group
  group:load_data_batch(data_batch)
end


local function current(self, method)
  if not self.curr_execgrp then
    Error.raise{ code = "state", func = FUNC .. ":" .. method,
      message = "call load_data_batch first" }
  end
  return self.curr_execgrp
end


--- Runs the loaded batch forward.
-- @bool[opt=false] is_train
function Manager:forward(is_train)
  current(self, "forward"):forward(is_train)
end


--- Computes the gradients.
function Manager:backward()
  current(self, "backward"):backward()
end


--- Shows labels and outputs to a metric; see the group.
function Manager:update_metric(metric, labels, pre_sliced)
  current(self, "update_metric"):update_metric(metric, labels, pre_sliced)
end


return manager
