--- Files of parameters: `Block:save_parameters`, `Block:load_parameters`, `ParameterDict:save` and
-- `load`, the parameters of `export`.
--
-- All arrays of a file are compared with the parameters before the first parameter changes.
--
-- @module tycho.gluon.parameter_files

local pairs = require("tycho.core.iterate").pairs
local array_files = require "tycho.ndarray.files"
local context = require "tycho.core.context"
local devices = require "tycho.gluon.devices"
local Error = require "tycho.core.error"
local nd = require "tycho.ndarray"
local tables = require "tycho.core.tables"

local parameter_files = {}


-- Writing -----------------------------------------------------------------------------------------

--- Returns the mean of a parameter over its devices, on the CPU.
-- @tparam Parameter p
-- @treturn NDArray
function parameter_files.average(p)
  local list = p:list_data()
  local sum = list[1]:as_in_context(context.cpu())
  for i = 2, #list do
    sum = sum + list[i]:as_in_context(context.cpu())
  end
  return #list > 1 and sum / #list or sum
end


--- Writes parameters to a file under the given names. If writing fails, the old file remains.
-- @string path
-- @tparam table list of {name, Parameter}, in order
function parameter_files.write(path, list)
  local arrays = {}
  for i, entry in ipairs(list) do
    arrays[i] = { entry[1], parameter_files.average(entry[2]) }
  end
  array_files.save_checked(path, arrays)
end


-- Reading -----------------------------------------------------------------------------------------

local function sort_names(list)
  table.sort(list)
  return list
end


local SHOWN = 8                                          -- most names in an error's text

-- Returns the first names of a list, quoted, and the number of the others.
local function show_names(list)
  local text = "'" .. table.concat(tables.part(list, 1, math.min(#list, SHOWN)), "', '") .. "'"
  return #list > SHOWN and ("%s and %d more"):format(text, #list - SHOWN) or text
end


local function fail_names(path, missing, extra, func)
  local parts = {}
  if missing[1] then
    parts[#parts + 1] = ("the file has no %s (allow_missing = true leaves these as they are)")
      :format(show_names(missing))
  end
  if extra[1] then
    parts[#parts + 1] = ("the network has no %s (ignore_extra = true leaves these out)")
      :format(show_names(extra))
  end
  Error.raise{ code = "name", func = func, argument = missing[1] or extra[1], missing = missing,
    extra = extra, mismatch = {}, message = ("'%s': %s"):format(path, table.concat(parts, "; ")) }
end


-- Raises E(shape) or E(dtype) for the first of the arrays that differ from their parameters, with a
-- text that names all of them. list: of { name, code, expected, got, advice }.
local function fail_mismatch(path, list, func)
  local names, first = {}, list[1]
  for i, entry in ipairs(list) do
    names[i] = entry.name
  end
  Error.raise{ code = first.code, func = func, argument = first.name, missing = {}, extra = {},
    mismatch = names, expected = first.expected, got = first.got,
    message = ("'%s': the file's '%s' has another %s than the network's%s%s"):format(path,
      first.name, first.code, first.advice,
      names[2] and "; others differ, too: " .. show_names(tables.part(names, 2, #names)) or "") }
end


-- Returns the difference of an array of a file from its parameter, for fail_mismatch; nil if there
-- is none.
local function find_difference(name, p, x, options)
  local have = rawget(p, "_shape")
  if have and not p._merged_shape(have, x.shape) then
    return { name = name, code = "shape", expected = tables.copied(have), got = x.shape,
      advice = "" }
  elseif x.dtype ~= p.dtype and not options.cast_dtype then
    return { name = name, code = "dtype", expected = p.dtype, got = x.dtype,
      advice = "; cast_dtype = true converts it" }
  end
  return nil
end


-- Returns the new value of a parameter from an array of a file: { param, value, dtype }; dtype is
-- nil if the parameter keeps its own.
local function read_value(p, x, options)
  local saved = options.dtype_source == "saved"
  if x.dtype ~= p.dtype and not saved then
    x = x:astype(p.dtype)
  end
  return { param = p, value = x, dtype = saved and x.dtype or nil }
end


-- Returns whether two lists have the same contexts, in any order.
local function are_same_devices(a, b)
  local set = {}
  for _, c in ipairs(a) do
    set[c] = true
  end
  for _, c in ipairs(b) do
    if not set[c] then
      return false
    end
  end
  return #a == #b
end



-- Raises E(device) if a parameter has arrays, or waits for its shape, on other devices than ctx.
local function check_devices(p, ctx, func)
  local ready = rawget(p, "_data") or rawget(p, "_deferred")
  if ready and ctx and not are_same_devices(p:list_ctx(), ctx) then
    Error.raise{ code = "device", func = func, argument = p.name, expected = devices.show(ctx),
      got = devices.show(p:list_ctx()), message = ("parameter '%s' is on other devices than ctx \z
        says; leave ctx out, or move the parameter by reset_ctx"):format(p.name) }
  end
end


--- Sets parameters to the values of a file. After an error nothing is changed: E(name), E(shape),
-- E(dtype), E(device).
-- @string path for errors
-- @tparam table loaded name -> array
-- @tparam table params list of {name, Parameter}; a parameter may have several names
-- @tparam table options ctx, allow_missing, ignore_extra, cast_dtype, dtype_source, as for
--   `Block:load_parameters`
-- @string func name of the caller, for errors
function parameter_files.apply(path, loaded, params, options, func)
  local known, found, missing, extra, taken = {}, {}, {}, {}, {}
  local values, differences = {}, {}
  for _, entry in ipairs(params) do
    known[entry[1]] = true
    found[entry[2]] = found[entry[2]] or loaded[entry[1]] ~= nil
  end
  for _, entry in ipairs(params) do
    if not found[entry[2]] then
      missing[#missing + 1] = entry[1]
    end
  end
  for name in pairs(loaded) do
    extra[#extra + 1] = not known[name] and name or nil
  end
  if missing[1] and not options.allow_missing or extra[1] and not options.ignore_extra then
    fail_names(path, options.allow_missing and {} or sort_names(missing),
      options.ignore_extra and {} or sort_names(extra), func)
  end
  for _, entry in ipairs(params) do
    local name, p = entry[1], entry[2]
    if loaded[name] and not taken[p] then
      taken[p] = true
      check_devices(p, options.ctx, func)
      differences[#differences + 1] = find_difference(name, p, loaded[name], options)
      values[#values + 1] = not differences[1] and read_value(p, loaded[name], options) or nil
    end
  end
  if differences[1] then
    fail_mismatch(path, differences, func)
  end
  for _, v in ipairs(values) do
    v.param:_load(v.value, v.dtype, options.ctx)
  end
end


--- Returns the arrays of a file by name, without the prefixes `arg:` and `aux:` that `export`
-- writes. A file whose arrays have no names is E(format).
-- @string path
-- @string func name of the caller, for errors
-- @treturn table name -> array
-- @treturn bool whether names had such prefixes
function parameter_files.read(path, func)
  local loaded, names = nd.load(path)
  if not names and #loaded > 0 then
    Error.raise{ code = "format", func = func, argument = path,
      message = ("the arrays of '%s' have no names, so it is no file of parameters; nd.load reads \z
        it"):format(path) }
  end
  local dict, exported = {}, false
  for _, name in ipairs(names or {}) do                 -- a file without arrays has no names
    local bare = name:match("^a[ru][gx]:(.*)$")
    exported = exported or bare ~= nil
    dict[bare or name] = loaded[name]
  end
  return dict, exported
end


--- Arguments of the functions that load, for args.form, in the reference's order.
parameter_files.LOAD = {
  { "filename", "path" }, { "ctx", "contexts_or_options?" }, { "allow_missing", "boolean", false },
  { "ignore_extra", "boolean", false }, { "cast_dtype", "boolean", false },
  { "dtype_source", { "current", "saved" }, "current" },
}


return parameter_files
