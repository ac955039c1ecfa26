-- Normalisation and softmax of rows on a GPU compared with the CPU, on the stand-in whose checker
-- watches every access: rows of every length that a team holds in registers, and longer ones; means
-- far from 0; one launch forward, and one backward, or two for the gains of many rows.

local devices = require "spec.support.devices_agree"

local SCRIPT = devices.COSTS .. [[
local sym = ty.sym

local BOUND = {float32 = 3e-6, float64 = 1e-12, float16 = 3e-3, bfloat16 = 2e-2}

-- Returns the results of a training step, with the launches forward and backward.
local function step(ctx, make, case)
  local net = make(sym.Variable "x")
  local types = {}
  for _, name in ipairs(net:list_arguments()) do types[name] = case.dtype end
  if types.length then types.length = "int32" end
  local req = {}
  for name in pairs(types) do req[name] = name == "length" and "null" or "write" end
  local shapes = {x = case.shape, length = case.length and {case.shape[1]}}
  local exe = net:simple_bind{ctx = ctx, shapes = shapes, type_dict = types, grad_req = req}
  for name, x in pairs(exe.arg_dict) do
    local values = name == "length"
      and ty.nd.arange{0, x.size, ctx = here} * 3 % (case.shape[2] + 1)
      or name == "x" and pattern(x.shape, here, "float64") + (case.mean or 0)
      or pattern(x.shape, here, "float64") * 0.5 + 0.75
    values:astype(x.dtype):copyto(x)
  end
  local head = (ty.nd.square(pattern(case.shape, here, "float64")) - 0.5):astype(case.dtype)
  local out = {}
  head = head:as_in_context(ctx)
  ty.waitall()
  local n = {}
  for i, run in ipairs{function() exe:forward(true) end, function() exe:backward(head) end} do
    costs()
    run()
    ty.waitall()
    n[i] = select(2, costs():gsub("\n", "")) - (i == 2 and 1 or 0)
  end
  out[1] = exe.outputs[1]
  for _, name in ipairs(net:list_arguments()) do
    if name ~= "length" then out[#out + 1] = exe.grad_dict[name] end
  end
  return out, n[1] .. "+" .. n[2]
end

local function nearly(name, launches, make, case)
  case.dtype = case.dtype or "float32"
  local mine = step(here, make, case)
  local theirs, n = step(there, make, case)
  local worst = farthest(mine, theirs)
  name = ("%s %s of %s"):format(name, case.dtype, table.concat(case.shape, " x "))
  print(name, worst <= (case.bound or BOUND[case.dtype]) and n == launches and "equal"
    or ("different: %g, %s launches"):format(worst, n))
end

local NETS = {
  {"LayerNorm", "1+1", function(x) return sym.LayerNorm{data = x} end, gains = true},
  {"RMSNorm", "1+1", function(x) return sym.contrib.RMSNorm{data = x} end, gains = true},
  {"softmax", "1+1", function(x) return sym.softmax{data = x, temperature = 0.7} end},
  {"log_softmax", "1+1", function(x) return sym.log_softmax{data = x} end},
  {"softmin", "1+1", function(x) return sym.softmin{data = x} end},
}
for _, net in ipairs(NETS) do
  for _, k in ipairs{5, 33, 64, 200, 1000, 1030, 2052} do
    -- short rows are walked, a thread each
    local launches = k == 5 and net.gains and "1+3" or net[2]
    nearly(net[1], launches, net[3], {shape = {k < 1000 and 37 or 5, k}})
  end
  for _, dtype in ipairs{"float64", "float16", "bfloat16"} do
    nearly(net[1], net[2], net[3], {shape = {9, 40}, dtype = dtype})
  end
end
for i = 1, 2 do
  local norm = NETS[i]
  nearly(norm[1], "1+3", norm[3], {shape = {2, 9000}})
  nearly(norm[1], "1+2", norm[3], {shape = {300, 40}})
  -- the CPU adds squares about a mean in float32
  nearly(norm[1] .. " far from 0", norm[2], norm[3], {shape = {37, 200}, mean = 500, bound = 1e-4})
  local axis = i == 1 and function(x) return sym.LayerNorm{data = x, axis = 1} end
    or function(x) return sym.contrib.RMSNorm{data = x, axis = 1} end
  nearly(norm[1] .. " of axis 1", "1+3", axis, {shape = {3, 7, 5}})
end
local function with_length(x)
  return sym.softmax{data = x, length = sym.Variable "length", use_length = true}
end
nearly("softmax with lengths", "1+1", with_length, {shape = {37, 64}, length = true})
nearly("softmax", "1+1", NETS[3][3], {shape = {2, 9000}})
nearly("softmax", "1+1", NETS[3][3], {shape = {2, 20000}})
nearly("softmax of axis 1", "1+1", function(x) return sym.softmax{data = x, axis = 1} end,
  {shape = {3, 7, 5}})
]]

describe("rows on a GPU", function()
  it("have the CPU's norms and softmax, in as few launches as there can be", function()
    devices.agree(pending, SCRIPT, 62)
  end)
end)
