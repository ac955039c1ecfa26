-- Rare cases of operators: ranges of no width, numbers that a type cannot hold, rows so wide or
-- indices so numerous that work is split differently, rarely used types.
local ty = require "tycho"
local arrays = require "spec.support.arrays"
require "spec.helper"

local nd, sym = ty.nd, ty.sym
local NAN, INFINITE = 0 / 0, 1 / 0

local function i8(t) return nd.array(t, {dtype = "int8"}) end
local function range(least, most) return nd.array{least}, nd.array{most} end

describe("numbers of a parameter", function()
  it("become elements as numbers of an array do", function()
    for _, v in ipairs{NAN, INFINITE, -INFINITE, 1e300, -1e300, 3e9, -3e9, 300, -300, 0.5, -0.5,
      2 ^ 62} do
      for _, dtype in ipairs{"uint8", "int8", "int32", "int64", "bool", "float16", "bfloat16"} do
        local want = nd.array({v}, {dtype = "float64"}):astype(dtype):astype("float64")
        local got = nd.full({1}, v, {dtype = dtype}):astype("float64")
        assert.near(want, got, 0)
      end
    end
  end)

  it("keep the sign of zero", function()
    assert.equal(-INFINITE, 1 / nd._full{shape = {3}, value = "-0.0"}:totable()[3])
    assert.equal(INFINITE, 1 / nd._full{shape = {3}, value = 0}:totable()[3])
  end)
end)

describe("levels", function()
  it("of nothing but NaN, or of a range of no width, are 0", function()
    local zeros = {0, 0}
    local least, most = range(0, 0)
    for _, y in ipairs{
      nd.contrib.quantize_v2(nd.array{NAN, NAN}),
      nd.contrib.requantize(nd.array({-3, 5}, {dtype = "int32"}), least, most),
      nd.contrib.quantized_elemwise_mul(i8{-3, 5}, i8{-3, 5}, least, most, least, most),
      nd.contrib.quantized_elemwise_add(i8{-3, 5}, i8{-3, 5}, least, most, least, most),
      nd.contrib.quantized_elemwise_add(i8{-3, 5}, i8{-3, 5}, least, most, least, most,
        {min_calib_range = 0, max_calib_range = 0}),
    } do
      assert.near(zeros, y[1])
      assert.near({0}, y[2])
      assert.near({0}, y[3])
    end
    local joined = nd.contrib.quantized_concat(i8{{-3, 5}}, i8{{7, 1}}, least, least, most, most,
      {dim = 0, num_args = 2})
    assert.near({zeros, zeros}, joined[1])
    local x = i8{{{{10, -10}}}}
    local normal = nd.contrib.quantized_batch_norm(x, nd.ones{1}, nd.zeros{1}, nd.zeros{1},
      nd.ones{1}, nd.array{-1}, nd.array{1}, {min_calib_range = 0, max_calib_range = 0})
    assert.near({{{zeros}}}, normal[1])
  end)

  it("stay as they are where data are levels already", function()
    for _, case in ipairs{{{}, 0, 0}, {{min_calib_range = -1, max_calib_range = 2}, -1, 2}} do
      case[1].out_type = "auto"
      local y = nd.contrib.quantize_v2(i8{-3, 5}, case[1])
      assert.near({-3, 5}, y[1])
      assert.near({case[2]}, y[2])
      assert.near({case[3]}, y[3])
    end
  end)

  it("are unsigned by themselves where the range is", function()
    local y = nd.contrib.quantize_v2(nd.array{0, 1, 5},
      {out_type = "auto", min_calib_range = 0, max_calib_range = 2})
    assert.equal("uint8", y[1].dtype)
    assert.near({0, 128, 255}, y[1])
    y = nd.contrib.quantize_v2(nd.array{-3, 0, 5},
      {out_type = "auto", min_calib_range = -1, max_calib_range = 2})
    assert.equal("int8", y[1].dtype)
    assert.near({-127, 0, 127}, y[1])
  end)
end)

describe("whole numbers", function()
  it("are drawn from a range that their type holds", function()
    local function refused(low, high, text)
      local e = assert.raises("run", function()
        nd.random_randint{low = low, high = high, shape = {2}, dtype = "int32"}:wait_to_read()
      end)
      assert.equal(("bad parameters: low = %.0f, high = %.0f; expected %s"):format(low, high, text),
        e.message)
    end
    refused(0, 2 ^ 31 + 1, "numbers that fit into int32")
    refused(-2 ^ 31 - 1, 0, "numbers that fit into int32")
    refused(1, 1, "low below high")
    assert.near({2 ^ 31 - 1}, nd.random_randint{low = 2 ^ 31 - 1, high = 2 ^ 31, shape = {1},
      dtype = "int32"})
    assert.near({2 ^ 40}, nd.random_randint{low = 2 ^ 40, high = 2 ^ 40 + 1, shape = {1},
      dtype = "int64"})
  end)

  it("are summed in their own type, which wraps", function()
    local function sums(dtype, t, axis)
      return nd.cumsum(nd.array(t, {dtype = dtype}), {axis = axis}):astype("float64")
    end
    assert.near({{2 ^ 40, 1}, {2 ^ 40 + 1, 4}}, sums("int64", {{2 ^ 40, 1}, {1, 3}}, 0))
    assert.near({2 ^ 40, 2 ^ 40 + 1}, sums("int64", {2 ^ 40, 1}))
    assert.near({200, 44, 47}, sums("uint8", {200, 100, 3}))
    assert.near({100, -56, -53}, sums("int8", {100, 100, 3}))
    assert.near({{1, 2}, {4, 6}}, sums("int32", {{1, 2}, {3, 4}}, 0))
  end)

  it("say a class in any type", function()
    for _, dtype in ipairs{"int64", "int32", "int8", "uint8", "float16", "bfloat16", "float64"} do
      local y = nd.softmax_cross_entropy(nd.array{{0, math.log(3)}}, nd.array({1}, {dtype = dtype}))
      assert.near({math.log(4 / 3)}, y, 1e-6)
    end
  end)

  it("transpose in blocks and at the edges of them", function()
    for _, dtype in ipairs{"uint8", "int8", "float16", "int32", "float64"} do
      local rows, columns = 150, 131
      local x = nd.arange(0, rows * columns, {dtype = "float64"})
      x = (x - nd.floor{x / 101} * 101):reshape{rows, columns}:astype(dtype)
      local want = {}
      for j = 0, columns - 1 do
        for i = 0, rows - 1 do want[#want + 1] = (i * columns + j) % 101 end
      end
      assert.near(nd.array(want):reshape{columns, rows}, nd.transpose{x}:astype("float32"), 0)
    end
  end)
end)

-- -- gradients of rows that were taken -----------------------------------------------------------

-- Returns what each row of `a` gets from head gradient h, indices and sizes.
local function scattered(h, indices, k, inner)
  local want = {}
  for i = 1, k * inner do want[i] = 0 end
  for i, index in ipairs(indices) do
    for j = 1, inner do
      local at = index * inner + j
      want[at] = want[at] + h[(i - 1) * inner + j]
    end
  end
  return want
end

local function check_take(k, inner, n, dtype, start)
  local net = sym.take{sym.Variable("a"), sym.Variable("i"), mode = "clip"}
  local exe = net:simple_bind{ctx = ty.cpu(), a = {k, inner}, i = {n},
    type_dict = {a = dtype, i = "int32"}, grad_req = {a = start and "add" or "write", i = "null"}}
  local indices, h = {}, {}
  for i = 1, n do indices[i] = i * 7919 % k end
  for i = 1, n * inner do h[i] = i * 31 % 3 end
  exe.arg_dict.i[":"] = nd.array(indices, {dtype = "int32"})
  if start then exe.grad_dict.a[":"] = start end
  exe:forward(true)
  exe:backward(nd.array(h):reshape{n, inner}:astype(dtype))
  local want = scattered(h, indices, k, inner)
  for i, v in ipairs(want) do want[i] = v + (start or 0) end
  assert.near(nd.array(want):reshape{k, inner}, exe.grad_dict.a:astype("float32"), 0)
end

describe("rows that were taken", function()
  it("get their gradients where they are wide, or many", function()
    for _, dtype in ipairs{"float32", "float64", "int32", "int64"} do
      check_take(5, 300, 11, dtype)
      check_take(6, 3, 30000, dtype)
      check_take(6, 3, 4, dtype, 2)
      check_take(5, 300, 11, dtype, 1)
    end
    check_take(40, 1, 50, "uint8")
  end)
end)

-- -- others --------------------------------------------------------------------------------------

describe("rrelu", function()
  it("has slopes of each element, which its gradient knows", function()
    for _, dtype in ipairs{"float32", "float64"} do
      local net = sym.LeakyReLU{sym.Variable("x"), act_type = "rrelu", lower_bound = 0.25,
        upper_bound = 0.5}
      local exe = net:simple_bind{ctx = ty.cpu(), x = {1, 400}, type_dict = {x = dtype}}
      exe.arg_dict.x[":"] = -2
      local x = exe.arg_dict.x
      x["0, 0:10"] = 3
      local y = arrays.list(exe:forward(true)[1])
      exe:backward(nd.ones({1, 400}, {dtype = dtype}))
      local g, least, most = arrays.list(exe.grad_dict.x), 1, 0
      for i, v in ipairs(y) do
        if i > 10 then
          least, most = math.min(least, g[i]), math.max(most, g[i])
          assert.is_true(math.abs(v + 2 * g[i]) < 1e-6)
        end
      end
      assert.is_true(least >= 0.25 and least < 0.28 and most <= 0.5 and most > 0.47)
      assert.near(nd.full({1, 390}, -0.75, {dtype = dtype}), exe:forward(false)[1]["0:1, 10:400"])
    end
  end)
end)

describe("allclose", function()
  it("says whether NaN is near NaN, and infinity near itself", function()
    local function close(a, b, equal_nan)
      return nd.contrib.allclose(nd.array(a), nd.array(b), {equal_nan = equal_nan}):asscalar()
    end
    assert.equal(1, close({NAN, 1}, {NAN, 1}, true))
    assert.equal(0, close({NAN, 1}, {NAN, 1}, false))
    assert.equal(0, close({NAN, 1}, {2, 1}, true))
    assert.equal(0, close({2, 1}, {NAN, 1}, true))
    assert.equal(1, close({INFINITE}, {INFINITE}))
    assert.equal(0, close({INFINITE}, {-INFINITE}))
  end)
end)

describe("an image's short side", function()
  it("gets the size that is given, the long one follows", function()
    local function shape(h, w)
      local pixels = nd.zeros({h, w, 3}, {dtype = "uint8"})
      return nd.image.resize(pixels, {size = {3}, keep_ratio = true})
    end
    assert.shape({6, 3, 3}, shape(4, 2))
    assert.shape({3, 6, 3}, shape(2, 4))
    assert.shape({3, 3, 3}, shape(5, 5))
  end)
end)

describe("a grid of one point", function()
  it("is its corner", function()
    local theta = nd.array{{1, 2, 3, 4, 5, 6}}
    assert.near({{{{0}}, {{-3}}}},
      nd.GridGenerator(theta, {transform_type = "affine", target_shape = {1, 1}}))
  end)
end)

describe("anchors", function()
  it("are at steps that are given, if both are", function()
    local function middle(steps)
      local y = nd.contrib.MultiBoxPrior(nd.zeros{1, 1, 1, 1}, {sizes = {0.5}, ratios = {1},
        steps = steps}):reshape{-1}:totable()
      return (y[1] + y[3]) / 2, (y[2] + y[4]) / 2
    end
    assert.same({0.5, 0.5}, {middle{-1, -1}})
    assert.same({0.125, 0.25}, {middle{0.5, 0.25}})
    assert.equal("parameter steps: expected both or neither, got 0.5 and -1",
      assert.raises("value", middle, {0.5, -1}).message)
  end)
end)

describe("products of a batch", function()
  it("are those of its matrices where each is large", function()
    local function wave(k)
      return nd.sin{nd.arange(0, 2 * 340 * 340, {dtype = "float64"}) * k}:reshape{2, 340, 340}
    end
    local a, b = wave(0.7), wave(1.3)
    local y = nd.batch_dot(a, b)
    for i = 0, 1 do assert.near(nd.dot(a[i], b[i]), y[i], 1e-9) end
  end)
end)

describe("gradients of what was broadcast", function()
  it("are sums in the type of the array, which wrap where it is short", function()
    for dtype, want in pairs{int32 = 400000, int64 = 400000, float64 = 400000, uint8 = 128} do
      local net = sym.broadcast_mul{sym.Variable("a"), sym.Variable("b")}
      local exe = net:simple_bind{ctx = ty.cpu(), a = {1}, b = {200000},
        type_dict = {a = dtype, b = dtype}, grad_req = {a = "write", b = "null"}}
      exe.arg_dict.a[":"], exe.arg_dict.b[":"] = 3, 2
      exe:forward(true)
      exe:backward(nd.ones({200000}, {dtype = dtype}))
      assert.near({want}, exe.grad_dict.a:astype("float64"), 0)
    end
  end)
end)
