--- The bytes that a network's operators would move if each read its operands and wrote its results
-- once: device memory of a training step, by rules over the symbol as written. Fusion, kept values
-- and recomputation are ignored.
local cjson = require "cjson"
local work = require "work"

local ideal = {}

-- Elements moved: forward; backward for the first input; backward for the others. x, w, y: elements
-- of the first input, of all others, of the first output; g: steps * batch * units * layers of RNN,
-- whose four gates and cells are kept for backward.
local VIEW, POINT = {"0", "0", "0"}, {"x + y", "2 * y + x", "0"}
local PRODUCT = {"x + w + y", "y + w + x", "y + x + w"}
local NORM = {"2 * x", "3 * x", "0"}
local RULES = {
  Activation = POINT, LeakyReLU = POINT, relu = POINT, tanh = POINT, sigmoid = POINT,
  BatchNorm = NORM, LayerNorm = NORM, _contrib_RMSNorm = NORM, softmax = NORM, log_softmax = NORM,
  Convolution = PRODUCT, FullyConnected = PRODUCT,
  Reshape = VIEW, Flatten = VIEW, expand_dims = VIEW, _zeros = VIEW,
  SliceChannel = {"2 * x", "2 * x", "0"}, Concat = {"2 * y", "2 * y", "0"},
  Pooling = {"x + y", "y + 2 * x", "0"},
  Dropout = {"2 * x", "2 * x", "0"},
  SoftmaxOutput = {"2 * x", "2 * x", "0"},
  Embedding = {"x + 2 * y", "0", "x + y + w"},
  RNN = {"x + w + y + 5 * g", "x + w + y + 5 * g", "x + w"},
  _plus = {"x + w + y", "0", "0"}, elemwise_add = {"x + w + y", "0", "0"},
  broadcast_add = {"x + w + y", "0", "y + w"},
  elemwise_mul = {"x + w + y", "2 * y + w", "0"}, _mul = {"x + w + y", "2 * y + w", "0"},
  _contrib_interleaved_matmul_selfatt_qk = {"2 * x / 3 + y", "2 * y + 4 * x / 3", "0"},
  _contrib_interleaved_matmul_selfatt_valatt = {"x / 3 + w + y", "y + w + x / 3",
    "y + x / 3 + w"},
  _contrib_attention = {"x + w + y", "2 * y + 2 * x + 2 * w", "0"},
}
local UPDATE = 5  -- weight, gradient, momentum; weight, momentum

local function count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function evaluate_rule(rule, numbers)
  return setfenv(assert(loadstring("return " .. rule)), numbers)()
end

local function count_numbers(node, given, out)
  local numbers = {x = count(given[1] or {0}), w = 0, y = count(out), g = 0}
  for i = 2, #given do numbers.w = numbers.w + count(given[i]) end
  if node.op == "RNN" then
    numbers.w = count(given[2])
    numbers.g = given[1][1] * given[1][2] * node.attrs.state_size * node.attrs.num_layers
  end
  return numbers
end

--- Returns the bytes of a training step of float32 with momentum.
-- @tparam table known shapes of arguments
-- @tparam table inputs names of arguments that are not parameters
function ideal.bytes(symbol, known, inputs)
  local nodes = cjson.decode(symbol:tojson()).nodes
  local shapes, learns, readers, sum = work.shapes(symbol, nodes, known), {}, {}, 0
  for k, node in ipairs(nodes) do
    learns[k] = node.op == "null" and not inputs[node.name]
    local given, others = {}, false
    for i, from in ipairs(node.inputs) do
      local at, out = from[1] + 1, from[2] + 1
      given[i] = shapes[at][out]
      learns[k] = learns[k] or learns[at]
      others = others or (i > 1 and learns[at])
      local key = at .. ":" .. out
      readers[key] = (readers[key] or 0) + 1
      -- gradients of a value with several readers are summed
      if learns[at] and readers[key] > 1 then sum = sum + 3 * count(given[i]) end
    end
    if node.op == "null" then
      sum = sum + (learns[k] and UPDATE * count(shapes[k][1]) or 0)
    else
      local rule = assert(RULES[node.op], "no rule for " .. node.op)
      local numbers = count_numbers(node, given, shapes[k][1])
      sum = sum + evaluate_rule(rule[1], numbers)
      local data = node.inputs[1] and node.inputs[1][1] + 1
      if learns[data] then sum = sum + evaluate_rule(rule[2], numbers) end
      if others then sum = sum + evaluate_rule(rule[3], numbers) end
    end
  end
  return 4 * sum
end

--- Returns the bytes of an operator of float32, forward and backward.
-- @string op
-- @tparam table given shapes of inputs
-- @tparam table out shape of the first output
function ideal.of(op, given, out)
  local rule = assert(RULES[op], "no rule for " .. op)
  local numbers = count_numbers({op = op}, given, out)
  local back = evaluate_rule(rule[2], numbers) + evaluate_rule(rule[3], numbers)
  return 4 * evaluate_rule(rule[1], numbers), 4 * back
end

return ideal
