-- Layers: values against their formulas, gradients against differences, hybridized and not, texts
-- and mistakes.

local ty = require "tycho"
local support = require "spec.support.gluon"

local nn, nd = ty.gluon.nn, ty.nd
local form = support.form
local level = ty.log.level

setup(function() ty.log.level = "error" end)
teardown(function() ty.log.level = level end)

local function named(f)
  return ty.name.NameManager():with(f)
end

describe("every layer of nn", function()
  --      layer                                        inputs                    shape of the output
  local CASES = {
    dense            = { function() return nn.Dense(3) end, { { 2, 4 } }, { 2, 3 } },
    dense_flat       = { function() return nn.Dense{ 3, flatten = false } end,
      { { 2, 2, 4 } }, { 2, 2, 3 } },
    dense_activation = { function() return nn.Dense{ 3, "tanh", use_bias = false } end,
      { { 2, 4 } }, { 2, 3 } },
    conv1d           = { function() return nn.Conv1D(4, 3) end, { { 2, 3, 6 } }, { 2, 4, 4 } },
    conv2d           = { function() return nn.Conv2D{ 4, 3, strides = 2, padding = { 1, 0 },
      groups = 2 } end, { { 1, 2, 5, 6 } }, { 1, 4, 3, 2 } },
    conv3d           = { function() return nn.Conv3D(2, 2) end,
      { { 1, 2, 3, 3, 2 } }, { 1, 2, 2, 2, 1 } },
    transposed1d     = { function() return nn.Conv1DTranspose(3, 3) end,
      { { 1, 2, 4 } }, { 1, 3, 6 } },
    transposed2d     = { function() return nn.Conv2DTranspose{ 3, 3, strides = 2, padding = 1,
      output_padding = 1 } end, { { 1, 2, 3, 2 } }, { 1, 3, 6, 4 } },
    transposed_groups = { function() return nn.Conv2DTranspose{ 4, 2, groups = 2 } end,
      { { 1, 2, 3, 3 } }, { 1, 4, 4, 4 } },
    max1d            = { function() return nn.MaxPool1D() end, { { 2, 2, 6 } }, { 2, 2, 3 } },
    max2d_ceil       = { function() return nn.MaxPool2D{ 2, ceil_mode = true } end,
      { { 1, 2, 5, 4 } }, { 1, 2, 3, 2 } },
    max3d            = { function() return nn.MaxPool3D() end,
      { { 1, 1, 4, 2, 2 } }, { 1, 1, 2, 1, 1 } },
    avg1d            = { function() return nn.AvgPool1D(3, 1, 1) end, { { 1, 2, 5 } },
      { 1, 2, 5 } },
    avg2d            = { function() return nn.AvgPool2D{ 3, 2, 1, count_include_pad = false } end,
      { { 1, 2, 5, 5 } }, { 1, 2, 3, 3 } },
    avg3d            = { function() return nn.AvgPool3D() end,
      { { 1, 1, 2, 2, 4 } }, { 1, 1, 1, 1, 2 } },
    global_max1d     = { function() return nn.GlobalMaxPool1D() end, { { 2, 3, 4 } },
      { 2, 3, 1 } },
    global_max2d     = { function() return nn.GlobalMaxPool2D() end, { { 2, 3, 4, 2 } },
      { 2, 3, 1, 1 } },
    global_max3d     = { function() return nn.GlobalMaxPool3D() end, { { 1, 2, 2, 2, 2 } },
      { 1, 2, 1, 1, 1 } },
    global_avg1d     = { function() return nn.GlobalAvgPool1D() end, { { 2, 3, 4 } },
      { 2, 3, 1 } },
    global_avg2d     = { function() return nn.GlobalAvgPool2D() end, { { 2, 3, 4, 2 } },
      { 2, 3, 1, 1 } },
    global_avg3d     = { function() return nn.GlobalAvgPool3D() end, { { 1, 2, 2, 2, 2 } },
      { 1, 2, 1, 1, 1 } },
    batch_norm       = { function() return nn.BatchNorm() end, { { 4, 3, 2 } }, { 4, 3, 2 } },
    batch_norm_last  = { function() return nn.BatchNorm{ axis = -1, scale = false } end,
      { { 4, 3 } }, { 4, 3 } },
    sync_batch_norm  = { function() return nn.SyncBatchNorm() end, { { 4, 3, 2 } }, { 4, 3, 2 } },
    layer_norm       = { function() return nn.LayerNorm() end, { { 3, 5 } }, { 3, 5 } },
    layer_norm_axis  = { function() return nn.LayerNorm{ axis = 1, center = false } end,
      { { 2, 4, 3 } }, { 2, 4, 3 } },
    instance_norm    = { function() return nn.InstanceNorm{ scale = true } end,
      { { 2, 3, 5 } }, { 2, 3, 5 } },
    instance_norm2   = { function() return nn.InstanceNorm{ axis = 2 } end,
      { { 2, 5, 3 } }, { 2, 5, 3 } },
    group_norm       = { function() return nn.GroupNorm(2) end, { { 2, 4, 3 } }, { 2, 4, 3 } },
    relu             = { function() return nn.Activation("relu") end, { { 2, 5 } }, { 2, 5 } },
    softsign         = { function() return nn.Activation("softsign") end, { { 2, 5 } }, { 2, 5 } },
    leaky            = { function() return nn.LeakyReLU(0.1) end, { { 2, 5 } }, { 2, 5 } },
    prelu            = { function() return nn.PReLU() end, { { 2, 5 } }, { 2, 5 } },
    prelu_channels   = { function() return nn.PReLU{ in_channels = 3 } end, { { 2, 3, 2 } },
      { 2, 3, 2 } },
    elu              = { function() return nn.ELU(0.5) end, { { 2, 5 } }, { 2, 5 } },
    selu             = { function() return nn.SELU() end, { { 2, 5 } }, { 2, 5 } },
    gelu             = { function() return nn.GELU() end, { { 2, 5 } }, { 2, 5 } },
    swish            = { function() return nn.Swish(1.5) end, { { 2, 5 } }, { 2, 5 } },
    flatten          = { function() return nn.Flatten() end, { { 2, 3, 2 } }, { 2, 6 } },
    identity         = { function() return nn.Identity() end, { { 2, 3 } }, { 2, 3 } },
    reflection       = { function() return nn.ReflectionPad2D(1) end, { { 1, 2, 3, 3 } },
      { 1, 2, 5, 5 } },
    reflection_sides = { function() return nn.ReflectionPad2D{ 0, 0, 0, 0, 1, 0, 0, 2 } end,
      { { 1, 1, 3, 3 } }, { 1, 1, 4, 5 } },
    shuffle1d        = { function() return nn.PixelShuffle1D(2) end, { { 1, 4, 3 } },
      { 1, 2, 6 } },
    shuffle2d        = { function() return nn.PixelShuffle2D{ 2, 3 } end, { { 1, 12, 2, 2 } },
      { 1, 2, 4, 6 } },
    shuffle3d        = { function() return nn.PixelShuffle3D(2) end, { { 1, 8, 1, 2, 1 } },
      { 1, 1, 2, 4, 2 } },
    hybrid_lambda    = { function() return nn.HybridLambda("tanh") end, { { 2, 3 } }, { 2, 3 } },
    sequential       = { function()
      return nn.HybridSequential{ nn.Dense(4), nn.Activation("tanh"), nn.Dense(2) }
    end, { { 2, 3 } }, { 2, 2 } },
    concurrent       = { function()
      return nn.HybridConcurrent{ axis = 1, nn.Dense(2), nn.Identity() }
    end, { { 2, 3 } }, { 2, 5 } },
  }

  for name, case in pairs(CASES) do
    it("has the same values traced, and right gradients: " .. name, function()
      local xs = {}
      for i, shape in ipairs(case[2]) do xs[i] = form(shape, "float64", i) end
      local y = support.verify(assert, case[1](), xs)
      assert.shape(case[3], y)
    end)
  end

  it("has a case here", function()
    local skipped = { Block = true, HybridBlock = true, SymbolBlock = true }
    local seen = {}
    for _, case in pairs(CASES) do
      seen[case[1]().class_name] = true
    end
    for _, name in ipairs{ "Dropout", "Embedding", "Lambda", "Sequential", "Concurrent",
        "BatchNormReLU", "Conv3DTranspose" } do
      seen[name] = true                                  -- tests of their own below
    end
    for name in pairs(nn) do
      assert.is_true(skipped[name] or seen[name] or false, name)
    end
  end)
end)


describe("values of", function()
  it("Dense are x weight^T + bias", function()
    local net = nn.Dense{ 2, in_units = 3, weight_initializer = "ones", bias_initializer = "ones" }
    net:initialize()
    assert.near({ { 7, 7 } }, net(nd.array{ { 1, 2, 3 } }))
  end)

  it("Dropout are the input outside training, 0 or twice it inside", function()
    local net = nn.Dropout(0.5)
    local x = nd.ones{ 30, 40 }
    assert.near(x, net(x))
    local y = ty.autograd.record(function() return net(x) end)
    local ones, twos = 0, 0
    for _, row in ipairs(y:totable()) do
      for _, v in ipairs(row) do
        assert.is_true(v == 0 or v == 2)
        ones, twos = ones + (v == 0 and 1 or 0), twos + (v == 2 and 1 or 0)
      end
    end
    assert.is_true(ones > 400 and twos > 400)
    local rows = nn.Dropout{ 0.5, axes = { 1 } }
    local z = ty.autograd.record(function() return rows(x) end):totable()
    for _, row in ipairs(z) do
      for _, v in ipairs(row) do assert.equal(row[1], v) end
    end
    assert.near(x, ty.autograd.record(function() return nn.Dropout(0)(x) end))
  end)

  it("Embedding are rows, whose gradients add up", function()
    local net = nn.Embedding(4, 2)
    net:initialize()
    net.weight:set_data{ { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } }
    local x = nd.array{ 2, 0, 2 }
    for _ = 1, 2 do
      local y = ty.autograd.record(function() return net(x) end)
      assert.near({ { 5, 6 }, { 1, 2 }, { 5, 6 } }, y)
      y:backward()
      assert.near({ { 1, 1 }, { 0, 0 }, { 2, 2 }, { 0, 0 } }, net.weight:grad())
      net:hybridize()
    end
    net:cast("float64")
    assert.equal("float64", net(x).dtype)
  end)

  it("BatchNorm move its averages with backward of training mode only", function()
    local net = nn.BatchNorm{ momentum = 0.5, in_channels = 1 }
    net:initialize()
    local x = nd.array{ { 1 }, { 3 } }
    for i, mean in ipairs{ 1, 1.5 } do
      net(x)
      ty.autograd.record(false, function() return net(x) end):backward{ train_mode = false }
      assert.near({ i == 1 and 0 or 1 }, net.running_mean:data())
      ty.autograd.record(function() return net(x) end):backward()
      assert.near({ mean }, net.running_mean:data())
      assert.near({ 1 }, net.running_var:data(), 1e-4)
      net:hybridize()
    end
  end)

  it("a BatchNorm without scale keep gamma at 1", function()
    local net = nn.BatchNorm{ scale = false, in_channels = 2 }
    net:initialize()
    net.gamma:set_data{ 3, 4 }
    assert.near({ 1, 1 }, net.gamma:data())
    assert.equal("null", net.gamma.grad_req)
  end)

  it("a BatchNorm that is cast to a half type keep parameters of float32", function()
    for _, dtype in ipairs{ "float16", "bfloat16" } do
      local net = nn.BatchNorm{ in_channels = 2 }
      net:initialize()
      net:cast(dtype)
      assert.equal("float32", net.gamma.dtype)
      assert.equal(dtype, net(nd.ones({ 3, 2 }, { dtype = dtype })).dtype)
    end
  end)

  it("BatchNormReLU are those of BatchNorm above 0", function()
    local a, b = nn.BatchNorm{ in_channels = 3 }, nn.BatchNormReLU{ in_channels = 3 }
    a:initialize()
    b:initialize()
    local x = form({ 4, 3 }, "float32")
    assert.near(nd.relu(a(x)), b(x), 1e-6)
  end)

  it("PixelShuffle2D are channels at their positions", function()
    local x = nd.arange{ 0, 4 }:reshape{ 1, 4, 1, 1 }
    assert.near({ { { { 0, 1 }, { 2, 3 } } } }, nn.PixelShuffle2D(2)(x))
  end)

  it("a convolution with channels last are refused on a CPU, its weight has them last", function()
    local net = nn.Conv2D{ 3, { 2, 3 }, layout = "NHWC", in_channels = 2 }
    net:initialize()
    assert.same({ 3, 2, 3, 2 }, net.weight.shape)
    if ty.current_context().device_type == "cpu" then
      assert.raises("unsupported", net, nd.ones{ 1, 4, 5, 2 })
    end
  end)

  it("a layer of other shapes than it was traced with", function()
    local net = nn.Conv2D{ 2, 3, padding = 1 }
    net:initialize()
    net:hybridize()
    for _, shape in ipairs{ { 1, 2, 4, 4 }, { 3, 2, 5, 2 } } do
      assert.shape({ shape[1], 2, shape[3], shape[4] }, net(nd.ones(shape)))
    end
  end)

  it("a Lambda are those of the function", function()
    assert.near({ 3, 5 }, nn.Lambda(function(x) return x * 2 + 1 end)(nd.array{ 1, 2 }))
    assert.near({ 0, 2 }, nn.Lambda("relu")(nd.array{ -1, 2 }))
    assert.near({ 5 }, nn.HybridLambda(function(a, b) return a + b end)(nd.array{ 2 },
      nd.array{ 3 }))
  end)

  it("a HybridLambda's function with F in front are an error, with inputs only are not", function()
    local wrong = nn.HybridLambda(function(F, x) return F.relu(x) end)
    local e = assert.raises("type", wrong, nd.ones{ 2 })
    assert.matches("write function(x), and ty.F in it", e.message, 1, true)
    assert.near({ 6 }, nn.HybridLambda(function(F, x) return F * x end)(nd.array{ 2 },
      nd.array{ 3 }))
  end)
end)


describe("names", function()
  it("of automatic prefixes are the hints of classes", function()
    named(function()
      assert.equal("dense0_", nn.Dense(2).prefix)
      assert.equal("conv0_", nn.Conv2D(2, 3).prefix)
      assert.equal("conv1_", nn.Conv1DTranspose(2, 3).prefix)
      assert.equal("pool0_", nn.MaxPool1D().prefix)
      assert.equal("pool1_", nn.GlobalAvgPool2D().prefix)
      assert.equal("tanh0_", nn.Activation("tanh").prefix)
      assert.equal("tanh1_", nn.Activation{ activation = "tanh" }.prefix)
      assert.equal("batchnorm0_", nn.BatchNorm().prefix)
      assert.equal("pixelshuffle1d0_", nn.PixelShuffle1D(2).prefix)
      assert.equal("mine_", nn.Dense{ 2, prefix = "mine_" }.prefix)
    end)
  end)

  it("of nodes are the prefix and fwd", function()
    local net = nn.HybridSequential{ prefix = "n_" }
    net:name_scope(function()
      net:add(nn.Conv2D{ 2, 3, activation = "relu" }, nn.BatchNorm(), nn.Dense(1))
    end)
    local y = net(ty.sym.Variable("data"))
    local names = {}
    for _, name in ipairs(y:get_internals():list_outputs()) do
      names[#names + 1] = name:match("^(.*fwd)_output$")
    end
    assert.same({ "n_conv0_fwd", "n_conv0_relu_fwd", "n_batchnorm0_fwd", "n_dense0_fwd" }, names)
  end)

  it("of classes that extend layers", function()
    named(function()
      local Wide = nn.Dense:extend("Wide")
      function Wide:init(n)
        Wide.super.init(self, n * 2, { use_bias = false })
        self.factor = n
      end
      local net = Wide(3)
      net:initialize()
      assert.equal("wide0_weight", net.weight.name)
      assert.shape({ 1, 6 }, net(nd.ones{ 1, 2 }))
      assert.equal("Wide(2 -> 6, linear)", tostring(net))
      assert.is_nil(net.bias)
    end)
  end)
end)


describe("texts", function()
  it("are the reference's", function()
    assert.equal("Dense(3 -> 4, Activation(relu))",
      tostring(nn.Dense{ 4, activation = "relu", in_units = 3 }))
    assert.equal("Conv1D(None -> 2, kernel_size=(3,), stride=(1,), bias=False)",
      tostring(nn.Conv1D{ 2, 3, use_bias = false }))
    assert.equal("Conv2D(2 -> 4, kernel_size=(3, 3), stride=(1, 1), Activation(tanh))",
      tostring(nn.Conv2D{ 4, 3, in_channels = 2, activation = "tanh" }))
    assert.equal("AvgPool1D(size=(2,), stride=(2,), padding=(0,), ceil_mode=True, \z
      global_pool=False, pool_type=avg, layout=NCW)", tostring(nn.AvgPool1D{ ceil_mode = true }))
    assert.equal("GlobalMaxPool2D(size=(1, 1), stride=(1, 1), padding=(0, 0), ceil_mode=True, \z
      global_pool=True, pool_type=max, layout=NCHW)", tostring(nn.GlobalMaxPool2D()))
    assert.equal("InstanceNorm(eps=1e-05, axis=1, center=True, scale=False, in_channels=0)",
      tostring(nn.InstanceNorm()))
    assert.equal("GroupNorm(eps=1e-05, num_groups=2, center=True, scale=True)",
      tostring(nn.GroupNorm(2)))
    assert.equal("Dropout(p = 0.25, axes=(0,))", tostring(nn.Dropout{ 0.25, axes = { 0 } }))
    assert.equal("PixelShuffle2D((2, 3))", tostring(nn.PixelShuffle2D{ 2, 3 }))
    assert.equal("PixelShuffle2D((2, 3))", tostring(nn.PixelShuffle2D{ { 2, 3 }, prefix = "p_" }))
    assert.equal("PixelShuffle1D(2)", tostring(nn.PixelShuffle1D(2)))
    assert.equal("HybridLambda(relu)", tostring(nn.HybridLambda("relu")))
    assert.equal("Sequential(\n  (0): Flatten\n)", tostring(nn.Sequential{ nn.Flatten() }))
    assert.equal("Sequential(\n  (0): HybridSequential(\n  \n  )\n)",
      tostring(nn.Sequential{ nn.HybridSequential() }))
    assert.equal("SequentialRNNCell(\n\n)", tostring(ty.gluon.rnn.SequentialRNNCell()))
  end)
end)


describe("mistakes", function()
  it("are refused when a layer is made", function()
    local CASES = {
      { "value", nn.Conv1D, { 3, 3, layout = "NWC" } }, { "value", nn.Conv2D, { 3, { 1, 2, 3 } } },
      { "value", nn.Conv2D, { 3, 3, groups = 2 } },
      { "value", nn.Conv2D, { 4, 3, groups = 2, in_channels = 3 } },
      { "value", nn.Conv2D, { 3, 3, strides = { 1, 1, 1 } } },
      { "value", nn.Conv2DTranspose, { 3, 3, output_padding = 1 } },
      { "value", nn.Conv2DTranspose, { 3, 3, strides = { 2, 1 }, output_padding = { 0, 1 } } },
      { "value", nn.Conv2D, { 3, { 3 } } }, { "value", nn.Conv3D, { 3, 3, padding = { 1 } } },
      { "value", nn.MaxPool2D, { { 2 } } }, { "value", nn.AvgPool2D, { 2, { 1 } } },
      { "value", ty.gluon.contrib.rnn.Conv2DGRUCell, { { 1, 4, 4 }, 2, { 3 }, 3 } },
      { "value", ty.gluon.contrib.cnn.DeformableConvolution, { 2, { 3 } } },
      { "type", nn.Conv2D, { 3, "three" } }, { "type", nn.Conv2D, { 3, 1.5 } },
      { "value", nn.MaxPool2D, { pool_size = { 1, 2, 3 } } },
      { "value", nn.AvgPool1D, { layout = "NCHW" } }, { "value", nn.LeakyReLU, { -1 } },
      { "value", nn.Activation, { "sine" } }, { "value", nn.Dense, { 3, activation = "sine" } },
      { "value", nn.Dropout, { 1.5 } }, { "value", nn.ReflectionPad2D, { 1, 2, 3 } },
      { "value", nn.ReflectionPad2D, { { 1, 2, 3 } } },
      { "value", nn.PixelShuffle2D, { 1, 2, 3 } }, { "value", nn.PixelShuffle1D, { 0 } },
      { "name", nn.Dense, { 3, unts = 4 } }, { "type", nn.Dense, { "three" } },
      { "value", nn.Dense, {} }, { "type", nn.Dense, { 3, prefix = 4 } },
      { "unsupported", nn.Embedding, { 5, 3, sparse_grad = true } },
      { "name", nn.HybridLambda, { "no_such_operator" } }, { "type", nn.Lambda, { 3 } },
      { "unsupported", ty.gluon.contrib.nn.SparseEmbedding, { 3, 2 } },
    }
    for _, case in ipairs(CASES) do
      assert.raises(case[1], case[2], case[3])
    end
    assert.equal("Dense", assert.raises("name", function() return nn.Dens(3) end).candidates[1])
  end)

  it("of parameters where arrays belong say how to get these", function()
    local layer, x, F = nn.Dense(3, { in_units = 3 }), nd.ones{ 3, 3 }, ty.F
    layer:initialize()
    for _, first in ipairs{ x, ty.sym.Variable "x" } do
      for _, call in ipairs{
        function(w) return F.dot(first, w) end, function(w) return first * w end,
        function(w) return w + first end, function(w) return F.concat({ first, w }) end,
        function(w) return F.FullyConnected{ data = first, weight = w, num_hidden = 3 } end,
        function(w) return F.FullyConnected(first, w, { num_hidden = 3 }) end,
        function(w) return F.relu(w) end, function(w) return layer(w) end,
      } do
        local e = assert.raises("type", call, layer.weight)
        assert.matches("the array of a Parameter is p:data%(x%)", e.message)
      end
    end
  end)

  it("of arrays where a block is made say that it is called on them", function()
    local x = nd.ones{ 2, 3 }
    local transforms = ty.gluon.data.vision.transforms
    for _, class in ipairs{ nn.Dense, nn.Dropout, nn.Flatten, nn.Activation, nn.BatchNorm,
        ty.gluon.rnn.LSTM, ty.gluon.rnn.LSTMCell, ty.gluon.loss.SoftmaxCrossEntropyLoss,
        transforms.ToTensor, transforms.Resize } do
      for _, given in ipairs{ x, ty.sym.Variable "x" } do
        local e = assert.raises("type", class, given, given)
        assert.matches("which is called on arrays then", e.message)
      end
    end
  end)

  it("are refused when a layer is called", function()
    local net = nn.Dense{ 3, in_units = 4 }
    net:initialize()
    assert.raises("shape", net, nd.ones{ 2, 5 })
    assert.raises("type", net, 3)
    local conv = nn.Conv2D(2, 3)
    conv:initialize()
    assert.raises("shape", conv, nd.ones{ 2, 5 })
  end)

  it("of a transposed convolution of volumes are an error where it cannot run", function()
    local net = nn.Conv3DTranspose(2, 2)
    net:initialize()
    local ok, y = pcall(net, nd.ones{ 1, 3, 2, 2, 2 })
    assert.is_true(ok and y.shape[5] == 3 or ty.is_error(y))
    assert.same({ 3, 2, 2, 2, 2 }, net.weight.shape)
  end)
end)


describe("containers", function()
  it("add, count, index and slice their children", function()
    for _, kind in ipairs{ "Sequential", "HybridSequential" } do
      local a, b, c = nn.Dense(2), nn.Activation("relu"), nn.Dense(3)
      local net = nn[kind]{ a, b, prefix = "s_" }
      assert.equal(net, net:add(c))
      assert.equal(3, net:len())
      assert.equal(3, #net)
      assert.equal(c, net[3])
      assert.is_nil(net[4])
      local part = net[ty.slice(1, 3)]
      assert.equal(2, #part)
      assert.equal(b, part[1])
      for text, range in pairs{ ["1:3"] = ty.slice(1, 3), [":-1"] = ty.slice(nil, -1),
          ["-2:"] = ty.slice(-2, nil), [" : "] = ty.slice() } do
        assert.equal(#net[range], #net[text])
        assert.equal(net[range][1], net[text][1])
      end
      assert.equal(net[#net], net[-1])
      assert.equal(net[1], net[-#net])
      assert.is_nil(net[-#net - 1])
      assert.is_nil(net[#net + 1])
      assert.is_nil(net["1:2:3"])
      assert.equal(1, #net[ty.slice(-1, nil)])
      assert.equal(kind, part.class_name)
      local n = 0
      for i, layer in ipairs(net) do
        n = n + i
        assert.equal(net[i], layer)
      end
      assert.equal(6, n)
    end
  end)

  it("give what a child gives to the next, several values too", function()
    local net = nn.Sequential{ nn.Lambda(function(x) return x, x * 2 end),
      nn.Lambda(function(a, b) return a + b end) }
    assert.near({ 3 }, net(nd.array{ 1 }))
    assert.near({ 1 }, nn.Sequential()(nd.array{ 1 }))
  end)

  it("hold blocks that are assigned to fields as children too", function()
    local net = nn.HybridSequential{ nn.Dense{ 2, in_units = 2 } }
    net.head = nn.Dense{ 3, in_units = 2 }
    assert.equal(2, #net)
    net:initialize()
    assert.shape({ 1, 3 }, net(nd.ones{ 1, 2 }))
    net.head = nn.Dense{ 4, in_units = 2 }
    net.head:initialize()
    assert.shape({ 1, 4 }, net(nd.ones{ 1, 2 }))
  end)

  it("trace anew when a child comes", function()
    local net = nn.HybridSequential{ nn.Dense{ 2, in_units = 2, weight_initializer = "ones" } }
    net:initialize()
    net:hybridize()
    local x = nd.array{ { -1, -1 } }
    assert.near({ { -2, -2 } }, net(x))
    net:add(nn.Activation("relu"))
    assert.near({ { 0, 0 } }, net(x))
  end)

  it("join branches", function()
    local net = nn.Concurrent{ axis = 1 }
    net:add(nn.Lambda("relu"), nn.Identity())
    assert.near({ { 0, 2, -1, 2 } }, net(nd.array{ { -1, 2 } }))
    assert.equal(-1, nn.HybridConcurrent().axis)
    assert.equal(nn.HybridConcurrent, ty.gluon.contrib.nn.HybridConcurrent)
  end)

  it("refuse what cannot be a child", function()
    local net = nn.HybridSequential()
    assert.raises("type", net.add, net, nn.Lambda("relu"))
    assert.raises("type", net.add, net, 3)
    assert.raises("name", nn.Sequential, { axs = 2 })
    assert.raises("type", nn.Concurrent, { axis = "x" })
  end)

  it("warn where a Sequential of HybridBlocks is hybridized", function()
    local texts, sink = {}, ty.log.sink
    ty.log.level, ty.log.sink = "warning", function(_, text) texts[#texts + 1] = text end
    nn.Sequential{ nn.Dense(2) }:hybridize()
    nn.Sequential{ nn.Lambda("relu") }:hybridize()
    ty.log.level, ty.log.sink = "error", sink
    assert.equal(1, #texts)
    assert.truthy(texts[1]:find("HybridSequential", 1, true))
  end)
end)


describe("arrays between layers", function()
  local native = require "tycho.core.ffi"
  local function live() return tonumber(native.C.ty_live("tensor")) end

  local function network()
    local net = nn.HybridSequential{ nn.Dense{ 4, in_units = 3, activation = "relu" },
      nn.BatchNorm{ in_channels = 4 }, nn.Dense{ 2, in_units = 4 } }
    net:initialize()
    return net
  end

  -- Returns the number of tensors that a recorded call leaves while nothing is collected.
  local function left_by(net, x)
    local call = function() return net(x) end
    ty.autograd.record(call):backward()
    collectgarbage()
    collectgarbage()
    collectgarbage "stop"
    ty.waitall()                                         -- what is queued holds arrays, too
    local before = live()
    local y = ty.autograd.record(call)
    ty.waitall()
    local after = live()
    collectgarbage "restart"
    return after - before, y
  end

  it("are freed where they are unused elsewhere", function()
    local x, net = ty.nd.ones{ 2, 3 }, network()
    local few = left_by(net, x)
    local seen = {}
    for _, child in ipairs(net) do
      child:register_forward_hook(function(_, _, outputs) seen[#seen + 1] = outputs[1] end)
    end
    local many = left_by(net, x)
    assert.is_true(many - few >= 2, ("%d and %d"):format(few, many))
    for _, y in ipairs(seen) do
      assert.equal(2, y.shape[1])
      assert.is_true(y:abs():sum():asscalar() >= 0)
    end
  end)

  it("stay where a block of the script keeps them", function()
    local Keeper = ty.gluon.HybridBlock:extend "Keeper"
    function Keeper:forward(x)
      rawset(self, "kept", x)
      return x * 2
    end
    local Own = nn.Dense:extend "Own"
    function Own:forward(x)
      rawset(self, "kept", x)
      return Own.super.forward(self, x)
    end
    local keeper, own = Keeper(), Own{ 2, in_units = 2 }
    local net = nn.Sequential{ nn.Dense{ 2, in_units = 3 }, keeper, nn.Flatten(), own }
    net:initialize()
    ty.autograd.record(function() return net(ty.nd.ones{ 2, 3 }) end):backward()
    assert.equal(4, keeper.kept:reshape{ -1 }.shape[1])
    assert.near((keeper.kept * 2):sum():asscalar(), own.kept:sum():asscalar(), 1e-6)
  end)
end)

describe("an activation that is a layer of its own", function()
  for word, name in pairs{ gelu = "GELU", silu = "Swish", swish = "Swish", leaky = "LeakyReLU",
      leakyrelu = "LeakyReLU", LeakyReLU = "LeakyReLU", prelu = "PReLU", elu = "ELU",
      selu = "SELU" } do
    it("is named: " .. word, function()
      assert.is_truthy(ty.gluon.nn[name])
      for _, make in ipairs{ function() return ty.gluon.nn.Activation(word) end,
          function() return ty.gluon.nn.Dense{ 2, activation = word } end,
          function() return ty.gluon.nn.Conv2D{ 2, 3, activation = word } end } do
        local ok, e = pcall(make)
        assert.is_false(ok)
        assert.truthy(e.message:find("nn." .. name, 1, true), e.message)
      end
    end)
  end
end)
