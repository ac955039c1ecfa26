-- FullyConnected's data gradient on a GPU where relu, sigmoid or tanh made the data: the gradient
-- of that is a part of the step (POST_DATA_GRAD of native/kernel/epilogue.h), in a kernel that
-- makes a small product itself, or in one after cublasLt's (native/cuda/kernels/act_product.cu).
-- Beside the same network with the activation as one more output, which keeps the nodes apart:
-- numbers are the same.

local devices = require "spec.support.devices_agree"
local stand_in = require "spec.support.stand_in"

local SCRIPT = devices.COSTS .. [[
local sym = ty.sym

-- Returns whole numbers from -3 to 3, whose products and sums are exact, as an array on the CPU.
local function whole(shape, seed)
  local n, values = 1, {}
  for _, d in ipairs(shape) do n = n * d end
  for i = 1, n do values[i] = (i * 7919 + seed * 31) % 7 - 3 end
  return ty.nd.array({values}, {ctx = here, dtype = "float64"}):reshape(shape)
end

-- Returns the numbers of what three steps give, outputs but the first left out; the program; the
-- kernels that the third one starts. options: data, head: functions of a shape; precision; req.
local function run(net, dtype, shape, options)
  local heads, out = {}, {}
  local exe = net:simple_bind{ctx = there, shapes = {data = shape}, type_dict = {data = dtype},
    grad_req = options.req or "write", precision = options.precision}
  for k, name in ipairs(net:list_arguments()) do
    local x = exe.arg_dict[name]
    local make = name == "data" and options.data or whole;
    make(x.shape, k):astype(x.dtype):copyto(x)
  end
  if options.monitor then exe:set_monitor_callback(function() end) end
  for _ = 1, 3 do
    for i, y in ipairs(exe:forward(true)) do
      local make = i == 1 and (options.head or whole) or ty.nd.zeros
      heads[i] = (i == 1 and make(y.shape, 5) or make(y.shape, here)):astype(dtype)
        :as_in_context(there)
    end
    ty.waitall()
    costs()
    exe:backward(heads)
  end
  ty.waitall()
  local launches = costs()
  local function take(a)
    for _, v in ipairs(a:as_in_context(here):astype("float64"):reshape{-1}:totable()) do
      out[#out + 1] = v + 0                    -- of zeros no sign
    end
  end
  take(exe.outputs[1])
  for _, name in ipairs(net:list_arguments()) do
    if exe.grad_dict[name] then take(exe.grad_dict[name]) end
  end
  return out, exe:program(), launches
end

local function count_differences(mine, theirs)
  local differ = math.abs(#mine - #theirs)
  for i, v in ipairs(theirs) do
    differ = differ + ((v == mine[i] or (v ~= v and mine[i] ~= mine[i])) and 0 or 1)
  end
  return differ
end

-- Compares a network with and without `between` as an output. options.kernel: what the step starts
-- for the activation's gradient, by default "act_product"; false: it is not in the step.
local function same(name, net, between, dtype, shape, options)
  options = options or {}
  local mine, program, launches = run(net, dtype, shape, options)
  local apart, plain = run(sym.Group{net, between}, dtype, shape, options)
  local differ, kernel = count_differences(mine, apart), options.kernel
  if kernel == nil then kernel = "act_product" end
  local joined = "  [f_backward r_backward]"
  local ok = differ == 0 and (program:find(joined, 1, true) ~= nil) == (kernel ~= false)
    and plain:find(joined, 1, true) == nil
    and (not kernel or launches:find(kernel, 1, true) ~= nil)
  print(name, ok and "equal" or ("different: %d\n%s\n%s\n%s"):format(differ, program, plain,
    launches))
end

local function linear(x, n, name, flatten)
  return sym.FullyConnected{data = x, num_hidden = n, name = name or "f", flatten = flatten}
end
local function relu(x) return sym.relu{x, name = "r"} end
]]

-- The product of the gradient: rows, columns, depth.
local SIZES = [[
local function both(name, dtype, sizes, options)
  local r = relu(linear(sym.Variable "data", sizes[2], "e"))
  same(name .. " " .. dtype, linear(r, sizes[3]), r, dtype, {sizes[1], 3}, options)
end
for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
  both("small", dtype, {5, 7, 3})
  both("large", dtype, {8, 64, 129}, {kernel = "act_back"})
end
both("one", "float32", {1, 1, 1})
both("a tile", "float32", {32, 32, 32})
both("eight tiles", "float16", {33, 97, 128})
both("nine tiles", "float32", {32, 257, 2}, {kernel = "act_back"})
both("no whole load", "float16", {33, 257, 2}, {kernel = "act_back"})
for _, precision in ipairs{"high", "medium"} do
  both(precision, "float32", {5, 7, 3}, {precision = precision})
  both(precision .. ", large", "float32", {8, 64, 129},
    {precision = precision, kernel = "act_back"})
end
]]

-- The other activations whose gradient follows from their output.
local CURVES = [[
local function small(shape, seed) return whole(shape, seed) / 32 end
for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
  for _, act in ipairs{"sigmoid", "tanh"} do
    for depth, kernel in pairs{[3] = "act_product", [129] = "act_back"} do
      local x = linear(sym.Variable "data", 7, "e")
      local r = sym.Activation{x, act_type = act, name = "r"}
      local options = {data = small, kernel = kernel}
      same(act .. " " .. dtype, linear(r, depth), r, dtype, {5, 3}, options)
      r = sym[act]{x, name = "r"}
      same("the operator " .. act .. " " .. dtype, linear(r, depth), r, dtype, {5, 3}, options)
    end
  end
end
]]

-- Zeros of both signs, NaN, infinities, in what relu makes and in the gradient. Below 3e-8 an
-- output of float16 is 0, and so is the gradient that goes through it.
local EDGES = [[
local VALUES = {0, -0.0, 1, -1, 0 / 0, 1 / 0, -1 / 0, 1e-8, -1e-8, 2}
local function edges(shape)
  local n, values = shape[1] * shape[2], {}
  for i = 1, n do values[i] = VALUES[i % #VALUES + 1] end
  return ty.nd.array({values}, {ctx = here, dtype = "float64"}):reshape(shape)
end
-- a row of zeros, infinity and NaN each, and whole numbers
local function wild(shape)
  local x = whole(shape, 2)
  for i, v in ipairs{0, 1 / 0, 0 / 0} do x[i] = v end
  return x
end
for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
  for depth, kernel in pairs{[3] = "act_product", [129] = "act_back"} do
    local r = relu(sym.reverse{sym.Variable "data", axis = 1})
    for name, head in pairs{whole = whole, wild = wild} do
      same(dtype .. name, linear(r, depth), r, dtype, {6, 10},
        {data = edges, head = head, kernel = kernel})
    end
  end
end
-- a relu's gradient is 0 where its output is 0, as nothing has been added to it
local exe = linear(relu(linear(sym.Variable "data", 4, "e")), 3):simple_bind{ctx = there,
  shapes = {data = {2, 5}}, grad_req = "write"}
for _, name in ipairs{"e_weight", "f_weight"} do exe.arg_dict[name][":"] = 1 end
exe:forward(true)
exe:backward{ty.nd.ones({2, 3}, there)}
print("zeros", exe.grad_dict.e_bias:as_in_context(here):max():asscalar() == 0 and "equal"
  or "different")
]]

-- Where else a relu is before a product, and where its gradient is no part of the step.
local PLACES = [[
local data = sym.Variable "data"
local function first(n) return linear(data, n or 6, "e") end
local r = relu(first())
same("adds", linear(r, 3), r, "float32", {4, 5}, {req = "add"})
same("no gradient of weights", linear(r, 3), r, "float32", {4, 5},
  {req = {data = "write", e_weight = "write", e_bias = "null", f_weight = "null",
    f_bias = "null"}})
local a = sym.Activation{first(), act_type = "relu", name = "r"}
same("Activation", linear(a, 3), a, "float32", {4, 5})
same("no bias", sym.FullyConnected{data = r, num_hidden = 3, no_bias = true, name = "f"}, r,
  "float32", {4, 5})
local rows = relu(linear(data, 6, "e", false))
same("rows", linear(rows, 3, "f", false), rows, "float32", {2, 4, 5})
local c = relu(sym.Convolution{data, num_filter = 4, kernel = {3, 3}, name = "c"})
for _, dtype in ipairs{"float32", "float16"} do
  same("flat", linear(c, 3), c, dtype, {2, 2, 5, 5})
end
same("flat", linear(c, 3), c, "float32", {2, 2, 5, 5}, {precision = "medium"})
local s = relu(sym.elemwise_add{first(), linear(data, 6, "d"), name = "s"})
same("a sum", linear(s, 3), s, "float32", {4, 5})

same("two readers", linear(r, 3) + linear(r, 3, "g"), r, "float32", {4, 5}, {kernel = false})
local v = relu(data)
same("of the data", linear(v, 3), v, "float32", {4, 5}, {kernel = false})
local t = sym.softsign{first(), name = "r"}
same("softsign", linear(t, 3), t, "float32", {4, 5}, {kernel = false})
local n = relu(sym.BatchNorm{data = first(), fix_gamma = false, name = "n"})
same("BatchNorm", linear(n, 3), n, "float32", {4, 5}, {kernel = false})

local net = linear(r, 3)
local mine, watched = run(net, "float32", {4, 5}, {}), run(net, "float32", {4, 5}, {monitor = true})
print("monitor", count_differences(mine, watched) == 0 and "equal" or "different")

-- without an activation, added to what is there
compare("no activation", function(ctx)
  local exe = linear(data, 3):simple_bind{ctx = ctx, shapes = {data = {33, 37}}, grad_req = "add"}
  for k, name in ipairs{"data", "f_weight"} do
    whole(exe.arg_dict[name].shape, k):astype("float32"):copyto(exe.arg_dict[name])
  end
  for i = 1, 3 do
    exe:forward(true)
    costs()
    exe:backward{whole({33, 3}, i):astype("float32"):as_in_context(ctx)}
  end
  ty.waitall()
  assert(ctx == here or costs():find "act_product")
  return all{exe.grad_dict.data, exe.grad_dict.f_weight}
end)

-- calls that are recorded
compare("recorded", function(ctx)
  local x, w, u = whole({4, 5}, 1), whole({6, 5}, 2), whole({3, 6}, 3)
  x, w, u = x:as_in_context(ctx), w:as_in_context(ctx), u:as_in_context(ctx)
  for _, p in ipairs{x, w, u} do p:attach_grad() end
  for _ = 1, 3 do
    local y = ty.autograd.record(function()
      local y = ty.nd.relu(ty.nd.FullyConnected{x, w, no_bias = true, num_hidden = 6})
      return ty.nd.FullyConnected{y, u, no_bias = true, num_hidden = 3}
    end)
    y:backward(whole({4, 3}, 4):as_in_context(ctx))
  end
  return all{x.grad, w.grad, u.grad}
end)
]]

-- 784-128-64-10, a batch of 64
local STEP = [[
local x = sym.Variable "data"
for i, n in ipairs{128, 64} do
  x = sym.relu{linear(x, n, "f" .. i), name = "r" .. i}
end
local net = sym.SoftmaxOutput{linear(x, 10, "f3"), name = "softmax"}
local function step(ctx)
  local exe = net:simple_bind{ctx = ctx, shapes = {data = {64, 784}, softmax_label = {64}},
    grad_req = {data = "null", softmax_label = "null", f1_weight = "write", f1_bias = "write",
      f2_weight = "write", f2_bias = "write", f3_weight = "write", f3_bias = "write"}}
  local update, n = {lrs = {}, wds = {}, momentum = 0.9, num_weights = 0, out = {}}, 0
  for k, name in ipairs(net:list_arguments()) do
    local a = exe.arg_dict[name];
    (pattern(a.shape, here, "float32") * 0.05 + 0.001 * k):copyto(a)
    if name == "softmax_label" then a[":"] = 3 end
    if exe.grad_dict[name] then
      update[3 * n + 1], update[3 * n + 2] = a, exe.grad_dict[name]
      update[3 * n + 3] = ty.nd.zeros(a.shape, ctx)
      update.out[n + 1], update.lrs[n + 1], update.wds[n + 1], n = a, 0.01, 0, n + 1
    end
  end
  update.num_weights = n
  for _ = 1, 3 do
    ty.waitall()
    costs()
    exe:forward(true)
    exe:backward()
    ty.nd.multi_sgd_mom_update(update)
  end
  ty.waitall()
  local weights = {}
  for _, name in ipairs{"f1_weight", "f1_bias", "f2_weight", "f2_bias", "f3_weight"} do
    weights[#weights + 1] = exe.arg_dict[name]
  end
  return weights, costs()
end
local mine, theirs, told = step(here), step(there)
local far, launches = farthest(mine, theirs), select(2, told:gsub("\n", "\n"))
print("step", far < 1e-5 and launches == 11 and "equal"
  or ("different: %g, %d launches\n%s"):format(far, launches, told))
]]

-- computed in float64 there
local HOST = [[
local function small(shape, seed) return whole(shape, seed) / 32 end
local BOUND = {float32 = 1e-6, float64 = 1e-14, float16 = 2e-3, bfloat16 = 2e-2}
for dtype, bound in pairs(BOUND) do
  for _, act in ipairs{"sigmoid", "tanh"} do
    local r = sym[act]{linear(sym.Variable "data", 7, "e"), name = "r"}
    local net, options = linear(r, 3), {data = small}
    local mine, program = run(net, dtype, {5, 3}, options)
    local apart, far = run(sym.Group{net, r}, dtype, {5, 3}, options), 0
    for i, v in ipairs(apart) do
      far = math.max(far, math.abs(v - mine[i]) / (1 + math.abs(v)))
    end
    print(act .. " " .. dtype, far <= bound and program:find("[f_backward r_backward]", 1, true)
      and "equal" or ("different: %g\n%s"):format(far, program))
  end
end
]]

describe("an activation's gradient after a product on a GPU", function()
  it("is a part of the product, of any size and type", function()
    devices.agree(pending, SCRIPT .. SIZES, 17)
  end)

  it("is sigmoid's or tanh's, too", function()
    devices.agree(pending, SCRIPT .. CURVES, 32)
  end)

  it("has the numbers of its own kernel at zeros, NaN and infinities", function()
    devices.agree(pending, SCRIPT .. EDGES, 17)
  end)

  it("is one where no other node needs what is between", function()
    devices.agree(pending, SCRIPT .. PLACES, 16)
  end)

  it("leaves 11 launches in a step of a perceptron", function()
    devices.agree(pending, SCRIPT .. STEP, 1)
  end)

  it("is computed on the host, where the product is", function()
    if not stand_in.exists() then return pending "no build/cudasim: make cudasim" end
    local script = SCRIPT:gsub('if kernel == nil then kernel = "act_product" end',
      'if kernel ~= false then kernel = "copy" end')
    for part, n in pairs{[EDGES] = 17, [HOST] = 8} do
      local text, status = stand_in.run(script .. part,
        {TYCHO_DISABLE = "cublaslt", CUDASIM_COSTS = "1"})
      assert.equal(0, status, text)
      assert.equal(n, select(2, text:gsub("\tequal", "")), text)
    end
  end)
end)
