-- Cases of training with several ranks, compared with one process with the same number of contexts:
--
--     tycho spec/support/ranks.lua CASE one N        mpirun -n N tycho spec/support/ranks.lua CASE
--
-- Rank 0 prints a line per parameter: name, a number computed from its bits, its mean. Both
-- commands must print the same. `save PATH` after the case writes the parameters to a file.

local ty = require "tycho"
local sym = ty.sym

local ranks = {}

local ROWS = 4                                           -- rows of a rank's batch
local STEPS = 10

-- Networks ----------------------------------------------------------------------------------------

local function classes(x, n)
  x = sym.FullyConnected{ sym.Flatten{ x }, num_hidden = n, name = "last" }
  return sym.SoftmaxOutput{ x, name = "softmax" }
end

local function lenet()
  local x = sym.Variable("data")
  for i, n in ipairs{ 6, 12 } do
    x = sym.Convolution{ x, kernel = { 3, 3 }, num_filter = n, name = "conv" .. i }
    x = sym.Activation{ x, act_type = "tanh" }
    x = sym.Pooling{ x, kernel = { 2, 2 }, stride = { 2, 2 }, pool_type = "max" }
  end
  x = sym.FullyConnected{ sym.Flatten{ x }, num_hidden = 20, name = "fc" }
  return classes(sym.Activation{ x, act_type = "tanh" }, 10)
end

local function unit(x, n, name)
  local y = x
  for i = 1, 2 do
    y = sym.Convolution{ y, kernel = { 3, 3 }, pad = { 1, 1 }, num_filter = n, no_bias = true,
      name = name .. "_conv" .. i }
    y = sym.BatchNorm{ y, fix_gamma = false, name = name .. "_bn" .. i }
    y = sym.Activation{ y, act_type = "relu" }
  end
  return x + y
end

local function resnet()
  local x = sym.Convolution{ sym.Variable("data"), kernel = { 3, 3 }, pad = { 1, 1 },
    num_filter = 8, no_bias = true, name = "conv0" }
  for i = 1, 3 do
    x = unit(x, 8, "unit" .. i)
  end
  return classes(sym.Pooling{ x, kernel = { 1, 1 }, global_pool = true, pool_type = "avg" }, 10)
end

local function lstm(length)
  local cell = ty.rnn.LSTMCell{ num_hidden = 12, prefix = "lstm_" }
  local x = sym.Embedding{ sym.Variable("data"), input_dim = 20, output_dim = 8, name = "embed" }
  local outputs = cell:unroll(length, x, { merge_outputs = true })
  x = sym.Reshape{ outputs, shape = { -1, 12 } }
  x = sym.FullyConnected{ x, num_hidden = 20, name = "last" }
  local label = sym.Reshape{ sym.Variable("softmax_label"), shape = { -1 } }
  return sym.SoftmaxOutput{ x, label, name = "softmax" }, { "data" }, { "softmax_label" }
end

-- What a rank sees --------------------------------------------------------------------------------

-- Returns the rows of a batch: those of a rank, on its context, or all of them.
local function take_rows(x, kv)
  return kv and x:slice_axis{ 0, kv.rank * ROWS, (kv.rank + 1) * ROWS }:as_in_context(kv._home) or x
end

function ranks.pictures(step, ranks_in_all, kv)
  ty.random.seed(100 + step)
  local n = ROWS * ranks_in_all
  local data = ty.nd.random.uniform{ 0, 1, shape = { n, 3, 12, 12 } }
  local label = ty.nd.floor(ty.nd.random.uniform{ 0, 10, shape = { n } })
  return ty.io.DataBatch{ data = { take_rows(data, kv) },
    label = { take_rows(label, kv) } }
end

local function words(step, ranks_in_all, kv)
  ty.random.seed(100 + step)
  local n, length = ROWS * ranks_in_all, 3 + step % 3
  local data = ty.nd.floor(ty.nd.random.uniform{ 0, 20, shape = { n, length } })
  local own = take_rows(data, kv)
  return ty.io.DataBatch{ data = { own }, label = { own }, bucket_key = length,
    provide_data = { { "data", own.shape } }, provide_label = { { "softmax_label", own.shape } } }
end

-- Training ----------------------------------------------------------------------------------------

local function make_module(case, contexts)
  if case == "lstm" then
    return ty.mod.BucketingModule{ sym_gen = lstm, default_bucket_key = 5, context = contexts }
  end
  return ty.mod.Module(case == "resnet" and resnet() or lenet(), { context = contexts })
end

--- Returns a module with parameters and an optimizer.
-- @bool[opt] in_backward whether its updates are inside backward
function ranks.start(case, contexts, kv, rows, in_backward)
  local m = make_module(case, contexts)
  if case == "lstm" then
    m:bind{ data_shapes = { { "data", { rows, 5 } } },
      label_shapes = { { "softmax_label", { rows, 5 } } } }
  else
    m:bind{ data_shapes = { { "data", { rows, 3, 12, 12 } } },
      label_shapes = { { "softmax_label", { rows } } } }
  end
  ty.random.seed(kv and 5 + kv.rank or 5)                -- rank 0's values are used by all
  m:init_params{ initializer = ty.init.Xavier() }
  m:init_optimizer{ kvstore = kv or "local", optimizer = "sgd",
    optimizer_params = { learning_rate = 0.1, momentum = 0.9, wd = 1e-3 },
    in_backward = in_backward }
  return m
end

-- Returns a number, as text, that depends on the bits of an array.
local function compute_bits(x)
  local h = 0
  for _, v in ipairs(x:reshape{ -1 }:totable()) do
    local fraction, exponent = math.frexp(v)
    h = (h * 31 + fraction * 2 ^ 24 + exponent) % 2 ^ 42
  end
  return ("%.0f"):format(h)
end

--- Returns the parameters after some steps, as lines.
-- @param kv this rank's store; nil: one process with `n` contexts
-- @bool[opt] in_backward whether updates are inside backward
function ranks.train(case, n, kv, in_backward)
  local contexts = { kv and kv._home }
  for i = 1, kv and 0 or n do
    contexts[i] = ty.cpu(i - 1)
  end
  local m = ranks.start(case, contexts, kv, kv and ROWS or ROWS * n, in_backward)
  for step = 1, STEPS do
    local batch = (case == "lstm" and words or ranks.pictures)(step, n, kv)
    m:forward_backward(batch)
    m:update()
  end
  return m
end

--- Runs `fit` over shuffled rows for two epochs of a little more than one batch per rank; returns
-- the module.
-- @tparam[opt] table options further ones of `fit`
-- @int[opt] rows total number of rows
-- @bool[opt] spoilt whether a row contains NaN
function ranks.fit(n, kv, options, rows, spoilt)
  ty.random.seed(11)
  rows = rows or 7 * ROWS * n + 3
  local data = ty.nd.random.uniform{ 0, 1, shape = { rows, 3, 12, 12 } }
  if spoilt then
    data[5][":"] = math.huge
  end
  local label = ty.nd.floor(ty.nd.random.uniform{ 0, 10, shape = { rows } })
  local contexts = { kv and kv._home }
  for i = 1, kv and 0 or n do
    contexts[i] = ty.cpu(i - 1)
  end
  ty.random.seed(12)
  local m, seen = ty.mod.Module(lenet(), { context = contexts }), {}
  local fit = { train_data = ty.io.NDArrayIter{ data, label, batch_size = kv and ROWS or ROWS * n,
      shuffle = true, last_batch_handle = "discard" },
    kvstore = kv or "local", num_epoch = 2, optimizer_params = { learning_rate = 0.1 },
    eval_metric = "ce",
    epoch_end_callback = function(epoch)
      seen[#seen + 1] = epoch
    end }
  for name, value in pairs(options or {}) do
    fit[name] = value
  end
  m:fit(fit)
  return m, #seen
end

-- Batches of given numbers of rows.
local Uneven = ty.io.DataIter:extend("Uneven")

function Uneven:init(sizes, parts)
  Uneven.super.init(self, { batch_size = ROWS })
  self._sizes, self._at, self.num_parts = sizes, 0, parts
  self.provide_data = { ty.io.DataDesc("data", { ROWS, 3, 12, 12 }) }
  self.provide_label = { ty.io.DataDesc("softmax_label", { ROWS }) }
end

function Uneven:iter_next()
  self._at = self._at + 1
  return self._at <= #self._sizes
end

function Uneven:next()
  if not self:iter_next() then
    return nil
  end
  local n = self._sizes[self._at]
  local label = ty.nd.arange(n)
  return ty.io.DataBatch{ data = { ty.nd.full({ n, 3, 12, 12 }, self._at / 10) },
    label = { label }, pad = 0, provide_data = { ty.io.DataDesc("data", { n, 3, 12, 12 }) },
    provide_label = { ty.io.DataDesc("softmax_label", { n }) } }
end

function Uneven:reset()
  self._at = 0
end

--- Runs `fit` with last batches that are short, or missing, on some ranks; returns the parameters
-- as lines.
-- @bool parts whether each rank has its own iterator, rank 0's with one batch more
function ranks.uneven(kv, parts)
  local own = parts and (kv.rank == 0 and { 4, 4, 4, 1 } or { 4, 4, 3 }) or { 4, 4, 4, 4, 4, 3, 2 }
  local m = ty.mod.Module(lenet())
  m:fit{ train_data = Uneven(own, parts and kv.num_workers or nil), kvstore = kv, num_epoch = 3,
    optimizer_params = { learning_rate = 0.1 }, eval_metric = "acc" }
  return ranks.lines(m)
end

--- Raises an error unless the parameters in two files differ by less than 1e-5 of their norm;
-- statistics, which each rank has separately, may differ more.
function ranks.check_near(path, other)
  local a, b = ty.nd.load(path), ty.nd.load(other)
  for name, x in pairs(a) do
    local off = (x - b[name]):norm():asscalar() / x:norm():asscalar()
    assert(off < 1e-5 or name:sub(1, 4) == "aux:", ("%s is off by %g"):format(name, off))
  end
end


function ranks.lines(m)
  local names, lines, args = {}, {}, m:get_params()
  for name in pairs(args) do
    names[#names + 1] = name
  end
  table.sort(names)
  for i, name in ipairs(names) do
    lines[i] = ("%s %s %.6f"):format(name, compute_bits(args[name]), args[name]:mean():asscalar())
  end
  return table.concat(lines, "\n")
end

local TYPES = { "float32", "float64", "float16", "bfloat16", "uint8", "int8", "int32", "int64" }

local function check_message(kv, i, sum)
  local n = sum.size
  local want = (ty.nd.arange(n) % 7) * kv.num_workers + kv.num_workers * (kv.num_workers - 1) / 2
  local wrong = (sum:astype("float32"):ne(want)):sum():asscalar()
  assert(wrong == 0, ("message %d, %d of %s: %d wrong"):format(i, n, sum.dtype, wrong))
end

-- Sends messages of all types, sizes and priorities, ten at once; rank r sends (r + i) mod 7 at
-- position i.
local function messages(kv, count)
  local sums = {}
  for i = 1, count do
    math.randomseed(i)
    local dtype = TYPES[i % #TYPES + 1]
    local n = math.floor(2 ^ (math.random() * (i % 50 == 0 and 24 or 16)))
    sums[i] = (ty.nd.arange(n) % 7 + kv.rank):astype(dtype)
    kv._group:sum({ sums[i] }, { priority = math.random(-3, 3) })
    for k = i % 10 == 0 and i - 9 or count + 1, i do
      check_message(kv, k, sums[k])
      sums[k] = nil
    end
  end
  return ("%d messages"):format(count)
end

-- Delays sums: the other rank is late at each batch.
local function late(kv)
  return function(param)
    if kv and param.nbatch % kv.num_workers == kv.rank then
      os.execute("sleep 0.01")
    end
  end
end

--- Runs `fit` with a loss scale and a row whose gradients are not finite; returns parameters and
-- scale as text.
function ranks.scaled(n, kv)
  local m = ranks.fit(n, kv, { loss_scale = "dynamic", batch_end_callback = late(kv) }, nil, true)
  local scale = m._loss_scale
  return ("%s\nskipped %d, scale %g"):format(ranks.lines(m), scale.skipped, scale.scale)
end

--- Runs `fit` with a monitor of weights; returns the parameters and the monitored values as text.
function ranks.watched(n, kv)
  local norms, seen, texts = {}, {}, {}
  local monitor = ty.mon.Monitor{ 2, pattern = "(fc|last)_weight", stat_func = function(x)
    norms[#norms + 1] = x:norm()
    return norms[#norms]
  end }
  local m = ranks.fit(n, kv, { monitor = monitor, batch_end_callback = late(kv) })
  for _, norm in ipairs(norms) do
    seen[("%.8g"):format(norm:asscalar())] = true        -- contexts have equal weights
  end
  for text in pairs(seen) do
    texts[#texts + 1] = text
  end
  table.sort(texts)
  return ("%s\nseen %s"):format(ranks.lines(m), table.concat(texts, " "))
end

local function finish(m, path)
  print(ranks.lines(m))
  if path then
    m:save_params(path)
  end
end

if arg and arg[0] and arg[0]:find("ranks.lua", 1, true) then
  local case, one, n = arg[1], arg[2] == "one", tonumber(arg[3])
  if case == "fit" then
    local kv = not one and ty.kv.create("dist_sync") or nil
    ty.log.sink = function(_, text)                      -- only on rank 0
      if text:find("Train", 1, true) then
        print(text)
      end
    end
    local m, epochs = ranks.fit(kv and kv.num_workers or n, kv)
    if not kv or kv.rank == 0 then
      print(ranks.lines(m))
    end
    assert(epochs == (kv and kv.rank > 0 and 0 or 2))
  elseif case == "scaled" or case == "watched" then
    local kv = not one and ty.kv.create("dist_sync") or nil
    ty.log.sink = function() end
    local text = ranks[case](kv and kv.num_workers or n, kv)
    if kv then
      kv:check_same("results", text)
    end
    if not kv or kv.rank == 0 then
      print(text)
    end
  elseif case == "resumed" then                          -- PREFIX EPOCHS
    local kv = ty.kv.create("dist_sync")
    local m = ranks.fit(kv.num_workers, kv, { num_epoch = tonumber(arg[3]),
      checkpoint = { prefix = arg[2], resume = true } }, 28 * ROWS)
    if kv.rank == 0 then
      print("parameters\n" .. ranks.lines(m))
    end
  elseif one then
    finish(ranks.train(case, n), arg[4] == "save" and arg[5])
  else
    local kv = ty.kv.create("dist_sync")
    if case == "messages" or case == "uneven" then
      local text = case == "messages" and messages(kv, tonumber(arg[2]))
        or ranks.uneven(kv, arg[2] == "parts")
      kv:check_same("results", text)
      if kv.rank == 0 then
        print(text)
      end
    else
      local m = ranks.train(case, kv.num_workers, kv, arg[2] == "in_backward")
      kv:check_same("results", ranks.lines(m))
      if kv.rank == 0 then
        finish(m, arg[2] == "save" and arg[3])
      end
    end
  end
end

return ranks
