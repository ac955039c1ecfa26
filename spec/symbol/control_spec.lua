-- Control flow in executors: _foreach, _while_loop, _cond, nested, skipped parts
-- (native/pass/control_flow.c, native/operators/control/control_flow.c).

local ty = require "tycho"

local V, contrib = ty.sym.Variable, ty.sym.contrib

local function array(t) return ty.nd.array(t, { dtype = "float64" }) end

-- Returns an executor over float64 arrays by name; with gradients of all.
local function bind(symbol, values, options)
  local args, grads = {}, {}
  for name, v in pairs(values) do
    args[name] = array(v)
    grads[name] = ty.nd.zeros(args[name].shape, { dtype = "float64" })
  end
  local spec = { ctx = ty.cpu(), args = args, args_grad = grads }
  for key, v in pairs(options or {}) do spec[key] = v end
  return symbol:bind(spec), args, grads
end

local function run(symbol, values)
  local exe, _, grads = bind(symbol, values)
  exe:forward{ is_train = true }
  local heads = {}
  for i, out in ipairs(exe.outputs) do heads[i] = ty.nd.ones(out.shape, { dtype = "float64" }) end
  exe:backward(heads)
  local g = {}
  for name, x in pairs(grads) do g[name] = x:totable() end
  return exe.outputs[1]:totable(), g, exe
end

-- Returns running sums d + s.
local function running(data, state)
  return contrib.foreach(function(d, s) return d + s, d + s end, data, state)
end

describe("foreach", function()
  it("stacks outputs and carries states", function()
    local out, g = run(ty.sym.Group{ running(V("d"), V("s")) },
      { d = { { 1, 2 }, { 3, 4 }, { 5, 6 } }, s = { 10, 20 } })
    assert.same({ { 11, 22 }, { 14, 26 }, { 19, 32 } }, out)
    -- rows count in all later outputs and in the final state
    assert.same({ { 4, 4 }, { 3, 3 }, { 2, 2 } }, g.d)
    assert.same({ 4, 4 }, g.s)
  end)

  it("gives a vector's rows one element", function()
    local out = run((running(V("d"), V("s"))), { d = { 1, 2, 3 }, s = { 0 } })
    assert.same({ { 1 }, { 3 }, { 6 } }, out)
  end)

  it("runs with one row", function()
    assert.same({ { 3, 5 } }, (run((running(V("d"), V("s"))), { d = { { 1, 2 } }, s = { 2, 3 } })))
  end)

  it("infers free variables and states from within the body", function()
    local outs = contrib.foreach(function(d, s)
      local h = ty.sym.FullyConnected{ d, num_hidden = 4, name = "fc" } + s
      return h, h
    end, V("d"), V("s"))
    local shapes, out = outs:infer_shape{ d = { 5, 2, 3 } }
    local names, by_name = outs:list_arguments(), {}
    for i, name in ipairs(names) do by_name[name] = shapes[i] end
    assert.same({ 2, 4 }, by_name.s)
    assert.same({ 4, 3 }, by_name.fc_weight)
    assert.same({ 5, 2, 4 }, out[1])
  end)

  it("agrees with differences, with free variables, in all modes", function()
    local outs = contrib.foreach(function(d, s)
      local h = ty.sym.tanh(ty.sym.broadcast_mul(d, V("w")) + s[1] * s[2])
      return { h, s[1] }, { h, s[2] + d }
    end, V("d"), { V("a"), V("b") })
    ty.test_utils.check_numeric_gradient{ sym = outs[1] + outs[2], dtype = "float64",
      numeric_eps = 1e-5, rtol = 1e-5, atol = 1e-7,
      location = { d = array{ { 0.1, 0.2 }, { -0.3, 0.4 }, { 0.5, -0.6 } }, a = array{ 0.3, 0.1 },
        b = array{ -0.2, 0.7 }, w = array{ 0.9, -1.1 } } }
  end)

  it("is the loop written out, fused or not", function()
    local d, s = V("d"), V("s")
    local rows = ty.sym.SliceChannel{ d, num_outputs = 3, axis = 0, squeeze_axis = true }
    local state, list = s, {}
    for t = 1, 3 do
      state = ty.sym.sigmoid(rows[t] * state)
      list[t] = state
    end
    local by_hand = ty.sym.stack{ list[1], list[2], list[3], axis = 0 }
    local looped = contrib.foreach(function(x, y)
      local h = ty.sym.sigmoid(x * y)
      return h, h
    end, d, s)
    local values = { d = { { 1, 2 }, { 3, -4 }, { 0.5, 6 } }, s = { 0.1, 0.2 } }
    local a, ga = run(by_hand, values)
    local b, gb = run(looped, values)
    assert.same(a, b)
    assert.same(ga, gb)
  end)

  it("takes and returns a symbol of several outputs as a list", function()
    local outs = contrib.foreach(function(d, s)
      return ty.sym.Group{ d[1] + s, d[2] - s }, s
    end, ty.sym.Group{ V("d"), V("e") }, V("s"))
    assert.equal(2, #outs)
    local out = run(ty.sym.Group{ outs[1] + outs[2] }, { d = { { 1 }, { 2 } }, e = { { 3 }, { 4 } },
      s = { 5 } })
    assert.same({ { 4 }, { 6 } }, out)
  end)

  it("refuses another number of states, and outputs that are grouped anew", function()
    for _, how in ipairs{ "sym", "nd" } do
      local x = how == "nd" and ty.nd.ones{ 2, 2 } or V("x")
      local function refuse(body)
        return assert.raises("value", ty[how].contrib.foreach, body, x, { x, { x } })
      end
      assert.equal(2, refuse(function(d, s) return d, { s[1] } end).expected)
      assert.equal(3, refuse(function(d, s) return d, { s, s[1] } end).got)
    end
    local x, steps = ty.nd.ones{ 2, 2 }, 0
    local e = assert.raises("value", ty.nd.contrib.foreach, function(d, s)
      steps = steps + 1
      return steps == 1 and d or { d }, s
    end, x, x)
    assert.equal("outputs", e.argument)
  end)

  it("refuses a loop over nothing", function()
    for _, how in ipairs{ "sym", "nd" } do
      assert.equal("data", assert.raises("value", ty[how].contrib.foreach, print, {}, {}).argument)
    end
  end)

  it("nests", function()
    local outer = contrib.foreach(function(d, s)
      local inner, total = contrib.foreach(function(x, t) return x * t, t + x end, d, s)
      return inner, total
    end, V("d"), V("s"))
    local out, g = run(outer, { d = { { { 1 }, { 2 } }, { { 3 }, { 4 } } }, s = { 1 } })
    assert.same({ { { 1 }, { 4 } }, { { 12 }, { 28 } } }, out)
    assert.same({ 10 }, g.s)
  end)

  it("survives its file", function()
    local outs = running(V("d"), V("s"))
    local again = ty.sym.load_json(outs:tojson())
    assert.equal(outs:tojson(), again:tojson())
    assert.same({ { 1, 2 }, { 4, 6 } }, (run(again, { d = { { 1, 2 }, { 3, 4 } }, s = { 0, 0 } })))
  end)

  it("shows its outputs to a monitor, and nothing else", function()
    local outs, state = running(V("d"), V("s"))
    local exe = bind(ty.sym.Group{ outs * 1, state }, { d = { { 1 }, { 2 } }, s = { 0 } })
    local seen, node, product = {}, outs:tojson():match('"(_foreach%d+)"'), nil
    exe:set_monitor_callback(function(name, x)
      seen[#seen + 1] = { (name:gsub(node, "loop")), x:totable() }
      product = name:match("^_mulscalar%d+_output$") or product
    end)
    exe:forward{ is_train = true }
    exe:backward{ array{ { 1 }, { 1 } }, array{ 1 } }
    assert.same({ "loop_output0", { { 1 }, { 3 } } }, seen[1])
    assert.same({ "loop_output1", { 3 } }, seen[2])
    assert.same({ product, { { 1 }, { 3 } } }, seen[3])
    for i = 4, #seen do
      assert.is_nil(seen[i][1]:find("loop", 1, true), seen[i][1])
      assert.is_nil(seen[i][1]:find("sum_grad", 1, true), seen[i][1])
    end
  end)

  it("refuses states that change their shape", function()
    local outs = contrib.foreach(function(d, s)
      return d, ty.sym.Concat{ s, d, dim = 0 }
    end, V("d"), V("s"))
    local ok, e = pcall(function() return bind(outs, { d = { { 1 }, { 2 } }, s = { 0 } }) end)
    assert.is_false(ok)
    assert.equal("shape", e.code)
  end)
end)

-- Returns x doubled until it is over 10.
local function doubling(most)
  return contrib.while_loop{ cond = function(x) return ty.sym.sum(x):lt(10) end,
    func = function(x) return x, { x * 2 } end, loop_vars = { V("x") }, max_iterations = most }
end

describe("while_loop", function()
  it("keeps variables apart that begin with one value, and that value itself", function()
    local x = V("x")
    local outs, last = contrib.while_loop{ cond = function(i) return i:lt(x * 4) end,
      func = function(i, s) return s + x, { i + x, s * 2 } end, loop_vars = { x, x },
      max_iterations = 4 }
    local all = ty.sym.Group{ outs, last[1], last[2] }
    for _, s in ipairs{ all, ty.sym.load_json(all:tojson()) } do
      local exe, _, grads = bind(s, { x = { 1 } })
      exe:forward{ is_train = true }
      assert.same({ { 2 }, { 3 }, { 5 }, { 0 } }, exe.outputs[1]:totable())
      assert.same({ { 4 }, { 8 } }, { exe.outputs[2]:totable(), exe.outputs[3]:totable() })
      exe:backward{ array{ { 1 }, { 1 }, { 1 }, { 1 } }, array{ 1 }, array{ 1 } }
      assert.same({ 2 + 3 + 5 + 4 + 8 }, grads.x:totable())
    end
  end)

  it("stops with its condition; later rows are zero", function()
    local outs, vars = doubling(5)
    local exe = bind(ty.sym.Group{ outs, vars[1] }, { x = { 3 } })
    exe:forward{ is_train = true }
    assert.same({ { 3 }, { 6 }, { 0 }, { 0 }, { 0 } }, exe.outputs[1]:totable())
    assert.same({ 12 }, exe.outputs[2]:totable())
  end)

  it("runs as often as the data say, with one executor", function()
    local _, vars = doubling(6)
    local exe, args, grads = bind(vars[1], { x = { 1 } })
    for _, case in ipairs{ { 1, 16, 16 }, { 20, 20, 1 }, { 6, 12, 2 } } do
      args.x[":"] = case[1]
      exe:forward{ is_train = true }
      exe:backward(array{ 1 })
      assert.same({ case[2] }, exe.outputs[1]:totable())
      assert.same({ case[3] }, grads.x:totable())
    end
  end)

  it("keeps what was never computed out of gradients", function()
    -- after the last step the body would divide by zero
    local outs, vars = contrib.while_loop{ cond = function(i)
      return ty.sym.sum(i):gt(0)
    end, func = function(i, w)
      return w / i, { i - 1, w * i }
    end, loop_vars = { V("i"), V("w") }, max_iterations = 4 }
    local _, g = run(ty.sym.Group{ outs, vars[2] }, { i = { 2 }, w = { 3 } })
    assert.same({ 1 / 2 + 2 + 2 }, g.w)                  -- w/2 + (2 w)/1 + 2 * 1 * w
  end)

  it("agrees with differences", function()
    local outs, vars = contrib.while_loop{ cond = function(i)
      return ty.sym.sum(i):lt(2.5)
    end, func = function(i, x)
      local y = ty.sym.sin(x * V("w"))
      return y, { i + 1, y }
    end, loop_vars = { V("i"), V("x") }, max_iterations = 5 }
    ty.test_utils.check_numeric_gradient{ sym = ty.sym.broadcast_add(outs, vars[2]),
      dtype = "float64", numeric_eps = 1e-5, rtol = 1e-5, atol = 1e-7, location = { i = array{ 0 },
        x = array{ 0.4, 0.7 }, w = array{ 1.3, -0.8 } }, grad_nodes = { "x", "w" } }
  end)
end)

-- Returns log where positive, else 2 a.
local function safe_log()
  local a = V("a")
  return contrib.cond(ty.sym.sum(a):gt(0), function()
    return ty.sym.log(a)
  end, function() return a * 2 end)
end

describe("cond", function()
  it("takes the branch that the data choose, and its gradient", function()
    local exe, args, grads = bind(safe_log(), { a = { 4 } })
    for _, case in ipairs{ { 4, math.log(4), 0.25 }, { -3, -6, 2 }, { 0, 0, 2 }, { 1, 0, 1 } } do
      args.a[":"] = case[1]
      exe:forward{ is_train = true }
      exe:backward(array{ 1 })
      assert.near(case[2], exe.outputs[1]:asscalar(), 1e-15)
      assert.near(case[3], grads.a:asscalar(), 1e-15)  -- the log of a negative number never gets in
    end
  end)

  it("does not run the other branch", function()
    -- what is not positive definite has no root: an error where it is computed
    local x = V("x")
    local s = contrib.cond(ty.sym.sum(V("q")):gt(0), function()
      return ty.sym.linalg.potrf(x)
    end, function() return x * 2 end)
    local exe, args = bind(s, { q = { 1 }, x = { { -1, 0 }, { 0, -1 } } })
    for _ = 1, 2 do
      args.q[":"] = -1
      exe:forward{ is_train = true }
      assert.same({ { -2, 0 }, { 0, -2 } }, exe.outputs[1]:totable())
      args.q[":"] = 1
      local e = assert.raises("run", function()
        exe:forward{ is_train = true }
        exe.outputs[1]:wait_to_read()
      end)
      assert.equal("_linalg_potrf", e.op)
    end
  end)

  it("adds to gradients that are there", function()
    local exe, _, grads = bind(safe_log(), { a = { 4 } }, { grad_req = "add" })
    for _ = 1, 3 do
      exe:forward{ is_train = true }
      exe:backward(array{ 1 })
    end
    assert.near(0.75, grads.a:asscalar(), 1e-15)
  end)

  it("nests in loops", function()
    local outs = contrib.foreach(function(d, s)
      local step = contrib.cond(ty.sym.sum(d):gt(0), function()
        return s + d
      end, function() return s * 2 end)
      return step, step
    end, V("d"), V("s"))
    local out, g = run(outs, { d = { { 1 }, { -1 }, { 3 } }, s = { 5 } })
    assert.same({ { 6 }, { 12 }, { 15 } }, out)
    assert.same({ 1 + 2 + 2 }, g.s)
    assert.same({ { 5 }, { 0 }, { 1 } }, g.d)
  end)

  it("nests in itself: the guard around counts", function()
    local a = V("a")
    local s = contrib.cond(ty.sym.sum(V("p")):gt(0),
      function()
        return contrib.cond(ty.sym.sum(V("q")):gt(0), function()
          return a * 2
        end, function() return a * 3 end)
      end,
      function() return a * 5 end)
    local exe, args, grads = bind(s, { p = { 1 }, q = { 1 }, a = { 1 } })
    for _, case in ipairs{ { 1, 1, 2 }, { 1, -1, 3 }, { -1, 1, 5 }, { -1, -1, 5 } } do
      args.p[":"], args.q[":"] = case[1], case[2]
      exe:forward{ is_train = true }
      exe:backward(array{ 1 })
      assert.equal(case[3], exe.outputs[1]:asscalar())
      assert.equal(case[3], grads.a:asscalar())
    end
  end)

  it("refuses branches of different shapes", function()
    local a = V("a")
    local s = contrib.cond(ty.sym.sum(a):gt(0), function() return a * 1 end,
      function() return ty.sym.sum(a) end)
    local ok, e = pcall(bind, s, { a = { 1, 2 } })
    assert.is_false(ok)
    assert.equal("shape", e.code)
  end)
end)
