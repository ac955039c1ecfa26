--- Arguments that `Symbol:bind` and `Symbol:simple_bind` have in common: lists and dictionaries by
-- argument names, gradient requests, contexts, shapes.
--
-- Lists are in the order of list_arguments and list_auxiliary_states; dictionaries and lists
-- of {name, value} go by name.
--
-- @module tycho.executor.bind_args

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local graph = require "tycho.symbol.graph"
local precision = require "tycho.core.precision"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local C = native.C
local is_array, is_plain, null = class.is_array, values.is_plain, values.null

local bind_args = {}

local place_array = ffi.typeof("ty_place[?]")

local REQUESTS = { null = C.TY_NULL, write = C.TY_WRITE, add = C.TY_ADD }


-- Lists and dictionaries --------------------------------------------------------------------------

local function fail_length(what, want, got, func)
  Error.raise{ code = "shape", func = func, argument = what, expected = want, got = got,
    message = ("'%s' has %d entries, but the symbol has %d; give one per name, or a dictionary")
      :format(what, got, want) }
end


-- Returns whether a table has names: a dictionary, or pairs.
local function is_dict(given)
  return #given == 0 or is_plain(given[1]) and type(given[1][1]) == "string"
end


-- Returns the value of each name: from a list in order, a dictionary, or pairs. nil, false and
-- ty.null are absent.
local function in_order(given, names, what, func)
  local dict, list = is_dict(given) and args.pairs_of(given) or nil, {}
  if not dict and values.has_names(given) then
    Error.raise{ code = "type", func = func, argument = what,
      expected = "a list in the order of the symbol's names, or a dictionary",
      got = "a list with names beside it", message = ("bad '%s'"):format(what) }
  end
  if not dict and #given ~= #names then
    fail_length(what, #names, #given, func)
  end
  for i, name in ipairs(names) do
    list[i] = values.value(dict and dict[name] or not dict and given[i] or nil)
  end
  return list
end


--- Raises E(type) unless an entry is an array.
-- @param v the entry
-- @string name
-- @string what the table's name
-- @string func for errors
function bind_args.check_array(v, name, what, func)
  if not is_array(v) then
    Error.raise{ code = "type", func = func, argument = name, expected = "an NDArray",
      got = Error.kind(v), message = ("bad entry '%s' of '%s'"):format(name, what) }
  end
  return v
end


--- Returns arrays in the order of names; with `needed`, a missing one is E(name).
-- @tparam table given list, dictionary or pairs
-- @tparam {string,...} names
-- @string what the option's name
-- @string func for errors
-- @bool needed
function bind_args.arrays(given, names, what, func, needed)
  local list = in_order(given, names, what, func)
  for i, name in ipairs(names) do
    if list[i] ~= nil then
      bind_args.check_array(list[i], name, what, func)
    elseif needed then
      Error.raise{ code = "name", func = func, argument = name, expected = "an NDArray",
        got = "nothing", message = ("'%s' has no array for '%s'"):format(what, name) }
    end
  end
  return list
end


local function request_code(word, name, func)
  local code = type(word) == "string" and REQUESTS[word]
  if not code then
    Error.raise{ code = type(word) == "string" and "value" or "type", func = func,
      argument = "grad_req", expected = "write, add or null", got = Error.kind(word),
      candidates = Error.nearest(word, { "write", "add", "null" }),
      message = name and ("bad 'grad_req' of '%s'"):format(name) or "bad 'grad_req'" }
  end
  return code
end


--- Returns request codes in argument order. Names that a dictionary lacks are null; `ty.null` makes
-- all null.
-- @param given
-- @tparam {string,...} names
-- @string func for errors
function bind_args.requests(given, names, func)
  local list = {}
  if given == null then
    given = "null"
  end
  if is_plain(given) then
    if is_dict(given) then
      bind_args.check_names(args.pairs_of(given), { arguments = names, auxiliary = {} }, func,
        "argument in grad_req")
    end
    local words = in_order(given, names, "grad_req", func)
    for i, name in ipairs(names) do
      list[i] = words[i] == nil and C.TY_NULL or request_code(words[i], name, func)
    end
    return list
  end
  local code = request_code(given, nil, func)
  for i = 1, #names do
    list[i] = code
  end
  return list
end


local function check_context(v, name, what, func)
  if not Class.is_a(v, context.Context) then
    Error.raise{ code = "type", func = func, argument = what,
      expected = "contexts such as ty.cpu()",
      got = Error.kind(v), message = ("bad entry '%s' of '%s'"):format(tostring(name), what) }
  end
  return v._device
end


-- Returns group2ctx as an array of the core's structs, sorted by group, and the number of groups.
local function group_devices(group2ctx, func)
  local names = {}
  for group in pairs(group2ctx or {}) do
    names[#names + 1] = group
  end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  local groups = place_array(#names + 1)
  for i, group in ipairs(names) do
    groups[i - 1].device = check_context(group2ctx[group], group, "group2ctx", func)
    groups[i - 1].group = group                          -- the caller's table keeps the text alive
  end
  return groups, #names
end


--- Raises E(name) for a name in a dictionary that no argument or auxiliary state has.
-- @tparam ?table dict
-- @tparam table names {arguments, auxiliary}
-- @string func for errors
-- @string[opt="argument"] what the kind of the names, for errors
function bind_args.check_names(dict, names, func, what)
  local present, all = {}, {}
  for _, part in ipairs{ names.arguments, names.auxiliary } do
    for _, name in ipairs(part) do
      present[name], all[#all + 1] = true, name
    end
  end
  for name in pairs(dict or {}) do
    if not present[name] then
      Error.unknown{ func = func, argument = name, what = what or "argument", names = all }
    end
  end
end


local function read_shape(name, shape, func)
  local ok, sizes = args.types.shape.check(shape)
  if not ok then
    Error.raise{ code = "type", func = func, argument = name,
      expected = "a shape (a list of sizes)",
      got = Error.kind(shape), message = ("bad shape of '%s'"):format(name) }
  elseif #sizes > C.TY_MAXDIM then
    Error.raise{ code = "shape", func = func, argument = name,
      expected = ("at most %d dimensions"):format(C.TY_MAXDIM), got = #sizes,
      message = ("bad shape of '%s'"):format(name) }
  end
  return sizes
end


--- Returns shapes by name from a call: the named rest and the option `shapes`. A value other than a
-- shape is E(type), an unknown name E(name).
-- @tparam table named
-- @tparam ?table shapes
-- @tparam table names {arguments, auxiliary}
-- @string func for errors
function bind_args.shapes(named, shapes, names, func)
  local dict = {}
  for _, part in ipairs{ named, shapes or {} } do
    bind_args.check_names(part, names, func)
    for name, shape in pairs(part) do
      if dict[name] then
        Error.raise{ code = "name", func = func, argument = name,
          message = ("the shape of '%s' is given twice"):format(name) }
      end
      dict[name] = read_shape(name, shape, func)
    end
  end
  return dict
end


--- Puts a shape into a native description.
function bind_args.put_shape(desc, shape)
  desc.dtype, desc.ndim = C.TY_NODTYPE, shape and #shape or 0
  for i = 1, desc.ndim do
    desc.dim[i - 1] = shape[i]
  end
end


--- Returns device codes by name from a list or dictionary of contexts.
-- @tparam ?table given
-- @tparam {string,...} names
-- @string what the option's name
-- @string func for errors
function bind_args.devices(given, names, what, func)
  local devices = {}
  if given then
    for i, v in pairs(in_order(given, names, what, func)) do
      devices[names[i]] = check_context(v, names[i], what, func)
    end
  end
  return devices
end


-- Both ------------------------------------------------------------------------------------------

--- Writes the options that both kinds of binding have.
-- @tparam cdata spec `ty_bind_spec` or `ty_simple_spec`
-- @tparam table a the checked arguments
-- @tparam table built the native graph, as `graph.of`
-- @string func for errors
function bind_args.put_common(spec, a, built, func)
  local groups, count = group_devices(a.group2ctx, func)
  a.groups = groups                                      -- lives while the core reads spec
  spec.head, spec.nhead = built.heads, built.count
  spec.place, spec.nplace, spec.device = groups, count, a.ctx._device
  spec.flags = (a.dry_run and C.TY_DRY_RUN or 0) + (a.force_mirroring and C.TY_MIRROR or 0)
    + precision.flag(a.precision, a.ctx, func)
  spec.budget = a.memory_budget or 0
  spec.shared = a.shared_exec and a.shared_exec.handle
end


local function copy_list(v)
  return is_plain(v) and tables.copy(v) or v
end


--- Returns the fields of an Executor without its arrays.
-- @param handle `ty_exec *`
-- @param sym the symbol
-- @tparam table a the checked arguments
-- @tparam table names {arguments, auxiliary, outputs}
function bind_args.result(handle, sym, a, names)
  return { handle = handle, snapshot = graph.snapshot(sym), ctx = a.ctx,
    grad_req = copy_list(a.grad_req), group2ctx = copy_list(a.group2ctx), names = names,
    dry_run = a.dry_run }
end


return bind_args
