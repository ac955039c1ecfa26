-- Files of optimizer states: whose they are, which parameters they belong to, how many updates they
-- have seen.

local container = require "tycho.ndarray.serialize"
local folder = require "spec.support.folder"
local quiet = require "spec.support.quiet"
local ty = require "tycho"

local function net(width)
  local h = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = width or 4, name = "a" }
  h = ty.sym.FullyConnected{ h, num_hidden = 4, name = "b" }
  return ty.sym.SoftmaxOutput{ h, name = "softmax" }
end

local function batch(i)
  ty.random.seed(100 + i)
  return { data = { ty.nd.random.normal{ shape = { 4, 4 } } },
    label = { ty.nd.array{ 0, 1, 2, 3 } } }
end

local function step(m, from, to)
  for i = from, to do
    m:forward_backward(batch(i))
    m:update()
  end
end

-- Returns a module. options: contexts, kvstore, store (a function that makes one), in_backward,
-- params (to begin with), net.
local function module(optimizer, settings, options)
  options = options or {}
  local m = ty.mod.Module{ symbol = options.net or net(), logger = quiet(),
    context = options.contexts }
  m:bind{ data_shapes = { { "data", { 4, 4 } } }, label_shapes = { { "softmax_label", { 4 } } } }
  ty.random.seed(5)
  m:init_params{ initializer = ty.init.Normal(0.3), arg_params = options.params }
  m:init_optimizer{ optimizer = optimizer, optimizer_params = settings,
    kvstore = options.store and options.store() or options.kvstore,
    in_backward = options.in_backward }
  return m
end

local function text(m)
  local parts, params = {}, m:get_params()
  for _, name in ipairs{ "a_bias", "a_weight", "b_bias", "b_weight" } do
    parts[#parts + 1] = params[name]:tostring_raw()
  end
  return table.concat(parts)
end

local function copies(m)
  local list = {}
  for name, x in pairs((m:get_params())) do
    list[name] = x:copy()
  end
  return list
end

local RULES = {
  { "sgd", {} }, { "sgd", { momentum = 0.9 } }, { "nag", { momentum = 0.9 } },
  { "signum", {} }, { "dcasgd", {} }, { "lbsgd", { batch_scale = 2, momentum = 0.9 } },
  { "lars", { momentum = 0.9 } }, { "lamb", {} }, { "adam", {} }, { "adamax", {} }, { "nadam", {} },
  { "adagrad", {} }, { "rmsprop", {} }, { "rmsprop", { centered = true } }, { "adadelta", {} },
  { "ftrl", {} }, { "ftml", {} },
}

local BOTH = { ty.cpu(0), ty.cpu(1) }

-- Returns a store that adds, and leaves the updates to each device.
local function adder()
  local kv = ty.kv.create("local")
  kv.is_capable = function() return false end
  return kv
end

local WAYS = {
  ["one device"] = {},
  ["two devices, one updater for both"] = { contexts = BOTH },
  ["two devices, each with its states"] = { contexts = BOTH, store = adder },
  ["two devices, sums on them"] = { contexts = BOTH, kvstore = "device" },
}

local function with_rate(settings)
  local all = { learning_rate = 0.1 }
  for key, v in pairs(settings) do
    all[key] = v
  end
  return all
end

-- Compares a training in two parts, through a file, with one in one part, with a schedule.
local function compare_halves(path, rule, first, second)
  local function settings()
    local all = with_rate(rule[2])
    all.lr_scheduler = ty.lr_scheduler.FactorScheduler{ step = 2, factor = 0.5 }
    return all
  end
  local whole = module(rule[1], settings(), first)
  step(whole, 1, 7)
  local half = module(rule[1], settings(), first)
  step(half, 1, 4)
  half:save_optimizer_states(path)
  local options = { params = copies(half) }
  for key, v in pairs(second or first) do
    options[key] = v
  end
  local rest = module(rule[1], settings(), options)
  rest:load_optimizer_states(path)
  step(rest, 5, 7)
  return whole, rest
end

describe("optimizer states in a file", function()
  local level = ty.log.level
  setup(function() ty.log.level = "error" end)
  teardown(function() ty.log.level = level end)

  for name, options in pairs(WAYS) do
    it("go on bit by bit, with counts and rates: " .. name, function()
      folder.with(function(path)
        for _, rule in ipairs(RULES) do
          -- these two have numbers that each device's update changes: devices differ
          local differs = rule[1] == "lars" or rule[1] == "nadam"
          rule = differs and options.store and RULES[1] or rule
          local whole, rest = compare_halves(path .. "/s", rule, options)
          assert.is_true(text(whole) == text(rest), rule[1])
          assert.are.equal(whole._optimizer.learning_rate, rest._optimizer.learning_rate)
          assert.are.equal(7, rest._optimizer.num_update)
        end
      end)
    end)
  end

  it("go on bit by bit where backward makes the steps", function()
    folder.with(function(path)
      for _, rule in ipairs{ RULES[1], RULES[2], RULES[3], RULES[4], { "adam", {} },
          { "rmsprop", {} }, { "ftrl", {} } } do
        for _, ways in ipairs{ { true, true }, { true, false }, { false, true } } do
          local whole, rest = compare_halves(path .. "/s", rule,
            { in_backward = ways[1], kvstore = ty.null },
            { in_backward = ways[2], kvstore = ty.null })
          assert.is_true(text(whole) == text(rest), rule[1])
        end
      end
    end)
  end)

  it("go on with another number of devices, and other ways of updating", function()
    folder.with(function(path)
      for _, rule in ipairs{ { "adam", {} }, { "sgd", { momentum = 0.9 } },
          { "lbsgd", { batch_scale = 3 } } } do            -- with a sum of gradients in the file
        for _, first in pairs(WAYS) do
          for _, second in pairs(WAYS) do
            local whole, rest = compare_halves(path .. "/s", rule, first, second)
            for name, x in pairs((whole:get_params())) do
              assert.near(x, rest:get_params()[name], 1e-5)
            end
          end
        end
      end
    end)
  end)

  it("are refused by any other optimizer, with the names of both", function()
    folder.with(function(path)
      for _, a in ipairs(RULES) do
        local m = module(a[1], with_rate(a[2]))
        step(m, 1, 1)
        m:save_optimizer_states(path .. "/s")
        for _, b in ipairs(RULES) do
          local other = module(b[1], with_rate(b[2]))
          if a == b then
            other:load_optimizer_states(path .. "/s")
          else
            local e = assert.raises("state", other.load_optimizer_states, other, path .. "/s")
            assert.truthy(e.message:find(m._optimizer.class_name, 1, true), e.message)
            assert.truthy(e.message:find("the optimizer is " .. other._optimizer.class_name, 1,
              true), e.message)
          end
          step(other, 1, 1)
        end
      end
    end)
  end)

  it("are refused, and nothing changes", function()
    folder.with(function(path)
      local adam = module("adam")
      step(adam, 1, 1)
      adam:save_optimizer_states(path .. "/s")
      for _, options in pairs(WAYS) do
        local a, b = module("sgd", { momentum = 0.9 }, options),
          module("sgd", { momentum = 0.9 }, options)
        step(a, 1, 2)
        step(b, 1, 2)
        assert.raises("state", a.load_optimizer_states, a, path .. "/s")
        step(a, 3, 4)
        step(b, 3, 4)
        assert.is_true(text(a) == text(b))
      end
    end)
  end)

  it("may have another momentum, if there is one", function()
    folder.with(function(path)
      local m = module("sgd", { momentum = 0.9 })
      step(m, 1, 1)
      m:save_optimizer_states(path .. "/s")
      module("sgd", { momentum = 0.5 }):load_optimizer_states(path .. "/s")
      local plain = module("sgd", { momentum = 0 })
      local e = assert.raises("state", plain.load_optimizer_states, plain, path .. "/s")
      assert.truthy(e.message:find("SGD{momentum = 0.9}", 1, true)
        and e.message:find("SGD{momentum = 0}", 1, true), e.message)
    end)
  end)

  it("with master copies are refused without, for float16 weights", function()
    local function half(multi_precision)
      local h = ty.sym.FullyConnected{ ty.sym.Variable("data", { dtype = "float16" }),
        num_hidden = 4, name = "a" }
      local m = ty.mod.Module{ symbol = ty.sym.MakeLoss{ ty.sym.sum{ h } }, label_names = {},
        logger = quiet() }
      m:bind{ data_shapes = { ty.io.DataDesc("data", { 4, 4 }, "float16") } }
      m:init_params()
      m:init_optimizer{ optimizer = "adam", optimizer_params = {
        multi_precision = multi_precision } }
      return m
    end
    folder.with(function(path)
      for _, first in ipairs{ true, false } do
        local m, other = half(first), half(not first)
        m:forward_backward{ data = { ty.nd.ones{ 4, 4 } } }
        m:update()
        m:save_optimizer_states(path .. "/s")
        local e = assert.raises("state", other.load_optimizer_states, other, path .. "/s")
        assert.truthy(e.message:find(("Adam{multi_precision = %s}"):format(first), 1, true),
          e.message)
        half(first):load_optimizer_states(path .. "/s")
      end
    end)
  end)

  it("of other parameters are refused", function()
    folder.with(function(path)
      local m = module("adam")
      step(m, 1, 1)
      m:save_optimizer_states(path .. "/s")
      local wide = module("adam", nil, { net = net(5) })
      local e = assert.raises("state", wide.load_optimizer_states, wide, path .. "/s")
      assert.truthy(e.argument:find("^a_") and e.message:find("Adam", 1, true), e.message)

      local h = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 4, name = "a" }
      local small = module("adam", nil,
        { net = ty.sym.SoftmaxOutput{ h, name = "softmax" } })
      e = assert.raises("state", small.load_optimizer_states, small, path .. "/s")
      assert.are.same({ {}, { "b_bias", "b_weight" } }, { e.missing, e.extra })
      step(small, 1, 1)
      small:save_optimizer_states(path .. "/t")
      e = assert.raises("state", m.load_optimizer_states, m, path .. "/t")
      assert.are.same({ { "b_bias", "b_weight" }, {} }, { e.missing, e.extra })
    end)
  end)

  it("are found by name, whatever the order of the parameters", function()
    local function pair(first, second)
      local x = ty.sym.Variable("data")
      local h = ty.sym.Variable(first, { shape = { 1, 4 } })
      h = ty.sym.broadcast_mul(x, h)
      h = ty.sym.broadcast_mul(h, ty.sym.Variable(second, { shape = { 1, 4 } }))
      return ty.sym.SoftmaxOutput{ h, name = "softmax" }
    end
    folder.with(function(path)
      local options = { net = pair("u_weight", "v_weight") }
      local whole, half = module("adam", nil, options), module("adam", nil, options)
      step(whole, 1, 3)
      step(half, 1, 2)
      half:save_optimizer_states(path .. "/s")
      local rest = module("adam", nil, { net = pair("v_weight", "u_weight"),
        params = copies(half) })
      rest:load_optimizer_states(path .. "/s")
      step(rest, 3, 3)
      for name, x in pairs((whole:get_params())) do
        assert.near(x, rest:get_params()[name], 1e-6)
      end
    end)
  end)

  it("without a word about the optimizer are compared with the weights", function()
    local function old(states)
      return container.encode{ kind = "updater", states = states }
    end
    local function adam_states(count, shape)
      local states = {}
      for i = 0, count - 1 do
        states[i] = { ty.nd.ones(shape or { 4, 4 }), ty.nd.ones(shape or { 4, 4 }) }
        if i % 2 == 1 and not shape then
          states[i] = { ty.nd.ones{ 4 }, ty.nd.ones{ 4 } }
        end
      end
      return states
    end
    folder.with(function(path)
      local function load(m, states)
        folder.write(path .. "/old", old(states))
        return m:load_optimizer_states(path .. "/old")
      end
      for _, options in ipairs{ {}, { in_backward = true, kvstore = ty.null } } do
        local m = module("adam", nil, options)
        load(m, adam_states(4))
        step(m, 1, 1)
        load(m, {})
        assert.raises("state", load, m, adam_states(3))
        assert.raises("state", load, m, adam_states(5))
        assert.raises("state", load, m, adam_states(4, { 3, 3 }))
        assert.raises("state", load, m, { a_weight = adam_states(1)[0] })
        for _, wrong in ipairs{ ty.null, ty.nd.ones{ 4, 4 }, "text", 3, true } do
          local states = adam_states(4)
          states[0] = wrong
          local e = assert.raises("state", load, m, states)
          assert.are.equal("a_weight", e.argument)
        end
        step(m, 2, 2)
      end
      local store = module("adam", nil, { contexts = BOTH })
      assert.raises("state", load, store, adam_states(4))
    end)
  end)

  it("of other versions, and damaged ones, are refused", function()
    folder.with(function(path)
      local m = module("adam")
      step(m, 1, 1)
      local _, names = m:_state_targets()
      local function load(change)
        local saved = container.decode(m._updater:_get_states(false, names), "spec")
        change(saved.about, saved)
        folder.write(path .. "/s", container.encode(saved))
        return m:load_optimizer_states(path .. "/s")
      end
      load(function() end)
      for _, change in ipairs{
        function(about) about.version = 2 end, function(about) about.version = "1" end,
        function(about) about.optimizer = 5 end, function(about) about.names = "x" end,
        function(about) about.names[0] = 7 end, function(about) about.counts = { 3 } end,
        function(about) about.counts = { [0] = { [0] = "x" } } end,
        function(about) about.num_update = "x" end, function(about) about.options = 1 end,
        function(about) about.own = false end, function(_, saved) saved.about = "x" end,
        function(_, saved) saved.optimizer = { 1 } end, function(_, saved) saved.states = 1 end,
      } do
        assert.are.equal(path .. "/s", assert.raises("format", load, change).argument)
      end
      step(m, 2, 2)
    end)
  end)

  it("are asked for with a checkpoint, of the same optimizer", function()
    folder.with(function(path)
      local m = module("adam")
      step(m, 1, 3)
      m:save_checkpoint(path .. "/m", 1, { save_optimizer_states = true })
      step(m, 4, 4)
      local function load(optimizer)
        local n = ty.mod.Module.load(path .. "/m", 1, { load_optimizer_states = true })
        n:bind{ data_shapes = { { "data", { 4, 4 } } },
          label_shapes = { { "softmax_label", { 4 } } } }
        return n, n.init_optimizer, n, { optimizer = optimizer }
      end
      local n, init, _, options = load("sgd")
      local e = assert.raises("state", init, n, options)
      assert.truthy(e.message:find("Adam", 1, true) and e.message:find("SGD", 1, true), e.message)
      assert.is_false(n.optimizer_initialized)
      n:init_optimizer{ optimizer = "adam" }
      step(n, 4, 4)
      assert.is_true(text(m) == text(n))
    end)
  end)

  it("of an older training put a schedule back", function()
    folder.with(function(path)
      local schedule = ty.lr_scheduler.FactorScheduler{ step = 1, factor = 0.5 }
      local m = module("sgd", { learning_rate = 1, lr_scheduler = schedule })
      step(m, 1, 4)
      local rate = m._optimizer.learning_rate
      m:save_optimizer_states(path .. "/s")
      step(m, 5, 8)
      assert.is_true(m._optimizer.learning_rate < rate)
      m:load_optimizer_states(path .. "/s")
      assert.are.equal(rate, m._optimizer.learning_rate)
    end)
  end)
end)

describe("optimizer states of buckets", function()
  local function gen(key)
    local h = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 4, name = "a" }
    if key > 1 then
      h = ty.sym.FullyConnected{ h, num_hidden = 4, name = "b" }
    end
    return ty.sym.SoftmaxOutput{ h, name = "softmax" }, { "data" }, { "softmax_label" }
  end

  local function buckets(optimizer, options, params, settings)
    local m = ty.mod.BucketingModule{ sym_gen = gen, default_bucket_key = 1, logger = quiet(),
      context = options.contexts }
    m:bind{ data_shapes = { { "data", { 4, 4 } } }, label_shapes = { { "softmax_label", { 4 } } } }
    ty.random.seed(5)
    m:init_params{ initializer = ty.init.Normal(0.3), arg_params = params }
    m:init_optimizer{ optimizer = optimizer, optimizer_params = settings,
      kvstore = options.store and options.store() or options.kvstore }
    return m
  end

  local function run(m, key, i)
    local b = ty.io.DataBatch(batch(i))
    b.bucket_key, b.provide_data, b.provide_label = key, { { "data", { 4, 4 } } },
      { { "softmax_label", { 4 } } }
    m:forward_backward(b)
    m:update()
  end

  for name, options in pairs(WAYS) do
    it("wait for buckets that come later: " .. name, function()
      folder.with(function(path)
        for _, rule in ipairs{ { "lbsgd", { learning_rate = 0.1, batch_scale = 3 } },
            { "adam" } } do
          local whole = buckets(rule[1], options, nil, rule[2])
          local half = buckets(rule[1], options, nil, rule[2])
          for i = 1, 3 do
            run(whole, i % 2 + 1, i)
            run(half, i % 2 + 1, i)
          end
          half:save_optimizer_states(path .. "/s")
          local rest = buckets(rule[1], options, copies(half), rule[2])
          rest:load_optimizer_states(path .. "/s")
          rest:save_optimizer_states(path .. "/t")
          rest:load_optimizer_states(path .. "/t")       -- those that wait are saved, too
          for i = 4, 6 do
            run(whole, i % 2 + 1, i)
            run(rest, i % 2 + 1, i)
          end
          assert.is_true(text(whole) == text(rest), rule[1])
        end
        local other = buckets("sgd", options)
        assert.raises("state", other.load_optimizer_states, other, path .. "/s")
      end)
    end)
  end
end)

describe("a training that is resumed", function()
  it("with another optimizer is refused, and nothing changes", function()
    folder.with(function(path)
      for _, options in pairs(WAYS) do
        local m = module("adam", nil, options)
        step(m, 1, 2)
        m:save_state(path .. "/m.state")
        for _, rule in ipairs{ { "sgd", { momentum = 0.9 } }, { "adagrad" } } do
          local other = module(rule[1], rule[2], options)
          local before = text(other)
          local e = assert.raises("state", other.load_state, other, path .. "/m.state")
          assert.truthy(e.message:find("Adam", 1, true)
            and e.message:find(other._optimizer.class_name, 1, true), e.message)
          assert.is_true(before == text(other))
          step(other, 1, 1)
        end
      end
    end)
  end)

  it("by fit with another optimizer is refused", function()
    folder.with(function(path)
      local function fit(optimizer)
        local it_ = ty.io.NDArrayIter{ data = batch(1).data[1], label = batch(1).label[1],
          batch_size = 4 }
        ty.mod.Module{ symbol = net(), logger = quiet() }:fit{ train_data = it_, num_epoch = 2,
          optimizer = optimizer, checkpoint = { prefix = path .. "/m", resume = true } }
      end
      fit("adam")
      fit("adam")
      assert.raises("state", fit, "sgd")
    end)
  end)

  it("goes on with another number of devices", function()
    folder.with(function(path)
      for _, first in pairs(WAYS) do
        for _, second in pairs(WAYS) do
          local whole, half = module("adam", nil, first), module("adam", nil, first)
          step(whole, 1, 4)
          step(half, 1, 2)
          half:save_state(path .. "/m.state")
          local rest = module("adam", nil, second)
          rest:load_state(path .. "/m.state")
          step(rest, 3, 4)
          for name, x in pairs((whole:get_params())) do
            assert.near(x, rest:get_params()[name], 1e-5)
          end
        end
      end
    end)
  end)
end)

describe("optimizer states of a store", function()
  local comm = require "tycho.kvstore.comm"
  local dist = require "tycho.kvstore.dist"

  local function store(kind, optimizer, keys)
    local kv = kind == "dist" and dist.DistStore("dist_sync", comm.group(1)[1])
      or ty.kv.create(kind)
    for _, key in ipairs(keys or { "w" }) do
      kv:init(key, ty.nd.ones{ 2 })
    end
    kv:set_optimizer(optimizer)
    return kv
  end

  it("are refused by a store with another optimizer or other keys", function()
    folder.with(function(path)
      for _, kind in ipairs{ "local", "device", "dist" } do
        local a = store(kind, ty.optimizer.Adam())
        a:push("w", ty.nd.ones{ 2 })
        a:save_optimizer_states(path .. "/s")
        local same = store(kind, ty.optimizer.Adam())
        same:load_optimizer_states(path .. "/s")
        assert.are.equal(1, same._updater.optimizer.num_update)
        local other = store(kind, ty.optimizer.SGD{ momentum = 0.9 })
        local e = assert.raises("state", other.load_optimizer_states, other, path .. "/s")
        assert.truthy(e.message:find("Adam", 1, true) and e.message:find("SGD", 1, true))
        other:push("w", ty.nd.ones{ 2 })
        a:save_optimizer_states(path .. "/s", { dump_optimizer = true })
        assert.raises("state", other.load_optimizer_states, other, path .. "/s")
        local keys = store(kind, ty.optimizer.Adam(), { "v" })
        assert.are.same({ "w" },
          assert.raises("state", keys.load_optimizer_states, keys, path .. "/s").extra)
      end
    end)
  end)
end)

describe("an updater", function()
  local function used(optimizer)
    local u, w = ty.optimizer.Updater(optimizer), ty.nd.ones{ 2, 3 }
    u(0, ty.nd.ones{ 2, 3 }, w)
    return u, w
  end

  it("refuses states of another optimizer", function()
    local adam = used(ty.optimizer.Adam())
    for _, o in ipairs{ ty.optimizer.SGD{ momentum = 0.9 }, ty.optimizer.Adamax() } do
      local u = used(o)
      assert.raises("state", u.set_states, u, adam:get_states())
    end
    local Own = ty.optimizer.Optimizer:extend("Own")
    function Own.update() end
    local e = assert.raises("state", adam.set_states, adam, used(Own()):get_states())
    assert.truthy(e.message:find("Own", 1, true))
  end)

  it("takes a whole optimizer with its states, and counts where it was", function()
    local adam = used(ty.optimizer.Adam())
    local u = ty.optimizer.Updater(ty.optimizer.SGD())
    u:set_states(adam:get_states(true))
    assert.are.equal("Adam", u.optimizer.class_name)
    assert.are.equal(1, u.optimizer.num_update)
    u:set_states(used(ty.optimizer.Adam()):get_states())
    assert.are.equal(1, u.optimizer:_count_of(0))
  end)

  it("refuses older states when their weights come", function()
    local bytes = container.encode{ kind = "updater", states = { [0] = { ty.nd.ones{ 2, 3 },
      ty.nd.ones{ 2, 3 } } } }
    local level = ty.log.level
    ty.log.level = "error"
    for _, case in ipairs{ { ty.optimizer.SGD{ momentum = 0.9 }, { 2, 3 } },
        { ty.optimizer.Adam(), { 3, 2 } } } do
      local u = ty.optimizer.Updater(case[1])
      u:set_states(bytes)
      local e = assert.raises("state", u, 0, ty.nd.ones(case[2]), ty.nd.ones(case[2]))
      assert.truthy(e.message:find(case[1].class_name, 1, true), e.message)
    end
    ty.log.level = level
  end)
end)
