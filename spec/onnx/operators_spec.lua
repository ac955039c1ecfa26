-- Operators of ONNX files whose numbers are worked out here: bits, small types, signals, windows
-- put back, boxes, states. All recorded operators: spec/onnx/cases_spec.lua.
local bit = require "bit"
local class = require "tycho.ndarray.class"
local files = require "spec.support.onnx_files"
local folder = require "spec.support.folder"
local models = require "spec.support.onnx_models"
local ty = require "tycho"
require "spec.helper"

-- TensorProto.DataType
local FLOAT, UINT8, INT8, UINT16, INT32, INT64 = 1, 2, 3, 4, 6, 7
local UINT32, UINT64, BFLOAT16 = 12, 13, 16
local INT4, UINT4, E4M3FN, E4M3FNUZ, E5M2, E2M1, E8M0 = 22, 21, 17, 18, 19, 23, 24

local function array(t, dtype) return ty.nd.array(t, { dtype = dtype or "float32" }) end

local function whole(t) return array(t, "int64") end

-- Returns the outputs of one node: inputs is a list of arrays, { array, type = code } (an input of
-- the network) or { of = array } (a constant), false for an absent one.
local function run_node(op, attrs, inputs, options)
  options = options or {}
  local node, model = { op, {}, {}, attrs, domain = options.domain }, { inputs = {}, constants = {},
    outputs = {}, opset = options.opset or 18, domains = options.domains }
  local given, results = {}, nil
  for i, input in ipairs(inputs) do
    local name = input and "x" .. i or ""
    node[2][i] = name
    local plain = class.is_array(input)
    if input and not plain and input.of then
      model.constants[name] = input.of
    elseif input then
      local x = plain and input or input[1]
      local shape = { unpack(x.shape) }
      shape.type = not plain and input.type or FLOAT
      model.inputs[name], given[name] = shape, x
    end
  end
  for i = 1, options.outputs or 1 do
    node[3][i] = "y" .. i
    model.outputs[i] = "y" .. i
  end
  model.nodes = { node }
  folder.with(function(dir)
    folder.write(dir .. "/m.onnx", models.bytes(model))
    local sym, args, auxs = ty.onnx.import_model(dir .. "/m.onnx")
    for name, x in pairs(given) do
      args[name] = x
    end
    results = files.run(sym, args, auxs)
  end)
  return results
end

local function numbers(op, attrs, inputs, options)
  local y = run_node(op, attrs, inputs, options)[1]
  return y:astype("float64"):reshape{ -1 }:totable(), y.dtype, y.shape
end

local function near(expected, got, bound)
  assert.equal(#expected, #got)
  for i, v in ipairs(expected) do
    local same = v == got[i] or v ~= v and got[i] ~= got[i]
    assert.is_true(same or math.abs(v - got[i]) < (bound or 1e-6), ("element %d: %g, expected %g")
      :format(i, got[i], v))
  end
end

describe("bits of integers", function()
  local A, B = { 0, 1, 12, -1, 77, -128 }, { 5, 3, 10, 127, -78, 1 }

  for op, f in pairs{ BitwiseAnd = bit.band, BitwiseOr = bit.bor, BitwiseXor = bit.bxor } do
    it(op, function()
      local expected = {}
      for i, a in ipairs(A) do
        expected[i] = f(a, B[i])
      end
      for dtype, code in pairs{ int8 = INT8, int32 = INT32, int64 = INT64 } do
        local got, kind = numbers(op, {}, { { array(A, dtype), type = code },
          { array(B, dtype), type = code } })
        assert.same({ expected, dtype }, { got, kind })
      end
    end)
  end

  it("of unsigned numbers, broadcast", function()
    assert.same({ 8, 0, 8, 1 }, (numbers("BitwiseAnd", {}, { { array({ { 200 }, { 65535 } },
      "int32"), type = UINT16 }, { array({ 8, 1 }, "int32"), type = UINT16 } })))
  end)

  it("BitwiseNot", function()
    assert.same({ 255, 55 }, (numbers("BitwiseNot", {}, { { array({ 0, 200 }, "uint8"),
      type = UINT8 } })))
    assert.same({ 65535, 0 }, (numbers("BitwiseNot", {}, { { array({ 0, 65535 }, "int32"),
      type = UINT16 } })))
    assert.same({ -1, 6 }, (numbers("BitwiseNot", {}, { { array({ 0, -7 }, "int32"),
      type = INT32 } })))
  end)

  local function shifted(direction, x, by, dtype, code)
    return (numbers("BitShift", { direction = direction }, { { array(x, dtype), type = code },
      { array(by, dtype), type = code } }))
  end

  it("BitShift", function()
    assert.same({ 32, 0, 128 }, shifted("LEFT", { 16, 128, 1 }, { 1, 1, 7 }, "uint8", UINT8))
    assert.same({ 8, 64, 0 }, shifted("RIGHT", { 16, 128, 1 }, { 1, 1, 7 }, "uint8", UINT8))
    assert.same({ -2, 4, -1 }, shifted("RIGHT", { -8, 16, -1 }, { 2, 2, 9 }, "int32", INT32))
    assert.same({ -2 ^ 31, 0 }, shifted("LEFT", { 1, 1 }, { 31, 32 }, "int32", INT32))
    assert.same({ 65534 }, shifted("LEFT", { 65535 }, { 1 }, "int32", UINT16))
    assert.same({ 2 ^ 32 - 2 }, shifted("LEFT", { 2 ^ 32 - 1 }, { 1 }, "int64", UINT32))
  end)

  it("BitShift of 64 bits", function()
    assert.same({ -2 ^ 63, 2 ^ 62 }, shifted("LEFT", { 1, 1 }, { 63, 62 }, "int64", INT64))
    assert.same({ -1, 1 }, shifted("RIGHT", { -2 ^ 63, 2 ^ 62 }, { 63, 62 }, "int64", INT64))
    -- The sign bit of the array is the top bit of the number.
    local top = -2 ^ 63
    assert.same({ 1, 2 ^ 62, 2 ^ 31 }, shifted("RIGHT", { top, top, top }, { 63, 1, 32 }, "int64",
      UINT64))
  end)

  it("BitCast", function()
    assert.same({ -1, 5 }, (numbers("BitCast", { to = INT8 }, { { array({ 255, 5 }, "uint8"),
      type = UINT8 } })))
    assert.same({ 1065353216 }, (numbers("BitCast", { to = INT32 }, { { of = array{ 1 } } })))
    local ok, e = pcall(numbers, "BitCast", { to = INT32 }, { array{ 1 } })
    assert.is_false(ok)
    assert.matches("bits of float32 as int32", e.message)
  end)
end)

describe("LayerNormalization", function()
  it("broadcasts its scale and bias", function()
    local x = array{ { 1, 3 }, { 4, 2 } }
    local function run(scale, bias)
      return (numbers("LayerNormalization", { epsilon = { float = 0 } }, { x, { of = scale },
        { of = bias } }))
    end
    near({ -2, 2, 2, -2 }, run(array{ 2 }, array{ 0, 0 }))
    near({ -1, 1, 3, 1 }, run(array{ 2, 0 }, array{ 1 }))
    near({ -1, 3, 3, -1 }, run(array{ 2 }, array{ 1 }))
    near({ -2, 5, 2, -1 }, run(array{ 2, 3 }, array{ 0, 2 }))
  end)
end)

describe("QGemm", function()
  it("has scales and zero points of columns, also of a transposed weight", function()
    local function of(t, dtype) return { of = array(t, dtype) } end
    for transposed, weight in pairs{ [0] = { { 250, 10 }, { 0, 20 } },
        [1] = { { 250, 0 }, { 10, 20 } } } do
      local inputs = { { array({ { 1, 2 } }, "uint8"), type = UINT8 }, of{ 1 }, of({ 0 }, "uint8"),
        of(weight, "uint8"), of{ 1, 0.5 }, of({ 0, 10 }, "uint8") }
      local options = { domain = "com.microsoft", domains = { ["com.microsoft"] = 1 } }
      assert.same({ 250, 10 }, (numbers("QGemm", { transB = transposed }, inputs, options)))
      inputs[7] = of({ 4, 6 }, "int32")
      assert.same({ 127, 6.5 },
        (numbers("QGemm", { transB = transposed, alpha = { float = 0.5 } }, inputs, options)))
      inputs[8], inputs[9] = of{ 1 }, of({ 0 }, "uint8")
      assert.same({ 254, 13 }, (numbers("QGemm", { transB = transposed }, inputs, options)))
    end
  end)
end)

describe("Hardmax", function()
  it("of a scalar", function()
    local model = { nodes = { { "Hardmax", { "x" }, { "y" } } }, inputs = { x = {} },
      outputs = { "y" } }
    folder.with(function(dir)
      folder.write(dir .. "/m.onnx", models.bytes(model))
      local sym, args, auxs = ty.onnx.import_model(dir .. "/m.onnx")
      args.x = array{ -3 }
      assert.same({ 1 }, files.run(sym, args, auxs)[1]:totable())
    end)
  end)
end)

describe("DynamicQuantizeLinear", function()
  local function run(list)
    local results = run_node("DynamicQuantizeLinear", {}, { array(list) }, { outputs = 3 })
    for i, y in ipairs(results) do
      results[i] = y:astype("float32"):totable()
    end
    return results
  end

  it("rounds to levels of its own range", function()
    local q, scale, zero = unpack(run{ -1, 0, 1.55 })
    assert.same({ { 0, 100, 255 }, { 100 } }, { q, zero })
    near({ 0.01 }, scale)
  end)

  it("has a scale of 1 for zeros, as in ONNX Runtime", function()
    assert.same({ { 0, 0 }, { 1 }, { 0 } }, run{ 0, 0 })
  end)
end)

describe("small types", function()
  local X = { 0.4789, 1e6, -1e6, 1e-7, 0 / 0, math.huge, 17, -19, 0.0029296875 }

  local function cast(to, attrs)
    attrs = attrs or {}
    attrs.to = to
    return (numbers("Cast", attrs, { array(X) }))
  end

  it("round to what they hold, halves to even, and end at the largest", function()
    local nan = 0 / 0
    near({ 0.46875, 448, -448, 0, nan, 448, 16, -20, 0.00390625 }, cast(E4M3FN))
    near({ 0.46875, 240, -240, 0, nan, 240, 16, -20, 0.0029296875 }, cast(E4M3FNUZ))
    near({ 0.5, 57344, -57344, 0, nan, 57344, 16, -20, 0.0029296875 }, cast(E5M2))
    near({ 0.5, 6, -6, 0, 0, 6, 6, -6, 0 }, cast(E2M1))
  end)

  it("may go beyond the largest", function()
    local nan, huge = 0 / 0, math.huge
    near({ 0.46875, nan, nan, 0, nan, nan, 16, -20, 0.00390625 }, cast(E4M3FN, { saturate = 0 }))
    near({ 0.5, huge, -huge, 0, nan, huge, 16, -20, 0.0029296875 }, cast(E5M2, { saturate = 0 }))
  end)

  it("powers of two", function()
    local x = array{ 0.2, 0.25, 1.1, 3, 1.5 }
    local function powers(mode)
      return (numbers("Cast", { to = E8M0, round_mode = mode }, { x }))
    end
    assert.same({ 0.25, 0.25, 2, 4, 2 }, powers "up")
    assert.same({ 0.125, 0.25, 1, 2, 1 }, powers "down")
    assert.same({ 0.25, 0.25, 1, 4, 2 }, powers "nearest")
  end)

  it("integers of four and sixteen bits wrap", function()
    local x = array{ -9, -8, 7, 8, 2.9 }
    assert.same({ 7, -8, 7, -8, 2 }, (numbers("Cast", { to = INT4 }, { x })))
    assert.same({ 7, 8, 7, 8, 2 }, (numbers("Cast", { to = UINT4 }, { x })))
    x = { array({ 70000, -1 }, "int32"), type = INT32 }
    assert.same({ 4464, 65535 }, (numbers("Cast", { to = UINT16 }, { x })))
  end)

  it("follow another value's type", function()
    local like = { type = E4M3FN, dims = { 1 }, raw = "\0" }
    near({ 0.46875, 448 }, (numbers("CastLike", {}, { array{ 0.4789, 1e6 }, { of = like } })))
  end)
end)

describe("running products", function()
  local x = array{ { 1, 2, 3, 4 }, { 2, 0.5, 4, -1 } }
  local function products(attrs, axis)
    return (numbers("CumProd", attrs, { x, { of = array({ axis }, "int64") } }))
  end

  it("along an axis, also without the element itself, also from the end", function()
    assert.same({ 1, 2, 6, 24, 2, 1, 4, -4 }, products({}, 1))
    assert.same({ 1, 1, 2, 6, 1, 2, 1, 4 }, products({ exclusive = 1 }, 1))
    assert.same({ 24, 24, 12, 4, -4, -2, -4, -1 }, products({ reverse = 1 }, 1))
    assert.same({ 1, 2, 3, 4, 2, 1, 12, -4 }, products({}, 0))
  end)
end)

describe("signals", function()
  local function size(n) return { of = whole{ n } } end

  it("windows", function()
    near({ 0, 0.5, 1, 0.5 }, (numbers("HannWindow", {}, { size(4) })))
    near({ 0, 0.75, 0.75, 0 }, (numbers("HannWindow", { periodic = 0 }, { size(4) })))
    near({ 4 / 46, 25 / 46, 1, 25 / 46 }, (numbers("HammingWindow", {}, { size(4) })))
    near({ 0, 0.34, 1, 0.34 }, (numbers("BlackmanWindow", {}, { size(4) })))
  end)

  it("triangles over a spectrum", function()
    local got, _, shape = numbers("MelWeightMatrix", {}, { size(2), size(8), size(800),
      { of = array{ 0 } }, { of = array{ 400 } } })
    assert.same({ 5, 2 }, shape)
    -- Corners at 0, 83.7, 177.5, 282.5 Hz, which are bins 0, 0, 1, 3.
    near({ 1, 0, 0, 1, 0, 0.5, 0, 0, 0, 0 }, got)
  end)

  -- Returns the transform by its definition.
  local function dft(re, im, count, sign, factor)
    local list = {}
    for k = 0, count - 1 do
      local a, b = 0, 0
      for i = 0, #re - 1 do
        local angle = sign * 2 * math.pi * i * k / #re
        local c, s = math.cos(angle), math.sin(angle)
        a = a + re[i + 1] * c - im[i + 1] * s
        b = b + re[i + 1] * s + im[i + 1] * c
      end
      list[#list + 1], list[#list + 2] = a * factor, b * factor
    end
    return list
  end

  local RE, IM, ZERO = { 1, 2, -3, 0.5, 4 }, { 0.5, 0, 1, -1, 2 }, { 0, 0, 0, 0, 0 }

  local function signal(re, im)
    local rows = {}
    for i, v in ipairs(re) do
      rows[i] = { v, im and im[i] }
    end
    return array{ rows }
  end

  it("transforms of real and complex numbers", function()
    local options = { opset = 20 }
    near(dft(RE, ZERO, 5, -1, 1), numbers("DFT", {}, { signal(RE) }, options), 1e-5)
    near(dft(RE, IM, 5, -1, 1), numbers("DFT", {}, { signal(RE, IM) }, options), 1e-5)
    near(dft(RE, ZERO, 3, -1, 1), numbers("DFT", { onesided = 1 }, { signal(RE) }, options), 1e-5)
    near(dft(RE, IM, 5, 1, 1 / 5), numbers("DFT", { inverse = 1 }, { signal(RE, IM) }, options),
      1e-5)
  end)

  it("transforms of another length, along another axis", function()
    local x = signal(RE):reshape{ 5, 1, 1 }
    near(dft({ 1, 2, -3 }, ZERO, 3, -1, 1), numbers("DFT", {}, { x, { of = whole{ 3 } },
      { of = whole{ 0 } } }, { opset = 20 }), 1e-5)
    near(dft({ 1, 2, -3 }, ZERO, 3, -1, 1), numbers("DFT", { axis = 0 }, { x, { of = whole{ 3 } } },
      { opset = 17 }), 1e-5)
  end)

  it("real signals from half of their frequencies", function()
    for _, x in ipairs{ RE, { 1, 2, -3, 0.5 } } do
      local half = math.floor(#x / 2) + 1
      local spectrum, rows = dft(x, ZERO, half, -1, 1), {}
      for k = 1, half do
        rows[k] = { spectrum[2 * k - 1], spectrum[2 * k] }
      end
      near(x, numbers("DFT", { inverse = 1, onesided = 1 }, { array{ rows },
        { of = whole{ #x } } }, { opset = 20 }), 1e-5)
    end
  end)

  it("frames", function()
    local x, window = array{ { { 1 }, { 2 }, { 3 }, { 4 }, { 5 } } }, array{ 1, 0.5 }
    local got, _, shape = numbers("STFT", {}, { x, { of = whole{ 3 } }, window })
    assert.same({ 1, 2, 2, 2 }, shape)
    near({ 2, 0, 0, 0, 6.5, 0, 1.5, 0 }, got)
  end)
end)

describe("windows put back", function()
  it("columns to an image, with overlaps and uneven borders", function()
    local x = ty.nd.ones{ 1, 4, 6 }
    local got, _, shape = numbers("Col2Im", { pads = { 0, 0, 0, 1 } }, { x, { of = whole{ 3, 3 } },
      { of = whole{ 2, 2 } } })
    assert.same({ 1, 1, 3, 3 }, shape)
    assert.same({ 1, 2, 2, 2, 4, 4, 1, 2, 2 }, got)
  end)

  it("of one axis", function()
    assert.same({ 1, 6, 6, 6, 8 }, (numbers("Col2Im", {}, { array{ { { 1, 2, 3, 4 }, { 4, 3, 2,
      8 } } }, { of = whole{ 5 } }, { of = whole{ 2 } } })))
  end)

  it("largest elements to where they were", function()
    local x, at = array{ { { { 7, 8 }, { 9, 10 } } } }, array({ { { { 0, 3 }, { 10, 15 } } } },
      "int64")
    local inputs = { x, { at, type = INT64 } }
    local attrs = { kernel_shape = { 2, 2 }, strides = { 2, 2 } }
    assert.same({ 7, 0, 0, 8, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 10 }, (numbers("MaxUnpool", attrs,
      inputs)))
    inputs[3] = { of = whole{ 1, 1, 4, 5 } }
    assert.same({ 7, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 10, 0 }, (numbers(
      "MaxUnpool", attrs, inputs)))
  end)

  it("dilated pooling with uneven borders", function()
    local x = array{ { { { 1, 2, 3 }, { 4, 9, 6 }, { 7, 8, 5 } } } }
    assert.same({ 8, 7, 9, 6 }, (numbers("MaxPool", { kernel_shape = { 2, 2 },
      dilations = { 2, 2 }, pads = { 0, 1, 1, 0 } }, { x })))
  end)
end)

describe("convolutions", function()
  it("whose taps are moved", function()
    local x = array{ { { { 1, 2 }, { 3, 4 } } } }
    local weight, offset = ty.nd.ones{ 1, 1, 1, 1 }, ty.nd.zeros{ 1, 2, 2, 2 }
    offset["0, 1, :, 0"] = 1                       -- the left column reads the right one
    assert.same({ 2, 2, 4, 4 }, (numbers("DeformConv", {}, { x, { of = weight }, offset },
      { opset = 19 })))
    assert.same({ 11, 11, 12, 12 }, (numbers("DeformConv", {}, { x, { of = weight }, offset,
      { of = array{ 10 } }, array{ { { { 0.5, 0.5 }, { 0.5, 0.5 } } } } }, { opset = 19 })))
  end)

  it("over what came before", function()
    local x, weight = array{ { { 1, 2, 3 } } }, array{ { { 10, 1 } } }
    local y = run_node("CausalConvWithState", {}, { x, { of = weight } }, { opset = 27,
      outputs = 2 })
    assert.same({ 1, 12, 23 }, y[1]:reshape{ -1 }:totable())
    assert.same({ 3 }, y[2]:reshape{ -1 }:totable())
    y = run_node("CausalConvWithState", {}, { x, { of = weight }, false, array{ { { 5 } } } },
      { opset = 27, outputs = 2 })
    assert.same({ 51, 12, 23 }, y[1]:reshape{ -1 }:totable())
  end)
end)

describe("states of attention", function()
  it("rows of a cache are replaced, also around its end", function()
    local cache, rows = ty.nd.zeros{ 2, 3, 1 }, array{ { { 1 }, { 2 } }, { { 3 }, { 4 } } }
    local first = { of = whole{ 1, 0 } }
    assert.same({ 0, 1, 2, 3, 4, 0 }, (numbers("TensorScatter", {}, { cache, rows, first },
      { opset = 24 })))
    first = { of = whole{ 2, 1 } }
    assert.same({ 2, 0, 1, 0, 3, 4 }, (numbers("TensorScatter", { mode = "circular" },
      { cache, rows, first }, { opset = 24 })))
  end)

  it("sums that decay, position by position", function()
    local q, k, v = array{ { { 1, 0 }, { 1, 1 } } }, array{ { { 2, 1 }, { 1, 3 } } },
      array{ { { 10 }, { 100 } } }
    local heads = { q_num_heads = 1, kv_num_heads = 1, update_rule = "linear",
      scale = { float = 1 } }
    -- State: 10 (2, 1), then + 100 (1, 3).
    assert.same({ 20, 430 }, (numbers("LinearAttention", heads, { q, k, v }, { opset = 27 })))
    heads.update_rule = "gated"
    local decay = array{ { { 0 }, { math.log(0.5) } } }
    near({ 20, 415 }, numbers("LinearAttention", heads, { q, k, v, false, decay }, { opset = 27 }),
      1e-4)
    heads.update_rule = "delta"
    -- The second value is 100 - (20, 10) . (1, 3) = 50, halved.
    local beta = array{ { { 1 }, { 0.5 } } }
    near({ 20, 130 }, numbers("LinearAttention", heads, { q, k, v, false, false, beta },
      { opset = 27 }), 1e-4)
  end)

  it("scores and weights that graphs change", function()
    local q, k, v = array{ { { { 1 } } } }, array{ { { { 2 }, { 3 } } } },
      array{ { { { 10 }, { 20 } } } }
    local options = { domain = "ai.onnx.preview", domains = { ["ai.onnx.preview"] = 1 } }
    local function graph(op)
      return { graph = { nodes = { { op, { "s" }, { "r" } } }, inputs = { s = { 1, 1, 1, 2 } },
        outputs = { "r" } } }
    end
    local weight = 1 / (1 + math.exp(1))
    near({ 10 * weight + 20 * (1 - weight) }, numbers("FlexAttention", {}, { q, k, v }, options),
      1e-5)
    near({ 10 * (1 - weight) + 20 * weight }, numbers("FlexAttention", { score_mod = graph "Neg" },
      { q, k, v }, options), 1e-5)
    near({ -10 * weight - 20 * (1 - weight) }, numbers("FlexAttention", { prob_mod = graph "Neg" },
      { q, k, v }, options), 1e-5)
  end)
end)

describe("attention of com.microsoft", function()
  local options = { domain = "com.microsoft", domains = { ["com.microsoft"] = 1 } }

  local function with_outputs(count)
    options.outputs = count
    return options
  end

  it("keys of few heads, kept and turned by their positions", function()
    -- Position 2 turns by a right angle, others do not turn.
    local cos, sin = { of = array{ { 1 }, { 1 }, { 0 } } }, { of = array{ { 0 }, { 0 }, { 1 } } }
    local q, k, v = array{ { { 1, 0, 0, 2 } } }, array{ { { 0, 3 } } }, array{ { { 100, 0 } } }
    local past_k = array{ { { { 0, 1 }, { 2, 0 } } } }
    local past_v = array{ { { { 1, 0 }, { 10, 0 } } } }
    local y = run_node("GroupQueryAttention", { num_heads = 2, kv_num_heads = 1, do_rotary = 1,
      scale = { float = 1 } }, { q, k, v, past_k, past_v, { of = array({ 2 }, "int32") },
      { of = array({ 3 }, "int32") }, cos, sin }, with_outputs(3))
    assert.same({ 0, 1, 2, 0, -3, 0 }, y[2]:reshape{ -1 }:totable())
    assert.same({ 1, 0, 10, 0, 100, 0 }, y[3]:reshape{ -1 }:totable())
    -- Returns the weighted mean for the scores a, b and c; heads of queries are (0, 1) and (-2, 0).
    local function mean(a, b, c)
      local sum = math.exp(a) + math.exp(b) + math.exp(c)
      return (math.exp(a) + 10 * math.exp(b) + 100 * math.exp(c)) / sum
    end
    near({ mean(1, 0, 0), 0, mean(0, -4, 6), 0 }, y[1]:reshape{ -1 }:totable(), 1e-4)
  end)

  it("samples of different lengths", function()
    local one = ty.nd.ones{ 2, 1, 1 }
    local past = ty.nd.zeros{ 2, 1, 2, 1 }
    local y = run_node("GroupQueryAttention", { num_heads = 1, kv_num_heads = 1 }, { one, one,
      one * 5, past, past, { of = array({ 2, 1 }, "int32") }, { of = array({ 3 }, "int32") } },
      with_outputs(3))
    assert.same({ 0, 0, 5, 0, 5, 0 }, y[3]:reshape{ -1 }:totable())
    local first, second = math.exp(1) / (math.exp(1) + 2), math.exp(1) / (math.exp(1) + 1)
    near({ 5 * first, 5 * second }, y[1]:reshape{ -1 }:totable(), 1e-5)
  end)

  it("queries, keys and values in one array", function()
    local x = ty.random.normal{ shape = { 2, 3, 2, 3, 4 } }
    local function part(i)
      return x:slice_axis{ axis = 3, begin = i, ["end"] = i + 1 }:reshape{ 2, 3, 8 }
    end
    local attrs = { num_heads = 2 }
    local apart = numbers("MultiHeadAttention", attrs, { part(0), part(1), part(2) },
      with_outputs(1))
    near(apart, (numbers("MultiHeadAttention", attrs, { x }, with_outputs(1))), 1e-5)
    local kv = x:slice_axis{ axis = 3, begin = 1, ["end"] = 3 }
    near(apart, (numbers("MultiHeadAttention", attrs, { part(0), kv }, with_outputs(1))), 1e-5)
  end)

  -- ONNX Runtime 1.32 gives these
  it("queries of one direction see the keys up to their own, the last one sees all", function()
    local want = { ["3 3"] = { 1, 5.5, 37 }, ["3 5"] = { 1, 5.5, 2222.2 }, ["1 4"] = { 277.75 },
      ["5 3"] = { 1, 5.5, 37, 37, 37 } }
    for sizes, expected in pairs(want) do
      local rows, columns = sizes:match "(%d) (%d)"
      local v = ty.nd.array{ { 1 }, { 10 }, { 100 }, { 1000 }, { 10000 } }
      v = v[{ ty.slice(0, tonumber(columns)) }]:expand_dims{ axis = 0 }
      near(expected, (numbers("MultiHeadAttention", { num_heads = 1, unidirectional = 1 },
        { ty.nd.zeros{ 1, tonumber(rows), 1 }, v * 0, v }, with_outputs(1))), 1e-2)
    end
  end)
end)

-- ONNX Runtime 1.32 gives these
it("means of levels divide by the whole window where it reaches beyond the padding", function()
  local x = array({ { { 10, 20, 30, 40, 50, 60 } } }, "uint8")
  local scale, zero = { of = ty.nd.ones{ 1 } }, { of = array({ 0 }, "uint8") }
  for counts, last in pairs{ [0] = 60, [1] = 20 } do
    local y = numbers("QLinearAveragePool", { kernel_shape = { 3 }, strides = { 2 },
      pads = { 1, 1 }, ceil_mode = 1, count_include_pad = counts },
      { { of = x }, scale, zero, scale, zero }, { domain = "com.microsoft",
        domains = { ["com.microsoft"] = 1 } })
    near({ counts == 1 and 10 or 15, 30, 50, last }, y)
  end
end)

describe("boxes that remain", function()
  -- Two that overlap by half, one apart.
  local BOXES = { { { 0, 0, 2, 2 }, { 2, 2, 0, 0.5 }, { 5, 5, 6, 6 } } }
  local SCORES = { { { 0.8, 0.9, 0.3 } } }

  local function chosen(most, overlap, least)
    local y = run_node("NonMaxSuppression", {}, { array(BOXES), array(SCORES),
      { of = whole{ most } }, { of = array{ overlap } }, { of = array{ least } } })[1]
    return y:totable(), y.dtype
  end

  it("are rows of sample, class and box", function()
    assert.same({ { { 0, 0, 1 }, { 0, 0, 2 } }, "int64" }, { chosen(3, 0.5, 0.1) })
    assert.same({ { 0, 0, 1 }, { 0, 0, 0 }, { 0, 0, 2 } }, (chosen(3, 0.9, 0.1)))
    assert.same({ { 0, 0, 1 } }, (chosen(1, 0.9, 0.1)))
    assert.same({ { 0, 0, 1 } }, (chosen(3, 0.5, 0.4)))
  end)

  it("are an output only, as a run finds their number", function()
    local nodes = { { "NonMaxSuppression", { "b", "s", "n" }, { "r" } },
      { "Neg", { "r" }, { "y" } } }
    folder.with(function(dir)
      folder.write(dir .. "/m.onnx", models.bytes{ nodes = nodes, outputs = { "y" },
        inputs = { b = { 1, 3, 4 }, s = { 1, 1, 3 } }, constants = { n = whole{ 3 } } })
      local ok, e = pcall(ty.onnx.import_model, dir .. "/m.onnx")
      assert.is_false(ok)
      assert.matches("'r' has as many rows as a run finds", e.message)
    end)
  end)
end)

describe("what older and newer files have", function()
  it("broadcasting along an axis before opset 7", function()
    local x, b = array{ { 1, 2 }, { 3, 4 } }, array{ 10, 20 }
    assert.same({ 11, 12, 23, 24 }, (numbers("Add", { broadcast = 1, axis = 0 }, { x, { of = b } },
      { opset = 6 })))
    assert.same({ 11, 22, 13, 24 }, (numbers("Add", { broadcast = 1 }, { x, { of = b } },
      { opset = 6 })))
    assert.same({ -10, 2, -40, 3 }, (numbers("PRelu", {}, { array{ { { -1, 2 }, { -2, 3 } } },
      { of = array{ 10, 20 } } }, { opset = 6 })))
  end)

  it("inputs without elements are known", function()
    for op, expected in pairs{ ReduceSum = 0, ReduceProd = 1, ReduceMax = -2 ^ 31 } do
      local shape = { 0, 2, type = INT32 }
      folder.with(function(dir)
        folder.write(dir .. "/m.onnx", models.bytes{ nodes = { { op, { "x" }, { "y" } } },
          outputs = { "y" }, inputs = { x = shape } })
        local sym, args, auxs = ty.onnx.import_model(dir .. "/m.onnx")
        assert.same({ { { expected } } }, { files.run(sym, args, auxs)[1]:totable() })
      end)
    end
  end)

  it("inputs whose open size is given as 0 have no elements", function()
    folder.with(function(dir)
      folder.write(dir .. "/m.onnx", models.bytes{ nodes = { { "Concat", { "past", "x" }, { "y" },
        { axis = 0 } } }, outputs = { "y" }, inputs = { past = { "length", 2 }, x = { 1, 2 } } })
      local sym, args, auxs = ty.onnx.import_model{ dir .. "/m.onnx", shapes = { past = { 0, 2 } } }
      args.x = array{ { 1, 2 } }
      assert.same({ "x" }, sym:list_arguments())
      assert.same({ { 1, 2 } }, files.run(sym, args, auxs)[1]:totable())
    end)
  end)

  it("attention of half types is rounded once", function()
    ty.random.seed(3)
    local function random() return ty.random.uniform{ 0, 1, shape = { 1, 1, 4, 8 } } end
    local q, k, v = random(), random(), random()
    local exact = numbers("Attention", { is_causal = 1 }, { q, k, v }, { opset = 23 })
    local function half(x) return { x:astype("bfloat16"), type = BFLOAT16 } end
    local wide = numbers("Attention", { is_causal = 1 }, { half(q), half(k), half(v) },
      { opset = 23 })
    near(exact, wide, 2 ^ -7)
  end)
end)

describe("operators of several steps over half types", function()
  local X = array{ 300, -400, 0, 500 }:reshape{ 1, 4, 1, 1 }
  local HALVES = { float16 = 10, bfloat16 = BFLOAT16 }

  -- Returns the numbers of a node whose input and constants are of a half type.
  local function run_half(dtype, op, attrs, constants, opset)
    local inputs = { { X:astype(dtype), type = HALVES[dtype] } }
    for i, x in ipairs(constants) do
      inputs[i + 1] = { of = x }
    end
    local got, kind = numbers(op, attrs, inputs, { opset = opset })
    assert.equal(dtype, kind)
    return got
  end

  it("square and sum in float32", function()
    local ones, norm = ty.nd.ones{ 4 }, math.sqrt(500000)
    for dtype in pairs(HALVES) do
      local one = ones:astype(dtype)
      near({ norm }, run_half(dtype, "ReduceL2", { axes = { 1 }, keepdims = 0 }, {}, 13), 3)
      near({ 300 / norm, -400 / norm, 0, 500 / norm },
        run_half(dtype, "LpNormalization", { axis = 1 }, {}), 0.004)
      near({ 300, 400, 0, 500 }, run_half(dtype, "GlobalLpPool", {}, {}), 2)
      near({ 300, 400, 0, 500 }, run_half(dtype, "LpPool", { kernel_shape = { 1, 1 } }, {}), 2)
      near({ 1, -1, 1, 1 }, run_half(dtype, "GroupNormalization", { num_groups = 2 },
        { one, one * array{ 0, 0, 2, 0 }:astype(dtype) }, 21), 0.02)
    end
  end)

  it("BatchNormalization has parameters and statistics of any float type", function()
    local scale, mean, variance = array{ 1, 2, 3, 4 }, array{ 300, 0, 1, 100 }, array{ 1, 4, 9, 16 }
    for dtype in pairs(HALVES) do
      for k = 0, 3 do
        local first, second = k % 2 == 1 and "float32" or dtype, k > 1 and "float32" or dtype
        local got = run_half(dtype, "BatchNormalization", { epsilon = { float = 0 } },
          { scale:astype(first), ty.nd.ones({ 4 }, { dtype = first }), mean:astype(second),
            variance:astype(second) }, 15)
        near({ 1, -399, 0, 401 }, got, 2)
      end
    end
  end)
end)

describe("gelu by tanh", function()
  it("keeps its digits far below 0", function()
    local x, expected = array{ -6, -5, -4, -1, 0, 2 }, { -8.43964670076e-11, -2.29179619663e-7,
      -7.02459481924e-5, -0.158808009392, 0, 1.95459769409 }
    local com_microsoft = { domain = "com.microsoft", domains = { ["com.microsoft"] = 1 } }
    for _, got in ipairs{ (numbers("FastGelu", {}, { x }, com_microsoft)),
        (numbers("Gelu", { approximate = "tanh" }, { x }, { opset = 20 })) } do
      for i, v in ipairs(expected) do
        assert.is_true(math.abs(got[i] - v) <= 4e-6 * math.abs(v), ("%g, expected %g")
          :format(got[i], v))
      end
    end
  end)
end)

describe("joined products of com.microsoft", function()
  local options = { domain = "com.microsoft", domains = { ["com.microsoft"] = 1 } }

  it("FusedMatMul moves rows behind the axes of the batch", function()
    local a, b = ty.nd.arange(24):reshape{ 2, 3, 4 }, ty.nd.arange(30):reshape{ 3, 2, 5 }
    local rows = a:transpose{ 1, 0, 2 }                    -- (3, 2, 4)
    for k = 0, 1 do
      local expected = ty.nd.batch_dot(k == 1 and rows or rows:transpose{ 0, 2, 1 }, k == 1
        and ty.nd.ones{ 3, 4, 5 } or b)
      local got, _, shape = numbers("FusedMatMul", { transA = 1 - k, transBatchA = 1 },
        { a, k == 1 and ty.nd.ones{ 3, 4, 5 } or b }, options)
      assert.same(expected.shape, shape)
      near(expected:reshape{ -1 }:totable(), got)
    end
    local right = ty.nd.arange(24):reshape{ 4, 3, 2 }      -- rows, batch, columns
    near(ty.nd.batch_dot(ty.nd.ones{ 3, 1, 4 }, right:transpose{ 1, 0, 2 }):reshape{ -1 }:totable(),
      (numbers("FusedMatMul", { transBatchB = 1 }, { ty.nd.ones{ 3, 1, 4 }, right }, options)))
  end)

  it("MatMulNBits has weights of 2, 4 and 8 bits", function()
    local x = ty.nd.zeros{ 1, 16 }
    x[0] = array{ 1, 10, 100, 1000, 1e4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
    for bits, bytes in pairs{ [8] = { 130, 127, 128, 129, 128 },
        [4] = { 16 * 7 + 10, 16 * 9 + 8, 8 }, [2] = { 1 + 4 * 0 + 16 * 2 + 64 * 3, 2 } } do
      local levels = {}
      for i = 1, 2 * bits do
        levels[i] = bytes[i] or 0
      end
      local attrs = { K = 16, N = 1, bits = bits, block_size = 16 }
      local sum = (bits == 2 and -1 - 20 or 2 - 10) + 1000
      local packed = { of = array(levels, "uint8"):reshape{ 1, 1, 2 * bits } }
      local scale = { of = array{ 0.5 } }
      near({ sum / 2 }, (numbers("MatMulNBits", attrs, { x, packed, scale }, options)))
      near({ (sum + 11111) / 2 }, (numbers("MatMulNBits", attrs, { x, packed, scale,
        { of = array({ 2 ^ bits / 2 - 1 }, "uint8") } }, options)), 1e-3)
    end
  end)
end)

describe("Einsum", function()
  local INF = 1 / 0

  it("without a result sums letters that are twice in a term", function()
    local x = array{ { 1, INF }, { 3, 4 } }
    assert.same({ 5 }, (numbers("Einsum", { equation = "ii" }, { x })))
    assert.same({ 1, 4 }, (numbers("Einsum", { equation = "ii->i" }, { x })))
    assert.same({ 10, 15 }, (numbers("Einsum", { equation = "ii,k" }, { x, array{ 2, 3 } })))
    assert.same({ 9 }, (numbers("Einsum", { equation = "ii,i" }, { x, array{ 1, 2 } })))
  end)
end)

describe("attributes and types at their limits", function()
  local function line(t, shape) return array(t):reshape(shape) end

  it("GridSample: a cubic's position is not clipped at the border", function()
    local x = line({ 4, 0, 0, 0 }, { 1, 1, 1, 4 })
    -- At -0.5 the weights are -3/32, 19/32, 19/32, -3/32; the first three fall on element 0.
    local got = numbers("GridSample", { mode = "cubic", padding_mode = "border" },
      { x, line({ -1, 0 }, { 1, 1, 1, 2 }) }, { opset = 20 })
    near({ 4 * 35 / 32 }, got)
  end)

  it("Resize of opset 10 takes the next pixel when it makes an image smaller", function()
    local x = line({ 1, 2, 3, 4, 5, 6, 7, 8 }, { 1, 1, 2, 4 })
    near({ 1, 3 }, (numbers("Resize", { mode = "nearest" }, { x, { of = array{ 1, 1, 0.6, 0.6 } } },
      { opset = 10 })))
    near({ 1, 1, 2, 2, 3, 3, 4, 4 }, (numbers("Resize", { mode = "nearest" },
      { line({ 1, 2, 3, 4 }, { 1, 1, 1, 4 }), { of = array{ 1, 1, 1, 2 } } }, { opset = 10 })))
  end)

  it("Resize has positions in float32", function()
    -- 0.1 * 5 is half in float32, and a little more in float64.
    local x = line({ 0, 1, 2, 3, 4, 5 }, { 1, 1, 6, 1 })
    near({ 0, 2, 4 }, (numbers("Resize", { mode = "nearest",
      coordinate_transformation_mode = "tf_crop_and_resize" }, { x,
      { of = array{ 0, 0, 0.1, 0, 1, 1, 0.8, 1 } }, false, { of = whole{ 1, 1, 3, 1 } } })))
    -- 2 / (4 / 7) is a little less than 3.5 in float32, 13 / (26 / 11) a little more than 5.5.
    for round, expected in pairs{ round_prefer_ceil = { 0, 2, 4, 5 }, round_prefer_floor =
        { 0, 2, 3, 5 } } do
      near(expected, (numbers("Resize", { mode = "nearest", nearest_mode = round,
        coordinate_transformation_mode = "asymmetric" }, { line({ 0, 1, 2, 3, 4, 5, 6 },
        { 1, 1, 7, 1 }), false, false, { of = whole{ 1, 1, 4, 1 } } })))
      local many = numbers("Resize", { mode = "nearest", nearest_mode = round,
        coordinate_transformation_mode = "asymmetric" }, { ty.nd.arange(11):reshape{ 1, 1, 11, 1 },
        false, false, { of = whole{ 1, 1, 26, 1 } } })
      assert.equal(round == "round_prefer_ceil" and 6 or 5, many[14])
    end
    -- One output element of pytorch_half_pixel is at 0.
    near({ 7 }, (numbers("Resize", { mode = "cubic",
      coordinate_transformation_mode = "pytorch_half_pixel" },
      { line({ 7, 1, 1, 5 }, { 1, 1, 1, 4 }), false, false, { of = whole{ 1, 1, 1, 1 } } })))
  end)

  it("ArgMax and Hardmax of more elements than a small type counts", function()
    local t = {}
    for i = 1, 3001 do
      t[i] = i == 2998 and 1 or 0
    end
    for dtype, code in pairs{ float16 = 10, uint8 = UINT8, bfloat16 = BFLOAT16 } do
      local x = { array(t, dtype), type = code }
      assert.same({ 2997 }, (numbers("ArgMax", {}, { x })))
      assert.same({ 0 }, (numbers("ArgMin", {}, { x })))
    end
    for dtype, code in pairs{ float16 = 10, float64 = 11 } do
      local got, kind = numbers("Hardmax", {}, { { array(t, dtype), type = code } })
      assert.same({ dtype, t }, { kind, got })
    end
  end)

  it("ConvTranspose whose output is larger than its windows reach, with a bias", function()
    local x, w, b = line({ 1, 2 }, { 1, 1, 2 }), line({ 3 }, { 1, 1, 1 }), array{ 10 }
    near({ 13, 10, 16, 10 }, (numbers("ConvTranspose", { strides = { 2 }, output_shape = { 4 } },
      { x, { of = w }, { of = b } })))
    -- 'SAME' has no negative borders.
    near({ 13, 10, 16 }, (numbers("ConvTranspose", { strides = { 2 }, auto_pad = "SAME_UPPER" },
      { x, { of = w }, { of = b } })))
  end)

  it("LRN over more channels than there are", function()
    local x = line({ 1, 2 }, { 1, 2, 1, 1 })
    local f = 1 / (1 + 5 / 3)
    near({ f, 2 * f }, (numbers("LRN", { size = 3, alpha = { float = 1 }, beta = { float = 1 } },
      { x })))
    f = 1 / (1 + 5 / 5)
    near({ f, 2 * f }, (numbers("LRN", { size = 5, alpha = { float = 1 }, beta = { float = 1 } },
      { x })))
  end)

  it("AveragePool whose window needs the border at the end", function()
    near({ 2.5 }, (numbers("AveragePool", { kernel_shape = { 5 }, pads = { 0, 1 },
      strides = { 2 } }, { line({ 1, 2, 3, 4 }, { 1, 1, 4 }) })))
  end)

  it("MaxPool with positions keeps the type", function()
    for dtype, code in pairs{ float64 = 11, uint8 = UINT8 } do
      local y = run_node("MaxPool", { kernel_shape = { 2 } },
        { { array({ { { 1, 3, 2 } } }, dtype), type = code } }, { outputs = 2 })
      assert.equal(dtype, y[1].dtype)
      assert.same({ { { { 3, 3 } } }, { { { 1, 1 } } } }, { y[1]:totable(), y[2]:totable() })
    end
  end)

  it("one scale in a list counts for all elements, whatever the axis", function()
    local x, zero = array({ 1, 2, 3 }, "int8"), { of = array({ 1 }, "int8") }
    near({ 0, 0.5, 1 }, (numbers("DequantizeLinear", { axis = 1 }, { { x, type = INT8 },
      { of = array{ 0.5 } }, zero })))
    near({ 3, 5, 7 }, (numbers("QuantizeLinear", { axis = 1 }, { array{ 1, 2, 3 },
      { of = array{ 0.5 } }, zero })))
  end)

  it("scales of a vector, along its axis and in blocks", function()
    local x, scale = array{ 4, 9, -3 }, { of = array{ 1, 2, 3 } }
    for _, axis in ipairs{ 0, -1 } do
      assert.same({ 4, 4, 0 }, (numbers("QuantizeLinear", { axis = axis }, { x, scale })))
      assert.same({ 4, 18, 9 }, (numbers("DequantizeLinear", { axis = axis },
        { { array({ 4, 9, 3 }, "uint8"), type = UINT8 }, scale })))
    end
    assert.same({ 4, 9, 6 }, (numbers("DequantizeLinear", { axis = 0, block_size = 2 },
      { { array({ 4, 9, 3 }, "uint8"), type = UINT8 }, { of = array{ 1, 2 } } }, { opset = 21 })))
  end)

  it("QuantizeLinear to floats of 8 bits", function()
    local x, scale = array{ 0, 1, 2.2, 1000, 2e5, -2e5 }, { of = array{ 2 } }
    local zero = { of = { type = E4M3FN, dims = {}, raw = "\0" } }
    near({ 0, 0.5, 1.125, 448, 448, -448 }, (numbers("QuantizeLinear", {}, { x, scale, zero },
      { opset = 19 })))
    near({ 0, 0.5, 1, 512, 57344, -57344 }, (numbers("QuantizeLinear", { output_dtype = E5M2 },
      { x, scale }, { opset = 21 })))
  end)

  it("DeformConv reads places just outside an image between its border and zeros", function()
    local x, weight = array{ { { { 4, 2 }, { 8, 6 } } } }, array{ { { { 1 } } } }
    -- Down and across, of each place.
    local offset = array{ { { { -0.5, 0 }, { 0.5, 0.75 } }, { { 0, 0.5 }, { -0.25, 0.5 } } } }
    local expected = { 2, 1, 3, 0.75 }
    near(expected, (numbers("DeformConv", {}, { x, { of = weight }, offset }, { opset = 19 })))
    near({ 3, 2, 4, 1.75 }, (numbers("DeformConv", {}, { x, { of = weight }, offset,
      { of = array{ 1 } } }, { opset = 19 })))
  end)

  it("regions of images that are larger than those they were found in", function()
    local x = array{ { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 }, { 13, 14, 15, 16 } } } }
    local half, full = array{ { 0, 0, 1, 2 } }, array{ { 0, 0, 2, 4 } }
    local batch = { array({ 0 }, "int64"), type = INT64 }
    for _, mode in ipairs{ "avg", "max" } do
      local function align(boxes, scale)
        return (numbers("RoiAlign", { mode = mode, output_height = 2, output_width = 2,
          sampling_ratio = 2, spatial_scale = { float = scale } }, { x, boxes, batch }))
      end
      near(align(full, 1), align(half, 2))
    end
    local function pool(boxes, scale)
      return (numbers("MaxRoiPool", { pooled_shape = { 2, 2 }, spatial_scale = { float = scale } },
        { x, boxes }))
    end
    near(pool(array{ { 0, 0, 0, 2, 2 } }, 1), pool(array{ { 0, 0, 0, 1, 1 } }, 2))
  end)

  it("Cast of a negative number to a wider unsigned type wraps", function()
    assert.same({ 65408, 65535, 7 }, (numbers("Cast", { to = UINT16 }, { { array({ -128, -1, 7 },
      "int8"), type = INT8 } })))
    assert.same({ 2 ^ 32 - 128, 7 }, (numbers("Cast", { to = UINT32 }, { { array({ -128, 7 },
      "int8"), type = INT8 } })))
  end)

  it("Shrink of integers rounds after the bias", function()
    assert.same({ 98, 0, -98 }, (numbers("Shrink", { lambd = { float = 1.5 },
      bias = { float = 1.5 } }, { { array({ 100, 1, -100 }, "int32"), type = INT32 } })))
  end)

  it("Celu below 0 for any alpha", function()
    near({ -1, 1 - math.exp(0.5), 2 }, (numbers("Celu", { alpha = { float = -1 } },
      { array{ -math.log(2), -0.5, 2 } })))
  end)

  it("GridSample of a place that is no number", function()
    local x = array{ { { { 1, 2 }, { 3, 4 } } } }
    local grid = array{ { { { 0 / 0, 1 }, { 0.5, 0.5 } } } }
    for _, border in ipairs{ "zeros", "border", "reflection" } do
      local got = numbers("GridSample", { mode = "nearest", padding_mode = border }, { x, grid })
      assert.equal(4, got[2])
      got = numbers("GridSample", { padding_mode = border, align_corners = 1 }, { x, grid })
      near({ 0 / 0, 3.25 }, got)
    end
  end)

  it("EyeLike of no rows has none", function()
    local y = run_node("EyeLike", { dtype = FLOAT }, { { of = ty.nd.ones{ 2, 3 } } })
    assert.same({ { 1, 0, 0 }, { 0, 1, 0 } }, y[1]:totable())
    local ok, e = pcall(numbers, "EyeLike", {}, { { of = { type = FLOAT, dims = { 0, 3 } } } })
    assert.is_false(ok)
    assert.equal("unsupported", e.code)
    assert.matches("an array without elements", e.message)
  end)

  it("Compress by more conditions than there are elements is refused", function()
    local ok, e = pcall(numbers, "Compress", { axis = 0 }, { array{ 1, 2 },
      { of = array({ 1, 0, 1 }, "bool") } })
    assert.is_false(ok)
    assert.equal("format", e.code)
    assert.matches("condition 2 of axis 0, which has 2 elements", e.message)
  end)

  it("Attention gives scores before the limit of softcap, after it, with the mask, as weights",
    function()
      local q, k = array{ { { { 1, 0 } } } }, array{ { { { 2, 0 }, { 0, 1 } } } }
      local bias = { of = array{ { 0.5, 0 } } }
      local top = math.exp(math.tanh(2) + 0.5)
      for mode, expected in pairs{ [0] = { 2, 0 }, { math.tanh(2), 0 }, { math.tanh(2) + 0.5, 0 },
          { top / (top + 1), 1 / (top + 1) } } do
        local y = run_node("Attention", { scale = { float = 1 }, softcap = { float = 1 },
          qk_matmul_output_mode = mode }, { q, k, k, bias }, { opset = 23, outputs = 4 })
        near(expected, y[4]:reshape{ -1 }:totable())
      end
    end)

  it("Dropout does not need to know its ratio, and its first masks are numbers", function()
    local y = run_node("Dropout", {}, { array{ 1, 2 }, array{ 0.25 } }, { outputs = 2 })
    assert.same({ { 1, 2 }, "bool" }, { y[1]:totable(), y[2].dtype })
    y = run_node("Dropout", { ratio = { float = 0.5 } }, { array{ 1, 2 } },
      { outputs = 2, opset = 7 })
    assert.same({ { 1, 2 }, "float32" }, { y[1]:totable(), y[2].dtype })
  end)
end)
