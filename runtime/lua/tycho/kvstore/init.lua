--- Values that devices share: `ty.kv`.
--
-- A store keeps an array per key. Pushed arrays of a key are summed over devices. The updater
-- changes the stored array with the sum; without an updater the sum replaces the stored array.
-- Pulled arrays are copies of the stored one. All work is queued.
--
--     local kv = ty.kv.create("device")
--     kv:init("w", weight)
--     kv:set_optimizer(ty.optimizer.SGD{ learning_rate = 0.1 })
--     kv:push("w", { grad_of_gpu0, grad_of_gpu1 })
--     kv:pull("w", { out = { weight_of_gpu0, weight_of_gpu1 } })
--
-- "local" sums on the CPU, "device" (any name with that word) on the devices, "nccl" on GPUs by
-- NCCL; other plain names are like "local".
--
-- @module tycho.kvstore

require "tycho.core.luajit"
local args = require "tycho.core.args"
local comm = require "tycho.kvstore.comm"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"
local store = require "tycho.kvstore.local"

local kv = { KVStoreBase = store.KVStoreBase, KVStore = store.KVStore }

local stores = {}                                        -- users' classes by name


--- Registers a user's class for `create`.
-- @tparam table kind a class that extends KVStoreBase
-- @string[opt] name in any case; by default the class's name
-- @treturn table the class
function kv.register(kind, name)
  stores[namespace.class_key(kind, name, kv.KVStoreBase, "kv.register")] = kind
  return kind
end


-- Words of names whose stores need other processes or libraries.
local ELSEWHERE = { "horovod", "byteps" }

local CREATE = args.form("kv.create", { { "name", "text", "local" } })

--- Returns a store by name.
-- @string[opt="local"] name in any case: "local", "device", "nccl", "dist_sync",
--   "dist_device_sync", "dist_async", or a registered one; names of other libraries are
--   E(unsupported). "nccl" without NCCL is E(device), which says what is missing
function kv.create(...)
  local name = CREATE(...).name:lower()
  if stores[name] then
    return stores[name]()
  end
  if name:find("dist", 1, true) then
    if not comm.is_launched() then
      Error.raise{ code = "unsupported", func = "kv.create", argument = name,
        message = ("a store of type '%s' needs a launcher: mpirun -n 2 tycho script.lua")
          :format(name) }
    end
    return require("tycho.kvstore.dist").DistStore(name)
  end
  if name == "nccl" then
    return require("tycho.kvstore.nccl").NcclStore(name)
  end
  for _, word in ipairs(ELSEWHERE) do
    if name:find(word, 1, true) then
      Error.raise{ code = "unsupported", func = "kv.create", argument = name,
        message = ("a store of type '%s' is not in this build"):format(name) }
    end
  end
  if not (name:find("local", 1, true) or name:find("device", 1, true)) then
    log:warning(("kv.create: '%s' names no kind of store and is like 'local'; there are "
      .. "local, device, nccl, dist_sync"):format(name))
  end
  return store.KVStore(name)
end


return namespace.close(methods.guard_all(kv), "kv", "function")
