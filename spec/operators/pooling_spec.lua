-- The gradient of max pooling goes by a byte per window: the first maximum
-- in row-major order takes all.
local ty = require "tycho"
local arrays = require "spec.support.arrays"
local sym = ty.sym
require "spec.helper"

local function numbers(x) return x:reshape{-1}:astype("float64"):totable() end

-- Returns the gradient for head gradients g by the definition: data (n, c, h, w), kernel k, stride
-- s, padding p.
local function defined(x, g, d, k, s, p, oh, ow)
  local dx = {}
  for i = 1, #x do dx[i] = 0 end
  for plane = 0, d[1] * d[2] - 1 do
    for oy = 0, oh - 1 do
      for ox = 0, ow - 1 do
        local best, at
        for ky = 0, k[1] - 1 do
          for kx = 0, k[2] - 1 do
            local y, xx = oy * s - p + ky, ox * s - p + kx
            if y >= 0 and y < d[3] and xx >= 0 and xx < d[4] then
              local i = (plane * d[3] + y) * d[4] + xx + 1
              if x[i] == x[i] and (not best or x[i] > best) then best, at = x[i], i end
            end
          end
        end
        if at then dx[at] = dx[at] + g[(plane * oh + oy) * ow + ox + 1] end
      end
    end
  end
  return dx
end

local function check(d, k, s, p, dtype, spoil)
  ty.random.seed(5)
  local net = sym.Pooling{data = sym.Variable("data"), kernel = k, stride = {s, s}, pad = {p, p},
    pool_type = "max", name = "pool"}
  local exe = net:simple_bind{ctx = ty.cpu(), data = d, type_dict = {data = dtype or "float32"},
    grad_req = "write"}
  local data = exe.arg_dict.data
  data[":"] = ty.nd.random_randint{low = -3, high = 4, shape = d}:astype(data.dtype)  -- many ties
  if spoil then spoil(data) end
  local out = exe:forward(true)[1]
  local head = ty.nd.random_randint{low = 1, high = 9, shape = out.shape}:astype(data.dtype)
  exe:backward(head)
  assert.same(defined(numbers(data), numbers(head), d, k, s, p, out.shape[3], out.shape[4]),
    numbers(exe.grad_dict.data))
end

describe("the gradient of max pooling", function()
  it("goes to the first maximum of each window", function()
    for _, dtype in ipairs{"float32", "float64"} do
      check({2, 3, 8, 8}, {2, 2}, 2, 0, dtype)
      check({2, 3, 9, 23}, {2, 2}, 2, 0, dtype)          -- a row and a column under no window
      check({1, 2, 12, 34}, {2, 2}, 2, 0, dtype)
      check({1, 1, 4, 6}, {2, 2}, 2, 0, dtype)
      check({2, 2, 9, 11}, {3, 3}, 2, 1, dtype)
      check({2, 2, 9, 11}, {3, 3}, 1, 1, dtype)
      check({1, 2, 5, 700}, {1, 3}, 3, 0, dtype)
      check({2, 3, 5, 5}, {5, 5}, 1, 0, dtype)           -- one window
    end
  end)

  it("takes windows of more positions than a byte can index", function()
    check({1, 2, 20, 20}, {17, 17}, 1, 2)
    check({1, 2, 16, 16}, {16, 16}, 1, 0)
    check({1, 2, 16, 15}, {16, 15}, 1, 0)
  end)

  it("passes numbers over that are none", function()
    local nan = 0 / 0
    local function spoil(x)
      x[1] = nan
      x[2] = nan
    end
    check({2, 1, 4, 6}, {2, 2}, 2, 0, nil, function(x) x[1] = nan end)
    check({3, 1, 5, 7}, {3, 3}, 2, 1, nil, spoil)
    check({3, 1, 3, 3}, {3, 3}, 1, 0, nil, spoil)
  end)

  it("is the same with channels in blocks", function()
    ty.random.seed(9)
    local function conv(x, name)
      return sym.Convolution{data = x, name = name, num_filter = 16, kernel = {3, 3},
        pad = {1, 1}, no_bias = true}
    end
    local windows = {{kernel = {2, 2}, stride = {2, 2}},
      {kernel = {3, 3}, stride = {2, 2}, pad = {1, 1}}, {kernel = {3, 3}, pad = {1, 1}},
      {kernel = {3, 2}, stride = {2, 3}}}
    for _, p in ipairs(windows) do
      p.data, p.name, p.pool_type =
        sym.round(conv(sym.Variable("data"), "first") * 2), "pool", "max"
      local net = conv(sym.Pooling(p), "last")
      local function bound(apart)
        local exe = net:simple_bind{ctx = ty.cpu(), data = {2, 16, 13, 14}}
        if apart then exe:set_monitor_callback(function() end) end
        return exe
      end
      local exe, apart = bound(), bound(true)
      for name, x in pairs(exe.arg_dict) do
        x[":"] = ty.nd.random_randint{low = -2, high = 3, shape = x.shape}:astype("float32")
        apart.arg_dict[name][":"] = x
      end
      for _, e in ipairs{exe, apart} do
        local out = e:forward(true)[1]
        e:backward(ty.nd.ones(out.shape))
      end
      for name, g in pairs(apart.grad_dict) do assert.near(g, exe.grad_dict[name], 0, 1e-6) end
      assert.near(apart.outputs[1], exe.outputs[1], 0, 1e-6)
    end
  end)

  it("does the gradient of a relu before it, too", function()
    local function check_relu(d, o, merged)
      ty.random.seed(3)
      local x = sym.Variable("data")
      if o.conv then
        x = sym.Convolution{data = x, name = "first", num_filter = 16,
          kernel = {3, 3}, pad = {1, 1}}
      end
      local r = sym.relu{data = x, name = "relu"}
      local y = sym.Pooling{data = r, kernel = o.kernel, stride = o.stride, pad = o.pad,
        pool_type = o.type or "max", name = "pool"}
      if o.conv then
        y = sym.Convolution{data = y, name = "last", num_filter = 16, kernel = {1, 1}}
      end
      if o.also then y = sym.sum(y) + sym.sum(r) end
      local function bound(apart)
        local exe = y:simple_bind{ctx = ty.cpu(), data = d,
          type_dict = {data = o.dtype or "float32"}, grad_req = o.req or "write"}
        if apart then exe:set_monitor_callback(function() end) end
        return exe
      end
      local exe, apart = bound(), bound(true)
      for name, v in pairs(exe.arg_dict) do
        -- ties, zeros among them
        v[":"] = ty.nd.random_randint{low = -3, high = 3, shape = v.shape}:astype(v.dtype)
        apart.arg_dict[name][":"] = v
      end
      assert.equal(merged ~= false, exe:program():find("%[pool_backward relu_backward%]") ~= nil)
      for _, e in ipairs{exe, apart} do
        for _, g in pairs(e.grad_dict) do g[":"] = 1 end
        e:backward(e:forward(true)[1] * 0 + 2)
      end
      for name, g in pairs(apart.grad_dict) do assert.near(g, exe.grad_dict[name], 0, 1e-6) end
    end
    check_relu({2, 16, 12, 12}, {kernel = {2, 2}, stride = {2, 2}, conv = true})
    check_relu({2, 16, 13, 11}, {kernel = {3, 3}, stride = {2, 2}, pad = {1, 1}, conv = true})
    check_relu({2, 16, 12, 12}, {kernel = {2, 2}, stride = {2, 2}, conv = true, req = "add"})
    for _, d in ipairs{{2, 3, 8, 9}, {1, 1, 4, 1100}} do
      -- the data's gradient is an array of the user's
      check_relu(d, {kernel = {2, 2}, stride = {2, 2}}, false)
    end
    check_relu({2, 16, 7, 7}, {kernel = {7, 7}, conv = true})
    check_relu({1, 16, 4, 1100}, {kernel = {2, 2}, stride = {2, 2}, conv = true})
    check_relu({2, 16, 12, 12}, {kernel = {2, 2}, type = "avg", conv = true}, false)
    check_relu({2, 16, 12, 12}, {kernel = {2, 2}, also = true}, false)
    check_relu({2, 16, 12, 12}, {kernel = {17, 17}, pad = {4, 4}, conv = true}, false)
    check_relu({2, 16, 12, 12}, {kernel = {2, 2}, conv = true, dtype = "float64"}, false)
  end)

  it("makes the bytes again where the forward part is computed again", function()
    for _, conv in ipairs{false, true} do        -- with it the pooled output is wanted again, too
      local grads = {}
      for i, again in ipairs{"False", "True"} do
        local function kept(o)
          o.attr = {__force_mirroring__ = again}
          return o
        end
        local x = sym.Pooling(
          kept{data = sym.relu(kept{data = sym.tanh(kept{data = sym.Variable("data")})}),
            kernel = {2, 2}, stride = {2, 2}, pool_type = "max", name = "pool"})
        local y = conv
          and sym.Convolution{data = x, name = "last", num_filter = 4, kernel = {3, 3}} or x * 2
        local exe = y:simple_bind{ctx = ty.cpu(), data = {2, 3, 12, 14}}
        ty.random.seed(4)
        for _, name in ipairs(y:list_arguments()) do
          exe.arg_dict[name][":"] = ty.nd.random_normal{shape = exe.arg_dict[name].shape}
        end
        exe:backward(exe:forward(true)[1] * 0 + 1)
        assert.equal(again == "True", exe:program():find("pool_mirror", 1, true) ~= nil)
        grads[i] = exe.grad_dict.data:totable()
      end
      assert.same(grads[1], grads[2])
    end
  end)

  it("keeps neither data nor output", function()
    local x = sym.Variable("data")
    local net = sym.Pooling{data = sym.tanh(x * 2), kernel = {2, 2},
      stride = {2, 2}, pool_type = "max"}
    local exe = sym.sum(net):simple_bind{ctx = ty.cpu(), data = {4, 8, 64, 64}, grad_req = "null"}
    local trained = sym.sum(net):simple_bind{ctx = ty.cpu(), data = {4, 8, 64, 64}}
    assert.is_true(exe:memory().pool <= trained:memory().pool)
    assert.is_nil(trained:program():find("taps[^\n]*tanh[^\n]*pooling%d+_backward"))
  end)
end)

-- a window that is outside the image: full convention, stride 3 over 2 elements, 1 around them
local LOWEST = {float32 = -3.4028234663852886e38, float64 = -1.7976931348623157e308,
  float16 = -65504, bfloat16 = -3.3895313892515355e38}

describe("a window without elements", function()
  local function pool(axes, options, dtype)
    local shape = {1, 1}
    options.kernel, options.stride, options.pad = {}, {}, {}
    for i = 1, axes do
      shape[i + 2], options.kernel[i], options.stride[i], options.pad[i] = 2, 2, 3, 1
    end
    options.pooling_convention = "full"
    return arrays.list(ty.nd.Pooling(ty.nd.ones(shape, {dtype = dtype}), options):reshape{-1})
  end

  it("is 0, the lowest finite number as a maximum, and NaN as a mean over three axes", function()
    for axes = 1, 3 do
      for dtype, lowest in pairs(LOWEST) do
        for kind, want in pairs{sum = {1, 0}, lp = {1, 0}, max = {1, lowest}} do
          local y = pool(axes, {pool_type = kind, p_value = 2}, dtype)
          assert.equal(2 ^ axes, #y)
          for i, v in ipairs(y) do assert.equal(want[math.min(i, 2)], v) end
        end
      end
      local padded = pool(axes, {pool_type = "avg", count_include_pad = true})
      local bare = pool(axes, {pool_type = "avg", count_include_pad = false})
      assert.equal(0.5 ^ axes, padded[1])
      assert.equal(1, bare[1])
      for i = 2, 2 ^ axes do
        assert.equal(0, padded[i])
        assert.is_true(axes == 3 and bare[i] ~= bare[i] or axes < 3 and bare[i] == 0)
      end
    end
  end)

  it("is 0 as a mean over three axes if it begins behind the data", function()
    local y = ty.nd.Pooling(ty.nd.ones{1, 1, 1, 1, 7}, {pool_type = "avg", kernel = {1, 1, 1},
      stride = {1, 1, 3}, pad = {0, 0, 1}, pooling_convention = "full", count_include_pad = false})
    local list = arrays.list(y)
    assert.equal(4, #list)
    assert.is_true(list[1] ~= list[1])                    -- all padding, in front
    assert.same({1, 1, 0}, {unpack(list, 2)})
  end)

  it("is one of NaN and -infinity alone, too", function()
    for dtype, lowest in pairs(LOWEST) do
      for _, v in ipairs{0 / 0, -math.huge} do
        local x = ty.nd.full({1, 4, 4, 4}, v, {dtype = dtype})
        for _, options in ipairs{{kernel = {2, 2}, stride = {2, 2}}, {kernel = {3, 3}},
          {kernel = {4, 4}}, {global_pool = true}, {kernel = {2, 2}, layout = "NHWC"}} do
          options.pool_type = "max"
          for _, y in ipairs(arrays.list(ty.nd.Pooling(x, options))) do assert.equal(lowest, y) end
        end
      end
    end
  end)
end)

-- Windows of one row and small windows, against a reduction of slices.
describe("pooling", function()
  local function expected(x, k, s, p, kind)
    local most = kind == "max"
    local padded = ty.nd.pad{x, mode = "constant", constant_value = most and -1e30 or 0,
      pad_width = {0, 0, 0, 0, p[1], p[1], p[2], p[2]}}
    local h, w = padded.shape[3], padded.shape[4]
    local oh, ow = math.floor((h - k[1]) / s[1]) + 1, math.floor((w - k[2]) / s[2]) + 1
    local y
    for ky = 0, k[1] - 1 do
      for kx = 0, k[2] - 1 do
        local part = padded[(":, :, %d:%d:%d, %d:%d:%d"):format(ky, ky + (oh - 1) * s[1] + 1, s[1],
          kx, kx + (ow - 1) * s[2] + 1, s[2])]
        y = not y and part or most and ty.nd.broadcast_maximum(y, part) or y + part
      end
    end
    return most and y or y / (k[1] * k[2])
  end

  it("is the same for windows in one row and for small ones", function()
    for i, o in ipairs{ {{1, 4}, {1, 4}, {0, 0}, {2, 3, 5, 16}},
        {{1, 4}, {1, 4}, {0, 0}, {1, 2, 9, 600}},
        {{1, 3}, {1, 4}, {0, 0}, {2, 2, 7, 20}}, {{1, 2}, {1, 2}, {0, 0}, {2, 2, 7, 21}},
        {{3, 3}, {2, 2}, {1, 1}, {2, 3, 12, 13}}, {{3, 3}, {2, 2}, {0, 0}, {1, 4, 22, 23}},
        {{2, 2}, {1, 1}, {0, 0}, {1, 2, 8, 70}}, {{3, 3}, {1, 1}, {1, 1}, {1, 2, 6, 1100}},
        {{2, 3}, {3, 1}, {1, 1}, {1, 3, 9, 5}}, {{3, 2}, {1, 3}, {1, 1}, {1, 3, 9, 11}} } do
      ty.random.seed(i)
      local k, s, p, shape = unpack(o)
      local x = ty.nd.random.uniform{-2, 2, shape = shape}
      for _, kind in ipairs{"max", "avg"} do
        local y = ty.nd.Pooling{x, kernel = k, stride = s, pad = p, pool_type = kind}
        assert.near(expected(x, k, s, p, kind), y, 1e-6, 0)
      end
    end
  end)
end)
