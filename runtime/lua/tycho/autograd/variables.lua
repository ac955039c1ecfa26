--- `mark_variables`: variables whose gradients go to given arrays.
--
-- @module tycho.autograd.variables

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local gradients = require "tycho.ndarray.gradients"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local variables = {}

local function listed(v, func, argument)
  local list = class.is_array(v) and { v } or v
  if not values.is_plain(list) then
    Error.raise{ code = "type", func = func, argument = argument,
      expected = "an NDArray or a list of them", got = Error.kind(v), message = "bad arrays" }
  end
  for _, x in ipairs(list) do
    if not class.is_array(x) then
      Error.raise{ code = "type", func = func, argument = argument,
        expected = "an NDArray or a list of them", got = Error.kind(x), message = "bad arrays" }
    end
  end
  return list
end


local function check_gradient(x, grad, i, func)
  local differs = x._dtype ~= grad._dtype and "dtype" or x._device ~= grad._device and "device"
    or not tables.same(x._shape, grad._shape) and "shape"
  if differs then
    local field = differs == "device" and "context" or differs
    Error.raise{ code = differs, func = func, argument = "gradients", expected = x[field],
      got = grad[field], message = ("gradient %d does not fit its variable"):format(i) }
  end
end


local NULL = gradients.request("null")

local MARK = args.form("autograd.mark_variables", { { "variables", "any" },
  { "gradients", "any" }, "*", { "grad_reqs", "any", "write" } })

--- Makes arrays variables whose gradients go to given arrays.
-- @param variables array or list
-- @param gradients array or list, of the same shapes, types and devices
-- @tparam[opt] table options grad_reqs = "write", for all or a list
function variables.mark_variables(...)
  local a, func = MARK(...), "autograd.mark_variables"
  local list, grads = listed(a.variables, func, "variables"), listed(a.gradients, func, "gradients")
  local requests = type(a.grad_reqs) == "table" and a.grad_reqs
  if #list ~= #grads or requests and #requests ~= #list then
    Error.raise{ code = "shape", func = func, argument = #list ~= #grads and "gradients"
      or "grad_reqs", expected = #list, got = #list ~= #grads and #grads or #requests,
      message = "one is needed for each variable" }
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
