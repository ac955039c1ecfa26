-- The gradient of a large softmax made by the product in front of it, a slab of classes at a time
-- (native/operators/nn/linear_loss.c): the same numbers as step by step, and no array for it.
local device = require "spec.support.device"
local ty = require "tycho"
local sym = ty.sym

local function network(o)
  local data = sym.Variable("data")
  if o.turned then data = sym.reverse{data, axis = 0} end  -- only the product reads it
  local fc = sym.FullyConnected{data = data, num_hidden = o.classes,
    no_bias = o.no_bias, name = "fc"}
  return sym.SoftmaxOutput{data = o.before and fc * 1 or fc, label = sym.Variable("label"),
    name = "softmax", grad_scale = o.grad_scale,
    use_ignore = o.use_ignore, ignore_label = o.ignore_label, normalization = o.normalization,
    smooth_alpha = o.smooth_alpha, out_grad = o.out_grad}
end

local function fill(exe, o)
  ty.random.seed(11)
  for name, x in pairs(exe.arg_dict) do
    if name ~= "label" then
      x[{}] =
        ty.nd.random_normal{shape = x.shape, scale = name == "data" and 1 or 0.3}:astype(x.dtype)
    end
  end
  local label = exe.arg_dict.label
  if o.label_shape then
    label[{}] = ty.nd.softmax(ty.nd.random_normal{shape = label.shape})
  else
    label[{}] =
      ty.nd.random_randint{low = 0, high = o.classes, shape = label.shape}:astype(label.dtype)
    for i, v in ipairs(o.labels or {}) do label[i] = v end
  end
  for _, g in pairs(exe.grad_dict) do g[{}] = 0.5 end
end

local function bound(net, o, apart)
  local exe = net:simple_bind{ctx = ty.cpu(),
    type_dict = {data = o.dtype or "float32", label = o.label_dtype or "float32"},
    shapes = {data = {o.rows, o.units or 24}, label = o.label_shape or {o.rows}},
    grad_req = {data = o.data_req or "write", fc_weight = o.weight_req or "write",
      fc_bias = not o.no_bias and "write" or nil, label = "null"}}
  if apart then exe:set_monitor_callback(function() end) end
  fill(exe, o)
  return exe
end

-- Returns executors of a product of as many units as its data has, whose data dies at its gradient;
-- and one that keeps every value.
local function dying(rows, units, dtype)
  local data, w = sym.reverse{sym.Variable("data"), axis = 0}, sym.Variable("w")
  local net, list = sym.FullyConnected{data = data, weight = w, num_hidden = units, name = "fc"}, {}
  for i = 1, 2 do
    local exe = net:simple_bind{ctx = ty.cpu(), shapes = {data = {rows, units}},
      type_dict = {data = dtype}}
    if i == 2 then exe:set_monitor_callback(function() end) end
    ty.random.seed(5)
    for _, name in ipairs{"data", "w", "fc_bias"} do
      local x = exe.arg_dict[name]
      x[{}] = ty.nd.random_normal{shape = x.shape, dtype = dtype}
    end
    exe:forward{is_train = true}
    exe:backward(exe.outputs[1])
    list[i] = exe
  end
  return unpack(list)
end

local function taken(exe) return exe:program():find("%[fc_backward softmax_backward%]") ~= nil end

local function check(o, expected)
  local net = network(o)
  local exe, apart = bound(net, o), bound(net, o, true)
  assert.equal(expected ~= false, taken(exe))
  for _ = 1, 2 do                                        -- twice: sums grow where they are asked to
    for _, e in ipairs{exe, apart} do
      e:forward(true)
      e:backward(o.out_grad and ty.nd.ones{o.rows, o.classes} or nil)
    end
    assert.near(apart.outputs[1], exe.outputs[1], 0, 1e-6)
    for name, g in pairs(apart.grad_dict) do
      local near = (o.dtype == "float64" and 1e-12 or 3e-6) * ty.nd.max(ty.nd.abs(g)):asscalar()
      assert.near(g, exe.grad_dict[name], near, 0)
    end
  end
end

describe("the gradient of a large softmax", function()
  setup(device.leave)
  teardown(device.come_back)
  it("is that of step by step", function()
    check{rows = 300, classes = 4000}
    check{rows = 1100, classes = 1001, units = 7}
    -- some rows of the data at a time
    check{rows = 1300, classes = 1500, units = 900, weight_req = "add"}
    check{rows = 1, classes = 1100000, units = 2}
    check{rows = 8200, classes = 129, units = 3}         -- a slab is never narrower than 128
    check{rows = 300, classes = 4000, no_bias = true}
    check{rows = 300, classes = 4000, data_req = "null"}
    check{rows = 300, classes = 4000, weight_req = "null"}
  end)

  it("goes on into the place of the data, where that is not read again", function()
    for _, rows in ipairs{300, 1300} do                  -- all rows of the data at a time, and not
      local o = {rows = rows, classes = 4000, units = 900}
      local before = bound(network(o), o):memory().pool
      o.turned = true
      check(o)
      local added = bound(network(o), o):memory().pool - before
      assert.is_true(added < 1.5 * 4 * rows * o.units,
        added / (4 * rows * o.units) .. " times the data")
    end
    check{rows = 300, classes = 4000, turned = true, data_req = "add"}
    check{rows = 300, classes = 4000, turned = true, weight_req = "null"}
  end)

  it("adds where it is asked to", function()
    check{rows = 300, classes = 4000, data_req = "add", weight_req = "add"}
    check{rows = 300, classes = 4000, data_req = "add", weight_req = "write"}
  end)

  it("knows every option of the loss", function()
    local labels = {-1, 4000, 3, 1e9}                    -- some are no class
    check{rows = 300, classes = 4000, labels = labels}
    check{rows = 300, classes = 4000, labels = labels, use_ignore = true, ignore_label = 3}
    check{rows = 300, classes = 4000, labels = labels, use_ignore = true, ignore_label = 3,
      normalization = "valid", grad_scale = 3}
    check{rows = 300, classes = 4000, normalization = "batch", smooth_alpha = 0.2}
    check{rows = 300, classes = 4000, dtype = "float64", label_dtype = "float64"}
  end)

  it("is left alone where the loss reads more, or another node reads it, or it is small",
    function()
      check({rows = 300, classes = 4000, out_grad = true}, false)
      check({rows = 300, classes = 4000, label_shape = {300, 4000}}, false)
      check({rows = 300, classes = 4000, before = true}, false)
      check({rows = 300, classes = 4000, label_dtype = "int32"}, false)
      check({rows = 30, classes = 400}, false)
    end)

  it("has no array", function()
    local o = {rows = 600, classes = 8000}
    local exe = bound(network(o), o)
    if exe:program():find("reference") then return end       -- loops for reference keep it whole
    assert.is_true(exe:memory().pool < 1.5 * 4 * o.rows * o.classes)     -- the outputs, and a slab
  end)
end)

-- Returns a network whose loss picks elements of log_softmax.
local function picking(o)
  local data = sym.Variable("data")
  if o.turned then data = sym.reverse{data, axis = 0} end
  local fc = sym.FullyConnected{data = data, num_hidden = o.classes, no_bias = o.no_bias,
    name = "fc", flatten = o.flatten}
  local soft = sym.log_softmax{o.before and fc * 1 or fc, temperature = o.temperature,
    axis = o.axis, name = "soft"}
  local pick = sym.pick{soft, sym.Variable("label"), name = "pick", keepdims = o.keepdims,
    mode = o.mode}
  if o.minus then pick = 0 - pick end
  return o.more and sym.Group{pick, soft} or pick
end

local function check_picking(o, expected)
  local exe, apart = bound(picking(o), o), bound(picking(o), o, true)
  local found = exe:program():find("%[fc_backward soft_backward pick_backward%]") ~= nil
  assert.equal(expected ~= false, found)
  assert.equal(o.beside or false, exe:program():find("%[soft pick%]") ~= nil)
  local heads = {}
  for i, y in ipairs(exe.outputs) do
    heads[i] = ty.nd.random_normal{shape = y.shape}:astype(o.dtype or "float32")
  end
  for _ = 1, 2 do
    for _, e in ipairs{exe, apart} do
      e:forward(true)
      e:backward(heads)
    end
    assert.near(apart.outputs[1], exe.outputs[1], 0, 1e-6)
    for name, g in pairs(apart.grad_dict) do
      local near = (o.dtype == "float64" and 1e-12 or 1e-5) * ty.nd.max(ty.nd.abs(g)):asscalar()
      assert.near(g, exe.grad_dict[name], near, 0)
    end
  end
end

describe("a pick that log_softmax's kernel does, whose gradient gets probabilities", function()
  setup(device.leave)
  teardown(device.come_back)
  local function check_beside(o, expected)
    o.minus, o.beside = true, o.beside == nil or o.beside
    check_picking(o, expected)
  end

  it("is that of step by step, in the gradient of a product and by itself", function()
    for _, dtype in ipairs{"float32", "float64"} do
      check_beside{rows = 300, classes = 4000, dtype = dtype, label_dtype = dtype}
      check_beside({rows = 30, classes = 400, dtype = dtype, label_dtype = dtype}, false)
      check_beside({rows = 2, classes = 2, dtype = dtype, label_dtype = dtype}, false)
      check_beside({rows = 1, classes = 1, dtype = dtype, label_dtype = dtype}, false)
    end
    check_beside({rows = 300, classes = 4000, label_dtype = "int32"}, false)
    check_beside{rows = 300, classes = 4000, temperature = 0.5, keepdims = true, axis = 1}
    check_beside({rows = 3, classes = 5000, temperature = 3}, false)       -- two blocks of a row
    check_beside{rows = 1300, classes = 1500, units = 900, weight_req = "add"}
    check_beside{rows = 1, classes = 1100000, units = 2}
    check_beside({rows = 300, classes = 4000, before = true}, false)
  end)

  it("takes the nearest element for labels out of range", function()
    local labels = {-1, 4000, 3, 3999, 1e9, -1e9}
    check_beside{rows = 300, classes = 4000, labels = labels}
    check_beside({rows = 7, classes = 4000, labels = labels}, false)
  end)

  it("keeps small probabilities exact", function()
    local exe = picking{classes = 3, minus = true}:simple_bind{ctx = ty.cpu(),
      grad_req = {fc_bias = "write"}, shapes = {data = {2, 1}, label = {2}},
      type_dict = {data = "float32", label = "float32"}}
    assert.truthy(exe:program():find("%[soft pick%]"))
    exe.arg_dict.data[":"], exe.arg_dict.fc_bias[":"] = 1, 0
    exe.arg_dict.fc_weight[":"] = ty.nd.array{{0}, {-300}, {-90}}
    exe.arg_dict.label[":"] = ty.nd.array{1, 2}
    exe:forward(true)
    assert.near(ty.nd.array{300, 90}, exe.outputs[1], 1e-4)
    exe:backward(ty.nd.ones{2})
    assert.near(ty.nd.array{2, -1, -1}, exe.grad_dict.fc_bias, 1e-6)
  end)

  it("is not where others read the logarithms, by another rule, nor on another axis", function()
    check_beside({rows = 300, classes = 4000, more = true, beside = false}, false)
    check_beside({rows = 300, classes = 4000, mode = "wrap", beside = false}, false)
    check_beside({rows = 210, classes = 210, axis = 0, beside = false}, false)
    local exe = bound(picking{classes = 400}, {rows = 30, classes = 400})
    assert.is_nil(exe:program():find("%[soft pick%]"))                      -- the pick is a head
  end)

  it("is not where the gradient reads what is computed again, and others the logarithms", function()
    local soft = sym.log_softmax(sym.Variable("x"))
    local heads = sym.Group{0 - sym.pick{soft, sym.Variable("label")}, sym.BlockGrad(sym.exp(soft))}
    local shapes, results = {x = {3, 4}, label = {3}}, {}
    for _, mirror in ipairs{false, true} do
      local e = heads:simple_bind{ctx = ty.cpu(), grad_req = {x = "write"}, shapes = shapes,
        force_mirroring = mirror}
      e.arg_dict.x[":"] = ty.nd.arange{12}:reshape{3, 4}
      e.arg_dict.label[":"] = ty.nd.array{0, 3, 1}
      e:forward(true)
      e:backward{ty.nd.array{1, 2, 3}, ty.null}
      results[mirror] = {e.outputs[1], e.outputs[2], e.grad_dict.x}
    end
    for k = 1, 3 do assert.near(results[false][k], results[true][k], 1e-6) end
  end)
end)

describe("the gradient of elements picked of a large log_softmax", function()
  setup(device.leave)
  teardown(device.come_back)
  it("is that of step by step", function()
    check_picking{rows = 300, classes = 4000}
    check_picking{rows = 300, classes = 4000, dtype = "float64", label_dtype = "float64"}
    check_picking{rows = 300, classes = 4000, temperature = 0.5, keepdims = true, axis = 1}
    check_picking{rows = 1300, classes = 1500, units = 900, weight_req = "add"}
    check_picking{rows = 1, classes = 1100000, units = 2}
    check_picking{rows = 2, classes = 600000, units = 1}
    check_picking{rows = 8200, classes = 129, units = 3}
    check_picking{rows = 300, classes = 4000, no_bias = true}
    check_picking{rows = 300, classes = 4000, data_req = "null"}
    check_picking{rows = 300, classes = 4000, weight_req = "null"}
    check_picking{rows = 300, classes = 4000, data_req = "add", weight_req = "add"}
  end)

  it("takes the nearest element for labels out of range", function()
    check_picking{rows = 300, classes = 4000, labels = {-1, 4000, 3, 3999, 1e9, -1e9}}
  end)

  it("goes on into the place of the data", function()
    for _, rows in ipairs{300, 1300} do
      check_picking{rows = rows, classes = 4000, units = 900, turned = true}
    end
  end)

  it("is left alone where another node reads more, or it is small", function()
    check_picking({rows = 300, classes = 4000, more = true}, false)
    check_picking({rows = 300, classes = 4000, before = true}, false)
    check_picking({rows = 30, classes = 400}, false)
    check_picking({rows = 300, classes = 4000, label_dtype = "int32"}, false)
    check_picking({rows = 2100, classes = 2100, axis = 0}, false)
  end)

  it("has no array", function()
    local o = {rows = 600, classes = 8000}
    local exe = bound(picking(o), o)
    if exe:program():find("reference") then return end
    assert.is_true(exe:memory().pool < 1.5 * 4 * o.rows * o.classes)
  end)

  it("is that of gluon's loss, fused in a recorded loop", function()
    local rows, classes, units = 64, 20000, 5
    local x, y = ty.nd.random_normal{shape = {rows, units}}, ty.nd.arange{0, rows} * 311
    local weight = ty.nd.random_normal{shape = {classes, units}, scale = 0.3}
    local bias = ty.nd.random_normal{shape = {classes}}
    for _, v in ipairs{x, weight, bias} do v:attach_grad() end
    local loss = ty.gluon.loss.SoftmaxCrossEntropyLoss()
    ty.autograd.record(function()
      return loss(ty.nd.FullyConnected(x, weight, bias, {num_hidden = classes}), y)
    end):backward()
    local p = ty.nd.softmax(ty.nd.dot(x, weight, {transpose_b = true}):broadcast_add(
      bias:reshape{1, classes}))
    local g = p - ty.nd.one_hot(y, {depth = classes})
    assert.near(ty.nd.dot(g, weight), x.grad, 1e-4)
    assert.near(ty.nd.dot(g, x, {transpose_a = true}), weight.grad, 1e-5)
    assert.near(ty.nd.sum(g, {axis = 0}), bias.grad, 1e-5)
  end)
end)

describe("the gradient of a product's data", function()
  setup(device.leave)
  teardown(device.come_back)
  it("takes the place of the data, which is read before", function()
    for _, dtype in ipairs{"float32", "float64"} do
      local exe, apart = dying(64, 48, dtype)
      for name, g in pairs(apart.grad_dict) do
        assert.near(g, exe.grad_dict[name],
          (dtype == "float64" and 1e-13 or 1e-5) * ty.nd.max(ty.nd.abs(g)):asscalar(), 0)
      end
      -- the data and the output
      assert.is_true(
        exe:memory().pool < 2.5 * apart.grad_dict.data.size * (dtype == "float64" and 8 or 4))
    end
  end)
end)
