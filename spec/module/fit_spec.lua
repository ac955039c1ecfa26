-- Further features of fit: clipped and accumulated gradients, early stopping, a memory budget,
-- resuming from checkpoints, errors while writing them.

local ty = require "tycho"

local ROWS = 24

local function network()
  local h = ty.sym.FullyConnected{ data = ty.sym.Variable("data"), num_hidden = 6, name = "fc1" }
  h = ty.sym.FullyConnected{ data = ty.sym.Activation{ data = h, act_type = "tanh" },
    num_hidden = 3, name = "fc2" }
  return ty.sym.SoftmaxOutput{ data = h, name = "softmax" }
end

local function quiet()
  local log = { infos = {} }
  function log:info(text) self.infos[#self.infos + 1] = text end
  log.debug, log.warning, log.error = log.info, log.info, log.info
  return log
end

local function iterator(batch_size, scale)
  ty.random.seed(2)
  local x = ty.nd.random.normal{ shape = { ROWS, 4 } }
  return ty.io.NDArrayIter{ data = x * (scale or 1),
    label = x:slice_axis{ axis = 1, begin = 0, end_ = 3 }:argmax{ axis = 1 },
    batch_size = batch_size }
end

local KINDS = {
  Module = function(options)
    return ty.mod.Module{ symbol = network(), logger = quiet(), context = options.context }
  end,
  BucketingModule = function(options)
    return ty.mod.BucketingModule{ sym_gen = function()
      return network(), { "data" }, { "softmax_label" }
    end, default_bucket_key = 1, logger = quiet(), context = options.context }
  end,
  SequentialModule = function(options)
    local low = ty.sym.FullyConnected{ data = ty.sym.Variable("data"),
      num_hidden = 6, name = "fc1" }
    local high = ty.sym.Activation{ data = ty.sym.Variable("data"), act_type = "tanh" }
    high = ty.sym.SoftmaxOutput{
      data = ty.sym.FullyConnected{ data = high, num_hidden = 3, name = "fc2" }, name = "softmax" }
    local chain = ty.mod.SequentialModule{ logger = quiet() }
    chain:add(ty.mod.Module{ symbol = low, label_names = {}, logger = quiet(),
      context = options.context })
    return chain:add(ty.mod.Module{ symbol = high, logger = quiet(), context = options.context },
      { take_labels = true, auto_wiring = true })
  end,
}

local function copies(params)
  local list = {}
  for name, x in pairs(params) do
    list[name] = x:copy()
  end
  return list
end

-- Trains a new module with plain SGD. Gives its parameters before and after, and the module.
local function train(kind, it_, fit, options)
  local m = KINDS[kind](options or {})
  ty.random.seed(7)
  fit.train_data, fit.num_epoch, fit.initializer = it_, fit.num_epoch or 1, ty.init.Xavier()
  fit.optimizer_params = fit.optimizer_params or { learning_rate = 1 }
  local first
  m:bind{ data_shapes = it_.provide_data, label_shapes = it_.provide_label,
    grad_req = (fit.accumulate or 1) > 1 and "add" or "write" }
  m:init_params{ initializer = fit.initializer }
  first = copies((m:get_params()))
  m:fit(fit)
  return first, copies((m:get_params())), m
end

-- Returns the length of the step from one set of parameters to another.
local function step_length(a, b)
  local sum = 0
  for name, x in pairs(a) do
    sum = sum + (x - b[name]):norm():asscalar() ^ 2
  end
  return math.sqrt(sum)
end

local function assert_close(want, got, tolerance)
  for name, x in pairs(want) do
    assert.near(x:totable(), got[name], tolerance)
  end
end

describe("fit", function()
  describe("with clip_global_norm", function()
    for kind in pairs(KINDS) do
      it("makes a step of that length where the gradient is longer: " .. kind, function()
        local first, free = train(kind, iterator(ROWS, 1000), {})
        assert.is_true(step_length(first, free) > 1)
        local start, last = train(kind, iterator(ROWS, 1000), { clip_global_norm = 0.25 })
        assert.near(0.25, step_length(start, last), 1e-5)
      end)

      it("changes nothing where it is shorter: " .. kind, function()
        local _, free = train(kind, iterator(8), {})
        local _, limited = train(kind, iterator(8), { clip_global_norm = 1000 })
        assert_close(free, limited, 0)
      end)
    end

    for _, kvstore in ipairs{ "local", "device" } do
      it("takes the gradient of all devices together: " .. kvstore, function()
        local _, one = train("Module", iterator(ROWS, 1000), { clip_global_norm = 0.25 })
        local _, two = train("Module", iterator(ROWS, 1000),
          { clip_global_norm = 0.25, kvstore = kvstore }, { context = { ty.cpu(0), ty.cpu(1) } })
        assert_close(one, two, 1e-5)
      end)
    end

    for kind in pairs(KINDS) do
      it("is a method for loops of one's own, too: " .. kind, function()
        local it_ = iterator(ROWS, 1000)
        local start, _, m = train(kind, it_, { optimizer_params = { learning_rate = 0 } })
        m:init_optimizer{ optimizer_params = { learning_rate = 1 }, force_init = true }
        it_:reset()
        m:forward_backward(it_:next())
        local before = m:clip_global_norm(0.25):asscalar()
        assert.is_true(before > 1)
        m:update()
        assert.near(0.25, step_length(start, copies((m:get_params()))), 1e-5)
        assert.raises("value", m.clip_global_norm, m, 0)
      end)
    end

    it("wants a number above 0", function()
      local e = assert.raises("value", train, "Module", iterator(8), { clip_global_norm = 0 })
      assert.are.equal("clip_global_norm", e.argument)
    end)
  end)

  describe("with accumulate", function()
    for _, kind in ipairs{ "Module", "BucketingModule" } do
      it("learns from several batches what it learns from one large one: " .. kind, function()
        local _, large = train(kind, iterator(12), { num_epoch = 2 })
        local _, small = train(kind, iterator(4), { num_epoch = 2, accumulate = 3 })
        assert_close(large, small, 1e-5)
      end)
    end

    it("ends an epoch with the mean of what is left", function()
      local _, rest = train("Module", iterator(8), { accumulate = 2 })
      local m = KINDS.Module{}
      local it_ = iterator(8)
      ty.random.seed(7)
      m:bind{ data_shapes = it_.provide_data, label_shapes = it_.provide_label }
      m:init_params{ initializer = ty.init.Xavier() }
      m:init_optimizer{ optimizer_params = { learning_rate = 1 } }
      local whole = iterator(ROWS):next()
      for _, range in ipairs{ { 0, 16 }, { 16, 24 } } do
        local n = range[2] - range[1]
        m._optimizer.rescale_grad = 1 / n
        m:forward_backward{
          data = { whole.data[1]:slice_axis{ axis = 0, begin = range[1], end_ = range[2] } },
          label = { whole.label[1]:slice_axis{ axis = 0, begin = range[1], end_ = range[2] } } }
        m:update()
      end
      assert_close(m:get_params(), rest, 1e-5)
    end)

    it("limits the gathered gradient", function()
      local first, last =
        train("Module", iterator(8, 1000), { accumulate = 3, clip_global_norm = 0.25 })
      assert.near(0.25, step_length(first, last), 1e-5)
    end)

    it("binds for it, and refuses what is bound otherwise", function()
      local m = KINDS.Module{}
      m:fit{ train_data = iterator(8), num_epoch = 1, accumulate = 3 }
      local n = KINDS.Module{}
      n:fit{ train_data = iterator(8), num_epoch = 1 }
      local e = assert.raises("state", n.fit, n,
        { train_data = iterator(8), num_epoch = 1, accumulate = 3 })
      assert.are.equal("accumulate", e.argument)
      n:fit{ train_data = iterator(8), num_epoch = 1, accumulate = 3, force_rebind = true }
      local chain = KINDS.SequentialModule{}
      e = assert.raises("unsupported", chain.fit, chain,
        { train_data = iterator(8), num_epoch = 1, accumulate = 3 })
      assert.are.equal("accumulate", e.argument)
      assert.raises("value", m.fit, m, { train_data = iterator(8), num_epoch = 1, accumulate = 0 })
    end)
  end)

  describe("that meets NaN", function()
    local function stage(x, name)
      return ty.sym.FullyConnected{ data = x, num_hidden = 3, name = name }
    end

    -- Returns a network with a logarithm of what becomes negative in the second batch.
    local function net()
      local h = ty.sym.log{ stage(ty.sym.Variable("data"), "fc1"), name = "logs" }
      return ty.sym.SoftmaxOutput{ data = stage(h, "fc2"), name = "softmax" }
    end

    local function data()
      local x = ty.nd.ones{ 12, 4 }
      x[{ ty.slice(4, 8) }] = -1
      return ty.io.NDArrayIter{ data = x, label = ty.nd.zeros(12), batch_size = 4 }
    end

    local function warnings(m)
      m:fit{ train_data = data(), num_epoch = 2, initializer = ty.init.One(),
        optimizer_params = { learning_rate = 0 } }
      local list = {}
      for _, text in ipairs(m.logger.infos) do
        list[#list + 1] = text:find("NaN", 1, true) and text or nil
      end
      return list
    end

    it("says so once, with the batch and the node", function()
      for _, contexts in ipairs{ { ty.cpu(0) }, { ty.cpu(0), ty.cpu(1) } } do
        local list = warnings(ty.mod.Module{ symbol = net(), logger = quiet(),
          context = contexts })
        assert.are.equal(1, #list)
        assert.truthy(list[1]:find("Epoch[0] Batch[1] the outputs have NaN, which begins at 'logs'",
          1, true), list[1])
      end
    end)

    it("says so of buckets and of chains, too", function()
      local buckets = ty.mod.BucketingModule{ sym_gen = function()
        return net(), { "data" }, { "softmax_label" }
      end, default_bucket_key = 1, logger = quiet() }
      assert.truthy(warnings(buckets)[1]:find("begins at 'logs'", 1, true))
      local chain = ty.mod.SequentialModule{ logger = quiet() }
      local low = ty.sym.log{ stage(ty.sym.Variable("data"), "fc1"), name = "logs" }
      chain:add(ty.mod.Module{ symbol = low, label_names = {}, logger = quiet() })
      chain:add(ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{
        data = stage(ty.sym.Variable("data"), "fc2"), name = "softmax" }, logger = quiet() },
        { take_labels = true, auto_wiring = true })
      assert.truthy(warnings(chain)[1]:find("begins at 'logs'", 1, true))
    end)
  end)

  it("rejects what is no iterator, and classes where objects belong", function()
    local m, rows = KINDS.Module{}, iterator(8)
    for argument, options in pairs{ train_data = { train_data = { ty.nd.ones(2) }, num_epoch = 1 },
        eval_data = { train_data = rows, eval_data = ty.nd.ones(2), num_epoch = 1 } } do
      assert.equal(argument, assert.raises("value", m.fit, m, options).argument)
    end
    local silent = ty.io.DataIter(8)
    assert.truthy(tostring(assert.raises("value", m.fit, m, silent, { num_epoch = 1 }))
      :find("provide_data", 1, true))
    for name, class in pairs{ optimizer = ty.optimizer.SGD, initializer = ty.init.Xavier,
        eval_metric = ty.metric.Accuracy } do
      m = KINDS.Module{}
      local options = { train_data = rows, num_epoch = 1, [name] = class }
      local e = assert.raises("type", m.fit, m, options)
      assert.truthy(e.message:find("call it", 1, true), e.message)
    end
    m = KINDS.Module{}
    m:fit{ train_data = iterator(8), num_epoch = 1 }
    assert.equal("eval_data", assert.raises("value", m.score, m, ty.nd.ones(2), "acc").argument)
  end)

  it("says where options of the optimizer go", function()
    for kind, make in pairs(KINDS) do
      for key, name in pairs{ learning_rate = "learning_rate", lr = "learning_rate", wd = "wd",
          momentum = "momentum", weight_decay = "wd", beta1 = "beta1", epsilon = "epsilon",
          lr_scheduler = "lr_scheduler", clip_gradient = "clip_gradient",
          centered = "centered" } do
        local m = make{}
        local e = assert.raises("name", m.fit, m,
          { train_data = iterator(8), num_epoch = 1, [key] = 0.1 })
        local want = ("optimizer_params = {%s = "):format(name)
        assert.truthy(e.message:find(want, 1, true), kind .. e.message)
        m:bind{ data_shapes = iterator(8).provide_data, label_shapes = iterator(8).provide_label }
        m:init_params()
        e = assert.raises("name", m.init_optimizer, m, { [key] = 0.1 })
        assert.truthy(e.message:find(want, 1, true), e.message)
      end
    end
  end)

  describe("a second time", function()
    for kind, make in pairs(KINDS) do
      it(("goes on and warns only of what has no effect: %s"):format(kind), function()
        local m, rows = make{}, iterator(8)
        m:fit{ train_data = rows, num_epoch = 1 }
        local warnings = {}
        m.logger.warning = function(_, text) warnings[#warnings + 1] = text end
        m:fit{ train_data = rows, begin_epoch = 1, num_epoch = 2 }
        assert.same({}, warnings)
        for _, optimizer in ipairs{ "sgd", "SGD" } do
          m:fit{ train_data = rows, begin_epoch = 1, num_epoch = 2, optimizer = optimizer }
        end
        assert.same({}, warnings)
        m:fit{ train_data = rows, begin_epoch = 2, num_epoch = 3, initializer = ty.init.One(),
          optimizer = "adam" }
        assert.equal(2, #warnings)
        assert.truthy(warnings[1]:find("init_params", 1, true), warnings[1])
        assert.truthy(warnings[2]:find("init_optimizer", 1, true), warnings[2])
        assert.truthy(warnings[2]:find("SGD, not Adam", 1, true), warnings[2])
      end)

      it(("says nothing where it asks for the same: %s"):format(kind), function()
        local warnings, m, rows = {}, make{}, iterator(8)
        m.logger.warning = function(_, text) warnings[#warnings + 1] = text end
        local function fit(options)
          options = options or {}
          m:fit{ train_data = rows, num_epoch = 1, optimizer = options.optimizer or "adam",
            optimizer_params = { learning_rate = options.learning_rate or 0.1, wd = 0.01 },
            initializer = options.initializer or ty.init.Xavier{ magnitude = 2 },
            kvstore = "local" }
        end
        for _ = 1, 3 do
          fit()
        end
        assert.same({}, warnings)
        fit{ learning_rate = 0.5 }
        assert.equal(1, #warnings)
        assert.truthy(warnings[1]:find("learning_rate = 0.1, not 0.5", 1, true), warnings[1])
        fit{ initializer = ty.init.Xavier{ magnitude = 3 } }
        assert.equal(2, #warnings)
        fit()
        assert.equal(2, #warnings)
      end)
    end
  end)

  describe("that resumes", function()
    local level = ty.log.level
    setup(function() ty.log.level = "error" end)
    teardown(function() ty.log.level = level end)

    local function resumed(prefix, options, epochs)
      local m, it_ = KINDS.Module{}, iterator(8)
      m:fit{ train_data = it_, num_epoch = epochs, optimizer = options.optimizer or "sgd",
        optimizer_params = options, checkpoint = { prefix = prefix, resume = true } }
      return table.concat(m.logger.infos, "\n")
    end

    local function schedule(step)
      return ty.lr_scheduler.FactorScheduler{ step = step, factor = 0.5, base_lr = 0.2 }
    end

    it("says from where, or that it begins afresh", function()
      local prefix = os.tmpname()
      local first = resumed(prefix, { learning_rate = 0.1 }, 1)
      assert.truthy(first:find(prefix .. ".state' to resume from: the training begins", 1, true),
        first)
      local second = resumed(prefix, { learning_rate = 0.1 }, 2)
      assert.truthy(second:find(("Epoch[1] resumed from '%s.state'"):format(prefix), 1, true),
        second)
      assert.falsy(second:find("not the one that was given", 1, true), second)
      for _, ending in ipairs{ "", ".state" } do
        os.remove(prefix .. ending)
      end
    end)

    it("divides gradients by the rows of its own batches", function()
      local prefix = os.tmpname()
      for epochs, rows in ipairs{ 8, 4 } do
        local m = KINDS.Module{}
        m:fit{ train_data = iterator(rows), num_epoch = epochs,
          checkpoint = { prefix = prefix, resume = true } }
        assert.equal(1 / rows, m._optimizer.rescale_grad)
        local log = table.concat(m.logger.infos, "\n")
        assert.falsy(log:find("rescale_grad", 1, true), log)
      end
      local m = KINDS.Module{}
      m:fit{ train_data = iterator(4), num_epoch = 3, optimizer_params = { rescale_grad = 0.1 },
        checkpoint = { prefix = prefix, resume = true } }
      local log = table.concat(m.logger.infos, "\n")
      assert.truthy(log:find("rescale_grad = 0.25, not 0.1", 1, true), log)
      for _, ending in ipairs{ "", ".state" } do
        os.remove(prefix .. ending)
      end
    end)

    it("says which settings of the saved optimizer it keeps", function()
      local prefix = os.tmpname()
      resumed(prefix, { lr_scheduler = schedule(2), momentum = 0.9 }, 1)
      local same = resumed(prefix, { lr_scheduler = schedule(2), momentum = 0.9 }, 2)
      assert.falsy(same:find("not the one that was given", 1, true), same)
      local other = resumed(prefix, { lr_scheduler = schedule(5), momentum = 0.5 }, 3)
      assert.truthy(other:find("momentum = 0.9, not 0.5", 1, true), other)
      assert.truthy(other:find("step = 2,.* not FactorScheduler{.*step = 5"), other)
      local rate = resumed(prefix, { learning_rate = 0.3, momentum = 0.9 }, 4)
      assert.truthy(rate:find("learning_rate = none, not 0.3", 1, true), rate)
      for _, ending in ipairs{ "", ".state" } do
        os.remove(prefix .. ending)
      end
    end)
  end)

  describe("that cannot write its checkpoint", function()
    local NOWHERE = "/nowhere/at/all"

    local function fit(on_error, callback)
      local log = quiet()
      local mod = ty.mod.Module{ symbol = network(), logger = log }
      local data = iterator(8)
      local ok, e = pcall(mod.fit, mod, { train_data = data, num_epoch = 2,
        epoch_end_callback = callback,
        checkpoint = not callback and { prefix = NOWHERE, on_error = on_error } or nil })
      return ok, e, table.concat(log.infos, "\n")
    end

    it("stops, unless it is to warn and go on", function()
      local ok, e = fit()
      assert.is_false(ok)
      assert.equal("io", e.code)
      local log
      ok, e, log = fit("warn")
      assert.is_true(ok, tostring(e))
      assert.equal(2, select(2, log:gsub("a checkpoint could not be written", "")))
      assert.truthy(log:find(NOWHERE, 1, true))
      assert.truthy(log:find("Epoch[1]", 1, true))
    end)

    it("does so with callbacks, too", function()
      local level = ty.log.level
      ty.log.level = "error"
      assert.is_false((fit(nil, ty.callback.do_checkpoint(NOWHERE))))
      assert.is_true((fit(nil, ty.callback.do_checkpoint(NOWHERE, { on_error = "warn" }))))
      ty.log.level = level
    end)

    it("goes on over no other error", function()
      local ok, e = fit(nil, ty.callback.module_checkpoint({ save_checkpoint = function()
        error("of another kind")
      end }, NOWHERE, { on_error = "warn" }))
      assert.is_false(ok)
      assert.truthy(tostring(e):find("of another kind", 1, true))
      assert.raises("value", ty.callback.do_checkpoint, NOWHERE, { on_error = "ignore" })
    end)
  end)

  describe("with early_stopping", function()
    -- Returns a metric with one value of a list per epoch; a call of `score` resets it once.
    local function scripted(list, name)
      local metric, n = ty.metric.np(function() return 0 end, { name = name or "accuracy" }), -1
      function metric.get() return metric.name, list[n + 1] end
      function metric.reset() n = n + 1 end
      n = -1
      return metric
    end

    -- Fits with the validation giving `list`; the parameters after each epoch and the module.
    local function stop(list, early, more)
      local m, seen = KINDS.Module{}, {}
      local fit = { train_data = iterator(8), eval_data = iterator(8),
        validation_metric = scripted(list), num_epoch = 9, early_stopping = early,
        initializer = ty.init.Xavier(), optimizer_params = { learning_rate = 0.5 },
        epoch_end_callback = function(epoch, _, params) seen[epoch] = copies(params) end }
      for key, v in pairs(more or {}) do
        fit[key] = v
      end
      ty.random.seed(7)
      m:fit(fit)
      return m, seen, fit
    end

    it("ends when nothing has become better, with the best parameters", function()
      local m, seen = stop({ 0.5, 0.7, 0.6, 0.65, 0.9 }, { patience = 2 })
      assert.is_true(seen[3] ~= nil and seen[4] == nil)
      assert_close(seen[1], m:get_params(), 0)
      assert.truthy(m.logger.infos[#m.logger.infos]:find("epoch 1", 1, true))
    end)

    it("has the best parameters at the last epoch, too", function()
      local m, seen = stop({ 0.5, 0.7, 0.6 }, { patience = 5 }, { num_epoch = 3 })
      assert_close(seen[1], m:get_params(), 0)
    end)

    it("takes no figure that is no number for the best", function()
      local m, seen = stop({ 0 / 0, 0.5, 0 / 0, 0.4 }, { patience = 2 })
      assert.is_nil(seen[4])
      assert_close(seen[1], m:get_params(), 0)
    end)

    it("knows whether less is better, asks where it cannot, and wants more than min_delta",
      function()
        local m, seen =
          stop(nil, { patience = 1 }, { validation_metric = scripted({ 3, 2, 2.5 }, "perplexity") })
        assert_close(seen[1], m:get_params(), 0)
        m, seen = stop(nil, { patience = 1, larger = true },
          { validation_metric = scripted({ 3, 2, 2.5 }, "mine") })
        assert_close(seen[0], m:get_params(), 0)
        m, seen = stop({ 0.5, 0.505, 0.6 }, { patience = 1, min_delta = 0.01 })
        assert_close(seen[0], m:get_params(), 0)
        local e = assert.raises("value", stop, nil, { patience = 1 },
          { validation_metric = scripted({ 3 }, "mine") })
        assert.are.equal("larger", e.argument)
        e = assert.raises("name", stop, { 0.5 }, { metric = "f1" })
        assert.are.equal("f1", e.argument)
      end)

    it("keeps the best in a file, and goes on from a checkpoint", function()
      local prefix = os.tmpname()
      local list = { 0.5, 0.7, 0.6, 0.65, 0.9 }
      local whole, seen = stop(list, { patience = 2 })
      stop(list, { patience = 2 }, { checkpoint = { prefix = prefix }, num_epoch = 3 })
      local params = ty.nd.load(prefix .. "-best.params")
      assert.near(seen[1].fc1_weight:totable(), params["arg:fc1_weight"], 0)
      local m, rest =
        stop({ 0.65, 0.9 }, { patience = 2 }, { checkpoint = { prefix = prefix, resume = true } })
      assert.is_true(rest[2] == nil and rest[3] ~= nil and rest[4] == nil)
      assert_close(whole:get_params(), m:get_params(), 0)
      m, rest = stop({}, { patience = 2 }, { checkpoint = { prefix = prefix, resume = true } })
      assert.is_nil(next(rest))
      assert_close(whole:get_params(), m:get_params(), 0)
      for _, ending in ipairs{ "", ".state", "-best.params" } do
        os.remove(prefix .. ending)
      end
    end)

    it("needs something to judge by", function()
      local m = KINDS.Module{}
      local e = assert.raises("value", m.fit, m,
        { train_data = iterator(8), num_epoch = 1, early_stopping = { patience = 1 } })
      assert.are.equal("eval_data", e.argument)
    end)
  end)

  it("with a memory_budget learns the same in less", function()
    local function deep()
      local h = ty.sym.Variable("data")
      for i = 1, 12 do
        h = ty.sym.Activation{ data = ty.sym
          .FullyConnected{ data = h, num_hidden = 64, name = "fc" .. i }, act_type = "tanh" }
      end
      return ty.sym.SoftmaxOutput{
        data = ty.sym.FullyConnected{ data = h, num_hidden = 3, name = "last" }, name = "softmax" }
    end
    local function fit(budget)
      local m = ty.mod.Module{ symbol = deep(), logger = quiet() }
      ty.random.seed(7)
      m:fit{ train_data = iterator(ROWS), num_epoch = 2, initializer = ty.init.Xavier(),
        memory_budget = budget }
      return m
    end
    local free = fit()
    local budget = math.floor(0.75 * free:memory().planned)
    local small = fit(budget)
    assert.is_true(small:memory().planned <= budget)
    assert_close(free:get_params(), small:get_params(), 0)
  end)
end)
