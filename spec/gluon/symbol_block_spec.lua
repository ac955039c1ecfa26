-- Blocks made of symbols.

local blocks = require "spec.support.blocks"
local ty = require "tycho"
local device = require "spec.support.device"
local folder = require "spec.support.folder"

local autograd, gluon, nd, sym = ty.autograd, ty.gluon, ty.nd, ty.sym
local SymbolBlock = gluon.SymbolBlock

local function two_layers()
  local x = sym.Variable("data")
  local h = sym.FullyConnected{ x, num_hidden = 4, name = "fc1" }
  local a = sym.Activation{ h, act_type = "tanh", name = "act1" }
  return x, a, sym.FullyConnected{ a, num_hidden = 2, name = "fc2" }
end

local function names(net)
  return net:collect_params():keys()
end


describe("a block of a symbol", function()
  setup(device.leave)                                    -- contexts are CPUs by name
  teardown(device.come_back)

  it("has the symbol's other variables as parameters, with shapes of the first call", function()
    local x, a, y = two_layers()
    local net = SymbolBlock({ y, a }, { x })
    assert.same({ "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias" }, names(net))
    assert.is_nil(net:collect_params()["fc1_weight"].shape)
    net:initialize()
    local p, q = net(nd.ones{ 3, 5 })
    assert.shape({ 3, 2 }, p)
    assert.shape({ 3, 4 }, q)
    assert.same({ 4, 5 }, net:collect_params()["fc1_weight"].shape)
    assert.equal("", net.prefix)
  end)

  it("shares parameters with others, and has gradients", function()
    local x, a, y = two_layers()
    local net = SymbolBlock(y, x)
    net:initialize()
    local d = blocks.numbers{ 3, 5 }
    net(d)
    local part = SymbolBlock(a, x, { params = net:collect_params() })
    assert.equal(net:collect_params()["fc1_weight"], part:collect_params()["fc1_weight"])
    assert.shape({ 3, 4 }, part(d))
    for _, active in ipairs{ false, true } do
      net:hybridize(active)
      d:attach_grad()
      local out = autograd.record(function() return net(d):sum() end)
      out:backward()
      assert.is_true(d.grad:abs():sum():asscalar() > 0)
    end
  end)

  it("keeps auxiliary states out of gradients", function()
    local x = sym.Variable("data")
    local net = SymbolBlock(sym.BatchNorm{ x, name = "bn" }, x)
    local d = net:collect_params()
    assert.same({ "bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var" }, d:keys())
    assert.equal("null", d["bn_moving_mean"].grad_req)
    net:initialize()
    autograd.record(function() return net(blocks.numbers{ 4, 3 }) end):backward()
    assert.is_true((d["bn_moving_var"]:data() - 1):abs():sum():asscalar() > 0)
    assert.raises("state", d["bn_moving_var"].grad, d["bn_moving_var"])
  end)

  it("is part of other blocks", function()
    local x, _, y = two_layers()
    local net = SymbolBlock(y, x)
    net:initialize()
    local Outer = gluon.HybridBlock:extend("Outer")
    function Outer:init() self.inner = net end
    function Outer:forward(v) return self.inner(v) * 2 end
    local outer, d = Outer(), blocks.numbers{ 3, 5 }
    local want = net(d) * 2
    assert.near(want, outer(d))
    outer:hybridize()
    assert.near(want, outer(d))
    assert.equal(4, outer:collect_params():len())
  end)

  it("takes variables as inputs, all of them, and symbols only", function()
    local x, a, y = two_layers()
    assert.raises("value", SymbolBlock, y, a)
    assert.raises("name", SymbolBlock, y, sym.Variable("other"))
    assert.raises("type", SymbolBlock, y, nd.ones{ 1 })
    assert.raises("type", SymbolBlock, 3, x)
    local net = SymbolBlock(y, x)
    net:initialize()
    assert.raises("value", net, nd.ones{ 1, 5 }, nd.ones{ 1, 5 })
  end)

  it("names an input that is no array", function()
    local p, q = sym.Variable("p"), sym.Variable("q")
    local net, x = SymbolBlock(p + q, { p, q }), nd.ones{ 2 }
    assert.matches("'q'", tostring(assert.raises("type", net, x, { x })))
    assert.matches("'q'", tostring(assert.raises("type", net, x, nil)))
    assert.matches("'p'", tostring(assert.raises("type", net, nil, x)))
  end)

  it("is shown with its symbol and the numbers of inputs and outputs", function()
    local x, a, y = two_layers()
    assert.equal("SymbolBlock(\n<Symbol fc2> : 1 -> 1\n)", tostring(SymbolBlock(y, x)))
    assert.equal("SymbolBlock(\n<Symbol group [fc2, act1]> : 1 -> 2\n)",
      tostring(SymbolBlock({ y, a }, x)))
  end)

  -- Inner symbols are made first and run last.
  it("runs after layers that a forward calls before it", function()
    local Net = gluon.HybridBlock:extend("Net")
    function Net:init()
      local x, _, y = two_layers()
      self.inner = SymbolBlock(y, x)
      self.first = gluon.nn.Dense{ 3, in_units = 3 }
    end
    function Net:forward(x)
      return self.inner(self.first(x))
    end
    local net, x = Net(), blocks.numbers{ 2, 3 }
    net:initialize()
    local plain = net(x)
    net:hybridize()
    assert.near(plain, net(x), 1e-6)
    local d = sym.Variable("d")
    local composed = net.inner(d){ d = gluon.nn.Flatten()(sym.Variable("data")) }
    assert.shape({ 2, 2 }, SymbolBlock(composed, sym.Variable("data"),
      { params = net.inner:collect_params() })(x))
  end)

  -- The names of parameters contain the number of the network.
  it("is saved in one network and loaded in another of its class", function()
    local Net = gluon.HybridBlock:extend("Net")
    function Net:init()
      local body = gluon.nn.HybridSequential()
      body:name_scope(function()
        body:add(gluon.nn.Dense{ 3, in_units = 2 }, gluon.nn.BatchNorm{ in_channels = 3 })
      end)
      local x = sym.Variable("data")
      self.inner = SymbolBlock(body(x), x, { params = body:collect_params() })
    end
    function Net:forward(x)
      return self.inner(x)
    end
    local a, b, path = Net(), Net(), os.tmpname()
    a:initialize{ init = ty.init.Uniform(1) }
    a:save_parameters(path)
    local _, keys = nd.load(path)
    table.sort(keys)
    assert.same({ "inner.batchnorm0_beta", "inner.batchnorm0_gamma",
      "inner.batchnorm0_running_mean", "inner.batchnorm0_running_var", "inner.dense0_bias",
      "inner.dense0_weight" }, keys)
    b:load_parameters(path)
    local x = blocks.numbers{ 4, 2 }
    assert.near(a(x), b(x), 1e-6)
    local whole = {}                                     -- as older files have them
    for name, p in a:collect_params():items() do
      whole["inner." .. name] = p:data()
    end
    nd.save(path, whole)
    a:load_parameters(path)
    a.inner:save_parameters(path)
    a.inner:load_parameters(path)
    os.remove(path)
  end)

  it("runs loops and choices, those of other engines' files too", function()
    local x, w = sym.Variable("data"), sym.Variable("w", { shape = { 1, 2 } })
    local rows, sums = sym.contrib.foreach(function(row, s)
      local y = sym.broadcast_mul(row, w) + s
      return { y, sym.BatchNorm{ y, name = "bn", fix_gamma = false } }, y
    end, x, sym.zeros{ 2, 2 })
    local steps, last = sym.contrib.while_loop{ cond = function(v) return sym.sum(v):lt(40) end,
      func = function(v) return v * 2, v * 2 end, loop_vars = sums, max_iterations = 4 }
    local choice = sym.contrib.cond(sym.sum(last):gt(0), function()
      return { last * 3, sym.ones{ 1 } }
    end, function()
      return { last, sym.zeros{ 1 } }
    end)
    local outputs = { rows[1], rows[2], steps, last, choice[1], choice[2] }
    local data = nd.array{ { { 1, 2 }, { 3, 4 } }, { { 5, 6 }, { 1, 0 } } }
    local text = sym.Group(outputs):tojson()
    local exe = sym.Group(outputs):simple_bind{ data = { 2, 2, 2 }, w = { 1, 2 } }
    exe.arg_dict.data[":"], exe.arg_dict.w[":"], exe.arg_dict.bn_gamma[":"] = data, 0.5, 1
    exe.aux_dict.bn_moving_var[":"] = 1
    exe:forward{ is_train = true }
    exe:backward(exe.outputs)
    for _, s in ipairs{ sym.Group(outputs), sym.load_json(text) } do
      local net = SymbolBlock(s, { x })
      net:initialize{ init = "ones" }
      local params = net:collect_params()
      params["w"]:set_data(nd.full({ 1, 2 }, 0.5))
      params["bn_beta"]:set_data{ 0, 0 }
      params["bn_moving_mean"]:set_data{ 0, 0 }
      data:attach_grad()
      local got = autograd.record(function() return { net(data) } end)
      for i, y in ipairs(exe.outputs) do assert.near(y, got[i], 1e-5) end
      local heads = { unpack(exe.outputs, 1, 5) }        -- the sixth is a constant
      autograd.backward({ unpack(got, 1, 5) }, heads)
      assert.near(exe.grad_dict.data, data.grad, 1e-4)
      assert.near(exe.grad_dict.w, params["w"]:grad(), 1e-4)
      assert.near(exe.aux_dict.bn_moving_mean, params["bn_moving_mean"]:data(), 1e-6)
    end
  end)

  it("draws when a forward calls it", function()
    local x = sym.Variable("data")
    local inner = SymbolBlock(sym.Dropout{ x, p = 0.5, name = "drop" }, x)
    local Net = gluon.HybridBlock:extend("Net")
    function Net:init()
      self.inner = inner
    end
    function Net:forward(data)
      local noise = ty.F.Dropout{ data, p = 0.5 }
      return noise, self.inner(data)
    end
    local net, results = Net(), {}
    for i, active in ipairs{ false, true } do
      net:hybridize(active)
      ty.random.seed(3)
      local noise, y = autograd.train_mode(function() return net(nd.ones{ 20 }) end)
      results[i] = { noise:totable(), y:totable() }
    end
    assert.same(results[1], results[2])
  end)

  it("comes from files of a network with a constant, of which a block without values has none",
      function()
    local Net = gluon.HybridBlock:extend("Net")
    function Net:init()
      self.scale = self.params:get_constant("scale", nd.array{ 1, 2, 3 })
      self.fc = gluon.nn.Dense(2, { in_units = 3 })
    end
    function Net:forward(x)
      return self.fc(ty.F.broadcast_mul(x, ty.F.reshape(self.scale:data(x), { shape = { 1, 3 } })))
    end
    local net, x = Net(), nd.array{ { 1, -1, 2 } }
    net:initialize()
    net:hybridize()
    local want = net(x):totable()
    folder.with(function(dir)
      local graph, weights = net:export(dir .. "/net")
      assert.same(want, SymbolBlock.imports(graph, "data", weights)(x):totable())
      local empty = SymbolBlock.imports(graph, "data")
      empty:initialize{ init = "ones" }
      assert.near(nd.array{ { 3, 3 } }, empty(nd.ones{ 1, 3 }) - 1)
    end)
  end)

  it("has nothing of what a script set for training, nor of its initializers", function()
    local net = gluon.nn.HybridSequential()
    net:add(gluon.nn.Dense{ 2, in_units = 3, bias_initializer = "zeros" })
    net[1].weight.lr_mult, net[1].weight.wd_mult = 0, 0.5
    net:initialize()
    net:hybridize()
    net(nd.ones{ 1, 3 })
    folder.with(function(dir)
      local graph, weights = net:export(dir .. "/net")
      for _, other in ipairs{ SymbolBlock.imports(graph, "data", weights),
          SymbolBlock.imports(graph, "data") } do
        for _, p in other:collect_params():items() do
          assert.same({ 1, 1 }, { p.lr_mult, p.wd_mult })
          assert.is_nil(p.init)
        end
        other:initialize{ init = ty.init.Constant(3), force_reinit = true }
        for _, p in other:collect_params():items() do
          assert.near(nd.full(p.shape, 3), p:data())
        end
      end
    end)
  end)

  it("that is cast to a half type keeps what normalizations need in float32", function()
    local bodies = { gluon.nn.BatchNorm, gluon.nn.BatchNormReLU, gluon.contrib.nn.SyncBatchNorm }
    for _, Norm in ipairs(bodies) do
      local body = gluon.nn.HybridSequential{ prefix = "net_" }
      body:name_scope(function()
        body:add(gluon.nn.Dense{ 3, in_units = 2 }, Norm{ in_channels = 3, prefix = "norm_" })
      end)
      local x = sym.Variable("data")
      local net = SymbolBlock(body(x), x)
      net:initialize()
      for _, dtype in ipairs{ "float16", "bfloat16", "float64", "float32" } do
        net:cast(dtype)
        for name, p in net:collect_params():items() do
          local kept = dtype:match("float16") and name:match("norm_")
          assert.equal(kept and "float32" or dtype, p.dtype)
        end
        assert.equal(dtype, net(nd.ones({ 4, 2 }, { dtype = dtype })).dtype)
      end
    end
  end)

  it("comes from files of a checkpoint", function()
    local _, _, y = two_layers()
    local path = os.tmpname()
    local args = { fc1_weight = blocks.numbers{ 4, 5 }, fc1_bias = blocks.numbers{ 4 },
      fc2_weight = blocks.numbers{ 2, 4 }, fc2_bias = blocks.numbers{ 2 } }
    ty.model.save_checkpoint(path, 1, y, args, {})
    local net = SymbolBlock.imports(path .. "-symbol.json", { "data" }, path .. "-0001.params")
    assert.same({ 4, 5 }, net:collect_params()["fc1_weight"].shape)
    assert.shape({ 2, 2 }, net(nd.ones{ 2, 5 }))
    local e = assert.raises("name", SymbolBlock.imports, path .. "-symbol.json", "input",
      path .. "-0001.params")
    assert.equal("input", e.argument)
    args.fc2_bias = nil
    ty.model.save_checkpoint(path, 1, y, args, {})
    e = assert.raises("name", SymbolBlock.imports, path .. "-symbol.json", "data",
      path .. "-0001.params")
    assert.same({ "fc2_bias" }, e.missing)
    net = SymbolBlock.imports(path .. "-symbol.json", "data", path .. "-0001.params",
      { allow_missing = true })
    assert.raises("state", net, nd.ones{ 2, 5 })
    net = SymbolBlock.imports(path .. "-symbol.json", "data")
    assert.raises("state", net, nd.ones{ 2, 5 })
    assert.raises("io", SymbolBlock.imports, path .. "-none.json", "data")
    for _, name in ipairs{ path, path .. "-symbol.json", path .. "-0001.params" } do
      os.remove(name)
    end
  end)
end)
