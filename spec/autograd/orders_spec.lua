-- Recorded calls of every operator with a derivative, in float64: the gradient is the bound
-- executor's, is the same with create_graph, and what comes of a gradient of it agrees with
-- differences.
local cases = require "spec.operators.cases"
local imperative = require "spec.support.imperative"
local trials = require "spec.support.trials"
local ty = require "tycho"
require "spec.helper"

local autograd = ty.autograd

-- on another device, whose kernels have specs of their own, the calls are what is tested
local TRIALS = os.getenv("TYCHO_TEST_DEVICE") and 1 or 4
local STEP, BOUND = 1e-5, 2e-5
local FLOAT64 = { dtype = "float64" }

-- What create_graph refuses: the gradient is not made of registered operators.
local REFUSED = {}
for name in ([[
  RNN CTCLoss ROIPooling _contrib_box_nms _contrib_scatter_along_axis _contrib_scatter_nd
  _contrib_attention _contrib_RMSNorm _contrib_rotary_embedding _contrib_hawkesll gammaln gamma
  _random_pdf_gamma _random_pdf_negative_binomial _random_pdf_generalized_negative_binomial
  _random_pdf_dirichlet _contrib_DeformableConvolution _contrib_ModulatedDeformableConvolution
]]):gmatch("%S+") do
  REFUSED[name] = true
end

local function is_refused(line, case)
  return REFUSED[line[1]] or line[1] == "Correlation" and not case.params.is_multiply
    or line[1] == "_contrib_DeformablePSROIPooling" and case.arrays.in_trans ~= nil
end

-- Returns the case's arrays as variables, in a fixed order, and states of ones.
local function make_variables(case)
  local values, names = {}, {}
  for name, x in pairs(case.arrays) do
    values[name] = x
    names[#names + 1] = not case.fixed[name] and name or nil
  end
  for name, shape in pairs(case.aux) do
    values[name] = ty.nd.ones(shape, FLOAT64)
  end
  table.sort(names)
  local variables = {}
  for i, name in ipairs(names) do
    variables[i] = case.arrays[name]:attach_grad()
  end
  return values, names, variables
end

local function random_like(list, random)
  local others = {}
  for i, x in ipairs(list) do
    others[i] = trials.fill(ty.nd.zeros(x.shape, FLOAT64), random, -1, 1)
  end
  return others
end

-- Returns recorded outputs; heads may be indices, which have no gradient.
local function record(case, values)
  return autograd.record(function() return imperative.run(case.symbol, values) end)
end

local function first_order(case, values, variables, heads)
  return autograd.grad(record(case, values), variables, { head_grads = heads })
end

local function largest(list)
  local most = 1e-3
  for _, x in ipairs(list) do
    most = math.max(most, x:abs():max():asscalar())
  end
  return most
end

local function check_equal(what, names, want, got, bound)
  local scale = largest(want)
  for i, x in ipairs(want) do
    local off = (x - got[i]):abs():max():asscalar()
    if off > bound * scale or off ~= off then
      error(("%s of %s is off by %g: %s, expected %s"):format(what, names[i], off,
        tostring(got[i]), tostring(x)), 0)
    end
  end
end

-- Returns the sum over arrays of x * w, as a number.
local function weighted(list, weights)
  local sum = 0
  for i, x in ipairs(list) do
    local p, w = x:data(), weights[i]:data()
    for k = 0, x.size - 1 do
      sum = sum + p[k] * w[k]
    end
  end
  return sum
end

local function move(variables, along, step)
  for i, x in ipairs(variables) do
    local p, d = x:data(), along[i]:data()
    for k = 0, x.size - 1 do
      p[k] = p[k] + step * d[k]
    end
  end
end

local function difference(f, variables, along, h)
  move(variables, along, h)
  local above = f()
  move(variables, along, -2 * h)
  local below = f()
  move(variables, along, h)
  return (above - below) / (2 * h)
end

-- Checks a slope by two differences, of which either may agree: that of fourth order loses less to
-- rounding, the other is spoiled less by a kink nearby.
local function check_slope(what, f, variables, along, slope, scale)
  local plain = difference(f, variables, along, STEP)
  local h = 10 * STEP
  local finer = (4 * difference(f, variables, along, h) - difference(f, variables, along, 2 * h))
    / 3
  local off = math.min(math.abs(plain - slope), math.abs(finer - slope))
  if off > BOUND * math.max(scale, math.abs(slope)) or off ~= off then
    error(("%s: differences give %.12g and %.12g, the gradient %.12g"):format(what, plain, finer,
      slope), 0)
  end
end

local function executor_gradients(case, names, heads)
  local exe, grads = trials.bind(case, "write", 0)
  exe:forward{ is_train = true }
  exe:backward(heads)
  local list = {}
  for i, name in ipairs(names) do
    list[i] = grads[name]
  end
  return list
end

local function sum_of_products(list, weights)
  local sum
  for i, x in ipairs(list) do
    local part = (x * weights[i]):sum()
    sum = sum and sum + part or part
  end
  return sum
end

local function trial(line, random, sizes)
  local case = trials.make(line, random, sizes)
  local values, names, variables = make_variables(case)
  local outputs = record(case, values)
  local heads = random_like(outputs, random)
  local wanted = executor_gradients(case, names, heads)
  local once = autograd.grad(outputs, variables, { head_grads = heads, retain_graph = true })
  check_equal("the gradient", names, wanted, once, 1e-9)

  local all = { unpack(variables) }
  for i, h in ipairs(heads) do
    all[#all + 1] = h:attach_grad()
    names[#all] = "head " .. i
  end
  local function again()
    return autograd.grad(outputs, variables, { head_grads = heads, create_graph = true })
  end
  if is_refused(line, case) then
    local e = assert.raises("unsupported", again)
    assert.is_string(e.op)
    return
  end
  local recorded = again()
  check_equal("the recorded gradient", names, once, recorded, case.bound or 1e-9)

  local weights = random_like(recorded, random)
  local sum = autograd.record(function() return sum_of_products(recorded, weights) end)
  sum:backward{ retain_graph = true }
  local second = {}
  for i, x in ipairs(all) do
    second[i] = x.grad
  end
  local ok, reached = pcall(autograd.grad, sum, all, { create_graph = true })
  if ok then
    check_equal("the recorded second gradient", names, second, reached, 1e-8)
  elseif reached.code ~= "value" then                    -- some variable has no part in it
    error(reached, 0)
  end

  local along = random_like(all, random)
  check_slope("second order", function()
    return weighted(first_order(case, values, variables, heads), weights)
  end, all, along, weighted(second, along), largest(second))
end

-- Losses have gradients of their own, others parameters that spec/operators/cases.lua leaves out.
local MORE = {}

local function more(name, make)
  MORE[#MORE + 1] = { name, make }
end

for name in ("Linear Logistic MAE"):gmatch("%S+") do
  more(name .. "RegressionOutput", function(r)
    local n, k = r(1, 3), r(1, 4)
    return { data = { n, k }, label = { n, k } }, { grad_scale = 0.5 }, nil, nil, { label = 2 }
  end)
end
for _, normalization in ipairs{ "null", "batch", "valid" } do
  more("MakeLoss", function(r)
    return { data = { r(1, 3), r(1, 4) } }, { grad_scale = 2, valid_thresh = 0.1,
      normalization = normalization }
  end)
  for _, p in ipairs{ { out_grad = true }, { use_ignore = true, ignore_label = 1 },
      { multi_output = true }, { multi_output = true, use_ignore = true, ignore_label = 0 },
      { preserve_shape = true }, { smooth_alpha = 0.1 } } do
    more("SoftmaxOutput", function(r)
      local n, k, m = r(1, 3), r(3, 5), r(2, 4)
      local shapes = p.multi_output and { data = { n, k, m }, label = { n, m } }
        or p.preserve_shape and { data = { n, m, k }, label = { n, m } }
        or { data = { n, k }, label = { n } }
      p.normalization, p.grad_scale = normalization, 1.5
      return shapes, p, nil, nil, { label = 3 }
    end)
  end
end
more("SoftmaxOutput", function(r)
  local s = { r(1, 3), r(2, 4) }
  return { data = s, label = s }, {}, 0.1, 1
end)
more("make_loss", function(r) return { data = { r(1, 3) } }, {} end)
more("Pooling", function(r)
  return { data = { 2, 3, r(1, 4), r(1, 4) } }, { global_pool = true, pool_type = "max" }
end)
more("Pooling", function(r)
  return { data = { 2, 3, r(4, 6) } }, { kernel = { 3 }, pad = { 1 }, stride = { 2 },
    pool_type = "max", pooling_convention = "full" }
end)
more("Pooling", function(r)
  return { data = { 1, r(3, 4), r(3, 4), r(3, 4), 2 } }, { kernel = { 2, 3, 2 }, layout = "NDHWC",
    pool_type = "max" }
end)
more("BatchNorm", function(r)
  return { data = { r(2, 3), r(1, 3), 2 }, gamma = { 2 }, beta = { 2 } },
    { axis = -1, eps = 0.1, fix_gamma = false }
end)
more("LayerNorm", function(r)
  local c = r(2, 4)
  return { data = { r(1, 3), c, r(1, 3) }, gamma = { c }, beta = { c } }, { axis = 1, eps = 0.1 }
end)
for name in ("sum mean max min prod nansum"):gmatch("%S+") do
  more(name, function(r)
    return { data = { r(1, 3), r(2, 3), r(1, 3) } }, { axis = { 1 }, exclude = true }, 0.5, 2
  end)
end
more("sort", function(r) return { data = { r(1, 3), r(1, 4) } }, { axis = ty.null } end)
more("topk", function(r)
  return { data = { r(2, 3), r(2, 4) } }, { axis = ty.null, k = 3, ret_typ = "value" }
end)
more("_linalg_potrf", function(r)
  local n = r(1, 3)
  return { A = { n, n } }, {}, function(x, random)
    trials.fill(x, random, -0.2, 0.2)
    for i = 0, n - 1 do
      x:data()[i * n + i] = 2
    end
  end
end)
MORE[#MORE].build = function(x)
  return ty.sym._linalg_potrf{ ty.sym._linalg_syrk{ x.A }, lower = false }
end
more("SequenceMask", function(r)
  local n = r(1, 3)
  return { data = { 4, n, 2 }, sequence_length = { n } }, { use_sequence_length = true,
    value = 7 }, nil, nil, { sequence_length = 4 }
end)
more("Pad", function(r)
  return { data = { 1, 2, r(2, 4), r(2, 4) } }, { mode = "constant", constant_value = 5,
    pad_width = { 0, 0, 0, 0, 1, 1, 0, 1 } }
end)
more("_random_pdf_uniform", function(r)
  local n = r(1, 3)
  local shapes = { sample = { n, 2 }, low = { n }, high = { n } }
  return shapes, { is_log = true }, function(x, random, name)
    local low = ({ low = -2, sample = -0.5, high = 1 })[name]
    trials.fill(x, random, low, low + 1)
  end
end)

describe("recorded gradients:", function()
  for line, key in trials.lines(cases) do
    it(key, function() trials.several(line, trials.seed("orders", key), TRIALS, trial) end)
  end

  for line, key in trials.lines(MORE) do
    it(key .. " of its own", function()
      trials.several(line, trials.seed("orders", key), TRIALS, trial)
    end)
  end

  -- Never a recorded call, or without a derivative.
  local OTHERS = {}
  for name in ([[
    Custom _gate _select _learn SVMOutput IdentityAttachKLSparseReg _contrib_linear_cross_entropy
  ]]):gmatch("%S+") do
    OTHERS[name] = true
  end

  it("there is a rule for every operator with a gradient, or it is refused", function()
    local rules, without = require "tycho.autograd.rules", {}
    for _, name in ipairs(ty.op.list()) do
      local how = ty.op.info(name).gradient
      local rule, expansion = rules.find(name)
      if how ~= "zero" and how ~= "none" and not rule and not expansion and not OTHERS[name]
          and not REFUSED[name] then
        without[#without + 1] = name
      end
    end
    assert.same({}, without)
  end)

  it("what is refused names the operator and its line", function()
    local x = ty.nd.array{ 1, 2 }:attach_grad()
    local y = autograd.record(function()
      return ty.nd.gammaln(x)
    end)
    local e = assert.raises("unsupported", autograd.grad, y, x, { create_graph = true })
    assert.equal("gammaln", e.op)
    assert.matches("orders_spec.lua:" .. debug.getinfo(1, "l").currentline - 5, e.where)
  end)

  it("a formula of one's own has all orders", function()
    if not pcall(ty.op.info, "orders_cube") then
      ty.op.pointwise{ name = "orders_cube", args = { "a" }, params = { "k" },
        formula = "$k * a * a * a", grad = { "b = a * a; a >= 0 || a < 0 ? 3 * $k * b * g : 0" } }
    end
    local x = ty.nd.array({ 1, -2 }, FLOAT64):attach_grad()
    local y = autograd.record(function() return ty.nd.orders_cube(x, { k = 2 }) end)
    local dx = autograd.grad(y, x, { create_graph = true })
    local d2x = autograd.grad(dx, x, { create_graph = true })
    assert.same({ 6, 24 }, dx:totable())
    assert.same({ 12, -24 }, d2x:totable())
    assert.same({ 12, 12 }, autograd.grad(d2x, x):totable())
  end)

  it("a gradient that is constant has the derivative zero", function()
    for name, f in pairs{
      scaled = function(x) return x * 3 end,
      radians = function(x) return ty.nd.radians(x) end,
      dropped = function(x) return ty.nd.Dropout(x, { p = 0.5 }) end,
      itself = function(x) return x end,
    } do
      local x = ty.nd.array({ 1, -2 }, FLOAT64):attach_grad()
      local y = autograd.record(function() return f(x) end)
      local dx = autograd.grad(y, x, { create_graph = true })
      local d2x = autograd.grad(dx, x, { create_graph = true })
      assert.same({ 0, 0 }, d2x:totable(), name)
      assert.same({ 0, 0 }, autograd.grad(d2x, x):totable(), name)
      autograd.grad(autograd.record(function() return f(x) end), x, { create_graph = true })
        :backward()
      assert.same({ 0, 0 }, x.grad:totable(), name)
    end
    local x, w = ty.nd.ones({ 2 }, FLOAT64):attach_grad(), ty.nd.ones({ 2 }, FLOAT64):attach_grad()
    local y = autograd.record(function() return x * w end)
    local dx = autograd.grad(y, x, { create_graph = true })
    assert.raises("value", autograd.grad, dx, x, { retain_graph = true })
    assert.same({ 1, 1 }, autograd.grad(dx, w):totable())
  end)

  it("Dropout keeps its mask", function()
    local x = ty.nd.ones({ 100 }, FLOAT64):attach_grad()
    local y = autograd.record(function() return ty.nd.square(ty.nd.Dropout(x, { p = 0.5 })) end)
    local dx = autograd.grad(y, x, { create_graph = true })
    dx:backward()
    assert.near(y * 2, dx, 1e-12)
    assert.near(x.grad, dx, 1e-12)
  end)
end)
