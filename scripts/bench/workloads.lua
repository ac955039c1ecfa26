--- The workloads of the benchmark. Each returns {step, sync, work, unit}: one call of step is `work` units.
local ty = require "tycho"
local nets = require "nets"

local workloads = {}

local function filled(exe, batch, classes)
  ty.random.seed(7)
  for name, a in pairs(exe.arg_dict) do
    if name == "data" then a[":"] = ty.nd.random.normal{shape = a.shape}
    elseif name == "label" then a[":"] = ty.nd.random.randint{low = 0, high = classes, shape = a.shape, dtype = "int32"}:astype("float32")
    elseif name:find("bias") then a[":"] = 0
    else
      local fan = a.size / a.shape[1]
      a[":"] = ty.nd.random.normal{scale = math.sqrt(2 / fan), shape = a.shape}
    end
  end
end

-- forward, backward and SGD with momentum for all parameters in one call
local function training(symbol, shape, classes, batch, lr)
  local want = {batch}
  for _, d in ipairs(shape) do want[#want + 1] = d end
  local req = {}
  for _, name in ipairs(symbol:list_arguments()) do req[name] = (name == "data" or name == "label") and "null" or "write" end
  local exe = symbol:simple_bind{ctx = ty.cpu(), shapes = {data = want, label = {batch}}, grad_req = req}
  filled(exe, batch, classes)
  local inputs, out, lrs, wds = {}, {}, {}, {}
  for i, name in ipairs(symbol:list_arguments()) do
    local g = exe.grad_arrays[i]
    if g ~= ty.null then
      local w = exe.arg_dict[name]
      inputs[#inputs + 1], inputs[#inputs + 2], inputs[#inputs + 3] = w, g, ty.nd.zeros(w.shape)
      out[#out + 1], lrs[#lrs + 1], wds[#wds + 1] = w, lr, 0
    end
  end
  local update = {num_weights = #out, lrs = lrs, wds = wds, momentum = 0.9, rescale_grad = 1 / batch, out = out}
  for i, x in ipairs(inputs) do update[i] = x end
  local function step()
    exe:forward(true)
    exe:backward()
    ty.nd.multi_sgd_mom_update(update)
  end
  return {step = step, sync = ty.waitall, work = batch, unit = "samples/s", exe = exe}
end

function workloads.W1()
  local symbol, shape, classes = nets.mlp()
  return training(symbol, shape, classes, 100, 0.1)
end

function workloads.W2()
  local symbol, shape, classes = nets.lenet()
  return training(symbol, shape, classes, 64, 0.01)
end

local function deep(req)
  local exe = nets.deep(100):simple_bind{ctx = ty.cpu(), data = {8, 32}, grad_req = req}
  filled(exe, 8, 1)
  return exe
end

function workloads.W7()
  local exe = deep("null")
  return {step = function() exe:forward(false) end, sync = ty.waitall, work = 200, unit = "ns/operator", exe = exe}
end

function workloads.W7b()
  local exe = deep("write")
  local head = ty.nd.ones{8, 32}
  return {step = function() exe:forward(true); exe:backward(head) end, sync = ty.waitall, work = 200, unit = "ns/operator", exe = exe}
end

--- Overhead of one instruction: 1,000 one-element operators, unfused.
function workloads.chain()
  local exe = nets.chain(1000):simple_bind{ctx = ty.cpu(), data = {1}, grad_req = "null"}
  return {step = function() exe:forward(false) end, sync = ty.waitall, work = 1000, unit = "ns/operator", exe = exe,
      env = {TYCHO_FUSE = "0"}}
end

--- Binding an unrolled LSTM of two layers and sixty steps, training.
function workloads.bind()
  local function cell(x, h, c, layer, i)
    local n = "l" .. layer .. "_t" .. i .. "_"
    local gates = ty.sym.FullyConnected{data = x, weight = layer.iw, bias = layer.ib, num_hidden = 800, name = n .. "i2h"} +
                  ty.sym.FullyConnected{data = h, weight = layer.hw, bias = layer.hb, num_hidden = 800, name = n .. "h2h"}
    local g = ty.sym.SliceChannel{data = gates, num_outputs = 4, name = n .. "slice"}
    local next_c = ty.sym.sigmoid(g[2]) * c + ty.sym.sigmoid(g[1]) * ty.sym.tanh(g[3])
    return ty.sym.sigmoid(g[4]) * ty.sym.tanh(next_c), next_c
  end
  local V, layers, outputs = ty.sym.Variable, {}, {}
  for l = 1, 2 do
    local n = "l" .. l .. "_"
    layers[l] = setmetatable({iw = V(n .. "iw"), ib = V(n .. "ib"), hw = V(n .. "hw"), hb = V(n .. "hb"), h = V(n .. "h"),
        c = V(n .. "c")},
                             {__tostring = function() return tostring(l) end, __concat = function(a, b) return tostring(a)
                                 .. tostring(b) end})
  end
  for t = 1, 60 do
    local x = V("x" .. t)
    for l = 1, 2 do
      layers[l].h, layers[l].c = cell(x, layers[l].h, layers[l].c, layers[l], t)
      x = layers[l].h
    end
    outputs[t] = x
  end
  local symbol, shapes = ty.sym.Group(outputs), {}
  for t = 1, 60 do shapes["x" .. t] = {32, 200} end
  for l = 1, 2 do shapes["l" .. l .. "_h"], shapes["l" .. l .. "_c"] = {32, 200}, {32, 200} end
  return {step = function() symbol:simple_bind{ctx = ty.cpu(), shapes = shapes}:free() end, sync = function() end, work = 1, unit = "ms"}
end

workloads.order = {"W1", "W2", "W7", "W7b", "chain", "bind"}

return workloads
