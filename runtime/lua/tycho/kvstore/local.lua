--- The store of one process; see `kvstore/init.lua`.
--
-- It keeps per key the stored array, its position in the order of keys, the buffer for sums
-- (on the device that was chosen when several arrays were first pushed), and with compression
-- the residual of each device's gradients. A single pushed array is not copied:
-- without an updater it becomes the stored one, so `pull` sees later writes to it; the
-- sum of several is the buffer itself.
--
-- @module tycho.kvstore.local

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local optimizer = require "tycho.optimizer"
local values = require "tycho.core.values"

local store = {}

local is_array, is_plain = class.is_array, values.is_plain


-- The interface -----------------------------------------------------------------------------------

--- Base of stores; a user's class writes `broadcast`, `pushpull`, and
-- `is_capable`, and sets `type`.
-- @type KVStoreBase
local KVStoreBase = Class:extend("KVStoreBase")
store.KVStoreBase = KVStoreBase

KVStoreBase.type, KVStoreBase.rank, KVStoreBase.num_workers = "base", 0, 1
KVStoreBase.OPTIMIZER = "optimizer"

for _, name in ipairs{ "broadcast", "pushpull", "is_capable", "push", "pull", "set_optimizer",
                       "save_optimizer_states", "load_optimizer_states" } do
  KVStoreBase[name] = function(self)
    Error.raise{ code = "unsupported", func = self.class_name .. ":" .. name,
      message = "the store has no such method" }
  end
end


--- The store. Fields: type, rank (0), num_workers (1).
-- @type KVStore
local KVStore = KVStoreBase:extend("KVStore")
store.KVStore = KVStore

--- Initializes the fields of a new store (not for users).
-- @string name type, in lower case
function KVStore:init_store(name)
  if type(name) ~= "string" then
    Error.raise{ code = "type", func = "kv.KVStore", argument = "name", expected = "text",
      got = Error.kind(name), message = "bad 'name'; kv.create makes stores" }
  end
  self.type, self._on_devices = name, name:find("device", 1, true) ~= nil
  self._entries, self._unmet, self._count, self._loads = {}, {}, 0, {}
  self._home = context.cpu(0)                            -- where values are kept
end


-- Keys and values ---------------------------------------------------------------------------------

local function check_key(self, key, func)
  local kind = type(key)
  if kind ~= "number" and kind ~= "string" or self._key_kind and kind ~= self._key_kind then
    Error.raise{ code = "type", func = func, argument = "key", got = Error.kind(key),
      expected = self._key_kind and "a " .. self._key_kind .. ", as the store's other keys"
        or "a number or text", message = "Mixed key types are not allowed" }
  end
  self._key_kind = kind
end


local function find_entry(self, key, func)
  local entry = self._entries[key]
  if not entry then
    self._unmet[key] = true
    Error.raise{ code = "name", func = func, argument = tostring(key),
      message = ("key '%s' has not been initialized; call init first"):format(tostring(key)) }
  end
  return entry
end


local function check_array(x, key, func, argument)
  if not is_array(x) then
    Error.raise{ code = "type", func = func, argument = argument,
      expected = "an NDArray or a list of them",
      got = Error.kind(x), message = ("bad '%s' of key '%s'"):format(argument, tostring(key)) }
  end
  return x
end


local function append_values(list, key, value, func, argument)
  if is_plain(value) and #value == 0 then
    check_array(value, key, func, argument)
  end
  for _, x in ipairs(is_plain(value) and value or { value }) do
    list[#list + 1] = check_array(x, key, func, argument)
  end
end


-- Returns keys and values of a call as a list of {key, list of arrays}, each key once, in the order
-- in which they came.
local function pair_up(self, keys, given, func, argument)
  local listed, groups, by_key = is_plain(keys), {}, {}
  if listed and not (is_plain(given) and #given == #keys) then
    Error.raise{ code = "value", func = func, argument = argument, expected = #keys .. " entries",
      got = is_plain(given) and #given or Error.kind(given),
      message = "as many values as keys are needed" }
  end
  for i, key in ipairs(listed and keys or { keys }) do
    check_key(self, key, func)
    local group = by_key[key]
    if not group then
      group = { key, {} }
      by_key[key], groups[#groups + 1] = group, group
    end
    local value = given
    if listed then
      value = given[i]
    end
    append_values(group[2], key, value, func, argument)
  end
  return groups
end


--- Sorts keys: numbers by size, texts in the order in which they were initialised.
function store.sort(groups)
  table.sort(groups, function(a, b) return a.entry.order < b.entry.order end)
  return groups
end


local function sort_groups(self, groups, func)
  for _, group in ipairs(groups) do
    group.entry = find_entry(self, group[1], func)
  end
  return store.sort(groups)
end


-- Initial values ----------------------------------------------------------------------------------

local INIT = args.form("KVStore:init", { { "key", "any" }, { "value", "any" } })

--- Adds a key with a copy of its first value, and returns its entry; raises E(name) for a key that
-- exists or that was used before it was initialised.
function KVStore:_add_key(key, x)
  if self._entries[key] or self._unmet[key] then
    Error.raise{ code = "name", func = "KVStore:init", argument = tostring(key),
      message = ("duplicate init of key '%s'%s"):format(tostring(key), self._entries[key] and ""
        or "; it was asked for before it was initialised") }
  end
  self._count = self._count + 1
  local stored = class.keep(class.new(x._shape, x._dtype, self._home._device, "KVStore:init"))
  class.make_lasting(stored)
  call.copy(stored, x, "KVStore:init")
  local entry = { stored = stored, order = type(key) == "number" and key or self._count,
    compression = self._compression, residuals = {} }
  self._entries[key] = entry
  return entry
end


--- Initializes keys with the values that they begin with.
function KVStore:init(...)
  if not Class.is_a(self, KVStore) then
    Error.raise{ code = "type", func = "KVStore:init", argument = "self", expected = "a KVStore",
      got = Error.kind(self), message = "methods take a colon: x:init(...), not x.init(...)" }
  end
  if not rawget(self, "_entries") then
    return self:init_store(...)
  end
  local a = INIT(...)
  for _, group in ipairs(pair_up(self, a.key, a.value, "KVStore:init", "value")) do
    self:_add_key(group[1], group[2][1])
  end
end


-- Sums --------------------------------------------------------------------------------------------

--- Returns the device for sums of a key: the CPU, or, if the store or `on_devices` says so, the
-- least used one of the pushed arrays' devices.
function KVStore:_choose(list, on_devices)
  if not (on_devices or self._on_devices) then
    return self._home
  end
  local best, loads = list[1].context, self._loads
  for _, x in ipairs(list) do
    best = (loads[x.context] or 0) < (loads[best] or 0) and x.context or best
  end
  loads[best] = (loads[best] or 0) + list[1].size
  return best
end


-- Returns the 2-bit compression of a device's gradient: +threshold, -threshold or 0 for each
-- element of gradient plus residual; the difference is the new residual.
function store.compress(entry, i, x)
  local threshold = entry.compression.threshold
  if x.dtype ~= "float32" then
    Error.raise{ code = "dtype", func = "KVStore:push", expected = "float32", got = x.dtype,
      message = "gradient compression is for float32" }
  end
  local rest = entry.residuals[i]
  rest = rest and rest:add_(x) or class.keep(x:copy())
  local sent = (rest:ge(threshold) - rest:le(-threshold)):mul_(threshold)
  entry.residuals[i] = rest:sub_(sent)
  return sent
end


local function check_shapes(key, list, stored)
  for _, x in ipairs(list) do
    if Error.show(x._shape) ~= Error.show(stored._shape) then
      Error.raise{ code = "shape", func = "KVStore:push", argument = tostring(key),
        expected = stored.shape,
        got = x.shape, message = ("the value of key '%s' has another shape"):format(tostring(key)) }
    end
  end
end


--- Returns the store's own array for sums of a key.
function KVStore._buffer(_, entry, like)
  if not (entry.buffer and entry.buffer._dtype == like._dtype) then
    entry.buffer = class.keep(class.new(like._shape, like._dtype, like._device, "KVStore:push"))
  end
  return entry.buffer
end


--- Returns the sum of a key's arrays, in the store's buffer.
function KVStore:_sum(entry, list)
  entry.device = entry.device or self:_choose(list)
  local near = {}
  for i, x in ipairs(list) do
    near[i] = x:as_in_context(entry.device)
  end
  local buffer = self:_buffer(entry, near[1])
  if #near == 1 then
    return call.copy(buffer, near[1], "KVStore:push")
  end
  return call.params("add_n", "KVStore:push", near, { "num_args", call.number(#near) }, buffer)
end


--- Returns the sum of the arrays that devices pushed for a key; a single one itself.
function KVStore:_merge(entry, list)
  if entry.compression then
    local sent = {}
    for i, x in ipairs(list) do
      sent[i] = store.compress(entry, i, x)
    end
    return self:_sum(entry, sent)
  end
  return #list == 1 and list[1] or self:_sum(entry, list)
end


-- Push and pull -----------------------------------------------------------------------------------

--- Moves the stored array to the GPU of the sum, if it is on the CPU.
function store.follow(entry, sum)
  if sum.context.device_type == "gpu" and entry.stored.context.device_type ~= "gpu" then
    entry.stored = class.keep(entry.stored:as_in_context(sum.context))
  end
end


--- Passes a sum to the updater, or stores it if there is none.
function KVStore:_take(key, entry, merged)
  if not self._updater then
    entry.stored = class.keep(merged)
    return
  end
  store.follow(entry, merged)
  self._updater(key, merged:as_in_context(entry.stored.context), entry.stored)
end


--- Sums and stores the pushed values of many keys: a list of {key, list of arrays, entry = its
-- entry}.
function KVStore:_push_all(groups)
  for _, group in ipairs(groups) do
    self:_take(group[1], group.entry, self:_merge(group.entry, group[2]))
  end
end


local function push(self, keys, given, priority, func)
  local groups = sort_groups(self, pair_up(self, keys, given, func, "value"), func)
  for _, group in ipairs(groups) do
    check_shapes(group[1], group[2], group.entry.stored)
  end
  self:_push_all(groups, priority)
end


--- Copies the stored value of {key, list of arrays, entry = its entry} to these.
function KVStore._give(_, group, func)
  for _, x in ipairs(group[2]) do
    if not rawequal(x, group.entry.stored) then
      call.copy(x, group.entry.stored, func, tostring(group[1]))
    end
  end
end


local function pull(self, keys, out, func)
  if out == nil then
    Error.raise{ code = "value", func = func, argument = "out", expected = "arrays",
      got = "nothing", message = "'out' is missing" }
  end
  for _, group in ipairs(sort_groups(self, pair_up(self, keys, out, func, "out"), func)) do
    self:_give(group, func)
  end
end


local PRIORITY = { "priority", "integer", 0 }
local PUSH = args.form("KVStore:push", { { "key", "any" }, { "value", "any" }, "*", PRIORITY })

--- Sums the values of each key and stores the sum, or passes it to the updater.
-- @param key number or text, or a list; all keys of a store are of one kind
-- @param value an array, a list (one per device, or one per key), or a list of lists
-- @tparam[opt] table options priority = 0: of waiting sums over ranks, the highest is sent first
function KVStore:push(...)
  local a = PUSH(...)
  push(self, a.key, a.value, a.priority, "KVStore:push")
end


local PULL = args.form("KVStore:pull",
  { { "key", "any" }, "*", { "out", "any?" }, PRIORITY, { "ignore_sparse", "boolean", true } })

--- Copies stored values into arrays.
-- @param key as for `push`
-- @tparam table options out: arrays to write, shaped as the values of `push`
function KVStore:pull(...)
  local a = PULL(...)
  pull(self, a.key, a.out, "KVStore:pull")
end


local PUSHPULL = args.form("KVStore:pushpull", {
  { "key", "any" }, { "value", "any" }, "*", { "out", "any?" }, PRIORITY,
})

--- Pushes as `push`, then pulls into `out`, or into the values themselves.
function KVStore:pushpull(...)
  local a = PUSHPULL(...)
  push(self, a.key, a.value, a.priority, "KVStore:pushpull")
  pull(self, a.key, a.out == nil and a.value or a.out, "KVStore:pushpull")
end


local BROADCAST = args.form("KVStore:broadcast", {
  { "key", "any" }, { "value", "any" }, { "out", "any" }, "*", PRIORITY,
})

--- Initializes as `init`, then pulls into `out`.
function KVStore:broadcast(...)
  local a = BROADCAST(...)
  self:init(a.key, a.value)
  pull(self, a.key, a.out, "KVStore:broadcast")
end


--- Raises E(unsupported): sparse storage is not part of Tycho.
function KVStore.row_sparse_pull()
  Error.raise{ code = "unsupported", func = "KVStore:row_sparse_pull",
    message = "sparse storage is not part of Tycho" }
end


-- Updates -----------------------------------------------------------------------------------------

local UPDATER = args.form("KVStore:_set_updater", { { "updater", "function" } })

--- Sets what a push does: `updater(key, sum, stored)` changes `stored` in place.
function KVStore:_set_updater(...)
  self._updater = UPDATER(...).updater
end


local OPTIMIZER = args.form("KVStore:set_optimizer", { { "optimizer", optimizer.Optimizer } })

--- Updates stored values with an optimizer; its indices are the keys.
function KVStore:set_optimizer(...)
  self._updater = optimizer.get_updater(OPTIMIZER(...).optimizer)
end


local COMPRESSION = args.form("KVStore:set_gradient_compression", {
  dict = true, { "compression_params", "dict" },
})

--- Lets gradients of all keys be sent in a shorter form.
function KVStore:_compress(compression)
  self._compression = compression
  for _, entry in pairs(self._entries) do
    entry.compression = compression
  end
end


--- Sends gradients as two bits per element from now on.
-- @tparam table params type = "2bit", threshold = 0.5
function KVStore:set_gradient_compression(...)
  local params = COMPRESSION(...).compression_params
  local threshold = params.threshold == nil and 0.5 or params.threshold
  if not (self._on_devices or self.type:find("dist", 1, true)) then
    Error.raise{ code = "unsupported", func = "KVStore:set_gradient_compression",
      message = ("a store of type '%s' has no compression; 'device' has"):format(self.type) }
  elseif params.type ~= "2bit" then
    Error.raise{ code = "value", func = "KVStore:set_gradient_compression", argument = "type",
      expected = "2bit", got = tostring(params.type), message = "unknown type of compression" }
  elseif type(threshold) ~= "number" or threshold <= 0 or threshold ~= threshold then
    Error.raise{ code = "value", func = "KVStore:set_gradient_compression", argument = "threshold",
      expected = "a number above 0", got = tostring(threshold), message = "bad 'threshold'" }
  end
  self:_compress{ type = "2bit", threshold = threshold }
end


local function updater_of(self, func)
  if not Class.is_a(self._updater, optimizer.Updater) then
    Error.raise{ code = "state", func = func,
      message = "there is no optimizer; call set_optimizer first" }
  end
  return self._updater
end


local SAVE = args.form("KVStore:save_optimizer_states",
  { { "fname", "path" }, { "dump_optimizer", "boolean", false } })

--- Writes the optimizer's states to a file.
-- @string fname
-- @bool[opt=false] dump_optimizer the optimizer too
function KVStore:save_optimizer_states(...)
  local a = SAVE(...)
  local updater = updater_of(self, "KVStore:save_optimizer_states")
  files.write(a.fname, updater:get_states(a.dump_optimizer), "KVStore:save_optimizer_states")
end


local LOAD = args.form("KVStore:load_optimizer_states", { { "fname", "path" } })

-- Returns the keys for which the store has states.
local function list_targets(self, o)
  local targets = {}
  for key, entry in pairs(self._entries) do
    local x = entry.stored
    targets[#targets + 1] = { key = key, weight = x, device = x.context.device_id,
      name = type(key) == "string" and key or o.idx2name[key], required = false }
  end
  return targets
end


--- Reads the optimizer's states from a file. Those of another optimizer or of other keys are
-- E(state).
function KVStore:load_optimizer_states(...)
  local func = "KVStore:load_optimizer_states"
  local updater = updater_of(self, func)
  local targets = list_targets(self, updater.optimizer)
  files.parse(LOAD(...).fname, func, function(bytes)
    return updater:_prepare_states(bytes,
      { func = func, targets = targets, keep_unknown = #targets == 0, same_optimizer = true })
  end)()
end


-- For modules (not for users) ---------------------------------------------------------------------

--- Replaces a stored value; unknown keys are ignored.
function KVStore:_put(key, x)
  local entry = self._entries[key]
  if entry and not rawequal(entry.stored, x) then
    call.copy(entry.stored, x, "KVStore:_put", tostring(key))
  end
end


--- Returns the residuals of compression: key -> a list of arrays, one for each device.
function KVStore:_residuals()
  local kept = {}
  for key, entry in pairs(self._entries) do
    kept[key] = next(entry.residuals) ~= nil and entry.residuals or nil
  end
  return kept
end


--- Restores residuals that `_residuals` returned.
function KVStore:_set_residuals(kept)
  for key, entry in pairs(self._entries) do
    entry.residuals = class.keep(kept[key] or {})
  end
end


-- Other -------------------------------------------------------------------------------------------

--- Returns whether the store has a capability: "optimizer"; other words are E(value).
function KVStore.is_capable(_, capability)
  if type(capability) ~= "string" or capability:lower() ~= KVStoreBase.OPTIMIZER then
    Error.raise{ code = "value", func = "KVStore:is_capable", argument = "capability",
      expected = "optimizer", got = tostring(capability), message = "unknown capability" }
  end
  return true
end


--- Does nothing: there is one worker.
function KVStore._barrier() end

--- Does nothing: there are no servers.
function KVStore._send_command_to_servers() end


function KVStore:__tostring()
  return ("<KVStore %s, %d keys>"):format(self.type, self._count)
end


return store
