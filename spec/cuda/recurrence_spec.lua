-- All steps of a recurrent layer in one launch on a GPU, layers as a wavefront on two streams, and
-- a launch for each step, beside the CPU's, on the stand-in whose checker watches every access and
-- what orders them; bias gradients that a product makes.

local devices = require "spec.support.devices_agree"

local LAYERS = devices.COSTS .. [[
local V = ty.sym.Variable
local BOUND = {float32 = 2e-6, float64 = 1e-12, float16 = 4e-3, bfloat16 = 3e-2}

-- Returns the results of a training step, of an inference after it, and the kernels that ran.
local function step(ctx, case)
  local net = ty.sym.RNN{data = V "x", parameters = V "p", state = V "h", state_size = case.units,
    num_layers = case.layers or 1, mode = case.mode, bidirectional = case.both, p = case.drop,
    state_outputs = case.states, state_cell = case.mode == "lstm" and V "c" or nil}
  local types = {}
  for _, name in ipairs(net:list_arguments()) do types[name] = case.dtype end
  ty.random.seed(7)
  local exe = net:simple_bind{ctx = ctx, x = {case.time, case.batch, 3}, type_dict = types,
    grad_req = case.req}
  for _, name in ipairs(net:list_arguments()) do
    local x = exe.arg_dict[name];
    (pattern(x.shape, here, "float64") * 0.3):astype(x.dtype):copyto(x)
  end
  costs()
  local heads, out = {}, {}
  for i, y in ipairs(exe:forward(true)) do
    out[i] = y:copy()
    heads[i] = (pattern(y.shape, here, "float64") * 0.5):astype(y.dtype):as_in_context(ctx)
  end
  exe:backward(heads)
  for _, name in ipairs(net:list_arguments()) do out[#out + 1] = exe.grad_dict[name] end
  for _, y in ipairs(exe:forward(false)) do out[#out + 1] = y end
  ty.waitall()
  return out, costs()
end

for _, case in ipairs(CASES) do
  case.dtype = case.dtype or "float32"
  local mine = step(here, case)
  local theirs, names = step(there, case)
  local worst = farthest(mine, theirs)
  -- half types as they are
  local at_once = names:find("recurrence_backward") and names:find("recurrence_forward")
    and not names:find("convert\t")
  local by_steps = names:find("_cell\t") and names:find("_cell_back\t")
  local how = at_once and not by_steps and "once" or by_steps and not at_once and "steps" or "both"
  if how == "once" and case.chunks then
    -- forward runs twice
    local _, forward = names:gsub("recurrence_forward\t", "")
    local _, backward = names:gsub("recurrence_backward\t", "")
    local chunks = os.getenv("TYCHO_DISABLE") == "wavefront" and 1 or case.chunks
    local good = forward == 2 * backward and backward == chunks * case.layers * (case.both and 2 or 1)
    how = good and "once" or forward .. " and " .. backward .. " launches"
  end
  print(("%s %s %dx%dx%d"):format(case.mode, case.dtype, case.time, case.batch, case.units),
    how ~= case.how and "different: by " .. how
      or worst < BOUND[case.dtype] and "equal" or "different: " .. worst)
  if case.chunks then
    for _, y in ipairs(theirs) do
      local bits = y:as_in_context(here):astype("float64"):reshape{-1}
      print("bits", bits:sum():asscalar(), (bits * bits):sum():asscalar())
    end
  end
end
]]

-- A layer follows the one below it by a chunk of at least eight steps where the GPU has processors
-- for both: here two samples.
local WAVE = [[
local CASES = {}
local function add(case) CASES[#CASES + 1] = case end
for _, mode in ipairs{"lstm", "gru", "rnn_tanh", "rnn_relu"} do
  add{mode = mode, time = 16, batch = 2, units = 8, layers = 2, chunks = 2, how = "once"}
  add{mode = mode, time = 35, batch = 1, units = 5, layers = 3, chunks = 4, states = true,
    drop = 0.5, how = "once"}
  add{mode = mode, time = 15, batch = 2, units = 4, layers = 2, chunks = 1, how = "once"}
  add{mode = mode, time = 16, batch = 3, units = 4, layers = 2, chunks = 1, how = "once"}
  add{mode = mode, time = 17, batch = 2, units = 3, layers = 4, chunks = 2, dtype = "float64",
    req = "add", how = "once"}
  add{mode = mode, time = 25, batch = 1, units = 8, layers = 2, chunks = 3, dtype = "float16",
    states = true, how = "once"}
  add{mode = mode, time = 16, batch = 2, units = 8, layers = 2, both = true, chunks = 1,
    how = "once"}
end
add{mode = "lstm", time = 33, batch = 2, units = 16, layers = 2, chunks = 4, dtype = "bfloat16",
  drop = 0.2, how = "once"}
]]

-- Whatever fails while layers run beside each other: the next step has all values again.
local FAILURES = devices.COSTS .. [[
ffi.cdef "void cudasim_fail(const char *);"
local V = ty.sym.Variable
local net = ty.sym.RNN{data = V "x", parameters = V "p", state = V "h", state_cell = V "c",
  state_size = 4, num_layers = 2, mode = "lstm"}
local exe = net:simple_bind{ctx = there, shapes = {x = {17, 2, 3}}}
for _, x in pairs(exe.arg_dict) do pattern(x.shape, here, "float32"):copyto(x) end
local heads = ty.nd.ones({17, 2, 4}, {ctx = there})
local function step()
  exe:forward(true)
  exe:backward(heads)
  ty.waitall()
  return all{exe.outputs[1], exe.grad_dict.p, exe.grad_dict.x}
end
local right = step()
right:wait_to_read()
for _, name in ipairs{"cuEventRecord", "cuStreamWaitEvent", "cuLaunchKernel", "cublasLtMatmul"} do
  local failed = 0
  for n = 1, 24 do
    driver.cudasim_fail(name .. ":" .. n .. ":" .. (name == "cublasLtMatmul" and 14 or 1))
    failed = failed + (pcall(step) and 0 or 1)
    driver.cudasim_fail("")
    pcall(ty.waitall)  -- reports copies that failed after the step's error
    local far = ty.nd.abs(step() - right):max():asscalar()
    if far ~= 0 then print(name, n, "different", far) end
  end
  print(name, failed >= 8 and "equal" or "different: failed " .. failed)
end
]]

-- The stand-in has 4 processors: to 16 samples of float32, 8 of float64 go at once.
local CASES = [[
local CASES = {}
local function add(case) CASES[#CASES + 1] = case end
for _, mode in ipairs{"lstm", "gru", "rnn_tanh", "rnn_relu"} do
  add{mode = mode, time = 3, batch = 2, units = 8, how = "once"}
  add{mode = mode, time = 1, batch = 1, units = 1, how = "once"}
  add{mode = mode, time = 2, batch = 7, units = 4, layers = 2, both = true, states = true,
    how = "once"}
  add{mode = mode, time = 2, batch = 15, units = 5, states = true, how = "once"}
  add{mode = mode, time = 3, batch = 17, units = 4, states = true, how = "steps"}
  add{mode = mode, time = 2, batch = 5, units = 6, dtype = "float64", how = "once"}
  add{mode = mode, time = 2, batch = 9, units = 2, dtype = "float64", how = "steps"}
  for _, dtype in ipairs{"float16", "bfloat16"} do
    add{mode = mode, time = 3, batch = 2, units = 16, dtype = dtype, how = "once"}
    add{mode = mode, time = 2, batch = 7, units = 5, layers = 2, both = true, states = true,
      dtype = dtype, how = "once"}
  end
  add{mode = mode, time = 2, batch = 17, units = 4, dtype = "float16", how = "steps"}
end
]]

-- weights of which shared memory holds a part, and of which too much would be left
local LARGE = [[
local CASES = {{mode = "lstm", time = 2, batch = 1, units = 140, how = "once"},
  {mode = "rnn_tanh", time = 2, batch = 1, units = 261, how = "once"},
  {mode = "lstm", time = 1, batch = 1, units = 224, how = "steps"}}
]]

-- Each of the questions that FullyConnected's plans ask of cublasLt is answered with "not
-- supported" once: the bias's gradient is a sum of its own then.
local SUMS = devices.COSTS .. [[
ffi.cdef "void cudasim_fail(const char *);"
local V = ty.sym.Variable
local function step(ctx, dtype, req)
  local net = ty.sym.FullyConnected{data = V "x", weight = V "w", bias = V "b", num_hidden = 5}
  local exe = net:simple_bind{ctx = ctx, shapes = {x = {6, 3}}, grad_req = req,
    type_dict = {x = dtype, w = dtype, b = dtype}}
  for _, name in ipairs{"x", "w", "b"} do
    local x = exe.arg_dict[name];
    (pattern(x.shape, here, "float64") * 0.3):astype(dtype):copyto(x)
    exe.grad_dict[name][":"] = 1
  end
  exe:forward(true)
  exe:backward{(pattern({6, 5}, here, "float64")):astype(dtype):as_in_context(ctx)}
  ty.waitall()
  return exe
end
local BOUND = {float32 = 2e-6, float64 = 1e-12, float16 = 4e-3, bfloat16 = 3e-2}
local summed = 0
local function same(what, dtype, req, failing)
  local mine = step(here, dtype, req)
  costs()
  if failing then driver.cudasim_fail(failing) end
  local good, theirs = pcall(step, there, dtype, req)
  driver.cudasim_fail("")
  local names = costs()
  if not good then
    print(what, failing and "equal" or "different: " .. tostring(theirs))
    return
  end
  local apart = names:find("reduce\t") ~= nil
  summed = summed + (failing and apart and 1 or 0)
  local worst = not failing and apart ~= (req == "add") and 1 or 0
  for name, a in pairs(mine.grad_dict) do
    a = a:astype("float64")
    local far = ty.nd.abs(a - theirs.grad_dict[name]:as_in_context(here):astype("float64"))
    far = far:max():asscalar() / ty.nd.abs(a):max():asscalar()
    worst = far <= worst and worst or far
  end
  print(what, worst < BOUND[dtype] and "equal" or "different: " .. worst)
end
for dtype in pairs(BOUND) do
  for _, req in ipairs{"write", "add"} do same(dtype .. " " .. req, dtype, req) end
end
for n = 1, 30 do
  same("without plan " .. n, "float32", "write", "cublasLtMatmulAlgoGetHeuristic:" .. n .. ":15")
end
print("summed apart", summed > 0 and "equal" or "different")
]]

describe("recurrent layers on a GPU", function()
  it("have the CPU's values and gradients, at once and step by step", function()
    devices.agree(pending, CASES .. LAYERS, 48)
  end)

  it("run beside each other, with the same bits", function()
    local function numbers(text)
      local bits = {}
      for line in text:gmatch("bits[^\n]*") do bits[#bits + 1] = line end
      return table.concat(bits, "\n")
    end
    local beside = devices.agree(pending, WAVE .. LAYERS, 29)
    if not beside then return end
    local in_turn = devices.agree(pending, WAVE .. LAYERS, 29, {TYCHO_DISABLE = "wavefront"})
    assert.equal(numbers(in_turn), numbers(beside))
  end)

  it("compute anew after a start that failed", function()
    for _, graphs in ipairs{"1", "0"} do
      devices.agree(pending, FAILURES, 4, {TYCHO_GRAPHS = graphs, CUDASIM_CHECK = "0"})
    end
  end)

  it("hold a part of a large weight", function() devices.agree(pending, LARGE .. LAYERS, 3) end)
end)

describe("the gradient of a bias on a GPU", function()
  it("comes with the weight's, or is a sum of its own", function()
    devices.agree(pending, SUMS, 39)
  end)
end)
