-- Weights of convolutions with channels last (native/pass/together.c, native/cuda/turn.c): those of
-- a segment are turned in one launch forward and in one backward, their gradients in one more; in
-- every step, as they change. Beside plain arrays (TYCHO_BLOCKS=0).

local stand_in = require "spec.support.stand_in"

local SCRIPT = [[
local ty = require "tycho"
local ffi = require "ffi"
ffi.cdef "const char *cudasim_costs(void); int setenv(const char *, const char *, int);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local sym, cpu, gpu = ty.sym, ty.cpu(0), ty.gpu(0)

local function conv(x, name, n, k, weight)
  return sym.relu(sym.Convolution{data = x, weight = weight, num_filter = n, kernel = {k, k},
    pad = {(k - 1) / 2, (k - 1) / 2}, name = name, no_bias = weight ~= nil})
end
local shared = sym.Variable "shared"
local x = conv(sym.Variable "data", "a", 6, 3)
x = conv(conv(x, "b", 6, 3, shared), "c", 6, 3, shared)
x = sym.Deconvolution{data = conv(x, "d", 5, 1), num_filter = 4, kernel = {2, 2}, stride = {2, 2},
  name = "e"}
x = sym.Convolution{data = x, num_filter = 4, num_group = 2, kernel = {5, 5}, name = "g"}
x = sym.FullyConnected{data = x, num_hidden = 3, name = "h"}

-- Returns the launches of a kernel in f.
local function launches(kernel, f)
  ty.waitall()
  driver.cudasim_costs()
  f()
  ty.waitall()
  return select(2, ffi.string(driver.cudasim_costs()):gsub("%f[%w_]" .. kernel .. "\t", ""))
end

-- Returns what four steps give, between which weights change; launches of the last.
local function train(blocks, dtype, req, late)
  ffi.C.setenv("TYCHO_BLOCKS", blocks, 1)
  local exe = x:simple_bind{ctx = gpu, shapes = {data = {2, 3, 7, 6}}, type_dict = {data = dtype},
    grad_req = req}
  local seen, turns, moves = {}, 0, 0
  for _, name in ipairs(x:list_arguments()) do
    local a = exe.arg_dict[name]
    local values = (ty.nd.arange{0, a.size, ctx = cpu} * 7 % 23 / 23 - 0.45):reshape(a.shape)
    values:astype(a.dtype):copyto(a)
  end
  local function change()
    for _, name in ipairs{"a_weight", "shared", "e_weight", "g_weight"} do
      local a = exe.arg_dict[name]
      a[":"] = a * 0.8
    end
  end
  for step = 1, 4 do
    local function run()
      exe:forward(true)
      if late then change() end                  -- backward reads what is there then
      exe:backward(ty.nd.ones(exe.outputs[1].shape, {ctx = gpu, dtype = dtype}))
    end
    turns = launches("turn_slices", run)
    seen[#seen + 1] = exe.outputs[1]:copyto(cpu)
    for _, name in ipairs(x:list_arguments()) do
      seen[#seen + 1] = exe.grad_dict[name]:copyto(cpu)
    end
    change()
  end
  return seen, turns
end

local NEAR = {float32 = 1e-4, float16 = 2e-2}
for _, dtype in ipairs{"float32", "float16"} do
  for _, req in ipairs{"write", "add"} do
    for _, late in ipairs{false, true} do
      local plain = train("0", dtype, req, late)
      local mine, turns = train("1", dtype, req, late)
      local worst = 0
      for i, a in ipairs(plain) do
        local want, got = a:astype("float32"), mine[i]:astype("float32")
        local far = (got - want):abs():max():asscalar() / (want:abs():max():asscalar() + 1e-3)
        worst = far <= worst and worst or far
      end
      print(dtype, req, worst <= NEAR[dtype] and "equal" or "different: " .. worst, turns)
    end
  end
end
]]

describe("weights with channels last on a GPU", function()
  it("are turned together, and their gradients", function()
    if not stand_in.exists() then return pending "no build/cudasim: make cudasim" end
    local text, status = stand_in.run(SCRIPT,
      {TYCHO_PRECISION = "medium", CUDASIM_CHECK = "1", CUDASIM_COSTS = "1"})
    assert.equal(0, status, text)
    assert.equal(8, select(2, text:gsub("\tequal\t", "")), text)
    -- gradients that are added to are turned one by one
    assert.equal(4, select(2, text:gsub("write\tequal\t3\n", "")), text)
    assert.equal(4, select(2, text:gsub("add\tequal\t2\n", "")), text)
  end)
end)
