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

  it("refuses functions that give something else", function()
    local m = ty.metric.create(function() return "much" end)
    assert.raises("type", m.update, m, { { 1 } }, { { 1 } })
  end)
end)
