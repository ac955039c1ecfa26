-- Monitors and callbacks of executors go on when a module meets other shapes.

local ty = require "tycho"

local function network()
  local h = ty.sym.Embedding{ data = ty.sym.Variable("data"), input_dim = 20, output_dim = 4,
    name = "embed" }
  h = ty.sym.sum{ h, axis = 1, name = "sum" }
  h = ty.sym.FullyConnected{ data = h, num_hidden = 3, name = "fc" }
  return ty.sym.SoftmaxOutput{ data = h, name = "softmax" }
end

local function bound(contexts)
  local m = ty.mod.Module{ symbol = network(), context = contexts }
  m:bind{ data_shapes = { { "data", { 4, 10 } } }, label_shapes = { { "softmax_label", { 4 } } } }
  m:init_params()
  return m
end

local function batch(width)
  return ty.io.DataBatch{ data = { ty.nd.ones{ 4, width } }, label = { ty.nd.zeros(4) } }
end

-- Returns how often each name is among the entries of a step.
local function step(m, monitor, width)
  monitor:tic()
  m:forward(batch(width), true)
  local counts = {}
  for _, entry in ipairs(monitor:toc()) do
    counts[entry[2]] = (counts[entry[2]] or 0) + 1
  end
  return counts
end

describe("a monitor of a module", function()
  it("sees every argument and output once, whatever the shape of the batch", function()
    local m, monitor = bound(), ty.mon.Monitor(1)
    m:install_monitor(monitor)
    local first = step(m, monitor, 10)
    assert.are.equal(1, first.fc_weight)
    assert.are.equal(1, first.fc_output)
    for _, width in ipairs{ 14, 10, 12, 14 } do
      assert.are.same(first, step(m, monitor, width))
    end
  end)

  it("sees the bucket that runs", function()
    local m = ty.mod.BucketingModule{ sym_gen = function()
      return network(), { "data" }, { "softmax_label" }
    end, default_bucket_key = 14 }
    m:bind{ data_shapes = { { "data", { 4, 14 } } },
      label_shapes = { { "softmax_label", { 4 } } } }
    m:init_params()
    local monitor = ty.mon.Monitor{ 1, pattern = "fc_.*|softmax_output" }
    m:install_monitor(monitor)
    for _, width in ipairs{ 10, 14, 10 } do
      local x = batch(width)
      x.bucket_key = width
      x.provide_data = { { "data", { 4, width } } }
      x.provide_label = { { "softmax_label", { 4 } } }
      monitor:tic()
      m:forward(x, true)
      local seen = monitor:toc()
      assert.equal(4, #seen)
      assert.truthy(tostring(seen):find("fc_output = %S+, softmax_output = %S+, fc_weight = "),
        tostring(seen))
    end
  end)

  it("sees those of every device", function()
    local m, monitor = bound{ ty.cpu(0), ty.cpu(1) }, ty.mon.Monitor(1)
    m:install_monitor(monitor)
    for _, width in ipairs{ 10, 14, 10 } do
      local counts = step(m, monitor, width)
      assert.are.same({ 2, 2 }, { counts.fc_weight, counts.fc_output })
    end
  end)

  it("does not keep executors that the module has given back", function()
    local m, monitor = bound(), ty.mon.Monitor(1)
    m:install_monitor(monitor)
    local before = ty.live().executors
    for width = 1, 20 do
      step(m, monitor, width)
    end
    ty.waitall()
    assert.is_true(ty.live().executors - before <= 8)
  end)
end)

describe("a callback of a module's executor", function()
  it("is called in the executors for other shapes, too, until it is removed", function()
    local m, seen = bound(), {}
    m._exec_group.execs[1]:set_monitor_callback(function(name)
      seen[#seen + 1] = name
    end)
    local function names(width)
      seen = {}
      m:forward(batch(width), false)
      return #seen
    end
    local all = names(10)
    assert.is_true(all > 0)
    assert.are.same({ all, all }, { names(14), names(10) })
    m._exec_group.execs[1]:set_monitor_callback(nil)
    assert.are.same({ 0, 0, 0 }, { names(10), names(14), names(12) })
  end)

  it("keeps seeing inputs where it was to see them", function()
    local m, seen = bound(), {}
    m._exec_group.execs[1]:set_monitor_callback(function(name)
      seen[name] = (seen[name] or 0) + 1
    end, true)
    m:forward(batch(10), false)
    local first = seen
    seen = {}
    m:forward(batch(14), false)
    assert.are.same(first, seen)
    local other = m._exec_group.execs[1]:reshape{ data = { 4, 6 } }
    seen = {}
    other:forward(false)
    assert.are.same(first, seen)
  end)
end)
