-- Channels last inside a network on a GPU, on the stand-in: where tensor cores compute (float16 and
-- bfloat16, float32 where TF32 may be used) the layout pass has arrays between convolutions so, and
-- values are those of plain arrays.

local stand_in = require "spec.support.stand_in"

local COMMON = [[
local ty = require "tycho"
local sym = ty.sym
local cpu = ty.cpu(0)
function conv(x, filters, k, stride, name, bias)
  return sym.Convolution{data = x, num_filter = filters, kernel = {k, k}, stride = {stride, stride},
    pad = {math.floor(k / 2), math.floor(k / 2)}, no_bias = not bias, name = name}
end
function norm(x, name)
  return sym.BatchNorm{data = x, fix_gamma = false, name = name}
end
function bind(net, ctx, dtype, shape, req)
  local exe = net:simple_bind{ctx = ctx, grad_req = req, shapes = {data = shape},
    type_dict = {data = dtype}}
  for name, a in pairs(exe.arg_dict) do
    ((ty.nd.arange{0, a.size, ctx = cpu} * 7 % 23 / 23 - 0.45):reshape(a.shape))
      :astype(a.dtype):copyto(a)
  end
  return exe
end
function gap(got, want)
  got, want = got:astype("float32"), want:astype("float32")
  return (got - want):abs():max():asscalar() / (want:abs():max():asscalar() + 1e-3)
end
function layouts(exe)                         -- by step: whether it gives channels last, its line
  local list = {}
  for at, rest in exe:program():gmatch("\n *(%d+)  ([^\n]*)") do
    list[tonumber(at)] = { last = rest:find("channels last", 1, true) ~= nil, text = rest }
  end
  return list
end
]]

local PARTS = [[
local ffi = require "ffi"
ffi.cdef "int setenv(const char *, const char *, int);"
local x = sym.Variable("data")
x = sym.relu(norm(conv(x, 6, 3, 1, "a"), "n"))
x = x + sym.relu(conv(x, 6, 3, 1, "b", true))
x = sym.Concat{x, conv(x, 4, 1, 1, "c"), num_args = 2}
x = sym.Pooling{data = x, kernel = {3, 3}, stride = {2, 2}, pool_type = "max"}
local parts = sym.SliceChannel{data = x, num_outputs = 2, name = "s"}
x = sym.Concat{parts[2], sym.Dropout{data = parts[1], p = 0.3}, num_args = 2, dim = 2}
x = sym.Deconvolution{data = conv(x, 5, 3, 2, "d"), num_filter = 4, kernel = {3, 3},
  stride = {2, 2}, no_bias = false, name = "e"}
x = sym.Pooling{data = x, kernel = {3, 3}, pad = {1, 1}, pool_type = "avg"}
x = sym.Convolution{data = x, num_filter = 4, num_group = 2, kernel = {3, 3}, name = "f"}
x = sym.Flatten(x)
local function results(ctx, dtype, req)
  local exe, all = bind(x, ctx, dtype, {2, 3, 11, 11}, req), {}
  ty.random.seed(5, ctx)
  for step = 1, 3 do
    exe:forward(req ~= "null")
    if req ~= "null" then
      exe:backward(ty.nd.ones(exe.outputs[1].shape, {ctx = ctx, dtype = dtype}))
    end
  end
  all.out = exe.outputs[1]:copyto(cpu)
  for _, list in ipairs{exe.grad_dict, exe.aux_dict} do
    for name, a in pairs(list) do
      all[name] = a:copyto(cpu)
    end
  end
  return all, exe:program():find("channels last", 1, true) ~= nil
end
local plain_gap, cpu_gap = 0, 0                -- in parts of what a dtype allows
local near = {float32 = {1e-4, 1e-2}, float16 = {1e-2, 1e-2}, bfloat16 = {5e-2, 5e-2}}
for _, dtype in ipairs{"float32", "float16", "bfloat16"} do
  for _, req in ipairs{"write", "add", "null"} do
    ffi.C.setenv("TYCHO_BLOCKS", "0", 1)
    local plain, none = results(ty.gpu(0), dtype, req)
    ffi.C.setenv("TYCHO_BLOCKS", "1", 1)
    local got, some = results(ty.gpu(0), dtype, req)
    assert(some and not none)
    local want = results(cpu, dtype, req)
    for name, w in pairs(want) do
      plain_gap = math.max(plain_gap, gap(got[name], plain[name]) / near[dtype][1])
      cpu_gap = math.max(cpu_gap, gap(got[name], w) / near[dtype][2])
    end
  end
end
print(plain_gap < 1 and "as plain" or plain_gap, cpu_gap < 1 and "as CPU" or cpu_gap)
]]

local RESNET = [[
local function unit(x, filters, stride, name)
  local past = stride == 2 and norm(conv(x, filters, 1, 2, name .. "s"), name .. "sn") or x
  x = sym.relu(norm(conv(x, filters, 3, stride, name .. "a"), name .. "an"))
  return sym.relu(norm(conv(x, filters, 3, 1, name .. "b"), name .. "bn") + past)
end
local x = sym.relu(norm(conv(sym.Variable("data"), 4, 3, 1, "first"), "firstn"))
for stage = 1, 3 do
  for k = 1, 3 do
    x = unit(x, 2 ^ (stage + 1), stage > 1 and k == 1 and 2 or 1, ("s%d_%d"):format(stage, k))
  end
end
x = sym.Pooling{data = x, kernel = {1, 1}, global_pool = true, pool_type = "avg"}
x = sym.FullyConnected{data = sym.Flatten{data = x}, num_hidden = 5, name = "fc"}
for _, dtype in ipairs{"float16", "float32"} do
  local list = layouts(bind(x, ty.gpu(0), dtype, {2, 3, 16, 16}, "write"))
  local convolutions, plain = 0, {}
  for at = 0, #list do
    local line = list[at].text
    if line:find("^cudnn ") then
      convolutions = convolutions + 1
      -- it reads values with channels last alone, the data but one, and gives one
      for operand in line:match("%)%s+(.-)%s+%["):gmatch("%f[%S]%d+%f[%s]") do
        plain[#plain + 1] = not list[tonumber(operand)].last and operand or nil
      end
      plain[#plain + 1] = not list[at].last and line:match("%[(.-)%]") or nil
    end
  end
  print(dtype, convolutions, table.concat(plain, " "))
end
]]

-- what an inference launches, and that it sees a weight that changes
local INFERENCE = [[
local ffi = require "ffi"
ffi.cdef "void cudasim_count(uint64_t *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local function launches()
  local n = ffi.new("uint64_t[5]")
  ty.nd.waitall()
  driver.cudasim_count(n)
  return tonumber(n[0])
end
local net = sym.Flatten(conv(sym.relu(conv(sym.Variable("data"), 4, 3, 1, "a")), 4, 3, 1, "b"))
local exe = bind(net, ty.gpu(0), "float16", {1, 4, 5, 5}, "null")
local fresh = bind(net, ty.gpu(0), "float16", {1, 4, 5, 5}, "null")
local n, before = {}, nil
for step = 1, 7 do
  if step == 5 then
    (exe.arg_dict.b_weight * 2):copyto(exe.arg_dict.b_weight)
    exe.arg_dict.b_weight:copyto(fresh.arg_dict.b_weight)
  end
  before = launches()
  exe:forward(false)
  n[step] = launches() - before
end
fresh:forward(false)
print(n[1] - n[2], n[3] - n[2], n[4] - n[2], n[5] - n[2], n[6] - n[2], n[7] - n[2])
print(gap(exe.outputs[1], fresh.outputs[1]))
]]

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("are there", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("channels last on a GPU", function()
  it("give the values of plain arrays", function()
    local text, status = stand_in.run(COMMON .. PARTS,
      { CUDASIM_STRICT = 1, TYCHO_PRECISION = "high" })
    assert.equal("as plain\tas CPU\n", text)
    assert.equal(0, status)
  end)

  it("reach through a residual network without a conversion between its convolutions", function()
    -- the gradient of the data is asked for plain
    local text = stand_in.run(COMMON .. RESNET, { TYCHO_PRECISION = "high" })
    assert.equal("float16\t42\tfirst_backward\nfloat32\t42\tfirst_backward\n", text)
  end)

  it("are left alone where float32 is float32", function()
    local text = stand_in.run(COMMON .. [[
      local net = conv(conv(sym.Variable("data"), 4, 3, 1, "a"), 4, 3, 1, "b")
      print(bind(net, ty.gpu(0), "float32", {1, 4, 5, 5}, "null"):program():find("channels last"))
    ]], { TYCHO_PRECISION = "highest" })
    assert.equal("nil\n", text)
  end)

  for _, graphs in ipairs{ 0, 1 } do
    it("have an inference's weights turned once, and again when they change, TYCHO_GRAPHS="
      .. graphs, function()
      local text, status = stand_in.run(COMMON .. INFERENCE,
        { CUDASIM_STRICT = 1, TYCHO_GRAPHS = graphs })
      assert.equal("2\t0\t0\t1\t0\t0\n0\n", text)
      assert.equal(0, status)
    end)
  end
end)
