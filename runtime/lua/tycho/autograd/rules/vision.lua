--- Rules of pooling, of sampling of images, and of attention.
--
-- @module tycho.autograd.rules.vision

local index = require "tycho.autograd.rules.index"
local linear = require "tycho.autograd.rules.linear"
local nd = require "tycho.ndarray"

local vision = { rules = {}, expansions = {} }
local rules, expansions = vision.rules, vision.expansions

-- Pooling -----------------------------------------------------------------------------------------

-- Returns x with `before` elements of -inf in front of it along an axis, from 0, and then extended
-- by -inf, or cut, to n elements.
local function frame_axis(x, axis, before, n)
  local parts, size = {}, x.shape[axis + 1]
  local function frame(width)
    local shape = { unpack(x.shape) }
    shape[axis + 1] = width
    parts[#parts + 1] = width > 0 and nd.full(shape, -1 / 0, { dtype = x.dtype, ctx = x.context })
      or nil
  end
  frame(before)
  parts[#parts + 1] = x
  frame(n - before - size)
  local y = #parts == 1 and x or nd.Concat(parts, { dim = axis })
  return y.shape[axis + 1] > n and y:slice_axis{ axis = axis, begin = 0, ["end"] = n } or y
end


-- Returns the windows of x along a new first axis: entry k has element k of every window.
local function list_windows(s)
  local x, p, out = s.x[1], s.p, s.y[1].shape
  local n, stacked = x.ndim - 2, {}
  local first = p.layout and p.layout:sub(-1) == "C" and 1 or 2
  local kernel, stride, offset, total = {}, {}, {}, 1
  for k = 1, n do
    local axis = first + k - 1
    kernel[k] = p.global_pool and x.shape[axis + 1] or p.kernel[k]
    stride[k] = not p.global_pool and p.stride[k] or 1
    total = total * kernel[k]
    x = frame_axis(x, axis, not p.global_pool and p.pad[k] or 0,
      (out[axis + 1] - 1) * stride[k] + kernel[k])
  end
  for i = 0, total - 1 do
    local rest = i
    local from, to, step = {}, {}, {}
    for axis = 0, x.ndim - 1 do
      from[axis + 1], to[axis + 1], step[axis + 1] = 0, x.shape[axis + 1], 1
    end
    for k = n, 1, -1 do
      local at = first + k
      offset[k] = rest % kernel[k]
      rest = math.floor(rest / kernel[k])
      from[at], step[at] = offset[k], stride[k]
      to[at] = offset[k] + (out[at] - 1) * stride[k] + 1
    end
    stacked[i + 1] = x:slice{ begin = from, ["end"] = to, step = step }
  end
  return nd.stack(stacked, { axis = 0 })
end


-- Returns the largest element of each window. `pick` passes its gradient to the first of several
-- equal ones.
local function max_pooling(s)
  local all = list_windows(s)
  return nd.pick(all, nd.argmax(all, { axis = 0 }), { axis = 0 })
end


-- Returns the sums over windows from which an average or a norm is computed.
local function sum_windows(s, x)
  local p = s.p
  return nd[s.op]{ x, pool_type = "sum", kernel = p.kernel, stride = p.stride, pad = p.pad,
    global_pool = p.global_pool, pooling_convention = p.pooling_convention, layout = p.layout }
end


function rules.Pooling(s)
  local kind = s.p.pool_type
  if kind == "avg" or kind == "sum" then
    return linear.gradients(s, "data")
  elseif kind == "max" then
    return s:through{ max_pooling(s) }
  end
  local power = s.p.p_value or 2
  local sum = sum_windows(s, nd.power(nd.abs(s.x[1]), power))
  local empty = nd.equal(sum, 0)                         -- its root has no derivative
  return s:through{ nd.power(sum + empty, 1 / power) * (1 - empty) }
end

rules.Pooling_v1 = rules.Pooling


-- Sampling ----------------------------------------------------------------------------------------

-- Samples data (n, c, h, w) by linear interpolation at the positions in grid (n, 2, rows, columns),
-- x before y, both from -1 to 1.
local function sample_images(data, grid)
  local n, c, h, w = unpack(data.shape)
  local rows, columns = grid.shape[3], grid.shape[4]
  local function coordinate(k, size)
    local v = grid:slice_axis{ axis = 1, begin = k, ["end"] = k + 1 }
    return ((v + 1) * ((size - 1) / 2)):reshape{ n, 1, rows * columns }
  end
  local x, y = coordinate(0, w), coordinate(1, h)
  local flat, total = data:reshape{ n, c, h * w }, nil
  for dy = 0, 1 do
    for dx = 0, 1 do
      local at_x, at_y = nd.floor(x) + dx, nd.floor(y) + dy
      local weight = (1 - nd.abs(x - at_x)) * (1 - nd.abs(y - at_y))
      local inside = nd.greater_equal(at_x, 0) * nd.lesser(at_x, w)
        * nd.greater_equal(at_y, 0) * nd.lesser(at_y, h)
      local offset = nd.clip(at_y, 0, h - 1) * w + nd.clip(at_x, 0, w - 1)
      offset = offset:astype("int64"):broadcast_to{ n, c, rows * columns }
      local part = index.along(flat, offset, 2) * (weight * inside)
      total = total and total + part or part
    end
  end
  return total:reshape{ n, c, rows, columns }
end


function expansions.BilinearSampler(s)
  return { sample_images(s.x[1], s.x[2]) }
end

function expansions.SpatialTransformer(s)
  local grid = nd.GridGenerator{ s.x[2], transform_type = "affine",
    target_shape = s.p.target_shape }
  return { sample_images(s.x[1], grid) }
end

-- Returns the gradient of an affine transform by linearity. A flow is added to constant positions
-- and scaled, so its gradient is only scaled.
function rules.GridGenerator(s)
  if s.p.transform_type == "affine" then
    return linear.gradients(s, "data")
  end
  local h, w = s.x[1].shape[3], s.x[1].shape[4]
  local scale = nd.array({ 2 / (w - 1), 2 / (h - 1) }, { dtype = s.g[1].dtype,
    ctx = s.g[1].context })
  return { s.g[1] * scale:reshape{ 1, 2, 1, 1 } }
end

function rules.UpSampling(s)
  return linear.gradients(s, s.p.sample_type == "bilinear" and "data weight" or "*")
end

function rules.Correlation(s)
  if not s.p.is_multiply then
    s:unsupported()
  end
  return linear.gradients(s, "data1 data2")
end


-- Attention ---------------------------------------------------------------------------------------

-- Returns the products of queries and keys, which are interleaved with the values in one array
-- (length, batch, heads * 3 * width).
function expansions._contrib_interleaved_matmul_selfatt_qk(s)
  local x, heads = s.x[1], s.p.heads
  local length, batch = x.shape[1], x.shape[2]
  local parts = x:reshape{ length, batch, heads, 3, -1 }
  local function part(k)
    return parts:slice_axis{ axis = 3, begin = k, ["end"] = k + 1 }
      :reshape{ length, batch * heads, -1 }:transpose{ axes = { 1, 0, 2 } }
  end
  local queries = nd._contrib_div_sqrt_dim(part(0))
  return { nd.batch_dot{ queries, part(1), transpose_b = true } }
end

return vision
