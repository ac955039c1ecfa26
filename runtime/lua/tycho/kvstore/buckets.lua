--- Buckets of keys: the sums of a bucket are one message.
--
-- The last keys come first, as backward makes their gradients first. The first and the last bucket
-- have a megabyte, the others 25 MB. Backward is cut where the gradients of a bucket are complete,
-- so that its message is sent while the next ones are made.
--
-- @module tycho.kvstore.buckets

local store = require "tycho.kvstore.local"
local tables = require "tycho.core.tables"

local buckets = {}

local FIRST, BUCKET = 2 ^ 18, 25 * 2 ^ 18                -- elements of a message


--- Returns the devices of a list's arrays as text, which is a key of groups.
function buckets.devices_of(list)
  local names = {}
  for i, x in ipairs(list) do
    names[i] = tostring(x.context)
  end
  return table.concat(names, ", ")
end


local function fits(bucket, group)
  local a, b = bucket[1], group
  return a[2][1]._dtype == b[2][1]._dtype and a.entry.compression == b.entry.compression
    and buckets.devices_of(a[2]) == buckets.devices_of(b[2])
end


-- Cuts the last keys off the last bucket, up to one megabyte or at least one key, as a bucket of
-- their own. These belong to the front layers: backward makes their gradients last, and forward
-- reads their weights first, so they are sent without waiting for the rest of the bucket.
local function part_front(list)
  local bucket = table.remove(list)
  local at, elements = #bucket, bucket[#bucket][2][1].size
  while at > 1 and elements + bucket[at - 1][2][1].size <= FIRST do
    at = at - 1
    elements = elements + bucket[at][2][1].size
  end
  list[#list + 1] = at > 1 and tables.part(bucket, 1, at - 1) or nil
  list[#list + 1] = tables.part(bucket, at, #bucket)
end


--- Returns the buckets of arrays that are pushed at once.
-- @tparam table groups a list of {key, list of arrays, entry = its entry}, in the order of keys
-- @treturn table a list of lists of groups, of one dtype and the same devices each, and with the
--   number of the front one, `first`, from 0
function buckets.of(groups)
  local list, bucket, elements = {}, {}, 0
  for i = #groups, 1, -1 do
    local group = groups[i]
    local limit = #list <= 1 and FIRST or BUCKET
    if not bucket[1] or elements >= limit or not fits(bucket, group) then
      bucket, elements = {}, 0
      list[#list + 1] = bucket
    end
    bucket[#bucket + 1], elements = group, elements + group[2][1].size
  end
  if bucket[1] then
    part_front(list)
  end
  local first = #groups
  for _, message in ipairs(list) do
    first = first - #message
    message.first = first
  end
  return list
end


--- Returns the bucket of each key if these keys are pushed together.
-- @param kv the store
-- @tparam {string,...} keys
-- @tparam table values per key a list over devices
-- @tparam function travels(group) whether its arrays are sent as backward made them
-- @treturn ?table number of the bucket from 0, by key; nil if `travels` is false for some key
function buckets.by_key(kv, keys, values, travels)
  local groups, bucket_of = {}, {}
  for i, key in ipairs(keys) do
    groups[i] = { key, values[i], entry = kv._entries[key] }
    if not travels(groups[i]) then
      return nil
    end
  end
  for b, bucket in ipairs(buckets.of(store.sort(groups))) do
    for _, group in ipairs(bucket) do
      bucket_of[group[1]] = b - 1
    end
  end
  return bucket_of
end


return buckets
