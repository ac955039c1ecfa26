-- ONNX files that were made to do harm: each gives an error object, in little time and memory.
local ffi = require "ffi"
local files = require "spec.support.onnx_files"
local folder = require "spec.support.folder"
local models = require "spec.support.onnx_models"
local trials = require "spec.support.trials"
local ty = require "tycho"
local writer = require "tycho.core.wire_writer"
require "spec.helper"

local SECONDS = 5
local CODES = { format = true, unsupported = true, shape = true, memory = true, io = true }

local function array(t, dtype) return ty.nd.array(t, { dtype = dtype or "float32" }) end

local function number(v)
  local x = ffi.new("int64_t[1]", v)
  return { type = 7, dims = {}, raw = ffi.string(x, 8) }
end

-- Imports bytes, and binds and runs what comes of it.
local function give(bytes)
  local from, result = os.clock(), nil
  folder.with(function(dir)
    folder.write(dir .. "/m.onnx", bytes)
    local ok, e = pcall(function()
      local sym, args, auxs = ty.onnx.import_model(dir .. "/m.onnx")
      files.run(sym, args, auxs)
      ty.waitall()
    end)
    result = not ok and e or nil
  end)
  collectgarbage()
  assert.is_true(os.clock() - from < SECONDS, "it took long")
  return result
end

local function refused(bytes, text)
  local e = give(bytes)
  assert.is_true(ty.is_error(e), "no error object: " .. tostring(e))
  assert.is_true(CODES[e.code], tostring(e))
  assert.matches(text or "", tostring(e))
end

-- Returns a model of nodes over constants alone.
local function model(nodes, constants, more)
  local m = { nodes = nodes, inputs = {}, outputs = { "y" }, constants = constants }
  for key, v in pairs(more or {}) do m[key] = v end
  return models.bytes(m)
end

local function doublings(op, count)
  local nodes = { { "Identity", { "c" }, { "v0" } } }
  for i = 1, count do
    nodes[#nodes + 1] = { op, { "v" .. i - 1, "v" .. i - 1 }, { "v" .. i }, { axis = 0 } }
  end
  nodes[#nodes + 1] = { "Identity", { "v" .. count }, { "y" } }
  return model(nodes, { c = array{ 1, 2, 3, 4 } })
end

-- Returns a field in a field, so many times: the first one, then the others by turns.
local function nested(first, fields, times)
  local text = ""
  for i = times, 1, -1 do
    local outer = writer.message()
    outer:text(i == 1 and first or fields[(i - 2) % #fields + 1], text)
    text = outer:bytes_text()
  end
  return text
end

local function chain_of_graphs(depth)
  local g = { nodes = { { "Identity", { "c" }, { "y" } } }, outputs = { "y" } }
  for _ = 1, depth do
    g = { nodes = { { "If", { "t" }, { "y" }, { then_branch = { graph = g },
      else_branch = { graph = g } } } },
      outputs = { "y" } }
  end
  return g
end

describe("a hostile ONNX file", function()
  it("with messages in each other", function()
    refused(nested(7, { 1, 5, 6 }, 20000), "in each other") -- graph, node, attribute, graph
    refused(nested(7, { 11, 2, 4 }, 20000))
  end)

  it("with graphs in each other", function()
    local g = chain_of_graphs(7)
    g.constants = { c = array{ 1 }, t = { type = 9, dims = {}, raw = "\1" } }
    g.inputs = {}
    assert.is_nil(give(models.bytes(g)))
  end)

  it("that doubles an array without end", function()
    refused(doublings("Concat", 60))
    assert.is_nil(give(doublings("Add", 60)))
  end)

  it("with constants that do not fit their node, which the error names", function()
    refused(model({ { "ConvTranspose", { "x", "w", "b" }, { "y" }, { strides = { 2 },
      output_shape = { 4 } }, name = "up" } }, { w = array{ { { 1 } } }, b = array{ 1, 2, 3 } },
      { inputs = { x = { 1, 1, 2 } } }), "does not fit its operator.*node up")
  end)

  it("that makes large arrays of little", function()
    local big = array({ 2 ^ 31, 2 ^ 31 }, "int64")
    refused(model({ { "ConstantOfShape", { "s" }, { "y" } } }, { s = big }))
    refused(model({ { "Expand", { "c", "s" }, { "y" } } }, { s = big, c = array{ 1 } }))
    refused(model({ { "Tile", { "c", "s" }, { "y" } } }, { s = array({ 2 ^ 40 }, "int64"),
      c = array{ 1 } }))
    refused(model({ { "Range", { "a", "s", "b" }, { "y" } } }, { a = number(0), s = number(2 ^ 50),
      b = number(1) }))
    refused(model({ { "Range", { "a", "s", "b" }, { "y" } } }, { a = number(0), s = number(5),
      b = number(0) }))
    refused(model({ { "Pad", { "c", "s" }, { "y" } } }, { s = array({ 2 ^ 40, 2 ^ 40 }, "int64"),
      c = array{ 1 } }))
    refused(model({ { "OneHot", { "c", "s", "v" }, { "y" } } }, { s = number(2 ^ 45),
      c = array({ 1 }, "int64"),
      v = array{ 0, 1 } }))
    refused(model({ { "Resize", { "c", "", "s" }, { "y" } } }, { s = array{ 1e15 },
      c = array{ 1 } }))
    refused(model({ { "EyeLike", { "c" }, { "n" } }, { "Trilu", { "big" }, { "y" } },
      { "Expand", { "c", "s" }, { "big" } } }, { c = array{ { 1 } }, s = array({ 2 ^ 20, 2 ^ 20 },
        "int64") }))
  end)

  it("that makes large windows, transforms and images of little", function()
    local one = number(1)
    for _, n in ipairs{ number(2 ^ 50), number(0), number(-5) } do
      for _, op in ipairs{ "HannWindow", "HammingWindow", "BlackmanWindow" } do
        refused(model({ { op, { "n" }, { "y" } } }, { n = n }))
      end
      refused(model({ { "DFT", { "x", "n" }, { "y" } } }, { n = n, x = array{ { { 1 } } } },
        { opset = 20 }))
      refused(model({ { "STFT", { "x", "n", "w" }, { "y" } } }, { n = n, x = array{ { { 1 } } },
        w = array{ 1, 1 } }))
      refused(model({ { "MelWeightMatrix", { "n", "l", "r", "f", "f" }, { "y" } } }, { n = n,
        l = one, r = one, f = array{ 1 } }))
      refused(model({ { "MelWeightMatrix", { "l", "n", "r", "f", "f" }, { "y" } } }, { n = n,
        l = number(2 ^ 45), r = one, f = array{ 1 } }))
    end
    refused(model({ { "Col2Im", { "x", "s", "k" }, { "y" } } }, { x = array{ { { 1 } } },
      s = array({ 2 ^ 31, 2 ^ 31 }, "int64"), k = array({ 1, 1 }, "int64") }))
    refused(model({ { "MaxUnpool", { "x", "i" }, { "y" }, { kernel_shape = { 2 ^ 31,
      2 ^ 31 } } } }, { x = array{ { { { 1 } } } }, i = array({ { { { 2 ^ 40 } } } }, "int64") }))
    refused(model({ { "LinearAttention", { "x", "x", "x" }, { "y" }, { q_num_heads = 1,
      kv_num_heads = 1, update_rule = "linear" } } }, { x = ty.nd.ones{ 1, 2000, 1 } }))
  end)

  it("with loops that do not end", function()
    local body = { graph = { nodes = { { "Identity", { "k" }, { "k2" } }, { "Identity", { "v" },
      { "v2" } } },
      inputs = { i = { type = 7 }, k = { type = 9 }, v = { 1 } }, in_order = { "i", "k", "v" },
        outputs = { "k2", "v2" } } }
    refused(model({ { "Loop", { "n", "t", "c" }, { "y" }, { body = body } } }, { n = number(2 ^ 60),
      t = { type = 9, dims = {}, raw = "\1" }, c = array{ 1 } }))
    refused(model({ { "Loop", { "", "", "c" }, { "y" }, { body = body } } }, { c = array{ 1 } }))
  end)

  it("with values that wait for themselves, or are given twice", function()
    refused(model({ { "Relu", { "b" }, { "a" } }, { "Relu", { "a" }, { "b" } }, { "Relu", { "b" },
      { "y" } } }))
    refused(model({ { "Relu", { "y" }, { "y" } } }))
    refused(model({ { "Relu", { "c" }, { "y" } }, { "Relu", { "c" }, { "y" } } },
      { c = array{ 1 } }), "twice")
    refused(model({ { "Relu", { "c" }, { "a" } } }, { c = array{ 1 } }))
  end)

  it("with sizes that are none", function()
    local function tensor(t) return model({ { "Identity", { "c" }, { "y" } } }, { c = t }) end
    refused(tensor{ type = 1, dims = { -3 }, raw = "" })
    refused(tensor{ type = 1, dims = { 2 ^ 40, 2 ^ 40 }, raw = "" })
    refused(tensor{ type = 1, dims = { 2 ^ 40 }, raw = "" })
    refused(tensor{ type = 10, dims = { 2 ^ 40 } })
    refused(tensor{ type = 99, dims = { 1 }, raw = "a" })
    refused(tensor{ type = 8, dims = { 1 } })
    local dims = {}
    for i = 1, 40 do dims[i] = 1 end
    refused(tensor{ type = 1, dims = dims, raw = ("\0"):rep(4) })
  end)

  it("with names that hold what is no name", function()
    refused(model({ { "Relu", { "c\0d" }, { "y" } } }), "control")
    refused(model({ { "Relu", { "c" }, { ("n"):rep(2 ^ 17) } } }, { c = array{ 1 } }))
  end)

  it("with more fields than a model has", function()
    refused(("\8\1"):rep(2 ^ 21), "more fields")
  end)

  it("that is cut off anywhere", function()
    local whole = model({ { "Conv", { "c", "w" }, { "y" }, { kernel_shape = { 1, 1 } } } },
      { c = ty.nd.ones{ 1, 1, 2, 2 }, w = ty.nd.ones{ 1, 1, 1, 1 } })
    for n = 0, #whole - 1 do
      local e = give(whole:sub(1, n))
      assert.is_true(e == nil or ty.is_error(e) and CODES[e.code], n .. ": " .. tostring(e))
    end
  end)

  it("with bits that were turned", function()
    local whole = model({ { "Conv", { "c", "w" }, { "a" }, { kernel_shape = { 1, 1 }, pads = { 0,
      0, 0, 0 } } },
      { "Reshape", { "a", "s" }, { "b" } }, { "Softmax", { "b" }, { "y" }, { axis = -1 } } },
      { c = ty.nd.ones{ 1, 1, 2, 2 }, w = ty.nd.ones{ 1, 1, 1, 1 }, s = array({ 2, 2 }, "int64") })
    local random = trials.random(7)
    for _ = 1, 500 do
      local at = random(1, #whole)
      local byte = bit.bxor(whole:byte(at), 2 ^ random(0, 7))
      local e = give(whole:sub(1, at - 1) .. string.char(byte) .. whole:sub(at + 1))
      assert.is_true(e == nil or ty.is_error(e), tostring(e))
    end
  end)
end)
