--- Executors: a bound graph that runs forward and backward.
--
--     local exe = net:simple_bind{ctx = ty.cpu(), data = {32, 784}}
--     exe.arg_dict.fc1_weight[":"] = 0.1
--     local out = exe:forward{is_train = true, data = batch}[1]
--     exe:backward()
--     exe.grad_dict.fc1_weight:totable()
--
-- `forward` and `backward` return at once; reading an array waits. Arrays that were bound are used,
-- not copied, and the lists and dictionaries hold the same objects. Lists count from 1 in the order
-- of list_arguments, list_auxiliary_states and list_outputs.
--
-- Fields: handle, arg_arrays, grad_arrays (nil without gradients at bind), aux_arrays,
-- outputs, and arg_dict, grad_dict, aux_dict, output_dict, which are built on first
-- use and refuse duplicate names.
--
-- @module tycho.executor

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local arrays = require "tycho.executor.arrays"
local attrs = require "tycho.core.attrs"
local bind_args = require "tycho.executor.bind_args"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local named = require "tycho.core.dict"
local Error = require "tycho.core.error"
local graph = require "tycho.symbol.graph"
local handles = require "tycho.executor.handle"
local inputs = require "tycho.executor.inputs"
local counted_from_1 = require "tycho.core.list"
local simple_bind = require "tycho.executor.simple_bind"
local symbol = require "tycho.symbol.symbol"
local values = require "tycho.core.values"
require "tycho.ndarray"                                  -- completes the class of arrays

local C, handle_of, null = native.C, handles.of, values.null

local executor = {}

local Symbol = symbol.Symbol
--- A bound graph with its arrays; made by `Symbol:bind` and `Symbol:simple_bind`.
local Executor = Class:extend("Executor")
executor.Executor = Executor
args.class("executor", Executor)

for _, part in ipairs{ require "tycho.executor.run", require "tycho.executor.query" } do
  for name, method in pairs(part) do
    Executor[name] = method
  end
end


-- Making ------------------------------------------------------------------------------------------

-- Returns an executor from the fields that binding made.
local function create(made)
  local outputs = arrays.outputs(made.handle, made.dry_run)
  local function keep(arrays_of)
    return arrays_of and counted_from_1(class.keep(arrays_of))
  end
  return setmetatable({
    _handle = made.handle, _symbol = made.symbol, _snapshot = made.snapshot, _ctx = made.ctx,
    _grad_req = made.grad_req, _group2ctx = made.group2ctx, _names = made.names,
    _dry = made.dry_run, _arg_arrays = keep(made.args), _aux_arrays = keep(made.auxs),
    _grad_arrays = keep(made.grads), _outputs = keep(outputs),
    _dynamic = not made.dry_run and arrays.dynamic_outputs(made.handle, outputs) or false,
  }, Executor)
end


--- Returns an executor on given arrays: what `Symbol:bind` calls.
--
-- Options: ctx = current, args (list or dictionary, all arguments), args_grad = nil (no
-- gradients), grad_req = "write" ("write", "add", "null", a list or a dictionary), aux_states,
-- group2ctx, shared_exec, force_mirroring, memory_budget (bytes), dry_run = false (plans,
-- allocates nothing; arrays may be absent), precision ("highest", "high", "medium"; see
-- `tycho.precision`).
-- @param sym the symbol
-- @treturn Executor
function executor.bind(sym, ...)
  return create(require("tycho.executor.bind")(sym, ...))
end


--- Returns an executor on zero-filled arrays made for the given shapes: what `Symbol:simple_bind`
-- calls.
--
-- Options: ctx = current, a shape for each input by name (or in `shapes = {...}`), grad_req,
-- type_dict, group2ctx, arg_ctx, grad_ctx, aux_ctx, shared_arg_names, shared_exec, shared_buffer
-- (filled in place), force_mirroring, memory_budget, dry_run, precision.
-- @param sym the symbol
-- @treturn Executor
function executor.simple_bind(sym, ...)
  return create(simple_bind(sym, ...))
end


local EXECUTOR = args.form("Executor", {
  { "handle", "any" }, { "symbol", "symbol" }, { "ctx", "context" }, { "grad_req", "any", "write" },
  { "group2ctx", "dict?" },
})

-- Constructs Executor{handle, symbol, ctx, grad_req, group2ctx}: the object takes over a handle of
-- the core. Raises E(type) for another kind of handle.
local function construct(_, ...)
  local a = EXECUTOR(...)
  if not (type(a.handle) == "cdata" and ffi.istype("ty_exec *", a.handle)) then
    Error.raise{ code = "type", func = "Executor", argument = "handle", expected = "ty_exec *",
      got = Error.kind(a.handle),
      message = "bad 'handle'; executors are made by Symbol:bind and Symbol:simple_bind" }
  end
  local sym = a.symbol:copy()
  local names = { arguments = sym:list_arguments(), auxiliary = sym:list_auxiliary_states(),
    outputs = sym:list_outputs() }
  local made = { handle = a.handle, symbol = sym, ctx = a.ctx, grad_req = a.grad_req,
    group2ctx = a.group2ctx, names = names }
  made.args, made.grads, made.auxs = arrays.bound(a.handle, names)
  return create(made)
end

setmetatable(Executor, { __index = Class, __call = construct, __tostring = function()
  return "<class Executor>"
end })


-- Fields ------------------------------------------------------------------------------------------

--- Returns a dictionary of names and arrays; entries of `ty.null` are left out. A name
-- that occurs twice is E(name).
-- @tparam {string,...} names
-- @tparam {NDArray,...} list
function Executor._get_dict(names, list)
  local dict, seen = named{}, {}
  for i, name in ipairs(names) do
    if seen[name] then
      Error.raise{ code = "name", func = "Executor", argument = name,
        message = ("'%s' occurs twice among the names, so there is no dictionary of them; \z
          use the list"):format(name) }
    end
    seen[name] = true
    dict[name] = values.value(list and list[i])
  end
  return dict
end


-- Returns the gradients that are computed, `ty.null` for others: an argument whose request is null
-- has none, even if an array was given.
local function live_grads(self)
  local list = {}
  for i, name in ipairs(self._names.arguments) do
    local grad = values.value(self._grad_arrays and self._grad_arrays[i])
    list[i] = grad and arrays.has_gradient(self._handle, name) and grad or null
  end
  return list
end


-- field -> raw field
local FIELDS = {
  handle     = "_handle",      arg_arrays = "_arg_arrays",  grad_arrays = "_grad_arrays",
  aux_arrays = "_aux_arrays",  outputs    = "_outputs",     arg_dict    = "_arg_dict",
  grad_dict  = "_grad_dict",   aux_dict   = "_aux_dict",    output_dict = "_output_dict",
}

-- field -> names, list: built on first use
local DICTS = {
  arg_dict    = { "arguments", function(self) return self._arg_arrays end },
  grad_dict   = { "arguments", live_grads },
  aux_dict    = { "auxiliary", function(self) return self._aux_arrays end },
  output_dict = { "outputs",   function(self) return self._outputs end },
}


local function member_names()
  local names = attrs.keys(FIELDS)
  for name in pairs(Executor) do
    names[#names + 1] = name:sub(1, 1) ~= "_" and name or nil
  end
  return names
end


local function make_field(self, key)
  local value = rawget(self, FIELDS[key])
  if value == nil and not rawget(self, "_handle") then
    handles.fail_freed("Executor")
  elseif value == nil and DICTS[key] then
    local row = DICTS[key]
    value = Executor._get_dict(self._names[row[1]], row[2](self))
    rawset(self, FIELDS[key], value)
  end
  return value
end


-- Returns a copy of the symbol as it was when bound; made on demand, since few programs need it.
local function restore_symbol(self)
  rawset(self, "_symbol", Symbol._restored(rawget(self, "_snapshot")))
  return rawget(self, "_symbol")
end


function Executor.__index(self, key)
  local value = rawget(Executor, key)
  if value ~= nil then
    return value
  elseif FIELDS[key] then
    return make_field(self, key)
  elseif key == "_symbol" then
    return restore_symbol(self)
  elseif type(key) == "string" and key:sub(1, 1) == "_" then
    return Class[key]                                    -- private fields that are not set
  end
  Error.unknown{ func = "Executor", argument = key, what = "field or method",
    names = member_names() }
end


function Executor.__newindex(self, key, value)
  if type(key) == "string" and key:sub(1, 1) == "_" then
    rawset(self, key, value)
  elseif FIELDS[key] or rawget(Executor, key) ~= nil then
    Error.raise{ code = "state", func = "Executor", argument = key,
      message = ("'%s' is read-only"):format(key) }
  else
    Error.unknown{ func = "Executor", argument = key, what = "field", names = member_names() }
  end
end


--- Returns the list of outputs: `exe.outputs`.
function Executor:_get_outputs()
  return make_field(self, "outputs")
end


--- Frees the core's executor now. Bound arrays, outputs and a shared pool
-- live on; later use is E(state).
function Executor:free()
  if rawget(self, "_handle") then
    local handle = handles.idle(self, "Executor:free")
    for _, raw in pairs(FIELDS) do
      rawset(self, raw, nil)
    end
    C.ty_exec_free(ffi.gc(handle, nil))
  end
end


-- Copying and reshaping ---------------------------------------------------------------------------

local COPY = args.form("Executor:copy_params_from", {
  dict = true, { "arg_params", "dict" }, { "aux_params", "dict?" },
  { "allow_extra_params", "boolean", false },
})

--- Copies parameters into the bound arrays, converted to their element
-- types. Names may be missing.
-- @tparam table arg_params name -> array
-- @tparam[opt] table aux_params name -> array
-- @bool[opt=false] allow_extra_params names that the executor does not have
--   are ignored instead of E(name), which lists all in `extra`, and other shapes in `mismatch`
function Executor:copy_params_from(...)
  local func = "Executor:copy_params_from"
  handle_of(self, func)
  inputs.copy_params(self, COPY(...), func)
end


local RESHAPE = args.form("Executor:reshape", {
  rest = "named", "*", { "partial_shaping", "boolean", false },
  { "allow_up_sizing", "boolean", false }, { "shapes", "dict?" },
})

local KINDS = { args = "arg_arrays", grads = "grad_arrays", auxs = "aux_arrays" }


-- Returns the old executor's arrays by kind and name: a reshaped executor keeps the
-- objects that did not change.
local function old_arrays(self)
  local names = { args = self._names.arguments, grads = self._names.arguments,
    auxs = self._names.auxiliary }
  return function(kind, name)
    local list = {}
    for i, other in ipairs(self[KINDS[kind]] and names[kind] or {}) do
      list[#list + 1] = other == name and self[KINDS[kind]][i] or nil
    end
    return list
  end
end


-- Returns shapes by name as the core takes them, and their number.
local function make_wants(shapes)
  local names = attrs.keys(shapes)
  local wants = ffi.new("ty_want[?]", #names + 1)
  for i, name in ipairs(names) do
    bind_args.put_shape(wants[i - 1].desc, shapes[name])
    wants[i - 1].name = name
  end
  return wants, #names
end


--- Returns an executor for other shapes that shares memory with this one; the two must
-- not run at the same time.
--
-- Arrays that do not grow are views of the first elements of the old ones. Shapes of other names
-- must not change unless `partial_shaping` is set; an array must not grow unless `allow_up_sizing`
-- is set (it is then new, with undefined contents).
-- @tparam table options shapes by name (or in `shapes = {...}`), partial_shaping, allow_up_sizing
-- @treturn Executor
function Executor:reshape(...)
  local handle, func, a = handle_of(self, "Executor:reshape"), "Executor:reshape", RESHAPE(...)
  local shapes = bind_args.shapes(a.named, a.shapes, self._names, func)
  local wants, count = make_wants(shapes)
  local spec = ffi.new("ty_reshape_spec")
  spec.want, spec.nwant, spec.device = wants, count, -1
  spec.partial_shaping, spec.allow_up_sizing =
    a.partial_shaping and 1 or 0, a.allow_up_sizing and 1 or 0
  local built = graph.resolved(self._symbol, wants, count, func, "float32")
  native.check(C.ty_exec_regraph(handle, built.handle), func)
  local made = { symbol = self._symbol, ctx = self._ctx, grad_req = self._grad_req,
    group2ctx = self._group2ctx, names = self._names, dry_run = self._dry }
  made.handle = handles.make(function(out)
    return C.ty_exec_reshape(handle, spec, out)
  end, func, self._symbol, shapes)
  made.args, made.grads, made.auxs = arrays.bound(made.handle, self._names, old_arrays(self))
  made.grads = self.grad_arrays and made.grads
  local reshaped = create(made)
  reshaped:_take_monitor(self)
  return reshaped
end


-- Methods of symbols ------------------------------------------------------------------------------

--- Returns an executor on given arrays; see `ty.executor`.
function Symbol:bind(...)
  return executor.bind(self, ...)
end


--- Returns an executor on arrays made for the given shapes; see `ty.executor`.
function Symbol:simple_bind(...)
  return executor.simple_bind(self, ...)
end


local EVAL = args.form("Symbol:eval", { rest = "arrays", { "ctx", "context?" } })

--- Binds, runs forward once and returns the outputs.
-- @tparam table options ctx = current context, and every argument by name
-- @treturn {NDArray,...}
function Symbol:eval(...)
  local a = EVAL(...)
  local states = self:list_auxiliary_states()
  if #states > 0 then
    Error.raise{ code = "unsupported", func = "Symbol:eval", argument = states[1],
      message = "the symbol has auxiliary states; use bind or simple_bind" }
  end
  return self:bind{ ctx = a.ctx or context.current_context(), args = a.arrays }:forward()
end


return executor
