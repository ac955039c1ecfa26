--- Common parts of the language models: the stack of cells, the network over a sequence, and
-- generation of text.
--
--     language_model.options(parser, {hidden = 200, embed = 200})  -- adds --layers, --hidden,
--                                                                  --embed, ...
--     local cells = language_model.cells{layers = 2, hidden = 200, dropout = 0}
--     local net = language_model.network(cells,
--       {length = 30, words = 6000, embed = 200, ignore = 0})
--     local step, args, states = language_model.step(cells, {words = 6000, embed = 200,
--       args = parameters})
--     local write = language_model.writer(cells, {words = 6000, embed = 200, args = parameters})
--     write(first_word, 50, temperature, function(word) ... return go_on end)

local ty = require "tycho"
local common = require "common"

local language_model = {}

--- Adds the options of the network and of generation.
-- @param parser of argparse
-- @tparam table defaults hidden, embed
function language_model.options(parser, defaults)
  common.count(parser, "--layers", "LSTM layers", 2)
  common.count(parser, "--hidden", "units of a layer", defaults.hidden)
  common.count(parser, "--embed", "size of the vector of a word or character", defaults.embed)
  common.number(parser, "--dropout", "share of the outputs between layers that training drops", 0,
    0, 0.99)
  common.number(parser, "--temperature", "of writing; below 1: likelier ones", 0.7, 0.01)
end

--- Returns a stack of LSTM cells, l0_ at the bottom.
-- @tparam table shape layers, hidden, dropout (between layers), fused (one
--   operator instead of single cells)
function language_model.cells(shape)
  if shape.fused then
    return ty.rnn.FusedRNNCell{shape.hidden, num_layers = shape.layers, mode = "lstm",
      dropout = shape.dropout, prefix = "lstm_"}
  end
  local stack = ty.rnn.SequentialRNNCell{}
  for i = 0, shape.layers - 1 do
    stack:add(ty.rnn.LSTMCell{shape.hidden, prefix = ("lstm_l%d_"):format(i)})
    if shape.dropout > 0 and i < shape.layers - 1 then
      stack:add(ty.rnn.DropoutCell{shape.dropout, prefix = ("dropout%d_"):format(i)})
    end
  end
  return stack
end

local function embedded(data, shape)
  return ty.sym.Embedding{data = data, input_dim = shape.words,
    output_dim = shape.embed, name = "embed"}
end

local function scores(outputs, shape)
  return ty.sym.FullyConnected{data = outputs, num_hidden = shape.words, name = "pred"}
end

--- Returns the network over `length` steps with its loss. The word with number `ignore` does not
-- count in the labels.
-- @param cells
-- @tparam table shape length, words (different ones), embed, ignore, layout
--   ("NTC" or "TNC"), begin_state
-- @treturn Symbol
-- @treturn table states after the last step
function language_model.network(cells, shape)
  local inputs = embedded(ty.sym.Variable("data"), shape)
  local outputs, states = cells:unroll{length = shape.length, inputs = inputs,
    layout = shape.layout or "NTC", merge_outputs = true, begin_state = shape.begin_state}
  local predicted = scores(ty.sym.reshape{outputs, shape = {-3, -2}}, shape)
  local label = ty.sym.reshape{ty.sym.Variable("softmax_label"), shape = {-1}}
  return ty.sym.SoftmaxOutput{data = predicted, label = label, use_ignore = shape.ignore ~= nil,
    ignore_label = shape.ignore or -1, name = "softmax"}, states
end


-- Writing -----------------------------------------------------------------------------------------

--- Returns the network of one step, for weights from any kind of cells: the inputs are data of
-- (rows, 1) and the states, the outputs are probabilities and the next states.
-- @param cells the cells of the training
-- @tparam table shape words, embed, args (parameters by name)
-- @treturn Symbol
-- @treturn table its parameters
-- @treturn {string,...} names of the states, in the order of the outputs after the first
function language_model.step(cells, shape)
  local single = ty.is_a(cells, ty.rnn.FusedRNNCell) and cells:unfuse() or cells
  local args = single:pack_weights(cells:unpack_weights(shape.args))
  single:reset()
  local states, names = single:begin_state{func = ty.sym.Variable}, {}
  for i, state in ipairs(states) do
    names[i] = state.name
  end
  local output, after =
    single(ty.sym.reshape{embedded(ty.sym.Variable("data"), shape), shape = {-3, -2}}, states)
  return ty.sym.Group{ty.sym.softmax{scores(output, shape)}, unpack(after)}, args, names
end

-- Draws a number with the given probabilities; a temperature below 1 prefers likely ones.
local function draw(probabilities, temperature)
  local weights, sum = {}, 0
  for i, p in ipairs(probabilities) do
    weights[i] = p ^ (1 / temperature)
    sum = sum + weights[i]
  end
  local at = ty.nd.random.uniform{shape = {1}}:asscalar() * sum
  for i, w in ipairs(weights) do
    at = at - w
    if at <= 0 then
      return i - 1
    end
  end
  return #weights - 1
end

--- Returns a function that generates text with a trained network.
-- @param cells the cells of the training
-- @tparam table shape words, embed, args (parameters by name)
-- @treturn function called as f(first, count, temperature, take): take(number) gets each number and
--   returns false to stop
function language_model.writer(cells, shape)
  local net, args, names = language_model.step(cells, shape)
  local exe = net:simple_bind{ctx = ty.cpu(), data = {1, 1}, grad_req = "null"}
  exe:copy_params_from(args, {}, {allow_extra_params = true})
  return function(first, count, temperature, take)
    for _, name in ipairs(names) do
      exe.arg_dict[name][":"] = 0
    end
    local word = first
    for _ = 1, count do
      exe.arg_dict.data[":"] = word
      local outputs = exe:forward(false)
      word = draw(outputs[1][0]:totable(), temperature)
      for i, name in ipairs(names) do
        exe.arg_dict[name][":"] = outputs[i + 1]
      end
      if take(word) == false then
        return
      end
    end
  end
end

return language_model
