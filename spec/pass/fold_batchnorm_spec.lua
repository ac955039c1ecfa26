-- Normalisation with fixed statistics, and the sum after it, done by the convolution
-- (native/pass/fold_batchnorm.c): the same numbers as step by step.
local ty = require "tycho"
local sym = ty.sym

local function noise(shape, scale) return ty.nd.random_normal{shape = shape, scale = scale or 1} end

local function conv(x, name, filters, o)
  return sym.Convolution{data = x, name = name, num_filter = filters, kernel = o.kernel or {3, 3},
    pad = o.pad or {1, 1}, stride = o.stride, no_bias = not o.bias, num_group = o.groups}
end

local function norm(x, name, o)
  return sym.BatchNorm{data = x, name = name, fix_gamma = o.fix_gamma or false, eps = 1e-3,
    use_global_stats = o.global}
end

-- Returns a convolution and its normalisation beside a shortcut, between convolutions, so that
-- channels may be in blocks.
local function residual(o)
  local x = conv(sym.Variable("data"), "first", o.filters, {})
  local y = norm(conv(o.near and x or conv(x, "second", o.groups and 32 or 16, {}), "conv",
    o.filters, o), "norm", o)
  if o.relu then y = sym.relu(y) end
  if o.sum == "left" then y = x + y elseif o.sum == "right" then y = y + x end
  if o.relu_after then y = sym.relu(y) end
  if o.also then y = y + sym.tanh(y) end
  return conv(y, "last", 16, {})
end

local function bound(net, n, side, values, apart)
  local exe = net:simple_bind{ctx = ty.cpu(), data = {n, 16, side, side}, grad_req = "null"}
  exe:copy_params_from(values.arg, values.aux)
  if apart then exe:set_monitor_callback(function() end) end
  return exe
end

local function values_for(net, n, side)
  local exe = net:simple_bind{ctx = ty.cpu(), data = {n, 16, side, side}, grad_req = "null"}
  local v = {arg = {}, aux = {}}
  for name, x in pairs(exe.arg_dict) do
    v.arg[name] = noise(x.shape, name:find("weight") and 0.1 or 1)
  end
  for name, x in pairs(exe.aux_dict) do v.aux[name] = noise(x.shape) end
  for name, x in pairs(v.aux) do if name:find("var") then v.aux[name] = ty.nd.abs(x) + 0.2 end end
  return v
end

-- Returns how many further steps the convolutions compute; nil if no library computes in blocks.
local function taken(exe)
  local n = 0
  for steps in exe:program():gmatch("  does ([%d ]+)") do
    for _ in steps:gmatch("%d+") do n = n + 1 end
  end
  return n
end

local function same(exe, apart, train)
  local got, want = exe:forward{is_train = train}[1], apart:forward{is_train = train}[1]
  local near = 2e-5 * ty.nd.max(ty.nd.abs(want)):asscalar()
  assert.near(want, got, near, 0)
end

local function check(o, expected)
  o.filters = o.filters or 16
  local net, n, side = residual(o), o.n or 2, o.side or 12
  ty.random.seed(7)
  local values = values_for(net, n, side)
  local exe, apart = bound(net, n, side, values), bound(net, n, side, values, true)
  local blocks = exe:program():find("channels in")
  if blocks then assert.equal(expected, taken(exe)) end
  for _, train in ipairs{false, false, true, false} do same(exe, apart, train) end
  for _, e in ipairs{exe, apart} do                     -- new numbers are seen
    e.arg_dict.conv_weight[{}] = e.arg_dict.conv_weight * 0.5
    e.arg_dict.norm_gamma[{}] = e.arg_dict.norm_gamma + 1
  end
  same(exe, apart, false)
  for _, e in ipairs{exe, apart} do
    e.aux_dict.norm_moving_var[{}] = e.aux_dict.norm_moving_var * 3
    e.aux_dict.norm_moving_mean[{}] = e.aux_dict.norm_moving_mean - 1
    e.arg_dict.norm_beta[{}] = 0.25
    if o.bias then e.arg_dict.conv_bias[{}] = 2 end
  end
  same(exe, apart, false)
end

describe("a convolution does", function()
  it("the normalisation after it", function() check({}, 1) end)
  it("with a bias, a fixed gamma, statistics of the past also in training", function()
    check({bias = true}, 1)
    check({fix_gamma = true}, 1)
    check({global = true, bias = true}, 1)
  end)
  it("and an activation", function()
    check({relu = true}, 1)
    check({relu = true, bias = true, filters = 32}, 1)
  end)
  it("a sum after it, from either side, with relu too", function()
    check({sum = "right"}, 2)
    check({sum = "left", bias = true}, 2)
    check({sum = "left", relu_after = true}, 2)
    check({sum = "right", relu_after = true, fix_gamma = true}, 2)
  end)
  it("no sum with what it reads itself", function() check({sum = "left", near = true}, 1) end)
  it("no sum after an activation, none that another step reads in the same program", function()
    check({sum = "left", relu = true}, 1)
    check({sum = "left", also = true}, 1)
  end)
  it("one tap, strides, groups, small and odd images, one image", function()
    check({kernel = {1, 1}, pad = {0, 0}, sum = "left", relu_after = true, side = 7}, 2)
    check({stride = {2, 2}, relu = true, side = 9}, 1)
    check({groups = 2, filters = 32, relu = true}, 1)
    check({sum = "left", n = 1, side = 5, filters = 64}, 2)
  end)
  it("the same over plain channels: packed products, depthwise windows, a few positions", function()
    check({filters = 5, bias = true, relu = true}, 1)
    check({filters = 5, near = true, bias = true, relu = true}, 1)
    check({filters = 5, sum = "left", relu_after = true}, 1)
    check({filters = 5, side = 3, n = 1, sum = "left", relu_after = true}, 2)
    check({filters = 20, groups = 20, near = true, bias = true}, 1)
    check({filters = 20, groups = 20, near = true, relu = true, kernel = {5, 3}, pad = {2, 1}}, 1)
    check({filters = 5, side = 2, bias = true, sum = "right"}, 2)
    check({filters = 5, side = 2, n = 1, relu = true}, 1)
  end)
  it("nothing in an executor with gradients", function()
    ty.random.seed(7)
    local net = residual{filters = 16}
    local exe = net:simple_bind{ctx = ty.cpu(), data = {2, 16, 12, 12}}
    assert.equal(0, taken(exe))
  end)
  it("nothing whose normalisation is an output", function()
    local y = norm(conv(conv(sym.Variable("data"), "first", 16, {}), "conv", 16, {}), "norm", {})
    local exe = sym.Group{y, conv(y, "last", 16, {})}
      :simple_bind{ctx = ty.cpu(), data = {2, 16, 12, 12}, grad_req = "null"}
    assert.equal(0, taken(exe))
  end)
  -- Checks one of two convolutions, and its fusion; data has 16 channels in 12 x 12.
  local function folded(make, expected)
    local x = conv(sym.Variable("data"), "first", 16, {})
    local net = make(conv(x, "conv", 16, {}), x)
    ty.random.seed(7)
    local values = values_for(net, 2, 12)
    local exe, apart = bound(net, 2, 12, values), bound(net, 2, 12, values, true)
    if exe:program():find("channels in") then assert.equal(expected, taken(exe)) end
    for _ = 1, 2 do
      local got, want = exe:forward(), apart:forward()
      for i, y in ipairs(want) do
        assert.near(y, got[i], 2e-5 * ty.nd.max(ty.nd.abs(y)):asscalar(), 0)
      end
    end
  end

  it("nothing where another step reads its result", function()
    folded(function(y) return sym.Group{conv(norm(y, "norm", {}), "last", 16, {}), y} end, 0)
    folded(function(y) return conv(norm(y, "norm", {}) * sym.tanh(y), "last", 16, {}) end, 0)
  end)

  it("nothing where the statistics themselves are read, or of other axes", function()
    folded(function(y)
      local n = sym.BatchNorm{data = y, name = "norm", output_mean_var = true, fix_gamma = false}
      return sym.Group{conv(n[1], "last", 16, {}), n[2], n[3]}
    end, 0)
    folded(function(y)
      local n = sym.BatchNorm{data = y, name = "norm", axis = 3, fix_gamma = false}
      return conv(n, "last", 16, {})
    end, 0)
  end)

  it("the normalisation, and no sum that broadcasts, is of three, or of itself", function()
    folded(function(y)
      return conv(sym.broadcast_add{norm(y, "norm", {}),
        sym.mean{sym.relu(y), axis = {2, 3}, keepdims = true}}, "last", 16, {})
    end, 0)
    folded(function(y, x)
      return conv(sym.broadcast_add{norm(y, "norm", {}), sym.mean{sym.tanh(x), axis = {2, 3},
        keepdims = true}}, "last", 16, {})
    end, 1)
    folded(function(y, x)
      return conv(sym.add_n{norm(y, "norm", {}), sym.tanh(x), sym.sigmoid(x)}, "last", 16, {})
    end, 1)
    folded(function(y)
      local n = norm(y, "norm", {})
      return conv(n + n, "last", 16, {})
    end, 1)
    folded(function(y, x)
      return conv(sym.tanh(norm(y, "norm", {}) + sym.cos(x)), "last", 16, {})
    end, 1)
    folded(function(y, x) return conv(norm(y, "norm", {}) * sym.cos(x), "last", 16, {}) end, 1)
  end)

  it("what it takes over again after a reshape", function()
    local net = residual{filters = 16, sum = "left"}
    ty.random.seed(7)
    local values = values_for(net, 2, 12)
    local exe, apart = bound(net, 2, 12, values), bound(net, 2, 12, values, true)
    same(exe, apart, false)
    exe, apart = exe:reshape{data = {4, 16, 12, 12}, allow_up_sizing = true},
      apart:reshape{data = {4, 16, 12, 12}, allow_up_sizing = true}
    for _, e in ipairs{exe, apart} do e.arg_dict.data[{}] = 0.5 end
    apart:set_monitor_callback(function() end)
    same(exe, apart, false)
  end)
end)
