-- The last product of a network and its cross entropy, a slab of rows at a time, against
-- the same of separate operators.
local device = require "spec.support.device"
local ty = require "tycho"
local sym, nd = ty.sym, ty.nd
local V = sym.Variable

local function network(o)
  return sym.contrib.linear_cross_entropy{data = o.data or V("data"), num_hidden = o.classes,
    no_bias = o.no_bias, label = V("label"), name = "fc", grad_scale = o.grad_scale,
    use_ignore = o.use_ignore, ignore_label = o.ignore_label, normalization = o.normalization}
end

-- Returns the separate operators: SoftmaxOutput's gradient and the picked logarithm of its output.
local function apart(o)
  local fc = sym.FullyConnected{data = V("data"), num_hidden = o.classes, no_bias = o.no_bias,
    flatten = false, name = "fc"}
  local label = V("label")
  local p = sym.SoftmaxOutput{data = sym.Reshape{fc, shape = {-1, o.classes}},
    label = sym.Reshape{label, shape = {-1}}, grad_scale = o.grad_scale, use_ignore = o.use_ignore,
    ignore_label = o.ignore_label, normalization = o.normalization}
  local logs = sym.log_softmax{sym.BlockGrad{fc}, axis = -1}
  return sym.Group{p, sym.pick{logs, label} * -1}
end

local function rows_of(o) return type(o.rows) == "table" and o.rows or {o.rows} end

local function bound(net, o)
  local shape = {unpack(rows_of(o))}
  shape[#shape + 1] = o.columns or 6
  local exe = net:simple_bind{ctx = ty.cpu(), shapes = {data = shape, label = rows_of(o)},
    type_dict = {data = o.dtype or "float32", label = o.label_dtype or "float32"},
    grad_req = {data = o.data_req or "write", fc_weight = o.weight_req or "write",
      fc_bias = not o.no_bias and "write" or nil, label = "null"}}
  ty.random.seed(3)
  for _, name in ipairs{"data", "fc_weight", "fc_bias"} do
    local x = exe.arg_dict[name]
    if x then x[":"] = nd.random_normal{shape = x.shape, scale = o.scale or 0.7}:astype(x.dtype) end
  end
  local label = exe.arg_dict.label
  label[":"] = nd.random_randint{low = 0, high = o.classes, shape = label.shape}:astype(label.dtype)
  if o.labels then label[":"] = nd.array(o.labels) end
  for _, g in pairs(exe.grad_dict) do g[":"] = 0.5 end
  return exe
end

local function step(exe, times)
  for _ = 1, times or 1 do
    exe:forward(true)
    exe:backward()
  end
end

local function check(o)
  local exe, other = bound(network(o), o), bound(apart(o), o)
  step(exe, 2)
  step(other, 2)
  -- a GPU sums products over 40000 classes in float32, one after another
  local bound_of = o.dtype == "float64" and 1e-12 or device.is_gpu and 2e-5 or 3e-6
  local loss = other.outputs[2]
  if o.use_ignore then
    loss = nd.where{nd.broadcast_equal{exe.arg_dict.label, nd.full{{1}, o.ignore_label}},
      nd.zeros_like(loss), loss}
  end
  assert.near(loss, exe.outputs[1], bound_of * 3, bound_of)
  for name, g in pairs(other.grad_dict) do
    assert.near(g, exe.grad_dict[name], bound_of * math.max(nd.abs(g):max():asscalar(), 1e-3), 0)
  end
end

describe("linear_cross_entropy", function()
  it("is FullyConnected, softmax and cross entropy", function()
    check{rows = 5, classes = 7}
    check{rows = {3, 4}, classes = 9}
    check{rows = {2, 3, 2}, classes = 4, dtype = "float64"}
    check{rows = 5, classes = 7, no_bias = true}
    check{rows = 1, classes = 1}
    check{rows = 1, classes = 5, columns = 1}
    check{rows = 6, classes = 5, label_dtype = "int32"}
  end)

  it("goes slab by slab where the classes are many", function()
    check{rows = 300, classes = 40000, columns = 3}        -- 16 MiB hold 104 rows
    check{rows = 150, classes = 90000, columns = 2}        -- a slab has 64 rows at least
    check{rows = {50, 5}, classes = 40000, columns = 2, dtype = "float64"}
  end)

  it("scales, normalises and ignores as SoftmaxOutput does", function()
    local labels = {1, 3, 2, 3, 0, 3}
    check{rows = 6, classes = 4, grad_scale = 0.25}
    check{rows = 6, classes = 4, normalization = "batch", grad_scale = 3}
    check{rows = 6, classes = 4, use_ignore = true, ignore_label = 3, labels = labels}
    check{rows = 6, classes = 4, use_ignore = true, ignore_label = 3, labels = labels,
      normalization = "valid"}
    check{rows = 2, classes = 4, use_ignore = true, ignore_label = 3, labels = {3, 3},
      normalization = "valid"}
    check{rows = 3, classes = 4, use_ignore = true, ignore_label = -1, labels = {-1, 3, -1}}
  end)

  it("writes, adds and leaves out gradients as asked", function()
    for _, req in ipairs{"write", "add", "null"} do
      check{rows = 6, classes = 5, data_req = req}
      check{rows = 6, classes = 5, weight_req = req, data_req = "add"}
    end
  end)

  it("has nothing to add to the gradient of a label", function()
    for _, no_bias in ipairs{true, false} do
      local exe = network{classes = 5, no_bias = no_bias}:simple_bind{ctx = ty.cpu(),
        data = {3, 6}, label = {3}, grad_req = {data = "null", fc_weight = "null",
          fc_bias = not no_bias and "null" or nil, label = "add"}}
      exe.grad_dict.label[":"] = 0.5
      step(exe)
      assert.near({0.5, 0.5, 0.5}, exe.grad_dict.label)
    end
  end)

  it("has the derivative of its loss as gradient", function()
    local exe = bound(network{classes = 5, grad_scale = 2},
      {rows = 4, classes = 5, dtype = "float64", label_dtype = "float64"})
    local function loss()
      exe:forward(true)
      return 2 * exe.outputs[1]:sum():asscalar()
    end
    step(exe)
    for _, name in ipairs{"data", "fc_weight", "fc_bias"} do
      local x, found = exe.arg_dict[name], exe.grad_dict[name]:copy():reshape{-1}
      local whole, by = x:copy():reshape{-1}, 1e-5
      for i = 0, x.size - 1 do
        local function at(d)
          local moved = whole:copy()
          moved[i] = whole:at(i):asscalar() + d
          x[":"] = moved:reshape(x.shape)
          return loss()
        end
        assert.near((at(by) - at(-by)) / (2 * by), found:at(i):asscalar(), 1e-8, 1e-8)
      end
      x[":"] = whole:reshape(x.shape)
    end
  end)

  it("has a finite loss where a probability is too small for a float", function()
    local net = network{classes = 3, no_bias = true}
    local exe = net:simple_bind{ctx = ty.cpu(), data = {2, 2}, grad_req = "write"}
    exe.arg_dict.data[":"] = nd.array{{100, 1}, {-3, 200}}
    exe.arg_dict.fc_weight[":"] = nd.array{{1, 0}, {0, 1}, {-1, -1}}
    exe.arg_dict.label[":"] = nd.array{2, 0}
    step(exe)
    assert.near({201, 203}, exe.outputs[1], 0, 1e-6)
    assert.near({{2, 1}, {-1, 1}}, exe.grad_dict.data)
  end)

  it("gives NaN for NaN", function()
    local exe = bound(network{classes = 3}, {rows = 2, classes = 3})
    exe.arg_dict.data[":"] = nd.array{{1, 1, 0 / 0, 1, 1, 1}, {1, 1, 1, 1, 1, 1}}
    step(exe)
    local first = exe.outputs[1]:at(0):asscalar()
    assert.is_true(first ~= first and exe.outputs[1]:at(1):asscalar() > 0)
  end)

  it("is the same without fusion, without shared memory, and monitored", function()
    local o = {rows = 9, classes = 6}
    local net = function() return network{classes = 6, data = sym.tanh(V("data"))} end
    local plain = bound(net(), o)
    step(plain)
    local watched, seen = bound(net(), o), {}
    watched:set_monitor_callback(function(name) seen[#seen + 1] = name end)
    step(watched)
    assert.same({"tanh0_output", "fc_output"}, {seen[1]:gsub("%d+", "0"), seen[2]})
    assert.near(plain.outputs[1], watched.outputs[1], 0)
    for name, g in pairs(plain.grad_dict) do assert.near(g, watched.grad_dict[name], 0) end
  end)

  it("gives the loss, and no gradients, outside of training", function()
    local exe = bound(network{classes = 6}, {rows = 9, classes = 6})
    exe:forward(false)
    local loss = exe.outputs[1]:copy()
    step(exe)
    assert.near(loss, exe.outputs[1], 0)
    local free = network{classes = 6}:simple_bind{ctx = ty.cpu(), data = {9, 6}, grad_req = "null"}
    for name, x in pairs(exe.arg_dict) do free.arg_dict[name][":"] = x end
    free:forward(true)
    assert.near(loss, free.outputs[1], 0)
  end)

  it("keeps far less than all probabilities", function()
    local o = {rows = 2000, classes = 10000}
    local small, large = bound(network(o), o):memory().planned, bound(apart(o), o):memory().planned
    assert.is_true(small < 20 * 2 ^ 20 and large > 76 * 2 ^ 20)
  end)

  it("is trained by a module, with Loss as metric", function()
    ty.random.seed(7)
    local x = nd.random_normal{shape = {40, 6}}
    local y = nd.argmax{nd.slice_axis{x, axis = 1, begin = 0, ["end"] = 4}, axis = 1}
    local iter = ty.io.NDArrayIter{data = x, label = y, batch_size = 8, label_name = "label"}
    local mod = ty.mod.Module{symbol = network{classes = 4, normalization = "batch"},
      data_names = {"data"}, label_names = {"label"},
      context = ty.cpu(), logger = {info = function() end, warn = function() end}}
    mod:fit{train_data = iter, num_epoch = 30, eval_metric = "loss", optimizer = "adam",
      optimizer_params = {learning_rate = 0.1}, initializer = ty.init.Xavier()}
    local metric = ty.metric.create("loss")
    mod:score(iter, metric)
    local _, loss = metric:get()
    assert.is_true(loss < 0.2)
  end)

  it("names a label that is no class", function()
    local exe = bound(network{classes = 3}, {rows = 2, classes = 3, labels = {1, 3}})
    local e = assert.raises("run", function()
      step(exe)
      ty.waitall()
    end)
    assert.matches("label 3 at position 1 is not a class; expected 0 to 2", tostring(e), 1, true)
    exe = bound(network{classes = 3, use_ignore = true, ignore_label = 9},
      {rows = 2, classes = 3, labels = {9, -1}})
    e = assert.raises("run", function()
      step(exe)
      ty.waitall()
    end)
    assert.matches("label -1 at position 1 is not a class; expected 0 to 2, or ignore_label",
      tostring(e), 1, true)
  end)

  it("names shapes that do not fit", function()
    local net = network{classes = 3}
    local e = assert.raises("shape", function() net:infer_shape{data = {2, 2}, label = {3}} end)
    assert.matches("shape of label is (3,), but (2,) is needed", tostring(e), 1, true)
    e = assert.raises("shape", function() net:infer_shape{data = {2}} end)
    assert.matches("expected (rows..., columns), got 1 dimension", tostring(e), 1, true)
    assert.raises("shape", function() net:infer_shape{data = {2, 2}, fc_weight = {3, 4}} end)
  end)
end)
