-- Activations from -8 to 8: float32 against float64, each element by its own size, since what
-- cancels is small. Gradients that are made from the output, as the reference's are, are exact to
-- a rounding of that, and that of gelu is where it crosses zero.
local ty = require "tycho"
local arrays = require "spec.support.arrays"
local device = require "spec.support.device"
require "spec.helper"

local sym, V = ty.sym, ty.sym.Variable
local STEPS = 16                                          -- of 1: exact in both types
local RELATIVE, ABSOLUTE = 4e-6, 2.5e-7

-- Returns a row of an operator. from_output: whether the gradient is exact only to a rounding of
-- the output; a function of x: whether it is there.
local function op(name, params, from_output)
  return {name = name .. (params and params.act_type and " " .. params.act_type or ""),
    from_output = from_output, make = function(x)
      local options = {x}
      for key, v in pairs(params or {}) do options[key] = v end
      return sym[name](options)
    end}
end

local ACTIVATIONS = {
  op("LeakyReLU", {act_type = "gelu"}, function(x) return x > -1 and x < -0.5 end),
  op("LeakyReLU", {act_type = "leaky"}),
  op("LeakyReLU", {act_type = "elu", slope = 0.5}, true),
  op("LeakyReLU", {act_type = "selu"}, true),
  op("Activation", {act_type = "relu"}),
  op("Activation", {act_type = "softsign"}),
  op("Activation", {act_type = "softrelu"}, true),
  op("Activation", {act_type = "sigmoid"}, true),
  op("Activation", {act_type = "tanh"}, true),
  op("relu"), op("softsign"), op("sigmoid", nil, true), op("tanh", nil, true), op("hard_sigmoid"),
  op("erf"), op("expm1"), op("exp"), op("arctan"), op("arcsinh"), op("sinh"), op("cosh"),
}

-- Returns values and gradients of an activation from low to high.
local function results(activation, dtype, low, high)
  local n = (high - low) * STEPS + 1
  local x = ty.nd.arange(0, n, {dtype = "float64"}) / STEPS + low
  x = x:astype(dtype)
  local grad = ty.nd.zeros({n}, {dtype = dtype})
  local exe = activation.make(V"x"):bind{ctx = ty.current_context(), args = {x = x},
    args_grad = {x = grad}}
  exe:forward{is_train = true}
  exe:backward(ty.nd.ones({n}, {dtype = dtype}))
  return arrays.list(exe.outputs[1]), arrays.list(grad), arrays.list(x)
end

local function agree(what, want, got, x, absolute)
  for i, v in ipairs(want) do
    local off = math.abs(got[i] - v)
    local least = type(absolute) == "function" and absolute(x[i]) or absolute == true
    assert(off <= math.max(RELATIVE * math.abs(v), least and ABSOLUTE or 0),
      ("%s at %g: %.9g, expected %.9g"):format(what, x[i], got[i], v))
  end
end

describe("from -8 to 8,", function()
  for _, activation in ipairs(ACTIVATIONS) do
    it(activation.name .. " keeps its digits", function()
      local y, g, x = results(activation, "float64", -8, 8)
      local values, grads = results(activation, "float32", -8, 8)
      agree(activation.name, y, values, x, false)
      agree("gradient of " .. activation.name, g, grads, x, activation.from_output)
    end)
  end

  it("recorded gradients keep their digits", function()
    local list = {}
    for x = -8, 8, 1 / STEPS do list[#list + 1] = x end
    local function grads(name, params, dtype, recorded)
      local x, options = ty.nd.array(list, {dtype = dtype}):attach_grad(), {}
      for key, v in pairs(params) do options[key] = v end
      options[1] = x
      local y = ty.autograd.record(function() return ty.nd[name](options) end)
      return arrays.list(ty.autograd.grad(y, x, {create_graph = recorded}))
    end
    local function at_zero_of_gelu(x) return x > -1 and x < -0.5 end
    for _, case in ipairs{{"LeakyReLU", {act_type = "gelu"}, at_zero_of_gelu},
      {"LeakyReLU", {act_type = "elu"}, true}, {"LeakyReLU", {act_type = "selu"}, true},
      {"Activation", {act_type = "softrelu"}, true}, {"Activation", {act_type = "softsign"}},
      {"sigmoid", {}, true}, {"tanh", {}, true}, {"erf", {}}, {"expm1", {}}} do
      local what = "recorded gradient of " .. case[1] .. " " .. (case[2].act_type or "")
      agree(what, grads(case[1], case[2], "float64", false),
        grads(case[1], case[2], "float32", true), list, case[3])
    end
  end)

  it("gelu is data times the normal distribution function", function()
    for dtype, bound in pairs{float64 = 1e-14, float32 = 1e-6} do
      local exe = ACTIVATIONS[1].make(V"x"):bind{ctx = ty.current_context(),
        args = {x = ty.nd.array({-8, -5, -4, -1, 0, 1, 8}, {dtype = dtype})}}
      local y = arrays.list(exe:forward()[1])
      for i, want in ipairs{-4.9767684594174273e-15, -1.4332578593959696e-6,
        -1.2668496733247969e-4, -0.15865525393145705, 0, 0.84134474606854295, 8} do
        assert(math.abs(y[i] - want) <= bound * math.abs(want),
          ("%.17g, expected %.17g"):format(y[i], want))
      end
    end
  end)
end)

describe("gelu of float32", function()
  it("is that of float64 in pieces of any size, in place and into another array", function()
    for _, n in ipairs{1, 15, 2047, 2048, 2049, 4100, 70000} do
      local x = ty.nd.arange{n} / n * 12 - 6
      local want = ty.nd.LeakyReLU{x:astype("float64"), act_type = "gelu"}
      local got = ty.nd.LeakyReLU{x, act_type = "gelu"}
      local off = ty.nd.abs(got:astype("float64") - want) / (ty.nd.abs(want) + 1e-30)
      assert.is_true(ty.nd.max(off):asscalar() < 1e-6)
      ty.nd.LeakyReLU{x, act_type = "gelu", out = x}
      assert.same(got:totable(), x:totable())
    end
    local ends = arrays.list(ty.nd.LeakyReLU{ty.nd.array{0 / 0, math.huge}, act_type = "gelu"})
    assert.is_true(ends[1] ~= ends[1])
    assert.equal(math.huge, ends[2])
  end)
end)

describe("the gradient of gelu of float32", function()
  local gelu = sym.LeakyReLU{V"x", act_type = "gelu"}

  -- Returns the gradient of gelu at x for a head gradient.
  local function gradient(x, head, request)
    local grad = ty.nd.ones(x.shape, {dtype = x.dtype})
    local exe = gelu:bind{ctx = ty.current_context(), args = {x = x}, args_grad = {x = grad},
      grad_req = request or "write"}
    exe:forward{is_train = true}
    exe:backward{head}
    return grad
  end

  it("is that of float64 for any number of elements, written and added", function()
    for _, n in ipairs{1, 2, 15, 16, 17, 33, 2049, 70000} do
      local x, head = ty.nd.arange{n} / n * 12 - 6, ty.nd.arange{n} % 7 - 3
      local want = gradient(x:astype("float64"), head:astype("float64"))
      for request, more in pairs{write = 0, add = 1} do
        local got = gradient(x, head, request):astype("float64")
        local off = ty.nd.abs(got - want - more)
        assert.is_true(ty.nd.max(off):asscalar() < 1e-6)
      end
    end
  end)

  it("is 0 and the head gradient in the tails, and NaN of what is no number", function()
    local x = ty.nd.array{-40, 40, 0 / 0, -13.5, 13.5, 0}
    local got = arrays.list(gradient(x, ty.nd.ones{6}))
    assert.same({0, 1}, {math.abs(got[1]), got[2]})
    assert.is_true(got[3] ~= got[3])
    assert.is_true(math.abs(got[4]) < 1e-30)
    assert.same({1, 0.5}, {got[5], got[6]})
  end)
end)

describe("gelu of float32 on a CPU", function()
  setup(device.leave)
  teardown(device.come_back)

  it("is a normal number or 0, whose products are fast", function()
    local n = 4096
    local x = ty.nd.arange(0, n) / n * -3 - 12
    local y = arrays.list(ty.nd.LeakyReLU{x, act_type = "gelu"})
    for i, v in ipairs(y) do
      assert(v == 0 or v <= -2 ^ -126, ("element %d is %.9g"):format(i, v))
    end
    assert.is_true(y[1] < 0 and y[math.floor(n * 0.31)] < 0)
    assert.equal(0, y[n])
  end)
end)

describe("near the ends of their range,", function()
  it("the gradients of gamma and gammaln are right near the poles", function()
    -- psi(-e) = 1 / e - 0.57721566490153286 - ..., gamma(-e) = -1 / e - 0.57721566490153286 - ...
    for name, want in pairs{gammaln = 4294967295.4227843, gamma = -18446744073709551615} do
      local x = ty.nd.array({-2 ^ -32}, {dtype = "float64"})
      local grad = ty.nd.zeros({1}, {dtype = "float64"})
      local exe = sym[name](V"x"):bind{ctx = ty.current_context(), args = {x = x},
        args_grad = {x = grad}}
      exe:forward{is_train = true}
      exe:backward(ty.nd.ones({1}, {dtype = "float64"}))
      local got = arrays.list(grad)[1]
      assert(math.abs(got / want - 1) <= 4e-16,
        ("%s: %.17g, expected %.17g"):format(name, got, want))
    end
  end)

  it("gradients of inverse functions keep their digits", function()
    for name, sign in pairs{arcsin = 1, arccos = 1, arctanh = 1, arccosh = -1} do
      for _, e in ipairs{2 ^ -10, 2 ^ -16, 2 ^ -22} do
        local got = {}
        for _, dtype in ipairs{"float64", "float32"} do
          local grad = ty.nd.zeros({1}, {dtype = dtype})
          local exe = sym[name](V"x"):bind{ctx = ty.current_context(),
            args = {x = ty.nd.array({1 - sign * e}, {dtype = dtype})}, args_grad = {x = grad}}
          exe:forward{is_train = true}
          exe:backward(ty.nd.ones({1}, {dtype = dtype}))
          got[dtype] = arrays.list(grad)[1]
        end
        local off = math.abs(got.float32 / got.float64 - 1)
        assert(off <= 1e-6, ("%s, %g from 1: off by %g"):format(name, e, off))
      end
    end
  end)
end)
