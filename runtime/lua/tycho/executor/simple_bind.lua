--- `Symbol:simple_bind`: an executor on arrays that are made for given shapes.
--
-- @module tycho.executor.simple_bind

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local ffi = require "ffi"
local args = require "tycho.core.args"
local arrays = require "tycho.executor.arrays"
local attrs = require "tycho.core.attrs"
local bind_args = require "tycho.executor.bind_args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local files = require "tycho.ndarray.files"
local graph = require "tycho.symbol.graph"
local handles = require "tycho.executor.handle"
local log = require "tycho.core.log"
local values = require "tycho.core.values"

local C = require("tycho.core.ffi").C
local is_plain, null = values.is_plain, values.null

local want_array, simple_spec = ffi.typeof("ty_want[?]"), ffi.typeof("ty_simple_spec")


local SIMPLE = args.form("Symbol:simple_bind", {
  rest = "named", { "ctx", "context?" }, "*", { "grad_req", "text|table|null", "write" },
  { "type_dict", "dict?" }, { "stype_dict", "dict?" }, { "group2ctx", "dict?" },
  { "shared_arg_names", "list?" }, { "shared_exec", "executor?" }, { "shared_buffer", "dict?" },
  { "shapes", "dict?" }, { "arg_ctx", "table?" }, { "grad_ctx", "table?" },
  { "aux_ctx", "table?" }, { "force_mirroring", "boolean?" }, { "memory_budget", "number?" },
  { "dry_run", "boolean", false }, { "precision", "text?" },
})


-- Returns element type codes by name. If type_dict is given and empty, no type is assumed, so that
-- all types must follow from the graph.
local function list_types(a, sym, names, func)
  local codes = {}
  bind_args.check_names(a.type_dict, names, func)
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
  bind_args.check_names(a.stype_dict, names, func)
  for name, stype in pairs(a.stype_dict or {}) do
    if stype ~= "default" then
      Error.raise{ code = "unsupported", func = func, argument = name, expected = "default",
        got = stype,
        message = ("sparse storage ('%s') is not part of Tycho"):format(tostring(stype)) }
    end
  end
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


-- Fills in one `want` of the core per argument and auxiliary state, in this order.
local function fill_wants(a, sym, names, shapes, func)
  local types, shared = list_types(a, sym, names, func), shared_set(a, func)
  local reqs = bind_args.requests(a.grad_req, names.arguments, func)
  local arg_at, grad_at = bind_args.devices(a.arg_ctx, names.arguments, "arg_ctx", func),
    bind_args.devices(a.grad_ctx, names.arguments, "grad_ctx", func)
  local aux_at = bind_args.devices(a.aux_ctx, names.auxiliary, "aux_ctx", func)
  local nargs = #names.arguments
  local wants = want_array(nargs + #names.auxiliary + 1)
  for i = 1, nargs + #names.auxiliary do
    local want, name = wants[i - 1], names.arguments[i] or names.auxiliary[i - nargs]
    bind_args.put_shape(want.desc, shapes[name])
    want.name = name
    want.desc.dtype = types[name] or C.TY_NODTYPE
    want.req = reqs[i] or C.TY_NULL
    want.device = (i <= nargs and arg_at or aux_at)[name] or -1
    want.grad_device = grad_at[name] or -1
    want.shared = shared[name] and 1 or 0
  end
  return wants, nargs + #names.auxiliary
end


-- Returns the shared buffer for the core, with sorted entries, so that all runs bind equally.
local function native_buffer(buffer, func)
  local list = {}
  for name, x in pairs(buffer) do
    list[#list + 1] = { name, bind_args.check_array(x, tostring(name), "shared_buffer", func) }
  end
  table.sort(list, function(p, q) return p[1] < q[1] end)
  return files.named_arrays(list, func)
end


-- Copies the entries of the core's buffer to the caller's table; unchanged entries stay the same
-- objects.
local function refresh_buffer(buffer, held)
  local names, list = files.unpacked(held)
  for i, name in ipairs(names) do
    local old, new = buffer[name], list[i]
    if not old or C.ty_tensor_same(old._h, new._h) == 0 then
      if old then
        log:warning(("simple_bind: '%s' of shared_buffer, %s, is too small for %s; \z
          a larger array replaces it, which executors bound before do not share. \z
          Bind the largest shapes first"):format(name, Error.show(old._shape),
          Error.show(new._shape)))
      end
      buffer[name] = class.keep(new)
    end
  end
end



local DICTS = { args = "arg_dict", grads = "grad_dict", auxs = "aux_dict" }
local KEYS = { args = "", grads = "grad of " }


-- Returns a function that lists the arrays that the core may reuse, those of the shared executor
-- and buffer; nil if there are neither.
local function make_candidates(a)
  return (a.shared_exec or a.shared_buffer) and function(kind, name)
    local shared = a.shared_exec and a.shared_exec[DICTS[kind]]
    local list = { shared and shared[name] }
    list[#list + 1] = KEYS[kind] and a.shared_buffer and a.shared_buffer[KEYS[kind] .. name] or nil
    return list
  end
end


-- Names that occur twice --------------------------------------------------------------------------

-- Returns the first name that several variables share.
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
    list[i] = call.zeros(shape, args.DTYPES[dtypes[i]], device, func)
  end
  return list
end


-- Returns element types for inference: the given ones, else float32 for variables without a type.
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


-- Binds with arrays made here, one for each variable. Used if several variables have one name,
-- since the core finds arrays by name; raises E(name) if an option is given that names arrays.
local function bind_in_order(a, sym, names, shapes, name, func)
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
      argument = names.arguments[1], candidates = names.arguments,
      message = "what is given does not decide all arguments" }
  end
  local reqs, grads = bind_args.requests(a.grad_req, names.arguments, func), {}
  for i, grad in ipairs(zeros(arg_shapes, arg_types, a.ctx._device, func)) do
    grads[i] = reqs[i] ~= C.TY_NULL and grad or null
  end
  return require("tycho.executor.bind")(sym, {
    ctx = a.ctx, args = zeros(arg_shapes, arg_types, a.ctx._device, func), args_grad = grads,
    grad_req = a.grad_req, aux_states = zeros(aux_shapes, aux_types, a.ctx._device, func),
    group2ctx = a.group2ctx, force_mirroring = a.force_mirroring,
    memory_budget = a.memory_budget, dry_run = a.dry_run, precision = a.precision,
  })
end


local MOST_SHAPES = 10                                   -- that an error lists

-- Returns the beginning of an error's message: "simple_bind error with data (2, 5): ".
local function given_text(shapes)
  local parts, names = {}, attrs.keys(shapes)
  for i = 1, math.min(#names, MOST_SHAPES) do
    parts[i] = names[i] .. " " .. Error.show(shapes[names[i]])
  end
  if #names > MOST_SHAPES then
    parts[#parts + 1] = ("%d more"):format(#names - MOST_SHAPES)
  end
  return ("simple_bind error with %s: ")
    :format(#parts > 0 and table.concat(parts, ", ") or "no shapes")
end


--- Binds arrays that are made for the given shapes.
-- @param sym the symbol
-- @param ... arguments of `Symbol:simple_bind`
-- @treturn table as `bind`
return function(sym, ...)
  local a, func, names = SIMPLE(...), "Symbol:simple_bind", graph.names(sym)
  a.ctx = a.ctx or context.current_context()
  local shapes = bind_args.shapes(a.named, a.shapes, names, func)
  check_storage_types(a, names, func)
  check_request_size(a, func)
  local twice = repeated(names)
  if twice then
    return bind_in_order(a, sym, names, shapes, twice, func)
  end
  local wants, nwant = fill_wants(a, sym, names, shapes, func)
  local built = graph.resolved(sym, wants, nwant, func, "float32")
  local buffer = a.shared_buffer and native_buffer(a.shared_buffer, func)
  local spec = simple_spec()
  bind_args.put_common(spec, a, built, func)
  spec.want, spec.nwant, spec.req, spec.buffer = wants, nwant, C.TY_NULL, buffer
  local handle = handles.make(function(out)
    return C.ty_exec_simple_bind(built.handle, spec, out)
  end, func, sym, shapes, given_text(shapes))
  local made = bind_args.result(handle, sym, a, names)
  if buffer then
    refresh_buffer(a.shared_buffer, buffer)
  end
  made.args, made.grads, made.auxs = arrays.bound(handle, names, make_candidates(a))
  return made
end
