-- Which runs take random numbers: those that draw some in their mode. All others leave the random
-- state as it is, so that an evaluation does not change the training around it.

local ty = require "tycho"
local assert = require "luassert"

local x = ty.sym.Variable "x"
local ctx = ty.current_context()
local vector = ty.sym.Variable "weights"

local function rrelu(a) return ty.sym.LeakyReLU{ a, act_type = "rrelu" } end
local function rnn(p)
  return ty.sym.RNN{ data = x, parameters = vector, state = ty.sym.zeros{ 1, 2, 3 },
    mode = "rnn_tanh", state_size = 3, num_layers = 1, p = p }
end

-- Runs body(row) once per row.
local function rows(body)
  return (ty.sym.contrib.foreach(function(row, states) return body(row), states end, x, {}))
end

local function zoned()
  local cell = ty.rnn.ZoneoutCell(ty.rnn.RNNCell(3), 0.5, 0.5)
  local outputs = cell:unroll{ length = 2, inputs = x, layout = "TNC", merge_outputs = true }
  return outputs
end

-- name, symbol, whether an inference draws, whether a training does
local GRAPHS = {
  { "a formula",             ty.sym.tanh(x),                                        false, false },
  { "Dropout",               ty.sym.Dropout{ x, p = 0.5 },                          false, true },
  { "Dropout of nothing",    ty.sym.Dropout{ x, p = 0 },                            false, false },
  { "Dropout always",        ty.sym.Dropout{ x, p = 0.5, mode = "always" },         true,  true },
  { "LeakyReLU",             ty.sym.LeakyReLU{ x },                                 false, false },
  { "RReLU",                 rrelu(x),                                              false, true },
  { "ZoneoutCell",           zoned(),                                               false, true },
  { "RNN",                   rnn(0),                                                false, false },
  { "RNN with p",            rnn(0.5),                                              false, true },
  { "Dropout in a loop",     rows(function(r) return ty.sym.Dropout{ r } end),      false, true },
  { "a sampler in a loop",
    rows(function(r) return r + ty.sym.random.uniform{ shape = { 2, 3 } } end),     true,  true },
  { "a sampler",             x + ty.sym.random.normal{ shape = { 2, 2, 3 } },       true,  true },
  { "a permutation",         ty.sym.shuffle(ty.sym.BlockGrad(x)), true,  true },
}

local function drawn(f)
  local name = tostring(ctx)
  local before = ty.random.get_state()[name].counter
  f()
  return tonumber(ty.random.get_state()[name].counter) - tonumber(before)
end

describe("random numbers are taken", function()
  for _, row in ipairs(GRAPHS) do
    local name, net, inference, training = unpack(row)

    it("by runs that draw some: " .. name, function()
      local e = net:simple_bind{ ctx = ctx, x = { 2, 2, 3 } }
      e:forward{ is_train = false }
      assert.equal(inference and 1 or 0, drawn(function() e:forward{ is_train = false } end))
      assert.equal(training and 1 or 0, drawn(function() e:forward{ is_train = true } end))
      if training and not inference then
        assert.equal(0, drawn(function() e:backward(e.outputs) end))
      end
      -- one node after another
      e:set_monitor_callback(function() end, { monitor_all = true })
      assert.equal(inference and 1 or 0, drawn(function() e:forward{ is_train = false } end))
      assert.equal(training and 1 or 0, drawn(function() e:forward{ is_train = true } end))
    end)
  end

  it("once by a forward that goes on in another mode", function()
    local net = ty.sym.Dropout{ ty.sym.Dropout{ x, p = 0.5 } + 1, p = 0.5 }
    local e = net:simple_bind{ ctx = ctx, x = { 4 } }
    local left = 1
    assert.equal(1, drawn(function()
      for step = 0, 20 do
        if left == 0 then break end
        left = e:partial_forward{ is_train = step > 1, step = step }
      end
    end))
    assert.equal(0, left)
  end)

  it("by operators that are called, where they draw", function()
    local nd = ty.nd
    local a = nd.ones{ 2, 3 }
    local function trained(f)
      return function() ty.autograd.train_mode(f) end
    end
    local calls = {
      { 0, function() nd.Dropout{ a, p = 0.5 } end },
      { 1, function() nd.Dropout{ a, p = 0.5, mode = "always" } end },
      { 0, function() nd.LeakyReLU{ a } end },
      { 0, function() nd.LeakyReLU{ a, act_type = "rrelu" } end },
      { 1, function() nd.random.uniform{ shape = { 2 } } end },
      { 1, function() nd.shuffle(a) end },
      { 1, trained(function() nd.Dropout{ a, p = 0.5 } end) },
      { 0, trained(function() nd.Dropout{ a, p = 0 } end) },
      { 1, trained(function() nd.LeakyReLU{ a, act_type = "rrelu" } end) },
      { 0, trained(function() nd.LeakyReLU{ a } end) },
    }
    for i, row in ipairs(calls) do
      assert.equal(row[1], drawn(row[2]), i)
    end
  end)

  it("by the training alone, whatever is evaluated in between", function()
    local net = ty.sym.sum(ty.sym.Dropout{ x, p = 0.5 } * ty.sym.Variable "y")
    local function train(evaluate)
      ty.random.seed(5)
      local e = net:simple_bind{ ctx = ctx, x = { 64 }, y = { 64 } }
      e.arg_dict.x[":"] = 1
      e.arg_dict.y[":"] = 1
      local got = {}
      for i = 1, 3 do
        e:forward{ is_train = true }
        e:backward(ty.nd.ones{ 1 })
        got[i] = e.grad_dict.y:totable()
        for _ = 1, evaluate do e:forward{ is_train = false } end
      end
      return got
    end
    local alone = train(0)
    assert.not_same(alone[1], alone[2])
    assert.same(alone, train(1))
    assert.same(alone, train(3))
  end)
end)
