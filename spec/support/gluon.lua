-- Helpers for specs of layers: inputs by formula, comparison of arrays and traces, gradients.

local ty = require "tycho"

local gluon = {}


--- Returns an array of pseudo-random numbers between -1 and 1 that are equal in every run.
-- @tparam {int,...} shape
-- @string[opt="float64"] dtype
-- @number[opt=1] seed
function gluon.form(shape, dtype, seed)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  local list = {}
  for i = 1, n do
    list[i] = math.sin(i * 12.9898 + (seed or 1) * 78.233) * 43758.5453 % 2 - 1
  end
  return ty.nd.array(list, { dtype = dtype or "float64" }):reshape(shape)
end


--- Fills the parameters of a block by formula: variances positive, gammas near 1.
-- @param block initialized, with known shapes
function gluon.fill(block)
  for i, p in ipairs(block:collect_params():values()) do
    local x = gluon.form(p.shape, p.dtype, 100 + i)
    if p.name:find("var$") or p.name:find("gamma$") then
      x = 1 + 0.3 * x
    end
    p:set_data(x * 0.7)
  end
  return block
end


--- Initializes a block, casts it to float64, runs it once and fills it.
function gluon.prepare(block, ...)
  block:initialize()
  block:cast("float64")
  block(...)
  return gluon.fill(block)
end


-- Returns the largest difference of two arrays.
local function difference(a, b)
  return (a - b):abs():max():asscalar()
end


--- Checks a layer: values are equal on arrays and traced, in training mode and outside it, and the
-- gradients of inputs agree with numeric ones.
-- @param assert
-- @param block
-- @tparam {NDArray,...} xs inputs, float64
-- @bool[opt] skip_gradient
function gluon.verify(assert, block, xs, skip_gradient)
  gluon.prepare(block, unpack(xs))
  local function outputs()
    local plain = block(unpack(xs))
    local trained = ty.autograd.record(function() return block(unpack(xs)) end)
    return plain, trained
  end
  local plain, trained = outputs()
  if not skip_gradient then
    ty.test_utils.check_gradient{ function(...) return block(...) end, xs, rtol = 1e-4 }
  end
  gluon.fill(block)
  block:hybridize()
  local h_plain, h_trained = outputs()
  assert.is_true(difference(plain, h_plain) < 1e-10)
  assert.is_true(difference(trained, h_trained) < 1e-10)
  if not skip_gradient then
    ty.test_utils.check_gradient{ function(...) return block(...) end, xs, rtol = 1e-4 }
  end
  return plain
end


return gluon
