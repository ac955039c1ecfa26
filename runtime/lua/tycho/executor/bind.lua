--- Reading the arguments of `Symbol:bind` and `Symbol:simple_bind`, and handing them to the core.
--
-- `binding.bind` and `binding.simple_bind` give what an Executor is made of:
--
--     handle, snapshot (of the symbol), ctx, grad_req, group2ctx (copies),
--     names {arguments, auxiliary, outputs}, dry_run,
--     args, grads (nil: bound without args_grad), auxs: lists of arrays, `ty.null` for none
--
-- Lists are in the order of list_arguments and list_auxiliary_states; dictionaries and lists
-- of {name, value} go by name.
--
-- @module tycho.executor.bind

jit.off(true, true)                                      -- pays no compilation: core/iterate.lua

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local arrays = require "tycho.ndarray.class"
local attrs = require "tycho.core.attrs"
local calls = require "tycho.ndarray.call"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local files = require "tycho.ndarray.files"
local gc = require "tycho.core.gc"
local log = require "tycho.core.log"
local symbol = require "tycho.symbol.symbol"
local values = require "tycho.core.values"
require "tycho.ndarray"                                  -- puts the class of arrays together

local C, check = native.C, native.check
local is_array, is_plain, null = arrays.is_array, values.is_plain, values.null

local binding = {}

local want_array, bind_array, place_array = ffi.typeof("ty_want[?]"), ffi.typeof("ty_bind[?]"),
  ffi.typeof("ty_place[?]")
local exec_out, bind_spec, simple_spec = ffi.typeof("ty_exec *[1]"), ffi.typeof("ty_bind_spec"),
  ffi.typeof("ty_simple_spec")

local NULL = C.TY_NULL
local REQS = { null = NULL, write = C.TY_WRITE, add = C.TY_ADD }


-- Lists and dictionaries --------------------------------------------------------------------------

local function copy_table(t)
  if not is_plain(t) then
    return t
  end
  local copy = {}
  for key, value in pairs(t) do
    copy[key] = value
  end
  return copy
end


local function fail_length(what, want, got, func)
  Error.raise{ code = "shape", func = func, argument = what, expected = want, got = got,
    message = ("'%s' has %d entries, but the symbol has %d; give one per name, or a dictionary")
      :format(what, got, want) }
end


-- What is given for each name: a list in order, a dictionary, or pairs. nil,
-- false and ty.null are absent.
local function by_names(given, names, what, func)
  local dict, list = nil, {}
  if #given == 0 or is_plain(given[1]) and type(given[1][1]) == "string" then
    dict = args.pairs_of(given)
  end
  if not dict and #given ~= #names then
    fail_length(what, #names, #given, func)
  end
  for i, name in ipairs(names) do
    list[i] = values.value(dict and dict[name] or not dict and given[i] or nil)
  end
  return list, dict
end


local function check_array(v, name, what, func)
  if not is_array(v) then
    Error.raise{ code = "type", func = func, argument = name, expected = "an NDArray",
      got = Error.kind(v), message = ("bad entry '%s' of '%s'"):format(name, what) }
  end
  return v
end


-- Arrays by name; with `needed`, all of them.
local function arrays_for(given, names, what, func, needed)
  local list = by_names(given, names, what, func)
  for i, name in ipairs(names) do
    if list[i] ~= nil then
      check_array(list[i], name, what, func)
    elseif needed then
      Error.raise{ code = "name", func = func, argument = name, expected = "an NDArray",
        got = "nothing", message = ("'%s' has no array for '%s'"):format(what, name) }
    end
  end
  return list
end


local function req_code(word, name, func)
  local code = type(word) == "string" and REQS[word]
  if not code then
    Error.raise{ code = type(word) == "string" and "value" or "type", func = func,
      argument = "grad_req", expected = "write, add or null", got = Error.kind(word),
      candidates = Error.nearest(word, { "write", "add", "null" }),
      message = name and ("bad 'grad_req' of '%s'"):format(name) or "bad 'grad_req'" }
  end
  return code
end


-- Request codes in argument order. Dictionary: what is missing is null. `ty.null`: all null.
local function reqs_for(given, names, func)
  local list = {}
  if given == null then
    given = "null"
  end
  if is_plain(given) then
    local words = by_names(given, names, "grad_req", func)
    for i, name in ipairs(names) do
      list[i] = words[i] == nil and C.TY_NULL or req_code(words[i], name, func)
    end
    return list
  end
  local code = req_code(given, nil, func)
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


-- group2ctx as the core takes it, sorted by group.
local function places_of(group2ctx, func)
  local groups = {}
  for group in pairs(group2ctx or {}) do
    groups[#groups + 1] = group
  end
  table.sort(groups, function(a, b) return tostring(a) < tostring(b) end)
  local places = place_array(#groups + 1)
  for i, group in ipairs(groups) do
    places[i - 1].device = check_context(group2ctx[group], group, "group2ctx", func)
    places[i - 1].group = group                          -- the caller's table keeps the text
  end
  return places, #groups
end


-- Errors ------------------------------------------------------------------------------------------

--- Raises the core's failure when a status says so; the method's name, which `func`
-- says, is taken off its text.
-- @int code
-- @string func for errors
function binding.check(code, func)
  if code > 0 then
    local e, method = native.failure(code, func), func:match(":(.*)$")
    e.message = method and e.message:gsub("^" .. method .. ": ", "") or e.message
    error(e, 0)
  end
end


--- Calls the core; out of memory, once more after collecting. Failures know where the
-- shapes of the failed node's inputs come from, and a refused memory budget says the
-- smallest possible one as a number.
-- @tparam function try () -> code
-- @string func for errors
-- @param sym the symbol
-- @tparam table given set of the names that were given
-- @string[opt] prefix put before the message
function binding.call(try, func, sym, given, prefix)
  local code = try()
  if code == C.TY_EMEMORY then
    gc.release()
    code = try()
  end
  if code > 0 then
    local e = native.failure(code, func)
    if e.code == "memory" then
      e.expected = tonumber(e.expected) or e.expected
    end
    e.message = (prefix or "") .. e.message:gsub("^[%l_]+: ", "")
    error(symbol._explain(e, sym, given), 0)
  end
end


local function flags_of(a)
  return (a.dry_run and C.TY_DRY_RUN or 0) + (a.force_mirroring and C.TY_MIRROR or 0)
end


local function made(handle, sym, a, names)
  return {
    handle = native.own(handle, C.ty_exec_free), snapshot = symbol._snapshot(sym), ctx = a.ctx,
    grad_req = copy_table(a.grad_req), group2ctx = copy_table(a.group2ctx), names = names,
    dry_run = a.dry_run,
  }
end


local function filled(list, n)
  for i = 1, n do
    list[i] = list[i] == nil and null or list[i]
  end
  return list
end


-- bind --------------------------------------------------------------------------------------------

local BIND = args.form("Symbol:bind", {
  { "ctx", "context?" }, { "args", "table?" }, { "args_grad", "table?" },
  { "grad_req", "text|table|null", "write" }, { "aux_states", "table?" }, { "group2ctx", "dict?" },
  { "shared_exec", "executor?" }, { "force_mirroring", "boolean?" }, { "memory_budget", "number?" },
  { "dry_run", "boolean", false },
})


local function check_misplaced(a, names)
  for _, what in ipairs{ "args", "args_grad", "aux_states" } do
    if a[what] and #a[what] == 0 then
      BIND:check_dict(what, a[what], what == "aux_states" and names.auxiliary or names.arguments)
    end
  end
end


local function fill_binds(names, list, grads, reqs)
  local binds = bind_array(#names + 1)
  for i, name in ipairs(names) do
    local b, value, grad = binds[i - 1], list[i], grads[i]
    b.name = name
    b.value = value and value._h
    b.grad = grad and grad._h
    b.req = reqs[i] or NULL
  end
  return binds
end


-- What the given arrays say to inference.
local function wants_of(names, list, wants, at)
  for i, name in ipairs(names) do
    if list[i] then
      wants[at].name = name
      check(C.ty_tensor_desc(list[i]._h, wants[at].desc))
      at = at + 1
    end
  end
  return at
end


--- The graph for given shapes: `symbol._resolved`.
binding.resolved = symbol._resolved


local function resolve_bound(sym, names, list, auxs, func)
  if not symbol._is_custom(sym, func) then
    local graph, heads = symbol._graph(sym, func)
    return graph, heads
  end
  local wants = want_array(#names.arguments + #names.auxiliary + 1)
  local count = wants_of(names.auxiliary, auxs, wants, wants_of(names.arguments, list, wants, 0))
  return symbol._resolved(sym, wants, count, func)
end


local function set_of(names, list)
  local set = {}
  for i, name in ipairs(names) do
    set[name] = list == nil or list[i] ~= nil or nil
  end
  return set
end


--- Binds arrays; see the top of the file.
-- @param sym the symbol
-- @param ... arguments of `Symbol:bind`
function binding.bind(sym, ...)
  local a, func = BIND(...), "Symbol:bind"
  a.ctx = a.ctx or context.current_context()
  local _, _, count, names = symbol._graph(sym, func)
  check_misplaced(a, names)
  if not a.args and not a.dry_run and #names.arguments > 0 then
    Error.raise{ code = "value", func = func, argument = "args",
      expected = "a list or dictionary of NDArrays", got = "nothing",
      candidates = names.arguments, message = "'args' is missing" }
  end
  local list = arrays_for(a.args or {}, names.arguments, "args", func, not a.dry_run)
  local grads = arrays_for(a.args_grad or {}, a.args_grad and names.arguments or {},
    "args_grad", func)
  local auxs = arrays_for(a.aux_states or {}, names.auxiliary, "aux_states", func, not a.dry_run)
  local graph, heads = resolve_bound(sym, names, list, auxs, func)
  local places, nplace = places_of(a.group2ctx, func)
  local reqs = reqs_for(a.grad_req, names.arguments, func)
  local binds = fill_binds(names.arguments, list, grads, a.args_grad and reqs or {})
  local aux_binds = fill_binds(names.auxiliary, auxs, {}, {})
  local spec, out = bind_spec(), exec_out()
  spec.head, spec.nhead = heads, count
  spec.arg, spec.narg, spec.aux, spec.naux = binds, #names.arguments, aux_binds, #names.auxiliary
  spec.place, spec.nplace, spec.device = places, nplace, a.ctx._device
  spec.flags, spec.budget = flags_of(a), a.memory_budget or 0
  spec.shared = a.shared_exec and a.shared_exec.handle
  binding.call(function()
    return C.ty_exec_bind(graph, spec, out)
  end, func, sym, set_of(names.arguments, list))
  local result = made(out[0], sym, a, names)
  result.args, result.auxs = filled(list, #names.arguments), filled(auxs, #names.auxiliary)
  result.grads = a.args_grad and filled(grads, #names.arguments)
  return result
end


-- simple_bind -------------------------------------------------------------------------------------

local SIMPLE = args.form("Symbol:simple_bind", {
  rest = "named", { "ctx", "context?" }, "*", { "grad_req", "text|table|null", "write" },
  { "type_dict", "dict?" }, { "stype_dict", "dict?" }, { "group2ctx", "dict?" },
  { "shared_arg_names", "list?" }, { "shared_exec", "executor?" }, { "shared_buffer", "dict?" },
  { "shapes", "dict?" }, { "arg_ctx", "table?" }, { "grad_ctx", "table?" },
  { "aux_ctx", "table?" }, { "force_mirroring", "boolean?" }, { "memory_budget", "number?" },
  { "dry_run", "boolean", false },
})


local function known_names(names)
  local known, all = {}, {}
  for _, part in ipairs{ names.arguments, names.auxiliary } do
    for _, name in ipairs(part) do
      known[name], all[#all + 1] = true, name
    end
  end
  return known, all
end


local function check_names(dict, names, func, what)
  local known, all = known_names(names)
  for name in pairs(dict or {}) do
    if not known[name] then
      Error.unknown{ func = func, argument = name, what = what, names = all }
    end
  end
end


--- Shapes by name from a call: the named rest and the option `shapes`. A value that is no shape is
-- E(type), an unknown name E(name).
-- @tparam table named
-- @tparam ?table shapes
-- @tparam table names {arguments, auxiliary}
-- @string func for errors
function binding.shapes(named, shapes, names, func)
  local dict = {}
  for _, part in ipairs{ named, shapes or {} } do
    for name, shape in pairs(part) do
      local ok, sizes = args.types.shape.check(shape)
      if dict[name] then
        Error.raise{ code = "name", func = func, argument = name,
          message = ("the shape of '%s' is given twice"):format(name) }
      elseif not known_names(names)[name] then
        check_names({ [name] = shape }, names, func, "argument")
      elseif not ok then
        Error.raise{ code = "type", func = func, argument = name,
          expected = "a shape (a list of sizes)",
          got = Error.kind(shape), message = ("bad shape of '%s'"):format(name) }
      elseif #sizes > C.TY_MAXDIM then
        Error.raise{ code = "shape", func = func, argument = name,
          expected = "at most 8 dimensions", got = #sizes,
          message = ("bad shape of '%s'"):format(name) }
      end
      dict[name] = sizes
    end
  end
  return dict
end


--- Puts a shape into a native description.
function binding.put_shape(desc, shape)
  desc.dtype, desc.ndim = C.TY_NODTYPE, shape and #shape or 0
  for i = 1, desc.ndim do
    desc.dim[i - 1] = shape[i]
  end
end


-- Element type codes by name. An empty dictionary seeds nothing, so that the
-- types must follow from the graph.
local function types_of(a, sym, names, func)
  local codes = {}
  check_names(a.type_dict, names, func, "argument")
  for name, dtype in pairs(a.type_dict or {}) do
    local ok, _, expected, code = args.types.dtype.check(dtype)
    if not ok then
      Error.raise{ code = code or "type", func = func, argument = name, expected = expected
        or "a dtype", got = Error.kind(dtype), message = ("bad dtype of '%s'"):format(name) }
    end
    codes[name] = args.DTYPES[dtype]
  end
  if a.type_dict and not next(codes) then
    local types = sym:infer_type_partial{}
    for i, name in ipairs(names.arguments) do
      if types[i] == null then
        Error.raise{ code = "dtype", func = func, argument = name,
          expected = "a dtype in type_dict", got = "nothing",
          message = ("the dtype of '%s' does not follow from what is given"):format(name) }
      end
    end
  end
  return codes
end


local function check_storage_types(a, names, func)
  check_names(a.stype_dict, names, func, "argument")
  for name, stype in pairs(a.stype_dict or {}) do
    if stype ~= "default" then
      Error.raise{ code = "unsupported", func = func, argument = name, expected = "default",
        got = stype,
        message = ("sparse storage ('%s') is not part of Tycho"):format(tostring(stype)) }
    end
  end
end


-- Device codes by name from a list or dictionary of contexts.
local function devices_of(given, names, what, func)
  local devices = {}
  if given then
    for i, v in pairs(by_names(given, names, what, func)) do
      devices[names[i]] = check_context(v, names[i], what, func)
    end
  end
  return devices
end


local function shared_set(a, func)
  local set = {}
  for _, name in ipairs(a.shared_arg_names or {}) do
    if type(name) ~= "string" then
      Error.raise{ code = "type", func = func, argument = "shared_arg_names", expected = "names",
        got = Error.kind(name),
        message = "bad 'shared_arg_names'" }
    end
    set[name] = true
  end
  return set
end


local function check_request_size(a, func)
  if is_plain(a.grad_req) and next(a.grad_req) == nil then
    Error.raise{ code = "value", func = func, argument = "grad_req",
      expected = "a request, a list or a dictionary",
      got = "an empty table", message = "'grad_req' is empty; ty.null means no gradients" }
  end
end


-- One want per argument and auxiliary state.
local function fill_wants(a, sym, names, shapes, func)
  local types, shared = types_of(a, sym, names, func), shared_set(a, func)
  local reqs = reqs_for(a.grad_req, names.arguments, func)
  local arg_at, grad_at = devices_of(a.arg_ctx, names.arguments, "arg_ctx", func),
    devices_of(a.grad_ctx, names.arguments, "grad_ctx", func)
  local aux_at = devices_of(a.aux_ctx, names.auxiliary, "aux_ctx", func)
  local nargs = #names.arguments
  local wants = want_array(nargs + #names.auxiliary + 1)
  for i = 1, nargs + #names.auxiliary do
    local want, name = wants[i - 1], names.arguments[i] or names.auxiliary[i - nargs]
    binding.put_shape(want.desc, shapes[name])
    want.name = name
    want.desc.dtype = types[name] or C.TY_NODTYPE
    want.req = reqs[i] or C.TY_NULL
    want.device = (i <= nargs and arg_at or aux_at)[name] or -1
    want.grad_device = grad_at[name] or -1
    want.shared = shared[name] and 1 or 0
  end
  return wants, nargs + #names.auxiliary
end


-- The shared buffer as a bag; its entries sorted, so that two runs do the same.
local function bag_of(buffer, func)
  local list = {}
  for name, x in pairs(buffer) do
    list[#list + 1] = { name, check_array(x, tostring(name), "shared_buffer", func) }
  end
  table.sort(list, function(p, q) return p[1] < q[1] end)
  return files.bag(list, func)
end


-- Puts what the bag holds now into the caller's table; entries that did not
-- change stay the same objects.
local function refresh_buffer(buffer, bag)
  local names, list = files.unpack_bag(bag)
  for i, name in ipairs(names) do
    local old, new = buffer[name], list[i]
    if not old or C.ty_tensor_same(old._h, new._h) == 0 then
      if old then
        log:warning(("simple_bind: '%s' of shared_buffer, %s, is too small for %s; \z
          a larger array replaces it, which "
          .. "executors bound before do not share. Bind the largest shapes first"):format(
            name, Error.show(old._shape), Error.show(new._shape)))
      end
      rawset(new, "_kept", true)
      buffer[name] = new
    end
  end
end


-- The wrapper of an array of the new executor: one that exists (in the shared
-- executor or buffer), or a new one.
local function wrapper(tensor, candidates)
  for _, x in ipairs(candidates) do
    if is_array(x) and C.ty_tensor_same(x._h, tensor) ~= 0 then
      return x
    end
  end
  C.ty_tensor_keep(tensor)
  return arrays.own(tensor)                              -- its bytes are news to the collector
end


local function members(exe, kind)
  return exe and exe[kind] or {}
end


--- The arrays of an executor by the core's word.
-- @param handle `ty_exec *`
-- @tparam table names {arguments, auxiliary}
-- @tparam function before (kind, name) -> list of arrays that may be the same
-- @treturn table args, grads, auxs
function binding.arrays_of(handle, names, before)
  local out, lists = ffi.new("ty_tensor *[1]"), {}
  for kind, get in pairs{ args = C.ty_exec_arg, grads = C.ty_exec_grad, auxs = C.ty_exec_aux } do
    local list = {}
    for i, name in ipairs(kind == "auxs" and names.auxiliary or names.arguments) do
      native.check(get(handle, name, out), "Executor")
      list[i] = out[0] ~= nil and wrapper(out[0], before(kind, name)) or null
    end
    lists[kind] = list
  end
  return lists.args, lists.grads, lists.auxs
end


local DICTS = { args = "arg_dict", grads = "grad_dict", auxs = "aux_dict" }
local KEYS = { args = "", grads = "grad of " }


local function candidates_of(a)
  return function(kind, name)
    local list = { members(a.shared_exec, DICTS[kind])[name] }
    list[#list + 1] = KEYS[kind] and a.shared_buffer and a.shared_buffer[KEYS[kind] .. name] or nil
    return list
  end
end


-- Names that occur twice --------------------------------------------------------------------------

-- The first name that stands for several variables.
local function repeated(names)
  local seen = {}
  for _, list in ipairs{ names.arguments, names.auxiliary } do
    for _, name in ipairs(list) do
      if seen[name] then
        return name
      end
      seen[name] = true
    end
  end
end


local function zeros(shapes, dtypes, device, func)
  local list = {}
  for i, shape in ipairs(shapes) do
    list[i] = calls.zeros(shape, args.DTYPES[dtypes[i]], device, func)
  end
  return list
end


-- Element types for inference: those given, else float32 where a variable does not say its own.
local function seed_types(a, sym, names)
  if a.type_dict then
    return a.type_dict
  end
  local given, dict = {}, sym:attr_dict()
  for _, name in ipairs(names.arguments) do
    given[name] = not (dict[name] and dict[name].__dtype__) and "float32" or nil
  end
  return given
end


-- The core finds arrays by name; where names do not tell variables apart, arrays are made
-- here, one for each variable.
local function simple_by_place(a, sym, names, shapes, name, func)
  for _, option in ipairs{ "shared_exec", "shared_buffer", "arg_ctx", "grad_ctx", "aux_ctx" } do
    if a[option] then
      Error.raise{ code = "name", func = func, argument = name,
        message = ("several variables are called '%s', so '%s' cannot be used")
          :format(name, option) }
    end
  end
  local arg_shapes, _, aux_shapes = sym:infer_shape(shapes)
  local arg_types, _, aux_types = sym:infer_type(seed_types(a, sym, names))
  if not arg_shapes or not arg_types then
    Error.raise{ code = arg_shapes and "dtype" or "shape", func = func,
      argument = names.arguments[1],
      candidates = names.arguments, message = "what is given does not decide all arguments" }
  end
  local reqs, grads = reqs_for(a.grad_req, names.arguments, func), {}
  for i, grad in ipairs(zeros(arg_shapes, arg_types, a.ctx._device, func)) do
    grads[i] = reqs[i] ~= C.TY_NULL and grad or null
  end
  return binding.bind(sym, {
    ctx = a.ctx, args = zeros(arg_shapes, arg_types, a.ctx._device, func), args_grad = grads,
    grad_req = a.grad_req, aux_states = zeros(aux_shapes, aux_types, a.ctx._device, func),
    group2ctx = a.group2ctx,
    force_mirroring = a.force_mirroring, memory_budget = a.memory_budget, dry_run = a.dry_run,
  })
end


-- "simple_bind error with data (2, 5): "
local function given_text(shapes)
  local parts = {}
  for _, name in ipairs(attrs.keys(shapes)) do
    parts[#parts + 1] = name .. " " .. Error.show(shapes[name])
  end
  return ("simple_bind error with %s: ")
    :format(#parts > 0 and table.concat(parts, ", ") or "no shapes")
end


--- Binds arrays that are made for the given shapes; see the top of the file.
-- @param sym the symbol
-- @param ... arguments of `Symbol:simple_bind`
function binding.simple_bind(sym, ...)
  local a, func = SIMPLE(...), "Symbol:simple_bind"
  a.ctx = a.ctx or context.current_context()
  local _, _, count, names = symbol._graph(sym, func)
  local shapes = binding.shapes(a.named, a.shapes, names, func)
  check_storage_types(a, names, func)
  check_request_size(a, func)
  local twice = repeated(names)
  if twice then
    return simple_by_place(a, sym, names, shapes, twice, func)
  end
  local wants, nwant = fill_wants(a, sym, names, shapes, func)
  local graph, heads = symbol._resolved(sym, wants, nwant, func)
  local places, nplace = places_of(a.group2ctx, func)
  local bag = a.shared_buffer and bag_of(a.shared_buffer, func)
  local spec, out = simple_spec(), exec_out()
  spec.head, spec.nhead, spec.want, spec.nwant = heads, count, wants, nwant
  spec.place, spec.nplace, spec.device, spec.req = places, nplace, a.ctx._device, C.TY_NULL
  spec.flags, spec.budget = flags_of(a), a.memory_budget or 0
  spec.buffer, spec.shared = bag, a.shared_exec and a.shared_exec.handle
  binding.call(function()
    return C.ty_exec_simple_bind(graph, spec, out)
  end, func, sym, shapes, given_text(shapes))
  local result = made(out[0], sym, a, names)
  if bag then
    refresh_buffer(a.shared_buffer, bag)
  end
  result.args, result.grads, result.auxs = binding.arrays_of(result.handle, names, candidates_of(a))
  return result
end


return binding
