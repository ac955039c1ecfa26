-- Every line of the tables of cases that has gradients, for each input alone: its gradient, written
-- or added, is the one computed together with all others, and arrays of gradients that were not
-- requested do not change. One output alone equals what it is among all outputs, and gives the
-- gradients that zero head gradients for the other outputs give.
local ty = require "tycho"
local attrs = require "tycho.core.attrs"
local arrays = require "spec.support.arrays"
local trials = require "spec.support.trials"
require "spec.helper"

local TRIALS = (os.getenv("SANITIZER") or "") ~= "" and 1 or 3

local function bind(case, dtype, req, start)
  local args, grads, states = {}, {}, {}
  for variable, x in pairs(case.arrays) do
    args[variable] = x:astype(dtype)
    grads[variable] = ty.nd.full(x.shape, start, {dtype = dtype})
  end
  for name, s in pairs(case.aux) do states[name] = ty.nd.ones(s, {dtype = dtype}) end
  return case.symbol:bind{ctx = ty.cpu(), args = args, args_grad = grads, grad_req = req,
    aux_states = states}, grads
end

local function run(case, dtype, req, start, heads)
  ty.random.seed(7)                              -- what is drawn must be alike in all runs
  local exe, grads = bind(case, dtype, req, start)
  exe:forward{is_train = true}
  exe:backward(heads)
  return grads
end

local function same(what, want, got, plus)
  local w, g, scale = arrays.list(want), arrays.list(got), 1
  for _, v in ipairs(w) do scale = v - v == 0 and math.max(scale, math.abs(v)) or scale end
  local bound = (want.dtype == "float64" and 1e-9 or 1e-5) * scale
  for i, v in ipairs(w) do
    local expected = v + plus
    local off = math.abs(g[i] - expected)
    local alike = g[i] == expected or v ~= v and g[i] ~= g[i]
    if not alike and (off > bound or off ~= off) then
      error(("%s, element %d: %.12g, expected %.12g"):format(what, i - 1, g[i], expected), 0)
    end
  end
end

local function make_requests(variables, req)
  local t = {}
  for _, variable in ipairs(variables) do t[variable] = req end
  return t
end

local function check_alone(case, dtype, variables, heads, want)
  for _, variable in ipairs(variables) do
    for req, start in pairs{write = 0, add = 3} do
      local reqs = make_requests(variables, "null")
      reqs[variable] = req
      local got = run(case, dtype, reqs, start, heads)
      for _, other in ipairs(variables) do
        local what = ("%s alone, %s: %s"):format(variable, req, other)
        if other ~= variable then
          same(what, ty.nd.full(got[other].shape, start, {dtype = dtype}), got[other], 0)
        elseif not case.fixed[other] then
          same(what, want[other], got[other], start)
        else
          same(what, got[other] * 0, got[other], start)   -- nothing follows from an index
        end
      end
    end
  end
end

local function check_outputs(case, dtype, every, heads)
  local all, n = case.symbol, #heads
  local exe = bind(case, dtype, every, 0)
  ty.random.seed(7)
  local outputs = exe:forward{is_train = true}
  for k = 1, n do
    local zeros = {}
    for i, h in ipairs(heads) do zeros[i] = i == k and h or h * 0 end
    case.symbol = all
    local want = run(case, dtype, every, 0, zeros)
    case.symbol = all[k]
    local got = run(case, dtype, every, 0, {heads[k]})
    for variable, g in pairs(want) do
      same(("output %d alone, gradient of %s"):format(k, variable), g, got[variable], 0)
    end
    ty.random.seed(7)
    local one = bind(case, dtype, every, 0):forward{is_train = true}
    same(("output %d alone"):format(k), outputs[k], one[1], 0)
  end
  case.symbol = all
end

local function check(case, dtype, random)
  local variables = attrs.keys(case.arrays)
  local every = make_requests(variables, "write")
  for variable in pairs(case.fixed) do every[variable] = "null" end
  local exe = bind(case, dtype, every, 0)
  exe:forward{is_train = true}
  local heads = trials.heads(exe, random)
  for k, h in ipairs(heads) do heads[k] = h:astype(exe.outputs[k].dtype) end
  check_alone(case, dtype, variables, heads, run(case, dtype, every, 0, heads))
  if #heads > 1  then check_outputs(case, dtype, every, heads) end
end

local function trial(line, random, sizes)
  local case = trials.make(line, random, sizes)
  local only = line.options and line.options.dtype
  check(case, only or sizes == trials.most and "float32" or "float64", random)
end

for _, name in ipairs{"cases", "cases_values"} do
  describe("gradients of single inputs, " .. name .. ":", function()
    for line, key in trials.lines(require("spec.operators." .. name)) do
      local imperative = line.options and line.options.imperative
      if ty.op.info(line[1]).gradient ~= "none" and not imperative then
        it(key, function()
          trials.several(line, trials.seed("single", key), TRIALS, trial)
        end)
      end
    end
  end)
end

-- matrices of any numbers will not do: linalg_spec
local SPECIAL = {_linalg_potrf = true, _linalg_potri = true, _linalg_syevd = true}

describe("gradients of single inputs, cases_shapes:", function()
  for line, key in trials.lines(require "spec.operators.cases_shapes") do
    -- a CPU has no layers with channels last
    local usual = not next(line.types) and not SPECIAL[line[1]] and not line[3].layout
    if usual and ty.op.info(line[1]).gradient ~= "none" then
      it(key, function()
        local function make() return line[2], line[3], 0.5, 1, line.fixed end
        trial({line[1], make}, trials.random(trials.seed("single", key)))
      end)
    end
  end
end)

-- -- outputs -------------------------------------------------------------------------------------

local function forward(symbol, args, aux)
  local states = {}
  for name, shape in pairs(aux) do states[name] = ty.nd.ones(shape) end
  ty.random.seed(7)
  return symbol:bind{ctx = ty.cpu(), args = args, grad_req = "null", aux_states = states}
    :forward{is_train = false}
end

-- Checks that each output of an operator alone equals the one beside the others.
local function check_alone_outputs(line, case, types)
  local args, n = {}, #case.symbol:list_outputs()
  for key, x in pairs(case.inputs) do
    args["in_" .. key] = x:astype(types[key] or line.options and line.options.dtype or "float32")
  end
  local all = {}
  for k, y in ipairs(forward(case.symbol, args, case.aux)) do all[k] = y:copy() end
  for k = 1, n do
    local one = forward(case.symbol[k], args, case.aux)[1]
    same(("output %d alone"):format(k), all[k], one, 0)
  end
end

describe("single outputs:", function()
  local function usual(line)
    return not SPECIAL[line[1]] and not line[3].layout
      and line[1] ~= "_contrib_linear_cross_entropy"  -- zeros of ones are no labels
  end
  for line, key in trials.lines(require "spec.operators.cases_shapes") do
    if usual(line) then
      it(key, function()
        local function make() return line[2], line[3], 0.5, 1, line.fixed end
        local random = trials.random(trials.seed("outputs", key))
        check_alone_outputs(line, trials.make({line[1], make}, random), line.types)
      end)
    end
  end
  for line, key in trials.lines(require "spec.operators.cases_values") do
    if not line.options.imperative and not line.build then
      it(key .. ", values", function()
        local random = trials.random(trials.seed("outputs", key))
        check_alone_outputs(line, trials.make(line, random), {})
      end)
    end
  end
end)

-- -- layers so large that other kernels run ------------------------------------------------------

-- data, parameters
local LAYERS = {
  {{2, 64, 14, 14}, {kernel = {3, 3}, num_filter = 64, pad = {1, 1}}},
  {{4, 64, 24, 24}, {kernel = {3, 3}, num_filter = 64, pad = {1, 1}, no_bias = true}},
  {{2, 48, 15, 13}, {kernel = {3, 3}, num_filter = 32, stride = {2, 2}, pad = {1, 1}}},
  {{2, 16, 9, 9}, {kernel = {1, 1}, num_filter = 24}},
  {{3, 16, 9, 9}, {kernel = {1, 1}, num_filter = 24, stride = {2, 2}, no_bias = true}},
  {{4, 8, 5, 5}, {kernel = {5, 5}, num_filter = 12}},
  {{2, 16, 12, 12}, {kernel = {3, 3}, num_filter = 16, num_group = 16, pad = {1, 1}}},
  {{2, 16, 12, 12}, {kernel = {3, 3}, num_filter = 16, num_group = 16, stride = {2, 2}}},
  {{2, 16, 12, 12}, {kernel = {3, 3}, num_filter = 32, num_group = 16, dilate = {2, 1}}},
  {{2, 16, 12, 12}, {kernel = {3, 3}, num_filter = 16, num_group = 4, pad = {2, 0}}},
  {{2, 16, 40}, {kernel = {5}, num_filter = 16, pad = {2}, stride = {3}}},
  {{1, 8, 6, 7, 8}, {kernel = {3, 3, 3}, num_filter = 8, pad = {1, 0, 1}}},
  {{1, 8, 6, 7, 8}, {kernel = {2, 3, 1}, num_filter = 8, num_group = 8, stride = {2, 1, 1}}},
  {{1, 8, 6, 7, 8}, {kernel = {3, 3, 3}, num_filter = 8, num_group = 8, pad = {1, 1, 1}}},
  {{40, 30}, {num_hidden = 1}, name = "FullyConnected"},
  {{3, 700}, {num_hidden = 1, no_bias = true}, name = "FullyConnected"},
  {{1, 60}, {num_hidden = 70}, name = "FullyConnected"},
}

local function layer(name, shape, params)
  local options = {name = "op", no_bias = params.no_bias or false}
  for k, v in pairs(params) do options[k] = v end
  for _, key in ipairs{"data", "weight", not params.no_bias and "bias" or nil} do
    options[key] = ty.sym.Variable("in_" .. key)
  end
  local symbol, random = ty.sym[name](options), trials.random(trials.seed(name, unpack(shape)))
  local shapes, listed = symbol:infer_shape{in_data = shape}, {}
  for i, variable in ipairs(symbol:list_arguments()) do
    listed[variable] = trials.fill(ty.nd.zeros(shapes[i], {dtype = "float64"}), random, -1, 1)
  end
  return {symbol = symbol, arrays = listed, fixed = {}, aux = {}}, random
end

describe("gradients of single inputs, large layers:", function()
  for i, line in ipairs(LAYERS) do
    for _, name in ipairs(line.name and {line.name} or {"Convolution", "Deconvolution"}) do
      for _, dtype in ipairs{"float32", "float64"} do
        it(("%s %d, %s"):format(name, i, dtype), function()
          local case, random = layer(name, line[1], line[2])
          check(case, dtype, random)
        end)
      end
    end
  end
end)
