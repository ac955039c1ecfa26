-- Rewrites of networks whose parameters are known and do not change: imported files (not for
-- users).
--
-- A rule looks at one node of the graph and returns the entries that replace its outputs, or nil.
-- Rules run in the order of the graph, inputs before readers, so that each sees its inputs as
-- earlier rules left them. What a rule computes from parameters is a new parameter.
--
--     net = simplify(net, params, shapes, Symbol)

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local node = require "tycho.symbol.node"
local rewriting = require "tycho.symbol.rewriting"
local tables = require "tycho.core.tables"

local is_only_read, new_parameter, parameter_of = rewriting.is_only_read,
  rewriting.new_parameter, rewriting.parameter_of

local FUNC = "onnx.import_model"


-- Returns the output of a new node that takes the name and place of another.
local function replace_node(g, n, op, attrs, inputs)
  return { rewriting.operator(g, op, n.name, attrs, inputs, n.where) }
end


-- Returns the shape of an output of an operator; -1 where a size is open.
local function get_shape(g, entry)
  local shapes = g.shapes[entry[1]]
  return shapes and shapes[entry[2] + 1]
end


-- Scale and shift -----------------------------------------------------------------------------

local ADDS = { broadcast_add = true, elemwise_add = true }
local MULTIPLIES = { broadcast_mul = true, elemwise_mul = true }

-- Products with a weight and a bias: the parameter that counts channels, the axis of the channels
-- in the output (0: the last), whether axis 0 of the weight is the channels, the bias's input.
local PRODUCTS = {
  Convolution = { count = "num_filter", axis = 2, by_rows = true, bias = 3 },
  Deconvolution = { count = "num_filter", axis = 2, bias = 3 },
  FullyConnected = { count = "num_hidden", axis = 0, by_rows = true, bias = 3 },
  _contrib_int8_convolution = { count = "num_filter", axis = 2, bias = 4 },
  _contrib_int8_fully_connected = { count = "num_hidden", axis = 0, bias = 4 },
}


-- Returns x as a vector if it has one element for each channel of an output with `rank` axes.
local function flatten_by_channel(x, rank, axis, count)
  local shape = x.shape
  local at = #shape - (rank - (axis == 0 and rank or axis))
  if #shape > rank or x.size ~= count or at < 1 or shape[at] ~= count then
    return nil
  end
  return x:reshape{ count }
end


-- Returns the node of a product that only n reads, as earlier rules left it, the constants that n
-- combines with its channels, and its bias. A product with a further step after its bias does not
-- count.
local function find_product_and_vector(g, n)
  for i = 1, 2 do
    local before, x = n.inputs[i], parameter_of(g, n.inputs[3 - i])
    local product, shape = g.moved(before)[1], get_shape(g, before)
    local kind = PRODUCTS[product.op]
    if x and kind and shape and is_only_read(g, before)
        and not (product.attrs.act_type or product.attrs.with_sum) then
      local vector = flatten_by_channel(x, #shape, kind.axis, tonumber(product.attrs[kind.count]))
      local given = product.inputs[kind.bias]
      local bias = given and parameter_of(g, given)
      if vector and (bias or not given) then
        return product, vector, bias
      end
    end
  end
end


-- Moves a constant per channel that is added to a product into its bias. Returns the replacement,
-- nil: the node stays.
local function fold_shift(g, n)
  local product, shift, bias = nil, nil, nil
  if ADDS[n.op] then
    product, shift, bias = find_product_and_vector(g, n)
  end
  if not product then
    return nil
  end
  local inputs = tables.copied(product.inputs)
  inputs[PRODUCTS[product.op].bias] = new_parameter(g, n.name .. "_bias",
    bias and bias + shift or shift)
  return replace_node(g, n, product.op, node.merged(product.attrs, { no_bias = "False" }), inputs)
end


-- Moves a constant per channel that multiplies a product into its weight and its bias. Returns the
-- replacement, nil: the node stays.
local function fold_scale(g, n)
  local product, scale, bias = nil, nil, nil
  if MULTIPLIES[n.op] then
    product, scale, bias = find_product_and_vector(g, n)
  end
  local weight = product and PRODUCTS[product.op].by_rows and parameter_of(g, product.inputs[2])
  if not weight then
    return nil
  end
  local shape = { scale.size }
  for i = 2, #weight.shape do
    shape[i] = 1
  end
  return replace_node(g, n, product.op, product.attrs, { product.inputs[1],
    new_parameter(g, n.name .. "_weight", weight * scale:reshape(shape)),
    bias and new_parameter(g, n.name .. "_bias", bias * scale) })
end


-- Normalisation -------------------------------------------------------------------------------

local function same_entry(a, b) return a[1] == b[1] and a[2] == b[2] end


local function is_one_of(n, op, other) return n.op == op or n.op == other end


-- Returns whether a node is the mean over the last axis, which stays with size 1.
local function is_row_mean(g, n)
  if n.op ~= "mean" or n.attrs.keepdims ~= "True" then
    return false
  end
  local axis = tonumber((n.attrs.axis or ""):match "^%(?(%-?%d+),?%)?$")
  local shape = get_shape(g, { n, 0 })
  return axis and shape and (axis == -1 or axis == #shape - 1)
end


-- Returns the entry whose square a node is; nil: it is not a square.
local function find_squared(n)
  if n.op == "square" or n.op == "_power_scalar" and tonumber(n.attrs.scalar) == 2
    or n.op == "elemwise_mul" and same_entry(n.inputs[1], n.inputs[2]) then
    return n.inputs[1]
  end
end


-- Returns x and eps where a node is (x - mean) / sqrt(mean((x - mean)^2) + eps); nil: it is not.
local function find_normalised(g, n)
  if not is_one_of(n, "broadcast_div", "elemwise_div") then
    return nil
  end
  local centred, root = n.inputs[1], n.inputs[2][1]
  local sum = root.op == "sqrt" and root.inputs[1][1]
  local variance = sum and sum.op == "_plus_scalar" and sum.inputs[1][1]
  local square = variance and is_row_mean(g, variance) and find_squared(variance.inputs[1][1])
  local difference = centred[1]
  if not square or not same_entry(square, centred)
    or not is_one_of(difference, "broadcast_sub", "elemwise_sub") then
    return nil
  end
  local x, mean = difference.inputs[1], difference.inputs[2][1]
  if is_row_mean(g, mean) and same_entry(mean.inputs[1], x) then
    return x, sum.attrs.scalar
  end
end


-- Returns the input of a node that is a vector of `size` parameters, and the other one.
local function find_vector_and_other(g, n, size)
  for i = 1, 2 do
    local x = parameter_of(g, n.inputs[i])
    if x and #x.shape == 1 and x.size == size then
      return n.inputs[i], n.inputs[3 - i]
    end
  end
end


-- Joins a mean, a deviation, a scale and a shift to a LayerNorm. Returns the replacement, nil: the
-- node stays.
local function join_layer_norm(g, n)
  local shape = ADDS[n.op] and get_shape(g, { n, 0 })
  if not shape then
    return nil
  end
  local size = shape[#shape]
  local beta, scaled = find_vector_and_other(g, n, size)
  if not beta or not MULTIPLIES[scaled[1].op] then
    return nil
  end
  local gamma, normal = find_vector_and_other(g, scaled[1], size)
  local x, eps = nil, nil
  if gamma then
    x, eps = find_normalised(g, normal[1])
  end
  local normal_shape = x and get_shape(g, normal)
  if not normal_shape or #normal_shape ~= #shape or normal_shape[#shape] ~= size then
    return nil
  end
  return replace_node(g, n, "LayerNorm", { axis = "-1", eps = eps },
    { g.moved(x), g.moved(gamma), g.moved(beta) })
end


-- Activations ---------------------------------------------------------------------------------

local CLOSE = 1e-6                                       -- between numbers of float32


-- Returns the entry that a node multiplies by a number; nil: it does not.
local function find_multiplied(n, factor)
  local by = tonumber(n.attrs and n.attrs.scalar)
  local by_product = n.op == "_mul_scalar" and by or n.op == "_div_scalar" and by ~= 0 and 1 / by
  if by_product and math.abs(by_product - factor) <= CLOSE * factor then
    return n.inputs[1]
  end
end


-- Returns the entry to which a node adds a number; nil: it does not.
local function find_summed(n, number)
  if n.op == "_plus_scalar" and tonumber(n.attrs.scalar) == number then
    return n.inputs[1]
  end
end


-- Returns the entry x where a node is 1 + erf(x / sqrt(2)).
local function find_in_erf(n)
  local erf = find_summed(n, 1)
  return erf and erf[1].op == "erf" and find_multiplied(erf[1].inputs[1][1], math.sqrt(0.5))
end


-- Returns the entry x where a node is x * (1 + erf(x / sqrt(2))) / 2; either factor, or the
-- product, may be the halved one.
local function find_in_gelu(n)
  local whole = find_multiplied(n, 0.5)
  local product = whole and whole[1] or n
  for i = 1, product.op == "elemwise_mul" and 2 or 0 do
    local a, b = product.inputs[i], product.inputs[3 - i]
    local half_a, half_b = find_multiplied(a[1], 0.5), find_multiplied(b[1], 0.5)
    local x = find_in_erf(not whole and half_b and half_b[1] or b[1])
    local halved = whole or half_b or half_a
    local factor = (whole or half_b) and a or half_a
    if x and halved and same_entry(factor, x) then
      return x
    end
  end
end


local function join_gelu(g, n)
  local x = find_in_gelu(n)
  return x and replace_node(g, n, "LeakyReLU", { act_type = "gelu" }, { g.moved(x) })
end


-- Returns the entry x where a node limits x to least .. most.
local function find_limited(n, least, most)
  if n.op == "clip" then
    return tonumber(n.attrs.a_min) == least and tonumber(n.attrs.a_max) == most and n.inputs[1]
  end
  local bounds = { _maximum_scalar = least, _minimum_scalar = most }
  local other = { _maximum_scalar = "_minimum_scalar", _minimum_scalar = "_maximum_scalar" }
  local inner = other[n.op] and n.inputs[1][1]
  if inner and inner.op == other[n.op] and tonumber(n.attrs.scalar) == bounds[n.op]
    and tonumber(inner.attrs.scalar) == bounds[inner.op] then
    return inner.inputs[1]
  end
end


-- Joins x * clip(x + 3, 0, 6) / 6 to x * hard_sigmoid(x), which is one pass. Returns the
-- replacement, nil: the node stays.
local function join_hard_swish(g, n)
  local whole = find_multiplied(n, 1 / 6)
  local product = whole and whole[1]
  for i = 1, product and product.op == "elemwise_mul" and 2 or 0 do
    local x, gate = product.inputs[i], product.inputs[3 - i]
    local sum = find_limited(gate[1], 0, 6)
    local inner = sum and find_summed(sum[1], 3)
    if inner and same_entry(inner, x) then
      local moved = g.moved(x)
      return replace_node(g, n, "elemwise_mul", {}, { moved,
        rewriting.operator(g, "hard_sigmoid", rewriting.free_name(g, n.name .. "_gate"),
          { alpha = ("%.9g"):format(1 / 6), beta = "0.5" }, { moved }, n.where) })
    end
  end
end


-- Returns whether the function of a node is monotonically increasing: it and a maximum may change
-- places without a change of bits.
local function keeps_order(n)
  return n.op == "LeakyReLU" and (n.attrs.act_type or "leaky") == "leaky"
    and tonumber(n.attrs.slope or "0.25") > 0
end


local function is_maximum(n)
  return n.op == "Pooling" and (n.attrs.pool_type or "max") == "max"
end


-- Moves an activation after the maximum that reads it, where it has fewer elements to compute.
-- Returns the replacement, nil: the node stays.
local function sink_activation(g, n)
  local entry = is_maximum(n) and g.moved(n.inputs[1])
  local active = entry and entry[1]
  if not active or not keeps_order(active) or not is_only_read(g, n.inputs[1]) then
    return nil
  end
  local before, after = get_shape(g, n.inputs[1]), get_shape(g, { n, 0 })
  for i = 1, #(before or {}) do
    if not after or before[i] < 0 or after[i] > before[i] then
      return nil
    end
  end
  local pooled = rewriting.operator(g, "Pooling", rewriting.free_name(g, n.name .. "_pooled"),
    n.attrs, { active.inputs[1] }, n.where)
  return before and replace_node(g, n, active.op, active.attrs, { pooled })
end


-- One-hot vectors -----------------------------------------------------------------------------

local MOST_CLASSES = 2 ^ 16


-- Returns the size of a parameter that counts 0, 1, 2 ... along the last axis, its only one.
local function find_counting_size(g, entry)
  local x = parameter_of(g, entry)
  local size = x and x.shape[#x.shape]
  if not x or x.size ~= size or size > MOST_CLASSES then
    return nil
  end
  for i, v in ipairs(x:reshape{ -1 }:astype("float64"):totable()) do
    if v ~= i - 1 then
      return nil
    end
  end
  return size
end


-- Returns the entry x where an entry is x == (0, 1, 2 ...) and the last axis of x has one element,
-- and the number of classes.
local function find_in_one_hot(g, entry)
  while entry[1].op == "Cast" do
    entry = entry[1].inputs[1]
  end
  local equal = entry[1]
  for i = 1, equal.op == "broadcast_equal" and 2 or 0 do
    local x, shape = equal.inputs[i], get_shape(g, equal.inputs[i])
    local classes = shape and shape[#shape] == 1 and #shape > 1
      and find_counting_size(g, equal.inputs[3 - i])
    if classes then
      return x, classes
    end
  end
end


-- Replaces one-hot vectors times a matrix by the rows that they choose, and by zeros where an index
-- is out of range. Returns the replacement, nil: the node stays.
local function join_one_hot(g, n)
  if n.op ~= "dot" or n.attrs.transpose_a or n.attrs.transpose_b then
    return nil
  end
  local x, classes = find_in_one_hot(g, n.inputs[1])
  local matrix = x and parameter_of(g, n.inputs[2])
  if not matrix or #matrix.shape ~= 2 or matrix.shape[1] ~= classes
    or #(get_shape(g, n.inputs[2]) or matrix.shape) ~= 2 then
    return nil
  end
  local function made(op, attrs, ...)
    return rewriting.operator(g, op, rewriting.free_name(g, n.name .. "_" .. op), attrs, { ... },
      n.where)
  end
  local moved = g.moved(x)
  local index = made("floor", {}, made("clip", { a_min = "0", a_max = tostring(classes - 1) },
    moved))
  local rows = made("take", { mode = "clip" }, n.inputs[2], made("squeeze", { axis = "-1" }, index))
  local is_one = made("Cast", { dtype = matrix.dtype }, made("_equal", {}, index, moved))
  return replace_node(g, n, "broadcast_mul", {}, { rows, is_one })
end


local RULES = { fold_shift, fold_scale, join_layer_norm, join_gelu, join_hard_swish, join_one_hot,
  sink_activation }


-- Returns whether a sum or product of two has a parameter as an input, or an operator occurs that
-- only composed activations, one-hot vectors and activations before a maximum have: a short check,
-- since most networks have none of them.
local function has_candidates(params, order)
  for _, n in ipairs(order) do
    if n.op == "erf" or n.op == "clip" or n.op == "_minimum_scalar"
      or n.op == "broadcast_equal" or is_maximum(n) and keeps_order(n.inputs[1][1]) then
      return true
    end
    if ADDS[n.op] or MULTIPLIES[n.op] then
      local a, b = n.inputs[1][1], n.inputs[2][1]
      if not a.op and params[a.name] or not b.op and params[b.name] then
        return true
      end
    end
  end
  return false
end


-- Rewrites a symbol for inference.
-- @tparam Symbol net
-- @tparam table params name -> array, of all variables that keep their values; rules add theirs
-- @tparam table shapes node -> shapes of its outputs, -1 where a size is open
-- @tparam Class Symbol
-- @tparam[opt] {function,...} more rules, which are asked first
-- @treturn Symbol with other nodes where rules apply; variables keep theirs
return function(net, params, shapes, Symbol, more)
  local order, rules = node.walk(net._entries), tables.copied(more or {})
  if #rules == 0 and not has_candidates(params, order) then
    return net
  end
  for _, rule in ipairs(RULES) do
    rules[#rules + 1] = rule
  end
  local g = { entries = net._entries, params = params, shapes = shapes, func = FUNC }
  local changed = rewriting.run(g, function(_, n)
    for _, rule in ipairs(rules) do
      local made = rule(g, n)
      if made then
        return made
      end
    end
  end)
  return changed and Symbol.of(g.entries) or net
end
