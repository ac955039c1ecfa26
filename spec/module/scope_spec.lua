-- ty.scope frees what its function made, but nothing that objects of the engine keep: each case
-- makes or changes an object inside a scope and uses it afterwards.

local device = require "spec.support.device"
local folder = require "spec.support.folder"
local images = require "spec.support.images"
local ty = require "tycho"

local BOTH = { ty.cpu(0), ty.cpu(1) }

local function quiet()
  local log = {}
  function log.info() end
  log.warning, log.debug, log.error = log.info, log.info, log.info
  return log
end

local function net()
  local h = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 3, name = "f" }
  return ty.sym.SoftmaxOutput{ ty.sym.BatchNorm{ h, name = "bn" }, name = "softmax" }
end

local function batch(rows)
  rows = rows or 4
  return { data = { ty.nd.ones{ rows, 4 } }, label = { ty.nd.zeros{ rows } } }
end

local function iterator(rows)
  return ty.io.NDArrayIter{ data = ty.nd.ones{ rows or 8, 4 }, label = ty.nd.zeros{ rows or 8 },
    batch_size = 4 }
end

local SHAPES = { data_shapes = { { "data", { 4, 4 } } },
  label_shapes = { { "softmax_label", { 4 } } } }

-- Returns a module. options: contexts, optimizer, kvstore, in_backward, compression.
local function module(options)
  options = options or {}
  local m = ty.mod.Module{ symbol = net(), logger = quiet(), context = options.contexts,
    compression_params = options.compression }
  m:bind(SHAPES)
  m:init_params()
  m:init_optimizer{ optimizer = options.optimizer or "adam", kvstore = options.kvstore,
    in_backward = options.in_backward }
  return m
end

local function step(m, rows)
  m:forward_backward(batch(rows))
  m:update()
  return m:get_outputs()[1]:totable()
end

-- Calls f inside a scope with many arrays, inside another one, and outside.
local function over_scopes(f)
  for _ = 1, 2 do
    ty.scope(function()
      local _ = ty.nd.ones{ 2 } + 1
      f()
    end)
  end
  f()
end

describe("after a scope", function()
  setup(device.leave)                                    -- pictures are made on the CPU
  teardown(device.come_back)
  local level = ty.log.level
  setup(function() ty.log.level = "error" end)
  teardown(function() ty.log.level = level end)

  it("the arrays that it made are freed, but for those on which keep was called", function()
    local freed, kept
    local result = ty.scope(function()
      freed, kept = ty.nd.ones{ 2 }, ty.nd.full({ 2 }, 3):keep()
      return { list = { freed + 1 } }
    end)
    assert.raises("state", freed.totable, freed)
    assert.are.same({ 3, 3 }, kept:totable())
    assert.are.same({ 2, 2 }, result.list[1]:totable())
  end)

  for _, name in ipairs{ "sgd", "nag", "signum", "sgld", "dcasgd", "lbsgd", "lars", "lamb", "adam",
      "adamax", "nadam", "adagrad", "rmsprop", "adadelta", "ftrl", "ftml" } do
    it("the states of an optimizer stay: " .. name, function()
      local options = name:find("sg") and name ~= "sgld" and name ~= "dcasgd"
        and { momentum = 0.9 } or {}
      options.batch_scale = name == "lbsgd" and 3 or nil
      local update, w = ty.optimizer.Updater(ty.optimizer.create(name, options)), ty.nd.ones{ 3, 2 }
      over_scopes(function() update(0, ty.nd.ones{ 3, 2 }, w) end)
      local bytes = update:get_states()
      ty.scope(function() update:set_states(bytes) end)
      update(0, ty.nd.ones{ 3, 2 }, w)
      w:totable()
    end)
  end

  it("what an optimizer of one's own keeps stays", function()
    local Own = ty.optimizer.Optimizer:extend("Own")
    function Own.create_state(_, _, weight)
      return { weight * 0, weight * 1 }
    end
    function Own:update(_, weight, grad, state)
      self.last = grad * 2
      state[1]:add_(self.last)
      weight:sub_(state[1])
    end
    local o = Own()
    local update, w = ty.optimizer.Updater(o), ty.nd.ones{ 2 }
    over_scopes(function() update(0, ty.nd.ones{ 2 }, w) end)
    assert.are.same({ 2, 2 }, o.last:totable())
  end)

  for what, options in pairs{
    ["on one device"] = {}, ["on two"] = { contexts = BOTH },
    ["with a store on devices"] = { contexts = BOTH, kvstore = "device" },
    ["with compression"] = { contexts = BOTH, kvstore = "device",
      compression = { type = "2bit", threshold = 0.1 } },
    ["with updates inside backward"] = { in_backward = true, kvstore = ty.null },
    ["with an updater for each device"] = { contexts = BOTH, kvstore = ty.null },
  } do
    it("a module goes on " .. what, function()
      local m, whole
      ty.scope(function() m = module(options) end)
      over_scopes(function() step(m) end)
      over_scopes(function() step(m, 6) end)             -- another set of executors
      ty.scope(function() whole = m:get_params() end)
      whole.f_weight:totable()
      folder.with(function(path)
        ty.scope(function()
          m:save_optimizer_states(path .. "/s")
          m:load_optimizer_states(path .. "/s")
        end)
        step(m)
        ty.scope(function()
          m:save_state(path .. "/m.state")
          m:load_state(path .. "/m.state")
        end)
        step(m)
        ty.scope(function() m:set_params(m:get_params()) end)
        step(m)
        ty.scope(function() m:reshape{ { "data", { 2, 4 } } } end)
        step(m, 2)
        ty.scope(function() m:bind{ data_shapes = SHAPES.data_shapes,
          label_shapes = SHAPES.label_shapes, force_rebind = true } end)
        step(m)
      end)
    end)
  end

  it("a module that was loaded has its parameters", function()
    folder.with(function(path)
      module():save_checkpoint(path .. "/m", 1, { save_optimizer_states = true })
      local m, f
      ty.scope(function()
        m = ty.mod.Module.load(path .. "/m", 1, { load_optimizer_states = true, logger = quiet() })
        f = ty.model.FeedForward.load(path .. "/m", 1)
      end)
      m:get_params().f_weight:totable()
      m:bind(SHAPES)
      m:init_optimizer{ optimizer = "adam" }
      step(m)
      f:predict(ty.nd.ones{ 4, 4 })
    end)
  end)

  it("FeedForward, which was trained or given parameters inside, predicts", function()
    local f, g
    ty.scope(function()
      f = ty.model.FeedForward{ symbol = net(), num_epoch = 1 }
      f:fit{ X = iterator() }
      local arg_params, aux_params = {}, {}
      for name, x in pairs(f.arg_params) do arg_params[name] = x * 1 end
      for name, x in pairs(f.aux_params) do aux_params[name] = x * 1 end
      g = ty.model.FeedForward{ symbol = net(), arg_params = arg_params, aux_params = aux_params }
    end)
    f:predict(ty.nd.ones{ 4, 4 })
    g:predict(ty.nd.ones{ 4, 4 })
  end)

  it("buckets have the parameters that wait for them", function()
    local function gen(key)
      local h = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 3, name = "f" .. key }
      return ty.sym.SoftmaxOutput{ h, name = "softmax" }, { "data" }, { "softmax_label" }
    end
    local m, loaded
    ty.scope(function()
      m = ty.mod.BucketingModule{ sym_gen = gen, default_bucket_key = 1, logger = quiet() }
      m:bind(SHAPES)
      local given = {}
      for key = 1, 2 do
        given[("f%d_weight"):format(key)] = ty.nd.full({ 3, 4 }, key)
        given[("f%d_bias"):format(key)] = ty.nd.zeros{ 3 }
      end
      m:init_params{ arg_params = given }
      m:init_optimizer{ optimizer = "adam" }
      loaded = ty.mod.BucketingModule.load_dict{ sym_dict = { (gen(1)) }, sym_gen = gen,
        default_bucket_key = 1, arg_params = given }
    end)
    local function run(key)
      local b = ty.io.DataBatch(batch())
      b.bucket_key = key
      m:forward_backward(b)
      m:update()
    end
    over_scopes(function() run(1) end)
    over_scopes(function() run(2) end)
    loaded:bind(SHAPES)
    ty.scope(function() loaded:switch_bucket(2, SHAPES.data_shapes, SHAPES.label_shapes) end)
    assert.are.equal(2, loaded:get_params().f2_weight:get(0, 0))
  end)

  it("chains with modules in Lua, states, executor managers and shared modules go on", function()
    local chain
    ty.scope(function()
      local h = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 3, name = "f" }
      chain = ty.mod.SequentialModule{ logger = quiet() }
      chain:add(ty.mod.Module{ symbol = h, label_names = {} })
      chain:add(ty.mod.LuaLossModule{ grad_func = function(scores) return scores * 2 end },
        { take_labels = true, auto_wiring = true })
      chain:bind(SHAPES)
      chain:init_params()
      chain:init_optimizer()
      chain:forward(batch(), true)
    end)
    chain:get_outputs()[1]:totable()
    ty.scope(function() chain:backward() end)
    chain._modules[2]:get_input_grads()[1]:totable()
    chain:update()

    local loss = ty.mod.LuaLossModule{ grad_func = function(scores) return scores * 2 end }
    loss:bind{ data_shapes = { { "data", { 4, 3 } } },
      label_shapes = { { "softmax_label", { 4 } } } }
    ty.scope(function()
      loss:forward({ data = { ty.nd.ones{ 4, 3 } }, label = { ty.nd.zeros{ 4 } } }, true)
    end)
    loss:get_outputs()[1]:totable()
    ty.scope(function() loss:backward() end)
    loss:get_input_grads()[1]:totable()

    for _, contexts in ipairs{ { ty.cpu() }, BOTH } do
      local s = ty.mod.Module{ symbol = ty.sym.Variable("data") + ty.sym.Variable("st"),
        label_names = {}, state_names = { "st" }, context = contexts }
      s:bind{ data_shapes = { { "data", { 4, 3 } } } }
      s:init_params()
      ty.scope(function()
        s:set_states{ states = { ty.nd.ones{ 4, 3 } } }
        s:forward({ data = { ty.nd.ones{ 2, 3 } } }, false)
      end)
      s:forward({ data = { ty.nd.ones{ 4, 3 } } }, false)
      assert.are.equal(2, s:get_outputs()[1]:get(3, 0))
    end

    local man
    ty.scope(function()
      man = ty.executor_manager.DataParallelExecutorManager{ symbol = net(), ctx = BOTH,
        train_data = iterator() }
      man:set_params({ f_weight = ty.nd.ones{ 3, 4 } }, {})
    end)
    over_scopes(function()
      man:load_data_batch(ty.io.DataBatch(batch()))
      man:forward(true)
      man:backward()
    end)

    local m, n = module(), nil
    ty.scope(function()
      n = ty.mod.Module{ symbol = net(), logger = quiet() }
      n:bind{ data_shapes = { { "data", { 9, 4 } } }, label_shapes = { { "softmax_label", { 9 } } },
        shared_module = m }
    end)
    over_scopes(function() step(n, 9) end)
    over_scopes(function() step(m) end)
  end)

  it("stores have their contents", function()
    local comm, dist = require "tycho.kvstore.comm", require "tycho.kvstore.dist"
    local made = { ["local"] = function() return ty.kv.create("local") end,
      device = function() return ty.kv.create("device") end,
      compressed = function()
        local kv = ty.kv.create("device")
        kv:set_gradient_compression{ type = "2bit", threshold = 0.5 }
        return kv
      end,
      dist = function() return dist.DistStore("dist_sync", comm.group(1)[1]) end }
    for kind, make in pairs(made) do
      for _, updates in ipairs{ false, true } do
        local kv, out
        local function pull()
          local x = ty.nd.zeros{ 2 }
          kv:pull("w", { out = x })
          return x:totable()
        end
        ty.scope(function()
          kv = make()
          kv:init("w", ty.nd.full({ 2 }, 5))
          out = pull()
        end)
        assert.are.same({ out, { 5, 5 } }, { pull(), pull() }, kind)
        if updates then
          ty.scope(function() kv:set_optimizer(ty.optimizer.Adam()) end)
        end
        over_scopes(function() kv:push("w", ty.nd.ones{ 2 }) end)
        pull()
        over_scopes(function()
          kv:push("w", { ty.nd.ones{ 2 }, ty.nd.ones({ 2 }, { ctx = ty.cpu(1) }) })
        end)
        pull()
        ty.scope(function() kv:_set_residuals(kv:_residuals()) end)
        kv:push("w", ty.nd.ones{ 2 })
        pull()
      end
    end
  end)

  it("executors have their arrays and outputs", function()
    local exe, bound, rows
    ty.scope(function()
      exe = net():simple_bind{ ctx = ty.cpu(), data = { 4, 4 } }
      bound = (ty.sym.Variable("a") * 2):bind{ ctx = ty.cpu(), args = { ty.nd.ones{ 2 } },
        args_grad = { ty.nd.zeros{ 2 } } }
      rows = ty.sym.contrib.boolean_mask{ ty.sym.Variable("a"), ty.sym.Variable("b") }:bind{
        ctx = ty.cpu(), args = { ty.nd.ones{ 3, 2 }, ty.nd.array{ 1, 0, 1 } } }
    end)
    local outputs
    ty.scope(function()
      outputs = { exe:forward{ is_train = true, data = ty.nd.ones{ 4, 4 } }[1],
        bound:forward(true)[1], rows:forward()[1] }
      exe:backward()
      bound:backward(ty.nd.ones{ 2 })
    end)
    for _, x in ipairs(outputs) do
      x:totable()
    end
    rows.outputs[1]:totable()
    assert.are.same({ 2, 2 }, bound.grad_arrays[1]:totable())
    local other
    ty.scope(function() other = exe:reshape{ data = { 2, 4 }, partial_shaping = true } end)
    other:forward()[1]:totable()
    other.arg_dict.f_weight:totable()
  end)

  it("what an operator in Lua keeps stays", function()
    local Op = ty.operator.CustomOp:extend("ScopeOp")
    function Op:init() self.bias = ty.nd.ones{ 2 } end
    function Op:forward(_, req, in_data, out_data)
      self.mask = in_data[1] * 0 + 3
      self:assign(out_data[1], req[1], in_data[1] + self.bias)
    end
    function Op:backward(req, out_grad, _, _, in_grad)
      self:assign(in_grad[1], req[1], out_grad[1] * self.mask)
    end
    local Prop = ty.operator.CustomOpProp:extend("ScopeProp")
    function Prop.create_operator() return Op() end
    ty.operator.register("scope_spec", Prop)
    local exe = ty.sym.Custom{ ty.sym.Variable("data"), op_type = "scope_spec" }:simple_bind{
      ctx = ty.cpu(), data = { 2 } }
    ty.scope(function() exe:forward(true) end)
    exe:backward(ty.nd.ones{ 2 })
    assert.are.same({ 3, 3 }, exe.grad_dict.data:totable())
    over_scopes(function() exe:forward(true) end)
    assert.are.same({ 1, 1 }, exe.outputs[1]:totable())
  end)

  it("a monitor has what it saw", function()
    local mon, m = ty.monitor.Monitor{ 1, pattern = ".*" }, module()
    m:install_monitor(mon)
    ty.scope(function() mon:tic() end)
    ty.scope(function() m:forward(batch(), true) end)
    ty.scope(function() m:backward() end)
    assert.is_true(#mon:toc() > 5)
    mon = ty.monitor.Monitor{ 1, stat_func = function(x) return { x:max(), x:min() } end }
    m:install_monitor(mon)
    mon:tic()
    ty.scope(function() m:forward(batch(), true) end)
    assert.is_true(#mon:toc() > 5)
  end)

  it("metrics have what they gathered, also those of one's own", function()
    local Own = ty.metric.EvalMetric:extend("Own")
    function Own:reset()
      Own.super.reset(self)
      self.total = nil
    end
    function Own:update(_, preds)
      self.total = self.total and self.total + preds[1]:sum() or preds[1]:sum()
      self.num_inst = self.num_inst + 1
    end
    function Own:get()
      return "own", self.total:asscalar()
    end
    local m, own, all = module(), Own(), ty.metric.create{ "acc", "ce", "f1", "pcc", "pearsonr",
      "mcc", "mse", "loss" }
    over_scopes(function()
      local b = batch()
      m:forward(b, false)
      m:update_metric(own, b.label)
    end)
    assert.near(12, select(2, own:get()), 1e-3)
    ty.scope(function() m:score(iterator(), own) end)
    own:get()
    for _, metric in ipairs(all.metrics) do
      over_scopes(function()
        pcall(metric.update, metric, { ty.nd.array{ 0, 1 } }, { ty.nd.array{ { 1, 0 }, { 0, 1 } } })
      end)
      metric:get()
    end
  end)

  it("initializers have their arrays", function()
    folder.with(function(path)
      ty.nd.save(path .. "/x.params", { ["arg:w"] = ty.nd.full({ 2 }, 4) })
      local all
      ty.scope(function()
        local function given()
          return ty.init.Load{ param = { w = ty.nd.full({ 2 }, 4) } }
        end
        all = { ty.init.Load(path .. "/x.params"), given(), ty.init.Mixed{ { ".*" }, { given() } } }
      end)
      for _, initializer in ipairs(all) do
        local x = ty.nd.zeros{ 2 }
        initializer("w", x)
        assert.are.same({ 4, 4 }, x:totable())
      end
    end)
    local Own = ty.init.Initializer:extend("ScopeOwn")
    function Own:_init_weight(_, x)
      self.first = self.first or x * 0 + 2
      x[":"] = self.first
    end
    local own = Own()
    ty.scope(function()
      local m = ty.mod.Module{ symbol = net(), logger = quiet() }
      m:bind(SHAPES)
      m:init_params{ initializer = own }
    end)
    own.first:totable()
  end)

  it("iterators over arrays and sentences go on", function()
    local made
    ty.scope(function()
      local arrays = iterator(10)
      made = { arrays, ty.io.NDArrayIter{ data = { { 1, 2 }, { 3, 4 } }, batch_size = 1,
        shuffle = true }, ty.io.NDArrayIter{ data = ty.nd.ones{ 10, 2 }, batch_size = 4,
        shuffle = true, last_batch_handle = "roll_over" }, ty.io.ResizeIter(iterator(), 3),
        ty.io.PrefetchingIter{ iterator() },
        ty.rnn.BucketSentenceIter((ty.rnn.encode_sentences{ { "a", "b" }, { "b", "a" } }), 1,
          { buckets = { 2 } }) }
    end)
    for _, it_ in ipairs(made) do
      for _ = 1, 2 do
        ty.scope(function() it_:reset() end)
        for b in it_ do
          b.data[1]:totable()
        end
        ty.scope(function()
          it_:reset()
          it_:iter_next()
        end)
        it_:getdata()[1]:totable()
        if it_.idx then
          it_.idx:totable()
        end
        local state = it_:state()
        ty.scope(function() it_:set_state(state) end)
        it_:next()
      end
    end
  end)

  it("batches that next gives are freed with the other arrays", function()
    for _, it_ in ipairs{ iterator(), ty.io.ResizeIter(iterator(), 3),
        ty.io.PrefetchingIter{ iterator() } } do
      local b
      ty.scope(function() b = it_:next() end)
      assert.raises("state", b.data[1].totable, b.data[1])
    end
  end)

  it("iterators over files go on", function()
    folder.with(function(path)
      folder.write(path .. "/x.csv", "1,2\n3,4\n5,6\n7,8\n")
      local csv
      ty.scope(function()
        csv = ty.io.CSVIter{ data_csv = path .. "/x.csv", data_shape = { 2 }, batch_size = 2 }
      end)
      assert.are.equal(1, csv:next().data[1]:get(0, 0))
      ty.scope(function() csv:iter_next() end)
      assert.are.equal(5, csv:getdata()[1]:get(0, 0))
      csv:reset()
      ty.scope(function() csv:debug_skip_load() end)
      csv:next()
      csv:next().data[1]:totable()
    end)
  end)

  it("iterators over images keep the samples of the next epoch", function()
    folder.with(function(path)
      local list, it_ = {}, nil
      for i = 1, 3 do
        list[i] = { i, ("%d.png"):format(i) }
        ty.image.imwrite(path .. "/" .. list[i][2], images.constant(8, 8, 3, 20 * i))
      end
      ty.scope(function()
        it_ = ty.image.ImageIter{ batch_size = 2, data_shape = { 3, 8, 8 }, imglist = list,
          path_root = path, last_batch_handle = "roll_over",
          aug_list = { ty.image.ColorNormalizeAug{ mean = ty.nd.zeros{ 3 },
            std = ty.nd.ones{ 3 } } } }
      end)
      for _ = 1, 2 do
        ty.scope(function()
          local b
          repeat
            b = it_:next()
          until not b
          it_:reset()
        end)
        it_:next().data[1]:totable()
      end
      ty.scope(function() it_:iter_next() end)
    end)
  end)

  it("a training with early stopping, callbacks and a validation goes on", function()
    folder.with(function(path)
      local m
      ty.scope(function()
        m = ty.mod.Module{ symbol = net(), logger = quiet() }
        m:fit{ train_data = iterator(), eval_data = iterator(), num_epoch = 2,
          early_stopping = { patience = 1 }, checkpoint = { prefix = path .. "/m" } }
      end)
      step(m)
      m:fit{ train_data = iterator(), eval_data = iterator(), num_epoch = 6,
        early_stopping = { patience = 1 }, checkpoint = { prefix = path .. "/m", resume = true },
        batch_end_callback = function()
          ty.scope(function()
            m:get_params()
            m:predict(ty.nd.ones{ 3, 4 })
          end)
        end,
        epoch_end_callback = function() ty.scope(function() m:score(iterator(), "acc") end) end }
      step(m)
    end)
  end)

  it("variables that stay have their gradients", function()
    local square = function(x)
      ty.autograd.record(function() return (x * x):sum() end):backward()
      return x.grad:totable()
    end
    local made, outer = {}, ty.nd.full({ 2 }, 3)
    made[1] = ty.scope(function()
      local x = ty.scope(function()
        local y = ty.nd.full({ 2 }, 3)
        y:attach_grad()
        return y
      end)
      x.grad:totable()
      return x
    end)
    ty.scope(function()
      made[2] = ty.nd.full({ 2 }, 3):keep()
      made[2]:attach_grad()
      made[3] = ty.nd.full({ 2 }, 3)
      made[3]:attach_grad()
      made[3]:keep()
      outer:attach_grad()
      made[4] = ty.nd.full({ 2 }, 3, { ctx = ty.cpu(1) }):keep()
      ty.autograd.mark_variables({ made[4] }, { ty.nd.zeros({ 2 }, { ctx = ty.cpu(1) }) })
    end)
    made[5] = outer
    for i, x in ipairs(made) do
      assert.same({ 0, 0 }, x.grad:totable(), i)
      over_scopes(function() assert.same({ 6, 6 }, square(x), i) end)
    end
    local freed, gradient
    ty.scope(function()
      freed = ty.nd.ones{ 2 }
      freed:attach_grad()
      gradient = freed.grad
    end)
    assert.raises("state", function() gradient:totable() end)
  end)

  it("recorded functions in Lua have what their gradients read", function()
    local Saved = ty.autograd.Function:extend("ScopeSaved")
    function Saved:forward(x)
      self:save_for_backward(x, x * 2)
      return x * x
    end
    function Saved:backward(g) return g * self.saved_tensors[2] * self.saved_tensors[1] end
    local Field = ty.autograd.Function:extend("ScopeField")
    function Field:forward(x)
      self.x, self.double = x, x * 2
      return x * x
    end
    function Field:backward(g) return g * self.double * self.x end
    local Op = ty.operator.CustomOp:extend("ScopeRecordedOp")
    function Op:init() self.two = ty.nd.full({ 2 }, 2) end
    function Op:forward(_, req, ins, outs)
      self.double = ins[1] * self.two
      self:assign(outs[1], req[1], ins[1] * ins[1])
    end
    function Op:backward(req, grads, ins, _, results)
      self:assign(results[1], req[1], grads[1] * self.double * ins[1])
    end
    local Prop = ty.operator.CustomOpProp:extend("ScopeRecordedProp")
    function Prop.create_operator() return Op() end
    ty.operator.register("scope_recorded", Prop)

    for name, call in pairs{ saved = function(x) return Saved()(x) end,
        field = function(x) return Field()(x) end,
        custom = function(x) return ty.nd.Custom{ x, op_type = "scope_recorded" } end } do
      local x = ty.nd.full({ 2 }, 3)
      x:attach_grad()
      local head = ty.autograd.record(function()
        local y = ty.scope(function() return call(x * 1) end)
        return ty.scope(function() return (y * 2):sum() end)
      end)
      ty.scope(function() head:backward() end)
      assert.same({ 36, 36 }, x.grad:totable(), name)
      local made
      ty.scope(function() made = call(x) end)
      assert.raises("state", function() made:totable() end)
    end
  end)

  it("cells keep the masks of a sequence", function()
    for _, hybrid in ipairs{ false, true } do
      local cell = ty.gluon.contrib.rnn.VariationalDropoutCell(
        ty.gluon.rnn.LSTMCell(4, { input_size = 4 }),
        { drop_inputs = 0.3, drop_states = 0.3, drop_outputs = 0.3 })
      cell:initialize()
      if hybrid then
        cell:hybridize()
      end
      ty.autograd.record(function()
        for _ = 1, 2 do
          cell:reset()
          local y, states = nil, cell:begin_state{ batch_size = 2 }
          for _ = 1, 3 do
            y, states = ty.scope(function() return cell(ty.nd.ones{ 2, 4 }, states) end)
          end
          y:totable()
        end
      end)
    end
  end)
end)
