-- What a network costs grows with its nodes: eight times as many take at most thirty times the
-- processor's time, stage by stage, the least of three tries (n log n: eleven times, n^2: 64).
-- GROWTH=1 prints the times. Per node, up to 100,000 of them: W11 of make bench.

local growing = dofile("scripts/dev/bench/growing.lua")
local ty = require "tycho"

local SMALL, TIMES, TRIES, MOST, LEAST = 800, 8, 3, 30, 0.01

-- Returns the seconds of processor time by stage, the least of some tries, and the stages in order.
local function least(kind, n)
  local seconds, order = {}, {}
  for _ = 1, TRIES do
    growing.live(kind, n, function(name, f)
      collectgarbage()
      local from = os.clock()
      f()
      order[#order + 1] = not seconds[name] and name or nil
      seconds[name] = math.min(seconds[name] or math.huge, os.clock() - from)
    end):free()
  end
  return seconds, order
end

local function variables(n)
  local list = {}
  for i = 1, n do list[i] = ty.sym.Variable("w" .. i) end
  return list
end

local function arrays(n)
  local list = {}
  for i = 1, n do list[i] = ty.nd.full({2}, i % 3) end
  return list
end

describe("a list of 10,000 inputs", function()
  local N = 10000
  local SUM, LAST = 10000, 1                             -- of i % 3
  local takes = {
    ElementWiseSum = function(out) return out:totable()[2], SUM end,
    Concat = function(out) return out:totable()[2 * N], LAST end,
    stack = function(out) return out:totable()[N][1], LAST end,
  }
  local function options(name) return {name = "all", dim = name == "Concat" and 0 or nil} end

  for name, result in pairs(takes) do
    it("is one operator's: " .. name, function()
      local net = ty.sym[name](variables(N), options(name))
      local exe = ty.sym.load_json(net:tojson()):bind{ctx = ty.cpu(), args = arrays(N),
        args_grad = arrays(N)}
      exe:forward(true)
      exe:backward{exe.outputs[1]:ones_like()}
      local got, want = result(exe.outputs[1])
      assert.equal(want, got)
      assert.same({1, 1}, exe.grad_arrays[N]:totable())
      got, want = result(ty.nd[name](arrays(N), options(name)))
      assert.equal(want, got)
      exe:free()
    end)
  end

  it("is a group's", function()
    local exe = ty.sym.Group(variables(N)):bind{ctx = ty.cpu(), args = arrays(N)}
    assert.same({LAST, LAST}, exe:forward()[N]:totable())
    exe:free()
  end)

  it("is a training step's, with a loss scale and without", function()
    local list, given = {}, {}
    for i = 1, 9000 do
      list[i] = ty.sym.Variable("w" .. i, {shape = {1, 2}})
      given["w" .. i] = ty.nd.ones{1, 2}
    end
    local data, label = ty.sym.Variable "data", ty.sym.Variable "softmax_label"
    local net = ty.sym.SoftmaxOutput{ty.sym.broadcast_add(data, ty.sym.add_n(list)), label}
    local inputs = ty.io.NDArrayIter{ty.nd.ones{2, 2}, ty.nd.zeros{2}, batch_size = 2}
    local function quiet() end
    local logger = {info = quiet, warning = quiet, debug = quiet, error = quiet}
    for _, scale in ipairs{false, 4} do
      local mod = ty.mod.Module{net, logger = logger}
      mod:fit{inputs, num_epoch = 1, arg_params = given, loss_scale = scale or nil}
      -- both rows are of the first class: 1 - 0.5 each, over two rows, at a rate of 0.01
      assert.near(1.005, mod:get_params().w9000:totable()[1][1], 1e-5)
    end
  end)
end)

it("a loop says how many variables it takes", function()
  local data = ty.sym.Variable "data"
  local ok, e = pcall(ty.sym.contrib.foreach, function(d, s) return d, s end, data, variables(129))
  assert.is_false(ok)
  assert.same({"value", "init_states", 129}, {e.code, e.argument, e.got})
  ok, e = pcall(ty.sym.contrib.while_loop, function(a) return ty.sym.sum(a) end,
    function(...) return (...), {...} end, variables(9000), 3)
  assert.is_false(ok)
  assert.same({"value", "loop_vars", 9000}, {e.code, e.argument, e.got})
  ok, e = pcall(ty.nd.contrib.while_loop, function(a) return a end,
    function(...) return (...), {...} end, arrays(9000), 3)
  assert.is_false(ok)
  assert.same({"value", "loop_vars", 9000}, {e.code, e.argument, e.got})
end)

-- What a list of so many inputs costs: gradients of one node, results in place, a plan with places
-- that are kept.
local LISTS = {
  ["gradients of a sum"] = function(n)
    local exe = ty.sym.add_n(variables(n)):bind{ctx = ty.cpu(), args = arrays(n),
      args_grad = arrays(n)}
    exe:forward(true)
    exe:backward{exe.outputs[1]}
    return exe
  end,
  ["many results of one node"] = function(n)
    local exe = ty.sym.amp_multicast(variables(n), {num_outputs = n}):bind{ctx = ty.cpu(),
      args = arrays(n)}
    exe:forward()
    return exe
  end,
  ["a monitor"] = function(n)
    local list = variables(n)
    for i = 1, n do list[i] = list[i] * 2 end
    local exe = ty.sym.add_n(list):bind{ctx = ty.cpu(), args = arrays(n)}
    exe:set_monitor_callback(function() end)
    exe:forward()
    return exe
  end,
}

local function of_list(run, n, tries)
  local seconds = math.huge
  for _ = 1, tries do
    collectgarbage()
    local from = os.clock()
    local exe = run(n)
    ty.waitall()
    seconds = math.min(seconds, os.clock() - from)
    exe:free()
  end
  return seconds
end

describe("the time that many inputs take", function()
  for what, run in pairs(LISTS) do
    it("grows with them: " .. what .. " #slow", function()
      local small = of_list(run, 10000, 2)
      local large = of_list(run, 80000, 1)
      if os.getenv("GROWTH") then print(what, small, large) end
      assert.is_true(large < 16 * small, ("%.3f s and, for eight times as many, %.3f s")
        :format(small, large))
    end)
  end
end)

describe("the time that a network takes", function()
  for _, kind in ipairs{ "chain", "tree", "inputs", "parameters" } do
    it("grows with its nodes: " .. kind .. " #slow", function()
      local small, stages = least(kind, SMALL)
      local large = least(kind, SMALL * TIMES)
      for _, stage in ipairs(stages) do
        if os.getenv("GROWTH") then print(kind, stage, small[stage], large[stage]) end
        assert.is_true(large[stage] < MOST * math.max(small[stage], LEAST),
          ("%s: %.4f s and, for eight times as many nodes, %.4f s"):format(stage, small[stage],
            large[stage]))
      end
    end)
  end
end)
