-- Operators of loss and attention on integers, on the device that specs run on.
local ty = require "tycho"
require "spec.helper"

-- Returns outputs and gradients of an operator of x (2, 5), whose head gradient is the output.
local function run(op, dtype)
  local e = ty.sym[op]{ ty.sym.Variable "x" }:simple_bind{ ctx = ty.current_context(),
    x = { 2, 5 }, type_dict = { x = dtype } }
  e.arg_dict.x[":"] = ty.nd.array({ { 1, 2, 4, 0, 5 }, { 3, 9, 8, 100, 7 } }, { dtype = dtype })
  e:forward{ is_train = true }
  e:backward(e.outputs[1])
  return e.outputs[1]:reshape(-1):totable(), e.grad_dict.x:reshape(-1):totable()
end

describe("of integers", function()
  for _, dtype in ipairs{ "uint8", "int8", "int32", "int64", "bool" } do
    it("make_loss passes data, and its gradient is 1: " .. dtype, function()
      local y, dx = run("make_loss", dtype)
      assert.same(dtype == "bool" and { 1, 1, 1, 0, 1, 1, 1, 1, 1, 1 }
        or { 1, 2, 4, 0, 5, 3, 9, 8, 100, 7 }, y)
      assert.same({ 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, dx)
    end)
  end

  for _, dtype in ipairs{ "uint8", "int8", "int32", "int64" } do
    it("div_sqrt_dim divides by the root's whole part: " .. dtype, function()
      local y, dx = run("_contrib_div_sqrt_dim", dtype)
      assert.same({ 0, 1, 2, 0, 2, 1, 4, 4, 50, 3 }, y)
      assert.same({ 0, 0, 1, 0, 1, 0, 2, 2, 25, 1 }, dx)
    end)
  end

  it("div_sqrt_dim rounds towards zero, and keeps what is large", function()
    local div = ty.nd.contrib.div_sqrt_dim
    local x = ty.nd.array({ { -7, 7, 2 ^ 30 + 1, -1 } }, { dtype = "int64" })
    assert.same({ { -3, 3, 2 ^ 29, 0 } }, div(x):totable())
    assert.same({ { 49 } }, div(ty.nd.array({ { 49 } }, { dtype = "int32" })):totable())
    assert.raises("dtype", div, ty.nd.array({ { 1 } }, { dtype = "bool" }))
  end)

  -- The function's value loses its fraction, no number on the way to it does.
  for _, dtype in ipairs{ "int8", "int32", "int64" } do
    it("real functions are truncated once: " .. dtype, function()
      local function of(name, ...)
        return ty.nd[name](ty.nd.array({ ... }, { dtype = dtype })):totable()
      end
      assert.same({ 0, 57, -114, 114 }, of("degrees", 0, 1, -2, 2))
      assert.same({ 1, 0, -1, 2 }, of("radians", 60, 57, -100, 120))
      assert.same({ 1, 0, 0, 0, -1, 0 }, of("rcbrt", 1, 2, 4, 100, -1, -7))
    end)
  end

  it("degrees and radians have gradients of integers", function()
    local _, dx = run("degrees", "int32")
    assert.same({ 3265, 6531, 13120, 0, 16386, 9797, 29507, 26241, 328247, 22975 }, dx)
    _, dx = run("radians", "int32")
    assert.same({ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, dx)
  end)
end)
