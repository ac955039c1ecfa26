--- Networks of Torch7, as `torch.save` wrote them: `ty.torch7`.
--
--     local object = ty.torch7.load("net.t7")
--     local net, args, auxs = ty.torch7.import_model{"net.t7", shapes = {data = {1, 3, 224, 224}}}
--
-- @module tycho.torch7

require "tycho.core.luajit"
local args = require "tycho.core.args"
local namespace = require "tycho.core.namespace"
local objects = require "tycho.torch7.objects"
local reader = require "tycho.torch7.reader"

local torch7 = {}


local LOAD = args.form("torch7.load", { { "path", "text" } })

--- Reads a file. Tables, numbers, texts and booleans are Lua's, tensors and storages are arrays
-- (those without elements `ty.null`, an object), objects of classes are tables of their fields.
-- What is referred to twice is the same value. Functions are not read. Arrays take memory when they
-- are first used.
-- @string path missing E(io), damaged E(format)
-- @return the object
function torch7.load(...)
  return reader.read(LOAD(...).path, "torch7.load")
end


--- Returns a network of Torch7 as a symbol and its parameters, for evaluation and training. Inputs
-- are named `data`, `data2` ..., depth first where they are tables of tables; so are outputs in
-- order. A weight that several modules share is one argument; parameters keep the precision of the
-- file. A criterion becomes a loss of `data` and `label`.
-- @param net path, or an object that `load` gave: a module or a criterion
-- @tparam table options shapes: input name -> sizes, which decide what layers do; criterion: an
--   object whose loss follows the network, or the name of its class, "nn.ClassNLLCriterion"
-- @treturn Symbol
-- @treturn table arg_params
-- @treturn table aux_params; E(unsupported) names a class that cannot be imported, E(format) a
--   damaged file, E(value), E(shape) and E(type) a module that does not fit
function torch7.import_model(...)
  -- loaded when it is first needed: the collector visits all code that is there
  torch7.import_model = require("tycho.torch7.import").import_model
  return torch7.import_model(...)
end


--- The class of what a file held.
-- @param value anything
-- @treturn string such as "nn.Linear" or "torch.FloatTensor"; nil for plain values
torch7.typename = objects.typename


return namespace.close(torch7, "torch7", "function")
