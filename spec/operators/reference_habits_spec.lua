-- What programs written for the reference rely on, operator by operator.

local ty = require "tycho"

local V = ty.sym.Variable

local function fresh(f)
  return ty.name.NameManager():with(f)
end

local function eval(net, arrays)
  local given = { ctx = ty.cpu() }
  for name, x in pairs(arrays or {}) do
    given[name] = x
  end
  return net:eval(given)[1]:totable()
end

describe("automatic names", function()
  it("are without the prefix of a namespace", function()
    fresh(function()
      local net = ty.sym.contrib.DeformableConvolution{ V("d"), V("o"), kernel = { 3, 3 },
        num_filter = 2 }
      assert.same({ "d", "o", "deformableconvolution0_weight", "deformableconvolution0_bias" },
        net:list_arguments())
      assert.equal("gemm20", ty.sym.linalg.gemm2{ V("a"), V("b") }.name)
      assert.equal("to_tensor0", ty.sym.image.to_tensor{ V("a") }.name)
      assert.equal("normal_like0", ty.sym.random.normal_like{ V("a") }.name)
    end)
  end)

  it("of random numbers keep theirs", function()
    fresh(function()
      assert.equal("_random_normal0", ty.sym.random.normal{ shape = { 2 } }.name)
      assert.equal("_sample_normal0", ty.sym.random.normal{ V("a"), V("b") }.name)
    end)
  end)

  it("of functions with a number are in one word", function()
    fresh(function()
      assert.equal("_rpowerscalar0", ty.sym.pow(2, V("a")).name)
      assert.equal("_rpower_scalar0", (2 ^ V("a")).name)
      assert.equal("_powerscalar0", ty.sym.pow(V("a"), 2).name)
      assert.equal("_hypotscalar0", ty.sym.hypot(V("a"), 2).name)
      assert.equal("_hypot0", ty.sym.hypot(V("a"), V("b")).name)
      assert.equal("_maximumscalar0", ty.sym.maximum(V("a"), 2).name)
    end)
  end)
end)

describe("random symbols", function()
  it("without a shape take their reader's", function()
    local net = ty.sym.random.normal{ loc = 1 } + V("X")
    local args, outs = net:infer_shape{ X = { 4, 5 } }
    assert.same({ { 4, 5 } }, args)
    assert.same({ { 4, 5 } }, outs)
    local exe = (ty.sym.random.randint{ 3, 4 } + V("X")):simple_bind{ ctx = ty.cpu(), X = { 2, 3 },
      type_dict = { X = "int32" } }
    exe.arg_dict.X[":"] = 1
    assert.same({ { 4, 4, 4 }, { 4, 4, 4 } }, exe:forward()[1]:totable())
  end)

  it("randn takes sizes and options in one table", function()
    for _, space in ipairs{ ty.sym, ty.nd } do
      local function shape_of(x)
        return space == ty.nd and x.shape or select(2, x:infer_shape{})[1]
      end
      assert.same({ 2, 3 }, shape_of(space.random.randn{ 2, 3, loc = 1 }))
      assert.same({ 2, 3 }, shape_of(space.random.randn(2, 3)))
      assert.same({ 2, 3 }, shape_of(space.random.randn(2, 3, { loc = 1, scale = 2 })))
      assert.raises("name", space.random.randn, { 2, 3, shape = { 2, 3 } })
    end
  end)
end)

describe("a size below 0", function()
  it("is named", function()
    for _, space in ipairs{ ty.sym, ty.nd } do
      local e = assert.raises("type", space.ones, { 2, -1 })
      assert.equal("sizes of at least 0", e.expected)
      assert.equal("-1 on axis 1", e.got)
    end
  end)
end)

describe("isnan, isinf, isfinite", function()
  local values = { 1, -2, 0, 0 / 0, 1 / 0, -1 / 0 }
  local want = { isnan = { 0, 0, 0, 1, 0, 0 }, isinf = { 0, 0, 0, 0, 1, 1 },
    isfinite = { 1, 1, 1, 0, 0, 0 } }

  for name, list in pairs(want) do
    it(name .. " tells elements of arrays and of symbols", function()
      for _, dtype in ipairs{ "float16", "bfloat16", "float32", "float64" } do
        local x = ty.nd.array(values, { dtype = dtype })
        assert.same(list, ty.nd.contrib[name]{ x }:totable())
        assert.same(list, ty.nd.contrib[name](x):totable())
        assert.equal(dtype, ty.nd.contrib[name](x).dtype)
        assert.same(list, eval(ty.sym.contrib[name](V("x")), { x = x }))
        assert.same(list, eval(ty.sym.contrib[name]{ data = V("x") }, { x = x }))
      end
    end)

    it(name .. " takes integers", function()
      local x = ty.nd.array({ 1, 2 }, { dtype = "int32" })
      local one = name == "isfinite" and 1 or 0
      assert.same({ one, one }, ty.nd.contrib[name](x):totable())
    end)
  end
end)
