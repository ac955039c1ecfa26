-- Each operator that the exporter knows, in the cases of spec/operators: written as ONNX, read
-- back, and run; and by ONNX Runtime, where Python has it.
local files = require "spec.support.onnx_files"
local shell = require "spec.support.shell"
local trials = require "spec.support.trials"
local ty = require "tycho"
local export = require "tycho.onnx.exporter"
require "spec.helper"

local BOUND = 1e-4                       -- float32

local known = {}
for _, name in ipairs(export.operators()) do
  known[name] = true
end

-- Lines that the exporter refuses, or the importer, with a part of their error.
local REFUSED = {
  ["Pooling 1"] = "reaches beyond the border",           -- an average, rounded up
  ["_contrib_DeformableConvolution 1"] = "places just outside the image",
  ["_contrib_ModulatedDeformableConvolution 1"] = "before opset 19",
  ["_contrib_box_nms 1"] = "boxes that are no corners",
  ["RNN 7"] = "projection_size", ["RNN 8"] = "projection_size",
  ["_contrib_MultiBoxDetection 1"] = "as many rows as a run finds", -- of NonMaxSuppression
}

-- Inputs that are parameters in networks.
local PARAMETERS = { in_weight = true, in_gamma = true, in_beta = true, in_bias = true,
  in_parameters = true, in_moving_mean = true, in_moving_var = true }

-- Regions name a sample that is not there: 0 here, and whatever is there in ONNX Runtime.
local NOT_COMPARED = { ["_contrib_ROIAlign 2"] = true }
-- ONNX Runtime 1.32 has no such operators of opset 22.
local NOT_COMPARED_AFTER = { ["ROIPooling 1"] = 21, ["_contrib_ROIAlign 1"] = 21 }

local python = files.python()
local kept, keep = files.kept_folder()

local function one(line, key, opset)
  local random = trials.random(trials.seed("onnx", key))
  local case = trials.make(line, random)
  if not case.symbol then
    return pending("arrays only")
  end
  local arrays, states, inputs = {}, {}, {}
  for name, x in pairs(case.arrays) do
    arrays[name], inputs[name] = x:astype("float32"), not PARAMETERS[name]
  end
  for name, s in pairs(case.aux) do
    states[name] = ty.nd.ones(s)
  end
  local compared = not NOT_COMPARED[key] and opset <= (NOT_COMPARED_AFTER[key] or opset)
  local ok, e = pcall(files.round_trip, case.symbol, arrays, states, inputs,
    { opset = opset, keep = compared and keep(key:gsub("%W", "_") .. "_" .. opset) })
  if not ok and ty.is_error(e) and e.code == "unsupported" then
    assert.matches(REFUSED[key] or "^$", e.message)
    return
  end
  assert(ok, e)
  assert.is_true(e < BOUND, ("%s: off by %g"):format(key, e))
end

for _, source in ipairs{ "cases", "cases_values" } do
  describe("operators of spec/operators/" .. source .. ".lua as ONNX", function()
    for line, key in trials.lines(require("spec.operators." .. source)) do
      local info = known[line[1]] or known[ty.op.info(line[1]).name]
      if info then
        it(key, function()
          one(line, key, 17)
          one(line, key, 18)
          one(line, key, 23)
        end)
      end
    end
  end)
end

describe("types and axes of exported operators", function()
  -- Writes y = op(x), reads it back; returns the file's operators and the difference.
  local function write(symbol, x, opset, keep_too)
    local list = {}
    local function note_operators(path, ...)
      if keep_too then
        keep_too(path, ...)
      end
      for i, n in ipairs(require("tycho.onnx.model_file").read(path, "spec").graph.nodes) do
        list[i] = n.op
      end
    end
    local off = files.round_trip(symbol, { x = x }, {}, { x = true }, { opset = opset,
      keep = note_operators })
    return table.concat(list, " "), off
  end

  it("that ONNX lacks are written as int32, or refused", function()
    local x = ty.sym.Variable("x", { dtype = "uint8" })
    local small = ty.nd.array({ { 1, 250 }, { 7, 0 } }, { dtype = "uint8" })
    for _, y in ipairs{ ty.sym.negative{ x }, ty.sym.sum{ x, axis = 1 }, x + x, x * 3,
        ty.sym.clip{ x, a_min = -1, a_max = 9 }, ty.sym.square{ x }, ty.sym.relu{ x } } do
      local operators, off = write(y, small, 13)
      assert.matches("^Cast .* Cast", operators)
      assert.equal(0, off)
    end
    local flag = ty.sym.Variable("x", { dtype = "bool" })
    local flags = ty.nd.array({ { 1, 0 }, { 1, 1 } }, { dtype = "bool" })
    for _, y in ipairs{ ty.sym.sum{ flag, axis = 1 }, ty.sym.mean{ flag }, ty.sym.abs{ flag } } do
      assert.equal(0, select(2, write(y, flags)))
    end
    local whole = ty.sym.Variable("x", { dtype = "int32" })
    local numbers = ty.nd.array({ { 1, -2 } }, { dtype = "int32" })
    assert.equal("Identity", (write(ty.sym.floor{ whole }, numbers):match "^%S+"))
    assert.equal("Max", (write(ty.sym.relu{ whole }, numbers):match "^%S+"))
    local ok, e = pcall(write, ty.sym.exp{ whole }, numbers)
    assert.is_false(ok)
    assert.equal("unsupported", e.code)
    assert.matches("type int32; ONNX has this operator for floats only", e.message)
  end)

  it("means of small integers, whose sums wrap around", function()
    for dtype, expected in pairs{ uint8 = { 14, 82 }, int8 = { 14, -3 } } do
      local x = ty.nd.array({ { 200, 100, 255 }, { -7, -3, 0 } }, { dtype = "int32" }):astype(dtype)
      assert.same(expected, ty.nd.mean(x, { axis = 1 }):totable())
      for _, axis in ipairs{ { 1 }, { 0, 1 }, {} } do
        local y = ty.sym.mean{ ty.sym.Variable "x", axis = axis }
        assert.equal(0, select(2, write(y, x, 18)))
        assert.equal(0, select(2, write(y, x, 13)))
      end
    end
  end)

  it("windows that are inside a border get it by Pad", function()
    local x = ty.nd.random.uniform{ -1, 1, shape = { 1, 2, 9, 8 } }
    local y = ty.sym.Pooling{ ty.sym.Variable "x", kernel = { 2, 3 }, stride = { 2, 2 },
      pad = { 1, 1 }, pool_type = "max", pooling_convention = "full" }
    local operators, off = write(y, x, 17, keep "windows_in_borders")
    assert.equal(0, off)
    assert.equal("Pad MaxPool Identity", operators)
  end)

  it("layers over a vector", function()
    local line = ty.nd.array{ 3, -4 }
    assert.equal(0, select(2, write(ty.sym.L2Normalization{ ty.sym.Variable "x" }, line, 17)))
    local weight = ty.sym._ones{ shape = { 3, 1 } }
    local rows = ty.sym.FullyConnected{ ty.sym.Variable "x", weight, num_hidden = 3,
      no_bias = true }
    assert.equal(0, select(2, write(rows, line, 17, keep "rows_of_one")))
  end)

  it("results that have no axes in ONNX", function()
    local matrix = ty.nd.array{ { 1, 2 }, { 3, 5 } }
    local place = ty.sym.BlockGrad{ ty.sym._ones{ shape = { 2 } } }
    for name, y in pairs{ det = ty.sym.linalg.det{ ty.sym.Variable "x" },
        gather = ty.sym.gather_nd{ ty.sym.Variable "x", place } } do
      local _, off = write(y, matrix, 17, keep("no_axes_" .. name))
      assert.equal(0, off)
    end
  end)

  it("convolutions whose windows bend, if their rule at the border is ONNX's", function()
    local V = ty.sym.Variable
    local window = { kernel = { 2, 2 }, num_filter = 3, num_deformable_group = 2, pad = { 1, 0 },
      stride = { 1, 2 }, dilate = { 1, 1 }, num_group = 2 }
    ty.random.seed(4)
    local function random(...) return ty.nd.random.uniform{ -1, 1, shape = { ... } } end
    local arrays = { x = random(2, 4, 3, 5), offset = random(2, 16, 4, 2),
      mask = random(2, 8, 4, 2), weight = random(6, 2, 2, 2), bias = random(6) }
    window.num_filter = 6
    for _, no_bias in ipairs{ true, false } do
      local given = { V "x", V "offset", V "mask", V "weight", not no_bias and V "bias" or nil,
        no_bias = no_bias }
      for key, v in pairs(window) do
        given[key] = v
      end
      local y = ty.sym.contrib.ModulatedDeformableConvolution(given)
      local off = files.round_trip(y, arrays, {}, { x = true, offset = true, mask = true },
        { opset = 22, keep = keep("bent_" .. tostring(no_bias)) })
      assert.is_true(off < BOUND)
    end
    local shapes = { x = { 1, 1, 3, 3 }, offset = { 1, 2, 3, 3 }, mask = { 1, 1, 3, 3 },
      weight = { 1, 1, 1, 1 } }
    local function refused(y, opset, text)
      local given = {}
      for _, name in ipairs(y:list_arguments()) do
        given[name] = shapes[name]
      end
      local e = assert.raises("unsupported", ty.onnx.export_model, { y, {}, given, "none.onnx",
        opset = opset })
      assert.matches(text, e.message, 1, true)
    end
    local small = { kernel = { 1, 1 }, num_filter = 1, no_bias = true }
    local function make(op, ...)
      local given = { ... }
      for key, v in pairs(small) do
        given[key] = v
      end
      return ty.sym.contrib[op](given)
    end
    refused(make("ModulatedDeformableConvolution", V "x", V "offset", V "mask", V "weight"), 18,
      "before opset 19")
    refused(make("DeformableConvolution", V "x", V "offset", V "weight"), 22,
      "places just outside the image")
  end)

  it("reductions that leave all axes", function()
    local x = ty.nd.array{ { 1, -2, 3 }, { 4, 5, 6 } }
    for _, name in ipairs{ "sum", "mean", "max", "nansum", "prod" } do
      for _, opset in ipairs{ 13, 18 } do
        local y = ty.sym[name]{ ty.sym.Variable "x", axis = { 0, 1 }, exclude = true }
        assert.equal(0, select(2, write(y, x, opset)))
      end
    end
  end)
end)

describe("the same files", function()
  it("are right for ONNX's checker and ONNX Runtime", function()
    if not python then
      return pending("no Python with onnx, onnxruntime and numpy")
    end
    local output = shell.run(("%s spec/support/onnx_check.py %s %g"):format(python, kept, BOUND))
    assert.matches("^%d+ checked\n$", output)
    os.execute("rm -r " .. kept)
  end)
end)
