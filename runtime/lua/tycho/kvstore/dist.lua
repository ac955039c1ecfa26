--- The store of several processes: "dist_sync", "dist_device_sync".
--
-- Every rank keeps the stored arrays and makes the same updates. The gradients are added over the
-- ranks, in their order, so the results are those of one process with the same number of contexts.
-- Sums of many keys are one message (buckets.lua), which is sent while backward makes the
-- gradients of the next. A single device's gradients are read in place, without a task between
-- backward and the message.
--
-- @module tycho.kvstore.dist

local buckets = require "tycho.kvstore.buckets"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local comm = require "tycho.kvstore.comm"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local nccl = require "tycho.kvstore.nccl"
local optimizer = require "tycho.optimizer"
local store = require "tycho.kvstore.local"

local dist = {}

--- The store. Fields: type, rank, num_workers.
-- @type DistStore
local DistStore = store.KVStore:extend("DistStore")
dist.DistStore = DistStore

local warned = false

--- @string name "dist_sync", "dist_device_sync" or "dist_async"
-- @tparam[opt] Group group the ranks; by default all that were started together
function DistStore:init_store(name, group)
  store.KVStore.init_store(self, name)
  self._group, self._has_processes, self._groups = group or comm.world(), group == nil, {}
  self._home = self._group.context
  self.rank, self.num_workers = self._group.rank, self._group.size
  if name:find("async", 1, true) and not warned then
    warned = true
    log:warning(("a store of type '%s' updates as 'dist_sync' does: all ranks \z
      in step"):format(name))
  end
end


--- Adds a key, with the initial value of rank 0 on all ranks.
function DistStore:_add_key(key, x)
  local entry = store.KVStore._add_key(self, key, x)
  self._group:broadcast{ entry.stored }
  return entry
end


-- Sums of the devices -----------------------------------------------------------------------------

local function is_2bit(entry)
  return entry.compression ~= nil and entry.compression.type == "2bit"
end


-- Returns this rank's contribution, and the store's array for the sum over the ranks.
local function merge(self, entry, list)
  if is_2bit(entry) then
    local sent = store.compress(entry, 1, self:_sum(entry, list))
    return sent, sent
  elseif #list == 1 and list[1].context == self._home then
    return list[1], entry.in_place and list[1] or self:_buffer(entry, list[1])
  end
  local sum = self:_sum(entry, list)
  if sum.context.device_type == "gpu" then
    sum = sum:as_in_context(self._home)
  end
  return sum, sum
end


-- Sums of the ranks -------------------------------------------------------------------------------

-- Returns whether all ranks have NCCL; asked when arrays on GPUs are first pushed. Otherwise MPI
-- transfers them through host memory.
local function have_nccl(self)
  if self._by_nccl == nil then
    local good, what = pcall(comm.check_devices)
    self._by_nccl = true
    for r, text in ipairs(self._group:gather(good and "yes" or tostring(what))) do
      if text ~= "yes" and self._by_nccl then
        self._by_nccl = false
        log:warning(("sums over GPUs go through the hosts' memory: rank %d: %s")
          :format(r - 1, text))
      end
    end
  end
  return self._by_nccl
end


local function goes_by_nccl(self, group)
  return self._has_processes and not group.entry.compression and nccl.is_on_gpus(group[2])
    and have_nccl(self)
end


local function send(self, bucket, priority)
  if goes_by_nccl(self, bucket[1]) then
    local sums = {}
    nccl.sum(nccl.find_group(self._groups, bucket[1][2], self._group), bucket)
    for i, group in ipairs(bucket) do
      sums[i] = nccl.chosen(self, group.entry, group[2])
    end
    return sums
  end
  local own, sums = {}, {}
  for i, group in ipairs(bucket) do
    own[i], sums[i] = merge(self, group.entry, group[2])
  end
  local compression = bucket[1].entry.compression or {}
  self._group:sum(own, { out = sums, wire = compression.type, threshold = compression.threshold,
    priority = priority })
  return sums
end


-- Updates the parameters of a bucket: in one call if the updater is Tycho's, else key by key.
local function take(self, bucket, sums)
  if not Class.is_a(self._updater, optimizer.Updater) then
    for i, group in ipairs(bucket) do
      self:_take(group[1], group.entry, sums[i])
    end
    return
  end
  local keys, near, stored = {}, {}, {}
  for i, group in ipairs(bucket) do
    store.follow(group.entry, sums[i])
    local x = group.entry.stored
    keys[i], near[i], stored[i] = group[1], sums[i]:as_in_context(x.context), x
  end
  self._updater(keys, near, stored)
end


--- Sums the pushed gradients over the ranks and updates. All messages are queued before the first
-- update, so that the next one travels during it; of waiting messages those of front layers go
-- first, since forward reads their weights first.
function DistStore:_push_all(groups, priority)
  local list, sums = buckets.of(groups), {}
  for i, bucket in ipairs(list) do
    sums[i] = send(self, bucket, priority - bucket.first)
  end
  for i, bucket in ipairs(list) do
    take(self, bucket, sums[i])
  end
end


--- Returns the bucket of each key if these keys are pushed together; nil: the messages wait for
-- all of backward anyway, since devices' gradients are added, or compressed, after it (for
-- modules).
-- @tparam {string,...} keys
-- @tparam table values per key a list over devices
-- @treturn ?table number of the bucket from 0, by key
function DistStore:_buckets(keys, values)
  return buckets.by_key(self, keys, values, function(group)
    return goes_by_nccl(self, group)
      or #group[2] == 1 and group[2][1].context == self._home and not is_2bit(group.entry)
  end)
end


--- Uses a device's array as the stored one: updates change it, and a pull copies nothing (for
-- modules).
function DistStore:_adopt(key, x)
  local entry = self._entries[key]
  if x.context == self._home and x._dtype == entry.stored._dtype then
    entry.stored = class.keep(x)
  end
end


--- Sets whether a key's gradient may be overwritten by the sum (for modules).
function DistStore:_sum_in_place(key, yes)
  self._entries[key].in_place = yes
end


-- Other -------------------------------------------------------------------------------------------

local SHORTER = { ["2bit"] = true, float16 = true, bfloat16 = true }

--- Sends gradients as a shorter type from now on.
-- @tparam table params type = "2bit" (threshold = 0.5; the rest is added to the next gradient),
--   "float16" or "bfloat16"
function DistStore:set_gradient_compression(params)
  local kind = type(params) == "table" and params.type
  if kind == "2bit" or not SHORTER[kind] then
    store.KVStore.set_gradient_compression(self, params)
  else
    self:_compress{ type = kind }
  end
end


--- Waits for all workers.
function DistStore:barrier()
  self._group:barrier()
end

DistStore._barrier = DistStore.barrier


--- Raises E(value) with the first differing line if the ranks' texts differ.
-- @string what name of the compared text in the error
-- @string text of this rank
function DistStore:check_same(what, text)
  local texts = self._group:gather(text)
  for r = 2, #texts do
    if texts[r] ~= texts[1] then
      local a, b = texts[1]:gmatch("[^\n]*"), texts[r]:gmatch("[^\n]*")
      local mine, other
      repeat
        mine, other = a(), b()
      until mine ~= other
      Error.raise{ code = "value", func = "KVStore:check_same", argument = what,
        expected = ("on rank 0: %s"):format(mine or "nothing"),
        got = ("on rank %d: %s"):format(r - 1, other or "nothing"),
        message = ("ranks do not run the same %s"):format(what) }
    end
  end
end


function DistStore:__tostring()
  return ("<KVStore %s, rank %d of %d, %d keys>"):format(self.type, self.rank, self.num_workers,
    self._count)
end


return dist
