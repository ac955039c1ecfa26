--- Comparison of a symbol's values across devices and element types (part of `ty.test_utils`).
--
-- @module tycho.test.consistency

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local attempt = require "tycho.core.attempt"
local attrs = require "tycho.core.attrs"
local compare = require "tycho.test.compare"
local param_check = require "tycho.model.param_check"
local random = require "tycho.test.random"
local values = require "tycho.core.values"
require "tycho.executor.executor"                        -- so that symbols can be bound

local consistency = {}


local CONSISTENCY = args.form("test_utils.check_consistency", {
  { "sym", "symbol|list" }, { "ctx_list", "list" }, { "scale", "number", 1 },
  { "grad_req", "text|table", "write" }, { "arg_params", "dict?" }, { "aux_params", "dict?" },
  { "tol", "number|dict?" }, { "raise_on_err", "boolean", true }, { "ground_truth", "dict?" },
  { "equal_nan", "boolean", false }, { "use_uniform", "boolean", false },
  { "rand_type", "dtype", "float64" },
})

local TOLERANCES = { float16 = 1e-1, bfloat16 = 1e-1, float32 = 1e-3, float64 = 1e-5, uint8 = 0,
  int8 = 0, int32 = 0, int64 = 0, bool = 0 }
local PRECISION = { bool = 1, uint8 = 2, int8 = 2, int32 = 3, int64 = 4, bfloat16 = 5, float16 = 6,
  float32 = 7, float64 = 8 }


local function bind_all(a)
  local list = {}
  for i, entry in ipairs(a.ctx_list) do
    local options = { grad_req = a.grad_req }
    for key, value in pairs(entry) do
      options[key] = value
    end
    list[i] = (values.is_plain(a.sym) and a.sym[i] or a.sym):simple_bind(options)
  end
  return list
end


-- Fills all executors with the same random arguments, rounded to their element types, and sets
-- gradients to 0.
local function fill_all(list, a)
  local first, params = list[1], a.arg_params or {}
  for _, name in ipairs(attrs.keys(first.arg_dict)) do
    local draw = a.use_uniform and random.uniform(-a.scale, a.scale) or random.normal(a.scale)
    params[name] = params[name] or random.array(first.arg_dict[name].shape, draw, a.rand_type)
  end
  for _, exe in ipairs(list) do
    for name, x in pairs(exe.arg_dict) do
      x[":"] = params[name]
    end
    for name, x in pairs(exe.aux_dict) do
      x[":"] = a.aux_params and a.aux_params[name] or 0
    end
    for _, x in pairs(exe.grad_dict) do
      x[":"] = 0
    end
  end
end


-- Returns the number of the executor whose first output has the most precise element type.
local function most_precise(list)
  local best = 1
  for i, exe in ipairs(list) do
    if PRECISION[exe.outputs[1].dtype] > PRECISION[list[best].outputs[1].dtype] then
      best = i
    end
  end
  return best
end


local function tolerance_of(a, dtype)
  if type(a.tol) == "number" then
    return a.tol
  end
  return (a.tol or TOLERANCES)[dtype] or TOLERANCES[dtype]
end


-- Compares all values of one executor with the reference, name by name.
local function compare_all(a, truth, got, what)
  for _, name in ipairs(attrs.keys(got)) do
    local x, y = got[name], truth[name]
    local tol = math.max(tolerance_of(a, x.dtype), tolerance_of(a, y.dtype))
    local options = { rtol = tol, atol = tol, equal_nan = a.equal_nan,
      names = { what .. " " .. name, "the reference" } }
    local ok, e = attempt(compare.assert_almost_equal, x, y, options)
    if not ok and a.raise_on_err then
      error(e, 0)
    end
  end
end


-- Returns head gradients: the reference's outputs, rounded to the least precise element type of all
-- executors.
local function heads_for(list, truth, exe)
  local coarse = list[1].outputs[1].dtype
  for _, other in ipairs(list) do
    coarse = PRECISION[other.outputs[1].dtype] < PRECISION[coarse]
      and other.outputs[1].dtype or coarse
  end
  local heads = {}
  for i, name in ipairs(exe._symbol:list_outputs()) do
    heads[i] =
      truth[name]:astype(coarse):astype(exe.outputs[i].dtype):as_in_context(exe.outputs[i].context)
  end
  return heads
end


--- Binds a symbol for every entry of `ctx_list` (`{ctx =, <name> = shape, type_dict =}`) with the
-- same random arguments. Compares outputs of inference, then outputs and gradients of training,
-- with those of the most precise executor, the reference.
-- @treturn table the reference's values by name
function consistency.check_consistency(...)
  local a = CONSISTENCY(...)
  local list = bind_all(a)
  fill_all(list, a)
  local best = most_precise(list)
  for _, exe in ipairs(list) do
    exe:forward(false)
  end
  local truth = a.ground_truth or param_check.copies(list[best].output_dict)
  for i, exe in ipairs(list) do
    if i ~= best or a.ground_truth then
      compare_all(a, truth, exe.output_dict, "inference of entry " .. i .. ":")
    end
  end
  if a.grad_req == "null" then
    return truth
  end
  for _, exe in ipairs(list) do
    exe:forward(true)
    exe:backward(heads_for(list, param_check.copies(list[best].output_dict), exe))
  end
  local trained = a.ground_truth or param_check.copies(list[best].output_dict)
  for name, x in pairs(a.ground_truth and {} or param_check.copies(list[best].grad_dict)) do
    trained["gradient of " .. name] = x
  end
  for i, exe in ipairs(list) do
    local got = param_check.copies(exe.output_dict)
    for name, x in pairs(exe.grad_dict) do
      got["gradient of " .. name] = trained["gradient of " .. name] and x or nil
    end
    if i ~= best or a.ground_truth then
      compare_all(a, trained, got, "training of entry " .. i .. ":")
    end
  end
  return trained
end


return consistency
