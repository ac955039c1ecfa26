-- Trains for some epochs, from the start or from a file, and prints the bytes of its parameters;
-- run by spec/module/resume_spec.lua.
--   tycho spec/support/resume.lua KIND OPTIMIZER EPOCHS PREFIX [resume]
-- KIND: module, bucketing, devices (two), compressed (two devices with 2-bit gradients), steps (an
-- epoch is one step, so that a checkpoint follows each step, and prints its loss). The data is
-- shuffled and there is dropout, so that all random state matters.

local ty = require "tycho"

local kind, optimizer, epochs, prefix, resume = arg[1], arg[2], tonumber(arg[3]),
  arg[4], arg[5] == "resume"

local OPTIMIZERS = {
  sgd = { learning_rate = 0.1, momentum = 0.9, wd = 1e-3 },
  adam = { learning_rate = 0.01,
    lr_scheduler = ty.lr_scheduler.FactorScheduler{ step = 7, factor = 0.9, base_lr = 0.01 } },
}

local function head(x)
  x = ty.sym.Dropout{ data = ty.sym.Activation{ data = x, act_type = "tanh" }, p = 0.3 }
  return ty.sym.SoftmaxOutput{
    data = ty.sym.FullyConnected{ data = x, num_hidden = 3, name = "fc2" }, name = "softmax" }
end

local function plain()
  ty.random.seed(11)
  local x = ty.nd.random.normal{ shape = { 50, 4 } }
  local data = ty.io.NDArrayIter{ data = x,
    label = x:slice_axis{ axis = 1, begin = 0, end_ = 3 }:argmax{ axis = 1 },
    batch_size = kind == "steps" and 50 or 8, shuffle = true }
  local net = head(ty.sym.BatchNorm{ data = ty.sym.FullyConnected{ data = ty.sym.Variable("data"),
    num_hidden = 6, name = "fc1" } })
  return ty.mod.Module{ symbol = net,
    context = (kind == "devices" or kind == "compressed") and { ty.cpu(0), ty.cpu(1) } or nil,
    compression_params = kind == "compressed" and { type = "2bit", threshold = 0.02 } or nil }, data
end

-- Returns an iterator over sentences of 3 and 5 words; the label of a word is the next word.
local function buckets()
  math.randomseed(3)
  local sentences = {}
  for i = 1, 60 do
    local words = {}
    for k = 1, i % 3 == 0 and 5 or 3 do
      words[k] = math.random(1, 7)
    end
    sentences[i] = words
  end
  local data = ty.rnn.BucketSentenceIter{ sentences, 4, buckets = { 3, 5 },
    invalid_label = 0, seed = 5 }
  local function generate(length)
    local x = ty.sym.Embedding{ data = ty.sym.Variable("data"), input_dim = 8,
      output_dim = 4, name = "embed" }
    local outputs = ty.rnn.GRUCell(5, { prefix = "gru_" })
      :unroll(length, x, { layout = "NTC", merge_outputs = true })
    x = ty.sym.Dropout{ data = ty.sym.Reshape{ data = outputs, shape = { -1, 5 } }, p = 0.2 }
    x = ty.sym.FullyConnected{ data = x, num_hidden = 8, name = "fc" }
    return ty.sym.SoftmaxOutput{ data = x,
      label = ty.sym.Reshape{ data = ty.sym.Variable("softmax_label"), shape = { -1 } },
      name = "softmax" }, { "data" }, { "softmax_label" }
  end
  return ty.mod.BucketingModule{ sym_gen = generate,
    default_bucket_key = data.default_bucket_key }, data
end

local function tell_loss(at)
  print(("loss %d %a"):format(at.epoch, select(2, at.eval_metric:get())))
  io.stdout:flush()
end

ty.log.level = os.getenv("TYCHO_LOG") or "error"
local module, data = (kind == "bucketing" and buckets or plain)()
ty.random.seed(resume and 99 or 5)                       -- a resumed run restores its state
module:fit{ train_data = data, num_epoch = epochs, kvstore = "device", optimizer = optimizer,
  optimizer_params = OPTIMIZERS[optimizer], eval_metric = ty.metric.Perplexity(ty.null),
  initializer = ty.init.Xavier(), checkpoint = { prefix = prefix, resume = resume },
  batch_end_callback = kind == "steps" and tell_loss or nil }

local function hex(text)
  return (text:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

local lines = {}
for _, dict in ipairs{ module:get_params() } do
  for name, x in pairs(dict) do
    lines[#lines + 1] = name .. " " .. hex(x:tostring_raw())
  end
end
table.sort(lines)
print(table.concat(lines, "\n"))
