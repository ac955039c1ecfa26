--- Trains a word model on sentences of different length, a network for each bucket of lengths, all
-- in the memory of the largest; then it generates sentences.
--
--   tycho scripts/lstm_bucketing.lua                  learns from the library's documentation
--   tycho scripts/lstm_bucketing.lua --data ptb       a folder with ptb.train.txt (or
--                                                     ptb.valid.txt) and ptb.test.txt
--   tycho scripts/lstm_bucketing.lua --data text.txt  any file with a sentence per line; every
--                                                     tenth line tests
--   tycho scripts/lstm_bucketing.lua --fused          all layers in one operator instead of single
--                                                     cells
--   tycho scripts/lstm_bucketing.lua --checkpoint run/lm --resume

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local language_model = require "language_model"
local text = require "text"

local PAD = 0                                            -- fills sentences up; never counts

local parser = common.parser("Trains an LSTM on sentences in buckets of lengths.")
parser:option("--data", "folder or file with sentences; default: the library's documentation")
parser:flag("--fused", "use one operator for all layers and steps")
common.counts(parser, "--buckets", "lengths of buckets, increasing"):default("10,20,30,40,50,60")
parser:option("--optimizer", "name of the optimizer"):default("adam")
common.number(parser, "--wd", "weight decay", 0, 0)
parser:flag("--count-pad", "count padding in the loss, as older recipes do")
common.count(parser, "--sentences", "sentences to generate at the end", 5, 0)
language_model.options(parser, {hidden = 200, embed = 200})
common.training(parser, {epochs = 8, batch = 32, rate = 0.003})
local options = common.parse(parser, {epochs = 1, hidden = 64, embed = 64, layers = 1})

ty.random.seed(options.seed)

-- Sentences ---------------------------------------------------------------------------------------

local function iterator(coded, shuffle)
  return ty.rnn.BucketSentenceIter{coded, options.batch, buckets = options.buckets,
    invalid_label = PAD, seed = options.seed, shuffle = shuffle,
    layout = options.fused and "TN" or "NT"}
end

local train_words, test_words = text.sentences(options.data)
local coded, vocabulary =
  ty.rnn.encode_sentences(train_words, {invalid_label = PAD, start_label = 1})
vocabulary["<unk>"] = vocabulary["<unk>"] or #text.list(vocabulary)
local test_coded = ty.rnn.encode_sentences(test_words, {vocab = vocabulary})
local train, test = iterator(coded, true), iterator(test_coded, false)
local word_of = text.list(vocabulary)

-- Training ----------------------------------------------------------------------------------------

local shape = {words = #word_of, embed = options.embed, layout = options.fused and "TNC" or "NTC"}
if not options.count_pad then
  shape.ignore = PAD
end
local cells = language_model.cells(options)

local function network(length)
  shape.length = length
  return language_model.network(cells, shape), {"data"}, {"softmax_label"}
end

local module = ty.mod.BucketingModule{network, default_bucket_key = train.default_bucket_key,
  context = common.devices(options)}
local metric = ty.metric.Perplexity{PAD}
local log, best, last = common.log(options), math.huge, {}
local started

-- Takes the figures of the training part, before the validation follows.
local function epoch_end()
  last.seconds = ty.callback.clock() - started
  last.train, last.words = select(2, metric:get_global()), metric.global_num_inst
end

local function eval_end(param)
  local _, valid = param.eval_metric:get()
  best = math.min(best, valid)
  ty.log:info(("Epoch[%d] Speed: %.0f words/s"):format(param.epoch, last.words / last.seconds))
  log:epoch{epoch = param.epoch, train = last.train, valid = valid, seconds = last.seconds,
            words_per_second = last.words / last.seconds}
  started = ty.callback.clock()
end

print(("%d sentences, %d words of %d kinds; %d sentences to test"):format(#coded,
  text.words(train_words), #word_of - 1, #test_coded))
started = ty.callback.clock()
module:fit{
  train_data = train, eval_data = test, eval_metric = metric,
  validation_metric = ty.metric.Perplexity{PAD}, num_epoch = options.epochs,
  initializer = ty.init.Xavier{factor_type = "in", magnitude = 2.34},
  optimizer = options.optimizer, optimizer_params = {learning_rate = options.rate, wd = options.wd},
  batch_end_callback = ty.callback.Speedometer(options.batch, 50),
  epoch_end_callback = options.checkpoint and {ty.rnn.do_rnn_checkpoint(cells, options.checkpoint),
    epoch_end} or epoch_end, eval_end_callback = eval_end,
  checkpoint = options.checkpoint and {prefix = options.checkpoint, resume = options.resume} or nil,
}
log:close()

local memory = module:memory()
print(("memory of all buckets %.1f MB, of the largest one %.1f MB; apart they would take %.1f MB")
  :format(memory.pool / 2 ^ 20, memory.largest / 2 ^ 20, memory.planned / 2 ^ 20))

-- Writing -----------------------------------------------------------------------------------------

local write = language_model.writer(cells,
  {words = shape.words, embed = shape.embed, args = (module:get_params())})
for _ = 1, options.sentences do
  local words = {}
  write(vocabulary["<eos>"], 30, options.temperature, function(id)
    words[#words + 1] = word_of[id + 1]
    return word_of[id + 1] ~= "<eos>"
  end)
  print("  " .. table.concat(words, " "))
end
local final = module:score(test, ty.metric.Perplexity{PAD})[1][2]
print(("test perplexity %.1f (best %.1f) after %d epochs")
  :format(final, math.min(best, final), options.epochs))
