-- Products with the same weight one after another (native/pass/group_weights.c): another
-- order of steps, the same numbers.
local device = require "spec.support.device"
local ty = require "tycho"
local sym = ty.sym

-- Returns `layers` recurrent layers over `steps` inputs; `extra(y, t, l)` is a further use of a
-- layer's result.
local function stack(layers, steps, extra)
  local w, h = {}, {}
  local x = sym.SliceChannel{data = sym.Variable("data"), num_outputs = steps, axis = 0,
    squeeze_axis = true, name = "cut"}
  local out = {}
  for l = 1, layers do w[l] = {sym.Variable("wi" .. l), sym.Variable("wh" .. l)} end
  local function product(v, weight, name)
    return sym.FullyConnected{data = v, weight = weight, no_bias = true,
      num_hidden = 6, name = name}
  end
  for t = 1, steps do
    local y = steps == 1 and x or x[t]
    for l = 1, layers do
      local sum = product(y, w[l][1], ("i%d_%d"):format(l, t))
      if h[l] then sum = sum + product(h[l], w[l][2], ("h%d_%d"):format(l, t)) end
      y = sym.tanh(sum)
      if extra then y = extra(y, t, l) end
      h[l] = y
    end
    out[t] = y
  end
  out.name = "all"
  return sym.Concat(out)
end

local function bound(net, steps, req, seed)
  local exe = net:simple_bind{ctx = ty.cpu(), data = {steps, 4, 6}, grad_req = req}
  ty.random.seed(seed or 3)
  for _, name in ipairs(net:list_arguments()) do
    local x = exe.arg_dict[name]
    x[{}] = ty.nd.random_normal{shape = x.shape} * 0.5
  end
  return exe
end

-- Returns the names of the products, in the order they run forward, or backward.
local function order(exe, backward)
  local names, text = {}, exe:program()
  for line in text:match(backward and "\nbackward(.*)" or "^(.-)\nbackward"):gmatch("[^\n]+") do
    local name = line:match("[%[ ]([ih]%d_%d+)[%] ]") or line:match("%[([ih]%d_%d+)_backward[%] ]")
    if name then names[#names + 1] = name end
  end
  return table.concat(names, " ")
end

-- Checks that outputs and gradients of two steps are those of the monitored run, which keeps the
-- order of building.
local function same(net, steps, req)
  local exe, plain = bound(net, steps, req or "write"), bound(net, steps, req or "write")
  plain:set_monitor_callback(function() end)
  local head = ty.nd.ones(exe.outputs[1].shape)
  for _ = 1, 2 do
    for _, e in ipairs{exe, plain} do
      e:forward(true)
      e:backward(head)
    end
    assert.same(plain.outputs[1]:totable(), exe.outputs[1]:totable())
  end
  for name, g in pairs(plain.grad_dict) do assert.near(g, exe.grad_dict[name], 1e-5, 1e-5, name) end
  return exe
end

describe("products with one weight", function()
  setup(device.leave)
  teardown(device.come_back)
  it("run one after another, layer by layer", function()
    assert.equal("i1_1 i1_2 i1_3 i2_1 h1_2 h1_3 i2_2 i2_3 h2_2 h2_3", order(same(stack(2, 3), 3)))
  end)
  it("of one layer: first all inputs, then all of its time", function()
    assert.equal("i1_1 i1_2 i1_3 i1_4 h1_2 h1_3 h1_4", order(same(stack(1, 4), 4)))
  end)
  it("wait for one with another weight that has to come first", function()
    local v = sym.Variable("v")
    local function between(y, t, l)
      return l == 1 and t == 1 and sym.FullyConnected{data = y, weight = v, no_bias = true,
        num_hidden = 6, name = "i9_9"} or y
    end
    assert.equal("i1_1 i1_2 i1_3 i9_9 i2_1 h1_2 h1_3 i2_2 i2_3 h2_2 h2_3",
      order(same(stack(2, 3, between), 3)))
  end)
  it("run so backward, too, from the last step to the first", function()
    local exe = same(stack(2, 3), 3)
    assert.equal("h2_3 h2_2 i2_3 i2_2 i2_1 h1_3 h1_2 i1_3 i1_2 i1_1", order(exe, true))
  end)
  it("add to the same sums in the same order, to gradients that are there, too", function()
    for _, req in ipairs{"write", "add"} do
      for _, steps in ipairs{2, 9, 14} do same(stack(3, steps), steps, req) end
    end
  end)
  it("leave unused gradients", function()
    local req = {data = "null", wi1 = "write", wh1 = "null", wi2 = "add", wh2 = "write"}
    same(stack(2, 5), 5, req)
  end)
  it("that share one array for two gradients", function()
    local net = stack(2, 4)
    local args, grads, req = {}, {}, {}
    local one = ty.nd.zeros{6, 6}
    for _, name in ipairs(net:list_arguments()) do
      args[name] = ty.nd.random_normal{shape = name == "data" and {4, 4, 6} or {6, 6}} * 0.5
      grads[name], req[name] = name == "data" and ty.nd.zeros{4, 4, 6} or one, "add"
    end
    local exe = net:bind{ctx = ty.cpu(), args = args, args_grad = grads, grad_req = req}
    exe:forward(true)
    exe:backward(ty.nd.ones(exe.outputs[1].shape))
    local sum = 0
    local apart = net:simple_bind{ctx = ty.cpu(), data = {4, 4, 6}, grad_req = "write"}
    for name, x in pairs(args) do apart.arg_dict[name][{}] = x end
    apart:forward(true)
    apart:backward(ty.nd.ones(apart.outputs[1].shape))
    for name, g in pairs(apart.grad_dict) do sum = name == "data" and sum or sum + g end
    assert.near(sum, one, 1e-4, 1e-4)
  end)
  it("stay where they are without gradients", function()
    local exe = bound(stack(2, 3), 3, "null")
    local text = exe:program() .. "\nbackward"
    assert.equal("i1_1 i2_1 i1_2 h1_2 i2_2 h2_2 i1_3 h1_3 i2_3 h2_3", order{program = function()
      return text
    end})
  end)
  it("stay where they are when a step changes a state", function()
    local norm = {}
    local function normed(y, t, l)
      norm[l] = norm[l] or sym.Variable("gamma" .. l)
      return sym.BatchNorm{data = y, gamma = norm[l], name = ("bn%d_%d"):format(l, t)}
    end
    assert.equal("i1_1 i2_1 i1_2 h1_2 i2_2 h2_2", order(same(stack(2, 2, normed), 2)))
  end)
  it("draw what they would have drawn", function()
    local net = stack(2, 3, function(y, t, l)
      return sym.Dropout{data = y, p = 0.5, name = ("d%d_%d"):format(l, t)}
    end)
    local exe, plain = bound(net, 3, "write"), bound(net, 3, "write")
    plain:set_monitor_callback(function() end)
    for _, e in ipairs{exe, plain} do
      ty.random.seed(11)
      e:forward(true)
      e:backward(ty.nd.ones(e.outputs[1].shape))
    end
    assert.same(plain.outputs[1]:totable(), exe.outputs[1]:totable())
    assert.near(plain.grad_dict.wi1, exe.grad_dict.wi1, 1e-5, 1e-5)
  end)
  it("take no more memory than in the order of building where values are kept anyway", function()
    local exe = bound(stack(2, 8), 8, "write")
    local m = exe:memory()
    assert.is_true(m.planned <= 1.05 * m.lower_bound)
  end)
end)
