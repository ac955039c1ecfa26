-- Metrics: what the recorded cases do not reach.

local ty = require "tycho"

local function value(metric)
  return (select(2, metric:get()))
end

describe("metric", function()
  it("reads every element type", function()
    for _, dtype in ipairs{ "float32", "float64", "float16", "int32", "int64", "uint8", "int8" } do
      local m = ty.metric.create("acc")
      m:update({ ty.nd.array({ 1, 0, 1 }, { dtype = dtype }) },
        { ty.nd.array({ { 0, 1 }, { 1, 0 }, { 1, 0 } }, { dtype = dtype }) })
      assert.near(2 / 3, value(m), 1e-12)
    end
  end)

  it("gives values by name", function()
    local both = ty.metric.create{ "acc", "mse" }
    both:update({ ty.nd.array{ 1, 1 } }, { ty.nd.array{ 1, 0 } })
    local list = both:get_name_value()
    assert.same({ 0.5, 0.5 }, { list.accuracy, list.mse })
    assert.is_nil(list.rmse)
  end)

  it("of the best k has k in every name, once", function()
    assert.equal("best_3", (ty.metric.TopKAccuracy{ top_k = 3, name = "best" }:get()))
    local m = ty.metric.create("top_k_accuracy", { top_k = 2 })
    assert.equal("top_k_accuracy_2", m.name)
    assert.equal("top_k_accuracy_2", ty.metric.create(m:get_config()).name)
  end)

  it("of the correlation of classes counts updates, not outputs", function()
    local m, label = ty.metric.create("pcc"), ty.nd.array{ 0, 1, 1 }
    local pred = ty.nd.array{ { 1, 0 }, { 0, 1 }, { 1, 0 } }
    m:update({ label, label }, { pred, pred })
    assert.equal(1, m.num_inst)
    assert.near(0.5, value(m), 1e-12)
    assert.near(0.5, m.sum_metric, 1e-12)
  end)

  it("without labels says which metric needs none", function()
    local e = assert.raises("shape", function()
      ty.metric.create("mse"):update({}, { ty.nd.ones{ 2, 3 } })
    end)
    assert.truthy(e.message:find("'loss'", 1, true), e.message)
  end)

  it("of a function tells who takes its tables for arrays or counts from 0", function()
    for key, f in pairs{ argmax = function(_, pred) return pred:argmax() end,
        ["0"] = function(label) return label[0] end } do
      local metric = ty.metric.CustomMetric(f)
      local e = assert.raises("name", metric.update, metric, { ty.nd.ones(2) }, { ty.nd.ones(2) })
      assert.equal(key, e.argument)
      assert.truthy(e.message:find("ty.nd.array", 1, true), e.message)
    end
    for _, f in ipairs{ function(label, pred) return label - pred end,
        function(label) return 2 * label end, function(_, pred) return -pred end,
        function(_, pred) return pred ^ 2 end, function(label) return label / 2 end } do
      local metric = ty.metric.CustomMetric(f)
      local e = assert.raises("type", metric.update, metric, { ty.nd.ones(2) }, { ty.nd.ones(2) })
      assert.truthy(e.message:find("ty.nd.array", 1, true), e.message)
    end
    local mae = ty.metric.CustomMetric(function(label, pred)
      return (ty.nd.array(label) - ty.nd.array(pred)):abs():sum():asscalar(), #label
    end)
    mae:update({ ty.nd.array{ 1, 2 } }, { ty.nd.array{ 2, 5 } })
    assert.equal(2, value(mae))
  end)

  it("is right on large arrays in compiled code", function()
    local n = 20000
    local labels, preds = ty.nd.arange(n) % 10, ty.nd.one_hot(ty.nd.arange(n) % 7, { depth = 10 })
    local right = 0
    for i = 0, n - 1 do
      right = right + (i % 10 == i % 7 and 1 or 0)
    end
    for _ = 1, 5 do
      local m = ty.metric.create("acc")
      m:update({ labels:copy() }, { preds:copy() })
      assert.equal(right / n, value(m))
    end
  end)

  it("leaves its sums alone when an update is refused", function()
    local m = ty.metric.create("mse")
    m:update({ { 1 } }, { { 3 } })
    assert.raises("shape", m.update, m, { { 1 } }, {})
    assert.equal(4, value(m))
    assert.raises("index", function()
      ty.metric.create("ce"):update({ { 5 } }, { { { 0.5, 0.5 } } })
    end)
  end)

  it("is made again from its configuration", function()
    for _, name in ipairs{ "acc", "f1", "mcc", "pcc", "mae", "ce", "pearsonr", "loss" } do
      local m = ty.metric.create(name, { name = "x" })
      local other = ty.metric.create(m:get_config())
      assert.equal(m.class_name, other.class_name)
      assert.same(m:get_config(), other:get_config())
    end
    local both = ty.metric.create{ "acc", "mse" }
    assert.same({ "accuracy", "mse" }, (ty.metric.create(both:get_config()):get()))
    assert.equal("micro", ty.metric.F1{ average = "micro" }:get_config().average)
  end)

  it("is made from a list whose named part is its options", function()
    assert.equal(3, ty.metric.create{ "top_k_accuracy", top_k = 3 }.top_k)
    for _, m in ipairs(ty.metric.create{ "f1", "mcc", average = "micro" }.metrics) do
      assert.equal("micro", m.average)
    end
    assert.raises("name", ty.metric.create, { "f1", "acc", average = "micro" })
  end)

  it("names predictions that are missing", function()
    for _, name in ipairs{ "acc", "mse", "ce", "f1", "loss", "pearsonr" } do
      local m = ty.metric.create(name)
      assert.equal("preds", assert.raises("value", m.update, m, ty.nd.ones(2)).argument)
      assert.equal("preds", assert.raises("value", m.update, m).argument)
    end
  end)

  it("counts what is not a number as wrong, and says that there was some", function()
    local nan = 0 / 0
    local labels, preds = { { 0, 0, 1 } }, { { { nan, 1 }, { nan, nan }, { 0.2, 0.8 } } }
    local four = { { { nan, 1, 0, 0 }, { nan, nan, nan, nan }, { 0.2, 0.8, 0, 0 } } }
    local function wrong(metric, given, want)
      metric:update(labels, given)
      assert.near(want, value(metric), 1e-12)
      assert.is_true(metric.has_nan)
      metric:reset()
      assert.is_false(metric.has_nan)
      metric:update({ { 0, 1 } }, { { { 1, 0, 0 }, { 0, 1, 0 } } })
      assert.is_false(metric.has_nan)
    end
    wrong(ty.metric.create("acc"), preds, 1 / 3)
    wrong(ty.metric.TopKAccuracy{ top_k = 2 }, four, 1 / 3)
    local f1 = ty.metric.F1()
    f1:update(labels, preds)
    assert.near(0.5, value(f1), 1e-12)                   -- two positives that are none
    for _, name in ipairs{ "ce", "nll_loss", "loss" } do
      local m = ty.metric.create(name)
      m:update(labels, preds)
      assert.is_true(m.has_nan, name)
    end
    local both = ty.metric.create{ "mae", "acc" }
    both:update({ { { 1, 2 } } }, { { { nan, 2 } } })
    assert.is_true(both.has_nan)
    local perplexity = ty.metric.Perplexity(ty.null)
    perplexity:update(labels, preds)
    assert.is_true(perplexity.has_nan)
    assert.is_true(value(perplexity) ~= value(perplexity))
  end)

  it("warns once of labels that are no classes, with the base from which they count", function()
    local texts, warning = {}, ty.log.warning
    ty.log.warning = function(_, text) texts[#texts + 1] = text end
    local ok, e = pcall(function()
      for _, metric in ipairs{ ty.metric.create("acc"), ty.metric.create("pcc"),
          ty.metric.TopKAccuracy{ top_k = 2 }, ty.metric.Perplexity(ty.null) } do
        texts = {}
        for _ = 1, 3 do
          metric:update({ { 1, 2, 3 } }, { { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } } })
        end
        assert.equal(1, #texts)
        assert.truthy(texts[1]:find("label 3 is none of the 3 classes, 0 to 2", 1, true), texts[1])
        texts = {}
        metric:reset()
        metric:update({ { 0, 2, -1 } }, { { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } } })
        assert.same({}, texts)
      end
    end)
    ty.log.warning = warning
    assert.is_true(ok, tostring(e))
  end)

  it("shows names and values when its list is printed", function()
    local both = ty.metric.create{ "acc", "mse" }
    both:update({ { 1, 0 } }, { { { 0, 1 }, { 1, 0 } } })
    local list = ty.metric.create("acc"):get_name_value()
    assert.equal("accuracy = nan", tostring(list))
    assert.equal("accuracy = 1, mse = ", tostring(both:get_name_value()):match("^.*mse = "))
    assert.equal("accuracy", list[1][1])
    assert.is_true(require("tycho.core.values").is_plain(list))
    local mod = ty.mod.Module{ ty.sym.SoftmaxOutput{ ty.sym.Variable("data"), name = "softmax" } }
    mod:bind{ data_shapes = { { "data", { 2, 3 } } },
      label_shapes = { { "softmax_label", { 2 } } } }
    assert.equal("softmax_output = (2, 3)", tostring(mod.output_shapes))
    local it = ty.io.NDArrayIter{ ty.nd.ones{ 2, 3 }, ty.nd.zeros(2), batch_size = 2 }
    mod:init_params()
    assert.equal("cross-entropy = 1.098612", tostring(mod:score(it, "ce")))
  end)

  it("refuses functions that give something else", function()
    local m = ty.metric.create(function() return "much" end)
    assert.raises("type", m.update, m, { { 1 } }, { { 1 } })
  end)
end)

describe("an error of numbers", function()
  for _, name in ipairs{ "mae", "mse", "rmse" } do
    it("names labels and predictions that do not fit: " .. name, function()
      local ok, e = pcall(function()
        ty.metric.create(name):update({ ty.nd.zeros{ 3 } }, { ty.nd.ones{ 4, 2 } })
      end)
      assert.is_false(ok)
      assert.same({ "shape", "labels", { 3 }, { 4, 2 } }, { e.code, e.argument, e.got, e.expected })
      assert.truthy(e.func:lower():find(name .. ":update", 1, true), e.func)
    end)

    it("broadcasts what agrees: " .. name, function()
      local m = ty.metric.create(name)
      m:update({ ty.nd.zeros{ 4 } }, { ty.nd.ones{ 4, 2 } })
      m:update({ ty.nd.zeros{ 1 } }, { ty.nd.ones{ 4, 2 } })
      assert.equal(1, select(2, m:get()))
    end)
  end
end)
