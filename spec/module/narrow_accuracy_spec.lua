-- What bfloat16 and int8 cost the accuracy of networks that are trained here, on images that are
-- drawn (scripts/train_mnist.lua, train_cifar10.lua) and on the library's documentation, or on Penn
-- Treebank where NARROW_TEXT names its folder, with NARROW_SEEDS seeds: those of its small files
-- differ by 7 %, more than the bound, so that one alone says nothing.

local ty = require "tycho"

describe("narrow types", function()
  local path = package.path
  package.path = "scripts/lib/?.lua;" .. path
  local images, networks, text = require "images", require "networks", require "text"
  package.path = path
  local function nothing() end
  local quiet = { info = nothing, warning = nothing, debug = nothing, error = nothing }
  -- Means are compared: two ResNet-20 in bfloat16, trained on 4,000 pictures, had 0.988 and 0.997.
  local RESNET_SEEDS = { 1, 2, 3 }

  -- Trains a network and returns its score on `test`, and the module.
  local function trained(net, train, test, metric, options, seed)
    ty.random.seed(seed)
    math.randomseed(seed)
    train:reset()
    test:reset()
    local m = ty.mod.Module{ net, logger = quiet }
    options.train_data, options.eval_metric = train, metric()
    m:fit(options)
    test:reset()
    return m:score(test, metric())[1][2], m
  end

  -- Returns the scores of float32, `medium` and bfloat16, and the first module.
  local function three(net, train, test, metric, options, seed)
    local scores, first = {}, nil
    for i, precision in ipairs{ "highest", "medium", "bfloat16" } do
      local own = { precision = precision ~= "bfloat16" and precision or nil }
      for key, value in pairs(options) do own[key] = value end
      if precision == "bfloat16" then ty.amp.init() end
      local m
      scores[i], m = trained(net, train, test, metric, own, seed or 1)
      ty.amp.off()
      first = first or m
    end
    return scores[1], scores[2], scores[3], first
  end

  local function quantized(m, train, test, mode)
    local arg, aux = m:get_params()
    train:reset()
    local q, qarg, qaux = ty.contrib.quantization.quantize_model{ sym = m.symbol,
      arg_params = arg, aux_params = aux, calib_mode = mode, calib_data = train,
      num_calib_examples = 500 }
    test:reset()
    local int8 = ty.mod.Module{ q, logger = quiet }
    int8:bind{ data_shapes = test.provide_data, label_shapes = test.provide_label,
      for_training = false }
    int8:set_params(qarg, qaux)
    return int8:score(test, "acc")[1][2]
  end

  local function accuracy() return ty.metric.Accuracy{} end

  it("keep a LeNet's accuracy #slow", function()
    ty.random.seed(1)
    local x, y = images.load(nil, { 1, 28, 28 }, 10000, 1)
    local train, test = images.split(x, y, { train = 8000, test = 2000, batch = 100 })
    local exact, medium, mixed, m = three(networks.lenet{ classes = 10 }, train, test, accuracy,
      { num_epoch = 4, initializer = ty.init.Xavier(),
        optimizer_params = { learning_rate = 0.1, momentum = 0.9 } })
    print(("LeNet: float32 %.4f, medium %.4f, bfloat16 %.4f"):format(exact, medium, mixed))
    assert.is_true(exact >= 0.985 and medium >= 0.985 and mixed >= 0.985)
    for _, mode in ipairs{ "naive", "entropy" } do
      local score = quantized(m, train, test, mode)
      print(("LeNet: int8, %s: %.4f"):format(mode, score))
      assert.is_true(score >= exact - 0.005)
    end
  end)

  it("keep a ResNet-20's accuracy #slow", function()
    ty.random.seed(1)
    -- With 4,000 pictures float32's own seeds differ by 0.4 points, which is more than the bound.
    local n, held = 8000, 2000
    local x, y = images.load(nil, { 3, 32, 32 }, n + held, 1)
    local train, test = images.split(x, y, { train = n, test = held, batch = 50 })
    local steps = n / 50
    local all, m, exact = { 0, 0, 0 }, nil, nil
    for _, seed in ipairs(RESNET_SEEDS) do
      local scores = { three(networks.resnet{ depth = 20, classes = 10 }, train, test, accuracy,
        { num_epoch = 8, initializer = ty.init.Xavier{ factor_type = "in", magnitude = 2 },
          optimizer_params = { learning_rate = 0.1, momentum = 0.9, wd = 1e-4,
            lr_scheduler = ty.lr_scheduler.MultiFactorScheduler{ step = { 4 * steps, 6 * steps },
              factor = 0.1 } } }, seed) }
      print(("ResNet-20, seed %d: float32 %.4f, medium %.4f, bfloat16 %.4f"):format(seed,
        unpack(scores, 1, 3)))
      for i = 1, 3 do all[i] = all[i] + scores[i] / #RESNET_SEEDS end
      m, exact = scores[4], scores[1]
    end
    print(("ResNet-20: float32 %.4f, medium %.4f, bfloat16 %.4f"):format(unpack(all)))
    assert.is_true(all[2] >= all[1] - 0.003 and all[3] >= all[1] - 0.003)
    for _, mode in ipairs{ "naive", "entropy" } do
      local score = quantized(m, train, test, mode)
      print(("ResNet-20: int8, %s: %.4f"):format(mode, score))
      assert.is_true(score >= exact - 0.005)
    end
  end)

  -- Returns sentences one after the other, cut into rows of `length` words.
  local function make_rows(sentences, vocabulary, length, batch)
    local words = {}
    for _, sentence in ipairs(sentences) do
      for _, word in ipairs(sentence) do
        words[#words + 1] = vocabulary[word] or vocabulary["<unk>"]
      end
    end
    local n = math.floor((#words - 1) / length)
    n = n - n % batch
    local data = ty.nd.array(words)
    local function cut(from)
      return data:slice_axis{ axis = 0, begin = from, end_ = from + n * length }
        :reshape{ n, length }
    end
    return ty.io.NDArrayIter{ data = cut(0), label = cut(1), batch_size = batch }
  end

  it("keep a language model's perplexity #slow", function()
    local train_words, test_words = text.sentences(os.getenv("NARROW_TEXT"))
    local vocabulary, size = { ["<unk>"] = 0 }, 1
    for _, sentence in ipairs(train_words) do
      for _, word in ipairs(sentence) do
        if not vocabulary[word] then vocabulary[word], size = size, size + 1 end
      end
    end
    local length, batch, units = 20, 20, 200
    local train = make_rows(train_words, vocabulary, length, batch)
    local test = make_rows(test_words, vocabulary, length, batch)
    local S = ty.sym
    local x = S.Embedding{ data = S.Variable("data"), input_dim = size, output_dim = units }
    local zero = S.zeros{ shape = { 2, batch, units } }
    x = S.RNN{ data = S.transpose{ x, axes = { 1, 0, 2 } }, state = zero, state_cell = zero,
      parameters = S.Variable{ name = "lstm_parameters",
        init = ty.init.FusedRNN{ ty.init.Uniform(0.1), units, 2, "lstm" } },
      state_size = units, num_layers = 2, mode = "lstm" }
    x = S.reshape{ S.transpose{ x, axes = { 1, 0, 2 } }, shape = { -3, 0 } }
    local net = S.SoftmaxOutput{ data = S.FullyConnected{ data = x, num_hidden = size },
      label = S.reshape{ S.Variable("softmax_label"), shape = { -1 } }, name = "softmax" }
    local seeds, means = tonumber(os.getenv "NARROW_SEEDS" or 1), { 0, 0, 0 }
    for seed = 1, seeds do
      local scores = { three(net, train, test, function()
        return ty.metric.Perplexity{ ty.null }
      end, { num_epoch = 4, initializer = ty.init.Uniform(0.1), optimizer = "adam",
        optimizer_params = { learning_rate = 0.003 } }, seed) }
      print(("language model, %d words, seed %d: perplexity float32 %.2f, medium %.2f, \z
        bfloat16 %.2f"):format(size, seed, unpack(scores, 1, 3)))
      for i = 1, 3 do means[i] = means[i] + scores[i] / seeds end
    end
    print(("language model: mean perplexity float32 %.2f, medium %.2f, bfloat16 %.2f")
      :format(unpack(means)))
    assert.is_true(means[2] <= 1.01 * means[1] and means[3] <= 1.01 * means[1])
  end)
end)
