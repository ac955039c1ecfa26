--- Helpers for tests of operators and graphs: comparison with tolerances by element type,
-- gradients by central differences, symbols against expected values, equality across devices.
--
--     ty.test_utils.assert_almost_equal(x, {1, 2})
--     ty.test_utils.check_numeric_gradient{ty.sym.tanh(ty.sym.Variable("x")), {x = {0.3, -0.2}}}
--
-- Values are arrays or nested tables; tables count as float32. A failed comparison raises a plain
-- error text with the worst element's position (from 0) and both values. Random inputs come from
-- `math.random`, so `math.randomseed` repeats them.
--
-- @module tycho.test_utils

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local host = require "tycho.ndarray.transfer"
local module_params = require "tycho.model.param_check"
local nd = require "tycho.ndarray"
local random = require "tycho.test.random"
local symbol = require "tycho.symbol.symbol"
local values = require "tycho.core.values"
require "tycho.executor.executor"

local is_array, is_plain = class.is_array, values.is_plain

local utils = {}

--- Relative and absolute tolerances, and steps of numeric gradients, by element type.
utils.default_rtols = { float16 = 1e-2, bfloat16 = 1e-2, float32 = 1e-4, float64 = 1e-5, int8 = 0,
  uint8 = 0, int32 = 0, int64 = 0, bool = 0 }
utils.default_atols = { float16 = 1e-1, bfloat16 = 1e-1, float32 = 1e-3, float64 = 1e-20, int8 = 0,
  uint8 = 0, int32 = 0, int64 = 0, bool = 0 }
utils.default_numeric_eps = { float16 = 2 ^ -6, float32 = 2 ^ -9, float64 = 2 ^ -14 }


-- Defaults ----------------------------------------------------------------------------------------

local chosen

--- The context that helpers use when none is given.
function utils.default_context()
  return chosen or context.current_context()
end


local CONTEXT = args.form("test_utils.set_default_context", { { "ctx", "context" } })

--- Chooses it.
function utils.set_default_context(...)
  chosen = CONTEXT(...).ctx
end


--- "float32"
function utils.default_dtype()
  return "float32"
end


--- Device ids of the GPUs, from 0.
function utils.list_gpus()
  local list = {}
  for id = 0, context.num_gpus() - 1 do
    list[#list + 1] = id
  end
  return list
end


-- Comparing ---------------------------------------------------------------------------------------

local function as_array(v, dtype, func)
  return is_array(v) and v or host.from_table(v, args.DTYPES[dtype], func)
end


local function loosest(a, b, by_dtype)
  local s = is_array(a) and a.dtype or "float32"
  local t = is_array(b) and b.dtype or "float32"
  return math.max(by_dtype[s], by_dtype[t])
end


-- All elements as Lua numbers in a flat list, from 1.
local function flat(x, func)
  local p, list = host.read(x, func), {}
  for i = 1, x._size do
    list[i] = tonumber(p[i - 1])
  end
  return list
end


-- Position (from 0) of element number i (from 1).
local function position(i, shape)
  local at = {}
  i = i - 1
  for d = #shape, 1, -1 do
    at[d] = i % shape[d]
    i = math.floor(i / shape[d])
  end
  return at
end


-- How far a is from b in units of the tolerance; more than 1 is too far.
local function violation(a, b, rtol, atol, equal_nan)
  if a == b or equal_nan and a ~= a and b ~= b then
    return 0
  elseif a ~= a or b ~= b or math.abs(a) == math.huge or math.abs(b) == math.huge then
    return math.huge
  end
  local far, near = math.abs(a - b), atol + rtol * math.abs(b)
  return near > 0 and far / near or far > 0 and math.huge or 0
end


local COMPARE = {
  { "a", "any" }, { "b", "any" }, "*", { "rtol", "number?" }, { "atol", "number?" },
  { "names", "list", { "a", "b" } }, { "equal_nan", "boolean", false },
}

-- The worst element: {at, value, a, b}, or nil and why the shapes do not fit.
local function worst(given, func)
  local rtol = given.rtol or loosest(given.a, given.b, utils.default_rtols)
  local atol = given.atol or loosest(given.a, given.b, utils.default_atols)
  local a, b = as_array(given.a, "float64", func), as_array(given.b, "float64", func)
  if Error.show(a._shape) ~= Error.show(b._shape) then
    return nil, ("shapes differ: %s and %s"):format(Error.show(a._shape), Error.show(b._shape))
  end
  local p, q, found = flat(a, func), flat(b, func), { value = -1 }
  for i = 1, #p do
    local v = violation(p[i], q[i], rtol, atol, given.equal_nan)
    if v > found.value then
      found = { at = position(i, a._shape), value = v, a = p[i], b = q[i] }
    end
  end
  found.rtol, found.atol = rtol, atol
  return found
end


local function describe(found, why, names)
  if not found then
    return why
  end
  return ("%s and %s differ most at (%s): %.9g and %.9g, \z
    %.3g times the tolerance (rtol %g, atol %g)"):format(names[1], names[2],
    table.concat(found.at, ", "), found.a, found.b, found.value, found.rtol, found.atol)
end


local ALMOST = args.form("test_utils.almost_equal", COMPARE)

--- Whether |a - b| <= atol + rtol |b| everywhere.
-- @tparam[opt] table options rtol, atol (by element type), equal_nan = false
function utils.almost_equal(...)
  local found = worst(ALMOST(...), "test_utils.almost_equal")
  return found ~= nil and found.value <= 1
end


local ASSERT = args.form("test_utils.assert_almost_equal", COMPARE)

--- Raises an error that shows the worst element unless `almost_equal`.
-- @tparam[opt] table options rtol, atol, names = {"a", "b"}, equal_nan = false
function utils.assert_almost_equal(...)
  local given = ASSERT(...)
  local found, why = worst(given, "test_utils.assert_almost_equal")
  if not found or found.value > 1 then
    error(describe(found, why, given.names), 2)
  end
end


local VIOLATION = args.form("test_utils.find_max_violation", COMPARE)

--- The element that differs most.
-- @treturn {int,...} its position, from 0
-- @treturn number how many times the tolerance
function utils.find_max_violation(...)
  local found, why = worst(VIOLATION(...), "test_utils.find_max_violation")
  if not found then
    error(why, 2)
  end
  return found.at, found.value
end


local SAME = args.form("test_utils.same", { { "a", "any" }, { "b", "any" } })

--- Whether shapes and all elements are equal.
function utils.same(...)
  local given = SAME(...)
  given.rtol, given.atol = 0, 0
  local found = worst(given, "test_utils.same")
  return found ~= nil and found.value == 0
end


local SAME_ARRAY = args.form("test_utils.same_array", { { "a", "array" }, { "b", "array" } })

--- Whether two arrays share memory: writing one changes the other.
function utils.same_array(...)
  local given = SAME_ARRAY(...)
  local a, b = given.a, given.b
  local before = flat(b, "test_utils.same_array")
  if not utils.same(a:reshape{ -1 }, before) then
    return false
  end
  a:add_(1)
  local after = flat(b, "test_utils.same_array")
  a:sub_(1)
  for i = 1, #before do
    if after[i] ~= before[i] + 1 then
      return false
    end
  end
  return true
end


-- Random things -----------------------------------------------------------------------------------

utils.rand_shape_2d, utils.rand_shape_3d, utils.rand_shape_nd =
  random.rand_shape_2d, random.rand_shape_3d, random.rand_shape_nd


local RAND = args.form("test_utils.rand_ndarray", {
  list = true, { "shape", "shape" }, "*", { "dtype", "dtype", "float32" }, { "ctx", "context?" },
  { "stype", { "default" }, "default" },
})

--- Uniform numbers from -1 to 1.
function utils.rand_ndarray(...)
  local a = RAND(...)
  return random.array(a.shape, random.uniform(-1, 1), a.dtype, a.ctx or utils.default_context())
end


-- Arrays for symbols ------------------------------------------------------------------------------

-- Values by name from a list in order or a dictionary; all of them, no others.
local function named(given, names, what, func)
  local dict = {}
  if #given > 0 then
    if #given ~= #names then
      Error.raise{ code = "value", func = func, argument = what, expected = #names, got = #given,
        message = ("'%s' needs a value for each of: %s"):format(what, table.concat(names, ", ")) }
    end
    for i, name in ipairs(names) do
      dict[name] = given[i]
    end
    return dict
  end
  for _, name in ipairs(names) do
    dict[name] = given[name]
  end
  for _, name in ipairs(names) do
    if dict[name] == nil then
      Error.raise{ code = "value", func = func, argument = name,
        message = ("'%s' has no value for '%s'"):format(what, name) }
    end
  end
  for name in pairs(given) do
    if dict[name] == nil then
      Error.unknown{ func = func, argument = name, what = "name in " .. what, names = names }
    end
  end
  return dict
end


-- Copies of values as arrays on a device; arrays keep their element type
-- unless dtype says otherwise.
local function arrays_of(dict, dtype, ctx)
  local arrays = {}
  for name, v in pairs(dict) do
    local kind = dtype or is_array(v) and v.dtype or utils.default_dtype()
    arrays[name] = is_array(v) and v:astype(kind):as_in_context(ctx)
      or nd.array(v, { dtype = kind, ctx = ctx })
  end
  return arrays
end


local function expected_list(expected, names, func)
  local dict, list = named(expected, names, "expected", func), {}
  for i, name in ipairs(names) do
    list[i] = dict[name]
  end
  return list
end


local FLOATS = { float16 = true, bfloat16 = true, float32 = true, float64 = true }


-- Numeric gradients -------------------------------------------------------------------------------

local function total(x)
  local sum = 0
  for _, v in ipairs(flat(x, "test_utils.numeric_grad")) do
    sum = sum + v
  end
  return sum
end


-- Sum of the first output with one element of an argument (of all variables of its name) replaced.
local function probe(exe, places, i, v, aux, is_train)
  for _, place in ipairs(places) do
    place:set(i, v)
  end
  for name, x in pairs(aux) do
    x:copyto(exe.aux_dict[name])
  end
  return total(exe:forward(is_train)[1])
end


local function numeric_grad_of(exe, xs, aux, eps, is_train)
  local places, slopes = {}, {}
  for k, x in ipairs(xs) do
    places[k] = x:reshape{ -1 }
  end
  local before = flat(xs[1], "test_utils.numeric_grad")
  for i = 1, #before do
    local high = probe(exe, places, i - 1, before[i] + eps / 2, aux, is_train)
    local low = probe(exe, places, i - 1, before[i] - eps / 2, aux, is_train)
    slopes[i] = (high - low) / eps
    for _, place in ipairs(places) do
      place:set(i - 1, before[i])
    end
  end
  return nd.array(slopes, { dtype = xs[1].dtype }):reshape(xs[1].shape)
end


-- The bound arrays of each name; values are put into them.
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

--- Gradients of the sum of the first output by central differences, element by element.
-- @tparam table options exe, location (values of the arguments), aux_states (values
--   before each run), eps = 1e-4, use_forward_train = true, names (arguments wanted; all
--   of floating point otherwise)
-- @treturn table name -> NDArray
function utils.numeric_grad(...)
  local a, func = NUMERIC(...), "test_utils.numeric_grad"
  local exe, aux = a.exe, a.aux_states or {}
  local arrays = arrays_by_name(exe,
    named(a.location, exe._symbol:list_arguments(), "location", func))
  aux = arrays_of(named(aux, next(aux) and exe._symbol:list_auxiliary_states() or {},
    "aux_states", func), nil, exe._ctx)
  local grads = {}
  for _, name in ipairs(a.names or attrs.keys(arrays)) do
    if FLOATS[arrays[name][1].dtype] then
      grads[name] = numeric_grad_of(exe, arrays[name], aux, a.eps, a.use_forward_train)
    end
  end
  return grads
end


-- grad_nodes: nil = all arguments, list = write, dictionary = requests.
local function requests(grad_nodes, names)
  local reqs = {}
  for _, name in ipairs(grad_nodes and #grad_nodes > 0 and grad_nodes
      or not grad_nodes and names or {}) do
    reqs[name] = "write"
  end
  for name, req in pairs(grad_nodes and #grad_nodes == 0 and grad_nodes or {}) do
    reqs[name] = req
  end
  return reqs
end


-- Dirty gradient arrays, which show whether a request is honoured.
local function noise_like(arrays, reqs, scale)
  local noise = {}
  for name in pairs(reqs) do
    noise[name] = random.array(arrays[name].shape, random.normal(scale),
      arrays[name].dtype, arrays[name].context)
  end
  return noise
end


-- What a gradient array should hold after backward: the gradient, noise + gradient, or the noise.
local function check_grads(exe, reqs, expected, noise, options, func)
  for _, name in ipairs(attrs.keys(reqs)) do
    local got = exe.grad_arrays and values.value(options.grads[name])
    options.names = { "gradient of " .. name .. " (" .. reqs[name] .. ")", "expected" }
    if reqs[name] == "write" then
      utils.assert_almost_equal(got, expected[name], options.tolerance(options.names))
    elseif reqs[name] == "add" then
      utils.assert_almost_equal(got - noise[name], expected[name], options.tolerance(options.names))
    elseif reqs[name] == "null" then
      utils.assert_almost_equal(got, noise[name], options.tolerance(options.names))
    else
      Error.raise{ code = "value", func = func, argument = name, expected = "write, add or null",
        got = reqs[name], message = "bad gradient request" }
    end
  end
end


local function tolerances(a)
  return function(names)
    return { rtol = a.rtol, atol = a.atol, names = names, equal_nan = a.equal_nan or false }
  end
end


local GRADIENT = args.form("test_utils.check_numeric_gradient", {
  { "sym", "symbol" }, { "location", "table" }, { "aux_states", "table?" },
  { "numeric_eps", "number?" }, { "rtol", "number?" },
  { "atol", "number?" }, { "grad_nodes", "table?" }, { "use_forward_train", "boolean", true },
  { "ctx", "context?" }, { "dtype", "dtype?" },
})

local PROJECTION = "__random_proj"

--- Compares the gradients of a symbol with one output, weighted by random numbers, with numeric
-- ones.
-- @tparam table options sym, location (list or dictionary), aux_states, numeric_eps, rtol, atol,
--   grad_nodes (all; a list; or name -> request), use_forward_train = true, ctx, dtype
function utils.check_numeric_gradient(...)
  local a, func = GRADIENT(...), "test_utils.check_numeric_gradient"
  local ctx = a.ctx or utils.default_context()
  if #a.sym ~= 1 then
    Error.raise{ code = "value", func = func, argument = "sym", expected = "one output",
      got = #a.sym, message = "choose one output" }
  end
  local names = a.sym:list_arguments()
  local location = arrays_of(named(a.location, names, "location", func), a.dtype, ctx)
  local aux = arrays_of(named(a.aux_states or {}, a.sym:list_auxiliary_states(),
    "aux_states", func), a.dtype, ctx)
  local reqs = requests(a.grad_nodes, names)
  local noise = noise_like(location, reqs, 0.01)
  local shapes = {}
  for name, x in pairs(location) do
    shapes[name] = x.shape
  end
  local _, outs = a.sym:infer_shape(shapes)
  local dtype = location[names[1]].dtype
  location[PROJECTION] = random.array(outs[1], random.uniform(0.1, 1.1), dtype, ctx)
  local loss = symbol.make_loss{ a.sym * symbol.Variable(PROJECTION) }
  local grads = module_params.copies(noise)
  local exe = loss:bind{ ctx = ctx, args = location, args_grad = grads, grad_req = reqs,
    aux_states = module_params.copies(aux) }
  exe:forward(true)
  exe:backward()
  for name, x in pairs(grads) do
    grads[name] = x:copy()
  end
  local wanted = {}
  for name, req in pairs(reqs) do
    wanted[#wanted + 1] = req ~= "null" and name or nil
  end
  local expected = utils.numeric_grad{ exe = exe, location = location, aux_states = aux,
    names = wanted, eps = a.numeric_eps or utils.default_numeric_eps[dtype] or 1e-3,
    use_forward_train = a.use_forward_train }
  check_grads(exe, reqs, expected, noise, { grads = grads, tolerance = tolerances(a) }, func)
end


-- Expected values ---------------------------------------------------------------------------------

local SYMBOLIC_FORWARD = args.form("test_utils.check_symbolic_forward", {
  { "sym", "symbol" }, { "location", "table" }, { "expected", "table" }, { "rtol", "number?" },
  { "atol", "number?" }, { "aux_states", "table?" }, { "ctx", "context?" },
  { "equal_nan", "boolean", false }, { "dtype", "dtype?" },
})

--- Runs a symbol forward and compares all outputs.
-- @treturn {NDArray,...} the outputs
function utils.check_symbolic_forward(...)
  local a, func = SYMBOLIC_FORWARD(...), "test_utils.check_symbolic_forward"
  local ctx = a.ctx or utils.default_context()
  local location =
    arrays_of(named(a.location, a.sym:list_arguments(), "location", func), a.dtype, ctx)
  local aux = arrays_of(named(a.aux_states or {}, a.sym:list_auxiliary_states(),
    "aux_states", func), a.dtype, ctx)
  local names = a.sym:list_outputs()
  local outputs = a.sym:bind{ ctx = ctx, args = location, aux_states = aux }:forward(false)
  for i, want in ipairs(expected_list(a.expected, names, func)) do
    utils.assert_almost_equal(outputs[i], want, tolerances(a){ names[i], "expected" })
  end
  return outputs
end


local SYMBOLIC_BACKWARD = args.form("test_utils.check_symbolic_backward", {
  { "sym", "symbol" }, { "location", "table" }, { "out_grads", "array|table?" },
  { "expected", "table" }, { "rtol", "number?" }, { "atol", "number?" }, { "aux_states", "table?" },
  { "grad_req", "text|table", "write" }, { "ctx", "context?" }, { "grad_stypes", "dict?" },
  { "equal_nan", "boolean", false }, { "dtype", "dtype?" },
})

local function requests_for(grad_req, names)
  local reqs = {}
  for i, name in ipairs(names) do
    reqs[name] = is_plain(grad_req) and (grad_req[name] or grad_req[i])
      or not is_plain(grad_req) and grad_req or "null"
  end
  return reqs
end


local function head_arrays(out_grads, dtype, ctx)
  if out_grads == nil or is_array(out_grads) then
    return out_grads
  end
  return arrays_of(out_grads, dtype, ctx)
end


--- Runs a symbol forward and backward and compares the gradients of the
-- arguments named in `expected`.
-- @treturn table name -> NDArray
function utils.check_symbolic_backward(...)
  local a, func = SYMBOLIC_BACKWARD(...), "test_utils.check_symbolic_backward"
  local ctx, names = a.ctx or utils.default_context(), a.sym:list_arguments()
  local location = arrays_of(named(a.location, names, "location", func), a.dtype, ctx)
  local aux = arrays_of(named(a.aux_states or {}, a.sym:list_auxiliary_states(),
    "aux_states", func), a.dtype, ctx)
  local expected = #a.expected > 0 and named(a.expected, names, "expected", func) or a.expected
  local reqs = requests_for(a.grad_req, names)
  for name in pairs(reqs) do
    reqs[name] = expected[name] ~= nil and reqs[name] or nil
  end
  local noise = noise_like(location, reqs, 1)
  local grads = module_params.copies(noise)
  local exe = a.sym:bind{ ctx = ctx, args = location, args_grad = grads,
    grad_req = reqs, aux_states = aux }
  exe:forward(true)
  exe:backward{ out_grads = head_arrays(a.out_grads, a.dtype, ctx) }
  check_grads(exe, reqs, expected, noise, { grads = grads, tolerance = tolerances(a) }, func)
  return grads
end


local FORWARD = args.form("test_utils.simple_forward", {
  rest = "arrays", { "sym", "symbol" }, "*", { "ctx", "context?" },
  { "is_train", "boolean", false },
})

--- Binds, runs forward once, and gives the output, or the list of several.
function utils.simple_forward(...)
  local a = FORWARD(...)
  local ctx = a.ctx or utils.default_context()
  local outputs = a.sym:bind{ ctx = ctx, args = arrays_of(a.arrays, nil, ctx) }:forward(a.is_train)
  return #outputs == 1 and outputs[1] or outputs
end


-- Consistency -------------------------------------------------------------------------------------

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
    list[i] = (is_plain(a.sym) and a.sym[i] or a.sym):simple_bind(options)
  end
  return list
end


-- The same random arguments everywhere, rounded to each executor's element
-- types; gradients start at 0.
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


local function compare(a, truth, got, what)
  for _, name in ipairs(attrs.keys(got)) do
    local x, y = got[name], truth[name]
    local tol = math.max(tolerance_of(a, x.dtype), tolerance_of(a, y.dtype))
    local options = { rtol = tol, atol = tol, equal_nan = a.equal_nan,
      names = { what .. " " .. name, "the reference" } }
    local ok, e = pcall(utils.assert_almost_equal, x, y, options)
    if not ok and a.raise_on_err then
      error(e, 0)
    end
  end
end


-- Head gradients: the reference's outputs, rounded to the least precise
-- element type among the executors.
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


--- Binds a symbol for every entry of `ctx_list` (`{ctx =, <name> = shape, type_dict =}`), with the
-- same random arguments, and compares outputs of inference, then outputs and gradients of training,
-- with those of the most precise executor.
-- @treturn table the reference's values by name
function utils.check_consistency(...)
  local a = CONSISTENCY(...)
  local list = bind_all(a)
  fill_all(list, a)
  local best = most_precise(list)
  for _, exe in ipairs(list) do
    exe:forward(false)
  end
  local truth = a.ground_truth or module_params.copies(list[best].output_dict)
  for i, exe in ipairs(list) do
    if i ~= best or a.ground_truth then
      compare(a, truth, exe.output_dict, "inference of entry " .. i .. ":")
    end
  end
  if a.grad_req == "null" then
    return truth
  end
  for _, exe in ipairs(list) do
    exe:forward(true)
    exe:backward(heads_for(list, module_params.copies(list[best].output_dict), exe))
  end
  local trained = a.ground_truth or module_params.copies(list[best].output_dict)
  for name, x in pairs(a.ground_truth and {} or module_params.copies(list[best].grad_dict)) do
    trained["gradient of " .. name] = x
  end
  for i, exe in ipairs(list) do
    local got = module_params.copies(exe.output_dict)
    for name, x in pairs(exe.grad_dict) do
      got["gradient of " .. name] = trained["gradient of " .. name] and x or nil
    end
    if i ~= best or a.ground_truth then
      compare(a, trained, got, "training of entry " .. i .. ":")
    end
  end
  return trained
end


-- Others ------------------------------------------------------------------------------------------

--- Calls f(...) and raises an error unless it raises an error object with the code.
function utils.assert_exception(f, code, ...)
  local ok, e = pcall(f, ...)
  if ok then
    error(("no error was raised, expected one of code '%s'"):format(code), 2)
  elseif not Error.is_error(e) or e.code ~= code then
    error(("expected an error of code '%s', got: %s"):format(code, tostring(e)), 2)
  end
end


--- `retry(n)(f)`: a function that calls f until it does not fail, at most n times.
function utils.retry(n)
  if type(n) ~= "number" or n < 1 then
    Error.raise{ code = "value", func = "test_utils.retry", argument = "n", expected = "at least 1",
      got = Error.kind(n),
      message = "bad 'n'" }
  end
  return function(f)
    return function(...)
      for _ = 1, n - 1 do
        local results = { pcall(f, ...) }
        if results[1] then
          return unpack(results, 2)
        end
      end
      return f(...)
    end
  end
end


local MNIST = args.form("test_utils.get_mnist_iterator", {
  { "batch_size", "integer" }, { "input_shape", "shape" }, { "num_parts", "integer", 1 },
  { "part_index", "integer", 0 },
  { "path", "text", "data" },
})

--- Iterators over the MNIST files of a folder.
-- @tparam table options batch_size, input_shape (one size: flat),
--   num_parts, part_index, path = "data"
-- @return training iterator (shuffled)
-- @return validation iterator
function utils.get_mnist_iterator(...)
  local a = MNIST(...)
  local function iterator(kind, shuffle)
    return require("tycho.io").MNISTIter{
      image = a.path .. "/" .. kind .. "-images-idx3-ubyte",
      label = a.path .. "/" .. kind .. "-labels-idx1-ubyte", input_shape = a.input_shape,
      batch_size = a.batch_size, shuffle = shuffle, flat = #a.input_shape == 1,
      num_parts = a.num_parts, part_index = a.part_index,
    }
  end
  return iterator("train", true), iterator("t10k", false)
end


return utils
