--- Small networks that train on a GPU as on the CPU: their symbols, and their losses over some
-- steps from given weights.

local ty = require "tycho"
local sym = ty.sym

local networks = {}

--- Returns a symbol, the shape of `data` and that of `softmax_label`, as the functions below do.
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

-- Returns three stages of units with two convolutions each, over 3 x 16 x 16.
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
      local name = ("stage%d_unit%d"):format(stage, unit)
      local stride = stage > 1 and unit == 1 and 2 or 1
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

--- Returns the losses of some steps of gradient descent, and the executor.
-- @string name "lenet", "resnet" or "lstm"
-- @int steps
function networks.losses(ctx, name, steps)
  local net, data, labels = networks[name]()
  local exe = net:simple_bind{ctx = ctx, data = data, softmax_label = labels}
  for argument, x in pairs(exe.arg_dict) do
    local value = argument == "softmax_label" and ty.nd.arange{0, labels[1], ctx = ty.cpu(0)} % 5
      or pattern(x.shape, 101)
    value:copyto(x)
  end
  local all = {}
  for step = 1, steps do
    local p = exe:forward{is_train = true}[1]:as_in_context(ty.cpu(0)):totable()
    local loss = 0
    for i, row in ipairs(p) do
      loss = loss - math.log(row[(i - 1) % 5 + 1])
    end
    all[step] = loss / #p
    exe:backward()
    for argument, g in pairs(exe.grad_dict) do
      if argument ~= "data" and argument ~= "softmax_label" then
        local moved = exe.arg_dict[argument] - g * 0.05
        moved:copyto(exe.arg_dict[argument])
      end
    end
  end
  return all, exe
end

return networks
