--- Learns to write a text character by character with a small transformer in `ty.gluon`.
--
--   tycho scripts/transformer_gluon.lua                    learns from the library's documentation
--   tycho scripts/transformer_gluon.lua --data input.txt --layers 4 --width 256 --epochs 10
--   tycho scripts/transformer_gluon.lua --checkpoint run/t --resume --epochs 8 --write 2000
--   tycho scripts/transformer_gluon.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local kept = require "kept"
local text = require "text"

local autograd, gluon, F = ty.autograd, ty.gluon, ty.F
local nn = gluon.nn

local parser = common.parser("Learns to write a text with a transformer, character by character.")
parser:option("--data", "text file; default: the library's documentation")
common.count(parser, "--layers", "blocks of attention and two full layers", 2)
common.count(parser, "--width", "size of the vector of a character", 128)
common.count(parser, "--heads", "of attention, a divisor of the width", 4)
common.count(parser, "--length", "characters that are seen at once", 64)
common.number(parser, "--dropout", "share of what a layer adds that training drops", 0, 0, 0.99)
common.count(parser, "--write", "characters to generate at the end", 400, 0)
common.number(parser, "--temperature", "of writing; below 1: likelier ones", 0.7, 0.01)
common.training(parser, {epochs = 6, batch = 16, rate = 0.002, gpus = common.ONE_GPU})
local options = common.parse(parser, {epochs = 1, layers = 1, width = 64, length = 32, batch = 32,
  rate = 0.005, write = 120})
if options.width % options.heads ~= 0 then
  parser:error(("--width %d is not a multiple of --heads %d"):format(options.width, options.heads))
end
local device = common.device(parser, options)

-- Text --------------------------------------------------------------------------------------------

-- Returns the text as numbers from 0, and the character of each number (list[number + 1]).
local function encoded(characters)
  local ids, list, seen = {}, {}, {}
  for i = 1, #characters do
    local c = characters:sub(i, i)
    if not seen[c] then
      seen[c] = #list
      list[#list + 1] = c
    end
    ids[i] = seen[c]
  end
  return ids, list
end

-- A sample is a piece of the text, and the same piece shifted by one character.
local Pieces = gluon.data.Dataset:extend("Pieces")

function Pieces:init(ids, from, to)
  self.ids = ty.nd.array(ids)[("%d:%d"):format(from, to)]
end

function Pieces:len()
  return math.floor((self.ids:len() - 1) / options.length)
end

function Pieces:get(i)
  local from, to = i * options.length, (i + 1) * options.length
  return self.ids[("%d:%d"):format(from, to)], self.ids[("%d:%d"):format(from + 1, to + 1)]
end

local characters = text.characters(options.data):gsub("\r", "")
local ids, list = encoded(characters)
local held = math.floor(#ids * 0.9)
local train_set, test_set = Pieces(ids, 0, held), Pieces(ids, held, #ids)
if train_set:len() < options.batch or test_set:len() < 1 then
  parser:error(("--data: %d characters are too few for batches of %d pieces of %d"):format(#ids,
    options.batch, options.length))
end
local train = gluon.data.DataLoader{train_set, options.batch, shuffle = true,
  last_batch = "discard"}
local test = gluon.data.DataLoader{test_set, options.batch}

-- Network -----------------------------------------------------------------------------------------

-- Splits (batch, length, width) into (batch * heads, length, width / heads).
local function split_heads(x, heads)
  return x:reshape{0, 0, -4, heads, -1}:transpose{0, 2, 1, 3}:reshape{-3, 0, 0}
end

local function join_heads(x, heads)
  return x:reshape{-4, -1, heads, 0, 0}:transpose{0, 2, 1, 3}:reshape{0, 0, -3}
end

-- Each position attends to itself and to earlier positions.
local Attention = gluon.HybridBlock:extend("Attention")

function Attention:init(width, heads)
  self.heads, self.scale = heads, 1 / math.sqrt(width / heads)
  self.query = nn.Dense{width, flatten = false, use_bias = false}
  self.key = nn.Dense{width, flatten = false, use_bias = false}
  self.value = nn.Dense{width, flatten = false, use_bias = false}
  self.out = nn.Dense{width, flatten = false}
end

function Attention:forward(x, mask)
  local q = split_heads(self.query(x) * self.scale, self.heads)
  local k, v = split_heads(self.key(x), self.heads), split_heads(self.value(x), self.heads)
  local scores = F.broadcast_add(F.batch_dot{q, k, transpose_b = true}, mask)
  return self.out(join_heads(F.batch_dot(F.softmax(scores), v), self.heads))
end

local Layer = gluon.HybridBlock:extend("Layer")

function Layer:init(width, heads, dropout)
  self.norm1, self.norm2 = nn.LayerNorm(), nn.LayerNorm()
  self.attention = Attention(width, heads)
  self.wide = nn.Dense{4 * width, flatten = false}
  self.narrow = nn.Dense{width, flatten = false}
  self.dropout = nn.Dropout(dropout)
end

function Layer:forward(x, mask)
  x = x + self.dropout(self.attention(self.norm1(x), mask))
  local y = F.LeakyReLU{self.wide(self.norm2(x)), act_type = "gelu"}
  return x + self.dropout(self.narrow(y))
end

local Transformer = gluon.HybridBlock:extend("Transformer")

function Transformer:init(words, a)
  self.embed = nn.Embedding(words, a.width)
  self.place = self.params:get("place", {shape = {1, a.length, a.width},
    init = ty.init.Normal(0.02)})
  local forbidden = {}                           -- added to scores of later positions
  for i = 1, a.length do
    forbidden[i] = {}
    for j = 1, a.length do
      forbidden[i][j] = j > i and -1e9 or 0
    end
  end
  self.mask = self.params:get_constant("mask", {forbidden})
  self.layers = {}
  for i = 1, a.layers do
    self.layers[i] = Layer(a.width, a.heads, a.dropout)
    self:register_child(self.layers[i])
  end
  self.norm = nn.LayerNorm()
  self.head = nn.Dense{words, flatten = false}
end

function Transformer:forward(x)
  local y = F.broadcast_add(self.embed(x), self.place:data(x))
  for _, layer in ipairs(self.layers) do
    y = layer(y, self.mask:data(x))
  end
  return self.head(self.norm(y))
end

-- Training ----------------------------------------------------------------------------------------

ty.random.seed(options.seed)
local net = Transformer(#list, options)
net:initialize{init = ty.init.Xavier(), ctx = device}
net:hybridize()
local loss = gluon.loss.SoftmaxCrossEntropyLoss()
local parameters = net:collect_params()
local trainer = gluon.Trainer(parameters, "adam", {learning_rate = options.rate})

-- Returns the gradients of all parameters, for their joint norm.
local function gradients()
  local grads = {}
  for _, p in ipairs(parameters:values()) do
    grads[#grads + 1] = p.grad_req ~= "null" and p:grad() or nil
  end
  return grads
end

-- Makes one pass over the text; returns bits per character.
local function pass(loader, is_train)
  local sum, count = ty.nd.zeros({1}, {ctx = device}), 0
  for x, y in loader do
    x, y = x:as_in_context(device), y:as_in_context(device)
    local l
    if is_train then
      l = autograd.record(function() return loss(net(x), y) end)
      l:backward()
      gluon.utils.clip_global_norm(gradients(), x:len(), {check_isfinite = false})
      trainer:step(x:len())
    else
      l = loss(net(x), y)
    end
    sum:add_(l:sum())
    count = count + x:len()
  end
  return sum:asscalar() / count / math.log(2)
end

local first = 0
if options.resume then
  first = kept.load(options.checkpoint, net, trainer, {device})
end
local log, valid = common.log(options), nil
print(("%d characters, %d different ones"):format(#ids, #list))
for epoch = first, options.epochs - 1 do
  ty.random.seed(options.seed + epoch)                    -- resuming gives the same result
  local started = ty.callback.clock()
  local learnt = pass(train, true)
  local seconds = ty.callback.clock() - started
  valid = pass(test, false)
  print(("epoch %d: %.3f bits per character in training, %.3f in the test, %.0f characters/s")
    :format(epoch, learnt, valid, train:len() * options.batch * options.length / seconds))
  log:epoch{epoch = epoch, train = learnt, valid = valid, seconds = seconds}
  if options.checkpoint then
    kept.save(options.checkpoint, epoch + 1, net, trainer)
  end
end
log:close()

-- Writing -----------------------------------------------------------------------------------------

-- The network sees the last characters; the first ones are those with which the text begins.
local window = {}
for i = 1, options.length do
  window[i] = ids[i]
end
for _ = 1, options.write do
  local scores = net(ty.nd.array({window}, {ctx = device}))[{0, options.length - 1}]
  local odds = ty.nd.softmax(scores / options.temperature):reshape{1, -1}
  local id = ty.nd.random.multinomial(odds):asscalar()
  io.write(list[id + 1])
  table.remove(window, 1)
  window[options.length] = id
end
print(("\n%.3f bits per character on the last tenth of the text, which was not learnt from")
  :format(valid or pass(test, false)))
