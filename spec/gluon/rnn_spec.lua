-- Recurrent layers and cells: values against formulas in Lua and against each other, valid lengths,
-- states, gradients, names, files, mistakes.

local ty = require "tycho"
local support = require "spec.support.gluon"

local rnn, contrib, nd, F = ty.gluon.rnn, ty.gluon.contrib.rnn, ty.nd, ty.F
local form = support.form

local function dtype64(block)
  block:initialize()
  block:cast("float64")
  return block
end

local function named(f)
  return ty.name.NameManager():with(f)
end

local LAYERS = {
  rnn_relu = function(o)
    o.activation = "relu"
    return rnn.RNN(o)
  end,
  rnn_tanh = function(o)
    o.activation = "tanh"
    return rnn.RNN(o)
  end,
  lstm = function(o) return rnn.LSTM(o) end,
  gru = function(o) return rnn.GRU(o) end,
}

describe("a layer", function()
  for mode, make in pairs(LAYERS) do
    it("begin with states of a batch, whose size is asked for", function()
    for _, block in ipairs{ ty.gluon.rnn.LSTM(3), ty.gluon.rnn.GRUCell(3) } do
      assert.equal("batch_size", assert.raises("value", block.begin_state, block).argument)
      assert.equal(0, block:begin_state{ func = ty.sym.zeros }[1]:list_arguments()[1] and 1 or 0)
    end
  end)

  it("computes what its cells do: " .. mode, function()
      for _, o in ipairs{ {}, { num_layers = 2 }, { bidirectional = true },
          { num_layers = 2, bidirectional = true, layout = "NTC" } } do
        local options = { 3, layout = o.layout, num_layers = o.num_layers,
          bidirectional = o.bidirectional }
        local layer = dtype64(make(options))
        local x = form{ 4, 2, 5 }
        local length = o.layout == "NTC" and 2 or 4
        layer(x)
        support.fill(layer)
        local stack = layer:unfuse()
        local y, states = layer(x, layer:begin_state{ batch_size = o.layout and 4 or 2,
          dtype = "float64" })
        local z = stack:unroll{ length, x, layout = o.layout or "TNC", merge_outputs = true }
        assert.near(y, z, 1e-9)
        assert.near(y, layer(x), 1e-12)
        layer:hybridize()
        local h, h_states = layer(x, layer:begin_state{ batch_size = o.layout and 4 or 2,
          dtype = "float64" })
        assert.near(y, h, 1e-9)
        assert.near(states[1], h_states[1], 1e-9)
        assert.near(y, layer(x), 1e-9)
      end
    end)

    it("has right gradients: " .. mode, function()
      local layer = dtype64(make{ 3, num_layers = 2 })
      local x = form{ 3, 2, 2 }
      layer(x)
      support.fill(layer)
      ty.test_utils.check_gradient{ function(v) return layer(v) end, x, rtol = 1e-3 }
      local states = layer:begin_state{ batch_size = 2, func = nd.ones, dtype = "float64" }
      ty.test_utils.check_gradient{ function(h)
        local y, new = layer(x, { h, states[2] })
        return y, new[1]
      end, states[1], rtol = 1e-3 }
    end)
  end

  it("with a projection has states of two sizes, and trains", function()
    local layer = dtype64(rnn.LSTM{ 4, projection_size = 2, num_layers = 2 })
    local x = form{ 3, 2, 3 }
    layer(x)
    support.fill(layer)
    local cell = dtype64(contrib.LSTMPCell{ 4, 2, input_size = 3 })
    cell.i2h_weight:set_data(layer.l0_i2h_weight:data())
    cell.h2h_weight:set_data(layer.l0_h2h_weight:data())
    cell.h2r_weight:set_data(layer.l0_h2r_weight:data())
    cell.i2h_bias:set_data(layer.l0_i2h_bias:data())
    cell.h2h_bias:set_data(layer.l0_h2h_bias:data())
    local one = dtype64(rnn.LSTM{ 4, projection_size = 2, input_size = 3 })
    for _, name in ipairs{ "i2h_weight", "h2h_weight", "h2r_weight", "i2h_bias", "h2h_bias" } do
      one["l0_" .. name]:set_data(layer["l0_" .. name]:data())
    end
    assert.near(one(x), (cell:unroll{ 3, x, layout = "TNC", merge_outputs = true }), 1e-9)
    assert.same({ 2, 5, 2 }, layer:state_info(5)[1].shape)
    assert.same({ 2, 5, 4 }, layer:state_info(5)[2].shape)
    ty.test_utils.check_gradient{ function(v) return layer(v) end, x, rtol = 1e-3 }
    layer:hybridize()
    ty.test_utils.check_gradient{ function(v) return layer(v) end, x, rtol = 1e-3 }
  end)

  it("with a projection in both directions has right gradients of weights and states", function()
    local layer = dtype64(rnn.LSTM{ 4, projection_size = 2, bidirectional = true, input_size = 3 })
    support.fill(layer)
    local x = form{ 3, 2, 3 }
    local states = { form({ 2, 2, 2 }, "float64", 5), form({ 2, 2, 4 }, "float64", 6) }
    ty.test_utils.check_gradient{ function(v, h, c)
      local y, new = layer(v, { h, c })
      return y, new[1], new[2]
    end, { x, states[1], states[2] }, rtol = 1e-3 }
    local function total() return layer(x, states):sum() end
    ty.autograd.record(total):backward()
    for _, name in ipairs{ "l0_h2r_weight", "r0_h2r_weight", "l0_h2h_weight", "r0_i2h_bias" } do
      local p = layer[name]
      local flat, eps = p:data():reshape{ -1 }, 1e-5
      local slope = p:grad():reshape{ -1 }:totable()
      for i = 0, 2 do
        local v = flat:get(i)
        flat:set(i, v + eps)
        local high = total():asscalar()
        flat:set(i, v - eps)
        assert.near((high - total():asscalar()) / (2 * eps), slope[i + 1], 1e-6)
        flat:set(i, v)
      end
    end
  end)

  it("begins with states of the parameters' dtype, also of those from a file", function()
    local path, x = os.tmpname(), form({ 3, 2, 3 }, "float64")
    for _, mode in ipairs{ "LSTM", "GRU", "RNN" } do
      local layer = rnn[mode](4)
      layer:initialize()
      layer:cast("float64")
      local want = layer(x)
      layer:save_parameters(path)
      for _, before in ipairs{ false, true } do
        local other = rnn[mode](4)
        other:hybridize()
        if before then
          other:initialize()
          other(x:astype("float32"))
        end
        other:load_parameters(path, { cast_dtype = true, dtype_source = "saved", ctx = x.context })
        local y = other(x)
        assert.equal("float64", y.dtype)
        assert.near(want, y, 1e-12)
        assert.equal("float64", other:begin_state(2)[1].dtype)
      end
    end
    os.remove(path)
  end)

  it("takes one array for its list of states", function()
    local layer = rnn.GRU{ 3, input_size = 2 }
    layer:initialize()
    local x = nd.ones{ 4, 1, 2 }
    local y, states = layer(x, nd.zeros{ 1, 1, 3 })
    assert.near(layer(x), y)
    assert.equal(1, #states)
  end)

  it("refuses states of other shapes and unknown words", function()
    local layer = rnn.LSTM{ 3, input_size = 2 }
    layer:initialize()
    local x = nd.ones{ 4, 1, 2 }
    assert.raises("shape", layer, x, { nd.zeros{ 7, 7, 7 } })
    assert.raises("shape", layer, x, { nd.zeros{ 1, 1, 3 } })
    assert.raises("shape", layer, x, { nd.zeros{ 1, 2, 3 }, nd.zeros{ 1, 2, 3 } })
    assert.raises("value", rnn.LSTM, { 3, layout = "CNT" })
    assert.raises("value", rnn.RNN, { 3, activation = "sigmoid" })
    assert.raises("name", rnn.GRU, { 3, projection_size = 2 })
    assert.raises("name", function() return rnn.LSTN(3) end)
    assert.raises("unsupported", function() return rnn.LSTM{ 3, projection_size = 2 }:unfuse() end)
  end)

  it("has names, texts and keys in files as the reference", function()
    named(function()
      local layer = rnn.LSTM{ 2, num_layers = 2, bidirectional = true, input_size = 3 }
      assert.equal("lstm0_l0_i2h_weight", layer.l0_i2h_weight.name)
      assert.equal("LSTM(3 -> 2, TNC, num_layers=2, bidirectional)", tostring(layer))
      assert.equal("RNN(None -> 2, NTC, dropout=0.5)",
        tostring(rnn.RNN{ 2, layout = "NTC", dropout = 0.5 }))
      layer:initialize()
      local file = os.tmpname()
      layer:save_parameters(file)
      local saved = nd.load(file)
      assert.is_not_nil(saved["_unfused.1.r_cell.h2h_bias"])
      local other = rnn.LSTM{ 2, num_layers = 2, bidirectional = true }
      other:load_parameters(file)
      assert.near(layer.r1_h2h_weight:data(), other.r1_h2h_weight:data())
      local stack = layer:unfuse()
      stack:load_parameters(file, { ignore_extra = true, allow_missing = true })
      os.remove(file)
      file = os.tmpname()
      local plain = rnn.GRU{ 2, input_size = 3 }
      plain:initialize()
      plain:save_parameters(file)
      assert.is_not_nil(nd.load(file)["_unfused.0.i2h_weight"])
      os.remove(file)
    end)
  end)
end)


describe("a layer's input", function()
  it("is one tensor", function()
    for _, layer in ipairs{ rnn.LSTM(2), rnn.GRU(2), rnn.RNN(2) } do
      layer:initialize()
      local x = nd.ones{ 3, 2, 2 }
      for _, input in ipairs{ { x }, { x, x } } do
        assert.raises("type", layer, input)
        assert.raises("type", layer.infer_shape, layer, input)
        assert.raises("type", layer.summary, layer, input)
      end
    end
  end)
end)

describe("a cell", function()
  local function make_step(make, states)
    local cell = dtype64(make())
    local x = form{ 2, 3 }
    local begin = {}
    for i = 1, states do begin[i] = form({ 2, 2 }, "float64", 10 + i) end
    cell(x, begin)
    support.fill(cell)
    return cell, x, begin
  end

  local function linear(cell, x, h)
    local function map(v, weight, bias)
      return F.FullyConnected{ v, weight:data(), bias:data(), num_hidden = weight.shape[1] }
    end
    return map(x, cell.i2h_weight, cell.i2h_bias), map(h, cell.h2h_weight, cell.h2h_bias)
  end

  it("RNNCell is its activation of the sum of two maps", function()
    for _, activation in ipairs{ "tanh", "relu", "softsign" } do
      local cell, x, s = make_step(function() return rnn.RNNCell{ 2, activation } end, 1)
      local a, b = linear(cell, x, s[1])
      local want = activation == "softsign" and (a + b) / (1 + (a + b):abs())
        or F[activation](a + b)
      local y, new = cell(x, s)
      assert.near(want, y, 1e-9)
      assert.equal(y, new[1])
    end
    local leaky = make_step(function() return rnn.RNNCell{ 2, ty.gluon.nn.LeakyReLU(0.5) } end, 1)
    assert.is_table(leaky)
  end)

  it("LSTMCell has gates i, f, c, o", function()
    local cell, x, s = make_step(function() return rnn.LSTMCell(2) end, 2)
    local a, b = linear(cell, x, s[1])
    local g = a + b
    local function gate(k) return g[(":, %d:%d"):format(2 * k, 2 * k + 2)] end
    local c = F.sigmoid(gate(1)) * s[2] + F.sigmoid(gate(0)) * F.tanh(gate(2))
    local y, new = cell(x, s)
    assert.near(c, new[2], 1e-9)
    assert.near(F.sigmoid(gate(3)) * F.tanh(c), y, 1e-9)
  end)

  it("GRUCell has gates r, z, o", function()
    local cell, x, s = make_step(function() return rnn.GRUCell(2) end, 1)
    local a, b = linear(cell, x, s[1])
    local function gate(v, k) return v[(":, %d:%d"):format(2 * k, 2 * k + 2)] end
    local r = F.sigmoid(gate(a, 0) + gate(b, 0))
    local z = F.sigmoid(gate(a, 1) + gate(b, 1))
    local n = F.tanh(gate(a, 2) + r * gate(b, 2))
    assert.near((1 - z) * n + z * s[1], (cell(x, s)), 1e-9)
  end)

  local CELLS = {
    rnn = function() return rnn.RNNCell(3) end,
    lstm = function() return rnn.LSTMCell(3) end,
    gru = function() return rnn.GRUCell(3) end,
    lstmp = function() return contrib.LSTMPCell(4, 3) end,
    residual = function() return rnn.ResidualCell(rnn.GRUCell(3)) end,
    zoneout = function() return rnn.ZoneoutCell{ rnn.LSTMCell(3), zoneout_outputs = 0.3 } end,
    variational = function()
      return contrib.VariationalDropoutCell{ rnn.LSTMCell(3), drop_inputs = 0.2 }
    end,
    bidirectional = function() return rnn.BidirectionalCell(rnn.LSTMCell(3), rnn.GRUCell(3)) end,
    stack = function()
      local s = rnn.HybridSequentialRNNCell()
      s:add(rnn.LSTMCell(3))
      s:add(rnn.DropoutCell(0.5))
      s:add(rnn.ResidualCell(rnn.RNNCell(3)))
      return s
    end,
  }

  it("unroll one step, and join one part, without a warning", function()
    local texts, sink = {}, ty.log.sink
    ty.log.sink = function(_, text) texts[#texts + 1] = text end
    local cell = rnn.LSTMCell(3)
    cell:initialize()
    local y = cell:unroll{ 1, form({ 2, 1, 3 }, "float32"), merge_outputs = true,
      valid_length = nd.array{ 1, 1 } }
    local joined = ty.gluon.contrib.nn.HybridConcurrent{ axis = 1 }
    joined:add(ty.gluon.nn.Dense(2))
    joined:initialize()
    local z = joined(nd.ones{ 2, 3 })
    ty.log.sink = sink
    assert.same({ 2, 1, 3 }, y.shape)
    assert.same({ 2, 2 }, z.shape)
    assert.same({}, texts)
  end)

  it("outputs come in the form of the inputs, if nothing is said about them", function()
    local stack = rnn.HybridSequentialRNNCell()
    stack:add(rnn.GRUCell{ 2, input_size = 3 })
    stack:add(rnn.ResidualCell(rnn.RNNCell{ 2, input_size = 2 }))
    local both = rnn.BidirectionalCell(rnn.GRUCell{ 2, input_size = 3 },
      rnn.GRUCell{ 2, input_size = 3 })
    local x = form({ 2, 4, 3 }, "float32")
    local steps = nd.split{ x, num_outputs = 4, axis = 1, squeeze_axis = true }
    for size, cell in pairs{ [2] = stack, [4] = both } do
      cell:initialize()
      for _, valid_length in ipairs{ ty.null, nd.array{ 2, 4 } } do
        local whole = cell:unroll(4, x, { valid_length = valid_length })
        assert.same({ 2, 4, size }, whole.shape)
        assert.equal(4, #cell:unroll(4, steps, { valid_length = valid_length }))
      end
      local y = cell:unroll(4, ty.sym.Variable("x"))
      assert.equal(1, #y:list_outputs())
    end
  end)

  it("unroll takes its options in the third place and refuses unknown ones", function()
    local cell = rnn.RNNCell{ 2, input_size = 3 }
    cell:initialize()
    local x, begin = form({ 2, 4, 3 }, "float32"), { nd.ones{ 2, 2 } }
    local want = cell:unroll{ 4, x, begin_state = begin }
    assert.near(want, (cell:unroll(4, x, { begin_state = begin })), 0)
    assert.near(want, (cell:unroll(4, x, begin)), 0)
    local e = assert.raises("name", cell.unroll, cell, 4, x, { begin_states = begin })
    assert.equal("begin_states", e.argument)
    assert.raises("name", cell.unroll, cell, 4, x, { layout = "NTC", merge = true })
  end)

  for name, make in pairs(CELLS) do
    it("unrolls over arrays, lists and both layouts alike: " .. name, function()
      local cell = make()
      cell:initialize()
      local x = form({ 2, 4, 3 }, "float32")
      cell:unroll{ 4, x }
      support.fill(cell)
      local whole, states = cell:unroll{ 4, x, merge_outputs = true }
      local list = cell:unroll{ 4, x, merge_outputs = false }
      assert.equal(4, #list)
      assert.near(whole, nd.stack{ list[1], list[2], list[3], list[4], axis = 1 }, 1e-6)
      local steps = nd.split{ x, num_outputs = 4, axis = 1, squeeze_axis = true }
      local by_steps, again = cell:unroll(4, steps, nil, "NTC", true)
      local _, ends = cell:unroll(4, steps, {})         -- options of which none is set
      assert.near(states[1], ends[1], 1e-6)
      assert.near(whole, by_steps, 1e-6)
      assert.near(states[1], again[1], 1e-6)
      local time_first = cell:unroll{ 4, x:swapaxes{ dim1 = 0, dim2 = 1 }, layout = "TNC",
        merge_outputs = true }
      assert.near(whole, time_first:swapaxes{ dim1 = 0, dim2 = 1 }, 1e-6)
    end)

    it("ends at valid lengths: " .. name, function()
      local cell = make()
      cell:initialize()
      local x = form({ 2, 4, 3 }, "float32")
      cell:unroll{ 4, x }
      support.fill(cell)
      local y, states = cell:unroll{ 4, x, merge_outputs = true, valid_length = nd.array{ 2, 4 } }
      local short, short_states = cell:unroll{ 2, x["0:1, 0:2"], merge_outputs = true }
      assert.near(short, y["0:1, 0:2"], 1e-6)
      assert.near(0, y["0:1, 2:4"]:abs():sum():asscalar())
      for i, s in ipairs(short_states) do
        assert.near(s, states[i]["0:1"], 1e-6)
      end
    end)

    it("is traced in the dtype of its parameters: " .. name, function()
      local Net = ty.gluon.HybridBlock:extend("Net")
      function Net:init() self.cell = make() end
      function Net:forward(x) return self.cell:unroll{ 4, x, merge_outputs = true } end
      local net, x = Net(), form({ 2, 4, 3 }, "float32")
      net:initialize()
      net:hybridize()
      net(x)
      support.fill(net)
      local want = net(x)
      for _, p in ipairs(net:collect_params():values()) do p:cast("float64") end
      local y, states = net(x:astype("float64"))
      assert.equal("float64", y.dtype)
      assert.equal("float64", states[1].dtype)
      assert.near(want, y, 1e-5)
    end)

    it("is traced as part of a block: " .. name, function()
      local Net = ty.gluon.HybridBlock:extend("Net")
      function Net:init() self.cell = make() end
      function Net:forward(x)
        return (self.cell:unroll{ 4, x, merge_outputs = true })
      end
      local net = Net()
      net:initialize()
      local x = form({ 2, 4, 3 }, "float32")
      local y = net(x)
      net:hybridize()
      assert.near(y, net(x), 1e-6)
      assert.shape({ 3, 4, y.shape[3] }, net(form({ 3, 4, 3 }, "float32")))
    end)
  end

  it("unrolls in a network of any dtype, traced or not, whose sizes come from the input", function()
    local cells = {
      function() return rnn.RNNCell(3) end, function() return rnn.LSTMCell(3) end,
      function() return rnn.ZoneoutCell(rnn.GRUCell(3), 0.2, 0.2) end,
      function() return rnn.BidirectionalCell(rnn.LSTMCell(3), rnn.GRUCell(3)) end,
      function() return contrib.VariationalDropoutCell(rnn.ResidualCell(rnn.RNNCell(3)), 0.5) end,
      function() return contrib.LSTMPCell(4, 3) end,
      function()
        local stack = rnn.HybridSequentialRNNCell()
        stack:add(rnn.DropoutCell(0.5))
        stack:add(rnn.LSTMCell(3))
        return stack
      end,
    }
    local Unrolled = ty.gluon.HybridBlock:extend("Unrolled")
    function Unrolled:init(cell) self.cell = cell end
    function Unrolled:forward(x) return (self.cell:unroll{ 2, x, merge_outputs = true }) end
    for _, make in ipairs(cells) do
      for dtype, near in pairs{ float64 = 1e-12, float16 = 1e-2 } do
        local net = Unrolled(make())
        net:initialize{ init = ty.init.Uniform(0.5) }
        net:cast(dtype)
        local x = form({ 2, 2, 3 }, dtype)
        local y = net(x)
        assert.equal(dtype, y.dtype)
        net:hybridize()
        local z = net(x)
        assert.equal(dtype, z.dtype)
        assert.near(y, z, near, 0, tostring(net))
      end
    end
  end)

  it("has right gradients", function()
    local cell = dtype64(rnn.ResidualCell(rnn.LSTMCell(3)))
    local x = form{ 2, 3, 3 }
    cell:unroll{ 3, x }
    support.fill(cell)
    ty.test_utils.check_gradient{ function(v)
      return (cell:unroll{ 3, v, merge_outputs = true, valid_length = nd.array{ 2, 3 } })
    end, x, rtol = 1e-3 }
  end)

  it("begins with states by a function", function()
    local cell = rnn.LSTMCell(3)
    local s = cell:begin_state{ batch_size = 2, func = nd.ones, dtype = "float64" }
    assert.equal(2, #s)
    assert.near({ { 1, 1, 1 }, { 1, 1, 1 } }, s[2])
    assert.equal("float64", s[1].dtype)
    local symbols = rnn.LSTMCell{ 3, prefix = "c_" }:begin_state{ func = ty.sym.Variable }
    assert.same({ "c_begin_state_0" }, symbols[1]:list_arguments())
    assert.is_true(ty.is_a(rnn.ZoneoutCell(rnn.RNNCell(2)):begin_state{ batch_size = 1 }[1],
      nd.NDArray))
  end)

  it("names the nodes of steps", function()
    local cell = rnn.GRUCell{ 2, prefix = "g_" }
    local list = {}
    for i = 1, 2 do list[i] = ty.sym.Variable("x" .. i) end
    local y = cell:unroll{ 2, list, merge_outputs = false }
    assert.same({ "g_t0_out_output" }, y[1]:list_outputs())
    assert.same({ "g_t1_out_output" }, y[2]:list_outputs())
    cell:reset()
    assert.same({ "g_t0_out_output" },
      (cell(list[1], cell:begin_state{ func = ty.sym.zeros })):list_outputs())
  end)

  it("of one's own defines state_info and forward", function()
    local Plus = rnn.HybridRecurrentCell:extend("Plus")
    function Plus:state_info(n) return { { shape = { n or 0, 2 } } } end
    function Plus:forward(x, s)
      local y = x + s[1]
      return y, { y }
    end
    local y, s = Plus():unroll{ 3, nd.ones{ 1, 3, 2 }, merge_outputs = true }
    assert.near({ { { 1, 1 }, { 2, 2 }, { 3, 3 } } }, y)
    assert.near({ { 3, 3 } }, s[1])
    local Bare = rnn.RecurrentCell:extend("Bare")
    assert.raises("unsupported", function() return Bare():begin_state() end)
  end)

  it("takes one state alone, and refuses a step without states", function()
    local cell = rnn.RNNCell{ 2, input_size = 2 }
    cell:initialize()
    local x = nd.ones{ 1, 2 }
    assert.near((cell(x, { nd.ones{ 1, 2 } })), (cell(x, nd.ones{ 1, 2 })))
    assert.raises("type", cell, x)
    assert.raises("type", cell, x, 3)
    assert.raises("type", cell.infer_shape, cell, x)
    assert.raises("type", cell.infer_type, cell, x, 3)
    assert.near(x, (rnn.DropoutCell(0.5)(x)))
  end)

  it("texts are the reference's", function()
    assert.equal("RNNCell(None -> 2, relu)", tostring(rnn.RNNCell(2, "relu")))
    assert.equal("LSTMCell(3 -> 8)", tostring(rnn.LSTMCell{ 2, input_size = 3 }))
    assert.equal("DropoutCell(rate=0.5, axes=())", tostring(rnn.DropoutCell(0.5)))
    assert.equal("ResidualCell(GRUCell(None -> 6))", tostring(rnn.ResidualCell(rnn.GRUCell(2))))
    assert.equal("ZoneoutCell(p_out=0.5, p_state=0, RNNCell(None -> 2, tanh))",
      tostring(rnn.ZoneoutCell(rnn.RNNCell(2), 0.5)))
    assert.equal("BidirectionalCell(forward=RNNCell(None -> 2, tanh), \z
      backward=RNNCell(None -> 2, tanh))",
      tostring(rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2))))
  end)
end)


describe("a modifier", function()
  it("has the base's parameters and a prefix of the base's and its hint", function()
    named(function()
      local cell = rnn.LSTMCell(2)
      local zone = rnn.ZoneoutCell(cell)
      assert.equal("lstm0_zoneout", zone.prefix)
      assert.equal("lstm0_zoneoutresidualcell", rnn.ResidualCell(zone).prefix)
      assert.equal(cell.i2h_weight, zone:collect_params()["lstm0_i2h_weight"])
      assert.equal("", rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2)).prefix)
    end)
  end)

  it("refuses a base that is modified, or is called by itself", function()
    local cell = rnn.RNNCell{ 2, input_size = 2 }
    local residual = rnn.ResidualCell(cell)
    residual:initialize()
    assert.raises("state", rnn.ZoneoutCell, cell)
    assert.raises("state", cell.begin_state, cell)
    assert.raises("state", cell, nd.ones{ 1, 2 }, { nd.ones{ 1, 2 } })
    assert.shape({ 1, 2 }, (residual(nd.ones{ 1, 2 }, residual:begin_state{ batch_size = 1 })))
    assert.raises("type", rnn.ResidualCell, 3)
    local bi = rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2))
    assert.raises("unsupported", bi, nd.ones{ 1, 2 }, {})
    assert.raises("unsupported", rnn.ZoneoutCell, bi)
    assert.raises("type", rnn.BidirectionalCell, rnn.RNNCell(2), 3)
  end)

  it("leaves the base usable to itself after an error", function()
    local cell = rnn.ResidualCell(rnn.RNNCell{ 2, input_size = 2 })
    cell:initialize()
    assert.is_false(pcall(cell.unroll, cell, { 2, nd.ones{ 1, 2, 3 } }))
    assert.shape({ 1, 2, 2 }, (cell:unroll{ 2, nd.ones{ 1, 2, 2 }, merge_outputs = true }))
  end)

  it("zones out in training only", function()
    local cell = rnn.ZoneoutCell{ rnn.RNNCell{ 50, input_size = 2 }, zoneout_states = 0.5 }
    cell:initialize()
    local x, begin = nd.ones{ 1, 2 }, { nd.ones{ 1, 50 } }
    local y, s = cell(x, begin)
    assert.near(y, s[1])
    cell:reset()
    local _, kept = ty.autograd.record(function() return cell(x, begin) end)
    local n = 0
    for _, v in ipairs(kept[1]:totable()[1]) do n = n + (v == 1 and 1 or 0) end
    assert.is_true(n > 5 and n < 45)
  end)

  it("keeps what it keeps from step to step when it is hybridized", function()
    local function outputs(hybrid)
      local cell = rnn.ZoneoutCell{ rnn.RNNCell{ 40, input_size = 2,
        i2h_weight_initializer = "ones", h2h_weight_initializer = "ones" }, zoneout_outputs = 0.5 }
      local stack = rnn.HybridSequentialRNNCell()
      stack:add(cell)
      stack:initialize()
      if hybrid then stack:hybridize() end
      ty.random.seed(3)
      local x = nd.ones{ 1, 2 }
      return ty.autograd.record(function()
        local y, s = stack(x, stack:begin_state{ batch_size = 1 })
        return (stack(x * 2, s)) + y * 0
      end)
    end
    assert.near(outputs(false), outputs(true), 1e-6)
  end)

  it("drops the same inputs at every step", function()
    local Sum = rnn.HybridRecurrentCell:extend("Sum")
    function Sum:state_info(n) return { { shape = { n or 0, 20 } } } end
    function Sum:forward(x, s) return x, s end
    for _, o in ipairs{ { drop_inputs = 0.5 }, { drop_inputs = 0.5, drop_states = 0.1 } } do
      local cell = contrib.VariationalDropoutCell{ Sum(), drop_inputs = o.drop_inputs,
        drop_states = o.drop_states }
      local y = ty.autograd.record(function()
        return (cell:unroll{ 3, nd.ones{ 1, 3, 20 }, merge_outputs = true })
      end):totable()[1]
      assert.same(y[1], y[2])
      assert.same(y[1], y[3])
    end
  end)
end)


describe("convolutional cells", function()
  for dims = 1, 3 do
    for _, kind in ipairs{ "RNN", "LSTM", "GRU" } do
      it(("of %d dimensions keep pictures: %s"):format(dims, kind), function()
        local shape, batch = { 2, 5, 4, 3 }, { 1, 3, 2, 5, 4, 3 }
        local cell = contrib[("Conv%dD%sCell"):format(dims, kind)]{
          input_shape = { unpack(shape, 1, dims + 1) }, hidden_channels = 3, i2h_kernel = 3,
          h2h_kernel = 3, i2h_pad = 1 }
        cell:initialize()
        local x = form({ unpack(batch, 1, dims + 3) }, "float32")
        local y, s = cell:unroll{ 3, x, merge_outputs = true }
        local want = { 1, 3, 3, unpack(shape, 2, dims + 1) }
        assert.shape(want, y)
        assert.equal(kind == "LSTM" and 2 or 1, #s)
        cell:hybridize()
        assert.near(y, (cell:unroll{ 3, x, merge_outputs = true }), 1e-5)
      end)
    end
  end

  it("compute the formula of the cell on pictures of one point", function()
    local cell = dtype64(contrib.Conv1DLSTMCell{ input_shape = { 2, 1 }, hidden_channels = 3,
      i2h_kernel = 1, h2h_kernel = 1 })
    support.fill(cell)
    local dense = dtype64(rnn.LSTMCell{ 3, input_size = 2 })
    for _, name in ipairs{ "i2h_weight", "h2h_weight" } do
      dense[name]:set_data(cell[name]:data():reshape{ 12, -1 })
    end
    for _, name in ipairs{ "i2h_bias", "h2h_bias" } do dense[name]:set_data(cell[name]:data()) end
    local x = form{ 2, 2 }
    local s = { form({ 2, 3 }, "float64", 2), form({ 2, 3 }, "float64", 3) }
    local y = cell(x:reshape{ 2, 2, 1 }, { s[1]:reshape{ 2, 3, 1 }, s[2]:reshape{ 2, 3, 1 } })
    assert.near((dense(x, s)), y:reshape{ 2, 3 }, 1e-9)
  end)

  it("refuse even kernels of states and wrong sizes", function()
    local o = { input_shape = { 2, 4, 4 }, hidden_channels = 2, i2h_kernel = 3, h2h_kernel = 2 }
    assert.raises("value", contrib.Conv2DGRUCell, o)
    o.h2h_kernel, o.input_shape = 3, { 2, 4 }
    assert.raises("value", contrib.Conv2DGRUCell, o)
    o.input_shape, o.i2h_pad = { 2, 4, 4 }, { 1, 1, 1 }
    assert.raises("value", contrib.Conv2DGRUCell, o)
  end)

  it("have prefixes and texts as the reference", function()
    named(function()
      local cell = contrib.Conv2DLSTMCell{ { 2, 4, 4 }, 3, 3, 3 }
      assert.equal("conv_lstm0_", cell.prefix)
      assert.equal("Conv2DLSTMCell(2 -> 12, tanh, NCHW)", tostring(cell))
    end)
  end)
end)


describe("dynamic_unroll", function()
  it("gives what unroll gives", function()
    local cell = rnn.LSTMCell{ 3, input_size = 2 }
    cell:initialize()
    for _, layout in ipairs{ "TNC", "NTC" } do
      local x = form({ 4, 4, 2 }, "float32")
      local want, states = cell:unroll{ 4, x, layout = layout, merge_outputs = true }
      local begin = cell:begin_state{ batch_size = 4 }
      local y, new = contrib.dynamic_unroll{ cell, x, begin, layout = layout }
      assert.near(want, y, 1e-6)
      assert.near(states[2], new[2], 1e-6)
      local lengths = nd.array{ 1, 4, 2, 3 }
      want, states = cell:unroll{ 4, x, layout = layout, merge_outputs = true,
        valid_length = lengths }
      y, new = contrib.dynamic_unroll{ cell, x, begin, layout = layout, valid_length = lengths }
      assert.near(want, y, 1e-6)
      assert.near(states[1], new[1], 1e-6)
    end
  end)

  it("free what a step makes on the way, unless a function of the script has it", function()
    local seen
    local function watched(v)
      seen = nd.tanh(v)
      return seen
    end
    for _, case in ipairs{ { rnn.LSTMCell(3, { input_size = 2 }), 2 },
        { rnn.GRUCell(3, { input_size = 2 }), 1 }, { rnn.RNNCell(3, { input_size = 2 }), 1 },
        { rnn.RNNCell(3, { input_size = 2, activation = watched }), 4 } } do
      local cell, count = case[1], case[2]
      cell:initialize()
      local x, begin, left = form({ 4, 2 }, "float32"), cell:begin_state(4), nil
      for _ = 1, 2 do
        collectgarbage()
        collectgarbage("stop")
        ty.waitall()                                     -- what is queued holds arrays, too
        local before = ty.live().tensors
        local y = ty.autograd.record(function() return (cell(x, begin)) end)
        ty.waitall()
        left = ty.live().tensors - before
        collectgarbage("restart")
        y:backward()
      end
      assert.equal(count, left, tostring(cell))
    end
    assert.equal(4, seen.shape[1])
  end)
end)

describe("states of another number than a block has", function()
  local one, two = { nd.zeros{ 2, 4 } }, { nd.zeros{ 2, 4 }, nd.zeros{ 2, 4 } }
  local cells = { { rnn.LSTMCell(4), one, 2 }, { rnn.LSTMCell(4), nd.zeros{ 2, 4 }, 2 },
    { rnn.GRUCell(4), two, 1 }, { rnn.GRUCell(4), {}, 1 }, { rnn.RNNCell(4), two, 1 },
    { rnn.RNNCell(4), {}, 1 }, { contrib.LSTMPCell(4, 4), one, 2 },
    { contrib.Conv1DLSTMCell({ 2, 3 }, 4, 1, 1), one, 2 },
    { contrib.Conv1DGRUCell({ 2, 3 }, 4, 1, 1), two, 1 },
    { contrib.Conv1DRNNCell({ 2, 3 }, 4, 1, 1), {}, 1 },
    { rnn.ResidualCell(rnn.LSTMCell(3)), one, 2 }, { rnn.ZoneoutCell(rnn.GRUCell(4)), two, 1 } }

  it("are refused by a cell, which says how many there are", function()
    for _, case in ipairs(cells) do
      local cell, states, expected = case[1], case[2], case[3]
      local x = cell.class_name:find("^Conv") and nd.ones{ 2, 2, 3 } or nd.ones{ 2, 3 }
      for _, hybrid in ipairs{ false, true } do
        cell:initialize{ force_reinit = true }
        cell:hybridize(hybrid)
        local e = assert.raises("shape", cell, x, states)
        assert.same({ "states", expected }, { e.argument, e.expected }, tostring(cell))
      end
    end
  end)

  it("are refused by a layer", function()
    local h = nd.zeros{ 1, 3, 4 }
    for _, case in ipairs{ { "LSTM", h, 2 }, { "LSTM", { h }, 2 }, { "LSTM", { h, h, h }, 2 },
        { "GRU", { h, h }, 1 }, { "RNN", { h, h }, 1 }, { "GRU", {}, 1 } } do
      for _, hybrid in ipairs{ false, true } do
        local layer = rnn[case[1]](4)
        layer:initialize()
        layer:hybridize(hybrid)
        local e = assert.raises("shape", layer, nd.ones{ 2, 3, 5 }, case[2])
        assert.same({ "states", case[3] }, { e.argument, e.expected })
      end
    end
  end)
end)
