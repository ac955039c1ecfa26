--- Element-wise layers: Activation, LeakyReLU, PReLU, ELU, SELU, GELU, Swish. Input and output have
-- the same shape.
--
-- @module tycho.gluon.nn.activations

local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local init = require "tycho.initializer"
local layer = require "tycho.gluon.layer"
local values = require "tycho.core.values"
local HybridBlock = require "tycho.gluon.hybrid_block"

local node_name = layer.node_name
local activations = {}

local ACTIVATIONS = { "relu", "sigmoid", "tanh", "softrelu", "softsign" }


--- Applies "relu", "sigmoid", "tanh", "softrelu" or "softsign": `Activation(activation)`; another
-- name is E(`value`). The automatic prefix is the activation's name.
-- @type Activation
local Activation = layer.extend(HybridBlock, "nn.Activation", { { "activation", "text" } })

function Activation._hint(_, given)
  given = values.is_plain(given) and (given.activation or given[1]) or given
  return type(given) == "string" and given or "activation"
end


-- Name of an activation that is a separate layer -> that layer, for the error.
local ELSEWHERE = { elu = "ELU", gelu = "GELU", leaky = "LeakyReLU", leaky_relu = "LeakyReLU",
  leakyrelu = "LeakyReLU", prelu = "PReLU", selu = "SELU", silu = "Swish", swish = "Swish" }

function Activation:set_up(a)
  local other = ELSEWHERE[a.activation:lower()]
  if other then
    Error.raise{ code = "value", func = "nn.Activation", argument = "activation",
      expected = Error.choice(ACTIVATIONS), got = Error.kind(a.activation),
      message = ("'%s' is a layer of its own: nn.%s"):format(a.activation, other) }
  end
  self._act_type = layer.word("nn.Activation", "activation", a.activation, ACTIVATIONS)
end


local activation = layer.weighted("Activation", function(self)
  return { act_type = self._act_type }
end)


function Activation:forward(x)
  return activation(self, node_name(x), x)
end


layer.describe(Activation, function(self)
  return ("%s(%s)"):format(self.class_name, self._act_type)
end)


--- Computes x, or alpha x where x is negative: `LeakyReLU(alpha)`.
-- @type LeakyReLU
local LeakyReLU = layer.extend(HybridBlock, "nn.LeakyReLU", { { "alpha", "number" } })

function LeakyReLU:set_up(a)
  if a.alpha < 0 then
    Error.raise{ code = "value", func = "nn.LeakyReLU", argument = "alpha", got = a.alpha,
      expected = "a number not below 0",
      message = "the slope of the negative side must not be negative" }
  end
  self._alpha = a.alpha
end


function LeakyReLU:forward(x)
  return F.LeakyReLU{ x, act_type = "leaky", slope = self._alpha, name = node_name(x) }
end


layer.describe(LeakyReLU, function(self)
  return ("%s(%s)"):format(self.class_name, layer.show(self._alpha))
end)


--- Computes x, or alpha x where x is negative, with a learned alpha. `in_channels` = 1; larger: one
-- alpha for each channel of axis 1.
-- @type PReLU
local PReLU = layer.extend(HybridBlock, "nn.PReLU",
  { { "alpha_initializer", "any?" }, { "in_channels", "positive", 1 } })

function PReLU:set_up(a)
  self.alpha = self.params:get("alpha",
    { shape = { a.in_channels }, init = a.alpha_initializer or init.Constant(0.25) })
end


function PReLU:forward(x)
  return F.LeakyReLU{ x, gamma = self.alpha:data(x), act_type = "prelu", name = node_name(x) }
end


--- Computes x, or alpha (exp(x) - 1) where x is negative: `ELU(alpha)`, alpha = 1.
-- @type ELU
local ELU = layer.extend(HybridBlock, "nn.ELU", { { "alpha", "number", 1 } })

function ELU:set_up(a)
  self._alpha = a.alpha
end


function ELU:forward(x)
  return F.LeakyReLU{ x, act_type = "elu", slope = self._alpha }
end


--- Computes the scaled exponential linear unit, with the constants of its paper.
-- @type SELU
local SELU = layer.extend(HybridBlock, "nn.SELU", {})

function SELU:set_up() end


function SELU:forward(x)
  return F.LeakyReLU{ x, act_type = "selu", name = node_name(x) }
end


--- Computes x times the distribution function of the normal distribution at x.
-- @type GELU
local GELU = layer.extend(HybridBlock, "nn.GELU", {})

function GELU:set_up() end


function GELU:forward(x)
  return F.LeakyReLU{ x, act_type = "gelu", name = node_name(x) }
end


--- Computes x sigmoid(beta x): `Swish(beta)`, beta = 1.
-- @type Swish
local Swish = layer.extend(HybridBlock, "nn.Swish", { { "beta", "number", 1 } })

function Swish:set_up(a)
  self._beta = a.beta
end


function Swish:forward(x)
  return x * F.sigmoid{ x * self._beta, name = node_name(x) }
end


activations.Activation, activations.LeakyReLU, activations.PReLU = Activation, LeakyReLU, PReLU
activations.ELU, activations.SELU, activations.GELU, activations.Swish = ELU, SELU, GELU, Swish

return activations
