-- What spec/torture/faults.lua lets fail beside scenarios.lua: what else a graph may be made of, be
-- read from, run as and be asked for. `only_memory`: allocations of the library alone fail.

local ty = require "tycho"

local text_of = require("spec.support.arrays").text
local V, contrib = ty.sym.Variable, ty.sym.contrib
local QUIET = { info = function() end, warning = function() end }

-- Fills each argument with small numbers that differ.
local function fill(exe)
  for _, array in ipairs(exe.arg_arrays) do
    array[":"] = (ty.nd.arange(array.size) % 7 * 0.1 + 0.1):reshape(array.shape)
  end
end

-- Returns outputs and gradients of one step as text.
local function trained(exe)
  local texts = {}
  exe:forward(true)
  local heads = {}
  for i, y in ipairs(exe.outputs) do
    texts[i], heads[i] = text_of(y), ty.nd.ones(y.shape, y.context)
  end
  exe:backward(heads)
  for _, gradient in ipairs(exe.grad_arrays) do
    texts[#texts + 1] = gradient ~= ty.null and text_of(gradient) or "none"
  end
  return table.concat(texts, "\n")
end

local function loops()
  local outs, state = contrib.foreach(function(x, s)
    s = ty.sym.tanh(x * V("w") + s)
    return s * 2, s
  end, V("x"), V("s"))
  local more, last = contrib.while_loop{ cond = function(i) return ty.sym.sum(i):lt(9) end,
    func = function(i) return i * V("v"), i * 2 end, loop_vars = state, max_iterations = 4 }
  local either = contrib.cond(ty.sym.sum(V("q")):gt(0),
    function() return { last * V("a") } end, function() return { last * V("b") } end)
  return ty.sym.Group{ outs, more, either[1] or either }
end

local function control(path)
  loops():save(path .. "/loops.json")
  local exe = ty.sym.load(path .. "/loops.json"):simple_bind{ ctx = ty.cpu(), x = { 3, 2 },
    w = { 2 }, s = { 2 }, v = { 2 }, q = { 1 }, a = { 2 }, b = { 2 } }
  fill(exe)
  return trained(exe)
end

local function layer(x, name, group)
  return ty.AttrScope{ ctx_group = group }:with(function()
    return ty.sym.tanh{ ty.sym.FullyConnected{ x, num_hidden = 3, name = name } }
  end)
end

local function placement()
  local net = layer(layer(V("x"), "one", "first"), "two", "second")
  local exe = net:simple_bind{ ctx = ty.cpu(0), group2ctx = { first = ty.cpu(0),
    second = ty.cpu(1) }, x = { 2, 4 } }
  fill(exe)
  return trained(exe) .. "\n" .. exe:program()
end

-- Runs similar steps, whose weights' gradients are one product.
local function unrolled()
  local cell = ty.rnn.LSTMCell{ num_hidden = 3, prefix = "l_" }
  local outs = cell:unroll(4, { inputs = V("x"), layout = "NTC", merge_outputs = true })
  local exe = outs:simple_bind{ ctx = ty.cpu(), x = { 2, 4, 5 } }
  fill(exe)
  return trained(exe)
end

-- Runs a network bound for prediction only: normalisation becomes part of the weights.
local function predicting()
  local x = ty.sym.Convolution{ V("data"), num_filter = 4, kernel = { 3, 3 }, pad = { 1, 1 },
    no_bias = true, name = "conv" }
  x = ty.sym.relu(ty.sym.BatchNorm{ x, fix_gamma = false, name = "bn" }) + V("more")
  x = ty.sym.Pooling{ ty.sym.relu(x), global_pool = true, kernel = { 1, 1 }, pool_type = "avg" }
  local exe = x:simple_bind{ ctx = ty.cpu(), grad_req = "null", data = { 1, 4, 6, 6 } }
  fill(exe)
  for _, array in ipairs(exe.aux_arrays) do
    array[":"] = 0.5
  end
  return text_of(exe:forward(false)[1])
end

-- Runs two executors on the same arrays of the caller, the second sharing the first one's memory.
local function bound()
  local x, w = V("x"), V("w")
  local y = ty.sym.FullyConnected{ x, w, num_hidden = 2, no_bias = true }
  local net = ty.sym.Group{ ty.sym.MakeLoss(ty.sym.square(y)), ty.sym.BlockGrad(y + 1) }
  local args = { x = ty.nd.arange(1, 7):reshape{ 2, 3 }, w = ty.nd.ones{ 2, 3 } }
  local grads = { w = ty.nd.ones{ 2, 3 } }
  local exe = net:bind{ ctx = ty.cpu(), args = args, args_grad = grads, grad_req = { w = "add" } }
  local other = net:bind{ ctx = ty.cpu(), args = args, grad_req = "null", shared_exec = exe }
  exe:forward(true)
  exe:backward()
  args.w[":"] = 2
  return text_of(grads.w) .. " " .. text_of(other:forward(false)[1])
end

local OLD = [=[{"nodes": [{"op": "null", "name": "x", "inputs": []},
  {"op": "null", "name": "w", "attr": {"lr_mult": "2"}, "inputs": []},
  {"op": "null", "name": "g", "inputs": []}, {"op": "null", "name": "b", "inputs": []},
  {"op": "FullyConnected", "name": "fc", "param": {"num_hidden": "4", "no_bias": "True"},
    "attr": {"weight_lr_mult": "5", "ctx_group": "one"}, "inputs": [[0, 0], [1, 0]]},
  {"op": "BatchNorm", "name": "bn", "param": {"momentum": "0.5"}, "inputs": [[4, 0], [2, 0],
    [3, 0]]}, {"op": "argmax", "name": "m", "param": {"axis": "-1"}, "inputs": [[5, 0]]}],
  "arg_nodes": [0, 1, 2, 3], "heads": [[6, 0]]}]=]

-- Reads a file of an early version, and writes its texts and those of a part of it.
local function older()
  local net = ty.sym.load_json(OLD)
  local part = net:get_internals()["bn_output"]
  local texts = { net:tojson(), part:tojson(), net:debug_str() }
  for name, attrs in pairs(net:attr_dict()) do
    texts[#texts + 1] = name .. (attrs.__lr_mult__ or "")
  end
  table.sort(texts)
  return table.concat(texts, "\n")
end

local function asked()
  local net = ty.sym.SoftmaxOutput{ ty.sym.FullyConnected{ ty.sym.exp(V("data") * 2) + 1,
    num_hidden = 3, name = "fc" }, name = "softmax" }
  local exe = net:simple_bind{ ctx = ty.cpu(), data = { 2, 3 } }
  fill(exe)
  exe:forward(true)
  exe:backward()
  local again = exe:reshape{ partial_shaping = true, data = { 1, 3 } }
  return table.concat({ exe:program(), exe:debug_str(), again:program(),
    table.concat(net:list_arguments(), " ") }, "\n")
end

-- Checks that the search for bad numbers names the node, and that a monitor sees all values.
local function watched()
  local exe = ty.sym.log(V("x", { shape = { 2 } }) * 2):simple_bind{ ctx = ty.cpu() }
  local seen = {}
  exe:set_monitor_callback(function(name, x)
    seen[#seen + 1] = name .. " " .. text_of(x)
  end, true)
  exe.arg_dict.x[":"] = 1
  exe:forward(true)
  exe:set_monitor_callback(nil)
  exe:check_numerics()
  exe.arg_dict.x[":"] = -1
  local ok, e = pcall(function()
    exe:forward(true)
    ty.nd.waitall()
  end)
  local code, message = type(e) == "table" and e.code, type(e) == "table" and e.message or ""
  if not ok and message:find("^out of memory while") then
    error("not enough memory: " .. message, 0)           -- for the failure itself: the code stays
  elseif not ok and code ~= "run" then
    error(e, 0)
  end
  return table.concat(seen, "\n") .. "\n" .. (ok and "no error" or e.node)
end

-- Calls an operator of many inputs, one that is called again with other values, one with a state.
local function called()
  local list = {}
  for i = 1, 40 do
    list[i] = ty.nd.ones{ 2 } * i
  end
  ty.random.seed(3)
  local x = ty.nd.Dropout{ ty.nd.ones{ 4 }, p = 0.5, mode = "always" }
  return text_of(ty.nd.add_n(list)) .. " " .. text_of(ty.nd.concat(list, { dim = 0 })) .. " "
    .. text_of(x) .. " " .. text_of(ty.nd.topk{ ty.nd.arange(6), k = 2, ret_typ = "value" })
end

-- Trains with parts of a batch on two devices, and a store that adds their gradients.
local function devices()
  local net = ty.sym.SoftmaxOutput{ ty.sym.FullyConnected{ V("data"), num_hidden = 3, name = "fc" },
    name = "softmax" }
  local m = ty.mod.Module{ symbol = net, context = { ty.cpu(0), ty.cpu(1) }, logger = QUIET }
  m:bind{ data_shapes = { { "data", { 4, 2 } } }, label_shapes = { { "softmax_label", { 4 } } } }
  m:init_params{ initializer = ty.init.One() }
  m:init_optimizer{ kvstore = "device", optimizer = "adam" }
  for _ = 1, 2 do
    m:forward_backward{ data = { ty.nd.ones{ 4, 2 } }, label = { ty.nd.zeros(4) } }
    m:update()
  end
  return text_of(m:get_params().fc_weight)
end

local rows = 0

-- Adds an operator; each call adds another one, which stays.
local function formula()
  rows = rows + 1
  local name = "torture_" .. rows
  ty.op.pointwise{ name = name, args = { "a", "b" }, params = { "slope", beta = 2 },
    formula = "a * $slope + b * $beta + tanh(a)", doc = "a row of a test",
    grad = { "g * $slope + g * (1 - tanh(a) * tanh(a))", "g * $beta" } }
  local exe = ty.sym[name]{ V("a"), V("b"), slope = 3 }:simple_bind{ ctx = ty.cpu(), a = { 2 },
    b = { 2 } }
  fill(exe)
  return trained(exe)
end

-- Writes a network as ONNX, reads it back and runs it.
local function onnx(path)
  local x = ty.sym.Convolution{ V("data"), num_filter = 2, kernel = { 3, 3 }, name = "conv" }
  local net = ty.sym.softmax{ ty.sym.Flatten{ ty.sym.relu{ x, name = "r" }, name = "f" },
    name = "s" }
  local params = { conv_weight = ty.nd.arange(18):reshape{ 2, 1, 3, 3 } * 0.1,
    conv_bias = ty.nd.ones{ 2 } }
  ty.onnx.export_model{ net, params, { data = { 1, 1, 4, 4 } }, path .. "/net.onnx" }
  local again, arguments, states = ty.onnx.import_model(path .. "/net.onnx")
  arguments.data = ty.nd.arange(16):reshape{ 1, 1, 4, 4 } * 0.1
  local exe = again:bind{ ctx = ty.cpu(), args = arguments, aux_states = states, grad_req = "null" }
  exe:forward{ is_train = false }
  return text_of(exe.outputs[1])
end

-- Makes nodes have the same names in each run of a scenario.
local function named(scenario)
  local run = scenario.run
  function scenario.run(path)
    return ty.name.NameManager():with(function() return run(path) end)
  end
  return scenario
end

return {
  named{ name = "control", run = control },
  named{ name = "placement", run = placement },
  named{ name = "unrolled", run = unrolled },
  named{ name = "predicting", run = predicting },
  named{ name = "bound", run = bound },
  named{ name = "older", run = older },
  named{ name = "asked", run = asked },
  named{ name = "watched", run = watched },
  named{ name = "called", run = called },
  named{ name = "devices", run = devices },
  named{ name = "onnx", run = onnx },
  named{ name = "formula", run = formula, only_memory = true },
}
