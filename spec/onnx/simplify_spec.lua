-- What an import makes of constants after products and of layer normalisations in parts: fewer
-- operators, the same numbers. A network whose intermediate value is an output too stays as the
-- file has it, and is what the rewritten one is compared with.
local files = require "spec.support.onnx_files"
local folder = require "spec.support.folder"
local models = require "spec.support.onnx_models"
local json = require "spec.support.json"
local ty = require "tycho"
require "spec.helper"

local BOUND = 2e-6                                       -- of the largest element

local function random(...) return ty.nd.random.uniform{ -1, 1, shape = { ... } } end

local function load(model, outputs)
  local sym, args, auxs
  folder.with(function(dir)
    local copy = {}
    for key, v in pairs(model) do
      copy[key] = v
    end
    copy.outputs = outputs
    folder.write(dir .. "/model.onnx", models.bytes(copy))
    sym, args, auxs = ty.onnx.import_model{ dir .. "/model.onnx" }
    for _, x in pairs(args) do
      x:wait_to_read()
    end
  end)
  return sym, args, auxs
end

local function operators(sym)
  local list = {}
  for _, node in ipairs(json.decode(sym:tojson()).nodes) do
    list[#list + 1] = node.op ~= "null" and node.op or nil
  end
  return table.concat(list, " ")
end

-- Returns the operators of model with output y; y must be the same with output `kept`, too.
local function check(model, kept)
  ty.random.seed(3)
  local inputs = {}
  for name, shape in pairs(model.inputs) do
    inputs[name] = random(unpack(shape))
  end
  local function run_network(sym, args, auxs)
    for name, x in pairs(inputs) do
      args[name] = x
    end
    return files.run(sym, args, auxs)
  end
  local sym, args, auxs = load(model, { "y" })
  local whole = run_network(load(model, { "y", kept }))
  local off = files.difference({ whole[1] }, run_network(sym, args, auxs))
  assert.is_true(off < BOUND, ("off by %g"):format(off))
  return operators(sym), args
end

local function conv(bias)
  return { "Conv", { "x", "w", bias }, { "c" }, { pads = { 1, 1, 1, 1 }, kernel_shape = { 3, 3 } } }
end

local function after_conv(nodes, constants)
  constants.w = random(4, 3, 3, 3)
  return { nodes = nodes, inputs = { x = { 2, 3, 5, 5 } }, constants = constants }
end

describe("a constant after a product", function()
  it("is its bias", function()
    for _, shape in ipairs{ { 4, 1, 1 }, { 1, 4, 1, 1 } } do
      local model = after_conv({ conv(), { "Add", { "c", "s" }, { "y" } } },
        { s = random(unpack(shape)) })
      assert.equal("Convolution", (check(model, "c")))
    end
    local ops, args = check(after_conv({ conv "b", { "Add", { "s", "c" }, { "y" } } },
      { s = random(4, 1, 1), b = random(4) }), "c")
    assert.equal("Convolution", ops)
    assert.is_nil(args.b)
    assert.is_nil(args.s)
  end)

  it("multiplies its weight and bias", function()
    local nodes = { conv "b", { "Mul", { "c", "s" }, { "m" } }, { "Add", { "m", "t" }, { "y" } } }
    local constants = { s = random(4, 1, 1), t = random(4, 1, 1), b = random(4) }
    assert.equal("Convolution", (check(after_conv(nodes, constants), "c")))
    nodes = { { "Gemm", { "x", "w" }, { "c" }, { transB = 1 } }, { "Mul", { "c", "s" }, { "m" } },
      { "Add", { "m", "t" }, { "y" } } }
    assert.equal("FullyConnected", (check({ nodes = nodes, inputs = { x = { 3, 5 } },
      constants = { w = random(4, 5), s = random(4), t = random(1, 4) } }, "c")))
  end)

  it("is the bias of a transposed convolution, and no factor of its weight", function()
    local up = { "ConvTranspose", { "x", "w" }, { "c" }, { kernel_shape = { 2, 2 },
      strides = { 2, 2 } } }
    local model = { nodes = { up, { "Add", { "c", "s" }, { "y" } } },
      inputs = { x = { 1, 3, 4, 4 } }, constants = { w = random(3, 4, 2, 2), s = random(4, 1, 1) } }
    assert.equal("Deconvolution", (check(model, "c")))
    model.nodes[2][1] = "Mul"
    assert.equal("Deconvolution broadcast_mul", (check(model, "c")))
  end)

  it("stays where it is no vector of channels", function()
    for _, shape in ipairs{ { 5 }, { 1, 1, 5, 5 }, { 2, 4, 1, 1 }, { 1, 1, 4, 1, 1 } } do
      local add = { "Add", { "c", "s" }, { "y" } }
      local ops = check(after_conv({ conv(), add }, { s = random(unpack(shape)) }), "c")
      assert.equal("Convolution broadcast_add", ops)
    end
  end)

  it("stays where the product or the other side has another reader", function()
    local nodes = { conv(), { "Add", { "c", "s" }, { "a" } }, { "Mul", { "a", "c" }, { "y" } } }
    local ops = check(after_conv(nodes, { s = random(4, 1, 1) }), "c")
    assert.equal("Convolution broadcast_add elemwise_mul", ops)
  end)

  it("leaves the names of inputs alone", function()
    local nodes = { conv(), { "Add", { "c", "s" }, { "a" } },
      { "Add", { "a", "a_bias" }, { "y" } } }
    local model = after_conv(nodes, { s = random(4, 1, 1) })
    model.inputs.a_bias = { 2, 4, 5, 5 }
    local ops, args = check(model, "c")
    assert.equal("Convolution elemwise_add", ops)
    assert.same({ 4 }, args.a_bias_.shape)
  end)
end)

describe("a layer normalisation in parts", function()
  local function parts(axis, power)
    local square = power and { "Pow", { "d", "two" }, { "q" } } or { "Mul", { "d", "d" }, { "q" } }
    return { nodes = {
      { "ReduceMean", { "x" }, { "u" }, { axes = { axis } } },
      { "Sub", { "x", "u" }, { "d" } },
      square,
      { "ReduceMean", { "q" }, { "v" }, { axes = { axis } } },
      { "Add", { "v", "eps" }, { "e" } },
      { "Sqrt", { "e" }, { "r" } },
      { "Div", { "d", "r" }, { "n" } },
      { "Mul", { "n", "gamma" }, { "g" } },
      { "Add", { "g", "beta" }, { "y" } },
    }, inputs = { x = { 2, 3, 6 } }, opset = 13, constants = { two = ty.nd.array{ 2 },
      eps = ty.nd.array{ 1e-5 }, gamma = random(6), beta = random(6) } }
  end

  it("is one operator", function()
    for _, axis in ipairs{ -1, 2 } do
      for _, power in ipairs{ true, false } do
        assert.equal("LayerNorm", (check(parts(axis, power), "g")))
      end
    end
  end)

  it("stays in parts over another axis, or with a scale of another size", function()
    assert.matches("mean", (check(parts(1, true), "g")))
    local model = parts(-1, true)
    model.constants.gamma = random(1)
    assert.matches("mean", (check(model, "g")))
  end)
end)

describe("an activation in parts", function()
  local constants = { root = ty.nd.array{ math.sqrt(2) }, inverse = ty.nd.array{ math.sqrt(0.5) },
    half = ty.nd.array{ 0.5 }, one = ty.nd.array{ 1 }, three = ty.nd.array{ 3 },
    six = ty.nd.array{ 6 }, zero = ty.nd.array{ 0 } }

  local function after_product(nodes)
    local list = { { "Mul", { "a", "a" }, { "x" } } }
    for _, n in ipairs(nodes) do
      list[#list + 1] = n
    end
    return { nodes = list, inputs = { a = { 3, 7 } }, opset = 13, constants = constants }
  end

  it("is gelu, wherever the half is", function()
    local erf = { { "Div", { "x", "root" }, { "e" } }, { "Erf", { "e" }, { "f" } },
      { "Add", { "f", "one" }, { "p" } } }
    local ends = {
      { { "Mul", { "x", "p" }, { "m" } }, { "Mul", { "m", "half" }, { "y" } } },
      { { "Mul", { "x", "half" }, { "m" } }, { "Mul", { "p", "m" }, { "y" } } },
      { { "Mul", { "p", "half" }, { "m" } }, { "Mul", { "x", "m" }, { "y" } } },
    }
    for _, last in ipairs(ends) do
      local model = after_product{ erf[1], erf[2], erf[3], last[1], last[2] }
      assert.equal("elemwise_mul LeakyReLU", (check(model, "m")))
    end
    erf[1] = { "Mul", { "inverse", "x" }, { "e" } }
    local model = after_product{ erf[1], erf[2], erf[3], ends[1][1], ends[1][2] }
    assert.equal("elemwise_mul LeakyReLU", (check(model, "m")))
  end)

  it("stays where the half or the argument is another", function()
    local model = after_product{ { "Div", { "x", "three" }, { "e" } }, { "Erf", { "e" }, { "f" } },
      { "Add", { "f", "one" }, { "p" } }, { "Mul", { "x", "p" }, { "m" } },
      { "Mul", { "m", "half" }, { "y" } } }
    assert.matches("erf", (check(model, "m")))
    model = after_product{ { "Div", { "x", "root" }, { "e" } }, { "Erf", { "e" }, { "f" } },
      { "Add", { "f", "one" }, { "p" } }, { "Mul", { "a", "p" }, { "m" } },
      { "Mul", { "m", "half" }, { "y" } } }
    assert.matches("erf", (check(model, "m")))
  end)

  it("is hard_swish", function()
    local nodes = { { "Add", { "x", "three" }, { "s" } },
      { "Clip", { "s", "zero", "six" }, { "c" } },
      { "Mul", { "x", "c" }, { "m" } }, { "Div", { "m", "six" }, { "y" } } }
    assert.equal("elemwise_mul hard_sigmoid elemwise_mul", (check(after_product(nodes), "m")))
    nodes[4] = { "Div", { "m", "three" }, { "y" } }
    assert.matches("_div_scalar", (check(after_product(nodes), "m")))
  end)
end)


describe("a leaky activation before the largest of a window", function()
  local function model(pooling, slope, shape)
    return { nodes = { { "LeakyRelu", { "x" }, { "a" }, { alpha = { float = slope } } },
      { pooling[1], { "a" }, { "y" }, pooling[2] } }, inputs = { x = shape or { 2, 3, 7, 9 } } }
  end
  local function max(attrs) return { "MaxPool", attrs } end

  it("is computed after it", function()
    local MOVED = "Pooling LeakyReLU"
    assert.equal(MOVED, (check(model(max{ kernel_shape = { 1, 4 }, strides = { 1, 4 } }, 0.2),
      "a")))
    assert.equal(MOVED, (check(model(max{ kernel_shape = { 3, 3 }, strides = { 2, 2 },
      pads = { 1, 1, 1, 1 } }, 0.01), "a")))
    assert.equal(MOVED, (check(model(max{ kernel_shape = { 2, 2 }, strides = { 2, 2 } }, 0.2,
      { 1, 1, 2, 2 }), "a")))
    assert.equal(MOVED, (check(model(max{ kernel_shape = { 1 } }, 0.2, { 1, 1, 1 }), "a")))
    assert.equal(MOVED, (check(model({ "GlobalMaxPool" }, 0.2), "a")))
  end)

  it("stays where its order or the choice is another, or there is more to compute", function()
    local STAYS = "LeakyReLU Pooling"
    local small = { kernel_shape = { 2, 2 }, strides = { 2, 2 } }
    for _, slope in ipairs{ -0.5, 0 } do
      assert.equal(STAYS, (check(model(max(small), slope), "a")))
    end
    assert.equal(STAYS, (check(model({ "AveragePool", small }, 0.2), "a")))
    assert.equal(STAYS, (check(model(max{ kernel_shape = { 2, 2 }, pads = { 1, 1, 1, 1 } }, 0.2),
      "a")))
  end)
end)


describe("one-hot vectors times a matrix", function()
  local INT32 = 6

  -- Returns a model of x == 0 .. classes - 1, as floats, times a matrix; also the numbers of the
  -- one-hot vectors.
  local function model(classes, outputs, changed)
    local count = {}
    for i = 1, classes do
      count[i] = i - 1
    end
    count[1] = changed or 0
    return { nodes = { { "Unsqueeze", { "x", "last" }, { "u" } }, { "Equal", { "u", "count" },
      { "e" } }, { "Cast", { "e" }, { "h" }, { to = 1 } }, { "MatMul", { "h", "w" }, { "y" } } },
      inputs = { x = { 2, 6, type = INT32 } }, outputs = outputs,
      constants = { last = ty.nd.array({ -1 }, { dtype = "int64" }), w = random(classes, 3),
        count = ty.nd.array({ { count } }, { dtype = "int32" }) } }
  end

  it("are rows of it, and zeros where the index is none", function()
    local x = ty.nd.array({ { 0, 4, 3, -1, 5, 2 }, { 1, 1, 0, 100, -7, 4 } }, { dtype = "int32" })
    local m = model(5)
    local sym, args, auxs = load(m, { "y" })
    assert.matches("take", operators(sym))
    assert.is_nil(operators(sym):find "dot")
    args.x = x
    local got = files.run(sym, args, auxs)[1]
    local whole, args2, auxs2 = load(m, { "y", "h" })
    args2.x = x
    local outputs = files.run(whole, args2, auxs2)
    local want = ty.nd.dot(outputs[2], m.constants.w)
    assert.same(want:totable(), got:totable())
    assert.same(want:totable(), outputs[1]:totable())
  end)

  it("stay where the classes do not count from 0", function()
    local sym = load(model(5, nil, 7), { "y" })
    assert.matches("dot", operators(sym))
  end)
end)
