-- Sums that GPU kernels compute after their main work (POST_ADD of native/kernel/epilogue.h): of a
-- residual connection after FullyConnected, of gradients after LayerNorm's; compared with the CPU.

local devices = require "spec.support.devices_agree"
local stand_in = require "spec.support.stand_in"

local SCRIPT = devices.SCRIPT .. [[
local sym = ty.sym
local V = sym.Variable
local BOUND = {float32 = 5e-6, float64 = 1e-12, float16 = 1e-2, bfloat16 = 6e-2}

local function linear(x, name, n, bias)
  return sym.FullyConnected{data = x, num_hidden = n, flatten = false, name = name,
    no_bias = not bias}
end

-- Returns a network with two layers, each of which x bypasses in a sum.
local function residual(norm, bias)
  local x = linear(V "x", "first", 8, bias)
  local y = x + linear(norm(x, "norm1"), "second", 8, bias)
  y = y + linear(norm(y, "norm2"), "third", 8, bias)
  return linear(y, "last", 3, bias)
end
local function layer(x, name) return sym.LayerNorm{data = x, name = name} end
local function rms(x, name) return sym.contrib.RMSNorm{data = x, name = name} end

local function step(ctx, net, dtype, shape)
  local types = {}
  for _, name in ipairs(net:list_arguments()) do types[name] = dtype end
  local exe = net:simple_bind{ctx = ctx, shapes = {x = shape}, type_dict = types}
  for k, name in ipairs(net:list_arguments()) do
    local x = exe.arg_dict[name];
    (pattern(x.shape, here, "float64") * 0.4 + 0.1 * (k % 3)):astype(dtype):copyto(x)
  end
  local y = exe:forward(true)[1]
  local head = ty.nd.square(pattern(y.shape, here, "float64")) - 0.5
  exe:backward{head:astype(dtype):as_in_context(ctx)}
  local out = {y}
  for _, name in ipairs(net:list_arguments()) do out[#out + 1] = exe.grad_dict[name] end
  return out, exe:program()
end

-- Compares a network on both devices. sums: lines of the program in which a kernel computes one.
local function nearly(name, net, dtype, shape, sums)
  local mine = step(here, net, dtype, shape)
  local theirs, program = step(there, net, dtype, shape)
  local worst, found = farthest(mine, theirs), 0
  for line in program:gmatch "[^\n]+" do
    local nodes = line:match "%[(.-)%]"
    if nodes and nodes:find " " and not line:find "pointwise" then found = found + 1 end
  end
  print(name .. " " .. dtype, worst <= BOUND[dtype] and found == sums and "equal"
    or ("different: %g, %d sums\n%s"):format(worst, found, program))
end
]]

local CASES = [[
for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
  nearly("layer", residual(layer, true), dtype, {5, 6}, SUMS)
end
nearly("layer, no bias", residual(layer, false), "float32", {40, 6}, SUMS)
nearly("rms", residual(rms, true), "float32", {2, 3, 6}, SUMS)
nearly("one row", residual(layer, true), "float32", {1, 1}, SUMS)
]]

describe("sums on a GPU", function()
  it("are done by products and by gradients of norms", function()
    devices.agree(pending, "local SUMS = 4\n" .. SCRIPT .. CASES, 7)
  end)

  it("are done on the host, where the product is", function()
    if not stand_in.exists() then return pending "no build/cudasim: make cudasim" end
    local text, status = stand_in.run("local SUMS = 4\n" .. SCRIPT .. CASES,
      {TYCHO_DISABLE = "cublaslt"})
    assert.equal(0, status, text)
    assert.equal(7, select(2, text:gsub("\tequal", "")), text)
  end)
end)
