--- The work of a step on a GPU: floating-point operations of its products and convolutions, bytes
-- of the operands of its steps, launches.
local cjson = require "cjson"
local ty = require "tycho"

local work = {}

local function count(shape, from)
  local n = 1
  for i = from or 1, #shape do n = n * shape[i] end
  return n
end

-- Multiplications and additions of a node's products, by the shapes of its inputs and its output.
local FLOP = {}

function FLOP.FullyConnected(inputs, out) return 2 * count(out) * inputs[2][2] end
function FLOP.Convolution(inputs, out) return 2 * count(out) * count(inputs[2], 2) end

function FLOP.RNN(inputs, _, attrs)
  local steps, batch, width = unpack(inputs[1])
  local units, sum = tonumber(attrs.state_size), 0
  for layer = 1, tonumber(attrs.num_layers) do
    sum = sum + 2 * steps * batch * 4 * units * ((layer == 1 and width or units) + units)
  end
  return sum
end

--- Returns the shape of each output of each node, by node and output, from 1.
-- @tparam table nodes of the symbol's JSON
-- @tparam table known shapes of arguments
function work.shapes(symbol, nodes, known)
  local internals = symbol:get_internals()
  local _, list = internals:infer_shape(known)
  local at, by_name = {}, {}
  for i, name in ipairs(internals:list_outputs()) do by_name[name] = list[i] end
  for k, node in ipairs(nodes) do
    local one = by_name[node.op == "null" and node.name or node.name .. "_output"]
    at[k] = one and {one} or {}
    for i = 0, math.huge do
      local more = by_name[node.name .. "_output" .. i]
      if not more then break end
      at[k][i + 1] = more
    end
  end
  return at
end

--- Returns the operations of a step: a product has two gradients of the same cost, except one whose
-- data depends on no parameter.
-- @tparam table known shapes of arguments
-- @tparam table inputs names of arguments that are not parameters
function work.flop(symbol, known, inputs, train)
  local nodes = cjson.decode(symbol:tojson()).nodes
  local shapes, learns, sum = work.shapes(symbol, nodes, known), {}, 0
  for k, node in ipairs(nodes) do
    learns[k] = node.op == "null" and not inputs[node.name]
    local given = {}
    for i, from in ipairs(node.inputs) do
      learns[k] = learns[k] or learns[from[1] + 1]
      given[i] = shapes[from[1] + 1][from[2] + 1]
    end
    local flop = FLOP[node.op]
    if flop then
      local data = node.inputs[1][1] + 1
      sum = sum + flop(given, shapes[k][1], node.attrs or {})
        * (not train and 1 or learns[data] and 3 or 2)
    end
  end
  return sum
end

-- Returns the bytes that SGD with momentum reads and writes: weight, gradient, momentum; weight,
-- momentum.
local function bytes_of_updates(exe)
  local bytes = 0
  for name, grad in pairs(exe.grad_dict) do
    if grad ~= ty.null then bytes = bytes + 5 * 4 * exe.arg_dict[name].size end
  end
  return bytes
end

--- Returns the work of `step`, which runs `exe` and, in training, the updates; nil on a CPU. The
-- executor is timed step by step from then on.
-- @tparam table inputs names of arguments that are not parameters
function work.of(exe, step, inputs, train)
  local context = ty.current_context()
  if context.device_type ~= "gpu" then return nil end
  ty.waitall()
  local before = context:work()
  step()
  ty.waitall()
  local after, known, bytes = context:work(), {}, train and bytes_of_updates(exe) or 0
  exe:profile()
  step()
  for _, s in ipairs(exe:profile()) do bytes = bytes + s.bytes end
  for name, x in pairs(exe.arg_dict) do known[name] = x.shape end
  return {launches = after.launches - before.launches, copies = after.copies - before.copies,
    bytes = bytes, flop = work.flop(exe._symbol, known, inputs, train)}
end

return work
