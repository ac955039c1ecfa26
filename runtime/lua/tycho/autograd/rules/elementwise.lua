--- Element-wise operators whose gradient is no formula of the registry.
--
-- @module tycho.autograd.rules.elementwise

local formula = require "tycho.autograd.rules.formula"
local nd = require "tycho.ndarray"

local elementwise = { rules = {}, expansions = {} }
local rules, expansions = elementwise.rules, elementwise.expansions

local LEAKY = {
  leaky = formula.rule{ "y > 0 ? g : $slope * g" },
  elu = formula.rule{ "y > 0 ? g : g * ($slope + y)" },
  selu = formula.rule{ "y > 0 ? 1.0507009873554805 * g : g * (1.7580993408473766 + y)" },
  gelu = formula.rule{ "g * (0.5 * (1 + erf(a * 0.70710678118654752))"
    .. " + a * 0.39894228040143268 * exp(-0.5 * a * a))" },
  rrelu = function(s) return { nd.where(s.y[1]:greater(0), s.g[1], s.y[2] * s.g[1]) } end,
}

-- gamma along axis 1, as wide as data has axes
local function slopes(s)
  local shape = { unpack(s.x[2].shape) }
  local channels = #shape == 1 and s.x[1].ndim > 1
  for k = #shape + 1, s.x[1].ndim - (channels and 1 or 0) do
    shape[k] = 1
  end
  return s.x[2]:reshape(shape)
end

function rules.LeakyReLU(s)
  if s.p.act_type ~= "prelu" then
    return LEAKY[s.p.act_type](s)
  end
  local g, x, gamma, up = s.g[1], s.x[1], slopes(s), s.x[1]:greater(0)
  local wide = nd.broadcast_like(gamma, x)
  local by_gamma = nd.where(up, nd.zeros_like(x), x * g)
  for k = 0, x.ndim - 1 do
    local axis = x.ndim - 1 - k
    local d = gamma.shape[gamma.ndim - k] or 1
    if d == 1 and by_gamma.shape[axis + 1] ~= 1 then
      by_gamma = by_gamma:sum{ axis = axis, keepdims = true }
    end
  end
  return { nd.where(up, g, wide * g), by_gamma:reshape(s.x[2].shape) }
end

-- the second output is the mask, with its factor
function rules.Dropout(s)
  return { s.g[1] * s.y[2] }
end

-- slopes of floor and of a comparison are zero: these are as their formulas in the core
rules._scale_gradient = formula.rule{ "g * b" }

return elementwise
