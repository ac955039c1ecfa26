--- Dense, Dropout, Embedding, Flatten, Identity, Lambda, HybridLambda.
--
-- @module tycho.gluon.nn.basic

local Block = require "tycho.gluon.block"
local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local HybridBlock = require "tycho.gluon.hybrid_block"
local layer = require "tycho.gluon.layer"
local location = require "tycho.gluon.location"
local nd = require "tycho.ndarray"
local Activation = require("tycho.gluon.nn.activations").Activation

local node_name = layer.node_name
local basic = {}


-- Dense -------------------------------------------------------------------------------------------

--- Computes act(x weight^T + bias), weight (units, in_units), bias (units): `Dense(units,
-- activation)`. With `flatten` = true the input is (N, ...) and the output (N, units); with false
-- the input is (..., in_units) and the output (..., units). Options: use_bias = true, dtype =
-- "float32", weight_initializer, bias_initializer = "zeros", in_units = 0 (taken from the first
-- input).
-- @type Dense
local Dense = layer.extend(HybridBlock, "nn.Dense", {
  { "units", "positive" }, { "activation", "text?" }, { "use_bias", "boolean", true },
  { "flatten", "boolean", true }, { "dtype", "dtype", "float32" }, { "weight_initializer", "any?" },
  { "bias_initializer", "any", "zeros" }, { "in_units", "integer", 0 },
})

function Dense:set_up(a)
  self._units, self._flatten = a.units, a.flatten
  self.weight = self.params:get("weight", { shape = { a.units, a.in_units }, dtype = a.dtype,
    init = a.weight_initializer, allow_deferred_init = true })
  if a.use_bias then
    self.bias = self.params:get("bias", { shape = { a.units }, dtype = a.dtype,
      init = a.bias_initializer, allow_deferred_init = true })
  end
  if a.activation then
    self.act = Activation{ a.activation, prefix = a.activation .. "_" }
  end
end


local linear = layer.weighted("FullyConnected", function(dense)
  return { no_bias = not dense.bias, num_hidden = dense._units, flatten = dense._flatten }
end)


function Dense:forward(x)
  local bias, act = self.bias, self.act
  local y = linear(self, node_name(x), x, self.weight:data(x), bias and bias:data(x))
  return layer.activated(act, y)
end


layer.describe(Dense, function(self)
  local shape = self.weight.shape
  return ("%s(%s, %s)"):format(self.class_name, layer.mapping(shape[2], shape[1]),
    self.act and tostring(self.act) or "linear")
end)


-- Dropout -----------------------------------------------------------------------------------------

--- In training mode sets elements to 0 with probability `rate` and divides the others by 1 - rate:
-- `Dropout(rate, axes)`. Elements along `axes`, from 0, share one draw. Outside training mode, or
-- with rate 0, it returns its input.
-- @type Dropout
local Dropout = layer.extend(HybridBlock, "nn.Dropout",
  { { "rate", "number" }, { "axes", "shape", {} } })

function Dropout:set_up(a)
  if not (a.rate >= 0 and a.rate <= 1) then
    Error.raise{ code = "value", func = "nn.Dropout", argument = "rate", got = a.rate,
      expected = "a number from 0 to 1", message = "bad 'rate'" }
  end
  self._rate, self._axes = a.rate, a.axes
end


function Dropout:forward(x)
  if self._rate > 0 then
    return F.Dropout{ x, p = self._rate, axes = self._axes, name = node_name(x) }
  end
  return F.identity(x)
end


layer.describe(Dropout, function(self)
  return ("%s(p = %s, axes=%s)"):format(self.class_name, layer.show(self._rate),
    layer.show(self._axes))
end)


-- Embedding ---------------------------------------------------------------------------------------

--- Returns rows of a weight (input_dim, output_dim) for an array of indices, from 0, of any shape:
-- (...) to (..., output_dim). `Embedding(input_dim, output_dim)`; options: dtype = "float32",
-- weight_initializer; sparse_grad = true is E(`unsupported`).
-- @type Embedding
local Embedding = layer.extend(HybridBlock, "nn.Embedding", {
  { "input_dim", "positive" }, { "output_dim", "positive" }, { "dtype", "dtype", "float32" },
  { "weight_initializer", "any?" }, { "sparse_grad", "boolean", false },
})

function Embedding:set_up(a)
  layer.refuse_sparse("nn.Embedding", a.sparse_grad)
  self._input_dim, self._output_dim, self._dtype = a.input_dim, a.output_dim, a.dtype
  self.weight = self.params:get("weight", { shape = { a.input_dim, a.output_dim }, dtype = a.dtype,
    init = a.weight_initializer, allow_deferred_init = true })
end


function Embedding:cast(...)
  Embedding.super.cast(self, ...)
  self._dtype = self.weight.dtype
end


function Embedding:forward(x)
  return F.Embedding{ x, self.weight:data(x), input_dim = self._input_dim,
    output_dim = self._output_dim, dtype = self._dtype, name = node_name(x) }
end


layer.describe(Embedding, function(self)
  return ("%s(%s, %s)"):format(self.class_name, layer.mapping(self._input_dim, self._output_dim),
    self._dtype)
end)


-- Without parameters ------------------------------------------------------------------------------

--- Joins all axes except the first: (N, ...) to (N, product of the other sizes).
-- @type Flatten
local Flatten = layer.extend(HybridBlock, "nn.Flatten", {})

function Flatten:set_up() end


function Flatten:forward(x)
  return F.flatten(x)
end


layer.describe(Flatten, function(self)
  return self.class_name
end)


--- Returns its input, for skip connections in a Concurrent.
-- @type Identity
local Identity = layer.extend(HybridBlock, "nn.Identity", {})

function Identity:set_up() end


function Identity:forward(x)
  return x
end


-- Returns the function that a Lambda calls: an operator of a namespace by name, or the given one.
local function find_function(given, space, func)
  if type(given) ~= "string" then
    return given, "function"
  end
  local f = space[given]                                 -- E(name) if there is none
  if type(f) ~= "function" then
    Error.raise{ code = "value", func = func, argument = "function", got = Error.kind(given),
      expected = "the name of an operator", message = "bad 'function'" }
  end
  return f, given
end


local LAMBDA = { { "function", "text|function" } }

local function describe_lambda(self)
  return ("%s(%s)"):format(self.class_name, self._name)
end


--- Calls a function of arrays, or the operator of a name in `ty.nd`: `Lambda(function)`.
-- @type Lambda
local Lambda = layer.extend(Block, "nn.Lambda", LAMBDA)

function Lambda:set_up(a)
  self._f, self._name = find_function(a["function"], nd, "nn.Lambda")
end


function Lambda:forward(...)
  return self._f(...)
end
location.runs_script(Lambda.forward)


layer.describe(Lambda, describe_lambda)


--- Calls a function, like Lambda, in a HybridBlock: the function must accept arrays and symbols, as
-- those of `ty.F` do.
-- @type HybridLambda
local HybridLambda = layer.extend(HybridBlock, "nn.HybridLambda", LAMBDA)

function HybridLambda:set_up(a)
  local f
  f, self._name = find_function(a["function"], F, "nn.HybridLambda")
  self._f = f
  self._wants_operators = debug.getlocal(f, 1) == "F" and debug.getinfo(f, "u").nparams
end


function HybridLambda:forward(...)
  if self._wants_operators and select("#", ...) < self._wants_operators then
    Error.raise{ code = "type", func = "nn.HybridLambda", argument = "function",
      expected = "a function of the inputs", got = "a function of F and the inputs",
      message = "the function gets the inputs alone: write function(x), and ty.F in it" }
  end
  return self._f(...)
end
location.runs_script(HybridLambda.forward)


layer.describe(HybridLambda, describe_lambda)


basic.Dense, basic.Dropout, basic.Embedding, basic.Flatten = Dense, Dropout, Embedding, Flatten
basic.Identity, basic.Lambda, basic.HybridLambda = Identity, Lambda, HybridLambda

return basic
