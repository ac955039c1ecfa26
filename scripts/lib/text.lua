--- Text for training: files in the format of Penn Treebank (a sentence per line, words separated by
-- blanks), any other file or, by default, the library's documentation: the comments of its Lua
-- modules and the manual of its operators, which exist in a checkout and in an installed tree.
--
--     local train, test = text.sentences(options.data)  -- lists of lists of words, each ending in
--                                                       "<eos>"
--     local all = text.characters(options.data)         -- one long string

local ffi = require "ffi"
local ty = require "tycho"

local text = {}

local MODULES = "sym nd executor executor_manager mod io recordio rnn init optimizer lr_scheduler \z
  metric kv callback monitor "
  .. "model random name attribute engine op log runtime"
local RARE = 2                   -- rarer words become <unk>
local HELD = 10                  -- every tenth sentence tests

-- Returns the paths of all loaded files of the library, sorted.
local function library_files()
  for name in MODULES:gmatch("%S+") do
    assert(ty[name])
  end
  local files = {}
  for name in pairs(package.loaded) do
    local path = name:match("^tycho%.?") and package.searchpath(name, package.path)
    files[#files + 1] = path or nil
  end
  table.sort(files)
  return files
end

-- Appends the comments of a file, with neighbouring lines joined; headings and lines of code in
-- comments are left out.
local function add_comments(list, path)
  local paragraph = {}
  for line in io.lines(path) do
    local words = line:match("^%s*%-%-+ ?(.*)$")
    if words and words:match("^%a") and not words:match("%-%-%-") then
      paragraph[#paragraph + 1] = words
    elseif #paragraph > 0 then
      list[#list + 1] = table.concat(paragraph, " ")
      paragraph = {}
    end
  end
end

--- Returns the library's documentation as paragraphs.
-- @treturn {string,...}
function text.own()
  local list = {}
  for _, path in ipairs(library_files()) do
    add_comments(list, path)
  end
  for _, name in ipairs(ty.op.list()) do
    list[#list + 1] = name .. ": " .. ty.op.info(name).doc
  end
  return list
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local all = file:read("*a")
  file:close()
  return (assert(all, path .. " is a folder; name a file"):gsub("^\239\187\191", ""))
end

-- Returns the path of the first of the names that exists in a folder; nil if none exists.
local function find(folder, ...)
  for _, name in ipairs{...} do
    local path = folder .. "/" .. name
    local file = io.open(path)
    if file then
      file:close()
      return path
    end
  end
end

--- Returns the files for training and for testing: in a folder ptb.train.txt (else ptb.valid.txt)
-- and ptb.test.txt, otherwise the file only.
-- @string data folder or file
function text.files(data)
  local train = find(data, "ptb.train.txt", "train.txt", "ptb.valid.txt", "valid.txt", "input.txt")
  return train or data, train and find(data, "ptb.test.txt", "test.txt")
end

--- Returns all characters of a file, of the first file of a folder, or of the library's
-- documentation.
-- @string[opt] data
function text.characters(data)
  local all = data and read((text.files(data))) or table.concat(text.own(), "\n")
  if #all == 0 then
    error(data .. " is empty; name a file with a text", 0)
  end
  return all
end


-- Words -------------------------------------------------------------------------------------------

local function ended(words)
  words[#words + 1] = "<eos>"
  return words
end

local function read_lines(path)
  local sentences = {}
  for line in read(path):gmatch("[^\r\n]+") do
    local words = {}
    for word in line:gmatch("%S+") do
      words[#words + 1] = word
    end
    if #words > 0 then
      sentences[#sentences + 1] = ended(words)
    end
  end
  return sentences
end

-- Returns sentences as lists of words in lower case; a sentence ends at ". ", ": " or "; ".
local function own_sentences()
  local sentences = {}
  for _, paragraph in ipairs(text.own()) do
    for part in (paragraph:lower() .. ". "):gmatch("(.-)[.:;] ") do
      local words = {}
      for word in part:gmatch("[%a_][%w_.:]*[%w_]") do
        words[#words + 1] = word
      end
      if #words > 2 then
        sentences[#sentences + 1] = ended(words)
      end
    end
  end
  return sentences
end

-- Separates every tenth sentence for testing.
local function hold_out(sentences)
  local train, test = {}, {}
  for i, words in ipairs(sentences) do
    table.insert(i % HELD == 0 and test or train, words)
  end
  return train, test
end

--- Returns the number of occurrences of each word.
function text.count(sentences)
  local counts = {}
  for _, words in ipairs(sentences) do
    for _, word in ipairs(words) do
      counts[word] = (counts[word] or 0) + 1
    end
  end
  return counts
end

--- Returns the total number of words.
function text.words(sentences)
  local n = 0
  for _, words in ipairs(sentences) do
    n = n + #words
  end
  return n
end

--- Returns the words of a vocabulary by number: entry i + 1 is word i; the numbers are consecutive
-- from 0.
function text.list(vocabulary)
  local list = {}
  for word, id in pairs(vocabulary) do
    list[id + 1] = word
  end
  return list
end

--- Replaces words that occur less than `least` times by <unk>, in place.
function text.hide_rare(sentences, counts, least)
  for _, words in ipairs(sentences) do
    for i, word in ipairs(words) do
      if (counts[word] or 0) < least then
        words[i] = "<unk>"
      end
    end
  end
end

--- Returns sentences for training and for testing. Words that only the test has become <unk>.
-- @string[opt] data folder or file; nil: the library's documentation
-- @treturn table lists of words
-- @treturn table
function text.sentences(data)
  local train_file, test_file = text.files(data or "")
  local train, test
  if not data then
    train, test = hold_out(own_sentences())
  elseif test_file then
    train, test = read_lines(train_file), read_lines(test_file)
  else
    train, test = hold_out(read_lines(train_file))
  end
  local counts = text.count(train)
  if not data then
    text.hide_rare(train, counts, RARE)
  end
  text.hide_rare(test, counts, data and 1 or RARE)
  return train, test
end

--- Returns the number, from 0, of each byte (at index byte + 1), and the characters that occur (at
-- index number + 1).
function text.alphabet(characters)
  local seen, numbers, list = {}, {}, {}
  for c in characters:gmatch(".") do
    seen[c:byte()] = true
  end
  for byte = 0, 255 do
    numbers[byte + 1] = #list
    list[#list + 1] = seen[byte] and string.char(byte) or nil
  end
  return numbers, list
end

--- Returns the text as an array of numbers.
function text.encoded(characters, numbers)
  local bytes = ty.nd.empty({#characters}, {dtype = "uint8"})
  ffi.copy(bytes:data(), characters, #characters)
  return ty.nd.take{ty.nd.array(numbers), bytes:astype("int32")}
end

return text
