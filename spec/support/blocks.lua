-- Blocks for specs of gluon's core, which do not depend on gluon.nn.

local ty = require "tycho"

local F, gluon = ty.F, ty.gluon

local blocks = {}

--- A dense layer: `Dense(units)`, `Dense(units, inputs)`, `Dense{ units, prefix = "d_" }`.
local Dense = gluon.HybridBlock:extend("Dense")
blocks.Dense = Dense

function Dense:init(units, inputs)
  if type(units) == "table" then
    units, inputs = units[1], units[2]
  end
  self.units = units
  inputs = type(inputs) == "number" and inputs or 0
  self.weight = self.params:get("weight",
    { shape = { units, inputs }, allow_deferred_init = true })
  self.bias = self.params:get("bias", { shape = { units }, init = "zeros" })
end

function Dense:forward(x)
  return F.FullyConnected{ x, self.weight:data(x), self.bias:data(x), num_hidden = self.units,
    name = "fwd" }
end


--- Two layers with an activation between them.
local Net = gluon.HybridBlock:extend("Net")
blocks.Net = Net

function Net:init(hidden, units)
  self.a = Dense(type(hidden) == "number" and hidden or 4)
  self.b = Dense(units or 3)
end

function Net:forward(x)
  return self.b(F.tanh(self.a(x)))
end


--- Returns small numbers in a shape, which differ from each other.
function blocks.numbers(shape, offset)
  local n = 1
  for _, size in ipairs(shape) do
    n = n * size
  end
  local list = {}
  for i = 1, n do
    list[i] = math.sin(i * 1.7 + (offset or 0))
  end
  return ty.nd.array(list):reshape(shape)
end


--- Sets all parameters to numbers that follow from their order.
function blocks.fill(net)
  for i, p in ipairs(net:collect_params():values()) do
    p:set_data(blocks.numbers(p.shape, i))
  end
end


return blocks
