-- Parameters, constants and dictionaries of them.

local blocks = require "spec.support.blocks"
local ty = require "tycho"
local device = require "spec.support.device"

local autograd, gluon, init, nd = ty.autograd, ty.gluon, ty.init, ty.nd
local Parameter, ParameterDict = gluon.Parameter, gluon.ParameterDict


describe("the shape of a parameter", function()
  it("is written as an array's, with ? for an unknown size", function()
    local p = ty.gluon.Parameter{ "w", shape = { 3, 0 }, allow_deferred_init = true }
    assert.equal("(3, ?)", tostring(p.shape))
    p.shape = { 3, 5 }
    assert.equal("(3, 5)", tostring(p.shape))
    assert.same({ 3, 5 }, p.shape)
  end)
end)


describe("a parameter", function()
  setup(device.leave)                                    -- contexts are CPUs by name
  teardown(device.come_back)

  it("has the fields that it is made with", function()
    local p = Parameter{ "w", shape = { 2, 0 }, lr_mult = 0.5, grad_req = "add", dtype = "float64" }
    assert.same({ 2, 0 }, p.shape)
    assert.same({ "w", 0.5, 1, "add", "float64" },
      { p.name, p.lr_mult, p.wd_mult, p.grad_req, p.dtype })
    assert.is_nil(p.init)
    assert.is_nil(Parameter("x").shape)
    assert.equal("Parameter w (shape=(2, 0), dtype=float64)", tostring(p))
    assert.equal("Constant c (shape=(2,), dtype=<class 'numpy.float32'>)",
      tostring(gluon.Constant("c", { 1, 2 })))
    assert.equal("net_ (\n\n)", tostring(gluon.ParameterDict("net_")))
    assert.raises("name", function() return p.shap end)
    assert.raises("name", function() p.name = "v" end)
    assert.raises("type", function() p.lr_mult = "x" end)
  end)

  it("refuses what it cannot be", function()
    assert.raises("value", Parameter, { "w", grad_req = "some" })
    assert.raises("unsupported", Parameter, { "w", stype = "row_sparse" })
    assert.raises("unsupported", Parameter, { "w", grad_stype = "row_sparse" })
    assert.raises("name", Parameter, { "w", init = "no_such_initializer" })
    assert.raises("type", Parameter, { 3 })
  end)

  it("is E(state) before it has values, and says what to do", function()
    local p = Parameter{ "w", shape = { 2 } }
    local e = assert.raises("state", p.data, p)
    assert.equal("w", e.argument)
    assert.matches("initialize", tostring(e))
    for _, method in ipairs{ "list_data", "grad", "list_grad", "list_ctx" } do
      assert.raises("state", p[method], p)
    end
    assert.raises("state", p.set_data, p, nd.ones{ 2 })
    assert.raises("state", p.reset_ctx, p, ty.cpu())
    assert.equal("Parameter:grad", assert.raises("state", p.grad, p).func)
  end)

  it("takes arguments by name, and names the method that refuses one", function()
    local p = Parameter{ "w", shape = { 2 } }
    p:initialize{ init = "ones" }
    assert.equal(p:data(), p:data{ where = ty.cpu() })
    assert.equal(p:grad(), p:grad{ where = p:data() })
    p:cast{ dtype = "float64" }
    assert.equal("float64", p.dtype)
    for _, method in ipairs{ "data", "grad" } do
      local func = "Parameter:" .. method
      assert.equal(func, assert.raises("type", p[method], p, 3).func)
      assert.equal(func, assert.raises("device", p[method], p, ty.cpu(7)).func)
      assert.raises("name", p[method], p, { wher = ty.cpu() })
    end
    assert.raises("value", p.cast, p)
    assert.raises("value", p.set_data, p)
    assert.raises("type", p.set_data, p, { data = nd.ones{ 2 } })
  end)

  it("is filled by its own initializer, or by the given one", function()
    local p = Parameter{ "w", shape = { 2 }, init = "ones" }
    p:initialize{ default_init = init.Constant(3) }
    assert.near({ 1, 1 }, p:data())
    p:initialize{ init = init.Constant(4), force_reinit = true }
    assert.near({ 4, 4 }, p:data())
    local q = Parameter{ "anything", shape = { 2 } }
    q:initialize{ default_init = init.Constant(3) }
    assert.near({ 3, 3 }, q:data())
  end)

  it("is filled by initializers that go by names, too", function()
    local d = ParameterDict("n_")
    d:get("weight", { shape = { 2 } })
    d:get("bias", { shape = { 2 } })
    d:initialize{ init = init.Mixed({ ".*bias", ".*" }, { init.Zero(), init.Constant(2) }) }
    assert.near({ 2, 2 }, d["n_weight"]:data())
    assert.near({ 0, 0 }, d["n_bias"]:data())
    d:initialize{ init = init.Load{ n_weight = nd.array{ 5, 6 }, n_bias = nd.array{ 7, 8 } },
      force_reinit = true }
    assert.near({ 5, 6 }, d["n_weight"]:data())
    assert.near({ 7, 8 }, d["n_bias"]:data())
  end)

  it("is filled by a class of one's own", function()
    local Two = init.Initializer:extend("Two")
    function Two._init_weight(_, _, x) x:fill(2) end
    local p = Parameter{ "w", shape = { 2 }, init = Two() }
    p:initialize()
    assert.near({ 2, 2 }, p:data())
  end)

  it("stays as it is when it is initialized again", function()
    local p = Parameter{ "w", shape = { 2 } }
    p:initialize{ init = "ones" }
    local x = p:data()
    p:initialize{ init = "zeros" }
    assert.equal(x, p:data())
    assert.near({ 1, 1 }, x)
  end)

  it("waits for its shape, if it may", function()
    local p = Parameter{ "w", shape = { 0, 2 }, allow_deferred_init = true }
    p:initialize{ ctx = ty.cpu(1) }
    assert.raises("state", p.data, p)
    assert.same({ ty.cpu(1) }, p:list_ctx())
    p.shape = { 3, 2 }
    assert.raises("shape", function() p.shape = { 4, 2 } end)
    assert.raises("shape", function() p.shape = { 3, 0 } end)
    assert.raises("type", function() p.shape = "x" end)
    local q = Parameter{ "w", shape = { 0, 2 } }
    assert.raises("shape", q.initialize, q)
    assert.raises("type", q.initialize, q, { ctx = "cpu" })
  end)

  it("is a variable with a gradient, as its request says", function()
    local p = Parameter{ "w", shape = { 2 } }
    p:initialize{ init = "ones" }
    local function back()
      local y = autograd.record(function() return p:data() * 3 end)
      y:backward()
    end
    back()
    assert.near({ 3, 3 }, p:grad())
    assert.equal(p:data().grad, p:grad())
    p:zero_grad()
    assert.near({ 0, 0 }, p:grad())
    p.grad_req = "add"
    back()
    back()
    assert.near({ 6, 6 }, p:list_grad()[1])
    p.grad_req = "null"
    assert.raises("state", p.grad, p)
    assert.raises("state", p.list_grad, p)
    p.grad_req = "write"
    assert.near({ 0, 0 }, p:grad())
    assert.raises("value", function() p.grad_req = "none" end)
    local q = Parameter{ "w", shape = { 2 }, differentiable = false }
    q.grad_req = "write"
    assert.equal("null", q.grad_req)
  end)

  it("takes values and keeps its gradient, also while recording", function()
    local p = Parameter{ "w", shape = { 2 } }
    p:initialize{ init = "ones" }
    local x, g = p:data(), p:grad()
    autograd.record(function() p:set_data{ 5, 6 } end)
    assert.near({ 5, 6 }, p:data())
    assert.equal(x, p:data())
    assert.equal(g, p:grad())
    local e = assert.raises("shape", p.set_data, p, nd.ones{ 3 })
    assert.equal("w", e.argument)
  end)

  it("keeps values for later that come before its arrays", function()
    local net = blocks.Dense(2)
    net:initialize()
    net.weight:set_data(nd.ones{ 2, 3 })
    assert.raises("state", net.weight.data, net.weight)
    assert.near({ { 3, 3 } }, net(nd.ones{ 1, 3 }))
    local late = blocks.Dense(2)
    late:initialize()
    assert.raises("shape", late.weight.set_data, late.weight, nd.ones{ 5, 3 })
  end)

  it("is on several devices", function()
    local p = Parameter{ "w", shape = { 2 } }
    p:initialize{ init = "ones", ctx = { ty.cpu(0), ty.cpu(1) } }
    assert.equal(2, #p:list_data())
    assert.equal(ty.cpu(1), p:data(ty.cpu(1)).context)
    assert.equal(p:data(ty.cpu(1)), p:data(nd.ones{ 1 }:as_in_context(ty.cpu(1))))
    assert.equal(p:data(ty.cpu(0)), p:data())
    local e = assert.raises("device", p.data, p, ty.cpu(2))
    assert.equal("w", e.argument)
    assert.raises("type", p.data, p, 3)
    ty.cpu(3):with(function() assert.raises("device", p.data, p) end)
    p:set_data{ 1, 2 }
    p:list_data()[2]:mul_(3)
    p:reset_ctx{ ty.cpu(2), ty.cpu(3) }
    assert.near({ 2, 4 }, p:data(ty.cpu(3)))
    assert.same({ ty.cpu(2), ty.cpu(3) }, p:list_ctx())
    assert.equal(ty.cpu(3), p:grad(ty.cpu(3)).context)
    p:reset_ctx(ty.cpu())
    assert.near({ 2, 4 }, p:data())
  end)

  it("changes its dtype with its gradient", function()
    local p = Parameter{ "w", shape = { 2 } }
    p:initialize{ init = "ones" }
    local y = autograd.record(function() return p:data() * 2 end)
    y:backward()
    p:cast("float64")
    assert.same({ "float64", "float64", "float64" }, { p.dtype, p:data().dtype, p:grad().dtype })
    assert.near({ 2, 2 }, p:grad())
    p.dtype = "float32"
    assert.equal("float32", p:data().dtype)
  end)

  it("has a variable that says what it knows", function()
    local p = Parameter{ "w", shape = { 2, 0 }, lr_mult = 2, init = init.Constant(3) }
    local v = p:var()
    assert.equal(v, p:data(ty.sym.Variable("x")))
    assert.equal("w", v.name)
    assert.same({ "(2, 0)", "2", "0" }, { v:attr("__shape__"), v:attr("__lr_mult__"),
      v:attr("__dtype__") })
    assert.equal(init.Constant(3):dumps(), v:attr("__init__"))
    p.shape = { 2, 4 }
    assert.equal("(2, 4)", p:var():attr("__shape__"))
  end)

  it("outlives scopes of arrays", function()
    local net = blocks.Net()
    net:initialize()
    ty.scope(function() net(nd.ones{ 1, 2 }) end)
    assert.shape({ 1, 3 }, net(nd.ones{ 1, 2 }))
  end)
end)


describe("a constant", function()
  it("has its value and no gradient", function()
    local c = gluon.Constant("c", { { 1, 2 }, { 3, 4 } })
    c:initialize{ init = "zeros" }
    assert.near({ { 0, 0 }, { 0, 0 } }, c:data())
    c:initialize{ force_reinit = true }
    assert.near({ { 1, 2 }, { 3, 4 } }, c:data())
    assert.equal("null", c.grad_req)
    c.grad_req = "write"
    assert.equal("null", c.grad_req)
    assert.equal("float64", gluon.Constant("d", nd.ones{ 1 }:astype("float64")).dtype)
    assert.shape({ 2 }, gluon.Constant{ name = "e", value = { 1, 2 } })
    assert.shape({ 1, 2 }, gluon.Constant{ "f", { { 1, 2 } } })
    assert.equal("value", assert.raises("value", gluon.Constant, "g").argument)
    assert.equal("name", assert.raises("value", gluon.Constant, nil, { 1 }).argument)
  end)
end)


describe("a dictionary of parameters", function()
  setup(device.leave)                                    -- contexts are CPUs by name
  teardown(device.come_back)

  it("keeps the order and finds by full names", function()
    local d = ParameterDict("n_")
    local b, a = d:get("b", { shape = { 1 } }), d:get{ "a", shape = { 2 } }
    assert.same({ "n_b", "n_a" }, d:keys())
    assert.same({ b, a }, d:values())
    assert.equal(a, d["n_a"])
    assert.equal(a, d:at("n_a"))
    assert.is_true(d:contains("n_a"))
    assert.is_false(d:contains("a"))
    assert.equal(2, d:len())
    local names = {}
    for name, p in d:items() do
      names[#names + 1] = name
      assert.equal(p, d[name])
    end
    assert.same(d:keys(), names)
    local e = assert.raises("name", function() return d["n_c"] end)
    assert.same({ "n_a", "n_b" }, { e.candidates[1], e.candidates[2] })
    assert.raises("name", d.at, d, "x")
    assert.raises("name", function() return d[1] end)
    assert.raises("state", function() d.x = a end)
    assert.matches("^n_ %(\n  Parameter n_b", tostring(d))
  end)

  it("prefers its methods to parameters of these names", function()
    local d = ParameterDict()
    local p = d:get("keys")
    assert.is_function(d.keys)
    assert.equal(p, d:at("keys"))
  end)

  it("merges what is known of a parameter", function()
    local d = ParameterDict()
    local p = d:get("w", { shape = { 0, 3 } })
    assert.equal(p, d:get("w", { shape = { 5, 0 } }))
    assert.same({ 5, 3 }, p.shape)
    assert.equal(p, d:get("w"))
    assert.equal("shape", assert.raises("value", d.get, d, { "w", shape = { 4, 3 } }).argument)
    assert.raises("value", d.get, d, { "w", shape = { 5 } })
    assert.equal("dtype", assert.raises("value", d.get, d, { "w", dtype = "float64" }).argument)
    d:get("v", { init = init.Constant(1) })
    assert.equal("v", d:get("v", { init = init.Constant(1) }).name)
    assert.raises("value", d.get, d, { "v", init = init.Constant(2) })
    assert.raises("name", d.get, d, { "v", shap = { 1 } })
  end)

  it("finds shared ones", function()
    local d = ParameterDict("n_")
    local p = d:get("w")
    local s = ParameterDict("n_", { shared = d })
    assert.is_false(s:contains("n_w"))
    assert.equal(p, s:get("w"))
    assert.is_true(s:contains("n_w"))
    assert.equal("n_v", s:get("v").name)
    assert.is_false(d:contains("n_v"))
    assert.raises("type", ParameterDict, "n_", { shared = 3 })
  end)

  it("has constants", function()
    local d = ParameterDict("n_")
    local c = d:get_constant("c", { 1, 2 })
    assert.equal(c, d:get_constant("c"))
    assert.equal(c, d:get_constant("c", { 1, 2 }))
    assert.equal(c, d:get_constant{ "c", value = nd.array{ 1, 2 } })
    assert.raises("value", d.get_constant, d, "c", { 1, 3 })
    assert.raises("name", d.get_constant, d, "x")
    d:get("w")
    assert.raises("value", d.get_constant, d, "w", { 1 })
  end)

  it("takes those of another one, all or none", function()
    local a, b, c = ParameterDict(), ParameterDict(), ParameterDict()
    a:get("x")
    b:update(a)
    assert.equal(a["x"], b["x"])
    c:get("v")
    c:get("x")
    assert.raises("name", b.update, b, c)
    assert.is_false(b:contains("v"))
    assert.raises("type", b.update, b, {})
  end)

  it("does things to all of them", function()
    local d = ParameterDict()
    d:get("w", { shape = { 2 } })
    d:get("b", { shape = { 2 }, init = "zeros" })
    d:initialize{ init = "ones", ctx = { ty.cpu(0), ty.cpu(1) } }
    assert.near({ 1, 1 }, d["w"]:data())
    assert.near({ 0, 0 }, d["b"]:data())
    assert.same({ ty.cpu(0), ty.cpu(1) }, d:list_ctx())
    d:setattr("grad_req", "null")
    assert.equal("null", d["b"].grad_req)
    d:setattr("grad_req", "write")
    d:zero_grad()
    d:reset_ctx(ty.cpu(2))
    assert.same({ ty.cpu(2) }, d:list_ctx())
    assert.raises("name", d.setattr, d, "colour", 3)
    d:setattr{ field = "lr_mult", value = 2 }
    assert.equal(2, d["w"].lr_mult)
    d:setattr("init", nil)
    assert.is_nil(d["b"].init)
    assert.raises("value", d.setattr, d)
    assert.raises("type", d.setattr, d, 3, 4)
  end)
end)
