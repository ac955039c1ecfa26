-- Layers on 8-bit integers with scales and zeros (native/operators/quantized/int8_layer.c), against
-- the same in float64; quantize_model and quantize_dynamic.
local ty = require "tycho"
local trials = require "spec.support.trials"
require "spec.helper"

local nd, contrib = ty.nd, ty.nd.contrib
local RANGE = { int8 = { -128, 127 }, uint8 = { 0, 255 } }

local function levels(shape, dtype, random)
  local x = nd.zeros(shape, { dtype = "float64" })
  local p, r = x:data(), RANGE[dtype]
  for i = 0, x.size - 1 do
    p[i] = random(r[1], r[2])
  end
  return x
end

local function channels(x, rank)
  local shape = { 1, x.size }
  for i = 3, rank do
    shape[i] = 1
  end
  return x:reshape(shape)
end

-- Returns the output of a layer in float64, and the call's options; kind: the operator's name.
local function case(kind, random, o)
  local conv = kind == "Convolution"
  local data = levels(o.data, o.dtype == "float32" and "int8" or o.dtype, random):clip{
    a_min = o.dtype == "float32" and -127 or -128, a_max = 255 }
  local weight = levels(o.weight, "int8", random)
  local filters = o.weight[1]
  local scale = trials.fill(nd.zeros({ filters }, { dtype = "float64" }), random, 0.01, 0.02)
  local bias = trials.fill(nd.zeros({ filters }, { dtype = "float64" }), random, -1, 1)
  local attrs = { no_bias = true }
  if conv then
    attrs.kernel, attrs.num_filter = { unpack(o.weight, 3) }, filters
    attrs.pad, attrs.stride, attrs.dilate, attrs.num_group = o.pad, o.stride, o.dilate, o.groups
  else
    attrs.num_hidden, attrs.flatten = filters, o.flatten
  end
  local zero, unit = o.zero or 0, 0.05
  local given = { data - zero, weight }
  for key, v in pairs(attrs) do
    given[key] = v
  end
  local want = nd[kind](given) * unit
  local rank = #want.shape
  local over = conv and channels or function(x) return x end
  want = nd.broadcast_add(nd.broadcast_mul(want, over(scale, rank)), over(bias, rank))
  local list = { o.dtype == "float32" and (data * unit):astype "float32" or data:astype(o.dtype),
    weight:astype "int8", scale:astype "float32", bias:astype "float32" }
  attrs.no_bias, attrs.data_scale, attrs.data_zero = nil, unit, zero
  if o.sum then
    local sum = levels(want.shape, o.sum == "float32" and "int8" or o.sum, random)
    list[#list + 1] = sum:astype(o.sum)
    attrs.with_sum = true
    if o.sum ~= "float32" then
      attrs.sum_scale, attrs.sum_zero = 0.25, 3
      sum = (sum - 3) * 0.25
    end
    want = want + sum
  end
  if o.relu then
    attrs.act_type, want = "relu", nd.maximum(want, 0)
  end
  if o.out then
    attrs.out_type, attrs.out_scale, attrs.out_zero = o.out, 4, o.out == "uint8" and 100 or -5
    want = nd.clip{ (want / 4):rint() + attrs.out_zero, a_min = RANGE[o.out][1],
      a_max = RANGE[o.out][2] }
  end
  for key, v in pairs(attrs) do
    list[key] = v
  end
  return list, want
end

local LINEAR = {
  { data = { 5, 7 }, weight = { 3, 7 }, dtype = "int8" },
  { data = { 40, 130 }, weight = { 70, 130 }, dtype = "uint8", zero = 117, relu = true },
  { data = { 3, 4, 33 }, weight = { 18, 33 }, dtype = "int8", zero = -20, flatten = false,
    out = "int8" },
  { data = { 17, 64 }, weight = { 32, 64 }, dtype = "float32", sum = "float32", relu = true },
  { data = { 6, 50 }, weight = { 9, 50 }, dtype = "uint8", sum = "int8", out = "uint8" },
  { data = { 1, 300 }, weight = { 11, 300 }, dtype = "int8", sum = "uint8", out = "int8" },
  { data = { 29, 2100 }, weight = { 45, 2100 }, dtype = "float32" },    -- a sum of two runs
  { data = { 15, 4200 }, weight = { 33, 4200 }, dtype = "uint8", zero = 90, relu = true },
  { data = { 300, 96 }, weight = { 200, 96 }, dtype = "float32", relu = true },    -- chunks
}
local CONVOLUTIONS = {
  { data = { 2, 3, 9, 8 }, weight = { 5, 3, 3, 3 }, pad = { 1, 1 }, dtype = "int8" },
  { data = { 2, 4, 9, 11 }, weight = { 6, 4, 3, 3 }, pad = { 2, 1 }, stride = { 2, 3 },
    dtype = "uint8", zero = 100, relu = true },
  { data = { 1, 8, 5, 6 }, weight = { 20, 8, 1, 1 }, dtype = "uint8", out = "uint8" },
  { data = { 2, 6, 12, 7 }, weight = { 4, 3, 3, 2 }, dilate = { 2, 3 }, pad = { 2, 1 }, groups = 2,
    dtype = "int8", zero = 9, sum = "int8", out = "int8" },
  { data = { 2, 4, 11 }, weight = { 3, 4, 5 }, pad = { 6 }, stride = { 2 }, dtype = "float32",
    sum = "float32" },
  { data = { 1, 2, 4, 5, 6 }, weight = { 3, 2, 2, 3, 3 }, pad = { 1, 1, 1 }, dtype = "uint8" },
  { data = { 9, 5, 7, 6 }, weight = { 7, 5, 3, 3 }, pad = { 1, 1 }, dtype = "uint8", zero = 77,
    out = "int8" },                                      -- threads take images
  { data = { 8, 6, 10, 9 }, weight = { 8, 3, 3, 3 }, pad = { 1, 2 }, groups = 2,
    dtype = "float32" },
  { data = { 8, 7, 9, 10 }, weight = { 30, 7, 1, 1 }, stride = { 2, 2 }, dtype = "uint8",
    zero = 13, relu = true },
  { data = { 10, 9, 6, 11 }, weight = { 70, 9, 1, 1 }, dtype = "uint8", zero = 200 },
  { data = { 1, 24, 12, 13 }, weight = { 90, 24, 3, 3 }, pad = { 1, 1 }, stride = { 2, 1 },
    dtype = "uint8", zero = 128, sum = "int8" },         -- parts of filters
  { data = { 1, 16, 40, 40 }, weight = { 24, 16, 3, 3 }, pad = { 1, 1 }, dtype = "int8",
    sum = "uint8", relu = true, out = "uint8" },
}

describe("int8 layers", function()
  for kind, rows in pairs{ FullyConnected = LINEAR, Convolution = CONVOLUTIONS } do
    local op = kind == "Convolution" and contrib.int8_convolution or contrib.int8_fully_connected
    for i, o in ipairs(rows) do
      it(("%s, case %d"):format(kind, i), function()
        local given, want = case(kind, trials.random(i), o)
        local got = op(given)
        assert.equal(o.out or "float32", got.dtype)
        assert.same(want.shape, got.shape)
        local off = (got:astype "float64" - want):abs():max():asscalar()
        local most = want:abs():max():asscalar()
        -- a level more or less where a number is between two
        assert.is_true(off <= (o.out and 1 or 1e-5 * math.max(1, most)), ("%g off"):format(off))
        if o.out then
          local wrong = (got:astype "float64" - want):abs():sum():asscalar()
          assert.is_true(wrong <= 1 + 0.001 * want.size, ("%d levels off"):format(wrong))
        end
      end)
    end
  end

  it("takes the scale of a row, of an image, from float32 data", function()
    local random = trials.random(4)
    local x = trials.fill(nd.zeros({ 3, 40 }, { dtype = "float64" }), random, -1, 1)
    x = nd.broadcast_mul(x, nd.array({ { 1 }, { 1000 }, { 0 } }, { dtype = "float64" }))
    local w = levels({ 8, 40 }, "int8", random)
    local got = contrib.int8_fully_connected{ x:astype "float32", w:astype "int8", nd.ones{ 8 },
      num_hidden = 8, no_bias = true }:astype "float64"
    local want = nd.dot{ x, w, transpose_b = true }
    for row, most in ipairs{ 1, 1000, 0 } do
      local off = (got[row - 1] - want[row - 1]):abs():max():asscalar()
      assert.is_true(off <= most / 254 * 40 * 128, ("row %d is %g off"):format(row, off))
      assert.is_true(most == 0 or off > 0)
    end
  end)

  for _, o in ipairs{ { out = "float32" }, { out = "float32", relu = true }, { out = "int8" },
    { out = "uint8" }, { out = "float32", sum = true } } do
    for _, kind in ipairs{ "gelu", "relu" } do
      if kind == "relu" or o.out == "float32" then
        it(("take %s over, %s%s%s"):format(kind, o.out, o.relu and ", relu" or "",
          o.sum and ", sum" or ""), function()
          local random = trials.random(9)
          local params = { weight = levels({ 35, 70 }, "int8", random):astype "int8",
            scale = nd.full({ 35 }, 0.001), bias = nd.random.normal{ 0, 1, shape = { 35 } } }
          local data = nd.random.normal{ 0, 1, shape = { 18, 70 } }
          local function run_on(after)
            local args = { ty.sym.Variable "data", ty.sym.Variable("weight", { dtype = "int8" }),
              ty.sym.Variable "scale", ty.sym.Variable "bias", num_hidden = 35, out_type = o.out,
              out_scale = 0.05, act_type = o.relu and "relu" or nil, with_sum = o.sum }
            if o.sum then args[5] = ty.sym.ones{ shape = { 18, 35 } } end
            local y = ty.sym.contrib.int8_fully_connected(args)
            local exe = after(y):simple_bind{ ctx = ty.cpu(), data = data.shape, grad_req = "null" }
            exe:copy_params_from(params, {})
            exe:forward{ is_train = false, data = data }
            -- the layer and what it takes over run on the host, whose gelu differs in its last bits
            return exe.outputs[1]:copyto(ty.cpu(0)), exe:program()
          end
          local function act(x)
            return kind == "gelu" and ty.sym.LeakyReLU{ x, act_type = "gelu" }
              or ty.sym.relu(x)
          end
          local plain = run_on(function(y) return y end)
          local got, program = run_on(act)
          local want = kind == "gelu" and nd.LeakyReLU{ plain, act_type = "gelu" } or nd.relu(plain)
          assert.equal(want.dtype, got.dtype)
          assert.equal(0, (got:astype "float64" - want:astype "float64"):abs():max():asscalar())
          assert.truthy(program:find "%[int8_fully_connected%d* %a+%d*%]", program)
        end)
      end
    end
  end

  it("refuse what they cannot mean", function()
    local x, w, s = nd.ones({ 2, 3 }, { dtype = "int8" }), nd.ones({ 4, 3 }, { dtype = "int8" }),
      nd.ones{ 4 }
    local function call(o)
      o.num_hidden, o.no_bias = 4, true
      return contrib.int8_fully_connected(o)
    end
    assert.has_error(function() call{ x, w, s } end)                 -- no data_scale
    assert.has_error(function() call{ x:astype "float32", w, s, data_zero = 1 } end)
    assert.has_error(function() call{ x, w, s, data_scale = -1 } end)
    assert.has_error(function() call{ x, w, s, data_scale = 1, out_scale = 0 } end)
    assert.has_error(function() call{ x, w:astype "float32", s, data_scale = 1 } end)
    assert.has_error(function() call{ x, w, nd.ones{ 3 }, data_scale = 1 } end)
    assert.has_error(function() call{ x:astype "int32", w, s, data_scale = 1 } end)
    assert.has_error(function() call{ x, w, s, data_scale = 1, out_type = "int4" } end)
  end)
end)

describe("integer_dot", function()
  for i, shape in ipairs{ { 3, 5 }, { 40, 200 }, { 2, 9, 33 }, { 7 }, { 1, 900 } } do
    for _, dtype in ipairs{ "uint8", "int8" } do
      it(("is exact, %s, case %d"):format(dtype, i), function()
        local random = trials.random(i)
        local k, n = shape[#shape], 10 * i + 3
        local a, b = levels(shape, dtype, random), levels({ k, n }, "int8", random)
        local got = contrib.integer_dot(a:astype(dtype), b:astype "int8")
        assert.equal("int32", got.dtype)
        assert.equal(0, (got:astype "float64" - nd.dot(a, b)):abs():max():asscalar())
        local exe = ty.sym.contrib.integer_dot(ty.sym.Variable "a", ty.sym.Variable "b")
          :bind{ ctx = ty.cpu(), args = { a = a:astype(dtype), b = b:astype "int8" } }
        for turn = 1, 2 do                               -- with the matrix packed, then kept
          exe:forward{}
          assert.equal(0, (exe.outputs[1] - got):abs():max():asscalar(), turn)
        end
      end)
    end
  end

  it("refuses other types and shapes", function()
    local a, b = nd.ones({ 2, 3 }, { dtype = "int8" }), nd.ones({ 3, 4 }, { dtype = "int8" })
    assert.has_error(function() contrib.integer_dot(a:astype "float32", b) end)
    assert.has_error(function() contrib.integer_dot(a, b:astype "uint8") end)
    assert.has_error(function() contrib.integer_dot(a, nd.ones({ 4, 4 }, { dtype = "int8" })) end)
    assert.has_error(function() contrib.integer_dot(a, nd.ones({ 3 }, { dtype = "int8" })) end)
  end)
end)

-- Returns a network of residual blocks with its parameters.
local function network()
  local function conv(x, filters, kernel, stride, name)
    local pad = (kernel - 1) / 2
    x = ty.sym.Convolution{ x, kernel = { kernel, kernel }, pad = { pad, pad },
      stride = { stride, stride }, num_filter = filters, no_bias = true, name = name }
    return ty.sym.BatchNorm{ x, fix_gamma = false, name = name .. "_bn" }
  end
  local x = ty.sym.Activation{ conv(ty.sym.Variable "data", 16, 3, 1, "c0"), act_type = "relu" }
  for i, filters in ipairs{ 16, 24 } do
    local y = ty.sym.Activation{ conv(x, filters, 3, i, "a" .. i), act_type = "relu" }
    y = conv(y, filters, 3, 1, "b" .. i)
    x = ty.sym.Activation{ y + (i == 1 and x or conv(x, filters, 1, 2, "s" .. i)),
      act_type = "relu" }
  end
  x = ty.sym.Pooling{ x, global_pool = true, pool_type = "avg", kernel = { 1, 1 } }
  return ty.sym.SoftmaxOutput{ ty.sym.FullyConnected{ x, num_hidden = 10, name = "fc" },
    name = "softmax" }
end

local SHAPE = { 8, 3, 16, 16 }

local function parameters(net)
  local exe = net:simple_bind{ ctx = ty.cpu(), data = SHAPE }
  local arg, aux = {}, {}
  ty.random.seed(11)
  for name, x in pairs(exe.arg_dict) do
    if name ~= "data" and name ~= "softmax_label" then
      local s = #x.shape > 1 and math.sqrt(6 * x.shape[1] / x.size) or 0.1
      arg[name] = nd.random.uniform{ low = name:find "gamma" and 0.8 or -s,
        high = name:find "gamma" and 1.2 or s, shape = x.shape }
    end
  end
  for name, x in pairs(exe.aux_dict) do
    aux[name] = nd.random.uniform{ low = name:find "var" and 0.5 or -0.1,
      high = name:find "var" and 1.5 or 0.1, shape = x.shape }
  end
  return arg, aux
end

local function run(net, arg, aux, data)
  local exe = net:simple_bind{ ctx = ty.cpu(), data = data.shape, grad_req = "null" }
  exe:copy_params_from(arg, aux or {})
  exe:forward{ is_train = false, data = data }
  return exe.outputs[1]:copy(), exe
end

describe("quantize_model", function()
  local net = network()
  local arg, aux = parameters(net)
  local data = nd.random.uniform{ low = -1, high = 1, shape = SHAPE }
  local want = run(net, arg, aux, data)

  for _, mode in ipairs{ "none", "naive", "entropy" } do
    for _, dtype in ipairs{ "int8", "auto" } do
      it(("%s, %s"):format(mode, dtype), function()
        local q, qarg, qaux = ty.contrib.quantization.quantize_model{ sym = net, arg_params = arg,
          aux_params = aux, calib_mode = mode, quantized_dtype = dtype,
          calib_data = ty.io.NDArrayIter{ data, nil, batch_size = 4 }, num_calib_examples = 8 }
        local got, exe = run(q, qarg, qaux, data)
        assert.is_true((got - want):abs():max():asscalar() < 0.05)
        assert.is_true((got - want):abs():max():asscalar() > 0)
        assert.equal("int8", qarg.c0_weight_folded_quantize.dtype)
        assert.is_nil(next(qaux))                        -- normalisations are in the weights
        local program = exe:program()
        assert.is_nil(program:find("oneDNN", 1, true))
        local kept = program:find((dtype == "auto" and "uint8" or "int8") .. "%s+%(8")
        assert.equal(mode ~= "none", kept ~= nil)
        local file = os.tmpname()
        q:save(file .. ".json")
        nd.save(file .. ".params", qarg)
        local again = run(ty.sym.load(file .. ".json"), nd.load(file .. ".params"), qaux, data)
        assert.equal(0, (again - got):abs():max():asscalar())
        for _, e in ipairs{ "", ".json", ".params" } do
          os.remove(file .. e)
        end
      end)
    end
  end

  it("leaves a weight that others read, with its shape", function()
    local w = ty.sym.Variable "w"
    local layer = ty.sym.FullyConnected{ ty.sym.Variable "data", w, num_hidden = 16,
      no_bias = true, name = "fc" }
    local tied = layer + ty.sym.sum(ty.sym.square(w), { axis = 1, keepdims = true })
      :reshape{ shape = { 1, 16 } }:broadcast_axes{ axis = 0, size = 4 }
    local x = nd.random.uniform{ -1, 1, shape = { 4, 32 } }
    local given = { w = nd.random.uniform{ -1, 1, shape = { 16, 32 } } }
    local exact = run(tied, given, nil, x)
    local q, params = ty.contrib.quantization.quantize_dynamic(tied, given)
    local off = (run(q, params, nil, x) - exact):abs():max():asscalar()
    assert.is_true(off > 0 and off < 0.02 * exact:abs():max():asscalar(), off)
    assert.is_nil(tied:attr_dict().w)                    -- the network itself is as it was
  end)

  it("leaves excluded layers", function()
    local q = ty.contrib.quantization.quantize_model{ sym = net, arg_params = arg,
      aux_params = aux, calib_mode = "none", excluded_sym_names = { "c0", "fc" } }
    local text = q:tojson()
    assert.truthy(text:find('"op": "Convolution"', 1, true))
    assert.truthy(text:find('"op": "FullyConnected"', 1, true))
    assert.truthy(text:find('"op": "_contrib_int8_convolution"', 1, true))
  end)

  it("refuses words and iterators that it cannot use", function()
    local function call(o)
      o.sym, o.arg_params, o.aux_params = net, arg, aux
      return ty.contrib.quantization.quantize_model(o)
    end
    assert.has_error(function() call{ calib_mode = "best" } end)
    assert.has_error(function() call{ calib_mode = "naive" } end)
    assert.has_error(function() call{ quantized_dtype = "int4", calib_mode = "none" } end)
    local e = assert.raises("value", call, { calib_data = 5 })
    assert.equal("calib_data", e.argument)
    local it = ty.io.NDArrayIter{ data = nd.ones{ 4, 3, 12, 12 }, batch_size = 4 }
    e = assert.raises("name", call, { calib_mode = "naive", calib_data = it,
      data_names = { "date" } })
    assert.same({ "data_names", "date", "data" }, { e.argument, e.got, e.candidates[1] })
    e = assert.raises("value", call, { calib_mode = "naive", calib_data = it,
      data_names = { "data", "c0_weight" } })
    assert.equal("data_names", e.argument)
    e = assert.raises("value", call, { calib_mode = "naive", calib_data = it,
      num_calib_examples = 0 })
    assert.same({ "num_calib_examples", 0 }, { e.argument, e.got })
  end)

  it("refuses to calibrate without parameters before a product", function()
    local function call(kind, missing)
      local given = { arg_params = {}, aux_params = {} }
      for what, list in pairs{ arg_params = arg, aux_params = aux } do
        for name, x in pairs(list) do
          given[what][name] = (what ~= kind or name ~= missing) and x or nil
        end
      end
      return ty.contrib.quantization.quantize_model{ net, given.arg_params, given.aux_params,
        calib_mode = "naive", calib_data = ty.io.NDArrayIter{ data, nil, batch_size = 8 } }
    end
    for kind, name in pairs{ arg_params = "c0_bn_beta", aux_params = "c0_bn_moving_var" } do
      local e = assert.raises("name", call, kind, name)
      assert.same({ kind, { name } }, { e.argument, e.missing })
    end
    call("arg_params", "fc_bias")                          -- is behind the last product's data
  end)

  it("leaves layers whose weights are not finite", function()
    local x = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 2, name = "fc" }
    for _, v in ipairs{ 0 / 0, 1 / 0, -1 / 0 } do
      local params = { fc_weight = nd.array{ { 1, v }, { 2, 3 } }, fc_bias = nd.zeros{ 2 } }
      local q, qparams = ty.contrib.quantization.quantize_dynamic(x, params)
      local got = run(q, qparams, nil, nd.ones{ 1, 2 })
      local first = got[0][0]:asscalar()
      assert.is_true(first == 1 + v or v ~= v and first ~= first)
      assert.equal(5, got[0][1]:asscalar())
    end
  end)

  it("refuses parameters that are no arrays, and entries of files", function()
    local quantization = ty.contrib.quantization
    local e = assert.raises("type", quantization.quantize_dynamic, net, { fc_weight = 3 })
    assert.same({ "params", "an NDArray for 'fc_weight'" }, { e.argument, e.expected })
    e = assert.raises("type", quantization.quantize_model, { sym = net, arg_params = arg,
      aux_params = { n0_moving_mean = "x" }, calib_mode = "none" })
    assert.equal("aux_params", e.argument)
    e = assert.raises("name", quantization.quantize_model, { sym = net, calib_mode = "none",
      arg_params = { ["arg:fc_weight"] = nd.ones{ 2, 2 } } })
    assert.same({ "arg_params", "arg:fc_weight" }, { e.argument, e.got })
    assert.raises("name", quantization.quantize_dynamic, net, { nd.ones{ 2, 2 } })
  end)

  it("quantize_dynamic takes products, and dot with a matrix of parameters", function()
    local x = ty.sym.Variable "data"
    local y = ty.sym.Activation{ ty.sym.FullyConnected{ x, num_hidden = 48, name = "fc" },
      act_type = "relu" }
    y = ty.sym.dot(y, ty.sym.Variable("matrix", { shape = { 48, 20 } }))
    local params = { fc_weight = nd.random.normal{ 0, 0.2, shape = { 48, 40 } },
      fc_bias = nd.random.normal{ 0, 0.2, shape = { 48 } },
      matrix = nd.random.normal{ 0, 0.2, shape = { 48, 20 } } }
    local input = nd.random.normal{ 0, 1, shape = { 16, 40 } }
    local exact = run(y, params, nil, input)
    local q, qparams = ty.contrib.quantization.quantize_dynamic(y, params)
    local got = run(q, qparams, nil, input)
    assert.same({ "data", "fc_weight_quantize", "fc_weight_scale", "fc_bias",
      "matrix_turned_quantize", "matrix_turned_scale" }, q:list_arguments())
    local off = (got - exact):abs():max():asscalar() / exact:abs():max():asscalar()
    assert.is_true(off > 0 and off < 0.03, ("%g off"):format(off))
  end)
end)
