--- Operators of the domain com.microsoft that optimizers, quantizers and exporters write (not for
-- users); see onnx/ops_math.lua.
--
-- @module tycho.onnx.ops_microsoft

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local attention = require "tycho.onnx.ops_attention"
local math_ops = require "tycho.onnx.ops_math"
local nn = require "tycho.onnx.ops_nn"
local quantized = require "tycho.onnx.ops_quantized"
local rnn = require "tycho.onnx.ops_rnn"
local shape_ops = require "tycho.onnx.ops_shape"
local value = require "tycho.onnx.value"

local ops = {}

local op, product = value.op, value.product


-- Joined operators --------------------------------------------------------------------------------

local function swap_last_axes(x)
  local axes = value.axes_from(0, #x.shape)
  axes[#axes], axes[#axes - 1] = axes[#axes - 1], axes[#axes]
  return x:transpose(axes)
end

-- Moves the first axis, that of rows, after the axes of the batch.
local function move_rows(x)
  local axes = value.axes_from(0, #x.shape)
  table.insert(axes, #axes - 1, table.remove(axes, 1))
  return x:transpose(axes)
end

function ops.FusedMatMul(n, a, b)
  a = n:flag("transBatchA") and #a.shape > 2 and move_rows(a) or a
  b = n:flag("transBatchB") and #b.shape > 2 and move_rows(b) or b
  a = n:flag("transA") and #a.shape > 1 and swap_last_axes(a) or a
  b = n:flag("transB") and #b.shape > 1 and swap_last_axes(b) or b
  local y, alpha = value.matmul(a, b), n:float("alpha", 1)
  return alpha == 1 and y or y * alpha
end

ops.TransposeMatMul = ops.FusedMatMul

local ACTIVATIONS = {
  [""] = function(x) return x end,
  Relu = function(x) return x:map("relu") end,
  Tanh = function(x) return x:map("tanh") end,
  Sigmoid = function(x) return x:map("sigmoid") end,
  LeakyRelu = function(x, p) return x:map("LeakyReLU", {}, { act_type = "leaky", slope = p[1]
    or 0.01 }) end,
  Clip = function(x, p) return x:maximum(p[1] or 0):minimum(p[2] or 6) end,
  HardSigmoid = function(x, p)
    return x:map("hard_sigmoid", {}, { alpha = p[1] or 0.2, beta = p[2] or 0.5 })
  end,
}

local function apply_activation(n, y)
  local f = n:choice("activation", "", ACTIVATIONS)
  local list = n:list("activation_params") or { n:float("activation_alpha"),
    n:float("activation_beta") }
  return f(y, list)
end

function ops.FusedConv(n, x, weight, bias, sum)
  local y = nn.Conv(n, x, weight, bias)
  return apply_activation(n, sum and y + sum or y)
end

function ops.FusedGemm(n, ...) return apply_activation(n, math_ops.Gemm(n, ...)) end


-- Activations and normalisation -------------------------------------------------------------------

local function make_gelu(x) return x:map("LeakyReLU", {}, { act_type = "gelu" }) end

function ops.Gelu(_, x) return make_gelu(x) end

function ops.BiasGelu(_, x, bias) return make_gelu(x + bias) end

function ops.FastGelu(_, x, bias)
  x = bias and x + bias or x
  return x * ((x + x * x * x * 0.044715) * math.sqrt(8 / math.pi)):map("sigmoid")
end

function ops.QuickGelu(n, x) return x * (x * n:float("alpha", 1.702)):map("sigmoid") end

local function normalise_layer(x, scale, bias, eps)
  if bias then
    return (op("LayerNorm", { x, scale, bias }, { eps = eps, axis = -1 }))
  end
  return value.normalise_axes(x, { #x.shape - 1 }, eps) * scale
end

function ops.SkipLayerNormalization(n, x, skip, scale, shift, bias)
  local sum = x + skip
  sum = bias and sum + bias or sum
  local y = normalise_layer(sum, scale, shift, n:float("epsilon", 1e-12))
  if n:wants(2) or n:wants(3) then
    n:refuse("the outputs mean and inv_std_var")
  end
  return y, nil, nil, sum
end

local function normalise_rms(n, x, scale, eps)
  return value.rms_norm(x, scale, #x.shape - 1, n:float("epsilon", eps))
end

function ops.SimplifiedLayerNormalization(n, x, scale) return normalise_rms(n, x, scale, 1e-5) end

function ops.SkipSimplifiedLayerNormalization(n, x, skip, scale, bias)
  local sum = x + skip
  sum = bias and sum + bias or sum
  return normalise_rms(n, sum, scale, 1e-12), nil, nil, sum
end

function ops.EmbedLayerNormalization(n, ids, segments, words, position_rows, parts, scale, shift,
    mask, positions)
  local function take_rows(source, index)
    return (op("take", { source, index }, { axis = 0, mode = "clip" }))
  end
  local shape = n:sizes(ids, "its input")
  local sum = take_rows(words, ids)
  sum = sum + (positions and take_rows(position_rows, positions)
    or position_rows:part(0, 0, shape[2]):reshape{ 1, shape[2], position_rows.shape[2] })
  sum = segments and sum + take_rows(parts, segments) or sum
  local lengths = mask and mask:cast("int32"):reduce("sum", { 1 }, false)
    or value.full({ shape[1] }, 0, "int32")
  return normalise_layer(sum, scale, shift, n:float("epsilon", 1e-12)), lengths, sum
end


-- Attention ---------------------------------------------------------------------------------------

-- Returns the bias of the scores for a mask: 0 for a key that may be used, `never` for others. The
-- mask is the length of each sample (batch), or 1 for keys that may be used: (batch, columns),
-- (batch, rows, columns) or (batch, heads or 1, rows, columns).
local function make_mask_bias(n, mask, columns, dtype, never)
  if not mask then
    return nil
  end
  local s, rank = mask.shape, #mask.shape
  if rank == 1 then
    local j = value.counted_along({ 1, columns }, 1, mask.dtype)
    mask = value.binary("lesser", j, mask:reshape{ s[1], 1 })
    s, rank = mask.shape, 2
  end
  if rank == 2 then
    mask = mask:reshape{ s[1], 1, 1, s[2] }
  elseif rank == 3 then
    mask = mask:unsqueeze(1)
  elseif rank ~= 4 then
    n:refuse("a mask of %d dimensions", rank)
  end
  return (mask:cast(dtype) * -1 + 1) * never
end

-- Returns the bias that excludes keys after the query. The queries are at the positions after
-- `past` earlier keys. The last query reads all keys, as in ONNX Runtime.
local function make_causal_bias(rows, columns, past, dtype)
  local seen = value.triangle(rows, columns, function(i, j)
    return j <= i + past or i == rows - 1
  end)
  return value.where(seen, value.scalar(0, dtype), value.scalar(-math.huge, dtype))
end

-- Returns the attention (batch, time, heads * size) of queries, keys and values (batch, heads,
-- time, size). past: the keys of earlier runs.
local function compute_attention(n, q, k, v, bias, scale, past)
  n:sizes(q, "its query", 1)
  n:sizes(k, "its keys", 1)
  local scores = value.batch_dot(q, k, false, true) * (scale or 1 / math.sqrt(q.shape[4]))
  scores = bias and scores + bias or scores
  if n:flag("unidirectional") then
    scores = scores + make_causal_bias(q.shape[3], k.shape[3], past, q.dtype)
  end
  local weights = attention.compute_weights(scores, nil, nil, false)
  return attention.join_heads(value.batch_dot(weights, v))
end

-- Returns the attribute `scale`; nil if it is absent or 0.
local function read_scale(n)
  local scale = n:float("scale", 0)
  return scale ~= 0 and scale or nil
end

-- Returns the attention of x, whose queries, keys and values are one product with the weight, and
-- also the keys and values if they are an output of the node.
local function compute_joined_attention(n, x, weight, bias, mask, past, more)
  local heads, sizes = n:int("num_heads", 0), n:list("qkv_hidden_sizes")
  local width = weight.shape[2]
  local cuts = sizes or { width / 3, width / 3, width / 3 }
  local y, parts, at = value.matmul(x, weight) + bias, {}, 0
  for i, size in ipairs(cuts) do
    parts[i], at = attention.split_heads(n, y:part(2, at, at + size), heads), at + size
  end
  local q, k, v = unpack(parts)
  if past then
    k = value.concat({ past:part(0, 0, 1):squeeze(0), k }, 2)
    v = value.concat({ past:part(0, 1, 2):squeeze(0), v }, 2)
  end
  local never = n:float("mask_filter_value", -10000)
  local extra = make_mask_bias(n, mask, k.shape[3], q.dtype, never)
  extra = more and (extra and extra + more or more) or extra
  local present = n:wants(2) and value.concat({ k:unsqueeze(0), v:unsqueeze(0) }, 0) or nil
  return compute_attention(n, q, k, v, extra, read_scale(n), past and past.shape[4] or 0), present
end

function ops.Attention(n, x, weight, bias, mask, past, more)
  return compute_joined_attention(n, x, weight, bias or value.scalar(0, x.dtype), mask, past, more)
end

function ops.QAttention(n, x, weight, bias, x_scale, w_scale, mask, x_zero, w_zero, past)
  x = quantized.decode(x, x_scale:reshape{}, x_zero and x_zero:reshape{})
  return compute_joined_attention(n, x, quantized.decode(weight, w_scale, w_zero), bias, mask, past)
end

-- Returns queries, keys and values as (batch, time, heads * size), from (batch, time, heads, parts,
-- size) or as they are.
local function unpack_heads(n, q, k, v)
  local function split_parts(x, count, from)
    local s, list = n:sizes(x, "its input"), {}
    if s[4] ~= count then
      value.damaged("%d parts, not %d", s[4], count)
    end
    for i = from, count - 1 do
      list[#list + 1] = x:part(3, i, i + 1):reshape{ s[1], s[2], s[3] * s[5] }
    end
    return unpack(list)
  end
  if #q.shape == 5 and not k then
    return split_parts(q, 3, 0)
  elseif k and #k.shape == 5 and not v then
    return q, split_parts(k, 2, 0)
  elseif not k or not v or #q.shape ~= 3 then
    n:refuse("queries of %d dimensions%s", #q.shape, (not k or not v) and " alone" or "")
  end
  return q, k, v
end

function ops.MultiHeadAttention(n, q, k, v, bias, padding, more, past_k, past_v)
  local heads = n:int("num_heads", 0)
  q, k, v = unpack_heads(n, q, k, v)
  local width = q.shape[3]
  if bias then
    local own = v.shape[#v.shape]
    q = q + bias:part(0, 0, width)
    k = #k.shape == 3 and k + bias:part(0, width, 2 * width) or k
    v = #v.shape == 3 and v + bias:part(0, 2 * width, 2 * width + own) or v
  end
  local function split_input(x) return #x.shape == 4 and x or attention.split_heads(n, x, heads) end
  q, k, v = split_input(q), split_input(k), split_input(v)
  k = past_k and value.concat({ past_k, k }, 2) or k
  v = past_v and value.concat({ past_v, v }, 2) or v
  local never = n:float("mask_filter_value", -10000)
  local extra = make_mask_bias(n, padding, k.shape[3], q.dtype, never)
  extra = more and (extra and extra + more or more) or extra
  local before = past_k and past_k.shape[3] or 0
  return compute_attention(n, q, k, v, extra, read_scale(n), before), k, v
end

-- Attributes of GroupQueryAttention for which only these values, the defaults, are supported.
local NEUTRAL_VALUES = { softcap = 0, smooth_softmax = 0, qk_output = 0, kv_cache_bit_width = 0 }

-- Returns a cache of `size` rows (batch, heads, size, ...): the past one, into which the rows of x
-- are written from row first[sample] on.
local function append_rows(n, past, x, first, size)
  local s = n:sizes(x, "its input")
  if not past and size == s[3] then
    return x
  end
  local before, after = { 0, 0, 0, 0 }, { 0, 0, size - (past and past.shape[3] or 0), 0 }
  local cache = past and value.pad(n, past, before, after, "constant", 0)
    or value.full({ s[1], s[2], size, s[4] }, 0, x.dtype)
  local at = value.counted_along(s, 2, "int64") + first:reshape{ s[1], 1, 1, 1 }
  return (op("_contrib_scatter_along_axis", { cache, at, x }, { axis = 2, reduction = "none" }))
end

-- Computes the attention of language models: causal, with fewer heads for keys and values than for
-- queries, and with a cache of keys and values from step to step.
function ops.GroupQueryAttention(n, q, k, v, past_k, past_v, lengths, total, cos, sin, positions,
    bias, sink)
  local heads, kv_heads = n:int("num_heads", 0), n:int("kv_num_heads", 0)
  for name, neutral in pairs(NEUTRAL_VALUES) do
    if n:float(name, neutral) ~= neutral then
      n:refuse("%s = %g", name, n:float(name))
    end
  end
  if sink or heads < 1 or kv_heads < 1 or heads % kv_heads ~= 0 then
    n:refuse("head_sink, or %d heads for %d of keys", heads, kv_heads)
  end
  local s = n:sizes(q, "its query")
  if not k then
    local size = s[3] / (heads + 2 * kv_heads)
    local a, b = heads * size, (heads + kv_heads) * size
    q, k, v = q:part(2, 0, a), q:part(2, a, b), q:part(2, b, s[3])
  end
  q = attention.split_heads(n, q, heads)
  k, v = attention.split_heads(n, k, kv_heads), attention.split_heads(n, v, kv_heads)
  past_k, past_v = past_k and not past_k:is_empty() and past_k or nil, past_v
    and not past_v:is_empty() and past_v or nil
  local held = past_k and past_k.shape[3] or 0
  local size = held + s[2]
  if total and total:is_constant() then
    size = math.max(held, total:number("total_sequence_length"))
  end
  local first = (lengths:cast("int64"):reshape{ s[1] } + (1 - s[2])):maximum(0)
  if n:flag("do_rotary") then
    local at = positions or value.counted_along({ 1, s[2] }, 1, "int64") + first:reshape{ s[1], 1 }
    local c, sn = attention.take_angles(cos, at), attention.take_angles(sin, at)
    local function rotate_heads(x)
      local y, rest = x:transpose{ 0, 2, 1, 3 }, 2 * cos.shape[2]
      local tail = rest < y.shape[4] and y:part(3, rest, y.shape[4])
      y = attention.rotate_pairs(y:part(3, 0, rest), c, sn, n:flag("rotary_interleaved"))
      return (tail and value.concat({ y, tail }, 3) or y):transpose{ 0, 2, 1, 3 }
    end
    q, k = rotate_heads(q), rotate_heads(k)
  end
  k, v = append_rows(n, past_k, k, first, size), append_rows(n, past_v, v, first, size)
  local window = n:int("local_window_size", -1)
  local y = attention.call_engine(q, k, v, { scale = read_scale(n), causal = true, first = first,
    window = window > 0 and window or 0, bias = bias and bias:cast(q.dtype) })
  return attention.join_heads(y), k, v
end

function ops.RotaryEmbedding(n, x, positions, cos, sin)
  local shape, heads = n:sizes(x, "its input"), n:int("num_heads", 0)
  local flat = #x.shape == 3
  local y
  if flat then
    heads = heads > 0 and heads or shape[3] / (2 * cos.shape[2])
    y = x:reshape{ shape[1], shape[2], heads, shape[3] / heads }
  else
    y = x:transpose{ 0, 2, 1, 3 }
  end
  if product(positions.shape) == 1 then
    positions = value.counted_along({ 1, shape[flat and 2 or 3] }, 1, "int64")
      + positions:cast("int64"):reshape{}
  end
  local turned = n:int("rotary_embedding_dim", 0)
  turned = turned == 0 and y.shape[4] or turned
  local rest = turned < y.shape[4] and y:part(3, turned, y.shape[4])
  y = attention.rotate_pairs(y:part(3, 0, turned), attention.take_angles(cos, positions),
    attention.take_angles(sin, positions), n:flag("interleaved"))
  y = rest and value.concat({ y, rest }, 3) or y
  return flat and y:reshape(shape) or y:transpose{ 0, 2, 1, 3 }
end


-- Quantized numbers -------------------------------------------------------------------------------

-- Returns a value of one element as a scalar, others unchanged.
local function flatten_scalar(v) return v and product(v.shape) == 1 and v:reshape{} or v end

-- Returns the values of quantized numbers, whose scale may be an array of one element.
local function decode_levels(x, scale, zero)
  return quantized.decode(x, flatten_scalar(scale), flatten_scalar(zero))
end

-- Returns values as quantized numbers, whose scale may be an array of one element.
local function encode_levels(y, scale, zero)
  return quantized.encode(y, flatten_scalar(scale), flatten_scalar(zero))
end

-- Returns a binary operator on quantized numbers.
local function make_binary(name)
  return function(_, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)
    local y = value.binary(name, decode_levels(a, a_scale, a_zero),
      decode_levels(b, b_scale, b_zero))
    return encode_levels(y, y_scale, y_zero)
  end
end

ops.QLinearAdd, ops.QLinearMul = make_binary("add"), make_binary("mul")

-- Returns an operator on quantized numbers that applies f(n, x) to their values.
local function make_unary(f)
  return function(n, x, x_scale, x_zero, y_scale, y_zero)
    return encode_levels(f(n, decode_levels(x, x_scale, x_zero)), y_scale, y_zero)
  end
end

ops.QLinearSigmoid = make_unary(math_ops.Sigmoid)
ops.QLinearLeakyRelu = make_unary(math_ops.LeakyRelu)

-- Returns a pooling that also takes arrays whose channels are the last axis.
local function make_pooling(f)
  return make_unary(function(n, x)
    if not n:flag("channels_last") then
      return f(n, x)
    end
    local rank = #x.shape
    local y = f(n, x:transpose{ 0, rank - 1, unpack(value.axes_from(1, rank - 1)) })
    local back = { 0, unpack(value.axes_from(2, rank)) }
    back[rank] = 1
    return y:transpose(back)
  end)
end

ops.QLinearAveragePool = make_pooling(function(n, x) return nn.AveragePool(n, x, true) end)
ops.QLinearGlobalAveragePool = make_pooling(nn.GlobalAveragePool)

function ops.QLinearSoftmax(n, x, x_scale, x_zero, y_scale, y_zero)
  n.opset = n:int("opset", 13)
  return encode_levels(math_ops.Softmax(n, decode_levels(x, x_scale, x_zero)), y_scale, y_zero)
end

function ops.QLinearReduceMean(n, x, x_scale, x_zero, y_scale, y_zero)
  return encode_levels(math_ops.ReduceMean(n, decode_levels(x, x_scale, x_zero)), y_scale, y_zero)
end

function ops.QLinearConcat(n, y_scale, y_zero, ...)
  local given, list = { ... }, {}
  for i = 1, #given, 3 do
    list[#list + 1] = decode_levels(given[i], given[i + 1], given[i + 2])
  end
  return encode_levels(value.concat(list, n:axis(1, #list[1].shape)), y_scale, y_zero)
end

function ops.QGemm(n, a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero)
  local plain = not n:flag("transA") and n:float("alpha", 1) == 1 and #a.shape == 2
    and (not c or c.dtype == "int32" and product(c.shape) == b.shape[n:flag("transB") and 1 or 2])
  local levels = plain and y_scale and quantized.layer(a, a_scale, a_zero, b, b_scale, b_zero,
    n:flag("transB") and 0 or 1, c, y_scale, y_zero)
  if levels then
    return levels
  end
  a, b = n:flag("transA") and swap_last_axes(a) or a, n:flag("transB") and swap_last_axes(b) or b
  -- several scales and zero points of b are those of its columns
  local y = value.matmul(decode_levels(a, a_scale, a_zero), decode_levels(b, b_scale, b_zero))
  y = c and y + c:cast(y.dtype) * (flatten_scalar(a_scale) * flatten_scalar(b_scale)) or y
  y = y * n:float("alpha", 1)                              -- c has the scale of the product
  return y_scale and encode_levels(y, y_scale, y_zero) or y
end

function ops.MatMulIntegerToFloat(n, a, b, a_scale, b_scale, a_zero, b_zero, bias)
  local y = quantized.product(n, a, b, a_zero, b_zero):cast("float32") * (flatten_scalar(a_scale)
    * flatten_scalar(b_scale))
  return bias and y + bias or y
end

function ops.DynamicQuantizeMatMul(n, a, b, b_scale, b_zero, bias)
  local q, scale, zero = quantized.ops.DynamicQuantizeLinear(n, a)
  local y = quantized.product(n, q, b, zero, b_zero):cast("float32")
    * (scale * flatten_scalar(b_scale))
  return bias and y + bias or y
end

-- Computes an LSTM whose weights (directions, input, gates * units) are quantized and whose input
-- is not.
function ops.DynamicQuantizeLSTM(n, x, weight, recurrent, bias, lengths, hidden, cell, peephole,
    w_scale, w_zero, r_scale, r_zero)
  local function decode_weight(w, scale, zero)
    local function align_gates(v)
      if not v or product(v.shape) == 1 then
        return flatten_scalar(v)
      elseif product(v.shape) == w.shape[1] then
        return v:reshape{ w.shape[1], 1, 1 }
      end
      return v:reshape{ w.shape[1], 1, w.shape[3] }
    end
    return quantized.decode(w, align_gates(scale), align_gates(zero)):transpose{ 0, 2, 1 }
  end
  return rnn.LSTM(n, x, decode_weight(weight, w_scale, w_zero),
    decode_weight(recurrent, r_scale, r_zero), bias, lengths, hidden, cell, peephole)
end

-- Multiplies by weights of 4 bits (outputs, blocks, bytes), which have a scale for each block of
-- inputs.
function ops.MatMulNBits(n, a, b, scales, zeros, order, bias)
  local inputs, outputs, bits = n:int("K", 0), n:int("N", 0), n:int("bits", 4)
  local block, blocks = n:int("block_size", 32), b.shape[2]
  if order or 8 % bits ~= 0 or bits == 1 or not b:is_constant() or inputs > blocks * block then
    n:refuse("bits = %d%s", bits, order and ", g_idx" or "")
  end
  local levels, per_byte = 2 ^ bits, 8 / bits
  local function split_bytes(v)                            -- rows of bytes, low bits first
    local rest, parts = v:cast("int32"), {}
    for i = 1, per_byte do
      local low = rest % levels
      parts[i], rest = low:unsqueeze(2), (rest - low) / levels
    end
    return value.concat(parts, 2):reshape{ outputs, v.shape[2] * per_byte }
  end
  local q = split_bytes(b:reshape{ outputs, blocks * block / per_byte })
    :reshape{ outputs, blocks, block }:cast(a.dtype)
  local zero = levels / 2
  if zeros and zeros.dtype == "uint8" then
    zero = split_bytes(zeros:reshape{ outputs, product(zeros.shape) / outputs })
      :part(1, 0, blocks):reshape{ outputs, blocks, 1 }:cast(a.dtype)
  elseif zeros then
    zero = zeros:reshape{ outputs, blocks, 1 }
  end
  local weight = ((q - zero) * scales:reshape{ outputs, blocks, 1 })
    :reshape{ outputs, blocks * block }:part(1, 0, inputs)
  local y = op("FullyConnected", { a, weight, bias }, { num_hidden = outputs, flatten = false,
    no_bias = bias == nil })
  return y
end

ops.QuantizeLinear, ops.DequantizeLinear = quantized.ops.QuantizeLinear,
  quantized.ops.DequantizeLinear
ops.Trilu, ops.GatherND = shape_ops.Trilu, shape_ops.GatherND

function ops.Inverse(_, x) return (op("_linalg_inverse", { x })) end

return ops
