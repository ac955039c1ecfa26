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

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local arrays = require "tycho.ndarray.class"
local attrs = require "tycho.core.attrs"
local binding = require "tycho.executor.bind"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local host = require "tycho.ndarray.transfer"
local run_custom = require "tycho.executor.custom"
local symbol = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local C, check = native.C, binding.check
local is_array, is_plain, null = arrays.is_array, values.is_plain, values.null

local executor = {}

local Executor = Class:extend("Executor")
executor.Executor = Executor
args.class("executor", Executor)


-- Making ------------------------------------------------------------------------------------------

local function keep_all(list)
  for i = 1, list and #list or 0 do
    if is_array(list[i]) then
      rawset(list[i], "_kept", true)                     -- ty.scope leaves it
    end
  end
  return list
end


local int_out, tensor_out, rows_out =
  ffi.new("int[1]"), ffi.new("ty_tensor *[1]"), ffi.new("int64_t[1]")

local function outputs_of(handle, dry)
  local n, out, list = int_out, tensor_out, {}
  check(C.ty_exec_outputs(handle, n), "Executor")
  local count = n[0]
  for i = 1, count do
    local code = C.ty_exec_output(handle, i - 1, out)
    if code == 0 then
      list[i] = dry and arrays.outline(out[0]) or arrays.borrow(out[0])
    else
      list[i] = null                                     -- an argument that a dry run left out
    end
  end
  return list
end


-- Rows of output i (from 1) that its last run filled; nil where that never changes.
local function rows_of(handle, i, func)
  local rows = rows_out
  check(C.ty_exec_rows(handle, i - 1, rows), func)
  return rows[0] >= 0 and tonumber(rows[0]) or nil
end


-- Outputs whose number of rows only a run knows (`contrib.boolean_mask`): place ->
-- the array with room for all.
local function roomy_outputs(handle, outputs, dry)
  local roomy = {}
  for i = 1, dry and 0 or #outputs do
    roomy[i] = outputs[i] ~= null and rows_of(handle, i, "Executor") and outputs[i] or nil
  end
  return next(roomy) and roomy
end


-- Gives such outputs the rows that the run has filled.
local function fit_rows(self, handle, func)
  for i, whole in pairs(self._roomy) do
    local rows = rows_of(handle, i, func)
    if rows == 0 then
      Error.raise{ code = "value", func = func, argument = self._names.outputs[i],
        expected = "at least one row", got = 0,
        message = "no row is chosen, and an array without elements does not exist" }
    end
    self._outputs[i] = whole:slice_axis{ axis = 0, begin = 0, ["end"] = rows }
  end
end


-- Fills an object with what binding made.
local function become(self, made)
  self._handle, self._symbol, self._ctx, self._grad_req =
    made.handle, made.symbol, made.ctx, made.grad_req
  self._snapshot = made.snapshot
  self._group2ctx, self._names, self._dry = made.group2ctx, made.names, made.dry_run
  self._arg_arrays, self._aux_arrays = keep_all(made.args), keep_all(made.auxs)
  self._grad_arrays = keep_all(made.grads)
  self._outputs = keep_all(outputs_of(made.handle, made.dry_run))
  self._roomy = roomy_outputs(made.handle, self._outputs, made.dry_run)
  return setmetatable(self, Executor)
end


--- An executor on given arrays: what `Symbol:bind` calls.
--
-- Options: ctx = current, args (list or dictionary, all arguments), args_grad = nil (no
-- gradients), grad_req = "write" ("write", "add", "null", a list or a dictionary), aux_states,
-- group2ctx, shared_exec, force_mirroring, memory_budget (bytes), dry_run = false (plans,
-- allocates nothing; arrays may be absent).
-- @param sym the symbol
-- @treturn Executor
function executor.bind(sym, ...)
  return become({}, binding.bind(sym, ...))
end


--- An executor on zero-filled arrays made for the given shapes: what `Symbol:simple_bind` calls.
--
-- Options: ctx = current, a shape for each input by name (or in `shapes = {...}`), grad_req,
-- type_dict, group2ctx, arg_ctx, grad_ctx, aux_ctx, shared_arg_names, shared_exec, shared_buffer
-- (filled in place), force_mirroring, memory_budget, dry_run.
-- @param sym the symbol
-- @treturn Executor
function executor.simple_bind(sym, ...)
  return become({}, binding.simple_bind(sym, ...))
end

executor._bind, executor._simple_bind = executor.bind, executor.simple_bind


--- Binds, runs forward once and gives the outputs: what `Symbol:eval` calls.
function executor._eval(sym, options)
  return executor.bind(sym, options):forward()
end


local EXECUTOR = args.form("Executor", {
  { "handle", "any" }, { "symbol", "symbol" }, { "ctx", "context" }, { "grad_req", "any", "write" },
  { "group2ctx", "dict?" },
})

local function nothing()
  return {}
end

-- Executor{handle, symbol, ctx, grad_req, group2ctx}: an object for a handle of
-- the core, which it takes over.
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
  made.args, made.grads, made.auxs = binding.arrays_of(a.handle, names, nothing)
  return become({}, made)
end

setmetatable(Executor, { __index = Class, __call = construct, __tostring = function()
  return "<class Executor>"
end })


-- Fields ------------------------------------------------------------------------------------------

--- A dictionary of names and arrays; places that hold `ty.null` are left out. A name
-- that occurs twice is E(name).
-- @tparam {string,...} names
-- @tparam {NDArray,...} list
function Executor._get_dict(names, list)
  local dict, seen = {}, {}
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


-- Gradients that are computed: an argument whose request is null has none, even if an array was
-- given.
local function live_grads(self)
  local list, out = {}, tensor_out
  for i, name in ipairs(self._names.arguments) do
    local grad = values.value(self._grad_arrays and self._grad_arrays[i])
    if grad then
      check(C.ty_exec_grad(self._handle, name, out), "Executor")
    end
    list[i] = grad and out[0] ~= nil and grad or null
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


local function fail_freed(func)
  Error.raise{ code = "state", func = func, message = "the executor was freed" }
end


local function field_of(self, key)
  local value = rawget(self, FIELDS[key])
  if value == nil and not rawget(self, "_handle") then
    fail_freed("Executor")
  elseif value == nil and DICTS[key] then
    local row = DICTS[key]
    value = Executor._get_dict(self._names[row[1]], row[2](self))
    rawset(self, FIELDS[key], value)
  end
  return value
end


-- The symbol as it was when bound; a copy, which few executors are asked for.
local function symbol_of(self)
  rawset(self, "_symbol", symbol._restored(rawget(self, "_snapshot")))
  return rawget(self, "_symbol")
end


function Executor.__index(self, key)
  local value = rawget(Executor, key)
  if value ~= nil then
    return value
  elseif FIELDS[key] then
    return field_of(self, key)
  elseif key == "_symbol" then
    return symbol_of(self)
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


--- The list of outputs: `exe.outputs`.
function Executor:_get_outputs()
  return field_of(self, "outputs")
end


local function handle_of(self, func)
  local handle = rawget(self, "_handle")
  if not handle then
    fail_freed(func)
  end
  return handle
end


--- Lets go of the core's executor now. Bound arrays, outputs and a shared pool
-- live on; later use is E(state).
function Executor:free()
  local handle = rawget(self, "_handle")
  if handle then
    for _, raw in pairs(FIELDS) do
      rawset(self, raw, nil)
    end
    C.ty_exec_free(ffi.gc(handle, nil))
  end
end


-- Running -----------------------------------------------------------------------------------------

local event = ffi.new("ty_event")


-- Reports a monitored value. The array is read-only and dies with the call.
local function report(self)
  local x = arrays.borrow(event.tensor)
  rawset(x, "_readonly", true)
  local ok, e = pcall(self._monitor_callback, native.text(event.name), x)
  arrays.drop(x)
  return not ok and e or nil
end


-- What happens between two parts of a run: a value to report, or an operator that is written in
-- Lua. Gives an error of the callback; a Lua operator's error ends the run.
local function act(self, handle, code, silent)
  check(C.ty_exec_event(handle, event), "Executor")
  if code == C.TY_EV_HOST then
    run_custom(self, event)
  elseif self._monitor_callback and not silent then
    return report(self)
  end
end


-- Goes on until the run is done. An error of the monitor's callback is raised then, so
-- that the executor stays usable.
local function drive(self, handle, code, func)
  local failed
  while code < 0 do
    failed = failed or act(self, handle, code, failed)
    code = C.ty_exec_resume(handle)
  end
  check(code, func)
  if failed then
    error(failed, 0)
  end
end


local function is_nested(v)
  return is_plain(v) and not values.has_names(v)
end


-- A value for a bound array, itself or made of a nested table; `what` and `advice`
-- stand around the name in errors.
local function fitting(bound, v, func, name, what, advice)
  if not is_array(v) and not is_nested(v) then
    Error.raise{ code = "type", func = func, argument = name,
      expected = "an NDArray or a nested table",
      got = Error.kind(v), message = ("bad value of %s'%s'"):format(what, name) }
  end
  local x = is_array(v) and v or host.from_table(v, bound._dtype, func, name)
  if not tables.same(x._shape, bound._shape) then
    Error.raise{ code = "shape", func = func, argument = name, expected = bound.shape,
      got = x.shape, message = ("%s'%s' has another shape%s"):format(what, name, advice) }
  end
  return x
end


-- Checks the arrays given to forward; nested tables become arrays.
local function given_arrays(self, given, func)
  local list, dict = {}, self.arg_dict
  for name, v in pairs(given) do
    local bound = dict[name]
    if not bound then
      Error.unknown{ func = func, argument = name, what = "argument",
        names = self._names.arguments }
    end
    list[#list + 1] = { bound,
      fitting(bound, v, func, name, "argument ", " than the bound array; exe:reshape changes it") }
  end
  return list
end


local FORWARD = args.form("Executor:forward", {
  rest = "named", { "is_train", "boolean", false }, { "args", "dict?" },
})

local function copy_inputs(self, a, func)
  if next(a.named) or a.args and next(a.args) then
    local given = a.args and {} or a.named
    for _, part in ipairs(a.args and { a.named, a.args } or {}) do
      for name, v in pairs(part) do
        given[name] = v
      end
    end
    for _, pair in ipairs(given_arrays(self, given, func)) do
      check(C.ty_tensor_copy(pair[1]._h, pair[2]._h), func)
    end
  end
end


--- Runs the graph forward.
-- @tparam[opt] table options is_train = false; arrays or nested tables by argument name (or in
--   `args = {...}`), copied into the bound arrays; all are checked before any is copied
-- @treturn {NDArray,...} `exe.outputs`
function Executor:forward(...)
  local handle, func = handle_of(self, "Executor:forward"), "Executor:forward"
  local is_train = ...
  if select("#", ...) > 1 or is_train ~= nil and type(is_train) ~= "boolean" then
    local a = FORWARD(...)
    copy_inputs(self, a, func)
    is_train = a.is_train
  end
  local code = C.ty_exec_forward(handle, is_train and 1 or 0)
  if code ~= 0 then
    drive(self, handle, code, func)
  end
  if self._roomy then
    fit_rows(self, handle, func)
  end
  return self._outputs
end


local BACKWARD = args.form("Executor:backward", {
  list = true, dict = true, { "out_grads", "any?" }, { "is_train", "boolean", true },
})

-- Head gradients as a list in output order: from nothing, an array, a list, or
-- a dictionary by output name.
local function head_list(self, given, func)
  if given == nil then
    return {}, 0
  elseif is_array(given) then
    return { given }, 1
  elseif not is_plain(given) then
    Error.raise{ code = "type", func = func, argument = "out_grads",
      expected = "an NDArray, a list or a dictionary of them",
      got = Error.kind(given), message = "bad 'out_grads'" }
  elseif #given > 0 or next(given) == nil then
    return given, #given
  end
  local list = {}
  for i, name in ipairs(self._names.outputs) do
    list[i] = given[name]
    if list[i] == nil then
      Error.raise{ code = "name", func = func, argument = name, expected = "an NDArray",
        got = "nothing", candidates = self._names.outputs,
        message = ("'out_grads' has no gradient for output '%s'"):format(name) }
    end
  end
  return list, #list
end


local function check_heads(list, n, func)
  for i = 1, n do
    local g = values.value(list[i])
    if g ~= nil and not is_array(g) then
      Error.raise{ code = "type", func = func, argument = "out_grads", expected = "NDArrays",
        got = Error.kind(g), message = ("entry %d of 'out_grads' is no NDArray"):format(i) }
    end
  end
end


--- Computes the gradients, into the arrays bound for them.
-- @param[opt] out_grads gradients of the outputs: an NDArray, a list (`ty.null`: not given), or a
--   dictionary by output name. Not needed for losses
-- @bool[opt=true] is_train false: gradients of the inference form (Dropout off,
--   BatchNorm with moving statistics)
function Executor:backward(...)
  local handle, func = handle_of(self, "Executor:backward"), "Executor:backward"
  local list, n, is_train = nil, 0, true
  if select("#", ...) > 0 then
    local a = BACKWARD(...)
    list, n = head_list(self, a.out_grads, func)
    check_heads(list, n, func)
    is_train = a.is_train
  end
  local heads
  if n > 0 then
    heads = ffi.new("ty_tensor *[?]", n)
    for i = 1, n do
      local g = values.value(list[i])
      heads[i - 1] = g and g._h
    end
  end
  drive(self, handle, C.ty_exec_backward(handle, heads, n, is_train and 1 or 0), func)
end


local PARTIAL = args.form("Executor:partial_forward",
  { { "step", "integer" }, { "is_train", "boolean", false } })

--- Runs node `step` (from 0; variables count) of the forward graph; steps in
-- order are the caller's affair.
-- @treturn int steps left
function Executor:partial_forward(...)
  local handle, a, left = handle_of(self, "Executor:partial_forward"),
    PARTIAL(...), ffi.new("int[1]")
  drive(self, handle, C.ty_exec_partial_forward(handle, a.is_train and 1 or 0, a.step, left),
    "Executor:partial_forward")
  return left[0]
end


local MONITOR = args.form("Executor:set_monitor_callback", {
  { "callback", "function|null?" }, { "monitor_all", "boolean", false },
})

--- Has `callback(name, array)` called for every node's outputs as they are computed, forward and
-- backward; with `monitor_all` for its inputs too, before it runs. The array is read-only and good
-- during the call. nil removes it.
function Executor:set_monitor_callback(...)
  local handle, a = handle_of(self, "Executor:set_monitor_callback"), MONITOR(...)
  local callback = values.value(a.callback)
  check(C.ty_exec_monitor(handle, not callback and C.TY_MON_OFF or a.monitor_all and C.TY_MON_ALL
    or C.TY_MON_OUT), "Executor:set_monitor_callback")
  self._monitor_callback = callback
end


-- Parameters --------------------------------------------------------------------------------------

local COPY = args.form("Executor:copy_params_from", {
  dict = true, { "arg_params", "dict" }, { "aux_params", "dict?" },
  { "allow_extra_params", "boolean", false },
})

local function check_params(params, dict, what, allow, list)
  local func = "Executor:copy_params_from"
  for name, v in pairs(params) do
    local bound = dict[name]
    if not bound and not allow then
      Error.unknown{ func = func, argument = name, what = what, names = attrs.keys(dict) }
    elseif bound then
      list[#list + 1] = { bound, fitting(bound, v, func, name, "", "") }
    end
  end
end


--- Copies parameters into the bound arrays, converted to their element
-- types. Missing names are fine.
-- @tparam table arg_params name -> array
-- @tparam[opt] table aux_params name -> array
-- @bool[opt=false] allow_extra_params names that the executor does not have
--   are ignored instead of E(name)
function Executor:copy_params_from(...)
  handle_of(self, "Executor:copy_params_from")
  local a, list = COPY(...), {}
  check_params(a.arg_params, self.arg_dict, "argument", a.allow_extra_params, list)
  check_params(a.aux_params or {}, self.aux_dict, "auxiliary state", a.allow_extra_params, list)
  for _, pair in ipairs(list) do
    check(C.ty_tensor_copy(pair[1]._h, pair[2]._h), "Executor:copy_params_from")
  end
end


-- Reshape -----------------------------------------------------------------------------------------

local RESHAPE = args.form("Executor:reshape", {
  rest = "named", "*", { "partial_shaping", "boolean", false },
  { "allow_up_sizing", "boolean", false }, { "shapes", "dict?" },
})

local KINDS = { args = "arg_arrays", grads = "grad_arrays", auxs = "aux_arrays" }


-- The old executor's arrays by kind and name: a reshaped executor keeps the
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


--- An executor for other shapes that shares memory with this one; the two are
-- not to run at the same time.
--
-- Arrays that do not grow are views of the first elements of the old ones. A shape that was not
-- named must not change unless `partial_shaping`; an array must not grow unless `allow_up_sizing`
-- (it is then new, contents undefined).
-- @tparam table options shapes by name (or in `shapes = {...}`), partial_shaping, allow_up_sizing
-- @treturn Executor
function Executor:reshape(...)
  local handle, func, a = handle_of(self, "Executor:reshape"), "Executor:reshape", RESHAPE(...)
  local shapes = binding.shapes(a.named, a.shapes, self._names, func)
  local names = attrs.keys(shapes)
  local wants = ffi.new("ty_want[?]", #names + 1)
  for i, name in ipairs(names) do
    binding.put_shape(wants[i - 1].desc, shapes[name])
    wants[i - 1].name = name
  end
  local spec, out = ffi.new("ty_reshape_spec"), ffi.new("ty_exec *[1]")
  spec.want, spec.nwant, spec.device = wants, #names, -1
  spec.partial_shaping, spec.allow_up_sizing =
    a.partial_shaping and 1 or 0, a.allow_up_sizing and 1 or 0
  check(C.ty_exec_regraph(handle, (binding.resolved(self._symbol, wants, #names, func))), func)
  binding.call(function()
    return C.ty_exec_reshape(handle, spec, out)
  end, func, self._symbol, shapes)
  local made = { handle = native.own(out[0], C.ty_exec_free), symbol = self._symbol,
    ctx = self._ctx, grad_req = self._grad_req, group2ctx = self._group2ctx,
    names = self._names, dry_run = self._dry }
  made.args, made.grads, made.auxs = binding.arrays_of(made.handle, self._names, old_arrays(self))
  made.grads = self.grad_arrays and made.grads
  local reshaped = become({}, made)
  reshaped._monitor_callback = self._monitor_callback
  return reshaped
end


-- Asking ------------------------------------------------------------------------------------------

local text_out = ffi.new("const char *[1]")

local function text_of(self, get, func)
  check(get(handle_of(self, func), text_out), func)
  return native.text(text_out[0])
end


--- The executor's own graph, forward and backward, as text; then the planned megabytes.
function Executor:debug_str()
  return text_of(self, C.ty_exec_print, "Executor:debug_str")
end


--- The instructions the graph was compiled to: kernels, reasons, places, shapes.
function Executor:program()
  return text_of(self, C.ty_exec_program, "Executor:program")
end


--- Checks the memory plan by a second algorithm; two values that overlap
-- while both live are E(internal).
-- @treturn bool true
function Executor:verify()
  check(C.ty_exec_verify(handle_of(self, "Executor:verify")), "Executor:verify")
  return true
end


--- The forward graph as it is run: equal subgraphs merged. Binds like any symbol.
-- @treturn Symbol
function Executor:get_optimized_symbol()
  local func, out = "Executor:get_optimized_symbol", ffi.new("ty_graph *[1]")
  check(C.ty_exec_optimized(handle_of(self, func), out), func)
  local graph = native.own(out[0], C.ty_graph_free)
  local heads, n = ffi.new("const ty_entry *[1]"), ffi.new("int[1]")
  check(C.ty_graph_heads(graph, heads, n), func)
  check(C.ty_graph_text(graph, heads[0], n[0], text_out), func)
  return symbol.load_json(native.text(text_out[0]))
end


-- Operators of the nodes by name, as debug_str lists them.
local function operators(self)
  local ops = {}
  for op, name in self:debug_str():gmatch("\nOp:(.-), Name=([^\n]*)") do
    ops[name] = op
  end
  return ops
end


-- Every planned value: where it lies and when it lives (instruction numbers).
local function planned_values(self)
  local v, list, ops = ffi.new("ty_value"), {}, operators(self)
  while C.ty_exec_value(self.handle, #list, v) == 0 do
    local node = native.text(v.node)
    list[#list + 1] = {
      name = native.text(v.name), node = node, op = ops[node], bytes = tonumber(v.bytes),
      offset = tonumber(v.offset), first = v.first, last = v.last,
      device = tostring(context.of_device(v.device)), alias_of = v.alias >= 0 and v.alias or nil,
    }
  end
  return list
end


-- Planned bytes per device.
local function device_bytes(self, list)
  local bytes = { [tostring(self._ctx)] = 0 }
  for _, v in ipairs(list) do
    bytes[v.device] = math.max(bytes[v.device] or 0, v.offset + v.bytes)
  end
  return bytes
end


-- `values` and `devices` cost a walk over the plan, so they are made when asked for.
local Memory, planner = {}, setmetatable({}, { __mode = "k" })

function Memory.__index(m, key)
  if key == "values" then
    rawset(m, "values", planned_values(planner[m]))
  elseif key == "devices" then
    rawset(m, "devices", device_bytes(planner[m], m.values))
  end
  return rawget(m, key)
end


--- What the plan needs, in bytes: planned, lower_bound, ratio, unshared, args, grads,
-- aux, outputs, pool (of all that share it), devices (planned bytes by device), values
-- (each value's place and life).
function Executor:memory()
  local m = ffi.new("ty_memory")
  check(C.ty_exec_memory(handle_of(self, "Executor:memory"), m), "Executor:memory")
  local planned, bound = tonumber(m.planned), tonumber(m.bound)
  local t = setmetatable({
    planned = planned, lower_bound = bound, ratio = bound > 0 and planned / bound or 1,
    unshared = tonumber(m.unshared), args = tonumber(m.args), grads = tonumber(m.grads),
    aux = tonumber(m.aux), outputs = tonumber(m.outputs), pool = tonumber(m.pool),
  }, Memory)
  planner[t] = self
  return t
end


--- Counters: allocations (0 after the first run), instructions, segments, runs, ns (with
-- `profile`).
function Executor:stats()
  local s = ffi.new("ty_stats")
  check(C.ty_exec_stats(handle_of(self, "Executor:stats"), s), "Executor:stats")
  return { allocations = tonumber(s.allocations), instructions = tonumber(s.instructions),
    segments = tonumber(s.segments),
    runs = tonumber(s.runs), ns = tonumber(s.ns) }
end


--- Times of the last run's instructions: list of `{op, node, bytes, ns}`. The
-- first call switches timing on.
function Executor:profile()
  local handle, func = handle_of(self, "Executor:profile"), "Executor:profile"
  local n = ffi.new("int[1]")
  check(C.ty_exec_profile(handle, nil, n), func)
  local samples, list = ffi.new("ty_sample[?]", n[0] + 1), {}
  check(C.ty_exec_profile(handle, samples, n), func)
  for i = 0, n[0] - 1 do
    local s = samples[i]
    list[i + 1] = { op = native.text(s.op), node = native.text(s.node),
      bytes = tonumber(s.bytes), ns = tonumber(s.ns) }
  end
  return list
end


local CHECK = args.form("Executor:check_numerics", { { "on", "boolean", true } })

--- Stops runs at the first node whose output holds NaN or an infinity: E(run) with the
-- node and its inputs' ranges.
-- @bool[opt=true] on
function Executor:check_numerics(...)
  local handle = handle_of(self, "Executor:check_numerics")
  check(C.ty_exec_check(handle, CHECK(...).on and 1 or 0), "Executor:check_numerics")
end


local function describe(lines, title, names, list)
  lines[#lines + 1] = "  " .. title
  for i, name in ipairs(names) do
    if i > 12 then
      lines[#lines + 1] = ("    ... %d in all"):format(#names)
      break
    end
    lines[#lines + 1] = ("    %-24s %s")
      :format(name, is_array(list[i]) and list[i]:summary() or "-")
  end
end


--- One screen: outputs, arguments, planned bytes, instructions.
function Executor.__tostring(self)
  if not rawget(self, "_handle") then
    return "<Executor freed>"
  end
  local lines, m, s = { "<Executor of " .. tostring(self._symbol) }, self:memory(), self:stats()
  describe(lines, "outputs", self._names.outputs, self.outputs)
  describe(lines, "arguments", self._names.arguments, self.arg_arrays)
  lines[#lines + 1] = ("  %d bytes planned, %d instructions in %d segments on %s"):format(
    m.planned, s.instructions, s.segments, tostring(self._ctx))
  return table.concat(lines, "\n") .. ">"
end


-- Of symbols --------------------------------------------------------------------------------------

local Symbol = symbol.Symbol

--- An executor on given arrays; see `ty.executor`.
function Symbol:bind(...)
  return executor.bind(self, ...)
end


--- An executor on arrays made for the given shapes; see `ty.executor`.
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
