--- Teaches a network to write sequences backwards: one LSTM reads, another one writes and attends
-- to the reader's outputs. There is a network for each bucket of lengths; all share parameters and
-- memory.
--
--   tycho scripts/seq2seq_reverse.lua
--   tycho scripts/seq2seq_reverse.lua --longest 24 --epochs 15
--   tycho scripts/seq2seq_reverse.lua --checkpoint run/r --resume --epochs 20
--
-- In training the writer sees the right previous symbols; in the test it sees its own outputs.
--
-- With --checkpoint the network of the test is saved too, for other programs: run/r-symbol.json for
-- sequences of the longest bucket, run/r-4-symbol.json and so on for the others, run/r-0001.params.
-- `Module.load(prefix, epoch, {data_names = {"source"}, label_names = {}})` loads it. Its input are
-- symbols, padded in front with 0, its output are symbols up to the first 1.

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"

local PAD, MARK, FIRST = 0, 1, 2  -- padding; begin and end; first symbol

local parser = common.parser("Teaches a network to write sequences backwards.")
common.count(parser, "--symbols", "different symbols", 20)
common.count(parser, "--longest",
  "symbols of the longest sequence; there is a bucket for every four", 12)
common.count(parser, "--hidden", "units of each LSTM", 64)
common.count(parser, "--embed", "size of a symbol's vector", 32)
common.count(parser, "--steps", "steps per epoch", 100)
common.training(parser, {epochs = 10, batch = 32, rate = 0.005})
local options = common.parse(parser, {epochs = 4, steps = 40})

ty.random.seed(options.seed)

local words = options.symbols + FIRST
local buckets = {}
for length = 4, options.longest, 4 do
  buckets[#buckets + 1] = length
end

-- Sequences ---------------------------------------------------------------------------------------

-- Returns one sequence of a bucket: the reader's input (padded in front), the writer's input, and
-- the writer's target.
local function sequence(length)
  local n = length - math.random(0, 3)
  local read, seen, wanted = {}, {MARK}, {}
  for t = 1, length do
    read[t] = t > length - n and math.random(FIRST, words - 1) or PAD
  end
  for t = 1, length + 1 do
    wanted[t] = t <= n and read[length + 1 - t] or t == n + 1 and MARK or PAD
    seen[t + 1] = t <= length and wanted[t] or nil
  end
  return read, seen, wanted
end

-- Iterates over batches of new sequences, bucket after bucket. The n-th batch of a seed is always
-- the same.
local Sequences = ty.io.DataIter:extend("Sequences")

function Sequences:init(steps, seed)
  Sequences.super.init(self, {batch_size = options.batch})
  self.steps, self.seed, self.drawn, self.default_bucket_key =
    steps, seed, 0, options.longest - options.longest % 4
  self.provide_data, self.provide_label = self.describe(self.default_bucket_key)
  self.at = 0
end

function Sequences.describe(length)
  return {ty.io.DataDesc("source", {options.batch, length}),
    ty.io.DataDesc("target", {options.batch, length + 1})},
    {ty.io.DataDesc("softmax_label", {options.batch, length + 1})}
end

function Sequences:reset()
  self.at = 0
end

function Sequences:state()
  return {at = self.at, drawn = self.drawn}
end

function Sequences:set_state(state)
  self.at, self.drawn = state.at, state.drawn
end

function Sequences:next()
  if self.at == self.steps then
    return nil
  end
  self.at, self.drawn = self.at + 1, self.drawn + 1
  math.randomseed(self.seed * 2 ^ 20 + self.drawn)
  local length = buckets[self.at % #buckets + 1]
  local read, seen, wanted = {}, {}, {}
  for row = 1, options.batch do
    read[row], seen[row], wanted[row] = sequence(length)
  end
  local data, label = self.describe(length)
  return ty.io.DataBatch{data = {ty.nd.array(read), ty.nd.array(seen)},
    label = {ty.nd.array(wanted)}, pad = 0,
    bucket_key = length, provide_data = data, provide_label = label}
end

-- Network -----------------------------------------------------------------------------------------

local encoder, decoder = ty.rnn.LSTMCell{options.hidden, prefix = "encoder_"},
  ty.rnn.LSTMCell{options.hidden, prefix = "decoder_"}
local shared = ty.rnn.RNNParams("")

local function embed(x)
  return ty.sym.Embedding{data = x, weight = shared:get("embed_weight"), input_dim = words,
    output_dim = options.embed}
end

local function linear(x, name, size)
  return ty.sym.FullyConnected{data = x, weight = shared:get(name .. "_weight"),
    bias = shared:get(name .. "_bias"), num_hidden = size, flatten = false}
end

-- Returns scores of the symbols from the writer's outputs (N, T, H), each of which attends to the
-- reader's outputs (N, L, H).
local function attend(outputs, memory)
  local fit = ty.sym.softmax{ty.sym.batch_dot{outputs, memory, transpose_b = true}, axis = -1}
  local context = ty.sym.batch_dot{fit, memory}
  local mixed = ty.sym.tanh{linear(ty.sym.Concat{outputs, context, dim = 2}, "mix", options.hidden)}
  return linear(mixed, "score", words)
end

local function reader(source, length)
  return encoder:unroll{length = length, inputs = embed(source), merge_outputs = true}
end

-- Returns the network for training, in which the writer sees the right symbols.
local function network(length)
  local memory, states = reader(ty.sym.Variable("source"), length)
  local outputs = decoder:unroll{length = length + 1, inputs = embed(ty.sym.Variable("target")),
    begin_state = states, merge_outputs = true}
  local label = ty.sym.reshape{ty.sym.Variable("softmax_label"), shape = {-1}}
  return ty.sym.SoftmaxOutput{data = ty.sym.reshape{attend(outputs, memory), shape = {-3, -2}},
    label = label, use_ignore = true, ignore_label = PAD, name = "softmax"},
    {"source", "target"}, {"softmax_label"}
end

-- Returns the network for the test, in which the writer sees its previous symbols; its outputs are
-- the chosen symbols.
local function writer(length)
  local source = ty.sym.Variable("source")
  local memory, states = reader(source, length)
  local word = ty.sym.ones_like(ty.sym.slice_axis{source, axis = 1, begin = 0, end_ = 1})
  word = ty.sym.reshape{word, shape = {-1}} * MARK
  local chosen, output = {dim = 1}
  decoder:reset()
  for t = 1, length + 1 do
    output, states = decoder(embed(word), states)
    local scores = attend(ty.sym.expand_dims{output, axis = 1}, memory)
    chosen[t] = ty.sym.argmax{scores, axis = 2}
    word = ty.sym.reshape{chosen[t], shape = {-1}}
  end
  return ty.sym.Concat(chosen), {"source"}, nil
end

-- Training ----------------------------------------------------------------------------------------

local train = Sequences(options.steps, options.seed)
local module = ty.mod.BucketingModule{network, default_bucket_key = train.default_bucket_key,
  context = common.devices(options)}
local tester = ty.mod.BucketingModule{writer, default_bucket_key = train.default_bucket_key,
  context = common.devices(options)[1]}
tester:bind{data_shapes = {train.provide_data[1]}, for_training = false}

-- Returns the network's output for each row of a batch.
local function written_for(batch)
  tester:forward(ty.io.DataBatch{data = {batch.data[1]}, bucket_key = batch.bucket_key,
    provide_data = {batch.provide_data[1]}}, false)
  return tester:get_outputs()[1]:totable()
end

-- Returns whether a row was written correctly up to its end.
local function is_right(wanted, written)
  for t, word in ipairs(wanted) do
    if word ~= PAD and word ~= written[t] then
      return false
    end
  end
  return true
end

-- Returns the share of sequences, none of which training draws, that are written without error, and
-- their number.
local function test(steps)
  local right, n = 0, 0
  tester:set_params(module:get_params())
  for batch in Sequences(steps, options.seed + 1000) do
    local written, wanted = written_for(batch), batch.label[1]:totable()
    for row = 1, options.batch do
      right, n = right + (is_right(wanted[row], written[row]) and 1 or 0), n + 1
    end
  end
  return right / n, n
end

-- Saves the network for the test, which reads its own symbols, with the parameters of the last
-- test.
local function save(prefix, epochs)
  tester:save_checkpoint(prefix, epochs)
  tester:switch_bucket(train.default_bucket_key)
  tester.symbol:save(prefix .. "-symbol.json")
end

local metric = ty.metric.Perplexity{PAD}
local log, started = common.log(options), ty.callback.clock()

module:fit{
  train_data = train, eval_metric = metric, num_epoch = options.epochs,
  initializer = ty.init.Xavier(),
  optimizer = "adam", optimizer_params = {learning_rate = options.rate, clip_gradient = 5},
  checkpoint = options.checkpoint and {prefix = options.checkpoint, resume = options.resume} or nil,
  epoch_end_callback = function(epoch)
    local seconds = ty.callback.clock() - started
    local share = test(6)
    ty.log:info(("Epoch[%d] Validation-share of the sequences right=%.3f"):format(epoch, share))
    log:epoch{epoch = epoch, train = select(2, metric:get_global()),
      valid = share, seconds = seconds}
    if options.checkpoint then
      save(options.checkpoint, epoch + 1)
    end
    started = ty.callback.clock()
  end,
}
log:close()

-- Returns a few inputs and outputs as text.
local function show(count)
  local batch = Sequences(1, options.seed + 2000):next()
  local read, written = batch.data[1]:totable(), written_for(batch)
  local function symbols(list)
    local texts = {}
    for _, word in ipairs(list) do
      if word == MARK then
        break
      end
      texts[#texts + 1] = word ~= PAD and ("%d"):format(word - FIRST) or nil
    end
    return table.concat(texts, " ")
  end
  for row = 1, math.min(count, options.batch) do
    print(("  %s   written as   %s"):format(symbols(read[row]), symbols(written[row])))
  end
end

local share, n = test(32)
show(3)
print(("accuracy %.4f: that share of %d new sequences is written backwards without a fault")
  :format(share, n))
