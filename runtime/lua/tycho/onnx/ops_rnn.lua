--- Operators of ONNX: recurrent layers (not for users); see onnx/ops_math.lua.
--
-- Cells that the engine's operator RNN supports become that operator. Others (with other
-- activations, limits, peepholes, lengths, or the gate of older GRUs) are unrolled.
--
-- @module tycho.onnx.ops_rnn

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tables = require "tycho.core.tables"
local value = require "tycho.onnx.value"

local ops = {}

local op = value.op


-- Activations -------------------------------------------------------------------------------------

-- Activations by ONNX's name in lower case: f(x, alpha, beta), and the defaults of alpha and beta.
local ACTIVATIONS = {
  relu = { function(x) return x:map("relu") end },
  tanh = { function(x) return x:map("tanh") end },
  sigmoid = { function(x) return x:map("sigmoid") end },
  softsign = { function(x) return x:map("softsign") end },
  softplus = { function(x) return x:map("Activation", {}, { act_type = "softrelu" }) end },
  affine = { function(x, a, b) return x * a + b end, 1, 0 },
  leakyrelu = { function(x, a)
    return x:map("LeakyReLU", {}, { act_type = "leaky", slope = a })
  end, 0.01 },
  elu = { function(x, a) return x:map("LeakyReLU", {}, { act_type = "elu", slope = a }) end, 1 },
  scaledtanh = { function(x, a, b) return (x * b):map("tanh") * a end, 1, 1 },
  hardsigmoid = { function(x, a, b)
    return x:map("hard_sigmoid", {}, { alpha = a, beta = b })
  end, 0.2, 0.5 },
  thresholdedrelu = { function(x, a)
    return value.where(x:greater(a), x, value.scalar(0, x.dtype))
  end, 1 },
}

-- Returns the activations of all directions in one list, and whether they are the defaults.
local function list_activations(n, defaults, directions)
  local words = n.attrs.activations or {}
  local alphas, betas = n:list("activation_alpha", {}), n:list("activation_beta", {})
  local list, usual, alpha, beta = {}, true, 1, 1
  for i = 1, #defaults * directions do
    local default = defaults[(i - 1) % #defaults + 1]
    local word = type(words[i]) == "string" and words[i]:lower() or default
    local row = ACTIVATIONS[word] or value.refuse("activation '%s'", word)
    local a, b = row[2], row[3]
    if a and alphas[alpha] then
      a, alpha = alphas[alpha], alpha + 1
    end
    if b and betas[beta] then
      b, beta = betas[beta], beta + 1
    end
    usual = usual and word == default
    list[i] = function(x) return row[1](x, a, b) end
  end
  return list, usual
end


-- A layer -----------------------------------------------------------------------------------------

local DIRECTIONS = { forward = 1, reverse = 1, bidirectional = 2 }

-- Returns the table of a layer of any kind: sizes, weights, activations, input, states. Time is the
-- first axis of the input. `usual`: whether the engine's RNN may compute it.
local function make_layer(n, gates, defaults, x, weight, recurrent, bias, lengths, hidden)
  local l = { gates = gates, directions = n:choice("direction", "forward", DIRECTIONS),
    reverse = n:text("direction", "forward") == "reverse", swapped = n:int("layout", 0) == 1 }
  l.x = l.swapped and x:transpose{ 1, 0, 2 } or x
  local shape = n:sizes(l.x, "its input")
  l.time, l.batch, l.inputs = shape[1], shape[2], shape[3]
  l.units = n:int("hidden_size", recurrent.shape[3])
  l.dtype = x.dtype
  if #weight.shape ~= 3 or weight.shape[1] ~= l.directions or #recurrent.shape ~= 3
      or weight.shape[2] ~= gates * l.units or recurrent.shape[3] ~= l.units then
    value.damaged("weights of %s and %s for %d units", value.shape_text(weight.shape),
      value.shape_text(recurrent.shape), l.units)
  end
  l.weight, l.recurrent = weight, recurrent
  l.bias = bias or value.full({ l.directions, 2 * gates * l.units }, 0, l.dtype)
  l.act, l.usual = list_activations(n, defaults, l.directions)
  l.clip = n:float("clip")
  if lengths and lengths:is_constant() then
    local whole = true
    for _, length in ipairs(lengths:numbers("sequence_lens")) do
      whole = whole and length >= l.time
    end
    lengths = not whole and lengths or nil
  end
  l.lengths = lengths
  l.usual = l.usual and not l.clip and not lengths
  function l.state(v)
    if v then
      return l.swapped and v:transpose{ 1, 0, 2 } or v
    end
    return value.full({ l.directions, l.batch, l.units }, 0, l.dtype)
  end
  l.hidden = l.state(hidden)
  return l
end


-- Returns y (time, batch, directions, units) and states (directions, batch, units) with the axes in
-- ONNX's order; with layout 1 the batch comes first.
local function order_outputs(l, y, ...)
  local results = { y:transpose(l.swapped and { 1, 0, 2, 3 } or { 0, 2, 1, 3 }) }
  for _, state in ipairs{ ... } do
    results[#results + 1] = l.swapped and state:transpose{ 1, 0, 2 } or state
  end
  return unpack(results)
end


local function reverse_time(x) return (op("reverse", { x }, { axis = { 0 } })) end


-- Returns the gates along an axis in the engine's order: order[i] is the position (from 1) in
-- ONNX's order of the engine's gate i.
local function reorder_gates(v, axis, order, units)
  local parts = {}
  for i, k in ipairs(order) do
    parts[i] = v:part(axis, (k - 1) * units, k * units)
  end
  return value.concat(parts, axis)
end


-- Returns the outputs of a layer by the engine's RNN; for `order` see reorder_gates.
local function compute_layer(n, l, mode, order, cell)
  local weights, biases, units = {}, {}, l.units
  -- Returns weights of gates in the engine's order as a vector.
  local function flatten_gates(v)
    return reorder_gates(v, 1, order, units):reshape{ value.product(v.shape) }
  end
  for d = 0, l.directions - 1 do
    weights[#weights + 1] = flatten_gates(l.weight:part(0, d, d + 1))
    weights[#weights + 1] = flatten_gates(l.recurrent:part(0, d, d + 1))
    local bias, half = l.bias:part(0, d, d + 1), l.gates * units
    biases[#biases + 1] = flatten_gates(bias:part(1, 0, half))
    biases[#biases + 1] = flatten_gates(bias:part(1, half, 2 * half))
  end
  for _, bias in ipairs(biases) do
    weights[#weights + 1] = bias
  end
  local states = n:wants(2) or n:wants(3)
  local y, h, c = op("RNN", { l.reverse and reverse_time(l.x) or l.x, value.concat(weights, 0),
    l.hidden, cell }, { state_size = units, num_layers = 1, mode = mode,
    bidirectional = l.directions == 2, state_outputs = states })
  y = (l.reverse and reverse_time(y) or y):reshape{ l.time, l.batch, l.directions, units }
  return order_outputs(l, y, h, c)
end


-- Step by step ------------------------------------------------------------------------------------

local MOST_STEPS = 4096

-- Returns x reversed in time, each sample within its length.
local function reverse_sequences(l, x)
  if not l.lengths then
    return reverse_time(x)
  end
  return x:map("SequenceReverse", { l.lengths:cast(x.dtype) }, { use_sequence_length = true })
end

-- Unrolls direction d. step(part, product, states) returns the new states, the first of which is
-- the output; `part` has the recurrent weight, its bias and d, `product` is the product of the
-- input with the weight. Returns all outputs and the last states.
local function run_direction(l, d, states, step)
  local backward = l.reverse or d == 1
  local function take_direction(v) return v:part(0, d, d + 1):squeeze(0) end
  local weight, recurrent = take_direction(l.weight), take_direction(l.recurrent)
  local bias = take_direction(l.bias)
  local half = l.gates * l.units
  local x = backward and reverse_sequences(l, l.x) or l.x
  local products = op("FullyConnected", { x, weight, bias:part(0, 0, half) },
    { num_hidden = half, flatten = false })
  local part = { recurrent = recurrent, bias = bias:part(0, half, 2 * half), d = d }
  local outputs = {}
  for t = 0, l.time - 1 do
    local now = step(part, products:part(0, t, t + 1):squeeze(0), states)
    local shown = now[1]
    if l.lengths then
      local alive = l.lengths:greater(t):reshape{ l.batch, 1 }
      for i, state in ipairs(now) do
        now[i] = value.where(alive, state, states[i])
      end
      shown = value.where(alive, shown, value.scalar(0, l.dtype))
    end
    states = now
    outputs[t + 1] = shown:unsqueeze(0)
  end
  local y = value.concat(outputs, 0)
  return backward and reverse_sequences(l, y) or y, states
end

-- Unrolls all directions and returns the outputs; `first` lists the first state of each kind.
local function run_steps(l, first, step)
  if l.time > MOST_STEPS then
    value.refuse("%d steps of a cell that is not the usual one, at most %d", l.time, MOST_STEPS)
  end
  local outputs, finals = {}, {}
  for d = 0, l.directions - 1 do
    local states = {}
    for i, state in ipairs(first) do
      states[i] = state:part(0, d, d + 1):squeeze(0)
    end
    local y, last = run_direction(l, d, states, step)
    outputs[d + 1] = y:unsqueeze(2)
    for i, state in ipairs(last) do
      finals[i] = finals[i] or {}
      finals[i][d + 1] = state:unsqueeze(0)
    end
  end
  for i, list in ipairs(finals) do
    finals[i] = value.concat(list, 0)
  end
  return order_outputs(l, value.concat(outputs, 2), unpack(finals))
end


local function multiply_state(l, part, h)
  return (op("FullyConnected", { h, part.recurrent, part.bias },
    { num_hidden = l.gates * l.units, flatten = false }))
end

local function limit_gate(l, x)
  return l.clip and x:map("clip", {}, { a_min = -l.clip, a_max = l.clip }) or x
end

local function take_gate(l, x, k) return x:part(1, k * l.units, (k + 1) * l.units) end


function ops.RNN(n, x, weight, recurrent, bias, lengths, hidden)
  local l = make_layer(n, 1, { "tanh" }, x, weight, recurrent, bias, lengths, hidden)
  if l.usual then
    return compute_layer(n, l, "rnn_tanh", { 1 })
  end
  return run_steps(l, { l.hidden }, function(part, product, states)
    local sum = product + multiply_state(l, part, states[1])
    return { l.act[part.d + 1](limit_gate(l, sum)) }
  end)
end

-- Computes a GRU; ONNX's gates are z r h.
function ops.GRU(n, x, weight, recurrent, bias, lengths, hidden)
  local l = make_layer(n, 3, { "sigmoid", "tanh" }, x, weight, recurrent, bias, lengths, hidden)
  local before = n:int("linear_before_reset", 0) ~= 0
  if l.usual and before then
    return compute_layer(n, l, "gru", { 2, 1, 3 })
  end
  return run_steps(l, { l.hidden }, function(part, product, states)
    local f, g, h, half = l.act[2 * part.d + 1], l.act[2 * part.d + 2], states[1], 2 * l.units
    local inner, candidate
    if before then
      inner = multiply_state(l, part, h)
    else
      inner = op("FullyConnected", { h, part.recurrent:part(0, 0, half), part.bias:part(0, 0,
        half) },
        { num_hidden = half, flatten = false })
    end
    local z = f(limit_gate(l, take_gate(l, product, 0) + take_gate(l, inner, 0)))
    local r = f(limit_gate(l, take_gate(l, product, 1) + take_gate(l, inner, 1)))
    if before then
      candidate = take_gate(l, product, 2) + r * take_gate(l, inner, 2)
    else
      candidate = take_gate(l, product, 2) + op("FullyConnected", { r * h,
        part.recurrent:part(0, half, half + l.units), part.bias:part(0, half, half + l.units) },
        { num_hidden = l.units, flatten = false })
    end
    candidate = g(limit_gate(l, candidate))
    return { candidate - z * candidate + z * h }
  end)
end

-- Computes an LSTM; ONNX's gates are i o f c.
function ops.LSTM(n, x, weight, recurrent, bias, lengths, hidden, cell, peephole)
  local l = make_layer(n, 4, { "sigmoid", "tanh", "tanh" }, x, weight, recurrent, bias, lengths,
    hidden)
  local joined, c0 = n:int("input_forget", 0) ~= 0, l.state(cell)
  if l.usual and not joined and not peephole then
    return compute_layer(n, l, "lstm", { 1, 3, 4, 2 }, c0)
  end
  return run_steps(l, { l.hidden, c0 }, function(part, product, states)
    local f, g, h = unpack(tables.part(l.act, 3 * part.d + 1, 3 * part.d + 3))
    local c, sum = states[2], product + multiply_state(l, part, states[1])
    local function add_peephole(k, v, from)
      if not peephole then
        return v
      end
      local own = peephole:part(0, part.d, part.d + 1)
      return v + own:part(1, k * l.units, (k + 1) * l.units) * from
    end
    local i = f(limit_gate(l, add_peephole(0, take_gate(l, sum, 0), c)))
    local forget = joined and -i + 1 or f(limit_gate(l, add_peephole(2, take_gate(l, sum, 2), c)))
    local new = forget * c + i * g(limit_gate(l, take_gate(l, sum, 3)))
    local o = f(limit_gate(l, add_peephole(1, take_gate(l, sum, 1), new)))
    return { o * h(new), new }
  end)
end

return ops
