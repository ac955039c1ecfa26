-- What `exe:memory()` says of a GPU is what the device has given, on the stand-in: the pool to the
-- byte, with the workspaces of libraries in it; the plan fits into it and wastes less than a page.

local stand_in = require "spec.support.stand_in"

local MEMORY = [[
local ty = require "tycho"
local sym = ty.sym
local ffi = require "ffi"
ffi.cdef "int cuMemGetInfo_v2(size_t *, size_t *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local function used()
  ty.nd.waitall()
  local free, total = ffi.new("size_t[1]"), ffi.new("size_t[1]")
  assert(driver.cuMemGetInfo_v2(free, total) == 0)
  return tonumber(total[0] - free[0])
end
local net = sym.Convolution{data = sym.Variable("data"), kernel = {3, 3}, num_filter = 8, name = "c"}
net = sym.relu(sym.BatchNorm{data = net, fix_gamma = false})
net = sym.FullyConnected{data = sym.Flatten{data = net}, num_hidden = 5, name = "fc"}
net = sym.SoftmaxOutput{data = net, name = "softmax"}
-- Returns bind options with arrays that have their memory already.
local function arrays(batch)
  local exe = net:simple_bind{ctx = ty.gpu(0), data = {batch, 3, 20, 20}, softmax_label = {batch}}
  local bound = {ctx = ty.gpu(0), args = exe.arg_dict, args_grad = exe.grad_dict,
    aux_states = exe.aux_dict}
  exe:free()
  return bound
end
local function bind(bound, before)
  local exe = net:bind(bound)
  for _ = 1, 3 do
    exe:forward(true)
    exe:backward()
  end
  local m = exe:memory()
  print(used() - before - m.pool, m.planned <= m.pool and m.pool - m.planned < 2 ^ 21,
    m.planned > 0)
  return exe
end
local small, large = arrays(16), arrays(200)
local before = used()
local exe = bind(small, before)                -- one page
bind({ctx = large.ctx, args = large.args, args_grad = large.args_grad,
  aux_states = large.aux_states, shared_exec = exe}, before)
]]

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("is reported", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("memory of executors on a GPU", function()
  it("is what the device gave", function()
    local text, status = stand_in.run(MEMORY, { CUDASIM_STRICT = 1 })
    assert.equal("0\ttrue\ttrue\n0\ttrue\ttrue\n", text)
    assert.equal(0, status)
  end)
end)
