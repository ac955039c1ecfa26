-- Operators of ONNX's domain ai.onnx.ml: data before a model, linear models, trees.
local files = require "spec.support.onnx_files"
local folder = require "spec.support.folder"
local models = require "spec.support.onnx_models"
local ty = require "tycho"
require "spec.helper"

local function array(t, dtype) return ty.nd.array(t, { dtype = dtype or "float32" }) end

local function near(expected, y)
  local got = y:reshape{ -1 }:totable()
  assert.equal(#expected, #got)
  for i, v in ipairs(expected) do
    assert.is_true(math.abs(v - got[i]) < 1e-6,
      ("element %d: %g, expected %g"):format(i, got[i], v))
  end
end

-- Returns the outputs of one node over x; `constant` is its second input.
local function run(op, attrs, x, count, constant)
  local outputs, results = {}, nil
  for i = 1, count or 1 do
    outputs[i] = "y" .. i
  end
  local model = { nodes = { { op, { "x", constant and "c" }, outputs, attrs,
    domain = "ai.onnx.ml" } }, inputs = { x = x.shape }, constants = { c = constant },
    outputs = outputs, domains = { ["ai.onnx.ml"] = 3 } }
  folder.with(function(dir)
    folder.write(dir .. "/m.onnx", models.bytes(model))
    local sym, args, auxs = ty.onnx.import_model(dir .. "/m.onnx")
    args.x = x
    results = files.run(sym, args, auxs)
  end)
  return results
end

describe("operators of ai.onnx.ml", function()
  local X = array{ { 1, -4 }, { 0, 0 }, { 3, 4 } }

  it("data before a model", function()
    assert.same({ { 0, -10 }, { -2, -2 }, { 4, 6 } }, run("Scaler",
      { offset = { floats = { 1, 1 } }, scale = { floats = { 2, 2 } } }, X)[1]:totable())
    assert.same({ { 1, 0 }, { 0, 0 }, { 1, 1 } }, run("Binarizer", { threshold = { float = 0.5 } },
      X)[1]:totable())
    near({ 0.2, -0.8, 0, 0, 3 / 7, 4 / 7 }, run("Normalizer", { norm = "L1" }, X)[1])
    near({ 0.6, 0.8 }, run("Normalizer", { norm = "L2" }, array{ 3, 4 })[1])
    local y = run("ArrayFeatureExtractor", {}, X, 1, array({ 1, 0, 1 }, "int64"))[1]
    assert.same({ { -4, 1, -4 }, { 0, 0, 0 }, { 4, 3, 4 } }, y:totable())
  end)

  it("linear models", function()
    local y = run("LinearRegressor", { targets = 2, coefficients = { floats = { 1, 2, 0, -1 } },
      intercepts = { floats = { 0, 10 } } }, X)[1]
    assert.same({ { -7, 14 }, { 0, 10 }, { 11, 6 } }, y:totable())
    local out = run("LinearClassifier", { classlabels_ints = { 7, 9 },
      coefficients = { floats = { 1, 0, 0, 1 } }, intercepts = { floats = { 0, 1 } } }, X, 2)
    assert.same({ { 7, 9, 9 }, { { 1, -3 }, { 0, 1 }, { 3, 5 } } }, { out[1]:totable(),
      out[2]:totable() })
  end)

  -- A tree that asks for feature 0, then 1, and one that is a leaf.
  local function make_trees(kind, more)
    local attrs = { nodes_treeids = { 0, 0, 0, 0, 0, 1 }, nodes_nodeids = { 0, 1, 2, 3, 4, 0 },
      nodes_featureids = { 0, 0, 1, 0, 0, 0 }, nodes_truenodeids = { 1, 0, 3, 0, 0, 0 },
      nodes_falsenodeids = { 2, 0, 4, 0, 0, 0 }, nodes_values = { floats = { 0, 0, 4, 0, 0, 0 } },
      nodes_missing_value_tracks_true = { 1, 0, 0, 0, 0, 0 } }
    attrs.nodes_modes = { texts = { "BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF" } }
    attrs[kind .. "_treeids"], attrs[kind .. "_nodeids"] = { 0, 0, 0, 1 }, { 1, 3, 4, 0 }
    for name, v in pairs(more) do
      attrs[name] = v
    end
    return attrs
  end
  local ROWS = array{ { 1, -4 }, { 0, 9 }, { 3, 5 }, { 0 / 0, 1 }, { 1, 0 / 0 } }

  it("trees, with rows that lack numbers", function()
    local more = { target_ids = { 0, 0, 0, 0 }, target_weights = { floats = { 1, 2, 3, 10 } },
      base_values = { floats = { 0.5 } } }
    local attrs = make_trees("target", more)
    assert.same({ { 12.5 }, { 11.5 }, { 13.5 }, { 11.5 }, { 13.5 } },
      run("TreeEnsembleRegressor", attrs, ROWS)[1]:totable())
    attrs.nodes_modes.texts = { "BRANCH_GT", "LEAF", "BRANCH_GT", "LEAF", "LEAF", "LEAF" }
    assert.same({ { 11.5 }, { 12.5 }, { 11.5 }, { 11.5 }, { 11.5 } },
      run("TreeEnsembleRegressor", attrs, ROWS)[1]:totable())
    assert.same({ { 13.5 } }, run("TreeEnsembleRegressor", attrs, array{ { 0, 0 / 0 } })[1]
      :totable())
  end)

  it("trees whose leaves vote for classes", function()
    local attrs = make_trees("class", { class_ids = { 0, 1, 2, 1 },
      classlabels_int64s = { 4, 5, 6 }, class_weights = { floats = { 1, 0.5, 2, 0.25 } } })
    local y = run("TreeEnsembleClassifier", attrs, ROWS, 2)
    assert.same({ { 5, 4, 6, 4, 6 }, { { 0, 0.75, 0 }, { 1, 0.25, 0 }, { 0, 0.25, 2 },
      { 1, 0.25, 0 }, { 0, 0.25, 2 } } }, { y[1]:totable(), y[2]:totable() })
    attrs = make_trees("class", { class_ids = { 0, 0, 0, 0 }, classlabels_int64s = { 4, 5 },
      class_weights = { floats = { -1, 0.5, 2, 0.25 } }, post_transform = "LOGISTIC" })
    y = run("TreeEnsembleClassifier", attrs, ROWS, 2)
    assert.same({ 5, 4, 5, 4, 5 }, y[1]:totable())
    local odds = 1 / (1 + math.exp(-0.75))
    near({ 1 - odds, odds }, y[2]:slice{ begin = { 0, 0 }, ["end"] = { 1, 2 } })
  end)

  it("trees that are none are refused", function()
    local function refused(code, text, changes)
      local attrs = make_trees("target", { target_ids = { 0, 0, 0, 0 },
        target_weights = { floats = { 1, 2, 3, 10 } } })
      for name, v in pairs(changes) do
        attrs[name] = v
      end
      local ok, e = pcall(run, "TreeEnsembleRegressor", attrs, ROWS)
      assert.is_false(ok)
      assert.equal(code, e.code)
      assert.matches(text, e.message)
    end
    refused("format", "reached twice", { nodes_truenodeids = { 1, 0, 0, 0, 0, 0 } })
    refused("format", "tree 0 has no node 9", { nodes_truenodeids = { 9, 0, 3, 0, 0, 0 } })
    refused("format", "'nodes_values' has 1 entries instead of 6",
      { nodes_values = { floats = { 0 } } })
    refused("format", "output 3 of 1", { target_ids = { 0, 0, 0, 3 } })
    refused("unsupported", "different modes", { nodes_modes = { texts = { "BRANCH_LEQ", "LEAF",
      "BRANCH_LT", "LEAF", "LEAF", "LEAF" } } })
    local ok, e = pcall(run, "TreeEnsembleClassifier", make_trees("class", {}), ROWS)
    assert.is_false(ok)
    assert.matches("labels that are text", e.message)
  end)
end)
