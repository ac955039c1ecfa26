-- Parameters that backward updates, against the same network with arrays
-- for gradients and an updater.
local ty = require "tycho"

local V, nd, sym = ty.sym.Variable, ty.nd, ty.sym

local function list_params(symbol)
  local list = {}
  for _, name in ipairs(symbol:list_arguments()) do
    if name ~= "data" and name ~= "softmax_label" then
      list[#list + 1] = name
    end
  end
  return list
end

-- Returns a network with convolution, normalisation, a weight that is read twice, and one after
-- another.
local function network()
  local x = sym.Convolution{data = V("data"), kernel = {3, 3}, num_filter = 8,
    pad = {1, 1}, name = "conv"}
  x = sym.Activation{sym.BatchNorm{x, fix_gamma = false, name = "bn"}, act_type = "relu"}
  local w, h = V{"twice_weight", lr_mult = 0.5}, sym.Flatten{x}
  h = sym.FullyConnected{data = h, num_hidden = 20, name = "fc"}
  h = sym.FullyConnected{data = sym.tanh(h), weight = w, num_hidden = 20,
    no_bias = true, name = "one"}
  h = sym.FullyConnected{data = sym.tanh(h), weight = w, num_hidden = 20,
    no_bias = true, name = "two"}
  h = sym.broadcast_mul{h, sym.Reshape{sym.sum{w * w}, shape = {1, 1}} * 0.01 + 1}
  h = sym.FullyConnected{data = h, num_hidden = 5, name = "last"}
  return sym.SoftmaxOutput{h, name = "softmax"}
end

local SHAPES = {data = {6, 3, 7, 7}, softmax_label = {6}}

local function fill(exe, names)
  ty.random.seed(5)
  for _, name in ipairs(names) do
    local x = exe.arg_dict[name]
    x[":"] = nd.random.uniform{low = -0.4, high = 0.4, shape = x.shape, dtype = "float32"}
  end
  exe.arg_dict.data[":"] = nd.random.uniform{low = -1, high = 1, shape = SHAPES.data}
  exe.arg_dict.softmax_label[":"] = nd.array{0, 1, 2, 3, 4, 0}
  for name, x in pairs(exe.aux_dict) do
    if name == "bn_moving_var" then
      x[":"] = 1
    end
  end
end

local function with_arrays(make, steps, options)
  local symbol = network()
  local names, req = list_params(symbol), {}
  for _, name in ipairs(names) do
    req[name] = "write"
  end
  local exe = symbol:simple_bind{ctx = ty.cpu(), shapes = SHAPES, grad_req = req,
    force_mirroring = options and options.force_mirroring,
    type_dict = options and options.type_dict}
  fill(exe, names)
  local update = ty.optimizer.get_updater(make(symbol, names))
  for _ = 1, steps do
    exe:forward(true)
    exe:backward()
    for i, name in ipairs(names) do
      update(i - 1, exe.grad_dict[name], exe.arg_dict[name])
    end
  end
  return exe, names
end

local function with_fused(make, steps, options)
  local symbol = network()
  local names = list_params(symbol)
  local fused = ty.optimizer.FusedOptimizer{symbol = symbol,
    optimizer = make(symbol, names), params = names}
  local bind = {ctx = ty.cpu(), shapes = SHAPES, grad_req = "null"}
  for key, v in pairs(options or {}) do
    bind[key] = v
  end
  local exe = fused.symbol:simple_bind(bind)
  fill(exe, names)
  for _ = 1, steps do
    exe:forward(true)
    fused:backward(exe)
  end
  return exe, names, fused
end

local function equal(a, b, names)
  for _, name in ipairs(names) do
    local e = (a.arg_dict[name] - b.arg_dict[name]):abs():max():asscalar()
    assert(e == 0, name .. " differs by " .. e)
  end
  assert.equal(0, (a.outputs[1] - b.outputs[1]):abs():max():asscalar())
end

local function maker(kind, options)
  return function(symbol, names)
    local all = {sym = symbol, param_idx2name = {}, rescale_grad = 1 / 6, wd = 0.01,
      lr_scheduler = ty.lr_scheduler
        .FactorScheduler{step = 2, factor = 0.5, base_lr = options.learning_rate}}
    for i, name in ipairs(names) do
      all.param_idx2name[i - 1] = name
    end
    for key, v in pairs(options) do
      all[key] = v
    end
    return ty.optimizer.create(kind, all)
  end
end

local RULES = {
  {"sgd", {learning_rate = 0.2}},
  {"sgd", {learning_rate = 0.2, momentum = 0.9, clip_gradient = 0.05}},
  {"nag", {learning_rate = 0.1, momentum = 0.9}}, {"nag", {learning_rate = 0.1}},
  {"signum", {learning_rate = 0.01, wd_lh = 0.1}}, {"signum", {learning_rate = 0.01, momentum = 0}},
  {"adam", {learning_rate = 0.01}}, {"rmsprop", {learning_rate = 0.01}},
  {"rmsprop", {learning_rate = 0.01, centered = true, clip_weights = 0.5}},
  {"ftrl", {learning_rate = 0.1, lr_scheduler = ty.null}},
}

describe("a fused optimizer", function()
  local level = ty.log.level
  setup(function() ty.log.level = "warning" end)
  teardown(function() ty.log.level = level end)

  it("is also called a learner", function()
    assert.equal(ty.optimizer.FusedOptimizer, ty.optimizer.Learner)
  end)

  it("gives the parameters of an updater, bit by bit, for every rule", function()
    for _, rule in ipairs(RULES) do
      local make = maker(rule[1], rule[2])
      local a, names = with_arrays(make, 5)
      local b = with_fused(make, 5)
      equal(a, b, names)
    end
  end)

  it("does so in float64, with recomputation, and with a monitor", function()
    local make = maker("adam", {learning_rate = 0.01})
    for _, options in ipairs{{force_mirroring = true}, {type_dict = {data = "float64"}}} do
      local a, names = with_arrays(make, 3, options)
      equal(a, with_fused(make, 3, options), names)
    end
    local a, names = with_arrays(make, 2)
    local b, _, fused = with_fused(make, 1)
    b:set_monitor_callback(function() end)
    b:forward(true)
    fused:backward(b)
    equal(a, b, names)
  end)

  it("updates in backward alone, and keeps no gradients", function()
    local exe, names, fused = with_fused(maker("sgd", {learning_rate = 0.2, momentum = 0.9}), 1)
    local before = {}
    for _, name in ipairs(names) do
      before[name] = exe.arg_dict[name]:copy()
    end
    exe:forward(false)
    exe:forward(true)
    for _, name in ipairs(names) do
      assert.equal(0, (before[name] - exe.arg_dict[name]):abs():max():asscalar())
    end
    fused:backward(exe)
    for _, name in ipairs(names) do -- in front of a normalisation a bias has no gradient
      local moved = (before[name] - exe.arg_dict[name]):abs():max():asscalar()
      assert.is_true(name == "conv_bias" or moved > 0, name)
    end
    assert.equal(0, exe:memory().grads)
    assert.is_true(exe.aux_dict.fc_weight_fused_mom:abs():max():asscalar() > 0)
  end)

  it("gives the gradients too where they are asked for", function()
    local symbol = network()
    local names, req = list_params(symbol), {}
    for _, name in ipairs(names) do
      req[name] = "write"
    end
    local fused = ty.optimizer.FusedOptimizer{symbol = symbol,
      optimizer = ty.optimizer.SGD{learning_rate = 0.1}, params = names}
    local plain = symbol:simple_bind{ctx = ty.cpu(), shapes = SHAPES, grad_req = req}
    local exe = fused.symbol:simple_bind{ctx = ty.cpu(), shapes = SHAPES, grad_req = req}
    for _, e in ipairs{plain, exe} do
      fill(e, names)
      e:forward(true)
    end
    plain:backward()
    fused:backward(exe)
    for _, name in ipairs(names) do
      assert.equal(0, (plain.grad_dict[name] - exe.grad_dict[name]):abs():max():asscalar())
      assert.is_true((plain.arg_dict[name] - exe.arg_dict[name]):abs():max():asscalar() > 0)
    end
  end)

  it("uses the memory of a gradient again", function()
    local function deep()
      local x = V("data")
      for i = 1, 8 do
        x = sym.FullyConnected{data = x, num_hidden = 256, no_bias = true, name = "fc" .. i}
      end
      return sym.SoftmaxOutput{x, name = "softmax"}
    end
    local symbol = deep()
    local fused = ty.optimizer.FusedOptimizer{symbol = symbol, optimizer = ty.optimizer.SGD{},
      params = list_params(symbol)}
    local exe = fused.symbol:simple_bind{ctx = ty.cpu(),
      shapes = {data = {4, 256}, softmax_label = {4}}, grad_req = "null"}
    assert.is_true(exe:memory().planned < 2 * 256 * 256 * 4 + 16 * 4 * 256 * 4)
  end)

  it("takes a new rate at the next step and refuses another rule", function()
    local exe, names, fused =
      with_fused(maker("sgd", {learning_rate = 0.1, lr_scheduler = ty.null}), 1)
    fused.optimizer:set_learning_rate(0)
    fused.optimizer.wd = 0
    local before = exe.arg_dict[names[1]]:copy()
    exe:forward(true)
    fused:backward(exe)
    assert.equal(0, (before - exe.arg_dict[names[1]]):abs():max():asscalar())
    fused.optimizer.rescale_grad = 2
    local e = assert.raises("state", fused.backward, fused, exe)
    assert.equal("rescale_grad", e.argument)
    fused.optimizer.rescale_grad, fused.optimizer.clip_gradient = 1 / 6, 0.1
    e = assert.raises("state", fused.backward, fused, exe)
    assert.equal("clip_gradient", e.argument)
    local cut, _, cutter = with_fused(maker("sgd",
      {learning_rate = 0.1, lr_scheduler = ty.null, clip_gradient = 0.1}), 1)
    cutter.optimizer.clip_gradient = nil                 -- one that is taken away
    e = assert.raises("state", cutter.backward, cutter, cut)
    assert.equal("clip_gradient", e.argument)
  end)

  it("updates in several executors in turn, as buckets do", function()
    local symbol = network()
    local names = list_params(symbol)
    local fused = ty.optimizer.FusedOptimizer{symbol = symbol,
      optimizer = ty.optimizer.SGD{learning_rate = 0.1, momentum = 0.9}, params = names}
    local one = fused.symbol:simple_bind{ctx = ty.cpu(), shapes = SHAPES, grad_req = "null"}
    fill(one, names)
    local two = one:reshape{data = {4, 3, 7, 7}, softmax_label = {4}}
    for _, exe in ipairs{two, one, two} do
      local before = one.arg_dict.fc_weight:copy()
      exe:forward(true)
      fused:backward(exe)
      assert.is_true((before - one.arg_dict.fc_weight):abs():max():asscalar() > 0)
    end
  end)

  it("says what it cannot do", function()
    local symbol, sgd = network(), ty.optimizer.SGD{}
    local FusedOptimizer = ty.optimizer.FusedOptimizer
    local e = assert.raises("name", FusedOptimizer,
      {symbol = symbol, optimizer = sgd, params = {"fc_wieght"}})
    assert.equal("fc_weight", e.candidates[1])
    assert.raises("unsupported", FusedOptimizer,
      {symbol = symbol, optimizer = ty.optimizer.create("lamb"), params = {"fc_weight"}})
    assert.raises("unsupported", FusedOptimizer, {symbol = symbol,
      optimizer = ty.optimizer.SGD{multi_precision = true}, params = {"fc_weight"}})
    assert.raises("type", FusedOptimizer,
      {symbol = symbol, optimizer = "sgd", params = {"fc_weight"}})
    local fused = FusedOptimizer{symbol = symbol, optimizer = sgd, params = {"fc_weight"}}
    local other = symbol:simple_bind{ctx = ty.cpu(), shapes = SHAPES, grad_req = "null"}
    assert.raises("value", fused.backward, fused, other)
    assert.raises("value", fused.backward, fused, 5)
    e = assert.raises("shape", function()
      local w = sym._learn{weight = V("w"), rates = V{"r", shape = {2, 3}},
        rule = "sgd_update", at = 0}
      return sym.sum{w}:simple_bind{ctx = ty.cpu(), w = {3}, grad_req = "null"}
    end)
    assert.is_truthy(tostring(e):find("rate", 1, true))
    assert.raises("dtype", function()
      local w = sym._learn{weight = V{"w", dtype = "float16"}, rates = V{"r", shape = {1, 2}},
        rule = "sgd_update", at = 0}
      return sym.sum{w}:simple_bind{ctx = ty.cpu(), w = {3}, grad_req = "null"}
    end)
  end)
end)
