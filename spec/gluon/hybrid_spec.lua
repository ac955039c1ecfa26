-- Hybrid blocks: traces, their replay, deferred shapes, export.

local blocks = require "spec.support.blocks"
local ty = require "tycho"

local autograd, F, gluon, nd, sym = ty.autograd, ty.F, ty.gluon, ty.nd, ty.sym
local HybridBlock, Dense, Net = gluon.HybridBlock, blocks.Dense, blocks.Net

-- Returns a class whose forward is f(self, ...).
local function of(f, init)
  local Class = HybridBlock:extend("Own")
  Class.init, Class.forward = init, f
  return Class
end

-- Compares values and gradients of a net on x, hybridized and not.
local function compare(net, x)
  local values = {}
  for i, active in ipairs{ false, true } do
    net:hybridize(active)
    x:attach_grad()
    net:zero_grad()
    local y = autograd.record(function() return net(x) end)
    y:backward()
    values[i] = { y, x.grad:copy() }
    for _, p in ipairs(net:collect_params():values()) do
      if p.grad_req ~= "null" then
        table.insert(values[i], p:grad():copy())
      end
    end
  end
  for k = 1, #values[1] do
    assert.near(values[1][k], values[2][k], 1e-6)
  end
end


describe("a hybrid block", function()
  it("gives symbols for symbols", function()
    ty.name.NameManager():with(function()
      local y = Net()(sym.Variable("x"))
      assert.same({ "x", "net0_dense0_weight", "net0_dense0_bias", "net0_dense1_weight",
        "net0_dense1_bias" }, ({ y:list_arguments() })[1])
      assert.equal("net0_dense1_fwd", y.name)
    end)
  end)

  it("gives the same values and gradients when it is hybridized", function()
    local net = Net()
    net:initialize()
    net(nd.ones{ 2, 5 })
    blocks.fill(net)
    compare(net, blocks.numbers{ 2, 5 })
    compare(net, blocks.numbers{ 7, 5 })
  end)

  it("infers what parameters wait for, hybridized or not", function()
    for _, active in ipairs{ true, false } do
      local net = Net()
      net:hybridize(active)
      assert.equal(net.a.weight.name, assert.raises("state", net, nd.ones{ 2, 6 }).argument)
      net:initialize()
      net(nd.ones{ 2, 6 })
      assert.same({ 4, 6 }, net.a.weight.shape)
      assert.same({ 3, 4 }, net.b.weight:data().shape)
    end
  end)

  it("names the parameter whose shape does not follow from the inputs", function()
    local Odd = of(function(self, x) return x + F.sum(self.w:data(x)) end, function(self)
      self.w = self.params:get("w", { shape = { 0 }, allow_deferred_init = true })
    end)
    local net = Odd()
    net:initialize()
    assert.equal(net.w.name, assert.raises("shape", net, nd.ones{ 1 }).argument)
  end)

  it("runs forward once, until something changes", function()
    local n = 0
    local Counted = of(function(self, x) n = n + 1 return self.fc(x) end, function(self)
      self.fc = Dense(2, 3)
    end)
    local net = Counted()
    net:initialize()
    net:hybridize()
    local x = nd.ones{ 1, 3 }
    net(x)
    net(nd.ones{ 4, 3 })
    autograd.record(function() return net(x) end)
    assert.equal(1, n)
    net:hybridize()
    net(x)
    assert.equal(2, n)
    net.fc = Dense(2, 3)
    net:initialize()
    net(x)
    assert.equal(3, n)
    net:cast("float64")
    net(x:astype("float64"))
    assert.equal(4, n)
    net:hybridize(false)
    net(x:astype("float64"))
    net(x:astype("float64"))
    assert.equal(6, n)
  end)

  it("forgets its trace when a child of a child comes", function()
    local outer, inner = of(function(self, x) return self.inner(x) end)(),
      of(function(self, x)
        for _, child in ipairs(self:children()) do
          x = child.block(x)
        end
        return x
      end)()
    outer.inner = inner
    outer:initialize()
    outer:hybridize()
    assert.shape({ 1, 3 }, outer(nd.ones{ 1, 3 }))
    inner:register_child(Dense(5, 3))
    outer:initialize()
    assert.shape({ 1, 5 }, outer(nd.ones{ 1, 3 }))
  end)

  it("has the operators that are methods of arrays, traced or not", function()
    local Methods = of(function(_, x)
      return x:erf(), x:dot(x:transpose()), x:hard_sigmoid{ alpha = 0.5 },
        x:broadcast_add(x:cumsum(1)), x:SliceChannel{ num_outputs = 2, axis = 1 }[2]
    end)
    local x, want = nd.array{ { 1, 2 }, { 3, 4 } }, nil
    for _, active in ipairs{ false, true } do
      local net = Methods()
      net:hybridize(active)
      local got = { net(x) }
      assert.equal(5, #got)
      for i, y in ipairs(want or {}) do assert.near(y, got[i]) end
      want = got
    end
    assert.near({ { 5, 11 }, { 11, 25 } }, want[2])
    assert.raises("name", function() return sym.Variable("a").erf end)
  end)

  it("has copies and splits as methods, traced or not", function()
    local Parts = of(function(_, x)
      local a = x:split_v2({ 1 }, 1)
      local b = x:split_v2{ 2, axis = 1, squeeze_axis = true }
      return a[1], a[2]:copy(), b[2], x:split_v2(2, { axis = 1 })[1]
    end)
    for _, active in ipairs{ false, true } do
      local net = Parts()
      net:hybridize(active)
      local a, b, c, d = net(nd.array{ { 1, 2 }, { 3, 4 } })
      assert.near({ { 1 }, { 3 } }, a)
      assert.near({ { 2 }, { 4 } }, b)
      assert.near({ 2, 4 }, c)
      assert.near({ { 1 }, { 3 } }, d)
    end
  end)

  it("takes lists and nil, and gives several results", function()
    local Many = of(function(_, x, list, none)
      assert(none == nil)
      return x + list[1], { list[1] * 2, list[2][1] }, nil, x
    end)
    for _, active in ipairs{ false, true } do
      local net = Many()
      net:hybridize(active)
      local one, two, three = nd.array{ 1 }, nd.array{ 2 }, nd.array{ 3 }
      local n, a, b, c, d = (function(...) return select("#", ...), ... end)(
        net(one, { two, { three } }, nil))
      assert.equal(4, n)
      assert.near({ 3 }, a)
      assert.near({ 4 }, b[1])
      assert.near({ 3 }, b[2])
      assert.is_nil(c)
      assert.near({ 1 }, d)
    end
  end)

  it("traces again for another structure of arguments", function()
    local n = 0
    local Maybe = of(function(_, x, y)
      n = n + 1
      return y and x + y or x
    end)
    local net = Maybe()
    net:hybridize()
    local x = nd.array{ 1 }
    assert.near({ 1 }, net(x))
    assert.near({ 2 }, net(x, x))
    assert.near({ 1 }, net(x, nil))
    assert.near({ 2 }, net(x, x))
    assert.equal(3, n)
  end)

  it("refuses what it cannot trace", function()
    local net = Net()
    net:initialize()
    for _, active in ipairs{ false, true } do
      net:hybridize(active)
      assert.raises("type", net, "text")
      assert.raises("type", net)
      assert.raises("type", net, nil)
      assert.raises("type", net, sym.Variable("a"), nd.ones{ 1 })
    end
    assert.raises("type", net, nd.ones{ 1, 2 }, 3)
    assert.raises("device", net, nd.ones{ 1, 2 }, nd.ones{ 1 }:as_in_context(ty.cpu(1)))
    local Number = of(function() return 3 end)
    local e = Number()
    e:hybridize()
    assert.raises("type", e, nd.ones{ 1 })
    local Nothing = of(function() end)
    e = Nothing()
    e:hybridize()
    assert.raises("type", e, nd.ones{ 1 })
  end)

  it("tells in forward what symbols have not, and how to leave the trace", function()
    for _, case in ipairs{ { "shape", function(x) return x.shape end },
        { "context", function(x) return x.context end },
        { "totable", function(x) return x:totable() end },
        { "asscalar", function(x) return x:asscalar() end } } do
      local net = of(function(_, x)
        local _ = case[2](x)
        return x
      end)()
      net:hybridize()
      local e = assert.raises("unsupported", net, nd.ones{ 1 })
      assert.equal(case[1], e.argument)
      assert.matches("traced", tostring(e))
      assert.matches("hybridize%(false%)", tostring(e))
      assert.matches("Block", tostring(e))
    end
    for _, key in ipairs{ 0, 5, -1, "1:3", ":, 0", "-1", { 0, 1 } } do
      local net = of(function(_, x) return x[key] end)()
      net:hybridize()
      local e = assert.raises("unsupported", net, nd.ones{ 6, 2 })
      assert.matches("traced", e.message)
      assert.matches("slice_axis", e.message)
    end
    local halves = of(function(_, x) return F.split(x, { num_outputs = 2 })[2] end)()
    halves:hybridize()
    assert.shape({ 1, 1 }, halves(nd.ones{ 1, 2 }))
    assert.raises("name", function() return sym.Variable("a").shape end)
    assert.raises("index", function() return sym.Variable("a")[0] end)
    local typo = of(function(_, x) return x:rellu() end)()
    typo:hybridize()
    assert.equal("relu", assert.raises("name", typo, nd.ones{ 1 }).candidates[1])
  end)

  it("mixes no array into a trace", function()
    local Mixed = of(function(self, x) return F.broadcast_add(x, self.w:data()) end, function(self)
      self.w = self.params:get("w", { shape = { 1 } })
    end)
    local net = Mixed()
    net:initialize()
    net(nd.ones{ 1 })
    net:hybridize()
    local e = assert.raises("type", net, nd.ones{ 1 })
    assert.matches("data%(x%)", tostring(e))
  end)

  it("draws what its forward draws, also for results that are never read", function()
    local x, forwards = ty.nd.ones{ 4, 5 }, {
      function(_, s)
        local y = F.Dropout{ s, p = 0.5 }
        F.Dropout{ s, p = 0.5 }
        F.random.uniform{ shape = { 3 } }
        local unread = F.Dropout{ F.Dropout{ s * 2, p = 0.5 }, p = 0.5 }
        F.relu(unread)
        return y + F.Dropout{ s, p = 0.5 }
      end,
      function(_, s)
        F.random.normal{ shape = { 2 } }
        return (F.contrib.foreach(function(row)
          F.Dropout{ row * 2, p = 0.5 }
          F.random.uniform{ shape = { 2 } }
          return F.Dropout{ row, p = 0.5 }, {}
        end, s, {}))
      end,
      function(_, s)
        return F.contrib.cond(F.sum(s):gt(0), function()
          F.random.uniform{ shape = { 2 } }
          return F.Dropout{ s, p = 0.5 }
        end, function() return s end)
      end,
      function(_, s)
        local _, last = F.contrib.while_loop(function(i) return i:lt(3) end, function(i, v)
          F.Dropout{ v, p = 0.5 }
          return nil, { i + 1, F.Dropout{ v, p = 0.5 } }
        end, { F.zeros{ 1 }, s }, 5)
        return last[2]
      end,
    }
    for _, forward in ipairs(forwards) do
      for _, mode in ipairs{ "record", "predict_mode" } do
        local want
        for _, hybridized in ipairs{ false, true } do
          local net = of(forward)()
          net:hybridize(hybridized)
          local found = {}
          ty.random.seed(3)
          for i = 1, 2 do
            found[i] = ty.autograd[mode](function() return net(x) end):totable()
          end
          found[3] = ty.nd.random.uniform{ shape = { 2 } }:totable()
          want = want or found
          assert.same(want, found)
        end
      end
    end
  end)

  it("says where arrays and symbols go when they meet in a traced forward", function()
    local x = ty.nd.ones{ 2, 3 }
    for _, case in ipairs{
      { "ty%.F", function(_, s) return ty.nd.relu(s) end },
      { "ty%.F", function(_, s) return ty.nd.sum{ s, axis = 1 } end },
      { "ty%.F", function(_, s) return ty.nd.dot(x, s) end },
      { "get_constant", function(_, s) return s + x end },
      { "get_constant", function(_, s) return x * s end },
    } do
      local net = of(case[2])()
      net:hybridize()
      local e = assert.raises("type", net, x)
      assert.matches(case[1], e.message)
    end
  end)

  it("changes moving averages in training, as its forward does", function()
    local Norm = of(function(self, x)
      return F.BatchNorm{ x, self.gamma:data(x), self.beta:data(x), self.mean:data(x),
        self.var:data(x), fix_gamma = false, momentum = 0.5 }
    end, function(self)
      for _, row in ipairs{ { "gamma", "ones", "write" }, { "beta", "zeros", "write" },
          { "mean", "zeros", "null" }, { "var", "ones", "null" } } do
        self[row[1]] = self.params:get(row[1], { shape = { 0 }, init = row[2], grad_req = row[3],
          allow_deferred_init = true, differentiable = row[3] ~= "null" })
      end
    end)
    local means = {}
    for i, active in ipairs{ false, true } do
      local net = Norm()
      net:initialize()
      net:hybridize(active)
      local x = blocks.numbers{ 4, 3 }
      net(x)
      assert.near({ 0, 0, 0 }, net.mean:data())
      autograd.record(function() return net(x) end):backward()
      means[i] = net.mean:data()
      assert.is_true(means[i]:abs():sum():asscalar() > 0)
    end
    assert.near(means[1], means[2], 1e-7)
  end)

  it("draws the random numbers that its forward draws, in its order", function()
    local Noise = of(function(_, x)
      local a = F.Dropout{ x, p = 0.5 }
      local b = F.Dropout{ x * 2, p = 0.5 }
      local c = F.random.uniform{ shape = { 8 } }
      return b - a + c
    end)
    local net, x = Noise(), nd.ones{ 8 }
    local function draw(active)
      net:hybridize(active)
      ty.random.seed(7)
      return autograd.record(function() return net(x) end)
    end
    local first = draw(false)
    assert.near(first, draw(true), 0)
    assert.is_true((draw(true) - net(x)):abs():sum():asscalar() > 0)
  end)

  it("makes arrays of zeros on the inputs' device, of shapes that only these tell", function()
    local Padded = of(function(_, x) return F.concat{ x, F.zeros{ 0, 2 }, dim = 1 } end)
    local net = Padded()
    net:hybridize()
    for rows = 1, 3 do
      local y = net(nd.ones{ rows, 1 }:as_in_context(ty.cpu(1)))
      assert.shape({ rows, 3 }, y)
      assert.equal(ty.cpu(1), y.context)
    end
  end)

  it("uses results of operators that have several", function()
    local Split = of(function(_, x)
      local parts = F.split{ x, num_outputs = 3, axis = 1 }
      return parts[3] - parts[1], parts
    end)
    for _, active in ipairs{ false, true } do
      local net = Split()
      net:hybridize(active)
      local d, parts = net(nd.array{ { 1, 2, 4 } })
      assert.near({ { 3 } }, d)
      assert.equal(3, #parts)
      assert.near({ { 2 } }, parts[2])
    end
  end)

  it("runs loops over rows as Lua does", function()
    local Loop = of(function(_, x)
      local out = F.contrib.foreach(function(row, state)
        local sum = row + state
        return sum, sum
      end, x, F.zeros{ 2 })
      return out
    end)
    local net = Loop()
    local x = nd.array{ { 1, 2 }, { 3, 4 } }
    local want = net(x)
    net:hybridize()
    assert.near(want, net(x))
    assert.near({ { 1, 2 }, { 4, 6 } }, net(x))
  end)

  it("runs loops over nested lists of states as Lua does", function()
    local Loop = of(function(_, x)
      return F.contrib.foreach(function(row, states)
        local sum = row + states[1] + states[2][1]
        return { row * 2, { sum } }, { sum, { states[2][1] + 1, states[2][2] } }
      end, x, { F.zeros{ 2 }, { F.ones{ 2 }, F.ones{ 2 } * 7 } })
    end)
    for _, active in ipairs{ false, true } do
      local net = Loop()
      net:hybridize(active)
      local out, states = net(nd.array{ { 1, 2 }, { 3, 4 } })
      assert.near({ { 2, 4 }, { 6, 8 } }, out[1])
      assert.near({ { 2, 3 }, { 7, 9 } }, out[2][1])
      assert.near({ 7, 9 }, states[1])
      assert.near({ 3, 3 }, states[2][1])
      assert.near({ 7, 7 }, states[2][2])
    end
  end)

  it("runs loops with a condition without outputs, and over nested lists", function()
    local Loop = of(function(_, x)
      local _, last = F.contrib.while_loop{ cond = function(i, sums)
        return i:lt(4) + sums[1]:lt(0)
      end, func = function(i, sums)
        return nil, { i + 1, { sums[1] + i, sums[2] * 2 } }
      end, loop_vars = { x, { x * 0, x } }, max_iterations = 9, name = "loop" }
      local outs = F.contrib.while_loop{ cond = function(i) return i:lt(3) end,
        func = function(i) return { i, { i * 2 } }, i + 1 end, loop_vars = x, max_iterations = 3 }
      return last, outs
    end)
    for _, active in ipairs{ false, true } do
      local net = Loop()
      net:hybridize(active)
      local last, outs = net(nd.array{ 1 })
      assert.near({ 4 }, last[1])
      assert.near({ 6 }, last[2][1])
      assert.near({ 8 }, last[2][2])
      assert.near({ { 1 }, { 2 }, { 0 } }, outs[1])
      assert.near({ { 2 }, { 4 }, { 0 } }, outs[2][1])
    end
  end)

  it("records loops with a condition that end before their last row", function()
    local Loop = of(function(_, x)
      local outs, last = F.contrib.while_loop{ cond = function(i) return i:lt(3) end,
        func = function(i, y) return y * y, { i + 1, y * 2 } end,
        loop_vars = { F.ones{ 1 }, x }, max_iterations = 4 }
      return F.sum(outs) + last[2]
    end)
    for _, active in ipairs{ false, true } do
      local net, x = Loop(), nd.array{ 3 }
      net:hybridize(active)
      x:attach_grad()
      autograd.record(function() return net(x) end):backward()
      assert.near({ 2 * 3 + 8 * 3 + 4 }, x.grad)        -- x^2 + (2 x)^2 + 4 x
    end
  end)

  it("runs a traced forward with loops and choices no second time", function()
    local runs = 0
    local Both = of(function(self, x)
      runs = runs + 1
      local out, state = F.contrib.foreach(function(row, s)
        local y = self.fc(row) + s
        local z = F.contrib.cond(y:sum():gt(0), function() return y * 2 end,
          function() return y * F.ones{ 1, 2 } end)
        return z, y
      end, x, F.zeros{ 1, 2 })
      local _, last = F.contrib.while_loop{ cond = function(v) return F.sum(v):lt(50) end,
        func = function(v) return nil, v * 2 end, loop_vars = state, max_iterations = 20 }
      return out, last
    end, function(self)
      self.fc = gluon.nn.Dense{ 2, in_units = 3, weight_initializer = "ones" }
    end)
    local net, x = Both(), nd.array{ { { 1, 2, 3 } }, { { -9, 1, 1 } }, { { 0, 0, 4 } } }
    net:initialize()
    x:attach_grad()
    local function results()
      local a, b = autograd.record(function() return net(x) end)
      autograd.backward{ a, b }
      return { a:totable(), b:totable(), x.grad:totable(), net.fc.weight:grad():totable() }
    end
    local want = results()
    net:hybridize()
    results()
    runs = 0
    local got = results()
    assert.equal(0, runs)
    for i = 1, 4 do assert.near(want[i], got[i], 1e-6) end
  end)

  it("has zeros as outputs of a traced loop that takes no step", function()
    local Loop = of(function(_, x)
      return F.contrib.while_loop{ cond = function(i) return i:lt(0) end,
        func = function(i) return { F.broadcast_add(i, F.ones{ 2 }), i:astype("int32") }, i + 1 end,
        loop_vars = x, max_iterations = 3 }
    end)
    local net, x = Loop(), nd.array{ 1 }
    net:hybridize()
    x:attach_grad()
    local outs, last = nil, nil
    autograd.record(function() outs, last = net(x) end)
    assert.near({ { 0, 0 }, { 0, 0 }, { 0, 0 } }, outs[1])
    assert.near({ { 0 }, { 0 }, { 0 } }, outs[2])
    assert.equal("int32", outs[2].dtype)
    assert.near({ 1 }, last)
  end)

  it("makes choices of several results, with a name or without", function()
    local Choice = of(function(_, x)
      local a, b = F.contrib.cond(x:gt(0), function() return x * 2, { x } end,
        function() return x * 3, { x - 1 } end, { name = "choice" })
      return a, b[1]
    end)
    for _, active in ipairs{ false, true } do
      local net = Choice()
      net:hybridize(active)
      local a, b = net(nd.array{ 2 })
      assert.near({ 4 }, a)
      assert.near({ 2 }, b)
      a, b = net(nd.array{ -2 })
      assert.near({ -6 }, a)
      assert.near({ -3 }, b)
    end
  end)

  it("tells inputs from parameters of the same names", function()
    local Named = of(function(self, x) return x * 10 + self.w:data(x) end, function(self)
      self.w = gluon.Parameter{ "data", shape = { 1 }, init = "ones" }
    end)
    local net = Named()
    net:initialize()
    net:hybridize()
    assert.near({ 51 }, net(nd.array{ 5 }))
  end)

  it("hands an input through", function()
    local Same = of(function(_, x) return x end)
    local net, x = Same(), nd.array{ 1 }
    net:hybridize()
    assert.equal(x, net(x))
  end)

  it("has an option that shapes stay", function()
    local net = Net()
    net:initialize()
    net:hybridize{ static_alloc = true, static_shape = true }
    net(nd.ones{ 2, 3 })
    net(nd.ones{ 2, 3 })
    local e = assert.raises("shape", net, nd.ones{ 3, 3 })
    assert.matches("static_shape", tostring(e))
    for _, option in ipairs{ "inline_limit", "forward_bulk_size", "backend" } do
      assert.raises("name", net.hybridize, net, true, { [option] = 2 })
    end
  end)

  it("is called with symbols inside of another's forward", function()
    local y = of(function(self, x) return self.a(x) + 1 end, function(self) self.a = Net() end)()(
      sym.Variable("q"))
    assert.equal("q", y:list_arguments()[1])
  end)

  it("infers shapes and dtypes from examples", function()
    local net = Net()
    net:infer_shape(nd.ones{ 2, 9 })
    assert.same({ 4, 9 }, net.a.weight.shape)
    net:infer_type(nd.ones{ 2, 9 })
    assert.equal("float32", net.b.weight.dtype)
    net:infer_type(nd.ones{ 2, 9 }:astype("float64"))
    assert.equal("float64", net.a.weight.dtype)
    assert.equal("float64", net.b.bias.dtype)
    assert.raises("state", net.a.weight.data, net.a.weight)
    assert.raises("type", net.infer_shape, net)
    assert.raises("type", net.infer_type, net, 3)
  end)

  it("refuses a list in the place of one tensor, and says so", function()
    for _, hybridized in ipairs{ false, true } do
      local net = ty.gluon.nn.Dense{ 2, in_units = 3 }
      net:initialize()
      net:hybridize(hybridized)
      local x = nd.ones{ 2, 3 }
      assert.matches("is one of them a list", assert.raises("type", net, { x }).message)
      assert.matches("no list", assert.raises("type", net, { x, x }).message)
    end
  end)
end)


describe("blocks that are dropped", function()
  it("go with their parameters, traces and variables", function()
    local function work()
      local net = Net(64, 64)
      net:initialize()
      net:hybridize()
      local y = autograd.record(function() return net(nd.ones{ 8, 64 }) end)
      y:backward()
      net(sym.Variable("x"))
      gluon.Trainer(net:collect_params(), "adam"):step(8)
    end
    local function live()
      for _ = 1, 3 do
        collectgarbage()
      end
      ty.waitall()
      return ty.live().bytes
    end
    work()
    local before = live()
    for _ = 1, 50 do
      work()
    end
    assert.is_true(live() <= before + 10000, live() - before)
  end)
end)


describe("errors of hybrid blocks", function()
  -- Returns the location so many lines after the caller's.
  local function after(lines)
    return "spec/gluon/hybrid_spec.lua:" .. debug.getinfo(2, "l").currentline + lines
  end

  it("name the line in forward, also of a tail call, hybridized or not", function()
    local where
    local Tail = of(function(_, x)
      if x == nil then
        return nil
      end
      where = after(1)
      return F.broadcast_add(x, F.ones{ 7, 6 })
    end)
    for _, active in ipairs{ false, true } do
      local net = Tail()
      net:hybridize(active)
      local e = assert.raises("shape", net, nd.ones{ 2, 2 })
      assert.equal(where, e.where:match("spec/.*"))
    end
  end)

  it("name the line in forward that called a block", function()
    local where
    local Outer = of(function(self, x)
      where = after(1)
      local y = self.inner(x, x)
      return y
    end, function(self)
      self.inner = gluon.SymbolBlock(sym.Variable("d") + 1, sym.Variable("d"))
    end)
    for _, active in ipairs{ false, true } do
      local net = Outer()
      net:hybridize(active)
      local e = assert.raises("value", net, nd.ones{ 1, 3 })
      assert.equal(where, e.where:match("spec/.*"))
    end
  end)
end)


describe("lines of recorded calls", function()
  it("are found where a built-in block makes another call than the step before", function()
    local net, x = gluon.nn.HybridSequential(), nd.ones{ 2, 3 }
    net:add(gluon.nn.Dense{ 3, in_units = 3 })
    net:initialize()
    local y, line
    local function step()
      ty.autograd.record(function()
        line = "spec/gluon/hybrid_spec.lua:" .. debug.getinfo(1, "l").currentline + 1
        y = net(x)
      end)
    end
    for _ = 1, 3 do
      step()
      y:backward()
    end
    net:add(gluon.nn.Activation "sigmoid")
    step()
    y:mul_(0)
    local e = assert.raises("state", y.backward, y)
    assert.equal(line, e.where and e.where:match("spec/.*"))
  end)

  it("are those in forward, hybridized or not", function()
    local steps = require "tycho.autograd.steps"
    local line
    local function here() return debug.getinfo(2, "l").currentline end
    local Lines = of(function(_, x)
      line = here() + 1
      local y = x * 2
      return y
    end)
    for _, active in ipairs{ false, true } do
      local net, x = Lines(), nd.ones{ 1 }
      net:hybridize(active)
      x:attach_grad()
      local y = autograd.record(function()
        local inner = net(x)
        return inner + 1
      end)
      local last = steps.of(y)
      assert.matches("hybrid_spec.lua:%d+$", last.where)
      local before = steps.before({ y }, last.serial)
      assert.equal("spec/gluon/hybrid_spec.lua:" .. line, before.where:match("spec/.*"))
      assert.is_true(tonumber(last.where:match("%d+$")) > line)
    end
  end)

  it("are those in forward for what fails later, recorded or not", function()
    local bad, line = nd.array{ { 1, 2 }, { 2, 1 } }, nil
    local Factor = of(function(_, x)
      line = "spec/gluon/hybrid_spec.lua:" .. debug.getinfo(1, "l").currentline + 1
      local y = F.linalg.potrf(x)
      return y
    end)
    for _, active in ipairs{ false, true } do
      local net = Factor()
      net:hybridize(active)
      for _, run in ipairs{ function() return net(bad) end,
          function() return (autograd.record(function() return net(bad) end)) end } do
        local y = run()
        local e = assert.raises("run", y.wait_to_read, y)
        assert.equal(line, e.where:match("spec/.*"))
      end
    end
  end)
end)


describe("export", function()
  it("writes what SymbolBlock, Module and symbols load", function()
    local net = Net{ prefix = "ex_" }
    net:initialize()
    assert.raises("state", net.export, net, "x")
    net(nd.ones{ 2, 5 })
    blocks.fill(net)
    net:hybridize()
    assert.raises("state", net.export, net, "x")
    local x = blocks.numbers{ 2, 5 }
    local y = net(x)
    local path = os.tmpname()
    local symbol_file, params_file = net:export(path, { epoch = 3 })
    assert.equal(path .. "-symbol.json", symbol_file)
    assert.equal(path .. "-0003.params", params_file)
    local block = gluon.SymbolBlock.imports(symbol_file, "data", params_file)
    assert.near(y, block(x), 0)
    local mod = ty.mod.Module.load(path, 3, { label_names = {} })
    mod:bind{ data_shapes = { { "data", { 2, 5 } } }, for_training = false }
    mod:forward(ty.io.DataBatch{ data = { x } })
    assert.near(y, mod:get_outputs()[1], 1e-6)
    local _, args = ty.model.load_checkpoint(path, 3)
    assert.near(net.a.weight:data(), args.ex_dense0_weight, 0)
    for _, name in ipairs{ path, symbol_file, params_file } do
      os.remove(name)
    end
  end)
end)
