-- What a training step costs on a GPU, on the stand-in: from the third on, a segment is one launch
-- of a CUDA graph, and nothing is allocated, copied or compiled. Values stay those of the CPU.

local stand_in = require "spec.support.stand_in"

-- counts(f): what the driver was asked for while f ran
local COUNTS = [[
local ty = require "tycho"
local ffi = require "ffi"
ffi.cdef "void cudasim_count(uint64_t *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local function asked()
  local n, names = ffi.new("uint64_t[5]"), {"launches", "copies", "fills", "graphs", "allocations"}
  driver.cudasim_count(n)
  for i, name in ipairs(names) do
    names[name] = tonumber(n[i - 1])
  end
  return names
end
function counts(f)
  ty.nd.waitall()
  local before = asked()
  f()
  ty.nd.waitall()
  local after = asked()
  for _, name in ipairs(after) do
    after[name] = after[name] - before[name]
  end
  return after
end
function values(x)
  return table.concat(x:reshape{x.size}:totable(), " ")
end
]]

local STEPS = [[
local sym = ty.sym
local net = sym.Convolution{data = sym.Variable("data"), kernel = {3, 3}, num_filter = 4, name = "c"}
net = sym.relu(sym.BatchNorm{data = net, fix_gamma = false})
net = sym.FullyConnected{data = sym.Flatten{data = net}, num_hidden = 5, name = "fc"}
net = sym.SoftmaxOutput{data = net, name = "softmax"}
local exe = net:simple_bind{ctx = ty.gpu(0), data = {2, 1, 6, 6}, softmax_label = {2}}
for name, x in pairs(exe.arg_dict) do
  (ty.nd.arange{0, x.size, ctx = ty.cpu(0)}:reshape(x.shape) / x.size):copyto(x)
end
local first
for step = 1, 5 do
  ty.waitall()
  local before = ty.gpu(0):work()
  local n = counts(function()
    exe:forward{is_train = true}
    exe:backward()
  end)
  local work = ty.gpu(0):work()
  local launches, copies = work.launches - before.launches, work.copies - before.copies
  print(n.launches > 5 and launches == n.launches and copies == n.copies + n.fills
    and "counted" or ("%d for %d, %d for %d"):format(launches, n.launches, copies, n.copies + n.fills))
  local seen = values(exe.outputs[1]) .. values(exe.grad_dict.c_weight)
  first = first or seen
  print(step, n.graphs, n.copies, n.fills, n.allocations, seen == first and "equal" or "different")
end
]]

-- two layers on two streams, which a graph takes as branches
local BRANCHES = [[
local V = ty.sym.Variable
local net = ty.sym.RNN{data = V "x", parameters = V "p", state = V "h", state_cell = V "c",
  state_size = 4, num_layers = 2, mode = "lstm"}
net = ty.sym.tanh(ty.sym.FullyConnected{data = net, num_hidden = 4, flatten = false, name = "fc"})
local function bind(ctx)
  local exe = net:simple_bind{ctx = ctx, shapes = {x = {17, 2, 3}}}
  for _, x in pairs(exe.arg_dict) do
    (ty.nd.arange{0, x.size, ctx = ty.cpu(0)}:reshape(x.shape) / x.size - 0.4):copyto(x)
  end
  return exe
end
local function step(exe)
  exe:forward{is_train = true}
  exe:backward(ty.nd.ones({17, 2, 4}, {ctx = exe.outputs[1].context}))
end
local here, there = bind(ty.cpu(0)), bind(ty.gpu(0))
step(here)
for i = 1, 5 do
  local n = counts(function() step(there) end)
  local far = 0
  for name, g in pairs(here.grad_dict) do
    far = math.max(far, ty.nd.abs(there.grad_dict[name]:as_in_context(ty.cpu(0)) - g):max():asscalar())
  end
  print(i, n.graphs, far < 1e-5 and "equal" or far)
end
]]

-- inference and training of one executor, a pool that moves, a step of the host in the middle
local CHANGES = [[
local sym = ty.sym
local net = sym.FullyConnected{data = sym.Variable("data"), num_hidden = 4, name = "a"}
net = sym.Reshape{data = sym.tanh(net), shape = {-1, 1, 4}}
net = sym.Convolution{data = net, kernel = {1}, num_filter = 1, name = "b"}
net = sym.FullyConnected{data = net, num_hidden = 4, name = "c"}
net = sym.LayerNorm{data = sym.tanh(net), name = "norm"}
local function bind(ctx, shared, rows)
  local exe = net:simple_bind{ctx = ctx, data = {rows, 4}, shared_exec = shared}
  for name, x in pairs(exe.arg_dict) do
    (ty.nd.arange{0, x.size, ctx = ty.cpu(0)}:reshape(x.shape) / x.size - 0.4):copyto(x)
  end
  return exe
end
local there, here = bind(ty.gpu(0), nil, 2), bind(ty.cpu(0), nil, 2)
local larger
for step = 1, 12 do
  if step == 7 then
    larger = bind(ty.gpu(0), there, 8000000)
  end
  local train = step % 3 ~= 0
  local n = counts(function()
    there:forward{is_train = train}
    if train then there:backward{ty.nd.ones{2, 4, ctx = ty.gpu(0)}} end
  end)
  here:forward{is_train = train}
  if train then here:backward{ty.nd.ones{2, 4, ctx = ty.cpu(0)}} end
  local worst = (there.outputs[1]:as_in_context(ty.cpu(0)) - here.outputs[1]):abs():max():asscalar()
  for name, g in pairs(there.grad_dict) do
    local d = (g:as_in_context(ty.cpu(0)) - here.grad_dict[name]):abs():max():asscalar()
    worst = math.max(worst, d)
  end
  print(step, train and "training" or "inference", n.graphs, worst < 1e-5 and "equal" or worst)
end
]]

-- what Dropout leaves changes from run to run, and is what the CPU's random numbers leave
local DRAWS = [[
local sym = ty.sym
local net = sym.FullyConnected{data = sym.Variable("data"), num_hidden = 6, name = "a"}
net = sym.Dropout{data = sym.tanh(net), p = 0.4, name = "drop"}
net = sym.RNN{data = sym.Reshape{data = net, shape = {2, 3, 6}}, state_size = 4, num_layers = 2,
  mode = "rnn_tanh", p = 0.5, parameters = sym.Variable("weights"), state = sym.Variable("state"),
  name = "rnn"}
local function bind(ctx)
  local exe = net:simple_bind{ctx = ctx, data = {6, 4}, weights = {88}, state = {2, 3, 4}}
  for name, x in pairs(exe.arg_dict) do
    (ty.nd.arange{0, x.size, ctx = ty.cpu(0)}:reshape(x.shape) % 7 / 7 - 0.4):copyto(x)
  end
  return exe
end
local function sums(exe, ctx, seed)
  ty.random.seed(seed, ctx)
  local all = {}
  for step = 1, 5 do
    local n = counts(function()
      exe:forward{is_train = true}
      exe:backward{ty.nd.ones{2, 3, 4, ctx = ctx}}
    end)
    all[step] = {graphs = n.graphs}
    for i, x in ipairs{exe.outputs[1], exe.grad_dict.data, exe.grad_dict.weights} do
      all[step][i] = x:copyto(ty.cpu(0))
    end
  end
  return all
end
local there, here = sums(bind(ty.gpu(0)), ty.gpu(0), 3), sums(bind(ty.cpu(0)), ty.cpu(0), 3)
for step = 1, 5 do
  local worst, last = 0, there[step - 1 > 0 and step - 1 or 5]
  for i = 1, 3 do
    worst = math.max(worst, (there[step][i] - here[step][i]):abs():max():asscalar())
  end
  local moved = (there[step][1] - last[1]):abs():max():asscalar()
  print(step, there[step].graphs, worst < 1e-5 and "equal" or worst,
    moved > 0 and "new numbers" or "the same numbers")
end
]]

-- the optimizer's step inside backward, at a rate that changes at every second step
local RATES = [[
ty.log.level = "error"
local sym, cpu = ty.sym, ty.cpu(0)
local net = sym.FullyConnected{data = sym.Variable("data"), num_hidden = 8, name = "a"}
net = sym.FullyConnected{data = sym.tanh(net), num_hidden = 3, name = "b"}
net = sym.SoftmaxOutput{data = net, name = "softmax"}
local function pattern(shape)
  local n = shape[1] * (shape[2] or 1)
  return (ty.nd.arange{0, n, ctx = cpu} * 5 % 11 / 11 - 0.4):reshape(shape)
end
local function train(ctx, optimizer)
  local m, graphs = ty.mod.Module{symbol = net, context = ctx}, {}
  m:bind{data_shapes = {{"data", {8, 6}}}, label_shapes = {{"softmax_label", {8}}}}
  m:set_params({a_weight = pattern{8, 6}, a_bias = pattern{8}, b_weight = pattern{3, 8},
    b_bias = pattern{3}}, {})
  m:init_optimizer{optimizer = optimizer, in_backward = true, optimizer_params = {
    learning_rate = 0.5, lr_scheduler = ty.lr_scheduler.FactorScheduler{step = 2, factor = 0.7}}}
  for step = 1, 8 do
    graphs[step] = counts(function()
      m:forward_backward(ty.io.DataBatch{data = {pattern{8, 6}},
        label = {ty.nd.arange{0, 8, ctx = cpu} % 3}})
      m:update()
    end).graphs
  end
  return (m:get_params()), table.concat(graphs, " ")
end
for _, optimizer in ipairs{"sgd", "adam"} do
  local got, graphs = train(ty.gpu(0), optimizer)
  local want, worst = train(cpu, optimizer), 0
  for name, p in pairs(want) do
    worst = math.max(worst, (got[name]:as_in_context(cpu) - p):abs():max():asscalar())
  end
  print(optimizer, graphs, worst < 1e-5 and "equal" or worst)
end
]]

-- a loop written by hand: data that are elsewhere in each step, results that are kept, Dropout
local LOOP = [[
local autograd, gluon, nn, cpu = ty.autograd, ty.gluon, ty.gluon.nn, ty.cpu(0)
local function pattern(shape, ctx)
  local n = shape[1] * (shape[2] or 1)
  return (ty.nd.arange{0, n, ctx = cpu} * 5 % 11 / 11 - 0.4):reshape(shape):as_in_context(ctx)
end
local function train(ctx, hybrid)
  local function dense(name, n, from, activation)
    return nn.Dense{n, in_units = from, activation = activation, prefix = name}
  end
  local width = hybrid and 7 or 8                        -- so that neither runs the other's programs
  local net = nn.HybridSequential{dense("a_", width, 4, "tanh"), dense("b_", width, width, "tanh"),
    nn.Dropout(0.5), dense("c_", width, width, "tanh"), dense("d_", 2, width)}
  net:initialize{ctx = ctx}
  for _, p in net:collect_params():items() do
    p:set_data(pattern(p.shape, ctx))
  end
  if hybrid then net:hybridize() end
  ty.random.seed(3, ctx)                                 -- after what initialize draws
  local trainer = gluon.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1, momentum = 0.9})
  local kept, all, graphs = {}, {}, {}
  for step = 1, 9 do
    kept[step] = {x = pattern({4, 4}, ctx), y = pattern({4, 2}, ctx)}
    local n = counts(function()
      local l = autograd.record(function()
        return (net(kept[step].x) - kept[step].y):square():mean()
      end)
      l:backward()
      kept[step].l = l
    end)
    all["loss" .. step], graphs[step] = kept[step].l:as_in_context(cpu), n.graphs
    trainer:step(4)
  end
  for name, p in net:collect_params():items() do
    all[name:match("._%a+$")] = p:data():as_in_context(cpu)
  end
  return all, table.concat(graphs, " ")
end
for _, hybrid in ipairs{false, true} do
  local here = train(cpu, hybrid)
  local there, graphs = train(ty.gpu(0), hybrid)
  local worst, n = 0, 0
  for key, x in pairs(here) do
    worst, n = math.max(worst, (x - there[key]):abs():max():asscalar()), n + 1
  end
  print(hybrid, n, worst < 1e-5 and "equal" or worst, graphs)
end
]]

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("runs", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("a step on a GPU", function()
  it("is one launch for each segment, without copies and allocations", function()
    local text, status = stand_in.run(COUNTS .. STEPS, { CUDASIM_STRICT = 1 })
    assert.equal(0, status, text)
    for step = 1, 5 do
      local graphs = step == 1 and 0 or 2
      assert.matches(("counted\n%d\t%d\t0\t0\t0\tequal\n"):format(step, graphs), text, 1, true)
    end
  end)

  it("runs without graphs where that is asked for, or the driver refuses to record", function()
    for _, settings in ipairs{ { TYCHO_GRAPHS = 0 },
      { CUDASIM_FAIL = "cuStreamBeginCapture:1,cuGraphInstantiateWithFlags:1" } } do
      local text, status = stand_in.run(COUNTS .. STEPS, settings)
      assert.equal(0, status, text)
      assert.matches("3\t0\t0\t0\t0\tequal", text)
      assert.matches("5\t0\t0\t0\t0\tequal", text)
    end
  end)

  it("has branches of layers that run beside each other", function()
    for _, streams in ipairs{ "late", "eager" } do
      local text, status = stand_in.run(COUNTS .. BRANCHES,
        { CUDASIM_STRICT = 1, CUDASIM_STREAMS = streams })
      assert.equal(0, status, text)
      for step = 1, 5 do
        local graphs = step == 1 and 0 or 2
        assert.matches(("%d\t%d\tequal\n"):format(step, graphs), text, 1, true)
      end
    end
  end)

  it("draws other random numbers at each start of a graph", function()
    local text, status = stand_in.run(COUNTS .. DRAWS, { CUDASIM_STRICT = 1 })
    assert.equal(0, status, text)
    for step = 1, 5 do
      local graphs = step == 1 and 0 or 2
      assert.matches(("%d\t%d\tequal\tnew numbers\n"):format(step, graphs), text, 1, true)
    end
  end)

  it("is not recorded anew for another learning rate", function()
    local text, status = stand_in.run(COUNTS .. RATES, { CUDASIM_STRICT = 1 })
    assert.equal(0, status, text)
    local graphs = "0 2 2 2 2 2 2 2"
    assert.equal(("sgd\t%s\tequal\nadam\t%s\tequal\n"):format(graphs, graphs), text)
  end)

  it("of a loop written by hand is recorded where arrays stay, and draws anew", function()
    local text, status = stand_in.run(COUNTS .. LOOP, { CUDASIM_STRICT = 1 })
    assert.equal(0, status, text)
    for _, hybrid in ipairs{ "false", "true" } do
      local graphs = text:match(hybrid .. "\t17\tequal\t([%d ]+)\n")
      assert.matches("^0 [%d ]+ [1-9] [1-9] [1-9] [1-9]$", graphs or text)
    end
  end)

  it("is recorded anew for another mode and when its memory moves", function()
    local text, status = stand_in.run(COUNTS .. CHANGES,
      { CUDASIM_STRICT = 1, TYCHO_DISABLE = "cudnn" })
    assert.equal(0, status, text)
    local graphs = { 0, 4, 0, 4, 4, 2, 0, 4, 0, 4, 4, 2 }
    for step, n in ipairs(graphs) do
      local mode = step % 3 == 0 and "inference" or "training"
      assert.matches(("%d\t%s\t%d\tequal\n"):format(step, mode, n), text, 1, true)
    end
  end)
end)
