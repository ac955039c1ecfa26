-- Batches of other shapes than bound: labels without description or name, data that do not fit,
-- what is no batch at all.

local ty = require "tycho"

local function classifier()
  local h = ty.sym.FullyConnected{ data = ty.sym.Variable("data"), num_hidden = 3, name = "fc" }
  return ty.sym.SoftmaxOutput{ data = h, name = "softmax" }
end

local function bound(options, labels)
  options.symbol = options.symbol or classifier()
  local m = ty.mod.Module(options)
  m:bind{ data_shapes = { { "data", { 8, 4 } } }, label_shapes = labels, for_training = false }
  ty.random.seed(1)
  m:init_params{ initializer = ty.init.Normal(1) }
  return m
end

local function rows(n)
  ty.random.seed(n)
  return ty.nd.random.normal{ shape = { n, 4 } }
end

-- Returns the output of a bound classifier for rows, computed here.
local function expected(m, x)
  local p = m:get_params()
  local w, b = p.fc_weight:as_in_context(x.context), p.fc_bias:as_in_context(x.context)
  return ty.nd.softmax{ ty.nd.FullyConnected{ x, w, b, num_hidden = 3 } }
end

local function check(m, truth)
  for _, n in ipairs{ 3, 8, 11, 3 } do
    local x = rows(n)
    m:forward({ data = { x } }, false)
    assert.near(expected(truth, x):totable(), m:get_outputs()[1], 1e-6)
    assert.near(expected(truth, x):totable(), m:predict(x), 1e-6)
  end
end

describe("a batch of another size", function()
  local level = ty.log.level
  setup(function() ty.log.level = "error" end)
  teardown(function() ty.log.level = level end)

  it("is predicted where labels were never described", function()
    local m = bound{}
    check(m, m)
  end)

  it("is predicted where labels were described", function()
    local m = bound({}, { { "softmax_label", { 8 } } })
    check(m, m)
  end)

  it("is predicted by a checkpoint that is loaded without names of labels", function()
    local prefix = os.tmpname()
    local m = bound{}
    m:save_checkpoint(prefix, 1)
    for _, none in ipairs{ {}, ty.null } do
      local n = ty.mod.Module.load(prefix, 1, { label_names = none })
      n:bind{ data_shapes = { { "data", { 8, 4 } } }, for_training = false }
      assert.is_nil(n:get_params().softmax_label)
      check(n, m)
      assert.is_nil(n:get_params().softmax_label)
    end
    local late = ty.mod.Module{ symbol = classifier(), label_names = {} }
    late:bind{ data_shapes = { { "data", { 8, 4 } } }, for_training = false }
    local arg_params, aux_params = m:get_params()
    late:set_params(arg_params, aux_params)
    check(late, m)
    for _, ending in ipairs{ "", "-symbol.json", "-0001.params" } do
      os.remove(prefix .. ending)
    end
  end)

  it("is refused where a parameter with values has the batch's shape", function()
    local net = ty.sym.Variable("data") + ty.sym.Variable("offset")
    local m = ty.mod.Module{ symbol = net, label_names = {} }
    m:bind{ data_shapes = { { "data", { 8, 4 } } }, for_training = false }
    m:init_params{ arg_params = { offset = ty.nd.ones{ 8, 4 } } }
    m:forward{ data = { rows(8) } }
    local e = assert.raises("shape", m.forward, m, { data = { rows(3) } })
    assert.are.same({ "data", { 8, 4 }, { 3, 4 } }, { e.argument, e.expected, e.got })
  end)
end)

describe("what does not fit", function()
  it("is named: the data, not the weight that follows from them", function()
    local m = bound({}, { { "softmax_label", { 8 } } })
    for _, n in ipairs{ 8, 2 } do
      local e = assert.raises("shape", m.forward, m, { data = { ty.nd.ones{ n, 5 } } })
      assert.are.same({ "data", { n, 4 }, { n, 5 } }, { e.argument, e.expected, e.got })
      assert.truthy(tostring(e):find("fc_weight", 1, true), tostring(e))
    end
    m:forward{ data = { rows(8) } }
    assert.shape({ 8, 3 }, m:get_outputs()[1])
    assert.are.equal("data", assert.raises("shape", m.predict, m, ty.nd.ones{ 2, 5 }).argument)
    assert.are.equal("data",
      assert.raises("shape", m.reshape, m, { { "data", { 8, 5 } } }).argument)
  end)

  it("is no batch: an array, text, a number", function()
    local m = bound{}
    for _, what in ipairs{ rows(8), "data", 5 } do
      local e = assert.raises("type", m.forward, m, what)
      assert.are.equal("data_batch", e.argument)
      assert.truthy(tostring(e):find("DataBatch", 1, true), tostring(e))
    end
  end)
end)

describe("a batch with more arrays of data than the network reads", function()
  it("is an error of forward", function()
    local x = ty.nd.ones{ 4, 3 }
    local net = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 2 }
    local mod = ty.mod.Module{ symbol = net, label_names = {} }
    mod:bind{ data_shapes = { { "data", { 4, 3 } } } }
    mod:init_params()
    local e = assert.raises("value", mod.forward, mod, { data = { x, x } })
    assert.equal("data_batch", e.argument)
    mod:forward{ data = { x }, label = { x } }
  end)
end)
