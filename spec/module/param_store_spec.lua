-- Where a module keeps its parameters (runtime/lua/tycho/module/param_store.lua): values are copied
-- only for callers that ask for them, and they are the same either way.

local ty = require "tycho"

local WIDE = 512                                 -- its weights are above what other things take

local function net()
  local h = ty.sym.FullyConnected{ data = ty.sym.Variable("data"), num_hidden = WIDE, name = "fc1" }
  h = ty.sym.BatchNorm{ h, name = "bn" }
  h = ty.sym.FullyConnected{ data = h, num_hidden = 3, name = "fc2" }
  return ty.sym.SoftmaxOutput{ data = h, name = "softmax" }
end

local function silent()
  local log = {}
  function log.info() end
  log.warning, log.debug, log.error = log.info, log.info, log.info
  return log
end

local SHAPES = { data_shapes = { { "data", { 4, WIDE } } },
  label_shapes = { { "softmax_label", { 4 } } } }

local function bound(contexts)
  local m = ty.mod.Module{ symbol = net(), context = contexts, logger = silent() }
  m:bind(SHAPES)
  return m
end

local function batch()
  ty.random.seed(2)
  return ty.io.DataBatch{ data = { ty.nd.random.normal{ shape = { 4, WIDE } } },
    label = { ty.nd.array{ 0, 1, 2, 0 } } }
end

local function step(m)
  m:forward_backward(batch())
  m:update()
end

local function ready(contexts)
  local m = bound(contexts)
  ty.random.seed(1)
  m:init_params{ initializer = ty.init.Uniform(0.1) }
  m:init_optimizer{ optimizer_params = { learning_rate = 0.1, momentum = 0.9 } }
  return m
end

-- Returns by how much f makes live native memory grow.
local function growth(f)
  collectgarbage()
  collectgarbage()
  ty.waitall()
  local before = ty.live().bytes
  local result = f()                                     -- luacheck: ignore
  collectgarbage()
  collectgarbage()
  ty.waitall()
  return ty.live().bytes - before
end

local function own(m, name, device)
  local group = m._exec_group
  for k, other in ipairs(group.param_names) do
    if other == name then
      return group.param_arrays[k][device or 1]
    end
  end
end

local function distance(x, y)
  return (x - y:as_in_context(x.context)):abs():max():asscalar()
end

describe("a module's values", function()
  local SOME = WIDE * WIDE * 4 / 2                       -- half of what fc1_weight takes

  it("are copied for get_params only, and once", function()
    local m, prefix = bound(), os.tmpname()
    assert.is_true(growth(function() m:init_params() end) < SOME)
    m:init_optimizer{ optimizer_params = { learning_rate = 0.1 } }
    step(m)
    assert.is_true(growth(function() step(m) end) < SOME)
    assert.is_true(growth(function()
      m:save_checkpoint(prefix, 1)
      m:save_params(prefix)
      m:save_state(prefix)
      m:set_params((ty.model.load_params(prefix, 1)), {}, { allow_missing = true })
    end) < SOME)
    local copied = growth(function() return m:get_params() end)
    assert.is_true(copied >= m:memory().params and copied < m:memory().params + SOME)
    assert.is_true(growth(function() return m:get_params() end) < SOME)
    for _, ending in ipairs{ "", "-symbol.json", "-0001.params" } do
      os.remove(prefix .. ending)
    end
  end)

  it("are not copied by fit without callbacks, nor by binding anew", function()
    local m, b = bound(), batch()
    local function fit()
      m:fit{ train_data = ty.io.NDArrayIter{ data = b.data[1], label = b.label[1], batch_size = 4 },
        num_epoch = 2 }
    end
    fit()
    assert.is_true(growth(fit) < SOME)
    local before = m:predict(b.data[1])
    assert.is_true(growth(function()
      m:bind{ data_shapes = SHAPES.data_shapes, label_shapes = SHAPES.label_shapes,
        force_rebind = true }
    end) < SOME)
    assert.are.same(before:totable(), m:predict(b.data[1]):totable())
  end)

  it("are trained values in copies, which nothing else uses and every call brings up to date",
    function()
      local m = ready()
      step(m)
      local args, auxs = m:get_params()
      assert.are.equal(0, distance(args.fc1_weight, own(m, "fc1_weight")))
      assert.is_false(args.fc1_weight:same_memory(own(m, "fc1_weight")))
      local weight, kept, before = args.fc1_weight, args.fc1_weight:copy(),
        m:predict(batch().data[1]):totable()
      weight[":"] = 0
      assert.are.same(before, m:predict(batch().data[1]):totable())
      step(m)
      local again, auxs_again = m:get_params()
      assert.is_true(again == args and auxs_again == auxs and again.fc1_weight == weight)
      assert.are.equal(0, distance(weight, own(m, "fc1_weight")))
      assert.is_true(distance(weight, kept) > 0)
    end)

  it("are copies that a scope leaves", function()
    local m = ready()
    ty.scope(function() m:get_params().fc1_bias:sum():asscalar() end)
    assert.are.equal(0, m:get_params().fc1_bias:sum():asscalar())
  end)

  it("do not have what running forward alone does to auxiliary states", function()
    local m = ready()
    m:forward(batch(), true)
    local _, auxs = m:get_params()
    assert.are.equal(0, auxs.bn_moving_mean:abs():max():asscalar())
    step(m)
    m:get_params()
    assert.is_true(auxs.bn_moving_mean:abs():max():asscalar() > 0)
  end)

  it("are drawn alike wherever the devices are, and go to all of them", function()
    local expected = ready():get_params()
    for _, contexts in ipairs{ { ty.cpu(1) }, { ty.cpu(0), ty.cpu(1) },
        { ty.cpu(1), ty.cpu(0) } } do
      local m = ready(contexts)
      for name, x in pairs(expected) do
        for device = 1, #contexts do
          assert.are.equal(0, distance(x, own(m, name, device)))
        end
        assert.are.equal(0, distance(x, m:get_params()[name]))
      end
    end
  end)

  it("are the devices' mean after an update, and set on all of them", function()
    local m = ready{ ty.cpu(0), ty.cpu(1) }
    step(m)
    own(m, "fc1_bias", 1)[":"] = 1
    own(m, "fc1_bias", 2)[":"] = 4
    assert.are.equal(2.5, m:get_params().fc1_bias:max():asscalar())
    own(m, "fc2_bias", 2)[":"] = 7                       -- no update: the copies stay
    assert.is_true(m:get_params().fc2_bias:max():asscalar() < 7)
    m:set_params(m:get_params())
    for device = 1, 2 do
      assert.are.equal(2.5, own(m, "fc1_bias", device):max():asscalar())
      assert.are.equal(0, distance(m:get_params().fc2_bias, own(m, "fc2_bias", device)))
    end
  end)

  it("are those of the file until the module is bound, in its types", function()
    local m, prefix = ready(), os.tmpname()
    local args, auxs = m:get_params()
    local half = {}
    for name, x in pairs(args) do
      half[name] = x:astype("float16")
    end
    ty.model.save_checkpoint(prefix, 1, m.symbol, half, auxs)
    local n = ty.mod.Module.load(prefix, 1)
    n:get_params().fc1_bias[":"] = 3
    n:bind(SHAPES)
    assert.are.equal(3, own(n, "fc1_bias"):max():asscalar())
    assert.are.equal("float32", own(n, "fc1_weight").dtype)
    n = ty.mod.Module.load(prefix, 1)
    n:bind(SHAPES)
    assert.are.equal("float16", n:get_params().fc1_weight.dtype)
    for _, ending in ipairs{ "", "-symbol.json", "-0001.params" } do
      os.remove(prefix .. ending)
    end
  end)
end)

describe("the values of buckets", function()
  local function sym_gen(key)
    local h = ty.sym.FullyConnected{ data = ty.sym.Variable("data"), num_hidden = WIDE,
      flatten = false, no_bias = true, name = "wide" .. (key > 20 and 2 or 1) }
    h = ty.sym.FullyConnected{ data = ty.sym.sum{ h, axis = 1 }, num_hidden = 1,
      no_bias = true, name = "last" }
    return ty.sym.MakeLoss{ h, name = "loss" }, { "data" }, nil
  end

  local function shapes(key)
    return { { "data", { 2, key, WIDE } } }
  end

  local function of_key(key)
    return ty.io.DataBatch{ data = { ty.nd.ones{ 2, key, WIDE } / WIDE }, bucket_key = key,
      provide_data = shapes(key) }
  end

  local function buckets(contexts)
    local m = ty.mod.BucketingModule{ sym_gen = sym_gen, default_bucket_key = 5,
      context = contexts, logger = silent() }
    m:bind{ data_shapes = shapes(5) }
    m:init_params{ initializer = ty.init.Constant(0.1) }
    m:init_optimizer{ optimizer_params = { learning_rate = 0.01, wd = 0 } }
    return m
  end

  local function train(m, keys)
    for _, key in ipairs(keys) do
      m:forward_backward(of_key(key))
      m:update()
    end
    return m
  end

  it("are copied for get_params only", function()
    local m, keys = buckets(), { 5, 30, 10 }
    train(m, keys)
    assert.is_true(growth(function() train(m, keys) end) < WIDE * WIDE * 2)
    local copied = growth(function() return m:get_params() end)
    assert.is_true(copied >= m:memory().params and copied < m:memory().params + WIDE * WIDE * 2)
  end)

  it("stay when a later bucket brings parameters, also where a store updates", function()
    local one = train(buckets(), { 5, 5, 30 }):get_params()
    local two = train(buckets{ ty.cpu(0), ty.cpu(1) }, { 5, 5, 30 }):get_params()
    for name, x in pairs(one) do
      assert.is_true(distance(x, two[name]) < 1e-6, name)
    end
  end)

  it("stay when all buckets are bound anew", function()
    local m = train(buckets(), { 5, 30 })
    local before = {}
    for name, x in pairs(train(buckets(), { 5, 30 }):get_params()) do
      before[name] = x
    end
    m:bind{ data_shapes = shapes(5), force_rebind = true }
    m:forward(of_key(30), false)
    for name, x in pairs((m:get_params())) do
      assert.are.equal(0, distance(before[name], x))
    end
    assert.are.equal(0, distance(before.wide2_weight, own(m._curr_module, "wide2_weight")))
  end)
end)
