-- Layers of Torch7: ty.torch7.import_model. Values follow from what each layer is said to do.

local device = require "spec.support.device"
local folder = require "spec.support.folder"
local t7 = require "spec.support.torch7"
local ty = require "tycho"

local tensor, storage = t7.tensor, t7.storage

local function nn(class, fields)
  return t7.object(class:find(".", 1, true) and class or "nn." .. class, fields)
end

local function sequential(...)
  return nn("Sequential", { modules = { ... } })
end

local function floats(shape, values) return tensor("Float", shape, values) end
local function longs(...) return storage("Long", { ... }) end

-- Returns the object as a file gives it.
local function loaded(module)
  local object
  folder.with(function(dir)
    folder.write(dir .. "/net.t7", t7.bytes(module))
    object = ty.torch7.load(dir .. "/net.t7")
  end)
  return object
end

local function list_shapes(inputs)
  local shapes = {}
  for i, x in ipairs(inputs) do
    shapes[i == 1 and "data" or "data" .. i] = x.shape
  end
  return shapes
end

-- Binds a module; `inputs`: arrays.
local function bound(module, inputs, more)
  local options = { module, shapes = list_shapes(inputs) }
  for key, value in pairs(more or {}) do
    options[key] = value
  end
  local exe, args
  folder.with(function(dir)
    folder.write(dir .. "/net.t7", t7.bytes(module))
    options[1] = dir .. "/net.t7"
    local net, params, states = ty.torch7.import_model(options)
    args = params
    for i, x in ipairs(inputs) do
      args[i == 1 and "data" or "data" .. i] = x
    end
    local own = {}
    for _, name in ipairs(net:list_arguments()) do
      own[name] = args[name]
    end
    own, states = device.placed(own, ty.cpu()), device.placed(states, ty.cpu())
    local grads = {}
    for name, x in pairs(own) do
      grads[name] = ty.nd.zeros(x.shape, { dtype = x.dtype })
    end
    exe = net:bind{ ctx = ty.cpu(), args = own, args_grad = grads, aux_states = states }
    exe:forward()
  end)
  return exe
end

local function array(v) return ty.nd.array(v) end

local function outputs(module, ...)
  local inputs = { ... }
  for i, v in ipairs(inputs) do
    inputs[i] = array(v)
  end
  local list = {}
  for i, y in ipairs(bound(module, inputs).outputs) do
    list[i] = y:totable()
  end
  return list
end

local function gives(want, module, ...)
  local got = outputs(module, ...)
  assert.equal(1, #got)
  assert.near(want, got[1], 1e-5)
end

local LINEAR = { weight = floats({ 2, 3 }, { 1, 2, 3, 4, 5, 6 }), bias = floats({ 2 }, { 10, 20 }) }

describe("a layer of Torch7", function()
  -- class, fields, input, output
  local rows = {
    { "Identity", {}, { 1, 2 }, { 1, 2 } },
    { "Linear", LINEAR, { { 1, 0, 0 }, { 0, 1, 1 } }, { { 11, 24 }, { 15, 31 } } },
    { "Linear", LINEAR, { 1, 0, 0 }, { 11, 24 } },
    { "LinearNoBias", { weight = floats({ 1, 2 }, { 2, 3 }) }, { { 1, 1 } }, { { 5 } } },
    { "Mul", { weight = floats({ 1 }, { 3 }) }, { { 1, 2 } }, { { 3, 6 } } },
    { "Add", { bias = floats({ 2 }, { 1, 2 }) }, { { 1, 1 }, { 2, 2 } }, { { 2, 3 }, { 3, 4 } } },
    { "Add", { bias = floats({ 1 }, { 5 }) }, { { 1, 2 } }, { { 6, 7 } } },
    { "CMul", { size = longs(1, 2), weight = floats({ 1, 2 }, { 2, 3 }) }, { { 1, 1 }, { 2, 2 } },
      { { 2, 3 }, { 4, 6 } } },
    { "CAdd", { size = longs(2), bias = floats({ 2 }, { 2, 3 }) }, { { 1, 1 } }, { { 3, 4 } } },
    { "ReLU", { threshold = 0, val = 0 }, { -1, 2 }, { 0, 2 } },
    { "Threshold", { threshold = 1, val = -5 }, { 1, 2 }, { -5, 2 } },
    { "ReLU6", {}, { -1, 3, 7 }, { 0, 3, 6 } },
    { "LeakyReLU", { negval = 0.1 }, { -1, 2 }, { -0.1, 2 } },
    { "ELU", { alpha = 2 }, { -1, 2 }, { 2 * (math.exp(-1) - 1), 2 } },
    { "RReLU", { lower = 0.1, upper = 0.3 }, { -1, 2 }, { -0.2, 2 } },
    { "HardTanh", { min_val = -2, max_val = 1 }, { -3, 0.5, 3 }, { -2, 0.5, 1 } },
    { "HardShrink", { lambda = 1 }, { -2, 0.5, 2 }, { -2, 0, 2 } },
    { "SoftShrink", { lambda = 1 }, { -2, 0.5, 2 }, { -1, 0, 1 } },
    { "SoftPlus", { beta = 2, threshold = 1 }, { 0, 3 }, { math.log(2) / 2, 3 } },
    { "SoftSign", {}, { -1, 3 }, { -0.5, 0.75 } },
    { "LogSigmoid", {}, { 0 }, { -math.log(2) } },
    { "TanhShrink", {}, { 1 }, { 1 - math.tanh(1) } },
    { "Power", { pow = 3 }, { 2 }, { 8 } },
    { "Sqrt", {}, { 0, 4 }, { 0, 2 } },
    { "AddConstant", { constant_scalar = 2 }, { 1 }, { 3 } },
    { "MulConstant", { constant_scalar = 2 }, { 3 }, { 6 } },
    { "SAdd", { addend = -1, negate = true }, { 3 }, { -2 } },
    { "GatedLinearUnit", { dim = 2 }, { { 3, 0 } }, { { 1.5 } } },
    { "SoftMax", {}, { { 0, 0 } }, { { 0.5, 0.5 } } },
    { "LogSoftMax", {}, { 0, 0 }, { -math.log(2), -math.log(2) } },
    { "SoftMax", {}, { { { 0 } }, { { 0 } } }, { { { 0.5 } }, { { 0.5 } } } },
    { "Dropout", { p = 0.5, v2 = true }, { 2 }, { 2 } },
    { "Dropout", { p = 0.5 }, { 2 }, { 1 } },
    { "SpatialDropout", { p = 0.25 }, { { { 4 } } }, { { { 3 } } } },
    { "PReLU", { nOutputPlane = 2, weight = floats({ 2 }, { 0.5, 0.1 }) }, { { -2, -2 } },
      { { -1, -0.2 } } },
    { "Normalize", { p = 2 }, { { 3, 4 } }, { { 0.6, 0.8 } } },
    { "Normalize", { p = math.huge }, { { 3, -4 } }, { { 0.75, -1 } } },
    { "Cosine", { weight = floats({ 1, 2 }, { 1, 0 }) }, { { 3, 4 } }, { { 0.6 } } },
    { "Euclidean", { weight = floats({ 2, 1 }, { 0, 0 }) }, { { 3, 4 } }, { { 5 } } },
    { "View", { size = longs(2, 2) }, { { 1, 2, 3, 4 } }, { { 1, 2 }, { 3, 4 } } },
    { "View", { size = longs(2), numInputDims = 2 }, { { { 1, 2 } }, { { 3, 4 } } },
      { { 1, 2 }, { 3, 4 } } },
    { "View", { size = longs(-1) }, { { 1, 2 }, { 3, 4 } }, { 1, 2, 3, 4 } },
    { "Reshape", { size = longs(2, 1) }, { { 1, 2 }, { 3, 4 } },
      { { { 1 }, { 2 } }, { { 3 }, { 4 } } } },
    { "Reshape", { size = longs(4) }, { { 1, 2 }, { 3, 4 } }, { 1, 2, 3, 4 } },
    { "Squeeze", {}, { { { 1, 2 } } }, { 1, 2 } },
    { "Squeeze", { dim = 1, numInputDims = 2 }, { { { 1, 2 } } }, { { 1, 2 } } },
    { "Unsqueeze", { pos = 1 }, { 1, 2 }, { { 1, 2 } } },
    { "Transpose", { permutations = { { 1, 2 } } }, { { 1, 2 }, { 3, 4 } },
      { { 1, 3 }, { 2, 4 } } },
    { "Replicate", { nfeatures = 2, dim = 1 }, { 1, 2 }, { { 1, 2 }, { 1, 2 } } },
    { "Narrow", { dimension = 2, index = 2, length = -1 }, { { 1, 2, 3 } }, { { 2, 3 } } },
    { "Select", { dimension = -1, index = -1 }, { { 1, 2 }, { 3, 4 } }, { 2, 4 } },
    { "Padding", { dim = 1, pad = -1, value = 9, index = 1 }, { 1, 2 }, { 9, 1, 2 } },
    { "Padding", { dim = 1, pad = 1, value = 9, index = 2 }, { 1, 2 }, { 1, 9, 2 } },
    { "Sum", { dimension = 2 }, { { 1, 2 }, { 3, 4 } }, { 3, 7 } },
    { "Sum", { dimension = 1, nInputDims = 1, squeeze = false }, { { 1, 2 } }, { { 3 } } },
    { "Mean", { dimension = 1 }, { { 1, 2 }, { 3, 4 } }, { 2, 3 } },
    { "Max", { dimension = 2 }, { { 1, 5 }, { 3, 4 } }, { 5, 4 } },
    { "Min", { dimension = 1 }, { 3, 1 }, { 1 } },
    { "Collapse", { nInputDim = 2 }, { { { 1 }, { 2 } } }, { { 1, 2 } } },
    { "SeqReverseSequence", { dim = 1 }, { { 1 }, { 2 } }, { { 2 }, { 1 } } },
    { "PixelShuffle", { upscaleFactor = 2 }, { { { 1 } }, { { 2 } }, { { 3 } }, { { 4 } } },
      { { { 1, 2 }, { 3, 4 } } } },
    { "SpatialZeroPadding", { pad_l = 1, pad_r = -1, pad_t = 0, pad_b = 0 }, { { { 1, 2 } } },
      { { { 0, 1 } } } },
    { "SpatialReflectionPadding", { pad_l = 1, pad_r = 0, pad_t = 0, pad_b = 0 },
      { { { 1, 2 } } }, { { { 2, 1, 2 } } } },
    { "SpatialReplicationPadding", { pad_l = 1, pad_r = 0, pad_t = 0, pad_b = 0 },
      { { { 1, 2 } } }, { { { 1, 1, 2 } } } },
    { "SpatialConvolution", { nInputPlane = 1, nOutputPlane = 1, kW = 2, kH = 1,
      weight = floats({ 1, 2 }, { 1, 10 }), bias = floats({ 1 }, { 100 }) }, { { { 1, 2, 3 } } },
      { { { 121, 132 } } } },
    { "SpatialConvolution", { nInputPlane = 1, nOutputPlane = 1, kW = 2, kH = 1, padding = 0,
      padW = 1, padH = 0, dW = 2, dH = 1, weight = floats({ 1, 1, 1, 2 }, { 1, 10 }) },
      { { { { 1, 2 } } } }, { { { { 10, 2 } } } } },
    { "cudnn.SpatialConvolution", { nInputPlane = 2, nOutputPlane = 2, kW = 1, kH = 1, groups = 2,
      weight = floats({ 2, 1, 1, 1 }, { 2, 3 }) }, { { { 1 } }, { { 1 } } },
      { { { 2 } }, { { 3 } } } },
    { "SpatialDilatedConvolution", { nInputPlane = 1, nOutputPlane = 1, kW = 2, kH = 1,
      dilationW = 2, dilationH = 1, weight = floats({ 1, 1, 1, 2 }, { 1, 10 }) },
      { { { 1, 2, 3 } } }, { { { 31 } } } },
    { "SpatialFullConvolution", { nInputPlane = 1, nOutputPlane = 1, kW = 2, kH = 1, dW = 2, dH = 1,
      adjW = 1, weight = floats({ 1, 1, 1, 2 }, { 1, 10 }) }, { { { 1, 2 } } },
      { { { 1, 10, 2, 20, 0 } } } },
    { "SpatialDepthWiseConvolution", { nInputPlane = 2, nOutputPlane = 1, kW = 1, kH = 1,
      weight = floats({ 1, 2 }, { 2, 3 }), bias = floats({ 1, 2 }, { 0, 1 }) },
      { { { 1 } }, { { 1 } } }, { { { 2 } }, { { 4 } } } },
    { "SpatialConvolutionMap", { nInputPlane = 2, nOutputPlane = 1, kW = 1, kH = 1,
      connTable = tensor("Double", { 1, 2 }, { 2, 1 }), weight = floats({ 1, 1, 1 }, { 3 }),
      bias = floats({ 1 }, { 1 }) }, { { { 5 } }, { { 7 } } }, { { { 22 } } } },
    { "SpatialConvolutionLocal", { nInputPlane = 1, nOutputPlane = 1, kW = 1, kH = 1, iW = 2,
      iH = 1, weight = floats({ 1, 2, 1, 1, 1, 1 }, { 2, 3 }),
      bias = floats({ 1, 1, 2 }, { 1, 2 }) },
      { { { 1, 1 } } }, { { { 3, 5 } } } },
    { "TemporalConvolution", { inputFrameSize = 1, outputFrameSize = 1, kW = 2, dW = 1,
      weight = floats({ 1, 2 }, { 1, 10 }), bias = floats({ 1 }, { 0 }) }, { { 1 }, { 2 }, { 3 } },
      { { 21 }, { 32 } } },
    { "TemporalRowConvolution", { inputFrameSize = 2, kW = 1, dW = 1,
      weight = floats({ 2, 1, 1 }, { 2, 3 }) }, { { 1, 1 } }, { { 2, 3 } } },
    { "SpatialMaxPooling", { kW = 2, kH = 1 }, { { { 1, 3, 2, 0 } } }, { { { 3, 2 } } } },
    { "SpatialMaxPooling", { kW = 2, kH = 1, dW = 2, dH = 1, padW = 1, padH = 0,
      ceil_mode = true }, { { { -1, -3, -2, -5 } } }, { { { -1, -2, -5 } } } },
    { "SpatialDilatedMaxPooling", { kW = 2, kH = 1, dW = 1, dH = 1, dilationW = 2, dilationH = 1 },
      { { { 1, 5, 2 } } }, { { { 2 } } } },
    { "SpatialAveragePooling", { kW = 2, kH = 1, divide = true }, { { { 1, 3, 5 } } },
      { { { 2, 4 } } } },
    { "SpatialAveragePooling", { kW = 2, kH = 1 }, { { { 1, 3, 5 } } }, { { { 4, 8 } } } },
    { "cudnn.SpatialAveragePooling", { kW = 2, kH = 1, dW = 1, dH = 1 }, { { { 1, 3 } } },
      { { { 2 } } } },
    { "SpatialAveragePooling", { kW = 2, kH = 1, dW = 2, padW = 1, divide = true,
      count_include_pad = false }, { { { 4, 2 } } }, { { { 4, 2 } } } },
    { "SpatialSubSampling", { nInputPlane = 1, kW = 2, kH = 1, dW = 2, dH = 1,
      weight = floats({ 1 }, { 2 }), bias = floats({ 1 }, { 1 }) }, { { { 1, 3 } } },
      { { { 9 } } } },
    { "SpatialAdaptiveMaxPooling", { W = 3, H = 1 },
      { { { 1, 2, 3, 4, 5 } } }, { { { 2, 4, 5 } } } },
    { "SpatialAdaptiveAveragePooling", { W = 3, H = 1 }, { { { 1, 2, 3, 4, 5 } } },
      { { { 1.5, 3, 4.5 } } } },
    { "FeatureLPPooling", { width = 2, stride = 1, power = 2, batch_mode = false }, { 3, 4, 0 },
      { 5, 4 } },
    { "TemporalMaxPooling", { kW = 2, dW = 1 }, { { 1 }, { 3 }, { 2 } }, { { 3 }, { 3 } } },
    { "SpatialUpSamplingNearest", { scale_factor = 2 }, { { { 1, 2 } } },
      { { { 1, 1, 2, 2 }, { 1, 1, 2, 2 } } } },
    { "SpatialUpSamplingBilinear", { oheight = 1, owidth = 3 }, { { { 1, 2 } } },
      { { { 1, 1.5, 2 } } } },
    { "BatchNormalization", { running_mean = floats({ 1 }, { 1 }),
      running_var = floats({ 1 }, { 4 }), eps = 0, weight = floats({ 1 }, { 2 }),
      bias = floats({ 1 }, { 10 }) }, { { 5 } }, { { 14 } } },
    { "BatchNormalization", { running_mean = floats({ 1 }, { 1 }),
      running_std = floats({ 1 }, { 0.5 }), eps = 0 }, { { 5 } }, { { 2 } } },
    { "SpatialCrossMapLRN", { size = 1, alpha = 1, beta = 1, k = 1 }, { { { 1 } } },
      { { { 0.5 } } } },
    { "LookupTable", { weight = floats({ 2, 1 }, { 5, 6 }) }, { 2, 1 }, { { 6 }, { 5 } } },
    { "LookupTable", { weight = floats({ 2, 2 }, { 3, 4, 0, 1 }), maxNorm = 1 }, { 1, 2 },
      { { 0.6, 0.8 }, { 0, 1 } } },
    { "LookupTableMaskZero", { weight = floats({ 2, 1 }, { 5, 6 }) }, { 0, 1 }, { { 0 }, { 6 } } },
    { "OneHot", { outputSize = 3 }, { 2 }, { { 0, 1, 0 } } },
    { "ArgMax", { dim = 2 }, { { 1, 3, 2 } }, { 2 } },
    { "Constant", { value = floats({ 2 }, { 7, 8 }), nInputDim = 1 }, { { 0 }, { 0 } },
      { { 7, 8 }, { 7, 8 } } },
    { "VolumetricMaxPooling", { kT = 1, kW = 2, kH = 1, dT = 1, dW = 2, dH = 1 },
      { { { { 1, 3 } } } }, { { { { 3 } } } } },
  }
  for i, row in ipairs(rows) do
    it(("computes what it says: %s (%d)"):format(row[1], i), function()
      gives(row[4], nn(row[1], row[2]), row[3])
    end)
  end

  -- class, fields, inputs, outputs
  local tables_of = {
    { "CAddTable", {}, { { 1 }, { 2 } }, { { 3 } } },
    { "CSubTable", {}, { { 1 }, { 2 } }, { { -1 } } },
    { "CMulTable", {}, { { 3 }, { 2 } }, { { 6 } } },
    { "CDivTable", {}, { { 3 }, { 2 } }, { { 1.5 } } },
    { "CMaxTable", {}, { { 3 }, { 2 } }, { { 3 } } },
    { "CMinTable", {}, { { 3 }, { 2 } }, { { 2 } } },
    { "JoinTable", { dimension = 1 }, { { 1 }, { 2 } }, { { 1, 2 } } },
    { "SelectTable", { index = -1 }, { { 1 }, { 2 } }, { { 2 } } },
    { "NarrowTable", { offset = 2, length = -1 }, { { 1 }, { 2 }, { 3 } }, { { 2 }, { 3 } } },
    { "ReverseTable", {}, { { 1 }, { 2 } }, { { 2 }, { 1 } } },
    { "DotProduct", {}, { { { 1, 2 } }, { { 3, 4 } } }, { { 11 } } },
    { "PairwiseDistance", { norm = 2 }, { { { 1, 2 } }, { { 4, 6 } } }, { { 5 } } },
    { "CosineDistance", {}, { { { 1, 0 } }, { { 3, 4 } } }, { { 0.6 } } },
    { "MM", { transB = true }, { { { 1, 2 } }, { { 3, 4 } } }, { { { 11 } } } },
    { "MV", {}, { { { 1, 2 } }, { 3, 4 } }, { { 11 } } },
    { "Bilinear", { weight = floats({ 1, 2, 1 }, { 1, 2 }), bias = floats({ 1 }, { 1 }) },
      { { { 3, 4 } }, { { 5 } } }, { { { 56 } } } },
    { "Index", { dimension = 1 }, { { 5, 6, 7 }, { 3, 1 } }, { { 7, 5 } } },
  }
  for _, row in ipairs(tables_of) do
    it("of a table computes what it says: " .. row[1], function()
      assert.near(row[4], outputs(nn(row[1], row[2]), unpack(row[3])), 1e-5)
    end)
  end
end)

describe("a container of Torch7", function()
  local function times(n) return nn("MulConstant", { constant_scalar = n }) end

  it("runs its modules in order, in branches, in parallel", function()
    gives({ 6 }, sequential(times(2), times(3)), { 1 })
    assert.same({ { 2 }, { 3 } }, outputs(nn("ConcatTable", { modules = { times(2), times(3) } }),
      { 1 }))
    assert.same({ { 2 }, { 30 } }, outputs(nn("ParallelTable",
      { modules = { times(2), times(3) } }), { 1 }, { 10 }))
    gives({ 2, 3 }, nn("Concat", { dimension = 1, modules = { times(2), times(3) } }), { 1 })
    gives({ { 2, 3 }, { 8, 12 } }, nn("Concat", { dimension = 2,
      modules = { times(2), times(3) } }), { { 1 }, { 4 } })
    gives({ 2, 12 }, nn("Parallel", { inputDimension = 1, outputDimension = 1,
      modules = { times(2), times(3) } }), { { 1 }, { 4 } })
    gives({ { { 3 }, { 6 } } }, nn("Bottle", { nInputDim = 2, nOutputDim = 2, modules = {
      nn("LinearNoBias", { weight = floats({ 1, 1 }, { 3 }) }) } }), { { { 1 }, { 2 } } })
  end)

  it("takes nested tables of inputs, depth first", function()
    local inner = nn("ParallelTable", { modules = { times(10), times(100) } })
    local net = sequential(nn("ParallelTable", { modules = { times(1), inner } }),
      nn("FlattenTable"), nn("CAddTable"))
    gives({ 321 }, net, { 1 }, { 2 }, { 3 })
  end)

  it("puts smaller maps into the middle of the largest", function()
    local function pool(n) return nn("SpatialMaxPooling", { kW = n, kH = 1, dW = 1, dH = 1 }) end
    gives({ { { 1, 2, 3 } }, { { 0, 3, 0 } } }, nn("DepthConcat", { dimension = 1,
      modules = { nn("Identity"), pool(3) } }), { { { 1, 2, 3 } } })
  end)

  it("lets layers in place change what others read", function()
    local function branches(...)
      return sequential(nn("AddConstant", { constant_scalar = 0 }), nn("ConcatTable", { modules =
        { ... } }))
    end
    local relu = nn("ReLU", { threshold = 0, val = 0, inplace = true })
    assert.same({ { 0, 1 }, { 0, 2 } }, outputs(branches(relu, times(2)), { -1, 1 }))
    assert.same({ { -2, 2 }, { 0, 1 } }, outputs(branches(times(2), relu), { -1, 1 }))
    assert.same({ { 0, 1 }, { 0, 1 } }, outputs(branches(nn("Identity"), relu), { -1, 1 }))
    -- through a view too
    local view = sequential(nn("View", { size = longs(1, 2) }), relu)
    assert.same({ { { 0, 1 } }, { 0, 1 } }, outputs(branches(view, nn("Identity")), { -1, 1 }))
    local part = sequential(nn("Narrow", { dimension = 1, index = 1, length = 1 }), relu)
    assert.same({ { 0 }, { 0, -1 } }, outputs(branches(part, nn("Identity")), { -1, -1 }))
    local turned = sequential(nn("Transpose", { permutations = { { 1, 2 } } }), relu)
    assert.same({ { { 0 }, { 1 } }, { { 0, 1 } } }, outputs(branches(turned, nn("Identity")),
      { { -1, 1 } }))
  end)

  it("wraps one module", function()
    local gpu = nn("GPU", { modules = { times(2) } })
    gpu.header = {}
    gives({ 2 }, gpu, { 1 })
    gives({ 2 }, nn("DontCast", { modules = { times(2) } }), { 1 })
  end)
end)

describe("a weight of Torch7", function()
  local function linear(weight) return nn("LinearNoBias", { weight = weight }) end

  local function names(module, inputs)
    local net, args = ty.torch7.import_model{ loaded(module), shapes = list_shapes(inputs) }
    local list = {}
    for _, name in ipairs(net:list_arguments()) do
      list[#list + 1] = args[name] and name or nil
    end
    return list
  end

  local data = { { 1, 2 } }

  it("that is shared is one argument", function()
    local w = floats({ 2, 2 }, { 1, 2, 3, 4 })
    local module = linear(w)
    assert.same({ "linearnobias1_weight" }, names(sequential(module, module), { array(data) }))
    -- two tensors on one storage
    local s = storage("Float", { 1, 2, 3, 4 })
    local function view(strides)
      return tensor("Float", { 2, 2 }, nil, { storage = s, strides = strides })
    end
    local shared = sequential(linear(view{ 2, 1 }), linear(view{ 2, 1 }))
    assert.same({ "linearnobias1_weight" }, names(shared, { array(data) }))
    gives({ { 27, 59 } }, shared, data)
    -- and transposed
    local tied = sequential(linear(view{ 2, 1 }), linear(view{ 1, 2 }))
    assert.same({ "linearnobias1_weight" }, names(tied, { array(data) }))
    gives({ { 38, 54 } }, tied, data)
    local other = sequential(linear(view{ 1, 2 }), linear(view{ 2, 1 }))
    assert.same({ "linearnobias1_weight" }, names(other, { array(data) }))
    gives({ { 27, 61 } }, other, data)
  end)

  it("that is a part of another is a part of its argument", function()
    local s = storage("Float", { 1, 2, 3, 4 })
    local net = sequential(linear(tensor("Float", { 2, 2 }, nil, { storage = s })),
      linear(tensor("Float", { 1, 2 }, nil, { storage = s, offset = 3 })))
    assert.same({ "linearnobias1_weight" }, names(net, { array(data) }))
    gives({ { 3 * 5 + 4 * 11 } }, net, data)
  end)

  it("has a gradient that is the sum over its uses", function()
    local module = linear(floats({ 1, 1 }, { 3 }))
    local exe = bound(sequential(module, module), { array{ { 2 } } })
    exe:forward(true)
    exe:backward{ array{ { 1 } } }
    assert.near(2 * 3 * 2, exe.grad_dict.linearnobias1_weight:asscalar())
    assert.near(9, exe.grad_dict.data:asscalar())
  end)

  it("keeps the precision of the file", function()
    local net, args = ty.torch7.import_model{ loaded(linear(tensor("Double", { 1, 1 }, { 0.1 }))),
      shapes = { data = { 1, 1 } } }
    assert.equal("float64", args.linearnobias1_weight.dtype)
    assert.equal("linearnobias1_output", net:list_outputs()[1])
  end)
end)

describe("a network that is trained", function()
  it("can be given a criterion", function()
    local net = sequential(nn("LinearNoBias", { weight = floats({ 2, 1 }, { 0, 0 }) }),
      nn("LogSoftMax"))
    local loss, args = ty.torch7.import_model{ loaded(net),
      shapes = { data = { 2, 1 }, label = { 2 } }, criterion = loaded(nn("ClassNLLCriterion", {
        sizeAverage = true })) }
    local grads = {}
    args = device.placed(args, ty.cpu())
    args.data, args.label = array{ { 1 }, { 1 } }, array{ 1, 1 }
    for name, x in pairs(args) do
      grads[name] = ty.nd.zeros(x.shape)
    end
    local exe = loss:bind{ ctx = ty.cpu(), args = args, args_grad = grads }
    exe:forward(true)
    assert.near(math.log(2), exe.outputs[1]:asscalar(), 1e-6)
    assert.equal(2, #exe.outputs)
    exe:backward()
    assert.near({ { -0.5 }, { 0.5 } }, grads.linearnobias1_weight, 1e-6)
  end)

  it("can be given a criterion by name", function()
    local object = loaded(nn("LogSoftMax"))
    local shapes = { data = { 1, 2 }, label = { 1 } }
    local loss = ty.torch7.import_model{ object, shapes = shapes,
      criterion = "nn.ClassNLLCriterion" }
    local exe = loss:bind{ ctx = ty.cpu(), args = { data = array{ { 0, 0 } },
      label = array{ 2 } } }
    assert.near(math.log(2), exe:forward()[1]:asscalar(), 1e-6)
    for _, name in ipairs{ "nn.NoSuchCriterion", "nn.Linear" } do
      local e = assert.raises("unsupported", ty.torch7.import_model, { object, shapes = shapes,
        criterion = name })
      assert.truthy(tostring(e):find(name, 1, true), tostring(e))
    end
    assert.raises("type", ty.torch7.import_model, { object, shapes = shapes, criterion = 3 })
  end)

  it("has no gradient for the padding of a lookup", function()
    local exe = bound(nn("LookupTable", { weight = floats({ 2, 1 }, { 5, 6 }), paddingValue = 1 }),
      { array{ 1, 2 } })
    exe:forward(true)
    exe:backward{ array{ { 1 }, { 1 } } }
    assert.same({ { 0 }, { 1 } }, exe.grad_dict.lookuptable1_weight:totable())
  end)

  it("has noise that is drawn in training only", function()
    local exe = bound(nn("WhiteNoise", { mean = 0, std = 1 }), { array{ 1, 2, 3 } })
    assert.same({ 1, 2, 3 }, exe.outputs[1]:totable())
    exe:forward(true)
    assert.is_true(exe.outputs[1][0]:asscalar() ~= 1)
    exe:backward{ array{ 1, 1, 1 } }
    assert.same({ 1, 1, 1 }, exe.grad_dict.data:totable())
  end)

  it("is penalized beside the head's gradient", function()
    local exe = bound(nn("L1Penalty", { l1weight = 2, provideOutput = true }), { array{ -1, 3 } })
    exe:forward(true)
    assert.same({ -1, 3 }, exe.outputs[1]:totable())
    exe:backward{ array{ 10, 10 } }
    assert.near({ 8, 12 }, exe.grad_dict.data)
  end)
end)

describe("a graph of nngraph", function()
  -- Returns nodes with children; mapindex is filled in: {module, parents}.
  local function graph(rows, inputs)
    local nodes, forward = {}, {}
    for i, row in ipairs(rows) do
      local data = { mapindex = {}, module = row[1] or nil, selectindex = row.select }
      nodes[i] = t7.object("nngraph.Node", { data = data, children = {}, id = i })
      for k, parent in ipairs(row[2] or {}) do
        data.mapindex[nodes[parent].fields.data] = k
        table.insert(nodes[parent].fields.children, nodes[i])
      end
      forward[i] = nodes[i]
    end
    local last = nodes[#nodes]
    -- the output node of the other graph shares the data
    local out = t7.object("nngraph.Node", { data = last.fields.data, children = {}, id = 99 })
    return nn("gModule", { forwardnodes = forward, innode = nodes[1], outnode = out,
      nInputs = inputs or 1 })
  end

  local function times(n) return nn("MulConstant", { constant_scalar = n }) end

  it("computes its nodes in order", function()
    gives({ 5 }, graph{ {}, { times(2), { 1 } }, { times(3), { 1 } }, { nn("CAddTable"), { 2, 3 } },
      { nil, { 4 } } }, { 1 })
  end)

  it("takes several inputs, gives several outputs", function()
    assert.same({ { 20 }, { 3 } }, outputs(graph({ {}, { select = 1, false, { 1 } },
      { select = 2, false, { 1 } }, { times(3), { 2 } }, { times(10), { 3 } },
      { false, { 5, 4 } } }, 2), { 1 }, { 2 }))
  end)

  it("with a node before its input is refused", function()
    local bad = graph{ {}, { times(2), { 1 } }, { nil, { 2 } } }
    local nodes = bad.fields.forwardnodes
    nodes[1], nodes[2] = nodes[2], nodes[1]
    local e = assert.raises("value", ty.torch7.import_model,
      { loaded(bad), shapes = { data = { 1 } } })
    assert.truthy(e.message:find("before its input", 1, true))
  end)
end)

describe("a recurrent module", function()
  local step = nn("Sequential", { modules = { nn("CAddTable"),
    nn("MulConstant", { constant_scalar = 2 }) } })
  local gru = nn("GRU", { recurrentModule = step, outputSize = 1 })

  it("begins from zeros and goes on step by step", function()
    assert.same({ { { 2 } }, { { 6 } } }, outputs(nn("Sequencer", { module = gru }), { { 1 } },
      { { 1 } }))
    gives({ { { 2 } }, { { 6 } } }, nn("Sequencer", { module = gru }), { { { 1 } }, { { 1 } } })
    gives({ { 2 } }, gru, { { 1 } })
  end)

  it("begins anew in each sequencer", function()
    local sequencer = nn("Sequencer", { module = gru })
    assert.same({ { { 2 } }, { { 2 } } }, outputs(sequential(nn("FlattenTable"), nn("ConcatTable", {
      modules = { sequencer, sequencer } }), nn("FlattenTable")), { { 1 } }))
  end)

  it("may have another first step", function()
    local recurrent = nn("Recurrent", { recurrentModule = step, initialModule = nn("Identity") })
    assert.same({ { { 1 } }, { { 4 } } }, outputs(nn("Sequencer", { module = recurrent }),
      { { 1 } }, { { 1 } }))
  end)

  it("is repeated", function()
    assert.same({ { { 2 } }, { { 6 } } }, outputs(nn("Repeater", { module = gru, rho = 2 }),
      { { 1 } }))
  end)

  it("gives zeros for rows of zeros after a mask", function()
    gives({ { 0 }, { 5 } }, nn("MaskZero", { nInputDim = 1, modules = {
      nn("AddConstant", { constant_scalar = 3 }) } }), { { 0 }, { 2 } })
  end)

  it("may be a sequence at once", function()
    -- all gates are one half, the candidate 0
    gives({ { { 0 } }, { { 0 } } }, nn("SeqLSTM", { inputsize = 1, outputsize = 1,
      weight = floats({ 2, 4 }, { 0, 0, 0, 0, 0, 0, 0, 0 }),
      bias = floats({ 4 }, { 0, 0, 0, 0 }) }), { { { 1 } }, { { 1 } } })
    gives({ { { 0.5 * math.tanh(1) } } }, nn("SeqGRU", { inputSize = 1, outputSize = 1,
      weight = floats({ 2, 3 }, { 0, 0, 1, 0, 0, 0 }), bias = floats({ 3 }, { 0, 0, 0 }) }),
      { { { 1 } } })
  end)
end)

describe("an unpooling", function()
  it("puts values where the maxima were, the first of equal ones", function()
    local pooling = nn("SpatialMaxPooling", { kW = 2, kH = 1, dW = 2, dH = 1 })
    gives({ { { 0, 3, 2, 0, 0 } } }, sequential(pooling, nn("SpatialMaxUnpooling",
      { pooling = pooling })), { { { 1, 3, 2, 2, 7 } } })
    local volume = nn("VolumetricMaxPooling", { kT = 1, kW = 2, kH = 1, dT = 1, dW = 2, dH = 1 })
    gives({ { { { 0, 3 } } } }, sequential(volume, nn("VolumetricMaxUnpooling",
      { pooling = volume })), { { { { 1, 3 } } } })
  end)
end)

describe("an object that is no network", function()
  local function refused(code, text, module, shapes)
    local e = assert.raises(code, ty.torch7.import_model,
      { loaded(module), shapes = shapes or { data = { 1, 3 } } })
    assert.truthy(e.message:find(text, 1, true), e.message)
  end

  it("is refused by class and place", function()
    refused("unsupported", "nn.NoSuch at modules.2", sequential(nn("Tanh"), nn("NoSuch")))
    refused("unsupported", "its windows are drawn anew", nn("SpatialFractionalMaxPooling"))
    refused("unsupported", "cuDNN's own order", nn("cudnn.LSTM"))
    refused("value", "'weight' is nothing", nn("Linear", {}))
    refused("shape", "the input has 3 features, the weight is for 2", nn("Linear",
      { weight = floats({ 1, 2 }, { 1, 2 }) }))
    refused("value", "'kW' is text \"three\"", nn("SpatialMaxPooling", { kW = "three", kH = 1 }))
    refused("type", "a table, not a tensor", sequential(nn("ConcatTable", { modules = {
      nn("Tanh") } }), nn("Tanh")))
    refused("type", "this is no network", { 1 })
    refused("name", "needs the shape of 'label'", nn("MSECriterion"))
    local self = sequential(nn("Tanh"))
    table.insert(self.fields.modules, self)
    refused("value", "contains itself", self)
  end)

  it("is refused where it would never end", function()
    local net = nn("Tanh")
    for _ = 1, 300 do
      net = sequential(net)
    end
    refused("value", "modules are in each other", net)
    net = nn("Identity")
    for _ = 1, 40 do
      net = sequential(net, net)
    end
    refused("value", "more than 100000 layers", net)
    refused("shape", "elements", sequential(nn("Replicate", { nfeatures = 2 ^ 31 - 1, dim = 1 }),
      nn("Replicate", { nfeatures = 2 ^ 31 - 1, dim = 1 })))
  end)

  it("needs the shapes of its inputs", function()
    local net = loaded(nn("CAddTable"))
    local function with(shapes) return { net, shapes = shapes } end
    assert.raises("name", ty.torch7.import_model, with{})
    assert.raises("name", ty.torch7.import_model, with{ data = { 1 }, data3 = { 1 } })
    assert.raises("name", ty.torch7.import_model, with{ image = { 1 } })
    assert.raises("shape", ty.torch7.import_model, with{ data = { 0, 1 } })
    assert.raises("shape", ty.torch7.import_model, with{ data = { 1, 2 }, data2 = { 3 } })
  end)
end)
