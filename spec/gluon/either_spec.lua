-- ty.F: one function for arrays and symbols.

local ty = require "tycho"

local F, nd, sym = ty.F, ty.nd, ty.sym


describe("ty.F", function()
  it("chooses by the first tensor, wherever it is", function()
    local x, s = nd.array{ -1, 2 }, sym.Variable("a")
    assert.near({ 0, 2 }, F.relu(x))
    assert.near({ 0, 2 }, F.relu{ x })
    assert.near({ 0, 2 }, F.relu{ data = x })
    assert.near({ -1, 2, -1, 2 }, F.concat({ x, x }, { dim = 0 }))
    assert.near({ -1, 2, -1, 2 }, F.concat{ x, x, dim = 0 })
    assert.same({ "a" }, { F.relu(s):list_arguments()[1] })
    assert.is_true(F.is_symbol(F.relu{ data = s }))
    assert.is_true(F.is_symbol(F.concat({ s, s }, { dim = 0 })))
    local rows = F.contrib.while_loop{ cond = function(i) return i[1]:lt(3) end,
      func = function(i) return i[1], { i[1] + 1 } end, loop_vars = { { s } }, max_iterations = 3 }
    assert.is_true(F.is_symbol(rows))
    assert.is_true(F.is_symbol(s))
    assert.is_false(F.is_symbol(x))
    assert.is_false(F.is_symbol(nil))
  end)

  it("has the namespaces", function()
    assert.near({ 1 }, F.linalg.sumlogdiag(nd.array{ { math.exp(1) } }), 1e-6)
    assert.is_true(F.is_symbol(F.linalg.potrf(sym.Variable("a"))))
    assert.shape({ 2 }, F.random.uniform{ shape = { 2 } })
    assert.is_true(ty.is_a(F.contrib.div_sqrt_dim(nd.ones{ 1, 4 }), nd.NDArray))
    assert.shape({ 3, 2, 2 }, F.image.to_tensor(nd.zeros({ 2, 2, 3 }, { dtype = "uint8" })))
  end)

  it("gives arrays where no tensor is given and no block is traced", function()
    assert.is_true(ty.is_a(F.zeros{ 2, 3 }, nd.NDArray))
    assert.is_true(ty.is_a(F.arange(3), nd.NDArray))
  end)

  it("refuses arrays and symbols together", function()
    for _, f in ipairs{ function() F.broadcast_add(nd.ones{ 1 }, sym.Variable("a")) end,
        function() F.broadcast_add(sym.Variable("a"), nd.ones{ 1 }) end,
        function() F.concat{ sym.Variable("a"), nd.ones{ 1 }, dim = 0 } end,
        function()
          F.contrib.while_loop{ cond = print, func = print, loop_vars = { sym.Variable("a"),
            { nd.ones{ 1 } } }, max_iterations = 3 }
        end } do
      assert.raises("type", f)
    end
  end)

  it("knows the names that both namespaces have", function()
    local e = assert.raises("name", function() return F.rellu end)
    assert.equal("relu", e.candidates[1])
    assert.raises("name", function() return F.waitall end)
    assert.raises("name", function() return F.random.unifrom end)
    assert.is_nil(rawget(F, "no_such_operator"))
  end)

  it("takes a name, which means nothing for arrays, in every function", function()
    local x, s = nd.ones{ 2, 2 }, sym.Variable("a")
    for _, make in ipairs{
      function(t) return F.relu(t, { name = "n" }) end,
      function(t) return F.maximum(t, t, { name = "n" }) end,
      function(t) return F.minimum{ t, t, name = "n" } end,
      function(t) return F.hypot(t, t, { name = "n" }) end,
      function(t) return F.split_v2(t, { 1 }, { axis = 1, name = "n" })[1] end,
      function(t) return t * F.random.uniform{ 0, 1, shape = { 2 }, name = "n" } end,
    } do
      assert.is_true(ty.is_a((make(x)), nd.NDArray))
    end
    assert.equal("n_output", F.maximum(s, s, { name = "n" }):list_outputs()[1])
    assert.near({ 0, 0 }, F.zeros{ 2, name = "n" })
    assert.near({ 1, 1 }, F.ones({ 2 }, { name = "n" }))
    assert.near({ 3, 3 }, F.full({ 2 }, 3, { name = "n" }))
    assert.near({ 0, 1 }, F.arange{ 2, name = "n" })
    assert.near({ { 1 } }, F.eye{ 1, name = "n" })
    local options = { shape = { 2 }, name = "n" }
    assert.shape({ 2 }, F.random.normal(0, 1, options))
    assert.equal("n", options.name)
    assert.raises("name", F.zeros, { 2, nmae = "n" })
  end)

  it("hands on the arguments of loops", function()
    local out = F.contrib.foreach(function(row, state)
      return row * 2, state
    end, nd.array{ { 1 }, { 2 } }, nd.zeros{ 1 })
    assert.near({ { 2 }, { 4 } }, out)
  end)
end)
