--- Counts the arithmetic operations of a network, for `models/inspect.lua` and
-- `module/summary.lua`.
--
-- Products count two operations for each pair of factors. Other operators count one for each
-- element of their outputs; those that only move elements count none, and bodies of loops and
-- branches are not counted.
--
-- @module tycho.symbol.flops

local tables = require "tycho.core.tables"

local flops = {}


local function sizes(text)
  local list = {}
  for size in (text or ""):gmatch("%d+") do
    list[#list + 1] = tonumber(size)
  end
  return list
end


local function product_of_lists(a, n, default)
  local list = sizes(a)
  return #list > 0 and tables.product(list) or default or n
end


local function is_true(text)
  return text == "True" or text == "true" or text == "1"
end


-- Returns the length of the axis of the left matrix that a product sums over.
local function inner_length(shape, transposed)
  return transposed and shape[#shape - 1] or shape[#shape]
end


-- Returns the count of a product of matrices. transposed: the attribute that says whether the left
-- one is transposed.
local function matrix_product(transposed)
  return function(attrs, ins, outs)
    return 2 * tables.product(outs[1]) * inner_length(ins[1], is_true(attrs[transposed]))
  end
end


local function convolution(attrs, ins, outs)
  local window = product_of_lists(attrs.kernel, 1)
  return 2 * tables.product(outs[1]) * window * ins[1][2] / (tonumber(attrs.num_group) or 1)
end


-- Operators with products: count(attributes, shapes of inputs, shapes of outputs).
local COUNT = {
  Convolution = convolution, Convolution_v1 = convolution,
  Deconvolution = function(attrs, ins, outs)
    return 2 * tables.product(ins[1]) * product_of_lists(attrs.kernel, 1) * outs[1][2]
      / (tonumber(attrs.num_group) or 1)
  end,
  FullyConnected = function(_, ins, outs)
    return 2 * tables.product(outs[1]) * ins[2][2]
  end,
  dot = function(attrs, ins, outs)
    local shape = ins[1]
    return 2 * tables.product(outs[1]) * (is_true(attrs.transpose_a) and shape[1] or shape[#shape])
  end,
  batch_dot = matrix_product("transpose_a"),
  _linalg_gemm2 = matrix_product("transpose_a"), _linalg_gemm = matrix_product("transpose_a"),
  RNN = function(_, ins) return 2 * ins[1][1] * ins[1][2] * tables.product(ins[2]) end,
  Pooling = function(attrs, _, outs)
    return tables.product(outs[1]) * product_of_lists(attrs.kernel, 1)
  end,
}

local NONE = {}
for name in ([[Reshape Flatten transpose SwapAxis expand_dims squeeze slice slice_axis slice_like
    Concat stack SliceChannel _split_v2 Embedding take Pad repeat tile broadcast_to broadcast_axis
    broadcast_like reverse identity _copy BlockGrad Dropout Cast space_to_depth depth_to_space
    one_hot gather_nd _zeros _ones _full _arange zeros_like ones_like]]):gmatch("%S+") do
  NONE[name] = 0
end


--- Returns the operations of a node.
-- @string op
-- @tparam table attrs texts by name
-- @tparam {{int,...},...} ins shapes of the inputs
-- @tparam {{int,...},...} outs shapes of the visible outputs
function flops.of(op, attrs, ins, outs)
  if COUNT[op] then
    return COUNT[op](attrs, ins, outs)
  end
  local count = 0
  for _, shape in ipairs(outs) do
    count = count + tables.product(shape)
  end
  return NONE[op] or count
end


return flops
