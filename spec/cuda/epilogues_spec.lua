-- What kernels for GPUs do of the nodes around theirs (native/pass/epilogue.c): BatchNorm a sum and
-- a relu after it, its gradient that of the relu, with a sum between, too, max pooling the tanh
-- before it. Beside the same network with the value between as one more output, which keeps the
-- nodes apart: numbers are the same.

local devices = require "spec.support.devices_agree"

local SCRIPT = devices.SCRIPT .. [[
local sym = ty.sym

-- Returns the numbers of what three steps give, the second output left out, and the program.
local function run(net, dtype, shape, trains)
  local heads, out = {}, {}
  local exe = net:simple_bind{ctx = there, shapes = {data = shape}, type_dict = {data = dtype},
    grad_req = trains and "write" or "null"}
  for k, name in ipairs(net:list_arguments()) do
    local x = exe.arg_dict[name];
    (pattern(x.shape, here, "float64") * 1.4 + 0.1 * (k % 3)):astype(x.dtype):copyto(x)
  end
  for _ = 1, 3 do
    for i, y in ipairs(exe:forward(trains)) do
      heads[i] = pattern(y.shape, there, dtype) * (i == 1 and 1 or 0)
    end
    if trains then exe:backward(heads) end
  end
  local function take(a)
    for _, v in ipairs(a:as_in_context(here):astype("float64"):reshape{-1}:totable()) do
      out[#out + 1] = v + 0                    -- of zeros no sign
    end
  end
  take(exe.outputs[1])
  for _, name in ipairs(net:list_arguments()) do
    if trains then take(exe.grad_dict[name]) end
  end
  for _, name in ipairs(net:list_auxiliary_states()) do take(exe.aux_dict[name]) end
  return out, exe:program()
end

-- Compares a network with and without `between`. joined: the nodes of one step, which the network
-- has alone; never: true: it must not have it, "training", "inference": not then.
local function same(name, net, between, dtype, shape, joined, never)
  for _, trains in ipairs{true, false} do
    local mine, program = run(net, dtype, shape, trains)
    local apart, plain = run(sym.Group{net, between}, dtype, shape, trains)
    local differ = math.abs(#mine - #apart)
    for i, v in ipairs(apart) do
      differ = differ + ((v == mine[i] or (v ~= v and mine[i] ~= mine[i])) and 0 or 1)
    end
    local found = program:find("  [" .. joined .. "]", 1, true) ~= nil
    local apart_too = plain:find("  [" .. joined .. "]", 1, true) == nil
    local wanted = not never or never == (trains and "inference" or "training")
    local ok = differ == 0 and found == wanted and apart_too
    print(name, ok and "equal" or ("different: %d\n%s\n%s"):format(differ, program, plain))
  end
end

local function conv(filters)
  return sym.Convolution{data = sym.Variable "data", num_filter = filters, kernel = {3, 3},
    pad = {1, 1}, name = "c"}
end
local function ends(x, name)
  return sym.FullyConnected{data = x, num_hidden = 3, name = name or "f"}
end
]]

local SUMS = [[
local function block(relu, turned, axis)
  local x = conv(4)
  if axis then x = sym.transpose{x, axes = {0, 2, 3, 1}} end
  local y = sym.BatchNorm{data = x, fix_gamma = false, axis = axis or 1, name = "n"}
  local z = sym.elemwise_add{turned and x or y, turned and y or x, name = "p"}
  return ends(relu and sym.relu{z, name = "r"} or z), y
end
local function both(name, dtype, joined, ...)
  local net, y = block(...)
  same(name, net, y, dtype, {3, 2, 6, 7}, joined)
end
for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
  both("relu, " .. dtype, dtype, "n p r", true)
end
both("no relu", "float32", "n p", false)
both("the other way round", "float32", "n p r", true, true)
both("another axis", "float32", "n p r", true, false, 3)
]]

-- Below 3e-8 an output of float16 is 0, and so is the gradient that goes through it.
local RELUS = [[
local function both(name, dtype, scale)
  local y = sym.BatchNorm{data = conv(4), fix_gamma = false, gamma = sym.Variable "g" * scale,
    beta = sym.Variable "b" * scale, name = "n"}
  same(name .. dtype, ends(sym.relu{y, name = "r"}), y, dtype, {3, 2, 6, 7},
    "n_backward r_backward", "inference")
end
for _, dtype in ipairs{"float32", "float16", "bfloat16"} do both("relu, ", dtype, 1.5) end
both("tiny, ", "float16", 1e-8)
]]

-- The gradient of a relu after a sum is that of each of its layers. x: what the network is of.
local KEPT = [[
local function norm(x, name, axis)
  return sym.BatchNorm{data = x, fix_gamma = false, axis = axis or 1, name = name}
end
local function block(options)
  local x = conv(4)
  if options.axis then x = sym.transpose{x, axes = {0, 2, 3, 1}} end
  local other = options.two and norm(x, "k", options.axis) or options.of and options.of(x) or x
  local y = norm(x, "n", options.axis)
  if options.before then other = sym.reverse{x, axis = 3} end
  local first = options.of and other or y
  local z = sym.elemwise_add{first, options.of and y or other, name = "p"}
  return sym.relu{z, name = "r"}, z
end
-- ends: what comes after
local function both(name, dtype, joined, options, ends)
  local r, z = block(options)
  same(name, ends(r), z, dtype, options.shape or {3, 2, 6, 7}, joined, options.never or "inference")
end
local function one_way(r)
  return ends(sym.Convolution{data = r, num_filter = 4, kernel = {1, 1}, name = "d"})
end
local function two_ways(r)
  return one_way(r) + ends(sym.Pooling{r, kernel = {2, 2}, pool_type = "avg"}, "g")
end
for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
  both("two, " .. dtype, dtype, "n_backward r_backward sum_grad", {}, two_ways)
  both("one, " .. dtype, dtype, "n_backward r_backward", {}, one_way)
end
both("norms", "float32", "k_backward r_backward sum_grad", {two = true}, two_ways)
both("elements alone", "float16", "n_backward r_backward sum_grad", {shape = {1, 2, 3, 5}},
  two_ways)
both("another axis", "float32", "n_backward r_backward", {axis = 3}, function(r) return r end)
both("NaN", "float32", "n_backward r_backward",
  {of = function(x) return sym.reverse{sym.log(x), axis = 3} end}, function(r) return r end)

-- of three parts
local r, z = block{}
local third = ends(sym.Pooling{r, kernel = {3, 3}, pool_type = "avg"}, "h")
same("three", two_ways(r) + third, z, "float32", {3, 2, 6, 7}, "n_backward r_backward", true)
-- what reads the relu's gradient first is no BatchNorm
both("a move", "float32", "n_backward r_backward", {before = true, never = true}, one_way)
-- of a relu whose gradient is not all that BatchNorm's is of
local y = norm(conv(4), "n")
local s = sym.elemwise_add{y, y, name = "p"}
same("one layer twice", ends(sym.relu{s, name = "r"}), y, "float32", {3, 2, 6, 7},
  "n_backward r_backward", true)
]]

-- The same on the CPU. Networks whose values have no NaN.
local BESIDE = [[
local function step(ctx, dtype, shape, precision)
  local x = conv(8)
  local y = sym.BatchNorm{data = x, fix_gamma = false, name = "n"}
  local r = sym.relu{y + x, name = "r"}
  -- a bias before BatchNorm has no gradient but rounding
  local c = sym.Convolution{data = r, num_filter = 8, kernel = {3, 3}, pad = {1, 1}, name = "d",
    no_bias = true}
  local k = sym.BatchNorm{data = c, fix_gamma = false, name = "k"}
  local net = ends(sym.relu{k + r, name = "q"})
  local exe = net:simple_bind{ctx = ctx, shapes = {data = shape}, type_dict = {data = dtype},
    grad_req = "write"}
  for _, name in ipairs(net:list_arguments()) do
    local a = exe.arg_dict[name];
    (pattern(a.shape, here, "float64") * 0.4 + 0.1):astype(a.dtype):copyto(a)
  end
  exe:forward(true)
  exe:backward{pattern(exe.outputs[1].shape, ctx, dtype)}
  local out = {exe.outputs[1]}
  for _, name in ipairs(net:list_arguments()) do out[#out + 1] = exe.grad_dict[name] end
  return out, exe:program()
end
for dtype, bound in pairs{float32 = 2e-5, float64 = 1e-12, float16 = 2e-2, bfloat16 = 2e-1} do
  for _, shape in ipairs{{3, 2, 6, 8}, {2, 2, 5, 5}} do
    local theirs, program = step(there, dtype, shape)
    local far = farthest(step(here, dtype, shape), theirs)
    local found = program:find("n_backward r_backward sum_grad", 1, true)
      and program:find("k_backward q_backward", 1, true)
    print(dtype, far <= bound and found and "equal" or ("different: %g\n%s"):format(far, program))
  end
end
]]

local POOLS = [[
local function pooled(act, k, stride, pad, kind)
  local y = act(conv(4))
  return ends(sym.Pooling{data = y, kernel = {k, k}, stride = {stride, stride}, pad = {pad, pad},
    pool_type = kind or "max", name = "m"}), y
end
local function tanh(x) return sym.Activation{data = x, act_type = "tanh", name = "t"} end
local function sigmoid(x) return sym.Activation{data = x, act_type = "sigmoid", name = "t"} end
local function both(name, dtype, never, ...)
  local net, y = pooled(...)
  same(name, net, y, dtype, {3, 2, 9, 8}, "m t", never)
end
both("tanh", "float32", false, tanh, 2, 2, 0)
both("windows that overlap", "float32", false, tanh, 3, 2, 1)
both("windows with gaps", "float32", false, tanh, 2, 3, 0)
both("the operator tanh", "float32", false, function(x) return sym.tanh{x, name = "t"} end, 2, 2, 0)
both("sigmoid", "float32", true, sigmoid, 2, 2, 0)
both("means", "float32", "training", tanh, 2, 2, 0, "avg")
both("half types", "float16", true, tanh, 2, 2, 0)
local y = tanh(conv(4))
local two = ends(sym.Pooling{data = y, kernel = {2, 2}, stride = {2, 2}, name = "m"})
  + ends(sym.Pooling{data = y, kernel = {3, 3}, stride = {3, 3}, name = "k"}, "g")
same("two readers", two, y, "float32", {3, 2, 9, 8}, "m t", true)
]]

describe("a step on a GPU", function()
  it("is BatchNorm, a sum and relu", function()
    devices.agree(pending, SCRIPT .. SUMS, 14)
  end)

  it("is BatchNorm's gradient and relu's, of half types, too", function()
    devices.agree(pending, SCRIPT .. RELUS, 8)
  end)

  it("is BatchNorm's gradient, that of a relu after a sum, and a sum of gradients", function()
    devices.agree(pending, SCRIPT .. KEPT, 30)
    devices.agree(pending, SCRIPT .. BESIDE, 8)
  end)

  it("is max pooling of tanh, and its gradient that of both", function()
    devices.agree(pending, SCRIPT .. POOLS, 16)
  end)
end)
