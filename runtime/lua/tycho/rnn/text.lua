--- Words as numbers: `ty.rnn.encode_sentences`.
--
-- @module tycho.rnn.text

local ffi = require "ffi"
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local Numbers = require "tycho.core.numbers"
local values = require "tycho.core.values"
require "tycho.ndarray"

local FUNC = "rnn.encode_sentences"
local I32 = args.DTYPES.int32

local ENCODE = args.form(FUNC, {
  list = true, { "sentences", "any" }, "*", { "vocab", "dict?" },
  { "invalid_label", "integer", -1 }, { "invalid_key", "text", "\n" },
  { "start_label", "integer", 0 }, { "unknown_token", "text?" },
})


local function fail_word(word)
  Error.raise{ code = "name", func = FUNC, argument = tostring(word),
    expected = "a word of the vocabulary",
    message = ("the vocabulary has no '%s'; name an unknown_token for such words")
      :format(tostring(word)) }
end


-- Returns a function that returns a word's number and adds new words to the vocabulary.
local function coder(a, vocab)
  local fixed, unknown, id = a.vocab ~= nil, a.unknown_token, a.start_label
  return function(word)
    local known = vocab[word]
    if known then
      return known
    elseif fixed and not unknown then
      fail_word(word)
    elseif id == a.invalid_label then
      id = id + 1
    end
    id = id + 1
    vocab[unknown or word] = id - 1
    return id - 1
  end
end


-- Returns an iterator over lists of words.
local function each_sentence(sentences)
  if type(sentences) == "table" and not values.is_plain(sentences) and sentences.sentences then
    return sentences:sentences()
  elseif not values.is_plain(sentences) then
    Error.raise{ code = "type", func = FUNC, argument = "sentences", got = Error.kind(sentences),
      expected = "a list of lists of words, or a corpus of ty.io.text",
      message = "bad 'sentences'" }
  end
  local i = 0
  return function()
    i = i + 1
    local words = sentences[i]
    if words ~= nil and not values.is_plain(words) then
      Error.raise{ code = "type", func = FUNC, argument = "sentences", expected = "lists of words",
        got = Error.kind(words), message = ("bad sentence %d"):format(i) }
    end
    return words
  end
end


-- Returns the parts of a list of numbers as int32 arrays that share one block; an empty part is an
-- empty table.
local function arrays(ids, starts)
  local list = {}
  local block = ids.n > 0 and class.new({ ids.n }, I32, context.cpu()._device, FUNC)
  if block then
    ffi.copy(block:data(), ids.p, 4 * ids.n)
  end
  for i = 1, starts.n - 1 do
    local from, n = starts.p[i - 1], starts.p[i] - starts.p[i - 1]
    list[i] = n > 0 and class.view(block, { n }, 4 * from, FUNC) or {}
  end
  return list
end


--- Encodes words as numbers. A new vocabulary contains `invalid_key` as `invalid_label`, and
-- numbers words from `start_label` on in the order in which they come, skipping `invalid_label`. A
-- given vocabulary is changed and returned; a word that it lacks is E(name), or with
-- `unknown_token` gives that token the next number.
-- @param sentences list of lists of words, or a corpus of `ty.io.text`
-- @tparam[opt] table options vocab (word -> number), invalid_label = -1, invalid_key = "\n",
--   start_label = 0, unknown_token
-- @treturn {NDArray,...} for each sentence an int32 array with `ids[i]:len()` words (`#` of an
--   array is always 0); an empty table for a sentence without words
-- @treturn table vocabulary
return { encode_sentences = function(...)
  local a = ENCODE(...)
  local vocab = a.vocab or { [a.invalid_key] = a.invalid_label }
  local code, ids, starts = coder(a, vocab), Numbers(), Numbers()
  starts:add(0)
  for words in each_sentence(a.sentences) do
    for _, word in ipairs(words) do
      ids:add(code(word))
    end
    starts:add(ids.n)
  end
  return arrays(ids, starts), vocab
end }
