--- Batches of sentences of similar length: `ty.rnn.BucketSentenceIter`.
--
-- A sentence goes to the smallest bucket that holds it and is padded with `invalid_label`. Labels
-- are the words shifted by one step. Each epoch shuffles the order of the batches and the sentences
-- within each bucket, starting from the order of the epoch before. Rows that do not fill a batch
-- are left out; they differ from epoch to epoch.
--
-- The words are in C memory: `_words` and `_starts` (sentence i, from 0, is _words[_starts[i]] up
-- to but not including _words[_starts[i + 1]]), and for each bucket the numbers of its sentences in
-- the epoch's order.
--
-- @module tycho.rnn.bucket_iter

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local host = require "tycho.ndarray.transfer"
local io_data = require "tycho.io.data"
local log = require "tycho.core.log"
local nd = require "tycho.ndarray"
local Numbers = require "tycho.core.numbers"
local values = require "tycho.core.values"

local FUNC = "rnn.BucketSentenceIter"
local is_array, is_plain = class.is_array, values.is_plain

--- An iterator over sentences. Fields: buckets (lengths of the buckets that have sentences),
-- default_bucket_key (the largest), ndiscard (number of sentences that are too long), batch_size,
-- layout, provide_data, provide_label.
-- @type BucketSentenceIter
local BucketSentenceIter = io_data.DataIter:extend("BucketSentenceIter")

local FORM = args.form(FUNC, {
  { "sentences", "list" }, { "batch_size", "positive" }, { "buckets", "dims?" },
  { "invalid_label", "number", -1 }, { "data_name", "text", "data" },
  { "label_name", "text", "softmax_label" }, { "dtype", "dtype", "float32" },
  { "layout", { "NT", "TN" }, "NT" }, { "seed", "integer?" }, { "shuffle", "boolean", true },
})


local function fail(code, argument, expected, got, message)
  Error.raise{ code = code, func = FUNC, argument = argument, expected = expected,
    got = got, message = message }
end


-- Sentences ---------------------------------------------------------------------------------------

local function add_array(words, x)
  local p = host.read(x, FUNC)
  for i = 0, x.size - 1 do
    words:add(tonumber(p[i]))
  end
end


local function add_list(words, list, i)
  for _, word in ipairs(list) do
    if type(word) ~= "number" or word ~= math.floor(word) then
      fail("type", "sentences", "integers", Error.kind(word), ("bad word in sentence %d"):format(i))
    end
    words:add(word)
  end
end


local function read_sentences(self, sentences)
  local words, starts = Numbers(), Numbers()
  starts:add(0)
  for i, sentence in ipairs(sentences) do
    if is_array(sentence) then
      add_array(words, sentence)
    elseif is_plain(sentence) then
      add_list(words, sentence, i)
    else
      fail("type", "sentences", "lists of numbers or arrays", Error.kind(sentence),
        ("bad sentence %d"):format(i))
    end
    starts:add(words.n)
  end
  self._words, self._starts, self._count = words.p, starts.p, #sentences
end


local function length_of(self, i)
  return self._starts[i + 1] - self._starts[i]
end


-- Buckets -----------------------------------------------------------------------------------------

-- Returns every length of which there are at least `batch_size` sentences.
local function usual_lengths(self)
  local counts, list = {}, {}
  for i = 0, self._count - 1 do
    local n = length_of(self, i)
    counts[n] = (counts[n] or 0) + 1
  end
  for n, count in pairs(counts) do
    if n > 0 and count >= self.batch_size then
      list[#list + 1] = n
    end
  end
  return list
end


-- Returns the lengths of the buckets, sorted; E(value) for a length below 1.
local function sorted_buckets(self, given)
  local keys = given and #given > 0 and given or usual_lengths(self)
  table.sort(keys)
  if keys[1] and keys[1] < 1 then
    fail("value", "buckets", "lengths of at least 1", keys[1], "bad 'buckets'")
  end
  return keys
end


-- Returns the position of the smallest bucket for a length, nil if it is too long.
local function bucket_for(keys, length)
  for i, key in ipairs(keys) do
    if length <= key then
      return i
    end
  end
end


-- Sorts sentence numbers into buckets and drops empty buckets; `ndiscard` counts sentences that are
-- too long.
local function fill_buckets(self, keys)
  local rows = {}
  for i in ipairs(keys) do
    rows[i] = Numbers()
  end
  self.ndiscard = 0
  for s = 0, self._count - 1 do
    local i = bucket_for(keys, length_of(self, s))
    if i then
      rows[i]:add(s)
    else
      self.ndiscard = self.ndiscard + 1
    end
  end
  self.buckets, self._rows = {}, {}
  for i, key in ipairs(keys) do
    if rows[i].n > 0 then
      table.insert(self.buckets, key)
      table.insert(self._rows, rows[i])
    end
  end
end


-- Returns all batches as {bucket, first row}; buckets count from 1, rows from 0.
local function list_batches(self)
  local plan = {}
  for i, rows in ipairs(self._rows) do
    for first = 0, rows.n - self.batch_size, self.batch_size do
      plan[#plan + 1] = { i, first }
    end
  end
  return plan
end


-- Construction ------------------------------------------------------------------------------------

-- Returns the descriptions of a batch of a bucket.
local function describe(self, name, key)
  local shape = self.layout == "NT" and { self.batch_size, key } or { key, self.batch_size }
  return { io_data.DataDesc(name, shape, self.dtype, self.layout) }
end


-- Returns the first state of the random generator: 1 to 2^31 - 2.
local function first_random(seed)
  if not seed then
    seed = nd.random.randint{ 0, 2 ^ 31 - 2, ctx = context.cpu() }:asscalar()
  end
  return seed % (2 ^ 31 - 2) + 1
end


--- @tparam table sentences lists of word numbers, or int32 arrays
-- @int batch_size sentences per batch
-- @tparam[opt] {int,...} buckets lengths; default: every length of which there are at least
--   `batch_size` sentences
-- @tparam[opt] table options invalid_label = -1, data_name = "data", label_name = "softmax_label",
--   dtype = "float32", layout = "NT" (or "TN"), seed (default: from the random state of cpu(0)),
--   shuffle = true
function BucketSentenceIter:init(...)
  local a = FORM(...)
  BucketSentenceIter.super.init(self, { batch_size = a.batch_size })
  for _, key in ipairs{ "invalid_label", "data_name", "label_name", "dtype",
      "layout", "shuffle" } do
    self[key] = a[key]
  end
  read_sentences(self, a.sentences)
  fill_buckets(self, sorted_buckets(self, a.buckets))
  if #self.buckets == 0 then
    fail("value", "sentences", "sentences that fit a bucket", self._count .. " sentences",
      a.buckets and "no sentence fits a bucket"
        or "no length has enough sentences for a batch; name the buckets")
  elseif self.ndiscard > 0 then
    log:warning(
      ("BucketSentenceIter: %d sentences are longer than the largest bucket and are left out")
        :format(self.ndiscard))
  end
  self.default_bucket_key = self.buckets[#self.buckets]
  self.provide_data = describe(self, self.data_name, self.default_bucket_key)
  self.provide_label = describe(self, self.label_name, self.default_bucket_key)
  self._plan, self._random = list_batches(self), a.shuffle and first_random(a.seed) or 1
  self:reset()
end


-- Order -------------------------------------------------------------------------------------------

-- Returns a random integer from 0 to n - 1. The multiplicative generator modulo 2^31 - 1 is exact
-- in doubles.
local function draw(self, n)
  self._random = self._random * 16807 % 2147483647
  return math.floor(self._random / 2147483647 * n)
end


-- Shuffles n entries of a list from position `first`.
local function shuffle(self, list, first, n)
  for i = n - 1, 1, -1 do
    local k = draw(self, i + 1)
    list[first + i], list[first + k] = list[first + k], list[first + i]
  end
end


--- Begins a new epoch, in another order if `shuffle` is set.
function BucketSentenceIter:reset()
  self._at, self.current_batch = 0, nil
  if not self.shuffle then
    return
  end
  shuffle(self, self._plan, 1, #self._plan)
  for _, rows in ipairs(self._rows) do
    shuffle(self, rows.p, 0, rows.n)
  end
end


-- Batches -----------------------------------------------------------------------------------------

-- Writes the words of rows first, first + 1, ... into data, and shifted by one step into label.
-- `across` is the distance in elements from row to row, `along` from step to step.
local function write(self, rows, first, key, data, label, across, along)
  local words, starts, invalid = self._words, self._starts, self.invalid_label
  for r = 0, self.batch_size - 1 do
    local s = rows[first + r]
    local from, n = starts[s], starts[s + 1] - starts[s]
    local at = r * across
    for t = 0, key - 1 do
      data[at + t * along] = t < n and words[from + t] or invalid
      label[at + t * along] = t + 1 < n and words[from + t + 1] or invalid
    end
  end
end


-- Returns an array for a batch's values; 16-bit types are written as float32 and converted later.
local function buffer(desc)
  local half = desc.dtype == "float16" or desc.dtype == "bfloat16"
  return class.new(desc.shape, args.DTYPES[half and "float32" or desc.dtype],
    context.cpu()._device, FUNC)
end


-- Makes the batch of an entry {bucket, first row}.
local function fill_batch(self, entry)
  local bucket, first = entry[1], entry[2]
  local key = self.buckets[bucket]
  local data_desc, label_desc = describe(self, self.data_name, key),
    describe(self, self.label_name, key)
  local data, label = buffer(data_desc[1]), buffer(label_desc[1])
  local across, along = key, 1
  if self.layout == "TN" then
    across, along = 1, self.batch_size
  end
  write(self, self._rows[bucket].p, first, key, data:data(), label:data(), across, along)
  if data.dtype ~= self.dtype then
    data, label = data:astype(self.dtype), label:astype(self.dtype)
  end
  return io_data.DataBatch{ data = { data }, label = { label }, pad = 0, bucket_key = key,
    provide_data = data_desc, provide_label = label_desc }
end


--- Moves to the next batch; returns false at the end.
function BucketSentenceIter:iter_next()
  self._at = math.min(self._at + 1, #self._plan + 1)
  local entry = self._plan[self._at]
  self.current_batch = entry and fill_batch(self, entry)
  return self:_has_current()
end


--- Returns the next batch, nil at the end of the epoch.
function BucketSentenceIter:next()
  return self:_hand_out()
end


function BucketSentenceIter:getdata() return self.current_batch and self.current_batch.data end
function BucketSentenceIter:getlabel() return self.current_batch and self.current_batch.label end
function BucketSentenceIter.getpad(_) return 0 end


-- State -------------------------------------------------------------------------------------------

function BucketSentenceIter:state()
  local plan, rows = {}, {}
  for i, entry in ipairs(self._plan) do
    plan[i] = { entry[1], entry[2] }
  end
  for i, list in ipairs(self._rows) do
    rows[i] = ffi.string(list.p, 4 * list.n)
  end
  return { kind = "BucketSentenceIter", at = self._at, random = self._random,
    plan = plan, rows = rows }
end


-- Returns whether a state fits the batches of this iterator.
local function fits(self, state)
  if type(state) ~= "table" or state.kind ~= "BucketSentenceIter" or #state.plan ~= #self._plan
    or #state.rows ~= #self._rows then
    return false
  end
  for i, list in ipairs(self._rows) do
    if #state.rows[i] ~= 4 * list.n then
      return false
    end
  end
  return true
end


function BucketSentenceIter:set_state(state)
  if not fits(self, state) then
    Error.raise{ code = "value", func = "BucketSentenceIter:set_state", argument = "state",
      message = "the state is that of another iterator" }
  end
  self._at, self._random, self.current_batch = state.at, state.random, nil
  for i, entry in ipairs(state.plan) do
    self._plan[i] = { entry[1], entry[2] }
  end
  for i, list in ipairs(self._rows) do
    ffi.copy(list.p, state.rows[i], 4 * list.n)
  end
end


return { BucketSentenceIter = BucketSentenceIter }
