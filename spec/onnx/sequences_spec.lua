-- Sequences in ONNX files, which are laid out at import, operators that draw numbers, and loops
-- whose condition only a run knows.
local ffi = require "ffi"
local files = require "spec.support.onnx_files"
local folder = require "spec.support.folder"
local models = require "spec.support.onnx_models"
local ty = require "tycho"
require "spec.helper"

local function array(t, dtype) return ty.nd.array(t, { dtype = dtype or "float32" }) end

-- Returns a scalar as a tensor of a file: an int64, or a bool.
local function scalar(n)
  if type(n) == "boolean" then
    return { type = 9, dims = {}, raw = n and "\1" or "\0" }
  end
  return { type = 7, dims = {}, raw = ffi.string(ffi.new("int64_t[1]", n), 8) }
end

-- Imports nodes over x and constants; returns the symbol, its arguments and the runs' results.
local function import(nodes, x, constants, outputs)
  local sym, args, auxs
  folder.with(function(dir)
    folder.write(dir .. "/m.onnx", models.bytes{ nodes = nodes, inputs = { x = x.shape },
      outputs = outputs or { "y" }, constants = constants or {}, opset = 17 })
    sym, args, auxs = ty.onnx.import_model(dir .. "/m.onnx")
    args.x = x
    for _, p in pairs(args) do
      p:totable()                        -- read while the file is there
    end
  end)
  return sym, args, auxs
end

local function run(...)
  local results = {}
  for i, y in ipairs(files.run(import(...))) do
    results[i] = y:totable()
  end
  return unpack(results)
end

local function refused(text, ...)
  local ok, e = pcall(import, ...)
  assert.is_false(ok)
  assert.is_true(ty.is_error(e), tostring(e))
  assert.matches(text, tostring(e))
end

local X = array{ { 1, 2, 3, 4, 5 }, { 6, 7, 8, 9, 10 } }
local AT = { zero = scalar(0), one = scalar(1), two = scalar(2), last = scalar(-1),
  nine = scalar(9) }

describe("a sequence of an ONNX file", function()
  it("is split from an array and read by position", function()
    local split = { "SplitToSequence", { "x", "two" }, { "s" }, { axis = 1 } }
    assert.same({ { 5 }, { 10 } }, run({ split, { "SequenceAt", { "s", "last" }, { "y" } } }, X,
      AT))
    assert.same({ { 3, 4 }, { 8, 9 } }, run({ split, { "SequenceAt", { "s", "one" }, { "y" } } },
      X, AT))
    assert.same({ 3 }, run({ split, { "SequenceLength", { "s" }, { "y" } } }, X, AT))
    assert.same({ 2, 7 }, run({ { "SplitToSequence", { "x" }, { "s" },
      { axis = -1, keepdims = 0 } }, { "SequenceAt", { "s", "one" }, { "y" } } }, X, AT))
    assert.same({ { 2, 3, 4, 5 }, { 7, 8, 9, 10 } }, run({
      { "SplitToSequence", { "x", "parts" }, { "s" }, { axis = 1, keepdims = 0 } },
      { "SequenceAt", { "s", "one" }, { "y" } } }, X, { parts = array({ 1, 4 }, "int64"),
      one = AT.one }))
  end)

  it("is made, changed and joined", function()
    local nodes = {
      { "Neg", { "x" }, { "m" } },
      { "SequenceConstruct", { "x", "m" }, { "s" } },
      { "SequenceInsert", { "s", "m", "zero" }, { "t" } },   -- m x m
      { "SequenceInsert", { "t", "x" }, { "u" } },           -- m x m x
      { "SequenceErase", { "u", "last" }, { "v" } },         -- m x m
      { "SequenceErase", { "v", "one" }, { "w" } },          -- m m
      { "SequenceErase", { "u" }, { "z" } },
      { "SequenceLength", { "z" }, { "n" } },
      { "SequenceLength", { "s" }, { "k" } },
      { "ConcatFromSequence", { "w" }, { "y" }, { axis = 0 } },
      { "ConcatFromSequence", { "s" }, { "stacked" }, { axis = -1, new_axis = 1 } },
    }
    local y, n, k, stacked = run(nodes, array{ 1, 2 }, AT, { "y", "n", "k", "stacked" })
    assert.same({ { -1, -2, -1, -2 }, { 3 }, { 2 }, { { 1, -1 }, { 2, -2 } } },
      { y, n, k, stacked })
  end)

  it("is carried by a loop and made by a map", function()
    local body = { nodes = { { "Identity", { "c" }, { "c2" } },
      { "Mul", { "x", "x" }, { "q" } }, { "SequenceInsert", { "s", "q" }, { "s2" } } },
      inputs = { i = {}, c = {}, s = {} }, in_order = { "i", "c", "s" }, outputs = { "c2", "s2" } }
    local y = run({ { "SequenceEmpty", {}, { "e" } },
      { "Loop", { "two", "yes", "e" }, { "s" }, { body = { graph = body } } },
      { "ConcatFromSequence", { "s" }, { "y" }, { axis = 0 } } }, array{ 1, 3 },
      { two = AT.two, yes = scalar(true) })
    assert.same({ 1, 9, 1, 9 }, y)
    local map = { nodes = { { "Add", { "a", "b" }, { "r" } } }, inputs = { a = {}, b = {} },
      in_order = { "a", "b" }, outputs = { "r" } }
    y = run({ { "SplitToSequence", { "x", "one" }, { "s" } },
      { "SequenceMap", { "s", "x" }, { "t" }, { body = { graph = map } } },
      { "ConcatFromSequence", { "t" }, { "y" }, { axis = 0, new_axis = 1 } } }, array{ 1, 3 }, AT)
    assert.same({ { 2, 4 }, { 4, 6 } }, y)
  end)

  it("is refused where it is no array, and positions that it lacks", function()
    local made = { "SequenceConstruct", { "x" }, { "s" } }
    refused("'s' is a sequence", { made, { "Relu", { "s" }, { "y" } } }, X)
    refused("sequence would be part", { { "SequenceConstruct", { "x" }, { "y" } } }, X)
    refused("position 9 of 1", { made, { "SequenceAt", { "s", "nine" }, { "y" } } }, X, AT)
    refused("is no sequence", { { "SequenceAt", { "x", "zero" }, { "y" } } }, X, AT)
    refused("empty sequence", { { "SequenceEmpty", {}, { "s" } },
      { "ConcatFromSequence", { "s" }, { "y" }, { axis = 0 } } }, X)
  end)
end)

describe("a loop of an ONNX file", function()
  it("with a known number of steps ends when its condition says so", function()
    local body = { nodes = { { "Add", { "v", "v" }, { "w" } },
      { "ReduceSum", { "w" }, { "s" }, { keepdims = 0 } }, { "Less", { "s", "limit" }, { "c2" } } },
      inputs = { i = {}, c = {}, v = {} }, in_order = { "i", "c", "v" }, outputs = { "c2", "w" } }
    for _, condition in ipairs{ "yes", "" } do
      local y = run({ { "Loop", { "ten", condition, "x" }, { "y" }, { body = { graph = body } } } },
        array{ 1, 2 }, { ten = scalar(10), yes = scalar(true), limit = array{ 20 } })
      assert.same({ 8, 16 }, y)          -- 3, 6, 12, 24
    end
  end)
end)

describe("drawn numbers of an ONNX file", function()
  -- Returns the results of two runs.
  local function draw(op, attrs, inputs, x)
    local sym, args, auxs = import({ { op, inputs, { "y" }, attrs } }, x or ty.nd.ones{ 100, 30 })
    ty.random.seed(7)
    local exe = files.bind(sym, args, auxs)
    exe:forward{ is_train = false }
    local first = exe.outputs[1]:copy()
    exe:forward{ is_train = false }
    return first, exe.outputs[1]:copy()
  end

  local function check(shape, dtype, mean, first, second)
    assert.same({ shape, dtype }, { first.shape, first.dtype })
    first, second = first:astype("float32"), second:astype("float32")
    assert.near(mean, first:mean():asscalar(), 0.1)
    assert.is_true((first - second):abs():sum():asscalar() > 0, "each run draws its own")
  end

  it("have their operator's distribution, and differ from run to run", function()
    check({ 100, 30 }, "float32", 3, draw("RandomNormalLike", { mean = { float = 3 },
      scale = { float = 0.5 } }, { "x" }))
    check({ 40, 50 }, "float64", -1, draw("RandomNormal", { shape = { 40, 50 }, dtype = 11,
      mean = { float = -1 } }, {}))
    check({ 40, 50 }, "float16", 1, draw("RandomUniform", { shape = { 40, 50 }, dtype = 10,
      low = { float = 0.5 }, high = { float = 1.5 } }, {}))
    check({ 100, 30 }, "float32", 0.5, draw("RandomUniformLike", {}, { "x" }))
    check({ 100, 30 }, "int64", 0.25, draw("Bernoulli", { dtype = 7 }, { "x" },
      ty.nd.full({ 100, 30 }, 0.25)))
    check({ 2, 500 }, "int32", 0.75, draw("Multinomial", { sample_size = 500 }, { "x" },
      array{ { 0, math.log(3) }, { 1, 1 + math.log(3) } }))
  end)

  it("of a type without them are refused", function()
    refused("numbers of type int64", { { "RandomNormal", {}, { "y" },
      { shape = { 2 }, dtype = 7 } } }, X)
  end)
end)
