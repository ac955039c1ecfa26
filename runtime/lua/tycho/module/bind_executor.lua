--- Binding one executor among several that share memory: `ty.executor_manager._bind_exec`.
--
-- @module tycho.module.bind_executor

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local executor = require "tycho.executor.executor"
local log = require "tycho.core.log"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local null = values.null

local FUNC = "executor_manager._bind_exec"

local BIND = args.form(FUNC, {
  { "sym", "symbol" }, { "ctx", "context" }, { "input_shapes", "dict" }, { "param_names", "list" },
  { "need_grad", "boolean|table", false }, { "base_exec", "executor?" },
  { "shared_data_arrays", "dict?" }, { "input_types", "dict?" }, { "logger", "any?" },
})


local function fail_shared(name, code, expected, got)
  Error.raise{ code = code, func = FUNC, argument = name, expected = expected, got = got,
    message = ("'%s' does not agree with the executor whose memory is shared"):format(name) }
end


-- Returns the set of names whose gradients are computed.
local function wanted_grads(a)
  local wanted, params = {}, tables.positions(a.param_names)
  if a.need_grad == true then
    for _, name in ipairs(a.sym:list_arguments()) do
      wanted[name] = params[name] and not a.input_shapes[name] or nil
    end
  elseif a.need_grad then
    for key, v in pairs(a.need_grad) do
      wanted[type(key) == "number" and v or key] = true
    end
  end
  return wanted
end


local function fail_incomplete(a)
  Error.raise{ code = "shape", func = FUNC, argument = "input_shapes",
    candidates = a.sym:list_arguments(),
    message = "the given shapes do not decide those of all arguments" }
end


-- Returns the shapes of the arguments and auxiliary states, and their types; raises E(shape) if the
-- given shapes leave any open.
local function infer(a)
  local shapes, _, aux_shapes = a.sym:infer_shape_partial(a.input_shapes)
  for _, list in ipairs{ shapes, aux_shapes } do
    for _, shape in ipairs(list) do
      if not tables.is_known(shape) then
        fail_incomplete(a)
      end
    end
  end
  local types = {}
  for name in pairs(a.input_shapes) do
    types[name] = "float32"
  end
  local arg_types, _, aux_types = a.sym:infer_type(a.input_types or types)
  if not arg_types then
    Error.raise{ code = "dtype", func = FUNC, argument = "input_types",
      message = "the given types do not decide those of all arguments" }
  end
  return shapes, aux_shapes, arg_types, aux_types
end


local function zeros(shape, dtype, ctx)
  return call.zeros(shape, args.DTYPES[dtype], ctx._device, FUNC)
end


-- Returns an array of the base executor; raises an error if its name, shape or dtype does not fit.
local function of_base(dict, name, shape, dtype)
  local x = dict[name]
  if not x then
    fail_shared(name, "name", "an array of that name", "nothing")
  elseif not tables.same(x._shape, shape) then
    fail_shared(name, "shape", x.shape, shape)
  elseif x.dtype ~= dtype then
    fail_shared(name, "dtype", x.dtype, dtype)
  end
  return x
end


-- Returns the array of an input: the first elements of its shared buffer. A buffer that is too
-- small is replaced by a larger array.
local function input_array(a, name, shape, dtype)
  local shared, size = a.shared_data_arrays, tables.product(shape)
  local x = shared and shared[name]
  if x and x.dtype ~= dtype then
    fail_shared(name, "dtype", x.dtype, dtype)
  elseif x and x._size >= size then
    return tables.same(x._shape, shape) and x or class.view(x, shape, 0, FUNC)
  elseif x then
    (a.logger or log):warning(
      ("bucketing: the shared array '%s', %s, is too small for %s and is replaced")
        :format(name, Error.show(x._shape), Error.show(shape)))
  end
  x = zeros(shape, dtype, a.ctx)
  if shared then
    shared[name] = x
  end
  return x
end


-- Returns the array of an argument and of its gradient, `null` for a gradient that is not computed.
local function argument(a, name, shape, dtype, wanted)
  if not tables.positions(a.param_names)[name] then
    return input_array(a, name, shape, dtype), null
  elseif a.base_exec then
    return of_base(a.base_exec.arg_dict, name, shape, dtype),
      wanted[name] and of_base(a.base_exec.grad_dict, name, shape, dtype) or null
  end
  return zeros(shape, dtype, a.ctx), wanted[name] and zeros(shape, dtype, a.ctx) or null
end


--- Binds one executor. Inputs are in shared buffers; parameters and states are new, or those of
-- `base_exec`.
-- @tparam table options sym, ctx, input_shapes (by name), param_names, need_grad = false (true:
--   all parameters; or a list or set of names), base_exec, shared_data_arrays (by name; filled
--   in place), input_types, logger
-- @treturn Executor
local function bind_executor(...)
  local a = BIND(...)
  local wanted = wanted_grads(a)
  local shapes, aux_shapes, types, aux_types = infer(a)
  local list, grads, auxs, reqs = {}, {}, {}, {}
  for k, name in ipairs(a.sym:list_arguments()) do
    list[k], grads[k] = argument(a, name, shapes[k], types[k], wanted)
    reqs[k] = grads[k] ~= null and "write" or "null"
  end
  for k, name in ipairs(a.sym:list_auxiliary_states()) do
    auxs[k] = a.base_exec and of_base(a.base_exec.aux_dict, name, aux_shapes[k], aux_types[k])
      or zeros(aux_shapes[k], aux_types[k], a.ctx)
  end
  return executor.bind(a.sym, { ctx = a.ctx, args = list, args_grad = next(wanted) and grads or nil,
    grad_req = reqs, aux_states = auxs, shared_exec = a.base_exec })
end


return bind_executor
