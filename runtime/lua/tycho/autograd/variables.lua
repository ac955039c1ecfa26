--- `mark_variables`: variables whose gradients go to given arrays.
--
-- @module tycho.autograd.variables

local args = require "tycho.core.args"
local Error = require "tycho.core.error"
local gradients = require "tycho.ndarray.gradients"
local list_arrays = require "tycho.autograd.list_arrays"
local tables = require "tycho.core.tables"

local variables = {}

-- Raises an error unless a gradient has the dtype, the device and the shape of variable i.
local function check_gradient(x, grad, i, func)
  local differs = x._dtype ~= grad._dtype and "dtype" or x._device ~= grad._device and "device"
    or not tables.same(x._shape, grad._shape) and "shape"
  if differs then
    local field = differs == "device" and "context" or differs
    Error.raise{ code = differs, func = func, argument = "gradients", expected = x[field],
      got = grad[field], message = ("gradient %d has another %s than variable %d"):format(i, field,
        i) }
  end
end


local NULL = gradients.request("null")

local MARK = args.form("autograd.mark_variables", { { "variables", "any" },
  { "gradients", "any" }, "*", { "grad_reqs", "any", "write" } })

--- Makes arrays variables whose gradients are written to given arrays.
-- @param variables array or list of arrays
-- @param gradients array or list of the same length, with the variables' shapes, dtypes and
--   devices; others are E(`shape`), E(`dtype`), E(`device`)
-- @tparam[opt] table options grad_reqs = "write": "write", "add" or "null", for all variables, or a
--   list with one for each
function variables.mark_variables(...)
  local a, func = MARK(...), "autograd.mark_variables"
  local list = list_arrays(a.variables, func, "variables")
  local grads = list_arrays(a.gradients, func, "gradients")
  local requests = type(a.grad_reqs) == "table" and a.grad_reqs
  if #list ~= #grads or requests and #requests ~= #list then
    Error.raise{ code = "shape", func = func, argument = #list ~= #grads and "gradients"
      or "grad_reqs", expected = #list, got = #list ~= #grads and #grads or #requests,
      message = ("there are %d variables, but %d %s"):format(#list, #list ~= #grads and #grads
        or #requests, #list ~= #grads and "gradients" or "grad_reqs") }
  end
  local wanted = {}
  for i, x in ipairs(list) do
    wanted[i] = gradients.request(requests and requests[i] or a.grad_reqs, func, "grad_reqs")
    check_gradient(x, grads[i], i, func)
  end
  for i, x in ipairs(list) do
    gradients.mark(x, wanted[i] ~= NULL and grads[i] or nil, wanted[i], func)
  end
end


return variables
