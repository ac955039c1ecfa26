--- Our side of the workloads: workloads.NAME() prints its records (measure.lua).
local cjson = require "cjson"
local measure = require "measure"
local nets = require "nets"
local ty = require "tycho"
local values = require "values"
local work = require "work"

local workloads = {}

local RATES = {mlp = 0.1, lenet = 0.01, resnet20 = 0.02, resnet50 = 2e-5}
local LM = {{2, 200, 35, 20}, {2, 200, 60, 32}, {2, 650, 35, 20}}  -- layers, units, steps, batch
local LM_RATE, KINDS = 0.5, {"fused", "unrolled"}
local BUCKETS = {10, 20, 30, 40, 50, 60}
local ORDER = {{30, 10, 60, 40, 20, 50}, {50, 20, 10, 60, 30, 40}, {10, 50, 40, 20, 60, 30},
  {60, 30, 20, 50, 40, 10}}
local MEMORY_BATCH = 8
local quick = os.getenv("QUICK") == "1"

-- Training ----------------------------------------------------------------------------------------

local function make_shape(batch, shape) return {batch, unpack(shape)} end

-- Binds a symbol. inputs: arrays by name; every other argument gets its values and, with `train`, a
-- gradient.
local function bound(symbol, inputs, train, lm)
  local req, shapes = {}, {}
  for _, name in ipairs(symbol:list_arguments()) do
    req[name] = (train and not inputs[name]) and "write" or "null"
  end
  for name, x in pairs(inputs) do shapes[name] = x.shape end
  local exe = symbol:simple_bind{ctx = ty.current_context(), shapes = shapes, grad_req = req}
  for name, x in pairs(exe.arg_dict) do
    if inputs[name] then x[":"] = inputs[name]
    elseif name == "rnn_parameters" then values.lstm(x, lm[1], lm[2])
    elseif name:find("^rnn_l%d") then values.lstm(x, 1, lm[2], tonumber(name:match("%d+")))
    else values.parameter(x, name) end
  end
  for name, x in pairs(exe.aux_dict) do
    if not name:find("_fused_") then values.parameter(x, name) end  -- states of updates start at 0
  end
  ty.waitall()
  return exe
end

-- Returns the options of multi_sgd_mom_update, for groups of at most 100 parameters.
local function updates(symbol, exe, lr, share)
  local groups, update = {}, nil
  for i, name in ipairs(symbol:list_arguments()) do
    local g, w = exe.grad_arrays[i], exe.arg_dict[name]
    if g ~= ty.null then
      if not update or update.num_weights == 100 then
        update = {num_weights = 0, lrs = {}, wds = {}, momentum = 0.9,
          rescale_grad = share, out = {}}
        groups[#groups + 1] = update
      end
      local n = update.num_weights
      update[3 * n + 1], update[3 * n + 2], update[3 * n + 3] = w, g, ty.nd.zeros(w.shape)
      update.out[n + 1], update.lrs[n + 1], update.wds[n + 1] = w, lr, 0
      update.num_weights = n + 1
    end
  end
  return groups
end

-- Returns a function that runs forward, backward, and SGD with momentum for all parameters.
local function trainer(symbol, exe, lr, share)
  local groups = updates(symbol, exe, lr, share)
  return function()
    exe:forward(true)
    exe:backward()
    for _, update in ipairs(groups) do ty.nd.multi_sgd_mom_update(update) end
  end
end

-- Returns a training function without gradient arrays: the update is part of backward.
local function with_fused_update(symbol, inputs, lr, share, lm)
  local params = {}
  for _, name in ipairs(symbol:list_arguments()) do
    if not inputs[name] then params[#params + 1] = name end
  end
  local sgd = ty.optimizer.SGD{learning_rate = lr, momentum = 0.9, rescale_grad = share}
  local fused = ty.optimizer.FusedOptimizer{symbol = symbol, optimizer = sgd, params = params}
  local exe = bound(fused.symbol, inputs, false, lm)
  return exe, function()
    exe:forward(true)
    fused:backward(exe)
  end
end

-- Returns the mean cross entropy of the outputs for the labels.
local function loss(exe, label)
  local p = exe.outputs[1]
  local picked = ty.nd.pick{data = p, index = label:reshape{-1}, axis = 1}
  return -ty.nd.log(picked):mean():asscalar()
end

local function losses(exe, label, step)
  local out = {}
  for i = 1, 3 do
    step()
    out[i] = loss(exe, label)
  end
  return out
end

local function classifier(name, batch)
  local symbol, shape, classes = nets.network(name)
  local inputs = {data = values.images(make_shape(batch, shape)),
    label = values.labels("label", {batch}, classes)}
  local exe = bound(symbol, inputs, true)
  return exe, inputs, trainer(symbol, exe, RATES[name], 1 / batch)
end

local function training(figure, name, batch, unit)
  local exe, inputs, step = classifier(name, batch)
  local check, seconds = losses(exe, inputs.label, step), measure.samples(step, ty.waitall)
  measure.rate(figure, "", unit, batch, seconds, check, work.of(exe, step, inputs, true))
  measure.profile(step, exe)
end

function workloads.W1() training("W1", "mlp", 100, "samples/s") end
function workloads.W2() training("W2", "lenet", 64, "images/s") end
function workloads.W3() training("W3", "resnet20", 128, "images/s") end

local function compute_size(x, what)
  local y = x:astype("float64"):abs()
  return (what == "sum" and y:sum() or y:mean()):asscalar()
end

local function inference(figure, name, batch, unit)
  local symbol, shape = nets.network(name, true)
  local exe = bound(symbol, {data = values.images(make_shape(batch, shape))}, false)
  local function step() exe:forward(false) end
  step()
  local check, seconds = {compute_size(exe.outputs[1])}, measure.samples(step, ty.waitall)
  measure.rate(figure, "", unit, batch, seconds, check, work.of(exe, step, {data = true}))
  measure.profile(step, exe)
end

function workloads.W4()
  training("W4", "resnet50", 16, "images/s")
  for _, batch in ipairs{1, 32} do
    inference("W4 infer b" .. batch, "resnet50", batch, "images/s")
  end
end

-- Language model ----------------------------------------------------------------------------------

local function tokens(steps, batch)
  local shape = {steps, batch}
  return {data = values.labels("data" .. steps, shape, nets.VOCABULARY),
    label = values.labels("label" .. steps, shape, nets.VOCABULARY)}
end

local function language(kind, size, train)
  local layers, units, steps, batch = unpack(size)
  local symbol, inputs = nets.language(kind, layers, units, steps, batch), tokens(steps, batch)
  local exe = bound(symbol, inputs, train, size)
  return exe, inputs, train and trainer(symbol, exe, LM_RATE, 1 / (steps * batch))
end

-- Measures the fused operator and unrolled cells, in turn, since their ratio is a figure.
function workloads.W5()
  for _, size in ipairs(LM) do
    local exes, steps, checks, inputs = {}, {}, {}, nil
    for k, kind in ipairs(KINDS) do
      exes[k], inputs, steps[k] = language(kind, size, true)
      checks[k] = losses(exes[k], inputs.label, steps[k])
    end
    for k, seconds in ipairs(measure.in_turn(steps, ty.waitall)) do
      local figure = ("W5 %dx%d T%d b%d"):format(unpack(size))
        .. (KINDS[k] == "unrolled" and " unrolled" or "")
      measure.rate(figure, KINDS[k], "tokens/s", size[3] * size[4], seconds, checks[k],
        work.of(exes[k], steps[k], inputs, true))
      measure.profile(steps[k], exes[k])
    end
  end
end

function workloads.host(only)
  require("host_time")(function(name)
    if name ~= "fused" and name ~= "unrolled" then return select(3, classifier(name, 64)) end
    return select(3, language(name, LM[1], true))
  end, only)
end

local function bucketing(kind, top)
  local function describe(T)
    return {{"data", {T, 32}}}, {{"label", {T, 32}}}
  end
  local module = ty.mod.BucketingModule{sym_gen = function(T)
    return nets.language(kind, 2, 200, T, 32), {"data"}, {"label"}
  end, default_bucket_key = top, context = ty.current_context()}
  return module, describe
end

-- Fills parameters in place; a module calls it with descriptions.
local Filled = ty.init.Initializer:extend("Filled")
function Filled:__call(desc, x)
  if desc.name == "rnn_parameters" then
    values.lstm(x, 2, 200)
  else
    values.parameter(x, desc.name)
  end
end

-- Loads everything that a first call loads, so that memory and time measured later belong to the
-- work. Here modules are loaded at their first use, in the peers by `import`.
local function settle()
  for _, name in ipairs{"mod", "optimizer", "io", "init"} do assert(ty[name]) end
  local x = ty.sym.Convolution{data = ty.sym.Variable("data"), kernel = {3, 3},
    num_filter = 8, name = "c"}
  local symbol =
    ty.sym.SoftmaxOutput{data = ty.sym.FullyConnected{data = x, num_hidden = 4, name = "f"},
      label = ty.sym.Variable("label")}
  local exe = bound(symbol, {data = ty.nd.zeros{1, 3, 16, 16}, label = ty.nd.zeros{1}}, true)
  trainer(symbol, exe, 0.1, 1)()
  ty.waitall()
end

--- Runs each kind in a separate process, to measure its memory; fused with gradient arrays and with
-- the optimizer's steps in backward. "chunked" is a separate row: the last product and its loss in
-- parts, compared with PyTorch's function for this.
function workloads.W6(again)
  for _, kind in ipairs{"fused", "fused:in backward", "chunked"} do again("buckets:" .. kind) end
end

function workloads.buckets(kind, place)
  local data, batches, figure, variant = {}, {}, kind == "fused" and "W6" or "chunked LM",
    place and kind .. " " .. place or kind
  for _, T in ipairs(BUCKETS) do data[T] = tokens(T, 32) end
  settle()
  measure.rest()
  measure.forget_peak()
  local base, start = measure.resident(), measure.now()
  local module, describe = bucketing(kind, 60)
  local function make_batch(T)
    local x, y = describe(T)
    return ty.io.DataBatch{data = {data[T].data}, label = {data[T].label}, bucket_key = T,
      provide_data = x, provide_label = y}
  end
  local x, y = describe(60)
  module:bind{data_shapes = x, label_shapes = y}
  module:init_params{initializer = Filled()}
  module:init_optimizer{optimizer = "sgd", in_backward = place ~= nil,
    optimizer_params = {learning_rate = LM_RATE, momentum = 0.9, rescale_grad = 1 / 32 / 60}}
  for _, T in ipairs(BUCKETS) do batches[T] = make_batch(T) end
  local function round(order)
    local from = measure.now()
    for _, T in ipairs(order) do
      module:forward(batches[T], true)
      module:backward()
      module:update()
    end
    ty.waitall()
    return measure.now() - from
  end
  round(BUCKETS)
  local first, seconds = measure.now() - start, {}
  for i, order in ipairs(ORDER) do
    measure.turn()
    seconds[i] = round(order)
  end
  measure.rate(figure, variant, "tokens/s", 210 * 32, seconds)
  measure.record(figure .. " first pass", variant, "s", {first})
  measure.record(figure .. " memory", variant, "MiB", {measure.peak() - base})
end

-- Overhead ----------------------------------------------------------------------------------------

local function per_operator(seconds)
  local out = {}
  for i, s in ipairs(seconds) do out[i] = s / 200 * 1e9 end
  return out
end

function workloads.W7()
  local symbol, inputs, head =
    nets.network("deep", true), {data = values.images{8, 32}}, ty.nd.ones{8, 32}
  local exe = bound(symbol, inputs, false)
  local function forward() exe:forward(false) end
  forward()
  local check = {compute_size(exe.outputs[1], "sum")}
  measure.record("W7 forward", "", "ns/operator",
    per_operator(measure.samples(forward, ty.waitall)), check)
  local trained = bound(symbol, inputs, true)
  local function both()
    trained:forward(true)
    trained:backward(head)
  end
  both()
  local sum = 0
  for name, g in pairs(trained.grad_dict) do
    if name ~= "data" then sum = sum + compute_size(g, "sum") end
  end
  measure.record("W7 both", "", "ns/operator",
    per_operator(measure.samples(both, ty.waitall)), {sum})
end

-- Models of others -------------------------------------------------------------------------------

-- Returns the values that models.json specifies for an input: whole numbers below one, ones, or
-- numbers around 0.
local function model_input(model, name, shape)
  local below = model.below and model.below[name]
  for _, one in ipairs(model.ones or {}) do
    if one == name then return ty.nd.ones(shape) end
  end
  if below then return values.labels(name, shape, below) end
  return values.around(shape, name)
end

-- Returns the model of this name in models.json.
local function model_named(name)
  local file = assert(io.open((arg[0]:match("^(.*)/") or ".") .. "/models.json"))
  for _, model in ipairs(cjson.decode(file:read("*a"))) do
    if model.name == name then return model end
  end
  error("models.json has no " .. name)
end

--- Measures one ONNX file of models.json in the folder TYCHO_BENCH_MODELS. The script does not wait
-- between runs, as in the other workloads.
function workloads.model(name)
  local model = model_named(name)
  local path = os.getenv("TYCHO_BENCH_MODELS") .. "/" .. model.file
  local symbol, args, auxs = ty.onnx.import_model{path, shapes = model.inputs}
  for _, input in ipairs(ty.onnx.get_model_metadata(path).input_tensor_data) do
    args[input[1]] = model_input(model, input[1], model.inputs[input[1]]):astype(input[3])
  end
  local exe = symbol:bind{ctx = ty.cpu(), args = args, aux_states = auxs, grad_req = "null"}
  local function step() exe:forward(false) end
  step()
  local check = {}
  for i, y in ipairs(exe.outputs) do check[i] = compute_size(y) end
  measure.rate("W16 " .. name, "", "runs/s", 1, measure.samples(step, ty.waitall), check)
  measure.profile(step, exe)
end

--- Measures the import of the largest ONNX file of models.json: milliseconds (without the first
-- import, which also reads the table of operators) and MiB of the process.
function workloads.imports()
  local model = model_named("sentences")
  local path = os.getenv("TYCHO_BENCH_MODELS") .. "/" .. model.file
  local ms = {}
  for i = 0, 20 do
    collectgarbage()
    collectgarbage()
    local from, memory = measure.now(), measure.resident()
    local _, args = ty.onnx.import_model{path, shapes = model.inputs}
    ms[i] = (measure.now() - from) * 1e3
    if i == 20 then
      assert(next(args), "no weights")
      measure.record("import memory", "", "MiB", {measure.resident() - memory})
    end
  end
  measure.record("import first", "", "ms", {ms[0]})
  measure.record("import", "", "ms", ms)
end

--- Measures the overhead of one instruction: 1,000 one-element operators, unfused (TYCHO_FUSE=0).
function workloads.chain()
  local exe = nets.chain(1000):simple_bind{ctx = ty.current_context(), data = {1},
    grad_req = "null"}
  local seconds = measure.samples(function() exe:forward(false) end, ty.waitall)
  for i, s in ipairs(seconds) do seconds[i] = s * 1e6 end
  measure.record("chain", "", "ns/operator", seconds)
end

-- Memory ------------------------------------------------------------------------------------------

local MEMORY = {"alexnet", "googlenet", "vgg16", "inception_bn", "resnet50", "resnet152",
  "lstm 2x200 T60", "lstm 4x1024 T35"}
local CHOSEN = {alexnet = true, resnet50 = true, ["lstm 2x200 T60"] = true}

--- Runs each network in a separate process: planned bytes and the greatest memory of the process
-- (batch 8). Training uses a fused optimizer and, for comparison, gradient arrays. The LSTMs have a
-- separate array of parameters for each layer, as in PyTorch.
function workloads.W8(again)
  for _, name in ipairs(MEMORY) do
    local modes = quick and not CHOSEN[name] and {} or {"train", "arrays", "infer"}
    for _, mode in ipairs(modes) do again(("memory:%s:%s"):format(name, mode)) end
  end
end

-- Returns an executor, a step of the mode, and the data, of which the executor has a copy.
local function memory_step(name, mode)
  local layers, units, steps = name:match("^lstm (%d+)x(%d+) T(%d+)")
  local symbol, inputs, share, lm
  if layers then
    lm, share = {tonumber(layers), tonumber(units), tonumber(steps), MEMORY_BATCH},
      1 / (steps * MEMORY_BATCH)
    symbol, inputs = nets.language("stacked", unpack(lm)), tokens(lm[3], MEMORY_BATCH)
  else
    local shape
    symbol, shape = nets.network(name)
    inputs, share =
      {data = values.images(make_shape(MEMORY_BATCH, shape)), label = ty.nd.zeros{MEMORY_BATCH}}, 1
  end
  local lr = layers and LM_RATE or 1e-4
  if mode == "train" then
    local exe, step = with_fused_update(symbol, inputs, lr, share, lm)
    return exe, step, inputs.data
  end
  local exe = bound(symbol, inputs, mode == "arrays", lm)
  return exe, mode == "arrays" and trainer(symbol, exe, lr, share) or function()
    exe:forward(false)
  end, inputs.data
end

function workloads.memory(name, mode)
  settle()
  local base = measure.resident()
  measure.forget_peak()
  local exe, step, data = memory_step(name, mode)
  data:free()
  measure.forget_peak()
  for _ = 1, 2 do
    step()
    ty.waitall()
  end
  local figure, m = ("W8 %s %s"):format(name, mode), exe:memory()
  measure.record(figure, "", "MiB", {measure.peak() - base})
  measure.record(figure .. " plan", "", "x bound", {m.planned / m.lower_bound})
end

-- Binding -----------------------------------------------------------------------------------------

local function binding(figure, kind, make, n)
  local out = {}
  local function once()
    local from = measure.now()
    local kept = make()
    ty.waitall()
    local ms = (measure.now() - from) * 1e3
    kept:free()
    return ms
  end
  for i = 1, n do
    out[i] = once()
    collectgarbage()                                   -- like `del` in the peers
  end
  measure.record(figure, kind, "ms", out)
end

local function bind(symbol, shapes)
  local req = {}
  for _, name in ipairs(symbol:list_arguments()) do
    req[name] = shapes[name] and "null" or "write"
  end
  return symbol:simple_bind{ctx = ty.current_context(), shapes = shapes, grad_req = req}
end

function workloads.W9()
  settle()
  local resnet, shape = nets.network("resnet50")
  binding("W9 bind resnet50", "", function()
    return bind(resnet, {data = make_shape(16, shape), label = {16}})
  end, 25)
  local shapes = {data = {60, 32}, label = {60, 32}}
  for _, kind in ipairs{"fused", "unrolled"} do
    local net, more = nets.language(kind, 2, 200, 60, 32), kind == "fused" and "" or " unrolled"
    binding("W9 bind lm" .. more, kind, function() return bind(net, shapes) end, 25)
    binding("W9 60 buckets" .. more, kind, function()
      local module, describe = bucketing(kind, 60)
      local x, y = describe(60)
      module:bind{data_shapes = x, label_shapes = y}
      module:init_params{initializer = ty.init.Uniform(0.1)}
      for T = 60, 1, -1 do module:switch_bucket(T, describe(T)) end
      return {free = function() return module end}
    end, kind == "fused" and 5 or 1)
  end
end

-- Single operators --------------------------------------------------------------------------------

local SUM_SHAPE = {[1e3] = {25, 40}, [1e5] = {250, 400}, [1e7] = {2500, 4000}}
local NORM_SHAPE = {[1e3] = {2, 5, 10, 10}, [1e5] = {10, 16, 25, 25}, [1e7] = {20, 50, 100, 100}}

local function elements(what, n, step, check)
  local seconds = measure.samples(step, ty.waitall)
  for i, s in ipairs(seconds) do seconds[i] = s / n * 1e9 end
  measure.record(("W10 %s %.0e"):format(what, n), "", "ns/element", seconds, check and {check()})
end

local function batchnorm(n)
  local shape = NORM_SHAPE[n]
  local exe = ty.sym.BatchNorm{data = ty.sym.Variable("data"), name = "bn", fix_gamma = false,
    eps = 1e-5}:simple_bind{ctx = ty.current_context(), data = shape, grad_req = "write"}
  local dy = values.images(shape)
  exe.arg_dict.data[":"] = dy
  exe.arg_dict.bn_gamma[":"] = 1
  elements("batchnorm", n, function()
    exe:forward(true)
    exe:backward(dy)
  end, function() return compute_size(exe.grad_dict.bn_gamma) end)
end

local function chain8(n, x)
  local v = ty.sym.Variable("data")
  local exe = bound(ty.sym.relu(ty.sym.tanh(1.5 * v + 0.25) * ty.sym.sigmoid(v) - 0.1) * v,
    {data = x}, false)
  elements("chain", n, function()
    exe:forward(false)
  end, function() return compute_size(exe.outputs[1]) end)
end

function workloads.W10()
  for _, n in ipairs{1e3, 1e5, 1e7} do
    local x, y = values.images{n}, ty.nd.zeros{n}
    elements("copy", n, function() x:copyto(y) end)
    chain8(n, x)
    local rows, out = x:reshape{-1, 1000}, ty.nd.zeros{n / 1000, 1000}
    elements("softmax", n, function()
      ty.nd.softmax{data = rows, axis = 1, out = out}
    end, function()
      return out:slice_axis{axis = 1, begin = 7, end_ = 8}:astype("float64"):sum():asscalar()
    end)
    local m = x:reshape(SUM_SHAPE[n])
    for axis = 0, 1 do
      local s = ty.nd.zeros{SUM_SHAPE[n][2 - axis]}
      elements("sum " .. axis, n, function()
        ty.nd.sum{data = m, axis = axis, out = s}
      end, function() return compute_size(s) end)
    end
    local w, g, a, b = x:copy(), x:copy(), ty.nd.zeros{n}, ty.nd.zeros{n}
    elements("adam", n, function()
      ty.nd.adam_update{weight = w, grad = g, mean = a, var = b, out = w, lr = 1e-5}
    end)
    for _, used in ipairs{w, g, a, b, y, out} do used:free() end
    batchnorm(n)
  end
end

-- Workloads in other files, which are loaded when they run, so that their data do not add to the
-- heap that the garbage collector visits in other workloads.
local FILES = {peaks = "peaks", W11 = "growth", loader = "loading", decode = "decoding",
  W12 = "narrow", W13 = "narrow", W14 = "narrow"}

return setmetatable(workloads, {__index = function(_, name)
  local found = require(FILES[name] or "imperative")
  return type(found) == "table" and found[name] or found
end})
