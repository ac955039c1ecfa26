--- Rules of element-wise operators for which the registry has no gradient formulas.
--
-- @module tycho.autograd.rules.elementwise

local formula = require "tycho.autograd.rules.formula"
local nd = require "tycho.ndarray"

local elementwise = { rules = {} }
local rules = elementwise.rules

local LEAKY = {
  leaky = formula.rule{ "y > 0 ? g : $slope * g" },
  elu = formula.rule{ "y > 0 ? g : g * ($slope + y)" },
  selu = formula.rule{ "y > 0 ? 1.0507009873554805 * g : g * (1.7580993408473766 + y)" },
  gelu = formula.rule{ "g * (normcdf(a) + a * 0.39894228040143268 * exp(-0.5 * a * a))" },
  rrelu = function(s) return { nd.where(nd.greater(s.y[1], 0), s.g[1], s.y[2] * s.g[1]) } end,
}

-- If the slope is negative, the sign of the data does not follow from that of the result.
local FOLDED = {
  leaky = formula.rule{ "a > 0 ? g : $slope * g" },
  elu = formula.rule{ "a > 0 ? g : g * $slope * exp(a)" },
}

-- Returns gamma with as many axes as data: a vector becomes axis 1, other shapes start at axis 0;
-- other axes have size 1.
local function slopes(s)
  local shape, n = { unpack(s.x[2].shape) }, s.x[1].ndim
  if #shape == 1 and n > 1 then
    table.insert(shape, 1, 1)
  end
  for k = #shape + 1, n do
    shape[k] = 1
  end
  return s.x[2]:reshape(shape)
end

function rules.LeakyReLU(s)
  local kind = s.p.act_type
  if kind ~= "prelu" then
    return (s.p.slope < 0 and FOLDED[kind] or LEAKY[kind])(s)
  end
  local x = s.x[1]
  return s:through{ nd.where(nd.greater(x, 0), x, nd.broadcast_mul(x, slopes(s))) }
end

-- Multiplies by the second output, which is the mask times its factor.
function rules.Dropout(s)
  return { s.g[1] * s.y[2] }
end

return elementwise
