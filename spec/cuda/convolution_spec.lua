-- Convolutions by cuDNN, on the stand-in: values and gradients are those of the CPU, for all
-- axes, groups, paddings and layouts; which engines are taken; what happens without cuDNN.

local stand_in = require "spec.support.stand_in"

-- prints a line per case and array: the largest difference from the CPU
local COMPARE = [[
local ty = require "tycho"
local sym = ty.sym
local data = sym.Variable("data")

local function pattern(shape, dtype, seed)
  local values = {}
  for i = 1, ty.nd.zeros{shape = shape, ctx = ty.cpu(0)}.size do
    values[i] = (i * 7919 + seed * 31) % 101 / 101 - 0.45
  end
  return ty.nd.array{values, ctx = ty.cpu(0)}:reshape(shape):astype(dtype)
end

-- Returns outputs and gradients by name, on the CPU; `turn`: images have another layout there.
local function run(ctx, net, shape, dtype, turn)
  local function there(x) return turn and #x.shape > 2 and x:transpose{axes = turn.there} or x end
  local function back(x)
    x = x:as_in_context(ty.cpu(0)):astype("float32")
    return turn and #x.shape > 2 and x:transpose{axes = turn.back} or x
  end
  local exe = net:simple_bind{ctx = ctx, shapes = {data = there(pattern(shape, dtype, 1)).shape},
    grad_req = "add", type_dict = {data = dtype}}
  local names, all = net:list_arguments(), {}
  for i, name in ipairs(names) do
    local x = exe.arg_dict[name]
    there(pattern(back(x).shape, dtype, i)):copyto(x)
    exe.grad_dict[name][":"] = 0.5
  end
  exe:forward{is_train = true}
  all.output = back(exe.outputs[1])
  exe:backward{there(pattern(all.output.shape, dtype, 77)):as_in_context(ctx)}
  for _, name in ipairs(names) do
    all[name] = back(exe.grad_dict[name])
  end
  return all, exe:program()
end

function compare(what, net, shape, options)
  options = options or {}
  local there, program = run(ty.gpu(0), options.there or net, shape, options.dtype or "float32",
    options.turn)
  local here = run(ty.cpu(0), net, shape, options.dtype or "float32")
  for name, x in pairs(here) do
    local worst = (there[name] - x):abs():max():asscalar()
    print(what, name, worst <= (options.within or 1e-5) and "equal" or worst)
  end
  print(what, "kernels", program:find("on the host, over copies", 1, true) and "host"
    or program:find("%d  cudnn ") and "cudnn" or "others")
end
CASES
]]

local CASES = [[
local conv = sym.Convolution{data = data, kernel = {3, 2}, num_filter = 4, stride = {2, 1},
  pad = {1, 0}, name = "c"}
compare("two axes, bias and relu", sym.relu(conv), {2, 3, 7, 6})
compare("tanh after it", sym.tanh(conv), {2, 3, 7, 6})
compare("groups, dilation", sym.Convolution{data = data, kernel = {3, 3}, num_filter = 4,
  num_group = 2, dilate = {2, 1}, pad = {1, 1}, no_bias = true, name = "c"}, {2, 4, 7, 6})
compare("one axis", sym.Convolution{data = data, kernel = {3}, num_filter = 4, name = "c"},
  {2, 4, 7})
compare("three axes", sym.Convolution{data = data, kernel = {2, 2, 2}, num_filter = 3, name = "c"},
  {2, 2, 3, 4, 3})
compare("float64", conv, {2, 3, 7, 6}, {dtype = "float64"})
compare("float16", conv, {2, 3, 7, 6}, {dtype = "float16", within = 0.02})
compare("bfloat16", conv, {2, 3, 7, 6}, {dtype = "bfloat16", within = 0.2})
compare("deconvolution", sym.relu(sym.Deconvolution{data = data, kernel = {3, 3}, num_filter = 4,
  stride = {2, 2}, pad = {1, 1}, adj = {1, 0}, num_group = 2, no_bias = false, name = "d"}),
  {2, 4, 3, 4})
compare("deconvolution to a shape", sym.Deconvolution{data = data, kernel = {3, 3}, num_filter = 4,
  stride = {2, 2}, target_shape = {6, 7}, name = "d"}, {2, 4, 3, 4})
]]

-- the CPU has no kernel for these: there it is the same with the channels second
local LAST = [[
local options = {kernel = {3, 3}, num_filter = 4, pad = {1, 1}, name = "c"}
options.data = data
local net = sym.relu(sym.Convolution(options))
options.layout = "NHWC"
compare("channels last", net, {2, 3, 5, 6}, {there = sym.relu(sym.Convolution(options)),
  turn = {there = {0, 2, 3, 1}, back = {0, 3, 1, 2}}})
]]

local VIEWS = [[
local ty = require "tycho"
ty.Context("gpu(0)"):enter()
local rows = ty.nd.arange{0, 10}:reshape{2, 5}
for i = 0, 1 do
  local x = ty.nd.Convolution{data = rows[i]:reshape{1, 1, 5}, weight = ty.nd.ones{1, 1, 2},
    kernel = {2}, num_filter = 1, no_bias = true}
  print(table.concat(x:reshape{4}:totable(), " "))
end
]]

local NARROW = [[
local ty = require "tycho"
ty.Context("gpu(0)"):enter()
local function value(dtype)
  local x = ty.nd.array{{{1 + 2 ^ -12}}, dtype = dtype}
  local y = ty.nd.Convolution{data = x, weight = ty.nd.ones{1, 1, 1, dtype = dtype}, kernel = {1},
    num_filter = 1, no_bias = true}
  local product = ty.nd.dot(x:reshape{1, 1}, ty.nd.ones{1, 1, dtype = dtype})
  assert(y:asscalar() == product:asscalar())
  return y:asscalar() == 1 and "narrow" or "whole"
end
print(value("float32"), value("float64"))
]]

local FAILS = [[
local ty = require "tycho"
local net = ty.sym.Convolution{data = ty.sym.Variable("data"), kernel = {3, 3}, num_filter = 2,
  name = "conv1"}
local exe = net:simple_bind{ctx = ty.gpu(0), data = {1, 1, 4, 4}}
for i = 1, 2 do
  exe:forward()
  print(i, pcall(exe.outputs[1].totable, exe.outputs[1]))
end
]]

-- Each call of cuDNN that makes a plan fails, each time for a convolution that is new.
local PLANS = [[
local ffi = require "ffi"
local ty = require "tycho"
ffi.cdef "void cudasim_fail(const char *); long cudasim_calls(const char *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local filters = 0
-- Returns whether a convolution ran on the GPU; nil and an error if it did not run.
local function convolve()
  filters = filters + 1
  local net = ty.sym.Convolution{data = ty.sym.Variable("x"), kernel = {3, 3}, num_filter = filters,
    name = "c"}
  local exe = net:simple_bind{ctx = ty.gpu(0), x = {1, 1, 3, 3}, grad_req = "null"}
  exe.arg_dict.x[":"], exe.arg_dict.c_weight[":"], exe.arg_dict.c_bias[":"] = 1, 2, 0.5
  local good, e = pcall(function() return exe:forward(false)[1]:sum():asscalar() end)
  if not good then return nil, e end
  assert(e == 18.5 * filters, e)
  return not exe:program():find("on the host", 1, true)
end
local calls, made, bad, ways = {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
  "cudnnBackendFinalize", "cudnnBackendGetAttribute", "cudnnSetStream"}, {}, {}, {}
convolve()
for _, call in ipairs(calls) do made[call] = tonumber(driver.cudasim_calls(call)) end
convolve()
for _, call in ipairs(calls) do made[call] = tonumber(driver.cudasim_calls(call)) - made[call] end
for _, call in ipairs(calls) do
  for n = 1, made[call] do
    driver.cudasim_fail(("%s:%d"):format(call, n))
    local good, here, e = pcall(convolve)
    driver.cudasim_fail("")
    ways[here == nil and "refused" or here and "gpu" or "host"] = true
    if not good or e and not tostring(e):find("cuDNN: a convolution of 1 x 1 channels", 1, true) then
      bad[#bad + 1] = ("%s %d: %s"):format(call, n, tostring(e or here))
    end
  end
  if not convolve() then bad[#bad + 1] = call .. ": the next one, too" end
end
print(ways.gpu, ways.refused, #bad == 0 and "clean" or table.concat(bad, "\n"))
]]

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("runs", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

local function compared(cases, settings)
  local text, status = stand_in.run((COMPARE:gsub("CASES\n", function()
    return cases
  end)), settings)
  assert.equal(0, status, text)
  local lines = 0
  for line in text:gmatch("[^\n]+") do
    local verdict = line:match("\t([^\t]*)$")
    assert(line:match("\tkernels\t") or verdict == "equal", line)
    lines = lines + 1
  end
  return text, lines
end

describe_there("a convolution on a GPU", function()
  it("is that of the CPU", function()
    local text, lines = compared(CASES, { CUDASIM_STRICT = 1 })
    assert.is_true(lines > 40)
    assert.is_nil(text:match("others") or text:match("host"))
  end)

  it("takes channels last", function()
    local text = compared(LAST, { CUDASIM_STRICT = 1 })
    assert.matches("channels last\tkernels\tcudnn", text)
  end)

  it("takes arrays that begin at any element", function()
    local text, status = stand_in.run(VIEWS, { CUDASIM_STRICT = 1 })
    assert.equal("1 3 5 7\n11 13 15 17\n", text)
    assert.equal(0, status)
  end)

  it("is as precise as was asked for", function()
    for precision, values in pairs{ highest = "whole\twhole\n", high = "narrow\twhole\n",
      medium = "narrow\twhole\n" } do
      assert.equal(values, (stand_in.run(NARROW, { TYCHO_PRECISION = precision })))
    end
    assert.equal("whole\twhole\n", (stand_in.run(NARROW)))
  end)

  it("runs on the host without cuDNN", function()
    local text = compared(CASES:match("^.-{2, 3, 7, 6}%)\n"), { TYCHO_DISABLE = "cudnn" })
    assert.matches("kernels\thost", text)
  end)

  it("names the node whose convolution failed, and goes on", function()
    local text = stand_in.run(FAILS, { CUDASIM_FAIL = "cudnnBackendExecute:1" })
    assert.matches("1\tfalse\t[^\n]*a convolution of 1 x 1 channels to 2 filters fails", text)
    assert.matches("operator Convolution, node conv1", text, 1, true)
    assert.matches("2\ttrue", text)
  end)

  it("is done by another plan where cuDNN fails to make one, or refused by name", function()
    local text, status = stand_in.run(PLANS, { CUDASIM_STRICT = 1 })
    assert.equal("true\ttrue\tclean\n", text)
    assert.equal(0, status)
  end)
end)
