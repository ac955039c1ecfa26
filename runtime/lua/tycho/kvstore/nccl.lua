--- The store "nccl": like "device", with sums over GPUs and copies to them by NCCL.
--
-- The arrays that are pushed for a key are on different GPUs. Keys that are pushed together are
-- sent as few messages (buckets.lua), after which every GPU has the sums. An optimizer's update
-- runs on the least used GPU, and a pull broadcasts the result. Sums are added in NCCL's order: for
-- two GPUs they have the bits of "device", for more GPUs they may differ in the last bits.
--
-- @module tycho.kvstore.nccl

local buckets = require "tycho.kvstore.buckets"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local comm = require "tycho.kvstore.comm"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local store = require "tycho.kvstore.local"

local nccl = {}


-- Groups of GPUs ----------------------------------------------------------------------------------

--- Returns whether all arrays of a list are on GPUs.
function nccl.is_on_gpus(list)
  for _, x in ipairs(list) do
    if x.context.device_type ~= "gpu" then
      return false
    end
  end
  return true
end


--- Returns the group of the GPUs of a list's arrays, made once.
-- @tparam table groups existing groups, by name
-- @tparam {NDArray,...} list
-- @tparam[opt] Group ranks the processes whose GPUs belong to it
function nccl.find_group(groups, list, ranks)
  local name = buckets.devices_of(list)
  if not groups[name] then
    local contexts = {}
    for i, x in ipairs(list) do
      contexts[i] = x.context
    end
    groups[name] = comm.devices(contexts, ranks)
  end
  return groups[name]
end


--- Returns the store's arrays for the sums of a key, one like each array of a list, on its GPU.
function nccl.buffers(entry, list)
  local kept = entry.sums
  if not kept or kept.name ~= buckets.devices_of(list) or kept[1]._dtype ~= list[1]._dtype then
    kept = { name = buckets.devices_of(list) }
    for i, x in ipairs(list) do
      kept[i] = class.keep(class.new(x._shape, x._dtype, x._device, "KVStore:push"))
    end
    entry.sums = kept
  end
  return kept
end


--- Sums many keys as one message.
-- @tparam Group group
-- @tparam table bucket a list of {key, list of arrays, entry = its entry}, of one dtype
function nccl.sum(group, bucket)
  local own, sums = {}, {}
  for _, pushed in ipairs(bucket) do
    for i, sum in ipairs(nccl.buffers(pushed.entry, pushed[2])) do
      own[#own + 1], sums[#sums + 1] = pushed[2][i], sum
    end
  end
  group:sum(own, { out = sums })
end


--- Returns the sum on the GPU that updates the key; chooses a GPU again if the gradients are on
-- others than before.
function nccl.chosen(kv, entry, list)
  for turn = 1, 2 do
    entry.device = turn == 1 and entry.device or kv:_choose(list, true)
    for _, sum in ipairs(entry.sums) do
      if sum.context == entry.device then
        return sum
      end
    end                                                  -- the GPUs differ from those before
  end
end


-- The store ---------------------------------------------------------------------------------------

--- The store. Fields: type, rank (0), num_workers (1).
-- @type NcclStore
local NcclStore = store.KVStore:extend("NcclStore")
nccl.NcclStore = NcclStore

--- Initializes the store; E(device) says what is missing.
function NcclStore:init_store(name)
  comm.check_devices()
  if context.num_gpus() == 0 then
    Error.raise{ code = "device", func = "kv.create", argument = "name", got = name,
      message = "a store of type 'nccl' adds over GPUs, and there is none (tycho --platform says \z
        why); 'device' and 'local' add on CPUs too" }
  end
  store.KVStore.init_store(self, name)
  self._on_devices, self._groups = true, {}
end


--- Raises E(unsupported): a store of type 'nccl' does not compress.
function NcclStore.set_gradient_compression()
  Error.raise{ code = "unsupported", func = "KVStore:set_gradient_compression",
    message = "a store of type 'nccl' has no compression; 'device' has" }
end


local function check_contexts(groups)
  for _, group in ipairs(groups) do
    for _, x in ipairs(group[2]) do
      if x.context.device_type ~= "gpu" then
        Error.raise{ code = "device", func = "KVStore:push", argument = tostring(group[1]),
          expected = "arrays on GPUs", got = tostring(x.context),
          message = "a store of type 'nccl' adds on GPUs; 'device' adds anywhere" }
      end
    end
  end
end


local function has_several(group)
  return #group[2] > 1
end


--- Returns the sum on the GPU that updates the key; a single array itself.
function NcclStore:_merge(entry, list)
  return #list == 1 and list[1] or nccl.chosen(self, entry, list)
end


--- Sums the pushed gradients over the GPUs and updates; all sums are queued before the first
-- update.
function NcclStore:_push_all(groups)
  check_contexts(groups)
  local added = {}
  for _, group in ipairs(groups) do
    added[#added + 1] = has_several(group) and group or nil
  end
  for _, bucket in ipairs(buckets.of(added)) do
    nccl.sum(nccl.find_group(self._groups, bucket[1][2]), bucket)
  end
  store.KVStore._push_all(self, groups)
end


-- Returns sum i of a key, on the GPU of x, if the stored value is one of the key's sums, as it is
-- without an updater; else nil.
local function has_own(entry, i, x)
  local sum = entry.sums and entry.sums[i]
  for _, other in ipairs(entry.sums or {}) do
    if rawequal(entry.stored, other) then
      return sum and sum.context == x.context and sum or nil
    end
  end
end


-- Returns the arrays of a broadcast, with the stored one at the position of its GPU, and that
-- position; nil: use copies instead.
local function plan_broadcast(entry, list)
  local from, root = entry.stored, nil
  local arrays, names = {}, {}
  for i, x in ipairs(list) do
    arrays[i] = x
    if names[tostring(x.context)] or x.context.device_type ~= "gpu" or x._dtype ~= from._dtype then
      return nil
    end
    names[tostring(x.context)] = true
    if x.context == from.context then
      arrays[i], root = from, i
    end
  end
  return root and #list > 1 and arrays or nil, root
end


--- Copies a stored value to the arrays of all GPUs of a key, as one broadcast if their layout
-- allows it.
function NcclStore:_give(group, func)
  local entry, list, key = group.entry, group[2], tostring(group[1])
  if has_own(entry, 1, list[1]) then
    for i, x in ipairs(list) do
      call.copy(x, has_own(entry, i, x) or entry.stored, func, key)
    end
    return
  end
  local arrays, root = plan_broadcast(entry, list)
  if not arrays then
    return store.KVStore._give(self, group, func)
  end
  nccl.find_group(self._groups, arrays):broadcast(arrays, root - 1)
  call.copy(list[root], entry.stored, func, key)
end


--- Returns the bucket of each key if these keys are pushed together; nil: no sum is needed (for
-- modules).
function NcclStore:_buckets(keys, values)
  return buckets.by_key(self, keys, values, has_several)
end


return nccl
