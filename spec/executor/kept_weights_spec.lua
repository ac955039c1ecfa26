-- Packed weights that recurrent layers keep between runs of an inference: a run sees every change
-- of the weights (native/operators/nn/rnn_forward.c).

local ty = require "tycho"
local assert = require "luassert"

local UNITS, INPUTS = 24, 20
local GATES = { rnn_tanh = 1, gru = 3, lstm = 4 }

local function network(mode, directions)
  local v = ty.sym.Variable
  return ty.sym.RNN{ data = v "data", parameters = v "weights", state = v "state",
    state_cell = mode == "lstm" and v "cell" or nil, mode = mode, state_size = UNITS,
    num_layers = 2, bidirectional = directions == 2 }
end

local function count_weights(mode, directions)
  local rows, outputs = GATES[mode] * UNITS, directions * UNITS
  return directions * rows * (INPUTS + UNITS + outputs + UNITS + 4)
end

local function random(...) return ty.nd.random.uniform(-0.3, 0.3, { shape = { ... } }) end

local function arguments(mode, directions, time, batch)
  local args = { data = random(time, batch, INPUTS),
    weights = random(count_weights(mode, directions)),
    state = random(2 * directions, batch, UNITS) }
  if mode == "lstm" then args.cell = random(2 * directions, batch, UNITS) end
  return args
end

local function result(exe) return exe:forward(false)[1]:totable() end

describe("packed recurrent weights", function()
  for _, mode in ipairs{ "rnn_tanh", "gru", "lstm" } do
    for _, directions in ipairs{ 1, 2 } do
      for _, size in ipairs{ { 20, 1 }, { 5, 3 }, { 3, 40 }, { 2, 2 } } do
        local name = ("%s, directions: %d, time %d, batch %d")
          :format(mode, directions, size[1], size[2])
        it("follow their array: " .. name, function()
          local net = network(mode, directions)
          local args = arguments(mode, directions, size[1], size[2])
          local function bind(needs)
            return net:bind{ ctx = ty.cpu(), args = args, grad_req = needs and "write" or "null",
              args_grad = needs and { weights = args.weights:zeros_like() } or nil }
          end
          local exe = bind(false)
          local before = result(exe)
          assert.same(before, result(exe))
          args.weights[":"] = random(count_weights(mode, directions))
          local after = result(exe)
          assert.not_same(before, after)
          assert.same(result(bind(false)), after)
          assert.same(result(bind(true)), after)              -- of a training nothing is kept
        end)
      end
    end
  end
end)
