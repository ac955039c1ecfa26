--- W15: hand-written training loops with gluon, compared with a Module of the same network; calls
-- on small arrays; networks and shapes that change from step to step. Each loop has its own
-- process: for the time of a step they take turns, for memory (from the third step on) each runs
-- alone. Figures: "step" and "memory" of the Module, with " gluon" and " hybrid" of the loops;
-- rates are those of the loop that is not hybridized.
local layers = require "layers"
local measure = require "measure"
local native = require "tycho.core.ffi"
local nets = require "nets"
local ty = require "tycho"
local values = require "values"

local autograd, gluon, nd = ty.autograd, ty.gluon, ty.nd
local imperative = {}

local quick = os.getenv("QUICK") == "1"
local MOMENTUM = 0.9
local SAMPLE = 0.02                                       -- seconds

-- Networks ----------------------------------------------------------------------------------------

local NAMES = {"mlp", "lenet", "resnet20", "lstm", "cells", "transformer"}
local RATES = {mlp = 0.1, lenet = 0.01, resnet20 = 0.02, lstm = 0.5, cells = 0.5,
  transformer = 0.01}
local BATCH = {mlp = 100, lenet = 64, resnet20 = 128}
local LM = {layers = 2, units = 200, steps = 35, batch = 20}
local UNIT = {mlp = "samples/s", lenet = "images/s", resnet20 = "images/s", lstm = "tokens/s",
  cells = "tokens/s", transformer = "tokens/s"}

-- Returns copies of arrays that values.lua has filled through an address: calls on an array whose
-- address is known are not delayed to run together, since it may be written to unnoticed.
local function images(shape) return values.images(shape):copy() end
local function labels(...) return values.labels(...):copy() end

local function tokens(steps, batch, words)
  return labels("data" .. steps, {steps, batch}, words),
    labels("label" .. steps, {steps, batch}, words)
end

-- Returns a mask: 0 on and below the diagonal, -1e9 above.
local function causal_mask(n)
  local row, column = nd.arange{0, n}:reshape{n, 1}, nd.arange{0, n}:reshape{1, n}
  return nd.broadcast_greater(column, row) * -1e9
end

-- Returns a network: inputs by name, label, rows of the loss, symbol(), block(), call(block).
local function network(name)
  local w = {name = name, lr = RATES[name]}
  if BATCH[name] then
    local symbol, shape, classes = nets.network(name)
    w.names, w.data = {"data"}, {images{BATCH[name], unpack(shape)}}
    w.label, w.rows = labels("label", {BATCH[name]}, classes), BATCH[name]
    function w.symbol() return symbol end
    function w.block() return layers.network(name) end
  elseif name == "transformer" then
    local g = layers.GPT
    local data, label = tokens(g.steps, g.batch, g.words)
    w.names, w.data, w.label = {"data", "mask"}, {data, causal_mask(g.steps)}, label
    w.rows, w.symbol = g.steps * g.batch, layers.transformer_symbol
    function w.block() return layers.network(name) end
  else
    local kind = name == "lstm" and "fused" or "cells"
    local data, label = tokens(LM.steps, LM.batch, nets.VOCABULARY)
    w.names, w.data, w.label, w.rows = {"data"}, {data}, label, LM.steps * LM.batch
    function w.symbol()
      return nets.language(kind == "cells" and "unrolled" or kind, LM.layers, LM.units, LM.steps,
        LM.batch)
    end
    function w.block() return layers.language(kind, LM.layers, LM.units, LM.steps) end
  end
  return w
end

-- Fills parameters in place.
local Filled = ty.init.Initializer:extend "Filled"
function Filled:__call(desc, x)
  if desc.name == "rnn_parameters" then
    values.lstm(x, LM.layers, LM.units)
  else
    values.parameter(x, layers.plain_name(desc.name))
  end
end

local function list_shapes(names, arrays)
  local out = {}
  for i, x in ipairs(arrays) do out[i] = {names[i], x.shape} end
  return out
end

-- Returns a step of a Module, and its loss.
local function module_step(w)
  local m = ty.mod.Module{symbol = w.symbol(), data_names = w.names, label_names = {"label"}}
  m:bind{data_shapes = list_shapes(w.names, w.data),
    label_shapes = list_shapes({"label"}, {w.label})}
  m:init_params{initializer = Filled()}
  m:init_optimizer{optimizer = "sgd", optimizer_params = {learning_rate = w.lr,
    momentum = MOMENTUM, rescale_grad = 1 / w.rows}}
  local batch = ty.io.DataBatch{data = w.data, label = {w.label}}
  return function()
    m:forward(batch, true)
    m:backward()
    m:update()
  end, function()
    local p = m:get_outputs()[1]
    return -nd.log(nd.pick{data = p, index = w.label:reshape{-1}, axis = 1}):mean():asscalar()
  end
end

local function filled_block(w, hybrid)
  local net = w.block()
  net:initialize()
  for name, p in net:collect_params():items() do
    if not name:find "running" then
      p:set_data(values.parameter(nd.zeros(p.shape), layers.plain_name(name)))
    end
  end
  if hybrid then net:hybridize() end
  return net
end

-- Returns a step of a loop with gluon, and its loss.
local function gluon_step(w, hybrid)
  local net = filled_block(w, hybrid)
  local trainer = gluon.Trainer(net:collect_params(), "sgd",
    {learning_rate = w.lr, momentum = MOMENTUM})
  local loss, label = gluon.loss.SoftmaxCrossEntropyLoss(), w.label:reshape{-1}
  local x, y = w.data[1], w.data[2]
  local l
  return function()
    l = autograd.record(function() return loss(net(x, y), label) end)
    l:backward()
    trainer:step(w.rows)
  end, function() return l:mean():asscalar() end
end

local KINDS = {"", " gluon", " hybrid"}

local function make_step(kind, w)
  if kind == "" then return module_step(w) end
  return gluon_step(w, kind == " hybrid")
end

local function quartile(list)
  local t = {unpack(list)}
  table.sort(t)
  return t[math.ceil(#t / 4)]
end

local function losses(step, loss)
  local out = {}
  for i = 1, 3 do
    step()
    out[i] = loss()
  end
  return out
end

-- Returns the commands that run the loops of a network: Module, gluon, hybridized.
local function list_loops(ours, name)
  local list = {}
  for k, kind in ipairs{"module", "gluon", "hybrid"} do
    list[k] = ours(("%s:%s:%s"):format(name == "lengths" and "lengths_loop" or "loop", name, kind))
  end
  return list
end

--- Measures the three loops of a network in turn. Records the losses of their first three steps as
-- `check`.
-- @tparam function ours returns the command that runs a part in another process
function imperative.layers(ours, name)
  local seconds, first = measure.served(list_loops(ours, name))
  for k, kind in ipairs(KINDS) do
    measure.record("W15 step " .. name .. kind, "", "ms", {quartile(seconds[k]) * 1e3},
      first[k].check)
  end
  for _, ending in ipairs{"", " compiled"} do
    measure.rate("W15 " .. name .. ending, "", UNIT[name], first[2].rows, seconds[2],
      first[2].check)
  end
end

--- Runs a loop for `layers`, which starts each turn.
function imperative.loop(name, kind)
  local w = network(name)
  local step, loss = make_step(kind == "module" and "" or " " .. kind, w)
  measure.serve(step, ty.waitall, SAMPLE, {check = losses(step, loss), rows = w.rows})
end

local function live_mib() return ty.live().bytes / 2 ^ 20 end

--- Records the MiB that the process uses from the third step on, above its use before the network;
-- and what the engine has allocated after a step ("arrays"). For small networks the first figure is
-- mostly memory that the allocators and Lua's collector have not released.
function imperative.layers_memory(name, kind)
  kind = kind and " " .. kind or ""
  local warm = network "mlp"
  local step = make_step(kind, warm)
  step()
  step = nil                                              -- luacheck: ignore
  native.C.ty_lazy_trim()
  collectgarbage()
  collectgarbage()
  ty.waitall()
  local base, w, live, most = measure.resident(), network(name), live_mib(), 0
  step = make_step(kind, w)
  for i = 1, 10 do
    if i == 3 then measure.forget_peak() end
    step()
    ty.waitall()
    if i >= 3 then most = math.max(most, live_mib() - live) end
  end
  measure.record("W15 memory " .. name .. kind, "", "MiB", {measure.peak() - base})
  measure.record("W15 arrays " .. name .. kind, "", "MiB", {most})
end

-- Small operators ---------------------------------------------------------------------------------

local OPERATORS = 1000

local function record_operators(figure, x, round, per_round)
  x:attach_grad()
  local function step()
    local y = autograd.record(function()
      local y = x
      for _ = 1, OPERATORS / per_round do y = round(y) end
      return y
    end)
    y:backward()
  end
  for _ = 1, 2 do step() end
  local list = measure.in_turn({step}, ty.waitall, SAMPLE)[1]
  for i, s in ipairs(list) do list[i] = s / OPERATORS * 1e6 end
  measure.record(figure, "", "us/operator", {quartile(list)},
    {x.grad:astype("float64"):sum():asscalar()})
end

--- Measures 1,000 operators, each on the result of the previous one, recorded, forward and
-- backward: all element-wise, and with every fourth one a product.
function imperative.operators()
  local x = images{16}
  record_operators("W15 operators", x, function(y) return nd.tanh(y * 0.9 + x) - x end, 4)
  local m = images{4, 4}
  record_operators("W15 operators products", m, function(y)
    return nd.tanh(nd.dot(y * 0.3, m) + m)
  end, 4)
end

--- Measures one call that is not recorded, on arrays of 16 elements (8 x 8 for the product),
-- including the collection of its results.
function imperative.calls()
  local x, y, m = images{16}, images{16}, images{8, 8}
  local z = images{16}
  local CALLS = {{"add", function() return x + y end}, {"relu", function() return nd.relu(x) end},
    {"product", function() return nd.dot(m, m) end}, {"in place", function() z:add_(x) end},
    {"view", function() return x:reshape{4, 4} end}}
  for _, c in ipairs(CALLS) do
    local f = c[2]
    local list = measure.in_turn({function()
      for _ = 1, 1000 do f() end
    end}, ty.waitall, SAMPLE)[1]
    for i, s in ipairs(list) do list[i] = s * 1e3 end
    measure.record("W15 call " .. c[1], "", "us", {quartile(list)})
  end
end

-- Structures that change --------------------------------------------------------------------------

local BLOCKS, FIRST = 8, 50

--- Measures 1 to 8 of 8 blocks, chosen at random: the number of programs made after each depth was
-- seen; and the first run of structures of 50 operators.
function imperative.depths()
  local blocks, random = {}, ty.nd.random
  local all = ty.gluon.nn.HybridSequential()
  for i = 1, BLOCKS do
    blocks[i] = ty.gluon.nn.Dense{64, in_units = 64, activation = "relu"}
    all:add(blocks[i])
  end
  all:initialize()
  local trainer = gluon.Trainer(all:collect_params(), "sgd", {learning_rate = 0.01})
  local x = random.normal{shape = {32, 64}}
  local function step(depth)
    local l = autograd.record(function()
      local y = x
      for i = 1, depth do y = blocks[i](y) end
      return nd.mean(y * y)
    end)
    l:backward()
    trainer:step(1, {ignore_stale_grad = true})
  end
  for _ = 1, 3 do
    for depth = 1, BLOCKS do step(depth) end
  end
  ty.waitall()
  local before = autograd.stats().misses
  math.randomseed(7)
  for _ = 1, 300 do step(math.random(BLOCKS)) end
  ty.waitall()
  measure.record("W15 depths programs", "", "programs", {autograd.stats().misses - before})
  imperative.first_sight()
end

local STEPS = {function(y) return nd.tanh(y) end, function(y) return nd.relu(y) end,
  function(y, x) return y * x end, function(y, x) return y + x end,
  function(y, x) return nd.dot(y, x) end, function(y) return nd.softmax(y) end}

--- Measures the milliseconds of the first recorded run, forward and backward, of 50 operators in a
-- new order.
function imperative.first_sight()
  local x, list = ty.nd.random.normal{shape = {16, 16}}, {}
  x:attach_grad()
  for i = 1, quick and 20 or 100 do
    local from = measure.now()
    local y = autograd.record(function()
      local y = x
      for _ = 1, FIRST do y = STEPS[math.random(#STEPS)](y, x) end
      return y
    end)
    y:backward()
    ty.waitall()
    list[i] = (measure.now() - from) * 1e3
  end
  local most = math.max(unpack(list))
  measure.record("W15 first sight", "", "ms", {quartile(list)}, nil, {high = most})
end

-- Lengths that change -----------------------------------------------------------------------------

local LENGTHS, WIDTH = 64, 4

-- Calls f with lengths of 1 to 64 steps in a pseudo-random order: 27 is coprime to 64.
local function each_length(f)
  for i = 1, LENGTHS do f(i * 27 % LENGTHS + 1) end
end

local function bucketing_step(data)
  local function describe(T) return {{"data", {T, WIDTH}}}, {{"label", {T, WIDTH}}} end
  local m = ty.mod.BucketingModule{sym_gen = function(T)
    return nets.language("fused", LM.layers, LM.units, T, WIDTH), {"data"}, {"label"}
  end, default_bucket_key = LENGTHS}
  local x, y = describe(LENGTHS)
  m:bind{data_shapes = x, label_shapes = y}
  m:init_params{initializer = Filled()}
  m:init_optimizer{optimizer = "sgd", optimizer_params = {learning_rate = 0.5,
    momentum = MOMENTUM, rescale_grad = 1 / WIDTH / LENGTHS}}
  return function(T)
    local inputs, targets = describe(T)
    m:forward(ty.io.DataBatch{data = {data[T][1]}, label = {data[T][2]}, bucket_key = T,
      provide_data = inputs, provide_label = targets}, true)
    m:backward()
    m:update()
  end
end

local function lengths_step(data, hybrid)
  local net = filled_block({block = function()
    return layers.language("fused", LM.layers, LM.units)
  end}, hybrid)
  local trainer = gluon.Trainer(net:collect_params(), "sgd",
    {learning_rate = 0.5, momentum = MOMENTUM})
  local loss = gluon.loss.SoftmaxCrossEntropyLoss()
  return function(T)
    local l = autograd.record(function()
      return loss(net(data[T][1]), data[T][2]:reshape{-1})
    end)
    l:backward()
    trainer:step(WIDTH * LENGTHS)
  end
end

local function make_lengths(kind)
  local data = {}
  for T = 1, LENGTHS do data[T] = {tokens(T, WIDTH, nets.VOCABULARY)} end
  return kind == "" and bucketing_step(data) or lengths_step(data, kind == " hybrid")
end

--- Measures passes over all lengths, from the fifth on, of the three loops in turn. Records the
-- number of programs that passes 2 to 4 of gluon's loops make: a program may be made again without
-- results that a collection has freed.
-- @tparam function ours as for `layers`
function imperative.lengths(ours)
  local seconds, first = measure.served(list_loops(ours, "lengths"))
  measure.record("W15 lengths programs", "", "programs", {first[2].programs + first[3].programs})
  for k, kind in ipairs(KINDS) do
    measure.record("W15 step lengths" .. kind, "", "ms", {quartile(seconds[k]) / LENGTHS * 1e3})
  end
end

--- Runs passes for `lengths`, which starts each turn.
function imperative.lengths_loop(_, kind)
  local step = make_lengths(kind == "module" and "" or " " .. kind)
  each_length(step)
  local before = autograd.stats().misses
  for _ = 2, 4 do each_length(step) end
  measure.serve(function() each_length(step) end, ty.waitall, SAMPLE,
    {programs = autograd.stats().misses - before})
end

--- Records the memory from the third pass on; "longest": of steps with the longest length only.
function imperative.lengths_memory(kind, longest)
  kind = kind and kind ~= "module" and " " .. kind or ""
  ty.waitall()
  local base, live = measure.resident(), live_mib()
  local step = make_lengths(kind)
  for i = 1, 4 do
    if i == 3 then measure.forget_peak() end
    if longest then
      for _ = 1, 3 do step(LENGTHS) end
    else
      each_length(step)
    end
    ty.waitall()
  end
  local what = longest and "longest" or "lengths"
  measure.record(("W15 memory %s%s"):format(what, kind), "", "MiB", {measure.peak() - base})
  measure.record(("W15 arrays %s%s"):format(what, kind), "", "MiB", {live_mib() - live})
end

imperative.make_step, imperative.network = make_step, network

--- Measures everything; `again(word)` runs a part in a separate process.
-- @string[opt] only a network, or "rest": all except the networks
function imperative.W15(again, only)
  for _, name in ipairs(NAMES) do
    if not only or only == name then
      again("layers:" .. name)
      again("layers_memory:" .. name)
      again("layers_memory:" .. name .. ":gluon")
      again("layers_memory:" .. name .. ":hybrid")
    end
  end
  if only and only ~= "rest" then return end
  for _, word in ipairs{"operators", "calls", "depths", "lengths", "lengths_memory",
    "lengths_memory:gluon", "lengths_memory:hybrid", "lengths_memory:module:longest",
    "lengths_memory:gluon:longest"} do
    again(word)
  end
end

return imperative
