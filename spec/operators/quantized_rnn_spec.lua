-- _contrib_quantize_asym and _contrib_quantized_rnn: 8-bit integers with a scale and a shift, and
-- an lstm over them, against RNN on the numbers that they stand for.
local ty = require "tycho"
local trials = require "spec.support.trials"
require "spec.helper"

local nd, contrib = ty.nd, ty.nd.contrib

local function refused(code, words, f, ...)
  local e = assert.raises(code, f, ...)
  assert.is_truthy(tostring(e):find(words, 1, true), tostring(e))
end

describe("quantize_asym", function()
  it("spreads the data's range, or a given one, over 0 to 255", function()
    local q, scale, shift = unpack(contrib.quantize_asym(nd.array{ -1, 0, 0.5, 1, 3 }))
    assert.equal("uint8", q.dtype)
    assert.same({ 0, 64, 96, 128, 255 }, q:totable())
    assert.same({ 63.75, 63.75 }, { scale:asscalar(), shift:asscalar() })
    q, scale, shift = unpack(contrib.quantize_asym(nd.array{ -3, 0, 0.5, 1, 3 },
      { min_calib_range = -1, max_calib_range = 1 }))
    assert.same({ 0, 128, 191, 255, 255 }, q:totable())
    assert.same({ 127.5, 127.5 }, { scale:asscalar(), shift:asscalar() })
  end)

  it("takes what has no range", function()
    local q, scale, shift = unpack(contrib.quantize_asym(nd.array{ 5, 5, 5 }))
    assert.same({ 255, 255, 255 }, q:totable())
    assert.same({ 1, 250 }, { scale:asscalar(), shift:asscalar() })
    local nan = 0 / 0
    assert.same({ 0, 0, 255 }, contrib.quantize_asym(nd.array{ nan, 1, 2 })[1]:totable())
    assert.same({ 0 }, contrib.quantize_asym(nd.array{ nan })[1]:totable())
  end)

  it("comes back within half a level", function()
    local x = trials.fill(nd.zeros{ 3, 4, 50 }, trials.random(5), -1, 4)
    local q, scale, shift = unpack(contrib.quantize_asym(x))
    local back = nd.broadcast_div(nd.broadcast_sub(q:astype("float32"), shift), scale)
    assert.near(x, back, 5 / 255 / 2 + 1e-6)
  end)

  it("refuses other types and half a range", function()
    refused("dtype", "float32", contrib.quantize_asym, nd.ones({ 2 }, { dtype = "int8" }))
    refused("value", "give both or none", contrib.quantize_asym, nd.ones{ 2 },
      { min_calib_range = 1 })
  end)
end)

-- Calls f(element, row) for all elements of all matrices, both counted from 0. m: layers,
-- directions, inputs, units.
local function each_matrix(m, f)
  local at, rows = 0, 4 * m.units
  for layer = 1, m.layers do
    for _ = 1, m.directions do
      for _, n in ipairs{ layer == 1 and m.inputs or m.directions * m.units, m.units } do
        for i = 0, rows * n - 1 do f(at + i, math.floor(i / n)) end
        at = at + rows * n
      end
    end
  end
end

local function rounded(weights, m)
  local w, most = weights:totable(), {}
  each_matrix(m, function(i, row)
    most[row] = math.max(most[row] or 0, math.abs(w[i + 1]))
  end)
  each_matrix(m, function(i, row)
    local level = w[i + 1] * 127 / most[row]
    level = level < 0 and -math.floor(0.5 - level) or math.floor(0.5 + level)
    w[i + 1] = level * most[row] / 127
  end)
  return nd.array(w)
end

describe("quantized_rnn", function()
  local T, B = 4, 3
  local MODELS = {
    { layers = 1, directions = 1, inputs = 5, units = 6 },
    { layers = 1, directions = 2, inputs = 5, units = 6 },
    { layers = 3, directions = 2, inputs = 7, units = 2 },
  }

  local function params(m, quantized)
    return { state_size = m.units, num_layers = m.layers, bidirectional = m.directions == 2,
      mode = "lstm", state_outputs = true, quantized = quantized }
  end

  for _, m in ipairs(MODELS) do
    local name = ("is RNN on the numbers: %d layers, %d directions"):format(m.layers, m.directions)
    it(name, function()
      local random, passes = trials.random(3), m.layers * m.directions
      local x = trials.fill(nd.zeros{ T, B, m.inputs }, random, -1, 2)
      local q, scale, shift = unpack(contrib.quantize_asym(x))
      local count = 8 * m.units * passes
      each_matrix(m, function() count = count + 1 end)
      local weights = trials.fill(nd.zeros{ count }, random, -1, 1)
      local state = trials.fill(nd.zeros{ passes, B, m.units }, random, -1, 1)
      local cell = trials.fill(nd.zeros{ passes, B, m.units }, random, -1, 1)
      local got = contrib.quantized_rnn(q, weights, state, cell, scale, shift, params(m, true))
      local number = nd.broadcast_div(nd.broadcast_sub(q:astype("float32"), shift), scale)
      local want = nd.RNN(number, rounded(weights, m), state, cell, params(m))
      for i = 1, 3 do
        assert.equal("float32", got[i].dtype)
        assert.near(want[i], got[i], 1e-5)
      end
      -- and so near RNN on the numbers from which all began
      local exact = nd.RNN(x, weights, state, cell, params(m))
      assert.near(exact[1], got[1], 0.05)
      assert.is_true((exact[1] - got[1]):abs():max():asscalar() > 1e-5)
    end)
  end

  it("is a node of a graph, whose outputs have the reference's names", function()
    local s = ty.sym.contrib.quantized_rnn{ data = ty.sym.Variable "x", state_size = 3,
      num_layers = 1, mode = "lstm", state_outputs = true, name = "q" }
    assert.same({ "x", "q_parameters", "q_state", "q_state_cell", "q_min_data", "q_max_data" },
      s:list_arguments())
    assert.same({ "q_output", "q_state_output", "q_statecell_ouput" }, s:list_outputs())
    local shapes = s:infer_shape{ x = { 4, 2, 5 } }
    assert.same({ 1, 2, 3 }, shapes[3])
    assert.same({ 1 }, shapes[6])
    local types = s:infer_type{}
    assert.equal("uint8", types[1])
    assert.equal("float32", types[2])
    local e = s:simple_bind{ ctx = ty.current_context(), x = { 4, 2, 5 },
      type_dict = { x = "uint8" }, grad_req = "null" }
    e.arg_dict.q_min_data[":"] = 1
    for _, is_train in ipairs{ false, true } do
      assert.near(nd.zeros{ 4, 2, 3 }, e:forward{ is_train = is_train }[1], 0)
    end
  end)

  it("refuses other cells, types and scales", function()
    local q, one = nd.zeros({ T, B, 2 }, { dtype = "uint8" }), nd.ones{ 1 }
    local state = nd.zeros{ 1, B, 2 }
    local function run(data, scale, options)
      options.state_size, options.num_layers = 2, 1
      options.mode = options.mode or "lstm"
      return contrib.quantized_rnn(data, nd.zeros{ 48 }, state, state, scale, one, options)
    end
    assert.same({ T, B, 2 }, run(q, one, {}).shape)
    refused("unsupported", "only lstm", run, q, one, { mode = "gru" })
    refused("unsupported", "projection", run, q, one, { projection_size = 1 })
    for _, scale in ipairs{ 0, -1, 0 / 0 } do
      refused("run", "expected a scale (min_data) above 0", function()
        run(q, nd.array{ scale }, {}):wait_to_read()
      end)
    end
    refused("dtype", "uint8", run, q:astype("float32"), one, {})
  end)
end)
