-- Recurrent cells: formulas, shapes and names of states, both layouts, fused against single cells,
-- weights by gate, checkpoints, texts of mistakes. The graphs of all cells are compared with
-- recorded ones in spec/vectors/rnn_cells.lua.

local ty = require "tycho"

local V = ty.sym.Variable
local level = ty.log.level

setup(function() ty.log.level = "error" end)
teardown(function() ty.log.level = level end)

local function bound(net, sizes, values)
  local exe = net:simple_bind{ ctx = ty.cpu(), shapes = sizes }
  for name, v in pairs(values or {}) do
    exe.arg_dict[name][":"] = v
  end
  return exe
end

local function randomize(exe, seed)
  ty.random.seed(seed)
  for _, x in pairs(exe.arg_dict) do
    x[":"] = ty.nd.random.uniform{ low = -0.5, high = 0.5, shape = x.shape }
  end
end

local function sigmoid(x) return 1 / (1 + math.exp(-x)) end

-- Returns the outputs per step of a cell of one unit over the numbers xs. Weights by short name:
-- wx, bx, wh, bh, one per gate.
local function compute_outputs(cell, prefix, xs, w)
  local out = cell:unroll{ length = #xs, inputs = V "data", merge_outputs = true }
  local data, column = { {} }, {}
  for t, x in ipairs(xs) do data[1][t] = { x } end
  for i, v in ipairs(w.wx) do column[i] = { v } end
  local rows = {}
  for i, v in ipairs(w.wh) do rows[i] = { v } end
  local exe = bound(out, { data = { 1, #xs, 1 } }, { data = data, [prefix .. "i2h_weight"] = column,
    [prefix .. "h2h_weight"] = rows, [prefix .. "i2h_bias"] = w.bx, [prefix .. "h2h_bias"] = w.bh })
  return exe:forward()[1]:reshape{ -1 }:totable()
end

describe("cells follow their formulas:", function()
  local XS = { 0.5, -1, 2 }

  it("RNNCell, tanh, relu and a function", function()
    local w = { wx = { 0.7 }, bx = { 0.1 }, wh = { -0.4 }, bh = { 0.2 } }
    local acts = {
      { "tanh", math.tanh }, { "relu", function(v) return math.max(v, 0) end },
      { function(x, options) return ty.sym.sin(x, options) end, math.sin },
    }
    for _, act in ipairs(acts) do
      local h, want = 0, {}
      for t, x in ipairs(XS) do
        h = act[2](0.7 * x + 0.1 - 0.4 * h + 0.2)
        want[t] = h
      end
      assert.near(want,
        ty.nd.array(compute_outputs(ty.rnn.RNNCell{ 1, activation = act[1] }, "rnn_", XS, w)))
    end
  end)

  it("LSTMCell", function()
    local w = { wx = { 0.1, 0.2, 0.3, 0.4 }, bx = { 0.5, -0.1, 0.2, 0 },
      wh = { -0.3, 0.6, 0.9, 0.2 }, bh = { 0, 0.1, 0, 0.3 } }
    local h, c, want = 0, 0, {}
    for t, x in ipairs(XS) do
      local a = {}
      for k = 1, 4 do a[k] = w.wx[k] * x + w.bx[k] + w.wh[k] * h + w.bh[k] end
      c = sigmoid(a[2]) * c + sigmoid(a[1]) * math.tanh(a[3])
      h = sigmoid(a[4]) * math.tanh(c)
      want[t] = h
    end
    assert.near(want, ty.nd.array(compute_outputs(ty.rnn.LSTMCell{ 1 }, "lstm_", XS, w)))
  end)

  it("GRUCell, whose reset gate takes the state's bias too", function()
    local w = { wx = { 0.1, 0.2, 0.3 }, bx = { 0.5, -0.1, 0.2 },
      wh = { -0.3, 0.6, 0.9 }, bh = { 0, 0.1, 0.4 } }
    local h, want = 0, {}
    for t, x in ipairs(XS) do
      local xs, hs = {}, {}
      for k = 1, 3 do xs[k], hs[k] = w.wx[k] * x + w.bx[k], w.wh[k] * h + w.bh[k] end
      local r, z = sigmoid(xs[1] + hs[1]), sigmoid(xs[2] + hs[2])
      h = (1 - z) * math.tanh(xs[3] + r * hs[3]) + z * h
      want[t] = h
    end
    assert.near(want, ty.nd.array(compute_outputs(ty.rnn.GRUCell{ 1 }, "gru_", XS, w)))
  end)

  it("ZoneoutCell keeps old values in training only", function()
    local cell = ty.rnn.ZoneoutCell{ ty.rnn.RNNCell{ 200, activation = "relu" },
      zoneout_outputs = 0.5 }
    local exe = bound(cell:unroll{ length = 2, inputs = V "data", merge_outputs = false }[1],
      { data = { 1, 2, 1 } },
      { data = 1, rnn_i2h_weight = 1, rnn_h2h_weight = 0, rnn_i2h_bias = 0, rnn_h2h_bias = 0 })
    assert.are.equal(200, exe:forward(false)[1]:sum():asscalar())
    ty.random.seed(1)
    local kept = exe:forward(true)[1]:sum():asscalar()
    assert.is_true(kept > 60 and kept < 140, tostring(kept))
  end)

  it("BidirectionalCell sees the sequence from both ends", function()
    local function cell(prefix) return ty.rnn.RNNCell{ 1, activation = "relu", prefix = prefix } end
    for _, merge in ipairs{ true, false } do
      local out = ty.rnn.BidirectionalCell{ cell "l_", cell "r_" }
        :unroll{ length = 3, inputs = V "data", merge_outputs = merge }
      local exe = bound(merge and out or ty.sym.Group(out), { data = { 1, 3, 1 } },
        { data = { { { 1 }, { 2 }, { 4 } } }, l_i2h_weight = 1, r_i2h_weight = 1,
          l_h2h_weight = 1, r_h2h_weight = 1 })
      local got = exe:forward()
      local want = { { 1, 7 }, { 3, 6 }, { 7, 4 } }
      assert.near(merge and { want } or { want[2] }, got[merge and 1 or 2])
    end
  end)
end)

describe("unrolling", function()
  it("gives equal results in both layouts and from lists", function()
    local cell = ty.rnn.GRUCell{ 3 }
    local x = ty.nd.random.uniform{ shape = { 2, 4, 5 } }
    local a = bound(cell:unroll{ length = 4, inputs = V "data", merge_outputs = true },
      { data = { 2, 4, 5 } })
    randomize(a, 3)
    a.arg_dict.data[":"] = x
    local function same(net, sizes, values)
      local b = bound(net, sizes)
      b:copy_params_from(a.arg_dict, {}, { allow_extra_params = true })
      for name, v in pairs(values) do b.arg_dict[name][":"] = v end
      return b:forward()[1]
    end
    local want = a:forward()[1]
    local tnc = cell:unroll{ length = 4, inputs = V "data", layout = "TNC", merge_outputs = true }
    local other = cell:unroll{ length = 4, inputs = V "steps",
      layout = "TNC", merge_outputs = true }
    assert.near(want:swapaxes(0, 1),
      same(other, { steps = { 4, 2, 5 } }, { steps = x:swapaxes(0, 1) }))
    assert.same({ 4, 2, 3 }, select(2, tnc:infer_shape{ data = { 4, 2, 5 } })[1])
    local list, sizes, values = {}, {}, {}
    for t = 0, 3 do
      list[t + 1], sizes["x" .. t] = V("x" .. t), { 2, 5 }
      values["x" .. t] = x[{ ty.slice(), t }]
    end
    assert.near(want,
      same(cell:unroll{ length = 4, inputs = list, merge_outputs = true }, sizes, values))
  end)

  it("gives begin states shapes that inference completes", function()
    local stack = ty.rnn.SequentialRNNCell{}
    stack:add(ty.rnn.LSTMCell{ 4, prefix = "a_" })
    stack:add(ty.rnn.DropoutCell(0.2))
    stack:add(ty.rnn.BidirectionalCell{ ty.rnn.GRUCell{ 2, prefix = "l_" },
      ty.rnn.RNNCell{ 3, prefix = "r_" } })
    assert.same({ { 0, 4 }, { 0, 4 }, { 0, 2 }, { 0, 3 } }, stack.state_shape)
    local begin = stack:begin_state{ func = V }
    local out = stack:unroll{ length = 2, inputs = V "data",
      begin_state = begin, merge_outputs = true }
    local shapes, names = out:infer_shape{ data = { 7, 2, 6 } }, out:list_arguments()
    local found = {}
    for i, name in ipairs(names) do
      found[name] = name:find("begin_state") and shapes[i] or nil
    end
    assert.same({ a_begin_state_0 = { 7, 4 }, a_begin_state_1 = { 7, 4 },
      l_begin_state_0 = { 7, 2 }, r_begin_state_0 = { 7, 3 } }, found)
    assert.same({ 2, 0, 4 },
      ty.rnn.FusedRNNCell{ 4, bidirectional = true, mode = "gru" }.state_shape[1])
  end)

  it("hands options of begin_state on", function()
    local seen = {}
    ty.rnn.LSTMCell{ 4 }:begin_state{ dtype = "float64", func = function(options)
      seen[#seen + 1] = options
      return V(options.name)
    end }
    assert.same({ name = "lstm_begin_state_1", shape = { 0, 4 }, dtype = "float64",
      attr = { __layout__ = "NC" } }, seen[2])
  end)

  it("names equally when done twice and shares parameters", function()
    local cell = ty.rnn.LSTMCell{ 4 }
    local function text()
      return ty.name.NameManager():with(function()
        return cell:unroll{ length = 2, inputs = V "data", merge_outputs = true }:tojson()
      end)
    end
    assert.are.equal(text(), text())
    local shared = ty.rnn.LSTMCell{ 4, prefix = "other_", params = cell.params }
    assert.same({ "x", "lstm_i2h_weight", "lstm_i2h_bias", "other_begin_state_0", "lstm_h2h_weight",
      "lstm_h2h_bias" },
      { unpack(shared(V "x", shared:begin_state{ func = V })[1]:list_arguments(), 1, 6) })
  end)

  it("takes the gradient of the state where it is the last output too, as in the reference",
    function()
      local cell = ty.rnn.RNNCell{ 1, activation = "relu" }
      local outputs, states = cell:unroll{ length = 2, inputs = V "data" }
      local exe = bound(ty.sym.Group{ outputs[1], outputs[2], states[1] }, { data = { 1, 2, 1 } },
        { data = 1, rnn_i2h_weight = 1, rnn_h2h_weight = 2 })
      exe:forward(true)
      exe:backward{ ty.nd.full({ 1, 1 }, 10), ty.nd.full({ 1, 1 }, 100),
        ty.nd.full({ 1, 1 }, 1000) }
      assert.same({ { { 10 + 2 * 1000 }, { 1000 } } }, exe.grad_dict.data:totable())
    end)

  it("works with a cell of one's own", function()
    local Decay = ty.rnn.BaseRNNCell:extend("Decay")
    function Decay:init()
      Decay.super.init(self, { prefix = "decay_" })
      self.state_info = { { shape = { 0, 1 }, __layout__ = "NC" } }
    end
    function Decay:__call(x, states)
      local out = ty.sym.elemwise_add{ x, states[1] * 0.5, name = self:next_step() .. "out" }
      return out, { out }
    end
    local out = Decay():unroll{ length = 3, inputs = V "data", merge_outputs = true }
    local exe = bound(out, { data = { 1, 3, 1 } }, { data = 8 })
    assert.same({ { { 8 }, { 12 }, { 14 } } }, exe:forward()[1]:totable())
    assert.is_true(table.concat(out:get_internals():list_outputs(), " ")
      :find("decay_t2_out", 1, true) ~= nil)
  end)
end)

-- Compares fused and single cells: outputs and all gradients, for several requests.
local function pair(options, mode)
  local units, inputs, batch, length = options.units or 5, options.inputs or 3,
    options.batch or 2, options.length or 4
  local fused = ty.rnn.FusedRNNCell{ units, num_layers = 2, mode = mode, prefix = "f_",
    bidirectional = options.bidirectional }
  local stack = fused:unfuse()
  local sizes = { data = options.layout == "TNC" and { length, batch, inputs }
    or { batch, length, inputs } }
  local function bind(cell)
    local net = cell:unroll{ length = length, inputs = V "data", layout = options.layout,
      merge_outputs = true, begin_state = cell:begin_state{ dtype = "float64" } }
    return net:simple_bind{ ctx = ty.cpu(), grad_req = options.req,
      type_dict = { data = "float64" }, shapes = sizes }
  end
  local a, b = bind(fused), bind(stack)
  randomize(a, 11)
  b:copy_params_from(
    stack:pack_weights(fused:unpack_weights{ f_parameters = a.arg_dict.f_parameters }))
  b.arg_dict.data[":"] = a.arg_dict.data
  return a, b, fused, stack
end

local function check_gradients(options, mode)
  local a, b, fused, stack = pair(options, mode)
  local out = a:forward(true)[1]
  assert.near(out, b:forward(true)[1], 1e-9)
  local head = ty.nd.random.normal{ shape = out.shape, dtype = "float64" }
  a:backward(head)
  b:backward(head)
  assert.near(a.grad_dict.data, b.grad_dict.data, 1e-9)
  local own = {}
  for name, g in pairs(b.grad_dict) do own[name] = name ~= "data" and g or nil end
  assert.near(a.grad_dict.f_parameters,
    fused:pack_weights(stack:unpack_weights(own)).f_parameters, 1e-9)
end

describe("FusedRNNCell equals its single cells:", function()
  for _, mode in ipairs{ "rnn_relu", "rnn_tanh", "lstm", "gru" } do
    for _, bidirectional in ipairs{ false, true } do
      local ways = bidirectional and "both ways" or "forward"
      for _, layout in ipairs{ "NTC", "TNC" } do
        it(("%s %s %s"):format(mode, layout, ways), function()
          check_gradients({ layout = layout, bidirectional = bidirectional, req = "write" }, mode)
        end)
      end

      -- backward takes some 1000 rows of steps together: here spans of
      -- three and two steps, and of one
      for _, batch in ipairs{ 300, 700 } do
        it(("%s %s in spans, %d rows"):format(mode, ways, batch), function()
          check_gradients({ layout = "TNC", bidirectional = bidirectional, req = "write",
            batch = batch, length = 5 }, mode)
        end)
      end
    end
  end

  for _, batch in ipairs{ 3, 20 } do
    it(("weights larger than what is made of them, %d rows"):format(batch), function()
      for _, mode in ipairs{ "rnn_tanh", "lstm", "gru" } do
        local a, b = pair({ units = mode == "rnn_tanh" and 530 or 150, inputs = 140,
          batch = batch, req = "write" }, mode)
        for _ = 1, 2 do
          assert.near(a:forward(false)[1], b:forward(false)[1], 1e-9)
          assert.near(a:forward(true)[1], b:forward(true)[1], 1e-9)
        end
      end
    end)
  end

  it("gradients are added where asked for", function()
    local a, b = pair({ req = "add" }, "gru")
    for _, exe in ipairs{ a, b } do
      for _ = 1, 2 do
        exe:forward(true)
        exe:backward(ty.nd.ones{ 2, 4, 5, dtype = "float64" })
      end
    end
    assert.near(a.grad_dict.data, b.grad_dict.data, 1e-9)
  end)

  it("states after the last step", function()
    local fused = ty.rnn.FusedRNNCell{ 3, mode = "lstm", prefix = "f_", get_next_state = true }
    local stack = fused:unfuse()
    local _, s = fused:unroll{ length = 3, inputs = V "data" }
    local _, z = stack:unroll{ length = 3, inputs = V "data" }
    local a = bound(ty.sym.Group(s), { data = { 2, 3, 4 } })
    randomize(a, 5)
    local b = bound(ty.sym.Group(z), { data = { 2, 3, 4 } })
    b:copy_params_from(
      stack:pack_weights(fused:unpack_weights{ f_parameters = a.arg_dict.f_parameters }))
    b.arg_dict.data[":"] = a.arg_dict.data
    local got, want = a:forward(), b:forward()
    for i = 1, 2 do
      assert.near(want[i], got[i][0], 1e-5)
    end
  end)
end)

describe("weights by gate", function()
  it("come back as they were", function()
    local stack = ty.rnn.SequentialRNNCell{}
    stack:add(ty.rnn.FusedRNNCell{ 2, num_layers = 2, bidirectional = true, prefix = "f_" })
    stack:add(ty.rnn.ResidualCell(ty.rnn.GRUCell{ 4, prefix = "g_" }))
    stack:add(ty.rnn.BidirectionalCell{ ty.rnn.RNNCell{ 2, prefix = "l_" },
      ty.rnn.LSTMCell{ 2, prefix = "r_" } })
    local out = stack:unroll{ length = 2, inputs = V "data", merge_outputs = true }
    local exe = bound(out, { data = { 1, 2, 3 } })
    randomize(exe, 2)
    local args = { kept = ty.nd.ones(3) }
    for name, x in pairs(exe.arg_dict) do args[name] = name ~= "data" and x or nil end
    local apart = stack:unpack_weights(args)
    assert.is_nil(apart.f_parameters)
    assert.shape({ 4, 4 }, apart.g_h2h_z_weight)
    assert.are.equal(args.kept, apart.kept)
    local back = stack:pack_weights(apart)
    for name, x in pairs(args) do
      assert.are.equal(x:tostring_raw(), back[name]:tostring_raw(), name)
    end
    assert.is_not_nil(args.f_parameters)
  end)

  it("go through checkpoints from fused to single cells", function()
    local prefix = os.tmpname()
    local fused = ty.rnn.FusedRNNCell{ 3, num_layers = 2, mode = "gru", prefix = "f_" }
    local net = fused:unroll{ length = 2, inputs = V "data", merge_outputs = true }
    local exe = bound(net, { data = { 1, 2, 4 } })
    randomize(exe, 4)
    ty.rnn.do_rnn_checkpoint(fused, prefix, 2)(0, net, {}, {})
    ty.rnn.do_rnn_checkpoint(fused, prefix, 2)(1, net,
      { f_parameters = exe.arg_dict.f_parameters }, {})
    local _, args = ty.rnn.load_rnn_checkpoint(fused:unfuse(), prefix, 2)
    assert.shape({ 9, 3 }, args.f_l1_i2h_weight)
    local _, again = ty.rnn.load_rnn_checkpoint({ fused }, prefix, 2)
    assert.are.equal(exe.arg_dict.f_parameters:tostring_raw(), again.f_parameters:tostring_raw())
    for _, path in ipairs{ prefix, prefix .. "-symbol.json", prefix .. "-0002.params" } do
      os.remove(path)
    end
  end)
end)

describe("initial weights", function()
  local function params(cell, initializer)
    local net = cell:unroll{ length = 1, inputs = V "data", merge_outputs = true }
    local m = ty.mod.Module{ symbol = net, label_names = ty.null }
    m:bind{ data_shapes = { { "data", { 1, 1, 3 } } }, for_training = false }
    m:init_params{ initializer = initializer }
    return (m:get_params())
  end

  it("give forget gates their bias, fused or not", function()
    assert.same({ 0, 0, 5, 5, 0, 0, 0, 0 },
      params(ty.rnn.LSTMCell{ 2, forget_bias = 5 }, ty.init.One()).lstm_i2h_bias:totable())
    local fused = ty.rnn.FusedRNNCell{ 2, num_layers = 2, forget_bias = 3, prefix = "f_" }
    local apart = fused:unpack_weights(params(fused, ty.init.Constant(0.5)))
    assert.same({ 3, 3 }, apart.f_l1_i2h_f_bias:totable())
    assert.same({ { 0.5, 0.5 }, { 0.5, 0.5 } }, apart.f_l1_h2h_o_weight:totable())
  end)
end)

-- Mistakes ----------------------------------------------------------------------------------------

describe("mistakes:", function()
  local function mistake(code, text, f, ...)
    local e = assert.raises(code, f, ...)
    assert.is_true(tostring(e):find(text, 1, true) ~= nil, tostring(e))
    return e
  end

  it("cells", function()
    local lstm, fused = ty.rnn.LSTMCell{ 4 }, ty.rnn.FusedRNNCell{ 4 }
    mistake("value", "'num_hidden' is missing", ty.rnn.LSTMCell, {})
    mistake("value", "at least 1", ty.rnn.RNNCell, { 0 })
    mistake("value", "at least 1", ty.rnn.FusedRNNCell, { 3, num_layers = -1 })
    mistake("type", "at least 1", ty.rnn.GRUCell, { 1.5 })
    mistake("name", "num_hiden", ty.rnn.GRUCell, { num_hiden = 3 })
    mistake("value", "rnn_relu, rnn_tanh, lstm or gru", ty.rnn.FusedRNNCell, { 4, mode = "elman" })
    mistake("unsupported", "use unroll", fused, V "x", {})
    mistake("unsupported", "unfuse", ty.rnn.ZoneoutCell, { fused })
    mistake("unsupported", "two inner cells", ty.rnn.ZoneoutCell,
      { ty.rnn.BidirectionalCell{ lstm, lstm } })
    mistake("value", "odd sizes", ty.rnn.ConvGRUCell,
      { input_shape = { 1, 3, 8, 8 }, num_hidden = 4, h2h_kernel = { 3, 4 } })
    mistake("value", "0 to 1", ty.rnn.DropoutCell, { 1.5 })
    mistake("type", "'cell'", function() ty.rnn.SequentialRNNCell{}:add(3) end)
    mistake("name", "LSTMCel", function() return ty.rnn.LSTMCel end)
    assert.are.equal("unroll", mistake("name", "unrol", function()
      return lstm.unrol
    end).candidates[1])
  end)

  it("unrolling", function()
    local cell = ty.rnn.LSTMCell{ 4 }
    mistake("value", "'inputs' is missing", cell.unroll, cell, { length = 3 })
    mistake("value", "one symbol per step", cell.unroll, cell,
      { length = 3, inputs = { V "a", V "b" } })
    mistake("value", "layout with a T", cell.unroll, cell,
      { length = 3, inputs = V "a", layout = "NC" })
    mistake("value", "at least 1", cell.unroll, cell, { length = 0, inputs = V "a" })
    mistake("value", "2 states", cell.unroll, cell,
      { length = 1, inputs = V "a", begin_state = { V "s" } })
    mistake("type", "2 outputs", cell.unroll, cell,
      { length = 2, inputs = ty.sym.split{ V "a", num_outputs = 2 } })
    mistake("state", "wrapped", function()
      ty.rnn.ResidualCell(cell)
      cell:begin_state()
    end)
    mistake("state", "no cells", function()
      ty.rnn.SequentialRNNCell{}:unroll{ length = 1, inputs = V "a" }
    end)
    mistake("value", "not to both", function()
      local given = ty.rnn.RNNParams("p_")
      ty.rnn.SequentialRNNCell{ params = given }:add(ty.rnn.RNNCell{ 3, params = given })
    end)
  end)

  it("weights", function()
    local cell, fused = ty.rnn.LSTMCell{ 2 }, ty.rnn.FusedRNNCell{ 2, prefix = "f_" }
    mistake("name", "lstm_i2h_weight", cell.unpack_weights, cell, {})
    mistake("name", "lstm_i2h_i_weight", cell.pack_weights, cell, {})
    mistake("shape", "multiple of 4", cell.unpack_weights, cell,
      { lstm_i2h_weight = ty.nd.ones{ 7, 3 } })
    mistake("shape", "fits no input size", fused.unpack_weights, fused,
      { f_parameters = ty.nd.ones(57) })
    local apart = fused:unpack_weights{ f_parameters = ty.nd.ones(56) }
    apart.f_l0_h2h_o_bias = ty.nd.ones(3)
    assert.are.equal("f_l0_h2h_o_bias",
      mistake("shape", "differ", fused.pack_weights, fused, apart).argument)
  end)
end)


-- The packed weight needs memory of its own: in half types the converted inputs come after it.
describe("RNN over few rows", function()
  local function output(mode, time, batch, dtype)
    local net = ty.sym.RNN{ data = V "x", parameters = V "p", state = V "h", state_size = 16,
      num_layers = 1, mode = mode, state_cell = mode == "lstm" and V "c" or nil }
    local types = {}
    for _, name in ipairs(net:list_arguments()) do
      types[name] = dtype
    end
    local exe = net:simple_bind{ ctx = ty.cpu(), shapes = { x = { time, batch, 3 } },
      type_dict = types }
    for _, name in ipairs(net:list_arguments()) do
      local x = exe.arg_dict[name]
      x[":"] = (ty.nd.arange(0, x.size) * 7919 % 101 / 123 - 0.3):reshape(x.shape)
    end
    return exe:forward(true)[1]:astype "float32"
  end

  for _, mode in ipairs{ "lstm", "gru", "rnn_tanh", "rnn_relu" } do
    it("has the same values in half types, " .. mode, function()
      for _, size in ipairs{ { 1, 1 }, { 3, 1 }, { 2, 2 }, { 4, 2 }, { 3, 3 } } do
        local want = output(mode, size[1], size[2], "float32")
        for dtype, limit in pairs{ float16 = 2e-3, bfloat16 = 2e-2 } do
          local off = ty.nd.abs(output(mode, size[1], size[2], dtype) - want):max():asscalar()
          local most = ty.nd.abs(want):max():asscalar()
          assert.is_true(off <= limit * math.max(1, most),
            ("%s %dx%d: %g apart"):format(dtype, size[1], size[2], off))
        end
      end
    end)
  end
end)
