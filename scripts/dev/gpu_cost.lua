--- Launches and bytes of device memory of operators and of training steps on the stand-in, beside
-- the ideal (gpu_ideal.lua): `make gpu-cost`. Bytes are the distinct addresses that a launch reads
-- plus those that it writes; a call of a library counts each operand once.
--   tycho scripts/dev/gpu_cost.lua [--kernels] [name ...]
package.path = "scripts/dev/bench/?.lua;scripts/dev/?.lua;" .. package.path
local ffi = require "ffi"
local ideal = require "gpu_ideal"
local layers = require "layers"
local nets = require "nets"
local ty = require "tycho"
local values = require "values"

ffi.cdef [[
  const char *cudasim_costs(void);
  int setenv(const char *, const char *, int);
]]
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local gpu = ty.gpu(0)

local kernels, wanted = false, {}
for _, word in ipairs(arg) do
  if word == "--kernels" then kernels = true else wanted[#wanted + 1], wanted[word] = word, true end
end

-- Returns what f makes the device do: launches, fills and copies among them, bytes, and both by
-- name; without those named `but`.
local function cost_of(f, but)
  ty.waitall()
  driver.cudasim_costs()
  f()
  ty.waitall()
  local cost = {launches = 0, bytes = 0, names = {}}
  local lines = ffi.string(driver.cudasim_costs())
  for name, read, written in lines:gmatch("([^\t]*)\t(%d+)\t(%d+)\n") do
    local one, bytes = cost.names[name] or {0, 0}, tonumber(read) + tonumber(written)
    if name ~= but then
      cost.names[name] = {one[1] + 1, one[2] + bytes}
      cost.launches, cost.bytes = cost.launches + 1, cost.bytes + bytes
    end
  end
  return cost
end

local function print_names(cost)
  local list = {}
  for name, one in pairs(cost.names) do list[#list + 1] = {name, one[1], one[2]} end
  table.sort(list, function(a, b) return a[3] > b[3] end)
  for _, one in ipairs(list) do
    print(("    %-28s %5d launches %12.1f KB"):format(one[1], one[2], one[3] / 1e3))
  end
end

-- Networks ----------------------------------------------------------------------------------------

-- name: with a precision after it, or without; inputs: shapes of what is no parameter
local function network(name)
  if name == "lstm" then
    return nets.language("fused", 2, 200, 35, 2), {data = {35, 2}, label = {35, 2}}
  elseif name == "transformer" then
    local g = layers.GPT
    g.steps, g.batch = 64, 1
    return layers.transformer_symbol(), {data = {g.steps, g.batch}, label = {g.steps, g.batch},
      mask = {g.steps, g.steps}}
  end
  local symbol, shape = nets.network(name:match "^%w+")
  -- of large pictures the stand-in would take an hour
  if name:find "^resnet50" then shape = {3, 64, 64} end
  return symbol, {data = {4, unpack(shape)}, label = {4}}
end

-- Calls of multi_sgd_mom_update, each of as many weights as it takes.
local function updates_of(symbol, exe)
  local MOST, list, update = 128, {}, nil
  for i, name in ipairs(symbol:list_arguments()) do
    if exe.grad_arrays[i] ~= ty.null then
      if not update or update.num_weights == MOST then
        update = {lrs = {}, wds = {}, momentum = 0.9, num_weights = 0, out = {}}
        list[#list + 1] = update
      end
      local n, w = update.num_weights, exe.arg_dict[name]
      update[3 * n + 1], update[3 * n + 2] = w, exe.grad_arrays[i]
      update[3 * n + 3] = ty.nd.zeros(w.shape)
      update.out[n + 1], update.lrs[n + 1], update.wds[n + 1] = w, 0.01, 0
      update.num_weights = n + 1
    end
  end
  return list
end

-- Returns a training step with SGD, the third of its executor, which is recorded.
local function step_of(name)
  ffi.C.setenv("TYCHO_PRECISION", name:match "-(%a+)$" or "highest", 1)
  local symbol, inputs = network(name)
  local req, known = {}, {}
  for _, argument in ipairs(symbol:list_arguments()) do
    req[argument] = inputs[argument] and "null" or "write"
  end
  local exe = symbol:simple_bind{ctx = gpu, shapes = inputs, grad_req = req}
  for argument, x in pairs(exe.arg_dict) do
    known[argument] = x.shape
    if inputs[argument] then x[":"] = 1 else values.parameter(x, argument) end
  end
  for argument, x in pairs(exe.aux_dict) do values.parameter(x, argument) end
  local updates = updates_of(symbol, exe)
  local function step()
    exe:forward(true)
    exe:backward()
    for _, update in ipairs(updates) do ty.nd.multi_sgd_mom_update(update) end
  end
  step()
  step()
  return cost_of(step), ideal.bytes(symbol, known, inputs)
end

-- Operators ---------------------------------------------------------------------------------------

-- name, shapes of the inputs, attributes
local OPERATORS = {
  {"BatchNorm", {{8, 16, 16, 16}, {16}, {16}, {16}, {16}}, {fix_gamma = false}},
  {"LayerNorm", {{128, 256}, {256}, {256}}},
  {"_contrib_RMSNorm", {{128, 256}, {256}}},
  {"softmax", {{128, 256}}},
  {"log_softmax", {{128, 256}}},
  {"SoftmaxOutput", {{128, 256}, {128}}},
  {"relu", {{128, 256}}},
  {"LeakyReLU", {{128, 256}}, {act_type = "gelu"}},
  {"Dropout", {{128, 256}}},
  {"Pooling", {{8, 16, 16, 16}}, {kernel = {2, 2}, stride = {2, 2}, pool_type = "max"}},
  {"broadcast_add", {{128, 256}, {1, 256}}},
  {"Embedding", {{128}, {512, 64}}, {input_dim = 512, output_dim = 64}},
  {"FullyConnected", {{128, 256}, {64, 256}, {64}}, {num_hidden = 64}},
  {"Concat", {{64, 256}, {64, 256}}, {dim = 0}},
  {"SliceChannel", {{128, 256}}, {num_outputs = 2, axis = 1}},
}

local function maker_of(name)
  local short = name:match("^_contrib_(.*)")
  return short and ty.sym.contrib[short] or ty.sym[name]
end

local function operator_of(row)
  local name, shapes, attributes = row[1], row[2], row[3] or {}
  local call, known = {name = "node"}, {}
  for k, v in pairs(attributes) do call[k] = v end
  for i in ipairs(shapes) do call[i] = ty.sym.Variable("x" .. i) end
  local symbol = maker_of(name)(call)
  for _, argument in ipairs(symbol:list_arguments()) do
    known[argument] = shapes[tonumber(argument:match("^x(%d+)$"))]
  end
  local exe = symbol:simple_bind{ctx = gpu, shapes = known, grad_req = "write"}
  for argument, x in pairs(exe.arg_dict) do values.parameter(x, argument) end
  local heads = {}
  for i, y in ipairs(exe.outputs) do
    heads[i] = ty.nd.ones(y.shape, gpu)
  end
  local function forward() exe:forward(true) end
  local function backward() exe:backward(heads) end
  for _ = 1, 2 do
    forward()
    backward()
  end
  -- head gradients are copied in
  local there, back = cost_of(forward), cost_of(backward, "copy")
  return there, back, ideal.of(name, shapes, exe.outputs[1].shape)
end

-- Tables ------------------------------------------------------------------------------------------

local function is_wanted(name) return #wanted == 0 or wanted[name] end

local NETWORKS = {"lenet", "resnet20", "resnet20-medium", "resnet50", "lstm", "transformer"}
gpu:with(function()
  print("| Network | Launches | KB | Ideal, KB | Ratio |\n|---|---|---|---|---|")
  for _, name in ipairs(NETWORKS) do
    if is_wanted(name) then
      local cost, least = step_of(name)
      print(("| %s | %d | %.0f | %.0f | %.2f |"):format(name, cost.launches, cost.bytes / 1e3,
        least / 1e3, cost.bytes / least))
      if kernels then print_names(cost) end
    end
  end
  ffi.C.setenv("TYCHO_PRECISION", "highest", 1)
  print("\n| Operator | Launches forward | Bytes / ideal | Launches backward | Bytes / ideal |")
  print("|---|---|---|---|---|")
  for _, row in ipairs(OPERATORS) do
    if is_wanted(row[1]) then
      local there, back, least, least_back = operator_of(row)
      print(("| %s | %d | %.2f | %d | %.2f |"):format(row[1], there.launches, there.bytes / least,
        back.launches, back.bytes / math.max(least_back, 1)))
      if kernels then
        print_names(there)
        print("    --")
        print_names(back)
      end
    end
  end
end)
