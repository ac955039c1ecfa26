-- The search of the pages: an index from words to sections, and the evaluation of queries.
--
--     local index = search.index(pages)      pages: file, title, body, weight
--     search.find(index, "save a model")     sections, the best first: title, page, address
--     search.script(index)                   the index as JavaScript, for find.js
--
-- A section is a heading with the text below it. A word counts more in a heading than in text, more
-- if it is rare, and more on some pages (`weight`). Words are compared without endings and
-- underscores; words of other libraries and synonyms (tycho/core/foreign.lua) lead to names of
-- Tycho. find.js is the same as `find` for a browser; a spec compares them.

local attrs = require "tycho.core.attrs"
local foreign = require "tycho.core.foreign"

local search = {}

local HEADING, TITLE = 10, 3            -- factor in a heading and in a page's title
local PART, PATH = 0.35, 0.3            -- "array" of NDArrayIter, "module" of "Module:fit" in one
local SATURATION, LENGTH = 1.2, 0.5     -- BM25's k1 and b, for words of the text
local SCALE = 10                        -- weights are whole numbers: tenths
local SAME, PREFIX = 7, 5               -- tenths for a synonym and for a prefix
local LIMIT = 20                        -- most sections that are shown

-- Endings that are ignored, the longest first, and their replacements.
local ENDINGS = {
  { "izations", "iz" }, { "ization", "iz" }, { "izers", "iz" }, { "izer", "iz" }, { "izing", "iz" },
  { "ations", "" }, { "ation", "" }, { "ings", "" }, { "ing", "" }, { "ies", "y" }, { "ed", "" },
  { "ss", "ss" }, { "s", "" },
}
local SHORTEST = 3                      -- least remaining letters

-- Words that are ignored, including names of other libraries.
local STOP = {}
for word in ([[a an and are as at be by can do does for from get have how i if in is it keras mx my
    nn not np of on or should so tf that the there this to torch ty use using want what when where
    which why with you]])
    :gmatch("%S+") do
  STOP[word] = true
end


-- Words -------------------------------------------------------------------------------------------

local function stem(word)
  for _, row in ipairs(ENDINGS) do
    local ending, instead = row[1], row[2]
    if #word - #ending + #instead >= SHORTEST and word:sub(-#ending) == ending then
      word = word:sub(1, -#ending - 1) .. instead
      break
    end
  end
  return #word > SHORTEST and word:gsub("e$", "") or word
end


-- Returns the words of a query or of plain text, in order: lower case, no underscores.
local function split_words(text)
  local list = {}
  for word in text:lower():gsub("_", ""):gmatch("[a-z0-9]+") do
    list[#list + 1] = word
  end
  return list
end


-- Returns the words under which an identifier is found: "NDArrayIter" itself, "nd", "array",
-- "iter".
local function split_identifier(identifier)
  local parts = split_words(identifier)
  local split = identifier:gsub("(%l)(%u)", "%1 %2"):gsub("(%u)(%u%l)", "%1 %2"):gsub("_", " ")
  local inner = split_words(split)
  for i = 1, #inner > 1 and #inner or 0 do
    parts[#parts + 1] = inner[i]
  end
  return parts
end


-- Returns word -> number of occurrences in a text; and the number of words.
local function count(text)
  local counts, n = {}, 0
  for identifier in text:gmatch("[%w_]+") do
    for _, word in ipairs(split_identifier(identifier)) do
      word = word:find("%a") and not STOP[word] and stem(word)
      if word then
        counts[word], n = (counts[word] or 0) + 1, n + 1
      end
    end
  end
  return counts, n
end


-- Returns word -> weight in a heading, at most 1; in a name the last part has the highest weight.
local function weigh_heading(title)
  local weights = {}
  local function add(identifier, whole, part)
    for i, word in ipairs(split_identifier(identifier)) do
      word = stem(word)
      weights[word] = math.max(weights[word] or 0, i == 1 and whole or part)
    end
  end
  if title:find("^[%w_%.:]+$") then
    local path, last = title:match("^(.-)([%w_]+)$")
    for identifier in (path or ""):gmatch("[%w_]+") do
      add(identifier, PATH, PATH * PART)
    end
    add(last or title, 1, PART)
    return weights
  end
  local _, n = count(title)
  for identifier in title:gmatch("[%w_]+") do
    add(identifier, 1 / math.sqrt(math.max(n, 1)), PART / math.sqrt(math.max(n, 1)))
  end
  return weights
end


-- Sections ----------------------------------------------------------------------------------------

local ENTITIES = { lt = "<", gt = ">", quot = '"', amp = "&" }

local function plain(html)
  return (html:gsub('<a class="self".-</a>', ""):gsub("<[^>]*>", " ")
    :gsub("&(%l+);", ENTITIES):gsub("%s+", " "):match("^%s*(.-)%s*$"))
end


-- Returns the headings of a page with the text below each: id, title, text.
local function sections(body)
  local list, at = {}, 1
  while true do
    local _, last, id, heading = body:find('<h%d id="([^"]*)">(.-)</h%d>', at)
    if not last then
      return list
    end
    at = body:find("<h%d id=", last) or #body + 1
    list[#list + 1] = { id = id, title = plain(heading), text = plain(body:sub(last + 1, at - 1)) }
  end
end


local function list_sections(pages)
  local list, total = {}, 0
  for _, page in ipairs(pages) do
    for _, section in ipairs(sections(page.body)) do
      section.page, section.weight = page.title, page.weight
      section.address = page.file .. ".html#" .. section.id
      section.counts, section.length = count(section.text)
      section.heading = weigh_heading(section.title)
      section.above = count(page.title)
      list[#list + 1], total = section, total + section.length
    end
  end
  return list, total / #list
end


-- The index ---------------------------------------------------------------------------------------

-- Returns the weight of a word in a section, apart from its rarity.
local function strength(section, word, average)
  local n = section.counts[word] or 0
  local norm = SATURATION * (1 - LENGTH + LENGTH * section.length / average)
  return n * (SATURATION + 1) / (n + norm)
    + HEADING * (section.heading[word] or 0)
    + (section.above[word] and TITLE or 0)
end


-- Returns word -> list of {section's number, weight}.
local function weigh(list, average)
  local places, words = {}, {}
  for i, section in ipairs(list) do
    for _, counts in ipairs{ section.counts, section.heading, section.above } do
      for word in pairs(counts) do
        places[word] = places[word] or {}
        places[word][i] = true
      end
    end
  end
  for word, set in pairs(places) do
    local numbers = {}
    for i in pairs(set) do
      numbers[#numbers + 1] = i
    end
    table.sort(numbers)
    words[word] = {}
    for k, i in ipairs(numbers) do
      local rarity = math.log(1 + #list / #numbers)
      words[word][k] = { i, math.ceil(SCALE * list[i].weight * rarity
        * strength(list[i], word, average)) }
    end
  end
  return words
end


-- Returns a word of another library, or a synonym -> stems in the index.
local function synonyms(words)
  local same = {}
  local function add(word, others)
    for _, other in ipairs(others) do
      if words[other] and other ~= stem(word) then
        same[word] = same[word] or {}
        table.insert(same[word], other)
      end
    end
  end
  for _, topic in ipairs(foreign.TOPICS) do
    for word, names in pairs(topic[2]) do
      local others = {}
      for name in names:gmatch("%S+") do
        local owner = name:match("^([%w_]+){")           -- "LeakyReLU" of "LeakyReLU{act_type}"
        others[#others + 1] = owner and stem(split_words(owner)[1])
        others[#others + 1] = stem(split_words(foreign.last(name))[1])
      end
      add(foreign.plain(word), others)
    end
  end
  for _, group in ipairs(foreign.SYNONYMS) do
    local list = split_words(group)
    for _, word in ipairs(list) do
      local others = {}
      for _, other in ipairs(list) do
        others[#others + 1] = other ~= word and stem(other) or nil
      end
      add(word, others)
    end
  end
  return same
end


--- Returns the index of all sections.
-- @tparam {table,...} pages file, title, body (HTML), weight
function search.index(pages)
  local list, average = list_sections(pages)
  local words = weigh(list, average)
  return { sections = list, words = words, same = synonyms(words) }
end


-- Queries -----------------------------------------------------------------------------------------

-- Raises the scores in `best`, by section, to those of a stem where these are larger.
local function reach(index, best, key, tenths)
  for _, pair in ipairs(index.words[key] or {}) do
    best[pair[1]] = math.max(best[pair[1]] or 0, pair[2] * tenths)
  end
end


-- Returns section -> score of one word of a query, or of several joined words; `last`: whether the
-- word may be unfinished.
local function compute_scores(index, word, last)
  local best, key = {}, stem(word)
  reach(index, best, key, SCALE)
  for _, other in ipairs(index.same[word] or index.same[key] or {}) do
    reach(index, best, other, SAME)
  end
  if last and not next(best) then
    for other in pairs(index.words) do
      if other:sub(1, #word) == word then
        reach(index, best, other, PREFIX)
      end
    end
  end
  return best
end


--- Returns the sections that answer a query, the best first.
-- @tparam table index
-- @string text
-- @treturn {table,...} title, page, address
function search.find(index, text)
  local all, list = split_words(text), {}
  for _, word in ipairs(all) do
    list[#list + 1] = not STOP[word] and word or nil
  end
  list = list[1] and list or all
  local sum, found = {}, {}             -- section -> score, words that it has
  for i, word in ipairs(list) do
    local best = compute_scores(index, word, i == #list)
    for n = 1, i == 1 and 0 or 2 do     -- joined with one or two previous words
      local joined = i - n >= 1 and table.concat(list, "", i - n, i)
      for section, score in pairs(joined and compute_scores(index, joined) or {}) do
        best[section] = math.max(best[section] or 0, score * (n + 1))
      end
    end
    for section, score in pairs(best) do
      sum[section] = (sum[section] or 0) + score
      found[section] = (found[section] or 0) + 1
    end
  end
  local result = {}
  for section, score in pairs(sum) do
    result[#result + 1] = { section, score * found[section] * found[section] }
  end
  table.sort(result, function(a, b)
    return a[2] > b[2] or a[2] == b[2] and a[1] < b[1]
  end)
  for i = 1, #result do
    result[i] = i <= LIMIT and index.sections[result[i][1]] or nil
  end
  return result
end


-- JavaScript --------------------------------------------------------------------------------------

-- Returns a JavaScript string. Pages are UTF-8; control characters become spaces.
local function quoted(text)
  return '"' .. text:gsub('[\\"]', "\\%0"):gsub("%c", " "):gsub("</", "<\\/") .. '"'
end


--- Returns the index as JavaScript: one variable, SEARCH.
function search.script(index)
  local out = { "var SEARCH = {", '"sections": [' }
  for _, section in ipairs(index.sections) do
    out[#out + 1] = ("[%s,%s,%s],"):format(quoted(section.title), quoted(section.page),
      quoted(section.address))
  end
  out[#out + 1] = '], "words": {'
  for _, word in ipairs(attrs.keys(index.words)) do
    local numbers = {}
    for _, pair in ipairs(index.words[word]) do
      numbers[#numbers + 1] = pair[1] - 1
      numbers[#numbers + 1] = pair[2]
    end
    out[#out + 1] = ('"%s":[%s],'):format(word, table.concat(numbers, ","))
  end
  out[#out + 1] = '}, "same": {'
  for _, word in ipairs(attrs.keys(index.same)) do
    out[#out + 1] = ('"%s":["%s"],'):format(word, table.concat(index.same[word], '","'))
  end
  out[#out + 1] = '}, "endings": ['
  for _, row in ipairs(ENDINGS) do
    out[#out + 1] = ('["%s","%s"],'):format(row[1], row[2])
  end
  out[#out + 1] = ('], "stop": ["%s"],'):format(table.concat(attrs.keys(STOP), '","'))
  out[#out + 1] = ('"shortest": %d, "scale": %d, "synonym": %d, "prefix": %d, "limit": %d };\n')
    :format(SHORTEST, SCALE, SAME, PREFIX, LIMIT)
  return (table.concat(out, "\n"):gsub(",\n([%]}])", "\n%1"))
end


return search
