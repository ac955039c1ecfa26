-- Attention, resizing, Fourier transforms, sketches, bent convolutions, Hawkes processes,
-- comparison: known values and refusals.
local ty = require "tycho"
local noise = require("spec.support.arrays").noise
require "spec.helper"

local nd, sym, contrib = ty.nd, ty.sym, ty.nd.contrib

local function refused(code, words, f, ...)
  local e = assert.raises(code, f, ...)
  assert.is_truthy(tostring(e):find(words, 1, true), tostring(e))
end

describe("attention", function()
  local T, B, H, D = 3, 2, 4, 5

  -- Returns one part of (T, B, H * parts * D) as (B * H, T, D).
  local function kind(x, parts, part)
    local t = x.shape[1]
    local y = x:reshape{t, B * H, parts, D}
    return nd.transpose(
      nd.slice_axis(y, {axis = 2, begin = part, ["end"] = part + 1}):reshape{t, B * H, D},
      {axes = {1, 0, 2}})
  end

  it("is a product of each head", function()
    local x, a = noise{T, B, H * 3 * D}, noise{B * H, T, T}
    local want = nd.batch_dot(kind(x, 3, 0), kind(x, 3, 1), {transpose_b = true}) / math.sqrt(D)
    assert.near(want, contrib.interleaved_matmul_selfatt_qk(x, {heads = H}), 1e-12)
    local y = nd.transpose(nd.batch_dot(a, kind(x, 3, 2)), {axes = {1, 0, 2}}):reshape{T, B, H * D}
    assert.near(y, contrib.interleaved_matmul_selfatt_valatt(x, a, {heads = H}), 1e-12)
  end)

  it("has other lengths between encoder and decoder", function()
    local q, kv, a = noise{6, B, H * D}, noise{T, B, H * 2 * D}, noise{B * H, 6, T}
    local want = nd.batch_dot(kind(q, 1, 0), kind(kv, 2, 0), {transpose_b = true}) / math.sqrt(D)
    assert.near(want, contrib.interleaved_matmul_encdec_qk(q, kv, {heads = H}), 1e-12)
    local y = nd.transpose(nd.batch_dot(a, kind(kv, 2, 1)), {axes = {1, 0, 2}}):reshape{6, B, H * D}
    assert.near(y, contrib.interleaved_matmul_encdec_valatt(kv, a, {heads = H}), 1e-12)
  end)

  it("refuses what cannot be divided", function()
    local qk, encdec = contrib.interleaved_matmul_selfatt_qk, contrib.interleaved_matmul_encdec_qk
    refused("shape", "7 numbers cannot be divided into 3 parts of 2 heads", qk,
      nd.ones{2, 2, 7}, {heads = 2})
    refused("shape", "expected (length, batch, heads * d), got 2", encdec, nd.ones{2, 2},
      nd.ones{2, 2, 4}, {heads = 1})
    refused("value", "heads", qk, nd.ones{2, 2, 6}, {heads = 0})
  end)

  it("scales by the last axis", function()
    assert.near({{0.5, 1, 1.5, 2}}, contrib.div_sqrt_dim(nd.array{{1, 2, 3, 4}}))
  end)
end)

describe("BilinearResize2D", function()
  local function size(options, h, w)
    local y = contrib.BilinearResize2D(nd.zeros{1, 1, h or 5, w or 4}, options)
    return {y.shape[3], y.shape[4]}
  end

  it("finds the size in seven ways", function()
    assert.same({3, 7}, size{height = 3, width = 7})
    assert.same({7, 2}, size{scale_height = 1.5, scale_width = 0.5})
    assert.same({7, 6}, size{mode = "odd_scale", scale_height = 1.5, scale_width = 1.5})
    assert.same({4, 4}, size{mode = "to_even_down"})
    assert.same({6, 4}, size{mode = "to_even_up"})
    assert.same({5, 3}, size{mode = "to_odd_down"})
    assert.same({5, 5}, size{mode = "to_odd_up"})
    assert.shape({1, 1, 2, 9},
      contrib.BilinearResize2D(nd.zeros{1, 1, 3, 3}, nd.zeros{4, 4, 2, 9}, {mode = "like"}))
  end)

  it("meets corners, or edges", function()
    local x = nd.array{{{{0, 3}, {6, 9}}}}
    assert.near({{{{0, 1, 2, 3}, {6, 7, 8, 9}}}},
      contrib.BilinearResize2D(x, {height = 2, width = 4}))
    assert.near({{{{0, 0.75, 2.25, 3}, {6, 6.75, 8.25, 9}}}},
      contrib.BilinearResize2D(x, {height = 2, width = 4, align_corners = false}))
    assert.near({{{{0}}}}, contrib.BilinearResize2D(x))
  end)

  it("refuses sizes that are none", function()
    refused("value", "odd_scale needs", contrib.BilinearResize2D,
      nd.zeros{1, 1, 2, 2}, {mode = "odd_scale"})
    refused("shape", "nothing is left", contrib.BilinearResize2D, nd.zeros{1, 1, 1, 2},
      {mode = "to_even_down"})
    refused("value", "both scale_height and scale_width", contrib.BilinearResize2D,
      nd.zeros{1, 1, 2, 2}, {scale_height = 2})
    refused("shape", "got 3 dimensions", contrib.BilinearResize2D, nd.zeros{1, 2, 2}, {height = 2})
  end)
end)

describe("Fourier transforms", function()
  it("have known values", function()
    assert.near({{10, 0, -2, 2, -2, 0, -2, -2}}, contrib.fft(nd.array{{1, 2, 3, 4}}))
    assert.near({{1, 0, 1, 0, 1, 0}}, contrib.fft(nd.array{{1, 0, 0}}))
    assert.near({{4, 8, 12, 16}}, contrib.ifft(nd.array{{10, 0, -2, 2, -2, 0, -2, -2}}))
  end)

  it("are sums of turns, for sizes with any factors", function()
    for _, n in ipairs{1, 2, 5, 9, 12, 30, 49, 64} do
      local x, p = noise({1, n}, n)
      local y = contrib.fft(x)
      local q = y:data()
      for k = 0, n - 1 do
        local re, im = 0, 0
        for j = 0, n - 1 do
          local angle = 2 * math.pi * j * k / n
          re, im = re + p[j] * math.cos(angle), im - p[j] * math.sin(angle)
        end
        assert.near(re, q[2 * k], 1e-10)
        assert.near(im, q[2 * k + 1], 1e-10)
      end
      assert.near(x * n, contrib.ifft(y), 1e-10)
      assert.near(0, p[0] - x:data()[0])
    end
    local stack = noise{2, 3, 4, 6}
    assert.near(stack * 6, contrib.ifft(contrib.fft(stack)), 1e-12)
  end)

  it("take pairs back only", function()
    refused("shape", "expected pairs", contrib.ifft, nd.ones{1, 3})
  end)
end)

describe("count_sketch", function()
  it("adds signed numbers at hashed places", function()
    local y = contrib.count_sketch(nd.array{{1, 2, 3}, {4, 5, 6}}, nd.array{{0, 3, 0}},
      nd.array{{1, -1, 1}}, {out_dim = 4})
    assert.near({{4, 0, 0, -2}, {10, 0, 0, -5}}, y)
  end)

  it("refuses places that are not there", function()
    for _, place in ipairs{-1, 4, 1e30, 0 / 0} do
      refused("run", "expected 0 to 3", function()
        contrib.count_sketch(nd.array{{1, 2}}, nd.array{{0, place}}, nd.array{{1, 1}},
          {out_dim = 4}):wait_to_read()
      end)
    end
  end)
end)

describe("bent convolutions", function()
  local x, weight, bias = noise({2, 4, 6, 5}, 1), noise({6, 2, 3, 3}, 2), noise({6}, 3)
  local options = {kernel = {3, 3}, num_filter = 6, num_group = 2, pad = {1, 1}, stride = {2, 1}}
  local function with(t)
    local all = {}
    for k, v in pairs(options) do all[k] = v end
    for k, v in pairs(t or {}) do all[k] = v end
    return all
  end
  local want = nd.Convolution(x, weight, bias, options)

  it("are plain ones without offsets", function()
    local still = nd.zeros({2, 36, 3, 5}, {dtype = "float64"})
    assert.near(want,
      contrib.DeformableConvolution(x, still, weight, bias, with{num_deformable_group = 2}), 1e-12)
    local mask = nd.ones({2, 18, 3, 5}, {dtype = "float64"})
    assert.near(want, contrib.ModulatedDeformableConvolution(x, still, mask, weight, bias,
      with{num_deformable_group = 2}), 1e-12)
    assert.near(nd.Convolution(x, weight, with{no_bias = true}) / 2,
      contrib.ModulatedDeformableConvolution(x, still, mask / 2, weight,
        with{num_deformable_group = 2, no_bias = true}), 1e-12)
  end)

  it("read where offsets point", function()
    local image, one = nd.array{{{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}}}, nd.ones{1, 1, 1, 1}
    local function at(down, across, operator, mask)
      local offset = nd.zeros{1, 2, 3, 3}
      offset:data()[4], offset:data()[13] = down, across
      local given = {kernel = {1, 1}, num_filter = 1, no_bias = true}
      local y = mask and operator(image, offset, nd.ones{1, 1, 3, 3}, one, given)
        or operator(image, offset, one, given)
      return y:data()[4]
    end
    local plain, modulated = contrib.DeformableConvolution, contrib.ModulatedDeformableConvolution
    assert.near(8, at(1, 0, plain))
    assert.near(5.5, at(0, 0.5, plain))
    assert.near(3, at(-0.5, -0.5, plain))
    assert.near(8, at(1.5, 0, plain))                     -- the last row reaches on to the edge
    assert.near(0, at(-1.5, 0, plain))
    assert.near(4, at(1.5, 0, modulated, true))           -- half of it is outside
    assert.near(1, at(-1.5, 0, modulated, true))
    assert.near(0, at(0 / 0, 0, plain))
    assert.near(0, at(1e30, 0, modulated, true))
  end)

  it("are refused in words", function()
    refused("shape", "num_deformable_group 3", contrib.DeformableConvolution, x, x, weight, bias,
      with{num_deformable_group = 3})
    refused("value", "expected 2 entries", sym.contrib.DeformableConvolution,
      {kernel = {3}, num_filter = 1})
    refused("shape", "does not fit", contrib.DeformableConvolution, nd.ones{1, 1, 2, 2},
      nd.ones{1, 18, 1, 1}, nd.ones{1, 1, 3, 3}, {kernel = {3, 3}, num_filter = 1, no_bias = true})
  end)
end)

describe("hawkesll", function()
  local options = {dtype = "float64"}
  local function run(t)
    return contrib.hawkesll(nd.array(t.lda, options), nd.array(t.alpha, options),
      nd.array(t.beta, options), nd.array(t.state, options), nd.array(t.lags, options),
      nd.array(t.marks, {dtype = "int32"}), nd.array(t.length, options), nd.array(t.time, options))
  end
  local given = {lda = {{1.5, 2}}, alpha = {0.2, 0.3}, beta = {1, 2}, state = {{0, 0}},
    lags = {{1, 0.5, 9}}, marks = {{0, 0, 1}}, length = {2}, time = {2}}

  it("is the likelihood of its events", function()
    local ll, state = unpack(run(given))
    local e = math.exp(-0.5)
    local want = math.log(1.5) - 1.5                              -- the first event at 1
      + math.log(1.5 + 0.2 * e) - 1.5 * 0.5 - 0.2 * (1 - e)       -- the second one at 1.5
      - 1.5 * 0.5 - 0.2 * (1 + e) * (1 - e) - 2 * 2               -- what is left until 2
    assert.near({want}, ll, 1e-12)
    assert.near({{(1 + e) * e, 0}}, state, 1e-12)
  end)

  it("refuses kinds that are not there, and takes no more events than there are", function()
    local bad = setmetatable({marks = {{0, 2, 1}}}, {__index = given})
    refused("run", "expected 0 to 1", function()
      run(bad)[1]:wait_to_read()
    end)
    -- beyond its length: not read
    run(setmetatable({marks = {{0, 0, -5}}}, {__index = given}))[1]:wait_to_read()
    local long = run(setmetatable({length = {99}}, {__index = given}))[1]
    assert.near(long, run(setmetatable({length = {3}}, {__index = given}))[1])
  end)

  it("has gradients of its intensities", function()
    local V = sym.Variable
    local s = sym.contrib.hawkesll{lda = V"lda", alpha = V"alpha", beta = V"beta", state = V"state",
      lags = V"lags", marks = V"marks", valid_length = V"length", max_time = V"time"}[1]
    local x = {}
    for name, value in pairs(given) do
      x[name] = nd.array(value, name == "marks" and {dtype = "int32"} or options)
    end
    x.length, x.time, x.state = nd.array({3}, options), nd.array({12}, options),
      nd.array({{0.3, 0.7}}, options)
    local grads = {lda = nd.zeros({1, 2}, options), alpha = nd.zeros({2}, options),
      beta = nd.zeros({2}, options)}
    local exe = s:bind{ctx = ty.cpu(), args = x, args_grad = grads,
      grad_req = {lda = "write", alpha = "write", beta = "write"}}
    local function value() return exe:forward{is_train = true}[1]:asscalar() end
    value()
    exe:backward(nd.ones({1}, options))
    for name, grad in pairs(grads) do
      local p, g = x[name]:data(), grad:copy():data()
      for i = 0, 1 do
        local was = p[i]
        p[i] = was + 1e-5
        local above = value()
        p[i] = was - 1e-5
        assert.near((above - value()) / 2e-5, g[i], 1e-7)
        p[i] = was
      end
    end
  end)
end)

describe("comparison and dense forms of sparse operators", function()
  it("refuses sparse storage", function()
    assert.near({1, 2}, nd.cast_storage(nd.array{1, 2}, {stype = "default"}))
    for _, stype in ipairs{"csr", "row_sparse"} do
      refused("unsupported", stype, nd.cast_storage, nd.ones{2, 2}, {stype = stype})
      refused("unsupported", stype, ty.sym.cast_storage, ty.sym.Variable("x"), {stype = stype})
    end
  end)

  it("tells whether all is close", function()
    local a = nd.array{1, 0 / 0, math.huge}
    assert.equal("uint8", contrib.allclose(a, a).dtype)
    assert.near({1}, contrib.allclose(a, a))
    assert.near({0}, contrib.allclose(a, a, {equal_nan = false}))
    assert.near({0}, contrib.allclose(nd.array{1}, nd.array{1.1}))
    assert.near({1}, contrib.allclose(nd.array{1}, nd.array{1.1}, {rtol = 0.1}))
    assert.near({0}, contrib.allclose(nd.array{1}, nd.array{math.huge}))
    assert.near({1},
      contrib.allclose(nd.array({1, 2}, {dtype = "int32"}), nd.array({1, 2}, {dtype = "int32"})))
    refused("shape", "allclose", contrib.allclose, nd.ones{2}, nd.ones{3})
  end)

  it("works on dense arrays", function()
    assert.near({3, 4}, nd._scatter_plus_scalar(nd.array{1, 2}, {scalar = 2}))
    assert.near({-1, 0}, nd._scatter_minus_scalar(nd.array{1, 2}, {scalar = 2}))
    assert.near({0.5, 3}, nd._scatter_elemwise_div(nd.array{1, 6}, nd.array{2, 2}))
    assert.near({5, 25}, nd._square_sum(nd.array{{1, 2}, {3, 4}}, {axis = 1}))
    assert.near({{10, 20}}, nd._square_sum(nd.array{{1, 2}, {3, 4}}, {axis = 0, keepdims = true}))
  end)
end)
