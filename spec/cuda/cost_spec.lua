-- Launches and bytes of device memory, as the stand-in's checker counts them and `make gpu-cost`
-- tells them, and the rules that they are compared with.

local folder = require "spec.support.folder"
local stand_in = require "spec.support.stand_in"

local BYTES = [[
local ty = require "tycho"
local ffi = require "ffi"
ffi.cdef "const char *cudasim_costs(void);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local gpu = ty.gpu(0)
local x = ty.nd.ones({64, 50}, gpu)
local w, h = ty.nd.ones({8, 50}, gpu), ty.nd.ones({64, 50}, gpu):astype("float16")
local v = ty.nd.array{{3, 3, 5}, ctx = gpu}
ty.waitall()
local function print_cost(what, f)
  driver.cudasim_costs()
  local y = f()
  ty.waitall()
  for name, read, written in ffi.string(driver.cudasim_costs()):gmatch("([^\t]*)\t(%d+)\t(%d+)\n") do
    print(what, name, read, written)
  end
  return y
end
print_cost("add", function() return x + x end)
print_cost("half", function() return h + 1 end)
print_cost("product", function() return ty.nd.dot{x, w, transpose_b = true} end)
print_cost("softmax", function() return ty.nd.softmax(x) end)
print_cost("rows", function() return ty.nd.take{x, v} end)
print_cost("fill", function() return ty.nd.zeros({64, 50}, gpu) end)
]]

-- what is read twice counts once
local TOLD = {
  "add\tpointwise\t12800\t12800", "half\tpointwise\t6400\t6400",
  "product\tcublasLtMatmul\t14400\t2048", "softmax\tsoftmax_held\t12800\t12800",
  "rows\ttake_rows\t412\t600", "fill\tfill\t0\t12800",
}

-- 2 x 3 x 4 x 4, three filters of 3 x 3
local RULES = [[
package.path = "scripts/dev/bench/?.lua;scripts/dev/?.lua;" .. package.path
local ideal = require "gpu_ideal"
local S = require("tycho").sym
local x = S.Variable "data"
local net = S.Convolution{x, kernel = {3, 3}, pad = {1, 1}, num_filter = 3, no_bias = true, name = "c"}
local known, inputs = {data = {2, 3, 4, 4}, c_weight = {3, 3, 3, 3}}, {data = true}
print(ideal.bytes(net, known, inputs) / 4)
print(ideal.bytes(S.relu{net}, known, inputs) / 4)
print(ideal.bytes(net + S.relu{net}, known, inputs) / 4)
print(pcall(ideal.bytes, S.sort(x), {data = {4}}, inputs))
]]

-- launches of a training step, fills and copies among them
local MOST = {["perceptron 784-128-64-10"] = 11, LeNet = 22, ["ResNet-20"] = 155,
  ["ResNet-20 under `medium`"] = 160, ["ResNet-50"] = 385, ["LSTM 2 × 200"] = 44,
  ["transformer of W15, 4 layers of 256"] = 101,
  ["transformer of W12, 4 layers of 256"] = 101}

describe("the cost of what a GPU does", function()
  it("is the distinct bytes of a launch, and each operand of a library's call", function()
    if not stand_in.exists() then return pending "no build/cudasim: make cudasim" end
    local text, status = stand_in.run(BYTES, {CUDASIM_CHECK = "1", CUDASIM_COSTS = "1"})
    assert.equal(0, status, text)
    for _, line in ipairs(TOLD) do assert.matches(line, text, 1, true) end
  end)

  it("has an ideal, by rules over the symbol", function()
    local text = stand_in.run(RULES)
    local n, w = 2 * 3 * 4 * 4, 81
    -- forward, gradient of the weight (the data has none), its update
    local convolution = (2 * n + w) + (2 * n + w) + 5 * w
    -- relu: forward, backward
    local with_relu = convolution + 2 * n + 3 * n
    -- a sum has no gradient of its own; the convolution's has two parts, which are added
    local with_sum = with_relu + 3 * n + 3 * n
    local want = "^%d\n%d\n%d\nfalse\t[^\n]*no rule for sort\n$"
    assert.matches(want:format(convolution, with_relu, with_sum), text)
  end)

  it("has not grown, in launches", function()
    if not stand_in.exists() then return pending "no build/cudasim: make cudasim" end
    local text, status = stand_in.run([[
      arg = {}
      dofile "scripts/dev/gpu_cost.lua"
    ]], {CUDASIM_DRY = "1", CUDASIM_COSTS = "1"})
    assert.equal(0, status, text)
    for name, most in pairs(MOST) do
      local n = tonumber(text:match("| " .. name:gsub("%-", "%%-") .. " | (%d+) |"))
      assert.is_true(n and n > 0 and n <= most, name .. ": " .. tostring(n) .. " launches")
    end
  end)

  it("is written into the tables of the page, row by row", function()
    if not stand_in.exists() then return pending "no build/cudasim: make cudasim" end
    folder.with(function(path)
      local page = folder.read "doc/gpu.md"
      local row = page:match "\n(| relu |[^\n]*\n)"
      local function write(text)
        folder.write(path .. "/gpu.md", text)
        local output, status = stand_in.run([[
          arg = {"--write", "relu", "_contrib_RMSNorm"}
          dofile "scripts/dev/gpu_cost.lua"
        ]], {CUDASIM_DRY = "1", CUDASIM_COSTS = "1", GPU_TABLE_DOC = path})
        assert.equal(0, status, output)
        return folder.read(path .. "/gpu.md"), output
      end
      local written, output = write(page)
      -- without a run of the kernels there are no bytes
      local dry = output:match "\n(| relu |[^\n]*\n)"
      assert.equal("| relu | 1 | 0.00 | 1 | 0.00 |\n", dry)
      local want = page:gsub("| relu |[^\n]*\n", dry)
        :gsub("| `_contrib_RMSNorm` |[^\n]*\n", (output:match "\n(| `_contrib_RMSNorm` |[^\n]*\n)"))
      assert.equal(want, written)
      -- a row that is not there comes last
      local at = page:find(row, 1, true)
      local without = page:sub(1, at - 1) .. page:sub(at + #row)
      assert.matches("\n" .. dry .. "\n", write(without), 1, true)
      assert.matches("gpu.md lacks the table", select(2, pcall(write, "nothing")), 1, true)
    end)
  end)
end)
