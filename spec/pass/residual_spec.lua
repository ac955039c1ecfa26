-- A normalisation that adds the other side of a residual sum, and applies the relu behind it
-- (native/pass/epilogue.c): the same numbers, outputs and gradients, as step by step.

local ty = require "tycho"

local sym = ty.sym
local V = sym.Variable

local function norm(x, name)
  return sym.BatchNorm{data = x, fix_gamma = false, eps = 1e-3, name = name}
end

-- x, perhaps through a convolution, normalised; plus the other side
local function network(o)
  local x = V"x"
  local y = o.blocks and sym.Convolution{data = x, num_filter = 16, kernel = {3, 3}, pad = {1, 1},
    no_bias = true, name = "a"} or x
  local main, other = norm(y, "bn"), V"r"
  if o.other == "norm" then other = norm(y * 2, "before") end
  if o.other == "input" then other = y end
  if o.other == "later" then
    other = sym.FullyConnected{data = norm(y, "after"), num_hidden = 5, flatten = false, name = "f"}
  end
  local sum = sym.elemwise_add{o.turned and other or main, o.turned and main or other, name = "sum"}
  local z = o.relu and sym.relu{sum, name = "ramp"} or sum
  local last = o.blocks and sym.Convolution{data = z, num_filter = 16, kernel = {1, 1}, name = "fc"}
    or sym.FullyConnected{data = z, num_hidden = 3, name = "fc"}
  if o.seen == "sum" then return sym.Group{last, sum} end
  if o.seen == "norm" then return sym.Group{last, main} end
  return last
end

local function bound(net, shape, dtype)
  local types, shapes = {}, {x = shape}
  for _, name in ipairs(net:list_arguments()) do
    local wide = dtype == "float16" and (name:find("_gamma$") or name:find("_beta$"))
    types[name] = wide and "float32" or dtype
    if name == "r" then shapes.r = shape end
  end
  local exe = net:simple_bind{ctx = ty.cpu(), shapes = shapes,
    type_dict = types, grad_req = "write"}
  ty.random.seed(7)
  for _, name in ipairs(net:list_arguments()) do
    exe.arg_dict[name][":"] =
      ty.nd.random.normal{shape = exe.arg_dict[name].shape}:astype(types[name])
  end
  return exe
end

local function results(exe)
  local heads, list = {}, {}
  exe:forward(true)
  for i, y in ipairs(exe.outputs) do heads[i], list["output " .. i] = y * 0.5 + 1, y:copy() end
  exe:backward(heads)
  for name, g in pairs(exe.grad_dict) do list[name] = g:copy() end
  for name, a in pairs(exe.aux_dict) do list[name] = a:copy() end
  return list
end

local function difference(a, b)
  a, b = a:astype("float64"), b:astype("float64")
  return (a - b):abs():max():asscalar() / math.max(a:abs():max():asscalar(), 1e-30)
end

local function compare(o, shape, dtype, bound_)
  local net = network(o)
  local exe, plain = bound(net, shape, dtype), bound(net, shape, dtype)
  plain:set_monitor_callback(function() end)
  local got, want = results(exe), results(plain)
  for name, x in pairs(want) do
    local d = difference(x, got[name])
    assert(d <= bound_, ("%s, %s, shape %s: %s differs by %g"):format(o.other or "array", dtype,
      table.concat(shape, " x "), name, d))
  end
  return exe:program()
end

-- what the program says of the normalisation that comes last
local function is_taken_over(o, program)
  local name = o.other == "norm" and not o.turned and "before" or "bn"
  return program:find(("[%s sum%s]"):format(name, o.relu and " ramp" or ""), 1, true), program
end

local SHAPES = {{4, 3}, {1, 1}, {3, 2, 5}, {2, 3, 4, 5}}

describe("a residual sum behind a normalisation", function()
  it("is part of it, to the last bit, on either side, with relu and without", function()
    for _, dtype in ipairs{"float32", "float64"} do
      for _, shape in ipairs(SHAPES) do
        for _, other in ipairs{"array", "norm", "input"} do
          for k = 0, 3 do
            local o = {other = other, turned = k % 2 == 1, relu = k > 1}
            local program = compare(o, shape, dtype, 0)
            assert.is_truthy(is_taken_over(o, program))
          end
        end
      end
    end
  end)

  it("is with channels in blocks too", function()
    for _, other in ipairs{"norm", "input"} do
      for k = 0, 3 do
        local o = {other = other, turned = k % 2 == 1, relu = k > 1, blocks = true}
        local program = compare(o, {4, 32, 17, 23}, "float32", 2e-5)
        assert.is_truthy(is_taken_over(o, program))
        if program:find("channels in", 1, true) then
          assert.is_truthy(program:find("sum[ ramp]*%]  channels in"), program)
        end
      end
    end
  end)

  it("stays apart where others see what lies between, or the other side comes later", function()
    for _, o in ipairs{{seen = "sum", relu = true}, {seen = "norm", relu = true},
        {other = "later", relu = true}} do
      local program = compare(o, {4, 2, 5}, "float32", 2e-6)
      assert.is_nil(program:find("[bn sum ramp]", 1, true), program)
    end
  end)

  it("takes its half types step by step", function()
    local program = compare({relu = true}, {2, 3, 4}, "float16", 2e-2)
    assert.is_nil(program:find("[bn sum ramp]", 1, true), program)
  end)

  it("is not changed by inference, nor by executors without gradients", function()
    local net = network{relu = true, other = "norm"}
    local exe = bound(net, {2, 3, 4}, "float64")
    local free = net:simple_bind{ctx = ty.cpu(), shapes = {x = {2, 3, 4}}, grad_req = "null",
      type_dict = {x = "float64", fc_weight = "float64"}}
    exe:forward(true)
    exe:backward(ty.nd.ones{2, 3, dtype = "float64"})
    for name, x in pairs(exe.arg_dict) do free.arg_dict[name][":"] = x end
    for name, x in pairs(exe.aux_dict) do free.aux_dict[name][":"] = x end
    local gap = difference(exe:forward(false)[1], free:forward(false)[1])
    assert(gap <= 1e-14, gap)
  end)
end)
