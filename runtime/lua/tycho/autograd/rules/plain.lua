--- Rules of linear operators and products whose gradients are one or two calls. Unlike those of
-- rules/linear.lua, which serves the other cases, they record no Lua function and compute nothing
-- twice.
--
-- @module tycho.autograd.rules.plain

local linear = require "tycho.autograd.rules.linear"
local nd = require "tycho.ndarray"

local plain = { rules = {} }
local rules = plain.rules

-- Shapes ------------------------------------------------------------------------------------------

local function reshape_gradient(s)
  return { s.g[1]:reshape(s.x[1].shape) }
end

rules.Reshape, rules.Flatten, rules.reshape_like =
  reshape_gradient, reshape_gradient, reshape_gradient
rules.expand_dims, rules.squeeze = reshape_gradient, reshape_gradient

function rules.transpose(s)
  local axes, back = s.p.axes, {}
  for k = 1, axes and #axes or 0 do
    back[axes[k] % #axes + 1] = k - 1
  end
  return { nd.transpose(s.g[1], { axes = back }) }
end

function rules.SwapAxis(s)
  return { nd.SwapAxis(s.g[1], { dim1 = s.p.dim1, dim2 = s.p.dim2 }) }
end

local function unspread_gradient(s)
  return { s:reduced(s.g[1], 1) }
end

rules.broadcast_to, rules.broadcast_axis, rules.broadcast_like =
  unspread_gradient, unspread_gradient, unspread_gradient

function rules.Concat(s)
  local axis, at, grads = s.p.dim % s.x[1].ndim, 0, {}
  for i, x in ipairs(s.x) do
    local n = x.shape[axis + 1]
    grads[i] = s.wanted[i] and s.g[1]:slice_axis{ axis = axis, begin = at, ["end"] = at + n }
    at = at + n
  end
  return grads
end


-- Products ----------------------------------------------------------------------------------------

-- Returns the gradients of a and b in y = alpha op(a) op(b), computed with `multiply`, the operator
-- of y. alpha is nil for an operator without that parameter.
local function multiply_gradients(multiply, s, alpha)
  local a, b, g, ta, tb = s.x[1], s.x[2], s.g[1], s.p.transpose_a, s.p.transpose_b
  local of_a, of_b
  if s.wanted[1] then
    of_a = ta and multiply{ b, g, transpose_a = tb, transpose_b = true, alpha = alpha }
      or multiply{ g, b, transpose_b = not tb, alpha = alpha }
  end
  if s.wanted[2] then
    of_b = tb and multiply{ g, a, transpose_a = true, transpose_b = ta, alpha = alpha }
      or multiply{ a, g, transpose_a = not ta, alpha = alpha }
  end
  return { of_a, of_b }
end


function rules.dot(s)
  if s.x[1].ndim ~= 2 or s.x[2].ndim ~= 2 then
    return linear.gradients(s, "lhs rhs")
  end
  return multiply_gradients(nd.dot, s)
end

function rules.batch_dot(s)
  return multiply_gradients(nd.batch_dot, s)
end

function rules._linalg_gemm2(s)
  if s.p.axis and s.p.axis ~= -2 then
    return linear.gradients(s, "A B")
  end
  return multiply_gradients(nd._linalg_gemm2, s, s.p.alpha)
end

function rules.FullyConnected(s)
  local x, weight = s.x[1], s.x[2]
  local g = s.g[1]:reshape{ -1, weight.shape[1] }
  return {
    s.wanted[1] and nd.dot(g, weight):reshape(x.shape),
    s.wanted[2] and nd.dot(g, x:reshape{ -1, weight.shape[2] }, { transpose_a = true })
      :reshape(weight.shape),
    s.wanted[3] and g:sum{ axis = 0 },
  }
end

return plain
