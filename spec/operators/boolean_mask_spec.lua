-- Outputs whose size the data decide: contrib.boolean_mask (native/operators/index/boolean_mask.c).

local ty = require "tycho"

local V = ty.sym.Variable

local function bind()
  local e = ty.sym.contrib.boolean_mask{ V("data"), V("index"), name = "m" }
    :simple_bind{ ctx = ty.cpu(), data = { 4, 2 }, index = { 4 } }
  e.arg_dict.data[":"] = { { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } }
  return e
end

describe("boolean_mask", function()
  it("has as many rows as are chosen, run by run", function()
    local e = bind()
    for _, case in ipairs{
        { { 0, 1, 0, 1 }, { { 3, 4 }, { 7, 8 } }, { { 0, 0 }, { 1, 1 }, { 0, 0 }, { 1, 1 } } },
        { { 1, 2, -1, 3 }, { { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } },
          { { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } } },
        { { 0, 0, 1, 0 }, { { 5, 6 } }, { { 0, 0 }, { 0, 0 }, { 1, 1 }, { 0, 0 } } },
    } do
      e.arg_dict.index[":"] = case[1]
      local y = e:forward(true)[1]
      assert.same(case[2], y:totable())
      e:backward(ty.nd.ones(y.shape))
      assert.same(case[3], e.grad_dict.data:totable())
      assert.same({ 0, 0, 0, 0 }, e.grad_dict.index:totable())
    end
  end)

  it("works at once on arrays, in several dtypes", function()
    for _, dtype in ipairs{ "float32", "float64", "float16", "int32", "int64", "uint8", "bool" } do
      local y = ty.nd.contrib.boolean_mask{ ty.nd.array({ 1, 2, 3 }, { dtype = "int64" }),
        ty.nd.array({ 1, 0, 1 }, { dtype = dtype }) }
      assert.same({ 1, 3 }, y:totable())
    end
  end)

  it("refuses to choose nothing, and says so", function()
    local e = bind()
    e.arg_dict.index[":"] = 0
    local ok, err = pcall(e.forward, e, true)
    assert.is_false(ok)
    assert.equal("value", err.code)
    ok, err = pcall(ty.nd.contrib.boolean_mask, ty.nd.ones{ 2, 1 }, ty.nd.zeros(2))
    assert.is_false(ok)
    assert.equal("value", err.code)
  end)

  it("is an output only: a reader is a shape error when bound", function()
    local s = ty.sym.contrib.boolean_mask{ V("data"), V("index"), name = "m" } * 2
    local ok, err = pcall(s.simple_bind, s, { ctx = ty.cpu(), data = { 4, 2 }, index = { 4 } })
    assert.is_false(ok)
    assert.equal("shape", err.code)
    assert.matches("known only when it has run", err.message)
    assert.equal("a shape that follows from other shapes", err.expected)
    assert.is_nil(err.candidates)
  end)

  it("refuses an index of another length, and head gradients with too many rows", function()
    local s = ty.sym.contrib.boolean_mask{ V("data"), V("index") }
    local ok, err = pcall(s.simple_bind, s, { ctx = ty.cpu(), data = { 4, 2 }, index = { 3 } })
    assert.is_false(ok)
    assert.equal("shape", err.code)
    local e = bind()
    e.arg_dict.index[":"] = 1
    e:forward(true)
    ok, err = pcall(e.backward, e, ty.nd.ones{ 5, 2 })
    assert.is_false(ok)
    assert.equal("shape", err.code)
  end)
end)
