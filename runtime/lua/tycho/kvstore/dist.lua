--- The store of several processes: "dist_sync", "dist_device_sync".
--
-- Every rank keeps the stored arrays and makes the same updates; what is added over the ranks, in
-- their order, are the gradients, so the numbers are those of one process that has as many
-- contexts. Sums of many keys go as one message: the first when a megabyte has come together, the
-- next ones every 25 MB, each while backward makes the gradients of the next.
--
-- @module tycho.kvstore.dist

local comm = require "tycho.kvstore.comm"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local store = require "tycho.kvstore.local"

local dist = {}

local FIRST, BUCKET = 2 ^ 18, 25 * 2 ^ 18                -- elements of a message

--- The store. Fields: type, rank, num_workers.
-- @type DistStore
local DistStore = store.KVStore:extend("DistStore")
dist.DistStore = DistStore

local warned = false

--- @string name "dist_sync", "dist_device_sync" or "dist_async"
-- @tparam[opt] Group group the ranks; those that were started together otherwise
function DistStore:init_store(name, group)
  store.KVStore.init_store(self, name)
  self._group = group or comm.world()
  self._home = self._group.context
  self.rank, self.num_workers = self._group.rank, self._group.size
  if name:find("async", 1, true) and not warned then
    warned = true
    log:warning(("a store of type '%s' updates as 'dist_sync' does: all ranks \z
      in step"):format(name))
  end
end


--- Initial values are those of rank 0.
function DistStore:_add_key(key, x)
  local entry = store.KVStore._add_key(self, key, x)
  self._group:broadcast{ entry.stored }
  return entry
end


-- Sums of the devices -----------------------------------------------------------------------------

--- The sum over this rank's devices, in an array of the store's own.
function DistStore:_merge(entry, list)
  local merged = self:_sum(entry, list)
  if entry.compression and entry.compression.type == "2bit" then
    return store.compress(entry, 1, merged)
  end
  return merged
end


-- Sums of the ranks -------------------------------------------------------------------------------

local function send(self, bucket)
  local arrays = {}
  for i, group in ipairs(bucket) do
    local x = group.merged
    if x.context.device_type == "gpu" then
      group.merged = x:as_in_context(self._home)
    end
    arrays[i] = group.merged
  end
  local compression = bucket[1].entry.compression or {}
  self._group:sum(arrays, compression.type, compression.threshold)
  for _, group in ipairs(bucket) do
    self:_take(group[1], group.entry, group.merged)
  end
end


local function fits(bucket, group)
  local first = bucket[1]
  return first.merged._dtype == group.merged._dtype
    and first.entry.compression == group.entry.compression
end


--- The last keys come first: backward made their gradients first.
function DistStore:_push_all(groups)
  local bucket, elements, limit = {}, 0, FIRST
  for i = #groups, 1, -1 do
    local group = groups[i]
    group.merged = self:_merge(group.entry, group[2])
    if bucket[1] and (elements >= limit or not fits(bucket, group)) then
      send(self, bucket)
      bucket, elements, limit = {}, 0, BUCKET
    end
    bucket[#bucket + 1], elements = group, elements + group.merged.size
  end
  send(self, bucket)
end


-- Other -------------------------------------------------------------------------------------------

local SHORTER = { ["2bit"] = true, float16 = true, bfloat16 = true }

--- Sends gradients of keys that are initialised from now on as a shorter type.
-- @tparam table params type = "2bit" (threshold = 0.5; what is too small waits for the next time),
--   "float16" or "bfloat16"
function DistStore:set_gradient_compression(params)
  local kind = type(params) == "table" and params.type
  if kind == "2bit" or not SHORTER[kind] then
    store.KVStore.set_gradient_compression(self, params)
  else
    self._compression = { type = kind }
  end
end


--- Waits for all workers.
function DistStore:barrier()
  self._group:barrier()
end

DistStore._barrier = DistStore.barrier


--- Raises where ranks do not run the same: E(value) with the first line that differs.
-- @string what in words
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
