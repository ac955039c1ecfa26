-- Products over one weight that end in one sum, done as one (native/pass/batch_weight_gradients.c):
-- the same sums as one by one.
local device = require "spec.support.device"
local ty = require "tycho"
local sym = ty.sym

local function noise(shape) return ty.nd.random_normal{shape = shape} end

-- Returns a net of `steps` layers over one weight, each on a piece of its own; `between`: the step
-- that uses the weight otherwise, too.
local function chain(steps, options)
  local w, b, y = sym.Variable("w"), not options.no_bias and sym.Variable("b"), nil
  for t = 1, steps do
    local x = sym.Variable("x" .. t)
    if y and options.recurrent then x = sym.tanh(x + y) end
    y = sym.FullyConnected{data = x, weight = w, bias = b or nil, no_bias = options.no_bias,
      num_hidden = options.n, name = "fc" .. t}
    if options.between == t then y = y + sym.dot{x, w, transpose_b = true} end
    if options.slope then y = sym.Activation{data = y, act_type = options.slope} end
    options.all = options.all and options.all + y or y
  end
  local net = options.recurrent and y or options.all
  options.all = nil
  return net
end

local function shapes(steps, rows, k, options)
  local t = {w = {options.n, k}}
  if not options.no_bias then t.b = {options.n} end
  for i = 1, steps do t["x" .. i] = {type(rows) == "table" and rows[i] or rows, k} end
  return t
end

-- Returns gradients of every argument after two steps, in one program or (monitored) node by node.
local function gradients(net, given, req, dtype, apart, values)
  local types = {}
  for name in pairs(given) do types[name] = dtype end
  local exe = net:simple_bind{ctx = ty.cpu(), shapes = given, grad_req = req, type_dict = types}
  for name, x in pairs(exe.arg_dict) do x[{}] = values[name]:astype(dtype) end
  for _, g in pairs(exe.grad_dict) do g[{}] = 1 end
  if apart then exe:set_monitor_callback(function() end) end
  for _ = 1, 2 do
    exe:forward{is_train = true}
    exe:backward(exe.outputs[1])
  end
  return exe.grad_dict, exe
end

local function same(steps, rows, k, options, req, dtype)
  local net, given, values = chain(steps, options), shapes(steps, rows, k, options), {}
  ty.random.seed(steps)
  for name, shape in pairs(given) do values[name] = noise(shape) * 0.2 end
  local joined, exe = gradients(net, given, req, dtype or "float32", false, values)
  local apart = gradients(net, given, req, dtype or "float32", true, values)
  local near = ({float16 = 0.01, bfloat16 = 0.05, float64 = 1e-12})[dtype] or 4e-5
  for name, g in pairs(apart) do
    assert.near(g:astype("float64"), joined[name]:astype("float64"), near, near, name)
  end
  local counts = {}
  for n in exe:program():gmatch("(%d+) products in one") do counts[#counts + 1] = tonumber(n) end
  return counts
end

describe("products that end in one sum", function()
  setup(device.leave)
  teardown(device.come_back)
  it("are one up to enough rows, the rest another", function()
    assert.same({13, 7}, same(20, 20, 24, {n = 17}, "write"))
  end)
  it("with and without a bias, written and added", function()
    for _, req in ipairs{"write", "add"} do
      assert.same({9}, same(9, 8, 40, {n = 33, no_bias = true}, req))
      assert.same({9}, same(9, 8, 40, {n = 33}, req))
    end
  end)
  it("follow each other in time", function()
    assert.same({12}, same(12, 5, 16, {n = 16, recurrent = true, slope = "tanh"}, "write"))
  end)
  it("of one row, and of one column", function()
    assert.same({10}, same(10, 1, 3, {n = 1}, "write"))
    assert.same({10}, same(10, 3, 1, {n = 4}, "add"))
  end)
  it("where only some gradients are wanted", function()
    local req = {w = "write", b = "null"}
    for t = 1, 10 do req["x" .. t] = t % 2 == 0 and "write" or "null" end
    assert.same({10}, same(10, 4, 6, {n = 5}, req))
    req.w, req.b = "null", "add"
    assert.same({}, same(10, 4, 6, {n = 5}, req))
  end)
  it("in half precision and in float64", function()
    for _, dtype in ipairs{"float16", "bfloat16", "float64"} do
      same(10, 4, 6, {n = 5}, "write", dtype)
    end
  end)
  it("end early where another operator adds to the sum", function()
    local counts = same(12, 4, 6, {n = 5, between = 6, no_bias = true}, "write")
    local sum = 0
    for _, n in ipairs(counts) do sum = sum + n end
    assert.truthy(#counts == 2 and sum >= 10)
  end)
  it("not where rows are enough for a product of their own", function()
    assert.same({}, same(9, 256, 3, {n = 4}, "write"))
  end)
end)
