-- Files of parameters that lack some, or belong to another network: an error that lists the
-- differences, unless they are allowed.

local folder = require "spec.support.folder"
local quiet = require "spec.support.quiet"
local ty = require "tycho"

local function net(width)
  local h = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = width or 3, name = "f" }
  h = ty.sym.BatchNorm{ h, name = "bn" }
  return ty.sym.SoftmaxOutput{ h, name = "softmax" }
end

local ARGS = { f_weight = { 3, 2 }, f_bias = { 3 }, bn_gamma = { 3 }, bn_beta = { 3 } }
local AUXS = { bn_moving_mean = { 3 }, bn_moving_var = { 3 } }

-- Returns ones by name, with changes: a shape, or false for none.
local function params(shapes, changes)
  local dict = {}
  for name, shape in pairs(shapes) do
    dict[name] = ty.nd.ones(shape)
  end
  for name, shape in pairs(changes or {}) do
    dict[name] = shape and ty.nd.ones(shape) or nil
  end
  return dict
end

local SHAPES = { data_shapes = { { "data", { 4, 2 } } },
  label_shapes = { { "softmax_label", { 4 } } } }
local INFERENCE = { data_shapes = SHAPES.data_shapes, for_training = false }

-- Calls f with a prefix of a checkpoint of changed parameters.
local function with_file(arg_changes, aux_changes, f)
  folder.with(function(path)
    ty.model.save_checkpoint(path .. "/m", 1, net(), params(ARGS, arg_changes),
      params(AUXS, aux_changes))
    f(path .. "/m")
  end)
end

local function lists(e)
  return { e.missing, e.extra, e.mismatch }
end

-- arguments, auxiliary states, missing, extra, mismatch
local CASES = {
  lacking = { { f_weight = false, bn_beta = false }, {}, { "bn_beta", "f_weight" }, {}, {} },
  ["lacking a state"] = { {}, { bn_moving_var = false }, { "bn_moving_var" }, {}, {} },
  foreign = { { f_weight = false, f_bias = false, g_weight = { 1 } }, {},
    { "f_bias", "f_weight" }, { "g_weight" }, {} },
  ["with more"] = { { g_weight = { 1 } }, { g_moving_var = { 1 } }, {},
    { "g_moving_var", "g_weight" }, {} },
  ["of other shapes"] = { { f_bias = { 5 }, f_weight = { 5, 2 } }, {}, {}, {},
    { "f_bias", "f_weight" } },
}

local function check(case, e)
  assert.are.same({ case[3], case[4], case[5] }, lists(e))
  assert.are.equal((#case[3] > 0 or #case[4] > 0) and "name" or "shape", e.code)
end

describe("Module.load", function()
  for what, case in pairs(CASES) do
    it("refuses a file " .. what, function()
      with_file(case[1], case[2], function(prefix)
        if #case[5] == 0 then
          return check(case, assert.raises("name", ty.mod.Module.load, prefix, 1))
        end
        for _, options in ipairs{ SHAPES, INFERENCE } do
          local m = ty.mod.Module.load(prefix, 1)
          check(case, assert.raises("shape", m.bind, m, options))
        end
      end)
    end)
  end

  it("has init_params make what a file may lack, and keeps the rest", function()
    with_file({ f_weight = false }, { bn_moving_var = false }, function(prefix)
      for _, fit in ipairs{ false, true } do
        local m = ty.mod.Module.load(prefix, 1, { allow_missing = true, logger = quiet() })
        if fit then
          m:fit{ train_data = ty.io.NDArrayIter{ data = ty.nd.ones{ 4, 2 },
            label = ty.nd.zeros{ 4 }, batch_size = 4 }, num_epoch = 1,
            initializer = ty.init.Constant(7), optimizer_params = { learning_rate = 0 } }
        else
          m:bind(SHAPES)
          assert.raises("state", m.forward, m, { data = { ty.nd.ones{ 4, 2 } } })
          m:bind{ data_shapes = SHAPES.data_shapes, label_shapes = SHAPES.label_shapes,
            force_rebind = true }
          m:init_params{ initializer = ty.init.Constant(7) }
        end
        local args, auxs = m:get_params()
        assert.near(ty.nd.full({ 3, 2 }, 7), args.f_weight)
        assert.near(ty.nd.ones{ 3 }, args.bn_gamma)
        assert.is_true(fit or auxs.bn_moving_mean:norm():asscalar() > 1.7)
      end
      local m = ty.mod.Module.load(prefix, 1, { allow_missing = true, logger = quiet() })
      m:bind(SHAPES)
      m:init_params{ arg_params = { f_weight = ty.nd.full({ 3, 2 }, 4) }, allow_missing = true }
      assert.near(ty.nd.full({ 3, 2 }, 4), m:get_params().f_weight)
      assert.near(ty.nd.ones{ 3 }, m:get_params().bn_gamma)
    end)
  end)

  it("ignores more names where that is allowed", function()
    with_file({ g_weight = { 1 } }, { g_moving_var = { 1 } }, function(prefix)
      local m = ty.mod.Module.load(prefix, 1, { allow_extra = true })
      m:bind(SHAPES)
      assert.is_nil(m:get_params().g_weight)
      m:forward({ data = { ty.nd.ones{ 4, 2 } } }, false)
    end)
  end)

  it("refuses parameters that have no usual name when they turn out to be none of the inputs",
    function()
      folder.with(function(path)
        local w = ty.sym.Variable("scale", { shape = { 1, 2 } })
        local both = ty.sym.broadcast_mul(ty.sym.Variable("data"), w) + ty.sym.Variable("offset")
        ty.model.save_checkpoint(path .. "/m", 1, both, {})
        for _, case in ipairs{ { INFERENCE, { "scale" } },
            { { data_shapes = SHAPES.data_shapes }, { "offset", "scale" } } } do
          local m = ty.mod.Module.load(path .. "/m", 1, { label_names = {} })
          for _ = 1, 2 do
            local e = assert.raises("name", m.bind, m, case[1])
            assert.are.same({ case[2], {}, {} }, lists(e))
            assert.is_false(m.binded)
          end
        end
        ty.model.save_checkpoint(path .. "/n", 1, both, { scale = ty.nd.ones{ 1, 2 } })
        local n = ty.mod.Module.load(path .. "/n", 1, { label_names = {} })
        n:bind(INFERENCE)
        n:forward({ data = { ty.nd.ones{ 4, 2 } } }, false)
        assert.near(ty.nd.ones{ 4, 2 }, n:get_outputs()[1])
      end)
    end)

  it("takes a file under other names", function()
    with_file({ f_weight = false, old_weight = { 3, 2 } }, {}, function(prefix)
      local m = ty.mod.Module.load(prefix, 1, { rename = function(name)
        return name == "old_weight" and "f_weight" or nil
      end })
      m:bind(INFERENCE)
      assert.near(ty.nd.ones{ 3, 2 }, m:get_params().f_weight)
    end)
  end)
end)

describe("a checkpoint's file", function()
  it("is refused where an array is called neither arg: nor aux:", function()
    with_file({}, {}, function(prefix)
      local x = ty.nd.ones(1)
      for key, dict in pairs{ f_weight = { f_weight = x, ["arg:f_bias"] = x },
          ["1"] = { x } } do
        ty.nd.save(prefix .. "-0001.params", dict)
        for _, load in ipairs{ ty.model.load_checkpoint, ty.model.load_params, ty.mod.Module.load,
            ty.model.FeedForward.load } do
          assert.are.equal(key, assert.raises("format", load, prefix, 1).argument)
        end
      end
    end)
  end)
end)

describe("FeedForward.load", function()
  for what, case in pairs(CASES) do
    it("refuses a file " .. what, function()
      with_file(case[1], case[2], function(prefix)
        if #case[5] == 0 then
          return check(case, assert.raises("name", ty.model.FeedForward.load, prefix, 1))
        end
        local f = ty.model.FeedForward.load(prefix, 1, { num_epoch = 2 })
        check(case, assert.raises("shape", f.predict, f, ty.nd.ones{ 4, 2 }))
        check(case, assert.raises("shape", f.fit, f, { X = ty.nd.ones{ 4, 2 },
          y = ty.nd.zeros{ 4 } }))
      end)
    end)
  end

  it("allows what the options say", function()
    with_file({ f_weight = false, g_weight = { 1 } }, {}, function(prefix)
      local f = ty.model.FeedForward.load(prefix, 1, { allow_missing = true,
        allow_extra_params = true, num_epoch = 2, initializer = ty.init.Constant(7),
        learning_rate = 0 })
      f:fit{ X = ty.nd.ones{ 4, 2 }, y = ty.nd.zeros{ 4 } }
      assert.near(ty.nd.full({ 3, 2 }, 7), f.arg_params.f_weight)
      assert.shape({ 4, 3 }, f:predict(ty.nd.ones{ 4, 2 }))
    end)
    with_file({}, {}, function(prefix)
      assert.shape({ 4, 3 }, ty.model.FeedForward.load(prefix, 1):predict(ty.nd.ones{ 4, 2 }))
    end)
  end)
end)

local function bound(options)
  local m = ty.mod.Module{ symbol = net(), logger = quiet() }
  m:bind(options or SHAPES)
  return m
end

describe("init_params", function()
  for what, case in pairs(CASES) do
    it("refuses parameters " .. what, function()
      if what == "with more" then
        return bound():init_params{ arg_params = params(ARGS, case[1]),
          aux_params = params(AUXS, case[2]) }
      end
      local m = bound()
      local code = #case[3] > 0 and "name" or "shape"
      check(case, assert.raises(code, m.init_params, m,
        { arg_params = params(ARGS, case[1]), aux_params = params(AUXS, case[2]) }))
      assert.is_false(m.params_initialized)
    end)
  end

  it("refuses parameters of another network, even if it may initialise all", function()
    local m = bound()
    local given = { arg_params = { g_weight = ty.nd.ones{ 1 } }, allow_missing = true }
    assert.are.same({ "g_weight" }, assert.raises("name", m.init_params, m, given).extra)
    given.allow_extra = true
    m:init_params(given)
    local e = assert.raises("name", m.fit, bound(), { num_epoch = 1, arg_params = given.arg_params,
      allow_missing = true, train_data = ty.io.NDArrayIter{ data = ty.nd.ones{ 4, 2 },
        label = ty.nd.zeros{ 4 }, batch_size = 4 } })
    assert.are.same({ "g_weight" }, e.extra)
  end)
end)

describe("a SequentialModule", function()
  local function chain()
    local first = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 3, name = "f" }
    local last = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 3, name = "g" }
    local m = ty.mod.SequentialModule{ logger = quiet() }
    m:add(ty.mod.Module{ symbol = first, label_names = {} })
    m:add(ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ last, name = "softmax" } },
      { take_labels = true, auto_wiring = true })
    m:bind(SHAPES)
    return m
  end
  local OWN = { f_weight = { 3, 2 }, f_bias = { 3 }, g_weight = { 3, 3 }, g_bias = { 3 } }

  it("compares with the parameters of all its modules", function()
    local given = params(OWN, { g_bias = false, f_bias = { 4 }, h_bias = { 1 } })
    for _, method in ipairs{ "set_params", "init_params" } do
      local m = chain()
      local e = assert.raises("name", m[method], m, method == "set_params" and given
        or { arg_params = given })
      assert.are.same({ { "g_bias" }, { "h_bias" }, { "f_bias" } }, lists(e))
      m[method](m, method == "set_params" and params(OWN) or { arg_params = params(OWN) })
      assert.near(ty.nd.ones{ 3, 3 }, m:get_params().g_weight)
      assert.are.same({ "x" }, assert.raises("name", m.set_params, m,
        params(OWN, { x = { 1 } })).extra)
      m:set_params(params(OWN, { x = { 1 }, f_bias = false }), {},
        { allow_extra = true, allow_missing = true })
    end
  end)

  it("refuses a file and a saved training of another one", function()
    folder.with(function(path)
      local m = chain()
      m:init_params()
      m:init_optimizer()
      ty.nd.save(path .. "/x.params", { ["arg:f_weight"] = ty.nd.ones{ 3, 2 } })
      assert.are.same({ "f_bias", "g_bias", "g_weight" },
        assert.raises("name", m.load_params, m, path .. "/x.params").missing)
      local other = bound()
      other:init_params()
      other:init_optimizer()
      other:save_state(path .. "/x.state")
      assert.raises("state", m.load_state, m, path .. "/x.state")
      local one = ty.mod.SequentialModule{ logger = quiet() }
      one:add(ty.mod.Module{ symbol = net(5), logger = quiet() }, { take_labels = true })
      one:bind(SHAPES)
      one:init_params()
      one:init_optimizer()
      assert.are.equal("f_weight", one:get_params() and "f_weight")
      local e = assert.raises("shape", one.load_state, one, path .. "/x.state")
      assert.truthy(#e.mismatch > 0)
    end)
  end)
end)

describe("a BucketingModule", function()
  local function gen(key)
    local h = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 3, name = "f" }
    if key > 1 then
      h = ty.sym.FullyConnected{ h, num_hidden = 3, name = "g" }
    end
    return ty.sym.SoftmaxOutput{ h, name = "softmax" }, { "data" }, { "softmax_label" }
  end
  local ONE = { f_weight = { 3, 2 }, f_bias = { 3 } }
  local TWO = { f_weight = { 3, 2 }, f_bias = { 3 }, g_weight = { 3, 3 }, g_bias = { 3 } }

  local function load(keys, given, options)
    local all = { sym_dict = {}, sym_gen = gen, default_bucket_key = 1, arg_params = given,
      logger = quiet() }
    for _, key in ipairs(keys) do
      all.sym_dict[key] = gen(key)
    end
    for key, v in pairs(options or {}) do
      all[key] = v
    end
    return ty.mod.BucketingModule.load_dict(all)
  end

  it("refuses to load what lacks parameters of its symbols, or is of another network", function()
    for _, case in ipairs{
      { { 1 }, params(ONE, { f_bias = false }), { "f_bias" } },
      { { 1, 2 }, params(ONE), { "g_bias", "g_weight" } },
      { {}, params(ONE, { f_bias = false }), { "f_bias" } },
      { { 1 }, { zz = ty.nd.ones{ 1 } }, { "f_bias", "f_weight" } },
    } do
      assert.are.same(case[3], assert.raises("name", load, case[1], case[2]).missing)
    end
    local wrong = load({ 1 }, params(ONE, { f_bias = { 4 } }))
    assert.are.same({ "f_bias" }, assert.raises("shape", wrong.bind, wrong, SHAPES).mismatch)
    assert.raises("name", load, { 1 }, { ["arg:f_bias"] = ty.nd.ones{ 3 } })
    folder.with(function(path)
      local m = load({ 1 }, params(ONE))
      m:bind(SHAPES)
      m:save_checkpoint(path .. "/m", 1)
      ty.nd.save(path .. "/m-0001.params", { ["arg:f_bias"] = ty.nd.ones{ 3 } })
      local options = { prefix = path .. "/m", epoch = 1, sym_gen = gen, default_bucket_key = 1 }
      assert.are.same({ "f_weight" },
        assert.raises("name", ty.mod.BucketingModule.load, options).missing)
      options.allow_missing = true
      ty.mod.BucketingModule.load(options)
    end)
  end)

  it("keeps names for buckets that come later, and refuses a bucket without its own", function()
    local m = load({ 1 }, params(TWO))
    m:bind(SHAPES)
    m:switch_bucket(2, SHAPES.data_shapes, SHAPES.label_shapes)
    assert.near(ty.nd.ones{ 3, 3 }, m:get_params().g_weight)
    m = load({ 1 }, params(TWO, { g_weight = false }))
    m:bind(SHAPES)
    for _ = 1, 2 do
      local e = assert.raises("name", m.switch_bucket, m, 2, SHAPES.data_shapes,
        SHAPES.label_shapes)
      assert.are.same({ { "g_weight" }, {}, {} }, lists(e))
      m:forward(ty.io.DataBatch{ data = { ty.nd.ones{ 4, 2 } }, bucket_key = 1 }, false)
    end
    m = load({ 1 }, params(TWO, { g_weight = { 2, 2 } }))
    m:bind(SHAPES)
    assert.are.same({ "g_weight" }, assert.raises("shape", m.switch_bucket, m, 2,
      SHAPES.data_shapes, SHAPES.label_shapes).mismatch)
  end)

  it("initialises what it lacks where that is allowed", function()
    local m = load({ 1, 2 }, params(ONE, { f_bias = false }), { allow_missing = true })
    m:bind(SHAPES)
    m:switch_bucket(2, SHAPES.data_shapes, SHAPES.label_shapes)
    assert.near(ty.nd.ones{ 3, 2 }, m:get_params().f_weight)
    assert.is_true(m:get_params().g_weight:norm():asscalar() > 0)
  end)

  it("compares with the parameters of all bound buckets", function()
    local m = ty.mod.BucketingModule{ sym_gen = gen, default_bucket_key = 1, logger = quiet() }
    m:bind(SHAPES)
    m:init_params()
    m:switch_bucket(2, SHAPES.data_shapes, SHAPES.label_shapes)
    local e = assert.raises("name", m.set_params, m, params(TWO, { f_bias = false,
      g_bias = { 4 }, later = { 1 } }))
    assert.are.same({ { "f_bias" }, { "g_bias" } }, { e.missing, e.mismatch })
    e = assert.raises("name", m.set_params, m, params(TWO, { later = { 1 }, g_bias = { 4 } }), {},
      { allow_missing = true })
    assert.are.same({ { "later" }, { "g_bias" } }, { e.extra, e.mismatch })
  end)
end)

describe("an executor", function()
  it("lists the names and shapes that differ", function()
    local exe = net():simple_bind{ ctx = ty.cpu(), data = { 4, 2 } }
    local given = params(ARGS, { g_weight = { 1 }, f_bias = { 4 } })
    local e = assert.raises("name", exe.copy_params_from, exe, given)
    assert.are.same({ {}, { "g_weight" }, { "f_bias" } }, lists(e))
    e = assert.raises("shape", exe.copy_params_from, exe, given, {}, { allow_extra_params = true })
    assert.are.same({ "f_bias" }, e.mismatch)
    assert.are.equal(0, exe.arg_dict.f_weight:norm():asscalar())
    e = assert.raises("name", exe.copy_params_from, exe, {}, { g_moving_var = ty.nd.ones{ 1 } })
    assert.are.same({ "g_moving_var" }, e.extra)
    exe:copy_params_from({ f_bias = ty.nd.ones{ 3 } })
    assert.near(ty.nd.ones{ 3 }, exe.arg_dict.f_bias)
  end)
end)
