--- The arrays of an executor: those bound to arguments, gradients and auxiliary states, and the
-- outputs.
--
-- @module tycho.executor.arrays

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local null = require("tycho.core.values").null

local C, check = native.C, native.check

local arrays = {}

local int_out, tensor_out, rows_out =
  ffi.new("int[1]"), ffi.new("ty_tensor *[1]"), ffi.new("int64_t[1]")


-- Bound -------------------------------------------------------------------------------------------

local NONE = {}

-- Returns the wrapper of an array of the new executor: one that exists (in the shared
-- executor or buffer), or a new one.
local function wrapper(tensor, candidates)
  for _, x in ipairs(candidates or NONE) do
    if class.is_array(x) and C.ty_tensor_same(x._h, tensor) ~= 0 then
      return x
    end
  end
  C.ty_tensor_keep(tensor)
  return class.own(tensor)                               -- counts its bytes for the collector
end


--- Returns the arrays that the core's executor is bound to.
-- @param handle `ty_exec *`
-- @tparam table names {arguments, auxiliary}
-- @tparam ?function before (kind, name) -> list of arrays that may be the same
-- @treturn table args, grads, auxs
function arrays.bound(handle, names, before)
  local out, lists = tensor_out, {}
  for kind, get in pairs{ args = C.ty_exec_arg, grads = C.ty_exec_grad, auxs = C.ty_exec_aux } do
    local list = {}
    for i, name in ipairs(kind == "auxs" and names.auxiliary or names.arguments) do
      check(get(handle, name, out), "Executor")
      list[i] = out[0] ~= nil and wrapper(out[0], before and before(kind, name)) or null
    end
    lists[kind] = list
  end
  return lists.args, lists.grads, lists.auxs
end


--- Returns whether the core computes the gradient of an argument: not if its request is null, even
-- if an array was given.
function arrays.has_gradient(handle, name)
  check(C.ty_exec_grad(handle, name, tensor_out), "Executor")
  return tensor_out[0] ~= nil
end


-- Outputs -----------------------------------------------------------------------------------------

--- Returns the outputs. In a dry run they have only shapes; a head that is an absent argument is
-- null.
-- @param handle `ty_exec *`
-- @bool dry
function arrays.outputs(handle, dry)
  local list = {}
  check(C.ty_exec_outputs(handle, int_out), "Executor")
  for i = 1, int_out[0] do
    local found = C.ty_exec_output(handle, i - 1, tensor_out) == 0
    list[i] = found and (dry and class.outline or class.borrow)(tensor_out[0]) or null
  end
  return list
end


-- Returns the number of rows of output i (from 1) that the last run filled; nil if the number is
-- fixed.
local function filled_rows(handle, i, func)
  check(C.ty_exec_rows(handle, i - 1, rows_out), func)
  return rows_out[0] >= 0 and tonumber(rows_out[0]) or nil
end


--- Returns the outputs whose number of rows is known only after a run (`contrib.boolean_mask`):
-- position -> the array with the largest number of rows; nil if there are none.
function arrays.dynamic_outputs(handle, outputs)
  local dynamic = {}
  for i = 1, #outputs do
    dynamic[i] = outputs[i] ~= null and filled_rows(handle, i, "Executor") and outputs[i] or nil
  end
  return next(dynamic) and dynamic
end


--- Resizes outputs with a dynamic number of rows to the rows that the run has filled.
-- @param exe Executor
-- @param handle `ty_exec *`
-- @string func for errors
function arrays.fit_outputs(exe, handle, func)
  for i, whole in pairs(exe._dynamic) do
    local rows = filled_rows(handle, i, func)
    if rows == 0 then
      Error.raise{ code = "value", func = func, argument = exe._names.outputs[i],
        expected = "at least one row", got = 0,
        message = "no row is chosen, and an array without elements does not exist" }
    end
    exe._outputs[i] = class.keep(whole:slice_axis{ axis = 0, begin = 0, ["end"] = rows })
  end
end


return arrays
