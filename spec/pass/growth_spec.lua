-- The cost of four times as many nodes: quadratic work would make it sixteen times. The best CPU
-- time of several attempts is compared, so that a busy machine changes little. A sanitizer adds its
-- own work on memory, so the test proves nothing under one.

local device = require "spec.support.device"
local ty = require "tycho"

local SMALL, MOST = 3000, 9
local ATTEMPTS, PATIENCE = 4, 10

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

local function many_heads(n)
  local x, list = ty.sym.Variable("x"), {}
  for i = 1, n do
    list[i] = x + i
  end
  return ty.sym.Group(list)
end

local function make_shapes(net)
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
  local one, gradients = ty.nd.ones{ 2, 2 }, {}
  for i = 1, #exe.outputs do
    gradients[i] = one
  end
  exe:backward(gradients)
  ty.nd.waitall()
end

-- Returns seconds of CPU time.
local function cost(build, act, n)
  local net = build(n)
  local shapes = make_shapes(net)
  collectgarbage()
  collectgarbage()
  local start = os.clock()
  act(net, shapes)
  return os.clock() - start
end

local function assert_no_worse_than_n_log_n(build, act)
  if device.is_gpu and act == bind then
    pending("a step on a GPU compiles a kernel for each number in the graph")
    return
  end
  if (os.getenv("SANITIZER") or "") ~= "" then
    pending("times under a sanitizer are its own")
    return
  end
  local small, large = math.huge, math.huge
  for attempt = 1, PATIENCE do
    small = math.min(small, cost(build, act, SMALL))
    large = math.min(large, cost(build, act, 4 * SMALL))
    if attempt >= ATTEMPTS and large / small < MOST then
      return
    end
  end
  assert.is_true(large / small < MOST, ("%d nodes: %.3f s, %d nodes: %.3f s"):format(
    SMALL, small, 4 * SMALL, large))
end

describe("growth with the number of", function()
  local shapes = { parameters = product_of_parameters, variables = sum_of_variables }
  it("heads: binding and a first step", function()
    assert_no_worse_than_n_log_n(many_heads, bind)
  end)

  for what, build in pairs(shapes) do
    it(what .. ": inference", function()
      assert_no_worse_than_n_log_n(build, infer)
    end)

    it(what .. ": binding and a first step", function()
      assert_no_worse_than_n_log_n(build, bind)
    end)
  end
end)
