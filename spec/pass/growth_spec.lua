-- What four times as many nodes cost. Quadratic work would make it sixteen times; CPU time of the
-- best of several attempts is compared, so that a busy machine changes little.

local ty = require "tycho"

local SMALL, MOST = 3000, 9
local ATTEMPTS = 4

local function product_of_parameters(n)
  local x = ty.sym.Variable("x")
  for i = 1, n do
    x = x * ty.sym.Variable("v" .. i)
  end
  return x
end

local function sum_of_variables(n)
  local list = {}
  for i = 1, n do
    list[i] = ty.sym.Variable("v" .. i)
  end
  return ty.sym.add_n(list)
end

local function shapes_of(net)
  local shapes = {}
  for _, name in ipairs(net:list_arguments()) do
    shapes[name] = { 2, 2 }
  end
  return shapes
end

local function infer(net, shapes)
  net:infer_shape(shapes)
end

local function bind(net, shapes)
  shapes.ctx = ty.cpu()
  local exe = net:simple_bind(shapes)
  exe:forward{ is_train = true }
  exe:backward(ty.nd.ones{ 2, 2 })
  ty.nd.waitall()
end

-- Seconds of CPU time.
local function cost(build, act, n)
  local net = build(n)
  local shapes = shapes_of(net)
  collectgarbage()
  collectgarbage()
  local start = os.clock()
  act(net, shapes)
  return os.clock() - start
end

local function ratio(build, act)
  local small, large = math.huge, math.huge
  for _ = 1, ATTEMPTS do
    small = math.min(small, cost(build, act, SMALL))
    large = math.min(large, cost(build, act, 4 * SMALL))
  end
  return large / small
end

describe("growth with the number of", function()
  local shapes = { parameters = product_of_parameters, variables = sum_of_variables }
  for what, build in pairs(shapes) do
    it(what .. ": inference", function()
      assert.is_true(ratio(build, infer) < MOST)
    end)

    it(what .. ": binding and a first step", function()
      assert.is_true(ratio(build, bind) < MOST)
    end)
  end
end)
