-- The training scripts on text: what they read, that they learn, keep and continue a
-- training, and end with a figure.

local folders = require "spec.support.folder"
local shell = require "spec.support.shell"
local text = assert(loadfile("scripts/lib/text.lua"))()

local write, in_folder = folders.write, folders.with

-- Returns sentences in which every word follows from the one before, with words that come once.
local function sample(n)
  local lines = {}
  for i = 1, n do
    local words = {}
    for t = 1, i % 9 + 3 do
      words[t] = "w" .. (i + 2 * t) % 12
    end
    lines[i] = table.concat(words, " ") .. (i % 50 == 0 and " rare" .. i or "")
  end
  return table.concat(lines, "\n") .. "\n"
end

local function script(name, arguments)
  local output, status = shell.tycho(("scripts/%s.lua %s"):format(name, arguments))
  assert.are.equal(0, status, output)
  return output
end

-- Returns all perplexities of the validation (or "Train"ing), as the log has them after each epoch.
local function perplexities(output, which)
  local list = {}
  for p in output:gmatch((which or "Validation") .. "%-perplexity=([%d.]+)") do
    list[#list + 1] = tonumber(p)
  end
  return list
end

describe("text", function()
  it("of its own is in the library", function()
    local train, test = text.sentences()
    assert.is_true(text.words(train) > 10000 and #test > 100)
    local counts = text.count(train)
    assert.is_true(counts.array > 50 and counts["<unk>"] > 0)
    for _, words in ipairs(test) do
      for _, word in ipairs(words) do
        assert.is_not_nil(counts[word], word)
      end
    end
    assert.is_true(#text.characters() > 50000)
  end)

  it("comes from a file or from a folder in the format of Penn Treebank", function()
    in_folder(function(folder)
      write(folder .. "/ptb.valid.txt", " a b <unk> \n b c \n\n")
      write(folder .. "/ptb.test.txt", " a z \n")
      local train, test = text.sentences(folder)
      assert.same({ { "a", "b", "<unk>", "<eos>" }, { "b", "c", "<eos>" } }, train)
      assert.same({ { "a", "<unk>", "<eos>" } }, test)
      write(folder .. "/ptb.train.txt", " q \n")
      assert.same({ { "q", "<eos>" } }, (text.sentences(folder)))
      write(folder .. "/none.txt", "")
      local ok, e = pcall(text.characters, folder .. "/none.txt")
      assert.is_true(not ok and e:find("none.txt is empty", 1, true) ~= nil, e)
      write(folder .. "/lines.txt", ("x y\n"):rep(20))
      train, test = text.sentences(folder .. "/lines.txt")
      assert.same({ 18, 2 }, { #train, #test })
    end)
  end)
end)

describe("lstm_bucketing", function()
  for _, fused in ipairs{ "", "--fused" } do
    it("learns a file, in the memory of the largest bucket " .. fused, function()
      shell.with_file(sample(400), function(path)
        local options = "--quick --epochs 6 --rate 0.01 --buckets 6,12 --batch 8"
        local output = script("lstm_bucketing", ("%s --data %s %s"):format(options, path, fused))
        local p, q = perplexities(output, "Train"), perplexities(output)
        assert.same({ 6, 6 }, { #p, #q })
        assert.is_true(p[6] < 0.6 * p[1] and q[6] < 2.5, output)
        local all, largest =
          output:match("memory of all buckets ([%d.]+) MB, of the largest one ([%d.]+) MB")
        assert.is_true(tonumber(all) <= 1.02 * tonumber(largest) + 0.1, output)
        assert.is_true(output:match("test perplexity ([%d.]+) %(best") ~= nil, output)
      end)
    end)
  end

  it("continues a training as if it had never ended", function()
    in_folder(function(folder)
      write(folder .. "/train.txt", sample(200))
      local base = ("--quick --sentences 1 --buckets 6,12 --batch 8 --data %s/train.txt")
        :format(folder)
      local straight = perplexities(script("lstm_bucketing", base .. " --epochs 3"))
      local files = (" --checkpoint %s/lm --log %s/log"):format(folder, folder)
      script("lstm_bucketing", base .. files .. " --epochs 1")
      local rest = script("lstm_bucketing",
        base .. files .. (" --epochs 3 --resume --plot %s/curve.svg"):format(folder))
      assert.same({ straight[2], straight[3] }, perplexities(rest))
      local rows = 0
      for line in io.lines(folder .. "/log") do
        rows = rows + (line:match('^{"epoch": %d, .*"valid": [%d.]+') and 1 or 0)
      end
      assert.are.equal(3, rows)
      assert.is_not_nil(io.open(folder .. "/curve.svg"):read("*a"):match("<svg"))
    end)
  end)

  it("says what is wrong with its options", function()
    local output, status = shell.tycho("scripts/lstm_bucketing.lua --data /no/such/file")
    assert.is_true(status ~= 0 and output:find("/no/such/file", 1, true) ~= nil, output)
    assert.is_true(script("lstm_bucketing", "--help"):find("--fused", 1, true) ~= nil)
  end)
end)

describe("char_rnn", function()
  it("learns a text with one way to go on, and continues", function()
    in_folder(function(folder)
      write(folder .. "/text", ("the quick brown fox. "):rep(700))
      local base =
        ("--quick --data %s/text --epochs 4 --rate 0.02 --batch 4 --length 20 --write 60")
        :format(folder)
      local output = script("char_rnn", base)
      assert.is_true(tonumber(output:match("([%d.]+) bits per character on the last tenth")) < 0.2,
        output)
      assert.is_not_nil(output:find("quick brown fox", 1, true), output)
      local kept = (" --checkpoint %s/run"):format(folder)
      script("char_rnn", base .. kept .. " --epochs 2")
      local rest = script("char_rnn", base .. kept .. " --resume")
      assert.are.equal(output:match("([%d.]+) bits per character on"),
        rest:match("([%d.]+) bits per character on"))
    end)
  end)
end)

describe("gpt", function()
  it("learns a text with one way to go on, and continues", function()
    in_folder(function(folder)
      write(folder .. "/text", ("the quick brown fox. "):rep(700))
      local output = script("gpt", ("--quick --data %s/text --steps 100 --rate 0.005 --batch 8 \z
        --length 32 --write 60"):format(folder))
      assert.is_true(tonumber(output:match("([%d.]+) bits per character on the last tenth")) < 0.2,
        output)
      assert.is_not_nil(output:find("quick brown fox", 1, true), output)
    end)
  end)

  it("goes on from a checkpoint", function()
    in_folder(function(folder)
      write(folder .. "/text", ("the quick brown fox. "):rep(700))
      local base = ("--quick --data %s/text --batch 4 --length 32 --write 0 --checkpoint %s/run")
        :format(folder, folder)
      script("gpt", base .. " --steps 6")
      local rest = script("gpt", base .. " --steps 12 --resume")
      assert.is_not_nil(rest:find("step 6: resumed", 1, true), rest)
      assert.is_not_nil(rest:find("step 12:", 1, true), rest)
    end)
  end)
end)

describe("seq2seq_reverse", function()
  it("learns to write backwards", function()
    local output = script("seq2seq_reverse", "--symbols 5 --longest 8 --epochs 6 --steps 80")
    assert.is_true(tonumber(output:match("accuracy ([%d.]+)")) > 0.9, output)
  end)

  it("continues a training as if it had never ended", function()
    in_folder(function(folder)
      local base = "--symbols 5 --longest 8 --steps 20"
      local straight = script("seq2seq_reverse", base .. " --epochs 4")
      local kept = (" --checkpoint %s/run"):format(folder)
      script("seq2seq_reverse", base .. kept .. " --epochs 2")
      local rest = script("seq2seq_reverse", base .. kept .. " --epochs 4 --resume")
      for _, pattern in ipairs{ "Epoch%[3%] Validation[^\n]*", "accuracy [%d.]+" } do
        assert.are.equal(assert(straight:match(pattern)), rest:match(pattern))
      end
    end)
  end)
end)
