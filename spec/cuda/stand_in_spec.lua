-- Networks that train on a GPU as on the CPU, on the stand-in: the same weights, the same batches,
-- losses within 1e-5. Nothing of them runs on the host, and a step is one launch per segment.

local stand_in = require "spec.support.stand_in"

local STEPS = [[
local ty = require "tycho"
local sym = ty.sym

local networks = {}

function networks.lenet()
  local net = sym.Variable("data")
  for i = 1, 2 do
    net = sym.Convolution{data = net, kernel = {5, 5}, num_filter = 1 + 2 * i, name = "conv" .. i}
    net = sym.Activation{data = net, act_type = "tanh"}
    net = sym.Pooling{data = net, kernel = {2, 2}, stride = {2, 2}, pool_type = "max"}
  end
  net = sym.FullyConnected{data = sym.Flatten{data = net}, num_hidden = 12, name = "fc1"}
  net = sym.Activation{data = net, act_type = "tanh"}
  net = sym.FullyConnected{data = net, num_hidden = 5, name = "fc2"}
  return sym.SoftmaxOutput{data = net, name = "softmax"}, {6, 1, 16, 16}, {6}
end

-- three stages of units with two convolutions each, over 3 x 16 x 16
function networks.resnet()
  local function conv(net, filters, stride, size, name)
    net = sym.Convolution{data = net, num_filter = filters, kernel = {size, size},
      stride = {stride, stride}, pad = {(size - 1) / 2, (size - 1) / 2}, no_bias = true,
      name = name}
    return sym.BatchNorm{data = net, fix_gamma = false, name = name .. "_norm"}
  end
  local net = sym.relu(conv(sym.Variable("data"), 4, 1, 3, "first"))
  for stage = 1, 3 do
    for unit = 1, 3 do
      local name, stride = ("stage%d_unit%d"):format(stage, unit), stage > 1 and unit == 1 and 2 or 1
      local past = stride == 2 and conv(net, 2 ^ (stage + 1), 2, 1, name .. "_short") or net
      net = sym.relu(conv(net, 2 ^ (stage + 1), stride, 3, name .. "_a"))
      net = sym.relu(conv(net, 2 ^ (stage + 1), 1, 3, name .. "_b") + past)
    end
  end
  net = sym.Pooling{data = net, kernel = {4, 4}, global_pool = true, pool_type = "avg"}
  net = sym.FullyConnected{data = sym.Flatten{data = net}, num_hidden = 5, name = "fc"}
  return sym.SoftmaxOutput{data = net, name = "softmax"}, {6, 3, 16, 16}, {6}
end

function networks.lstm()
  local steps = sym.SliceChannel{data = sym.Variable("data"), num_outputs = 3, axis = 1,
    squeeze_axis = true}
  local cell = ty.rnn.LSTMCell{num_hidden = 4, prefix = "lstm_"}
  local rows, states = {}, cell:begin_state{func = sym.zeros, shape = {6, 4}}
  for i = 1, 3 do
    rows[i], states = cell(steps[i], states)
  end
  local net = sym.Concat{rows[1], rows[2], rows[3], dim = 0, name = "rows"}
  net = sym.LayerNorm{data = net, name = "norm"}
  net = sym.FullyConnected{data = net, num_hidden = 5, name = "fc"}
  return sym.SoftmaxOutput{data = net, name = "softmax"}, {6, 3, 7}, {18}
end

local function pattern(shape, period)
  local n, values = 1, {}
  for _, d in ipairs(shape) do
    n = n * d
  end
  for i = 1, n do
    values[i] = (i * 7919 % period) / period - 0.45
  end
  return ty.nd.array{values, ctx = ty.cpu(0)}:reshape(shape)
end

local ffi = require "ffi"
ffi.cdef "void cudasim_count(uint64_t *); void cudasim_fail(const char *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local function step(exe)
  exe:forward{is_train = true}
  exe:backward()
  ty.nd.waitall()
end

-- what a step asks of the driver: starts of graphs, copies, allocations
local function cost(exe)
  local before, after = ffi.new("uint64_t[5]"), ffi.new("uint64_t[5]")
  ty.nd.waitall()
  driver.cudasim_count(before)
  step(exe)
  driver.cudasim_count(after)
  local function asked(i)
    return tonumber(after[i] - before[i])
  end
  return ("%d graphs, %d copies, %d allocations"):format(asked(3), asked(1), asked(4))
end

-- whether a step works where all else but the starts of graphs would fail
local function asks_nothing_else(exe)
  local plan = {}
  for call in ("cuLaunchKernel cuMemsetD8Async cuMemcpyHtoDAsync cuMemcpyDtoHAsync "
    .. "cuMemcpyDtoDAsync cuMemAlloc cuMemCreate cuMemHostAlloc cuModuleLoadData "
    .. "cuStreamBeginCapture cublasLtMatmul cudnnBackendExecute"):gmatch("%S+") do
    plan[#plan + 1] = call .. ":1:999"
  end
  driver.cudasim_fail(table.concat(plan, ","))
  local good, e = pcall(step, exe)
  driver.cudasim_fail("")
  return good and "nothing else" or e
end

local function losses(ctx, net, data, labels)
  local exe = net:simple_bind{ctx = ctx, data = data, softmax_label = labels}
  for name, x in pairs(exe.arg_dict) do
    local value = name == "softmax_label" and ty.nd.arange{0, labels[1], ctx = ty.cpu(0)} % 5
      or pattern(x.shape, 101)
    value:copyto(x)
  end
  local all = {}
  for step = 1, 4 do
    local p = exe:forward{is_train = true}[1]:as_in_context(ty.cpu(0)):totable()
    local loss = 0
    for i, row in ipairs(p) do
      loss = loss - math.log(row[(i - 1) % 5 + 1])
    end
    all[step] = loss / #p
    exe:backward()
    for name, g in pairs(exe.grad_dict) do
      if name ~= "data" and name ~= "softmax_label" then
        local moved = exe.arg_dict[name] - g * 0.05
        moved:copyto(exe.arg_dict[name])
      end
    end
  end
  return all, exe
end

local net, data, labels = networks[NAME]()
local there, exe = losses(ty.gpu(0), net, data, labels)
local here = losses(ty.cpu(0), net, data, labels)
for i = 1, 4 do
  print(("step %d: %.7f %.7f %s"):format(i, there[i], here[i],
    math.abs(there[i] - here[i]) < 1e-5 and "equal" or "different"))
end
print(cost(exe), asks_nothing_else(exe))
print(exe:program():find("on the host", 1, true) and "host" or "no host")
print(here[4] < here[1] and "it learns" or "it does not learn")
]]

describe("training on a GPU", function()
  for _, name in ipairs{ "lenet", "lstm", "resnet" } do
    it("is that of the CPU: " .. name, function()
      if not stand_in.exists() then
        pending("no build/cudasim: make cudasim")
        return
      end
      local text = stand_in.run(STEPS:gsub("NAME", ("%q"):format(name)), {})
      for i = 1, 4 do
        assert.matches(("step %d: [%%d.]+ [%%d.]+ equal"):format(i), text)
      end
      assert.matches("it learns", text, 1, true)
      assert.matches("2 graphs, 0 copies, 0 allocations\tnothing else\nno host\n", text, 1, true)
    end)
  end
end)
