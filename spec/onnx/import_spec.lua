-- Networks of ONNX files: what becomes of nodes, constants, shapes, graphs in nodes, functions,
-- types of elements; what errors say. The files of others: spec/onnx/cases_spec.lua.
local ffi = require "ffi"
local files = require "spec.support.onnx_files"
local folder = require "spec.support.folder"
local models = require "spec.support.onnx_models"
local ty = require "tycho"
require "spec.helper"

local function array(t, dtype) return ty.nd.array(t, { dtype = dtype or "float32" }) end

-- Imports a model; f gets symbol, arguments, states, path.
local function with(model, options, f)
  folder.with(function(dir)
    local path = dir .. "/model.onnx"
    folder.write(path, type(model) == "string" and model or models.bytes(model))
    options.file = path
    f(ty.onnx.import_model(options))
  end)
end

-- Returns the outputs of a model for given inputs, as nested tables.
local function run(model, inputs, options)
  local results
  with(model, options or {}, function(sym, args, auxs)
    for name, x in pairs(inputs) do
      args[name] = x
    end
    results = {}
    for i, y in ipairs(files.run(sym, args, auxs)) do
      results[i] = y:totable()
    end
  end)
  return unpack(results)
end

local function catch_error(model, options)
  local result
  folder.with(function(dir)
    folder.write(dir .. "/model.onnx", type(model) == "string" and model or models.bytes(model))
    options = options or {}
    options.file = dir .. "/model.onnx"
    local ok, e = pcall(ty.onnx.import_model, options)
    assert.is_false(ok)
    assert.is_true(ty.is_error(e), tostring(e))
    result = e
  end)
  return result
end

local function operators(sym)
  local list = {}
  for _, node in ipairs(require("spec.support.json").decode(sym:tojson()).nodes) do
    list[#list + 1] = node.op ~= "null" and node.op or nil
  end
  return table.concat(list, " ")
end

-- Returns a model x (2, 2) -> y by nodes.
local function small(nodes, more)
  local model = { nodes = nodes, inputs = { x = { 2, 2 } }, outputs = { "y" } }
  for key, v in pairs(more or {}) do
    model[key] = v
  end
  return model
end

local X = array{ { 1, -2 }, { 3, 4 } }

describe("a network of an ONNX file", function()
  it("says what options of the reference are called here", function()
    for _, case in ipairs{ { "import_model", "model_file", "file" },
        { "export_model", "onnx_file_path", "file" },
        { "export_model", "in_shapes", "input_shapes" }, { "export_model", "sym", "symbol" } } do
      local e = assert.raises("name", ty.onnx[case[1]], { [case[2]] = "x" })
      assert.matches(("it is '%s' here"):format(case[3]), e.message)
    end
    assert.equal(ty.amp, ty.contrib.amp)
    local e = assert.raises("name", function() return ty.contrib.onnx end)
    assert.matches("here it is ty.onnx", e.message)
    assert.raises("name", function() return ty.contrib.onxn end)
    e = assert.raises("name", ty.amp.init, { target_dtype = "float16" })
    assert.matches("it is 'target' here", e.message)
  end)

  it("computes what its nodes say", function()
    local model = {
      nodes = {
        { "Conv", { "x", "w", "b" }, { "c" }, { pads = { 1, 1, 1, 1 }, kernel_shape = { 3, 3 } } },
        { "Relu", { "c" }, { "r" } },
        { "Flatten", { "r" }, { "f" } },
        { "Gemm", { "f", "g", "h" }, { "y" }, { transB = 1 } },
      },
      inputs = { x = { 1, 1, 2, 2 } }, outputs = { "y" },
      constants = { w = array{ { { { 0, 0, 0 }, { 0, 2, 0 }, { 0, 0, 0 } } } }, b = array{ 1 },
        g = array{ { 1, 1, 1, 1 }, { 1, 0, 0, -1 } }, h = array{ 10, 20 } },
    }
    -- 2 x + 1 without what is below 0: 3 0 7 9
    assert.same({ { 29, 14 } }, run(model, { x = array{ { { { 1, -2 }, { 3, 4 } } } } }))
  end)

  it("names its arguments and outputs as the file does", function()
    local model = small{ { "Relu", { "x" }, { "y" }, name = "first" } }
    with(model, {}, function(sym)
      assert.same({ "x" }, sym:list_arguments())
      assert.same({ "y_output" }, sym:list_outputs())
    end)
  end)

  it("computes sizes from factors in float32, as ONNX Runtime does", function()
    for size, out in pairs{ [10] = 13, [3] = 7, [7] = 9 } do
      local model = { nodes = { { "Resize", { "x", "", "factors" }, { "y" } } },
        inputs = { x = { 1, 1, 1, size } }, outputs = { "y" },
        constants = { factors = array{ 1, 1, 1, out / size } } }
      local y = run(model, { x = ty.nd.ones{ 1, 1, 1, size } })
      assert.equal(out, #y[1][1][1])
    end
  end)

  it("has no trace of shape arithmetic", function()
    local model = small({
      { "Shape", { "x" }, { "s" } },
      { "Gather", { "s", "zero" }, { "n" } },
      { "Unsqueeze", { "n", "zero" }, { "n1" } },
      { "Concat", { "n1", "minus" }, { "to" }, { axis = 0 } },
      { "Reshape", { "x", "to" }, { "r" } },
      { "Relu", { "r" }, { "y" } },
    }, { constants = { zero = { type = 7, dims = {}, raw = ("\0"):rep(8) },
      minus = array({ -1 }, "int64") } })
    model.nodes[3][2] = { "n", "axis" }
    model.constants.axis = array({ 0 }, "int64")
    with(model, {}, function(sym) assert.equal("relu", operators(sym)) end)
  end)

  it("leaves sizes open that nothing asks for", function()
    local model = small({ { "Relu", { "x" }, { "r" } },
      { "Gemm", { "r", "w" }, { "y" }, { transB = 1 } } },
      { inputs = { x = { "batch", 2 } }, constants = { w = array{ { 1, 2 } } } })
    with(model, {}, function(sym, args)
      for _, n in ipairs{ 1, 3 } do
        args.x = ty.nd.ones{ n, 2 }
        assert.same({ n, 1 }, files.run(sym, args)[1].shape)
      end
    end)
    local asked = small({ { "Size", { "x" }, { "y" } } }, { inputs = { x = { "batch", 2 } } })
    local e = catch_error(asked)
    assert.matches("axis 0", e.message)
    assert.equal("unsupported", e.code)
    assert.same({ 6 }, run(asked, {}, { shapes = { x = { 3, 2 } } }))
  end)

  -- Runs one node of inputs with open sizes, imported once, for each list of shapes; returns the
  -- shapes of its outputs.
  local function run_open(node, inputs, constants, shapes, opset)
    local list = {}
    with({ nodes = { node }, inputs = inputs, outputs = { "y" }, constants = constants,
      opset = opset }, {},
      function(sym, args)
        for i, given in ipairs(shapes) do
          for name, shape in pairs(given) do
            args[name] = ty.nd.ones(shape)
          end
          list[i] = files.run(sym, args)[1].shape
        end
      end)
    return list
  end

  it("leaves sizes open in products", function()
    local product = { "MatMul", { "x", "z" }, { "y" } }
    assert.same({ { 2, 4, 5, 5 }, { 1, 4, 2, 2 } }, run_open(product, { x = { "b", 4, "t", 3 },
      z = { "b", 4, 3, "t" } }, {}, { { x = { 2, 4, 5, 3 }, z = { 2, 4, 3, 5 } },
        { x = { 1, 4, 2, 3 }, z = { 1, 4, 3, 2 } } }))
    assert.same({ { 2, 6, 2, 2 } }, run_open(product, { x = { "b", 6, 2, 3 },
      z = { "b", 6, 3, 2 } }, {}, { { x = { 2, 6, 2, 3 }, z = { 2, 6, 3, 2 } } }))
    local sums = { "Einsum", { "x", "z" }, { "y" }, { equation = "ij,jk->ik" } }
    assert.same({ { 2, 4 } }, run_open(sums, { x = { "b", 3 }, z = { "t", 4 } }, {},
      { { x = { 2, 3 }, z = { 3, 4 } } }))
  end)

  it("asks for open sizes that it computes with", function()
    local function asks(node, inputs, text, constants)
      node[2], node[3] = node[2] or { "x" }, { "y" }
      local e = catch_error({ nodes = { node }, inputs = inputs, outputs = { "y" },
        constants = constants })
      assert.equal("unsupported", e.code)
      assert.matches(text .. " must be known; give the shapes of all inputs", e.message, 1, true)
    end
    local image = { x = { 1, 2, "h", "w" } }
    asks({ "AveragePool", nil, nil, { kernel_shape = { 3, 3 }, pads = { 1, 0, 0, 0 } } }, image,
      "the size of axis 2 of its input")
    for op, filters in pairs{ Conv = 0, ConvTranspose = 1, ConvInteger = 0, DeformConv = 0 } do
      local weight, kind = { 4, 2, 3, 3 }, op == "ConvInteger" and 2 or 1
      weight[filters + 1], weight.type = "filters", kind
      asks({ op, { "x", "w", op == "DeformConv" and "o" or nil } },
        { x = { 1, op == "ConvTranspose" and 4 or 2, 5, 5, type = kind }, w = weight,
          o = { 1, 18, 3, 3 } }, "the size of axis " .. filters .. " of its weight")
    end
    local constants = { p = array({ 0, 1, 0, 0 }, "int64") }
    asks({ "Pad", { "x", "p", "number" } }, { x = { "n", 2 }, number = {} },
      "the size of axis 0 of its input", constants)
    asks({ "DequantizeLinear", { "x", "s" } }, { x = { 4, 4, type = 2 }, s = { "n" } },
      "the size of axis 0 of its scale")
    asks({ "GatherND", { "x", "i" } }, { x = { 4, 2 }, i = { "n", type = 7 } },
      "the size of axis 0 of its indices")
  end)

  it("leaves sizes open in windows with uneven borders", function()
    for op, expected in pairs{ MaxPool = { { 1, 2, 3, 3 }, { 1, 2, 2, 4 } },
        LpPool = { { 1, 2, 3, 3 }, { 1, 2, 2, 4 } } } do
      assert.same(expected, run_open({ op, { "x" }, { "y" }, { kernel_shape = { 3, 3 },
        strides = { 2, 2 }, pads = { 1, 0, 1, 2 } } }, { x = { 1, 2, "h", "w" } }, {},
        { { x = { 1, 2, 5, 5 } }, { x = { 1, 2, 4, 8 } } }))
    end
  end)

  it("leaves the positions of attention open where nothing depends on them", function()
    local node = { "Attention", { "x", "x", "x" }, { "y" } }
    local sizes = { { 1, 4, 3, 5 }, { 2, 4, 2, 5 } }
    assert.same(sizes, run_open(node, { x = { "b", 4, "t", 5 } }, {}, { { x = sizes[1] },
      { x = sizes[2] } }, 23))
  end)

  it("leaves the batch of attention open, and asks for its other sizes", function()
    local function attention(q, mask)
      return { nodes = { { "Attention", { "q", "k", "v", mask and "m" }, { "y" },
        { is_causal = mask and 0 or 1 } } }, inputs = { q = q, k = { "b", 2, 4, 3 },
        v = { "b", 2, 4, 3 }, m = mask }, outputs = { "y" }, opset = 23 }
    end
    local function ask(axis, what, ...)
      local e = catch_error(attention(...))
      assert.equal("unsupported", e.code)
      assert.matches(("the size of axis %d of %s must be known"):format(axis, what), e.message)
    end
    ask(2, "its query", { "b", 2, "time", 3 })
    ask(1, "its query", { "b", "heads", 4, 3 })
    ask(3, "its query", { "b", 2, 4, "size" })
    ask(1, "its mask", { "b", 2, 4, 3 }, { 4, "keys" })
    with(attention{ "b", 2, 4, 3 }, {}, function(sym, args)
      for _, n in ipairs{ 1, 2 } do
        args.q, args.k, args.v = ty.nd.ones{ n, 2, 4, 3 }, ty.nd.ones{ n, 2, 4, 3 },
          ty.nd.ones{ n, 2, 4, 3 }
        assert.same({ n, 2, 4, 3 }, files.run(sym, args)[1].shape)
      end
    end)
  end)

  it("leaves sizes open in other shapes", function()
    local function reshaped(op, shape, to, ...)
      local shapes = {}
      for i, x in ipairs{ ... } do
        shapes[i] = { x = x }
      end
      return run_open({ op, { "x", "s" }, { "y" } }, { x = shape }, { s = array(to, "int64") },
        shapes)
    end
    assert.same({ { 2, 5, 2, 3 }, { 1, 3, 2, 3 } }, reshaped("Reshape", { "b", "t", 6 },
      { 0, 0, 2, -1 }, { 2, 5, 6 }, { 1, 3, 6 }))
    assert.same({ { 10, 6 }, { 3, 6 } }, reshaped("Reshape", { "b", "t", 6 }, { -1, 6 },
      { 2, 5, 6 }, { 1, 3, 6 }))
    assert.same({ { 4, 4, 6 } }, reshaped("Reshape", { "b", 8, "t" }, { -1, 4, 0 }, { 2, 8, 6 }))
    assert.same({ { 2, 1, 1, 8 } }, reshaped("Unsqueeze", { "b", "t" }, { 1, 2 }, { 2, 8 }))
    assert.same({ { 2, 8 } }, reshaped("Squeeze", { "b", 1, "t" }, { 1 }, { 2, 1, 8 }))
    for _, to in ipairs{ { 0 }, false } do
      local e = catch_error(small({ { "Squeeze", { "x", to and "s" or nil }, { "y" } } },
        { inputs = { x = { "b", 1 } }, constants = { s = array(to or { 0 }, "int64") } }))
      assert.equal("unsupported", e.code)
      assert.matches("the size of axis 0", e.message)
    end
  end)

  it("pools its input as it is where only last windows end outside", function()
    local model = { inputs = { x = { 1, 1, 4, 4 } }, outputs = { "y" } }
    local x = array{ { { { 1, 2, 3, 4 }, { 4, 9, 6, 1 }, { 7, 8, 5, 0 }, { -1, 0, 2, 3 } } } }
    local attrs = { kernel_shape = { 3, 3 }, strides = { 2, 2 }, pads = { 0, 0, 1, 1 } }
    local function check(op, wanted, operators_wanted)
      model.nodes = { { op, { "x" }, { "y" }, attrs } }
      local y = run(model, { x = x })[1][1]
      assert.near(array(wanted), array(y), 1e-6, 1e-6)
      with(model, {}, function(sym) assert.matches(operators_wanted, operators(sym)) end)
    end
    check("MaxPool", { { 9, 6 }, { 8, 5 } }, "^Pooling$")
    check("AveragePool", { { 5, 19 / 6 }, { 21 / 6, 10 / 4 } }, "^Pooling$")
    attrs.count_include_pad = 1
    check("AveragePool", { { 5, 19 / 9 }, { 21 / 9, 10 / 9 } }, "Pad")
  end)

  it("reads weights when they are first needed", function()
    local n = 2 ^ 20
    local model = { nodes = { { "MatMul", { "x", "w" }, { "y" } } }, inputs = { x = { 1, 1024 } },
      outputs = { "y" }, constants = { w = ty.nd.ones{ 1024, n / 1024 } } }
    local bytes = models.bytes(model)
    folder.with(function(dir)
      local path = dir .. "/model.onnx"
      folder.write(path, bytes)
      collectgarbage()
      collectgarbage()
      local before = ty.live().bytes
      local sym, args = ty.onnx.import_model(path)
      assert.is_true(ty.live().bytes - before < n)
      args.x = ty.nd.ones{ 1, 1024 }
      assert.equal(1024, files.run(sym, args)[1]:get(0, 5))
      local sym2, args2 = ty.onnx.import_model(path)
      folder.write(path, bytes:sub(1, #bytes / 2))       -- an error, no signal
      args2.x = args.x
      local ok, e = pcall(function() return files.run(sym2, args2)[1]:totable() end)
      assert.is_false(ok)
      assert.equal("io", e.code)
    end)
  end)
end)

describe("weights of an ONNX file", function()
  local SIZE = 256

  local function x_and(op, weight, attrs)
    return { op, { "x", weight }, { "y" }, attrs }
  end

  it("stay in the file until a run needs them, transposed ones too", function()
    local turn = { "Transpose", { "w" }, { "t" }, { perm = { 1, 0 } } }
    for name, nodes in pairs{
      product = { x_and("MatMul", "w") },
      linear = { x_and("Gemm", "w", { transB = 1 }) },
      ["product of Gemm"] = { { "Gemm", { "x", "w", "b" }, { "y" } } },
      ["transposed product"] = { turn, x_and("MatMul", "t") },
      ["transposed linear"] = { turn, x_and("Gemm", "t") },
      ["transposed twice"] = { turn, { "Transpose", { "t" }, { "u" }, { perm = { 1, 0 } } },
        x_and("MatMul", "u") },
      rows = { { "Cast", { "x" }, { "i" }, { to = 7 } }, { "Gather", { "w", "i" }, { "y" } } },
    } do
      local w = ty.nd.random.uniform{ -1, 1, shape = { SIZE, SIZE } }
      local x = ty.nd.random.uniform{ 0, 1, shape = { 3, SIZE } }
      local want = name == "rows" and ty.nd.take{ w, x } or ty.nd.dot{ x, w,
        transpose_b = name == "linear" or name:find "transposed [pl]" }
      local model = { nodes = nodes, inputs = { x = { 3, SIZE } }, outputs = { "y" },
        constants = { w = w, b = ty.nd.zeros{ SIZE } } }
      folder.with(function(dir)
        local path = dir .. "/model.onnx"
        folder.write(path, models.bytes(model))
        collectgarbage()
        collectgarbage()
        local before = ty.live().bytes
        local sym, args, auxs = ty.onnx.import_model(path)
        assert.is_true(ty.live().bytes - before < SIZE * SIZE, name)
        args.x = x
        assert.near(want, files.run(sym, args, auxs)[1], 1e-4, 1e-4)
      end)
    end
  end)

  it("may be read transposed and as they are", function()
    local w = ty.nd.random.uniform{ -1, 1, shape = { 80, 80 } }
    local x = ty.nd.random.uniform{ -1, 1, shape = { 2, 3, 80 } }
    local model = { nodes = { { "Transpose", { "w" }, { "t" }, { perm = { 1, 0 } } },
      { "ReduceSum", { "t" }, { "m" }, { keepdims = 0 } }, { "MatMul", { "x", "t" }, { "a" } },
      { "MatMul", { "a", "w" }, { "b" } }, { "Mul", { "b", "m" }, { "y" } } },
      inputs = { x = { 2, 3, 80 } }, outputs = { "y" }, constants = { w = w } }
    local got
    with(model, {}, function(sym, args, auxs)
      args.x = x
      got = files.run(sym, args, auxs)[1]
    end)
    local want = ty.nd.dot{ ty.nd.dot{ x, w, transpose_b = true }, w } * w:sum():asscalar()
    assert.near(want, got, 1e-2, 1e-4)
  end)
end)

describe("constants of the caller", function()
  local model = small({ { "Add", { "x", "z" }, { "y" } } }, { inputs = { x = { 2, 2 },
    z = { "n" } } })

  it("take the place of inputs", function()
    for _, given in ipairs{ { 1, 2 }, array{ 1, 2 }, array({ 1, 2 }, "int64") } do
      assert.same({ { 2, 0 }, { 4, 6 } }, run(model, { x = X }, { constants = { z = given } }))
    end
    assert.same({ { 4, 1 }, { 6, 7 } }, run(model, { x = X }, { constants = { z = { 3 } } }))
  end)

  it("fit the input's shape and type", function()
    local e = catch_error(model, { constants = { z = { { 1, 2 } } } })
    assert.equal("shape", e.code)
    assert.equal("z", e.argument)
    assert.equal("type", catch_error(model, { constants = { z = "one" } }).code)
    assert.equal("type", catch_error(model, { constants = { z = { "one" } } }).code)
    assert.equal("name", catch_error(model, { constants = { q = 1 } }).code)
  end)

  it("are options of ty.onnx.load too", function()
    folder.with(function(dir)
      folder.write(dir .. "/m.onnx", models.bytes(model))
      local mod = ty.onnx.load{ dir .. "/m.onnx", constants = { z = { 1, 2 } } }
      assert.same({ "x" }, mod.data_names)
    end)
  end)
end)

describe("graphs in nodes of ONNX files", function()
  local function branch(scale)
    return { graph = { nodes = { { "Mul", { "x", scale }, { "b" } } }, outputs = { "b" } } }
  end
  local CONSTANTS = { two = array{ 2 }, ten = array{ 10 } }

  local function choice(condition, more)
    return small({ { "If", { condition }, { "y" }, { then_branch = branch "two",
      else_branch = branch "ten" } } }, more)
  end

  it("become the branch that a constant chooses", function()
    local model = choice("yes", { constants = { two = CONSTANTS.two, ten = CONSTANTS.ten,
      yes = { type = 9, dims = {}, raw = "\1" } } })
    with(model, {}, function(sym) assert.equal("_mul_scalar", operators(sym)) end)
  end)

  it("become a choice that an input makes", function()
    local model = choice("p", { inputs = { x = { 2, 2 }, p = { type = 9 } },
      constants = CONSTANTS })
    assert.same({ { 2, -4 }, { 6, 8 } }, run(model, { x = X, p = array({ 1 }, "bool") }))
    assert.same({ { 10, -20 }, { 30, 40 } }, run(model, { x = X, p = array({ 0 }, "bool") }))
  end)

  local function loop(count, condition)
    return { "Loop", { count, condition, "x" }, { "y", "all" }, { body = { graph = {
      nodes = { { "Add", { "v", "v" }, { "v2" } }, { "Identity", { "c" }, { "c2" } },
        { "ReduceSum", { "v2" }, { "s" }, { keepdims = 0 } }, { "Less", { "s", "limit" },
          { "c3" } } },
      inputs = { i = { type = 7 }, c = { type = 9 }, v = { 2, 2 } }, in_order = { "i", "c", "v" },
      outputs = { "c2", "v2", "s" } } } } }
  end

  it("become the steps of a loop whose number is known", function()
    local model = small({ loop("n", "") }, { outputs = { "y", "all" }, constants = {
      n = { type = 7, dims = {}, raw = "\3" .. ("\0"):rep(7) }, limit = array{ 100 } } })
    local y, all = run(model, { x = X })
    assert.same({ { 8, -16 }, { 24, 32 } }, y)
    assert.same({ 12, 24, 48 }, all)
  end)

  it("become a loop that ends when the body says so", function()
    local node = loop("n", "yes")
    node[4].body.graph.outputs[1] = "c3"
    local model = small({ node }, { outputs = { "y" }, inputs = { x = { 2, 2 },
      yes = { type = 9 } },
      constants = { n = { type = 7, dims = {}, raw = "\7" .. ("\0"):rep(7) },
        limit = array{ 20 } } })
    assert.same({ { 4, -8 }, { 12, 16 } }, (run(model, { x = X, yes = array({ 1 }, "bool") })))
  end)

  it("become the steps of a loop without a limit, or with one that is too high, that constants end",
    function()
      local function count(known, limit)
        local body = { nodes = { { "Add", { "v", "v" }, { "v2" } },
          { "Add", { "k", "one" }, { "k2" } },
          { "ReduceSum", { "v2" }, { "s" }, { keepdims = 0 } },
          { "Less", { known and "k2" or "s", "limit" }, { "c2" } } },
          inputs = { i = { type = 7 }, c = { type = 9 }, v = { 2, 2 }, k = {} },
          in_order = { "i", "c", "v", "k" }, outputs = { "c2", "v2", "k2", "s" } }
        return small({ { "Loop", { limit, "yes", "x", "zero" }, { "y", "k_end", "all" },
          { body = { graph = body } } } }, { outputs = { "y", "all" }, constants = {
          n = { type = 7, dims = {}, raw = ("\255"):rep(7) .. "\127" },
          yes = { type = 9, dims = {}, raw = "\1" }, zero = array{ 0 }, one = array{ 1 },
          limit = array{ 3 } } })
      end
      for _, limit in ipairs{ "", "n" } do
        local y, all = run(count(true, limit), { x = X })
        assert.same({ { 8, -16 }, { 24, 32 } }, y)
        assert.same({ 12, 24, 48 }, all)
        assert.matches("without a limit", catch_error(count(false, limit)).message)
      end
    end)

  it("refuse loops of more steps than a network may have", function()
    local model = small({ loop("n", "") }, { outputs = { "y" }, constants = {
      n = { type = 7, dims = {}, raw = ("\255"):rep(7) .. "\127" }, limit = array{ 100 } } })
    assert.matches("steps", catch_error(model).message)
  end)

  local function halves(more)
    local axis = { type = 7, dims = { 1 }, raw = ("\0"):rep(8) }
    -- the first branch takes rows of 3, which x (2, 2) does not have
    local first = { graph = { nodes = { { "Reshape", { "x", "threes" }, { "r" } },
      { "ReduceSum", { "r", "axis" }, { "b" } } }, outputs = { "b" } } }
    local second = { graph = { nodes = { { "ReduceSum", { "x", "axis" }, { "b" } } },
      outputs = { "b" } } }
    local model = small({ { "If", { "p" }, { "y" }, more or { then_branch = first,
      else_branch = second } } }, { inputs = { x = { 2, 2 }, p = { type = 9 } },
      constants = { axis = axis, threes = array({ -1, 3 }, "int64") } })
    return model, first, second
  end

  it("may have a branch that does not fit the shapes: an error of the run that chooses it",
    function()
      local model, first, second = halves()
      local function outputs(m, p)
        return run(m, { x = X, p = array({ p }, "bool") })
      end
      assert.same({ { 4, 2 } }, outputs(model, 0))
      local ok, e = pcall(outputs, model, 1)
      assert.is_false(ok)
      assert.equal("run", e.code)
      assert.matches("then_branch_does_not_fit_the_shapes_of_the_import", tostring(e))
      local turned = halves{ then_branch = second, else_branch = first }
      assert.same({ { 4, 2 } }, outputs(turned, 1))
      assert.is_false(pcall(outputs, turned, 0))
      local e2 = catch_error((halves{ then_branch = first, else_branch = first }))
      assert.matches("Reshape", e2.op)
    end)

  it("need not be looked at where the caller fixes the input that chooses", function()
    local model = halves()
    for _, given in ipairs{ 0, { 0 }, array({ 0 }, "int32") } do
      with(model, { constants = { p = given } }, function(sym)
        assert.same({ "x" }, sym:list_arguments())
        assert.is_nil(operators(sym):find("cond"))
      end)
    end
    assert.equal("format", catch_error(model, { constants = { p = 1 } }).code)
  end)

  it("take the steps of a scan", function()
    local model = small({ { "Scan", { "x" }, { "y" }, { num_scan_inputs = 1, body = { graph = {
      nodes = { { "Neg", { "row" }, { "out" } } }, inputs = { row = { 2 } },
        outputs = { "out" } } } } } })
    assert.same({ { -1, 2 }, { -3, -4 } }, run(model, { x = X }))
  end)
end)

describe("functions of an ONNX file", function()
  local function model(nodes)
    return small({ { "Double", { "x" }, { "y" }, { by = 3 }, domain = "own" } }, {
      domains = { own = 1 }, functions = { { name = "Double", domain = "own", inputs = { "a" },
        outputs = { "b" }, nodes = nodes } } })
  end

  it("are written out, with the attributes of the call", function()
    assert.same({ { 3, -6 }, { 9, 12 } }, run(model{
      { "Constant", {}, { "k" }, { value_int = { ref = "by" } } },
      { "CastLike", { "k", "a" }, { "f" } }, { "Mul", { "a", "f" }, { "b" } } }, { x = X }))
  end)

  it("may not call themselves", function()
    local e = catch_error(model{ { "Double", { "a" }, { "b" }, domain = "own" } })
    assert.equal("format", e.code)
    assert.matches("in each other", e.message)
  end)
end)

describe("tensors of ONNX files", function()
  local function read(t)
    return (run({ nodes = { { "Identity", { "t" }, { "y" } } }, inputs = {}, outputs = { "y" },
      constants = { t = t } }, {}))
  end

  it("of types that the engine lacks are converted", function()
    assert.same({ 65535, 1 }, read{ type = 4, dims = { 2 }, raw = "\255\255\1\0" })
    assert.same({ -2 }, read{ type = 5, dims = { 1 }, raw = "\254\255" })
    assert.same({ 4294967295 }, read{ type = 12, dims = { 1 }, raw = "\255\255\255\255" })
    assert.same({ 1, -1, 7 }, read{ type = 22, dims = { 3 }, raw = "\241\7" })
    assert.same({ 1, 15 }, read{ type = 21, dims = { 2 }, raw = "\241" })
    assert.same({ 1, -1.5, 448 }, read{ type = 17, dims = { 3 }, raw = "\56\188\126" })
  end)

  it("may have their numbers in fields, packed or one by one", function()
    assert.same({ 1.5, -2 }, read{ type = 1, dims = { 2 }, fields = { function(m)
      m:floats(4, { 1.5, -2 })
    end } })
    assert.same({ 1.5, -2 }, read{ type = 1, dims = { 2 }, fields = { function(m)
      m:float(4, 1.5)
      m:float(4, -2)
    end } })
    assert.same({ -5, 300 }, read{ type = 7, dims = { 2 }, fields = { function(m)
      m:integers(7, { -5, 300 })
    end } })
    assert.same({ 1, 0 }, read{ type = 10, dims = { 2 }, fields = { function(m)
      m:integers(5, { 0x3c00, 0 })
    end } })
  end)

  it("are refused where they do not fit their shape", function()
    local e = catch_error{ nodes = { { "Identity", { "t" }, { "y" } } }, inputs = {},
      outputs = { "y" },
      constants = { t = { type = 1, dims = { 3 }, raw = ("\0"):rep(8) } } }
    assert.equal("format", e.code)
    assert.matches("'t': 8 bytes of elements instead of 12", e.message)
  end)

  local function external(location, more)
    local function entry(key, v)
      local m = require("tycho.core.wire_writer").message()
      m:text(1, key)
      m:text(2, v)
      return m
    end
    return { nodes = { { "Identity", { "t" }, { "y" } } }, inputs = {}, outputs = { "y" },
      constants = { t = { type = 1, dims = { 2 }, fields = { function(m)
        m:message(13, entry("location", location))
        for key, v in pairs(more or {}) do m:message(13, entry(key, v)) end
        m:integer(14, 1)
      end } } } }
  end

  it("may be in a file beside the model, and nowhere else", function()
    folder.with(function(dir)
      local inner = dir .. "/inner"
      assert(require("lfs").mkdir(inner))
      folder.write(inner .. "/data", ffi.string(ffi.new("float[3]", { 9, 1, 2 }), 12))
      folder.write(dir .. "/secret", ("\0"):rep(8))
      assert(os.execute(("ln -s ../secret '%s/link'"):format(inner)) == 0)
      local function get(model)
        folder.write(inner .. "/m.onnx", models.bytes(model))
        local sym, args = ty.onnx.import_model(inner .. "/m.onnx")
        return files.run(sym, args)[1]:totable()
      end
      assert.same({ 1, 2 }, get(external("data", { offset = "4", length = "8" })))
      for _, bad in ipairs{ "../secret", "link", dir .. "/secret", "inner/../../secret" } do
        local ok, e = pcall(get, external(bad))
        assert.is_false(ok)
        assert.is_true(e.code == "format" or e.code == "io", tostring(e))
      end
      local ok, e = pcall(get, external("data", { offset = "8", length = "8" }))
      assert.is_false(ok)
      assert.equal("format", e.code)
    end)
  end)
end)

describe("an ONNX file that cannot be imported", function()
  it("is reported with node, operator, opset and what is missing", function()
    local e = catch_error(small{ { "FancyOp", { "x" }, { "y" }, name = "fancy" } })
    assert.equal("unsupported", e.code)
    assert.equal("fancy", e.node)
    assert.equal("FancyOp (opset 17)", e.op)
    e = catch_error(small{ { "Elu", { "x" }, { "y" }, { alpha = "a" }, name = "e" } })
    assert.equal("format", e.code)
    assert.equal("e", e.node)
    e = catch_error(small{ { "Add", { "x" }, { "y" }, name = "a" } })
    assert.equal("format", e.code)
    assert.matches("does not fit its operator", e.message)
  end)

  it("names all that is missing with partial", function()
    local model = small{ { "FancyOp", { "x" }, { "a" } }, { "Relu", { "a" }, { "b" } },
      { "OtherOp", { "b" }, { "y" } } }
    local e = catch_error(model, { partial = true })
    assert.equal(2, #e.missing)
    assert.same({ "FancyOp (opset 17)", "OtherOp (opset 17)" }, { e.missing[1].op,
      e.missing[2].op })
  end)

  it("names the shape of an input that does not fit", function()
    local model = small{ { "Relu", { "x" }, { "y" } } }
    assert.equal("shape", catch_error(model, { shapes = { x = { 3, 3 } } }).code)
    assert.equal("name", catch_error(model, { shapes = { z = { 2, 2 } } }).code)
  end)
end)

describe("ty.onnx.load", function()
  it("gives a module that is bound for inference", function()
    folder.with(function(dir)
      folder.write(dir .. "/m.onnx", models.bytes(small({ { "Gemm", { "x", "w" }, { "y" } } },
        { constants = { w = array{ { 1, 0 }, { 0, 2 } } }, inputs = { x = { "n", 2 } } })))
      local mod = ty.onnx.load{ dir .. "/m.onnx", shapes = { x = { 2, 2 } } }
      mod:forward(ty.io.DataBatch{ data = { X } })
      assert.same({ { 1, -4 }, { 3, 8 } }, mod:get_outputs()[1]:totable())
      for ctx, given in pairs{ [ty.cpu(1)] = false, [ty.cpu(2)] = true } do
        local options = { dir .. "/m.onnx", shapes = { x = { 2, 2 } }, ctx = given and ctx or nil }
        mod = given and ty.onnx.load(options) or ctx:with(ty.onnx.load, options)
        mod:forward(ty.io.DataBatch{ data = { X } })
        assert.equal(ctx, mod:get_outputs()[1].context)
      end
      local meta = ty.onnx.get_model_metadata(dir .. "/m.onnx")
      assert.same({ { "x", { "n", 2 }, "float32" } }, meta.input_tensor_data)
    end)
  end)

  local function load(dir, nodes, inputs, outputs, shapes)
    folder.write(dir .. "/m.onnx", models.bytes(small(nodes, { inputs = inputs, outputs = outputs,
      constants = { w = array{ { 1, 0 }, { 0, 2 } }, one = array({ 1 }, "int64"),
        last = array({ -1 }, "int64"), most = array({ 99 }, "int64") } })))
    return ty.onnx.load{ dir .. "/m.onnx", shapes = shapes }
  end

  local function forward(mod, ...)
    mod:forward(ty.io.DataBatch{ data = { ... } })
    return mod:get_outputs()[1]:totable()
  end

  it("takes batches of other sizes, also where the file fixes them", function()
    folder.with(function(dir)
      for _, rows in ipairs{ "n", 2 } do
        local mod = load(dir, { { "Gemm", { "x", "w" }, { "y" } } }, { x = { rows, 2 } }, { "y" },
          { x = { 2, 2 } })
        assert.same({ { 1, -4 }, { 3, 8 } }, forward(mod, X))
        assert.same({ { 1, 2 }, { 1, 2 }, { 1, 2 } }, forward(mod, ty.nd.ones{ 3, 2 }))
        assert.same({ { 1, -4 }, { 3, 8 } }, forward(mod, X))
      end
    end)
  end)

  it("refuses shapes for which the import would compute other sizes", function()
    folder.with(function(dir)
      for nodes, outputs in pairs{
          [{ { "Shape", { "x" }, { "s" } }, { "Relu", { "x" }, { "y" } } }] = { "s", "y" },
          [{ { "Slice", { "x", "last", "most" }, { "y" } } }] = { "y" } } do
        local mod = load(dir, nodes, { x = { "n", 2 } }, outputs, { x = { 3, 2 } })
        local first = forward(mod, ty.nd.ones{ 3, 2 })
        for _ = 1, 2 do
          local e = assert.raises("shape", mod.forward, mod,
            ty.io.DataBatch{ data = { ty.nd.ones{ 4, 2 } } })
          assert.matches("computes with the shape of 'x'", e.message)
          assert.same({ { 3, 2 }, { 4, 2 } }, { e.expected, e.got })
          assert.same(first, forward(mod, ty.nd.ones{ 3, 2 }))
        end
        assert.raises("shape", mod.bind, mod, { data_shapes = { { "x", { 5, 2 } } },
          for_training = false, force_rebind = true })
        assert.raises("shape", mod.reshape, mod, { { "x", { 5, 2 } } })
      end
    end)
  end)

  it("cuts to the end of batches of any size", function()
    folder.with(function(dir)
      local mod = load(dir, { { "Slice", { "x", "one", "most" }, { "y" } } }, { x = { "n", 2 } },
        { "y" }, { x = { 2, 2 } })
      assert.same({ { 3, 4 } }, forward(mod, X))
      assert.same({ { 1, 1 }, { 1, 1 }, { 1, 1 } }, forward(mod, ty.nd.ones{ 4, 2 }))
    end)
  end)

  it("takes inputs whose first axes differ, now or in a later batch", function()
    folder.with(function(dir)
      for _, other in ipairs{ 2, 3 } do
        local mod = load(dir, { { "MatMul", { "x", "z" }, { "y" } } }, { x = { "n", 2 },
          z = { 2, "k" } }, { "y" }, { x = { other, 2 }, z = { 2, 1 } })
        local function multiply(of)
          return forward(mod, of[mod.data_names[1]], of[mod.data_names[2]])
        end
        assert.equal(other, #multiply{ x = ty.nd.ones{ other, 2 }, z = array{ { 2 }, { 3 } } })
        assert.same({ { 3, 1 } },
          multiply{ x = array{ { 1, 1 } }, z = array{ { 1, 0 }, { 2, 1 } } })
      end
    end)
  end)

  it("has no inputs that nothing reads", function()
    folder.with(function(dir)
      local mod = load(dir, { { "Relu", { "x" }, { "y" } } }, { x = { 2, 2 }, z = { "n" } },
        { "y" }, { z = { 3 } })
      assert.same({ "x" }, mod.data_names)
      assert.same({ { 1, 0 }, { 3, 4 } }, forward(mod, X))
    end)
  end)
end)
