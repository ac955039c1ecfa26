-- What spec/torture/faults.lua lets fail: list of { name =, run = function of a folder, which gives
-- a text that is always the same }. `prints`: the text may hold an error, which is then none.
-- `spares`: errors that calls of the system that fail must not lead to, by code.

local lfs = require "lfs"
local Session = require "tycho.prompt"
local ty = require "tycho"

local text_of = require("spec.support.arrays").text

local QUIET = { info = function() end, warning = function() end }

local function network()
  local x = ty.sym.Convolution{ ty.sym.Variable "data", num_filter = 2, kernel = { 3, 3 },
    name = "conv" }
  x = ty.sym.relu{ ty.sym.BatchNorm{ x, name = "bn" }, name = "relu" }
  x = ty.sym.FullyConnected{ x, num_hidden = 3, name = "fc" }
  return ty.sym.SoftmaxOutput{ x, name = "softmax" }
end

local function step()
  local exe = network():simple_bind{ ctx = ty.cpu(), data = { 2, 1, 5, 5 } }
  for _, name in ipairs{ "data", "fc_weight", "bn_gamma" } do
    exe.arg_dict[name][":"] = ty.nd.arange(1, exe.arg_dict[name].size + 1)
      :reshape(exe.arg_dict[name].shape) * 0.01
  end
  for _ = 1, 2 do
    exe:forward(true)
    exe:backward()
    local w = exe.arg_dict.fc_weight
    w[":"] = w - exe.grad_dict.fc_weight * 0.1
  end
  exe:forward(false)
  return text_of(exe.outputs[1])
end

local function infer(path)
  local net = network()
  net:save(path .. "/net.json")
  local again = ty.sym.load(path .. "/net.json")
  local args, outs, aux = again:infer_shape{ data = { 2, 1, 5, 5 } }
  local texts = {}
  for _, shapes in ipairs{ args, outs, aux } do
    for _, shape in ipairs(shapes) do
      texts[#texts + 1] = table.concat(shape, "x")
    end
  end
  return table.concat(texts, " ") .. " " .. table.concat(again:list_arguments(), " ")
end

local function make_batch(key)
  return ty.io.DataBatch{ data = { ty.nd.ones{ 2, key } }, label = { ty.nd.zeros(2) },
    bucket_key = key, provide_data = { { "data", { 2, key } } },
    provide_label = { { "softmax_label", { 2 } } } }
end

-- Trains two steps with momentum in each of two buckets.
local function buckets()
  local m = ty.mod.BucketingModule{ default_bucket_key = 4, logger = QUIET,
    sym_gen = function(key)
      local x = ty.sym.mean{ ty.sym.Variable("data"), axis = 1, keepdims = true } * key
      return ty.sym.SoftmaxOutput{ ty.sym.FullyConnected{ x, num_hidden = 3, name = "fc" },
        name = "softmax" }, { "data" }, { "softmax_label" }
    end }
  m:bind{ data_shapes = { { "data", { 2, 4 } } }, label_shapes = { { "softmax_label", { 2 } } } }
  m:init_params{ initializer = ty.init.One() }
  m:init_optimizer{ optimizer_params = { learning_rate = 0.1, momentum = 0.9 } }
  for _ = 1, 2 do
    for _, key in ipairs{ 4, 2 } do
      m:forward_backward(make_batch(key))
      m:update()
    end
  end
  return text_of(m:get_params().fc_weight)
end

local function reshape()
  local exe = network():simple_bind{ ctx = ty.cpu(), data = { 2, 1, 5, 5 } }
  exe.arg_dict.fc_weight[":"] = 0.5
  local texts = {}
  for _, size in ipairs{ 1, 3, 2 } do
    exe = exe:reshape{ partial_shaping = true, allow_up_sizing = true, data = { size, 1, 5, 5 } }
    exe:forward(false, { data = ty.nd.ones{ size, 1, 5, 5 } })
    texts[#texts + 1] = text_of(exe.outputs[1])
  end
  return table.concat(texts, " ")
end

-- Runs LAPACK, and oneDNN if it is available.
local function matrices()
  local x = ty.nd.eye{ 20 } * 4 + 0.01
  local l = ty.nd.linalg.potrf{ ty.nd.concat{ x:expand_dims{ axis = 0 },
    x:expand_dims{ axis = 0 }, dim = 0 } }
  local y = ty.nd.Convolution{ ty.nd.arange(2048):reshape{ 1, 32, 8, 8 } * 1e-3,
    ty.nd.ones{ 32, 32, 3, 3 }, no_bias = true, num_filter = 32, kernel = { 3, 3 } }
  return text_of(l:sum{ axis = { 0, 1 } }) .. " " .. text_of(y:mean{ axis = { 2, 3 } })
end

-- Writes and reads files of arrays. The old file is read first: it is complete, whatever happened
-- in the try before.
local function arrays(path)
  local texts = {}
  for _, ending in ipairs{ "params", "npy", "safetensors" } do
    local file = path .. "/arrays." .. ending
    local x = ty.nd.arange(6):reshape{ 2, 3 }
    if lfs.attributes(file) then
      ty.nd.load(file)
    end
    ty.nd.save(file, ending == "npy" and x or { x = x })
    local loaded = ty.nd.load(file)
    texts[#texts + 1] = text_of(loaded.x or loaded[1] or loaded)
  end
  return table.concat(texts, " ")
end

local function trained(checkpoint)
  local net = ty.sym.FullyConnected{ data = ty.sym.Variable("data"), num_hidden = 2, name = "fc" }
  local m = ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ data = net, name = "softmax" },
    logger = QUIET }
  m:fit{ train_data = ty.io.NDArrayIter{ data = ty.nd.ones{ 4, 3 }, label = ty.nd.zeros(4),
    batch_size = 4 }, num_epoch = 1, initializer = ty.init.One(), checkpoint = checkpoint,
    optimizer_params = { learning_rate = 0.1, momentum = 0.9 } }
  return m
end

-- Trains with checkpoints. A file that cannot be written does not stop the training, and files that
-- were written are complete.
local function training(path)
  local m = trained{ prefix = path .. "/net", on_error = "warn" }
  local text = text_of(m:get_params().fc_weight)
  local ok, e = pcall(m.load_state, m, path .. "/net.state")
  if not ok and e.code ~= "io" then error(e, 0) end
  return text
end

local function states(path)
  local m = trained()
  local state, optimizer = path .. "/state", path .. "/optimizer"
  if lfs.attributes(optimizer) then
    m:load_optimizer_states(optimizer)
  end
  m:save_optimizer_states(optimizer)
  m:save_state(state)
  m:load_state(state)
  return text_of(m:get_params().fc_weight)
end

local function records(path)
  local file, text = path .. "/a.rec", ("abc"):rep(3000)
  local w = ty.recordio.MXRecordIO(file, "w")
  w:write(text)
  w:write("b")
  w:close()
  local r = ty.recordio.MXRecordIO(file, "r")
  local first, second, third = r:read(), r:read(), r:read()
  r:close()
  assert(third == nil)
  return first .. second
end

local function batches(it)
  local texts = {}
  for batch in it do
    texts[#texts + 1] = text_of(batch.data[1]) .. ":" .. text_of(batch.label[1])
  end
  it:free()
  return table.concat(texts, "\n")
end

local function put(path, bytes)
  if lfs.attributes(path) then return end
  local file = assert(io.open(path, "w"))
  file:write(bytes)
  file:close()
end

local function lines(path)
  local text = {}
  for i = 1, 300 do
    text[i] = ("%d,%d\n"):format(i, i * i)
  end
  put(path .. "/a.csv", table.concat(text))
  os.execute(("test -e %s/b.csv.gz || gzip -c %s/a.csv > %s/b.csv.gz"):format(path, path, path))
  local plain = ty.io.CSVIter{ data_csv = path .. "/a.csv", data_shape = { 2 }, batch_size = 100 }
  local packed = ty.io.CSVIter{ data_csv = path .. "/b.csv.gz", data_shape = { 2 },
    batch_size = 100 }
  return batches(plain) .. batches(packed)
end

local function digits(path)
  put(path .. "/images", "\0\0\8\3\0\0\0\4\0\0\0\2\0\0\0\2abcdefghijklmnop")
  put(path .. "/labels", "\0\0\8\1\0\0\0\4\1\2\3\4")
  return batches(ty.io.MNISTIter{ image = path .. "/images", label = path .. "/labels",
    batch_size = 2, input_shape = { 1, 2, 2 }, shuffle = false, silent = true })
end

local function pictures(path)
  local file = path .. "/p.rec"
  local x = ty.nd.arange(48):reshape{ 4, 4, 3 }:astype("uint8")
  local w = ty.recordio.MXRecordIO(file, "w")
  for i, format in ipairs{ ".png", ".jpg" } do
    w:write(ty.recordio.pack_img(ty.recordio.IRHeader{ 0, i, i, 0 }, x, { img_fmt = format,
      quality = format == ".png" and 3 or 90 }))
  end
  w:close()
  return batches(ty.io.ImageRecordIter{ path_imgrec = file, data_shape = { 3, 4, 4 },
    batch_size = 2, preprocess_threads = 2 })
end

local function samples(path)
  local T = ty.gluon.data.vision.transforms
  local x = ty.nd.arange(75):reshape{ 5, 5, 3 }:astype("uint8")
  for _, kind in ipairs{ "", "/a", "/b" } do
    lfs.mkdir(path .. "/kinds" .. kind)
  end
  ty.image.imwrite(path .. "/kinds/a/1.png", x)
  ty.image.imwrite(path .. "/kinds/b/1.jpg", x)
  ty.random.seed(1)
  local set = ty.gluon.data.vision.ImageFolderDataset(path .. "/kinds"):transform_first(T.Compose{
    T.RandomCrop{ 4, pad = 1 }, T.RandomBrightness(0.2) }):transform(function(image, label)
      return image, label + ty.random.uniform{ shape = { 1 } }:asscalar()
    end):transform_first(T.ToTensor())
  local texts = {}
  for images, labels in ty.gluon.data.DataLoader{ set, batch_size = 2, shuffle = true,
      num_workers = 2 } do
    texts[#texts + 1] = text_of(images)
    texts[#texts + 1] = text_of(labels)
  end
  return table.concat(texts, "\n")
end

local function store()
  local kv = ty.kv.create("local")
  kv:init("w", ty.nd.ones{ 2, 2 })
  kv:set_optimizer(ty.optimizer.SGD{ learning_rate = 0.5, momentum = 0.5 })
  local out = ty.nd.zeros{ 2, 2 }
  for _ = 1, 2 do
    kv:push("w", { ty.nd.ones{ 2, 2 }, ty.nd.ones{ 2, 2 } })
    kv:pull("w", { out = out })
  end
  return text_of(out)
end

-- Runs recorded steps, and computes a gradient of a gradient.
local function recording()
  local autograd = ty.autograd
  local w = (ty.nd.arange(1, 7) * 0.1):reshape{ 2, 3 }:attach_grad()
  local x = ty.nd.ones{ 4, 3 }
  for _ = 1, 2 do
    local y = autograd.record(function() return ty.nd.tanh(ty.nd.dot(x, w.T)):sum() end)
    y:backward()
    w:sub_(w.grad * 0.1)
  end
  local y = autograd.record(function() return ty.nd.dot(x, w.T):square():sum() end)
  autograd.grad(y, w, { create_graph = true }):backward()
  return text_of(w) .. text_of(w.grad)
end

-- Runs two steps of a hybridized block with a Trainer; writes files of both, and reads a block.
local function layers(path)
  local blocks = require "spec.support.blocks"
  local net = blocks.Net{ prefix = "net_" }
  net:initialize{ init = "ones" }
  net:hybridize()
  local trainer = ty.gluon.Trainer(net:collect_params(), "sgd",
    { learning_rate = 0.5, momentum = 0.5 })
  local function train()
    local x = ty.nd.arange(1, 7):reshape{ 2, 3 } * 0.1
    local y = ty.autograd.record(function() return net(x):square():sum() end)
    y:backward()
    trainer:step(2)
  end
  train()
  net:save_parameters(path .. "/net.params")
  trainer:save_states(path .. "/net.states")
  net:load_parameters(path .. "/net.params")
  trainer:load_states(path .. "/net.states")
  train()
  net:export(path .. "/net")
  local again = ty.gluon.SymbolBlock.imports(path .. "/net-symbol.json", "data",
    path .. "/net-0000.params")
  return text_of(again(ty.nd.ones{ 1, 3 }))
end

local function profile(path)
  ty.profiler.set_config{ filename = path .. "/profile.json", profile_all = true }
  ty.profiler.set_state("run")
  local x = (ty.nd.ones{ 2, 2 } + 1):totable()[1][1]
  ty.profiler.set_state("stop")
  ty.profiler.dump()
  return tostring(x)
end

local function prompt()
  local texts = {}
  local session = Session.new{ plain = true, write = function(...)
    for _, text in ipairs{ ... } do
      texts[#texts + 1] = text
    end
  end }
  session:feed("x = ty.nd.ones{ 2, 3 } * 2")
  session:feed("x:sum()")
  session:feed("ty.sym.relu{ ty.sym.Variable 'a', name = 'r' }")
  return table.concat(texts)
end

return {
  { name = "infer", run = infer },
  { name = "step", run = step },
  { name = "buckets", run = buckets },
  { name = "reshape", run = reshape },
  { name = "matrices", run = matrices },
  { name = "arrays", run = arrays },
  { name = "states", run = states },
  { name = "training", run = training, spares = { io = true } },
  { name = "records", run = records },
  { name = "lines", run = lines },
  { name = "digits", run = digits },
  { name = "pictures", run = pictures },
  { name = "samples", run = samples },
  { name = "store", run = store },
  { name = "recording", run = recording },
  { name = "layers", run = layers },
  { name = "profile", run = profile },
  { name = "prompt", run = prompt, prints = true },
}
