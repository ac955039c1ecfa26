-- A word model in buckets on a GPU, on the stand-in: its parameters after some steps are those of
-- the CPU, and a step of a bucket that was met before asks the driver for nothing but launches and
-- the batch's copies.

local shell = require "spec.support.shell"
local stand_in = require "spec.support.stand_in"

local MODEL = [[
local ty = require "tycho"
local sym = ty.sym
ty.log.level = "error"
local cpu = ty.cpu(0)
local cell = ty.rnn.LSTMCell{num_hidden = 6, prefix = "lstm_"}

local function network(length)
  local data, label = sym.Variable("data"), sym.Variable("softmax_label")
  local net = sym.Embedding{data = data, input_dim = 11, output_dim = 5, name = "embed"}
  cell:reset()
  local rows = cell:unroll{length = length, inputs = net, layout = "NTC", merge_outputs = true}
  net = sym.FullyConnected{data = sym.Reshape{data = rows, shape = {-1, 6}}, num_hidden = 11,
    name = "fc"}
  return sym.SoftmaxOutput{data = net, label = sym.Reshape{data = label, shape = {-1}},
    name = "softmax"}, {"data"}, {"softmax_label"}
end

local function batch(length, seed, rows)
  rows = rows or 4
  local words = (ty.nd.arange{0, rows * length, ctx = cpu} * 7 + seed) % 11
  return ty.io.DataBatch{data = {words:reshape{rows, length}},
    label = {((words + 1) % 11):reshape{rows, length}}, bucket_key = length,
    provide_data = {{"data", {rows, length}}}, provide_label = {{"softmax_label", {rows, length}}}}
end
]]

local TRAIN = MODEL .. [[
local ffi = require "ffi"
ffi.cdef "void cudasim_count(uint64_t *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local function asked()
  local n = ffi.new("uint64_t[5]")
  ty.nd.waitall()
  driver.cudasim_count(n)
  return n
end

local function train(ctx)
  local m = ty.mod.BucketingModule{sym_gen = network, default_bucket_key = 7, context = ctx}
  local first = batch(7, 0)
  m:bind{data_shapes = first.provide_data, label_shapes = first.provide_label}
  local params = {}
  local shapes, symbol = nil, (network(7))
  shapes = symbol:infer_shape{data = {4, 7}, softmax_label = {4, 7}}
  for i, name in ipairs(symbol:list_arguments()) do
    if name ~= "data" and name ~= "softmax_label" then
      local n = ty.nd.zeros{shape = shapes[i], ctx = cpu}.size
      params[name] = (ty.nd.arange{0, n, ctx = cpu} * 5 % 23 / 23 - 0.45):reshape(shapes[i])
    end
  end
  m:init_params{arg_params = params, allow_missing = true}
  m:init_optimizer{optimizer_params = {learning_rate = 0.5}}
  local function step(n)
    m:forward_backward(batch(({7, 3, 5})[n % 3 + 1], n))
    m:update()
  end
  for n = 1, 9 do
    step(n)
  end
  if ctx ~= cpu then
    for n = 10, 12 do
      local before = asked()
      step(n)
      local after = asked()
      print(("%d graphs, %d launches, %d copies, %d allocations"):format(
        tonumber(after[3] - before[3]), tonumber(after[0] - before[0]),
        tonumber(after[1] - before[1]), tonumber(after[4] - before[4])))
    end
  else
    for n = 10, 12 do
      step(n)
    end
  end
  return (m:get_params())
end

local got, want, worst = train(ty.gpu(0)), train(cpu), 0
for name, p in pairs(want) do
  worst = math.max(worst, (got[name]:as_in_context(cpu) - p):abs():max():asscalar())
end
print(worst < 1e-5 and "equal" or worst)
]]

-- sources that NVRTC was given for each of some buckets, in front of which the model is bound and
-- trained at its longest
local COMPILE = MODEL .. [[
local function sources()
  ty.nd.waitall()
  local pipe = io.popen("ls '" .. os.getenv("CUDASIM_SOURCES") .. "' | wc -l")
  local n = tonumber(pipe:read("*a"))
  pipe:close()
  return n
end
local m = ty.mod.BucketingModule{sym_gen = network, default_bucket_key = 24, context = ty.gpu(0)}
local longest = batch(24, 0)
m:bind{data_shapes = longest.provide_data, label_shapes = longest.provide_label}
m:init_params()
m:init_optimizer{optimizer_params = {learning_rate = 0.5}}
local metric = ty.metric.Perplexity{ignore_label = ty.null}
local function train(length, rows)
  local before, b = sources(), batch(length, 1, rows)
  for _ = 1, 3 do
    m:forward_backward(b)
    m:update()
    m:update_metric(metric, b.label)
  end
  return sources() - before
end
assert(train(24) > 5)
train(13)                                     -- the first that is not the longest
local more = 0
for _, length in ipairs{9, 19, 23, 16} do
  more = more + train(length)
end
-- up to seven gradients are added in one program, which has as many operands
print(more, train(5), train(3), train(5), train(9, 3), train(19, 6))
]]

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("train", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("buckets on a GPU", function()
  it("train as on the CPU", function()
    local text, status = stand_in.run(TRAIN, { CUDASIM_STRICT = 1 })
    -- the batch and its labels are copied to the device and there into their places; the launches
    -- of the graphs' kernels count, too
    local step = "2 graphs, %d+ launches, 4 copies, 0 allocations\n"
    assert.matches("^" .. step:rep(3) .. "equal\n$", text)
    assert.equal(0, status)
  end)

  it("compile nothing for a further length or batch", function()
    local folder = shell.run("mktemp -d"):match("%S+")
    local text, status = stand_in.run(COMPILE, { CUDASIM_SOURCES = folder })
    shell.run(("rm -r '%s'"):format(folder))
    assert.equal("0\t1\t1\t0\t0\t0\n", text)
    assert.equal(0, status)
  end)
end)
