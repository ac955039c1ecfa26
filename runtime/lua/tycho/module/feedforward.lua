--- The oldest training interface: `ty.model.FeedForward`, built on modules.
--
--     local f = ty.model.FeedForward{ symbol = net, num_epoch = 4, learning_rate = 0.1 }
--     f:fit{ X = x, y = labels }
--     print(f:score(test), f:predict(x))
--
-- Arrays become iterators; for training they are shuffled, and rows that do not fill a batch move
-- to the start of the next epoch. Batch callbacks of training get nbatch counted from 1, unlike
-- those of modules.
--
-- @module tycho.module.feedforward

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local BucketingModule = require "tycho.module.bucketing"
local callback = require "tycho.module.callback"
local checkpoint = require "tycho.model.checkpoint"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local evaluation = require "tycho.module.evaluation"
local log = require "tycho.core.log"
local Module = require "tycho.module.module"
local nd = require "tycho.ndarray"
local progress = require "tycho.module.progress"
local slices = require "tycho.module.batch_slices"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local is_plain, value = values.is_plain, values.value

--- A network with its parameters. Fields: symbol, ctx, num_epoch, arg_params,
-- aux_params and the other options.
-- @type FeedForward
local FeedForward = Class:extend("FeedForward")

local NEW = args.form("model.FeedForward", {
  rest = "kwargs", { "symbol", "symbol|function" }, { "ctx", "context|list?" },
  { "num_epoch", "integer?" },
  { "epoch_size", "integer?" }, { "optimizer", "any", "sgd" }, { "initializer", "any?" },
  { "numpy_batch_size", "integer", 128 }, { "arg_params", "dict?" }, { "aux_params", "dict?" },
  { "allow_extra_params", "boolean", false }, { "begin_epoch", "integer", 0 },
})


--- @tparam table options symbol (or function of a bucket key), ctx, num_epoch, epoch_size (batches
--   of an epoch), optimizer = "sgd", initializer = Uniform(0.01), numpy_batch_size = 128,
--   arg_params, aux_params, allow_extra_params = false, begin_epoch = 0; further ones are options
--   of the optimizer
function FeedForward:init(...)
  for key, v in pairs(NEW(...)) do
    self[key] = v
  end
  class.keep(self.arg_params)
  class.keep(self.aux_params)
end


-- Data --------------------------------------------------------------------------------------------

local function is_data(x)
  return class.is_array(x) or is_plain(x)
end


local function row_count(x)
  return class.is_array(x) and x._shape[1] or #x
end


-- Returns an iterator over arrays, or the iterator if `x` is one.
local function iterator(self, x, y, for_training)
  if not is_data(x) then
    return x
  elseif y == nil and for_training then
    Error.raise{ code = "value", func = "FeedForward:fit", argument = "y",
      message = "'y' is missing beside an array" }
  end
  local n = row_count(x)
  return require("tycho.io.ndarray_iter"){ data = x, label = y or nd.zeros{ n },
    shuffle = for_training, batch_size = math.min(n, self.numpy_batch_size),
    last_batch_handle = for_training and "roll_over" or "pad" }
end


-- Returns the validation data as an iterator; a pair of arrays becomes one.
local function eval_iterator(self, data)
  if is_plain(data) and #data == 2 then
    return iterator(self, data[1], data[2], true)
  end
  return data
end


local function list_names(descs)
  return descriptions.names(descriptions.list(descs, "FeedForward", "provide_data"))
end


-- Makes a module for the symbol and the descriptions of an iterator.
-- @param label_names function of a symbol -> names
local function make_module(self, it, options, label_names)
  local data_names = list_names(it.provide_data)
  options.context, options.logger = options.context or self.ctx, options.logger
  if args.types.symbol.check(self.symbol) then
    options.symbol, options.data_names, options.label_names =
      self.symbol, data_names, label_names(self.symbol)
    return Module(options)
  end
  options.default_bucket_key = it.default_bucket_key
  options.sym_gen = function(key)
    local net = self.symbol(key)
    return net, data_names, label_names(net)
  end
  return BucketingModule(options)
end


-- Training ----------------------------------------------------------------------------------------

local FIT = args.form("FeedForward:fit", {
  { "X", "any" }, { "y", "any?" }, { "eval_data", "any?" }, { "eval_metric", "any", "acc" },
  { "epoch_end_callback", "callbacks?" }, { "batch_end_callback", "callbacks?" },
  { "kvstore", "any|null?" },
  { "logger", "any?" }, { "work_load_list", "list?" }, { "monitor", "any?" },
  { "eval_end_callback", "callbacks?" }, { "eval_batch_end_callback", "callbacks?" },
})


-- Makes a module that is bound and has parameters and an optimizer.
local function get_ready(self, a, train)
  local label_names = list_names(train.provide_label)
  local m = make_module(self, train, { logger = a.logger, work_load_list = a.work_load_list },
    function() return label_names end)
  m:bind{ data_shapes = train.provide_data, label_shapes = train.provide_label }
  if a.monitor then
    m:install_monitor(a.monitor)
  end
  m:init_params{ initializer = self.initializer, arg_params = self.arg_params,
    aux_params = self.aux_params, allow_missing = true }
  m:init_optimizer{ kvstore = a.kvstore, optimizer = self.optimizer,
    optimizer_params = self.kwargs }
  return m
end


local function run_batch(self, m, a, metric, batch, at)
  if a.monitor then
    a.monitor:tic()
  end
  m:forward_backward(batch)
  m:update()
  if a.monitor then
    a.monitor:toc_print()
  end
  evaluation.update(m, metric, batch)
  at.nbatch = at.nbatch + 1
  evaluation.report(a.batch_end_callback, self, a, at.epoch, at.nbatch, metric, batch)
  if at.progress then
    at.progress:batch(at.epoch, at.nbatch - 1, metric, batch)
  end
end


-- Runs batches until the iterator ends or, with an epoch size, that number of batches; the next
-- epoch then continues at the iterator's position.
local function run_epoch(self, m, a, metric, train, at)
  local size = self.epoch_size
  metric:reset()
  at.nbatch = 0
  repeat
    local batch = evaluation.next_batch(m, train)
    while batch ~= nil do
      run_batch(self, m, a, metric, batch, at)
      batch = (not size or at.nbatch < size) and evaluation.next_batch(m, train) or nil
    end
    if not size or at.nbatch < size then
      class.outside(train.reset, train)
    end
  until not size or at.nbatch >= size or at.nbatch == 0
end


-- Computes the metric over validation data and calls its callbacks.
local function evaluate(self, m, a, metric, data, epoch)
  metric:reset()
  class.outside(data.reset, data)
  local n, batch = 0, evaluation.next_batch(m, data)
  while batch do
    m:prepare(batch)
    m:forward(batch, false)
    evaluation.update(m, metric, batch)
    evaluation.report(a.eval_batch_end_callback, self, a, epoch, n, metric, batch)
    n, batch = n + 1, evaluation.next_batch(m, data)
  end
  evaluation.report(a.eval_end_callback, self, a, epoch, n, metric)
  class.outside(data.reset, data)
end


local function run_epochs(self, m, a, metric, eval, at)
  local logger = a.logger or log
  for epoch = self.begin_epoch, self.num_epoch - 1 do
    at.epoch = epoch
    local started = callback.clock()
    run_epoch(self, m, a, metric, a.train_data, at)
    local seconds = callback.clock() - started
    logger:info(("Epoch[%d] Time cost=%.3f"):format(epoch, seconds))
    if at.progress then
      at.progress:trained(epoch, at.nbatch, metric:get_name_value(), seconds)
    end
    self.arg_params, self.aux_params = m:get_params()
    evaluation.call_all(a.epoch_end_callback, epoch, m.symbol, self.arg_params, self.aux_params)
    if eval then
      evaluate(self, m, a, metric, eval, epoch)
    end
    if at.progress then
      at.progress:epoch()
    end
  end
end


--- Trains the network.
-- @tparam table options X (iterator or array), y, eval_data (iterator or `{X, y}`),
--   eval_metric = "acc", epoch_end_callback, batch_end_callback, kvstore = "local", logger,
--   work_load_list, monitor, eval_end_callback, eval_batch_end_callback
function FeedForward:fit(...)
  local a = FIT(...)
  local train, eval = iterator(self, a.X, a.y, true), eval_iterator(self, value(a.eval_data))
  local metric, at = evaluation.metric(a.eval_metric), {}
  if not self.num_epoch then
    Error.raise{ code = "value", func = "FeedForward:fit", argument = "num_epoch",
      message = "'num_epoch' is missing" }
  end
  a.train_data = train
  local m = get_ready(self, a, train)
  class.outside(train.reset, train)
  at.progress = progress.of(m, { train_data = train, begin_epoch = self.begin_epoch,
    num_epoch = self.num_epoch })
  local ok, e = pcall(run_epochs, self, m, a, metric, eval, at)
  if at.progress then
    at.progress:finish(not ok and e or nil)
  end
  if not ok then
    error(e, 0)
  end
end


-- Using -------------------------------------------------------------------------------------------

-- Returns the arguments that are labels: those that the iterator describes, and those whose names
-- end in "label".
local function list_labels(net, it)
  local labels, data, list = tables.positions(list_names(it.provide_label)),
    tables.positions(list_names(it.provide_data)), {}
  for _, name in ipairs(net:list_arguments()) do
    local is_label = labels[name] or name:find("label$")
    list[#list + 1] = is_label and not data[name] and name or nil
  end
  return list
end


-- Returns the descriptions of the labels whose shapes do not follow from the data; nil if there are
-- none. Prediction needs no other labels, so the iterator may lack those.
local function needed_labels(net, it)
  local shapes, list = {}, {}
  for _, d in ipairs(descriptions.list(it.provide_data, "FeedForward", "provide_data")) do
    shapes[d.name] = d.shape
  end
  local found, at = net:infer_shape_partial(shapes), tables.positions(net:list_arguments())
  for _, d in ipairs(descriptions.list(it.provide_label, "FeedForward", "provide_label") or {}) do
    local shape = found and found[at[d.name]]
    list[#list + 1] = shape and not tables.is_known(shape) and d or nil
  end
  return #list > 0 and list or nil
end


-- Makes a bound module for prediction on the first device.
local function predictor(self, it)
  local ctx = is_plain(self.ctx) and self.ctx[1] or self.ctx
  local m = make_module(self, it, { context = ctx }, function(net) return list_labels(net, it) end)
  local net = args.types.symbol.check(self.symbol) and self.symbol
    or self.symbol(it.default_bucket_key)
  m:bind{ data_shapes = it.provide_data, label_shapes = needed_labels(net, it),
    for_training = false }
  m:set_params(self.arg_params or {}, self.aux_params or {},
    { allow_extra = self.allow_extra_params })
  return m
end


local PREDICT = args.form("FeedForward:predict", {
  list = true, { "X", "any" }, { "num_batch", "integer?" }, { "return_data", "boolean", false },
  { "reset", "boolean", true },
})


-- Adds copies of a batch's arrays, without padding rows, to the lists of each output.
local function append(lists, what, arrays, pad)
  for k, x in ipairs(arrays or {}) do
    lists[k] = lists[k] or {}
    local own = evaluation.without_pad(x, pad, ("%s %d"):format(what, k), "FeedForward:predict")
    lists[k][#lists[k] + 1] = own:copy()
  end
end


-- Joins the lists of each output; returns one array or a list of arrays.
local function joined(lists)
  local result = {}
  for k, list in ipairs(lists) do
    result[k] = slices.join(list, 0)
  end
  return #result == 1 and result[1] or result
end


--- Returns the outputs for all rows of the data.
-- @param X iterator or array
-- @tparam[opt] table options num_batch, return_data = false, reset = true
-- @return NDArray, or a list with several outputs; with `return_data` also data and labels
function FeedForward:predict(...)
  local a = PREDICT(...)
  local it = iterator(self, a.X, nil, false)
  if a.reset then
    class.outside(it.reset, it)
  end
  local m, outputs, data, labels = predictor(self, it), {}, {}, {}
  for list, _, batch in m:iter_predict(it, { num_batch = a.num_batch, reset = false }) do
    append(outputs, "output", list, 0)
    append(data, "data", batch.data, batch.pad or 0)
    append(labels, "label", batch.label, batch.pad or 0)
  end
  if a.return_data then
    return joined(outputs), joined(data), joined(labels)
  end
  return joined(outputs)
end


local SCORE = args.form("FeedForward:score", {
  { "X", "any" }, { "eval_metric", "any", "acc" }, { "num_batch", "integer?" },
  { "batch_end_callback", "callbacks?" }, { "reset", "boolean", true }, { "y", "any?" },
})

--- Returns the metric's value over the data.
-- @param X iterator, or an array with `y`
-- @tparam[opt] table options eval_metric = "acc", num_batch, batch_end_callback, reset = true, y
-- @return number, or a list of them for several metrics
function FeedForward:score(...)
  local a = SCORE(...)
  local it, metric = iterator(self, a.X, a.y, false), evaluation.metric(a.eval_metric)
  if a.reset then
    class.outside(it.reset, it)
  end
  predictor(self, it):score(it, metric, { num_batch = a.num_batch, reset = false,
    batch_end_callback = a.batch_end_callback })
  return select(2, metric:get())
end


-- Files -------------------------------------------------------------------------------------------

local SAVE = args.form("FeedForward:save", {
  { "prefix", "path" }, { "epoch", "integer?" }, { "remove_amp_cast", "boolean", true },
})

--- Writes a checkpoint; the epoch is num_epoch by default.
function FeedForward:save(...)
  local a = SAVE(...)
  local epoch = a.epoch or self.num_epoch
  if not epoch then
    Error.raise{ code = "value", func = "FeedForward:save", argument = "epoch",
      message = "'epoch' is missing" }
  end
  checkpoint.save_checkpoint(a.prefix, epoch, self.symbol, self.arg_params,
    self.aux_params, { remove_amp_cast = a.remove_amp_cast })
end


local LOAD = args.form("FeedForward.load", {
  rest = "options", { "prefix", "path" }, { "epoch", "integer" }, "*",
  { "allow_missing", "boolean", false },
})


-- Returns the arguments whose names end in a word, "data" or "label", by which the reference tells
-- inputs from parameters.
local function called(net, what)
  local list = {}
  for _, name in ipairs(net:list_arguments()) do
    list[#list + 1] = name:find(what .. "$") and name or nil
  end
  return list
end


--- Makes a network from a checkpoint. Missing parameters, and those of another network, are E(name)
-- as in `Module.load`.
-- @string prefix
-- @int epoch
-- @tparam[opt] table options allow_missing = false (true: fit initialises what the file lacks), and
--   those of the constructor
function FeedForward.load(...)
  local a = LOAD(...)
  local options = a.options
  options.symbol, options.arg_params, options.aux_params =
    checkpoint.load_checkpoint(a.prefix, a.epoch)
  local net = options.symbol
  Module{ symbol = net, data_names = called(net, "data"), label_names = called(net, "label") }
    :_check_loaded(options.arg_params, options.aux_params, { allow_missing = a.allow_missing,
      allow_extra = options.allow_extra_params }, "FeedForward.load")
  options.begin_epoch = options.begin_epoch or a.epoch
  return FeedForward(options)
end


local CREATE = args.form("FeedForward.create", {
  rest = "options", { "symbol", "symbol|function" }, { "X", "any" }, { "y", "any?" },
  { "eval_data", "any?" }, { "eval_metric", "any", "acc" }, { "epoch_end_callback", "callbacks?" },
  { "batch_end_callback", "callbacks?" }, { "kvstore", "any|null?" }, { "logger", "any?" },
  { "work_load_list", "list?" }, { "eval_end_callback", "callbacks?" },
  { "eval_batch_end_callback", "callbacks?" },
})

--- Makes a network and trains it.
-- @tparam table options those of the constructor and of fit
function FeedForward.create(...)
  local a = CREATE(...)
  a.options.symbol = a.symbol
  local f = FeedForward(a.options)
  a.options, a.symbol = nil, nil
  f:fit(a)
  return f
end


return FeedForward
