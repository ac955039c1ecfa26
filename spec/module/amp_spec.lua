-- Mixed precision (contrib/amp.lua): which casts are put in, and training with them.

local ty = require "tycho"

local function network()
  local x = ty.sym.Variable "data"
  x = ty.sym.Convolution{ x, kernel = { 3, 3 }, num_filter = 8, name = "conv" }
  x = ty.sym.Activation{ ty.sym.BatchNorm{ x, name = "bn" }, act_type = "relu", name = "act" }
  x = ty.sym.Pooling{ x, kernel = { 2, 2 }, stride = { 2, 2 }, pool_type = "max", name = "pool" }
  x = ty.sym.FullyConnected{ x, num_hidden = 3, name = "fc" }
  return ty.sym.SoftmaxOutput{ x, name = "softmax" }
end

local function types(symbol)
  local given = {}
  for _, name in ipairs(symbol:list_arguments()) do
    given[name] = "float32"
  end
  local _, outs = symbol:get_internals():infer_type(given)
  local of = {}
  for i, name in ipairs(symbol:get_internals():list_outputs()) do
    of[name] = outs[i]
  end
  return of
end

-- Returns pictures with one of three bright bands.
local function pictures(n)
  local x = ty.nd.random.normal{ 0, 0.3, shape = { n, 1, 12, 12 } }
  local label = ty.nd.zeros{ n }
  local p, q = x:data(), label:data()
  for i = 0, n - 1 do
    q[i] = i % 3
    for k = 48 * (i % 3), 48 * (i % 3) + 47 do
      p[i * 144 + k] = p[i * 144 + k] + 1
    end
  end
  return x, label
end

local function train(options)
  ty.random.seed(5)
  local x, label = pictures(96)
  local m = ty.mod.Module{ network() }
  local iter = ty.io.NDArrayIter{ x, label, batch_size = 32 }
  options = options or {}
  options.train_data, options.num_epoch, options.optimizer = iter, 6, "sgd"
  options.optimizer_params = { learning_rate = 0.1, momentum = 0.9 }
  m:fit(options)
  iter:reset()
  return m:score(iter, "acc")[1][2], m
end

describe("amp", function()
  after_each(function() ty.amp.off() end)

  it("moves nothing where arrays have the widest type already", function()
    local S = ty.sym
    for _, other in ipairs{ "bfloat16", "float32" } do
      local x, y = S.Variable("x", { dtype = "bfloat16" }), S.Variable("y", { dtype = other })
      local both = S.amp_multicast{ x * 2, S.tanh(y), num_outputs = 2 }
      local exe = S.tanh(both[1] * both[2]):simple_bind{ ctx = ty.cpu(), x = { 8 }, y = { 8 } }
      local a = ty.nd.array{ -1, -0.5, 0, 0.25, 0.5, 1, 2, 3 }
      exe.arg_dict.x[":"], exe.arg_dict.y[":"] = a, a
      exe:forward{ is_train = true }
      exe:backward{ ty.nd.ones({ 8 }, { dtype = other }) }
      local t = ty.nd.tanh(a)
      local want = ty.nd.tanh(2 * a * t)
      local slope = 1 - want * want
      local off = { exe.outputs[1]:astype "float32" - want,
        exe.grad_dict.x:astype "float32" - 2 * t * slope,
        exe.grad_dict.y:astype "float32" - 2 * a * (1 - t * t) * slope }
      for i, d in ipairs(off) do
        assert.is_true(d:abs():max():asscalar() <= 0.03, other .. " " .. i)
      end
    end
    local n = 2 ^ 18
    local x = S.Variable("x", { dtype = "bfloat16" })
    local both = S.amp_multicast{ S.tanh(x), x * 2, num_outputs = 2 }
    local exe = S.tanh(both[1] * both[2]):simple_bind{ ctx = ty.cpu(), x = { n },
      grad_req = "null" }
    assert.equal(2 * 2 * n, exe:memory().planned)
  end)

  it("gives arrays that are bound and heads copies of their own", function()
    local S = ty.sym
    local x, y = S.Variable("x", { dtype = "bfloat16" }), S.Variable("y", { dtype = "bfloat16" })
    local exe = S.amp_multicast{ x, y, num_outputs = 2 }:simple_bind{ ctx = ty.cpu(), x = { 4 },
      y = { 4 } }
    exe.arg_dict.x[":"], exe.arg_dict.y[":"] = 3, 4
    exe:forward()
    exe.arg_dict.x[":"], exe.arg_dict.y[":"] = 5, 6
    assert.equal(3, exe.outputs[1]:astype("float32"):max():asscalar())
    assert.equal(4, exe.outputs[2]:astype("float32"):min():asscalar())
  end)

  for _, target in ipairs{ "bfloat16", "float16" } do
    it("casts by its three lists to " .. target, function()
      local net = network()
      local mixed, shown = ty.amp.convert(net, { target = target })
      assert.same(net:list_arguments(), mixed:list_arguments())
      assert.same(net:list_auxiliary_states(), mixed:list_auxiliary_states())
      assert.same(net:list_outputs(), mixed:list_outputs())
      local of = types(mixed)
      for _, name in ipairs{ "conv", "bn", "act", "pool", "fc" } do
        assert.equal(target, of[name .. "_output"], name)
      end
      for _, name in ipairs{ "conv_weight", "bn_gamma", "fc_bias", "softmax_output" } do
        assert.equal("float32", of[name], name)
      end
      assert.same({ name = "conv", op = "Convolution", list = "always" }, shown[1])
      assert.same({ name = "softmax", op = "SoftmaxOutput", list = "never" }, shown[#shown])
      assert.equal(net:tojson(), mixed:tojson())         -- files leave the casts out
      assert.truthy(mixed:tojson{ remove_amp_cast = false }:find("amp_cast", 1, true))
    end)
  end

  it("brings inputs of two types to the wider one, and casts a value once", function()
    local x = ty.sym.Variable "data"
    local y = ty.sym.FullyConnected{ x, num_hidden = 4, name = "a" }
    local z = ty.sym.elemwise_add(y, ty.sym.exp(y, { name = "e" }), { name = "sum" })
    z = ty.sym.Group{ ty.sym.FullyConnected{ z, num_hidden = 4, name = "b" },
      ty.sym.FullyConnected{ z, num_hidden = 4, name = "c" } }
    local mixed = ty.amp.convert(z)
    local of = types(mixed)
    assert.equal("bfloat16", of.a_output)
    assert.equal("float32", of.e_output)
    assert.equal("float32", of.sum_output)
    local _, count = mixed:tojson{ remove_amp_cast = false }
      :gsub('"name": "sum_output_amp_cast_bfloat16"', "")
    assert.equal(1, count)
  end)

  it("counts positions in float32", function()
    local layer = ty.sym.FullyConnected{ ty.sym.Variable "x", ty.sym.Variable "w", no_bias = true,
      num_hidden = 3000 }
    local w = ty.nd.zeros{ 3000, 2 }
    w[2051] = 3
    for _, target in ipairs{ "bfloat16", "float16" } do
      local function last(y)
        local exe = ty.amp.convert(y, { target = target }):bind{ ctx = ty.cpu(),
          args = { x = ty.nd.ones{ 1, 2 }, w = w } }
        return exe:forward()[1]:reshape{ -1 }[-1]:asscalar()
      end
      assert.equal(2051, last(ty.sym.argmax{ layer, axis = 1 }))
      assert.equal(2051, last(ty.sym.argmin{ -layer, axis = 1 }))
      assert.equal(2051, last(ty.sym.argmax_channel{ layer }))
      assert.equal(2999, last(ty.sym.contrib.arange_like{ layer, axis = 1 }))
      ty.amp.init{ target = target }
      local y = ty.nd.FullyConnected{ ty.nd.ones{ 1, 2 }, w, no_bias = true, num_hidden = 3000 }
      assert.equal(target, y.dtype)
      assert.equal(2051, ty.nd.argmax{ y, axis = 1 }:asscalar())
      assert.equal(2999, ty.nd.contrib.arange_like{ y, axis = 1 }[-1]:asscalar())
      ty.amp.off()
    end
  end)

  it("brings operators of one type a half and a float32", function()
    local S = ty.sym
    local layer = S.Convolution{ S.Variable "data", kernel = { 3, 3 }, pad = { 1, 1 },
      num_filter = 3, name = "conv" }
    local other = S.Variable("other", { shape = { 1, 3, 8, 8 } })
    local boxes = S.Variable("boxes", { shape = { 2, 5 } })
    local nets = {
      S.LeakyReLU{ layer, act_type = "prelu" }, S.Crop{ layer, other, num_args = 2 },
      S.UpSampling{ layer, other, num_args = 2, scale = 1, sample_type = "nearest" },
      S.ROIPooling{ layer, boxes, pooled_size = { 2, 2 }, spatial_scale = 1 },
      S.contrib.ROIAlign{ layer, boxes, pooled_size = { 2, 2 }, spatial_scale = 1 },
      S.contrib.BilinearResize2D{ layer, other, mode = "like" },
      S.broadcast_logical_and(layer, other), S.contrib.RMSNorm{ layer, axis = -1 },
    }
    ty.random.seed(4)
    local given = {}
    local function run(net)
      local exe = net:simple_bind{ ctx = ty.cpu(), data = { 1, 2, 8, 8 } }
      for name, x in pairs(exe.arg_dict) do
        given[name] = given[name] or ty.nd.random.uniform{ 0.1, 1, shape = x.shape }
        x[":"] = given[name]
      end
      return exe:forward()[1]:astype "float32"
    end
    given.boxes = ty.nd.array{ { 0, 1, 1, 6, 6 }, { 0, 2, 3, 7, 5 } }
    for i, net in ipairs(nets) do
      local want = run(net)
      local off = (run(ty.amp.convert(net)) - want):abs():max():asscalar()
      assert.is_true(off <= 0.02 * want:abs():max():asscalar(), i .. ": " .. off)
    end
  end)

  it("casts what attention multiplies and its bias, and no lengths or positions", function()
    local S, V, T = ty.sym, ty.sym.Variable, 300
    local data = V "data"
    local function linear(name)
      return S.FullyConnected{ data, num_hidden = 8, flatten = false, name = name }
    end
    local net = S.contrib.attention{ heads = 2, causal = true, name = "att", value = linear "v",
      query = S.contrib.RMSNorm{ linear "q", name = "qn" },
      key = S.contrib.RMSNorm{ linear "k", name = "kn" }, mask = V "mask", bias = V "bias",
      valid_length = V "len", offset = V "at" }
    local shapes = { data = { 1, T, 4 }, mask = { 1, T }, bias = { T } }
    local given = { len = ty.nd.array{ 257 }, at = ty.nd.array{ 257 }, mask = ty.nd.ones{ 1, T } }
    ty.random.seed(4)
    local function run(symbol, target)
      local exe = symbol:simple_bind{ ctx = ty.cpu(), shapes = shapes }
      for name, x in pairs(exe.arg_dict) do
        assert.equal("float32", x.dtype)
        given[name] = given[name] or ty.nd.random.uniform{ -1, 1, shape = x.shape }
        x[":"] = given[name]
      end
      assert.equal(target, (exe:program():match "(%w+)%s+%b()[^\n]*%[att%]"))
      return exe:forward()[1]:astype "float32"
    end
    local want = run(net, "float32")
    for _, target in ipairs{ "bfloat16", "float16" } do
      local mixed, shown = ty.amp.convert(net, { target = target })
      assert.equal("always", shown[#shown].list)
      local off = (run(mixed, target) - want):abs():max():asscalar()
      assert.is_true(off <= 0.02 * want:abs():max():asscalar(), target .. ": " .. off)
      ty.amp.init{ target = target }
      local q = ty.nd.ones{ 1, T, 4 }
      local y = ty.nd.contrib.attention{ query = q, key = q:astype(target), value = q,
        bias = given.bias, valid_length = given.len, offset = given.at, causal = true }
      ty.amp.off()
      assert.equal(target, y.dtype)
      assert.near(q, y:astype "float32", 1e-2)
    end
  end)

  it("takes other lists, and leaves nodes out", function()
    local net = network()
    local of = types((ty.amp.convert(net, { always = { "FullyConnected" } })))
    assert.equal("float32", of.conv_output)
    assert.equal("bfloat16", of.fc_output)
    of = types((ty.amp.convert(net, { excluded_sym_names = { "fc" }, never = { "Pooling" } })))
    assert.equal("float32", of.pool_output)
    assert.equal("float32", of.fc_output)
    local ok, e = pcall(ty.amp.convert, net, { always = { "NoSuchOperator" } })
    assert.is_false(ok)
    assert.matches("NoSuchOperator", tostring(e))
    assert.has_error(function() ty.amp.convert(net, { target = "float8" }) end)
    assert.has_error(function() ty.amp.init{ target = "int8" } end)
  end)

  it("warns of names to leave out that no node has", function()
    local net, sink, texts = network(), ty.log.sink, {}
    ty.log.sink = function(_, text) texts[#texts + 1] = text end
    local params = { fc_weight = ty.nd.ones{ 3, 8 }, fc_bias = ty.nd.zeros{ 3 } }
    local ok, e = pcall(function()
      ty.amp.convert(net, { excluded_sym_names = { "fc", "conf" } })
      ty.contrib.quantization.quantize_dynamic(net, params, { excluded_sym_names = { "nothing" } })
    end)
    ty.log.sink = sink
    assert.is_true(ok, e)
    assert.equal(2, #texts)
    assert.matches("amp.convert: .*'conf'.* did you mean 'conv'%?", texts[1])
    assert.matches("quantize_dynamic: .*'nothing'", texts[2])
  end)

  it("init trains modules in it: masters are float32, results in bfloat16", function()
    local exact = train()
    ty.amp.init()
    local mixed, m = train()
    assert.is_true(exact > 0.95 and mixed > 0.95, ("%g, %g"):format(exact, mixed))
    local arg = m:get_params()
    assert.equal("float32", arg.conv_weight.dtype)
    ty.amp.off()
    ty.amp.init{ target = "float16" }
    local halves = train{ loss_scale = "dynamic" }
    assert.is_true(halves > 0.95, tostring(halves))
  end)
end)
