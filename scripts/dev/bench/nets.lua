--- The networks of the benchmark as symbols. peer_nets.py is the same in Python: shapes, names,
-- order.
local ty = require "tycho"
local S = ty.sym

local nets = {}

-- Steps: symbol -> symbol -------------------------------------------------------------------------

local function fc(x, name, n) return S.FullyConnected{data = x, num_hidden = n, name = name} end
local function act(x, kind) return S.Activation{data = x, act_type = kind} end
local function relu(x) return act(x, "relu") end
local function drop(x) return S.Dropout{data = x, p = 0.5} end
local function flat(x) return S.Flatten{data = x} end

local function conv(x, name, n, k, stride, pad, no_bias)
  stride, pad = stride or 1, pad or 0
  return S.Convolution{data = x, num_filter = n, kernel = {k, k}, stride = {stride, stride},
    pad = {pad, pad}, no_bias = no_bias, name = name}
end

local function pool(x, k, stride, pad, kind)
  pad = pad or 0
  return S.Pooling{data = x, kernel = {k, k}, stride = {stride, stride}, pad = {pad, pad},
    pool_type = kind or "max"}
end

local function mean(x)
  return flat(S.Pooling{data = x, global_pool = true, kernel = {1, 1}, pool_type = "avg"})
end

local function conv_bn(x, name, n, k, stride, pad)
  return S.BatchNorm{data = conv(x, name, n, k, stride, pad, true), fix_gamma = false, eps = 1e-5,
    momentum = 0.9, name = name .. "_bn"}
end

local function unit(...) return relu(conv_bn(...)) end
local function conv_relu(...) return relu(conv(...)) end
local function concat(...)
  local list = {...}
  list.dim = 1
  return S.Concat(list)
end

-- Networks ----------------------------------------------------------------------------------------

local define = {}

--- Returns a perceptron 784-128-64-10.
function define.mlp(x)
  return fc(relu(fc(relu(fc(x, "fc1", 128)), "fc2", 64)), "fc3", 10)
end

--- Returns 20 and 50 filters of 5x5 with max pooling, 500 hidden units.
function define.lenet(x)
  x = pool(act(conv(x, "conv1", 20, 5), "tanh"), 2, 2)
  x = pool(act(conv(x, "conv2", 50, 5), "tanh"), 2, 2)
  return fc(act(fc(flat(x), "fc1", 500), "tanh"), "fc2", 10)
end

function define.resnet20(x)
  x = unit(x, "conv0", 16, 3, 1, 1)
  for i = 0, 2 do
    local c = 16 * 2 ^ i
    for j = 0, 2 do
      local stride, name = (i > 0 and j == 0) and 2 or 1, ("s%du%d"):format(i, j)
      local y = conv_bn(unit(x, name .. "_c1", c, 3, stride, 1), name .. "_c2", c, 3, 1, 1)
      if stride == 2 then x = conv_bn(x, name .. "_sc", c, 1, 2) end
      x = relu(y + x)
    end
  end
  return fc(mean(x), "fc", 10)
end

local function bottlenecks(x, units)
  x = pool(unit(x, "conv0", 64, 7, 2, 3), 3, 2, 1)
  for i, n in ipairs(units) do
    local c = 64 * 2 ^ (i - 1)
    for j = 0, n - 1 do
      local stride, name = (i > 1 and j == 0) and 2 or 1, ("s%du%d"):format(i - 1, j)
      local y = unit(unit(x, name .. "_c1", c, 1), name .. "_c2", c, 3, stride, 1)
      y = conv_bn(y, name .. "_c3", 4 * c, 1)
      if j == 0 then x = conv_bn(x, name .. "_sc", 4 * c, 1, stride) end
      x = relu(y + x)
    end
  end
  return fc(mean(x), "fc", 1000)
end

function define.resnet50(x) return bottlenecks(x, {3, 4, 6, 3}) end
function define.resnet152(x) return bottlenecks(x, {3, 8, 36, 3}) end

function define.alexnet(x)
  x = pool(conv_relu(x, "conv1", 64, 11, 4, 2), 3, 2)
  x = pool(conv_relu(x, "conv2", 192, 5, 1, 2), 3, 2)
  x = conv_relu(x, "conv3", 384, 3, 1, 1)
  x = conv_relu(x, "conv4", 256, 3, 1, 1)
  x = conv_relu(x, "conv5", 256, 3, 1, 1)
  x = drop(flat(pool(x, 3, 2)))
  x = drop(relu(fc(x, "fc6", 4096)))
  return fc(relu(fc(x, "fc7", 4096)), "fc8", 1000)
end

function define.vgg16(x)
  for i, size in ipairs{{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}} do
    for j = 1, size[1] do x = conv_relu(x, ("conv%d_%d"):format(i, j), size[2], 3, 1, 1) end
    x = pool(x, 2, 2)
  end
  x = drop(relu(fc(flat(x), "fc6", 4096)))
  return fc(drop(relu(fc(x, "fc7", 4096))), "fc8", 1000)
end

local function words(line)
  local name, out = nil, {}
  for w in line:gmatch("%S+") do
    if name then out[#out + 1] = tonumber(w) or w else name = w end
  end
  return name, unpack(out)
end

local INCEPTION = {"3a 64 96 128 16 32 32", "3b 128 128 192 32 96 64", "", "4a 192 96 208 16 48 64",
  "4b 160 112 224 24 64 64", "4c 128 128 256 24 64 64", "4d 112 144 288 32 64 64",
  "4e 256 160 320 32 128 128", "", "5a 256 160 320 32 128 128", "5b 384 192 384 48 128 128"}

function define.googlenet(x)
  x = pool(conv_relu(x, "conv1", 64, 7, 2, 3), 3, 2, 1)
  x = pool(conv_relu(conv_relu(x, "conv2r", 64, 1), "conv2", 192, 3, 1, 1), 3, 2, 1)
  for _, line in ipairs(INCEPTION) do
    local name, c1, r3, c3, r5, c5, p = words(line)
    if not name then
      x = pool(x, 3, 2, 1)
    else
      name = "in" .. name .. "_"
      x = concat(conv_relu(x, name .. "1", c1, 1), conv_relu(conv_relu(x, name .. "3r", r3, 1),
        name .. "3", c3, 3, 1, 1), conv_relu(conv_relu(x, name .. "5r", r5, 1), name .. "5", c5, 5,
          1, 2), conv_relu(pool(x, 3, 1, 1), name .. "p", p, 1))
    end
  end
  return fc(drop(mean(x)), "fc", 1000)
end

local NORMALISED = {"3a 64 64 64 64 96 avg 32", "3b 64 64 96 64 96 avg 64", "3c 0 128 160 64 96",
  "4a 224 64 96 96 128 avg 128", "4b 192 96 128 96 128 avg 128", "4c 128 128 160 128 160 avg 128",
  "4d 96 128 192 160 192 avg 128", "4e 0 128 192 192 256", "5a 352 192 320 160 224 avg 128",
  "5b 352 192 320 192 224 max 128"}

function define.inception_bn(x)
  x = pool(unit(x, "conv1", 64, 7, 2, 3), 3, 2, 1)
  x = pool(unit(unit(x, "conv2r", 64, 1), "conv2", 192, 3, 1, 1), 3, 2, 1)
  for _, line in ipairs(NORMALISED) do
    local name, c1, r3, c3, rd, cd, kind, p = words(line)
    local stride = c1 > 0 and 1 or 2
    name = "i" .. name .. "_"
    local three = unit(unit(x, name .. "3r", r3, 1), name .. "3", c3, 3, stride, 1)
    local double = unit(unit(unit(x, name .. "dr", rd, 1), name .. "d1", cd, 3, 1, 1),
      name .. "d2", cd, 3, stride, 1)
    if c1 > 0 then
      x = concat(unit(x, name .. "1", c1, 1), three, double,
        unit(pool(x, 3, 1, 1, kind), name .. "p", p, 1))
    else
      x = concat(three, double, pool(x, 3, 2, 1))
    end
  end
  return fc(mean(x), "fc", 1000)
end

--- Returns 100 times FullyConnected 32 -> 32 and relu.
function define.deep(x)
  for i = 0, 99 do x = relu(fc(x, "c" .. i, 32)) end
  return x
end

local shapes = {mlp = {784}, lenet = {1, 28, 28}, resnet20 = {3, 32, 32}, deep = {32}}
local classes = {mlp = 10, lenet = 10, resnet20 = 10}

--- Returns a network by name: symbol, shape of one example, classes. Without `bare` a
-- softmax with a label ends it.
function nets.network(name, bare)
  local x = define[name](S.Variable("data"))
  if not bare then x = S.SoftmaxOutput{data = x, label = S.Variable("label"), name = "softmax"} end
  return x, shapes[name] or {3, 224, 224}, classes[name] or 1000
end

-- Language model ----------------------------------------------------------------------------------

nets.VOCABULARY = 10000

local function cell(gates, c)
  local g = S.SliceChannel{data = gates, num_outputs = 4}
  local next_c = S.sigmoid(g[2]) * c + S.sigmoid(g[1]) * S.tanh(g[3])
  return S.sigmoid(g[4]) * S.tanh(next_c), next_c
end

local function zeros(layers, n, units)
  return S.zeros{shape = layers and {layers, n, units} or {n, units}}
end

local function unrolled(x, layers, units, steps, batch)
  local inputs = S.SliceChannel{data = x, num_outputs = steps, axis = 0, squeeze_axis = true}
  local weight, h, c, outputs = {}, {}, {}, {}
  for l = 1, layers do
    weight[l], h[l], c[l] = {}, zeros(nil, batch, units), zeros(nil, batch, units)
    for _, n in ipairs{"i2h", "h2h"} do
      local prefix = ("l%d_%s_"):format(l - 1, n)
      weight[l][n] = {weight = S.Variable(prefix .. "weight"), bias = S.Variable(prefix .. "bias")}
    end
  end
  local function product(v, w)
    return S.FullyConnected{data = v, weight = w.weight, bias = w.bias, num_hidden = 4 * units}
  end
  for t = 1, steps do
    local v = inputs[t]
    for l = 1, layers do
      h[l], c[l] = cell(product(v, weight[l].i2h) + product(h[l], weight[l].h2h), c[l])
      v = h[l]
    end
    outputs[t] = S.expand_dims{data = v, axis = 0}
  end
  outputs.dim = 0
  return S.Concat(outputs)
end

local function fused(x, layers, units, batch)
  return S.RNN{data = x, parameters = S.Variable{name = "rnn_parameters", init = ty.init.Zero()},
    state = zeros(layers, batch, units), state_cell = zeros(layers, batch, units),
    state_size = units, num_layers = layers, mode = "lstm", name = "rnn"}
end

-- Returns a node for each layer: each layer has a separate array of parameters, as in PyTorch.
local function stacked(x, layers, units, batch)
  for l = 0, layers - 1 do
    local parameters = S.Variable{name = ("rnn_l%d_parameters"):format(l), init = ty.init.Zero()}
    x = S.RNN{data = x, parameters = parameters, state = zeros(1, batch, units),
      state_cell = zeros(1, batch, units), state_size = units,
      num_layers = 1, mode = "lstm", name = "rnn_l" .. l}
  end
  return x
end

--- Returns a language model; data and label are (steps, batch). kind: "fused", "stacked" (a node
-- for each layer), "unrolled", or "chunked" (fused, with its last product and loss computed by
-- rows).
function nets.language(kind, layers, units, steps, batch)
  local x = S.Embedding{data = S.Variable("data"), input_dim = nets.VOCABULARY,
    output_dim = units, name = "embed"}
  local out = kind == "unrolled" and unrolled(x, layers, units, steps, batch) or kind == "stacked"
    and stacked(x, layers, units, batch) or fused(x, layers, units, batch)
  if kind == "chunked" then
    return S.contrib.linear_cross_entropy{data = out, label = S.Variable("label"),
      num_hidden = nets.VOCABULARY, name = "pred"}
  end
  out = fc(S.Reshape{data = out, shape = {-1, units}}, "pred", nets.VOCABULARY)
  return S.SoftmaxOutput{data = out, label = S.Reshape{data = S.Variable("label"), shape = {-1}},
    name = "softmax"}
end

--- Returns a chain of n one-element operators that cannot be fused or merged, since every scalar
-- differs.
function nets.chain(n)
  local x = S.Variable("data")
  for i = 1, n do x = x + i / 1024 end
  return x
end

return nets
