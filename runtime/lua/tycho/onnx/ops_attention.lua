--- Operators of ONNX: attention, rotary embeddings, sums over named axes (not for users); see
-- onnx/ops_math.lua.
--
-- @module tycho.onnx.ops_attention

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tables = require "tycho.core.tables"
local tensor = require "tycho.onnx.tensor"
local value = require "tycho.onnx.value"

local attention = { ops = {} }
local ops = attention.ops

local op, product = value.op, value.product


-- Attention ---------------------------------------------------------------------------------------

--- Splits (batch, time, heads * size) into (batch, heads, time, size).
function attention.split_heads(n, x, heads)
  local s = n:sizes(x, "its input")
  if not heads or heads < 1 or s[3] % heads ~= 0 then
    value.damaged("%d numbers for %s heads", s[3], tostring(heads))
  end
  return x:reshape{ s[1], s[2], heads, s[3] / heads }:transpose{ 0, 2, 1, 3 }
end


--- Joins (batch, heads, time, size) to (batch, time, heads * size).
function attention.join_heads(x)
  local s = x.shape
  return x:transpose{ 0, 2, 1, 3 }:reshape{ s[1], s[3], s[2] * s[4] }
end


--- Returns keys or values with as many heads as the queries; each head is repeated for a group of
-- heads of the queries.
function attention.repeat_heads(x, heads)
  local s = x.shape
  if s[2] == heads then
    return x
  end
  return x:unsqueeze(2):expand{ s[1], s[2], heads / s[2], s[3], s[4] }
    :reshape{ s[1], heads, s[3], s[4] }
end


local NEVER = -math.huge

-- Returns a bias of the scores: 0 where a condition (rows, columns) or (batch, 1, rows, columns)
-- holds, -infinity elsewhere.
local function make_bias(allowed, dtype)
  return value.where(allowed, value.scalar(0, dtype), value.scalar(NEVER, dtype))
end


-- Returns the condition whether query i may use key j. The query is at position i + offset;
-- `offset` is a number, or has one for each sample. With `causal` no later key may be used; `left`
-- and `right` limit the distance of earlier and later keys unless they are negative.
local function find_visible_keys(rows, columns, offset, causal, left, right)
  if type(offset) == "number" then
    return value.triangle(rows, columns, function(i, j)
      local at = i + offset
      return (not causal or j <= at) and (left < 0 or at - j <= left) and (right < 0
        or j - at <= right)
    end)
  end
  local i = value.counted_along({ rows, 1 }, 0, "int64")
  local j = value.counted_along({ 1, columns }, 1, "int64")
  local at = i + offset:reshape{ offset.shape[1], 1, 1, 1 }
  local allowed
  local function add_test(test) allowed = allowed and allowed:logical_and(test) or test end
  if causal then
    add_test(j:lesser_equal(at):truth())
  end
  if left >= 0 then
    add_test((at - j):lesser_equal(left):truth())
  end
  if right >= 0 then
    add_test((j - at):lesser_equal(right):truth())
  end
  return allowed
end


-- Returns the bias that the mask, the window and the lengths of the keys add to the scores; nil
-- without any of these.
local function make_score_bias(n, q, k, mask, past, lengths)
  local rows, columns, bias = q.shape[3], k.shape[3], nil
  local function add_bias(more) bias = bias and bias + more or more end
  if mask then
    local more = columns - mask.shape[#mask.shape]
    local as_bias = mask.dtype == "bool" and make_bias(mask, q.dtype) or mask
    if more > 0 then
      local before, after = {}, {}
      for i = 1, #mask.shape do
        before[i], after[i] = 0, i == #mask.shape and more or 0
      end
      as_bias = value.pad(n, as_bias, before, after, "constant", NEVER)
    end
    add_bias(as_bias)
  end
  local causal, left, right = n:flag("is_causal"), n:int("left_window_size", -1),
    n:int("right_window_size", -1)
  if causal or left >= 0 or right >= 0 then
    local offset = past or 0
    if lengths and not past then
      offset = lengths:cast("int64") - rows
    end
    add_bias(make_bias(find_visible_keys(rows, columns, offset, causal, left, right), q.dtype))
  end
  if lengths then
    local j = value.counted_along({ 1, columns }, 1, "int64")
    local inside = value.binary("lesser", j, lengths:cast("int64"):reshape{ lengths.shape[1], 1 })
    add_bias(make_bias(inside:truth():reshape{ lengths.shape[1], 1, 1, columns }, q.dtype))
  end
  return bias
end


--- Returns the softmax over the last axis; with `guarded`, 0 in rows whose keys are all excluded.
function attention.compute_weights(scores, bias, dtype, guarded)
  local y = scores:cast(dtype or scores.dtype):map("softmax", {}, { axis = -1 })
  if not guarded then
    return y
  end
  local top = bias:reduce("max", { #bias.shape - 1 }, true)
  return value.where(top:equal(NEVER), value.scalar(0, y.dtype), y)
end


-- Returns the type to compute in: float32 for half types, so that results are rounded once.
local function get_wide_type(dtype)
  return (dtype == "float16" or dtype == "bfloat16") and "float32" or dtype
end


--- Calls the engine's own attention, with queries (batch, heads, time, size) or (batch, time, heads
-- * size), keys and values.
-- @param q queries
-- @param k keys
-- @param v values
-- @tparam table o heads, kv_heads (both for inputs of three dimensions), scale, causal, window,
--   mask (0 where a key is ignored), bias (added to the scores), lengths (of the keys, by sample),
--   first (position of the first query, by sample)
function attention.call_engine(q, k, v, o)
  local inputs = { q, k, v }
  local function add_input(x)
    inputs[#inputs + 1] = x
    return x ~= nil
  end
  return (op("_contrib_attention", inputs, { layout = #q.shape == 3 and "NTC" or "NHTC",
    heads = o.heads or 1, kv_heads = o.kv_heads or 0, scale = o.scale or 0,
    causal = o.causal or false, window = o.window or 0, use_mask = add_input(o.mask),
    use_bias = add_input(o.bias), use_valid_length = add_input(o.lengths),
    use_offset = add_input(o.first) }))
end


-- Returns whether the engine's attention supports all attributes of the node, and its mask for
-- `columns` keys.
local function can_call_engine(n, q, mask, columns)
  local kind = n.attrs.softmax_precision and tensor.type_of(n:int("softmax_precision"))
  return n:float("softcap", 0) == 0 and not n:wants(4) and columns ~= 0
    and n:int("left_window_size", -1) < 0 and n:int("right_window_size", -1) < 0
    and (not kind or kind.dtype ~= "float64" or q.dtype == "float64")
    and (not mask or #mask.shape <= 4 and mask.shape[#mask.shape] == columns)
end


-- Returns the position of the first query of each sample, which a causal mask needs; nil: 0.
local function get_first_positions(n, q, past, lengths)
  if past then
    local list = {}
    for i = 1, n:sizes(q, "its query")[1] do
      list[i] = past
    end
    return value.list(list, "int64")
  end
  return lengths and lengths:cast("int64") - q.shape[#q.shape - 1] or nil
end


-- Raises an error unless the sizes with which attention computes are known: numbers of heads, and
-- numbers of positions if something depends on them, such as the mask or attributes.
local function check_sizes(n, q, k, mask, depends)
  if mask or depends or n:int("left_window_size", -1) >= 0
      or n:int("right_window_size", -1) >= 0 then
    n:sizes(q, "its query", 1)
    n:sizes(k, "its keys", 1)
  end
  if mask then
    n:size(mask, #mask.shape - 1, "its mask")
  end
  n:size(q, 1, "its query")
  n:size(q, 3, "its query")
  n:size(k, 1, "its keys")
end


function ops.Attention(n, q, k, v, mask, past_key, past_value, lengths)
  local flat, q_heads, kv_heads = #q.shape == 3, n:int("q_num_heads"), n:int("kv_num_heads")
  local dtype, wide = q.dtype, get_wide_type(q.dtype)
  local past, causal = past_key and past_key.shape[3], n:flag("is_causal")
  local whole = { q, k, v }
  if flat then
    q = attention.split_heads(n, q, q_heads)
    k, v = attention.split_heads(n, k, kv_heads), attention.split_heads(n, v, kv_heads)
  end
  k = past_key and value.concat({ past_key, k }, 2) or k
  v = past_value and value.concat({ past_value, v }, 2) or v
  check_sizes(n, q, k, mask, causal or lengths)
  local heads, scale = q.shape[2], n:float("scale", 1 / math.sqrt(q.shape[4]))
  if can_call_engine(n, q, mask, k.shape[3]) then
    local options = { scale = scale, causal = causal, lengths = lengths,
      first = causal and get_first_positions(n, q, past, lengths) or nil }
    if mask then
      options[mask.dtype == "bool" and "mask" or "bias"] = mask.dtype == "bool" and mask
        or mask:cast(dtype)
    end
    if flat and not past then
      options.heads, options.kv_heads = q_heads, kv_heads
      return attention.call_engine(whole[1], whole[2], whole[3], options), k, v
    end
    local y = attention.call_engine(q, k, v, options)
    return flat and attention.join_heads(y) or y, k, v
  end
  local function widen_heads(x) return attention.repeat_heads(x, heads):cast(wide) end
  q = q:cast(wide)
  local scores = value.batch_dot(q * scale, widen_heads(k), false, true)
  local mode, softcap, shown = n:int("qk_matmul_output_mode", 0), n:float("softcap", 0), scores
  if softcap > 0 then
    scores = (scores / softcap):map("tanh") * softcap
  end
  shown = mode == 1 and scores or shown
  mask = mask and mask.dtype ~= "bool" and mask:cast(wide) or mask
  local bias = make_score_bias(n, q, k, mask, past, lengths)
  scores = bias and scores + bias or scores
  shown = mode == 2 and scores or shown
  local kind = n.attrs.softmax_precision and tensor.type_of(n:int("softmax_precision"))
  local precise = kind and kind.dtype == "float64" and "float64" or wide
  local weights = attention.compute_weights(scores, bias, precise, bias ~= nil):cast(wide)
  shown = mode == 3 and weights or shown
  local y = value.batch_dot(weights, widen_heads(v)):cast(dtype)
  return flat and attention.join_heads(y) or y, k, v, n:wants(4) and shown:cast(dtype) or nil
end


-- Returns the type in which scores become weights: at least float32, unless the node names a type.
local function choose_softmax_type(n, x)
  local kind = n.attrs.softmax_precision and tensor.type_of(n:int("softmax_precision"))
  return kind and kind.dtype or x.dtype == "float64" and x.dtype or "float32"
end


-- Returns scores or weights after they pass the graph in the attribute `name`; unchanged without
-- one. Raises an error if the graph changes their shape.
local function apply_graph(n, x, name)
  if not n.attrs[name] then
    return x
  end
  local outputs = n.import:run_body(n:graph(name), { x }, n.scope)
  if #outputs ~= 1 or not value.same_shape(outputs[1].shape, x.shape) then
    value.damaged("%s gives %d outputs, or another shape than %s", name, #outputs,
      value.shape_text(x.shape))
  end
  return outputs[1]
end


function ops.FlexAttention(n, q, k, v)
  local heads, dtype = n:sizes(q, "its query", 1)[2], choose_softmax_type(n, q)
  local scores = value.batch_dot(q:cast(dtype), attention.repeat_heads(k, heads):cast(dtype), false,
    true) * n:float("scale", 1 / math.sqrt(q.shape[4]))
  local weights = attention.compute_weights(apply_graph(n, scores, "score_mod"), nil, nil, false)
  weights = apply_graph(n, weights, "prob_mod")
  return value.batch_dot(weights, attention.repeat_heads(v, heads):cast(dtype)):cast(q.dtype)
end


local MOST_LAID_OUT = 1024               -- most positions of an unrolled recurrence

local UPDATES = {
  linear = {}, gated = { gated = true }, delta = { delta = true },
  gated_delta = { gated = true, delta = true },
}

-- Computes linear attention: a state (batch, heads, size of keys, size of values), which decays at
-- each position, to which the position is added, and from which the result is read.
function ops.LinearAttention(n, q, k, v, past, decay, beta)
  local dtype, q_heads, kv_heads = q.dtype, n:int("q_num_heads"), n:int("kv_num_heads")
  local rule = n:choice("update_rule", "gated_delta", UPDATES)
  if (rule.gated or false) ~= (decay ~= nil) or (rule.delta or false) ~= (beta ~= nil) then
    value.damaged("update_rule = '%s' and its inputs do not fit", n:text("update_rule", ""))
  end
  local function split_input(x, heads) return attention.split_heads(n, x:cast("float32"), heads) end
  q, k, v = split_input(q, q_heads), split_input(k, kv_heads), split_input(v, kv_heads)
  decay, beta = decay and split_input(decay, kv_heads):map("exp"), beta
    and split_input(beta, beta.shape[3] == 1 and 1 or kv_heads)
  local s, length = k.shape, k.shape[3]
  local scale = n:float("scale", 0)
  scale = scale ~= 0 and scale or 1 / math.sqrt(s[4])
  if length > MOST_LAID_OUT then
    n:refuse("%d positions, at most %d", length, MOST_LAID_OUT)
  end
  local state = past and past:cast("float32")
    or value.full({ s[1], s[2], s[4], v.shape[4] }, 0, "float32")
  local rows = {}
  for i = 0, length - 1 do
    local function take_position(x) return x:part(2, i, i + 1) end
    local key, new = take_position(k):transpose{ 0, 1, 3, 2 }, take_position(v)
    if rule.gated then
      state = state * take_position(decay):transpose{ 0, 1, 3, 2 }
    end
    if rule.delta then
      new = take_position(beta) * (new - (state * key):reduce("sum", { 2 }, true))
    end
    state = state + key * new
    rows[#rows + 1] = value.batch_dot(take_position(q), attention.repeat_heads(state, q_heads))
      * scale
  end
  return attention.join_heads(value.concat(rows, 2)):cast(dtype),
    state:cast(past and past.dtype or dtype)
end


-- Rotary embeddings -------------------------------------------------------------------------------

--- Rotates pairs of numbers of x (batch, time, heads, size) by angles, of which it takes cosines
-- and sines (batch or 1, time, 1, size / 2). A pair is two neighbours if `interleaved`, else an
-- element of the first half with one of the second.
function attention.rotate_pairs(x, cos, sin, interleaved)
  local s = x.shape
  local first, second
  if interleaved then
    local pairs_of = x:reshape{ s[1], s[2], s[3], s[4] / 2, 2 }
    first, second = pairs_of:part(4, 0, 1):squeeze(4), pairs_of:part(4, 1, 2):squeeze(4)
  else
    first, second = x:part(3, 0, s[4] / 2), x:part(3, s[4] / 2, s[4])
  end
  local real, imaginary = cos * first - sin * second, sin * first + cos * second
  if interleaved then
    return value.concat({ real:unsqueeze(4), imaginary:unsqueeze(4) }, 4):reshape(s)
  end
  return value.concat({ real, imaginary }, 3)
end


--- Returns the rows of a table of cosines or sines at the positions, by default all of them, as
-- (batch or 1, time, 1, size / 2).
function attention.take_angles(cache, positions)
  if not positions then
    local s = cache.shape
    return #s == 3 and cache:unsqueeze(2) or cache:reshape{ 1, s[1], 1, s[2] }
  end
  return op("take", { cache, positions }, { axis = 0, mode = "clip" }):unsqueeze(2)
end


function ops.RotaryEmbedding(n, x, cos, sin, positions)
  local shape, flat = n:sizes(x, "its input"), #x.shape == 3
  local y
  if flat then
    local heads = n:int("num_heads", 0)
    if heads < 1 then
      value.damaged("num_heads is missing")
    end
    y = x:reshape{ shape[1], shape[2], heads, shape[3] / heads }
  else
    y = x:transpose{ 0, 2, 1, 3 }
  end
  local size = y.shape[4]
  local turned = n:int("rotary_embedding_dim", 0)
  turned = turned == 0 and size or turned
  local rest = turned < size and y:part(3, turned, size)
  y = attention.rotate_pairs(y:part(3, 0, turned), attention.take_angles(cos, positions),
    attention.take_angles(sin, positions), n:flag("interleaved"))
  y = rest and value.concat({ y, rest }, 3) or y
  return flat and y:reshape(shape) or y:transpose{ 0, 2, 1, 3 }
end


function ops.SwiGLU(n, a, b)
  local alpha = n:float("alpha", 1)
  if alpha == 1 and value.same_shape(a.shape, b.shape) and a.dtype == b.dtype then
    return a:map("_contrib_swiglu", { b })
  end
  return a * (a * alpha):map("sigmoid") * b
end


-- Sums over named axes ----------------------------------------------------------------------------

-- Returns the letters of a term, one for each axis; the axes of an ellipsis are "...1", "...2" and
-- so on, from the last to the first.
local function list_letters(term, rank)
  local list = {}
  local before, after = term:match("^(%a*)%.%.%.(%a*)$")
  if not before then
    for letter in term:gmatch("%a") do
      list[#list + 1] = letter
    end
    return list
  end
  for letter in before:gmatch(".") do
    list[#list + 1] = letter
  end
  for i = rank - #before - #after, 1, -1 do
    list[#list + 1] = "..." .. i
  end
  for letter in after:gmatch(".") do
    list[#list + 1] = letter
  end
  return list
end


-- Returns the diagonal of x over axes with the same letter, and the letters that remain.
local function take_diagonal(x, letters)
  local seen = {}
  for i, letter in ipairs(letters) do
    local first = seen[letter]
    if first then
      local size = x.shape[first]
      local list, shape = {}, {}
      value.spend(size, "an axis")
      for a = 0, size - 1 do
        list[#list + 1] = a
      end
      for k = 1, #letters do
        shape[k] = k == i and size or 1
      end
      local own, other = tables.copied(shape), tables.copied(shape)
      own[i], own[first], other[i], other[first] = size, 1, 1, size
      local on = value.binary("equal", value.list(list, x.dtype, own),
        value.list(list, x.dtype, other))
      local y = value.where(on, x, value.list({ 0 }, x.dtype, {})):reduce("sum", { i - 1 }, false)
      local rest = tables.copied(letters)
      table.remove(rest, i)
      return take_diagonal(y, rest)
    end
    seen[letter] = i
  end
  return x, letters
end


local function make_set(list)
  local set = {}
  for _, x in ipairs(list) do
    set[x] = true
  end
  return set
end


-- Returns x with its axes in the given order of its letters.
local function order_axes(x, letters, order)
  local at, axes = {}, {}
  for i, letter in ipairs(letters) do
    at[letter] = i - 1
  end
  for i, letter in ipairs(order) do
    axes[i] = at[letter]
  end
  return x:transpose(axes)
end


-- Returns x summed over the axes whose letters are not in the set `used`, and the letters that
-- remain.
local function sum_unused_axes(x, letters, used)
  local axes, rest = {}, {}
  for i, letter in ipairs(letters) do
    if used[letter] then
      rest[#rest + 1] = letter
    else
      axes[#axes + 1] = i - 1
    end
  end
  return #axes > 0 and x:reduce("sum", axes, false) or x, rest
end


local function join_lists(...)
  local list = {}
  for _, part in ipairs{ ... } do
    for _, letter in ipairs(part) do
      list[#list + 1] = letter
    end
  end
  return list
end


-- Returns the product of two terms, and its letters. Shared letters in the set `kept` are the batch
-- of a matrix product; it sums over the other shared letters.
local function multiply_terms(a, la, b, lb, kept)
  local in_a, in_b = make_set(la), make_set(lb)
  local batch, left, inner, right = {}, {}, {}, {}
  for _, letter in ipairs(la) do
    if in_b[letter] then
      table.insert(kept[letter] and batch or inner, letter)
    else
      left[#left + 1] = letter
    end
  end
  for _, letter in ipairs(lb) do
    if not in_a[letter] then
      right[#right + 1] = letter
    end
  end
  local of_a, of_b = join_lists(batch, left, inner), join_lists(batch, inner, right)
  a, b = order_axes(a, la, of_a), order_axes(b, lb, of_b)
  local size = {}
  for i, letter in ipairs(of_a) do
    size[letter] = a.shape[i]
  end
  for i, letter in ipairs(of_b) do
    local other = b.shape[i]
    local own = size[letter] or other
    if own ~= other and own > 1 and other > 1 then
      value.damaged("axis '%s' has %d and %d elements", letter, own, other)
    end
    size[letter] = value.broadcast({ own }, { other })[1]
  end
  local function list_sizes(list)
    local shape = {}
    for i, letter in ipairs(list) do
      shape[i] = size[letter]
    end
    return shape
  end
  local function count_elements(list) return product(list_sizes(list)) end
  a, b = a:expand(list_sizes(of_a)), b:expand(list_sizes(of_b))
  local y = value.batch_dot(a:reshape{ count_elements(batch), count_elements(left),
    count_elements(inner) }, b:reshape{ count_elements(batch), count_elements(inner),
    count_elements(right) })
  local letters = join_lists(batch, left, right)
  return y:reshape(list_sizes(letters)), letters
end


function ops.Einsum(n, ...)
  local equation, terms, given = n:text("equation", ""):gsub("%s", ""), {}, { ... }
  local counts = {}
  local left, out = equation:match("^([^-]*)%->(.*)$")
  left = left or equation
  for term in (left .. ","):gmatch("([^,]*),") do
    local x = given[#terms + 1] or value.damaged("equation '%s' for %d inputs", equation, #given)
    local letters = list_letters(term, #x.shape)
    if #letters ~= #x.shape then
      value.damaged("term '%s' for %d dimensions", term, #x.shape)
    end
    for _, letter in ipairs(letters) do
      counts[letter] = (counts[letter] or 0) + 1
    end
    local y, own = take_diagonal(x, letters)
    terms[#terms + 1] = { y, own }
  end
  if #terms ~= #given then
    value.damaged("equation '%s' for %d inputs", equation, #given)
  end
  local wanted = {}
  if out then
    local open_axes = 0
    for letter in pairs(counts) do
      open_axes = math.max(open_axes, tonumber(letter:match("^%.%.%.(%d+)$")) or 0)
    end
    wanted = list_letters(out, open_axes + #out:gsub("%.", ""))
  else
    for letter, count in pairs(counts) do
      wanted[#wanted + 1] = (count == 1 or #letter > 1) and letter or nil
    end
    table.sort(wanted, function(a, b)
      return (#a > 1 and 1000 - tonumber(a:sub(4)) or 2000 + a:byte())
        < (#b > 1 and 1000 - tonumber(b:sub(4)) or 2000 + b:byte())
    end)
  end
  -- Returns the set of letters of the result and of the terms from `first` on.
  local function collect_used_letters(first)
    local used = make_set(wanted)
    for i = first, #terms do
      for _, letter in ipairs(terms[i][2]) do
        used[letter] = true
      end
    end
    return used
  end
  local real = value.REAL[given[1].dtype]
  local y, letters = terms[1][1], terms[1][2]
  y = real and y or y:cast("float64")
  y, letters = sum_unused_axes(y, letters, collect_used_letters(2))
  for i = 2, #terms do
    local b, lb = terms[i][1], terms[i][2]
    b = real and b or b:cast("float64")
    local kept = collect_used_letters(i + 1)
    b, lb = sum_unused_axes(b, lb, make_set(join_lists(letters, wanted, lb)))
    y, letters = multiply_terms(y, letters, b, lb, kept)
    y, letters = sum_unused_axes(y, letters, kept)
  end
  return order_axes(y, letters, wanted):cast(given[1].dtype)
end

return attention
