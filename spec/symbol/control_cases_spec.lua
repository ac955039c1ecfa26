-- Control flow as networks use it: against the same thing written out, in cells, with states that
-- it changes, in files, in modules, nested.

local ty = require "tycho"
local folder = require "spec.support.folder"

local V, contrib, Group = ty.sym.Variable, ty.sym.contrib, ty.sym.Group

-- Runs a symbol forward and backward with arrays by name; head gradients are ones. Returns outputs,
-- gradients by name and the executor.
local function train(symbol, values, heads)
  local shapes = { ctx = ty.cpu() }
  for name, x in pairs(values) do shapes[name] = x.shape end
  local exe = symbol:simple_bind(shapes)
  exe:forward{ is_train = true, args = values }
  local given = {}
  for i, out in ipairs(exe.outputs) do given[i] = heads and heads[i] or ty.nd.ones(out.shape) end
  exe:backward(given)
  return exe.outputs, exe.grad_dict, exe
end

-- Asserts that both symbols give the same outputs and gradients.
local function alike(a, b, values)
  local x, gx = train(a, values)
  local y, gy = train(b, values)
  assert.equal(#y, #x)
  for i in ipairs(y) do assert.near(y[i], x[i], 1e-6) end
  for name, g in pairs(gy) do assert.near(g, gx[name], 1e-6) end
end

local function normal(...) return ty.nd.random.normal{ shape = { ... } } end

local function number(x) return ty.nd.array{ x } end

local function nothing() end

local quiet = { debug = nothing, info = nothing, warning = nothing, error = nothing }

before_each(function() ty.random.seed(7) end)

describe("foreach", function()
  it("is a cell unrolled", function()
    local function network(loop)
      local cell = ty.rnn.LSTMCell{ num_hidden = 4, prefix = "lstm_" }
      if not loop then
        local rows = ty.sym.SliceChannel{ V("x"), num_outputs = 3, axis = 0, squeeze_axis = true }
        local list, states = {}, { V("h"), V("c") }
        for t = 1, 3 do list[t], states = cell(rows[t], states) end
        return Group{ ty.sym.stack{ list[1], list[2], list[3], axis = 0 }, states[1], states[2] }
      end
      local outs, states = contrib.foreach(function(x, states)
        return cell(x, states)
      end, V("x"), { V("h"), V("c") })
      return Group{ outs, states[1], states[2] }
    end
    alike(network(true), network(false), { x = normal(3, 2, 5), h = normal(2, 4), c = normal(2, 4),
      lstm_i2h_weight = normal(16, 5), lstm_i2h_bias = normal(16), lstm_h2h_weight = normal(16, 4),
      lstm_h2h_bias = normal(16) })
  end)

  it("takes several data, gives several outputs, and each value as often as it is named", function()
    local outs, state = contrib.foreach(function(rows, s)
      local sum = rows[1] + rows[2]
      return { sum, sum, rows[1], s }, s * 2
    end, { V("a"), V("b") }, V("s"))
    local a, b, s = normal(2, 3), normal(2, 3), normal(3)
    local y, g = train(Group{ outs[1], outs[2], outs[3], outs[4], state }, { a = a, b = b, s = s })
    assert.near(a + b, y[1])
    assert.near(a + b, y[2])
    assert.near(a, y[3])
    assert.near(ty.nd.stack{ s, s * 2 }, y[4])
    assert.near(s * 4, y[5])
    assert.near(ty.nd.full({ 2, 3 }, 3), g.a)
    assert.near(ty.nd.full({ 2, 3 }, 2), g.b)
    assert.near(ty.nd.full({ 3 }, 1 + 2 + 4), g.s)
  end)

  it("needs no states, no outputs, no data in its body", function()
    local outs = contrib.foreach(function(x) return x * 2, {} end, V("x"), {})
    local y, g = train(outs, { x = normal(3, 2) })
    assert.shape({ 3, 2 }, y[1])
    assert.near(ty.nd.full({ 3, 2 }, 2), g.x)

    local _, state = contrib.foreach(function(x, s) return {}, s + x end, V("x"), V("s"))
    y, g = train(state, { x = ty.nd.ones{ 3, 2 }, s = ty.nd.zeros{ 2 } })
    assert.near(ty.nd.full({ 2 }, 3), y[1])
    assert.near(ty.nd.ones{ 3, 2 }, g.x)

    local counts, last = contrib.foreach(function(_, s) return s * 2, s + 1 end, V("x"), V("s"))
    y, g = train(Group{ counts, last }, { x = normal(3, 2), s = ty.nd.zeros{ 2 } })
    assert.near({ { 0, 0 }, { 2, 2 }, { 4, 4 } }, y[1])
    assert.near(ty.nd.full({ 2 }, 3 * 2 + 1), g.s)
    assert.near(ty.nd.zeros{ 3, 2 }, g.x)
  end)

  it("reads values of the graph around, computed ones and its own data", function()
    local x = V("x")
    local scale = ty.sym.sum(x) * V("k")
    local outs = contrib.foreach(function(row)
      return ty.sym.broadcast_mul(row, scale) + ty.sym.sum{ x, axis = 0 }, {}
    end, x, {})
    local value, k = normal(2, 3), number(0.5)
    local y, g = train(outs, { x = value, k = k })
    local sum = value:sum():asscalar()
    assert.near(ty.nd.broadcast_add{ value * (sum * 0.5), value:sum{ axis = 0, keepdims = true } },
      y[1], 1e-5)
    assert.near({ sum * sum }, g.k, 1e-4)
    -- rows, the scale, the sum of rows twice
    assert.near(ty.nd.full({ 2, 3 }, sum * 0.5 + sum * 0.5 + 2), g.x, 1e-4)
  end)

  it("infers its data from its outputs, and states from either side", function()
    local outs, state = contrib.foreach(function(x, s) return x + s, x + s end, V("x"), V("s"))
    local net = Group{ outs + V("y"), state }
    local function shapes(given)
      local arguments, by_name = net:infer_shape(given), {}
      for i, name in ipairs(net:list_arguments()) do by_name[name] = arguments[i] end
      return by_name
    end
    local want = { x = { 5, 4, 2 }, s = { 4, 2 }, y = { 5, 4, 2 } }
    assert.same(want, shapes{ y = { 5, 4, 2 } })
    assert.same(want, shapes{ x = { 5, 4, 2 } })
    assert.same(want, shapes{ s = { 4, 2 }, y = { 5, 0, 0 } })
    assert.same({ "float64", "float64", "float64" }, (net:infer_type{ s = "float64" }))
    assert.same({ "float64", "float64", "float64" }, (net:infer_type{ y = "float64" }))
  end)

  it("refuses data with different numbers of rows", function()
    local outs = contrib.foreach(function(rows) return rows[1] + rows[2], {} end,
      { V("a"), V("b") }, {})
    for _, case in ipairs{ { { 3 }, { 5 } }, { { 3, 2 }, { 5, 2 } } } do
      local e = assert.raises("shape", function()
        outs:simple_bind{ ctx = ty.cpu(), a = case[1], b = case[2] }
      end)
      assert.equal("_foreach", e.op)
    end
  end)

  it("names the shapes of its own inputs where an operator in its body fails", function()
    local _, last = contrib.foreach(function(d, s)
      return d, { ty.sym.FullyConnected{ data = s[2], weight = V("w"), num_hidden = 3,
        no_bias = true, name = "fc" }, s[2] }
    end, V("x"), { V("a"), V("b") })
    local e = assert.raises("shape", function()
      last[1]:infer_shape{ x = { 7, 9 }, a = { 2, 4 }, b = { 2, 5 } }
    end)
    local listed = {}
    for i, s in ipairs(e.shapes) do listed[i] = s.name .. " " .. table.concat(s.shape, " ") end
    assert.same({ "x 7 9", "a 2 4", "b 2 5", "w " }, listed)
    assert.equal("_foreach", e.op)
    assert.equal("FullyConnected fc: shape of output is (2, 4), but (2, 3) is needed here (inputs: \z
      data (2, 5), weight (?))", e.message)
  end)

  it("draws anew for each row", function()
    local outs = contrib.foreach(function(x)
      return ty.sym.Dropout{ x, p = 0.5 }, {}
    end, V("x"), {})
    local y = train(outs, { x = ty.nd.ones{ 2, 64 } })[1]:totable()
    assert.not_same(y[1], y[2])
  end)

  it("keeps two loops with equal names apart", function()
    local function loop(data)
      return (contrib.foreach(function(x)
        return ty.sym.FullyConnected{ x, num_hidden = 3, name = "fc" }, {}
      end, data, {}, "loop"))
    end
    local a = loop(V("x"))
    local net = loop(a)
    assert.same({ "x", "fc_weight", "fc_bias", "fc_weight", "fc_bias" }, net:list_arguments())
    assert.near(1, #net:list_outputs())
  end)
end)

describe("moving statistics in a body", function()
  local function normalised()
    return (contrib.foreach(function(x)
      return ty.sym.BatchNorm{ x, name = "bn", momentum = 0.5, fix_gamma = false }, {}
    end, V("x"), {}))
  end

  local function by_hand()
    local rows = ty.sym.SliceChannel{ V("x"), num_outputs = 3, axis = 0, squeeze_axis = true }
    local gamma, beta = V("bn_gamma"), V("bn_beta")
    local mean, var = V("bn_moving_mean"), V("bn_moving_var")
    local list = {}
    for t = 1, 3 do
      list[t] = ty.sym.BatchNorm{ rows[t], gamma, beta, mean, var, momentum = 0.5,
        fix_gamma = false }
    end
    return ty.sym.stack{ list[1], list[2], list[3], axis = 0 }
  end

  it("are auxiliary states of the network, in its file too", function()
    for _, net in ipairs{ normalised(), ty.sym.load_json(normalised():tojson()) } do
      assert.same({ "x", "bn_gamma", "bn_beta" }, net:list_arguments())
      assert.same({ "bn_moving_mean", "bn_moving_var" }, net:list_auxiliary_states())
      local _, _, aux = net:infer_shape{ x = { 3, 6, 4 } }
      assert.same({ { 4 }, { 4 } }, aux)
    end
  end)

  it("move once for each row", function()
    local values = { x = normal(3, 6, 4), bn_gamma = normal(4), bn_beta = normal(4) }
    local y, g, a = train(normalised(), values)
    local z, h, b = train(by_hand(), values)
    assert.near(z[1], y[1], 1e-5)
    for name in pairs(h) do assert.near(h[name], g[name], 1e-4) end
    for name in pairs(b.aux_dict) do
      assert.near(b.aux_dict[name], a.aux_dict[name], 1e-6)
      assert.is_true(a.aux_dict[name]:abs():max():asscalar() > 0)
    end
  end)

  it("move in the branch that is taken", function()
    local x = V("x")
    local function branch(name)
      return function() return ty.sym.BatchNorm{ x, name = name, momentum = 0 } end
    end
    local net = contrib.cond(ty.sym.sum(V("which")):gt(0), branch("yes"), branch("no"))
    assert.equal(4, #net:list_auxiliary_states())
    local data = normal(8, 3) + 5
    local mean = data:mean{ axis = 0 }
    for which, taken in pairs{ [1] = "yes", [-1] = "no" } do
      local _, _, exe = train(net, { x = data, which = number(which) })
      local left = taken == "yes" and "no" or "yes"
      assert.near(mean, exe.aux_dict[taken .. "_moving_mean"], 1e-4)
      assert.near({ 0, 0, 0 }, exe.aux_dict[left .. "_moving_mean"])
    end
  end)

  it("move in each step of a loop with a condition", function()
    local _, vars = contrib.while_loop{ cond = function(i) return ty.sym.sum(i):lt(2) end,
      func = function(i, x)
        return {}, { i + 1, ty.sym.BatchNorm{ x + 1, name = "bn", momentum = 0.5 } }
      end, loop_vars = { V("i"), V("x") }, max_iterations = 4 }
    local net = Group{ vars[1], vars[2] }
    assert.same({ "bn_moving_mean", "bn_moving_var" }, net:list_auxiliary_states())
    local _, _, exe = train(net, { i = number(0), x = ty.nd.full({ 4, 1 }, 3) })
    -- the first step sees 4, the second normalised zeros plus one, two more do not run; backward
    -- moves the statistics, so the last step comes first
    assert.near({ 0.5 * (0.5 * 1) + 0.5 * 4 }, exe.aux_dict.bn_moving_mean, 1e-4)
  end)

  it("cannot be what is carried from row to row", function()
    local e = assert.raises("value", function()
      contrib.foreach(function(x, s)
        return ty.sym.BatchNorm{ x, V("g"), V("b"), s[1], s[2] }, s
      end, V("x"), { V("mean"), V("var") })[1]:simple_bind{ ctx = ty.cpu(), x = { 3, 6, 4 } }
    end)
    assert.equal("_foreach", e.op)
  end)
end)

describe("while_loop", function()
  -- Returns a loop x, 2 x, 4 x ... while below 10.
  local function doubling(most)
    local outs, vars = contrib.while_loop{ cond = function(x) return ty.sym.sum(x):lt(10) end,
      func = function(x) return x * V("w"), x * 2 end, loop_vars = V("x"), max_iterations = most }
    return Group{ outs, vars }
  end

  it("runs not at all, fewer steps than it may, and as many", function()
    for _, case in ipairs{ { 30, { 0, 0, 0 }, 30, 0, 1 }, { 5, { 15, 0, 0 }, 10, 5, 3 + 2 },
      { 1, { 3, 6, 12 }, 8, 7, 3 * 7 + 8 } } do
      local y, g = train(doubling(3), { x = number(case[1]), w = number(3) })
      assert.near(case[2], y[1]:reshape{ -1 })
      assert.near({ case[3] }, y[2])
      assert.near({ case[4] }, g.w)
      assert.near({ case[5] }, g.x)
    end
  end)

  it("carries variables that its body does not read, and those that nothing changes", function()
    local outs, vars = contrib.while_loop{ cond = function(i) return ty.sym.sum(i):lt(3) end,
      func = function(i, last, same) return same * i, { i + 1, i * 10, same } end,
      loop_vars = { V("i"), V("last"), V("same") }, max_iterations = 5 }
    local net = Group{ outs, vars[2], vars[3] }
    local y = train(net, { i = number(0), last = number(-1), same = number(7) })
    assert.near({ 0, 7, 14, 0, 0 }, y[1]:reshape{ -1 })
    assert.near({ 20 }, y[2])
    assert.near({ 7 }, y[3])
    y = train(net, { i = number(5), last = number(-1), same = number(7) })
    assert.near({ -1 }, y[2])
  end)

  it("gives its condition what is around", function()
    local _, x = contrib.while_loop{ cond = function(x) return ty.sym.sum(x):lt(V("most")) end,
      func = function(x) return {}, x + V("step") end, loop_vars = V("x"), max_iterations = 10 }
    local y, g = train(x, { x = number(0), most = number(5), step = number(2) })
    assert.near({ 6 }, y[1])
    assert.near({ 3 }, g.step)
    assert.near({ 0 }, g.most)
  end)

  it("infers variables from its outputs", function()
    local net = doubling(3)
    local arguments = (net[1] + V("y")):infer_shape{ y = { 3, 4 } }
    assert.same({ { 4 }, { 4 }, { 3, 4 } }, arguments)
  end)
end)

describe("cond", function()
  it("gives each branch its gradient, zero to what only the other one reads", function()
    local a, b, c = V("a"), V("b"), V("c")
    local outs = contrib.cond(ty.sym.sum(V("q")):gt(0),
      function() return { a * b, a } end, function() return { a * c, c * 3 } end)
    local values = { a = number(2), b = number(5), c = number(7) }
    for q, want in pairs{ [1] = { 10, 2, 5 + 1, 2, 0 }, [-1] = { 14, 21, 7, 0, 2 + 3 } } do
      values.q = number(q)
      local y, g = train(Group{ outs[1], outs[2] }, values)
      assert.near({ want[1] }, y[1])
      assert.near({ want[2] }, y[2])
      assert.near({ want[3] }, g.a)
      assert.near({ want[4] }, g.b)
      assert.near({ want[5] }, g.c)
    end
  end)

  it("infers the other branch and the predicate's type", function()
    local a, b = V("a"), V("b")
    local net = contrib.cond(V("p"):lt(1), function() return a end, function() return b end)
    local arguments, outs = net:infer_shape{ p = { 1 }, b = { 2, 3 } }
    assert.same({ { 1 }, { 2, 3 }, { 2, 3 } }, arguments)
    assert.same({ { 2, 3 } }, outs)
    assert.same({ "float32", "int32", "int32" }, (net:infer_type{ p = "float32", a = "int32" }))
  end)
end)

describe("control flow inside control flow", function()
  -- Returns a network over rows: a row whose sum is positive is doubled until it is over 10 in sum,
  -- others are unchanged.
  local function net()
    local outs, count = contrib.foreach(function(x, n)
      local y = contrib.cond(ty.sym.sum(x):gt(0), function()
        local _, vars = contrib.while_loop{
          cond = function(v) return ty.sym.sum(v):lt(10) end,
          func = function(v, k) return {}, { v * V("w"), k + 1 } end,
          loop_vars = { x, n }, max_iterations = 4 }
        return vars
      end, function() return { x * 1, n + 100 } end)
      return y[1], y[2]
    end, V("x"), V("n"))
    return Group{ outs, count }
  end
  local values = { x = ty.nd.array{ { 1 }, { -3 }, { 6 } }, n = number(0), w = number(2) }

  local function check(symbol)
    local y, g = train(symbol, values)
    assert.near({ 16, -3, 12 }, y[1]:reshape{ -1 })
    assert.near({ 4 + 100 + 1 }, y[2])
    assert.near({ 16, 1, 2 }, g.x:reshape{ -1 })
    assert.near({ 4 * 8 + 6 }, g.w)                       -- 1 w^4 and 6 w
  end

  it("computes and differentiates", function() check(net()) end)

  it("comes back from a file", function()
    local symbol = net()
    local again = ty.sym.load_json(symbol:tojson())
    assert.equal(symbol:tojson(), again:tojson())
    assert.same(symbol:list_arguments(), again:list_arguments())
    check(again)
  end)

  it("reports one value per output of the outermost node", function()
    local exe = net():simple_bind{ ctx = ty.cpu(), x = { 3, 1 }, n = { 1 }, w = { 1 } }
    local names = {}
    exe:set_monitor_callback(function(name) names[#names + 1] = name:gsub("%d+_", "_") end)
    exe:forward{ is_train = true, args = values }
    assert.same({ "_foreach_output0", "_foreach_output1" }, names)
  end)
end)

describe("control flow in a module", function()
  local function net()
    local rows = ty.sym.transpose{ V("data"), axes = { 1, 0, 2 } }
    local _, state = contrib.foreach(function(x, h)
      local sum = ty.sym.FullyConnected{ x, num_hidden = 8, name = "in" } +
        ty.sym.FullyConnected{ h, num_hidden = 8, no_bias = true, name = "back" }
      local y = ty.sym.Activation{ sum, act_type = "tanh" }
      return {}, y
    end, rows, ty.sym.zeros{ 4, 8 })
    local out = ty.sym.FullyConnected{ state, num_hidden = 2, name = "out" }
    return ty.sym.SoftmaxOutput{ out, name = "softmax" }
  end

  it("learns, and comes back from a checkpoint", function()
    folder.with(function(path)
      local data, label = normal(32, 3, 2), ty.nd.zeros{ 32 }
      for i = 0, 31 do label[i] = data[i]:sum():asscalar() > 0 and 1 or 0 end
      local batches = ty.io.NDArrayIter{ data = data, label = label, batch_size = 4 }
      local mod = ty.mod.Module{ symbol = net(), logger = quiet }
      mod:fit{ train_data = batches, num_epoch = 20, initializer = ty.init.Xavier(),
        optimizer = "adam", optimizer_params = { learning_rate = 0.02 } }
      assert.is_true(mod:score(batches, "acc")[1][2] > 0.9)
      mod:save_checkpoint{ prefix = path .. "/loop", epoch = 1 }
      local again = ty.mod.Module.load{ prefix = path .. "/loop", epoch = 1 }
      again:bind{ data_shapes = batches.provide_data, label_shapes = batches.provide_label,
        for_training = false }
      assert.near(mod:predict(batches), again:predict(batches), 1e-6)
    end)
  end)
end)
