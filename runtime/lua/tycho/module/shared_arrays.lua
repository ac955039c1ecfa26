--- How a group of executors is bound: what is requested of arguments, where arrays are, which
-- memory they share. For `module/executor_group.lua`, whose fields these functions read.
--
-- A bank holds the arrays of one device that groups have in common: args, grads and auxs by name, a
-- buffer for each other input (of which executors use the first elements), and `base`, the executor
-- whose memory pool all others use.
--
-- @module tycho.module.shared_arrays

jit.off(true, true)                                      -- pays no compilation: core/iterate.lua

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local executor = require "tycho.executor.executor"
local rows = require "tycho.module.batch_slices"
local symbol = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local null, value, is_plain = values.null, values.value, values.is_plain

local bank_of = {}

local FUNC = "mod.DataParallelExecutorGroup"


-- Requests ----------------------------------------------------------------------------------------

local WORDS = { write = true, add = true, null = true }

local function check_word(word, name)
  if not WORDS[word] then
    Error.raise{ code = "value", func = FUNC, argument = "grad_req",
      expected = "write, add or null", got = Error.kind(word),
      message = ("bad 'grad_req'%s"):format(name and " of '" .. name .. "'" or "") }
  end
  return word
end


-- The request of every argument when one word was given: parameters that are not
-- fixed, and data if asked for.
local function requests_by_kind(self, word)
  local params, fixed, data = tables.places(self.param_names),
    tables.places(self.fixed_param_names), tables.places(self.data_names)
  local reqs = {}
  for _, name in ipairs(self.arg_names) do
    local wanted = params[name] and not fixed[name] or data[name] and self.inputs_need_grad
    reqs[name] = wanted and word or "null"
  end
  return reqs
end


local function listed_requests(self, given)
  local reqs = {}
  if #given ~= #self.arg_names then
    Error.raise{ code = "value", func = FUNC, argument = "grad_req", expected = #self.arg_names,
      got = #given, message = "'grad_req' has not one entry for each argument" }
  end
  for i, name in ipairs(self.arg_names) do
    reqs[name] = check_word(given[i], name)
  end
  return reqs
end


--- The request of every argument, by name.
-- @param self group with arg_names, param_names, fixed_param_names, data_names,
--   for_training, inputs_need_grad
-- @param given word, list in argument order, or words by name
function bank_of.requests(self, given)
  if not self.for_training then
    return requests_by_kind(self, "null")
  elseif type(given) == "string" then
    return requests_by_kind(self, check_word(given))
  elseif #given > 0 then
    return listed_requests(self, given)
  end
  local reqs, known = requests_by_kind(self, "write"), tables.places(self.arg_names)
  for name, word in pairs(given) do
    if not known[name] then
      Error.unknown{ func = FUNC, argument = name, what = "argument in grad_req",
        names = self.arg_names }
    end
    reqs[name] = check_word(word, name)
  end
  return reqs
end


-- Placing -----------------------------------------------------------------------------------------

local function fail_places(n, expected)
  Error.raise{ code = "value", func = FUNC, argument = "group2ctxs", expected = expected, got = n,
    message = "'group2ctxs' does not fit the number of contexts" }
end


--- One table group -> context for each device, from a list of such tables or a table
-- group -> context or contexts.
-- @tparam ?table given
-- @int n number of devices
function bank_of.places(given, n)
  local list = {}
  if not value(given) then
    return list
  elseif #given > 0 then
    if #given ~= n then
      fail_places(#given, n)
    end
    return given
  end
  for i = 1, n do
    list[i] = {}
  end
  for group, ctxs in pairs(given) do
    ctxs = is_plain(ctxs) and ctxs or { ctxs }
    if #ctxs ~= 1 and #ctxs ~= n then
      fail_places(#ctxs, "1 or " .. n)
    end
    for i = 1, n do
      list[i][group] = ctxs[i] or ctxs[1]
    end
  end
  return list
end


-- Device of each variable by its group, where it is not the executor's own.
local function devices_of(self, i)
  local places, devices = self._group2ctxs[i], {}
  for name, attrs in pairs(places and self._attrs or {}) do
    local ctx = places[attrs.__ctx_group__ or attrs.ctx_group or false]
    devices[name] = ctx and ctx._device
  end
  return devices
end


-- Arrays ------------------------------------------------------------------------------------------

--- An empty bank. `wanting`: for each gradient the groups that have it, as a set.
function bank_of.new()
  return { args = {}, grads = {}, auxs = {}, buffers = {}, wanting = {} }
end


local function zeros(want)
  local x = call.zeros(want.shape, args.DTYPES[want.dtype], want.device, FUNC)
  rawset(x, "_kept", true)                               -- ty.scope leaves it
  return x
end


local function fail_shared(name, code, expected, got)
  Error.raise{ code = code, func = FUNC, argument = name, expected = expected, got = got,
    message = ("'%s' does not agree with the array that is shared"):format(name) }
end


-- A parameter, its gradient or an auxiliary state: the one that exists, or a new one.
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


-- The array of an input: the first elements of the buffer of that name,
-- which grows by being replaced.
local function buffer_array(bank, key, want)
  local x, size = bank.buffers[key], 1
  for _, n in ipairs(want.shape) do
    size = size * n
  end
  if not x or x._size < size or x.dtype ~= want.dtype or x._device ~= want.device then
    x = zeros(want)
    bank.buffers[key] = x
  end
  return tables.same(x._shape, want.shape) and x or class.view(x, want.shape, 0, FUNC)
end


-- Binding -----------------------------------------------------------------------------------------

local function fail_incomplete(self, kind, list, is_known)
  for i, name in ipairs(self.arg_names) do
    if not is_known(list[i]) then
      Error.raise{ code = kind, func = FUNC, argument = name, candidates = self.arg_names,
        message = ("the %s of '%s' does not follow from the given inputs"):format(kind, name) }
    end
  end
end


local function infer_shapes(self, shapes)
  local arg_shapes, _, aux_shapes = self._running:infer_shape_partial(shapes)
  fail_incomplete(self, "shape", arg_shapes, tables.is_known)
  return arg_shapes, aux_shapes
end


-- Types follow from those of the inputs; what does not is float32.
local function infer_types(self, types)
  local found = self._running:infer_type_partial(types)
  local given = {}
  for i, name in ipairs(self.arg_names) do
    given[name] = types[name] or found[i] == null and "float32" or nil
  end
  local arg_types, _, aux_types = self._running:infer_type(given)
  return arg_types, aux_types
end


-- `{name, shape, dtype}` of every argument and auxiliary state, asked for step by step.
local function infer_slowly(self, shapes, types)
  local arg_shapes, aux_shapes = infer_shapes(self, shapes)
  local arg_types, aux_types = infer_types(self, types)
  local found = { arguments = {}, auxiliary = {} }
  for k, name in ipairs(self.arg_names) do
    found.arguments[k] = { name = name, shape = arg_shapes[k], dtype = arg_types[k] }
  end
  for k, name in ipairs(self._running:list_auxiliary_states()) do
    found.auxiliary[k] = { name = name, shape = aux_shapes[k], dtype = aux_types[k] }
  end
  return found
end


-- The type of an input: its description's, unless it is data whose variable says its own.
local function input_type(self, d, is_data)
  local code = is_data and self._attrs[d.name] and tonumber(self._attrs[d.name].__dtype__)
  return code and code >= 0 and args.DTYPE_NAMES[code] or d.dtype
end


local function describe_inputs(self, data, labels, range)
  local shapes, types = {}, {}
  for _, part in ipairs{ data, labels or {} } do
    for _, d in ipairs(part) do
      if not self._is_arg[d.name] then
        Error.unknown{ func = FUNC, argument = d.name, what = "input", names = self.arg_names }
      end
      local shape, axis = tables.copied(d.shape), rows.axis(d)
      if axis >= 0 and shape[axis + 1] then
        shape[axis + 1] = range[2] - range[1]
      end
      shapes[d.name], types[d.name] = shape, input_type(self, d, part == data)
    end
  end
  return shapes, types
end


-- The gradient of a parameter, until no group has it any more.
local function gradient_array(self, bank, want)
  local groups = bank.wanting[want.name] or setmetatable({}, { __mode = "k" })
  bank.wanting[want.name], groups[self] = groups, true
  return shared_array(bank.grads, want)
end


--- Gives back the gradients that a group has no more and no other one has.
-- @param self group
-- @tparam table bank
function bank_of.drop_gradients(self, bank)
  for _, name in ipairs(self.param_names) do
    local groups = bank.wanting[name]
    if groups and self._reqs[name] == "null" then
      groups[self] = nil
      bank.grads[name] = next(groups) and bank.grads[name] or nil
    end
  end
end


-- Array and gradient of one argument.
local function argument_arrays(self, bank, want)
  local is_param, req = self._is_param[want.name], self._reqs[want.name]
  local x = is_param and shared_array(bank.args, want)
    or not is_param and buffer_array(bank, want.name, want)
  if req == "null" then
    return x, null
  end
  return x, is_param and gradient_array(self, bank, want)
    or buffer_array(bank, "grad of " .. want.name, want)
end


-- An auxiliary state: the group's, an optimizer's, or an executor's own (the rates of a learner).
local function auxiliary_array(self, bank, want)
  if self._is_aux[want.name] then
    return shared_array(bank.auxs, want)
  end
  return self._learned.array_of(want.name, bank.args) or zeros(want)
end


local function bind_arrays(self, i, shapes, types)
  local bank, own, devices = self._banks[i], self.contexts[i]._device, devices_of(self, i)
  local found = symbol._variables_of(self._running, shapes, types)
    or infer_slowly(self, shapes, types)
  local list, grads, auxs = {}, {}, {}
  for k, want in ipairs(found.arguments) do
    want.device = devices[want.name] or own
    list[k], grads[k] = argument_arrays(self, bank, want)
  end
  for k, want in ipairs(found.auxiliary) do
    want.device = devices[want.name] or own
    auxs[k] = auxiliary_array(self, bank, want)
  end
  return list, grads, auxs
end


--- An executor on device i for its range of the batch.
-- @param self group
-- @int i device
-- @tparam {DataDesc,...} data
-- @tparam ?{DataDesc,...} labels
-- @tparam {int,int} range
function bank_of.bind(self, i, data, labels, range)
  local list, grads, auxs = bind_arrays(self, i, describe_inputs(self, data, labels, range))
  local bank, reqs = self._banks[i], {}
  for k, name in ipairs(self.arg_names) do
    reqs[k] = self._reqs[name]
  end
  local exe = executor.bind(self._running, { ctx = self.contexts[i], args = list,
    args_grad = self.for_training and grads or nil, grad_req = self.for_training and reqs or "null",
    aux_states = auxs, group2ctx = self._group2ctxs[i], shared_exec = bank.base,
    memory_budget = self._memory_budget, force_mirroring = self._force_mirroring })
  bank.base = bank.base or exe
  for _, monitor in ipairs(self._monitors) do
    monitor:install(exe)
  end
  return exe
end


return bank_of
