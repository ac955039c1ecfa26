-- Kernels for GPUs beside the CPU's, on the stand-in whose checker watches every access: equal
-- bits where both compute the same in the same order. All operators' values and gradients are
-- compared where the other specs run on a GPU (TYCHO_TEST_DEVICE).

local stand_in = require "spec.support.stand_in"

local COMPARE = [[
local ty = require "tycho"
local here, there = ty.cpu(0), ty.gpu(0)

local function numbers(f, ctx)
  ty.random.seed(7)
  return f(ctx):as_in_context(here):astype("float64"):reshape{-1}:totable()
end

local function compare(name, f)
  local a, b = numbers(f, here), numbers(f, there)
  local different = #a
  for i = 1, #a do
    different = different - (a[i] == b[i] and 1 or 0)
  end
  print(name, different == 0 and #a == #b and "equal" or "different: " .. different)
end

local function pattern(shape, ctx, dtype)
  local n, values = 1, {}
  for _, d in ipairs(shape) do
    n = n * d
  end
  for i = 1, n do
    values[i] = (i * 7919 % 101) / 37 - 1
  end
  return ty.nd.array{values, ctx = here}:reshape(shape):astype(dtype):as_in_context(ctx)
end
]]

local RANDOM = COMPARE .. [[
for _, dtype in ipairs{"float32", "float64", "float16"} do
  for _, law in ipairs{"uniform", "normal", "exponential"} do
    compare(law .. " " .. dtype, function(ctx)
      return ty.nd["_random_" .. law]{shape = {33, 7}, dtype = dtype, ctx = ctx}
    end)
  end
end
compare("whole numbers", function(ctx)
  return ty.nd._random_randint{low = -5, high = 2 ^ 40, shape = {100}, dtype = "int64", ctx = ctx}
end)
for _, dtype in ipairs{"float32", "float64", "bfloat16"} do
  for _, axes in ipairs{{}, {1}, {0, 2}} do
    compare("dropout " .. dtype .. " " .. #axes, function(ctx)
      local net = ty.sym.Dropout{data = ty.sym.Variable("x"), p = 0.3, axes = axes}
      local exe = net:simple_bind{ctx = ctx, x = {3, 5, 7}, type_dict = {x = dtype}}
      pattern({3, 5, 7}, ctx, dtype):copyto(exe.arg_dict.x)
      exe:backward{exe:forward{is_train = true}[1]}
      return exe.grad_dict.x
    end)
  end
end
print(select(2, pcall(function()
  return ty.nd._random_normal{scale = -1, shape = {3}, ctx = there}:totable()
end)))
]]

local ROWS = COMPARE .. [[
for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
  for _, width in ipairs{3, 8, 200} do
    compare("table " .. dtype .. " " .. width, function(ctx)
      local net = ty.sym.Embedding{data = ty.sym.Variable("i"), weight = ty.sym.Variable("w"),
        input_dim = 11, output_dim = width}
      local exe = net:simple_bind{ctx = ctx, i = {5, 7}, w = {11, width},
        type_dict = {w = dtype, i = "float32"}}
      local index = {}
      for i = 1, 35 do
        index[i] = i * i % 13 - 1
      end
      ty.nd.array{index, ctx = here}:reshape{5, 7}:copyto(exe.arg_dict.i)
      exe:forward{is_train = true}
      exe:backward{pattern({5, 7, width}, ctx, dtype)}
      return exe.grad_dict.w
    end)
  end
end
print(select(2, pcall(function()
  local x = ty.nd.zeros({6, 4}, {ctx = there})
  return ty.nd.take{x, ty.nd.array{{1, 7}, ctx = there}, mode = "raise"}:totable()
end)))
]]

local WINDOWS = COMPARE .. [[
for _, window in ipairs{
  {pool_type = "max", kernel = {2, 2}, stride = {2, 2}},
  {pool_type = "max", kernel = {3, 3}, stride = {2, 2}, pad = {1, 1}, pooling_convention = "full"},
  {pool_type = "max", global_pool = true},
  {pool_type = "sum", kernel = {1, 3}, stride = {1, 3}},
} do
  compare(window.pool_type, function(ctx)
    window.data = ty.sym.Variable("x")
    local exe = ty.sym.Pooling(window):simple_bind{ctx = ctx, x = {2, 3, 7, 9}}
    pattern({2, 3, 7, 9}, ctx, "float32"):copyto(exe.arg_dict.x)
    exe:backward{exe:forward{is_train = true}[1] * 0.5}
    return exe.grad_dict.x
  end)
end
]]

local ORDER = COMPARE .. [[
for _, dtype in ipairs{"float32", "float16", "int64"} do
  for _, axis in ipairs{0, 1} do
    local function data(ctx)
      return (pattern({75, 4}, ctx, "float32") * 20):astype(dtype)
    end
    local name = dtype .. " " .. axis
    compare("sort " .. name, function(ctx)
      return ty.nd.sort{data(ctx), axis = axis}
    end)
    compare("argsort " .. name, function(ctx)
      return ty.nd.argsort{data(ctx), axis = axis, is_ascend = false}
    end)
    compare("topk " .. name, function(ctx)
      return ty.nd.topk{data(ctx), axis = axis, k = 2, ret_typ = "mask"}
    end)
  end
end
for _, op in ipairs{"SequenceMask", "SequenceReverse", "SequenceLast"} do
  compare(op, function(ctx)
    local lengths = ty.nd.array{{0, 1, 9, 2, 3}, ctx = ctx}:reshape{-1}
    return ty.nd[op]{pattern({4, 5, 3}, ctx, "float32"), lengths, use_sequence_length = true}
  end)
end
]]

local UPDATES = COMPARE .. [[
local ffi = require "ffi"
ffi.cdef "void cudasim_count(uint64_t *);"
local driver = ffi.load(os.getenv "TYCHO_CUDA_PATH" .. "/libcuda.so.1")
local function launches()
  local n = ffi.new("uint64_t[5]")
  driver.cudasim_count(n)
  return tonumber(n[0])
end

for _, form in ipairs{"multi_sgd_update", "multi_sgd_mom_update", "multi_mp_sgd_mom_update"} do
  local launched
  compare(form, function(ctx)
    local half = form:match("mp") and "float16" or "float32"
    local inputs, weights = {}, {}
    local options = {lrs = {}, wds = {}, num_weights = 30, momentum = form:match("mom") and 0.9}
    for i = 1, 30 do
      local shape = {i * 300, 2}
      weights[i] = pattern(shape, ctx, half)
      inputs[#inputs + 1] = weights[i]
      inputs[#inputs + 1] = pattern(shape, ctx, half) * 0.1
      if form:match("mom") then
        inputs[#inputs + 1] = pattern(shape, ctx, "float32") * 0.3
      end
      if form:match("mp") then
        inputs[#inputs + 1] = pattern(shape, ctx, "float32")
      end
      options.lrs[i], options.wds[i] = i / 100, i / 1000
    end
    ty.nd.waitall()
    launched = launches()
    for i, x in ipairs(inputs) do
      options[i] = x
    end
    local new = ty.nd[form](options)
    ty.nd.waitall()
    launched = launches() - launched
    return new[30]
  end)
  print("launches", launched)
end
]]

local LAYERS = COMPARE .. [[
local function close(name, f)
  local a, b, worst, greatest = numbers(f, here), numbers(f, there), 0, 1
  for i = 1, #a do
    worst, greatest = math.max(worst, math.abs(a[i] - b[i])), math.max(greatest, math.abs(a[i]))
  end
  print(name, #a == #b and worst / greatest < 1e-6 and "equal" or "different: " .. worst)
end

for _, mode in ipairs{"lstm", "gru", "rnn_tanh", "rnn_relu"} do
  for _, layers in ipairs{1, 3} do
    local both = layers == 3
    for _, read in ipairs{"x", "p", "h"} do
      close(mode .. " " .. layers .. " " .. read, function(ctx)
        local inputs = {data = ty.sym.Variable("x"), parameters = ty.sym.Variable("p"),
          state = ty.sym.Variable("h"), state_size = 6, num_layers = layers, mode = mode,
          bidirectional = both, state_outputs = both, p = both and 0.4 or 0,
          state_cell = mode == "lstm" and ty.sym.Variable("c") or nil}
        local exe = ty.sym.RNN(inputs):simple_bind{ctx = ctx, x = {4, 3, 5}}
        for _, x in pairs(exe.arg_dict) do
          (pattern(x.shape, ctx, "float32") * 0.3):copyto(x)
        end
        local heads = {}
        for i, y in ipairs(exe:forward{is_train = true}) do
          heads[i] = y * 0.5
        end
        exe:backward(heads)
        return exe.grad_dict[read]
      end)
    end
  end
end
]]

-- how many lines say "equal"; none says "different"
local function agree(script, n)
  if not stand_in.exists() then
    pending("no build/cudasim: make cudasim")
    return
  end
  local text = stand_in.run(script, { CUDASIM_CHECK = "1" })
  local _, equal = text:gsub("\tequal", "")
  assert.equal(n, equal, text)
  assert.is_nil(text:match("different"), text)
  return text
end

describe("a kernel for GPUs gives the CPU's bits", function()
  it("of random numbers and Dropout", function()
    local text = agree(RANDOM, 19)
    if text then
      assert.matches("bad parameters: loc = 0, scale = -1", text, 1, true)
    end
  end)

  it("of rows that indices name; what is out of range is told", function()
    local text = agree(ROWS, 12)
    if text then
      assert.matches("take: index 7 at place 1 is out of range; expected 0 to 5", text, 1, true)
    end
  end)

  it("of pooling", function()
    agree(WINDOWS, 4)
  end)

  it("of sorted lines, and sequences of unequal length", function()
    agree(ORDER, 21)
  end)

  it("of steps of many weights, in one launch", function()
    local text = agree(UPDATES, 3)
    if text then
      local _, single = text:gsub("launches\t1\n", "")
      assert.equal(3, single, text)
    end
  end)

  it("of recurrent layers, nearly", function()
    agree(LAYERS, 24)
  end)
end)
