-- A product of bfloat16 that reads a float32 weight itself (native/pass/weight_casts.c): the
-- numbers of the cast, without the cast.
local device = require "spec.support.device"
local shell = require "spec.support.shell"
local ty = require "tycho"
require "spec.helper"

local nd, sym = ty.nd, ty.sym
local V = sym.Variable

-- Returns a product of casts. o.bias: "cast", "half" (bound as bfloat16), nil (none).
local function network(o)
  local function cast(x) return sym.amp_cast{ x, dtype = "bfloat16" } end
  local bias = o.bias == "cast" and cast(V "b") or o.bias and V("b", { dtype = "bfloat16" }) or nil
  local weight = o.computed and cast(V "w" * 1) or cast(V "w")
  local y = sym.FullyConnected{ data = cast(V "x"), weight = weight, bias = bias,
    no_bias = not bias, num_hidden = o.units, flatten = false, name = "fc" }
  if o.gelu then y = sym.LeakyReLU{ y, act_type = "gelu" } end
  if o.tied then y = sym.broadcast_add(y, sym.reshape{ sym.sum(weight), shape = { 1, 1 } }) end
  return sym.amp_cast{ y, dtype = "float32", name = "out" }
end

local function make_arrays(o)
  ty.random.seed(5)
  local a = { x = nd.random_normal{ shape = { o.rows, o.width } },
    w = nd.random_normal{ shape = { o.units, o.width } } }
  a.b = o.bias and nd.random_normal{ shape = { o.units } }:astype(o.bias == "half" and "bfloat16" or
    "float32")
  return a
end

local function bind(o, a, req)
  local net, args = network(o), {}
  for _, name in ipairs(net:list_arguments()) do args[name] = a[name] end
  return net:bind{ ctx = ty.cpu(), args = args, grad_req = req or "null",
    args_grad = req and { w = nd.zeros(a.w.shape) } or nil }
end

local function output(exe)
  exe:forward{ is_train = false }
  return exe.outputs[1]
end

-- Returns the number of steps that round a weight.
local function count_rounding(exe)
  return select(2, tostring(exe:program()):gsub("  rounding ", ""))
end

-- Checks that an executor gives the numbers of one that a monitor made run as written.
local function check(o)
  local a = make_arrays(o)
  local exe, plain = bind(o, a), bind(o, a)
  plain:set_monitor_callback(function() end)
  assert.near(output(plain), output(exe), 0, 0)
  local rounding = count_rounding(exe)
  assert.equal(o.stays and 0 or 1, rounding)
  -- a weight that has changed is rounded again
  a.w[{}] = nd.random_normal{ shape = a.w.shape }
  assert.near(output(plain), output(exe), 0, 0)
end

describe("a cast of a weight", function()
  setup(device.leave)                                    -- products of a GPU read halves
  teardown(device.come_back)
  for _, rows in ipairs{ 1, 2, 3, 4, 33, 300 } do
    it(("is left to the product of %d rows"):format(rows), function()
      check{ rows = rows, width = 40, units = 70 }
      check{ rows = rows, width = 1, units = 1, bias = "cast" }
      check{ rows = rows, width = 65, units = 33, bias = "half", gelu = true }
    end)
  end
  it("stays for other readers", function()
    check{ rows = 20, width = 40, units = 70, bias = "cast", tied = true }
  end)
  it("stays where a node made the weight", function()
    check{ rows = 20, width = 40, units = 70, computed = true, stays = true }
  end)
  it("stays where the weight is trained", function()
    local o = { rows = 20, width = 40, units = 70 }
    local rounding = count_rounding(bind(o, make_arrays(o), { w = "write" }))
    assert.equal(0, rounding)
  end)
  it("stays with TYCHO_DISABLE=weight_casts", function()
    local code = [[local ty = require "tycho"; local S = ty.sym; local V = S.Variable
      local function half(x) return S.amp_cast{ x, dtype = "bfloat16" } end
      local net = S.FullyConnected{ data = half(V "x"), weight = half(V "w"), no_bias = true,
        num_hidden = 8 }
      local exe = net:simple_bind{ ctx = ty.cpu(), shapes = { x = { 8, 8 } }, grad_req = "null" }
      exe:forward{ is_train = false }
      io.write((tostring(exe:program()):find("  rounding ", 1, true)) and "rounds" or "casts")]]
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write(code)
    file:close()
    local text = shell.run(("%s %s"):format(shell.program, path))
    local off = shell.run(("TYCHO_DISABLE=weight_casts %s %s"):format(shell.program, path))
    os.remove(path)
    assert.equal("rounds", text)
    assert.equal("casts", off)
  end)
end)
