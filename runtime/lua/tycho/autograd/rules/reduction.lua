--- Rules of reductions over axes.
--
-- @module tycho.autograd.rules.reduction

local nd = require "tycho.ndarray"

local reduction = { rules = {}, expansions = {} }
local rules, expansions = reduction.rules, reduction.expansions

-- Returns an output in the shape that it would have with keepdims.
local function keep_axes(s, v)
  local shape, given, named = { unpack(s.x[1].shape) }, s.p.axis, {}
  given = type(given) == "number" and { given } or given or {}
  for _, axis in ipairs(given) do
    named[axis < 0 and axis + #shape or axis] = true
  end
  for k = 1, #shape do
    if #given == 0 or (named[k - 1] or false) ~= (s.p.exclude or false) then
      shape[k] = 1
    end
  end
  return v:reshape(shape)
end


local function get_both(s)
  return keep_axes(s, s.g[1]), keep_axes(s, s.y[1]), s.x[1]
end


function rules.sum(s)
  return { nd.broadcast_like(keep_axes(s, s.g[1]), s.x[1]) }
end

function rules.mean(s)
  local x = s.x[1]
  return { nd.broadcast_like(keep_axes(s, s.g[1] * (s.y[1].size / x.size)), x) }
end

function rules.max(s)
  local g, y, x = get_both(s)
  return { g * nd.equal(x, y) }
end

rules.min = rules.max

function rules.prod(s)
  local g, y, x = get_both(s)
  return { g * (y / x) }
end

function rules.nanprod(s)
  local g, y, x = get_both(s)
  return { nd.where(nd.equal(x, x), g * (y / x), nd.zeros_like(x)) }
end

function rules.nansum(s)
  local x = s.x[1]
  return { nd.where(nd.equal(x, x), nd.broadcast_like(keep_axes(s, s.g[1]), x), nd.zeros_like(x)) }
end

function rules._square_sum(s)
  return { keep_axes(s, s.g[1]) * (2 * s.x[1]) }
end

function rules.norm(s)
  local g, y, x = get_both(s)
  return { s.p.ord == 1 and g * nd.sign(x) or g * (x / y) }
end

function expansions.moments(s)
  local x, axes = s.x[1], s.p.axes
  local mean = x:mean{ axis = axes or {}, keepdims = true }
  local variance = nd.square(x - mean):mean{ axis = axes or {}, keepdims = true }
  return { mean:reshape(s.y[1].shape), variance:reshape(s.y[2].shape) }
end

return reduction
