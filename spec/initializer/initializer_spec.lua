-- Initializers: what the recorded cases do not reach.

local json = require "tycho.core.json"
local ty = require "tycho"

describe("initializer", function()
  it("is made again from its text", function()
    for _, init in ipairs{ ty.init.Xavier{ magnitude = 2.5 }, ty.init.Constant{ { 1, 2 } },
        ty.init.LSTMBias(2),
        ty.init.FusedRNN{ init = ty.init.One(), num_hidden = 2, num_layers = 1, mode = "gru" } } do
      assert.is_true(init:equals(ty.init.create(init:dumps())))
    end
  end)

  it("writes whole numbers of real arrays with a point, those of integers without", function()
    local init = ty.init.Constant(ty.nd.array{ { 1, 2.5 }, { -3, 1e20 } })
    assert.equal('["constant", {"value": [[1.0, 2.5], [-3.0, 1.0000000200408773e+20]]}]',
      init:dumps())
    assert.is_true(init:equals(ty.init.create(init:dumps())))
    assert.equal('["constant", {"value": [1, 2]}]',
      ty.init.Constant(ty.nd.array({ 1, 2 }, { dtype = "int32" })):dumps())
  end)

  it("fills float16 and float64 too", function()
    for _, dtype in ipairs{ "float16", "float64" } do
      local x = ty.nd.zeros({ 8, 4 }, { dtype = dtype })
      for _, init in ipairs{ ty.init.Uniform(1), ty.init.Normal(1), ty.init.Xavier(),
          ty.init.Orthogonal() } do
        init(ty.init.InitDesc("x_weight"), x)
        assert.is_true(x:abs():sum():asscalar() > 0)
      end
    end
  end)

  it("refuses words that it does not know when it is made", function()
    for _, case in ipairs{ { "Xavier", "rnd_type" }, { "Xavier", "factor_type" },
        { "MSRAPrelu", "factor_type" }, { "Orthogonal", "rand_type" } } do
      local e = assert.raises("value", ty.init[case[1]], { [case[2]] = "gauss" })
      assert.equal(case[2], e.argument)
    end
    assert.equal("gaussian", ty.init.Xavier{ rnd_type = "gaussian", factor_type = "in" }.rnd_type)
  end)

  it("of orthogonal rows has elements as those of turned vectors, whatever is drawn", function()
    for _, rand_type in ipairs{ "uniform", "normal" } do
      for _, shape in ipairs{ { 60, 500 }, { 500, 60 }, { 200, 200 } } do
        local x = ty.nd.zeros(shape, { dtype = "float64" })
        ty.init.Orthogonal{ scale = 2, rand_type = rand_type }(ty.init.InitDesc("x_weight"), x)
        local rows = shape[1] <= shape[2]
        local n = math.min(shape[1], shape[2])
        local product = ty.nd.dot(x, x, { transpose_a = not rows, transpose_b = rows })
        assert.near(ty.nd.eye(n, { dtype = "float64" }) * 4, product, 1e-9, 0)
        local square = x * x
        local peak = ((square * square):mean() / (square:mean() * square:mean())):asscalar()
        assert.is_true(peak > 2.8 and peak < 3.2, peak)                     -- 1.8 where uniform
      end
    end
  end)

  it("is repeatable", function()
    local function fill()
      ty.random.seed(3)
      local x = ty.nd.zeros{ 5, 3 }
      ty.init.Orthogonal()(ty.init.InitDesc("x_weight"), x)
      return x:totable()
    end
    assert.same(fill(), fill())
  end)

  it("is chosen by regular expressions, or functions of the name", function()
    local function fill(with)
      return function(_, x) x:fill(with) end
    end
    local mixed = ty.init.Mixed({ "fc_weight|fc_bias", [=[conv\d+_]=],
      function(name) return name:find("gamma") end },
      { fill(1), fill(2), fill(3) })
    local function value(name)
      local x = ty.nd.zeros(1)
      mixed(ty.init.InitDesc(name), x)
      return x:asscalar()
    end
    assert.same({ 1, 1, 2, 3 }, { value "fc_weight", value "fc_bias", value "conv12_weight",
      value "bn_gamma" })
    assert.raises("name", value, "conv_weight")
    local e = assert.raises("value", ty.init.Mixed, { "fc%d" }, { ty.init.One() })
    assert.equal("patterns", e.argument)
  end)

  it("names the pattern and the parameter in its errors", function()
    local e = assert.raises("name", ty.init.One(), ty.init.InitDesc("bn_moving_mean"),
      ty.nd.zeros(1))
    assert.equal("bn_moving_mean", e.argument)
    assert.equal("xavier", assert.raises("name", ty.init.create, "xavie").candidates[1])
    assert.raises("type", ty.init.One(), "x_weight", { 1 })
  end)
end)

describe("json", function()
  it("writes and reads", function()
    local text = json.text{ "a\n\"b\"", json.object{ { "z", 1 }, { "a", ty.null } },
      { x = true }, 0.1 }
    assert.equal([==[["a\n\"b\"", {"z": 1, "a": null}, {"x": true}, 0.1]]==], text)
    assert.same({ "a\n\"b\"", { z = 1, a = ty.null }, { x = true }, 0.1 }, json.parse(text, "spec"))
    assert.raises("format", json.parse, "[1", "spec")
  end)
end)
