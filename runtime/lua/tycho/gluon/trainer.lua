--- Updates parameters with their gradients.
--
--     local trainer = gluon.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1})
--     local l = autograd.record(function() return loss(net(x), y) end)
--     l:backward()
--     trainer:step(x.shape[1])
--
-- The optimizer's index of parameter i on device d of n, both from 0, is i * n + d. A store that
-- updates uses the parameter's name. The store is made at the first step, since parameters may
-- still wait for their shapes when the trainer is made.
--
-- @classmod ty.gluon.Trainer

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local Block = require "tycho.gluon.block"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local devices = require "tycho.gluon.devices"
local Error = require "tycho.core.error"
local fields = require "tycho.core.fields"
local files = require "tycho.core.files"
local log = require "tycho.core.log"
local LossScale = require "tycho.module.loss_scale"
local modes = require "tycho.autograd.modes"
local optimizers = require "tycho.optimizer"
local Parameter = require "tycho.gluon.parameter"
local ParameterDict = require "tycho.gluon.parameter_dict"
local recording = require "tycho.ndarray.recording"
local stores = require "tycho.module.stores"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

--- Updates parameters with an optimizer. Read-only fields: learning_rate, optimizer.
local Trainer = Class:extend("Trainer")


-- Making ------------------------------------------------------------------------------------------

local function fail_params(given)
  local is_block = Class.is_a(given, Block)
  Error.raise{ code = "type", func = "gluon.Trainer", argument = "params",
    expected = "a ParameterDict, or a list or a dictionary of Parameters", got = Error.kind(given),
    message = "bad 'params'" .. (is_block and "; those of a block are block:collect_params()"
      or "") }
end


-- Returns the parameters as a list: in the order of a given list, otherwise sorted by name. Raises
-- E(type) for other values than parameters, E(name) if two have the same name.
local function list_parameters(params)
  local list = {}
  if Class.is_a(params, ParameterDict) then
    list = params:values()
  elseif not values.is_plain(params) then
    fail_params(params)
  elseif #params > 0 then
    for i, p in ipairs(params) do
      list[i] = p
    end
  else
    for _, p in pairs(params) do
      list[#list + 1] = p
    end
  end
  local names = {}
  for _, p in ipairs(list) do
    if not Class.is_a(p, Parameter) then
      fail_params(p)
    elseif names[p.name] then
      Error.raise{ code = "name", func = "gluon.Trainer", argument = p.name,
        message = ("two parameters are called '%s'; give one of their blocks another prefix")
          :format(p.name) }
    end
    names[p.name] = true
  end
  if Class.is_a(params, ParameterDict) or #params == 0 then
    table.sort(list, function(a, b) return a.name < b.name end)
  end
  return list
end


-- Returns the given optimizer, or makes one by its name with options.
local function make_optimizer(given, options)
  if type(given) == "string" then
    return optimizers.create(given, options or {})
  elseif not Class.is_a(given, optimizers.Optimizer) then
    Error.raise{ code = "type", func = "gluon.Trainer", argument = "optimizer",
      expected = "a name or an Optimizer", got = Error.kind(given), message = "bad 'optimizer'" }
  elseif options and next(options) ~= nil then
    Error.raise{ code = "value", func = "gluon.Trainer", argument = "optimizer_params",
      message = "the optimizer is made already; give its options to its constructor" }
  end
  return given
end


local FORM = args.form("gluon.Trainer", { { "params", "any" }, { "optimizer", "any" },
  { "optimizer_params", "dict?" }, { "kvstore", "any", "device" },
  { "compression_params", "dict?" }, { "update_on_kvstore", "boolean|null?" } })


-- Returns the arguments of a call by name. The form would read a positional table as its options,
-- but optimizer_params is a table, and the fourth argument may be the options.
local function read_arguments(params, optimizer, ...)
  if optimizer == nil and values.is_plain(params) and (params.params or params[1] ~= nil
      and (Class.is_a(params[1], ParameterDict) or values.is_plain(params[1]))) then
    return params
  end
  local given = { params = params, optimizer = optimizer }
  local rest, n = { ... }, select("#", ...)
  given.optimizer_params = rest[1]
  for key, v in pairs(values.is_plain(rest[2]) and n == 2 and rest[2] or {}) do
    given[key] = v
  end
  if rest[2] ~= nil and not (values.is_plain(rest[2]) and n == 2) then
    given.kvstore, given.compression_params, given.update_on_kvstore = rest[2], rest[3], rest[4]
  end
  return given
end


--- @param params a ParameterDict such as `net:collect_params()`, a list of Parameters, or a table
--   name -> Parameter
-- @param optimizer name such as "sgd", or an Optimizer
-- @tparam[opt] table optimizer_params options of a named optimizer; its rescale_grad is divided by
--   the batch size at each step
-- @tparam[opt] table options kvstore = "device" (a name, a store, or `ty.null` for none),
--   compression_params (of the store), update_on_kvstore (whether the store updates; nil: if it
--   can)
function Trainer:init(...)
  local a = FORM(read_arguments(...))
  self._params, self._kvstore_name = list_parameters(a.params), a.kvstore
  if not self._params[1] then
    log:warning("Trainer: there are no parameters, so its steps will update nothing")
  end
  self._compression, self._on_store_given = a.compression_params, values.value(a.update_on_kvstore)
  if a.update_on_kvstore == false then
    self._on_store_given = false
  end
  self._optimizer = make_optimizer(a.optimizer, a.optimizer_params)
  self._scale = self._optimizer.rescale_grad
  self._versions, self._seen, self._ready = {}, {}, false
end


fields.give(Trainer, {
  learning_rate = function(self) return self._optimizer.learning_rate end,
  optimizer = function(self) return self._optimizer end,
})


function Trainer.__newindex(self, key, v)
  if type(key) ~= "string" or key:sub(1, 1) ~= "_" then
    Error.raise{ code = "state", func = "Trainer", argument = tostring(key),
      message = key == "learning_rate" and "the rate is set by set_learning_rate"
        or ("a Trainer has no field '%s' that can be set"):format(tostring(key)) }
  end
  rawset(self, key, v)
end


--- Returns the trainer as text: "<Trainer of 4 parameters, SGD>".
function Trainer:__tostring()
  return ("<Trainer of %d parameters, %s>"):format(#self._params, self._optimizer.class_name)
end


--- Sets the learning rate. An optimizer with a schedule raises E(`state`).
-- @number lr
function Trainer:set_learning_rate(...)
  self._optimizer:set_learning_rate(...)
end


-- The store ---------------------------------------------------------------------------------------

-- Returns the devices of the parameters; raises E(device) unless they are the same for all.
local function find_devices(self)
  local ctx, first
  for _, p in ipairs(self._params) do
    local own = p:list_ctx()
    if ctx and not devices.same(ctx, own) then
      Error.raise{ code = "device", func = "Trainer", argument = p.name,
        expected = devices.show(ctx), got = devices.show(own),
        message = ("all parameters of a Trainer must be on the same devices: '%s' and '%s' are \z
          not; reset_ctx moves a parameter"):format(first, p.name) }
    end
    ctx, first = ctx or own, first or p.name
  end
  return ctx or {}
end


-- Sets the optimizer's parameter and name for each index.
local function number_parameters(self)
  local o, n = self._optimizer, #self._ctx
  local numbered, names = {}, {}
  for i, p in ipairs(self._params) do
    for d = 0, n - 1 do
      numbered[(i - 1) * n + d], names[(i - 1) * n + d] = p, p.name
    end
    numbered[p.name] = p
  end
  o.param_dict, o.idx2name = numbered, names
end


-- Makes the store and the updater for the present devices.
local function make_store(self)
  self._ctx = find_devices(self)
  local arrays = {}
  for _, p in ipairs(self._params) do
    if p:_is_ready() then
      arrays[p.name] = p:list_data()[1]
    end
  end
  local kv, on_store = stores.create(self._kvstore_name, #self._ctx, arrays)
  if kv and self._on_store_given ~= nil then
    on_store = self._on_store_given
  end
  self._kv, self._on_store = kv, kv ~= nil and on_store
  self._index = {}
  for i, p in ipairs(self._params) do
    self._index[p.name] = i - 1
  end
  number_parameters(self)
  if kv and self._compression then
    kv:set_gradient_compression(self._compression)
  end
  if self._on_store then
    kv:set_optimizer(self._optimizer)
  else
    self._updater = self._updater or optimizers.get_updater(self._optimizer)
  end
  self._ready = true
end


-- Passes to the store the parameters that got their arrays since the last step, and values that the
-- script has set since.
local function update_store(self)
  local kv = self._kv
  for _, p in ipairs(kv and self._params or {}) do
    local version = p:_values_version()
    local known = self._versions[p.name]
    if known == nil and p:_is_ready() then
      stores.initialize(kv, { p:list_data() }, { [p.name] = p:list_data()[1] }, { p.name },
        self._on_store)
      if not self._on_store and (kv.num_workers > 1 or #self._ctx > 1) then
        kv:pull(p.name, { out = p:list_data() })           -- all start with the same values
      end
      self._versions[p.name] = version
    elseif known and known ~= version and self._on_store and kv._put then
      kv:_put(p.name, p:list_data()[1])
      self._versions[p.name] = version
    end
  end
end


-- Returns whether parameters got other arrays, or values were set, since the last call.
local function have_changed(self)
  local changed, seen = not self._ready, self._seen
  for i, p in ipairs(self._params) do
    local version = rawget(p, "_version")
    changed = changed or seen[i] ~= version
    seen[i] = version
  end
  return changed
end


-- Prepares the store for a step if parameters were made, moved or set since the last one. Raises
-- E(state) if they were moved after the store took over the optimizer's states.
local function prepare_step(self)
  if not have_changed(self) then
    return
  end
  if self._ready and self._params[1] and not devices.same(self._ctx, find_devices(self)) then
    if self._on_store then
      self._seen = {}
      Error.raise{ code = "state", func = "Trainer", message = "the parameters were moved to \z
        other devices after the first step, and the store keeps the optimizer's states; make a \z
        new Trainer (save_states and load_states carry these over)" }
    end
    self._ready, self._versions = false, {}
  end
  self._lists = nil
  if not self._ready then
    class.outside(make_store, self)
  end
  class.outside(update_store, self)
end


-- Steps -------------------------------------------------------------------------------------------

-- Returns whether backward has written any gradient since the last step.
local function any_fresh(self)
  for _, p in ipairs(self._params) do
    for _, x in ipairs(rawget(p, "_data") or {}) do
      if class.is_fresh(x) then
        return true
      end
    end
  end
  return false
end


local function fail_stale(self, p, func)
  local text = any_fresh(self)
    and "backward has not written the gradient of '%s' since the last step, so nothing was \z
      updated; leave the parameter out of the Trainer, set its grad_req to \"null\", or give \z
      ignore_stale_grad = true"
    or "backward has written no gradient since the last step, not that of '%s' nor any other; \z
      compute the loss in autograd.record, and call its backward before each step"
  Error.raise{ code = "state", func = func, argument = p.name, message = text:format(p.name) }
end


-- Returns the parameters whose gradients backward has written since the last step. Raises E(state)
-- for others, unless they are ignored or their grad_req is "null".
local function list_fresh(self, ignore, func)
  local chosen = {}
  if class.check_gradient then
    class.check_gradient(func)
  end
  for _, p in ipairs(self._params) do
    if rawget(p, "_grad_req") ~= "null" then
      local fresh = false
      for _, x in ipairs(rawget(p, "_data") or p:_arrays(func)) do
        if class.is_fresh(x) then
          fresh = true
        elseif not ignore then
          fail_stale(self, p, func)
        end
      end
      chosen[#chosen + 1] = fresh and p or nil
    end
  end
  return chosen
end


-- Returns whether the gradients of parameters are the arrays in a list: by parameter, then device.
local function same_gradients(chosen, grads)
  for k, p in ipairs(chosen) do
    for d, x in ipairs(rawget(p, "_data")) do
      if grads[k][d] ~= rawget(x, "_grad") then
        return false
      end
    end
  end
  return true
end


-- Returns names, gradients and weights for `stores.update`: the same table while the parameters and
-- their arrays are the same, since updaters store plans by its lists.
local function get_lists(self, chosen)
  local u = self._lists
  if not (u and tables.same(u.chosen, chosen) and same_gradients(chosen, u.grads)) then
    u = { chosen = chosen, names = {}, grads = {}, weights = {} }
    for k, p in ipairs(chosen) do
      u.names[k], u.weights[k], u.grads[k] = p.name, p:list_data(), p:list_grad()
    end
    self._lists = u
  end
  u.index, u.kvstore, u.update_on_kvstore, u.updater =
    self._index, self._kv, self._on_store, self._updater
  return u
end


-- Marks the gradients of parameters as used.
local function clear_fresh(chosen)
  for _, p in ipairs(chosen) do
    for _, x in ipairs(rawget(p, "_data")) do
      class.clear_fresh(x)
    end
  end
end


-- Sums the gradients over devices and ranks, in place.
local function sum_gradients(self, u)
  local kv = self._kv
  if kv and kv._buckets then
    kv:pushpull(u.names, u.grads, { out = u.grads })
  elseif kv then
    for k, name in ipairs(u.names) do
      kv:pushpull(name, u.grads[k], { out = u.grads[k], priority = -(k - 1) })
    end
  end
end


-- Returns the ranks object that LossScale expects for a group: count() and all(condition); nil
-- without a group. The closures are made in a separate function, since LuaJIT does not compile a
-- function that makes one.
local function make_ranks(group)
  return group and {
    count = function() return group.size end,
    all = function(_, good)
      return not table.concat(group:gather(good and "1" or "0")):find("0", 1, true)
    end,
  }
end


-- Returns whether all gradients are finite on all ranks; true without a check if losses are not
-- scaled.
local function are_finite(self, u)
  local scaler, group = self._scaler, self._kv and self._kv.num_workers > 1 and self._kv._group
  return not scaler or scaler:can_step({ { u.grads } }, make_ranks(group))
end


-- Updates with the gradients divided by the batch size and by the scale of the losses. If losses
-- are scaled and a gradient is not finite, the step is skipped.
local function update_finite(self, u, batch_size)
  local scaler = self._scaler
  if are_finite(self, u) then
    local scale = scaler and not scaler.unscaled and scaler.scale or 1
    self._optimizer.rescale_grad = self._scale / batch_size / scale
    stores.update(u)
    if scaler then
      scaler:stepped()
    end
  end
  if scaler then
    scaler.unscaled = false
  end
end


--- Makes steps divide gradients by the scale of the losses, and skip steps whose gradients are not
-- finite (not for users: `ty.amp.init_trainer`).
-- @tparam number|string loss_scale "dynamic", or a fixed number
-- @string func name of the caller, for errors
function Trainer:_scale_losses(loss_scale, func)
  self._scaler = LossScale(loss_scale, func)
end


--- Divides the gradients by the scale before the step does it (not for users: `ty.amp.unscale`).
function Trainer:_unscale()
  local scaler = self._scaler
  for _, p in ipairs(not scaler.unscaled and self._params or {}) do
    for _, g in ipairs(p.grad_req ~= "null" and p:list_grad() or {}) do
      g:mul_(1 / scaler.scale)
    end
  end
  scaler.unscaled = true
end


local STEP = args.form("Trainer:step", { { "batch_size", "number" },
  { "ignore_stale_grad", "boolean", false } })

-- Reads the arguments of a step. A single number, the usual case, does not go through the form.
local function read_step(...)
  local batch_size = ...
  if select("#", ...) == 1 and type(batch_size) == "number" then
    return { batch_size = batch_size, ignore_stale_grad = false }
  end
  return STEP(...)
end


local function check_batch(a, func)
  if a.batch_size <= 0 or a.batch_size ~= a.batch_size then
    Error.raise{ code = "value", func = func, argument = "batch_size", expected = "above 0",
      got = a.batch_size, message = "bad 'batch_size'" }
  end
end


--- Takes a step: sums gradients over devices and ranks, divides them by the batch size, and updates
-- the parameters. The step itself is never recorded. A gradient that backward has not written since
-- the last step is E(`state`), and then nothing is updated.
-- @number batch_size number of rows, over all devices and ranks, whose losses backward has summed;
--   above 0
-- @tparam[opt] table options ignore_stale_grad = false: true skips parameters with such gradients
function Trainer:step(...)
  local a = read_step(...)
  check_batch(a, "Trainer:step")
  if recording.on then                                   -- updates are not recorded
    return modes.run(false, recording.training, self.step, self, a)
  end
  prepare_step(self)
  local chosen = list_fresh(self, a.ignore_stale_grad, "Trainer:step")
  update_finite(self, get_lists(self, chosen), a.batch_size)
  clear_fresh(chosen)
end


-- Raises E(state) if the store updates, since sum and update are then one operation.
local function check_split_step(self, func)
  if self._on_store then
    Error.raise{ code = "state", func = func,
      message = "the store sums and updates in one operation; make the Trainer with \z
        update_on_kvstore = false to do them apart" }
  end
end


--- Sums gradients over devices and ranks, in place, so that they can be changed before `update`.
-- E(`state`) if the store updates.
function Trainer:allreduce_grads()
  if recording.on then
    return modes.run(false, recording.training, self.allreduce_grads, self)
  end
  prepare_step(self)
  check_split_step(self, "Trainer:allreduce_grads")
  local chosen = {}
  for _, p in ipairs(self._params) do
    chosen[#chosen + 1] = p.grad_req ~= "null" and p or nil
  end
  sum_gradients(self, get_lists(self, chosen))
end


local UPDATE = args.form("Trainer:update", { { "batch_size", "number" },
  { "ignore_stale_grad", "boolean", false } })

--- Updates the parameters with gradients that `allreduce_grads` has summed. Errors are those of
-- `step`, and E(`state`) if the store updates.
-- @number batch_size as for `step`
-- @tparam[opt] table options ignore_stale_grad = false, as for `step`
function Trainer:update(...)
  local a = UPDATE(...)
  check_batch(a, "Trainer:update")
  if recording.on then
    return modes.run(false, recording.training, self.update, self, a)
  end
  prepare_step(self)
  check_split_step(self, "Trainer:update")
  local chosen = list_fresh(self, a.ignore_stale_grad, "Trainer:update")
  local u, kv = get_lists(self, chosen), self._kv
  u.kvstore = nil
  update_finite(self, u, a.batch_size)
  u.kvstore = kv
  clear_fresh(chosen)
end


-- States ------------------------------------------------------------------------------------------

-- Returns the updater with the optimizer's states; raises E(unsupported) if a store does not expose
-- them.
local function find_updater(self, func)
  local updater = self._on_store and self._kv._updater or self._updater
  if not Class.is_a(updater, optimizers.Updater) then
    Error.raise{ code = "unsupported", func = func,
      message = "only the store has the optimizer's states; update_on_kvstore = false has \z
        the Trainer keep them" }
  end
  return updater
end


-- Returns the device_id of the context on which a parameter is updated: the store's, if it updates.
local function device_of(self, name, weight)
  local entry = self._on_store and self._kv._entries and self._kv._entries[name]
  return (entry and entry.stored or weight).context.device_id
end


-- Returns the parameters that may have states, in the form of optimizer/saved_states.lua, and the
-- parameter's name by key.
local function list_targets(self)
  local targets, names, n = {}, {}, #self._ctx
  for i, p in ipairs(self._params) do
    local data = p:_is_ready() and p:list_data()
    for d = 1, data and (self._on_store and 1 or n) or 0 do
      local key = self._on_store and p.name or (i - 1) * n + d - 1
      names[key] = p.name
      targets[#targets + 1] = { key = key, name = p.name, weight = data[d],
        device = device_of(self, p.name, data[d]), required = false }
    end
  end
  return targets, names
end


local SAVE = args.form("Trainer:save_states", { { "fname", "path" } })

--- Writes the optimizer to a file: states, counts of updates, rates, the schedule. E(`unsupported`)
-- if a store does not expose its states.
-- @string fname path
function Trainer:save_states(...)
  local a, func = SAVE(...), "Trainer:save_states"
  prepare_step(self)
  local _, names = list_targets(self)
  files.write(a.fname, find_updater(self, func):_get_states(true, names), func)
end


local LOAD = args.form("Trainer:load_states", { { "fname", "path" } })

--- Reads a file of `save_states`. Training then continues bit for bit, with the rates and the
-- schedule in the file. A file of another format is E(`format`), states of another optimizer or of
-- other parameters E(`state`); after an error nothing is changed. Parameters whose names differ
-- from the saved ones only in numbers, as automatic names do, are matched in order.
-- @string fname path
function Trainer:load_states(...)
  local a, func = LOAD(...), "Trainer:load_states"
  prepare_step(self)
  local updater, targets = find_updater(self, func), list_targets(self)
  files.parse(a.fname, func, function(bytes)
    return updater:_prepare_states(bytes,
      { func = func, targets = targets, keep_unknown = true, same_optimizer = true })
  end)()
  self._optimizer = updater.optimizer
  self._optimizer.rescale_grad = self._scale
  number_parameters(self)
end


return Trainer
