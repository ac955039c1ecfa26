--- Learns to write a text with a small GPT, character by character, then writes.
--
--   tycho scripts/gpt.lua                          learns from the library's documentation
--   tycho scripts/gpt.lua --data input.txt --steps 2000 --layers 4 --width 256 --heads 8
--   tycho scripts/gpt.lua --steps 4000 --checkpoint run/gpt     keeps the training in run/gpt.state
--   tycho scripts/gpt.lua --steps 4000 --checkpoint run/gpt --resume --write 2000
--
-- A resumed training continues its schedule: with more steps than it had at first, the rate
-- stays at a tenth of --rate in those.
--
-- The network is that of scripts/lib/gpt.lua: rotary positions, RMSNorm, gated units, heads of
-- queries that share heads of keys. AdamW with a warm-up and a cosine; norms and the embedding do
-- not decay. What is written comes from a network of one position, whose keys and values stay in
-- the executor (contrib.cache_append).

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local gpt = require "gpt"
local text = require "text"

local parser = common.parser("Learns to write a text with a small GPT.")
parser:option("--data", "text file; default: the library's documentation")
common.count(parser, "--length", "characters that the network sees", 128)
common.count(parser, "--layers", "layers", 4)
common.count(parser, "--width", "width of the layers", 128)
common.count(parser, "--heads", "heads of queries", 8)
common.count(parser, "--kv-heads", "heads of keys and values, each for several query heads", 4)
common.count(parser, "--steps", "updates", 400)
common.count(parser, "--batch", "pieces of text per step", 8)
common.number(parser, "--rate", "largest learning rate", 0.002, 0)
common.number(parser, "--decay", "weight decay", 0.1, 0)
common.number(parser, "--temperature", "above 1: more varied text, below 1: less varied", 0.8, 0.01)
common.count(parser, "--write", "characters to generate at the end", 400, 0)
common.count(parser, "--seed", "seed of random numbers", 0, 0)
parser:option("--checkpoint", "prefix of the saved training: CHECKPOINT.state")
parser:flag("--resume", "continue from the checkpoint")
common.options(parser)
local options = common.parse(parser, { steps = 60, layers = 2, width = 64, heads = 4,
  kv_heads = 2, length = 64, write = 120 })

local function need(ok, message)
  if not ok then
    io.stderr:write("gpt: " .. message .. "\n")
    os.exit(1)
  end
end
need(options.width % (2 * options.heads) == 0, "--width is no multiple of twice --heads")
need(options.heads % options.kv_heads == 0, "--heads is no multiple of --kv-heads")
need(not options.resume or options.checkpoint, "--resume needs --checkpoint")

ty.random.seed(options.seed)
math.randomseed(options.seed)

local characters = text.characters(options.data):gsub("\r", "")
local numbers, list = text.alphabet(characters)
local ids = text.encoded(characters, numbers)
local held = math.floor(#characters * 0.9)
need(#characters - held > options.length + 1, "the text is too short for such a --length")

local shape = { words = #list, width = options.width, inner = 4 * options.width,
  layers = options.layers, heads = options.heads, kv_heads = options.kv_heads,
  length = options.length }
local module = ty.mod.Module{ gpt.network(shape) }
module:bind{ data_shapes = { data = { options.batch, options.length } },
  label_shapes = { softmax_label = { options.batch, options.length } } }
module:init_params{ initializer = ty.init.Normal(0.02) }
local schedule = ty.lr_scheduler.CosineScheduler{ max_update = options.steps,
  base_lr = options.rate, final_lr = options.rate / 10,
  warmup_steps = math.min(100, math.floor(options.steps / 10)) }
module:init_optimizer{ optimizer = "adamw", optimizer_params = { lr_scheduler = schedule,
  learning_rate = options.rate, beta2 = 0.95, wd = options.decay,
  no_decay = { "_gamma$", "^embed" }, rescale_grad = 1 } }

-- Returns the pieces of the text that begin at these positions, as a batch.
local function batch_at(places)
  local rows, labels = {}, {}
  for i, at in ipairs(places) do
    rows[i] = ids[{ ty.slice(at, at + options.length) }]
    labels[i] = ids[{ ty.slice(at + 1, at + options.length + 1) }]
  end
  return ty.io.DataBatch{ data = { ty.nd.stack(rows) }, label = { ty.nd.stack(labels) } }
end

-- Places of step number `step`: a function of the seed and the step, so that a training that
-- resumes sees what it would have seen.
local function draw_places(step)
  math.randomseed(options.seed * 1000003 + step)
  local places = {}
  for i = 1, options.batch do
    places[i] = math.random(0, held - options.length - 2)
  end
  return places
end

-- Returns the bits per character of the rest of the text, on which the network is not trained.
local function test()
  local metric = ty.metric.Perplexity{ ignore_label = ty.null }
  local at = held
  for _ = 1, 8 do
    local places = {}
    for i = 1, options.batch do
      at = at + options.length + 1 < #characters and at or held
      places[i], at = at, at + options.length
      if at + options.length + 1 >= #characters then
        at = held
      end
    end
    local batch = batch_at(places)
    module:forward(batch, false)
    module:update_metric(metric, batch.label)
  end
  return math.log(select(2, metric:get())) / math.log(2)
end

local first = 0
if options.resume then
  local path = options.checkpoint .. ".state"
  first = module:load_state(path).epoch
  print(("step %d: resumed from %s"):format(first, path))
end
print(("%d characters, %d different ones"):format(#characters, #list))
local log = common.log(options)
local every, started = math.max(1, math.floor(options.steps / 6)), ty.callback.clock()
for step = first, options.steps - 1 do
  module:forward(batch_at(draw_places(step)), true)
  module:backward()
  module:update()
  if (step + 1) % every == 0 or step + 1 == options.steps then
    local bits, seconds = test(), ty.callback.clock() - started
    print(("step %d: %.3f bits per character, %.0f characters/s"):format(step + 1, bits,
      (step + 1 - first) * options.batch * options.length / seconds))
    log:epoch{ epoch = step + 1, valid = bits, seconds = seconds }
    if options.checkpoint then
      module:save_state(options.checkpoint .. ".state", { epoch = step + 1 })
    end
  end
end
log:close()

-- Draws a character; sharper below temperature 1.
local function draw(probabilities)
  local sum, weights = 0, {}
  for i, p in ipairs(probabilities) do
    weights[i] = p ^ (1 / options.temperature)
    sum = sum + weights[i]
  end
  local x = math.random() * sum
  for i, w in ipairs(weights) do
    x = x - w
    if x < 0 then
      return i - 1
    end
  end
  return #weights - 1
end

math.randomseed(options.seed)
local word, left = ids:get(0), options.write
while left > 0 do
  local read = gpt.reader(shape, (module:get_params()))
  for _ = 1, math.min(left, options.length) do
    word = draw(read(word):reshape{ -1 }:totable())
    io.write(list[word + 1])
  end
  left = left - options.length
end
print(("\n%.3f bits per character on the last tenth of the text, which was not learnt from")
  :format(test()))
