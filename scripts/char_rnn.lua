--- Learns to write a text character by character, then writes.
--
--   tycho scripts/char_rnn.lua                        learns from the library's documentation
--   tycho scripts/char_rnn.lua --data input.txt --epochs 10
--   tycho scripts/char_rnn.lua --checkpoint run/char  keeps the training in run/char.state after
--                                                     each epoch
--   tycho scripts/char_rnn.lua --checkpoint run/char --resume --epochs 4 --write 2000
--
-- The network of one step is also saved, for other programs: run/char-symbol.json,
-- run/char-0001.params, and run/char.characters, the characters by number. Its input "data" is a
-- character, its first output the probabilities of the next one; the other outputs are the states,
-- which are inputs with the next character. `Module.load(prefix, epoch, {state_names = ...,
-- label_names = {}})` runs it.
--
-- The text is cut into parallel streams. A step reads the next characters of all streams;
-- its last states are the first ones of the step after it, so the network sees much
-- further back than gradients go.

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local files = require "tycho.core.files"
local ty = require "tycho"
local common = require "common"
local language_model = require "language_model"
local text = require "text"

local parser = common.parser("Learns to write a text character by character.")
parser:option("--data", "text file; default: the library's documentation")
common.count(parser, "--length", "characters per step", 50)
common.count(parser, "--write", "characters to generate at the end", 400, 0)
language_model.options(parser, {hidden = 128, embed = 32})
common.training(parser, {epochs = 10, batch = 16, rate = 0.004})
local options = common.parse(parser, {epochs = 1, layers = 1, hidden = 64, write = 120})

ty.random.seed(options.seed)

-- Characters --------------------------------------------------------------------------------------

-- Returns an iterator over ids from `from` to before `to`: row r of batch k is the k-th piece of
-- stream r; labels are the ids one position further.
local function streams(ids, from, to)
  local steps = math.floor((to - from - 1) / (options.batch * options.length))
  assert(steps > 0, "the text is too short for this number and length of streams")
  local function pieces(at)
    local part = ids[{ty.slice(at, at + steps * options.batch * options.length)}]
    return part:reshape{options.batch, steps, options.length}:transpose{1, 0, 2}
      :reshape{-1, options.length}
  end
  return ty.io.NDArrayIter{data = pieces(from), label = pieces(from + 1),
    batch_size = options.batch}
end

local characters = text.characters(options.data):gsub("\r", "")
local numbers, list = text.alphabet(characters)
local ids = text.encoded(characters, numbers)
local held = math.floor(#characters * 0.9)
local train, test = streams(ids, 0, held), streams(ids, held, #characters)

-- Network -----------------------------------------------------------------------------------------

local shape = {words = #list, embed = options.embed, length = options.length}
local cells = language_model.cells(options)
shape.begin_state = cells:begin_state{func = ty.sym.Variable}
local state_names, outputs = {}, {}
local loss, states = language_model.network(cells, shape)
for i, state in ipairs(states) do
  state_names[i], outputs[i] = shape.begin_state[i].name, ty.sym.BlockGrad{state}
end
local module = ty.mod.Module{ty.sym.Group{loss, unpack(outputs)},
  state_names = state_names, context = common.devices(options)}
module:bind{data_shapes = train.provide_data, label_shapes = train.provide_label}
module:init_params{initializer = ty.init.Xavier()}
module:init_optimizer{optimizer = "adam",
  optimizer_params = {learning_rate = options.rate, clip_gradient = 5}}

-- Makes one pass over the text; returns the perplexity per character.
local function pass(iter, is_train)
  local metric = ty.metric.Perplexity{output_names = {"softmax_output"}, ignore_label = ty.null}
  iter:reset()
  module:set_states{value = 0}
  for batch in iter do
    module:forward(batch, is_train)
    if is_train then
      module:backward()
      module:update()
    end
    module:update_metric(metric, batch.label)
    module:set_states{states = {unpack(module:get_outputs(false), 2)}}
  end
  return select(2, metric:get())
end

local function bits(perplexity)
  return math.log(perplexity) / math.log(2)
end

local function trained()
  return {words = #list, embed = options.embed, args = (module:get_params())}
end

-- Saves the training after some epochs, and the network for other programs.
local function save(prefix, epochs)
  local net, parameters = language_model.step(cells, trained())
  ty.model.save_checkpoint(prefix, epochs, net, parameters, {})
  files.write(prefix .. ".characters", table.concat(list), "char_rnn")
  module:save_state(prefix .. ".state", {epoch = epochs})
end

local first = 0
if options.resume then
  local path = options.checkpoint .. ".state"
  first = module:load_state(path).epoch
  print(("epoch %d: resumed from %s"):format(first, path))
end
local log, valid = common.log(options), nil
print(("%d characters, %d different ones"):format(#characters, #list))
for epoch = first, options.epochs - 1 do
  local started = ty.callback.clock()
  local learnt = bits(pass(train, true))
  local seconds = ty.callback.clock() - started
  valid = bits(pass(test, false))
  print(("epoch %d: %.3f bits per character in training, %.3f in the test, %.0f characters/s")
    :format(epoch, learnt, valid, train.num_data * options.length / seconds))
  log:epoch{epoch = epoch, train = learnt, valid = valid, seconds = seconds}
  if options.checkpoint then
    save(options.checkpoint, epoch + 1)
  end
end
log:close()

local write = language_model.writer(cells, trained())
write(ids:get(0), options.write, options.temperature, function(id) io.write(list[id + 1]) end)
print(("\n%.3f bits per character on the last tenth of the text, which was not learnt from")
  :format(valid or bits(pass(test, false))))
