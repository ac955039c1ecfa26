--- Launches and bytes of device memory of operators and of training steps on the stand-in, beside
-- the ideal (gpu_ideal.lua): `make gpu-cost`. Bytes are the distinct addresses that a launch reads
-- plus those that it writes; a call of a library counts each operand once.
--   tycho scripts/dev/gpu_cost.lua [--kernels] [--write] [name ...]
-- --kernels: lists them, too; --write: puts the rows that were counted into the tables of
-- doc/gpu.md, whose other rows stay. GPU_TABLE_DOC names another folder than doc.
package.path = "scripts/dev/bench/?.lua;scripts/dev/?.lua;" .. package.path
local ffi = require "ffi"
local ideal = require "gpu_ideal"
local layers = require "layers"
local narrow = require "narrow"
local nets = require "nets"
local ty = require "tycho"
local values = require "values"

ffi.cdef [[
  const char *cudasim_costs(void);
]]
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local gpu = ty.gpu(0)

local PAGE = (os.getenv("GPU_TABLE_DOC") or "doc") .. "/gpu.md"
local options, wanted = {}, {}
for _, word in ipairs(arg) do
  if word:find "^%-%-" then
    options[word] = true
  else
    wanted[#wanted + 1], wanted[word] = word, true
  end
end
local kernels = options["--kernels"]

-- Returns the work of f on the device: launches, among them fills and copies, bytes, and both by
-- name; without those with the name `but`.
local function measure_cost(f, but)
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

-- Returns a network and the shapes of its inputs. name: with or without a precision after it.
local function network(name)
  if name == "lstm" then
    return nets.language("fused", 2, 200, 35, 2), {data = {35, 2}, label = {35, 2}}
  elseif name == "transformer" then
    local g = layers.GPT
    g.steps, g.batch = 64, 1
    return layers.transformer_symbol(), {data = {g.steps, g.batch}, label = {g.steps, g.batch},
      mask = {g.steps, g.steps}}
  elseif name == "causal" then
    local shape = {1, 64}
    return narrow.causal(narrow.CAUSAL, shape[2]), {data = shape, label = shape}
  end
  local symbol, shape = nets.network(name:match "^%w+")
  -- with large pictures the stand-in would take an hour
  if name:find "^resnet50" then shape = {3, 64, 64} end
  return symbol, {data = {4, unpack(shape)}, label = {4}}
end

-- Makes calls of multi_sgd_mom_update, each with the largest number of weights that it accepts.
local function make_updates(symbol, exe)
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

-- Returns a training step with SGD: the third one of its executor, which is recorded.
local function make_step(name)
  local symbol, inputs = network(name)
  local req, known = {}, {}
  for _, argument in ipairs(symbol:list_arguments()) do
    req[argument] = inputs[argument] and "null" or "write"
  end
  local exe = symbol:simple_bind{ctx = gpu, shapes = inputs, grad_req = req,
    precision = name:match "-(%a+)$" or "highest"}
  for argument, x in pairs(exe.arg_dict) do
    known[argument] = x.shape
    if inputs[argument] then x[":"] = 1 else values.parameter(x, argument) end
  end
  for argument, x in pairs(exe.aux_dict) do values.parameter(x, argument) end
  local updates = make_updates(symbol, exe)
  local function step()
    exe:forward(true)
    exe:backward()
    for _, update in ipairs(updates) do ty.nd.multi_sgd_mom_update(update) end
  end
  step()
  step()
  return measure_cost(step), ideal.bytes(symbol, known, inputs)
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

local function find_maker(name)
  local short = name:match("^_contrib_(.*)")
  return short and ty.sym.contrib[short] or ty.sym[name]
end

local function make_operator(row)
  local name, shapes, attributes = row[1], row[2], row[3] or {}
  local call, known = {name = "node"}, {}
  for k, v in pairs(attributes) do call[k] = v end
  for i in ipairs(shapes) do call[i] = ty.sym.Variable("x" .. i) end
  local symbol = find_maker(name)(call)
  for _, argument in ipairs(symbol:list_arguments()) do
    known[argument] = shapes[tonumber(argument:match("^x(%d+)$"))]
  end
  local exe = symbol:simple_bind{ctx = gpu, shapes = known, grad_req = "write",
    precision = "highest"}
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
  -- head gradients are copied to the device
  local there, back = measure_cost(forward), measure_cost(backward, "copy")
  return there, back, ideal.of(name, shapes, exe.outputs[1].shape)
end

-- Tables ------------------------------------------------------------------------------------------

local function is_wanted(name) return #wanted == 0 or wanted[name] end

-- Returns a whole number in the page's form: 61,994.
local function in_thousands(x)
  local text = ("%.0f"):format(x):reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return (text:gsub("^,", ""))
end

local LINE = "|---|---|---|---|---|\n"
local NETWORK_HEAD = "| Training step | Launches | KB | Ideal, KB | Ratio |\n" .. LINE
local OPERATOR_HEAD = "| Operator | Launches forward | Bytes / ideal | Launches backward "
  .. "| Bytes / ideal |\n" .. LINE
-- name, and name in the page
local NETWORKS = {
  {"mlp", "perceptron 784-128-64-10"}, {"lenet", "LeNet"}, {"resnet20", "ResNet-20"},
  {"resnet20-medium", "ResNet-20 under `medium`"}, {"resnet50", "ResNet-50"},
  {"lstm", "LSTM 2 × 200"},
  {"transformer", "transformer of W15, 4 layers of 256"},
  {"causal", "transformer of W12, 4 layers of 256"},
}

-- Returns the page with this row in the table below the head, in place of the row with its name or
-- at the end.
local function with_row(page, head, row)
  local _, last = page:find(head, 1, true)
  assert(last, PAGE .. " lacks the table")
  local name, rows, at, found = row:match "^| .- |", {}, last + 1, false
  for line in page:sub(at):gmatch "[^\n]*\n" do
    if not line:find "^|" then break end
    local same = line:sub(1, #name) == name
    rows[#rows + 1], found, at = same and row or line, found or same, at + #line
  end
  if not found then rows[#rows + 1] = row end
  return page:sub(1, last) .. table.concat(rows) .. page:sub(at)
end

local function report(head, row)
  io.write(row)
  if not options["--write"] then return end
  local file = assert(io.open(PAGE, "rb"))
  local page = with_row(file:read "*a", head, row)
  file:close()
  file = assert(io.open(PAGE, "wb"))
  assert(file:write(page))
  assert(file:close())
end

gpu:with(function()
  io.write(NETWORK_HEAD)
  for _, one in ipairs(NETWORKS) do
    if is_wanted(one[1]) then
      local cost, least = make_step(one[1])
      report(NETWORK_HEAD, ("| %s | %d | %s | %s | %.2f |\n"):format(one[2], cost.launches,
        in_thousands(cost.bytes / 1e3), in_thousands(least / 1e3), cost.bytes / least))
      if kernels then print_names(cost) end
    end
  end
  io.write("\n", OPERATOR_HEAD)
  for _, row in ipairs(OPERATORS) do
    if is_wanted(row[1]) then
      local there, back, least, least_back = make_operator(row)
      local name = row[1]:gsub("^_.*", "`%0`")
      report(OPERATOR_HEAD, ("| %s | %d | %.2f | %d | %.2f |\n"):format(name, there.launches,
        there.bytes / least, back.launches, back.bytes / math.max(least_back, 1)))
      if kernels then
        print_names(there)
        print("    --")
        print_names(back)
      end
    end
  end
end)
