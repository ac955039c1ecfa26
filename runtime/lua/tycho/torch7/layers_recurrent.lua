--- Recurrent layers of the package rnn. For `torch7/import.lua`.
--
-- Sequences are unrolled, since their length is known. A recurrent module starts from zeros, and
-- each call makes one more step; a Sequencer starts again from zeros.
--
-- @module tycho.torch7.layers_recurrent

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local layers = require "tycho.torch7.layers"
local Tensor = require "tycho.torch7.tensor"


-- Returns the first tensor in nested tables.
local function find_first(x)
  while not Tensor.is(x) do
    x = x[1]
  end
  return x
end


-- Returns a state of zeros for the input's batch.
local function make_zero_state(net, x, size)
  local input = find_first(x)
  net:need_dims(input, 1, 2)
  return net:full(#input.shape == 2 and { input.shape[1], size } or { size }, 0)
end


-- Joins an input and states to one list.
local function join_states(x, states)
  local list = { x }
  for i, state in ipairs(states) do
    list[i + 1] = state
  end
  return list
end


-- Defines modules that apply their `recurrentModule` to an input and `count` states of `outputSize`
-- each, and store the next states, the first of which is the output.
local function define_stepper(names, count)
  layers.any(names, function(net, m, x)
    local states = net.states[m]
    if not states then
      states = {}
      for i = 1, count do
        states[i] = make_zero_state(net, x, net:integer(m, "outputSize", nil, 1))
      end
    end
    local y = net:apply(net:module(m, "recurrentModule"), join_states(x, states),
      "recurrentModule")
    local following = Tensor.is(y) and { y } or y
    if #following ~= count then
      net:fail("value", "the recurrent module gives %d states instead of %d", #following, count)
    end
    net.states[m] = following
    return following[1]
  end)
end

define_stepper("nn.LSTM nn.FastLSTM", 2)
define_stepper("nn.GRU nn.MuFuRu", 1)

layers.any("nn.Recursor", function(net, m, x)
  return net:apply(net:module(m, m.recurrentModule ~= nil and "recurrentModule" or "module"), x,
    "recurrentModule")
end)

-- Applies `initialModule` in the first step, `recurrentModule` in the others.
layers.any("nn.Recurrent", function(net, m, x)
  local state = net.states[m]
  local name = state and "recurrentModule" or "initialModule"
  net.states[m] = net:apply(net:module(m, name), state and { x, state } or x, name)
  return net.states[m]
end)


-- Applies a module, which starts without states, to each step. Returns the list of its outputs.
local function run_steps(net, m, steps)
  local outer, list = net.states, {}
  net.states = {}
  for i, x in ipairs(steps) do
    list[i] = net:apply(m, x, "module")
  end
  net.states = outer
  return list
end


-- Returns the module inside m: its field `module` or the first of `modules`.
local function read_inner_module(net, m)
  return m.module ~= nil and net:module(m, "module") or net:module(m, "modules", 1)
end


-- Returns the entries along the first axis, time, as a list.
local function split_steps(x)
  local steps = {}
  for i = 1, x.shape[1] do
    steps[i] = x:select(0, i - 1)
  end
  return steps
end


-- Joins a list of tensors to one tensor with time as its first axis; raises an error if one is a
-- table.
local function stack_steps(net, list)
  for i, y in ipairs(list) do
    if not Tensor.is(y) then
      net:fail("type", "step %d gives a table", i)
    end
    list[i] = y:unsqueeze(0)
  end
  return Tensor.concat(list, 0)
end


-- Applies a module to each step of a table, or of a tensor along its first axis.
layers.any("nn.Sequencer", function(net, m, x)
  local inner = read_inner_module(net, m)
  if not Tensor.is(x) then
    return run_steps(net, inner, x)
  end
  net:need_dims(x, 2, 15)
  return stack_steps(net, run_steps(net, inner, split_steps(x)))
end)

-- Applies a module to the same input in each of `rho` steps.
layers.any("nn.Repeater", function(net, m, x)
  local steps = {}
  for i = 1, net:integer(m, "rho", nil, 1) do
    steps[i] = x
  end
  return run_steps(net, read_inner_module(net, m), steps)
end)

layers.any("nn.BiSequencer nn.SeqBRNN", function(net, m, x)
  local outer = net.states
  net.states = {}
  local y = net:apply(read_inner_module(net, m), x, "module")
  net.states = outer
  return y
end)


-- Masks -------------------------------------------------------------------------------------------

-- Returns 0 for rows of zeros, else 1; (batch, 1) or (1).
local function make_row_mask(rows)
  return rows:abs():max(#rows.shape - 1):ne(0)
end


-- Returns y, a tensor or nested tables of tensors, multiplied by a mask of rows.
local function apply_mask(y, mask)
  if not Tensor.is(y) then
    local list = {}
    for i, inner in ipairs(y) do
      list[i] = apply_mask(inner, mask)
    end
    return list
  end
  local shape = {}
  for i = 1, #y.shape do
    shape[i] = i == 1 and mask.shape[1] or 1
  end
  return y * mask:reshape(shape)
end


-- Applies a module and sets rows of its output to zeros if the input's rows are zeros.
layers.any("nn.MaskZero nn.TrimZero", function(net, m, x)
  local input, dims = find_first(x), net:integer(m, "nInputDim", 1, 1)
  net:need_dims(input, dims, dims + 1)
  local batch = #input.shape > dims and input.shape[1] or 1
  local mask = make_row_mask(input:reshape{ batch, input:size() / batch }):reshape{ batch }
  return apply_mask(net:child(m, 1, x), mask)
end)


-- Sequences at once -------------------------------------------------------------------------------

-- Returns the weight's rows of the input and of the state, and the bias, in columns of gates.
local function read_gate_weights(net, m, inputs, outputs, gates)
  local weight = net:parameter(m, "weight", { inputs + outputs, gates })
  return weight:slice(0, 0, inputs), weight:slice(0, inputs, inputs + outputs),
    net:parameter(m, "bias", { 1, gates })
end


-- Returns f(steps, batch) for a sequence (time, batch, inputs), for (batch, time, inputs) with
-- `batchfirst`, or for (time, inputs) as a batch of one.
local function apply_over_time(net, m, x, inputs, f)
  net:need_dims(x, 2, 3)
  local y, first = x, m.batchfirst == true
  if #x.shape == 2 then
    y = x:unsqueeze(1)
  elseif first then
    y = x:swap(0, 1)
  end
  if y.shape[3] ~= inputs then
    net:fail("shape", "the input has %d features instead of %d", y.shape[3], inputs)
  end
  local out = stack_steps(net, f(split_steps(y), y.shape[2]))
  if #x.shape == 2 then
    return out:reshape{ out.shape[1], out.shape[3] }
  end
  return first and out:swap(0, 1) or out
end


-- Returns the columns of gate k (from 0); each gate has `size` columns.
local function slice_gate(all, k, size)
  return all:slice(1, k * size, (k + 1) * size)
end


-- Computes an LSTM with gates in the order input, forget, output, candidate. With `maskzero` a row
-- of zeros in a step sets its output and states to zeros.
layers.tensor("nn.SeqLSTM nn.SeqLSTMP", function(net, m, x)
  local inputs = net:integer(m, "inputsize", m.inputSize, 1)
  local size = net:integer(m, "hiddensize", m.outputsize, 1)
  local outputs = net:integer(m, "outputsize", nil, 1)
  local wx, wh, bias = read_gate_weights(net, m, inputs, outputs, 4 * size)
  local projection = m.weightO ~= nil and net:parameter(m, "weightO", { size, outputs })
  return apply_over_time(net, m, x, inputs, function(steps, batch)
    local h, c, list = net:full({ batch, outputs }, 0), net:full({ batch, size }, 0), {}
    for t, input in ipairs(steps) do
      local a = Tensor.dot(input, wx) + Tensor.dot(h, wh) + bias
      local i, forget, o = slice_gate(a, 0, size):sigmoid(), slice_gate(a, 1, size):sigmoid(),
        slice_gate(a, 2, size):sigmoid()
      c = forget * c + i * slice_gate(a, 3, size):tanh()
      h = o * c:tanh()
      h = projection and Tensor.dot(h, projection) or h
      if m.maskzero == true then
        local mask = make_row_mask(input)
        c, h = c * mask, h * mask
      end
      list[t] = h
    end
    return list
  end)
end)

-- Computes a GRU with gates in the order reset, update, candidate. The state is multiplied by the
-- reset gate before the product with the weight.
layers.tensor("nn.SeqGRU", function(net, m, x)
  local inputs = net:integer(m, "inputSize", m.inputsize, 1)
  local size = net:integer(m, "outputSize", m.outputsize, 1)
  local wx, wh, bias = read_gate_weights(net, m, inputs, size, 3 * size)
  local wh_gates, wh_candidate = wh:slice(1, 0, 2 * size), wh:slice(1, 2 * size, 3 * size)
  return apply_over_time(net, m, x, inputs, function(steps, batch)
    local h, list = net:full({ batch, size }, 0), {}
    for t, input in ipairs(steps) do
      local a = Tensor.dot(input, wx) + bias
      local gates = (a:slice(1, 0, 2 * size) + Tensor.dot(h, wh_gates)):sigmoid()
      local r, u = slice_gate(gates, 0, size), slice_gate(gates, 1, size)
      local candidate = (slice_gate(a, 2, size) + Tensor.dot(r * h, wh_candidate)):tanh()
      h = candidate - u * candidate + u * h
      if m.maskzero == true then
        h = h * make_row_mask(input)
      end
      list[t] = h
    end
    return list
  end)
end)


layers.refuse("nn.RecurrentAttention", "it draws places to look at, which are trained by rewards")
layers.refuse("nn.BiSequencerLM nn.VariableLength", "how its sequences begin and end is not known")
layers.refuse("nn.NCEModule", "its output is for a criterion that draws words")
layers.refuse("cudnn.RNN cudnn.LSTM cudnn.GRU cudnn.BLSTM cudnn.BGRU cudnn.RNNReLU cudnn.RNNTanh",
  "its weights are in cuDNN's own order")
