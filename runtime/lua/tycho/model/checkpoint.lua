--- Checkpoints, the choice of a store, and what modules share when they update: `ty.model`.
--
--     ty.model.save_checkpoint("run/m", 3, net, arg_params, aux_params)  -- run/m-symbol.json,
--                                                                        run/m-0003.params
--     local net, arg_params, aux_params = ty.model.load_checkpoint("run/m", 3)
--
-- Files are written beside their place first and moved then, so a crash leaves the old ones.
--
-- @module tycho.model

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local module_params = require "tycho.model.param_check"
local nd = require "tycho.ndarray"
local symbol = require "tycho.symbol.symbol"
local values = require "tycho.core.values"

local value = values.value

local model = {}


-- Files -------------------------------------------------------------------------------------------

--- The path of a checkpoint's file: "PREFIX-0003.params".
-- @string prefix
-- @int epoch
-- @string kind "params" or "states"
function model.file_name(prefix, epoch, kind)
  return ("%s-%04d.%s"):format(prefix, epoch, kind)
end


--- Writes parameters as `arg:NAME` and `aux:NAME`, sorted by name, from the host.
-- @string path
-- @tparam table arg_params
-- @tparam ?table aux_params
function model.write_params(path, arg_params, aux_params)
  local dict = {}
  for kind, params in pairs{ arg = arg_params or {}, aux = aux_params or {} } do
    for name, x in pairs(params) do
      dict[kind .. ":" .. name] = x:as_in_context(context.cpu())
    end
  end
  nd.save(path, dict)
end


--- Reads parameters.
-- @string path
-- @string func for errors
-- @bool[opt=false] strict names of another kind are E(format); else they are left out
-- @treturn table arg_params
-- @treturn table aux_params
function model.read_params(path, func, strict)
  local parts = { arg = {}, aux = {} }
  local dict = nd.load(path)
  if next(dict) == nil then
    log:warning(("%s: the file '%s' holds no arrays"):format(func, path))
  end
  for key, x in pairs(dict) do
    local kind, name = tostring(key):match("^(.-):(.*)$")
    if parts[kind] then
      parts[kind][name] = x
    elseif strict then
      Error.raise{ code = "format", func = func, argument = tostring(key),
        expected = "arg:NAME or aux:NAME", got = tostring(key),
        message = ("'%s' of the file '%s' is no parameter"):format(tostring(key), path) }
    end
  end
  return parts.arg, parts.aux
end


-- Checkpoints -------------------------------------------------------------------------------------

local SAVE = args.form("model.save_checkpoint", {
  { "prefix", "text" }, { "epoch", "integer" }, { "symbol", "symbol|null?" },
  { "arg_params", "dict?" }, { "aux_params", "dict?" }, { "remove_amp_cast", "boolean", true },
})

--- Writes `PREFIX-symbol.json` and `PREFIX-0003.params`.
-- @string prefix
-- @int epoch
-- @param symbol `ty.null`: only the parameters
-- @tparam table arg_params
-- @tparam table aux_params
-- @tparam[opt] table options remove_amp_cast = true
function model.save_checkpoint(...)
  local a = SAVE(...)
  if value(a.symbol) then
    a.symbol:save(a.prefix .. "-symbol.json", { remove_amp_cast = a.remove_amp_cast })
  end
  model.write_params(model.file_name(a.prefix, a.epoch, "params"), a.arg_params, a.aux_params)
end


local LOAD = args.form("model.load_params", {
  { "prefix", "text" }, { "epoch", "integer" }, "*", { "rename", "function?" },
})

--- Reads the parameters of a checkpoint.
-- @string prefix
-- @int epoch
-- @tparam[opt] table options rename: function of a name -> its new name, or nil to keep it
-- @treturn table arg_params
-- @treturn table aux_params
function model.load_params(...)
  local a = LOAD(...)
  local arg_params, aux_params =
    model.read_params(model.file_name(a.prefix, a.epoch, "params"), "model.load_params")
  return module_params.renamed(arg_params, a.rename, "model.load_params"),
    module_params.renamed(aux_params, a.rename, "model.load_params")
end


--- Reads a checkpoint.
-- @string prefix
-- @int epoch
-- @treturn Symbol
-- @treturn table arg_params
-- @treturn table aux_params
function model.load_checkpoint(...)
  local a = LOAD(...)
  local net = symbol.load(a.prefix .. "-symbol.json")
  return net, model.load_params(a.prefix, a.epoch, { rename = a.rename })
end


-- Callbacks ---------------------------------------------------------------------------------------

local PARAM = args.form("model.BatchEndParam", {
  { "epoch", "integer" }, { "nbatch", "integer" }, { "eval_metric", "any?" }, { "locals", "any?" },
})

--- What batch callbacks are called with: `{epoch, nbatch, eval_metric, locals}`.
function model.BatchEndParam(...)
  return PARAM(...)
end


-- Stores ------------------------------------------------------------------------------------------

local BIG = 16 * 1024 * 1024             -- elements: larger ones are not updated in a "local" store


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


--- The store for a training, and whether it updates the parameters. One device needs none.
-- @param kvstore name, store, or `ty.null`
-- @int num_device
-- @tparam table arg_params
-- @return store or nil
-- @treturn bool update_on_kvstore
function model._create_kvstore(kvstore, num_device, arg_params)
  if value(kvstore) == nil then
    return nil, false
  elseif type(kvstore) == "string" then
    if num_device == 1 and not kvstore:find("dist", 1, true) then
      return nil, false
    end
    local kv = require("tycho.kvstore").create(kvstore)
    return kv, updates_on_store(kv) and not (kvstore == "local" and has_big(arg_params))
  elseif Class.is_a(kvstore, require("tycho.kvstore").KVStoreBase) then
    return kvstore, updates_on_store(kvstore)
  end
  Error.raise{ code = "type", func = "model._create_kvstore", argument = "kvstore",
    expected = "a name or a store", got = Error.kind(kvstore), message = "bad 'kvstore'" }
end


--- Gives parameters to a store.
-- @param kvstore
-- @tparam table param_arrays per parameter a list over devices
-- @tparam table arg_params host arrays by name
-- @tparam {string,...} param_names keys
-- @bool update_on_kvstore whether devices take the store's values
function model._initialize_kvstore(kvstore, param_arrays, arg_params,
    param_names, update_on_kvstore)
  for k, name in ipairs(param_names) do
    if update_on_kvstore then
      kvstore:broadcast(name, arg_params[name], param_arrays[k], { priority = -(k - 1) })
    else
      kvstore:init(name, arg_params[name])
    end
  end
end


-- Gradients and weights of each device, kept in u: a step makes no new lists.
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


-- Each device's updater takes all parameters at once.
local function update_devices(u)
  local devices = lists_of_devices(u)
  for d, list in ipairs(devices) do
    for k, name in ipairs(u.names) do
      list.indices[k] = u.index[name] * #devices + d - 1
    end
    u.updater(list.indices, list.grads, list.weights)
  end
end


--- Updates parameters through a store or an updater.
-- @tparam table u names, grads and weights (per name a list over devices), index
--   (number of each name, from 0), kvstore, update_on_kvstore, updater; kept between
--   steps, it keeps lists for them, too
function model.update_params(u)
  for k, name in ipairs(u.kvstore and u.names or {}) do
    local out = u.update_on_kvstore and u.weights[k] or u.grads[k]
    u.kvstore:pushpull(name, u.grads[k], { out = out, priority = -(k - 1) })
  end
  if not u.update_on_kvstore then
    update_devices(u)
  end
end


--- Reads the state of a training; see `Module:save_state`.
function model.save_state(module, ...)
  return module:save_state(...)
end


--- Puts a training back; see `Module:load_state`.
function model.load_state(module, ...)
  return module:load_state(...)
end


return setmetatable(model, { __index = function(_, key)
  if key == "FeedForward" then
    rawset(model, key, require "tycho.module.feedforward")
  elseif type(key) == "string" and key:sub(1, 1) ~= "_" then
    Error.unknown{ func = "model", argument = key, what = "function", among = model }
  end
  return rawget(model, key)
end })
