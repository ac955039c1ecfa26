--- Numeric gradients by central differences (part of `ty.test_utils`).
--
-- @module tycho.test.gradient

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local inputs = require "tycho.test.inputs"
local nd = require "tycho.ndarray"
local types = require "tycho.core.types"

local gradient = {}

--- Default step sizes of numeric gradients by element type.
gradient.default_numeric_eps = { float16 = 2 ^ -6, float32 = 2 ^ -9, float64 = 2 ^ -14 }


local function total(x)
  local sum = 0
  for _, v in ipairs(inputs.flat(x, "test_utils.numeric_grad")) do
    sum = sum + v
  end
  return sum
end


-- Returns the sum of the first output with element i (from 0) of an argument replaced by v, in all
-- arrays that have the argument's name.
local function probe(exe, views, i, v, aux, is_train)
  for _, view in ipairs(views) do
    view:set(i, v)
  end
  for name, x in pairs(aux) do
    x:copyto(exe.aux_dict[name])
  end
  return total(exe:forward(is_train)[1])
end


-- Returns the numeric gradient with respect to an argument.
local function compute_numeric_grad(exe, xs, aux, eps, is_train)
  local views, slopes = {}, {}
  for k, x in ipairs(xs) do
    views[k] = x:reshape{ -1 }
  end
  local before = inputs.flat(xs[1], "test_utils.numeric_grad")
  for i = 1, #before do
    local high = probe(exe, views, i - 1, before[i] + eps / 2, aux, is_train)
    local low = probe(exe, views, i - 1, before[i] - eps / 2, aux, is_train)
    slopes[i] = (high - low) / eps
    for _, view in ipairs(views) do
      view:set(i - 1, before[i])
    end
  end
  return nd.array(slopes, { dtype = xs[1].dtype }):reshape(xs[1].shape)
end


-- Writes the values to the executor's arguments and returns the arrays of each name.
local function arrays_by_name(exe, location)
  local dict = {}
  for i, name in ipairs(exe._symbol:list_arguments()) do
    local x = exe.arg_arrays[i]
    x[":"] = location[name]
    dict[name] = dict[name] or {}
    table.insert(dict[name], x)
  end
  return dict
end


local NUMERIC = args.form("test_utils.numeric_grad", {
  { "exe", "executor" }, { "location", "table" }, { "aux_states", "table?" },
  { "eps", "number", 1e-4 }, { "use_forward_train", "boolean", true }, { "dtype", "dtype?" },
  { "names", "list?" },
})

--- Returns the gradients of the sum of the first output by central differences, element by element.
-- @tparam table options exe, location (values of the arguments), aux_states (values before each
--   run), eps = 1e-4, use_forward_train = true, names (arguments whose gradients are wanted;
--   default: all of a floating-point type)
-- @treturn table name -> NDArray
function gradient.numeric_grad(...)
  local a, func = NUMERIC(...), "test_utils.numeric_grad"
  local exe, aux = a.exe, a.aux_states or {}
  local arrays = arrays_by_name(exe,
    inputs.named(a.location, exe._symbol:list_arguments(), "location", func))
  aux = inputs.arrays(inputs.named(aux, next(aux) and exe._symbol:list_auxiliary_states() or {},
    "aux_states", func), nil, exe._ctx)
  local grads = {}
  for _, name in ipairs(a.names or attrs.keys(arrays)) do
    if types.REAL[arrays[name][1].dtype] then
      grads[name] = compute_numeric_grad(exe, arrays[name], aux, a.eps, a.use_forward_train)
    end
  end
  return grads
end


return gradient
