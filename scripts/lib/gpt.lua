--- A decoder of a current design: RMSNorm, rotary positions, attention with fewer key heads than
-- query heads, gated units (scripts/gpt.lua).

local ffi = require "ffi"
local ty = require "tycho"

local gpt = {}

local sym, V = ty.sym, ty.sym.Variable
local contrib = sym.contrib

local function linear(x, n, name)
  return sym.FullyConnected{ data = x, num_hidden = n, flatten = false, no_bias = true,
    name = name }
end

local function norm(x, name)
  return contrib.RMSNorm{ data = x, name = name }
end

local function rotated(x, heads, offset)
  return contrib.rotary_embedding{ data = x, heads = heads, offset = offset }
end

-- Returns the attention of each position over the positions up to it. step: { length = symbol },
-- for a network of one position with caches; nil: for all positions at once.
local function attention(x, o, name, step)
  local size = o.width / o.heads
  local q = linear(x, o.width, name .. "_query")
  local k = linear(x, o.kv_heads * size, name .. "_key")
  local v = linear(x, o.kv_heads * size, name .. "_value")
  local offset = step and step.length
  q, k = rotated(q, o.heads, offset), rotated(k, o.kv_heads, offset)
  local valid_length
  if step then
    local keys, values = V(name .. "_key_cache"), V(name .. "_value_cache")
    valid_length = contrib.cache_append{ key = k, value = v, length = step.length,
      key_cache = keys, value_cache = values }
    k, v = keys, values
  end
  local y = contrib.attention{ query = q, key = k, value = v, valid_length = valid_length,
    heads = o.heads, kv_heads = o.kv_heads, causal = not step, name = name .. "_attention" }
  return linear(y, o.width, name .. "_out")
end

local function units(x, o, name)
  local y = contrib.swiglu{ gate = linear(x, o.inner, name .. "_gate"),
    data = linear(x, o.inner, name .. "_up") }
  return linear(y, o.width, name .. "_down")
end

local function scores(o, step)
  local x = sym.Embedding{ data = V "data", input_dim = o.words, output_dim = o.width,
    name = "embed" }
  for i = 1, o.layers do
    local name = "layer" .. i
    x = x + attention(norm(x, name .. "_norm1"), o, name, step)
    x = x + units(norm(x, name .. "_norm2"), o, name)
  end
  return linear(norm(x, "norm"), o.words, "head")
end

--- Returns the network for training; data and softmax_label are (batch, length).
-- @tparam table o words, width, inner, layers, heads, kv_heads
function gpt.network(o)
  local label = sym.reshape{ V "softmax_label", shape = { -1 } }
  return sym.SoftmaxOutput{ data = sym.reshape{ scores(o), shape = { -1, o.words } },
    label = label, normalization = "batch", name = "softmax" }
end

--- Returns a function that reads one word at a time: `next(word)` returns the probabilities of the
-- next one. The network is bound once; keys and values are in its auxiliary states.
-- @tparam table o as for `network`, and length: the most words
-- @tparam table parameters name -> array
function gpt.reader(o, parameters)
  local net = sym.softmax{ scores(o, { length = V "length" }), name = "softmax" }
  local shapes = { data = { 1, 1 }, length = { 1 } }
  for i = 1, o.layers do
    for _, kind in ipairs{ "key", "value" } do
      shapes[("layer%d_%s_cache"):format(i, kind)] = { 1, o.length,
        o.kv_heads * o.width / o.heads }
    end
  end
  local exe = net:simple_bind{ ctx = ty.cpu(), shapes = shapes, grad_req = "null" }
  for name, x in pairs(parameters) do
    exe.arg_dict[name][":"] = x
  end
  local y = exe.outputs[1]
  -- written directly between runs: an assignment is a separate task of about 10 us
  local data = ffi.cast("float *", exe.arg_dict.data:data())
  local length, n = ffi.cast("float *", exe.arg_dict.length:data()), 0
  return function(word)
    y:wait_to_read()
    data[0], length[0] = word, n
    n = n + 1
    exe:forward()
    return y
  end
end

return gpt
