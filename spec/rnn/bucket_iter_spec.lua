-- Sentences for recurrent networks: words as numbers, batches from buckets of equal lengths, texts
-- of mistakes.

local ffi = require "ffi"
local ty = require "tycho"

local V = ty.sym.Variable
local level = ty.log.level

setup(function() ty.log.level = "error" end)
teardown(function() ty.log.level = level end)

describe("BucketSentenceIter", function()
  local function sentences(n)
    local list = {}
    for i = 1, n do
      list[i] = {}
      for t = 1, i % 7 + 1 do list[i][t] = i * 10 + t end
    end
    return list
  end

  local function epoch(it)
    local texts = {}
    for batch in it do
      texts[#texts + 1] = batch.bucket_key .. ":"
        .. table.concat(batch.data[1]:reshape{ -1 }:totable(), " ")
    end
    return texts
  end

  it("gives every sentence at most once, with labels one step on", function()
    local it = ty.rnn.BucketSentenceIter{ sentences(50), 4, buckets = { 3, 7 },
      invalid_label = 0, seed = 1 }
    local seen = {}
    for _ = 1, 3 do
      seen = {}
      for batch in it do
        local rows, labels = batch.data[1]:totable(), batch.label[1]:totable()
        assert.same({ 4, batch.bucket_key }, batch.provide_data[1].shape)
        for r, row in ipairs(rows) do
          assert.is_nil(seen[row[1]])
          seen[row[1]] = true
          for t in ipairs(row) do
            assert.are.equal(row[t + 1] or 0, labels[r][t])
          end
        end
      end
      it:reset()
    end
    local n = 0
    for _ in pairs(seen) do n = n + 1 end
    assert.are.equal(48, n)
  end)

  it("shuffles by its seed, else by the engine's", function()
    local function make(seed)
      return ty.rnn.BucketSentenceIter{ sentences(40), 2, buckets = { 7 }, seed = seed }
    end
    local a, b = make(3), make(3)
    local first = epoch(a)
    assert.same(first, epoch(b))
    assert.are_not.same(first, epoch(make(4)))
    a:reset()
    b:reset()
    local second = epoch(a)
    assert.are_not.same(first, second)
    assert.same(second, epoch(b))
    ty.random.seed(9)
    local c = epoch(make())
    ty.random.seed(9)
    assert.same(c, epoch(make()))
  end)

  it("goes on from its state", function()
    local function make()
      return ty.rnn.BucketSentenceIter{ sentences(40), 2, buckets = { 4, 7 }, seed = 5 }
    end
    local a, b = make(), make()
    epoch(a)
    a:reset()
    a:next()
    b:set_state(a:state())
    assert.same(epoch(a), epoch(b))
    a:reset()
    b:reset()
    assert.same(epoch(a), epoch(b))
    local other = ty.rnn.BucketSentenceIter{ sentences(10), 2, buckets = { 7 } }
    assert.raises("value", other.set_state, other, a:state())
  end)

  it("takes arrays of words, other element types and the layout TN", function()
    local coded = ty.rnn.encode_sentences({ { "a", "b", "c" }, { "b", "c" } },
      { invalid_label = 0, start_label = 1 })
    for _, dtype in ipairs{ "float16", "float32", "float64", "int32", "int64" } do
      local it = ty.rnn.BucketSentenceIter{ coded, 2, buckets = { 3 }, invalid_label = 0,
        dtype = dtype, layout = "TN", shuffle = false }
      local batch = it:next()
      assert.are.equal(dtype, batch.data[1].dtype)
      assert.same({ { 1, 2 }, { 2, 3 }, { 3, 0 } }, batch.data[1]:totable())
      assert.same({ { 2, 3 }, { 3, 0 }, { 0, 0 } }, batch.label[1]:totable())
      assert.is_nil(it:next())
    end
  end)

  it("trains a BucketingModule in the memory of the largest bucket", function()
    local stack = ty.rnn.SequentialRNNCell{}
    for i = 0, 1 do stack:add(ty.rnn.LSTMCell{ 16, prefix = ("l%d_"):format(i) }) end
    local function network(length)
      local x = ty.sym.Embedding{ V "data", input_dim = 8, output_dim = 8, name = "embed" }
      local out = stack:unroll{ length = length, inputs = x, merge_outputs = true }
      out = ty.sym.FullyConnected{ ty.sym.reshape{ out, shape = { -1, 16 } },
        num_hidden = 8, name = "pred" }
      local label = ty.sym.reshape{ V "softmax_label", shape = { -1 } }
      return ty.sym.SoftmaxOutput{ out, label, use_ignore = true, ignore_label = 0,
        name = "softmax" }, { "data" }, { "softmax_label" }
    end
    local list = {}                                      -- each word follows from the one before
    for i = 1, 60 do
      list[i] = {}
      for t = 1, i % 6 + 2 do list[i][t] = (i + t * 3) % 7 + 1 end
    end
    local it = ty.rnn.BucketSentenceIter{ list, 5, buckets = { 3, 5, 7 },
      invalid_label = 0, seed = 2 }
    ty.random.seed(1)
    local m = ty.mod.BucketingModule{ network, default_bucket_key = 7 }
    m:fit{ train_data = it, num_epoch = 12, eval_metric = ty.metric.Perplexity(0),
      optimizer = "adam", optimizer_params = { learning_rate = 0.02 } }
    it:reset()
    local perplexity = m:score(it, ty.metric.Perplexity(0))[1][2]
    assert.is_true(perplexity < 1.3, tostring(perplexity))
    local memory = m:memory()
    assert.is_true(memory.pool <= 1.02 * memory.largest)
  end)

  it("names mistakes", function()
    local function mistake(code, text, f, ...)
      local e = assert.raises(code, f, ...)
      assert.is_true(tostring(e):find(text, 1, true) ~= nil, tostring(e))
      return e
    end

    mistake("name", "unknown_token", ty.rnn.encode_sentences, { { "z" } }, { vocab = {} })
    mistake("type", "lists of words", ty.rnn.encode_sentences, { "a b" })
    mistake("type", "corpus", ty.rnn.encode_sentences, "a b")
    mistake("type", "integers", ty.rnn.BucketSentenceIter, { { { 1.5 } }, 1, buckets = { 2 } })
    mistake("value", "NT or TN", ty.rnn.BucketSentenceIter, { { { 1 } }, 1, layout = "TC" })
    mistake("value", "name the buckets", ty.rnn.BucketSentenceIter, { { { 1 } }, 2 })
    mistake("value", "fits a bucket", ty.rnn.BucketSentenceIter,
      { { { 1, 2, 3 } }, 1, buckets = { 2 } })
    mistake("value", "at least 1", ty.rnn.BucketSentenceIter, { { { 1 } }, 0 })
  end)
end)

describe("words as numbers", function()
  it("are int32 arrays in one block of C memory", function()
    local coded, vocab = ty.rnn.encode_sentences({ { "a", "b" }, {}, { "b", "c", "a" } })
    assert.are.equal(3, #coded)
    assert.same({ 1, 2, 0 }, coded[3]:totable())
    assert.same({}, coded[2])
    assert.same({ a = 0, b = 1, c = 2, ["\n"] = -1 }, vocab)
    assert.are.equal(8, ffi.cast("char *", coded[3]:data()) - ffi.cast("char *", coded[1]:data()))
  end)
end)
