-- BatchNorm on a GPU compared with the CPU, on the stand-in whose checker watches every access:
-- channels of one part and of several, channels in planes and last, packs of 16 bytes and single
-- elements, a relu after it; two launches each way.

local devices = require "spec.support.devices_agree"

local SCRIPT = devices.COSTS .. [[
local sym = ty.sym

-- Returns outputs, statistics, gradients of a training step; on a GPU also the launches forward and
-- backward.
local function step(ctx, case)
  local attributes = {data = sym.Variable "x", name = "n", fix_gamma = case.fixed or false,
    axis = case.axis, use_global_stats = case.global}
  local net = (case.op and sym.contrib[case.op] or sym.BatchNorm)(attributes)
  if case.relu then net = sym.relu(net) end
  local types = {x = case.dtype}
  local exe = net:simple_bind{ctx = ctx, x = case.shape, type_dict = types, grad_req = "write"}
  local function set(to, scale, shift)
    local x = pattern(to.shape, here, "float64") * scale + shift
    x:astype(to.dtype):copyto(to)
  end
  set(exe.arg_dict.x, 1, case.mean or 0)
  set(exe.arg_dict.n_gamma, 0.5, 1)
  set(exe.arg_dict.n_beta, 0.5, 0)
  set(exe.aux_dict.n_moving_mean, 0.1, 0)
  exe.aux_dict.n_moving_var[":"] = 1.5
  local head = ty.nd.square(pattern(case.shape, ctx, case.dtype)) - 0.5
  local n = {}
  ty.waitall()
  for i, run in ipairs{function() exe:forward(true) end, function() exe:backward(head) end} do
    costs()
    run()
    ty.waitall()
    n[i] = select(2, costs():gsub("batch_[^\n]*", ""))
  end
  return {exe.outputs[1], exe.grad_dict.x, exe.grad_dict.n_gamma, exe.grad_dict.n_beta,
    exe.aux_dict.n_moving_mean, exe.aux_dict.n_moving_var}, n
end

local BOUND = {float32 = 2e-5, float64 = 1e-12, float16 = 4e-3, bfloat16 = 3e-2}

local function nearly(name, case)
  case.dtype = case.dtype or "float32"
  local mine = step(here, case)
  local theirs, n = step(there, case)
  local worst = farthest(mine, theirs)
  local launches = n[1] .. "+" .. n[2]
  local want = case.global and "1+2" or "2+2"
  print(name, worst <= (case.bound or BOUND[case.dtype]) and launches == want and "equal"
    or ("different: %g, %s launches"):format(worst, launches))
end

for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
  nearly(dtype .. ", planes", {shape = {3, 5, 4, 6}, dtype = dtype})
  nearly(dtype .. ", last", {shape = {40, 24}, dtype = dtype})
end
nearly("planes in parts", {shape = {40, 3, 20, 20}})
-- the CPU takes a x + d in float32
nearly("planes in parts, far from 0", {shape = {40, 3, 20, 20}, mean = 1000, bound = 2e-4})
nearly("planes of odd length", {shape = {9, 3, 7, 7}})
nearly("last in parts", {shape = {1500, 24}})
nearly("last in parts, far from 0", {shape = {1500, 24}, mean = 1000, bound = 2e-4})
nearly("last, odd", {shape = {700, 37}})
nearly("last, many", {shape = {6, 3, 2, 300}, axis = -1})
nearly("one element", {shape = {5, 4}})
nearly("relu, planes", {shape = {40, 3, 20, 20}, relu = true})
nearly("relu, last", {shape = {1500, 24}, relu = true})
nearly("relu of its own", {shape = {9, 3, 7, 7}, op = "BatchNormWithReLU"})
nearly("relu of its own and another", {shape = {9, 3, 8, 8}, op = "BatchNormWithReLU", relu = true})
nearly("fixed gamma", {shape = {9, 3, 8, 8}, fixed = true})
nearly("moving statistics", {shape = {9, 3, 8, 8}, global = true})
nearly("moving statistics, relu", {shape = {9, 8}, global = true, relu = true})
]]

describe("BatchNorm on a GPU", function()
  it("takes two launches each way and has the CPU's values", function()
    devices.agree(pending, SCRIPT, 23)
  end)
end)
