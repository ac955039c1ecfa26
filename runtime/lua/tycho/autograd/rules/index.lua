--- Rules of operators that select elements.
--
-- @module tycho.autograd.rules.index

local nd = require "tycho.ndarray"

local index = { expansions = {} }
local expansions = index.expansions

-- Returns the elements of x at positions along an axis.
-- @tparam NDArray x
-- @tparam NDArray positions int64; along other axes as x
-- @int axis from 0
function index.along(x, positions, axis)
  local shape, rows = positions.shape, {}
  for k = 1, #shape do
    local one = {}
    for m = 1, #shape do
      one[m] = m == k and shape[m] or 1
    end
    rows[k] = k - 1 == axis and positions or nd.arange(0, shape[k],
      { dtype = "int64", ctx = x.context }):reshape(one):broadcast_to(shape)
  end
  return nd.gather_nd(x, nd.stack(rows, { axis = 0 }))
end


-- Returns the data and the axis, from 0; for axis = None the data as a vector, and 0.
local function get_line(s)
  local x, axis = s.x[1], s.p.axis
  if axis == nil then
    return x:reshape{ -1 }, 0
  end
  return x, axis % x.ndim
end


function expansions.sort(s)
  local x, axis = get_line(s)
  local positions = nd.argsort(x, { axis = axis, is_ascend = s.p.is_ascend, dtype = "int64" })
  return { index.along(x, positions, axis) }
end

function expansions.topk(s)
  if s.p.ret_typ == "indices" or s.p.ret_typ == "mask" then
    return {}
  end
  local x, axis = get_line(s)
  local positions = nd.topk(x, { axis = axis, k = s.p.k, is_ascend = s.p.is_ascend,
    ret_typ = "indices", dtype = "int64" })
  return { index.along(x, positions, axis) }
end

-- Returns the second output, the log-probabilities of the samples, which exists with `get_prob`
-- only.
function expansions._sample_multinomial(s)
  local x, drawn = s.x[1], s.y[1]
  if not s.p.get_prob then
    return {}
  end
  local n = x.shape[x.ndim]
  local rows = x:reshape{ -1, n }
  local positions = drawn:astype("int64"):reshape{ rows.shape[1], -1 }
  return { false, nd.log(index.along(rows, positions, 1)):reshape(s.y[2].shape) }
end

return index
