-- Reductions at the end of pointwise programs on a GPU: one step, no array between the two, and the
-- bits of the steps that a monitor makes of them; the CPU's numbers where all of them are whole.

local devices = require "spec.support.devices_agree"

local NETWORKS = devices.SCRIPT .. [[
local sym = ty.sym
local a, b = sym.Variable("a"), sym.Variable("b")

local function whole(shape, dtype, ctx)
  return ty.nd.floor((pattern(shape, here, "float32") + 1) * 2):astype(dtype):as_in_context(ctx)
end

local function bind(net, shapes, dtype, ctx)
  local args, grads = {}, {}
  for name, shape in pairs(shapes) do
    args[name], grads[name] = whole(shape, dtype, ctx), ty.nd.zeros(shape, ctx, dtype)
  end
  return net:bind{ctx = ctx, args = args, args_grad = dtype ~= "int32" and grads or nil,
    grad_req = dtype ~= "int32" and "write" or "null"}, grads
end

local function results(net, shapes, dtype, ctx, monitored)
  local exe, grads = bind(net, shapes, dtype, ctx)
  if monitored then
    exe:set_monitor_callback(function() end)
  end
  exe:forward{is_train = true}
  local list = {unpack(exe.outputs)}
  if dtype ~= "int32" then
    local heads = {}
    for i, y in ipairs(list) do
      heads[i] = whole(y.shape, dtype, ctx)
    end
    exe:backward(heads)
    list[#list + 1], list[#list + 2] = grads.a, grads.b
  end
  list[#list + 1] = ty.nd.zeros{1}
  return all(list), exe
end

-- Compares a network on a GPU, fused and not. `ended`: the steps of the program that end in a
-- reduction.
function check(name, net, shapes, dtypes, ended)
  for dtype in dtypes:gmatch("%w+") do
    local exe
    compare(name .. " " .. dtype .. ": a GPU and the CPU", function(ctx)
      local y
      y, exe = results(net, shapes, dtype, ctx)
      return y
    end)
    compare(name .. " " .. dtype .. ": fused and step by step", function(ctx)
      return (results(net, shapes, dtype, there, ctx == here))
    end)
    local _, n = exe:program():gsub("; %%%d+ by %l+", "")
    print(name, n == ended and "ended" or "not ended: " .. exe:program())
  end
end
]]

local SAME = "{a = {7, 33, 5}, b = {7, 33, 5}}"

local CASES = {
  { "all",       "sym.sum{a * b + 1}",                        SAME, "float32" },
  { "rows",      "sym.sum{a * b, axis = 2}",                  SAME,
    "float32 float64 float16 int32" },
  { "columns",   "sym.sum{a * b, axis = 0, keepdims = true}", SAME, "float16" },
  { "middle",    "sym.max{sym.broadcast_add{a, b}, axis = 1}", "{a = {7, 33, 5}, b = {33, 1}}",
    "int32" },
  { "mean",      "sym.mean{sym.square{a - b}, axis = {0, 2}}", "{a = {8, 33, 4}, b = {8, 33, 4}}",
    "float32" },
  { "norm",      "sym.norm{sym.abs{a} - b, ord = 1, axis = 1}", SAME, "float64" },
  { "parts",     "sym.sum{sym.relu{a - b}}",                  "{a = {50, 2000}, b = {50, 2000}}",
    "float64" },
  -- what others read is stored by the same step
  { "stored",    "sym.Group{a * b + 2, sym.min{a * b + 2, axis = 1}}", SAME,
    "float16 int32" },
  -- the result is as large as what broadcasts, and must not take its place
  { "own place", "sym.sum{sym.broadcast_mul{a, sym.relu{b} + 1}, axis = 0}",
    "{a = {5, 5}, b = {1, 5}}", "float32" },
  { "twice",     "sym.sum{a * b, axis = 1} + sym.sum{sym.abs{a - b}, axis = 1}", SAME,
    "float32", 2 },
}

describe("a pointwise program on a GPU ends in a reduction", function()
  it("with the bits of its steps", function()
    local script, comparisons = { NETWORKS }, 0
    for _, case in ipairs(CASES) do
      script[#script + 1] = ("check(%q, %s, %s, %q, %d)"):format(case[1], case[2], case[3], case[4],
        case[5] or 1)
      local _, dtypes = case[4]:gsub("%w+", "")
      comparisons = comparisons + 2 * dtypes
    end
    local text = devices.agree(pending, table.concat(script, "\n"), comparisons)
    if text then
      local _, ended = text:gsub("\tended\n", "")
      assert.equal(comparisons / 2, ended, text)
    end
  end)

  -- the gradient of what was broadcast
  it("where a formula's gradient is summed", function()
    local text = devices.agree(pending, NETWORKS .. [[
for dtype, size in pairs{float32 = 4, float64 = 8, float16 = 2} do
  local shapes = {a = {6, 4, 30}, b = {4, 1}}
  local net = sym.broadcast_mul{a, b}
  compare(dtype, function(ctx) return (results(net, shapes, dtype, ctx)) end)
  local exe = bind(net, shapes, dtype, there)
  exe:forward{is_train = true}
  print(exe:memory().planned < 2 * 6 * 4 * 30 * size and "no array between" or exe:program())
end
]], 3)
    if text then
      local _, small = text:gsub("no array between\n", "")
      assert.equal(3, small, text)
    end
  end)
end)
