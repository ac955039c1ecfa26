-- What spec/cuda/every_operator_spec.lua lets fail: the lines of the tables of operators, with the
-- gradients of all inputs, and here those that are in none, or do on a GPU what no line asks for.

local runs = require "spec.support.operator_runs"
local ty = require "tycho"

local nd, sym, V = ty.nd, ty.sym, ty.sym.Variable
local list = {}

local function add(name, run)
  list[#list + 1] = { name = name, run = function()
    ty.random.seed(3)
    return runs.text(run())
  end }
end

-- Returns numbers from -1 to 1.7 in no order.
local function numbers(shape, dtype)
  local n, values = 1, {}
  for _, d in ipairs(shape) do n = n * d end
  for i = 1, n do values[i] = (i * 7919 % 101) / 37 - 1 end
  return nd.array(values):reshape(shape):astype(dtype or "float64")
end

-- Returns outputs and gradients of a network whose arguments have these shapes, or are arrays.
local function step(net, given, options)
  options = options or {}
  local arrays, grads, shapes = {}, {}, {}
  for name, x in pairs(given) do
    arrays[name] = x.shape and x or numbers(x)
    grads[name] = nd.zeros(arrays[name].shape, { dtype = arrays[name].dtype })
    shapes[#shapes + 1] = name
  end
  table.sort(shapes)
  local exe = net:bind{ ctx = ty.current_context(), args = arrays, args_grad = grads,
    grad_req = options.req or "write" }
  exe:forward{ is_train = true }
  local heads = {}
  for i, y in ipairs(exe.outputs) do heads[i] = numbers(y.shape, y.dtype) end
  exe:backward(not options.no_heads and heads or nil)
  local results = { unpack(exe.outputs) }
  for _, name in ipairs(shapes) do results[#results + 1] = grads[name] end
  return results
end

-- -- numbers as 8-bit integers -------------------------------------------------------------------

local contrib = nd.contrib
local function low() return nd.array{ -2 } end
local function high() return nd.array{ 2 } end
local function levels(shape) return (numbers(shape) * 60):astype("int8") end

add("quantize", function() return contrib.quantize(numbers{ 5 }, low(), high()) end)
add("quantize_v2", function() return contrib.quantize_v2(numbers{ 5 }) end)
add("quantize_asym", function() return contrib.quantize_asym(numbers({ 5 }, "float32")) end)
add("quantized_rnn", function()
  local q, scale, shift = unpack(contrib.quantize_asym(numbers({ 3, 2, 2 }, "float32")))
  return contrib.quantized_rnn{ q, numbers({ 48 }, "float32"), numbers({ 1, 2, 2 }, "float32"),
    numbers({ 1, 2, 2 }, "float32"), scale, shift, state_size = 2, num_layers = 1, mode = "lstm",
    state_outputs = true }
end)
add("quantize_v2, integers", function() return contrib.quantize_v2(levels{ 5 }) end)
add("requantize", function()
  return contrib.requantize((numbers{ 5 } * 1e8):astype("int32"), low(), high())
end)
add("dequantize", function() return { contrib.dequantize(levels{ 5 }, low(), high()) } end)
add("calibrate_entropy", function()
  return contrib.calibrate_entropy(nd.abs(numbers{ 31 }), nd.arange{ -16, 16 },
    { num_quantized_bins = 7 })
end)
add("quantized_flatten", function()
  return contrib.quantized_flatten(levels{ 2, 3, 2 }, low(), high())
end)
add("quantized_act", function()
  return contrib.quantized_act(levels{ 5 }, low(), high(), { act_type = "relu" })
end)
add("quantized_fully_connected", function()
  return contrib.quantized_fully_connected{ levels{ 2, 3 }, levels{ 4, 3 }, levels{ 4 },
    low(), high(), low(), high(), low(), high(), num_hidden = 4 }
end)
add("quantized_conv", function()
  return contrib.quantized_conv{ levels{ 1, 2, 4, 4 }, levels{ 2, 2, 3, 3 }, low(), high(), low(),
    high(), kernel = { 3, 3 }, num_filter = 2, no_bias = true }
end)
add("quantized_pooling", function()
  return contrib.quantized_pooling{ levels{ 1, 2, 4, 4 }, low(), high(), kernel = { 2, 2 },
    pool_type = "avg" }
end)
add("quantized_concat", function()
  return contrib.quantized_concat{ levels{ 2, 3 }, levels{ 2, 1 }, low(), high(), low(), high(),
    num_args = 2, dim = 1 }
end)
add("quantized_elemwise_add", function()
  return contrib.quantized_elemwise_add{ levels{ 5 }, levels{ 5 }, low(), high(), low(), high() }
end)
add("quantized_elemwise_mul", function()
  return contrib.quantized_elemwise_mul{ levels{ 5 }, levels{ 5 }, low(), high(), low(), high() }
end)
add("quantized_batch_norm", function()
  return contrib.quantized_batch_norm{ levels{ 2, 3 }, nd.ones{ 3 }, nd.zeros{ 3 }, nd.zeros{ 3 },
    nd.ones{ 3 }, low(), high(), min_calib_range = -8, max_calib_range = 8 }
end)
add("quantized_embedding", function()
  return contrib.quantized_embedding(nd.array{ 2, 0, 9 }, levels{ 3, 2 }, low(), high(),
    { input_dim = 3, output_dim = 2 })
end)

-- -- losses -------------------------------------------------------------------------------------

for _, normalization in ipairs{ "null", "batch", "valid" } do
  add("linear_cross_entropy " .. normalization, function()
    return step(sym.contrib.linear_cross_entropy{ data = V("x"), weight = V("w"), bias = V("b"),
      label = V("label"), num_hidden = 5, normalization = normalization, use_ignore = true,
      ignore_label = 1 }, { x = { 3, 4 }, w = { 5, 4 }, b = { 5 }, label = nd.array{ 0, 1, 4 } },
      { no_heads = true, req = normalization == "null" and "add" or "write" })
  end)
  for _, multi in ipairs{ false, true } do
    add(("SoftmaxOutput %s %s"):format(normalization, multi), function()
      return step(sym.SoftmaxOutput{ data = V("x"), label = V("label"), multi_output = multi,
        normalization = normalization, use_ignore = true, ignore_label = 1 },
        { x = multi and { 2, 3, 2 } or { 3, 4 },
          label = multi and nd.array{ { 0, 1 }, { 2, 0 } } or nd.array{ 0, 1, 3 } })
    end)
  end
  add("MakeLoss " .. normalization, function()
    return step(sym.MakeLoss{ data = V("x"), normalization = normalization, valid_thresh = 0.1 },
      { x = { 2, 3 } })
  end)
end
add("SoftmaxOutput, probabilities", function()
  return step(sym.SoftmaxOutput{ data = V("x"), label = V("label"), out_grad = true },
    { x = { 3, 4 }, label = nd.softmax(numbers{ 3, 4 }) })
end)
add("SoftmaxOutput, the last axis", function()
  return step(sym.SoftmaxOutput{ data = V("x"), label = V("label"), preserve_shape = true,
    smooth_alpha = 0.1 }, { x = { 2, 3, 4 }, label = nd.array{ { 0, 1, 2 }, { 3, 3, 1 } } })
end)
add("softmax, lengths", function()
  return step(sym.softmax{ data = V("x"), length = V("n"), use_length = true, axis = 1 },
    { x = { 2, 4 }, n = nd.array({ 2, 4 }, { dtype = "int32" }) })
end)

-- -- branches, masks, images --------------------------------------------------------------------

add("foreach", function()
  local out, last = sym.contrib.foreach(function(d, s) return d * s, d + s end, V("d"), V("s"))
  return step(sym.Group{ out, last }, { d = { 3, 2 }, s = { 2 } })
end)
add("while_loop", function()
  local out, last = sym.contrib.while_loop(function(i) return sym.sum(i):lt(3) end,
    function(i) return i * 2, i + 1 end, V("i"), { max_iterations = 5 })
  return step(sym.Group{ out, type(last) == "table" and last[1] or last }, { i = nd.array{ 1 } })
end)
for _, way in ipairs{ -1, 1 } do
  add("cond " .. way, function()
    local x = V("x")
    return step(sym.contrib.cond(sym.sum(V("p")):gt(0), function() return x * 2 end,
      function() return x - V("y") end),
      { p = nd.array{ way }, x = { 3 }, y = { 3 } })
  end)
end
add("boolean_mask", function()
  return { contrib.boolean_mask{ numbers{ 3, 2 }, nd.array{ 1, 0, 1 } } }
end)
add("UpSampling, bilinear", function()
  return step(sym.UpSampling{ V("x"), V("w"), num_args = 2, scale = 2, sample_type = "bilinear",
    num_filter = 2 }, { x = { 1, 2, 3, 3 }, w = { 2, 1, 4, 4 } })
end)
add("UpSampling of two", function()
  return step(sym.UpSampling{ V("x"), V("y"), num_args = 2, scale = 2, sample_type = "nearest" },
    { x = { 1, 2, 4, 4 }, y = { 1, 1, 2, 2 } })
end)
for _, kind in ipairs{ "affine", "warp" } do
  add("GridGenerator " .. kind, function()
    return step(sym.GridGenerator{ data = V("x"), transform_type = kind, target_shape = { 3, 4 } },
      { x = kind == "affine" and { 2, 6 } or { 2, 2, 3, 4 } })
  end)
end
add("to_tensor", function()
  return step(sym.image.to_tensor{ V("x") }, { x = { 3, 4, 3 } })
end)
add("Dropout, axes and mask", function()
  return step(sym.Dropout{ data = V("x"), p = 0.5, axes = { 1 } }, { x = { 3, 4 } })
end)
add("Dropout of nothing", function()
  return step(sym.Dropout{ data = V("x"), p = 0 }, { x = { 3, 4 } })
end)
for _, mode in ipairs{ "lstm", "rnn_tanh" } do
  add("RNN, dropped " .. mode, function()
    local states = mode == "lstm" and { c = { 2, 2, 2 } } or {}
    states.x, states.h, states.w = { 3, 2, 2 }, { 2, 2, 2 }, { mode == "lstm" and 96 or 24 }
    return step(sym.RNN{ data = V("x"), parameters = V("w"), state = V("h"),
      state_cell = mode == "lstm" and V("c") or nil, mode = mode, state_size = 2, num_layers = 2,
      p = 0.5, state_outputs = true }, states)
  end)
end

-- -- draws --------------------------------------------------------------------------------------

add("sample_multinomial", function()
  return step(sym.BlockGrad(sym._sample_multinomial{ V("p"), shape = { 4 } }),
    { p = nd.softmax(numbers{ 2, 3 }) })
end)
for line in require("spec.support.trials").lines(require "spec.operators.cases_samplers") do
  add(line[1], function() return { nd.array(line[2](20)) } end)
end

-- -- parameters that no line has ------------------------------------------------------------------

for _, kind in ipairs{ "value", "indices", "mask", "both" } do
  add("topk " .. kind, function()
    return step(sym.topk{ V("x"), k = 2, ret_typ = kind }, { x = { 3, 4 } })
  end)
end
add("topk of all", function()
  return { nd.topk{ numbers{ 3, 4 }, axis = ty.null, k = 5, ret_typ = "value" },
    nd.argsort{ numbers{ 3, 4 }, axis = ty.null }, nd.argmax{ numbers{ 3, 4 } } }
end)
for _, lengths in ipairs{ "first", "last" } do
  add("CTCLoss, blank " .. lengths, function()
    return step(sym.CTCLoss{ data = V("x"), label = V("label"), data_lengths = V("n"),
      label_lengths = V("m"), use_data_lengths = true, use_label_lengths = true,
      blank_label = lengths }, { x = { 4, 2, 3 }, label = nd.array{ { 1, 1 }, { 1, 0 } },
      n = nd.array{ 4, 3 }, m = nd.array{ 2, 1 } })
  end)
end
add("histogram of bins", function()
  return nd._histogram{ numbers{ 9 }, nd.array({ -1, 0, 1, 2 }, { dtype = "float64" }) }
end)
add("ranges", function()
  return { nd._arange{ start = 4 }, nd._arange{ start = 0.5, stop = 4.2, dtype = "int32" },
    nd._linspace{ start = 1, stop = 2, num = 1 }, nd._linspace{ start = 1, stop = 2, num = 5 },
    nd._eye{ N = 3, M = 4, k = 1 } }
end)
add("group_adagrad_update", function()
  local weight = numbers{ 3, 2 }
  return { nd.contrib.group_adagrad_update{ weight, numbers{ 3, 2 }, nd.ones({ 3, 1 },
    { dtype = "float64" }), lr = 0.1, out = weight } }
end)
add("sample_multinomial, its probability", function()
  return step(sym._sample_multinomial{ V("p"), shape = { 4 }, get_prob = true },
    { p = nd.softmax(numbers{ 2, 3 }) })
end)
add("boolean_mask, backward", function()
  return step(sym.contrib.boolean_mask{ V("x"), V("mask") },
    { x = { 3, 2 }, mask = nd.array{ 1, 0, 1 } })
end)
for _, mode in ipairs{ "raise", "clip", "wrap" } do
  add("take " .. mode, function()
    return { nd.take{ numbers{ 3, 200 }, nd.array{ 2, 0, 2 }, mode = mode } }
  end)
end
add("index_copy", function()
  return step(sym.contrib.index_copy{ V("x"), V("i"), V("y") },
    { x = { 4, 2 }, i = nd.array({ 3, 1 }, { dtype = "int32" }), y = { 2, 2 } })
end)
add("scatter_nd of long rows", function()
  return { nd.scatter_nd{ numbers{ 3, 200 }, nd.array{ { 2, 0, 1 } }, shape = { 3, 200 } } }
end)
add("sum of truths", function() return { nd.sum{ numbers{ 3, 4 }:astype("bool"), axis = 1 } } end)
for _, dtype in ipairs{ "float16", "bfloat16", "float32" } do
  add("products, " .. dtype, function()
    return { nd.dot(numbers({ 3, 4 }, dtype), numbers({ 4, 2 }, dtype)),
      nd.FullyConnected{ numbers({ 2, 3 }, dtype), numbers({ 4, 3 }, dtype), numbers({ 4 }, dtype),
        num_hidden = 4 } }
  end)
  add("convolution, " .. dtype, function()
    local net = sym.Convolution{ data = V("x"), weight = V("w"), bias = V("b"), kernel = { 3, 3 },
      num_filter = 2, pad = { 1, 1 }, stride = { 2, 2 } }
    return step(net, { x = numbers({ 1, 2, 5, 5 }, dtype), w = numbers({ 2, 2, 3, 3 }, dtype),
      b = numbers({ 2 }, dtype) })
  end)
end
add("FullyConnected and relu", function()
  return step(sym.relu(sym.FullyConnected{ data = V("x"), weight = V("w"), no_bias = true,
    num_hidden = 4 }), { x = { 2, 3 }, w = { 4, 3 } })
end)
add("Convolution, channels last", function()
  return step(sym.Convolution{ data = V("x"), weight = V("w"), no_bias = true, kernel = { 3, 3 },
    num_filter = 2, layout = "NHWC" }, { x = { 1, 4, 4, 2 }, w = { 2, 3, 3, 2 } })
end)
for _, layout in ipairs{ "NWC", "NHWC", "NDHWC" } do
  local axes, shape = #layout - 2, { 1, 4, 4, 4 }
  shape[axes + 2] = 2
  add("Pooling " .. layout, function()
    return step(sym.Pooling{ data = V("x"), kernel = { unpack({ 2, 2, 2 }, 1, axes) },
      pool_type = "max", layout = layout }, { x = { unpack(shape, 1, axes + 2) } })
  end)
end
add("convolutions in a row", function()
  local net = V("x")
  for i = 1, 2 do
    net = sym.relu(sym.Convolution{ data = net, kernel = { 3, 3 }, num_filter = 2, no_bias = true,
      pad = { 1, 1 }, weight = V("w" .. i) })
  end
  return step(sym.Pooling{ data = net, kernel = { 2, 2 }, pool_type = "max" },
    { x = { 1, 2, 4, 4 }, w1 = { 2, 2, 3, 3 }, w2 = { 2, 2, 3, 3 } })
end)
add("MultiBoxTarget, mined", function()
  return nd.contrib.MultiBoxTarget{ nd.array{ { { 0, 0, 0.5, 0.5 }, { 0.5, 0.5, 1, 1 },
    { 0, 0.5, 0.5, 1 } } }, nd.array{ { { 1, 0.1, 0.1, 0.5, 0.5 } } },
    nd.array{ { { 0.1, 0.2, 0.3 }, { 0.4, 0.5, 0.6 } } }, negative_mining_ratio = 1,
    negative_mining_thresh = 0.6 }
end)
add("MultiBoxPrior, steps", function()
  return { nd.contrib.MultiBoxPrior{ nd.zeros{ 1, 3, 2, 2 }, sizes = { 0.5, 0.25 },
    steps = { 0.5, 0.5 } } }
end)
add("Dropout, its factors where it does not drop", function()
  local exe = sym.Dropout{ data = V("x"), p = 0.5, axes = { 0 } }:bind{ ctx = ty.current_context(),
    args = { x = numbers{ 3, 4 } } }
  return exe:forward{ is_train = false }
end)

runs.add(list, require "spec.operators.cases", "all")
runs.add(list, require "spec.operators.cases_values", "all")

return list
