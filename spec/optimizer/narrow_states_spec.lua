-- States of optimizers in bfloat16, and the rounding at random that they need.

local ty = require "tycho"

describe("_contrib_stochastic_round", function()
  local function rounded(x) return ty.nd._contrib_stochastic_round{ data = x } end

  it("gives one of the two neighbours, with the number itself as mean", function()
    ty.random.seed(3)
    local n = 40000
    for _, number in ipairs{ 1 + 2 ^ -10, -3.3, 1e-20, 7e30, 255.9 } do
      local x = ty.nd.full({ n }, number)
      local y = rounded(x)
      assert.equal("bfloat16", y.dtype)
      local wide = y:astype("float64")
      local exact = x:astype("float64"):slice_axis{ axis = 0, begin = 0, end_ = 1 }:asscalar()
      local low, high = wide:min():asscalar(), wide:max():asscalar()
      assert.is_true(low < exact and exact < high)
      assert.is_true(high - low <= math.abs(exact) * 2 ^ -7)
      -- five deviations of the mean of n draws
      assert.is_true(math.abs(wide:mean():asscalar() - exact) <= 2.5 * (high - low) / math.sqrt(n))
    end
  end)

  it("keeps what bfloat16 holds, infinities and NaN", function()
    local x = ty.nd.array{ 0, 1, -2.5, math.huge, -math.huge, 0 / 0, 2 ^ -130 }
    local y = rounded(x):astype("float32"):totable()
    for i, v in ipairs{ 0, 1, -2.5, math.huge, -math.huge } do assert.equal(v, y[i]) end
    assert.is_true(y[6] ~= y[6])
    assert.equal(2 ^ -130, y[7])
  end)

  it("takes float32 only", function()
    assert.has_error(function() rounded(ty.nd.ones({ 2 }, { dtype = "float64" })) end)
  end)
end)

describe("state_dtype", function()
  -- Returns the weight after steps with gradients that are drawn before: rounding draws, too.
  local function trained(name, dtype, steps)
    ty.random.seed(2)
    local grads = ty.random.normal{ loc = 0.3, scale = 0.1, shape = { steps, 50, 40 } }
    local optimizer = ty.optimizer.create(name,
      { learning_rate = 0.01, momentum = name == "sgd" and 0.9 or nil, state_dtype = dtype })
    local updater, w = ty.optimizer.get_updater(optimizer), ty.nd.ones{ 50, 40 }
    for i = 1, steps do
      updater(0, grads:slice_axis{ axis = 0, begin = i - 1, end_ = i }:reshape{ 50, 40 }, w)
    end
    return w, updater
  end

  local function arrays_of(state) return state.dtype and { state } or state end

  for _, name in ipairs{ "sgd", "adam", "adamw" } do
    it("halves the states of " .. name .. ", whose steps stay the same on average", function()
      local exact = trained(name, nil, 100)
      local w, updater = trained(name, "bfloat16", 100)
      for _, x in ipairs(arrays_of(updater.states[0])) do assert.equal("bfloat16", x.dtype) end
      local moved = (exact - 1):abs():mean():asscalar()
      assert.is_true((w - exact):abs():mean():asscalar() <= 0.02 * moved)
      assert.is_true(math.abs((w - exact):mean():asscalar()) <= 0.002 * moved)
    end)
  end

  it("is saved and loaded with the states", function()
    local _, updater = trained("adam", "bfloat16", 3)
    local other = ty.optimizer.get_updater(ty.optimizer.Adam{ state_dtype = "bfloat16" })
    other:set_states(updater:get_states())
    other(0, ty.nd.zeros{ 50, 40 }, ty.nd.ones{ 50, 40 })
    for _, x in ipairs(arrays_of(other.states[0])) do assert.equal("bfloat16", x.dtype) end
  end)

  it("refuses other types, and updates inside backward", function()
    assert.has_error(function() ty.optimizer.Adam{ state_dtype = "int8" } end)
    assert.has_error(function()
      ty.optimizer.FusedOptimizer{ symbol = ty.sym.FullyConnected{ data = ty.sym.Variable("data"),
        num_hidden = 2, name = "fc" }, params = { "fc_weight" },
        optimizer = ty.optimizer.Adam{ state_dtype = "bfloat16" } }
    end)
  end)
end)
