--- Use of a key-value store in training: chooses it, passes parameters to it, updates through it.
--
-- @module tycho.module.stores

local pairs = require("tycho.core.iterate").pairs
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local value = require("tycho.core.values").value

local stores = {}

local BIG = 16 * 1024 * 1024             -- elements: a "local" store does not update larger ones


local function updates_on_store(kv)
  local setting = os.getenv("TYCHO_UPDATE_ON_KVSTORE")
  return tonumber(setting or 1) ~= 0 and kv:is_capable("optimizer")
end


local function has_big(arg_params)
  for _, x in pairs(arg_params) do
    if x.size > BIG then
      return true
    end
  end
  return false
end


--- Returns the store for a training, and whether it updates the parameters. There is no store for
-- one device, unless the name contains "dist" or the store is given as an object.
-- @param kvstore name, store, or `ty.null`
-- @int num_device number of devices
-- @tparam table arg_params by name
-- @return store or nil
-- @treturn bool update_on_kvstore
function stores.create(kvstore, num_device, arg_params)
  local kvstores = require "tycho.kvstore"
  if value(kvstore) == nil then
    return nil, false
  elseif type(kvstore) == "string" then
    if num_device == 1 and not kvstore:find("dist", 1, true) then
      return nil, false
    end
    local kv = kvstores.create(kvstore)
    return kv, updates_on_store(kv) and not (kvstore == "local" and has_big(arg_params))
  elseif Class.is_a(kvstore, kvstores.KVStoreBase) then
    return kvstore, updates_on_store(kvstore)
  end
  Error.raise{ code = "type", func = "model._create_kvstore", argument = "kvstore",
    expected = "a name or a store", got = Error.kind(kvstore), message = "bad 'kvstore'" }
end


--- Passes parameters to a store.
-- @param kvstore
-- @tparam table param_arrays for each parameter a list over devices
-- @tparam table arg_params host arrays by name
-- @tparam {string,...} param_names keys
-- @bool update_on_kvstore whether the devices' arrays receive the store's values
-- @bool[opt] in_place whether sums over ranks replace the gradients
function stores.initialize(kvstore, param_arrays, arg_params, param_names, update_on_kvstore,
    in_place)
  for k, name in ipairs(param_names) do
    if update_on_kvstore then
      kvstore:broadcast(name, arg_params[name], param_arrays[k], { priority = -(k - 1) })
      if kvstore._adopt and #param_arrays[k] == 1 then
        kvstore:_adopt(name, param_arrays[k][1])
      end
    else
      kvstore:init(name, arg_params[name])
    end
    if kvstore._sum_in_place then
      kvstore:_sum_in_place(name, in_place)
    end
  end
end


-- Returns the gradients and weights of each device; the lists are stored in u and used again.
local function lists_of_devices(u)
  if not u.devices then
    u.devices = {}
    for d = 1, u.weights[1] and #u.weights[1] or 0 do
      local list = { indices = {}, grads = {}, weights = {} }
      for k in ipairs(u.names) do
        list.grads[k], list.weights[k] = u.grads[k][d], u.weights[k][d]
      end
      u.devices[d] = list
    end
  end
  return u.devices
end


-- Updates each device's parameters with one call of the updater.
local function update_devices(u)
  local devices = lists_of_devices(u)
  for d, list in ipairs(devices) do
    for k, name in ipairs(u.names) do
      list.indices[k] = u.index[name] * #devices + d - 1
    end
    u.updater(list.indices, list.grads, list.weights)
  end
end


--- Makes executors compute gradients in the order in which a store of several ranks sends them.
-- @tparam table u as for `update`; the store's buckets are stored in it
-- @param kvstore
-- @tparam {Executor,...} execs
function stores.cut_backward(u, kvstore, execs)
  if u.cut_for ~= kvstore then
    u.cut_for, u.buckets = kvstore, kvstore:_buckets(u.names, u.grads)
  end
  for _, exe in ipairs(u.buckets and execs or {}) do
    exe:_cut_backward(u.buckets)
  end
end


--- Updates parameters through a store or an updater.
-- @tparam table u names, grads and weights (for each name a list over devices), index (number of
--   each name, from 0), kvstore, update_on_kvstore, updater. Pass the same table in each step:
--   lists are stored in it
function stores.update(u)
  local out = u.update_on_kvstore and u.weights or u.grads
  if u.kvstore and u.kvstore._buckets then               -- several ranks: few messages
    u.kvstore:pushpull(u.names, u.grads, { out = out })
  elseif u.kvstore then
    for k, name in ipairs(u.names) do
      u.kvstore:pushpull(name, u.grads[k], { out = out[k], priority = -(k - 1) })
    end
  end
  if not u.update_on_kvstore then
    update_devices(u)
  end
end


return stores
