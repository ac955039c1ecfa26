-- contrib.attention against batch_dot, softmax and batch_dot in float64.
local device = require "spec.support.device"
local ty = require "tycho"
local noise = require("spec.support.arrays").noise
local shell = require "spec.support.shell"
require "spec.helper"

local nd, sym = ty.nd, ty.sym
local V = sym.Variable
local F64 = { dtype = "float64" }
local MOST_SCORES = 20000                                -- of a head, for float32 as gpu(0)

-- Returns a size at which a CPU divides its work; a GPU's blocks are smaller, and a stand-in takes
-- minutes.
local function N(size) return device.is_gpu and math.ceil(size * 0.4) or size end

-- Returns 1 where key j counts for query i, else 0, as (B, H, Tq, Tk).
local function admitted(o)
  local t = {}
  for b = 1, o.B do
    for _ = 1, o.H do
      for i = 0, o.Tq - 1 do
        local p = i + (o.offset and o.offset[b] or 0)
        for j = 0, o.Tk - 1 do
          local counts = not (o.causal and j > p) and
            not (o.window and math.abs(p - j) >= o.window) and
            not (o.valid_length and j >= o.valid_length[b])
          t[#t + 1] = counts and 1 or 0
        end
      end
    end
  end
  local x = nd.array(t, F64):reshape{ o.B, o.H, o.Tq, o.Tk }
  return o.mask and nd.broadcast_mul(x, o.mask) or x
end

local function fused(o)
  local options = { query = V "q", key = V "k", value = V "v", layout = "NHTC", causal = o.causal,
    window = o.window, scale = o.scale }
  for _, name in ipairs{ "mask", "bias", "valid_length", "offset" } do
    options[name] = o[name] and V(name) or nil
  end
  return sym.contrib.attention(options)
end

-- Returns the network of separate operators. Rows without a key give 0, so their weights are
-- multiplied by 0.
local function apart(o)
  local function heads(x, size)
    return sym.reshape{ sym["repeat"]{ x, repeats = o.H / o.KH, axis = 1 },
      shape = { o.B * o.H, -1, size } }
  end
  local q = sym.reshape{ V "q", shape = { o.B * o.H, o.Tq, o.d } }
  local s = sym.batch_dot{ q, heads(V "k", o.d), transpose_b = true } *
    (o.scale or 1 / math.sqrt(o.d))
  s = sym.reshape{ s, shape = { o.B, o.H, o.Tq, o.Tk } }
  if o.bias then
    s = sym.broadcast_add(s, V "bias")
  end
  local weights = sym.broadcast_mul(sym.softmax{ sym.broadcast_add(s, V "gone") }, V "some")
  local y = sym.batch_dot{ sym.reshape{ weights, shape = { o.B * o.H, o.Tq, o.Tk } },
    heads(V "v", o.dv) }
  return sym.reshape{ y, shape = { o.B, o.H, o.Tq, o.dv } }
end

local FIXED = { mask = true, valid_length = true, offset = true, gone = true, some = true }

-- Returns outputs and gradients of a network for these arrays.
local function run(net, arrays, head)
  local args, grads = {}, {}
  for _, name in ipairs(net:list_arguments()) do
    args[name] = arrays[name]
    grads[name] = not FIXED[name] and nd.full(arrays[name].shape, 7, { dtype = head.dtype }) or nil
  end
  local exe = net:bind{ ctx = ty.cpu(), args = args, args_grad = grads }
  exe:forward{ is_train = true }
  exe:backward(head)
  return exe.outputs[1], grads
end

local function make_arrays(o)
  local a = { q = noise{ o.B, o.H, o.Tq, o.d }, k = noise{ o.B, o.KH, o.Tk, o.d },
    v = noise{ o.B, o.KH, o.Tk, o.dv }, mask = o.mask }
  a.bias = o.bias and noise(o.bias)
  if o.above then                                        -- added to the scores of later keys
    local query, key = nd.arange(0, o.Tq, F64), nd.arange(0, o.Tk, F64)
    local later = nd.broadcast_greater(key:reshape{ 1, -1 }, query:reshape{ -1, 1 })
    a.bias = nd.where(later, nd.full(o.bias, o.above, F64), a.bias)
  end
  a.valid_length = o.valid_length and nd.array(o.valid_length, F64)
  a.offset = o.offset and nd.array(o.offset, F64)
  local counts = admitted(o)
  a.gone = (counts - 1) * 1e300
  a.some = nd.broadcast_greater(nd.sum(counts, { axis = 3, keepdims = true }),
    nd.zeros({ 1, 1, 1, 1 }, F64))
  return a
end

local function check(o)
  o.B, o.H, o.d = o.B or 2, o.H or 2, o.d or 6
  o.KH, o.dv, o.Tk = o.KH or o.H, o.dv or o.d, o.Tk or o.Tq
  if o.mask then
    o.mask = nd.broadcast_greater(noise(o.mask), nd.zeros({ 1 }, F64):reshape(
      nd.ones(#o.mask):totable()))
  end
  local a, head = make_arrays(o), noise{ o.B, o.H, o.Tq, o.dv }
  local want, want_grads = run(apart(o), a, head)
  local got, grads = run(fused(o), a, head)
  assert.near(want, got, 1e-13, 1e-13)
  for name, g in pairs(grads) do
    assert.near(want_grads[name], g, 2e-13, 2e-13)
  end
  if device.is_gpu and o.Tq * o.Tk > MOST_SCORES then
    return                                               -- a stand-in takes minutes
  end
  for name, x in pairs(a) do
    a[name] = x:astype "float32"
  end
  got, grads = run(fused(o), a, head:astype "float32")
  assert.near(want, got:astype "float64", 1e-5, 1e-5, "float32")
  for name, g in pairs(grads) do
    assert.near(want_grads[name], g:astype "float64", 5e-5, 5e-5, "float32, gradient of " .. name)
  end
end

-- Checks products of rounded operands, forward, against float64: operands and weights are within
-- 2^-8 of themselves, scores of these arrays within some 0.02 of what they would be.
local function check_rounded(o)
  o.B, o.H, o.d = o.B or 2, o.H or 2, o.d or 6
  o.KH, o.dv, o.Tk = o.KH or o.H, o.dv or o.d, o.Tk or o.Tq
  local a = make_arrays(o)
  local want = run(apart(o), a, noise{ o.B, o.H, o.Tq, o.dv })
  local net, args = fused(o), {}
  for _, name in ipairs(net:list_arguments()) do
    args[name] = a[name]:astype "float32"
  end
  local exe = net:bind{ ctx = ty.cpu(), args = args, precision = "medium" }
  exe:forward{ is_train = false }
  assert.near(want, exe.outputs[1]:astype "float64", 2e-2, 2e-2)
end

describe("contrib.attention of rounded operands", function()
  for _, t in ipairs{ { 65, 1 }, { 65, 2 }, { 66, 31 }, { 70, 32 }, { 97, 33 }, { 128, 128 },
    { 200, 300 }, { 65, 513 }, { 530, 1100 } } do
    it(("agrees with float64 for %d queries and %d keys"):format(t[1], t[2]), function()
      check_rounded{ Tq = t[1], Tk = t[2] }
    end)
  end
  it("agrees with float64 for heads of different sizes", function()
    check_rounded{ Tq = 70, d = 1 }
    check_rounded{ Tq = 70, d = 3, dv = 17 }
    check_rounded{ Tq = 130, d = 32, dv = 64, H = 4, KH = 2 }
    check_rounded{ Tq = 80, d = 130, dv = 300 }
    check_rounded{ Tq = 70, d = 513, dv = 8, scale = 0.02 }
  end)
  it("agrees with float64 where keys do not count", function()
    check_rounded{ Tq = 300, causal = true }
    check_rounded{ Tq = 700, window = 140, causal = true, B = 1 }
    check_rounded{ Tq = 100, Tk = 700, valid_length = { 0, 650 }, bias = { 100, 700 } }
    check_rounded{ Tq = 100, Tk = 200, valid_length = { 120, 60 }, offset = { 20, 0 },
      causal = true }
  end)
  it("leaves out what a key that does not count holds", function()
    local T = 200
    local q, k, v = noise{ 1, 1, T, 8 }, noise{ 1, 1, T, 8 }, noise{ 1, 1, T, 8 }
    local want = nd.contrib.attention(q, k, v, { layout = "NHTC", causal = true })
    v[{ 0, 0, T - 1 }] = 1 / 0
    local exe = sym.contrib.attention{ query = V "q", key = V "k", value = V "v", layout = "NHTC",
      causal = true }:bind{ ctx = ty.cpu(), precision = "medium", args = { q = q:astype "float32",
      k = k:astype "float32", v = v:astype "float32" } }
    exe:forward{ is_train = false }
    local y = exe.outputs[1]:astype "float64"
    local before = { ":", ":", ":" .. T - 1 }
    assert.near(want[before], y[before], 2e-2, 2e-2)
    assert.equal(1 / 0, y[{ 0, 0, T - 1, 0 }]:asscalar())
  end)
end)

describe("contrib.attention gives what separate operators give", function()
  for _, t in ipairs{ { 1, 1 }, { 1, 2 }, { 2, 1 }, { 2, 2 }, { 63, 127 }, { 64, 128 }, { 65, 129 },
    { N(300), N(300) }, { 1, N(300) }, { N(300), 1 }, { 9, N(700) }, { N(530), N(530) } } do
    it(("with %d queries and %d keys"):format(t[1], t[2]), function()
      check{ Tq = t[1], Tk = t[2] }
    end)
  end
  it("with heads of size 1 and of different sizes", function()
    check{ Tq = 5, d = 1 }
    check{ Tq = 70, d = 3, dv = 17 }
    check{ Tq = 20, d = 130, dv = N(300) }
  end)
  it("with grouped heads", function()
    check{ Tq = 5, H = 6, KH = 2 }
    check{ Tq = 1, H = 6, KH = 2, Tk = N(150) }
    check{ Tq = 1, H = 70, KH = 1, Tk = N(150) }
    check{ Tq = N(300), H = 4, KH = 1, causal = true }
  end)
  it("with causal and window", function()
    check{ Tq = N(300), causal = true }
    check{ Tq = 40, Tk = N(300), causal = true }
    check{ Tq = N(300), Tk = 40, causal = true }
    check{ Tq = N(300), window = 1 }
    check{ Tq = N(300), window = 140, B = 1 }
    check{ Tq = N(600), window = 30, causal = true, B = 1 }
  end)
  it("with lengths, offsets", function()
    check{ Tq = 3, Tk = N(200), valid_length = { 0, N(150) } }
    check{ Tq = 1, Tk = N(200), valid_length = { 1, N(200) } }
    check{ Tq = 100, Tk = N(200), valid_length = { N(120), 60 }, offset = { 20, 0 }, causal = true }
    check{ Tq = 5, Tk = 9, offset = { -3, 100 }, causal = true, window = 4 }
  end)
  it("with queries that are a window away from all keys", function()
    for _, o in ipairs{ { 40, -44 }, { 41, -43 }, { 48, -41 }, { 49, -5 } } do
      check{ Tq = 3, Tk = 9, offset = o, window = 40 }
      check{ Tq = 1, Tk = 9, offset = o, window = 40 }
      check{ Tq = 70, Tk = 130, offset = { o[1] + 110, o[2] - 70 }, window = 40 }
    end
    check{ Tq = 3, Tk = 9, offset = { 1e15, -1e15 }, window = 2 ^ 40 }
    check{ Tq = 3, Tk = 9, offset = { 5, -5 }, window = 2 ^ 62 }
  end)
  it("with masks", function()
    check{ Tq = 70, mask = { 70 } }
    check{ Tq = 70, mask = { 2, 1, 1, 70 }, causal = true }
    check{ Tq = 1, H = 3, Tk = 70, mask = { 3, 1, 70 } }
    check{ Tq = 4, mask = { 2, 2, 4, 4 } }
    check{ Tq = 4, mask = { 4, 1 } }
  end)
  it("with biases", function()
    local n = N(150)
    for _, shape in ipairs{ { n }, { n, 1 }, { n, n }, { 2, 1, n }, { 2, 1, 1, n }, { 2, 2, n, n },
      { 1 }, { 2, 1, 1, 1 } } do
      check{ Tq = n, bias = shape }
      check{ Tq = n, bias = shape, causal = true, valid_length = { 3, N(140) }, H = 2, KH = 1 }
    end
    check{ Tq = 1, Tk = 9, H = 4, KH = 2, bias = { 4, 1, 9 }, mask = { 9 } }
  end)
  it("with a bias that hides blocks of keys, or some of a block", function()
    for _, above in ipairs{ -1e9, -math.huge, -700 } do
      for _, n in ipairs{ 1, 2, 127, N(300) } do
        check{ Tq = n, bias = { n, n }, above = above, B = 1 }
      end
    end
    local n = N(300)
    check{ Tq = n, bias = { n, n }, above = -1e9, H = 4, KH = 2, B = 1, d = 3, dv = 40 }
  end)
  it("with a bias that hides all but stretches of keys, as one for each head", function()
    local B, H, n, d = 2, 2, N(330), 5
    local query, key = nd.arange(0, n, F64):reshape{ -1, 1 }, nd.arange(0, n, F64):reshape{ 1, -1 }
    local gap = nd.broadcast_sub(query, key)
    local function above(x, limit)
      return nd.broadcast_greater(x, nd.full({ 1, 1 }, limit, F64))
    end
    local seen = {
      later = above(-gap, -1), earlier = above(gap, -1), near = above(-nd.abs(gap), -40),
      far = above(nd.abs(gap), N(200)),
      ["one for all"] = above(nd.broadcast_add(query * 0, -nd.abs(key - N(160))), -1),
      none = above(gap, n), all = above(gap, -n), ["rows of none"] = above(gap, 100),
    }
    local head = noise{ B, H, n, d }
    for name, counts in pairs(seen) do
      for _, below in ipairs(device.is_gpu and { -1e9 }    -- a stand-in takes minutes
        or { -math.huge, -1e300, -1e9, -10000, -755 }) do
        local arrays = { q = noise{ B, H, n, d }, k = noise{ B, H, n, d }, v = noise{ B, H, n, d } }
        local bias = nd.where(counts, noise{ n, n }, nd.full({ n, n }, below, F64))
        -- the second sample sees all
        bias = nd.stack{ bias, (noise{ n, n }) }:reshape{ B, 1, n, n }
        local results = {}
        for k, h in ipairs{ 1, H } do
          arrays.bias = nd["repeat"](bias, { repeats = h, axis = 1 })
          local y, grads = run(fused{ bias = true }, arrays, head)
          results[k] = { y, grads.q, grads.k, grads.v }
        end
        for i, y in ipairs(results[1]) do
          local of_heads = results[2][i]
          local numbers = nd.broadcast_equal(y, y)
          local function plain(x) return nd.where(numbers, x, nd.zeros_like(x)) end
          assert.equal(1, nd.broadcast_equal(numbers, nd.broadcast_equal(of_heads, of_heads)):min()
            :asscalar())
          assert.near(plain(of_heads), plain(y), 1e-13, 1e-13, ("%s %g %d"):format(name, below, i))
        end
      end
    end
  end)
  it("with a bias that hides what is NaN, or large scores", function()
    local n = N(300)
    local function compare(change, above)
      local o = { B = 1, H = 2, KH = 2, d = 4, dv = 4, Tq = n, Tk = n, bias = { n, n },
        above = above }
      local a = make_arrays(o)
      change(a)
      local want, got = run(apart(o), a, noise{ 1, 2, n, 4 }), run(fused(o), a, noise{ 1, 2, n, 4 })
      local numbers = nd.broadcast_equal(want, want)
      assert.equal(1, nd.broadcast_equal(numbers, nd.broadcast_equal(got, got)):min():asscalar())
      local function plain(x) return nd.where(numbers, x, nd.zeros_like(x)) end
      assert.near(plain(want), plain(got), 1e-12, 1e-12)
      return numbers:mean():asscalar()
    end
    assert.equal(0, compare(function(a) a.k[{ 0, ":", n - 1 }] = 0 / 0 end, -1e9))
    -- 0 times infinity in a sample of two
    local two = { B = 3, H = 1, KH = 1, d = 4, dv = 4, Tq = n, Tk = n, bias = { n, n },
      above = -1e9 }
    local arrays = make_arrays(two)
    arrays.q[{ 1 }], arrays.k[{ 1, ":", n - 1 }] = 0, math.huge
    local y = run(fused(two), arrays, noise{ 3, 1, n, 4 })
    local sums = y:reshape{ 3, -1 }:sum{ axis = 1 }:totable()
    assert.is_true(sums[1] == sums[1] and sums[2] ~= sums[2] and sums[3] == sums[3])
    local kept = compare(function(a) a.bias[{ 3, n - 10 }] = 0 / 0 end, -1e9)
    assert.near((n - 1) / n, kept, 1e-12)
    for _, times in ipairs{ 100, 1e4, 1e6 } do
      compare(function(a) a.q, a.k = a.q * times, a.k * times end, -1e9)
    end
  end)
  it("with rows whose scores are so large that float32 loses the sum of their weights", function()
    for _, n in ipairs{ 2, 70, N(300) } do
      for _, far in ipairs{ -1e9, 1e9, -1e30 } do
        local o = { B = 1, H = 2, KH = 1, Tq = n, Tk = n, d = 6, dv = 6, bias = { n, n } }
        local a = make_arrays(o)
        a.bias["::2"] = far
        for name, x in pairs(a) do
          a[name] = x:astype "float32"
        end
        local head = noise{ 1, 2, n, 6 }:astype "float32"
        local want, want_grads = run(apart(o), a, head)
        local got, grads = run(fused(o), a, head)
        assert.near(want, got, 1e-5, 1e-5)
        for name, g in pairs(grads) do
          assert.near(want_grads[name], g, 5e-5, 5e-5, "gradient of " .. name)
        end
      end
    end
  end)
  it("with a scale", function() check{ Tq = 9, scale = -0.3 } end)
  it("with one or two of everything", function()
    for _, n in ipairs{ 1, 2 } do
      for _, more in ipairs{ {}, { causal = true }, { window = 1 }, { window = 2, causal = true },
        { mask = { n } }, { bias = { n, n } }, { scale = 2 } } do
        more.Tq, more.B, more.H, more.d, more.dv = n, n, n, n, 3 - n
        check(more)
      end
    end
    for _, lengths in ipairs{ { 0, 0 }, { 0, 1 }, { 1, 2 }, { 2, 0 } } do
      for _, Tq in ipairs{ 1, 2 } do
        check{ Tq = Tq, Tk = 2, valid_length = lengths }
        check{ Tq = Tq, Tk = 2, valid_length = lengths, offset = { 1, 0 }, causal = true,
          H = 2, KH = 1 }
      end
    end
  end)
  it("with all of it at once", function()
    local Tk = N(300)
    for _, Tq in ipairs{ 1, 2, 65, Tk } do
      check{ Tq = Tq, Tk = Tk, B = 3, H = 6, KH = 2, d = 5, dv = 7, causal = true, window = 70,
        offset = { 0, 17, N(200) }, valid_length = { 0, N(150), Tk }, mask = { 3, 1, 1, Tk },
        bias = { 6, Tq, Tk }, scale = 0.7 }
    end
  end)
  it("in tasks of queries and of keys", function()
    check{ Tq = N(600), B = 1, H = 1, causal = true, bias = { N(600) } }
    check{ Tq = N(300), Tk = N(700), B = 1, H = 2, KH = 1, valid_length = { N(420) } }
  end)
  it("with so many rows that the keys pass more than once", function()
    check{ Tq = N(1100), Tk = 70, B = 1, H = 2, KH = 1, causal = true }
    check{ Tq = N(1030), Tk = N(300), B = 1, H = 8, window = 50, valid_length = { N(290) } }
  end)
end)

describe("contrib.attention", function()
  local B, T, H, D = 2, 70, 3, 4

  -- Joins (B, H, T, D) to (B, T, H * D).
  local function joined(x)
    return nd.transpose(x, { axes = { 0, 2, 1, 3 } }):reshape{ B, -1, H * D }
  end
  local function swapped(x) return nd.transpose(x, { axes = { 1, 0, 2 } }) end

  -- Returns arrays with their heads next to each other, each head with its parts.
  local function packed(list)
    local parts = {}
    for i, x in ipairs(list) do
      parts[i] = nd.transpose(x, { axes = { 0, 2, 1, 3 } })
    end
    return nd.Concat(parts, { dim = 3 }):reshape{ B, -1, H * D * #list }
  end

  it("takes other layouts", function()
    local q, k, v = noise{ B, H, T, D }, noise{ B, H, T, D }, noise{ B, H, T, D }
    local want = joined(nd.contrib.attention(q, k, v, { layout = "NHTC" }))
    assert.near(want, nd.contrib.attention(joined(q), joined(k), joined(v), { heads = H }), 0)
    local o = { heads = H, layout = "TNC" }
    assert.near(swapped(want), nd.contrib.attention(swapped(joined(q)), swapped(joined(k)),
      swapped(joined(v)), o), 0)
    o.packed = "kv"
    local pair = swapped(packed{ k, v })
    assert.near(swapped(want), nd.contrib.attention(swapped(joined(q)), pair, o), 0)
    o.packed = "qkv"
    assert.near(swapped(want), nd.contrib.attention(swapped(packed{ q, k, v }), o), 0)
    assert.near(want, nd.contrib.attention(packed{ q, k, v }, { heads = H, packed = "qkv" }), 0)
  end)

  it("has gradients of packed inputs", function()
    local q, k, v, head = noise{ B, H, T, D }, noise{ B, H, T, D }, noise{ B, H, T, D },
      noise{ B, T, H * D }
    local y, apart_grads = run(sym.contrib.attention{ query = V "q", key = V "k", value = V "v",
      heads = H, causal = true }, { q = joined(q), k = joined(k), v = joined(v) }, head)
    local function compare(o, arrays, want)
      o.heads, o.causal = H, true
      local x, grads = run(sym.contrib.attention(o), arrays, head)
      assert.near(y, x, 0)
      for name, g in pairs(want) do
        assert.near(g, grads[name], 0)
      end
    end
    local function split(g)
      return nd.transpose(g:reshape{ B, T, H, D }, { axes = { 0, 2, 1, 3 } })
    end
    local dq, dk, dv = split(apart_grads.q), split(apart_grads.k), split(apart_grads.v)
    compare({ query_key_value = V "x", packed = "qkv" }, { x = packed{ q, k, v } },
      { x = packed{ dq, dk, dv } })
    compare({ query = V "q", key_value = V "x", packed = "kv" },
      { q = joined(q), x = packed{ k, v } }, { q = apart_grads.q, x = packed{ dk, dv } })
  end)

  it("lets nothing of a key through that does not count", function()
    local nan, inf = 0 / 0, math.huge
    for _, bad in ipairs{ nan, inf, -inf } do
      local q, k, v = noise{ 1, 2, T, D }, noise{ 1, 2, T, D }, noise{ 1, 2, T, D }
      local head = noise{ 1, 2, T, D }
      local o = { query = V "q", key = V "k", value = V "v", layout = "NHTC", causal = true }
      local y, g = run(sym.contrib.attention(o), { q = q, k = k, v = v }, head)
      k[{ ":", ":", "40:" }], v[{ ":", ":", "40:" }] = bad, bad
      local y2, g2 = run(sym.contrib.attention(o), { q = q, k = k, v = v }, head)
      assert.near(y[{ ":", ":", ":40" }], y2[{ ":", ":", ":40" }], 1e-14)
      local last = y2[{ 0, 0, T - 1 }]:totable()
      assert.is_true(last[1] ~= last[1])
      -- queries before 40 have the gradients that they had
      assert.near(g.q[{ ":", ":", ":40" }], g2.q[{ ":", ":", ":40" }], 1e-14)
    end
  end)

  it("lets no head gradient through to a key that its query does not see", function()
    local n = 300
    local a = { q = noise{ 1, 1, n, D }, k = noise{ 1, 1, n, D }, v = noise{ 1, 1, n, D } }
    local position = nd.arange(0, n, F64)
    a.bias = nd.broadcast_greater(position:reshape{ 1, n }, position:reshape{ n, 1 }) * -1e9
    local net = sym.contrib.attention{ query = V "q", key = V "k", value = V "v", bias = V "bias",
      layout = "NHTC" }
    local later, head = { 0, 0, "200:" }, noise{ 1, 1, n, D }
    head[{ 0, 0, ":150" }] = 0
    local _, want = run(net, a, head)
    for _, bad in ipairs{ 0 / 0, math.huge } do
      head[{ 0, 0, ":150" }] = bad
      local _, got = run(net, a, head)
      assert.near(want.k[later], got.k[later], 1e-14)
      assert.near(want.v[later], got.v[later], 1e-14)
      local first = got.v[{ 0, 0, 0, 0 }]:asscalar()
      assert.is_true(first ~= first or first == bad)
    end
  end)

  it("has gradients of numbers whose squares are not finite", function()
    local a, o = {}, { query = V "q", key = V "k", value = V "v", layout = "NHTC", causal = true }
    for _, name in ipairs{ "q", "k", "v" } do
      a[name] = noise{ 1, 1, T, D }:astype "float32"
    end
    local head = noise{ 1, 1, T, D }:astype "float32"
    local _, want = run(sym.contrib.attention(o), a, head)
    a.q, a.k = a.q * 2 ^ 70, a.k * 2 ^ -70
    local _, got = run(sym.contrib.attention(o), a, head)
    assert.near(want.q, got.q * 2 ^ 70, 1e-5)
    assert.near(want.k, got.k * 2 ^ -70, 1e-5)
    assert.near(want.v, got.v, 1e-5)
  end)

  it("reads no key from valid_length on", function()
    local k, v = noise{ 1, 2, T, D }, noise{ 1, 2, T, D }
    local function at(n, tq)
      ty.random.seed(5)
      local q = noise{ 1, 2, tq, D }
      local o = { query = V "q", key = V "k", value = V "v", valid_length = V "valid_length",
        layout = "NHTC" }
      local a = { q = q, k = k, v = v, valid_length = nd.array({ n }, F64) }
      return run(sym.contrib.attention(o), a, nd.ones({ 1, 2, tq, D }, F64))
    end
    for _, tq in ipairs{ 1, 5, 40 } do
      local y, g = at(33, tq)
      k[{ ":", ":", "33:" }], v[{ ":", ":", "33:" }] = 0 / 0, 0 / 0
      local y2, g2 = at(33, tq)
      assert.near(y, y2, 0)
      for _, name in ipairs{ "q", "k", "v" } do
        assert.near(g[name], g2[name], 0)
      end
      k[{ ":", ":", "33:" }], v[{ ":", ":", "33:" }] = 0, 0
    end
  end)

  it("gives 0 for a query without keys, and gradients 0", function()
    local o = { query = V "q", key = V "k", value = V "v", mask = V "mask", layout = "NHTC" }
    local y, g = run(sym.contrib.attention(o), { q = noise{ 1, 1, 3, 2 }, k = noise{ 1, 1, 4, 2 },
      v = noise{ 1, 1, 4, 2 }, mask = nd.zeros({ 4 }, F64) }, noise{ 1, 1, 3, 2 })
    for _, x in ipairs{ y, g.q, g.k, g.v } do
      assert.equal(0, nd.abs(x):max():asscalar())
    end
  end)

  it("takes a bias of -infinity as a key that does not count", function()
    local q, k, v = noise{ 1, 1, 3, 2 }, noise{ 1, 1, 4, 2 }, noise{ 1, 1, 4, 2 }
    local bias = nd.array({ 0, 0, -math.huge, -math.huge }, F64)
    local y, g = run(sym.contrib.attention{ query = V "q", key = V "k", value = V "v",
      bias = V "bias", layout = "NHTC" }, { q = q, k = k, v = v, bias = bias },
      nd.ones({ 1, 1, 3, 2 }, F64))
    local function first(x) return x[{ ":", ":", ":2" }] end
    assert.near(nd.contrib.attention(q, first(k), first(v), { layout = "NHTC" }), y, 1e-14)
    assert.equal(0, nd.abs(g.bias["2:"]):max():asscalar())
  end)

  it("keeps NaN of a key that counts", function()
    local q, k, v = noise{ 1, 1, 3, 2 }, noise{ 1, 1, 4, 2 }, noise{ 1, 1, 4, 2 }
    q[{ 0, 0, 1 }] = 0 / 0
    local y = nd.contrib.attention(q, k, v, { layout = "NHTC" }):totable()[1][1]
    assert.is_true(y[1][1] == y[1][1] and y[3][1] == y[3][1])
    assert.is_true(y[2][1] ~= y[2][1] and y[2][2] ~= y[2][2])
  end)

  it("computes half types in float32", function()
    for dtype, bound in pairs{ float16 = 2e-3, bfloat16 = 1.6e-2 } do
      local q, k, v = noise{ B, H, T, D }:astype(dtype), noise{ B, H, T, D }:astype(dtype),
        noise{ B, H, T, D }:astype(dtype)
      local head = noise{ B, H, T, D }:astype(dtype)
      local net = sym.contrib.attention{ query = V "q", key = V "k", value = V "v",
        layout = "NHTC" }
      local y, g = run(net, { q = q, k = k, v = v }, head)
      local want, want_grads = run(net, { q = q:astype "float64", k = k:astype "float64",
        v = v:astype "float64" }, head:astype "float64")
      assert.equal(dtype, y.dtype)
      assert.near(want, y:astype "float64", bound, bound)
      for name, x in pairs(g) do
        assert.near(want_grads[name], x:astype "float64", bound, bound)
      end
    end
  end)

  it("computes float32 to its precision", function()
    local q, k, v = noise{ B, H, 300, 16 }, noise{ B, H, 300, 16 }, noise{ B, H, 300, 16 }
    local function single(x) return x:astype "float32" end
    local want = nd.contrib.attention(q, k, v, { layout = "NHTC" })
    local got = nd.contrib.attention(single(q), single(k), single(v), { layout = "NHTC" })
    assert.near(want, got:astype "float64", 1e-6, 2e-6)
  end)

  it("gives equal bits with any number of threads", function()
    local function output(threads)
      local text, status = shell.run(("TYCHO_THREADS=%d %s spec/support/attention_bits.lua"):format(
        threads, shell.program))
      assert.equal(0, status, text)
      return text
    end
    local one = output(1)
    assert.equal(2, select(2, one:gsub("\n", "")))
    assert.equal(one, output(2))
    assert.equal(one, output(5))
  end)
end)

describe("dropout of contrib.attention", function()
  local T = 140
  local eye = nd.eye(T, 0, 0, F64):reshape{ 1, T, T }

  local function network(p)
    return sym.contrib.attention{ query = V "q", key = V "k", value = V "v", dropout = p }
  end

  it("drops weights in training only", function()
    ty.random.seed(7)
    local q, k = noise{ 1, T, 3 }, noise{ 1, T, 3 }
    local whole = nd.contrib.attention(q, k, eye)
    local exe = network(0.25):bind{ ctx = ty.cpu(), args = { q = q, k = k, v = eye } }
    assert.near(whole, exe:forward{ is_train = false }[1], 1e-14)
    local ratio = (exe:forward{ is_train = true }[1] / whole):reshape{ -1 }:totable()
    local dropped = 0
    for _, r in ipairs(ratio) do
      assert.is_true(r == 0 or math.abs(r - 4 / 3) < 1e-9)
      dropped = dropped + (r == 0 and 1 or 0)
    end
    local n = T * T
    assert.is_true(math.abs(dropped / n - 0.25) < 5 * math.sqrt(0.25 * 0.75 / n))
  end)

  it("drops weights of what counts, with each head's own draw", function()
    ty.random.seed(5)
    local B, H, KH, D = 2, 4, 2, 3
    local o = { causal = true, window = 90, valid_length = V "valid_length", heads = H,
      kv_heads = KH, dropout = 0.25, query = V "q", key = V "k", value = V "v" }
    local function net() return sym.contrib.attention(o) end
    local a = { q = noise{ B, T, H * D }, k = noise{ B, T, KH * D },
      valid_length = nd.array({ 100, T }, F64) }
    -- an identity for each head of keys: the output is the weights
    a.v = nd.broadcast_axis(nd.Concat(eye, eye, { dim = 2 }), { axis = 0, size = B })
    ty.random.seed(6)
    local kept = net():bind{ ctx = ty.cpu(), args = a }:forward{ is_train = true }[1]
    kept = nd.transpose(kept:reshape{ B, T, H, T }, { axes = { 0, 2, 1, 3 } })
    local some = nd.broadcast_greater(nd.abs(kept), nd.zeros({ 1, 1, 1, 1 }, F64)) * (4 / 3)
    assert.is_true(nd.abs(some[{ ":", 0 }] - some[{ ":", 1 }]):max():asscalar() > 1)
    a.v = noise{ B, T, KH * 5 }
    local head = noise{ B, T, H * 5 }
    ty.random.seed(6)
    local y, g = run(net(), a, head)
    local function heads(name, n, size, times)
      local x = sym.transpose{ sym.reshape{ V(name), shape = { B, T, n, size } },
        axes = { 0, 2, 1, 3 } }
      return sym.reshape{ sym["repeat"]{ x, repeats = times, axis = 1 },
        shape = { B * H, T, size } }
    end
    local s = sym.batch_dot{ heads("q", H, D, 1), heads("k", KH, D, 2), transpose_b = true }
    s = sym.broadcast_add(sym.reshape{ s / math.sqrt(D), shape = { B, H, T, T } }, V "gone")
    local weights = sym.reshape{ sym.softmax{ s } * V "some", shape = { B * H, T, T } }
    local z = sym.batch_dot{ weights, heads("v", KH, 5, 2) }
    z = sym.transpose{ sym.reshape{ z, shape = { B, H, T, 5 } }, axes = { 0, 2, 1, 3 } }
    a.some = some
    a.gone = (admitted{ B = B, H = H, Tq = T, Tk = T, causal = true, window = 90,
      valid_length = { 100, T } } - 1) * 1e300
    local want, want_grads = run(sym.reshape{ z, shape = { B, T, H * 5 } }, a, head)
    -- the first sample's last queries see keys, too: window 90 of 100 keys
    assert.near(want, y, 1e-13, 1e-13)
    for name, x in pairs(g) do
      assert.near(want_grads[name], x, 1e-13, 1e-13)
    end
  end)

  it("draws the same weights in backward", function()
    ty.random.seed(8)
    local q, k, v, head = noise{ 1, T, 3 }, noise{ 1, T, 3 }, noise{ 1, T, 5 }, noise{ 1, T, 5 }
    -- which weights stay: the output for values that are an identity
    local a = { q = q, k = k, v = eye }
    ty.random.seed(9)
    local kept = network(0.25):bind{ ctx = ty.cpu(), args = a }
    local mask = nd.broadcast_greater(nd.abs(kept:forward{ is_train = true }[1]),
      nd.zeros({ 1, 1, 1 }, F64)) * (4 / 3)
    ty.random.seed(9)
    local y, g = run(network(0.25), { q = q, k = k, v = v }, head)
    local weights = sym.softmax{ sym.batch_dot{ V "q", V "k", transpose_b = true } / math.sqrt(3) }
    local want, want_grads = run(sym.batch_dot{ weights * V "some", V "v" },
      { q = q, k = k, v = v, some = mask }, head)
    assert.near(want, y, 1e-13, 1e-13)
    for name, x in pairs(g) do
      assert.near(want_grads[name], x, 1e-13, 1e-13)
    end
  end)
end)

describe("contrib.attention refuses", function()
  local function refused(code, words, ...)
    local e = assert.raises(code, nd.contrib.attention, ...)
    assert.is_truthy(tostring(e):find(words, 1, true), tostring(e))
    return e
  end
  local x = nd.ones{ 2, 3, 8 }

  it("what does not fit", function()
    refused("shape", "8 numbers cannot be divided into 3 heads", x, x, x, { heads = 3 })
    refused("shape", "broadcasts to (batch 2, heads 2, queries 3, keys 3), got (4,)",
      { query = x, key = x, value = x, bias = nd.ones{ 4 }, heads = 2 })
    refused("shape", "expected (batch, length, heads * size), got 2 dimensions", nd.ones{ 2, 3 }, x,
      x, { heads = 2 })
    refused("dtype", "query: expected a float type, got int32", x:astype "int32",
      x:astype "int32", x:astype "int32", { heads = 2 })
    local wide = x:astype "float64"
    refused("dtype", "dtype of value is float64, but float32 is needed here", x, x, wide)
    refused("dtype", "dtype of key is float32, but float64 is needed here", wide, x, wide)
    refused("dtype", "dtype of bias is float64, but float32 is needed here",
      { query = x, key = x, value = x, bias = nd.ones({ 3 }, F64) })
  end)

  it("parameters that do not fit, by name", function()
    local e = refused("value", "expected a divisor of heads = 4, got 3", x, x, x,
      { heads = 4, kv_heads = 3 })
    assert.equal("kv_heads", e.argument)
    e = refused("value", "expected NTC or TNC with packed inputs, got NHTC",
      { query_key_value = nd.ones{ 2, 3, 24 }, packed = "qkv", layout = "NHTC" })
    assert.equal("layout", e.argument)
    e = refused("value", "expected heads = 4 with packed = qkv, got 2",
      { query_key_value = nd.ones{ 2, 3, 24 }, packed = "qkv", heads = 4, kv_heads = 2 })
    assert.equal("kv_heads", e.argument)
    for _, scale in ipairs{ 0 / 0, math.huge } do
      e = refused("value", "parameter scale: expected a finite number", x, x, x, { scale = scale })
      assert.equal("scale", e.argument)
    end
  end)
end)
