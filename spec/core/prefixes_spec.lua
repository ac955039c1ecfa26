-- The text of an error says each name once: the function first, operator and node last.

local ty = require "tycho"

local nd, sym, V = ty.nd, ty.sym, ty.sym.Variable
local gluon = ty.gluon

local x, long = nd.ones{ 2, 3 }, nd.ones{ 7 }
local NOWHERE = "/nowhere/file"

local function net()
  return sym.SoftmaxOutput{ sym.FullyConnected{ V"data", num_hidden = 3, name = "fc" },
    name = "softmax" }
end

local function bound_module()
  local m = ty.mod.Module(net())
  m:bind{ data_shapes = { { "data", { 2, 4 } } }, label_shapes = { { "softmax_label", { 2 } } } }
  return m
end

local function initialized(layer)
  layer:initialize()
  return layer
end

local function recorded()
  local y = nd.ones{ 2 }
  y:attach_grad()
  return ty.autograd.record(function() return y * 2 end)
end

local function executor()
  return sym.broadcast_add{ V"a", V"b", name = "sum" }:bind{ ctx = ty.cpu(),
    args = { a = nd.ones{ 2 }, b = nd.ones{ 2 } }, args_grad = { a = nd.ones{ 2 } } }
end

-- Mistakes by what is called.
local CALLS = {
  NDArray = {
    function() return x + long end,
    function() return x - "a" end,
    function() return x ^ long end,
    function() return x:dot(x) end,
    function() return x:dot() end,
    function() return x:reshape{ 4, 5 } end,
    function() return x:transpose{ axes = { 0, 0 } } end,
    function() return x:sum{ axis = 5 } end,
    function() return x:mean{ axis = "k" } end,
    function() return x:pick(long) end,
    function() return x:tile{ reps = "x" } end,
    function() return x:broadcast_to{ 7, 8 } end,
    function() return x:clip{ a_min = 1 } end,
    function() return x:topk{ k = 9 } end,
    function() return x:split{ num_outputs = 2 } end,
    function() return x:astype("foo") end,
    function() x[1] = long end,
    function() x:copyto(long) end,
    function() return nd.linalg.potrf(-nd.eye(3)):totable() end,
    function() return nd.take{ x, nd.array{ 7 }, mode = "raise" }:totable() end,
  },
  ["ty.nd"] = {
    function() return nd.concat(x, nd.ones{ 5, 5, 5 }) end,
    function() return nd.concat({ x }, { num_args = 3 }) end,
    function() return nd.stack(x, long) end,
    function() return nd.where(x, x, long) end,
    function() return nd.linalg.gemm2(x, x) end,
    function() return nd.linalg.det(x) end,
    function() return nd.image.resize(x, { size = 3 }) end,
    function() return nd.random.uniform{ low = "x" } end,
    function() return nd.Pooling(x, { kernel = { 0, 2 } }) end,
    function() return nd.contrib.quantized_pooling(x, x, x, { kernel = {} }) end,
    function() return nd.Custom(x, { op_type = "nope" }) end,
    function() return nd.load("/dev/null") end,
    function() return nd.save(NOWHERE, { x }) end,
    function() return nd.sgd_update(x, long, { lr = 0.1 }) end,
  },
  ["ty.sym"] = {
    function() return sym.dot(V"a", V"b"):eval{ ctx = ty.cpu(), a = x, b = x } end,
    function() return sym.dot(V"a", V"b"):infer_shape{ a = { 2, 3 }, b = { 4, 5 } } end,
    function()
      return sym.dot(V"a", V"b"):simple_bind{ ctx = ty.cpu(), a = { 2, 3 }, b = { 4 } }
    end,
    function() return (V"a" + V"b"):infer_type{ a = "float32", b = "int32" } end,
    function() return sym.Reshape{ V"a", shape = { 5 } }:infer_shape{ a = { 2 } } end,
    function() return sym.LRN{ V"a", nsize = 2 } end,
    function() return sym.Concat({ V"a" }, { num_args = 3 }) end,
    function() return sym.load_json("{") end,
    function() return net():simple_bind{ ctx = ty.cpu(), data = { 2, 4 }, memory_budget = 1 } end,
    function() return sym.batch_take{ V"a", V"i", name = "bt" }:simple_bind{ ctx = ty.cpu(),
      a = { 2, 3 }, i = { 2 } } end,
  },
  Executor = {
    function() executor():backward(long) end,
    function() executor():forward{ a = long } end,
    function() executor():reshape{ a = { 9 }, b = { 9 } } end,
    function()
      local e = executor()
      e:forward(true)
      e:backward()
    end,
    function() executor():partial_forward(-1) end,
  },
  ["ty.F"] = {
    function() return ty.F.relu() end,
    function() return ty.F.dot(x, V"a") end,
    function() return ty.F.FullyConnected(x) end,
    function() return ty.F.concat(V"a", x) end,
    function() return ty.F.log_softmax(x, { axis = 9 }) end,
  },
  ["ty.autograd"] = {
    function() x:backward() end,
    function() return ty.autograd.grad(x, x) end,
    function() ty.autograd.record(3) end,
    function() recorded():backward(long) end,
    function()
      local y = recorded()
      y:backward()
      y:backward()
    end,
    function() ty.autograd.mark_variables({ x }, { long }) end,
    function()
      local y = nd.ones{ 2 }
      y:attach_grad()
      ty.autograd.record(function() y[":"] = 3 end)
    end,
  },
  ["ty.gluon"] = {
    function() initialized(gluon.nn.Dense(3, { in_units = 4 }))(x) end,
    function() initialized(gluon.nn.Conv2D(3, 3))(x) end,
    function() initialized(gluon.rnn.LSTM(4))(x) end,
    function() gluon.nn.Dense(3)(x) end,
    function() gluon.nn.Activation("zork") end,
    function() gluon.loss.SoftmaxCrossEntropyLoss()(x, nd.ones{ 5 }) end,
    function() gluon.loss.L2Loss()(x) end,
    function() gluon.Trainer(gluon.nn.Dense(3):collect_params(), "zork") end,
    function() gluon.nn.Dense(3):load_parameters(NOWHERE) end,
    function() gluon.data.ArrayDataset(x, long) end,
    function()
      local b = initialized(gluon.nn.Dense(3, { in_units = 4 }))
      b:hybridize()
      b(x)
    end,
  },
  ["ty.mod"] = {
    function() ty.mod.Module(3) end,
    function() ty.mod.Module(net()):bind{ data_shapes = { { "data", { 2 } }, { "k", { 3 } } } } end,
    function() ty.mod.Module(net()):forward(3) end,
    function() bound_module():init_params{ arg_params = { fc_weight = long } } end,
    function()
      ty.mod.Module(sym.dot{ V"data", V"w" }, { label_names = {} }):bind{
        data_shapes = { { "data", { 2, 3, 4 } } } }
    end,
    function()
      local m = bound_module()
      m:init_params()
      m:forward{ data = { long } }
    end,
  },
  ["ty.io"] = {
    function() ty.io.NDArrayIter(x, long) end,
    function() ty.io.CSVIter{ data_csv = NOWHERE, data_shape = { 2 }, batch_size = 1 } end,
    function() ty.io.MNISTIter{ image = NOWHERE, label = NOWHERE } end,
    function() ty.io.ImageRecordIter{ path_imgrec = NOWHERE, data_shape = { 3, 4, 4 },
      batch_size = 2 } end,
    function() ty.io.LibSVMIter{ data_libsvm = NOWHERE, data_shape = { 3 }, batch_size = 1 } end,
    function() ty.recordio.unpack("x") end,
    function() ty.image.imdecode("abc") end,
    function() ty.image.imresize(x, 0, 0) end,
  },
  ["ty.onnx"] = {
    function() ty.onnx.import_model(NOWHERE) end,
    function() ty.onnx.import_model("/dev/null") end,
    function() ty.onnx.export_model(net()) end,
  },
  ["ty.contrib"] = {
    function() ty.contrib.quantization.quantize_model(3) end,
    function() return sym.contrib.foreach(function(a) return a end, V"a", V"b") end,
    function() return nd.contrib.foreach(function(a) return a end, x, x) end,
    function() return nd.contrib.cond(x, print, print) end,
    function() return nd.contrib.while_loop(function() return x end, print, x,
      { max_iterations = 2 }) end,
    function() return nd.contrib.box_nms(x) end,
    function() return nd.contrib.MultiBoxPrior(nd.ones{ 1, 1, 2, 2 }, { ratios = { -1 } }) end,
  },
  optimizers = {
    function() ty.optimizer.create("zork") end,
    function() ty.optimizer.SGD():update(0, x, long, nil) end,
    function() ty.optimizer.Adam():update(0, x, x, nil) end,
    function() ty.lr_scheduler.FactorScheduler{ step = 0 } end,
    function() ty.metric.Accuracy():update({ nd.ones{ 2 } }, { nd.ones{ 3, 4 } }) end,
    function() ty.init.create("zork") end,
    function() ty.kv.create("local"):push(3, x) end,
  },
}

-- Returns what a text says twice, or a name that only the core has, in front of its message.
local function find_doubled(e)
  local line = tostring(e):match("^[^\n]*")
  local names = {}
  for part in (line:match("^(.-) %[operator") or line):gmatch("([^:]+[:%w_]*): ") do
    names[#names + 1] = part:gsub("^ +", "")
  end
  for i, name in ipairs(names) do
    local last = name:match("[%w_]+$")
    local next_name = names[i + 1]
    local of_reference = next_name and next_name:find("^simple_bind error with ")
    if next_name and not of_reference and (next_name == name or next_name == last
        or next_name:match("^[%w_]+") == last) then
      return name .. ": " .. next_name
    elseif i > 1 and (name == e.op or name == e.node or e.op and e.node
        and name == e.op .. " " .. e.node) then
      return name
    elseif name:find("^ty_") then
      return name
    end
  end
end

local function check(label, f, ...)
  local ok, e = pcall(f, ...)
  if ok then
    return false
  end
  assert.is_true(ty.is_error(e), label .. ": not an error object: " .. tostring(e))
  local doubled = find_doubled(e)
  assert.is_nil(doubled, ("%s: '%s' in %s"):format(label, tostring(doubled), tostring(e)))
  return true
end

describe("the text of an error says each name once:", function()
  for name, calls in pairs(CALLS) do
    it(name, function()
      for i, f in ipairs(calls) do
        assert.is_true(check(name .. " " .. i, f), ("%s %d raises nothing"):format(name, i))
      end
    end)
  end

  for _, namespace in ipairs{ "nd", "sym" } do
    it("each operator of ty." .. namespace, function()
      local raised = 0
      local function try(name, ...)
        raised = raised + (check(namespace .. "." .. name, ty[namespace][name], ...) and 1 or 0)
      end
      for _, name in ipairs(ty.op.list()) do
        local a = namespace == "nd" and x or V"a"
        try(name)
        try(name, a, { axis = 9 })
        try(name, a, { axis = "x", dtype = "float31", num_hidden = 0, kernel = {} })
        try(name, { a, a, out = long })
      end
      assert.is_true(raised > #ty.op.list())
    end)
  end
end)
