--- Text files as numbers of words: `ty.io.text(path)`.
--
-- A line is a sentence, whose words are separated by blanks; empty lines are left out. Words are
-- numbered from 0 in the order of their first occurrence. The numbers are in C memory.
--
--     local corpus = ty.io.text("ptb.train.txt")
--     corpus.vocab.the                  -- number of a word          corpus.words[1]   -- word 0
--     for words in corpus:sentences() do print(#words) end
--     corpus.ids[corpus.starts[i]]      -- first word of sentence i (from 0); FFI arrays of int32_t
--
-- @module tycho.io.text

local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local Numbers = require "tycho.core.numbers"


--- A text as numbers of words. Fields: vocab (word -> number), words (list: word i is words[i +
-- 1]), ids (FFI array of int32_t: the numbers of all words), starts (FFI array of int32_t:
-- sentence i, from 0, is ids[starts[i]] to ids[starts[i + 1] - 1]), count (sentences), size (words
-- in all).
-- @type Corpus
local Corpus = Class:extend("Corpus")

local function add_word(self, word)
  local id = self.vocab[word]
  if not id then
    id = #self.words
    self.vocab[word], self.words[id + 1] = id, word
  end
  return id
end


function Corpus:init(lines)
  local ids, starts = Numbers(), Numbers()
  self.vocab, self.words = {}, {}
  for line in lines do
    local begin = ids.n
    for word in line:gmatch("%S+") do
      ids:add(add_word(self, word))
    end
    if ids.n > begin then
      starts:add(begin)
    end
  end
  starts:add(ids.n)
  self.ids, self.starts, self.count, self.size = ids.p, starts.p, starts.n - 1, ids.n
end


--- Returns the number of sentences.
-- @treturn int
function Corpus:len()
  return self.count
end


--- Returns the words of a sentence.
-- @int i number of the sentence, from 1; another one is E(`index`)
-- @treturn {string,...}
function Corpus:sentence(i)
  if type(i) ~= "number" or i < 1 or i > self.count then
    Error.raise{ code = "index", func = "Corpus:sentence", argument = "i",
      expected = "1 to " .. self.count, got = tostring(i), message = "there is no such sentence" }
  end
  local words = {}
  for k = self.starts[i - 1], self.starts[i] - 1 do
    words[#words + 1] = self.words[self.ids[k] + 1]
  end
  return words
end


--- Iterates over the sentences as lists of words.
-- @treturn function iterator
function Corpus:sentences()
  local i = 0
  return function()
    i = i + 1
    return i <= self.count and self:sentence(i) or nil
  end
end


function Corpus:__tostring()
  return ("<Corpus of %d sentences, %d words, %d different>")
    :format(self.count, self.size, #self.words)
end


local TEXT = args.form("io.text", { { "path", "path" } })

--- Reads a text file. One that cannot be read is E(`io`).
-- @string path
-- @treturn Corpus
return function(...)
  local path = TEXT(...).path
  return Corpus(files.lines(path, "io.text"))
end
