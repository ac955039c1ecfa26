--- Checkpoints: the symbol and the parameters of a network as files.
--
--     ty.model.save_checkpoint("run/m", 3, net, arg_params, aux_params)
--                                                 -- run/m-symbol.json, run/m-0003.params
--     local net, arg_params, aux_params = ty.model.load_checkpoint("run/m", 3)
--
-- Files are written under a temporary name and renamed, so a crash leaves the old ones.
--
-- @module tycho.model.checkpoint

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local context = require "tycho.core.context"
local named = require "tycho.core.dict"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local param_check = require "tycho.model.param_check"
local array_files = require "tycho.ndarray.files"
local nd = require "tycho.ndarray"
local symbol = require "tycho.symbol.symbol"
local values = require "tycho.core.values"

local value = values.value

local checkpoint = {}


-- Files -------------------------------------------------------------------------------------------

--- Returns the path of a checkpoint's file: "PREFIX-0003.params".
-- @string prefix
-- @int epoch
-- @string kind "params" or "states"
function checkpoint.file_name(prefix, epoch, kind)
  return ("%s-%04d.%s"):format(prefix, epoch, kind)
end


--- The parameter `on_error` of call forms: the reaction to a checkpoint that cannot be written.
checkpoint.ON_ERROR = { "on_error", { "stop", "warn" }, "stop" }


--- Calls f, which writes a checkpoint. If the files cannot be written (the disk is full, the
-- folder is gone) and `on_error` is "warn", logs a warning and returns; the old files are intact.
-- @string on_error
-- @param logger
-- @tparam function f
function checkpoint.attempt(on_error, logger, f)
  local ok, e = pcall(f)
  if ok then
    return
  elseif on_error ~= "warn" or not Error.is_error(e) or e.code ~= "io" then
    error(e, 0)
  end
  logger:warning("a checkpoint could not be written, the training goes on: " .. e.message)
end


--- Writes parameters as `arg:NAME` and `aux:NAME`, sorted by name, from the host.
-- @string path
-- @tparam table arg_params
-- @tparam ?table aux_params
function checkpoint.write_params(path, arg_params, aux_params)
  local dict = {}
  for kind, params in pairs{ arg = arg_params or {}, aux = aux_params or {} } do
    for name, x in pairs(params) do
      dict[kind .. ":" .. name] = x:as_in_context(context.cpu())
    end
  end
  array_files.save_checked(path, dict)
end


--- Reads parameters.
-- @string path
-- @string func for errors
-- @bool[opt=false] strict names with a prefix other than `arg:` and `aux:` are E(format); without
--   it only names without a prefix are, and others are skipped
-- @treturn table arg_params
-- @treturn table aux_params
function checkpoint.read_params(path, func, strict)
  local parts = { arg = named{}, aux = named{} }
  local dict = nd.load(path)
  if next(dict) == nil then
    log:warning(("%s: the file '%s' holds no arrays"):format(func, path))
  end
  for key, x in pairs(dict) do
    local kind, name = tostring(key):match("^(.-):(.*)$")
    if parts[kind] then
      parts[kind][name] = x
    elseif strict or not kind then
      Error.raise{ code = "format", func = func, argument = tostring(key),
        expected = "arg:NAME or aux:NAME", got = tostring(key),
        message = ("'%s' of the file '%s' is no parameter"):format(tostring(key), path) }
    end
  end
  return parts.arg, parts.aux
end


-- Checkpoints -------------------------------------------------------------------------------------

local SAVE = args.form("model.save_checkpoint", {
  { "prefix", "path" }, { "epoch", "integer" }, { "symbol", "symbol|null?" },
  { "arg_params", "dict?" }, { "aux_params", "dict?" }, { "remove_amp_cast", "boolean", true },
})

--- Writes `PREFIX-symbol.json` and `PREFIX-0003.params`.
-- @string prefix
-- @int epoch
-- @param symbol `ty.null`: only the parameters
-- @tparam table arg_params
-- @tparam table aux_params
-- @tparam[opt] table options remove_amp_cast = true
function checkpoint.save_checkpoint(...)
  local a = SAVE(...)
  if value(a.symbol) then
    a.symbol:save(a.prefix .. "-symbol.json", { remove_amp_cast = a.remove_amp_cast })
  end
  local path = checkpoint.file_name(a.prefix, a.epoch, "params")
  checkpoint.write_params(path, a.arg_params, a.aux_params)
end


local LOAD = args.form("model.load_params", {
  { "prefix", "path" }, { "epoch", "integer" }, "*", { "rename", "function?" },
})

--- Reads the parameters of a checkpoint.
-- @string prefix
-- @int epoch
-- @tparam[opt] table options rename: function of a name -> its new name, or nil to keep it
-- @treturn table arg_params
-- @treturn table aux_params
function checkpoint.load_params(...)
  local a = LOAD(...)
  local arg_params, aux_params =
    checkpoint.read_params(checkpoint.file_name(a.prefix, a.epoch, "params"), "model.load_params")
  return param_check.renamed(arg_params, a.rename, "model.load_params"),
    param_check.renamed(aux_params, a.rename, "model.load_params")
end


--- Reads a checkpoint.
-- @string prefix
-- @int epoch
-- @treturn Symbol
-- @treturn table arg_params
-- @treturn table aux_params
function checkpoint.load_checkpoint(...)
  local a = LOAD(...)
  local net = symbol.load(a.prefix .. "-symbol.json")
  return net, checkpoint.load_params(a.prefix, a.epoch, { rename = a.rename })
end


return checkpoint
