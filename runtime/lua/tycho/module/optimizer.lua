--- The optimizer of a Module, its store, and its states. Adds methods to Module.
--
-- The optimizer stores its state under each parameter's number in `_param_index`. Without a store
-- that updates, the key is number * devices + device; if the store updates, it is the parameter's
-- name.
--
-- @module tycho.module.optimizer

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local BaseModule = require "tycho.module.base"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local gradient_requests = require "tycho.module.gradient_requests"
local stores = require "tycho.module.stores"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local null = values.null

local Module = {}                                        -- methods, for module/module.lua


--- Options of init_optimizer, for BucketingModule too.
Module.INIT_OPTIMIZER = BaseModule._extend_options(BaseModule.INIT_OPTIMIZER,
  { { "in_backward", "boolean", false } })

local OPTIMIZER = args.form("Module:init_optimizer", Module.INIT_OPTIMIZER)


-- Returns parameter names by the index under which the optimizer sees them.
local function index_names(self, update_on_kvstore)
  local names, n = {}, #self._context
  for _, name in ipairs(self._param_names) do
    local index = self._param_index[name]
    if update_on_kvstore then
      names[index] = name
    else
      for k = 0, n - 1 do
        names[index * n + k] = name
      end
    end
  end
  return names
end


-- Returns one divided by the number of rows that a gradient is summed over, including all workers
-- of a distributed store.
local function rescale_of(self, kv)
  local batch = self._exec_group.batch_size
  if kv and kv.type:find("dist", 1, true) then
    batch = batch * kv.num_workers
  end
  return 1 / batch
end


-- Returns the options of an optimizer as a table by name; E(type) for a list.
local function options_of(given)
  local dict = args.pairs_of(given or { learning_rate = 0.01 })
  if not dict then
    Error.raise{ code = "type", func = "Module:init_optimizer", argument = "optimizer_params",
      expected = "a table of options", got = "a list", message = "bad 'optimizer_params'" }
  end
  return dict
end


-- Makes the optimizer from its name, or checks a given one and warns of a different rescale_grad.
local function make_optimizer(self, a, names, rescale)
  local optimizer = require "tycho.optimizer"
  if type(a.optimizer) == "string" then
    local options = options_of(a.optimizer_params)
    local follows = options.rescale_grad == nil
    options.rescale_grad = options.rescale_grad or rescale
    options.sym, options.param_idx2name = self._symbol, names
    local made = optimizer.create(a.optimizer, options)
    made.rescales_by_batch = follows
    return made
  elseif not Class.is_a(a.optimizer, optimizer.Optimizer) then
    Error.raise{ code = "type", func = "Module:init_optimizer", argument = "optimizer",
      expected = "a name or an Optimizer", got = Error.kind(a.optimizer),
      message = Class.is_class(a.optimizer)
        and ("a class is no optimizer; call it: ty.optimizer.%s()"):format(a.optimizer.class_name)
        or "bad 'optimizer'" }
  end
  local o = a.optimizer
  if o.rescale_grad ~= rescale then
    self.logger:warning(
      ("init_optimizer: the optimizer has rescale_grad = %g, not 1 / batch size = %g")
        :format(o.rescale_grad, rescale))
  end
  if next(o.idx2name) == nil then
    for index, name in pairs(names) do
      o.idx2name[index] = name
    end
  end
  return o
end


-- Passes the named parameters to the store.
local function init_store(self, names)
  local own, arrays = {}, {}
  for k, name in ipairs(self._exec_group.param_names) do
    if names[name] then
      own[#own + 1], arrays[#arrays + 1] = name, self._exec_group.param_arrays[k]
    end
  end
  stores.initialize(self._kvstore, arrays, self._arg_store:values(), own, self._update_on_kvstore,
    self._steps_behind)
end


-- Uses the optimizer, the store and the updater of another module.
local function take(self, other)
  self._optimizer, self._kvstore, self._updater = other._optimizer, other._kvstore, other._updater
  self._update_on_kvstore, self._steps_behind = other._update_on_kvstore, other._steps_behind
  return self
end


-- Connects the optimizer with a store, which may update, or with a new updater.
local function connect(self, kv, update_on_kvstore, steps_behind)
  self._kvstore, self._update_on_kvstore, self._updater = kv, update_on_kvstore, nil
  self._steps_behind = steps_behind
  if kv then
    if self._compression_params then
      kv:set_gradient_compression(self._compression_params)
    end
    if update_on_kvstore then
      kv:set_optimizer(self._optimizer)
    end
    init_store(self, tables.positions(self._param_names))
  end
  if not update_on_kvstore then
    self._updater = require("tycho.optimizer").get_updater(self._optimizer)
  end
end


--- Makes the optimizer and, for several devices, the store.
-- @tparam[opt] table options kvstore = "local" (name, store or `ty.null`), optimizer = "sgd" (name
--   or Optimizer), optimizer_params = {learning_rate = 0.01}, force_init = false,
--    in_backward = false: true makes the updates part of backward. Without a store they need no
--   gradient arrays, and work with one context and SGD, NAG, Signum, Adam, RMSProp or Ftrl. With a
--   store of several ranks, sums replace the gradients; any contexts and any optimizer
function Module:init_optimizer(...)
  self:_need("init_optimizer", "binded", "params_initialized")
  local a = OPTIMIZER(...)
  if self:_is_done("init_optimizer", "optimizer_initialized", a.force_init) then
    return
  end
  self:_sync_params()
  local kv, update_on_kvstore = stores.create(a.kvstore == nil and "local" or a.kvstore,
    #self._context, self._arg_store:arrays())
  local before, optimizer = take({}, self),
    make_optimizer(self, a, index_names(self, update_on_kvstore), rescale_of(self, kv))
  local over_ranks = a.in_backward and kv and kv._buckets and true or false
  local fused = a.in_backward and not over_ranks
  if fused then
    self:_check_fused(optimizer, kv)
  end
  self._optimizer = optimizer
  connect(self, kv, update_on_kvstore, over_ranks)
  local ok, e = pcall(self._set_fused, self, fused)
  if not ok then
    take(self, before)
    error(e, 0)
  end
  self._optimizer_initialized = true
  if self._preload_states then
    ok, e = pcall(self._load_optimizer_states, self, self._preload_states, false)
    self._optimizer_initialized = ok
    if not ok then
      error(e, 0)
    end
    self._preload_states = nil
  end
end


-- Returns the updater that has the states: the module's, or that of one of Tycho's stores; nil for
-- a store with another kind of updater.
local function updater_of(self)
  local updater = self._update_on_kvstore and self._kvstore._updater or self._updater
  return Class.is_a(updater, require("tycho.optimizer").Updater) and updater or nil
end


-- Adds parameters that the optimizer and the store do not know (those of a later bucket) to both.
local function introduce(self)
  local o, attrs, new = self._optimizer, self._symbol:attr_dict(), {}
  local known = {}
  for _, name in pairs(o.idx2name) do
    known[name] = true
  end
  for index, name in pairs(index_names(self, self._update_on_kvstore)) do
    if not known[name] then
      local own = attrs[name] or {}
      o.idx2name[index], new[name] = name, true
      o.lr_mult[name] = tonumber(own.__lr_mult__ or own.lr_mult) or o.lr_mult[name]
      o.wd_mult[name] = tonumber(own.__wd_mult__ or own.wd_mult) or o.wd_mult[name]
        or o:_default_wd_mult(name)
    end
  end
  if self._kvstore and next(new) then
    init_store(self, new)
  end
  local updater = updater_of(self)
  if updater and next(updater.waiting) ~= nil and self._exec_group then
    updater:_settle((self:_state_targets()))
  end
end


--- Takes over an optimizer whose updates are part of backward, and its parameter indices: executors
-- that are made later contain the updates too (not for users).
-- @tparam Module other
function Module:_join(other)
  self:_check_fused(other._optimizer, other._kvstore)
  take(self, other)
  self._param_index = other._param_index
  self:_number_parameters()
  introduce(self)
end


--- Uses another module's optimizer, its states and its store.
-- @tparam Module other
function Module:borrow_optimizer(other)
  if not (Class.is_a(other, BaseModule) and other.optimizer_initialized) then
    Error.raise{ code = "state", func = "Module:borrow_optimizer", argument = "shared_module",
      message = "the other module has no optimizer" }
  end
  other = other._curr_module or other
  if other._fused then
    self:_join(other)
  else
    take(self, other)
    if self._binded then
      introduce(self)
    end
  end
  self:_set_fused(other._fused)
  self._optimizer_initialized = true
end


-- The states of the optimizer ---------------------------------------------------------------------

-- Returns the set of parameters that are updated.
local function trained_names(self)
  local reqs = self._exec_group and gradient_requests.read(self._exec_group, self._grad_req) or {}
  local names = {}
  for name, req in pairs(reqs) do
    names[name] = req ~= "null" or nil
  end
  return names
end


-- Returns the device_id of the context on which a parameter is updated.
local function device_of(self, name, weight)
  local entry = self._update_on_kvstore and self._kvstore._entries
    and self._kvstore._entries[name]
  return (entry and entry.stored or weight).context.device_id
end


--- Returns the parameters for which the optimizer has states: of this module, and of those that
-- share its parameters (not for users).
-- @treturn table list in the form of `optimizer/saved_states.lua`
-- @treturn table parameter names by index
function Module:_state_targets()
  local targets, names, trained, numbered = {}, {}, trained_names(self), {}
  local n = #self._context
  for name, index in pairs(self._param_index) do
    numbered[#numbered + 1] = { index, name, self._arg_store:on_devices(name) }
  end
  table.sort(numbered, function(a, b) return a[1] < b[1] end)
  for _, entry in ipairs(numbered) do
    local index, name, arrays = unpack(entry)
    for d = 1, arrays and (self._update_on_kvstore and 1 or n) or 0 do
      local number = self._update_on_kvstore and index or index * n + d - 1
      names[number] = name
      targets[#targets + 1] = { key = self._update_on_kvstore and name or number, name = name,
        weight = arrays[d], device = device_of(self, name, arrays[d]),
        required = trained[name] == true }
    end
  end
  return targets, names
end


local STATES = args.form("Module:save_optimizer_states", { { "fname", "path" } })

--- Writes the optimizer's states, the counts of its updates, its name, and the options that
-- determine the form of the states.
-- @string fname
function Module:save_optimizer_states(...)
  self:_need("save_optimizer_states", "optimizer_initialized")
  local a, updater = STATES(...), updater_of(self)
  if not updater then
    return self._kvstore:save_optimizer_states(a.fname)
  end
  local _, names = self:_state_targets()
  files.write(a.fname, updater:_get_states(false, names), self:_func("save_optimizer_states"))
end


--- Reads a file of states (not for users).
-- @string fname
-- @bool keep_unknown whether states of unknown parameters are stored until their bucket comes
function Module:_load_optimizer_states(fname, keep_unknown)
  local updater, func = updater_of(self), self:_func("load_optimizer_states")
  if not updater then
    return self._kvstore:load_optimizer_states(fname)
  end
  local targets = self:_state_targets()
  files.parse(fname, func, function(bytes)
    return updater:_prepare_states(bytes,
      { func = func, targets = targets, keep_unknown = keep_unknown, same_optimizer = true })
  end)()
  self._optimizer = updater.optimizer
end


--- Reads the optimizer's states and the counts of its updates. Those of another optimizer or of
-- other parameters raise E(state), and then nothing is changed. The states of a parameter are found
-- by its name, so the number of devices may differ.
-- @string fname
function Module:load_optimizer_states(...)
  self:_need("load_optimizer_states", "binded", "optimizer_initialized")
  self:_load_optimizer_states(STATES(...).fname, false)
end


function Module:_updaters()
  local updater = updater_of(self)
  return updater and { { updater, self } } or {}
end


function Module:_stores()
  return self._kvstore and self._kvstore._residuals and { self._kvstore } or {}
end


--- Passes parameters that were set to a store that updates, since it has its own copies of the
-- weights (not for users).
-- @tparam table params by name
function Module:_tell_store(params)
  if self._optimizer_initialized and self._update_on_kvstore and self._kvstore._put then
    for _, name in ipairs(self._param_names) do
      if params[name] then
        self._kvstore:_put(name, params[name])
      end
    end
  end
end


-- Raises E(unsupported) for a gradient with the request "add" while updates belong to backward: the
-- sum over devices, which replaces the gradient, would be counted twice.
local function check_written(self, name)
  if self._steps_behind and self._exec_group._reqs[name] == "add" then
    Error.raise{ code = "unsupported", func = "Module:forward", argument = "in_backward",
      expected = "grad_req = 'write'", got = "add",
      message = ("the gradient of '%s' is used inside backward, and cannot add up"):format(name) }
  end
end


-- Returns the parameters that have gradients, in the form of `stores.update`. The result is reused
-- for the same group, whose arrays stay the same.
local function trained(self)
  local group, u = self._exec_group, rawget(self, "_trained")
  if u and u.group == group then
    return u
  end
  u = { group = group, names = {}, grads = {}, weights = {} }
  for k, name in ipairs(group.param_names) do
    if group.grad_arrays[k][1] ~= null then
      check_written(self, name)
      local n = #u.names + 1
      u.names[n], u.grads[n], u.weights[n] = name, group.grad_arrays[k], group.param_arrays[k]
    end
  end
  self._trained = u
  return u
end


--- Prepares executors for a run: with a store of several ranks, finished gradients are sent while
-- backward computes others (not for users).
function Module:_cut_backward()
  if self._kvstore and self._kvstore._buckets and self._exec_group.grad_arrays then
    stores.cut_backward(trained(self), self._kvstore, self._exec_group.execs)
  end
end


--- Whether gradients can add up over batches.
Module._can_accumulate = true


function Module:_gradients()
  if self._fused or self._steps_behind then
    Error.raise{ code = "state", func = "Module:fit", argument = "optimizer",
      expected = "in_backward = false", got = "true",
      message = "gradients that are used inside backward cannot be changed before" }
  end
  return { { trained(self).grads, self._optimizer.rescale_grad } }
end


local function update(self)
  self:_have_params(true)
  local u = trained(self)
  u.index, u.kvstore, u.update_on_kvstore, u.updater =
    self._param_index, self._kvstore, self._update_on_kvstore, self._updater
  stores.update(u)
end


--- Updates the parameters at the end of backward, if updates belong to backward and go through a
-- store. The store's messages travel while backward runs (not for users).
function Module:_end_backward()
  if self._steps_behind then
    update(self)
  end
end


--- Updates the parameters with the optimizer; does nothing if backward has updated them.
function Module:update()
  self:_need("update", "binded", "params_initialized", "optimizer_initialized")
  if not (self._fused or self._steps_behind) then
    update(self)
  end
end


return Module
