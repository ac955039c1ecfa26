--- The simple initializers; see `initializer/init.lua`. The comments say what `_init_weight`
-- writes. The fans of a weight of shape (out, in, ...) are in and out times the product of the
-- other sizes.
--
-- @module tycho.initializer.fill

local ffi = require "ffi"
local args = require "tycho.core.args"
local base = require "tycho.initializer.base"
local call = require "tycho.ndarray.call"
local Error = require "tycho.core.error"
local host = require "tycho.ndarray.transfer"
local random = require "tycho.ndarray.seed"

local kinds = {}


-- Constants ---------------------------------------------------------------------------------------

--- Zeros.
kinds.Zero = base.kind("Zero", {})
kinds.Zero._init_weight = base.Initializer._init_zero
base.registry.zeros = kinds.Zero

--- Ones.
kinds.One = base.kind("One", {})
kinds.One._init_weight = base.Initializer._init_one
base.registry.ones = kinds.One

--- One value, or an array of the right shape.
kinds.Constant = base.kind("Constant", { { "value", "number|array|table" } })

function kinds.Constant:_init_weight(_, x)
  x[":"] = self.value
end


-- Random numbers ----------------------------------------------------------------------------------

--- Uniform between -scale and scale.
kinds.Uniform = base.kind("Uniform", { { "scale", "number", 0.07 } })

function kinds.Uniform:_init_weight(_, x)
  random.uniform{ low = -self.scale, high = self.scale, out = x }
end


--- Normal with standard deviation sigma.
kinds.Normal = base.kind("Normal", { { "sigma", "number", 0.01 } })

function kinds.Normal:_init_weight(_, x)
  random.normal{ loc = 0, scale = self.sigma, out = x }
end


local function fans(name, x)
  local shape, rest = x.shape, 1
  if #shape < 2 then
    Error.raise{ code = "shape", func = "init.Xavier", argument = tostring(name),
      expected = "at least two dimensions",
      got = shape, message = "Xavier needs a weight of at least two dimensions" }
  end
  for i = 3, #shape do
    rest = rest * shape[i]
  end
  return shape[2] * rest, shape[1] * rest
end


local FACTORS = { "avg", "in", "out" }                   -- the fan that decides the scale

local function fill_xavier(self, desc, x)
  local fan_in, fan_out = fans(desc, x)
  local factors = { avg = (fan_in + fan_out) / 2, ["in"] = fan_in, out = fan_out }
  local scale = math.sqrt(self.magnitude / factors[self.factor_type])
  if self.rnd_type == "uniform" then
    random.uniform{ low = -scale, high = scale, out = x }
  else
    random.normal{ loc = 0, scale = scale, out = x }
  end
end


--- Random numbers scaled so that signals keep their size: s = sqrt(magnitude / fan), uniform
-- between -s and s or normal with s; the fan is that of the inputs, of the outputs or their mean.
-- Fewer than two dimensions are E(shape).
kinds.Xavier = base.kind("Xavier", {
  { "rnd_type", { "uniform", "gaussian" }, "uniform" }, { "factor_type", FACTORS, "avg" },
  { "magnitude", "number", 3 },
})
kinds.Xavier._init_weight = fill_xavier


local MSRA = args.form("init.MSRAPrelu",
  { { "factor_type", FACTORS, "avg" }, { "slope", "number", 0.25 } })

--- Xavier with normal numbers and magnitude 2 / (1 + slope ^ 2), for leaky rectifiers of that
-- slope.
kinds.MSRAPrelu = kinds.Xavier:extend("MSRAPrelu")
base.register(kinds.MSRAPrelu)

function kinds.MSRAPrelu:init(...)
  local a = MSRA(...)
  self.rnd_type, self.factor_type, self.magnitude = "gaussian", a.factor_type, 2 / (1 + a.slope ^ 2)
  self:_remember({ factor_type = a.factor_type, slope = a.slope }, MSRA:names())
end


-- Orthogonal matrices -----------------------------------------------------------------------------

-- Subtracts from vector i its parts along the earlier vectors; returns its length.
local function clear_parts(v, i, m)
  local at, sum = v + i * m, 0
  for j = 0, i - 1 do
    local other, dot = v + j * m, 0
    for k = 0, m - 1 do
      dot = dot + at[k] * other[k]
    end
    for k = 0, m - 1 do
      at[k] = at[k] - dot * other[k]
    end
  end
  for k = 0, m - 1 do
    sum = sum + at[k] * at[k]
  end
  return math.sqrt(sum)
end


-- Orthonormalizes n independent vectors of m >= n doubles in place. Parts along earlier vectors are
-- removed twice, which is enough against rounding.
local function orthonormalize(v, n, m)
  for i = 0, n - 1 do
    clear_parts(v, i, m)
    local length = clear_parts(v, i, m)
    for k = 0, m - 1 do
      v[i * m + k] = v[i * m + k] / length
    end
  end
end


local SAMPLERS = {
  uniform = function(shape)
    return random.uniform{ low = -1, high = 1, shape = shape, dtype = "float64" }
  end,
  normal = function(shape)
    return random.normal{ loc = 0, scale = 1, shape = shape, dtype = "float64" }
  end,
}


-- Returns the right singular vectors of a matrix with at least as many columns as rows, each times
-- its singular value.
local function turn(x)
  local func = "init.Orthogonal"
  local product = call.params("dot", func, { x, x }, { "transpose_b", "True" })
  local vectors = call.many("_linalg_syevd", func, { product }, 1, {}, {}, 2)[1]
  return call.params("dot", func, { vectors, x }, {})
end


--- Orthogonal rows (columns if there are more rows than columns) of length `scale`: the singular
-- vectors of a random matrix.
kinds.Orthogonal = base.kind("Orthogonal",
  { { "scale", "number", 1.414 }, { "rand_type", { "uniform", "normal" }, "uniform" } })

function kinds.Orthogonal:_init_weight(_, x)
  local sample = SAMPLERS[self.rand_type]
  local rows, columns = x.shape[1], x.size / x.shape[1]
  local n, m = math.min(rows, columns), math.max(rows, columns)
  local bytes = turn(sample{ n, m }):tostring_raw()
  local v = ffi.new("double[?]", n * m)
  ffi.copy(v, bytes, #bytes)
  orthonormalize(v, n, m)
  local q = host.from_string(ffi.string(v, #bytes), { n, m },
    args.DTYPES.float64, "init.Orthogonal")
  q = (rows > columns and q:transpose() or q) * self.scale
  call.copy(x, q:reshape(x.shape):as_in_context(x.context), "init.Orthogonal")
end


-- Kernels and gates -------------------------------------------------------------------------------

--- The kernel of bilinear upsampling.
kinds.Bilinear = base.kind("Bilinear", {})
kinds.Bilinear._init_weight = base.Initializer._init_bilinear


--- Zeros, and `forget_bias` in the second quarter: the forget gates of an LSTM's bias.
kinds.LSTMBias = base.kind("LSTMBias", { { "forget_bias", "number", 1 } })
kinds.LSTMBias.reals = { forget_bias = true }

function kinds.LSTMBias:_init_weight(_, x)
  local n = math.floor(x.shape[1] / 4)
  call.fill(x, 0, "init.LSTMBias")
  if n > 0 then
    x[("%d:%d"):format(n, 2 * n)] = self.forget_bias
  end
end


return kinds
