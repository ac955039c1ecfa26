-- var and std of arrays and symbols (runtime/lua/tycho/op/variance.lua).
local ty = require "tycho"
require "spec.helper"

local ROWS = { { 1, 2, 4 }, { 3, 9, 8 } }
local AXES = {                                            -- axis, variance
  { nil, { 107 / 12 } }, { 0, { 1, 49 / 4, 4 } }, { 1, { 14 / 9, 62 / 9 } },
  { -1, { 14 / 9, 62 / 9 } }, { { 0, 1 }, { 107 / 12 } },
}

local function roots(t)
  local out = {}
  for i, v in ipairs(t) do out[i] = math.sqrt(v) end
  return out
end

describe("var and std", function()
  it("of arrays are methods and functions", function()
    local x = ty.nd.array(ROWS)
    for _, row in ipairs(AXES) do
      local axis, want = row[1], row[2]
      assert.near(want, x:var{ axis = axis }, 1e-6)
      assert.near(want, ty.nd.var(x, axis), 1e-6)
      assert.near(roots(want), x:std{ axis = axis }, 1e-6)
      assert.near(roots(want), ty.nd.std{ x, axis = axis }, 1e-6)
    end
    assert.same({ 2, 1 }, x:std{ axis = 1, keepdims = true }.shape)
    assert.same({ 1, 1 }, x:var{ keepdims = true }.shape)
    assert.same({ 1 }, x:var().shape)
  end)

  it("of integers and bools are float32", function()
    for _, dtype in ipairs{ "uint8", "int8", "int32", "int64" } do
      local y = ty.nd.array(ROWS, { dtype = dtype }):var()
      assert.equal("float32", y.dtype)
      assert.near({ 107 / 12 }, y, 1e-6)
    end
    local large = ty.nd.array({ 2 ^ 30, 2 ^ 30 + 1, 2 ^ 30 + 2 }, { dtype = "int32" })
    assert.near({ 2 / 3 }, large:var(), 1e-6)
    local bools = ty.nd.array({ 1, 0, 1, 1 }, { dtype = "bool" }):std()
    assert.equal("float32", bools.dtype)
    assert.near({ math.sqrt(3) / 4 }, bools, 1e-6)
    assert.equal("float16", ty.nd.array(ROWS, { dtype = "float16" }):std().dtype)
  end)

  it("of symbols are methods, and std a function", function()
    local x = ty.sym.Variable "x"
    local cases = { { x:var{ axis = 1 }, { 14 / 9, 62 / 9 } }, { x:std(), { math.sqrt(107 / 12) } },
      { ty.sym.std{ x, axis = 0 }, roots{ 1, 49 / 4, 4 } } }
    for _, case in ipairs(cases) do
      local e = case[1]:simple_bind{ ctx = ty.current_context(), x = { 2, 3 } }
      e.arg_dict.x[":"] = ty.nd.array(ROWS)
      assert.near(case[2], e:forward{ is_train = true }[1], 1e-6)
    end
    assert.equal("x", ty.sym.var("x").name)               -- a variable, as ever
    local e = x:var():simple_bind{ ctx = ty.current_context(), x = { 4 } }
    e.arg_dict.x[":"] = ty.nd.array{ 1, 2, 3, 6 }
    e:forward{ is_train = true }
    e:backward(ty.nd.ones{ 1 })
    assert.near({ -1, -0.5, 0, 1.5 }, e.grad_dict.x, 1e-6)
  end)

  it("say what they do not take", function()
    local x = ty.nd.array(ROWS)
    assert.raises("value", x.var, x, 2)
    assert.raises("type", x.std, x, "a")
    assert.raises("name", x.std, x, { axes = 1 })
    assert.raises("type", ty.nd.std, 3)
  end)
end)
