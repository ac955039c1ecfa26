--- Layers between DequantizeLinear and QuantizeLinear as layers of 8-bit integers (not for users).
--
-- The import records which values were decoded from levels, and which are levels of other values
-- (`value.note_levels`). The rules run in symbol/simplify.lua: a product of decoded data with a
-- decoded constant weight becomes `_contrib_int8_...` of the levels; a sum, a relu and a
-- QuantizeLinear that are its only readers become part of the same node. Biases are added by
-- simplify's general rule.
--
-- @module tycho.onnx.levels

jit.off(true, true)                                      -- makes graphs: core/iterate.lua

local attribute = require "tycho.onnx.level_attributes"
local node = require "tycho.symbol.node"
local rewriting = require "tycho.symbol.rewriting"
local tables = require "tycho.core.tables"

local is_only_read, new_parameter = rewriting.is_only_read, rewriting.new_parameter

local levels = {}

-- Layers, and the axis of the weight that holds their channels.
local KINDS = {
  Convolution = { op = "_contrib_int8_convolution", axis = 0 },
  FullyConnected = { op = "_contrib_int8_fully_connected", axis = 0 },
  dot = { op = "_contrib_int8_fully_connected", axis = 1 },
}
local INT8 = { _contrib_int8_convolution = true, _contrib_int8_fully_connected = true }
local ADDS = { broadcast_add = true, elemwise_add = true }


-- Returns the output of a new node that replaces n.
local function replace_node(g, n, op, attrs, inputs)
  return { rewriting.operator(g, op, n.name, attrs, inputs, n.where) }
end


-- Returns the levels of a constant weight as int8 with the channels first, and the scale of each
-- channel, as parameters; nil if they do not fit.
local function weight_levels(g, of, entry, axis)
  local name = entry[1].name
  local from = not entry[1].op and of.weights[name]
  if not from then
    return nil
  end
  local key = name .. axis
  local made = of.made[key]
  if made == nil then
    local q, scale = attribute.weight(from, axis)
    made = q and { new_parameter(g, name .. "_levels", q),
      new_parameter(g, name .. "_scale", scale) } or false
    of.made[key] = made
  end
  return made or nil
end


-- Returns a rewrite that turns a product of decoded data with a decoded weight into a product of
-- levels.
local function layer_of_levels(of)
  return function(g, n)
    local kind = KINDS[n.op]
    local data = kind and of.decoded[n.inputs[1][1]]
    if not data
        or n.op == "dot" and (n.attrs.transpose_a == "True" or n.attrs.transpose_b == "True") then
      return nil
    end
    local groups = tonumber(n.attrs.num_group or 1)
    local weight = weight_levels(g, of, n.inputs[2], kind.axis)
    if not weight or not attribute.suits(g.params[weight[1][1].name].shape, groups) then
      return nil
    end
    local own = { data_scale = attribute.number(data.scale),
      data_zero = attribute.number(data.zero) }
    local attrs = node.merged(n.attrs, own)
    if n.op == "dot" then
      own.num_hidden = tostring(g.params[weight[1][1].name].shape[1])
      own.no_bias, own.flatten = "True", "False"
      attrs = own
    end
    return replace_node(g, n, kind.op, attrs, { g.moved(data.entry), weight[1], weight[2],
      n.inputs[3] and g.moved(n.inputs[3]) })
  end
end


-- Returns the layer of 8-bit integers whose real-valued output `entry` is, if it has a single
-- reader.
local function open_layer(g, entry)
  local before = g.moved(entry)[1]
  return INT8[before.op] and not before.attrs.act_type and is_only_read(g, entry) and before or nil
end


local function fuse_relu(g, n)
  local before = n.op == "relu" and open_layer(g, n.inputs[1])
  return before and replace_node(g, n, before.op, node.merged(before.attrs, { act_type = "relu" }),
    before.inputs)
end


local function has_shape_of(g, x, y)
  local a, b = g.shapes[x[1]], g.shapes[y[1]]
  a, b = a and a[x[2] + 1], b and b[y[2] + 1]
  return a and b and tables.same(a, b) and tables.is_known(a)
end


-- Returns a rewrite that moves the sum of a layer and a value of the same shape into the layer.
local function fuse_sum(of)
  return function(g, n)
    if not ADDS[n.op] or n.inputs[1][1] == n.inputs[2][1] then
      return nil
    end
    for i = 2, 1, -1 do
      local before, other = open_layer(g, n.inputs[i]), n.inputs[3 - i]
      if before and not before.attrs.with_sum and has_shape_of(g, n.inputs[i], other) then
        local inputs, decoded = tables.copied(before.inputs), of.decoded[other[1]]
        inputs[#inputs + 1] = g.moved(decoded and decoded.entry or other)
        return replace_node(g, n, before.op, node.merged(before.attrs, { with_sum = "True",
          sum_scale = decoded and attribute.number(decoded.scale),
          sum_zero = decoded and attribute.number(decoded.zero) }), inputs)
      end
    end
  end
end


-- Returns a rewrite that joins QuantizeLinear with the layer in front of it, which then stores
-- levels. Limits between them are dropped if the range of the levels has the same effect.
local function end_in_levels(of)
  return function(g, n)
    local what = of.encoded[n]
    if not what then
      return nil
    end
    local entry, least, most = what.entry, -math.huge, math.huge
    while is_only_read(g, entry) and not INT8[g.moved(entry)[1].op] do
      local limit = entry[1]
      local number = tonumber(limit.attrs and limit.attrs.scalar)
      if limit.op == "relu" then
        least = math.max(least, 0)
      elseif limit.op == "_maximum_scalar" and number then
        least = math.max(least, number)
      elseif limit.op == "_minimum_scalar" and number then
        most = math.min(most, number)
      else
        return nil
      end
      entry = limit.inputs[1]
    end
    local before = g.moved(entry)[1]
    if not INT8[before.op] or not is_only_read(g, entry) then
      return nil
    end
    local range = attribute.RANGE[what.dtype]
    local bottom, top = (range[1] - what.zero) * what.scale, (range[2] - what.zero) * what.scale
    local half, relu = what.scale / 2, nil
    if least > bottom + half then
      relu = least == 0 and "relu"
    end
    if most < top - half or relu == false then
      return nil
    end
    return replace_node(g, n, before.op, node.merged(before.attrs, { act_type = relu,
      out_type = what.dtype, out_scale = attribute.number(what.scale),
      out_zero = attribute.number(what.zero) }), before.inputs)
  end
end


--- Returns the rewrite rules for what an import has recorded; an empty list if it decoded nothing.
-- @tparam table of decoded, encoded (node -> record), weights (parameter -> levels)
-- @treturn {function,...}
function levels.rules(of)
  if next(of.decoded) == nil then
    return {}
  end
  of.made = {}
  return { layer_of_levels(of), fuse_relu, fuse_sum(of), end_in_levels(of) }
end


return levels
