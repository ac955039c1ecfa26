-- Mixed precision: float16 and bfloat16 networks with float32 master weights, and loss scaling.

local ty = require "tycho"
local LossScale = require "tycho.module.loss_scale"

local sym = ty.sym

local function network(dtype)
  local x = sym.Cast{data = sym.Variable("data"), dtype = dtype}
  x = sym.FullyConnected{data = x, num_hidden = 8, name = "fc1"}
  x = sym.FullyConnected{data = sym.tanh(x), num_hidden = 3, name = "fc2"}
  return sym.SoftmaxOutput{data = sym.Cast{data = x, dtype = "float32"}, name = "softmax"}
end

local function batches(factor)
  local x = (ty.nd.arange{0, 96}:reshape{16, 6} * 7 % 13) / 13 * (factor or 1)
  return ty.io.NDArrayIter{data = x, label = ty.nd.arange{0, 16} % 3, batch_size = 8}
end

local SHAPES = {fc1_weight = {8, 6}, fc1_bias = {8}, fc2_weight = {3, 8}, fc2_bias = {3}}

local function start()
  local params = {}
  for name, shape in pairs(SHAPES) do
    local n = shape[1] * (shape[2] or 1)
    params[name] = (ty.nd.arange{0, n} * 5 % 11 / 11 - 0.4):reshape(shape)
  end
  return params
end

local function module(dtype, contexts)
  return ty.mod.Module{symbol = network(dtype or "float32"), context = contexts}
end

local function fit(m, options)
  local given = {train_data = batches(), num_epoch = 2, arg_params = start(),
    optimizer_params = {learning_rate = 0.5, momentum = 0.9}}
  for key, value in pairs(options or {}) do
    given[key] = value
  end
  m:fit(given)
  local params = {}
  for name, p in pairs((m:get_params())) do
    params[name] = p:as_in_context(ty.cpu(0)):astype("float32")
  end
  return params
end

local function difference(a, b)
  local most = 0
  for name in pairs(SHAPES) do
    most = math.max(most, (a[name] - b[name]):abs():max():asscalar())
  end
  return most
end

describe("a scaled loss", function()
  local level = ty.log.level
  setup(function() ty.log.level = "error" end)
  teardown(function() ty.log.level = level end)

  for _, scale in ipairs{ 1024, "dynamic" } do
    it(("changes no step of a float32 network, loss_scale = %s"):format(scale), function()
      -- powers of two: the same bits
      assert.equal(0, difference(fit(module()), fit(module(), {loss_scale = scale})))
    end)
  end

  it("is what gradients are multiplied by, of heads and of losses with weights too", function()
    local x, w = sym.Variable("x"), sym.Variable("w")
    for _, net in ipairs{
      sym.LinearRegressionOutput{data = x * w, label = sym.Variable("label")},
      sym.MakeLoss{data = x * w}, x * w,
      sym.contrib.linear_cross_entropy{data = x, weight = w, num_hidden = 3, no_bias = true,
        label = sym.Variable("label")} } do
      local grads = {}
      for i, s in ipairs{ net, LossScale.make_symbol(net) } do
        local exe = s:simple_bind{ctx = ty.cpu(0), x = {3, 4}, w = {3, 4}}
        for _, name in ipairs{ "x", "w", "label" } do
          local a = exe.arg_dict[name]
          if a then (ty.nd.arange{0, a.size}:reshape(a.shape) % 3):copyto(a) end
        end
        for _, a in pairs(exe.aux_dict) do a[":"] = 64 end
        exe:forward{is_train = true}
        exe:backward(#net:list_arguments() == 2 and not tostring(net):find("make")
          and ty.nd.ones(exe.outputs[1].shape) or nil)
        grads[i] = {exe.grad_dict.x, exe.grad_dict.w, exe.outputs[1]}
      end
      for k, factor in ipairs{ 64, 64, 1 } do
        assert.is_true((grads[1][k]:abs():sum():asscalar()) > 0)
        assert.equal(0, (grads[1][k] * factor - grads[2][k]):abs():max():asscalar())
      end
    end
  end)

  it("keeps gradients that float16 would lose", function()
    local function moved(options)
      local m = ty.mod.Module{symbol = sym.MakeLoss{data = sym.sum(sym.Cast{
        data = sym.Cast{data = sym.Variable("data"), dtype = "float16"} * sym.Variable("w"),
        dtype = "float32"}) * 1e-9}, label_names = ty.null}
      options.train_data = ty.io.NDArrayIter{data = ty.nd.ones{4, 1}, batch_size = 4}
      options.num_epoch, options.eval_metric = 1, "loss"
      options.arg_params = {w = ty.nd.ones({4, 1}, {dtype = "float16"})}
      options.optimizer_params = {learning_rate = 1e8, rescale_grad = 1, multi_precision = true}
      m:fit(options)
      return 1 - m:get_params().w:astype("float32"):max():asscalar()
    end
    assert.equal(0, moved{})
    assert.is_near(0.1, moved{loss_scale = "dynamic"}, 0.01)
  end)

  for _, dtype in ipairs{ "float16", "bfloat16" } do
    it("trains a " .. dtype .. " network with master weights", function()
      local params = {}
      for name, p in pairs(start()) do
        params[name] = p:astype(dtype)
      end
      local m = module(dtype)
      local got = fit(m, {loss_scale = "dynamic", arg_params = params, num_epoch = 4,
        optimizer_params = {learning_rate = 0.1, momentum = 0.9, multi_precision = true}})
      local want = fit(module(), {num_epoch = 4,
        optimizer_params = {learning_rate = 0.1, momentum = 0.9}})
      local near = dtype == "float16" and 0.005 or 0.05
      assert.is_true(difference(got, want) < near)
      assert.equal(dtype, (m:get_params()).fc1_weight.dtype)
      local states = m._updater.states
      assert.equal("float32", states[0][2].dtype)
    end)
  end

  it("that overflows leaves the step out, and is halved", function()
    local m = module("float16")
    local half = {}
    for name, p in pairs(start()) do
      half[name] = p:astype("float16")
    end
    local before = {}
    for name, p in pairs(half) do
      before[name] = p:as_in_context(ty.cpu(0)):astype("float32")
    end
    local options = {arg_params = half, train_data = batches(2000), num_epoch = 1,
      optimizer_params = {learning_rate = 0.001, multi_precision = true}}
    options.loss_scale = 2 ^ 20
    assert.equal(0, difference(before, fit(m, options)))
    assert.equal(2, m._loss_scale.skipped)
    assert.equal(2 ^ 20, m._loss_scale.scale)
    options.loss_scale, options.force_init, options.num_epoch = "dynamic", true, 20
    local after = fit(m, options)
    local scale = m._loss_scale
    assert.is_true(scale.skipped > 0)
    assert.equal(2 ^ (15 - scale.skipped), scale.scale)
    assert.is_true(difference(before, after) > 0)
    for _, p in pairs(after) do
      assert.equal(0, (p - p):abs():max():asscalar())
    end
  end)

  -- 1 on each of two contexts, times the first scale of 2^15: float16 holds either, not the sum
  it("leaves the step out where only the sum over contexts overflows", function()
    local x = sym.Cast{data = sym.Variable("data"), dtype = "float16"}
    local out = sym.MakeLoss{data = sym.FullyConnected{data = x, num_hidden = 1, no_bias = true,
      name = "fc"}}
    for _, store in ipairs{"local", "device"} do
      local m = ty.mod.Module{symbol = out, label_names = {}, context = {ty.cpu(0), ty.cpu(1)}}
      m:fit{train_data = ty.io.NDArrayIter{data = ty.nd.ones{6, 1}, batch_size = 2},
        kvstore = store, loss_scale = "dynamic", num_epoch = 1, eval_metric = "loss",
        optimizer_params = {learning_rate = 1, rescale_grad = 0.25, multi_precision = true},
        arg_params = {fc_weight = ty.nd.ones{1, 1}}}
      assert.equal(0, m:get_params().fc_weight:asscalar())
    end
  end)

  it("doubles after two thousand good steps", function()
    local scale = LossScale("dynamic")
    for _ = 1, 2000 do
      assert.equal(2 ^ 15, scale.scale)
      scale:stepped()
    end
    assert.equal(2 ^ 16, scale.scale)
  end)

  it("works with accumulation, a limit of length and several contexts", function()
    for _, options in ipairs{ {accumulate = 2}, {clip_global_norm = 0.3} } do
      local want = fit(module(), options)
      options.loss_scale = "dynamic"
      assert.is_true(difference(want, fit(module(), options)) < 1e-6)
    end
    for _, store in ipairs{ "local", "device" } do
      local contexts = {ty.cpu(0), ty.cpu(1)}
      local want = fit(module("float32", contexts), {kvstore = store})
      local got = fit(module("float32", contexts), {kvstore = store, loss_scale = 256})
      assert.equal(0, difference(want, got))
    end
  end)

  it("goes on where a saved training was", function()
    local prefix = os.tmpname()
    local options = {loss_scale = "dynamic", checkpoint = {prefix = prefix, resume = true}}
    fit(module(), options)
    local m = module()
    options.num_epoch = 4
    local got = fit(m, options)
    os.remove(prefix)
    os.remove(prefix .. ".state")
    assert.equal(8, m._loss_scale.good)
    assert.equal(0, difference(fit(module(), {num_epoch = 4}), got))
  end)

  it("reaches buckets that are bound later", function()
    local function generate(length)
      local x = sym.FullyConnected{data = sym.sum{data = sym.Variable("data"), axis = 1},
        num_hidden = 3, name = "fc"}
      return sym.SoftmaxOutput{data = sym.broadcast_add(x, sym.zeros{1, 3} + length),
        name = "softmax"}, {"data"}, {"softmax_label"}
    end
    local function train(loss_scale)
      local m = ty.mod.BucketingModule{sym_gen = generate, default_bucket_key = 4}
      local list = {}
      for i, length in ipairs{ 4, 2, 3 } do
        list[i] = ty.io.DataBatch{data = {ty.nd.arange{0, 10 * length}:reshape{2, length, 5} / 40},
          label = {ty.nd.array{0, 2}}, bucket_key = length,
          provide_data = {{"data", {2, length, 5}}}, provide_label = {{"softmax_label", {2}}}}
      end
      local at = 0
      local it = {provide_data = list[1].provide_data, provide_label = list[1].provide_label,
        next = function()
          at = at + 1
          return list[at]
        end, reset = function() at = 0 end}
      m:fit{train_data = it, num_epoch = 2, loss_scale = loss_scale,
        initializer = ty.init.One(), optimizer_params = {learning_rate = 0.1}}
      return m:get_params().fc_weight, m
    end
    local want = train()
    local got, m = train(512)
    assert.equal(0, (want - got):abs():max():asscalar())
    for _, one in ipairs(m._met) do
      assert.equal(512, one._loss_scale.scale)
    end
  end)

  it("refuses what makes no sense", function()
    for _, bad in ipairs{ 0, -1, "static", math.huge } do
      assert.error_matches(function() fit(module(), {loss_scale = bad}) end, "loss_scale")
    end
    assert.error_matches(function()
      fit(module(), {loss_scale = 2, in_backward = true, kvstore = ty.null})
    end, "left out where a gradient overflows")
  end)

  it("is gone with the training that asked for it", function()
    local m = module()
    fit(m, {loss_scale = 64})
    fit(m)
    assert.is_nil(m._loss_scale)
  end)
end)
