-- Modules whose optimizer makes its steps inside backward, against the same
-- modules with arrays for gradients.
local ty = require "tycho"

local V, nd, sym = ty.sym.Variable, ty.nd, ty.sym

-- Returns a network with normalisation, a weight that is read twice and one with a rate of its own.
local function network()
  local w, h = V{"twice_weight", lr_mult = 0.5}, V("data")
  h = sym.BatchNorm{sym.FullyConnected{data = h, num_hidden = 8, name = "fc"},
    fix_gamma = false, name = "bn"}
  h = sym.FullyConnected{data = sym.tanh(h), weight = w, num_hidden = 8,
    no_bias = true, name = "one"}
  h = sym.FullyConnected{data = sym.tanh(h), weight = w, num_hidden = 8,
    no_bias = true, name = "two"}
  return sym.SoftmaxOutput{sym.FullyConnected{data = h, num_hidden = 3, name = "last"},
    name = "softmax"}
end

local function rows(n)
  ty.random.seed(3)
  local x = nd.random.uniform{low = -1, high = 1, shape = {n, 5}}
  return {data = {x}, label = {nd.array(nd.arange{0, n}:totable()) % 3}}
end

local function batches()
  local list = {}
  for i, n in ipairs{6, 6, 4, 6, 4} do
    list[i] = ty.io.DataBatch(rows(n))
  end
  return list
end

local function bound(options)
  local m = ty.mod.Module{symbol = network(), fixed_param_names = options.fixed}
  m:bind{data_shapes = {{"data", {6, 5}}}, label_shapes = {{"softmax_label", {6}}},
    inputs_need_grad = options.inputs_need_grad, grad_req = options.grad_req}
  ty.random.seed(7)
  m:init_params{initializer = ty.init.Uniform(0.5)}
  return m
end

local function with_optimizer(m, options, in_backward)
  local given = {wd = 0.01, lr_scheduler = options.lr_scheduler ~= false
    and ty.lr_scheduler.FactorScheduler{step = 2, factor = 0.5} or nil}
  for key, v in pairs(options[2] or {learning_rate = 0.1, momentum = 0.9}) do
    given[key] = v
  end
  m:init_optimizer{optimizer = options[1] or "sgd", optimizer_params = given,
    in_backward = in_backward}
  return m
end

local function train(m, list)
  for _, batch in ipairs(list or batches()) do
    m:forward_backward(batch)
    m:update()
  end
  return m
end

local function trained(options, in_backward)
  return train(with_optimizer(bound(options), options, in_backward))
end

local function distance(a, b)
  return (a - b):abs():max():asscalar()
end

local function equal(a, b)
  for i, want in ipairs{a:get_params()} do
    local got = ({b:get_params()})[i]
    for name, x in pairs(want) do
      assert.equal(0, distance(x, got[name]), name)
    end
    for name in pairs(got) do
      assert.truthy(want[name], name .. " is too much")
    end
  end
end

local RULES = {
  {"sgd", {learning_rate = 0.2}},
  {"sgd", {learning_rate = 0.2, momentum = 0.9, clip_gradient = 0.05}},
  {"nag", {learning_rate = 0.1, momentum = 0.9}}, {"signum", {learning_rate = 0.01, wd_lh = 0.1}},
  {"adam", {learning_rate = 0.01}}, {"rmsprop", {learning_rate = 0.01, centered = true}},
  {"ftrl", {learning_rate = 0.1}, lr_scheduler = false},
}

describe("a module with updates inside backward", function()
  local level = ty.log.level
  setup(function() ty.log.level = "error" end)
  teardown(function() ty.log.level = level end)

  it("has the parameters of one with arrays for gradients, bit by bit, \z
    for every rule and smaller batches", function()
    for _, rule in ipairs(RULES) do
      local a, b = trained(rule, false), trained(rule, true)
      equal(a, b)
      assert.are_not.equal(0, a:memory().grads)
      assert.equal(0, b:memory().grads)
      assert.equal(a:memory().params, b:memory().params)
    end
  end)

  it("leaves fixed parameters and those without a request, and gives the data's gradient",
    function()
      for _, options in ipairs{{fixed = {"fc_weight"}, inputs_need_grad = true},
          {grad_req = {fc_weight = "null"}}} do
        local a, b, before = trained(options, false), trained(options, true), bound(options)
        equal(a, b)
        assert.equal(0, distance(before:get_params().fc_weight, b:get_params().fc_weight))
        if options.inputs_need_grad then
          assert.equal(0, distance(a:get_input_grads()[1], b:get_input_grads()[1]))
        end
      end
      local fixed = bound{fixed = ty.mod.Module{symbol = network()}._param_names}
      train(with_optimizer(fixed, {}, true))
      assert.equal(0, distance(bound{}:get_params().fc_weight, fixed:get_params().fc_weight))
    end)

  it("takes head gradients, and a monitor", function()
    local results = {}
    for k = 1, 2 do
      local m =
        ty.mod.Module{symbol = sym.FullyConnected{data = V("data"), num_hidden = 3, name = "fc"},
          label_names = ty.null}
      m:bind{data_shapes = {{"data", {4, 5}}}}
      ty.random.seed(7)
      m:init_params{initializer = ty.init.Uniform(0.5)}
      local monitor, seen = ty.mon.Monitor{1}, 0
      m:install_monitor(monitor)
      with_optimizer(m, {}, k == 2)
      for _ = 1, 3 do
        monitor:tic()
        m:forward({data = rows(4).data}, true)
        m:backward{nd.ones{4, 3} * 0.5}
        m:update()
        seen = seen + #monitor:toc()
      end
      assert.is_true(seen > 0)
      results[k] = m
    end
    equal(results[1], results[2])
  end)

  it("keeps its parameters, states and way of updating when it is bound again", function()
    local results = {}
    for k = 1, 2 do
      local m = trained({}, k == 2)
      m:bind{data_shapes = {{"data", {4, 5}}}, label_shapes = {{"softmax_label", {4}}},
        force_rebind = true}
      train(m, {ty.io.DataBatch(rows(4))})
      m:reshape{data_shapes = {{"data", {3, 5}}}, label_shapes = {{"softmax_label", {3}}}}
      results[k] = train(m, {ty.io.DataBatch(rows(3))})
    end
    equal(results[1], results[2])
    assert.equal(0, results[2]:memory().grads)
  end)

  it("reads and writes the states of an updater", function()
    for _, rule in ipairs{{}, {"adam", {learning_rate = 0.01}}} do
      local path, results = os.tmpname(), {}
      for k = 1, 4 do
        local saves, loads = k > 2, k % 2 == 0
        local first = trained(rule, saves)
        first:save_optimizer_states(path)
        local second = with_optimizer(bound{}, rule, loads)
        second:set_params(first:get_params())
        if k > 2 then
          train(second, {batches()[1]})                  -- states that are there are overwritten
          second:set_params(first:get_params())
          second._optimizer:set_wd_mult{}
        end
        second:load_optimizer_states(path)
        results[k] = train(second, {batches()[2]})
        second:save_optimizer_states(path)
        local third = with_optimizer(bound{}, rule, not loads)
        third:set_params(second:get_params())
        third:load_optimizer_states(path)
      end
      if rule[1] ~= "adam" then          -- whose step goes by the count, which states do not have
        equal(results[1], results[2])
        equal(results[3], results[4])
      end
      os.remove(path)
    end
  end)

  it("goes on from a whole state bit by bit, into a module of the other kind too", function()
    local path = os.tmpname()
    local list = batches()
    for _, rule in ipairs{{}, {"adam", {learning_rate = 0.01}}} do
      for k = 0, 3 do
        local whole = train(trained(rule, k % 2 == 1), list)
        trained(rule, k % 2 == 1):save_state{path = path}
        local m = with_optimizer(bound{}, rule, k > 1)
        train(m, {list[2]})
        m:load_state{path = path}
        equal(whole, train(m, list))
      end
    end
    os.remove(path)
  end)

  it("refuses states that do not fit", function()
    local path = os.tmpname()
    local without = {"sgd", {learning_rate = 0.1}}
    trained(without, false):save_optimizer_states(path)
    local m = trained({}, true)
    local e = assert.raises("state", m.load_optimizer_states, m, path)
    assert.truthy(e.message:find("SGD{momentum = 0}", 1, true), e.message)
    train(m)
    os.remove(path)
  end)

  it("goes back to arrays for gradients, and on to another optimizer", function()
    local results = {}
    for k = 1, 2 do
      local m = trained({}, k == 2)
      for _, in_backward in ipairs{true, false} do
        m:init_optimizer{optimizer = "adam", optimizer_params = {learning_rate = 0.01},
          force_init = true, in_backward = k == 2 and in_backward}
        train(m)
      end
      assert.is_true(m:memory().grads > 0)
      results[k] = m
    end
    equal(results[1], results[2])
  end)

  it("lends its optimizer", function()
    local results = {}
    for k = 1, 2 do
      local m = trained({}, k == 2)
      local shared = ty.mod.Module{symbol = network()}
      shared:bind{data_shapes = {{"data", {2, 5}}}, label_shapes = {{"softmax_label", {2}}},
        shared_module = m}
      train(shared, {ty.io.DataBatch(rows(2))})
      local own = bound{}
      own:set_params(m:get_params())
      own:borrow_optimizer(m)
      train(own, {batches()[1]})
      results[k] = {train(m), own}
    end
    equal(results[1][1], results[2][1])
    equal(results[1][2], results[2][2])
    assert.equal(0, results[2][2]:memory().grads)
  end)

  it("leaves the gradients of a module whose memory it shares", function()
    local results = {}
    for k = 1, 2 do
      local m = trained({}, false)
      local shared = ty.mod.Module{symbol = network()}
      shared:bind{data_shapes = {{"data", {6, 5}}}, label_shapes = {{"softmax_label", {6}}},
        shared_module = m}
      m:init_optimizer{optimizer_params = {learning_rate = 0.1},
        force_init = true, in_backward = k == 2}
      train(m)
      train(shared)                                      -- with a smaller batch, which is bound now
      assert.is_true(m:memory().grads > 0)
      results[k] = train(m)
    end
    equal(results[1], results[2])
  end)

  it("counts the steps of each parameter as an updater does", function()
    local results, net = {}, sym.SoftmaxOutput{
      sym.FullyConnected{data = V("data"), num_hidden = 3, name = "last"}, name = "softmax"}
    for k = 1, 4 do
      local m = trained(k < 3 and {"adam", {learning_rate = 0.01}} or {}, k % 2 == 0)
      local head = ty.mod.Module{symbol = net}
      head:bind{data_shapes = {{"data", {6, 8}}}, label_shapes = {{"softmax_label", {6}}},
        shared_module = m}
      head:forward_backward(ty.io.DataBatch{data = {nd.ones{6, 8}}, label = {nd.ones{6}}})
      head:update()
      results[k] = train(m)
    end
    equal(results[1], results[2])
    equal(results[3], results[4])
  end)

  it("writes the symbol that it was given", function()
    local prefix = os.tmpname()
    local a = trained({}, true)
    a:save_checkpoint{prefix = prefix, epoch = 1, save_optimizer_states = true}
    assert.is_nil(ty.sym.load(prefix .. "-symbol.json"):tojson():find("_fused", 1, true))
    local b = ty.mod.Module.load{prefix = prefix, epoch = 1, load_optimizer_states = true}
    b:bind{data_shapes = {{"data", {6, 5}}}, label_shapes = {{"softmax_label", {6}}}}
    b:init_optimizer{optimizer_params = {learning_rate = 0.1, momentum = 0.9}, in_backward = true}
    equal(a, b)
    train(b)
    for _, ending in ipairs{"", "-symbol.json", "-0001.params", "-0001.states"} do
      os.remove(prefix .. ending)
    end
  end)

  it("is made by fit", function()
    local x = rows(20)
    local results = {}
    for k = 1, 2 do
      local m = ty.mod.Module{symbol = network()}
      ty.random.seed(9)
      m:fit{train_data = ty.io.NDArrayIter{x.data[1], x.label[1], batch_size = 6}, num_epoch = 3,
        initializer = ty.init.Uniform(0.5),
        optimizer_params = {learning_rate = 0.1, momentum = 0.9}, in_backward = k == 2}
      results[k] = m
    end
    equal(results[1], results[2])
    assert.equal(0, results[2]:memory().grads)
    for _, options in ipairs{{clip_global_norm = 1}, {accumulate = 2}} do
      options.train_data, options.num_epoch, options.in_backward =
        ty.io.NDArrayIter{x.data[1], x.label[1], batch_size = 6}, 1, true
      local m = ty.mod.Module{symbol = network()}
      assert.raises("unsupported", m.fit, m, options)
    end
    local e = assert.raises("state", results[2].fit, results[2],
      {train_data = ty.io.NDArrayIter{x.data[1], x.label[1], batch_size = 6},
        num_epoch = 1, clip_global_norm = 1})
    assert.truthy(tostring(e):find("in_backward", 1, true))
  end)

  it("says what it cannot do, and is as it was", function()
    local m = bound{}
    local before = m:memory().grads
    assert.raises("unsupported", m.init_optimizer, m, {optimizer = "lamb", in_backward = true})
    assert.raises("unsupported", m.init_optimizer, m,
      {optimizer_params = {multi_precision = true}, in_backward = true})
    local e = assert.raises("unsupported", m.init_optimizer, m,
      {kvstore = ty.kv.create("local"), in_backward = true})
    assert.equal("kvstore", e.argument)
    assert.is_false(m.optimizer_initialized)
    assert.equal(before, m:memory().grads)
    train(with_optimizer(m, {}, false))
    local two = ty.mod.Module{symbol = network(), context = {ty.cpu(0), ty.cpu(1)}}
    two:bind{data_shapes = {{"data", {6, 5}}}, label_shapes = {{"softmax_label", {6}}}}
    two:init_params()
    e = assert.raises("unsupported", two.init_optimizer, two,
      {kvstore = ty.null, in_backward = true})
    assert.equal("in_backward", e.argument)
    local adding = bound{grad_req = "add"}
    adding:init_optimizer()
    e = assert.raises("unsupported", adding.init_optimizer, adding,
      {in_backward = true, force_init = true})
    assert.equal("fc_weight", e.argument)
    train(adding)
    assert.is_true(distance(bound{}:get_params().fc_weight, adding:get_params().fc_weight) > 0)
    two:init_optimizer{kvstore = ty.null}
    e = assert.raises("unsupported", two.borrow_optimizer, two, trained({}, true))
    assert.equal("in_backward", e.argument)
    train(two, {batches()[1]})
    local chain = ty.mod.SequentialModule()
    chain:add(ty.mod.Module{symbol = network()}, {take_labels = true})
    chain:bind{data_shapes = {{"data", {6, 5}}}, label_shapes = {{"softmax_label", {6}}}}
    chain:init_params()
    assert.is_false((pcall(chain.init_optimizer, chain, {in_backward = true})))
  end)
end)

-- Buckets, of which some have a parameter of their own --------------------------------------------

local function sym_gen(key)
  local h = sym.FullyConnected{data = V("data"),
    weight = V{"wide" .. (key > 20 and 2 or 1) .. "_weight", lr_mult = key > 20 and 0.5 or 2},
    num_hidden = 8, flatten = false, no_bias = true, name = "wide"}
  h = sym.FullyConnected{data = sym.tanh(sym.sum{h, axis = 1}), num_hidden = 3, name = "last"}
  return sym.SoftmaxOutput{h, name = "softmax"}, {"data"}, {"softmax_label"}
end

local function bucket_batch(key)
  ty.random.seed(key)
  local x, label = {{"data", {2, key, 3}}}, {{"softmax_label", {2}}}
  return ty.io.DataBatch{data = {nd.random.uniform{low = -0.2, high = 0.2, shape = {2, key, 3}}},
    label = {nd.array{0, 2}}, bucket_key = key, provide_data = x, provide_label = label}
end

local function buckets(order, in_backward)
  local m = ty.mod.BucketingModule{sym_gen = sym_gen, default_bucket_key = order[1]}
  m:bind{data_shapes = {{"data", {2, order[1], 3}}}, label_shapes = {{"softmax_label", {2}}}}
  ty.random.seed(4)
  m:init_params{initializer = ty.init.Uniform(0.3)}
  m:prepare(bucket_batch(order[2]))
  m:init_optimizer{optimizer_params = {learning_rate = 0.1, momentum = 0.9, wd = 0.01},
    in_backward = in_backward}
  return m
end

local function run(m, order)
  for _, key in ipairs(order) do
    m:forward(bucket_batch(key), true)
    m:backward()
    m:update()
  end
  return m
end

describe("buckets with updates inside backward", function()
  local ORDER = {10, 12, 30, 5, 40, 10, 30}
  local level = ty.log.level
  setup(function() ty.log.level = "error" end)
  teardown(function() ty.log.level = level end)

  it("have the parameters of those with arrays for gradients, in one pool", function()
    for _, order in ipairs{ORDER, {40, 30, 5, 10, 30, 12, 40}} do
      local a, b = run(buckets(order, false), order), run(buckets(order, true), order)
      equal(a, b)
      local memory = b:memory()
      assert.equal(0, memory.grads)
      assert.is_true(memory.pool <= 1.02 * memory.largest, memory.pool .. " of " .. memory.largest)
    end
  end)

  it("go on from a saved state", function()
    local path = os.tmpname()
    for k = 0, 3 do
      local first = run(buckets(ORDER, k % 2 == 1), ORDER)
      first:save_state{path = path}
      local second = buckets(ORDER, k > 1)
      run(second, {10, 30})
      second:load_state{path = path}
      equal(run(first, ORDER), run(second, ORDER))
    end
    os.remove(path)
  end)

  it("can be freed and bound again", function()
    local a, b = run(buckets(ORDER, false), ORDER), run(buckets(ORDER, true), ORDER)
    for _, m in ipairs{a, b} do
      m:bind{data_shapes = {{"data", {2, 7, 3}}}, label_shapes = {{"softmax_label", {2}}},
        bucket_key = 7, force_rebind = true}
      run(m, {7, 30, 10})
    end
    equal(a, b)
    assert.equal(0, b:memory().grads)
    b:free()
  end)
end)
