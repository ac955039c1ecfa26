--- A symbol for each key, with common parameters, memory and optimizer: `ty.mod.BucketingModule`.
--
--     local m = ty.mod.BucketingModule{ default_bucket_key = 10, sym_gen = function(key)
--       ...
--       return symbol, { "data" }, { "softmax_label" }
--     end }
--     m:fit{ train_data = ty.rnn.BucketSentenceIter{ ... }, num_epoch = 5 }
--
-- A bucket is a Module that is bound when its key is first met. The first one is the base: the
-- others use its parameters, input buffers and pool of intermediate memory, so that all together
-- need as much memory as the largest one, in any order of binding. A bucket may have parameters
-- that others lack: the module holds the union and numbers parameters in the order in which they
-- are met. A parameter of a later bucket gets its first value when the bucket is bound: the value
-- that was set under its name before, else one from the initializer of `init_params`.
--
-- `_buckets` holds the modules by key, `_order` the keys in the order in which they were met,
-- `_met` the bound modules. List keys are compared by contents. The parameters of all buckets are
-- in module/bucketing_parameters.lua, their optimizer in module/bucketing_optimizer.lua.
--
-- @module tycho.module.bucketing

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local BaseModule = require "tycho.module.base"
local bucket_keys = require "tycho.module.bucket_keys"
local checkpoint = require "tycho.model.checkpoint"
local class = require "tycho.ndarray.class"
local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local io_data = require "tycho.io.data"
local nojit = require "tycho.core.nojit"
local Module = require "tycho.module.module"
local name_of = require "tycho.symbol.name"
local nd = require "tycho.ndarray"
local param_check = require "tycho.model.param_check"
local ParameterModule = require "tycho.module.parameter_module"
local symbols = require "tycho.symbol.symbol"
local values = require "tycho.core.values"

local is_plain, null, value = values.is_plain, values.null, values.value

--- A module for each bucket key.
-- @type BucketingModule
local BucketingModule = ParameterModule:extend("BucketingModule")
BucketingModule._guards_flags = true

BucketingModule:_include(require "tycho.module.bucketing_parameters")
BucketingModule:_include(require "tycho.module.bucketing_optimizer")

local CLASS = "mod.BucketingModule"


-- Fields ------------------------------------------------------------------------------------------

local function of_current(name)
  return function(self)
    return self:_bound(name)._curr_module[name]
  end
end

local function names_field(name)
  return function(self)
    return (self._curr_module or self._default)[name]
  end
end

BucketingModule.fields = ParameterModule.extend_fields({
  symbol       = of_current "symbol",        data_shapes  = of_current "data_shapes",
  label_shapes = of_current "label_shapes",  output_shapes = of_current "output_shapes",
  data_names   = names_field "data_names",   label_names  = names_field "label_names",
  output_names = names_field "output_names",
}, ParameterModule.fields)


-- Making ------------------------------------------------------------------------------------------

local OPTIONS = {
  { "sym_gen", "function" }, { "default_bucket_key", "any" }, { "logger", "any?" },
  { "context", "context|list?" }, { "work_load_list", "list?" }, { "fixed_param_names", "list?" },
  { "state_names", "list?" }, { "group2ctxs", "table?" }, { "compression_params", "dict?" },
}

local NEW = args.form(CLASS, OPTIONS)


-- Calls sym_gen for a key, under a new manager of names, and returns its results; E(type) unless it
-- returns a symbol.
local function generate(self, key)
  local symbol, data_names, label_names = name_of.NameManager():with(function()
    return self._sym_gen(key)
  end)
  if not args.types.symbol.check(symbol) then
    Error.raise{ code = "type", func = CLASS, argument = "sym_gen",
      expected = "symbol, data_names, label_names", got = Error.kind(symbol),
      message = "sym_gen gave no Symbol" }
  end
  return symbol, value(data_names), value(label_names)
end


-- Returns an unbound module for a key.
-- @param[opt] loaded a symbol that replaces the one from sym_gen
local function new_module(self, key, loaded)
  local symbol, data_names, label_names = generate(self, key)
  local options = self._options
  return Module{ symbol = loaded or symbol, data_names = data_names,
    label_names = label_names or null,
    logger = self._logger, context = options.context, work_load_list = options.work_load_list,
    fixed_param_names = options.fixed_param_names, state_names = options.state_names,
    group2ctxs = options.group2ctxs, compression_params = options.compression_params }
end


--- @tparam function sym_gen key -> symbol, data_names, label_names
-- @param default_bucket_key number, text or a list of these
-- @tparam[opt] table options logger, context = cpu(), work_load_list, fixed_param_names,
--   state_names, group2ctxs, compression_params
function BucketingModule:init(...)
  local a = NEW(...)
  BucketingModule.super.init(self, a.logger)
  self._options, self._sym_gen, self._keys = a, a.sym_gen, {}
  self._buckets, self._order, self._met = {}, {}, {}
  self._default_bucket_key = bucket_keys.unique(self._keys, a.default_bucket_key, CLASS)
  self._default = new_module(self, self._default_bucket_key)
  self._context, self._work_load_list = self._default._context, self._default._work_load_list
  self._fixed_param_names, self._state_names =
    self._default._fixed_param_names, self._default._state_names
  self._group2ctxs, self._compression_params = a.group2ctxs, a.compression_params
  self._param_index = {}
  self._kept_args, self._kept_auxs = {}, {}              -- given for buckets that are not bound yet
  self._kept_own = {}                                    -- names of those that are the network's
  self._monitors = {}
end


--- Returns the parameters and auxiliary states of all buckets as host arrays by name, in the
-- module's internal tables. They include values that a file or `set_params` gave for buckets that
-- are not bound yet.
-- @treturn table arg_params
-- @treturn table aux_params
function BucketingModule:get_params()
  self:_need("get_params", "binded")
  return self:_add_kept(BucketingModule.super.get_params(self))
end


function BucketingModule:_read_params()
  self:_need("get_params", "binded")
  return self:_add_kept(BucketingModule.super._read_params(self))
end


-- Binding -----------------------------------------------------------------------------------------

local BIND = args.form("BucketingModule:bind",
  BaseModule._extend_options(Module.BIND, { { "bucket_key", "any?" } }))


--- Drops the executors of all buckets; parameters and optimizer stay.
function BucketingModule:_reset_bind()
  self:_sync_params()
  for _, m in ipairs(self._met) do
    self._optimizer_owner = m.optimizer_initialized and m or self._optimizer_owner
    m:free()
  end
  self._buckets, self._order, self._met, self._curr_module, self._curr_bucket_key =
    {}, {}, {}, nil, nil
  self._binded = false
end


-- Stores the module of a key; the position of a known key in the order stays.
local function add_bucket(self, key, m)
  self._order[#self._order + 1] = not self._buckets[key] and key or nil
  self._buckets[key] = m
end


-- Makes and binds the module of a key.
local function bind_bucket(self, key, data_shapes, label_shapes)
  local known = self._buckets[key]
  local m, options, base = known or new_module(self, key), self._bind_options, self._met[1]
  local names = self:_new_names(m)
  m._arg_store, m._aux_store, m._param_index =
    self._arg_store, self._aux_store, self._param_index
  m._params_initialized = self._params_initialized
  m:bind{ data_shapes = data_shapes, label_shapes = label_shapes,
    for_training = options.for_training, inputs_need_grad = options.inputs_need_grad,
    grad_req = options.grad_req, shared_module = base,
    memory_budget = options.memory_budget, force_mirroring = options.force_mirroring,
    precision = options.precision }
  if self._params_initialized then
    local ok, e = pcall(self._fill_new, self, m, names)
    if not ok then                                       -- the next try begins with a new module
      m._arg_store:forget(names)
      m._aux_store:forget(names)
      self._buckets[key] = known and new_module(self, key, known.symbol)
      m:free()
      error(e, 0)
    end
  end
  self._arg_store, self._aux_store = m._arg_store, m._aux_store
  for _, mon in ipairs(self._monitors) do
    m:install_monitor(mon)
  end
  add_bucket(self, key, m)
  self._met[#self._met + 1] = m
  return m
end


--- Binds one bucket; its options are used for all later buckets.
-- @tparam table data_shapes descriptions
-- @tparam[opt] table label_shapes
-- @tparam[opt] table options for_training = true, inputs_need_grad = false, force_rebind = false
--    (drops all buckets but no parameters and no optimizer), grad_req = "write",
--     bucket_key = default_bucket_key: the one that the shapes describe
function BucketingModule:bind(...)
  local a = BIND(...)
  if not self:_begin_bind(a) then
    return
  end
  self:_refuse_shared(a)
  if self._binded then
    self:_reset_bind()
  end
  local key = self._default_bucket_key
  if value(a.bucket_key) ~= nil then
    key = bucket_keys.unique(self._keys, a.bucket_key, "BucketingModule:bind")
  end
  self._for_training, self._inputs_need_grad, self._grad_req =
    a.for_training, a.inputs_need_grad, a.grad_req
  self._bind_options = a
  self._curr_module, self._curr_bucket_key =
    bind_bucket(self, key, a.data_shapes, a.label_shapes), key
  self._binded = true
  if self._optimizer_initialized then
    self._curr_module:borrow_optimizer(self._optimizer_owner)
  end
end


local SWITCH = args.form("BucketingModule:switch_bucket", {
  { "bucket_key", "any" }, { "data_shapes", "table?" }, { "label_shapes", "table?" },
})

-- Makes the bucket of a key the current one and binds it if needed, which is E(value) without
-- shapes.
local function switch(self, key, data_shapes, label_shapes)
  local m = self._buckets[key]
  if not (m and m.binded) then
    if not data_shapes then
      Error.raise{ code = "value", func = "BucketingModule:switch_bucket", argument = "data_shapes",
        message = ("the bucket %s is new, so its shapes are needed"):format(bucket_keys.show(key)) }
    end
    m = nojit(bind_bucket, self, key, data_shapes, label_shapes)
  end
  self._curr_module, self._curr_bucket_key = m, key
end

--- Makes a bucket the current one. A new one is bound with the given shapes; for a bound one they
-- are ignored.
-- @param bucket_key
-- @tparam[opt] table data_shapes
-- @tparam[opt] table label_shapes
function BucketingModule:switch_bucket(...)
  self:_need("switch_bucket", "binded")
  local known = (...)
  if type(known) ~= "table" and known ~= nil and self._buckets[known]
      and self._buckets[known].binded then
    return switch(self, known)                   -- the usual case: nothing to read, nothing to make
  end
  local a = SWITCH(...)
  switch(self, bucket_keys.unique(self._keys, a.bucket_key, "BucketingModule:switch_bucket"),
    value(a.data_shapes), value(a.label_shapes))
end


local WARM = args.form("BucketingModule:warm", {
  { "keys", "list" }, { "data_shapes", "function" }, { "label_shapes", "function?" },
})

--- Binds several buckets before their batches come.
-- @tparam table options keys, data_shapes and label_shapes: functions of a key
function BucketingModule:warm(...)
  self:_need("warm", "binded", "params_initialized")
  local a, current = WARM(...), self._curr_bucket_key
  for _, key in ipairs(a.keys) do
    self:switch_bucket(key, a.data_shapes(key), a.label_shapes and a.label_shapes(key))
  end
  switch(self, current)
end


-- Running -----------------------------------------------------------------------------------------

-- Returns the descriptions of a batch's arrays: those of the batch, else ones made from the arrays'
-- shapes with a new bucket's names. For a list of batches the rows are multiplied by their number,
-- `parts`.
local function described(names, given, list, parts)
  given = descriptions.list(given, "BucketingModule:forward", "provide_data") or {}
  local descs = {}
  for i, x in ipairs(list or {}) do
    local d, shape = given[i] or io_data.DataDesc(names[i] or "", {}), x.shape
    local axis = descriptions.batch_axis(d)
    if axis >= 0 and shape[axis + 1] then
      shape[axis + 1] = shape[axis + 1] * parts
    end
    descs[i] = d.name ~= "" and io_data.DataDesc(d.name, shape, d.dtype, d.layout or null) or nil
  end
  return #descs > 0 and descs or nil
end


-- Makes the bucket of a batch's key the current one; a batch without a key changes nothing.
local function switch_to(self, batch)
  local first, parts = batch, 1
  if is_plain(batch) then
    first, parts = batch[1], #batch
  end
  if first.bucket_key == nil then
    return
  end
  local key = bucket_keys.unique(self._keys, first.bucket_key, "BucketingModule:forward")
  local known = self._buckets[key]
  if known and known.binded then
    return switch(self, key)
  end
  switch(self, key, described(self.data_names, first.provide_data, first.data, parts),
    described(self.label_names, first.provide_label, first.label, parts))
end


--- Binds the bucket of a batch if it is new; the current bucket stays current.
-- @param data_batch
-- @param[opt] sparse_row_id_fn has no effect and is warned of
function BucketingModule:prepare(data_batch, sparse_row_id_fn)
  self:_need("prepare", "binded", "params_initialized")
  BucketingModule.super.prepare(self, data_batch, sparse_row_id_fn)
  local current = self._curr_bucket_key
  switch_to(self, BaseModule._batch(data_batch, "BucketingModule:prepare"))
  switch(self, current)
end


--- Switches to the bucket of the batch and runs it forward. A batch without a key is for the
-- current bucket.
-- @param data_batch
-- @bool[opt] is_train default: `for_training` of bind
function BucketingModule:forward(data_batch, is_train)
  self:_need("forward", "binded", "params_initialized")
  local batch = BaseModule._batch(data_batch, "BucketingModule:forward")
  switch_to(self, batch)
  self._curr_module:forward(batch, is_train)
end


-- methods that the current bucket carries out -> the flags that they need
local DELEGATED = {
  backward        = { "binded", "params_initialized" },
  get_outputs     = { "binded", "params_initialized" },
  get_input_grads = { "binded", "params_initialized", "inputs_need_grad" },
  get_states      = { "binded", "params_initialized" },
  set_states      = { "binded", "params_initialized" },
  update_metric   = { "binded", "params_initialized" },
  save_optimizer_states = { "binded", "optimizer_initialized" },
}

for method, flags in pairs(DELEGATED) do
  BucketingModule[method] = function(self, ...)
    self:_need(method, unpack(flags))
    local m = self._curr_module
    return m[method](m, ...)
  end
end


function BucketingModule:_name_labels(labels)
  return self._curr_module:_name_labels(labels)
end


function BucketingModule:_first_bad_number()
  return self._curr_module:_first_bad_number()
end


--- Updates the parameters of the current bucket with the optimizer.
function BucketingModule:update()
  self:_need("update", "binded", "params_initialized", "optimizer_initialized")
  self._curr_module:update()
end


-- Watching ----------------------------------------------------------------------------------------

--- Installs a monitor on all buckets, including later ones.
function BucketingModule:install_monitor(mon)
  self:_need("install_monitor", "binded")
  mon = self:_checked_monitor(mon)
  self._monitors[#self._monitors + 1], self._monitor = mon, mon
  for _, m in ipairs(self._met) do
    m:install_monitor(mon)
  end
end


--- Returns numbers of bytes: pool (intermediate memory of all buckets together), largest (need of
-- the largest bucket, in whole pages), planned (the sum over buckets if nothing were shared),
-- buckets (planned, by key), params, grads, aux.
function BucketingModule:memory()
  self:_need("memory", "binded")
  local of_base = self._met[1]:memory()
  local m = { pool = of_base.pool, params = of_base.params, grads = of_base.grads,
    aux = of_base.aux, planned = 0, largest = 0, buckets = {} }
  for key, bucket in pairs(self._buckets) do
    local own = bucket.binded and bucket:memory() or { planned = 0, pages = 0 }
    m.buckets[key], m.planned, m.largest = own.planned, m.planned + own.planned,
      math.max(m.largest, own.pages)
  end
  return m
end


--- Frees all buckets.
function BucketingModule:free()
  if self._binded then
    self:_reset_bind()
  end
  BucketingModule.super.free(self)
end


-- Checkpoints -------------------------------------------------------------------------------------

local SAVE = args.form("BucketingModule:save_checkpoint", {
  { "prefix", "text" }, { "epoch", "integer" }, { "remove_amp_cast", "boolean", false },
})

-- Returns the keys in order; raises E(value) for a key that is not a 32-bit integer.
local function integer_keys(self)
  for _, key in ipairs(self._order) do
    if type(key) ~= "number" or key ~= math.floor(key) or math.abs(key) >= 2 ^ 31 then
      Error.raise{ code = "value", func = "BucketingModule:save_checkpoint",
        argument = "bucket_key", expected = "32-bit integers", got = Error.kind(key),
        message = "a bucket's key cannot be written" }
    end
  end
  return self._order
end


local function symbol_file(prefix, key)
  return ("%s-%d-symbol.json"):format(prefix, key)
end


--- Writes `PREFIX-0003.params`, `PREFIX-KEY-symbol.json` for each bucket, and the keys to
-- `PREFIX.buckets`.
-- @string prefix
-- @int epoch
-- @bool[opt=false] remove_amp_cast
function BucketingModule:save_checkpoint(...)
  local a = SAVE(...)
  local arg_params, aux_params = self:get_params()
  local keys = integer_keys(self)
  for _, key in ipairs(keys) do
    self._buckets[key].symbol:save(symbol_file(a.prefix, key),
      { remove_amp_cast = a.remove_amp_cast })
  end
  nd.save(a.prefix .. ".buckets", nd.array(keys, { dtype = "int32" }))
  checkpoint.save_checkpoint(a.prefix, a.epoch, null, arg_params, aux_params)
end


local DICT = args.form("BucketingModule.load_dict", {
  rest = "options", { "sym_dict", "table" }, { "sym_gen", "function" },
  { "default_bucket_key", "any" }, { "arg_params", "dict" }, { "aux_params", "dict?" },
  { "allow_missing", "boolean", false },
})


-- Compares loaded parameters with those of the known symbols; unknown names may belong to later
-- buckets.
local function check_loaded(self, arg_params, aux_params, a)
  local modules = {}
  for _, m in pairs(self._buckets) do
    modules[#modules + 1] = m
  end
  modules[1] = modules[1] or self._default
  for _, m in ipairs(modules) do
    m:_check_loaded(arg_params, aux_params,
      { allow_missing = a.allow_missing, allow_extra = true }, "BucketingModule.load_dict")
  end
end


--- Returns an unbound module from symbols by key and parameters. A missing parameter is E(name),
-- here or when a bucket that needs it is bound; values for names that no symbol has are stored for
-- later buckets.
-- @tparam table options sym_dict, sym_gen, default_bucket_key, arg_params, aux_params,
--    allow_missing = false (true: an initializer makes missing ones), and those of the constructor
function BucketingModule.load_dict(...)
  local a = DICT(...)
  a.options.sym_gen, a.options.default_bucket_key = a.sym_gen, a.default_bucket_key
  local m = BucketingModule(a.options)
  for key, symbol in pairs(a.sym_dict) do
    key = bucket_keys.unique(m._keys, key, "BucketingModule.load_dict")
    add_bucket(m, key, new_module(m, key, symbol))
  end
  param_check.check_names(a.arg_params, "BucketingModule.load_dict")
  check_loaded(m, a.arg_params, a.aux_params or {}, a)
  m._kept_args, m._kept_auxs = class.keep(a.arg_params), class.keep(a.aux_params or {})
  m:_own_kept(a.arg_params, a.aux_params)
  m._params_initialized = true
  m._loaded = { allow_missing = a.allow_missing }
  return m
end


local LOAD = args.form("BucketingModule.load", {
  rest = "options", { "prefix", "text" }, { "epoch", "integer" }, { "sym_gen", "function" },
  { "default_bucket_key", "any" }, { "allow_missing", "boolean", false },
})

--- Returns an unbound module from a checkpoint. A missing parameter is E(name) as in `load_dict`.
-- @tparam table options prefix, epoch, sym_gen, default_bucket_key, allow_missing = false, and
--   those of the constructor
function BucketingModule.load(...)
  local a = LOAD(...)
  local keys = nd.load(a.prefix .. ".buckets")
  local options = a.options
  options.sym_dict = {}
  for _, key in ipairs(keys[1]:totable()) do
    options.sym_dict[key] = symbols.load(symbol_file(a.prefix, key))
  end
  options.sym_gen, options.default_bucket_key = a.sym_gen, a.default_bucket_key
  options.allow_missing = a.allow_missing
  options.arg_params, options.aux_params = checkpoint.load_params(a.prefix, a.epoch)
  return BucketingModule.load_dict(options)
end


return BucketingModule
