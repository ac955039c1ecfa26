-- What kernels for GPUs do of the nodes around theirs (native/pass/epilogue.c): BatchNorm a sum and
-- a relu after it, its gradient that of the relu, max pooling the tanh before it. Beside the same
-- network with the value between as one more output, which keeps the nodes apart: numbers are the
-- same.

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

  it("is max pooling of tanh, and its gradient that of both", function()
    devices.agree(pending, SCRIPT .. POOLS, 16)
  end)
end)
