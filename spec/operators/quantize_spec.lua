-- Arithmetic on 8-bit integers and their ranges, against the same in numbers: what levels
-- stand for, layers, refusals.
local ty = require "tycho"
local trials = require "spec.support.trials"
require "spec.helper"

local nd, contrib = ty.nd, ty.nd.contrib

local function range(least, most) return nd.array{least}, nd.array{most} end

-- Returns integers of a range: the array, its ends, and the numbers that they represent.
local function levels(shape, r, dtype, random)
  dtype = dtype or "int8"
  local x = nd.zeros(shape, {dtype = "float64"})
  local p, most = x:data(), dtype == "uint8" and 255 or 127
  for i = 0, x.size - 1 do p[i] = random(dtype == "uint8" and 0 or -most, most) end
  local low, high = range(dtype == "uint8" and 0 or -r, r)
  return {q = x:astype(dtype), low = low, high = high, x = x * (r / most)}
end

-- Returns the numbers that a 32-bit result represents.
local function numbers(out, min, max)
  return out:astype("float64")
    * (math.max(math.abs(min:asscalar()), math.abs(max:asscalar())) / 2147483647)
end

describe("8-bit integers", function()
  it("stand for numbers of a range about zero", function()
    local q, low, high = unpack(contrib.quantize(nd.array{-1, 0, 1}, nd.array{-1}, nd.array{1}))
    assert.near({0, 0, 255}, q)
    assert.near({-1}, low)
    assert.near({1}, high)
    q = contrib.quantize(nd.array{-1, 0, 0.5, 2}, nd.array{-1}, nd.array{1}, {out_type = "int8"})[1]
    assert.equal("int8", q.dtype)
    assert.near({-127, 0, 64, 127}, q)
    assert.near({0.141176, -0.996078},
      contrib.dequantize(nd.array({18, -127}, {dtype = "int8"}), range(-1, 1)), 1e-6)
    assert.near({0, 2},
      contrib.dequantize(nd.array({0, 255}, {dtype = "uint8"}), range(0, 2)), 1e-6)
  end)

  it("take a range that is given, or that of the data", function()
    local q, low, high = unpack(contrib.quantize_v2(nd.array{-4, 0, 2}))
    assert.near({-127, 0, 64}, q)
    assert.near({-4, 4}, {low:asscalar(), high:asscalar()})
    q = contrib.quantize_v2(nd.array{0, 0.5, 2},
      {out_type = "auto", min_calib_range = 0, max_calib_range = 1})[1]
    assert.equal("uint8", q.dtype)
    assert.near({0, 128, 255}, q)
    assert.near({5}, contrib.quantize_v2(nd.array({5}, {dtype = "int8"}))[1])
    local all = nd.array({0, 1073741824, -2147483647}, {dtype = "int32"})
    assert.near({0, 64, -127}, contrib.requantize(all, range(-3, 3))[1])
    assert.near({0, 127, -127}, contrib.requantize(all, nd.array{-3}, nd.array{3},
      {min_calib_range = -1, max_calib_range = 1})[1])
  end)

  it("come back within half a level", function()
    local random = trials.random(5)
    local x = trials.fill(nd.zeros({50}, {dtype = "float64"}), random, -3, 3)
    local back = contrib.dequantize(unpack(contrib.quantize_v2(x)))
    assert.near(x, back, 3 / 127)
  end)
end)

describe("a histogram", function()
  it("is cut off where least is lost", function()
    local counts, edges = {}, {}
    for i = 1, 81 do counts[i] = math.floor(1000 * math.exp(-((i - 41) / 6) ^ 2)) end
    for i = 1, 82 do edges[i] = (i - 41.5) / 10 end
    local threshold, lost = unpack(contrib.calibrate_entropy(nd.array(counts), nd.array(edges),
      {num_quantized_bins = 15}))
    assert.is_true(threshold:asscalar() > 1 and threshold:asscalar() < 3, tostring(threshold))
    assert.is_true(lost:asscalar() >= 0 and lost:asscalar() < 0.1, tostring(lost))
    assert.raises("shape", contrib.calibrate_entropy, nd.ones{3}, nd.ones{4})
  end)
end)

describe("layers in 8 bits", function()
  local random = trials.random(11)

  it("are those of the numbers: FullyConnected", function()
    for _, dtype in ipairs{"int8", "uint8"} do
      local x, w, b = levels({3, 5}, 2, dtype, random), levels({4, 5}, 0.5, "int8", random),
        levels({4}, 1, "int8", random)
      local want = nd.FullyConnected(x.x, w.x, {num_hidden = 4, no_bias = true})
      local out = contrib.quantized_fully_connected{x.q, w.q, x.low, x.high, w.low, w.high,
        num_hidden = 4, no_bias = true}
      assert.equal("int32", out[1].dtype)
      assert.near(want, numbers(unpack(out)), 1e-6)
      out = contrib.quantized_fully_connected{x.q, w.q, b.q, x.low, x.high, w.low, w.high,
        b.low, b.high, num_hidden = 4}
      assert.near(nd.FullyConnected(x.x, w.x, b.x, {num_hidden = 4}), numbers(unpack(out)), 1e-4)
    end
  end)

  it("are those of the numbers: Convolution and Pooling", function()
    local x, w = levels({2, 4, 5, 5}, 2, "int8", random), levels({6, 2, 3, 3}, 0.5, "int8", random)
    local options = {kernel = {3, 3}, num_filter = 6, num_group = 2, pad = {1, 1},
      stride = {2, 1}, no_bias = true}
    local given = {x.q, w.q, x.low, x.high, w.low, w.high}
    for k, v in pairs(options) do given[k] = v end
    assert.near(nd.Convolution(x.x, w.x, options),
      numbers(unpack(contrib.quantized_conv(given))), 1e-5)
    for _, kind in ipairs{"max", "avg"} do
      local p = {kernel = {2, 2}, stride = {2, 2}, pool_type = kind}
      local y = contrib.quantized_pooling{x.q, x.low, x.high, kernel = {2, 2},
        stride = {2, 2}, pool_type = kind}
      assert.equal("int8", y[1].dtype)
      assert.near(nd.Pooling(x.x, p), y[1]:astype("float64") * (2 / 127), 1 / 127 + 1e-9)
      assert.near(2, y[3]:asscalar())
    end
  end)

  it("keep the range, or bring all to one", function()
    local x = levels({2, 3, 2}, 2, "int8", random)
    assert.near(x.q:reshape{2, 6}, contrib.quantized_flatten(x.q, x.low, x.high)[1])
    assert.near(nd.relu(x.x), contrib.quantized_act(x.q, x.low, x.high, {act_type = "relu"})[1]
      :astype("float64") * (2 / 127), 1e-9)
    local w = levels({3, 2}, 1, "int8", random)
    assert.near({w.q:totable()[3], w.q:totable()[1], w.q:totable()[3]}, contrib.quantized_embedding(
      nd.array{2, 0, 9}, w.q, w.low, w.high, {input_dim = 3, output_dim = 2})[1])
    local a, b = levels({2, 1}, 1, "int8", random), levels({2, 2}, 4, "int8", random)
    local y, low, high = unpack(contrib.quantized_concat{a.q, b.q, a.low, a.high, b.low,
      b.high, num_args = 2, dim = 1})
    assert.near(nd.Concat(a.x, b.x, {dim = 1}), y:astype("float64") * (4 / 127), 2 / 127 + 1e-9)
    assert.near({-4, 4}, {low:asscalar(), high:asscalar()})
  end)

  it("are those of the numbers: sums, products, batch normalisation", function()
    local a, b = levels({2, 3}, 1, "int8", random), levels({2, 3}, 4, "int8", random)
    local ranges = {a.q, b.q, a.low, a.high, b.low, b.high}
    assert.near(a.x + b.x, numbers(unpack(contrib.quantized_elemwise_add(ranges))), 1e-6)
    assert.near(a.x * b.x, numbers(unpack(contrib.quantized_elemwise_mul(ranges))), 1e-6)
    ranges.enable_float_output = true
    assert.near(a.x * b.x, contrib.quantized_elemwise_mul(ranges)[1], 1e-5)
    ranges.enable_float_output, ranges.min_calib_range, ranges.max_calib_range = nil, -5, 5
    local y = contrib.quantized_elemwise_add(ranges)[1]
    assert.equal("int8", y.dtype)
    assert.near(a.x + b.x, y:astype("float64") * (5 / 127), 2.5 / 127 + 1e-9)
    local gamma, beta, mean, var = nd.array{1, 2, 0.5}, nd.array{0, 1, -1},
      nd.array{0.5, 0, -0.5}, nd.array{1, 4, 0.25}
    local z = contrib.quantized_batch_norm{b.q, gamma, beta, mean, var, b.low, b.high,
      fix_gamma = false, eps = 0, min_calib_range = -8, max_calib_range = 8}[1]
    local one = {1, 3}
    local want =
      nd.broadcast_add(nd.broadcast_mul(nd.broadcast_sub(b.x:astype("float32"), mean:reshape(one)),
        (gamma / nd.sqrt(var)):reshape(one)), beta:reshape(one))
    assert.near(nd.clip(want, -8, 8), z:astype("float32") * (8 / 127), 4 / 127 + 1e-5)
  end)

  it("are refused where they cannot be", function()
    local x = nd.zeros{2, 3}
    assert.raises("unsupported", contrib.quantized_flatten, x, range(-1, 1))
    assert.raises("unsupported", contrib.quantized_act, x:astype("int8"), nd.array{-1},
      nd.array{1}, {act_type = "tanh"})
    assert.raises("value", contrib.quantize_v2, x, {min_calib_range = 1})
    assert.raises("value", contrib.quantized_batch_norm, x:astype("int8"), nd.ones{3}, nd.ones{3},
      nd.ones{3}, nd.ones{3}, range(-1, 1))
    local s = ty.sym.contrib.quantized_flatten{ty.sym.Variable("x"),
      ty.sym.Variable("a"), ty.sym.Variable("b")}
    assert.raises("unsupported", s.simple_bind, s,
      {ctx = ty.cpu(), x = {2, 3}, type_dict = {x = "int8"}, grad_req = "write"})
  end)

  it("run in an executor", function()
    local V = ty.sym.Variable
    local q = ty.sym.contrib.quantize_v2{V("x"), min_calib_range = -1, max_calib_range = 1}
    local w = ty.sym.contrib.quantize_v2{V("w"), min_calib_range = -1, max_calib_range = 1}
    local fc = ty.sym.contrib.quantized_fully_connected{q[1], w[1], q[2], q[3], w[2], w[3],
      num_hidden = 2, no_bias = true}
    local r = ty.sym.contrib.requantize{fc[1], fc[2], fc[3],
      min_calib_range = -2, max_calib_range = 2}
    local exe = ty.sym.contrib.dequantize{r[1], r[2], r[3]}
      :simple_bind{ctx = ty.cpu(), x = {3, 4}, grad_req = "null"}
    trials.fill(exe.arg_dict.x, random, -1, 1)
    trials.fill(exe.arg_dict.w, random, -0.5, 0.5)
    exe:forward()
    assert.near(nd.FullyConnected(exe.arg_dict.x, exe.arg_dict.w, {num_hidden = 2, no_bias = true}),
      exe.outputs[1], 0.05)
  end)
end)
