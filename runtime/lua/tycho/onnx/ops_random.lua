--- Operators of ONNX that draw random numbers (not for users); see onnx/ops_math.lua.
--
-- They draw in each run, from the random state of `ty.random.seed`. The attribute `seed` is not
-- read, since no other engine's generator gives the same numbers.
--
-- @module tycho.onnx.ops_random

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tensor = require "tycho.onnx.tensor"
local value = require "tycho.onnx.value"

local ops = {}

local op = value.op


-- Returns the dtype in the attribute `dtype`, or the default.
local function get_dtype(n, default)
  local code = n:int("dtype")
  local kind = code and tensor.type_of(code)
  if code and not (kind and kind.dtype) then
    n:refuse("numbers of type %s", kind and kind.name or code)
  end
  return kind and kind.dtype or default
end

-- Returns random numbers of a distribution, in a real type.
local function draw(n, name, params, shape, dtype)
  if not value.REAL[dtype] then
    n:refuse("drawn numbers of type %s", dtype)
  end
  for _, size in ipairs(shape) do
    if size < 0 or size ~= math.floor(size) then
      value.damaged("a shape with a size of %g", size)
    elseif size == 0 then
      return value.empty(shape, dtype)
    end
  end
  params.shape = value.inner_shape(shape)
  params.dtype = (dtype == "bfloat16" or dtype == "float16") and "float32" or dtype
  local y = value.draw(name, params)
  y.shape = shape
  return y:cast(dtype)
end


local function draw_normal(n, shape, dtype)
  return draw(n, "_random_normal", { loc = n:float("mean", 0), scale = n:float("scale", 1) }, shape,
    dtype)
end

local function draw_uniform(n, shape, dtype)
  return draw(n, "_random_uniform", { low = n:float("low", 0), high = n:float("high", 1) }, shape,
    dtype)
end

local function make_operator(f)
  return function(n)
    return f(n, n:list("shape") or value.damaged("attribute 'shape' is missing"),
      get_dtype(n, "float32"))
  end
end

local function make_like_operator(f)
  return function(n, x) return f(n, n:sizes(x, "its input"), get_dtype(n, x.dtype)) end
end

ops.RandomNormal, ops.RandomUniform = make_operator(draw_normal), make_operator(draw_uniform)
ops.RandomNormalLike = make_like_operator(draw_normal)
ops.RandomUniformLike = make_like_operator(draw_uniform)


function ops.Bernoulli(n, x)
  local y = draw(n, "_random_uniform", { low = 0, high = 1 }, n:sizes(x, "its input"), "float32")
  return value.binary("lesser", y, x:cast("float32")):cast(get_dtype(n, x.dtype))
end

function ops.Multinomial(n, x)
  local count = n:int("sample_size", 1)
  if count < 1 or #x.shape ~= 2 then
    value.damaged("%g samples of an array of %d dimensions", count, #x.shape)
  end
  local chances = x:cast("float32"):map("softmax", {}, { axis = -1 })
  local y = op("_sample_multinomial", { chances:as_node() }, { shape = { count } })
  return y:cast(get_dtype(n, "int32"))
end


return ops
