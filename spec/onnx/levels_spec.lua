-- Quantized ONNX networks on the kernels of 8-bit integers: which steps they become, and their
-- numbers compared with the formulas in float64.
local device = require "spec.support.device"
local files = require "spec.support.onnx_files"
local folder = require "spec.support.folder"
local models = require "spec.support.onnx_models"
local ty = require "tycho"
require "spec.helper"

local nd = ty.nd
local RANGE = { int8 = { -128, 127 }, uint8 = { 0, 255 } }
local CODES = { uint8 = 2, int8 = 3 }

local function levels(dtype, least, most, ...)
  return nd.random.randint(least, most + 1, { shape = { ... } }):astype(dtype)
end

local function wide(x) return x:astype "float64" end

local function channels(x, rank)
  local shape = { 1, x.size }
  for i = 3, rank do
    shape[i] = 1
  end
  return wide(x):reshape(shape)
end

local function encode(x, scale, zero, dtype)
  return nd.clip{ nd.contrib.round_half_even(x / scale) + zero, a_min = RANGE[dtype][1],
    a_max = RANGE[dtype][2] }
end

local function import(model)
  local sym, args, auxs
  folder.with(function(dir)
    folder.write(dir .. "/model.onnx", models.bytes(model))
    sym, args, auxs = ty.onnx.import_model{ dir .. "/model.onnx" }
    for _, x in pairs(args) do
      x:wait_to_read()
    end
  end)
  return sym, args, auxs
end

-- Returns the outputs of a model for inputs, and the program.
local function run(model, inputs)
  local sym, args, auxs = import(model)
  for name, x in pairs(inputs) do
    args[name] = x
  end
  local exe = files.bind(sym, args, auxs)
  exe:forward{ is_train = false }
  return exe.outputs, exe:program()
end

-- Asserts how many steps of a program are of each kernel. A GPU has no kernels of 8-bit integers:
-- an import for one computes in floats.
local function has_steps(program, counts)
  for kernel, n in pairs(device.is_gpu and { int8 = 0 } or counts) do
    local found = 0
    for line in program:gmatch "[^\n]+" do
      found = found + (line:match "^ *%d+ +(%S+)" == kernel and 1 or 0)
    end
    assert.equal(n, found, kernel .. "\n" .. program)
  end
end

-- Asserts that levels agree; they may differ by one where a number is between two.
local function is_near(want, got, dtype)
  assert.equal(dtype, got.dtype)
  assert.same(want.shape, got.shape)
  local off = (wide(got) - want):abs()
  local most = off:max():asscalar()
  assert.is_true(most <= 1.001, ("%g levels off"):format(most))
  assert.is_true(off:sum():asscalar() <= 1 + 0.004 * off.size,
    ("%g levels off in all"):format(off:sum():asscalar()))
end

-- Adds the constants of a QuantizeLinear or DequantizeLinear under a name.
local function pair(constants, name, scale, zero, dtype)
  constants[name .. "_scale"] = nd.array{ scale }
  constants[name .. "_zero"] = nd.array({ zero }, { dtype = dtype })
end

local function q(x, name, y)
  return { "QuantizeLinear", { x, name .. "_scale", name .. "_zero" }, { y } }
end

local function dq(x, name, y)
  return { "DequantizeLinear", { x, name .. "_scale", name .. "_zero" }, { y } }
end

describe("QDQ pairs", function()
  local X, Y = 0.02, 0.05                                -- what levels of x and y stand for
  before_each(function() ty.random.seed(5) end)

  -- Returns a model x -> Q -> DQ -> Conv(DQ weight per channel, bias) -> limits -> Q -> DQ.
  local function conv(o)
    local c = { w = levels("int8", -127, 127, 6, 4, 3, 3), w_scale = nd.random.uniform{ 0.005, 0.02,
      shape = { 6 } }, w_zero = nd.zeros({ 6 }, { dtype = "int8" }),
      b = nd.random.normal{ shape = { 6 } }, least = nd.array{ 0 }, most = nd.array{ o.most or 0 } }
    pair(c, "x", X, o.x_zero, o.dtype)
    pair(c, "y", Y, o.zero, o.dtype)
    local nodes = { q("x", "x", "xq"), dq("xq", "x", "xd"),
      { "DequantizeLinear", { "w", "w_scale", "w_zero" }, { "wd" }, { axis = 0 } },
      { "Conv", { "xd", "wd", "b" }, { "c" }, { pads = { 1, 1, 1, 1 }, kernel_shape = { 3, 3 } } } }
    local last = "c"
    if o.relu then
      nodes[#nodes + 1], last = { "Relu", { last }, { "r" } }, "r"
    elseif o.most then
      nodes[#nodes + 1], last = { "Clip", { last, "least", "most" }, { "r" } }, "r"
    end
    nodes[#nodes + 1] = q(last, "y", "yq")
    nodes[#nodes + 1] = dq("yq", "y", "y")
    local model = { nodes = nodes, inputs = { x = { 2, 4, 7, 8 } }, constants = c,
      outputs = { "y" } }
    local x = nd.random.uniform{ -1, 1, shape = { 2, 4, 7, 8 } }
    local xq = encode(wide(x), X, o.x_zero, o.dtype) - o.x_zero
    local y = nd.Convolution{ xq, wide(c.w), kernel = { 3, 3 }, pad = { 1, 1 }, num_filter = 6,
      no_bias = true } * X
    y = nd.broadcast_add(nd.broadcast_mul(y, channels(c.w_scale, 4)), channels(c.b, 4))
    if o.relu or o.most then
      y = nd.clip{ y, a_min = 0, a_max = o.most or 1e9 }
    end
    local want = (encode(y, Y, o.zero, o.dtype) - o.zero) * Y
    local got, program = run(model, { x = x })
    is_near(want / Y, got[1] / Y, "float32")
    return program
  end

  it("around a convolution are one step", function()
    for _, o in ipairs{ { dtype = "uint8", x_zero = 51, zero = 100 },
        { dtype = "int8", x_zero = 0, zero = -3, relu = true },
        { dtype = "uint8", x_zero = 9, zero = 0, relu = true },
        { dtype = "uint8", x_zero = 9, zero = 0, most = 255 * Y } } do
      local program = conv(o)
      has_steps(program, { int8 = 1, panels = 0, oneDNN = 0, pointwise = 2 })  -- Q of x, DQ of y
    end
  end)

  it("keep limits inside the levels' range as a step", function()
    local program = conv{ dtype = "uint8", x_zero = 9, zero = 0, most = 4 }
    has_steps(program, { int8 = 1, pointwise = 2 })
  end)

  it("around products take weights, zero points and biases", function()
    for _, o in ipairs{ { "Gemm", "int8", 0 }, { "Gemm", "uint8", 130 }, { "MatMul", "uint8", 121 },
        { "MatMul", "int8", 0 } } do
      local kind, dtype, w_zero = unpack(o)
      local c = { w = kind == "Gemm" and levels(dtype, w_zero - 120, w_zero + 110, 9, 20)
        or levels(dtype, w_zero - 120, w_zero + 110, 20, 9), b = nd.random.normal{ shape = { 9 } } }
      pair(c, "x", X, 77, "uint8")
      pair(c, "y", 0.5, 128, "uint8")
      pair(c, "w", 0.01, w_zero, dtype)
      local nodes = { q("x", "x", "xq"), dq("xq", "x", "xd"), dq("w", "w", "wd") }
      local shape = kind == "Gemm" and { 5, 20 } or { 3, 5, 20 }
      if kind == "Gemm" then
        nodes[4] = { "Gemm", { "xd", "wd", "b" }, { "c" }, { transB = 1 } }
      else
        nodes[4] = { "MatMul", { "xd", "wd" }, { "m" } }
        nodes[5] = { "Add", { "m", "b" }, { "c" } }
      end
      nodes[#nodes + 1] = q("c", "y", "yq")
      nodes[#nodes + 1] = dq("yq", "y", "y")
      local x = nd.random.uniform{ -1.5, 3, shape = shape }
      local w = wide(c.w) - w_zero
      local y = nd.dot{ encode(wide(x), X, 77, "uint8") - 77, w, transpose_b = kind == "Gemm" }
        * (X * 0.01)
      y = nd.broadcast_add(y, wide(c.b):reshape(kind == "Gemm" and { 1, 9 } or { 1, 1, 9 }))
      local want = encode(y, 0.5, 128, "uint8") - 128
      local got, program = run({ nodes = nodes, inputs = { x = shape }, constants = c,
        outputs = { "y" } }, { x = x })
      is_near(want, got[1] / 0.5, "float32")
      has_steps(program, { int8 = 1, gemm = 0, pointwise = 2 })
    end
  end)

  it("of both sides of a sum after a convolution are read by it", function()
    local c = { w = levels("int8", -127, 127, 4, 4, 1, 1) }
    pair(c, "x", X, 30, "uint8")
    pair(c, "w", 0.01, 0, "int8")
    pair(c, "y", 0.0513, 0, "uint8")
    local nodes = { q("x", "x", "xq"), dq("xq", "x", "xd"), dq("w", "w", "wd"),
      { "Conv", { "xd", "wd" }, { "c" }, { kernel_shape = { 1, 1 } } },
      { "Add", { "c", "xd" }, { "a" } }, { "Relu", { "a" }, { "r" } }, q("r", "y", "yq"),
      dq("yq", "y", "y") }
    local x = nd.random.uniform{ -1, 4, shape = { 2, 4, 6, 5 } }
    local xd = (encode(wide(x), X, 30, "uint8") - 30) * X
    local y = nd.Convolution{ xd, wide(c.w) * 0.01, kernel = { 1, 1 }, num_filter = 4,
      no_bias = true } + xd
    local got, program = run({ nodes = nodes, inputs = { x = x.shape }, constants = c,
      outputs = { "y" } }, { x = x })
    is_near(encode(nd.maximum(y, 0), 0.0513, 0, "uint8"), got[1] / 0.0513, "float32")
    has_steps(program, { int8 = 1, pointwise = 2 })
  end)

  it("stay where something else reads a value, or the weight has more than 8 bits", function()
    local function net(outputs, w)
      local c = { w = w, w_scale = nd.array{ 0.01 } }
      pair(c, "x", X, 30, "uint8")
      pair(c, "y", Y, 0, "uint8")
      c.w_zero = nd.array({ w.dtype == "uint8" and 10 or 0 }, { dtype = w.dtype })
      local _, program = run({ nodes = { q("x", "x", "xq"), dq("xq", "x", "xd"), dq("w", "w", "wd"),
        { "MatMul", { "xd", "wd" }, { "c" } }, q("c", "y", "yq"), dq("yq", "y", "y") },
        inputs = { x = { 3, 8 } }, constants = c, outputs = outputs }, { x = nd.ones{ 3, 8 } })
      return program
    end
    local program = net({ "y", "c" }, levels("int8", -127, 127, 8, 5))
    has_steps(program, { int8 = 1, pointwise = 2 })  -- Q of x; Q and DQ of y
    program = net({ "y" }, nd.full({ 8, 5 }, 255):astype "uint8")
    has_steps(program, { int8 = 0, gemm = 1 })
  end)
end)

describe("an import for a GPU", function()
  it("computes quantized layers in floats", function()
    local c = { w = levels("int8", -128, 127, 20, 7), w_zero = nd.zeros({ 1 }, { dtype = "int8" }),
      w_scale = nd.array{ 0.02 } }
    pair(c, "x", 0.03, 140, "uint8")
    pair(c, "y", 0.4, 90, "uint8")
    local bytes = models.bytes{ nodes = { { "QLinearMatMul", { "x", "x_scale", "x_zero", "w",
      "w_scale", "w_zero", "y_scale", "y_zero" }, { "y" } } },
      inputs = { x = { 5, 20, type = 2 } }, constants = c, outputs = { "y" } }
    folder.with(function(dir)
      folder.write(dir .. "/model.onnx", bytes)
      for ctx, has in pairs{ [ty.cpu(0)] = true, [ty.gpu()] = false } do
        local text = ty.onnx.import_model{ dir .. "/model.onnx", ctx = ctx }:tojson()
        assert.equal(has, text:find("_contrib_int8_", 1, true) ~= nil)
      end
    end)
  end)
end)

describe("operators on levels", function()
  before_each(function() ty.random.seed(6) end)

  it("QLinearConv", function()
    for _, o in ipairs{ { "uint8", 100, { 1, 1, 1, 1 } }, { "int8", -7, { 0, 1, 2, 0 } } } do
      local dtype, zero, pads = unpack(o)
      local c = { w = levels("int8", -128, 127, 6, 3, 3, 3),
        w_zero = nd.zeros({ 6 }, { dtype = "int8" }),
        w_scale = nd.random.uniform{ 0.005, 0.02, shape = { 6 } },
        b = levels("int32", -3000, 3000, 6) }
      pair(c, "x", 0.03, zero, dtype)
      pair(c, "y", 0.2, 5, dtype)
      local x = levels(dtype, RANGE[dtype][1], RANGE[dtype][2], 2, 3, 7, 6)
      local got, program = run({ nodes = { { "QLinearConv", { "x", "x_scale", "x_zero", "w",
        "w_scale", "w_zero", "y_scale", "y_zero", "b" }, { "y" }, { pads = pads } } },
        inputs = { x = { 2, 3, 7, 6, type = CODES[dtype] } }, constants = c, outputs = { "y" } },
        { x = x })
      local padded = nd.Pad{ wide(x) - zero, mode = "constant",
        pad_width = { 0, 0, 0, 0, pads[1], pads[3], pads[2], pads[4] } }
      local y = nd.broadcast_add(nd.Convolution{ padded, wide(c.w), kernel = { 3, 3 },
        num_filter = 6, no_bias = true }, channels(c.b, 4))
      y = nd.broadcast_mul(y, channels(c.w_scale, 4)) * 0.03
      is_near(encode(y, 0.2, 5, dtype), got[1], dtype)
      has_steps(program, { int8 = 1, pointwise = 0 })
    end
  end)

  it("QLinearMatMul", function()
    local c = { w = levels("int8", -128, 127, 20, 7), w_zero = nd.zeros({ 1 }, { dtype = "int8" }),
      w_scale = nd.array{ 0.02 } }
    pair(c, "x", 0.03, 140, "uint8")
    pair(c, "y", 0.4, 90, "uint8")
    local x = levels("uint8", 0, 255, 2, 5, 20)
    local got, program = run({ nodes = { { "QLinearMatMul", { "x", "x_scale", "x_zero", "w",
      "w_scale", "w_zero", "y_scale", "y_zero" }, { "y" } } },
      inputs = { x = { 2, 5, 20, type = 2 } }, constants = c, outputs = { "y" } }, { x = x })
    is_near(encode(nd.dot(wide(x) - 140, wide(c.w)) * 6e-4, 0.4, 90, "uint8"), got[1], "uint8")
    has_steps(program, { int8 = 1, pointwise = 0 })
  end)

  it("ConvInteger, with a zero point that is known or comes from a run", function()
    for _, o in ipairs{ { "constant", { 1, 1, 1, 1 } }, { "input", { 1, 1, 1, 1 } },
        { "input", { 0, 2, 1, 0 } } } do
      local kind, pads = unpack(o)
      local x, zero = levels("uint8", 0, 255, 2, 3, 6, 7), nd.array({ 131 }, { dtype = "uint8" })
      local c = { w = levels("int8", -128, 127, 5, 3, 3, 3) }
      c.z = kind == "constant" and zero or nil
      local inputs = { x = { 2, 3, 6, 7, type = 2 },
        z = kind == "input" and { 1, type = 2 } or nil }
      local got, program = run({ nodes = { { "ConvInteger", { "x", "w", "z" }, { "y" },
        { pads = pads } } }, inputs = inputs, constants = c, outputs = { "y" } },
        { x = x, z = zero })
      local padded = nd.Pad{ wide(x) - 131, mode = "constant",
        pad_width = { 0, 0, 0, 0, pads[1], pads[3], pads[2], pads[4] } }
      local want = nd.Convolution{ padded, wide(c.w), kernel = { 3, 3 }, num_filter = 5,
        no_bias = true }
      assert.equal("int32", got[1].dtype)
      assert.equal(0, (wide(got[1]) - want):abs():max():asscalar())
      has_steps(program, { int8 = 1 })
    end
  end)

  it("DynamicQuantizeLinear and MatMulInteger", function()
    local x = nd.random.normal{ 0.5, 1, shape = { 6, 30 } }
    local c = { w = levels("int8", -127, 127, 30, 8), w_scale = nd.array{ 0.02 } }
    local got, program = run({ nodes = { { "DynamicQuantizeLinear", { "x" }, { "q", "s", "z" } },
      { "MatMulInteger", { "q", "w", "z" }, { "m" } }, { "Cast", { "m" }, { "f" }, { to = 1 } },
      { "Mul", { "s", "w_scale" }, { "t" } }, { "Mul", { "f", "t" }, { "y" } } },
      inputs = { x = { 6, 30 } }, constants = c, outputs = { "y" } }, { x = x })
    local most, least = wide(x):max():asscalar(), wide(x):min():asscalar()
    local scale = (most - least) / 255
    local zero = math.floor(-least / scale + 0.5)
    local want = nd.dot(encode(wide(x), scale, zero, "uint8") - zero, wide(c.w)) * (scale * 0.02)
    local off = (wide(got[1]) - want):abs():max():asscalar()
    assert.is_true(off <= 0.02 * scale * 127 * 2, ("%g off"):format(off))
    has_steps(program, { int8 = 1 })
  end)
end)
