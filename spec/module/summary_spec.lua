-- Module:summary: shapes, parameters, operations, bytes, and times after a profile.

local ty = require "tycho"
require "spec.helper"

local function network()
  local net = ty.sym.Convolution{ ty.sym.Variable "data", num_filter = 8, kernel = { 3, 3 },
    pad = { 1, 1 }, name = "conv1" }
  net = ty.sym.Activation{ net, act_type = "relu", name = "relu1" }
  net = ty.sym.FullyConnected{ net, num_hidden = 10, name = "fc2" }
  return ty.sym.SoftmaxOutput{ net, name = "softmax" }
end

describe("Module:summary", function()
  local mod

  before_each(function()
    mod = ty.mod.Module{ symbol = network() }
  end)

  it("lists layers with what they need", function()
    local s = mod:summary{ shape = { data = { 16, 3, 12, 12 } } }
    local names = {}
    for i, layer in ipairs(s) do
      names[i] = layer.name
    end
    assert.same({ "data", "conv1", "relu1", "fc2", "softmax" }, names)
    assert.same({ name = "conv1", op = "Convolution", shape = { 16, 8, 12, 12 },
      parameters = 8 * 3 * 9 + 8, flops = 2 * 16 * 8 * 144 * 27, bytes = 16 * 8 * 144 * 4,
      time = 0 }, s[2])
    assert.equal(10 * 8 * 144 + 10, s[4].parameters)
    assert.equal(2 * 16 * 10 * 8 * 144, s[4].flops)
    assert.equal(s[2].parameters + s[4].parameters, s.parameters)
    assert.is_nil(s.memory)
    local text = tostring(s)
    assert.truthy(text:find("conv1 +Convolution +16x8x12x12 +224 +995.3 k +72 kB"), text)
    assert.truthy(text:find("parameters  11754", 1, true), text)
    assert.is_nil(text:find("time", 1, true))
  end)

  it("takes the shapes and the memory of a bound module", function()
    mod:bind{ data_shapes = { { "data", { 4, 3, 6, 6 } } },
      label_shapes = { { "softmax_label", { 4 } } } }
    local s = mod:summary()
    assert.same({ 4, 8, 6, 6 }, s[2].shape)
    assert.equal(mod:memory().pool, s.memory.pool)
    assert.truthy(tostring(s):find("memory      pool", 1, true))
    assert.same({ 2, 8, 6, 6 }, mod:summary{ shape = { data = { 2, 3, 6, 6 },
      softmax_label = { 2 } } }[2].shape)
  end)

  it("shares out the time of a profile", function()
    mod:bind{ data_shapes = { { "data", { 16, 3, 12, 12 } } },
      label_shapes = { { "softmax_label", { 16 } } } }
    mod:init_params()
    ty.profiler.set_config{ filename = os.tmpname(), aggregate_stats = true }
    ty.profiler.dumps{ reset = true }
    ty.profiler.set_state("run")
    mod:forward_backward(ty.io.DataBatch{ data = { ty.nd.ones{ 16, 3, 12, 12 } },
      label = { ty.nd.zeros(16) } })
    ty.waitall()
    ty.profiler.set_state("stop")
    local s, sum = mod:summary(), 0
    for _, layer in ipairs(s) do
      sum = sum + layer.time
    end
    assert.equal(s.time, sum)
    local own = 0
    for _, row in ipairs(ty.profiler.sums()) do
      own = own + (row.node:find("^conv1") and row.total or 0)
    end
    assert.truthy(own > 0)
    assert.equal(own, s[2].time)
    assert.truthy(tostring(s):find("time", 1, true))
    ty.profiler.dumps{ reset = true }
    assert.equal(0, mod:summary().time)
  end)

  it("says which shapes are missing, and refuses unknown names", function()
    assert.raises("shape", mod.summary, mod)
    assert.raises("name", mod.summary, mod, { shape = { dta = { 1 } } })
    assert.raises("name", mod.summary, mod, { shapes = {} })
  end)
end)
