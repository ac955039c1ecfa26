--- Binds an executor of a group and decides which arrays and which memory it shares. These
-- functions read the fields of groups (module/executor_group.lua).
--
-- Groups share, for each device: args, grads and auxs by name, a buffer for each other input
-- (executors use its first elements), and `base`, the executor whose memory pool all others use.
--
-- @module tycho.module.shared_arrays

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local executor = require "tycho.executor.executor"
local symbol = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local null, value, is_plain = values.null, values.value, values.is_plain

local shared_arrays = {}

local FUNC = "Module:bind"                               -- who usually makes groups, for errors


-- Devices -----------------------------------------------------------------------------------------

local function fail_contexts(n, expected)
  Error.raise{ code = "value", func = FUNC, argument = "group2ctxs", expected = expected, got = n,
    message = "'group2ctxs' does not fit the number of contexts" }
end


--- Returns one table group -> context for each device, from a list of such tables or from one table
-- group -> context or list of contexts.
-- @tparam ?table given
-- @int n number of devices
function shared_arrays.group_contexts(given, n)
  local list = {}
  if not value(given) then
    return list
  elseif #given > 0 then
    if #given ~= n then
      fail_contexts(#given, n)
    end
    return given
  end
  for i = 1, n do
    list[i] = {}
  end
  for group, ctxs in pairs(given) do
    ctxs = is_plain(ctxs) and ctxs or { ctxs }
    if #ctxs ~= 1 and #ctxs ~= n then
      fail_contexts(#ctxs, "1 or " .. n)
    end
    for i = 1, n do
      list[i][group] = ctxs[i] or ctxs[1]
    end
  end
  return list
end


-- Returns the device of each variable whose group has a context, by name.
local function find_devices(self, i)
  local contexts, devices = self._group2ctxs[i], {}
  for name, attrs in pairs(contexts and self._attrs or {}) do
    local ctx = contexts[attrs.__ctx_group__ or attrs.ctx_group or false]
    devices[name] = ctx and ctx._device
  end
  return devices
end


-- Arrays ------------------------------------------------------------------------------------------

--- Returns an empty set of arrays for one device. `wanting` holds, for each gradient, the set of
-- groups that use it; `states` is for module/group_states.lua.
function shared_arrays.new()
  return { args = {}, grads = {}, auxs = {}, buffers = {}, wanting = {}, states = {} }
end


local function zeros(want)
  return class.keep((call.zeros(want.shape, args.DTYPES[want.dtype], want.device, FUNC)))
end


local function fail_shared(name, code, expected, got)
  Error.raise{ code = code, func = FUNC, argument = name, expected = expected, got = got,
    message = ("'%s' does not agree with the array that is shared"):format(name) }
end


-- Returns a parameter, its gradient or an auxiliary state; it is made if it does not exist. An
-- existing one of another shape or type is an error.
local function shared_array(store, want)
  local x = store[want.name]
  if not x then
    x = zeros(want)
    store[want.name] = x
  elseif not tables.same(x._shape, want.shape) then
    fail_shared(want.name, "shape", x.shape, want.shape)
  elseif x.dtype ~= want.dtype then
    fail_shared(want.name, "dtype", x.dtype, want.dtype)
  end
  return x
end


-- Returns the array of an input: the first elements of the buffer of that name. A buffer that is
-- too small is replaced.
local function buffer_array(shared, key, want)
  local x, size = shared.buffers[key], tables.product(want.shape)
  if not x or x._size < size or x.dtype ~= want.dtype or x._device ~= want.device then
    x = zeros(want)
    shared.buffers[key] = x
  end
  return tables.same(x._shape, want.shape) and x or class.view(x, want.shape, 0, FUNC)
end


-- Binding -----------------------------------------------------------------------------------------

-- Returns the option that would give the shape of an argument, as text; nil if no option would.
local function missing_option(self, name)
  if tables.positions(self._label_arguments)[name] then
    return "'label_shapes'"
  elseif name:find("label$") then
    return "its name in the module's 'label_names', and 'label_shapes'"
  end
end


-- Raises E(shape) or E(dtype) for the first argument whose shape or type is unknown.
local function fail_incomplete(self, kind, list, is_known)
  for i, name in ipairs(self.arg_names) do
    if not is_known(list[i]) then
      local option = missing_option(self, name)
      Error.raise{ code = kind, func = FUNC, argument = name,
        expected = option, got = option and "nothing",
        candidates = not option and self.arg_names or nil,
        message = ("the %s of '%s' does not follow from the given inputs%s"):format(kind, name,
          option and ("; give %s"):format(option) or "") }
    end
  end
end


local function infer_shapes(self, shapes)
  local arg_shapes, _, aux_shapes = self._bound_symbol:infer_shape_partial(shapes)
  fail_incomplete(self, "shape", arg_shapes, tables.is_known)
  return arg_shapes, aux_shapes
end


-- Returns the types of arguments and auxiliary states, inferred from those of the inputs; float32
-- for arguments whose type does not follow.
local function infer_types(self, types)
  local found = self._bound_symbol:infer_type_partial(types)
  local given = {}
  for i, name in ipairs(self.arg_names) do
    given[name] = types[name] or found[i] == null and "float32" or nil
  end
  local arg_types, _, aux_types = self._bound_symbol:infer_type(given)
  return arg_types, aux_types
end


-- Returns `{name, shape, dtype}` of every argument and auxiliary state, by separate inference of
-- shapes and types.
local function infer_slowly(self, shapes, types)
  local arg_shapes, aux_shapes = infer_shapes(self, shapes)
  local arg_types, aux_types = infer_types(self, types)
  local found = { arguments = {}, auxiliary = {} }
  for k, name in ipairs(self.arg_names) do
    found.arguments[k] = { name = name, shape = arg_shapes[k], dtype = arg_types[k] }
  end
  for k, name in ipairs(self._bound_symbol:list_auxiliary_states()) do
    found.auxiliary[k] = { name = name, shape = aux_shapes[k], dtype = aux_types[k] }
  end
  return found
end


-- Returns the type of an input: that of a data variable if it has one, else that of the
-- description.
local function input_type(self, d, is_data)
  local code = is_data and self._attrs[d.name] and tonumber(self._attrs[d.name].__dtype__)
  return code and code >= 0 and args.DTYPE_NAMES[code] or d.dtype
end


-- Returns the shapes, with the rows of `range`, and the types of inputs by name.
local function describe_inputs(self, data, labels, range)
  local shapes, types = {}, {}
  for _, part in ipairs{ data, labels or {} } do
    for _, d in ipairs(part) do
      if not self._is_arg[d.name] then
        Error.unknown{ func = FUNC, argument = d.name, what = "input", names = self.arg_names }
      end
      local shape, axis = tables.copied(d.shape), descriptions.batch_axis(d)
      if axis >= 0 and shape[axis + 1] then
        shape[axis + 1] = range[2] - range[1]
      end
      shapes[d.name], types[d.name] = shape, input_type(self, d, part == data)
    end
  end
  return shapes, types
end


-- Returns the gradient of a parameter, and records that the group uses it.
local function gradient_array(self, shared, want)
  local groups = shared.wanting[want.name] or setmetatable({}, { __mode = "k" })
  shared.wanting[want.name], groups[self] = groups, true
  return shared_array(shared.grads, want)
end


--- Frees the gradients that no group uses any more.
-- @param self group
-- @tparam table shared
function shared_arrays.drop_gradients(self, shared)
  for _, name in ipairs(self.param_names) do
    local groups = shared.wanting[name]
    if groups and self._reqs[name] == "null" then
      groups[self] = nil
      shared.grads[name] = next(groups) and shared.grads[name] or nil
    end
  end
end


-- Returns the array and the gradient of an argument; `ty.null` for a gradient that is not
-- requested.
local function argument_arrays(self, shared, want)
  local is_param, req = self._is_param[want.name], self._reqs[want.name]
  local x = is_param and shared_array(shared.args, want)
    or not is_param and buffer_array(shared, want.name, want)
  if req == "null" then
    return x, null
  end
  return x, is_param and gradient_array(self, shared, want)
    or buffer_array(shared, "grad of " .. want.name, want)
end


-- Returns the array of an auxiliary state: the group's, the optimizer's, the loss scale's, or a new
-- one for this executor.
local function auxiliary_array(self, shared, want)
  if self._is_aux[want.name] then
    return shared_array(shared.auxs, want)
  end
  return self._fusion and self._fusion.find_array(want.name, shared.args)
    or self._loss_scale and self._loss_scale:find_array(want.name, want.device) or zeros(want)
end


-- Returns the arrays of arguments, gradients and auxiliary states of device i.
local function bind_arrays(self, i, shapes, types)
  local shared, own, devices = self._shared[i], self.contexts[i]._device, find_devices(self, i)
  local found = symbol._find_variables(self._bound_symbol, shapes, types)
    or infer_slowly(self, shapes, types)
  local list, grads, auxs = {}, {}, {}
  for k, want in ipairs(found.arguments) do
    want.device = devices[want.name] or own
    list[k], grads[k] = argument_arrays(self, shared, want)
  end
  for k, want in ipairs(found.auxiliary) do
    want.device = devices[want.name] or own
    auxs[k] = auxiliary_array(self, shared, want)
  end
  return list, grads, auxs
end


--- Binds an executor on device i for its range of the batch.
-- @param self group
-- @int i number of the device, from 1
-- @tparam {DataDesc,...} data
-- @tparam ?{DataDesc,...} labels
-- @tparam {int,int} range of rows, {begin, end} from 0, the end excluded
function shared_arrays.bind(self, i, data, labels, range)
  local list, grads, auxs = bind_arrays(self, i, describe_inputs(self, data, labels, range))
  local shared, reqs = self._shared[i], {}
  for k, name in ipairs(self.arg_names) do
    reqs[k] = self._reqs[name]
  end
  local exe = executor.bind(self._bound_symbol, { ctx = self.contexts[i], args = list,
    args_grad = self.for_training and grads or nil, grad_req = self.for_training and reqs or "null",
    aux_states = auxs, group2ctx = self._group2ctxs[i], shared_exec = shared.base,
    memory_budget = self._memory_budget, force_mirroring = self._force_mirroring,
    precision = self._precision })
  shared.base = shared.base or exe
  return exe
end


return shared_arrays
