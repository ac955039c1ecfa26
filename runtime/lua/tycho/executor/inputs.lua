--- Values copied into an executor's bound arrays: inputs of a run, and parameters. All values are
-- checked before any is copied.
--
-- @module tycho.executor.inputs

local pairs = require("tycho.core.iterate").pairs
local native = require "tycho.core.ffi"
local attrs = require "tycho.core.attrs"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local tables = require "tycho.core.tables"
local transfer = require "tycho.ndarray.transfer"
local values = require "tycho.core.values"

local C, check = native.C, native.check
local is_array, is_plain = class.is_array, values.is_plain

local inputs = {}


local function is_nested(v)
  return is_plain(v) and not values.has_names(v)
end


-- Returns a value for a bound array: an array itself, or one made of a nested table; `what` and
-- `advice` are put around the name in errors.
local function fitting(bound, v, func, name, what, advice)
  if not is_array(v) and not is_nested(v) then
    Error.raise{ code = "type", func = func, argument = name,
      expected = "an NDArray or a nested table",
      got = Error.kind(v), message = ("bad value of %s'%s'"):format(what, name) }
  end
  local x = is_array(v) and v or transfer.from_table(v, bound._dtype, func, name)
  if not tables.same(x._shape, bound._shape) then
    Error.raise{ code = "shape", func = func, argument = name, expected = bound.shape,
      got = x.shape, message = ("%s'%s' has another shape%s"):format(what, name, advice) }
  end
  return x
end


local function copy_all(list, func)
  for _, pair in ipairs(list) do
    check(C.ty_tensor_copy(pair[1]._h, pair[2]._h), func)
  end
end


--- Copies arrays or nested tables into the bound arguments of their names; an unknown name is
-- E(name).
-- @param exe Executor
-- @tparam table given by argument name
-- @string func for errors
function inputs.copy(exe, given, func)
  local list, dict = {}, exe.arg_dict
  for name, v in pairs(given) do
    local bound = dict[name]
    if not bound then
      Error.unknown{ func = func, argument = name, what = "argument",
        names = exe._names.arguments }
    end
    list[#list + 1] = { bound,
      fitting(bound, v, func, name, "argument ", " than the bound array; exe:reshape changes it") }
  end
  copy_all(list, func)
end


-- Adds the pairs to copy, and what differs: names that are `extra`, with the dictionary that lacks
-- the first one, and names whose shapes `mismatch`, with the error of the first one.
local function add_params(found, params, dict, what, func)
  for name, v in pairs(params) do
    local bound = dict[name]
    local ok, x = true, nil
    if bound then
      ok, x = pcall(fitting, bound, v, func, name, "", "")
    else
      table.insert(found.extra, name)
      found.lacking = found.lacking or { dict = dict, what = what }
    end
    if ok and bound then
      table.insert(found, { bound, x })
    elseif not ok and Error.is_error(x) and x.code == "shape" then
      table.insert(found.mismatch, name)
      found.failure = found.failure or x
    elseif not ok then
      error(x, 0)
    end
  end
end


-- Raises the first difference with the lists of all.
local function check_found(found, allow_extra, func)
  if found.lacking and not allow_extra then
    Error.unknown{ func = func, argument = found.extra[1], what = found.lacking.what,
      names = attrs.keys(found.lacking.dict), missing = {}, extra = found.extra,
      mismatch = found.mismatch }
  elseif found.failure then
    found.failure.missing, found.failure.extra, found.failure.mismatch =
      {}, found.extra, found.mismatch
    error(found.failure, 0)
  end
end


--- Copies parameters into the bound arrays: `Executor:copy_params_from`.
-- @param exe Executor
-- @tparam table a its arguments
-- @string func for errors
function inputs.copy_params(exe, a, func)
  local found = { extra = {}, mismatch = {} }
  add_params(found, a.arg_params, exe.arg_dict, "argument", func)
  add_params(found, a.aux_params or {}, exe.aux_dict, "auxiliary state", func)
  check_found(found, a.allow_extra_params, func)
  copy_all(found, func)
end


return inputs
