-- Kernels of Convolution compared with float64, element by element: the error is within 1e-6 of the
-- mean sum of absolute products, and 1.5e-6 of the element's own sum (smaller at a padded corner).
-- Winograd's tiles must meet both bounds.
local device = require "spec.support.device"
local ty = require "tycho"
local sym = ty.sym
require "spec.helper"

-- Checks which kernel of the CPU computes an executor's first step.
local function is_by(exe, kernel)
  if not device.is_gpu then assert.equal(kernel, exe:program():match("\n *0 +(%S+)")) end
end

local function net(size, dtype)
  local x = ty.sym.Convolution{data = ty.sym.Variable("x"), weight = ty.sym.Variable("w"),
    num_filter = size.filters, name = "c", kernel = {size.k, size.k},
    stride = {size.stride, size.stride}, pad = {size.pad, size.pad}, dilate = size.dilate or {1, 1},
    no_bias = true}
  local shape = {size.n, size.channels, size.h, size.w}
  return x:simple_bind{ctx = ty.cpu(), shapes = {x = shape}, type_dict = {x = dtype, w = dtype},
    grad_req = size.req}
end

-- Returns outputs and gradients, with `old` in the gradients before.
local function results(exe, x, w, g, old)
  local dtype = exe.arg_dict.x.dtype
  exe.arg_dict.x[":"] = x:astype(dtype)
  exe.arg_dict.w[":"] = w:astype(dtype)
  exe.grad_dict.x[":"], exe.grad_dict.w[":"] = old, old
  exe:forward(true)
  exe:backward(g:astype(dtype))
  return {exe.outputs[1]:astype("float64"), exe.grad_dict.x:astype("float64"),
    exe.grad_dict.w:astype("float64")}
end

-- Returns the largest |a - b|, as shares of the mean sum of absolute products and of its own sum.
local function worst(a, b, sum)
  local e = (a - b):abs()
  return e:max():asscalar() / sum:mean():asscalar(), (e / (sum + 1e-30)):max():asscalar()
end

local function compare(size)
  ty.random.seed(size.seed)
  local low, high = net(size, "float32"), net(size, "float64")
  local x = ty.nd.random.normal{shape = low.arg_dict.x.shape}
  local w = ty.nd.random.normal{shape = low.arg_dict.w.shape}
  local g = ty.nd.random.normal{shape = low.outputs[1].shape}
  local got, want = results(low, x, w, g, 0.5), results(high, x, w, g, 0.5)
  local bound = results(high, x:abs(), w:abs(), g:abs(), 0.5)
  for i, what in ipairs{"output", "gradient of the data", "gradient of the weight"} do
    local mean, own = worst(got[i], want[i], bound[i])
    assert(mean <= 1e-6 and own <= 1.5e-6,
      ("%s of %d x %d x %d x %d, %d filters, %d x %d, stride %d, pad %d: %g, %g"):format(what,
        size.n, size.channels, size.h, size.w, size.filters, size.k, size.k,
        size.stride, size.pad, mean, own))
  end
  return low
end

describe("convolution", function()
  it("keeps its bound on random shapes, in all directions, written and added", function()
    math.randomseed(5)
    local channels = {16, 32, 48, 64, 3}
    for i = 1, 24 do
      compare{n = i % 2 == 0 and 32 or math.random(6), channels = channels[math.random(#channels)],
        filters = channels[math.random(4)], h = math.random(7, 21), w = math.random(7, 21),
        k = i % 4 == 0 and 5 or 3, stride = i % 5 == 0 and 2 or 1,
        pad = math.random(0, 1), req = i % 3 == 0 and "add" or "write", seed = i}
    end
  end)

  it("goes in pieces through a batch that is too large for one", function()
    compare{n = 6, channels = 64, filters = 64, h = 57, w = 58, k = 3, stride = 1, pad = 1,
      req = "write", seed = 1}
    compare{n = 6, channels = 64, filters = 64, h = 57, w = 58, k = 3, stride = 1,
      pad = 1, req = "add", seed = 2}
  end)

  it("takes over bias and activation in inference", function()
    for i, kind in ipairs{"relu", "sigmoid", "tanh", "softrelu"} do
      local outputs = {}
      for _, dtype in ipairs{"float32", "float64"} do
        local x = ty.sym.Convolution{data = ty.sym.Variable("x"), num_filter = 32, name = "c",
          kernel = {3, 3}, pad = {1, 1}}
        local exe = ty.sym.Activation{data = x, act_type = kind}:simple_bind{ctx = ty.cpu(),
          x = {32, 32, 15, 17},
          type_dict = {x = dtype, c_weight = dtype, c_bias = dtype}, grad_req = "null"}
        ty.random.seed(i)
        for _, name in ipairs{"x", "c_weight", "c_bias"} do
          local a = exe.arg_dict[name]
          a[":"] = ty.nd.random.uniform{low = -0.1, high = 0.1, shape = a.shape}:astype(dtype)
        end
        outputs[dtype] = exe:forward(false)[1]:astype("float64")
      end
      assert((outputs.float32 - outputs.float64):abs():max():asscalar() < 2e-6, kind)
    end
  end)

  it("is that of one axis where the others have one element", function()
    local function run(space, c)
      local ones = space - 1
      local function spread(n, other)
        local list = {n}
        for _ = 1, ones do list[#list + 1] = other end
        return list
      end
      local x = ty.sym.Convolution{data = ty.sym.Variable("x"), weight = ty.sym.Variable("w"),
        num_filter = c.filters, num_group = c.groups, kernel = spread(c.k, 1),
        stride = spread(c.stride, c.stride), pad = spread(c.pad, 0), no_bias = true}
      local exe = x:simple_bind{ctx = ty.cpu(),
        shapes = {x = {2, c.channels, unpack(spread(c.length, 1))}}, grad_req = "write"}
      ty.random.seed(4)
      local function fill(a)
        a[":"] = ty.nd.random.uniform{-1, 1, shape = {a.size}}:reshape(a.shape)
      end
      fill(exe.arg_dict.x)
      fill(exe.arg_dict.w)
      local inference = exe:forward(false)[1]:copy()
      local y = exe:forward(true)[1]
      local g = ty.nd.empty(y.shape)
      fill(g)
      exe:backward(g)
      return {inference:reshape{-1}, y:reshape{-1}, exe.grad_dict.x:reshape{-1},
        exe.grad_dict.w:reshape{-1}}
    end
    for _, c in ipairs{{channels = 3, filters = 4, groups = 1}, {channels = 64, filters = 64,
      groups = 1}, {channels = 32, filters = 32, groups = 32}} do
      for _, window in ipairs{{5, 1, 0}, {3, 2, 1}, {1, 2, 0}} do
        c.length, c.k, c.stride, c.pad = 301, unpack(window)
        local want = run(1, c)
        for space = 2, 3 do
          for i, got in ipairs(run(space, c)) do
            local off = (got - want[i]):abs():max():asscalar()
            local most = want[i]:abs():max():asscalar()
            assert(off <= 2e-6 * most, ("%d axes, %d channels, k %d, stride %d, result %d: off %g")
              :format(space, c.channels, c.k, c.stride, i, off / most))
          end
        end
      end
    end
  end)

  it("takes dilated rows, in tiles too", function()
    for _, apart in ipairs{2, 3, 5} do
      local exe = compare{n = 4, channels = 32, filters = 64, h = 40, w = 37, k = 3, stride = 1,
        pad = 1, dilate = {apart, 1}, req = "write", seed = apart}
      local forward = exe:program():match("\n *0 [^\n]*")
      assert.is_nil(forward:match("Winograd: not 3 x 3[^;]*"), forward)
    end
    compare{n = 1, channels = 32, filters = 32, h = 33, w = 20, k = 3, stride = 1, pad = 2,
      dilate = {1, 2}, req = "write", seed = 7}
  end)

  it("says which way it goes", function()
    local size = {n = 32, channels = 32, filters = 32, h = 16, w = 16, k = 3, stride = 1, pad = 1,
      req = "write", seed = 1}
    local program = compare(size):program()
    local names = program:find("Winograd", 1, true) or program:find("oneDNN", 1, true)
      or program:find("panels", 1, true) or program:find("cudnn", 1, true)
    assert.is_truthy(names, program)
  end)

  it("of one long axis takes no way through blocks", function()
    ty.random.seed(4)
    local outputs, x, w = {}, ty.nd.random.normal{shape = {1, 32, 604, 1}},
      ty.nd.random.normal{shape = {48, 32, 5, 1}}
    for _, dtype in ipairs{"float32", "float64"} do
      local y = sym.Convolution{data = sym.Variable("x"), weight = sym.Variable("w"),
        num_filter = 48, kernel = {5, 1}, no_bias = true}
      local exe = y:bind{ctx = ty.cpu(), grad_req = "null",
        args = {x = x:astype(dtype), w = w:astype(dtype)}}
      outputs[dtype] = exe:forward(false)[1]
      is_by(exe, "panels")
    end
    assert.near(outputs.float64:astype("float32"), outputs.float32, 5e-5, 0)
  end)

  it("sees a new weight of 1 x 1 windows in inference", function()
    for i, size in ipairs{{1, 64, 32, 14}, {3, 64, 32, 9}, {2, 32, 112, 7}} do
      local n, channels, filters, side = unpack(size)
      local x = ty.sym.Convolution{data = ty.sym.Variable("x"), num_filter = channels,
        kernel = {3, 3}, pad = {1, 1}, name = "a"}
      x =
        ty.sym.relu(ty.sym.Convolution{data = x, num_filter = filters, kernel = {1, 1}, name = "b"})
      x = ty.sym.Convolution{data = x, num_filter = 16, kernel = {3, 3}, pad = {1, 1}, name = "c"}
      local exes = {}
      for _, dtype in ipairs{"float32", "float64"} do
        local types = {}
        for _, name in ipairs(x:list_arguments()) do
          types[name] = dtype
        end
        exes[dtype] = x:simple_bind{ctx = ty.cpu(), shapes = {x = {n, 16, side, side}},
          type_dict = types, grad_req = "null"}
      end
      for round = 1, 2 do
        local outputs = {}
        for dtype, exe in pairs(exes) do
          ty.random.seed(10 * i + round)
          for _, name in ipairs(x:list_arguments()) do
            local a = exe.arg_dict[name]
            a[":"] = ty.nd.random.normal{scale = 0.3, shape = a.shape}:astype(dtype)
          end
          outputs[dtype] = exe:forward(false)[1]:astype("float64")
        end
        local gap = (outputs.float32 - outputs.float64):abs():max():asscalar()
          / outputs.float64:abs():max():asscalar()
        assert(gap <= 1e-5, ("net %d, weight %d: %g"):format(i, round, gap))
      end
    end
  end)

  -- arrays that users see are plain; between convolutions channels are in blocks, where
  -- the processor's vectors say so. What is plain is copied to blocks where there is work
  -- enough.
  it("agrees with float64 between neighbours, with bias and relu, in all directions", function()
    local function conv(x, filters, pad, name)
      return ty.sym.relu(ty.sym.Convolution{data = x, num_filter = filters, kernel = {3, 3},
        pad = {pad, pad}, name = name})
    end
    for i, size in ipairs{{4, 16, 32, 15, 13, 8, 2}, {40, 16, 16, 10, 9, 8, 2},
        {2, 48, 24, 30, 11, 8, 2}, {3, 24, 40, 16, 16, 8, 2}, {8, 64, 48, 30, 29, 48, 4}} do
      local n, channels, filters, h, w, inputs, tiles = unpack(size)
      local out, program = conv(conv(conv(ty.sym.Variable("x"), channels, 1, "a"), filters,
        i % 2, "b"), 16, 1, "c"), nil
      local all = {}
      for _, dtype in ipairs{"float32", "float64"} do
        local types = {x = dtype}
        for _, name in ipairs(out:list_arguments()) do
          types[name] = dtype
        end
        local shapes = {x = {n, inputs, h, w}}
        local exe = out:simple_bind{ctx = ty.cpu(), shapes = shapes, type_dict = types,
          grad_req = i > 2 and "add" or "write"}
        ty.random.seed(i)
        for _, name in ipairs(out:list_arguments()) do
          local a = exe.arg_dict[name]
          a[":"] = ty.nd.random.normal{scale = 0.3, shape = a.shape}:astype(dtype)
          exe.grad_dict[name][":"] = 0.5
        end
        exe:forward(true)
        exe:backward(ty.nd.random.normal{shape = exe.outputs[1].shape}:astype(dtype))
        all[dtype] = {out = exe.outputs[1]:astype("float64")}
        for name, g in pairs(exe.grad_dict) do
          all[dtype][name] = g:astype("float64")
        end
        program = program or exe:program()
      end
      for name, want in pairs(all.float64) do
        local gap = (all.float32[name] - want):abs():max():asscalar() / want:abs():max():asscalar()
        assert(gap <= 1e-5, ("%s of net %d: %g"):format(name, i, gap))
      end
      if program:find("channels in 8s", 1, true) and os.getenv("TYCHO_WINOGRAD") ~= "0" then
        local _, found = program:gsub("\n *%d+  Winograd", "")
        assert.equal(tiles, found, program)
      end
    end
  end)

  it("has equal bits in two runs, and with new weights other ones", function()
    local size = {n = 16, channels = 32, filters = 64, h = 14, w = 14, k = 3, stride = 1, pad = 1,
      req = "write", seed = 3}
    local exe = compare(size)
    local first = {exe.outputs[1]:tostring_raw(), exe.grad_dict.w:tostring_raw()}
    exe:forward(true)
    exe:backward(ty.nd.ones(exe.outputs[1].shape))
    assert.equal(first[1], exe.outputs[1]:tostring_raw())
    exe.arg_dict.w[":"] = exe.arg_dict.w * 2
    exe:forward(true)
    assert.not_equal(first[1], exe.outputs[1]:tostring_raw())
  end)
end)

-- Returns the gradient of the data by its definition, as a flat list.
local function data_gradient(s, w, dy)
  local out, oh, ow = {}, s.h + 2 * s.ph - s.kh + 1, s.w + 2 * s.pw - s.kw + 1
  local function at(n, f, o, p)
    return o >= 0 and o < oh and p >= 0 and p < ow
      and dy[((n * s.filters + f) * oh + o) * ow + p + 1] or 0
  end
  for n = 0, s.n - 1 do for c = 0, s.channels - 1 do for i = 0, s.h - 1 do for j = 0, s.w - 1 do
    local sum = 0
    for f = 0, s.filters - 1 do for a = 0, s.kh - 1 do for b = 0, s.kw - 1 do
      sum = sum
        + w[((f * s.channels + c) * s.kh + a) * s.kw + b + 1] * at(n, f, i + s.ph - a, j + s.pw - b)
    end end end
    out[#out + 1] = sum
  end end end end
  return out
end

describe("gradient of the data of a window that moves by one", function()
  local function defined(s, dtype, req)
    local exe = ty.sym.Convolution{data = ty.sym.Variable("x"), weight = ty.sym.Variable("w"),
      num_filter = s.filters, no_bias = true, kernel = {s.kh, s.kw},
      pad = {s.ph, s.pw}}:simple_bind{ctx = ty.cpu(), x = {s.n, s.channels, s.h, s.w},
        grad_req = req, type_dict = {x = dtype}}
    local w = ty.nd.random.normal{shape = exe.arg_dict.w.shape}
    local g = ty.nd.random.normal{shape = exe.outputs[1].shape}
    exe.arg_dict.w[":"] = w:astype(dtype)
    exe.grad_dict.x[":"] = 2
    exe:forward(true)
    exe:backward(g:astype(dtype))
    local want = ty.nd.array(data_gradient(s, w:reshape{-1}:totable(), g:reshape{-1}:totable()),
      {dtype = "float64"})
    if req == "add" then want = want + 2 end
    assert.near(want, exe.grad_dict.x:astype("float64"):reshape{-1}, 1e-4, 1e-4)
  end
  it("is that of the definition, whatever the window, the padding and the width", function()
    math.randomseed(7)
    ty.random.seed(7)
    for i = 1, 40 do
      local s = {n = math.random(2), channels = math.random(3), filters = math.random(5),
        kh = math.random(5), kw = math.random(6), ph = math.random(0, 3), pw = math.random(0, 3)}
      s.h, s.w = math.random(s.kh, 9), math.random(s.kw, i % 4 == 0 and 40 or 12)
      defined(s, i % 3 == 0 and "float64" or "float32", i % 2 == 0 and "add" or "write")
    end
  end)
  it("of rows as long as a panel, longer, and of one place", function()
    for _, width in ipairs{1, 126, 128, 130, 150} do
      defined({n = 1, channels = 2, filters = 3, kh = 2, kw = 3, ph = 1, pw = 1, h = 4, w = width},
        "float32", "write")
    end
  end)
end)

describe("a convolution", function()
  -- Shapes of inference that go in bands of rows or in odd parts of the filters, from plain arrays
  -- and, after a first layer, from blocks; the second run has other weights.
  it("in bands of rows keeps its bound, with bias and relu", function()
    for i, o in ipairs{
        {channels = 32, filters = 16, size = {81, 97}, k = 3, stride = 2, pad = 1},
        {channels = 64, filters = 16, size = {40, 48}, k = 3, pad = 1, n = 2},
        {channels = 24, filters = 48, size = {104, 100}, k = 3, stride = 2, pad = 1},
        {channels = 32, filters = 48, size = {56, 60}, k = 5, pad = 2},
        {channels = 32, filters = 16, size = {60, 52}, k = 3, pad = 2, dilate = 2},
        {channels = 48, filters = 48, size = {104, 52}, k = 1},
        {channels = 240, filters = 240, size = {24, 40}, k = 1},
        {channels = 32, filters = 16, size = {80, 96}, k = 3, pad = 1, first = 32},
        {channels = 32, filters = 16, size = {80, 96}, k = 3, pad = 1, first = 16},
        {channels = 32, filters = 48, size = {104, 100}, k = 1, first = 96} } do
      local outputs = {}
      for _, dtype in ipairs{"float32", "float64"} do
        local x = sym.Variable("x")
        if o.first then
          x = sym.Convolution{data = x, name = "first", num_filter = o.first, kernel = {3, 3},
            pad = {1, 1}}
        end
        x = sym.relu{sym.Convolution{data = x, name = "c", num_filter = o.filters,
          kernel = {o.k, o.k}, stride = {o.stride or 1, o.stride or 1}, pad = {o.pad or 0,
          o.pad or 0}, dilate = {o.dilate or 1, o.dilate or 1}}}
        if o.first then
          x = sym.Convolution{data = x, name = "last", num_filter = 32, kernel = {3, 3}}
        end
        local exe = x:simple_bind{ctx = ty.cpu(), grad_req = "null",
          shapes = {x = {o.n or 1, o.channels, unpack(o.size)}}, type_dict = {x = dtype}}
        outputs[dtype] = {}
        for run = 1, 2 do
          ty.random.seed(i + 100 * run)
          for _, name in ipairs(x:list_arguments()) do
            local a = exe.arg_dict[name]
            a[":"] = ty.nd.random.uniform{-1, 1, shape = a.shape}:astype(a.dtype)
          end
          outputs[dtype][run] = exe:forward(false)[1]:astype("float64")
        end
      end
      for run = 1, 2 do
        local got, want = outputs.float32[run], outputs.float64[run]
        local off, most = (got - want):abs():max():asscalar(), want:abs():max():asscalar()
        assert(off <= 3e-6 * most, ("case %d, run %d: off %g"):format(i, run, off / most))
      end
    end
  end)

  -- The same numbers by another kernel: more images are more positions.
  it("of a few positions is that of many", function()
    for i, o in ipairs{ {kernel = {256}, stride = {128}, shape = {1, 640}, filters = 25},
        {kernel = {3}, pad = {1}, shape = {37, 4}, filters = 6, dilate = {2}, crop = {2}},
        {kernel = {3, 2}, pad = {1, 0}, shape = {20, 3, 4}, filters = 9, stride = {2, 1}},
        {kernel = {2, 2, 2}, pad = {1, 0, 1}, shape = {11, 1, 2, 2}, filters = 5} } do
      ty.random.seed(i)
      local layer = sym.Convolution{data = sym.Variable("x"), name = "c", num_filter = o.filters,
        kernel = o.kernel, stride = o.stride, pad = o.crop or o.pad, dilate = o.dilate}
      local function bound(n)
        return layer:simple_bind{ctx = ty.cpu(), x = {n, unpack(o.shape)}, grad_req = "null"}
      end
      local few, many = bound(1), bound(30)
      is_by(few, "dots")
      assert.not_matches("\n *0 +dots ", many:program())
      for _, name in ipairs{"x", "c_weight", "c_bias"} do
        few.arg_dict[name][":"] = ty.nd.random.normal{shape = few.arg_dict[name].shape}
        many.arg_dict[name][":"] = few.arg_dict[name]
      end
      local got, want = few:forward(false)[1], many:forward(false)[1]["0:1"]
      assert.near(want, got, 1e-5 * want:abs():max():asscalar(), 0)
    end
  end)

  -- The same as with all channels, whose other weights are zero.
  it("of one channel a group is that of all channels", function()
    for i, o in ipairs{ {kernel = {3, 3}, pad = {1, 1}, shape = {6, 7, 70}},
        {kernel = {5, 5}, pad = {2, 2}, stride = {2, 2}, shape = {5, 9, 33}},
        {kernel = {3, 3}, pad = {0, 2}, stride = {1, 3}, dilate = {2, 2}, shape = {7, 8, 40}},
        {kernel = {7}, pad = {3}, shape = {9, 200}}, {kernel = {2}, stride = {5}, shape = {4, 50}},
        {kernel = {3, 3}, pad = {1, 1}, shape = {4, 300, 20}},
        {kernel = {3, 3}, pad = {1, 1}, shape = {4, 4, 9000}},
        {kernel = {3, 1}, pad = {1, 0}, shape = {4, 50, 1}},
        {kernel = {2, 3, 3}, pad = {1, 1, 1}, shape = {4, 3, 6, 8}} } do
      ty.random.seed(i)
      local channels = o.shape[1]
      local function bound(groups, times)
        local layer = sym.Convolution{data = sym.Variable("x"), name = "c", kernel = o.kernel,
          num_filter = channels * times, num_group = groups, pad = o.pad, stride = o.stride,
          dilate = o.dilate}
        return layer:simple_bind{ctx = ty.cpu(), x = {2, unpack(o.shape)}, grad_req = "null"}
      end
      for _, times in ipairs{1, 2} do
        local own, all = bound(channels, times), bound(1, times)
        is_by(own, "rows")
        for _, name in ipairs{"x", "c_weight", "c_bias"} do
          own.arg_dict[name][":"] = ty.nd.random.normal{shape = own.arg_dict[name].shape}
        end
        all.arg_dict.x[":"], all.arg_dict.c_bias[":"] = own.arg_dict.x, own.arg_dict.c_bias
        all.arg_dict.c_weight[":"] = 0
        for f = 0, channels * times - 1 do
          local c = math.floor(f / times)
          all.arg_dict.c_weight[("%d:%d, %d:%d"):format(f, f + 1, c, c + 1)] =
            own.arg_dict.c_weight[("%d:%d"):format(f, f + 1)]
        end
        local want = all:forward(false)[1]
        assert.near(want, own:forward(false)[1], 1e-5 * want:abs():max():asscalar(), 0)
      end
    end
  end)
end)

-- Returns the sum over a window of one channel, in Lua's numbers.
local function window_sum(x, w, h, width, k, pad, y, col)
  local sum = 0
  for i = 0, k[1] - 1 do
    for j = 0, k[2] - 1 do
      local r, c = y + i - pad[1], col + j - pad[2]
      if r >= 0 and r < h and c >= 0 and c < width then
        sum = sum + x[r * width + c + 1] * w[i * k[2] + j + 1]
      end
    end
  end
  return sum
end

describe("Convolution with one channel a group", function()
  -- heights that leave rows over, widths around those of vectors
  for _, k in ipairs{{1, 3}, {2, 5}, {3, 3}, {5, 5}, {7, 2}} do
    for _, dtype in ipairs{"float32", "float64"} do
      it(("sums windows of %d x %d over maps of %s"):format(k[1], k[2], dtype), function()
        local groups, pad = 5, {math.floor(k[1] / 2), math.floor(k[2] / 2)}
        for h = k[1], k[1] + 5 do
          for _, width in ipairs{k[2], 15, 16, 17, 31, 40, 48, 49, 70} do
            local x = ty.nd.random.uniform{-1, 1, shape = {1, groups, h, width}}:astype(dtype)
            local w = ty.nd.random.uniform{-1, 1, shape = {groups, 1, k[1], k[2]}}:astype(dtype)
            local b = ty.nd.random.uniform{-1, 1, shape = {groups}}:astype(dtype)
            local y = ty.nd.Convolution{data = x, weight = w, bias = b, num_filter = groups,
              num_group = groups, kernel = k, pad = pad}
            local high, wide = y.shape[3], y.shape[4]
            x, w, y = x:reshape{groups, -1}, w:reshape{groups, -1}, y:reshape{groups, -1}
            local images, weights, sums, starts = x:totable(), w:totable(), y:totable(), b:totable()
            for g = 1, groups do
              local image, weight, got, from = images[g], weights[g], sums[g], starts[g]
              for at = 1, #got do
                local row, column = math.floor((at - 1) / wide), (at - 1) % wide
                local want = from + window_sum(image, weight, h, width, k, pad, row, column)
                assert.is_true(math.abs(got[at] - want) < (dtype == "float32" and 1e-5 or 1e-13),
                  ("%d x %d, row %d of %d, column %d"):format(h, width, row, high, column))
              end
            end
          end
        end
      end)
    end
  end
end)
