-- Modules: last small batches, the cache of shapes, resuming bit by bit, interruption, memory.

local ty = require "tycho"

local function classifier()
  local h = ty.sym.FullyConnected{ data = ty.sym.Variable("data"), num_hidden = 5, name = "fc1" }
  h = ty.sym.Activation{ data = h, act_type = "tanh" }
  h = ty.sym.FullyConnected{ data = h, num_hidden = 3, name = "fc2" }
  return ty.sym.SoftmaxOutput{ data = h, name = "softmax" }
end

local function quiet()
  local log = { infos = {}, warnings = {} }
  function log:info(text) self.infos[#self.infos + 1] = text end
  function log:warning(text) self.warnings[#self.warnings + 1] = text end
  log.debug, log.error = log.info, log.warning
  return log
end

local function data(rows)
  ty.random.seed(11)
  local x = ty.nd.random.normal{ shape = { rows, 4 } }
  return x, x:slice_axis{ axis = 1, begin = 0, ["end"] = 3 }:argmax{ axis = 1 }
end

local function iterator(rows, shuffle)
  local x, y = data(rows)
  return ty.io.NDArrayIter{ data = x, label = y, batch_size = 8, shuffle = shuffle }
end

local function module(net)
  return ty.mod.Module{ symbol = net or classifier(), logger = quiet() }
end

describe("Module", function()
  it("learns", function()
    local m, it_ = module(), iterator(80, true)
    m:fit{ train_data = it_, num_epoch = 30,
      optimizer_params = { learning_rate = 0.2, momentum = 0.9 }, initializer = ty.init.Xavier() }
    assert.is_true(m:score(it_, "acc")[1][2] > 0.9)
  end)

  it("keeps the executors of shapes that come again", function()
    local m = module()
    m:bind{ data_shapes = { { "data", { 8, 4 } } }, label_shapes = { { "softmax_label", { 8 } } } }
    m:init_params()
    local function run(rows)
      m:forward(ty.io.DataBatch{ data = { ty.nd.ones{ rows, 4 } },
        label = { ty.nd.zeros(rows) } }, true)
      m:backward()
      assert.shape({ rows, 3 }, m:get_outputs()[1])
      return m._exec_group.execs[1]
    end
    local first, small = run(8), run(3)
    assert.are_not.equal(first, small)
    assert.are.equal(first, run(8))
    assert.are.equal(small, run(3))
    local before = ty.live().executors
    for rows = 1, 20 do
      run(rows)
    end
    ty.waitall()                                 -- what is freed while it runs goes when it is done
    assert.is_true(ty.live().executors - before <= 8)
    assert.near(1 / 3, m:predict(ty.nd.zeros{ 2, 4 }):totable()[1][1], 0.02)
  end)

  it("gives exactly the rows of the data, padded or not", function()
    local m = module()
    m:bind{ data_shapes = { { "data", { 8, 4 } } }, label_shapes = { { "softmax_label", { 8 } } },
      for_training = false }
    m:init_params()
    assert.shape({ 21, 3 }, m:predict(iterator(21)))
    local counted = {}
    local metric = ty.metric.np(function(label)
      counted[#counted + 1] = #label
      return 0
    end)
    m:score(iterator(21), metric, { count_pad = false })
    assert.are.same({ 8, 8, 5 }, counted)
  end)

  it("goes on bit by bit from a saved state", function()
    local path = os.tmpname()
    local function train(begin, stop, resume)
      local m, it_ = module(), iterator(30, true)
      m:bind{ data_shapes = it_.provide_data, label_shapes = it_.provide_label }
      ty.random.seed(5)
      m:init_params{ initializer = ty.init.Xavier() }
      m:init_optimizer{ optimizer = "adam", optimizer_params = { learning_rate = 0.05 } }
      if resume then
        begin = m:load_state(path, { train_data = it_ }).epoch
      end
      m:fit{ train_data = it_, begin_epoch = begin, num_epoch = stop }
      m:save_state(path, { train_data = it_, epoch = stop })
      return m:get_params().fc1_weight:tostring_raw()
    end
    local whole = train(0, 4)
    train(0, 2)
    assert.is_true(whole == train(0, 4, true))
    os.remove(path)
  end)

  it("goes on from parameters that were set, also where a store updates", function()
    for _, kvstore in ipairs{ "local", "device" } do
      for _, allow_missing in ipairs{ false, true } do
        local m, it_ = ty.mod.Module{ symbol = classifier(), context = { ty.cpu(0), ty.cpu(1) },
          logger = quiet() }, iterator(8)
        m:bind{ data_shapes = it_.provide_data, label_shapes = it_.provide_label }
        m:init_params{ initializer = ty.init.One() }
        m:init_optimizer{ kvstore = kvstore, optimizer_params = { learning_rate = 0 } }
        assert.is_true(m._update_on_kvstore)
        local zeros = {}
        for name, x in pairs((m:get_params())) do
          zeros[name] = ty.nd.zeros(x.shape)
        end
        m:set_params(zeros, {}, { allow_missing = allow_missing })
        m:forward_backward(it_:next())
        m:update()
        assert.are.equal(0, m:get_params().fc1_weight:norm():asscalar())
      end
    end
  end)

  it("says where it was when it is interrupted", function()
    local m, calls = module(), 0
    local e = assert.raises("interrupted", m.fit, m, { train_data = iterator(32), num_epoch = 3,
      batch_end_callback = function(param)
        calls = calls + 1
        if param.epoch == 1 and param.nbatch == 2 then
          ty.Error.raise{ code = "interrupted", message = "interrupted" }
        end
      end })
    assert.are.same({ 1, 2, 7 }, { e.epoch, e.nbatch, calls })
    m:fit{ train_data = iterator(32), num_epoch = 1 }
  end)

  it("says that its list of data names is empty, where shapes of data come", function()
    local mod = ty.mod.Module{ symbol = ty.sym.Variable "data", data_names = {}, label_names = {} }
    local e = assert.raises("name", mod.bind, mod, { data_shapes = { { "data", { 1 } } } })
    assert.truthy(e.message:find("'data_names' was given as an empty list", 1, true), e.message)
  end)

  it("uses one memory for two modules", function()
    local m, n = module(), module()
    m:bind{ data_shapes = { { "data", { 8, 4 } } }, label_shapes = { { "softmax_label", { 8 } } } }
    m:init_params()
    n:bind{ data_shapes = { { "data", { 2, 4 } } }, label_shapes = { { "softmax_label", { 2 } } },
      shared_module = m }
    assert.are.equal(m:memory().pool, n:memory().pool)
    assert.is_true(
      n._exec_group.execs[1].arg_dict.data:same_memory(m._exec_group.execs[1].arg_dict.data))
  end)

  it("gives its executors back", function()
    collectgarbage()
    collectgarbage()
    local before, m = ty.live().executors, module()
    m:bind{ data_shapes = { { "data", { 8, 4 } } }, label_shapes = { { "softmax_label", { 8 } } } }
    m:free()
    assert.raises("state", m.bind, m, { data_shapes = { { "data", { 8, 4 } } } })
    m = nil                                              -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    ty.waitall()
    assert.is_true(ty.live().executors <= before)
  end)

  describe("of one's own", function()
    local Twice = ty.mod.BaseModule:extend("Twice")

    function Twice:bind(options)
      self.binded, self.for_training = true, options.for_training ~= false
    end

    function Twice:init_params() self.params_initialized = true end
    function Twice:forward(batch) self._output = batch.data[1] * 2 end
    function Twice:get_outputs() return { self._output } end

    it("sets its flags, and the base goes by them", function()
      local m = Twice()
      assert.are.equal("binded", assert.raises("state", m.predict, m, ty.nd.ones(2)).argument)
      m:bind{ for_training = false }
      m:init_params()
      assert.are.same({ true, false, true, false },
        { m.binded, m.for_training, m.params_initialized, m.optimizer_initialized })
      assert.near({ 2, 2 }, m:predict(ty.nd.ones(2)), 0)
      assert.raises("state", function() m.symbol = 1 end)
    end)

    it("may be one of the library's, which guards its own", function()
      local Stage = ty.mod.LuaModule:extend("Stage")
      local m = Stage{ data_names = { "data" }, output_names = { "out" } }
      m.params_initialized = true
      assert.is_true(m.params_initialized)
      assert.raises("state", function() module().binded = true end)
      assert.equal(ty.mod.LuaModule, ty.mod.PythonModule)
      local plain = ty.mod.PythonModule{ data_names = { "data" }, output_names = { "out" } }
      assert.equal("<LuaModule>", tostring(plain))
      assert.raises("state", function() plain.binded = true end)
    end)
  end)

  describe("given parameters that do not fit", function()
    local function bound(options)
      local m = module()
      m:bind{ data_shapes = { { "data", { 8, 4 } } },
        label_shapes = { { "softmax_label", { 8 } } } }
      m:init_params(options)
      return m
    end

    local function with(m, changes)
      local dict = {}
      for name, x in pairs((m:get_params())) do
        dict[name] = x:copy()
      end
      for name, x in pairs(changes) do
        dict[name] = x ~= ty.null and x or nil
      end
      return dict
    end

    it("lists every difference and writes nothing", function()
      local m = bound{ initializer = ty.init.One() }
      local given = with(m, { fc1_weight = ty.null, zz = ty.nd.ones(1), fc2_bias = ty.nd.zeros(7),
        fc2_weight = ty.nd.zeros{ 3, 5 } })
      local e = assert.raises("name", m.set_params, m, given)
      assert.are.same({ { "fc1_weight" }, { "zz" }, { "fc2_bias" } },
        { e.missing, e.extra, e.mismatch })
      for _, word in ipairs{ "fc1_weight", "zz", "fc2_bias", "(7,)", "(3,)",
          "allow_missing", "allow_extra" } do
        assert.truthy(tostring(e):find(word, 1, true))
      end
      assert.are.equal(1, m:get_params().fc2_weight:get(0, 0))
    end)

    it("are no entries of a file, and no list", function()
      for _, given in ipairs{ { ["arg:fc1_weight"] = ty.nd.ones{ 5, 4 } }, { ty.nd.ones(1) } } do
        local m = bound()
        local e = assert.raises("name", m.set_params, m, given, {}, { allow_missing = true })
        assert.truthy(e.message:find("load_params", 1, true), e.message)
        assert.raises("name", m.init_params, m,
          { arg_params = given, allow_missing = true, force_init = true })
      end
    end)

    it("needs shapes that fit even where names may differ", function()
      local m = bound()
      local e = assert.raises("shape", m.set_params, m,
        with(m, { fc1_bias = ty.nd.zeros(2), zz = ty.nd.ones(1) }), {}, { allow_extra = true })
      assert.are.same({ { "fc1_bias" }, { 5 }, { 2 } }, { e.mismatch, e.expected, e.got })
      m:set_params(with(m, { fc1_bias = ty.null, zz = ty.nd.ones(1) }), {},
        { allow_extra = true, allow_missing = true })
    end)

    it("may be renamed on the way in", function()
      local m, path = bound(), os.tmpname()
      local renamed = {}
      for name, x in pairs((m:get_params())) do
        renamed["arg:old_" .. name] = x
      end
      ty.nd.save(path, renamed)
      assert.raises("name", m.load_params, m, path)
      local n = bound{ initializer = ty.init.Zero() }
      n:load_params(path, { rename = function(name) return name:match("^old_(.*)$") end })
      assert.near(m:get_params().fc1_weight:totable(), n:get_params().fc1_weight, 0)
      local e = assert.raises("name", n.load_params, n, path, { rename = function()
        return "same"
      end })
      assert.truthy(tostring(e):find("'same'", 1, true))
      os.remove(path)
    end)

    it("are found at bind when they come from a checkpoint", function()
      local m, prefix = bound(), os.tmpname()
      m:save_checkpoint(prefix, 1)
      local n = ty.mod.Module.load{ prefix = prefix, epoch = 1, logger = quiet(),
        rename = function(name) return name end }
      local e = assert.raises("shape", n.bind, n, { data_shapes = { { "data", { 8, 6 } } },
        label_shapes = { { "softmax_label", { 8 } } } })
      assert.are.same({ "fc1_weight" }, e.mismatch)
      for _, ending in ipairs{ "", "-symbol.json", "-0001.params" } do
        os.remove(prefix .. ending)
      end
    end)
  end)
end)


describe("wrong calls of modules", function()
  local function trained(kind)
    local m = ty.mod.Module{ symbol = classifier(), logger = quiet() }
    if kind == "BucketingModule" then
      local function generate() return classifier(), { "data" }, { "softmax_label" } end
      m = ty.mod.BucketingModule{ generate, default_bucket_key = 1, logger = quiet() }
    elseif kind == "SequentialModule" then
      m = ty.mod.SequentialModule{ logger = quiet() }:add(m, { take_labels = true })
    end
    m:bind{ data_shapes = { { "data", { 4, 6 } } }, label_shapes = { { "softmax_label", { 4 } } } }
    m:init_params()
    return m
  end

  for _, kind in ipairs{ "Module", "BucketingModule", "SequentialModule" } do
    it("name the argument: " .. kind, function()
      local m = trained(kind)
      local batch = { data = { ty.nd.ones{ 4, 6 } }, label = { ty.nd.zeros{ 4 } }, bucket_key = 1 }
      m:forward(batch, true)
      for _, bad in ipairs{ 3, "x", true, { 3 }, ty.nd.ones{ 1 } } do
        assert.equal("mon", assert.raises("type", m.install_monitor, m, bad).argument)
        assert.equal("eval_metric",
          assert.raises("type", m.update_metric, m, bad, batch.label).argument)
      end
      assert.raises("value", m.install_monitor, m)
      assert.raises("value", m.update_metric, m)
      local acc = ty.metric.create("acc")
      assert.equal("labels", assert.raises("type", m.update_metric, m, acc, 3).argument)
      for _, bad in ipairs{ 3, "x", true } do
        assert.equal("out_grads", assert.raises("type", m.backward, m, bad).argument)
      end
      m:backward()                                       -- a refused monitor is not kept
      m:forward(batch, true)
      m:update_metric{ eval_metric = acc, labels = batch.label }
      assert.equal(4, acc.num_inst)
    end)
  end

  it("name what is no module", function()
    for _, bad in ipairs{ 3, "x", {}, ty.nd.ones{ 1 } } do
      assert.equal("module", assert.raises("type", ty.model.save_state, bad, "f").argument)
      assert.equal("module", assert.raises("type", ty.model.load_state, bad, "f").argument)
    end
  end)
end)
