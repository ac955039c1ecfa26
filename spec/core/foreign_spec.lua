-- Names of PyTorch, NumPy and Torch7 in the place of ours (runtime/lua/tycho/core/foreign.lua).

local args = require "tycho.core.args"
local foreign = require "tycho.core.foreign"
local members = require "tycho.prompt.members"
local registry = require "tycho.op.registry"
local ty = require "tycho"
require "spec.helper"

local x = ty.nd.ones{ 2, 3 }
local data = ty.sym.Variable "data"

-- ours, and what users of another library write
local CASES = {
  { "reshape", function() return x:view(6) end },
  { "copy", function() return x:clone() end },
  { "asscalar", function() return x:item() end },
  { "totable", function() return x:asnumpy() end },
  { "expand_dims", function() return x:unsqueeze(0) end },
  { "as_in_context", function() return x:cuda() end },
  { "FullyConnected", function() return ty.sym.Linear{ data, num_hidden = 2 } end },
  { "Convolution", function() return ty.sym.Conv2d{ data } end },
  { "num_filter", function()
    return ty.sym.Convolution{ data, out_channels = 3, kernel = { 3, 3 } }
  end },
  { "kernel", function() return ty.sym.Convolution{ data, num_filter = 3, kernel_size = 3 } end },
  { "num_hidden", function() return ty.sym.FullyConnected{ data, out_features = 3 } end },
  { "learning_rate", function() return ty.optimizer.SGD{ lr = 0.1 } end },
  { "wd", function() return ty.optimizer.SGD{ weight_decay = 0.1 } end },
  { "axis", function() return x:sum{ dim = 0 } end },
  { "lt", function() return x:lesser(1) end },
  { "ge", function() return x:greater_equal(1) end },
  { "eq", function() return x:equal(1) end },
  { "ne", function() return x:not_equal(1) end },
  { "lesser", function() return ty.nd.less(x, 1) end },
  { "lt", function() return x:less(1) end },
  { "fill", function() return x:zero() end },
  { "dim", function() return ty.sym.Concat{ data, data, axis = 1 } end },
  { "BatchNorm", function() return ty.sym.BN{ data } end },
  { "Variable", function() return ty.sym.Placeholder("x") end },
  { "mul_", function() return x:mul(2) end },
  { "nd.array", function() return ty.Tensor end },
  { "nd.zeros", function() return ty.zeros end },
  { "mod.Module", function() return ty.Module end },
  { "sym.Variable", function() return ty.Variable end },
  { "random.seed", function() return ty.manual_seed end },
  { "FactorScheduler", function() return ty.lr_scheduler.StepLR end },
  { "do_checkpoint", function() return ty.callback.ModelCheckpoint end },
  { "print_summary", function() return ty.viz.summary end },
  { "msraprelu", function() return ty.init.create("he") end },
  { "pool_type", function() return ty.sym.Pooling{ data, kernel = { 2, 2 }, type = "max" } end },
  { "nd.concat", function() return ty.cat end },
  { "concat", function() return ty.nd.cat end },
  { "totable", function() return x:numpy() end },
  { "sym.FullyConnected", function() return ty.Linear end },
  { "io.NDArrayIter", function() return ty.DataLoader end },
  { "NDArrayIter", function() return ty.io.DataLoader end },
  { "LSTMCell", function() return ty.rnn.LSTM end },
  { "init.Xavier", function() return ty.xavier_uniform_ end },
  { "MSRAPrelu", function() return ty.init.kaiming_normal_ end },
  { "as_in_context", function() return x:to("cuda") end },
  { "num_gpus", function() return ty.device_count end },
  { "simple_bind", function() return data:forward(x) end },
  { "as_in_context", function() return data:cuda() end },
  { "autograd.pause", function() return ty.no_grad end },
  { "record", function() return ty.autograd.enable_grad end },
  { "gluon.Trainer", function() return ty.Trainer end },
  { "attach_grad", function() return x.requires_grad end },
  { "Dense", function() return ty.gluon.nn.Linear(3, 4) end },
  { "Activation", function() return ty.gluon.nn.ReLU() end },
  { "Conv2DTranspose", function() return ty.gluon.nn.ConvTranspose2d(3, 4) end },
  { "Sequential", function() return ty.gluon.nn.ModuleList() end },
  { "SoftmaxCrossEntropyLoss", function() return ty.gluon.loss.CrossEntropyLoss() end },
  { "L2Loss", function() return ty.gluon.loss.MSELoss() end },
  { "ArrayDataset", function() return ty.gluon.data.TensorDataset(x) end },
}

-- a word that has no counterpart, and a part of the sentence that says what to do
local ADVICE = {
  { "ty.sym.FullyConnected", function() return ty.nn end },
  { "batch_dot", function() return ty.nd.einsum end },
  { "grad_req", function() return x:zero_grad() end },
  { "here it is Module:get_params", function() return data:parameters() end },
  { "here it is ty.random.randn", function() return ty.nd.randn(2, 3) end },
  { "here it is ty.io.NDArrayIter", function() return ty.sym.DataLoader end },
  { "here it is Module:get_params", function() return ty.nd.state_dict end },
}

describe("a name of another library", function()
  for _, case in ipairs(CASES) do
    local ours, f = unpack(case)
    it("teaches " .. ours, function()
      local e = assert.raises("name", f)
      assert.equal(ours, e.candidates[1])
      assert.truthy(e.message:find(("did you mean '%s'?"):format(ours), 1, true), e.message)
    end)
  end

  it("of NumPy's interface, which is left out, says what to use", function()
    for _, name in ipairs{ "np", "npx", "numpy", "numpy_extension", "np_shape" } do
      local e = assert.raises("unsupported", function() return ty[name].ones(2) end)
      assert.equal(name, e.argument)
      assert.truthy(e.message:find("those of ty.nd", 1, true), e.message)
    end
  end)

  for _, case in ipairs(ADVICE) do
    local advice, f = unpack(case)
    it("is answered with " .. advice, function()
      local e = assert.raises("name", f)
      assert.truthy(e.message:find(advice, 1, true), e.message)
      assert.falsy(e.message:find("did you mean", 1, true), e.message)
    end)
  end

  it("gives no advice on functions where an argument or a metric is meant", function()
    local e = assert.raises("name", function() return ty.sym.relu{ data, train = true } end)
    assert.falsy(e.message:find("is_train", 1, true), e.message)
    e = assert.raises("name", function() return ty.metric.create("all") end)
    assert.falsy(e.message:find("comparison", 1, true), e.message)
  end)

  it("teaches element types", function()
    assert.equal("float32", assert.raises("dtype", x.astype, x, "float").candidates[1])
    assert.equal("int64",
      assert.raises("dtype", ty.nd.ones, { 2 }, { dtype = "long" }).candidates[1])
  end)

  it("stands back where its counterpart is not accepted", function()
    local e = assert.raises("name", function() return ty.sym.Activation{ data, lr = 1 } end)
    assert.not_equal("learning_rate", e.candidates[1])
  end)
end)

-- What names of the table stand for ---------------------------------------------------------------

local CLASSES = { NDArray = ty.nd.NDArray, Symbol = ty.sym.Symbol, Module = ty.mod.Module,
  Executor = ty.executor.Executor, Block = ty.gluon.Block, HybridBlock = ty.gluon.HybridBlock,
  ParameterDict = ty.gluon.ParameterDict, Trainer = ty.gluon.Trainer }
local objects = { NDArray = x, Executor = data:simple_bind{ ctx = ty.cpu(), data = { 1 } } }

local function find_value(path)
  local value = ty
  for part in path:gmatch("[%w_]+") do
    value = value[part]
  end
  return value
end

local function has_option(owner, option)
  local schema = registry.find(owner)
  if schema then
    return schema.by_name[option] ~= nil
      or (" " .. schema.inputs .. " "):find("[ %[]" .. option .. "[%] !*]") ~= nil
  end
  return args.forms[owner] ~= nil and args.forms[owner].by_name[option] ~= nil
end

-- Returns whether a word is one that options choose from, or an element type.
local function is_word(word)
  if args.DTYPES[word] then
    return true
  end
  for _, p in ipairs(ty.op.info("Activation").params) do
    if ("|" .. p.type:match("[^ ]+$") .. "|"):find("|" .. word .. "|", 1, true) then
      return true
    end
  end
end

local function exists(name)
  local owner, option = name:match("^(.-){([%w_]+)}$")
  local class, sign, member = name:match("^(%u%w*)([:.])([%w_]+)$")
  if name:find("^'") then
    return is_word(name:sub(2, -2))
  elseif owner then
    return has_option(owner, option)
  elseif sign == ":" then
    return type(CLASSES[class][member]) == "function"
  elseif class and objects[class] then
    return members.set(objects[class])[member] ~= nil
  elseif class then
    return CLASSES[class][member] ~= nil
  end
  return find_value(name) ~= nil
end

it("a layer of PyTorch's torch.nn that is no layer here is named with its place", function()
  for word, want in pairs{ LSTM = "gluon.rnn.LSTM", GRU = "gluon.rnn.GRU",
      LSTMCell = "gluon.rnn.LSTMCell", CrossEntropyLoss = "gluon.loss.SoftmaxCrossEntropyLoss",
      MSELoss = "gluon.loss.L2Loss", Parameter = "gluon.Parameter" } do
    local ok, e = pcall(function() return ty.gluon.nn[word] end)
    assert.is_false(ok)
    assert.truthy(tostring(e):find("here it is ty." .. want, 1, true), tostring(e))
  end
  local _, e = pcall(function() return ty.gluon.nn.Linear end)
  assert.truthy(tostring(e):find("did you mean 'Dense'", 1, true), tostring(e))
end)

describe("the table of foreign names", function()
  it("holds names that exist", function()
    local count, wrong = 0, {}
    for _, topic in ipairs(foreign.TOPICS) do
      for word, text in pairs(topic[2]) do
        assert.equal(word, (word:lower()))
        for name in text:gmatch("%S+") do
          local ok, found = pcall(exists, name)
          wrong[#wrong + 1] = not (ok and found) and word .. ": " .. name or nil
          count = count + 1
        end
      end
    end
    table.sort(wrong)
    assert.equal("", table.concat(wrong, "\n"))
    assert.is_true(count > 400, count)
  end)

  it("gives a word one list", function()
    local seen = {}
    for _, topic in ipairs(foreign.TOPICS) do
      for word in pairs(topic[2]) do
        assert.is_nil(seen[foreign.plain(word)], word)
        seen[foreign.plain(word)] = true
      end
    end
  end)

  it("is heard where its names belong", function()
    for _, topic in ipairs(foreign.TOPICS) do
      for word, text in pairs(topic[2]) do
        local space, last = text:match("^%S+"):match("^(%l[%w_]*)%.([%w_]+)$")
        local ok, e = pcall(function() return ty[space] and ty[space][word] end)
        if space and not ok then
          local same = e.candidates[1] == last or foreign.instead(word)
          assert.is_truthy(same, ("ty.%s.%s: %s"):format(space, word, tostring(e)))
        end
      end
    end
  end)
end)

local NUMPY = [[
  array zeros ones arange linspace shape reshape sum mean std var min max argmin argmax dot
  concatenate vstack hstack stack where sqrt exp log abs sin cos tan rand randn randint seed choice
  shuffle permutation normal uniform transpose asarray empty full eye unique sort argsort isnan
  clip round floor ceil power square maximum minimum expand_dims squeeze newaxis tile repeat split
  array_split append insert delete flip roll zeros_like ones_like full_like empty_like meshgrid
  matmul outer inner einsum tensordot norm inv svd eig solve det cumsum cumprod prod diff median
  percentile histogram bincount any all allclose isclose array_equal nonzero argwhere save load
  savez loadtxt ravel flatten astype copy ndim size dtype tolist swapaxes moveaxis broadcast_to take
  diag trace triu tril logical_and logical_not isfinite isinf nansum sign add subtract multiply
  divide mod set_printoptions ndarray pad]]

local TORCH = [[
  tensor Tensor from_numpy zeros ones rand randn randint randperm arange linspace eye full empty cat
  stack split chunk view reshape permute transpose t squeeze unsqueeze expand repeat flatten
  contiguous gather scatter scatter_ index_select masked_select masked_fill where sum mean std max
  min argmax argmin topk sort matmul mm bmm mul add sub div pow clamp sigmoid tanh relu softmax
  log_softmax norm item numpy tolist detach clone cpu cuda to device float long int half double size
  dim numel requires_grad backward grad no_grad zero_grad step train eval parameters state_dict
  load_state_dict save load manual_seed Module Linear Conv1d Conv2d ConvTranspose2d BatchNorm2d
  LayerNorm GroupNorm Dropout Embedding LSTM GRU RNN MaxPool2d AvgPool2d AdaptiveAvgPool2d GELU
  LeakyReLU Sequential ModuleList MultiheadAttention CrossEntropyLoss NLLLoss MSELoss L1Loss BCELoss
  BCEWithLogitsLoss SmoothL1Loss CTCLoss DataLoader Dataset TensorDataset DataParallel
  DistributedDataParallel SGD Adam AdamW StepLR CosineAnnealingLR ReduceLROnPlateau clip_grad_norm_
  xavier_uniform_ kaiming_normal_ autograd einsum compile GradScaler autocast SummaryWriter
  transforms ImageFolder MNIST one_hot interpolate is_available synchronize unique pad_sequence]]

-- Places where a name of ours may have the same name.
local PLACES = { ty, ty.nd, x, ty.sym, data, ty.random, ty.optimizer, ty.nd.contrib, ty.nd.linalg,
  ty.mod, ty.mod.Module }

local function is_ours(word)
  for _, place in ipairs(PLACES) do
    local ok, value = pcall(function() return place[word] end)
    if ok and value ~= nil then
      return true
    end
  end
end

for library, list in pairs{ NumPy = NUMPY, PyTorch = TORCH } do
  it("each of the most used names of " .. library .. " is ours or has an answer", function()
    local count, silent = 0, {}
    for word in list:gmatch("%S+") do
      local known = is_ours(word) or foreign.names(word)[1] or foreign.instead(word)
      silent[#silent + 1] = not known and word or nil
      count = count + 1
    end
    assert.equal("", table.concat(silent, " "))
    assert.is_true(count >= 100, count)
  end)
end

-- The code in sentences of foreign.INSTEAD, with what it gives for x = {1, 2, 4}, y = {10, 20}.
describe("the code that is advised", function()
  local CODE = {
    { "all", "x:gt(0):min()", { 1 } },
    { "any", "x:gt(0):max()", { 1 } },
    { "bernoulli", "ty.random.uniform{shape = s}:lt(p)", { 1, 1 } },
    { "diff", 'x["1:"] - x[":-1"]', { 1, 2 } },
    { "meshgrid", "x:expand_dims(0) + y:expand_dims(1)", { { 11, 12, 14 }, { 21, 22, 24 } } },
    { "tril", "rows:expand_dims(1):ge(columns)", { { 1, 0 }, { 1, 1 } } },
    { "triu", "rows:expand_dims(1):le(columns)", { { 1, 1 }, { 0, 1 } } },
  }
  for _, case in ipairs(CODE) do
    local word, code, want = unpack(case)
    it("works: " .. code, function()
      assert.truthy(foreign.instead(word):find(code, 1, true), word)
      local run = assert(loadstring("return " .. code))
      local two = ty.nd.arange(0, 2)
      local result = setfenv(run, { ty = ty, x = ty.nd.array{ 1, 2, 4 }, y = ty.nd.array{ 10, 20 },
        s = { 2 }, p = 1, rows = two, columns = two })()
      assert.near(want, result)
    end)
  end
end)
