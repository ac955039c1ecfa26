-- Optimizers and saved states: what the recorded cases do not reach.

local container = require "tycho.ndarray.serialize"
local ty = require "tycho"

local function step(update, weight, value)
  update(0, ty.nd.full(weight.shape, value), weight)
end

describe("optimizer", function()
  local level = ty.log.level
  setup(function() ty.log.level = "error" end)
  teardown(function() ty.log.level = level end)

  it("takes the states along when a weight moves to another device", function()
    local update = ty.optimizer.get_updater(ty.optimizer.create("sgd", { momentum = 0.9 }))
    local x = ty.nd.ones{ shape = { 2 }, ctx = ty.cpu(0) }
    update(0, ty.nd.ones{ shape = { 2 }, ctx = ty.cpu(0) }, x)
    local y = x:as_in_context(ty.cpu(1))
    update(0, ty.nd.ones{ shape = { 2 }, ctx = ty.cpu(1) }, y)
    assert.equal(ty.cpu(1), update.states[0].context)
    assert.near({ 0.971, 0.971 }, y)
  end)

  it("goes on from saved states as if nothing had happened", function()
    for _, name in ipairs{ "sgd", "adam", "adamw", "nadam", "lamb", "lars", "rmsprop", "ftml",
        "lbsgd" } do
      local function make()
        return ty.optimizer.get_updater(ty.optimizer.create(name, { learning_rate = 0.1,
          lr_scheduler = ty.lr_scheduler.FactorScheduler{ 2, factor = 0.5 } }))
      end
      local a, b = make(), make()
      local x = ty.nd.ones{ 3, 2 }
      step(a, x, 0.5)
      step(a, x, -1)
      local y = x:copy()
      b:set_states(a:get_states(true))
      step(a, x, 2)
      step(b, y, 2)
      assert.same(x:totable(), y:totable(), name)
      assert.equal(a.optimizer.num_update, b.optimizer.num_update)
    end
  end)

  it("has the settings that it was given after any number of steps", function()
    local settings = require "tycho.optimizer.settings"
    local schedules = {
      function() return nil end,
      function() return ty.lr_scheduler.FactorScheduler{ 1, factor = 0.5 } end,
      function() return ty.lr_scheduler.MultiFactorScheduler{ { 1, 2 }, factor = 0.5 } end,
      function() return ty.lr_scheduler.PolyScheduler{ 5 } end,
      function() return ty.lr_scheduler.CosineScheduler{ 5, warmup_steps = 2 } end,
    }
    for _, name in ipairs{ "sgd", "nag", "signum", "adam", "adamw", "adamax", "nadam", "ftml",
        "adagrad", "rmsprop", "adadelta", "ftrl", "lars", "lamb", "lbsgd", "sgld", "dcasgd" } do
      for _, schedule in ipairs(schedules) do
        local a, b = ty.optimizer.create(name, { lr_scheduler = schedule() }),
          ty.optimizer.create(name, { lr_scheduler = schedule() })
        local update, x = ty.optimizer.get_updater(a), ty.nd.ones{ 3, 2 }
        for _ = 1, 4 do
          step(update, x, 0.5)
        end
        assert.same({}, settings.differences(a, b), name)
      end
    end
  end)

  it("refuses states that were damaged", function()
    local update = ty.optimizer.get_updater(ty.optimizer.Adam{})
    step(update, ty.nd.ones{ 2 }, 1)
    local bytes = update:get_states(true)
    for _, at in ipairs{ 1, 9, 14, 30, #bytes - 3 } do
      local other = bytes:sub(1, at - 1) .. string.char((bytes:byte(at) + 1) % 256)
        .. bytes:sub(at + 1)
      assert.raises("format", update.set_states, update, other)
    end
    assert.raises("format", update.set_states, update, bytes:sub(1, -2))
    assert.raises("format", update.set_states, update, bytes .. "x")
  end)

  it("decays weights beside the gradient, in AdamW", function()
    for _, case in ipairs{ { "float32", 1e-6 }, { "float16", 1e-3 } } do
      local dtype, within = unpack(case)
      for _, correct in ipairs{ true, false } do
        local update = ty.optimizer.get_updater(ty.optimizer.create("adamw", { learning_rate = 0.1,
          wd = 0.2, beta1 = 0.8, beta2 = 0.9, epsilon = 1e-3, rescale_grad = 0.5,
          clip_gradient = 0.6, correct_bias = correct, multi_precision = true }))
        local x, w = ty.nd.full({ 2 }, 1, { dtype = dtype }), 1
        local m, v = 0, 0
        for t, g in ipairs{ 1, -4, 0.5 } do
          update(0, ty.nd.full({ 2 }, g, { dtype = dtype }), x)
          local d = math.max(-0.6, math.min(0.6, g * 0.5))
          m, v = 0.8 * m + 0.2 * d, 0.9 * v + 0.1 * d * d
          local c = correct and math.sqrt(1 - 0.9 ^ t) / (1 - 0.8 ^ t) or 1
          w = w - 0.1 * (c * m / (math.sqrt(v) + 1e-3) + 0.2 * w)
        end
        assert.near({ w, w }, x:astype("float32"), within)
        assert.is_true(x.dtype == dtype)
      end
    end
  end)

  it("leaves names that no_decay matches as they are, after saving too", function()
    local function make(patterns)
      return ty.optimizer.get_updater(ty.optimizer.create("adamw", { learning_rate = 0.1, wd = 0.5,
        no_decay = patterns, param_idx2name = { [0] = "a_weight", [1] = "b_weight",
          [2] = "b_gamma" } }))
    end
    local function decayed(update)
      local list = {}
      for i = 0, 2 do
        local x = ty.nd.ones{ 2 }
        update(i, ty.nd.zeros{ 2 }, x)
        list[i + 1] = x:totable()[1] < 1
      end
      return list
    end
    assert.same({ true, true, true }, decayed(make()))
    local update, other = make{ "^b_" }, make()
    assert.same({ true, false, false }, decayed(update))
    assert.same({ true, true, false }, decayed(make{ "_gamma$" }))
    other:set_states(update:get_states(true))
    assert.same({ true, false, false }, decayed(other))
    for _, bad in ipairs{ { "%" }, { "[" } } do
      assert.raises("value", ty.optimizer.create, "sgd", { no_decay = bad })
    end
    assert.raises("type", ty.optimizer.create, "sgd", { no_decay = { 1 } })
  end)

  it("has the older name of SGD", function()
    assert.equal(ty.optimizer.SGD, ty.optimizer.ccSGD)
    assert.is_true(ty.is_a(ty.optimizer.create("ccSGD"), ty.optimizer.SGD))
  end)

  it("names what it does not know", function()
    assert.equal("adam", assert.raises("name", ty.optimizer.create, "adan").candidates[1])
    assert.raises("name", ty.optimizer.SGD, { momentun = 0.9 })
    assert.raises("value", ty.optimizer.get_updater(ty.optimizer.SGD{}), { 0, 1 }, {}, {})
  end)

  it("keeps the master copy of LBSGD before its momentum, as other rules without one of their own",
    function()
      local o = ty.optimizer.LBSGD{ learning_rate = 0.5, momentum = 0.5, multi_precision = true }
      local w = ty.nd.array{ 1, 2, dtype = "float16" }
      local state = o:create_state_multi_precision(0, w)
      assert.same({ 1, 2 }, state[1]:totable())
      assert.same({ 0, 0 }, state[2]:totable())
      o:update_multi_precision(0, w, ty.nd.array{ 1, 1, dtype = "float16" }, state)
      assert.same({ 0.5, 1.5 }, w:totable())
      assert.same({ 0.5, 1.5 }, state[1]:totable())
      assert.same({ -0.5, -0.5 }, state[2]:totable())
      assert.same({ "float32", "float32" }, { state[1].dtype, state[2].dtype })
    end)

  it("adds 1e-5 below GroupAdaGrad's root", function()
    local w, g = ty.nd.array{ { 0, 0 } }, ty.nd.array{ { 1e-3, 1e-3 } }
    ty.optimizer.get_updater(ty.optimizer.GroupAdaGrad{ learning_rate = 1 })(0, g, w)
    assert.near(-1e-3 / math.sqrt(1e-6 + 1e-5), w:get(0, 1), 1e-5)
  end)

  it("has states of float32 for weights of other types, in Test", function()
    local w = ty.nd.ones{ 2, dtype = "float64" }
    local update = ty.optimizer.get_updater(ty.optimizer.Test{})
    update(3, ty.nd.ones{ 2, dtype = "float64" }, w)
    assert.equal("float32", update.states[3].dtype)
    assert.same({ 2, 2 }, update.states[3]:totable())
  end)

  it("updates lists as one by one", function()
    local function run(listed)
      local update =
        ty.optimizer.get_updater(ty.optimizer.SGD{ learning_rate = 0.1, momentum = 0.9 })
      local w, g, indices = {}, {}, {}
      for i = 1, 6 do
        w[i], g[i], indices[i] = ty.nd.full({ i }, i), ty.nd.full({ i }, 0.5), i
      end
      for _ = 1, 3 do
        for i = 1, listed and 0 or 6 do
          update(i, g[i], w[i])
        end
        if listed then
          update(indices, g, w)
        end
      end
      return w[6]:totable()
    end
    assert.same(run(false), run(true))
  end)
end)

describe("wrong calls of optimizers", function()
  local create = ty.optimizer.create
  local KINDS = { "sgd", "nag", "signum", "sgld", "dcasgd", "lbsgd", "lars", "lamb", "adam",
    "adamw", "adamax", "nadam", "adagrad", "groupadagrad", "rmsprop", "adadelta", "ftrl", "ftml",
    "test" }

  for _, kind in ipairs(KINDS) do
    it("name the argument: " .. kind, function()
      local o, w, g = create(kind), ty.nd.ones{ 2, 3 }, ty.nd.ones{ 2, 3 }
      local function refuses(argument, method, ...)
        local e = assert.raises("type", o[method], o, ...)
        assert.equal(argument, e.argument)
        assert.truthy(e.expected and e.got and e.func:find(method, 1, true))
      end
      local state = o:create_state(0, w)
      for _, more in ipairs{ "", "_multi_precision" } do
        refuses("weight", "create_state" .. more, 0, 3)
        refuses("index", "create_state" .. more)
        refuses("weight", "update" .. more, 0, 1, g, state)
        refuses("grad", "update" .. more, 0, w, { 1 }, state)
        refuses("state", "update" .. more, 0, w, g, 5)
        refuses("state", "update" .. more, 0, w, g, { w, "x" })
        refuses("index", "update" .. more, nil, w, g, state)
      end
      assert.near({ { 1, 1, 1 }, { 1, 1, 1 } }, w, 0)
    end)
  end

  for _, kind in ipairs{ "adam", "adamax", "nadam", "lamb", "adagrad", "dcasgd", "ftml", "test" } do
    it("want the state of the rule: " .. kind, function()
      local o, w = create(kind), ty.nd.ones{ 2, 3 }
      assert.equal("state", assert.raises("type", o.update, o, 0, w, w:copy(), nil).argument)
    end)
  end

  it("name the argument of an updater", function()
    local w, g = ty.nd.ones{ 2 }, ty.nd.ones{ 2 }
    for _, kind in ipairs{ "sgd", "adam", "lamb" } do
      local u = ty.optimizer.get_updater(create(kind))
      assert.equal("index", assert.raises("type", u).argument)
      assert.equal("index", assert.raises("type", u, nil, g, w).argument)
      assert.equal("grad", assert.raises("type", u, 0, nil, w).argument)
      assert.equal("weight", assert.raises("type", u, 0, g, 3).argument)
      assert.equal("grad", assert.raises("type", u, { 0 }, { 3 }, { w }).argument)
      assert.equal("weight", assert.raises("type", u, { 0 }, { g }, { "w" }).argument)
    end
  end)

  it("name the option", function()
    assert.equal("learning_rate",
      assert.raises("type", ty.optimizer.Ftrl, { learning_rate = "x" }).argument)
    assert.equal("param_idx2name",
      assert.raises("type", create, "sgd", { param_idx2name = { [0] = 3 } }).argument)
    assert.equal("options", assert.raises("type", create, "sgd", 3).argument)
    assert.equal("options", assert.raises("value", create, create("sgd"), { wd = 1 }).argument)
    local sgd = create("sgd")
    assert.equal("w", assert.raises("type", sgd.set_lr_mult, sgd, { w = "x" }).argument)
    assert.equal("w", assert.raises("type", sgd.set_wd_mult, sgd, { w = {} }).argument)
    assert.equal(1, sgd:_get_lr("w") / sgd.lr)
  end)

  it("name the schedule", function()
    local w = ty.nd.ones{ 2 }
    local o = create("sgd", { lr_scheduler = function() return "x" end })
    local u = ty.optimizer.get_updater(o)
    assert.equal("lr_scheduler", assert.raises("type", u, 0, w:copy(), w).argument)
    local s = ty.lr_scheduler.FactorScheduler(10)
    assert.equal("num_update", assert.raises("type", s).argument)
    assert.equal("num_update", assert.raises("type", s, "x").argument)
    assert.equal("num_update", assert.raises("value", s, -1).argument)
    assert.raises("value", ty.lr_scheduler.CosineScheduler(10), 0 / 0)
  end)

  it("name the class to register", function()
    local registering = { [ty.optimizer.register] = ty.optimizer.Optimizer,
      [ty.init.register] = ty.init.Initializer, [ty.metric.register] = ty.metric.EvalMetric,
      [ty.kv.register] = ty.kv.KVStoreBase }
    for register, base in pairs(registering) do
      for _, kind in ipairs{ 3, "x", {}, ty.nd.ones{ 1 }, ty.mod.Module } do
        assert.equal("kind", assert.raises("type", register, kind).argument)
      end
      assert.equal("kind", assert.raises("type", register).argument)
      assert.equal("name", assert.raises("type", register, base:extend("Mine"), 3).argument)
    end
  end)

  it("are none where Ftrl gets its options by position", function()
    local o = ty.optimizer.Ftrl(0.5, 0.2, 2)
    assert.same({ 0.5, 0.2, 2 }, { o.lamda1, o.lr, o.beta })
    assert.equal(0.1, ty.optimizer.Ftrl().lr)
  end)
end)

describe("clip_global_norm", function()
  it("makes arrays together no longer than a limit, wherever they are", function()
    local a, b = ty.nd.array{ 3, 0 }, ty.nd.array({ 4 }, { ctx = ty.cpu(1) })
    assert.near(5, ty.optimizer.clip_global_norm({ a, ty.null, b }, 1), 1e-6)
    assert.near({ 0.6, 0 }, a, 1e-6)
    assert.near({ 0.8 }, b, 1e-6)
    local length = ty.optimizer.clip_global_norm{ a, b, max_norm = 2, check_isfinite = false }
    assert.near({ 1 }, length, 1e-6)
    assert.near({ 0.6, 0 }, a, 1e-6)
  end)

  it("says what it cannot do", function()
    assert.raises("value", ty.optimizer.clip_global_norm, {}, 1)
    assert.raises("value", ty.optimizer.clip_global_norm, { ty.nd.ones(1) }, 0)
    assert.raises("type", ty.optimizer.clip_global_norm, { 3 }, 1)
  end)
end)

describe("container", function()
  it("gives back what it was given, and equal bytes for equal values", function()
    local value = { 1, "two", { three = 3.5, yes = true, none = ty.null },
      [0] = -1 / 0, [2.5] = "" }
    local bytes = container.encode(value)
    local back = container.decode(bytes, "spec")
    assert.same(value, back)
    assert.equal(bytes, container.encode(back))
    local x = ty.nd.array({ { 1, 2 }, { 3, 4 } }, { dtype = "float16" })
    local y = container.decode(container.encode{ x }, "spec")[1]
    assert.same({ x.dtype, x.shape, x:totable() }, { y.dtype, y.shape, y:totable() })
  end)

  it("refuses what it cannot keep", function()
    local loop = {}
    loop[1] = loop
    assert.raises("value", container.encode, loop)
    assert.raises("type", container.encode, { print })
    assert.raises("type", container.encode, { ty.cpu() })
  end)
end)
