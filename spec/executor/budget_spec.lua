-- Recomputation by a budget of bytes (native/exec/budget.c).

local ty = require "tycho"

local function tower(layers)
  local x = ty.sym.Variable("data")
  for i = 1, layers do
    x = ty.sym.FullyConnected{ x, num_hidden = 32, name = "fc" .. i }
    x = ty.sym.Activation{ ty.sym.BatchNorm{ x, name = "bn" .. i }, act_type = "tanh" }
  end
  return ty.sym.SoftmaxOutput{ ty.sym.Dropout{ x, p = 0.3 }, name = "softmax" }
end

local function bind(budget)
  return tower(12):simple_bind{ ctx = ty.cpu(), data = { 64, 32 }, memory_budget = budget }
end

local function fill(exe)
  local value = 0
  for _, list in ipairs{ exe.arg_arrays, exe.aux_arrays } do
    for _, x in ipairs(list) do
      value = value + 1
      ty.random.seed(value)
      x[":"] = ty.nd.random.uniform{ low = 0.1, high = 0.5, shape = x.shape }
    end
  end
  exe.arg_dict.softmax_label[":"] = 3
end

local function run(exe)
  fill(exe)
  ty.random.seed(7)
  for _ = 1, 3 do
    exe:forward(true)
    exe:backward()
  end
end

describe("memory_budget", function()
  it("that cannot be met says what could", function()
    local ok, e = pcall(bind, 1)
    assert.is_false(ok)
    assert.equal("memory", e.code)
    assert.equal("number", type(e.expected))
    assert.equal(e.expected, bind(e.expected):memory().planned)
  end)

  it("that is large changes nothing", function()
    assert.equal(bind():memory().planned, bind(1e12):memory().planned)
  end)

  it("is kept, with the same bits in outputs, gradients and states", function()
    local free = bind()
    local least = select(2, pcall(bind, 1)).expected
    assert.is_true(least < 0.5 * free:memory().planned)
    run(free)
    for _, budget in ipairs{ least, math.floor(0.6 * free:memory().planned) } do
      local tight = bind(budget)
      assert.is_true(tight:memory().planned <= budget)
      run(tight)
      assert.same(free.outputs[1]:totable(), tight.outputs[1]:totable())
      for name, g in pairs(free.grad_dict) do
        assert.same(g:totable(), tight.grad_dict[name]:totable(), name)
      end
      for name, x in pairs(free.aux_dict) do
        assert.same(x:totable(), tight.aux_dict[name]:totable(), name)
      end
    end
  end)

  it("is kept by a reshaped executor's plan", function()
    local least = select(2, pcall(bind, 1)).expected
    assert.is_true(
      bind(least):reshape{ data = { 32, 32 }, softmax_label = { 32 } }:memory().planned <= least)
  end)
end)
