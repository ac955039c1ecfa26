-- Long runs: after a warm-up neither memory grows, nor the number of files, threads and objects.
-- The whole lengths are #slow.

local ty = require "tycho"
local lfs = require "lfs"

local V = ty.sym.Variable
local MOST_GROWTH = 1024 * 1024                          -- bytes
local SANITIZED = (os.getenv("SANITIZER") or "") ~= ""

local function list_lines(path, pattern)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return tonumber(text:match(pattern))
end

local function entries(path)
  local n = 0
  for _ in lfs.dir(path) do n = n + 1 end
  return n
end

local function objects()
  local live = ty.live()
  local names, texts = {}, {}
  for name in pairs(live) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do
    texts[i] = type(live[name]) == "number" and name ~= "bytes" and name .. " " .. live[name] or ""
  end
  return table.concat(texts, " ")
end

local function state()
  for _ = 1, 3 do collectgarbage() end
  ty.nd.waitall()
  return { memory = list_lines("/proc/self/status", "VmRSS:%s+(%d+)") * 1024,
    files = entries("/proc/self/fd"), threads = list_lines("/proc/self/status", "Threads:%s+(%d+)"),
    objects = objects() }
end

-- Asserts that f(i), called as often as `times` says after a warm-up of `warm` calls, does not
-- leak. A heap may take a piece more at any time and keep it; a leak grows in every quarter, so the
-- least growth counts.
local function holds(times, warm, f)
  for i = 1, warm do f(i) end
  local first, least = state(), math.huge
  local before = first
  for quarter = 0, 3 do
    for i = 1, times / 4 do f(warm + quarter * times / 4 + i) end
    local after = state()
    assert.equal(first.objects, after.objects)
    assert.equal(first.files, after.files)
    assert.equal(first.threads, after.threads)
    least, before = math.min(least, after.memory - before.memory), after
  end
  if not SANITIZED then                                  -- a sanitizer keeps what was freed
    assert.is_true(4 * least <= MOST_GROWTH, ("%d bytes more"):format(4 * least))
  end
end

local function network(width)
  local h = ty.sym.Activation{ ty.sym.FullyConnected{ V("data"), num_hidden = width or 8,
    name = "fc1" }, act_type = "tanh" }
  return ty.sym.SoftmaxOutput{ ty.sym.FullyConnected{ h, num_hidden = 3, name = "fc2" },
    name = "softmax" }
end

local function make_module(symbol)
  local mod = ty.mod.Module{ symbol = symbol }
  mod:bind{ data_shapes = { { "data", { 4, 5 } } }, label_shapes = { { "softmax_label", { 4 } } } }
  mod:init_params{ initializer = ty.init.Xavier() }
  mod:init_optimizer{ optimizer = "adam" }
  return mod
end

local function batch()
  return ty.io.DataBatch{ data = { ty.nd.ones{ 4, 5 } }, label = { ty.nd.zeros{ 4 } } }
end

local function steps(times)
  local mod, metric = make_module(network()), ty.metric.create("acc")
  local b = batch()
  holds(times, math.max(4000, times / 20), function(i)
    mod:forward_backward(b)
    mod:update()
    if i % 50 == 0 then
      mod:update_metric(metric, b.label)
      metric:reset()
    end
  end)
end

local function buckets(times, keys)
  local mod = ty.mod.BucketingModule{ sym_gen = function(key)
    local mean = ty.sym.mean{ V("data"), axis = 1, keepdims = true }
    return ty.sym.SoftmaxOutput{ ty.sym.FullyConnected{ mean, num_hidden = 3, name = "fc" } * key,
      name = "softmax" }, { "data" }, { "softmax_label" }
  end, default_bucket_key = keys }
  mod:bind{ data_shapes = { { "data", { 4, keys } } },
    label_shapes = { { "softmax_label", { 4 } } } }
  mod:init_params{}
  mod:init_optimizer{}
  local list = {}
  for key = 1, keys do
    list[key] = ty.io.DataBatch{ data = { ty.nd.ones{ 4, key } }, label = { ty.nd.zeros{ 4 } },
      bucket_key = key, provide_data = { { "data", { 4, key } } },
      provide_label = { { "softmax_label", { 4 } } } }
  end
  holds(times, 4 * keys, function(i)
    mod:forward_backward(list[i * 7 % keys + 1])
    mod:update()
  end)
end

local function binds(times)
  local net = network()
  holds(times, math.max(300, times / 20), function(i)
    local exe = net:simple_bind{ ctx = ty.cpu(), data = { 2 + i % 3, 5 } }
    exe:forward{ is_train = true }
    exe:backward{}
    exe:free()
    if i % 100 == 0 then collectgarbage() end
  end)
end

local function symbols(times)
  holds(times, math.max(300, times / 20), function(i)
    local net = network(4 + i % 5)
    assert(#ty.sym.load_json(net:tojson()):list_arguments() == 6)
    if i % 100 == 0 then collectgarbage() end
  end)
end

-- Returns a step of a loop written by hand: recorded, backward, a Trainer's update.
local function loop_step(net, rows)
  local trainer = ty.gluon.Trainer(net:collect_params(), "sgd",
    { learning_rate = 0.01, momentum = 0.9 })
  local loss = ty.gluon.loss.L2Loss()
  return function(x, y)
    local l = ty.autograd.record(function() return loss(net(x), y) end)
    l:backward()
    trainer:step(rows, { ignore_stale_grad = true })
  end
end

local function loops(times, hybrid)
  local nn = ty.gluon.nn
  local net = nn.HybridSequential{ nn.Dense{ 8, in_units = 4, activation = "relu" },
    nn.Dense{ 2, in_units = 8 } }
  net:initialize()
  if hybrid then net:hybridize() end
  local step, x, y = loop_step(net, 4), ty.nd.ones{ 4, 4 }, ty.nd.ones{ 4, 2 }
  holds(times, 2000, function() step(x, y) end)
end

local Changing = ty.gluon.Block:extend "Changing"

function Changing:init(most)
  self.blocks = ty.gluon.nn.Sequential()
  for _ = 1, most do self.blocks:add(ty.gluon.nn.Dense{ 4, in_units = 4, activation = "tanh" }) end
end

-- Runs blocks; the number of calls, their order, a number and a branch on a value change from step
-- to step.
function Changing:forward(x)
  local depth, first = self.step % 5 + 1, self.step % 3
  for i = 0, depth - 1 do x = self.blocks[(first + i) % #self.blocks + 1](x) end
  if self.step % 7 == 0 and x:mean():asscalar() > 0 then x = ty.nd.relu(x) end
  if self.step % 11 == 0 then
    local scale = ty.nd.ones{ 4 }
    scale[{ 0 }] = self.step % 13
    x = ty.nd.broadcast_mul(x, scale:reshape{ 1, 4 })
  end
  return x * (1 + self.step % 17)
end

local function changing_loops(times)
  local net = Changing(5)
  net:initialize()
  local step, x, y = loop_step(net, 4), {}, {}
  for rows = 1, 6 do x[rows], y[rows] = ty.nd.ones{ rows, 4 }, ty.nd.ones{ rows, 4 } end
  -- What is taken where depends on the trained values: a structure may be seen first after 4,000.
  holds(times, 16000, function(i)
    net.step = i
    local rows = i % 6 + 1
    step(x[rows], y[rows])
  end)
end

local function loader_loops(times)
  local data, nn = ty.gluon.data, ty.gluon.nn
  local set = data.ArrayDataset(ty.nd.ones{ 40, 4, 4, 3 }, ty.nd.ones{ 40, 2 })
    :transform_first(data.vision.transforms.ToTensor())
  local loader = data.DataLoader(set, { batch_size = 4, shuffle = true, num_workers = 2 })
  local net = nn.Dense{ 2, in_units = 48 }
  net:initialize()
  local step = loop_step(net, 4)
  holds(times / 10, 200, function()
    for x, y in loader do step(x, y) end
  end)
end

describe("nothing grows", function()
  it("over training steps", function() steps(4000) end)
  it("over steps of a loop by hand", function() loops(4000) end)
  it("over steps of a hybridized loop", function() loops(4000, true) end)
  it("over steps of a loop whose calls change", function() changing_loops(4000) end)
  it("over steps of a loop with a DataLoader", function() loader_loops(4000) end)
  it("over bucket switches", function() buckets(200, 10) end)
  it("over executors bound and freed", function() binds(400) end)
  it("over symbols, written and read", function() symbols(400) end)
  it("over a million training steps #slow", function() steps(1e6) end)
  it("over 100,000 steps of a loop by hand #slow", function() loops(1e5) end)
  it("over 100,000 steps of a hybridized loop #slow", function() loops(1e5, true) end)
  it("over 100,000 steps of a loop whose calls change #slow", function() changing_loops(1e5) end)
  it("over 100,000 steps of a loop with a DataLoader #slow", function() loader_loops(1e5) end)
  it("over 10,000 switches between 50 buckets #slow", function() buckets(1e4, 50) end)
  it("over 100,000 executors bound and freed #slow", function() binds(1e5) end)
  it("over 100,000 symbols #slow", function() symbols(1e5) end)
end)
